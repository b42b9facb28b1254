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

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["DNA", "PROTEIN", "UNKNOWN", "Alphabet"]

UNKNOWN = 255
"""What `Alphabet.encode` gives for a character that the alphabet does not have."""


@dataclass(frozen=True, eq=False)
class Alphabet:
    """States, the codes that tips are stored as, and the characters that mean each code.

    Letters: S states, C codes.
    """

    name: str
    """``"DNA"``, ``"AA"`` or the caller's own."""
    states: str
    """The S states in the order of every model array: ``"ACGT"``."""
    symbols: str
    """``symbols[c]`` is the canonical character of code c."""
    tip_table: NDArray[np.float64]
    """f64 [C, S]: row c is the tip vector of code c, 1 where the state is possible, else 0."""
    code_of: NDArray[np.uint8]
    """u8 [256]: code of each byte, `UNKNOWN` where the byte is no character of this alphabet."""
    gap_code: int
    """The code whose tip vector is all ones."""

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
        several = dict(ambiguities or {})
        meanings = [*states, *several.values(), states]
        return cls._build(name, states, states + "".join(several) + gaps[0], meanings, gaps=gaps)

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
        states: str,
        symbols: str,
        meanings: list[str],
        *,
        gaps: str,
        aliases: Mapping[str, str] | None = None,
    ) -> Alphabet:
        table = np.array([[float(state in meaning) for state in states] for meaning in meanings])
        gap_code = len(symbols) - 1
        codes = {symbol: code for code, symbol in enumerate(symbols) if code or symbol in states}
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

    def encode(self, raw: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Codes of ASCII characters, any shape and case; `UNKNOWN` where there is none."""
        return _translated(raw, self.code_of.tobytes())

    def decode(self, codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Canonical ASCII characters of codes, any shape."""
        return _translated(codes, self.symbols.encode("ascii").ljust(256, b"?"))


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
