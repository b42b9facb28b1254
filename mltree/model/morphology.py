"""Models of binary and multistate characters, by RAxML-NG's names.

``BIN`` (two states, frequencies estimated), ``MULTIx_MK`` (Lewis 2001, Syst. Biol. 50:913-925: all
changes are equally likely, frequencies equal), ``MULTIx_GTR`` (every pair of states has its
exchangeability, frequencies estimated); and IQ-TREE's ``ORDERED``, here ``MULTIx_ORDERED``: a state
changes to its neighbours only. Without their first half, ``MK``, ``ORDERED`` and ``GTR`` are of as
many states as the data have.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from mltree.model.substitution import Model, n_pairs

if TYPE_CHECKING:
    from mltree.alignment.alphabet import Alphabet

__all__ = ["data_of", "model_of", "names_of"]

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
    """The names of the models for such characters, the simplest first."""
    if alphabet.name == "BIN":
        return ["BIN"]
    return [f"{alphabet.name}_{kind}" for kind in _KINDS]


def model_of(name: str, alphabet: Alphabet) -> Model | None:
    """The model of a name in capitals, nothing fixed; None where there is none for such data."""
    if alphabet.name == "BIN":
        return _mk("BIN", alphabet, free=True) if name == "BIN" else None
    kind = name.removeprefix(f"{alphabet.name}_")
    if not alphabet.name.startswith("MULTI") or kind not in _KINDS:
        return None
    full = f"{alphabet.name}_{kind}"
    if kind == "MK":
        return _mk(full, alphabet, free=False)
    states = alphabet.n_states
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
