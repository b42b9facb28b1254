"""Tests of branches and of trees: ``mltree alrt``, ``test``, and ``sitelh`` for tests elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import compress
from typing import TYPE_CHECKING, Any

import numpy as np

from mltree.analyses.evaluate import fitted
from mltree.analyses.options import (
    BranchTestOptions,
    SearchOptions,
    SiteLnlOptions,
    TreeTestOptions,
)
from mltree.analyses.tree_sets import smaller_sides, words_of, writing
from mltree.data.alignments import Source
from mltree.data.patterns import Patterns
from mltree.data.source import TaxonNumbers
from mltree.likelihood.likelihood import TreeLikelihood
from mltree.likelihood.site_rows import rows_of_neighbours, rows_of_trees
from mltree.models.partitioned import Linkage, PartitionModel
from mltree.program.cases import Case
from mltree.runs.calls import Call, taking
from mltree.runs.demand import RowCounts
from mltree.runs.engines import Engines, Workload, open_engines
from mltree.runs.logged_run import load, names_file
from mltree.runs.options import one_of
from mltree.runs.problem import Problem
from mltree.runs.results import PhyloTree, Table
from mltree.runs.trees import (
    FIXED_TOPOLOGY,
    TreeResult,
    check_possible,
    read_tree,
    tell_mended,
    tree_named,
)
from mltree.supports.consensus import members, sides, unit_bits
from mltree.supports.resampling import Resampling, share_error
from mltree.supports.tree_tests import TESTS, BranchTests, TreeTest, local_tests, tree_tests
from mltree.system.arrays import Float64, Int32
from mltree.system.errors import InputError
from mltree.system.events import (
    Emit,
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

COLUMNS = (
    "lnl1", "lnl2", "alrt", "sh_alrt", "sh_alrt_error", "lbp", "lbp_error", "p_alrt", "abayes",
    "length",
)  # fmt: skip
"""The same of a data frame."""

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
    _tests_of(options)  # before anything is read
    kinds, workspace = (SUPPORTS, BRANCHES), options.workspace
    with writing("alrt", options, workspace, kinds, reporter) as write:
        problem = load(options, reporter)
        found = _tested_branches(options, problem, reporter)
        newick = found.tree.newick
        texts = {SUPPORTS: newick + "\n", BRANCHES: found.tested.table(found.taxa)}
        texts |= names_file(problem.renamed)
        facts = {"seed": options.seed, "branches": len(found.tested.edges)}
        write(texts, {**facts, "means": found.means, "tree": newick})


def _tests_of(options: BranchTestOptions) -> LocalTests:
    return LocalTests(tuple(_names(options.tests, BRANCH_TESTS)), options.replicates)


def _tested_branches(options: BranchTestOptions, problem: Problem, emit: Emit) -> BranchTestResult:
    """The tests of a tree's branches.

    Raises:
        InputError: the tree has no branch that there are tests of.
    """
    tree = read_tree(options.tree, problem, emit)
    count, inner = len(testable(tree)), len(tree.inner_edges)
    if not count:
        hint = "the tests need an inner branch with two others at either end"
        file = tree_named(options.tree)
        raise InputError("the tree has no branch to test", file=file, hint=hint)
    if count < inner:
        untested = f"{inner - count} of {inner} inner branches end at polytomies"
        emit(Notice(f"{untested} and are not tested"))
    before = _labels(options.tree, tree, problem.taxa)
    tests = _tests_of(options)
    work = Workload.of(problem, rows=RowCounts(tests=max(1, tests.replicates)))
    engines = open_engines(options.resources, work, emit)
    if options.no_opt_branches:
        check_possible(tree, problem.groups)
    fit = fitted(engines, tree, problem.model, options, emit)
    tested = tests.of(engines.exact, fit.tree, fit.model, problem.groups, options.seed)
    newick = write_newick(fit.mean_tree, problem.taxa, labels=tested.labels(before))
    for event in tested.events(newick):
        emit(event)
    return BranchTestResult(PhyloTree(newick), fit.lnl, fit.model.text, problem.taxa, tested)


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
                bounds = f"between 1 and {MOST_RESAMPLINGS:,} resamplings are possible"
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

    @property
    def columns(self) -> Float64:
        """f64 [B, 10]: the numbers of the table, one for each of :data:`COLUMNS`."""
        tests = self.tests
        errors = [share_error(share, tests.replicates) for share in (tests.sh_alrt, tests.lbp)]
        columns = (
            tests.lnl[:, 1], tests.lnl[:, 2], tests.alrt, tests.sh_alrt, errors[0], tests.lbp,
            errors[1], tests.parametric, tests.abayes, self.lengths[self.edges],
        )  # fmt: skip
        return np.stack(columns, axis=1)

    def sides(self, taxa: Sequence[str]) -> list[str]:
        """Names of the taxa on the smaller side of each branch, with commas between."""
        return smaller_sides(members(splits(self.tree)[self.edges], self.tree.n_tips), taxa)

    def table(self, taxa: Sequence[str]) -> str:
        """All tests, a line a branch, with the taxa on its smaller side."""
        rows = zip(self.columns.tolist(), self.sides(taxa), strict=True)
        lines = [[*(f"{value:.6f}" for value in row), side] for row, side in rows]
        return HEAD + "".join("\t".join(line) + "\n" for line in lines)


@dataclass(frozen=True, eq=False, repr=False)
class BranchTestResult(Table):
    """Tests of the branches of a tree: a row a branch."""

    tree: PhyloTree
    """The tree with the supports as labels, in IQ-TREE's order, before labels that it had."""
    lnl: float
    """Log-likelihood of the tree."""
    model: str
    """With its values, as ``model`` takes it."""
    taxa: tuple[str, ...]
    """T names, sorted."""
    tested: TestedBranches = field(repr=False)

    @property
    def means(self) -> dict[str, float]:
        """Means over the branches of the tests that were asked for, 0 to 1."""
        return self.tested.means

    def columns(self) -> dict[str, Sequence[Any]]:
        """The taxa on a branch's smaller side, and every test, asked for or not; shares are 0 to 1.

        ``lnl1``, ``lnl2``: of the best tree and the second best about the branch.
        """
        numbers = self.tested.columns.T.tolist()
        return {"taxa": self.tested.sides(self.taxa), **dict(zip(COLUMNS, numbers, strict=True))}

    def _facts(self) -> dict[str, str]:
        means = ", ".join(f"{name} {mean:.3f}" for name, mean in self.means.items())
        return {"lnL": f"{self.lnl:.4f}", "model": self.model, "trees": "1", "means": means}

    def _repr_html_(self) -> str:
        return super()._repr_html_() + self.tree._repr_html_()

    def __repr__(self) -> str:
        means = ", ".join(f"mean {name} {mean:.3f}" for name, mean in self.means.items())
        return f"BranchTestResult({len(self.tested.edges):,} branches, {means})"


@taking(BranchTestOptions, "tree", "model")
def alrt(options: BranchTestOptions, source: Source, call: Call) -> BranchTestResult:
    """Test the branches of a tree against their neighbours, as ``mltree alrt`` does."""
    _tests_of(options)
    return _tested_branches(options, load(options, call, source), call)


def run_test(options: TreeTestOptions, reporter: Reporter) -> None:
    """Test trees against each other, show the table, write the files.

    Raises:
        InputError: there are no two different trees, the data are of several types, or branch
            lengths are the parts' own.
    """
    tests = _tree_tests_of(options)
    kinds, workspace = (TABLE, TREES), options.workspace
    with writing("test", options, workspace, kinds, reporter) as write:
        problem = load(options, reporter)
        event, fits = _tested_trees(options, problem, tests, reporter)
        text = "".join(f"{newick}\n" for newick in fits)
        texts = {TABLE: "".join(_tree_lines(event)), TREES: text, **names_file(problem.renamed)}
        write(texts, {"seed": options.seed, **asdict(event)})


def _tree_tests_of(options: TreeTestOptions) -> Sequence[str]:
    return TESTS if options.tests == "all" else _names(options.tests, TREE_TESTS)


def _tested_trees(
    options: TreeTestOptions, problem: Problem, tests: Sequence[str], emit: Emit
) -> tuple[TreesTested, list[str]]:
    """The verdicts on all trees, and the different ones in Newick.

    Raises:
        InputError: as :func:`run_test`.
    """
    name = tree_named(options.trees, "the trees")
    if len(problem.groups) > 1:
        raise InputError("these tests need data of one type", file=options.model)
    if problem.model.n_parts > 1 and problem.model.linkage == Linkage.UNLINKED:
        raise InputError(
            "these tests need one length for each branch", hint="use --brlen scaled or linked"
        )
    patterns = problem.patterns
    read = read_newicks(options.trees, patterns.taxa)
    tell_mended(name, [notices for _, notices in read], emit)
    emit(TreesLoaded(name, len(read), patterns.n_tips))
    trees = [tree for tree, _ in read]
    first = _first_of_their_kind(trees, by_lengths=options.no_opt_branches)
    different = [tree for tree, same in zip(trees, first, strict=True) if same is None]
    if len(different) < 2:
        raise InputError("all trees are identical: there is nothing to compare", file=name)
    work = Workload.of(problem, rows=RowCounts(sites=len(different)))
    engines = open_engines(options.resources, work, emit)
    fits = _fitted_trees(options, problem, engines, different, emit)
    cases = [Case(fit.model.arrays()) for fit in fits]
    rows = rows_of_trees(engines.exact, [fit.tree for fit in fits], cases, patterns.weights)
    tested = tree_tests(
        rows.lnl, rows.sites, rows.resampled, patterns.weights, patterns.parts, options.seed,
        options.replicates, tests,
    )  # fmt: skip
    event = TreesTested(options.replicates, tuple(_verdicts(rows.lnl, tested, first)))
    emit(event)
    return event, [write_newick(fit.tree, patterns.taxa) for fit in fits]


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
    emit: Emit,
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
    fit = fitted(engines, trees[best], problem.model, options, emit)
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


@dataclass(frozen=True, eq=False, repr=False)
class TreeTestResult(Table):
    """Tests of trees against each other: a row a tree."""

    verdicts: tuple[TestedTree, ...] = field(repr=False)
    """Values, errors and verdicts of all trees, in the order that they were given in."""
    trees: tuple[PhyloTree, ...]
    """All trees, with their branch lengths as they were optimised."""
    replicates: int
    """Resamplings; of AU so many of each of ten sizes."""

    @property
    def best(self) -> int:
        """The number of the best tree, from 1."""
        return min(self.verdicts, key=lambda tree: tree.delta).number

    def kept(self, test: str = "p-AU") -> list[int]:
        """Numbers, from 1, of the trees that a test does not reject, at 95 %.

        test  as the columns are called: ``p-AU``, ``p-SH``, ``p-KH``, ``c-ELW``, ...

        Raises:
            InputError: there is no such test.
        """
        one_of("test", test, [value.name for value in self.verdicts[0].tests])
        return [
            tree.number
            for tree in self.verdicts
            if any(value.name == test and value.kept for value in tree.tests)
        ]

    def columns(self) -> dict[str, Sequence[Any]]:
        """``tree``, ``same_as``, ``lnl``, ``delta``; of each test its value, error and verdict.

        ``p-AU``, ``p-AU_error``, ``p-AU_kept`` and so on, in IQ-TREE's names.
        """
        names = {"tree": "number", "same_as": "same_as", "lnl": "lnl", "delta": "delta"}
        columns: dict[str, Sequence[Any]] = {
            name: [getattr(tree, field) for tree in self.verdicts] for name, field in names.items()
        }
        for values in zip(*(tree.tests for tree in self.verdicts), strict=True):
            columns[values[0].name] = [value.value for value in values]
            columns[f"{values[0].name}_error"] = [value.error for value in values]
            columns[f"{values[0].name}_kept"] = [value.kept for value in values]
        return columns

    def _facts(self) -> dict[str, str]:
        return {"trees": f"{len(self.trees):,}, the best is {self.best}"}

    def __repr__(self) -> str:
        return f"TreeTestResult({len(self.trees):,} trees, the best is {self.best})"


@taking(TreeTestOptions, "trees", "model")
def test(options: TreeTestOptions, source: Source, call: Call) -> TreeTestResult:
    """Tell which of several trees the data reject, as ``mltree test`` does."""
    problem = load(options, call, source)
    event, newicks = _tested_trees(options, problem, _tree_tests_of(options), call)
    own = iter(map(PhyloTree, newicks))
    trees: dict[int, PhyloTree] = {}
    for tree in event.trees:
        trees[tree.number] = next(own) if tree.same_as is None else trees[tree.same_as]
    return TreeTestResult(event.trees, tuple(trees.values()), event.replicates)


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
