"""``mltree search``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from mltree import __version__
from mltree.commands.request import Request, conclude, deliver, model_line, open_log
from mltree.errors import InputError
from mltree.events import Notice, RunStarted
from mltree.log import RunLog
from mltree.problem import load_problem
from mltree.report.progress import Reporter
from mltree.run import prepare_search
from mltree.search.checkpoint import Checkpoint
from mltree.settings import SearchSettings, preset
from mltree.stopping import Farewell, parting
from mltree.tree.newick import write_newick
from mltree.tree.splits import facing
from mltree.tree.topology import Tree

__all__ = ["SearchRequest", "run_search"]

LOG, START, MODEL, TREE = "log", "startTree", "bestModel", "bestTree"
"""Kinds of the files that a search leaves. A log and a start tree without a result are what a run
that failed left: not worth a --redo."""

RESULTS = (MODEL, TREE)

CHECKPOINT, LAST = "checkpoint", "lastTree"
"""What a search goes on from, and the best tree when it was stopped; gone when it has ended. As
long as there is a checkpoint, results are an older run's, or half of this one's."""


@dataclass(frozen=True, kw_only=True)
class SearchRequest(Request):
    """``mltree search``."""

    seed: int
    tree: str | None
    preset: str
    nni_only: bool
    constraint: str | None
    outgroup: str | None
    collapse: float | None

    @property
    def settings(self) -> SearchSettings:
        """The preset's, with the user's changes."""
        settings = preset(self.preset)
        return settings.nni_only() if self.nni_only else settings


def run_search(request: SearchRequest, reporter: Reporter) -> None:
    """Search, show the result, write the files."""
    outputs = request.outputs
    outputs.check((LOG, START, *RESULTS, CHECKPOINT, LAST))
    with open_log(outputs.path(LOG), reporter) as log:
        resumes = not request.redo and outputs.path(CHECKPOINT).exists()
        if not resumes:
            outputs.claim(RESULTS, request.redo)
        _search(request, log, resumes, reporter)


def _search(request: SearchRequest, log: RunLog, resumes: bool, reporter: Reporter) -> None:
    """All of it, once the prefix is the run's own."""
    outputs = request.outputs
    reporter(RunStarted(__version__, request.command, request.seed))
    problem = load_problem(request.alignment, request.model, reporter, request.datatype)
    taxa = problem.patterns.taxa
    outgroup = _outgroup(request.outgroup, taxa)
    layouts = Checkpoint.read_layouts(outputs.path(CHECKPOINT)) if resumes else None
    ready = prepare_search(
        problem, request.settings, request.resources, seed=request.seed, starts=request.tree,
        constraint=request.constraint, kept=layouts, emit=reporter,
    )  # fmt: skip
    computation = ready.computation
    checkpoint = Checkpoint(
        outputs.path(CHECKPOINT),
        ready.fingerprint,
        ready.settings.checkpoints,
        computation.placement.kept,
    )

    def draw(tree: Tree) -> str:
        return write_newick(tree, taxa, outgroup=outgroup, collapse=request.collapse)

    log.begin(append=resumes)
    if not resumes:
        outputs.remove(CHECKPOINT)
        outputs.remove(LAST)
        outputs.write({START: ready.start_text + "\n"})
    restore = ready.distinct.restore
    with parting(partial(_leave, request, checkpoint, lambda tree: draw(restore(tree)), log)):
        found = ready.run(reporter, checkpoint)
        if request.outgroup and facing(found.tree, outgroup) is None:
            reporter(Notice("the outgroup does not stand together: drawn next to its first taxon"))
        newick = draw(found.tree)
        texts = {MODEL: model_line(found.model, problem), TREE: newick + "\n"}
        files = [log.path, outputs.path(START)]
        files += deliver(outputs, texts, reporter, spent=(CHECKPOINT, LAST))
        conclude(computation, found, newick, files, reporter)


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
