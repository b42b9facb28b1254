"""One tree as it is written: its root, order and polytomies, labels and lengths.

For whatever shows a tree or hands it on. Nodes are numbered in the order in which the text opens
them: node 0 is the root, parents come before children, and a subtree is a range of numbers.

Letters: N nodes, T tips.
"""

from __future__ import annotations

import math
import re
from functools import cached_property
from pathlib import Path

import numpy as np

from mltree.arrays import Float64, Int32
from mltree.errors import InputError
from mltree.numerals import decimal
from mltree.tree.newick_text import RawTree, branch, quoted, raw_trees, text_of
from mltree.tree.topology import NONE
from mltree.values import Value

__all__ = ["WrittenTree", "read_written"]

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
