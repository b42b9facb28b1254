"""Codons: nucleotides read three at a time, by a genetic code.

States are the codons of amino acids, AAA, AAC, ... TTT. A triplet with ambiguous characters or gaps
is the set of codons that it may be, stop codons left out; one that can be nothing but a stop codon
has no code. Of such sets only those that occur in the data have codes, since a code is a byte.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache, cached_property
from itertools import product
from typing import NamedTuple

import numpy as np

from mltree.data.alphabet import DNA, UNKNOWN, Alphabet
from mltree.system.arrays import Index, UInt8, UInt64
from mltree.system.errors import InputError

# NCBI's genetic codes (https://www.ncbi.nlm.nih.gov/Taxonomy/Utils/wprintgc.cgi): each is the
# standard code but for some codons. A codon that may be either (27, 28, 31) is the amino acid's.

STOP = "*"
"""Character in place of an amino acid for a stop codon."""


class GeneticCode(NamedTuple):
    """Genetic code: the amino acid of every codon."""

    number: int
    """NCBI's number."""
    name: str
    amino_acids: Mapping[str, str]
    """The amino acid of each of the 64 codons, or `STOP`; codons in the order AAA, AAC, ... TTT."""

    @property
    def codons(self) -> tuple[str, ...]:
        """Codons that are no stop codons, in order."""
        return tuple(codon for codon, acid in self.amino_acids.items() if acid != STOP)


_BASES = "TCAG"
_ACIDS = "FFLLSSSSYY**CC*WLLLLPPPPHHQQRRRRIIIMTTTTNNKKSSRRVVVVAAAADDEEGGGG"
_STANDARD = dict(zip(map("".join, product(_BASES, repeat=3)), _ACIDS, strict=True))


def _code(number: int, name: str, changes: str = "") -> GeneticCode:
    """The standard code with changes such as ``TGA=W``."""
    amino_acids = _STANDARD | dict(change.split("=") for change in changes.split())
    return GeneticCode(number, name, dict(sorted(amino_acids.items())))


STANDARD = _code(1, "standard")

GENETIC_CODES = {
    code.number: code
    for code in (
        STANDARD,
        _code(2, "vertebrate mitochondrial", "AGA=* AGG=* ATA=M TGA=W"),
        _code(3, "yeast mitochondrial", "ATA=M CTA=T CTC=T CTG=T CTT=T TGA=W"),
        _code(4, "mold mitochondrial", "TGA=W"),
        _code(5, "invertebrate mitochondrial", "AGA=S AGG=S ATA=M TGA=W"),
        _code(6, "ciliate nuclear", "TAA=Q TAG=Q"),
        _code(9, "echinoderm mitochondrial", "AAA=N AGA=S AGG=S TGA=W"),
        _code(10, "euplotid nuclear", "TGA=C"),
        _code(11, "bacterial"),
        _code(12, "alternative yeast nuclear", "CTG=S"),
        _code(13, "ascidian mitochondrial", "AGA=G AGG=G ATA=M TGA=W"),
        _code(14, "alternative flatworm mitochondrial", "AAA=N AGA=S AGG=S TAA=Y TGA=W"),
        _code(15, "blepharisma nuclear", "TAG=Q"),
        _code(16, "chlorophycean mitochondrial", "TAG=L"),
        _code(21, "trematode mitochondrial", "AAA=N AGA=S AGG=S ATA=M TGA=W"),
        _code(22, "scenedesmus mitochondrial", "TAG=L TCA=*"),
        _code(23, "thraustochytrium mitochondrial", "TTA=*"),
        _code(24, "pterobranchia mitochondrial", "AGA=S AGG=K TGA=W"),
        _code(25, "gracilibacteria", "TGA=G"),
        _code(26, "pachysolen nuclear", "CTG=A"),
        _code(27, "karyorelict nuclear", "TAA=Q TAG=Q TGA=W"),
        _code(28, "condylostoma nuclear", "TAA=Q TAG=Q TGA=W"),
        _code(29, "mesodinium nuclear", "TAA=Y TAG=Y"),
        _code(30, "peritrich nuclear", "TAA=E TAG=E"),
        _code(31, "blastocrithidia nuclear", "TAA=E TAG=E TGA=W"),
        _code(32, "balanophoraceae plastid", "TAG=W"),
        _code(33, "cephalodiscidae mitochondrial", "AGA=S AGG=K TAA=Y TGA=W"),
    )
}
"""Genetic codes by number; 7, 8 and 17 to 20 are not in use."""

_BLANKS = re.compile(r"[ _-]+")


def genetic_code(text: str) -> GeneticCode:
    """The code with a number, a name or the unique beginning of a name; "" is the standard.

    Raises: InputError where there is none, or several begin so.
    """
    word = _BLANKS.sub(" ", text.strip().lower())
    if not word:
        return STANDARD
    if word.isdecimal():
        matches = [GENETIC_CODES[int(word)]] if int(word[:9]) in GENETIC_CODES else []
    else:
        matches = [code for code in GENETIC_CODES.values() if code.name.startswith(word)]
        matches = [code for code in matches if code.name == word] or matches
    if len(matches) == 1:
        return matches[0]
    names = (f"{code.number} {code.name}" for code in matches or GENETIC_CODES.values())
    hint = f"NCBI's, by number or name: {', '.join(names)}"
    problem = "several genetic codes begin {}" if matches else "{} is not a genetic code"
    raise InputError(problem.format(repr(text)), hint=hint)


CODES_STEP = 32
"""Codes are filled up to a multiple of so many, so that data sets share builds of the kernels."""

_GAP = "---"
_TRIPLETS = 1 << 12
"""Number of triplets of nucleotide sets, four bits each."""

_NAME = re.compile(r"CODON(?::(.*)|[0-9]*)")


class CodonAlphabet(Alphabet, eq=False):
    """The codons of a genetic code. S states, C codes: states, ambiguous triplets, gaps."""

    genetic_code: GeneticCode

    width = 3

    def encode(self, raw: UInt8) -> UInt8:
        """Codes u8 [..., codons] of nucleotides u8 [..., 3 codons]; `UNKNOWN` where there is none.

        Nucleotides that do not fill the last triplet are unknown.
        """
        spare = -raw.shape[-1] % self.width
        if spare:
            raw = np.concatenate([raw, np.zeros((*raw.shape[:-1], spare), np.uint8)], axis=-1)
        return self._code_of_triplet[_triplets(raw)]

    def covering(self, blocks: Iterable[UInt8], /) -> Alphabet:
        """The alphabet of the same code that has every ambiguous triplet of the data.

        Raises: InputError where there are more of them than codes.
        """
        every = _sets(self.genetic_code.number)
        occur: set[int] = set()
        for block in blocks:
            triplets = _triplets(block[:, : block.shape[1] // 3 * 3]).ravel()
            occurring = np.flatnonzero(np.bincount(triplets))
            occur.update(every[occurring[occurring < _TRIPLETS]].tolist())
        known = {0, *self.state_masks[: self.n_states].tolist(), int(self.state_masks[-1])}
        several = tuple(sorted(occur - known))
        most = UNKNOWN - self.n_states - 1
        if len(several) > most:
            message = f"{len(several)} different ambiguous codons, but there is room for {most}"
            raise InputError(message, hint="write N for the rarest ambiguous nucleotides")
        return _alphabet(self.genetic_code.number, several)

    def without_stops(self, raw: UInt8) -> tuple[UInt8, int, int]:
        """Nucleotides u8 [T, 3 codons] with gaps for stop codons, without columns of these alone.

        Returns the numbers of stop codons in other columns, and of columns left out, too.
        """
        every, triplets = _sets(self.genetic_code.number), _triplets(raw)
        stops = every[triplets] == 0
        are_none = (stops | (triplets == _TRIPLETS - 1)).all(axis=0) & stops.any(axis=0)
        kept = np.repeat(~are_none, self.width)
        masked = np.where(np.repeat(stops, self.width, axis=1), np.uint8(ord("-")), raw)
        return masked[:, kept], int(stops[:, ~are_none].sum()), int(are_none.sum())

    @cached_property
    def _code_of_triplet(self) -> UInt8:
        code_of = {int(mask): code for code, mask in enumerate(self.state_masks)}
        codes = [code_of.get(int(mask), UNKNOWN) for mask in _sets(self.genetic_code.number)]
        return np.array([*codes, UNKNOWN], np.uint8)


def codons_named(word: str) -> CodonAlphabet | None:
    """The alphabet of ``CODON``, ``CODON2`` or ``CODON:NAME``, in capitals; None for other words.

    Raises: InputError where there is no such genetic code.
    """
    match = _NAME.fullmatch(word)
    return codon_alphabet(genetic_code(match[1] or word[5:]).number) if match else None


def codon_alphabet(number: int = STANDARD.number) -> CodonAlphabet:
    """The alphabet of a genetic code, without ambiguous triplets; the same object at every call."""
    return _alphabet(number, ())


@cache
def _alphabet(number: int, several: tuple[int, ...]) -> CodonAlphabet:
    code = genetic_code(str(number))
    states = code.codons
    symbols = [*states, *(_symbol(mask, number) for mask in several)]
    filled = -(-(len(symbols) + 1) // CODES_STEP) * CODES_STEP
    symbols += [_GAP] * (min(filled, UNKNOWN) - len(symbols))
    table = np.ones((len(symbols), len(states)))
    table[: len(states)] = np.eye(len(states))
    for row, mask in enumerate(several, len(states)):
        table[row] = [mask >> state & 1 for state in range(len(states))]
    table.setflags(write=False)
    return CodonAlphabet(
        name=f"CODON{number}",
        states=states,
        symbols=symbols,
        tip_table=table,
        code_of=DNA.code_of,
        gap_code=len(symbols) - 1,
        genetic_code=code,
    )


def refuse_broken(alphabet: Alphabet, characters: int, what: str, path: str) -> None:
    """Check that a number of characters makes whole codons, for a codon alphabet.

    Raises: InputError saying what they are of.
    """
    if characters % alphabet.width:
        message = f"{what} has {characters:,} nucleotides, not a multiple of three"
        hint = "a codon has three; write N or - for a missing one"
        raise InputError(message, file=path, hint=hint)


def _triplets(raw: UInt8) -> Index:
    """[..., codons]: the sets of nucleotides of each triplet; `_TRIPLETS` of other characters."""
    masks = DNA.encode(raw).reshape(*raw.shape[:-1], -1, 3).astype(np.intp)
    index = masks[..., 0] << 8 | masks[..., 1] << 4 | masks[..., 2]
    index[(masks == UNKNOWN).any(axis=-1)] = _TRIPLETS
    return index


@cache
def _sets(number: int) -> UInt64:
    """u64 [`_TRIPLETS`]: the states of each triplet of sets of nucleotides, as bits."""
    codons = genetic_code(str(number)).codons
    has = np.array(
        [[bool(mask >> bit & 1) for bit in range(len(DNA.states))] for mask in range(16)]
    )
    place = np.array([[DNA.states.index(base) for base in codon] for codon in codons])
    first, second, third = (has[:, place[:, position]] for position in range(3))
    may = first[:, None, None] & second[None, :, None] & third[None, None, :]
    bits = np.left_shift(np.uint64(1), np.arange(len(place), dtype=np.uint64))
    masks: UInt64 = (may * bits).sum(axis=-1, dtype=np.uint64)
    return masks.ravel()


def _symbol(mask: int, number: int) -> str:
    """A triplet that may be all codons of a set, with N where every nucleotide fits.

    So TAN is TAN, though TAY means the same where TAA and TAG are stop codons.
    """
    states, every = genetic_code(str(number)).codons, _sets(number)
    codons = [codon for state, codon in enumerate(states) if mask >> state & 1]
    sets = [
        sum(1 << DNA.states.index(base) for base in set(at)) for at in zip(*codons, strict=True)
    ]
    for at in range(3):
        wider = [*sets[:at], DNA.gap_code, *sets[at + 1 :]]
        if int(every[wider[0] << 8 | wider[1] << 4 | wider[2]]) == mask:
            sets = wider
    return "".join("N" if of == DNA.gap_code else DNA.symbols[of] for of in sets)
