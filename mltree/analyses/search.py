"""``mltree search``, ``mltree run`` and ``mltree.search``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mltree.analyses.bootstrap import (
    BOOTSTRAPS,
    JOURNAL,
    MOST,
    Bootstrap,
    BootstrapPlan,
    bootstrap_after,
    bootstrap_kinds,
    drop_replicates,
    finished,
    replicate_settings,
    replicated,
    replicated_in_memory,
    sampling_scheme,
)
from mltree.analyses.date import DATE_KINDS, dates_of_search
from mltree.analyses.evaluate import check_rates, site_rates
from mltree.analyses.html_report import REPORT, write_report
from mltree.analyses.model_selection import TABLE, choice_kinds, chosen, criterion_of, scheme_of
from mltree.analyses.options import SearchOptions
from mltree.analyses.tree_sets import CONSENSUS_FILES, METRICS, SUPPORT_KINDS, support_kinds
from mltree.analyses.tree_tests import BRANCHES, LocalTests
from mltree.analyses.ufboot import ULTRAFAST_KINDS, UltrafastPlan, replicates_of, ultrafast_texts
from mltree.data.alignments import MIN_TAXA, Source
from mltree.data.source import TaxonNumbers
from mltree.dating.dates import dates_of
from mltree.device.layout_choice import KeptLayouts
from mltree.fit.settings import SearchSettings, preset
from mltree.models.partitioned import PartitionModel
from mltree.report.lines import NAMES
from mltree.report.record import SEARCHED, Facts, expect_record, facts_of
from mltree.runs.calls import Call, taking
from mltree.runs.demand import RowCounts
from mltree.runs.inputs import file_of
from mltree.runs.logged_run import (
    LOCI_KINDS,
    LoggedRun,
    WorkTimer,
    best_model_file,
    by_kind,
    load,
    open_log,
    part_trees_file,
    share_replicates,
)
from mltree.runs.options import one_of
from mltree.runs.problem import Problem, read_problem
from mltree.runs.results import SearchResult, SupportResult, support_facts
from mltree.runs.scheme import check_mergeable
from mltree.runs.site_frequencies import SITE_FREQUENCIES, frequencies_file
from mltree.runs.trees import TreeResult, TreeSearch, expect_starts, prepare_search
from mltree.runs.workspace import Journal, MemoryJournal, RunLog, Workspace
from mltree.supports.consensus import Consensus
from mltree.system import __version__
from mltree.system.errors import InputError, did_you_mean
from mltree.system.events import (
    BootstrapChosen,
    Emit,
    Event,
    Notice,
    RunStarted,
    SearchPlanned,
    StartsEnded,
    SupportsDrawn,
    TimeLeft,
)
from mltree.system.files import is_there
from mltree.system.process import ExitMessage, on_signal
from mltree.system.ranks import LONE, Ranks, current_ranks
from mltree.system.values import Value
from mltree.tree.clades import read_labelled
from mltree.tree.newick import listed, write_newick
from mltree.tree.splits import facing
from mltree.treesearch.checkpoint import Checkpoint
from mltree.treesearch.constraint import read_constraint
from mltree.treesearch.search import StartingTree

if TYPE_CHECKING:
    from mltree.report.progress import Reporter


MODEL, SUPPORT = "bestModel", "support"
"""Kinds of the files with the search's model, and with the best tree and all its labels."""


LOG, EVENTS, START, TREE = "log", "events", "startTree", "bestTree"
PART_TREES, RATES, RESULT = "bestPartitionTrees", "rate", "json"
"""Kinds of the files that a search leaves; its report is supports from its events. Those that a run
without a result left, because it failed, are not worth a --redo."""

RESULTS = (MODEL, TREE, RESULT)

CHECKPOINT, LAST = "checkpoint", "lastTree"
"""Kinds of the state that a search goes on from, and of the best tree when it was stopped; gone
when the search has ended. As long as there is a checkpoint, results are an older run's, or half of
this one's, or replicates can be added to them."""

OF_THE_TREE = (RESULT, *SUPPORT_KINDS, "support.json", *ULTRAFAST_KINDS, REPORT, *LOCI_KINDS)
"""Kinds of files that are of no use beside another tree than that of the run that wrote them."""

OF_ONE_ALIGNMENT = tuple(
    {MODEL, TREE, CHECKPOINT, LAST, PART_TREES, RATES, START, EVENTS, *OF_THE_TREE}
    - {RESULT, *LOCI_KINDS}
)
"""Kinds of files that a search of many loci has none of."""

Draw = Callable[..., str]
"""Writes a tree as its file has it, in Newick; ``labels``: of edges, by their ids."""


CHEAP = 120.0
"""Seconds up to which a bootstrap of 1,000 replicates, or --bnni, is made unasked."""

LEAST_SHARE = 0.06
"""Least time of a replicate as a share of the search's. On one core 0.06 to 1.1, of sets of 9 to 64
taxa. Where that alone is not cheap no replicate is searched to tell the time: it may take long."""

PERTURBED, LOOKED_AROUND = 0.6, 1.5
"""Time of the perturbation as a share of that of the starts; of an ultrafast bootstrap as a share
of the search's: at most 0.7 and 1.2 of six alignments on one core."""

TIMED, TIMED_SIDE_BY_SIDE = 5, 50
"""Replicates that tell the time of one, on CPUs and on GPUs, which search many side by side."""


class FinishedSearch(NamedTuple):
    """A search that has ended, with the supports of its tree."""

    ready: TreeSearch
    result: TreeResult
    supports: SupportResult


@taking(SearchOptions, "model", without=("report", "site_rates", "species_tree"))
def search(options: SearchOptions, source: Source, call: Call) -> SearchResult:
    """Find the maximum-likelihood tree of an alignment, as ``mltree search`` does.

    With a prefix it writes the files of the command, and goes on from those of a stopped one.
    """
    one_of("metric", options.metric, METRICS)
    return found(options, source, call)


def found(
    options: SearchOptions, source: Source, call: Call, plan: SupportPlan | None = None
) -> SearchResult:
    """The result of a search in memory or, with a prefix, in files; ``plan``: of its supports."""
    if options.prefix is None:
        ready, result, supports = search_in_memory(options, call, source, plan)
    else:
        assert call.reporter is not None, "calls that leave files have one"
        file = file_of(source, Workspace.of(options.prefix, "alignment").path("fasta"))
        ready, result, supports = run_search(replace(options, alignment=file), call.reporter, plan)
    return SearchResult(
        problem=ready.problem,
        resources=options.resources,
        result=result.scored(ready.engines, call),
        timings=call.timings(ready.engines, result),
        seed=options.seed,
        starts=call.last(StartsEnded),
        labelled=supports,
        bootstrap=replicates_of(supports.texts, call),
    )


def run_search(
    options: SearchOptions, reporter: Reporter, plan: SupportPlan | None = None
) -> FinishedSearch:
    """Search, show the result, write the files; ``plan``: of supports, the options' where None."""
    plan, workspace = plan or SupportPlan.asked_by(options), options.workspace
    models = choice_kinds(has_parts=True) if options.chooses else ()
    kinds = _kinds(options, plan)
    every = (EVENTS, START, *RESULTS, PART_TREES, RATES, CHECKPOINT, LAST, *models, *kinds)
    _expect_choice(options, "{} goes with --model auto", "or with `mltree model`")
    workspace.check((LOG, REPORT, *every), options.inputs)
    expect_record(workspace.path(EVENTS))
    held = {*every, *OF_THE_TREE, BRANCHES} - {REPORT}  # a report may be drawn at any time
    with open_log(workspace.path(LOG), reporter) as log, workspace.held(held):
        resumes = not options.redo and is_there(workspace.path(CHECKPOINT))
        if not resumes:
            kinds_claimed = (*RESULTS, *kinds, *LOCI_KINDS)
            workspace.claim(kinds_claimed, options.redo, _for_supports_alone(options, workspace))
        reporter(RunStarted(__version__, options.line, options.seed))
        return _searched(options, FileOutput(options, plan, reporter, log, resumes))


def _for_supports_alone(options: SearchOptions, workspace: Workspace) -> str:
    """The command that computes the supports of a tree that is there; empty where there is none."""
    tree, model = workspace.path("bestTree"), workspace.path("bestModel")
    if not (tree.is_file() and model.is_file()):
        return ""
    told = f"--tree {tree} --model {model}"
    if options.bootstrap is not None:
        return f"mltree bootstrap {options.alignment} --replicates {options.bootstrap} {told}"
    if options.sh_alrt is not None:
        return f"mltree alrt {options.alignment} --replicates {options.sh_alrt} {told}"
    return ""


def search_in_memory(
    options: SearchOptions, emit: Emit, source: Source, plan: SupportPlan | None = None
) -> FinishedSearch:
    """Search as ``mltree search`` does, without a file; ``plan``: of supports, as `run_search`.

    Raises:
        MltreeError: the data, the model, a tree or the device cannot be used.
    """
    plan = plan or SupportPlan.asked_by(options)
    _expect_choice(options, "{} goes with model='auto'", "or mltree.model")
    return _searched(options, SearchOutput(options, plan, emit, source))


def _expect_choice(options: SearchOptions, message: str, hint: str) -> None:
    """Make sure that options of a choice are given only where there is one. Raises: InputError."""
    given = {"--merge": options.merge, "--model-set": options.model_set is not None}
    if any(given.values()) and not options.chooses:
        name = next(name for name, is_given in given.items() if is_given)
        raise InputError(message.format(name), hint=hint)


def _searched(options: SearchOptions, output: SearchOutput) -> FinishedSearch:
    """Read, choose models, place, search, compute supports, deliver."""
    plan, emit = output.plan, output.emit
    problem = load_for_search(options, emit, output.source)
    if options.chooses:
        problem = output.under_best(problem)
    ready = prepare_search(
        problem, search_settings(options), options.resources, seed=options.seed,
        starts=options.tree, constraint=options.constraint, kept=output.layouts(),
        replicates=plan.replicates, rows=plan.rows, emit=emit,
    )  # fmt: skip
    outgroup = _outgroup(options.outgroup, problem.taxa)
    draw = partial(write_newick, taxa=problem.taxa, outgroup=outgroup, collapse=options.collapse)
    with output.begun(ready, draw):
        settings = ready.settings
        patience = settings.perturbation.patience
        emit(SearchPlanned(len(ready.starts), len(settings.phases), patience))
        result = ready.run(output.receive, output.checkpoint, output.ranks)
        if options.outgroup and facing(result.tree, outgroup) is None:
            emit(Notice("the outgroup is not monophyletic: its first taxon alone is used"))
        output.keep_tree(result)
        supports = draw_supports(ready, result, draw, output)
        output.deliver(result, supports)
    return FinishedSearch(ready, result, supports)


def draw_supports(
    ready: TreeSearch, result: TreeResult, draw: Draw, output: SearchOutput
) -> SupportResult:
    """Compute the supports that were asked for, tell of them, and keep them: each may take days."""
    problem, seed = ready.problem, output.options.seed
    plan = output.decided(result)
    supports = SupportResult(draw(result.mean_tree))
    if plan.tests and len(problem.taxa) >= MIN_TAXA:
        exact = ready.engines.exact
        tested = plan.tests.of(exact, result.tree, result.model, problem.groups, seed)
        supports.newick = draw(result.mean_tree, labels=tested.labels())
        supports.events = tested.events(supports.newick)
        for event in supports.events:
            output.emit(event)
        supports.texts = {SUPPORT: supports.newick + "\n", BRANCHES: tested.table(problem.taxa)}
        output.keep(supports.texts)
    if plan.ultrafast and len(ready.distinct.kept) >= MIN_TAXA:
        newick, emit = supports.newick, output.emit
        supports.add(*ultrafast_texts(plan.ultrafast, ready, result, newick, seed, emit))
        output.keep(supports.texts)
    if plan.bootstrap:
        supports.add(*output.replicated(plan.bootstrap, result, supports.newick))
    return supports


class SearchOutput:
    """Output of a search that leaves everything to its caller: nothing is written."""

    checkpoint: Checkpoint | None = None
    ranks: Ranks = LONE
    _ready: TreeSearch
    _timer: WorkTimer

    def __init__(
        self, options: SearchOptions, plan: SupportPlan, emit: Emit, source: Source | None = None
    ) -> None:
        """``source``: sequences at hand, instead of the alignment's file."""
        self.options, self.plan, self.emit, self.source = options, plan, emit, source

    def under_best(self, problem: Problem) -> Problem:
        """The problem under the models that suit it best."""
        return scheme_of(problem, self.options, self.emit).under_best

    def layouts(self) -> KeptLayouts | None:
        """Layouts of the search that is gone on with; None where there is none."""
        return None

    @contextmanager
    def begun(self, ready: TreeSearch, draw: Draw) -> Iterator[None]:  # noqa: ARG002
        """Begin a search that stands ready."""
        self._ready, self._timer = ready, WorkTimer(ready.engines)
        yield

    def receive(self, event: Event) -> None:
        """Receive an event of the search; once its starts have ended, tell how long all takes."""
        self.emit(event)
        if isinstance(event, StartsEnded) and self.plan.is_open:
            rest = self._timer.seconds * (PERTURBED + (1 + PERTURBED) * LOOKED_AROUND)
            self.emit(TimeLeft("search and supports", rest + CHEAP, at_most=True))

    def keep_tree(self, result: TreeResult) -> None:
        """Keep the tree before its supports are computed."""

    def decided(self, result: TreeResult) -> SupportPlan:
        """The plan, with one bootstrap of two by the time that the standard one would take."""
        if self.plan.is_open:
            choice = self._choice(result)
            self.emit(choice)
            self.plan = self.plan.with_one(choice.is_standard)
            if self.plan.ultrafast:
                rest = LOOKED_AROUND * self._searched_seconds + CHEAP
                self.emit(TimeLeft("supports", rest, at_most=True))
        return self.plan

    def _choice(self, result: TreeResult) -> BootstrapChosen:
        least = LEAST_SHARE * self._searched_seconds * MOST
        at_least = least > CHEAP
        seconds = least if at_least else MOST * self._seconds_of_one(result)
        return BootstrapChosen(seconds <= CHEAP, seconds, at_least, MOST)

    @property
    def _searched_seconds(self) -> float:
        """Seconds of the search."""
        return self._timer.seconds

    def _seconds_of_one(self, result: TreeResult) -> float:
        """Seconds of a replicate, by the first ones."""
        bootstrap = self._bootstrap(result.per_site or self._as_written(result.model))
        return bootstrap.seconds_each(self._timed, MemoryJournal())

    @property
    def _timed(self) -> int:
        on_cpu = all(device.is_cpu for device in self._ready.engines.devices)
        return TIMED if on_cpu else TIMED_SIDE_BY_SIDE

    def keep(self, texts: Mapping[str, str]) -> None:
        """Keep supports, by kind of file, while others are computed."""

    def replicated(
        self, plan: BootstrapPlan, result: TreeResult, newick: str
    ) -> tuple[dict[str, str], list[SupportsDrawn]]:
        """Search for replicates: the texts of all files, and the supports, behind labels so far.

        Their model has the digits of its file, so that ``mltree bootstrap``, given that file, can
        add to them. Under rates of sites, which no file has, the search itself can.
        """
        model = result.per_site or self._as_written(result.model)
        bootstrap = self._bootstrap(model)
        return replicated_in_memory(bootstrap, plan, newick, self.emit)

    def _bootstrap(self, model: PartitionModel) -> Bootstrap:
        settings = replicate_settings(self.options.moves == "nni")
        scheme = sampling_scheme(self.options.sampling, self._ready.problem)
        return bootstrap_after(self._ready, model, settings, self.options.seed, scheme)

    def _as_written(self, model: PartitionModel) -> PartitionModel:
        """The model with the digits of its file."""
        problem, options = self._ready.problem, self.options
        if problem.data is not None:
            return model
        text = best_model_file(model, problem).strip()
        source = options.alignment if self.source is None else self.source
        return read_problem(source, text, options.data_type, options.linkage).model

    def deliver(self, result: TreeResult, supports: SupportResult) -> None:
        """Leave everything."""


class FileOutput(SearchOutput):
    """Files of a search, its log and its checkpoint, under a prefix that is locked and claimed."""

    def __init__(
        self,
        options: SearchOptions,
        plan: SupportPlan,
        reporter: Reporter,
        log: RunLog,
        resumes: bool,
    ) -> None:
        """``resumes``: there is a checkpoint to go on from."""
        super().__init__(options, plan, reporter)
        self._reporter, self._log, self._resumes = reporter, log, resumes
        self._workspace = options.workspace

    def under_best(self, problem: Problem) -> Problem:
        """The problem under the models that suit it best, or did so before."""
        return chosen(problem, self.options, self._reporter)

    def layouts(self) -> KeptLayouts | None:
        """Layouts of the checkpoint."""
        if not self._resumes:
            return None
        return Checkpoint.read_layouts(self._workspace.path(CHECKPOINT))

    @contextmanager
    def begun(self, ready: TreeSearch, draw: Draw) -> Iterator[None]:
        """Begin the log and the record, or go on with them; a signal leaves the best tree."""
        self._ready, self._timer = ready, WorkTimer(ready.engines)
        self._draw, self.ranks = draw, current_ranks()
        self.checkpoint = self._opened_checkpoint()
        self._run = self.emit = self._described()
        self._run.begin(self._log, append=self._resumes)
        if current_ranks().size > 1 and ready.problem.model.has_site_rates:
            self._reporter(Notice("rank 0 alone searches under +PSR"))
        if not self._resumes:
            self._begin_anew()
        with on_signal(self._leave):
            yield

    def _opened_checkpoint(self) -> Checkpoint:
        """Raises: InputError: it is another search's, which ends the run before it writes."""
        ready = self._ready
        path, every = self._workspace.path(CHECKPOINT), ready.settings.checkpoints
        checkpoint = Checkpoint(path, ready.fingerprint, every, ready.engines.kept)
        if self._resumes:
            checkpoint.load(ready.problem.model)
        return checkpoint

    def _described(self) -> LoggedRun:
        """The run as its log and its result tell of it."""
        options, ready = self.options, self._ready
        run = LoggedRun.of(
            "search", options, ready.problem, ready.engines, self._reporter, kind=RESULT,
            record=EVENTS, resolved={"tree": options.tree or _asked(ready.starts)},
            starts=[start.origin for start in ready.starts],
            nni_only=options.moves == "nni",
            seed=options.seed,
            supports=self.plan.cited,
        )  # fmt: skip
        if options.chooses:
            criterion = NAMES[criterion_of(self._workspace.path(TABLE))]
            run.methods = replace(run.methods, criterion=criterion)
        return run

    def _begin_anew(self) -> None:
        """Forget what an older run has left of a search."""
        self._workspace.remove(CHECKPOINT)
        self._workspace.remove(LAST)
        if self.plan.bootstrap:
            drop_replicates(self._workspace)
        self._workspace.write({START: self._ready.start_text + "\n"})

    def keep_tree(self, result: TreeResult) -> None:
        """Write the tree, its model and what goes with them, and delete what they make obsolete."""
        options, problem = self.options, self._ready.problem
        self._newick = self._draw(result.mean_tree)
        self._texts = {MODEL: best_model_file(result.model, problem), TREE: self._newick + "\n"}
        more = {PART_TREES: part_trees_file(result, problem), RATES: ""}
        if options.site_rates or result.per_site:
            more[RATES] = site_rates(self._ready.engines.exact, result, problem)
        self._texts |= {kind: text for kind, text in more.items() if text}
        if options.guide_tree is not None:
            self._texts |= frequencies_file(problem)
        stale = _stale(options, self.plan, self._texts)
        self._spent = [LAST, *(more.keys() - self._texts.keys())]
        if not self.plan.bootstrap:
            self._spent.append(CHECKPOINT)
        if self.plan.kinds:
            self._workspace.replace(self._texts, stale)
        else:
            self._spent += [kind for kind in stale if kind != RESULT]

    def decided(self, result: TreeResult) -> SupportPlan:
        """The plan, which the methods name; replicates that told the time go where unwanted."""
        was_open, plan = self.plan.is_open, super().decided(result)
        if was_open:
            self._run.methods = replace(self._run.methods, supports=plan.cited)
            if plan.ultrafast:
                drop_replicates(self._workspace)
                self._spent.append(CHECKPOINT)
        return plan

    @property
    def _searched_seconds(self) -> float:
        """Seconds of the search, those before it was stopped included."""
        seconds = super()._searched_seconds
        points = self._record().points if self._resumes else []
        ended = [point for point in points if point.what == SEARCHED] or points[-1:]
        return max([seconds, *(point.seconds - points[0].seconds for point in ended[:1])])

    def _record(self) -> Facts:
        text = self._workspace.path(EVENTS).read_text(errors="replace")
        return facts_of(text.splitlines())

    def _choice(self, result: TreeResult) -> BootstrapChosen:
        """The choice, which stands once it is made, however long the run has stood still."""
        before = self._record().chosen if self._resumes else None
        if before is None:
            return super()._choice(result)
        names = "is_standard", "seconds", "at_least", "replicates"
        return BootstrapChosen(*(before[name] for name in names))

    def _seconds_of_one(self, result: TreeResult) -> float:
        """Seconds of a replicate; 0 where there are many, as the bootstrap was chosen before.

        Fewer were made to tell the time, in a run that was stopped.
        """
        bootstrap = self._bootstrap(result.per_site or self._written_model())
        with Journal(self._workspace.path(JOURNAL)) as journal:
            if len(journal.done) > 3 * self._timed:
                return 0.0
            return bootstrap.seconds_each(self._timed, journal)

    def keep(self, texts: Mapping[str, str]) -> None:
        """Write supports while others are computed."""
        self._run.keep(texts)

    def replicated(
        self, plan: BootstrapPlan, result: TreeResult, newick: str
    ) -> tuple[dict[str, str], list[SupportsDrawn]]:
        """Search for the replicates that the journal lacks, among ranks."""
        options, reporter = self.options, self._reporter
        bootstrap = self._bootstrap(result.per_site or self._written_model())
        best, before = read_labelled(newick)
        with Journal(self._workspace.path(JOURNAL)) as journal:
            if share_replicates(options, plan.left(journal), len(self._ready.problem.taxa)):
                reporter(Notice(current_ranks().text))
            texts, events, outcome = replicated(
                bootstrap, plan, journal, best, options, self._log, reporter, before
            )
        self.emit(finished(outcome))
        return texts, events

    def _written_model(self) -> PartitionModel:
        """The model as its file has it."""
        options, written = self.options, str(self._workspace.path(MODEL))
        return read_problem(options.alignment, written, options.data_type, options.linkage).model

    def deliver(self, result: TreeResult, supports: SupportResult) -> None:
        """Write all files, show the result and the report."""
        options, run, workspace = self.options, self._run, self._workspace
        if self.plan.kinds:
            run.support, run.supports = supports.newick, support_facts(supports.events)
        has_parts = self._ready.problem.data is not None
        models = choice_kinds(has_parts) if options.chooses else ()
        run.files += map(workspace.path, (START, *models))
        run.deliver(result, self._newick, self._texts | supports.texts, self._spent)
        document = run.conclude(result, self._newick)
        if options.dates is not None:
            texts = dates_of_search(options, self._ready.problem, self._newick, self._reporter)
            paths = workspace.write(texts)
            document["files"] |= by_kind(paths)
            self._reporter.say("\n".join(f"Wrote {path}" for path in paths))
        if options.report:
            page = write_report(workspace, self._reporter, alignment=options.alignment)
            document["files"][REPORT] = str(page)
            self._reporter.say(f"Wrote {page}\n{_to_open(document['files'])}")
        self._reporter.finish("search", document)

    def _leave(self) -> ExitMessage:
        """Save what the search has found, in another thread than its own; say how it goes on."""
        assert self.checkpoint is not None
        state = self.checkpoint.kept
        if state is None:
            return ExitMessage()
        said = []
        try:
            self.checkpoint.save(state)
            without = " without --redo" if self.options.redo else ""
            said.append(f"the same command{without} goes on from here")
        except InputError as error:
            said.append(error.message)
        if np.isfinite(state.best.lnl):
            text = self._draw(self._ready.whole(state.best.tree)) + "\n"
            try:
                (path,) = self._workspace.write({LAST: text})
                said.append(f"the best tree so far, lnL {state.best.lnl:.3f}, is in {path}")
            except InputError as error:
                said += [error.message, text.strip()]
        self._log.close(f"stopped: {'; '.join(said)}\n")
        return ExitMessage("; ".join(said))


class SupportPlan(Value):
    """Supports of the branches of the best tree: tests, and replicates of either bootstrap.

    Where both bootstraps are there, the time that the standard one would take decides.
    """

    tests: LocalTests | None = None
    bootstrap: BootstrapPlan | None = None
    ultrafast: UltrafastPlan | None = None

    @classmethod
    def asked_by(cls, options: SearchOptions) -> SupportPlan:
        """The plan of these options.

        Raises:
            InputError: a number is no such number, or something does not go together.
        """
        tests, ultrafast = LocalTests.asked_by(options), UltrafastPlan.asked_by(options)
        support_kinds(options.metric)
        if options.bootstrap is None:
            return cls(tests, None, ultrafast)
        return cls(tests, BootstrapPlan.of(options.bootstrap, options.metric, "--bootstrap"), None)

    @property
    def is_open(self) -> bool:
        """True if the time decides which bootstrap is made."""
        return self.bootstrap is not None and self.ultrafast is not None

    def with_one(self, is_standard: bool) -> SupportPlan:
        """The plan without the other bootstrap."""
        return replace(self, **{"ultrafast" if is_standard else "bootstrap": None})

    @property
    def kinds(self) -> list[str]:
        """Kinds of all files that are, or may be, written for them.

        Raises:
            InputError: there is no such metric.
        """
        every = [SUPPORT, BRANCHES] if self.tests else []
        every += [SUPPORT, *ULTRAFAST_KINDS] if self.ultrafast else []
        return [*every, *(bootstrap_kinds(self.bootstrap) if self.bootstrap else ())]

    @property
    def cited(self) -> dict[str, int | None]:
        """Supports for a methods paragraph, in the order of labels, with their replicates.

        None where it takes none, or where how many is told by the replicates themselves.
        """
        cited: dict[str, int | None] = {}
        if self.tests:
            cited |= self.tests.replicates_by_name
        if self.ultrafast:
            cited["UFBoot2"] = self.ultrafast.replicates
        metrics = self.bootstrap.metrics.split(",") if self.bootstrap else ()
        return cited | {metric.strip().upper(): None for metric in metrics}

    @property
    def replicates(self) -> int:
        """Replicates that are searched side by side, at most, when the search has ended."""
        if self.bootstrap:
            return self.bootstrap.trees
        return AT_ONCE if self.ultrafast and self.ultrafast.bnni else 0

    @property
    def rows(self) -> RowCounts:
        """Rows that the ultrafast bootstrap and tests take when the search has ended."""
        drawn = self.ultrafast.replicates if self.ultrafast else 0
        return RowCounts(drawn, tests=max(1, self.tests.replicates) if self.tests else 0)


def _kinds(options: SearchOptions, plan: SupportPlan) -> list[str]:
    """Kinds of the output files beside the best tree and its model."""
    frequencies = [SITE_FREQUENCIES] * (options.guide_tree is not None)
    dates = DATE_KINDS if options.dates is not None else ()
    return [*plan.kinds, *frequencies, *dates]


AT_ONCE = 100
"""Replicates of --bnni for which memory is planned side by side."""

OF_OTHERS = (
    (
        (JOURNAL, BOOTSTRAPS, CONSENSUS_FILES[Consensus.MAJORITY]),
        ("bootstrapLog", "consensus.json"),
    ),
    (tuple(choice_kinds(has_parts=True)), ("modelLog",)),
    ((SITE_FREQUENCIES,), ("evalLog",)),
    ((BRANCHES,), ("alrt.json",)),
)
"""Kinds of files that go with an older search, unless a command has left them that leaves these."""


def _stale(options: SearchOptions, plan: SupportPlan, texts: Mapping[str, str]) -> list[str]:
    """Kinds of an older run's files that are to go once results of these texts are written.

    There are some where --redo was asked for, now or before this run was stopped: then another tree
    is replaced.
    """
    workspace = options.workspace
    old = [kind for kind in (TREE, MODEL) if is_there(workspace.path(kind))]
    if not options.redo and all(workspace.holds(kind, texts[kind]) for kind in old):
        return []
    inputs = options.inputs
    asked = {*_kinds(options, plan), *(choice_kinds(has_parts=True) if options.chooses else ())}
    kinds = [*OF_THE_TREE]
    for own, traces in OF_OTHERS:
        is_others = any(is_there(workspace.path(trace)) for trace in traces)
        kinds += [kind for kind in own if not is_others and kind not in asked]
    return [kind for kind in kinds if kind not in texts and not workspace.is_among(kind, inputs)]


def search_settings(options: SearchOptions) -> SearchSettings:
    """The preset's, with the user's changes."""
    settings = preset(options.preset)
    return settings.nni_only() if options.moves == "nni" else settings


def _expect(options: SearchOptions, problem: Problem) -> None:
    """Make sure that taxa, trees, parts and the constraint are those of the data."""
    sampling_scheme(options.sampling, problem)
    _outgroup(options.outgroup, problem.taxa)
    constraint = options.constraint
    groups = read_constraint(constraint, problem.taxa) if constraint else None
    if options.tree is not None:
        expect_starts(options.tree, problem.taxa, groups)
    if options.merge and options.chooses:
        check_mergeable(problem)
    if options.dates is not None:
        dates_of(options.dates, problem.taxa)
    if options.site_rates and not options.chooses:
        check_rates(problem.model)


def load_for_search(options: SearchOptions, emit: Emit, source: Source | None = None) -> Problem:
    """Read the data of a search; see :func:`mltree.runs.logged_run.load`."""
    return load(options, emit, source, expect=partial(_expect, options), site_rates=True)


def _asked(starts: Sequence[StartingTree]) -> str:
    """The value of ``--tree`` that asks for these starts: ``pars{6}``."""
    kinds = [start.origin.rpartition(" ")[0] for start in starts]
    words = {"parsimony": "pars", "random": "rand"}
    counts = {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}
    return ",".join(f"{words.get(kind, kind)}{{{count}}}" for kind, count in counts.items())


def _outgroup(names: str | None, taxa: Sequence[str]) -> list[int]:
    """Tips of the outgroup; the first taxon where none is named."""
    if names is None:
        return [0]
    tips = TaxonNumbers(taxa)
    members = [name.strip() for name in names.split(",")]
    if unknown := [name for name in members if tips[name] < 0]:
        hint = did_you_mean(unknown[0], taxa)
        message = f"outgroup: {listed(unknown)} not in the alignment"
        raise InputError(message, taxon=unknown[0], hint=hint)
    return [tips[name] for name in members]


def _to_open(files: Mapping[str, str]) -> str:
    """The two files that a user opens first."""
    kinds = [SUPPORT, *SUPPORT_KINDS, TREE]
    tree = next(files[kind] for kind in kinds if kind in files)
    return f"Open {files[REPORT]} in a browser, {tree} in a tree viewer (FigTree, iTOL)"
