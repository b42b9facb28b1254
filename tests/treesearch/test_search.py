"""Whole searches on small simulated data, on the reference engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from verifier import VerifiedEngine

from mltree.fit.settings import (
    CheckpointSettings,
    PerturbationSettings,
    PhaseSettings,
    RoundSettings,
    SearchSettings,
)
from mltree.likelihood.likelihood import TreeLikelihood
from mltree.models.grammar import parse_model
from mltree.models.partitioned import Linkage, PartitionModel, alone
from mltree.program.cases import Case
from mltree.program.engine import ReferenceEngine
from mltree.system.errors import InputError
from mltree.system.events import (
    CheckpointWritten,
    Emit,
    Event,
    Notice,
    SearchFinished,
    StartsEnded,
    StartTree,
    TreesCulled,
    ignore,
)
from mltree.tree.splits import robinson_foulds
from mltree.tree.topology import random_topology
from mltree.treesearch.checkpoint import Checkpoint, SearchState
from mltree.treesearch.constraint import Constraint, tips_behind_edges
from mltree.treesearch.search import SearchOutcome, StartingTree, search

if TYPE_CHECKING:
    from simulated import Simulated

BOUNDS = (1e-6, 100.0)

SETTINGS = SearchSettings(
    phases=(PhaseSettings(25, 100.0), PhaseSettings(10, 100.0)),
    perturbation=PerturbationSettings(copies=2, patience=1),
    starts_at_once=1,
)

QUICK = SearchSettings(
    phases=(PhaseSettings(25, 50.0),),
    rounds=RoundSettings(keep=2, window=10.0),
    perturbation=PerturbationSettings(patience=0),
)


def starts(case: Simulated, count: int) -> list[StartingTree]:
    rng = np.random.default_rng(77)
    return [
        StartingTree(random_topology(case.tree.n_tips, rng), f"random {n + 1}")
        for n in range(count)
    ]


def run(case: Simulated, settings: SearchSettings = SETTINGS, count: int = 2, **more: object):
    model = alone(parse_model("K80+FE+G2", case.patterns.alphabet))
    rng = np.random.default_rng(5)
    return search(case.likelihood, starts(case, count), model, settings, rng, **more)


@pytest.fixture(scope="module")
def small(make_case: Callable[..., Simulated]) -> Simulated:
    return make_case(6, 120, 2)


@pytest.fixture(scope="module")
def found(small: Simulated) -> SearchOutcome:
    return run(small)


def test_finds_the_tree_that_made_the_data(small: Simulated, found: SearchOutcome) -> None:
    assert robinson_foulds(found.tree, small.tree) == 0
    found.tree.validate()


def test_reports_the_lnl_of_its_tree_and_model(small: Simulated, found: SearchOutcome) -> None:
    lnl = small.likelihood.log_likelihoods([found.tree], [Case(found.model.arrays())])[0]
    assert lnl == pytest.approx(found.lnl, abs=1e-8)
    assert found.pool.trees[0].lnl == found.lnl
    keys = [entry.key for entry in found.pool.trees]
    assert len(set(keys)) == len(keys)


def test_the_same_seed_gives_the_same_bits(small: Simulated, found: SearchOutcome) -> None:
    again = run(small)
    assert again.lnl == found.lnl
    assert (again.tree.twin == found.tree.twin).all()
    assert (again.tree.lengths == found.tree.lengths).all()


def test_tells_what_it_does(small: Simulated) -> None:
    events: list[Event] = []
    settings = replace(SETTINGS, perturbation=PerturbationSettings(patience=0), agreement=4)
    result = run(small, settings, 3, emit=events.append)
    assert [e.origin for e in events if isinstance(e, StartTree)] == [
        "random 1",
        "random 2",
        "random 3",
    ]
    assert any(isinstance(e, TreesCulled) for e in events)
    assert [e for e in events if isinstance(e, StartsEnded)] == [StartsEnded(3, 3, 3)]
    assert isinstance(events[-1], SearchFinished)
    assert events[-1].lnl == result.lnl


@pytest.mark.parametrize(
    ("at_once", "agreement", "searched"), [(1, 2, 2), (2, 1, 2), (1, 3, 3), (None, 2, 4)]
)
def test_starts_that_agree_end_the_starts(
    small: Simulated, at_once: int | None, agreement: int, searched: int
) -> None:
    """All starts of these data lead to one tree."""
    events: list[Event] = []
    settings = replace(QUICK, starts_at_once=at_once, agreement=agreement)
    run(small, settings, 4, emit=events.append)
    assert sum(isinstance(e, StartTree) for e in events) == searched
    (ended,) = (e for e in events if isinstance(e, StartsEnded))
    assert ended == StartsEnded(searched, searched, searched)
    left_out = [e.text for e in events if isinstance(e, Notice)]
    same = f"{searched} starting trees led to the same tree"
    told = [f"{same}; {4 - searched} skipped"] if searched < 4 else []
    assert left_out == told


@pytest.mark.parametrize(("enough", "more_than_one"), [(0.1, True), (1e6, False)])
def test_a_phase_ends_with_a_round_that_gains_too_little(
    small: Simulated, enough: float, more_than_one: bool
) -> None:
    phase = PhaseSettings(2, np.inf, min_round_gain=enough)
    settings = SearchSettings(phases=(phase,), perturbation=PerturbationSettings(patience=0))
    result = run(small, settings, 1)
    assert result.moves > 0
    assert (result.rounds > 1) == more_than_one


def test_nni_mode_climbs_too(small: Simulated) -> None:
    settings = replace(SETTINGS, perturbation=PerturbationSettings(patience=0)).nni_only()
    result = run(small, settings, 1)
    assert result.moves > 0
    assert all(isinstance(lnl, float) for lnl in [result.lnl])


ALWAYS = CheckpointSettings(first=0.0, growth=0.0, share=np.inf)


class Killed(Exception):
    """The power goes."""


@pytest.mark.parametrize("after", [1, 4, 9])
def test_resumes_with_the_same_bits(
    small: Simulated, found: SearchOutcome, tmp_path: Path, after: int
) -> None:
    path = tmp_path / "run.ckp"
    written = 0

    def pull_the_plug(event: Event) -> None:
        nonlocal written
        written += isinstance(event, CheckpointWritten)
        if written == after:
            raise Killed

    with pytest.raises(Killed):
        run(small, emit=pull_the_plug, checkpoint=Checkpoint(path, "data", ALWAYS))
    resumed = run(small, checkpoint=Checkpoint(path, "data", ALWAYS))
    assert resumed.lnl == found.lnl
    assert (resumed.tree.twin == found.tree.twin).all()
    assert (resumed.tree.lengths == found.tree.lengths).all()
    assert (resumed.rounds, resumed.insertions) == (found.rounds, found.insertions)


@pytest.mark.parametrize("linkage", list(Linkage))
def test_parts_resume_with_the_same_bits(
    make_parts: Callable[..., Simulated], tmp_path: Path, linkage: Linkage
) -> None:
    case = make_parts(6, (90, 60), 3, linkage)
    model = case.model.with_parts([parse_model("K80+FE+G2", case.patterns.alphabet)] * 2)
    first = random_topology(6, np.random.default_rng(8))
    first.lengths = model.spread(first.lengths)
    quick = replace(SETTINGS, perturbation=PerturbationSettings(copies=1, patience=1))
    written = 0

    def pull_the_plug(event: Event) -> None:
        nonlocal written
        written += isinstance(event, CheckpointWritten)
        if written == 3:
            raise Killed

    def go(**more: object) -> SearchOutcome:
        start = StartingTree(first.copy(), "random 1")
        rng = np.random.default_rng(5)
        return search(case.likelihood, [start], model, quick, rng, **more)  # type: ignore[arg-type]

    whole = go()
    with pytest.raises(Killed):
        go(emit=pull_the_plug, checkpoint=Checkpoint(tmp_path / "run", "data", ALWAYS))
    resumed = go(checkpoint=Checkpoint(tmp_path / "run", "data", ALWAYS))
    assert resumed.lnl == whole.lnl
    assert (resumed.tree.twin == whole.tree.twin).all()
    assert (resumed.tree.lengths == whole.tree.lengths).all()
    assert (resumed.model.scalers == whole.model.scalers).all()


def test_goes_on_with_the_same_bits_from_what_is_kept_at_any_time(
    small: Simulated, tmp_path: Path
) -> None:
    """What a signal's thread saves while a step is under way is the state before that step."""
    saved = iter(range(10**6))

    class Watching(Checkpoint):
        def step(self, *args: object, **more: object) -> None:
            if (kept := self.kept) is not None:
                Checkpoint(tmp_path / f"{next(saved)}", "data", ALWAYS).save(kept)
            super().step(*args, **more)  # type: ignore[arg-type]

    quick = replace(SETTINGS, perturbation=PerturbationSettings(patience=0))
    never = CheckpointSettings(first=np.inf)
    whole = run(small, quick, 1, checkpoint=Watching(tmp_path / "own", "data", never))
    steps = next(saved)
    assert steps > 8
    for step in (steps // 2, steps - 1):
        state = Checkpoint(tmp_path / f"{step}", "data", ALWAYS)
        resumed = run(small, quick, 1, checkpoint=state)
        assert resumed.lnl == whole.lnl
        assert (resumed.tree.twin == whole.tree.twin).all()
        assert (resumed.tree.lengths == whole.tree.lengths).all()


def test_goes_on_with_the_same_bits_from_every_step(
    small: Simulated, found: SearchOutcome, tmp_path: Path
) -> None:
    """The last time that each step comes."""

    class Watching(Checkpoint):
        def step(self, state: SearchState, *args: object, **more: object) -> None:
            Checkpoint(tmp_path / state.step, "data", ALWAYS).save(state)
            super().step(state, *args, **more)  # type: ignore[arg-type]

    never = CheckpointSettings(first=np.inf)
    run(small, checkpoint=Watching(tmp_path / "own", "data", never))
    steps = {path.name for path in tmp_path.iterdir()} - {"own"}
    assert {"phase 2", "repair", "accept", "last look", "finish", "ended"} < steps
    for name in steps:
        resumed = run(small, checkpoint=Checkpoint(tmp_path / name, "data", never))
        assert resumed.lnl == found.lnl
        assert (resumed.tree.twin == found.tree.twin).all()
        assert (resumed.tree.lengths == found.tree.lengths).all()


def test_starts_in_turn_go_on_with_the_same_bits_from_every_step(
    make_case: Callable[..., Simulated], tmp_path: Path
) -> None:
    """The last time that a step of five comes in each turn; two turns that end alike are enough."""
    events: list[Event] = []
    tiny = make_case(5, 60, 2)
    turns = replace(SETTINGS, starts_in_turn=1)

    class Watching(Checkpoint):
        def step(self, state: SearchState, *args: object, **more: object) -> None:
            name = f"{len(state.waiting)} {state.step}"
            Checkpoint(tmp_path / name, "data", ALWAYS).save(state)
            super().step(state, *args, **more)  # type: ignore[arg-type]

    never = CheckpointSettings(first=np.inf)
    own = Watching(tmp_path / "own", "data", never)
    whole = run(tiny, turns, 3, emit=events.append, checkpoint=own)
    told = [one for one in events if isinstance(one, Notice) and one.text.startswith("turn")]
    ended = [one for one in events if isinstance(one, StartsEnded)]
    assert len(ended) == len(told) + 1
    assert 2 <= len(ended) <= 3
    assert robinson_foulds(whole.tree, tiny.tree) == 0
    names = {path.name for path in tmp_path.iterdir()} - {"own"}
    at = "phase 1", "end starts", "accept", "next turn", "finish"
    assert {"2 phase 2", "2 accept", "1 phase 1", "1 next turn"} < names
    for name in (name for name in names if name[2:] in at):
        resumed = run(tiny, turns, 3, checkpoint=Checkpoint(tmp_path / name, "data", never))
        assert resumed.lnl == whole.lnl
        assert (resumed.tree.twin == whole.tree.twin).all()
        assert (resumed.tree.lengths == whole.tree.lengths).all()


def test_a_constraint_holds_to_the_end(small: Simulated) -> None:
    """A split that the data speak against, satisfied by the start."""
    (start,) = starts(small, 1)
    behind = tips_behind_edges(start.tree)[start.tree.inner_edges]
    truth = tips_behind_edges(small.tree)
    wrong = next(side for side in behind if not (truth == side).all(axis=1).any())
    constraint = Constraint(wrong[None], ~wrong[None])
    result = run(small, SETTINGS, 1, constraint=constraint)
    assert constraint.satisfied(result.tree)
    assert result.moves > 0


def test_a_start_against_the_constraint_is_refused(small: Simulated) -> None:
    (start,) = starts(small, 1)
    behind = tips_behind_edges(start.tree)
    crossing = np.zeros(small.tree.n_tips, dtype=bool)
    crossing[[0, 5]] = True
    assert not (behind == crossing).all(axis=1).any()
    with pytest.raises(InputError, match="random 1"):
        run(small, SETTINGS, 1, constraint=Constraint(crossing[None], ~crossing[None]))


@pytest.mark.parametrize("linkage", list(Linkage))
def test_an_alignment_in_parts_is_searched(
    linkage: Linkage, make_parts: Callable[..., Simulated], textbook_lnls: Callable[..., np.ndarray]
) -> None:
    """The tree that made the data, and the lnL of what is handed back."""
    data = make_parts(6, (200, 120), 4, linkage)
    models = tuple(parse_model("K80+FE+G2", data.patterns.alphabet) for _ in range(2))
    model = replace(data.model, models=models, scalers=np.ones(2))
    (start,) = starts(data, 1)
    start.tree.lengths = np.full_like(data.tree.lengths, 0.1)
    rng = np.random.default_rng(5)
    result = search(data.likelihood, [start], model, QUICK, rng)
    assert robinson_foulds(result.tree, data.tree) == 0
    assert result.tree.lengths.shape == data.tree.lengths.shape
    assert result.model.linkage == linkage
    assert (np.ptp(result.model.scalers) > 0.01) == (linkage == Linkage.SCALED)
    lnls = textbook_lnls(data.patterns, result.tree, result.model.arrays())
    assert result.lnl == pytest.approx(lnls.sum(), rel=1e-11)


def test_an_alignment_cut_in_two_is_searched_as_the_whole(
    make_case: Callable[..., Simulated],
) -> None:
    """One model without parameters for both parts, and branches of the same lengths."""
    data = make_case(6, 80, 6, "K80{3}+FE+G2m{0.6}")
    cut = data.patterns.n_patterns // 3
    patterns = replace(data.patterns, ends=(cut, data.patterns.n_patterns))
    halves = TreeLikelihood(VerifiedEngine(ReferenceEngine(patterns, 2, BOUNDS), 6), BOUNDS)
    both = PartitionModel(data.model.models * 2, ("one", "two"), scalers=np.ones(2))
    whole, parts = (
        search(likelihood, starts(data, 1), model, QUICK, np.random.default_rng(5))
        for likelihood, model in ((data.likelihood, data.model), (halves, both))
    )
    assert parts.lnl == pytest.approx(whole.lnl, abs=1e-3)
    assert robinson_foulds(parts.tree, whole.tree) == 0
    lengths = [np.sort(found.tree.lengths) for found in (parts, whole)]  # numbered as moves went
    np.testing.assert_allclose(*lengths, atol=1e-3)


@pytest.mark.parametrize("linkage", [Linkage.SCALED, Linkage.UNLINKED])
def test_a_search_of_parts_resumes_with_the_same_bits(
    linkage: Linkage, make_parts: Callable[..., Simulated], tmp_path: Path
) -> None:
    data = make_parts(5, (60, 40), 2, linkage)
    models = tuple(parse_model("JC+G2", data.patterns.alphabet) for _ in range(2))
    model = replace(data.model, models=models, scalers=np.ones(2))
    (start,) = starts(data, 1)
    start.tree.lengths = np.full_like(data.tree.lengths, 0.1)
    left = iter([False] * 4)

    def pull_the_plug(event: Event) -> None:
        if isinstance(event, CheckpointWritten) and next(left, True):
            raise Killed

    def go(emit: Emit) -> SearchOutcome:
        checkpoint, rng = Checkpoint(tmp_path / "x", "data", ALWAYS), np.random.default_rng(5)
        return search(data.likelihood, [start], model, QUICK, rng, emit, checkpoint)

    with pytest.raises(Killed):
        go(pull_the_plug)
    resumed = go(ignore)
    (tmp_path / "x").unlink()
    whole = go(ignore)
    assert resumed.lnl == whole.lnl
    np.testing.assert_array_equal(resumed.tree.lengths, whole.tree.lengths)
    np.testing.assert_array_equal(resumed.model.scalers, whole.model.scalers)
    for mine, theirs in zip(resumed.model.models, whole.model.models, strict=True):
        assert mine.values() == theirs.values()
