"""Starting trees from what the user asked for: ``pars{10},rand{5}`` or a file of trees."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain, zip_longest
from typing import NamedTuple

import numpy as np

from mltree.errors import InputError
from mltree.events import Emit
from mltree.given_trees import tell_mended
from mltree.search.constraint import Constraint
from mltree.search.constraint_tree import constrained_start
from mltree.search.driver import StartingTree, unfit_start
from mltree.search.duplicates import Collapsed
from mltree.settings import BranchSettings, SearchSettings
from mltree.tree.newick import read_newicks
from mltree.tree.parsimony import REFERENCE, ParsimonyEngine
from mltree.tree.parsimony_spr import parsimony_trees_of_each
from mltree.tree.random_trees import random_topology
from mltree.tree.topology import Tree

__all__ = [
    "MAX_STARTS",
    "Term",
    "expect_starts",
    "starting_trees",
    "starting_trees_of_each",
    "terms_of",
    "usual_terms",
]

MAX_STARTS = 1000
"""Trees of one kind; more is a slip of the finger."""

_TERM = re.compile(r"(pars|rand)(?:\{([0-9]+)\})?")


class Term(NamedTuple):
    """Trees that are asked for."""

    kind: str
    """``pars`` or ``rand``."""
    number: int


def usual_terms(settings: SearchSettings) -> list[Term]:
    """As many starting trees as a preset has."""
    usual = Term("pars", settings.parsimony_starts), Term("rand", settings.random_starts)
    return [term for term in usual if term.number]


def terms_of(spec: str) -> list[Term] | None:
    """Those of ``pars{N},rand{N}``; None of anything else, which is a file.

    Raises: InputError: too many trees.
    """
    found = [_TERM.fullmatch(term.strip()) for term in spec.split(",")]
    if not all(found):
        return None
    pairs = [match.groups() for match in found if match]
    return [Term(kind, _number(kind, count or "1")) for kind, count in pairs]


def expect_starts(spec: str, taxa: Sequence[str], constraint: Constraint | None) -> None:
    """Make sure that ``--tree`` can be used, without growing a tree.

    Raises: InputError: as `starting_trees`, or a tree in a file does not fit the constraint.
    """
    if terms_of(spec) is None:
        for number, (tree, _) in enumerate(read_newicks(spec, taxa), 1):
            if constraint is not None and not constraint.satisfied(tree):
                raise unfit_start(f"user {number}")


def starting_trees(
    spec: str | Sequence[Term],
    distinct: Collapsed,
    taxa: Sequence[str],
    constraint: Constraint | None,
    rng: np.random.Generator,
    emit: Emit,
    parsimony: ParsimonyEngine = REFERENCE,
) -> list[StartingTree]:
    """The trees that ``--tree`` asks for, in its order, over the distinct sequences.

    ``taxa``: all taxa, which the trees in a file must have. Under a constraint, parsimony and
    random trees alike are random trees that satisfy it.

    Raises:
        InputError: not a specification, no such file, or a tree of other taxa.
    """
    terms = terms_of(spec) if isinstance(spec, str) else spec
    if terms is None:
        return list(_from_file(str(spec), distinct, taxa, emit))
    if constraint is None:
        (starts,) = starting_trees_of_each([terms], [distinct], [rng], parsimony)
        return starts
    made = ([constrained_start(constraint, rng) for _ in range(number)] for _, number in terms)
    return list(chain.from_iterable(_named("constrained", trees) for trees in made))


def starting_trees_of_each(
    terms: Sequence[Sequence[Term]],
    every: Sequence[Collapsed],
    rngs: Sequence[np.random.Generator],
    parsimony: ParsimonyEngine = REFERENCE,
) -> list[list[StartingTree]]:
    """What :func:`starting_trees` makes for each alignment, those by parsimony side by side."""
    starts: list[list[StartingTree]] = [[] for _ in every]
    for turn in zip_longest(*terms):
        asked = [(n, *term) for n, term in enumerate(turn) if term is not None]
        pars = [(n, number) for n, kind, number in asked if kind == "pars"]
        made = parsimony_trees_of_each(
            [every[n].groups for n, _ in pars], [number for _, number in pars],
            [rngs[n] for n, _ in pars], engine=parsimony,
        )  # fmt: skip
        for (n, _), trees in zip(pars, made, strict=True):
            starts[n] += _named("parsimony", trees)
        for n, number in ((n, number) for n, kind, number in asked if kind == "rand"):
            tips = every[n].groups[0].n_tips
            starts[n] += _named("random", [random_topology(tips, rngs[n]) for _ in range(number)])
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
    read = read_newicks(spec, taxa)
    resolved = f"polytomies resolved with branches of {BranchSettings.minimum:g}"
    mended = [[*notices, *[resolved] * (tree.n_artificial > 0)] for tree, notices in read]
    tell_mended(spec, mended, emit)
    for number, (tree, _) in enumerate(read, 1):
        yield StartingTree(distinct.reduce_tree(tree), f"user {number}")
