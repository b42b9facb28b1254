"""``mltree search``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from mltree import __version__
from mltree.analyses.bootstrap import (
    BOOTSTRAPS,
    JOURNAL,
    Wanted,
    bootstrap_after,
    bootstrap_kinds,
    drop_replicates,
    finished,
    replicate_settings,
    replicated,
)
from mltree.analyses.evaluate import check_rates, site_rates
from mltree.analyses.model_selection import (
    TABLE,
    check_mergeable,
    choice_kinds,
    chosen,
    criterion_of,
)
from mltree.analyses.report import REPORT, write_report
from mltree.analyses.tree_tests import BRANCHES, LocalTests
from mltree.analyses.trees import CONSENSUS_FILES, SUPPORT_KINDS, support_facts
from mltree.analyses.ufboot import ULTRAFAST_KINDS, WantedUltrafast, ultrafast_texts
from mltree.data.alignments import MIN_TAXA
from mltree.fit.settings import SearchSettings, preset
from mltree.models.partitioned import Linkage
from mltree.report.lines import NAMES
from mltree.report.progress import Reporter
from mltree.report.record import expect_record
from mltree.runs.demand import RowCounts
from mltree.runs.problem import Problem, is_choice, read_problem
from mltree.runs.request import (
    LOCI_KINDS,
    Request,
    Run,
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
from mltree.system.ranks import here
from mltree.system.signals import Farewell, parting
from mltree.system.values import Value
from mltree.tree.clades import read_labelled
from mltree.tree.newick import write_newick
from mltree.tree.splits import facing
from mltree.tree.topology import Tree
from mltree.treesearch.checkpoint import Checkpoint
from mltree.treesearch.constraint import read_constraint
from mltree.treesearch.driver import StartingTree

# What a search says of the branches of the tree that it has found: tests of them, replicates.

MODEL, SUPPORT = "bestModel", "support"
"""Kinds of the files with the search's model, and with the best tree and all its labels."""


class Supports(Value):
    """What is asked for."""

    tests: LocalTests | None = None
    bootstrap: Wanted | None = None
    ultrafast: WantedUltrafast | None = None

    @property
    def kinds(self) -> list[str]:
        """Of all files that are written for them.

        Raises:
            InputError: there is no such metric.
        """
        every = [SUPPORT, BRANCHES] if self.tests else []
        every += [SUPPORT, *ULTRAFAST_KINDS] if self.ultrafast else []
        return [*every, *(bootstrap_kinds(self.bootstrap) if self.bootstrap else ())]

    @property
    def cited(self) -> dict[str, int | None]:
        """What a methods paragraph tells of, in the order of labels, with the replicates it takes.

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
class Drawn:
    """What was found."""

    newick: str
    """The best tree with every label but those of a second metric."""
    texts: dict[str, str] = field(default_factory=dict)
    """By kind of file."""
    told: list[SupportsDrawn] = field(default_factory=list)

    def add(self, texts: Mapping[str, str], told: Sequence[SupportsDrawn]) -> None:
        """More supports, the first of them on a tree that has the labels so far too."""
        self.texts |= texts
        self.newick = told[0].newick
        self.told += told


class Replicate(Protocol):
    """Searches for bootstrap replicates."""

    def __call__(self, wanted: Wanted, newick: str) -> tuple[dict[str, str], list[SupportsDrawn]]:
        """The texts of all files, and the supports, behind the labels of this tree."""


def draw_supports(
    asked: Supports,
    ready: TreeSearch,
    found: TreeResult,
    seed: int,
    draw: Draw,
    replicate: Replicate,
    emit: Emit,
    keep: Callable[[Mapping[str, str]], object] = lambda _: None,
) -> Drawn:
    """Compute what was asked for, tell of it, and keep it: what follows may take days.

    keep  writes texts by kind of file
    """
    problem = ready.problem
    drawn = Drawn(draw(found.mean_tree))
    if asked.tests and len(problem.taxa) >= MIN_TAXA:
        tested = asked.tests.of(ready.engines.exact, found.tree, found.model, problem.groups, seed)
        drawn.newick = draw(found.mean_tree, tested.labels())
        drawn.told = tested.events(drawn.newick)
        for event in drawn.told:
            emit(event)
        drawn.texts = {SUPPORT: drawn.newick + "\n", BRANCHES: tested.table(problem.taxa)}
        keep(drawn.texts)
    if asked.ultrafast and len(ready.distinct.kept) >= MIN_TAXA:
        drawn.add(*ultrafast_texts(asked.ultrafast, ready, found, drawn.newick, seed, emit))
        keep(drawn.texts)
    if asked.bootstrap:
        drawn.add(*replicate(asked.bootstrap, drawn.newick))
    return drawn


LOG, EVENTS, START, TREE = "log", "events", "startTree", "bestTree"
PART_TREES, RATES, RESULT = "bestPartitionTrees", "rate", "json"
"""Kinds of the files that a search leaves; its report is drawn from its events. Those that a run
without a result left, because it failed, are not worth a --redo."""

RESULTS = (MODEL, TREE, RESULT)

CHECKPOINT, LAST = "checkpoint", "lastTree"
"""What a search goes on from, and the best tree when it was stopped; gone when it has ended. As
long as there is a checkpoint, results are an older run's, or half of this one's, or replicates can
be added to them."""

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


class SearchRequest(Request, kw_only=True):
    """``mltree search``."""

    seed: int
    merge: bool = False
    """Whether parts are put together where models are chosen."""
    tree: str | None
    preset: str
    nni_only: bool
    constraint: str | None
    outgroup: str | None
    collapse: float | None
    supports: Supports
    """Of the branches of the best tree."""
    report: bool
    """Whether the result is drawn as a page as well."""
    site_rates: bool = False
    """Whether the rates of sites are written; those of +PSR are."""
    notes: tuple[str, ...] = ()
    """What is told of it when it begins."""

    @property
    def chooses(self) -> bool:
        """Whether the models are to be chosen."""
        return is_choice(self.model)

    @property
    def finds_site_rates(self) -> bool:
        """They are found between its rounds."""
        return True

    @property
    def settings(self) -> SearchSettings:
        """The preset's, with the user's changes."""
        settings = preset(self.preset)
        return settings.nni_only() if self.nni_only else settings

    @property
    def inputs(self) -> list[str]:
        """What may name files, beside the alignment and the model."""
        return [self.tree or "", self.constraint or ""]

    @property
    def kinds(self) -> list[str]:
        """Kinds of the output files beside the best tree and its model.

        Raises:
            InputError: there is no such metric.
        """
        frequencies = [SITE_FREQUENCIES] if self.site_frequencies.guide else []
        return [*self.supports.kinds, *frequencies]

    def expect(self, problem: Problem) -> None:
        """Make sure that taxa, trees and the constraint are those of the data."""
        _outgroup(self.outgroup, problem.taxa)
        groups = read_constraint(self.constraint, problem.taxa) if self.constraint else None
        if self.tree is not None:
            expect_starts(self.tree, problem.taxa, groups)
        if self.merge and self.chooses:
            check_mergeable(problem)
        if self.site_rates and not self.chooses:
            check_rates(problem.model)


class Searched(NamedTuple):
    """What a search has found and written."""

    ready: TreeSearch
    found: TreeResult
    drawn: Drawn
    """Its supports."""


def run_search(request: SearchRequest, reporter: Reporter) -> Searched:
    """Search, show the result, write the files."""
    outputs = request.outputs
    if request.merge and not request.chooses:
        raise InputError("--merge goes with --model auto", hint="or `mltree model --merge`")
    models = choice_kinds(has_parts=True) if request.chooses else ()
    every = (EVENTS, START, *RESULTS, PART_TREES, RATES, CHECKPOINT, LAST, *models, *request.kinds)
    outputs.check((LOG, REPORT, *every), [*request.files, *request.inputs])
    expect_record(outputs.path(EVENTS))
    held = {*every, *OF_THE_TREE, BRANCHES} - {REPORT}  # a report may be drawn at any time
    with open_log(outputs.path(LOG), reporter) as log, outputs.held(held):
        resumes = not request.redo and is_there(outputs.path(CHECKPOINT))
        if not resumes:
            outputs.claim((*RESULTS, *request.kinds, *LOCI_KINDS), request.redo)
        return _search(request, log, resumes, reporter)


def _search(request: SearchRequest, log: RunLog, resumes: bool, reporter: Reporter) -> Searched:
    """All of it, once the prefix is the run's own."""
    outputs = request.outputs
    problem = _begin(request, reporter)
    if request.chooses:
        problem = chosen(problem, request, request.seed, request.merge, reporter)
    taxa = problem.taxa
    outgroup = _outgroup(request.outgroup, taxa)
    layouts = Checkpoint.read_layouts(outputs.path(CHECKPOINT)) if resumes else None
    ready = prepare_search(
        problem, request.settings, request.resources, seed=request.seed, starts=request.tree,
        constraint=request.constraint, kept=layouts,
        replicates=request.supports.replicates, rows=request.supports.rows, emit=reporter,
    )  # fmt: skip
    engines = ready.engines
    checkpoint = Checkpoint(
        outputs.path(CHECKPOINT), ready.fingerprint, ready.settings.checkpoints, engines.kept
    )

    def draw(tree: Tree, labels: Mapping[int, str] | None = None) -> str:
        return write_newick(tree, taxa, outgroup=outgroup, collapse=request.collapse, labels=labels)

    run = Run.of(
        "search", request, problem, engines, reporter, kind=RESULT, record=EVENTS,
        inputs=request.inputs,
        resolved={"tree": request.tree or _asked(ready.starts)},
        starts=[start.origin for start in ready.starts],
        nni_only=request.nni_only,
        seed=request.seed,
        supports=request.supports.cited,
    )  # fmt: skip
    if request.chooses:
        run.methods = replace(run.methods, criterion=NAMES[criterion_of(outputs.path(TABLE))])
    if resumes:
        checkpoint.load(problem.model)  # one of another search ends the run before it writes
    run.begin(log, append=resumes)
    if here().size > 1 and problem.model.has_site_rates:
        reporter(Notice("rates of sites (+PSR) are searched under by rank 0 alone"))
    if not resumes:
        outputs.remove(CHECKPOINT)
        outputs.remove(LAST)
        if request.supports.bootstrap:
            drop_replicates(outputs)
        outputs.write({START: ready.start_text + "\n"})
    with parting(partial(_leave, request, checkpoint, lambda tree: draw(ready.whole(tree)), log)):
        settings = ready.settings
        patience = settings.perturbation.patience
        reporter(SearchPlanned(len(ready.starts), len(settings.phases), patience))
        found = ready.run(run, checkpoint, here())
        if request.outgroup and facing(found.tree, outgroup) is None:
            reporter(Notice("the outgroup does not stand together: drawn next to its first taxon"))
        drawn, result = _deliver(request, run, ready, found, draw, log)
        if request.report:
            page = write_report(outputs, reporter, alignment=request.alignment)
            reporter.say(f"Wrote {page}")
            result["files"][REPORT] = str(page)
        reporter.finish("search", result)
        return Searched(ready, found, drawn)


def _begin(request: SearchRequest, reporter: Reporter) -> Problem:
    """Tell what is done, and read the data."""
    reporter(RunStarted(__version__, request.command, request.seed))
    for note in request.notes:
        reporter(Notice(note))
    return request.load(reporter)


def _stale(request: SearchRequest, texts: Mapping[str, str]) -> list[str]:
    """Kinds of an older run's files that are to go once results of these texts are written.

    There are some where --redo was asked for, now or before this run was stopped: then another tree
    is replaced.
    """
    outputs = request.outputs
    old = [kind for kind in (TREE, MODEL) if is_there(outputs.path(kind))]
    if not request.redo and all(outputs.holds(kind, texts[kind]) for kind in old):
        return []
    inputs = [*request.files, *request.inputs]
    asked = {*request.kinds, *(choice_kinds(has_parts=True) if request.chooses else ())}
    kinds = [*OF_THE_TREE]
    for own, traces in OF_OTHERS:
        is_others = any(is_there(outputs.path(trace)) for trace in traces)
        kinds += [kind for kind in own if not is_others and kind not in asked]
    return [kind for kind in kinds if kind not in texts and not outputs.is_among(kind, inputs)]


def _deliver(
    request: SearchRequest, run: Run, ready: TreeSearch, found: TreeResult, draw: Draw, log: RunLog
) -> tuple[Drawn, dict[str, Any]]:
    """Compute the supports, write all files, show the result; returns both."""
    outputs, problem = request.outputs, ready.problem
    newick = draw(found.mean_tree)
    texts = {MODEL: model_text(found.model, problem), TREE: newick + "\n"}
    more = {PART_TREES: part_trees(found, problem), RATES: ""}
    if request.site_rates or found.per_site:
        more[RATES] = site_rates(ready.engines.exact, found, problem)
    texts |= {kind: text for kind, text in more.items() if text}
    if request.site_frequencies.guide is not None:
        texts |= frequencies_file(problem)
    old = _stale(request, texts)
    spent = [LAST, *(more.keys() - texts.keys())]
    if not request.supports.bootstrap:
        spent.append(CHECKPOINT)
    drawn = Drawn(newick)
    if request.supports.kinds:
        outputs.replace(texts, old)
        replicate = partial(_replicates, request, ready, log, run, found)
        drawn = draw_supports(
            request.supports, ready, found, request.seed, draw, replicate,
            run.reporter, run.keep,
        )  # fmt: skip
        run.support, run.supports = drawn.newick, support_facts(drawn.told)
        texts |= drawn.texts
    else:
        spent += [kind for kind in old if kind != RESULT]
    models = choice_kinds(has_parts=problem.data is not None) if request.chooses else ()
    run.files += map(outputs.path, (START, *models))
    run.deliver(found, newick, texts, spent)
    return drawn, run.conclude(found, newick)


def _replicates(
    request: SearchRequest,
    ready: TreeSearch,
    log: RunLog,
    run: Run,
    found: TreeResult,
    wanted: Wanted,
    newick: str,
) -> tuple[dict[str, str], list[SupportsDrawn]]:
    """The bootstrap that follows, under the model as the search has written it.

    So ``mltree bootstrap`` can add to it, given that file. Under rates of sites, which no file has,
    the search itself can.
    """
    written = str(request.outputs.path(MODEL))
    linkage = Linkage(request.linkage)
    model = found.per_site or (
        read_problem(request.alignment, written, request.datatype, linkage).model
    )
    settings = replicate_settings(request.nni_only)
    bootstrap = bootstrap_after(ready, model, settings, request.seed)
    best, before = read_labelled(newick)
    with Journal(request.outputs.path(JOURNAL)) as journal:
        if share_replicates(request, wanted.left(journal), len(ready.problem.taxa)):
            run.reporter(Notice(here().text))
        texts, told, outcome = replicated(
            bootstrap, wanted, journal, best, request, log, run.reporter, before
        )
    run(finished(outcome))
    return texts, told


def _asked(starts: Sequence[StartingTree]) -> str:
    """What ``--tree`` would have asked for these starts by: ``pars{6}``."""
    kinds = [start.origin.rpartition(" ")[0] for start in starts]
    words = {"parsimony": "pars", "random": "rand"}
    counts = {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}
    return ",".join(f"{words.get(kind, kind)}{{{count}}}" for kind, count in counts.items())


def _leave(
    request: SearchRequest, checkpoint: Checkpoint, draw: Callable[[Tree], str], log: RunLog
) -> Farewell:
    """Save what a search has found, in another thread than its own, and say how it goes on."""
    state = checkpoint.kept
    if state is None:
        return Farewell()
    said = []
    try:
        checkpoint.save(state)
        without = " without --redo" if request.redo else ""
        said.append(f"the same command{without} goes on from here")
    except InputError as error:
        said.append(error.message)
    if np.isfinite(state.best.lnl):
        text = draw(state.best.tree) + "\n"
        try:
            (path,) = request.outputs.write({LAST: text})
            said.append(f"the best tree so far, lnL {state.best.lnl:.3f}, is in {path}")
        except InputError as error:
            said += [error.message, text.strip()]
    log.close(f"stopped: {'; '.join(said)}\n")
    return Farewell("; ".join(said))


def _outgroup(names: str | None, taxa: Sequence[str]) -> list[int]:
    """Tips of the outgroup; the first taxon where none is named."""
    if names is None:
        return [0]
    index = {taxon: tip for tip, taxon in enumerate(taxa)}
    wanted = [name.strip() for name in names.split(",")]
    for name in wanted:
        if name not in index:
            raise InputError(f"outgroup: {name!r} is not in the alignment", taxon=name)
    return [index[name] for name in wanted]
