"""What is said of many loci, each with a tree of its own; see :mod:`mltree.events`."""

from __future__ import annotations

from dataclasses import dataclass

from mltree.events import Event

__all__ = ["LociFinished", "LocusDone", "LocusSkipped"]


@dataclass(frozen=True)
class LocusDone(Event):
    """The tree of a locus is found, or was by an earlier run."""

    name: str
    number: int
    """From 1, in the order given."""
    lnl: float
    taxa: int
    done: int
    """Loci so far."""
    wanted: int


@dataclass(frozen=True)
class LocusSkipped(Event):
    """A locus has no tree, and others go on."""

    name: str
    number: int
    why: str


@dataclass(frozen=True)
class LociFinished(Event):
    """All loci are done."""

    trees: int
    skipped: int
    lnl: float
    """Of all trees together."""
    files: tuple[str, ...]
    seconds: float
