"""``mltree bootstrap``, and the bootstrap that follows a search."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from mltree import __version__
from mltree.commands.processes import share_replicates
from mltree.commands.request import Request, begin_log, open_log, show_times
from mltree.commands.results import by_kind, command_result, deliver, result_text
from mltree.commands.trees import (
    CONSENSUS_FILES,
    SUPPORT_KINDS,
    consensus_texts,
    first_tree,
    support_facts,
    support_kinds,
    support_texts,
)
from mltree.errors import InputError
from mltree.events import Notice, ignore
from mltree.events.run import RunStarted
from mltree.events.trees import BootstrapFinished, SupportsDrawn
from mltree.given_trees import read_tree
from mltree.log import RunLog
from mltree.outputs import Outputs
from mltree.problem import Problem
from mltree.ranks import here
from mltree.report.progress import Reporter
from mltree.runs.bootstrap import Bootstrap, Outcome, prepare_bootstrap
from mltree.runs.journal import Journal
from mltree.search.constraint_tree import read_constraint
from mltree.search.saving import Saving
from mltree.settings import REPLICATE, SearchSettings
from mltree.stopping import Farewell, parting
from mltree.supports.bootstop import STEP
from mltree.supports.consensus import Consensus
from mltree.tree.clades import Clades
from mltree.tree.newick_clades import read_clades
from mltree.values import Value

__all__ = [
    "BOOTSTRAPS",
    "JOURNAL",
    "BootstrapRequest",
    "Wanted",
    "bootstrap_kinds",
    "drop_replicates",
    "finished",
    "replicate_settings",
    "replicated",
    "run_bootstrap",
]

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
        show_times(bootstrap.computation, reporter)
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
