"""Every event has a line, on the terminal, in the log and as JSON."""

from __future__ import annotations

import dataclasses
import errno
import io
import json
import math
from typing import Any, get_type_hints

import pytest
from rich.console import Console

from mltree.report.lines import describe
from mltree.report.progress import Reporter, Terminal, Verbosity
from mltree.system import events
from mltree.system.errors import InputError
from mltree.system.events import (
    AlignmentChecked,
    CheckpointWritten,
    CommandEnded,
    EnginesCompared,
    Event,
    InputFile,
    ModelsRanked,
    Notice,
    PartitionsLoaded,
    PhaseStarted,
    RoundDone,
    RunDescribed,
    RunFinished,
    SupportsDrawn,
    TimeSpent,
    TreesTested,
    Unsaved,
)

SAMPLES: dict[Any, Any] = {str: "text", int: 3, float: 2.5, tuple[str, ...]: ("one", "two")}


def sample(kind: type[Event]) -> Event:
    """An event of a kind, filled by the types of its fields."""
    hints = get_type_hints(kind)
    fields = dataclasses.fields(kind)
    return kind(**{field.name: SAMPLES.get(hints[field.name], 1) for field in fields})


KINDS = Event.__subclasses__()

RESULTS = (
    AlignmentChecked, EnginesCompared, ModelsRanked, PartitionsLoaded, RunDescribed, RunFinished,
    TimeSpent, TreesTested,
)  # fmt: skip
"""Events that are shown as more than a line: tests/report/test_lines_results.py."""

LINES = [kind for kind in KINDS if kind not in RESULTS]


@pytest.mark.parametrize("kind", LINES, ids=lambda kind: kind.__name__)
def test_every_event_has_a_line_of_its_own(kind: type[Event]) -> None:
    line = describe(sample(kind))
    assert kind.__name__ not in line
    assert "\n" not in line


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_event_is_exported(kind: type[Event]) -> None:
    assert getattr(events, kind.__name__) is kind


class Clock:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def drawn(
    *shown: Event, verbosity: Verbosity = Verbosity.NORMAL, json_lines: bool = False
) -> list[str]:
    """The lines that a reporter prints 3,725 seconds into a run."""
    clock = Clock()
    screen = io.StringIO()
    console = Console(file=screen, width=40, highlight=False)
    reporter = Reporter(console, verbosity, json_lines, clock)
    clock.now = 3725.4
    for event in shown:
        reporter(event)
    return screen.getvalue().splitlines()


ROUND = RoundDone(round=3, radius=10, candidates=12345, moves=1, lnl=-12345.678)


def test_lines_look_like_raxml_ngs() -> None:
    assert drawn(ROUND) == [
        "[01:02:05] SPR round 3 (radius 10)  lnL -12345.678  12,345 insertions, 1 move"
    ]


def test_square_brackets_in_a_notice_are_no_markup() -> None:
    assert drawn(Notice("taxon [red]x[/red]")) == ["[01:02:05] note: taxon [red]x[/red]"]


def test_verbosity() -> None:
    both = (ROUND, CheckpointWritten("x"))
    assert len(drawn(*both, verbosity=Verbosity.QUIET)) == 0
    assert len(drawn(*both)) == 1
    assert len(drawn(*both, verbosity=Verbosity.VERBOSE)) == 2


def test_json_is_strict() -> None:
    (line,) = drawn(PhaseStarted(1, 25, math.inf, 4), json_lines=True)
    assert json.loads(line, parse_constant=pytest.fail) == {
        "event": "PhaseStarted", "elapsed": 3725.4,
        "phase": 1, "radius": 25, "cut": "inf", "trees": 4,
    }  # fmt: skip


class Full(io.StringIO):
    """A file or pipe that takes nothing while it is full."""

    is_full = True

    def __init__(self, problem: Exception) -> None:
        super().__init__()
        self.problem = problem

    def write(self, text: str) -> int:
        if self.is_full:
            raise self.problem
        return super().write(text)


CLOSED = BrokenPipeError(errno.EPIPE, "Broken pipe")


def test_the_log_has_events_and_texts() -> None:
    log = io.StringIO()
    reporter = Reporter(Console(file=io.StringIO()), Verbosity.QUIET, clock=Clock())
    reporter.log_to(log)
    reporter(Notice("one"))
    reporter.say("two")
    reporter.log_to(None)
    reporter(Notice("three"))
    assert log.getvalue() == "[00:00:00] note: one\ntwo\n"


@pytest.mark.parametrize("json_lines", [False, True])
def test_a_run_with_a_log_goes_on_without_a_terminal(
    json_lines: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    reporter = Reporter(Terminal(file=Full(CLOSED)), json_lines=json_lines, clock=Clock())
    reporter.log_to(log := io.StringIO())
    for text in ("one", "two"):
        reporter(Notice(text))
    note = "[00:00:00] note: standard output: Broken pipe; the run and its log go on"
    assert capsys.readouterr().err.splitlines() == [note]
    lines = ["[00:00:00] note: one", note, "[00:00:00] note: two"]
    assert sorted(log.getvalue().splitlines()) == sorted(lines)


def test_without_a_log_somebody_must_see_it() -> None:
    with pytest.raises(BrokenPipeError):
        Reporter(Terminal(file=Full(CLOSED)))(Notice("one"))


def test_a_full_log_is_told_of_once_each_time(capsys: pytest.CaptureFixture[str]) -> None:
    screen = io.StringIO()
    reporter = Reporter(Terminal(file=screen, width=80), clock=Clock())
    reporter.log_to(log := Full(InputError("cannot write x: No space left")))
    for log.is_full in (True, True, False, True):
        reporter(Notice("one"))
    note = "[00:00:00] note: cannot write x: No space left; the run goes on"
    assert capsys.readouterr().err.splitlines() == [note, note]
    assert len(screen.getvalue().splitlines()) == 4


def test_neither_terminal_nor_log_nor_anybody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", None)
    reporter = Reporter(Terminal(file=Full(CLOSED)), clock=Clock())
    reporter.log_to(Full(InputError("no space")))
    reporter(Notice("one"))
    reporter(Notice("two"))


def test_what_is_nowhere_else_is_shown_in_silence_too() -> None:
    unsaved = Unsaved("x.mltree.bestTree", "(a,b,c);\n")
    line = "not written, x.mltree.bestTree: (a,b,c);"
    assert " ".join(drawn(unsaved, verbosity=Verbosity.QUIET)) == line


DESCRIBED = RunDescribed(
    date="2026-11-22T02:44:18+00:00", host="here", system="Linux", cpu="Fast", threads=1,
    threads_source="CPU affinity", devices=("GPU one", "GPU two"), versions={"mltree": "1"},
    options={"seed": ("3", "typed"), "vw": ("8", "default")}, inputs=(InputFile("a.phy", 9, "ab"),),
)  # fmt: skip


def test_a_run_is_described_in_lines() -> None:
    assert describe(DESCRIBED).splitlines() == [
        "Date:     2026-11-22T02:44:18+00:00",
        "Host:     here (Linux)",
        "CPU:      Fast, 1 thread (CPU affinity)",
        "Device:   GPU one",
        "Device:   GPU two",
        "Versions: mltree 1",
        "Input:    a.phy (9 bytes, sha256 ab)",
        "Option:   seed = 3 (typed)",
        "Option:   vw = 8",
    ]


def test_results_and_progress_have_a_console_each() -> None:
    progress, results = io.StringIO(), io.StringIO()
    reporter = Reporter(
        Console(file=progress, width=80), clock=Clock(), results=Console(file=results, width=80)
    )
    reporter.log_to(log := io.StringIO())
    for event in (ROUND, SupportsDrawn("FBP", 3, 0.5, "(a,b,c);"), DESCRIBED):
        reporter(event)
    reporter.say("Wrote x")
    reporter.say("table", Verbosity.VERBOSE)
    reporter.finish("support", {"lnl": -1.0})
    assert progress.getvalue().startswith("[00:00:00] SPR round 3")
    assert results.getvalue() == "FBP  3 inner branches, mean 50.0%\nWrote x\n"
    assert log.getvalue() == progress.getvalue() + results.getvalue() + "table\n"


def test_a_lost_progress_loses_no_result(capsys: pytest.CaptureFixture[str]) -> None:
    results = io.StringIO()
    reporter = Reporter(
        Terminal(file=Full(CLOSED)), clock=Clock(), results=Terminal(file=results, width=80)
    )
    for _ in range(2):
        reporter(ROUND)
    reporter.say("found")
    note = "[00:00:00] note: standard error: Broken pipe; the run goes on"
    assert capsys.readouterr().err.splitlines() == [note]
    assert results.getvalue() == "found\n"


def test_a_result_is_json_by_its_own_name() -> None:
    (line,) = drawn(CommandEnded("search", {"lnl": -1.5, "tree": "(a,b);"}), json_lines=True)
    assert json.loads(line) == {
        "event": "result", "elapsed": 3725.4, "command": "search", "lnl": -1.5, "tree": "(a,b);",
    }  # fmt: skip


def test_checkpoints_are_told_of_once() -> None:
    reporter = Reporter(Console(file=io.StringIO()), clock=Clock())
    reporter.log_to(log := io.StringIO())
    for _ in range(3):
        reporter(CheckpointWritten("x"))
    assert log.getvalue() == "[00:00:00] checkpoint x\n"
