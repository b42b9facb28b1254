"""Topological constraints: splits that every tree of the search must show.

A constraint split divides some of the taxa in two sides; the others are free.  A tree satisfies
it if an edge has one side's taxa behind it and the other's before it.  Such edges form a path;
call the *ground* of a side what lies beyond the last of them, seen from the other side.  Moving a
subtree S keeps a satisfied split satisfied unless S takes a part of one side, and nothing of the
other, into the ground of the other:

    forbidden[S, e] = some split has a part of side 1 and nothing of side 2 in S, and e in the
                      ground of side 2; or the other way round

which for all prunes and edges is one product of 0/1 matrices.  Letters: T tips, E edges, C splits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from mltree.data.patterns import Patterns
from mltree.data.source import TaxonNumbers
from mltree.system.arrays import Bool, Float32, Int32
from mltree.system.errors import InputError, did_you_mean
from mltree.system.values import Value
from mltree.tree.fitch import InformativeSites
from mltree.tree.newick import listed, parsed_trees, text_of
from mltree.tree.splits import splits
from mltree.tree.topology import DEFAULT_LENGTH, Tree, siblings, tree_from_edges


def tips_behind_edges(tree: Tree) -> Bool:
    """bool[E, T]: the tips on the side of each edge that does not hold tip 0."""
    octets = splits(tree).view(np.uint8)
    return np.unpackbits(octets, axis=1, count=tree.n_tips, bitorder="little").astype(np.bool_)


class Constraint(Value, eq=False):
    """C splits; ``one`` and ``other`` are bool[C, T], disjoint, both sides of two taxa or more."""

    one: Bool
    other: Bool

    @property
    def n_splits(self) -> int:
        """Number of splits, C."""
        return len(self.one)

    def satisfied(self, tree: Tree) -> bool:
        """Return True if the tree shows every split."""
        return bool(self.shown_by(tree).any(axis=1).all())

    def shown_by(self, tree: Tree) -> Bool:
        """bool[C, E]: True if the edge has one side's taxa behind it and the other's before it."""
        one, other, ones, others = self._counts(tips_behind_edges(tree))
        shown: Bool = ((one == ones) & (other == 0)) | ((one == 0) & (other == others))
        return shown

    def parsimony_sites(self, groups: Sequence[Patterns], most: float) -> InformativeSites:
        """The informative sites of patterns, and behind them a character for every split.

        A change of a character weighs more than all changes of ``most`` sites, so that trees by
        parsimony satisfy the constraint; the one change that each needs is left out of the scores.
        Sums of all characters stay within 31 bits: where that is too little, :meth:`or_drawn`.
        """
        sites = InformativeSites.of(*groups)
        bits = (int(most) * sites.n_tips).bit_length()
        weight = 1 << min(bits, 30 - self.n_splits.bit_length())
        first = len(sites.weights)
        return InformativeSites(
            np.hstack([sites.sets, (3 - 2 * self.one - self.other).T.astype(sites.sets.dtype)]),
            np.append(sites.states, np.full(self.n_splits, 2)),
            np.append(sites.pattern, np.arange(first, first + self.n_splits)),
            np.append(sites.weights, np.full(self.n_splits, weight)),
            np.append(sites.constant, np.full(self.n_splits, -1)),
        )

    def or_drawn(self, trees: Iterable[Tree], rngs: Iterable[np.random.Generator]) -> list[Tree]:
        """Return the trees, with a random one by its rng for each that breaks the constraint."""
        return [
            tree if self.satisfied(tree) else constrained_start(self, rng)
            for tree, rng in zip(trees, rngs, strict=False)
        ]

    def forbidden(self, tree: Tree, prunes: Int32) -> Bool:
        """bool[prunes, E]: regrafting what the prune faces onto the edge breaks a split.

        The tree must satisfy the constraint.
        """
        behind = tips_behind_edges(tree)
        one, other, ones, others = self._counts(behind)
        flipped, pendant = _holds_first_tip(tree, prunes), tree.edge[prunes]
        moved_one = np.where(flipped, ones - one[:, pendant], one[:, pendant])
        moved_other = np.where(flipped, others - other[:, pendant], other[:, pendant])
        only_one = (moved_one > 0) & (moved_one < ones) & (moved_other == 0)
        only_other = (moved_other > 0) & (moved_other < others) & (moved_one == 0)
        shown_one = (one == ones) & (other == 0)
        shown_other = (one == 0) & (other == others)
        # The side of an edge that holds `one` is `behind` it, or what is not behind it.
        ground_one = _ground(behind, shown_one, shown_other)
        ground_other = _ground(behind, shown_other, shown_one)
        broken = _product(only_one, ground_other) + _product(only_other, ground_one)
        return broken > 0

    def _counts(self, behind: Bool) -> tuple[Float32, Float32, Float32, Float32]:
        """Taxa of either side behind each edge, float32[C, E], and in all, float32[C, 1]."""
        sides = self.one.T, self.other.T
        one, other = (_product(side, behind.T) for side in sides)
        ones, others = (side.sum(axis=0, dtype=np.float32)[:, None] for side in sides)
        return one, other, ones, others


def _ground(behind: Bool, direct: Bool, flipped: Bool) -> Bool:
    """bool[C, E]: edges beyond the last edge that shows the split, on one side's own ground.

    ``direct`` and ``flipped`` bool[C, E]: edges with that side (and not the other) behind them,
    or before them.
    """
    n_tips = behind.shape[1]
    size = behind.sum(axis=1)
    around = np.where(direct, size, np.where(flipped, n_tips - size, n_tips + 1))
    last = around.argmin(axis=1)
    split = np.arange(len(last))
    ground = np.where(direct[split, last][:, None], behind[last], ~behind[last])
    inside = _product(ground.T, behind.T)
    within = (inside == size) | (ground.sum(axis=1)[:, None] - inside == n_tips - size)
    within[split, last] = False
    return np.asarray(within)


def _product(one: Bool, other: Bool) -> Float32:
    """float32[n, m]: how many rows of bool[r, n] and bool[r, m] are both set."""
    return one.T.astype(np.float32) @ other.astype(np.float32)


def _holds_first_tip(tree: Tree, prunes: Int32) -> Bool:
    """bool[prunes]: whether the subtree that the prune faces holds tip 0.

    Goes from tip 0 outwards: every half-edge entered on the way looks back at it.
    """
    looks_back = np.zeros(tree.twin.size, dtype=np.bool_)
    wave = tree.twin[:1]
    while wave.size:
        looks_back[wave] = True
        inner = wave[wave >= 3 * tree.n_tips]
        wave = tree.twin[np.concatenate(siblings(inner))]
    return looks_back[prunes]


# Constraint trees: read from Newick, turned into splits, and resolved into starting trees.
#
# A constraint tree may hold some of the taxa only and may have polytomies; every inner edge of it
# is a split that the search keeps.


def read_constraint(source: str | Path, taxa: Sequence[str]) -> Constraint:
    """The splits of the one tree of a Newick file or text.

    Raises: InputError for broken Newick, unknown or repeated taxa, no inner edge at all, or more
    than one tree.
    """
    text, file = text_of(source)
    tree, *others = parsed_trees(text, file, size=1)
    if others:
        raise InputError(
            "a second constraint tree",
            file=file,
            line=others[0].line_of(0),
            hint="one tree holds all groups: join those that do not overlap",
        )
    tips = np.array(_tips(tree.labels(tree.tips), taxa, tree.line_of(0), file))
    present = np.isin(np.arange(len(taxa)), tips)
    sides: dict[bytes, Bool] = {}
    n_seen = np.cumsum(tree.is_tip)
    for opening, closing in zip(*tree.pairs, strict=True):
        side = np.zeros(len(taxa), dtype=np.bool_)
        side[tips[n_seen[opening] : n_seen[closing]]] = True
        if side[tips[:1]].any():
            side = present & ~side
        if 2 <= side.sum() <= present.sum() - 2:
            sides.setdefault(side.tobytes(), side)
    if not sides:
        raise InputError(
            "the constraint tree groups no taxa",
            file=file,
            line=tree.line_of(0),
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


def _tips(names: list[str], taxa: Sequence[str], line: int, file: str | None) -> list[int]:
    """The tip number of every name. Raises: InputError for unknown or repeated names."""
    number = TaxonNumbers(taxa)
    tips = [number[name] for name in names]
    times = Counter(tips)
    unknown = [name for name, tip in zip(names, tips, strict=True) if tip < 0]
    repeated = [taxa[tip] for tip, count in times.items() if tip >= 0 and count > 1]
    for odd, where, known in ((unknown, "in the constraint tree but not in the alignment", taxa),
                              (repeated, "in the constraint tree twice", ())):  # fmt: skip
        if odd:
            otherwise = "a constraint tree may leave taxa out, but holds each at most once"
            raise InputError(
                f"{listed(odd)} {where}",
                file=file,
                line=line,
                taxon=odd[0],
                hint=did_you_mean(odd[0], known, otherwise),
            )
    return tips
