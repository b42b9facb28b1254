"""``mltree alrt`` and ``mltree test``: branches, or whole trees, against an alignment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from mltree import __version__
from mltree.commands.request import Request, by_kind, command_result, deliver
from mltree.errors import InputError
from mltree.events import Notice, RunStarted
from mltree.likelihood.cases import Case
from mltree.likelihood.site_rows import rows_of_neighbours, rows_of_trees
from mltree.model.partitioned import Linkage
from mltree.problem import Problem, check_possible, read_tree
from mltree.report.progress import Reporter
from mltree.run import FIXED_TOPOLOGY, Computation, Found, evaluate, open_computation
from mltree.settings import SearchSettings
from mltree.supports.battery import TESTS, tree_tests
from mltree.supports.branch_tests import BranchTests, local_tests
from mltree.supports.resampling import Resampling, share_error
from mltree.supports.table import members, sides, unit_bits
from mltree.supports.tree_tests import TreeTest
from mltree.tree.forest import Forest
from mltree.tree.newick import read_newicks, write_newick
from mltree.tree.newick_clades import read_labelled
from mltree.tree.splits import splits
from mltree.tree.topology import Float64Array, Tree
from mltree.tree_events import SupportsDrawn, TestedTree, TestValue, TreesLoaded, TreesTested

__all__ = ["BranchTestRequest", "TreeTestRequest", "run_alrt", "run_test"]

SUPPORTS = "supportALRT"
BRANCHES = "branchTests"
TREES = "testedTrees"
TABLE = "treeTests"
"""Kinds of files."""

BRANCH_TESTS = {"sh-alrt": "SH-aLRT", "lbp": "LBP", "alrt": "aLRT", "abayes": "aBayes"}
"""In the order of labels, IQ-TREE's."""

TREE_TESTS = dict(zip(("bp", "kh", "sh", "wkh", "wsh", "elw", "au"), TESTS, strict=True))

FEWEST_TAXA = 4
"""Of a tree with an inner branch."""


@dataclass(frozen=True, kw_only=True)
class _TestRequest(Request):
    tests: str
    replicates: int
    seed: int
    optimise_model: bool
    optimise_branches: bool


@dataclass(frozen=True, kw_only=True)
class BranchTestRequest(_TestRequest):
    """``mltree alrt``."""

    tree: str


@dataclass(frozen=True, kw_only=True)
class TreeTestRequest(_TestRequest):
    """``mltree test``."""

    trees: str


def run_alrt(request: BranchTestRequest, reporter: Reporter) -> None:
    """Test the branches of a tree, show what was found, write the files.

    Raises:
        InputError: three taxa have no inner branch.
    """
    chosen = _choice(request.tests, BRANCH_TESTS)
    outputs = request.outputs
    outputs.check([SUPPORTS, BRANCHES])
    outputs.claim([SUPPORTS, BRANCHES], request.redo)
    reporter(RunStarted(__version__, request.command, request.seed))
    problem = _loaded(request, reporter)
    tree = read_tree(request.tree, problem, reporter)
    if tree.n_tips < FEWEST_TAXA:
        raise InputError(f"{tree.n_tips} taxa have no inner branch to test", file=request.tree)
    before = _labels(request.tree, tree, problem.patterns.taxa)
    computation = open_computation(problem, request.resources, reporter)
    found = _fitted(request, problem, computation, tree, reporter)
    tested = _tested_branches(request, problem, computation, found)
    shown = {name: _shown(tested)[name] for name in chosen}
    labels = {
        edge: "/".join([*(texts[k] for texts in shown.values()), *before.get(edge, ())])
        for k, edge in enumerate(found.tree.inner_edges.tolist())
    }
    newick = write_newick(found.tree, problem.patterns.taxa, labels=labels)
    for name, values in _values(tested).items():
        if name in chosen:
            reporter(SupportsDrawn(name, len(labels), float(values.mean()), newick))
    table = "".join(_branch_lines(found.tree, problem.patterns.taxa, tested))
    files = deliver(outputs, {SUPPORTS: newick + "\n", BRANCHES: table}, reporter)
    means = {name: float(own.mean()) for name, own in _values(tested).items()}
    result = {"branches": len(labels), "means": means, "tree": newick}
    _finish("alrt", request, request.tree, result, files, reporter)


def _finish(
    command: str,
    request: _TestRequest,
    trees: str,
    values: Mapping[str, Any],
    files: Sequence[Path],
    reporter: Reporter,
) -> None:
    """Say where the results are, and end with them; ``trees``: the file they were."""
    reporter.say("\n".join(f"Wrote {file}" for file in files))
    values = {"seed": request.seed, **values}
    result = command_result(
        command, request.command, values, by_kind(files), [*request.files, trees], reporter
    )
    reporter.finish(command, result)


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
    return evaluate(
        computation.likelihood,
        tree,
        problem.model,
        reporter,
        optimise_parameters=request.optimise_model,
        optimise_lengths=request.optimise_branches,
        settings=_settings(computation),
    )


def _settings(computation: Computation) -> SearchSettings:
    return FIXED_TOPOLOGY.for_precision(computation.placement.is_exact)


def _tested_branches(
    request: BranchTestRequest, problem: Problem, computation: Computation, found: Found
) -> BranchTests:
    """Every test on every inner branch."""
    patterns = problem.patterns
    case = Case(found.model.arrays())
    rows = rows_of_neighbours(computation.exact, found.tree, case, patterns.weights)
    resampling = Resampling(patterns.weights, patterns.parts, request.seed, "local tests")
    return local_tests(rows.lnl, rows.resampled, resampling, request.replicates)


def _values(tested: BranchTests) -> dict[str, Float64Array]:
    """The supports by test, 0 to 1."""
    every = (tested.sh_alrt, tested.lbp, tested.parametric, tested.abayes)
    return dict(zip(BRANCH_TESTS.values(), every, strict=True))


def _shown(tested: BranchTests) -> dict[str, list[str]]:
    """The supports as labels: shares of the replicates in per cent, as IQ-TREE writes them."""
    values = _values(tested)
    scale = dict.fromkeys(values, 1.0) | {"SH-aLRT": 100.0, "LBP": 100.0}
    return {name: [f"{scale[name] * x:.3g}" for x in of] for name, of in values.items()}


def _branch_lines(tree: Tree, taxa: Sequence[str], tested: BranchTests) -> Iterator[str]:
    """A table of all tests."""
    yield ("lnL1\tlnL2\taLRT\tSH-aLRT\terror\tLBP\terror\tp-aLRT\taBayes\tlength\ttaxa\n")
    sh_error, lbp_error = (
        share_error(share, tested.replicates) for share in (tested.sh_alrt, tested.lbp)
    )
    edges = tree.inner_edges
    inside = members(splits(tree)[edges], tree.n_tips)
    inside ^= (2 * inside.sum(axis=1) > tree.n_tips)[:, None]
    columns = (
        tested.lnl[:, 1], tested.lnl[:, 2], tested.alrt, tested.sh_alrt, sh_error, tested.lbp,
        lbp_error, tested.parametric, tested.abayes, tree.lengths[edges],
    )  # fmt: skip
    for row, side in zip(np.stack(columns, axis=1).tolist(), inside, strict=True):
        names = ",".join(taxa[tip] for tip in np.flatnonzero(side).tolist())
        yield "\t".join(f"{value:.6f}" for value in row) + f"\t{names}\n"


def _labels(file: str, tree: Tree, taxa: Sequence[str]) -> dict[int, tuple[str]]:
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
        edge_of[row.tobytes()]: (text,) for row, text in zip(inside, labelled, strict=True) if text
    }


def run_test(request: TreeTestRequest, reporter: Reporter) -> None:
    """Test trees against each other, show the table, write the files.

    Raises:
        InputError: there are no two different trees.
    """
    chosen = [] if request.tests == "all" else _choice(request.tests, TREE_TESTS)
    outputs = request.outputs
    outputs.check([TABLE, TREES])
    outputs.claim([TABLE, TREES], request.redo)
    reporter(RunStarted(__version__, request.command, request.seed))
    problem = _loaded(request, reporter)
    trees = _read(request.trees, problem, reporter)
    first = _first_of_their_kind(trees)
    different = [tree for tree, same in zip(trees, first, strict=True) if same is None]
    if len(different) < 2:
        raise InputError(
            "all trees have one topology: there is nothing to compare", file=request.trees
        )
    computation = open_computation(problem, request.resources, reporter)
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
    files = deliver(outputs, {TABLE: "".join(_tree_lines(event)), TREES: text}, reporter)
    _finish("test", request, request.trees, asdict(event), files, reporter)


def _read(path: str, problem: Problem, reporter: Reporter) -> list[Tree]:
    read = read_newicks(path, problem.patterns.taxa)
    for number, (_, notices) in enumerate(read, 1):
        for notice in notices:
            reporter(Notice(f"{path}, tree {number}: {notice}"))
    reporter(TreesLoaded(path, len(read), problem.patterns.n_tips))
    return [tree for tree, _ in read]


def _first_of_their_kind(trees: Sequence[Tree]) -> list[int | None]:
    """Of each tree the earlier one, counted from 1, that has its topology; None where none has."""
    seen: dict[int, int] = {}
    keys = Forest(trees).topology_keys()
    firsts = [seen.setdefault(key, number) for number, key in enumerate(keys, 1)]
    return [None if first == n else first for n, first in enumerate(firsts, 1)]


def _fitted_trees(
    request: TreeTestRequest,
    problem: Problem,
    computation: Computation,
    trees: list[Tree],
    reporter: Reporter,
) -> Iterator[Found]:
    """The trees under one model, optimised on the best of them, as far as was asked for."""
    likelihood, settings = computation.likelihood, _settings(computation)
    cases = [Case(problem.model.arrays())] * len(trees)
    if request.optimise_branches:
        lnl = likelihood.smooth(trees, cases, settings.first_smooth_epsilon)
    else:
        for tree in trees:
            check_possible(tree, problem.groups)
        lnl = likelihood.log_likelihoods(trees, cases)
    best = int(lnl.argmax())
    found = _fitted(request, problem, computation, trees[best], reporter)
    trees[best] = found.tree
    cases = [Case(found.model.arrays())] * len(trees)
    if request.optimise_branches:
        computation.exact.smooth(trees, cases, settings.final_smooth_epsilon)
    return (replace(found, tree=tree) for tree in trees)


def _verdicts(
    lnl: Float64Array, tested: dict[str, TreeTest], first: Sequence[int | None]
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
