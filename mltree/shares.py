"""Work of the host in shares, several of them at once.

Where the device computes by itself, the host lays out one share of a round while the device has
another, and shares are laid out side by side: NumPy leaves Python's lock alone meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, pairwise
from typing import TypeVar

from mltree.threads import threads

__all__ = ["are_at_work", "cpu_seconds", "in_advance", "in_blocks", "in_shares"]

Share = TypeVar("Share")
Done = TypeVar("Done")

MOST = 8
"""Shares at once: with more, threads wait for Python's lock."""

LEAST_BLOCKS = 2
"""Of a share."""

_lock = threading.Lock()
_pools = 0
_seconds = 0.0


def in_shares(work: Callable[[Share], Done], shares: Sequence[Share], at_once: int) -> list[Done]:
    """What the work makes of every share, in their order; so many of them at once."""
    global _pools  # noqa: PLW0603
    at_once = min(at_once, len(shares), MOST)
    if at_once < 2:
        return [work(share) for share in shares]
    with _lock:
        _pools += 1
    try:
        with ThreadPoolExecutor(at_once, "share") as pool:
            return list(pool.map(lambda share: _timed(work, share), shares))
    finally:
        with _lock:
            _pools -= 1


def in_blocks(work: Callable[[slice], Done], count: int, size: int) -> list[Done]:
    """What the work makes of every block of ``size`` among ``count`` things, in their order.

    There is one block at least, perhaps an empty one. Blocks do not depend on how many CPUs there
    are: neither do sums over them.
    """
    blocks = [slice(first, min(first + size, count)) for first in range(0, max(count, 1), size)]
    most = len(blocks) // LEAST_BLOCKS
    if most < 2:
        return [work(block) for block in blocks]
    at_once = min(threads().number, most, MOST)
    ends = [len(blocks) * n // at_once for n in range(at_once + 1)]
    runs = [blocks[first:end] for first, end in pairwise(ends)]
    return list(chain.from_iterable(in_shares(lambda run: [*map(work, run)], runs, at_once)))


def in_advance(work: Callable[[Share], Done], shares: Iterable[Share]) -> Iterator[Done]:
    """What the work makes of every share, in their order; of the next while one is used.

    With one thread, of each when it is asked for.
    """
    if threads().number < 2:
        yield from map(work, shares)
        return
    with ThreadPoolExecutor(1, "advance") as pool:
        coming: Future[Done] | None = None
        for share in shares:
            done, coming = coming, pool.submit(_timed, work, share)
            if done is not None:
                yield done.result()
        if coming is not None:
            yield coming.result()


def _timed(work: Callable[[Share], Done], share: Share) -> Done:
    global _seconds  # noqa: PLW0603
    began = time.thread_time()
    try:
        return work(share)
    finally:
        spent = time.thread_time() - began
        with _lock:
            _seconds += spent


def are_at_work() -> bool:
    """Whether shares are worked on just now: whoever polls keeps them from Python's lock."""
    return _pools > 0


def cpu_seconds() -> float:
    """CPU seconds of this thread, and of all shares that others have worked on."""
    return time.thread_time() + _seconds
