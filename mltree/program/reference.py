"""The reference engine: the living definition of every operation, in NumPy and fp64.

Each operation (:mod:`mltree.program.ops`) computes by its formula; every device test is
"device == reference".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mltree.data.patterns import Patterns
from mltree.models.eigen import ModelArrays
from mltree.program.engine import Result, Room, Weights
from mltree.program.ops.optimise import LengthOptimiser
from mltree.program.ops.state import ReferenceState
from mltree.program.program import Program
from mltree.system.arrays import Float64

UNBOUNDED = 1 << 30
"""CLA slots: it has the host's memory."""


class ReferenceEngine:
    """Interprets programs one record and one part of the patterns at a time."""

    name = "NumPy reference (AVX layout, fp64)"
    room = Room(UNBOUNDED, UNBOUNDED, UNBOUNDED)

    def __init__(
        self,
        patterns: Patterns,
        categories: int,
        length_bounds: tuple[float, float],
        systems: int = 1,
    ) -> None:
        self.parts = len(patterns.parts)
        self.state = ReferenceState(patterns, categories, systems)
        self._bounds = length_bounds

    def longest_walk(self, trees: int) -> int:  # noqa: ARG002
        """None: it takes a level at a time as well as a walk."""
        return 0

    def load_models(self, models: Sequence[ModelArrays]) -> None:
        """Take models, a row each."""
        self.state.load_models(models)

    def load_weights(self, rows: Weights) -> None:
        """Take rows of weights f64[R, L]."""
        self.state.weights = rows.astype(np.float64, copy=False)

    def load_patterns(self, first_part: int, patterns: Patterns) -> None:
        """See :meth:`mltree.program.engine.ReplicateEngine.load_patterns`."""
        self.state.load_patterns(first_part, patterns)

    def close(self) -> None:
        """Forget the CLAs."""
        self.state.cla = {}

    def site_log_likelihoods(self, rows: int = 1) -> Float64:
        """f64[rows, L] of the last EVALUATE_SITES."""
        return self.state.site_lnl[:rows].copy()

    def run(self, program: Program, lengths: Float64, control: Float64) -> Result:
        """Run a program; see :class:`mltree.program.engine.Engine`."""
        optimiser = LengthOptimiser(lengths.copy(), control.copy(), *self._bounds)
        self.state.begin(
            program.cases, program.cells, program.sums, program.site_rows, optimiser.lengths
        )
        program.drive(_Interpreter(program, self.state, optimiser))
        return Result(self.state.sums, optimiser.lengths, optimiser.control)


class _Interpreter:
    """One program on its way, stage by stage."""

    def __init__(self, program: Program, state: ReferenceState, optimiser: LengthOptimiser) -> None:
        self._stages = program.stages
        self._state = state
        self._optimiser = optimiser

    def run(self, first: int, end: int) -> None:
        for stage in self._stages[first:end]:
            stage.compute(self._state)

    def step(self, at: int) -> None:
        (groups,) = self._stages[at].all_records()
        self._optimiser.step(groups, self._state.sums)

    def is_active(self, groups: int) -> bool:  # noqa: ARG002
        return self._optimiser.active
