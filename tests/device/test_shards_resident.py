"""Which programs must run again before a piece's CLAs are back."""

from __future__ import annotations

import numpy as np
import pytest

from mltree.device.shards import Resident
from mltree.program import builders, planner
from mltree.system.errors import WorkerFault
from mltree.tree.topology import random_topology
from mltree.treesearch.spr import Neighbourhood

TREE = random_topology(7, np.random.default_rng(3))

SLOTS = planner.slots_of(TREE)


@pytest.fixture
def resident() -> Resident:
    return Resident()


def test_a_traversal_needs_nothing(resident: Resident) -> None:
    assert resident.needed(builders.traversal([TREE])) == []


def test_a_scan_needs_every_cla(resident: Resident) -> None:
    found = Neighbourhood(TREE)
    scan, _ = builders.scores([TREE], found.scan(found.extend(5)))
    with pytest.raises(WorkerFault, match=r"reads cla\[\d+\], which nothing has written"):
        resident.needed(scan)
    resident.record(builders.update([TREE]), TREE.lengths)
    (writer,) = resident.needed(scan)
    np.testing.assert_array_equal(writer.writes, np.arange(SLOTS))
    np.testing.assert_array_equal(writer.lengths, TREE.lengths)


def test_only_what_writes_runs_again_on_the_last_lengths(resident: Resident) -> None:
    last = TREE.lengths * 2
    resident.record(builders.smoothing([TREE], 10), last)
    found = Neighbourhood(TREE)
    scan, _ = builders.scores([TREE], found.scan(found.extend(2)))
    (writer,) = resident.needed(scan)
    assert writer.program.listing().splitlines()[0] == "000 PMATRICES"
    assert not {"EVALUATE", "DERIVE", "REDUCE", "OPTIMISE", "REPEAT"} & set(
        writer.program.listing().split()
    )
    np.testing.assert_array_equal(writer.lengths, last)


def test_near_vectors_need_the_clas_they_were_made_from(resident: Resident) -> None:
    found = Neighbourhood(TREE)
    found.extend(3)
    scan = found.scan(np.arange(0, found.size, 3))
    walk, lengths = builders.near_vectors([TREE], scan, SLOTS)
    around, _ = builders.triplets([TREE], scan, SLOTS, 8)
    resident.record(builders.update([TREE]), TREE.lengths)
    resident.record(walk, lengths)
    first, second = resident.needed(around)
    assert first.writes.max() < SLOTS <= second.writes.min()
    assert set(second.reads) <= set(first.writes)


def test_what_is_overwritten_is_forgotten(resident: Resident) -> None:
    for factor in (1.0, 2.0, 3.0):
        resident.record(builders.update([TREE]), factor * TREE.lengths)
    found = Neighbourhood(TREE)
    scan, _ = builders.scores([TREE], found.scan(found.extend(2)))
    (writer,) = resident.needed(scan)
    np.testing.assert_array_equal(writer.lengths, 3.0 * TREE.lengths)


def test_a_program_that_runs_again_replaces_itself(resident: Resident) -> None:
    update = builders.update([TREE])
    for factor in (1.0, 2.0):
        resident.record(update, factor * TREE.lengths)
    found = Neighbourhood(TREE)
    scan, _ = builders.scores([TREE], found.scan(found.extend(2)))
    (writer,) = resident.needed(scan)
    np.testing.assert_array_equal(writer.lengths, 2.0 * TREE.lengths)
