"""Families of models beside those of nucleotides and proteins: genotypes, characters, codons.

A family knows its models' names and builds them. :data:`FAMILIES` has them all; one that is added
needs an entry there and no more.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import replace
from functools import cache
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from mltree.data.alphabet import PHASED, UNPHASED
from mltree.data.codons import STANDARD, CodonAlphabet
from mltree.models.empirical import Matrices, read_table
from mltree.models.substitution import (
    NO_CHANGE,
    CodonRates,
    FrequencyMode,
    Model,
    RateClasses,
    equal_model,
    n_classes,
    n_pairs,
)
from mltree.system.errors import ModelError

if TYPE_CHECKING:
    from mltree.data.alphabet import Alphabet


class Family(ABC):
    """The models of a kind of characters beside nucleotides and proteins."""

    @abstractmethod
    def data_of(self, name: str) -> str | None:
        """The data type in a model's name in capitals; None for a name of another family."""

    @abstractmethod
    def names_of(self, alphabet: Alphabet) -> list[str]:
        """Names of the models for an alphabet, the simplest first; none for other data."""

    @abstractmethod
    def model_of(self, name: str, alphabet: Alphabet) -> Model | None:
        """The model of a name in capitals, nothing fixed; None where the data have no such model.

        Raises: ModelError where the model is for another genetic code.
        """

    @abstractmethod
    def default_of(self, alphabet: Alphabet) -> str:
        """The model of a run that names none."""

    @abstractmethod
    def matrices(self, alphabet: Alphabet) -> list[str]:
        """Candidates of a model choice, each with its frequencies, the reference first."""


# ------------------------------------------------------------------------------------- genotypes

_GENOTYPE_KINDS = ("JC", "JC-SM", "HKY", "", "GTR-SM", "GTR")
"""Endings of names behind GT10 or GT16, the simplest model first."""

_GENOTYPE = re.compile(rf"GT(10|16)({'|'.join(_GENOTYPE_KINDS)})")
_OLDER = re.compile(r"G([TP])(JC|JC-SM|HKY4|GTR4|GTR-SM|GTR)")

_PURINES = frozenset("AG")


class _Genotypes(Family):
    """Models of diploid genotypes by RAxML-NG's names, which are CellPhy's.

    Kozlov, Alves, Stamatakis & Posada 2022, Genome Biol. 23:37. One of the two nucleotides changes
    at a time; exchangeabilities of genotypes are those of the nucleotide unless they are free:

        GT10JC-SM   all equal (a single mutation)
        GT10HKY     two: of transversions and of transitions
        GT10        six: A-C A-G A-T C-G C-T G-T
        GT10GTR-SM  one for each of these pairs of genotypes

    In ``GT10JC``, which is Mk, and ``GT10GTR`` both nucleotides may change at once. Frequencies of
    genotypes are equal in models of one exchangeability, else estimated. Names with GT16 are for
    phased genotypes. Older names are ``GTJC``, ``GTHKY4``, ``GTGTR4``, ``GTGTR``, with GP for GT16.
    """

    def data_of(self, name: str) -> str | None:
        read = _read_genotype(name)
        return read and read[0]

    def names_of(self, alphabet: Alphabet) -> list[str]:
        return [alphabet.name + kind for kind in _GENOTYPE_KINDS if _is_genotypes(alphabet)]

    def default_of(self, alphabet: Alphabet) -> str:
        return f"{alphabet.name}+FO"

    def matrices(self, alphabet: Alphabet) -> list[str]:
        kinds = ("", "HKY", "JC-SM", "JC")
        return [alphabet.name + kind + term for kind in kinds for term in ("+FC", "+FE")]

    def model_of(self, name: str, alphabet: Alphabet) -> Model | None:
        read = _read_genotype(name)
        if read is None or alphabet.name != read[0] or not _is_genotypes(alphabet):
            return None
        classes = _genotype_classes(alphabet, read[1])
        mode: FrequencyMode = "model" if n_classes(classes) == 1 else "FO"
        return equal_model(alphabet.name + read[1], alphabet, classes, mode)


def _read_genotype(name: str) -> tuple[str, str] | None:
    """Return data type and kind of a model's name in capitals; None for other names."""
    if match := _GENOTYPE.fullmatch(name):
        return f"GT{match[1]}", match[2]
    if match := _OLDER.fullmatch(name):
        kind = {"HKY4": "HKY", "GTR4": ""}.get(match[2], match[2])
        return ("GT10" if match[1] == "T" else "GT16"), kind
    return None


def _is_genotypes(alphabet: Alphabet) -> bool:
    return alphabet in (UNPHASED, PHASED)


def _genotype_classes(alphabet: Alphabet, kind: str) -> RateClasses:
    pairs = list(combinations(alphabet.states, 2))
    if kind in ("JC", "GTR"):
        return tuple(range(len(pairs))) if kind == "GTR" else (0,) * len(pairs)
    seen: dict[object, int] = {}
    classes = []
    for one, other in pairs:
        change = _change(one, other, is_phased=alphabet is PHASED)
        alike: dict[str, object] = {
            "JC-SM": True, "HKY": len((change or frozenset()) & _PURINES) != 1,
            "": change, "GTR-SM": (one, other),
        }  # fmt: skip
        classes.append(seen.setdefault(alike[kind], len(seen)) if change else NO_CHANGE)
    return tuple(classes)


def _change(one: str, other: str, *, is_phased: bool) -> frozenset[str] | None:
    """The two nucleotides exchanged between genotypes that differ in one; None if in both."""
    places = ((0, 0), (1, 1)) if is_phased else ((0, 0), (1, 1), (0, 1), (1, 0))
    stays = next(((at, to) for at, to in places if one[at] == other[to]), None)
    return stays and frozenset((one[1 - stays[0]], other[1 - stays[1]]))


# ------------------------------------------------------------------------------------- characters

_MORPHOLOGY_KINDS = ("MK", "ORDERED", "GTR")
_MORPHOLOGY = re.compile(rf"(MULTI[0-9]+)_({'|'.join(_MORPHOLOGY_KINDS)})")


class _Morphology(Family):
    """Models of binary and multistate characters, by RAxML-NG's names.

    ``BIN`` (two states, frequencies estimated), ``MULTIx_MK`` (Lewis 2001, Syst. Biol. 50:913-925:
    all changes are equally likely, frequencies equal), ``MULTIx_GTR`` (every pair of states has its
    exchangeability, frequencies estimated); and IQ-TREE's ``ORDERED``, here ``MULTIx_ORDERED``: a
    state changes to its neighbours only. Without ``MULTIx_``, or with x for the number, names are
    for as many states as the data have, two where the data are binary.
    """

    def data_of(self, name: str) -> str | None:
        if name == "BIN":
            return name
        match = _MORPHOLOGY.fullmatch(name)
        return match[1] if match else None

    def names_of(self, alphabet: Alphabet) -> list[str]:
        if alphabet.name == "BIN":
            return ["BIN"]
        kinds = _MORPHOLOGY_KINDS if alphabet.name.startswith("MULTI") else ()
        return [f"{alphabet.name}_{kind}" for kind in kinds]

    def default_of(self, alphabet: Alphabet) -> str:
        return "BIN+FC+G4" if alphabet.name == "BIN" else f"{alphabet.name}_MK+G4"

    def matrices(self, alphabet: Alphabet) -> list[str]:
        terms = ("+FC", "+FE") if alphabet.name == "BIN" else ("+FE", "+FC")
        # Multistate data are few for the parameters of GTR.
        names = [name for name in self.names_of(alphabet) if not name.endswith("_GTR")]
        return [name + term for name in names for term in terms]

    def model_of(self, name: str, alphabet: Alphabet) -> Model | None:
        states, pairs = alphabet.n_states, n_pairs(alphabet.n_states)
        if name == alphabet.name == "BIN":
            return equal_model(name, alphabet, (0,) * pairs, "FO")
        kind = name.removeprefix(f"MULTI{states}_").removeprefix("MULTIX_")
        if not alphabet.name.startswith(("BIN", "MULTI")) or kind not in _MORPHOLOGY_KINDS:
            return None
        full = f"MULTI{states}_{kind}"
        if kind == "GTR":
            return equal_model(full, alphabet, tuple(range(pairs)), "FO")
        model = equal_model(full, alphabet, (0,) * pairs, "model")
        if kind == "MK":
            return model
        row, column = np.triu_indices(states, 1)
        return replace(model, rate_classes=(), rates=(column - row == 1).astype(np.float64))


# ----------------------------------------------------------------------------------------- codons

EMPIRICAL = "ECMK07"
"""Kosiol, Holmes & Goldman 2007, Mol. Biol. Evol. 24:1464-1479; of several nucleotides at once."""

_MECHANISTIC = ("GY", "MG", "MGK")
_CODON = re.compile(rf"(?:(CODON[0-9]*)_)?({'|'.join((*_MECHANISTIC, EMPIRICAL))})")


class _Codons(Family):
    """Models of codons by IQ-TREE's names: GY, MG, MGK, and the empirical ECMK07.

    The name stands behind the data type (``CODON2_GY``), or alone for the genetic code of the data.
    GY and MGK have κ and ω, MG has ω. Frequencies without a term are counted: of codons for GY, of
    nucleotides by position for MG and MGK, whose rates are made of those.
    """

    def data_of(self, name: str) -> str | None:
        match = _CODON.fullmatch(name)
        return (match[1] or "CODON") if match else None

    def names_of(self, alphabet: Alphabet) -> list[str]:
        if not isinstance(alphabet, CodonAlphabet):
            return []
        names = _MECHANISTIC + (EMPIRICAL,) * _is_standard(alphabet)
        return [_full_codon_name(name, alphabet) for name in names]

    def default_of(self, alphabet: Alphabet) -> str:
        return f"{self.names_of(alphabet)[0]}+F3X4+G4"

    def matrices(self, alphabet: Alphabet) -> list[str]:
        names = self.names_of(alphabet)
        terms = [("+F3X4", "+FC", "+F1X4", "+FE"), *[("+F3X4", "+F1X4", "+FE")] * 2, ("", "+FC")]
        pairs = zip(names, terms, strict=False)
        every = [name + term for name, terms_of_it in pairs for term in terms_of_it]
        return [name for name in every if not name.endswith("MGK+FE")]  # which is GY+FE

    def model_of(self, name: str, alphabet: Alphabet) -> Model | None:
        match = _CODON.fullmatch(name)
        if match is None or not isinstance(alphabet, CodonAlphabet):
            return None
        if match[1] not in (None, "CODON", alphabet.name):
            return None
        full = _full_codon_name(match[2], alphabet)
        if match[2] == EMPIRICAL:
            if not _is_standard(alphabet):
                message = f"model {EMPIRICAL} is for the standard genetic code"
                raise ModelError(message, hint="try GY")
            return Model(full, alphabet, (), *_ecm(), "model")
        by_nucleotide = match[2] != "GY"
        codon = CodonRates(alphabet, has_kappa=match[2] != "MG", by_nucleotide=by_nucleotide)
        uncounted = np.full(alphabet.n_states, np.nan)
        mode: FrequencyMode = "F3X4" if by_nucleotide else "FC"
        return Model(full, alphabet, (), codon.rates, uncounted, mode, codon=codon)


def _full_codon_name(name: str, alphabet: CodonAlphabet) -> str:
    """The name with the data type, unless the code is the standard one."""
    return name if alphabet.genetic_code is STANDARD else f"{alphabet.name}_{name}"


def _is_standard(alphabet: CodonAlphabet) -> bool:
    return alphabet.genetic_code.amino_acids == STANDARD.amino_acids


@cache
def _ecm() -> Matrices:
    """ECMK07's table, with its codons TTT, TTC, TTA, ... GGG put into our order."""
    table, states = read_table(EMPIRICAL.lower(), len(STANDARD.codons)), STANDARD.codons
    order = sorted(states, key=lambda codon: ["TCAG".index(base) for base in codon])
    place = np.array([order.index(codon) for codon in states])
    symmetric = np.zeros((len(states), len(states)))
    row, column = np.triu_indices(len(states), 1)
    symmetric[row, column] = symmetric[column, row] = table.exchangeabilities
    return Matrices(symmetric[place[row], place[column]], table.frequencies[place])


GENOTYPES, MORPHOLOGY, CODONS = _Genotypes(), _Morphology(), _Codons()

FAMILIES: tuple[Family, ...] = (MORPHOLOGY, CODONS, GENOTYPES)
