"""Formats of alignments: FASTA, PHYLIP, Clustal and Stockholm read, those and NEXUS written."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate

import numpy as np

from mltree.data.alphabet import DNA, FOREIGN, PROTEIN, Alphabet, packed, spelled
from mltree.data.source import WHITESPACE
from mltree.system.arrays import Bool, UInt8
from mltree.system.errors import InputError
from mltree.system.values import Value

_UPPER = bytes(
    FOREIGN if byte > 127 else byte - 32 if 97 <= byte < 123 else byte for byte in range(256)
)


class Lines(Value):
    """The non-blank lines of a file with their line numbers."""

    path: str
    text: list[bytes]
    numbers: Sequence[int]
    """Line numbers, from 1."""
    file_format: str = "FASTA"
    """The file's format, where its lines were made FASTA's (:mod:`mltree.data.alignments`)."""
    datatype: str | None = None
    """``"DNA"`` or ``"AA"`` where the file itself says so."""
    has_parts: bool = False
    """True if the file also names parts of the alignment; the reader passes them over."""
    notices: tuple[str, ...] = ()
    """Notices of what the reader has changed."""

    @cached_property
    def lengths(self) -> list[int]:
        """Characters of each line, white space not counted."""
        return [_length(line) for line in self.text]

    @classmethod
    def of(cls, path: str, text: bytes) -> Lines:
        """The lines of `text`, blank ones left out."""
        lines = text.split(b"\n")
        if lines and not lines[-1]:
            lines.pop()
        if all(lines) and not any(map(bytes.isspace, lines)):
            return cls(path, lines, range(1, len(lines) + 1))
        kept = [(number, line) for number, line in enumerate(lines, 1) if line.strip(WHITESPACE)]
        return cls(path, [line for _, line in kept], [number for number, _ in kept])

    def error(
        self, message: str, line: int, *, taxon: str | None = None, hint: str | None = None
    ) -> InputError:
        """An InputError at the line with this index."""
        number = self.numbers[line]
        return InputError(message, file=self.path, line=number, taxon=taxon, hint=hint)


class Reading(Value):
    """One way to read a file: T names and rows, with the place of each row."""

    file_format: str
    """``"FASTA"``, ``"PHYLIP interleaved"``, …"""
    names: list[bytes]
    rows: list[bytes]
    """Sequences in upper case without white space, of any length so far."""
    pieces: list[Sequence[int]]
    """Indices of each row's lines; the first line of a PHYLIP row starts with the name."""
    name_width: list[int]
    """Bytes at the start of a row's first line that are no sequence."""

    def piece_lengths(self, lines: Lines, row: int) -> list[int]:
        """Sequence characters on each of a row's lines."""
        first, *rest = (lines.text[line] for line in self.pieces[row])
        return [_length(part) for part in (first[self.name_width[row] :], *rest)]

    def line_of(self, lines: Lines, row: int, site: int) -> int:
        """Index of the line that holds the character of a row at a site (from 0)."""
        ends = accumulate(self.piece_lengths(lines, row))
        return next(line for line, end in zip(self.pieces[row], ends, strict=True) if site < end)

    def end_of(self, row: int) -> int:
        """Index of a row's last line."""
        return self.pieces[row][-1]


@dataclass
class SequenceRows:
    """Pieces of sequence by taxon, in the order of the file."""

    file_format: str
    datatype: str | None = None
    """``"DNA"`` or ``"AA"`` where the file says so."""
    pieces: dict[bytes, list[tuple[int, bytes]]] = field(default_factory=dict)
    """For each name the index of each line with a piece of its sequence, and the piece."""
    has_parts: bool = False
    """True if the file also names parts of the alignment."""
    notices: tuple[str, ...] = ()
    """Notices of what the reader has changed."""

    def add(self, name: bytes, line: int, piece: bytes) -> None:
        """Append a piece to a taxon's sequence."""
        self.pieces.setdefault(name, []).append((line, piece))

    def records(self, lines: Lines) -> Lines:
        """The rows as lines of FASTA, numbered as in the file.

        Raises: InputError: a piece of sequence would be something else there.
        """
        text: list[bytes] = []
        numbers: list[int] = []
        for name, pieces in self.pieces.items():
            text.append(b">" + b"_".join(name.split()))
            numbers.append(lines.numbers[pieces[0][0]])
            for line, piece in pieces:
                if piece.startswith((b">", b";")):
                    shown = piece[:1].decode()
                    raise lines.error(f"{shown!r} where a sequence is expected", line)
                if piece:
                    text.append(piece)
                    numbers.append(lines.numbers[line])
        if not text:
            raise lines.error("no sequences", 0, hint="is it truncated?")
        return Lines(
            lines.path, text, numbers, self.file_format, self.datatype, self.has_parts,
            self.notices,
        )  # fmt: skip


# The meaning of a ``.``: a gap, or the character of the first sequence at that site.
#
# PHYLIP, PhyML and PAML take the dot for the latter, and refuse it in the first sequence; RAxML-NG
# and IQ-TREE take it for a gap, as profile and rRNA alignments write it. No file says which. But
# programs that write dots for repeated characters write one for every such character: a sequence
# with dots then never repeats the first one's letter itself, while sequences with gaps do all the
# time.

CHANCE = 0.05
"""Share of letters that two unrelated proteins have in common; DNA has a quarter. Fewer, but some,
and dots mean neither throughout."""

_DOT = ord(".")


class Dots(Value):
    """Dots that stood for the first sequence's characters, with the place of the first dot."""

    count: int
    taxon: int
    site: int
    """Site of the first dot, from 0."""


def spelled_out(characters: UInt8, path: str) -> tuple[UInt8, Dots | None]:
    """u8 [T, sites] with the first sequence's characters for dots, if that is what they mean.

    Raises: InputError: they could mean either.
    """
    first = characters[0]
    rows = [n for n, row in enumerate(characters) if (row == _DOT).any()]
    if not rows or rows[0] == 0:
        return characters, None
    alike = letters = 0
    for row in characters[rows]:
        both = _is_letter(first) & _is_letter(row)
        letters += int(np.count_nonzero(both))
        alike += int(np.count_nonzero(both & (row == first)))
    if alike > CHANCE * letters:
        return characters, None
    if alike:
        message = "'.' can be read as a gap and as the first sequence's character"
        raise InputError(message, file=path, hint="write '-' for gaps, or the letters themselves")
    dots = characters == _DOT
    taxon, site = divmod(int(dots.argmax()), len(first))
    return np.where(dots, first, characters), Dots(int(np.count_nonzero(dots)), taxon, site)


def _is_letter(row: UInt8) -> Bool:
    letters: Bool = (row >= ord("A")) & (row <= ord("Z"))
    return letters


def read_fasta(lines: Lines) -> Reading:
    """Every record of the file, ``>name`` and any number of lines; rows of any length.

    The name ends at the first white space; the rest of its line is a description and ignored,
    unless names would be repeated: then all have as many words more as it takes, as IQ-TREE reads
    them. Lines that begin with ``;``, the comments of Pearson's first format, are ignored.

    Raises: InputError: something else comes before the first record.
    """
    kept = [n for n, line in enumerate(lines.text) if not line.startswith(b";")]
    starts = [place for place, n in enumerate(kept) if lines.text[n].startswith(b">")]
    if not starts or starts[0] > 0:
        raise lines.error("no '>' with a name before it", kept[0] if kept else 0)
    pieces = [kept[a:b] for a, b in zip(starts, [*starts[1:], len(kept)], strict=True)]
    heads = [lines.text[head] for head, *_ in pieces]
    return Reading(
        file_format=lines.file_format,
        names=_first_words([head[1:] for head in heads]),
        rows=[fold([lines.text[n] for n in rest]) for _, *rest in pieces],
        pieces=list(pieces),
        name_width=[len(head) for head in heads],
    )


def _first_words(headers: Sequence[bytes]) -> list[bytes]:
    """The first word of every header, or as many words as it takes until no two are the same."""
    names = [(header.split(None, 1) or [b""])[0] for header in headers]
    if len(set(names)) == len(names):
        return names
    words = [header.split() for header in headers]
    for number in range(2, max(map(len, words)) + 1):
        names = [b" ".join(some[:number]) for some in words]
        if len(set(names)) == len(names):
            break
    return names


# PHYLIP: a header with the numbers of taxa and sites, then names and sequences.
#
# The format never says which of its dialects a file is in, so each is tried, and every reading that
# gives each row the promised number of sites is handed on:
#
# * interleaved (a block of T lines, then more blocks without names) or sequential (each taxon's
#   lines together); with one line per taxon the two are the same. An ``I`` or ``S`` behind the two
#   numbers, as old PHYLIP programs want it, decides;
# * relaxed names (up to the first white space), strict ones (the first ten characters), or PAML's
#   (up to two blanks or a tab). Blanks inside a name become ``_``, as in Newick.
#
# Readings that find the same names and sequences are one. White space inside sequences never
# counts.

STRICT_NAME_WIDTH = 10

_HEADER = re.compile(rb"\s*(\d{1,11})\s+(\d{1,11})\s*([ISis]?)\s*")
_SPACED_NAME = re.compile(rb"\s*(\S+(?: \S+)*)(?:  |\s*\t|\s*$)")
_LAYOUTS = {b"I": "interleaved", b"S": "sequential"}


class Header(Value):
    """Numbers of taxa and sites in the first line of a PHYLIP file."""

    taxa: int
    sites: int
    file_format: str | None = None
    """``"interleaved"`` or ``"sequential"`` where an ``I`` or ``S`` says so."""

    @classmethod
    def of(cls, line: bytes) -> Header | None:
        """The header that a line is; None if it is none."""
        match = _HEADER.fullmatch(line)
        if match is None:
            return None
        return cls(int(match[1]), int(match[2]), _LAYOUTS.get(match[3].upper()))


def relaxed_name(line: bytes) -> tuple[bytes, int]:
    """The name up to the first white space of a taxon's first line, and the bytes it takes up."""
    fields = line.split(None, 1)
    rest = len(fields[1]) if len(fields) > 1 else 0
    return fields[0], len(line) - rest


def strict_name(line: bytes) -> tuple[bytes, int]:
    """The name in the first ten characters."""
    return b"_".join(line[:STRICT_NAME_WIDTH].split()), min(STRICT_NAME_WIDTH, len(line))


def spaced_name(line: bytes) -> tuple[bytes, int]:
    """The name up to two blanks, a tab or the line's end; single blanks belong to it (PAML)."""
    match = _SPACED_NAME.match(line)
    if match is None:
        return relaxed_name(line)
    return b"_".join(match[1].split()), match.end()


_STYLES = {
    "": relaxed_name,
    ", strict names": strict_name,
    ", names with blanks": spaced_name,
}


class _Guess:
    """A way to read a PHYLIP file: the lines of each taxon, and the width of its name."""

    def __init__(
        self, lines: Lines, spans: list[range], layout: str = "interleaved", style: str = ""
    ) -> None:
        self.lines, self.spans = lines, spans
        is_short = all(len(span) == 1 for span in spans)
        self.file_format = ("PHYLIP" if is_short else f"PHYLIP {layout}") + style
        firsts = [lines.text[span[0]] for span in spans]
        heads = [_STYLES[style](line) for line in firsts]
        self.names, self.widths = [name for name, _ in heads], [width for _, width in heads]
        self.skipped = [
            _length(line[:width]) for line, width in zip(firsts, self.widths, strict=True)
        ]

    def fits(self, sites: int) -> bool:
        rows = zip(self.spans, self.skipped, strict=True)
        lengths = self.lines.lengths
        return all(sum(lengths[line] for line in span) - skip == sites for span, skip in rows)

    def reading(self) -> Reading:
        text = self.lines.text
        rows = [
            fold([text[span[0]][width:], *(text[line] for line in span[1:])])
            for span, width in zip(self.spans, self.widths, strict=True)
        ]
        return Reading(self.file_format, self.names, rows, [*self.spans], self.widths)


def phylip_readings(lines: Lines, header: Header) -> list[Reading]:
    """The different readings that give every row as many sites as the header promises."""
    if not 0 < header.taxa < len(lines.text):
        return []
    different: dict[object, _Guess] = {}
    for guess in _guesses(lines, header):
        if guess.fits(header.sites):
            names_and_rows = guess.names, map(tuple, guess.spans), guess.skipped
            different.setdefault(tuple(map(tuple, names_and_rows)), guess)
    return [guess.reading() for guess in different.values()]


def _guesses(lines: Lines, header: Header) -> Iterator[_Guess]:
    for style in _STYLES:
        if header.file_format != "sequential" and (len(lines.text) - 1) % header.taxa == 0:
            yield _Guess(lines, _blocks(lines, header), "interleaved", style)
        if header.file_format != "interleaved":
            spans, left = _runs(lines, header, style)
            if left == 0 and len(spans) == header.taxa and spans[-1].stop == len(lines.text):
                yield _Guess(lines, spans, "sequential", style)


def _blocks(lines: Lines, header: Header) -> list[range]:
    """Line i of every block belongs to taxon i."""
    return [range(1 + row, len(lines.text), header.taxa) for row in range(header.taxa)]


def _runs(lines: Lines, header: Header, style: str = "") -> tuple[list[range], int]:
    """The lines of each taxon, which takes lines until it has all its sites.

    Also how many sites the last taxon still lacks; negative if its last line has too many, and
    then the reading ends there.
    """
    spans: list[range] = []
    line, missing = 1, 0
    while line < len(lines.text) and len(spans) < header.taxa and missing == 0:
        start = line
        _, width = _STYLES[style](lines.text[line])
        missing = header.sites + _length(lines.text[line][:width])
        while line < len(lines.text) and (missing > 0 or line == start):
            missing -= lines.lengths[line]
            line += 1
        spans.append(range(start, line))
    return spans, missing


def _interleaved(lines: Lines, header: Header) -> Reading:
    """The file read as blocks with relaxed names, even if it does not fit."""
    return _Guess(lines, _blocks(lines, header)).reading()


def _length(text: bytes) -> int:
    return len(packed(text.translate(_UPPER, WHITESPACE)))


def fold(pieces: list[bytes]) -> bytes:
    """Sequence characters of some lines: joined, without white space, in upper case.

    A set of states within a line is one character.
    """
    if any(b"(" in piece or b"{" in piece for piece in pieces):
        return b"".join(packed(piece.translate(_UPPER, WHITESPACE)) for piece in pieces)
    return b"".join(pieces).translate(_UPPER, WHITESPACE)


HEADER_HINT = "the first line must be the number of taxa and the number of sites"


def phylip_misfit(lines: Lines) -> InputError:
    """The likeliest fault of a file that has no reading, so that a user can mend it."""
    header = Header.of(lines.text[0])
    if header is None:
        return lines.error("not a PHYLIP header", 0, hint=HEADER_HINT)
    if not header.taxa or not header.sites:
        message = f"the header says {header.taxa} taxa and {header.sites} sites"
        return lines.error(message, 0, hint=HEADER_HINT)
    fault = _other_format(lines, header) or _second_alignment(lines)
    return fault or _repeated_names(lines, header) or _wrong_numbers(lines, header)


def _other_format(lines: Lines, header: Header) -> InputError | None:
    """Error for a file that fits without its ``I`` or ``S``."""
    if header.file_format is None:
        return None
    for reading in phylip_readings(lines, replace(header, file_format=None)):
        only = f"but the file only fits as {reading.file_format}"
        hint = "correct the letter behind the two numbers, or take it away"
        return lines.error(f"the header says {header.file_format}, {only}", 0, hint=hint)
    return None


def _second_alignment(lines: Lines) -> InputError | None:
    """Error for another header further down."""
    second = next((n for n, line in enumerate(lines.text) if n and Header.of(line)), None)
    if second is None:
        return None
    hint = "put each alignment into a file of its own"
    return lines.error("another alignment begins", second, hint=hint)


def _repeated_names(lines: Lines, header: Header) -> InputError | None:
    """Error for blocks that all begin with names, which PHYLIP's programs take for sequence."""
    names = [relaxed_name(line)[0] for line in lines.text[1:]]
    first, rest = names[: header.taxa], names[header.taxa :]
    if not rest or len(rest) % header.taxa or rest != first * (len(rest) // header.taxa):
        return None
    hint = "only the first block of an interleaved file has names"
    return lines.error("the names are repeated in every block", 1 + header.taxa, hint=hint)


def _wrong_numbers(lines: Lines, header: Header) -> InputError:
    n_rows = len(lines.text) - 1
    lengths = {len(row) for row in _interleaved(lines, Header(n_rows, header.sites)).rows}
    if n_rows < header.taxa or (n_rows > header.taxa and lengths == {header.sites}):
        return _wrong_taxa(lines, header, n_rows, min(n_rows, header.taxa + 1))
    if n_rows == header.taxa or _looks_interleaved(lines, header):
        return _wrong_rows(lines, header, _interleaved(lines, header))
    return _wrong_sequence(lines, header)


def _looks_interleaved(lines: Lines, header: Header) -> bool:
    """True for blocks of T lines where reading line after line does not fit the first taxon."""
    spans, missing = _runs(lines, header)
    blocks = (len(lines.text) - 1) % header.taxa == 0
    return blocks and len(spans) == 1 and missing != 0


def _wrong_taxa(lines: Lines, header: Header, n_rows: int, line: int) -> InputError:
    message = f"the header says {header.taxa} taxa, but {n_rows} follow"
    return lines.error(message, line, hint="the file is truncated or its first line is wrong")


def _wrong_rows(lines: Lines, header: Header, reading: Reading) -> InputError:
    """Error for rows of the wrong length: all alike (wrong header), or the first such row."""
    lengths = [len(row) for row in reading.rows]
    if len(set(lengths)) == 1 and lengths[0]:
        message = f"the header says {header.sites} sites, but every row has {lengths[0]}"
        return lines.error(message, 0, hint="correct the first line")
    row = next(row for row, length in enumerate(lengths) if length != header.sites)
    line = _odd_line(lines, reading, row, header.sites)
    return _taxon_error(lines, header, reading.names[row], f"has {lengths[row]}", line)


def _odd_line(lines: Lines, reading: Reading, row: int, sites: int) -> int:
    for other, text in enumerate(reading.rows):
        if len(text) == sites:
            lengths = (reading.piece_lengths(lines, n) for n in (row, other))
            pairs = zip(reading.pieces[row], *lengths, strict=False)
            return next((line for line, a, b in pairs if a != b), reading.end_of(row))
    return reading.end_of(row)


def _wrong_sequence(lines: Lines, header: Header) -> InputError:
    spans, missing = _runs(lines, header)
    last = spans[-1]
    if missing:
        name = relaxed_name(lines.text[last.start])[0]
        return _taxon_error(lines, header, name, _so_far(lines, last, header, missing), last[-1])
    if len(spans) < header.taxa:
        return _wrong_taxa(lines, header, len(spans), last[-1])
    message = f"more lines follow the last of the {header.taxa} taxa that the header says"
    hint = "correct the first line, or put each alignment into a file of its own"
    return lines.error(message, last.stop, hint=hint)


def _so_far(lines: Lines, span: range, header: Header, missing: int) -> str:
    """Text on the place where a taxon's sites exceed the header's number, or fall short."""
    total = header.sites - missing
    if missing > 0 or len(span) == 1:
        return f"has {total}"
    before = total - lines.lengths[span[-1]]
    return f"has {before} up to line {lines.numbers[span[-2]]} and {total} with the next"


def _taxon_error(lines: Lines, header: Header, name: bytes, problem: str, line: int) -> InputError:
    taxon = name.decode("utf-8", "replace")
    message = f"the header says {header.sites} sites, but taxon {taxon} {problem}"
    hint = "every row must be as long as the header says"
    return lines.error(message, line, taxon=taxon, hint=hint)


# Clustal: a line that says so, then blocks of ``name sequence [count]`` and a line of marks. Every
# block has every name, in the same order. The count, of the row's letters so far, tells a truncated
# or edited file.

MARKS = b" *:.\t\r"
"""Marks below a Clustal block: conservation of its columns."""

GAPS = b"-."


def clustal_rows(lines: Lines) -> SequenceRows:
    """The alignment of a file.

    Raises:
        InputError: a block lacks a name or has it elsewhere, a count is wrong, or a line is neither
            row nor marks.
    """
    rows = SequenceRows("Clustal")
    entries = [
        (n, line.split())
        for n, line in enumerate(lines.text)
        if n and not (line[:1] in b" \t" and not line.strip(MARKS))
    ]
    first: dict[bytes, int] = {}
    words = enumerate(fields[0] for _, fields in entries)
    n_names = next((n for n, word in words if first.setdefault(word, n) < n), len(entries))
    names = list(first)[:n_names]
    letters = dict.fromkeys(names, 0)
    for place, (n, fields) in enumerate(entries):
        expected = names[place % len(names)]
        if fields[0] != expected:
            raise _other_name(lines, n, fields[0], expected)
        if len(fields) not in (2, 3):
            raise lines.error("not a name, a sequence and perhaps a count", n)
        rows.add(fields[0], n, fields[1])
        letters[expected] += len(fields[1].translate(None, GAPS))
        if len(fields) == 3:
            _check_count(lines, n, fields[2], letters[expected])
    if entries and len(entries) % len(names):
        missing = names[len(entries) % len(names)].decode("utf-8", "replace")
        message = f"the last block has no {missing}"
        raise lines.error(message, entries[-1][0], hint="is it truncated?")
    return rows


def _other_name(lines: Lines, line: int, name: bytes, expected: bytes) -> InputError:
    shown, expected_name = (n.decode("utf-8", "replace") for n in (name, expected))
    hint = "all blocks need the same names in the same order"
    return lines.error(f"{shown} where {expected_name} is expected", line, hint=hint)


def _check_count(lines: Lines, line: int, count: bytes, letters: int) -> None:
    if not count.isdigit() or count.lstrip(b"0") != str(letters).encode().lstrip(b"0"):
        shown = count.decode("utf-8", "replace")
        message = f"the count says {shown}, but the row has {letters} letters so far"
        raise lines.error(message, line, hint="is the file edited or truncated?")


def stockholm_rows(lines: Lines) -> SequenceRows:
    """The one alignment of a file of Pfam, Rfam or HMMER.

    ``name sequence`` lines in one block or more, then ``//``; lines that begin with ``#`` are
    annotation. ``.`` is a gap here, never a repeated character (HMMER's manual: gaps in columns of
    insertions).

    Raises:
        InputError: it does not end, another one follows, or a line is neither row nor annotation.
    """
    rows = SequenceRows("Stockholm")
    ends = [n for n, line in enumerate(lines.text) if line.strip() == b"//"]
    if not ends:
        raise lines.error("the alignment does not end with //", -1, hint="is it truncated?")
    if ends[0] + 1 < len(lines.text):
        hint = "put each alignment into a file of its own"
        raise lines.error("another alignment begins", ends[0] + 1, hint=hint)
    for n, line in enumerate(lines.text[: ends[0]]):
        if line.startswith(b"#"):
            continue
        fields = line.split()
        if len(fields) != 2:
            raise lines.error("neither a name and a sequence nor annotation (#=G…)", n)
        rows.add(fields[0], n, fields[1].replace(b".", b"-"))
    return rows


# Files as written here are read back by :func:`mltree.data.alignments.read_alignment` and by the
# programs that the formats come from.

LINE = 60
"""Characters of a sequence in a line of FASTA, interleaved PHYLIP and NEXUS; a multiple of ten."""

ENDINGS = {
    **dict.fromkeys((".phy", ".phylip"), "phylip"),
    **dict.fromkeys((".fasta", ".fas", ".fa", ".faa", ".fna"), "fasta"),
    **dict.fromkeys((".nex", ".nexus"), "nexus"),
}
"""The format that a file's name ends in."""

_NEXUS_WORD = re.compile(r"[A-Za-z0-9_.]+")
"""Names that are one word in NEXUS without quotes; - and others are marks there."""

Rows = Sequence[tuple[str, bytes]]
"""Names and sequences, all of one length."""


def write_alignment(
    names: Sequence[str], characters: UInt8, alphabet: Alphabet, file_format: str
) -> bytes:
    """The text of an alignment, u8 [T, sites] of ASCII, in one of :data:`FORMATS`.

    Raises: InputError: the format cannot have its names.
    """
    rows = [(name, row.tobytes()) for name, row in zip(names, characters, strict=True)]
    return b"\n".join(FORMATS[file_format](rows, alphabet)) + b"\n"


def format_of(path: str) -> str:
    """The format for a path's ending, compression aside.

    Raises: InputError: it stands for none.
    """
    for ending, file_format in ENDINGS.items():
        if path.lower().removesuffix(".gz").endswith(ending):
            return file_format
    hint = f"known: {' '.join(ENDINGS)}, and .gz behind them; or name it with --format"
    raise InputError(f"{path}: the file name does not show the format", hint=hint)


def _header(rows: Rows) -> bytes:
    return b"%d %d" % (len(rows), len(rows[0][1]))


def _padded(rows: Rows) -> list[bytes]:
    names = [name.encode() for name, _ in rows]
    width = max(map(len, names)) + 2
    return [name.ljust(width) for name in names]


def _relaxed(rows: Rows, _: Alphabet) -> Iterator[bytes]:
    """A line a taxon: the name, blanks, the sequence."""
    yield _header(rows)
    for name, (_name, sequence) in zip(_padded(rows), rows, strict=True):
        yield name + spelled(sequence)


def _blockwise(rows: Rows, _: Alphabet) -> Iterator[bytes]:
    """Blocks of :data:`LINE` sites; the names are in the first."""
    names = _padded(rows)
    yield _header(rows)
    for start in range(0, len(rows[0][1]), LINE):
        if start:
            yield b""
        for name, (_name, sequence) in zip(names, rows, strict=True):
            head = name if start == 0 else b" " * len(names[0])
            yield head + b" ".join(map(spelled, _cut(sequence[start : start + LINE], 10)))


def _strict(rows: Rows, _: Alphabet) -> Iterator[bytes]:
    """Names of just ten characters, as PHYLIP's own programs want them."""
    for name, _sequence in rows:
        if len(name.encode()) > STRICT_NAME_WIDTH:
            width = f"the {STRICT_NAME_WIDTH} characters of a strict PHYLIP name"
            hint = "write relaxed PHYLIP, or rename the taxon"
            raise InputError(f"{name!r} is longer than {width}", taxon=name, hint=hint)
    yield _header(rows)
    for name, sequence in rows:
        yield name.encode().ljust(STRICT_NAME_WIDTH) + spelled(sequence)


def _fasta(rows: Rows, _: Alphabet) -> Iterator[bytes]:
    for name, row in rows:
        yield b">" + name.encode()
        yield from map(spelled, _cut(row, LINE))


def _nexus(rows: Rows, alphabet: Alphabet) -> Iterator[bytes]:
    """A DATA block, which every program that reads NEXUS knows."""
    sequences = ((b"DNA", DNA), (b"PROTEIN", PROTEIN))
    datatype = next((word for word, of in sequences if alphabet.is_spelled_as(of)), b"STANDARD")
    words = [(_nexus_word(name), sequence) for name, sequence in rows]
    sizes = b"  DIMENSIONS NTAX=%d NCHAR=%d;" % (len(rows), len(rows[0][1]))
    form = b"  FORMAT DATATYPE=%s MISSING=? GAP=-;" % datatype
    yield from (b"#NEXUS", b"BEGIN DATA;", sizes, form, b"  MATRIX")
    for name, (_name, sequence) in zip(_padded(words), rows, strict=True):
        yield b"    " + name + spelled(sequence)
    yield from (b"  ;", b"END;")


def _nexus_word(name: str) -> str:
    return name if _NEXUS_WORD.fullmatch(name) else "'" + name.replace("'", "''") + "'"


def _cut(sequence: bytes, width: int) -> Iterator[bytes]:
    return (sequence[start : start + width] for start in range(0, len(sequence), width))


FORMATS: dict[str, Callable[[Rows, Alphabet], Iterator[bytes]]] = {
    "phylip": _relaxed,
    "phylip-strict": _strict,
    "phylip-interleaved": _blockwise,
    "fasta": _fasta,
    "nexus": _nexus,
}
"""Writers by name. ``phylip`` is relaxed and sequential: names of any length, a line a taxon."""
