"""Events of a run as a whole: what it is made of, what it takes, and how it ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mltree.events import Event
from mltree.values import Value

__all__ = [
    "Busy",
    "CommandEnded",
    "DeviceChosen",
    "EngineScore",
    "EnginesCompared",
    "FunctionTime",
    "InputFile",
    "MemoryPlanned",
    "ResourcesSpent",
    "RunDescribed",
    "RunFinished",
    "RunStarted",
    "TimeSpent",
]


class RunStarted(Event):
    """The first event of a run."""

    version: str
    command: str
    """As it was typed."""
    seed: int | None = None
    """None where nothing is random."""


class MemoryPlanned(Event):
    """What a run will take at its peak, before it takes anything; bytes."""

    device: str
    """One, or several with commas."""
    layout: str
    trees: int
    """Trees side by side; others of the run follow after them."""
    slots: int
    """CLAs of a tree: one for every directed edge out of an inner node."""
    clas: int
    """Of those trees, with their scaling counts."""
    near: int
    """CLAs of the insertions that are re-scored at once, beside the trees'."""
    tips: int
    """One byte a pattern, and the eigen systems of patterns that have their own; shared by all
    trees."""
    matrices: int
    """P matrices of the largest launch."""
    sites: int
    """Site lnL of trees that are tested."""
    process: int
    """The process's largest resident size; a CPU's CLAs, matrices and tips are among it."""
    others: int
    """Bytes of the run's other processes on this host: ranks, and builders of kernels."""
    available: int
    """Memory of the devices."""

    @property
    def on_devices(self) -> int:
        """What is taken of that."""
        return self.clas + self.near + self.matrices + self.tips + self.sites


class DeviceChosen(Event):
    """An engine stands ready."""

    name: str
    """Device and layout."""


class RunFinished(Event):
    """What a run found."""

    lnl: float
    """In fp64, whatever precision it was found in."""
    model: str
    """With its values; ``--model`` takes it."""
    tree: str
    """In Newick, as in its file."""
    tree_length: float
    """Sum of all branch lengths, expected substitutions per site."""
    taxa: int
    files: tuple[str, ...]
    """That were written, the log among them."""
    seconds: float
    """Wall time of the search or the optimisation in this process; reading and opening are not
    among it."""
    support: str = ""
    """The tree with supports as labels, where there are any."""


class InputFile(Value):
    """A file that a run read."""

    path: str
    size: int
    """Bytes, as it lies there."""
    sha256: str


class RunDescribed(Event):
    """Everything that it takes to do a run again: the head of its log."""

    date: str
    """When it began, ISO 8601 with the time zone."""
    host: str
    system: str
    cpu: str
    threads: int
    """CPUs that it takes."""
    threads_source: str
    """What that number is from: ``CPU affinity``, ``--threads``, ..."""
    devices: tuple[str, ...]
    """Each with its platform and driver."""
    versions: Mapping[str, str]
    """Of mltree and of what it computes with."""
    options: Mapping[str, tuple[str, str]]
    """As they were resolved: value, and where it is from (``typed``, ``environment``, ``file``,
    ``default``)."""
    inputs: tuple[InputFile, ...]


class Busy(Event):
    """Something begins that takes a while and happens rarely: building kernels, measuring."""

    what: str


class ResourcesSpent(Event):
    """What a run took, from its process's start."""

    wall: float
    """Seconds."""
    cpu: float
    """CPU seconds of all its threads, where a CPU that is the device computes, and of the processes
    that it started: its ranks on this machine, and builds of kernels."""
    device: float
    """Seconds that devices computed."""
    peak_memory: int
    """Bytes of the process's largest resident size."""


class CommandEnded(Event):
    """A command has done what it was asked for: the last of its events, ``result`` in JSON."""

    command: str
    values: Mapping[str, Any]
    """What it found, by names that stay as they are (docs/command-line.md, "JSON")."""


class FunctionTime(Value):
    """A row of a run's timing table: a likelihood function, or what the host did or waited for."""

    name: str
    seconds: float
    calls: int = 0
    """Newviews, edges or insertions; 0 where nothing is counted."""
    pattern_nodes: int = 0
    """Those times the patterns that they were for."""
    bytes_per_second: float | None = None
    """Of what they must read and write; None where that is nothing."""
    share_of_copy: float | None = None
    """Of the bytes a second that the devices copy; None where that is not known."""


class TimeSpent(Event):
    """Where a run's time went."""

    wall: float
    """Seconds; what the rows add up to, or nearly so."""
    rows: tuple[FunctionTime, ...]


class EngineScore(Value):
    """What one engine answered."""

    engine: str
    """Its name and layout."""
    lnl: float
    """NaN where the engine failed."""
    seconds: float
    """Of one evaluation, traversal included."""
    problem: str = ""
    """Why there is no lnL."""


class EnginesCompared(Event):
    """The same likelihood from every engine."""

    scores: tuple[EngineScore, ...]
    """The reference's first."""
