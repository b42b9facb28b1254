"""The summary of a run and the table of its time."""

from __future__ import annotations

import io
from collections.abc import Sequence

import pytest
from rich.console import Console, RenderableType

from mltree.compare import Score
from mltree.contract import Function
from mltree.report.tables import (
    FUNCTION_NAMES,
    Summary,
    compare_table,
    is_drawn,
    listed,
    summary_text,
    timing_table,
)


def rendered(table: RenderableType, width: int = 100) -> list[str]:
    screen = io.StringIO()
    Console(file=screen, width=width).print(table)
    return [line.rstrip() for line in screen.getvalue().splitlines()]


def test_every_function_has_a_row() -> None:
    assert set(FUNCTION_NAMES) == set(Function)


def test_times_add_up_to_the_wall_time() -> None:
    device = {Function.NEWVIEW: 1.5, Function.SCAN: 0.25}
    rows = [line.split() for line in rendered(timing_table(device, 4.0))]
    assert ["newview", "1.500", "37.5%"] in rows
    assert ["insertion", "scan", "0.250", "6.2%"] in rows
    assert ["host", "and", "kernel", "builds", "2.250", "56.2%"] in rows
    assert ["all", "4.000"] in rows


@pytest.mark.parametrize("width", [60, 100])
def test_a_comparison_never_cuts_a_number_off(width: int) -> None:
    scores = [
        Score("reference", -5719.362412, 0.002832),
        Score("a device with a long name, VW=8 fp64 (1 x 1 x 1 work-items)", -5719.362413, 0.0006),
        Score("broken", float("nan"), 0.0, "no memory"),
    ]
    text = " ".join(rendered(compare_table(scores), width))
    for word in ("-5719.362412", "-5719.362413", "-1.0e-06", "2.832", "0.600", "failed"):
        assert word in text


@pytest.mark.parametrize(
    ("taxa", "height", "expected"), [(30, 10, True), (31, 25, False), (40, 100, True)]
)
def test_small_trees_are_drawn(taxa: int, height: int, expected: bool) -> None:
    assert is_drawn(taxa, height) is expected


def test_a_summary_names_its_files() -> None:
    text = summary_text(Summary(-12.34567, "JC", 1.5, 4, "", ("x.mltree.bestTree",)))
    assert "Final log-likelihood: -12.3457\n" in text
    assert text.endswith("Wrote x.mltree.bestTree")


@pytest.mark.parametrize(
    ("items", "expected"),
    [([], ""), (["a", "b"], "a, b"), (["x"] * 12, "x, x, x, x, x, x, x, x, x, x and 2 more")],
)
def test_lists_are_cut_with_a_count(items: Sequence[str], expected: str) -> None:
    assert listed(items) == expected
