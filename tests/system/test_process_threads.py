"""How many CPUs a run takes, and by whom drivers are told."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from mltree.system import process as module
from mltree.system.process import (
    DRIVERS,
    LIBRARIES,
    at_most,
    can_start_threads,
    limit_drivers,
    threads,
)


@pytest.fixture(autouse=True)
def _sixteen_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_affinity", lambda: 16)


def cgroup(folder: Path, own: str, **quotas: str) -> tuple[Path, Path]:
    """A folder of cgroups with these files, ``__`` for ``/``, and the process's own line."""
    for name, text in quotas.items():
        path = (
            folder / "fs" / name.replace("__", "/").replace("_cfs", ".cfs").replace("_max", ".max")
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "own").write_text(own)
    return folder / "fs", folder / "own"


NOWHERE = (Path("/nowhere"), Path("/nowhere/own"))


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, (16, "CPU affinity", 16)),
        ({"SLURM_CPUS_PER_TASK": "4"}, (4, "SLURM_CPUS_PER_TASK", 4)),
        ({"SLURM_CPUS_PER_TASK": "64"}, (16, "CPU affinity", 16)),
        ({"SLURM_CPUS_PER_TASK": "many"}, (16, "CPU affinity", 16)),
        ({"MLTREE_THREADS": "3"}, (3, "--threads", 16)),
        ({"MLTREE_THREADS": "32", "SLURM_CPUS_PER_TASK": "4"}, (32, "--threads", 4)),
        ({"MLTREE_THREADS": "0"}, (16, "CPU affinity", 16)),
    ],
)
def test_the_smallest_counts(environment: dict[str, str], expected: tuple[int, str, int]) -> None:
    assert threads(environment, *NOWHERE) == expected


def test_a_call_may_take_fewer_and_drivers_are_not_told() -> None:
    environment: dict[str, str] = {}
    with at_most(3):
        assert threads({}, *NOWHERE) == (3, "threads=", 16)
        assert threads({"MLTREE_THREADS": "2"}, *NOWHERE) == (2, "--threads", 16)
        limit_drivers(environment)
        with at_most(None):
            assert threads({}, *NOWHERE).number == 3
        with at_most(100):
            assert threads({}, *NOWHERE) == (16, "CPU affinity", 16)
    assert threads({}, *NOWHERE).number == 16
    assert {environment[name] for name in DRIVERS} == {str(threads(environment).number)}


def test_ranks_share_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_n_processes", 1)
    module.divide_cpus(5)
    assert threads({}, *NOWHERE) == (3, "CPU affinity, 16 for 5 ranks", 16)
    assert threads({"MLTREE_THREADS": "4"}, *NOWHERE) == (1, "--threads, 4 for 5 ranks", 16)
    monkeypatch.setattr(module, "_quotas", lambda *_: [])
    environment = {"MLTREE_THREADS": "10"}
    limit_drivers(environment)
    assert {environment[variable] for variable in DRIVERS} == {"2"}


@pytest.mark.parametrize(
    ("own", "quotas", "expected"),
    [
        ("0::/", {"cpu_max": "200000 100000"}, 2),
        ("0::/job/step", {"job__step__cpu_max": "max 100000", "job__cpu_max": "350000 100000"}, 3),
        ("0::/job", {"job__cpu_max": "50000 100000"}, 1),
        ("0::/job", {"job__cpu_max": "max 100000"}, 16),
        ("0::/job", {}, 16),
        (
            "1:cpu,cpuacct:/job\n0::/",
            {"cpu,cpuacct__job__cpu_cfs_quota_us": "400000\n",
             "cpu,cpuacct__job__cpu_cfs_period_us": "100000\n"},
            4,
        ),
        (
            "1:cpu:/job",
            {"cpu__job__cpu_cfs_quota_us": "-1", "cpu__job__cpu_cfs_period_us": "100000"},
            16,
        ),
        ("nonsense", {}, 16),
    ],
)  # fmt: skip
def test_quotas_of_containers(
    tmp_path: Path, own: str, quotas: dict[str, str], expected: int
) -> None:
    found = threads({}, *cgroup(tmp_path, own, **quotas))
    assert found.number == expected
    assert found.source == ("cgroup quota" if expected < 16 else "CPU affinity")


def test_drivers_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_quotas", lambda *_: [])
    environment = {"POCL_MAX_PTHREAD_COUNT": "2", "OMP_NUM_THREADS": "99"}
    limit_drivers(environment)
    assert environment["POCL_MAX_PTHREAD_COUNT"] == "2", "less than there are: the user's word"
    assert environment["OMP_NUM_THREADS"] == environment["DPCPP_CPU_NUM_CUS"] == "16"
    environment["MLTREE_THREADS"] = "8"
    limit_drivers(environment)
    assert {environment[variable] for variable in DRIVERS} == {"8"}


@pytest.mark.parametrize("arguments", [["--threads", "1"], []])
def test_one_thread_is_one(tmp_path: Path, arguments: list[str]) -> None:
    """What the driver made of it: its compute units, in the log; bound to one CPU or asked to."""
    told = {name: text for name, text in os.environ.items() if name not in DRIVERS}
    alignment = Path(__file__).parents[2] / "datasets" / "primates.phy"

    def bind() -> None:
        if not arguments:
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

    run = subprocess.run(
        [sys.executable, "-m", "mltree", "search", str(alignment), "--prefix", "x", "--preset",
         "fast", "--moves", "nni", "--device", "cpu", *arguments],
        cwd=tmp_path, env=told, preexec_fn=bind, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    log = (tmp_path / "x.mltree.log").read_text()
    source = "--threads" if arguments else "CPU affinity"
    assert f", 1 thread ({source})\n" in log
    assert re.search(r"^Device: .*, 1 compute units?$", log, re.MULTILINE)


TOLD = f"""
import os, sys
from importlib.abc import MetaPathFinder
class Watch(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "numpy":
            print({{os.environ.get(variable) for variable in {LIBRARIES}}})
            sys.exit()
sys.meta_path.insert(0, Watch())
from mltree.__main__ import main
main()
"""


@pytest.mark.parametrize("arguments", [["--threads", "3"], ["--data-type", "DNA", "--threads=3"]])
@pytest.mark.parametrize("command", ["check", "search"])
def test_numpy_is_told_before_it_is_loaded(command: str, arguments: list[str]) -> None:
    run = subprocess.run(
        [sys.executable, "-c", TOLD, command, "none.phy", *arguments],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.stdout == "{'3'}\n", run.stderr


@pytest.mark.parametrize("most", [0, 3, 4, 5])
def test_threads_are_tried_and_ended(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    before, start = threading.active_count(), threading.Thread.start

    def limited(thread: threading.Thread) -> None:
        if threading.active_count() >= before + most:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    assert can_start_threads(4) is (most >= 4)
    assert threading.active_count() == before
