"""Newick text in and out, tree drawings, and ete3's Robinson-Foulds distance.

The one module that knows ete3, which is loaded when first needed. ete3 builds the tree from
normalised text (newick_text); then it is flattened: taxa matched, unrooted, the nodes of polytomies
joined by artificial edges.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import os
import re
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from mltree.data.source import unpacked
from mltree.system.errors import InputError
from mltree.system.values import Value, decimal
from mltree.tree.splits import facing
from mltree.tree.topology import DEFAULT_LENGTH, Tree, siblings, tree_from_edges

# Trees in NEXUS files (Maddison, Swofford, Maddison 1997, Syst. Biol. 46:590-621).
#
# The TREES block is read, TREE and UTREE commands, their names by TRANSLATE, and by TAXLABELS of
# the TAXA block where numbers stand for taxa that no TRANSLATE names. What becomes of it is the
# Newick text of the trees, each in its line, so that errors are told by their lines.

_PIECE = re.compile(r"""\[[^\]]*\]|'(?:[^']|'')*'|"[^"]*"|[^\['";]+|;|.""", re.DOTALL)
"""A comment, a quoted name, other text, a command's end; or an opening mark that is not closed."""

_LABEL = re.compile(
    r"""(?P<before>[(,]\s*)(?P<name>'(?:[^']|'')*'|"[^"]*"|[^\s()\[\],:;'"]+)|'(?:[^']|'')*'"""
)
"""A tip's name behind the mark before it; names in quotes that stand elsewhere are passed over."""

_COMMENT = re.compile(r"""('(?:[^']|'')*'|"[^"]*")|\[[^\]]*\]""")
_TAXON = re.compile(r"""'(?:[^']|'')*'|"[^"]*"|[^\s'"]+""")
_TREE = re.compile(r"U?TREE\b[^=]*=", re.IGNORECASE)
_WEIGHT = re.compile(r"\[&W([^\]]*)\]", re.IGNORECASE)
"""PAUP's and MrBayes's ``[&W 1/3]``: how much a tree counts."""
_PAIR = re.compile(r"""\s*([^\s,]+)\s+('(?:[^']|'')*'|"[^"]*"|[^\s,]+)\s*(?:,|$)""")


def is_nexus(text: str) -> bool:
    """Whether a text is NEXUS."""
    return text.lstrip()[:6].upper() == "#NEXUS"


def newick_of(text: str, file: str | None) -> str:
    """The trees of a NEXUS file as Newick, every one in its line.

    Raises:
        InputError: there is none, or trees count differently ([&W ...]).
    """
    parts: list[str] = []
    names: dict[str, str] = {}
    block = ""
    weights: set[str] = set()
    is_inside = has_tree = False
    for command in _commands(text):
        words = _COMMENT.sub(lambda found: found[1] or "", command).strip()
        keyword = words.split(None, 1)[0].upper() if words else ""
        if keyword == "BEGIN":
            block = "".join(words.upper().split()[1:2])
            is_inside = block == "TREES"
        elif block == "TAXA" and keyword == "TAXLABELS":
            names = _numbered(words[len(keyword) :])
        elif is_inside and keyword in {"END", "ENDBLOCK"}:
            is_inside = False
        elif is_inside and keyword == "TRANSLATE":
            names |= dict(_PAIR.findall(words[len(keyword) :]))
        elif is_inside and (found := _TREE.match(words)):
            weights.update(weight.strip() for weight in _WEIGHT.findall(command))
            lead = command[: len(command) - len(command.lstrip())].count("\n")
            tree = _renamed(words[found.end() :].strip(), names)
            missing = command.count("\n") - lead - tree.count("\n")
            has_tree = True
            parts.append("\n" * lead + tree + ";" + "\n" * missing)
            continue
        parts.append("\n" * command.count("\n"))
    if len(weights) > 1:
        shown = " and ".join(sorted(weights)[:2])
        hint = "take the weights out, or write every tree as often as it counts"
        raise InputError(f"trees of weights {shown}, which are not heeded", file=file, hint=hint)
    if not has_tree:
        hint = "it takes a TREES block with a TREE in it"
        raise InputError("a NEXUS file without trees", file=file, hint=hint)
    return "".join(parts)


def _numbered(labels: str) -> dict[str, str]:
    """The taxa by the numbers that stand for them in trees, unless that is a taxon's name."""
    taxa = _TAXON.findall(labels)
    numbers = ((str(number), taxon) for number, taxon in enumerate(taxa, 1))
    return {number: taxon for number, taxon in numbers if number not in taxa}


def nexus_trees(trees: Sequence[str]) -> str:
    """A NEXUS file of trees, each in Newick."""
    lines = [f"  TREE tree_{number} = {tree}" for number, tree in enumerate(trees, 1)]
    return "\n".join(["#NEXUS", "BEGIN TREES;", *lines, "END;", ""])


def _commands(text: str) -> Iterator[str]:
    """The text between semicolons that count, and what is left at the end."""
    parts: list[str] = []
    for piece in _PIECE.findall(text.lstrip()[len("#NEXUS") :]):
        if piece == ";":
            yield "".join(parts)
            parts = []
        else:
            parts.append(piece)
    yield "".join(parts)


def _renamed(newick: str, names: dict[str, str]) -> str:
    """A tree whose tips have the names that their keys stand for."""

    def rename(found: re.Match[str]) -> str:
        if found["name"] is None:
            return found[0]
        return found["before"] + names.get(found["name"], found["name"])

    return _LABEL.sub(rename, newick)


# Newick text: its tokens, its trees one by one in a form that ete3 cannot misread, its quoting.
#
# ete3 knows neither comments nor doubled quotes nor ``.5``, and takes any text after a colon that
# begins with a number. So names become numbers here, comments go, branch lengths are checked and
# rewritten, and whatever is wrong is reported with its line.

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


DEFAULT_DIGITS = 10
"""Decimals of a written branch length: four more than the shortest branch needs."""

MAX_NAMED = 5
"""How many taxa an error message lists."""

Notices = tuple[str, ...]


def read_newick(source: str | Path, taxa: Sequence[str]) -> tuple[Tree, Notices]:
    """The first tree of a Newick file or text, and what had to be changed to make it usable.

    source  a path, or the text itself (anything with a ``;`` or that starts with ``(`` or ``[``)
    taxa    T names; tip i of the tree is taxa[i]
    Raises: InputError for a broken file, negative or non-finite branch lengths, and taxa that are
    missing, unknown or there twice.
    """
    trees = read_newicks(source, taxa)
    tree, notices = trees[0]
    if len(trees) > 1:
        notices += (f"the first of {len(trees)} trees is used",)
    return tree, notices


def read_newicks(source: str | Path, taxa: Sequence[str]) -> list[tuple[Tree, Notices]]:
    """Every tree of a Newick file or text, with its notices; see ``read_newick``."""
    text, file = text_of(source)
    index = {name: tip for tip, name in enumerate(taxa)}
    trees = [_Flattener(raw, index, file).tree() for raw in raw_trees(text, file)]
    if not trees:
        raise InputError("no tree in it", file=file, hint="a Newick tree ends with ';'")
    return trees


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
        found: list[int] = []
        ahead = [twin[half] for half in halves]
        while ahead:
            half = ahead.pop()
            if vanishes(half):
                ahead += [twin[beside] for beside in siblings(half)]
            else:
                found.append(half)
        return sorted(found, key=first_tip.__getitem__)

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


def ascii_drawing(newick: str) -> str:
    """A tree with its labels drawn with lines of text, a row a taxon, by ete3; for small trees."""
    (raw,) = raw_trees(newick, None)
    ete3 = _ete3()
    root = ete3.read(raw.text, root_node=ete3.Node(), format=1)
    for node in root.traverse():
        node.name = raw.names[int(node.name)] if node.name else ""
    is_labelled = any(node.name for node in root.traverse() if node.children)
    return str(root.get_ascii(show_internal=is_labelled)).strip("\n")


def robinson_foulds(first: Tree, second: Tree) -> int:
    """ete3's count of splits that only one tree has; ``splits.robinson_foulds`` is the fast one."""
    return int(_ete3_tree(first).robinson_foulds(_ete3_tree(second), unrooted_trees=True)[0])


# ---------------------------------------------------------------------------------------- reading


@dataclass
class _Flattener:
    """Turns one raw tree into a Tree: unrooted, tips numbered by taxon."""

    raw: RawTree
    index: dict[str, int]
    file: str | None
    ends: list[tuple[int, int]] = field(default_factory=list)
    lengths: list[float] = field(default_factory=list)
    next_node: int = 0
    artificial: set[int] = field(default_factory=set)
    """Nodes that an artificial edge joins to the one above."""
    n_unary: int = 0
    rooted: bool = False

    def tree(self) -> tuple[Tree, Notices]:
        root = self._parse()
        self._match_taxa(root)
        self.next_node = len(self.index)
        self._flatten(root)
        lengths = np.array(self.lengths)
        missing = np.isnan(lengths)
        lengths[missing] = DEFAULT_LENGTH
        ends = np.array(self.ends)
        is_artificial = np.isin(ends[:, 1], list(self.artificial))
        last = np.argsort(is_artificial, kind="stable")
        tree = tree_from_edges(ends[last], lengths[last], len(self.index), len(self.artificial))
        return tree, self._notices(int(missing.sum()))

    def _fail(self, problem: str, *, taxon: str | None = None, hint: str | None = None) -> Any:
        return InputError(problem, file=self.file, line=self.raw.line, taxon=taxon, hint=hint)

    def _parse(self) -> Any:
        """ete3's root node; branches without a length have NaN."""
        ete3 = _ete3()
        root = ete3.Node()
        try:
            ete3.read(self.raw.text, root_node=root, format=1)
        except Exception as error:  # ete3 raises whatever its parser stumbles over
            problem = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise self._fail(f"broken Newick tree: {problem}") from None
        while len(root.children) == 1:
            root = root.children[0]
        return root

    def _match_taxa(self, root: Any) -> None:
        """Replace the names of the leaves by taxon numbers."""
        seen: set[int] = set()
        unknown: list[str] = []
        for leaf in root.iter_leaves():
            if not leaf.name:
                raise self._fail("a tip without a name")
            name = self.raw.names[int(leaf.name)]
            tip = self.index.get(name)
            if tip is None:
                unknown.append(name)
            elif tip in seen:
                raise self._fail(f"taxon {name!r} is in the tree twice", taxon=name)
            else:
                seen.add(tip)
                leaf.name = tip
        missing = [name for name, tip in self.index.items() if tip not in seen]
        if unknown:
            raise self._fail(
                f"{listed(unknown)} in the tree but not in the alignment",
                taxon=unknown[0],
            )
        if missing:
            raise self._fail(
                f"{listed(missing)} in the alignment but not in the tree",
                taxon=missing[0],
            )

    def _flatten(self, root: Any) -> None:
        """Give every node a number and every branch a row, children before parents."""
        made: dict[Any, tuple[int, float]] = {}
        for node in root.traverse("postorder"):
            children = deque(made.pop(child) for child in node.children)
            if node is root:
                self._close(children)
            elif not children:
                made[node] = (node.name, node.dist)
            elif len(children) == 1:
                self.n_unary += 1
                below, length = children[0]
                made[node] = (below, _merged(length, node.dist))
            else:
                self._resolve(children, 2)
                made[node] = (self._join(children), node.dist)

    def _close(self, children: deque[tuple[int, float]]) -> None:
        if len(children) == 2:
            self.rooted = True
            (left, one), (right, other) = children
            self.ends.append((left, right))
            self.lengths.append(_merged(one, other))
        else:
            self._resolve(children, 3)
            self._join(children)

    def _resolve(self, children: deque[tuple[int, float]], degree: int) -> None:
        """Pair subtrees, first in first out (the shallowest binary tree), down to ``degree``."""
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
        notices = []
        if self.rooted:
            notices.append("rooted tree: root removed, its two branches merged into one")
        if self.n_unary:
            notices.append(f"{self.n_unary} nodes with a single child removed")
        if n_missing:
            notices.append(f"{n_missing} branches without a length set to {DEFAULT_LENGTH:g}")
        return tuple(notices)


def _merged(one: float, other: float) -> float:
    """The length of two branches in a row, NaN only where neither is known."""
    if math.isnan(one) or math.isnan(other):
        return other if math.isnan(one) else one
    return one + other


def listed(names: Sequence[str]) -> str:
    """The first of some names, how many more there are, and the verb that goes with them."""
    shown = ", ".join(repr(name) for name in names[:MAX_NAMED])
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return f"{shown}{more} {'is' if len(names) == 1 else 'are'}"


# ---------------------------------------------------------------------------------------- writing


def _first_tips(tree: Tree, twin: Sequence[int]) -> list[int]:
    """For every half-edge that faces tip 0, the lowest tip behind it."""
    first = [half // 3 for half in range(len(twin))]
    met: list[tuple[int, int, int]] = []
    ahead = [twin[0]]
    while ahead:
        half = ahead.pop()
        if half >= 3 * tree.n_tips:
            left, right = (twin[other] for other in siblings(half))
            met.append((half, left, right))
            ahead += [left, right]
    for half, left, right in reversed(met):
        first[half] = min(first[left], first[right])
    return first


def _separated(halves: list[int]) -> list[int | str]:
    """Half-edges with commas between them, last first, as a stack wants them."""
    items: list[int | str] = []
    for half in reversed(halves):
        items += [half, ","]
    return items[:-1]


# ------------------------------------------------------------------------------------------- ete3


class _Ete3(Value):
    Node: Any
    read: Any


def _ete3_tree(tree: Tree) -> Any:
    """The tree as ete3's, leaves named by tip number."""
    ete3 = _ete3()
    names = [str(tip) for tip in range(tree.n_tips)]
    return ete3.read(write_newick(tree, names), root_node=ete3.Node(), format=1)


@cache
def _ete3() -> _Ete3:
    """ete3's parser and its tree node, the latter with unknown (NaN) instead of 1 as the length.

    ``import ete3`` pulls in scipy.stats, its web plugin and more: 0.8 s, a DeprecationWarning, and
    from Python 3.13 on the missing module cgi. Its tree needs none of them: with a bare package in
    place of ete3/__init__.py the two modules below load in 0.08 s. They are taken out of
    sys.modules again, so that anyone else's ``import ete3`` gets the whole package.
    """
    with _BarePackage("ete3"):
        tree_module = importlib.import_module("ete3.coretype.tree")
        parser = importlib.import_module("ete3.parser.newick")

    def start(self: Any) -> None:
        tree_module.TreeNode.__init__(self)
        self.dist = float("nan")

    return _Ete3(type("Node", (tree_module.TreeNode,), {"__init__": start}), parser.read_newick)


class _BarePackage:
    """While active, a package whose submodules can be imported but whose __init__ does not run."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.saved: dict[str, ModuleType] = {}

    def __enter__(self) -> None:
        spec = importlib.util.find_spec(self.name)
        if spec is None:
            raise ImportError(f"{self.name} is not installed")
        self.saved = self._remove()
        package = ModuleType(self.name)
        package.__path__ = list(spec.submodule_search_locations or ())
        sys.modules[self.name] = package

    def __exit__(self, *_: object) -> None:
        self._remove()
        sys.modules.update(self.saved)

    def _remove(self) -> dict[str, ModuleType]:
        mine = [key for key in sys.modules if key.split(".")[0] == self.name]
        return {key: sys.modules.pop(key) for key in mine}
