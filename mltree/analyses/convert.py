"""``mltree convert`` and ``mltree draw``."""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from mltree.analyses.options import ConvertOptions, DrawOptions
from mltree.data.alignments import read_alignment
from mltree.data.source import read_text
from mltree.data.writing import FORMATS, format_of, write_alignment
from mltree.report.drawing import Style, draw, figure, svg
from mltree.report.exports import auspice, itol, multiqc
from mltree.runs.request import command_result
from mltree.runs.workspace import claim_files
from mltree.system.errors import InputError
from mltree.system.events import (
    AlignmentWritten,
    Event,
    Notice,
    ResultWritten,
    RunStarted,
    TreesWritten,
)
from mltree.system.files import write_whole
from mltree.system.version import __version__
from mltree.tree.clades import read_written
from mltree.tree.newick import nexus_trees

if TYPE_CHECKING:
    from mltree.report.progress import Reporter

# ``mltree convert``: alignments, trees and results from one format to another.

TREE_ENDINGS = {
    ".auspice.json": "auspice",
    ".itol.txt": "itol",
    ".nwk": "newick",
    ".newick": "newick",
    ".tree": "newick",
    ".trees": "newick",
    ".tre": "newick",
    ".nex": "nexus",
    ".nexus": "nexus",
}
"""The format of trees that a file's name ends in."""

MULTIQC = "_mqc.json"
"""Ending of the names of MultiQC's custom content."""

_BLOCK = re.compile(rb"^\s*BEGIN\s+(\w+)", re.IGNORECASE | re.MULTILINE)


def run_convert(options: ConvertOptions, reporter: Reporter) -> None:
    """Convert an alignment, or the trees of a file.

    Raises:
        InputError: the file cannot be read, or the other one cannot be written.
    """
    out = Path(options.out)
    claim_files([out], [options.source], options.redo)
    reporter(RunStarted(__version__, options.line))
    start = read_text(options.source).lstrip()
    convert = _result if start.startswith(b"{") else _trees if _has_trees(start) else _alignment
    content, event = convert(options)
    claim_files([out], [options.source], options.redo)  # once more: another may have been quicker
    write_whole(out, gzip.compress(content, mtime=0) if out.suffix == ".gz" else content)
    reporter(event)
    files = {"out": options.out}
    result = command_result(
        "convert", options.line, asdict(event), files, [options.source], reporter
    )
    reporter.finish("convert", result)


def _has_trees(text: bytes) -> bool:
    """True if a file begins as trees do: no alignment begins with a bracket."""
    if text[:6].upper() == b"#NEXUS":
        blocks = {block.upper() for block in _BLOCK.findall(text)}
        return b"TREES" in blocks and not blocks & {b"DATA", b"CHARACTERS"}
    return text.startswith((b"(", b"["))


def _alignment(options: ConvertOptions) -> tuple[bytes, Event]:
    file_format = options.file_format or format_of(options.out)
    if file_format not in FORMATS:
        raise InputError(f"--format: {file_format!r} is none of {', '.join(FORMATS)}")
    alignment = read_alignment(options.source, options.data_type)
    content = write_alignment(
        alignment.names, alignment.characters, alignment.alphabet, file_format
    )
    return content, AlignmentWritten(options.out, file_format, alignment.n_taxa, alignment.n_sites)


def _trees(options: ConvertOptions) -> tuple[bytes, Event]:
    file_format = options.file_format or _tree_format(options.out)
    if file_format not in TREE_ENDINGS.values():
        known = ", ".join(dict.fromkeys(TREE_ENDINGS.values()))
        raise InputError(f"--format: {file_format!r} is no format of trees: {known}")
    trees = read_written(options.source)
    if file_format in {"auspice", "itol"}:
        if len(trees) > 1:
            raise InputError(f"{file_format} shows one tree", file=options.source)
        name = Path(options.source).name
        text = itol(trees[0]) if file_format == "itol" else auspice(trees[0], name, date.today())
    else:
        lines = [tree.newick() for tree in trees]
        text = nexus_trees(lines) if file_format == "nexus" else "\n".join(lines) + "\n"
    return text.encode(), TreesWritten(options.out, len(trees), len(trees[0].tips))


def _result(options: ConvertOptions) -> tuple[bytes, Event]:
    """The result of a run, as MultiQC shows it."""
    if options.file_format not in {None, "multiqc"} or not options.out.endswith(MULTIQC):
        hint = f"-o NAME{MULTIQC}, the only names that MultiQC looks for"
        raise InputError("a result goes to MultiQC alone", file=options.source, hint=hint)
    sample = Path(options.source).name.removesuffix(".json").removesuffix(".eval")
    try:
        content = multiqc(sample.removesuffix(".mltree"), json.loads(read_text(options.source)))
    except (ValueError, KeyError, TypeError):
        hint = "PREFIX.mltree.json of search, run or evaluate is wanted"
        raise InputError("no result with a tree", file=options.source, hint=hint) from None
    return content.encode(), ResultWritten(options.out, "MultiQC")


def _tree_format(path: str) -> str:
    for ending, file_format in TREE_ENDINGS.items():
        if path.lower().removesuffix(".gz").endswith(ending):
            return file_format
    hint = f"known: {' '.join(TREE_ENDINGS)}; or name it with --format"
    raise InputError(f"{path}: the name does not tell the format of trees", hint=hint)


# ``mltree draw``: a picture of a tree.

KINDS = ("svg", "png", "pdf")


def run_draw(options: DrawOptions, reporter: Reporter) -> None:
    """Draw the first tree of a file.

    Raises:
        InputError: the tree cannot be read, or the picture cannot be drawn or written.
    """
    out = Path(options.out)
    kind = out.suffix.lower().lstrip(".")
    if kind not in KINDS:
        hint = f"known: {' '.join('.' + kind for kind in KINDS)}"
        raise InputError(f"{out}: the name does not tell what picture it is", hint=hint)
    claim_files([out], [options.tree], options.redo)
    reporter(RunStarted(__version__, options.line))
    tree, *others = read_written(options.tree)
    if others:
        reporter(Notice(f"{options.tree}: the first of {1 + len(others)} trees is drawn"))
    style = Style(
        layout=options.layout,
        is_ladderised=not options.as_written,
        is_scaled=not options.cladogram,
        shows_supports=not options.no_supports,
    )
    scene = draw(tree, style)
    picture = svg(scene).encode() if kind == "svg" else figure(scene, kind)
    claim_files([out], [options.tree], options.redo)  # once more: another may have been quicker
    write_whole(out, picture)
    reporter(TreesWritten(str(out), 1, len(tree.tips)))
    values, files = {"taxa": len(tree.tips)}, {"out": options.out}
    result = command_result("draw", options.line, values, files, [options.tree], reporter)
    reporter.finish("draw", result)
