"""Starting trees from what the user asked for: ``pars{10},rand{5}`` or a file of trees."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np

from mltree.errors import InputError
from mltree.events import Emit, Notice
from mltree.search.constraint import Constraint
from mltree.search.constraint_tree import constrained_start
from mltree.search.driver import StartingTree
from mltree.search.duplicates import Collapsed
from mltree.tree.fitch import pack_sites
from mltree.tree.newick import read_newicks
from mltree.tree.parsimony_spr import parsimony_trees
from mltree.tree.random_trees import random_topology
from mltree.tree.topology import Tree

__all__ = ["MAX_STARTS", "starting_trees"]

MAX_STARTS = 1000
"""Trees of one kind; more is a slip of the finger."""

_TERM = re.compile(r"(pars|rand)(?:\{([0-9]+)\})?")


def starting_trees(
    spec: str,
    distinct: Collapsed,
    taxa: Sequence[str],
    constraint: Constraint | None,
    rng: np.random.Generator,
    emit: Emit,
) -> list[StartingTree]:
    """The trees that ``--tree`` asks for, in its order, over the distinct sequences.

    ``taxa``: all taxa, which the trees in a file must have. Under a constraint, parsimony and
    random trees alike are random trees that satisfy it.

    Raises:
        InputError: not a specification, no such file, or a tree of other taxa.
    """
    terms = [_TERM.fullmatch(term.strip()) for term in spec.split(",")]
    if not all(terms):
        return list(_from_file(spec, distinct, taxa, emit))
    starts: list[StartingTree] = []
    for kind, count in (term.groups() for term in terms if term):
        number = _number(kind, count or "1")
        if constraint is not None:
            made = [constrained_start(constraint, rng) for _ in range(number)]
            starts += _named("constrained", made)
        elif kind == "pars":
            starts += _named(
                "parsimony", parsimony_trees(pack_sites(*distinct.groups), number, rng)
            )
        else:
            tips = distinct.groups[0].n_tips
            starts += _named("random", [random_topology(tips, rng) for _ in range(number)])
    return starts


def _number(kind: str, digits: str) -> int:
    """How many trees of a kind. Raises: InputError where that is absurd."""
    number = int(digits) if len(digits) <= len(str(MAX_STARTS)) else MAX_STARTS + 1
    if not 1 <= number <= MAX_STARTS:
        raise InputError(f"--tree {kind}{{{digits:.9}}}: between 1 and {MAX_STARTS} trees, please")
    return number


def _named(kind: str, trees: list[Tree]) -> list[StartingTree]:
    return [StartingTree(tree, f"{kind} {number}") for number, tree in enumerate(trees, 1)]


def _from_file(
    spec: str, distinct: Collapsed, taxa: Sequence[str], emit: Emit
) -> Iterator[StartingTree]:
    for number, (tree, notices) in enumerate(read_newicks(spec, taxa), 1):
        for notice in notices:
            emit(Notice(f"{spec}, tree {number}: {notice}"))
        yield StartingTree(distinct.reduce_tree(tree), f"user {number}")
