"""``mltree evaluate``."""

from __future__ import annotations

from dataclasses import dataclass

from mltree import __version__
from mltree.commands.request import Request, conclude, deliver, model_line, open_log
from mltree.events import RunStarted
from mltree.problem import check_possible, load_problem, read_tree
from mltree.report.progress import Reporter
from mltree.run import FIXED_TOPOLOGY, evaluate, open_computation
from mltree.tree.newick import write_newick

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
        computation = open_computation(problem, request.resources, reporter)
        log.begin(append=False)
        found = evaluate(
            computation.likelihood,
            tree,
            problem.model,
            reporter,
            optimise_parameters=request.optimise_model,
            optimise_lengths=request.optimise_branches,
            settings=FIXED_TOPOLOGY.for_precision(computation.placement.is_exact),
        )
        newick = write_newick(found.tree, problem.patterns.taxa)
        texts = {"evalModel": model_line(found.model, problem), "evalTree": newick + "\n"}
        if request.site_lnl:
            sites = computation.exact.site_log_likelihoods(found.tree, found.model.arrays())
            values = sites[problem.patterns.site_pattern]
            texts["siteLnL"] = "".join(f"{v:.10f}\n" for v in values)
        files = [log.path, *deliver(outputs, texts, reporter)]
        conclude(computation, found, newick, files, reporter)
