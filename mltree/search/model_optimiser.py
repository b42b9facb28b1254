"""Model parameters by Newton's method, an iteration to a launch.

The variables are the model's parameters on their log scales and the log of a factor on the tree
length, so that the alternation with branch smoothing converges in few turns.  Gradient and Hessian
come from differences, and every value that an iteration needs stands in one launch, for all the
trees and models that are optimised side by side.  A gradient alone takes a fifth of the points, but
five times as many launches.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mltree.model.eigen import ModelArrays
from mltree.model.parameters import arrays_at, bounds, vector, with_vector
from mltree.model.portable import exp
from mltree.model.substitution import Model
from mltree.search.scoring import SearchLikelihood
from mltree.search.trust_region import Climb
from mltree.settings import BranchSettings, ModelSettings
from mltree.tree.topology import Tree

__all__ = ["Fit", "optimise_models", "with_other_rates"]

Float = NDArray[np.float64]

FEW_INVARIABLE = (0.001, 0.1)
MANY_INVARIABLE = (0.8, 5.0)
"""(p, alpha) of +I+G: a site that never changes is invariable, or slow as many others are, and
either way lnL may have a maximum. Of 21 data sets, 15 starts each, 13 had both: the one with many
was reached from here in all, the one with few in 12, and in the last it is the lower one by 72."""

LOW_SHARE = 0.15
"""Proportion of invariable sites that tells which of the two maxima a model is nearer to."""


@dataclass
class Fit:
    """A tree and a model that are optimised together."""

    tree: Tree
    """Its lengths change in place."""
    model: Model
    lnl: float = -np.inf
    """Natural log."""
    converged: bool = True
    """False after an optimisation of the model that ended where a step still promises to gain."""


def with_other_rates(model: Model) -> list[Model]:
    """The model, and where its rates among sites may have a second maximum one on the way there."""
    if model.p_invariant is None or model.p_invariant_fixed:
        return [model]
    if model.alpha is None or model.alpha_fixed:
        return [model]
    p, alpha = MANY_INVARIABLE if model.p_invariant < LOW_SHARE else FEW_INVARIABLE
    return [model, dataclasses.replace(model, p_invariant=p, alpha=alpha)]


def optimise_models(
    likelihood: SearchLikelihood,
    fits: Sequence[Fit],
    settings: ModelSettings,
    branches: BranchSettings,
    epsilon: float,
) -> None:
    """Optimise the model of every fit, and scale the lengths of its tree to go with it.

    Each stops when no step promises ``epsilon`` (natural log units) any more, and never ends worse
    than it started.
    """
    climbs = [_ModelClimb(fit, settings, branches, epsilon) for fit in fits]
    for _ in range(settings.iterations):
        under_way = [climb for climb in climbs if not climb.done]
        if not under_way:
            break
        trees, models, counts = [], [], []
        for climb in under_way:
            more, arrays = climb.candidates()
            trees += more
            models += arrays
            counts.append(len(more))
        lnls = likelihood.log_likelihoods(trees, models)
        for climb, part in zip(under_way, np.split(lnls, np.cumsum(counts)[:-1]), strict=True):
            climb.take(part)
    for climb in climbs:
        climb.finish()


class _ModelClimb:
    """The climb of one fit: variables that are free, in terms of trees and models."""

    def __init__(
        self, fit: Fit, settings: ModelSettings, branches: BranchSettings, epsilon: float
    ) -> None:
        self._fit = fit
        self._branches = branches
        limit = settings.scale_limit
        low, high = np.array([*bounds(fit.model), (-limit, limit)], dtype=np.float64).T
        self._free = np.flatnonzero(high > low)
        self._start: Float = np.append(vector(fit.model), 0.0)
        """f64[variables]: the free and the fixed ones, the scale last."""
        start, low, high = (every[self._free] for every in (self._start, low, high))
        self._climb = Climb(start, low, high, settings.step, epsilon)

    @property
    def done(self) -> bool:
        """Whether there is nothing more to try."""
        return self._climb.done

    def candidates(self) -> tuple[list[Tree], list[ModelArrays]]:
        """Trees and models whose lnLs are wanted."""
        every = self._variables(self._climb.points())
        tree = self._fit.tree
        scaled = self._branches.scaled(tree.lengths, exp(every[:, -1:]))
        trees = [Tree(tree.twin, tree.edge, lengths, tree.n_tips) for lengths in scaled]
        return trees, arrays_at(self._fit.model, every[:, :-1])

    def take(self, lnls: Float) -> None:
        """Their lnLs."""
        self._climb.take(lnls)

    def finish(self) -> None:
        """Leave the fit at the top of the climb."""
        fit, (best,) = self._fit, self._variables(self._climb.x[None])
        fit.model = with_vector(fit.model, best[:-1])
        fit.tree.lengths[:] = self._branches.scaled(fit.tree.lengths, math.exp(best[-1]))
        fit.lnl, fit.converged = self._climb.value, self._climb.converged

    def _variables(self, points: Float) -> Float:
        """f64[n, variables]: the free ones of f64[n, free] beside the fixed ones."""
        every = np.tile(self._start, (len(points), 1))
        every[:, self._free] = points
        return every
