"""What is said of alignments: read, checked, written, and their parts."""

from __future__ import annotations

from mltree.alignment.checks import AlignmentSummary
from mltree.events import Event
from mltree.events.run import MemoryPlanned
from mltree.values import Value

__all__ = [
    "AlignmentChecked",
    "AlignmentLoaded",
    "AlignmentWritten",
    "PartFacts",
    "PartitionsLoaded",
]


class AlignmentLoaded(Event):
    """The data are read and compressed."""

    path: str
    file_format: str
    """The file format that was found."""
    data_type: str
    data_seen: str
    """What the data type was told by: ``98.1% ACGT, 31 ambiguity codes``."""
    taxa: int
    sites: int
    patterns: int
    gap_share: float
    """Share of characters that are gaps or fully ambiguous, 0..1."""


class PartFacts(Value):
    """A part of the alignment, and what is in it."""

    name: str
    data_type: str
    model: str
    """As it was given, or the default."""
    sites: int
    patterns: int
    gap_share: float
    """Share of characters that may be any state, those of taxa without data too, 0..1."""
    taxa: int
    """With any data in the part."""


class PartitionsLoaded(Event):
    """The alignment is read and cut into parts."""

    path: str
    """The partition file."""
    taxa: int
    sites: int
    """In parts."""
    parts: tuple[PartFacts, ...]


class AlignmentWritten(Event):
    """Sequences are in a file."""

    path: str
    file_format: str
    """A name of :data:`mltree.alignment.writing.FORMATS`."""
    taxa: int
    sites: int


class AlignmentChecked(Event):
    """All that is worth knowing about an alignment before a search."""

    summary: AlignmentSummary
    memory: MemoryPlanned | None
    """Of a search with the default settings; None where no device would take any."""
