"""``mltree run``: from an alignment to a tree with supports and its report, in one command.

``mltree search`` with other defaults: models are chosen, supports computed that the data and the
device allow, and the report written. docs/run.md has them all.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from mltree.analyses.bootstrap import BootstrapPlan
from mltree.analyses.html_report import REPORT, write_report
from mltree.analyses.options import RunOptions, SearchOptions
from mltree.analyses.search import (
    CHEAP,
    CHECKPOINT,
    RESULT,
    SupportPlan,
    found,
    load_for_search,
    run_search,
)
from mltree.analyses.ufboot import UltrafastPlan
from mltree.data.alignments import MIN_TAXA, Source
from mltree.runs.calls import Call, taking
from mltree.runs.logged_run import input_files
from mltree.runs.options import AUTO
from mltree.runs.results import SearchResult
from mltree.system import __version__
from mltree.system.events import Notice, ignore
from mltree.system.files import is_there, read_own

if TYPE_CHECKING:
    from mltree.report.progress import Reporter

ULTRAFAST = 1000
"""Replicates of the ultrafast bootstrap that stands in for the standard one: what is usual."""


def run_pipeline(options: RunOptions, reporter: Reporter) -> None:
    """Choose, search, compute supports, write the report; or what of it is not done yet.

    Raises:
        InputError: the data cannot be used, or there are results of an earlier run.
    """
    search = options_of_search(options)
    plan = SupportPlan.asked_by(search)  # raises what cannot be asked for
    search.workspace.check([RESULT, CHECKPOINT, REPORT])
    if options.bootstrap is None and options.ufboot is None:
        search, plan = _with_bootstrap(search, plan)
    if _lacks_report(search):
        workspace = search.workspace
        reporter(Notice(f"{workspace.path(RESULT)} is complete; only the report was missing"))
        page = write_report(workspace, reporter, alignment=search.alignment)
        reporter.say(f"Wrote {page}")
        return
    run_search(search, reporter, plan)


@taking(RunOptions, "model", without=("report", "site_rates"))
def run(options: RunOptions, source: Source, call: Call) -> SearchResult:
    """Choose a model, search, compute supports, as ``mltree run`` does.

    With a prefix it writes the files of the command, its report too, and goes on from those of a
    stopped one.
    """
    search = options_of_search(options)
    plan = SupportPlan.asked_by(search)
    if options.bootstrap is None and options.ufboot is None:
        search, plan = _with_bootstrap(search, plan, source)
    return found(search, source, call, plan)


def options_of_search(options: RunOptions) -> SearchOptions:
    """Options of the search that the command is, before time tells which bootstrap is made."""
    names = "line", "origins", "alignments", *options.described()
    shared = {name: getattr(options, name) for name in names}
    if (options.bootstrap or "none").strip().lower() == "none":
        shared["bootstrap"] = None
    return SearchOptions(**shared, report=True)


def _lacks_report(options: SearchOptions) -> bool:
    """True if the same run of the same data has ended and only its report is missing."""
    workspace = options.workspace
    has_ended = is_there(workspace.path(RESULT)) and not is_there(workspace.path(CHECKPOINT))
    if options.redo or not has_ended or is_there(workspace.path(REPORT)):
        return False
    try:
        before = json.loads(read_own(workspace.path(RESULT)))
        return bool(
            before["asked"] == options.asked
            and before["version"] == __version__
            and before["run"]["inputs"] == [asdict(file) for file in input_files(options.inputs)]
        )
    except (ValueError, KeyError, TypeError):
        return False


def _with_bootstrap(
    options: SearchOptions, plan: SupportPlan, source: Source | None = None
) -> tuple[SearchOptions, SupportPlan]:
    """With replicates until they converge where that is cheap, else with the ultrafast ones.

    source  data at hand, instead of the alignment's file
    """
    if len(load_for_search(options, ignore, source).taxa) < MIN_TAXA:
        return options, plan
    standard = BootstrapPlan.of(AUTO, options.metric, "--bootstrap")
    ultrafast = UltrafastPlan(ULTRAFAST, bnni=True, limit=CHEAP)
    origins = {**options.origins, "bootstrap": ("by time", "default")}
    return replace(options, origins=origins), replace(plan, bootstrap=standard, ultrafast=ultrafast)
