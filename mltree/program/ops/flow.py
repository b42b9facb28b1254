"""FLOW: how lnL changes with every entry of the rate matrices of a mixture's classes.

At an edge of length t, with x and y for what is seen from its two ends, pattern l (n_l sites) has

    L_l = Σ_k w_k Σ_ij π_i x_i P_k[i, j] y_j,   W_k = Σ_l n_l / L_l w_k (π x) yᵀ = ∂lnL / ∂P_k

and an entry of Q moves P = V exp(Λ r t) V⁻¹ by way of divided differences (Schadt, Sinsheimer &
Lange 1998, Genome Res. 8:222-233; Najfeld & Havel 1995, Adv. Appl. Math. 16:321-375):

    ∂lnL / ∂Q = V⁻ᵀ (Σ_edges,k F_k ∘ Vᵀ W_k V⁻ᵀ) Vᵀ
    F[a, b] = (e^{λ_a r t} - e^{λ_b r t}) / (λ_a - λ_b)

where Vᵀ π x = V⁻¹ x. One such computation tells what all 189 exchangeabilities of proteins would
gain, where differences take a traversal for each, with as many eigen systems as there are classes.
The sum over edges is done here, the rest by :func:`mltree.program.builders.flow_slopes`.

Letters: K categories, M classes, S states.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from mltree.program.contract import FLOW_NEAR, Function
from mltree.program.ops.operation import Run, record
from mltree.program.ops.state import LN_SCALE, ReferenceState
from mltree.system.arrays import Float64

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

    name: ClassVar = "FLOW"
    number: ClassVar = 4
    layout: ClassVar = FLOW
    function: ClassVar = Function.DERIVE
    reads_sites: ClassVar = True
    line: ClassVar = "{cell} and {cells} from {first} on at ({x}, {y}) {length} {case}"

    @staticmethod
    def formula(
        state: ReferenceState, x: int, y: int, length: int, stride: int, case: int, model: int,
        weights: int, cell: int, cells: int, first: int,
    ) -> None:  # fmt: skip
        row, a, b = state.model(model), state.operand(x), state.operand(y)
        time = state.lengths[length + stride * state.part] * row.rates
        u = np.einsum("lkai,lki->lka", row.left, a.values)
        v = np.einsum("lkbj,lkj->lkb", row.left, b.values)
        logs = state.site_lnl[case, state.range, None] + (a.counts + b.counts) * LN_SCALE
        counts = state.weights[weights, state.range]
        shares = np.where(counts > 0, counts, 0.0)[:, None] * row.weights * np.exp(-logs)
        joint = np.einsum("lk,lka,lkb->kab", shares, u, v) * divided(row.eigenvalues[0], time)
        by_class = joint.reshape(state.row.systems, -1, state.row.states**2).sum(axis=1).ravel()
        asked = by_class[first : first + cells]
        state.cells[cell : cell + asked.size, state.part] += asked


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
