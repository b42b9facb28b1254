"""Detection of the data type of an alignment from its characters.

More digits than letters are binary or multistate characters. Of letters, fifteen
mean something in both DNA and proteins. So the letters of every column, each counted once (copies
of an ancestor's letter are no new evidence), are held against the shares that they have in several
kinds of nucleotide and protein data. The data type is the one with the kind that makes them
likeliest:

    odds = max over kinds k of nucleotide data (ln prior[k] + Σ ln share_k[letter])
           - max over kinds k of protein data (the same)

Letters that stand for anything in both or in DNA (N, X, O) say nothing, and other characters, such
as gaps and a ``*``, neither.
"""

from __future__ import annotations

import numpy as np

from mltree.data import codons
from mltree.data.alphabet import (
    BINARY,
    DNA,
    GENOTYPES,
    HETEROZYGOTES,
    PHASED,
    PROTEIN,
    UNKNOWN,
    UNPHASED,
    Alphabet,
    characters_named,
    states_in,
)
from mltree.system.arrays import Float64, Int64, UInt8
from mltree.system.errors import InputError
from mltree.system.values import Value

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_TELLING = [letter not in "NXO" for letter in _LETTERS]

_AMINO_ACIDS = {
    "A": 8.25, "R": 5.53, "N": 4.06, "D": 5.46, "C": 1.38, "Q": 3.93, "E": 6.72, "G": 7.07,
    "H": 2.27, "I": 5.91, "L": 9.65, "K": 5.80, "M": 2.41, "F": 3.86, "P": 4.74, "S": 6.65,
    "T": 5.36, "W": 1.10, "Y": 2.92, "V": 6.86,
}  # fmt: skip
"""Per cent of the residues in UniProtKB/Swiss-Prot."""

_SLIP = 0.1
"""Per cent of each letter that a kind of data does not have: typing errors."""

SURE = 10.0
"""Natural log: how much rarer the odd kinds of data are than the usual, and how far from nought
odds mean something (twice as far, they leave no doubt): some ten columns of one nucleotide, or
three of letters that only proteins have."""

_CHUNK = 1 << 18
"""Characters that are counted in one step: quick for many short parts, little memory for one."""

PLAIN_SHARE = 0.9
"""Share of ACGTU among the letters above which data are not protein."""


def _log_shares(*groups: tuple[str, float]) -> Float64:
    """Natural logs (f64 [26]) of letters' shares: every group's, spread over its letters."""
    shares = np.full(len(_LETTERS), _SLIP)
    for letters, share in groups:
        for letter in letters:
            shares[_LETTERS.index(letter)] += share / len(letters)
    shares[~np.array(_TELLING)] = 0.0
    logs: Float64 = np.log(np.where(_TELLING, shares / shares.sum(), 1.0))
    return logs


_NUCLEOTIDES = (
    (0.0, _log_shares(("ACGTU", 97.0), ("RYSWKM", 2.0), ("BDHV", 0.5))),
    (-SURE, _log_shares(("ACGTU", 65.0), ("RYSWKM", 35.0))),
    (-SURE, _log_shares(("ACGTU", 40.0), ("RYSWKM", 36.0), ("BDHV", 24.0))),
    *((-SURE, _log_shares((pair, 95.0), ("ACGTU", 5.0))) for pair in ("RY", "SW", "KM")),
)
"""ln prior and ln shares: sequenced; genotypes with heterozygotes; every code; recoded as purines
and pyrimidines, or as one of the other two pairs."""

_PROTEINS = (
    (0.0, _log_shares(*_AMINO_ACIDS.items())),
    (-2 * SURE, _log_shares(*(aa for aa in _AMINO_ACIDS.items() if aa[0] not in "EFILPQ"))),
)
"""ln prior and ln shares of protein data: usual; unusual, without the letters that nucleotide data
lack."""


class Letters(Value, eq=False):
    """Counts of characters, and the data type that they suggest."""

    counts: Int64
    """i64 [256]: number of each byte."""
    columns: Int64
    """i64 [26]: number of columns in which each letter occurs."""

    @classmethod
    def of(cls, characters: UInt8) -> Letters:
        """The letters of u8 [T, sites], upper case."""
        bit_of = np.zeros(256, "<u4")
        bit_of[ord("A") : ord("Z") + 1] = np.uint32(1) << np.arange(26, dtype=np.uint32)
        counts = np.zeros(256, np.int64)
        present = np.zeros(characters.shape[1], "<u4")
        step = _CHUNK // max(characters.shape[1], 1) + 1
        for start in range(0, len(characters), step):
            rows = characters[start : start + step]
            counts += np.bincount(rows.ravel(), minlength=256)
            present |= np.bitwise_or.reduce(bit_of.take(rows), axis=0)
        bits = np.unpackbits(present.view(np.uint8).reshape(-1, 4), axis=1, bitorder="little")
        return cls(counts, bits.sum(axis=0, dtype=np.int64)[:26])

    @classmethod
    def none(cls) -> Letters:
        """No letters at all."""
        return cls(np.zeros(256, np.int64), np.zeros(26, np.int64))

    def __add__(self, other: Letters) -> Letters:
        """The letters of two sets of columns."""
        return Letters(self.counts + other.counts, self.columns + other.columns)

    @property
    def odds(self) -> float:
        """Natural log of the likelihood ratio of nucleotides and proteins."""
        nucleotides = max(prior + float(self.columns @ shares) for prior, shares in _NUCLEOTIDES)
        proteins = max(prior + float(self.columns @ shares) for prior, shares in _PROTEINS)
        return nucleotides - proteins

    def share(self, letters: str) -> float:
        """Share (0 to 1) of some letters among those that tell something."""
        telling = [ord(letter) for letter, tells in zip(_LETTERS, _TELLING, strict=True) if tells]
        total = max(int(self.counts[telling].sum()), 1)
        return float(self.counts[[ord(letter) for letter in letters]].sum() / total)

    @property
    def looks_like(self) -> Alphabet:
        """The alphabet by digits or letters; with small odds, the only one that has all letters."""
        if self.is_coded:
            return states_in(self.counts)
        odds = self.odds
        if abs(odds) < SURE and self.fits(DNA) != self.fits(PROTEIN):
            return DNA if self.fits(DNA) else PROTEIN
        return DNA if odds >= 0 else PROTEIN

    @property
    def is_coded(self) -> bool:
        """True for binary or multistate characters, which have digits for states."""
        digits, letters = self.counts[ord("0") : ord("9") + 1], self.counts[ord("A") : ord("Z") + 1]
        return bool(digits.sum() > letters.sum())

    def fits(self, alphabet: Alphabet) -> bool:
        """True where every letter belongs to the alphabet; ``*`` and digits are not counted."""
        known = alphabet.code_of[ord("A") : ord("Z") + 1] != UNKNOWN
        return bool(known[self.columns > 0].all())

    def alphabet(self, of_model: Alphabet | None) -> Alphabet:
        """The alphabet of the data: ``of_model`` where the data allow it.

        Data of plain nucleotides are never proteins, though all their letters are amino acids too.
        """
        if of_model is not None and self.is_coded:
            is_sequence = of_model in (DNA, PROTEIN) or of_model.width > 1
            return self.looks_like if is_sequence else of_model
        if of_model is None:
            return self.looks_like
        if of_model in (UNPHASED, PHASED) and (self.fits(DNA) or self.looks_like is DNA):
            return of_model  # letters may be nucleotides, perhaps with typing errors
        if not self.fits(of_model):
            return self.looks_like
        if of_model is PROTEIN and self.share("ACGTU") >= PLAIN_SHARE:
            return DNA
        return of_model

    @property
    def sure(self) -> bool:
        """True where the odds leave no doubt."""
        return self.is_coded or abs(self.odds) >= 2 * SURE

    @property
    def doubtful(self) -> bool:
        """True where both data types are possible and the odds say little."""
        both = self.fits(DNA) and self.fits(PROTEIN) and self.share("ACGTU") < PLAIN_SHARE
        return both and bool(self.columns[_TELLING].any()) and not self.sure

    def seen(self, alphabet: Alphabet) -> str:
        """Evidence for the alphabet: ``98.1% ACGT, 31 ambiguity codes``."""
        if isinstance(alphabet, codons.CodonAlphabet):
            return f"{self.seen(DNA)}, {alphabet.genetic_code.name} code"
        if alphabet in (UNPHASED, PHASED):
            return f"{self.share(''.join(HETEROZYGOTES)):.1%} heterozygous"
        if alphabet is PROTEIN:
            return f"{self.share('EFILPQ'):.0%} EFILPQ, {self.share('ACGT'):.0%} ACGT"
        if alphabet is not DNA:
            used = [c for c in alphabet.states if self.counts[ord(c)]]
            return f"{len(used)} symbols, {used[0]} to {used[-1]}" if used else ""
        bases = "ACGU" if self.counts[ord("U")] > self.counts[ord("T")] else "ACGT"
        plain = self.share("ACGTU")
        if plain == 1.0:
            return f"100% {bases}"
        ambiguous = self.counts[[ord(letter) for letter in "RYSWKMBDHV"]].sum()
        return f"{plain:.1%} {bases}, {ambiguous:,} ambiguity codes"


def alphabet_named(datatype: str, characters: UInt8 | None = None) -> Alphabet:
    """The alphabet for a data type as users write it.

    ``characters`` (u8 [T, sites], upper case) say how many states there are where the data type
    leaves it open.

    Raises: InputError: no such data type.
    """
    word = datatype.strip().upper()
    if word in _MULTISTATE and characters is not None:
        return states_in(Letters.of(characters).counts)
    if word in _ALPHABETS:
        return _ALPHABETS[word]
    alphabet = named_alphabet(word)
    if alphabet is None:
        hint = "dna, protein, binary, multistate, gt10, gt16, or codon with a genetic code, codon:2"
        raise InputError(f"unknown data type {datatype!r}", hint=hint)
    return alphabet


def named_alphabet(name: str) -> Alphabet | None:
    """The alphabet with a name in capitals, other than DNA and proteins; None if unknown."""
    return characters_named(name) or codons.codons_named(name) or GENOTYPES.get(name)


_ALPHABETS = {
    **dict.fromkeys(("DNA", "RNA", "NT"), DNA),
    **dict.fromkeys(("AA", "PROTEIN"), PROTEIN),
    "BINARY": BINARY,
}
"""Alphabets by words without a number."""

_MULTISTATE = ("MULTI", "MULTISTATE", "MORPH", "STANDARD")
"""Words for multistate characters with any number of states: IQ-TREE's, and NEXUS's."""
