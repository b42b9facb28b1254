"""Time trees as words of a chain, and their priors without constants.

Kernels have the same in ``opencl/time_tree.h`` and ``opencl/tree_prior.h``; whole densities are in
:mod:`mltree.sampling.tree_priors`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from mltree.program.contract import (
    CALIBRATION_WORDS,
    CHAIN_WORDS,
    LEAST_SHAPE,
    SCALAR_WORDS,
    SPARE_LENGTHS,
    TEAM_WORDS,
    TIME_WORDS,
    CalibrationWord,
    ClockKind,
    PriorKind,
    Scalar,
    TimeChain,
    TreePriorKind,
)
from mltree.system.arrays import Float64

PAIRED = TreePriorKind.COALESCENT, TreePriorKind.SKYGRID, TreePriorKind.SKYLINE
"""Priors of trees in which pairs of lineages meet."""


class TimeShape(NamedTuple):
    """Sizes on which the words of a time tree's chain depend."""

    tips: int
    cells: int = 0
    """Cells of a skygrid, or groups of a skyline."""
    calibrations: int = 0
    members: int = 0
    """Tips of all calibrations."""

    @property
    def nodes(self) -> int:
        """Nodes of the tree."""
        return 2 * self.tips - 1

    @property
    def words(self) -> int:
        """Words of a chain's state."""
        of_nodes = 11 * self.nodes + SPARE_LENGTHS
        of_priors = 3 * self.cells + CALIBRATION_WORDS * self.calibrations + self.members
        return CHAIN_WORDS + of_nodes + TEAM_WORDS + TIME_WORDS + of_priors

    @property
    def slots(self) -> int:
        """CLA slots of a chain: below every inner node, and above every node."""
        return self.tips - 1 + self.nodes


class TimeTreeWords:
    """Views into a chain's words f64[n]: see :class:`mltree.program.contract.TimeChain`."""

    def __init__(self, words: Float64, shape: TimeShape) -> None:
        self.words, self.shape = words, shape
        nodes, at = shape.nodes, CHAIN_WORDS

        def take(count: int) -> Float64:
            nonlocal at
            at += count
            return words[at - count : at]

        self.lengths = take(nodes)
        take(SPARE_LENGTHS)
        self.parent, self.left, self.right, self.spare = (take(nodes) for _ in range(4))
        take(TEAM_WORDS)
        self.time = take(TIME_WORDS)
        self.heights, self.rates, self.earliest, self.latest, self.warped, self.before = (
            take(nodes) for _ in range(6)
        )
        self.cells = take(3 * shape.cells).reshape(3, -1)
        """Log sizes, waiting and events of a skygrid's cells, or a skyline's groups."""
        self.calibrations = take(CALIBRATION_WORDS * shape.calibrations).reshape(-1, 9)
        self.members = take(shape.members)
        ends = slice(TimeChain.SCALARS, TimeChain.SCALARS + SCALAR_WORDS * len(Scalar))
        self.scalars = self.time[ends].reshape(-1, SCALAR_WORDS)
        """Value, kind of the prior and its arguments, of each scalar."""
        self.nodes, self.tips = nodes, shape.tips

    @property
    def root(self) -> int:
        """The number of the root."""
        return int(self.time[TimeChain.ROOT])

    @property
    def clock(self) -> float:
        """The rate of the clock."""
        return float(self.scalars[Scalar.CLOCK, 0])

    def sibling(self, v: int) -> int:
        """The other child of a node's parent."""
        u = int(self.parent[v])
        return int(self.right[u] if self.left[u] == v else self.left[u])

    def hang(self, u: int, before: int, after: int) -> None:
        """Put a subtree where another hangs from u."""
        (self.left if self.left[u] == before else self.right)[u] = after
        self.parent[after] = u

    def preorder(self, top: int | None = None) -> Iterator[int]:
        """Nodes from the root or another one down, parents first."""
        waiting = [self.root if top is None else top]
        while waiting:
            v = waiting.pop()
            yield v
            if v >= self.tips:
                waiting += [int(self.right[v]), int(self.left[v])]

    def duration(self, v: int) -> float:
        """The duration of the branch above v; 1 at the root."""
        if v == self.root:
            return 1.0
        return float(self.heights[int(self.parent[v])] - self.heights[v])

    def length(self, v: int) -> float:
        """Length of the branch above v, expected substitutions per site; unbounded."""
        return self.clock * float(self.rates[v]) * self.duration(v)

    @property
    def whole_duration(self) -> float:
        """The durations of all branches together."""
        return sum(self.duration(v) for v in range(self.nodes) if v != self.root)

    def older_child(self, v: int) -> float:
        """The height of a node's older child."""
        return float(max(self.heights[int(self.left[v])], self.heights[int(self.right[v])]))

    def stretch_heights(self, step: float, top: int | None = None) -> float:
        """Scale by how much nodes are older than their older child; return ln of the Jacobian.

        top  the node whose clade's inner nodes are stretched; the root where None
        """
        before = self.heights.copy()
        inner = [v for v in self.preorder(top) if v >= self.tips]
        for v in reversed(inner):
            gap = before[v] - max(before[int(self.left[v])], before[int(self.right[v])])
            self.heights[v] = self.older_child(v) + gap * math.exp(step)
        return step * len(inner)

    def calibrated_node(self, row: Float64) -> int:
        """The node that a calibration is about; -1 where its tips are no group and should be."""
        first, count = int(row[CalibrationWord.FIRST]), int(row[CalibrationWord.COUNT])
        tips = self.members[first : first + count].astype(np.int64).tolist()
        lines = []
        for tip in tips:
            line = [tip]
            while self.parent[line[-1]] >= 0:
                line.append(int(self.parent[line[-1]]))
            lines.append(line)
        shared = set(lines[0]).intersection(*lines[1:])
        top = next(v for v in lines[0] if v in shared)
        below = sum(v < self.tips for v in self.preorder(top))
        if row[CalibrationWord.IS_GROUP] and below != count:
            return -1
        return int(self.parent[top]) if row[CalibrationWord.IS_STEM] and top != self.root else top


def empty_time_words(chains: int, shape: TimeShape) -> Float64:
    """f64[chains, words]: states of chains, all zero but for what says their shape."""
    words = np.zeros((chains, shape.words))
    for row in words:
        tree = TimeTreeWords(row, shape)
        tree.time[TimeChain.CALIBRATIONS] = shape.calibrations
        tree.time[TimeChain.CELLS] = shape.cells
        tree.rates[:] = 1
    return words


def write_calibration(
    tree: TimeTreeWords, number: int, numbers: Sequence[float], tips: Sequence[int]
) -> None:
    """Write a calibration's numbers, up to IS_GROUP, and its tips behind those before it."""
    row, before = tree.calibrations[number], tree.calibrations[:number, CalibrationWord.COUNT]
    first = int(before.sum())
    row[: len(numbers)] = numbers
    row[CalibrationWord.FIRST], row[CalibrationWord.COUNT] = first, len(tips)
    tree.members[first : first + len(tips)] = tips


def log_density(kind: int, a: float, b: float, x: float) -> float:
    """Natural log of a density without its constant; -inf out of its support."""
    if kind in (PriorKind.LOG_NORMAL, PriorKind.GAMMA) and x <= 0:
        return -math.inf
    if kind == PriorKind.UNIFORM:
        return 0.0 if a <= x <= b else -math.inf
    if kind == PriorKind.BETA:
        return (a - 1) * math.log(x) + (b - 1) * math.log1p(-x) if 0 < x < 1 else -math.inf
    formulae: dict[PriorKind, Callable[[], float]] = {
        PriorKind.LOG_NORMAL: lambda: -(((math.log(x) - a) / b) ** 2) / 2 - math.log(x),
        PriorKind.GAMMA: lambda: (a - 1) * math.log(x) - b * x,
        PriorKind.NORMAL: lambda: -(((x - a) / b) ** 2) / 2,
        PriorKind.LAPLACE: lambda: -abs(x - a) / b,
    }
    return float(formulae[PriorKind(kind)]()) if kind != PriorKind.FIXED else 0.0


class TimePriors:
    """The natural logs of the priors of a time tree, without constants."""

    def __init__(self, tree: TimeTreeWords) -> None:
        self.tree = tree
        self._kind = int(tree.time[TimeChain.TREE_KIND])
        self._clock = int(tree.time[TimeChain.CLOCK_KIND])

    def value(self, which: Scalar) -> float:
        """The value of a scalar."""
        return float(self.tree.scalars[which, 0])

    def of_scalar(self, which: Scalar) -> float:
        """Return the log-density of a scalar."""
        x, kind, a, b = self.tree.scalars[which].tolist()
        return log_density(int(kind), a, b, x)

    def warp(self, height: float) -> float:
        """The integral of 1 / N up to a height."""
        if self._kind == TreePriorKind.SKYGRID:
            width, cell = float(self.tree.time[TimeChain.CELL_WIDTH]), self._cell(height)
            inverse = np.exp(-self.tree.cells[0])
            return float(width * inverse[:cell].sum() + (height - cell * width) * inverse[cell])
        growth = self.value(Scalar.GROWTH)
        grown = math.expm1(growth * height) / growth if growth else height
        return grown / self.value(Scalar.SIZE)

    def _cell(self, height: float) -> int:
        width = float(self.tree.time[TimeChain.CELL_WIDTH])
        return min(int(height / width), self.tree.shape.cells - 1)

    def of_heights(self) -> float:
        """Return that of all heights: births and deaths (Gernhard 2008, BEAST's root), or pairs."""
        tree = self.tree
        heights = tree.heights
        inner = heights[tree.tips :].tolist()
        if self._kind == TreePriorKind.SERIAL:
            return self._of_serial_heights()
        if self._kind == TreePriorKind.BIRTH_DEATH:
            r, a = self.value(Scalar.SIZE), self.value(Scalar.GROWTH)
            sampled, n = self.value(Scalar.FRACTION), tree.tips

            def seen(h: float) -> float:
                return math.log(sampled + (1 - sampled - a) * math.exp(-r * h))

            top = float(heights[tree.root])
            of_root = -r * top - seen(top) + (n - 1) * math.log(r * sampled) + n * math.log1p(-a)
            return float(of_root + sum(-r * h - 2 * seen(h) for h in inner))
        order = sorted(range(tree.nodes), key=lambda v: (heights[v], v))
        if self._kind == TreePriorKind.SKYLINE:
            return self._of_skyline(order)
        total, lineages = 0.0, 0
        for v, following in zip(order, [*order[1:], order[-1]], strict=True):
            lineages += 1 if v < tree.tips else -1
            waited = self.warp(float(heights[following])) - self.warp(float(heights[v]))
            total -= lineages * (lineages - 1) / 2 * waited
        return total + sum(map(self._log_inverse_size, inner))

    def _of_skyline(self, order: Sequence[int]) -> float:
        """Sizes that change at the last event of each group (Drummond et al. 2005)."""
        tree, last = self.tree, order[0]
        group_of = np.repeat(np.arange(tree.shape.cells), tree.cells[2].astype(np.int64)).tolist()
        total, lineages, events = 0.0, 0, 0
        for v in order:
            log_size = float(tree.cells[0, group_of[min(events, len(group_of) - 1)]])
            waited = float(tree.heights[v] - tree.heights[last])
            total -= lineages * (lineages - 1) / 2 * waited * math.exp(-log_size)
            is_event = v >= tree.tips
            total -= log_size * is_event
            lineages, events, last = lineages + 1 - 2 * is_event, events + is_event, v
        return total

    def _of_serial_heights(self) -> float:
        """Sampling through time (Stadler 2010); ln of how rare lineages are, by height."""
        tree, tips = self.tree, self.tree.tips
        removal, number = self.value(Scalar.SIZE), self.value(Scalar.GROWTH)
        present, sampling = self.value(Scalar.FRACTION), self.value(Scalar.SAMPLING) * removal
        births, growth = number * removal, (number - 1) * removal
        rate = math.sqrt(growth**2 + 4 * births * sampling)
        least = 4 * births * sampling / (rate + growth) if growth > 0 else rate - growth
        seen = (least + 2 * births * present) / (2 * rate)

        def rare(h: float) -> float:
            return -rate * h - 2 * math.log(seen + (1 - seen) * math.exp(-rate * h))

        top = float(tree.heights[tree.root])
        of_root = (rare(top) - rate * top) / 2 - math.log(rate) - math.log(seen)
        of_tips = 0.0
        for v in range(tips):
            at_once = present > 0 and tree.latest[v] == 0
            of_tips += math.log(present if at_once else sampling) - rare(float(tree.heights[v]))
        return tips * math.log(births) + of_root + of_tips + sum(map(rare, tree.heights[tips:]))

    def _log_inverse_size(self, height: float) -> float:
        if self._kind == TreePriorKind.SKYGRID:
            return -float(self.tree.cells[0, self._cell(height)])
        return self.value(Scalar.GROWTH) * height - math.log(self.value(Scalar.SIZE))

    def of_rate(self, v: int) -> float:
        """Return that of the rate of the branch above v."""
        rate, spread = float(self.tree.rates[v]), self.value(Scalar.SPREAD)
        if not rate > 0:
            return -math.inf
        if self._clock == ClockKind.LOG_NORMAL:
            z = (math.log(rate) + spread**2 / 2) / spread
            return -z * z / 2 - math.log(spread) - math.log(rate)
        shape = self.shape_of_rate(v)
        constant = shape * math.log(shape) - math.lgamma(shape)
        return constant + (shape - 1) * math.log(rate) - shape * rate

    def shape_of_rate(self, v: int) -> float:
        """Shape of the Gamma distribution of the rate above v; precision of a log-rate."""
        spread = self.value(Scalar.SPREAD)
        if self._clock == ClockKind.WHITE_NOISE:
            root = v == self.tree.root
            length = self.tree.clock * self.tree.duration(v)
            return 1.0 if root else max(length / spread, LEAST_SHAPE)
        return 1 / spread**2

    def of_rates(self) -> float:
        """Return that of all rates."""
        if self._clock == ClockKind.STRICT:
            return 0.0
        return float(sum(map(self.of_rate, range(self.tree.nodes))))

    def of_ages(self) -> float:
        """Return that of the ages of calibrated groups."""
        total = 0.0
        for row in self.tree.calibrations:
            node = self.tree.calibrated_node(row)
            if node < 0:
                return -math.inf
            kind, a, b, offset = row[: CalibrationWord.OFFSET + 1].tolist()
            total += log_density(int(kind), a, b, float(self.tree.heights[node]) - offset)
        return total

    def of_cells(self) -> float:
        """Return that of log sizes, of which the first has SIZE's prior.

        A skygrid's steps are normal (Gill et al. 2013); a skyline's sizes exponential, each of the
        mean of the one before.
        """
        sizes, precision = self.tree.cells[0], self.value(Scalar.PRECISION)
        if not len(sizes):
            return 0.0
        _, kind, a, b = self.tree.scalars[Scalar.SIZE].tolist()
        first = float(sizes[0])
        if self._kind == TreePriorKind.SKYLINE:
            of_chain = float((np.diff(sizes) - np.exp(np.diff(sizes))).sum())
            return log_density(int(kind), a, b, math.exp(first)) + first + of_chain
        steps = float((np.diff(sizes) ** 2).sum())
        of_steps = (len(sizes) - 1) / 2 * math.log(precision) - precision / 2 * steps
        return log_density(int(kind), a, b, math.exp(first)) + first + of_steps

    def total(self) -> float:
        """Return that of everything that a chain's words have."""
        is_grid = self.tree.shape.cells > 0
        scalars = [which for which in Scalar if not (is_grid and which == Scalar.SIZE)]
        parts = [self.of_heights(), self.of_rates(), self.of_ages(), self.of_cells()]
        return sum(parts) + sum(map(self.of_scalar, scalars))
