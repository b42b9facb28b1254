"""Which layout a device gets: kept, measured or by the rules."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from mltree.device import layout_choice
from mltree.device.discovery import DeviceInfo
from mltree.device.layout import MATRIX_GROUP, QUAD, most_rows
from mltree.device.layout_choice import (
    CATEGORIES,
    Calibration,
    DataKind,
    LayoutChoice,
    block_widths,
    check_width,
    choose_layout,
    layout_key,
    patterns_at_a_time,
    rule_layout,
    save,
)
from mltree.system.errors import DeviceError

DEVICE = DeviceInfo(
    index=0, name="a device", platform="a platform", driver="1", is_cpu=True, has_fp64=True,
    compute_units=2, memory=1 << 32, largest_buffer=1 << 30, local_memory=1 << 15,
    vector_width=8, handle=None,
)  # fmt: skip

GPU = replace(DEVICE, is_cpu=False, compute_units=132)

LITTLE = DataKind(4, CATEGORIES, single=False, size=0)


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout_choice, "cache_folder", lambda: tmp_path / "cache")


def test_the_rules() -> None:
    assert rule_layout(DEVICE, 4, 16, 4, 1000).vw == 8
    for native, dna, protein in ((1, 2, 1), (2, 4, 2), (4, 8, 4), (8, 8, 8)):
        cpu = replace(DEVICE, vector_width=native)
        assert rule_layout(cpu, 4, 16, 4, 1000).vw == dna
        assert rule_layout(cpu, 20, 25, 4, 1000).vw == protein
    assert rule_layout(DEVICE, 4, 16, 4, 1000, vw=1).vw == 1
    single = rule_layout(DEVICE, 4, 16, 4, 1000, single=True)
    assert (single.vw, single.single) == (16, True)
    little, much = (rule_layout(GPU, 4, 16, 4, n) for n in (1000, 262_144))
    assert (little.lanes, little.vw) == (8, 16)
    assert (much.lanes, much.vw) == (32, 64)
    proteins = rule_layout(GPU, 20, 24, 4, 1000)
    assert (proteins.lanes, proteins.vw) == (8, 8)
    assert proteins.team * proteins.rows == MATRIX_GROUP
    assert little.rows > much.rows
    assert not rule_layout(replace(DEVICE, has_fp64=False), 4, 16, 4, 1000).fp64


@pytest.mark.parametrize("states", [2, 4, 5, 20])
@pytest.mark.parametrize("categories", [1, 2, 4])
def test_no_group_is_deeper_than_devices_take(states: int, categories: int) -> None:
    """64 work-items in the third dimension (NVIDIA), whatever was measured or is asked for."""
    for vw in block_widths(GPU):
        for n_patterns in (10, 400, 100_000):
            size = states, 16, categories, n_patterns
            assert rule_layout(GPU, *size, vw=vw, rows=128).group("sites")[2] <= 64
            assert rule_layout(GPU, *size, vw=vw).group("sites")[2] <= 64


def test_warps_multiply_where_they_can() -> None:
    """Vectors of many doubles, on devices that have a unit for it, two patterns at a time."""
    able = replace(GPU, has_matrix_unit=True)
    for device, states, single, items in (
        (able, 4, False, 1),
        (able, 20, True, 1),
        (GPU, 20, False, 1),
        (able, 10, False, QUAD),
        (able, 20, False, QUAD),
    ):
        assert rule_layout(device, states, states, 4, 1000, single).state_items == items
    proteins, few, many = (rule_layout(able, s, s, 4, n) for s, n in ((20, 9), (61, 9), (61, 9999)))
    assert (proteins.vw, few.vw, many.vw) == (16, 8, 16)
    assert proteins.lanes == few.lanes == many.lanes == 8
    for width in (8, 64):
        assert rule_layout(able, 20, 25, 4, 1000, vw=width).lanes % 8 == 0


def test_patterns_that_take_turns_do_not_widen_a_layout() -> None:
    """C60+G4 of 68 taxa x 37,743 amino acids: a tenth has room at a time, and should fill a GPU."""
    handle = SimpleNamespace(max_mem_alloc_size=35 << 30, global_mem_size=139 << 30)
    gpu, numbers = replace(GPU, handle=handle), 3 * 66 * 244 * 20
    width = patterns_at_a_time([gpu], 37_743, numbers)
    assert 37_743 / 12 < width < 37_743 / 8
    assert rule_layout(gpu, 20, 24, 244, width).vw < rule_layout(gpu, 20, 24, 244, 37_743).vw
    assert patterns_at_a_time([gpu], 1_000, numbers) == 1_000
    assert patterns_at_a_time([gpu], 1_000, 1 << 40) == 1
    assert patterns_at_a_time([DEVICE], 37_743, numbers) == 37_743
    assert patterns_at_a_time([], 37_743, numbers) == 37_743


def test_more_categories_than_work_items() -> None:
    """Up to 32 have a work-item each; more are shared out evenly."""
    for categories, items in ((32, 32), (40, 10), (240, 16), (37, 1)):
        layout = rule_layout(GPU, 4, 16, categories, 1000)
        assert layout.group("scan") == (32, items, 1)
        assert layout.categories == categories
    assert rule_layout(DEVICE, 4, 16, 64, 1000).categories == 64


def test_widths_of_blocks() -> None:
    assert block_widths(replace(DEVICE, vector_width=4)) == (4, 8, 16)
    assert block_widths(replace(DEVICE, vector_width=32)) == (16,)
    assert min(block_widths(GPU)) == 8
    for device, width in ((DEVICE, 1), (GPU, 64)):
        check_width(device, width)
    for device, width in ((DEVICE, 5), (DEVICE, 32), (GPU, 1), (GPU, 4)):
        with pytest.raises(DeviceError, match=f"no blocks of {width} patterns") as raised:
            check_width(device, width)
        assert "--vw takes" in (raised.value.hint or "")


def test_a_layout_is_the_measured_one() -> None:
    size = (4, 16, CATEGORIES, 1000)
    by_rule = choose_layout(DEVICE, *size)
    save(DEVICE, Calibration(None, {LITTLE.key: LayoutChoice(2 * by_rule.vw, 1)}))
    assert choose_layout(DEVICE, *size).vw == 2 * by_rule.vw
    assert rule_layout(DEVICE, *size) == by_rule
    assert choose_layout(DEVICE, *size, vw=4).vw == 4
    assert choose_layout(DEVICE, *size, single=True).vw == 2 * by_rule.vw  # its own rule
    assert choose_layout(DEVICE, 4, 16, CATEGORIES, 10_000) == by_rule


@pytest.mark.parametrize("vw", [3, 64, 10**9])
def test_a_width_that_no_cpu_takes_is_not_taken(vw: int) -> None:
    size = (4, 16, CATEGORIES, 1000)
    by_rule = choose_layout(DEVICE, *size)
    save(DEVICE, Calibration(None, {LITTLE.key: LayoutChoice(vw, 1)}))
    assert choose_layout(DEVICE, *size) == by_rule


def test_measured_rows_are_for_gpus() -> None:
    size = (4, 16, CATEGORIES, 1000)
    by_rule = choose_layout(GPU, *size)
    save(GPU, Calibration(None, {LITTLE.key: LayoutChoice(by_rule.vw, by_rule.rows - 1)}))
    assert choose_layout(GPU, *size).rows == by_rule.rows - 1
    assert choose_layout(GPU, 4, 16, 2, 1000).vw == by_rule.vw
    assert choose_layout(GPU, 4, 16, 2, 1000) == choose_layout(GPU, 4, 16, 2, 1000, vw=by_rule.vw)


def test_measured_rows_keep_to_a_work_group() -> None:
    """Measured with two patterns a work-item, where fewer patterns would have one."""
    kind = DataKind(20, CATEGORIES, False, 1)
    save(GPU, Calibration(None, {kind.key: LayoutChoice(64, 4)}))
    layout = choose_layout(GPU, 20, 24, CATEGORIES, 5000)
    assert layout.vw == 64
    assert layout.rows == most_rows(layout) < 4


@pytest.mark.parametrize("device", [DEVICE, GPU, replace(DEVICE, has_fp64=False)])
def test_a_kept_layout_outlives_a_newer_measurement(device: DeviceInfo) -> None:
    size = (4, 16, CATEGORIES, 1000)
    by_rule = choose_layout(device, *size)
    kept = {layout_key(device, by_rule, 1000): (by_rule.vw, by_rule.rows)}
    kind = replace(LITTLE, single=not device.has_fp64)
    width = next(width for width in block_widths(device) if width != by_rule.vw)
    save(device, Calibration(None, {kind.key: LayoutChoice(width, 1)}))
    assert choose_layout(device, *size).vw == width
    assert choose_layout(device, *size, kept=kept) == by_rule
    assert choose_layout(device, *size, vw=16, kept=kept).vw == 16
    other = replace(device, name="another device")
    save(other, Calibration(None, {kind.key: LayoutChoice(width, 1)}))
    assert choose_layout(other, *size).vw == width
    assert choose_layout(other, *size, kept=kept) == by_rule, "nothing else counts"


@pytest.mark.parametrize("vw", [3, 64, 10**9])
def test_a_kept_width_that_no_cpu_takes_is_not_taken(vw: int) -> None:
    by_rule = rule_layout(DEVICE, 4, 16, CATEGORIES, 1000)
    kept = {layout_key(DEVICE, by_rule, 1000): (vw, 1)}
    assert choose_layout(DEVICE, 4, 16, CATEGORIES, 1000, kept=kept) == by_rule
