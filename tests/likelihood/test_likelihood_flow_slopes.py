"""What lnL gains with shared exchangeabilities, against differences of lnL, on every device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from verifier import VerifiedEngine

from mltree.device.layout import cpu_layout, gpu_layout
from mltree.device.shards import DeviceSpec, ShardedEngine
from mltree.likelihood.likelihood import TreeLikelihood
from mltree.models.eigen import ModelArrays, decompose
from mltree.models.parameters import exchangeability_slopes
from mltree.program.cases import Case
from mltree.program.engine import ReferenceEngine

BOUNDS = (1e-6, 100.0)
STEP = 1e-5
RELATIVE = 1e-9
"""Of a device, to the largest of a class's slopes; 100 taxa times 1e-16, with room to cancel."""

SINGLE_RELATIVE = 1e-3


@pytest.mark.cases(3, 40)
def test_slopes_are_differences(case: int, make_problem: Callable[..., Any]) -> None:
    """Of classes with frequencies of their own, two rates each, one of them 0 at times."""
    rng = np.random.default_rng([case, 5])
    classes, taxa = int(rng.integers(1, 4)), int(rng.integers(4, 9))
    problem = make_problem(taxa, 25, categories=2, seed=case)
    problem.tree.lengths[0] = BOUNDS[0]
    pairs = np.exp(rng.normal(size=6))
    frequencies = rng.dirichlet(np.full(4, 3.0), classes)
    rates = np.tile([0.0 if case % 2 else 0.2, rng.uniform(0.5, 2)], classes)
    weights = rng.dirichlet(np.full(2 * classes, 3.0))
    engine = ReferenceEngine(problem.patterns, 2 * classes, BOUNDS, classes)
    likelihood = TreeLikelihood(VerifiedEngine(engine, taxa), BOUNDS)

    def arrays(logs: np.ndarray) -> ModelArrays:
        every = np.repeat(np.exp(logs)[None], classes, axis=0)
        found = decompose(every, frequencies, rates, weights)
        return (
            found
            if classes > 1
            else ModelArrays(*(t[0] for t in list(vars(found).values())[:6]), rates, weights)
        )

    def lnl(logs: np.ndarray) -> float:
        return float(likelihood.log_likelihoods([problem.tree], [Case((arrays(logs),))])[0])

    logs = np.log(pairs)
    ((slopes,),) = likelihood.flow_slopes([problem.tree], [Case((arrays(logs),))])
    found, changes = exchangeability_slopes(pairs, frequencies, slopes)
    axes = STEP * np.eye(6)
    expected = [(lnl(logs + one) - lnl(logs - one)) / (2 * STEP) for one in axes]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert (changes > 0).all()
    assert found.sum() == pytest.approx(0.0, abs=1e-8)


def mixture(rng: np.random.Generator, states: int, classes: int, each: int) -> ModelArrays:
    pairs = np.exp(rng.normal(size=(1, states * (states - 1) // 2)))
    frequencies = rng.dirichlet(np.full(states, 2.0), classes)
    rates = np.tile(rng.gamma(1.0, size=each) + 1e-3, classes)
    weights = rng.dirichlet(np.full(each * classes, 3.0))
    return decompose(np.repeat(pairs, classes, axis=0), frequencies, rates, weights)


def compare(device: Any, problem: Any, arrays: ModelArrays, relative: float = RELATIVE) -> None:
    size = arrays.n_categories, BOUNDS, arrays.n_systems
    reference = TreeLikelihood(ReferenceEngine(problem.patterns, *size), BOUNDS)
    used = TreeLikelihood(VerifiedEngine(device, problem.patterns.n_tips), BOUNDS)
    case = Case((arrays,))
    ((expected,),) = reference.flow_slopes([problem.tree], [case])
    ((found,),) = used.flow_slopes([problem.tree], [case])
    largest = np.abs(expected).max(axis=(1, 2), keepdims=True)
    assert np.max(np.abs(found - expected) / (largest + 1)) < relative
    again = used.flow_slopes([problem.tree], [case])[0][0]
    np.testing.assert_array_equal(again, found)


@pytest.mark.cases(2, 30)
@pytest.mark.parametrize(("states", "classes", "each"), [(4, 3, 2), (20, 2, 1)])
def test_devices(
    case: int, states: int, classes: int, each: int, open_engine: Callable[..., Any],
    make_problem: Callable[..., Any],
) -> None:  # fmt: skip
    """Of several chunks, with gaps, short and long branches, patterns that no site shows."""
    rng = np.random.default_rng([case, states])
    taxa, patterns = int(rng.integers(4, 12)), int(rng.choice([1, 9, 300, 700]))
    problem = make_problem(taxa, patterns, states=states, categories=classes * each, seed=case)
    problem.tree.lengths[:] = 10.0 ** rng.uniform(-6, 1, problem.tree.n_edges)
    problem.patterns.weights[rng.permutation(patterns)[: patterns // 4]] = 0.0
    device = open_engine(problem.patterns, classes * each, systems=classes)
    compare(device, problem, mixture(rng, states, classes, each))


@pytest.mark.cases(2, 20)
def test_in_slices(case: int, open_engine: Callable[..., Any], make_problem: Any) -> None:
    """Cells for a few classes at a time make the same sums, in no more memory than that."""
    rng = np.random.default_rng([case, 7])
    states, classes = (4, 5) if case % 2 else (20, 3)
    problem = make_problem(6, 700, states=states, categories=classes, seed=case)
    arrays = mixture(rng, states, classes, 1)
    found = []
    for most in (1 << 30, 2 * states**2 + 1, 1):
        engine = open_engine(problem.patterns, classes, systems=classes)
        engine.room = engine.room._replace(cells=most)
        used = TreeLikelihood(VerifiedEngine(engine, 6), BOUNDS)
        found.append(used.flow_slopes([problem.tree], [Case((arrays,))])[0][0])
        if hasattr(engine, "memory"):
            own = min(classes, max(1, most // states**2)) * states**2
            a_cell = engine.layout.cell_bytes(700)
            assert engine.memory.size("partial") <= (1 + own) * a_cell
    for other in found[1:]:
        np.testing.assert_array_equal(found[0], other)


def test_in_slices_of_parts_and_sharded(
    open_native: Callable[..., Any], make_problem: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Of two parts on a lone session, in slices, and with some of the patterns at a time."""
    rng = np.random.default_rng(4)
    problem = make_problem(6, 700, categories=3, seed=2)
    patterns = replace(problem.patterns, ends=(300, 700))
    cases = [Case((mixture(rng, 4, 3, 1), mixture(rng, 4, 3, 1)))]
    lone = open_native(patterns, 3, systems=3)
    monkeypatch.setattr("mltree.device.memory.PARTIAL_SUMS", 1)
    sliced = open_native(patterns, 3, systems=3)
    spec = DeviceSpec(sliced.device, sliced.layout, 1.0, 10 * sliced.layout.cla_bytes(500))
    sharded = ShardedEngine(patterns, [spec], BOUNDS, 13)
    assert sharded.n_slices > 1
    expected: list[Any] = []
    for engine in (lone, sliced, sharded):
        assert (engine.room.cells > 16) == (engine is lone)
        used = TreeLikelihood(VerifiedEngine(engine, 6), BOUNDS)
        (found,) = used.flow_slopes([problem.tree], cases)
        again = used.flow_slopes([problem.tree], cases)[0]
        expected = expected or found
        for own, other in zip(expected * 2, [*found, *again], strict=True):
            np.testing.assert_array_equal(own, other)


def test_fp32(open_native: Callable[..., Any], make_problem: Callable[..., Any]) -> None:
    """Also on devices without doubles."""
    problem = make_problem(30, 90, categories=4, seed=9)
    size = 4, problem.patterns.alphabet.n_codes, 4
    is_cpu = open_native(problem.patterns, 4).layout.lanes == 1
    layout = cpu_layout(*size, 8, True) if is_cpu else gpu_layout(*size, 8, True, 4)
    arrays = mixture(np.random.default_rng(9), 4, 2, 2)
    for own in (layout, replace(layout, fp64=False)):
        device = open_native(problem.patterns, 4, layout=own, systems=2)
        compare(device, problem, arrays, SINGLE_RELATIVE)
