"""What happens when models are chosen."""

from __future__ import annotations

from mltree.events import Event
from mltree.values import Value

__all__ = ["CandidatesScored", "ModelChosen", "ModelsRanked", "PartsMerged", "RankedModel"]


class CandidatesScored(Event):
    """Candidates of a model choice were fitted to every part."""

    candidates: int
    """How many, of all parts."""
    parts: int
    best: str
    """Of the first part, so far."""


class ModelChosen(Event):
    """The best model of a part."""

    part: str
    model: str
    criterion: str
    score: float
    lnl: float


class RankedModel(Value):
    """A candidate of a model choice."""

    model: str
    lnl: float
    parameters: int
    """Free ones, branch lengths included."""
    score: float
    """By the criterion; smaller is better."""
    weight: float
    """exp(-delta / 2), of sum 1."""


class ModelsRanked(Event):
    """The best candidates for a part, the best first."""

    part: str
    criterion: str
    candidates: int
    """How many were compared."""
    models: tuple[RankedModel, ...]


class PartsMerged(Event):
    """A round of merging parts has ended."""

    pairs: int
    """That were compared."""
    merged: int
    """Pairs that became one."""
    subsets: int
    """That are left."""
    score: float
    """Of the whole scheme, by the criterion."""
