"""The work of a program is what its records say, however it was counted."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import numpy as np
import pytest

from mltree.program import builders
from mltree.program.contract import CONTROL_WORDS, RESULT, Control, Function
from mltree.program.ops.edges import Derive, Evaluate
from mltree.program.ops.newview import Newview
from mltree.program.ops.operation import Stage
from mltree.program.ops.scan import Scan, Triplets
from mltree.program.ops.sites import Sites
from mltree.program.ops.walk import Walk
from mltree.program.program import Count, Program, no_work
from mltree.tree.topology import Tree, random_topology
from mltree.treesearch.spr import Neighbourhood

TAXA = 11


@pytest.fixture
def tree() -> Tree:
    return random_topology(TAXA, np.random.default_rng(5))


Line = tuple[Function, list[int], int, int]
"""Function, operands, CLAs written, operations."""

EDGES = {Evaluate: Function.EVALUATE, Derive: Function.DERIVE}


def lines_of_runs(stage: Sites) -> Iterator[Line]:
    for kind, r in ((type(run), r) for _, run in stage.each() for r in run.records):
        if kind is Newview:
            yield Function.NEWVIEW, [r["left"], r["right"]], 1, 1
        else:
            yield EDGES[kind], [r["x"], r["y"]], 0, 1


def lines_of(stage: Stage) -> Iterator[Line]:
    """A line a record."""
    match stage:
        case Sites():
            yield from lines_of_runs(stage)
        case Scan(tasks, steps, stores):
            for t in tasks:
                yield Function.SCAN, [t["root"], t["pendant"]], 0, 0
            for r in steps:
                asked = sum(r[f"{side}_output"] >= 0 for side in ("left", "right"))
                yield Function.SCAN, [r["left"], r["right"]], asked * stores, asked
        case Triplets(records):
            for r in records:
                yield Function.TRIPLET, [r["proximal"], r["distal"], r["pendant"]], 0, 1
        case Walk(walks, steps):
            for w in walks:
                is_kept = w["slot"] >= 0
                yield Function.NEWVIEW, [] if is_kept else [w["tip"]], is_kept, 0
            for r in steps:
                operands = [r[field] for field in ("left", "right") if r[field] != RESULT]
                yield Function.NEWVIEW, operands, 0, 1


def by_hand(program: Program) -> dict[Function, list[int]]:
    """Operations, CLAs and tips, record by record."""
    found: dict[Function, list[int]] = {}
    for function, operands, written, operations in chain(*map(lines_of, program.stages)):
        inner = sum(x >= 0 for x in operands)
        counts = found.setdefault(function, [0] * len(Count))
        counts[Count.OPERATIONS] += operations
        counts[Count.CLAS] += inner + written
        counts[Count.TIPS] += len(operands) - inner
    return found


def made(name: str, tree: Tree) -> Program:
    near = Neighbourhood(tree)
    scan = near.scan(near.extend(3))
    base = 3 * (TAXA - 2)
    return {
        "traversal": lambda: builders.traversal([tree]),
        "walk": lambda: builders.walk([tree, tree], TAXA),
        "walk in pieces": lambda: builders.walk([tree, tree], 4),
        "derivatives": lambda: builders.derivatives([tree, tree]),
        "scores": lambda: builders.scores([tree], scan)[0],
        "near vectors": lambda: builders.near_vectors([tree], scan, base)[0],
        "triplets": lambda: builders.triplets([tree], scan, base, 4)[0],
    }[name]()


@pytest.mark.parametrize(
    "name",
    ["traversal", "walk", "walk in pieces", "derivatives", "scores", "near vectors", "triplets"],
)
def test_counts_are_the_records(name: str, tree: Tree) -> None:
    program = made(name, tree)
    expected = by_hand(program)
    assert expected
    once = program.work.once
    for function, counts in expected.items():
        assert once[function].tolist() == counts


def test_a_program_is_counted_once(tree: Tree) -> None:
    program = builders.traversal([tree])
    assert program.work is program.work


def test_settled_triplets_are_not_counted_again(tree: Tree) -> None:
    program = made("triplets", tree)
    work = program.work
    control = np.zeros((program.groups, CONTROL_WORDS))
    control[:, Control.PASSES] = 1
    assert not work.further_passes(control).any()
    control[: program.groups // 2, Control.PASSES] = 3
    more = work.further_passes(control)
    passes = 2 * (program.groups // 2)
    assert abs(int(more[Function.TRIPLET, Count.OPERATIONS]) - passes) <= 1
    np.testing.assert_array_equal(more[Function.PMATRICES], 2 * work.once[Function.PMATRICES])


def test_the_most_steps_have_every_repeat(tree: Tree) -> None:
    assert builders.traversal([tree]).most_steps == TAXA - 2 + 1
    once = builders.derivatives([tree]).site_steps
    assert builders.smoothing([tree], 7).most_steps == 8 * once


def test_nothing_is_nothing() -> None:
    assert not no_work().any()
