"""Runs at an edge (x, y): lnL, its derivatives, and how it changes with rate matrices."""

from __future__ import annotations

import numpy as np

from mltree.program.contract import FLOW_NEAR, Function
from mltree.program.ops.operation import Row, Run, record
from mltree.program.ops.state import LN_SCALE, ModelRow, ReferenceState, ScaledCla, over_categories
from mltree.system.arrays import Float64

EDGE = record(
    "x:reads y:reads p:matrix case:case model:model weights:weights cell:cell", "EDGE"
)  # fmt: skip

CANCELLED = 2.0**-14
"""Share of the size of a sum's terms below which they have cancelled each other."""


class _AtEdge(Run):
    """Edges under the models and weights of their cases."""

    layout = EDGE
    function = Function.EVALUATE
    line = "{cell} at ({x}, {y}) {p} {case}"


class Evaluate(_AtEdge):
    """cell += lnL at the edge (x, y)."""

    name = "EVALUATE"
    number = 1
    cells = 1

    def formula(self, state: ReferenceState, edge: Row) -> None:
        y = state.across(state.operand(edge.y), edge.p)
        lnl = state.lnl_across(state.operand(edge.x), y, edge.model)
        state.cells[edge.cell, state.part] = state.add_up(edge.weights, lnl)
        if self.keeps_sites:
            state.site_lnl[edge.case, state.range] = lnl


class Derive(_AtEdge):
    """cell, cell + 1 += dlnL/dt, d2lnL/dt2 at the edge (x, y): sumGAMMA fused with core."""

    name = "DERIVE"
    number = 2
    function = Function.DERIVE
    cells = 2

    def formula(self, state: ReferenceState, edge: Row) -> None:
        row, part = state.model(edge.model), state.part
        a, b = state.operand(edge.x), state.operand(edge.y)
        terms, size = _by_eigen_system(row, a.values, b.values, state.expm1[edge.p + part])
        lost = (terms[0] < CANCELLED * size) & state.is_indirect[edge.model + part]
        terms = np.where(lost, _by_generator(row, a, state.across(b, edge.p)), terms)
        (l0, l1, l2) = over_categories(terms, a.counts + b.counts)[0]
        state.cells[edge.cell, part] = state.add_up(edge.weights, l1 / l0)
        state.cells[edge.cell + 1, part] = state.add_up(edge.weights, l2 / l0 - (l1 / l0) ** 2)


class EvaluateSites(Evaluate):
    """EVALUATE that also writes the lnL of every pattern, into the row of its case's number."""

    name = "EVALUATE_SITES"
    number = 3
    keeps_sites = True


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


def lnl_and_slopes(row: ModelRow, x: ScaledCla, seen: ScaledCla) -> Float64:
    """f64[3, L]: lnL of every pattern, and its derivatives in t, from x and P y."""
    sums, least = over_categories(_by_generator(row, x, seen), x.counts + seen.counts)
    value, slope, curve = sums
    slope = slope / value
    return np.stack([np.log(value) - least * LN_SCALE, slope, curve / value - slope**2])


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


# FLOW: how lnL changes with every entry of the rate matrices of a mixture's classes.
#
# At an edge of length t, with x and y for what is seen from its two ends, pattern l (n_l sites) has
#
#     L_l = Σ_k w_k Σ_ij π_i x_i P_k[i, j] y_j,   W_k = Σ_l n_l / L_l w_k (π x) yᵀ = ∂lnL / ∂P_k
#
# and an entry of Q moves P = V exp(Λ r t) V⁻¹ by way of divided differences (Schadt, Sinsheimer &
# Lange 1998, Genome Res. 8:222-233; Najfeld & Havel 1995, Adv. Appl. Math. 16:321-375):
#
#     ∂lnL / ∂Q = V⁻ᵀ (Σ_edges,k F_k ∘ Vᵀ W_k V⁻ᵀ) Vᵀ
#     F[a, b] = (e^{λ_a r t} - e^{λ_b r t}) / (λ_a - λ_b)
#
# where Vᵀ π x = V⁻¹ x. One such computation has the slopes of all 189 exchangeabilities of
# proteins; differences take a traversal for each, with as many eigen systems as there are classes.
# FLOW sums over edges, ``TreeLikelihood.flow_slopes`` does the rest.
#
# Letters: K categories, M classes, S states.

FLOW = record(
    "x:reads y:reads length:length stride:stride case:case model:model weights:weights cell:cell "
    "cells first",
    "FLOW",
)
"""An edge whose length in part q is ``length + stride q``. Of the sums of all classes, one after
the other, ``cells`` from number ``first`` on; those that a part's own classes do not have stay
0."""


class Flow(Run):
    """cell + (m S + a) S + b += sum_k F_k[a, b] sum_l n_l w_k / L_l (V^-1 x)_a (V^-1 y)_b.

    k are the categories of class m. The run stands behind an EVALUATE_SITES of its case, which left
    ln L_l; all its records add to the same cells.
    """

    name = "FLOW"
    number = 4
    layout = FLOW
    function = Function.DERIVE
    reads_sites = True
    line = "{cell} and {cells} from {first} on at ({x}, {y}) {length} {case}"

    def formula(self, state: ReferenceState, edge: Row) -> None:
        row, a, b = state.model(edge.model), state.operand(edge.x), state.operand(edge.y)
        time = state.lengths[edge.length + edge.stride * state.part] * row.rates
        u = np.einsum("lkai,lki->lka", row.left, a.values)
        v = np.einsum("lkbj,lkj->lkb", row.left, b.values)
        logs = state.site_lnl[edge.case, state.range, None] + (a.counts + b.counts) * LN_SCALE
        counts = state.weights[edge.weights, state.range]
        shares = np.where(counts > 0, counts, 0.0)[:, None] * row.weights * np.exp(-logs)
        joint = np.einsum("lk,lka,lkb->kab", shares, u, v) * divided(row.eigenvalues[0], time)
        by_class = joint.reshape(state.systems, -1, state.states**2).sum(axis=1).ravel()
        sums = by_class[edge.first : edge.first + edge.cells]
        state.cells[edge.cell : edge.cell + sums.size, state.part] += sums


def divided(eigenvalues: Float64, times: Float64) -> Float64:
    """f64[K, S, S]: F, from λ f64[K, S] and r t f64[K]."""
    exponents = times[:, None] * eigenvalues
    change = np.expm1(exponents)
    apart = exponents[..., :, None] - exponents[..., None, :]
    is_near = np.abs(apart) < FLOW_NEAR
    quotient = (change[..., :, None] - change[..., None, :]) / np.where(is_near, 1.0, apart)
    series = (1 + apart / 2 * (1 + apart / 3 * (1 + apart / 4))) * (1 + change[..., None, :])
    differences: Float64 = times[:, None, None] * np.where(is_near, series, quotient)
    return differences
