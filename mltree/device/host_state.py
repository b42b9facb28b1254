"""A program's numbers on the host, where its parts run on several devices."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from mltree.arrays import Float64
from mltree.contract import CONTROL_WORDS, Control
from mltree.launch import StateLayout
from mltree.likelihood.program import Program

__all__ = ["HostState"]

Acc = npt.NDArray[Any]


class HostState:
    """The numbers, as they lie in a session's buffer (``session.h``)."""

    def __init__(self, acc: np.dtype[Any], program: Program, lengths: Float64, control: Float64):
        layout = StateLayout(len(lengths), len(control), program.sums)
        self.words: Acc = np.zeros(layout.words, acc)
        self.header = self.words[layout["HEADER"]]
        self.control = self.words[layout["CONTROL"]].reshape(-1, CONTROL_WORDS)
        self.lengths = self.words[layout["LENGTHS"]]
        self.sums = self.words[layout["SUMS"]]
        self.control[:] = control
        self.lengths[:] = lengths

    @property
    def head(self) -> Acc:
        """Header and lengths: what the site-local stages start from."""
        return np.concatenate([self.header, self.lengths])

    @property
    def is_active(self) -> bool:
        """Whether a group still moves."""
        return bool(self.control[:, Control.ACTIVE].any())
