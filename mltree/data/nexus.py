"""NEXUS (Maddison, Swofford & Maddison 1997, Syst. Biol. 46:590-621): commands, and alignments.

The commands of all blocks are found here; comments in square brackets may be nested, and names in
quotes, which end on their line, may hold any mark. Other blocks are read where they belong: sets by
:mod:`mltree.data.parts`, trees by :mod:`mltree.tree.newick`.

Of a DATA or CHARACTERS block DIMENSIONS, FORMAT (DATATYPE, SYMBOLS, RESPECTCASE, GAP, MISSING,
MATCHCHAR, INTERLEAVE) and MATRIX are read, with sets of states such as ``{AG}`` or ``(01)``; what
else changes what a character means (EQUATE, TRANSPOSE, NOLABELS, TOKENS, ITEMS, ...) is refused,
and so is in every block what takes sites or taxa out, weighs them or orders their states. Charsets
and partitions are told of, not used.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import NamedTuple

from mltree.data.alphabet import SYMBOLS, spelled
from mltree.data.formats import Lines, SequenceRows, fold
from mltree.system.errors import InputError

QUOTED = r"""(?:'(?:[^'\n]|'')*'|"[^"\n]*")"""
"""Pattern of a name in quotes; two single quotes within are one."""

UNHEEDED = "remove the command, and the taxa or characters that it excludes or changes"
"""Hint for a command that is refused."""

_HEADER = re.compile(r"\s*#nexus\b", re.IGNORECASE)
_PIECE = re.compile(rf"\[[^\[\]]*\]|(?<![^\s,=:;()\[\]]){QUOTED}|[^;\['\"]+|.", re.DOTALL)
"""A comment with none in it, a name in quotes, text without marks, or a mark."""
_BRACKET = re.compile(r"[\[\]]")
_WORD = re.compile(r"[A-Za-z0-9_]*")

_LEFT_OUT = ("ELIMINATE", "ZAP", "EXCLUDE", "DELETE", "CTYPE", "WEIGHTS")
_STARRED = {"EXSET": "(?!)", "WTSET": r"1(\.0*)?", "TYPESET": "unord"}
"""Sets that are in force where they are starred, and the labels of sites that change nothing."""
_LABEL = re.compile(r"([^\s,:]+)\s*:")
_OPTION = re.compile(r"(DEFTYPE|GAPMODE|IGNORE)\s*=\s*([^\s;]+)", re.IGNORECASE)
_USUAL = {"UNORD", "MISSING", "NONE"}


class NexusCommand(NamedTuple):
    """A command of any block, up to its semicolon."""

    line: int
    """Line of the text that it begins on, from 0."""
    text: str
    """NexusCommand without comments, its lines kept."""
    comments: str
    is_ended: bool = True
    """False for text behind the last semicolon."""

    @property
    def word(self) -> str:
        """First word, in capitals."""
        match = _WORD.match(self.text)
        return match[0].upper() if match else ""

    @property
    def rest(self) -> str:
        """Text behind the first word."""
        return self.text[len(self.word) :]

    @property
    def block(self) -> str:
        """Name of the block that BEGIN begins, in capitals."""
        return "".join(self.rest.upper().split()[:1])

    @property
    def problem(self) -> str | None:
        """Reason to refuse a command that changes the data; None for any other command."""
        word = self.word
        if word in _LEFT_OUT:
            return f"{word} is not supported"
        if word in _STARRED and self.rest.lstrip().startswith("*"):
            body = self.rest.partition("=")[2]
            labels = _LABEL.findall(body) or body.split()
            if not all(re.fullmatch(_STARRED[word], label, re.IGNORECASE) for label in labels):
                return f"{word} *, which is in force, is not supported"
        for option in _OPTION.finditer(self.rest) if word == "OPTIONS" else ():
            if option[2].upper() not in _USUAL:
                return f"OPTIONS {option[0]} is not supported"
        return None


def is_nexus(text: str) -> bool:
    """True for a text that begins as NEXUS files do."""
    return _HEADER.match(text) is not None


def nexus_commands(
    text: str, file: str | None, *, numbers: Sequence[int] = range(1, sys.maxsize), gap: str = ""
) -> Iterator[NexusCommand]:
    """The commands of a text that begins with ``#NEXUS``.

    numbers  line numbers in the file, for messages
    gap      text in place of a comment, before the line feeds in the comment
    Raises: InputError: a comment does not end.
    """
    place = text.index("#") + len("#NEXUS")
    line = text.count("\n", 0, place)
    bare: list[str] = []
    comments: list[str] = []
    while match := _PIECE.match(text, place):
        piece = match[0]
        if piece == "[":
            piece = text[place : _comment_end(text, place, file, numbers)]
        if piece == ";":
            command = _command(line, bare, comments)
            yield command
            line, bare, comments = command.line + command.text.count("\n"), [], []
        elif piece[0] == "[":
            comments.append(piece)
            bare.append(gap + "\n" * piece.count("\n"))
        else:
            bare.append(piece)
        place += len(piece)
    if (command := _command(line, bare, comments)).text:
        yield command._replace(is_ended=False)


def _command(line: int, bare: list[str], comments: list[str]) -> NexusCommand:
    whole = "".join(bare)
    text = whole.lstrip()
    blank_lines = whole.count("\n", 0, len(whole) - len(text))
    return NexusCommand(line + blank_lines, text, "".join(comments))


def _comment_end(text: str, place: int, file: str | None, numbers: Sequence[int]) -> int:
    depth = 0
    for bracket in _BRACKET.finditer(text, place):
        depth += 1 if bracket[0] == "[" else -1
        if depth == 0:
            return bracket.end()
    line = numbers[text.count("\n", 0, place)]
    message, hint = "no ']' ends this comment", "write ] behind it"
    raise InputError(message, file=file, line=line, hint=hint)


# Alignments.

BLOCKS = ("DATA", "CHARACTERS")

STANDARD = "STANDARD"
"""Binary and multistate characters, of as many states as there are."""

DATATYPES = {
    **dict.fromkeys(("DNA", "RNA", "NUCLEOTIDE"), "DNA"),
    "PROTEIN": "AA",
    STANDARD: STANDARD,
}

HARMLESS = {
    "NOTOKENS": ("",),
    "TOKENS": ("NO",),
    "TRANSPOSE": ("NO",),
    "LABELS": ("", "YES", "LEFT"),
    "ITEMS": ("STATES", "(STATES)"),
    "STATESFORMAT": ("STATESPRESENT",),
}
"""Words of FORMAT that say with these values what is so anyhow; with others they are refused."""

MOST_SYMBOLS = SYMBOLS.index("(")
"""States of a file that has symbols of its own: beyond, brackets would be states."""

INTERLEAVED = {"": True, "YES": True, "NO": False}

PARTS = ("CHARSET", "CHARPARTITION", "PARTITION")
"""Commands that cut the alignment in parts."""

_ASSIGNMENT = re.compile(r"([A-Za-z]+)(?:\s*=\s*(\"[^\"]*\"|'[^']*'|\S+))?")
_NAME = re.compile(rb"\s*(?:'((?:[^']|'')*)'|(\S+))")


@dataclass
class _Format:
    """Contents of the commands FORMAT and DIMENSIONS."""

    sizes: dict[str, int] = field(default_factory=dict)
    """NTAX and NCHAR, where they are told."""
    characters: dict[str, bytes] = field(
        default_factory=lambda: {"GAP": b"", "MISSING": b"?", "MATCHCHAR": b""}
    )
    """Characters with a meaning; empty where there is none."""
    datatype: str | None = None
    symbols: dict[str, str] = field(default_factory=dict)
    """SYMBOLS and RESPECTCASE, where they are told."""
    recoded: dict[str, str] = field(default_factory=dict)
    """The symbol here of each state of the file, where they differ."""
    is_interleaved: bool = False


def nexus_rows(lines: Lines) -> SequenceRows:
    """The matrix of a file's one DATA or CHARACTERS block.

    Raises:
        InputError: there is none, or more than one; it has what is not read, or does not fit what
            the file says of itself.
    """
    block = ""
    form = _Format()
    rows: SequenceRows | None = None
    has_parts = False
    text = b"\n".join(lines.text).decode("latin-1")  # a character for each byte
    for command in nexus_commands(text, lines.path, numbers=lines.numbers):
        _refuse_unread(lines, command)
        word = command.word
        has_parts |= word in PARTS
        if word == "BEGIN":
            block = command.block
        elif word in ("END", "ENDBLOCK"):
            block = ""
        elif word == "DIMENSIONS" and block in (*BLOCKS, "TAXA"):
            _take_dimensions(lines, command, form)
        elif word == "FORMAT" and block in BLOCKS:
            _take_format(lines, command, form)
        elif word == "MATRIX" and block in BLOCKS:
            if rows is not None:
                hint = "put each alignment into a file of its own"
                raise lines.error("another alignment begins", command.line, hint=hint)
            rows = _matrix(lines, command, form)
    if rows is None:
        raise lines.error("no DATA or CHARACTERS block with a MATRIX", 0)
    rows.has_parts = has_parts
    return rows


def _refuse_unread(lines: Lines, command: NexusCommand) -> None:
    if not command.is_ended:
        raise lines.error("no ';' ends this command", command.line, hint="is it truncated?")
    if problem := command.problem:
        raise lines.error(problem, command.line, hint=UNHEEDED)


def _assignments(command: NexusCommand) -> Iterator[tuple[str, str]]:
    """``NTAX=4`` as its name in capitals and its value."""
    for match in _ASSIGNMENT.finditer(command.rest):
        yield match[1].upper(), (match[2] or "").strip("\"'")


def _take_dimensions(lines: Lines, command: NexusCommand, form: _Format) -> None:
    for name, value in _assignments(command):
        if name in ("NTAX", "NCHAR"):
            if not re.fullmatch(r"[0-9]{1,11}", value):
                raise lines.error(f"{name} is not a number", command.line)
            form.sizes[name] = int(value)


def _take_format(lines: Lines, command: NexusCommand, form: _Format) -> None:
    for name, value in _assignments(command):
        if name == "DATATYPE":
            form.datatype = DATATYPES.get(value.upper())
            if form.datatype is None:
                hint = f"{', '.join(DATATYPES)} are"
                raise lines.error(f"DATATYPE={value} is not read", command.line, hint=hint)
        elif name == "INTERLEAVE" and value.upper() in INTERLEAVED:
            form.is_interleaved = INTERLEAVED[value.upper()]
        elif name in form.characters:
            if len(value) != 1:
                raise lines.error(f"{name} is to be one character", command.line)
            form.characters[name] = value.encode("latin-1")
        elif name in ("SYMBOLS", "RESPECTCASE"):
            form.symbols[name] = value
        elif value.upper() not in HARMLESS.get(name, ()):
            shown = f"{name}={value}" if value and name in (*HARMLESS, "INTERLEAVE") else name
            raise lines.error(f"{shown} in FORMAT is not read", command.line)
    if form.datatype == STANDARD:
        _take_symbols(lines, command, form)


def _take_symbols(lines: Lines, command: NexusCommand, form: _Format) -> None:
    """Tell how states are written here: the first of SYMBOLS as 0, the next as 1, ..."""
    is_cased, text = "RESPECTCASE" in form.symbols, form.symbols.get("SYMBOLS", "")
    if is_cased and not text:
        hint = 'name the states, as in SYMBOLS="0 1 a A"'
        raise lines.error("RESPECTCASE without SYMBOLS in FORMAT", command.line, hint=hint)
    text = "".join(text.split() if is_cased else text.upper().split())
    text = re.sub("([0-9A-Za-z])~([0-9A-Za-z])", _range_of_symbols, text)
    if len(set(text)) < len(text) or len(text) > MOST_SYMBOLS:
        message = f'SYMBOLS="{text}" in FORMAT: not up to {MOST_SYMBOLS} different states'
        raise lines.error(message, command.line)
    form.recoded = {} if SYMBOLS.startswith(text) else dict(zip(text, SYMBOLS, strict=False))


def _range_of_symbols(match: re.Match[str]) -> str:
    first, last = map(ord, match.groups())
    return "".join(map(chr, range(first, last + 1))) or match[0]


def _recode(lines: Lines, n: int, text: bytes, form: _Format) -> bytes:
    """Characters of a line with the symbols that their states have here.

    Raises: InputError: one is no state of the file.
    """
    if not form.recoded:
        return text
    shown = text.decode("latin-1")
    if "RESPECTCASE" not in form.symbols:
        shown = shown.upper()
    marks = {character.decode("latin-1") for character in form.characters.values()}
    kept = {*"{}(), \t\r", *marks, *(mark.upper() for mark in marks)}
    for letter in shown:
        if letter not in form.recoded and letter not in kept:
            raise lines.error(f"{letter!r} is not one of SYMBOLS", n)
    return "".join(form.recoded.get(letter, letter) for letter in shown).encode("latin-1")


def _matrix(lines: Lines, command: NexusCommand, form: _Format) -> SequenceRows:
    rows = SequenceRows("NEXUS interleaved" if form.is_interleaved else "NEXUS", form.datatype)
    text = enumerate(command.rest.encode("latin-1").split(b"\n"), command.line)
    _read_rows(lines, [(n, line) for n, line in text if line.strip()], rows, form, command.line)
    for name, pieces in rows.pieces.items():
        _check_length(lines, pieces[-1][0], name, sum(len(piece) for _, piece in pieces), form)
    taxa = len(rows.pieces)
    if form.sizes.get("NTAX", taxa) != taxa:
        message = f"NTAX is {form.sizes['NTAX']}, but the MATRIX has {taxa} taxa"
        raise lines.error(message, command.line)
    _translate(lines, rows, form)
    changed = [f"{old} is {new}" for old, new in form.recoded.items() if old != new]
    if changed:
        rows.notices = (f"states are numbered as SYMBOLS lists them: {', '.join(changed)}",)
    return rows


def _read_rows(
    lines: Lines, body: list[tuple[int, bytes]], rows: SequenceRows, form: _Format, start: int
) -> None:
    """Read a name in every line, or a name and lines of sequence until there are NCHAR sites."""
    if not form.is_interleaved and "NCHAR" not in form.sizes:
        raise lines.error("no DIMENSIONS with NCHAR before the MATRIX", start)
    name: bytes | None = None
    length = 0
    for n, text in body:
        rest = text
        if name is None or form.is_interleaved:
            name, rest = _split_name(lines, n, text)
            if name in rows.pieces and not form.is_interleaved:
                hint = "an interleaved matrix needs INTERLEAVE in FORMAT"
                shown = name.decode("utf-8", "replace")
                raise lines.error(f"taxon {shown} comes a second time", n, hint=hint)
            length = 0
        piece = fold([_recode(lines, n, rest, form)])
        rows.add(name, n, piece)
        length += len(piece)
        if not form.is_interleaved and length >= form.sizes["NCHAR"]:
            _check_length(lines, n, name, length, form)
            name = None


def _split_name(lines: Lines, n: int, text: bytes) -> tuple[bytes, bytes]:
    match = _NAME.match(text)
    assert match is not None, "the line is not blank"
    if match[1] is None and match[2].startswith(b"'"):
        raise lines.error("a quoted name does not end", n)
    name = match[2] if match[1] is None else match[1].replace(b"''", b"'")
    return name, text[match.end() :]


def _check_length(lines: Lines, n: int, name: bytes, length: int, form: _Format) -> None:
    if length != form.sizes.get("NCHAR", length):
        shown, sites = name.decode("utf-8", "replace"), form.sizes["NCHAR"]
        hint = "every row must be as long as DIMENSIONS say; an interleaved matrix needs INTERLEAVE"
        raise lines.error(f"taxon {shown} has {length} sites, but NCHAR is {sites}", n, hint=hint)


def _translate(lines: Lines, rows: SequenceRows, form: _Format) -> None:
    """Replace GAP by ``-``, MISSING by ``?`` and MATCHCHAR by the first row's character."""
    gap, missing, match = (character.upper() for character in form.characters.values())
    gaps, unknown = ({c.lower(), c.upper()} - {b""} for c in (gap, missing))
    table = bytes.maketrans(b"".join([*gaps, *unknown]), b"-" * len(gaps) + b"?" * len(unknown))
    first: bytes | None = None
    for name, pieces in rows.pieces.items():
        row = b"".join(piece for _, piece in pieces)
        if match and first is None and match in row:
            raise lines.error("the first row has the MATCHCHAR itself", pieces[0][0])
        if match and first is not None:
            if len(row) > len(first):
                message = "a row is longer than the first, which MATCHCHAR refers to"
                raise lines.error(message, pieces[0][0])
            row = bytes(b if a == match[0] else a for a, b in zip(row, first, strict=False))
        first = row if first is None else first
        spans = pairwise(accumulate((len(piece) for _, piece in pieces), initial=0))
        rows.pieces[name] = [
            (n, spelled(row[start:end].translate(table)))
            for (n, _), (start, end) in zip(pieces, spans, strict=True)
        ]
