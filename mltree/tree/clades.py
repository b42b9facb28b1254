"""Trees as they are written: every subtree is an interval of the tips in the order of the text.

For whatever looks at many trees and needs none of them binary: rooted or unrooted, with polytomies
and nodes of a single child. Whole files are read at once, without a loop over nodes.

Letters: n trees, T taxa, C clades, B = ceil(T/64) words.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mltree.system.arrays import Bool, Float64, Index, Int32
from mltree.system.errors import InputError
from mltree.system.values import Value, decimal
from mltree.tree.newick import MAX_LENGTH, RawTree, branch, listed, quoted, raw_trees, text_of
from mltree.tree.topology import NONE


class Clades(Value):
    """The clades of n trees over the same T taxa, tree after tree, each after what it holds."""

    taxa: tuple[str, ...]
    order: Int32
    """int32 [n, T]: the taxa of a tree as they are written, from left to right."""
    tip_lengths: Float64
    """float64 [n, T]: of the branches above them, in that order; NaN where there is none."""
    tree: Int32
    """int32 [C], rising: every inner node is a clade, but those that hold all taxa."""
    first: Int32
    """int32 [C]: a clade's first tip, a column of ``order``."""
    last: Int32
    """int32 [C]: the column after its last tip."""
    lengths: Float64
    """float64 [C]: of the branch above it; NaN where there is none."""

    @property
    def n_trees(self) -> int:
        """How many, n."""
        return len(self.order)

    @property
    def n_tips(self) -> int:
        """T."""
        return len(self.taxa)

    @property
    def bounds(self) -> NDArray[np.intp]:
        """The clades of tree k, intp [n+1]: those from ``bounds[k]`` up to ``bounds[k + 1]``."""
        return np.searchsorted(self.tree, np.arange(self.n_trees + 1))

    @property
    def is_inner(self) -> NDArray[np.bool_]:
        """Whether two taxa or more are in a clade, and two or more outside of it, bool [C]."""
        size = self.last - self.first
        return (size >= 2) & (size <= self.n_tips - 2)

    def part(self, start: int, stop: int) -> Clades:
        """The trees from ``start`` up to ``stop``."""
        begin, end = self.bounds[[start, stop]]
        return Clades(
            self.taxa,
            self.order[start:stop],
            self.tip_lengths[start:stop],
            self.tree[begin:end] - np.int32(start),
            self.first[begin:end],
            self.last[begin:end],
            self.lengths[begin:end],
        )

    def only(self, chosen: NDArray[np.bool_]) -> Clades:
        """These of the clades; bool [C]."""
        return replace(
            self,
            tree=self.tree[chosen],
            first=self.first[chosen],
            last=self.last[chosen],
            lengths=self.lengths[chosen],
        )

    def with_tips(self) -> Clades:
        """The tips as clades of their own, behind the others of their tree."""
        n_trees, n_tips = self.order.shape
        if n_tips == 1:
            return self  # all taxa are no clade
        tree, first = np.divmod(np.arange(n_trees * n_tips, dtype=np.int32), np.int32(n_tips))
        by_tree = np.argsort(np.concatenate((self.tree, tree)), kind="stable")

        def both(clades: NDArray[Any], tips: NDArray[Any]) -> NDArray[Any]:
            return np.concatenate((clades, tips))[by_tree]

        return replace(
            self,
            tree=both(self.tree, tree),
            first=both(self.first, first),
            last=both(self.last, first + np.int32(1)),
            lengths=both(self.lengths, self.tip_lengths.ravel()),
        )

    @classmethod
    def joined(cls, taxa: tuple[str, ...], pieces: Sequence[Clades]) -> Clades:
        """The trees of several, one after another, whose taxa have the same numbers."""
        before = np.cumsum([0, *(piece.n_trees for piece in pieces[:-1])], dtype=np.int32)
        trees = [piece.tree + skip for piece, skip in zip(pieces, before, strict=True)]
        return cls(
            taxa,
            np.concatenate([piece.order for piece in pieces]),
            np.concatenate([piece.tip_lengths for piece in pieces]),
            np.concatenate(trees),
            np.concatenate([piece.first for piece in pieces]),
            np.concatenate([piece.last for piece in pieces]),
            np.concatenate([piece.lengths for piece in pieces]),
        )


def nested(taxa: tuple[str, ...], members: NDArray[np.bool_]) -> tuple[Clades, NDArray[np.intp]]:
    """The one tree that has just these clades, without lengths, and which row each of them was.

    members  bool [C, T], pairwise one inside the other or apart
    """
    by_size = np.argsort(-members.sum(axis=1), kind="stable")
    members = members[by_size]
    # Sorted by whether they are in the largest clade, then in the next, ...: the taxa of a clade
    # agree about all larger ones, which hold it or lie apart, and nobody else is in it.
    rows = members.T.astype(np.uint8)
    order = np.array(sorted(range(len(taxa)), key=lambda taxon: rows[taxon].tobytes()))
    written = members[:, order]
    first = written.argmax(axis=1)
    last = first + written.sum(axis=1)
    after_what_it_holds = np.lexsort((-first, last))
    tree = Clades(
        taxa,
        order[None, :].astype(np.int32),
        np.full((1, len(taxa)), np.nan),
        np.zeros(len(members), dtype=np.int32),
        first[after_what_it_holds].astype(np.int32),
        last[after_what_it_holds].astype(np.int32),
        np.full(len(members), np.nan),
    )
    return tree, by_size[after_what_it_holds]


def write_clades(tree: Clades, labels: Iterable[str]) -> str:
    """The first of the trees as one line of Newick, with a label for each of its clades.

    Everything else is as it was read: the order, the root, polytomies, the values of the lengths.
    """
    n_clades = int(tree.bounds[1])
    first, last = tree.first[:n_clades], tree.last[:n_clades]
    opened = np.bincount(first, minlength=tree.n_tips).tolist()
    closed: list[list[str]] = [[] for _ in range(tree.n_tips + 1)]
    for end, label, length in zip(last, labels, tree.lengths[:n_clades], strict=True):
        closed[end].append(f"){label}{branch(length)}")
    tips = []
    for column, (taxon, length) in enumerate(
        zip(tree.order[0].tolist(), tree.tip_lengths[0].tolist(), strict=True)
    ):
        name = quoted(tree.taxa[taxon])
        tips.append("(" * opened[column] + name + branch(length) + "".join(closed[column + 1]))
    return f"({','.join(tips)});"


# Whole files of Newick trees as clades, by array operations over their text.
#
# The marks ``( ) , : ;`` of a text say all about its trees. Text with quotes or comments, whose
# marks may be part of a name, goes through :mod:`mltree.tree.newick` first; it is also what
# names the error of a text that is no tree.

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
        """What is wrong with a text that is no tree; see :mod:`mltree.tree.newick`."""
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


# One tree as it is written: its root, order and polytomies, labels and lengths.
#
# For whatever shows a tree or hands it on. Nodes are numbered in the order in which the text opens
# them: node 0 is the root, parents come before children, and a subtree is a range of numbers.
#
# Letters: N nodes, T tips.

_TOKEN = re.compile(r"[(),;]|:[^(),;]*|\d+")
"""What a :class:`RawTree` is made of: marks, lengths, numbers of names."""


class WrittenTree(Value, eq=False):
    """A rooted tree of any shape."""

    parent: Int32
    """int32 [N]: NONE for the root."""
    lengths: Float64
    """float64 [N]: of the branch above each node; NaN where there is none."""
    labels: tuple[str, ...]
    """N names of tips, and of inner nodes whatever is written there, often a support; or ''."""

    @property
    def n_nodes(self) -> int:
        """N."""
        return len(self.parent)

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """The children of each node, in order."""
        found: list[list[int]] = [[] for _ in range(self.n_nodes)]
        for node, parent in enumerate(self.parent.tolist()[1:], 1):
            found[parent].append(node)
        return tuple(map(tuple, found))

    @cached_property
    def tips(self) -> tuple[int, ...]:
        """The T nodes without children, in order."""
        return tuple(node for node, below in enumerate(self.children) if not below)

    @cached_property
    def n_below(self) -> Int32:
        """int32 [N]: tips of each subtree; a tip counts itself."""
        count = np.zeros(self.n_nodes, np.int32)
        count[list(self.tips)] = 1
        for node in range(self.n_nodes - 1, 0, -1):
            count[self.parent[node]] += count[node]
        return count

    @cached_property
    def is_measured(self) -> bool:
        """Whether the tree has branch lengths."""
        return bool(np.isfinite(self.lengths[1:]).any())

    @cached_property
    def heights(self) -> Float64:
        """float64 [N]: distance from the root, a branch of unknown length as nothing."""
        height = np.nan_to_num(self.lengths, nan=0.0)
        height[0] = 0.0
        for node in range(1, self.n_nodes):
            height[node] += height[self.parent[node]]
        return height

    @cached_property
    def supports(self) -> Float64:
        """float64 [N]: labels of inner nodes as numbers; NaN where they are none, and at tips."""
        values = np.full(self.n_nodes, np.nan)
        for node, label in enumerate(self.labels):
            if self.children[node]:
                values[node] = _number(label)
        return values

    def ladderised(self) -> WrittenTree:
        """The same tree with the smaller subtrees of every node first."""
        order: list[int] = []
        pending = [0]
        while pending:
            node = pending.pop()
            order.append(node)
            by_size = sorted(self.children[node], key=self.n_below.__getitem__)
            pending += by_size[::-1]  # the last one on the stack comes first
        place = np.empty(self.n_nodes, np.int32)
        place[order] = np.arange(self.n_nodes, dtype=np.int32)
        parent = self.parent[order]
        parent[1:] = place[parent[1:]]
        return WrittenTree(parent, self.lengths[order], tuple(self.labels[n] for n in order))

    def newick(self) -> str:
        """One line of Newick, with all of it: order, labels, the values of the lengths."""
        parts: list[str] = []
        pending: list[int | str] = [";", 0]
        while pending:
            item = pending.pop()
            if isinstance(item, str):
                parts.append(item)
                continue
            label, below = self.labels[item], self.children[item]
            ending = (quoted(label) if label or not below else "") + branch(self.lengths[item])
            if not below:
                parts.append(ending)
                continue
            between: list[int | str] = [")" + ending]
            for child in below[::-1]:
                between += [child, ","]
            pending += [*between[:-1], "("]
        return "".join(parts)


def read_written(source: str | Path) -> list[WrittenTree]:
    """Every tree of a Newick or NEXUS file, or of a text.

    Raises:
        InputError: there is none, or it is broken.
    """
    text, file = text_of(source)
    trees = [_written(raw, file) for raw in raw_trees(text, file, signed=True)]
    if not trees:
        raise InputError("no tree in it", file=file, hint="a Newick tree ends with ';'")
    return trees


def _written(raw: RawTree, file: str | None) -> WrittenTree:
    parent: list[int] = []
    lengths: list[float] = []
    labels: list[str] = []
    open_nodes = [NONE]
    node, is_new = NONE, True  # the node that is spoken of; whether the next one has yet to come

    def add() -> int:
        parent.append(open_nodes[-1])
        lengths.append(math.nan)
        labels.append("")
        return len(parent) - 1

    for token in _TOKEN.findall(raw.text):
        if is_new and token in {",", ")", ";"}:
            raise InputError("a tip without a name", file=file, line=raw.line)
        if is_new and token != ",":
            node = add()
        is_new = token in {"(", ","}
        if token == "(":
            open_nodes.append(node)
        elif token == ")":
            node = open_nodes.pop()
        elif token[0] == ":":
            lengths[node] = float(token[1:])
        elif token.isdigit():
            labels[node] = raw.names[int(token)]
    return WrittenTree(np.array(parent, np.int32), np.array(lengths), tuple(labels))


def _number(label: str) -> float:
    """A support, 95 or 0.95, and the last of several with slashes between them; NaN for a name."""
    try:
        value = decimal(label.rpartition("/")[2])
    except ValueError:
        return math.nan
    return value if math.isfinite(value) else math.nan
