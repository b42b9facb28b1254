"""Scans that are split into parts keep every step and every answer."""

from __future__ import annotations

import numpy as np
import pytest

from mltree.likelihood.scan_tasks import ScanTasks, split
from mltree.search.neighbourhood import Neighbourhood
from mltree.tree.random_trees import random_topology


def scan_of(*seeds: int) -> ScanTasks:
    trees = [random_topology(9, np.random.default_rng(seed)) for seed in seeds]
    found = Neighbourhood(trees)
    return found.scan(found.extend(4))


@pytest.mark.parametrize("room", [1, 7, 20, 1000])
def test_parts_are_the_whole(room: int) -> None:
    whole = scan_of(1, 2)
    parts = split(whole, room)
    np.testing.assert_array_equal(
        np.sort(np.concatenate([outputs for _, outputs in parts])), np.arange(whole.outputs)
    )
    for part, outputs in parts:
        assert part.outputs == outputs.size
        assert part.outputs <= room or part.prune.size == 1
        scored = part.output[part.output >= 0]
        np.testing.assert_array_equal(np.sort(scored), np.arange(part.outputs))
        assert part.first_step[0] == 0
        assert part.first_step[-1] == part.near.size == part.output.size
    for name in ("tree", "prune", "root", "join_length", "near", "far", "sibling", "level_in"):
        joined = np.concatenate([getattr(part, name) for part, _ in parts])
        np.testing.assert_array_equal(joined, getattr(whole, name))
