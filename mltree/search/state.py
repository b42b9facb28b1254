"""Everything that a search would need to go on after a power cut."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from mltree.events.search import StartsEnded
from mltree.model.partitioned import PartitionModel
from mltree.search.explored import Explored
from mltree.tree.forest import Forest
from mltree.tree.splits import topology_key
from mltree.tree.topology import Tree
from mltree.values import Value

__all__ = ["Lineage", "Pool", "PooledTree", "SearchState", "best_of", "shapes"]


@dataclass
class Lineage:
    """A tree on its way through the search; several go through every launch side by side."""

    tree: Tree
    """Changed in place by the search."""
    lnl: float
    """Natural log-likelihood of ``tree`` under the search's current model."""
    origin: str
    """Where it came from: ``parsimony 1``, ``random 2``, ``user 1``, ``copy 3``."""
    active: bool = True
    """False once a phase has nothing more to gain for it."""
    rounds: int = 0
    """Rounds done in the current phase."""
    starts: int = 1
    """Starts that led to it, those among them that were dropped for its sake."""

    def copy(self) -> Lineage:
        """An independent lineage with the same tree."""
        return replace(self, tree=self.tree.copy())


def shapes(lineages: Sequence[Lineage], free_length: float) -> list[int]:
    """Numbers that trees share which differ in branches no longer than ``free_length`` alone."""
    if len(lineages) == 1:
        return [0]
    return Forest([lineage.tree for lineage in lineages]).shape_keys(free_length)


def best_of(lineages: list[Lineage]) -> Lineage:
    """The one with the highest lnL; the first of equals."""
    return max(lineages, key=lambda lineage: lineage.lnl)


class PooledTree(Value, eq=False):
    """A copy of a tree that the search once reached."""

    lnl: float
    tree: Tree

    @cached_property
    def key(self) -> int:
        """Equal for equal topologies; see :func:`mltree.tree.splits.topology_key`."""
        return topology_key(self.tree)


@dataclass
class Pool:
    """At most ``limit`` trees of different topology, best first."""

    limit: int
    trees: list[PooledTree] = field(default_factory=list)

    def add(self, tree: Tree, lnl: float) -> None:
        """Take a tree in, unless its topology is there with a higher lnL."""
        new = PooledTree(lnl, tree.copy())
        known = next((entry for entry in self.trees if entry.tree.is_alike(tree)), None)
        if known is None:  # the same may be numbered in another way; the first has none to be like
            known = next((entry for entry in self.trees if entry.key == new.key), None)
        if known is not None:
            if known.lnl >= lnl:
                return
            self.trees.remove(known)
        self.trees.append(new)
        self.trees.sort(key=lambda entry: -entry.lnl)
        del self.trees[self.limit :]


@dataclass
class SearchState:
    """The search between two steps; a step is a function of it and of nothing else."""

    lineages: list[Lineage]
    """The starts that are still in the race."""
    model: PartitionModel
    rng: np.random.Generator
    pool: Pool
    fraction: float
    """Share of the inner edges that the next perturbation changes."""
    waiting: list[Lineage] = field(default_factory=list)
    """Starts whose turn has not come."""
    starts: int = 1
    """All that there were."""
    ended: StartsEnded | None = None
    """Outcome of the starts, once known: a resumed run emits it again."""
    explored: Explored = field(default_factory=Explored)
    """What need not be looked at again."""
    copies: list[Lineage] = field(default_factory=list)
    """Perturbed copies under repair."""
    act: int = 0
    """Which of the search's acts is on."""
    entered: bool = False
    """Whether its first step is done."""
    batches: int = 0
    """Batches of copies done."""
    failures: int = 0
    """Batches in a row that brought no better tree."""
    returned: int = 0
    """Copies since the last better tree that came back to the one they were made from."""
    finished: int = -1
    """Moves there had been when model and lengths were last at a maximum."""
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
            waiting=[lineage.copy() for lineage in self.waiting],
            rng=deepcopy(self.rng),
            explored=self.explored.copy(),
            pool=replace(self.pool, trees=list(self.pool.trees)),
        )
