"""Rates of change between codons, from few parameters.

Only one nucleotide changes at a time. With S codons and frequencies π,

    r[i, j] = b[i, j] · κ if the change is a transition · ω if it changes the amino acid

where b is 1 in GY94 (Goldman & Yang 1994, Mol. Biol. Evol. 11:725-736, in the form of Nielsen &
Yang 1998, Genetics 148:929-936): rates go by the frequency of the codon that is made. In MG94 (Muse
& Gaut 1994, Mol. Biol. Evol. 11:715-724) they go by that of the nucleotide which is put in. π[j] is
then the product of the frequencies of its nucleotides, stop codons left out, so that b is 1 over
the product of the two that stay. Published exchangeabilities (ECMK07) are r as they are.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mltree.data.alphabet import DNA
from mltree.models.portable import exp
from mltree.models.rates import Variable
from mltree.system.arrays import Bool, Float64, Index
from mltree.system.values import Value

if TYPE_CHECKING:
    from mltree.data.alphabet import Alphabet
    from mltree.data.codons import CodonAlphabet


LOW, HIGH = 0.001, 50.0
"""Bounds of κ and ω."""

LEAST_NUCLEOTIDE = 1e-6
"""Lower bound of a nucleotide's frequency at a position, because rates are divided by it."""

MAX_STEPS, LEAST_CHANGE = 1000, 1e-12
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
    """f64 [S(S-1)/2]: exchangeabilities of a table (ECMK07), without ω and κ."""

    @classmethod
    def of_table(cls, alphabet: CodonAlphabet, rates: Float64) -> CodonRates:
        """Rates of a table f64 [S(S-1)/2], without free parameters."""
        return cls(alphabet, has_kappa=False, omega_fixed=True, published=rates)

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
        return dataclasses.replace(self, omega=omega, kappa=kappa[0] if kappa else 1.0)

    def like(self, other: CodonRates) -> CodonRates:
        """A copy with ω and κ of another, where they are not fixed."""
        return dataclasses.replace(
            self,
            omega=self.omega if self.omega_fixed else other.omega,
            kappa=self.kappa if self.kappa_fixed or not self.has_kappa else other.kappa,
        )

    def held(self) -> CodonRates:
        """A copy with ω and κ fixed."""
        return dataclasses.replace(self, omega_fixed=True, kappa_fixed=True)

    def with_nucleotides(self, nucleotides: Float64) -> CodonRates:
        """A copy with frequencies of nucleotides f64 [3, 4], raised to the lower bound."""
        least = np.maximum(nucleotides, LEAST_NUCLEOTIDE)
        return dataclasses.replace(self, nucleotides=least / least.sum(axis=1, keepdims=True))

    @property
    def frequencies(self) -> Float64:
        """f64 [S]: products of nucleotide frequencies. Raises: ValueError where there are none."""
        if self.nucleotides is None:
            raise ValueError("no frequencies of nucleotides")
        by_position = _of_positions(self.nucleotides, _changes(self.alphabet).places)
        products = by_position.prod(axis=1)
        frequencies: Float64 = products / products.sum()
        return frequencies

    @property
    def rates(self) -> Float64:
        """f64 [S(S-1)/2]: exchangeabilities."""
        rates: Float64 = self._rates(np.array([[self.omega, self.kappa]]))[0]
        return rates

    def variables(self) -> list[Variable]:
        """The free parameters, as natural logs."""
        low, high = math.log(LOW), math.log(HIGH)
        named = (
            ("omega", self.omega, not self.omega_fixed),
            ("kappa", self.kappa, self.has_kappa and not self.kappa_fixed),
        )
        return [Variable(name, low, high, math.log(value)) for name, value, free in named if free]

    def rates_at(self, points: Float64) -> Float64:
        """f64 [M, S(S-1)/2]: the exchangeabilities with the variables at the rows of f64 [M, n]."""
        both = np.tile([self.omega, self.kappa], (len(points), 1))
        both[:, self._free] = exp(points)
        return self._rates(both)

    def _rates(self, both: Float64) -> Float64:
        """f64 [M, S(S-1)/2]: exchangeabilities for rows of ω and κ, f64 [M, 2]."""
        changes = _changes(self.alphabet)
        factors = np.where(changes.replacement, both[:, :1], 1.0)
        factors = factors * np.where(changes.transition, both[:, 1:], 1.0)
        rates: Float64 = factors * self._base()
        return rates

    def with_vector(self, x: Float64) -> CodonRates:
        """A copy with the variables at f64 [n]."""
        both = np.array([self.omega, self.kappa])
        both[self._free] = exp(x)
        return dataclasses.replace(self, omega=float(both[0]), kappa=float(both[1]))

    @property
    def _free(self) -> list[int]:
        """Indices of the variables among ω and κ."""
        return [("omega", "kappa").index(variable.name) for variable in self.variables()]

    def _base(self) -> Float64:
        if self.published is not None:
            return self.published
        changes = _changes(self.alphabet)
        base = changes.single.astype(np.float64)
        if self.by_nucleotide and self.nucleotides is not None:
            by_position = _of_positions(self.nucleotides, changes.places)
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
    for _ in range(MAX_STEPS):
        shares = may * frequencies
        totals = ((counts / shares.sum(axis=1))[:, None] * shares).sum(axis=0)
        before, frequencies = frequencies, totals / totals.sum()
        if np.abs(frequencies - before).max() < LEAST_CHANGE:
            break
    return frequencies


def _of_positions(nucleotides: Float64, places: Index) -> Float64:
    """f64 [S, 3]: frequency of each nucleotide of each codon."""
    by_position: Float64 = nucleotides[np.arange(3), places]
    return by_position


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
