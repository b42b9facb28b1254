"""Starting trees from what the user asked for: ``pars{10},rand{5}`` or a file of trees."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np

from mltree.alignment.patterns import Patterns
from mltree.errors import InputError
from mltree.events import Emit, Notice
from mltree.search.driver import StartingTree
from mltree.search.duplicates import Collapsed
from mltree.tree.newick import read_newicks
from mltree.tree.parsimony import packed, stepwise_addition
from mltree.tree.random_trees import random_topology

__all__ = ["MAX_STARTS", "starting_trees"]

MAX_STARTS = 1000
"""Trees of one kind; more is a slip of the finger."""

_TERM = re.compile(r"(pars|rand)(?:\{(\d+)\})?")


def starting_trees(
    spec: str, distinct: Collapsed, taxa: Sequence[str], rng: np.random.Generator, emit: Emit
) -> list[StartingTree]:
    """The trees that ``--tree`` asks for, in its order, over the distinct sequences.

    ``taxa``: all taxa, which the trees in a file must have.

    Raises:
        InputError: not a specification, no such file, or a tree of other taxa.
    """
    terms = [_TERM.fullmatch(term.strip()) for term in spec.split(",")]
    if not all(terms):
        return list(_from_file(spec, distinct, taxa, emit))
    starts: list[StartingTree] = []
    for kind, count in (term.groups() for term in terms if term):
        number = int(count or 1)
        if not 1 <= number <= MAX_STARTS:
            raise InputError(f"--tree {kind}{{{number}}}: between 1 and {MAX_STARTS} trees, please")
        make = _parsimony if kind == "pars" else _random
        starts += make(number, distinct.patterns, rng)
    return starts


def _parsimony(number: int, patterns: Patterns, rng: np.random.Generator) -> list[StartingTree]:
    sites = packed(patterns)
    return [
        StartingTree(stepwise_addition(sites, rng), f"parsimony {n + 1}") for n in range(number)
    ]


def _random(number: int, patterns: Patterns, rng: np.random.Generator) -> list[StartingTree]:
    tips = patterns.n_tips
    return [StartingTree(random_topology(tips, rng), f"random {n + 1}") for n in range(number)]


def _from_file(
    spec: str, distinct: Collapsed, taxa: Sequence[str], emit: Emit
) -> Iterator[StartingTree]:
    for number, (tree, notices) in enumerate(read_newicks(spec, taxa), 1):
        for notice in notices:
            emit(Notice(f"{spec}, tree {number}: {notice}"))
        yield StartingTree(distinct.reduce_tree(tree), f"user {number}")
