"""Trees of a run: given by the user, to start a search from, searched for, fitted to."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import repeat, zip_longest
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mltree.data.patterns import Patterns
from mltree.device.discovery import choose_devices, company_pays
from mltree.device.layout_choice import KeptLayouts
from mltree.fit.coordinate_ascent import ascend_best
from mltree.fit.fits import Fit, best_fit, starts_of
from mltree.fit.model_optimiser import optimise_models
from mltree.fit.settings import (
    UNSURE_SPREAD,
    UNSURE_STARTS,
    BranchSettings,
    PerturbationSettings,
    SearchSettings,
)
from mltree.likelihood.likelihood import PerSiteLikelihood, TreeLikelihood
from mltree.likelihood.requests import Answers, Request, Stepwise, perform
from mltree.models.grammar import format_model
from mltree.models.partitioned import Linkage, PartitionModel
from mltree.program.cases import Case
from mltree.report.tables import listed
from mltree.runs.demand import NO_ROWS, RowCounts
from mltree.runs.engines import ANY_DEVICE, DEFAULT, Engines, Resources, Workload, open_engines
from mltree.runs.problem import Problem
from mltree.system import __version__
from mltree.system.errors import InputError, NumericalError
from mltree.system.events import Emit, Notice, RunFinished, StoppedShort, ignore
from mltree.system.ranks import ALIKE_HINT, LONE, Ranks
from mltree.system.values import Value
from mltree.tree.fitch import find_conflict
from mltree.tree.newick import read_newick, read_newicks, text_of, write_newick
from mltree.tree.parsimony import (
    REFERENCE,
    ParsimonyEngine,
    parsimony_trees,
    parsimony_trees_of_each,
)
from mltree.tree.splits import lengths_in, mean_distance
from mltree.tree.topology import Tree, random_topology
from mltree.treesearch.checkpoint import Checkpoint, fingerprint
from mltree.treesearch.constraint import Constraint, constrained_start, read_constraint
from mltree.treesearch.duplicates import Collapsed, collapse
from mltree.treesearch.search import (
    RANDOM,
    SearchOutcome,
    StartingTree,
    of_one_tree,
    search,
    unfit_start,
)

# Trees given by the user: read, and checked against the data.

_NUMBER = re.compile(r"[0-9]+")


def read_tree(path: str, problem: Problem, emit: Emit) -> Tree:
    """Read a tree from a file or a Newick string, with a notice for every repair.

    Raises:
        InputError: there is no tree, or its taxa are not the problem's.
    """
    tree, notices = read_newick(path, problem.taxa)
    for notice in notices:
        emit(Notice(f"{tree_named(path)}: {notice}"))
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
            file=tree_named(path),
            hint="one for all, or one a part in the order of the partition file",
        )
    first, rows = trees[0][0], []
    for number, (tree, _) in enumerate(trees, 1):
        try:
            rows.append(lengths_in(first, tree))
        except ValueError:  # noqa: PERF203
            message = f"tree {number} has another topology than tree 1"
            raise InputError(
                message, file=tree_named(path), hint="parts share a topology"
            ) from None
    tell_mended(tree_named(path), [notices for _, notices in trees], emit)
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


def tree_named(source: str, phrase: str = "the tree") -> str:
    """Name of a tree's file, or a phrase for a tree given as a string."""
    return text_of(source)[1] or phrase


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

    ``taxa``: all taxa; trees in a file have all of them. Under a constraint all satisfy it.

    Raises:
        InputError: not a specification, no such file, or a tree of other taxa.
    """
    terms = terms_of(spec) if isinstance(spec, str) else spec
    if terms is None:
        return list(_from_file(str(spec), distinct, taxa, emit))
    if constraint is None:
        (starts,) = starting_trees_of_each([terms], [distinct], [rng], parsimony)
        return starts
    n_sites = sum(patterns.n_sites for patterns in distinct.groups)
    sites = constraint.parsimony_sites(distinct.groups, n_sites).packed()
    starts = []
    for kind, number in terms:
        if kind == "pars":
            grown = parsimony_trees(sites, number, rng, parsimony)
            starts += _start_named("parsimony", constraint.or_drawn(grown, repeat(rng)))
        else:
            drawn = [constrained_start(constraint, rng) for _ in range(number)]
            starts += _start_named(RANDOM, drawn)
    return starts


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
                RANDOM, [random_topology(tips, rngs[n]) for _ in range(number)]
            )
    return starts


def _number(kind: str, digits: str) -> int:
    """Number of starting trees of a kind.

    Raises: InputError: the number is out of bounds.
    """
    number = int(digits) if len(digits) <= len(str(MAX_STARTS)) else MAX_STARTS + 1
    if not 1 <= number <= MAX_STARTS:
        bounds = f"between 1 and {MAX_STARTS} trees are possible"
        raise InputError(f"--tree {kind}{{{digits:.9}}}: {bounds}")
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


# Searches and fits: a search is placed, opened and run; ``prepare_search(problem).run()`` is all of
# it. Progress goes out as events. Whoever gives a checkpoint can go on with a search.


class TreeResult(Value):
    """The tree and the model that an analysis ends with."""

    tree: Tree
    """All taxa, lengths in expected substitutions per site."""
    model: PartitionModel
    """Scalers of mean 1."""
    lnl: float
    """Natural log, as computed on the way; see :meth:`scored`."""
    seconds: float
    """Wall time of the search or the optimisation alone."""
    search: SearchOutcome | None = None
    """The result of the search, without the copies of sequences; None for a given topology."""
    per_site: PartitionModel | None = None
    """The model of the search with its rates of sites, where sites have any (+PSR)."""

    @classmethod
    def of(cls, fit: Fit, seconds: float, search: SearchOutcome | None = None) -> TreeResult:
        """The result of a fit, with scalers of mean 1."""
        model, factor = fit.model.normalised()
        tree = fit.tree.copy()
        tree.lengths *= factor
        return cls(tree, model, fit.lnl, seconds, search)

    def scored(self, engines: Engines, emit: Emit) -> TreeResult:
        """The result with its lnL in fp64, and a notice of the difference if it had another.

        A result under Γ that was found under rates of sites (+PSR) has been scored before.
        """
        if engines.is_exact or engines.workload.site_rates:
            return self
        lnl = float(engines.exact.log_likelihoods([self.tree], [Case(self.model.arrays())])[0])
        emit(Notice(f"scored again in fp64: lnL {lnl:.6f}, {lnl - self.lnl:+.1e} from fp32"))
        return replace(self, lnl=lnl)

    @property
    def mean_tree(self) -> Tree:
        """The tree with one length a branch: where parts have their own, the mean over sites."""
        return self.tree.with_lengths(self.model.mean_lengths(self.tree.lengths))

    @property
    def part_trees(self) -> list[Tree]:
        """The tree with the lengths of each part, where parts have their own."""
        rows = list(self.tree.lengths) if self.tree.lengths.ndim > 1 else []
        return [self.tree.with_lengths(row) for row in rows]

    def event(self, newick: str, files: Sequence[str] = (), support: str = "") -> RunFinished:
        """The last event of a run that wrote these files."""
        return RunFinished(
            lnl=self.lnl,
            model=self.model.text,
            tree=newick,
            tree_length=float(self.mean_tree.lengths.sum()),
            taxa=self.tree.n_tips,
            files=tuple(files),
            seconds=self.seconds,
            support=support,
        )


class TreeSearch(Value, kw_only=True):
    """A search that stands ready: its data, its engine and its starting trees."""

    problem: Problem
    distinct: Collapsed
    """The alignment without the copies of sequences, which is searched."""
    engines: Engines
    settings: SearchSettings
    starts: Sequence[StartingTree]
    constraint: Constraint | None
    rng: np.random.Generator
    start_text: str
    """The starting trees of all taxa, in Newick, a line each."""
    fingerprint: str
    """Mark that a checkpoint must agree with: everything that decides how the search goes."""

    def whole(self, tree: Tree) -> Tree:
        """A tree of the search with all taxa, and one length a branch."""
        return TreeResult(self.distinct.restore(tree), self.problem.model, 0.0, 0.0).mean_tree

    def run(
        self, emit: Emit = ignore, checkpoint: Checkpoint | None = None, ranks: Ranks = LONE
    ) -> TreeResult:
        """Search, from the checkpoint on where there is one on file.

        Raises:
            MltreeError: another rank cannot take part, or has died.
            InputError: a start violates the constraint, or the checkpoint is another search's.
        """
        began = time.perf_counter()
        searched = search(
            self.engines.likelihood, self.starts, self.problem.model, self.settings, self.rng,
            emit, checkpoint, self.constraint, self._among(ranks),
        )  # fmt: skip
        seconds = time.perf_counter() - began
        tree = self.distinct.restore(searched.tree)
        result = TreeResult.of(Fit(tree, searched.model, lnl=searched.lnl), seconds, searched)
        return as_reported(self.engines, result, emit)

    def _among(self, ranks: Ranks) -> AmongRanks | None:
        """Whoever answers the search; its own likelihood where None."""
        alone = ranks.size == 1 or self.problem.model.has_site_rates
        if alone or self.engines.is_shared:
            return None
        likelihood = self.engines.likelihood
        helping = partial(_helping, self.engines, likelihood.engine.name)
        return AmongRanks(likelihood, ranks, helping)


def _helping(engines: Engines, name: str) -> TreeLikelihood:
    """Return the likelihood that another rank than the first answers with.

    Raises: InputError: it would find something else.
    """
    if engines.likelihood.engine.name != name:
        raise InputError("its devices are not those of rank 0", hint=ALIKE_HINT)
    return engines.likelihood


def prepare_search(
    problem: Problem,
    settings: SearchSettings = DEFAULT,
    resources: Resources = ANY_DEVICE,
    *,
    seed: int = 1,
    starts: str | None = None,
    constraint: str | None = None,
    kept: KeptLayouts | None = None,
    replicates: int = 0,
    rows: RowCounts = NO_ROWS,
    emit: Emit = ignore,
) -> TreeSearch:
    """Open an engine for a search and grow its starting trees.

    starts      as :func:`mltree.runs.trees.starting_trees` reads them; as the settings have them
                where None
    constraint  the file of a constraint tree
    kept        layouts of the checkpoint that the search goes on from
    replicates  bootstrap replicates that follow
    rows        rows over all patterns that supports take

    Raises:
        InputError: the starts or the constraint cannot be used.
        DeviceError: a device cannot be found or used.
    """
    taxa = problem.taxa
    groups = read_constraint(constraint, taxa) if constraint else None
    distinct = without_copies(problem.groups, groups, emit)
    fitting = _fitting(problem, settings, resources, starts is None)
    work = Workload.of(
        problem, fitting, distinct.groups, trees=fitting.most_trees, replicates=replicates,
        rows=rows, kept=kept,
    )  # fmt: skip
    engines = open_engines(resources, work, emit)
    rng = np.random.default_rng(seed)
    grown = starting_trees(
        starts or usual_terms(fitting), distinct, taxa, groups, rng, emit, engines.parsimony
    )
    if starts is None:
        more = partial(
            starting_trees, distinct=distinct, taxa=taxa, constraint=groups, emit=emit,
            parsimony=engines.parsimony,
        )  # fmt: skip
        fitting, grown = _for_hard_data(fitting, grown, groups, rng, emit, more)
    start_text = "\n".join(write_newick(distinct.restore(start.tree), taxa) for start in grown)
    return TreeSearch(
        problem=problem,
        distinct=distinct,
        engines=engines,
        settings=fitting.for_precision(engines.is_exact),
        starts=[
            StartingTree(with_own_lengths(start.tree, problem.model), start.origin)
            for start in grown
        ],
        constraint=groups,
        rng=rng,
        start_text=start_text,
        fingerprint=mark(
            problem, problem.model, engines, groups, seed, start_text, repr(asdict(settings))
        ),
    )


def _for_hard_data(
    settings: SearchSettings,
    starts: list[StartingTree],
    constraint: Constraint | None,
    rng: np.random.Generator,
    emit: Emit,
    make: Callable[..., list[StartingTree]],
) -> tuple[SearchSettings, list[StartingTree]]:
    """Return settings and starts for the data: random trees in place of some, where those differ.

    Under much homoplasy parsimony leads all starts to one slope.
    """
    grown = [start for start in starts if not start.is_random]
    trees = [start.tree for start in grown]
    if abs(mean_distance(trees) - settings.hard_spread) < UNSURE_SPREAD and any(
        settings.hard_starts
    ):
        number = max(0, UNSURE_STARTS - len(trees))
        trees += [start.tree for start in make([StartSpec("pars", number)], rng=rng.spawn(1)[0])]
    fitting = settings.for_spread(mean_distance(trees))
    if fitting is settings:
        return settings, starts
    kept = grown[: fitting.parsimony_starts] if constraint is None else grown
    number = fitting.parsimony_starts + fitting.random_starts - len(kept)
    drawn = make([StartSpec("rand", number)], rng=rng)
    emit(Notice("parsimony trees differ much: random starting trees join the search"))
    return fitting, [*kept, *drawn]


def search_workload(
    problem: Problem, settings: SearchSettings = DEFAULT, resources: Resources = ANY_DEVICE
) -> Workload:
    """The workload of :func:`prepare_search`, with the settings' starts and no constraint."""
    fitting = _fitting(problem, settings, resources, has_usual_starts=True)
    distinct = collapse(problem.groups)
    return Workload.of(problem, fitting, distinct.groups, trees=fitting.most_trees)


def _fitting(
    problem: Problem, settings: SearchSettings, resources: Resources, has_usual_starts: bool
) -> SearchSettings:
    """Settings that suit the data and the devices, which are better off with many trees or not."""
    fitting = settings.for_data(len(problem.taxa), problem.n_sites)
    if not company_pays(choose_devices(resources.device), problem.cla_size):
        return fitting.one_by_one(all_starts=not has_usual_starts)
    return fitting.side_by_side(len(problem.taxa), usual_starts=has_usual_starts)


def mark(
    problem: Problem,
    model: PartitionModel,
    engines: Engines,
    constraint: Constraint | None,
    seed: int,
    *others: str,
) -> str:
    """The fingerprint of a run: its data, its model as it starts, where it computes, its seed."""
    return fingerprint(
        __version__, engines.likelihood.engine.name, "\n".join(problem.taxa),
        *(patterns.codes.tobytes() for patterns in problem.groups),
        *(patterns.weights.tobytes() for patterns in problem.groups),
        repr([patterns.ends for patterns in problem.groups]),
        *(own.systems.roots.tobytes() for own in problem.groups if own.systems is not None),
        model.linkage,
        "\n".join(format_model(own) for own in model.models),
        repr(model.scalers.tolist()),
        b"" if constraint is None else constraint.one.tobytes() + constraint.other.tobytes(),
        str(seed), *others,
    )  # fmt: skip


def with_own_lengths(tree: Tree, model: PartitionModel) -> Tree:
    """A copy, with lengths for every part where the model's parts have their own."""
    return tree.with_lengths(model.spread(tree.lengths)).copy()


def without_copies(
    groups: Sequence[Patterns], constraint: Constraint | None, emit: Emit
) -> Collapsed:
    """The alignment without copies of sequences; with them all where a constraint names them."""
    if constraint is not None:
        nothing, every = np.empty(0, np.int32), np.arange(groups[0].n_tips, dtype=np.int32)
        return Collapsed(tuple(groups), every, nothing, nothing)
    distinct = collapse(groups)
    if distinct.copies.size:
        emit(Notice(_copies_text(distinct, groups[0].taxa)))
    return distinct


def _copies_text(distinct: Collapsed, taxa: Sequence[str]) -> str:
    pairs = zip(distinct.copies.tolist(), distinct.models.tolist(), strict=True)
    named = listed([f"{taxa[copy]} = {taxa[model]}" for copy, model in pairs])
    return f"identical sequences are searched once and added back at the end: {named}"


FIXED_TOPOLOGY = SearchSettings(phases=(), perturbation=PerturbationSettings(patience=0))
"""A search without rearrangements: model and branch lengths only."""


def fit_topology(
    likelihood: TreeLikelihood,
    tree: Tree,
    model: PartitionModel,
    emit: Emit,
    *,
    optimise_parameters: bool,
    optimise_lengths: bool,
    settings: SearchSettings = FIXED_TOPOLOGY,
) -> TreeResult:
    """A tree and a model, optimised as far as asked for, and their lnL.

    ``settings``: those of a fixed topology, for the likelihood's precision.
    """
    began = time.perf_counter()
    fit = _optimised(
        likelihood, Fit(with_own_lengths(tree, model), model), emit,
        optimise_parameters, optimise_lengths, settings,
    )  # fmt: skip
    return TreeResult.of(fit, time.perf_counter() - began)


def as_reported(
    engines: Engines, result: TreeResult, emit: Emit, tree: Tree | None = None
) -> TreeResult:
    """The result as it is reported: under Γ where it was found under rates of sites (+PSR).

    Those were chosen for the tree, so that lnLs under them tell nothing of another one.

    tree  with the lengths to begin at, if not those of the result
    """
    if not result.model.has_site_rates:
        return result
    emit(Notice(f"lnL {result.lnl:.3f} under a rate for every site; from here on under Γ rates"))
    if isinstance(engines.likelihood, PerSiteLikelihood):
        engines.likelihood.close()
    under_gamma = fit_topology(
        engines.exact, tree or result.tree, result.model.under_gamma, emit,
        optimise_parameters=True, optimise_lengths=True,
    )  # fmt: skip
    seconds = result.seconds + under_gamma.seconds
    return replace(under_gamma, seconds=seconds, search=result.search, per_site=result.model)


def _optimised(
    likelihood: TreeLikelihood,
    fit: Fit,
    emit: Emit,
    parameters: bool,
    lengths: bool,
    settings: SearchSettings,
) -> Fit:
    if parameters and lengths:
        rng = np.random.default_rng()  # nothing draws from it
        start = StartingTree(fit.tree, "user 1")
        searched = search(likelihood, [start], fit.model, settings, rng, of_one_tree(emit))
        return Fit(searched.tree, searched.model, lnl=searched.lnl)
    if lengths:
        return perform(likelihood, ascend_best([fit], settings, emit, parameters=False))
    if parameters:
        fits = [Fit(fit.tree, start) for start in starts_of(fit.model)]
        fixed = replace(settings.model, scale_limit=0.0)
        steps = optimise_models(fits, fixed, settings.branches, fixed.final_epsilon)
        perform(likelihood, steps)
        best = best_fit(fits)
        if best.lacking:
            emit(StoppedShort.by("model", best.lacking))
        return best
    fit.lnl = float(likelihood.log_likelihoods([fit.tree], [fit.case])[0])
    return fit


# The requests of one search, answered among ranks: trees by trees, moves by what is moved.
#
# The first rank searches; the others hold the same data on devices of their own, and answer what
# they are asked. No answer depends on what else is asked for at the same time
# (:mod:`mltree.likelihood.requests`), so that the search is that of one process to the bit.

LEAST_SECONDS = 0.01
"""Least seconds of a request that is shared out. To send one and its answer takes 1 to 3 ms (100
taxa, two ranks of one host)."""


class _Answered(NamedTuple):
    """A rank's answer to its share of a request."""

    answers: Answers
    lengths: Sequence[NDArray[Any]]
    """Branch lengths of the trees, which a request may change."""
    seconds: float
    """Seconds that the answer took."""


class AmongRanks:
    """Answers the requests of a search."""

    def __init__(
        self, likelihood: TreeLikelihood, ranks: Ranks, helping: Callable[[], TreeLikelihood]
    ) -> None:
        """``helping``: sent to every other rank, and called there for the same likelihood.

        Raises: MltreeError: what it raises there, with the rank's name.
        """
        self._likelihood, self._ranks = likelihood, ranks
        self._seconds: dict[type[Request], float] = {}
        """Seconds that one node of one tree took last, by type of request."""
        ranks.everywhere(partial(_helper, helping))

    def __call__(self, request: Request) -> Answers:
        """Answer a request by all ranks together, or by the first alone if that takes no longer.

        Raises: MltreeError: another rank has died, or cannot go on.
        """
        if isinstance(request, Stepwise):
            return perform(self._likelihood, request.steps(), self)
        if request.is_quick:
            return request.answer(self._likelihood)
        shares = self._shares(request)
        answered = self._ranks.gather(shares, partial(_answered, self._likelihood))
        for share, part in zip(shares, answered, strict=True):
            for tree, lengths in zip(share.trees, part.lengths, strict=True):
                tree.lengths[:] = lengths
        seconds = sum(part.seconds for part in answered)
        self._seconds[type(request)] = seconds / _nodes(request)
        return request.whole([part.answers for part in answered])

    def _shares(self, request: Request) -> Sequence[Request]:
        expected = self._seconds.get(type(request), 0.0) * _nodes(request)
        return request.shares(self._ranks.size if expected > LEAST_SECONDS else 1)


def _nodes(request: Request) -> int:
    return sum(tree.n_tips for tree in request.trees)


def _helper(helping: Callable[[], TreeLikelihood]) -> Callable[[Request], _Answered]:
    """Return the function that another rank than the first answers with."""
    return partial(_answered, helping())


def _answered(likelihood: TreeLikelihood, request: Request) -> _Answered:
    began = time.perf_counter()
    answers = request.answer(likelihood)
    seconds = time.perf_counter() - began
    return _Answered(answers, [tree.lengths for tree in request.trees], seconds)
