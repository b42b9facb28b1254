"""``mltree run``: from an alignment to a tree with supports and its report, in one command.

It is ``mltree search`` with other defaults: models are chosen, supports computed that the data and
the device allow, and the report written. docs/run.md has them all.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace

from mltree import __version__
from mltree.analyses.bootstrap import Wanted
from mltree.analyses.report import REPORT, write_report
from mltree.analyses.search import CHECKPOINT, RESULT, SearchRequest, run_search
from mltree.analyses.ufboot import WantedUltrafast
from mltree.data.alignments import MIN_TAXA
from mltree.device.discovery import choose_devices
from mltree.report.progress import Reporter
from mltree.runs.problem import Problem
from mltree.runs.request import input_files
from mltree.system.events import Notice, ignore
from mltree.system.files import is_there, read_own

CPU_WORK, GPU_WORK = 5e6, 1e8
"""Taxa² x patterns up to which replicates are searched unasked: 64 taxa x 890 patterns, 3.6e6, took
one core 2 s a replicate, 101 x 1,630, 1.7e7, 15 s, and 100 to 300 are usual. A GPU is taken to be
20 times as fast, which was not measured."""

ULTRAFAST = 1000
"""Replicates of the ultrafast bootstrap that stands in for them elsewhere: what is usual."""


class WholeRequest(SearchRequest, kw_only=True):
    """``mltree run``."""

    decides: bool
    """Whether the size of the data tells which bootstrap is made."""


def run_whole(request: WholeRequest, reporter: Reporter) -> None:
    """Choose, search, compute supports, write the report; or what of it is not done yet.

    Raises:
        InputError: the data cannot be used, or there are results of an earlier run.
    """
    request.outputs.check([RESULT, CHECKPOINT, REPORT])
    if request.decides:
        request = _with_bootstrap(request, request.load(ignore))
    if _lacks_report(request):
        outputs = request.outputs
        reporter(Notice(f"{outputs.path(RESULT)} is this command's: its report alone is missing"))
        reporter.say(f"Wrote {write_report(outputs, reporter, alignment=request.alignment)}")
        return
    run_search(request, reporter)


def _lacks_report(request: WholeRequest) -> bool:
    """True if the same run of the same data has ended and only its report is missing."""
    outputs = request.outputs
    has_ended = is_there(outputs.path(RESULT)) and not is_there(outputs.path(CHECKPOINT))
    if request.redo or not has_ended or is_there(outputs.path(REPORT)):
        return False
    inputs = input_files([*request.files, *request.inputs])
    try:
        before = json.loads(read_own(outputs.path(RESULT)))
        return bool(
            before["asked"] == request.asked
            and before["version"] == __version__
            and before["run"]["inputs"] == [asdict(file) for file in inputs]
        )
    except (ValueError, KeyError, TypeError):
        return False


def _with_bootstrap(request: WholeRequest, problem: Problem) -> WholeRequest:
    """With replicates until they converge, where they cost little, else with the ultrafast ones.

    Its notes say which, and what would change it.
    """
    if len(problem.taxa) < MIN_TAXA:
        return request
    on_cpu = all(device.is_cpu for device in choose_devices(request.resources.device))
    if not replicates_pay(len(problem.taxa), problem.n_patterns, on_cpu):
        note = (
            "supports: SH-aLRT and the ultrafast bootstrap, for the standard one would take "
            "long here; --bootstrap auto wants it all the same"
        )
        supports = replace(request.supports, ultrafast=WantedUltrafast(ULTRAFAST, climbs=False))
        options = {**request.options, "ufboot": (ULTRAFAST, "by cost")}
        return replace(request, supports=supports, options=options, notes=(note,))
    note = "supports: SH-aLRT and bootstrap; --bootstrap none leaves replicates out"
    supports = replace(request.supports, bootstrap=Wanted(None, "fbp"))
    options = {**request.options, "bootstrap": ("auto", "by cost")}
    return replace(request, supports=supports, options=options, notes=(note,))


def replicates_pay(taxa: int, patterns: int, on_cpu: bool) -> bool:
    """Whether a few hundred replicates of data of this size are a matter of minutes."""
    return taxa**2 * patterns <= (CPU_WORK if on_cpu else GPU_WORK)
