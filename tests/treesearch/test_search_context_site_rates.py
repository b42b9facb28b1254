"""Searches under rates of sites: they gain, they end where they did, stopped or not."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from mltree.data.alphabet import DNA
from mltree.data.patterns import Patterns
from mltree.fit.settings import CheckpointSettings, preset
from mltree.likelihood.likelihood import PerSiteLikelihood
from mltree.models.grammar import parse_model
from mltree.models.partitioned import Linkage, PartitionModel
from mltree.program.cases import Case
from mltree.runs.engines import Resources, Workload, open_engines
from mltree.runs.problem import Problem
from mltree.system.events import Event, ModelOptimised, RoundDone, ignore
from mltree.treesearch.checkpoint import Checkpoint
from mltree.treesearch.search import SearchOutcome, StartingTree, search
from mltree.treesearch.search_context import _per_site

if TYPE_CHECKING:
    from simulated import Simulated

ALWAYS = CheckpointSettings(first=0.0, growth=0.0, share=math.inf)

QUICK = preset("fast")

REFERENCE = Resources(device="reference")


def opened(patterns: Patterns, model: PartitionModel) -> PerSiteLikelihood:
    problem = Problem("data", (patterns,), model, None)
    likelihood = open_engines(REFERENCE, Workload.of(problem), ignore).likelihood
    assert isinstance(likelihood, PerSiteLikelihood)
    return likelihood


def model_of(data: Simulated, text: str = "HKY+FC+PSR6") -> PartitionModel:
    parts = [
        parse_model(text, DNA).with_empirical_frequencies(
            replace(data.patterns, codes=data.patterns.codes[:, own],
                    weights=data.patterns.weights[own], ends=())
        )
        for own in data.patterns.parts
    ]  # fmt: skip
    return data.model.with_parts(parts, np.ones(len(parts)))


def searched(
    data: Simulated, model: PartitionModel, emit: Callable[[Event], None] = ignore,
    checkpoint: Checkpoint | None = None,
) -> SearchOutcome:  # fmt: skip
    start = StartingTree(data.tree.copy(), "user 1")
    rng = np.random.default_rng(3)
    used = opened(data.patterns, model)
    return search(used, [start], model, QUICK, rng, emit, checkpoint)


@pytest.mark.cases(2, 40)
def test_it_never_loses_and_says_what_it_has(
    make_parts: Callable[..., Simulated], case: int
) -> None:
    """One part or two, under either linkage; the lnL is that of its tree and rates."""
    check_a_search(make_parts, case)


@pytest.mark.parametrize("case", [5, 20, 31])
def test_rates_are_found_anew_where_parts_have_scalers(
    make_parts: Callable[..., Simulated], case: int
) -> None:
    """Those were applied twice: 0.17, 0.02 and 0.11 lnL were lost."""
    check_a_search(make_parts, case)


def check_a_search(make_parts: Callable[..., Simulated], case: int) -> None:
    rng = np.random.default_rng(case)
    sizes = [(80,), (50, 40)][case % 2]
    linkage = list(Linkage)[int(rng.integers(2))]
    data = make_parts(6, sizes, seed=case, linkage=linkage, texts=["GTR+FE+G4{0.3}"] * len(sizes))
    told: list[float] = []

    def tell(event: Event) -> None:
        if isinstance(event, ModelOptimised):
            told.append(event.lnl)

    found = searched(data, model_of(data), tell)
    assert len(told) >= 3  # rates that are no better the second time are not told
    assert sorted(told) == pytest.approx(told)
    again = opened(data.patterns, found.model)
    again.group(found.model.site_rates)
    lnl = again.log_likelihoods([found.tree], [Case(found.model.arrays())])[0]
    assert lnl == pytest.approx(found.lnl, rel=1e-9)
    weights = [data.patterns.weights[own] for own in data.patterns.parts]
    pairs = list(zip(weights, found.model.site_rates, strict=True))
    means = np.array([(own @ form.of_patterns) / own.sum() for own, form in pairs])
    if linkage == Linkage.SCALED and len(sizes) > 1:
        np.testing.assert_allclose(means, 1.0)
    else:
        np.testing.assert_allclose(means @ data.model.shares, 1.0)


class _Stopped(Exception):
    pass


@pytest.mark.parametrize("stop_at", [1, 4])
def test_it_goes_on_with_the_same_bits(
    make_case: Callable[..., Simulated], tmp_path: Path, stop_at: int
) -> None:
    """Stopped after some steps, before and after rates are known."""
    data = make_case(6, 60, text="GTR+FE+G4{0.4}")
    model = model_of(data)
    whole = searched(data, model)
    checkpoint = Checkpoint(tmp_path / "x.ckp", "mark", ALWAYS)
    seen = 0

    def stop(event: Event) -> None:
        nonlocal seen
        seen += isinstance(event, ModelOptimised | RoundDone)
        if seen == stop_at:
            raise _Stopped

    with pytest.raises(_Stopped):
        searched(data, model, stop, checkpoint)
    found = searched(data, model, ignore, Checkpoint(tmp_path / "x.ckp", "mark", ALWAYS))
    assert found.lnl == whole.lnl
    np.testing.assert_array_equal(found.tree.lengths, whole.tree.lengths)
    for mine, theirs in zip(found.model.site_rates, whole.model.site_rates, strict=True):
        np.testing.assert_array_equal(mine.rates, theirs.rates)
        np.testing.assert_array_equal(mine.category, theirs.category)


def test_other_likelihoods_have_no_such_rates(case: Simulated) -> None:
    with pytest.raises(ValueError, match="no rates of their own"):
        _per_site(case.likelihood)


def test_slow_sites_are_told_from_fast_ones(make_case: Callable[..., Simulated]) -> None:
    """What never changes is slowest, what has many states faster than what has two."""
    data = make_case(8, 150, seed=4, text="JC")
    model = model_of(data, "JC+PSR4")
    used = opened(data.patterns, model)
    (found,) = used.site_rates(data.tree, Case(model.arrays()))
    rates = found.rates[found.category]
    states = np.array([len(set(column)) for column in data.patterns.codes.T.tolist()])
    assert (rates[states == 1] == found.rates[0]).all()
    assert rates[states > 2].mean() > 1.5 * rates[states == 2].mean()
