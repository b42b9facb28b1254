"""A terminal that goes away during a run."""

from __future__ import annotations

import os

import pytest

from mltree.report.terminal import Terminal, progress_terminal, result_terminal
from mltree.streams import turn_away


def test_a_closed_pipe_is_an_error_like_any_other() -> None:
    reads, writes = os.pipe()
    os.close(reads)
    with os.fdopen(writes, "w") as pipe:
        with pytest.raises(BrokenPipeError):
            Terminal(file=pipe).print("one")
        turn_away(pipe)


def test_names_between_colons_stay_names(capsys: pytest.CaptureFixture[str]) -> None:
    result_terminal().print(":cat:")
    progress_terminal().print(":cat:")
    assert capsys.readouterr() == (":cat:\n", ":cat:\n")
