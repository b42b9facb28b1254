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
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain, combinations, pairwise
from typing import NamedTuple

import numpy as np

from mltree.models.eigen import (
    ModelArrays,
    ModelStack,
    fitted,
    known_systems,
    rate_matrix,
    systems_of,
)
from mltree.models.empirical import Matrices
from mltree.models.portable import exp
from mltree.models.rates import Categories, Variable, categories_at, with_invariable
from mltree.models.substitution import (
    LEAST_WEIGHT,
    NO_CHANGE,
    POSITIONS,
    Mixed,
    Model,
    Profiles,
    RateClasses,
    expand_rates,
    n_classes,
    unique_rates,
)
from mltree.system.arrays import Float64, Int64

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
"""Smallest relative exchangeability where every pair of amino acids has its own: dozens are 0 on 20
taxa x 500 sites, and stopped at 1e-3 each costs up to 0.02 lnL, at IQ-TREE's 1e-4 a tenth of
that."""
MANY_CLASSES = 40
"""Exchangeability classes from which on all of them are variables."""


def free_parameters(model: Model) -> int:
    """Number of free parameters of a model, as IQ-TREE and RAxML-NG count for AIC and BIC.

    Estimated and counted frequencies count, those of a mixture once for all classes;
    exchangeabilities count less one, because their scale means nothing. Branch lengths are not
    counted.
    """
    components = model.components
    classes = sum(n_classes(one.rate_classes) - 1 for one in components if not _are_given(one))
    codon = 0 if model.codon is None else len(model.codon.variables())
    modes = [one.frequency_mode for one in components]
    counted = (modes.count("FO") + ("FC" in modes)) * (model.n_states - 1)
    if model.codon is not None and not model.codon.given_nucleotides:
        counted += 3 * POSITIONS.get(model.frequency_mode, 0)
    weights = 0 if model.mixture is None else model.mixture.free_weights
    return classes + codon + counted + variables_among_sites(model) + weights


def names(model: Model) -> list[str]:
    """A readable name for each element of the vector: ``rate AC=AT``, ``pi A``, ``alpha``."""
    return [variable.name for variable in _variables(model)]


def bounds(model: Model) -> list[tuple[float, float]]:
    """Lowest and highest value of each element of the vector, on its scale."""
    return [(variable.low, variable.high) for variable in _variables(model)]


def vector(model: Model) -> Float64:
    """f64 [n]: the free parameters, moved into their bounds."""
    return np.array([min(max(v.value, v.low), v.high) for v in _variables(model)], np.float64)


def sizes(model: Model) -> list[int]:
    """Numbers of elements of each kind.

    Exchangeabilities and frequencies of every component in turn, weights of classes, proportion of
    invariable sites, rates among the other sites.
    """
    of_matrices = ((_exchangeabilities(one), _frequencies(one)) for one in model.components)
    among = _invariable(model), model.heterogeneity.variables()
    return [len(variables) for variables in (*chain(*of_matrices), _of_weights(model), *among)]


def variables_among_sites(model: Model) -> int:
    """Number of the last elements that are rates among sites, invariable sites included."""
    return len(_invariable(model)) + len(model.heterogeneity.variables())


def _variables(model: Model) -> list[Variable]:
    return [
        *_of_matrices(model),
        *_of_weights(model),
        *_invariable(model),
        *model.heterogeneity.variables(),
    ]


def _of_matrices(model: Model) -> Iterator[Variable]:
    """Variables of exchangeabilities and frequencies, class by class where each is a model."""
    several = len(model.components) > 1
    for number, component in enumerate(model.components, 1):
        for variable in variables_of_matrix(component):
            of_class = f"{variable.name} of class {number}"
            yield variable._replace(name=of_class) if several else variable


def variables_of_matrix(model: Model) -> list[Variable]:
    """Variables of a component's exchangeabilities and frequencies."""
    return [*_exchangeabilities(model), *_frequencies(model)]


def _of_weights(model: Model) -> list[Variable]:
    """Variables of class weights where classes are models; EM finds other weights."""
    mixture = model.mixture
    if mixture is None or not mixture.models or not mixture.free_weights:
        return []
    labels = [f"weight of class {number}" for number in range(1, mixture.n_classes)]
    return _ratios(labels, mixture.weights, -math.log(LEAST_WEIGHT))


def shared_exchangeabilities(model: Model) -> int:
    """Number of leading elements that all profiles share, where they are many; else 0."""
    free = len(_exchangeabilities(model)) if isinstance(model.mixture, Profiles) else 0
    return free if free >= MANY_CLASSES else 0


def _are_given(model: Model) -> bool:
    return model.rates_fixed or not model.rate_classes


def free_classes(model: Model) -> list[int]:
    """Classes that are variables: all but the last pair's.

    Many classes are all variables: ratios to one class, which may be rare, would bend each other,
    and a scale that means nothing costs a quasi-Newton step nothing.
    """
    if _are_given(model):
        return []
    classes = list(range(n_classes(model.rate_classes)))
    if len(classes) <= MANY_CLASSES:
        classes.remove(model.rate_classes[-1])
    return classes


def _exchangeabilities(model: Model) -> list[Variable]:
    free = free_classes(model)
    if model.codon is not None or not free:
        return [] if model.codon is None else model.codon.variables()
    pairs = _class_names(tuple(model.alphabet.states), model.rate_classes)
    unique = unique_rates(model.rate_classes, model.rates).tolist()
    least = RATE_MIN if len(free) < MANY_CLASSES else RATE_MIN_OF_MANY
    low, high = math.log(least), math.log(RATE_MAX)
    return [Variable(f"rate {pairs[one]}", low, high, _log(unique[one])) for one in free]


@lru_cache(maxsize=64)  # a thousand parts have the same
def _class_names(states: tuple[str, ...], classes: RateClasses) -> list[str]:
    """The pairs of states of every class: ``AC=AT``."""
    between = "-" if len(states[0]) > 1 else ""
    names: list[list[str]] = [[] for _ in range(n_classes(classes))]
    for pair, one in zip(combinations(states, 2), classes, strict=True):
        if one != NO_CHANGE:
            names[one].append(between.join(pair))
    return ["=".join(same) for same in names]


def _frequencies(model: Model) -> list[Variable]:
    if model.frequency_mode != "FO":
        return []
    labels = [f"pi {state}" for state in model.alphabet.states[:-1]]
    return _ratios(labels, model.frequencies, math.log(FREQUENCY_RATIO_MAX))


def _ratios(labels: Sequence[str], values: Float64, limit: float) -> list[Variable]:
    """Return variables for the log-ratios of all values but the last to the last."""
    logs = list(map(_log, values.tolist()))
    pairs = zip(labels, logs[:-1], strict=True)
    return [Variable(label, -limit, limit, value - logs[-1]) for label, value in pairs]


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


# Models, and arrays for the likelihood, at vectors of free parameters. Models of one form, alike in
# all but values, are computed at once with all their points: with a thousand parts, no step may
# take a part's time in Python.


def with_vector(model: Model, x: Float64) -> Model:
    """The model with its free parameters taken from a vector: the inverse of `vector`.

    Raises: ValueError where the length of the vector is not the number of free parameters.
    """
    (moved,) = with_vectors([model], [x])
    return moved


def with_vectors(models: Sequence[Model], vectors: Sequence[Float64]) -> list[Model]:
    """Models by `with_vector`, computed together for models of one form.

    Raises: as that.
    """
    moved = list(models)
    for which in _alike(models, [()] * len(models)):
        points = np.array([vectors[n] for n in which], np.float64)
        values = _values([models[n] for n in which], points, np.arange(len(which)))
        for row, n in enumerate(which):
            moved[n] = _with_values(models[n], points[row], values, row)
    return moved


def _with_values(model: Model, x: Float64, values: _Values, row: int) -> Model:
    """The model with the values of a row, from its vector f64 [n]."""
    moved = model.with_matrices(
        [Matrices(*(table[row] for table in component)) for component in values.matrices]
    )
    mixture = moved.mixture
    if mixture is not None and values.weights is not None:
        mixture = mixture.with_weights(values.weights[row])
    return replace(
        moved,
        codon=model.codon and model.codon.with_vector(x[: len(model.codon.variables())]),
        p_invariant=None if values.p_invariant is None else float(values.p_invariant[row]),
        heterogeneity=model.heterogeneity.with_vector(values.among_sites[row]),
        mixture=mixture,
    )


def _alike(models: Sequence[Model], beside: Sequence[Hashable]) -> list[list[int]]:
    """Groups of models that differ in values alone, by their numbers; ``beside`` must agree too."""
    forms: dict[Hashable, list[int]] = {}
    for number, (model, key) in enumerate(zip(models, beside, strict=True)):
        form = (
            key,
            *(model.n_states, model.rate_classes, model.rates_fixed, model.frequency_mode),
            *(model.p_invariant is None, model.p_invariant_fixed, model.heterogeneity.kind),
        )
        is_plain = model.mixture is None and model.codon is None
        forms.setdefault(form if is_plain else number, []).append(number)
    return list(forms.values())


def arrays_of(
    models: Sequence[Model],
    points: Sequence[Float64],
    scalers: Sequence[Float64],
    shapes: Sequence[tuple[int, int]],
) -> list[list[ModelArrays]]:
    """The arrays of every model at its points f64 [M, n], rates times its scalers f64 [M].

    Equal to `with_vector(model, x).arrays()` of every row, but computed at once for all models of a
    form, because there may be a thousand parts. ``shapes``: numbers of eigen systems and categories
    to which each model is filled up, with categories of weight 0.
    """
    arrays: list[list[ModelArrays]] = [[]] * len(models)
    for group, tables, shape in _tables(models, points, scalers, shapes):
        rows = list(map(ModelArrays, *tables))
        if shape[0] > 1:
            rows = [fitted(row, 1.0, *shape) for row in rows]
        for n, span in zip(group.which, group.spans, strict=True):
            arrays[n] = rows[span]
    return arrays


def stacks_of(
    models: Sequence[Model],
    points: Sequence[Float64],
    scalers: Sequence[Float64],
    shapes: Sequence[tuple[int, int]],
) -> list[ModelStack]:
    """The arrays of :func:`arrays_of`, those of every model side by side."""
    stacks: list[ModelStack] = [ModelStack([])] * len(models)
    for group, tables, shape in _tables(models, points, scalers, shapes):
        if shape[0] > 1:
            rows = [vars(fitted(row, 1.0, *shape)) for row in map(ModelArrays, *tables)]
            whole = [np.stack(table) for table in zip(*(row.values() for row in rows), strict=True)]
        else:
            whole = [
                *(_stacked(table, group) for table in tables[:-2]),
                *map(np.asarray, tables[-2:]),
            ]
        for n, span in zip(group.which, group.spans, strict=True):
            stacks[n] = ModelStack([table[span] for table in whole])
    return stacks


def _stacked(rows: Iterable[Float64], group: _Points) -> Float64:
    """Rows side by side; a view of the first where all points have the matrix of one model."""
    table = rows if isinstance(rows, np.ndarray) else list(rows)
    if group.moves or len(group.models) > 1:
        return np.asarray(table)
    return np.broadcast_to(table[0], (len(table), *table[0].shape))


def _tables(
    models: Sequence[Model],
    points: Sequence[Float64],
    scalers: Sequence[Float64],
    shapes: Sequence[tuple[int, int]],
) -> Iterator[tuple[_Points, list[Iterable[Float64]], tuple[int, int]]]:
    """The points of models of a form, their arrays but for further systems, and their shape."""
    groups = [_Points.of(which, models, points) for which in _alike(models, shapes)]
    among = categories_at(
        [group.models[0].heterogeneity for group in groups],
        [group.values.among_sites for group in groups],
    )
    for group, system, variable in zip(groups, _systems(groups), among, strict=True):
        model, values = group.models[0], group.values
        rates, weights = with_invariable(variable, values.p_invariant)
        if model.mixture is not None:
            categories = Categories(rates, weights)
            rates, weights = model.mixture.spread(variable, categories, values.weights)
        shape = shapes[group.which[0]]
        missing = max(0, shape[1] - rates.shape[1]) if shape[0] == 1 else 0
        speeds = np.concatenate([scalers[n] for n in group.which])
        padded = (np.pad(t, ((0, 0), (0, missing))) for t in (rates * speeds[:, None], weights))
        yield group, [*system, *padded], shape


class _Points(NamedTuple):
    """Points of models of one form, one model's after the other's."""

    which: list[int]
    """Numbers of the models."""
    models: list[Model]
    of_row: Int64
    """i64 [M]: place of each point's model."""
    values: _Values
    moves: bool
    """True where points differ in their matrices."""

    @classmethod
    def of(cls, which: list[int], models: Sequence[Model], points: Sequence[Float64]) -> _Points:
        """The points f64 [m, n] of the models with these numbers."""
        members = [models[n] for n in which]
        of_row = np.repeat(np.arange(len(members)), [len(points[n]) for n in which])
        every = np.concatenate([points[n] for n in which])
        *of_matrices, _, _, _ = sizes(members[0])
        return cls(which, members, of_row, _values(members, every, of_row), any(of_matrices))

    @property
    def spans(self) -> list[slice]:
        """The points of every model."""
        counts = np.bincount(self.of_row, minlength=len(self.models))
        return [slice(*span) for span in pairwise([0, *np.cumsum(counts).tolist()])]

    @property
    def matrices(self) -> Matrices:
        """Matrices f64 [n, ...] of every point, or every model where its points agree."""
        rows = slice(None) if self.moves else [span.start for span in self.spans]
        matrices = [
            Matrices(*(table[rows] for table in component)) for component in self.values.matrices
        ]
        mixture = self.models[0].mixture
        if mixture is None:
            return matrices[0]
        return Matrices(*(t.reshape(-1, t.shape[-1]) for t in mixture.matrices(matrices)))

    def of_classes(self, tables: list[Float64]) -> list[Float64]:
        """Tables of such matrices, with an axis of their own for classes."""
        mixture = self.models[0].mixture
        if mixture is None:
            return tables
        return [table.reshape(-1, mixture.n_classes, *table.shape[1:]) for table in tables]


MANY_STATES = 20
"""States from which on an eigen system is worth a look whether the last points had it."""


def _systems(groups: Sequence[_Points]) -> list[Sequence[Iterable[Float64]]]:
    """Eigenvalues, right, left and frequencies of each group's points; alike ones found at once."""
    matrices = [group.matrices for group in groups]
    kinds: dict[tuple[int, bool], list[int]] = {}
    for number, (group, of_group) in enumerate(zip(groups, matrices, strict=True)):
        kinds.setdefault((of_group.frequencies.shape[-1], group.moves), []).append(number)
    systems: dict[int, Sequence[Iterable[Float64]]] = {}
    for (states, moves), which in kinds.items():
        tables = [np.concatenate(rows) for rows in zip(*(matrices[n] for n in which), strict=True)]
        together: Iterable[Float64] = (
            systems_of(*tables)
            if moves and states < MANY_STATES
            else map(np.stack, zip(*known_systems(*tables), strict=True))
        )
        ends = np.cumsum([len(matrices[n].frequencies) for n in which])[:-1]
        for n, *rows in zip(which, *(np.split(table, ends) for table in together), strict=True):
            of_matrices, of_row = groups[n].of_classes(rows), groups[n].of_row.tolist()
            if moves:
                systems[n] = of_matrices
            else:
                systems[n] = [[table[row] for row in of_row] for table in of_matrices]
    return [systems[n] for n in range(len(groups))]


def among_sites(model: Model, points: Float64) -> Categories:
    """The categories f64 [M, K] of a model, invariable ones included, at rows of f64 [M, n].

    The rows hold the last variables of the vector alone, n of which are `variables_among_sites`.
    """
    p_invariant: Float64 | float | None = model.p_invariant
    n_variables = len(model.heterogeneity.variables())
    if points.shape[1] > n_variables:
        p_invariant = _proportion(points[:, 0])
    forms = model.heterogeneity.at(points[:, points.shape[1] - n_variables :])
    return with_invariable(forms, p_invariant)


class _Values(NamedTuple):
    """The values of M models that differ in their free parameters."""

    matrices: list[Matrices]
    """f64 [M, S(S-1)/2] and f64 [M, S]: of each component."""
    weights: Float64 | None
    """f64 [M, classes]; None where they are no variables."""
    p_invariant: Float64 | None
    """f64 [M]; None without invariable sites."""
    among_sites: Float64
    """f64 [M, variables of the heterogeneity]"""


def _values(models: Sequence[Model], points: Float64, of_row: Int64) -> _Values:
    """The values at the rows of f64 [M, n], and the fixed ones, of models of one form."""
    model, pairs = models[0], zip(*(model.components for model in models), strict=True)
    widths = sizes(model)
    if points.shape[1] != sum(widths):
        raise ValueError(f"{sum(widths)} free parameters, not {points.shape[1]}")
    *of_matrices, ratios, logits, among_sites = np.split(points, np.cumsum(widths)[:-1], axis=1)
    matrices = [
        _matrices_at(components, logs, of_states, of_row)
        for components, logs, of_states in zip(
            pairs, of_matrices[::2], of_matrices[1::2], strict=True
        )
    ]
    if isinstance(model.mixture, Mixed):
        matrices = model.mixture.linked(matrices)
    p_invariant = None
    if model.p_invariant is not None:
        p_invariant = np.array([model.p_invariant for model in models], np.float64)[of_row]
    if logits.size:
        p_invariant = _proportion(logits[:, 0])
    return _Values(matrices, _shares(ratios) if ratios.size else None, p_invariant, among_sites)


def _matrices_at(
    models: Sequence[Model], logs: Float64, ratios: Float64, of_row: Int64
) -> Matrices:
    """The matrices for f64 [M, ...] variables of exchangeabilities and frequencies."""
    model, classes = models[0], free_classes(models[0])
    rates_given = np.stack([model.rates for model in models])
    if classes:
        unique = unique_rates(model.rate_classes, rates_given)[of_row]
        unique[:, classes] = exp(logs)
        rates = expand_rates(model.rate_classes, unique)
    else:
        rates = rates_given[of_row] if model.codon is None else model.codon.rates_at(logs)
    if ratios.size:
        return Matrices(rates, _shares(ratios))
    return Matrices(rates, np.stack([model.frequencies for model in models])[of_row])


def _proportion(logits: Float64) -> Float64:
    return 1.0 / (1.0 + exp(-logits))


def _shares(ratios: Float64) -> Float64:
    """f64 [M, n + 1]: proportions from logs f64 [M, n] of ratios to the last one."""
    relative = exp(np.column_stack([ratios, np.zeros(len(ratios))]))
    shares: Float64 = relative / relative.sum(axis=1, keepdims=True)
    return shares


# Derivatives of lnL in the exchangeabilities that the classes of a mixture share.


def exchangeability_slopes(
    rates: Float64, frequencies: Float64, slopes: Float64
) -> tuple[Float64, Float64]:
    """f64 [pairs]: dlnL / d ln r of each pair of states; and its expected changes, given the data.

    Class m has Q = R / ρ, R[a, b] = r_ab π_b, ρ = 2 Σ r_ab π_a π_b, so that

        ∂lnL / ∂r_ab = Σ_m (π_b (G_ab - G_aa) + π_a (G_ba - G_bb) - 2 π_a π_b Σ_ij G_ij Q_ij) / ρ

    of which r_ab (π_b G_ab + π_a G_ba) / ρ are the changes between a and b that are expected in
    class m: what the lnL of the whole history would curve by.

    ``rates`` f64 [pairs]: r; ``frequencies`` f64 [M, S]: π of the classes; ``slopes``
    f64 [M, S, S]: G = ∂lnL / ∂Q (`mltree.likelihood.requests.flow_slopes`).
    """
    one, other = np.triu_indices(frequencies.shape[-1], 1)
    pi, rho = frequencies, 2 * (rates * frequencies[:, one] * frequencies[:, other]).sum(axis=1)
    q = rate_matrix(np.repeat(rates[None], len(pi), axis=0), pi)
    whole = (slopes * q).sum(axis=(1, 2))[:, None]
    diagonal = slopes.diagonal(axis1=1, axis2=2)
    scale = rates / rho[:, None]
    changes = pi[:, other] * slopes[:, one, other] + pi[:, one] * slopes[:, other, one]
    stays = pi[:, other] * diagonal[:, one] + pi[:, one] * diagonal[:, other]
    gain = changes - stays - 2 * pi[:, one] * pi[:, other] * whole
    return (scale * gain).sum(axis=0), (scale * changes).sum(axis=0)
