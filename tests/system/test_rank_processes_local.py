"""Ranks in processes of this machine: what they do, and that none is left behind."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from operator import neg
from pathlib import Path

import pytest

from mltree.system import rank_processes, rank_start
from mltree.system import ranks as module
from mltree.system.errors import InputError
from mltree.system.rank_processes import (
    DEAD_HINT,
    Coordinator,
    MessageKind,
    SocketTransport,
    start_processes,
)

negatives = partial(map, neg)
"""Work that other processes know by name, and how they come by it."""
helping = partial(partial, map, neg)


@pytest.fixture
def transport() -> Iterator[SocketTransport]:
    """That of the first of three."""
    transport = start_processes(3)
    try:
        yield transport
    finally:
        transport.close()


def test_every_task_is_done_once(transport: SocketTransport) -> None:
    ranks = Coordinator(transport)
    for count in (0, 1, 40):
        found = list(ranks.deal(range(count), negatives, helping))
        assert sorted(found) == sorted(-n for n in range(count))
    numbers = [os.getpid(), *(process.pid for process in transport._processes)]
    assert [greeting.process for greeting in transport.greetings] == numbers
    ranks.dismiss()
    ranks.dismiss()
    assert [process.returncode for process in transport._processes] == [0, 0]


def test_the_others_do_what_is_asked_of_them(transport: SocketTransport) -> None:
    """In processes of their own; what is large goes through, both ways."""
    ranks = Coordinator(transport)
    ranks.everywhere(partial(partial, eval))
    own, *others = ranks.gather(["os.getpid()", *["__import__('os').getpid()"] * 2], eval)
    assert own == os.getpid()
    assert others == [process.pid for process in transport._processes]
    text = repr("x" * 3_000_000)
    assert ranks.gather([text] * 3, eval) == ["x" * 3_000_000] * 3


def test_what_they_keep_is_known_by_its_number(transport: SocketTransport) -> None:
    ranks = Coordinator(transport)
    ranks.everywhere(partial(partial, neg), 1)
    ranks.everywhere(partial(partial, abs), 2)
    for _ in range(2):
        assert ranks.gather([-3] * 3, neg, 1) == [3] * 3
        assert ranks.gather([-4] * 3, abs, 2) == [4] * 3
    ranks.forget(1)
    assert ranks.gather([-5, -6], abs, 2) == [5, 6]
    with pytest.raises(RuntimeError, match="KeyError"):
        ranks.gather([1] * 3, neg, 1)
    ranks.dismiss()
    ranks.forget(2)


def test_signals_are_for_the_first(transport: SocketTransport) -> None:
    ranks = Coordinator(transport)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        for process in transport._processes:
            process.send_signal(number)
    assert sorted(ranks.deal(range(9), negatives, helping)) == list(range(-8, 1))


def test_one_that_dies_is_named(transport: SocketTransport) -> None:
    ranks = Coordinator(transport)
    ranks.everywhere(partial(partial, neg))
    transport._processes[1].kill()
    with pytest.raises(InputError, match=r"^rank 2 \(process \d+ on .*\) has died$") as caught:
        ranks.gather([1, 2, 3], neg)
    assert caught.value.hint == DEAD_HINT


def test_a_traceback_is_told(transport: SocketTransport) -> None:
    with pytest.raises(RuntimeError, match=r"(?s)^rank [12] .*ZeroDivisionError"):
        Coordinator(transport).everywhere(partial(divmod, 1, 0))


def test_one_that_does_not_listen_is_ended(transport: SocketTransport) -> None:
    transport._processes[0].send_signal(signal.SIGSTOP)
    transport.send(2, MessageKind.CALL, (0, pickle.dumps(partial(time.sleep, 600.0))))
    transport.close()
    assert transport._processes[0].returncode == -signal.SIGKILL
    assert transport._processes[1].returncode is not None


def test_all_end_with_the_first() -> None:
    """However it ends: what it was writing is broken off."""
    code = (
        "import os, sys; from mltree.system.rank_processes import start_processes;"
        "transport = start_processes(3);"
        "print(*(process.pid for process in transport._processes), flush=True);"
        "os.kill(os.getpid(), 9)"
    )
    first = subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=False
    )
    assert first.returncode == -signal.SIGKILL
    for process in map(int, first.stdout.split()):
        while _runs(process):
            time.sleep(0.01)


def _runs(process: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False


def test_where_not_all_can_be_started_none_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []
    real = rank_processes._started

    def limited(*own: object) -> subprocess.Popen[bytes]:
        if started:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        started.append(real(*own))  # type: ignore[arg-type]
        return started[0]

    monkeypatch.setattr(rank_processes, "_started", limited)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    with pytest.raises(InputError, match="^cannot start 3 processes: Resource temporarily"):
        start_processes(3)
    assert started[0].returncode is not None
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before


def test_ranks_that_are_there_start_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.this_process, "ranks", module.Ranks())
    rank_start.start(1)
    with pytest.raises(InputError, match="a launcher has started ranks already"):
        rank_start.start(2)
