"""Patterns with a rate each: every operation, against patterns that are computed one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from verifier import VerifiedEngine

from mltree.data.patterns import Patterns
from mltree.device.rate_groups import RateGroupEngine, unrated
from mltree.likelihood.likelihood import Columns, PerSiteLikelihood, TreeLikelihood
from mltree.likelihood.site_rows import rows_of_neighbours, rows_of_trees
from mltree.models.rates import GRID, SiteRates
from mltree.program.cases import Case
from mltree.program.engine import Engine
from mltree.system.events import Emit, ignore
from mltree.tree.moves import SprLengths, spr
from mltree.tree.topology import Tree
from mltree.treesearch.spr import Neighbourhood

if TYPE_CHECKING:
    from conftest import Problem

Open = Callable[..., Engine]

TAXA, COUNT = 7, 5
BOUNDS = (1e-6, 100.0)
GRID_LOSS = 0.05
"""Of lnL, for want of rates between those of the grid: 1/150 for every change of a pattern."""
RELATIVE = 1e-10
"""lnL of the same patterns, in another order."""


@dataclass(frozen=True)
class PerSite:
    """An alignment of two parts, whose patterns have rates."""

    problem: Problem
    patterns: Patterns
    forms: list[SiteRates]
    cases: list[Case]

    @property
    def rates(self) -> np.ndarray:
        return np.concatenate([form.of_patterns for form in self.forms])

    def opened(self, open_: Open) -> PerSiteLikelihood:
        def open_one(groups: Sequence[Patterns], emit: Emit = ignore) -> Engine:
            del emit
            return VerifiedEngine(open_(groups[0], 1), TAXA)

        engine = RateGroupEngine(open_one, [self.patterns], COUNT)
        used = PerSiteLikelihood(engine, BOUNDS, Columns.of([self.patterns]), len(GRID))
        used.group(self.forms)
        return used

    def of_pattern(self, reference: Callable[..., TreeLikelihood], place: int, n: int) -> Callable:
        """The lnL of one pattern of weight 1, under one rate, of any tree in case n."""
        own = slice(place, place + 1)
        lone = replace(
            self.patterns, codes=self.patterns.codes[:, own], weights=np.ones(1), ends=()
        )
        used = reference(replace(self.problem, patterns=lone))
        part = int(place >= self.patterns.ends[0])
        one = np.ones(1)
        case = Case((replace(self.cases[n].models[part], rates=one, weights=one),))

        def lnl(tree: Tree) -> float:
            slower = Tree(tree.twin, tree.edge, tree.lengths * self.rates[place], TAXA)
            return float(used.log_likelihoods([slower], [case])[0])

        return lnl

    def sites(self, reference: Callable[..., TreeLikelihood], tree: Tree, n: int) -> np.ndarray:
        count = self.patterns.n_patterns
        return np.array([self.of_pattern(reference, at, n)(tree) for at in range(count)])


@pytest.fixture
def per_site(make_problem: Callable[..., Problem], case: int) -> PerSite:
    """Random rates, some of which no pattern has; in each of two cases a model a part."""
    rng = np.random.default_rng([17, case])
    problem = make_problem(TAXA, 24, trees=2, seed=case, categories=1)
    models = [
        replace(model, rates=np.ones(1), weights=np.ones(1))
        for model in make_problem(TAXA, 1, trees=4, seed=case + 50, categories=1).models
    ]
    ends = (int(rng.integers(1, 23)), 24)
    forms = [
        SiteRates(COUNT, np.sort(rng.exponential(size=COUNT)), rng.integers(0, COUNT - 1, size))
        for size in np.diff(ends, prepend=0)
    ]
    cases = [
        Case(
            tuple(
                replace(model, rates=form.rates, weights=np.full(COUNT, 1 / COUNT))
                for model, form in zip(models[2 * n :], forms, strict=False)
            )
        )
        for n in range(2)
    ]
    return PerSite(problem, replace(problem.patterns, ends=ends), forms, cases)


@pytest.mark.cases(2, 60)
def test_lnls(
    open_engine: Open, reference: Callable[..., TreeLikelihood], per_site: PerSite
) -> None:
    """Of patterns, parts and trees, under several rows of weights."""
    used, trees = per_site.opened(open_engine), per_site.problem.trees
    weights = np.stack([per_site.patterns.weights, np.arange(24.0)])
    used.load_weights(weights)
    cases = [case._replace(weights=n) for n, case in enumerate(per_site.cases)]
    sites = np.array([per_site.sites(reference, tree, n) for n, tree in enumerate(trees)])
    for n, tree in enumerate(trees):
        np.testing.assert_allclose(used.site_log_likelihoods(tree, cases[n]), sites[n], rtol=1e-9)
    found = used.part_log_likelihoods(trees, cases)
    expected = [np.add.reduceat(row * w, [0, per_site.patterns.ends[0]]) for row, w in
                zip(sites, weights, strict=True)]  # fmt: skip
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    np.testing.assert_allclose(used.log_likelihoods(trees, cases), found.sum(axis=1), rtol=RELATIVE)
    rows = rows_of_trees(used, trees, cases, weights[0])
    np.testing.assert_allclose(rows.sites(), sites, rtol=1e-9)
    np.testing.assert_allclose(rows.resampled(weights), sites @ weights.T, rtol=1e-9)


@pytest.mark.cases(1, 20)
def test_lengths(
    open_engine: Open, reference: Callable[..., TreeLikelihood], per_site: PerSite
) -> None:
    """Derivatives by differences of lnLs, and a smoothing that ends where those are 0."""
    used, tree, case = per_site.opened(open_engine), per_site.problem.tree, per_site.cases[0]
    lnl, slope, _ = used.derivatives(tree, case)
    weights = per_site.patterns.weights
    assert lnl == pytest.approx(per_site.sites(reference, tree, 0) @ weights, rel=1e-9)
    for edge in (0, tree.n_edges - 1):
        ends = []
        for step in (-1e-5, 1e-5):
            moved = tree.copy()
            moved.lengths[edge] += step
            ends.append(per_site.sites(reference, moved, 0) @ weights)
        assert slope[edge] == pytest.approx((ends[1] - ends[0]) / 2e-5, rel=1e-4, abs=1e-3)
    smoothed = tree.copy()
    (best,) = used.smooth([smoothed], [case], 1e-6)
    assert best > lnl
    assert best == pytest.approx(per_site.sites(reference, smoothed, 0) @ weights, rel=1e-9)
    _, slope, _ = used.derivatives(smoothed, case)
    inside = smoothed.lengths > 1e-4
    np.testing.assert_allclose(slope[inside] * smoothed.lengths[inside], 0.0, atol=0.1)


@pytest.mark.cases(1, 20)
def test_moves(
    open_engine: Open, reference: Callable[..., TreeLikelihood], per_site: PerSite
) -> None:
    """Insertions that are scored and optimised, against the lnL of the trees that they make."""
    used, tree, case = per_site.opened(open_engine), per_site.problem.tree, per_site.cases[0]
    weights = per_site.patterns.weights
    found = Neighbourhood(tree)
    scan = found.scan(found.extend(3))
    used.insertions([tree], [case], scan)
    lnl, lengths = used.refine([tree], [case], scan)
    for n in (0, len(lnl) - 1):
        prune, target, join = found.prune[n], found.target[n], found.merged[found.number[n]]
        moved = tree.copy()
        spr(moved, int(prune), int(target), SprLengths(*lengths[n], join))
        expected = per_site.sites(reference, moved, 0) @ weights
        assert lnl[n] == pytest.approx(expected, rel=1e-9)
    rows = rows_of_neighbours(used, tree, case, weights, tree.inner_edges)
    assert rows.lnl[-1] == pytest.approx(per_site.sites(reference, tree, 0) @ weights, rel=1e-9)


@pytest.mark.cases(1, 40)
def test_the_rates_that_suit_patterns_best(
    open_engine: Open, reference: Callable[..., TreeLikelihood], per_site: PerSite
) -> None:
    """As another optimiser finds them, pattern by pattern; where all of the grid are kept."""
    used, tree = per_site.opened(open_engine), per_site.problem.tree
    fitted = used.site_rates(tree, per_site.cases[0])
    rates = np.concatenate([part.rates[part.category] * part.speed for part in fitted])

    def at(rate: np.ndarray) -> np.ndarray:
        forms = [SiteRates(1, rate, np.arange(len(rate)))]
        whole = replace(per_site, forms=forms)
        return whole.sites(reference, tree, 0)

    best = at(rates)
    assert best @ per_site.patterns.weights == pytest.approx(sum(part.lnl for part in fitted))
    for place in range(24):

        def minus_lnl(x: float, place: int = place) -> float:
            lone = replace(per_site, forms=[SiteRates(1, np.exp([x]), np.zeros(24, np.int64))])
            return -lone.of_pattern(reference, place, 0)(tree)

        ends = (float(np.log(GRID[0])), float(np.log(GRID[-1])))
        found = minimize_scalar(minus_lnl, bounds=ends, method="bounded")
        assert best[place] > -found.fun - GRID_LOSS


@pytest.mark.cases(1, 1)
def test_before_any_rates_all_are_alike(open_engine: Open, per_site: PerSite) -> None:
    """And patterns that are grouped again have their first rates no more."""
    used, tree, case = per_site.opened(open_engine), per_site.problem.tree, per_site.cases[0]
    before = used.log_likelihoods([tree], [case])
    none = [replace(form, category=np.zeros_like(form.category)) for form in per_site.forms]
    used.group(none)
    (same,) = unrated([per_site.patterns], COUNT)
    np.testing.assert_array_equal(same.weights, per_site.patterns.weights)
    slowest = [replace(m, rates=m.rates[:1], weights=np.ones(1)) for m in case.models]
    np.testing.assert_allclose(
        used.log_likelihoods([tree], [case]),
        used.log_likelihoods([tree], [Case(tuple(slowest))]),
        rtol=RELATIVE,
    )
    used.group(per_site.forms)
    np.testing.assert_array_equal(used.log_likelihoods([tree], [case]), before)
