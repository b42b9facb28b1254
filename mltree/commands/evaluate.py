"""``mltree evaluate``."""

from __future__ import annotations

from mltree import __version__
from mltree.commands.fitting import FitRequest, fitted, given_tree
from mltree.commands.request import Run, model_text, open_log, part_trees
from mltree.commands.site_classes import SITE_FREQUENCIES, SiteClasses, check_classes
from mltree.commands.site_frequencies import frequencies_file
from mltree.commands.site_rates import check_rates, site_rates
from mltree.errors import ModelError
from mltree.events import ignore
from mltree.events.run import RunStarted
from mltree.likelihood.cases import Case
from mltree.problem import Problem
from mltree.report.progress import Reporter
from mltree.report.record import expect_record
from mltree.runs.run import open_computation
from mltree.tree.newick import write_newick

__all__ = ["EvaluateRequest", "run_evaluate"]

LOG, EVENTS, RESULT = "evalLog", "evalEvents", "eval.json"
PART_TREES, RATES = "evalPartitionTrees", "evalRate"
"""Its own, so that a tree of a search under way can be evaluated."""

OF_SITES = ("siteLnL", "siteprob")
"""Kinds of files that an evaluation writes where asked to, and nothing else writes."""


class EvaluateRequest(FitRequest, kw_only=True):
    """``mltree evaluate``."""

    tree: str
    site_lnl: bool
    site_rates: bool = False
    """Whether the rates of sites are written; those of +PSR are."""
    site_classes: tuple[str, ...] = ()
    """Kinds of files about the classes of sites."""

    @property
    def finds_site_rates(self) -> bool:
        """They are found on the tree."""
        return True

    def expect(self, problem: Problem) -> None:
        """Make sure that the tree, the classes and the rates of sites go with the data."""
        if self.site_classes:
            if self.site_frequencies.files:
                raise ModelError("a model whose sites have frequencies of their own has no classes")
            check_classes(problem)
        if self.site_rates:
            check_rates(problem.model)
        if self.site_frequencies.guide is not None:  # which is fitted before the tree is read
            given_tree(self.tree, problem, ignore, self.optimise_branches)


def run_evaluate(request: EvaluateRequest, reporter: Reporter) -> None:
    """Evaluate a tree, show the result, write the files."""
    outputs = request.outputs
    kinds = ["evalTree", "evalModel", RESULT, *(["siteLnL"] if request.site_lnl else [])]
    kinds += request.site_classes
    kinds += [SITE_FREQUENCIES] if request.site_frequencies.guide else []
    every = [EVENTS, PART_TREES, RATES, *kinds]
    outputs.check([LOG, *every], [*request.files, request.tree])
    expect_record(outputs.path(EVENTS))
    with open_log(outputs.path(LOG), reporter) as log, outputs.held(every):
        outputs.claim(kinds, request.redo)
        reporter(RunStarted(__version__, request.command))
        problem = request.load(reporter)
        tree = given_tree(request.tree, problem, reporter, request.optimise_branches)
        computation = open_computation(problem, request.resources, reporter)
        run = Run.of(
            "evaluate", request, problem, computation, reporter, kind=RESULT, record=EVENTS,
            inputs=[request.tree], resolved={},
            is_estimated=request.optimise_model or request.optimise_branches,
        )  # fmt: skip
        run.begin(log, append=False)
        found = fitted(
            computation, tree, problem.model, reporter,
            request.optimise_model, request.optimise_branches,
        )  # fmt: skip
        newick = write_newick(found.mean_tree, problem.taxa)
        texts = {"evalModel": model_text(found.model, problem), "evalTree": newick + "\n"}
        more = {PART_TREES: part_trees(found, problem), RATES: ""}
        if request.site_rates or found.per_site:
            more[RATES] = site_rates(computation.exact, found, problem)
        texts |= {kind: text for kind, text in more.items() if text}
        if request.site_frequencies.guide is not None:
            texts |= frequencies_file(problem)
        if request.site_lnl:
            sites = computation.exact.site_log_likelihoods(found.tree, Case(found.model.arrays()))
            values = problem.by_site(sites)
            texts["siteLnL"] = "".join(f"{v:.10f}\n" for v in values)
        if request.site_classes:
            classes = SiteClasses.of(computation.exact, found.tree, found.model, problem)
            texts |= classes.texts(request.site_classes)
        stale = [*more, *(OF_SITES if request.redo else ())]
        run.deliver(found, newick, texts, [kind for kind in stale if kind not in texts])
        reporter.finish("evaluate", run.conclude(found, newick))
