"""Options that commands share."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from typer.testing import Result

from mltree.runs.options import size_of
from mltree.system.errors import InputError

Run = Callable[..., Result]


@pytest.mark.parametrize(
    ("text", "size"),
    [("512", 512), ("4K", 4096), ("1.5G", 3 << 29), ("2MiB", 2 << 20), ("1 gb", 1 << 30)],
)
def test_sizes(text: str, size: int) -> None:
    assert size_of(text) == size


@pytest.mark.parametrize(
    "text", ["", "much", "-1G", "0", "1X", "0.5", "1_0", "٣G", "9" * 400, "9000000T"]
)
def test_no_sizes(text: str) -> None:
    with pytest.raises(InputError, match="size of memory"):
        size_of(text)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("search none --metric tbe", "--metric does nothing without --bootstrap"),
        ("search none --metric tbe --bootstrap 9", ""),
        ("search none --brlen linked", "--brlen does nothing without --partitions"),
        ("search none --brlen linked --model parts", ""),
        ("support none --trees none --metric tbe", ""),
        ("bootstrap none --metric tbe", ""),
        ("simulate -m JC -o x.fa --tree none --mean-length 3", "--mean-length does nothing"),
        ("concordance none --gene-trees none --quartets 3", "--quartets does nothing"),
    ],
)
def test_options_that_do_nothing_are_told(run: Run, arguments: str, told: str) -> None:
    result = run(*arguments.split())
    assert result.exit_code == 2
    notes = [line for line in result.stderr.splitlines() if "does nothing" in line]
    assert len(notes) == bool(told)
    assert told in "".join(notes)
