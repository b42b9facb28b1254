"""The substitution model as a value: exchangeabilities, frequencies, rate heterogeneity.

A model is time reversible: Q[i, j] = r[i, j] · π[j] with symmetric exchangeabilities r. Models of
nucleotide substitution are told apart by which of the six exchangeabilities (AC AG AT CG CT GT)
are equal, written as a code of six class digits (HKY: ``010010``), and by whether the frequencies
are equal or free. Names and defaults are RAxML-NG's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from mltree.errors import ModelError
from mltree.model.eigen import ModelArrays, decompose
from mltree.model.mixtures import LEAST_WEIGHT, Mixture
from mltree.model.rates import ONE_RATE, Heterogeneity, with_invariable

if TYPE_CHECKING:
    from mltree.alignment.alphabet import Alphabet
    from mltree.alignment.ascertainment import Ascertainment
    from mltree.alignment.patterns import Patterns

__all__ = [
    "DNA_MODELS",
    "FrequencyMode",
    "Model",
    "NucleotideModel",
    "RateClasses",
    "expand_rates",
    "n_pairs",
    "unique_rates",
]

FrequencyMode = Literal["FC", "FE", "FO", "FU", "model"]
"""Counted in the alignment, equal, estimated by ML, given by the user, or the model's own."""


RateClasses = tuple[int, ...]
"""Class of each pair of states, 0, 1, ... in order of appearance: pairs of a class share an
exchangeability. Empty where a model's exchangeabilities are its own (LG)."""


@dataclass(frozen=True)
class NucleotideModel:
    """A named model of nucleotide substitution."""

    name: str
    code: str
    """Class digit of AC AG AT CG CT GT: equal digits share one exchangeability."""
    free_frequencies: bool
    """True: estimated unless told otherwise; False: equal, a part of the model."""

    @property
    def rate_classes(self) -> RateClasses:
        """The code as numbers."""
        return tuple(map(int, self.code))


_CATALOGUE = (
    NucleotideModel("JC", "000000", False),
    NucleotideModel("K80", "010010", False),
    NucleotideModel("F81", "000000", True),
    NucleotideModel("HKY", "010010", True),
    NucleotideModel("TN93ef", "010020", False),
    NucleotideModel("TN93", "010020", True),
    NucleotideModel("K81", "012210", False),
    NucleotideModel("K81uf", "012210", True),
    NucleotideModel("TPM2", "010212", False),
    NucleotideModel("TPM2uf", "010212", True),
    NucleotideModel("TPM3", "012012", False),
    NucleotideModel("TPM3uf", "012012", True),
    NucleotideModel("TIM1", "012230", False),
    NucleotideModel("TIM1uf", "012230", True),
    NucleotideModel("TIM2", "010232", False),
    NucleotideModel("TIM2uf", "010232", True),
    NucleotideModel("TIM3", "012032", False),
    NucleotideModel("TIM3uf", "012032", True),
    NucleotideModel("TVMef", "012314", False),
    NucleotideModel("TVM", "012314", True),
    NucleotideModel("SYM", "012345", False),
    NucleotideModel("GTR", "012345", True),
)

DNA_MODELS: dict[str, NucleotideModel] = {entry.name: entry for entry in _CATALOGUE}
"""RAxML-NG's nucleotide models by name."""


def n_pairs(states: int) -> int:
    """S(S-1)/2, the number of exchangeabilities of S states."""
    return states * (states - 1) // 2


def expand_rates(classes: RateClasses, unique: NDArray[np.float64]) -> NDArray[np.float64]:
    """f64 [..., S(S-1)/2]: one exchangeability per pair from f64 [..., classes], one per class."""
    rates: NDArray[np.float64] = np.asarray(unique, np.float64)[..., list(classes)]
    return rates


def unique_rates(classes: RateClasses, rates: NDArray[np.float64]) -> NDArray[np.float64]:
    """f64 [classes]: the exchangeability of each class."""
    unique = np.empty(max(classes) + 1)
    unique[list(classes)] = rates
    return unique


@dataclass(frozen=True, eq=False)
class Model:
    """A reversible substitution model with all its parameters. S states.

    ``rates_fixed``, ``p_invariant_fixed`` and the like say that the user gave the value in braces,
    so that it is not estimated; frequencies are estimated in mode "FO" only.
    """

    name: str
    """Canonical name: ``"GTR"``, ``"LG"``."""
    alphabet: Alphabet
    rate_classes: RateClasses
    rates: NDArray[np.float64]
    """f64 [S(S-1)/2]: exchangeabilities, upper triangle by rows (AC AG AT CG CT GT)."""
    frequencies: NDArray[np.float64]
    """f64 [S]: equilibrium frequencies, sum 1; NaN where +FC is not counted yet."""
    frequency_mode: FrequencyMode
    heterogeneity: Heterogeneity = ONE_RATE
    """How rates differ among the sites that vary."""
    p_invariant: float | None = None
    """Proportion of invariable sites; None without +I."""
    branch_scaler: float | None = None
    """Factor on the branch lengths of the part that the model is for; None where it has none of its
    own. Nothing here multiplies by it."""
    mixture: Mixture | None = None
    """Of whose classes the sites are; `rates` and `frequencies` serve those without their own."""
    ascertainment: Ascertainment | None = None
    """That the data have no constant sites. Nothing here corrects for it."""
    rates_fixed: bool = False
    p_invariant_fixed: bool = False
    branch_scaler_fixed: bool = False

    @property
    def n_states(self) -> int:
        """S."""
        return len(self.frequencies)

    def arrays(self) -> ModelArrays:
        """The eigen system and rate categories that the likelihood is computed from.

        Raises: ModelError where +FC frequencies are not counted yet, or a value is out of range.
        """
        return self._arrays

    @cached_property
    def _arrays(self) -> ModelArrays:
        if np.isnan(self.frequencies).any():
            raise ModelError(
                f"the frequencies of {self.name}+FC are not known without an alignment",
                hint="count them (with_empirical_frequencies) or give them, +FU{...}",
            )
        variable = self.heterogeneity.categories
        categories = with_invariable(variable, self.p_invariant)
        if self.mixture is None:
            return decompose(self.rates, self.frequencies, *categories)
        matrices = self.mixture.matrices(self.rates, self.frequencies)
        return decompose(*matrices, *self.mixture.spread(variable, categories))

    def with_empirical_frequencies(self, patterns: Patterns) -> Model:
        """The same model with state frequencies counted in the alignment, where it asks for them.

        Mode "FC" takes them as they are, "FO" as the start of its estimate; the other modes are
        left alone. How they are counted: `Patterns.base_frequencies`.
        """
        if self.frequency_mode not in ("FC", "FO"):
            return self
        return dataclasses.replace(self, frequencies=patterns.base_frequencies())

    def with_class_weights(self, weights: NDArray[np.float64]) -> Model:
        """The same mixture with other weights f64 [classes, or more], none too small to grow again.

        Raises: ValueError where the model is no mixture.
        """
        if self.mixture is None:
            raise ValueError("a model without classes")
        least = np.maximum(weights[: self.mixture.n_classes], LEAST_WEIGHT)
        return dataclasses.replace(self, mixture=self.mixture.with_weights(least))

    def values(self) -> dict[str, Any]:
        """The values of all parameters, to be kept in a file: numbers, lists and dictionaries."""
        return {
            **{name: _plain(getattr(self, name)) for name in _VALUES},
            "heterogeneity": {k: _plain(v) for k, v in vars(self.heterogeneity).items()},
            **({} if self.mixture is None else {"classes": _plain(self.mixture.weights)}),
        }

    def with_values(self, values: Mapping[str, Any]) -> Model:
        """The same model with the `values` of another one like it, to the last bit."""
        among = {k: _array(v) for k, v in values["heterogeneity"].items()}
        return dataclasses.replace(
            self,
            **{name: _array(values[name]) for name in _VALUES},
            heterogeneity=type(self.heterogeneity)(**among),
            mixture=self.mixture and self.mixture.with_weights(np.array(values["classes"])),
        )


_VALUES = ("rates", "frequencies", "p_invariant", "branch_scaler")


def _plain(value: object) -> object:
    return value.tolist() if isinstance(value, np.ndarray) else value


def _array(value: object) -> Any:
    return np.array(value) if isinstance(value, list) else value
