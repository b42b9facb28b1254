"""Mixtures: sites of several classes, each with a matrix of its own.

A class has a weight, exchangeabilities and frequencies: frequencies that are published, beside
exchangeabilities of the model (`Profiles`: LG+C20); matrices that are published, the k-th going
with the k-th slowest sites (`Paired`: LG4M and LG4X); or a model of its own (`Mixed`: MIX{...}).
But for the paired ones every class comes with every category of rates, so that there are M K of
them. Each class's matrix is normalised by itself, so that a rate is relative to one substitution
per site in all.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Self

import numpy as np

from mltree.arrays import Float64
from mltree.errors import ModelError
from mltree.model.empirical import read_table
from mltree.model.rates import Categories
from mltree.values import Value

if TYPE_CHECKING:
    from mltree.model.substitution import Model

__all__ = [
    "LEAST_WEIGHT",
    "PAIRED",
    "PROFILES",
    "Matrices",
    "Mixed",
    "Mixture",
    "Paired",
    "Profiles",
    "paired_mixture",
    "profile_mixture",
]


PROFILES = ("C10", "C20", "C30", "C40", "C50", "C60")
"""Frequency profiles of Le, Gascuel & Lartillot (2008, Bioinformatics 24:2317-2323)."""

PAIRED = ("LG4M", "LG4X")
"""Le, Dang & Gascuel (2012, Mol. Biol. Evol. 29:2921-2936): four matrices, with gamma rates and
with free ones."""

LEAST_WEIGHT = 1e-4
"""Of a class whose weight is estimated, as in IQ-TREE."""

_FOLDER = Path(__file__).parent / "matrices"


class Matrices(NamedTuple):
    """What makes rate matrices; there may be many along the first axes."""

    exchangeabilities: Float64
    """f64 [..., S(S-1)/2]"""
    frequencies: Float64
    """f64 [..., S]"""


class Mixture(Value, ABC, eq=False, kw_only=True):
    """The M classes of a model of S states, whatever they have of their own."""

    is_paired: ClassVar[bool] = False
    """Whether category k of the rates goes with class k."""

    name: str
    """Of the term that names it: ``C20``; of a paired one, the model's."""
    weights: Float64
    """f64 [M]: proportions of sites, sum 1. Not used where paired."""
    weights_fixed: bool = True

    @property
    def n_classes(self) -> int:
        """M."""
        return len(self.weights)

    @property
    def free_weights(self) -> int:
        """Weights to estimate."""
        return 0 if self.weights_fixed or self.is_paired else self.n_classes - 1

    @property
    def models(self) -> tuple[Model, ...]:
        """Those of the classes, where each has one with parameters of its own; else none."""
        return ()

    @abstractmethod
    def matrices(self, own: Sequence[Matrices]) -> Matrices:
        """Exchangeabilities f64 [..., M, pairs] and frequencies f64 [..., M, S] of the classes.

        ``own``: of the model; of every class where each has a model.
        """

    def spread(
        self, variable: Categories, with_invariable: Categories, weights: Float64 | None = None
    ) -> Categories:
        """The categories of all classes in turn, f64 [..., M K].

        ``variable``: of the sites that vary; ``with_invariable``: those, and one of rate 0 behind
        them where some sites do not; ``weights`` f64 [..., M]: of the classes, if not its own.
        """
        del variable
        shares = self.weights if weights is None else weights
        speeds = self._speeds(shares)
        spread = with_invariable.weights[..., None, :] * shares[..., :, None]
        rates = np.broadcast_to(
            with_invariable.rates[..., None, :] * speeds[..., :, None], spread.shape
        )
        lead = spread.shape[:-2]
        return Categories(rates.reshape(*lead, -1), spread.reshape(*lead, -1))

    def _speeds(self, weights: Float64) -> Float64:
        """f64 [..., M]: the rates of the classes beside each other, of mean 1."""
        return np.ones_like(weights)

    def with_weights(self, weights: Float64, *, fixed: bool | None = None) -> Self:
        """With other weights, in proportion. Raises: ModelError where there are others to give."""
        if len(weights) != self.n_classes:
            raise ModelError(
                f"+{self.name}: {self.n_classes} weights are wanted, not {len(weights)}"
            )
        if (weights < 0.0).any() or not weights.sum() > 0.0:
            raise ModelError(f"+{self.name}: weights must not be negative, nor all zero")
        is_fixed = self.weights_fixed if fixed is None else fixed
        return dataclasses.replace(self, weights=weights / weights.sum(), weights_fixed=is_fixed)


class Profiles(Mixture, eq=False, kw_only=True):
    """Frequencies of classes that share the model's exchangeabilities."""

    frequencies: Float64
    """f64 [M, S]; without those of the model's own class."""
    has_own: bool = False
    """Whether the model's frequencies (+F) make a further class, the last."""

    def matrices(self, own: Sequence[Matrices]) -> Matrices:
        """The profiles, and the model's frequencies behind them."""
        ((rates, frequencies),) = own
        profiles = np.broadcast_to(self.frequencies, (*rates.shape[:-1], *self.frequencies.shape))
        if self.has_own:
            profiles = np.concatenate([profiles, frequencies[..., None, :]], axis=-2)
        return Matrices(np.repeat(rates[..., None, :], self.n_classes, axis=-2), profiles)

    def with_own_class(self) -> Profiles:
        """With a class of the model's frequencies; all weights are estimated, as in IQ-TREE."""
        if self.has_own:
            return self
        m = self.n_classes
        weights = np.append(self.weights * (m / (m + 1)), 1 / (m + 1))
        return dataclasses.replace(self, has_own=True, weights=weights, weights_fixed=False)


class Paired(Mixture, eq=False, kw_only=True):
    """Matrices that go with the categories of rates, one each."""

    is_paired = True

    tables: Matrices
    """f64 [M, S(S-1)/2] and f64 [M, S]"""

    def matrices(self, own: Sequence[Matrices]) -> Matrices:
        """The tables, whatever the model's own."""
        lead = own[0].exchangeabilities.shape[:-1]
        return Matrices(*(np.broadcast_to(table, (*lead, *table.shape)) for table in self.tables))

    def spread(
        self, variable: Categories, with_invariable: Categories, weights: Float64 | None = None
    ) -> Categories:
        """A category each; where some sites are invariable, each with its share of those."""
        del weights
        rates, shares = with_invariable
        k = variable.rates.shape[-1]
        if rates.shape[-1] == k:
            return with_invariable
        still = rates[..., k:], shares[..., k:] * variable.weights
        pairs = (
            np.stack([moving, np.broadcast_to(zero, moving.shape)], axis=-1)
            for moving, zero in zip((rates[..., :k], shares[..., :k]), still, strict=True)
        )
        return Categories(*(pair.reshape(*pair.shape[:-2], -1) for pair in pairs))


class Mixed(Mixture, eq=False, kw_only=True):
    """Models of any kind, a class each (MIX), or with frequencies of their own only (FMIX)."""

    classes: tuple[Model, ...]
    """M models without rates among sites."""
    speeds: Float64
    """f64 [M]: the rates of the classes beside each other; given, or 1, as in IQ-TREE."""
    is_linked: bool = False
    """Whether all have the exchangeabilities of the first."""

    @property
    def models(self) -> tuple[Model, ...]:
        """The classes."""
        return self.classes

    def matrices(self, own: Sequence[Matrices]) -> Matrices:
        """Those of all classes side by side."""
        return Matrices(*(np.stack(tables, axis=-2) for tables in zip(*own, strict=True)))

    def linked(self, own: Sequence[Matrices]) -> list[Matrices]:
        """The matrices of the classes, with the exchangeabilities of the first where they share."""
        if not self.is_linked:
            return list(own)
        return [one._replace(exchangeabilities=own[0].exchangeabilities) for one in own]

    def with_matrices(self, own: Sequence[Matrices]) -> Mixed:
        """The same classes with other values, f64 [pairs] and f64 [S]."""
        models = (
            dataclasses.replace(model, rates=rates, frequencies=frequencies)
            for model, (rates, frequencies) in zip(self.classes, own, strict=True)
        )
        return dataclasses.replace(self, classes=tuple(models))

    def _speeds(self, weights: Float64) -> Float64:
        relative: Float64 = self.speeds / (weights * self.speeds).sum(axis=-1, keepdims=True)
        return relative


@cache
def profile_mixture(name: str) -> Profiles:
    """The frequency profiles of a name of `PROFILES`, and their weights."""
    lines = (_FOLDER / f"{name.lower()}.profiles").read_text("utf-8").splitlines()
    table = np.array([line.split() for line in lines if not line.startswith("#")], np.float64)
    weights, frequencies = table[:, 0], table[:, 1:]
    return Profiles(
        name=name,
        weights=weights / weights.sum(),
        frequencies=frequencies / frequencies.sum(axis=1, keepdims=True),
    )


@cache
def paired_mixture(name: str) -> Paired:
    """The four matrices of a name of `PAIRED`, of slow sites first."""
    tables = [read_table(f"{name.lower()}{k}") for k in range(1, 5)]
    exchangeabilities = np.stack([table.exchangeabilities for table in tables])
    return Paired(
        name=name,
        weights=np.full(len(tables), 1 / len(tables)),
        tables=Matrices(exchangeabilities, np.stack([table.frequencies for table in tables])),
    )
