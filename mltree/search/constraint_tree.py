"""Constraint trees: read from Newick, turned into splits, and resolved into starting trees.

A constraint tree may hold some of the taxa only and may have polytomies; every inner edge of it
is a split that the search keeps.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from mltree.arrays import Bool
from mltree.errors import InputError
from mltree.search.constraint import Constraint
from mltree.tree.newick_text import RawTree, raw_trees, text_of
from mltree.tree.topology import DEFAULT_LENGTH, Tree, tree_from_edges

__all__ = ["constrained_start", "read_constraint"]


def read_constraint(source: str | Path, taxa: Sequence[str]) -> Constraint:
    """The splits of the one tree of a Newick file or text.

    Raises: InputError for broken Newick, unknown or repeated taxa, no inner edge at all, or more
    than one tree.
    """
    text, file = text_of(source)
    trees = list(raw_trees(text, file))
    if not trees:
        raise InputError("no tree in it", file=file)
    if len(trees) > 1:
        raise InputError(
            "a second constraint tree",
            file=file,
            line=trees[1].line,
            hint="one tree holds all groups: join those that do not overlap",
        )
    (raw,) = trees
    leaves, clades = _clades(raw.text)
    if len(leaves) != raw.text.count(",") + 1:
        raise InputError("a tip without a name", file=file, line=raw.line)
    tips = _tips([raw.names[leaf] for leaf in leaves], taxa, raw, file)
    tip_of = dict(zip(leaves, tips, strict=True))
    present = np.zeros(len(taxa), dtype=np.bool_)
    present[tips] = True
    sides: dict[bytes, Bool] = {}
    for clade in clades:
        side = np.zeros(len(taxa), dtype=np.bool_)
        side[[tip_of[leaf] for leaf in clade]] = True
        if side[tips[:1]].any():
            side = present & ~side
        if 2 <= side.sum() <= present.sum() - 2:
            sides.setdefault(side.tobytes(), side)
    if not sides:
        raise InputError(
            "the constraint tree groups no taxa",
            file=file,
            line=raw.line,
            hint="it needs an inner branch with two taxa or more on either side",
        )
    one = np.stack(list(sides.values()))
    return Constraint(one, present & ~one)


def constrained_start(constraint: Constraint, rng: np.random.Generator) -> Tree:
    """A random tree that satisfies the constraint.

    Taxa of a group are joined pair by pair in random order, smallest groups first; free taxa
    then go onto random edges.
    """
    present = (constraint.one | constraint.other)[0]
    n_tips = present.size
    members = np.flatnonzero(present)
    parts: dict[int, Bool] = {int(tip): np.arange(n_tips) == tip for tip in members}
    edges: list[tuple[int, int]] = []
    fresh = iter(range(n_tips, 2 * n_tips - 2))

    def join_within(side: Bool, down_to: int) -> None:
        inside = [node for node, part in parts.items() if not (part & ~side).any()]
        while len(inside) > down_to:
            first, second = sorted(rng.choice(len(inside), 2, replace=False).tolist())
            right, left = inside.pop(second), inside.pop(first)
            node = next(fresh)
            edges.extend([(node, left), (node, right)])
            parts[node] = parts.pop(left) | parts.pop(right)
            inside.append(node)

    # No side holds the first taxon, so the sides are nested or disjoint.
    for side in sorted(constraint.one, key=lambda side: int(side.sum())):
        join_within(side, 1)
    join_within(present, 2)
    left, right = parts
    edges.append((left, right))
    for tip in rng.permutation(np.flatnonzero(~present)).tolist():
        target = int(rng.integers(len(edges)))
        a, b = edges[target]
        node = next(fresh)
        edges[target] = (a, node)
        edges += [(node, b), (node, tip)]
    return tree_from_edges(np.array(edges), DEFAULT_LENGTH, n_tips)


def _clades(text: str) -> tuple[list[int], list[list[int]]]:
    """Name indices of the leaves, in order, and of the leaves inside every pair of brackets."""
    leaves: list[int] = []
    open_at: list[int] = []
    clades: list[list[int]] = []
    before = ""
    for token in re.findall(r"[(),]|:[^(),;]+|\d+", text):
        if token == "(":
            open_at.append(len(leaves))
        elif token == ")":
            clades.append(leaves[open_at.pop() :])
        elif token.isdigit() and before != ")":
            leaves.append(int(token))
        before = token
    return leaves, clades


def _tips(names: list[str], taxa: Sequence[str], raw: RawTree, file: str | None) -> list[int]:
    """The tip number of every name. Raises: InputError for unknown or repeated names."""
    number = {name: tip for tip, name in enumerate(taxa)}
    occurrences = Counter(names)
    for name in names:
        if name not in number or occurrences[name] > 1:
            what = "twice" if name in number else "but not in the alignment"
            raise InputError(
                f"taxon {name!r} is in the constraint tree {what}",
                file=file,
                line=raw.line,
                taxon=name,
                hint="a constraint tree may leave taxa out, but holds each at most once",
            )
    return [number[name] for name in names]
