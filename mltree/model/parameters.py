"""The free parameters of a model as one vector, for the optimiser.

Every element is on a scale where steps are relative: the natural log of an exchangeability and of
alpha, the log-ratio of a frequency to the last one, the logit of the proportion of invariable
sites. Order: exchangeability classes, frequencies, proportion of invariable sites, rates among the
other sites. Whatever the user fixed, and frequencies that are counted, equal or the model's own, is
left out.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, repeat
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mltree.model.eigen import ModelArrays, decompose, fitted
from mltree.model.free_rates import FreeRates
from mltree.model.gamma import Gamma
from mltree.model.portable import exp
from mltree.model.rates import Categories, Variable, categories_at, with_invariable
from mltree.model.substitution import Model, expand_rates, unique_rates

__all__ = [
    "arrays_of",
    "bounds",
    "free_parameters",
    "names",
    "starting_models",
    "vector",
    "with_vector",
]

Float64 = NDArray[np.float64]

RATE_MIN = 1e-3
"""Smallest exchangeability relative to the last, as in RAxML-NG."""
RATE_MAX = 1e3
"""Largest exchangeability relative to the last, as in RAxML-NG."""
FREQUENCY_RATIO_MAX = 1e3
"""Largest ratio of an estimated frequency to the last one, either way."""
P_INVARIANT_MIN = 1e-6
"""Smallest proportion of invariable sites that is searched (a logit has no zero)."""
P_INVARIANT_MAX = 0.99
"""Largest proportion of invariable sites that is searched."""

RATE_MIN_OF_MANY = 1e-5
"""The same where every pair of amino acids has its own: dozens are 0 on 20 taxa x 500 sites, and
stopped at 1e-3 each costs up to 0.02 lnL, at IQ-TREE's 1e-4 a tenth of that."""
MANY_CLASSES = 40
"""Exchangeability classes from which on all of them are variables."""


FEW_INVARIABLE = (0.001, 0.1)
MANY_INVARIABLE = (0.8, 5.0)
"""(p, alpha) of +I+G: a site that never changes is invariable, or slow as many others are, and
either way lnL may have a maximum. Of 21 data sets, 15 starts each, 13 had both: the one with many
was reached from here in all, the one with few in 12, and in the last it is the lower one by 72."""

LOW_SHARE = 0.15
"""Proportion of invariable sites that tells which of the two maxima a model is nearer to."""

FREE_START = (1.0, 0.1)
"""(alpha, p) of the gamma distribution from which free rates start, and of invariable sites beside
them. Of 12 fits to real and 53 to simulated data, R2 to R10 with and without +I, this start ended
at the best of 2 to 15, to 0.05, in all. Others did not: alpha 0.3 ended 12.7 lower once and 3.8
lower under LG+F+R4 on a protein, 2.0 1.5 and 0.6 lower."""

FEW_FAST = (100.0, 0.3)
"""(span, p) of the other start: the fastest category is so many times as fast as the slowest, and
as much rarer. Where a few sites change at almost every branch, lnL may have a maximum that no gamma
distribution leads to: of 34 fits of R4 and I+R3 to 200 to 400 simulated sites of 5 to 8 taxa, the
start above (and alpha 0.5 and 0.2) missed 4, by 0.14 to 1.74, all of which this one found. A fitted
model starts from both too."""


def starting_models(model: Model) -> list[Model]:
    """The model, and others from where a climb may reach another maximum of rates among sites."""
    form = model.heterogeneity
    if isinstance(form, FreeRates) and not form.fixed:
        k, p_is_free = len(form.rates), bool(_invariable(model))
        alpha, few = FREE_START
        span, some = FEW_FAST
        others = [
            dataclasses.replace(
                model, heterogeneity=rates, p_invariant=p if p_is_free else model.p_invariant
            )
            for rates, p in (
                (FreeRates.from_gamma(k, alpha), few),
                (FreeRates.with_few_fast(k, span), some),
            )
        ]
        x = vector(model)
        return [model, *(other for other in others if not np.array_equal(vector(other), x))]
    if isinstance(form, Gamma) and not form.fixed and _invariable(model):
        few = model.p_invariant is not None and model.p_invariant < LOW_SHARE
        p, alpha = MANY_INVARIABLE if few else FEW_INVARIABLE
        steeper = dataclasses.replace(form, alpha=alpha)
        return [model, dataclasses.replace(model, p_invariant=p, heterogeneity=steeper)]
    return [model]


def free_parameters(model: Model) -> int:
    """How many parameters of the model fit the data, as IQ-TREE and RAxML-NG count for AIC and BIC.

    Frequencies count where they are estimated or counted in the data, and an exchangeability less
    than there are classes, since their scale means nothing. Branch lengths come on top.
    """
    classes = 0 if _are_given(model) else len(set(model.rate_classes)) - 1
    frequencies = model.n_states - 1 if model.frequency_mode in ("FC", "FO") else 0
    among = len(_invariable(model)) + len(model.heterogeneity.variables())
    weights = 0 if model.mixture is None else model.mixture.free_weights
    return classes + frequencies + among + weights


def names(model: Model) -> list[str]:
    """A readable name for each element of the vector: ``rate AC=AT``, ``pi A``, ``alpha``."""
    return [variable.name for variable in _variables(model)]


def bounds(model: Model) -> list[tuple[float, float]]:
    """Lowest and highest value of each element of the vector, on its scale."""
    return [(variable.low, variable.high) for variable in _variables(model)]


def vector(model: Model) -> NDArray[np.float64]:
    """f64 [n]: the free parameters, moved into their bounds."""
    return np.array([min(max(v.value, v.low), v.high) for v in _variables(model)], np.float64)


def with_vector(model: Model, x: NDArray[np.float64]) -> Model:
    """The model with its free parameters taken from a vector: the inverse of `vector`.

    Raises: ValueError where the length of the vector is not the number of free parameters.
    """
    x = np.asarray(x, np.float64)
    values = _values(model, x[None])
    return dataclasses.replace(
        model,
        rates=values.rates[0],
        frequencies=values.frequencies[0],
        p_invariant=None if values.p_invariant is None else float(values.p_invariant[0]),
        heterogeneity=model.heterogeneity.with_vector(values.among_sites[0]),
    )


def arrays_of(
    models: Sequence[Model],
    points: Sequence[Float64],
    scalers: Sequence[Float64],
    shapes: Sequence[tuple[int, int]],
) -> list[list[ModelArrays]]:
    """The arrays of every model at its points f64 [M, n], rates times its scalers f64 [M].

    What `with_vector(model, x).arrays()` gives for every row of a model's points, but all at once.
    ``shapes``: eigen systems and categories that each model is filled up to, with some of weight
    0. What all models of a state count need is found at once, as it takes a thousand parts to be
    quick.
    """
    found: list[list[ModelArrays]] = [[]] * len(models)
    for states in dict.fromkeys(model.n_states for model in models):
        which = [n for n, model in enumerate(models) if model.n_states == states]
        values = [_values(models[n], points[n]) for n in which]
        systems = _systems([models[n] for n in which], values)
        among = categories_at(
            [models[n].heterogeneity for n in which], [own.among_sites for own in values]
        )
        for n, own, variable, rows in zip(which, values, among, systems, strict=True):
            rates, weights = with_invariable(variable, own.p_invariant)
            mixture = models[n].mixture
            if mixture is not None:
                rates, weights = mixture.spread(variable, Categories(rates, weights))
            shape = shapes[n]
            missing = max(0, shape[1] - rates.shape[1]) if shape[0] == 1 else 0
            none = np.zeros((len(rates), missing))
            rates = np.concatenate([rates * scalers[n][:, None], none], axis=1)
            weights = np.concatenate([weights, none], axis=1)
            found[n] = [
                ModelArrays(*system, own_rates, own_weights)
                for system, own_rates, own_weights in zip(rows, rates, weights, strict=True)
            ]
            if shape[0] > 1:
                found[n] = [fitted(arrays, 1.0, *shape) for arrays in found[n]]
    return found


def _systems(
    models: Sequence[Model], values: Sequence[_Values]
) -> Iterator[Iterable[tuple[Float64, Float64, Float64, Float64]]]:
    """Eigenvalues, right, left and frequencies of each model's points; of all, where they agree."""
    free = [bool(_free_classes(model) or _free_frequencies(model)) for model in models]
    spans = [slice(None) if moves else slice(1) for moves in free]
    pairs = list(zip(models, values, spans, strict=True))
    matrices = [_matrices(model, own, span) for model, own, span in pairs]
    rates, frequencies = (np.concatenate(rows) for rows in zip(*matrices, strict=True))
    one = np.ones((len(rates), 1))
    every = decompose(rates, frequencies, one, one)
    tables = (every.eigenvalues, every.right, every.left, every.frequencies)
    first = 0
    for (model, own, _), moves in zip(pairs, free, strict=True):
        count, classes = len(own.among_sites), model.mixture.n_classes if model.mixture else 1
        last = first + classes * (count if moves else 1)
        rows = [table[first:last] for table in tables]
        if model.mixture is not None:
            rows = [row.reshape(-1, classes, *row.shape[1:]) for row in rows]
        systems = list(zip(*rows, strict=True))
        yield systems if moves else repeat(systems[0], count)
        first = last


def _matrices(model: Model, own: _Values, points: slice) -> tuple[Float64, Float64]:
    """Exchangeabilities and frequencies, f64 [n, ...]: class by class of every point."""
    rates, frequencies = own.rates[points], own.frequencies[points]
    if model.mixture is None:
        return rates, frequencies
    rates, frequencies = model.mixture.matrices(rates, frequencies)
    return rates.reshape(-1, rates.shape[-1]), frequencies.reshape(-1, frequencies.shape[-1])


def _variables(model: Model) -> list[Variable]:
    return [
        *_exchangeabilities(model),
        *_frequencies(model),
        *_invariable(model),
        *model.heterogeneity.variables(),
    ]


def _are_given(model: Model) -> bool:
    """Whether the exchangeabilities are not estimated."""
    return model.rates_fixed or not model.rate_classes


def _free_classes(model: Model) -> list[int]:
    """Classes that are variables: all but the last pair's.

    Where there are many, all: ratios to one class, which may be rare, would bend each other, and a
    scale that means nothing costs a quasi-Newton step nothing.
    """
    if _are_given(model):
        return []
    classes = sorted(set(model.rate_classes))
    if len(classes) <= MANY_CLASSES:
        classes.remove(model.rate_classes[-1])
    return classes


def _free_frequencies(model: Model) -> int:
    return model.n_states - 1 if model.frequency_mode == "FO" else 0


def _exchangeabilities(model: Model) -> Iterator[Variable]:
    free = _free_classes(model)
    if not free:
        return
    pairs = ["".join(pair) for pair in combinations(model.alphabet.states, 2)]
    unique = unique_rates(model.rate_classes, model.rates)
    least = RATE_MIN if len(free) < MANY_CLASSES else RATE_MIN_OF_MANY
    low, high = math.log(least), math.log(RATE_MAX)
    for one in free:
        same = [pair for pair, other in zip(pairs, model.rate_classes, strict=True) if other == one]
        yield Variable(f"rate {'='.join(same)}", low, high, _log(unique[one]))


def _frequencies(model: Model) -> Iterator[Variable]:
    limit = math.log(FREQUENCY_RATIO_MAX)
    last = _log(model.frequencies[-1])
    for index in range(_free_frequencies(model)):
        value = _log(model.frequencies[index]) - last
        yield Variable(f"pi {model.alphabet.states[index]}", -limit, limit, value)


def _invariable(model: Model) -> list[Variable]:
    if model.p_invariant is None or model.p_invariant_fixed:
        return []
    low, high = P_INVARIANT_MIN, P_INVARIANT_MAX
    value = min(max(model.p_invariant, low), high)
    return [Variable("p_invariant", *map(_logit, (low, high, value)))]


class _Values(NamedTuple):
    """The values of M models that differ in their free parameters."""

    rates: NDArray[np.float64]
    """f64 [M, S(S-1)/2]"""
    frequencies: NDArray[np.float64]
    """f64 [M, S]"""
    p_invariant: NDArray[np.float64] | None
    """f64 [M]"""
    among_sites: NDArray[np.float64]
    """f64 [M, variables of the heterogeneity]"""


def _values(model: Model, points: NDArray[np.float64]) -> _Values:
    """What the rows of f64 [M, n] stand for, beside what is fixed."""
    classes, many = _free_classes(model), len(points)
    sizes = [
        len(classes),
        _free_frequencies(model),
        len(_invariable(model)),
        len(model.heterogeneity.variables()),
    ]
    if points.shape[1] != sum(sizes):
        raise ValueError(f"{sum(sizes)} free parameters, not {points.shape[1]}")
    logs, ratios, logits, among_sites = np.split(points, np.cumsum(sizes)[:-1], axis=1)
    rates = np.broadcast_to(model.rates, (many, model.rates.size))
    if classes:
        unique = np.tile(unique_rates(model.rate_classes, model.rates), (many, 1))
        unique[:, classes] = exp(logs)
        rates = expand_rates(model.rate_classes, unique)
    frequencies = np.broadcast_to(model.frequencies, (many, model.n_states))
    if ratios.size:
        relative = exp(np.column_stack([ratios, np.zeros(many)]))
        frequencies = relative / relative.sum(axis=1, keepdims=True)
    p_invariant = None if model.p_invariant is None else np.full(many, model.p_invariant)
    if logits.size:
        p_invariant = 1.0 / (1.0 + exp(-logits[:, 0]))
    return _Values(rates, frequencies, p_invariant, among_sites)


def _log(value: float) -> float:
    return math.log(max(value, np.finfo(np.float64).tiny))


def _logit(p: float) -> float:
    return math.log(p / (1.0 - p))
