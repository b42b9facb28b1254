"""Groups of other ranks: what they are sent, and what comes back."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pytest
from launches import Beside

from mltree.device.session import Session
from mltree.device.shards import PROGRAMS, DeviceSpec, ShardedEngine, ShardGroup
from mltree.likelihood.likelihood import TreeLikelihood
from mltree.program import builders
from mltree.program.engine import NO_CONTROL
from mltree.system.errors import DeviceError, NumericalError

if TYPE_CHECKING:
    from conftest import Problem

BOUNDS = (1e-6, 100.0)

OpenDevice = Callable[..., Session]


@pytest.fixture(scope="module")
def problem(make_problem: Callable[..., Problem]) -> Problem:
    return make_problem(7, 1100)


def shared(
    session: Session, problem: Problem, ranks: Beside, memory_limit: int | None = None
) -> ShardedEngine:
    specs = [DeviceSpec(session.device, session.layout, 1.0, memory_limit)]
    return ShardedEngine(
        problem.patterns, specs, BOUNDS, 100,
        ranks=ranks, elsewhere=lambda: ShardGroup(specs).answer,
    )  # fmt: skip


def test_programs_are_sent_once(open_native: OpenDevice, problem: Problem) -> None:
    session = open_native(problem.patterns, problem.categories)
    beside = Beside(2)
    engine = shared(session, problem, beside)
    engine.load_models(problem.models)
    sizes = []
    for _ in range(PROGRAMS + 4):
        before, program = beside.bytes_sent, builders.traversal([problem.tree])
        for _ in range(2):
            engine.run(program, problem.tree.lengths, NO_CONTROL)
        sizes.append(beside.bytes_sent - before)
    whole = len(pickle.dumps(program))
    assert max(sizes) < 2 * whole
    assert len(engine._group._programs) <= PROGRAMS


def test_what_goes_wrong_elsewhere_is_raised_here(
    open_native: OpenDevice, problem: Problem
) -> None:
    """As it is where it went wrong: a search may know what to do."""
    session = open_native(problem.patterns, problem.categories)
    likelihood = TreeLikelihood(shared(session, problem, Beside(2)), BOUNDS)
    tree = problem.tree.copy()
    tree.lengths[0] = np.nan
    with pytest.raises(NumericalError, match=r"a sum of stage 2 \(Reduce\)"):
        likelihood.log_likelihoods([tree], [problem.case])
    with pytest.raises(DeviceError, match="do not fit into"):
        shared(session, problem, Beside(3), 1000)
