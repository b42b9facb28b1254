"""``mltree search``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial

import numpy as np

from mltree import __version__
from mltree.commands.request import (
    Request,
    conclude,
    deliver,
    exactly,
    model_line,
    newick,
    open_likelihood,
    open_log,
)
from mltree.device.calibration import keeping
from mltree.engines import is_exact
from mltree.errors import InputError
from mltree.events import Notice, RunStarted
from mltree.log import RunLog
from mltree.model.grammar import format_model
from mltree.report.progress import Reporter
from mltree.report.tables import listed
from mltree.run import Problem, load_problem
from mltree.search.checkpoint import Checkpoint, fingerprint
from mltree.search.constraint import Constraint
from mltree.search.constraint_tree import read_constraint
from mltree.search.driver import search
from mltree.search.duplicates import Collapsed, collapse
from mltree.settings import SearchSettings, preset
from mltree.starts import starting_trees
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

    def starts(self, settings: SearchSettings) -> str:
        """Starting trees: as asked for, else as many as the settings have."""
        if self.tree is not None:
            return self.tree
        pars, rand = settings.parsimony_starts, settings.random_starts
        return f"pars{{{pars}}}" + (f",rand{{{rand}}}" if rand else "")


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
    settings = request.settings.for_data(problem.patterns.n_tips, problem.patterns.n_sites)
    taxa = problem.patterns.taxa
    constraint = read_constraint(request.constraint, taxa) if request.constraint else None
    outgroup = _outgroup(request.outgroup, taxa)
    distinct = _distinct(problem, constraint, reporter)
    layouts = Checkpoint.read_layouts(outputs.path(CHECKPOINT)) if resumes else {}
    with keeping(layouts):
        likelihood = open_likelihood(
            problem, distinct.patterns, request, settings, settings.most_trees, reporter
        )
    settings = settings.for_precision(is_exact(likelihood.engine))
    rng = np.random.default_rng(request.seed)
    starts = starting_trees(request.starts(settings), distinct, taxa, constraint, rng, reporter)
    start_text = "\n".join(newick(distinct.restore(start.tree), problem) for start in starts)
    checkpoint = Checkpoint(
        outputs.path(CHECKPOINT),
        _fingerprint(problem, constraint, request, start_text, likelihood.engine.name),
        settings.checkpoints,
        layouts,
    )

    def draw(tree: Tree) -> str:
        shown = distinct.restore(tree)
        return write_newick(shown, taxa, outgroup=outgroup, collapse=request.collapse) + "\n"

    log.begin(append=resumes)
    if not resumes:
        outputs.remove(CHECKPOINT)
        outputs.remove(LAST)
        outputs.write({START: start_text + "\n"})
    with parting(partial(_leave, request, checkpoint, draw, log)):
        found = search(
            likelihood, starts, problem.model, settings, rng, reporter, checkpoint, constraint
        )
        tree = distinct.restore(found.tree)
        if request.outgroup and facing(tree, outgroup) is None:
            reporter(Notice("the outgroup does not stand together: drawn next to its first taxon"))
        texts = {MODEL: model_line(found.model, problem), TREE: draw(found.tree)}
        files = [log.path, outputs.path(START)]
        files += deliver(outputs, texts, reporter, spent=(CHECKPOINT, LAST))
        exact = exactly(likelihood, problem, request, found.model)
        conclude(likelihood, exact, problem, tree, found.model, found.lnl, files, reporter)


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
        text = draw(state.best.tree)
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


def _distinct(problem: Problem, constraint: Constraint | None, reporter: Reporter) -> Collapsed:
    """The alignment without copies of sequences; with them all where a constraint names them."""
    patterns = problem.patterns
    if constraint is not None:
        nothing = np.empty(0, np.int32)
        return Collapsed(patterns, np.arange(patterns.n_tips, dtype=np.int32), nothing, nothing)
    distinct = collapse(patterns)
    if distinct.copies.size:
        reporter(Notice(_copies_text(distinct, patterns.taxa)))
    return distinct


def _copies_text(distinct: Collapsed, taxa: Sequence[str]) -> str:
    pairs = zip(distinct.copies.tolist(), distinct.models.tolist(), strict=True)
    named = listed([f"{taxa[copy]} = {taxa[model]}" for copy, model in pairs])
    return f"sequences that occur twice are searched once and put back at the end: {named}"


def _fingerprint(
    problem: Problem,
    constraint: Constraint | None,
    request: SearchRequest,
    starts: str,
    engine: str,
) -> str:
    """What a checkpoint must agree with: everything that decides how the search goes."""
    patterns = problem.patterns
    return fingerprint(
        __version__,
        engine,
        "\n".join(patterns.taxa),
        patterns.codes.tobytes(),
        patterns.weights.tobytes(),
        format_model(problem.model),
        starts,
        b"" if constraint is None else constraint.one.tobytes() + constraint.other.tobytes(),
        str(request.seed),
        repr(asdict(request.settings)),
    )
