"""``mltree evaluate``."""

from __future__ import annotations

from dataclasses import dataclass

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
    read_tree,
)
from mltree.events import RunStarted
from mltree.report.progress import Reporter
from mltree.run import check_possible, evaluate, load_problem
from mltree.settings import SearchSettings

__all__ = ["EvaluateRequest", "run_evaluate"]

LOG = "evalLog"
"""Its own, so that a tree of a search under way can be evaluated."""


@dataclass(frozen=True, kw_only=True)
class EvaluateRequest(Request):
    """``mltree evaluate``."""

    tree: str
    optimise_model: bool
    optimise_branches: bool
    site_lnl: bool


def run_evaluate(request: EvaluateRequest, reporter: Reporter) -> None:
    """Evaluate a tree, show the result, write the files."""
    outputs = request.outputs
    kinds = ["evalTree", "evalModel", *(["siteLnL"] if request.site_lnl else [])]
    outputs.check([LOG, *kinds])
    with open_log(outputs.path(LOG), reporter) as log:
        outputs.claim(kinds, request.redo)
        reporter(RunStarted(__version__, request.command))
        problem = load_problem(request.alignment, request.model, reporter, request.datatype)
        tree = read_tree(request.tree, problem, reporter)
        if not request.optimise_branches:
            check_possible(tree, problem.patterns)
        likelihood = open_likelihood(
            problem, problem.patterns, request, SearchSettings(), None, reporter
        )
        log.begin(append=False)
        tree, model, lnl = evaluate(
            likelihood,
            tree,
            problem.model,
            reporter,
            optimise_parameters=request.optimise_model,
            optimise_lengths=request.optimise_branches,
        )
        texts = {"evalModel": model_line(model, problem), "evalTree": newick(tree, problem) + "\n"}
        exact = exactly(likelihood, problem, request, model)
        if request.site_lnl:
            sites = exact.site_log_likelihoods(tree, model.arrays())
            values = sites[problem.patterns.site_pattern]
            texts["siteLnL"] = "".join(f"{v:.10f}\n" for v in values)
        files = [log.path, *deliver(outputs, texts, reporter)]
        conclude(likelihood, exact, problem, tree, model, lnl, files, reporter)
