"""Which trees of a search go on, and which rest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest

from mltree.data.alphabet import DNA
from mltree.fit.settings import PerturbationSettings, PhaseSettings, SearchSettings
from mltree.likelihood.requests import perform
from mltree.models.grammar import parse_model
from mltree.models.partitioned import alone
from mltree.system.events import Event, ModelOptimised, StartTree, TreePerturbed
from mltree.tree.moves import nni
from mltree.tree.splits import topology_key
from mltree.tree.topology import random_topology
from mltree.treesearch.checkpoint import CandidateTree
from mltree.treesearch.move_cache import CacheUpdate
from mltree.treesearch.search import (
    StartingTree,
    accept_copies,
    beginning,
    end_starts,
    finish,
    join_landscapes,
    perturb,
)
from mltree.treesearch.search_context import SearchContext

if TYPE_CHECKING:
    from simulated import Simulated

PHASE = PhaseSettings(3, np.inf)

Make = Callable[..., SearchContext]


@pytest.fixture
def data(make_case: Callable[..., Simulated]) -> Simulated:
    return make_case(8, 120)


@pytest.fixture
def make_context(data: Simulated) -> Make:
    def make(emit: Callable[[Event], None] = lambda _: None, **settings: object) -> SearchContext:
        rng = np.random.default_rng(4)
        starts = [StartingTree(random_topology(8, rng), f"random {n}") for n in range(1, 6)]
        chosen = SearchSettings(phases=(PHASE,), **settings)  # type: ignore[arg-type]
        return SearchContext(chosen, beginning(starts, data.model, chosen, rng), emit)

    return make


def test_of_equal_trees_the_best_goes_on(data: Simulated, make_context: Make) -> None:
    context = make_context()
    worse, better = (CandidateTree(data.tree.copy(), lnl, "x") for lnl in (-9e3, -8e3))
    goes_on = perform(data.likelihood, context.round([worse, better], PHASE))
    assert (worse.active, worse.lnl, worse.rounds) == (False, -9e3, 0)
    assert better.rounds == 1
    assert goes_on == better.active


def test_candidates_of_one_shape_rest_but_the_best(data: Simulated, make_context: Make) -> None:
    context = make_context()
    state, tree = context.state, data.tree
    ended = CandidateTree(random_topology(8, np.random.default_rng(5)), -7e3, "x", landscape=1)
    elsewhere, again, worse, better = (
        CandidateTree(one.copy(), lnl, "x", landscape=number)
        for one, lnl, number in zip(
            (ended.tree, ended.tree, tree, tree),
            (-9e3, -9e3, -9e3, -8e3),
            (0, 1, 1, 1),
            strict=True,
        )
    )
    state.ended_starts, state.candidates = [ended], [elsewhere, again, worse, better]
    context.rest_alike()
    assert [one.active for one in state.candidates] == [True, False, False, True]
    context.rest_alike()
    assert [one.active for one in state.candidates] == [True, False, False, True]


@pytest.mark.parametrize("like", [True, False])
def test_a_start_joins_the_best_landscape_where_its_tree_is_as_good(
    data: Simulated, make_context: Make, like: bool
) -> None:
    context = make_context()
    state = context.state
    if not like:
        other = parse_model("GTR{9/1/9/1/9/1}+FU{0.1/0.2/0.2/0.5}+G2m{9}", DNA)
        state.landscapes[2].model = alone(other)
    best, joining = (CandidateTree(data.tree.copy(), -np.inf, "x", landscape=n) for n in (2, 1))
    perform(data.likelihood, context.smooth([joining], 0.1))
    before = joining.lnl
    best.lnl = before + 1.0
    state.candidates, state.ended_starts = [joining], [best]
    perform(data.likelihood, join_landscapes(context))
    assert joining.landscape == (2 if like else 1)
    assert joining.lnl == pytest.approx(before, abs=0.2)


def test_a_tree_from_which_nothing_was_found_is_not_asked_again(
    data: Simulated, make_context: Make
) -> None:
    context = make_context()
    context.state.landscapes[0].cache.add_converged([topology_key(data.tree)])
    candidate = CandidateTree(data.tree.copy(), -9e3, "x")
    assert not perform(data.likelihood, context.round([candidate], PHASE))
    assert (candidate.rounds, context.state.rounds) == (0, 0)


def test_starts_come_in_until_those_before_agree(data: Simulated, make_context: Make) -> None:
    events: list[Event] = []
    context = make_context(events.append, starts_at_once=2)
    state = context.state
    assert (len(state.candidates), len(state.waiting), state.starts) == (2, 3, 2)
    for candidate, lnl in zip(state.candidates, (-100.0, -150.0), strict=True):
        candidate.lnl = lnl
    assert context.reached(state.candidates) == 1
    assert perform(data.likelihood, context.admit())
    assert (len(state.candidates), len(state.waiting), state.starts) == (4, 1, 4)
    assert [event.origin for event in events if isinstance(event, StartTree)] == [
        "random 3",
        "random 4",
    ]
    assert all(
        np.isfinite(candidate.lnl) and candidate.active for candidate in state.candidates[2:]
    )
    for candidate, lnl in zip(state.candidates, (-100.05, -150.0, -100.0, -101.0), strict=True):
        candidate.lnl = lnl
    assert context.reached(state.candidates) == 1
    assert context.reached(state.candidates, within=0.1) == 2
    assert not perform(data.likelihood, context.admit())
    assert (len(state.candidates), len(state.waiting)) == (4, 1)


def test_the_starts_of_one_shape_count_together(make_context: Make) -> None:
    context = make_context()
    one, other, third, *_ = context.state.candidates
    one.lnl, other.lnl, third.lnl = -3.0, -5.0, -4.0
    other.tree, other.starts = one.tree.copy(), 4
    assert context.reached([one, other, third]) == 5


def test_rivals_are_pooled_trees_of_other_shapes_that_are_as_good(
    data: Simulated, make_context: Make
) -> None:
    context = make_context(max_survivors=4, cull_margin=0.0)
    wrong, *others = (candidate.tree for candidate in context.state.candidates)
    best = CandidateTree(wrong.copy(), -np.inf, "x")
    for rank, tree in enumerate([data.tree, wrong, *others]):
        context.state.pool.add([tree], [-float(rank)])
    rivals = perform(data.likelihood, context.rivals(best))
    first = [tree.copy() for tree in (wrong, data.tree, *others[:2])]
    epsilon = context.settings.final_smooth_epsilon
    own, *lnls = data.likelihood.smooth(first, [context.case] * 4, epsilon)
    assert best.lnl == pytest.approx(own)
    wanted = [lnl for lnl in lnls if lnl > own]
    assert len(wanted) > 0
    assert [one.lnl for one in rivals] == pytest.approx(wanted)


def test_a_search_that_ends_on_another_tree_looks_again(
    data: Simulated, make_context: Make
) -> None:
    context = make_context()
    state = context.state
    state.candidates = state.candidates[:1]
    state.pool.add([data.tree], [-9e3])
    cache = state.landscapes[state.best.landscape].cache
    cache.add_converged([1])
    assert perform(data.likelihood, finish(context, looks_again=True))
    assert topology_key(state.best.tree) == topology_key(data.tree)
    assert cache.has_converged([1]) == [False]
    assert not perform(data.likelihood, finish(context, looks_again=True))


@pytest.mark.parametrize(("gain", "kept"), [(0.04, 1), (0.06, 0)])
def test_under_a_model_that_is_better_by_much_stalled_prunes_are_forgotten(
    make_context: Make, gain: float, kept: int
) -> None:
    context = make_context()
    candidate = context.state.candidates[0]
    cache = context.state.landscapes[candidate.landscape].cache
    nothing, one = np.empty(0, np.uint64), np.ones(1, np.uint64)
    cache.add([], stalled=[CacheUpdate(nothing, nothing, one)])
    cache.add_converged([1])
    candidate.lnl = -9e3
    (fit,) = context.fits(candidate)
    fit.lnl = candidate.lnl + gain
    context.adopt(candidate, fit)
    assert (cache.stalled.size, cache.has_converged([1])) == (kept, [False])


@pytest.mark.parametrize(("agreement", "returned"), [(2, 4), (3, 4), (4, 0)])
def test_starts_that_agree_stand_for_half_of_the_copies(
    data: Simulated, make_context: Make, agreement: int, returned: int
) -> None:
    context = make_context(agreement=agreement)
    state = context.state
    for candidate, lnl in zip(
        state.candidates, (-100.0, -150.0, -120.0, -101.0, -102.0), strict=True
    ):
        candidate.lnl = lnl
    state.candidates[0].starts = 3
    perform(data.likelihood, end_starts(context))
    assert (context.settings.perturbation.returns, state.returned) == (8, returned)


def test_where_they_stand_for_all_none_is_made(data: Simulated, make_context: Make) -> None:
    events: list[Event] = []
    settings = PerturbationSettings(copies=2, patience=1, agreement_share=1.0)
    context = make_context(events.append, perturbation=settings)
    context.state.candidates = context.state.candidates[:1]
    context.state.best.starts = 2
    perform(data.likelihood, end_starts(context))
    perform(data.likelihood, perturb(context))
    assert (context.state.copies, context.state.batches) == ([], 0)


def test_a_search_without_a_phase_ends_on_its_tree(data: Simulated, make_context: Make) -> None:
    context = make_context()
    key = topology_key(context.state.candidates[0].tree)
    context.state.candidates = context.state.candidates[:1]
    context.state.pool.add([data.tree], [-9e3])
    assert not perform(data.likelihood, finish(context))
    assert topology_key(context.state.best.tree) == key


@pytest.mark.parametrize("refits", [False, True])
def test_a_copy_that_is_better_has_a_model_of_its_own(
    data: Simulated, make_context: Make, refits: bool
) -> None:
    events: list[Event] = []
    perturbation = PerturbationSettings(copies=2, patience=3)
    context = make_context(events.append, perturbation=perturbation)
    context.state.candidates = context.state.candidates[:1]
    perform(data.likelihood, context.smooth(context.state.candidates, 0.1))
    before = context.state.best.lnl
    perform(data.likelihood, perturb(context, refits=refits))
    batches = [event for event in events if isinstance(event, TreePerturbed)]
    refitted = sum(isinstance(event, ModelOptimised) for event in events)
    if not refits:
        gains = np.diff([before, *(event.lnl for event in batches)])
        better = (gains > context.settings.rounds.min_gain).sum()
        assert (refitted, 0 < better < len(batches)) == (0, True)
        return
    assert 0 < refitted < len(batches)
    told = [event for event in events if isinstance(event, TreePerturbed | ModelOptimised)]
    assert all(
        one.better
        for one, after in pairwise(told)
        if isinstance(one, TreePerturbed) and isinstance(after, ModelOptimised)
    )


class Spoilt(NamedTuple):
    """The tree that made some data, and trees that are wrong at some ends far apart."""

    data: Simulated
    context: SearchContext
    best: CandidateTree
    """Wrong at two ends."""
    others: list[CandidateTree]
    """Each right at one of them, and wrong somewhere else."""


@pytest.fixture
def spoilt(make_case: Callable[..., Simulated]) -> Spoilt:
    data = make_case(24, 2_000, 5)
    truth, rng = data.tree, np.random.default_rng(3)

    def wrong_at(*edges: int) -> CandidateTree:
        tree = truth.copy()
        for edge in edges:
            nni(tree, edge, 0)
        (lnl,) = data.likelihood.smooth([tree], [data.under], 0.1)
        return CandidateTree(tree, float(lnl), "x")

    nodes = truth.edge_halves // 3
    apart: list[int] = []
    for edge in rng.permutation(truth.inner_edges).tolist():
        around = {int(node) for one in apart for node in nodes[one]}
        near = nodes[np.isin(nodes, nodes[edge]).any(axis=1)]
        if around.isdisjoint(near.ravel().tolist()):
            apart.append(edge)
    one, other, third, fourth = apart[:4]
    chosen = SearchSettings(phases=(PHASE,))
    state = beginning([StartingTree(truth.copy(), "user 1")], data.model, chosen, rng)
    context = SearchContext(chosen, state, lambda _: None)
    others = [wrong_at(one, third), wrong_at(other, fourth)]
    return Spoilt(data, context, wrong_at(one, other), others)


def test_parts_of_two_trees_are_taken_into_a_third(spoilt: Spoilt) -> None:
    data, context, best, others = spoilt
    before = best.tree.copy()
    fused = perform(data.likelihood, context.fused([best, *others], among=[best]))
    assert topology_key(fused.tree) == topology_key(data.tree)
    own = data.likelihood.log_likelihoods([fused.tree], [data.under])[0]
    assert fused.lnl == pytest.approx(own, abs=1e-6)
    assert best.tree.is_same(before)
    assert context.state.moves == 1
    again = perform(data.likelihood, context.fused([best, fused, *others]))
    assert again is fused
    assert context.state.moves == 1


def test_a_change_of_shape_is_tried_once(spoilt: Spoilt) -> None:
    """However many trees have it; and none where no branch is long enough to tell."""
    _, context, best, others = spoilt
    once = next(context.fused([best, *others]))
    assert len(once.trees) == 4
    twice = next(context.fused([best, *others, *(other.copy() for other in others)]))
    assert all(one.is_same(two) for one, two in zip(once.trees, twice.trees, strict=True))
    blind = replace(context.settings.perturbation, free_length=np.inf)
    context.settings = replace(context.settings, perturbation=blind)
    with pytest.raises(StopIteration) as end:
        next(context.fused([best, *others]))
    assert end.value.value is max([best, *others], key=lambda one: one.lnl)


def test_what_copies_bring_together_is_a_gain_of_their_batch(spoilt: Spoilt) -> None:
    """Though none of them is better by itself."""
    data, context, best, copies = spoilt
    state = context.state
    for copy in copies:
        copy.lnl = min(copy.lnl, best.lnl - 1.0)
    state.candidates, state.copies, state.failures, state.returned = [best], copies, 1, 3
    perform(data.likelihood, accept_copies(context))
    (after,) = state.candidates
    assert after.lnl > best.lnl + 1.0
    assert (state.batches, state.failures, state.returned, state.copies) == (1, 0, 0, [])
    state.copies = [after.copy()]
    perform(data.likelihood, accept_copies(context))
    assert (state.batches, state.failures, state.returned) == (2, 1, 1)
    assert state.candidates == [after]


def test_random_starts_alone_have_landscapes_of_their_own(data: Simulated) -> None:
    rng, kinds = np.random.default_rng(1), ["parsimony 1", "random 1", "user 1", "random 2"]
    starts = [StartingTree(random_topology(8, rng), kind) for kind in kinds]
    state = beginning(starts, data.model, SearchSettings(), rng)
    assert [one.landscape for one in state.candidates] == [0, 1, 0, 2]
    assert len(state.landscapes) == 3
    rates = alone(parse_model("JC+PSR", DNA))
    state = beginning(starts, rates, SearchSettings(), rng)
    assert [one.landscape for one in state.candidates] == [0] * 4
    assert len(state.landscapes) == 1
