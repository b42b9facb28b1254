"""Root-to-tip regression, and the place of the root that suits a clock best, in linear time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mltree.dating.least_squares import Levels
from mltree.system.arrays import Bool, Float64
from mltree.tree.clades import WrittenTree

PLACES = np.linspace(0.0, 1.0, 11)
"""Shares of a branch at which its root is tried."""

OUTSIDE = 3.0
"""Interquartile ranges from the line beyond which a tip is an outlier (TreeTime's clock filter)."""

WHOLE = 300
"""Tips up to which all pairs give the slope that outliers are told by; more give random pairs."""


class Regression(NamedTuple):
    """The line through distances from the root, by dates, of tips whose dates are known."""

    rate: float
    """Slope, substitutions per site and unit of time."""
    intercept: float
    r_squared: float
    dates: Float64
    distances: Float64
    """f64 [T]: of every tip, in the tree's order; NaN for a date that is not known."""
    residuals: Float64
    """f64 [T]: distances above the line; NaN without a date."""
    is_outlier: Bool

    @property
    def origin(self) -> float:
        """The date at which the line meets 0."""
        return -self.intercept / self.rate


def regression(distances: Float64, dates: Float64) -> Regression:
    """Root-to-tip regression, f64 [T] each; dates may be NaN."""
    used = np.isfinite(dates)
    t, d = dates[used], distances[used]
    spread = ((t - t.mean()) ** 2).sum() if t.size else 0.0
    rate = float(((t - t.mean()) * (d - d.mean())).sum() / spread) if spread > 0.0 else 0.0
    intercept = float(d.mean() - rate * t.mean()) if t.size else 0.0
    residuals = distances - intercept - rate * dates
    total = ((d - d.mean()) ** 2).sum() if d.size else 0.0
    r_squared = 1.0 - float((residuals[used] ** 2).sum() / total) if total > 0.0 else 0.0
    is_outlier = np.zeros(len(dates), np.bool_)
    if spread > 0.0:
        rest = distances - _robust_slope(t, d) * dates
        first, third = np.quantile(rest[used], [0.25, 0.75])
        far = OUTSIDE * max(third - first, 1e-12)
        is_outlier[used] = (rest[used] < first - far) | (rest[used] > third + far)
    return Regression(rate, intercept, r_squared, dates, distances, residuals, is_outlier)


def _robust_slope(t: Float64, d: Float64) -> float:
    """The median slope of pairs of tips, which outliers do not move (Theil 1950, Sen 1968)."""
    if len(t) <= WHOLE:
        one, other = np.triu_indices(len(t), 1)
    else:
        one, other = np.random.default_rng(1).integers(len(t), size=(2, WHOLE * WHOLE // 2))
    apart = t[other] - t[one]
    differs = apart != 0.0
    return float(np.median((d[other] - d[one])[differs] / apart[differs]))


def best_branches(tree: WrittenTree, dates: Float64, count: int) -> list[tuple[int, float]]:
    """The branches at which a root leaves the smallest squares of a root-to-tip regression.

    dates  f64 [N], by nodes of the tree; NaN where not known

    Returns the node below each and the share of its branch between it and the root, best first.
    Branches with a rising line come before all others.
    """
    levels = Levels(tree)
    lengths = np.nan_to_num(tree.lengths[levels.order], nan=0.0)
    lengths[0] = 0.0
    times = dates[levels.order]
    times = times - np.nanmean(times)
    below = np.zeros((6, levels.n_nodes))  # n, Σt, Σt², Σd, Σd², Σtd of tips below a node
    known = levels.is_tip & np.isfinite(times)
    t = np.where(known, times, 0.0)
    below[0], below[1], below[2] = known, t, t * t
    parent = levels.parent
    for level in levels.slices[::-1]:
        moved = _moved(below[:, level], lengths[level])
        parents, first = np.unique(parent[level], return_index=True)
        below[:, parents] += np.add.reduceat(moved, first, axis=1)
    beside = np.zeros_like(below)  # of all other tips, from the node's parent
    for level in levels.slices:
        above = parent[level]
        outer = np.where(above > 0, _moved(beside[:, above], lengths[above]), 0.0)
        beside[:, level] = outer + below[:, above] - _moved(below[:, level], lengths[level])
    span = lengths.copy()
    is_pair = (parent[1:] == 0).sum() == 2
    if is_pair:
        span[1] = span[2] = lengths[1] + lengths[2]
        beside[:, 1], beside[:, 2] = below[:, 2], below[:, 1]
    x = span[:, None] * PLACES
    sums = _moved(below[:, :, None], x) + _moved(beside[:, :, None], span[:, None] - x)
    n, st, stt, sd, sdd, std = sums
    n = np.maximum(n, 1.0)
    across, both = stt - st * st / n, std - st * sd / n
    slope = both / np.where(across > 0.0, across, 1.0)
    rest = sdd - sd * sd / n - slope * both
    rest = np.where(slope > 0.0, rest, rest + 2.0 * (np.abs(rest).max() + 1.0))
    place = rest.argmin(axis=1)
    value = rest[np.arange(len(place)), place]
    value[0] = np.inf
    if is_pair:
        value[2] = np.inf
    chosen = np.argsort(value, kind="stable")[:count]
    found = []
    for chosen_node in chosen[np.isfinite(value[chosen])].tolist():
        node, share = chosen_node, float(PLACES[place[chosen_node]])
        if is_pair and node == 1:  # on one of the two branches of the root
            far, whole = share * float(span[1]), float(span[1])
            node, far = (1, far) if far <= lengths[1] else (2, whole - far)
            share = far / float(lengths[node]) if lengths[node] > 0.0 else 0.5
        found.append((int(levels.order[node]), share))
    return found


def _moved(sums: Float64, by: Float64) -> Float64:
    """The sums with distances that are longer by so much."""
    n, st, stt, sd, sdd, std = sums
    parts = (n + 0 * by, st + 0 * by, stt + 0 * by, sd + n * by, sdd + 2 * by * sd + n * by * by,
             std + by * st)  # fmt: skip
    return np.array(parts, np.float64)
