"""Names and characters of an alignment file, before anyone says what the characters mean.

FASTA and PHYLIP are read here; records.py makes FASTA of NEXUS, Clustal and Stockholm before.

Why not a library's parser: Biopython and scikit-bio build one Python object for each record and
check little (Biopython takes FASTA with ragged rows, PHYLIP dialects must be named by the caller,
neither knows what a site of a given taxon may hold), dendropy goes character by character. Here
all work on characters is done by `bytes` and NumPy calls over whole rows, so that 100 MB take
about a second, and every fault is reported with its line, taxon and site.

What is refused, each with one InputError: files that are missing, empty, damaged or binary; rows of
different lengths; PHYLIP headers that do not fit; PHYLIP files that can be read in two ways; names
that are empty, repeated or hold characters with a meaning in Newick; no sites.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from mltree.alignment import genotypes
from mltree.alignment.alphabet import DNA, PROTEIN, UNKNOWN, Alphabet
from mltree.alignment.codons import CodonAlphabet
from mltree.alignment.datatype import detect_alphabet
from mltree.alignment.dots import Dots, spelled_out
from mltree.alignment.fasta import read_fasta
from mltree.alignment.given import Given, Source
from mltree.alignment.misfit import phylip_misfit
from mltree.alignment.phylip import Header, phylip_readings
from mltree.alignment.reading import Lines, Reading
from mltree.alignment.records import as_records
from mltree.alignment.source import read_text, shown
from mltree.errors import InputError
from mltree.values import Value

__all__ = ["MIN_TAXA", "Judge", "Sequences", "read_sequences", "refuse_few"]

MIN_TAXA = 4
"""Below four tips there is one unrooted topology: nothing to search."""

NEWICK_SPECIAL = "()[]:;,'\""
"""Characters that a name cannot have without quotes in Newick."""

SAFE_NAMES = "rename the taxon: letters, digits and _ are safe"

Judge = Callable[[NDArray[np.uint8]], int]
"""How much sense the characters of a reading make, u8 [T, sites]; 0: none."""


class Sequences(Value, eq=False):
    """What a file says, taxa and sites in its order."""

    names: tuple[str, ...]
    """T taxon names, distinct."""
    characters: NDArray[np.uint8]
    """u8 [T, sites]: ASCII, upper case."""
    dots: Dots | None
    """Dots that were read as the first sequence's characters."""
    lines: Lines
    reading: Reading
    """Where in the file each character is."""

    @property
    def path(self) -> str:
        """The file's."""
        return self.lines.path

    @property
    def file_format(self) -> str:
        """The format that was found: ``"PHYLIP interleaved"``."""
        return self.reading.file_format

    @property
    def n_sites(self) -> int:
        """Columns of the file."""
        return int(self.characters.shape[1])

    def refuse_unknown(
        self, alphabet: Alphabet, sites: NDArray[np.int64] | None = None, part: str = ""
    ) -> None:
        """Make sure that all characters, or those at the sites of a part, are of an alphabet.

        Raises:
            InputError: one is not; names its line, taxon and site.
        """
        if isinstance(alphabet, CodonAlphabet):
            self.refuse_unknown(DNA, sites, part)
            self._refuse_stops(alphabet, sites, part)
            return
        characters = self.characters if sites is None else self.characters[:, sites]
        if not (alphabet.encode(characters) == UNKNOWN).any():
            return
        for row, text in enumerate(characters):
            unknown = alphabet.encode(text) == UNKNOWN
            if unknown.any():
                place = int(unknown.argmax())
                site = place if sites is None else int(sites[place])
                byte = int(text[place])
                raise _taxon_error(
                    self.lines,
                    self.names[row],
                    f"taxon {self.names[row]}, site {site + 1}: {shown(byte)} is no "
                    f"{alphabet.name} character" + (f" (part {part})" if part else ""),
                    self.reading.line_of(self.lines, row, site),
                    _character_hint(byte, characters, alphabet),
                )

    def _refuse_stops(
        self, alphabet: CodonAlphabet, sites: NDArray[np.int64] | None, part: str
    ) -> None:
        """Make sure that there are no stop codons; names the line, taxon and codon of the first."""
        characters = self.characters if sites is None else self.characters[:, sites]
        stops = alphabet.encode(characters) == UNKNOWN
        if not stops.any():
            return
        row, codon = divmod(int(stops.argmax()), stops.shape[1])
        triplet = characters[row, 3 * codon : 3 * codon + 3].tobytes().decode()
        site = 3 * codon if sites is None else int(sites[3 * codon])
        code = alphabet.genetic_code
        raise _taxon_error(
            self.lines,
            self.names[row],
            f"taxon {self.names[row]}, codon {codon + 1} (from site {site + 1}): {triplet} is a "
            f"stop codon in the {code.name} code" + (f" (part {part})" if part else ""),
            self.reading.line_of(self.lines, row, site),
            f"take the codon out; or, if the genetic code is not NCBI's {code.number}, name it: "
            "--data-type codon:CODE",
        )


def read_sequences(source: Source, judge: Judge) -> Sequences:
    """The sequences in a file, or those given.

    The judge decides where a file can be read in several ways.

    Raises:
        InputError: see the module's first lines.
    """
    if isinstance(source, Given):
        lines, reading = source.lines, source.reading
    else:
        lines = as_records(Lines.of(str(source), read_text(source)))
        reading = _read_format(lines, judge)
    names = _checked_names(lines, reading)
    characters, dots = spelled_out(_matrix(lines, reading, names), str(source))
    return Sequences(names, characters, dots, lines, reading)


def refuse_few(taxa: Sequence[str], path: str) -> None:
    """Make sure that there are taxa enough for a tree; raises InputError."""
    if len(taxa) < MIN_TAXA:
        raise InputError(f"{len(taxa)} taxa; a tree needs at least {MIN_TAXA}", file=path)


def _read_format(lines: Lines, judge: Judge) -> Reading:
    first = lines.text[0]
    if first.startswith((b">", b";")):
        return read_fasta(lines)
    if first.split()[0].isdigit():
        return _read_phylip(lines, judge)
    if first.startswith(b"("):
        raise lines.error(
            "a tree, not an alignment",
            0,
            hint="an alignment comes first, and a tree is --tree FILE",
        )
    raise lines.error(
        "neither FASTA nor PHYLIP, NEXUS, Clustal or Stockholm",
        0,
        hint="FASTA starts with '>', PHYLIP with the numbers of taxa and sites, others with a name",
    )


def _read_phylip(lines: Lines, judge: Judge) -> Reading:
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
    verdicts = [_verdict(lines, reading, judge) for reading in fitting]
    best = [reading for reading, v in zip(fitting, verdicts, strict=True) if v == max(verdicts)]
    if len(best) > 1 and max(verdicts) > 0:
        raise _ambiguous(lines, best)
    return best[0]


def _verdict(lines: Lines, reading: Reading, judge: Judge) -> int:
    """What the judge says; 0 where the names are not acceptable."""
    try:
        names = _checked_names(lines, reading)
    except InputError:
        return 0
    return judge(_matrix(lines, reading, names))


def _ambiguous(lines: Lines, readings: list[Reading]) -> InputError:
    file_formats = {reading.file_format.split(",")[0] for reading in readings}
    hint = "S (sequential) or I (interleaved) behind the two numbers of the first line decides"
    if len(file_formats) == 1:
        hint = "part names from sequences by a line's end, or give FASTA"
    ways = (f"{reading.file_format} (taxa {_some(reading.names)})" for reading in readings)
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
            where = f" (first on line {first})" if first else ""
            raise _taxon_error(
                lines,
                name,
                f"taxon {name} occurs twice{where}",
                head,
                "names end at the first blank and must differ",
            )
        seen[name] = row
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


def _character_hint(byte: int, characters: NDArray[np.uint8], alphabet: Alphabet) -> str:
    if alphabet is DNA and detect_alphabet(characters) is PROTEIN:
        return "the data look like protein: use a protein model"
    if alphabet is DNA and PROTEIN.code_of[byte] != UNKNOWN:
        return "correct it; or, if these are proteins: --data-type protein"
    if alphabet is PROTEIN and byte in b"UO":
        return "selenocysteine (U) and pyrrolysine (O) have no state: replace them by X"
    if alphabet in (genotypes.UNPHASED, genotypes.PHASED):
        return genotypes.hint()
    if alphabet not in (DNA, PROTEIN):
        return f"its states are {alphabet.states[0]} to {alphabet.states[-1]}, and - ? are unknown"
    gaps = "-.?NOX" if alphabet is DNA else "-.?*X"
    return f"characters for unknown states are {' '.join(gaps)}"
