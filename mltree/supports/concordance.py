"""Concordance factors: the share of genes, or of sites, that have a branch of a tree.

Minh, Hahn & Lanfear 2020, as IQ-TREE 2 counts. A branch joins four subtrees, a and b at one end,
c and d at the other; the two interchanges join a and c, and a and d.

    gCF   genes with the branch, gDF1 and gDF2 with an interchange, gDFP with neither, as shares of
          the decisive genes: those with a taxon of each of the four subtrees
    sCF   share of the decisive sites (two states in two taxa each of a random quartet, a taxon of
          each subtree) that pair a with b, averaged over quartets; sDF1, sDF2: with c, with d

At a polytomy more than two subtrees meet. A gene is then decisive with two of each end, there are
no interchanges to count, and a quartet takes two subtrees of each end at random.

Letters: B inner branches, T taxa, Q quartets.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from mltree.data.patterns import Patterns
from mltree.supports.consensus import split_table
from mltree.system.arrays import Bool, Float64, Index, UInt64
from mltree.system.values import Value
from mltree.tree.clades import Clades

AMBIGUOUS = 255
"""Code of every character that is not a single state."""


class Branches(Value, eq=False):
    """Inner branches of a tree and the subtrees around each, as stretches of the tree's tips.

    Subtree k lies around branch ``branch[k]``, at the branch's lower end if ``is_below[k]``, and
    has the tips from ``first[k]`` up to ``last[k]`` in the tree's order, or all others if
    ``is_outside[k]``.
    """

    tree: Clades
    of_clade: Index
    """Branch of each inner clade of the tree, 0 to B-1."""
    branch: Index
    is_below: Bool
    first: Index
    last: Index
    is_outside: Bool

    @property
    def count(self) -> int:
        """B, the number of inner branches."""
        return int(self.of_clade.max(initial=-1)) + 1

    @classmethod
    def of(cls, tree: Clades) -> Branches:
        """The inner branches of one tree, of any shape."""
        of_clade = split_table(tree).of_clade.astype(np.intp)
        inner = tree.only(tree.is_inner)
        children = _children(tree)
        parent = {child: node for node, below in children.items() for child in below}
        rows = []
        # A root in the middle of a branch makes two clades of it.
        for number, clade in zip(*np.unique(of_clade, return_index=True), strict=True):
            span = int(inner.first[clade]), int(inner.last[clade])
            above = parent[span]
            others = [child for child in children[above] if child != span]
            is_at_root = above not in parent
            if is_at_root and len(others) == 1:
                others = children[others[0]]
            rows += [(number, True, *child, False) for child in children[span]]
            rows += [(number, False, *other, False) for other in others]
            rows += [] if is_at_root else [(number, False, *above, True)]
        table = np.array(sorted(rows), dtype=np.intp).reshape(-1, 5)
        number, below, first, last, outside = table.T
        return cls(tree, of_clade, number, below > 0, first, last, outside > 0)


def _children(tree: Clades) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """Children of each node of a tree, all known by the spans of their tips."""
    tips = [(tip, tip + 1) for tip in range(tree.n_tips)]
    spans = {(0, tree.n_tips), *zip(tree.first.tolist(), tree.last.tolist(), strict=True), *tips}
    children: dict[tuple[int, int], list[tuple[int, int]]] = {span: [] for span in spans}
    above: list[tuple[int, int]] = []
    for span in sorted(spans, key=lambda span: (span[0], -span[1])):
        while above and above[-1][1] < span[1]:
            above.pop()
        if above:
            children[above[-1]].append(span)
        above.append(span)
    return children


class GeneConcordance(Value, eq=False):
    """Genes by their agreement with each branch, intp [B] each."""

    decisive: Index
    """Decisive genes: gN."""
    concordant: Index
    """Genes with the branch: gCF_N."""
    first: Index
    """Genes with the first interchange: gDF1_N."""
    second: Index

    @property
    def polyphyletic(self) -> Index:
        """Decisive genes with neither branch nor interchange: gDFP_N."""
        return self.decisive - self.concordant - self.first - self.second


def gene_concordance(branches: Branches, genes: Iterable[Clades]) -> GeneConcordance:
    """Count the gene trees that have each branch; each is over some of the tree's taxa.

    Splits are told apart by 64-bit hashes: in a gene tree of 1,000 taxa two splits share one with a
    probability of 10^-13.
    """
    counts = np.zeros((4, branches.count), dtype=np.intp)
    number = {name: taxon for taxon, name in enumerate(branches.tree.taxa)}
    rng = np.random.Generator(np.random.PCG64(0))
    keys = rng.integers(0, 2**64, branches.tree.n_tips, dtype=np.uint64)
    for gene in genes:
        taxa = np.array([number[name] for name in gene.taxa], dtype=np.intp)
        counts += _gene_counts(branches, gene, taxa, keys)
    return GeneConcordance(*counts)


def _gene_counts(branches: Branches, gene: Clades, taxa: Index, keys: UInt64) -> Index:
    """Decisive, concordant, first, second (0 or 1) of one gene tree, intp [4, B]."""
    is_there = np.isin(np.arange(keys.size), taxa)
    gene_keys = np.where(is_there, keys, 0)
    total = np.bitwise_xor.reduce(gene_keys)
    inner = gene.only(gene.is_inner)
    in_gene = _canonical(_between(gene_keys[taxa][inner.order[0]], inner.first, inner.last), total)
    order = branches.tree.order[0]
    tips = np.concatenate([[0], np.cumsum(is_there[order])])
    size = tips[branches.last] - tips[branches.first]
    size = np.where(branches.is_outside, taxa.size - size, size)
    lower, upper = (
        np.bincount(branches.branch[end & (size > 0)], minlength=branches.count)
        for end in (branches.is_below, ~branches.is_below)
    )
    decisive = (lower >= 2) & (upper >= 2)
    side = _between(gene_keys[order], branches.first, branches.last)
    side ^= np.where(branches.is_outside, total, 0)
    below = np.zeros(branches.count, np.uint64)
    np.bitwise_xor.at(below, branches.branch[branches.is_below], side[branches.is_below])
    counts = np.zeros((4, branches.count), dtype=np.intp)
    counts[0] = decisive
    counts[1] = decisive & np.isin(_canonical(below, total), in_gene)
    starts = np.searchsorted(branches.branch, np.arange(branches.count + 1))
    four = np.flatnonzero((np.diff(starts) == 4) & decisive)
    # Sorted by end: the two of the upper end first.
    c, d, a, _ = side[starts[four] + np.arange(4)[:, None]]
    for row, other in ((2, c), (3, d)):
        counts[row, four] = np.isin(_canonical(a ^ other, total), in_gene)
    return counts


def _between(keys: UInt64, first: NDArray[np.integer], last: NDArray[np.integer]) -> UInt64:
    """Exclusive or of the keys from ``first`` up to ``last``."""
    running = np.concatenate([np.zeros(1, np.uint64), np.bitwise_xor.accumulate(keys)])
    between: UInt64 = running[last] ^ running[first]
    return between


def _canonical(side: UInt64, total: np.uint64) -> UInt64:
    """The same key for both sides of a split."""
    canonical: UInt64 = np.minimum(side, side ^ total)
    return canonical


class SiteConcordance(Value, eq=False):
    """Concordance of the sites with each branch, averaged over the branch's quartets."""

    shares: Float64
    """f64 [B, 3]: sCF, sDF1 and sDF2, 0 to 1. A quartet without a decisive site counts as 0."""
    errors: Float64
    """f64 [B]: Monte-Carlo error of sCF, its standard error over the quartets."""
    sites: Float64
    """f64 [B, 3]: decisive sites that pair a with b, with c, with d."""


def site_concordance(
    branches: Branches, patterns: Patterns, quartets: int, seed: int
) -> SiteConcordance:
    """Site concordance factors from an alignment of the tree's taxa."""
    states, weights = _telling_patterns(patterns)
    row = {name: tip for tip, name in enumerate(patterns.taxa)}
    tips = np.array([row[branches.tree.taxa[taxon]] for taxon in branches.tree.order[0]])
    states = states[tips]
    shares = np.zeros((branches.count, 3))
    sites, errors = np.zeros_like(shares), np.zeros(branches.count)
    bits = np.random.PCG64(np.random.SeedSequence([seed, *b"site concordance"]))
    rng = np.random.Generator(bits)
    for branch in range(branches.count):
        drawn = _quartets(branches, branch, quartets, rng)
        support = _supports(states, weights, drawn)
        total = np.maximum(support.sum(axis=1, keepdims=True), 1)
        share = support / total
        shares[branch], sites[branch] = share.mean(axis=0), support.mean(axis=0)
        errors[branch] = share[:, 0].std() / np.sqrt(quartets)
    return SiteConcordance(shares, errors, sites)


def _telling_patterns(patterns: Patterns) -> tuple[NDArray[np.uint8], Float64]:
    """Codes u8 [T, L'] of the patterns with two states in two taxa each, and their weights."""
    is_state = patterns.alphabet.tip_table.sum(axis=1) == 1
    codes = np.where(is_state[patterns.codes], patterns.codes, AMBIGUOUS).astype(np.uint8)
    common = sum(
        ((codes == code).sum(axis=0) >= 2).astype(np.intp) for code in np.flatnonzero(is_state)
    )
    telling = np.asarray(common) >= 2
    return codes[:, telling], patterns.weights[telling]


def _quartets(branches: Branches, branch: int, count: int, rng: np.random.Generator) -> Index:
    """Random tips a, b, c, d by their place in the tree's order, intp [count, 4]."""
    columns = []
    for end in (branches.is_below, ~branches.is_below):
        subtrees = np.flatnonzero((branches.branch == branch) & end)
        one = rng.integers(subtrees.size, size=count)
        other = (one + rng.integers(1, subtrees.size, size=count)) % subtrees.size
        if subtrees.size == 2:  # a and b, c and d: each has its column
            one, other = np.zeros_like(one), np.ones_like(other)
        columns += [_tips(branches, subtrees[chosen], rng) for chosen in (one, other)]
    return np.stack(columns, axis=1)


def _tips(branches: Branches, subtrees: Index, rng: np.random.Generator) -> Index:
    """A random tip of each of some subtrees."""
    first, last = branches.first[subtrees], branches.last[subtrees]
    n_tips = branches.tree.n_tips
    outside = branches.is_outside[subtrees]
    size = np.where(outside, n_tips - (last - first), last - first)
    start = np.where(outside, last, first)
    return (start + rng.integers(size)) % n_tips


def _supports(states: NDArray[np.uint8], weights: Float64, quartets: Index) -> Float64:
    """Sites that pair ab|cd, ac|bd and ad|bc in each quartet, f64 [Q, 3]."""
    support = np.empty((len(quartets), 3))
    for row, quartet in zip(support, quartets, strict=True):
        a, b, c, d = states[quartet]
        known = (a != AMBIGUOUS) & (d != AMBIGUOUS)
        ab, ac, ad = a == b, a == c, a == d
        row[0] = weights[ab & (c == d) & ~ac & known].sum()
        row[1] = weights[ac & (b == d) & ~ab & known].sum()
        row[2] = weights[ad & (b == c) & ~ab & known & (b != AMBIGUOUS)].sum()
    return support
