"""A program is refused where an instruction is wrong, and the refusal lists the instruction."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from verifier import Verifier

from mltree.program import builders, planner
from mltree.program.cases import Cases
from mltree.program.contract import NO_CELL, RESULT, GroupKind
from mltree.program.ops.edges import FLOW, Derive, Evaluate, EvaluateSites
from mltree.program.ops.newview import Newview, PMatrices
from mltree.program.ops.operation import Run, joined
from mltree.program.ops.optimise import Optimise, Repeat
from mltree.program.ops.reduce import REDUCTION, Reduce
from mltree.program.ops.scan import TRIPLET, Scan, Triplets
from mltree.program.ops.sites import RUN, STREAM, Sites
from mltree.program.ops.walk import Walk
from mltree.program.program import Program
from mltree.system.errors import WorkerFault
from mltree.tree.topology import Forest, Tree, random_topology
from mltree.treesearch.spr import Neighbourhood

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mltree.program.ops.operation import Records, Stage

TIPS = 7

TREE = random_topology(TIPS, np.random.default_rng(3))

SLOTS = planner.slots_of(TREE)

FOREST, LONE = Forest([TREE]), Cases.alike(1)


def check(program: Program, *, lengths: int = 200, models: int = 1, groups: int = 0) -> None:
    Verifier(TIPS, 1000).check(program, lengths=lengths, models=models, groups=groups)


def changed(records: Records, row: int, **fields: int) -> Records:
    copy = records.copy()
    for field, value in fields.items():
        copy[field][row] = value
    return copy


def pmatrices(tree: Tree = TREE) -> PMatrices:
    number = np.zeros(tree.n_edges, np.int32)
    return planner.pmatrices(number, LONE)


def one_stream(runs: Sequence[Run]) -> Sites:
    """Runs in order, on the first part."""
    tables: dict[np.dtype, list[Records]] = {}
    rows = []
    for run in runs:
        table = tables.setdefault(run.layout, [])
        rows.append((run.number, sum(map(len, table)), len(run.records)))
        table.append(run.records)
    stream = np.array([(0, 1, 0, len(rows), NO_CELL)], STREAM)
    return Sites(stream, np.array(rows, RUN), tuple(map(joined, tables.values())))


def reduced_cells(count: int) -> Reduce:
    """Sums 0 .. count - 1 of as many cells, on the first part."""
    return Reduce(np.array([(0, 0, count, 0, 1)], REDUCTION))


def every_cla() -> tuple[Stage, ...]:
    return pmatrices(), planner.sites([planner.newviews(FOREST, FOREST.inner, LONE)], LONE)


def edges(kind: type[Run], **fields: int) -> Sites:
    records = planner.branch_records(Forest([TREE]), LONE)[:3]
    records["cell"] = 2 * np.arange(3)
    return one_stream([kind(changed(records, 1, **fields))])


def scan(store_from: int | None = None) -> tuple[PMatrices, Scan, int]:
    found = Neighbourhood(TREE)
    tasks = found.scan(found.extend(5))
    outputs = np.arange(tasks.outputs, dtype=np.int32) + np.int32(store_from or 0)
    plan = planner.scan_records(Forest([TREE]), tasks, LONE, outputs)
    walk = Scan(plan.tasks, plan.steps, stores=store_from is not None)
    return plan.pmatrices, walk, tasks.outputs


def runs() -> list[Run]:
    """The levels of all newviews."""
    return [run for _, run in every_cla()[1].each()]


def test_good_programs_pass() -> None:
    check(builders.traversal([TREE]))
    lengths, walk, outputs = scan()
    check(Program((*every_cla(), lengths, walk, reduced_cells(outputs)), outputs))


def test_slots_are_remembered_and_sums_are_not() -> None:
    verifier = Verifier(TIPS, 1000)
    evaluate = Program((pmatrices(), edges(Evaluate)), 6)
    with pytest.raises(WorkerFault, match=r"reads cla\[\d+\]"):
        verifier.check(evaluate, lengths=200, models=1, groups=0)
    verifier.check(Program(every_cla(), 1), lengths=200, models=1, groups=0)
    assert verifier.written.sum() == SLOTS
    verifier.check(evaluate, lengths=200, models=1, groups=0)
    reduced = Program((reduced_cells(1),), 6)
    with pytest.raises(WorkerFault, match="sums cell 0, to which nothing was added"):
        verifier.check(reduced, lengths=200, models=1, groups=0)


def newviews(row: int, **fields: int) -> Program:
    levels = runs()
    levels[1] = Newview(changed(levels[1].records, row, **fields))
    return Program((pmatrices(), one_stream(levels)), 1)


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"left": -TIPS - 1}, "reads tip 7 of 7"),
        ({"left": 4000}, r"reads cla\[4000\], but there are 1000"),
        ({"dst": 4000}, r"writes cla\[4000\], but there are 1000"),
        ({"left_p": -1}, r"reads P\[-1\], but there are 11"),
        ({"left_p": 11}, r"reads P\[11\], but there are 11"),
        ({"left": SLOTS - 1, "dst": SLOTS - 1}, "(which nothing has written|by its own level)"),
    ],
)
def test_newviews(fields: dict[str, int], wrong: str) -> None:
    with pytest.raises(WorkerFault, match=r"stage 001 SITES, record \d+: NEWVIEW cla.*" + wrong):
        check(newviews(1, **fields))


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"length": 200}, "needs length 200 of 200"),
        ({"cell": 0}, "has other cells than the first of its run"),
        ({"cells": 9}, "has other cells than the first of its run"),
        ({"first": 9}, "has other cells than the first of its run"),
        ({"x": 1000}, "reads cla"),
    ],
)
def test_flows(fields: dict[str, int], wrong: str) -> None:
    program = builders.flows(TREE, 16, LONE, 16)
    check(program)
    matrices, sites, *rest = program.stages
    assert isinstance(sites, Sites)
    tables = tuple(
        changed(table, 1, **fields) if table.dtype == FLOW else table for table in sites.tables
    )
    with pytest.raises(WorkerFault, match=f"SITES.*FLOW.*{wrong}"):
        check(replace(program, stages=(matrices, replace(sites, tables=tables), *rest)))


def test_flows_need_what_patterns_have() -> None:
    matrices, sites, *_ = builders.flows(TREE, 16, LONE, 16).stages
    assert isinstance(sites, Sites)
    runs = [
        Evaluate(run.records) if isinstance(run, EvaluateSites) else run for _, run in sites.each()
    ]
    with pytest.raises(WorkerFault, match="needs lnL of patterns, which none leaves"):
        check(Program((matrices, one_stream(runs)), 17))


def test_a_level_must_not_write_twice_nor_read_itself() -> None:
    first, *others = runs()
    level = first.records
    twice = changed(level, 1, dst=int(level["dst"][0]))
    program = Program((pmatrices(), one_stream([Newview(twice), *others])), 1)
    with pytest.raises(WorkerFault, match="a second time"):
        check(program)
    verifier = Verifier(TIPS, 1000)
    verifier.check(Program(every_cla(), 1), lengths=200, models=1, groups=0)
    own = changed(level, 1, left=int(level["dst"][0]))
    program = Program((pmatrices(), one_stream([Newview(own)])), 1)
    with pytest.raises(WorkerFault, match="is read by its own level"):
        verifier.check(program, lengths=200, models=1, groups=0)


@pytest.mark.parametrize(
    ("kind", "fields", "wrong"),
    [
        (Evaluate, {"case": 1}, "needs case 1, which is not there"),
        (Evaluate, {"model": 1}, "has other model than its case"),
        (Evaluate, {"weights": 1}, "has other weights than its case"),
        (Evaluate, {"p": 77}, r"reads P\[77\], but there are 11"),
        (Evaluate, {"cell": 6}, r"writes cell\[6\], but there are 6"),
        (Derive, {"cell": 3}, r"writes cell\[4\] a second time"),
        (Derive, {"cell": -1}, r"writes cell\[-1\]"),
    ],
)
def test_edges(kind: type[Run], fields: dict[str, int], wrong: str) -> None:
    with pytest.raises(WorkerFault, match=rf"stage 002 SITES, record [12]: {kind.name} .*{wrong}"):
        check(Program((*every_cla(), edges(kind, **fields)), 6))


@pytest.mark.parametrize(
    ("table", "fields", "wrong"),
    [
        ("records", {"steps": 10_000}, "has steps beyond the"),
        ("records", {"merged_p": 190}, r"reads P\[190\], but there are"),
        ("steps", {"level_in": 5}, "that no step before it pushed"),
        ("steps", {"level_in": 0}, "that no step before it pushed"),
        ("steps", {"right_level": 0}, "overwrites the pruned subtree"),
        ("steps", {"left": 900}, r"reads cla\[900\], which nothing has written"),
        ("steps", {"right_output": 0}, r"writes cell\[0\] a second time"),
    ],
)
def test_scans(table: str, fields: dict[str, int], wrong: str) -> None:
    lengths, walk, outputs = scan()
    walk = replace(walk, **{table: changed(getattr(walk, table), 1, **fields)})
    with pytest.raises(WorkerFault, match=rf"stage 003 SCAN, record \d+: .*{wrong}"):
        check(Program((*every_cla(), lengths, walk, reduced_cells(outputs)), outputs))


def test_a_scan_must_not_store_over_what_it_reads() -> None:
    lengths, walk, _ = scan(store_from=SLOTS)
    check(Program((*every_cla(), lengths, walk), 1))
    lengths, walk, _ = scan(store_from=0)
    with pytest.raises(WorkerFault, match="overwrites a CLA that the scan reads"):
        check(Program((*every_cla(), lengths, walk), 1))


def test_a_launch_has_one_scan() -> None:
    matrices, walk, outputs = scan()
    once = (*every_cla(), matrices, walk)
    check(Program((*once, reduced_cells(outputs)), outputs))
    with pytest.raises(WorkerFault, match="stage 004 SCAN.*is a second scan"):
        check(Program((*once, walk), outputs))
    with pytest.raises(WorkerFault, match="stage 004 REPEAT.*repeats a scan"):
        check(Program((*once, Repeat(2, 8, 0)), outputs))


def walk(table: str = "steps", at: int = 0, **fields: int) -> Program:
    """A walk of two trees, with some fields of one record changed."""
    lengths, stage, reduce = builders.walk([TREE, TREE], TIPS).stages
    assert isinstance(stage, Walk)
    records = getattr(stage, table).copy()
    for field, value in fields.items():
        records[field][at] = value
    changed_walk = replace(stage, **{table: records})
    return Program((lengths, changed_walk, reduce), 2, Cases.alike(2).records)


def test_walks_pass() -> None:
    check(walk(), models=2)


@pytest.mark.parametrize(
    ("table", "fields", "wrong"),
    [
        ("records", {"tip": 3}, "is scored across the branch of a CLA"),
        ("records", {"tip": ~TIPS}, f"reads tip {TIPS} of {TIPS}"),
        ("records", {"p": 1000}, "reads P"),
        ("records", {"case": 2}, "needs case 2"),
        ("records", {"cell": 5}, "writes cell"),
        ("records", {"steps": 1000}, "has steps beyond"),
        ("records", {"steps": 0}, "is a step of no task|does not end in one result"),
        ("steps", {"left": RESULT, "right": RESULT}, "takes a result that no step has left"),
        ("steps", {"left_p": -1}, "reads P"),
    ],
)
def test_wrong_walks_are_named(table: str, fields: dict[str, int], wrong: str) -> None:
    with pytest.raises(WorkerFault, match=rf"stage 001 WALK, record \d+: .*({wrong})"):
        check(walk(table, **fields), models=2)


def triplets(**fields: int) -> Program:
    records = np.zeros(2, TRIPLET)
    for n, name in enumerate(("proximal", "distal", "pendant")):
        records[name] = ~n
        records[f"{name}_p"] = n
    records["cell"] = [0, 10]
    groups = planner.group_records(
        GroupKind.TRIPLET, np.array([0, 3]), 3, np.array([0, 10]), np.array([1, 11])
    )
    stages = (
        pmatrices(),
        Triplets(records),
        reduced_cells(20),
        Optimise(changed(groups, 1, **fields), alone=True),
        Repeat(0, 8, 2),
    )
    return Program(stages, 20)


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"first_length": 198}, "moves lengths beyond the 200"),
        ({"first_sum": 12}, "reads sums beyond the 20"),
        ({"lnl_sum": -1}, "reads sums beyond the 20"),
    ],
)
def test_groups(fields: dict[str, int], wrong: str) -> None:
    check(triplets(), groups=2)
    with pytest.raises(WorkerFault, match=f"stage 003 OPTIMISE, record 1: .*{wrong}"):
        check(triplets(**fields), groups=2)
    with pytest.raises(WorkerFault, match="has 2 groups but 1 control records"):
        check(triplets(), groups=1)


def reduction(*fields: int) -> Reduce:
    return Reduce(np.array([fields], REDUCTION))


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"parts": 2}, "case 0 has parts 0 to 1 of 1"),
        ({"first_part": -1}, "case 0 has parts -1 to -1 of 1"),
        ({"model": 1}, "case 0 needs model 1 of 1"),
        ({"weights": 1}, "case 0 needs weights 1 of 1"),
    ],
)
def test_wrong_cases_are_named(fields: dict[str, int], wrong: str) -> None:
    with pytest.raises(WorkerFault, match=wrong):
        check(Program(every_cla(), 1, changed(LONE.records, 0, **fields)))


def test_clas_are_of_parts() -> None:
    """What one case has written on its part, another does not find on its own."""
    verifier = Verifier(TIPS, 1000, parts=2)
    records = LONE.records.copy()
    first, second = Cases(records), Cases(changed(records, 0, first_part=1))
    verifier.check(builders.update([TREE], first), lengths=11, models=2, groups=0)
    found = Neighbourhood(TREE)
    scan = found.scan(found.extend(5))
    verifier.check(builders.scores([TREE], scan, first)[0], lengths=99, models=2, groups=0)
    with pytest.raises(WorkerFault, match=r"reads cla\[\d+\], which nothing has written"):
        verifier.check(builders.scores([TREE], scan, second)[0], lengths=99, models=2, groups=0)
    both = Cases.alike(1, 2)
    with pytest.raises(WorkerFault, match=r"reads cla\[\d+\], which nothing has written"):
        verifier.check(builders.scores([TREE], scan, both)[0], lengths=99, models=2, groups=0)


def test_stages() -> None:
    good = triplets().stages
    unreduced = Program((*good[:2], reduction(0, 0, 10, 0, 1), *good[3:]), 20)
    with pytest.raises(WorkerFault, match="reads sums beyond the 10 there are"):
        check(unreduced, groups=2)
    holed = Program(
        (*good[:2], reduction(0, 0, 10, 0, 1), reduction(10, 11, 9, 0, 1), *good[3:]), 20
    )
    with pytest.raises(WorkerFault, match="reads a sum that nothing has reduced"):
        check(replace(holed, stages=(*holed.stages[:5], Repeat(0, 8, 2))), groups=2)
    with pytest.raises(WorkerFault, match="stage 002 REDUCE.*beyond the 20 cells"):
        check(Program((*good[:2], reduction(12, 0, 12, 0, 1)), 20), groups=2)
    with pytest.raises(WorkerFault, match="stage 002 REDUCE.*beyond the 1 there are"):
        check(Program((*good[:2], reduction(0, 0, 20, 0, 2)), 20), groups=2)
    with pytest.raises(WorkerFault, match="stage 004 REPEAT.*goes back to stage 4"):
        check(Program((*good[:4], Repeat(4, 8, 2)), 20), groups=2)
    with pytest.raises(WorkerFault, match="asks for 3 groups of 2"):
        check(Program((*good[:4], Repeat(0, 8, 3)), 20), groups=2)
    twice = changed(pmatrices().records, 4, p=5)
    with pytest.raises(WorkerFault, match=r"writes P\[5\] a second time"):
        check(Program((PMatrices(twice),), 1))
