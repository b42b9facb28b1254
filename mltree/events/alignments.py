"""What is said of alignments: read, checked, written, and their parts."""

from __future__ import annotations

from collections.abc import Sequence

from mltree.events import Event
from mltree.events.run import MemoryPlanned
from mltree.values import Value

__all__ = [
    "AlignmentChecked",
    "AlignmentLoaded",
    "AlignmentSummary",
    "AlignmentWritten",
    "PartFacts",
    "PartitionsLoaded",
    "Suspicion",
]


class Suspicion(Value):
    """A legal character that may not mean what the user thinks."""

    character: str
    count: int
    taxon: str
    """Where it occurs first, in the order of the file."""
    site: int
    """The site there, from 1."""
    reason: str


class AlignmentSummary(Value):
    """The facts that `mltree check` shows. Shares are of all T x sites characters, 0 to 1."""

    path: str
    file_format: str
    datatype: str
    seen: str
    """What the data type was told by."""
    doubtful: bool
    """Whether the data type was told by little."""
    taxa: int
    sites: int
    patterns: int
    gap_share: float
    """Characters that may be any state."""
    ambiguous_share: float
    """Characters that may be several states, but not any."""
    names: tuple[str, ...]
    """The taxa, sorted."""
    taxon_gap_shares: tuple[float, ...]
    """Share of gaps in each taxon of ``names``."""
    composition_p_values: tuple[float, ...]
    """Of each taxon's χ² test against the composition of all (see composition.py)."""
    states: Sequence[str]
    frequencies: tuple[float, ...]
    """Of each state, as +FC has them."""
    absent_states: tuple[str, ...]
    """States that never occur: +FC would give them frequency 0."""
    invariant_sites: int
    """All characters but gaps are one and the same state (RAxML-NG's definition)."""
    informative_sites: int
    """At least two states, each certain in at least two taxa (parsimony-informative)."""
    identical_sequences: tuple[tuple[str, ...], ...]
    """Groups of taxa with equal sequences."""
    alike_names: tuple[tuple[str, ...], ...]
    """Groups of names that differ in upper and lower case only."""
    gap_taxa: tuple[str, ...]
    """Taxa with nothing but gaps."""
    gap_sites: tuple[int, ...]
    """Sites with nothing but gaps, from 1."""
    suspicions: tuple[Suspicion, ...]
    has_parts: bool
    """True if the file also names parts of the alignment, here under one model."""


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
