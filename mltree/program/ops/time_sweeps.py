"""TIME_SWEEPS: Markov chain Monte Carlo over trees with a time axis, a chain a record.

A state has heights of nodes, rates of branches, a clock, and the scalars of their priors; a branch
of duration d has the length ``clock * rate * d``. Each move leaves the heated posterior
L(x)^heat prior(x) what it is. Ratios beside that of posteriors:

SPREAD, SIZE, GROWTH, FRACTION, SAMPLING, PRECISION, CELL
              A scalar times e^s, s uniform: e^s; a real scalar, or the log of a size, plus s: 1.
PRECISION     Of a skyline: an event goes from a group of events to another: 1.
CLOCK         The clock times e^s: e^s.
TREE          How much each inner node is older than its older child, times e^s: e^(ns) for n inner
              nodes. Where tips have one date, all heights are multiplied by e^s.
UP_DOWN       The same, the clock times F = W / W', W being the duration of all branches, and the
              population size divided by F, or the rate of births times F: e^(ns), of births F^2
              times that; F times that where the size is known, and of a skygrid or a skyline, whose
              sizes are logs.
STRETCH       The spread of log-normal rates times e^s, every rate as many deviations from the mean
              as before: of the prior's ratio only the spread's own is left, times e^s.
REGRAFT       CHOOSE: a subtree is pruned, and one of the branches that are there at the height that
              it hung from chosen by L^heat (Gibbs among fixed heights: ratio of what depends on
              the topology but L, which is calibrations, and rates of white noise).
REHANG        The same at another height, the duration of the subtree's branch times e^s. With W(h)
              the sum of L^heat over the branches at height h: W(new) / W(old) * e^s, and no L.
INTERCHANGE   CHOOSE: one of the topologies around an inner branch in which parents are older than
              children, all heights kept, by L^heat (Gibbs). Calibrations: their ratio.
HEIGHT, TIP   A node's height, uniform between its bounds: 1.
ROOT          The duration of the root's shorter branch times e^s: e^s.
DISTANCE      A height as by HEIGHT or ROOT, and the rates around it times old duration over new:
              lnL stays, the ratio has the product of those factors.
PACE, CLADE   All heights as by TREE, or those of a clade's n inner nodes, and each rate times old
              duration over new: lnL stays, the ratio has e^(ns) and the product of those factors.
RATE          DRAW: a log-rate from the normal distribution that has the first two derivatives of
              the log-posterior at the present one; the ratio has the densities there and back.
MODEL         ACCEPT: a model that the host has proposed, with the ratio that it has computed.

The root's branch has a rate as well, which nothing depends on: a node keeps its rate where it goes,
and the root may change without a Jacobian. Interchanges, heights and rates are visited along the
outline of the tree, as in SWEEPS. Kernels compute lnL from what is below and above a node; here it
is computed anew from the whole tree.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from mltree.program.contract import (
    CHAIN_WORDS,
    FIRST_TIME_MOVE,
    LEAST_PRECISION,
    MOST_SHIFT,
    MOVE_STRIDE,
    PACE_CLADES,
    PACE_ROUNDS,
    PRIOR_WALKS,
    SPARE_LENGTHS,
    TEAM_WORDS,
    TIME_WORDS,
    CalibrationWord,
    Chain,
    ClockKind,
    PriorKind,
    Scalar,
    TimeChain,
    TimeMove,
    TreePriorKind,
)
from mltree.program.ops.operation import Kernel, Row
from mltree.program.ops.state import ReferenceState, ScaledCla
from mltree.program.ops.sweeps import EdgeSums, Replica, Side, Sweeps
from mltree.program.ops.time_trees import PAIRED, TimePriors, TimeShape, TimeTreeWords
from mltree.program.random_numbers import Stream
from mltree.system.arrays import Float64


class TimeSweeps(Sweeps):
    """Sweeps of Markov chains over trees with a time axis."""

    name = "TIME_SWEEPS"
    number = 10
    kernel = Kernel("time_sweeps")
    line = "{sweeps} sweeps of the time tree at {state}, {tips} tips, {case}"
    passes_a_regraft = 2

    def replica(self, state: ReferenceState, chain: Row) -> TimeReplica:
        return TimeReplica(state, chain)


class _Normal(NamedTuple):
    mean: float
    precision: float

    def log_density(self, x: float) -> float:
        return math.log(self.precision) / 2 - self.precision / 2 * (x - self.mean) ** 2


_REAL = (Scalar.GROWTH, Scalar.FRACTION, Scalar.SAMPLING)


class TimeReplica(Replica):
    """A chain of the reference, move by move."""

    tree: TimeTreeWords  # type: ignore[assignment]

    def _time_shape(self) -> TimeShape:
        """The chain's shape, by the numbers in its words."""
        chain = self._chain
        nodes = 2 * chain.tips - 1
        start = chain.state + CHAIN_WORDS + SPARE_LENGTHS + 5 * nodes + TEAM_WORDS
        time = self._state.lengths[start : start + TIME_WORDS]
        cells, calibrations = int(time[TimeChain.CELLS]), int(time[TimeChain.CALIBRATIONS])
        shape = TimeShape(chain.tips, cells, calibrations)
        return shape._replace(members=chain.last_state + 1 - chain.state - shape.words)

    def _read(self) -> None:
        shape = self._time_shape()
        self.words = self._state.lengths[self._chain.state : self._chain.state + shape.words]
        self.tree = TimeTreeWords(self.words, shape)
        self.priors = TimePriors(self.tree)

    def sweep(self, regrafts: int) -> None:
        """All moves of a sweep."""
        self.walk_priors()
        if self._is_relaxed:
            self.draw_rate(self.tree.root, self.tree.nodes * 4)
        self.change_pace()
        self.stretch()
        for move in (TimeMove.CLOCK, TimeMove.TREE, TimeMove.UP_DOWN):
            self.scale_all(move)
        for number in range(regrafts):
            self.regraft_timed(number, is_moving=True)
            self.regraft_timed(number, is_moving=False)
        self.tour()
        self._sweep += 1

    def finish(self) -> None:
        """Leave lnL, lengths and calibrated nodes in the chain's words."""
        super().finish()
        tree = self.tree
        for v in range(tree.nodes):
            if v != tree.root:
                tree.lengths[v] = self._length(v)
            tree.warped[v] = self.priors.warp(float(tree.heights[v])) if self._has_pairs else 0
        for row in tree.calibrations:
            row[CalibrationWord.NODE] = tree.calibrated_node(row)

    @property
    def _has_pairs(self) -> bool:
        return int(self.tree.time[TimeChain.TREE_KIND]) in PAIRED

    @property
    def _is_relaxed(self) -> bool:
        return int(self.tree.time[TimeChain.CLOCK_KIND]) != ClockKind.STRICT

    # Likelihoods.

    def _bounded(self, length: float) -> float:
        low, high = self._state.bounds
        return min(max(length, low), high)

    def _length(self, v: int) -> float:
        """Length above v; of a child of the root, both children's together."""
        length = self.tree.length(v)
        if self.tree.parent[v] == self.tree.root:
            length += self.tree.length(self.tree.sibling(v))
        return self._bounded(length)

    def _below(self, v: int) -> Side:
        return self._seen_up(v), self._length(v)

    def _seen_up(self, v: int) -> list[ScaledCla]:
        """CLAs of what is below v."""
        if v < self.tree.tips:
            return self._operand(v)
        children = int(self.tree.left[v]), int(self.tree.right[v])
        return self._joined(*(self._below(child) for child in children))

    def _seen_down(self, v: int) -> list[ScaledCla]:
        """CLAs of what is above the branch of v."""
        other, u = self.tree.sibling(v), int(self.tree.parent[v])
        if u == self.tree.root:
            return self._seen_up(other)
        return self._joined(self._below(other), (self._seen_down(u), self._length(u)))

    def _sums_at(self, v: int, length: float) -> EdgeSums:
        return self._sums_across(self._seen_up(v), self._seen_down(v), length)

    def whole_lnl(self) -> float:
        """Compute lnL across the branch between the root's children."""
        left = int(self.tree.left[self.tree.root])
        return self._sums_at(left, self._length(left)).lnl

    # Moves.

    def _stream_of(self, move: TimeMove, number: int = 0) -> Stream:
        words = self.words.tolist()
        seed = int(words[Chain.SEED_LOW]) | int(words[Chain.SEED_HIGH]) << 16
        counter = int(words[Chain.REPLICA]), self._sweep
        which = (FIRST_TIME_MOVE + move) * MOVE_STRIDE + number
        return Stream(seed, int(words[Chain.RUN]), *counter, which)

    def _tell(self, move: TimeMove, *, taken: bool) -> None:
        self.tree.time[TimeChain.TRIED + move] += 1
        self.tree.time[TimeChain.TAKEN + move] += taken

    def _step_of(self, move: TimeMove, stream: Stream) -> float:
        return float(self.tree.time[TimeChain.WINDOWS + move]) * (stream.uniform() - 0.5)

    def _is_free(self, which: Scalar) -> bool:
        return bool(self.tree.scalars[which, 1] != PriorKind.FIXED)

    def _prior(self) -> float:
        return self.priors.total()

    def _decide(self, stream: Stream, kept: Float64, log_ratio: float, lnl: float) -> bool:
        """Accept the state in the words, or go back to those that were kept."""
        taken = is_accepted(stream, log_ratio)
        if taken:
            self.lnl = lnl
        else:
            self.words[:] = kept
        return taken

    def walk_priors(self) -> None:
        """The scalars of priors, which have no say in the likelihood."""
        is_grid, is_skyline = self.tree.shape.cells > 0, self._is_skyline
        of_grid = ((Scalar.PRECISION, TimeMove.PRECISION),)
        of_others = (
            (Scalar.SIZE, TimeMove.SIZE),
            (Scalar.GROWTH, TimeMove.GROWTH),
            (Scalar.FRACTION, TimeMove.FRACTION),
            (Scalar.SAMPLING, TimeMove.SAMPLING),
        )
        for number in range(PRIOR_WALKS):
            self._walk(Scalar.SPREAD, TimeMove.SPREAD, number)
            for cell in range(self.tree.shape.cells if is_grid else 0):
                self._walk_cell(cell, number)
            for cell in range(self.tree.shape.cells if is_skyline else 0):
                self._walk_groups(cell, number)
            for which, move in () if is_skyline else of_grid if is_grid else of_others:
                self._walk(which, move, number)

    def _walk(self, which: Scalar, move: TimeMove, number: int) -> None:
        if not self._is_free(which):
            return
        stream, kept = self._stream_of(move, number), self.words.copy()
        step, before = self._step_of(move, stream), self._prior()
        scalar = self.tree.scalars[which]
        scalar[0] = scalar[0] + step if which in _REAL else scalar[0] * math.exp(step)
        taken = self.priors.of_scalar(which) > -math.inf
        if taken:
            ratio = self._prior() - before + (0 if which in _REAL else step)
            taken = self._decide(stream, kept, ratio, self.lnl)
        else:
            self.words[:] = kept
        self._tell(move, taken=taken)

    def _walk_cell(self, cell: int, number: int) -> None:
        place = number * self.tree.shape.cells + cell
        stream, kept = self._stream_of(TimeMove.CELL, place), self.words.copy()
        before = self._prior()
        self.tree.cells[0, cell] += self._step_of(TimeMove.CELL, stream)
        taken = self._decide(stream, kept, self._prior() - before, self.lnl)
        self._tell(TimeMove.CELL, taken=taken)

    def _walk_groups(self, attempt: int, number: int) -> None:
        """Let an event go from a group of a skyline to another."""
        groups = self.tree.shape.cells
        if groups < 2:
            return
        stream = self._stream_of(TimeMove.PRECISION, number * groups + attempt)
        origin = min(int(stream.uniform() * groups), groups - 1)
        target = min(int(stream.uniform() * (groups - 1)), groups - 2)
        target += target >= origin
        kept, taken, before = self.words.copy(), self.tree.cells[2, origin] > 1, self._prior()
        if taken:
            self.tree.cells[2, origin] -= 1
            self.tree.cells[2, target] += 1
            taken = self._decide(stream, kept, self._prior() - before, self.lnl)
        self._tell(TimeMove.PRECISION, taken=taken)

    @property
    def _is_skyline(self) -> bool:
        return int(self.tree.time[TimeChain.TREE_KIND]) == TreePriorKind.SKYLINE

    def scale_all(self, move: TimeMove) -> None:
        """All heights, the clock, or time: heights, the clock and population sizes together."""
        of_clock, of_heights = move != TimeMove.TREE, move != TimeMove.CLOCK
        if of_clock and not self._is_free(Scalar.CLOCK):
            return
        stream, kept, tree = self._stream_of(move), self.words.copy(), self.tree
        step, before = self._step_of(move, stream), self._prior()
        jacobian, of_clock_step = 0.0, step if of_clock else 0.0
        if of_heights:
            whole = tree.whole_duration
            jacobian = tree.stretch_heights(step)
            if of_clock:
                of_clock_step = math.log(whole / tree.whole_duration)
        if of_clock and of_heights and self._is_free(Scalar.SIZE):
            jacobian += self.scale_sizes(-of_clock_step)
        tree.scalars[Scalar.CLOCK, 0] *= math.exp(of_clock_step)
        jacobian += of_clock_step
        inner = range(tree.tips, tree.nodes)
        taken = all(tree.heights[v] > tree.older_child(v) for v in inner)
        taken = taken and self.priors.of_scalar(Scalar.CLOCK) > -math.inf
        if taken:
            ratio = self._prior() - before + jacobian
            lnl = self.whole_lnl()
            ratio += self._heat * (lnl - self.lnl)
            taken = self._decide(stream, kept, ratio, lnl)
        else:
            self.words[:] = kept
        self._tell(move, taken=taken)

    def scale_sizes(self, step: float) -> float:
        """Scale population sizes, or how rare births are; return ln of the Jacobian."""
        self.tree.cells[0] += step
        if self.tree.shape.cells:
            return 0.0
        of_size = step if self._has_pairs else -step
        self.tree.scalars[Scalar.SIZE, 0] *= math.exp(of_size)
        return of_size

    def stretch(self) -> None:
        """The spread of log-normal rates, and all deviations from their mean."""
        is_log_normal = int(self.tree.time[TimeChain.CLOCK_KIND]) == ClockKind.LOG_NORMAL
        if not is_log_normal or not self._is_free(Scalar.SPREAD):
            return
        stream, kept = self._stream_of(TimeMove.STRETCH), self.words.copy()
        step, scalar = self._step_of(TimeMove.STRETCH, stream), self.tree.scalars[Scalar.SPREAD]
        before, was = float(scalar[0]), self.priors.of_scalar(Scalar.SPREAD)
        scalar[0] = after = before * math.exp(step)
        ratio = self.priors.of_scalar(Scalar.SPREAD) - was + step
        taken = ratio > -math.inf
        if taken:
            z = (np.log(self.tree.rates) + before**2 / 2) / before
            self.tree.rates[:] = np.exp(z * after - after**2 / 2)
            lnl = self.whole_lnl()
            taken = self._decide(stream, kept, ratio + self._heat * (lnl - self.lnl), lnl)
        else:
            self.words[:] = kept
        self._tell(TimeMove.STRETCH, taken=taken)

    def move_height(self, v: int, number: int) -> None:
        """A node's height, between what is above and below it."""
        tree, is_tip = self.tree, v < self.tree.tips
        move = TimeMove.TIP if is_tip else TimeMove.HEIGHT
        above = float(tree.heights[int(tree.parent[v])])
        low = float(tree.earliest[v]) if is_tip else tree.older_child(v)
        high = min(float(tree.latest[v]), above) if is_tip else above
        if not low < high:
            return
        stream, kept, before = self._stream_of(move, number), self.words.copy(), self._prior()
        tree.heights[v] = low + (high - low) * stream.uniform()
        lnl = self.whole_lnl()
        ratio = self._prior() - before + self._heat * (lnl - self.lnl)
        self._tell(move, taken=self._decide(stream, kept, ratio, lnl))

    def move_root(self, number: int) -> None:
        """The root's height above its older child."""
        tree, root = self.tree, self.tree.root
        stream, kept = self._stream_of(TimeMove.ROOT, number), self.words.copy()
        step, before = self._step_of(TimeMove.ROOT, stream), self._prior()
        low = tree.older_child(root)
        tree.heights[root] = low + (tree.heights[root] - low) * math.exp(step)
        lnl = self.whole_lnl()
        ratio = self._prior() - before + step + self._heat * (lnl - self.lnl)
        self._tell(TimeMove.ROOT, taken=self._decide(stream, kept, ratio, lnl))

    def change_pace(self) -> None:
        """Heights and rates by moves that keep all lengths."""
        if not self._is_relaxed or self._is_skyline:
            return
        tree = self.tree
        for number in range(PACE_ROUNDS):
            self.keep_lengths(TimeMove.PACE, number)
            clades = PACE_CLADES if self._has_pairs else max(PACE_CLADES, tree.tips // 4)
            for n in range(clades):
                place = number * max(tree.nodes, PACE_CLADES) + n
                self.keep_lengths(TimeMove.CLADE, place)
            for v in range(tree.tips, tree.nodes):
                self.keep_distance(v, (2 + number) * tree.nodes + v)
            self._walk(Scalar.SPREAD, TimeMove.SPREAD, PRIOR_WALKS + number)

    def keep_lengths(self, move: TimeMove, number: int) -> None:
        """Inner heights of the tree, or of a clade, stretched, with rates that keep all lengths."""
        tree, inner = self.tree, self.tree.tips - 1
        stream, kept = self._stream_of(move, number), self.words.copy()
        step, before, top = self._step_of(move, stream), self._prior(), tree.root
        if move == TimeMove.CLADE:
            top = tree.tips + min(int(stream.uniform() * inner), inner - 1)
        branches = [v for v in range(tree.nodes) if v != tree.root]
        durations = [tree.duration(v) for v in branches]
        ratio = tree.stretch_heights(step, top)
        taken = all(tree.heights[v] > tree.older_child(v) for v in range(tree.tips, tree.nodes))
        if taken:
            for v, duration in zip(branches, durations, strict=True):
                factor = duration / tree.duration(v)
                tree.rates[v] *= factor
                ratio += math.log(factor)
            taken = self._decide(stream, kept, ratio + self._prior() - before, self.lnl)
        else:
            self.words[:] = kept
        self._tell(move, taken=taken)

    def keep_distance(self, v: int, number: int) -> None:
        """Another height of v, with rates around it that keep all lengths."""
        if not self._is_relaxed:
            return
        tree, is_root = self.tree, v == self.tree.root
        stream, kept = self._stream_of(TimeMove.DISTANCE, number), self.words.copy()
        before, low, ratio = self._prior(), tree.older_child(v), 0.0
        around = [int(tree.left[v]), int(tree.right[v])] + ([] if is_root else [v])
        durations = [tree.duration(x) for x in around]
        if is_root:
            ratio = self._step_of(TimeMove.ROOT, stream)
            tree.heights[v] = low + (tree.heights[v] - low) * math.exp(ratio)
        else:
            above = float(tree.heights[int(tree.parent[v])])
            tree.heights[v] = low + (above - low) * stream.uniform()
        for x, duration in zip(around, durations, strict=True):
            factor = duration / tree.duration(x)
            tree.rates[x] *= factor
            ratio += math.log(factor)
        taken = self._decide(stream, kept, ratio + self._prior() - before, self.lnl)
        self._tell(TimeMove.DISTANCE, taken=taken)

    def _fitted(self, v: int, x: float, length: float, at: EdgeSums) -> _Normal:  # type: ignore[override]
        """The normal distribution of a log-rate with the log-posterior's derivatives at x."""
        shape, rate = self.priors.shape_of_rate(v), math.exp(x)
        slope, own, least = shape * (1 - rate), shape * rate, min(shape, 1.0)
        if int(self.tree.time[TimeChain.CLOCK_KIND]) == ClockKind.LOG_NORMAL:
            spread = self.priors.value(Scalar.SPREAD)
            slope, own, least = -(x + spread**2 / 2) * shape, shape, shape
        slope += self._heat * at.slope * length
        curve = own - self._heat * (at.curve * length**2 + at.slope * length)
        precision = max(curve, LEAST_PRECISION * least)
        most = MOST_SHIFT / math.sqrt(precision)
        return _Normal(x + min(max(slope / precision, -most), most), precision)

    def draw_rate(self, v: int, number: int) -> None:
        """Draw the rate of the branch above v."""
        if not self._is_relaxed:
            return
        tree, is_root = self.tree, v == self.tree.root
        stream, kept, before = self._stream_of(TimeMove.RATE, number), self.words.copy(), 0.0
        x, scale = math.log(tree.rates[v]), 0.0 if is_root else tree.clock * tree.duration(v)
        here = EdgeSums(self.lnl, 0, 0) if is_root else self._sums_at(v, self._length(v))
        forth, before = self._fitted(v, x, scale * float(tree.rates[v]), here), self._prior()
        drawn = forth.mean + stream.normal() / math.sqrt(forth.precision)
        tree.rates[v] = math.exp(drawn)
        there = here if is_root else self._sums_at(v, self._length(v))
        back = self._fitted(v, drawn, scale * math.exp(drawn), there)
        ratio = self._prior() - before + drawn - x + self._heat * (there.lnl - here.lnl)
        ratio += back.log_density(x) - forth.log_density(drawn)
        self.lnl = here.lnl
        self._tell(TimeMove.RATE, taken=self._decide(stream, kept, ratio, there.lnl))

    def interchange(self, v: int, number: int) -> None:
        """Choose one of the topologies around the branch above v."""
        tree, other = self.tree, self.tree.sibling(v)
        if not tree.heights[other] < tree.heights[v]:
            return
        stream, kept = self._stream_of(TimeMove.INTERCHANGE, number), self.words.copy()
        left, right, u = int(tree.left[v]), int(tree.right[v]), int(tree.parent[v])
        noise, ages = self._noise(), self.priors.of_ages()

        def swapped(moved: int) -> tuple[float, float]:
            self.words[:] = kept
            tree.hang(u, other, moved)
            tree.hang(v, moved, other)
            lnl = self.whole_lnl()
            return lnl, self._heat * lnl + self._noise() - noise

        stays = self._heat * self.lnl + stream.gumbel()
        with_right, weight = swapped(right)
        (with_left, left_weight) = swapped(left)
        right_moves, left_moves = weight + stream.gumbel(), left_weight + stream.gumbel()
        self.words[:] = kept
        taken = right_moves > stays or left_moves > stays
        if taken:
            is_right = right_moves > left_moves or not left_moves > stays
            swapped(right if is_right else left)
            lnl = with_right if is_right else with_left
            if len(tree.calibrations):
                taken = self._decide(stream, kept, self.priors.of_ages() - ages, lnl)
            self.lnl = lnl if taken else self.lnl
        self._tell(TimeMove.INTERCHANGE, taken=taken)

    def _noise(self) -> float:
        """Prior of rates, where it depends on durations."""
        is_noise = int(self.tree.time[TimeChain.CLOCK_KIND]) == ClockKind.WHITE_NOISE
        return self.priors.of_rates() if is_noise else 0.0

    def take_out(self, u: int, w: int) -> None:
        """Put w in the place of its parent u."""
        g = int(self.tree.parent[u])
        if g >= 0:
            self.tree.hang(g, u, w)
        else:
            self.tree.parent[w], self.tree.time[TimeChain.ROOT] = -1, w

    def put_in(self, u: int, v: int, x: int) -> None:
        """Put u, which carries v, between x and its parent, or above x."""
        tree, g = self.tree, int(self.tree.parent[x])
        if g >= 0:
            tree.hang(g, x, u)
        else:
            tree.parent[u], tree.time[TimeChain.ROOT] = -1, u
        (tree.right if tree.left[u] == v else tree.left)[u] = x
        tree.parent[x] = u

    def regraft_timed(self, number: int, *, is_moving: bool) -> None:
        """Prune a subtree, and regraft it among the branches of its height, or of another."""
        move = TimeMove.REHANG if is_moving else TimeMove.REGRAFT
        tree, stream, kept = self.tree, self._stream_of(move, number), self.words.copy()
        v = min(int(stream.uniform() * (tree.nodes - 1)), tree.nodes - 2)
        v += v >= tree.root
        u, w, before = int(tree.parent[v]), tree.sibling(v), self._prior()
        low, old = float(tree.heights[v]), float(tree.heights[u])
        step = self._step_of(move, stream) if is_moving else 0.0
        height = low + (old - low) * math.exp(step) if is_moving else old
        if not height > low:
            self._tell(move, taken=False)
            return
        self.take_out(u, w)
        heights = [old, height] if is_moving else [height]
        best: list[float] = [-math.inf] * len(heights)
        chosen, lnls, sums = [-1] * len(heights), [0.0] * len(heights), [-math.inf] * len(heights)
        places: list[tuple[int, int]] = []
        top = tree.root
        places += [(top, n) for n, h in enumerate(heights) if h > tree.heights[top]]
        for x in self._preorder_above(top, min(heights)):
            for n, h in enumerate(heights):
                if x != top and tree.heights[x] < h < tree.heights[int(tree.parent[x])]:
                    places.append((x, n))
        for x, n in places:
            self.put_in(u, v, x)
            tree.heights[u] = heights[n]
            lnl = self.whole_lnl()
            self.take_out(u, x)
            score = self._heat * lnl + stream.gumbel()
            if score > best[n]:
                best[n], chosen[n], lnls[n] = score, x, lnl
            sums[n] = float(np.logaddexp(sums[n], self._heat * lnl))
        x = chosen[-1]
        taken = x >= 0
        if taken:
            self.put_in(u, v, x)
            tree.heights[u] = height
            ratio = self._prior() - before + step + sums[-1] - sums[0]
            taken = self._decide(stream, kept, ratio, lnls[-1])
        else:
            self.words[:] = kept
        self._tell(move, taken=taken and (is_moving or x != w))

    def _preorder_above(self, top: int, height: float) -> Iterator[int]:
        waiting = [top]
        while waiting:
            v = waiting.pop()
            yield v
            if v >= self.tree.tips and self.tree.heights[v] > height:
                waiting += [int(self.tree.right[v]), int(self.tree.left[v])]

    def tour(self) -> None:
        """Visit as many places of the tree's outline as it has, from any of them on."""
        tree, edges = self.tree, self.tree.nodes - 1
        place = min(int(self._stream_of(TimeMove.TOUR).uniform() * 2 * edges), 2 * edges - 1)
        v, descends = place % edges, place < edges
        v += v >= tree.root
        for step in range(2 * edges):
            u = int(tree.parent[v])
            if descends:
                if v >= tree.tips:
                    self.interchange(v, step)
                    self.keep_distance(v, step)
                self.move_height(v, step)
                descends = v >= tree.tips
                v = int(tree.left[v]) if descends else v
                continue
            self.draw_rate(v, step)
            if v == tree.left[u]:
                v, descends = int(tree.right[u]), True
            elif u == tree.root:
                self.move_root(step)
                self.keep_distance(u, step)
                v, descends = int(tree.left[u]), True
            else:
                v = u


def is_accepted(stream: Stream, log_ratio: float) -> bool:
    """Decide if a state of this ln ratio takes the place of the present one (ACCEPT)."""
    return math.log(stream.uniform()) < log_ratio
