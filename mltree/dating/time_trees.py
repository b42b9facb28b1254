"""Time trees: rooted binary trees whose nodes have heights, and whose branches may have rates.

A height is the time before the latest tip. Letters: T tips, N = 2T - 1 nodes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain, repeat
from pathlib import Path

import numpy as np

from mltree.data.nexus import is_nexus
from mltree.data.source import unpacked
from mltree.system.arrays import Float64, Index
from mltree.system.errors import InputError
from mltree.system.values import Value
from mltree.tree.clades import WrittenTree, read_written
from mltree.tree.newick import branch, newick_of, quoted

NO_NODE = -1

ROUNDING = 1e-9
"""Heights of tips below this share of the root's count as none, and so do negative lengths."""


class TimeTree(Value, eq=False):
    """A time tree: nodes 0 to T-1 are the tips, the others inner nodes in any order."""

    taxa: tuple[str, ...]
    """T names, of nodes 0 to T-1."""
    parents: Index
    """intp [N]: -1 for the root."""
    heights: Float64
    """float64 [N], units of time."""
    rates: Float64 | None = None
    """float64 [N]: of the branch above each node, that of the root unused; None without rates."""

    @property
    def n_tips(self) -> int:
        """Number of tips, T."""
        return len(self.taxa)

    @cached_property
    def root(self) -> int:
        """The node without a parent."""
        return int(np.flatnonzero(self.parents < 0)[0])

    @cached_property
    def lengths(self) -> Float64:
        """float64 [N]: duration of the branch above each node; NaN for the root."""
        lengths = self.heights[self.parents] - self.heights
        lengths[self.root] = np.nan
        return lengths

    @cached_property
    def bits(self) -> tuple[int, ...]:
        """N sets of the tips below each node: bit k is tip k."""
        bits = [1 << node if node < self.n_tips else 0 for node in range(len(self.parents))]
        parents = self.parents.tolist()
        for node in self._upwards[:-1]:
            bits[parents[node]] |= bits[node]
        return tuple(bits)

    @cached_property
    def children(self) -> Index:
        """Intp [N, 2]: the child with the lowest tip first; -1 at tips."""
        below: list[list[int]] = [[] for _ in self.parents]
        lowest = [bits & -bits for bits in self.bits]
        for node, parent in enumerate(self.parents.tolist()):
            if parent >= 0:
                below[parent].append(node)
        rows = (sorted(pair, key=lowest.__getitem__) or [NO_NODE] * 2 for pair in below)
        return np.array(list(rows), np.intp)

    @cached_property
    def _upwards(self) -> list[int]:
        """All nodes, each behind those below it."""
        parents = self.parents.tolist()
        waiting = np.bincount(self.parents[self.parents >= 0], minlength=len(parents)).tolist()
        order = list(range(self.n_tips))
        for node in order:  # grows
            parent = parents[node]
            if parent >= 0:
                waiting[parent] -= 1
                if not waiting[parent]:
                    order.append(parent)
        return order

    def mrca(self, tips: Iterable[int]) -> int:
        """The last common ancestor of some tips."""
        wanted = _set_of(tips)
        parents, node = self.parents.tolist(), wanted.bit_length() - 1
        while wanted & ~self.bits[node]:
            node = parents[node]
        return node

    def is_clade(self, tips: Iterable[int]) -> bool:
        """True if some tips are all those of their last common ancestor."""
        group = set(tips)
        return self.bits[self.mrca(group)] == _set_of(group)

    # Writing.

    @cached_property
    def preorder(self) -> Index:
        """Intp [N]: all nodes in the order in which they are written, parents before children."""
        children, order, pending = self.children.tolist(), [], [self.root]
        while pending:
            node = pending.pop()
            order.append(node)
            if node >= self.n_tips:
                pending += children[node][::-1]
        return np.array(order, np.intp)

    @cached_property
    def written(self) -> WrittenTree:
        """The tree with lengths in time; node n of it is node ``preorder[n]`` of this one."""
        order = self.preorder
        place = np.empty(len(order), np.int32)
        place[order] = np.arange(len(order), dtype=np.int32)
        parents = np.where(order == self.root, np.int32(-1), place[self.parents[order]])
        labels = tuple(self.taxa[node] if node < self.n_tips else "" for node in order.tolist())
        return WrittenTree(parents.astype(np.int32), self.lengths[order], labels)

    def newick(self, names: Sequence[str] | None = None, notes: Sequence[str] | None = None) -> str:
        """The tree as one line of Newick, lengths in time, rates as ``[&rate=...]``.

        names  of the tips, as they are to be written; their own, quoted if needed, by default
        notes  N texts between a node's name and its length, in place of its rate
        """
        shown = [quoted(name) for name in self.taxa] if names is None else names
        if notes is None and self.rates is not None:
            notes = [f"[&rate={rate!r}]" for rate in self.rates.tolist()]
            notes[self.root] = ""
        ends = [branch(length) for length in self.lengths.tolist()]
        if notes is not None:
            ends = [note + end for note, end in zip(notes, ends, strict=True)]
        parents, first = self.parents.tolist(), list(range(len(ends)))
        texts = [*shown, *[""] * (self.n_tips - 1)]
        below: list[list[int]] = [[] for _ in ends]
        for node in self._upwards:
            if node >= self.n_tips:
                one, other = sorted(below[node], key=first.__getitem__)
                first[node] = first[one]
                texts[node] = f"({texts[one]},{texts[other]})"
            texts[node] += ends[node]
            below[parents[node]].append(node)
        return f"{texts[self.root]};"

    # Reading.

    @classmethod
    def of(
        cls, tree: WrittenTree, taxa: Sequence[str] | None = None, rates: Float64 | None = None,
        file: str | None = None,
    ) -> TimeTree:  # fmt: skip
        """The time tree of a rooted binary tree whose lengths are in time.

        taxa   names of nodes 0 to T-1; those of the tree, in its order, by default
        rates  f64 [N], by the nodes of ``tree``

        Raises: InputError: a node has not two children, a length is missing or negative, or the
        taxa are others.
        """
        tips = [tree.labels[tip] for tip in tree.tips]
        taxa = tuple(tips) if taxa is None else tuple(taxa)
        _expect_taxa(tips, taxa, file)
        if any(len(below) not in (0, 2) for below in tree.children):
            hint = "a tree in time is rooted and binary"
            raise InputError("a node of the tree has not two children", file=file, hint=hint)
        lengths = tree.lengths.copy()
        lengths[0] = 0.0
        if np.isnan(lengths).any():
            raise InputError("a branch of the tree has no length", file=file)
        depths = np.zeros(tree.n_nodes)
        for node, parent in enumerate(tree.parent.tolist()[1:], 1):
            depths[node] = depths[parent] + lengths[node]
        heights = depths.max() - depths
        least = -ROUNDING * heights[0]
        if (lengths < least).any():
            raise InputError("a branch of the tree has a negative length", file=file)
        number = {name: node for node, name in enumerate(taxa)}
        place = np.empty(tree.n_nodes, np.intp)
        place[list(tree.tips)] = [number[name] for name in tips]
        place[[bool(below) for below in tree.children]] = np.arange(len(taxa), tree.n_nodes)
        heights[(heights <= -least) & np.array([not below for below in tree.children])] = 0.0
        parents = np.full(tree.n_nodes, NO_NODE)
        parents[place[1:]] = place[tree.parent[1:]]
        own = np.empty(tree.n_nodes)
        own[place] = heights
        of_nodes = None
        if rates is not None:
            of_nodes = np.empty(tree.n_nodes)
            of_nodes[place] = rates
        return cls(taxa, parents, own, of_nodes)


def _set_of(tips: Iterable[int]) -> int:
    return sum(1 << tip for tip in set(map(int, tips)))


def _expect_taxa(tips: Sequence[str], taxa: Sequence[str], file: str | None) -> None:
    """Make sure that names are those of the tips. Raises: InputError."""
    if len(set(tips)) < len(tips):
        twice = next(name for name in tips if tips.count(name) > 1)
        raise InputError(f"taxon {twice!r} is in the tree twice", file=file, taxon=twice)
    unlike = sorted(set(tips) ^ set(taxa))
    if unlike:
        where = "only in the tree" if unlike[0] in tips else "not in the tree"
        raise InputError(f"taxon {unlike[0]!r} is {where}", file=file, taxon=unlike[0])


_QUOTED = rb"'(?:[^']|'')*'"
_NUMBER = rb"[-+0-9.eE]+"
_RATE = rb"\[&(?:[^\]]*,)?rate=(" + _NUMBER + rb")[^\]]*\]"
_RATED = re.compile(
    rb"%(rate)s\s*:\s*%(number)s|:\s*%(rate)s\s*%(number)s|:\s*%(number)s\s*%(rate)s"
    % {b"rate": _RATE, b"number": _NUMBER}
)
_LENGTH = re.compile(rb"(" + _QUOTED + rb")|:\s*" + _NUMBER)
_MARK = b"\x02"


def rates_for_lengths(text: bytes) -> bytes:
    """Trees with the rates of their comments ``[&rate=...]`` in place of their branch lengths.

    A branch without a rate gets no length. Other comments stay. As BEAST 1, BEAST X and BEAST 2
    have them: in front of the colon, behind it, or behind the length.
    """
    # Pieces in turn: text, and the rate by one of three patterns; half the time of a substitution.
    pieces = _RATED.split(text)
    rates = map(bytes.__add__, repeat(b":"), map(_first, *(pieces[at::4] for at in (1, 2, 3))))
    between = _LENGTH.sub(rb"\1", _MARK.join(pieces[::4])).split(_MARK)
    return b"".join(chain.from_iterable(zip(between, rates, strict=False))) + between[-1]


def _first(before: bytes | None, amid: bytes | None, behind: bytes | None) -> bytes:
    return before or amid or behind or b""


def has_rates(text: bytes) -> bool:
    """True for a text some of whose branches have rates."""
    return _RATED.search(text) is not None


def read_time_trees(path: str | Path, taxa: Sequence[str] | None = None) -> list[TimeTree]:
    """Every tree of a Newick or NEXUS file, with rates where comments have them.

    taxa  names of nodes 0 to T-1; those of each tree, in its order, by default

    Raises: InputError: a tree is broken, not rooted and binary, or has other taxa.
    """
    trees = read_written(path)
    data, file = unpacked(str(path)), str(path)
    rates: list[Float64 | None] = [None] * len(trees)
    if has_rates(data):
        text = rates_for_lengths(data).decode("utf-8-sig")
        plain = newick_of(text, file) if is_nexus(text) else text
        rates = [tree.lengths for tree in read_written(plain)]
    found = zip(trees, rates, strict=True)
    return [TimeTree.of(tree, taxa, rated, file) for tree, rated in found]
