"""Trees as they are handed over: from any library, and to it.

A tree comes as Newick, a path, or an object of ete3, Biopython, dendropy, cogent3 or scikit-bio,
told by what its nodes have; it is walked, not printed, so that no digit of a length is lost.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from io import StringIO
from typing import Any, TypeAlias

import numpy as np

from mltree.errors import InputError
from mltree.tree.newick_text import quoted
from mltree.tree.written import WrittenTree, read_written

__all__ = ["PhyloTree", "TreeLike", "newick_of", "newicks_of"]

TreeLike: TypeAlias = Any
"""Newick, a path, a :class:`PhyloTree`, or a tree of ete3, Biopython, dendropy, cogent3 or
scikit-bio."""

DRAWN = 120
"""Taxa up to which a notebook is shown a tree."""


@dataclass(frozen=True)
class PhyloTree:
    """A tree as Newick: unrooted, with three subtrees at the top; supports are labels."""

    newick: str

    def __str__(self) -> str:
        return self.newick

    @cached_property
    def _written(self) -> WrittenTree:
        (tree, *_) = read_written(self.newick)
        return tree

    @property
    def taxa(self) -> tuple[str, ...]:
        """Names of the tips, as they are written."""
        return tuple(self._written.labels[tip] for tip in self._written.tips)

    @property
    def length(self) -> float:
        """Sum of all branch lengths, expected substitutions per site."""
        return float(np.nansum(self._written.lengths[1:]))

    @cached_property
    def supports(self) -> dict[frozenset[str], float]:
        """By the taxa on the side of a branch that is written inside of it: its label's number."""
        tree, found = self._written, {}
        tips = {tip: n for n, tip in enumerate(tree.tips)}
        for node in np.flatnonzero(np.isfinite(tree.supports)).tolist():
            inside = (at for at in tips if node <= at < _end(tree, node))
            if node:
                found[frozenset(tree.labels[tip] for tip in inside)] = float(tree.supports[node])
        return found

    def rf(self, other: TreeLike) -> int:
        """Robinson-Foulds distance from another tree of the same taxa."""
        from mltree.api.comparing import rf

        return int(rf(self, other))

    def svg(self, *, layout: str = "rectangular") -> str:
        """A drawing, as ``mltree draw`` makes it. Raises: InputError for an unknown layout."""
        from mltree.api.calls import one_of
        from mltree.drawing.layouts import Style, draw
        from mltree.drawing.svg import svg

        one_of("layout", layout, ("rectangular", "circular"))
        style = Style(layout="circular" if layout == "circular" else "rectangular")
        return svg(draw(self._written, style))

    def to_ete3(self) -> Any:
        """As ete3's ``Tree``, with supports where it has them."""
        return _library("ete3", "ete3").Tree(self.newick, format=0, quoted_node_names=True)

    def to_biopython(self) -> Any:
        """As Biopython's ``Tree``."""
        return _library("Bio.Phylo", "biopython").read(StringIO(self.newick), "newick")

    def to_dendropy(self) -> Any:
        """As dendropy's ``Tree``."""
        library = _library("dendropy", "dendropy")
        return library.Tree.get(data=self.newick, schema="newick", preserve_underscores=True)

    def to_cogent3(self) -> Any:
        """As cogent3's ``PhyloNode``."""
        return _library("cogent3", "cogent3").make_tree(self.newick)

    def to_skbio(self) -> Any:
        """As scikit-bio's ``TreeNode``."""
        node = _library("skbio", "scikit-bio").TreeNode
        return node.read(StringIO(self.newick), format="newick", convert_underscores=False)

    def _repr_html_(self) -> str:
        tree = self._written
        size = f"<p>{len(tree.tips):,} taxa, length {self.length:.6f}</p>"
        return size + (self.svg() if len(tree.tips) <= DRAWN else "")


def _end(tree: WrittenTree, node: int) -> int:
    """The number after the last node of a subtree."""
    while tree.children[node]:
        node = tree.children[node][-1]
    return node + 1


def _library(module: str, package: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(f"{package} is not installed: pip install {package}") from error


def newicks_of(trees: TreeLike | Iterable[TreeLike]) -> str:
    """Several trees: a path or a text of them, or one by one."""
    if isinstance(trees, str | os.PathLike | PhyloTree) or _reader(trees) is not None:
        return newick_of(trees)
    return "\n".join(map(_text_of, trees))


def _text_of(tree: TreeLike) -> str:
    """One of several trees, whose file is read."""
    from mltree.tree.newick_text import text_of

    return text_of(newick_of(tree))[0]


def newick_of(tree: TreeLike) -> str:
    """Its text, or the path of its file.

    Raises:
        InputError: it is no tree that is known.
    """
    if isinstance(tree, str | os.PathLike):
        return os.fspath(tree)
    if isinstance(tree, PhyloTree):
        return tree.newick
    reader = _reader(tree)
    if reader is None:
        hint = "Newick, a path, or a tree of ete3, Biopython, dendropy, cogent3 or scikit-bio"
        raise InputError(f"{type(tree).__name__} is no tree", hint=hint)
    return _newick(reader.root(tree), reader)


@dataclass(frozen=True)
class _Reader:
    """How a library's nodes are asked."""

    root: Callable[[Any], Any]
    children: Callable[[Any], Iterable[Any]]
    name: Callable[[Any], Any]
    length: Callable[[Any], Any]


def _reader(tree: Any) -> _Reader | None:
    """The one that suits a tree; None where nothing does."""
    if hasattr(tree, "seed_node"):  # dendropy
        return _Reader(
            lambda tree: tree.seed_node,
            lambda node: node.child_nodes(),
            lambda node: node.taxon.label if node.taxon is not None else node.label,
            lambda node: node.edge.length,
        )
    if hasattr(tree, "root") and hasattr(tree.root, "clades"):  # Biopython
        return _Reader(
            lambda tree: tree.root,
            lambda node: node.clades,
            lambda node: node.name,
            lambda node: node.branch_length,
        )
    if hasattr(tree, "children") and hasattr(tree, "name"):  # ete3; cogent3 and scikit-bio
        attribute = "dist" if hasattr(tree, "dist") else "length"
        return _Reader(
            lambda tree: tree,
            lambda node: node.children,
            lambda node: node.name,
            lambda node: getattr(node, attribute),
        )
    return None


def _newick(root: Any, reader: _Reader) -> str:
    """The text of a tree, without labels of inner nodes."""
    parts: list[str] = []
    pending: list[Any] = [(root, False)]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            parts.append(item)
            continue
        node, has_branch = item
        below = list(reader.children(node))
        branch = _branch(reader.length(node)) if has_branch else ""
        if below:
            parts.append("(")
            pending += [")" + branch, *_between(below)]
        else:
            parts.append(quoted(str(reader.name(node) or "")) + branch)
    return "".join(parts) + ";"


def _between(nodes: list[Any]) -> Iterator[Any]:
    """Nodes with commas between them, the last one first, as a stack wants them."""
    for number, node in enumerate(reversed(nodes)):
        if number:
            yield ","
        yield node, True


def _branch(length: Any) -> str:
    return "" if length is None else f":{float(length)!r}"
