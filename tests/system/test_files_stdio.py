"""Standard streams that go away during a run."""

from __future__ import annotations

from io import TextIOWrapper
from pathlib import Path

import pytest

from mltree.system.files import discard, sanitised


@pytest.mark.parametrize("held", ["", "held"])
def test_a_stream_that_is_turned_away_holds_nothing_back(held: str) -> None:
    with Path("/dev/full").open("w") as stream:
        stream.write(held)
        discard(stream)
        stream.write("more")
        stream.flush()


def test_what_is_no_file_is_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    class Odd(TextIOWrapper):
        def __init__(self) -> None:
            pass

        def fileno(self) -> int:
            raise ValueError

    discard(Odd())


def test_nothing_in_a_text_steers_a_terminal() -> None:
    assert (
        sanitised("a\x1b[31m\x07b\x9b2J\u202ec\td\ne é")
        == "a\\x1b[31m\\x07b\\x9b2J\\u202ec\td\ne é"
    )
