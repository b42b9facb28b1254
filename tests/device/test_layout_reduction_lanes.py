"""Chunks shared out by reduction lane: every one once, and sums with a lone session's bits."""

from __future__ import annotations

from functools import reduce
from operator import add

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltree.device.layout import FEW_CELLS, ordered_sum, patterns_of, share_out
from mltree.program.contract import REDUCE_WIDTH

CHUNKS = st.integers(1, 200)
SHARES = st.lists(st.floats(0.01, 100.0), min_size=1, max_size=40)


@given(CHUNKS, SHARES)
def test_every_lane_once(chunks: int, shares: list[float]) -> None:
    found = share_out(chunks, shares)
    there = min(chunks, REDUCE_WIDTH)
    assert [v for reduction_lanes in found for v in reduction_lanes] == list(range(there))


@given(st.integers(REDUCE_WIDTH, 200), st.lists(st.floats(1.0, 4.0), min_size=1, max_size=8))
def test_lanes_in_proportion(chunks: int, shares: list[float]) -> None:
    """No lane is better off elsewhere: nobody with one more would be done before the last."""
    counts = np.array([len(reduction_lanes) for reduction_lanes in share_out(chunks, shares)])
    last = (counts / shares).max()
    assert ((counts + 1) / shares >= last * (1 - 1e-12)).all()


def test_lanes_of_unequal_devices() -> None:
    def counts(chunks: int, *shares: float) -> list[int]:
        return [len(reduction_lanes) for reduction_lanes in share_out(chunks, shares)]

    assert counts(1000, 1, 1, 1, 1) == [8, 8, 8, 8]
    assert counts(1000, 3, 1) == [24, 8]
    assert counts(1000, 33, 1) == [32, 0]
    assert counts(1000, 31, 1) == [31, 1]
    assert counts(1000, 1, 0) == [32, 0]
    assert counts(2, 1, 2, 3) == [0, 1, 1]
    assert counts(2, 1, 2, 5) == [0, 0, 2]


@given(CHUNKS, st.integers(1, 9), st.data(), SHARES)
def test_every_pattern_once(
    chunks: int, chunk: int, data: st.DataObject, shares: list[float]
) -> None:
    """A device's n-th chunk has the n-th reduction lane of its own, round and round."""
    n_patterns = (chunks - 1) * chunk + data.draw(st.integers(1, chunk), "last chunk")
    found = share_out(chunks, shares)
    where = [
        patterns_of(reduction_lanes, np.arange(n_patterns) // chunk) for reduction_lanes in found
    ]
    assert sorted(np.concatenate(where).tolist()) == list(range(n_patterns))
    for reduction_lanes, own in zip(found, where, strict=True):
        assert (np.diff(own) > 0).all()
        local = np.arange(len(own))
        assert (own % chunk == local % chunk).all()
        of_chunk = [reduction_lanes[n % len(reduction_lanes)] for n in (local // chunk).tolist()]
        np.testing.assert_array_equal(own // chunk % REDUCE_WIDTH, of_chunk)


@pytest.mark.parametrize("cells", [1, 3, FEW_CELLS + 1])
@pytest.mark.parametrize("chunks", [1, 31, 32, 33, 100])
def test_sums_in_order(chunks: int, cells: int) -> None:
    """Strided sums of every device, joined and added one after the other."""
    rng = np.random.default_rng(chunks)
    partials = rng.normal(size=(cells, chunks)) * 10.0 ** rng.integers(0, 3, (cells, 1))
    strided = [
        [reduce(add, row[v::REDUCE_WIDTH].tolist(), 0.0) for v in range(REDUCE_WIDTH)]
        for row in partials
    ]
    there = np.array(strided).T[: min(chunks, REDUCE_WIDTH)]
    np.testing.assert_array_equal(ordered_sum(there), [reduce(add, row) for row in strided])
