"""Least squares dating (To, Jung, Lycett, Gascuel 2016, Syst. Biol. 65:82-97), R problems at once.

A clock of rate ω explains branch lengths b by the dates t of their ends. With x = ω t, positions
in substitutions per site, the dates that minimise

    Σ w (b - (x_child - x_parent))²,   x_child ≥ x_parent,   ω lower ≤ x ≤ ω upper,

are those of a convex quadratic problem in x and ω. Its constraints are met by a primal-dual
interior point method, whose terms have the form of the branches' own, so that every step is one
pass over the tree from the tips to the root and one back, in linear time.

Letters: N nodes, R problems that differ in lengths, weights and bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np

from mltree.system.arrays import Bool, Float64, Index
from mltree.system.values import Value
from mltree.tree.clades import WrittenTree

Columns: TypeAlias = Index | slice
"""Some of R problems."""

COMPLEMENTARY = 1e-13
"""Product of a constraint's slack and multiplier, as a share of weight times depth², at the end."""

STIFFEST = 1e8
"""Largest weight of a constraint's term, as a multiple of the mean weight of branches: rounding
errors grow with it, and its multiplier holds what it does not."""

MOST_STEPS = 80
"""Steps of the interior point method at most; some 15 to 30 are taken."""

CENTRED, NEARLY = 0.1, 0.995
"""Share of the slacks' products that a step aims at; share of the way to the nearest constraint."""

BEGINNING = 1e-2
"""First slack of a constraint that is violated or nearly so, as a share of the tree's depth."""

SETTLED = 1e-5
"""Largest step that ends reweighting, as a share of the tree's depth."""

Reweigh: TypeAlias = Callable[[Float64], Float64]
"""Weights of branches, f64 [N, R], by positions of nodes, f64 [N, R]."""

PULL = 1e-7
"""Weight that draws a date without other evidence to its preferred place, as a share of the mean
weight of branches: it matters only where nothing else tells."""


class Levels:
    """A rooted tree with its nodes numbered by levels: the root, its children, theirs, ...

    Siblings stand side by side, in the order of their parents, so that a level is a slice.
    """

    def __init__(self, tree: WrittenTree) -> None:
        depth = np.zeros(tree.n_nodes, np.intp)
        parents = tree.parent.tolist()
        for node in range(1, tree.n_nodes):
            depth[node] = depth[parents[node]] + 1
        self.order: Index = np.argsort(depth, kind="stable")
        """intp [N]: the written tree's number of each node."""
        self.place: Index = np.empty_like(self.order)
        """intp [N]: the number here of each node of the written tree."""
        self.place[self.order] = np.arange(tree.n_nodes)
        self.parent: Index = self.place[tree.parent[self.order]]
        """intp [N]: a level behind that of its parent; the root's own number for the root."""
        self.parent[0] = 0
        self.is_tip: Bool = np.ones(len(self.order), np.bool_)
        """bool [N]."""
        self.is_tip[self.parent[1:]] = False
        self.is_tip[0] = False
        self.tips: Index = np.flatnonzero(self.is_tip)
        self.inner: Index = np.flatnonzero(~self.is_tip)
        """Numbers of tips, and of inner nodes, both rising."""
        rank = np.cumsum(~self.is_tip) - 1
        level_of = depth[self.order]
        self.slices = _slices(level_of)
        """The levels below the root, from the root on."""
        self.inner_slices = _slices(level_of[self.inner])
        """The inner nodes of these levels, as ranks among inner nodes."""
        self.above: Index = rank[self.parent]
        """intp [N]: the rank of each node's parent."""
        self._tip_families = np.unique(self.above[self.tips], return_index=True)
        above = self.above[self.inner]
        self._families = [np.unique(above[one], return_index=True) for one in self.inner_slices]

    @property
    def n_nodes(self) -> int:
        """Number of nodes, N."""
        return len(self.order)

    def sum_of_tips(self, values: Float64, sums: Float64) -> None:
        """Add values of tips, f64 [3, T, R], to those of their parents, f64 [3, I, R]."""
        parents, first = self._tip_families
        sums[:, parents] += np.add.reduceat(values, first, axis=1)

    def sum_of_level(self, number: int, values: Float64, sums: Float64) -> None:
        """Add values of the inner nodes of a level to those of their parents."""
        parents, first = self._families[number]
        sums[:, parents] += np.add.reduceat(values, first, axis=1)

    def depths(self, lengths: Float64) -> Float64:
        """Distance of each node from the root, by lengths of the branches above, f64 [N, R]."""
        depth = np.array(lengths, np.float64)
        depth[0] = 0.0
        for level in self.slices:
            depth[level] += depth[self.parent[level]]
        return depth


def _slices(level: Index) -> list[slice]:
    """Where each level but the first begins and ends; ``level`` rises from 0."""
    bounds = np.searchsorted(level, np.arange(1, int(level[-1]) + 2))
    return [slice(a, b) for a, b in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)]


class Bounds(Value, eq=False):
    """Dates that nodes may have, f64 [N]; infinite where nothing is known."""

    lower: Float64
    upper: Float64
    """Equal to ``lower`` where the date is known."""
    preferred: Float64
    """f64 [N] or [N, R]: the date within the bounds where the lengths do not tell; else NaN."""

    @cached_property
    def is_known(self) -> Bool:
        """True for nodes of one possible date, bool [N]."""
        known: Bool = np.isfinite(self.lower) & (self.lower == self.upper)
        return known

    @classmethod
    def of(cls, lower: Float64, upper: Float64) -> Bounds:
        """Bounds whose preferred dates are the middles of intervals."""
        both = np.isfinite(lower) & np.isfinite(upper)
        middle = np.full(lower.shape, np.nan)
        middle[both] = 0.5 * (lower[both] + upper[both])
        return cls(lower, upper, middle)


class DateFit(NamedTuple):
    """Dates and rates of R problems."""

    position: Float64
    """x = ω (t - origin) of each node, substitutions per site, f64 [N, R]."""
    rate: Float64
    """ω, substitutions per site and unit of time, f64 [R]; may be ≤ 0 without temporal signal."""
    objective: Float64
    """f64 [R]: the weighted sum of squares."""
    is_held: Bool
    """True where the order of a node and its parent holds the node back, bool [N, R]."""
    origin: float
    """The date at which x is 0."""

    @property
    def dates(self) -> Float64:
        """T of each node, f64 [N, R]."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(self.position / self.rate + self.origin, np.float64)


def least_squares(
    levels: Levels,
    lengths: Float64,
    weights: Float64,
    bounds: Bounds,
    *,
    free_root: bool = False,
    constrained: bool = True,
    reweigh: Reweigh | None = None,
    accuracy: float = COMPLEMENTARY,
) -> DateFit:
    """Solve R problems.

    lengths, weights  f64 [N, R], of the branch above each node; the root's are not read
    free_root    True to place the root anywhere on the branch that its two children share: only the
                 sum of their lengths counts
    constrained  False to let nodes be older than their parents
    accuracy     see :data:`COMPLEMENTARY`
    reweigh      weights by the positions found so far, where they depend on these
    """
    return _Solver(levels, lengths, weights, bounds, free_root).solve(
        constrained, reweigh, accuracy
    )


def _messages(w: Float64, b: Float64, sums: Float64) -> Float64:
    """The quadratics that nodes pass to their parents, of those that they have, f64 [3, .., R]."""
    total = w + sums[0]
    total[total <= 0.0] = 1.0
    message = np.array(sums)
    message[1] -= sums[0] * b
    message *= w / total
    return message


def _of_rate(
    w: Float64, b: Float64, t: Float64, sums: Float64, is_known: Bool
) -> tuple[Float64, Float64]:
    """Terms that nodes add to c and d of the root's quadratic in ω, f64 [R] each."""
    a, beta, gamma = sums
    square, linear = np.zeros((2, w.shape[1]))
    if (f := np.flatnonzero(is_known)).size:
        wf, tf = w[f], t[f]
        square += np.einsum("nr,nr,nr->r", a[f] + wf, tf, tf)
        square -= 2.0 * np.einsum("nr,nr->r", gamma[f], tf)
        linear += np.einsum("nr,nr->r", beta[f] + wf * b[f], tf)
    if (f := np.flatnonzero(~is_known)).size:
        wf, g = w[f], gamma[f]
        total = wf + a[f]
        total[total <= 0.0] = 1.0
        square -= np.einsum("nr,nr->r", g, g / total)
        linear += np.einsum("nr,nr->r", g, (beta[f] + b[f] * wf) / total)
    return square, linear


class _Solver:
    def __init__(
        self, levels: Levels, lengths: Float64, weights: Float64, bounds: Bounds, free_root: bool
    ) -> None:
        self.levels, self.free_root = levels, free_root
        self.lengths, self.weights = lengths, self._both(weights.copy())
        self.columns = lengths.shape[1]
        if free_root:
            self.lengths = lengths.copy()
            self.lengths[1] = self.lengths[2] = 0.5 * (lengths[1] + lengths[2])
        self.known = bounds.is_known
        shape = lengths.shape

        finite = np.concatenate([of[np.isfinite(of)] for of in (bounds.lower, bounds.upper)])
        self.origin = float(finite.mean()) if finite.size else 0.0  # x = ω (t - origin)

        def wide(of: Float64) -> Float64:
            return np.broadcast_to(of.reshape(shape[0], -1) - self.origin, shape)

        self.dates = np.where(self.known[:, None], wide(bounds.lower), 0.0)
        self.lower, self.upper, preferred = map(
            wide, (bounds.lower, bounds.upper, bounds.preferred)
        )
        open_ = ~self.known[:, None]
        self.has_lower = open_ & np.isfinite(self.lower)
        self.has_upper = open_ & np.isfinite(self.upper)
        self.lower = np.where(self.has_lower, self.lower, 0.0)
        self.upper = np.where(self.has_upper, self.upper, 0.0)
        has_place = open_ & np.isfinite(preferred)
        self.pull = np.where(has_place, PULL * self.weights[1:].mean(axis=0), 0.0)
        self.preferred = np.where(has_place, preferred, 0.0)
        self.is_bounded = bool(self.has_lower.any() or self.has_upper.any())
        self.kinds = 3 if self.is_bounded else 1
        self.has_known_inner = bool(self.known[levels.inner].any())
        self.is_pulled = bool(has_place.any())
        self.scale = np.maximum(levels.depths(np.abs(self.lengths)).max(axis=0), 1e-300)

    def solve(self, constrained: bool, reweigh: Reweigh | None, accuracy: float) -> DateFit:
        """Primal-dual interior point steps, every problem as far as it needs."""
        shape, self.constrained = self.lengths.shape, constrained
        every = slice(None)
        none = np.zeros((self.kinds, *shape))
        position, rate = self._step(none, none, every)
        present = self._present()
        if not present.any():
            for _ in range(MOST_STEPS):
                if reweigh is None:
                    break
                before = position
                self.weights = self._both(reweigh(position))
                position, rate = self._step(none, none, every)
                if (np.abs(position - before).max(axis=0) <= SETTLED * self.scale).all():
                    break
            return self._fit(position, rate, none[0] > 0.0)
        mean = self.weights[1:].mean(axis=0)
        slack = self._slack_of(position, rate, every)
        slack = np.where(present, np.maximum(slack, BEGINNING * self.scale), 1.0)
        force = np.where(present, (BEGINNING * self.scale) ** 2 * mean / slack, 0.0)
        n_present = present.sum(axis=(0, 1))
        left = np.arange(self.columns)
        for _ in range(MOST_STEPS):
            at = slice(None) if len(left) == self.columns else left
            s, f, here = slack[..., at], force[..., at], present[..., at]
            product = s * f
            gap = product.sum(axis=(0, 1)) / n_present[at]
            aim = CENTRED * gap
            pushes = f + aim / s
            spring = np.where(here, np.minimum(f / s, STIFFEST * mean[at]), 0.0)
            x, speed = self._step(spring, pushes / np.where(spring > 0.0, spring, 1.0), at)
            change = np.where(here, self._slack_of(x, speed, at) - s, 0.0)
            change_f = np.where(here, aim / s - spring * (s + change), 0.0)
            with np.errstate(divide="ignore", invalid="ignore"):
                ways = np.where(change < 0.0, -s / change, np.inf).min(axis=(0, 1))
                ways_f = np.where(change_f < 0.0, -f / change_f, np.inf).min(axis=(0, 1))
            share = np.minimum(1.0, NEARLY * np.minimum(ways, ways_f))
            moved = share * (x - position[:, at])
            position[:, at] += moved
            rate[at] += share * (speed - rate[at])
            slack[..., at] = s + share * change
            force[..., at] = f + share * change_f
            is_done = (gap <= accuracy * mean[at] * self.scale[at] ** 2) & (share > 0.5)
            if reweigh is not None:
                is_done &= np.abs(moved).max(axis=0) <= SETTLED * self.scale[at]
                self.weights = self._both(reweigh(position))
            left = left[~is_done]
            if not left.size:
                break
        return self._fit(position, rate, present[0] & (force[0] * self.scale > slack[0] * mean))

    def _present(self) -> Bool:
        """Constraints that there are: order, lower and upper bounds, bool [1 or 3, N, R]."""
        present = np.zeros((self.kinds, *self.lengths.shape), np.bool_)
        present[0, 1:] = self.constrained
        known = self.known & self.known[self.levels.parent]
        present[0, known] = False  # both dates are known: nothing can move
        if self.is_bounded:
            present[1], present[2] = self.has_lower, self.has_upper
        return present

    def _both(self, weights: Float64) -> Float64:
        """Weights with none of the root's; two branches of a free root share theirs."""
        weights[0] = 0.0
        if self.free_root:  # two branches of half the variance each are one of the whole
            weights[1] = weights[2] = 2.0 / (1.0 / weights[1] + 1.0 / weights[2])
        return weights

    def _differences(self, position: Float64) -> Float64:
        return np.asarray(position - position[self.levels.parent], np.float64)

    def _slack_of(self, x: Float64, speed: Float64, columns: Columns) -> Float64:
        """Slack of order, lower and upper bounds, f64 [3, N, columns]; below 0: violated."""
        slack = np.empty((self.kinds, *x.shape))
        slack[0] = self._differences(x)
        if self.is_bounded:
            slack[1] = x - speed * self.lower[:, columns]
            slack[2] = speed * self.upper[:, columns] - x
        return slack

    def _step(self, spring: Float64, rest: Float64, columns: Columns) -> tuple[Float64, Float64]:
        """The minimum with springs on the slacks of constraints, of these lengths at rest."""
        own, length = self.weights[:, columns], self.lengths[:, columns]
        weight = own + spring[0]
        safe = np.where(weight > 0.0, weight, 1.0)
        pulls = spring[0] * rest[0]
        if not self.free_root:
            return self._pass(weight, (own * length + pulls) / safe, spring, rest, columns)
        # The root's place is a split of the branch; positions are affine in it.
        found = []
        span = length[1] + length[2]
        ends: list[tuple[Float64, Float64]] = []
        for split in (np.zeros_like(span), span + (span == 0.0)):
            lengths = length.copy()
            lengths[1], lengths[2] = split, span - split
            target = (own * lengths + pulls) / safe
            x, rate = self._pass(weight, target, spring, rest, columns)
            apart = (lengths[1] - x[1]) - (lengths[2] - x[2])
            found.append((x, rate))
            ends.append((split, apart))
        (_, first), (_, last) = ends
        change = last - first
        share = np.where(change != 0.0, -first / np.where(change != 0.0, change, 1.0), 0.5)
        (x0, rate0), (x1, rate1) = found
        return x0 + share * (x1 - x0), rate0 + share * (rate1 - rate0)

    def _pass(
        self, weight: Float64, target: Float64, spring: Float64, rest: Float64, columns: Columns
    ) -> tuple[Float64, Float64]:
        """Positions and rates that minimise Σ weight (target - difference)² and the bounds' terms.

        Below each node the minimum over the nodes there is a quadratic in its own x and ω:
        a x² - 2 (β + γ ω) x + c ω² - 2 d ω, which the node passes to its parent.
        """
        levels, known, dates = self.levels, self.known, self.dates[:, columns]
        tips, inner = levels.tips, levels.inner
        own = np.zeros((3, *weight.shape)) if self.is_bounded or self.is_pulled else None
        square, linear = np.zeros((2, weight.shape[1]))  # c, d
        for u, g, h in self._terms(spring, rest, columns):  # u (x - ω g - h)²
            assert own is not None
            own += u * np.stack((np.ones_like(u), np.broadcast_to(h, u.shape), g))
            square += np.einsum("nr,nr,nr->r", u, g, g)
            linear -= (u * g * h).sum(axis=0)
        sums = np.zeros((3, len(inner), weight.shape[1])) if own is None else own[:, inner]
        at_tips = np.zeros((3, len(tips), weight.shape[1])) if own is None else own[:, tips]
        w, b, t = weight[tips], target[tips], dates[tips]
        message = _messages(w, b, at_tips)
        fixed = known[tips]
        if fixed.all():
            np.stack((w, -w * b, w * t), out=message)
        else:
            message[:, fixed] = np.stack((w, -w * b, w * t))[:, fixed]
        levels.sum_of_tips(message, sums)
        wi, bi, ti, known_inner = weight[inner], target[inner], dates[inner], known[inner]
        for number in range(len(levels.inner_slices) - 1, -1, -1):
            level = levels.inner_slices[number]
            if level.start == level.stop:
                continue
            message = _messages(wi[level], bi[level], sums[:, level])
            if self.has_known_inner and (f := known_inner[level]).any():
                w, b, t = wi[level][f], bi[level][f], ti[level][f]
                message[0, f], message[1, f], message[2, f] = w, -w * b, w * t
            levels.sum_of_level(number, message, sums)
        for part in (
            (weight[tips], target[tips], dates[tips], at_tips, known[tips]),
            (wi[1:], bi[1:], ti[1:], sums[:, 1:], known_inner[1:]),
        ):
            more_square, more_linear = _of_rate(*part)
            square, linear = square + more_square, linear + more_linear
        a, beta, gamma = sums[:, 0]
        if known[0]:
            t = dates[0]
            rate = (linear + beta * t) / (square + a * t * t - 2.0 * gamma * t)
            root = rate * t
        else:
            rate = (linear + beta * gamma / a) / (square - gamma * gamma / a)
            root = (beta + gamma * rate) / a
        position = np.empty_like(weight)
        at = self._inner_positions(wi, bi, ti, sums, rate, root)
        position[inner] = at
        fixed, x = known[tips], rate * dates[tips]
        if not fixed.all():
            a, beta, gamma = at_tips
            w, b = weight[tips], target[tips]
            free = (w * (b + at[levels.above[tips]]) + beta + gamma * rate) / (w + a)
            x = np.where(fixed[:, None], x, free)
        position[tips] = x
        return position, rate

    def _inner_positions(
        self, w: Float64, b: Float64, t: Float64, sums: Float64, rate: Float64, root: Float64
    ) -> Float64:
        """Positions of inner nodes, from the root on, f64 [I, R]."""
        levels = self.levels
        total = w + sums[0]
        total[total <= 0.0] = 1.0
        share = w / total
        at = share * b + (sums[1] + sums[2] * rate) / total
        at[0] = root
        if self.has_known_inner:
            fixed = self.known[levels.inner]
            at[fixed], share[fixed] = (rate * t)[fixed], 0.0
        above = levels.above[levels.inner]
        for level in levels.inner_slices:
            at[level] += share[level] * at[above[level]]
        return np.asarray(at, np.float64)

    def _terms(
        self, spring: Float64, rest: Float64, columns: Columns
    ) -> Iterator[tuple[Float64, Float64, Float64]]:
        """Weights u, dates g and shifts h of the terms u (x - ω g - h)² of nodes."""
        if self.is_bounded:
            yield spring[1], self.lower[:, columns], rest[1]
            yield spring[2], self.upper[:, columns], -rest[2]
        if self.is_pulled:
            yield self.pull[:, columns], self.preferred[:, columns], np.zeros(1)

    def _fit(self, position: Float64, rate: Float64, held: Bool) -> DateFit:
        rest = self.lengths - self._differences(position)
        if self.free_root:
            rest[1] = rest[2] = 0.5 * (rest[1] + rest[2])
        rest[0] = 0.0
        objective = (self.weights * rest * rest).sum(axis=0)
        return DateFit(position, rate, objective, held, self.origin)
