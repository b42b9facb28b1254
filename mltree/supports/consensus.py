"""Consensus trees and Robinson-Foulds distances."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from functools import cached_property, partial
from itertools import pairwise

import numpy as np

from mltree.system.arrays import Bool, Float64, Index, Int32, UInt64
from mltree.system.events import ConsensusBuilt
from mltree.system.values import Value
from mltree.tree.clades import Clades, nested, write_clades

# Distinct splits of many trees, and the trees that have each.
#
# A clade is an interval of the tips in the order in which its tree is written, so that a running
# exclusive or over that order gives the clade's content: of packed bits, the split; of random keys,
# a hash of the split. Hashes find the distinct splits; the bits are then compared with those of
# every clade that shares the hash, so that nothing is left to chance.

WORD = 64
"""Taxa whose bits share a uint64."""

AT_ONCE = 1 << 26
"""Bytes of running bits that are held at a time."""


class SplitTable(Value):
    """Every split of n trees over T taxa, as the side without taxon 0."""

    n_trees: int
    taxa: tuple[str, ...]
    bits: UInt64
    """uint64 [S, B]: the distinct splits; taxon t is bit t."""
    tree: Int32
    """int32 [M], ascending: the tree of each occurrence."""
    split: Int32
    """int32 [M], ascending within a tree: the split of each occurrence."""
    lengths: Float64
    """f64 [M]: length of the split's branch there, or sum of its two branches at a root."""
    of_clade: Int32
    """int32: the split of each clade that the table was made from."""

    @property
    def n_splits(self) -> int:
        """S, the number of distinct splits."""
        return len(self.bits)

    @cached_property
    def counts(self) -> Index:
        """Number of trees that have each split, intp [S]."""
        return np.bincount(self.split, minlength=self.n_splits)

    @cached_property
    def bounds(self) -> Index:
        """Tree k has the occurrences from ``bounds[k]`` up to ``bounds[k + 1]``; intp [n+1]."""
        return np.searchsorted(self.tree, np.arange(self.n_trees + 1))


def members(bits: UInt64, n_tips: int) -> Bool:
    """Packed splits as one value a taxon, bool [S, T]."""
    octets = np.ascontiguousarray(bits.astype("<u8")).view(np.uint8)
    return np.unpackbits(octets, axis=1, count=n_tips, bitorder="little").astype(np.bool_)


def unit_bits(n_tips: int) -> UInt64:
    """Every taxon's own bit, uint64 [T, B]."""
    taxon = np.arange(n_tips)
    unit = np.zeros((n_tips, -(-n_tips // WORD)), np.uint64)
    unit[taxon, taxon // WORD] = np.uint64(1) << (taxon % WORD).astype(np.uint64)
    return unit


def split_table(trees: Clades, *, with_tips: bool = False) -> SplitTable:
    """Table of the splits of the inner branches; ``with_tips`` adds those of the tips."""
    branches = trees.with_tips() if with_tips else trees.only(trees.is_inner)
    rng = np.random.Generator(np.random.PCG64(0))
    bits = None
    while bits is None:
        keys = rng.integers(0, 2**WORD, trees.n_tips, dtype=np.uint64)
        hashes = sides(branches, keys[:, None])[:, 0]
        _, example, of_clade = np.unique(hashes, return_index=True, return_inverse=True)
        bits = _bits(branches, example, of_clade)
    n_splits = max(len(bits), 1)
    occurrences = branches.tree * np.int64(n_splits) + of_clade
    occurrence, place = np.unique(occurrences, return_inverse=True)
    tree, split = (of.astype(np.int32) for of in np.divmod(occurrence, n_splits))
    lengths = np.bincount(place, branches.lengths, len(occurrence)).astype(np.float64)
    numbers = of_clade.astype(np.int32)
    return SplitTable(trees.n_trees, trees.taxa, bits, tree, split, lengths, numbers)


def sides(trees: Clades, keys: UInt64) -> UInt64:
    """Exclusive or of the keys of all taxa on a clade's side without taxon 0, uint64 [C, W].

    keys  uint64 [T, W]
    """
    running = np.zeros((trees.n_trees, trees.n_tips + 1, keys.shape[1]), np.uint64)
    np.bitwise_xor.accumulate(keys[trees.order], axis=1, out=running[:, 1:])
    side: UInt64 = running[trees.tree, trees.last] ^ running[trees.tree, trees.first]
    of_zero = (trees.order == 0).argmax(axis=1)[trees.tree]
    side[(trees.first <= of_zero) & (of_zero < trees.last)] ^= np.bitwise_xor.reduce(keys, axis=0)
    return side


def _bits(branches: Clades, example: Index, of_clade: Index) -> UInt64 | None:
    """The split of every hash, or None if different splits share a hash.

    example   intp [S]: the first branch with a hash
    of_clade  intp [C]: the hash of each branch, 0 to S-1
    """
    unit = unit_bits(branches.n_tips)
    bits = np.zeros((len(example), unit.shape[1]), np.uint64)
    step = 1 + AT_ONCE // unit.nbytes
    bounds = branches.bounds
    for start in range(0, branches.n_trees, step):
        stop = min(start + step, branches.n_trees)
        begin, end = bounds[[start, stop]]
        batch_sides = sides(branches.part(start, stop), unit)
        new = np.flatnonzero((example >= begin) & (example < end))
        bits[new] = batch_sides[example[new] - begin]
        if not np.array_equal(batch_sides, bits[of_clade[begin:end]]):
            return None
    return bits


# Consensus trees.


class Consensus(str, Enum):
    """The splits that a consensus has."""

    STRICT = "strict"
    """Splits of all trees."""
    MAJORITY = "majority"
    """Splits of more than half of the trees."""
    EXTENDED = "extended"
    """Majority splits, then the most frequent others compatible with those before (greedy
    consensus)."""


def consensus(table: SplitTable, kind: Consensus) -> Index:
    """Splits of a consensus, intp, the most frequent first.

    Among equally frequent splits the one with more taxa on its smaller side goes first, then the
    one whose smaller side comes first by its sorted taxon names: the result depends neither on the
    order of the trees nor on that of their taxa.
    """
    ranked = canonical(table)
    ranked = ranked[np.argsort(-table.counts[ranked], kind="stable")]
    counts = table.counts[ranked]
    if kind is Consensus.EXTENDED:
        return greedy(ranked, partial(conflicts, table.bits))
    least = table.n_trees if kind is Consensus.STRICT else table.n_trees // 2 + 1
    return np.asarray(ranked[counts >= least])


def consensus_tree(table: SplitTable, kind: Consensus) -> ConsensusBuilt:
    """The consensus of the trees in Newick, with the percentages of its splits as labels."""
    splits = consensus(table, kind)
    n_tips = len(table.taxa)
    tree, rows = nested(table.taxa, members(table.bits[splits], n_tips))
    shown = percentages(table.counts[splits][rows], table.n_trees)
    return ConsensusBuilt(kind.value, splits.size, max(n_tips - 3, 0), write_clades(tree, shown))


def percentages(count: Index, total: int) -> list[str]:
    """Counts as whole percentages, halves rounded up."""
    return [str(percent) for percent in (200 * count + total) // (2 * total)]


def canonical(table: SplitTable) -> Index:
    """All splits, intp [S], in an order that depends on the names of their taxa alone."""
    n_tips = len(table.taxa)
    by_name = np.array(sorted(range(n_tips), key=table.taxa.__getitem__), dtype=np.intp)
    inside = members(table.bits, n_tips)[:, by_name]
    size = inside.sum(axis=1)
    # The smaller side; of two halves the one with the first name.
    flip = (2 * size > n_tips) | ((2 * size == n_tips) & ~inside[:, :1].any(axis=1))
    inside ^= flip[:, None]
    smaller = np.minimum(size, n_tips - size)
    words = np.packbits(inside, axis=1)
    return np.lexsort((*(255 - words).T[::-1], -smaller))


def greedy(ranked: Index, excludes: Callable[[np.intp, Index], Bool]) -> Index:
    """Splits taken in order, without those that a split taken before excludes.

    excludes(split, others)  bool [len(others)]: others that a split excludes
    """
    taken = []
    while ranked.size:
        first, rest = ranked[0], ranked[1:]
        taken.append(first)
        ranked = rest[~excludes(first, rest)]
    return np.array(taken, dtype=np.intp)


def conflicts(bits: UInt64, split: np.intp, others: Index) -> Bool:
    """Mask of the splits ``others`` that are incompatible with a split, bool [len(others)].

    As sides without taxon 0, two splits are compatible if disjoint or one inside the other.
    """
    mine, theirs = bits[split], bits[others]
    shared = mine & theirs
    both: Bool = shared.any(axis=1)
    both &= (shared != mine).any(axis=1)
    both &= (shared != theirs).any(axis=1)
    return both


# Robinson-Foulds distances: the sum over all splits of |a - b|, a and b being the split's weight in
# the two trees: 1, or the length of its branch (weighted), or 0 where a tree lacks it.

COMMON = 0.25
"""Share of the trees from which a split gets a column of its own: eight bytes a tree against
sixteen for each tree that has the split, and no detour through indices."""


def distances(table: SplitTable, rows: int) -> Iterator[Index]:
    """For each of the first ``rows`` trees, distances from the trees behind it, intp [n-1-k]."""
    shared = table.counts > 1
    alone = np.bincount(table.tree[~shared[table.split]], minlength=table.n_trees)
    column = np.cumsum(shared) - 1
    bits = np.zeros((table.n_trees, -(-int(shared.sum()) // 64)), np.uint64)
    octets = bits.view(np.uint8)
    for k, (start, stop) in enumerate(pairwise(table.bounds)):
        mine = table.split[start:stop]
        mine = column[mine[shared[mine]]]
        octets[k] |= np.bincount(mine // 8, 1 << mine % 8, octets.shape[1]).astype(np.uint8)
    for k in range(rows):
        unlike = np.bitwise_count(bits[k + 1 :] ^ bits[k]).sum(axis=1, dtype=np.intp)
        yield unlike + alone[k + 1 :] + alone[k]


def weighted_distances(table: SplitTable, rows: int) -> Iterator[Float64]:
    """For each of the first ``rows`` trees, weighted distances from those behind, f64 [n-1-k]."""
    common = table.counts > COMMON * table.n_trees
    rare = (table.counts > 1) & ~common
    column = np.cumsum(common) - 1
    weights = np.zeros((table.n_trees, int(common.sum())))
    chosen = common[table.split]
    weights[table.tree[chosen], column[table.split[chosen]]] = table.lengths[chosen]
    tree, split, length = (x[rare[table.split]] for x in (table.tree, table.split, table.lengths))
    bounds = np.searchsorted(tree, np.arange(rows + 1))
    here = np.zeros(table.n_splits)
    is_apart = ~common[table.split]
    apart = np.bincount(table.tree[is_apart], np.abs(table.lengths[is_apart]), table.n_trees)
    for k in range(rows):
        mine, behind = slice(bounds[k], bounds[k + 1]), slice(bounds[k + 1], None)
        row = np.abs(weights[k + 1 :] - weights[k]).sum(axis=1)
        row += apart[k] + apart[k + 1 :]
        # Of the rare ones those that both trees have bring them nearer.
        here[split[mine]] = length[mine]
        one, other = here[split[behind]], length[behind]
        nearer = np.abs(one) + np.abs(other) - np.abs(one - other)  # 0 where one is
        row -= np.bincount(tree[behind] - (k + 1), nearer, row.size)
        here[split[mine]] = 0
        yield row


def topologies(table: SplitTable, start: int = 0) -> int:
    """Number of different topologies, from tree ``start`` on."""
    return len({table.split[i:j].tobytes() for i, j in pairwise(table.bounds[start:])})


def largest(n_tips: int) -> int:
    """Largest distance of two trees over T taxa, 2(T - 3): no split shared."""
    return max(2 * (n_tips - 3), 0)
