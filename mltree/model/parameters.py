"""The free parameters of a model as one vector, for the optimiser.

Every element is on a scale where steps are relative: the natural log of an exchangeability and of
alpha, the log-ratio of a frequency to the last one, the logit of the proportion of invariable
sites. Order: exchangeability classes, frequencies, proportion of invariable sites, alpha.
Whatever the user fixed, and frequencies that are counted, equal or the model's own, is left out.
"""

from __future__ import annotations

import dataclasses
import math
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mltree.model.eigen import ModelArrays, decompose
from mltree.model.portable import exp, log
from mltree.model.rates import ALPHA_MAX, ALPHA_MIN, P_INVARIANT_MAX, rate_categories
from mltree.model.substitution import Model, expand_rates, unique_rates

__all__ = ["arrays_at", "bounds", "names", "vector", "with_vector"]

RATE_MIN = 1e-3
"""Smallest exchangeability relative to the last, as in RAxML-NG."""
RATE_MAX = 1e3
"""Largest exchangeability relative to the last, as in RAxML-NG."""
FREQUENCY_RATIO_MAX = 1e3
"""Largest ratio of an estimated frequency to the last one, either way."""
P_INVARIANT_MIN = 1e-6
"""Smallest proportion of invariable sites that is searched (a logit has no zero)."""


def _free_classes(model: Model) -> list[int]:
    """Class digits that are estimated: all but the last pair's."""
    if model.free_rate_classes == 0:
        return []
    digits = sorted({int(digit, 36) for digit in model.rate_classes})
    digits.remove(int(model.rate_classes[-1], 36))
    return digits


def _free_frequencies(model: Model) -> int:
    return model.n_states - 1 if model.frequency_mode == "FO" else 0


def _has_free_p_invariant(model: Model) -> bool:
    return model.p_invariant is not None and not model.p_invariant_fixed


def _has_free_alpha(model: Model) -> bool:
    return model.alpha is not None and not model.alpha_fixed


def names(model: Model) -> list[str]:
    """A readable name for each element of the vector: ``rate AC=AT``, ``pi A``, ``alpha``."""
    states = model.alphabet.states
    pairs = ["".join(pair) for pair in combinations(states, 2)]
    classes = [int(digit, 36) for digit in model.rate_classes]
    result = [
        "rate " + "=".join(pairs[i] for i, digit in enumerate(classes) if digit == free)
        for free in _free_classes(model)
    ]
    result += [f"pi {state}" for state in states[: _free_frequencies(model)]]
    result += ["p_invariant"] * _has_free_p_invariant(model)
    return result + ["alpha"] * _has_free_alpha(model)


def bounds(model: Model) -> list[tuple[float, float]]:
    """Lowest and highest value of each element of the vector, on its scale."""
    rate = (math.log(RATE_MIN), math.log(RATE_MAX))
    ratio = math.log(FREQUENCY_RATIO_MAX)
    result = [rate] * len(_free_classes(model))
    result += [(-ratio, ratio)] * _free_frequencies(model)
    if _has_free_p_invariant(model):
        result.append((_logit(P_INVARIANT_MIN), _logit(P_INVARIANT_MAX)))
    if _has_free_alpha(model):
        result.append((math.log(ALPHA_MIN), math.log(ALPHA_MAX)))
    return result


def vector(model: Model) -> NDArray[np.float64]:
    """f64 [n]: the free parameters, moved into their bounds."""
    parts: list[float] = []
    classes = _free_classes(model)
    if classes:
        parts.extend(log(unique_rates(model.rate_classes, model.rates)[classes]))
    if _free_frequencies(model):
        pi = np.maximum(model.frequencies, np.finfo(np.float64).tiny)
        parts.extend(log(pi[:-1] / pi[-1]))
    if _has_free_p_invariant(model) and model.p_invariant is not None:
        parts.append(_logit(min(max(model.p_invariant, P_INVARIANT_MIN), P_INVARIANT_MAX)))
    if _has_free_alpha(model) and model.alpha is not None:
        parts.append(math.log(model.alpha))
    low, high = np.array(bounds(model)).reshape(-1, 2).T
    return np.clip(np.array(parts, np.float64), low, high)


def with_vector(model: Model, x: NDArray[np.float64]) -> Model:
    """The model with its free parameters taken from a vector: the inverse of `vector`.

    Raises: ValueError where the length of the vector is not the number of free parameters.
    """
    values = _values(model, np.asarray(x, np.float64)[None])
    return dataclasses.replace(
        model,
        rates=values.rates[0],
        frequencies=values.frequencies[0],
        p_invariant=None if values.p_invariant is None else float(values.p_invariant[0]),
        alpha=None if values.alpha is None else float(values.alpha[0]),
    )


def arrays_at(model: Model, points: NDArray[np.float64]) -> list[ModelArrays]:
    """What `with_vector(model, x).arrays()` gives for every row of f64 [M, n], but all at once."""
    values = _values(model, points)
    rates, weights = rate_categories(
        model.categories, values.alpha, model.gamma_mode, values.p_invariant
    )
    rates = np.broadcast_to(rates, (len(points), rates.shape[-1]))
    weights = np.broadcast_to(weights, rates.shape)
    if _free_classes(model) or _free_frequencies(model):
        return decompose(values.rates, values.frequencies, rates, weights).unstacked()
    one = decompose(model.rates, model.frequencies, rates[0], weights[0])
    pairs = zip(rates, weights, strict=True)
    return [dataclasses.replace(one, rates=r, weights=w) for r, w in pairs]


class _Values(NamedTuple):
    """The values of M models that differ in their free parameters."""

    rates: NDArray[np.float64]
    """f64 [M, S(S-1)/2]"""
    frequencies: NDArray[np.float64]
    """f64 [M, S]"""
    p_invariant: NDArray[np.float64] | None
    """f64 [M]"""
    alpha: NDArray[np.float64] | None
    """f64 [M]"""


def _values(model: Model, points: NDArray[np.float64]) -> _Values:
    """What the rows of f64 [M, n] stand for, beside what is fixed."""
    classes, many = _free_classes(model), len(points)
    sizes = [
        len(classes),
        _free_frequencies(model),
        int(_has_free_p_invariant(model)),
        int(_has_free_alpha(model)),
    ]
    if points.shape[1] != sum(sizes):
        raise ValueError(f"{sum(sizes)} free parameters, not {points.shape[1]}")
    logs, ratios, logits, shapes = np.split(points, np.cumsum(sizes)[:-1], axis=1)
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
    alpha = None if model.alpha is None else np.full(many, model.alpha)
    if shapes.size:
        alpha = exp(shapes[:, 0])
    return _Values(rates, frequencies, p_invariant, alpha)


def _logit(p: float) -> float:
    return math.log(p / (1.0 - p))
