"""Binary and multistate characters: morphology, presence and absence, recoded sequences.

Symbols and their order are RAxML-NG's: digits, letters, then punctuation, 64 in all; a character
with S states has the first S of them. ``-``, ``?`` and ``.`` are gaps (any state).
"""

from __future__ import annotations

import re
from functools import cache

import numpy as np
from numpy.typing import NDArray

from mltree.alignment.alphabet import Alphabet
from mltree.errors import InputError

__all__ = ["BINARY", "MAX_STATES", "SYMBOLS", "is_coded", "multistate", "named", "states_in"]

SYMBOLS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ!\"#$%&'()*+,/:;<=>@[\\]^_{|}~"
"""The state of each, by its place."""

MAX_STATES = len(SYMBOLS)

_GAPS = "-?."
_NAME = re.compile(r"MULTI([0-9]{1,9})")

BINARY = Alphabet.of_states("BIN", SYMBOLS[:2], gaps=_GAPS)
"""Codes 0 and 1 are the states, 2 the gap."""


@cache
def multistate(states: int) -> Alphabet:
    """The alphabet of so many states, 2 to 64: the very same one at every call."""
    return Alphabet.of_states(f"MULTI{states}", SYMBOLS[:states], gaps=_GAPS)


def named(name: str) -> Alphabet | None:
    """The alphabet with the name that RAxML-NG's models have: ``BIN``, ``MULTI6``; None for others.

    Raises:
        InputError: there are no characters of so many states.
    """
    if name == BINARY.name:
        return BINARY
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    if not 2 <= int(match[1]) <= MAX_STATES:
        raise InputError(f"{name}: a character has 2 to {MAX_STATES} states")
    return multistate(int(match[1]))


def is_coded(counts: NDArray[np.int64]) -> bool:
    """Whether characters (i64 [256], how many of each) are digits rather than letters."""
    digits = counts[ord("0") : ord("9") + 1].sum()
    return bool(digits > counts[ord("A") : ord("Z") + 1].sum())


def states_in(counts: NDArray[np.int64]) -> Alphabet:
    """The smallest alphabet for characters (i64 [256], how many of each).

    It is binary where there are but 0 and 1. What is no symbol at all does not count.
    """
    present = [place for place, symbol in enumerate(SYMBOLS) if counts[ord(symbol)]]
    states = max(present, default=1) + 1
    return BINARY if states <= 2 else multistate(states)
