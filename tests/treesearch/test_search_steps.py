"""What a search does, in which order, and which starts go on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pytest

from mltree.data.alphabet import DNA
from mltree.fit.settings import (
    PRESETS,
    REPLICATE,
    CheckpointSettings,
    PerturbationSettings,
    PhaseSettings,
    SearchSettings,
    preset,
)
from mltree.likelihood.requests import Answers, Request, SmoothTrees, Steps
from mltree.models.grammar import parse_model
from mltree.models.partitioned import PartitionModel, alone
from mltree.system.events import Emit, Event, Notice, ignore
from mltree.tree.topology import Tree, random_topology
from mltree.treesearch.checkpoint import CandidateTree, Checkpoint, SearchState
from mltree.treesearch.search import (
    StartingTree,
    beginning,
    chance_of_better,
    next_starts,
    replicate_search,
    search,
    starts_lacking,
    survivors,
    tree_search,
)
from mltree.treesearch.search_context import ENDED, SearchContext

if TYPE_CHECKING:
    from simulated import Simulated

T = TypeVar("T")


class Recorded(SearchContext):
    """Takes no step, but records their names; ``better``: which batches of copies gain.

    ``turns``: turns of starts that follow the first.
    """

    better: Sequence[bool] = (False,)
    turns: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.names: list[str] = []

    def step(self, name: str, work: Steps[T]) -> Steps[T | None]:
        work.close()
        self.names.append(name)
        if name == "accept":
            gained = self.better[self.state.batches]
            self.state.batches += 1
            self.state.failures = 0 if gained else self.settings.perturbation.patience
        yield from ()
        if name == "next starts":
            self.turns -= 1
            return self.turns >= 0  # type: ignore[return-value]
        return None


def names(
    settings: SearchSettings,
    play: Callable[[SearchContext], Steps[None]] = tree_search,
    model: PartitionModel | None = None,
    better: Sequence[bool] = (False,),
    turns: int = 0,
) -> list[str]:
    model = alone(parse_model("JC", DNA)) if model is None else model
    starts = [StartingTree(tree, "random") for tree in trees(2)]
    state = beginning(starts, model, settings, np.random.default_rng(1))
    search = Recorded(settings, state, ignore)
    search.better, search.turns = better, turns
    assert list(play(search)) == []
    return search.names


def fit(when: str) -> list[str]:
    return [f"model {when}", f"smooth {when}"]


BATCH = ["copy", "repair", "accept"]
LAST = [*BATCH, "last look"]


@pytest.mark.parametrize(
    ("radii", "patience", "expected"),
    [
        ((3,), 0, ["phase 1", "cull", "end starts"]),
        ((3, 5), 0, ["phase 1", "cull", *fit("before phase 2"), "phase 2", "end starts"]),
        ((3,), 2, ["phase 1", "cull", "end starts", *fit("before perturbation"), *LAST]),
    ],
)
def test_the_model_follows_the_trees_and_the_end_is_last(
    radii: tuple[int, ...], patience: int, expected: list[str]
) -> None:
    settings = SearchSettings(
        phases=tuple(PhaseSettings(radius, 10.0) for radius in radii),
        perturbation=PerturbationSettings(patience=patience),
    )
    assert names(settings) == ["smooth starts", *fit("of starts"), *expected, "finish"]


def test_a_tree_that_stays_is_fitted_from_its_own_lengths() -> None:
    """Smoothed under a model yet to be fitted they may have left the highest maximum."""
    fixed = SearchSettings(phases=(), perturbation=PerturbationSettings(patience=0))
    assert names(fixed) == ["score", "finish"]
    parts = alone(parse_model("JC", DNA))
    parts = replace(parts, names=("1", "2"), models=parts.models * 2, shares=np.full(2, 0.5))
    assert names(fixed, model=parts) == ["smooth starts", *fit("of starts"), "finish"]


def test_rates_of_sites_come_before_the_model_and_no_maximum_is_sought() -> None:
    model = alone(parse_model("JC+PSR", DNA))
    fixed = SearchSettings(phases=(), perturbation=PerturbationSettings(patience=0))
    whens = "of starts", "at the end"
    own = [[f"site rates {when}", *fit(when)] for when in whens]
    assert names(fixed, model=model) == ["smooth starts", *own[0], *own[1]]
    whole = names(preset("default"), model=model, better=(True, False))
    assert whole[-len(LAST) :] == LAST
    assert "refit" not in whole


def test_a_copy_that_is_better_has_a_model_of_its_own() -> None:
    every = names(preset("default"), better=(True, False, True, False))
    first = every.index("copy")
    refit = ["refit", "smooth refitted"]
    assert every[first:] == [*BATCH, *refit, *LAST, "finish"]


@pytest.mark.parametrize("turns", [0, 2])
def test_on_hard_data_starts_follow_those_that_have_ended(turns: int) -> None:
    hard = preset("default").for_spread(1.0)
    every = names(hard, turns=turns)
    climb = ["smooth starts", *fit("of starts"), "phase 1", "cull"]
    climb += [*fit("before phase 2"), "join before phase 2", "phase 2", "next starts"]
    assert every[: len(climb) * (1 + turns) + 1] == [*climb * (1 + turns), "end starts"]
    rates = alone(parse_model("JC+PSR", DNA))
    assert "next starts" not in names(hard, model=rates)
    assert "next starts" not in names(preset("default"))


@pytest.mark.parametrize(
    ("lnls", "chance"),
    [
        ([-50.0], 1.0),
        ([-50.0, -51.0], 1 / 2),
        ([-50.0, -51.5, -51.5, -50.5], 1 / 12),
        ([-50.0, -60.0, -61.0, -50.0], 2 / 12),
        ([-50.0, -51.5, -53.0, -54.5], 2 / 12),
        ([-90.0, -70.0, -50.0], 3 / 6),
    ],
)
def test_ends_tell_the_chance_that_another_start_is_better(
    lnls: list[float], chance: float
) -> None:
    assert chance_of_better(lnls) == pytest.approx(chance)
    assert chance_of_better(lnls[::-1]) == pytest.approx(chance)


def test_starts_go_on_while_their_ends_differ_and_all_of_them_are_candidates_then() -> None:
    settings = replace(preset("default").for_spread(1.0), starts_at_once=2, chance=0.2)
    starts = [StartingTree(tree, "random") for tree in trees(9)]
    model = alone(parse_model("JC", DNA))
    told: list[Event] = []
    state = beginning(starts, model, settings, np.random.default_rng(1))
    search = SearchContext(settings, state, told.append)
    ends = iter([-100.0, -70.0, -70.0, -90.0, -70.0, -70.0])  # a third, a quarter, a tenth
    for turn in (1, 2, 3):
        assert (len(state.candidates), state.starts) == (2, 2 * turn)
        for candidate in state.candidates:
            candidate.lnl = next(ends)
        assert state.best.lnl == (-70.0)
        goes_on = run(next_starts(search))
        assert goes_on == (turn < 3)
    assert [one.lnl for one in state.candidates] == [-100.0, -70.0, -70.0, -90.0, -70.0, -70.0]
    assert (state.waiting, state.ended_starts) == ([], [])
    assert [one.landscape for one in state.candidates] == [1, 2, 3, 4, 5, 6]
    assert any("3 skipped" in event.text for event in told if isinstance(event, Notice))


@pytest.mark.parametrize(
    ("lnls", "chance", "lacking"),
    [
        ([-1.0] * 4, 0.015, 5),  # 1 / (9 * 8)
        ([-1.0] * 9, 0.015, 0),
        ([-1.0, -1.0, -9.0, -1.0], 0.1, 1),  # 2 / (5 * 4)
        ([-1.0], 0.5, 1),
    ],
)
def test_starts_follow_until_the_chance_is_small(
    lnls: list[float], chance: float, lacking: int
) -> None:
    assert starts_lacking(lnls, chance) == lacking
    settings = replace(
        preset("default"),
        chance=chance,
        starts_at_once=2,
        starts_as_needed=True,
        hard_starts=(0, 0),
    )
    starts = [StartingTree(tree, "random") for tree in trees(9 + len(lnls))]
    model, rng = alone(parse_model("JC", DNA)), np.random.default_rng(1)
    state = beginning(starts, model, settings, rng)
    state.candidates, state.waiting = state.candidates[:1] * len(lnls), state.waiting[:9]
    state.candidates = [
        replace(one, lnl=lnl) for one, lnl in zip(state.candidates, lnls, strict=True)
    ]
    search = SearchContext(settings, state, ignore)
    assert run(next_starts(search)) == (lacking > 0)
    assert len(state.candidates) == (lacking or len(lnls))


def run(steps: Steps[T]) -> T:
    """Take steps that ask for nothing."""
    try:
        next(steps)
    except StopIteration as end:
        return end.value
    raise AssertionError("a request")


def test_a_replicate_is_a_search_without_its_model() -> None:
    every = names(REPLICATE, replicate_search, better=(True, False))
    phases = [f"phase {number}" for number in range(1, len(REPLICATE.phases) + 1)]
    expected = ["smooth starts", "smooth", *phases, "end starts", *BATCH, *LAST]
    assert every == [*expected, "smooth at the end"]


@pytest.mark.parametrize("name", PRESETS)
def test_all_presets_but_the_fast_one_perturb(name: str) -> None:
    every = names(preset(name))
    assert ("copy" in every) == (name != "fast")
    assert every[-1] == "finish"


def test_a_fresh_start_is_smoothed_less_than_what_follows(
    make_case: Callable[..., Simulated],
) -> None:
    data, epsilons = make_case(6, 60), []
    settings = replace(preset("fast"), first_smooth_epsilon=7.0)
    starts = [StartingTree(random_topology(6, np.random.default_rng(1)), "random")]

    def ask(request: Request) -> Answers:
        if isinstance(request, SmoothTrees):
            epsilons.append(request.epsilon)
        return request.answer(data.likelihood)

    search(data.likelihood, starts, data.model, settings, np.random.default_rng(1), ask=ask)
    assert epsilons[:2] == [7.0, settings.rounds.smooth_epsilon]
    assert 7.0 not in epsilons[1:]


@pytest.mark.parametrize("at", ["model of starts", "phase 2", "copy", "last look", "finish"])
def test_steps_before_the_one_to_resume_at_are_passed_by(at: str) -> None:
    settings = preset("default")
    state = beginning(
        [StartingTree(tree, "random") for tree in trees(1)],
        alone(parse_model("JC", DNA)),
        settings,
        np.random.default_rng(1),
    )
    state.step = at
    if at in {"last look", "finish"}:
        state.failures = settings.perturbation.patience

    class Reached(Exception):
        pass

    class Kept(Checkpoint):
        def step(self, state: SearchState, emit: Emit, *, is_last: bool = False) -> None:
            raise Reached(state.step)

    checkpoint = Kept(Path("none"), "mark", CheckpointSettings())
    with pytest.raises(Reached, match=f"^{at}$"):
        list(tree_search(SearchContext(settings, state, ignore, checkpoint=checkpoint)))


def test_a_search_that_has_ended_has_no_step_left() -> None:
    settings = preset("default")
    starts, model = [StartingTree(tree, "random") for tree in trees(1)], parse_model("JC", DNA)
    state = beginning(starts, alone(model), settings, np.random.default_rng(1))
    state.step, state.failures = ENDED, settings.perturbation.patience
    ended = SearchContext(settings, state, ignore)
    assert list(tree_search(ended)) == []
    ended.end()
    state.step = "no such step"
    lost = SearchContext(settings, state, ignore)
    assert list(tree_search(lost)) == []
    with pytest.raises(ValueError, match="no such step"):
        lost.end()


def trees(count: int) -> list[Tree]:
    rng = np.random.default_rng(3)
    return [random_topology(10, rng) for _ in range(count)]


def test_starts_that_cannot_catch_up_are_dropped() -> None:
    settings = SearchSettings(cull_factor=0.5, cull_margin=2.0, max_survivors=3)
    lnls = [-100.0, -140.0, -101.0, -200.0, -103.0, -104.0]
    candidates = [CandidateTree(t, lnl, str(lnl)) for t, lnl in zip(trees(6), lnls, strict=True)]
    assert [x.lnl for x in survivors(candidates, settings)] == [-100.0, -101.0, -103.0]


def test_equal_topologies_go_on_once_and_their_starts_are_counted() -> None:
    a, b = trees(2)
    candidates = [
        CandidateTree(a, -2.0, "x"),
        CandidateTree(a.copy(), -1.0, "y"),
        CandidateTree(b, -1.5, "z"),
    ]
    kept = survivors(candidates, SearchSettings())
    assert [(x.origin, x.starts) for x in kept] == [("y", 2), ("z", 1)]
