"""The table of a run's time, and those of engines and devices."""

from __future__ import annotations

import io
from collections.abc import Sequence

import pytest
from rich.console import Console, RenderableType

from mltree.device.discovery import DeviceInfo
from mltree.device.layout_choice import CATEGORIES, Calibration, DataKind, LayoutChoice
from mltree.device.timing import Breakdown, Cost
from mltree.program.contract import Function
from mltree.report.tables import (
    FUNCTION_NAMES,
    compare_table,
    device_lines,
    listed,
    time_spent,
    timing_table,
    tree_test_lines,
)
from mltree.system.events import EngineScore, TestedTree, TestValue


def rendered(table: RenderableType, width: int = 100) -> list[str]:
    screen = io.StringIO()
    Console(file=screen, width=width).print(table)
    return [line.rstrip() for line in screen.getvalue().splitlines()]


def test_every_function_has_a_row() -> None:
    assert set(FUNCTION_NAMES) == set(Function)


def spent(builds: float = 0.5, waits: float = 2.0, idle_cpu: float = 0.25) -> Breakdown:
    """1.5 s of newviews and 0.25 s of a scan on a device."""
    costs = {
        Function.NEWVIEW: Cost(1.5, operations=1234, pattern_nodes=5_000_000, bytes=3 * 10**9),
        Function.SCAN: Cost(0.25, operations=10, pattern_nodes=1000, bytes=10**6),
    }
    functions = {function: costs.get(function, Cost()) for function in Function}
    return Breakdown(functions, builds, waits, idle_cpu)


def test_times_add_up_to_the_wall_time() -> None:
    table = timing_table(time_spent(spent(), wall=4.0, busy=1.5, copy_bytes=8e9))
    rows = [line.split() for line in rendered(table, width=80)]
    assert ["newview", "1.500", "37.5%", "1,234", "5.0", "2.00", "25%"] in rows
    assert ["insertion", "scan", "0.250", "6.2%", "10", "0.0", "0.00", "0%"] in rows
    assert ["starts", "and", "transfers", "0.250", "6.2%"] in rows
    assert ["kernel", "builds", "0.500", "12.5%"] in rows
    assert ["host", "1.250", "31.2%"] in rows
    assert ["unexplained", "0.250", "6.2%"] in rows
    assert ["all", "4.000"] in rows


def test_what_is_explained_needs_no_row() -> None:
    text = " ".join(rendered(timing_table(time_spent(spent(), 3.76, 1.5, None))))
    assert "unexplained" not in text
    assert "GB/s" in text
    assert "25%" not in text


def test_a_host_that_works_beside_its_device_is_told() -> None:
    rows = [line.split() for line in rendered(timing_table(time_spent(spent(), 3.5, 1.5, None)))]
    assert ["host", "and", "device", "at", "once", "-0.250", "-7.1%"] in rows


def test_a_function_without_work_has_no_rate() -> None:
    functions = dict.fromkeys(Function, Cost()) | {Function.BARRIER: Cost(0.5)}
    table = timing_table(time_spent(Breakdown(functions), 1.0, 0.5, 1e9))
    rows = [line.split() for line in rendered(table)]
    assert ["barriers", "0.500", "50.0%"] in rows


def device(is_cpu: bool = True) -> DeviceInfo:
    return DeviceInfo(
        index=0, name="a device", platform="a platform", driver="1", is_cpu=is_cpu, has_fp64=True,
        compute_units=2, memory=1 << 32, largest_buffer=1 << 30, local_memory=1 << 15,
        vector_width=8, handle=None,
    )  # fmt: skip


def calibration_of(*widths: int) -> Calibration:
    """Measured on DNA, from little to much."""
    kinds = [DataKind(4, CATEGORIES, single=False, size=n) for n in range(len(widths))]
    choices = {k.key: LayoutChoice(vw, 2) for k, vw in zip(kinds, widths, strict=True)}
    return Calibration(12.34e9, choices)


def test_a_device_tells_what_was_measured() -> None:
    lines = device_lines(device(), "ok", calibration_of(8, 8, 8))
    assert "   copies at      12.3 GB/s" in lines
    assert "   DNA            VW=8" in lines
    lines = device_lines(device(is_cpu=False), "ok", calibration_of(8, 16, 32))
    assert lines[-1] == (
        "   DNA            VW=8 x 2 rows up to 4,096 patterns, "
        "VW=16 x 2 rows up to 32,768 patterns, VW=32 x 2 rows beyond"
    )
    assert device_lines(device(), "ok", Calibration())[-1] == "   self-test      ok"


@pytest.mark.parametrize("width", [60, 100])
def test_a_comparison_never_cuts_a_number_off(width: int) -> None:
    scores = [
        EngineScore("reference", -5719.362412, 0.002832),
        EngineScore(
            "a device with a long name, VW=8 fp64 (1 x 1 x 1 work-items)", -5719.362413, 0.0006
        ),
        EngineScore("broken", float("nan"), 0.0, "no memory"),
    ]
    text = " ".join(rendered(compare_table(scores), width))
    for word in ("-5719.362412", "-5719.362413", "-1.0e-06", "2.832", "0.600", "failed"):
        assert word in text


@pytest.mark.parametrize(
    ("items", "expected"),
    [([], ""), (["a", "b"], "a, b"), (["x"] * 12, "x, x, x, x, x, x, x, x, x, x and 2 more")],
)
def test_lists_are_cut_with_a_count(items: Sequence[str], expected: str) -> None:
    assert listed(items) == expected


def test_tested_trees_are_listed_as_iqtree_does() -> None:
    def values(p: float, error: float) -> tuple[TestValue, ...]:
        return (TestValue("p-KH", p, error, p >= 0.05), TestValue("c-ELW", 1 - p, 0.001, True))

    trees = [
        TestedTree(1, None, -100.5, 0.0, values(0.9, 0.003)),
        TestedTree(2, 1, -100.5, 0.0, values(0.9, 0.003)),
        TestedTree(3, None, -112.25, 11.75, values(0.01, 0.002)),
    ]
    head, rule, *rows = tree_test_lines(trees)
    assert head.split() == ["Tree", "logL", "deltaL", "p-KH", "c-ELW"]
    assert set(rule) == {"-"}
    assert [row.split() for row in rows] == [
        ["1", "-100.5000", "0.0000", "0.9000", "+", "0.1000", "+"],
        ["2", "=", "tree", "1"],
        ["3", "-112.2500", "11.7500", "0.0100", "-", "0.9900", "+"],
        ["±", "0.0030", "0.0010"],
    ]
