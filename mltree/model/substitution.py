"""The substitution model as a value: exchangeabilities, frequencies, rate heterogeneity.

A model is time reversible: Q[i, j] = r[i, j] · π[j] with symmetric exchangeabilities r. Models of
nucleotide substitution are told apart by which of the six exchangeabilities (AC AG AT CG CT GT)
are equal, written as a code of six class digits (HKY: ``010010``), and by whether the frequencies
are equal or free. Names and defaults are RAxML-NG's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from mltree.errors import ModelError
from mltree.model.codon import POSITIONS, CodonRates, nucleotide_frequencies
from mltree.model.eigen import ModelArrays, decompose, known_systems
from mltree.model.gamma import categories_of
from mltree.model.mixtures import LEAST_WEIGHT, Matrices, Mixed, Mixture
from mltree.model.rates import ONE_RATE, Heterogeneity, with_invariable
from mltree.values import Value

if TYPE_CHECKING:
    from mltree.alignment.alphabet import Alphabet
    from mltree.alignment.ascertainment import Ascertainment
    from mltree.alignment.patterns import Patterns

__all__ = [
    "DNA_MODELS",
    "NO_CHANGE",
    "FrequencyMode",
    "Model",
    "NucleotideModel",
    "RateClasses",
    "arrays_of_all",
    "expand_rates",
    "n_classes",
    "n_pairs",
    "unique_rates",
]

FrequencyMode = Literal["FC", "FE", "FO", "FU", "F1X4", "F3X4", "model"]
"""Counted in the alignment, equal, estimated by ML, given by the user, products of nucleotides'
(`mltree.model.codon`), or the model's own."""


RateClasses = tuple[int, ...]
"""Class of each pair of states, 0, 1, ... in order of appearance: pairs of a class share an
exchangeability. Empty where a model's exchangeabilities are its own (LG)."""

NO_CHANGE = -1
"""The class of pairs whose exchangeability is 0."""


class NucleotideModel(Value):
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
    unique = np.asarray(unique, np.float64)
    with_none = np.concatenate([unique, np.zeros_like(unique[..., :1])], axis=-1)
    rates: NDArray[np.float64] = with_none[..., list(classes)]  # the last one is NO_CHANGE's
    return rates


def unique_rates(classes: RateClasses, rates: NDArray[np.float64]) -> NDArray[np.float64]:
    """f64 [..., classes]: the exchangeability of each class, from f64 [..., S(S-1)/2]."""
    with_none = np.empty((*rates.shape[:-1], n_classes(classes) + 1))
    with_none[..., list(classes)] = rates
    return with_none[..., :-1]


def n_classes(classes: RateClasses) -> int:
    """How many exchangeabilities pairs of states share."""
    return max(classes, default=NO_CHANGE) + 1


class Model(Value, eq=False):
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
    """Factor on the branch lengths of the part that the model is for, or where its estimate begins;
    None where it has none of its own. Nothing here multiplies by it."""
    mixture: Mixture | None = None
    """Of whose classes the sites are; `rates` and `frequencies` serve those without their own, and
    are those of the first where every class has a model."""
    codon: CodonRates | None = None
    """What `rates` are made of, in models of codons."""
    ascertainment: Ascertainment | None = None
    """That the data have no constant sites. Nothing here corrects for it."""
    rates_fixed: bool = False
    p_invariant_fixed: bool = False

    @property
    def n_states(self) -> int:
        """S."""
        return len(self.frequencies)

    @property
    def components(self) -> tuple[Model, ...]:
        """Whose exchangeabilities and frequencies are parameters: itself, or its classes."""
        return (self.mixture and self.mixture.models) or (self,)

    def arrays(self) -> ModelArrays:
        """The eigen system and rate categories that the likelihood is computed from.

        Raises: ModelError where +FC frequencies are not counted yet, or a value is out of range.
        """
        return self._arrays

    @cached_property
    def _arrays(self) -> ModelArrays:
        (found,) = _found([self])
        return found

    def with_empirical_frequencies(self, patterns: Patterns) -> Model:
        """The same model with state frequencies counted in the alignment, where it asks for them.

        Mode "FC" takes them as they are, "FO" as the start of its estimate; the other modes are
        left alone. How they are counted: `Patterns.base_frequencies`; nucleotides in codons
        ("F1X4", "F3X4"): `mltree.model.codon.nucleotide_frequencies`.
        """
        positions = POSITIONS.get(self.frequency_mode)
        if self.codon is not None and positions and not self.codon.given_nucleotides:
            counted = nucleotide_frequencies(patterns.alphabet, patterns.code_counts(), positions)
            return self.with_codon(self.codon.with_nucleotides(counted))
        wanted = [model.frequency_mode in ("FC", "FO") for model in self.components]
        if not any(wanted):
            return self
        counted = patterns.base_frequencies()
        if not isinstance(self.mixture, Mixed):
            return dataclasses.replace(self, frequencies=counted)
        return self.with_matrices(
            [
                Matrices(model.rates, counted if counts else model.frequencies)
                for model, counts in zip(self.components, wanted, strict=True)
            ]
        )

    def with_matrices(self, own: Sequence[Matrices]) -> Model:
        """The same with other values of its components, f64 [pairs] and f64 [S] each."""
        rates, frequencies = own[0]
        mixture = self.mixture
        if isinstance(mixture, Mixed):
            mixture = mixture.with_matrices(own)
        return dataclasses.replace(self, rates=rates, frequencies=frequencies, mixture=mixture)

    def with_codon(self, codon: CodonRates) -> Model:
        """The same model with other rates between codons, and frequencies that come with them."""
        frequencies = self.frequencies if codon.nucleotides is None else codon.frequencies
        return dataclasses.replace(self, codon=codon, rates=codon.rates, frequencies=frequencies)

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
            **({} if self.codon is None else {"codon": self.codon.values}),
            **({"models": self._of_classes()} if isinstance(self.mixture, Mixed) else {}),
        }

    def _of_classes(self) -> list[list[object]]:
        return [[_plain(own.rates), _plain(own.frequencies)] for own in self.components]

    def with_values(self, values: Mapping[str, Any]) -> Model:
        """The same model with the `values` of another one like it, to the last bit."""
        among = {k: _array(v) for k, v in values["heterogeneity"].items()}
        mixture = self.mixture
        if isinstance(mixture, Mixed):
            own = (Matrices(*map(np.array, tables)) for tables in values["models"])
            mixture = mixture.with_matrices(list(own))
        return dataclasses.replace(
            self,
            **{name: _array(values[name]) for name in _VALUES},
            heterogeneity=type(self.heterogeneity)(**among),
            mixture=mixture and mixture.with_weights(np.array(values["classes"])),
            codon=self.codon and self.codon.at(values["codon"]),
        )


def arrays_of_all(models: Sequence[Model]) -> list[ModelArrays]:
    """What `Model.arrays` says of every model, to the bit, but found together.

    Of a thousand models of nucleotides in 0.05 s, where one by one took 1.5 s. Raises: as there.
    """
    unknown = [model for model in dict.fromkeys(models) if "_arrays" not in vars(model)]
    for model, found in zip(unknown, _found(unknown), strict=True):
        vars(model)["_arrays"] = found  # where the cached property keeps it
    return [model.arrays() for model in models]


def _found(models: Sequence[Model]) -> list[ModelArrays]:
    """The arrays of every model; those of as many states at once."""
    for model in models:
        _refuse_unknown(model)
    forms = categories_of([model.heterogeneity for model in models])
    among = dict(zip(models, forms, strict=True))
    found: dict[Model, ModelArrays] = {}
    states: dict[int, list[Model]] = {}
    for model, variable in among.items():
        categories = with_invariable(variable, model.p_invariant)
        if model.mixture is None:
            among[model] = categories
            states.setdefault(model.n_states, []).append(model)
            continue
        own = [Matrices(one.rates, one.frequencies) for one in model.components]
        spread = model.mixture.spread(variable, categories)
        found[model] = decompose(*model.mixture.matrices(own), *spread)
    for alike in states.values():
        rates, frequencies = zip(
            *((model.rates, model.frequencies) for model in alike), strict=True
        )
        systems = known_systems(np.stack(rates), np.stack(frequencies))
        pairs = zip(alike, systems, strict=True)
        found |= {model: ModelArrays(*system, *among[model]) for model, system in pairs}
    return [found[model] for model in models]


def _refuse_unknown(model: Model) -> None:
    """Make sure that all frequencies are known."""
    unknown = (m.frequency_mode for m in model.components if np.isnan(m.frequencies).any())
    mode = next(unknown, None)
    if mode is not None:
        given = "FU" if mode == "FC" else mode
        raise ModelError(
            f"the frequencies of {model.name}+{mode} are not known without an alignment",
            hint=f"give them, +{given}{{...}}; --frequencies-from of simulate counts them",
        )


_VALUES = ("rates", "frequencies", "p_invariant", "branch_scaler")


def _plain(value: object) -> object:
    return value.tolist() if isinstance(value, np.ndarray) else value


def _array(value: object) -> Any:
    return np.array(value) if isinstance(value, list) else value
