"""``mltree evaluate``."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from mltree.analyses.options import EvaluateOptions
from mltree.data.alignments import Source
from mltree.likelihood.categories import EmpiricalRates, empirical_rates
from mltree.likelihood.likelihood import TreeLikelihood
from mltree.models.partitioned import PartitionModel
from mltree.program.cases import Case
from mltree.report.record import expect_record
from mltree.runs.calls import Call, taking
from mltree.runs.engines import Engines, Workload, open_engines
from mltree.runs.logged_run import LoggedRun, best_model_file, load, open_log, part_trees_file
from mltree.runs.options import FitOptions
from mltree.runs.problem import Problem
from mltree.runs.results import Evaluation
from mltree.runs.site_frequencies import (
    SITE_FREQUENCIES,
    SiteClasses,
    check_classes,
    frequencies_file,
)
from mltree.runs.trees import (
    FIXED_TOPOLOGY,
    TreeResult,
    as_reported,
    check_possible,
    fit_topology,
    lone_trees,
    read_trees,
)
from mltree.system import __version__
from mltree.system.errors import ModelError
from mltree.system.events import Emit, RunStarted, ignore
from mltree.tree.newick import write_newick
from mltree.tree.topology import Tree

if TYPE_CHECKING:
    from mltree.report.progress import Reporter


# Trees that are given, and optimised as far as was asked for: what several commands begin with.


def given_tree(path: str, problem: Problem, emit: Emit, optimise_branches: bool) -> Tree:
    """The tree of a file; a tree a part where parts have branch lengths of their own.

    Raises:
        InputError: it cannot be used.
        NumericalError: its lengths are to stay as they are, and it has no likelihood.
    """
    tree = read_trees(path, problem, emit)
    if not optimise_branches:
        for own, groups in lone_trees(tree, problem):
            check_possible(own, groups)
    return tree


def fitted(
    engines: Engines, tree: Tree, model: PartitionModel, options: FitOptions, emit: Emit
) -> TreeResult:
    """The tree and the model, as likely as they can be made on this topology, as is reported.

    Raises:
        ModelError: rates of sites are to be found, but not all else.
    """
    if model.has_site_rates and (options.no_opt_model or options.no_opt_branches):
        raise ModelError(
            "+PSR finds rates of sites together with the model and the branch lengths",
            hint="leave the model and the branches to be optimised, or use +G4",
        )
    fit = fit_topology(
        engines.likelihood,
        tree,
        model,
        emit,
        optimise_parameters=not options.no_opt_model,
        optimise_lengths=not options.no_opt_branches,
        settings=FIXED_TOPOLOGY.for_precision(engines.is_exact),
    )
    return as_reported(engines, fit, emit, tree)


# The rates of sites as files: IQ-TREE's .rate, of categories or of +PSR.

HEAD = """\
# Rates of sites, relative to those of all sites (of unlinked parts, to their own)
#   Site:   Site, in the order of the file; of parts one after the other
#   Rate:   Posterior mean rate; under +PSR the rate itself
#   Cat:    Most probable category (0=invariable, 1=slowest, etc)
#   C_Rate: Rate of that category
Site\tRate\tCat\tC_Rate
"""


def check_rates(model: PartitionModel) -> None:
    """Make sure that rates differ among sites, in some part at least. Raises: ModelError."""
    if all(own.n_categories == 1 for own in model.arrays()) and not model.has_site_rates:
        raise ModelError(
            "all sites have one rate under this model",
            hint="--site-rates is for models such as GTR+G4, GTR+R4, GTR+I or GTR+PSR",
        )


def site_rates(likelihood: TreeLikelihood, result: TreeResult, problem: Problem) -> str:
    """The content of a .rate file, sites in the order of the file, rates among all of them."""
    if result.per_site is not None:
        rates = _fitted(result.per_site)
    else:
        lnls, arrays = likelihood.single_log_likelihoods, result.model.arrays()
        rates = empirical_rates(lnls, result.tree, arrays, problem.groups)
    columns = (problem.by_site(np.asarray(column, np.float64)).tolist() for column in rates)
    rows = zip(*columns, strict=True)
    return HEAD + "".join(
        f"{site}\t{mean:.5f}\t{category:.0f}\t{rate:.5f}\n"
        for site, (mean, category, rate) in enumerate(rows, 1)
    )


def _fitted(model: PartitionModel) -> EmpiricalRates:
    """Return the rates of +PSR, each site in a category of its own."""
    pairs = zip(model.site_rates, model.scalers.tolist(), strict=True)
    rates = np.concatenate([form.of_patterns * scaler for form, scaler in pairs])
    category = np.concatenate([form.category + 1 for form in model.site_rates])
    return EmpiricalRates(rates, category, rates)


LOG, EVENTS, RESULT = "evalLog", "evalEvents", "eval.json"
PART_TREES, RATES = "evalPartitionTrees", "evalRate"
"""Kinds of files of an evaluation alone: a tree of a search under way can be evaluated."""

OF_SITES = ("siteLnL", "siteprob")
"""Kinds of files that an evaluation writes where asked to, and nothing else writes."""


def opened(
    options: EvaluateOptions, emit: Emit, source: Source | None = None
) -> tuple[Problem, Tree, Engines]:
    """Read the data and the tree, and place them on a device.

    source  data at hand, instead of the alignment's file

    Raises:
        MltreeError: the data, the tree, the model or the device cannot be used.
    """
    problem = load(options, emit, source, expect=partial(_expect, options), site_rates=True)
    tree = given_tree(options.tree, problem, emit, not options.no_opt_branches)
    return problem, tree, open_engines(options.resources, Workload.of(problem), emit)


def _expect(options: EvaluateOptions, problem: Problem) -> None:
    """Make sure that the tree, the classes and the rates of sites go with the data."""
    if options.site_prob or options.site_freq:
        if options.site_frequencies.files:
            raise ModelError("a model whose sites have frequencies of their own has no classes")
        check_classes(problem)
    if options.site_rates:
        check_rates(problem.model)
    if options.guide_tree is not None:  # which is fitted before the tree is read
        given_tree(options.tree, problem, ignore, not options.no_opt_branches)


def run_evaluate(options: EvaluateOptions, reporter: Reporter) -> None:
    """Evaluate a tree, show the result, write the files."""
    workspace = options.workspace
    classes = ("siteprob",) * options.site_prob + (SITE_FREQUENCIES,) * options.site_freq
    kinds = ["evalTree", "evalModel", RESULT, *["siteLnL"] * options.site_lnl, *classes]
    kinds += [SITE_FREQUENCIES] * (options.guide_tree is not None)
    every = [EVENTS, PART_TREES, RATES, *kinds]
    workspace.check([LOG, *every], options.inputs)
    expect_record(workspace.path(EVENTS))
    with open_log(workspace.path(LOG), reporter) as log, workspace.held(every):
        workspace.claim(kinds, options.redo)
        reporter(RunStarted(__version__, options.line))
        problem, tree, engines = opened(options, reporter)
        run = LoggedRun.of(
            "evaluate", options, problem, engines, reporter, kind=RESULT, record=EVENTS,
            resolved={}, is_estimated=not (options.no_opt_model and options.no_opt_branches),
        )  # fmt: skip
        run.begin(log, append=False)
        result = fitted(engines, tree, problem.model, options, reporter)
        newick = write_newick(result.mean_tree, problem.taxa)
        texts = {"evalModel": best_model_file(result.model, problem), "evalTree": newick + "\n"}
        more = {PART_TREES: part_trees_file(result, problem), RATES: ""}
        if options.site_rates or result.per_site:
            more[RATES] = site_rates(engines.exact, result, problem)
        texts |= {kind: text for kind, text in more.items() if text}
        if options.guide_tree is not None:
            texts |= frequencies_file(problem)
        if options.site_lnl:
            sites = engines.exact.site_log_likelihoods(result.tree, Case(result.model.arrays()))
            values = problem.by_site(sites)
            texts["siteLnL"] = "".join(f"{v:.10f}\n" for v in values)
        if classes:
            of_sites = SiteClasses.of(engines.exact, result.tree, result.model, problem)
            texts |= of_sites.texts(classes)
        stale = [*more, *(OF_SITES if options.redo else ())]
        run.deliver(result, newick, texts, [kind for kind in stale if kind not in texts])
        reporter.finish("evaluate", run.conclude(result, newick))


@taking(EvaluateOptions, "tree", "model")
def evaluate(options: EvaluateOptions, source: Source, call: Call) -> Evaluation:
    """Compute the log-likelihood of a tree, topology or all of it fixed, as ``mltree evaluate``."""
    problem, tree, engines = opened(options, call, source)
    result = fitted(engines, tree, problem.model, options, call)
    return Evaluation(
        problem=problem,
        resources=options.resources,
        result=result.scored(engines, call),
        timings=call.timings(engines, result),
    )
