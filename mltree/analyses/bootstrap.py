"""``mltree bootstrap``, and the bootstrap that follows a search."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mltree.analyses.options import BootstrapOptions, SearchOptions
from mltree.analyses.tree_sets import (
    CONSENSUS_FILES,
    METRICS,
    SUPPORT_KINDS,
    consensus_texts,
    first_tree,
    support_kinds,
    support_texts,
)
from mltree.data.alignments import Source
from mltree.device.layout_choice import KeptLayouts
from mltree.fit.settings import REPLICATE, SearchSettings
from mltree.likelihood.requests import perform_all
from mltree.models.parameters import bounds
from mltree.models.partitioned import PartitionModel
from mltree.runs.calls import Call, taking
from mltree.runs.engines import ANY_DEVICE, Engines, Resources, Workload, open_engines
from mltree.runs.logged_run import (
    WorkTimer,
    begin_log,
    by_kind,
    command_result,
    deliver,
    load,
    names_file,
    open_log,
    result_text,
    share_replicates,
    show_times,
)
from mltree.runs.options import AUTO, AnalysisOptions, one_of
from mltree.runs.problem import Problem, is_choice
from mltree.runs.results import BootstrapResult, PhyloTree, support_facts
from mltree.runs.trees import (
    FIXED_TOPOLOGY,
    TreeSearch,
    fit_topology,
    mark,
    read_tree,
    without_copies,
)
from mltree.runs.workspace import Entry, Head, Journal, MemoryJournal, RunLog, Workspace
from mltree.supports.bootstrap import STEP, bootstop
from mltree.supports.consensus import Consensus, split_table
from mltree.supports.resampling import USUAL, SamplingScheme
from mltree.system import __version__
from mltree.system.errors import InputError
from mltree.system.events import (
    BootstopChecked,
    BootstrapFinished,
    Emit,
    Notice,
    ReplicateDone,
    RunStarted,
    SupportsDrawn,
    TimeLeft,
    ignore,
)
from mltree.system.process import ExitMessage, on_signal
from mltree.system.ranks import ALIKE_HINT, LONE, Ranks, Work, current_ranks
from mltree.system.values import Value
from mltree.tree.clades import Clades, read_clades, read_labelled
from mltree.tree.fitch import pack_sites
from mltree.tree.newick import write_newick
from mltree.tree.parsimony import REFERENCE, ParsimonyEngine, parsimony_trees
from mltree.tree.topology import Tree
from mltree.treesearch.checkpoint import Saving
from mltree.treesearch.constraint import Constraint, read_constraint
from mltree.treesearch.duplicates import Collapsed
from mltree.treesearch.replicates import Replicates

if TYPE_CHECKING:
    from mltree.report.progress import Reporter


# The standard bootstrap: replicates searched side by side, kept as they end, until they suffice.
#
# ``prepare_bootstrap(problem, settings).run(100, journal)`` is a whole bootstrap. A replicate is
# the same whatever runs beside it, so that a bootstrap goes on where it was stopped, and more
# replicates can be added at any time.

MOST = 1000
"""Replicates after which autoMRE gives up: RAxML's and RAxML-NG's."""


class BootstrapOutcome(Value):
    """The replicates of a bootstrap that has ended."""

    count: int
    """Replicates 1 to ``count`` are kept."""
    verdict: BootstopChecked | None
    """Verdict of the last bootstopping check; None where replicates were too few for one."""
    seconds: float
    """Wall time in this process."""


class Bootstrap(Value, kw_only=True):
    """A bootstrap that stands ready."""

    problem: Problem
    engines: Engines
    replicates: Replicates

    def __reduce__(self) -> tuple[Callable[..., Bootstrap], tuple[Any, ...]]:
        """Leave out the device, for another rank to compute on its own."""
        bare = replace(self.replicates, parsimony=REFERENCE)
        return _elsewhere, (self.problem, self.engines, bare)

    @property
    def head(self) -> Head:
        """Head that the journal must have."""
        own = self.replicates
        fingerprint = mark(
            self.problem, own.model, self.engines, own.constraint, own.seed,
            repr(asdict(own.settings)), repr(self.engines.has_replicate_slots),
            *([] if own.scheme.is_usual else [repr(asdict(own.scheme))]),
        )  # fmt: skip
        return Head(fingerprint, self.engines.kept)

    def run(
        self,
        goal: int | None,
        journal: Journal,
        emit: Emit = ignore,
        grown: Callable[[], None] = lambda: None,
        ranks: Ranks = LONE,
    ) -> BootstrapOutcome:
        """Search for the replicates that the journal lacks.

        goal    how many there shall be; as many as autoMRE asks for where None
        grown   called whenever there is one more
        Raises: InputError: the journal is another run's, or cannot be written.
        """
        began = time.perf_counter()
        journal.begin(self.head)
        is_open = goal is None
        goal = goal or MOST
        checks = _Checks(journal, self.replicates.seed, goal, is_open, emit)
        if self.engines.is_shared:  # the likelihood asks them
            ranks = LONE
        missing = [k for k in range(1, goal + 1) if k not in journal.done]
        if not checks.are_enough() and missing:
            soon = missing[: 2 * STEP] if is_open else missing  # a check may end it all
            shares = missing, -(-len(soon) // ranks.size)
            helping = partial(_helping, self, *shares, self.head.fingerprint)
            pace = Pace("bootstrap", len(journal.done), goal, emit, at_most=is_open)
            for number, entry in ranks.deal(missing, partial(self._searched, *shares), helping):
                journal.add(number, entry)
                done = sum(k <= goal for k in journal.done)
                emit(ReplicateDone(number, entry.lnl, done, goal, is_open))
                grown()
                if checks.are_enough():
                    break
                pace.tell(done, STEP)
        verdict = checks.verdict
        count = verdict.replicates if verdict and checks.are_enough() else goal
        return BootstrapOutcome(count, verdict, time.perf_counter() - began)

    def seconds_each(self, count: int, journal: Journal) -> float:
        """Search so many replicates more, and return the seconds that one takes.

        On CPUs, where few are searched side by side, that of the first one is not among them: it
        has what is done once.
        """
        timers = [WorkTimer(self.engines)]

        def grown() -> None:
            timers.append(WorkTimer(self.engines))

        on_cpu = all(device.is_cpu for device in self.engines.devices)
        self.run(len(journal.done) + count, journal, grown=grown, ranks=current_ranks())
        return timers[on_cpu].seconds / (count - on_cpu)

    def _searched(
        self, missing: Sequence[int], most: int, numbers: Iterator[int]
    ) -> Iterator[tuple[int, Entry]]:
        """Replicates as they end, some of the missing; so many under way at a time at most."""
        with self.engines.for_replicates(self.replicates, missing, most) as (likelihood, slots):
            searches = self.replicates.searches(numbers, slots)
            for _, replicate in perform_all(likelihood, searches, slots.count):
                newick = write_newick(replicate.tree, self.problem.taxa)
                yield replicate.number, Entry(replicate.lnl, newick)


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


class Pace:
    """Tells how long a bootstrap still takes, whenever there are so many more replicates."""

    def __init__(
        self, what: str, before: int, goal: int, emit: Emit, *, at_most: bool = False
    ) -> None:
        """``before``: replicates that are there; ``at_most``: fewer than the goal may do."""
        self.what, self.at_most, self._before, self._goal = what, at_most, before, goal
        self._emit, self._began = emit, time.perf_counter()

    def left(self, done: int) -> float:
        """Wall seconds of those that are missing, as those took that were made here."""
        spent = time.perf_counter() - self._began
        return spent / (done - self._before) * (self._goal - done)

    def tell(self, done: int, step: int) -> None:
        """Emit the time left after every so many."""
        if done % step == 0 and self._before < done < self._goal:
            self._emit(TimeLeft(self.what, self.left(done), self.at_most))


@dataclass
class _Checks:
    """Asks whether the replicates are enough, whenever there are so many more without a gap."""

    journal: Journal
    seed: int
    goal: int
    auto: bool
    """True if the bootstrap ends once its first replicates suffice."""
    emit: Emit
    verdict: BootstopChecked | None = None

    def are_enough(self) -> bool:
        """Check the replicates that have not been checked; True if no more are needed."""
        last = min(self.journal.in_order, self.goal) // STEP * STEP
        asked = self.verdict.replicates if self.verdict else 0
        for count in range(asked + STEP if self.auto else max(last, asked + STEP), last + 1, STEP):
            if self.auto and self.verdict and self.verdict.converged:
                break
            trees = read_clades(self.journal.newicks(count))
            self.verdict = bootstop(split_table(trees), self.seed)
            self.emit(self.verdict)
        return bool(self.auto and self.verdict and self.verdict.converged)


def bootstrap_after(
    search: TreeSearch,
    model: PartitionModel,
    settings: SearchSettings,
    seed: int,
    scheme: SamplingScheme = USUAL,
) -> Bootstrap:
    """The bootstrap of a search's data, under the model that it ended with.

    settings  of a search like a replicate's; see :func:`prepare_bootstrap`
    """
    return _bootstrap(
        search.problem, search.distinct, search.engines, model, search.constraint, seed,
        settings, scheme,
    )  # fmt: skip


def prepare_bootstrap(
    problem: Problem,
    settings: SearchSettings,
    resources: Resources = ANY_DEVICE,
    *,
    replicates: int | None = None,
    seed: int = 1,
    tree: Tree | None = None,
    groups: Constraint | None = None,
    kept: KeptLayouts | None = None,
    scheme: SamplingScheme = USUAL,
    emit: Emit = ignore,
) -> Bootstrap:
    """Open an engine for a bootstrap, and fit what its model leaves open.

    settings    of a search like a replicate's, which has its rounds and nothing else
    replicates  that there will be, as far as is known
    tree        of all taxa, on which the model is fitted; one by parsimony where None
    groups      splits that every tree has
    kept        layouts of the journal that the bootstrap goes on from
    scheme      how sites are drawn

    Raises:
        DeviceError: a device cannot be found or used.
    """
    distinct = without_copies(problem.groups, groups, emit)
    fitting = settings.for_data(len(problem.taxa), problem.n_sites)
    work = Workload.of(
        problem, fitting, distinct.groups, replicates=replicates or 2 * STEP, kept=kept
    )
    engines = open_engines(resources, work, emit)
    model = problem.model
    if not is_given(problem):
        start = (
            _parsimony_tree(distinct, seed, engines.parsimony)
            if tree is None
            else distinct.reduce_tree(tree)
        )
        exact = engines.is_exact
        fit = fit_topology(
            engines.likelihood, start, model, emit, optimise_parameters=True,
            optimise_lengths=True, settings=FIXED_TOPOLOGY.for_precision(exact),
        )  # fmt: skip
        model = fit.model
    return _bootstrap(problem, distinct, engines, model, groups, seed, settings, scheme)


def _bootstrap(
    problem: Problem,
    distinct: Collapsed,
    engines: Engines,
    model: PartitionModel,
    constraint: Constraint | None,
    seed: int,
    settings: SearchSettings,
    scheme: SamplingScheme,
) -> Bootstrap:
    exact = engines.is_exact
    fitting = settings.for_data(len(problem.taxa), problem.n_sites).for_precision(exact)
    replicates = Replicates(
        distinct, model, fitting, seed, constraint, parsimony=engines.parsimony, scheme=scheme
    )
    return Bootstrap(problem=problem, engines=engines, replicates=replicates)


def is_given(problem: Problem) -> bool:
    """True if the model has all its values, as those of a .bestModel file."""
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


class BootstrapPlan(Value):
    """The replicates of a bootstrap, and their supports."""

    replicates: int | None
    """As many as autoMRE asks for where None."""
    metrics: str
    """Metrics of the supports, separated by commas."""

    @classmethod
    def of(cls, replicates: str, metrics: str, option: str) -> BootstrapPlan:
        """The plan of a number of replicates, or ``auto``, as the option has it.

        Raises:
            InputError: it is neither, or there is no such metric.
        """
        support_kinds(metrics)
        text = replicates.strip()
        if text.lower() == AUTO:
            return cls(None, metrics)
        if not re.fullmatch(r"[1-9][0-9]{0,5}", text):
            raise InputError(f"{option} {replicates}: a number from 1 to 999999, or auto")
        return cls(int(text), metrics)

    @property
    def trees(self) -> int:
        """Trees that may be searched side by side."""
        return self.replicates or 2 * STEP

    def left(self, journal: Journal) -> int:
        """Number of these that a journal lacks."""
        return self.trees - len(journal.done)


def bootstrap_kinds(plan: BootstrapPlan, has_tree: bool = True) -> Sequence[str]:
    """The files that a bootstrap writes, its log aside; with a tree to draw supports on, or not.

    Raises:
        InputError: there is no such metric.
    """
    supports = support_kinds(plan.metrics)
    consensus = CONSENSUS_FILES[Consensus.MAJORITY]
    return BOOTSTRAPS, JOURNAL, consensus, *(supports if has_tree else ())


def drop_replicates(workspace: Workspace) -> None:
    """Forget those of an older run."""
    workspace.remove(JOURNAL)
    workspace.remove(BOOTSTRAPS)


def replicate_settings(nni_only: bool) -> SearchSettings:
    """Settings of the search of a replicate."""
    return REPLICATE.nni_only() if nni_only else REPLICATE


def _expect(options: BootstrapOptions, problem: Problem) -> None:
    """Make sure that the tree and the constraint are of the taxa."""
    if options.tree is not None:
        read_tree(options.tree, problem, ignore)
    if options.constraint is not None:
        read_constraint(options.constraint, problem.taxa)


def prepared(
    options: BootstrapOptions,
    plan: BootstrapPlan,
    problem: Problem,
    tree: Tree | None,
    emit: Emit,
    kept: KeptLayouts | None = None,
) -> Bootstrap:
    """The bootstrap that the options ask for, ready to run; see :func:`prepare_bootstrap`."""
    constraint = options.constraint
    return prepare_bootstrap(
        problem, replicate_settings(options.moves == "nni"), options.resources,
        replicates=plan.replicates, seed=options.seed, tree=tree,
        groups=read_constraint(constraint, problem.taxa) if constraint else None,
        kept=kept, scheme=sampling_scheme(options.sampling, problem), emit=emit,
    )  # fmt: skip


def sampling_scheme(text: str, problem: Problem) -> SamplingScheme:
    """The scheme that ``--sampling`` names.

    Raises: InputError: there is no such scheme, or no parts that it could draw.
    """
    scheme = SamplingScheme.of(text)
    if scheme.genes and problem.model.n_parts < 2:
        raise InputError(f"--sampling {text} draws parts", hint="name them, --partitions FILE")
    return scheme


def bootstrap_in_memory(options: BootstrapOptions, emit: Emit, source: Source) -> dict[str, str]:
    """The texts of the files that ``mltree bootstrap`` writes, without a file.

    Raises:
        MltreeError: the data, the tree, the model or the device cannot be used.
    """
    plan = BootstrapPlan.of(options.replicates, options.metric, "--replicates")
    problem = load(options, emit, source, expect=partial(_expect, options), site_rates=True)
    tree = read_tree(options.tree, problem, emit) if options.tree else None
    bootstrap = prepared(options, plan, problem, tree, emit)
    return replicated_in_memory(bootstrap, plan, options.tree, emit)[0]


def replicated_in_memory(
    bootstrap: Bootstrap, plan: BootstrapPlan, best: str | None, emit: Emit
) -> tuple[dict[str, str], list[SupportsDrawn]]:
    """Search for all replicates: the texts of their files, and the supports of the best tree.

    best  that tree in Newick, with the labels that supports go behind; None: no supports
    """
    journal = MemoryJournal()
    outcome = bootstrap.run(plan.replicates, journal, emit)
    target, before = (None, []) if best is None else read_labelled(best)
    texts, events = _texts(journal.newicks(outcome.count), plan, target, before, emit)
    emit(finished(outcome))
    return texts, events


def _texts(
    newicks: str, plan: BootstrapPlan, best: Clades | None, before: Sequence[str], emit: Emit
) -> tuple[dict[str, str], list[SupportsDrawn]]:
    """The files of all replicates, their consensus and supports; and facts of these."""
    trees = read_clades(newicks, best, "the best tree")
    texts = {BOOTSTRAPS: newicks} | consensus_texts(trees, [Consensus.MAJORITY], emit)[0]
    if best is None:
        return texts, []
    supports, events = support_texts(best, trees, support_kinds(plan.metrics), emit, before)
    return texts | supports, events


def run_bootstrap(options: BootstrapOptions, reporter: Reporter) -> None:
    """Search for the replicates, draw supports, write the files."""
    plan = BootstrapPlan.of(options.replicates, options.metric, "--replicates")
    workspace, kinds = options.workspace, bootstrap_kinds(plan, options.tree is not None)
    every = (*kinds, RESULT)
    workspace.check((LOG, *every), options.inputs)
    with open_log(workspace.path(LOG), reporter) as log, workspace.held(every):
        resumes = not options.redo and workspace.path(JOURNAL).exists()
        if not resumes:
            workspace.claim(every, options.redo)
        reporter(RunStarted(__version__, options.line, options.seed))
        problem = load(options, reporter, expect=partial(_expect, options), site_rates=True)
        tree = read_tree(options.tree, problem, reporter) if options.tree else None
        best = first_tree(options.tree, reporter) if options.tree else None
        with Journal(workspace.path(JOURNAL), afresh=not resumes) as journal:
            # Ranks load their devices while the model is fitted here.
            share_replicates(options, plan.left(journal), len(problem.taxa))
            kept = journal.head.layouts if journal.head else None
            bootstrap = prepared(options, plan, problem, tree, reporter, kept)
            begin_log(log, options, reporter, append=resumes)
            texts, events, outcome = replicated(
                bootstrap, plan, journal, best, options, log, reporter
            )
        texts |= names_file(problem.renamed)
        files = [log.path, *map(workspace.path, [*texts, RESULT])]
        event = finished(outcome, files)
        values = {
            "seed": options.seed, "replicates": event.replicates, "converged": event.converged,
            "supports": support_facts(events),
        }  # fmt: skip
        result = command_result(
            "bootstrap", options.line, values, by_kind(files), options.inputs, reporter
        )
        stale = SUPPORT_KINDS if options.redo and options.tree is not None else ()
        spent = [kind for kind in stale if kind not in texts]
        deliver(workspace, {**texts, RESULT: result_text(result)}, reporter, spent)
        reporter(event)
        reporter.say("\n".join(f"Wrote {file}" for file in files))
        show_times(bootstrap.engines, reporter)
        reporter.finish("bootstrap", result)


def replicated(
    bootstrap: Bootstrap,
    plan: BootstrapPlan,
    journal: Journal,
    best: Clades | None,
    options: BootstrapOptions | SearchOptions,
    log: RunLog,
    reporter: Reporter,
    before: Sequence[str] = (),
) -> tuple[dict[str, str], list[SupportsDrawn], BootstrapOutcome]:
    """Search for the replicates that are missing; the texts of all files, and the supports.

    best    what the supports are drawn on; None: no supports
    before  the labels of its clades that they go behind; none where empty
    """

    def write(text: str) -> None:
        options.workspace.write({BOOTSTRAPS: text})

    if journal.done:
        reporter(Notice(f"{len(journal.done):,} replicates are there, in {journal.path}"))
    saving = Saving(bootstrap.replicates.settings.checkpoints, "the replicates go on without it")

    def grown() -> None:
        saving.offer(lambda: write(journal.newicks(journal.in_order)), reporter)

    with on_signal(partial(_leave, options, journal, write, log)):
        outcome = bootstrap.run(plan.replicates, journal, reporter, grown, current_ranks())
        if plan.replicates is None and not (outcome.verdict and outcome.verdict.converged):
            reporter(Notice(f"{outcome.count:,} replicates have not converged; this is the limit"))
        texts, events = _texts(journal.newicks(outcome.count), plan, best, before, reporter)
    return texts, events, outcome


def finished(outcome: BootstrapOutcome, files: Sequence[Path] = ()) -> BootstrapFinished:
    """The event that ends a bootstrap."""
    converged = outcome.verdict.converged if outcome.verdict else None
    return BootstrapFinished(outcome.count, converged, tuple(map(str, files)), outcome.seconds)


def _leave(
    options: AnalysisOptions, journal: Journal, write: Callable[[str], None], log: RunLog
) -> ExitMessage:
    """Say how a bootstrap goes on; its replicates are kept already."""
    without = " without --redo" if options.redo else ""
    said = [
        f"{len(journal.done):,} replicates are kept",
        f"the same command{without} goes on from here",
    ]
    try:
        write(journal.newicks(journal.in_order))
    except InputError as error:
        said.append(error.message)
    log.close(f"stopped: {'; '.join(said)}\n")
    return ExitMessage("; ".join(said))


@taking(BootstrapOptions, "model")
def bootstrap(options: BootstrapOptions, source: Source, call: Call) -> BootstrapResult:
    """Search the trees of bootstrap replicates, as ``mltree bootstrap`` does."""
    one_of("metric", options.metric, METRICS)
    if is_choice(options.model):
        raise InputError("model='auto' is chosen by search", hint="or ask mltree.model for one")
    return result_of(bootstrap_in_memory(options, call, source), call)


def result_of(
    texts: Mapping[str, str],
    call: Call,
    trees: str = BOOTSTRAPS,
    consensus: str = CONSENSUS_FILES[Consensus.MAJORITY],
) -> BootstrapResult:
    """The result that the files of a bootstrap have; ``trees``, ``consensus``: their kinds."""
    end, supported = call.last(BootstrapFinished), texts.get("support")
    return BootstrapResult(
        trees=tuple(map(PhyloTree, texts[trees].splitlines())),
        consensus=PhyloTree(texts[consensus].strip()),
        tree=None if supported is None else PhyloTree(supported.strip()),
        converged=end.converged if end else None,
    )
