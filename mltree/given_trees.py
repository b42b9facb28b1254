"""The trees that a command is given for a problem: read, and held against its data."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from mltree.alignment.patterns import Patterns
from mltree.errors import InputError, NumericalError
from mltree.events import Emit, Notice
from mltree.model.partitioned import Linkage
from mltree.problem import Problem
from mltree.tree.conflicts import find_conflict
from mltree.tree.newick import read_newick, read_newicks
from mltree.tree.newick_text import text_of
from mltree.tree.splits import lengths_in
from mltree.tree.topology import Tree

__all__ = ["check_possible", "lone_trees", "read_tree", "read_trees", "tell_mended"]

_NUMBER = re.compile(r"[0-9]+")


def read_tree(path: str, problem: Problem, emit: Emit) -> Tree:
    """The tree in a file or a text, with a notice of whatever had to be mended.

    Raises:
        InputError: there is none, or it is one of other taxa.
    """
    tree, notices = read_newick(path, problem.taxa)
    for notice in notices:
        emit(Notice(f"{_named(path)}: {notice}"))
    return tree


def read_trees(path: str, problem: Problem, emit: Emit) -> Tree:
    """As :func:`read_tree`, or a tree a part where parts have branch lengths of their own.

    Those are in the order of the partition file, and of one topology.

    Raises:
        InputError: as `read_tree`, or they are no such trees.
    """
    model = problem.model
    if problem.data is None or model.linkage != Linkage.UNLINKED or model.n_parts == 1:
        return read_tree(path, problem, emit)
    trees = read_newicks(path, problem.taxa)
    if len(trees) == 1:
        return read_tree(path, problem, emit)
    if len(trees) != model.n_parts:
        raise InputError(
            f"{len(trees)} trees for {model.n_parts} parts",
            file=_named(path),
            hint="one for all, or one a part in the order of the partition file",
        )
    first, rows = trees[0][0], []
    for number, (tree, _) in enumerate(trees, 1):
        try:
            rows.append(lengths_in(first, tree))
        except ValueError:  # noqa: PERF203
            message = f"tree {number} has another topology than tree 1"
            raise InputError(message, file=_named(path), hint="parts share a topology") from None
    tell_mended(_named(path), [notices for _, notices in trees], emit)
    lengths = np.array([rows[number] for number in problem.data.order])
    return first.with_lengths(lengths)


def tell_mended(file: str, mended: Sequence[Sequence[str]], emit: Emit) -> None:
    """A notice of whatever had to be mended in trees of one file: of each kind the first.

    mended  what there was of each tree; of a kind are texts that differ by numbers alone
    """
    found: dict[str, list[tuple[int, str]]] = {}
    for number, texts in enumerate(mended, 1):
        for text in texts:
            found.setdefault(_NUMBER.sub("", text), []).append((number, text))
    for (number, text), *others in found.values():
        more = f" (and the like in {len(others):,} more)" if others else ""
        emit(Notice(f"{file}, tree {number}: {text}{more}"))


def _named(source: str) -> str:
    """A tree's file; what stands for it where the source is the tree itself."""
    return text_of(source)[1] or "the tree"


def lone_trees(tree: Tree, problem: Problem) -> list[tuple[Tree, Sequence[Patterns]]]:
    """Trees with one length a branch, and the data that are theirs: the tree's, or each part's."""
    if tree.lengths.ndim == 1 or problem.data is None:
        return [(tree, problem.groups)]
    return [
        (tree.with_lengths(row), (problem.part(number),))
        for number, row in zip(problem.data.order, tree.lengths, strict=True)
    ]


def check_possible(tree: Tree, groups: Sequence[Patterns]) -> None:
    """Make sure that the data have a likelihood on a tree whose lengths stay as they are.

    Raises:
        NumericalError: they have none, for branches of length zero join what differs.
    """
    conflicts = ((patterns, find_conflict(tree, patterns)) for patterns in groups)
    for patterns, conflict in conflicts:
        if conflict is not None:
            names = " and ".join(patterns.taxa[tip] for tip in conflict.tips)
            raise NumericalError(
                f"the lnL is minus infinity: {names} exclude each other at site "
                f"{conflict.site + 1}, and all branches between them are of length zero",
                hint="optimise the branch lengths, or give the tree others",
            )
