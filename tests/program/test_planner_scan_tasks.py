"""Scans that are split into parts keep every step and every answer."""

from __future__ import annotations

import numpy as np
import pytest

from mltree.program.cases import Cases
from mltree.program.planner import ScanTasks, split
from mltree.tree.topology import random_topology
from mltree.treesearch.spr import Neighbourhood


def scan_of(*seeds: int) -> ScanTasks:
    trees = [random_topology(9, np.random.default_rng(seed)) for seed in seeds]
    found = Neighbourhood(trees)
    return found.scan(found.extend(4))


def on_parts(*first: int) -> Cases:
    """Trees on one part of the data each, the first of which these are."""
    alike = Cases.alike(len(first))
    records = alike.records.copy()
    records["first_part"] = first
    return Cases(records)


@pytest.mark.parametrize("first", [(0, 0), (0, 1)])
@pytest.mark.parametrize("room", [1, 7, 20, 1000])
def test_parts_have_every_output_once_and_never_too_many(room: int, first: tuple[int, int]) -> None:
    whole = scan_of(1, 2)
    every = np.arange(whole.outputs)
    parts = [(part, every[at]) for part, at in split(whole, room, room, on_parts(*first))]
    np.testing.assert_array_equal(np.sort(np.concatenate([outputs for _, outputs in parts])), every)
    for part, outputs in parts:
        assert 0 < part.outputs == outputs.size <= room
        scored = part.output[part.output >= 0]
        np.testing.assert_array_equal(np.sort(scored), np.arange(part.outputs))
        assert part.first_step[0] == 0
        assert part.first_step[-1] == part.level_in.size
        assert (
            part.far.shape == part.level_out.shape == part.output.shape == (2, part.level_in.size)
        )
        np.testing.assert_array_equal(part.far_of_output, whole.far_of_output[outputs])
        np.testing.assert_array_equal(
            part.prune[part.task_of_output], whole.prune[whole.task_of_output[outputs]]
        )


def test_parts_are_the_whole() -> None:
    whole = scan_of(1, 2)
    parts = split(whole, most_outputs(whole), most_outputs(whole), Cases.alike(2))
    assert len(parts) > 1
    for name in ("tree", "prune", "root", "join_length", "far", "level_in", "level_out"):
        joined = np.concatenate([getattr(part, name) for part, _ in parts], axis=-1)
        np.testing.assert_array_equal(joined, getattr(whole, name))


def test_a_task_is_walked_again_from_its_start() -> None:
    whole = scan_of(2)
    room = most_outputs(whole) // 2
    cut = [
        part
        for part, _ in split(whole, room, room, Cases.alike(2))
        if part.prune.tolist() == [whole.prune[0]]
    ]
    assert len(cut) > 1
    steps = slice(*whole.first_step[:2])
    for part in cut:
        assert (part.output[:, -1] >= 0).any()
        for name in ("far", "level_in", "level_out"):
            walked = getattr(part, name)
            there = getattr(whole, name)[..., steps]
            np.testing.assert_array_equal(walked, there[..., : walked.shape[-1]])


def test_the_largest_task_is_walked_once_where_it_fits() -> None:
    whole = scan_of(1, 2)
    largest = most_outputs(whole)
    for limit, once in ((largest, True), (largest - 1, False)):
        parts = [part for part, _ in split(whole, whole.outputs, 1, Cases.alike(2), limit)]
        assert max(part.outputs for part in parts) == limit
        assert (sum(len(part.prune) for part in parts) == len(whole.prune)) == once


def test_trees_on_different_parts_of_the_data_share_every_part_of_the_scan() -> None:
    """And walk as before."""
    whole = scan_of(1, 2, 3, 4, 5)
    cases = on_parts(0, 1, 1, 1, 1)
    every = np.bincount(whole.tree_of_output)
    most, alike = whole.outputs // 3, every[1:].sum() // 3
    parts = split(whole, most, alike, cases)
    assert 3 <= len(parts) <= 5
    for part, outputs in parts:
        mine = np.count_nonzero(part.tree_of_output == 0)
        assert part.outputs - mine <= alike
        assert abs(mine / every[0] - part.outputs / whole.outputs) < 0.2
        of_task = np.repeat(np.arange(len(part.prune)), np.diff(part.first_step))
        for task in range(len(part.prune)):
            here = np.flatnonzero(of_task == task)
            same = np.flatnonzero(
                (whole.prune == part.prune[task]) & (whole.root == part.root[task])
            )
            there = np.arange(*whole.first_step[same[0] : same[0] + 2])
            for name in ("far", "level_in", "level_out"):
                np.testing.assert_array_equal(
                    getattr(part, name)[..., here], getattr(whole, name)[..., there]
                )
            found = part.output[:, here]
            np.testing.assert_array_equal(
                np.where(found < 0, -1, outputs[found]), whole.output[:, there]
            )


def most_outputs(scan: ScanTasks) -> int:
    """Outputs of the task that has most."""
    return int(np.bincount(scan.task_of_output).max())
