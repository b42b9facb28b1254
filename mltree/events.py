"""What happens during a run, as data: the search emits events, the report draws them.

Every event is a frozen dataclass of plain values, so that the same stream is a log, a progress
display or JSON lines. Nothing here knows how, when or where an event is shown: whoever receives
it adds the time. lnL are natural logs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

__all__ = [
    "AlignmentLoaded",
    "BootstopChecked",
    "CheckpointWritten",
    "ConsensusBuilt",
    "DeviceChosen",
    "DistancesMeasured",
    "Emit",
    "EngineScore",
    "EnginesCompared",
    "Event",
    "MemoryPlanned",
    "ModelOptimised",
    "Notice",
    "PhaseStarted",
    "RoundDone",
    "RunFinished",
    "RunStarted",
    "SearchFinished",
    "SearchResumed",
    "StartTree",
    "StoppedShort",
    "SupportsDrawn",
    "TreePerturbed",
    "TreesCulled",
    "TreesLoaded",
    "Unsaved",
    "ignore",
]


@dataclass(frozen=True)
class Event:
    """Something that happened."""


Emit = Callable[[Event], None]
"""Who receives events. The search takes one and never asks what it does with them."""


def ignore(_: Event) -> None:
    """The receiver for whoever wants no events."""


@dataclass(frozen=True)
class Notice(Event):
    """Something the user should know, in one line: an assumption, a fallback, a repair."""

    text: str


@dataclass(frozen=True)
class Unsaved(Event):
    """A result that could not be written to its file: its last resort is wherever this is shown."""

    path: str
    content: str


@dataclass(frozen=True)
class RunStarted(Event):
    """The first event of a run."""

    version: str
    command: str
    """As it was typed."""
    seed: int | None = None
    """None where nothing is random."""


@dataclass(frozen=True)
class AlignmentLoaded(Event):
    """The data are read and compressed."""

    path: str
    layout: str
    """The file format that was found."""
    data_type: str
    data_seen: str
    """What the data type was told by: ``98.1% ACGT, 31 ambiguity codes``."""
    taxa: int
    sites: int
    patterns: int
    gap_share: float
    """Share of characters that are gaps or fully ambiguous, 0..1."""


@dataclass(frozen=True)
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
    """One byte a pattern; shared by all trees."""
    matrices: int
    """P matrices of the largest launch."""
    process: int
    """The process's largest resident size; a CPU's CLAs, matrices and tips are among it."""
    available: int
    """Memory of the devices."""


@dataclass(frozen=True)
class DeviceChosen(Event):
    """An engine stands ready."""

    name: str
    """Device and layout."""


@dataclass(frozen=True)
class StartTree(Event):
    """A starting tree, scored after a first smoothing."""

    origin: str
    """``parsimony 1``, ``random 2``, ``user 1``."""
    lnl: float


@dataclass(frozen=True)
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


@dataclass(frozen=True)
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


@dataclass(frozen=True)
class ModelOptimised(Event):
    """Model parameters and branch lengths of the best tree were optimised."""

    model: str
    """With its values."""
    lnl: float


@dataclass(frozen=True)
class StoppedShort(Event):
    """A warning: an optimisation ended before it reached a maximum."""

    what: str
    """What was optimised: ``model and branch lengths``, ``model``, ``branch lengths``."""


@dataclass(frozen=True)
class TreesCulled(Event):
    """Starts that cannot catch up were dropped."""

    kept: int
    dropped: int


@dataclass(frozen=True)
class TreePerturbed(Event):
    """A batch of perturbed copies was searched."""

    batch: int
    copies: int
    better: int
    """Copies that ended above the best tree."""
    lnl: float
    """Of the best tree, after it."""


@dataclass(frozen=True)
class CheckpointWritten(Event):
    """The search can go on from here if it is stopped."""

    path: str


@dataclass(frozen=True)
class SearchResumed(Event):
    """A checkpoint was found: the work up to here is not done again."""

    path: str
    rounds: int
    """SPR rounds that were done before."""
    lnl: float
    """Of the best tree."""


@dataclass(frozen=True)
class SearchFinished(Event):
    """The search is over."""

    lnl: float
    rounds: int
    candidates: int
    moves: int


@dataclass(frozen=True)
class TreesLoaded(Event):
    """A file of trees is read."""

    path: str
    trees: int
    taxa: int


@dataclass(frozen=True)
class SupportsDrawn(Event):
    """Every inner branch of a tree has its support."""

    metric: str
    """``FBP`` or ``TBE``."""
    branches: int
    mean: float | None
    """Over the branches, 0 to 1; None where there are none."""
    newick: str


@dataclass(frozen=True)
class ConsensusBuilt(Event):
    """What trees have in common is a tree."""

    kind: str
    """``strict``, ``majority`` or ``extended``."""
    branches: int
    largest: int
    """Inner branches of a tree without polytomies."""
    newick: str


@dataclass(frozen=True)
class DistancesMeasured(Event):
    """Pairs of trees were compared."""

    pairs: int
    topologies: int
    """Different ones among the trees."""
    mean: float
    """Splits that only one of two trees has (Robinson-Foulds distance)."""
    relative: float
    """The same as a share of the largest possible distance."""
    weighted: float | None
    """Mean sum of differences in branch length, expected substitutions per site."""


@dataclass(frozen=True)
class BootstopChecked(Event):
    """Replicates were halved at random, and the halves' supports compared."""

    replicates: int
    wrf: float
    """Mean weighted Robinson-Foulds distance of the halves' consensus trees, in replicates."""
    wrf_error: float
    """Its Monte-Carlo error: the standard error of the mean."""
    share: float
    """Mean share of the largest possible distance, 0 to 1."""
    passed: int
    """Halvings in which that share is within the cutoff."""
    halvings: int
    converged: bool


@dataclass(frozen=True)
class RunFinished(Event):
    """What a run found: its last event."""

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


@dataclass(frozen=True)
class EngineScore:
    """What one engine answered."""

    engine: str
    """Its name and layout."""
    lnl: float
    """NaN where the engine failed."""
    seconds: float
    """Of one evaluation, traversal included."""
    problem: str = ""
    """Why there is no lnL."""


@dataclass(frozen=True)
class EnginesCompared(Event):
    """The same likelihood from every engine."""

    scores: tuple[EngineScore, ...]
    """The reference's first."""
