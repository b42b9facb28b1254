"""The files that a run reads, as its log and other processes know them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mltree.runs.logged_run import expect_files, input_files, spent_so_far
from mltree.system.errors import InputError
from mltree.system.events import InputFile


def test_standard_input_is_the_first_ranks(tmp_path: Path) -> None:
    """Others are sent what was read there; files they have to see as they are."""
    expect_files([InputFile("-", 3, "of the first rank's")])
    file = tmp_path / "a.fa"
    file.write_text(">a\n")
    expect_files(input_files([str(file)]))
    with pytest.raises(InputError, match="is not the file that rank 0 reads"):
        expect_files([InputFile(str(file), 3, "of another host's")])


BUSY = """
import time
while time.process_time() < 0.5: pass
print(flush=True)
input()
"""
"""Half a CPU second, and a wait."""


@pytest.mark.skipif(sys.platform != "linux", reason="of a running process only Linux tells")
def test_what_processes_took_counts_while_they_run_and_afterwards() -> None:
    before = spent_so_far(0, 0).cpu
    with subprocess.Popen(
        [sys.executable, "-c", BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert spent_so_far(0, 0).cpu - before >= 0.45
        process.communicate(b"\n")
    assert spent_so_far(0, 0).cpu - before >= 0.45
