"""Reading an alignment: PHYLIP or FASTA, compressed or not, whatever its name ends in.

Why not a library's parser: Biopython and scikit-bio build one Python object for each record and
check little (Biopython takes FASTA with ragged rows, PHYLIP dialects must be named by the caller,
neither knows what a site of a given taxon may hold), dendropy goes character by character. Here
all work on characters is done by `bytes` and NumPy calls over whole rows, so that 100 MB take
about a second, and every fault is reported with its line, taxon and site.

What is refused, each with one InputError: files that are missing, empty, damaged or binary; rows of
different lengths; PHYLIP headers that do not fit; PHYLIP files that can be read in two ways; names
that are empty, repeated or hold characters with a meaning in Newick; fewer than four taxa; no
sites; characters that the data type does not have.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mltree.alignment.alphabet import DNA, PROTEIN, UNKNOWN, Alphabet
from mltree.alignment.datatype import Letters, alphabet_named, detect_alphabet
from mltree.alignment.dots import Dots, spelled_out
from mltree.alignment.fasta import read_fasta
from mltree.alignment.misfit import phylip_misfit
from mltree.alignment.phylip import Header, phylip_readings
from mltree.alignment.reading import Lines, Reading
from mltree.alignment.source import read_text, shown
from mltree.errors import InputError

__all__ = ["MIN_TAXA", "Alignment", "alphabet_named", "detect_alphabet", "read_alignment"]

MIN_TAXA = 4
"""Below four tips there is one unrooted topology: nothing to search."""

NEWICK_SPECIAL = "()[]:;,'\""
"""Characters that a name cannot have without quotes in Newick."""

SAFE_NAMES = "rename the taxon: letters, digits and _ are safe"


@dataclass(frozen=True, eq=False)
class Alignment:
    """An alignment as the file has it: taxa and sites in its order."""

    names: tuple[str, ...]
    """T taxon names, distinct."""
    characters: NDArray[np.uint8]
    """u8 [T, sites]: ASCII, upper case; every one belongs to the alphabet."""
    path: str
    alphabet: Alphabet
    layout: str = ""
    """The format that was found: ``"PHYLIP interleaved"``."""
    seen: str = ""
    """What the alphabet was told by: ``"98.1% ACGT, 31 ambiguity codes"``."""
    doubtful: bool = False
    """Whether the alphabet was told by little: letters that DNA and proteins both have."""
    dots: Dots | None = None
    """Dots that were read as the first sequence's characters."""

    @property
    def n_taxa(self) -> int:
        """T."""
        return len(self.names)

    @property
    def n_sites(self) -> int:
        """Columns of the file."""
        return int(self.characters.shape[1])


def read_alignment(
    path: str | Path, datatype: str | None = None, model_alphabet: Alphabet | None = None
) -> Alignment:
    """The alignment in a file.

    ``datatype`` (``"DNA"``, ``"AA"``) overrides what it looks like; so does the alphabet of a
    model, where the data can be that.

    Raises:
        InputError: see the module's first lines.
    """
    forced = alphabet_named(datatype) if datatype else None
    lines = Lines.of(str(path), read_text(path))
    reading = _read_layout(lines, forced, model_alphabet)
    names = _checked_names(lines, reading)
    characters, dots = spelled_out(_matrix(lines, reading, names), str(path))
    letters = Letters.of(characters)
    alphabet = forced or letters.alphabet(model_alphabet)
    _check_characters(lines, reading, names, characters, alphabet)
    return Alignment(
        names=names,
        characters=characters,
        path=str(path),
        alphabet=alphabet,
        layout=reading.layout,
        seen=letters.seen(alphabet),
        doubtful=not (forced or model_alphabet) and letters.doubtful,
        dots=dots,
    )


def _read_layout(lines: Lines, forced: Alphabet | None, wanted: Alphabet | None) -> Reading:
    first = lines.text[0]
    if first.startswith((b">", b";")):
        return read_fasta(lines)
    if first.split()[0].isdigit():
        return _read_phylip(lines, forced, wanted)
    for start, name in ((b"#NEXUS", "NEXUS"), (b"CLUSTAL", "Clustal"), (b"# STOCK", "Stockholm")):
        if first.lstrip().upper().startswith(start):
            raise lines.error(f"{name} files are not read", 0, hint="convert it to PHYLIP or FASTA")
    raise lines.error(
        "neither PHYLIP nor FASTA",
        0,
        hint="PHYLIP starts with the numbers of taxa and sites, FASTA with '>'",
    )


def _read_phylip(lines: Lines, forced: Alphabet | None, wanted: Alphabet | None) -> Reading:
    """The one reading of a PHYLIP file that makes sense, for the model if there is such a one.

    Raises:
        InputError: there is none, or more than one.
    """
    record = next((n for n, line in enumerate(lines.text) if line.startswith(b">")), None)
    if record is not None:
        hint = "take away the first line for FASTA, or every '>' for PHYLIP"
        raise lines.error("a FASTA record below a PHYLIP header", record, hint=hint)
    header = Header.of(lines.text[0])
    fitting = phylip_readings(lines, header) if header else []
    if not fitting:
        raise phylip_misfit(lines)
    if len(fitting) == 1:
        return fitting[0]
    alphabets = [_sound_alphabet(lines, reading, forced, wanted) for reading in fitting]
    pairs = list(zip(fitting, alphabets, strict=True))
    sound = [reading for reading, alphabet in pairs if alphabet is not None]
    best = [reading for reading, alphabet in pairs if alphabet is wanted is not None] or sound
    if len(best) > 1:
        raise _ambiguous(lines, best)
    return (best or fitting)[0]


def _sound_alphabet(
    lines: Lines, reading: Reading, forced: Alphabet | None, wanted: Alphabet | None
) -> Alphabet | None:
    """The alphabet that a reading has; None where its names or characters are not acceptable."""
    try:
        names = _checked_names(lines, reading)
    except InputError:
        return None
    characters = _matrix(lines, reading, names)
    alphabet = forced or Letters.of(characters).alphabet(wanted)
    return alphabet if (alphabet.encode(characters) != UNKNOWN).all() else None


def _ambiguous(lines: Lines, readings: list[Reading]) -> InputError:
    layouts = {reading.layout.split(",")[0] for reading in readings}
    hint = "S (sequential) or I (interleaved) behind the two numbers of the first line decides"
    if len(layouts) == 1:
        hint = "part names from sequences by a line's end, or give FASTA"
    ways = (f"{reading.layout} (taxa {_some(reading.names)})" for reading in readings)
    return lines.error(f"can be read as {' and as '.join(ways)}", 0, hint=hint)


def _some(names: list[bytes]) -> str:
    return ", ".join(name.decode("utf-8", "replace") for name in names[:3]) + ", ..."


def _checked_names(lines: Lines, reading: Reading) -> tuple[str, ...]:
    seen: dict[str, int] = {}
    for row, raw in enumerate(reading.names):
        head = reading.pieces[row][0]
        try:
            name = raw.decode("utf-8")
        except UnicodeDecodeError:
            raise lines.error("a taxon name is not UTF-8 text", head, hint=SAFE_NAMES) from None
        if not name:
            raise lines.error("a taxon has no name", head, hint="give every taxon a name")
        wrong = next((c for c in name if c in NEWICK_SPECIAL or not c.isprintable()), None)
        if wrong is not None:
            raise _taxon_error(
                lines,
                name,
                f"taxon name {name!r} holds {wrong!r}, which a name in a Newick tree cannot",
                head,
                SAFE_NAMES,
            )
        if name in seen:
            first = lines.numbers[reading.pieces[seen[name]][0]]
            raise _taxon_error(
                lines,
                name,
                f"taxon {name} occurs twice (first on line {first})",
                head,
                "names end at the first blank and must differ",
            )
        seen[name] = row
    if len(seen) < MIN_TAXA:
        raise InputError(f"{len(seen)} taxa; a tree needs at least {MIN_TAXA}", file=lines.path)
    return tuple(seen)


def _taxon_error(lines: Lines, taxon: str, message: str, line: int, hint: str) -> InputError:
    return InputError(message, file=lines.path, line=lines.numbers[line], taxon=taxon, hint=hint)


def _matrix(lines: Lines, reading: Reading, names: tuple[str, ...]) -> NDArray[np.uint8]:
    """u8 [T, sites] of rows that must all be as long as the first."""
    sites = len(reading.rows[0])
    for row, text in enumerate(reading.rows):
        if len(text) != sites:
            last = " (the last: is the file truncated?)" if row == len(names) - 1 else ""
            raise _taxon_error(
                lines,
                names[row],
                f"taxon {names[row]} has {len(text)} sites, but {names[0]} has {sites}{last}",
                reading.end_of(row),
                "sequences must be aligned",
            )
    if not sites:
        raise InputError("the alignment has no sites", file=lines.path, hint="is it truncated?")
    return np.frombuffer(b"".join(reading.rows), np.uint8).reshape(len(names), sites)


def _check_characters(
    lines: Lines,
    reading: Reading,
    names: tuple[str, ...],
    characters: NDArray[np.uint8],
    alphabet: Alphabet,
) -> None:
    for row, text in enumerate(characters):
        unknown = alphabet.encode(text) == UNKNOWN
        if unknown.any():
            site = int(unknown.argmax())
            raise _taxon_error(
                lines,
                names[row],
                f"taxon {names[row]}, site {site + 1}: {shown(int(text[site]))} "
                f"is no {alphabet.name} character",
                reading.line_of(lines, row, site),
                _character_hint(int(text[site]), characters, alphabet),
            )


def _character_hint(byte: int, characters: NDArray[np.uint8], alphabet: Alphabet) -> str:
    if alphabet is DNA and detect_alphabet(characters) is PROTEIN:
        return "the data look like protein: use a protein model"
    if alphabet is DNA and PROTEIN.code_of[byte] != UNKNOWN:
        return "correct it; or, if these are proteins: --data-type protein"
    if alphabet is PROTEIN and byte in b"UO":
        return "selenocysteine (U) and pyrrolysine (O) have no state: replace them by X"
    gaps = "-.?NOX" if alphabet is DNA else "-.?*X"
    return f"characters for unknown states are {' '.join(gaps)}"
