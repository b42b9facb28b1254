"""``mltree alrt`` and ``mltree test``: branches, or whole trees, against an alignment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import compress
from typing import TYPE_CHECKING

import numpy as np

from mltree.analyses.evaluate import fitted
from mltree.analyses.options import (
    BranchTestOptions,
    SearchOptions,
    SiteLnlOptions,
    TestOptions,
    TreeTestOptions,
)
from mltree.data.patterns import Patterns
from mltree.likelihood.likelihood import Likelihood
from mltree.likelihood.site_rows import rows_of_neighbours, rows_of_trees
from mltree.models.partitioned import Linkage, PartitionModel
from mltree.program.cases import Case
from mltree.runs.demand import RowCounts
from mltree.runs.engines import Engines, Workload, open_engines
from mltree.runs.problem import Problem
from mltree.runs.request import finish, load
from mltree.runs.steps import FIXED_TOPOLOGY, TreeResult
from mltree.runs.trees import check_possible, read_tree, tell_mended
from mltree.supports.consensus import members, sides, unit_bits
from mltree.supports.resampling import Resampling, share_error
from mltree.supports.tree_tests import TESTS, BranchTests, TreeTest, local_tests, tree_tests
from mltree.system import __version__
from mltree.system.arrays import Float64, Int32
from mltree.system.errors import InputError
from mltree.system.events import (
    Notice,
    RunStarted,
    SupportsDrawn,
    TestedTree,
    TestValue,
    TreesLoaded,
    TreesTested,
)
from mltree.system.values import Value
from mltree.tree.clades import read_labelled
from mltree.tree.newick import read_newicks, write_newick
from mltree.tree.splits import lengths_in, splits
from mltree.tree.topology import Forest, Tree, siblings

if TYPE_CHECKING:
    from mltree.report.progress import Reporter


# Local tests of every inner branch of a tree: computed, shown and written.
#
# For ``mltree alrt``, and for a search that tests the tree that it has found.

BRANCHES = "branchTests"
"""Kind of the file with all tests."""

BRANCH_TESTS = {"sh-alrt": "SH-aLRT", "lbp": "LBP", "alrt": "aLRT", "abayes": "aBayes"}
"""In the order of labels, IQ-TREE's."""

RESAMPLED = ("SH-aLRT", "LBP")
"""Tests whose supports are shares of replicates."""


MOST_RESAMPLINGS = 1_000_000
"""More is a slip of the finger."""


class LocalTests(Value):
    """Tests of branches, and their resamplings."""

    names: tuple[str, ...]
    """Values of :data:`BRANCH_TESTS`, in that order."""
    replicates: int
    """Resamplings for SH-aLRT and LBP."""

    @classmethod
    def asked_by(cls, options: SearchOptions) -> LocalTests | None:
        """The tests that a search shall do; where two resample, the larger number is for both.

        Raises:
            InputError: a number of resamplings is no such number.
        """
        for option, number in (("--sh-alrt", options.sh_alrt), ("--lbp", options.lbp)):
            if number is not None and not 1 <= number <= MOST_RESAMPLINGS:
                hint = "--alrt is the parametric test" if number == 0 else "1000 is usual"
                bounds = f"between 1 and {MOST_RESAMPLINGS:,} resamplings, please"
                raise InputError(f"{option} {number}: {bounds}", hint=hint)
        asked = (
            options.sh_alrt is not None, options.lbp is not None, options.alrt, options.abayes,
        )  # fmt: skip
        names = tuple(compress(BRANCH_TESTS.values(), asked))
        return cls(names, max(options.sh_alrt or 1, options.lbp or 1)) if names else None

    @property
    def replicates_by_name(self) -> dict[str, int | None]:
        """Replicates of every test; None where it resamples nothing."""
        return {name: self.replicates if name in RESAMPLED else None for name in self.names}

    def of(
        self,
        likelihood: Likelihood,
        tree: Tree,
        model: PartitionModel,
        groups: Sequence[Patterns],
        seed: int,
    ) -> TestedBranches:
        """The tests of a tree under a model; the likelihood is of all its taxa, in fp64.

        groups  the patterns of every data type
        """
        weights, edges = np.concatenate([patterns.weights for patterns in groups]), testable(tree)
        rows = rows_of_neighbours(likelihood, tree, Case(model.arrays()), weights, edges)
        resampling = Resampling.of(groups, seed, "local tests")
        tested = local_tests(rows.lnl, rows.resampled, resampling, self.replicates)
        return TestedBranches(self, tree, edges, model.mean_lengths(tree.lengths), tested)


def testable(tree: Tree) -> Int32:
    """int32 [B]: ids, rising, of the inner branches that are told from two others by tests.

    Not of those that end at a polytomy: more than four subtrees meet there, and the branch stands
    against more than two others.
    """
    edges = tree.inner_edges
    ends = tree.edge_halves[edges]
    around = np.concatenate([tree.edge[beside] for beside in siblings(ends)], axis=1)
    found: Int32 = edges[(around < tree.n_branches).all(axis=1)]
    return found


class TestedBranches(Value):
    """Tests of the branches of a tree that there are tests of."""

    __test__ = False  # no test of pytest's

    asked: LocalTests
    tree: Tree
    edges: Int32
    """int32 [B]: :func:`testable`"""
    lengths: Float64
    """f64 [E]: of the tree, one a branch."""
    tests: BranchTests

    @property
    def values(self) -> dict[str, Float64]:
        """Every support by its name, f64 [B] 0 to 1."""
        tests = self.tests
        every = (tests.sh_alrt, tests.lbp, tests.parametric, tests.abayes)
        return dict(zip(BRANCH_TESTS.values(), every, strict=True))

    @property
    def means(self) -> dict[str, float]:
        """Over the branches, of the tests that were asked for."""
        return {name: float(self.values[name].mean()) for name in self.asked.names}

    def labels(self, behind: Mapping[int, str] | None = None) -> dict[int, str]:
        """By edge, with slashes between; shares of replicates in per cent, as in IQ-TREE's files.

        behind  what a label ends with
        """
        scale = dict.fromkeys(BRANCH_TESTS.values(), 1.0) | dict.fromkeys(RESAMPLED, 100.0)
        columns = [scale[name] * self.values[name] for name in self.asked.names]
        labels = dict(behind or {})
        for edge, row in zip(self.edges.tolist(), np.stack(columns, axis=1).tolist(), strict=True):
            values = [f"{value:.3g}" for value in row]
            labels[edge] = "/".join([*values, *filter(None, [labels.get(edge)])])
        return labels

    def events(self, newick: str) -> list[SupportsDrawn]:
        """Events of the tests that were asked for; ``newick``: the tree with the labels."""
        count = len(self.tests.lnl)
        return [SupportsDrawn(name, count, mean, newick) for name, mean in self.means.items()]

    def table(self, taxa: Sequence[str]) -> str:
        """All tests, a line a branch."""
        return "".join(self._lines(taxa))

    def _lines(self, taxa: Sequence[str]) -> Iterator[str]:
        yield ("lnL1\tlnL2\taLRT\tSH-aLRT\terror\tLBP\terror\tp-aLRT\taBayes\tlength\ttaxa\n")
        tests, edges, n_tips = self.tests, self.edges, self.tree.n_tips
        sh_error, lbp_error = (
            share_error(share, tests.replicates) for share in (tests.sh_alrt, tests.lbp)
        )
        inside = members(splits(self.tree)[edges], n_tips)
        inside ^= (2 * inside.sum(axis=1) > n_tips)[:, None]
        columns = (
            tests.lnl[:, 1], tests.lnl[:, 2], tests.alrt, tests.sh_alrt, sh_error, tests.lbp,
            lbp_error, tests.parametric, tests.abayes, self.lengths[edges],
        )  # fmt: skip
        for row, side in zip(np.stack(columns, axis=1).tolist(), inside, strict=True):
            names = ",".join(taxa[tip] for tip in np.flatnonzero(side).tolist())
            yield "\t".join(f"{value:.6f}" for value in row) + f"\t{names}\n"


SUPPORTS = "supportALRT"
TREES = "testedTrees"
TABLE = "treeTests"
"""Kinds of files."""

CONTENDERS = 8
"""Trees, the best with the branch lengths of their file, of which the best has the model fitted."""

TREE_TESTS = dict(zip(("bp", "kh", "sh", "wkh", "wsh", "elw", "au"), TESTS, strict=True))


def run_alrt(options: BranchTestOptions, reporter: Reporter) -> None:
    """Test the branches of a tree, show what was found, write the files.

    Raises:
        InputError: the tree has no branch that there are tests of.
    """
    chosen = tuple(_choice(options.tests, BRANCH_TESTS))
    workspace = options.workspace
    kinds, inputs = (SUPPORTS, BRANCHES, "alrt.json"), options.inputs
    with workspace.taken(kinds, options.redo, inputs):
        reporter(RunStarted(__version__, options.line, options.seed))
        problem = load(options, reporter)
        tree = read_tree(options.tree, problem, reporter)
        count, inner = len(testable(tree)), len(tree.inner_edges)
        if not count:
            hint = "tests take an inner branch with two others at either end"
            raise InputError("the tree has no branch to test", file=options.tree, hint=hint)
        if count < inner:
            reporter(
                Notice(f"{inner - count} of {inner} inner branches end at polytomies: no tests")
            )
        before = _labels(options.tree, tree, problem.taxa)
        engines = open_engines(options.resources, Workload.of(problem), reporter)
        found = _fitted(options, problem, engines, tree, reporter)
        tested = LocalTests(chosen, options.replicates).of(
            engines.exact, found.tree, found.model, problem.groups, options.seed
        )
        newick = write_newick(found.mean_tree, problem.taxa, labels=tested.labels(before))
        for event in tested.events(newick):
            reporter(event)
        texts = {SUPPORTS: newick + "\n", BRANCHES: tested.table(problem.taxa)}
        values = {"seed": options.seed, "branches": count, "means": tested.means, "tree": newick}
        finish("alrt", options.line, workspace, texts, values, inputs, reporter)


def _loaded(options: TestOptions, reporter: Reporter) -> Problem:
    """The data and the models, of a kind that has tests.

    Raises:
        InputError: they are of several data types, or branch lengths are the parts' own.
    """
    problem = load(options, reporter)
    if len(problem.groups) > 1:
        raise InputError("these tests take data of one type", file=options.model)
    if problem.model.n_parts > 1 and problem.model.linkage == Linkage.UNLINKED:
        hint = "use --brlen scaled or linked"
        raise InputError("these tests take one length a branch", hint=hint)
    return problem


def _fitted(
    options: TestOptions,
    problem: Problem,
    engines: Engines,
    tree: Tree,
    reporter: Reporter,
) -> TreeResult:
    """The tree and the model, optimised as far as was asked for."""
    if options.no_opt_branches:
        check_possible(tree, problem.groups)
    return fitted(engines, tree, problem.model, options, reporter)


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


def run_test(options: TreeTestOptions, reporter: Reporter) -> None:
    """Test trees against each other, show the table, write the files.

    Raises:
        InputError: there are no two different trees.
    """
    chosen = [] if options.tests == "all" else _choice(options.tests, TREE_TESTS)
    workspace = options.workspace
    kinds, inputs = (TABLE, TREES, "test.json"), options.inputs
    with workspace.taken(kinds, options.redo, inputs):
        reporter(RunStarted(__version__, options.line, options.seed))
        problem = _loaded(options, reporter)
        trees = _read(options, problem, reporter)
        first = _first_of_their_kind(trees, by_lengths=options.no_opt_branches)
        different = [tree for tree, same in zip(trees, first, strict=True) if same is None]
        if len(different) < 2:
            raise InputError("all trees are alike: there is nothing to compare", file=options.trees)
        work = Workload.of(problem, rows=RowCounts(sites=len(different)))
        engines = open_engines(options.resources, work, reporter)
        fitted = list(_fitted_trees(options, problem, engines, different, reporter))
        weights, parts = problem.patterns.weights, problem.patterns.parts
        cases = [Case(found.model.arrays()) for found in fitted]
        rows = rows_of_trees(engines.exact, [found.tree for found in fitted], cases, weights)
        tested = tree_tests(
            rows.lnl, rows.sites, rows.resampled, weights, parts, options.seed, options.replicates,
            chosen or TESTS,
        )  # fmt: skip
        event = TreesTested(options.replicates, tuple(_verdicts(rows.lnl, tested, first)))
        reporter(event)
        text = "".join(write_newick(found.tree, problem.patterns.taxa) + "\n" for found in fitted)
        texts = {TABLE: "".join(_tree_lines(event)), TREES: text}
        values = {"seed": options.seed, **asdict(event)}
        finish("test", options.line, workspace, texts, values, inputs, reporter)


def _read(options: TreeTestOptions, problem: Problem, reporter: Reporter) -> list[Tree]:
    path = options.trees
    read = read_newicks(path, problem.patterns.taxa)
    tell_mended(path, [notices for _, notices in read], reporter)
    reporter(TreesLoaded(path, len(read), problem.patterns.n_tips))
    return [tree for tree, _ in read]


def _first_of_their_kind(trees: Sequence[Tree], by_lengths: bool) -> list[int | None]:
    """Number, from 1, of the earlier tree that equals each; None where none does.

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
    """True if two trees of one topology have the same branch lengths."""
    return np.array_equal(tree.lengths, lengths_in(tree, other))


def _fitted_trees(
    options: TreeTestOptions,
    problem: Problem,
    engines: Engines,
    trees: list[Tree],
    reporter: Reporter,
) -> Iterator[TreeResult]:
    """The trees under one model, optimised on the best of them, as far as was asked for."""
    settings = FIXED_TOPOLOGY.for_precision(engines.is_exact)
    best = _best(options, problem, engines.likelihood, trees, settings.first_smooth_epsilon)
    found = _fitted(options, problem, engines, trees[best], reporter)
    trees[best] = found.tree
    cases = [Case(found.model.arrays())] * len(trees)
    if not options.no_opt_branches:
        engines.exact.smooth(trees, cases, settings.final_smooth_epsilon)
    return (replace(found, tree=tree) for tree in trees)


def _best(
    options: TreeTestOptions,
    problem: Problem,
    likelihood: Likelihood,
    trees: Sequence[Tree],
    epsilon: float,
) -> int:
    """Which tree is the best: as its file has it, if branch lengths stay as they are.

    Else, of those that are the best so, the one that is once their lengths are optimised.
    """
    cases = [Case(problem.model.arrays())] * len(trees)
    if options.no_opt_branches:
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


# ``mltree sitelh``: the lnL of every site on every tree, as tests of topologies take it.

RESULT = "sitelh.json"

NAME_WIDTH = 10
"""Columns of a tree's name in IQ-TREE's files."""


def run_sitelh(options: SiteLnlOptions, reporter: Reporter) -> None:
    """Compute the lnL of every site on every tree of a file, under the model of the first.

    Raises:
        InputError: the data or the trees cannot be used, or the file cannot be written.
        NumericalError: a tree whose lengths stay as they are has no likelihood.
    """
    workspace = options.workspace
    kind = FORMATS[options.file_format]
    inputs = options.inputs
    with workspace.taken([kind, RESULT], options.redo, inputs):
        reporter(RunStarted(__version__, options.line))
        problem = load(options, reporter)
        read = read_newicks(options.trees, problem.taxa)
        reporter(TreesLoaded(options.trees, len(read), len(problem.taxa)))
        for number, (tree, notices) in enumerate(read, 1):
            for notice in notices:
                reporter(Notice(f"{options.trees}: tree {number}: {notice}"))
            if options.no_opt_branches:
                check_possible(tree, problem.groups)
        engines = open_engines(options.resources, Workload.of(problem), reporter)
        rows = []
        model = problem.model
        for number, (tree, _) in enumerate(read):
            keeps = options.no_opt_model or number > 0
            fit = replace(options, no_opt_model=keeps)
            found = fitted(engines, tree, model, fit, reporter)
            model = found.model
            by_pattern = engines.exact.site_log_likelihoods(found.tree, Case(model.arrays()))
            rows.append(problem.by_site(by_pattern))
        lnls = ", ".join(f"{row.sum():.4f}" for row in rows)
        reporter.say(f"lnL of the trees: {lnls}")
        values = {"model": model.text, "lnl": [float(row.sum()) for row in rows]}
        texts = {kind: _TEXTS[options.file_format](rows)}
        spent = [other for other in FORMATS.values() if other != kind] if options.redo else []
        finish("sitelh", options.line, workspace, texts, values, inputs, reporter, spent)


def _iqtree(rows: list[Float64]) -> str:
    """IQ-TREE's .sitelh, which is TREE-PUZZLE's: sizes, then a line a tree."""
    names = ["Site_Lh"] if len(rows) == 1 else [f"Tree{n}" for n in range(1, len(rows) + 1)]
    lines = [
        f"{name:<{NAME_WIDTH}} {' '.join(f'{value:.10f}' for value in row)}"
        for name, row in zip(names, rows, strict=True)
    ]
    return "\n".join([f"{len(rows)} {len(rows[0])}", *lines, ""])


def _raxml(rows: list[Float64]) -> str:
    """RAxML's perSiteLLs, which CONSEL reads as well: names and values with a tab between."""
    lines = [
        f"tr{number}\t{' '.join(f'{value:.10f}' for value in row)}"
        for number, row in enumerate(rows, 1)
    ]
    return "\n".join([f"  {len(rows)}  {len(rows[0])}", *lines, ""])


FORMATS = {"iqtree": "sitelh", "raxml": "perSiteLLs"}
"""Formats by name, and the kind of file that each is written to."""

_TEXTS = {"iqtree": _iqtree, "raxml": _raxml}
