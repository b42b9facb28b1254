"""The free parameters of a model as one vector, for the optimiser.

Every element is on a scale where steps are relative: the natural log of an exchangeability and of
alpha, the log-ratio of a frequency, or of a class's weight, to the last one, the logit of the
proportion of invariable sites. Order: exchangeability classes, or ω and κ of codons, and
frequencies (of MIX{...} class by class), weights of such classes, proportion of invariable sites,
rates among the other sites. Whatever the user fixed, and frequencies that are counted, equal or the
model's own, is left out.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, repeat
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mltree.model.codon import POSITIONS
from mltree.model.eigen import ModelArrays, decompose, fitted
from mltree.model.mixtures import LEAST_WEIGHT, Matrices, Mixed, Profiles
from mltree.model.portable import exp
from mltree.model.rates import Categories, Variable, categories_at, with_invariable
from mltree.model.substitution import Model, expand_rates, n_classes, unique_rates

__all__ = [
    "among_sites",
    "arrays_of",
    "bounds",
    "free_parameters",
    "names",
    "shared_exchangeabilities",
    "variables_of_matrix",
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


def free_parameters(model: Model) -> int:
    """How many parameters of the model fit the data, as IQ-TREE and RAxML-NG count for AIC and BIC.

    Frequencies count where they are estimated or counted in the data, those once for all classes of
    a mixture; and an exchangeability less than there are of them, since their scale means nothing.
    Branch lengths come on top.
    """
    own = model.components
    classes = sum(n_classes(one.rate_classes) - 1 for one in own if not _are_given(one))
    codon = 0 if model.codon is None else len(model.codon.variables())
    modes = [one.frequency_mode for one in own]
    counted = (modes.count("FO") + ("FC" in modes)) * (model.n_states - 1)
    if model.codon is not None and not model.codon.given_nucleotides:
        counted += 3 * POSITIONS.get(model.frequency_mode, 0)
    among = len(_invariable(model)) + len(model.heterogeneity.variables())
    weights = 0 if model.mixture is None else model.mixture.free_weights
    return classes + codon + counted + among + weights


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
    values = _values(model, np.asarray(x, np.float64)[None])
    moved = model.with_matrices([Matrices(*(table[0] for table in own)) for own in values.matrices])
    mixture = moved.mixture
    if mixture is not None and values.weights is not None:
        mixture = mixture.with_weights(values.weights[0])
    return dataclasses.replace(
        moved,
        codon=model.codon and model.codon.with_vector(x[: len(model.codon.variables())]),
        p_invariant=None if values.p_invariant is None else float(values.p_invariant[0]),
        heterogeneity=model.heterogeneity.with_vector(values.among_sites[0]),
        mixture=mixture,
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
                rates, weights = mixture.spread(variable, Categories(rates, weights), own.weights)
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


def among_sites(model: Model, points: Float64) -> Categories:
    """The categories f64 [M, K] of a model at the rows of f64 [M, n], invariable ones included."""
    values = _values(model, points)
    return with_invariable(model.heterogeneity.at(values.among_sites), values.p_invariant)


def _systems(
    models: Sequence[Model], values: Sequence[_Values]
) -> Iterator[Iterable[tuple[Float64, Float64, Float64, Float64]]]:
    """Eigenvalues, right, left and frequencies of each model's points; of all, where they agree."""
    free = [any(map(_has_free_matrix, model.components)) for model in models]
    spans = [slice(None) if moves else slice(1) for moves in free]
    pairs = list(zip(models, values, spans, strict=True))
    matrices = [_matrices(model, own, span) for model, own, span in pairs]
    rates, frequencies = (np.concatenate(rows) for rows in zip(*matrices, strict=True))
    first_of, back = _distinct(rates, frequencies)
    one = np.ones((len(first_of), 1))
    every = decompose(rates[first_of], frequencies[first_of], one, one)
    found = (every.eigenvalues, every.right, every.left, every.frequencies)
    tables = [table[back] for table in found]
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


def _distinct(rates: Float64, frequencies: Float64) -> tuple[list[int], list[int]]:
    """Rows that differ, the first of each, and which of them every row is.

    Points that differ in alpha alone share a matrix, whose eigen system takes 0.05 s for codons.
    """
    place: dict[bytes, int] = {}
    first_of: list[int] = []
    back: list[int] = []
    for row, (own, of_states) in enumerate(zip(rates, frequencies, strict=True)):
        number = place.setdefault(own.tobytes() + of_states.tobytes(), len(place))
        if number == len(first_of):
            first_of.append(row)
        back.append(number)
    return first_of, back


def _matrices(model: Model, own: _Values, points: slice) -> tuple[Float64, Float64]:
    """Exchangeabilities and frequencies, f64 [n, ...]: class by class of every point."""
    matrices = [Matrices(*(table[points] for table in of_one)) for of_one in own.matrices]
    if model.mixture is None:
        return matrices[0]
    rates, frequencies = model.mixture.matrices(matrices)
    return rates.reshape(-1, rates.shape[-1]), frequencies.reshape(-1, frequencies.shape[-1])


def _variables(model: Model) -> list[Variable]:
    return [
        *_of_matrices(model),
        *_of_weights(model),
        *_invariable(model),
        *model.heterogeneity.variables(),
    ]


def _of_matrices(model: Model) -> Iterator[Variable]:
    """Of the exchangeabilities and frequencies, class by class where each is a model."""
    several = len(model.components) > 1
    for number, own in enumerate(model.components, 1):
        for variable in variables_of_matrix(own):
            of_class = f"{variable.name} of class {number}"
            yield variable._replace(name=of_class) if several else variable


def variables_of_matrix(model: Model) -> list[Variable]:
    """Of a component's exchangeabilities and frequencies."""
    return [*_exchangeabilities(model), *_frequencies(model)]


def _of_weights(model: Model) -> list[Variable]:
    """Of the weights of models, whose matrices change with them; of others EM is enough."""
    mixture = model.mixture
    if mixture is None or not mixture.models or not mixture.free_weights:
        return []
    limit, last = -math.log(LEAST_WEIGHT), _log(mixture.weights[-1])
    return [
        Variable(f"weight of class {number}", -limit, limit, _log(weight) - last)
        for number, weight in enumerate(mixture.weights[:-1].tolist(), 1)
    ]


def _has_free_matrix(model: Model) -> bool:
    return bool(_free_exchangeabilities(model) or _free_frequencies(model))


def shared_exchangeabilities(model: Model) -> int:
    """Leading elements of the vector that all profiles share, where they are many; else 0."""
    free = _free_exchangeabilities(model)
    return free if isinstance(model.mixture, Profiles) and free >= MANY_CLASSES else 0


def _free_exchangeabilities(model: Model) -> int:
    return len(_free_classes(model) if model.codon is None else model.codon.variables())


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
    classes = list(range(n_classes(model.rate_classes)))
    if len(classes) <= MANY_CLASSES:
        classes.remove(model.rate_classes[-1])
    return classes


def _free_frequencies(model: Model) -> int:
    return model.n_states - 1 if model.frequency_mode == "FO" else 0


def _exchangeabilities(model: Model) -> Iterator[Variable]:
    if model.codon is not None:
        yield from model.codon.variables()
    free = _free_classes(model)
    if not free:
        return
    states = model.alphabet.states
    between = "-" if len(states[0]) > 1 else ""
    pairs = [between.join(pair) for pair in combinations(states, 2)]
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

    matrices: list[Matrices]
    """f64 [M, S(S-1)/2] and f64 [M, S]: of each component."""
    weights: Float64 | None
    """f64 [M, classes]; None where they are no variables."""
    p_invariant: Float64 | None
    """f64 [M]"""
    among_sites: Float64
    """f64 [M, variables of the heterogeneity]"""


def _values(model: Model, points: Float64) -> _Values:
    """What the rows of f64 [M, n] stand for, beside what is fixed."""
    own, many = model.components, len(points)
    sizes = [
        *(n for one in own for n in (_free_exchangeabilities(one), _free_frequencies(one))),
        len(_of_weights(model)),
        len(_invariable(model)),
        len(model.heterogeneity.variables()),
    ]
    if points.shape[1] != sum(sizes):
        raise ValueError(f"{sum(sizes)} free parameters, not {points.shape[1]}")
    *of_matrices, ratios, logits, among_sites = np.split(points, np.cumsum(sizes)[:-1], axis=1)
    pairs = zip(own, of_matrices[::2], of_matrices[1::2], strict=True)
    matrices = [_matrices_at(one, logs, of_states) for one, logs, of_states in pairs]
    if isinstance(model.mixture, Mixed):
        matrices = model.mixture.linked(matrices)
    p_invariant = None if model.p_invariant is None else np.full(many, model.p_invariant)
    if logits.size:
        p_invariant = 1.0 / (1.0 + exp(-logits[:, 0]))
    return _Values(matrices, _shares(ratios) if ratios.size else None, p_invariant, among_sites)


def _matrices_at(model: Model, logs: Float64, ratios: Float64) -> Matrices:
    """Of f64 [M, ...] variables of exchangeabilities and of frequencies."""
    many, classes = len(logs), _free_classes(model)
    rates = np.broadcast_to(model.rates, (many, model.rates.size))
    if classes:
        unique = np.tile(unique_rates(model.rate_classes, model.rates), (many, 1))
        unique[:, classes] = exp(logs)
        rates = expand_rates(model.rate_classes, unique)
    elif model.codon is not None:
        rates = model.codon.rates_at(logs)
    frequencies = np.broadcast_to(model.frequencies, (many, model.n_states))
    return Matrices(rates, _shares(ratios) if ratios.size else frequencies)


def _shares(ratios: Float64) -> Float64:
    """f64 [M, n + 1]: of sum 1, from logs f64 [M, n] of their ratios to the last one."""
    relative = exp(np.column_stack([ratios, np.zeros(len(ratios))]))
    shares: Float64 = relative / relative.sum(axis=1, keepdims=True)
    return shares


def _log(value: float) -> float:
    return math.log(max(value, np.finfo(np.float64).tiny))


def _logit(p: float) -> float:
    return math.log(p / (1.0 - p))
