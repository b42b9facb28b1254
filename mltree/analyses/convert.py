"""``mltree convert`` and ``mltree draw``: alignments, trees and results in other formats."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from datetime import date
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mltree.analyses.options import ConvertOptions, DrawOptions
from mltree.data.alignments import read_alignment
from mltree.data.formats import FORMATS, format_of, write_alignment
from mltree.data.source import read_text
from mltree.report.drawing import Style, draw, figure, svg
from mltree.runs.logged_run import read_names, write_out
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
from mltree.tree.clades import WrittenTree, read_written
from mltree.tree.newick import nexus_trees

if TYPE_CHECKING:
    from mltree.report.progress import Reporter


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
    files = {"out": options.out}
    claim_files([Path(options.out)], options.inputs, options.redo)
    reporter(RunStarted(__version__, options.line))
    start = read_text(options.source).lstrip()
    convert = _result if start.startswith(b"{") else _trees if _has_trees(start) else _alignment
    content, event = convert(options)
    write_out("convert", options, {"out": content}, files, [event], asdict(event), reporter)


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
    if options.rename is not None:
        raise InputError("--rename is for trees")
    alignment = read_alignment(options.source, options.data_type)
    rows, alphabet = alignment.characters, alignment.alphabet
    content = write_alignment(alignment.names, rows, alphabet, file_format)
    return content, AlignmentWritten(options.out, file_format, alignment.n_taxa, alignment.n_sites)


def _trees(options: ConvertOptions) -> tuple[bytes, Event]:
    file_format = options.file_format or _tree_format(options.out)
    if file_format not in TREE_ENDINGS.values():
        known = ", ".join(dict.fromkeys(TREE_ENDINGS.values()))
        raise InputError(f"--format: {file_format!r} is no format of trees: {known}")
    names = {} if options.rename is None else read_names(options.rename)
    trees = [tree.renamed(names) for tree in read_written(options.source)]
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


PICTURES = ("svg", "png", "pdf")


def run_draw(options: DrawOptions, reporter: Reporter) -> None:
    """Draw the first tree of a file.

    Raises:
        InputError: the tree cannot be read, or the picture cannot be drawn or written.
    """
    out, files = Path(options.out), {"out": options.out}
    kind = out.suffix.lower().lstrip(".")
    if kind not in PICTURES:
        hint = f"known: {' '.join('.' + known for known in PICTURES)}"
        raise InputError(f"{out}: the name does not tell what picture it is", hint=hint)
    claim_files([out], options.inputs, options.redo)
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
    event, values = TreesWritten(str(out), 1, len(tree.tips)), {"taxa": len(tree.tips)}
    write_out("draw", options, {"out": picture}, files, [event], values, reporter)


# Trees and results in the formats of auspice (Nextstrain), iTOL and MultiQC. iTOL names an inner
# node by two tips whose last common ancestor it is; auspice by a name.

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
    support = {"key": "support", "title": "Support", "type": "continuous"}
    meta = {
        "title": title,
        "updated": updated.isoformat(),
        "panels": ["tree"],
        "colorings": [support] if np.isfinite(tree.supports).any() else [],
        "display_defaults": {"distance_measure": "div"},
    }
    nodes, depth = _nodes(tree), [0] * tree.n_nodes
    for node, parent in enumerate(tree.parent.tolist()[1:], 1):
        depth[node] = depth[parent] + 1
    if max(depth) > DEEPEST:
        head = json.dumps({"version": "v2", "meta": meta})
        return f'{head[:-1]}, "tree": {_in_one_line(tree, nodes)}}}\n'
    for node, parent in enumerate(tree.parent.tolist()[1:], 1):
        nodes[parent].setdefault("children", []).append(nodes[node])
    return json.dumps({"version": "v2", "meta": meta, "tree": nodes[0]}, indent=1) + "\n"


def _in_one_line(tree: WrittenTree, nodes: list[dict[str, Any]]) -> str:
    """JSON of the root and all nodes below, without recursion and without indents."""
    parts: list[str] = []
    pending: list[int | str] = [0]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            parts.append(item)
        elif not tree.children[item]:
            parts.append(json.dumps(nodes[item]))
        else:
            parts.append(f'{json.dumps(nodes[item])[:-1]}, "children": [')
            between: list[int | str] = ["]}"]
            for child in tree.children[item][::-1]:
                between += [child, ", "]
            pending += between[:-1]
    return "".join(parts)


def _nodes(tree: WrittenTree) -> list[dict[str, Any]]:
    """Each node without its children; inner nodes get names that no tip has."""
    taken = {tree.labels[tip] for tip in tree.tips}
    free = (name for name in map("NODE_{:07d}".format, count()) if name not in taken)
    nodes: list[dict[str, Any]] = []
    for node, label in enumerate(tree.labels):
        attributes: dict[str, Any] = {"div": round(float(tree.heights[node]), 10)}
        if np.isfinite(tree.supports[node]):
            attributes["support"] = {"value": float(tree.supports[node])}
        name = next(free) if tree.children[node] else label
        nodes.append({"name": name, "node_attrs": attributes})
    return nodes


def itol(tree: WrittenTree) -> str:
    """An iTOL dataset that draws supports as circles on branches; goes with the tree's Newick.

    Sizes are shares of the largest support.

    Raises: InputError: a tip's name cannot be in the table.
    """
    for tip in tree.tips:
        if (separator := _NO_NAMES.search(tree.labels[tip])) is not None:
            message = f"iTOL's table cannot hold {separator[0]!r} in the name {tree.labels[tip]!r}"
            raise InputError(message, hint="rename the tip")
    lines = ["DATASET_SYMBOL", "SEPARATOR TAB", "DATASET_LABEL\tsupport"]
    lines += [f"COLOR\t{COLOUR}", f"MAXIMUM_SIZE\t{SYMBOL_SIZE}", "DATA"]
    rated = [node for node in range(1, tree.n_nodes) if np.isfinite(tree.supports[node])]
    largest = max((float(tree.supports[node]) for node in rated), default=1.0) or 1.0
    for node in rated:
        name = "|".join(tree.labels[_outer(tree, node, side)] for side in (0, -1))
        size = f"{SYMBOL_SIZE * float(tree.supports[node]) / largest:.2f}"
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
