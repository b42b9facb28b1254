"""Eigen systems and gamma quantiles of a device against NumPy's: the same bits."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from conftest import DEVICES

from mltree.device.models import GROUP, WORTH, DeviceModels
from mltree.models import portable
from mltree.models.portable import jacobi, log
from mltree.models.rates import LARGEST_SHAPE, elementwise, halley
from mltree.models.rates import _excess as excess
from mltree.system.arrays import Float64


@pytest.fixture(params=DEVICES, ids=lambda device: device.name)
def models(request: pytest.FixtureRequest) -> DeviceModels:
    """Models of a device whose kernels are loaded at once."""
    made = DeviceModels(request.param.handle)
    made._spent = WORTH
    return made


@pytest.fixture(params=[1, GROUP], ids=["an item a matrix", "a group a matrix"])
def grouped(models: DeviceModels, request: pytest.FixtureRequest) -> DeviceModels:
    """Models of a device in groups as CPUs have them, and as GPUs have them."""
    models._items = request.param
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
