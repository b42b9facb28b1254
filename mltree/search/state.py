"""Everything that a search would need to go on after a power cut."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field, replace

import numpy as np

from mltree.model.substitution import Model
from mltree.search.lineage import Lineage, best_of
from mltree.search.pool import Pool

__all__ = ["SearchState"]


@dataclass
class SearchState:
    """The search between two steps; a step is a function of it and of nothing else."""

    lineages: list[Lineage]
    """The starts that are still in the race."""
    model: Model
    rng: np.random.Generator
    pool: Pool
    fraction: float
    """Share of the inner edges that the next perturbation changes."""
    copies: list[Lineage] = field(default_factory=list)
    """Perturbed copies under repair."""
    stage: int = 0
    """Index into the plan."""
    entered: bool = False
    """Whether the first step of the stage is done."""
    batches: int = 0
    """Batches of copies done."""
    failures: int = 0
    """Batches in a row that brought no better tree."""
    rounds: int = 0
    """SPR rounds done."""
    candidates: int = 0
    """Insertions scored."""
    moves: int = 0
    """Moves applied and kept."""

    @property
    def best(self) -> Lineage:
        """The best tree so far."""
        return best_of([*self.lineages, *self.copies])

    def copy(self) -> SearchState:
        """The same state, which no step changes."""
        return replace(
            self,
            lineages=[lineage.copy() for lineage in self.lineages],
            copies=[lineage.copy() for lineage in self.copies],
            rng=deepcopy(self.rng),
            pool=replace(self.pool, trees=list(self.pool.trees)),
        )
