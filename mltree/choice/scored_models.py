"""The candidates of a model choice, and how they rank."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from mltree.model.candidates import Candidate, Criterion
from mltree.model.substitution import Model
from mltree.tree.topology import Tree
from mltree.values import Value

__all__ = ["Choice", "Scored"]


class Scored(Value):
    """A candidate that was fitted to a part."""

    candidate: Candidate
    lnl: float
    """Natural log, at the maximum over branch lengths and parameters; less after a screening."""
    parameters: int
    """Free ones, branch lengths included."""
    sites: int
    model: Model
    """With its estimates."""
    tree: Tree
    """With its lengths."""
    whole: bool
    """Whether all of it was fitted, not only one half."""

    @property
    def name(self) -> str:
        """What ``--model`` takes."""
        return self.candidate.name

    def score(self, criterion: Criterion) -> float:
        """Smaller is better."""
        return criterion.score(self.lnl, self.parameters, self.sites)


@dataclass
class Choice:
    """The candidates of a part, and which is best."""

    part: str
    criterion: Criterion
    scored: dict[str, Scored] = field(default_factory=dict)
    """By name."""

    @property
    def ranked(self) -> list[Scored]:
        """All of them, the best first."""
        return sorted(self.scored.values(), key=lambda one: one.score(self.criterion))

    @property
    def best(self) -> Scored:
        """The one to take."""
        return self.ranked[0]

    def weights(self, criterion: Criterion) -> dict[str, float]:
        """exp(-delta / 2), of sum 1: what each candidate is worth by a criterion."""
        scores = {name: one.score(criterion) for name, one in self.scored.items()}
        least = min(scores.values())
        worth = {name: float(np.exp((least - score) / 2)) for name, score in scores.items()}
        total = sum(worth.values())
        return {name: value / total for name, value in worth.items()}
