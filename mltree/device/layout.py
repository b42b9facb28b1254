"""Layouts: CLAs in a device's memory and work-items that share them, as build parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from mltree.data.patterns import Patterns, SiteSystems
from mltree.program.contract import MOST_TEAM, REDUCE_WIDTH, WARP
from mltree.program.engine import ChainRoom
from mltree.program.ops.operation import Records
from mltree.program.ops.reduce import Rell
from mltree.program.program import Program
from mltree.system.arrays import Float64, Int32, Int64
from mltree.system.values import Value

GPU_GROUP = 512
"""Most work-items of a GPU work-group: its rows are the tree level's nodes, side by side."""

DEEPEST = 64
"""Most work-items in the third dimension of a group, a row each: NVIDIA launches no more."""

MATRIX_GROUP, LARGEST_MATRIX = 128, 32
"""Most such work-items where a pattern's vectors fill registers, from five states on. 30
replicates of 50 taxa x 1,777 amino acids on an H200, newviews and derivatives of groups of 512 /
256 / 128: 4.1 and 1.1 / 2.4 and 1.0 / 2.0 and 0.9 s."""

QUAD, QUAD_LANES = 4, 8
"""Work-items that share a lane's states where warps multiply matrices, and lanes of such a warp."""

QUAD_STATES = 9
"""States from which on warps multiply matrices: vectors of fewer fit a work-item's registers."""

FEW_HELD = 5
"""States of a lane that take few registers: all of DNA's, or a work-item's of a protein's."""

QUAD_GROUP = 256
"""Work-items of a GPU work-group at most where quads hold more: each then has 255 registers."""

GPU_UNIT_ITEMS = 1024
"""Work-items of a compute unit before rows are added: a row alone needs no barrier a level."""

MIN_CPU_CHUNK = 256
"""Patterns of a CPU chunk: enough to hide a work-group's start, few enough to share out."""

MAX_CHUNKS = 1024
"""Partial sums per cell: bounds the reduction's time and memory on long alignments."""

MAX_GPU_CHUNKS = 4096
"""Partial sums per cell on GPUs: enough for several of them to be kept busy by a share each."""

TILE_BYTES = 1 << 19
"""CLAs of a CPU tile: half of a 1 MiB level-2 cache, so that children are still there."""

MOST_CATEGORY_ITEMS = 32
"""Categories up to which each has a work-item of its own."""

SHARED_CATEGORY_ITEMS = 16
"""Work-items at most that share more categories."""

MIN_TILE = 16
"""Blocks of a CPU tile at least where P matrices are large, so that each is read once for many
(LG, 50 taxa x 1,777, 2 cores: traversal 10 -> 7.2 ms; DNA's derivatives get 20 % slower)."""

SMALL_MATRIX = 4
"""States up to which a P matrix stays in the level-1 cache anyway."""


CHAINS = ("sweeps", "time_sweeps")
"""Workers that sweep over chains. A chain has few work-groups, so each is as large as can be: eight
chains of 31 taxa x 200,361 DNA patterns took 155 ms a sweep with a row of 128 work-items, 113 with
four (H200)."""

KEEPING = ("sites", *CHAINS)
"""Workers that keep CLAs, with rows of work-items."""

PIECE = 24
"""Steps of subtrees that are walked apart where whole trees would leave compute units idle."""

TEAM_ROUNDS = 6
"""Rounds of blocks of each work-group that shares a chain, at least: a barrier of the team costs
about as much as one. Sweeps of eight chains of 8 taxa x 3,541 protein patterns (55 rounds) took
15.4, 10.3 and 7.9 ms by teams of 4, 8 and 16, but a larger team leaves room for fewer chains."""

FEW_IN_TEAM, LARGE_TEAM_ROUNDS = 16, 24
"""Work-groups from which on each needs more rounds. An H200's 132 compute units take four chains at
once in teams of 32, so that eight of a large alignment have work for two GPUs. Of 200,361 DNA
patterns a sweep of eight took 113 ms by teams of 16, 118 of 33, but of four 104 and 62."""

WALKS_A_UNIT = 1.5
"""Fewer walks per compute unit than this: walk subtrees apart."""


class Layout(Value):
    """Everything that a build of the worker depends on (each is a ``-D``; see ``opencl/build.h``).

    Element order of a CLA is ``[slot][block][category][state][lane]``, a block being ``vw``
    consecutive patterns.
    """

    states: int
    codes: int
    categories: int
    vw: int
    """Patterns in a block. 1 is RAxML's AVX layout."""
    lanes: int
    """Work-items that share a block, each with a vector of its patterns; 1 on CPUs."""
    category_items: int
    """Work-items that share the categories of a pattern; 1 on CPUs."""
    rows: int
    """Nodes of a level that a work-group computes side by side."""
    single: bool
    """fp32 CLAs (``--precision mixed``)."""
    fp64: bool
    """Sums in doubles; False only where the device has none."""
    tip_lookup: bool
    """P x tip from a table per code instead of a product with the expanded code."""
    systems: int = 1
    """Eigen systems of a model, each with an equal number of categories; one but in mixtures."""
    parted: bool = False
    """True if parts are looked up (:mod:`mltree.program.contract`): of several, or of one of which
    a program may leave patterns out."""
    site_systems: bool = False
    """True if each pattern has an eigen system, by which P is applied without being made."""
    state_items: int = 1
    """Work-items that share a lane's states: 4 where warps multiply (``matrix_tiles.h``)."""

    @property
    def team(self) -> int:
        """Work-items that share a row."""
        return self.lanes * self.state_items * self.category_items

    @property
    def held(self) -> int:
        """States that a work-item holds of a pattern."""
        return -(-self.states // self.state_items)

    @property
    def real_bytes(self) -> int:
        """Bytes of a number of a CLA."""
        return 4 if self.single else 8

    @property
    def pattern_bytes(self) -> int:
        """Bytes of one pattern of a CLA, its scaling counts included."""
        return self.categories * (self.states * self.real_bytes + 2)

    @property
    def matrix_items(self) -> int:
        """Work-items that make a P matrix: one on CPUs; else one a row, or a warp several."""
        if self.state_items > 1:
            rows = QUAD_LANES * (self.vw // self.lanes)
            return -(-self.states // rows) * QUAD_LANES * QUAD
        return 1 if self.lanes == 1 else self.states

    @property
    def matrix_words(self) -> int:
        """Numbers of a branch length in a category: P and expm1s, or r t alone."""
        return 1 if self.site_systems else self.states * (self.states + 1)

    @property
    def tip_words(self) -> int:
        """Numbers of a branch length's table of P x tip in a category; 0 where there is none."""
        return self.states * self.codes if self.tip_lookup else 0

    @property
    def matrix_bytes(self) -> int:
        """Bytes that a branch length takes: P matrices, and tables of P x tip where there are."""
        return self.categories * (self.matrix_words + self.tip_words) * self.real_bytes

    @property
    def site_bytes(self) -> int:
        """Bytes of a pattern's own eigen system; 0 where it has none."""
        words = self.states * (self.states + 3) + 1 if self.site_systems else 0
        return words * self.real_bytes

    def of(self, patterns: Patterns) -> Layout:
        """The layout for these patterns; with an eigen system each, there is no P x tip."""
        layout = replace(self, parted=self.parted or len(patterns.parts) > 1)
        if patterns.systems is None:
            return layout
        return replace(layout, site_systems=True, tip_lookup=False, state_items=1)

    def of_worker(self, worker: str) -> Layout:
        """The layout of a worker: elements in the same order, shared by work-items that suit it.

        On an H200 fp32 scans of 15 taxa x 262,144 patterns took 7.7 ms with two patterns a
        work-item, 6.9 with four; walks of 1,000 x 1,024 took 0.24 ms with two, 0.22 with one.
        """
        if worker in CHAINS:
            return replace(self, rows=most_rows(self))
        if self.lanes == 1 or self.states > SMALL_MATRIX or worker in KEEPING:
            return self
        width = 4 if self.single else 2
        if worker == "walk" and self.lanes < WARP:  # few patterns
            width //= 2
        return replace(self, lanes=self.vw // width)

    def group(self, worker: str) -> tuple[int, int, int]:
        """Work-items of one of the worker's work-groups: columns, categories, rows."""
        if worker in KEEPING:
            return self.lanes * self.state_items, self.category_items, self.rows
        return self.columns * self.state_items, self.category_items, 1

    @property
    def columns(self) -> int:
        """Lanes of a walking work-group: a GPU's warp or more."""
        return max(self.lanes, WARP // self.state_items) if self.lanes > 1 else 1

    @property
    def span(self) -> int:
        """Chunks that make up the columns."""
        return self.columns // self.lanes

    def stack_bytes(self) -> int:
        """Bytes of one level of a work-group's own stack, counts included."""
        items = self.columns * self.state_items * self.vw // self.lanes
        return self.categories * (self.held + 1) * items * self.real_bytes

    def cla_bytes(self, n_patterns: int) -> int:
        """Bytes of one CLA and its scaling counts."""
        return self.blocks(n_patterns) * self.vw * self.pattern_bytes

    def products(self, n_patterns: int) -> int:
        """Multiplications in P x for every pattern's vector x, in all categories."""
        return n_patterns * self.categories * self.states**2

    def blocks(self, n_patterns: int) -> int:
        """Blocks that hold the patterns, the last one padded."""
        return -(-n_patterns // self.vw)

    def chunk_blocks(self, n_patterns: int) -> int:
        """Blocks whose sums are taken together; depends on the data, on VW, and on CPU or GPU."""
        least, most = self._least_and_most
        return max(least, -(-self.blocks(n_patterns) // most))

    def cell_bytes(self, n_patterns: int, parts: int = 1) -> int:
        """Bytes of a cell's partial sums, a chunk each; a part's last chunk is its own."""
        return 8 * (self.blocks(n_patterns) // self.chunk_blocks(n_patterns) + parts)

    def flow_bytes(self, n_patterns: int) -> int:
        """Bytes of the partial sums of all eigen systems' rate matrices; 0 of a single one's."""
        return (self.systems > 1) * self.systems * self.states**2 * self.cell_bytes(n_patterns)

    @property
    def patterns_in_least_chunks(self) -> int:
        """Most patterns with chunks as small as any."""
        least, most = self._least_and_most
        return self.vw * least * most

    @property
    def _least_and_most(self) -> tuple[int, int]:
        """Blocks of a chunk at least, chunks at most."""
        if self.lanes > 1:
            return 1, MAX_GPU_CHUNKS
        return -(-MIN_CPU_CHUNK // self.vw), MAX_CHUNKS

    def tile_blocks(self, chunk_blocks: int, slots: int) -> int:
        """Blocks of a tile, which a CPU takes through the whole stream before the next tile."""
        if self.lanes > 1:
            return 1
        block = self.cla_bytes(self.vw) * max(1, slots)
        least = 1 if self.states <= SMALL_MATRIX else MIN_TILE
        return min(chunk_blocks, max(least, TILE_BYTES // block))

    def options(self) -> list[str]:
        """Compiler options: a ``-D`` for each field, but ``WIDTH``, patterns of a lane, for VW."""
        numbers = asdict(self)
        numbers["width"] = numbers.pop("vw") // self.lanes
        return [f"-D{name.upper()}={int(number)}" for name, number in numbers.items()]

    def __str__(self) -> str:
        kind = "fp32" if self.single else "fp64"
        items = self.lanes * self.state_items
        shape = f" ({items} x {self.category_items} x {self.rows} work-items)"
        return f"VW={self.vw} {kind}{shape if self.lanes > 1 else ''}"


def cpu_layout(states: int, codes: int, categories: int, vw: int, single: bool) -> Layout:
    """Layout of a CPU: a vector per block, one work-item for everything."""
    return Layout(
        states, codes, categories, vw=vw, lanes=1, category_items=1, rows=1,
        single=single, fp64=True, tip_lookup=states > 8,
    )  # fmt: skip


def gpu_layout(
    states: int,
    codes: int,
    categories: int,
    vw: int,
    single: bool,
    rows: int,
    width: int = 1,
    state_items: int = 1,
) -> Layout:
    """Layout of a GPU: a lane per ``width`` patterns and category, ``rows`` nodes at once."""
    alone = Layout(
        states, codes, categories, vw=vw, lanes=vw // width, category_items=1, rows=rows,
        single=single, fp64=True, tip_lookup=True, state_items=state_items,
    )  # fmt: skip
    most = MOST_CATEGORY_ITEMS if state_items == 1 else _most_items(alone) // alone.team
    return replace(alone, category_items=category_items(categories, max(1, most)))


def category_items(categories: int, most: int = MOST_CATEGORY_ITEMS) -> int:
    """Work-items of a GPU that share a pattern's categories, evenly; up to ``most`` one each."""
    if categories <= most:
        return categories
    fitting = range(1, min(most, SHARED_CATEGORY_ITEMS) + 1)
    return max(items for items in fitting if categories % items == 0)


def gpu_rows(layout: Layout, n_patterns: int, compute_units: int) -> int:
    """Rows that fill the device where the blocks alone do not."""
    rows = compute_units * GPU_UNIT_ITEMS // (layout.blocks(n_patterns) * layout.team)
    return max(1, min(rows, GPU_GROUP // layout.team))


def most_rows(layout: Layout) -> int:
    """Rows that a work-group has room for; one where a lone work-item does everything."""
    return max(1, min(DEEPEST, _most_items(layout) // layout.team)) if layout.lanes > 1 else 1


def _most_items(layout: Layout) -> int:
    """Work-items of a work-group at most."""
    if layout.state_items > 1:
        return GPU_GROUP if layout.held <= FEW_HELD else QUAD_GROUP
    return MATRIX_GROUP if SMALL_MATRIX < layout.states <= LARGEST_MATRIX else GPU_GROUP


def without_fp64(layout: Layout) -> Layout:
    """The layout for a device that has no doubles."""
    return replace(layout, single=True, fp64=False)


def longest_walk(layout: Layout, compute_units: int, patterns: Patterns, trees: int) -> int:
    """See :meth:`mltree.program.engine.Engine.longest_walk`.

    On an H200 walks take as long as levels side by side for 15 taxa x 1,024 patterns, 0.75 of it
    for 15 x 65,536, in pieces 0.53 for 1,000 x 1,024 and 0.27 for proteins of 50 x 1,777. CPUs keep
    a tile's CLAs in their caches anyway.
    """
    spans = -(-layout.blocks(patterns.n_patterns) // layout.of_worker("walk").span)
    if layout.lanes == 1:
        return 0
    is_busy = trees * spans >= WALKS_A_UNIT * compute_units
    return patterns.n_tips if is_busy else PIECE


def chain_room(layout: Layout, compute_units: int, blocks: int) -> ChainRoom:
    """See :attr:`mltree.program.engine.ChainEngine.chains`; a work-group fills a compute unit."""
    if layout.lanes == 1:
        return ChainRoom()
    rounds = blocks // layout.of_worker(CHAINS[0]).rows
    team = max(min(FEW_IN_TEAM, rounds // TEAM_ROUNDS), rounds // LARGE_TEAM_ROUNDS)
    team = max(1, min(MOST_TEAM, team, compute_units))
    return ChainRoom(team, max(1, compute_units // team))


class Blocks(Value, eq=False):
    """The blocks of VW patterns and their chunks, of all parts; each part's last one is padded."""

    vw: int
    block_part: Int32
    """int32[blocks]: part of each block."""
    chunk_block: Int32
    """int32[chunks + 1]: first block of each chunk."""
    part_chunk: Int32
    """int32[parts + 1]: first chunk of each part; a part without patterns has none."""
    places: Int64
    """int64[patterns]: position of each pattern among the lanes of all blocks."""

    @classmethod
    def of(cls, patterns: Patterns, vw: int, chunk_blocks: int) -> Blocks:
        """Chunks of ``chunk_blocks`` blocks, the last one of a part perhaps of fewer."""
        sizes = np.array([part.stop - part.start for part in patterns.parts])
        blocks = -(-sizes // vw)
        chunks = -(-blocks // chunk_blocks)
        block_part = np.repeat(np.arange(len(sizes), dtype=np.int32), blocks)
        first_block = _starts(blocks)
        within = np.arange(chunks.sum()) - np.repeat(_starts(chunks), chunks)
        chunk_block = np.repeat(first_block, chunks) + chunk_blocks * within
        padding = np.repeat(first_block * vw - _starts(sizes), sizes)
        return cls(
            vw,
            block_part,
            np.append(chunk_block, len(block_part)).astype(np.int32),
            np.append(_starts(chunks), chunks.sum()).astype(np.int32),
            np.arange(len(padding)) + padding,
        )

    @property
    def count(self) -> int:
        """Number of blocks."""
        return len(self.block_part)

    @property
    def chunks(self) -> int:
        """Number of chunks."""
        return len(self.chunk_block) - 1

    @property
    def part_starts(self) -> tuple[float, ...]:
        """Share of the blocks before each part, and 1 at the end."""
        return tuple((self.chunk_block[self.part_chunk] / self.count).tolist())

    def of_cases(self, cases: Records) -> slice:
        """Blocks from the first part of any of the cases to the last."""
        ends = cases["first_part"].min(), (cases["first_part"] + cases["parts"]).max()
        return slice(*self.chunk_block[self.part_chunk[[*ends]]].tolist())

    def patterns_of(self, cases: Records) -> int:
        """Patterns of a case, the mean where cases differ; all patterns where there is no case."""
        before = self._patterns_before
        if not len(cases):
            return int(before[-1])
        first = cases["first_part"]
        patterns: Int64 = before[first + cases["parts"]] - before[first]
        return round(int(patterns.sum()) / len(cases))

    @cached_property
    def _patterns_before(self) -> Int64:
        """int64[parts + 1]: patterns before each part, and the number of all."""
        starts = self.chunk_block[self.part_chunk].astype(np.int64) * self.vw
        before: Int64 = np.searchsorted(self.places, starts)
        return before

    @property
    def width(self) -> int:
        """Number of patterns with the padding."""
        return self.count * self.vw

    @property
    def chunk_of(self) -> Int64:
        """int64[patterns]: chunk of each pattern."""
        of_block = np.searchsorted(self.chunk_block, np.arange(self.count), side="right") - 1
        chunks: Int64 = of_block[self.places // self.vw]
        return chunks

    def padded(
        self, values: npt.NDArray[Any], padding: float = 0, kind: npt.DTypeLike | None = None
    ) -> npt.NDArray[Any]:
        """[..., patterns] as [..., width] of a kind; the same array where nothing is to be done."""
        kind = kind or values.dtype
        n_patterns = values.shape[-1]
        if n_patterns == self.width:
            return values.astype(kind, copy=False)
        wide = np.empty((*values.shape[:-1], self.width), kind)
        if isinstance(self._where, slice):
            wide[..., n_patterns:] = padding
        else:
            wide[:] = padding
        wide[..., self._where] = values
        return wide

    def unpadded(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """[..., width] as [..., patterns]; a view where they are the first of all lanes."""
        return values[..., self._where]

    @cached_property
    def _where(self) -> slice | Int64:
        """Positions of the patterns; a slice, copied three times as fast, where they come first."""
        n_patterns = self.places.size
        is_front = n_patterns > 0 and self.places[-1] == n_patterns - 1
        return slice(n_patterns) if is_front else self.places

    def systems(self, systems: SiteSystems | None) -> Float64:
        """f64[blocks, words, lanes]: λ, √π, 1/√π, U, 1/speed of patterns; the first's as padding.

        One number that nobody reads where patterns have none.
        """
        if systems is None:
            return np.zeros(1)
        pattern = np.zeros(self.width, np.int64)
        pattern[self.places] = np.arange(len(self.places))
        padded = systems.take(pattern)
        vectors = padded.vectors.reshape(self.width, -1)
        speeds = 1 / padded.speeds[:, None]
        tables = [padded.eigenvalues, padded.roots, 1 / padded.roots, vectors, speeds]
        words: Float64 = np.concatenate(tables, axis=1)
        return words.reshape(self.count, self.vw, -1).swapaxes(1, 2)

    def most_chunks(self, cases: Records) -> int:
        """Chunks of the largest case; at least 1."""
        first, chunk = cases["first_part"], self.part_chunk
        return max(1, int((chunk[first + cases["parts"]] - chunk[first]).max()))


def _starts(sizes: npt.NDArray[Any] | Sequence[int]) -> npt.NDArray[Any]:
    """Offsets of items that follow one another."""
    ends = np.cumsum(sizes)
    return ends - sizes


# Reduction lanes: chunks are shared out among devices so that sums keep a lone session's bits.
#
# A lone session adds a cell's partial sums as ``REDUCE_WIDTH`` strided sums: reduction lane v is
# the sum over the chunks c = v (mod ``REDUCE_WIDTH``), in order (``opencl/optimise.h``). A device
# that holds all chunks of some reduction lanes therefore makes their sums by itself, and what is
# left to add are the reduction lanes of all devices, once each and in order.

Acc = npt.NDArray[Any]

FEW_CELLS = 64
"""Cells up to which one accumulation takes less time than 31 additions (1 cell: 1.2, not 11 us;
it keeps what it passes, so that 3,000 cells take 330 instead of 24)."""

SMALL_PRODUCT = 1 << 16
"""Sums of a product whose strided sums are soon read: 16 MiB."""


def share_out(chunks: int, shares: Sequence[float]) -> list[range]:
    """The reduction lanes that each share gets, side by side, of as many as have chunks.

    One by one to whoever is done with one more the soonest (D'Hondt's method): a device that would
    keep the others waiting with a single reduction lane gets none.
    """
    due = np.asarray(shares, np.float64)
    counts = np.zeros(len(due), np.int64)
    for _ in range(min(chunks, REDUCE_WIDTH)):
        counts[np.argmax(due / (counts + 1))] += 1
    ends = np.cumsum(counts).tolist()
    return [range(end - count, end) for end, count in zip(ends, counts.tolist(), strict=True)]


def patterns_of(reduction_lanes: range, chunk_of: Int64) -> Int64:
    """int64[n]: the patterns of some reduction lanes' chunks, in order.

    The n-th of these chunks is of reduction lane ``reduction_lanes[n % len(reduction_lanes)]``.

    chunk_of  int64[L]: the chunk of each pattern
    """
    return np.flatnonzero(np.isin(chunk_of % REDUCE_WIDTH, reduction_lanes))


def splits_lanes(layout: Layout, program: Program) -> bool:
    """True if a lone session is best asked for strided sums, and adds them up by itself.

    A GPU's work-groups are many, and a RELL product of few sums has few patches for them.
    """
    return (
        isinstance(program.stages[0], Rell) and layout.lanes > 1 and program.sums <= SMALL_PRODUCT
    )


def add_lanes(
    program: Program, shard_sums: Sequence[Acc], widths: Sequence[int], part_chunk: Int32, sums: Acc
) -> Acc:
    """Fill in a program's acc[sums] from the strided sums of shards that share reduction lanes.

    shard_sums  acc[reduction lanes x sums] of each shard, a record behind the other
    widths      reduction lanes of each shard
    part_chunk  int32[parts + 1]: the first chunk of each part

    They are added in a lone session's order, from the reduction lane of the parts' first chunk on.
    """
    for record, count in program.sum_records():
        first, end = int(record["sum"]), int(record["sum"]) + count
        strided = np.concatenate(
            [
                lanes[width * first : width * end].reshape(-1, count)
                for width, lanes in zip(widths, shard_sums, strict=True)
            ]
        )
        first_chunk = int(part_chunk[record["first_part"]])
        sums[first:end] = ordered_sum(np.roll(strided, -(first_chunk % REDUCE_WIDTH), axis=0))
    return sums


def ordered_sum(strided: Acc) -> Acc:
    """acc[cells]: strided sums acc[lanes, cells] added in order, as ``reduce_stage`` does."""
    if strided.shape[1] <= FEW_CELLS:
        few: Acc = np.add.accumulate(strided)[-1]
        return few
    total: Acc = strided[0].copy()
    for row in strided[1:]:
        total += row
    return total
