"""The line of status, from the events that a search sends."""

from __future__ import annotations

import math

import pytest

from mltree.report.progress import Status
from mltree.system.events import (
    Busy,
    CandidatesScored,
    DeviceChosen,
    Event,
    ModelChosen,
    ModelOptimised,
    PhaseStarted,
    ReplicateDone,
    RoundDone,
    SearchFinished,
    SearchPlanned,
    SearchResumed,
    StartTree,
    TreePerturbed,
    TreesCulled,
)

PLAN = SearchPlanned(starts=6, phases=2, patience=2)
PHASES = PhaseStarted(1, 25, 50.0, 6), PhaseStarted(2, 25, 100.0, 3)


def round_done(number: int, lnl: float, radius: int = 25) -> RoundDone:
    return RoundDone(number, radius, 10, 1, lnl)


STORY: list[tuple[Event, str]] = [
    (DeviceChosen("x"), "starting trees"),
    (Busy("building kernels, once for such data"), "building kernels, once for such data"),
    (PLAN, "building kernels, once for such data"),
    (StartTree("parsimony 1", -30.0), "model · lnL -30.000"),
    (ModelOptimised("JC", -20.0), "model and branch lengths · lnL -20.000 (+10.000)"),
    (PHASES[0], "phase 1 of 2, round 1, 6 trees · lnL -20.000 (+10.000)"),
    (round_done(1, -18.5), "phase 1 of 2, round 2, 6 trees · lnL -18.500 (+1.500)"),
    (round_done(2, -18.5), "phase 1 of 2, round 3, 6 trees · lnL -18.500"),
    (TreesCulled(3, 3), "smoothing 3 trees · lnL -18.500"),
    (PHASES[1], "phase 2 of 2, round 3, 3 trees · lnL -18.500"),
    (round_done(3, -18.0), "phase 2 of 2, round 4, 3 trees · lnL -18.000 (+0.500)"),
    (round_done(4, -18.0, radius=8), "perturbation 1, round 5 · lnL -18.000"),
    (TreePerturbed(1, 8, 1, -17.0), "perturbation 2, round 5 · lnL -17.000 (+1.000)"),
    (PhaseStarted(2, 25, 100.0, 1), "phase 2 of 2, round 5, 1 tree · lnL -17.000 (+1.000)"),
    (SearchFinished(-17.0, 4, 10, 1), "final score · lnL -17.000"),
    (ReplicateDone(2, -9.0, 1, 4), "bootstrap, replicate 1 of 4 · lnL -17.000"),
]


def test_it_tells_the_step_that_is_under_way() -> None:
    status = Status()
    for number, (event, expected) in enumerate(STORY):
        status.update(event, 10.0 * number)
        step, _, rest = status.text(10.0 * number).partition(" · 00:")
        assert (step, rest[:3]) == (expected, f"{number // 6:02d}:"), event


@pytest.mark.parametrize(("parts", "expected"), [(1, ""), (4, " of 4 parts")])
def test_candidates_of_a_model_choice_are_counted(parts: int, expected: str) -> None:
    status = Status()
    status.update(CandidatesScored(88, parts, "TN93+G4"), 1.0)
    status.update(ModelChosen("a", "TN93+G4", "BIC", 90.0, -40.0), 2.0)
    told = f"model choice, 88 fitted{expected}, best TN93+G4 · 00:00:02"
    assert status.text(2.0) == told


def test_what_is_left_of_a_bootstrap_goes_by_its_pace() -> None:
    status = Status()
    status.update(ReplicateDone(1, -9.0, 1, 10), 10.0)
    assert "left" not in status.text(10.0)
    status.update(ReplicateDone(2, -9.0, 3, 10), 14.0)
    assert "bootstrap, replicate 3 of 10" in status.text(14.0)
    assert "about 00:00:13 left" in status.text(15.0)
    status.update(ReplicateDone(3, -9.0, 4, 10, may_converge=True), 16.0)
    assert "bootstrap, replicate 4 (at most 10)" in status.text(16.0)
    assert "at most 00:00:12 left" in status.text(16.0)


def test_what_is_left_at_least_is_batches_without_a_better_tree() -> None:
    status = Status()
    for event, _ in STORY[:-3]:
        status.update(event, 100.0)
    status.update(TreePerturbed(2, 8, 0, -17.0), 120.0)
    assert status.text(120.0).endswith("00:02:00 · at least 00:00:10 left")
    assert status.text(125.0).endswith("at least 00:00:05 left")
    assert status.text(140.0).endswith("00:02:20"), "it takes longer: nothing is promised"
    assert status.text(120.0, "CPU 187%").endswith("left · CPU 187%")


def test_a_search_that_goes_on_counts_its_rounds_on() -> None:
    status = Status()
    for event in (SearchResumed("x", 7, -5.0), PHASES[1]):
        status.update(event, 0.0)
    assert status.text(0.0).startswith("phase 2, round 8, 3 trees · lnL -5.000")


@pytest.mark.parametrize("lnl", [-math.inf, -1e300])
def test_odd_numbers_are_shown(lnl: float) -> None:
    status = Status()
    status.update(StartTree("user 1", lnl), 0.0)
    assert "lnL -" in status.text(0.0)
