"""Scans joined over trees and split into parts keep every step and every answer."""

from __future__ import annotations

import numpy as np
import pytest

from mltree.likelihood.scan_tasks import ScanTasks, concatenate, split
from mltree.search.neighbourhood import Neighbourhood
from mltree.tree.random_trees import random_topology


def scan_of(seed: int, depth: int = 3) -> ScanTasks:
    found = Neighbourhood(random_topology(9, np.random.default_rng(seed)))
    return found.scan(found.extend(depth))


def test_concatenation_counts_on() -> None:
    scans = [scan_of(seed) for seed in range(3)]
    whole = concatenate(scans)
    assert whole.outputs == sum(scan.outputs for scan in scans)
    np.testing.assert_array_equal(np.bincount(whole.tree), [scan.prune.size for scan in scans])
    scored = whole.output[whole.output >= 0]
    np.testing.assert_array_equal(np.sort(scored), np.arange(whole.outputs))
    assert whole.first_step[-1] == whole.near.size
    assert whole.levels == max(scan.levels for scan in scans)
    second = slice(*whole.first_step[[scans[0].prune.size, scans[0].prune.size + 1]])
    own = slice(*scans[1].first_step[:2])
    np.testing.assert_array_equal(whole.near[second], scans[1].near[own])
    np.testing.assert_array_equal(whole.output[second], scans[1].output[own] + scans[0].outputs)


@pytest.mark.parametrize("room", [1, 7, 20, 1000])
def test_parts_are_the_whole(room: int) -> None:
    whole = concatenate([scan_of(1), scan_of(2, 5)])
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
