"""``mltree search``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from mltree import __version__
from mltree.commands.request import (
    Request,
    conclude,
    model_line,
    newick,
    open_likelihood,
    open_log,
)
from mltree.device.calibration import keeping
from mltree.engines import is_exact
from mltree.errors import InputError
from mltree.events import Notice, RunStarted
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
from mltree.tree.newick import write_newick
from mltree.tree.splits import facing

__all__ = ["SearchRequest", "run_search"]

CHECKPOINT = "checkpoint"
"""Kind of the file that a search goes on from; gone when it has ended."""


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

    @property
    def starts(self) -> str:
        """Starting trees: as asked for, else as many as the preset has."""
        if self.tree is not None:
            return self.tree
        pars, rand = self.settings.parsimony_starts, self.settings.random_starts
        return f"pars{{{pars}}}" + (f",rand{{{rand}}}" if rand else "")


def run_search(request: SearchRequest, reporter: Reporter) -> None:
    """Search, show the result, write the files."""
    outputs = request.outputs
    resumes = _claim(request)
    reporter(RunStarted(__version__, request.command, request.seed))
    problem = load_problem(request.alignment, request.model, reporter)
    settings = request.settings.for_sites(problem.patterns.n_sites)
    taxa = problem.patterns.taxa
    constraint = read_constraint(request.constraint, taxa) if request.constraint else None
    outgroup = _outgroup(request.outgroup, taxa)
    distinct = _distinct(problem, constraint, reporter)
    trees = settings.parsimony_starts + settings.random_starts
    layouts = Checkpoint.read_layouts(outputs.path(CHECKPOINT))
    with keeping(layouts):
        likelihood = open_likelihood(problem, distinct.patterns, request, settings, trees, reporter)
    settings = settings.for_precision(is_exact(likelihood.engine))
    rng = np.random.default_rng(request.seed)
    starts = starting_trees(request.starts, distinct, taxa, constraint, rng, reporter)
    start_text = "\n".join(newick(distinct.restore(start.tree), problem) for start in starts)
    checkpoint = Checkpoint(
        outputs.path(CHECKPOINT),
        _fingerprint(problem, constraint, request, start_text, likelihood.engine.name),
        settings.checkpoint_interval,
        layouts,
    )
    with open_log(outputs.path("log"), reporter, append=resumes):
        files = [outputs.path("log"), outputs.write("startTree", start_text + "\n")]
        found = search(
            likelihood, starts, problem.model, settings, rng, reporter, checkpoint, constraint
        )
        tree = distinct.restore(found.tree)
        files.append(outputs.write("bestModel", model_line(found.model, problem)))
        if request.outgroup and facing(tree, outgroup) is None:
            reporter(Notice("the outgroup does not stand together: drawn next to its first taxon"))
        text = write_newick(tree, taxa, outgroup=outgroup, collapse=request.collapse)
        files.append(outputs.write("bestTree", text + "\n"))
        checkpoint.remove()
        conclude(likelihood, problem, request, tree, found.model, found.lnl, files, reporter)


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


def _claim(request: SearchRequest) -> bool:
    """Make sure that the files can be written; whether an earlier search goes on.

    A start tree and a log without a result are what a run that failed left: not worth a --redo.
    """
    outputs = request.outputs
    checkpoint = outputs.path(CHECKPOINT)
    if request.redo:
        checkpoint.unlink(missing_ok=True)
    outputs.claim(("bestTree", "bestModel"), request.redo)
    return checkpoint.exists()


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
