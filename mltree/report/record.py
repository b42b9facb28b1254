"""The events of a run as JSON lines in a file, from which a report is drawn later.

Nothing depends on it: where it cannot be written, the run goes on without it.
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
from mltree.system.signals import uninterrupted
from mltree.system.values import Value

_BEGINNING = b'{"event": '
"""First words of every record."""


def expect_record(path: Path) -> None:
    """Make sure that events may be written to a file: there is none, or it has events.

    Raises:
        InputError: it is somebody's, or a link or a pipe.
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
            raise InputError(f"{path} has no events of mltree's", hint=hint)


class Record:
    """Lines that are kept until there is a file for them, and then written as they come."""

    def __init__(self) -> None:
        self._pending: list[str] = []
        self._path: Path | None = None

    def begin(self, path: Path, append: bool) -> None:
        """Write to a file from now on, after what is there already or instead of it."""
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
        """Half a line is no line to a reader, and the rest is for nobody."""
        self._path = None


# What a run's events tell: its record read back (:mod:`mltree.report.record`).

Fields = Mapping[str, Any]
"""An event as JSON has it."""


class Point(Value):
    """The lnL of the best tree at some time."""

    seconds: float
    lnl: float
    what: str
    """What had just been done."""


@dataclass
class Facts:
    """A run as its record tells it; whatever it does not tell is empty or None."""

    started: Fields | None = None
    described: Fields | None = None
    """Machine, versions, options, inputs."""
    data: Fields | None = None
    device: str = ""
    points: list[Point] = field(default_factory=list)
    phases: list[tuple[float, str]] = field(default_factory=list)
    """When each phase of a search began, and what it is."""
    starts: list[tuple[str, float]] = field(default_factory=list)
    """Where a search began: origins and lnLs after a first smoothing."""
    ends: Fields | None = None
    """How many starts were searched to the end, and how many of them reached the best tree."""
    time: Fields | None = None
    """Where time went."""
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
"""Events of which the latest is kept, and where."""


def facts_of(lines: Iterable[str]) -> Facts:
    """The facts in JSON lines; what is no event that is known is passed over.

    A run that was stopped and went on is one run: its second part begins where the first one ended.
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
    """What there may be several of; not those of a search that its model was chosen on."""
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
    if (what := _done(name, event)) is not None and isinstance(event["lnl"], float):
        facts.points.append(Point(seconds, event["lnl"], what))


def _done(name: str, event: Fields) -> str | None:
    """What an event with an lnL says was done; None for others."""
    match name:
        case "StartTree":
            return f"start: {event['origin']}"
        case "RoundDone":
            return f"SPR round {event['round']}"
        case "ModelOptimised":
            return "model optimised"
        case "TreePerturbed":
            return f"perturbation {event['batch']}"
        case "SearchFinished":
            return "search done"
    return None
