"""Trees and results in the formats of auspice (Nextstrain), iTOL and MultiQC.

iTOL names an inner node by two tips whose last common ancestor it is; auspice by a name, which
inner nodes are given here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import date
from typing import Any

import numpy as np

from mltree.system.errors import InputError
from mltree.tree.clades import WrittenTree
from mltree.tree.topology import NONE

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
