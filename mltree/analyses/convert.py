"""``mltree convert`` and ``mltree draw``."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mltree.analyses.options import ConvertOptions, DrawOptions
from mltree.data.alignments import read_alignment
from mltree.data.formats import FORMATS, format_of, write_alignment
from mltree.data.source import read_text
from mltree.report.drawing import Style, draw, figure, svg
from mltree.runs.request import command_result
from mltree.runs.workspace import claim_files
from mltree.system import __version__
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
from mltree.tree.clades import WrittenTree, read_written
from mltree.tree.newick import nexus_trees
from mltree.tree.topology import NONE

if TYPE_CHECKING:
    from mltree.report.progress import Reporter


# Trees and results in the formats of auspice (Nextstrain), iTOL and MultiQC.
#
# iTOL names an inner node by two tips whose last common ancestor it is; auspice by a name, which
# inner nodes are given here.

SYMBOL_SIZE = 10
"""Size of a support of 100 %, points."""

CIRCLE = "2"
"""iTOL's number for the shape."""

COLOUR = "#2b6cb0"

DEEPEST = 200
"""Nesting up to which JSON is indented: in deep trees indents would be most of the file, and json's
writer, which is recursive, ends at some 400."""

_NO_NAMES = re.compile(r"[\t\r\n|]")
"""Separators of the fields of iTOL's table, and of the two tips that name a node."""


def auspice(tree: WrittenTree, title: str, updated: date) -> str:
    """Auspice's JSON, version 2: divergence from the root, supports as a colouring."""
    has_supports = bool(np.isfinite(tree.supports).any())
    support = {"key": "support", "title": "Support", "type": "continuous"}
    meta = {
        "title": title,
        "updated": updated.isoformat(),
        "panels": ["tree"],
        "colorings": [support] if has_supports else [],
        "display_defaults": {"distance_measure": "div"},
    }
    nodes = _nodes(tree)
    if _depth(tree) > DEEPEST:
        head = json.dumps({"version": "v2", "meta": meta})
        return f'{head[:-1]}, "tree": {_in_one_line(tree, nodes)}}}\n'
    for node, parent in enumerate(tree.parent.tolist()):
        if parent != NONE:
            nodes[parent].setdefault("children", []).append(nodes[node])
    return json.dumps({"version": "v2", "meta": meta, "tree": nodes[0]}, indent=1) + "\n"


def _depth(tree: WrittenTree) -> int:
    """Largest number of branches between the root and a tip."""
    depth = [0] * tree.n_nodes
    for node, parent in enumerate(tree.parent.tolist()[1:], 1):
        depth[node] = depth[parent] + 1
    return max(depth)


def _in_one_line(tree: WrittenTree, nodes: list[dict[str, Any]]) -> str:
    """JSON of the root and all nodes below, without recursion and without indents."""
    parts: list[str] = []
    pending: list[int | str] = [0]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            parts.append(item)
            continue
        content = json.dumps(nodes[item])
        if not tree.children[item]:
            parts.append(content)
            continue
        parts.append(f'{content[:-1]}, "children": [')
        between: list[int | str] = ["]}"]
        for child in tree.children[item][::-1]:
            between += [child, ", "]
        pending += between[:-1]
    return "".join(parts)


def _nodes(tree: WrittenTree) -> list[dict[str, Any]]:
    """Each node without its children; inner nodes get names that no tip has."""
    made: list[dict[str, Any]] = []
    taken = {tree.labels[tip] for tip in tree.tips}
    number = 0
    for node, label in enumerate(tree.labels):
        name = label
        if tree.children[node]:
            name = f"NODE_{number:07d}"
            while name in taken:
                number += 1
                name = f"NODE_{number:07d}"
            number += 1
        attributes: dict[str, Any] = {"div": round(float(tree.heights[node]), 10)}
        if np.isfinite(tree.supports[node]):
            attributes["support"] = {"value": float(tree.supports[node])}
        made.append({"name": name, "node_attrs": attributes})
    return made


def itol(tree: WrittenTree) -> str:
    """An iTOL dataset that draws supports as circles on branches; goes with the tree's Newick.

    Sizes are shares of the largest support. Raises: InputError: a tip's name cannot be in the
    table.
    """
    for tip in tree.tips:
        if (separator := _NO_NAMES.search(tree.labels[tip])) is not None:
            message = f"iTOL's table cannot hold {separator[0]!r} in the name {tree.labels[tip]!r}"
            raise InputError(message, hint="rename the tip")
    lines = [
        "DATASET_SYMBOL",
        "SEPARATOR TAB",
        "DATASET_LABEL\tsupport",
        f"COLOR\t{COLOUR}",
        f"MAXIMUM_SIZE\t{SYMBOL_SIZE}",
        "DATA",
    ]
    rated = [node for node in range(1, tree.n_nodes) if np.isfinite(tree.supports[node])]
    largest = max((float(tree.supports[node]) for node in rated), default=1.0) or 1.0
    for node in rated:
        first, last = (_outer(tree, node, side) for side in (0, -1))
        value = float(tree.supports[node])
        size = f"{SYMBOL_SIZE * value / largest:.2f}"
        name = f"{tree.labels[first]}|{tree.labels[last]}"
        lines.append("\t".join([name, CIRCLE, size, COLOUR, "1", "0.5", tree.labels[node]]))
    return "\n".join([*lines, ""])


def _outer(tree: WrittenTree, node: int, side: int) -> int:
    """The first (0) or last (-1) tip of a subtree."""
    while tree.children[node]:
        node = tree.children[node][side]
    return node


HEADERS = {
    "lnl": {"title": "lnL", "description": "Log-likelihood of the tree", "format": "{:,.3f}"},
    "model": {"title": "Model", "description": "Substitution model"},
    "taxa": {"title": "Taxa", "format": "{:,.0f}"},
    "sites": {"title": "Sites", "format": "{:,.0f}"},
    "patterns": {"title": "Patterns", "description": "Distinct columns", "format": "{:,.0f}"},
    "tree_length": {"title": "Tree length", "description": "Substitutions per site",
                    "format": "{:,.4f}"},
    "seconds": {"title": "Seconds", "format": "{:,.1f}"},
}  # fmt: skip
"""Columns of MultiQC's table."""


def multiqc(sample: str, result: Mapping[str, Any]) -> str:
    """A MultiQC custom-content table with one row, for a run's result (PREFIX.mltree.json).

    Raises: KeyError: the result is of no search or evaluation.
    """
    row = {
        "lnl": result["lnl"],
        "model": str(result["model"]).partition("{")[0] or result["model"],
        **{name: result["data"][name] for name in ("taxa", "sites", "patterns")},
        "tree_length": result["tree_length"],
        "seconds": result["seconds"],
    }
    content = {
        "id": "mltree",
        "section_name": "mltree",
        "description": "Maximum-likelihood trees.",
        "plot_type": "table",
        "pconfig": {"id": "mltree_table", "title": "mltree: trees"},
        "headers": HEADERS,
        "data": {sample: row},
    }
    return json.dumps(content, indent=1) + "\n"


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
