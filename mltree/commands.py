"""What each command does: requests in, results shown and written. No option parsing here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from rich.console import Console

from mltree import __version__
from mltree.alignment.checks import summarise
from mltree.alignment.patterns import Patterns
from mltree.compare import is_close, score_everywhere, self_test
from mltree.device.discovery import NO_DEVICE_HINT, choose_device, find_devices
from mltree.engines import is_exact, memory_need, open_engine, open_exact
from mltree.errors import DeviceError, NumericalError
from mltree.events import DeviceChosen, Notice, RunStarted
from mltree.likelihood.api import Likelihood
from mltree.likelihood.engine import Engine
from mltree.model.grammar import format_best_model, format_model
from mltree.model.substitution import Model
from mltree.outputs import Outputs
from mltree.report import tables
from mltree.report.progress import Reporter
from mltree.run import Problem, evaluate, load_problem
from mltree.search.checkpoint import Checkpoint, fingerprint
from mltree.search.driver import search
from mltree.search.duplicates import Collapsed, collapse
from mltree.settings import SearchSettings, preset
from mltree.starts import starting_trees
from mltree.tree.newick import ascii_drawing, read_newick, write_newick
from mltree.tree.topology import Tree

__all__ = ["EvaluateRequest", "SearchRequest", "run_evaluate", "run_search", "show_check"]


MIXED_STEP = 1e-3
"""Log units: forward difference on model parameters where lnL are noisy by some 1e-5."""

CHECKPOINT = "checkpoint"
"""Kind of the file that a search goes on from; gone when it has ended."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What every run needs to know."""

    alignment: str
    model: str | None
    device: str | None
    mixed: bool
    prefix: str | None
    redo: bool
    command: str

    @property
    def outputs(self) -> Outputs:
        """Where the run writes."""
        return Outputs.of(self.prefix, self.alignment)


@dataclass(frozen=True, kw_only=True)
class SearchRequest(Request):
    """``mltree search``."""

    seed: int
    tree: str | None
    preset: str
    nni_only: bool

    @property
    def settings(self) -> SearchSettings:
        """The preset's, with the user's changes."""
        settings = preset(self.preset)
        if self.mixed:
            settings = replace(settings, model=replace(settings.model, step=MIXED_STEP))
        return settings.nni_only() if self.nni_only else settings

    @property
    def starts(self) -> str:
        """Starting trees: as asked for, else as many as the preset has."""
        if self.tree is not None:
            return self.tree
        pars, rand = self.settings.parsimony_starts, self.settings.random_starts
        return f"pars{{{pars}}}" + (f",rand{{{rand}}}" if rand else "")


@dataclass(frozen=True, kw_only=True)
class EvaluateRequest(Request):
    """``mltree evaluate``."""

    tree: str
    optimise_model: bool
    optimise_branches: bool
    site_lnl: bool


def run_search(request: SearchRequest, reporter: Reporter) -> None:
    """Search, show the result, write the files."""
    outputs, settings = request.outputs, request.settings
    resumes = _claim(request)
    reporter(RunStarted(__version__, request.command, request.seed))
    problem = load_problem(request.alignment, request.model, reporter)
    distinct = collapse(problem.patterns)
    if distinct.copies.size:
        reporter(Notice(_copies_text(distinct, problem.patterns.taxa)))
    likelihood = _open(problem, distinct.patterns, request, settings, reporter)
    rng = np.random.default_rng(request.seed)
    starts = starting_trees(request.starts, distinct, problem.patterns.taxa, rng, reporter)
    start_text = "\n".join(_newick(distinct.restore(start.tree), problem) for start in starts)
    checkpoint = Checkpoint(
        outputs.path(CHECKPOINT),
        _fingerprint(problem, request, start_text, likelihood.engine.name),
        settings.checkpoint_interval,
    )
    with _log(outputs, reporter, append=resumes):
        files = [outputs.path("log"), outputs.write("startTree", start_text + "\n")]
        found = search(
            likelihood, starts, problem.model, settings, rng, reporter, checkpoint=checkpoint
        )
        tree = distinct.restore(found.tree)
        files.append(outputs.write("bestModel", _model_line(found.model, problem)))
        files.append(outputs.write("bestTree", _newick(tree, problem) + "\n"))
        checkpoint.remove()
        lnl = found.lnl
        if not is_exact(likelihood.engine):
            lnl = _exact_lnl(problem, request, tree, found.model, lnl, reporter)
        _conclude(tree, found.model, lnl, problem, files, reporter)
        _show_times(likelihood.engine, reporter)


def _claim(request: SearchRequest) -> bool:
    """Make sure that the files can be written; whether an earlier search goes on."""
    outputs = request.outputs
    checkpoint = outputs.path(CHECKPOINT)
    if request.redo:
        checkpoint.unlink(missing_ok=True)
    resumes = checkpoint.exists()
    unfinished = () if resumes else ("startTree", "log")
    outputs.claim(("bestTree", "bestModel", *unfinished), request.redo)
    return resumes


def _copies_text(distinct: Collapsed, taxa: Sequence[str]) -> str:
    pairs = zip(distinct.copies.tolist(), distinct.models.tolist(), strict=True)
    named = tables.listed([f"{taxa[copy]} = {taxa[model]}" for copy, model in pairs])
    return f"sequences that occur twice are searched once and put back at the end: {named}"


def run_evaluate(request: EvaluateRequest, reporter: Reporter) -> None:
    """Evaluate a tree, show the result, write the files."""
    outputs = request.outputs
    kinds = ["evalTree", "evalModel", "log", *(["siteLnL"] if request.site_lnl else [])]
    outputs.claim(kinds, request.redo)
    reporter(RunStarted(__version__, request.command))
    problem = load_problem(request.alignment, request.model, reporter)
    tree = _read_tree(request.tree, problem, reporter)
    likelihood = _open(problem, problem.patterns, request, SearchSettings(), reporter)
    with _log(outputs, reporter):
        tree, model, lnl = evaluate(
            likelihood,
            tree,
            problem.model,
            reporter,
            optimise_parameters=request.optimise_model,
            optimise_lengths=request.optimise_branches,
        )
        files = [
            outputs.path("log"),
            outputs.write("evalModel", _model_line(model, problem)),
            outputs.write("evalTree", _newick(tree, problem) + "\n"),
        ]
        if request.site_lnl:
            sites = likelihood.site_log_likelihoods(tree, model.arrays())
            values = sites[problem.patterns.site_pattern]
            files.append(outputs.write("siteLnL", "".join(f"{v:.10f}\n" for v in values)))
        if not is_exact(likelihood.engine):
            lnl = _exact_lnl(problem, request, tree, model, lnl, reporter)
        _conclude(tree, model, lnl, problem, files, reporter)
        _show_times(likelihood.engine, reporter)


def run_compare(
    alignment: str, tree: str, model: str | None, mixed: bool, reporter: Reporter
) -> None:
    """The same likelihood from every engine, side by side.

    Raises:
        NumericalError: engines disagree by more than rounding explains.
    """
    problem = load_problem(alignment, model, reporter)
    given = _read_tree(tree, problem, reporter)
    scores = []
    for score in score_everywhere(problem.patterns, given, problem.model, mixed):
        scores.append(score)
        if score.problem:
            reporter(Notice(f"{score.engine}: {score.problem}"))
    reporter.say(tables.compare_table(scores))
    reference, *others = scores
    wrong = [s for s in others if s.problem or not is_close(s.lnl, reference.lnl, mixed)]
    if wrong:
        names = ", ".join(score.engine for score in wrong)
        raise NumericalError(f"not the reference's result: {names}", hint="see the table")


def show_devices(console: Console) -> None:
    """Every device with what matters, and whether it computes rightly."""
    found = find_devices()
    if not found:
        raise DeviceError("no OpenCL device was found", hint=NO_DEVICE_HINT)
    for device in found:
        for line in tables.device_lines(device, self_test(device)):
            console.print(line, soft_wrap=True, markup=False)


def show_check(alignment: str, model: str | None, device: str | None, console: Console) -> None:
    """Everything worth knowing about an alignment before a search."""
    problem = load_problem(alignment, model, lambda _: None)
    for line in tables.check_lines(summarise(problem.alignment, problem.patterns)):
        console.print(line, soft_wrap=True, markup=False)
    try:
        chosen = choose_device(device)
    except DeviceError as error:
        console.print(f"Memory       not known: {error.message}", soft_wrap=True, markup=False)
        return
    need = memory_need(chosen, problem.patterns, problem.model.arrays().n_categories)
    console.print(tables.memory_line(need), soft_wrap=True, markup=False)


@contextmanager
def _log(outputs: Outputs, reporter: Reporter, append: bool = False) -> Iterator[None]:
    """The log file, open while the run lasts."""
    with outputs.path("log").open("a" if append else "w", encoding="utf-8") as log:
        reporter.log_to(log)
        try:
            yield
        except Exception as error:
            log.write(f"stopped: {error}\n")
            raise
        finally:
            reporter.log_to(None)


def _open(
    problem: Problem,
    patterns: Patterns,
    request: Request,
    settings: SearchSettings,
    reporter: Reporter,
) -> Likelihood:
    """The likelihood of the patterns on the device that was asked for."""
    bounds = settings.branches.bounds(patterns.n_sites)
    categories = problem.model.arrays().n_categories
    engine = open_engine(patterns, categories, bounds, request.device, request.mixed)
    reporter(DeviceChosen(engine.name))
    if not is_exact(engine) and not request.mixed:
        reporter(Notice("the device has no fp64: computes in mixed precision"))
    return Likelihood(engine, bounds)


def _exact_lnl(
    problem: Problem, request: Request, tree: Tree, model: Model, mixed: float, reporter: Reporter
) -> float:
    """The lnL in fp64 of what was found in mixed precision, with a notice of the difference."""
    patterns, arrays = problem.patterns, model.arrays()
    bounds = SearchSettings().branches.bounds(patterns.n_sites)
    engine = open_exact(patterns, arrays.n_categories, bounds, request.device)
    lnl = float(Likelihood(engine, bounds).log_likelihoods([tree], [arrays])[0])
    reporter(Notice(f"scored again in fp64: lnL {lnl:.6f}, {lnl - mixed:+.1e} from fp32"))
    return lnl


def _show_times(engine: Engine, reporter: Reporter) -> None:
    if isinstance(engine, tables.Timed):
        reporter.say(tables.timing_table(engine.timings(), reporter.elapsed))


def _read_tree(path: str, problem: Problem, reporter: Reporter) -> Tree:
    tree, notices = read_newick(path, problem.patterns.taxa)
    for notice in notices:
        reporter(Notice(f"{path}: {notice}"))
    return tree


def _newick(tree: Tree, problem: Problem) -> str:
    return write_newick(tree, problem.patterns.taxa)


def _model_line(model: Model, problem: Problem) -> str:
    return format_best_model(model, problem.patterns.n_sites) + "\n"


def _conclude(
    tree: Tree, model: Model, lnl: float, problem: Problem, files: list[Path], reporter: Reporter
) -> None:
    patterns = problem.patterns
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


def _fingerprint(problem: Problem, request: SearchRequest, starts: str, engine: str) -> str:
    """What a checkpoint must agree with: data, model, starts, seed, settings, engine, version."""
    patterns = problem.patterns
    return fingerprint(
        __version__,
        engine,
        "\n".join(patterns.taxa),
        patterns.codes.tobytes(),
        patterns.weights.tobytes(),
        format_model(problem.model),
        starts,
        str(request.seed),
        repr(asdict(request.settings)),
    )
