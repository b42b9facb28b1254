"""UniFrac against golden values, scikit-bio on random tables, and the definitions pair by pair."""

from __future__ import annotations

import math
from io import StringIO

import numpy as np
import pytest

from mltree.diversity.branches import place
from mltree.diversity.table import CountTable, table_of
from mltree.diversity.unifrac import (
    Metric,
    ReferenceUnifrac,
    UnifracProblem,
    metrics_of,
    power,
    tiles_of,
)

TREE = "(GG_OTU_1:1,(GG_OTU_2:1,GG_OTU_3:1):1,(GG_OTU_5:1,GG_OTU_4:1):1);"
FEATURES = ["GG_OTU_1", "GG_OTU_2", "GG_OTU_3", "GG_OTU_4", "GG_OTU_5"]
COUNTS = np.array(
    [[0, 5, 0, 2, 0], [0, 1, 0, 1, 1], [1, 0, 1, 1, 1], [0, 2, 4, 0, 0], [0, 3, 0, 0, 0],
     [0, 1, 2, 1, 0]]
)  # fmt: skip
"""test.biom of scikit-bio and ssu."""

VAW = Metric("weighted_normalized", adjusted=True)
GOLDEN = {
    Metric("unweighted"): [0.2, 4 / 7, 0.6, 0.5, 0.2],
    Metric("weighted_normalized"): [
        0.380952380952, 0.580952380952, 0.476190476190, 0.285714285714, 0.267857142857,
    ],
    Metric("weighted_unnormalized"): [
        1.523809523809524, 2.178571428571429, 1.904761904761905, 1.142857142857143,
        1.071428571428571,
    ],
    Metric("generalized", 0.5): [
        0.404051837154, 0.628555965658, 0.586943857589, 0.408248290464, 0.299567281582,
    ],
    VAW: [0.408603996483, 0.624018460343, 0.463948088653, 0.285714285714, 0.276631779156],
}  # fmt: skip
"""Sample 1 against 2 to 6, by ssu and PyCogent, to twelve digits."""


def matrix_of(table: CountTable, tree: str, metric: Metric, single: bool = False) -> np.ndarray:
    engine = ReferenceUnifrac(UnifracProblem(place(table, tree), metric, single))
    every = slice(0, table.n_samples)
    return engine.tile(every, every)


@pytest.mark.parametrize("metric", GOLDEN, ids=lambda metric: metric.label)
def test_golden_values(metric: Metric) -> None:
    table = table_of((COUNTS, range(6), FEATURES))
    row = matrix_of(table, TREE, metric)[0]
    assert row[0] == 0
    assert row[1:] == pytest.approx(GOLDEN[metric], abs=1e-12)


def random_tree(rng: np.random.Generator, tips: int) -> str:
    """Newick with polytomies, single children, lengths of zero and quoted names with colons."""
    nodes = [f"'t:{tip} x'" if tip % 7 == 3 else f"t{tip}" for tip in range(tips)]

    def length() -> str:
        return ":0" if rng.random() < 0.1 else f":{rng.exponential():.17g}"

    while len(nodes) > 1:
        size = min(len(nodes), int(rng.choice([1, 2, 2, 2, 3, 5])))
        picked = rng.choice(len(nodes), size, replace=False)
        joined = "(" + ",".join(nodes[i] + length() for i in picked) + ")"
        nodes = [node for i, node in enumerate(nodes) if i not in picked] + [joined]
    return nodes[0] + (length() if rng.random() < 0.3 else "") + ";"


def names_of(tips: int) -> list[str]:
    return [f"t:{tip} x" if tip % 7 == 3 else f"t{tip}" for tip in range(tips)]


def random_counts(rng: np.random.Generator, samples: int, tips: int) -> np.ndarray:
    counts = rng.poisson(rng.exponential(2.0, (samples, tips))) * (
        rng.random((samples, tips)) < 0.4
    )
    counts[np.arange(samples), rng.integers(0, tips, samples)] += 1
    return counts


@pytest.mark.parametrize("seed", range(200))
def test_scikit_bio_agrees(seed: int) -> None:
    skbio = pytest.importorskip("skbio")
    diversity = pytest.importorskip("skbio.diversity")
    rng = np.random.default_rng(seed)
    tips, samples = int(rng.integers(2, 40)), int(rng.integers(1, 9))
    newick = random_tree(rng, tips)
    counts = random_counts(rng, samples, tips)
    names = names_of(tips)
    table = table_of((counts, range(samples), names))
    tree = skbio.TreeNode.read(StringIO(newick), convert_underscores=False)
    for node in tree.postorder():
        node.length = node.length or 0.0
    for metric, name, more in (
        ("unweighted", "unweighted_unifrac", {}),
        ("weighted_unnormalized", "weighted_unifrac", {}),
        ("weighted_normalized", "weighted_unifrac", {"normalized": True}),
    ):
        theirs = diversity.beta_diversity(
            name, counts, taxa=names, tree=tree, validate=False, **more
        )
        ours = matrix_of(table, newick, Metric(metric))
        assert ours == pytest.approx(theirs.data, abs=1e-12, rel=1e-12)
        assert (ours == ours.T).all()
    engine = ReferenceUnifrac(UnifracProblem(place(table, newick), Metric("unweighted")))
    faith = diversity.alpha_diversity("faith_pd", counts, taxa=names, tree=tree, validate=False)
    assert engine.faith() == pytest.approx(faith.to_numpy(), rel=1e-12)


def brute_force(problem: UnifracProblem) -> np.ndarray:
    """Definitions in floating point, pair by pair and branch by branch."""
    samples, metric = problem.samples, problem.metric
    counts = samples.counts_below(slice(0, samples.n_samples))
    lengths = samples.branches.length
    totals = counts[:, -1]
    matrix = np.zeros((len(counts), len(counts)))
    for i, one in enumerate(counts):
        for j, two in enumerate(counts):
            top = bottom = 0.0
            for length, a, b in zip(lengths, one, two, strict=True):
                below, whole = int(a + b), int(totals[i] + totals[j])
                if not below or (metric.adjusted and below == whole):
                    continue
                u, v = (a, b) if metric.absolute else (a / totals[i], b / totals[j])
                weight = length / math.sqrt(below * (whole - below)) if metric.adjusted else length
                if metric.is_presence:
                    top += weight * ((a > 0) != (b > 0))
                    bottom += weight
                else:
                    alpha = metric.alpha if metric.name == "generalized" else 1.0
                    top += weight * (u + v) ** alpha * abs(u - v) / (u + v)
                    bottom += weight * (u + v) ** alpha
            matrix[i, j] = top if not metric.is_normalised else top / bottom if bottom else 0.0
    return matrix


EVERY = [
    *metrics_of("unweighted,unweighted_unnormalized,weighted,weighted_unnormalized"),
    *metrics_of("generalized", "0,0.3,0.5,1"),
    *metrics_of("unweighted,weighted,weighted_unnormalized,generalized", "0.25", adjusted=True),
    *metrics_of("weighted,weighted_unnormalized,generalized", "0.5", absolute=True),
]


@pytest.mark.parametrize("metric", EVERY, ids=lambda metric: metric.label)
@pytest.mark.parametrize("seed", range(5))
def test_definitions(metric: Metric, seed: int) -> None:
    rng = np.random.default_rng(seed)
    tips = int(rng.integers(3, 25))
    counts = random_counts(rng, 6, tips)
    counts[5] = counts[0]
    table = table_of((counts, range(6), names_of(tips)))
    problem = UnifracProblem(place(table, random_tree(rng, tips)), metric)
    every = slice(0, 6)
    ours = ReferenceUnifrac(problem).tile(every, every)
    assert ours == pytest.approx(brute_force(problem), abs=1e-12, rel=1e-12)
    assert ours[0, 5] == 0
    assert (np.diag(ours) == 0).all()


@pytest.mark.parametrize(
    "metric", [one for one in EVERY if one.adjusted], ids=lambda one: one.label
)
def test_fractions_of_counts_are_adjusted_as_counts_are(metric: Metric) -> None:
    rng = np.random.default_rng(1)
    counts, tree = random_counts(rng, 6, 12), random_tree(rng, 12)
    whole, thirds = (
        matrix_of(table_of((some, range(6), names_of(12))), tree, metric)
        for some in (counts, counts / 3)
    )
    scale = 1 if metric.is_normalised else 3
    assert thirds == pytest.approx(scale * whole, rel=1e-11)


def test_powers() -> None:
    base = np.random.default_rng(1).uniform(1e-7, 2.0, 10_000)
    for exponent in (0.0, 0.1, 0.3, 0.5, 0.77, 1.0):
        assert power(base, exponent) == pytest.approx(base**exponent, rel=1e-14)
    assert power(np.zeros(2), 0.3).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("n_samples", [1, 2, 255, 256, 257, 3000])
def test_parts_are_all_tiles_once(n_samples: int) -> None:
    whole = tiles_of(n_samples)
    covered = np.zeros((n_samples, n_samples), int)
    for tile in whole:
        covered[tile] += 1
        if not tile.is_diagonal:
            covered[tile.columns, tile.rows] += 1
    assert (covered == 1).all()
    for parts in (1, 2, 3, 7):
        assert [tile for i in range(parts) for tile in tiles_of(n_samples, (i + 1, parts))] == whole
