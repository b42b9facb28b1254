"""Priors of time trees as whole densities, and trees at random: births and deaths, coalescents.

Densities are of labelled topologies and heights together, natural logs with their constants.
Letters: T tips, h heights. Kernels have the same without constants (``opencl/tree_prior.h``).
"""

from __future__ import annotations

import math
from collections.abc import Callable

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
    """The warp of a population whose size is constant in cells of a width, the last without an end."""

    def warp(heights: Float64) -> Float64:
        starts = width * np.arange(len(log_sizes))
        ends = np.append(starts[1:], np.inf)
        within = np.clip(heights[:, None], starts, ends) - starts
        return np.asarray(within @ np.exp(-log_sizes), np.float64)

    return warp


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
