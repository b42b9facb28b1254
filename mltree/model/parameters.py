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

import numpy as np
from numpy.typing import NDArray

from mltree.model.rates import ALPHA_MAX, ALPHA_MIN, P_INVARIANT_MAX
from mltree.model.substitution import Model, expand_rates, unique_rates

__all__ = ["bounds", "names", "vector", "with_vector"]

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
        parts.extend(np.log(unique_rates(model.rate_classes, model.rates)[classes]))
    if _free_frequencies(model):
        pi = np.maximum(model.frequencies, np.finfo(np.float64).tiny)
        parts.extend(np.log(pi[:-1] / pi[-1]))
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
    classes = _free_classes(model)
    sizes = [
        len(classes),
        _free_frequencies(model),
        int(_has_free_p_invariant(model)),
        int(_has_free_alpha(model)),
    ]
    if len(x) != sum(sizes):
        raise ValueError(f"{sum(sizes)} free parameters, not {len(x)}")
    rates, ratios, p_invariant, alpha = np.split(np.asarray(x, np.float64), np.cumsum(sizes)[:-1])
    if len(rates):
        unique = unique_rates(model.rate_classes, model.rates)
        unique[classes] = np.exp(rates)
        model = dataclasses.replace(model, rates=expand_rates(model.rate_classes, unique))
    if len(ratios):
        relative = np.exp(np.append(ratios, 0.0))
        model = dataclasses.replace(model, frequencies=relative / relative.sum())
    if len(p_invariant):
        model = dataclasses.replace(model, p_invariant=1.0 / (1.0 + math.exp(-p_invariant[0])))
    if len(alpha):
        model = dataclasses.replace(model, alpha=math.exp(alpha[0]))
    return model


def _logit(p: float) -> float:
    return math.log(p / (1.0 - p))
