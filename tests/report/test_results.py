"""Results stand for themselves: on the terminal, in the log, and whole in JSON."""

from __future__ import annotations

import io
import json
import math
from dataclasses import replace

import pytest
from rich.console import Console

from mltree.events import EnginesCompared, EngineScore, Event, Notice, RunFinished
from mltree.report.progress import Reporter, Verbosity
from mltree.report.results import is_drawn, result, summary_text

FOUND = RunFinished(
    lnl=-12.34567, model="JC", tree="(one:0.1,'a b':0.2,(c:0.1,d:0.3):0.05);", tree_length=0.75,
    taxa=4, files=("x.mltree.log", "x.mltree.bestTree"), seconds=1.5,
)  # fmt: skip

COMPARED = EnginesCompared(
    (EngineScore("reference", -5.25, 0.5), EngineScore("broken", math.nan, 0.0, "no memory"))
)


def shown(event: Event, verbosity: Verbosity = Verbosity.NORMAL, json_lines: bool = False) -> str:
    """What a terminal has of an event; its log has the same, or more."""
    screen, log = io.StringIO(), io.StringIO()
    reporter = Reporter(Console(file=screen, width=100), verbosity, json_lines, clock=lambda: 0.0)
    reporter.log_to(log)
    reporter(event)
    if verbosity > Verbosity.QUIET and not json_lines:
        assert log.getvalue() == screen.getvalue()
    assert log.getvalue()
    return screen.getvalue()


@pytest.mark.parametrize(
    ("taxa", "height", "expected"), [(30, 10, True), (31, 25, False), (40, 100, True)]
)
def test_small_trees_are_drawn(taxa: int, height: int, expected: bool) -> None:
    assert is_drawn(taxa, height) is expected


def test_a_summary_names_its_files() -> None:
    text = summary_text(FOUND, "")
    assert "Final log-likelihood: -12.3457\n" in text
    assert text.endswith("Wrote x.mltree.log\nWrote x.mltree.bestTree")
    assert "Wrote" not in summary_text(replace(FOUND, files=()), "")


def test_a_run_ends_with_its_tree() -> None:
    lines = shown(FOUND).splitlines()
    for name in ("one", "a b", "c", "d"):
        assert any(line.endswith(f"-{name}") for line in lines)
    assert "Model: JC" in lines
    assert "Tree length: 0.750000 expected substitutions per site" in lines
    assert "Model: JC" in shown(replace(FOUND, taxa=500))
    assert "a b" not in shown(replace(FOUND, taxa=500))


def test_scores_are_a_table() -> None:
    text = shown(COMPARED)
    assert "reference  -5.250000" in text
    assert "failed" in text


@pytest.mark.parametrize("event", [FOUND, COMPARED])
def test_silence_shows_no_result(event: Event) -> None:
    assert shown(event, Verbosity.QUIET) == ""


def test_results_as_json() -> None:
    (line,) = shown(FOUND, json_lines=True).splitlines()
    found = json.loads(line)
    assert found["event"] == "RunFinished"
    assert found["lnl"] == FOUND.lnl
    assert found["tree"] == FOUND.tree
    assert found["files"] == list(FOUND.files)
    (line,) = shown(COMPARED, json_lines=True).splitlines()
    _, broken = json.loads(line, parse_constant=pytest.fail)["scores"]
    assert broken == {"engine": "broken", "lnl": "nan", "seconds": 0.0, "problem": "no memory"}


def test_other_events_are_no_results() -> None:
    assert result(Notice("text"), 25) is None
