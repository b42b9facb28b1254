"""The transport of ranks that MPI has launched."""

from __future__ import annotations

import sys
from pathlib import Path
from threading import Event
from types import SimpleNamespace

import pytest
from launches import mpiexec, ran

pytest.importorskip("mpi4py.MPI", reason="mpi4py or its MPI is not installed", exc_type=Exception)

from mltree.system.rank_processes import MpiTransport


def test_a_line_tells_whoever_waits_when_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    transport, lost = MpiTransport.__new__(MpiTransport), list[int]()
    transport.rank, transport.greetings = 0, ()
    transport._started = Event()
    transport.start(lambda *_: None, lost.append)
    monkeypatch.setattr(transport, "_exchange", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        transport._serve(SimpleNamespace(rank=0), SimpleNamespace(dead=()))
    assert lost == [0]


LATE = """
from mltree.system.rank_processes import MpiTransport
transport = MpiTransport()
transport.start(lambda *_: None, lambda *_: None)
for _ in range(300 * transport.rank):
    transport.send(0, "late", bytes(2000))
transport.close()
"""
"""Rank 0 leaves at once."""


def test_what_nobody_waits_for_any_more_is_no_error(tmp_path: Path) -> None:
    result = ran(tmp_path, [mpiexec(), "-n", "3", sys.executable, "-c", LATE])
    assert (result.returncode, result.stderr) == (0, "")
