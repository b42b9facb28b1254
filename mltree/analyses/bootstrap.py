"""``mltree bootstrap``, and the bootstrap that follows a search."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from mltree import __version__
from mltree.analyses.trees import (
    CONSENSUS_FILES,
    SUPPORT_KINDS,
    consensus_texts,
    first_tree,
    support_facts,
    support_kinds,
    support_texts,
)
from mltree.device.layout_choice import KeptLayouts
from mltree.fit.settings import REPLICATE, SearchSettings
from mltree.likelihood.requests import perform_all
from mltree.models.parameters import bounds
from mltree.models.partitioned import PartitionModel
from mltree.report.progress import Reporter
from mltree.runs.engines import ANY_DEVICE, Engines, Resources, Workload, open_engines
from mltree.runs.problem import Problem
from mltree.runs.request import (
    Request,
    begin_log,
    by_kind,
    command_result,
    deliver,
    open_log,
    result_text,
    share_replicates,
    show_times,
)
from mltree.runs.steps import FIXED_TOPOLOGY, TreeSearch, evaluate, mark, without_copies
from mltree.runs.trees import read_tree
from mltree.runs.workspace import Entry, Head, Journal, Outputs, RunLog
from mltree.supports.bootstrap import STEP, Verdict, bootstop
from mltree.supports.consensus import Consensus
from mltree.supports.table import split_table
from mltree.system.errors import InputError
from mltree.system.events import (
    BootstrapFinished,
    Emit,
    Notice,
    ReplicateDone,
    RunStarted,
    SupportsDrawn,
    ignore,
)
from mltree.system.ranks import ALIKE_HINT, LONE, Ranks, Work, here
from mltree.system.signals import Farewell, parting
from mltree.system.values import Value
from mltree.tree.clades import Clades, read_clades
from mltree.tree.fitch import pack_sites
from mltree.tree.newick import write_newick
from mltree.tree.parsimony import REFERENCE, ParsimonyEngine
from mltree.tree.parsimony_spr import parsimony_trees
from mltree.tree.topology import Tree
from mltree.treesearch.checkpoint import Saving
from mltree.treesearch.constraint import Constraint, read_constraint
from mltree.treesearch.duplicates import Collapsed
from mltree.treesearch.replicates import Replicates

# The standard bootstrap: replicates searched side by side, kept as they end, until they suffice.
#
# ``prepare_bootstrap(load_problem("frogs.phy", "GTR+G4")).run(100, journal)`` is a whole bootstrap.
# A replicate is what it is whatever runs beside it, so that a bootstrap goes on where it was
# stopped, and more replicates can be added at any time.

MOST = 1000
"""Replicates after which autoMRE gives up: RAxML's and RAxML-NG's."""


class Outcome(Value):
    """The replicates of a bootstrap that has ended."""

    count: int
    """Those from 1 up to this one."""
    verdict: Verdict | None
    """Of the last of them that were asked; None where they were too few."""
    seconds: float
    """Wall time in this process."""


class Bootstrap(Value, kw_only=True):
    """A bootstrap that stands ready."""

    problem: Problem
    engines: Engines
    replicates: Replicates

    def __reduce__(self) -> tuple[Callable[..., Bootstrap], tuple[Any, ...]]:
        """What another rank is sent, to compute on its own device."""
        bare = replace(self.replicates, parsimony=REFERENCE)
        return _elsewhere, (self.problem, self.engines, bare)

    @property
    def head(self) -> Head:
        """What its journal must agree with."""
        own = self.replicates
        fingerprint = mark(
            self.problem, own.model, self.engines, own.constraint, own.seed,
            repr(asdict(own.settings)), repr(self.engines.has_replicate_slots),
        )  # fmt: skip
        return Head(fingerprint, self.engines.kept)

    def run(
        self,
        wanted: int | None,
        journal: Journal,
        emit: Emit = ignore,
        grown: Callable[[], None] = lambda: None,
        ranks: Ranks = LONE,
    ) -> Outcome:
        """Search for the replicates that the journal lacks.

        wanted  how many there shall be; as many as autoMRE asks for where None
        grown   called whenever there is one more
        Raises: InputError: the journal is another run's, or cannot be written.
        """
        began = time.perf_counter()
        journal.begin(self.head)
        goal = wanted or MOST
        checks = _Checks(journal, self.replicates.seed, goal, wanted is None, emit)
        if self.engines.is_shared:  # the likelihood asks them
            ranks = LONE
        missing = [k for k in range(1, goal + 1) if k not in journal.done]
        if not checks.are_enough() and missing:
            soon = missing[: 2 * STEP] if wanted is None else missing  # a check may end it all
            shares = missing, -(-len(soon) // ranks.size)
            helping = partial(_helping, self, *shares, self.head.fingerprint)
            for number, entry in ranks.deal(missing, partial(self._searched, *shares), helping):
                journal.add(number, entry)
                done = sum(k <= goal for k in journal.done)
                emit(ReplicateDone(number, entry.lnl, done, goal))
                grown()
                if checks.are_enough():
                    break
        verdict = checks.verdict
        count = verdict.replicates if verdict and checks.are_enough() else goal
        return Outcome(count, verdict, time.perf_counter() - began)

    def _searched(
        self, missing: Sequence[int], most: int, numbers: Iterator[int]
    ) -> Iterator[tuple[int, Entry]]:
        """Replicates as they end, some of the missing; so many under way at a time at most."""
        with self.engines.for_replicates(self.replicates, missing, most) as (likelihood, spots):
            searches = self.replicates.searches(numbers, spots)
            for _, found in perform_all(likelihood, searches, spots.count):
                yield found.number, Entry(found.lnl, write_newick(found.tree, self.problem.taxa))


def _elsewhere(problem: Problem, engines: Engines, replicates: Replicates) -> Bootstrap:
    own = replace(replicates, parsimony=engines.parsimony)
    return Bootstrap(problem=problem, engines=engines, replicates=own)


def _helping(
    bootstrap: Bootstrap, missing: Sequence[int], most: int, mark: str
) -> Work[int, tuple[int, Entry]]:
    """How another rank than the first goes through replicates.

    Raises: InputError: it would find something else.
    """
    if bootstrap.head.fingerprint != mark:
        raise InputError("its devices are not those of rank 0", hint=ALIKE_HINT)
    return partial(bootstrap._searched, missing, most)


@dataclass
class _Checks:
    """Asks whether the replicates are enough, whenever there are so many more without a gap."""

    journal: Journal
    seed: int
    goal: int
    auto: bool
    """Whether the first ones that are enough end it."""
    emit: Emit
    verdict: Verdict | None = None

    def are_enough(self) -> bool:
        """Whether nothing more is wanted; asks what has not been asked."""
        last = min(self.journal.in_order, self.goal) // STEP * STEP
        asked = self.verdict.replicates if self.verdict else 0
        for count in range(asked + STEP if self.auto else max(last, asked + STEP), last + 1, STEP):
            if self.auto and self.verdict and self.verdict.is_converged:
                break
            trees = read_clades(self.journal.newicks(count))
            self.verdict = bootstop(split_table(trees), self.seed)
            self.emit(self.verdict.event)
        return bool(self.auto and self.verdict and self.verdict.is_converged)


def bootstrap_after(
    search: TreeSearch, model: PartitionModel, settings: SearchSettings, seed: int
) -> Bootstrap:
    """The bootstrap of a search's data, under the model that it ended with.

    settings  of a search like a replicate's; see :func:`prepare_bootstrap`
    """
    return _bootstrap(
        search.problem, search.distinct, search.engines, model, search.constraint, seed,
        settings,
    )  # fmt: skip


def prepare_bootstrap(
    problem: Problem,
    settings: SearchSettings,
    resources: Resources = ANY_DEVICE,
    *,
    replicates: int | None = None,
    seed: int = 1,
    tree: Tree | None = None,
    constraint: str | None = None,
    kept: KeptLayouts | None = None,
    emit: Emit = ignore,
) -> Bootstrap:
    """Open an engine for a bootstrap, and fit what its model leaves open.

    settings    of a search like a replicate's, which has its rounds and nothing else
    replicates  that there will be, as far as is known
    tree        of all taxa, on which the model is fitted; one by parsimony where None
    kept        layouts of the journal that the bootstrap goes on from

    Raises:
        InputError: the constraint cannot be used.
        DeviceError: a device cannot be found or used.
    """
    groups = read_constraint(constraint, problem.taxa) if constraint else None
    distinct = without_copies(problem.groups, groups, emit)
    fitting = settings.for_data(len(problem.taxa), problem.n_sites)
    work = Workload.of(
        problem, fitting, distinct.groups, replicates=replicates or 2 * STEP, kept=kept
    )
    engines = open_engines(resources, work, emit)
    model = problem.model
    if not _is_given(problem):
        start = (
            _parsimony_tree(distinct, seed, engines.parsimony)
            if tree is None
            else distinct.reduce_tree(tree)
        )
        exact = engines.is_exact
        found = evaluate(
            engines.likelihood, start, model, emit, optimise_parameters=True,
            optimise_lengths=True, settings=FIXED_TOPOLOGY.for_precision(exact),
        )  # fmt: skip
        model = found.model
    return _bootstrap(problem, distinct, engines, model, groups, seed, settings)


def _bootstrap(
    problem: Problem,
    distinct: Collapsed,
    engines: Engines,
    model: PartitionModel,
    constraint: Constraint | None,
    seed: int,
    settings: SearchSettings,
) -> Bootstrap:
    exact = engines.is_exact
    fitting = settings.for_data(len(problem.taxa), problem.n_sites).for_precision(exact)
    replicates = Replicates(distinct, model, fitting, seed, constraint, parsimony=engines.parsimony)
    return Bootstrap(problem=problem, engines=engines, replicates=replicates)


def _is_given(problem: Problem) -> bool:
    """Whether the model has all its values, as those of a .bestModel file."""
    parts = [] if problem.data is None else problem.data.parts
    is_scaled = not parts or any(part.scaler is not None for part in parts)
    is_known = not problem.model.has_site_rates
    return is_scaled and is_known and not any(bounds(model) for model in problem.model.models)


def _parsimony_tree(distinct: Collapsed, seed: int, engine: ParsimonyEngine) -> Tree:
    sites, rng = pack_sites(*distinct.groups), np.random.default_rng(seed)
    (tree,) = parsimony_trees(sites, 1, rng, engine=engine)
    return tree


LOG, BOOTSTRAPS, JOURNAL, RESULT = "bootstrapLog", "bootstraps", "replicates", "bootstrap.json"
"""Kinds of files. The journal stays, so that replicates can be added."""


class Wanted(Value):
    """What is asked of a bootstrap."""

    replicates: int | None
    """As many as autoMRE asks for where None."""
    metrics: str
    """Of the supports, with commas."""

    @property
    def trees(self) -> int:
        """That may be searched side by side."""
        return self.replicates or 2 * STEP

    def left(self, journal: Journal) -> int:
        """Of these, those that a journal lacks."""
        return self.trees - len(journal.done)


class BootstrapRequest(Request, kw_only=True):
    """``mltree bootstrap``."""

    seed: int
    tree: str | None
    """The file of the tree that the supports are drawn on; None: they are not."""
    nni_only: bool
    constraint: str | None
    wanted: Wanted

    @property
    def finds_site_rates(self) -> bool:
        """They are found on the tree that the model is fitted to."""
        return True

    @property
    def inputs(self) -> list[str]:
        """What may name files, beside the alignment and the model."""
        return [self.tree or "", self.constraint or ""]

    def expect(self, problem: Problem) -> None:
        """Make sure that the tree and the constraint are of the taxa."""
        if self.tree is not None:
            read_tree(self.tree, problem, ignore)
        if self.constraint is not None:
            read_constraint(self.constraint, problem.taxa)


def bootstrap_kinds(wanted: Wanted, has_tree: bool = True) -> Sequence[str]:
    """The files that a bootstrap writes, its log aside; with a tree to draw supports on, or not.

    Raises:
        InputError: there is no such metric.
    """
    supports = support_kinds(wanted.metrics)
    consensus = CONSENSUS_FILES[Consensus.MAJORITY]
    return BOOTSTRAPS, JOURNAL, consensus, *(supports if has_tree else ())


def drop_replicates(outputs: Outputs) -> None:
    """Forget those of an older run."""
    outputs.remove(JOURNAL)
    outputs.remove(BOOTSTRAPS)


def replicate_settings(nni_only: bool) -> SearchSettings:
    """Of the search that a replicate is."""
    return REPLICATE.nni_only() if nni_only else REPLICATE


def run_bootstrap(request: BootstrapRequest, reporter: Reporter) -> None:
    """Search for the replicates, draw supports, write the files."""
    outputs, wanted = request.outputs, request.wanted
    kinds = bootstrap_kinds(wanted, request.tree is not None)
    every = (*kinds, RESULT)
    outputs.check((LOG, *every), [*request.files, *request.inputs])
    with open_log(outputs.path(LOG), reporter) as log, outputs.held(every):
        resumes = not request.redo and outputs.path(JOURNAL).exists()
        if not resumes:
            outputs.claim(every, request.redo)
        reporter(RunStarted(__version__, request.command, request.seed))
        problem = request.load(reporter)
        tree = request.tree and read_tree(request.tree, problem, reporter)
        best = request.tree and first_tree(request.tree, reporter)
        with Journal(outputs.path(JOURNAL), afresh=not resumes) as journal:
            # They load their devices while the model is fitted here.
            share_replicates(request, wanted.left(journal), len(problem.taxa))
            bootstrap = prepare_bootstrap(
                problem, replicate_settings(request.nni_only), request.resources,
                replicates=wanted.replicates, seed=request.seed, tree=tree or None,
                constraint=request.constraint, kept=journal.head.layouts if journal.head else None,
                emit=reporter,
            )  # fmt: skip
            begin_log(log, request, request.inputs, reporter, append=resumes)
            texts, told, outcome = replicated(
                bootstrap, wanted, journal, best or None, request, log, reporter
            )
        files = [log.path, *map(outputs.path, [*texts, RESULT])]
        event = finished(outcome, files)
        values = {
            "seed": request.seed, "replicates": event.replicates, "converged": event.converged,
            "supports": support_facts(told),
        }  # fmt: skip
        inputs = [*request.files, *request.inputs]
        result = command_result(
            "bootstrap", request.command, values, by_kind(files), inputs, reporter
        )
        stale = SUPPORT_KINDS if request.redo and request.tree is not None else ()
        spent = [kind for kind in stale if kind not in texts]
        deliver(outputs, {**texts, RESULT: result_text(result)}, reporter, spent)
        reporter(event)
        reporter.say("\n".join(f"Wrote {file}" for file in files))
        show_times(bootstrap.engines, reporter)
        reporter.finish("bootstrap", result)


def replicated(
    bootstrap: Bootstrap,
    wanted: Wanted,
    journal: Journal,
    best: Clades | None,
    request: Request,
    log: RunLog,
    reporter: Reporter,
    before: Sequence[str] = (),
) -> tuple[dict[str, str], list[SupportsDrawn], Outcome]:
    """Search for the replicates that are missing; the texts of all files, and the supports.

    best    what the supports are drawn on; None: no supports
    before  the labels of its clades that they go behind; none where empty
    """

    def write(text: str) -> None:
        request.outputs.write({BOOTSTRAPS: text})

    if journal.done:
        reporter(Notice(f"{journal.path} has {len(journal.done):,} replicates"))
    saving = Saving(bootstrap.replicates.settings.checkpoints, "the replicates go on without it")

    def grown() -> None:
        saving.offer(lambda: write(journal.newicks(journal.in_order)), reporter)

    with parting(partial(_leave, request, journal, write, log)):
        outcome = bootstrap.run(wanted.replicates, journal, reporter, grown, here())
        if wanted.replicates is None and not (outcome.verdict and outcome.verdict.is_converged):
            reporter(Notice(f"{outcome.count:,} replicates have not converged: no more are made"))
        newicks = journal.newicks(outcome.count)
        told: list[SupportsDrawn] = []
        trees = read_clades(newicks, best, "the best tree")
        shared, _ = consensus_texts(trees, [Consensus.MAJORITY], reporter)
        texts = {BOOTSTRAPS: newicks} | shared
        if best is not None:
            kinds = support_kinds(wanted.metrics)
            drawn, told = support_texts(best, trees, kinds, reporter, before)
            texts |= drawn
    return texts, told, outcome


def finished(outcome: Outcome, files: Sequence[Path] = ()) -> BootstrapFinished:
    """The event that ends a bootstrap."""
    converged = outcome.verdict.is_converged if outcome.verdict else None
    return BootstrapFinished(outcome.count, converged, tuple(map(str, files)), outcome.seconds)


def _leave(
    request: Request, journal: Journal, write: Callable[[str], None], log: RunLog
) -> Farewell:
    """Say how a bootstrap goes on; its replicates are kept already."""
    without = " without --redo" if request.redo else ""
    said = [
        f"{len(journal.done):,} replicates are kept",
        f"the same command{without} goes on from here",
    ]
    try:
        write(journal.newicks(journal.in_order))
    except InputError as error:
        said.append(error.message)
    log.close(f"stopped: {'; '.join(said)}\n")
    return Farewell("; ".join(said))
