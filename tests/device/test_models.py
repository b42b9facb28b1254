"""Eigen systems, series and gamma quantiles of a device against NumPy's: the same bits."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from conftest import DEVICES

from mltree.device.models import WORTH, DeviceModels
from mltree.models import eigen, portable
from mltree.models.eigen import System, decompose
from mltree.models.portable import jacobi, log
from mltree.models.rates import LARGEST_SHAPE, elementwise, halley
from mltree.models.rates import _excess as excess
from mltree.system.arrays import Float64


@pytest.fixture(params=DEVICES, ids=lambda device: device.name)
def models(request: pytest.FixtureRequest) -> DeviceModels:
    """Models of a device whose kernels are loaded at once."""
    made = DeviceModels(request.param)
    made._spent = WORTH
    return made


@pytest.fixture(params=[True, False], ids=["an item a matrix", "a group a matrix"])
def grouped(models: DeviceModels, request: pytest.FixtureRequest) -> DeviceModels:
    """Models of a device in groups as CPUs have them, and as GPUs have them."""
    models._is_cpu = request.param
    return models


def symmetric(states: int, count: int, seed: int) -> Float64:
    """Matrices f64[n, S, S]: of many sizes, some with equal eigenvalues, zeros or blocks."""
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(count, states, states)) * np.exp(3 * rng.normal(size=(count, 1, 1)))
    a *= rng.random((count, states, states)) < rng.choice([0.1, 0.5, 1.0], (count, 1, 1))
    a = a + a.swapaxes(-1, -2)
    a[0] = np.diag(rng.normal(size=states))
    a[1] = np.ones((states, states)) - states * np.eye(states)
    return a


@pytest.mark.parametrize("states", [2, 3, 4, 5, 16, 20, 61])
def test_eigen_systems_have_the_bits_of_numpys(grouped: DeviceModels, states: int) -> None:
    a = symmetric(states, 4 if states > 20 else 40, states)
    for found, expected in zip(grouped(jacobi, a.copy()), jacobi(a), strict=True):
        np.testing.assert_array_equal(found, expected)


def sparse_systems(states: int, count: int, seed: int) -> list[System]:
    """Eigen systems of matrices most of whose states do not become each other in one change."""
    rng = np.random.default_rng(seed)
    row, column = np.triu_indices(states, 1)
    systems = []
    for _ in range(count):
        rates = np.exp(rng.normal(size=len(row)) * rng.choice([0.1, 3.0]))
        kept = rng.random(len(row)) < rng.choice([0.0, 0.15, 0.8])
        pi = rng.dirichlet(np.full(states, rng.choice([0.3, 8.0])))
        arrays = decompose(rates * (kept | (column - row == 1)), pi, np.ones(1), np.ones(1))
        systems.append(arrays.system(0))
    return systems


@pytest.mark.parametrize("states", [2, 3, 4, 20, 61])
@pytest.mark.cases(1, 30)
def test_series_have_the_bits_of_numpys(
    grouped: DeviceModels, states: int, case: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    systems = sparse_systems(states, 3, 100 * case + states)
    words = []
    for by in (None, grouped):
        monkeypatch.setattr(portable, "on_device", by)
        monkeypatch.setattr(eigen, "_known_series", {})
        words.append([series.words for series in eigen.series_of(systems)])
    for found, expected in zip(*words, strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.cases(4, 100)
def test_quantiles_have_the_bits_of_numpys(grouped: DeviceModels, case: int) -> None:
    rng = np.random.default_rng(case)
    shapes = np.exp(rng.uniform(np.log(1e-3), np.log(LARGEST_SHAPE), 50))
    shapes[:3] = 1e-300, 9.9999, LARGEST_SHAPE
    p = np.sort(rng.random(int(rng.integers(1, 12))))
    arrays = shapes, elementwise(excess, shapes), p, log(p)
    for found, expected in zip(grouped(halley, *arrays), halley(*arrays), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_numpy_computes_before_kernels_are_worth_loading(models: DeviceModels) -> None:
    models._spent = 0.0
    models(jacobi, symmetric(4, 2, 1))
    assert "_kernels" not in vars(models)
    assert models._spent > 0


def test_threads_share_a_device_without_waiting(models: DeviceModels) -> None:
    a = symmetric(20, 30, 7)
    expected, found = jacobi(a), list[Any]()
    threads = [threading.Thread(target=lambda: found.append(models(jacobi, a))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == len(threads)
    for values, vectors in found:
        np.testing.assert_array_equal(values, expected[0])
        np.testing.assert_array_equal(vectors, expected[1])


def test_formulas_go_to_the_device_once_one_is_open(
    models: DeviceModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = symmetric(4, 5, 3)
    alone = portable.eigensystem(a)
    monkeypatch.setattr(portable, "on_device", models)
    before = models._spent
    for found, expected in zip(portable.eigensystem(a), alone, strict=True):
        np.testing.assert_array_equal(found, expected)
    assert models._spent == before
