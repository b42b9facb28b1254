"""``mltree report``: a page that shows what a run has left."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mltree.analyses.options import ReportOptions
from mltree.data.alignments import read_alignment
from mltree.data.patterns import compress
from mltree.data.source import read_text
from mltree.report.page import PartModel, Subject, document
from mltree.report.record import Facts, facts_of
from mltree.runs.logged_run import NAMES, by_kind, command_result, input_files, read_names
from mltree.runs.problem import read_model, summarise
from mltree.runs.workspace import Workspace
from mltree.system import __version__
from mltree.system.errors import InputError
from mltree.system.events import Notice, RunStarted
from mltree.tree.clades import read_written

if TYPE_CHECKING:
    from mltree.report.progress import Reporter


REPORT = "report.html"
"""The kind of file that a report is."""

TREES = ("support", "bestTree.mltree.support", "supportFBP", "bestTree.mltree.supportFBP",
         "supportTBE", "bestTree.mltree.supportTBE", "bestTree", "evalTree", "lastTree",
         "startTree")  # fmt: skip
"""Kinds of files with a tree to show, the best first: of a run under way only the last is there."""

RECORDS, LOGS, MODELS = ("events", "evalEvents"), ("log", "evalLog"), ("bestModel", "evalModel")


def run_report(options: ReportOptions, reporter: Reporter) -> None:
    """Write the report of a run.

    Raises:
        InputError: the run left no tree, or a file cannot be read or written.
    """
    workspace = Workspace.of(options.prefix.removesuffix(".mltree"), options.prefix)
    with workspace.taken([REPORT], options.redo, options.inputs):
        reporter(RunStarted(__version__, options.line))
        path = write_report(workspace, reporter, alignment=options.alignment, tree=options.tree)
        reporter.say(f"Wrote {path}")
        files, inputs = by_kind([path]), options.inputs
        result = command_result("report", options.line, {}, files, inputs, reporter)
        reporter.finish("report", result)


def write_report(
    workspace: Workspace,
    reporter: Reporter,
    *,
    alignment: str | None = None,
    tree: str | None = None,
) -> Path:
    """Write the page for what lies under a prefix; returns its path.

    alignment  where that is now; where the run had it, or beside the prefix, where None
    tree       the file of the tree to show; the best that the run has where None

    Raises:
        InputError: there is no tree, or a file cannot be read or written.
    """
    tree_file = tree or str(_tree_file(workspace))
    shown, *_ = read_written(tree_file)
    record, log = _first(workspace, RECORDS), _first(workspace, LOGS)
    facts = facts_of([] if record is None else record.read_text(errors="replace").splitlines())
    summary = patterns = None
    path = alignment or _alignment_file(facts, workspace)
    if path is None:
        reporter(Notice("the alignment is not where it was: --alignment says where it is now"))
    else:
        if not _is_of_the_run(path, facts):
            text = f"{path} is not a file that the run has read: what it says may differ"
            reporter(Notice(text))
        read = read_alignment(path, facts.data["data_type"] if facts.data else None)
        patterns = compress(replace(read, names=tuple(read.renamed.get(n, n) for n in read.names)))
        summary = summarise(read, patterns)
    table = _first(workspace, [NAMES])
    original = {} if table is None else read_names(str(table))
    subject = Subject(
        workspace.name, facts, shown.renamed(original), shown.newick(), Path(tree_file).name,
        models=tuple(_models(_first(workspace, MODELS))),
        summary=summary, patterns=patterns,
        methods="" if log is None else _methods(log.read_text(errors="replace")),
    )  # fmt: skip
    (page,) = workspace.write({REPORT: document(subject)})
    return page


def _tree_file(workspace: Workspace) -> Path:
    """The best tree under a prefix; supports that are older than the tree are another tree's."""
    files = [path for kind in TREES if (path := workspace.path(kind)).is_file()]
    best = workspace.path("bestTree")
    if best in files:
        newest = best.stat().st_mtime
        files = [path for path in files if path.stat().st_mtime >= newest]
    if not files:
        where = workspace.path("*")
        raise InputError(f"no run has left a tree in {where}", hint="is the prefix right?")
    return files[0]


def _first(workspace: Workspace, kinds: Iterable[str]) -> Path | None:
    return next((path for path in map(workspace.path, kinds) if path.is_file()), None)


def _models(path: Path | None) -> Iterator[PartModel]:
    """The models of a .bestModel file, a line a part: ``GTR{...}+G4{0.5}, name = 1-603``."""
    lines = [] if path is None else read_text(path).decode(errors="replace").splitlines()
    for line in filter(str.strip, lines):
        text, _, rest = line.partition(", ")
        name, _, sites = rest.partition(" = ")
        yield PartModel(name.strip(), sites.strip(), text.strip(), read_model(text))


def _alignment_file(facts: Facts, workspace: Workspace) -> str | None:
    if facts.data is None:
        return None
    there = Path(facts.data["path"])
    beside = workspace.folder / there.name
    return next((str(path) for path in (there, beside) if path.is_file()), None)


def _is_of_the_run(alignment: str, facts: Facts) -> bool:
    """True if a run has read a file of this content, as far as its record tells."""
    if facts.described is None:
        return True
    known = {file["sha256"] for file in facts.described["inputs"]}
    return all(file.sha256 in known for file in input_files([alignment]))


def _methods(log: str) -> str:
    """The log's paragraph for a methods section, from its heading to the end."""
    _, *sections = re.split(r"^Methods$", log, flags=re.MULTILINE)
    return sections[-1].strip() if sections else ""
