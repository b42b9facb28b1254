"""The seam between what is computed and who computes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from mltree.contract import CONTROL_WORDS
from mltree.likelihood.program import Program

__all__ = ["NO_CONTROL", "Engine", "Result"]

Float64 = npt.NDArray[np.float64]

NO_CONTROL: Float64 = np.zeros((0, CONTROL_WORDS))
"""The control records of a program that optimises nothing."""


@dataclass(frozen=True)
class Result:
    """What came back from a program.

    ``sums`` f64[cells]; ``lengths`` f64[lengths], after OPTIMISE; ``control`` f64[groups, words]
    (:class:`mltree.contract.Control`).
    """

    sums: Float64
    lengths: Float64
    control: Float64


class Engine(Protocol):
    """Runs programs over one alignment's patterns, and keeps CLAs between them.

    The engine owns memory, the client owns topology: slots, lengths and cells are indices that
    the client chose, and an engine grows to hold the highest that it meets.
    """

    @property
    def name(self) -> str:
        """The engine and its layout, for reports."""

    @property
    def max_slots(self) -> int:
        """CLA slots that fit by the memory plan; larger work is done in batches."""

    def longest_walk(self, trees: int) -> int:
        """How far walks go where they are best for lnL of so many trees; 0 where levels are.

        Subtrees that meet are walked apart where they have so many steps together, and their
        results are kept in slots; see :func:`mltree.likelihood.walks.walk_stages`.
        """

    def load_models(self, rows: Float64) -> None:
        """Take model rows f64[M, MODEL_WORDS] (see :mod:`mltree.likelihood.model_rows`)."""

    def run(self, program: Program, lengths: Float64, control: Float64) -> Result:
        """Run a program on f64[lengths] and f64[groups, CONTROL_WORDS].

        Raises:
            WorkerFault: the program could not be completed.
            NumericalError: a sum came out as NaN or infinite.
        """

    def site_log_likelihoods(self) -> Float64:
        """The lnL of every pattern, f64[L], from the last EVALUATE_SITES."""
