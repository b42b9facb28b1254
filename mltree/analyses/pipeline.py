"""``mltree run``: from an alignment to a tree with supports and its report, in one command.

It is ``mltree search`` with other defaults: models are chosen, supports computed that the data and
the device allow, and the report written. docs/run.md has them all.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from mltree.analyses.html_report import REPORT, write_report
from mltree.analyses.options import RunOptions, SearchOptions
from mltree.analyses.search import CHECKPOINT, RESULT, SupportPlan, load_for_search, run_search
from mltree.data.alignments import MIN_TAXA
from mltree.device.discovery import choose_devices
from mltree.runs.options import AUTO
from mltree.runs.request import input_files
from mltree.system import __version__
from mltree.system.events import Notice, ignore
from mltree.system.files import is_there, read_own

if TYPE_CHECKING:
    from mltree.report.progress import Reporter


CPU_WORK, GPU_WORK = 5e6, 1e8
"""Taxa² x patterns up to which replicates are searched unasked: 64 taxa x 890 patterns, 3.6e6, took
one core 2 s a replicate, 101 x 1,630, 1.7e7, 15 s, and 100 to 300 are usual. A GPU is taken to be
20 times as fast, which was not measured."""

ULTRAFAST = 1000
"""Replicates of the ultrafast bootstrap that stands in for them elsewhere: what is usual."""


def run_pipeline(options: RunOptions, reporter: Reporter) -> None:
    """Choose, search, compute supports, write the report; or what of it is not done yet.

    Raises:
        InputError: the data cannot be used, or there are results of an earlier run.
    """
    search = _search_options(options)
    notes: tuple[str, ...] = ()
    SupportPlan.asked_by(search)  # raises what cannot be asked for
    search.workspace.check([RESULT, CHECKPOINT, REPORT])
    if options.bootstrap is None and options.ufboot is None:
        search, notes = _with_bootstrap(search)
    if _lacks_report(search):
        workspace = search.workspace
        reporter(Notice(f"{workspace.path(RESULT)} is this command's: its report alone is missing"))
        reporter.say(f"Wrote {write_report(workspace, reporter, alignment=search.alignment)}")
        return
    run_search(search, reporter, notes)


def _search_options(options: RunOptions) -> SearchOptions:
    """The search that the command is, before the data tell which bootstrap is made."""
    shared = {name: getattr(options, name) for name in ("line", "origins", *options.described())}
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


def _with_bootstrap(options: SearchOptions) -> tuple[SearchOptions, tuple[str, ...]]:
    """With replicates until they converge, where they cost little, else with the ultrafast ones.

    Also returns notes that say which, and what would change it.
    """
    problem = load_for_search(options, ignore)
    if len(problem.taxa) < MIN_TAXA:
        return options, ()
    on_cpu = all(device.is_cpu for device in choose_devices(options.device))
    if replicates_pay(len(problem.taxa), problem.n_patterns, on_cpu):
        note = "supports: SH-aLRT and bootstrap; --bootstrap none leaves replicates out"
        origins = {**options.origins, "bootstrap": (AUTO, "by cost")}
        return replace(options, bootstrap=AUTO, origins=origins), (note,)
    note = (
        "supports: SH-aLRT and the ultrafast bootstrap, for the standard one would take long "
        "here; --bootstrap auto wants it all the same"
    )
    origins = {**options.origins, "ufboot": (ULTRAFAST, "by cost")}
    return replace(options, ufboot=ULTRAFAST, bnni=False, origins=origins), (note,)


def replicates_pay(taxa: int, patterns: int, on_cpu: bool) -> bool:
    """True if a few hundred replicates of data of this size are a matter of minutes."""
    return taxa**2 * patterns <= (CPU_WORK if on_cpu else GPU_WORK)
