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
from mltree.device.worker import BackgroundBuilds, Build, build
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


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Names of the builds of each process that would be started; it is done at once."""
    names: list[list[str]] = []

    def start(device: DeviceInfo, wanted: list[Build]) -> _Done:
        names.append([one.name for one in wanted])
        return _Done()

    monkeypatch.setattr(worker, "_start", start)
    return names


def test_what_a_process_has_built_is_not_built_again(
    job: tuple[DeviceInfo, Layout], marks: Path, started: list[list[str]]
) -> None:
    device, layout = job
    BackgroundBuilds().start(device, _wanted(layout, "sites", "scan", "triplet"))
    assert started == [["sites", "triplet"], ["scan"]]
    assert not list(marks.iterdir())
    build(device.index, [("sites", asdict(layout), 0)])
    assert _wanted(layout, "sites")[0].mark(device.handle).exists()
    started.clear()
    BackgroundBuilds().start(device, _wanted(layout, "sites", "scan"))
    assert started == [["scan"]]


def test_kernels_without_a_layout_are_built_too(job: tuple[DeviceInfo, Layout]) -> None:
    device, _ = job
    wanted = Build("models", items=1)
    wanted.mark(device.handle).unlink(missing_ok=True)
    builds = BackgroundBuilds()
    builds.start(device, [wanted])
    assert builds.is_under_way(device.handle, wanted)
    builds.wait(device.handle, wanted)
    assert wanted.mark(device.handle).exists()


def test_a_process_of_its_own_builds(job: tuple[DeviceInfo, Layout]) -> None:
    """It leaves the mark in the folder that both share."""
    device, layout = job
    rell, sites = _wanted(layout, "rell", "sites")
    rell.mark(device.handle).unlink(missing_ok=True)
    builds = BackgroundBuilds()
    builds.start(device, [rell])
    builds.wait(device.handle, rell)
    assert rell.mark(device.handle).exists()
    builds.wait(device.handle, sites)  # which nobody builds


def test_a_build_that_fails_is_left_to_whoever_needs_it(job: tuple[DeviceInfo, Layout]) -> None:
    device, layout = job
    (wanted,) = _wanted(replace(layout, vw=UNKNOWN), "sites")
    builds = BackgroundBuilds()
    builds.start(device, [wanted])
    builds.wait(device.handle, wanted)
    assert builds._running[wanted.mark(device.handle)].returncode == 1
    assert not wanted.mark(device.handle).exists()


def test_processes_end_with_whoever_started_them(job: tuple[DeviceInfo, Layout]) -> None:
    device, layout = job
    builds = BackgroundBuilds()
    builds.start(device, _wanted(replace(layout, vw=UNKNOWN), "sites"))
    (process,) = builds._running.values()
    del builds
    assert process.returncode is not None


def test_no_more_processes_than_threads_are_at_work(
    job: tuple[DeviceInfo, Layout], marks: Path, started: list[list[str]]
) -> None:
    """A build that finds no free thread is left to whoever needs it."""
    device, layout = job
    builds = BackgroundBuilds()
    builds._running[marks / "one"] = builds._running[marks / "other"] = _Running()
    builds.start(device, _wanted(layout, "sites", "scan"))
    assert started == [["sites", "scan"]]
    builds._running[marks / "third"] = _Running()
    builds.start(device, _wanted(layout, "triplet"))
    assert len(started) == 1


@pytest.mark.parametrize("number", [2, 3, 8])
def test_there_are_as_many_processes_as_threads(
    job: tuple[DeviceInfo, Layout],
    marks: Path,
    started: list[list[str]],
    monkeypatch: pytest.MonkeyPatch,
    number: int,
) -> None:
    monkeypatch.setattr(worker, "threads", lambda: Threads(number, "--threads", 16))
    device, layout = job
    names = ("sites", "triplet", "scan", "walk")
    wanted = _wanted(layout, *names)
    assert BackgroundBuilds().processes(device, wanted) == min(number, len(names))
    BackgroundBuilds().start(device, wanted)
    assert len(started) == min(number, len(names))
    assert sorted(name for own in started for name in own) == sorted(names)
    assert [own[0] for own in started] == list(names[:number]), "the first ones first"


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
    device, layout = job
    builds = BackgroundBuilds()
    builds.start(device, _wanted(layout, "sites"))
    assert not builds._running
    assert builds.processes(device, _wanted(layout, "sites")) == (reason == "process")


def _wanted(layout: Layout, *names: str) -> list[Build]:
    return [Build(name, layout) for name in names]


class _Done:
    """A process that has ended."""

    def kill(self) -> None:
        pass

    def wait(self) -> None:
        pass

    def poll(self) -> int:
        return 0


class _Running(_Done):
    """A process at work."""

    def poll(self) -> None:
        pass
