"""``mltree search``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from mltree.analyses.bootstrap import (
    BOOTSTRAPS,
    JOURNAL,
    BootstrapPlan,
    bootstrap_after,
    bootstrap_kinds,
    drop_replicates,
    finished,
    replicate_settings,
    replicated,
    replicated_in_memory,
)
from mltree.analyses.evaluate import check_rates, site_rates
from mltree.analyses.html_report import REPORT, write_report
from mltree.analyses.model_selection import (
    TABLE,
    check_mergeable,
    choice_kinds,
    chosen,
    criterion_of,
    scheme_of,
)
from mltree.analyses.options import SearchOptions
from mltree.analyses.tree_sets import CONSENSUS_FILES, SUPPORT_KINDS, support_facts, support_kinds
from mltree.analyses.tree_tests import BRANCHES, LocalTests
from mltree.analyses.ufboot import ULTRAFAST_KINDS, UltrafastPlan, ultrafast_texts
from mltree.data.alignments import MIN_TAXA, Source
from mltree.device.layout_choice import KeptLayouts
from mltree.fit.settings import SearchSettings, preset
from mltree.models.partitioned import PartitionModel
from mltree.report.lines import NAMES
from mltree.report.record import expect_record
from mltree.runs.demand import RowCounts
from mltree.runs.problem import Problem, read_problem
from mltree.runs.request import (
    LOCI_KINDS,
    Run,
    load,
    model_text,
    open_log,
    part_trees,
    share_replicates,
)
from mltree.runs.site_frequencies import SITE_FREQUENCIES, frequencies_file
from mltree.runs.steps import TreeResult, TreeSearch, prepare_search
from mltree.runs.trees import expect_starts
from mltree.runs.workspace import Journal, RunLog
from mltree.supports.consensus import Consensus
from mltree.system.errors import InputError
from mltree.system.events import Emit, Notice, RunStarted, SearchPlanned, SupportsDrawn
from mltree.system.files import is_there
from mltree.system.process import ExitMessage, on_signal
from mltree.system.ranks import current_ranks
from mltree.system.values import Value
from mltree.system.version import __version__
from mltree.tree.clades import read_labelled
from mltree.tree.newick import write_newick
from mltree.tree.splits import facing
from mltree.tree.topology import Tree
from mltree.treesearch.checkpoint import Checkpoint
from mltree.treesearch.constraint import read_constraint
from mltree.treesearch.search import StartingTree

if TYPE_CHECKING:
    from mltree.report.progress import Reporter


# Supports of the best tree: tests of its branches, replicates.

MODEL, SUPPORT = "bestModel", "support"
"""Kinds of the files with the search's model, and with the best tree and all its labels."""


class SupportPlan(Value):
    """Supports of the branches of the best tree: tests, and replicates of either bootstrap."""

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
    def kinds(self) -> list[str]:
        """Kinds of all files that are written for them.

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
        """Bootstrap replicates that are searched when the search has ended."""
        return self.bootstrap.trees if self.bootstrap else 0

    @property
    def rows(self) -> RowCounts:
        """Rows of weights that the ultrafast bootstrap takes when the search has ended."""
        return RowCounts(self.ultrafast.replicates if self.ultrafast else 0)


class Draw(Protocol):
    """Writes a tree as its file has it."""

    def __call__(self, tree: Tree, labels: Mapping[int, str] | None = None) -> str:
        """In Newick, with labels by edge."""


@dataclass
class SupportResult:
    """Supports of the best tree."""

    newick: str
    """The best tree with every label but those of a second metric."""
    texts: dict[str, str] = field(default_factory=dict)
    """By kind of file."""
    events: list[SupportsDrawn] = field(default_factory=list)

    def add(self, texts: Mapping[str, str], events: Sequence[SupportsDrawn]) -> None:
        """More supports, the first of them on a tree that has the labels so far too."""
        self.texts |= texts
        self.newick = events[0].newick
        self.events += events


class Replicate(Protocol):
    """Searches for bootstrap replicates."""

    def __call__(
        self, plan: BootstrapPlan, newick: str
    ) -> tuple[dict[str, str], list[SupportsDrawn]]:
        """The texts of all files, and the supports, behind the labels of this tree."""


def draw_supports(
    plan: SupportPlan,
    ready: TreeSearch,
    found: TreeResult,
    seed: int,
    draw: Draw,
    replicate: Replicate,
    emit: Emit,
    keep: Callable[[Mapping[str, str]], object] = lambda _: None,
) -> SupportResult:
    """Compute what was asked for, tell of it, and keep it: what follows may take days.

    keep  writes texts by kind of file
    """
    problem = ready.problem
    supports = SupportResult(draw(found.mean_tree))
    if plan.tests and len(problem.taxa) >= MIN_TAXA:
        tested = plan.tests.of(ready.engines.exact, found.tree, found.model, problem.groups, seed)
        supports.newick = draw(found.mean_tree, tested.labels())
        supports.events = tested.events(supports.newick)
        for event in supports.events:
            emit(event)
        supports.texts = {SUPPORT: supports.newick + "\n", BRANCHES: tested.table(problem.taxa)}
        keep(supports.texts)
    if plan.ultrafast and len(ready.distinct.kept) >= MIN_TAXA:
        supports.add(*ultrafast_texts(plan.ultrafast, ready, found, supports.newick, seed, emit))
        keep(supports.texts)
    if plan.bootstrap:
        supports.add(*replicate(plan.bootstrap, supports.newick))
    return supports


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


def search_settings(options: SearchOptions) -> SearchSettings:
    """The preset's, with the user's changes."""
    settings = preset(options.preset)
    return settings.nni_only() if options.moves == "nni" else settings


def _expect(options: SearchOptions, problem: Problem) -> None:
    """Make sure that taxa, trees and the constraint are those of the data."""
    _outgroup(options.outgroup, problem.taxa)
    constraint = options.constraint
    groups = read_constraint(constraint, problem.taxa) if constraint else None
    if options.tree is not None:
        expect_starts(options.tree, problem.taxa, groups)
    if options.merge and options.chooses:
        check_mergeable(problem)
    if options.site_rates and not options.chooses:
        check_rates(problem.model)


def load_for_search(options: SearchOptions, emit: Emit, source: Source | None = None) -> Problem:
    """Read the data of a search; see :func:`.request.load`."""
    return load(options, emit, source, expect=partial(_expect, options), site_rates=True)


def _kinds(options: SearchOptions) -> list[str]:
    """Kinds of the output files beside the best tree and its model."""
    frequencies = [SITE_FREQUENCIES] * (options.guide_tree is not None)
    return [*SupportPlan.asked_by(options).kinds, *frequencies]


class WrittenSearch(NamedTuple):
    """A search that has ended."""

    ready: TreeSearch
    found: TreeResult
    supports: SupportResult


def run_search(
    options: SearchOptions, reporter: Reporter, notes: Sequence[str] = ()
) -> WrittenSearch:
    """Search, show the result, write the files; ``notes``: told when it begins."""
    plan, workspace = SupportPlan.asked_by(options), options.workspace
    if options.merge and not options.chooses:
        raise InputError("--merge goes with --model auto", hint="or `mltree model --merge`")
    models = choice_kinds(has_parts=True) if options.chooses else ()
    kinds = _kinds(options)
    every = (EVENTS, START, *RESULTS, PART_TREES, RATES, CHECKPOINT, LAST, *models, *kinds)
    workspace.check((LOG, REPORT, *every), options.inputs)
    expect_record(workspace.path(EVENTS))
    held = {*every, *OF_THE_TREE, BRANCHES} - {REPORT}  # a report may be drawn at any time
    with open_log(workspace.path(LOG), reporter) as log, workspace.held(held):
        resumes = not options.redo and is_there(workspace.path(CHECKPOINT))
        if not resumes:
            workspace.claim((*RESULTS, *kinds, *LOCI_KINDS), options.redo)
        reporter(RunStarted(__version__, options.line, options.seed))
        for note in notes:
            reporter(Notice(note))
        return _search(options, plan, log, resumes, reporter)


def _search(
    options: SearchOptions, plan: SupportPlan, log: RunLog, resumes: bool, reporter: Reporter
) -> WrittenSearch:
    """All of it, once the prefix is the run's own."""
    workspace = options.workspace
    problem = load_for_search(options, reporter)
    if options.chooses:
        problem = chosen(problem, options, reporter)
    taxa = problem.taxa
    outgroup = _outgroup(options.outgroup, taxa)
    layouts = Checkpoint.read_layouts(workspace.path(CHECKPOINT)) if resumes else None
    ready = _prepared(options, plan, problem, reporter, layouts)
    engines = ready.engines
    checkpoint = Checkpoint(
        workspace.path(CHECKPOINT),
        ready.fingerprint,
        ready.settings.checkpoints,
        engines.kept,
    )

    def draw(tree: Tree, labels: Mapping[int, str] | None = None) -> str:
        return write_newick(tree, taxa, outgroup=outgroup, collapse=options.collapse, labels=labels)

    run = Run.of(
        "search", options, problem, engines, reporter, kind=RESULT, record=EVENTS,
        resolved={"tree": options.tree or _asked(ready.starts)},
        starts=[start.origin for start in ready.starts],
        nni_only=options.moves == "nni",
        seed=options.seed,
        supports=plan.cited,
    )  # fmt: skip
    if options.chooses:
        run.methods = replace(run.methods, criterion=NAMES[criterion_of(workspace.path(TABLE))])
    if resumes:
        checkpoint.load(problem.model)  # one of another search ends the run before it writes
    run.begin(log, append=resumes)
    if current_ranks().size > 1 and problem.model.has_site_rates:
        reporter(Notice("rates of sites (+PSR) are searched under by rank 0 alone"))
    if not resumes:
        workspace.remove(CHECKPOINT)
        workspace.remove(LAST)
        if plan.bootstrap:
            drop_replicates(workspace)
        workspace.write({START: ready.start_text + "\n"})
    with on_signal(partial(_leave, options, checkpoint, lambda tree: draw(ready.whole(tree)), log)):
        settings = ready.settings
        patience = settings.perturbation.patience
        reporter(SearchPlanned(len(ready.starts), len(settings.phases), patience))
        found = ready.run(run, checkpoint, current_ranks())
        if options.outgroup and facing(found.tree, outgroup) is None:
            reporter(Notice("the outgroup does not stand together: drawn next to its first taxon"))
        supports, result = _deliver(options, plan, run, ready, found, draw, log)
        if options.report:
            page = write_report(workspace, reporter, alignment=options.alignment)
            reporter.say(f"Wrote {page}")
            result["files"][REPORT] = str(page)
        reporter.finish("search", result)
        return WrittenSearch(ready, found, supports)


def _prepared(
    options: SearchOptions,
    plan: SupportPlan,
    problem: Problem,
    emit: Emit,
    kept: KeptLayouts | None = None,
) -> TreeSearch:
    """The search that the options ask for, ready to run; ``kept``: a checkpoint's layouts."""
    return prepare_search(
        problem, search_settings(options), options.resources, seed=options.seed,
        starts=options.tree, constraint=options.constraint, kept=kept, replicates=plan.replicates,
        rows=plan.rows, emit=emit,
    )  # fmt: skip


def search_in_memory(options: SearchOptions, emit: Emit, source: Source) -> WrittenSearch:
    """Search as ``mltree search`` does, without a file.

    Raises:
        MltreeError: the data, the model, a tree or the device cannot be used.
    """
    plan = SupportPlan.asked_by(options)
    if options.merge and not options.chooses:
        raise InputError("merge=True goes with model='auto'", hint="or mltree.model")
    problem = load_for_search(options, emit, source)
    if options.chooses:
        problem = scheme_of(problem, options, emit).under_best
    ready = _prepared(options, plan, problem, emit)
    found = ready.run(emit)
    taxa = ready.problem.taxa
    outgroup = _outgroup(options.outgroup, taxa)

    def draw(tree: Tree, labels: Mapping[int, str] | None = None) -> str:
        return write_newick(tree, taxa, outgroup=outgroup, collapse=options.collapse, labels=labels)

    def replicate(plan: BootstrapPlan, newick: str) -> tuple[dict[str, str], list[SupportsDrawn]]:
        model = found.per_site or _as_written(options, found.model, ready.problem, source)
        settings = replicate_settings(options.moves == "nni")
        bootstrap = bootstrap_after(ready, model, settings, options.seed)
        return replicated_in_memory(bootstrap, plan, newick, emit)

    supports = draw_supports(plan, ready, found, options.seed, draw, replicate, emit)
    return WrittenSearch(ready, found, supports)


def _as_written(
    options: SearchOptions, model: PartitionModel, problem: Problem, source: Source
) -> PartitionModel:
    """The model with the digits of its file, under which a command's replicates are searched."""
    if problem.data is not None:
        return model
    text = model_text(model, problem).strip()
    return read_problem(source, text, options.data_type, options.linkage).model


def _stale(options: SearchOptions, texts: Mapping[str, str]) -> list[str]:
    """Kinds of an older run's files that are to go once results of these texts are written.

    There are some where --redo was asked for, now or before this run was stopped: then another tree
    is replaced.
    """
    workspace = options.workspace
    old = [kind for kind in (TREE, MODEL) if is_there(workspace.path(kind))]
    if not options.redo and all(workspace.holds(kind, texts[kind]) for kind in old):
        return []
    inputs = options.inputs
    asked = {*_kinds(options), *(choice_kinds(has_parts=True) if options.chooses else ())}
    kinds = [*OF_THE_TREE]
    for own, traces in OF_OTHERS:
        is_others = any(is_there(workspace.path(trace)) for trace in traces)
        kinds += [kind for kind in own if not is_others and kind not in asked]
    return [kind for kind in kinds if kind not in texts and not workspace.is_among(kind, inputs)]


def _deliver(
    options: SearchOptions,
    plan: SupportPlan,
    run: Run,
    ready: TreeSearch,
    found: TreeResult,
    draw: Draw,
    log: RunLog,
) -> tuple[SupportResult, dict[str, Any]]:
    """Compute the supports, write all files, show the result; returns both."""
    workspace, problem = options.workspace, ready.problem
    newick = draw(found.mean_tree)
    texts = {MODEL: model_text(found.model, problem), TREE: newick + "\n"}
    more = {PART_TREES: part_trees(found, problem), RATES: ""}
    if options.site_rates or found.per_site:
        more[RATES] = site_rates(ready.engines.exact, found, problem)
    texts |= {kind: text for kind, text in more.items() if text}
    if options.guide_tree is not None:
        texts |= frequencies_file(problem)
    old = _stale(options, texts)
    spent = [LAST, *(more.keys() - texts.keys())]
    if not plan.bootstrap:
        spent.append(CHECKPOINT)
    supports = SupportResult(newick)
    if plan.kinds:
        workspace.replace(texts, old)
        replicate = partial(_replicates, options, ready, log, run, found)
        supports = draw_supports(
            plan, ready, found, options.seed, draw, replicate, run.reporter, run.keep
        )
        run.support, run.supports = supports.newick, support_facts(supports.events)
        texts |= supports.texts
    else:
        spent += [kind for kind in old if kind != RESULT]
    models = choice_kinds(has_parts=problem.data is not None) if options.chooses else ()
    run.files += map(workspace.path, (START, *models))
    run.deliver(found, newick, texts, spent)
    return supports, run.conclude(found, newick)


def _replicates(
    options: SearchOptions,
    ready: TreeSearch,
    log: RunLog,
    run: Run,
    found: TreeResult,
    plan: BootstrapPlan,
    newick: str,
) -> tuple[dict[str, str], list[SupportsDrawn]]:
    """The bootstrap that follows, under the model as the search has written it.

    So ``mltree bootstrap`` can add to it, given that file. Under rates of sites, which no file has,
    the search itself can.
    """
    written = str(options.workspace.path(MODEL))
    model = found.per_site or (
        read_problem(options.alignment, written, options.data_type, options.linkage).model
    )
    settings = replicate_settings(options.moves == "nni")
    bootstrap = bootstrap_after(ready, model, settings, options.seed)
    best, before = read_labelled(newick)
    with Journal(options.workspace.path(JOURNAL)) as journal:
        if share_replicates(options, plan.left(journal), len(ready.problem.taxa)):
            run.reporter(Notice(current_ranks().text))
        texts, events, outcome = replicated(
            bootstrap, plan, journal, best, options, log, run.reporter, before
        )
    run(finished(outcome))
    return texts, events


def _asked(starts: Sequence[StartingTree]) -> str:
    """The value of ``--tree`` that asks for these starts: ``pars{6}``."""
    kinds = [start.origin.rpartition(" ")[0] for start in starts]
    words = {"parsimony": "pars", "random": "rand"}
    counts = {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}
    return ",".join(f"{words.get(kind, kind)}{{{count}}}" for kind, count in counts.items())


def _leave(
    options: SearchOptions, checkpoint: Checkpoint, draw: Callable[[Tree], str], log: RunLog
) -> ExitMessage:
    """Save what a search has found, in another thread than its own, and say how it goes on."""
    state = checkpoint.kept
    if state is None:
        return ExitMessage()
    said = []
    try:
        checkpoint.save(state)
        without = " without --redo" if options.redo else ""
        said.append(f"the same command{without} goes on from here")
    except InputError as error:
        said.append(error.message)
    if np.isfinite(state.best.lnl):
        text = draw(state.best.tree) + "\n"
        try:
            (path,) = options.workspace.write({LAST: text})
            said.append(f"the best tree so far, lnL {state.best.lnl:.3f}, is in {path}")
        except InputError as error:
            said += [error.message, text.strip()]
    log.close(f"stopped: {'; '.join(said)}\n")
    return ExitMessage("; ".join(said))


def _outgroup(names: str | None, taxa: Sequence[str]) -> list[int]:
    """Tips of the outgroup; the first taxon where none is named."""
    if names is None:
        return [0]
    index = {taxon: tip for tip, taxon in enumerate(taxa)}
    members = [name.strip() for name in names.split(",")]
    for name in members:
        if name not in index:
            raise InputError(f"outgroup: {name!r} is not in the alignment", taxon=name)
    return [index[name] for name in members]
