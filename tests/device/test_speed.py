"""Devices are measured in turns, and noise is no reason to leave a rule's layout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mltree.data.patterns import Patterns
from mltree.device import layout_choice, speed
from mltree.device.discovery import DeviceInfo, find_devices
from mltree.device.layout import Layout
from mltree.device.layout_choice import (
    CATEGORIES,
    SIZES,
    Calibration,
    DataKind,
    LayoutChoice,
    choose_layout,
    load,
    rule_layout,
    save,
)
from mltree.device.session import Session
from mltree.device.speed import (
    build_all,
    calibrate,
    joint_bandwidth,
    known_bandwidth,
    measured_speeds,
    round_seconds,
)

FOUND = find_devices()

GPU = DeviceInfo(
    index=0, name="a GPU", platform="a platform", driver="1", is_cpu=False, has_fp64=True,
    compute_units=132, memory=1 << 37, largest_buffer=1 << 35, local_memory=1 << 15,
    vector_width=1, handle=None,
)  # fmt: skip

CPU = replace(GPU, is_cpu=True, compute_units=2, vector_width=8)


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout_choice, "cache_folder", lambda: tmp_path)


class Timer:
    """Stands in for the measurement: seconds by block width in every round, and what was asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *rounds: dict[int, float]) -> None:
        self.asked: list[tuple[Layout, int]] = []
        self._rounds = rounds
        monkeypatch.setattr(speed, "round_seconds", self)
        monkeypatch.setattr(speed, "copy_bandwidth", lambda device: 5e9)

    def __call__(
        self, device: DeviceInfo, layouts: Sequence[Layout], patterns: Patterns
    ) -> np.ndarray:
        self.asked += [(layout, patterns.n_patterns) for layout in layouts]
        return np.array([[x.get(layout.vw, 1.0) for layout in layouts] for x in self._rounds])


def kinds() -> list[DataKind]:
    return [DataKind(s, CATEGORIES, single=False, size=n) for s in (4, 20) for n in range(3)]


def by_rules(device: DeviceInfo) -> dict[str, LayoutChoice]:
    found = {}
    for kind in kinds():
        codes, n_patterns = (16, 24)[kind.states > 4], speed.SIZE_PATTERNS[kind.size]
        rule = rule_layout(device, kind.states, codes, CATEGORIES, n_patterns)
        found[kind.key] = LayoutChoice(rule.vw, rule.rows)
    return found


def test_a_gpu_is_measured_in_every_size(monkeypatch: pytest.MonkeyPatch) -> None:
    Timer(monkeypatch, {64: 0.5}, {64: 0.6})
    found = calibrate(GPU)
    assert found == load(GPU)
    assert found.copy_bytes == 5e9
    assert set(found.layouts) == {kind.key for kind in kinds()}
    assert {choice.vw for choice in found.layouts.values()} == {64}
    assert [found.layouts[kind.key].rows for kind in kinds()] == [4, 4, 1, 1, 1, 1]


def test_a_gpus_kernels_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """NVIDIA's compiler takes 3 to 12 s for one, and builds at most 16 at a time."""
    jobs: list[tuple[str, str, Layout]] = []
    monkeypatch.setattr(speed, "prebuild", lambda build, found, tell: jobs.extend(found))
    timer = Timer(monkeypatch, {}, {})
    build_all([GPU])
    assert len(jobs) == len(set(jobs)) <= 12
    calibrate(GPU)
    assert {layout for layout, _ in timer.asked} <= {layout for _, _, layout in jobs}
    assert min(layout.vw for layout, _ in timer.asked) >= 8
    assert all(layout.team * layout.rows <= 512 for layout, _ in timer.asked)
    assert {n for _, n in timer.asked} == set(speed.SIZE_PATTERNS)


@pytest.mark.parametrize(
    "rounds",
    [({64: 0.92}, {64: 0.92}), ({64: 0.5}, {64: 0.95}), ({64: 1.2}, {64: 0.3})],
    ids=["little", "once", "other way round"],
)
def test_noise_leaves_the_rules_layouts(
    monkeypatch: pytest.MonkeyPatch, rounds: tuple[dict[int, float], ...]
) -> None:
    narrow = tuple({8: x[64], 16: x[64], **x} for x in rounds)
    Timer(monkeypatch, *narrow)
    assert calibrate(GPU).layouts == by_rules(GPU)


@pytest.mark.parametrize("device", [GPU, CPU], ids=["GPU", "CPU"])
def test_a_choice_is_kept_unless_another_is_clearly_better(
    monkeypatch: pytest.MonkeyPatch, device: DeviceInfo
) -> None:
    wide, narrow = (64, 16) if device is GPU else (16, 8)
    Timer(monkeypatch, {wide: 0.5}, {wide: 0.5})
    first = calibrate(device)
    assert {choice.vw for choice in first.layouts.values()} == {wide}
    Timer(monkeypatch, {8: 0.93, narrow: 0.93}, {8: 0.93, narrow: 0.93})
    assert calibrate(device) == first
    Timer(monkeypatch, {8: 0.85, narrow: 0.85}, {8: 0.85, narrow: 0.85})
    assert wide not in {choice.vw for choice in calibrate(device).layouts.values()}


def test_a_small_gpu_is_given_what_it_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    timer = Timer(monkeypatch, {}, {})
    calibrate(replace(GPU, memory=2 << 30, largest_buffer=1 << 29))
    for layout, n_patterns in timer.asked:
        clas = 3 * (speed.SAMPLE_TIPS - 2) * layout.cla_bytes(n_patterns)
        assert clas <= 1 << 29 or n_patterns == min(speed.SIZE_PATTERNS)
    assert max(n for layout, n in timer.asked if layout.states == 4) > min(speed.SIZE_PATTERNS)


def test_a_cpu_is_spared_large_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    timer = Timer(monkeypatch, {}, {})
    found = calibrate(CPU)
    assert {choice.rows for choice in found.layouts.values()} == {1}
    assert all(layout.states * n <= speed.CPU_SAMPLE for layout, n in timer.asked)
    assert {layout.vw for layout, _ in timer.asked} == {8, 16}
    assert len(timer.asked) == 2 * 2 * 2, "the two larger sizes share a sample"


def test_progress_says_what_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    Timer(monkeypatch, {}, {})
    lines: list[str] = []
    calibrate(CPU, lines.append)
    assert lines[0] == "a GPU: measuring DNA, 1,024 patterns: VW=8 and 16"
    assert len(lines) == 4


def test_samples_are_of_their_sizes() -> None:
    sizes = [
        DataKind.of(4, 4, single=False, n_patterns=n_patterns).size
        for n_patterns in speed.SIZE_PATTERNS
    ]
    assert sizes == list(range(len(SIZES) + 1))


def test_measuring_takes_turns_on_a_real_device() -> None:
    rule = choose_layout(FOUND[0], 4, 16, CATEGORIES, 64)
    sample = speed._random_patterns(speed.DNA, 64)
    seconds = round_seconds(FOUND[0], [rule, rule], sample)
    assert seconds.shape == (speed.ROUNDS, 2)
    assert seconds.min() > 0


def test_bandwidth_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    save(FOUND[0], Calibration(None, {"x": LayoutChoice(8, 1)}))
    assert known_bandwidth(FOUND[0]) > 1e8
    monkeypatch.setattr(speed, "copy_bandwidth", lambda device: pytest.fail("measured again"))
    assert known_bandwidth(FOUND[0]) == load(FOUND[0]).copy_bytes
    assert load(FOUND[0]).layouts == {"x": LayoutChoice(8, 1)}


def test_speeds_of_unlike_devices_are_measured() -> None:
    device, sample = FOUND[0], speed._random_patterns(speed.DNA, 1000)
    layout = choose_layout(device, 4, 16, CATEGORIES, 1000)
    assert measured_speeds([device] * 3, [layout] * 3, sample) == [1.0] * 3
    other = replace(device, name="another")
    speeds = measured_speeds([device, other], [layout, layout], sample)
    assert 0 < speeds[0] / speeds[1] < np.inf
    assert speeds != [1.0, 1.0]


def test_bandwidths_of_devices_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    sample = speed._random_patterns(speed.DNA, 64)
    layout = choose_layout(FOUND[0], 4, 16, CATEGORIES, 64)
    spent = Session(FOUND[0].handle, sample, layout, (1e-6, 100.0)).breakdown()
    monkeypatch.setattr(speed, "known_bandwidth", lambda device: 2.0)
    assert joint_bandwidth(spent) == 2.0
    assert joint_bandwidth(replace(spent, devices=())) is None
