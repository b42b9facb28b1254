"""Parsimony on a device: opencl/parsimony.cl, and the trees and sets that go to it and back.

Stepwise additions of all trees are one launch, a tree a work-group. A round of SPR is two: subtrees
tried everywhere, a subtree a work-group, and the sets of the trees that came of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyopencl as cl

from mltree.device.build import build_kernels, context_on
from mltree.device.discovery import DeviceInfo
from mltree.device.memory import Memory, NamingDevice
from mltree.system.arrays import Float64, Int32
from mltree.tree.fitch import WORD_BITS, PackedSites
from mltree.tree.parsimony import REFERENCE, Grove, ParsimonyEngine
from mltree.tree.topology import NONE, Forest, Tree

GROW_ITEMS, RENEW_ITEMS, WALK_ITEMS = 256, 32, 32
"""Work-items of a GPU's group: branches that a tip is tried on; words of a set."""

CPU_EDGES = 8
"""Edges that a CPU's work-item tries a tip on side by side: a vector's width."""

CPU_SPAN = 64
"""Words that a CPU's work-group makes of all sets: they stay in its cache."""

LEAST_WORK = 1 << 18
"""Trees x T x T x words that are worth a device's 60 ms of loading kernels: NumPy takes as long."""

MOST_CHANGES = 1 << 31
"""Largest count of changes on a device; NumPy counts where there may be more."""

ROOM_BYTES = 1 << 28
"""Bytes of the sets along the walks under way."""

CPU_GROUPS, GPU_GROUPS = 8, 32
"""Work-groups of a core, and of a GPU's compute unit, that walk."""


class DeviceParsimony:
    """Implements :class:`mltree.tree.parsimony.ParsimonyEngine`."""

    def __init__(self, device: cl.Device) -> None:
        """Build nothing before it is needed."""
        self._device = device
        self.is_cpu = bool(device.type & cl.device_type.CPU)
        self.walkers = int(device.max_compute_units) * (CPU_GROUPS if self.is_cpu else GPU_GROUPS)
        """Work-groups that walk side by side at most."""
        self.grove_bytes = 1 << 26 if self.is_cpu else 1 << 30
        self._naming = NamingDevice(device)
        self._left_to_host = 0

    def grow(self, sites: PackedSites, orders: Int32, draws: npt.NDArray[np.uint32]) -> list[Tree]:
        """Trees by stepwise addition."""
        if self._is_for_host(sites, len(orders)):
            return REFERENCE.grow(sites, orders, draws)
        count, tips = orders.shape
        memory = self.memory()
        fixed = load_sites(memory, sites, count)
        n_halves, n_edges = 6 * (tips - 1), 2 * tips - 3
        memory.put("twin", np.full(count * n_halves, NONE, np.int32))
        memory.put("orders", orders)
        memory.put("draws", draws)
        stride = -(-n_edges // CPU_EDGES) * CPU_EDGES
        memory.reserve("edge", 4 * count * n_halves)
        memory.reserve("near", 4 * count * n_edges)
        memory.reserve("joined", 8 * count * stride * len(sites.tips))
        memory.reserve("costs", 4 * count * stride)
        memory.reserve("waves", 8 * count * n_edges)
        buffers = memory.several("orders", "draws", "edge", "near", "joined", "costs", "waves")
        memory.expect(2.0 * count * tips * n_edges * len(sites.tips))
        arguments = [*fixed, *buffers, np.int32(stride)]
        self.launch(memory, "grow", (count,), GROW_ITEMS, arguments)
        twin = memory.fetch("twin", (count, n_halves), np.int32)
        near = memory.fetch("near", (count, n_edges), np.int32)
        return [_tree(*arrays) for arrays in zip(twin, near, strict=True)]

    def grove(self, forest: Forest, sites: PackedSites) -> Grove:
        """Whole trees with their sets."""
        if self._is_for_host(sites, forest.n_trees):
            return REFERENCE.grove(forest, sites)
        return DeviceGrove(self, forest, sites)

    def _is_for_host(self, sites: PackedSites, trees: int) -> bool:
        """True if NumPy is done before a device begins, or changes may be more than it counts.

        A CPU begins at once when its kernels are there: it loads them when NumPy has done as much
        work as is worth that, one replicate after another.
        """
        if float(sites.word_weights.sum()) * WORD_BITS >= MOST_CHANGES:
            return True
        work = trees * sites.n_tips**2 * len(sites.tips)
        before = self._left_to_host if self.is_cpu else 0
        if before + work >= LEAST_WORK:
            return False
        self._left_to_host += work
        return True

    def memory(self) -> Memory:
        """New buffers, with a queue of their own."""
        return Memory(self._context, cl.CommandQueue(self._context, self._device), nullcontext())

    def launch(
        self, memory: Memory, name: str, groups: tuple[int, ...], items: int, arguments: list[Any]
    ) -> None:
        """Run a kernel by so many work-groups, of so many items on a GPU."""
        items = 1 if self.is_cpu else items
        size = (groups[0] * items, *groups[1:])
        with self._naming:
            self._kernels[name].set_args(*arguments)
            local = (items, *(1 for _ in groups[1:]))
            cl.enqueue_nd_range_kernel(memory.queue, self._kernels[name], size, local)

    @cached_property
    def _context(self) -> cl.Context:
        return context_on(self._device)

    @cached_property
    def _kernels(self) -> dict[str, cl.Kernel]:
        edges = CPU_EDGES if self.is_cpu else 1
        program = build_kernels(self._context, self._device, "parsimony", EDGES=edges)
        return {kernel.function_name: kernel for kernel in program.all_kernels()}


def parsimony_engine(devices: Sequence[DeviceInfo]) -> ParsimonyEngine:
    """The engine that makes starting trees: the first device, or NumPy where there is none."""
    return DeviceParsimony(devices[0].handle) if devices else REFERENCE


class DeviceGrove:
    """Implements :class:`mltree.tree.parsimony.Grove`."""

    def __init__(self, engine: DeviceParsimony, forest: Forest, sites: PackedSites) -> None:
        self._engine = engine
        self._forest = forest
        self._n_tips = sites.n_tips
        self._n_halves = 6 * (sites.n_tips - 1)
        self._words, self._size = len(sites.word_weights), len(sites.tips)
        self._span = CPU_SPAN if engine.is_cpu else RENEW_ITEMS
        self._constant = np.zeros(forest.n_trees) + sites.constant
        self._offsets = np.repeat(forest.first_half, forest.n_halves)
        self._memory = engine.memory()
        self._memory.reserve("twin", forest.twin.nbytes)
        self._memory.reserve("heights", forest.twin.nbytes)
        self._fixed = load_sites(self._memory, sites, forest.n_trees)
        self._longest = np.zeros(forest.n_trees, np.int32)
        trees = np.arange(forest.n_trees, dtype=np.int32)
        self._first_scores = self.renew(trees, forest.facing(trees)[0])

    def scores(self) -> Float64:
        """f64[trees]: of the trees as they came."""
        return self._first_scores

    def renew(self, trees: Int32, facing: Int32) -> Float64:
        """f64[trees of all]: the changes of these, whose sets are all made again."""
        scores = np.zeros(self._forest.n_trees)
        if not trees.size:
            return scores
        memory, slices = self._memory, -(-self._words // self._span)
        in_order = np.argsort(self._forest.tree_of_half[facing], kind="stable")
        memory.write("twin", self._forest.twin - self._offsets)
        memory.put("which", trees.astype(np.int32))
        memory.put("facing", self._forest.in_tree(facing[in_order]))
        memory.reserve("changes", 4 * trees.size * slices)
        memory.reserve("longest", 4 * trees.size)
        buffers = memory.several("which", "facing", "changes", "heights", "longest")
        arguments = [*self._fixed, *buffers, np.int32(self._span)]
        memory.expect(6.0 * facing.size * self._size)
        groups = trees.size, slices
        self._engine.launch(memory, "renew", groups, RENEW_ITEMS, arguments)
        changes = memory.fetch("changes", groups, np.int32)
        self._longest[trees] = memory.fetch("longest", trees.size, np.int32)
        scores[trees] = self._constant[trees] + changes.sum(axis=1)
        return scores

    def best_targets(self, prunes: Int32, cuts: Float64) -> tuple[Int32, Int32, Float64]:
        """The prunes that gain, the best branch for each, and the changes that saves."""
        memory, levels = self._memory, int(self._longest.max()) + 1
        fit = ROOM_BYTES // (levels * self._size * 8)
        groups = max(1, min(prunes.size, self._engine.walkers, fit))
        memory.put("prunes", prunes.astype(np.int32))
        memory.put("cuts", np.floor(cuts).astype(np.int32))
        memory.reserve("walked", groups * levels * self._size * 8)
        memory.reserve("at", groups * levels * 4)
        memory.reserve("found", 8 * prunes.size)
        arguments = [
            *memory.several("prunes", "cuts"), np.int32(prunes.size),
            *memory.several("walked", "at"), np.int32(levels), memory["found"],
        ]  # fmt: skip
        memory.expect(6.0 * prunes.size * self._n_halves * self._size)
        self._engine.launch(memory, "walk", (groups,), WALK_ITEMS, [*self._fixed, *arguments])
        best = memory.fetch("found", (prunes.size, 2), np.int32)
        gaining = np.flatnonzero(best[:, 1] > 0)
        prune = prunes[gaining]
        target = best[gaining, 0] + self._offsets[prune]
        return prune, target.astype(np.int32), best[gaining, 1].astype(np.float64)


def load_sites(memory: Memory, sites: PackedSites, n_trees: int) -> list[Any]:
    """First arguments of every kernel (opencl/fitch.h), for trees with a ``twin`` or to get one.

    Room is made for their sets.
    """
    size, tips = len(sites.tips), sites.n_tips
    rows = np.ascontiguousarray(np.moveaxis(sites.tips, 0, -1))
    widths = np.array(sites.widths)
    planes = np.concatenate([np.cumsum(widths) - widths, widths]).astype(np.int32)
    memory.put("tip_sets", rows)
    memory.put("plane", planes)
    memory.put("weight", sites.word_weights.astype(np.int32))
    memory.reserve("sets", n_trees * 3 * (tips - 2) * size * 8)
    memory.reserve("twin", n_trees * 6 * (tips - 1) * 4)
    numbers = (tips, len(sites.word_weights), size, widths.size)
    stride = tips * size if sites.tips.ndim > 2 else 0
    buffers = memory.several("plane", "weight", "tip_sets", "sets", "twin")
    return [*map(np.int32, numbers), np.int64(stride), *buffers]


def _tree(twin: Int32, near: Int32) -> Tree:
    """A tree from where its half-edges lead, and one half-edge of every edge."""
    edge = np.full(twin.size, NONE, np.int32)
    numbers = np.arange(near.size, dtype=np.int32)
    edge[near], edge[twin[near]] = numbers, numbers
    return Tree(twin.copy(), edge, np.zeros(near.size), twin.size // 6 + 1)
