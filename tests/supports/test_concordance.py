"""Concordance factors against their definitions, by sets of names."""

from __future__ import annotations

from itertools import combinations, product
from typing import Any

import numpy as np
import pytest

from mltree.data.alphabet import DNA
from mltree.data.patterns import Patterns
from mltree.supports.concordance import Branches, gene_concordance, site_concordance
from mltree.supports.consensus import members, sides, unit_bits
from mltree.tree.clades import Clades, read_clades, read_gene_trees

Side = frozenset[str]


def inner_sides(tree: Clades) -> list[Side]:
    """A side of the split of each branch, in the order of the branches."""
    inner = tree.only(tree.is_inner)
    inside = members(sides(inner, unit_bits(tree.n_tips)), tree.n_tips)
    of_clade = Branches.of(tree).of_clade
    _, first = np.unique(of_clade, return_index=True)
    return [frozenset(np.array(tree.taxa)[row].tolist()) for row in inside[first]]


def subtrees(splits: set[Any], taxa: Side, side: Side) -> list[Side]:
    """The largest clades inside a side: what meets at its end of the branch."""
    tips = [frozenset([name]) for name in taxa]
    inside = [part for split in splits for part in split if part < side]
    inside += [tip for tip in tips if tip < side]
    return [part for part in set(inside) if not any(part < other for other in inside)]


def slow_counts(splits: set[Any], taxa: Side, side: Side, genes: list[Any]) -> tuple[Any, ...]:
    """Decisive, concordant, {both interchanges}."""
    lower, upper = (subtrees(splits, taxa, part) for part in (side, taxa - side))
    decisive = concordant = 0
    swaps = [0, 0]
    for gene in genes:
        own = {frozenset(split) for split in gene.splits()}
        if any(sum(bool(part & gene.taxa) for part in end) < 2 for end in (lower, upper)):
            continue
        decisive += 1

        def has(part: Side, gene: Any = gene, own: set[Any] = own) -> bool:
            return frozenset((part & gene.taxa, gene.taxa - part)) in own

        concordant += has(side)
        if len(lower) == len(upper) == 2:
            for k, other in enumerate(upper):
                swaps[k] += has(lower[0] | other)
    return decisive, concordant, sorted(swaps)


@pytest.mark.cases(25, 1500)
def test_gene_concordance_is_that_of_the_definition(case: int, grower: Any) -> None:
    grow = grower(case)
    names = grow.names(int(grow.rng.integers(4, 12)))
    wild = case % 3 == 0
    tree = grow.tree(names, wild=wild, base=sorted(names))
    genes = []
    for _ in range(12):
        size = int(grow.rng.integers(max(2, len(names) - 4), len(names) + 1))
        some = [str(name) for name in grow.rng.choice(names, size, replace=False)]
        genes.append(grow.tree(some, wild=wild, base=sorted(some)))
    read = read_clades(tree.text)
    branches = Branches.of(read)
    found = gene_concordance(branches, read_gene_trees("".join(gene.text for gene in genes)))
    found_sides = inner_sides(read)
    assert len(found_sides) == branches.count == len(tree.splits())
    for branch, side in enumerate(found_sides):
        expected = slow_counts(tree.splits(), tree.taxa, side, genes)
        swaps = sorted((int(found.first[branch]), int(found.second[branch])))
        assert (found.decisive[branch], found.concordant[branch], swaps) == expected
        assert found.polyphyletic[branch] == expected[0] - expected[1] - sum(swaps)


def patterns_of(rows: dict[str, str]) -> Patterns:
    codes = DNA.encode(np.array([list(row.encode()) for row in rows.values()], np.uint8))
    sites = codes.shape[1]
    return Patterns(
        taxa=tuple(rows),
        codes=codes,
        weights=np.arange(1.0, sites + 1),
        site_pattern=np.repeat(np.arange(sites, dtype=np.int32), np.arange(1, sites + 1)),
        alphabet=DNA,
    )


def test_sites_of_a_quartet_are_counted() -> None:
    """Weights 1 to 7; an ambiguity, three alike and four different say nothing."""
    rows = {"a": "AAACRAA", "b": "ACCCAAC", "c": "CACAGAG", "d": "CCAAGCT"}
    branches = Branches.of(read_clades("((a,b),(c,d));"))
    found = site_concordance(branches, patterns_of(rows), 5, seed=1)
    np.testing.assert_allclose(found.sites, [[1 + 4, 2, 3]])
    np.testing.assert_allclose(found.shares, [[0.5, 0.2, 0.3]])
    assert found.errors[0] == 0


@pytest.mark.cases(4, 200)
def test_site_concordance_is_the_mean_over_all_quartets(case: int, grower: Any) -> None:
    grow = grower(case)
    names = [f"t{k}" for k in range(9)]
    tree = grow.tree(names, wild=case % 2 > 0)
    letters = list("ACGT" * 8 + "-N")
    rows = {name: "".join(grow.rng.choice(letters, 60)) for name in names}
    data = patterns_of(rows)
    read = read_clades(tree.text)
    found = site_concordance(Branches.of(read), data, 400, seed=case)
    for branch, side in enumerate(inner_sides(read)):
        ends = [subtrees(tree.splits(), tree.taxa, part) for part in (side, tree.taxa - side)]
        weight, mean = 0.0, 0.0
        for (a, b), (c, d) in product(*(combinations(end, 2) for end in ends)):
            one = np.mean([share(rows, data.weights, q) for q in product(a, b, c, d)])
            weight, mean = weight + 1, mean + one
        assert abs(found.shares[branch, 0] - mean / weight) <= 5 * found.errors[branch] + 1e-9


def share(rows: dict[str, str], weights: np.ndarray, quartet: tuple[str, ...]) -> float:
    support = [0.0, 0.0, 0.0]
    for site, weight in enumerate(weights):
        a, b, c, d = (rows[name][site] for name in quartet)
        if set("-N") & {a, b, c, d}:
            continue
        for k, ((p, q), (r, s)) in enumerate(
            [((a, b), (c, d)), ((a, c), (b, d)), ((a, d), (b, c))]
        ):
            support[k] += weight * (p == q and r == s and p != r)
    return support[0] / sum(support) if sum(support) else 0.0


def test_a_star_has_no_branches() -> None:
    branches = Branches.of(read_clades("(a,b,c,d);"))
    assert branches.count == 0
    found = gene_concordance(branches, read_gene_trees("((a,b),c,d);"))
    assert found.decisive.size == 0
