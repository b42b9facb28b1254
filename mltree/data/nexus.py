"""NEXUS (Maddison, Swofford & Maddison 1997, Syst. Biol. 46:590-621): a DATA or CHARACTERS block.

Read are DIMENSIONS, FORMAT (DATATYPE, GAP, MISSING, MATCHCHAR, INTERLEAVE) and MATRIX, with
comments in square brackets, names in quotes and sets of states such as ``{AG}`` in DNA; what else
changes what a character means (EQUATE, TRANSPOSE, NOLABELS, TOKENS, ITEMS, ...) is refused, and so
is in every block what takes sites or taxa out, weighs them or orders their states
(:func:`mltree.data.parts.unheeded`). Charsets and partitions are told of, not used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from mltree.data.alphabet import SYMBOLS
from mltree.data.formats import Lines, SequenceRows
from mltree.data.parts import UNHEEDED, unheeded
from mltree.system.errors import InputError
from mltree.system.values import Value

BLOCKS = (b"DATA", b"CHARACTERS")

STANDARD = "STANDARD"
"""Binary and multistate characters, of as many states as there are."""

DATATYPES = {
    **dict.fromkeys((b"DNA", b"RNA", b"NUCLEOTIDE"), "DNA"),
    b"PROTEIN": "AA",
    STANDARD.encode(): STANDARD,
}

HARMLESS = {
    b"NOTOKENS": (b"",),
    b"TOKENS": (b"NO",),
    b"TRANSPOSE": (b"NO",),
    b"LABELS": (b"", b"YES", b"LEFT"),
    b"ITEMS": (b"STATES", b"(STATES)"),
    b"STATESFORMAT": (b"STATESPRESENT",),
}
"""Words of FORMAT that say with these values what is so anyhow; with others they are refused."""

CHARACTERS = {b"GAP": "gap", b"MISSING": "missing", b"MATCHCHAR": "match"}
"""Words of FORMAT that name a character."""

INTERLEAVED = {b"": True, b"YES": True, b"NO": False}

PARTS = (b"CHARSET", b"CHARPARTITION", b"PARTITION")
"""Commands that cut the alignment in parts."""

IUPAC = {
    "AC": "M", "AG": "R", "AT": "W", "CG": "S", "CT": "Y", "GT": "K",
    "ACG": "V", "ACT": "H", "AGT": "D", "CGT": "B", "ACGT": "N",
}  # fmt: skip
"""IUPAC's letters by sets of nucleotides."""

_SET = re.compile(rb"[{(]([A-Za-z0-9\s,]*)[})]")
_ASSIGNMENT = re.compile(rb"([A-Za-z]+)(?:\s*=\s*(\"[^\"]*\"|'[^']*'|\S+))?")
_BEGIN = re.compile(rb"BEGIN\s+(\w+)\Z")
_BRACKETS = re.compile(rb"([\[\]]|(?<![^\s,=(])'(?:[^']|'')*'(?!\S))")
"""Pattern of the pieces of a line: brackets, and quoted names with the brackets in them."""
_NAME = re.compile(rb"\s*(?:'((?:[^']|'')*)'|(\S+))")


class _Command(Value):
    """A command up to its semicolon: first word in capitals, and the rest by line."""

    word: bytes
    lines: list[tuple[int, bytes]]
    """Indices of lines, and what they have of it, without comments."""

    @property
    def text(self) -> bytes:
        return b" ".join(part for _, part in self.lines).strip()

    @property
    def start(self) -> int:
        return self.lines[0][0]


@dataclass
class _Format:
    """Contents of the commands FORMAT and DIMENSIONS."""

    taxa: int | None = None
    sites: int | None = None
    datatype: str | None = None
    gap: bytes = b""
    missing: bytes = b"?"
    match: bytes = b""
    symbols: bytes | None = None
    respects_case: bool = False
    is_interleaved: bool = False


def nexus_rows(lines: Lines) -> SequenceRows:
    """The matrix of a file's one DATA or CHARACTERS block.

    Raises:
        InputError: there is none, or more than one; it has what is not read, or does not fit what
            the file says of itself.
    """
    block: bytes | None = None
    form = _Format()
    rows: SequenceRows | None = None
    has_parts = False
    for command in _commands(lines):
        _refuse_unheeded(lines, command)
        has_parts |= command.word in PARTS
        begin = _BEGIN.match(command.word + b" " + command.text.upper())
        if begin is not None:
            block = begin[1]
        elif command.word in (b"END", b"ENDBLOCK"):
            block = None
        elif command.word == b"DIMENSIONS" and (block in BLOCKS or block == b"TAXA"):
            _take_dimensions(lines, command, form)
        elif command.word == b"FORMAT" and block in BLOCKS:
            _take_format(lines, command, form)
        elif command.word == b"MATRIX" and block in BLOCKS:
            if rows is not None:
                hint = "give one alignment a file"
                raise lines.error("another alignment begins", command.start, hint=hint)
            rows = _matrix(lines, command, form)
    if rows is None:
        raise lines.error("no DATA or CHARACTERS block with a MATRIX", 0)
    rows.has_parts = has_parts
    return rows


def _refuse_unheeded(lines: Lines, command: _Command) -> None:
    word, text = (part.decode("utf-8", "replace") for part in (command.word, command.text))
    if (problem := unheeded(word, text)) is not None:
        raise lines.error(problem, command.start, hint=UNHEEDED)


def _commands(lines: Lines) -> Iterator[_Command]:
    """The commands behind ``#NEXUS``; a file that ends within one is truncated."""
    collected: list[tuple[int, bytes]] = []
    for n, line in _without_comments(lines):
        rest = line
        while (end := _semicolon(rest)) >= 0:
            collected.append((n, rest[:end]))
            if (command := _command(collected)) is not None:
                yield command
            collected, rest = [], rest[end + 1 :]
        if rest.strip():
            collected.append((n, rest))
    if collected:
        raise lines.error("no ';' ends this command", collected[0][0], hint="is it truncated?")


def _command(collected: list[tuple[int, bytes]]) -> _Command | None:
    """The command in some lines; None for blank lines."""
    kept = [(n, part) for n, part in collected if part.strip()]
    if not kept:
        return None
    (first, head), *others = kept
    word, _, rest = head.strip().replace(b"\t", b" ").partition(b" ")
    return _Command(word.upper(), [(first, rest), *others])


def _semicolon(text: bytes) -> int:
    """Index of the first semicolon outside quotes; -1 without any."""
    quoted = False
    for place in range(len(text)) if b"'" in text else ():
        character = text[place : place + 1]
        if character == b"'":
            quoted = not quoted
        elif character == b";" and not quoted:
            return place
    return -1 if b"'" in text else text.find(b";")


def _without_comments(lines: Lines) -> Iterator[tuple[int, bytes]]:
    """The lines behind the first word, without comments, which may be nested."""
    depth, opened = 0, 0
    for n, line in enumerate(lines.text):
        text = line.lstrip()[len(b"#NEXUS") :] if n == 0 else line
        kept = b""
        for part in _BRACKETS.split(text):
            if part == b"[":
                opened = n if depth == 0 else opened
                depth += 1
            elif part == b"]" and depth:
                depth -= 1
            elif not depth:
                kept += part
        yield n, kept
    if depth:
        raise lines.error("no ']' ends this comment", opened)


def _assignments(command: _Command) -> Iterator[tuple[bytes, bytes]]:
    """``NTAX=4`` as its name in capitals and its value."""
    for match in _ASSIGNMENT.finditer(command.text):
        yield match[1].upper(), (match[2] or b"").strip(b"\"'")


def _take_dimensions(lines: Lines, command: _Command, form: _Format) -> None:
    for name, value in _assignments(command):
        if name in (b"NTAX", b"NCHAR"):
            if not re.fullmatch(rb"[0-9]{1,11}", value):
                raise lines.error(f"{name.decode()} is no number", command.start)
            if name == b"NTAX":
                form.taxa = int(value)
            else:
                form.sites = int(value)


def _take_format(lines: Lines, command: _Command, form: _Format) -> None:
    for name, value in _assignments(command):
        if name == b"DATATYPE":
            form.datatype = _datatype(lines, command, value)
        elif name == b"INTERLEAVE" and value.upper() in INTERLEAVED:
            form.is_interleaved = INTERLEAVED[value.upper()]
        elif name in CHARACTERS:
            if len(value) != 1:
                raise lines.error(f"{name.decode()} is to be one character", command.start)
            setattr(form, CHARACTERS[name], value)
        elif name == b"SYMBOLS":
            form.symbols = b"".join(value.split())
        elif name == b"RESPECTCASE":
            form.respects_case = True
        elif value.upper() not in HARMLESS.get(name, ()):
            raise _unread(lines, command, name, value)
    if form.datatype == STANDARD:
        _check_symbols(lines, command, form)


def _datatype(lines: Lines, command: _Command, value: bytes) -> str:
    if value.upper() not in DATATYPES:
        shown = value.decode("utf-8", "replace")
        hint = f"{', '.join(known.decode() for known in DATATYPES)} are"
        raise lines.error(f"DATATYPE={shown} is not read", command.start, hint=hint)
    return DATATYPES[value.upper()]


def _unread(lines: Lines, command: _Command, name: bytes, value: bytes) -> InputError:
    has_usual_value = value and name in (*HARMLESS, b"INTERLEAVE")
    shown = (name + b"=" + value if has_usual_value else name).decode("utf-8", "replace")
    return lines.error(f"{shown} in FORMAT is not read", command.start)


def _check_symbols(lines: Lines, command: _Command, form: _Format) -> None:
    """Check that symbols stand for the states that mltree takes them for."""
    hint = "recode the states as 0, 1, 2, ... (after 9 come A, B, ...)"
    if form.respects_case:
        message = "RESPECTCASE in FORMAT: a and A are one state here"
        raise lines.error(message, command.start, hint=hint)
    if form.symbols is None:
        return
    text = form.symbols.decode("utf-8", "replace").upper()
    text = re.sub("([0-9A-Z])~([0-9A-Z])", _range_of_symbols, text)
    if not SYMBOLS.startswith(text):
        message = f'SYMBOLS="{text}" in FORMAT: the states are not in the order that they have here'
        raise lines.error(message, command.start, hint=hint)


def _range_of_symbols(match: re.Match[str]) -> str:
    """Expand ``0~3`` to 0123."""
    first, last = (SYMBOLS.index(symbol) for symbol in match.groups())
    return SYMBOLS[first : last + 1] or match[0]


def _matrix(lines: Lines, command: _Command, form: _Format) -> SequenceRows:
    """The rows in common symbols, with the number and length that the file declares."""
    rows = SequenceRows("NEXUS interleaved" if form.is_interleaved else "NEXUS", form.datatype)
    body = [(n, part) for n, part in command.lines if part.strip()]
    if form.is_interleaved:
        _read_blocks(lines, body, rows)
    else:
        _read_in_turn(lines, body, rows, form, command.start)
    _check_size(lines, rows, form, command.start)
    _translate(rows, form, lines)
    return rows


def _split_name(lines: Lines, n: int, text: bytes) -> tuple[bytes, bytes]:
    """A name, quoted or not, and what follows it."""
    match = _NAME.match(text)
    assert match is not None, "the line is not blank"
    if match[1] is None and match[2].startswith(b"'"):
        raise lines.error("a quoted name does not end", n)
    name = match[2] if match[1] is None else match[1].replace(b"''", b"'")
    return name, text[match.end() :]


def _residues(lines: Lines, n: int, text: bytes, datatype: str | None) -> bytes:
    """Characters of a line: no white space, sets of nucleotides as IUPAC's letters."""

    def letter(match: re.Match[bytes]) -> bytes:
        states = "".join(sorted(set(match[1].decode().upper().replace("U", "T")) - set(" ,\t")))
        if len(states) != 1 and (datatype in ("AA", STANDARD) or states not in IUPAC):
            shown = match[0].decode()
            hint = "a tip has one state or any: write ? for it" if datatype == STANDARD else ""
            raise lines.error(f"the set {shown} has no letter of its own", n, hint=hint)
        return (states if len(states) == 1 else IUPAC[states]).encode()

    return b"".join(_SET.sub(letter, text).split())


def _read_blocks(lines: Lines, body: list[tuple[int, bytes]], rows: SequenceRows) -> None:
    """Read lines that are a name and a piece each."""
    for n, text in body:
        name, rest = _split_name(lines, n, text)
        rows.add(name, n, _residues(lines, n, rest, rows.datatype))


def _read_in_turn(
    lines: Lines, body: list[tuple[int, bytes]], rows: SequenceRows, form: _Format, start: int
) -> None:
    """Read a name and lines of sequence until there are NCHAR characters."""
    if form.sites is None:
        raise lines.error("no DIMENSIONS with NCHAR before the MATRIX", start)
    name: bytes | None = None
    length = 0
    for n, text in body:
        rest = text
        if name is None:
            name, rest = _split_name(lines, n, text)
            if name in rows.pieces:
                raise _comes_again(lines, n, name)
            length = 0
        piece = _residues(lines, n, rest, rows.datatype)
        rows.add(name, n, piece)
        length += len(piece)
        if length > form.sites:
            raise _wrong_length(lines, n, name, length, form.sites)
        if length == form.sites:
            name = None


def _comes_again(lines: Lines, n: int, name: bytes) -> InputError:
    shown = name.decode("utf-8", "replace")
    hint = "an interleaved matrix needs INTERLEAVE in FORMAT"
    return lines.error(f"taxon {shown} comes a second time", n, hint=hint)


def _wrong_length(lines: Lines, n: int, name: bytes, length: int, sites: int) -> InputError:
    shown = name.decode("utf-8", "replace")
    hint = "every row must be as long as DIMENSIONS say; an interleaved matrix needs INTERLEAVE"
    return lines.error(f"taxon {shown} has {length} sites, but NCHAR is {sites}", n, hint=hint)


def _check_size(lines: Lines, rows: SequenceRows, form: _Format, start: int) -> None:
    sites = form.sites
    for name, pieces in rows.pieces.items():
        length = sum(len(piece) for _, piece in pieces)
        if sites is not None and length != sites:
            raise _wrong_length(lines, pieces[-1][0], name, length, sites)
    if form.taxa is not None and len(rows.pieces) != form.taxa:
        message = f"NTAX is {form.taxa}, but the MATRIX has {len(rows.pieces)} taxa"
        raise lines.error(message, start)


def _translate(rows: SequenceRows, form: _Format, lines: Lines) -> None:
    """Replace GAP by ``-``, MISSING by ``?`` and MATCHCHAR by the first row's character."""
    gaps, unknown = ({c.lower(), c.upper()} - {b""} for c in (form.gap, form.missing))
    table = bytes.maketrans(b"".join([*gaps, *unknown]), b"-" * len(gaps) + b"?" * len(unknown))
    first: bytes | None = None
    for name, pieces in rows.pieces.items():
        whole = b"".join(piece for _, piece in pieces)
        if form.match and first is not None:
            whole = _matched(lines, pieces[0][0], whole, first, form.match)
        elif form.match and form.match in whole:
            raise lines.error("the first row has the MATCHCHAR itself", pieces[0][0])
        first = whole if first is None else first
        start = 0
        for place, (n, piece) in enumerate(pieces):
            end = start + len(piece)
            pieces[place] = n, whole[start:end].translate(table)
            start = end
        rows.pieces[name] = pieces


def _matched(lines: Lines, n: int, row: bytes, first: bytes, match: bytes) -> bytes:
    if len(row) > len(first):
        raise lines.error("a row is longer than the first, which MATCHCHAR refers to", n)
    code = match[0]
    return bytes(b if a == code else a for a, b in zip(row, first, strict=False))
