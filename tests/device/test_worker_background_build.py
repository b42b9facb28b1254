"""Workers built in other processes, once for each device and layout, and no wait in vain."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from mltree.device import build as module
from mltree.device import worker
from mltree.device.discovery import DeviceInfo, choose_device
from mltree.device.layout import Layout
from mltree.device.layout_choice import rule_layout
from mltree.device.worker import BackgroundBuild, build, builders, search_workers
from mltree.system.errors import DeviceError
from mltree.system.process import Threads

UNKNOWN = 7
"""Patterns of a block that OpenCL has no vector for."""


@pytest.fixture
def marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for marks; processes that are started see the usual one."""
    monkeypatch.setattr(module, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(worker, "threads", lambda: Threads(2, "--threads", 2))
    return tmp_path


@pytest.fixture
def job() -> tuple[DeviceInfo, Layout]:
    device = choose_device(None)
    return device, rule_layout(device, 4, 16, 1, 100)


def test_what_a_process_has_built_is_not_built_again(
    job: tuple[DeviceInfo, Layout], marks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device, layout = job
    started: list[str] = []

    def start(device: DeviceInfo, layout: Layout, workers: list[str]) -> _Done:
        started.extend(workers)
        return _Done()

    monkeypatch.setattr(worker, "_start", start)
    running = BackgroundBuild(device, layout, search_workers(layout))._running
    assert set(running) >= {"sites", "scan", "triplet"}
    assert not list(marks.iterdir())
    build(device.index, ["sites"], asdict(layout))
    assert len(list(marks.glob("compiled-*"))) == 1
    started.clear()
    BackgroundBuild(device, layout, ("sites", "scan"))
    assert started == ["scan"]


def test_a_process_of_its_own_builds(job: tuple[DeviceInfo, Layout]) -> None:
    """It leaves the mark in the folder that both share."""
    device, layout = job
    mark = worker._mark(device, layout, "rell")
    mark.unlink(missing_ok=True)
    building = BackgroundBuild(device, layout, ("rell",))
    building.wait("rell")
    assert mark.exists()
    building.wait("sites")  # which nobody builds


def test_a_build_that_fails_is_left_to_whoever_needs_it(job: tuple[DeviceInfo, Layout]) -> None:
    device, layout = job
    layout = replace(layout, vw=UNKNOWN)
    building = BackgroundBuild(device, layout, ("sites",))
    building.wait("sites")
    assert building._running["sites"].returncode == 1
    assert not worker._mark(device, layout, "sites").exists()


def test_processes_end_with_whoever_started_them(job: tuple[DeviceInfo, Layout]) -> None:
    device, layout = job
    building = BackgroundBuild(device, replace(layout, vw=UNKNOWN), ("sites",))
    process = building._running["sites"]
    del building
    assert process.returncode is not None


@pytest.mark.parametrize("number", [2, 3, 8])
def test_there_are_as_many_processes_as_threads(
    job: tuple[DeviceInfo, Layout], marks: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(worker, "threads", lambda: Threads(number, "--threads", 16))
    started: list[list[str]] = []

    def start(device: DeviceInfo, layout: Layout, workers: list[str]) -> _Done:
        started.append(workers)
        return _Done()

    monkeypatch.setattr(worker, "_start", start)
    names = ("sites", "triplet", "scan", "walk")
    BackgroundBuild(*job, names)
    assert len(started) == min(number, len(names))
    assert sorted(name for own in started for name in own) == sorted(names)
    assert [own[0] for own in started] == list(names[:number]), "the first ones first"
    assert builders(*job) == min(number, len(search_workers(job[1])))


@pytest.mark.parametrize("reason", ["thread", "interpreter", "folder", "process"])
def test_nothing_is_started_where_it_cannot_be(
    job: tuple[DeviceInfo, Layout], marks: Path, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    def refused(*_: object, **__: object) -> Path:
        raise DeviceError("no folder") if reason == "folder" else OSError("no processes")

    match reason:
        case "thread":
            monkeypatch.setattr(worker, "threads", lambda: Threads(1, "--threads", 16))
        case "interpreter":
            monkeypatch.setattr(sys, "executable", "")
        case "folder":
            monkeypatch.setattr(module, "cache_folder", refused)
        case "process":
            monkeypatch.setattr(subprocess, "Popen", refused)
    building = BackgroundBuild(*job, ("sites",))
    building.wait("sites")
    assert not building._running


class _Done:
    """A process that has ended."""

    def kill(self) -> None:
        pass

    def wait(self) -> None:
        pass

    def poll(self) -> int:
        return 0
