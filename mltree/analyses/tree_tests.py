"""Tests of branches and of trees: ``mltree alrt``, ``test``, and ``sitelh`` for tests elsewhere."""

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
    TreeTestOptions,
)
from mltree.analyses.tree_sets import smaller_sides, words_of, writing
from mltree.data.patterns import Patterns
from mltree.data.source import TaxonNumbers
from mltree.likelihood.likelihood import TreeLikelihood
from mltree.likelihood.site_rows import rows_of_neighbours, rows_of_trees
from mltree.models.partitioned import Linkage, PartitionModel
from mltree.program.cases import Case
from mltree.runs.demand import RowCounts
from mltree.runs.engines import Engines, Workload, open_engines
from mltree.runs.logged_run import load, names_file
from mltree.runs.problem import Problem
from mltree.runs.trees import FIXED_TOPOLOGY, TreeResult, check_possible, read_tree, tell_mended
from mltree.supports.consensus import members, sides, unit_bits
from mltree.supports.resampling import Resampling, share_error
from mltree.supports.tree_tests import TESTS, BranchTests, TreeTest, local_tests, tree_tests
from mltree.system.arrays import Float64, Int32
from mltree.system.errors import InputError
from mltree.system.events import (
    Notice,
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


BRANCHES, SUPPORTS = "branchTests", "supportALRT"
TREES, TABLE = "testedTrees", "treeTests"
"""Kinds of files: of branches a table and the labelled tree, of trees themselves and a table."""

BRANCH_TESTS = {"sh-alrt": "SH-aLRT", "lbp": "LBP", "alrt": "aLRT", "abayes": "aBayes"}
"""In the order of labels, IQ-TREE's."""

HEAD = "lnL1\tlnL2\taLRT\tSH-aLRT\terror\tLBP\terror\tp-aLRT\taBayes\tlength\ttaxa\n"
"""Columns of the table of all tests of branches."""

RESAMPLED = ("SH-aLRT", "LBP")
"""Tests whose supports are shares of replicates."""

TREE_TESTS = dict(zip(("bp", "kh", "sh", "wkh", "wsh", "elw", "au"), TESTS, strict=True))

MOST_RESAMPLINGS = 1_000_000
"""More is a slip of the finger."""

CONTENDERS = 8
"""Trees, the best with the branch lengths of their file, of which the best has the model fitted."""


def run_alrt(options: BranchTestOptions, reporter: Reporter) -> None:
    """Test the branches of a tree, show the supports, write the files.

    Raises:
        InputError: the tree has no branch that there are tests of.
    """
    tests = LocalTests(tuple(_names(options.tests, BRANCH_TESTS)), options.replicates)
    kinds, workspace = (SUPPORTS, BRANCHES), options.workspace
    with writing("alrt", options, workspace, kinds, reporter) as write:
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
        if options.no_opt_branches:
            check_possible(tree, problem.groups)
        fit = fitted(engines, tree, problem.model, options, reporter)
        tested = tests.of(engines.exact, fit.tree, fit.model, problem.groups, options.seed)
        newick = write_newick(fit.mean_tree, problem.taxa, labels=tested.labels(before))
        for event in tested.events(newick):
            reporter(event)
        texts = {SUPPORTS: newick + "\n", BRANCHES: tested.table(problem.taxa)}
        texts |= names_file(problem)
        facts = {"seed": options.seed, "branches": count}
        write(texts, {**facts, "means": tested.means, "tree": newick})


def _names(text: str, known: dict[str, str]) -> list[str]:
    """Names of the tests in a list with commas, in the order that they are known in."""
    words = words_of(text, known, "--tests")
    return [name for word, name in known.items() if word in words]


def _labels(file: str, tree: Tree, taxa: Sequence[str]) -> dict[int, str]:
    """The labels that the inner edges of a tree have in its file."""
    clades, texts = read_labelled(file)
    inner = clades.only(clades.is_inner)
    of_clades = members(sides(inner, unit_bits(len(taxa))), len(taxa))
    inside, tip_of = np.empty_like(of_clades), TaxonNumbers(taxa)
    inside[:, [tip_of[name] for name in clades.taxa]] = of_clades
    inside ^= inside[:, :1]
    edges, of_edges = tree.inner_edges, members(splits(tree)[tree.inner_edges], len(taxa))
    edge_of = {row.tobytes(): edge for row, edge in zip(of_edges, edges.tolist(), strict=True)}
    labelled = zip(inside, compress(texts, clades.is_inner), strict=True)
    return {edge_of[row.tobytes()]: text for row, text in labelled if text}


class LocalTests(Value):
    """Tests of branches, and their resamplings: of ``mltree alrt``, or of a search's best tree."""

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
        likelihood: TreeLikelihood,
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
    """int32 [B]: ids, rising, of the inner branches that tests compare with two others.

    Not of those that end at a polytomy: more than four subtrees meet there, and the branch stands
    against more than two others.
    """
    edges = tree.inner_edges
    ends = tree.edge_halves[edges]
    around = np.concatenate([tree.edge[beside] for beside in siblings(ends)], axis=1)
    is_testable = (around < tree.n_branches).all(axis=1)
    return np.asarray(edges[is_testable], np.int32)


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
    def supports(self) -> dict[str, Float64]:
        """f64 [B], 0 to 1, by the names of the tests that were asked for."""
        tests = self.tests
        every = (tests.sh_alrt, tests.lbp, tests.parametric, tests.abayes)
        by_name = dict(zip(BRANCH_TESTS.values(), every, strict=True))
        return {name: by_name[name] for name in self.asked.names}

    @property
    def means(self) -> dict[str, float]:
        """Over the branches, of the tests that were asked for."""
        return {name: float(values.mean()) for name, values in self.supports.items()}

    def labels(self, behind: Mapping[int, str] | None = None) -> dict[int, str]:
        """By edge, with slashes between; shares of replicates in per cent, as in IQ-TREE's files.

        behind  what a label ends with
        """
        labels = dict(behind or {})
        columns = [
            100 * support if name in RESAMPLED else support
            for name, support in self.supports.items()
        ]
        for edge, row in zip(self.edges.tolist(), np.stack(columns, axis=1).tolist(), strict=True):
            values = [f"{value:.3g}" for value in row]
            labels[edge] = "/".join([*values, *filter(None, [labels.get(edge)])])
        return labels

    def events(self, newick: str) -> list[SupportsDrawn]:
        """Events of the tests that were asked for; ``newick``: the tree with the labels."""
        count = len(self.edges)
        return [SupportsDrawn(name, count, mean, newick) for name, mean in self.means.items()]

    def table(self, taxa: Sequence[str]) -> str:
        """All tests, a line a branch, with the taxa on its smaller side."""
        tests, edges = self.tests, self.edges
        errors = [share_error(share, tests.replicates) for share in (tests.sh_alrt, tests.lbp)]
        columns = (
            tests.lnl[:, 1], tests.lnl[:, 2], tests.alrt, tests.sh_alrt, errors[0], tests.lbp,
            errors[1], tests.parametric, tests.abayes, self.lengths[edges],
        )  # fmt: skip
        names = smaller_sides(members(splits(self.tree)[edges], self.tree.n_tips), taxa)
        rows = zip(np.stack(columns, axis=1).tolist(), names, strict=True)
        lines = [[*(f"{value:.6f}" for value in row), side] for row, side in rows]
        return HEAD + "".join("\t".join(line) + "\n" for line in lines)


def run_test(options: TreeTestOptions, reporter: Reporter) -> None:
    """Test trees against each other, show the table, write the files.

    Raises:
        InputError: there are no two different trees, the data are of several types, or branch
            lengths are the parts' own.
    """
    tests = TESTS if options.tests == "all" else _names(options.tests, TREE_TESTS)
    kinds, workspace, path = (TABLE, TREES), options.workspace, options.trees
    with writing("test", options, workspace, kinds, reporter) as write:
        problem = load(options, reporter)
        if len(problem.groups) > 1:
            raise InputError("these tests take data of one type", file=options.model)
        if problem.model.n_parts > 1 and problem.model.linkage == Linkage.UNLINKED:
            hint = "use --brlen scaled or linked"
            raise InputError("these tests take one length a branch", hint=hint)
        patterns = problem.patterns
        read = read_newicks(path, patterns.taxa)
        tell_mended(path, [notices for _, notices in read], reporter)
        reporter(TreesLoaded(path, len(read), patterns.n_tips))
        trees = [tree for tree, _ in read]
        first = _first_of_their_kind(trees, by_lengths=options.no_opt_branches)
        different = [tree for tree, same in zip(trees, first, strict=True) if same is None]
        if len(different) < 2:
            raise InputError("all trees are alike: there is nothing to compare", file=path)
        work = Workload.of(problem, rows=RowCounts(sites=len(different)))
        engines = open_engines(options.resources, work, reporter)
        fits = _fitted_trees(options, problem, engines, different, reporter)
        cases = [Case(fit.model.arrays()) for fit in fits]
        rows = rows_of_trees(engines.exact, [fit.tree for fit in fits], cases, patterns.weights)
        tested = tree_tests(
            rows.lnl, rows.sites, rows.resampled, patterns.weights, patterns.parts, options.seed,
            options.replicates, tests,
        )  # fmt: skip
        event = TreesTested(options.replicates, tuple(_verdicts(rows.lnl, tested, first)))
        reporter(event)
        text = "".join(write_newick(fit.tree, patterns.taxa) + "\n" for fit in fits)
        texts = {TABLE: "".join(_tree_lines(event)), TREES: text, **names_file(problem)}
        write(texts, {"seed": options.seed, **asdict(event)})


def _first_of_their_kind(trees: Sequence[Tree], by_lengths: bool) -> list[int | None]:
    """Number, from 1, of the earlier tree that equals each; None where none does.

    by_lengths  trees of one topology differ by their branch lengths
    """
    known: dict[int, list[int]] = {}
    firsts: list[int | None] = []
    for number, (tree, key) in enumerate(zip(trees, Forest(trees).topology_keys(), strict=True), 1):
        alike = known.setdefault(key, [])
        lengths = ((n, lengths_in(tree, trees[n - 1])) for n in alike)
        same = (n for n, other in lengths if not by_lengths or np.array_equal(tree.lengths, other))
        firsts.append(next(same, None))
        if firsts[-1] is None:
            alike.append(number)
    return firsts


def _fitted_trees(
    options: TreeTestOptions,
    problem: Problem,
    engines: Engines,
    trees: list[Tree],
    reporter: Reporter,
) -> list[TreeResult]:
    """The trees under one model, optimised on the best of them, as far as was asked for.

    The best is so with the branch lengths of the file, if they stay as they are; else, of those
    that are the best so, once the lengths are optimised.
    """
    settings = FIXED_TOPOLOGY.for_precision(engines.is_exact)
    likelihood, cases = engines.likelihood, [Case(problem.model.arrays())] * len(trees)
    for tree in trees:
        if options.no_opt_branches:
            check_possible(tree, problem.groups)
        else:
            tree.lengths = likelihood.clip(tree.lengths)
    lnl = likelihood.log_likelihoods(trees, cases)
    best = int(lnl.argmax())
    if not options.no_opt_branches:
        good = np.argsort(-lnl, kind="stable")[:CONTENDERS]
        contenders, epsilon = [trees[n] for n in good], settings.first_smooth_epsilon
        best = int(good[likelihood.smooth(contenders, cases[: good.size], epsilon).argmax()])
    fit = fitted(engines, trees[best], problem.model, options, reporter)
    trees[best] = fit.tree
    if not options.no_opt_branches:
        cases = [Case(fit.model.arrays())] * len(trees)
        engines.exact.smooth(trees, cases, settings.final_smooth_epsilon)
    return [replace(fit, tree=tree) for tree in trees]


def _verdicts(
    lnl: Float64, tested: dict[str, TreeTest], first: Sequence[int | None]
) -> Iterator[TestedTree]:
    """Every tree of the file, with what the tests say of its topology."""
    row_of: dict[int, int] = {}
    rows = iter(range(len(lnl)))
    for number, same in enumerate(first, 1):
        row = row_of[number] = next(rows) if same is None else row_of[same]
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
        line = [str(tree.number), str(tree.same_as or ""), f"{tree.lnl:.6f}", f"{tree.delta:.6f}"]
        for test in tree.tests:
            line += [f"{test.value:.6f}", f"{test.error:.6f}", "+" if test.kept else "-"]
        yield "\t".join(line) + "\n"


# ``mltree sitelh``: the lnL of every site on every tree, as tests of topologies take it.

FORMATS = {"iqtree": "sitelh", "raxml": "perSiteLLs"}
"""Formats by name, and the kind of file that each is written to."""

NAME_WIDTH = 10
"""Columns of a tree's name in IQ-TREE's files."""


def run_sitelh(options: SiteLnlOptions, reporter: Reporter) -> None:
    """Compute the lnL of every site on every tree of a file, under the model of the first.

    Raises:
        InputError: the data or the trees cannot be used, or the file cannot be written.
        NumericalError: a tree whose lengths stay as they are has no likelihood.
    """
    kind, workspace, kinds = FORMATS[options.file_format], options.workspace, [*FORMATS.values()]
    with writing("sitelh", options, workspace, [kind], reporter, kinds) as write:
        problem = load(options, reporter)
        read = read_newicks(options.trees, problem.taxa)
        reporter(TreesLoaded(options.trees, len(read), len(problem.taxa)))
        for number, (tree, notices) in enumerate(read, 1):
            for notice in notices:
                reporter(Notice(f"{options.trees}: tree {number}: {notice}"))
            if options.no_opt_branches:
                check_possible(tree, problem.groups)
        engines = open_engines(options.resources, Workload.of(problem), reporter)
        rows, model, step = [], problem.model, options
        for tree, _ in read:
            fit = fitted(engines, tree, model, step, reporter)
            model, step = fit.model, replace(options, no_opt_model=True)
            by_pattern = engines.exact.site_log_likelihoods(fit.tree, Case(model.arrays()))
            rows.append(problem.by_site(by_pattern))
        sums = [float(row.sum()) for row in rows]
        reporter.say(f"lnL of the trees: {', '.join(f'{lnl:.4f}' for lnl in sums)}")
        write({kind: _site_table(rows, kind)}, {"model": model.text, "lnl": sums})


def _site_table(rows: Sequence[Float64], kind: str) -> str:
    """Sizes, then a line a tree: as TREE-PUZZLE and IQ-TREE, or RAxML; CONSEL reads both."""
    trees, sites, numbers = len(rows), len(rows[0]), range(1, len(rows) + 1)
    if kind == FORMATS["raxml"]:
        head, names = f"  {trees}  {sites}", [f"tr{number}\t" for number in numbers]
    else:
        words = ["Site_Lh"] if trees == 1 else [f"Tree{number}" for number in numbers]
        head, names = f"{trees} {sites}", [f"{word:<{NAME_WIDTH}} " for word in words]
    lines = [
        name + " ".join(f"{value:.10f}" for value in row)
        for name, row in zip(names, rows, strict=True)
    ]
    return "\n".join([head, *lines, ""])
