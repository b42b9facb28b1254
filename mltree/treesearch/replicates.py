"""Bootstrap replicates: the search that each one is, under weights and from a start of its own.

A replicate is a function of the seed and its number: its weights come from one random stream of its
own, its start, and how copies of sequences are put back, from another.
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
from mltree.likelihood.requests import Request, SearchLikelihood, Steps
from mltree.models.partitioned import PartitionModel
from mltree.supports.resampling import Resampling
from mltree.system.arrays import Float64
from mltree.system.events import ignore
from mltree.system.values import Value
from mltree.tree.fitch import InformativeSites
from mltree.tree.parsimony import REFERENCE, ParsimonyEngine
from mltree.tree.parsimony_spr import reweighted_trees
from mltree.tree.random_trees import resolved_at_random
from mltree.tree.topology import Tree
from mltree.treesearch.checkpoint import Lineage
from mltree.treesearch.constraint import Constraint, constrained_start
from mltree.treesearch.driver import StartingTree, beginning, play, replicate_acts
from mltree.treesearch.duplicates import Collapsed
from mltree.treesearch.quest import Quest
from mltree.treesearch.site_rates import group_patterns

# Where the weights of replicates are while their trees are searched, several side by side.
#
# As rows of weights over all patterns, whatever the likelihood; or, where it has berths, with the
# patterns that were drawn alone: those of 63 % of the sites, for all the work on them.


class Spot(NamedTuple):
    """What a replicate has of a likelihood."""

    row: int
    """Of weights."""
    first_part: int
    """Where its parts begin."""


class Spots(ABC):
    """Spots of one likelihood, for searches that come and go."""

    def __init__(self, count: int) -> None:
        self.count = count
        """Searches that there is one for at a time."""
        self._free = list(range(count))[::-1]
        self._fresh: dict[int, Float64] = {}
        """Weights that the likelihood lacks, by spot."""

    def take(self, weights: Float64) -> Spot:
        """One for weights f64[L], which the likelihood has after :meth:`load`."""
        number = self._free.pop()
        self._fresh[number] = weights
        return self._spot(number)

    def give_back(self, spot: Spot) -> None:
        """It is of no more use."""
        self._free.append(self._number(spot))

    def load(self, likelihood: SearchLikelihood) -> None:
        """Hand over what the likelihood lacks."""
        fresh, self._fresh = self._fresh, {}
        if fresh:
            self._load(likelihood, fresh)

    @abstractmethod
    def _spot(self, number: int) -> Spot: ...

    @abstractmethod
    def _number(self, spot: Spot) -> int: ...

    @abstractmethod
    def _load(self, likelihood: SearchLikelihood, fresh: dict[int, Float64]) -> None: ...


class WeightRows(Spots):
    """A row of weights each, over the same patterns."""

    def __init__(self, count: int, n_patterns: int) -> None:
        super().__init__(count)
        self._table: Float64 = np.zeros((count, n_patterns))

    def _spot(self, number: int) -> Spot:
        return Spot(number, 0)

    def _number(self, spot: Spot) -> int:
        return spot.row

    def _load(self, likelihood: SearchLikelihood, fresh: dict[int, Float64]) -> None:
        for row, weights in fresh.items():
            self._table[row] = weights
        likelihood.load_weights(self._table)


@runtime_checkable
class _WithBerths(Protocol):
    """What is asked of :class:`mltree.runs.engines.ReplicateLikelihood`."""

    def load_patterns(self, first_part: int, patterns: Patterns) -> None: ...


class Berths(Spots):
    """A berth each: as many parts as the alignment has, with what was drawn of them."""

    def __init__(self, count: int, patterns: Patterns, sizes: Sequence[int]) -> None:
        """``patterns``: that are drawn from; ``sizes``: of a berth, part by part."""
        super().__init__(count)
        self._patterns, self._sizes = patterns, tuple(sizes)

    def _spot(self, number: int) -> Spot:
        return Spot(0, number * len(self._sizes))

    def _number(self, spot: Spot) -> int:
        return spot.first_part // len(self._sizes)

    def _load(self, likelihood: SearchLikelihood, fresh: dict[int, Float64]) -> None:
        if not isinstance(likelihood, _WithBerths):
            raise ValueError("a likelihood without berths")
        for number, weights in fresh.items():
            own = drawn(self._patterns, weights, self._sizes)
            likelihood.load_patterns(self._spot(number).first_part, own)


class LoadWeights(Request, eq=False):
    """That the likelihood has what is drawn: once for all replicates that begin together."""

    spots: Spots

    @property
    def kind(self) -> Hashable:
        """Of the same spots."""
        return type(self), id(self.spots)

    def answer(self, likelihood: SearchLikelihood) -> Sequence[None]:
        """Nothing."""
        self.spots.load(likelihood)
        return [None] * len(self.trees)


NAME = "bootstrap"
"""Of what is drawn."""

TIED = 1.5
"""Times the shortest length: inner branches up to there have none."""


class Replicate(Value):
    """What the search of a replicate found."""

    number: int
    """From 1."""
    tree: Tree
    """Of all taxa."""
    lnl: float
    """Natural log, under the replicate's weights."""


class Replicates(Value):
    """What the replicates of a run have in common."""

    distinct: Collapsed
    """The alignment that is drawn from, without copies of sequences."""
    model: PartitionModel
    """Fixed."""
    settings: SearchSettings
    seed: int
    constraint: Constraint | None = None
    name: str = NAME
    """Of what is drawn."""
    given: Sequence[Tree] = ()
    """Where replicates 1, 2, ... start, over the distinct sequences; at trees of their own if none.
    """
    parsimony: ParsimonyEngine = REFERENCE
    """Which makes those."""

    @property
    def resampling(self) -> Resampling:
        """What draws them."""
        return Resampling.of(self.distinct.groups, self.seed, self.name)

    def searches(self, numbers: Iterable[int], spots: Spots) -> Iterator[Steps[Replicate]]:
        """The searches of these replicates, of which as many are under way as there are spots.

        Their starts are made as many at a time.
        """
        resampling = self.resampling
        left = iter(numbers)
        while batch := list(islice(left, spots.count)):
            weights = np.concatenate([resampling.rows(range(k, k + 1)) for k in batch])
            rngs = [self.rng(number) for number in batch]
            if self.given:
                starts = [[self.given[number - 1].copy()] for number in batch]
            else:
                starts = self._starts(weights, rngs)
            for number, own, start, rng in zip(batch, weights, starts, rngs, strict=True):
                yield self._search(number, own, start, rng, spots)

    def _starts(self, weights: Float64, rngs: Sequence[np.random.Generator]) -> list[list[Tree]]:
        """Those of every row of weights."""
        make = partial(
            replicate_starts, self.distinct.groups, weights, rngs, self.constraint, self.parsimony
        )
        tries = [
            make(improved=number == 0 or self.settings.improves_all_starts)
            for number in range(self.settings.parsimony_starts)
        ]
        return [list(own) for own in zip(*tries, strict=True)]

    def rng(self, number: int) -> np.random.Generator:
        """For all of a replicate but its weights."""
        entropy = [self.seed, *self.name.encode()]
        sequence = np.random.SeedSequence(entropy, spawn_key=(number,))
        return np.random.Generator(np.random.PCG64(sequence))

    def _search(
        self,
        number: int,
        weights: Float64,
        starts: Sequence[Tree],
        rng: np.random.Generator,
        spots: Spots,
    ) -> Steps[Replicate]:
        spot = spots.take(weights)
        for start in starts:
            start.lengths = self.model.spread(start.lengths)
        first = [StartingTree(start, f"replicate {number}") for start in starts]
        state = beginning(first, self.model, self.settings, rng)
        quest = Quest(self.settings, state, ignore, self.constraint, *spot)
        yield LoadWeights(starts[:1], [quest.case], spots)
        yield from group_patterns(quest)
        yield from play(quest, replicate_acts(self.settings))
        yield from self._settle(quest)
        spots.give_back(spot)
        (found,) = state.lineages
        found.tree.lengths = self.model.mean_lengths(found.tree.lengths)
        tree = self.without_ties(found.tree, self._tied, rng)
        return Replicate(number, self.distinct.shuffled(rng).restore(tree), found.lnl)

    def _settle(self, quest: Quest) -> Steps[None]:
        """Let inner branches that came near no length begin there, and grow if that gains.

        Steps towards no length divide it, and end once they gain next to nothing: of 200 replicates
        of 6 taxa x 200 sites 266 of 477 such branches were left at 3e-6, and these were not TIED.
        """
        (found,) = quest.state.lineages
        tree = found.tree.copy()
        lengths = tree.lengths[..., tree.inner_edges]
        is_free = lengths <= self.settings.perturbation.free_length
        shortest = np.minimum(lengths, self.settings.branches.minimum)
        if (is_free & (lengths > shortest)).any():
            tree.lengths[..., tree.inner_edges] = np.where(is_free, shortest, lengths)
            settled = Lineage(tree, -np.inf, found.origin)
            epsilon = self.settings.rounds.trial_epsilon
            yield from quest.smooth([settled], epsilon)
            if settled.lnl >= found.lnl - epsilon:
                quest.state.lineages = [settled]

    @property
    def _tied(self) -> float:
        """Inner branches up to here have no length, once they have settled."""
        shortest, _ = self.settings.branches.bounds(
            sum(patterns.n_sites for patterns in self.distinct.groups)
        )
        return TIED * shortest

    def without_ties(self, tree: Tree, longest: float, rng: np.random.Generator) -> Tree:
        """The tree with inner branches up to so long drawn anew, but for those of the constraint.

        Data that leave a branch no length leave no length to those that could stand in its place
        either. Which of them a search ends with, slopes at the shortest length decide, in much the
        same way in all replicates and for the best tree: such branches had 52 % where a third is
        what nothing but chance gives.
        """
        tied = tree.inner_edges[tree.lengths[tree.inner_edges] <= longest]
        if self.constraint is not None:
            tied = tied[~self.constraint.shown_by(tree)[:, tied].any(axis=0)]
        return resolved_at_random(tree, tied, rng)


def replicate_starts(
    groups: Sequence[Patterns],
    weights: Float64,
    rngs: Sequence[np.random.Generator],
    constraint: Constraint | None = None,
    engine: ParsimonyEngine = REFERENCE,
    improved: bool = True,
) -> list[Tree]:
    """A start for every row of weights f64[n, L], by its rng: parsimony, or what fits a constraint.

    A tree does not depend on the others. ``improved``: see :func:`reweighted_trees`.
    """
    if constraint is not None:
        return [constrained_start(constraint, rng) for rng in rngs]
    sites = InformativeSites.of(*groups)
    return reweighted_trees(sites, weights, rngs, engine=engine, improved=improved)
