"""The order of a search."""

from __future__ import annotations

import pytest

from mltree.search.stages import Cull, Finish, OptimiseModel, Perturb, Rearrange, Smooth, plan
from mltree.settings import PRESETS, PerturbationSettings, PhaseSettings, SearchSettings, preset


def names(settings: SearchSettings) -> str:
    return " ".join(type(stage).__name__ for stage in plan(settings))


@pytest.mark.parametrize(
    ("radii", "patience", "expected"),
    [
        ((), 0, ""),
        ((3,), 0, "Rearrange Cull"),
        ((3, 5), 0, "Rearrange Cull OptimiseModel Smooth Rearrange"),
        ((3,), 2, "Rearrange Cull OptimiseModel Smooth Perturb"),
    ],
)
def test_the_model_follows_the_trees_and_the_end_is_last(
    radii: tuple[int, ...], patience: int, expected: str
) -> None:
    settings = SearchSettings(
        phases=tuple(PhaseSettings(radius, 10.0) for radius in radii),
        perturbation=PerturbationSettings(patience=patience),
    )
    begin, end = "Smooth OptimiseModel Smooth", "Finish"
    assert names(settings).split() == f"{begin} {expected} {end}".split()


def test_phases_come_in_their_order_and_starts_are_culled_after_the_first() -> None:
    settings = preset("default")
    stages = plan(settings)
    phases = [stage.phase for stage in stages if isinstance(stage, Rearrange)]
    assert phases == list(settings.phases)
    assert stages.index(Rearrange(settings.phases[0])) + 1 == stages.index(Cull())
    assert stages.index(OptimiseModel(afresh=True)) == 1


def test_a_fresh_start_is_smoothed_less_than_what_follows() -> None:
    settings = SearchSettings(first_smooth_epsilon=7.0)
    epsilons = [stage.epsilon for stage in plan(settings) if isinstance(stage, Smooth)]
    assert epsilons[0] == 7.0
    assert set(epsilons[1:]) == {settings.rounds.smooth_epsilon}


@pytest.mark.parametrize("name", PRESETS)
def test_all_presets_but_the_fast_one_perturb(name: str) -> None:
    stages = plan(preset(name))
    assert (Perturb() in stages) == (name != "fast")
    assert stages[-1] == Finish()
