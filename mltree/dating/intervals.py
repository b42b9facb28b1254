"""Intervals of dates: chains that start at the dates of replicates, R of them side by side.

Replicates of a strict order of nodes never leave it where a branch saw no substitution, so that
their spread alone is too small: of short branches it covers 80 % of the true dates where 95 % are
wanted. Metropolis steps on the dates of single nodes, the rate and its variation bring replicates
to the posterior distribution under the same clock. Its prior is a coalescent (Kingman 1982) of a
population whose size is constant within periods, and is drawn as well (Gibbs). A pure birth process
in its place, by which a node pulls half as hard at its ancestors, put the dates of trees whose tips
were sampled through time too early: 92.6 % of them were covered, 78 % of the rates.

Letters: N nodes, R chains, P periods.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from mltree.dating.clocks import Clocked
from mltree.dating.least_squares import DateFit, Levels
from mltree.system.arrays import Bool, Float64, Index

MOST_PERIODS, NODES_OF_PERIOD = 8, 10
"""Periods at most, and inner nodes of one on average, at least."""

SLOWEST = 0.05
"""Rate of a replicate, as a share of the estimate, below which its chain starts at the estimate."""

VARIATION_SCALE = 1.0 / 3.0
"""Mean of the exponential prior of rates' coefficient of variation (SAMPLER's and BEAST's)."""

SMALLEST_VARIATION = 0.01
"""Coefficient of variation below which a relaxed clock is a strict one."""

STIRLING_FROM = 8
"""Arguments from which Stirling's series has 1e-9."""


SWEEPS, FEWEST_SWEEPS, WORK = 200, 5, 1e7
"""Sweeps of chains, and the fewest; dates that are stepped on before they become fewer."""

TAIL = 0.025
"""Probability on either side of an interval."""


def date_intervals(chains: Chains, fit: DateFit, seed: int) -> tuple[Float64, tuple[float, float]]:
    """95 % intervals of dates, f64 [N, 2], and of the rate; the estimates lie within them."""
    sweeps = int(np.clip(WORK / chains.dates.size, FEWEST_SWEEPS, SWEEPS))
    chains.run(sweeps, np.random.default_rng((seed, 1)))
    found = np.empty((chains.levels.n_nodes, 2))
    dates = fit.dates[:, 0]
    found[:] = dates[:, None]
    is_open = ~chains.is_known
    ends = np.quantile(chains.dates[is_open], [TAIL, 1 - TAIL], axis=1, method="weibull")
    found[is_open, 0] = np.minimum(ends[0], dates[is_open])
    found[is_open, 1] = np.maximum(ends[1], dates[is_open])
    rate = float(fit.rate[0])
    lower, upper = np.quantile(chains.rate, [TAIL, 1 - TAIL], method="weibull").tolist()
    return found, (min(lower, rate), max(upper, rate))


class Chains:
    """The state of R chains: dates, rate, variation, rates at which pairs of lineages meet."""

    def __init__(self, problem: Clocked, fit: DateFit, drawn: DateFit, variation: float) -> None:
        levels, bounds = problem.levels, problem.bounds
        self.levels, self.sites, self.is_joint = levels, problem.sites, problem.free_root
        self.is_relaxed = problem.clock == "relaxed"
        self.seen = problem.sites * np.maximum(problem.lengths, 0.0)[:, None]
        if self.is_joint:  # the root's two branches are one
            self.seen[1] = self.seen[2] = self.seen[1] + self.seen[2]
        is_sound = drawn.rate > SLOWEST * fit.rate[0]
        self.rate = np.where(is_sound, drawn.rate, fit.rate[0])
        self.dates = np.where(is_sound, drawn.dates, fit.dates)
        self.variation = np.full(len(self.rate), max(variation, 2.0 * SMALLEST_VARIATION))
        self.lower, self.upper = bounds.lower[:, None], bounds.upper[:, None]
        self.is_inner = ~levels.is_tip
        below = np.bincount(levels.parent[1:], minlength=levels.n_nodes)
        self.joins: Index = below - 1
        """intp [N]: lineages that join at a node, but for one; -1 at a tip."""
        self.is_known = bounds.is_known
        for level in levels.slices:  # in order again, where an interior point was rough
            above = self.dates[levels.parent[level]]
            own, is_open = self.dates[level], ~self.is_known[level][:, None]
            self.dates[level] = np.where(is_open, np.maximum(own, above), own)
        self.steps = self._steps(problem, fit, variation)
        self.classes = self._classes()
        inner = fit.dates[self.is_inner, 0]
        n_periods = max(1, min(MOST_PERIODS, len(inner) // NODES_OF_PERIOD))
        self.edges = np.unique(np.quantile(inner, np.arange(1, n_periods) / n_periods))
        self.meeting = np.ones((len(self.edges) + 1, len(self.rate)))
        """Rate at which a pair of lineages meets in each period, f64 [P, R]."""

    def _steps(self, problem: Clocked, fit: DateFit, variation: float) -> Float64:
        """Standard deviations of steps, f64 [N, 1], by the curvature of the branches around."""
        seen = np.maximum(self.seen[:, 0], 1.0)
        least = 1.0 / (problem.sites * fit.rate[0])
        duration = np.maximum(problem.expected(fit.position)[:, 0] / fit.rate[0], least)
        precision = seen / duration**2 / (1.0 + seen * variation**2)
        precision[0] = 0.0
        around = precision.copy()
        np.add.at(around, self.levels.parent[1:], precision[1:])
        return np.asarray(2.0 / np.sqrt(around)[:, None], np.float64)

    def _classes(self) -> list[_Class]:
        depth = np.zeros(self.levels.n_nodes, np.intp)
        for number, level in enumerate(self.levels.slices, 1):
            depth[level] = number
        nodes = (np.flatnonzero(~self.is_known & (depth % 2 == parity)) for parity in (0, 1))
        return [_Class(self.levels, one) for one in nodes if one.size]

    def run(self, sweeps: int, rng: Generator) -> None:
        """Step on everything so many times."""
        for sweep in range(sweeps):
            lineages = _Lineages(self.dates, self.joins)
            self._draw_meeting(rng, lineages)
            waiting = lineages.waiting(self._met)
            for one in self.classes:
                self._step_dates(one, rng, sweep, waiting)
            self._step_rate(rng)
            if self.is_relaxed:
                self._step_variation(rng)

    # The density.

    def _density(self, seen: Float64, duration: Float64) -> Float64:
        """Log density of the substitutions seen, but for terms without rate and duration."""
        mean = np.maximum(self.rate * self.sites * duration, 1e-300)
        if not self.is_relaxed:
            return np.asarray(seen * np.log(mean) - mean, np.float64)
        shape = self.variation**-2
        return np.asarray(seen * np.log(mean) - (seen + shape) * np.log(mean + shape), np.float64)

    def _period(self, dates: Float64) -> Index:
        return np.searchsorted(self.edges, dates)

    def _met(self, dates: Float64) -> Float64:
        """The integral of the rate of meeting up to each date, f64 [n, R]."""
        starts = np.concatenate((self.edges[:1], self.edges)) if self.edges.size else np.zeros(1)
        widths = np.diff(starts, prepend=starts[:1])[:, None]
        before = np.zeros_like(self.meeting)
        before[1:] = np.cumsum(self.meeting[:-1] * widths[1:], axis=0)
        period, chain = self._period(dates), np.arange(dates.shape[-1])
        within = self.meeting[period, chain] * (dates - starts[period])
        return np.asarray(before[period, chain] + within, np.float64)

    def _durations(self) -> Float64:
        """f64 [N - 1, R]; the root's two branches, where they are one, both have the sum."""
        durations = (self.dates - self.dates[self.levels.parent])[1:]
        if self.is_joint:
            durations[0] = durations[1] = durations[0] + durations[1]
        return np.asarray(durations, np.float64)

    def _total(self, durations: Float64) -> Float64:
        """Log density of all branches, f64 [R]."""
        first = 1 if self.is_joint else 0
        return np.asarray(self._density(self.seen[1 + first :], durations[first:]).sum(axis=0))

    # The steps.

    def _step_dates(self, one: _Class, rng: Generator, sweep: int, waiting: _Waiting) -> None:
        """Step on the dates of nodes that are not neighbours: within their bounds, or nearby."""
        t, nodes = self.dates, one.nodes
        now, above = t[nodes], t[one.parents]
        is_root = one.is_root[:, None]
        low = np.maximum(np.where(is_root, -np.inf, above), self.lower[nodes])
        high = np.broadcast_to(self.upper[nodes], now.shape).copy()
        if one.children.size:
            oldest = np.minimum.reduceat(t[one.children], one.first, axis=0)
            high[one.having] = np.minimum(high[one.having], oldest)
        new = now + self.steps[nodes] * rng.standard_normal(now.shape)
        if sweep % 2:
            is_closed = np.isfinite(low) & np.isfinite(high)
            width = np.where(is_closed, high, 0.0) - np.where(is_closed, low, 0.0)
            new = np.where(is_closed, low + rng.random(now.shape) * width, new)
        is_fine = (new > low) & (new < high)
        new = np.where(is_fine, new, now)
        ratio = self._change(one, now, new, above) + self._change_of_prior(one, now, new, waiting)
        is_taken = is_fine & (np.log(rng.random(now.shape)) < ratio)
        if self.is_joint:  # one of the root's children at a time
            is_taken[nodes == 1 + sweep // 2 % 2] = False
        t[nodes] = np.where(is_taken, new, now)

    def _change(self, one: _Class, now: Float64, new: Float64, above: Float64) -> Float64:
        """Change of the lengths' log density by new dates, f64 [nodes of the class, R]."""
        nodes, t, children = one.nodes, self.dates, one.children
        before, after = now - above, new - above
        if self.is_joint:
            for child, other in ((1, 2), (2, 1)):
                before[nodes == child] += t[other] - t[0]
                after[nodes == child] += t[other] - t[0]
        ratio = self._density(self.seen[nodes], after) - self._density(self.seen[nodes], before)
        ratio[one.is_root] = 0.0
        if children.size:
            below = t[children]
            before, after = below - now[one.owner], below - new[one.owner]
            weight = np.ones((len(children), 1))
            if self.is_joint and one.is_root[0]:
                pair = slice(0, 2)
                before[pair], after[pair] = before[pair].sum(axis=0), after[pair].sum(axis=0)
                weight[pair] = 0.5
            seen = self.seen[children]
            gain = weight * (self._density(seen, after) - self._density(seen, before))
            ratio[one.having] += np.add.reduceat(gain, one.first, axis=0)
        return np.asarray(ratio, np.float64)

    def _change_of_prior(
        self, one: _Class, now: Float64, new: Float64, waiting: _Waiting
    ) -> Float64:
        """Change of the log density of dates; other nodes are where they were before the sweep.

        A node of m joins that becomes older leaves m lineages more to meet the k that there are,
        and each other: C(k + m, 2) - C(k, 2) pairs. One that becomes younger leaves m fewer.
        """
        joins = self.joins[one.nodes][:, None]
        before, after = waiting.of_nodes(one.nodes), waiting(new)
        others = 0.5 * np.where(new < now, 1.0 - joins, 1.0 + joins) * (after.met - before.met)
        pairs = joins * (after.waited - before.waited - others)
        chain = np.arange(now.shape[1])
        rate, rate_new = (self.meeting[self._period(dates), chain] for dates in (now, new))
        return np.asarray(pairs + np.maximum(joins, 0) * np.log(rate_new / rate), np.float64)

    def _draw_meeting(self, rng: Generator, lineages: _Lineages) -> None:
        """Draw the rate of meeting of each period, given dates."""
        dates = self.dates[self.is_inner]
        n_periods, n_chains = self.meeting.shape
        place = self._period(dates) * n_chains + np.arange(n_chains)
        joins = np.broadcast_to(self.joins[self.is_inner, None], dates.shape)
        flat = np.bincount(place.ravel(), joins.ravel(), n_periods * n_chains)
        events = flat.reshape(n_periods, n_chains)
        time = lineages.time_of_pairs(self.edges)
        # A prior of one event, at the mean rate of all periods, draws them together.
        mean = events.sum(axis=0) / time.sum(axis=0)
        self.meeting = np.maximum(rng.gamma(events + 1.0) / (time + 1.0 / mean), 1e-12 * mean)

    def _step_rate(self, rng: Generator) -> None:
        durations = self._durations()
        seen = self.seen[2:] if self.is_joint else self.seen[1:]
        spread = 2.4 * np.sqrt(1.0 / (seen.sum() + 1.0) + self.variation.mean() ** 2 / len(seen))
        now = self.rate
        density = self._total(durations)
        self.rate = now * np.exp(spread * rng.standard_normal(len(now)))
        gain = self._total(durations) - density
        self.rate = np.where(np.log(rng.random(len(now))) < gain, self.rate, now)

    def _step_variation(self, rng: Generator) -> None:
        durations, now = self._durations(), self.variation
        density = self._normalised(durations) - now / VARIATION_SCALE + np.log(now)
        spread = 2.4 / np.sqrt(len(durations))
        factor = np.exp(spread * rng.standard_normal(len(now)))
        self.variation = new = np.maximum(now * factor, SMALLEST_VARIATION)
        gain = self._normalised(durations) - new / VARIATION_SCALE + np.log(new) - density
        self.variation = np.where(np.log(rng.random(len(now))) < gain, new, now)

    def _normalised(self, durations: Float64) -> Float64:
        """Log density of all branches with the terms of the variation alone, f64 [R]."""
        first = 1 if self.is_joint else 0
        seen, shape = self.seen[1 + first :], self.variation**-2
        counts, places = np.unique(seen, return_inverse=True)
        gammas = log_gamma(counts[:, None] + shape) - log_gamma(shape)
        own = np.bincount(places.ravel()) @ gammas + len(seen) * shape * np.log(shape)
        return np.asarray(self._total(durations) + own, np.float64)


class _Lineages:
    """Numbers of lineages through time of R trees, whose nodes are sorted by dates."""

    def __init__(self, dates: Float64, joins: Index) -> None:
        order = np.ascontiguousarray(dates.T).argsort(axis=1)
        self.dates = np.take_along_axis(dates.T, order, axis=1)
        self.order = order
        """Nodes by their dates, intp [R, N]."""
        self.counts = 1 + np.cumsum(joins[order], axis=1)
        """Lineages behind each node, intp [R, N]; before the root there is one."""

    def time_of_pairs(self, edges: Float64) -> Float64:
        """Time in which pairs of lineages could meet in the periods between edges, f64 [P, R]."""
        pairs = 0.5 * self.counts[:, :-1] * (self.counts[:, :-1] - 1)
        ends = [-np.inf, *edges.tolist(), np.inf]
        inside = (np.clip(self.dates, low, high) for low, high in pairwise(ends))
        return np.array([(pairs * np.diff(one, axis=1)).sum(axis=1) for one in inside])

    def waiting(self, met: Callable[[Float64], Float64]) -> _Waiting:
        """The waiting up to any date, by the integral of the rate of meeting up to dates."""
        until = met(self.dates.T).T
        waited = np.zeros_like(until)
        waited[:, 1:] = np.cumsum(self.counts[:, :-1] * np.diff(until, axis=1), axis=1)
        return _Waiting(self, met, until, waited)


class _Waited(NamedTuple):
    """Integrals up to dates, f64 [n, R] each."""

    met: Float64
    """Integral of the rate at which a pair of lineages meets."""
    waited: Float64
    """Integral of that rate times the number of lineages."""


class _Waiting:
    """Integrals up to any date of the rate of meeting, and of it times the number of lineages."""

    def __init__(
        self, lineages: _Lineages, met: Callable[[Float64], Float64], until: Float64,
        waited: Float64,
    ) -> None:  # fmt: skip
        self._counts, self._met, self._until, self._waited = lineages.counts, met, until, waited
        self._of_nodes = np.empty((2, *until.shape))
        for of_nodes, values in zip(self._of_nodes, (until, waited), strict=True):
            np.put_along_axis(of_nodes, lineages.order, values, axis=1)
        self._first = float(lineages.dates.min())
        self._span = float(np.ptp(lineages.dates))
        # All chains on one line, each in a stretch of its own: one search finds places in all.
        self._starts = 3.0 * self._span * np.arange(len(lineages.dates))
        self._line = (lineages.dates - self._first + self._starts[:, None]).ravel()

    def of_nodes(self, nodes: Index) -> _Waited:
        """The integrals up to nodes that have not moved."""
        met, waited = self._of_nodes[:, :, nodes]
        return _Waited(met.T, waited.T)

    def __call__(self, dates: Float64) -> _Waited:
        """The integrals up to dates of R trees, f64 [n, R]."""
        nodes = self._counts.shape[1]
        beyond = np.clip(dates - self._first, -0.5 * self._span, 1.5 * self._span) + self._starts
        chain = np.arange(len(self._starts))
        # Chain by chain: what a search reads stays near.
        place = np.searchsorted(self._line, np.ascontiguousarray(beyond.T), side="right").T
        found = place - 1 - chain * nodes
        behind = np.maximum(found, 0)
        count = np.where(found < 0, 1, self._counts[chain, behind])
        met = self._met(dates)
        waited = self._waited[chain, behind] + count * (met - self._until[chain, behind])
        return _Waited(met, waited)


class _Class:
    """Nodes of every second level, and their children."""

    def __init__(self, levels: Levels, nodes: Index) -> None:
        self.nodes, self.parents, self.is_root = nodes, levels.parent[nodes], nodes == 0
        is_own: Bool = np.zeros(levels.n_nodes, np.bool_)
        is_own[nodes] = True
        self.children = np.flatnonzero(is_own[levels.parent])
        self.children = self.children[self.children > 0]
        self.owner = np.searchsorted(nodes, levels.parent[self.children])
        self.having, self.first, self.counts = np.unique(
            self.owner, return_index=True, return_counts=True
        )


def log_gamma(x: Float64) -> Float64:
    """Logarithm of the gamma function of positive numbers, to 1e-9 (Stirling's series)."""
    rising = np.zeros_like(x)
    large = np.array(x, np.float64)
    for _ in range(STIRLING_FROM):
        is_small = large < STIRLING_FROM
        rising += np.where(is_small, np.log(large), 0.0)
        large = np.where(is_small, large + 1.0, large)
    series = 1.0 / (12.0 * large) - 1.0 / (360.0 * large**3) + 1.0 / (1260.0 * large**5)
    value = (large - 0.5) * np.log(large) - large + 0.5 * np.log(2.0 * np.pi) + series
    return np.asarray(value - rising, np.float64)
