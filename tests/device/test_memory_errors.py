"""A worker's report, told in the numbers of the program that a caller knows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mltree.device.memory import raise_fault
from mltree.program import builders
from mltree.program.contract import Fault
from mltree.system.errors import NumericalError, WorkerFault
from mltree.tree.topology import random_topology

DEVICE: Any = SimpleNamespace(name="some device")
PROGRAM = builders.smoothing([random_topology(5, np.random.default_rng(1))], 3)


def test_nothing_reported() -> None:
    raise_fault(DEVICE, PROGRAM, Fault.NONE, 0)


def test_a_part_has_its_programs_stages() -> None:
    with pytest.raises(NumericalError, match=r"a sum of stage 2 \(Reduce\)"):
        raise_fault(DEVICE, PROGRAM.part(1, 3), Fault.NOT_FINITE, 1)
    with pytest.raises(WorkerFault, match=r"stopped in stage 3 \(Optimise\): barrier"):
        raise_fault(DEVICE, PROGRAM.part(3, 4), Fault.BARRIER, 0)
