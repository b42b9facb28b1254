"""``mltree convert`` and ``mltree draw``: alignments, trees and results in other formats."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import date
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mltree.analyses.options import ConvertOptions, DrawOptions
from mltree.data.alignments import read_alignment
from mltree.data.codons import CodonAlphabet, refuse_broken
from mltree.data.datatype import alphabet_named
from mltree.data.formats import FORMATS, format_of, write_alignment
from mltree.data.source import read_text
from mltree.report.drawing import LAYOUTS, draw
from mltree.report.record import best_labelled
from mltree.report.scene import figure, svg
from mltree.report.style import Axis, Clade, Steps, Style, Supports
from mltree.runs.logged_run import read_names, write_out
from mltree.runs.options import AXES, ORDERS, one_of, page_length_of
from mltree.runs.workspace import claim_files
from mltree.system import __version__
from mltree.system.arrays import Float64, UInt8
from mltree.system.errors import InputError
from mltree.system.events import (
    AlignmentWritten,
    Emit,
    Event,
    Notice,
    ResultWritten,
    RunStarted,
    TreesWritten,
)
from mltree.system.files import is_there
from mltree.system.values import decimal, whole
from mltree.tree.clades import WrittenTree, read_written
from mltree.tree.newick import nexus_trees, text_of

if TYPE_CHECKING:
    from mltree.report.progress import Reporter


Numbers = tuple[float, ...]

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
    content, event = convert(options, reporter)
    write_out("convert", options, {"out": content}, files, [event], asdict(event), reporter)


def _has_trees(text: bytes) -> bool:
    """True if a file begins as trees do: no alignment begins with a bracket."""
    if text[:6].upper() == b"#NEXUS":
        blocks = {block.upper() for block in _BLOCK.findall(text)}
        return b"TREES" in blocks and not blocks & {b"DATA", b"CHARACTERS"}
    return text.startswith((b"(", b"["))


def _alignment(options: ConvertOptions, emit: Emit) -> tuple[bytes, Event]:
    file_format = options.file_format or format_of(options.out)
    if file_format not in FORMATS:
        raise InputError(f"--format: {file_format!r} is not one of {', '.join(FORMATS)}")
    for option in ("rename", "outgroup", "midpoint"):
        if getattr(options, option):
            raise InputError(f"--{option} is for trees")
    data_type = "dna" if options.mask_stops else options.data_type
    alignment = read_alignment(options.source, data_type)
    rows, alphabet = alignment.characters, alignment.alphabet
    if options.mask_stops:
        rows = _without_stops(options, rows, emit)
    content = write_alignment(alignment.names, rows, alphabet, file_format)
    event = AlignmentWritten(options.out, file_format, len(rows), rows.shape[1] // alphabet.width)
    return content, event


def _without_stops(options: ConvertOptions, rows: UInt8, emit: Emit) -> UInt8:
    """Nucleotides with gaps for stop codons. Raises: InputError: they are no codons."""
    codons = alphabet_named(options.data_type or "codon")
    if not isinstance(codons, CodonAlphabet):
        raise InputError("--mask-stops is for codons", hint="--data-type codon:CODE")
    refuse_broken(codons, rows.shape[1], "the alignment", options.source)
    rows, masked, left_out = codons.without_stops(rows)
    code = codons.genetic_code.name
    emit(Notice(f"stop codons of the {code} code masked: {masked}; columns left out: {left_out}"))
    return rows


def _trees(options: ConvertOptions, _: Emit) -> tuple[bytes, Event]:
    file_format = options.file_format or _tree_format(options.out)
    if file_format not in TREE_ENDINGS.values():
        known = ", ".join(dict.fromkeys(TREE_ENDINGS.values()))
        raise InputError(f"--format: {file_format!r} is not a tree format: {known}")
    names = {} if options.rename is None else read_names(options.rename)
    _check_root(options)
    trees = [_rooted(tree, options).renamed(names) for tree in read_written(options.source)]
    if file_format in {"auspice", "itol"}:
        if len(trees) > 1:
            raise InputError(f"{file_format} shows one tree", file=options.source)
        name = Path(options.source).name
        text = itol(trees[0]) if file_format == "itol" else auspice(trees[0], name, date.today())
    else:
        lines = [tree.newick() for tree in trees]
        text = nexus_trees(lines) if file_format == "nexus" else "\n".join(lines) + "\n"
    return text.encode(), TreesWritten(options.out, len(trees), len(trees[0].tips))


def _check_root(options: ConvertOptions | DrawOptions) -> None:
    if options.outgroup and options.midpoint:
        raise InputError("--outgroup and --midpoint both place the root: choose one")


def _taxa_of(outgroup: str | None) -> tuple[str, ...]:
    """Taxa that are named with commas between."""
    return tuple(name.strip() for name in (outgroup or "").split(",") if name)


def _rooted(tree: WrittenTree, options: ConvertOptions) -> WrittenTree:
    """The tree with the root that the options ask for. Raises: InputError: it has none such."""
    if options.midpoint:
        return tree.rooted_midway()
    if not (taxa := _taxa_of(options.outgroup)):
        return tree
    rooted, stands_together = tree.rooted_beside(taxa)
    if not stands_together:
        hint = "name one taxon, or all of a clade"
        raise InputError("the outgroup does not stand together in the tree", hint=hint)
    return rooted


def _result(options: ConvertOptions, _: Emit) -> tuple[bytes, Event]:
    """The result of a run, as MultiQC shows it."""
    if options.file_format not in {None, "multiqc"} or not options.out.endswith(MULTIQC):
        hint = f"-o NAME{MULTIQC}, the only names that MultiQC looks for"
        raise InputError("results are converted for MultiQC only", file=options.source, hint=hint)
    sample = Path(options.source).name.removesuffix(".json").removesuffix(".eval")
    try:
        content = multiqc(sample.removesuffix(".mltree"), json.loads(read_text(options.source)))
    except (ValueError, KeyError, TypeError):
        hint = "give the PREFIX.mltree.json of a search, run or evaluate"
        raise InputError("no result with a tree", file=options.source, hint=hint) from None
    return content.encode(), ResultWritten(options.out, "MultiQC")


def _tree_format(path: str) -> str:
    for ending, file_format in TREE_ENDINGS.items():
        if path.lower().removesuffix(".gz").endswith(ending):
            return file_format
    hint = f"known: {' '.join(TREE_ENDINGS)}; or name it with --format"
    raise InputError(f"{path}: the file name does not show the tree format", hint=hint)


# Pictures of trees.

PICTURES = ("svg", "png", "pdf")

MARKS = ("labels", "colours", "dots")

COLOUR_NAME = re.compile("#[0-9a-fA-F]{6}")


def run_draw(options: DrawOptions, reporter: Reporter) -> None:
    """Draw the first tree of a file.

    Raises:
        InputError: the tree cannot be read, or the picture cannot be drawn or written.
    """
    out, files, kind = Path(options.out), {"out": options.out}, picture_kind(options.out)
    style_of(options)  # before the file is claimed
    claim_files([out], options.inputs, options.redo)
    reporter(RunStarted(__version__, options.line))
    picture, taxa = picture_of(options, kind, reporter)
    event, values = TreesWritten(str(out), 1, taxa), {"taxa": taxa}
    write_out("draw", options, {"out": picture}, files, [event], values, reporter)


def picture_kind(path: str) -> str:
    """The kind of picture that a file's name tells. Raises: InputError: it tells none."""
    kind = Path(path).suffix.lower().lstrip(".")
    if kind not in PICTURES:
        hint = f"known: {' '.join('.' + known for known in PICTURES)}"
        raise InputError(f"{path}: the file name does not show the picture format", hint=hint)
    return kind


def picture_of(options: DrawOptions, kind: str, emit: Emit) -> tuple[bytes, int]:
    """The content of a picture's file, of a kind of :data:`PICTURES`, and the tree's taxa."""
    style = style_of(options)
    if str(options.tree).endswith(".json"):
        tree, names = _tree_of_result(options.tree, read_text(options.tree))
        if not style.supports.names:
            style = replace(style, supports=replace(style.supports, names=names))
    else:
        tree, *others = read_written(options.tree)
        if others:
            name = text_of(options.tree)[1] or "the trees"
            emit(Notice(f"{name}: the first of {1 + len(others)} trees is drawn"))
    scene = draw(tree, style, emit)
    picture = svg(scene).encode() if kind == "svg" else figure(scene, kind, options.dpi)
    return picture, len(tree.tips)


def style_of(options: DrawOptions) -> Style:
    """The style that options ask for.

    Raises: InputError: one of them cannot be read.
    """
    known = {"layout": LAYOUTS, "order": ORDERS, "axis": AXES}
    for name, words in known.items():
        one_of(name, getattr(options, name), words)
    _check_root(options)
    if options.latest is not None and options.axis != "time":
        raise InputError("--latest goes with --axis time")
    supports = Supports(
        marks=_marks(options.supports),
        columns=tuple(int(n) for n in _numbers("--columns", options.columns, ",", 1)),
        names=tuple(name.strip() for name in (options.support_names or "").split("/") if name),
        cutoffs=_numbers("--cutoff", options.cutoff, "/"),
        colours=_colours(options.support_colours),
    )
    return Style(
        layout=options.layout,
        order=options.order,
        outgroup=_taxa_of(options.outgroup),
        is_midpoint=options.midpoint,
        is_scaled=not options.cladogram,
        size=(_points("width", options.width), _points("height", options.height)),
        font=options.font or "",
        font_size=options.font_size,
        is_italic=options.italic,
        supports=supports,
        highlights=_clades(options.highlight),
        collapsed=_clades(options.collapse),
        axis=Axis(kind=options.axis, unit=options.unit or "", latest=options.latest),
    )


def _points(name: str, length: float | str | None) -> float | None:
    """Points of a side, which Python may give as ``"174mm"``."""
    try:
        return None if length is None else page_length_of(str(length))
    except ValueError as error:
        raise InputError(f"{name}: {error}") from None


def _marks(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    words = tuple(word.strip() for word in text.split(","))
    for word in words:
        if word not in MARKS and words != ("none",):
            raise InputError(f"--supports: {word!r} is not one of {', '.join((*MARKS, 'none'))}")
    return () if words == ("none",) else words


def _numbers(option: str, text: str | None, between: str, least: int | None = None) -> Numbers:
    """Numbers with a mark between them; whole ones from ``least`` on, if that is given."""
    try:
        read = decimal if least is None else whole
        numbers = tuple(map(read, text.split(between))) if text else ()
        if any(not math.isfinite(n) or n < (least or -math.inf) for n in numbers):
            raise ValueError
    except ValueError:
        kind = "numbers" if least is None else f"whole numbers from {least} on"
        raise InputError(f"{option}: {text!r} are no {kind} with {between!r} between") from None
    return numbers


def _colours(text: str | None) -> Steps:
    """Colours from a support on, rising."""
    steps = []
    for part in (text or "").split(",") if text else ():
        number, _, colour = part.strip().partition("=")
        if COLOUR_NAME.fullmatch(colour) is None:
            hint = "write 70=#e08e3c,95=#0b4f8a"
            raise InputError(f"--support-colours: {part!r} is not a support and colour", hint=hint)
        steps += [(value, colour) for value in _numbers("--support-colours", number, "/")]
    return tuple(sorted(steps))


def _clades(text: str | None) -> tuple[Clade, ...]:
    """Clades of an option, which may be a file with one a line."""
    if text is None:
        return ()
    if is_there(Path(text)):
        lines = read_text(text).decode(errors="replace").splitlines()
        return tuple(Clade.read(line) for line in lines if line.strip() and line[0] != "#")
    return tuple(Clade.read(part) for part in text.split(";") if part.strip())


def _tree_of_result(path: str, text: str | bytes) -> tuple[WrittenTree, tuple[str, ...]]:
    """The tree of a run's result, with the names of its supports."""
    try:
        result = json.loads(text)
        drawn = ((one["metric"], one["newick"]) for one in result.get("supports", {}).values())
        newick, names = best_labelled(drawn)
        (tree,) = read_written(newick or result["tree"])
    except (ValueError, KeyError, TypeError, AttributeError):
        hint = "PREFIX.mltree.json of search, run or evaluate is wanted, or a tree"
        raise InputError("no result with a tree", file=path, hint=hint) from None
    return tree, names


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

MOST_INDENTED = 4000
"""Nodes up to which JSON is indented: json's writer of indents takes ten times as long."""

_NO_NAMES = re.compile(r"[\t\r\n|]")
"""Separators of the fields of iTOL's table, and of the two tips that name a node."""


def auspice(
    tree: WrittenTree, title: str, updated: date, dates: Float64 | None = None,
    rates: Float64 | None = None,
) -> str:  # fmt: skip
    """Auspice's JSON, version 2: divergence from the root, supports as a colouring.

    dates  f64 [N, 3]: decimal year of each node, and its interval; None without
    rates  f64 [N]: of the branch above each node, NaN where it has none; None without
    """
    support = {"key": "support", "title": "Support", "type": "continuous"}
    meta: dict[str, Any] = {
        "title": title,
        "updated": updated.isoformat(),
        "panels": ["tree"],
        "colorings": [support] if np.isfinite(tree.supports).any() else [],
        "display_defaults": {"distance_measure": "div" if dates is None else "num_date"},
    }
    if dates is not None:
        dated = {"key": "num_date", "title": "Date", "type": "continuous"}
        meta["colorings"] = [dated, *([support] if np.isfinite(tree.supports).any() else [])]
    if rates is not None:
        meta["colorings"].append({"key": "rate", "title": "Clock rate", "type": "continuous"})
    nodes, depth = _nodes(tree), [0] * tree.n_nodes
    for node, rate in enumerate([] if rates is None else rates.tolist()):
        if np.isfinite(rate):
            nodes[node]["node_attrs"]["rate"] = {"value": rate}
    for node, row in enumerate([] if dates is None else dates.tolist()):
        value, *interval = (round(year, 6) for year in row)
        nodes[node]["node_attrs"]["num_date"] = {"value": value, "confidence": interval}
    for node, parent in enumerate(tree.parent.tolist()[1:], 1):
        depth[node] = depth[parent] + 1
    if max(depth) > DEEPEST or tree.n_nodes > MOST_INDENTED:
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
