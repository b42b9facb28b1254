"""Models of diploid genotypes, and of binary and multistate characters."""

from __future__ import annotations

import re
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from mltree.data.alphabet import PHASED, UNPHASED
from mltree.models.substitution import (
    NO_CHANGE,
    Family,
    FrequencyMode,
    Model,
    RateClasses,
    expand_rates,
    n_classes,
    n_pairs,
)

if TYPE_CHECKING:
    from mltree.data.alphabet import Alphabet


# Models of diploid genotypes by RAxML-NG's names, which are CellPhy's.
#
# Kozlov, Alves, Stamatakis & Posada 2022, Genome Biol. 23:37. At a time one nucleotide of the two
# changes, and where the exchangeabilities of all such changes are not of their own, they are those
# of that nucleotide:
#
#     GT10JC-SM   all equal (a single mutation)
#     GT10HKY     two: of transversions and of transitions
#     GT10        six: A-C A-G A-T C-G C-T G-T
#     GT10GTR-SM  one for each of these pairs of genotypes
#
# In ``GT10JC``, which is Mk, and ``GT10GTR`` both nucleotides may change at once. Frequencies of
# genotypes are equal in models of one exchangeability, else estimated. The same with GT16 are for
# phased genotypes. Older names are ``GTJC``, ``GTHKY4``, ``GTGTR4``, ``GTGTR``, with GP for GT16.

_GENOTYPE_KINDS = ("JC", "JC-SM", "HKY", "", "GTR-SM", "GTR")
"""What follows GT10 or GT16, the simplest first."""

_GENOTYPE = re.compile(rf"GT(10|16)({'|'.join(_GENOTYPE_KINDS)})")
_OLDER = re.compile(r"G([TP])(JC|JC-SM|HKY4|GTR4|GTR-SM|GTR)")

_PURINES = frozenset("AG")


def _read(name: str) -> tuple[str, str] | None:
    """Data type and kind of a model's name in capitals; None of others."""
    if match := _GENOTYPE.fullmatch(name):
        return f"GT{match[1]}", match[2]
    if match := _OLDER.fullmatch(name):
        kind = {"HKY4": "HKY", "GTR4": ""}.get(match[2], match[2])
        return ("GT10" if match[1] == "T" else "GT16"), kind
    return None


def genotype_data_of(name: str) -> str | None:
    """The data type that a model's name in capitals is for: ``GT10``; None where it is no model."""
    read = _read(name)
    return read and read[0]


def genotype_names_of(alphabet: Alphabet) -> list[str]:
    """The names of the models for genotypes, the simplest first; none for other data."""
    return [alphabet.name + kind for kind in _GENOTYPE_KINDS] if _is_genotypes(alphabet) else []


def genotype_default_of(alphabet: Alphabet) -> str:
    """CellPhy's."""
    return f"{alphabet.name}+FO"


def genotype_matrices(alphabet: Alphabet) -> list[str]:
    """Those to choose from, with their frequencies, the reference first; none that is a GTR."""
    kinds = ("", "HKY", "JC-SM", "JC")
    return [alphabet.name + kind + term for kind in kinds for term in ("+FC", "+FE")]


def genotype_model_of(name: str, alphabet: Alphabet) -> Model | None:
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


# Models of binary and multistate characters, by RAxML-NG's names.
#
# ``BIN`` (two states, frequencies estimated), ``MULTIx_MK`` (Lewis 2001, Syst. Biol. 50:913-925:
# all changes are equally likely, frequencies equal), ``MULTIx_GTR`` (every pair of states has its
# exchangeability, frequencies estimated); and IQ-TREE's ``ORDERED``, here ``MULTIx_ORDERED``: a
# state changes to its neighbours only. Without their first half, ``MK``, ``ORDERED`` and ``GTR``
# are of as many states as the data have, of two where those are binary.

_KINDS = ("MK", "ORDERED", "GTR")
_NAME = re.compile(rf"(MULTI[0-9]+)_({'|'.join(_KINDS)})")


def morphology_data_of(name: str) -> str | None:
    """The data type that a model's name in capitals has in it: ``MULTI6``; None where it has none.

    Raises nothing: whether there are such data is not asked.
    """
    if name == "BIN":
        return name
    match = _NAME.fullmatch(name)
    return match[1] if match else None


def morphology_names_of(alphabet: Alphabet) -> list[str]:
    """The names of the models for such characters, the simplest first; none for other data."""
    if alphabet.name == "BIN":
        return ["BIN"]
    return [f"{alphabet.name}_{kind}" for kind in _KINDS if alphabet.name.startswith("MULTI")]


def morphology_default_of(alphabet: Alphabet) -> str:
    """The simplest, with gamma rates."""
    return "BIN+FC+G4" if alphabet.name == "BIN" else f"{alphabet.name}_MK+G4"


def morphology_matrices(alphabet: Alphabet) -> list[str]:
    """Those to choose from, with their frequencies, the reference first.

    GTR of more than two states is none of them: multistate data are few for so many parameters.
    """
    terms = ("+FC", "+FE") if alphabet.name == "BIN" else ("+FE", "+FC")
    names = [name for name in morphology_names_of(alphabet) if not name.endswith("_GTR")]
    return [name + term for name in names for term in terms]


def morphology_model_of(name: str, alphabet: Alphabet) -> Model | None:
    """The model of a name in capitals, nothing fixed; None where there is none for such data."""
    if name == alphabet.name == "BIN":
        return _mk("BIN", alphabet, free=True)
    states = alphabet.n_states
    kind = name.removeprefix(f"MULTI{states}_")
    if not alphabet.name.startswith(("BIN", "MULTI")) or kind not in _KINDS:
        return None
    full = f"MULTI{states}_{kind}"
    if kind == "MK":
        return _mk(full, alphabet, free=False)
    equal = np.full(states, 1.0 / states)
    if kind == "ORDERED":
        row, column = np.triu_indices(states, 1)
        return Model(full, alphabet, (), (column - row == 1).astype(np.float64), equal, "model")
    pairs = n_pairs(states)
    return Model(full, alphabet, tuple(range(pairs)), np.ones(pairs), equal, "FO")


def _mk(name: str, alphabet: Alphabet, *, free: bool) -> Model:
    """All exchangeabilities equal; frequencies too, or estimated."""
    states = alphabet.n_states
    pairs = n_pairs(states)
    equal = np.full(states, 1.0 / states)
    return Model(name, alphabet, (0,) * pairs, np.ones(pairs), equal, "FO" if free else "model")


GENOTYPES = Family(
    genotype_data_of, genotype_names_of, genotype_model_of, genotype_default_of, genotype_matrices
)
MORPHOLOGY = Family(
    morphology_data_of,
    morphology_names_of,
    morphology_model_of,
    morphology_default_of,
    morphology_matrices,
)
