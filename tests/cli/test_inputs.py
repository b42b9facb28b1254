"""The files that a run reads, as its log and other processes know them."""

from __future__ import annotations

from pathlib import Path

import pytest

from mltree.commands.surroundings import expect_files, input_files
from mltree.errors import InputError
from mltree.events.run import InputFile


def test_standard_input_is_the_first_ranks(tmp_path: Path) -> None:
    """Others are sent what was read there; files they have to see as they are."""
    expect_files([InputFile("-", 3, "of the first rank's")])
    file = tmp_path / "a.fa"
    file.write_text(">a\n")
    expect_files(input_files([str(file)]))
    with pytest.raises(InputError, match="is not the file that rank 0 reads"):
        expect_files([InputFile(str(file), 3, "of another host's")])
