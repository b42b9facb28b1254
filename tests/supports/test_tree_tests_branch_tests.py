import numpy as np
import pytest

from mltree.supports.resampling import Resampling
from mltree.supports.tree_tests import abayes, local_tests, parametric, sh_alrt


def slow_support(observed: np.ndarray, resampled: np.ndarray) -> bool:
    """Whether a replicate supports a branch: Guindon et al. 2010, step by step."""
    centred = sorted(new - old for new, old in zip(resampled, observed, strict=True))
    return bool(observed[0] - max(observed[1:]) > centred[2] - centred[1] + 0.05)


@pytest.mark.cases(3, 60)
def test_supports_are_those_of_the_definitions(case: int) -> None:
    rng = np.random.default_rng(case)
    branches, patterns, replicates = 5, 30, 50
    weights = rng.integers(1, 6, patterns).astype(np.float64)
    sites = -rng.exponential(3.0, patterns) + rng.normal(
        scale=0.15, size=(2 * branches + 1, patterns)
    )
    lnl = sites @ weights
    resampling = Resampling(weights, [slice(0, patterns)], case, "local tests")
    tested = local_tests(lnl, lambda rows: sites @ rows.T, resampling, replicates)
    again = sites @ resampling.rows(range(replicates)).T
    for branch in range(branches):
        rows = [-1, 2 * branch, 2 * branch + 1]
        l0, l1, l2 = own = lnl[rows]
        np.testing.assert_array_equal(tested.lnl[branch], own)
        drawn = again[rows].T
        expected = np.mean([slow_support(own, replicate) for replicate in drawn])
        assert tested.sh_alrt[branch] == pytest.approx(expected)
        won = np.mean([replicate[0] > max(replicate[1:]) for replicate in drawn])
        assert tested.lbp[branch] == pytest.approx(won)
        posterior = 1 / (1 + np.exp(l1 - l0) + np.exp(l2 - l0))
        assert tested.abayes[branch] == pytest.approx(posterior)
        assert tested.alrt[branch] == pytest.approx(l0 - max(l1, l2))


def test_tied_neighbours_split_a_replicate() -> None:
    weights = np.full(20, 3.0)
    sites = np.full((3, 20), -2.0) - np.array([[1e-7], [0.0], [2e-7]])
    resampling = Resampling(weights, [slice(0, 20)], 1, "local tests")
    tested = local_tests(sites @ weights, lambda rows: sites @ rows.T, resampling, 50)
    assert tested.lbp == pytest.approx([1 / 3])


def test_probabilities_do_not_overflow() -> None:
    observed = np.array([[-1e5, -2e5, -3e5], [-3e5, -1e5, -2e5], [-1e5, -1e5, -1e5]])
    np.testing.assert_allclose(abayes(observed), [1, 0, 1 / 3])


@pytest.mark.parametrize(
    ("twice", "quantile"),
    [(0.0642, 0.2), (0.455, 0.5), (1.642, 0.8), (3.841, 0.95), (6.635, 0.99), (10.828, 0.999)],
)
def test_parametric_supports_are_those_of_phymls_table(twice: float, quantile: float) -> None:
    """Quantiles of chi square, to the digits of PhyML's and IQ-TREE's table."""
    found = parametric(np.array([[0.0, -twice / 2, -twice]]))
    assert found[0] == pytest.approx(((1 + quantile) / 2) ** 3, abs=5e-4)


def test_a_branch_below_an_interchange_has_no_support() -> None:
    observed = np.array([[-10.0, -9.0, -12.0]])
    resampled = observed[..., None] + np.random.default_rng(1).normal(size=(1, 3, 100))
    assert not sh_alrt(observed, resampled).any()
    assert parametric(observed)[0] == 0
