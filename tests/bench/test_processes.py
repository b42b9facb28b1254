"""Child processes: what is read off the clock, and what happens at the deadline."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.processes import OUTPUT, Finished, run

BUSY = "import os\nwhile os.times().user < {seconds}: sum(range(100_000))"
"""A program that takes so many CPU seconds in user mode."""


def python(folder: Path, code: str, timeout: float = 60.0) -> Finished:
    folder.mkdir(exist_ok=True)
    return run([sys.executable, "-c", code], folder, timeout)


def test_what_a_process_prints_is_kept(tmp_path: Path) -> None:
    ended = python(tmp_path, "print('hello')")
    assert ended.status == "done"
    assert ended.output == (tmp_path / OUTPUT).read_text() == "hello\n"


def test_a_failure_is_told(tmp_path: Path) -> None:
    assert python(tmp_path, "raise SystemExit(3)").status == "failed"


def test_a_late_process_is_stopped_even_if_it_will_not_listen(tmp_path: Path) -> None:
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    ended = python(tmp_path, deaf, timeout=0.5)
    assert ended.status == "timeout"
    assert ended.wall < 60


def test_cpu_seconds_of_processes_side_by_side_stay_apart(tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        short = pool.submit(python, tmp_path / "short", BUSY.format(seconds=0.1))
        long = pool.submit(python, tmp_path / "long", BUSY.format(seconds=1.0))
    assert short.result().user < 0.9
    assert long.result().user >= 1.0
