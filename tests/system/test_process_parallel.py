"""Work in shares: all of it, in order, as many at once as was said, and what fails says so."""

import threading
import time

import pytest

from mltree.system.process import (
    VARIABLE,
    cpu_seconds,
    is_mapping,
    map_blocks,
    parallel_map,
    prefetched,
)

PATIENCE = 60.0
"""Seconds after which two shares that wait for each other never met."""


@pytest.mark.parametrize("at_once", [1, 2, 9])
def test_answers_keep_their_order(at_once: int) -> None:
    seen = []

    def work(share: int) -> int:
        time.sleep(0.01 * (5 - share))
        seen.append(is_mapping())
        return share * share

    assert parallel_map(work, range(5), at_once) == [0, 1, 4, 9, 16]
    assert seen == [at_once > 1] * 5
    assert not is_mapping()


def test_shares_are_worked_on_at_once() -> None:
    both = threading.Barrier(2, timeout=PATIENCE)
    assert sorted(parallel_map(lambda _: both.wait(), range(2), 2)) == [0, 1]


def test_what_fails_fails_the_whole_once_nothing_is_under_way() -> None:
    under_way = []

    def work(share: int) -> None:
        if share == 1:
            raise KeyError(share)
        under_way.append(share)
        time.sleep(0.05)
        under_way.remove(share)

    with pytest.raises(KeyError):
        parallel_map(work, range(3), 3)
    assert not under_way
    assert not is_mapping()


@pytest.mark.parametrize("threads", ["1", "2"])
def test_the_next_is_made_while_one_is_used(threads: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, threads)
    begun = [threading.Event() for _ in range(4)]

    def work(share: int) -> int:
        begun[share].set()
        return share * share

    made = prefetched(work, range(4))
    for share in range(4):
        assert next(made) == share * share
        if share < 3:
            assert begun[share + 1].wait(PATIENCE if threads == "2" else 0) == (threads == "2")
        if share < 2:
            assert not begun[share + 2].is_set(), "memory is for two"
    assert list(made) == []


def test_the_time_of_all_threads_counts() -> None:
    def burn(_: object) -> float:
        began = time.thread_time()
        while time.thread_time() - began < 0.05:
            pass
        return time.thread_time() - began

    before = cpu_seconds()
    spent = sum(parallel_map(burn, range(3), 3)) + burn(None)
    assert cpu_seconds() - before >= spent


@pytest.mark.parametrize("threads", ["1", "2", "5"])
@pytest.mark.parametrize("count", [0, 1, 10, 11, 95])
def test_blocks_are_the_same_on_any_number_of_threads(
    threads: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, threads)
    blocks = map_blocks(lambda block: (block.start, block.stop), count, 10)
    assert [first for first, _ in blocks] == list(range(0, max(count, 1), 10))
    assert [end for _, end in blocks] == [*range(10, count, 10), count]
