"""What happens during a run, as data: the search emits events, the report draws them.

Every event is a frozen dataclass of plain values, so that the same stream is a log, a progress
display or JSON lines. Nothing here knows how, when or where an event is shown: whoever receives
it adds the time. lnL are natural logs.
"""

from __future__ import annotations

from collections.abc import Callable

from mltree.alignment.checks import AlignmentSummary
from mltree.values import Value

__all__ = [
    "AlignmentChecked",
    "AlignmentLoaded",
    "AlignmentWritten",
    "CheckpointWritten",
    "DeviceChosen",
    "Emit",
    "Event",
    "MemoryPlanned",
    "ModelOptimised",
    "Notice",
    "PartFacts",
    "PartitionsLoaded",
    "PhaseStarted",
    "RoundDone",
    "RunFinished",
    "RunStarted",
    "SearchFinished",
    "SearchPlanned",
    "SearchResumed",
    "StartTree",
    "StartsEnded",
    "StoppedShort",
    "TreePerturbed",
    "TreeScored",
    "TreesCulled",
    "Unsaved",
    "ignore",
]


class Event(Value):
    """Something that happened."""


Emit = Callable[[Event], None]
"""Who receives events. The search takes one and never asks what it does with them."""


def ignore(_: Event) -> None:
    """The receiver for whoever wants no events."""


class Notice(Event):
    """Something the user should know, in one line: an assumption, a fallback, a repair."""

    text: str


class Unsaved(Event):
    """A result that could not be written to its file: its last resort is wherever this is shown."""

    path: str
    content: str


class RunStarted(Event):
    """The first event of a run."""

    version: str
    command: str
    """As it was typed."""
    seed: int | None = None
    """None where nothing is random."""


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
    process: int
    """The process's largest resident size; a CPU's CLAs, matrices and tips are among it."""
    available: int
    """Memory of the devices."""


class AlignmentChecked(Event):
    """All that is worth knowing about an alignment before a search."""

    summary: AlignmentSummary
    memory: MemoryPlanned | None
    """Of a search with the default settings; None where no device would take any."""


class DeviceChosen(Event):
    """An engine stands ready."""

    name: str
    """Device and layout."""


class SearchPlanned(Event):
    """A search stands ready."""

    starts: int
    phases: int
    patience: int
    """Batches of perturbed copies without a better tree after which it ends; 0: none."""


class StartTree(Event):
    """A starting tree, scored after a first smoothing."""

    origin: str
    """``parsimony 1``, ``random 2``, ``user 1``."""
    lnl: float


class PhaseStarted(Event):
    """Rounds of one radius begin."""

    phase: int
    """Counted from 1."""
    radius: int
    """Edges from the pruning point to the farthest target."""
    cut: float
    """lnL below the current tree at which a scan goes no further."""
    trees: int
    """Trees side by side."""


class RoundDone(Event):
    """One batched SPR round over all trees of a phase."""

    round: int
    """Counted from 1 within the run."""
    radius: int
    candidates: int
    """Insertions that were scored."""
    moves: int
    """Moves that were applied."""
    lnl: float
    """Of the best tree."""


class ModelOptimised(Event):
    """Model parameters and branch lengths of the best tree were optimised."""

    model: str
    """With its values."""
    lnl: float


class StoppedShort(Event):
    """A warning: an optimisation ended before it reached a maximum."""

    what: str
    """What was optimised: ``model and branch lengths``, ``model``, ``branch lengths``."""


class TreesCulled(Event):
    """Starts that cannot catch up were dropped."""

    kept: int
    dropped: int


class StartsEnded(Event):
    """The last phase is over, and with it what each start led to."""

    starts: int
    ended: int
    """Those that were searched to the end; the others fell behind and were dropped."""
    reached: int
    """Those that led to the best tree, by its topology; those among them that were dropped
    because another one had the same tree."""


class TreePerturbed(Event):
    """A batch of perturbed copies was searched."""

    batch: int
    copies: int
    better: int
    """Copies that ended above the best tree."""
    lnl: float
    """Of the best tree, after it."""


class CheckpointWritten(Event):
    """The search can go on from here if it is stopped."""

    path: str


class SearchResumed(Event):
    """A checkpoint was found: the work up to here is not done again."""

    path: str
    rounds: int
    """SPR rounds that were done before."""
    lnl: float
    """Of the best tree."""


class SearchFinished(Event):
    """The search is over."""

    lnl: float
    rounds: int
    candidates: int
    moves: int


class TreeScored(Event):
    """A given tree after a first smoothing of its branches."""

    lnl: float


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
