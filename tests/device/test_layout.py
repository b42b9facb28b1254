"""The arithmetic of layouts: nothing here needs a device."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from mltree.device.build import WORKERS
from mltree.device.layout import (
    CHAINS,
    GPU_GROUP,
    KEEPING,
    MAX_CHUNKS,
    MAX_GPU_CHUNKS,
    QUAD,
    QUAD_GROUP,
    TILE_BYTES,
    Layout,
    cpu_layout,
    gpu_layout,
    gpu_rows,
    most_rows,
    without_fp64,
)

PATTERNS = [1, 7, 8, 9, 255, 256, 257, 5000, 262_144, 10_000_000]

LAYOUTS = [
    cpu_layout(4, 16, 4, 1, False),
    cpu_layout(4, 16, 4, 8, False),
    cpu_layout(20, 24, 4, 16, True),
    gpu_layout(4, 16, 4, 8, False, 16),
    gpu_layout(4, 16, 4, 64, False, 1, width=2),
    gpu_layout(61, 62, 1, 32, False, 1),
    gpu_layout(61, 62, 4, 8, False, 2, state_items=QUAD),
    gpu_layout(20, 25, 80, 16, False, 1, width=2, state_items=QUAD),
]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("patterns", PATTERNS)
def test_blocks_hold_the_patterns(layout: Layout, patterns: int) -> None:
    blocks = layout.blocks(patterns)
    assert (blocks - 1) * layout.vw < patterns <= blocks * layout.vw
    chunk = layout.chunk_blocks(patterns)
    assert -(-blocks // chunk) <= (MAX_GPU_CHUNKS if layout.lanes > 1 else MAX_CHUNKS)
    for slots in (0, 1, 30, 6000):
        tile = layout.tile_blocks(chunk, slots)
        assert 1 <= tile <= max(chunk, 1)
        if layout.lanes == 1 and tile > 16:
            assert tile * layout.cla_bytes(layout.vw) * max(1, slots) <= TILE_BYTES


def test_bytes_of_a_cla() -> None:
    """Per pattern: K x S numbers and K counts of two bytes; the last block is padded."""
    assert cpu_layout(4, 16, 4, 1, False).cla_bytes(10) == 10 * (4 * 4 * 8 + 4 * 2)
    assert cpu_layout(4, 16, 4, 8, False).cla_bytes(10) == 16 * (4 * 4 * 8 + 4 * 2)
    assert cpu_layout(20, 24, 1, 8, True).cla_bytes(8) == 8 * (20 * 4 + 2)


def test_vw_1_is_the_avx_layout() -> None:
    layout = cpu_layout(4, 16, 4, 1, False)
    assert (layout.vw, layout.lanes, layout.category_items, layout.rows) == (1, 1, 1, 1)
    assert layout.blocks(77) == 77


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_every_number_is_a_build_option(layout: Layout) -> None:
    options = layout.options()
    assert len(options) == len(set(options))
    assert all(option.startswith("-D") and "=" in option for option in options)
    assert f"-DSTATES={layout.states}" in options
    assert f"-DWIDTH={layout.vw // layout.lanes}" in options
    assert f"-DSINGLE={int(layout.single)}" in options


def test_a_span_of_chunks_fills_the_columns() -> None:
    little, much = (
        gpu_layout(4, 16, 4, 16, False, 16, width=2),
        gpu_layout(4, 16, 4, 64, False, 1, 2),
    )
    assert (little.lanes, little.span, little.group("sites")) == (8, 4, (8, 4, 16))
    assert (much.lanes, much.span, much.group("sites")) == (32, 1, (32, 4, 1))
    assert little.group("scan") == much.group("walk") == (32, 4, 1)
    assert little.stack_bytes() == much.stack_bytes() == 64 * 4 * 5 * 8
    assert cpu_layout(4, 16, 4, 8, False).group("scan") == (1, 1, 1)


@pytest.mark.parametrize("worker", WORKERS)
@pytest.mark.parametrize(
    ("states", "categories"), [(20, 4), (20, 19), (20, 240), (61, 4), (61, 32)]
)
def test_quads_make_whole_warps(worker: str, states: int, categories: int) -> None:
    """Four work-items share a lane's states, eight lanes are a warp, and registers suffice."""
    layout = gpu_layout(states, states, categories, 16, False, 1, width=2, state_items=QUAD)
    columns, items, _ = layout.group(worker)
    assert layout.held * QUAD >= states
    assert columns % 32 == 0
    assert categories % items == 0
    assert layout.team <= (GPU_GROUP if states == 20 else QUAD_GROUP)
    assert layout.stack_bytes() == categories * (layout.held + 1) * columns * 2 * 8


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("vw", [8, 16, 64])
@pytest.mark.parametrize("worker", WORKERS)
def test_workers_share_one_order_of_elements(worker: str, vw: int, single: bool) -> None:
    layout = gpu_layout(4, 16, 4, vw, single, 1, width=2)
    own = layout.of_worker(worker)
    assert replace(own, lanes=layout.lanes, rows=layout.rows) == layout
    assert own.rows == (most_rows(layout) if worker in CHAINS else 1)
    assert own.lanes > 1
    assert vw % own.lanes == 0
    few = worker == "walk" and vw < 64
    width = 2 if worker in KEEPING else (4 if single else 2) // (1 + few)
    assert vw // own.lanes == width


def test_cpus_and_vectors_of_many_states_have_one_width() -> None:
    for layout in (cpu_layout(4, 16, 4, 8, True), gpu_layout(20, 25, 4, 32, True, 1)):
        assert all(layout.of_worker(worker) == layout for worker in WORKERS if worker not in CHAINS)


@pytest.mark.parametrize("vw", [1, 8, 32])
@pytest.mark.parametrize("categories", [1, 4, 8])
@pytest.mark.parametrize("patterns", [1, 1000, 1_000_000])
def test_rows_fit_a_work_group(vw: int, categories: int, patterns: int) -> None:
    rows = gpu_rows(gpu_layout(4, 16, categories, vw, False, 1), patterns, 132)
    assert rows >= 1
    assert rows == 1 or rows * vw * categories <= GPU_GROUP


def test_much_data_needs_no_rows() -> None:
    assert gpu_rows(gpu_layout(4, 16, 4, 32, False, 1), 1_000_000, 132) == 1
    assert gpu_rows(gpu_layout(4, 16, 4, 8, False, 1), 100, 132) == GPU_GROUP // 32


def test_without_doubles_everything_is_single() -> None:
    layout = without_fp64(cpu_layout(4, 16, 4, 8, False))
    assert layout.single
    assert not layout.fp64
    assert "fp32" in str(layout)


@pytest.mark.parametrize("name", [field.name for field in fields(Layout)])
def test_every_field_of_a_layout_is_an_option(name: str) -> None:
    """Else two layouts would share what a driver or a mark keeps of one of them."""
    layout = gpu_layout(4, 16, 4, 32, False, 2)
    value = getattr(layout, name)
    other = not value if isinstance(value, bool) else 2 * value
    assert replace(layout, **{name: other}).options() != layout.options()
