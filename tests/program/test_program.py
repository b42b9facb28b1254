"""Programs as data: what they say of themselves, and the words that a worker reads."""

from __future__ import annotations

import numpy as np
import pytest

from mltree.program import builders, contract, planner
from mltree.program.cases import Cases
from mltree.program.ops.edges import EDGE, Evaluate
from mltree.program.ops.newview import PMATRIX, Newview, PMatrices
from mltree.program.ops.operation import CASE, STAGE
from mltree.program.ops.optimise import Repeat
from mltree.program.ops.reduce import REDUCTION, Reduce
from mltree.program.ops.scan import SCAN_STEP, SCAN_TASK, Scan
from mltree.program.ops.sites import RUN, STREAM, Sites
from mltree.program.program import Program
from mltree.tree.topology import Forest, Tree, random_topology, tree_from_edges
from mltree.treesearch.spr import Neighbourhood

QUARTET = tree_from_edges([(0, 4), (1, 4), (2, 5), (3, 5), (4, 5)], 0.1, 4)


@pytest.fixture
def tree() -> Tree:
    return random_topology(9, np.random.default_rng(2))


def test_listing() -> None:
    assert builders.traversal([QUARTET]).listing().splitlines() == [
        "000 PMATRICES",
        *(f"      P[{p}] = exp(Q r t[{p}]) stride 0 case 0" for p in range(5)),
        "001 SITES",
        "      NEWVIEW cla[1] = P[2] tip[2] * P[3] tip[3]",
        "      NEWVIEW cla[0] = P[1] tip[1] * P[4] cla[1]",
        "      EVALUATE cell[0] at (cla[0], tip[0]) P[0] case 0",
        "002 REDUCE",
        "      sum[0...] = 1 cells from cell[0] on, 1 parts from 0 on",
    ]


def test_a_line_of_the_listing() -> None:
    program = builders.traversal([QUARTET])
    assert program.stages[1].title == "SITES"
    assert program.stages[1].lines()[1] == "NEWVIEW cla[0] = P[1] tip[1] * P[4] cla[1]"
    assert program.stages[0].lines()[4] == "P[4] = exp(Q r t[4]) stride 0 case 0"


def test_words_are_the_stage_table_and_then_the_records(tree: Tree) -> None:
    program = builders.traversal([tree])
    words = program.words
    assert words.dtype == np.int32
    stages = words[: 3 * 4].view(STAGE)
    np.testing.assert_array_equal(stages["op"], [PMatrices.number, Sites.number, Reduce.number])
    first, count = int(stages["first"][0]), int(stages["count"][0])
    assert count == tree.n_edges
    np.testing.assert_array_equal(
        words[first : first + 5 * count].view(PMATRIX)["length"],
        np.arange(tree.n_edges),
    )
    np.testing.assert_array_equal(words[3 * 4 : 4 * 4].view(CASE), program.cases)
    (stream,) = words[stages["first"][1] :][:5].view(STREAM)
    count = int(stream["runs"])
    runs = words[stream["first_run"] :][: 3 * count].view(RUN)
    assert list(runs["kind"]) == [Newview.number] * (count - 1) + [Evaluate.number]
    records = sum(runs["count"][:-1])
    assert records == tree.n_tips - 2
    last = int(runs["first"][-1])
    width = len(EDGE.names or ())
    assert words[last : last + width].view(EDGE)["cell"] == 0


def test_scan_words_point_at_their_steps(tree: Tree) -> None:
    found = Neighbourhood(tree)
    scan = found.scan(found.extend(3))
    cells = np.arange(scan.outputs, dtype=np.int32)
    tables = planner.scan_records(Forest([tree]), scan, Cases.alike(1), cells)
    program = Program((tables.pmatrices, Scan(tables.tasks, tables.steps)), found.size)
    stages = program.words[: 2 * 4].view(STAGE)
    first, count = int(stages["first"][1]), int(stages["count"][1])
    width = len(SCAN_TASK.names or ())
    tasks = program.words[first : first + width * count].view(SCAN_TASK)
    for sent, task in zip(tasks, tables.tasks, strict=True):
        step = program.words[sent["first_step"] :][: 12 * sent["steps"]].view(SCAN_STEP)
        own = slice(task["first_step"], task["first_step"] + task["steps"])
        np.testing.assert_array_equal(step, tables.steps[own])
    assert program.stack_levels == contract.ROOT_LEVEL + scan.levels


def test_sizes(tree: Tree) -> None:
    program = builders.traversal([tree, tree])
    assert program.slots == tree.n_tips - 2
    assert builders.update([tree, tree]).slots == 2 * planner.slots_of(tree)
    assert program.cells == 2
    assert program.stack_levels == 1
    assert program.groups == 0
    assert program.sums == 2
    assert Program((Reduce(np.array([(0, 0, 1, 0, 1)], REDUCTION)), Repeat(0, 1, 1)), 1).slots == 0


def test_a_part_is_made_once(tree: Tree) -> None:
    program = builders.smoothing([tree, tree], 10)
    part = program.part(0, 3)
    assert part is program.part(0, 3)
    assert part is not program.part(0, 2)
    assert (part.sums, part.cells) == (program.sums, program.cells)
    assert part.cases is program.cases
    assert program.part(3, 4).first_stage == 3
    assert program.part(3, 4).stages[0].title == "OPTIMISE"


def test_every_cla_is_made_once_and_after_what_it_needs(tree: Tree) -> None:
    made: set[int] = set()
    (_, stage) = builders.update([tree, tree]).stages
    assert isinstance(stage, Sites)
    for _, run in stage.each():
        assert isinstance(run, Newview)
        records = run.records
        for record in records:
            assert all(x < 0 or int(x) in made for x in (record["left"], record["right"]))
        made |= set(records["dst"].tolist())
    assert made == set(range(2 * planner.slots_of(tree)))


def test_a_traversal_makes_the_clas_that_face_one_edge(tree: Tree) -> None:
    records = planner.newviews_towards([tree], 4, Cases.alike(1)).records
    halves = np.sort(records["dst"] + 3 * tree.n_tips)
    np.testing.assert_array_equal(halves, np.sort(tree.postorder(4)))


def test_operands() -> None:
    halves = np.array([0, 6, 12, 17], np.int32)
    np.testing.assert_array_equal(planner.operands(QUARTET, halves), [~0, ~2, 0, 5])
    forest = Forest([QUARTET] * 3)
    table = planner.operand_table(forest, Cases.alike(3))
    third = table[forest.first_half[2] + halves]
    np.testing.assert_array_equal(third, [~0, ~2, 12, 17])


def test_a_step_has_both_branches_of_a_node(tree: Tree) -> None:
    """A record is a step of the scan, in slots and cells."""
    found = Neighbourhood(tree)
    scan = found.scan(found.extend(4))
    cells = np.arange(scan.outputs, dtype=np.int32)
    tables = planner.scan_records(Forest([tree]), scan, Cases.alike(1), cells)
    longest_first = np.argsort(-np.diff(scan.first_step), kind="stable")
    for task, record in zip(longest_first, tables.tasks, strict=True):
        own = slice(scan.first_step[task], scan.first_step[task + 1])
        assert record["pendant"] == planner.operands(tree, tree.twin[scan.prune[task]])
        steps = tables.steps[record["first_step"] :][: record["steps"]]
        np.testing.assert_array_equal(steps["level_in"], contract.ROOT_LEVEL + scan.level_in[own])
        for side, name in enumerate(("left", "right")):
            level, output = scan.level_out[side, own], scan.output[side, own]
            far = planner.operands(tree, scan.far[side, own])
            np.testing.assert_array_equal(steps[name], far)
            np.testing.assert_array_equal(
                steps[f"{name}_level"],
                np.where(level < 0, contract.NO_CELL, contract.ROOT_LEVEL + level),
            )
            np.testing.assert_array_equal(steps[f"{name}_output"], output)
            assert ((output >= 0) | (level >= 0) | (side == 1)).all()
