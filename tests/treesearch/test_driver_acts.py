"""What a search does, in which order, and which starts go on."""

from __future__ import annotations

import numpy as np
import pytest

from mltree.fit.settings import PRESETS, PerturbationSettings, PhaseSettings, SearchSettings, preset
from mltree.tree.random_trees import random_topology
from mltree.tree.topology import Tree
from mltree.treesearch.checkpoint import Lineage
from mltree.treesearch.driver import (
    Cull,
    Finish,
    OptimiseModel,
    Perturb,
    Rearrange,
    Smooth,
    acts,
    survivors,
)


def names(settings: SearchSettings) -> str:
    return " ".join(type(act).__name__ for act in acts(settings))


@pytest.mark.parametrize(
    ("radii", "patience", "expected"),
    [
        ((3,), 0, "Rearrange Cull EndStarts"),
        ((3, 5), 0, "Rearrange Cull OptimiseModel Smooth Rearrange EndStarts"),
        ((3,), 2, "Rearrange Cull EndStarts OptimiseModel Smooth Perturb Rearrange"),
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


def test_a_tree_that_stays_is_fitted_from_its_own_lengths() -> None:
    """Smoothed under a model yet to be fitted they may have left the highest maximum."""
    fixed = SearchSettings(phases=(), perturbation=PerturbationSettings(patience=0))
    assert names(fixed) == "Score Finish"
    of_parts = acts(fixed, in_parts=True)
    assert [type(act).__name__ for act in of_parts[:2]] == ["Smooth", "OptimiseModel"]


def test_phases_come_in_their_order_and_starts_are_culled_after_the_first() -> None:
    settings = preset("default")
    every = acts(settings)
    rearranging = [act for act in every if isinstance(act, Rearrange)]
    assert [act.phase for act in rearranging] == [*settings.phases, settings.phases[-1]]
    assert [act.number for act in rearranging] == [1, 2, 2]
    smooth = Smooth(settings.rounds.smooth_epsilon)
    refit = OptimiseModel(), smooth
    assert every[-3:] == (Perturb(refit), rearranging[-1], Finish(looks_again=True))
    assert every.index(rearranging[0]) + 1 == every.index(Cull())
    assert every.index(OptimiseModel()) == 1


def test_a_fresh_start_is_smoothed_less_than_what_follows() -> None:
    settings = SearchSettings(first_smooth_epsilon=7.0)
    smooths = [act for act in acts(settings) if isinstance(act, Smooth)]
    assert smooths[0] == Smooth(7.0, opens=True)
    assert set(smooths[1:]) == {Smooth(settings.rounds.smooth_epsilon)}


@pytest.mark.parametrize("name", PRESETS)
def test_all_presets_but_the_fast_one_perturb(name: str) -> None:
    every = acts(preset(name))
    perturbs = name != "fast"
    assert any(isinstance(act, Perturb) for act in every) == perturbs
    assert every[-1] == Finish(looks_again=perturbs)


def trees(count: int) -> list[Tree]:
    rng = np.random.default_rng(3)
    return [random_topology(10, rng) for _ in range(count)]


def test_starts_that_cannot_catch_up_are_dropped() -> None:
    settings = SearchSettings(cull_factor=0.5, cull_margin=2.0, max_survivors=3)
    lnls = [-100.0, -140.0, -101.0, -200.0, -103.0, -104.0]
    lineages = [Lineage(t, lnl, str(lnl)) for t, lnl in zip(trees(6), lnls, strict=True)]
    assert [x.lnl for x in survivors(lineages, settings)] == [-100.0, -101.0, -103.0]


def test_equal_topologies_go_on_once_and_their_starts_are_counted() -> None:
    a, b = trees(2)
    lineages = [Lineage(a, -2.0, "x"), Lineage(a.copy(), -1.0, "y"), Lineage(b, -1.5, "z")]
    kept = survivors(lineages, SearchSettings())
    assert [(x.origin, x.starts) for x in kept] == [("y", 2), ("z", 1)]
