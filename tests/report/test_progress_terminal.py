"""A terminal that goes away during a run."""

from __future__ import annotations

import io
import os
import re
from typing import Literal

import pytest
from rich.text import Text

from mltree.report.progress import Reporter, Terminal, folded, progress_terminal, result_terminal
from mltree.system.events import Notice
from mltree.system.files import discard


def test_a_closed_pipe_is_an_error_like_any_other() -> None:
    reads, writes = os.pipe()
    os.close(reads)
    with os.fdopen(writes, "w") as pipe:
        with pytest.raises(BrokenPipeError):
            Terminal(file=pipe).print("one")
        discard(pipe)


def test_names_between_colons_stay_names(capsys: pytest.CaptureFixture[str]) -> None:
    result_terminal().print(":cat:")
    progress_terminal().print(":cat:")
    assert capsys.readouterr() == (":cat:\n", ":cat:\n")


def test_lines_are_folded_at_blanks() -> None:
    text = "one two three four five six seven"
    assert folded(text, 40) == text
    assert folded(text, 20) == "one two three four\nfive six seven"
    label = "Memory       " + text
    assert folded(label, 36).splitlines() == [
        "Memory       one two three four five", " " * 13 + "six seven",
    ]  # fmt: skip
    assert folded(label, 30).splitlines()[0] == label  # too narrow
    model = "Model: GTR{1/1/1/1/1/1}+G4 a b c d e f"
    assert folded(model, 30) == model


def test_tables_and_drawings_are_not_folded() -> None:
    for line in (
        "   1     -5721.6233    0.0000    0.9253 +",
        " |      /-a b",
        "a  b  c d e f g h i j k",
    ):
        assert folded(line, 22) == line


@pytest.mark.parametrize("color", ["standard", None])
def test_progress_is_folded_where_somebody_looks(color: Literal["standard"] | None) -> None:
    screen = io.StringIO()
    console = Terminal(file=screen, width=36, force_terminal=True, color_system=color)
    Reporter(console, clock=lambda: 0.0)(Notice("one two three four five six"))
    plain = re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue())
    whole = "[00:00:00] note: one two three four five six\n"
    parts = "[00:00:00] note: one two three four\n           five six\n"
    assert plain == (whole if color is None else parts)


def test_names_do_not_steer_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    result_terminal().print("a\x1b[31mb", soft_wrap=True)
    progress_terminal().print(Text.assemble(("a\x1b]0;x\x07", "red")))
    assert capsys.readouterr() == ("a\\x1b[31mb\n", "a\\x1b]0;x\n")
