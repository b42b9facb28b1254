"""The characters of sequence data and the codes that stand for them.

A tip is one code per pattern, one byte each; `Alphabet.tip_table` expands a code to its tip
vector. What a character means follows RAxML-NG (the `pll_map_nt` and `pll_map_aa` tables of
libpll-2, src/maps.c):

* DNA: IUPAC letters, ``U`` is ``T``, and ``- . ? N O X`` are gaps (any state).
* Protein: ``B`` is N or D, ``Z`` is Q or E, ``J`` is I or L, and ``- . ? * X`` are gaps. ``U`` and
  ``O`` (selenocysteine, pyrrolysine) are refused, as there.

``.`` is a gap here; where it means "same as the first sequence", `mltree.data.formats.spelled_out`
has put the letters in its place before. Case never matters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, cached_property

import numpy as np

from mltree.system.arrays import Float64, Index, Int64, UInt8, UInt64
from mltree.system.errors import InputError
from mltree.system.values import Value

UNKNOWN = 255
"""Code in `Alphabet.encode` of a character that the alphabet does not have."""


# Sets of states in files, ``{01}`` or ``(01)``: one byte each, so that a character stays a byte.
# Bytes are given out as sets turn up in a process; no code of an alphabet depends on them.

FOREIGN = 255
"""Byte in place of any that is not ASCII in a sequence."""

_FIRST_SET = 128
_SETS: list[str] = []
"""The symbols of each set, in order, from the byte `_FIRST_SET` on."""

_SET = re.compile(rb"[{(]([0-9A-Z,?-]+)[)}]")
_BRACKETS = (b"(", b")", b"{", b"}")


def packed(text: bytes) -> bytes:
    """Characters without white space, in capitals, with a byte in place of each set of states.

    Text whose brackets are not all of sets is returned as it is: with more than 42 states they are
    states themselves. A set with a gap or an unknown state is unknown.

    Raises: InputError: too many different sets.
    """
    if b"(" not in text and b"{" not in text:
        return text
    replaced, number = _SET.subn(_byte_of, text)
    return replaced if sum(map(text.count, _BRACKETS)) == 2 * number else text


def _byte_of(match: re.Match[bytes]) -> bytes:
    symbols = "".join(sorted(set(match[1].decode()) - {","}))
    if "-" in symbols or "?" in symbols or not symbols:
        return b"?"
    if len(symbols) == 1:
        return symbols.encode()
    if symbols not in _SETS:
        if _FIRST_SET + len(_SETS) == FOREIGN:
            message = f"more than {len(_SETS)} different sets of states, {match[0].decode()} is one"
            raise InputError(message, hint="write ? for the rarest")
        _SETS.append(symbols)
    return bytes([_FIRST_SET + _SETS.index(symbols)])


def symbols_of(byte: int) -> str:
    """The symbols of the set that a byte stands for; of any other byte its own."""
    return _SETS[byte - _FIRST_SET] if 0 <= byte - _FIRST_SET < len(_SETS) else chr(byte)


def spelled(characters: bytes) -> bytes:
    """Characters as files have them, with sets of states in braces."""
    if characters.isascii():
        return characters
    sets = {_FIRST_SET + n: b"{%s}" % symbols.encode() for n, symbols in enumerate(_SETS)}
    return b"".join(sets.get(byte, b"%c" % byte) for byte in characters)


class Alphabet(Value, eq=False):
    """States, the codes that tips are stored as, and the characters that mean each code.

    Letters: S states, C codes.
    """

    name: str
    """Name: ``"DNA"``, ``"AA"`` or another."""
    states: Sequence[str]
    """The S states in the order of every model array: ``"ACGT"``, codons, or genotypes."""
    symbols: Sequence[str]
    """Text of each code: a character, or three of a codon."""
    tip_table: Float64
    """f64 [C, S]: row c is the tip vector of code c, 1 where the state is possible, else 0."""
    code_of: UInt8
    """u8 [256]: code of each byte, `UNKNOWN` where the byte is no character of this alphabet."""
    gap_code: int
    """Code whose tip vector is all ones."""

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
        """An alphabet whose codes are characters in order, each a set of states, then the gap."""
        symbols = "".join(characters) + gaps[0]
        meanings = [*characters.values(), states]
        table = np.array([[float(state in meaning) for state in states] for meaning in meanings])
        codes = {symbol: code for code, symbol in enumerate(symbols)}
        codes |= dict.fromkeys(gaps, len(symbols) - 1)
        codes |= {alias: codes[symbol] for alias, symbol in (aliases or {}).items()}
        code_of = np.full(256, UNKNOWN, np.uint8)
        for symbol, code in codes.items():
            code_of[ord(symbol.lower())] = code_of[ord(symbol.upper())] = code
        table.setflags(write=False)
        code_of.setflags(write=False)
        return cls(name, states, symbols, table, code_of, len(symbols) - 1)

    @property
    def n_states(self) -> int:
        """Number of states, S."""
        return len(self.states)

    @property
    def n_codes(self) -> int:
        """Number of codes, C."""
        return len(self.symbols)

    @property
    def state_masks(self) -> UInt64:
        """u64 [C]: the tip vectors as bit sets, bit s for state s (S ≤ 64)."""
        bits = np.left_shift(np.uint64(1), np.arange(self.n_states, dtype=np.uint64))
        masks: UInt64 = (self.tip_table.astype(np.uint64) * bits).sum(axis=1, dtype=np.uint64)
        return masks

    @cached_property
    def state_codes(self) -> UInt8:
        """u8 [S]: the code that determines each state best, by itself if any character does."""
        sizes = self.tip_table.sum(axis=1, keepdims=True)
        best: Index = np.where(self.tip_table > 0.0, sizes, np.inf).argmin(axis=0)
        return best.astype(np.uint8)

    @cached_property
    def certain_codes(self) -> UInt8:
        """u8, ascending: the codes that tell most, those of `state_codes`, each once."""
        return np.flatnonzero(np.bincount(self.state_codes)).astype(np.uint8)

    def is_spelled_as(self, other: Alphabet) -> bool:
        """True where all characters belong to the other alphabet too, as codons to nucleotides."""
        return bool((other.code_of[self.code_of != UNKNOWN] != UNKNOWN).all())

    def encode(self, raw: UInt8) -> UInt8:
        """Codes u8 [..., sites] of characters, any case; `UNKNOWN` for others.

        A set of states has the code of a character that means the same states.
        """
        table = self.code_of
        if _SETS:
            table, codes = table.copy(), self.codes_by_states
            for n, symbols in enumerate(_SETS):
                table[_FIRST_SET + n] = codes.get(self._states_of(symbols), UNKNOWN)
        return _translated(raw, table.tobytes())

    @cached_property
    def codes_by_states(self) -> dict[bytes, int]:
        """The code of each tip vector."""
        codes = {row.tobytes(): code for code, row in enumerate(self.tip_table)}
        return codes | {self.tip_table[self.gap_code].tobytes(): self.gap_code}

    def _states_of(self, symbols: str) -> bytes:
        """The tip vector of a set; empty where a symbol is none of this alphabet."""
        codes = self.code_of[[ord(symbol) for symbol in symbols]]
        return b"" if UNKNOWN in codes else self.tip_table[codes].max(axis=0).tobytes()

    def decode(self, codes: UInt8) -> UInt8:
        """Canonical characters of codes u8 [..., sites], `width` a site."""
        written = np.frombuffer("".join(self.symbols).encode("latin-1"), np.uint8)
        characters: UInt8 = written.reshape(-1, self.width)[codes]
        return characters.reshape(*codes.shape[:-1], -1)

    def covering(self, _blocks: Iterable[UInt8], /) -> Alphabet:
        """The alphabet with a code for every character of u8 [T, sites width]."""
        return self


def _translated(raw: UInt8, table: bytes) -> UInt8:
    """table[raw]; `bytes.translate` is twenty times as fast as indexing with bytes."""
    return np.frombuffer(raw.tobytes().translate(table), np.uint8).reshape(raw.shape)


DNA = Alphabet.of_characters(
    "DNA",
    "ACGT",
    {
        letter: [base for bit, base in enumerate("ACGT") if (code or 15) >> bit & 1]
        for code, letter in enumerate("?ACMGRSVTWYHKDB")
    },
    gaps="-.?NOX",
    aliases={"U": "T"},
)
"""Codes are bitmasks: A = 1, C = 2, G = 4, T = 8; gap 15.

Code 0 (no state) is never made by `encode`; its row of the table is all ones, so that padding lanes
stay harmless.
"""

PROTEIN = Alphabet.of_states(
    "AA", "ARNDCQEGHILKMFPSTWYV", ambiguities={"B": "ND", "Z": "QE", "J": "IL"}, gaps="-.?*X"
)
"""Codes 0..19 are the states, B = 20, Z = 21, J = 22, gap 23."""


# Diploid genotypes: the two nucleotides that a cell has at a site, as IUPAC's letters tell them:
# ``A`` is A/A, ``M`` A/C. GT10 has pairs without an order, GT16 a nucleotide for either
# chromosome: ``M`` may be A|C or C|A. States and letters are RAxML-NG's and CellPhy's
# (``pll_map_gt10``, ``pll_map_gt16`` of libpll-2, src/maps.c), but for those of three nucleotides.

HETEROZYGOTES = {"M": "AC", "R": "AG", "W": "AT", "S": "CG", "Y": "CT", "K": "GT"}
"""The nucleotides of each letter."""

_GENOTYPE_GAPS = "-.?NOX"


class GenotypeAlphabet(Alphabet, eq=False):
    """Genotypes: a set of two nucleotides is the letter of a heterozygote."""

    def _states_of(self, symbols: str) -> bytes:
        code = DNA.codes_by_states.get(DNA._states_of(symbols), DNA.gap_code)
        letter = self.code_of[ord(DNA.symbols[code])]
        return b"" if letter == UNKNOWN else self.tip_table[letter].tobytes()


def _alphabet(name: str, *, phased: bool) -> Alphabet:
    same = {base: [2 * base] for base in DNA.states}
    different = {
        letter: [pair, pair[::-1]] if phased else [pair] for letter, pair in HETEROZYGOTES.items()
    }
    letters = same | different
    states = [pair for of_letter in letters.values() for pair in of_letter[:1]]
    states += [pair for of_letter in letters.values() for pair in of_letter[1:]]
    return GenotypeAlphabet.of_characters(
        name, states, letters, gaps=_GENOTYPE_GAPS, aliases={"U": "T"}
    )


UNPHASED = _alphabet("GT10", phased=False)
"""AA CC GG TT AC AG AT CG CT GT; codes are those, then the gap."""

PHASED = _alphabet("GT16", phased=True)
"""The states of `UNPHASED`, then CA GA TA GC TC TG; codes are those of `UNPHASED`."""


GENOTYPES = {
    **dict.fromkeys(("GT10", "DIPLOID10"), UNPHASED),
    **dict.fromkeys(("GT16", "DIPLOID16"), PHASED),
}
"""Alphabets of genotypes by name."""


def genotype_hint() -> str:
    """Hint for a letter that is no genotype."""
    pairs = " ".join(f"{letter}={pair[0]}/{pair[1]}" for letter, pair in HETEROZYGOTES.items())
    return f"genotypes are A C G T and {pairs}; unknown ones {' '.join(_GENOTYPE_GAPS)}"


# Binary and multistate characters: morphology, presence and absence, recoded sequences. Symbols and
# their order are RAxML-NG's; a character with S states has the first S of them.

SYMBOLS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ!\"#$%&'()*+,/:;<=>@[\\]^_{|}~"
"""The state of each, by its place."""

MAX_STATES = len(SYMBOLS)

_GAPS = "-?."
_NAME = re.compile(r"MULTI([0-9]{1,9})")


class CharacterAlphabet(Alphabet, eq=False):
    """Binary or multistate characters: the codes of states, of sets of states, and the gap."""

    def covering(self, blocks: Iterable[UInt8], /) -> Alphabet:
        """The alphabet with a code for every set of states of the data."""
        present = np.zeros(256, np.bool_)
        for block in blocks:
            present |= np.bincount(block.ravel(), minlength=256) > 0
        occurring = np.flatnonzero(present[_FIRST_SET : _FIRST_SET + len(_SETS)])
        every = {_SETS[n] for n in occurring} | self._sets
        several = {symbols for symbols in every if set(symbols) < set(self.states)}
        return _with_sets(self.name, str(self.states), tuple(sorted(several)))

    @property
    def _sets(self) -> set[str]:
        return {symbols_of(ord(symbol)) for symbol in self.symbols[self.n_states : self.gap_code]}


@cache
def _with_sets(name: str, states: str, sets: tuple[str, ...]) -> Alphabet:
    plain = CharacterAlphabet.of_states(name, states, gaps=_GAPS)
    if not sets:
        return plain
    symbols = "".join(chr(_FIRST_SET + _SETS.index(of_set)) for of_set in sets)
    rows = [[float(state in of_set) for state in states] for of_set in sets]
    code_of, gap_code = plain.code_of.copy(), len(states) + len(sets)
    code_of[code_of == plain.gap_code] = gap_code
    code_of[[ord(symbol) for symbol in symbols]] = np.arange(len(states), gap_code)
    table = np.insert(plain.tip_table, len(states), rows, axis=0)
    return CharacterAlphabet(name, states, states + symbols + _GAPS[0], table, code_of, gap_code)


BINARY = _with_sets("BIN", SYMBOLS[:2], ())
"""Codes 0 and 1 are the states, 2 the gap."""


def multistate(states: int) -> Alphabet:
    """The alphabet with ``states`` states, 2 to 64: the same object at every call."""
    return _with_sets(f"MULTI{states}", SYMBOLS[:states], ())


def characters_named(name: str) -> Alphabet | None:
    """The alphabet with the name that RAxML-NG's models have: ``BIN``, ``MULTI6``; None for others.

    Raises: InputError: there are no characters of so many states.
    """
    if name == BINARY.name:
        return BINARY
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    if not 2 <= int(match[1]) <= MAX_STATES:
        raise InputError(f"{name}: a character has 2 to {MAX_STATES} states")
    return multistate(int(match[1]))


def states_in(counts: Int64) -> Alphabet:
    """The smallest alphabet for characters (i64 [256] counts).

    It is binary where there are but 0 and 1. What is no symbol at all does not count.
    """
    symbols = {symbol for byte in np.flatnonzero(counts).tolist() for symbol in symbols_of(byte)}
    present = [place for place, symbol in enumerate(SYMBOLS) if symbol in symbols]
    states = max(present, default=1) + 1
    return BINARY if states <= 2 else multistate(states)
