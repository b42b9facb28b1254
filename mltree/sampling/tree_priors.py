"""Priors of time trees as whole densities, and first trees: at random, or by distances.

Densities are of labelled topologies and heights together, natural logs with their constants.
Letters: T tips, h heights. Kernels have the same without constants (``opencl/tree_prior.h``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from mltree.system.arrays import Float64


def birth_death_log_density(
    inner: Float64, *, rate: float, death: float = 0.0, sampled: float = 1.0
) -> float:
    """Births and deaths seen from T tips of one date (Gernhard 2008), origins all alike before.

    inner    f64[T - 1]: heights of inner nodes
    rate     births less deaths, a lineage and unit of time
    death    deaths over births
    sampled  share of the species that are tips

    The density of BEAST 2's ``BirthDeathGernhard08Model``, not conditioned on the root, with what
    makes its integral 1: 2^(T - 1) / (T - 1)!. Without deaths it is Yule's.
    """
    tips = len(inner) + 1
    top = float(inner.max())
    seen = np.log(sampled + (1 - sampled - death) * np.exp(-rate * inner))
    of_root = -rate * top - math.log(sampled + (1 - sampled - death) * math.exp(-rate * top))
    constant = (tips - 1) * math.log(rate * sampled) + tips * math.log1p(-death)
    constant += (tips - 1) * math.log(2) - math.lgamma(tips)
    return constant + of_root + float((-rate * inner - 2 * seen).sum())


def serial_log_density(
    tips: Float64, inner: Float64, *, births: float, deaths: float, sampling: float,
    present: float, at_once: int = 0,
) -> float:  # fmt: skip
    """Births, deaths and sampling through time (Stadler 2010, J. Theor. Biol. 267:396).

    tips      f64[T]: heights of tips, of which ``at_once`` are 0, sampled all at once
    inner     f64[T - 1]: heights of inner nodes
    births    births, a lineage and unit of time; ``deaths`` and ``sampling`` likewise
    present   share of the lineages of height 0 that are sampled at once

    A lineage that is sampled ends there (Stadler et al. 2012, Mol. Biol. Evol. 29:347), as by BEAST
    2's ``BirthDeathSkylineModel`` with a removal probability of 1: no tip is another's ancestor.
    Given the origin's height t, the density is

        f(t) = births^(T - 1) sampling^(T - n) present^n  prod Q(y)  /  Q(t) prod Q(x)

    over heights y of tips and x of inner nodes, n being ``at_once``, Q a quarter of Stadler's q:

        Q(h) = e^(c h) (A + (1 - A) e^(-c h))^2      d = births - deaths - sampling
        c^2 = d^2 + 4 births sampling                A = (c - d + 2 births present) / (2 c)

    Origins are all alike before the root, and lineages that leave no samples count too: the density
    is T births times the integral of f over t from the root on, times the 2^(T - 1) / T! ways that
    tips are labelled. Where nothing is sampled before height 0, that is
    :func:`birth_death_log_density`.
    """
    total = len(tips)
    growth = births - deaths - sampling
    rate = math.sqrt(growth**2 + 4 * births * sampling)
    # c - d, without a difference of numbers that are alike
    least = 4 * births * sampling / (rate + growth) if growth > 0 else rate - growth
    seen = (least + 2 * births * present) / (2 * rate)

    def log_q(heights: Float64) -> Float64:
        lost = np.log(seen + (1 - seen) * np.exp(-rate * heights))
        return np.asarray(rate * heights + 2 * lost)

    top = float(inner.max())
    of_origin = -(rate * top + float(log_q(inner).max())) / 2 - math.log(rate * seen)
    constant = total * math.log(births) + (total - 1) * math.log(2) - math.lgamma(total)
    if at_once:
        constant += at_once * math.log(present)
    if total > at_once:
        constant += (total - at_once) * math.log(sampling)
    return constant + of_origin + float(log_q(tips).sum()) - float(log_q(inner).sum())


Warp = Callable[[Float64], Float64]
"""The integral of one over the population size from the present to heights."""


def coalescent_log_density(tips: Float64, inner: Float64, warp: Warp, log_sizes: Float64) -> float:
    """Kingman's coalescent of tips with dates (Drummond et al. 2002; Griffiths and Tavaré 1994).

    tips, inner  heights of tips and inner nodes
    log_sizes    f64[T - 1]: log of the population size at each inner node
    """
    heights = np.concatenate([tips, inner])
    steps = np.concatenate([np.ones(len(tips)), -np.ones(len(inner))])
    order = np.lexsort((-steps, heights))
    lineages = np.cumsum(steps[order])[:-1]
    waiting = np.diff(warp(heights[order]))
    pairs = float((lineages * (lineages - 1) / 2 * waiting).sum())
    return -pairs - float(log_sizes.sum())


def growth_warp(size: float, growth: float) -> Warp:
    """The warp of a population of ``size`` at present that has grown exponentially."""

    def warp(heights: Float64) -> Float64:
        grown = np.expm1(growth * heights) / growth if growth else heights
        return np.asarray(grown / size, np.float64)

    return warp


def grid_warp(log_sizes: Float64, width: float) -> Warp:
    """The warp of a population whose size is constant in cells, of which the last has no end."""

    def warp(heights: Float64) -> Float64:
        starts = width * np.arange(len(log_sizes))
        ends = np.append(starts[1:], np.inf)
        within = np.clip(heights[:, None], starts, ends) - starts
        return np.asarray(within @ np.exp(-log_sizes), np.float64)

    return warp


def skyline_log_density(
    tips: Float64, inner: Float64, log_sizes: Float64, events: Sequence[int]
) -> float:
    """Kingman's coalescent of sizes that change with the tree's events (Drummond et al. 2005).

    log_sizes  f64[groups], of the time up to the last event of each group, from the present on
    events     number of events of each group
    """
    ends = np.sort(inner)[np.cumsum(events) - 1]
    sizes = np.exp(log_sizes)

    def warp(heights: Float64) -> Float64:
        starts = np.concatenate([[0.0], ends[:-1]])
        within = np.clip(heights[:, None], starts, np.append(ends[:-1], np.inf)) - starts
        return np.asarray(within @ (1 / sizes), np.float64)

    return coalescent_log_density(tips, inner, warp, np.repeat(log_sizes, events))


def chain_log_density(log_sizes: Float64) -> float:
    """Log sizes from the second on: each size is exponential, its mean the size before."""
    steps = np.diff(log_sizes)
    return float((steps - np.exp(steps)).sum())


def cells_of(heights: Float64, cells: int, width: float) -> Float64:
    """The cell of a grid that each height is in."""
    return np.minimum((heights / width).astype(np.int64), cells - 1)


def grid_log_density(log_sizes: Float64, precision: float) -> float:
    """Steps of a Gaussian Markov random field from cell to cell (Gill et al. 2013)."""
    steps = np.diff(log_sizes)
    constant = len(steps) / 2 * math.log(precision / (2 * math.pi))
    return constant - precision / 2 * float((steps**2).sum())


def join_at_random(
    lineages: list[int],
    heights: Float64,
    join: Callable[[int, int, float], int],
    rng: np.random.Generator,
    size: float,
    until: float | None = None,
) -> int:
    """Join lineages as a coalescent of a population size would; returns the last ancestor.

    lineages  nodes, at their ``heights`` f64[N], which ``join`` adds to
    join      takes two nodes and a height, and returns their parent
    until     the height of the last ancestor; the joins behind all lineages' heights lead up to it
    """
    waiting = sorted(lineages, key=lambda v: heights[v])
    oldest, time, present = float(heights[waiting[-1]]), float(heights[waiting[0]]), [waiting[0]]
    joins: list[float] = []
    del waiting[0]
    while waiting:
        pairs = len(present) * (len(present) - 1) / 2
        event = time + rng.exponential(size / pairs) if pairs else math.inf
        if event >= heights[waiting[0]]:
            time = float(heights[waiting[0]])
            present.append(waiting.pop(0))
            continue
        time = event
        _join_pair(present, join, rng, time)
    rest = len(present)
    while rest > 1:
        time += rng.exponential(size / (rest * (rest - 1) / 2))
        joins.append(time)
        rest -= 1
    if until is not None and joins:
        factor = (until - oldest) / (joins[-1] - oldest)
        joins = [oldest + (one - oldest) * factor for one in joins[:-1]] + [until]
    for one in joins:
        _join_pair(present, join, rng, one)
    return present[0]


def _join_pair(
    present: list[int],
    join: Callable[[int, int, float], int],
    rng: np.random.Generator,
    height: float,
) -> None:
    one, other = (present.pop(int(rng.integers(len(present)))) for _ in range(2))
    present.append(join(one, other, height))


class Join(NamedTuple):
    """Two nodes that meet, and what their tips' distances tell of it."""

    one: int
    other: int
    height: float
    """By the mean distance of their tips."""
    distance: float
    """Mean of their distances, expected substitutions per site."""
    ages: float
    """Sum of the mean ages of their tips."""
    pairs: int


def nearest_joins(
    distances: Float64, ages: Float64, rate: float, groups: Iterable[Sequence[int]] = ()
) -> list[Join]:
    """Join those that meet latest by mean distances (Drummond and Rodrigo 2000's serial UPGMA).

    distances  f64[T, T], expected substitutions per site between tips
    ages       f64[T], of tips
    rate       of the clock; infinite to leave ages out
    groups     tips that are a group each, from small to large

    Node T + k is that of join k; no node is below those that it joins.
    """
    tips = len(ages)
    apart, means, sizes = distances.copy(), ages.copy(), np.ones(tips, np.int64)
    node, raw, found = list(range(tips)), ages.tolist(), list[Join]()
    step = 1e-3 * max(float(distances.mean()), 1e-4) / rate / tips
    line = np.arange(tips)
    for group in [*groups, range(tips)]:
        own = np.unique(line[list(group)])
        meets = _meetings(apart[np.ix_(own, own)], means[own], rate)
        for _ in range(len(own) - 1):
            a, b = divmod(int(meets.argmin()), len(own))
            one, other = int(own[a]), int(own[b])
            below = max(raw[node[one]], raw[node[other]])
            height = max(float(meets[a, b]), below + step) if math.isfinite(rate) else 0.0
            pairs = int(sizes[one] * sizes[other])
            of_ages = float(means[one] + means[other])
            found.append(
                Join(node[one], node[other], height, float(apart[one, other]), of_ages, pairs)
            )
            shares = sizes[[one, other]] / (sizes[one] + sizes[other])
            apart[one] = shares @ apart[[one, other]]
            apart[:, one] = apart[one]
            means[one] = shares @ means[[one, other]]
            sizes[one] += sizes[other]
            line[line == other] = one
            node[one] = tips + len(found) - 1
            raw.append(height)
            meets[b], meets[:, b] = np.inf, np.inf
            left = np.isfinite(meets[a])
            meets[a, left] = _meetings(apart[one, own[left]], means[own[left]], rate, means[one])
            meets[left, a] = meets[a, left]
    return found


def _meetings(apart: Float64, means: Float64, rate: float, mean: float | None = None) -> Float64:
    """Heights at which lineages meet; infinite of one with itself."""
    if mean is not None:
        return np.asarray((apart / rate + means + mean) / 2 if math.isfinite(rate) else apart)
    found = (apart / rate + means[:, None] + means) / 2 if math.isfinite(rate) else apart.copy()
    np.fill_diagonal(found, np.inf)
    return np.asarray(found, np.float64)


def rate_by_ages(distances: Float64, ages: Float64) -> float | None:
    """The rate by which pairs of tips on either side of the root are the nearer, the older.

    None without such a signal.
    """
    joins, side = nearest_joins(distances, ages, math.inf), set[int]()
    pending = [joins[-1].one]
    tips = len(ages)
    while pending:
        v = pending.pop()
        if v < tips:
            side.add(v)
        else:
            pending += joins[v - tips][:2]
    is_one = np.isin(np.arange(tips), list(side))
    x = (ages[is_one][:, None] + ages[~is_one]).ravel()
    y = distances[np.ix_(is_one, ~is_one)].ravel()
    spread = float(x.var())
    slope = -float(np.mean((x - x.mean()) * (y - y.mean()))) / spread if spread > 0 else 0.0
    within = float(y.mean()) / float(np.ptp(ages)) if np.ptp(ages) > 0 else 0.0
    return slope if slope > 1e-3 * within else None


def fitted_heights(
    joins: Sequence[Join], ages: Float64, fixed: Mapping[int, float], room: float
) -> Float64 | None:
    """Heights in the proportions of those of joins, between heights that are fixed.

    ages   f64[T], of tips
    fixed  heights of inner nodes
    room   height of the root over what is below it, at least

    Returns f64[2T - 1]; None where fixed heights contradict each other.
    """
    tips, nodes = len(ages), 2 * len(ages) - 1
    raw = np.concatenate((ages, [one.height for one in joins]))
    heights, floor = np.concatenate((ages, np.zeros(tips - 1))), np.empty(nodes)
    of_floor, parent = raw.copy(), np.full(nodes, -1)
    floor[:tips] = ages
    for v, join in enumerate(joins, tips):
        parent[[join.one, join.other]] = v
        floor[v], of_floor[v] = max(
            (fixed[c], raw[c]) if c in fixed else (floor[c], of_floor[c])
            for c in (join.one, join.other)
        )
        if v in fixed and not fixed[v] > floor[v]:
            return None
    for v in range(nodes - 1, tips - 1, -1):
        if v in fixed:
            heights[v] = fixed[v]
        elif v == nodes - 1:
            heights[v] = max(raw[v], room * floor[v]) or 1.0
        else:
            u = parent[v]
            share = (raw[v] - of_floor[v]) / max(raw[u] - of_floor[v], 1e-300)
            heights[v] = floor[v] + (heights[u] - floor[v]) * min(max(share, 0.02), 0.98)
    return heights
