"""The seam between what is computed and who computes it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from mltree.data.patterns import Patterns
from mltree.models.eigen import ModelArrays
from mltree.program.program import Program
from mltree.system.arrays import Float64
from mltree.system.contract import CONTROL_WORDS
from mltree.system.values import Value

Weights: TypeAlias = npt.NDArray[np.float64 | np.uint16 | np.uint32]
"""Of patterns, one row or many. What is drawn is whole: a thousand rows of a million patterns are 2
GB in 16 bits each."""

NO_CONTROL: Float64 = np.zeros((0, CONTROL_WORDS))
"""The control records of a program that optimises nothing."""


class Result(Value):
    """What came back from a program.

    ``sums`` f64[sums]; ``lengths`` f64[lengths], after OPTIMISE; ``control`` f64[groups, words]
    (:class:`mltree.system.contract.Control`).
    """

    sums: Float64
    lengths: Float64
    control: Float64


class Room(NamedTuple):
    """CLA slots that an engine has room for, and those that suit it best."""

    most: int
    """That fit beside one another."""
    trees: int
    """Of trees side by side: with more a launch takes more memory, but no less time for each."""
    near: int
    """Of near vectors beside the trees', likewise."""
    matrices: int = 1 << 30
    """Bytes of P matrices of a launch that is after the lnL of trees: all that those leave behind.
    Of 1,000 taxa 1,000 trees of DNA or 40 of proteins, work enough for a GPU."""
    cells: int = 1 << 30
    """Of a launch that has many for each of few sums."""
    scores: int = 1 << 30
    """Insertions on the same parts that are scored at a time, a cell each."""
    starts: tuple[float, ...] = ()
    """Where the slots of a program have the patterns of its parts alone: shares of a whole slot,
    what is before each part and 1 at the end. () where a slot is whole."""

    def trees_at_once(self, slots: int, beside: int = 0) -> int:
        """Trees of so many slots each that are best worked on side by side; one at least.

        ``beside``: slots that are needed beside them.
        """
        return max(1, min(self.trees, self.most - beside) // slots)

    def rows_of_any(self, slots: int) -> int:
        """The whole slots that so many take of any part, where they are of one."""
        return math.ceil(slots * np.diff(self.starts).max()) if self.starts else slots

    def neighbours(self, slots: int, parts: int) -> list[range]:
        """The parts in ranges, of each of which so many slots fit; one part at least."""
        ends = [0]
        for end in range(2, parts + 1) if self.starts else ():
            if slots * (self.starts[end] - self.starts[ends[-1]]) > self.most:
                ends.append(end - 1)
        return [range(first, end) for first, end in pairwise([*ends, parts])]

    def near_at_once(self, base: int) -> int:
        """Near vectors that are best made at once beside ``base`` slots of trees; one at least."""
        return max(1, min(self.near, self.most - base))


class Engine(Protocol):
    """Runs programs over one alignment's patterns, and keeps CLAs between them.

    The engine owns memory, the client owns topology: slots, lengths and cells are indices that
    the client chose, and an engine grows to hold the highest that it meets. The patterns may be of
    several parts, on which trees live as their cases say (:mod:`mltree.system.contract`).
    """

    @property
    def name(self) -> str:
        """The engine and its layout, for reports."""

    @property
    def room(self) -> Room:
        """What fits by the memory plan, and less once the device has refused as much.

        Larger work is done in batches, on whose size no result depends.
        """

    def longest_walk(self, trees: int) -> int:
        """How far walks go where they are best for lnL of so many trees; 0 where levels are.

        Subtrees that meet are walked apart where they have so many steps together, and their
        results are kept in slots; see :func:`mltree.program.builders.walk_stages`.
        """

    @property
    def parts(self) -> int:
        """Parts of the patterns (:attr:`mltree.data.patterns.Patterns.parts`)."""

    def load_models(self, models: Sequence[ModelArrays]) -> None:
        """Take models, a row each (:mod:`mltree.program.model_rows`)."""

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
        """Give the memory back until there is more to do; CLAs are gone then."""


@runtime_checkable
class ReplicateEngine(Engine, Protocol):
    """An engine whose parts take turns in having other patterns."""

    def load_patterns(self, first_part: int, patterns: Patterns) -> None:
        """Take these for those of as many parts, from ``first_part`` on, under their own weights.

        They have that many patterns each that those parts have. Of weights the engine has one row;
        CLAs of those parts lose their meaning.
        """
