"""``mltree alrt`` and ``mltree test``: branches, or whole trees, against an alignment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace

import numpy as np

from mltree import __version__
from mltree.arrays import Float64
from mltree.commands.branch_tests import BRANCH_TESTS, BRANCHES, LocalTests, testable
from mltree.commands.fitting import FitRequest, fitted
from mltree.commands.results import finish
from mltree.device.demand import Rows
from mltree.errors import InputError
from mltree.events import Notice
from mltree.events.run import RunStarted
from mltree.events.trees import TestedTree, TestValue, TreesLoaded, TreesTested
from mltree.given_trees import check_possible, read_tree, tell_mended
from mltree.likelihood.api import Likelihood
from mltree.likelihood.cases import Case
from mltree.likelihood.site_rows import rows_of_trees
from mltree.model.partitioned import Linkage
from mltree.problem import Problem
from mltree.report.progress import Reporter
from mltree.runs.computation import Afterwards
from mltree.runs.run import FIXED_TOPOLOGY, Computation, Found, open_computation
from mltree.supports.battery import TESTS, tree_tests
from mltree.supports.table import members, sides, unit_bits
from mltree.supports.tree_tests import TreeTest
from mltree.tree.forest import Forest
from mltree.tree.newick import read_newicks, write_newick
from mltree.tree.newick_clades import read_labelled
from mltree.tree.splits import lengths_in, splits
from mltree.tree.topology import Tree

__all__ = ["BranchTestRequest", "TreeTestRequest", "run_alrt", "run_test"]

SUPPORTS = "supportALRT"
TREES = "testedTrees"
TABLE = "treeTests"
"""Kinds of files."""

CONTENDERS = 8
"""Trees, the best with the branch lengths of their file, of which the best has the model fitted."""

TREE_TESTS = dict(zip(("bp", "kh", "sh", "wkh", "wsh", "elw", "au"), TESTS, strict=True))


class _TestRequest(FitRequest, kw_only=True):
    tests: str
    replicates: int
    seed: int


class BranchTestRequest(_TestRequest, kw_only=True):
    """``mltree alrt``."""

    tree: str


class TreeTestRequest(_TestRequest, kw_only=True):
    """``mltree test``."""

    trees: str


def run_alrt(request: BranchTestRequest, reporter: Reporter) -> None:
    """Test the branches of a tree, show what was found, write the files.

    Raises:
        InputError: the tree has no branch that there are tests of.
    """
    chosen = tuple(_choice(request.tests, BRANCH_TESTS))
    outputs = request.outputs
    kinds, inputs = (SUPPORTS, BRANCHES, "alrt.json"), [*request.files, request.tree]
    with outputs.taken(kinds, request.redo, inputs):
        reporter(RunStarted(__version__, request.command, request.seed))
        problem = request.load(reporter)
        tree = read_tree(request.tree, problem, reporter)
        count, inner = len(testable(tree)), len(tree.inner_edges)
        if not count:
            hint = "tests take an inner branch with two others at either end"
            raise InputError("the tree has no branch to test", file=request.tree, hint=hint)
        if count < inner:
            reporter(
                Notice(f"{inner - count} of {inner} inner branches end at polytomies: no tests")
            )
        before = _labels(request.tree, tree, problem.taxa)
        computation = open_computation(problem, request.resources, reporter)
        found = _fitted(request, problem, computation, tree, reporter)
        tested = LocalTests(chosen, request.replicates).of(
            computation.exact, found.tree, found.model, problem.groups, request.seed
        )
        newick = write_newick(found.mean_tree, problem.taxa, labels=tested.labels(before))
        for event in tested.events(newick):
            reporter(event)
        texts = {SUPPORTS: newick + "\n", BRANCHES: tested.table(problem.taxa)}
        values = {"seed": request.seed, "branches": count, "means": tested.means, "tree": newick}
        finish("alrt", request.command, outputs, texts, values, inputs, reporter)


def _loaded(request: _TestRequest, reporter: Reporter) -> Problem:
    """The data and the models, of a kind that has tests.

    Raises:
        InputError: they are of several data types, or branch lengths are the parts' own.
    """
    problem = request.load(reporter)
    if len(problem.groups) > 1:
        raise InputError("these tests take data of one type", file=request.model)
    if problem.model.n_parts > 1 and problem.model.linkage == Linkage.UNLINKED:
        hint = "use --brlen scaled or linked"
        raise InputError("these tests take one length a branch", hint=hint)
    return problem


def _fitted(
    request: _TestRequest,
    problem: Problem,
    computation: Computation,
    tree: Tree,
    reporter: Reporter,
) -> Found:
    """The tree and the model, optimised as far as was asked for."""
    if not request.optimise_branches:
        check_possible(tree, problem.groups)
    return fitted(
        computation, tree, problem.model, reporter,
        request.optimise_model, request.optimise_branches,
    )  # fmt: skip


def _labels(file: str, tree: Tree, taxa: Sequence[str]) -> dict[int, str]:
    """The labels that the inner edges of a tree have in its file."""
    clades, texts = read_labelled(file)
    inner = clades.only(clades.is_inner)
    number = {name: tip for tip, name in enumerate(taxa)}
    tip = np.array([number[name] for name in clades.taxa])
    inside = np.empty((len(inner.first), len(taxa)), dtype=np.bool_)
    inside[:, tip] = members(sides(inner, unit_bits(len(taxa))), len(taxa))
    inside ^= inside[:, :1]
    of_edges = members(splits(tree)[tree.inner_edges], len(taxa))
    edge_of = {
        row.tobytes(): edge for row, edge in zip(of_edges, tree.inner_edges.tolist(), strict=True)
    }
    labelled = [text for text, chosen in zip(texts, clades.is_inner, strict=True) if chosen]
    return {
        edge_of[row.tobytes()]: text for row, text in zip(inside, labelled, strict=True) if text
    }


def run_test(request: TreeTestRequest, reporter: Reporter) -> None:
    """Test trees against each other, show the table, write the files.

    Raises:
        InputError: there are no two different trees.
    """
    chosen = [] if request.tests == "all" else _choice(request.tests, TREE_TESTS)
    outputs = request.outputs
    kinds, inputs = (TABLE, TREES, "test.json"), [*request.files, request.trees]
    with outputs.taken(kinds, request.redo, inputs):
        reporter(RunStarted(__version__, request.command, request.seed))
        problem = _loaded(request, reporter)
        trees = _read(request, problem, reporter)
        first = _first_of_their_kind(trees, by_lengths=not request.optimise_branches)
        different = [tree for tree, same in zip(trees, first, strict=True) if same is None]
        if len(different) < 2:
            raise InputError("all trees are alike: there is nothing to compare", file=request.trees)
        computation = open_computation(
            problem,
            request.resources,
            reporter,
            afterwards=Afterwards(rows=Rows(sites=len(different))),
        )
        fitted = list(_fitted_trees(request, problem, computation, different, reporter))
        weights, parts = problem.patterns.weights, problem.patterns.parts
        cases = [Case(found.model.arrays()) for found in fitted]
        rows = rows_of_trees(computation.exact, [found.tree for found in fitted], cases, weights)
        tested = tree_tests(
            rows.lnl, rows.sites, rows.resampled, weights, parts, request.seed, request.replicates,
            chosen or TESTS,
        )  # fmt: skip
        event = TreesTested(request.replicates, tuple(_verdicts(rows.lnl, tested, first)))
        reporter(event)
        text = "".join(write_newick(found.tree, problem.patterns.taxa) + "\n" for found in fitted)
        texts = {TABLE: "".join(_tree_lines(event)), TREES: text}
        values = {"seed": request.seed, **asdict(event)}
        finish("test", request.command, outputs, texts, values, inputs, reporter)


def _read(request: TreeTestRequest, problem: Problem, reporter: Reporter) -> list[Tree]:
    path = request.trees
    read = read_newicks(path, problem.patterns.taxa)
    tell_mended(path, [notices for _, notices in read], reporter)
    reporter(TreesLoaded(path, len(read), problem.patterns.n_tips))
    return [tree for tree, _ in read]


def _first_of_their_kind(trees: Sequence[Tree], by_lengths: bool) -> list[int | None]:
    """Of each tree the earlier one, counted from 1, that is the same; None where none is.

    by_lengths  whether trees of one topology differ by their branch lengths
    """
    known: dict[int, list[int]] = {}
    firsts: list[int | None] = []
    for number, (tree, key) in enumerate(zip(trees, Forest(trees).topology_keys(), strict=True), 1):
        alike = known.setdefault(key, [])
        same = (n for n in alike if not by_lengths or _are_as_long(tree, trees[n - 1]))
        firsts.append(next(same, None))
        if firsts[-1] is None:
            alike.append(number)
    return firsts


def _are_as_long(tree: Tree, other: Tree) -> bool:
    """Whether two trees of one topology have the same branch lengths."""
    return np.array_equal(tree.lengths, lengths_in(tree, other))


def _fitted_trees(
    request: TreeTestRequest,
    problem: Problem,
    computation: Computation,
    trees: list[Tree],
    reporter: Reporter,
) -> Iterator[Found]:
    """The trees under one model, optimised on the best of them, as far as was asked for."""
    settings = FIXED_TOPOLOGY.for_precision(computation.placement.is_exact)
    best = _best(request, problem, computation.likelihood, trees, settings.first_smooth_epsilon)
    found = _fitted(request, problem, computation, trees[best], reporter)
    trees[best] = found.tree
    cases = [Case(found.model.arrays())] * len(trees)
    if request.optimise_branches:
        computation.exact.smooth(trees, cases, settings.final_smooth_epsilon)
    return (replace(found, tree=tree) for tree in trees)


def _best(
    request: TreeTestRequest,
    problem: Problem,
    likelihood: Likelihood,
    trees: Sequence[Tree],
    epsilon: float,
) -> int:
    """Which tree is the best: as its file has it, if branch lengths stay as they are.

    Else, of those that are the best so, the one that is once their lengths are optimised.
    """
    cases = [Case(problem.model.arrays())] * len(trees)
    if not request.optimise_branches:
        for tree in trees:
            check_possible(tree, problem.groups)
        return int(likelihood.log_likelihoods(trees, cases).argmax())
    for tree in trees:
        tree.lengths = likelihood.clip(tree.lengths)
    lnl = likelihood.log_likelihoods(trees, cases)
    good = np.argsort(-lnl, kind="stable")[:CONTENDERS]
    lnl = likelihood.smooth([trees[n] for n in good], cases[: good.size], epsilon)
    return int(good[lnl.argmax()])


def _verdicts(
    lnl: Float64, tested: dict[str, TreeTest], first: Sequence[int | None]
) -> Iterator[TestedTree]:
    """Every tree of the file, with what the tests say of its topology."""
    row_of: dict[int, int] = {}
    own = iter(range(len(lnl)))
    for number, same in enumerate(first, 1):
        row = row_of[number] = next(own) if same is None else row_of[same]
        values = tuple(
            TestValue(
                name, float(test.values[row]), float(test.errors[row]), bool(test.is_kept[row])
            )
            for name, test in tested.items()
        )
        delta = float(lnl.max() - lnl[row])
        yield TestedTree(number, same, float(lnl[row]), delta, values)


def _tree_lines(event: TreesTested) -> Iterator[str]:
    """The table for other programs, a line a tree; a test has its value, error and verdict."""
    names = [name for test in event.trees[0].tests for name in (test.name, "error", "kept")]
    yield "\t".join(["tree", "same_as", "lnL", "deltaL", *names]) + "\n"
    for tree in event.trees:
        values = [
            f"{test.value:.6f}\t{test.error:.6f}\t{'+' if test.kept else '-'}"
            for test in tree.tests
        ]
        head = [str(tree.number), str(tree.same_as or ""), f"{tree.lnl:.6f}", f"{tree.delta:.6f}"]
        yield "\t".join([*head, *values]) + "\n"


def _choice(given: str, known: dict[str, str]) -> list[str]:
    """The names of the tests in a list with commas, in the order that they are known in."""
    words = {word.strip().lower() for word in given.split(",")}
    unknown = sorted(words - set(known))
    if unknown:
        raise InputError(f"--tests: {unknown[0]!r} is none of {', '.join(known)}")
    return [name for word, name in known.items() if word in words]
