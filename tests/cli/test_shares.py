"""Ranks that have a share of one alignment's patterns each: the bits of one process, and ends."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from launches import (
    alone,
    assert_same,
    goes_on_without_a_rank,
    launch,
    make_alignment,
    mpiexec,
    ran,
)

_MUCH = (
    "from mltree.device import discovery; discovery.SHARE_OF_CORE = 1; discovery.FULL_UNIT = 2; "
    "from mltree.__main__ import main; main()"
)
SHARING = sys.executable, "-c", _MUCH
"""Ranks that share the patterns of little data."""

SHARED = ("search", "x.fa", "--model", "HKY+G2", "--tree", "pars{1}", "--bootstrap", "2",
          "--prefix", "x")  # fmt: skip

EVALUATED = ("evaluate", "x.fa", "--tree", "x.mltree.startTree", "--model", "HKY+I+G2",
             "--prefix", "y")  # fmt: skip


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``x.fa`` and the results of one process."""
    folder = tmp_path_factory.mktemp("shared")
    make_alignment(folder / "x.fa", 10, 800)
    alone(folder, *SHARED)
    alone(folder, *EVALUATED)
    return folder


@pytest.mark.parametrize("way", ["mpi", "started"])
def test_ranks_that_share_the_patterns_have_the_bits_of_one_process(
    way: str, shared: Path, tmp_path: Path
) -> None:
    """Replicates are then searched by all ranks together; a rank that dies is named."""
    (tmp_path / "x.fa").symlink_to(shared / "x.fa")
    goes_on_without_a_rank(tmp_path, launch(way, SHARED, 2, SHARING))
    log = (tmp_path / "x.mltree.log").read_text()
    assert re.search("note: 2 ranks share the patterns; .* takes [0-9]+ patterns", log)
    assert_same(tmp_path, shared, "startTree", "bestTree", "bestModel", "bootstraps")


def test_any_command_shares_the_patterns_among_ranks(shared: Path, tmp_path: Path) -> None:
    for name in ("x.fa", "x.mltree.startTree"):
        (tmp_path / name).symlink_to(shared / name)
    result = ran(tmp_path, [mpiexec(), "-n", "3", *SHARING, *EVALUATED])
    assert result.returncode == 0, result.stderr
    assert "3 ranks share the patterns" in result.stderr
    for kind in ("evalTree", "evalModel"):
        found, known = (folder / f"y.mltree.{kind}" for folder in (tmp_path, shared))
        assert found.read_bytes() == known.read_bytes()


def test_a_share_that_a_rank_cannot_hold_is_one_line(shared: Path, tmp_path: Path) -> None:
    (tmp_path / "x.fa").symlink_to(shared / "x.fa")
    result = ran(tmp_path, [*SHARING, *SHARED, "--memory-limit", "2K", "--ranks", "2"])
    assert result.returncode == 2
    assert re.search(r": \d+ CLAs of \d+ patterns do not fit into 0\.0 MiB", result.stderr)
    assert "give --memory-limit 1M or more" in result.stderr
