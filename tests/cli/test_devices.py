"""Runs on several devices and under memory limits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from mltree.analyses import check
from mltree.device import layout_choice
from mltree.device.discovery import DeviceInfo, find_devices
from mltree.device.layout_choice import (
    CATEGORIES,
    Calibration,
    DataKind,
    LayoutChoice,
    block_widths,
    choose_layout,
    save,
)
from mltree.treesearch.checkpoint import Checkpoint

Run = Callable[..., Result]

QUICK = ("--preset", "fast")


def test_slices_change_no_bit(run: Run, primates: str) -> None:
    found = []
    for options in ((), ("--memory-limit", "4M"), ("--device", "0,0")):
        prefix = f"run{len(found)}"
        result = run("search", primates, *QUICK, "--prefix", prefix, *options)
        assert result.exit_code == 0, result.output
        if options[:1] == ("--device",):
            assert "takes" in result.output
        files = [Path(f"{prefix}.mltree.{kind}") for kind in ("bestTree", "bestModel")]
        found.append([file.read_text() for file in files])
    assert found[1] == found[0]
    assert found[2] == found[0]


def test_a_memory_limit_that_is_no_size(run: Run, primates: str) -> None:
    result = run("search", primates, *QUICK, "--memory-limit", "lots")
    assert result.exit_code == 2
    assert "not a memory size" in result.stderr


def test_devices_are_measured_once(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout_choice, "cache_folder", lambda: tmp_path / "cache")
    built: list[str] = []
    measured: list[str] = []

    def build_all(devices: list[DeviceInfo], tell: Callable[[str], None]) -> None:
        built.extend(device.name for device in devices)

    def calibrate(device: DeviceInfo, tell: Callable[[str], None]) -> Calibration:
        measured.append(device.name)
        tell(f"{device.name}: measuring everything")
        sizes = range(len(layout_choice.SIZES) + 1)
        kinds = [DataKind(4, CATEGORIES, not device.has_fp64, size) for size in sizes]
        found = Calibration(1.25e10, {kind.key: LayoutChoice(16, 1) for kind in kinds})
        save(device, found)
        return found

    monkeypatch.setattr(check, "build_all", build_all)
    monkeypatch.setattr(check, "calibrate", calibrate)
    names = [device.name for device in find_devices()]
    for told in (True, False):
        result = run("devices")
        assert (f"{names[0]}: measuring everything ...\n" in result.output) == told
        assert result.exit_code == 0, result.output
        assert "12.5 GB/s" in result.output
        assert "VW=16" in result.output
        assert measured == names
    assert run("devices", "--calibrate").exit_code == 0
    assert measured == built == 2 * names


@pytest.mark.parametrize("device", ["²", "9" * 5000, ""], ids=["superscript", "long", "none"])
def test_devices_that_are_none(run: Run, primates: str, device: str) -> None:
    result = run("search", primates, *QUICK, "--device", device)
    assert result.exit_code == 2
    *_, line = result.stderr.splitlines()
    assert line.startswith("mltree: no device matches" if device else "mltree: --device is empty")


@pytest.fixture
def calibrated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """calibrated(): has another VW measured on the first device; returns that VW."""
    monkeypatch.setattr(layout_choice, "cache_folder", lambda: tmp_path / "cache")

    def measure() -> int:
        device = find_devices()[0]
        kind = DataKind(4, CATEGORIES, not device.has_fp64, 0)
        usual = choose_layout(device, 4, 16, CATEGORIES, 1000).vw
        other = next(width for width in block_widths(device) if width != usual)
        save(device, Calibration(None, {kind.key: LayoutChoice(other, 1)}))
        return other

    return measure


def test_a_killed_search_goes_on_in_its_layout_whatever_was_measured_since(
    run: Run, primates: str, calibrated: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    save_whole = Checkpoint.save

    def save_and_die(self: Checkpoint, state: object) -> None:
        save_whole(self, state)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    search = ("search", primates, *QUICK, "--prefix")
    assert run(*search, "whole").exit_code == 0
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "save", save_and_die)
        assert run(*search, "killed").exit_code == 130
    width = calibrated()
    assert f"VW={width} " in run(*search, "fresh").output
    other = run(*search, "killed", "--vw", str(width))
    assert other.exit_code == 2
    assert "another device or layout" in other.stderr
    result = run(*search, "killed")
    assert result.exit_code == 0, result.output
    assert "resumed from" in result.output
    for kind in ("bestTree", "bestModel", "startTree"):
        whole, killed = (Path(f"{x}.mltree.{kind}").read_bytes() for x in ("whole", "killed"))
        assert killed == whole


def test_a_block_width_is_taken_and_changes_no_result(run: Run, primates: str) -> None:
    found = []
    for width in ("8", "16"):
        result = run("search", primates, *QUICK, "--vw", width, "--prefix", f"vw{width}")
        assert result.exit_code == 0, result.output
        assert f"VW={width} " in result.output
        (line,) = (line for line in result.output.splitlines() if line.startswith("Final"))
        found.append(float(line.split()[-1]))
    assert found[1] == pytest.approx(found[0], abs=1e-3)


def test_an_impossible_block_width(run: Run, primates: str) -> None:
    result = run("search", primates, *QUICK, "--vw", "3")
    assert result.exit_code == 2
    assert "no blocks of 3 patterns" in result.stderr


def test_the_memory_plan_comes_before_the_engine(run: Run, primates: str) -> None:
    search = ("search", primates, *QUICK, "--moves", "nni", "--prefix", "x", "--redo")
    for more, words in (((), "MiB (details with --verbose)"), (("-v",), "P matrices")):
        result = run(*search, *more)
        memory, engine = (result.output.index(word) for word in ("] memory: ", "] engine: "))
        assert memory < engine
        assert words in result.output[memory:engine]
    assert "P matrices" in Path("x.mltree.log").read_text(), "the log has the details"


def test_times_tell_work_and_rates(run: Run, primates: str) -> None:
    result = run("search", primates, *QUICK, "--moves", "nni", "--prefix", "x", "--verbose")
    table = result.stdout[result.stdout.index("\nTime ") + 1 :].splitlines()
    rows = {line[:22].strip(): line[22:].split() for line in table[2:]}
    assert set(rows) >= {"newview", "insertion scan", "kernel builds", "host", "all"}
    calls, nodes, rate, share = rows["newview"][2:]
    assert int(calls.replace(",", "")) > 0
    assert float(nodes.replace(",", "")) > 0
    assert float(rate) > 0
    assert share.endswith("%")
