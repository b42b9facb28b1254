"""Statistics of distances against scikit-bio's, and from tiles as from a matrix."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from mltree.diversity.statistics import (
    Spread,
    anosim,
    mantel,
    pcoa,
    permanova,
    permdisp,
    ranks,
)
from mltree.diversity.unifrac import MatrixBlocks
from mltree.system.errors import InputError

DISTANCE = pytest.importorskip("skbio.stats.distance")
ORDINATION = pytest.importorskip("skbio.stats.ordination")


def points(seed: int, n: int, axes: int = 6) -> np.ndarray:
    rng = np.random.default_rng(seed)
    made = rng.standard_normal((n, axes)) * np.arange(axes, 0, -1)
    made[: n // 3] += 1.5
    return made


def distances(made: np.ndarray) -> np.ndarray:
    square = np.sqrt(((made[:, None] - made[None]) ** 2).sum(axis=2))
    return square / square.max()


def groups_of(n: int) -> list[str]:
    return ["a" if i < n // 3 else "b" if i < n // 2 else "c" for i in range(n)]


@pytest.mark.parametrize(("seed", "n"), [(1, 12), (2, 40), (3, 350), (4, 700)])
def test_principal_coordinates(seed: int, n: int) -> None:
    matrix = distances(points(seed, n))
    ours = pcoa(MatrixBlocks(matrix), 4)
    theirs = ORDINATION.pcoa(DISTANCE.DistanceMatrix(matrix), "eigh", 4, warn_neg_eigval=False)
    assert ours.eigenvalues == pytest.approx(theirs.eigvals.to_numpy()[:4], rel=1e-6)
    assert ours.explained == pytest.approx(theirs.proportion_explained.to_numpy()[:4], rel=1e-6)
    assert abs(ours.coordinates) == pytest.approx(
        abs(theirs.samples.to_numpy()[:, :4]), abs=1e-4 * matrix.max()
    )


@pytest.mark.parametrize("n", [9, 30, 300])
def test_tests_of_groups(n: int) -> None:
    matrix, groups = distances(points(n, n)), groups_of(n)
    theirs: dict[str, Any] = {
        "permanova": DISTANCE.permanova(DISTANCE.DistanceMatrix(matrix), groups, permutations=99),
        "anosim": DISTANCE.anosim(DISTANCE.DistanceMatrix(matrix), groups, permutations=99),
        "permdisp": DISTANCE.permdisp(
            DISTANCE.DistanceMatrix(matrix), groups, test="centroid", permutations=99,
            method="eigh", dimensions=n, warn_neg_eigval=False,
        ),
    }  # fmt: skip
    blocks = MatrixBlocks(matrix)
    ours = {
        "permanova": permanova(blocks, groups, 999),
        "anosim": anosim(blocks, groups, 999),
        "permdisp": permdisp(pcoa(blocks, n), groups, 999),
    }
    for name, test in ours.items():
        assert test.statistic == pytest.approx(theirs[name]["test statistic"], rel=1e-9), name
        assert test.p_value == pytest.approx(theirs[name]["p-value"], abs=0.2), name
    total = sum(matrix[np.triu_indices(n, 1)] ** 2) / n
    assert ours["permanova"].r2 is not None
    assert 0 < ours["permanova"].r2 < 1
    assert total > 0


def test_no_difference_is_not_found() -> None:
    """Over random groups, p values are spread evenly."""
    rng = np.random.default_rng(7)
    matrix = distances(rng.standard_normal((40, 3)))
    blocks = MatrixBlocks(matrix)
    values = [
        permanova(blocks, rng.permutation(["a", "b"] * 20).tolist(), 99, seed).p_value
        for seed in range(60)
    ]
    assert 0.35 < np.mean(values) < 0.65
    assert min(values) > 0


def test_mantel() -> None:
    one, two = distances(points(1, 40)), distances(points(1, 40) + points(2, 40))
    theirs = DISTANCE.mantel(
        DISTANCE.DistanceMatrix(one), DISTANCE.DistanceMatrix(two), permutations=99
    )
    ours = mantel(MatrixBlocks(one), two, 199)
    assert ours.r == pytest.approx(theirs[0], rel=1e-12)
    assert ours.p_value == pytest.approx(theirs[1], abs=0.1)
    assert mantel(MatrixBlocks(one), one, 49).r == pytest.approx(1)


def test_ranks_share_ties() -> None:
    assert ranks(np.array([3.0, 1.0, 3.0, 2.0])).tolist() == [3.5, 1.0, 3.5, 2.0]


class Counted:
    """Tiles of a matrix, and how often they were asked for."""

    def __init__(self, matrix: np.ndarray) -> None:
        self._blocks, self.n_samples, self.passes = MatrixBlocks(matrix), len(matrix), 0

    def __iter__(self) -> Iterator[Any]:
        self.passes += 1
        return iter(self._blocks)


def test_distances_pass_by_few_times() -> None:
    blocks = Counted(distances(points(5, 600)))
    permanova(blocks, groups_of(600), 63)
    assert blocks.passes == 1
    pcoa(blocks, 3)
    assert blocks.passes <= 6


def test_spread_has_all_pairs() -> None:
    matrix = distances(points(3, 60))
    spread = Spread(groups_of(60)).add(MatrixBlocks(matrix))
    assert spread.counts.sum() == 60 * 59 / 2
    within = matrix[:20, :20][np.triu_indices(20, 1)]
    assert spread.quantiles(0, 0, [0.5])[0] == pytest.approx(np.median(within), abs=0.01)
    assert spread.quantiles(1, 0, [0.5]) == spread.quantiles(0, 1, [0.5])


@pytest.mark.parametrize("groups", [["a"] * 6, list("abcdef")])
def test_groups_that_cannot_be_compared(groups: list[str]) -> None:
    with pytest.raises(InputError, match="a test of groups needs"):
        permanova(MatrixBlocks(distances(points(1, 6))), groups)
