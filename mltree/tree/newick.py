"""Newick and NEXUS trees: one reader for trees of any number and shape, and the writer.

A text becomes :class:`ParsedTrees`, flat arrays found by array operations over the whole text.
Binary trees (here), clades and written trees (:mod:`mltree.tree.clades`) and constraints are made
from those. Text with quotes or comments, or with an error, passes through a scanner of single
tokens first, which normalises the text or names the error with its line.
"""

from __future__ import annotations

import math
import os
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from warnings import catch_warnings, simplefilter

import numpy as np

from mltree.data.nexus import is_nexus, nexus_commands
from mltree.data.source import TaxonNumbers, unpacked
from mltree.system.arrays import Bool, Float64, Index, Int32
from mltree.system.errors import InputError, did_you_mean
from mltree.system.values import decimal
from mltree.tree.splits import facing
from mltree.tree.topology import DEFAULT_LENGTH, NONE, Tree, siblings, tree_from_edges

DEFAULT_DIGITS = 10
"""Decimals of a written branch length: four more than the shortest branch needs."""

MAX_LENGTH = 1e300
"""Sums of longer branches may overflow."""

MAX_NAMED = 5
"""Number of taxa that an error message lists."""

PIECE = 1 << 22
"""Bytes of text that are parsed together: their arrays take some 30 times as much."""

Notices = tuple[str, ...]
"""Changes that made a tree usable, one sentence each."""

_FILE_NAME = re.compile(r"[^\n]*\.[A-Za-z][^\s();,]*")
"""Text that ends as file names do; Newick ends in a semicolon."""
_ALIGNMENT = re.compile(r"\s*(>|[0-9]+[ \t]+[0-9]+\s|CLUSTAL|# STOCKHOLM)")
"""Beginnings of alignments, with which no tree begins."""
_RESULT = re.compile(r"\s*\{")
"""Beginning of JSON, such as the result of a run."""
_NEEDS_QUOTES = re.compile(r"""[\s()\[\]{}:;,'"]""")


def read_newick(source: str | Path, taxa: Sequence[str]) -> tuple[Tree, Notices]:
    """The first tree of a Newick or NEXUS file or text, and the changes that made it usable.

    source  a path, or the text itself (anything with a ``;`` or that starts with ``(`` or ``[``)
    taxa    T names; tip i of the tree is taxa[i]
    Raises: InputError for a broken file, negative or non-finite branch lengths, and taxa that are
    missing, unknown or there twice.
    """
    trees = read_newicks(source, taxa)
    tree, notices = trees[0]
    more = (f"the first of {len(trees)} trees is used",) if len(trees) > 1 else ()
    return tree, notices + more


def read_newicks(source: str | Path, taxa: Sequence[str]) -> list[tuple[Tree, Notices]]:
    """Every tree of a Newick or NEXUS file or text, with its notices; see :func:`read_newick`."""
    text, file = text_of(source)
    tip_of = TaxonNumbers(taxa)
    return [
        _TreeBuilder(parsed, number, tip_of, file).tree()
        for parsed in parsed_trees(text, file)
        for number in range(parsed.n_trees)
    ]


def text_of(source: str | Path) -> tuple[str, str | None]:
    """The Newick text of a source, and its file or None where the source is the text itself.

    Trees of a NEXUS file are returned as Newick.

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
    if _RESULT.match(text):
        hint = "a search leaves its trees in .bestTree and .support"
        raise InputError("JSON, not a tree", file=file, hint=hint)
    return (newick_of(text, file) if is_nexus(text) else text), file


def _is_newick(source: str) -> bool:
    """True for a text that is Newick: no file has that name, and it does not look like a name."""
    try:
        is_file = Path(source).exists()
    except (OSError, ValueError):  # too long for a name, or with a zero byte in it
        is_file = False
    if is_file or _FILE_NAME.fullmatch(source.strip()):
        return False
    return ";" in source or source.lstrip()[:1] in {"(", "["}


# The array parser.

_OPEN, _CLOSE, _COMMA, _COLON, _SEMICOLON = b"(),:;"
_MARKS = bytes(byte in b"(),:;" for byte in range(256))
_LETTERS = bytes(byte not in b"(),:;0123456789+-.eE \t\n\r\v\f" for byte in range(256))
"""Bytes by value: marks; those that are neither marks nor in numbers."""
_WITHOUT_MARKS = bytes(32 if mark else byte for byte, mark in enumerate(_MARKS))
_BLANK = 32
"""The last of ASCII's blanks and control characters."""
_RARE_BLANK = re.compile(r"[^\S\x00-\x20]")
_CODING = ("utf-8", "surrogatepass")


def parsed_trees(
    text: str, file: str | None, *, signed: bool = False, size: int | None = None
) -> Iterator[ParsedTrees]:
    """Every tree of a Newick text, in pieces.

    file    the file of the text, for messages
    signed  accept negative branch lengths, as neighbour joining leaves them
    size    bytes of text in a piece, :data:`PIECE` by default; with 1 every piece is one tree
    Raises: InputError for broken Newick, a tip without a name, or a text without trees.
    """
    shortest = -math.inf if signed else 0.0
    quoted_names: list[str] = []
    plain = _unquoted(text, quoted_names)
    is_plain = not any(mark in plain for mark in "[]'\"")
    is_plain = is_plain and (plain.isascii() or not _RARE_BLANK.search(plain))
    is_empty = True
    if quoted_names and is_plain:
        whole = ParsedTrees(plain.encode(*_CODING), 1, quoted=quoted_names)
        if whole.is_sound(shortest):
            yield whole
            return
    is_plain = is_plain and not quoted_names
    pieces = _pieces(text, size or PIECE) if is_plain else [(text, 1)]
    for piece, line in pieces:
        parsed = ParsedTrees(piece.encode(*_CODING), line) if is_plain else None
        sound = [parsed] if parsed and parsed.is_sound(shortest) else None
        for trees in sound or _scanned_trees(piece, file, line, shortest):
            is_empty = False
            yield trees
    if is_empty:
        raise InputError("no tree in it", file=file, hint="a Newick tree ends with ';'")


_STAND_IN = "\x01"
"""Stands, with a number, for a name in quotes."""


def _unquoted(text: str, names: list[str]) -> str:
    """Text of one tree with numbers for its names in single quotes, which are added to ``names``.

    Any other text, and one whose quotes are not as simple, is returned as it is.
    """
    pieces = text.split("'")
    if len(pieces) < 3 or len(pieces) % 2 == 0 or _STAND_IN in text or '"' in text:
        return text
    plain = [piece.strip(" \t\n\r") for piece in pieces[::2]]
    if not all(plain) or any(not p.strip() or "\n" in p or "\r" in p for p in pieces[1::2]):
        return text  # a quote within quotes, two names side by side, or no name
    is_simple = all(one[-1] in "(,)" and two[0] in "(),:;" for one, two in pairwise(plain))
    has_one_end = not any(";" in piece for piece in plain[:-1])
    if not is_simple or not has_one_end or plain[-1].find(";") != len(plain[-1]) - 1:
        return text
    names += pieces[1::2]
    parts = [plain[0]]
    for number, piece in enumerate(plain[1:]):
        parts += [f"{_STAND_IN}{number}", piece]
    return "".join(parts)


def _pieces(text: str, size: int) -> Iterator[tuple[str, int]]:
    """Pieces of at least ``size`` characters that end with a tree, and the line of each."""
    line = 1
    start = 0
    while start < len(text):
        stop = text.find(";", min(start + size, len(text)) - 1) + 1 or len(text)
        piece = text[start:stop]
        if not piece.isspace():
            yield piece, line
        line += piece.count("\n")
        start = stop


class ParsedTrees:
    """n Newick trees of a piece of text, as the marks ``( ) , : ;`` of the text.

    Gap k is the text between mark k-1 and mark k: the name of a tip, the label of the inner node
    that mark k-1 closes, a branch length, or nothing. A node is known by the gap of its label.
    """

    def __init__(
        self, text: bytes, line: int, names: Sequence[str] | None = None,
        quoted: Sequence[str] = (),
    ) -> None:  # fmt: skip
        """Find the marks of the text.

        text   whole trees without quotes and comments
        line   the line of the file where the text begins
        names  the names of the labels, which are numbers into it; None where labels are names
        quoted  the names of labels that are numbers behind a control character
        """
        self.text = text
        self.line = line
        self.names = names
        self.quoted = quoted
        self.codes = np.frombuffer(text, np.uint8)
        self.end: Index = np.flatnonzero(np.frombuffer(text.translate(_MARKS), np.bool_))
        self.mark = self.codes[self.end]
        """uint8: the mark at the end of each gap."""
        self.start: Index = np.concatenate(([0], self.end[:-1] + 1))
        self.before = np.concatenate(([_SEMICOLON], self.mark[:-1])).astype(np.uint8)
        """uint8: the mark in front of each gap."""
        self.is_filled = self.end - self.start > self._count(self.codes <= _BLANK)
        self.step = (self.mark == _OPEN).astype(np.int32) - (self.mark == _CLOSE)
        self.depth: Int32 = np.cumsum(self.step, dtype=np.int32)
        """int32: open parentheses behind the mark of each gap."""

    def is_sound(self, shortest: float) -> bool:
        """True where the text is nothing but trees with named tips and lengths in range."""
        if not self.mark.size or self.mark[-1] != _SEMICOLON:
            return False
        opens, filled = self.mark == _OPEN, self.is_filled
        length = self.before == _COLON
        wrong = (
            (opens & (filled | length | (self.before == _CLOSE)))
            | (length & (~filled | (self.mark == _COLON)))
            | ((self.before == _SEMICOLON) & ~opens & ~filled)
            | (self.is_tip & ~filled)
            | (self.depth < 0)
            | ((self.mark == _COMMA) & (self.depth == 0))
            | ((self.mark == _SEMICOLON) & (self.depth != 0))
            | (length & (self._count(self._is_letter) > 0))
        )
        if wrong.any() or self.codes[self.end[-1] + 1 :].max(initial=0) > _BLANK:
            return False
        try:
            lengths = self.lengths[np.flatnonzero(length) - 1]
        except ValueError:
            return False
        return bool(((lengths >= shortest) & (abs(lengths) <= MAX_LENGTH)).all())

    @cached_property
    def _is_letter(self) -> Bool:
        """bool: bytes of the text that are neither marks nor in numbers."""
        return np.frombuffer(self.text.translate(_LETTERS), np.bool_)

    def _count(self, is_counted: Bool) -> Index:
        """Number of characters of a kind in each gap; a mark is none of them."""
        gaps = np.searchsorted(self.end, np.flatnonzero(is_counted))
        return np.bincount(gaps, minlength=self.end.size)[: self.end.size]

    @property
    def n_trees(self) -> int:
        """Number of trees, n."""
        return int(self.tree[-1]) + 1

    @cached_property
    def is_tip(self) -> Bool:
        """bool: gaps that are the name of a tip."""
        follows = (self.before == _OPEN) | (self.before == _COMMA)
        alone = (self.before == _SEMICOLON) & self.is_filled
        is_tip: Bool = (follows | alone) & (self.mark != _OPEN)
        return is_tip

    @cached_property
    def tips(self) -> Index:
        """The gap of every tip, rising."""
        return np.flatnonzero(self.is_tip)

    @cached_property
    def tree(self) -> Int32:
        """int32: the number of the tree that each gap belongs to."""
        return np.cumsum(self.before == _SEMICOLON, dtype=np.int32) - 1

    @cached_property
    def lengths(self) -> Float64:
        """float64: the length of the branch above the node of each gap; NaN where there is none.

        Raises: ValueError where one is no number.
        """
        gaps = np.flatnonzero(self.before == _COLON)
        lengths = np.full(self.mark.size, np.nan)
        lengths[gaps - 1] = self.numbers(gaps) + 0.0  # no -0.0
        return lengths

    def numbers(self, gaps: Index) -> Float64:
        """The numbers that some gaps hold, float64.

        Raises: ValueError where one holds none, or something else.
        """
        if not gaps.size:
            return np.empty(0)
        if self._all_numbers is not None:
            numbers = self._all_numbers[gaps]
            if np.isnan(numbers).any():
                raise ValueError("a gap without a number")
            return numbers
        inside = np.zeros(self.codes.size + 1, np.int8)
        inside[self.start[gaps]] += 1
        inside[self.end[gaps]] -= 1
        np.cumsum(inside, dtype=np.int8, out=inside)
        numbers = numbers_in(np.where(inside[:-1].view(np.bool_), self.codes, _BLANK).tobytes())
        if numbers.size != gaps.size:
            raise ValueError("gaps without a number, or with several")
        return numbers

    @cached_property
    def _all_numbers(self) -> Float64 | None:
        """The number in each gap, NaN in empty ones; None where names are no numbers."""
        if self._is_letter.any():
            return None
        try:
            numbers = numbers_in(self.text.translate(_WITHOUT_MARKS))
        except ValueError:
            return None
        if numbers.size != self.is_filled.sum():
            return None
        of_gaps = np.full(self.end.size, np.nan)
        of_gaps[self.is_filled] = numbers
        return of_gaps

    @cached_property
    def pairs(self) -> tuple[Index, Index]:
        """The opening and the closing mark of every inner node, by closing marks."""
        opening = np.flatnonzero(self.mark == _OPEN)
        closing = np.flatnonzero(self.mark == _CLOSE)
        # Opening and closing marks of one depth alternate.
        opens = np.empty_like(closing)
        rank = np.argsort(self.depth[closing], kind="stable")
        opens[rank] = opening[np.argsort(self.depth[opening], kind="stable")]
        return opens, closing

    def nodes_of(self, tree: int) -> tuple[Index, Int32]:
        """The N nodes of one tree, parents before children: their gaps, and their parents.

        Parents are int32 [N], places among the N nodes; NONE for the root.
        """
        gaps, parent = self._nodes
        first, last = np.searchsorted(self.tree[gaps], (tree, tree + 1))
        outer = parent[first:last]
        return gaps[first:last], np.where(outer < 0, outer, outer - np.int32(first))

    @cached_property
    def _nodes(self) -> tuple[Index, Int32]:
        """The gaps and parents of the nodes of all trees; see :meth:`nodes_of`."""
        opening, closing = self.pairs
        is_node = self.is_tip | (self.mark == _OPEN)
        place = np.cumsum(is_node, dtype=np.int32) - 1
        opened = np.flatnonzero(is_node)
        gaps = opened.copy()
        gaps[place[opening]] = closing + 1
        # The parent is the last node opened before at the depth around the node.
        outer = (self.depth - self.step)[opened].astype(np.int64) * self.mark.size
        openings = np.sort(self.depth[opening].astype(np.int64) * self.mark.size + opening)
        last = np.searchsorted(openings, outer + opened) - 1
        parent = np.full(opened.size, NONE, np.int32)
        has_parent = outer > 0
        parent[has_parent] = place[openings[last[has_parent]] % self.mark.size]
        return gaps, parent

    def cut(self, gaps: Index) -> list[bytes]:
        """The text of some gaps."""
        starts, ends = self.start[gaps].tolist(), self.end[gaps].tolist()
        return [self.text[start:end] for start, end in zip(starts, ends, strict=True)]

    def name(self, label: bytes) -> str:
        """The name that a label of the text stands for; empty for an empty label."""
        if self.names is None:
            text = " ".join(label.decode(*_CODING).split())
            return self.quoted[int(text[1:])] if text.startswith(_STAND_IN) else text
        return self.names[int(label)] if label else ""

    def labels(self, gaps: Index) -> list[str]:
        """The names of some gaps."""
        return list(map(self.name, self.cut(gaps)))

    def line_of(self, tree: int) -> int:
        """The line of the file where a tree begins."""
        gap = int(np.searchsorted(self.tree, tree))
        before = self.text[: int(self.end[gap])]
        margin = self.text[self.start[gap] : self.end[gap]]
        return self.line + before.count(b"\n") - margin.lstrip().count(b"\n")

    def check_taxa(
        self, tree: int, taxa: Sequence[str], file: str | None, *, origin: str, here: str
    ) -> None:
        """Raise InputError for a tree whose tips are not just the taxa.

        origin  the source of the taxa, here  the tree, for messages
        """
        line = self.line_of(tree)
        seen = set[str]()
        labels = self.labels(self.tips[self.tree[self.tips] == tree])
        names = TaxonNumbers(taxa).names(labels)
        for name in names:
            if name in seen:
                problem = f"taxon {name!r} is in the tree twice"
                raise InputError(problem, file=file, line=line, taxon=name)
            seen.add(name)
        expected = set(taxa)
        missing = [name for name in taxa if name not in seen]
        unknown = [name for name in names if name not in expected]
        for unlike, where, known in ((unknown, f"in {here} but not in {origin}", missing),
                                     (missing, f"in {origin} but not in {here}", ())):  # fmt: skip
            if unlike:
                problem, hint = f"{listed(unlike)} {where}", did_you_mean(unlike[0], known)
                raise InputError(problem, file=file, line=line, taxon=unlike[0], hint=hint)


def numbers_in(text: bytes) -> Float64:
    """The numbers of a text, between blanks, float64. Raises: ValueError for anything else."""
    with catch_warnings():
        simplefilter("error", DeprecationWarning)  # NumPy before 2.3 only warns
        try:
            return np.fromstring(text, sep=" ")
        except DeprecationWarning as error:
            raise ValueError(str(error)) from None


def listed(names: Sequence[str]) -> str:
    """The first names, how many more there are, and the verb that goes with them."""
    shown = ", ".join(repr(name) for name in names[:MAX_NAMED])
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return f"{shown}{more} {'is' if len(names) == 1 else 'are'}"


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


def _scanned_trees(
    text: str, file: str | None, line: int, shortest: float
) -> Iterator[ParsedTrees]:
    """Every tree of a text, token by token: names become numbers, comments and blanks go.

    Raises: InputError for the first error, with its line.
    """
    scanner = _Scanner(file, line, shortest)
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

    def __init__(self, file: str | None, line: int, shortest: float) -> None:
        self.file = file
        self.shortest = shortest
        self.line = line
        self.first_line = line
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
            self.parts.append(self._length(token))
        elif self.before in {"label", "length"}:
            raise self.fail(f"a comma is missing before {token.strip()!r}")
        else:
            self._label(kind, token)
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

    def _label(self, kind: str, token: str) -> None:
        quote = token[0]
        bare = kind == "bare"
        name = " ".join(token.split()) if bare else token[1:-1].replace(2 * quote, quote)
        self.parts.append(str(len(self.names)) if name else "")
        self.names.append(name)

    def _length(self, token: str) -> str:
        try:
            value = math.inf if _NOT_FINITE.fullmatch(token.strip()) else decimal(token)
        except ValueError:
            raise self.fail(f"branch length {token.strip()!r} is not a number") from None
        if not (math.isfinite(value) and value >= self.shortest):
            expected = "a finite number" + (" >= 0" if self.shortest == 0 else "")
            raise self.fail(f"branch length {token.strip()} is not {expected}")
        if abs(value) > MAX_LENGTH:
            raise self.fail(f"a branch is longer than {MAX_LENGTH:g} (is it a length?)")
        return repr(value)

    def finish(self) -> ParsedTrees:
        tree = ParsedTrees("".join(self.parts).encode(), self.first_line, self.names)
        if not tree.is_sound(self.shortest):
            raise InputError("a tip without a name", file=self.file, line=self.first_line)
        self.parts, self.names = [], []
        return tree


class _TreeBuilder:
    """Makes a Tree of one parsed tree: unrooted, polytomies resolved by artificial edges."""

    def __init__(
        self, parsed: ParsedTrees, number: int, tip_of: TaxonNumbers, file: str | None
    ) -> None:
        self.parsed, self.number, self.tip_of, self.file = parsed, number, tip_of, file
        self.ends: list[tuple[int, int]] = []
        self.lengths: list[float] = []
        self.next_node = len(tip_of)
        self.artificial: set[int] = set()  # nodes that an artificial edge joins to the one above
        self.n_unary = 0
        self.is_rooted = False

    def tree(self) -> tuple[Tree, Notices]:
        """The tree, and the changes that made it one.

        Raises: InputError where its taxa are not those of ``tip_of``.
        """
        self._join_all()
        ends, lengths = np.array(self.ends), np.array(self.lengths)
        missing = np.isnan(lengths)
        lengths[missing] = DEFAULT_LENGTH
        is_artificial = np.isin(ends[:, 1], list(self.artificial))
        last = np.argsort(is_artificial, kind="stable")
        tree = tree_from_edges(ends[last], lengths[last], len(self.tip_of), len(self.artificial))
        return tree, self._notices(int(missing.sum()))

    def _tips(self, gaps: Index) -> list[int]:
        tips = [self.tip_of[name] for name in self.parsed.labels(gaps)]
        if sorted(tips) != list(range(len(self.tip_of))):
            self.parsed.check_taxa(
                self.number, list(self.tip_of), self.file, origin="the alignment", here="the tree"
            )
        return tips

    def _join_all(self) -> None:
        """Give every node a number and every branch a row, children before parents."""
        gaps, parent = self.parsed.nodes_of(self.number)
        n_children = np.bincount(parent[1:], minlength=parent.size)
        tips = iter(self._tips(gaps[n_children == 0]))
        postorder = np.argsort(gaps)
        counts: list[int] = n_children[postorder].tolist()
        lengths: list[float] = self.parsed.lengths[gaps[postorder]].tolist()
        root = len(counts) - 1
        while counts[root] == 1:
            root -= 1
        subtrees: list[tuple[int, float]] = []
        for count, length in zip(counts[:root], lengths[:root], strict=True):
            if not count:
                subtrees.append((next(tips), length))
            elif count == 1:
                self.n_unary += 1
                below, lower = subtrees.pop()
                subtrees.append((below, _merged(lower, length)))
            else:
                children = deque(subtrees[-count:])
                del subtrees[-count:]
                self._resolve(children, 2)
                subtrees.append((self._join(children), length))
        self._close(deque(subtrees))

    def _close(self, children: deque[tuple[int, float]]) -> None:
        """Join the subtrees of the root, which goes where it has only two."""
        if len(children) == 2:
            self.is_rooted = True
            (left, one), (right, other) = children
            self.ends.append((left, right))
            self.lengths.append(_merged(one, other))
        else:
            self._resolve(children, 3)
            self._join(children)

    def _resolve(self, children: deque[tuple[int, float]], degree: int) -> None:
        while len(children) > degree:
            node = self._join([children.popleft(), children.popleft()])
            self.artificial.add(node)
            children.append((node, 0.0))

    def _join(self, children: Sequence[tuple[int, float]]) -> int:
        node, self.next_node = self.next_node, self.next_node + 1
        self.ends += [(node, child) for child, _ in children]
        self.lengths += [length for _, length in children]
        return node

    def _notices(self, n_missing: int) -> Notices:
        notices = {
            "rooted tree: root removed, its two branches merged into one": self.is_rooted,
            f"{self.n_unary} nodes with a single child removed": self.n_unary,
            f"{n_missing} branches without a length set to {DEFAULT_LENGTH:g}": n_missing,
        }
        return tuple(notice for notice, holds in notices.items() if holds)


def _merged(one: float, other: float) -> float:
    """The length of two branches in a row, NaN only where neither is known."""
    if math.isnan(one) or math.isnan(other):
        return other if math.isnan(one) else one
    return one + other


def write_newick(
    tree: Tree,
    taxa: Sequence[str],
    digits: int | None = DEFAULT_DIGITS,
    *,
    outgroup: Sequence[int] = (0,),
    collapse: float | None = None,
    labels: Mapping[int, str] | None = None,
) -> str:
    """The tree as one line of Newick, rooted at the trifurcation next to the outgroup.

    Subtrees are ordered by their first taxon, so equal trees give equal text whatever their
    numbering. digits: decimals of the lengths, or None for all that a float64 has. outgroup: tips
    that stand together in the tree; where they do not, the first of them counts. Artificial edges
    are not written, nor, with collapse, inner branches no longer than that: there are polytomies.
    labels: of inner edges, by their ids.
    """
    twin, edges, all_lengths = tree.twin.tolist(), tree.edge.tolist(), tree.lengths.tolist()
    first_tip, first_inner, n_branches = _first_tips(tree, twin), 3 * tree.n_tips, tree.n_branches
    shortest = -math.inf if collapse is None else collapse
    written = "{!r}" if digits is None else f"{{:.{digits}f}}"

    def branch(half: int) -> str:
        return ":" + written.format(all_lengths[edges[half]])

    def in_order(*halves: int) -> list[int]:
        branches: list[int] = []
        ahead = [twin[half] for half in halves]
        while ahead:
            half = ahead.pop()
            if vanishes(half):
                ahead += [twin[beside] for beside in siblings(half)]
            else:
                branches.append(half)
        return sorted(branches, key=first_tip.__getitem__)

    def vanishes(half: int) -> bool:
        edge = edges[half]
        return half >= first_inner and (edge >= n_branches or all_lengths[edge] <= shortest)

    parts: list[str] = []
    root = facing(tree, outgroup)
    if root is None:
        root = twin[3 * outgroup[0]]
    stack: list[int | str] = [");", *_separated(in_order(root, *siblings(root))), "("]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            parts.append(item)
        elif item < first_inner:
            parts.append(quoted(taxa[item // 3]) + branch(item))
        else:
            label = "" if labels is None else labels.get(edges[item], "")
            stack += [f"){label}" + branch(item), *_separated(in_order(*siblings(item))), "("]
    return "".join(parts)


def _first_tips(tree: Tree, twin: Sequence[int]) -> list[int]:
    first = [half // 3 for half in range(len(twin))]
    for half in tree.postorder(tree.edge.item(0)).tolist():
        left, right = siblings(half)
        first[half] = min(first[twin[left]], first[twin[right]])
    return first


def _separated(halves: list[int]) -> list[int | str]:
    """Half-edges with commas between them, last first, as a stack takes them."""
    return [item for half in reversed(halves) for item in (half, ",")][:-1]


def quoted(name: str) -> str:
    """The name as Newick writes it: in single quotes where it holds a special character."""
    if name and not _NEEDS_QUOTES.search(name):
        return name
    return "'" + name.replace("'", "''") + "'"


def branch(length: float) -> str:
    """A colon and all digits of a length, without an exponent; empty for NaN."""
    return "" if math.isnan(length) else ":" + np.format_float_positional(length, trim="-")


# Trees in NEXUS files (Maddison, Swofford, Maddison 1997, Syst. Biol. 46:590-621): TREE and UTREE
# commands of the TREES block, names by TRANSLATE, or by TAXLABELS of the TAXA block where numbers
# stand for taxa that no TRANSLATE names.

_LABEL = re.compile(
    r"""(?P<before>[(,]\s*)(?P<name>'(?:[^']|'')*'|"[^"]*"|[^\s()\[\],:;'"]+)|'(?:[^']|'')*'"""
)
"""A tip's name behind the mark before it; names in quotes that stand elsewhere are passed over."""

_TAXON = re.compile(r"""'(?:[^']|'')*'|"[^"]*"|[^\s'"]+""")
_TREE = re.compile(r"U?TREE\b[^=]*=", re.IGNORECASE)
_WEIGHT = re.compile(r"\[&W([^\]]*)\]", re.IGNORECASE)
"""PAUP's and MrBayes's ``[&W 1/3]``: how much a tree counts."""
TRANSLATION = re.compile(r"""\s*([^\s,]+)\s+('(?:[^']|'')*'|"[^"]*"|[^\s,]+)\s*(?:,|$)""")
"""A label and a name of a TRANSLATE command; names in quotes keep them."""


def newick_of(text: str, file: str | None) -> str:
    """The trees of a NEXUS file as Newick, each on the line where it stands in the file.

    Raises: InputError: there is none, or trees count differently ([&W ...]).
    """
    parts: list[str] = []
    names: dict[str, str] = {}
    weights: set[str] = set()
    block = ""
    line = 0
    for command in nexus_commands(text, file):
        word = command.word
        if word == "BEGIN":
            block = command.block
        elif word in {"END", "ENDBLOCK"}:
            block = ""
        elif block == "TAXA" and word == "TAXLABELS":
            names = _numbered(command.rest)
        elif block == "TREES" and word == "TRANSLATE":
            names |= dict(TRANSLATION.findall(command.rest))
        elif block == "TREES" and (head := _TREE.match(command.text)):
            weights.update(weight.strip() for weight in _WEIGHT.findall(command.comments))
            tree = _renamed(command.text[head.end() :].strip(), names)
            parts.append("\n" * (command.line - line) + tree + ";")
            line = command.line + tree.count("\n")
    if len(weights) > 1:
        shown = " and ".join(sorted(weights)[:2])
        hint = "remove the weights, or write every tree as often as it counts"
        raise InputError(f"tree weights {shown} are not supported", file=file, hint=hint)
    if not parts:
        hint = "it takes a TREES block with a TREE in it"
        raise InputError("a NEXUS file without trees", file=file, hint=hint)
    return "".join(parts)


def _numbered(labels: str) -> dict[str, str]:
    """Taxa by the numbers that stand for them in trees, unless a taxon has such a name."""
    taxa = _TAXON.findall(labels)
    numbers = ((str(number), taxon) for number, taxon in enumerate(taxa, 1))
    return {number: taxon for number, taxon in numbers if number not in taxa}


def nexus_trees(trees: Sequence[str]) -> str:
    """A NEXUS file of trees that are written in Newick."""
    lines = [f"  TREE tree_{number} = {tree}" for number, tree in enumerate(trees, 1)]
    return "\n".join(["#NEXUS", "BEGIN TREES;", *lines, "END;", ""])


def _renamed(newick: str, names: dict[str, str]) -> str:

    def rename(label: re.Match[str]) -> str:
        if label["name"] is None:
            return label[0]
        return label["before"] + names.get(label["name"], label["name"])

    return _LABEL.sub(rename, newick)
