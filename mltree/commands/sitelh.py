"""``mltree sitelh``: the lnL of every site on every tree, as tests of topologies take it."""

from __future__ import annotations

from mltree import __version__
from mltree.arrays import Float64
from mltree.commands.fitting import FitRequest, fitted
from mltree.commands.results import finish
from mltree.events import Notice
from mltree.events.run import RunStarted
from mltree.events.trees import TreesLoaded
from mltree.given_trees import check_possible
from mltree.likelihood.cases import Case
from mltree.report.progress import Reporter
from mltree.runs.run import open_computation
from mltree.tree.newick import read_newicks

__all__ = ["FORMATS", "SiteRequest", "run_sitelh"]

RESULT = "sitelh.json"

NAME_WIDTH = 10
"""Columns of a tree's name in IQ-TREE's files."""


class SiteRequest(FitRequest, kw_only=True):
    """``mltree sitelh``."""

    trees: str
    file_format: str
    """A name of :data:`FORMATS`."""


def run_sitelh(request: SiteRequest, reporter: Reporter) -> None:
    """Compute the lnL of every site on every tree of a file, under the model of the first.

    Raises:
        InputError: the data or the trees cannot be used, or the file cannot be written.
        NumericalError: a tree whose lengths stay as they are has no likelihood.
    """
    outputs = request.outputs
    kind = FORMATS[request.file_format]
    inputs = [*request.files, request.trees]
    with outputs.taken([kind, RESULT], request.redo, inputs):
        reporter(RunStarted(__version__, request.command))
        problem = request.load(reporter)
        read = read_newicks(request.trees, problem.taxa)
        reporter(TreesLoaded(request.trees, len(read), len(problem.taxa)))
        for number, (tree, notices) in enumerate(read, 1):
            for notice in notices:
                reporter(Notice(f"{request.trees}: tree {number}: {notice}"))
            if not request.optimise_branches:
                check_possible(tree, problem.groups)
        computation = open_computation(problem, request.resources, reporter)
        rows = []
        model = problem.model
        for number, (tree, _) in enumerate(read):
            of_first = request.optimise_model and number == 0
            found = fitted(computation, tree, model, reporter, of_first, request.optimise_branches)
            model = found.model
            by_pattern = computation.exact.site_log_likelihoods(found.tree, Case(model.arrays()))
            rows.append(problem.by_site(by_pattern))
        lnls = ", ".join(f"{row.sum():.4f}" for row in rows)
        reporter.say(f"lnL of the trees: {lnls}")
        values = {"model": model.text, "lnl": [float(row.sum()) for row in rows]}
        texts = {kind: _TEXTS[request.file_format](rows)}
        spent = [other for other in FORMATS.values() if other != kind] if request.redo else []
        finish("sitelh", request.command, outputs, texts, values, inputs, reporter, spent)


def _iqtree(rows: list[Float64]) -> str:
    """IQ-TREE's .sitelh, which is TREE-PUZZLE's: sizes, then a line a tree."""
    names = ["Site_Lh"] if len(rows) == 1 else [f"Tree{n}" for n in range(1, len(rows) + 1)]
    lines = [
        f"{name:<{NAME_WIDTH}} {' '.join(f'{value:.10f}' for value in row)}"
        for name, row in zip(names, rows, strict=True)
    ]
    return "\n".join([f"{len(rows)} {len(rows[0])}", *lines, ""])


def _raxml(rows: list[Float64]) -> str:
    """RAxML's perSiteLLs, which CONSEL reads as well: names and values with a tab between."""
    lines = [
        f"tr{number}\t{' '.join(f'{value:.10f}' for value in row)}"
        for number, row in enumerate(rows, 1)
    ]
    return "\n".join([f"  {len(rows)}  {len(rows[0])}", *lines, ""])


FORMATS = {"iqtree": "sitelh", "raxml": "perSiteLLs"}
"""Formats by name, and the kind of file that each is written to."""

_TEXTS = {"iqtree": _iqtree, "raxml": _raxml}
