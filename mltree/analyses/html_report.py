"""``mltree report``: a page, or a text, that shows what a run has left."""

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
from mltree.report.page import document
from mltree.report.record import Facts, PartModel, Subject, facts_of
from mltree.report.tables import text_report
from mltree.runs.demand import resident_bytes
from mltree.runs.logged_run import NAMES, by_kind, command_result, input_files, read_names
from mltree.runs.problem import read_model, summarise
from mltree.runs.workspace import Workspace
from mltree.system import __version__
from mltree.system.errors import InputError
from mltree.system.events import Notice, RunStarted
from mltree.tree.clades import read_written

if TYPE_CHECKING:
    from mltree.report.progress import Reporter


REPORT, TEXT = "report.html", "report.txt"
"""Kinds of files of a report: a page, a plain text."""

READ_BYTES, DRAWN_BYTES, MUCH = 6, 3 << 20, 1 << 30
"""Bytes of memory for a byte of the alignment while it is read, and for the page (500 taxa x 20,000
sites: 116 MiB in all); bytes that the user is told of."""

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
    kind = TEXT if options.text else REPORT
    with workspace.taken([kind], options.redo, options.inputs):
        reporter(RunStarted(__version__, options.line))
        planned = report_memory(workspace, options.alignment)
        if planned > MUCH:
            reporter(Notice(f"memory: the process will take about {planned / 2**20:,.0f} MiB"))
        path = write_report(
            workspace, reporter, alignment=options.alignment, tree=options.tree, kind=kind
        )
        reporter.say(f"Wrote {path}")
        files, inputs, values = by_kind([path]), options.inputs, {"memory": planned}
        result = command_result("report", options.line, values, files, inputs, reporter)
        reporter.finish("report", result)


def report_memory(workspace: Workspace, alignment: str | None) -> int:
    """Bytes that the process takes which draws a report: what it has, and the alignment."""
    path = alignment or _alignment_file(_recorded(workspace), workspace)
    size = 0 if path is None else len(read_text(path))
    return resident_bytes() + DRAWN_BYTES + READ_BYTES * size


def write_report(
    workspace: Workspace,
    reporter: Reporter,
    *,
    alignment: str | None = None,
    tree: str | None = None,
    kind: str = REPORT,
) -> Path:
    """Write the page, or the text, for what lies under a prefix; returns its path.

    alignment  where that is now; where the run had it, or beside the prefix, where None
    tree       the file of the tree to show; the best that the run has where None
    kind       :data:`REPORT` or :data:`TEXT`

    Raises:
        InputError: there is no tree, or a file cannot be read or written.
    """
    tree_file = tree or str(_tree_file(workspace))
    shown, *_ = read_written(tree_file)
    log, facts = _first(workspace, LOGS), _recorded(workspace)
    summary = patterns = None
    path = alignment or _alignment_file(facts, workspace)
    if path is None:
        reporter(Notice("the alignment has moved: give its new path with --alignment"))
    else:
        if not _is_of_the_run(path, facts):
            text = f"{path} is not the file that the run read: it may differ"
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
    content = text_report(subject) if kind == TEXT else document(subject)
    (path_of_it,) = workspace.write({kind: content})
    return path_of_it


def _recorded(workspace: Workspace) -> Facts:
    """The facts that a run's record has."""
    record = _first(workspace, RECORDS)
    return facts_of([] if record is None else record.read_text(errors="replace").splitlines())


def _tree_file(workspace: Workspace) -> Path:
    """The best tree under a prefix; supports that are older than the tree are another tree's."""
    files = [path for kind in TREES if (path := workspace.path(kind)).is_file()]
    best = workspace.path("bestTree")
    if best in files:
        newest = best.stat().st_mtime
        files = [path for path in files if path.stat().st_mtime >= newest]
    if not files:
        where, (prefix, mark, _) = workspace.path("*"), workspace.name.partition(".mltree.")
        hint = f"the prefix may be {workspace.folder / prefix}" if mark else "is the prefix right?"
        raise InputError(f"there is no tree of a run at {where}", hint=hint)
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
    return re.split(r"^Wrote ", sections[-1], flags=re.M)[0].strip() if sections else ""
