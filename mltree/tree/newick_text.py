"""Newick text: its tokens, its trees one by one in a form that ete3 cannot misread, its quoting.

ete3 knows neither comments nor doubled quotes nor ``.5``, and takes any text after a colon that
begins with a number. So names become numbers here, comments go, branch lengths are checked and
rewritten, and whatever is wrong is reported with its line.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mltree.alignment.source import unpacked
from mltree.errors import InputError
from mltree.numerals import decimal
from mltree.tree.nexus import is_nexus, newick_of

__all__ = ["MAX_LENGTH", "RawTree", "branch", "quoted", "raw_trees", "text_of"]

MAX_LENGTH = 1e300
"""Sums of longer branches may overflow."""

_TOKEN = re.compile(
    r"""(?P<space>\s+)
      | (?P<comment>\[[^\]]*\])
      | (?P<quoted>'(?:[^']|'')*'|"[^"]*")
      | (?P<mark>[(),:;])
      | (?P<bare>[^\s()\[\],:;'"][^()\[\],:;]*)
      | (?P<bad>.)""",
    re.VERBOSE,
)
_NOT_FINITE = re.compile(r"[+-]?(nan|inf|infinity)", re.IGNORECASE)
_FILE_NAME = re.compile(r"[^\n]*\.[A-Za-z][^\s();,]*")
"""Text that ends as file names do; Newick ends in a semicolon."""
_ALIGNMENT = re.compile(r"\s*(>|[0-9]+[ \t]+[0-9]+\s|CLUSTAL|# STOCKHOLM)")
"""How alignments begin, and no tree does."""
_NEEDS_QUOTES = re.compile(r"""[\s()\[\]{}:;,'"]""")


@dataclass
class RawTree:
    """One tree: the line it starts in and its text, where names are numbers into ``names``."""

    line: int
    text: str
    names: list[str]


def text_of(source: str | Path) -> tuple[str, str | None]:
    """The text, and the file it came from or None where the source is the text itself.

    The trees of a NEXUS file are given as Newick.

    Raises: InputError where a file cannot be read.
    """
    if isinstance(source, str) and _is_newick(source):
        return source, None
    file = os.fspath(source)
    try:
        text = unpacked(file).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError("not a text file", file=file) from None
    if _ALIGNMENT.match(text):
        raise InputError("an alignment, not a tree", file=file, hint="trees are Newick or NEXUS")
    return (newick_of(text, file) if is_nexus(text) else text), file


def _is_newick(source: str) -> bool:
    """Whether a text is Newick itself: no file has that name, and it does not look like one."""
    try:
        is_file = Path(source).exists()
    except (OSError, ValueError):  # too long for a name, or with a zero byte in it
        is_file = False
    if is_file or _FILE_NAME.fullmatch(source.strip()):
        return False
    return ";" in source or source.lstrip()[:1] in {"(", "["}


def raw_trees(text: str, file: str | None, *, signed: bool = False) -> Iterator[RawTree]:
    """Every tree of a text. Raises: InputError for what ete3 would misread, with its line.

    signed  branches may be shorter than nothing, as neighbour joining leaves them
    """
    scanner = _Scanner(file, -math.inf if signed else 0.0)
    for match in _TOKEN.finditer(text):
        token = match.group()
        if match.lastgroup not in {"space", "comment"}:
            scanner.take(str(match.lastgroup), token)
        scanner.line += token.count("\n")
        if scanner.parts and scanner.before == ";":
            yield scanner.finish()
    if scanner.parts:
        raise scanner.fail("the last tree does not end with ';'")


class _Scanner:
    """Collects the tokens of one tree after another."""

    def __init__(self, file: str | None, shortest: float) -> None:
        self.file = file
        self.shortest = shortest
        self.line = 1
        self.first_line = 1
        self.depth = 0
        self.before = ";"  # the latest mark, or "length" or "label" for anything else
        self.parts: list[str] = []
        self.names: list[str] = []

    def fail(self, problem: str) -> InputError:
        return InputError(problem, file=self.file, line=self.line)

    def take(self, kind: str, token: str) -> None:
        if not self.parts:
            self.first_line = self.line
        if kind == "bad":
            raise self.fail(f"unexpected {token!r}: a quote or bracket that is not closed?")
        if kind == "mark":
            self._mark(token)
        elif self.before == ":":
            self.parts.append(_length(token, self.shortest, self.fail))
        elif self.before in {"label", "length"}:
            raise self.fail(f"a comma is missing before {token.strip()!r}")
        else:
            self.parts.append(str(len(self.names)))
            self.names.append(_name(kind, token))
        is_length = kind != "mark" and self.before == ":"
        self.before = token if kind == "mark" else "length" if is_length else "label"

    def _mark(self, token: str) -> None:
        self.depth += (token == "(") - (token == ")")
        if self.depth < 0 or (token == ";" and self.depth):
            raise self.fail("parentheses do not match")
        if self.before == ":":
            raise self.fail(f"broken Newick tree: no branch length before {token!r}")
        if self.before == "length" and token == ":":
            raise self.fail("broken Newick tree: two branch lengths at a node")
        if token == "," and not self.depth:
            raise self.fail("a comma outside the parentheses")
        if token == "(" and self.before not in {";", "(", ","}:
            raise self.fail("a comma is missing before '('")
        self.parts.append(token)

    def finish(self) -> RawTree:
        tree = RawTree(self.first_line, "".join(self.parts), self.names)
        self.parts, self.names = [], []
        return tree


def _length(token: str, shortest: float, fail: Callable[[str], InputError]) -> str:
    try:
        value = math.inf if _NOT_FINITE.fullmatch(token.strip()) else decimal(token)
    except ValueError:
        raise fail(f"branch length {token.strip()!r} is not a number") from None
    if not (math.isfinite(value) and value >= shortest):
        wanted = "a finite number" + (" >= 0" if shortest == 0 else "")
        raise fail(f"branch length {token.strip()} is not {wanted}")
    if abs(value) > MAX_LENGTH:
        raise fail(f"a branch is longer than {MAX_LENGTH:g} (is it a length?)")
    return repr(value + 0.0)  # no sign in front of zero


def _name(kind: str, token: str) -> str:
    if kind == "bare":
        return " ".join(token.split())
    quote = token[0]
    return token[1:-1].replace(2 * quote, quote)


def quoted(name: str) -> str:
    """A name as Newick writes it: in single quotes where it holds a special character."""
    if name and not _NEEDS_QUOTES.search(name):
        return name
    return "'" + name.replace("'", "''") + "'"


def branch(length: float) -> str:
    """All of a length's digits, without an exponent; nothing where there is none (NaN)."""
    return "" if math.isnan(length) else ":" + np.format_float_positional(length, trim="-")
