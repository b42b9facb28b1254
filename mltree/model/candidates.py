"""The models that a choice is made among, and the criteria that it is made by.

ModelFinder (Kalyaanamoorthy et al. 2017, Nat. Methods 14:587-589) and jModelTest (Darriba et al.
2012, Nat. Methods 9:772) name the same ones. With k free parameters, branch lengths included, and n
sites:

    AIC   2k - 2 lnL
    AICc  AIC + 2k(k + 1) / (n - k - 1), divided by 1 at least, as in IQ-TREE
    BIC   k ln n - 2 lnL
"""

from __future__ import annotations

import dataclasses
import math
from enum import StrEnum
from functools import lru_cache
from typing import Any

import numpy as np

from mltree.alignment.alphabet import Alphabet
from mltree.model.empirical import PROTEIN_MODELS
from mltree.model.grammar import parse_model
from mltree.model.names import family_of
from mltree.model.portable import exp, log
from mltree.model.rates import Heterogeneity, OneRate
from mltree.model.substitution import DNA_MODELS, Model, expand_rates, n_classes
from mltree.values import Value

__all__ = [
    "MOST_FREE_RATES",
    "REFERENCE_RATES",
    "Candidate",
    "Criterion",
    "free_rates",
    "is_held",
    "matrices",
    "model_of",
    "started_from",
    "thawed",
    "with_matrix_held",
    "with_rates_held",
]

REFERENCE_RATES = ("", "+I", "+G4", "+I+G4")
"""Rates among sites that are tried first, beside free ones."""

MOST_FREE_RATES = 10
"""Categories of free rates, as in ModelFinder."""


class Criterion(StrEnum):
    """What a model is chosen by; smaller is better."""

    BIC = "bic"
    AIC = "aic"
    AICC = "aicc"

    def score(self, lnl: float, parameters: int, sites: int) -> float:
        """Of a model with so many free parameters, on so many sites."""
        if self is Criterion.BIC:
            return parameters * math.log(sites) - 2 * lnl
        aic = 2 * parameters - 2 * lnl
        if self is Criterion.AIC:
            return aic
        return aic + 2 * parameters * (parameters + 1) / max(sites - parameters - 1, 1)


class Candidate(Value):
    """A model in two halves."""

    matrix: str
    """Exchangeabilities and frequencies: ``HKY+FC``, ``LG``."""
    rates: str
    """Among sites: ``+I+G4``, or none."""

    @property
    def name(self) -> str:
        """What ``--model`` takes."""
        return self.matrix + self.rates


def matrices(alphabet: Alphabet) -> list[str]:
    """Every matrix for a kind of data with each of its frequencies, the reference first.

    The reference, under which the rates are compared, is the most general one, or the most usual.
    Nucleotides: equal frequencies, or counted where a name says that they differ. Proteins: the
    model's own, or counted. Of other data their family says.
    """
    family = family_of(alphabet)
    if family is not None:
        return family.matrices(alphabet)
    if alphabet.name == "DNA":
        return [
            name + "+FC" * model.free_frequencies for name, model in reversed(DNA_MODELS.items())
        ]
    return [name + term for name in PROTEIN_MODELS for term in ("", "+FC")]


@lru_cache(maxsize=1024)
def model_of(candidate: Candidate, alphabet: Alphabet) -> Model:
    """The model of a candidate, its parameters where their estimate begins.

    Frequencies that are counted in data are NaN (:func:`mltree.model.grammar.parse_model`).
    """
    return parse_model(candidate.name, alphabet)


def free_rates(categories: int) -> str:
    """The term of so many free rates."""
    return f"+R{categories}"


def started_from(model: Model, other: Model) -> Model:
    """The model with estimates to begin with from another's, as far as they are alike."""
    if len(model.heterogeneity.variables()) == len(other.heterogeneity.variables()) and isinstance(
        model.heterogeneity, type(other.heterogeneity)
    ):
        model = dataclasses.replace(
            model, heterogeneity=other.heterogeneity, p_invariant=_of_both(model, other)
        )
    if model.codon is not None and other.codon is not None:
        return model.with_codon(model.codon.like(other.codon))
    if not model.rate_classes or len(model.rates) != len(other.rates) or not other.rate_classes:
        return model
    classes = np.array(model.rate_classes)
    logs = log(np.maximum(other.rates, np.finfo(np.float64).tiny))
    means = exp(
        np.array([logs[classes == one].mean() for one in range(n_classes(model.rate_classes))])
    )
    rates = expand_rates(model.rate_classes, means)
    return dataclasses.replace(model, rates=rates / rates[-1])


def with_rates_held(model: Model) -> Model:
    """The model with its rates among sites fixed as they are."""
    form: Any = model.heterogeneity
    held = form if isinstance(form, OneRate) else dataclasses.replace(form, fixed=True)
    return dataclasses.replace(model, heterogeneity=held, p_invariant_fixed=True)


def thawed(held: Model, model: Model) -> Model:
    """A model from where another like it ended, free where the model is."""
    values = held.values()
    values["heterogeneity"] |= {
        name: value for name, value in vars(model.heterogeneity).items() if name == "fixed"
    }
    return model.with_values(values)


def with_matrix_held(model: Model) -> Model:
    """The model with its exchangeabilities, where it has free ones, fixed as they are."""
    if model.codon is not None:
        return model.with_codon(model.codon.held())
    return dataclasses.replace(model, rates_fixed=True) if model.rate_classes else model


def is_held(form: Heterogeneity) -> bool:
    """Whether rates among sites are fixed."""
    return not isinstance(form, OneRate) and not form.variables()


def _of_both(model: Model, other: Model) -> float | None:
    return None if model.p_invariant is None else other.p_invariant or model.p_invariant
