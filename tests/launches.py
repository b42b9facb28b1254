"""Several ranks: launched by MPI or by mltree itself, or within a test."""

from __future__ import annotations

import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mltree.system.ranks import Ranks

PATIENCE = 600.0
"""Seconds that no run here takes."""

MLTREE = (sys.executable, "-m", "mltree")

OUTLIVING = '"$@"; code=$?; [ $code = 137 ] && sleep 60; exit $code'
"""A shell that hides a killed rank from its launcher, which would kill the others."""


def mpiexec() -> str:
    """MPICH's, which takes processes that end as they like; of the environment, before others."""
    pytest.importorskip(
        "mpi4py.MPI",
        reason="ranks talk through mpi4py, an extra; '.[dev]' brings it and MPICH on x86-64 Linux",
        exc_type=Exception,
    )
    beside = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    found = shutil.which("mpiexec.hydra", path=beside)
    if found is None:
        pytest.skip(
            "only MPICH's launcher takes ranks of different commands and environments, as these "
            "tests give them; '.[dev]' brings it on x86-64 Linux, where CI runs them"
        )
    return found


def launch(
    way: str, command: tuple[str, ...], count: int, program: tuple[str, ...] = MLTREE
) -> list[str]:
    """The command that runs one of mltree's as so many ranks: ``mpi``, or ``started`` by one."""
    if way == "started":
        return [*program, *command, "--ranks", str(count)]
    return [mpiexec(), "-n", str(count), "sh", "-c", OUTLIVING, "sh", *program, *command]


def ran(folder: Path, command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=PATIENCE
    )


def alone(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Mltree as one process."""
    return subprocess.run(
        [*MLTREE, *arguments], cwd=folder, capture_output=True, text=True, check=True
    )


def make_alignment(file: Path, taxa: int, sites: int = 200) -> None:
    """Sequences that evolve."""
    rng = np.random.default_rng([19, taxa])
    rows = [rng.choice(list("ACGT"), sites)]
    while len(rows) < taxa:
        changes = rng.random(sites) < 0.1
        parent = rows[rng.integers(len(rows))]
        rows.append(np.where(changes, rng.choice(list("ACGT"), sites), parent))
    file.write_text("".join(f">t{tip}\n{''.join(row)}\n" for tip, row in enumerate(rows)))


def assert_same(one: Path, other: Path, *kinds: str) -> None:
    for kind in kinds:
        name = f"x.mltree.{kind}"
        assert (one / name).read_bytes() == (other / name).read_bytes(), kind


def goes_on_without_a_rank(folder: Path, command: list[str]) -> None:
    """Kill one of two ranks, which is told of, and give the command again."""
    numbers, said = watched(folder, command, {1: signal.SIGKILL})
    assert re.search(
        rf"^mltree: rank 1 \(process {numbers[1]} on .*\) has died", said, re.MULTILINE
    )
    (log,) = folder.glob("x.mltree.*[lL]og")
    assert "has died" in log.read_text()
    result = ran(folder, command)
    assert result.returncode == 0, result.stderr


def watched(
    folder: Path, command: list[str], signals: dict[int, signal.Signals]
) -> tuple[list[int], str]:
    """Two ranks, of which some get signals once they are known: their processes, all they said."""
    numbers, said = [], ""
    with subprocess.Popen(command, cwd=folder, text=True, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        for line in process.stderr:
            said += line
            if found := re.search(r"0 is process (\d+) on .*, 1 is process (\d+) on", line):
                numbers = [*map(int, found.groups())]
                for number, sent in signals.items():
                    os.kill(numbers[number], sent)
    assert process.returncode != 0
    return numbers, said


def wait_for_the_end_of(processes: list[int]) -> None:
    deadline = time.monotonic() + PATIENCE
    while any(runs(number) for number in processes):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def runs(process: int) -> bool:
    """Whether a process has not ended; whoever inherits it may leave it a zombie."""
    try:
        return ") Z " not in Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False


class Beside(Ranks):
    """Ranks that answer here, by what has gone through a wire; other shard groups are kept."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.kept: dict[int, list[Callable[[Any], Any]]] = {}
        self.bytes_sent = 0

    def everywhere(self, check: Callable[[], Any], kept_as: int = 0) -> None:
        self.kept[kept_as] = [check() for _ in range(1, self.size)]

    def forget(self, kept_as: int) -> None:
        del self.kept[kept_as]

    def gather(
        self, tasks: Sequence[Any], answer: Callable[[Any], Any], kept_as: int = 0
    ) -> list[Any]:
        own, *others = tasks
        sent = [pickle.dumps(task) for task in others]
        self.bytes_sent += sum(map(len, sent))
        kept = self.kept.get(kept_as, [])
        told = [pickle.dumps(do(pickle.loads(task))) for do, task in zip(kept, sent, strict=True)]
        return [answer(own), *map(pickle.loads, told)]
