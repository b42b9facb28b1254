"""Chains shared out: every device of every rank has some of them, and computes their models.

A share takes the states of its chains and the points that their models are at, and gives back the
states that a launch leaves. Which device a chain is on changes no bit of it. Letters: C chains of
a share, n coordinates of a point, P parts.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np

from mltree.models.eigen import MOST_SERIES, ModelStack
from mltree.models.parameters import MANY_STATES
from mltree.models.partitioned import Linkage
from mltree.program import builders
from mltree.program.engine import NO_CONTROL, ChainEngine, ChainRoom
from mltree.program.ops.state import model_rows
from mltree.program.ops.sweeps import chain_slots
from mltree.program.ops.time_trees import TimeShape
from mltree.program.program import Program
from mltree.sampling.model_space import ModelSpace
from mltree.system.arrays import Float64, Index
from mltree.system.ranks import LONE, Ranks, new_number
from mltree.system.values import Value

REGRAFTS = 2
"""Subtrees that a sweep regrafts. DS1: slowest split's ESS a CPU second hardly depends on it."""


LENGTHS = (1e-8, 100.0)
"""Shortest and longest branch, expected substitutions per site. A prior such as Exponential(10)
gives a branch in ten million one that is shorter."""


class ChainLaunch(NamedTuple):
    """States of chains, and the moves that one launch makes with them."""

    words: Float64
    """f64[C, words]: states."""
    points: Float64
    """f64[C, n]: points that the models are at."""
    sweeps: int
    """Sweeps of every chain."""
    proposed: Float64 | None = None
    """f64[C, n]: points that are proposed, if any."""
    group: int = 0
    """The group of coordinates that the proposed ones differ in."""
    weights: Float64 | None = None
    """f64[C, U]: weights of the columns left out, where there are any."""

    def of(self, which: slice) -> ChainLaunch:
        """The launch of some chains."""
        proposed = None if self.proposed is None else self.proposed[which]
        weights = None if self.weights is None else self.weights[which]
        words, points = self.words[which], self.points[which]
        return self._replace(words=words, points=points, proposed=proposed, weights=weights)


class ChainResult(NamedTuple):
    """States of chains behind a launch, and their lnL."""

    words: Float64
    """f64[C, words]: states."""
    lnl: Float64
    """f64[C, 1 + U]: lnL without the columns left out, and that of each of them."""


class ChainData(Value, eq=False):
    """Data, parameters and bounds of all chains, whatever share they are in."""

    tips: int
    space: ModelSpace
    weights: Float64
    """f64[L]: sites that show each pattern."""
    left_out: tuple[int, ...] = ()
    """The U patterns whose sites are unknown, each chain having numbers of its own."""
    regrafts: int = REGRAFTS
    bounds: tuple[float, float] = LENGTHS
    """Shortest and longest branch that engines allow."""
    time: TimeShape | None = None
    """The shape of trees with a time axis; None for unrooted ones."""

    @property
    def sets(self) -> int:
        """Sets of branch lengths of a chain: one for all parts, or one for each."""
        model = self.space.model
        return model.n_parts if model.linkage == Linkage.UNLINKED else 1

    @property
    def slots(self) -> int:
        """CLA slots of a chain."""
        return chain_slots(self.tips) if self.time is None else self.time.slots

    def program(self, chains: int, sweeps: int, team: int, probes: int) -> Program:
        """So many sweeps of every chain."""
        parts, regrafts = self.space.model.n_parts, self.regrafts
        if self.time is None:
            sets = self.sets
            return builders.sweeps(chains, self.tips, parts, sweeps, regrafts, team, probes, sets)
        return builders.time_sweeps(chains, self.time, parts, sweeps, regrafts, team, probes)


Share: TypeAlias = Callable[[ChainLaunch], ChainResult]


class ChainShare:
    """The chains of one device."""

    def __init__(self, engine: ChainEngine, data: ChainData) -> None:
        self._engine, self._data = engine, data
        self._programs: dict[tuple[int, int], Program] = {}
        self._points: Float64 = np.zeros((0, data.space.size))
        """f64[C, n]: where the models are that are held."""
        self._tables: list[Float64] = []
        """f64[C, 2, P, ...] each: arrays, and rows, of the chains' models and of those proposed."""
        self._proposed = self._points
        self._columns = list(data.left_out)
        if not self._columns:
            engine.load_weights(data.weights[None])

    def foresee(self, launch: ChainLaunch) -> None:
        """Find eigen systems and series of all devices' proposed models at once, where dear.

        Each device finds its chains' among the known ones then, if so many are kept.
        """
        space, proposed = self._data.space, launch.proposed
        if proposed is None or space.states < MANY_STATES or 2 * len(proposed) > MOST_SERIES:
            return
        for stack in space.stacks(proposed, space.parts_of(launch.group)):
            stack.series()

    def load(self, launch: ChainLaunch) -> None:
        """Give the engine the models and weights of a launch."""
        if len(launch.words):
            self._load_models(launch)
            if self._columns:
                self._load_weights(launch)

    def run(self, launch: ChainLaunch) -> ChainResult:
        """Run a launch whose models the engine has."""
        words, columns = launch.words, self._columns
        probes = 1 + len(columns) if columns else 0
        if not len(words):
            return ChainResult(words, np.zeros((0, probes)))
        program = self._program(len(words), launch.sweeps, probes)
        lengths = np.concatenate([words.ravel(), np.zeros(probes * len(words))])
        result = self._engine.run(program, lengths, NO_CONTROL).lengths
        after, found = np.split(result, [words.size])
        return ChainResult(
            after.reshape(words.shape).copy(), found.reshape(len(words), probes).copy()
        )

    def _program(self, chains: int, sweeps: int, probes: int) -> Program:
        key, team = (chains, sweeps), self._engine.chains.team
        if key not in self._programs:
            self._programs[key] = self._data.program(chains, sweeps, team, probes)
        return self._programs[key]

    def _load_models(self, launch: ChainLaunch) -> None:
        """Load the models of each chain, and behind them those that are proposed."""
        space = self._data.space
        self._settle(launch.points)
        if launch.proposed is not None:
            parts = space.parts_of(launch.group)
            if len(parts) < space.model.n_parts:
                for table in self._tables:
                    table[:, 1] = table[:, 0]
            self._put(slice(None), 1, parts, space.stacks(launch.proposed, parts))
            self._proposed = launch.proposed
        *tables, rows = (table.reshape(-1, *table.shape[3:]) for table in self._tables)
        self._engine.load_models(ModelStack(tables, rows))

    def _settle(self, points: Float64) -> None:
        """Take models that were proposed and accepted; compute the others that have changed."""
        parts = range(self._data.space.model.n_parts)
        if len(points) != len(self._points):
            stacks = self._data.space.stacks(points)
            self._begin(stacks, len(points))
            self._proposed = points
            for place in (0, 1):
                self._put(slice(None), place, parts, stacks, is_new=True)
        else:
            moved = (points != self._points).any(axis=1)
            taken = moved & (points == self._proposed).all(axis=1)
            for table in self._tables:
                table[taken, 0] = table[taken, 1]
            new = np.flatnonzero(moved & ~taken)
            if new.size:
                self._put(new, 0, parts, self._data.space.stacks(points[new]))
        self._points = points.copy()

    def _begin(self, stacks: Sequence[ModelStack], chains: int) -> None:
        rows = model_rows(stacks[0])
        size = chains, 2, len(stacks)
        tables = [np.empty((*size, *table.shape[1:])) for table in [*stacks[0].tables, rows]]
        self._tables = tables

    def _put(
        self,
        chains: Index | slice,
        place: int,
        parts: Sequence[int],
        stacks: Sequence[ModelStack],
        *,
        is_new: bool = False,
    ) -> None:
        """Write models of some parts; of those with one matrix the rates and weights alone."""
        for part, stack in zip(parts, stacks, strict=True):
            rows, rates = self._tables[-1], np.concatenate(stack.tables[-2:], axis=1)
            if is_new or not stack.has_one_matrix:
                for table, own in zip(
                    self._tables, [*stack.tables, model_rows(stack)], strict=True
                ):
                    table[chains, place, part] = own
                continue
            for table, own in zip(self._tables[-3:-1], stack.tables[-2:], strict=True):
                table[chains, place, part] = own
            rows[chains, place, part, -rates.shape[1] :] = rates

    def _load_weights(self, launch: ChainLaunch) -> None:
        """Load each chain's weights, those of the sites that are there, and unit rows."""
        own, columns, data = launch.weights, self._columns, self._data
        assert own is not None
        rows = np.tile(data.weights, (len(own) + 1 + len(columns), 1))
        rows[: len(own), columns] = own
        rows[len(own), columns] = 0.0
        rows[len(own) + 1 :] = 0.0
        rows[len(own) + 1 + np.arange(len(columns)), columns] = 1.0
        self._engine.load_weights(rows)


class ChainShares:
    """The shares of a rank's devices, and of those of other ranks."""

    def __init__(
        self,
        engines: Sequence[ChainEngine],
        data: ChainData,
        ranks: Ranks = LONE,
        elsewhere: Callable[[], Sequence[ChainEngine]] | None = None,
    ) -> None:
        """``elsewhere``: pickled and called by every other rank, opens engines like these.

        Raises: MltreeError: another rank cannot take part.
        """
        self._ranks = LONE
        self._own = _OfDevices([ChainShare(engine, data) for engine in engines])
        self._engines = engines
        if elsewhere is not None and ranks.size > 1:
            self._ranks, self._number = ranks, new_number()
            ranks.everywhere(partial(_opened, elsewhere, data), self._number)
            weakref.finalize(self, ranks.forget, self._number).atexit = False

    @property
    def room(self) -> ChainRoom:
        """The room of one device: no number of devices may change what chains do."""
        return self._engines[0].chains

    def chains_that_fit(self, slots: int) -> int:
        """Chains of so many CLA slots that all devices have memory for."""
        least = min(engine.room.most for engine in self._engines) // slots
        return least * len(self._engines) * self._ranks.size

    def __call__(self, launch: ChainLaunch) -> ChainResult:
        """Run a launch on all devices of all ranks.

        Raises: MltreeError: another rank has died, or cannot go on.
        """
        if self._ranks.size == 1:
            return self._own(launch)
        launches = [launch.of(span) for span in _spans(len(launch.words), self._ranks.size)]
        return _joined(self._ranks.gather(launches, self._own, self._number))


class _OfDevices:
    """The shares of a rank's devices, which run side by side.

    All models are loaded before any device runs, for one device helps to compute them.
    """

    def __init__(self, shares: Sequence[ChainShare]) -> None:
        self._shares = shares
        self._threads = ThreadPoolExecutor(len(shares))

    def __call__(self, launch: ChainLaunch) -> ChainResult:
        launches = [launch.of(span) for span in _spans(len(launch.words), len(self._shares))]
        if len(launches) > 1:
            self._shares[0].foresee(launch)
        for share, own in zip(self._shares, launches, strict=True):
            share.load(own)
        if len(launches) == 1:
            return self._shares[0].run(launch)
        return _joined([*self._threads.map(ChainShare.run, self._shares, launches)])


def _opened(elsewhere: Callable[[], Sequence[ChainEngine]], data: ChainData) -> Share:
    """Open another rank's engines, and return the function that it answers with."""
    return _OfDevices([ChainShare(engine, data) for engine in elsewhere()])


def _spans(chains: int, shares: int) -> list[slice]:
    ends = [chains * number // shares for number in range(shares + 1)]
    return [slice(first, end) for first, end in pairwise(ends)]


def _joined(several: Sequence[ChainResult]) -> ChainResult:
    return ChainResult(*map(np.concatenate, zip(*several, strict=True)))
