"""Trees of any shape, rooted or unrooted: clades of many trees, and single trees as written.

A clade is an interval of its tree's tips in the order of the text, so that whole files are read
without a loop over nodes. The one module that imports ete3, for drawings.

Letters: n trees, T taxa, C clades, N nodes.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, cached_property
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mltree.data.source import TaxonNumbers
from mltree.system.arrays import Bool, Float64, Index, Int32
from mltree.system.errors import InputError, did_you_mean
from mltree.system.values import Value, decimal
from mltree.tree.newick import ParsedTrees, branch, parsed_trees, quoted, text_of


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
        """Number of trees, n."""
        return len(self.order)

    @property
    def n_tips(self) -> int:
        """Number of taxa, T."""
        return len(self.taxa)

    @property
    def bounds(self) -> Index:
        """The clades of tree k, intp [n+1]: those from ``bounds[k]`` up to ``bounds[k + 1]``."""
        return np.searchsorted(self.tree, np.arange(self.n_trees + 1))

    @property
    def is_inner(self) -> Bool:
        """Clades with two taxa or more inside, and two or more outside, bool [C]."""
        size = self.last - self.first
        return (size >= 2) & (size <= self.n_tips - 2)

    def part(self, start: int, stop: int) -> Clades:
        """The trees from number ``start`` up to ``stop``."""
        chosen = self.only(slice(*self.bounds[[start, stop]]))
        order, tip_lengths = self.order[start:stop], self.tip_lengths[start:stop]
        tree = chosen.tree - np.int32(start)
        return replace(chosen, order=order, tip_lengths=tip_lengths, tree=tree)

    def only(self, chosen: Bool | slice) -> Clades:
        """A copy with some of the clades.  ``chosen``: bool [C], or a slice."""
        tree, first, last = self.tree[chosen], self.first[chosen], self.last[chosen]
        return replace(self, tree=tree, first=first, last=last, lengths=self.lengths[chosen])

    def with_tips(self) -> Clades:
        """A copy with tips as clades too, behind the others of their tree."""
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
        """All trees of several Clades, one after another, whose taxa have the same numbers."""
        before = np.cumsum([0, *(piece.n_trees for piece in pieces[:-1])], dtype=np.int32)
        places = zip(pieces, before, strict=True)
        numbered = (replace(piece, tree=piece.tree + skip) for piece, skip in places)
        names = ("order", "tip_lengths", "tree", "first", "last", "lengths")
        columns = zip(*(attrgetter(*names)(piece) for piece in numbered), strict=True)
        return cls(taxa, *map(np.concatenate, columns))


def nested(taxa: tuple[str, ...], members: Bool) -> tuple[Clades, Index]:
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
    first, last = (of[after_what_it_holds].astype(np.int32) for of in (first, last))
    no_lengths, tree = np.full(len(members), np.nan), np.zeros(len(members), dtype=np.int32)
    written_order, no_tip_lengths = order[None, :].astype(np.int32), np.full((1, len(taxa)), np.nan)
    clades = Clades(taxa, written_order, no_tip_lengths, tree, first, last, no_lengths)
    return clades, by_size[after_what_it_holds]


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
    columns = zip(tree.order[0].tolist(), tree.tip_lengths[0].tolist(), strict=True)
    for column, (taxon, length) in enumerate(columns):
        name = quoted(tree.taxa[taxon])
        tips.append("(" * opened[column] + name + branch(length) + "".join(closed[column + 1]))
    return f"({','.join(tips)});"


def read_clades(source: str | Path, like: Clades | None = None, origin: str = "") -> Clades:
    """Every tree of a Newick or NEXUS file or text; taxa are numbered as in the first tree.

    source  a path, or the text itself; see :func:`mltree.tree.newick.read_newick`
    like    trees whose taxa these must have, and whose numbers the taxa get
    origin  the source of ``like``, for messages
    Raises: InputError for a broken file, and for trees whose taxa are not the same.
    """
    text, file = text_of(source)
    taxa, origin = (like.taxa, origin) if like else (None, "the first tree")
    pieces = []
    for parsed in parsed_trees(text, file, signed=True):
        pieces.append(clades_of(parsed, taxa, file, origin))
        taxa = pieces[0].taxa
    return Clades.joined(pieces[0].taxa, pieces)


def read_gene_trees(source: str | Path) -> Iterator[Clades]:
    """Every tree of a Newick or NEXUS file or text, each over taxa of its own.

    Raises: InputError for a broken file.
    """
    text, file = text_of(source)
    for parsed in parsed_trees(text, file, signed=True, size=1):
        yield clades_of(parsed, None, file)


def read_labelled(source: str | Path) -> tuple[Clades, list[str]]:
    """The first tree of a Newick or NEXUS file or text, and the label of each clade or ``""``.

    Raises: InputError for a broken file.
    """
    text, file = text_of(source)
    parsed = next(parsed_trees(text, file, signed=True, size=1))
    is_proper, *_ = _intervals(parsed, parsed.tips.size)
    return clades_of(parsed, None, file), parsed.labels(parsed.pairs[1][is_proper] + 1)


def clades_of(
    parsed: ParsedTrees, taxa: tuple[str, ...] | None, file: str | None, origin: str = ""
) -> Clades:
    """The clades of parsed trees over the taxa; None takes those of the first tree."""
    taxa, order = _taxa_of_tips(parsed, taxa, file, origin)
    is_proper, tree, first, last = _intervals(parsed, len(taxa))
    tip_lengths = parsed.lengths[parsed.tips].reshape(order.shape)
    lengths = parsed.lengths[parsed.pairs[1] + 1]
    return Clades(taxa, order, tip_lengths, tree, first, last, lengths).only(is_proper)


def _intervals(parsed: ParsedTrees, n_tips: int) -> tuple[Bool, Int32, Int32, Int32]:
    """Every inner node: True where it does not hold all tips, its tree, first and last column."""
    opening, closing = parsed.pairs
    n_seen = np.cumsum(parsed.is_tip, dtype=np.int32)
    tree = parsed.tree[closing]
    first, last = n_seen[opening], n_seen[closing]
    before = tree * np.int32(n_tips)
    return last - first < n_tips, tree, first - before, last - before


def _taxa_of_tips(
    parsed: ParsedTrees, taxa: tuple[str, ...] | None, file: str | None, origin: str
) -> tuple[tuple[str, ...], Int32]:
    """The taxa, and int32 [n, T]: the taxon of every tip; see :func:`clades_of`."""
    starts = np.searchsorted(parsed.tree[parsed.tips], np.arange(parsed.n_trees + 1))
    if taxa is None:
        taxa = tuple(parsed.labels(parsed.tips[: starts[1]]))
    taxon = _numbered(parsed, taxa)
    if taxon is None:
        labels = parsed.cut(parsed.tips)
        number = TaxonNumbers(taxa)
        known = {label: number[parsed.name(label)] for label in set(labels)}
        taxon = np.array([known[label] for label in labels], dtype=np.int32)
    if (np.diff(starts) == len(taxa)).all():
        order = taxon.reshape(-1, len(taxa))
        if (np.sort(order, axis=1) == np.arange(len(taxa))).all():
            return taxa, order
    for tree in range(parsed.n_trees):
        parsed.check_taxa(tree, taxa, file, origin=origin, here="this tree")
    raise AssertionError("unlike taxa, in no tree")


def _numbered(parsed: ParsedTrees, taxa: tuple[str, ...]) -> Int32 | None:
    """The taxon of every tip, int32, where all names are numbers; None where not."""
    values = [int(name) if _NUMBER.fullmatch(name) else -1 for name in taxa]
    if parsed.names is not None or min(values, default=-1) < 0:
        return None
    try:
        written = parsed.numbers(parsed.tips)
    except ValueError:
        return None
    of_value = np.full(max(values) + 2, -1, np.int32)
    of_value[values] = np.arange(len(taxa))
    taxon = of_value[np.clip(written, 0, max(values) + 1).astype(np.intp)]
    widths = np.array(list(map(len, taxa)))[taxon]
    is_name = (written == np.array(values)[taxon]) & (taxon >= 0)
    is_name &= parsed.end[parsed.tips] - parsed.start[parsed.tips] == widths  # no 01, no 1.0
    return taxon if is_name.all() else None


_NUMBER = re.compile("0|[1-9][0-9]{0,6}")
"""Names that are read as numbers: none of another spelling is the same name."""


class WrittenTree(Value, eq=False):
    """A rooted tree as it is written, for pictures and exports: order, polytomies, labels, lengths.

    Nodes are numbered in the order in which the text opens them: node 0 is the root, parents come
    before children, and a subtree is a range of numbers. T is the number of tips.
    """

    parent: Int32
    """int32 [N]: NONE for the root."""
    lengths: Float64
    """float64 [N]: of the branch above each node; NaN where there is none."""
    labels: tuple[str, ...]
    """N names of tips and labels of inner nodes, often supports; empty without a label."""

    @property
    def n_nodes(self) -> int:
        """Number of nodes, N."""
        return len(self.parent)

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """The children of each node, in order."""
        below: list[list[int]] = [[] for _ in range(self.n_nodes)]
        for node, parent in enumerate(self.parent.tolist()[1:], 1):
            below[parent].append(node)
        return tuple(map(tuple, below))

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
        """True for a tree with branch lengths."""
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
        labelled = zip(self.labels, self.children, strict=True)
        return np.array([_number(label) if below else math.nan for label, below in labelled])

    def renamed(self, names: Mapping[str, str]) -> WrittenTree:
        """A copy with other names of tips; tips that ``names`` lacks keep theirs.

        Raises: InputError: tips of two names have one then.
        """
        labels, before = list(self.labels), dict[str, str]()
        for tip in self.tips:
            labels[tip] = names.get(labels[tip], labels[tip])
            if before.setdefault(labels[tip], self.labels[tip]) != self.labels[tip]:
                raise InputError(
                    f"two tips would be called {labels[tip]!r}", taxon=self.labels[tip]
                )
        return WrittenTree(self.parent, self.lengths, tuple(labels))

    @cached_property
    def ends(self) -> Int32:
        """int32 [N]: the number after the last node of each subtree."""
        end = np.arange(1, self.n_nodes + 1, dtype=np.int32)
        for node in range(self.n_nodes - 1, 0, -1):
            parent = self.parent[node]
            end[parent] = max(end[parent], end[node])
        return end

    def clade_of(self, tips: Iterable[int]) -> int:
        """The last common ancestor of some tips."""
        wanted = list(tips)
        node, last = min(wanted), max(wanted)
        while self.ends[node] <= last:
            node = int(self.parent[node])
        return node

    def tips_named(self, taxa: Iterable[str]) -> list[int]:
        """The tips of some names.

        Raises: InputError: the tree has no such tip.
        """
        tip_of = {self.labels[tip]: tip for tip in self.tips}
        for name in taxa:
            if name not in tip_of:
                hint = did_you_mean(name, tip_of)
                raise InputError(f"the tree has no taxon {name!r}", taxon=name, hint=hint)
        return [tip_of[name] for name in taxa]

    def ladderised(self, *, larger_first: bool = False) -> WrittenTree:
        """A copy with the smaller subtrees of every node first, or the larger ones."""
        sign = -1 if larger_first else 1
        by_size = (
            tuple(sorted(below, key=lambda child: sign * int(self.n_below[child])))
            for below in self.children
        )
        return self._in_order(tuple(by_size))

    def _in_order(self, children: Sequence[Sequence[int]], root: int = 0) -> WrittenTree:
        """A copy whose nodes have other children, and are numbered anew."""
        order: list[int] = []
        parents: list[int] = []
        pending = [(root, -1)]
        while pending:
            node, parent = pending.pop()
            parents.append(parent)
            number = len(order)
            order.append(node)
            pending += [(child, number) for child in children[node][::-1]]
        labels = tuple(self.labels[node] for node in order)
        return WrittenTree(np.array(parents, np.int32), self.lengths[order], labels)

    def rooted_above(self, node: int, share: float = 0.5) -> WrittenTree:
        """A copy with its root on the branch above a node, a share of its length from the node.

        Labels of inner nodes go with their branches; a root of two children becomes one branch.
        """
        if node == 0:
            return self
        children = [list(below) for below in self.children] + [[]]
        lengths, labels = [*self.lengths.tolist(), math.nan], [*self.labels, ""]
        root = self.n_nodes
        above, length = int(self.parent[node]), lengths[node]
        label = labels[node] if self.children[node] else ""
        children[above].remove(node)
        children[root] = [node, above]
        lengths[node], rest = length * share, length * (1.0 - share)
        while above:
            higher = int(self.parent[above])
            children[higher].remove(above)
            children[above].append(higher)
            lengths[above], rest = rest, lengths[above]
            labels[above], label = label, labels[above]
            above = higher
        lengths[0], labels[0] = rest, label
        if len(children[0]) == 1:  # of two, or of one alone
            (child,) = children[0]
            lengths[child] = float(np.nansum([lengths[child], rest])) if self.is_measured else rest
            labels[child] = labels[child] or label
            for below in children:
                below[:] = [child if member == 0 else member for member in below]
        elif not children[0]:
            for below in children:
                below[:] = [member for member in below if member]
        grown = WrittenTree(np.zeros(root + 1, np.int32), np.array(lengths), tuple(labels))
        return grown._in_order(children, root)

    def rooted_midway(self) -> WrittenTree:
        """A copy with its root halfway between the two tips that are farthest from each other.

        Raises: InputError: the tree has no branch lengths.
        """
        if not self.is_measured:
            raise InputError("a tree without branch lengths has no midpoint")
        length = np.nan_to_num(self.lengths, nan=0.0)
        deepest = np.zeros(self.n_nodes)
        towards = np.zeros(self.n_nodes, np.int32)
        widest, top, first = -1.0, 0, 0
        for node in range(self.n_nodes - 1, -1, -1):
            reach = sorted(((deepest[c] + length[c], c) for c in self.children[node]), reverse=True)
            if reach:
                deepest[node], towards[node] = reach[0]
            if len(reach) > 1 and reach[0][0] + reach[1][0] > widest:
                widest, top, first = reach[0][0] + reach[1][0], node, int(reach[0][1])
        if widest <= 0.0:
            return self
        left, node = deepest[first] + length[first] - widest / 2.0, first  # below the top node
        while left > length[node]:
            left -= length[node]
            node = int(towards[node])
        share = 1.0 - left / length[node] if length[node] > 0.0 else 0.5
        return self if left == 0.0 and top == 0 else self.rooted_above(node, float(share))

    def rooted_beside(self, taxa: Sequence[str]) -> tuple[WrittenTree, bool]:
        """A copy with its root on the branch to an outgroup, and True if that stands together.

        The root is beside the first of its taxa alone otherwise.

        Raises: InputError: the tree has no such taxon, or no other one.
        """
        outgroup = set(self.tips_named(taxa))
        others = [tip for tip in self.tips if tip not in outgroup]
        if not others:
            raise InputError("the outgroup has all taxa of the tree")
        for side in (sorted(outgroup), others):
            node = self.clade_of(side)
            if node and self.n_below[node] == len(side):
                return self.rooted_above(node), True
        return self.rooted_above(self.tips_named(taxa[:1])[0]), len(outgroup) == 1

    def newick(self) -> str:
        """The tree as one line of Newick, with order, labels and lengths."""
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
            between = [item for child in below[::-1] for item in (child, ",")]
            pending += [")" + ending, *between[:-1], "("]
        return "".join(parts)


def read_written(source: str | Path) -> list[WrittenTree]:
    """Every tree of a Newick or NEXUS file or text.

    Raises: InputError where there is none, or one is broken.
    """
    text, file = text_of(source)
    return [
        _written(parsed, tree)
        for parsed in parsed_trees(text, file, signed=True)
        for tree in range(parsed.n_trees)
    ]


def _written(parsed: ParsedTrees, tree: int) -> WrittenTree:
    gaps, parent = parsed.nodes_of(tree)
    return WrittenTree(parent, parsed.lengths[gaps], tuple(parsed.labels(gaps)))


def _number(label: str) -> float:
    """A support, 95 or 0.95, and the last of several with slashes between them; NaN for a name."""
    try:
        value = decimal(label.rpartition("/")[2])
    except ValueError:
        return math.nan
    return value if math.isfinite(value) else math.nan


def ascii_drawing(newick: str) -> str:
    """A tree with its labels as lines of text, a row a taxon, drawn by ete3; for small trees."""
    (tree,) = read_written(newick)
    node_of = _ete3_node()
    nodes: list[Any] = []
    for label, parent in zip(tree.labels, tree.parent.tolist(), strict=True):
        nodes.append(node_of() if parent < 0 else nodes[parent].add_child())
        nodes[-1].name = label
    is_labelled = any(node.name for node in nodes if node.children)
    return str(nodes[0].get_ascii(show_internal=is_labelled)).strip("\n")


@cache
def _ete3_node() -> Any:
    """ete3's class of tree nodes.

    ``import ete3`` pulls in scipy.stats, its web plugin and more: 0.8 s, a DeprecationWarning, and
    from Python 3.13 on the missing module cgi. Its tree needs none of them: with a bare package in
    place of ete3/__init__.py the module below loads in 0.08 s. It is taken out of sys.modules
    again, so that anyone else's ``import ete3`` gets the whole package.
    """
    with _bare_package("ete3"):
        return importlib.import_module("ete3.coretype.tree").TreeNode


@contextmanager
def _bare_package(name: str) -> Iterator[None]:
    """Context in which a package's submodules can be imported without running its __init__."""
    spec = importlib.util.find_spec(name)
    if spec is None:
        raise ImportError(f"{name} is not installed")
    saved = _without_modules(name)
    sys.modules[name] = ModuleType(name)
    sys.modules[name].__path__ = list(spec.submodule_search_locations or ())
    try:
        yield
    finally:
        _without_modules(name)
        sys.modules.update(saved)


def _without_modules(package: str) -> dict[str, ModuleType]:
    """Take a package's modules out of sys.modules, and return them."""
    names = [name for name in sys.modules if name.split(".")[0] == package]
    return {name: sys.modules.pop(name) for name in names}
