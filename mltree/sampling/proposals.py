"""Proposals of model parameters, fitted to each rung of a ladder in burn-in.

A group of coordinates takes a normal step of the covariance that its rung has shown (Haario,
Saksman and Tamminen 2001, Bernoulli 7:223-242), of a size that has 0.234 of the steps accepted
(0.44 of a lone coordinate); or it is drawn anew, from Student's distribution of that covariance and
mean, as often as such draws have been accepted. Afterwards all of that stays as it is. Letters: N
rungs, C chains.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from mltree.program.contract import MOVE_STRIDE, HostMove
from mltree.program.random_numbers import normals
from mltree.system.arrays import Bool, Float64, Int64

FIRST_DEVIATION = 0.3
"""Standard deviation of a coordinate before it is known."""

TARGET_OF_ONE, TARGET_OF_MANY = 0.44, 0.234
"""Shares of steps that are best accepted (Roberts, Gelman and Gilks 1997)."""

OWN_WEIGHT = 20
"""Samples that count as much as the covariance from before."""

FREEDOM = 5
"""Degrees of freedom of the distribution that a group is drawn from: its tails are heavier than
those of most posteriors, so that no chain stays far out for long."""

FIRST_SHARE, LEAST_SHARE = 0.5, 0.1
"""Share of draws among proposals until it is known how many are accepted, and at least."""

SLOWING = 0.6
"""Steps of a size's adaptation fall as number^-SLOWING."""


class Proposal(NamedTuple):
    """Points that are proposed."""

    points: Float64
    """f64[C, n]."""
    log_ratio: Float64
    """f64[C]: natural log of the density of the way back over that of the way there."""
    walks: Bool
    """bool[C]: True for steps, False for draws."""


class Walks:
    """The proposals of every group of coordinates on every rung."""

    def __init__(self, groups: Sequence[slice], rungs: int, seed: int) -> None:
        self.groups, self._seed = list(groups), seed
        widths = [group.stop - group.start for group in groups]
        targets = [TARGET_OF_ONE if width == 1 else TARGET_OF_MANY for width in widths]
        self._target = np.array(targets)
        start = FIRST_DEVIATION**2
        self._covariance = [np.tile(np.eye(width) * start, (rungs, 1, 1)) for width in widths]
        self._mean = [np.full((rungs, width), np.nan) for width in widths]
        """f64[N, width] of each group; unknown before the first fit, when nothing is drawn."""
        self.size = np.tile([2.38 / width**0.5 for width in widths], (rungs, 1))
        """f64[N, groups]: factor on the deviation of each step."""
        self.tried, self.taken = np.zeros((2, rungs, len(widths)))
        """f64[N, groups]: steps, and those accepted."""
        self._told = np.zeros((rungs, len(widths)))
        self.share = np.full((rungs, len(widths)), FIRST_SHARE)
        """f64[N, groups]: share of draws among proposals."""
        self._draws = np.zeros((2, rungs, len(widths)))
        """f64[2, N, groups]: draws, and those accepted, since the last fit."""
        self.forget()

    def forget(self) -> None:
        """Begin to learn covariances anew, and to count."""
        rungs = len(self.size)
        self._count = np.zeros(rungs)
        self._sum = [np.zeros((rungs, g.stop - g.start)) for g in self.groups]
        self._products = [np.zeros_like(each) for each in self._covariance]
        self.tried, self.taken = np.zeros((2, *self.size.shape))

    def propose(self, points: Float64, counters: Int64, rungs: Int64, group: int) -> Proposal:
        """Propose a step or a draw of one group for points f64[C, n].

        counters  i64[C, 3]: run, replica and number of the step
        rungs     i64[C]: rung of each chain
        """
        span = self.groups[group]
        width, move = span.stop - span.start, HostMove.PROPOSAL * MOVE_STRIDE + group
        drawn = normals(self._seed, counters, move, width + FREEDOM + 2)
        steps, tails, coins = np.split(drawn, [width, width + FREEDOM], axis=1)
        roots, mean = np.linalg.cholesky(self._covariance[group])[rungs], self._mean[group][rungs]
        uniform = np.exp(-(coins**2).sum(axis=1) / 2)
        walks = (uniform > self.share[rungs, group]) | np.isnan(mean[:, 0])
        size = np.where(walks, self.size[rungs, group], 1 / np.sqrt((tails**2).mean(axis=1)))
        before, proposed = points[:, span], points.copy()
        centre = np.where(walks[:, None], before, mean)
        proposed[:, span] = centre + size[:, None] * np.einsum("cij,cj->ci", roots, steps)

        def log_density(x: Float64) -> Float64:
            z = np.linalg.solve(roots, (x - centre)[..., None])[..., 0]
            return np.asarray(-(FREEDOM + width) / 2 * np.log1p((z**2).sum(axis=1) / FREEDOM))

        ratio = np.where(walks, 0.0, log_density(before) - log_density(proposed[:, span]))
        return Proposal(proposed, ratio, walks)

    def tell(self, rungs: Int64, group: int, taken: Bool, walks: Bool, *, adapts: bool) -> None:
        """Count proposals of chains on rungs i64[C], and adapt the sizes of steps in burn-in."""
        np.add.at(self.tried[:, group], rungs, 1)
        np.add.at(self.taken[:, group], rungs, taken)
        if adapts:
            np.add.at(self._draws[0, :, group], rungs, ~walks)
            np.add.at(self._draws[1, :, group], rungs, taken & ~walks)
            rungs, taken = rungs[walks], taken[walks]
            np.add.at(self._told[:, group], rungs, 1)
            gain = self._told[rungs, group] ** -SLOWING
            change = np.zeros(len(self.size))
            np.add.at(change, rungs, gain * (taken - self._target[group]))
            self.size[:, group] *= np.exp(change)

    def learn(self, points: Float64, rungs: Int64) -> None:
        """Take samples f64[C, n] of rungs i64[C] into the covariances that come."""
        np.add.at(self._count, rungs, 1)
        for number, span in enumerate(self.groups):
            x = points[:, span]
            np.add.at(self._sum[number], rungs, x)
            np.add.at(self._products[number], rungs, x[:, :, None] * x[:, None, :])

    def refit(self) -> None:
        """Take the means that were learnt, and the covariances beside those from before."""
        count = self._count[:, None, None]
        for number, before in enumerate(self._covariance):
            mean = self._sum[number] / np.maximum(self._count, 1)[:, None]
            scatter = self._products[number] - count * mean[:, :, None] * mean[:, None, :]
            self._mean[number] = np.where(self._count[:, None] > 0, mean, self._mean[number])
            self._covariance[number] = (scatter + OWN_WEIGHT * before) / (count + OWN_WEIGHT)
        self._told[:] = np.minimum(self._told, OWN_WEIGHT)
        drawn, taken = self._draws
        self.share = np.where(drawn > 0, (taken + 1) / (drawn + 2), self.share)
        self.share = np.maximum(self.share, LEAST_SHARE)
        self._draws[:] = 0
        self.forget()

    def of_rungs(self, rungs: Int64) -> Walks:
        """The walks of other rungs, each as that of the rung i64[N] whose number it has here."""
        walks = Walks(self.groups, len(rungs), self._seed)
        walks.size, walks._told = self.size[rungs], self._told[rungs]
        walks.share = self.share[rungs]
        walks._covariance = [each[rungs] for each in self._covariance]
        walks._mean = [each[rungs] for each in self._mean]
        return walks

    def state(self) -> dict[str, Any]:
        """All that a resumed run needs."""
        every = {"size": self.size, "tried": self.tried, "taken": self.taken, "told": self._told}
        every |= {"share": self.share, "draws": self._draws, "count": self._count}
        for number in range(len(self.groups)):
            every[f"covariance{number}"] = self._covariance[number]
            every[f"mean{number}"] = self._mean[number]
            every[f"sum{number}"] = self._sum[number]
            every[f"products{number}"] = self._products[number]
        return {name: np.copy(value) for name, value in every.items()}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
        self.size, self.tried, self.taken = state["size"], state["tried"], state["taken"]
        self._told, self._count = state["told"], state["count"]
        self.share, self._draws = state["share"], state["draws"]
        numbers = range(len(self.groups))
        self._covariance = [state[f"covariance{number}"] for number in numbers]
        self._mean = [state[f"mean{number}"] for number in numbers]
        self._sum = [state[f"sum{number}"] for number in numbers]
        self._products = [state[f"products{number}"] for number in numbers]
