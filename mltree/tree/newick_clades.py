"""Whole files of Newick trees as clades, by array operations over their text.

The marks ``( ) , : ;`` of a text say all about its trees. Text with quotes or comments, whose marks
may be part of a name, goes through :mod:`mltree.tree.newick_text` first; it is also what names the
error of a text that is no tree.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np

from mltree.arrays import Bool, Float64, Index, Int32
from mltree.errors import InputError
from mltree.tree.clades import Clades
from mltree.tree.newick import listed
from mltree.tree.newick_text import MAX_LENGTH, raw_trees, text_of
from mltree.values import Value

__all__ = ["read_clades", "read_gene_trees", "read_labelled"]

PIECE = 1 << 22
"""Bytes of text that are looked at together: their arrays take some 30 times as much."""

OPEN, CLOSE, COMMA, COLON, SEMICOLON = b"(),:;"
_IS_MARK = np.isin(np.arange(256), list(b"(),:;"))
_IN_NUMBERS = np.isin(np.arange(256), list(b"0123456789+-.eE \t\n\r\v\f"))
_BLANK = 32
"""The last of ASCII's blanks and control characters."""


def read_clades(source: str | Path, like: Clades | None = None, origin: str = "") -> Clades:
    """Every tree of a Newick file or text; their taxa are numbered as in the first one.

    source  a path, or the text itself; see ``mltree.tree.newick.read_newick``
    like    trees whose taxa these must have, and whose numbers they get
    origin  what ``like`` was read from, for messages
    Raises: InputError for a broken file, and for trees whose taxa are not the same.
    """
    text, file = text_of(source)
    reader = _Reader(text, file, like.taxa if like else None, origin if like else "the first tree")
    pieces = [reader.clades(piece) for piece in _pieces(text, file)]
    if not pieces:
        raise InputError("no tree in it", file=file, hint="a Newick tree ends with ';'")
    assert reader.taxa is not None
    return Clades.joined(reader.taxa, pieces)


def read_gene_trees(source: str | Path) -> Iterator[Clades]:
    """Every tree of a Newick file or text, each over the taxa that it happens to have.

    Raises: InputError for a broken file.
    """
    text, file = text_of(source)
    for piece in _pieces(text, file, size=1):
        yield _Reader(text, file, None, "").clades(piece)


def read_labelled(source: str | Path) -> tuple[Clades, list[str]]:
    """The first tree of a Newick file or text, and the label of each of its clades or ``""``.

    Raises: InputError for a broken file.
    """
    text, file = text_of(source)
    for piece in _pieces(text, file, size=1):
        reader = _Reader(text, file, None, "")
        return reader.clades(piece), reader.labels(piece)
    raise InputError("no tree in it", file=file, hint="a Newick tree ends with ';'")


class _Piece(Value):
    """The text of whole trees, with nothing in it but marks, names and numbers."""

    text: bytes
    line: int
    """Where it begins in the file."""
    names: Sequence[str] | None
    """What the names of the text are numbers into; None where they are names."""

    def name(self, label: bytes) -> str:
        """A name that is written so."""
        if self.names is None:
            return " ".join(label.decode().split())
        return self.names[int(label)] if label else ""


def _pieces(text: str, file: str | None, size: int = PIECE) -> Iterator[_Piece]:
    """Whole trees, of so many bytes together or a single one."""
    if any(mark in text for mark in "[]'\""):
        for raw in raw_trees(text, file, signed=True):
            yield _Piece(raw.text.encode(), raw.line, raw.names)
        return
    content = text.encode()
    line = 1
    start, end = 0, len(content)
    while start < end:
        stop = content.find(b";", min(start + size, end) - 1) + 1 or end
        piece = content[start:stop]
        if not piece.isspace():
            yield _Piece(piece, line, None)
        line += piece.count(b"\n")
        start = stop


class _Marks:
    """The marks of a piece; "gap" k is what stands between mark k-1 and mark k."""

    def __init__(self, text: bytes) -> None:
        self.codes = np.frombuffer(text, np.uint8)
        self.end: Index = np.flatnonzero(_IS_MARK[self.codes])
        self.mark = self.codes[self.end]
        """uint8: the mark at the end of each gap."""
        self.start: Index = np.concatenate(([0], self.end[:-1] + 1))
        self.before = np.concatenate(([SEMICOLON], self.mark[:-1])).astype(np.uint8)
        """uint8: the mark in front of each gap."""
        self.is_filled = self._count(self.codes > _BLANK) > 0
        step = (self.mark == OPEN).astype(np.int32) - (self.mark == CLOSE)
        self.depth: Int32 = np.cumsum(step, dtype=np.int32)

    def _count(self, counted: Bool) -> Int32:
        """int32: bytes in each gap that count."""
        total = np.concatenate(([0], np.cumsum(counted, dtype=np.int32)))
        return total[self.end] - total[self.start]

    @cached_property
    def is_tip(self) -> Bool:
        """Gaps that are the name of a tip."""
        follows = (self.before == OPEN) | (self.before == COMMA)
        alone = (self.before == SEMICOLON) & self.is_filled
        is_tip: Bool = (follows | alone) & (self.mark != OPEN)
        return is_tip

    @cached_property
    def tree(self) -> Int32:
        """int32: the tree that each gap belongs to."""
        return np.cumsum(self.before == SEMICOLON, dtype=np.int32) - 1

    def are_sound(self) -> bool:
        """Whether they are trees, as far as marks can tell."""
        if not self.mark.size or self.mark[-1] != SEMICOLON:
            return False
        opens, filled = self.mark == OPEN, self.is_filled
        length = self.before == COLON
        first = self.before == SEMICOLON
        wrong = (
            (opens & (filled | length | (self.before == CLOSE)))
            | (length & (~filled | (self.mark == COLON)))
            | (first & ~opens & ~filled)
            | (self.depth < 0)
            | ((self.mark == COMMA) & (self.depth == 0))
            | ((self.mark == SEMICOLON) & (self.depth != 0))
            | (length & (self._count(~_IN_NUMBERS[self.codes]) > 0))
        )
        return not wrong.any() and self.codes[self.end[-1] + 1 :].max(initial=0) <= _BLANK

    def pairs(self) -> tuple[Index, Index]:
        """The opening and the closing mark of every clade, by closing marks."""
        opening = np.flatnonzero(self.mark == OPEN)
        closing = np.flatnonzero(self.mark == CLOSE)
        # Of one depth they come in turns.
        opens = np.empty_like(closing)
        rank = np.argsort(self.depth[closing], kind="stable")
        opens[rank] = opening[np.argsort(self.depth[opening], kind="stable")]
        return opens, closing


@dataclass
class _Reader:
    """Turns pieces into clades of the same taxa."""

    text: str
    file: str | None
    taxa: tuple[str, ...] | None
    origin: str

    def clades(self, piece: _Piece) -> Clades:
        """The trees of one piece."""
        marks = _Marks(piece.text)
        if not marks.are_sound():
            raise self._broken(piece)
        length = self._lengths(piece, marks)
        tips = np.flatnonzero(marks.is_tip)
        order = self._taxa(piece, marks, tips)
        n_trees, n_tips = order.shape
        seen = np.cumsum(marks.is_tip)
        opening, closing = marks.pairs()
        first, last = seen[opening], seen[closing]
        proper = last - first < n_tips
        tree = marks.tree[closing]
        skip = tree * n_tips
        return Clades(
            self.taxa or (),
            order,
            length[tips].reshape(n_trees, n_tips),
            tree[proper],
            (first - skip)[proper].astype(np.int32),
            (last - skip)[proper].astype(np.int32),
            length[closing + 1][proper],
        )

    def labels(self, piece: _Piece) -> list[str]:
        """Of the clades of a piece, in their order."""
        marks = _Marks(piece.text)
        opening, closing = marks.pairs()
        seen = np.cumsum(marks.is_tip)
        proper = seen[closing] - seen[opening] < len(self.taxa or ())
        return [piece.name(label) for label in _cut(piece.text, marks, closing[proper] + 1)]

    def _lengths(self, piece: _Piece, marks: _Marks) -> Float64:
        """float64: the length behind the label in each gap; NaN where there is none."""
        gaps = np.flatnonzero(marks.before == COLON)
        lengths = np.full(marks.mark.size, np.nan)
        try:
            lengths[gaps - 1] = [float(text) for text in _cut(piece.text, marks, gaps)]
        except ValueError:
            raise self._broken(piece) from None
        if (abs(lengths[gaps - 1]) > MAX_LENGTH).any():
            raise self._broken(piece)
        return lengths

    def _taxa(self, piece: _Piece, marks: _Marks, tips: Index) -> Int32:
        """int32 [trees, T]: the taxa of the tips."""
        labels = _cut(piece.text, marks, tips)
        starts = np.searchsorted(marks.tree[tips], np.arange(marks.tree[-1] + 2))
        if self.taxa is None:
            self.taxa = tuple(map(piece.name, labels[: starts[1]]))
        number = {name: taxon for taxon, name in enumerate(self.taxa)}
        known = {label: number.get(piece.name(label), -1) for label in set(labels)}
        taxa = np.array([known[label] for label in labels], dtype=np.int32)
        n_tips = len(self.taxa)
        if (np.diff(starts) == n_tips).all() and "" not in number:
            order = taxa.reshape(-1, n_tips)
            if (np.sort(order, axis=1) == np.arange(n_tips)).all():
                return order
        for tree, (start, stop) in enumerate(pairwise(starts)):
            gap = np.searchsorted(marks.tree, tree)
            self._compare([piece.name(label) for label in labels[start:stop]], piece, marks, gap)
        raise AssertionError("unlike taxa, in no tree")

    def _compare(self, names: list[str], piece: _Piece, marks: _Marks, gap: np.intp) -> None:
        """Raise an error for a tree, which begins at that gap, that has not just the taxa."""
        taxa, seen = self.taxa or (), set[str]()
        before = piece.text[: int(marks.end[gap])]
        margin = piece.text[marks.start[gap] : marks.end[gap]]
        line = piece.line + before.count(b"\n") - margin.lstrip().count(b"\n")
        for name in names:
            if not name:
                raise InputError("a tip without a name", file=self.file, line=line)
            if name in seen:
                problem = f"taxon {name!r} is in the tree twice"
                raise InputError(problem, file=self.file, line=line, taxon=name)
            seen.add(name)
        extra = [name for name in names if name not in taxa]
        lost = [name for name in taxa if name not in seen]
        for unlike, where in ((lost, f"in {self.origin} but not in this one"),
                              (extra, f"in this tree but not in {self.origin}")):  # fmt: skip
            if unlike:
                problem = f"{listed(unlike)} {where}"
                raise InputError(problem, file=self.file, line=line, taxon=unlike[0])

    def _broken(self, piece: _Piece) -> InputError:
        """What is wrong with a text that is no tree; see :mod:`mltree.tree.newick_text`."""
        try:
            for _ in raw_trees(self.text, self.file, signed=True):
                pass
        except InputError as error:
            return error
        return InputError("broken Newick tree", file=self.file, line=piece.line)


def _cut(text: bytes, marks: _Marks, gaps: Index) -> list[bytes]:
    """The text in some gaps."""
    starts, ends = marks.start[gaps].tolist(), marks.end[gaps].tolist()
    return [text[start:end] for start, end in zip(starts, ends, strict=True)]
