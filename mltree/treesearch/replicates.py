"""Bootstrap replicates: a search each, under drawn weights and from starts of its own.

A replicate is a function of the seed and its number. Its weights come from one random stream of its
own; its start, and how copies of sequences are put back, from another.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from mltree.data.patterns import Patterns, drawn
from mltree.fit.settings import SearchSettings
from mltree.likelihood.likelihood import TreeLikelihood
from mltree.likelihood.requests import Request, Steps
from mltree.models.partitioned import PartitionModel
from mltree.supports.resampling import USUAL, Resampling, SamplingScheme
from mltree.system.arrays import Float64
from mltree.system.events import ignore
from mltree.system.values import Value
from mltree.tree.fitch import InformativeSites
from mltree.tree.parsimony import REFERENCE, ParsimonyEngine, reweighted_trees
from mltree.tree.topology import Tree, resolved_at_random
from mltree.treesearch.checkpoint import CandidateTree
from mltree.treesearch.constraint import Constraint
from mltree.treesearch.duplicates import Collapsed
from mltree.treesearch.search import StartingTree, beginning, replicate_search
from mltree.treesearch.search_context import SearchContext, group_patterns

# Replicate slots: places in a likelihood for replicates that are searched side by side.
#
# A slot is a row of weights over all patterns, in any likelihood; or, where the likelihood has room
# for patterns of their own, parts with the drawn patterns alone: those of 63 % of the sites.


class ReplicateSlot(NamedTuple):
    """The place of a replicate in a likelihood."""

    number: int
    """Number of the slot in its likelihood."""
    row: int
    """Row of weights."""
    first_part: int
    """First part."""


class ReplicateSlots(ABC):
    """Slots of one likelihood, for searches that come and go."""

    def __init__(self, count: int) -> None:
        self.count = count
        """Slots, which is how many replicates are searched side by side."""
        self._free = list(range(count))[::-1]
        self._fresh: dict[int, Float64] = {}
        """Weights that the likelihood has yet to load, by slot."""

    def take(self, weights: Float64) -> ReplicateSlot:
        """Take a slot for weights f64[L], which the likelihood has after :meth:`load`."""
        number = self._free.pop()
        self._fresh[number] = weights
        return self._slot(number)

    def give_back(self, slot: ReplicateSlot) -> None:
        """Free a slot."""
        self._free.append(slot.number)

    def load(self, likelihood: TreeLikelihood) -> None:
        """Load the weights that the likelihood lacks."""
        fresh, self._fresh = self._fresh, {}
        if fresh:
            self._load(likelihood, fresh)

    @abstractmethod
    def _slot(self, number: int) -> ReplicateSlot: ...

    @abstractmethod
    def _load(self, likelihood: TreeLikelihood, fresh: dict[int, Float64]) -> None: ...


class WeightRows(ReplicateSlots):
    """Slots that are rows of weights over the same patterns."""

    def __init__(self, count: int, n_patterns: int) -> None:
        super().__init__(count)
        self._table: Float64 = np.zeros((count, n_patterns))

    def _slot(self, number: int) -> ReplicateSlot:
        return ReplicateSlot(number, number, 0)

    def _load(self, likelihood: TreeLikelihood, fresh: dict[int, Float64]) -> None:
        self._table[list(fresh)] = list(fresh.values())
        likelihood.load_weights(self._table)


@runtime_checkable
class _WithPatternSlots(Protocol):
    """A likelihood whose parts take patterns of their own while it is in use."""

    def load_patterns(self, first_part: int, patterns: Patterns) -> None: ...


class PatternSlots(ReplicateSlots):
    """Slots of as many parts as the alignment has, with the drawn patterns of each."""

    def __init__(self, count: int, patterns: Patterns, sizes: Sequence[int]) -> None:
        """``patterns``: to draw from; ``sizes``: patterns of a slot, part by part."""
        super().__init__(count)
        self._patterns, self._sizes = patterns, tuple(sizes)

    def _slot(self, number: int) -> ReplicateSlot:
        return ReplicateSlot(number, 0, number * len(self._sizes))

    def _load(self, likelihood: TreeLikelihood, fresh: dict[int, Float64]) -> None:
        if not isinstance(likelihood, _WithPatternSlots):
            raise ValueError("a likelihood without slots for patterns")
        for number, weights in fresh.items():
            patterns = drawn(self._patterns, weights, self._sizes)
            likelihood.load_patterns(self._slot(number).first_part, patterns)


class LoadWeights(Request, eq=False):
    """Load the drawn weights: once for all replicates that begin together."""

    slots: ReplicateSlots

    @property
    def kind(self) -> Hashable:
        """Requests for the same slots can be joined."""
        return type(self), id(self.slots)

    def answer(self, likelihood: TreeLikelihood) -> Sequence[None]:
        """Load the weights; the answers are empty."""
        self.slots.load(likelihood)
        return [None] * len(self.trees)


NAME = "bootstrap"
"""Name that the random streams of bootstrap replicates are drawn under."""

TIED = 1.5
"""Longest inner branch without length, in shortest lengths."""


class ReplicateTree(Value):
    """The tree of a bootstrap replicate."""

    number: int
    """Number of the replicate, from 1."""
    tree: Tree
    """Tree over all taxa."""
    lnl: float
    """lnL under the replicate's weights, natural log."""


class Replicates(Value):
    """The replicates of a run: data, model and settings that they share."""

    distinct: Collapsed
    """The alignment to draw from, without copies of sequences."""
    model: PartitionModel
    """Model, which is fixed."""
    settings: SearchSettings
    seed: int
    constraint: Constraint | None = None
    name: str = NAME
    """Name that the random streams are drawn under."""
    given: Sequence[Tree] = ()
    """Starting trees of replicates 1, 2, ..., over the distinct sequences; drawn if there are none.
    """
    parsimony: ParsimonyEngine = REFERENCE
    """Engine that makes drawn starting trees."""
    scheme: SamplingScheme = USUAL
    """How sites are drawn."""

    @property
    def resampling(self) -> Resampling:
        """The resampling that draws the weights."""
        return Resampling.of(self.distinct.groups, self.seed, self.name, self.scheme)

    def searches(
        self, numbers: Iterable[int], slots: ReplicateSlots
    ) -> Iterator[Steps[ReplicateTree]]:
        """Yield the searches of replicates, of which as many are under way as there are slots.

        Starting trees are made for as many replicates at a time.
        """
        resampling = self.resampling
        left = iter(numbers)
        while batch := list(islice(left, slots.count)):
            weights = np.concatenate([resampling.rows(range(k, k + 1)) for k in batch])
            rngs = [self.rng(number) for number in batch]
            if self.given:
                tries = [[self.given[number - 1].copy() for number in batch]]
            else:
                count = self.settings.parsimony_starts
                tries = [self._starts(weights, rngs, n) for n in range(count)]
            starts_of = zip(*tries, strict=True)
            for number, row, starts, rng in zip(batch, weights, starts_of, rngs, strict=True):
                yield self._search(number, row, starts, rng, slots)

    def _starts(
        self, weights: Float64, rngs: Sequence[np.random.Generator], number: int
    ) -> list[Tree]:
        """Make a start by parsimony for every row of weights f64[n, L], to fit a constraint too.

        A tree depends on its rng, not on the other trees.
        """
        groups, improved = self.distinct.groups, number == 0 or self.settings.improves_all_starts
        grown = partial(reweighted_trees, rngs=rngs, engine=self.parsimony, improved=improved)
        if self.constraint is None:
            return grown(InformativeSites.of(*groups), weights)
        sites = self.constraint.parsimony_sites(groups, weights.sum(axis=1).max())
        of_splits = np.tile(sites.weights[weights.shape[1] :], (len(weights), 1))
        return self.constraint.or_drawn(grown(sites, np.hstack([weights, of_splits])), rngs)

    def rng(self, number: int) -> np.random.Generator:
        """Return the random stream of a replicate, for all but its weights."""
        entropy = [self.seed, *self.name.encode()]
        sequence = np.random.SeedSequence(entropy, spawn_key=(number,))
        return np.random.Generator(np.random.PCG64(sequence))

    def _search(
        self,
        number: int,
        weights: Float64,
        starts: Sequence[Tree],
        rng: np.random.Generator,
        slots: ReplicateSlots,
    ) -> Steps[ReplicateTree]:
        slot = slots.take(weights)
        for start in starts:
            start.lengths = self.model.spread(start.lengths)
        origin = f"replicate {number}"
        state = beginning(
            [StartingTree(start, origin) for start in starts], self.model, self.settings, rng
        )
        search = SearchContext(
            self.settings, state, ignore, self.constraint, slot.row, slot.first_part
        )
        yield LoadWeights(starts[:1], [search.case], slots)
        yield from group_patterns(search)
        yield from replicate_search(search)
        yield from self._settle(search)
        slots.give_back(slot)
        (best,) = state.candidates
        best.tree.lengths = self.model.mean_lengths(best.tree.lengths)
        n_sites = sum(patterns.n_sites for patterns in self.distinct.groups)
        shortest, _ = self.settings.branches.bounds(n_sites)
        tree = self.without_ties(best.tree, TIED * shortest, rng)
        return ReplicateTree(number, self.distinct.shuffled(rng).restore(tree), best.lnl)

    def _settle(self, search: SearchContext) -> Steps[None]:
        """Set inner branches that came near no length to it, and let them grow if that gains.

        Steps towards no length divide it, and end once they gain next to nothing: of 200 replicates
        of 6 taxa x 200 sites 266 of 477 such branches were left at 3e-6, and these were not TIED.
        """
        (best,) = search.state.candidates
        tree = best.tree.copy()
        lengths = tree.lengths[..., tree.inner_edges]
        is_free = lengths <= self.settings.perturbation.free_length
        shortest = np.minimum(lengths, self.settings.branches.minimum)
        if (is_free & (lengths > shortest)).any():
            tree.lengths[..., tree.inner_edges] = np.where(is_free, shortest, lengths)
            settled = CandidateTree(tree, -np.inf, best.origin)
            epsilon = self.settings.rounds.full_epsilon
            yield from search.smooth([settled], epsilon)
            if settled.lnl >= best.lnl - epsilon:
                search.state.candidates = [settled]

    def without_ties(self, tree: Tree, longest: float, rng: np.random.Generator) -> Tree:
        """Draw inner branches up to so long anew, but for those of the constraint.

        Data that leave a branch no length leave no length to those that could stand in its place
        either. Which of them a search ends with, slopes at the shortest length decide, in much the
        same way in all replicates and for the best tree: such branches had 52 % where a third is
        what nothing but chance gives.
        """
        tied = tree.inner_edges[tree.lengths[tree.inner_edges] <= longest]
        if self.constraint is not None:
            tied = tied[~self.constraint.shown_by(tree)[:, tied].any(axis=0)]
        return resolved_at_random(tree, tied, rng)
