"""Trees of samples as arrays: burn-in, heights, rates, topologies, the best trees of CCD0.

A rooted tree counts as an unrooted one that has its root as taxon 0: every clade is then the side
of a split without taxon 0, and what is said of splits holds for clades.

Letters: n trees, T taxa (the root, too, as taxon 0 of rooted trees), C clades, S distinct splits, M
occurrences of them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from mltree.sampling.diagnostics import hpd
from mltree.supports.consensus import SplitTable, members, unit_bits
from mltree.system.arrays import Bool, Float64, Index, UInt64
from mltree.system.values import Value
from mltree.tree.clades import Clades

ROUNDING = 1e-12
"""Height of a tip, as a share of the root's, below which it is the latest."""

GRID = 101
"""Times of a course."""

MOST_CLADES = 30_000
"""Clades that CCD0 combines: the most frequent ones, and those of the best sampled tree."""

ROOT = ""
"""Name of the taxon that stands for the root of rooted trees."""

_SEED = 0
"""Seed of the keys that tell topologies apart: two share a sum with a probability of 2^-64."""


def chosen_of(trees: Clades, table: SplitTable, kept: Bool) -> tuple[Clades, SplitTable]:
    """Some of the trees, bool [trees], and the table of their splits."""
    if kept.all():
        return trees, table
    number = np.cumsum(kept, dtype=np.int32) - np.int32(1)
    has = kept[table.tree]
    split, lengths = table.split[has], table.lengths[has]
    used = np.bincount(split, minlength=table.n_splits) > 0
    renamed = np.cumsum(used, dtype=np.int32) - np.int32(1)
    # A split keeps its rank, so that those of a tree still rise.
    of_clade = renamed[table.of_clade[kept[trees.tree[trees.is_inner]]]]
    tree, split = number[table.tree[has]], renamed[split]
    n = int(kept.sum())
    found = SplitTable(n, table.taxa, table.bits[used], tree, split, lengths, of_clade)
    return kept_trees(trees, kept), found


def kept_trees(trees: Clades, kept: Bool) -> Clades:
    """Some of the trees, bool [trees]."""
    if kept.all():
        return trees
    number = np.cumsum(kept, dtype=np.int32) - np.int32(1)
    chosen = trees.only(kept[trees.tree])
    order, tips = trees.order[kept], trees.tip_lengths[kept]
    return replace(chosen, order=order, tip_lengths=tips, tree=number[chosen.tree])


def by_occurrence(trees: Clades, table: SplitTable, values: Float64) -> Float64:
    """Values of the clades of trees in the order of their table, f64 [M].

    trees, values  the inner clades alone, and f64 [C] of them
    """
    number = max(table.n_splits, 1)
    of_occurrence = table.tree * np.int64(number) + table.split
    at = np.searchsorted(of_occurrence, trees.tree * np.int64(number) + table.of_clade)
    found = np.empty(len(table.tree))
    found[at] = values
    return found


def of_branches(trees: Clades, table: SplitTable) -> tuple[Float64, Float64]:
    """Lengths of branches, or what stands for them: f64 [M] by occurrences, f64 [n, T] of tips."""
    inner = trees.only(trees.is_inner)
    tips = np.empty(trees.order.shape)
    np.put_along_axis(tips, trees.order, trees.tip_lengths, axis=1)
    return by_occurrence(inner, table, inner.lengths), tips


def with_root(trees: Clades) -> Clades:
    """Rooted trees as unrooted ones whose taxon 0 is the root."""
    first = np.zeros((trees.n_trees, 1), np.int32)
    return replace(
        trees,
        taxa=(ROOT, *trees.taxa),
        order=np.concatenate((first, trees.order + np.int32(1)), axis=1),
        tip_lengths=np.concatenate((first.astype(np.float64), trees.tip_lengths), axis=1),
        first=trees.first + np.int32(1),
        last=trees.last + np.int32(1),
    )


def without_root(trees: Clades) -> Clades:
    """Undo :func:`with_root`; the root is to be the first tip."""
    return replace(
        trees,
        taxa=trees.taxa[1:],
        order=trees.order[:, 1:] - np.int32(1),
        tip_lengths=trees.tip_lengths[:, 1:],
        first=trees.first - np.int32(1),
        last=trees.last - np.int32(1),
    )


def credibilities(table: SplitTable) -> Float64:
    """Log clade credibility of each tree, float64 [n]: the sum of ln frequency of its splits."""
    weight = np.log(np.maximum(table.counts, 1) / table.n_trees)
    return np.bincount(table.tree, weight[table.split], table.n_trees).astype(np.float64)


class Heights(Value, eq=False):
    """Heights of nodes above the tip that is farthest from the root, of n rooted trees."""

    clades: Float64
    """float64 [M]: by the occurrences of the table."""
    tips: Float64
    """float64 [n, T]"""
    root: Float64
    """float64 [n]"""

    @classmethod
    def of(cls, trees: Clades, table: SplitTable) -> Heights:
        """The heights of trees with their root as taxon 0."""
        n, width = trees.order.shape
        lengths = np.bincount(trees.tree * np.int64(width + 1) + trees.first, trees.lengths,
                              n * (width + 1))  # fmt: skip
        lengths -= np.bincount(trees.tree * np.int64(width + 1) + trees.last, trees.lengths,
                               n * (width + 1))  # fmt: skip
        # Depth of the node above each tip: the lengths of all clades that hold it.
        above = np.cumsum(lengths.reshape(n, width + 1), axis=1)[:, :width]
        depths = above + trees.tip_lengths
        root = depths[:, 1:].max(axis=1)
        by_taxon = np.empty_like(depths)
        np.put_along_axis(by_taxon, trees.order, depths, axis=1)
        inner = trees.only(trees.is_inner)
        depth = above[inner.tree, inner.first] - _nested_lengths(inner, width)
        clades = by_occurrence(inner, table, root[inner.tree] - depth)
        tips = root[:, None] - by_taxon[:, 1:]
        # A rounding below the latest tip is none.
        return cls(clades, np.where(tips < ROUNDING * root[:, None], 0.0, tips), root)


def _nested_lengths(clades: Clades, width: int) -> Float64:
    """Lengths of the clades inside each clade that begin at the same tip, float64 [C]."""
    key = clades.tree * np.int64(width) + clades.first
    order = np.argsort(key, kind="stable")  # a clade comes after what it holds
    total = np.cumsum(clades.lengths[order])
    starts = np.concatenate(([True], np.diff(key[order]) != 0)) if key.size else key[:0] > 0
    group = np.cumsum(starts) - 1
    before = total - clades.lengths[order]
    nested_in = np.empty(key.size)
    nested_in[order] = before - before[starts][group]
    return nested_in


class Topologies(Value, eq=False):
    """The distinct topologies of a sample, the most frequent first."""

    counts: Index
    """intp [K]: trees of each."""
    examples: Index
    """intp [K]: the first tree of each."""
    of_tree: Index
    """intp [n]: the topology of each tree."""
    n_trees: int

    @classmethod
    def of(cls, table: SplitTable) -> Topologies:
        """The topologies of trees, told apart by sums of random keys of their splits."""
        rng = np.random.Generator(np.random.PCG64(_SEED))
        keys = rng.integers(0, 1 << 64, table.n_splits, dtype=np.uint64)
        sums = np.concatenate((np.zeros(1, np.uint64), np.cumsum(keys[table.split])))
        key = np.diff(sums[table.bounds])  # modulo 2^64
        _, first, of_tree, counts = np.unique(
            key, return_index=True, return_inverse=True, return_counts=True
        )
        order = np.lexsort((first, -counts))
        rank = np.empty(order.size, np.intp)
        rank[order] = np.arange(order.size)
        return cls(counts[order], first[order], rank[of_tree], table.n_trees)

    @property
    def probabilities(self) -> Float64:
        """float64 [K]: shares of the trees."""
        shares: Float64 = self.counts / self.n_trees
        return shares

    def credible(self, probability: float) -> int:
        """Number of topologies that together have at least a probability."""
        least = math.ceil(probability * self.n_trees - 1e-9)
        return int(np.searchsorted(np.cumsum(self.counts), least)) + 1


def gap_heights(trees: Clades, table: SplitTable, heights: Heights) -> Float64:
    """Heights of the ancestors of neighbours, f64 [n, T - 2]: of columns 1 and 2, 2 and 3, ...

    The last common ancestor of several tips has the largest of those between the first and the
    last of them.
    """
    n, width = trees.order.shape
    inner = trees.only(trees.is_inner)
    number = max(table.n_splits, 1)
    of_occurrence = table.tree * np.int64(number) + table.split
    at = np.searchsorted(of_occurrence, inner.tree * np.int64(number) + table.of_clade)
    every = np.arange(n, dtype=np.int32)
    tree = np.concatenate((inner.tree, every))
    first = np.concatenate((inner.first, np.ones(n, np.int32)))
    last = np.concatenate((inner.last, np.full(n, width, np.int32)))
    height = np.concatenate((heights.clades[at], heights.root))
    order = np.lexsort((last, first, tree))
    tree, first, last, height = tree[order], first[order], last[order], height[order]
    is_left = np.concatenate(([False], (np.diff(tree) == 0) & (np.diff(first) == 0)))
    before = np.concatenate(([0], last[:-1]))
    end_of_left = np.where(is_left, before, first + 1)
    gaps = np.full((n, width - 2), np.nan)
    gaps[tree, end_of_left - 2] = height
    for row, column in np.argwhere(np.isnan(gaps)).tolist():  # of nodes with more than two children
        covers = (tree == row) & (first <= column + 1) & (last > column + 2)
        gaps[row, column] = height[covers].min()
    return gaps


def common_heights(trees: Clades, gaps: Float64, inside: Bool) -> Float64:
    """Heights of the last common ancestor of a group in each tree, f64 [n].

    gaps    f64 [n, T - 2], of :func:`gap_heights`
    inside  bool [T]: the taxa of the group
    """
    is_in = inside[trees.order]
    first, last = is_in.argmax(axis=1), is_in.shape[1] - 1 - is_in[:, ::-1].argmax(axis=1)
    column = np.arange(1, is_in.shape[1] - 1)
    is_between = (column >= first[:, None]) & (column < last[:, None])
    highest: Float64 = np.where(is_between, gaps, -np.inf).max(axis=1)
    return highest


def bits_of_tree(tree: Clades) -> UInt64:
    """The clades of one tree as splits, uint64 [C, B], in its order."""
    inside = np.zeros((len(tree.tree), len(tree.taxa)), np.bool_)
    for row, first, last in zip(inside, tree.first.tolist(), tree.last.tolist(), strict=True):
        row[tree.order[0, first:last]] = True
    unit = unit_bits(len(tree.taxa))
    bits = [np.bitwise_or.reduce(unit[row], axis=0) for row in inside]
    return np.array(bits, np.uint64).reshape(len(inside), unit.shape[1])


class Course(Value, eq=False):
    """A quantity through time: its median and the interval of highest density in all samples."""

    times: Float64
    """float64 [K], rising: before the latest tip."""
    median: Float64
    low: Float64
    high: Float64

    @classmethod
    def of(cls, times: Float64, values: Float64) -> Course:
        """The course of samples, f64 [n, K]."""
        ends = np.array([hpd(column) for column in values.T]).reshape(-1, 2)
        return cls(times, np.median(values, axis=0), ends[:, 0], ends[:, 1])


def event_heights(heights: Heights) -> Float64 | None:
    """Heights of the inner nodes of each tree, rising, f64 [n, T - 1]; None unless all are binary.

    T counts the tips alone.
    """
    n, n_tips = heights.tips.shape
    if heights.clades.size != n * (n_tips - 2):
        return None
    inner = np.concatenate((heights.clades.reshape(n, n_tips - 2), heights.root[:, None]), axis=1)
    return np.sort(inner, axis=1)


def time_grid(heights: Heights) -> Float64:
    """Times from the latest tip to where the root is in half of the trees, f64 [K]."""
    return np.linspace(0.0, float(np.median(heights.root)), GRID)


def lineages(heights: Heights, events: Float64, times: Float64) -> Course:
    """Numbers of lineages through time (Nee et al. 1992, PNAS 89:8322).

    events  f64 [n, T - 1], of :func:`event_heights`
    """
    tips = np.sort(heights.tips, axis=1)
    begun = np.array([np.searchsorted(row, times, "right") for row in tips])
    ended = np.array([np.searchsorted(row, times, "right") for row in events])
    return Course.of(times, (begun - ended).astype(np.float64))


_LOG_SIZE = re.compile(r"(?:.*[._:])?logPopSizes?[._]?(?:.*[._:])?(\d+)", re.IGNORECASE)
_SIZE = re.compile(r"(?:.*[._:])?b?PopSizes?[._]?(?:.*[._:])?(\d+)", re.IGNORECASE)
_GROUP = re.compile(r"(?:.*[._:])?b?GroupSizes?[._]?(?:.*[._:])?(\d+)", re.IGNORECASE)
_CUT_OFF = re.compile(r"(?:.*[._:])?cutOff", re.IGNORECASE)
_CONSTANT = re.compile(r"(?:.*[._:])?e?popSize(?:[._]t?.*)?", re.IGNORECASE)
_GROWTH = re.compile(r"(?:.*[._:])?growthRate(?:[._].*)?", re.IGNORECASE)


def population(
    columns: Mapping[str, Float64], times: Float64, events: Float64 | None
) -> Course | None:
    """Population sizes through time, by the columns of a table; None where it has none.

    columns  f64 [n] of each parameter: those of a skygrid (``logPopSize1`` ... and ``cutOff``, the
             beginning of the last cell), of a skyline (``bPopSizes.1``, ``bGroupSizes.1`` ...), or
             of a constant or exponentially growing population
    events   f64 [n, T - 1], heights of inner nodes of the same samples, which a skyline needs
    """
    logs, sizes, groups = (_numbered(columns, form) for form in (_LOG_SIZE, _SIZE, _GROUP))
    cut_off = next((values for name, values in columns.items() if _CUT_OFF.fullmatch(name)), None)
    if logs is not None and cut_off is not None and logs.shape[1] > 1:
        width = cut_off[:, None] / (logs.shape[1] - 1)
        cell = np.minimum(times / width, logs.shape[1] - 1).astype(np.intp)
        return Course.of(times, np.exp(np.take_along_axis(logs, cell, axis=1)))
    if groups is not None and sizes is not None and events is not None:
        if sizes.shape[1] < groups.shape[1] or len(events) != len(groups):
            return None
        ends = np.clip(np.cumsum(groups, axis=1).astype(np.intp), 1, events.shape[1])
        bounds = np.take_along_axis(events, ends - 1, axis=1)[:, :-1]
        cell = np.array([np.searchsorted(row, times) for row in bounds])
        return Course.of(times, np.take_along_axis(sizes, cell, axis=1))
    sized = [name for name in columns if _CONSTANT.fullmatch(name)]
    if len(sized) != 1:
        return None
    growth = [values for name, values in columns.items() if _GROWTH.fullmatch(name)]
    rate = growth[0] if growth else np.zeros(len(columns[sized[0]]))
    return Course.of(times, columns[sized[0]][:, None] * np.exp(-rate[:, None] * times))


def _numbered(columns: Mapping[str, Float64], form: re.Pattern[str]) -> Float64 | None:
    """Columns that differ by their number at the end, in order, f64 [n, K]; None without any."""
    found = {int(match[1]): values for name, values in columns.items()
             if (match := form.fullmatch(name))}  # fmt: skip
    return np.stack([found[number] for number in sorted(found)], axis=1) if found else None


# CCD0, the distribution of trees by frequencies of clades (Larget 2013, Syst. Biol. 62:501; Berling
# et al. 2025, PLoS Comput. Biol. 21:e1012789). Its best tree has the largest product of frequencies
# of all trees that sampled clades can be put together to, not of the sampled trees alone.


def best_of_ccd0(table: SplitTable) -> Index:
    """The splits of the tree with the largest product of clade frequencies, intp, rising.

    Of binary rooted trees with their root as taxon 0.
    """
    n_taxa = len(table.taxa)
    chosen = _combined(table)
    bits, log_share = table.bits[chosen], np.log(table.counts[chosen] / table.n_trees)
    tips = unit_bits(n_taxa)[1:]
    whole = np.bitwise_or.reduce(tips, axis=0)[None]
    bits = np.concatenate((tips, bits, whole))
    log_share = np.concatenate((np.zeros(len(tips)), log_share, [0.0]))
    size = members(bits, n_taxa).sum(axis=1)
    order = np.argsort(size, kind="stable")
    bits, log_share, size = bits[order], log_share[order], size[order]
    number = {row.tobytes(): place for place, row in enumerate(bits)}
    best, left = np.zeros(len(bits)), np.full((len(bits), 2), -1)
    starts = np.searchsorted(size, np.arange(n_taxa + 2))
    for clade in range(len(tips), len(bits)):
        found = -math.inf
        begin, end = starts[(size[clade] + 1) // 2], starts[size[clade]]
        inside = np.arange(begin, end)
        for word in range(bits.shape[1]):
            inside = inside[(bits[inside, word] & ~bits[clade, word]) == 0]
        for one, rest in zip(inside.tolist(), bits[inside] ^ bits[clade], strict=True):
            other = number.get(rest.tobytes())
            if other is not None and best[one] + best[other] > found:
                found = best[one] + best[other]
                left[clade] = one, other
        best[clade] = found + log_share[clade]
    picked, pending = [], [len(bits) - 1]
    while pending:
        clade = pending.pop()
        if size[clade] > 1:
            picked.append(clade)
            pending += left[clade].tolist()
    of_table = order[np.array(picked[1:], np.intp)] - len(tips)
    return np.sort(chosen[of_table])


def _combined(table: SplitTable) -> Index:
    """The splits that CCD0 combines, intp, rising."""
    if table.n_splits <= MOST_CLADES:
        return np.arange(table.n_splits)
    frequent = np.argsort(-table.counts, kind="stable")[:MOST_CLADES]
    best = int(np.argmax(credibilities(table)))
    start, stop = table.bounds[best : best + 2]
    return np.union1d(frequent, table.split[start:stop]).astype(np.intp)
