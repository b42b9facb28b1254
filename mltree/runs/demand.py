"""Demand of a run on a device's memory, in CLA slots and branch lengths."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from mltree.device.discovery import DeviceInfo
from mltree.device.layout import Layout
from mltree.device.memory import LEAST_BATCH, PARTIAL_SUMS, cla_memory
from mltree.fit.settings import PRESETS
from mltree.likelihood.interchanges import BRANCHES, SLOTS
from mltree.likelihood.site_rows import RESAMPLED_BYTES
from mltree.program.engine import Room
from mltree.system.events import MemoryPlanned

APART_BYTES = 1 << 25
"""Bytes of a CPU's CLAs where every tree is of a single part: some of its batches
(:data:`mltree.device.memory.CPU_BATCH`), or those of one tree of the largest part if more."""

DRAWN_SHARE, DRAWN_ON_CPU = 8, 1 << 29
"""Rows of drawn weights may keep an eighth of a device's memory, and so many bytes of a CPU's at
most, while trees are scored under them."""

DRAWN_BYTES, WEIGHT_BYTES = 2, 8
"""Bytes of a drawn weight on the host, and on a device."""

TESTED_COPIES = 6
"""Arrays of the resampled lnL of all neighbours that tests of branches have at a time."""

TESTED_BATCH = 20 << 20
"""Bytes of the weights that tests of branches have drawn at a time, here and on a device."""

SITE_BYTES = 8
"""Bytes of the lnL of a site."""

HOST_BYTES = 155 << 20
"""Bytes of a process with Python, NumPy and PoCL, where the system does not tell them: how many
pages of LLVM's library count as taken depends on the machine."""

LAUNCHED_BYTES = 40 << 20
"""More of a process that has run its kernels: their code, the driver's structures, and an
analysis's own arrays, 25 to 45 MiB."""

TREE_BYTES = 700
"""Bytes of a taxon of a tree of an ultrafast bootstrap, while supports are drawn."""

COMPILING_BYTES = 200 << 20
"""More of a process that compiles some of its kernels itself: PoCL keeps what LLVM took. First
searches took 63 to 190 MiB more, as builders were done sooner or later, choices of models 200."""

BUILDER_BYTES, GPU_BUILDER_BYTES = 160 << 20, 512 << 20
"""Bytes of a process that builds kernels ahead, for a CPU (157 and 162 MiB) and for a GPU."""


class HostLoad(NamedTuple):
    """Processes and builds that take memory on the host beside a run, or at its start."""

    compiles: bool = False
    """True if the process compiles kernels for a CPU."""
    launches: bool = True
    """True if the process has run no kernels yet: what they take is not in ``resident``."""
    builders: int = 0
    """Processes that build kernels ahead."""
    ranks: int = 1
    """Ranks on the host, this one included."""
    resident: int = HOST_BYTES
    """Bytes that the process has taken already."""


def resident_bytes() -> int:
    """Bytes of this process in memory; what is usual where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return HOST_BYTES
    return pages * os.sysconf("SC_PAGE_SIZE")


def slots_of(n_tips: int) -> int:
    """CLAs of a tree: one for every directed edge out of an inner node."""
    return 3 * (n_tips - 2)


def rows_of(slots: int, largest: int, n_patterns: int) -> int:
    """The whole slots that so many take, those of one part of ``largest`` patterns; 0: of all."""
    return min(slots, 1 + slots * (largest or n_patterns) // max(1, n_patterns))


def shared_limits(
    devices: Sequence[DeviceInfo], limit: int | None, sizes: Sequence[int]
) -> list[int | None]:
    """Bytes that the CLAs of each of several alignments may take on a device, as their sizes are.

    ``limit``: of all together; the devices' own where None, and that of a lone alignment.
    """
    if not devices or len(sizes) == 1:
        return [limit] * len(sizes)
    whole = min(cla_memory(info.handle, limit) for info in devices)
    return [whole * size // sum(sizes) for size in sizes]


def keeps_drawn(devices: Sequence[DeviceInfo], rows: int, n_patterns: int) -> bool:
    """True if so many rows of drawn weights stay on devices; else they come a few at a time."""
    room = (
        min(info.memory // DRAWN_SHARE, DRAWN_ON_CPU if info.is_cpu else info.memory)
        for info in devices
    )
    return not devices or WEIGHT_BYTES * rows * n_patterns <= sum(room)


class RowCounts(NamedTuple):
    """Rows over all patterns that supports and tests take."""

    drawn: int = 0
    """Weights of an ultrafast bootstrap's replicates."""
    sites: int = 0
    """Site lnL of the trees that are tested."""
    tests: int = 0
    """Resamplings of tests of branches, one at least where there are any: they take a row of site
    lnL for each neighbour of the tree, and near vectors."""


NO_ROWS = RowCounts()


class Demand(NamedTuple):
    """The most that a run asks of a device."""

    trees: int
    """Trees that stand side by side."""
    tree_slots: int
    """CLA slots of those trees."""
    near_slots: int
    """CLA slots of near vectors beside the trees."""
    lengths: int
    """Branch lengths of the largest launch."""

    @classmethod
    def of(
        cls, n_tips: int, room: Room, trees: int | None, tests: bool = False, sets: int = 1
    ) -> Demand:
        """Demand of a search of so many trees, or of the evaluation of one where None.

        ``tests``: neighbours of the tree are optimised, across every inner branch; ``sets``: of
        parts that the trees are on.

        Trees have as many prunes as slots, and a shortlist has so many insertions of each. A scan
        has every length, its half, and the join of both sides of every prune; re-scoring has three
        for every near vector.
        """
        slots, edges = slots_of(n_tips), 2 * n_tips - 3
        if trees is None:
            around = SLOTS * 2 * max(0, n_tips - 3) if tests else 0
            near = min(room.near_at_once(slots), around)
            return cls(1, slots, near, max(edges, BRANCHES * near // SLOTS))
        side_by_side = min(trees, room.trees_at_once(slots, beside=LEAST_BATCH))
        tree_slots = side_by_side * slots
        near = min(room.near_at_once(tree_slots, sets), PRESETS["default"].rounds.keep * tree_slots)
        lengths = max(side_by_side * 2 * (edges + slots), 3 * near)
        return cls(side_by_side, tree_slots, near, lengths)

    def planned(
        self,
        devices: Sequence[DeviceInfo],
        layout: Layout,
        room: Room,
        n_tips: int,
        n_patterns: int,
        parts: int,
        replicate_slots: int,
        rows: RowCounts,
        load: HostLoad,
    ) -> MemoryPlanned:
        """Memory taken at the peak, of devices with so much room each.

        replicate_slots  that have so many trees each
        rows             of weights and site lnL; the host has the latter too, once fetched
        load             processes and builds that take memory on the host
        """
        most, slot = room.most * len(devices), layout.cla_bytes(n_patterns)
        tree_slots = min(self.tree_slots, most)
        clas, near = tree_slots * slot, min(self.near_slots, most - tree_slots) * slot
        matrices = self.lengths * parts * layout.matrix_bytes
        tips = n_patterns * (n_tips + layout.site_bytes)
        sums = min(PARTIAL_SUMS, layout.flow_bytes(n_patterns))
        if self.near_slots:
            scores = min(room.scores, self.tree_slots * 2 * n_tips)
            sums = max(sums, scores * layout.cell_bytes(n_patterns, parts))
        tested = 2 * n_tips if rows.tests else 0
        sites = (rows.sites + tested) * n_patterns * SITE_BYTES
        taken = clas + near + matrices + tips + sums + sites
        on_host = rows.drawn * (n_patterns * DRAWN_BYTES + n_tips * TREE_BYTES) + sites
        on_host += TESTED_COPIES * SITE_BYTES * rows.tests * tested
        on_host += min(TESTED_BATCH, 2 * WEIGHT_BYTES * rows.tests * n_patterns)
        if all(info.is_cpu for info in devices):
            wide = rows.drawn * n_patterns * WEIGHT_BYTES
            stays = keeps_drawn(devices, rows.drawn, n_patterns)
            on_host += taken + (wide if stays else min(wide, RESAMPLED_BYTES))
        process = load.resident + on_host
        process += load.launches * LAUNCHED_BYTES + load.compiles * COMPILING_BYTES
        builder = BUILDER_BYTES if devices[0].is_cpu else GPU_BUILDER_BYTES
        return MemoryPlanned(
            device=", ".join(info.name for info in devices),
            layout=str(layout),
            trees=self.trees * replicate_slots,
            slots=slots_of(n_tips),
            clas=clas,
            near=near,
            tips=tips,
            matrices=matrices,
            sites=sites,
            process=process,
            others=(load.ranks - 1) * process + load.builders * builder,
            available=sum(info.memory for info in devices),
        )


def of_chains(memory: MemoryPlanned, chains: int, slots: int, *, on_host: bool) -> MemoryPlanned:
    """The memory of so many chains of ``slots`` CLAs, as planned for trees.

    on_host  True where the process has it, as on a CPU
    """
    clas = memory.clas * slots * chains // (memory.slots * memory.trees)
    matrices = memory.matrices * chains // memory.trees
    more = clas - memory.clas - memory.near + matrices - memory.matrices
    process = memory.process + on_host * more
    return replace(
        memory, trees=chains, slots=slots, clas=clas, near=0, matrices=matrices, process=process
    )
