"""Devices are measured in turns, and noise is no reason to leave a rule's layout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from mltree.alignment.patterns import Patterns
from mltree.device import calibration, speed
from mltree.device.calibration import CATEGORIES, SIZES, Calibration, Choice, Kind, load, save
from mltree.device.discovery import DeviceInfo, choose_layout, find_devices
from mltree.device.layout import Layout
from mltree.device.speed import calibrate, fastest_seconds, known_bandwidth

FOUND = find_devices()

GPU = DeviceInfo(
    index=0, name="a GPU", platform="a platform", driver="1", is_cpu=False, has_fp64=True,
    compute_units=132, memory=1 << 32, largest_buffer=1 << 30, local_memory=1 << 15,
    vector_width=1, handle=None,
)  # fmt: skip

CPU = replace(GPU, is_cpu=True, compute_units=2, vector_width=8)


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "cache_folder", lambda: tmp_path)


class Timer:
    """Stands in for the measurement: seconds by a formula, and what was asked."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, gain_of_64: float, rows_cost: float = 0.0
    ) -> None:
        self.asked: list[tuple[Layout, int]] = []
        self._gain = gain_of_64
        self._rows_cost = rows_cost
        monkeypatch.setattr(speed, "fastest_seconds", self)
        monkeypatch.setattr(speed, "copy_bandwidth", lambda device: 5e9)

    def __call__(
        self, device: DeviceInfo, layouts: Sequence[Layout], patterns: Patterns
    ) -> list[float]:
        self.asked += [(layout, patterns.n_patterns) for layout in layouts]
        return [
            (self._gain if x.vw >= 64 else 1.0) * (1 + self._rows_cost * x.rows) for x in layouts
        ]


def test_a_gpu_is_measured_in_every_size(monkeypatch: pytest.MonkeyPatch) -> None:
    timer = Timer(monkeypatch, gain_of_64=0.5, rows_cost=0.1)
    found = calibrate(GPU)
    assert found == load(GPU)
    assert found.copy_bytes == 5e9
    kinds = [Kind(s, CATEGORIES, single=False, size=n) for s in (4, 20) for n in range(3)]
    assert set(found.layouts) == {kind.key for kind in kinds}
    assert {choice.vw for choice in found.layouts.values()} == {64}
    for size, n_patterns in enumerate(speed.SIZE_PATTERNS):
        rule = choose_layout(GPU, 4, 16, CATEGORIES, n_patterns, vw=64)
        choice = found.choice(Kind(4, CATEGORIES, single=False, size=size))
        assert choice == Choice(64, max(1, rule.rows // 2))
    assert min(layout.vw for layout, _ in timer.asked) >= 8
    assert all(layout.team * layout.rows <= 512 for layout, _ in timer.asked)


def test_a_little_gain_is_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    Timer(monkeypatch, gain_of_64=0.97)
    found = calibrate(GPU)
    for size, n_patterns in enumerate(speed.SIZE_PATTERNS):
        rule = choose_layout(GPU, 4, 16, CATEGORIES, n_patterns, is_measured=False)
        choice = found.choice(Kind(4, CATEGORIES, single=False, size=size))
        assert choice is not None
        assert choice.vw == rule.vw


def test_a_cpu_is_spared_large_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    timer = Timer(monkeypatch, gain_of_64=1.0)
    found = calibrate(CPU)
    assert {choice.rows for choice in found.layouts.values()} == {1}
    assert all(layout.states * n <= speed.CPU_SAMPLE for layout, n in timer.asked)
    assert {layout.vw for layout, _ in timer.asked} == {8, 16}


def test_samples_are_of_their_sizes() -> None:
    sizes = [
        Kind.of(4, 4, single=False, n_patterns=n_patterns).size
        for n_patterns in speed.SIZE_PATTERNS
    ]
    assert sizes == list(range(len(SIZES) + 1))


def test_measuring_takes_turns_on_a_real_device() -> None:
    rule = choose_layout(FOUND[0], 4, 16, CATEGORIES, 64)
    sample = speed._random_patterns(speed.DNA, 64)
    seconds = fastest_seconds(FOUND[0], [rule, rule], sample)
    assert len(seconds) == 2
    assert min(seconds) > 0


def test_bandwidth_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    save(FOUND[0], Calibration(None, {"x": Choice(8, 1)}))
    assert known_bandwidth(FOUND[0]) > 1e8
    monkeypatch.setattr(speed, "copy_bandwidth", lambda device: pytest.fail("measured again"))
    assert known_bandwidth(FOUND[0]) == load(FOUND[0]).copy_bytes
    assert load(FOUND[0]).layouts == {"x": Choice(8, 1)}
