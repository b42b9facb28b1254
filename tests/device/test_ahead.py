"""Workers built in other processes, once for each device and layout, and no wait in vain."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from mltree.device import ahead
from mltree.device.ahead import Ahead, build
from mltree.device.discovery import choose_device
from mltree.device.info import DeviceInfo
from mltree.device.layout import Layout
from mltree.device.layout_choice import rule_layout
from mltree.errors import DeviceError


@pytest.fixture
def marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for marks; processes that are started see the usual one."""
    monkeypatch.setattr(ahead, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    return tmp_path


@pytest.fixture
def job() -> tuple[DeviceInfo, Layout]:
    device = choose_device(None)
    return device, rule_layout(device, 4, 16, 1, 100)


def test_what_a_process_has_built_is_not_built_again(
    job: tuple[DeviceInfo, Layout], marks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device, layout = job
    started = []

    def start(*job: object) -> _Done:
        started.append(job[2])
        return _Done()

    monkeypatch.setattr(ahead, "_start", start)
    assert set(Ahead.of_search(device, layout)._running) >= {"sites", "scan", "tripod"}
    assert not list(marks.iterdir())
    build(device.index, "sites", asdict(layout))
    assert len(list(marks.iterdir())) == 1
    started.clear()
    Ahead(device, layout, ("sites", "scan"))
    assert started == ["scan"]


def test_a_process_of_its_own_builds(job: tuple[DeviceInfo, Layout]) -> None:
    """It leaves the mark in the folder that both share."""
    device, layout = job
    mark = ahead._mark(device, layout, "rell")
    mark.unlink(missing_ok=True)
    building = Ahead(device, layout, ("rell",))
    building.wait("rell")
    assert mark.exists()
    building.wait("sites")  # which nobody builds


def test_a_build_that_fails_is_left_to_whoever_needs_it(job: tuple[DeviceInfo, Layout]) -> None:
    device, layout = job
    building = Ahead(device, layout, ("none such",))
    building.wait("none such")
    assert building._running["none such"].returncode == 1
    assert not ahead._mark(device, layout, "none such").exists()


def test_processes_end_with_whoever_started_them(job: tuple[DeviceInfo, Layout]) -> None:
    building = Ahead(*job, ("another such",))
    process = building._running["another such"]
    del building
    assert process.returncode is not None


@pytest.mark.parametrize("reason", ["core", "interpreter", "folder", "process"])
def test_nothing_is_started_where_it_cannot_be(
    job: tuple[DeviceInfo, Layout], marks: Path, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    def refused(*_: object, **__: object) -> Path:
        raise DeviceError("no folder") if reason == "folder" else OSError("no processes")

    match reason:
        case "core":
            monkeypatch.setattr(os, "cpu_count", lambda: 1)
        case "interpreter":
            monkeypatch.setattr(sys, "executable", "")
        case "folder":
            monkeypatch.setattr(ahead, "cache_folder", refused)
        case "process":
            monkeypatch.setattr(subprocess, "Popen", refused)
    building = Ahead(*job, ("sites",))
    building.wait("sites")
    assert not building._running


class _Done:
    """A process that has ended."""

    def kill(self) -> None:
        pass

    def wait(self) -> None:
        pass
