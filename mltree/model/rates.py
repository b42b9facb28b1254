"""Rate heterogeneity among sites: what its forms have in common, none at all, invariable sites.

A form is a value: categories of sites, each with a relative rate and a weight, whose mean rate is
1, and the parameters behind them. A class in a file of its own adds one (`gamma`, `free_rates`);
the grammar gives it a term. Invariable sites (+I) go with every form.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mltree.errors import ModelError
from mltree.values import Value

__all__ = [
    "ONE_RATE",
    "Categories",
    "Heterogeneity",
    "OneRate",
    "Variable",
    "categories_at",
    "with_invariable",
]


class Variable(NamedTuple):
    """A free parameter as the optimiser moves it, on a scale where steps are relative."""

    name: str
    """What a reader calls the parameter: ``alpha``."""
    low: float
    high: float
    value: float
    """Where it is now, perhaps out of its bounds."""


class Categories(NamedTuple):
    """Categories of sites; there may be many models along the first axes."""

    rates: NDArray[np.float64]
    """f64 [..., K]: relative rates, of mean 1."""
    weights: NDArray[np.float64]
    """f64 [..., K]: proportions of sites, of sum 1."""


class Heterogeneity(Protocol):
    """How rates differ among the sites that vary: K categories, n free parameters."""

    @property
    def categories(self) -> Categories:
        """The K categories."""

    @property
    def kind(self) -> Hashable:
        """Equal for forms that have the same categories at the same points."""

    def variables(self) -> list[Variable]:
        """The n free parameters: none where the user gave the values."""

    def at(self, points: NDArray[np.float64]) -> Categories:
        """The categories [M, K] with the variables at the rows of f64 [M, n]."""

    def with_vector(self, x: NDArray[np.float64]) -> Heterogeneity:
        """The same form with the variables at f64 [n]."""


class OneRate(Value):
    """No heterogeneity: one category of rate 1."""

    @property
    def categories(self) -> Categories:
        """One."""
        return Categories(np.ones(1), np.ones(1))

    @property
    def kind(self) -> Hashable:
        """One."""
        return OneRate

    def variables(self) -> list[Variable]:
        """None."""
        return []

    def at(self, points: NDArray[np.float64]) -> Categories:
        """One for each of the M."""
        return Categories(np.ones((len(points), 1)), np.ones((len(points), 1)))

    def with_vector(self, x: NDArray[np.float64]) -> OneRate:
        """Itself, whatever the f64 [0]."""
        del x
        return self


ONE_RATE = OneRate()


def categories_at(
    forms: Sequence[Heterogeneity], points: Sequence[NDArray[np.float64]]
) -> list[Categories]:
    """What ``at`` says of every form at its points f64 [M, n], but all of a kind at once."""
    kinds: dict[Hashable, list[int]] = {}
    for number, form in enumerate(forms):
        kinds.setdefault(form.kind, []).append(number)
    found: dict[int, Categories] = {}
    for alike in kinds.values():
        together = forms[alike[0]].at(np.concatenate([points[number] for number in alike]))
        ends = np.cumsum([len(points[number]) for number in alike])[:-1]
        split = zip(*(np.split(each, ends) for each in together), strict=True)
        found |= {number: Categories(*own) for number, own in zip(alike, split, strict=True)}
    return [found[number] for number in range(len(forms))]


def with_invariable(categories: Categories, p_invariant: ArrayLike | None) -> Categories:
    """The categories, and one of rate 0 and weight p after them where some sites are invariable.

    The others share 1 - p and are sped up by 1/(1 - p), so that a branch length stays the expected
    number of substitutions per site. ``p_invariant`` is a number, or one for each of many models.

    Raises: ModelError where a proportion is not in [0, 1).
    """
    if p_invariant is None:
        return categories
    p = np.asarray(p_invariant, np.float64)[..., None]
    if not ((p >= 0.0) & (p < 1.0)).all():
        raise ModelError(
            f"the proportion of invariable sites must be in [0, 1), not {p_invariant!r}"
        )
    rates, weights = categories.rates / (1.0 - p), categories.weights * (1.0 - p)
    p = np.broadcast_to(p, rates[..., :1].shape)
    return Categories(
        np.concatenate([rates, np.zeros_like(p)], axis=-1),
        np.concatenate([weights, p], axis=-1),
    )
