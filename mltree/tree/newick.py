"""Newick text in and out, tree drawings, and ete3's Robinson-Foulds distance.

The one module that knows ete3, which is loaded when first needed. ete3 builds the tree from
normalised text (newick_text); then it is flattened: taxa matched, unrooted, the nodes of polytomies
joined by artificial edges.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from mltree.errors import InputError
from mltree.tree.newick_text import RawTree, quoted, raw_trees, text_of
from mltree.tree.splits import facing
from mltree.tree.topology import DEFAULT_LENGTH, Tree, siblings, tree_from_edges
from mltree.values import Value

__all__ = [
    "Notices",
    "ascii_drawing",
    "listed",
    "read_newick",
    "read_newicks",
    "robinson_foulds",
    "write_newick",
]

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
