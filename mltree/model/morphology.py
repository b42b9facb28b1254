"""Models of binary and multistate characters, by RAxML-NG's names.

``BIN`` (two states, frequencies estimated), ``MULTIx_MK`` (Lewis 2001, Syst. Biol. 50:913-925: all
changes are equally likely, frequencies equal), ``MULTIx_GTR`` (every pair of states has its
exchangeability, frequencies estimated); and IQ-TREE's ``ORDERED``, here ``MULTIx_ORDERED``: a state
changes to its neighbours only. Without their first half, ``MK``, ``ORDERED`` and ``GTR`` are of as
many states as the data have, of two where those are binary.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from mltree.model.substitution import Model, n_pairs

if TYPE_CHECKING:
    from mltree.alignment.alphabet import Alphabet

__all__ = ["data_of", "default_of", "matrices", "model_of", "names_of"]

_KINDS = ("MK", "ORDERED", "GTR")
_NAME = re.compile(rf"(MULTI[0-9]+)_({'|'.join(_KINDS)})")


def data_of(name: str) -> str | None:
    """The data type that a model's name in capitals has in it: ``MULTI6``; None where it has none.

    Raises nothing: whether there are such data is not asked.
    """
    if name == "BIN":
        return name
    match = _NAME.fullmatch(name)
    return match[1] if match else None


def names_of(alphabet: Alphabet) -> list[str]:
    """The names of the models for such characters, the simplest first; none for other data."""
    if alphabet.name == "BIN":
        return ["BIN"]
    return [f"{alphabet.name}_{kind}" for kind in _KINDS if alphabet.name.startswith("MULTI")]


def default_of(alphabet: Alphabet) -> str:
    """The simplest, with gamma rates."""
    return "BIN+FC+G4" if alphabet.name == "BIN" else f"{alphabet.name}_MK+G4"


def matrices(alphabet: Alphabet) -> list[str]:
    """Those to choose from, with their frequencies, the reference first.

    GTR of more than two states is none of them: multistate data are few for so many parameters.
    """
    terms = ("+FC", "+FE") if alphabet.name == "BIN" else ("+FE", "+FC")
    names = [name for name in names_of(alphabet) if not name.endswith("_GTR")]
    return [name + term for name in names for term in terms]


def model_of(name: str, alphabet: Alphabet) -> Model | None:
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
