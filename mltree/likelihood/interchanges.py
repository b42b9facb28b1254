"""Nearest-neighbour interchanges (NNI) across a tree's inner branches, scored locally.

    a --u     v-- c        a --u     v-- b
         |---|        ->        |---|             and likewise with d in the place of c
    b --'     '-- d        c --'     '-- d

An interchange joins the four subtrees around a branch another way. The subtrees' CLAs stay those of
the tree, so that a neighbour needs six new CLAs at most: u and v, each as seen across the branch
between them, and the view from each of the four subtrees. With these six all five branches are
optimised together, for as many neighbours side by side as the engine has room.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from mltree.program import planner
from mltree.program.builders import groups_by_part, newton
from mltree.program.cases import Case, Cases, sums_of
from mltree.program.contract import GroupKind
from mltree.program.ops.edges import EDGE, Derive, Evaluate, EvaluateSites
from mltree.program.ops.newview import NEWVIEW, Newview, PMatrices
from mltree.program.ops.operation import Records, table
from mltree.program.planner import Piece
from mltree.program.program import Program
from mltree.system.arrays import Float64, Index, Int32
from mltree.system.values import Value
from mltree.tree.moves import nni
from mltree.tree.topology import Tree, siblings

LEGS = 4
"""Branches from u and v to the four subtrees."""

BRANCHES = LEGS + 1
"""Branches of a quartet: the legs, then the branch between u and v."""

INNER = 2
"""CLAs that a quartet's lnL takes: u and v, each as seen across the middle."""

SLOTS = INNER + LEGS
"""CLAs that a quartet's optimisation takes: the inner ones, then the view from each subtree."""

_SUMS = 1 + 2 * BRANCHES
"""Sums a quartet: lnL, and two derivatives a branch."""

_INTERCHANGES = np.array([(2, 1, 0, 3), (3, 1, 2, 0)])
"""Order of the subtrees a, b, c, d in the tree's two neighbours (:func:`mltree.tree.moves.nni`)."""


class Quartets(Value):
    """Four subtrees of a tree around a branch each, and how they are joined."""

    halves: Int32
    """int32[n, 4]: half-edges of the tree that face the subtrees, those joined at u first."""
    lengths: Float64
    """f64[n, 5], or a layer a part: of the branches to the subtrees, and of that between."""

    @classmethod
    def of(cls, tree: Tree, edges: Int32) -> Quartets:
        """The quartets of a tree around its inner ``edges``, joined as the tree joins them."""
        u, v = tree.edge_halves[edges].T
        halves = np.stack([*siblings(u), *siblings(v)], axis=1)
        branches = np.concatenate([tree.edge[halves], edges[:, None]], axis=1)
        return cls(halves, tree.lengths[..., branches])

    def part(self, which: slice | npt.NDArray[np.intp]) -> Quartets:
        """The quartets of these numbers."""
        return Quartets(self.halves[which], self.lengths[..., which, :])

    def joined(self, others: Quartets) -> Quartets:
        """These quartets, then others of the same tree."""
        lengths = np.concatenate([self.lengths, others.lengths], axis=-2)
        return Quartets(np.concatenate([self.halves, others.halves]), lengths)


class Alternatives(Protocol):
    """Trees that differ from one tree in k branches, and programs that score them."""

    @property
    def tree(self) -> Tree:
        """The tree that the alternatives differ from."""

    @property
    def case(self) -> Case:
        """The case of all alternatives."""

    @property
    def lengths(self) -> Float64:
        """f64[..., n, k]: starting lengths of the branches, expected substitutions per site."""

    @property
    def at_once(self) -> int:
        """Alternatives that the engine has room for beside the tree."""

    def newton(
        self, which: Index, lengths: Float64, cases: Sequence[Case]
    ) -> tuple[Float64, Float64]:
        """Optimise the alternatives ``which``, each in its case.

        Returns lengths f64[..., n, k] and lnL f64[n].
        """

    def score(self, which: Index, lengths: Float64) -> Float64:
        """f64[n]: lnL of the alternatives ``which``, whose site lnL become the engine's rows."""


def neighbours(tree: Tree, edges: Int32) -> Quartets:
    """Both neighbours across each inner edge: quartets 2k and 2k + 1 are those across the k-th.

    A branch moves with its subtree and keeps its length.
    """
    quartets = Quartets.of(tree, edges)
    order = np.concatenate([_INTERCHANGES, np.full((2, 1), LEGS)], axis=1)
    lengths = quartets.lengths[..., order]
    return Quartets(
        quartets.halves[:, _INTERCHANGES].reshape(-1, LEGS),
        lengths.reshape(*lengths.shape[:-3], -1, BRANCHES),
    )


def interchanged(tree: Tree, quartets: Quartets, n: int) -> Tree:
    """The tree that quartet ``n`` of :func:`neighbours` stands for."""
    other = tree.copy()
    edge = tree.inner_edges.item(n // 2)
    nni(other, edge, n % 2)
    branches = [*other.edge[tree.twin[quartets.halves[n]]].tolist(), edge]
    other.lengths[..., branches] = quartets.lengths[..., n, :]
    return other


def optimisation(
    tree: Tree, quartets: Quartets, number: Int32, base: int, passes: int, cases: Cases
) -> tuple[Program, Float64]:
    """Program of guarded Newton steps on the five branches of every quartet at once.

    number  int32[n]: the case of each quartet
    base    first slot for the quartets' CLAs; those of the tree are resident below it
    Returns the program and the lengths that it starts from.
    """
    count = len(number)
    sums = sums_of(number, _SUMS, cases)
    views = _Views(tree, quartets, number, base, cases, SLOTS)
    derive = np.concatenate([views.legs(), views.middle()])
    derive["cell"] = np.concatenate(
        [sums.cells + np.int32(1 + 2 * branch) for branch in range(BRANCHES)]
    )
    evaluate = views.middle()
    evaluate["cell"] = sums.cells
    pieces = [
        views.across(),
        views.inwards(),
        Piece(Evaluate, evaluate, number, np.zeros(count, np.int32)),
        Piece(Derive, derive, np.tile(number, BRANCHES), np.zeros(len(derive), np.int32)),
    ]
    first = BRANCHES * np.arange(count, dtype=np.int32)
    groups = planner.group_records(
        GroupKind.DIAGONAL, first, BRANCHES, sums.sums, sums.sums + np.int32(1)
    )
    groups = groups_by_part(groups, cases, BRANCHES * count, sums.n_sums)
    stages = newton((views.matrices(), planner.sites(pieces, cases), sums.reduce), groups, passes)
    return Program(stages, sums.n_cells, cases.records), quartets.lengths.ravel()


def site_lnls(
    tree: Tree, quartets: Quartets, number: Int32, base: int, cases: Cases
) -> tuple[Program, Float64]:
    """Program for the lnL of every pattern, in the rows of the quartets' cases.

    Sum n is quartet n's lnL. Returns the program and its lengths.
    """
    sums = sums_of(number, 1, cases)
    views = _Views(tree, quartets, number, base, cases, INNER)
    evaluate = views.middle()
    evaluate["cell"] = sums.cells
    level = np.zeros(len(number), np.int32)
    pieces = [views.across(), Piece(EvaluateSites, evaluate, number, level)]
    stages = (views.matrices(), planner.sites(pieces, cases), sums.reduce)
    return Program(stages, sums.n_cells, cases.records), quartets.lengths.ravel()


class _Views:
    """Records of quartets: branch j of quartet n is branch ``5n + j`` of the program."""

    def __init__(
        self, tree: Tree, quartets: Quartets, number: Int32, base: int, cases: Cases, slots: int
    ) -> None:
        """``slots`` of each quartet, from ``base`` on: INNER or SLOTS."""
        self._cases, self._number = cases, number
        index = np.arange(len(number), dtype=np.int32)[:, None]
        branch: Int32 = (BRANCHES * index + np.arange(BRANCHES)).astype(np.int32)
        self._p = cases.matrices(branch.ravel(), np.repeat(number, BRANCHES)).reshape(branch.shape)
        self._slot: Int32 = (base + slots * index + np.arange(slots)).astype(np.int32)
        self._subtree = planner.operands(tree, tree.twin[quartets.halves])

    def matrices(self) -> PMatrices:
        """P matrices of all branches."""
        return planner.pmatrices(np.repeat(self._number, BRANCHES), self._cases)

    def across(self) -> Piece:
        """The nodes u and v as seen across the branch between them."""
        return self._newviews(
            self._slot[:, :2],
            (self._subtree[:, 0::2], self._p[:, 0:LEGS:2]),
            (self._subtree[:, 1::2], self._p[:, 1:LEGS:2]),
        )

    def inwards(self) -> Piece:
        """CLAs seen from each subtree: its sibling, and the opposite node."""
        beside, opposite = [1, 0, 3, 2], [1, 1, 0, 0]
        middle = np.repeat(self._p[:, LEGS:], LEGS, axis=1)
        return self._newviews(
            self._slot[:, 2:],
            (self._subtree[:, beside], self._p[:, beside]),
            (self._slot[:, opposite], middle),
        )

    def middle(self) -> Records:
        """The edge records between u and v, cells not yet set."""
        return self._edges(self._slot[:, :1], self._slot[:, 1:2], self._p[:, LEGS:])

    def legs(self) -> Records:
        """The edge records to the subtrees: all first ones, then all second ones, ..."""
        return self._edges(self._slot[:, 2:], self._subtree, self._p[:, :LEGS])

    def _newviews(self, dst: Int32, left: tuple[Int32, Int32], right: tuple[Int32, Int32]) -> Piece:
        records: Records = np.empty(dst.size, NEWVIEW)
        records["dst"] = dst.ravel()
        records["left"], records["left_p"] = (side.ravel() for side in left)
        records["right"], records["right_p"] = (side.ravel() for side in right)
        number = np.repeat(self._number, dst.shape[1])
        return Piece(Newview, records, number, np.zeros(dst.size, np.int32))

    def _edges(self, x: Int32, y: Int32, p: Int32) -> Records:
        records = table(EDGE, x.size, x=x.T.ravel(), y=y.T.ravel(), p=p.T.ravel())
        self._cases.fill(records, np.tile(self._number, x.shape[1]))
        return records
