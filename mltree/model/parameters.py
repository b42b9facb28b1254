"""The free parameters of a model as one vector, for the optimiser.

Every element is on a scale where steps are relative: the natural log of an exchangeability and of
alpha, the log-ratio of a frequency, or of a class's weight, to the last one, the logit of the
proportion of invariable sites. Order: exchangeability classes, or ω and κ of codons, and
frequencies (of MIX{...} class by class), weights of such classes, proportion of invariable sites,
rates among the other sites. Whatever the user fixed, and frequencies that are counted, equal or the
model's own, is left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from itertools import chain, combinations

import numpy as np
from numpy.typing import NDArray

from mltree.model.codon import POSITIONS
from mltree.model.mixtures import LEAST_WEIGHT, Profiles
from mltree.model.rates import Variable
from mltree.model.substitution import NO_CHANGE, Model, RateClasses, n_classes, unique_rates

__all__ = [
    "bounds",
    "free_classes",
    "free_parameters",
    "names",
    "shared_exchangeabilities",
    "sizes",
    "variables_among_sites",
    "variables_of_matrix",
    "vector",
]


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


def sizes(model: Model) -> list[int]:
    """How many elements are of each kind.

    Exchangeabilities and frequencies of every component in turn, weights of classes, proportion of
    invariable sites, rates among the others.
    """
    of_matrices = ((_free_exchangeabilities(m), _free_frequencies(m)) for m in model.components)
    among = len(model.heterogeneity.variables())
    return [*chain(*of_matrices), len(_of_weights(model)), len(_invariable(model)), among]


def variables_among_sites(model: Model) -> int:
    """How many elements, the last ones, are of rates among sites: invariable ones and others."""
    return sum(sizes(model)[-2:])


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


def shared_exchangeabilities(model: Model) -> int:
    """Leading elements of the vector that all profiles share, where they are many; else 0."""
    free = _free_exchangeabilities(model)
    return free if isinstance(model.mixture, Profiles) and free >= MANY_CLASSES else 0


def _free_exchangeabilities(model: Model) -> int:
    return len(free_classes(model) if model.codon is None else model.codon.variables())


def _are_given(model: Model) -> bool:
    """Whether the exchangeabilities are not estimated."""
    return model.rates_fixed or not model.rate_classes


def free_classes(model: Model) -> list[int]:
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
    free = free_classes(model)
    if not free:
        return
    pairs = _class_names(tuple(model.alphabet.states), model.rate_classes)
    unique = unique_rates(model.rate_classes, model.rates).tolist()
    least = RATE_MIN if len(free) < MANY_CLASSES else RATE_MIN_OF_MANY
    low, high = math.log(least), math.log(RATE_MAX)
    for one in free:
        yield Variable(f"rate {pairs[one]}", low, high, _log(unique[one]))


@lru_cache(maxsize=64)  # a thousand parts have the same
def _class_names(states: tuple[str, ...], classes: RateClasses) -> list[str]:
    """The pairs of states of every class: ``AC=AT``."""
    between = "-" if len(states[0]) > 1 else ""
    names: list[list[str]] = [[] for _ in range(n_classes(classes))]
    for pair, one in zip(combinations(states, 2), classes, strict=True):
        if one != NO_CHANGE:
            names[one].append(between.join(pair))
    return ["=".join(same) for same in names]


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


def _log(value: float) -> float:
    return math.log(max(value, np.finfo(np.float64).tiny))


def _logit(p: float) -> float:
    return math.log(p / (1.0 - p))
