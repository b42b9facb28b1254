"""EVALUATE, EVALUATE_SITES and DERIVE: lnL and its derivatives at an edge (x, y)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from mltree.program.contract import Function
from mltree.program.ops.operation import Run, record
from mltree.program.ops.state import ModelRow, ReferenceState, ScaledCla, over_categories
from mltree.system.arrays import Float64

EDGE = record(
    "x:reads y:reads p:matrix case:case model:model weights:weights cell:cell", "EDGE"
)  # fmt: skip

CANCELLED = 2.0**-14
"""Share of the size of a sum's terms below which they have cancelled each other."""


class _AtEdge(Run):
    """Edges under the models and weights of their cases."""

    layout: ClassVar = EDGE
    function: ClassVar = Function.EVALUATE
    line: ClassVar = "{cell} at ({x}, {y}) {p} {case}"


class Evaluate(_AtEdge):
    """cell += lnL at the edge (x, y)."""

    name: ClassVar = "EVALUATE"
    number: ClassVar = 1
    cells: ClassVar = 1

    @staticmethod
    def formula(
        state: ReferenceState, x: int, y: int, p: int, _: int, model: int, weights: int, cell: int
    ) -> None:
        lnl = state.lnl_across(state.operand(x), state.across(state.operand(y), p), model)
        state.cells[cell, state.part] = state.add_up(weights, lnl)


class Derive(_AtEdge):
    """cell, cell + 1 += dlnL/dt, d2lnL/dt2 at the edge (x, y): sumGAMMA fused with core."""

    name: ClassVar = "DERIVE"
    number: ClassVar = 2
    function: ClassVar = Function.DERIVE
    cells: ClassVar = 2

    @staticmethod
    def formula(
        state: ReferenceState, x: int, y: int, p: int, _: int, model: int, weights: int, cell: int
    ) -> None:
        row, part = state.model(model), state.part
        a, b = state.operand(x), state.operand(y)
        terms, size = _by_eigen_system(row, a.values, b.values, state.expm1[p + part])
        lost = (terms[0] < CANCELLED * size) & state.is_indirect[model + part]
        terms = np.where(lost, _by_generator(row, a, state.across(b, p)), terms)
        (l0, l1, l2) = over_categories(terms, a.counts + b.counts)[0]
        state.cells[cell, part] = state.add_up(weights, l1 / l0)
        state.cells[cell + 1, part] = state.add_up(weights, l2 / l0 - (l1 / l0) ** 2)


class EvaluateSites(_AtEdge):
    """EVALUATE that also writes the lnL of every pattern, into the row of its case's number."""

    name: ClassVar = "EVALUATE_SITES"
    number: ClassVar = 3
    cells: ClassVar = 1
    keeps_sites: ClassVar = True

    @staticmethod
    def formula(
        state: ReferenceState, x: int, y: int, p: int, case: int, model: int, weights: int,
        cell: int,
    ) -> None:  # fmt: skip
        lnl = state.lnl_across(state.operand(x), state.across(state.operand(y), p), model)
        state.cells[cell, state.part] = state.add_up(weights, lnl)
        state.site_lnl[case, state.range] = lnl


def _by_eigen_system(
    row: ModelRow, x: Float64, y: Float64, expm1: Float64
) -> tuple[Float64, Float64]:
    """f64[3, L, K]: L, L' and L'' of every category; f64[L, K]: the size of L's terms."""
    sum_gamma = np.einsum("lki,lkim,lki->lkm", row.frequencies, row.right, x)
    sum_gamma *= np.einsum("lkmi,lki->lkm", row.left, y)
    same = np.einsum("lki,lki,lki->lk", row.frequencies, x, y)
    lam = row.rates[:, None] * row.eigenvalues
    change = sum_gamma * expm1
    slope = sum_gamma * lam * (expm1 + 1)
    terms = np.stack([same + change.sum(axis=2), slope.sum(axis=2), (lam * slope).sum(axis=2)])
    return row.weights * terms, row.weights * (same + np.abs(change).sum(axis=2))


def _by_generator(row: ModelRow, x: ScaledCla, seen: ScaledCla) -> Float64:
    """The same f64[3, L, K] from x and P y, by Q, whose products lose nothing that is small."""
    flow = row.rates[:, None, None] * row.generator
    first = np.einsum("lkij,lkj->lki", flow, seen.values)
    orders = seen.values, first, np.einsum("lkij,lkj->lki", flow, first)
    return np.stack(
        [
            np.einsum("k,lki,lki,lki->lk", row.weights, row.frequencies, x.values, order)
            for order in orders
        ]
    )
