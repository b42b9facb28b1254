"""Events of a search, from its starting trees to its best."""

from __future__ import annotations

import math

from mltree.events import Event

__all__ = [
    "CheckpointWritten",
    "ModelOptimised",
    "PhaseStarted",
    "RoundDone",
    "SearchFinished",
    "SearchPlanned",
    "SearchResumed",
    "StartTree",
    "StartsEnded",
    "StoppedShort",
    "TreePerturbed",
    "TreeScored",
    "TreesCulled",
]


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
    lacking: float | None
    """lnL by which the maximum is higher, as far as the last steps tell; None: they do not."""

    @classmethod
    def by(cls, what: str, lacking: float) -> StoppedShort:
        """Where so much lnL was still promised, or infinitely much: nothing was."""
        return cls(what, lacking if math.isfinite(lacking) else None)


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
