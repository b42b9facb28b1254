"""Mixtures: sites of several classes, each with a matrix of its own.

A class has a weight and frequencies, and exchangeabilities of its own or the model's (LG+C20).
Either every class comes with every category of rates, so that there are M K of them; or classes
and rates are paired, the k-th slowest sites having the k-th matrix (LG4M and LG4X). Each class's
matrix is normalised by itself, so that a rate is relative to one substitution per site in all.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mltree.errors import ModelError
from mltree.model.empirical import read_table
from mltree.model.rates import Categories

__all__ = ["PAIRED", "PROFILES", "Mixture", "paired_mixture", "profile_mixture"]

Float64 = NDArray[np.float64]

PROFILES = ("C10", "C20", "C30", "C40", "C50", "C60")
"""Frequency profiles of Le, Gascuel & Lartillot (2008, Bioinformatics 24:2317-2323)."""

PAIRED = ("LG4M", "LG4X")
"""Le, Dang & Gascuel (2012, Mol. Biol. Evol. 29:2921-2936): four matrices, with gamma rates and
with free ones."""

LEAST_WEIGHT = 1e-4
"""Of a class whose weight is estimated, as in IQ-TREE."""

_FOLDER = Path(__file__).parent / "matrices"


@dataclass(frozen=True, eq=False)
class Mixture:
    """The M classes of a model of S states."""

    name: str
    """Of the term that names it: ``C20``; of a paired one, the model's."""
    frequencies: Float64
    """f64 [M, S]; a class of the model's own frequencies behind them where ``has_own``."""
    weights: Float64
    """f64 [M], or [M + 1] where ``has_own``: proportions of sites, sum 1. Not used where paired."""
    exchangeabilities: Float64 | None = None
    """f64 [M, S(S-1)/2]; None where all classes have the model's."""
    is_paired: bool = False
    """Whether category k of the rates goes with class k."""
    has_own: bool = False
    """Whether the model's frequencies (+F) make a further class."""
    weights_fixed: bool = True

    @property
    def n_classes(self) -> int:
        """M, or M + 1."""
        return len(self.weights)

    @property
    def free_weights(self) -> int:
        """Weights to estimate."""
        return 0 if self.weights_fixed or self.is_paired else self.n_classes - 1

    def matrices(self, rates: Float64, frequencies: Float64) -> tuple[Float64, Float64]:
        """Exchangeabilities f64 [..., M, pairs] and frequencies f64 [..., M, S] of the classes.

        ``rates`` f64 [..., pairs], ``frequencies`` f64 [..., S]: the model's own.
        """
        lead = rates.shape[:-1]
        own = np.broadcast_to(self.frequencies, (*lead, *self.frequencies.shape))
        if self.has_own:
            own = np.concatenate([own, frequencies[..., None, :]], axis=-2)
        if self.exchangeabilities is not None:
            return np.broadcast_to(
                self.exchangeabilities, (*lead, *self.exchangeabilities.shape)
            ), own
        return np.repeat(rates[..., None, :], self.n_classes, axis=-2), own

    def spread(self, variable: Categories, with_invariable: Categories) -> Categories:
        """The categories of all classes in turn, f64 [..., M K].

        ``variable``: of the sites that vary; ``with_invariable``: those, and one of rate 0 behind
        them where some sites do not.
        """
        rates, weights = with_invariable
        if not self.is_paired:
            spread = weights[..., None, :] * self.weights[:, None]
            lead = rates.shape[:-1]
            return Categories(
                np.repeat(rates[..., None, :], self.n_classes, axis=-2).reshape(*lead, -1),
                spread.reshape(*lead, -1),
            )
        k = variable.rates.shape[-1]
        if rates.shape[-1] == k:
            return with_invariable
        still = rates[..., k:], weights[..., k:] * variable.weights
        pairs = (
            np.stack([moving, np.broadcast_to(zero, moving.shape)], axis=-1)
            for moving, zero in zip((rates[..., :k], weights[..., :k]), still, strict=True)
        )
        return Categories(*(pair.reshape(*pair.shape[:-2], -1) for pair in pairs))

    def with_own_class(self) -> Mixture:
        """With a class of the model's frequencies; all weights are estimated, as in IQ-TREE."""
        if self.has_own:
            return self
        m = self.n_classes
        weights = np.append(self.weights * (m / (m + 1)), 1 / (m + 1))
        return dataclasses.replace(self, has_own=True, weights=weights, weights_fixed=False)

    def with_weights(self, weights: Float64, *, fixed: bool | None = None) -> Mixture:
        """With other weights, in proportion. Raises: ModelError where there are others to give."""
        if len(weights) != self.n_classes:
            raise ModelError(
                f"+{self.name}: {self.n_classes} weights are wanted, not {len(weights)}"
            )
        if (weights < 0.0).any() or not weights.sum() > 0.0:
            raise ModelError(f"+{self.name}: weights must not be negative, nor all zero")
        is_fixed = self.weights_fixed if fixed is None else fixed
        return dataclasses.replace(self, weights=weights / weights.sum(), weights_fixed=is_fixed)


@cache
def profile_mixture(name: str) -> Mixture:
    """The frequency profiles of a name of `PROFILES`, and their weights."""
    lines = (_FOLDER / f"{name.lower()}.profiles").read_text("utf-8").splitlines()
    table = np.array([line.split() for line in lines if not line.startswith("#")], np.float64)
    weights, frequencies = table[:, 0], table[:, 1:]
    return Mixture(
        name, frequencies / frequencies.sum(axis=1, keepdims=True), weights / weights.sum()
    )


@cache
def paired_mixture(name: str) -> Mixture:
    """The four matrices of a name of `PAIRED`, of slow sites first."""
    tables = [read_table(f"{name.lower()}{k}") for k in range(1, 5)]
    return Mixture(
        name,
        np.stack([table.frequencies for table in tables]),
        np.full(len(tables), 1 / len(tables)),
        np.stack([table.exchangeabilities for table in tables]),
        is_paired=True,
    )
