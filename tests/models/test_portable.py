"""Numerics without LAPACK and BLAS, against LAPACK and BLAS."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mltree.models.portable import (
    eigensystem,
    exp,
    exp_of_many,
    is_definite,
    log,
    log_of_many,
    product,
    solve,
)

SIZES = [0, 1, 2, 3, 4, 5, 20, 61]


def symmetric(size: int, seed: int, count: int = 3) -> np.ndarray:
    """f64 [count, size, size] with elements of all magnitudes, some of them zero."""
    rng = np.random.default_rng([seed, size])
    scale = np.exp(rng.normal(scale=4.0, size=size))
    a = rng.normal(size=(count, size, size)) * np.sqrt(scale[:, None] * scale)
    a = a + a.swapaxes(-1, -2)
    a[np.abs(a) < 0.05] = 0.0
    return a


def assert_eigensystem(a: np.ndarray) -> None:
    values, vectors = eigensystem(a)
    size = a.shape[-1]
    largest = max(np.abs(a).max(initial=0.0), 1e-300)
    assert np.abs(values - np.linalg.eigvalsh(a)).max(initial=0.0) < 1e-14 * (1 + size) * largest
    back = (vectors * values[..., None, :]) @ vectors.swapaxes(-1, -2)
    assert np.abs(back - a).max(initial=0.0) < 1e-14 * (1 + size) * largest
    gram = vectors.swapaxes(-1, -2) @ vectors
    assert np.abs(gram - np.eye(size)).max(initial=0.0) < 1e-13


@pytest.mark.parametrize("size", SIZES)
def test_eigensystem_of_many_magnitudes(size: int) -> None:
    assert_eigensystem(symmetric(size, 1))


@pytest.mark.parametrize("size", SIZES)
def test_eigensystem_of_coinciding_eigenvalues(size: int) -> None:
    for a in (np.zeros((size, size)), np.eye(size), np.ones((size, size))):
        assert_eigensystem(a)


@settings(derandomize=True, max_examples=40)
@given(
    size=st.integers(1, 8),
    elements=st.lists(st.floats(-1e6, 1e6), min_size=36, max_size=36),
)
def test_eigensystem_of_anything(size: int, elements: list[float]) -> None:
    a = np.zeros((size, size))
    row, column = np.triu_indices(size)
    a[row, column] = a[column, row] = elements[: row.size]
    assert_eigensystem(a)


@pytest.mark.parametrize("size", SIZES)
def test_a_matrix_alone_has_the_bits_that_it_has_among_others(size: int) -> None:
    a = symmetric(size, 9)
    a[1] = np.diag(np.arange(size))  # needs no rotation while the others do
    together = eigensystem(a)
    for n, one in enumerate(a):
        for alone, beside in zip(eigensystem(one), together, strict=True):
            np.testing.assert_array_equal(alone, beside[n])


@pytest.mark.parametrize("shapes", [((4, 4), (4, 4)), ((7, 3, 20, 20), (7, 3, 20, 20))])
def test_product(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    a, b = (np.random.default_rng(n).normal(size=shape) for n, shape in enumerate(shapes))
    np.testing.assert_allclose(product(a, b), a @ b, atol=1e-13)


@settings(derandomize=True)
@given(size=st.integers(0, 12), seed=st.integers(0, 10**6))
def test_solve(size: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    root, x = rng.normal(size=(size, size)), rng.normal(size=size)
    a = root @ root.T + 0.1 * np.eye(size)
    found = solve(a, a @ x)
    np.testing.assert_allclose(found, x, atol=1e-9)


@settings(derandomize=True)
@given(size=st.integers(0, 12), least=st.floats(-1, 1), seed=st.integers(0, 10**6))
def test_is_definite(size: int, least: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    assume(abs(least) > 1e-6)
    turn, _ = np.linalg.qr(rng.normal(size=(3, size, size)))
    values = np.sort(least + rng.exponential(size=(3, size)) * (np.arange(size) > 0))
    a = turn * values[:, None, :] @ turn.swapaxes(1, 2)
    assert is_definite(a).tolist() == [bool(np.all(own > 0)) for own in values]


def test_is_definite_of_what_overflows_once_a_pivot_is_none() -> None:
    steep = np.array([[-1.0, 1e200, 1.0], [1e200, 1.0, 1e200], [1.0, 1e200, 1.0]])
    tiny = np.array([[1e-300, 1.0], [1.0, 1.0]])
    assert not is_definite(steep)
    assert is_definite(np.stack([tiny, np.eye(2)])).tolist() == [False, True]


def test_exp_and_log_go_back_and_forth() -> None:
    """A parameter that is taken from its logarithm keeps its bits from then on."""
    x = exp(np.random.default_rng(5).uniform(-30.0, 30.0, (5, 400)))
    np.testing.assert_array_equal(exp(log(x)), x)


def test_exp_and_log_of_many_are_the_c_librarys() -> None:
    x = np.random.default_rng(3).uniform(-745.0, 709.0, (20, 30, 4))
    x[0] *= 1e-6
    exact = np.vectorize(math.exp)(x)
    assert (np.abs(exp_of_many(x) - exact) <= 2 * np.spacing(exact)).all()
    positive = np.maximum(exact, 5e-324)
    positive[1] = 1.0 + x[0]
    logs = np.vectorize(math.log)(positive)
    assert (np.abs(log_of_many(positive) - logs) <= 2 * np.spacing(np.abs(logs))).all()


def test_exp_and_log_of_many_at_their_ends() -> None:
    np.testing.assert_array_equal(exp_of_many(np.array([-np.inf, -1e9, 0.0])), [0.0, 0.0, 1.0])
    np.testing.assert_array_equal(log_of_many(np.array([-1.0, 0.0, 1.0])), [np.nan, -np.inf, 0.0])
