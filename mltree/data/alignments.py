"""Alignments as they are read, from a file of any format or from memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np

from mltree.data.alphabet import (
    DNA,
    FOREIGN,
    PHASED,
    PROTEIN,
    UNKNOWN,
    UNPHASED,
    Alphabet,
    genotype_hint,
    symbols_of,
)
from mltree.data.codons import CodonAlphabet, refuse_broken
from mltree.data.datatype import Letters, alphabet_named
from mltree.data.formats import (
    Dots,
    Header,
    Lines,
    Reading,
    SequenceRows,
    clustal_rows,
    fold,
    phylip_misfit,
    phylip_readings,
    read_fasta,
    spelled_out,
    stockholm_rows,
)
from mltree.data.nexus import STANDARD, nexus_rows
from mltree.data.source import NEWICK_SPECIAL, read_text, tree_name
from mltree.system.arrays import Int64, UInt8
from mltree.system.errors import InputError
from mltree.system.values import Value

CLUSTAL_PROGRAMS = (b"CLUSTAL", b"MUSCLE", b"PROBCONS", b"T-COFFEE", b"KALIGN", b"MSAPROBS")
"""First words of files in Clustal's format: its own, and those of programs that borrow it."""

READERS: tuple[tuple[tuple[bytes, ...], Callable[[Lines], SequenceRows]], ...] = (
    ((b"#NEXUS",), nexus_rows),
    (CLUSTAL_PROGRAMS, clustal_rows),
    ((b"# STOCKHOLM",), stockholm_rows),
)


"""Readers by beginnings of files.

Files become lines of FASTA with their numbers, so that all formats share the checks of names,
lengths and characters.
"""


def _as_records(lines: Lines) -> Lines:
    first = lines.text[0].lstrip().upper()
    for starts, read in READERS:
        if first.startswith(starts):
            return read(lines).records(lines)
    return lines


class MemoryAlignment(Value):
    """Sequences in memory, with their names; they are checked as files are."""

    names: tuple[str, ...]
    """T taxon names."""
    rows: tuple[bytes, ...]
    """T sequences, in ASCII."""
    title: str = "the alignment"
    """Text in place of a file's path."""

    def __str__(self) -> str:
        return self.title

    @property
    def lines(self) -> Lines:
        """The sequences as lines of a file: a line for a name, a line for its sequence."""
        pairs = zip(self.names, self.rows, strict=True)
        text = [line for name, row in pairs for line in (name.encode(), row)]
        return Lines(self.title, text, [0] * len(text), file_format="memory")

    @property
    def reading(self) -> Reading:
        """Names and rows as a format's reader finds them.

        Raises: InputError: there are none.
        """
        if not self.names:
            raise InputError("there are no sequences", file=self.title)
        return Reading(
            file_format="memory",
            names=[name.encode() for name in self.names],
            rows=[fold([row]) for row in self.rows],
            pieces=[(n, n + 1) for n in range(0, 2 * len(self.names), 2)],
            name_width=[len(name.encode()) for name in self.names],
        )

    def fasta(self) -> str:
        """FASTA text of the sequences; names end at the first blank there."""
        pairs = zip(self.names, self.rows, strict=True)
        return "".join(f">{name}\n{row.decode('ascii')}\n" for name, row in pairs)


Source: TypeAlias = str | Path | MemoryAlignment
"""Source of an alignment: a file, ``-`` for standard input, or memory."""


# Why not a library's parser: Biopython and scikit-bio build one Python object for each record and
# check little (ragged FASTA is taken, PHYLIP dialects must be named by the caller), dendropy goes
# character by character. Here `bytes` and NumPy calls go over whole rows, so that 100 MB take about
# a second, and every fault is reported with its line, taxon and site.
#
# Refused are files that are missing, empty, damaged or binary; rows of different lengths; PHYLIP
# headers that do not fit; PHYLIP files that can be read in two ways; names that are empty or
# repeated; no sites. Names with characters that trees cannot have get others.

MIN_TAXA = 4
"""Below four tips there is one unrooted topology: nothing to search."""

LEAST_TAXA = 3
"""Tips of the smallest unrooted tree."""

MAX_LISTED = 5
"""Names and lines that an error message lists."""

Judge = Callable[[UInt8], int]
"""Score of the characters of a reading, u8 [T, sites]; 0 where they make no sense."""


class TaxonNames(NamedTuple):
    """Names of taxa as trees have them."""

    names: tuple[str, ...]
    """T names, distinct."""
    renamed: Mapping[str, str]
    """The names of the file by those here, where they differ."""


class Sequences(Value, eq=False):
    """Sequences of a file, taxa and sites in its order."""

    names: tuple[str, ...]
    """T taxon names, distinct, as trees have them."""
    renamed: Mapping[str, str]
    """The names of the file by those here, where they differ."""
    characters: UInt8
    """u8 [T, sites]: ASCII, upper case."""
    dots: Dots | None
    """Dots that were read as the first sequence's characters."""
    lines: Lines
    reading: Reading
    """Place of each character in the file."""

    @property
    def n_sites(self) -> int:
        """Columns of the file."""
        return int(self.characters.shape[1])

    def refuse_unknown(
        self, alphabet: Alphabet, sites: Int64 | None = None, part: str = ""
    ) -> None:
        """Check that all characters, or those at a part's sites, belong to an alphabet.

        Raises: InputError: one is not; names its line, taxon and site.
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
                kind = f"an {alphabet.name}" if alphabet.name == "AA" else f"a {alphabet.name}"
                problem = f"site {site + 1}: {_shown(byte)} is not {kind} character"
                hint = _character_hint(byte, characters, alphabet)
                raise self._error(row, site, problem, part, hint)

    def _refuse_stops(self, alphabet: CodonAlphabet, sites: Int64 | None, part: str) -> None:
        characters = self.characters if sites is None else self.characters[:, sites]
        stops = alphabet.encode(characters) == UNKNOWN
        if not stops.any():
            return
        row, codon = divmod(int(stops.argmax()), stops.shape[1])
        triplet = characters[row, 3 * codon : 3 * codon + 3].tobytes().decode()
        site = 3 * codon if sites is None else int(sites[3 * codon])
        code = alphabet.genetic_code
        where = f"codon {codon + 1} (from site {site + 1})"
        problem = f"{where}: {triplet} is a stop codon in the {code.name} code"
        otherwise = f"if the genetic code is not NCBI's {code.number}, name it"
        hint = f"mltree convert --mask-stops writes gaps; or, {otherwise}: --data-type codon:CODE"
        raise self._error(row, site, problem, part, hint)

    def _error(self, row: int, site: int, problem: str, part: str, hint: str) -> InputError:
        taxon, where = self.names[row], f" (part {part})" if part else ""
        line = self.reading.line_of(self.lines, row, site)
        message = f"taxon {taxon}, {problem}{where}"
        return self.lines.error(message, line, taxon=taxon, hint=hint)


def read_sequences(source: Source, judge: Judge) -> Sequences:
    """The sequences in a file, or those given.

    The judge decides where a file can be read in several ways.

    Raises: InputError: a fault of the file, with its line, taxon and site.
    """
    if isinstance(source, MemoryAlignment):
        lines, reading = source.lines, source.reading
    else:
        lines = _as_records(Lines.of(str(source), read_text(source)))
        reading = _read_format(lines, judge)
    is_memory = isinstance(source, MemoryAlignment)
    taxa = _taxon_names(lines, reading, is_memory=is_memory)
    characters, dots = spelled_out(_matrix(lines, reading, taxa.names), str(source))
    return Sequences(taxa.names, taxa.renamed, characters, dots, lines, reading)


def refuse_few(taxa: Sequence[str], path: str) -> None:
    """Check that there are enough taxa for a tree; raises InputError."""
    if len(taxa) < LEAST_TAXA:
        message = f"{_counted(len(taxa), 'taxon', 'taxa')}; a tree needs at least {LEAST_TAXA}"
        raise InputError(message, file=path)


def _read_format(lines: Lines, judge: Judge) -> Reading:
    first = lines.text[0]
    if first.startswith((b">", b";")):
        return read_fasta(lines)
    if first.split()[0].isdigit():
        return _read_phylip(lines, judge)
    if first.startswith(b"("):
        hint = "give the alignment first, and the tree with --tree FILE"
        raise lines.error("a tree, not an alignment", 0, hint=hint)
    hint = "FASTA starts with '>', PHYLIP with the numbers of taxa and sites, others with a name"
    raise lines.error("neither FASTA nor PHYLIP, NEXUS, Clustal or Stockholm", 0, hint=hint)


def _read_phylip(lines: Lines, judge: Judge) -> Reading:
    """The one reading of a PHYLIP file that makes sense, for the model if there is such a one.

    Raises: InputError: there is none, or more than one.
    """
    record = next((n for n, line in enumerate(lines.text) if line.startswith(b">")), None)
    if record is not None:
        hint = "for FASTA remove the first line, for PHYLIP every '>'"
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
    try:
        names = _taxon_names(lines, reading)
    except InputError:
        return 0
    score = 2 * judge(_matrix(lines, reading, names.names))
    return score - 1 if score and names.renamed else score


def _ambiguous(lines: Lines, readings: list[Reading]) -> InputError:
    hint = "S (sequential) or I (interleaved) after the two numbers on the first line decides"
    if len({reading.file_format.split(",")[0] for reading in readings}) == 1:
        hint = "write every name on a line of its own, or use FASTA"
    taxa = [b", ".join(reading.names[:3]).decode(errors="replace") for reading in readings]
    rows = zip(readings, taxa, strict=True)
    ways = (f"{reading.file_format} (taxa {names}, ...)" for reading, names in rows)
    return lines.error(f"can be read as {' and as '.join(ways)}", 0, hint=hint)


def _taxon_names(lines: Lines, reading: Reading, *, is_memory: bool = False) -> TaxonNames:
    """The names of the rows, without what a tree's file cannot hold.

    Names in memory keep marks of Newick, where they are put into quotes.

    Raises: InputError: names are missing or not distinct; all of them are listed.
    """
    originals = [_text_of(raw) for raw in reading.names]
    names = [tree_name(name, kept=NEWICK_SPECIAL + " " if is_memory else "") for name in originals]
    rows_of: dict[str, list[int]] = {}
    for row, name in enumerate(names):
        rows_of.setdefault(name, []).append(row)
    nameless = rows_of.pop("", [])
    repeated = {name: rows for name, rows in rows_of.items() if len(rows) > 1}
    if not nameless and not repeated:
        changed = zip(names, originals, strict=True)
        return TaxonNames(tuple(names), {new: old for new, old in changed if old != new})
    place = partial(_rows_shown, lines, reading)
    problems = [f"{_counted(len(nameless), 'taxon has', 'taxa have')} no name{place(nameless)}"]
    problems = problems if nameless else []
    for name, rows in list(repeated.items())[:MAX_LISTED]:
        spelled = dict.fromkeys(originals[row] for row in rows)
        become = f", once {' and '.join(spelled)}," if len(spelled) > 1 else ""
        times = "twice" if len(rows) == 2 else f"{len(rows)} times"
        problems.append(f"taxon {name}{become} occurs {times}{place(rows)}")
    more = len(repeated) - MAX_LISTED
    problems += [f"{_counted(more, 'other name is', 'other names are')} repeated"] * (more > 0)
    first = nameless[0] if nameless else next(iter(repeated.values()))[1]
    hint = "give every taxon a name of its own; FASTA's whole header counts where first words clash"
    taxon = None if nameless else names[first]
    raise lines.error("; ".join(problems), reading.pieces[first][0], taxon=taxon, hint=hint)


def renaming(renamed: Mapping[str, str]) -> tuple[str, ...]:
    """A notice of names that are changed; none where all are the file's."""
    pairs = [f"{before} to {name}" for name, before in renamed.items()]
    more = f" and {len(pairs) - MAX_LISTED} more" if len(pairs) > MAX_LISTED else ""
    text = f"names changed to what every reader of trees takes: {', '.join(pairs[:MAX_LISTED])}"
    return (text + more,) if pairs else ()


def _text_of(name: bytes) -> str:
    """A name as text, of UTF-8 or else Latin-1."""
    try:
        return name.decode("utf-8")
    except UnicodeDecodeError:
        return name.decode("latin-1")


def _rows_shown(lines: Lines, reading: Reading, rows: Sequence[int]) -> str:
    """The line numbers of some rows' names; nothing for sequences in memory."""
    numbers = [lines.numbers[reading.pieces[row][0]] for row in rows]
    if not any(numbers):
        return ""
    more = f" and {len(numbers) - MAX_LISTED} more" if len(numbers) > MAX_LISTED else ""
    word = "line" if len(numbers) == 1 else "lines"
    return f" ({word} {', '.join(map(str, numbers[:MAX_LISTED]))}{more})"


def _counted(number: int, one: str, several: str) -> str:
    return f"{number:,} {one if number == 1 else several}"


def _matrix(lines: Lines, reading: Reading, names: tuple[str, ...]) -> UInt8:
    """u8 [T, sites] of rows that must all be as long as the first."""
    sites = len(reading.rows[0])
    for row, text in enumerate(reading.rows):
        if len(text) != sites:
            last = " (the last: is the file truncated?)" if row == len(names) - 1 else ""
            problem = f"has {len(text)} sites, but {names[0]} has {sites}{last}"
            message, line = f"taxon {names[row]} {problem}", reading.end_of(row)
            hint = "sequences must be aligned"
            raise lines.error(message, line, taxon=names[row], hint=hint)
    if not sites:
        raise InputError("the alignment has no sites", file=lines.path, hint="is it truncated?")
    return np.frombuffer(b"".join(reading.rows), np.uint8).reshape(len(names), sites)


def _shown(byte: int) -> str:
    """A character as an error message shows it: ``'@'``, or its hexadecimal value."""
    if byte == FOREIGN:
        return "a byte that is not ASCII"
    symbols = symbols_of(byte)
    if len(symbols) > 1:
        return f"the set {{{symbols}}}"
    return repr(symbols) if 32 < byte < 127 else f"byte 0x{byte:02x}"


def _character_hint(byte: int, characters: UInt8, alphabet: Alphabet) -> str:
    if alphabet is DNA and Letters.of(characters).looks_like is PROTEIN:
        return "the data look like protein: use a protein model"
    if alphabet is DNA and PROTEIN.code_of[byte] != UNKNOWN:
        return "correct it; or, if these are proteins: --data-type protein"
    if alphabet is PROTEIN and byte in b"UO":
        return "selenocysteine (U) and pyrrolysine (O) have no state: replace them by X"
    if alphabet in (UNPHASED, PHASED):
        return genotype_hint()
    if alphabet not in (DNA, PROTEIN):
        return f"its states are {alphabet.states[0]} to {alphabet.states[-1]}, and - ? are unknown"
    gaps = "-.?NOX" if alphabet is DNA else "-.?*X"
    return f"characters for unknown states are {' '.join(gaps)}"


class Alignment(Value, eq=False):
    """An alignment as the file has it: taxa and sites in its order."""

    names: tuple[str, ...]
    """T taxon names, distinct, as trees have them."""
    characters: UInt8
    """u8 [T, sites]: ASCII, upper case; every one belongs to the alphabet."""
    path: str
    alphabet: Alphabet
    file_format: str = ""
    """The format that was found: ``"PHYLIP interleaved"``."""
    seen: str = ""
    """Reason for the alphabet: ``"98.1% ACGT, 31 ambiguity codes"``."""
    doubtful: bool = False
    """True where all letters are in both DNA and proteins and say little."""
    dots: Dots | None = None
    """Dots that were read as the first sequence's characters."""
    has_parts: bool = False
    """True if the file also names parts of the alignment."""
    notices: tuple[str, ...] = ()
    """Notices of what the reader has changed."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """The names of the file by those here, where they differ."""

    @property
    def n_taxa(self) -> int:
        """Number of taxa, T."""
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

    Raises: InputError: a fault of the file, with its line, taxon and site; fewer than four taxa;
        characters that the data type does not have.
    """

    def judge(characters: UInt8) -> int:
        """Score of a reading: 2 for the alphabet of the model, 1 for any alphabet, 0 for none."""
        named = alphabet_named(datatype, characters) if datatype else None
        alphabet = named or Letters.of(characters).alphabet(model_alphabet)
        sound = (alphabet.covering([characters]).encode(characters) != UNKNOWN).all()
        return int(sound) + int(sound and alphabet is model_alphabet)

    sequences = read_sequences(source, judge)
    path = sequences.lines.path
    refuse_few(sequences.names, path)
    word = datatype or _word_of(sequences, model_alphabet)
    forced = alphabet_named(word, sequences.characters) if word else None
    letters = Letters.of(sequences.characters)
    alphabet = forced or letters.alphabet(model_alphabet)
    refuse_broken(alphabet, sequences.n_sites, "the alignment", path)
    alphabet = alphabet.covering([sequences.characters])
    sequences.refuse_unknown(alphabet)
    return Alignment(
        names=sequences.names,
        characters=sequences.characters,
        path=path,
        alphabet=alphabet,
        file_format=sequences.reading.file_format,
        seen=letters.seen(alphabet),
        doubtful=not (forced or model_alphabet) and letters.doubtful,
        dots=sequences.dots,
        has_parts=sequences.lines.has_parts,
        notices=sequences.lines.notices,
        renamed=sequences.renamed,
    )


def _word_of(sequences: Sequences, model_alphabet: Alphabet | None) -> str | None:
    """The data type that the file names; a model decides the number of states."""
    word = sequences.lines.datatype
    wider = model_alphabet is not None and model_alphabet not in (DNA, PROTEIN)
    named_by_model = wider and word in (STANDARD, DNA.name)
    return None if named_by_model else word
