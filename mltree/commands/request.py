"""What every run shares: its request, its engine, its log and how it ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from mltree.alignment.patterns import Patterns
from mltree.alignment.source import expect_file
from mltree.device.timing import Breakdown
from mltree.engines import (
    copy_bandwidth,
    device_notices,
    is_exact,
    memory_plan,
    open_engine,
    open_exact,
    panel_notice,
)
from mltree.errors import InputError
from mltree.events import DeviceChosen, Notice, Unsaved
from mltree.likelihood.api import Likelihood
from mltree.likelihood.engine import Engine
from mltree.log import RunLog
from mltree.model.grammar import format_best_model, format_model
from mltree.model.substitution import Model
from mltree.outputs import Outputs
from mltree.report import tables
from mltree.report.progress import Reporter
from mltree.run import Problem
from mltree.settings import SearchSettings
from mltree.stopping import Farewell, last_word, parting, unbroken
from mltree.tree.newick import ascii_drawing, read_newick, write_newick
from mltree.tree.topology import Tree

__all__ = [
    "Request",
    "conclude",
    "deliver",
    "exactly",
    "model_line",
    "newick",
    "open_likelihood",
    "open_log",
    "read_tree",
]


@dataclass(frozen=True, kw_only=True)
class Request:
    """What every run needs to know."""

    alignment: str
    model: str | None
    datatype: str | None
    """``"dna"`` or ``"protein"``; what the data look like where None."""
    device: str | None
    mixed: bool
    memory_limit: int | None
    """Bytes that CLAs may take on a device."""
    vw: int | None
    """Patterns of a block; the device's own choice where None."""
    prefix: str | None
    redo: bool
    command: str

    @property
    def outputs(self) -> Outputs:
        """Where the run writes; without a prefix there must be an alignment to lie beside."""
        if self.prefix is None:
            expect_file(self.alignment)
        return Outputs.of(self.prefix, self.alignment)


@contextmanager
def open_log(path: Path, reporter: Reporter) -> Iterator[RunLog]:
    """The log of a run, which locks its prefix, while the run lasts."""
    with RunLog(path) as log, parting(partial(_abandon, log)):
        reporter.log_to(log)
        if not log.is_locked:
            reporter(Notice(f"{path.parent} has no locks: no other run may write {path.name}"))
        try:
            yield log
        finally:
            reporter.log_to(None)


def _abandon(log: RunLog) -> Farewell:
    """The end of a run that has nothing worth keeping yet."""
    log.close("stopped\n")
    return Farewell()


def open_likelihood(
    problem: Problem,
    patterns: Patterns,
    request: Request,
    settings: SearchSettings,
    trees: int | None,
    reporter: Reporter,
) -> Likelihood:
    """The likelihood of the patterns on the device that was asked for.

    ``trees``: that a search will have; None where one is evaluated.
    """
    bounds = settings.branches.bounds(patterns.n_sites)
    categories = problem.model.arrays().n_categories
    for text in device_notices(request.device):
        reporter(Notice(text))
    plan = memory_plan(
        patterns, categories, request.device, request.mixed, trees, request.vw,
        request.memory_limit,
    )  # fmt: skip
    if plan is not None:
        reporter(plan)
    engine = open_engine(
        patterns, categories, bounds, request.device, request.mixed, request.memory_limit, trees,
        request.vw,
    )  # fmt: skip
    reporter(DeviceChosen(engine.name))
    if (notice := panel_notice(engine)) is not None:
        reporter(Notice(notice))
    if not is_exact(engine) and not request.mixed:
        reporter(Notice("the device has no fp64: computes in mixed precision"))
    return Likelihood(engine, bounds)


def deliver(
    outputs: Outputs, texts: Mapping[str, str], reporter: Reporter, spent: Sequence[str] = ()
) -> list[Path]:
    """Write the results, all or none; from then on a stop changes nothing any more.

    ``spent``: kinds of files that are of no use beside them. Lines that cannot be written are shown
    instead, not to be lost.

    Raises:
        InputError: the results cannot be written.
    """
    with unbroken():
        try:
            files = outputs.write(texts)
        except InputError as error:
            for kind, text in texts.items():
                if text.count("\n") == 1:
                    reporter(Unsaved(str(outputs.path(kind)), text))
            hint = "results are printed instead; once it can be, the same command writes them"
            raise InputError(error.message, hint=hint) from error
        for kind in spent:
            outputs.remove(kind)
        last_word(Farewell("the results are written", 0))
    return files


def _exact_lnl(
    exact: Likelihood, tree: Tree, model: Model, mixed: float, reporter: Reporter
) -> float:
    """The lnL in fp64 of what was found in mixed precision, with a notice of the difference."""
    lnl = float(exact.log_likelihoods([tree], [model.arrays()])[0])
    reporter(Notice(f"scored again in fp64: lnL {lnl:.6f}, {lnl - mixed:+.1e} from fp32"))
    return lnl


def read_tree(path: str, problem: Problem, reporter: Reporter) -> Tree:
    """The tree in a file, with a notice of whatever had to be mended."""
    tree, notices = read_newick(path, problem.patterns.taxa)
    for notice in notices:
        reporter(Notice(f"{path}: {notice}"))
    return tree


def newick(tree: Tree, problem: Problem) -> str:
    """The tree in Newick, without the line's end."""
    return write_newick(tree, problem.patterns.taxa)


def model_line(model: Model, problem: Problem) -> str:
    """The content of a .bestModel file."""
    return format_best_model(model, problem.patterns.n_sites) + "\n"


def exactly(likelihood: Likelihood, problem: Problem, request: Request, model: Model) -> Likelihood:
    """The likelihood that results are reported from: in fp64, whatever they were found with."""
    if is_exact(likelihood.engine):
        return likelihood
    patterns = problem.patterns
    bounds = SearchSettings().branches.bounds(patterns.n_sites)
    categories = model.arrays().n_categories
    engine = open_exact(patterns, categories, bounds, request.device, request.memory_limit)
    return Likelihood(engine, bounds)


def conclude(
    likelihood: Likelihood,
    exact: Likelihood,
    problem: Problem,
    tree: Tree,
    model: Model,
    lnl: float,
    files: list[Path],
    reporter: Reporter,
) -> None:
    """Show what a run found, and where its time went; ``exact``: see :func:`exactly`."""
    patterns = problem.patterns
    engines = [likelihood.engine]
    if exact is not likelihood:
        lnl = _exact_lnl(exact, tree, model, lnl, reporter)
        engines.append(exact.engine)
    drawn = tables.is_drawn(patterns.n_tips, reporter.console.height)
    summary = tables.Summary(
        lnl=lnl,
        model=format_model(model),
        tree_length=float(tree.lengths.sum()),
        taxa=patterns.n_tips,
        drawing=ascii_drawing(tree, patterns.taxa) if drawn else "",
        files=tuple(map(str, files)),
    )
    reporter.say(tables.summary_text(summary))
    _say_times(engines, reporter)


def _say_times(engines: Sequence[Engine], reporter: Reporter) -> None:
    """Where the time of a run went, if its engines know."""
    wall, busy = reporter.elapsed, reporter.busy
    timed = [engine.breakdown() for engine in engines if isinstance(engine, tables.Timed)]
    if timed:
        spent = Breakdown.one_after_the_other(timed)
        reporter.say(tables.timing_table(spent, wall, busy, copy_bandwidth(spent)))
