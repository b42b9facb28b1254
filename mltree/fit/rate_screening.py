"""Rates among sites fitted to parts side by side, their matrices held: what a model choice screens.

Rates and branch lengths take turns. For the rates a turn asks how the lnL of every pattern depends
on its rate, in one launch for all that is fitted; the rest, whatever the number of rates and of
starts, happens on the host (:mod:`mltree.fit.rate_optimiser`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from mltree.data.patterns import Patterns
from mltree.fit.coordinate_ascent import Progress, ascend
from mltree.fit.model_optimiser import Fit, optimise_models
from mltree.fit.rate_optimiser import FittedAmongSites, Task, fitted_among_sites
from mltree.fit.settings import SearchSettings
from mltree.likelihood.likelihood import Likelihood
from mltree.likelihood.requests import part_log_likelihoods, perform, smoothed
from mltree.models.eigen import ModelArrays
from mltree.models.rate_profiles import PROFILED, Curves, RateProfiles
from mltree.models.substitution import Model
from mltree.program.cases import Case
from mltree.system.arrays import Float64
from mltree.tree.topology import Tree

# Fits side by side of which only those are taken to their ends that may come out near the best.
#
# Branch lengths that follow a model bring it little beside what tells one matrix from another, and
# take most of the work. So models are fitted to the lengths as they are, and lengths are then
# fitted to the models near the best alone; how near depends on what lengths have gained so far.

SCREENING_MARGIN = 20.0
"""Score: fits so much above the best before lengths are fitted are left. Lengths brought
matrices 1 lnL at most, and those that lacked more than 20 lnL 3 % of that; rates among sites, whose
fits scale all lengths, 15 % (8 simulated sets of 6 to 45 taxa, DNA and protein)."""

GAIN_FACTOR = 2.0
"""Largest gain of a fit from its lengths, in gains of the part's other fits, beside the margin."""

SCREENING_EPSILON = 1.0
"""lnL that a model may lack where it is compared."""


def within_reach(fits: Sequence[Fit], penalties: Float64) -> NDArray[np.bool_]:
    """bool[n]: True for fits of single parts near the best of their part, lengths as they are.

    ``penalties``: f64[n], scores at an lnL of 0.
    """
    scores = penalties - 2.0 * np.array([fit.lnl for fit in fits])
    parts = np.array([fit.first_part for fit in fits])
    best = np.full(parts.max() + 1, np.inf)
    np.minimum.at(best, parts, scores)
    near: NDArray[np.bool_] = scores <= best[parts] + SCREENING_MARGIN
    return near


def ascend_promising(
    likelihood: Likelihood,
    fits: Sequence[Fit],
    penalties: Float64,
    best: Float64,
    settings: SearchSettings,
) -> None:
    """Bring fits of single parts to a maximum, but leave those far from the best of their part.

    penalties  f64[n]: scores, which are smaller if better, at an lnL of 0; each unit of that takes
               2 off
    best       f64[parts]: scores that were reached before
    """
    perform(likelihood, optimise_models(fits, settings.model, settings.branches, SCREENING_EPSILON))
    parts = np.array([fit.first_part for fit in fits])
    best, gained = best.copy(), np.zeros(best.size)
    left = np.ones(len(fits), dtype=bool)
    while True:
        before = np.array([fit.lnl for fit in fits])
        scores = penalties - 2.0 * before
        np.minimum.at(best, parts, scores)
        limits = best + SCREENING_MARGIN + 2.0 * GAIN_FACTOR * gained
        near = np.flatnonzero(left & (scores <= limits[parts]))
        if not near.size:
            return
        perform(likelihood, ascend([fits[n] for n in near.tolist()], settings))
        left[near] = False
        gains = np.array([fit.lnl for fit in fits]) - before
        np.maximum.at(gained, parts[near], gains[near])


PROFILE_BATCH = 2**21
"""Numbers of profiles in a launch, 16 MiB; more are requested one after the other."""


RATES_EPSILON = 0.1
"""lnL that rates may lack before lengths are fitted: the last gains take most steps."""


@dataclass
class RateScreening:
    """Screening of rates among sites of the parts of some patterns."""

    patterns: Patterns
    settings: SearchSettings
    likelihood_of: Callable[[int], Likelihood]
    """Returns the likelihood with so many categories, for trees of a few neighbouring parts."""
    categories: int
    """Categories of the likelihood that profiles are requested from."""
    _known: dict[int, tuple[bytes, RateProfiles]] = field(default_factory=dict)
    """Key of tree and matrix, and the profiles under them, by part."""

    def fitted(
        self, starts_of_parts: Sequence[tuple[int, Sequence[Model]]]
    ) -> list[FittedAmongSites]:
        """Fit the rates of parts from some starts, all else as when the part was profiled.

        Raises: ValueError where a part was not.
        """
        if not self._known.keys() >= {part for part, _ in starts_of_parts}:
            raise ValueError("no profiles are known")
        tasks = [Task(self._known[part][1], starts) for part, starts in starts_of_parts]
        return fitted_among_sites(tasks, self.settings.model, RATES_EPSILON)

    def look(self, where: Sequence[tuple[int, Tree, Model]]) -> None:
        """Profile parts, each on its tree under a model's matrix, where these have changed."""
        keys = {part: _key(tree, model) for part, tree, model in where}
        old = {part for part, (key, _) in self._known.items() if keys.get(part) == key}
        new = {at[0]: at for at in where if at[0] not in old}
        for part in new:  # their tables are as large as what takes their place
            self._known.pop(part, None)
        if new:
            profiles_of_parts = zip(new, self._profiles([*new.values()]), strict=True)
            self._known |= {part: (keys[part], profiles) for part, profiles in profiles_of_parts}

    def ascend(self, fits: Sequence[Fit]) -> None:
        """Bring fits of single parts to a maximum over rates and lengths, in turn.

        The fits begin with rates that are fitted to their lengths.
        """
        under_way = [Progress(fit) for fit in fits]
        for turn in range(self.settings.max_ascent_turns):
            before = [progress.fit.lnl for progress in under_way]
            if turn:
                self._turn([progress.fit for progress in under_way])
            self._smooth([progress.fit for progress in under_way])
            for progress, lnl in zip(under_way, before, strict=True):
                progress.update(lnl)
            under_way = [c for c in under_way if c.remaining_gain >= self.settings.ascent_epsilon]
            if not under_way:
                break

    def _turn(self, fits: Sequence[Fit]) -> None:
        """Fit the rates of every fit."""
        layers = _layers([fit.first_part for fit in fits])
        step = max(1, PROFILE_BATCH // (PROFILED.size * self.patterns.n_patterns))
        for first in range(0, len(layers), step):
            some = [fits[n] for layer in layers[first : first + step] for n in layer.values()]
            each = self._profiles([(fit.first_part, fit.tree, fit.model.lone) for fit in some])
            tasks = [
                Task(profiles, [fit.model.lone]) for profiles, fit in zip(each, some, strict=True)
            ]
            for fit, fitted in zip(some, self._optimised(tasks), strict=True):
                fit.model = fit.model.with_parts([fitted.model])
                fit.tree.lengths[:] = self.settings.branches.scaled(fit.tree.lengths, fitted.scale)

    def _optimised(self, tasks: Sequence[Task]) -> list[FittedAmongSites]:
        return fitted_among_sites(tasks, self.settings.model, self.settings.model.final_epsilon)

    def score(self, fits: Sequence[Fit]) -> None:
        """Score fits of single parts as they are."""
        for likelihood, alike in self._by_categories(fits):
            steps = part_log_likelihoods([fit.tree for fit in alike], [fit.case for fit in alike])
            for fit, (lnl,) in zip(alike, perform(likelihood, steps).tolist(), strict=True):
                fit.lnl = lnl

    def _smooth(self, fits: Sequence[Fit]) -> None:
        """Fit the lengths of every fit."""
        for likelihood, alike in self._by_categories(fits):
            trees, cases = [fit.tree for fit in alike], [fit.case for fit in alike]
            steps = smoothed(trees, cases, self.settings.final_smooth_epsilon)
            for fit, lnl in zip(alike, perform(likelihood, steps), strict=True):
                fit.lnl = lnl

    def _by_categories(self, fits: Sequence[Fit]) -> Iterator[tuple[Likelihood, list[Fit]]]:
        """Yield the likelihood of each number of categories, and the fits that have so many."""
        for categories in sorted({fit.model.least_categories for fit in fits}):
            alike = [fit for fit in fits if fit.model.least_categories == categories]
            yield self.likelihood_of(categories), alike

    def _profiles(self, where: Sequence[tuple[int, Tree, Model]]) -> Iterator[RateProfiles]:
        """Yield the profiles of parts, as many parts to a tree, and trees to a launch, as fit."""
        lnls: dict[int, Float64] = {}
        likelihood, slots = self.likelihood_of(self.categories), self.patterns.n_tips - 2
        for parts in likelihood.engine.room.neighbours(slots, len(self.patterns.parts)):
            these = [n for n, (part, _, _) in enumerate(where) if part in parts]
            layers = _layers([where[n][0] for n in these])
            if not layers:
                continue
            of_parts = [where[n] for n in these]
            trees, cases = zip(
                *(self._layer(of_parts, layer, parts) for layer in layers), strict=True
            )
            every = [tree for tree in trees for _ in PROFILED]
            rows = likelihood.site_rows(every, [*chain.from_iterable(cases)])
            for row, layer in enumerate(layers):
                of_layer = rows[row * PROFILED.size : (row + 1) * PROFILED.size]
                for part, n in layer.items():
                    lnls[these[n]] = np.ascontiguousarray(of_layer[:, self.patterns.parts[part]])
        for n, (part, _, _) in enumerate(where):
            counts = self.patterns.weights[self.patterns.parts[part]]
            yield RateProfiles(Curves(PROFILED, lnls[n], counts))

    def _layer(
        self, where: Sequence[tuple[int, Tree, Model]], layer: dict[int, int], parts: range
    ) -> tuple[Tree, list[Case]]:
        """Return a tree with lengths for every part, and its cases; a missing part has others'."""
        some = next(iter(layer.values()))
        at = [where[layer.get(part, some)] for part in parts]
        _, tree, _ = at[0]
        lengths = np.stack([other.lengths for _, other, _ in at])
        lengths = lengths if len(at) > 1 else lengths[0]
        matrices = [model.arrays() for _, _, model in at]
        cases = [
            Case(tuple(_at(arrays, rate, self.categories) for arrays in matrices), 0, parts.start)
            for rate in PROFILED.tolist()
        ]
        return tree.with_lengths(lengths), cases


def _layers(parts: Sequence[int]) -> list[dict[int, int]]:
    """Deal numbers out to layers, with no two of one part in a layer."""
    layers: list[dict[int, int]] = []
    before: Counter[int] = Counter()
    for n, part in enumerate(parts):
        if before[part] == len(layers):
            layers.append({})
        layers[before[part]][part] = n
        before[part] += 1
    return layers


def _at(arrays: ModelArrays, rate: float, categories: int) -> ModelArrays:
    """Return a model all of whose sites have one rate, in the first of so many categories."""
    return replace(arrays, rates=np.full(categories, rate), weights=np.eye(categories)[0])


def _key(tree: Tree, model: Model) -> bytes:
    """Return the bytes that profiles depend on."""
    return tree.lengths.tobytes() + model.rates.tobytes() + model.frequencies.tobytes()
