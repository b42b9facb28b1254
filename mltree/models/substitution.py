"""The substitution model as a value: exchangeabilities, frequencies, rate heterogeneity.

A model is time reversible: Q[i, j] = r[i, j] · π[j] with symmetric exchangeabilities r. Models of
nucleotide substitution are told apart by which of the six exchangeabilities (AC AG AT CG CT GT)
are equal, written as a code of six class digits (HKY: ``010010``), and by whether the frequencies
are equal or free. Names and defaults are RAxML-NG's.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from mltree.data.alphabet import DNA
from mltree.models.eigen import ModelArrays, decompose, known_systems
from mltree.models.empirical import Matrices, read_table
from mltree.models.portable import exp
from mltree.models.rates import (
    ONE_RATE,
    Categories,
    Heterogeneity,
    Variable,
    categories_of,
    with_invariable,
)
from mltree.system.arrays import Bool, Float64, Index
from mltree.system.errors import ModelError
from mltree.system.values import Value

if TYPE_CHECKING:
    from typing_extensions import Self

    from mltree.data.alphabet import Alphabet
    from mltree.data.codons import CodonAlphabet
    from mltree.data.patterns import Ascertainment, Patterns


# Rates of change between codons, from few parameters.
#
# Only one nucleotide changes at a time. With S codons and frequencies π,
#
#     r[i, j] = b[i, j] · κ if the change is a transition · ω if it changes the amino acid
#
# where b is 1 in GY94 (Goldman & Yang 1994, Mol. Biol. Evol. 11:725-736, in the form of Nielsen &
# Yang 1998, Genetics 148:929-936): rates go by the frequency of the codon that is made. In MG94
# (Muse & Gaut 1994, Mol. Biol. Evol. 11:715-724) they go by that of the nucleotide which is put in.
# π[j] is then the product of the frequencies of its nucleotides, stop codons left out, so that b is
# 1 over the product of the two that stay. Published exchangeabilities (ECMK07) are r as they are.

RATIO_MIN, RATIO_MAX = 0.001, 50.0
"""Bounds of κ and ω."""

LEAST_NUCLEOTIDE = 1e-6
"""Lower bound of a nucleotide's frequency at a position, because rates are divided by it."""

EM_STEPS, EM_CHANGE = 1000, 1e-12
"""Steps of the count of ambiguous nucleotides, and largest change of a frequency in the last."""

POSITIONS = {"F1X4": 1, "F3X4": 3}
"""Terms for codon frequencies that are products of nucleotide frequencies: number of positions with
frequencies of their own."""

_PURINES = "AG"


class _Changes(NamedTuple):
    """Kinds of change between each pair of codons, upper triangle by rows."""

    single: Bool
    """True where the codons differ in one nucleotide."""
    transition: Bool
    replacement: Bool
    """True where the codons stand for different amino acids."""
    places: Index
    """[S, 3]: the nucleotides of each codon, by their place in ACGT."""


class CodonRates(Value, eq=False):
    """κ and ω of a model, and the other factors of its rates. S codons."""

    alphabet: CodonAlphabet
    kappa: float = 1.0
    """Ratio of transitions to transversions."""
    omega: float = 1.0
    """Ratio of nonsynonymous to synonymous changes, dN/dS."""
    kappa_fixed: bool = False
    omega_fixed: bool = False
    has_kappa: bool = True
    by_nucleotide: bool = False
    """True where rates go by the frequency of the nucleotide (MG94), not of the codon."""
    nucleotides: Float64 | None = None
    """f64 [3, 4]: frequencies of ACGT at each position where codon frequencies are their
    products."""
    given_nucleotides: tuple[float, ...] = ()
    """Frequencies of ACGT that the user gave: 4 for all positions, or 12."""
    published: Float64 | None = None
    """f64 [S(S-1)/2]: exchangeabilities of a table (ECMK07), which has no κ; ω is fixed."""

    @property
    def values(self) -> tuple[float, ...]:
        """ω, and κ where the model has it: the order of IQ-TREE's braces; empty for a table."""
        if self.published is not None:
            return ()
        return (self.omega, self.kappa) if self.has_kappa else (self.omega,)

    def at(self, values: Sequence[float]) -> CodonRates:
        """A copy with other ``values``."""
        if self.published is not None:
            return self
        omega, *kappa = values
        return replace(self, omega=omega, kappa=kappa[0] if kappa else 1.0)

    def like(self, other: CodonRates) -> CodonRates:
        """A copy with ω and κ of another, where they are not fixed."""
        return replace(
            self,
            omega=self.omega if self.omega_fixed else other.omega,
            kappa=self.kappa if self.kappa_fixed or not self.has_kappa else other.kappa,
        )

    def held(self) -> CodonRates:
        """A copy with ω and κ fixed."""
        return replace(self, omega_fixed=True, kappa_fixed=True)

    def with_nucleotides(self, nucleotides: Float64) -> CodonRates:
        """A copy with frequencies of nucleotides f64 [3, 4], raised to the lower bound."""
        least = np.maximum(nucleotides, LEAST_NUCLEOTIDE)
        return replace(self, nucleotides=least / least.sum(axis=1, keepdims=True))

    @property
    def frequencies(self) -> Float64:
        """f64 [S]: products of nucleotide frequencies. Raises: ValueError where there are none."""
        if self.nucleotides is None:
            raise ValueError("no frequencies of nucleotides")
        products = self.nucleotides[np.arange(3), _changes(self.alphabet).places].prod(axis=1)
        frequencies: Float64 = products / products.sum()
        return frequencies

    @property
    def rates(self) -> Float64:
        """f64 [S(S-1)/2]: exchangeabilities."""
        rates: Float64 = self._rates(np.array([[self.omega, self.kappa]]))[0]
        return rates

    def variables(self) -> list[Variable]:
        """The free parameters, as natural logs."""
        low, high = math.log(RATIO_MIN), math.log(RATIO_MAX)
        free = not self.omega_fixed, self.has_kappa and not self.kappa_fixed
        named = (("omega", self.omega), ("kappa", self.kappa))
        return [Variable(name, low, high, math.log(value)) for name, value in compress(named, free)]

    def _at(self, points: Float64) -> Float64:
        """f64 [M, 2]: ω and κ with the variables at the rows of f64 [M, n]."""
        both = np.tile([self.omega, self.kappa], (len(points), 1))
        free = [("omega", "kappa").index(variable.name) for variable in self.variables()]
        both[:, free] = exp(points)
        return both

    def rates_at(self, points: Float64) -> Float64:
        """f64 [M, S(S-1)/2]: the exchangeabilities with the variables at the rows of f64 [M, n]."""
        return self._rates(self._at(points))

    def _rates(self, both: Float64) -> Float64:
        """f64 [M, S(S-1)/2]: exchangeabilities for rows of ω and κ, f64 [M, 2]."""
        changes = _changes(self.alphabet)
        factors = np.where(changes.replacement, both[:, :1], 1.0)
        factors = factors * np.where(changes.transition, both[:, 1:], 1.0)
        rates: Float64 = factors * self._base()
        return rates

    def with_vector(self, x: Float64) -> CodonRates:
        """A copy with the variables at f64 [n]."""
        ((omega, kappa),) = self._at(x[None]).tolist()
        return replace(self, omega=omega, kappa=kappa)

    def _base(self) -> Float64:
        if self.published is not None:
            return self.published
        changes = _changes(self.alphabet)
        base: Float64 = changes.single.astype(np.float64)
        if self.by_nucleotide and self.nucleotides is not None:
            by_position = self.nucleotides[np.arange(3), changes.places]
            row, column = np.triu_indices(len(by_position), 1)
            same = changes.places[row] == changes.places[column]
            base = base / np.where(same, by_position[row], 1.0).prod(axis=1)
            base /= base.max()
        return base


def nucleotide_frequencies(alphabet: Alphabet, counts: Float64, positions: int) -> Float64:
    """f64 [3, 4]: frequencies of ACGT at each position, or (1) of all, from codes of triplets.

    alphabet   codes of triplets; counts  f64 [C]: triplets of each code

    The most likely frequencies by nucleotides, one by one: N and gaps count nothing, R counts as A
    and G by their frequencies at the position. codeml counts so (Yang 2007, Mol. Biol. Evol.
    24:1586-1591) whatever the codon; but where TAA and TAG are stop codons, TAY is TAN here.
    """
    nucleotides = np.frombuffer("".join(alphabet.symbols).encode("ascii"), np.uint8)
    may = DNA.tip_table[DNA.encode(nucleotides)].reshape(-1, 3, 4)
    known = (may.sum(axis=2) < len(DNA.states)) * counts[:, None]
    if positions == 1:
        return np.tile(_likeliest(may.reshape(-1, 4), known.ravel()), (3, 1))
    return np.array([_likeliest(may[:, at], known[:, at]) for at in range(3)])


def _likeliest(may: Float64, counts: Float64) -> Float64:
    """f64 [4]: most likely frequencies by EM, from sets f64 [n, 4] of nucleotides and counts."""
    frequencies = np.full(may.shape[1], 1.0 / may.shape[1])
    if not counts.any():
        return frequencies
    may, counts = may[counts > 0.0], counts[counts > 0.0]  # others' may all be without frequency
    for _ in range(EM_STEPS):
        shares = may * frequencies
        totals = ((counts / shares.sum(axis=1))[:, None] * shares).sum(axis=0)
        before, frequencies = frequencies, totals / totals.sum()
        if np.abs(frequencies - before).max() < EM_CHANGE:
            break
    return frequencies


@cache
def _changes(alphabet: CodonAlphabet) -> _Changes:
    codons = alphabet.states
    places = np.array([[DNA.states.index(base) for base in codon] for codon in codons])
    is_purine = np.array([base in _PURINES for base in DNA.states])
    acids = np.array([alphabet.genetic_code.amino_acids[codon] for codon in codons])
    row, column = np.triu_indices(len(codons), 1)
    differ = places[row] != places[column]
    alike = is_purine[places[row]] == is_purine[places[column]]
    single = differ.sum(axis=1) == 1
    return _Changes(
        single=single,
        transition=single & (~differ | alike).all(axis=1),
        replacement=acids[row] != acids[column],
        places=places,
    )


# Mixtures: sites of several classes, each with a matrix of its own.
#
# A class has a weight, exchangeabilities and frequencies: frequencies that are published, beside
# exchangeabilities of the model (`Profiles`: LG+C20); matrices that are published, the k-th going
# with the k-th slowest sites (`Paired`: LG4M and LG4X); or a model of its own (`Mixed`: MIX{...}).
# But for the paired ones every class comes with every category of rates, so that there are M K of
# them. Each class's matrix is normalised by itself, so that a rate is relative to one substitution
# per site in all.

PROFILES = ("C10", "C20", "C30", "C40", "C50", "C60")
"""Frequency profiles of Le, Gascuel & Lartillot (2008, Bioinformatics 24:2317-2323)."""

PAIRED = ("LG4M", "LG4X")
"""Le, Dang & Gascuel (2012, Mol. Biol. Evol. 29:2921-2936): four matrices, with gamma rates and
with free ones."""

LEAST_WEIGHT = 1e-4
"""Lower bound of an estimated class weight, as in IQ-TREE."""

_FOLDER = Path(__file__).parent / "matrices"


class Mixture(Value, ABC, eq=False, kw_only=True):
    """The M classes of a model of S states."""

    name: str
    """Name of the mixture's term, ``C20``; for a paired mixture the model's."""
    weights: Float64
    """f64 [M]: proportions of sites, sum 1. Not used where paired."""
    weights_fixed: bool = True
    models: tuple[Model, ...] = ()
    """Models of the classes, where each has a model with parameters; without rates among sites."""

    @property
    def n_classes(self) -> int:
        """Number of classes, M."""
        return len(self.weights)

    @property
    def free_weights(self) -> int:
        """Number of weights to estimate."""
        return 0 if self.weights_fixed else self.n_classes - 1

    @abstractmethod
    def matrices(self, parameters: Sequence[Matrices]) -> Matrices:
        """Exchangeabilities f64 [..., M, pairs] and frequencies f64 [..., M, S] of the classes.

        ``parameters``: of the model, or of every class where each has a model.
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
        """f64 [..., M]: relative rates of the classes, of mean 1."""
        return np.ones_like(weights)

    def with_weights(self, weights: Float64, *, fixed: bool | None = None) -> Self:
        """A copy with weights in proportion. Raises: ModelError where their number is wrong."""
        if len(weights) != self.n_classes:
            raise ModelError(f"+{self.name}: expected {self.n_classes} weights, not {len(weights)}")
        if (weights < 0.0).any() or not weights.sum() > 0.0:
            raise ModelError(f"+{self.name}: weights must not be negative, nor all zero")
        is_fixed = self.weights_fixed if fixed is None else fixed
        return replace(self, weights=weights / weights.sum(), weights_fixed=is_fixed)


class Profiles(Mixture, eq=False, kw_only=True):
    """Frequencies of classes that share the model's exchangeabilities."""

    frequencies: Float64
    """f64 [M, S]; without those of the model's own class."""
    has_own: bool = False
    """True where the model's frequencies (+F) make a further class, the last."""

    def matrices(self, parameters: Sequence[Matrices]) -> Matrices:
        """The profiles, with the model's frequencies behind them."""
        ((rates, frequencies),) = parameters
        profiles = np.broadcast_to(self.frequencies, (*rates.shape[:-1], *self.frequencies.shape))
        if self.has_own:
            profiles = np.concatenate([profiles, frequencies[..., None, :]], axis=-2)
        return Matrices(np.repeat(rates[..., None, :], self.n_classes, axis=-2), profiles)

    def with_own_class(self) -> Profiles:
        """A copy with a class of the model's frequencies, all weights estimated, as in IQ-TREE."""
        if self.has_own:
            return self
        m = self.n_classes
        weights = np.append(self.weights * (m / (m + 1)), 1 / (m + 1))
        return replace(self, has_own=True, weights=weights, weights_fixed=False)


class Paired(Mixture, eq=False, kw_only=True):
    """Matrices that go with the categories of rates, one each."""

    tables: Matrices
    """f64 [M, S(S-1)/2] and f64 [M, S]"""

    def matrices(self, parameters: Sequence[Matrices]) -> Matrices:
        """The tables; the model's matrix is not used."""
        lead = parameters[0].exchangeabilities.shape[:-1]
        return Matrices(*(np.broadcast_to(table, (*lead, *table.shape)) for table in self.tables))

    def spread(
        self, variable: Categories, with_invariable: Categories, weights: Float64 | None = None
    ) -> Categories:
        """A category for each class, each with its share of any invariable sites."""
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
    """Mixture of models, one a class (MIX), or of models that differ in frequencies only (FMIX)."""

    speeds: Float64
    """f64 [M]: relative rates of the classes; given, or 1, as in IQ-TREE."""
    is_linked: bool = False
    """True where all classes have the exchangeabilities of the first."""

    def matrices(self, parameters: Sequence[Matrices]) -> Matrices:
        """The matrices of all classes side by side."""
        return Matrices(*(np.stack(tables, axis=-2) for tables in zip(*parameters, strict=True)))

    def linked(self, parameters: Sequence[Matrices]) -> list[Matrices]:
        """The matrices of the classes, with the first's exchangeabilities where they share."""
        if not self.is_linked:
            return list(parameters)
        return [
            one._replace(exchangeabilities=parameters[0].exchangeabilities) for one in parameters
        ]

    def with_matrices(self, parameters: Sequence[Matrices]) -> Mixed:
        """A copy with other values, f64 [pairs] and f64 [S] for each class."""
        models = (
            replace(model, rates=rates, frequencies=frequencies)
            for model, (rates, frequencies) in zip(self.models, parameters, strict=True)
        )
        return replace(self, models=tuple(models))

    def _speeds(self, weights: Float64) -> Float64:
        relative: Float64 = self.speeds / (weights * self.speeds).sum(axis=-1, keepdims=True)
        return relative


@cache
def profile_mixture(name: str) -> Profiles:
    """The frequency profiles of a name of `PROFILES`, and their weights."""
    lines = (_FOLDER / f"{name.lower()}.profiles").read_text("utf-8").splitlines()
    table = np.array([line.split() for line in lines if not line.startswith("#")], np.float64)
    weights, frequencies = table[:, 0], table[:, 1:]
    frequencies = frequencies / frequencies.sum(axis=1, keepdims=True)
    return Profiles(name=name, weights=weights / weights.sum(), frequencies=frequencies)


@cache
def paired_mixture(name: str) -> Paired:
    """The four matrices of a name of `PAIRED`, of slow sites first."""
    matrices = [read_table(f"{name.lower()}{k}") for k in range(1, 5)]
    tables = Matrices(*map(np.stack, zip(*matrices, strict=True)))
    return Paired(name=name, weights=np.full(len(matrices), 1 / len(matrices)), tables=tables)


FrequencyMode = Literal["FC", "FE", "FO", "FU", "F1X4", "F3X4", "model"]
"""Counted in the alignment, equal, estimated by ML, given by the user, products of nucleotides',
or the model's own."""


RateClasses = tuple[int, ...]
"""Class of each pair of states, 0, 1, ... in order of appearance: pairs of a class share an
exchangeability. Empty where a model's exchangeabilities are its own (LG)."""

NO_CHANGE = -1
"""Class of pairs whose exchangeability is 0."""


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
    ("JC", "000000", False), ("K80", "010010", False), ("F81", "000000", True),
    ("HKY", "010010", True), ("TN93ef", "010020", False), ("TN93", "010020", True),
    ("K81", "012210", False), ("K81uf", "012210", True), ("TPM2", "010212", False),
    ("TPM2uf", "010212", True), ("TPM3", "012012", False), ("TPM3uf", "012012", True),
    ("TIM1", "012230", False), ("TIM1uf", "012230", True), ("TIM2", "010232", False),
    ("TIM2uf", "010232", True), ("TIM3", "012032", False), ("TIM3uf", "012032", True),
    ("TVMef", "012314", False), ("TVM", "012314", True), ("SYM", "012345", False),
    ("GTR", "012345", True),
)  # fmt: skip

DNA_MODELS = {name: NucleotideModel(name, code, free) for name, code, free in _CATALOGUE}
"""RAxML-NG's nucleotide models by name."""


def n_pairs(states: int) -> int:
    """S(S-1)/2, the number of exchangeabilities of S states."""
    return states * (states - 1) // 2


def expand_rates(classes: RateClasses, unique: Float64) -> Float64:
    """f64 [..., S(S-1)/2]: one exchangeability per pair from f64 [..., classes], one per class."""
    unique = np.asarray(unique, np.float64)
    with_none = np.concatenate([unique, np.zeros_like(unique[..., :1])], axis=-1)
    rates: Float64 = with_none[..., list(classes)]  # the last one is NO_CHANGE's
    return rates


def unique_rates(classes: RateClasses, rates: Float64) -> Float64:
    """f64 [..., classes]: the exchangeability of each class, from f64 [..., S(S-1)/2]."""
    with_none = np.empty((*rates.shape[:-1], n_classes(classes) + 1))
    with_none[..., list(classes)] = rates
    return with_none[..., :-1]


def n_classes(classes: RateClasses) -> int:
    """Number of exchangeabilities that pairs of states share."""
    return max(classes, default=NO_CHANGE) + 1


def equal_model(name: str, alphabet: Alphabet, classes: RateClasses, mode: FrequencyMode) -> Model:
    """A model with exchangeabilities of 1, but for pairs of NO_CHANGE, and equal frequencies."""
    states = alphabet.n_states
    rates = expand_rates(classes, np.ones(n_classes(classes)))
    return Model(name, alphabet, classes, rates, np.full(states, 1.0 / states), mode)


class Model(Value, eq=False):
    """A reversible substitution model with all its parameters. S states.

    ``rates_fixed``, ``p_invariant_fixed`` and the like say that the user gave the value in braces,
    so that it is not estimated; frequencies are estimated in mode "FO" only.
    """

    name: str
    """Canonical name: ``"GTR"``, ``"LG"``."""
    alphabet: Alphabet
    rate_classes: RateClasses
    rates: Float64
    """f64 [S(S-1)/2]: exchangeabilities, upper triangle by rows (AC AG AT CG CT GT)."""
    frequencies: Float64
    """f64 [S]: equilibrium frequencies, sum 1; NaN where +FC is not counted yet."""
    frequency_mode: FrequencyMode
    heterogeneity: Heterogeneity = ONE_RATE
    """Rate heterogeneity of the sites that vary."""
    p_invariant: float | None = None
    """Proportion of invariable sites; None without +I."""
    branch_scaler: float | None = None
    """Factor on the branch lengths of the model's part, or the start of its estimate; None without
    one. Nothing here multiplies by it."""
    mixture: Mixture | None = None
    """The mixture of classes; `rates` and `frequencies` serve classes without their own, and are
    those of the first where every class has a model."""
    codon: CodonRates | None = None
    """Parameters behind `rates` in models of codons."""
    ascertainment: Ascertainment | None = None
    """Correction for data without constant sites, which nothing here applies."""
    rates_fixed: bool = False
    p_invariant_fixed: bool = False

    @property
    def n_states(self) -> int:
        """Number of states, S."""
        return len(self.frequencies)

    @property
    def components(self) -> tuple[Model, ...]:
        """Models whose exchangeabilities and frequencies are parameters: itself, or its classes."""
        return (self.mixture and self.mixture.models) or (self,)

    @property
    def matrices(self) -> list[Matrices]:
        """Exchangeabilities and frequencies of the components."""
        return [Matrices(one.rates, one.frequencies) for one in self.components]

    def arrays(self) -> ModelArrays:
        """The eigen system and rate categories that the likelihood is computed from.

        Raises: ModelError where +FC frequencies are not counted yet, or a value is out of range.
        """
        return self._arrays

    @cached_property
    def _arrays(self) -> ModelArrays:
        (arrays,) = _computed_arrays([self])
        return arrays

    def with_empirical_frequencies(self, patterns: Patterns) -> Model:
        """A copy with state frequencies counted in the alignment, where the mode asks for them.

        Mode "FC" takes them as they are, "FO" as the start of its estimate; the other modes are
        left alone. How they are counted: `Patterns.base_frequencies`; nucleotides in codons
        ("F1X4", "F3X4"): `nucleotide_frequencies`.
        """
        positions = POSITIONS.get(self.frequency_mode)
        if self.codon is not None and positions and not self.codon.given_nucleotides:
            counted = nucleotide_frequencies(patterns.alphabet, patterns.code_counts(), positions)
            return self.with_codon(self.codon.with_nucleotides(counted))
        is_counted = [model.frequency_mode in ("FC", "FO") for model in self.components]
        if not any(is_counted):
            return self
        counted = patterns.base_frequencies()
        pairs = zip(self.matrices, is_counted, strict=True)
        return self.with_matrices(
            [one._replace(frequencies=counted) if counts else one for one, counts in pairs]
        )

    def with_matrices(self, parameters: Sequence[Matrices]) -> Model:
        """A copy with other values of its components, f64 [pairs] and f64 [S] each."""
        rates, frequencies = parameters[0]
        mixture = self.mixture
        if isinstance(mixture, Mixed):
            mixture = mixture.with_matrices(parameters)
        return replace(self, rates=rates, frequencies=frequencies, mixture=mixture)

    def with_codon(self, codon: CodonRates) -> Model:
        """A copy with other codon rates, and the frequencies that come with them."""
        frequencies = self.frequencies if codon.nucleotides is None else codon.frequencies
        return replace(self, codon=codon, rates=codon.rates, frequencies=frequencies)

    def with_class_weights(self, weights: Float64) -> Model:
        """A copy with other class weights f64 [classes, or more], none too small to grow again.

        Raises: ValueError where the model is no mixture.
        """
        if self.mixture is None:
            raise ValueError("a model without classes")
        least = np.maximum(weights[: self.mixture.n_classes], LEAST_WEIGHT)
        return replace(self, mixture=self.mixture.with_weights(least))

    def values(self) -> dict[str, Any]:
        """The values of all parameters, to be kept in a file: numbers, lists and dictionaries."""
        matrices = [[table.tolist() for table in one] for one in self.matrices]
        return {
            **{name: _plain(getattr(self, name)) for name in _VALUES},
            "heterogeneity": {k: _plain(v) for k, v in vars(self.heterogeneity).items()},
            **({} if self.mixture is None else {"classes": _plain(self.mixture.weights)}),
            **({} if self.codon is None else {"codon": self.codon.values}),
            **({"models": matrices} if isinstance(self.mixture, Mixed) else {}),
        }

    def with_values(self, values: Mapping[str, Any]) -> Model:
        """A copy with the `values` of another model of the form, to the last bit."""
        among = {k: _array(v) for k, v in values["heterogeneity"].items()}
        mixture = self.mixture
        if isinstance(mixture, Mixed):
            parameters = (Matrices(*map(np.array, tables)) for tables in values["models"])
            mixture = mixture.with_matrices(list(parameters))
        return replace(
            self,
            **{name: _array(values[name]) for name in _VALUES},
            heterogeneity=type(self.heterogeneity)(**among),
            mixture=mixture and mixture.with_weights(np.array(values["classes"])),
            codon=self.codon and self.codon.at(values["codon"]),
        )


def arrays_of_all(models: Sequence[Model]) -> list[ModelArrays]:
    """`Model.arrays` of every model, to the bit, computed together.

    A thousand nucleotide models take 0.05 s, one by one 1.5 s. Raises: as `Model.arrays`.
    """
    unknown = [model for model in dict.fromkeys(models) if "_arrays" not in vars(model)]
    for model, arrays in zip(unknown, _computed_arrays(unknown), strict=True):
        vars(model)["_arrays"] = arrays  # where the cached property keeps it
    return [model.arrays() for model in models]


def _computed_arrays(models: Sequence[Model]) -> list[ModelArrays]:
    """Arrays of every model, computed at once for models of as many states."""
    for model in models:
        _refuse_unknown(model)
    arrays: dict[Model, ModelArrays] = {}
    states: dict[int, dict[Model, Categories]] = {}
    forms = categories_of([model.heterogeneity for model in models])
    for model, variable in zip(models, forms, strict=True):
        categories = with_invariable(variable, model.p_invariant)
        if model.mixture is None:
            states.setdefault(model.n_states, {})[model] = categories
            continue
        spread = model.mixture.spread(variable, categories)
        arrays[model] = decompose(*model.mixture.matrices(model.matrices), *spread)
    for alike in states.values():
        rates = np.stack([model.rates for model in alike])
        systems = known_systems(rates, np.stack([model.frequencies for model in alike]))
        for (model, categories), system in zip(alike.items(), systems, strict=True):
            arrays[model] = ModelArrays(*system, *categories)
    return [arrays[model] for model in models]


def _refuse_unknown(model: Model) -> None:
    unknown = (m.frequency_mode for m in model.components if np.isnan(m.frequencies).any())
    mode = next(unknown, None)
    if mode is not None:
        mode_given = "FU" if mode == "FC" else mode
        raise ModelError(
            f"the frequencies of {model.name}+{mode} are not known without an alignment",
            hint=f"give them, +{mode_given}{{...}}; --frequencies-from of simulate counts them",
        )


_VALUES = ("rates", "frequencies", "p_invariant", "branch_scaler")


def _plain(value: object) -> object:
    return value.tolist() if isinstance(value, np.ndarray) else value


def _array(value: object) -> Any:
    return np.array(value) if isinstance(value, list) else value
