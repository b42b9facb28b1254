"""Models of diploid genotypes by RAxML-NG's names, which are CellPhy's.

Kozlov, Alves, Stamatakis & Posada 2022, Genome Biol. 23:37. At a time one nucleotide of the two
changes, and where the exchangeabilities of all such changes are not of their own, they are those of
that nucleotide:

    GT10JC-SM   all equal (a single mutation)
    GT10HKY     two: of transversions and of transitions
    GT10        six: A-C A-G A-T C-G C-T G-T
    GT10GTR-SM  one for each of these pairs of genotypes

In ``GT10JC``, which is Mk, and ``GT10GTR`` both nucleotides may change at once. Frequencies of
genotypes are equal in models of one exchangeability, else estimated. The same with GT16 are for
phased genotypes. Older names are ``GTJC``, ``GTHKY4``, ``GTGTR4``, ``GTGTR``, with GP for GT16.
"""

from __future__ import annotations

import re
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from mltree.alignment.genotypes import PHASED, UNPHASED
from mltree.model.substitution import (
    NO_CHANGE,
    FrequencyMode,
    Model,
    RateClasses,
    expand_rates,
    n_classes,
)

if TYPE_CHECKING:
    from mltree.alignment.alphabet import Alphabet

__all__ = ["data_of", "default_of", "matrices", "model_of", "names_of"]

_KINDS = ("JC", "JC-SM", "HKY", "", "GTR-SM", "GTR")
"""What follows GT10 or GT16, the simplest first."""

_NAME = re.compile(rf"GT(10|16)({'|'.join(_KINDS)})")
_OLDER = re.compile(r"G([TP])(JC|JC-SM|HKY4|GTR4|GTR-SM|GTR)")

_PURINES = frozenset("AG")


def _read(name: str) -> tuple[str, str] | None:
    """Data type and kind of a model's name in capitals; None of others."""
    if match := _NAME.fullmatch(name):
        return f"GT{match[1]}", match[2]
    if match := _OLDER.fullmatch(name):
        kind = {"HKY4": "HKY", "GTR4": ""}.get(match[2], match[2])
        return ("GT10" if match[1] == "T" else "GT16"), kind
    return None


def data_of(name: str) -> str | None:
    """The data type that a model's name in capitals is for: ``GT10``; None where it is no model."""
    read = _read(name)
    return read and read[0]


def names_of(alphabet: Alphabet) -> list[str]:
    """The names of the models for genotypes, the simplest first; none for other data."""
    return [alphabet.name + kind for kind in _KINDS] if _is_genotypes(alphabet) else []


def default_of(alphabet: Alphabet) -> str:
    """CellPhy's."""
    return f"{alphabet.name}+FO"


def matrices(alphabet: Alphabet) -> list[str]:
    """Those to choose from, with their frequencies, the reference first; none that is a GTR."""
    kinds = ("", "HKY", "JC-SM", "JC")
    return [alphabet.name + kind + term for kind in kinds for term in ("+FC", "+FE")]


def model_of(name: str, alphabet: Alphabet) -> Model | None:
    """The model of a name in capitals, nothing fixed; None where there is none for such data."""
    read = _read(name)
    if read is None or alphabet.name != read[0] or not _is_genotypes(alphabet):
        return None
    classes, states = _rate_classes(alphabet, read[1]), alphabet.n_states
    is_simple = n_classes(classes) == 1
    equal = np.full(states, 1.0 / states)
    rates = expand_rates(classes, np.ones(n_classes(classes)))
    mode: FrequencyMode = "model" if is_simple else "FO"
    return Model(alphabet.name + read[1], alphabet, classes, rates, equal, mode)


def _is_genotypes(alphabet: Alphabet) -> bool:
    return alphabet in (UNPHASED, PHASED)


def _rate_classes(alphabet: Alphabet, kind: str) -> RateClasses:
    """Of every pair of genotypes."""
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
    """Which nucleotides are exchanged where but one is; None where both are."""
    places = ((0, 0), (1, 1)) if is_phased else ((0, 0), (1, 1), (0, 1), (1, 0))
    stays = next(((at, to) for at, to in places if one[at] == other[to]), None)
    return stays and frozenset((one[1 - stays[0]], other[1 - stays[1]]))
