"""The interface between programs and the engines that run them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from mltree.data.patterns import Patterns
from mltree.models.eigen import ModelArrays
from mltree.program.contract import CONTROL_WORDS
from mltree.program.ops.operation import WorkStage
from mltree.program.ops.optimise import LengthOptimiser
from mltree.program.ops.state import ReferenceState
from mltree.program.program import Program
from mltree.system.arrays import Float64
from mltree.system.values import Value

Weights: TypeAlias = npt.NDArray[np.float64 | np.uint16 | np.uint32]
"""Weights of patterns, one row or many. Drawn weights are whole: a thousand rows of a million
patterns are 2 GB in 16 bits each."""

NO_CONTROL: Float64 = np.zeros((0, CONTROL_WORDS))
"""The control records of a program that optimises nothing."""


class Result(Value):
    """Sums, lengths and control records that a program left.

    ``sums`` f64[sums]; ``lengths`` f64[lengths], after OPTIMISE; ``control`` f64[groups, words]
    (:class:`mltree.program.contract.Control`).
    """

    sums: Float64
    lengths: Float64
    control: Float64


class Room(NamedTuple):
    """CLA slots that an engine has room for, and those that suit it best."""

    most: int
    """Slots that fit beside one another."""
    trees: int
    """Slots of trees side by side: with more a launch takes more memory, as much time a tree."""
    near: int
    """Slots of near vectors beside the trees', likewise."""
    matrices: int = 1 << 30
    """Bytes of P matrices of a launch that is after the lnL of trees: all that those leave behind.
    Of 1,000 taxa 1,000 trees of DNA or 40 of proteins, work enough for a GPU."""
    cells: int = 1 << 30
    """Cells of a launch that has many for each of few sums."""
    scores: int = 1 << 30
    """Insertions on the same parts that are scored at a time, a cell each."""
    spread: int = 1
    """Times as many slots of either kind, at most, where trees are on different parts."""
    starts: tuple[float, ...] = ()
    """Shares of a whole slot that lie before each part, and 1 at the end, where the slots of a
    program have the patterns of its parts alone. () where a slot is whole."""

    def trees_at_once(self, slots: int, beside: int = 0) -> int:
        """Number of trees of ``slots`` slots each that are best worked on side by side; at least 1.

        ``beside``: slots that are needed beside the trees'.
        """
        return max(1, min(self.trees, self.most - beside) // slots)

    def rows_of_any(self, slots: int) -> int:
        """Whole slots that as many slots of any single part take."""
        return math.ceil(slots * np.diff(self.starts).max()) if self.starts else slots

    def neighbours(self, slots: int, parts: int) -> list[range]:
        """Ranges of neighbouring parts for which ``slots`` slots fit; at least one part each."""
        ends = [0]
        for end in range(2, parts + 1) if self.starts else ():
            if slots * (self.starts[end] - self.starts[ends[-1]]) > self.most:
                ends.append(end - 1)
        return [range(first, end) for first, end in pairwise([*ends, parts])]

    def near_at_once(self, base: int, sets: int = 1) -> int:
        """Number of near vectors best made at once beside ``base`` slots of trees; at least 1.

        ``sets``: of parts that the trees are on.
        """
        return max(1, min(min(sets, self.spread) * self.near, self.most - base))


class Engine(Protocol):
    """Runs programs over one alignment's patterns, and keeps CLAs between them.

    The engine owns memory, the client owns topology: slots, lengths and cells are indices that
    the client chose, and an engine grows to hold the highest that it meets. The patterns may be of
    several parts, on which trees live as their cases say (:mod:`mltree.program.contract`).
    """

    @property
    def name(self) -> str:
        """The engine and its layout, for reports."""

    @property
    def room(self) -> Room:
        """Slots that fit by the memory plan, and fewer once the device has refused as much.

        Larger work is done in batches, on whose size no result depends.
        """

    def longest_walk(self, trees: int) -> int:
        """Most steps of a walk, where walks suit the lnL of ``trees`` trees; 0 where levels do.

        Subtrees that meet are walked apart where they have so many steps together, and their
        results are kept in slots; see :func:`mltree.program.builders.walk_stages`.
        """

    @property
    def parts(self) -> int:
        """Parts of the patterns (:attr:`mltree.data.patterns.Patterns.parts`)."""

    def load_models(self, models: Sequence[ModelArrays]) -> None:
        """Take models, a row each (:mod:`mltree.program.ops.state`)."""

    def load_weights(self, rows: Weights) -> None:
        """Take rows of pattern weights [R, L]; until then the only row is the patterns' own."""

    def run(self, program: Program, lengths: Float64, control: Float64) -> Result:
        """Run a program on f64[lengths] and f64[groups, CONTROL_WORDS].

        Raises:
            DeviceMemoryError: the device has no room for it; all CLAs are lost, and its
                room has become smaller.
            DeviceError: it has no room for less either.
            WorkerFault: the program could not be completed.
            NumericalError: a sum came out as NaN or infinite.
        """

    def site_log_likelihoods(self, rows: int = 1) -> Float64:
        """The lnL of every pattern, f64[rows, L], which the last EVALUATE_SITES left in its rows.

        They stay where they are: a program may multiply them with rows of weights
        (:func:`mltree.program.builders.rell`).
        """

    def close(self) -> None:
        """Give the memory back until the next program; CLAs are gone then."""


@runtime_checkable
class ReplicateEngine(Engine, Protocol):
    """An engine that takes other patterns for some of its parts."""

    def load_patterns(self, first_part: int, patterns: Patterns) -> None:
        """Take patterns for as many parts, from ``first_part`` on, under the patterns' own weights.

        Each part keeps its number of patterns. Of weights the engine has one row;
        CLAs of those parts lose their meaning.
        """


class ChainRoom(NamedTuple):
    """How an engine sweeps chains (:func:`mltree.program.builders.sweeps`)."""

    team: int = 1
    """Work-groups that share a chain. It depends on the data and the kind of device alone, because
    sums do."""
    at_once: int = 1
    """Chains that are swept in the time of one."""


@runtime_checkable
class ChainEngine(Engine, Protocol):
    """An engine that sweeps chains."""

    @property
    def chains(self) -> ChainRoom:
        """How it does so."""


# The reference engine: the living definition of every operation, in NumPy and fp64.
#
# Each operation (:mod:`mltree.program.ops`) computes by its formula; every device test is
# "device == reference".

UNBOUNDED = 1 << 30
"""CLA slots: it has the host's memory."""


class ReferenceEngine(ReferenceState):
    """Interprets programs one record and one part of the patterns at a time."""

    name = "NumPy reference (AVX layout, fp64)"
    room = Room(UNBOUNDED, UNBOUNDED, UNBOUNDED)
    chains = ChainRoom()

    def __init__(
        self, patterns: Patterns, categories: int, bounds: tuple[float, float], systems: int = 1
    ) -> None:
        """``bounds``: of branch lengths."""
        super().__init__(patterns, categories, systems, bounds)
        self.parts = len(patterns.parts)

    def longest_walk(self, trees: int) -> int:  # noqa: ARG002
        """None: it takes a level at a time as well as a walk."""
        return 0

    def load_weights(self, rows: Weights) -> None:
        """Take rows of weights f64[R, L]."""
        self.weights = rows.astype(np.float64, copy=False)

    def close(self) -> None:
        """Forget the CLAs."""
        self.cla = {}

    def site_log_likelihoods(self, rows: int = 1) -> Float64:
        """f64[rows, L] of the last EVALUATE_SITES."""
        return self.site_lnl[:rows].copy()

    def run(self, program: Program, lengths: Float64, control: Float64) -> Result:
        """Run a program; see :class:`mltree.program.engine.Engine`."""
        self.begin(program.cases, program.cells, program.sums, program.site_rows)

        def compute(first: int, end: int, lengths: Float64) -> Float64:
            self.lengths = lengths
            for stage in program.stages[first:end]:
                assert isinstance(stage, WorkStage)
                stage.compute(self)
            return self.sums

        return run_on_host(program, lengths, control, self.bounds, compute)


Compute: TypeAlias = Callable[[int, int, Float64], Float64]
"""Sums that stages ``first .. end - 1`` of a program leave at f64[lengths]."""


def run_on_host(
    program: Program,
    lengths: Float64,
    control: Float64,
    bounds: tuple[float, float],
    compute: Compute,
) -> Result:
    """Run a program: steps of lengths here, all other stages by ``compute``."""
    optimiser = LengthOptimiser(lengths.copy(), control.copy(), *bounds)
    driver = _HostDriver(program, optimiser, compute)
    program.drive(driver)
    return Result(driver.sums, optimiser.lengths, optimiser.control)


class _HostDriver:
    def __init__(self, program: Program, optimiser: LengthOptimiser, compute: Compute) -> None:
        self.sums = np.zeros(program.sums)
        self._stages, self._optimiser, self._compute = program.stages, optimiser, compute

    def run(self, first: int, end: int) -> None:
        self.sums = self._compute(first, end, self._optimiser.lengths)

    def step(self, at: int) -> None:
        (groups,) = self._stages[at].all_records
        self._optimiser.step(groups, self.sums)

    def is_active(self, groups: int) -> bool:  # noqa: ARG002
        return self._optimiser.active
