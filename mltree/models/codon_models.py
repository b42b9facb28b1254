"""Models of codons by IQ-TREE's names: GY, MG, MGK, and the empirical ECMK07.

Behind the data type (``CODON2_GY``), or alone for whatever genetic code the data have. GY has κ and
ω, MGK too, MG but ω. Frequencies are counted where no term tells them: of codons for GY, of
nucleotides by position for MG and MGK, whose rates are made of those.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from mltree.data.codons import STANDARD, CodonAlphabet
from mltree.models.codon import CodonRates
from mltree.models.empirical import Replacement, read_table
from mltree.models.substitution import Family, FrequencyMode, Model
from mltree.system.errors import ModelError

if TYPE_CHECKING:
    from mltree.data.alphabet import Alphabet


EMPIRICAL = "ECMK07"
"""Kosiol, Holmes & Goldman 2007, Mol. Biol. Evol. 24:1464-1479; of several nucleotides at once."""

_MECHANISTIC = ("GY", "MG", "MGK")
_NAME = re.compile(rf"(?:(CODON[0-9]*)_)?({'|'.join((*_MECHANISTIC, EMPIRICAL))})")


def data_of(name: str) -> str | None:
    """The data type of a model's name in capitals, CODON where any code will do; None of others."""
    match = _NAME.fullmatch(name)
    return (match[1] or "CODON") if match else None


def names_of(alphabet: Alphabet) -> list[str]:
    """The names of the models for the codons of a genetic code; none for other data."""
    if not isinstance(alphabet, CodonAlphabet):
        return []
    names = _MECHANISTIC + (EMPIRICAL,) * _is_standard(alphabet)
    return [_full(name, alphabet) for name in names]


def default_of(alphabet: Alphabet) -> str:
    """The usual one in codeml, with gamma rates."""
    return f"{names_of(alphabet)[0]}+F3X4+G4"


def matrices(alphabet: Alphabet) -> list[str]:
    """Every model with each of its frequencies, as far as they differ, the reference first."""
    names = names_of(alphabet)
    terms = (("+F3X4", "+FC", "+F1X4", "+FE"), *[("+F3X4", "+F1X4", "+FE")] * 2, ("", "+FC"))
    every = [name + term for name, own in zip(names, terms, strict=False) for term in own]
    return [name for name in every if not name.endswith("MGK+FE")]  # which is GY+FE


def model_of(name: str, alphabet: Alphabet) -> Model | None:
    """The model of a name in capitals, nothing fixed; None where there is none for such data.

    Raises: ModelError where an empirical one is of another genetic code.
    """
    match = _NAME.fullmatch(name)
    if match is None or not isinstance(alphabet, CodonAlphabet):
        return None
    if match[1] not in (None, "CODON", alphabet.name):
        return None
    full, states = _full(match[2], alphabet), alphabet.n_states
    if match[2] == EMPIRICAL:
        if not _is_standard(alphabet):
            raise ModelError(f"model {EMPIRICAL} is for the standard genetic code", hint="try GY")
        return Model(full, alphabet, (), *_ecm(), "model")
    by_nucleotide = match[2] != "GY"
    codon = CodonRates(alphabet, has_kappa=match[2] != "MG", by_nucleotide=by_nucleotide)
    uncounted = np.full(states, np.nan)
    mode: FrequencyMode = "F3X4" if by_nucleotide else "FC"
    return Model(full, alphabet, (), codon.rates, uncounted, mode, codon=codon)


def _full(name: str, alphabet: CodonAlphabet) -> str:
    """With the data type, unless the code is the standard one."""
    return name if alphabet.genetic_code is STANDARD else f"{alphabet.name}_{name}"


def _is_standard(alphabet: CodonAlphabet) -> bool:
    return alphabet.genetic_code.amino_acids == STANDARD.amino_acids


@cache
def _ecm() -> Replacement:
    """The table, whose codons are in the order TTT, TTC, TTA, ... GGG, in ours."""
    table, states = read_table(EMPIRICAL.lower(), len(STANDARD.codons)), STANDARD.codons
    order = sorted(states, key=lambda codon: ["TCAG".index(base) for base in codon])
    place = np.array([order.index(codon) for codon in states])
    symmetric = np.zeros((len(states), len(states)))
    row, column = np.triu_indices(len(states), 1)
    symmetric[row, column] = symmetric[column, row] = table.exchangeabilities
    return Replacement(symmetric[place[row], place[column]], table.frequencies[place])


CODONS = Family(data_of, names_of, model_of, default_of, matrices)
