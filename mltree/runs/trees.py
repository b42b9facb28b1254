"""Trees given by the user, and starting trees of a search."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain, zip_longest
from typing import NamedTuple

import numpy as np

from mltree.data.patterns import Patterns
from mltree.fit.settings import BranchSettings, SearchSettings
from mltree.models.partitioned import Linkage
from mltree.runs.problem import Problem
from mltree.system.errors import InputError, NumericalError
from mltree.system.events import Emit, Notice
from mltree.tree.fitch import find_conflict
from mltree.tree.newick import read_newick, read_newicks, text_of
from mltree.tree.parsimony import REFERENCE, ParsimonyEngine, parsimony_trees_of_each
from mltree.tree.splits import lengths_in
from mltree.tree.topology import Tree, random_topology
from mltree.treesearch.constraint import Constraint, constrained_start
from mltree.treesearch.duplicates import Collapsed
from mltree.treesearch.search import StartingTree, unfit_start

# Trees given by the user: read, and checked against the data.

_NUMBER = re.compile(r"[0-9]+")


def read_tree(path: str, problem: Problem, emit: Emit) -> Tree:
    """Read a tree from a file or a Newick string, with a notice for every repair.

    Raises:
        InputError: there is no tree, or its taxa are not the problem's.
    """
    tree, notices = read_newick(path, problem.taxa)
    for notice in notices:
        emit(Notice(f"{_tree_named(path)}: {notice}"))
    return tree


def read_trees(path: str, problem: Problem, emit: Emit) -> Tree:
    """Read a tree as :func:`read_tree`, or one tree a part if branch lengths are unlinked.

    Trees of parts are in the order of the partition file, and of one topology.

    Raises:
        InputError: as :func:`read_tree`, or the trees do not match the parts.
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
            file=_tree_named(path),
            hint="one for all, or one a part in the order of the partition file",
        )
    first, rows = trees[0][0], []
    for number, (tree, _) in enumerate(trees, 1):
        try:
            rows.append(lengths_in(first, tree))
        except ValueError:  # noqa: PERF203
            message = f"tree {number} has another topology than tree 1"
            raise InputError(
                message, file=_tree_named(path), hint="parts share a topology"
            ) from None
    tell_mended(_tree_named(path), [notices for _, notices in trees], emit)
    lengths = np.array([rows[number] for number in problem.data.order])
    return first.with_lengths(lengths)


def tell_mended(file: str, mended: Sequence[Sequence[str]], emit: Emit) -> None:
    """Emit a notice for each kind of repair in the trees of a file, quoting the first.

    mended  repairs of each tree; texts that differ in numbers only are of one kind
    """
    by_kind: dict[str, list[tuple[int, str]]] = {}
    for number, texts in enumerate(mended, 1):
        for text in texts:
            by_kind.setdefault(_NUMBER.sub("", text), []).append((number, text))
    for (number, text), *others in by_kind.values():
        more = f" (and the like in {len(others):,} more)" if others else ""
        emit(Notice(f"{file}, tree {number}: {text}{more}"))


def _tree_named(source: str) -> str:
    """Name of a tree's file, or a phrase for a tree given as a string."""
    return text_of(source)[1] or "the tree"


def lone_trees(tree: Tree, problem: Problem) -> list[tuple[Tree, Sequence[Patterns]]]:
    """Trees with one length a branch, each with its data: the tree's, or each part's."""
    if tree.lengths.ndim == 1 or problem.data is None:
        return [(tree, problem.groups)]
    return [
        (tree.with_lengths(row), (problem.part(number),))
        for number, row in zip(problem.data.order, tree.lengths, strict=True)
    ]


def check_possible(tree: Tree, groups: Sequence[Patterns]) -> None:
    """Make sure that the data have a likelihood on a tree whose lengths are fixed.

    Raises:
        NumericalError: the likelihood is 0, as branches of length zero join different states.
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


# Starting trees: ``pars{10},rand{5}`` or a file of trees.

MAX_STARTS = 1000
"""Starting trees of one kind, at most; a larger number is a typing error."""

_TERM = re.compile(r"(pars|rand)(?:\{([0-9]+)\})?")


class StartSpec(NamedTuple):
    """Starting trees of one kind, as the user asks for them."""

    kind: str
    """``pars`` or ``rand``."""
    number: int


def usual_terms(settings: SearchSettings) -> list[StartSpec]:
    """The starting trees of a preset."""
    usual = StartSpec("pars", settings.parsimony_starts), StartSpec("rand", settings.random_starts)
    return [term for term in usual if term.number]


def terms_of(spec: str) -> list[StartSpec] | None:
    """Starting trees from ``pars{N},rand{N}``; None for any other text, which names a file.

    Raises: InputError: too many trees.
    """
    matches = [_TERM.fullmatch(term.strip()) for term in spec.split(",")]
    if not all(matches):
        return None
    pairs = [match.groups() for match in matches if match]
    return [StartSpec(kind, _number(kind, count or "1")) for kind, count in pairs]


def expect_starts(spec: str, taxa: Sequence[str], constraint: Constraint | None) -> None:
    """Make sure that ``--tree`` can be used, without building a tree.

    Raises: InputError: as :func:`starting_trees`, or a tree in a file violates the constraint.
    """
    if terms_of(spec) is None:
        for number, (tree, _) in enumerate(read_newicks(spec, taxa), 1):
            if constraint is not None and not constraint.satisfied(tree):
                raise unfit_start(f"user {number}")


def starting_trees(
    spec: str | Sequence[StartSpec],
    distinct: Collapsed,
    taxa: Sequence[str],
    constraint: Constraint | None,
    rng: np.random.Generator,
    emit: Emit,
    parsimony: ParsimonyEngine = REFERENCE,
) -> list[StartingTree]:
    """The starting trees of ``--tree``, in its order, over the distinct sequences.

    ``taxa``: all taxa; trees in a file have all of them. Under a constraint, parsimony and random
    trees alike are random trees that satisfy it.

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
    return list(chain.from_iterable(_start_named("constrained", trees) for trees in made))


def starting_trees_of_each(
    terms: Sequence[Sequence[StartSpec]],
    every: Sequence[Collapsed],
    rngs: Sequence[np.random.Generator],
    parsimony: ParsimonyEngine = REFERENCE,
) -> list[list[StartingTree]]:
    """Starting trees of several alignments, parsimony trees side by side."""
    starts: list[list[StartingTree]] = [[] for _ in every]
    for turn in zip_longest(*terms):
        asked = [(n, *term) for n, term in enumerate(turn) if term is not None]
        pars = [(n, number) for n, kind, number in asked if kind == "pars"]
        made = parsimony_trees_of_each(
            [every[n].groups for n, _ in pars], [number for _, number in pars],
            [rngs[n] for n, _ in pars], engine=parsimony,
        )  # fmt: skip
        for (n, _), trees in zip(pars, made, strict=True):
            starts[n] += _start_named("parsimony", trees)
        for n, number in ((n, number) for n, kind, number in asked if kind == "rand"):
            tips = every[n].groups[0].n_tips
            starts[n] += _start_named(
                "random", [random_topology(tips, rngs[n]) for _ in range(number)]
            )
    return starts


def _number(kind: str, digits: str) -> int:
    """Number of starting trees of a kind.

    Raises: InputError: the number is out of bounds.
    """
    number = int(digits) if len(digits) <= len(str(MAX_STARTS)) else MAX_STARTS + 1
    if not 1 <= number <= MAX_STARTS:
        raise InputError(f"--tree {kind}{{{digits:.9}}}: between 1 and {MAX_STARTS} trees, please")
    return number


def _start_named(kind: str, trees: list[Tree]) -> list[StartingTree]:
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
