"""What points stand for: models, and the arrays of a likelihood, at vectors of free parameters.

A vector is that of `mltree.model.parameters`. What models of one form need, alike in all but
values, is found at once for all of them and all their points: with a thousand parts nothing here
may take a part's time in Python.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mltree.arrays import Float64, Int64
from mltree.model.eigen import ModelArrays, System, fitted, known_systems, systems_of
from mltree.model.mixtures import Matrices, Mixed
from mltree.model.parameters import free_classes, sizes
from mltree.model.portable import exp
from mltree.model.rates import Categories, categories_at, with_invariable
from mltree.model.substitution import Model, expand_rates, unique_rates

__all__ = ["among_sites", "arrays_of", "with_vector", "with_vectors"]


def with_vector(model: Model, x: NDArray[np.float64]) -> Model:
    """The model with its free parameters taken from a vector: the inverse of `vector`.

    Raises: ValueError where the length of the vector is not the number of free parameters.
    """
    (found,) = with_vectors([model], [x])
    return found


def with_vectors(models: Sequence[Model], vectors: Sequence[Float64]) -> list[Model]:
    """What `with_vector` says of each, but found together for models of one form.

    Raises: as that.
    """
    found = list(models)
    for which in _alike(models, [()] * len(models)):
        points = np.array([vectors[n] for n in which], np.float64)
        values = _values([models[n] for n in which], points, np.arange(len(which)))
        for row, n in enumerate(which):
            found[n] = _with_values(models[n], points[row], values, row)
    return found


def _with_values(model: Model, x: Float64, values: _Values, row: int) -> Model:
    """The model with what a row says, from its vector f64 [n]."""
    moved = model.with_matrices(
        [Matrices(*(table[row] for table in own)) for own in values.matrices]
    )
    mixture = moved.mixture
    if mixture is not None and values.weights is not None:
        mixture = mixture.with_weights(values.weights[row])
    return dataclasses.replace(
        moved,
        codon=model.codon and model.codon.with_vector(x[: len(model.codon.variables())]),
        p_invariant=None if values.p_invariant is None else float(values.p_invariant[row]),
        heterogeneity=model.heterogeneity.with_vector(values.among_sites[row]),
        mixture=mixture,
    )


def _alike(models: Sequence[Model], beside: Sequence[Hashable]) -> list[list[int]]:
    """Numbers of models that differ in nothing but values, nor in what is told beside them."""
    forms: dict[Hashable, list[int]] = {}
    for number, (model, own) in enumerate(zip(models, beside, strict=True)):
        form = (
            own,
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

    What `with_vector(model, x).arrays()` gives for every row of a model's points, but all at once.
    ``shapes``: eigen systems and categories that each model is filled up to, with some of weight
    0. What all models of a form need is found at once, as it takes a thousand parts to be quick.
    """
    found: list[list[ModelArrays]] = [[]] * len(models)
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
        none = np.zeros((len(rates), missing))
        speeds = np.concatenate([scalers[n] for n in group.which])
        rates = np.concatenate([rates * speeds[:, None], none], axis=1)
        weights = np.concatenate([weights, none], axis=1)
        rows = list(map(ModelArrays, *system, rates, weights))
        if shape[0] > 1:
            rows = [fitted(arrays, 1.0, *shape) for arrays in rows]
        for n, span in zip(group.which, group.spans, strict=True):
            found[n] = rows[span]
    return found


class _Points(NamedTuple):
    """Points of models of one form, one model's after the other's."""

    which: list[int]
    """Numbers of the models."""
    models: list[Model]
    of_row: Int64
    """i64 [M]: whose each point is."""
    values: _Values

    @classmethod
    def of(cls, which: list[int], models: Sequence[Model], points: Sequence[Float64]) -> _Points:
        """Those f64 [m, n] of some of the models."""
        own = [models[n] for n in which]
        of_row = np.repeat(np.arange(len(own)), [len(points[n]) for n in which])
        every = np.concatenate([points[n] for n in which])
        return cls(which, own, of_row, _values(own, every, of_row))

    @property
    def spans(self) -> list[slice]:
        """The points of every model."""
        counts = np.bincount(self.of_row, minlength=len(self.models))
        return [slice(*span) for span in pairwise([0, *np.cumsum(counts).tolist()])]

    @property
    def moves(self) -> bool:
        """Whether points differ in their matrices."""
        *of_matrices, _, _, _ = sizes(self.models[0])
        return any(of_matrices)

    @property
    def matrices(self) -> Matrices:
        """f64 [n, ...]: of every point, or every model where its points agree; class by class."""
        rows = slice(None) if self.moves else [span.start for span in self.spans]
        matrices = [Matrices(*(table[rows] for table in own)) for own in self.values.matrices]
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


def _systems(groups: Sequence[_Points]) -> list[Sequence[Iterable[Float64]]]:
    """Eigenvalues, right, left and frequencies of each group's points; alike ones found at once."""
    matrices = [group.matrices for group in groups]
    kinds: dict[tuple[int, bool], list[int]] = {}
    for number, (group, own) in enumerate(zip(groups, matrices, strict=True)):
        kinds.setdefault((own.frequencies.shape[-1], group.moves), []).append(number)
    found: dict[int, Sequence[Iterable[Float64]]] = {}
    for (_, moves), which in kinds.items():
        rates, frequencies = zip(*(matrices[n] for n in which), strict=True)
        tables = np.concatenate(rates), np.concatenate(frequencies)
        systems = systems_of(*tables) if moves else _stacked(known_systems(*tables))
        ends = np.cumsum([len(matrices[n].frequencies) for n in which])[:-1]
        for n, *rows in zip(which, *(np.split(table, ends) for table in systems), strict=True):
            own, of_row = groups[n].of_classes(rows), groups[n].of_row.tolist()
            found[n] = own if moves else [[table[row] for row in of_row] for table in own]
    return [found[n] for n in range(len(groups))]


def _stacked(systems: Sequence[System]) -> System:
    eigenvalues, right, left, frequencies, generator, direct = (
        np.stack(rows) for rows in zip(*systems, strict=True)
    )
    return eigenvalues, right, left, frequencies, generator, direct


def among_sites(model: Model, points: Float64) -> Categories:
    """The categories f64 [M, K] of a model, invariable ones included, at rows of f64 [M, n].

    Those are of the last variables of its vector alone, of which n are `variables_among_sites`.
    """
    p_invariant: Float64 | float | None = model.p_invariant
    own = len(model.heterogeneity.variables())
    if points.shape[1] > own:
        p_invariant = _proportion(points[:, 0])
    forms = model.heterogeneity.at(points[:, points.shape[1] - own :])
    return with_invariable(forms, p_invariant)


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


def _values(models: Sequence[Model], points: Float64, of_row: Int64) -> _Values:
    """What the rows of f64 [M, n] stand for, beside what is fixed in models of one form."""
    model, pairs = models[0], zip(*(model.components for model in models), strict=True)
    widths = sizes(model)
    if points.shape[1] != sum(widths):
        raise ValueError(f"{sum(widths)} free parameters, not {points.shape[1]}")
    *of_matrices, ratios, logits, among_sites = np.split(points, np.cumsum(widths)[:-1], axis=1)
    matrices = [
        _matrices_at(own, logs, of_states, of_row)
        for own, logs, of_states in zip(pairs, of_matrices[::2], of_matrices[1::2], strict=True)
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
    """Of f64 [M, ...] variables of exchangeabilities and of frequencies."""
    model, classes = models[0], free_classes(models[0])
    own = np.stack([model.rates for model in models])
    if classes:
        unique = unique_rates(model.rate_classes, own)[of_row]
        unique[:, classes] = exp(logs)
        rates = expand_rates(model.rate_classes, unique)
    else:
        rates = own[of_row] if model.codon is None else model.codon.rates_at(logs)
    if ratios.size:
        return Matrices(rates, _shares(ratios))
    return Matrices(rates, np.stack([model.frequencies for model in models])[of_row])


def _proportion(logits: Float64) -> Float64:
    return 1.0 / (1.0 + exp(-logits))


def _shares(ratios: Float64) -> Float64:
    """f64 [M, n + 1]: of sum 1, from logs f64 [M, n] of their ratios to the last one."""
    relative = exp(np.column_stack([ratios, np.zeros(len(ratios))]))
    shares: Float64 = relative / relative.sum(axis=1, keepdims=True)
    return shares
