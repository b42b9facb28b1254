"""Record of a run's events, as JSON lines in a file, from which a report is drawn later.

A run does not depend on its record: if the file cannot be written, the run goes on without it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mltree.system.errors import InputError
from mltree.system.files import naming, open_own
from mltree.system.process import uninterrupted
from mltree.system.values import Value

_BEGINNING = b'{"event": '
"""First words of every record."""


def expect_record(path: Path) -> None:
    """Make sure that a file may receive events: it is absent, or holds events.

    Raises:
        InputError: the file is of another kind, a link or a pipe.
    """
    with naming(path), suppress(FileNotFoundError):
        path.lstat()
        file = open_own(path, os.O_RDWR)
        try:
            beginning = os.pread(file, len(_BEGINNING), 0)
        finally:
            os.close(file)
        if not _BEGINNING.startswith(beginning):
            hint = "rename it, or give another --prefix"
            raise InputError(f"{path} is not a file of mltree's events", hint=hint)


class Record:
    """Writer of events, which are kept until a file is named."""

    def __init__(self) -> None:
        self._pending: list[str] = []
        self._path: Path | None = None

    def begin(self, path: Path, append: bool) -> None:
        """Write to a file from now on, behind its content or instead of it."""
        self._path = path
        with uninterrupted():
            try:
                os.close(open_own(path, os.O_WRONLY | (0 if append else os.O_TRUNC)))
            except (OSError, InputError):
                self._give_up()
        self._write()

    def write(self, line: str) -> None:
        """Add an event, as :func:`mltree.report.progress.as_json` has it."""
        self._pending.append(line + "\n")
        self._write()

    def _write(self) -> None:
        if self._path is None:
            return
        with uninterrupted():
            try:
                with os.fdopen(open_own(self._path, os.O_WRONLY | os.O_APPEND), "a") as file:
                    file.writelines(self._pending)
            except (OSError, InputError):
                self._give_up()
        self._pending.clear()

    def _give_up(self) -> None:
        """Stop writing: a half line is none to a reader, and later lines would not follow it."""
        self._path = None


# Facts: a record read back.

Fields = Mapping[str, Any]
"""An event as JSON has it."""


class Point(Value):
    """Best lnL at a point in time."""

    seconds: float
    lnl: float
    what: str
    """The step just done."""


@dataclass
class Facts:
    """Facts of a run, from its record; None or empty if the record lacks them."""

    started: Fields | None = None
    described: Fields | None = None
    """Machine, versions, options, inputs."""
    data: Fields | None = None
    device: str = ""
    points: list[Point] = field(default_factory=list)
    phases: list[tuple[float, str]] = field(default_factory=list)
    """Beginning of each search phase (seconds), and its name."""
    starts: list[tuple[str, float]] = field(default_factory=list)
    """Starting trees: origins, and lnL after a first smoothing."""
    ends: Fields | None = None
    """Number of starts searched to the end, and of those that reached the best tree."""
    time: Fields | None = None
    """Seconds by likelihood function."""
    spent: Fields | None = None
    """Wall, CPU and device seconds, memory."""
    finished: Fields | None = None
    notices: list[str] = field(default_factory=list)


_KEPT = {
    "RunDescribed": "described",
    "AlignmentLoaded": "data",
    "StartsEnded": "ends",
    "TimeSpent": "time",
    "ResourcesSpent": "spent",
    "RunFinished": "finished",
}
"""Events of which the latest is kept, and their field of :class:`Facts`."""

_STEPS = {
    "StartTree": "start: {origin}",
    "RoundDone": "SPR round {round}",
    "ModelOptimised": "model optimised",
    "TreePerturbed": "perturbation {batch}",
    "SearchFinished": "search done",
}
"""Events with an lnL, and the steps that they end."""


def facts_of(lines: Iterable[str]) -> Facts:
    """Facts from JSON lines; unknown events are skipped.

    A run that was stopped and resumed is one run: its second part continues the first one's clock.
    """
    facts = Facts()
    before = latest = 0.0
    for line in lines:
        try:
            event = json.loads(line)
            name, seconds = event["event"], before + float(event["elapsed"])
        except (ValueError, KeyError, TypeError):  # half a line, of a run that was killed
            continue
        if name == "RunStarted":
            before = latest
            facts.started = facts.started or event
            continue
        latest = max(latest, seconds)
        if name in _KEPT:
            setattr(facts, _KEPT[name], event)
        _add(facts, name, event, seconds)
    return facts


def _add(facts: Facts, name: str, event: Fields, seconds: float) -> None:
    """Add an event of a kind that recurs; a choice of models drops those of its own search."""
    match name:
        case "ModelChosen":
            for known in (facts.points, facts.phases, facts.starts):
                known.clear()
        case "Notice" if event["text"] not in facts.notices:
            facts.notices.append(event["text"])
        case "DeviceChosen":
            facts.device = event["name"]
        case "StartTree" if (event["origin"], event["lnl"]) not in facts.starts:
            facts.starts.append((event["origin"], event["lnl"]))
        case "PhaseStarted":
            facts.phases.append((seconds, f"phase {event['phase']}, radius {event['radius']}"))
    if name in _STEPS and isinstance(event["lnl"], float):
        facts.points.append(Point(seconds, event["lnl"], _STEPS[name].format(**event)))
