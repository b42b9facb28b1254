"""The candidates of a model choice, and how they rank."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from mltree.likelihood.api import Likelihood
from mltree.model.candidates import Candidate, Criterion
from mltree.model.substitution import Model
from mltree.tree.topology import Tree
from mltree.values import Value

__all__ = ["Choice", "Known", "Scored", "matrices_near"]


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


class Known(Value):
    """What is known of the parts of some patterns before their models are chosen."""

    models: Sequence[Model] = ()
    """To begin with, of each part; or none."""
    matrices: Sequence[Sequence[str]] = ()
    """Those worth a try, of each part; all of them where there are none."""
    likelihoods: Mapping[int, Likelihood] = field(default_factory=dict)
    """Of the patterns, that are open, by their categories."""


def matrices_near(choices: Sequence[Choice], margin: float) -> list[str]:
    """Matrices that may score best where some parts are put together, or did in one of them.

    As one they would have the lnLs of all, and the parameters of one: those within a margin of the
    best by that. Each part has the same matrices.
    """
    criterion, sites = choices[0].criterion, sum(choice.best.sites for choice in choices)
    lnls: dict[str, float] = defaultdict(float)
    for choice in choices:
        for matrix, one in _best_by_matrix(choice).items():
            lnls[matrix] += one.lnl
    scores = {
        matrix: criterion.score(lnls[matrix], one.parameters, sites)
        for matrix, one in _best_by_matrix(choices[0]).items()
    }
    limit = min(scores.values()) + margin
    bests = {choice.best.candidate.matrix for choice in choices}
    return [matrix for matrix, score in scores.items() if score <= limit or matrix in bests]


def _best_by_matrix(choice: Choice) -> dict[str, Scored]:
    """Every matrix under the rates that suit the part best with it."""
    return {one.candidate.matrix: one for one in reversed(choice.ranked)}
