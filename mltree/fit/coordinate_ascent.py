"""Coordinate ascent: model and branch lengths in turn, until neither gains from the other.

Models that are chosen among are first screened: fitted to lengths as they are, or over rates among
sites and lengths alone.

Where turn after turn gains as much, both creep along a ridge. The change of a turn, of all
variables on log scales, is then extrapolated, as far as lnL rises.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import NamedTuple

import numpy as np

from mltree.data.patterns import Patterns
from mltree.fit.fits import Fit
from mltree.fit.model_optimiser import optimise_models
from mltree.fit.rate_optimiser import SAME_MAXIMUM, FittedAmongSites, Task, fit_profiles
from mltree.fit.settings import BranchSettings, SearchSettings
from mltree.likelihood.likelihood import TreeLikelihood
from mltree.likelihood.requests import Steps, part_log_likelihoods, perform, smoothed
from mltree.models.eigen import ModelArrays
from mltree.models.parameters import bounds, vector, with_vectors
from mltree.models.partitioned import SCALER_MAX, SCALER_MIN
from mltree.models.portable import exp, exp_of_many, log, log_of_many
from mltree.models.rate_profiles import PROFILED, Curves, RateProfiles
from mltree.models.substitution import Model
from mltree.program.cases import Case
from mltree.system.arrays import Bool, Float64
from mltree.system.events import Emit, StoppedShort
from mltree.tree.topology import Tree

MIN_PACE, MAX_PACE = 0.5, 0.95
"""Bounds on the gain of a turn as a share of the turn before; the first turns say little."""

ROUGH_TURNS = 2
"""Turns of several starts at rough tolerances, after which the starts far behind are dropped."""

MAX_GAIN_FACTOR, TIE, ROUGH_SLACK = 2.0, 0.01, 0.5
"""Gain that a fit may still have ahead, in gains of its last turn; lnL by which it has to end above
the best; and lnL that it may gain beside that after a rough turn. The first turn tells nothing:
from 21 below another the best of four starts came out 4.7 above it (TIM2+I+G4, 11 taxa x
212 sites). Two that were 0.2 apart after rough turns changed places (BIN+R3, 5 taxa x 122)."""

SHORT_LENGTH = 1e-3
"""Added to lengths before their logs are compared, as variables are, with SAME_MAXIMUM."""

FAST_TURNS = 2
"""Turns that are not extrapolated; two to four turns are usual in all."""

EXTRAPOLATIONS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
"""Multiples of a turn's change that are tried beyond its end, in one launch. Two linked parts with
free rates, 4 taxa x 150 sites: 54 turns had ended 0.023 below a maximum, 23 turns 0.13 below
another; with extrapolation it is 0.014 after 17, and 0.003 after 16."""

LOG_RANGE = (-700.0, 700.0)
"""Range of logs whose exponentials are normal numbers."""


@dataclass
class Progress:
    """Progress of a fit, turn by turn."""

    fit: Fit
    gain: float = np.inf
    """lnL gained in the last turn."""
    remaining_gain: float = np.inf
    """lnL that all further turns would gain, if each keeps the pace of the last two."""
    turns: int = 0
    extrapolated: bool = False
    """True if the last turn was extrapolated: the next turn's pace then tells little."""

    @property
    def reachable(self) -> float:
        """Highest lnL that the fit may end with, less a tie."""
        if self.turns < 2:
            return np.inf
        return self.fit.lnl + MAX_GAIN_FACTOR * max(self.gain, 0.0) - TIE

    def update(self, before: float) -> None:
        """Record a turn that began at an lnL."""
        gain = self.fit.lnl - before
        if np.isfinite(gain):
            # After a turn without a gain, or an extrapolation, a turn says nothing of the pace.
            pace = MAX_PACE
            if self.gain != 0.0 and not self.extrapolated:
                pace = float(np.clip(gain / self.gain, MIN_PACE, MAX_PACE))
            pace = pace if gain > 0 else 0.0
            self.remaining_gain = gain * pace / (1.0 - pace)
        self.gain = gain
        self.turns += 1
        self.extrapolated = False


def ascend_best(
    fits: Sequence[Fit], settings: SearchSettings, emit: Emit, *, parameters: bool = True
) -> Steps[Fit]:
    """Bring fits to a maximum, and return the best; without ``parameters``, over lengths alone.

    Fits that cannot become the best are left on the way.
    """
    if parameters:
        fits = yield from _race(fits, settings)
    unsettled = yield from ascend(
        fits, settings, parameters=parameters, best_alone=True, around=parameters
    )
    best = max(fits, key=lambda fit: fit.lnl)
    what = "model and branch lengths" if parameters else "branch lengths"
    ahead = [progress.remaining_gain for progress in unsettled if progress.fit is best]
    if ahead or best.lacking:
        emit(StoppedShort.by(what, max([best.lacking, *ahead])))
    return best


def ascend(
    fits: Sequence[Fit],
    settings: SearchSettings,
    *,
    parameters: bool = True,
    best_alone: bool = False,
    around: bool = False,
) -> Steps[list[Progress]]:
    """Bring every fit to a maximum, side by side; return the progress of those that were not.

    Model and lengths are coupled, so that turns converge at a pace of their own: a small gain says
    little where turn after turn brings as much. ``best_alone``: only the best of them counts.
    ``around``: the first turn begins where rates among sites are best, near or far.
    """
    under_way = [Progress(fit) for fit in fits]
    for turn in range(settings.max_ascent_turns):
        slow = [progress for progress in under_way if parameters and progress.turns >= FAST_TURNS]
        starts = [(progress, _Position.of(progress.fit)) for progress in slow]
        epsilon = settings.model.final_epsilon if parameters else None
        looks = around and not turn
        yield from _turn(under_way, settings, epsilon, settings.final_smooth_epsilon, around=looks)
        yield from _extrapolate(starts, settings)
        under_way = [one for one in under_way if one.remaining_gain >= settings.ascent_epsilon]
        if best_alone:
            under_way = _contending(under_way, max(fit.lnl for fit in fits))
        if not under_way:
            break
    return under_way


def _race(fits: Sequence[Fit], settings: SearchSettings) -> Steps[list[Fit]]:
    """Return the fits that may become the best after rough turns; a lone fit unchanged."""
    under_way = [Progress(fit) for fit in fits]
    for _ in range(ROUGH_TURNS):
        if len(under_way) < 2:
            break
        rough = settings.model.rough_epsilon, settings.rounds.smooth_epsilon
        yield from _turn(under_way, settings, *rough)
        best = max(progress.fit.lnl for progress in under_way)
        under_way = _distinct(_contending(under_way, best - ROUGH_SLACK))
    return [progress.fit for progress in under_way]


def _contending(progresses: Sequence[Progress], best: float) -> list[Progress]:
    """Return the fits that may end above a best lnL, or have it."""
    return [one for one in progresses if max(one.reachable, one.fit.lnl) >= best]


def _distinct(progresses: Sequence[Progress]) -> list[Progress]:
    """Drop every fit that has a better one nearby; the order stays."""
    kept_so_far: list[tuple[Progress, _Position]] = []
    for progress in sorted(progresses, key=lambda progress: -progress.fit.lnl):
        position = _Position.of(progress.fit)
        if not any(_are_same(progress.fit, position, one.fit, other) for one, other in kept_so_far):
            kept_so_far.append((progress, position))
    kept = {id(progress) for progress, _ in kept_so_far}
    return [progress for progress in progresses if id(progress) in kept]


def _are_same(one: Fit, position: _Position, other: Fit, beside: _Position) -> bool:
    if not one.tree.is_alike(other.tree):
        return False
    logs = (log_of_many(fit.tree.lengths + SHORT_LENGTH) for fit in (one, other))
    pairs = [tuple(logs), *zip(position.points, beside.points, strict=True)]
    return all(np.abs(here - there).max(initial=0.0) <= SAME_MAXIMUM for here, there in pairs)


def _turn(
    progresses: Sequence[Progress],
    settings: SearchSettings,
    model_epsilon: float | None,
    length_epsilon: float,
    *,
    around: bool = False,
) -> Steps[None]:
    """Optimise models, where they have an epsilon, and then lengths."""
    before = [progress.fit.lnl for progress in progresses]
    fits = [progress.fit for progress in progresses]
    if model_epsilon is not None:
        yield from optimise_models(
            fits, settings.model, settings.branches, model_epsilon, around=around
        )
    yield from _smooth(fits, length_epsilon)
    for progress, lnl in zip(progresses, before, strict=True):
        progress.update(lnl)


def _smooth(fits: Sequence[Fit], epsilon: float) -> Steps[None]:
    cases = [fit.case for fit in fits]
    lnls = yield from smoothed([fit.tree for fit in fits], cases, epsilon)
    for fit, lnl in zip(fits, lnls, strict=True):
        fit.lnl = lnl


class _Position(NamedTuple):
    """Position of a fit, on log scales."""

    points: list[Float64]
    """f64[n] of each part: the free parameters of its model."""
    lengths: Float64
    """f64[edges], or f64[parts, edges]."""
    scalers: Float64
    """f64[parts]: logs of the factors on branch lengths."""

    @classmethod
    def of(cls, fit: Fit) -> _Position:
        points = [vector(model) for model in fit.model.models]
        lengths = np.maximum(fit.tree.lengths, np.finfo(np.float64).tiny)  # artificial ones are 0
        return cls(points, log_of_many(lengths), log(fit.model.scalers))

    def beyond(self, before: _Position, times: float) -> _Position:
        """Extrapolate the change from another position, so many times."""

        def further(here: Float64, there: Float64) -> Float64:
            return here + times * (here - there)

        points = list(map(further, self.points, before.points))
        lengths, scalers = map(further, self[1:], before[1:])
        return _Position(points, lengths, scalers)

    def taken_by(self, fit: Fit, branches: BranchSettings) -> Fit:
        """Return a fit of the same data at this position, within the bounds."""
        models = fit.model.models
        limits = [np.array(bounds(model)).reshape(-1, 2).T for model in models]
        points = [np.clip(point, *limit) for point, limit in zip(self.points, limits, strict=True)]
        scalers = np.clip(exp(np.clip(self.scalers, *LOG_RANGE)), SCALER_MIN, SCALER_MAX)
        shortest = np.minimum(fit.tree.lengths, branches.minimum)
        lengths = exp_of_many(np.clip(self.lengths, *LOG_RANGE))
        lengths = np.clip(lengths, shortest, branches.maximum)
        model = fit.model.with_parts(with_vectors(models, points), scalers)
        return replace(fit, tree=fit.tree.with_lengths(lengths), model=model)


def _extrapolate(
    starts: Sequence[tuple[Progress, _Position]], settings: SearchSettings
) -> Steps[None]:
    """Move fits beyond the end of a turn, as far in its direction as pays."""
    if not starts:
        return
    tried = [
        _Position.of(progress.fit).beyond(before, times).taken_by(progress.fit, settings.branches)
        for progress, before in starts
        for times in EXTRAPOLATIONS
    ]
    rows = yield from part_log_likelihoods([fit.tree for fit in tried], [fit.case for fit in tried])
    lnls = rows.sum(axis=1).reshape(len(starts), -1)
    for n, ((progress, _), row) in enumerate(zip(starts, lnls, strict=True)):
        best, fit = int(row.argmax()), progress.fit
        gain = float(row[best]) - fit.lnl
        if gain >= settings.ascent_epsilon:
            progress.remaining_gain = max(progress.remaining_gain, gain)
            progress.extrapolated = True
            farther = tried[n * len(EXTRAPOLATIONS) + best]
            fit.tree.lengths[:], fit.model = farther.tree.lengths, farther.model
            fit.lnl, fit.part_lnls = float(row[best]), rows[n * len(EXTRAPOLATIONS) + best]


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


def within_reach(fits: Sequence[Fit], penalties: Float64) -> Bool:
    """bool[n]: True for fits of single parts near the best of their part, lengths as they are.

    ``penalties``: f64[n], scores at an lnL of 0.
    """
    scores = penalties - 2.0 * np.array([fit.lnl for fit in fits])
    parts = np.array([fit.first_part for fit in fits])
    best = np.full(parts.max() + 1, np.inf)
    np.minimum.at(best, parts, scores)
    near: Bool = scores <= best[parts] + SCREENING_MARGIN
    return near


def ascend_promising(
    likelihood: TreeLikelihood,
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
    likelihood_of: Callable[[int], TreeLikelihood]
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
        return fit_profiles(tasks, self.settings.model, RATES_EPSILON)

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
            fits = [progress.fit for progress in under_way]
            before = [fit.lnl for fit in fits]
            if turn:
                self._fit_rates(fits)
            self._smooth(fits)
            for progress, lnl in zip(under_way, before, strict=True):
                progress.update(lnl)
            epsilon = self.settings.ascent_epsilon
            under_way = [one for one in under_way if one.remaining_gain >= epsilon]
            if not under_way:
                break

    def _fit_rates(self, fits: Sequence[Fit]) -> None:
        layers = _layers((n, fit.first_part) for n, fit in enumerate(fits))
        step = max(1, PROFILE_BATCH // (PROFILED.size * self.patterns.n_patterns))
        for first in range(0, len(layers), step):
            some = [fits[n] for layer in layers[first : first + step] for n in layer.values()]
            where = [(fit.first_part, fit.tree, fit.model.lone) for fit in some]
            pairs = zip(self._profiles(where), where, strict=True)
            tasks = [Task(profiles, [model]) for profiles, (_, _, model) in pairs]
            settings = self.settings.model
            ends = fit_profiles(tasks, settings, settings.final_epsilon)
            for fit, fitted in zip(some, ends, strict=True):
                fit.model = fit.model.with_parts([fitted.model])
                fit.tree.lengths[:] = self.settings.branches.scaled(fit.tree.lengths, fitted.scale)

    def score(self, fits: Sequence[Fit]) -> None:
        """Score fits of single parts as they are."""
        for likelihood, alike in self._by_categories(fits):
            steps = part_log_likelihoods([fit.tree for fit in alike], [fit.case for fit in alike])
            for fit, (lnl,) in zip(alike, perform(likelihood, steps).tolist(), strict=True):
                fit.lnl = lnl

    def _smooth(self, fits: Sequence[Fit]) -> None:
        for likelihood, alike in self._by_categories(fits):
            perform(likelihood, _smooth(alike, self.settings.final_smooth_epsilon))

    def _by_categories(self, fits: Sequence[Fit]) -> Iterator[tuple[TreeLikelihood, list[Fit]]]:
        """Yield the likelihood of each number of categories, and the fits that have so many."""
        for categories in sorted({fit.model.least_categories for fit in fits}):
            alike = [fit for fit in fits if fit.model.least_categories == categories]
            yield self.likelihood_of(categories), alike

    def _profiles(self, where: Sequence[tuple[int, Tree, Model]]) -> Iterator[RateProfiles]:
        """Yield the profiles of parts, as many parts to a tree, and trees to a launch, as fit."""
        lnls: dict[int, Float64] = {}
        likelihood, slots = self.likelihood_of(self.categories), self.patterns.n_tips - 2
        for parts in likelihood.engine.room.neighbours(slots, len(self.patterns.parts)):
            layers = _layers((n, part) for n, (part, _, _) in enumerate(where) if part in parts)
            if not layers:
                continue
            trees, cases = zip(*(self._layer(where, layer, parts) for layer in layers), strict=True)
            every = [tree for tree in trees for _ in PROFILED]
            rows = likelihood.site_rows(every, [*chain.from_iterable(cases)])
            for of_layer, layer in zip(np.split(rows, len(layers)), layers, strict=True):
                for part, n in layer.items():
                    lnls[n] = np.ascontiguousarray(of_layer[:, self.patterns.parts[part]])
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


def _layers(parts: Iterable[tuple[int, int]]) -> list[dict[int, int]]:
    """Deal numbers of trees, each with a part, out to layers with no two of one part."""
    layers: list[dict[int, int]] = []
    before: Counter[int] = Counter()
    for n, part in parts:
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
