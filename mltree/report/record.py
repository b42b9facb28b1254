"""Record of a run's events, as JSON lines in a file, from which a report is drawn later.

A run does not depend on its record: if the file cannot be written, the run goes on without it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mltree.system.errors import InputError
from mltree.system.files import naming, open_own
from mltree.system.process import uninterrupted
from mltree.system.values import Value

if TYPE_CHECKING:
    from mltree.data.patterns import Patterns
    from mltree.models.eigen import ModelArrays
    from mltree.models.substitution import Model
    from mltree.system.arrays import Float64
    from mltree.system.events import AlignmentSummary
    from mltree.tree.clades import WrittenTree

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
    ranked: list[Fields] = field(default_factory=list)
    """The best candidates of each part's model choice."""
    supports: list[Fields] = field(default_factory=list)
    """Supports in the order in which the tree got them."""
    chosen: Fields | None = None
    """The bootstrap that the time has chosen."""
    bootstrap: Fields | None = None
    """Number of replicates, and the last verdict of autoMRE."""
    notices: list[str] = field(default_factory=list)


LEGENDS = {"FBP": "bootstrap"}
"""Names of supports in legends, where they are not the metric's."""

_LABEL = re.compile(r"\)([^():,;']+)(?=[:,);])")
"""Label of an inner node in Newick."""


def best_labelled(drawn: Iterable[tuple[str, str]]) -> tuple[str, tuple[str, ...]]:
    """The tree of a run with the most supports on it, and their names in the labels' order.

    drawn  metric and tree of each support, in the order in which they were put on; the names are
           empty where they do not match the labels
    """
    best, most = "", 0
    names: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    for metric, newick in drawn:
        known = (*known, LEGENDS.get(metric, metric))
        columns = max((label.count("/") + 1 for label in _LABEL.findall(newick)), default=0)
        if columns > most or newick == best:  # tests of one kind get on the tree together
            best, most, names = newick, columns, known
    return best, names if len(names) == most else ()


_KEPT = {
    "RunDescribed": "described",
    "AlignmentLoaded": "data",
    "StartsEnded": "ends",
    "TimeSpent": "time",
    "ResourcesSpent": "spent",
    "RunFinished": "finished",
    "BootstrapChosen": "chosen",
    "BootstrapFinished": "bootstrap",
}
"""Events of which the latest is kept, and their field of :class:`Facts`."""

SEARCHED = "search done"

_STEPS = {
    "StartTree": "start: {origin}",
    "RoundDone": "SPR round {round}",
    "ModelOptimised": "model optimised",
    "TreePerturbed": "perturbation {batch}",
    "SearchFinished": SEARCHED,
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
        case "ModelsRanked":
            facts.ranked.append(event)
        case "SupportsDrawn":
            facts.supports.append(event)
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


# The subject of a report: facts, tree, model and data.


class PartModel(Value):
    """The model of a part of the alignment."""

    name: str
    sites: str
    """Sites of the part, in the syntax of partition files."""
    text: str
    """The model with its values."""
    model: Model
    """The model; counted frequencies are NaN if the data are not at hand."""


class Subject(Value):
    """Everything that a page shows of a run."""

    name: str
    """Prefix of the run's files, without folder."""
    facts: Facts
    tree: WrittenTree
    newick: str
    tree_file: str
    models: Sequence[PartModel] = ()
    summary: AlignmentSummary | None = None
    patterns: Patterns | None = None
    """The alignment's patterns, if the alignment is at hand."""
    methods: str = ""
    """Methods paragraph and references, from the run's log."""

    @property
    def support_names(self) -> tuple[str, ...]:
        """Names of the supports in the tree's labels; none if the tree is not the run's."""
        from mltree.tree.clades import read_written

        drawn = ((one["metric"], one["newick"]) for one in self.facts.supports)
        newick, names = best_labelled(drawn)
        if not names or sorted(read_written(newick)[0].labels) != sorted(self.tree.labels):
            return ()
        return names

    def frequencies(self, model: Model) -> Float64 | None:
        """f64 [S] of a part's component: counted in the data if it says so; None if unknown."""
        if not np.isnan(model.frequencies).any():
            return model.frequencies
        if self.patterns is None or len(self.models) > 1:
            return None
        return self.patterns.base_frequencies()

    def arrays(self, part: PartModel) -> ModelArrays:
        """Rates and weights of a part's categories."""
        from mltree.models.empirical import Matrices  # not before a report is made

        model = part.model
        equal = np.full(len(model.alphabet.states), 1.0 / len(model.alphabet.states))
        known = ((one.rates, self.frequencies(one)) for one in model.components)
        usable = [Matrices(rates, equal if shares is None else shares) for rates, shares in known]
        return model.with_matrices(usable).arrays()
