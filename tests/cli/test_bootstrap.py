"""``mltree bootstrap``: replicates that do not depend on what is done beside or before them."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from mltree.runs.engines import EnginePlan

Run = Callable[..., Result]

REPLICATES = 6

FOR_EVER = 600.0
"""Seconds that no bootstrap here takes."""


def options(alignment: str, count: int) -> list[str]:
    return ["bootstrap", alignment, "--model", "HKY+G4", "-N", str(count), "--prefix", "x"]


@pytest.fixture
def alignment(primates: str, tmp_path: Path) -> str:
    """The first 300 sites of the primates."""
    head, *rows = Path(primates).read_text().splitlines()
    names_and_sites = [row.split() for row in rows if row.strip()]
    lines = [f"{name} {''.join(sites)[:300]}" for name, *sites in names_and_sites]
    path = tmp_path / "primates.phy"
    path.write_text("\n".join([f"{head.split()[0]} 300", *lines]) + "\n")
    return str(path)


def lines_of(folder: Path) -> list[str]:
    return (folder / "x.mltree.bootstraps").read_text().splitlines()


def test_replicates_are_the_same_in_any_batch(
    run: Run, alignment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Side by side; in two goes; and one by one."""
    assert run(*options(alignment, REPLICATES)).exit_code == 0
    together = lines_of(tmp_path)
    assert len(together) == REPLICATES
    for count in (2, REPLICATES, REPLICATES):
        redo = ["--redo"] if count == 2 else []
        assert run(*options(alignment, count), *redo).exit_code == 0
        assert lines_of(tmp_path) == together[:count]

    with_replicate_slots = EnginePlan.with_replicate_slots

    def lone(*arguments: Any) -> EnginePlan:
        *where, _, trees = arguments
        return with_replicate_slots(*where, 1, trees)

    monkeypatch.setattr(EnginePlan, "with_replicate_slots", lone)
    assert run(*options(alignment, REPLICATES), "--redo").exit_code == 0
    assert lines_of(tmp_path) == together


@pytest.mark.cases(1, 20)
def test_a_kill_at_any_time_loses_nothing(alignment: str, tmp_path: Path, case: int) -> None:
    """Twice; and the bits are those of a bootstrap that nothing has stopped.

    All are processes of their own: in those, layouts are as measured on this machine.
    """
    command = [sys.executable, "-m", "mltree", *options(alignment, REPLICATES)]
    began = time.monotonic()
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    seconds = time.monotonic() - began
    whole = (tmp_path / "x.mltree.consensusTreeMR").read_bytes(), lines_of(tmp_path)
    folder = tmp_path / "killed"
    folder.mkdir()
    chance = random.Random(case)
    for _ in range(2):
        process = subprocess.Popen(command, cwd=folder, stderr=subprocess.DEVNULL)
        time.sleep(chance.uniform(0.2, 0.5 + seconds))
        process.kill()
        process.wait(FOR_EVER)
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    assert ((folder / "x.mltree.consensusTreeMR").read_bytes(), lines_of(folder)) == whole


def test_a_search_may_start_ranks_for_its_replicates(alignment: str, tmp_path: Path) -> None:
    """As on a GPU, once it has ended on the one that runs it."""
    starting = (
        "from mltree.cli.main import main; from mltree.runs import logged_run; "
        "logged_run.ranks_for = lambda *_: {}; main()"
    )
    found = []
    for count in (1, 3):
        command = (
            sys.executable, "-c", starting.format(count), "search", alignment, "--model", "JC",
            "--preset", "fast", "--moves", "nni", "--bootstrap", "5", "--prefix", str(count),
        )  # fmt: skip
        result = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=FOR_EVER
        )
        assert result.returncode == 0, result.stderr
        assert ("3 ranks: 0 is process" in result.stderr) == (count == 3)
        files = [tmp_path / f"{count}.mltree.{kind}" for kind in ("bootstraps", "support")]
        found.append([file.read_bytes() for file in files])
    assert found[0] == found[1]
