"""The characters of sequence data and the codes that stand for them.

A tip is one code per pattern, one byte each; `Alphabet.tip_table` expands a code to its tip
vector. What a character means follows RAxML-NG (the `pll_map_nt` and `pll_map_aa` tables of
libpll-2, src/maps.c):

* DNA: IUPAC letters, ``U`` is ``T``, and ``- . ? N O X`` are gaps (any state).
* Protein: ``B`` is N or D, ``Z`` is Q or E, ``J`` is I or L, and ``- . ? * X`` are gaps. ``U`` and
  ``O`` (selenocysteine, pyrrolysine) are refused, as there.

``.`` is a gap here; where it means "same as the first sequence", dots.py has put the letters in its
place before. Case never matters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from mltree.values import Value

__all__ = ["DNA", "PROTEIN", "UNKNOWN", "Alphabet"]

UNKNOWN = 255
"""What `Alphabet.encode` gives for a character that the alphabet does not have."""


class Alphabet(Value, eq=False):
    """States, the codes that tips are stored as, and the characters that mean each code.

    Letters: S states, C codes.
    """

    name: str
    """``"DNA"``, ``"AA"`` or the caller's own."""
    states: Sequence[str]
    """The S states in the order of every model array: ``"ACGT"``, codons, or genotypes."""
    symbols: Sequence[str]
    """``symbols[c]`` is what is written for code c: a character, or three of a codon."""
    tip_table: NDArray[np.float64]
    """f64 [C, S]: row c is the tip vector of code c, 1 where the state is possible, else 0."""
    code_of: NDArray[np.uint8]
    """u8 [256]: code of each byte, `UNKNOWN` where the byte is no character of this alphabet."""
    gap_code: int
    """The code whose tip vector is all ones."""

    width = 1
    """Characters of a file that make a site."""

    @classmethod
    def of_states(
        cls,
        name: str,
        states: str,
        *,
        ambiguities: Mapping[str, str] | None = None,
        gaps: str = "-?",
    ) -> Alphabet:
        """An alphabet of any S: codes 0..S-1 are the states, then the ambiguities, then the gap.

        `ambiguities` maps a character to the states that it may be; `gaps` lists the characters
        that may be any state, the canonical one first.
        """
        characters = {state: state for state in states} | dict(ambiguities or {})
        return cls.of_characters(name, states, characters, gaps=gaps)

    @classmethod
    def of_characters(
        cls,
        name: str,
        states: Sequence[str],
        characters: Mapping[str, Sequence[str]],
        *,
        gaps: str,
        aliases: Mapping[str, str] | None = None,
    ) -> Alphabet:
        """An alphabet whose codes are characters in their order, each some states, then the gap."""
        symbols = "".join(characters) + gaps[0]
        meanings = [*characters.values(), states]
        return cls._build(name, states, symbols, meanings, gaps=gaps, aliases=aliases)

    @classmethod
    def of_bitmasks(
        cls, name: str, states: str, *, symbols: str, gaps: str, aliases: Mapping[str, str]
    ) -> Alphabet:
        """An alphabet whose code *is* the set of possible states: bit s set, state s possible.

        `symbols` has one character for each of the 2^S codes. Code 0 (no state) is never made by
        `encode`; its row of the table is all ones, so that padding lanes stay harmless.
        """
        full = len(symbols) - 1
        meanings = [
            "".join(state for bit, state in enumerate(states) if (code or full) >> bit & 1)
            for code in range(len(symbols))
        ]
        return cls._build(name, states, symbols, meanings, gaps=gaps, aliases=aliases)

    @classmethod
    def _build(
        cls,
        name: str,
        states: Sequence[str],
        symbols: str,
        meanings: Sequence[Sequence[str]],
        *,
        gaps: str,
        aliases: Mapping[str, str] | None = None,
    ) -> Alphabet:
        table = np.array([[float(state in meaning) for state in states] for meaning in meanings])
        gap_code = len(symbols) - 1
        is_padding = len(meanings[0]) > 1
        codes = {symbol: code for code, symbol in enumerate(symbols) if code or not is_padding}
        codes |= dict.fromkeys(gaps, gap_code)
        codes |= {alias: codes[symbol] for alias, symbol in (aliases or {}).items()}
        code_of = np.full(256, UNKNOWN, np.uint8)
        for symbol, code in codes.items():
            code_of[ord(symbol.lower())] = code_of[ord(symbol.upper())] = code
        table.setflags(write=False)
        code_of.setflags(write=False)
        return cls(name, states, symbols, table, code_of, gap_code)

    @property
    def n_states(self) -> int:
        """S."""
        return len(self.states)

    @property
    def n_codes(self) -> int:
        """C."""
        return len(self.symbols)

    @property
    def state_masks(self) -> NDArray[np.uint64]:
        """u64 [C]: the tip vectors as bit sets, bit s for state s (S ≤ 64)."""
        bits = np.left_shift(np.uint64(1), np.arange(self.n_states, dtype=np.uint64))
        masks: NDArray[np.uint64] = (self.tip_table.astype(np.uint64) * bits).sum(
            axis=1, dtype=np.uint64
        )
        return masks

    @cached_property
    def state_codes(self) -> NDArray[np.uint8]:
        """u8 [S]: the code that tells each state best: by itself, unless no character does."""
        sizes = self.tip_table.sum(axis=1, keepdims=True)
        best: NDArray[np.intp] = np.where(self.tip_table > 0.0, sizes, np.inf).argmin(axis=0)
        return best.astype(np.uint8)

    @cached_property
    def certain_codes(self) -> NDArray[np.uint8]:
        """u8, ascending: the codes that tell as much as any: those of `state_codes`, each once."""
        return np.flatnonzero(np.bincount(self.state_codes)).astype(np.uint8)

    def is_spelled_as(self, other: Alphabet) -> bool:
        """Whether all its characters are another's too, as those of codons are nucleotides'."""
        return bool((other.code_of[self.code_of != UNKNOWN] != UNKNOWN).all())

    def encode(self, raw: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Codes u8 [..., sites] of ASCII characters, any case; `UNKNOWN` where there is none."""
        return _translated(raw, self.code_of.tobytes())

    def decode(self, codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Canonical ASCII characters of codes u8 [..., sites], `width` a site."""
        written = np.frombuffer("".join(self.symbols).encode("ascii"), np.uint8)
        characters: NDArray[np.uint8] = written.reshape(-1, self.width)[codes]
        return characters.reshape(*codes.shape[:-1], -1)

    def covering(self, _blocks: Iterable[NDArray[np.uint8]], /) -> Alphabet:
        """The alphabet with a code for whatever occurs in characters u8 [T, sites width]."""
        return self


def _translated(raw: NDArray[np.uint8], table: bytes) -> NDArray[np.uint8]:
    """table[raw]; `bytes.translate` is twenty times as fast as indexing with bytes."""
    return np.frombuffer(raw.tobytes().translate(table), np.uint8).reshape(raw.shape)


DNA = Alphabet.of_bitmasks(
    "DNA",
    "ACGT",
    symbols="?ACMGRSVTWYHKDB-",
    gaps="-.?NOX",
    aliases={"U": "T"},
)
"""Codes are bitmasks: A = 1, C = 2, G = 4, T = 8; gap 15."""

PROTEIN = Alphabet.of_states(
    "AA",
    "ARNDCQEGHILKMFPSTWYV",
    ambiguities={"B": "ND", "Z": "QE", "J": "IL"},
    gaps="-.?*X",
)
"""Codes 0..19 are the states, B = 20, Z = 21, J = 22, gap 23."""
