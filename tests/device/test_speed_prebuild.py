"""Jobs run side by side in processes of their own, and what goes wrong there stops nobody."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mltree.device import speed as module
from mltree.device.speed import prebuild
from mltree.system.process import Threads


def leave(folder: str, name: str) -> None:
    (Path(folder) / name).write_text(str(os.getpid()))


def fail(folder: str, name: str) -> None:
    raise ValueError(name)


def die(folder: str, name: str) -> None:
    os._exit(3)


def test_every_job_is_done_elsewhere_and_told(tmp_path: Path) -> None:
    told: list[str] = []
    prebuild(leave, [(str(tmp_path), str(n)) for n in range(3)], told.append)
    done = {file.name: int(file.read_text()) for file in tmp_path.iterdir()}
    assert set(done) == {"0", "1", "2"}
    assert os.getpid() not in done.values()
    assert told[0].startswith("building 3 kernels")
    assert told[1:] == [f"built {n} of 3 kernels" for n in (1, 2, 3)]


@pytest.mark.parametrize("job", [fail, die])
def test_failures_are_left_to_whoever_needs_it(job: object, tmp_path: Path) -> None:
    prebuild(job, [(str(tmp_path), "a"), (str(tmp_path), "b")], lambda _: None)  # type: ignore[arg-type]


def test_what_gains_nothing_is_not_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("concurrent.futures.ProcessPoolExecutor", lambda *_: pytest.fail("started"))
    prebuild(leave, [(str(tmp_path), "a")], print)
    monkeypatch.setattr(module, "threads", lambda: Threads(1, "CPU affinity", 1))
    prebuild(leave, [(str(tmp_path), "a"), (str(tmp_path), "b")], print)
    assert not list(tmp_path.iterdir())
