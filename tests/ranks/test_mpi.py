"""The line of ranks that MPI has launched."""

from __future__ import annotations

from threading import Event
from types import SimpleNamespace

import pytest

pytest.importorskip("mpi4py.MPI", reason="mpi4py or its MPI is not installed", exc_type=Exception)

from mltree.ranks.mpi import MpiLine


def test_a_line_tells_whoever_waits_when_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    line, lost = MpiLine.__new__(MpiLine), list[int]()
    line.rank, line.greetings = 0, ()
    line._answered = Event()
    line.answer(lambda *_: None, lost.append)
    monkeypatch.setattr(line, "_exchange", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        line._serve(SimpleNamespace(rank=0), SimpleNamespace(dead=()))
    assert lost == [0]
