"""Reading an alignment of one data type, compressed or not, whatever its name ends in.

What is refused, each with one InputError: what sequences.py refuses; fewer than four taxa;
characters that the data type does not have.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mltree.alignment.alphabet import DNA, PROTEIN, UNKNOWN, Alphabet
from mltree.alignment.codons import refuse_broken
from mltree.alignment.datatype import Letters, alphabet_named
from mltree.alignment.dots import Dots
from mltree.alignment.given import Source
from mltree.alignment.nexus import STANDARD
from mltree.alignment.sequences import Sequences, read_sequences, refuse_few
from mltree.values import Value

__all__ = ["Alignment", "read_alignment"]


class Alignment(Value, eq=False):
    """An alignment as the file has it: taxa and sites in its order."""

    names: tuple[str, ...]
    """T taxon names, distinct."""
    characters: NDArray[np.uint8]
    """u8 [T, sites]: ASCII, upper case; every one belongs to the alphabet."""
    path: str
    alphabet: Alphabet
    file_format: str = ""
    """The format that was found: ``"PHYLIP interleaved"``."""
    seen: str = ""
    """What the alphabet was told by: ``"98.1% ACGT, 31 ambiguity codes"``."""
    doubtful: bool = False
    """Whether the alphabet was told by little: letters that DNA and proteins both have."""
    dots: Dots | None = None
    """Dots that were read as the first sequence's characters."""
    has_parts: bool = False
    """True if the file also names parts of the alignment."""

    @property
    def n_taxa(self) -> int:
        """T."""
        return len(self.names)

    @property
    def n_sites(self) -> int:
        """Columns of the file; of codons a third of them."""
        return int(self.characters.shape[1]) // self.alphabet.width


def read_alignment(
    source: Source, datatype: str | None = None, model_alphabet: Alphabet | None = None
) -> Alignment:
    """The alignment in a file, or the one given.

    ``datatype`` (``"DNA"``, ``"AA"``, ``"BIN"``, ``"MULTI"``, ``"CODON"``) overrides what it looks
    like; so does the alphabet of a model, where the data can be that.

    Raises:
        InputError: see the module's first lines.
    """

    def judge(characters: NDArray[np.uint8]) -> int:
        """How good a reading is: 2 as the model wants it, 1 acceptable, 0 not."""
        told = alphabet_named(datatype, characters) if datatype else None
        alphabet = told or Letters.of(characters).alphabet(model_alphabet)
        sound = (alphabet.covering([characters]).encode(characters) != UNKNOWN).all()
        return int(sound) + int(sound and alphabet is model_alphabet)

    sequences = read_sequences(source, judge)
    refuse_few(sequences.names, sequences.path)
    word = datatype or _word_of(sequences, model_alphabet)
    forced = alphabet_named(word, sequences.characters) if word else None
    letters = Letters.of(sequences.characters)
    alphabet = forced or letters.alphabet(model_alphabet)
    refuse_broken(alphabet, sequences.n_sites, "the alignment", sequences.path)
    alphabet = alphabet.covering([sequences.characters])
    sequences.refuse_unknown(alphabet)
    return Alignment(
        names=sequences.names,
        characters=sequences.characters,
        path=sequences.path,
        alphabet=alphabet,
        file_format=sequences.file_format,
        seen=letters.seen(alphabet),
        doubtful=not (forced or model_alphabet) and letters.doubtful,
        dots=sequences.dots,
        has_parts=sequences.lines.has_parts,
    )


def _word_of(sequences: Sequences, model_alphabet: Alphabet | None) -> str | None:
    """The data type that the file itself names; a model says of how many states it is."""
    word = sequences.lines.datatype
    wider = model_alphabet is not None and model_alphabet not in (DNA, PROTEIN)
    named_by_model = wider and word in (STANDARD, DNA.name)
    return None if named_by_model else word
