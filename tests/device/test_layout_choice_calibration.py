"""Measurements are kept, found again, and never believed when stale or broken."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from mltree.device import layout_choice
from mltree.device.discovery import DeviceInfo
from mltree.device.layout_choice import (
    CATEGORIES,
    Calibration,
    DataKind,
    LayoutChoice,
    choose_layout,
    load,
    notices,
    save,
)

DEVICE = DeviceInfo(
    index=0, name="a device", platform="a platform", driver="1", is_cpu=True, has_fp64=True,
    compute_units=2, memory=1 << 32, largest_buffer=1 << 30, local_memory=1 << 15,
    vector_width=8, handle=None,
)  # fmt: skip

LITTLE = DataKind(4, CATEGORIES, single=False, size=0)

KNOWN = Calibration(1.5e10, {LITTLE.key: LayoutChoice(16, 1)})


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "a" / "cache"
    monkeypatch.setattr(layout_choice, "cache_folder", lambda: folder)
    return folder


def test_what_was_saved_is_found(folder: Path) -> None:
    assert load(DEVICE) == Calibration()
    save(DEVICE, KNOWN)
    assert load(DEVICE) == KNOWN
    save(DEVICE, Calibration(2e10))
    assert load(DEVICE) == Calibration(2e10)
    assert len(list(folder.iterdir())) == 1


@pytest.mark.parametrize(
    "other",
    [
        replace(DEVICE, name="another"),
        replace(DEVICE, driver="2"),
        replace(DEVICE, platform="another"),
        replace(DEVICE, is_cpu=False, compute_units=1),
    ],
    ids=lambda other: repr(other)[:60],
)
def test_another_device_or_driver_is_not_known(other: DeviceInfo) -> None:
    save(DEVICE, KNOWN)
    assert load(other) == Calibration()


def test_a_cpu_has_layouts_for_any_number_of_cores_and_a_bandwidth_for_each(folder: Path) -> None:
    fewer = replace(DEVICE, compute_units=1)
    save(DEVICE, KNOWN)
    assert load(fewer) == replace(KNOWN, copy_bytes=None)
    save(fewer, replace(KNOWN, copy_bytes=1e10))
    assert load(fewer).copy_bytes == 1e10
    assert load(DEVICE) == KNOWN
    newer = {LITTLE.key: LayoutChoice(4, 1)}
    save(fewer, Calibration(None, newer))
    assert load(DEVICE) == Calibration(KNOWN.copy_bytes, newer)
    assert len(list(folder.iterdir())) == 1


def test_other_kernels_are_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    save(DEVICE, KNOWN)
    monkeypatch.setattr(layout_choice, "source_hash", lambda: "another")
    assert load(DEVICE) == Calibration()


BROKEN = [
    "", "{", "[]", "null", "{}", '{"copy_bytes": {}}', '{"copy_bytes": {}, "layouts": []}',
    '{"copy_bytes": {}, "layouts": {"x": {"vw": 0, "rows": 1}}}',
    '{"copy_bytes": {}, "layouts": {"x": {"vw": "8", "rows": 1}}}',
    '{"copy_bytes": {}, "layouts": {"x": 8}}', "\\ud800", '{"copy_bytes": 1, "layouts": {}}',
    "[" * 100_000, '{"x":' * 100_000, '{"copy_bytes": {"2": 1e999}, "layouts": {}}',
    '{"copy_bytes": {"2": -1}, "layouts": {}}', '{"copy_bytes": {"2": NaN}, "layouts": {}}',
    f'{{"copy_bytes": {{"2": 1{"0" * 400}}}, "layouts": {{}}}}',
    f'{{"copy_bytes": {{"2": 1{"0" * 5000}}}, "layouts": {{}}}}',
]  # fmt: skip


@pytest.mark.parametrize("content", BROKEN, ids=lambda content: content[:60])
def test_a_broken_file_is_told_and_is_written_again(folder: Path, content: str) -> None:
    assert not notices([DEVICE])
    save(DEVICE, KNOWN)
    assert not notices([DEVICE])
    (file,) = folder.iterdir()
    file.write_text(content)
    assert load(DEVICE) == Calibration()
    (notice,) = notices([DEVICE])
    assert f"{file} is damaged" in notice
    save(DEVICE, KNOWN)
    assert load(DEVICE) == KNOWN


@pytest.mark.cases(10, 200)
def test_damaged_files_are_nothing_or_harmless(folder: Path, case: int) -> None:
    rng = random.Random(case)
    save(DEVICE, KNOWN)
    (file,) = folder.iterdir()
    whole = file.read_bytes()
    for _ in range(30):
        content = bytearray(whole)
        for _ in range(rng.randint(1, 6)):
            at = rng.randrange(len(content))
            content[at : at + rng.randint(0, 3)] = rng.choice(
                (b"", b"9", b"[", b'"', b"\xff", b"-")
            )
        file.write_bytes(content)
        load(DEVICE)
        assert choose_layout(DEVICE, 4, 16, CATEGORIES, 1000).vw in (1, 4, 8, 16)


def test_bytes_that_are_no_text(folder: Path) -> None:
    save(DEVICE, KNOWN)
    (file,) = folder.iterdir()
    file.write_bytes(b"\xff\xfe\x00")
    assert load(DEVICE) == Calibration()


def test_a_folder_that_cannot_be_written_stops_nothing(folder: Path) -> None:
    folder.parent.mkdir()
    folder.write_text("a file")
    save(DEVICE, KNOWN)
    assert load(DEVICE) == Calibration()


def test_sizes() -> None:
    kinds = [DataKind.of(4, 4, single=False, n_patterns=n) for n in (1, 4096, 4097, 32_768, 10**6)]
    assert [kind.size for kind in kinds] == [0, 0, 1, 1, 2]


def test_other_categories_share_the_width_but_not_the_rows() -> None:
    known = Calibration(None, {LITTLE.key: LayoutChoice(16, 3)})
    assert known.choice(LITTLE) == LayoutChoice(16, 3)
    assert known.choice(replace(LITTLE, categories=5)) == LayoutChoice(16, None)
    assert known.choice(replace(LITTLE, states=20)) is None
    assert known.choice(replace(LITTLE, single=True)) is None
