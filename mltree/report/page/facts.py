"""What a run's events tell: its record read back (:mod:`mltree.report.record`)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mltree.values import Value

__all__ = ["Facts", "Point", "facts_of"]

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
