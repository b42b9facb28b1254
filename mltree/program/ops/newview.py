"""NEWVIEW: cla[dst] = (P[left_p] x_left) * (P[right_p] x_right), elementwise."""

from __future__ import annotations

import numpy as np

from mltree.program.contract import Function
from mltree.program.ops.operation import LaunchShape, Records, Row, Run, TableStage, record
from mltree.program.ops.state import ReferenceState
from mltree.system.arrays import Float64

NEWVIEW = record(
    "dst:writes left:reads left_p:matrix right:reads right_p:matrix", "NEWVIEW"
)  # fmt: skip


class Newview(Run):
    """CLAs of nodes from those of their two neighbours behind them."""

    name = "NEWVIEW"
    number = 0
    layout = NEWVIEW
    function = Function.NEWVIEW
    line = "{dst} = {left_p} {left} * {right_p} {right}"

    def formula(self, state: ReferenceState, node: Row) -> None:
        left = state.across(state.operand(node.left), node.left_p)
        right = state.across(state.operand(node.right), node.right_p)
        state.cla[node.dst, state.part] = left.times(right)


# PMATRICES: P[p + q] = exp(Q r_k t) for every part q and category k.

PMATRIX = record("p:makes length:length stride:stride case:case model:model", "PMATRIX")
"""P matrices of a branch for every part q of a case, from length ``length + stride q``."""

MOST_TERMS_OF_ONE = 20
"""Terms of e^theta for theta up to 1, beside those that lead from a state to the farthest."""


class PMatrices(TableStage):
    """P matrices from branch lengths and the eigen systems of the parts' models."""

    name = "PMATRICES"
    number = 0
    layouts = (PMATRIX,)
    function = Function.PMATRICES
    line = "{p} = exp(Q r {length}) stride {stride} {case}"

    def formula(self, state: ReferenceState, branch: Row) -> None:
        part = state.part
        length = float(state.lengths[branch.length + branch.stride * part])
        made = matrices_of(state, branch.model, length)
        state.p[branch.p + part], state.expm1[branch.p + part] = made

    def jobs(self, shape: LaunchShape) -> int:
        return -(-len(self.records) * shape.matrix_items // shape.items)

    def aux(self, cases: Records) -> int:
        """The most parts of a record."""
        return int(cases["parts"][self.records["case"]].max(initial=1))


def matrices_of(state: ReferenceState, model: int, length: float) -> tuple[Float64, Float64]:
    """P matrices f64[L or 1, K, S, S] of a branch in the part at hand; e^(lambda r t) - 1 of each.

    model  row of the case's first model
    """
    row = state.model(model)
    time = row.rates * length
    expm1 = np.expm1(time[:, None] * row.eigenvalues)
    change = (row.right * expm1[..., None, :]) @ row.left
    made = np.maximum(np.eye(state.states) + change, 0.0)
    for k in np.flatnonzero(state.is_indirect[model + state.part]):
        made[:, k] = exponential(row.generator[:, k % row.generator.shape[1]], time[k])
    return made, expm1


def exponential(generators: Float64, time: float) -> Float64:
    """f64[..., S, S]: e^(Q t) by scaling and squaring, without a difference: Q + q I >= 0.

    The definition of :mod:`mltree.models.eigen`.
    """
    states, one = generators.shape[-1], np.eye(generators.shape[-1])
    rates = -np.diagonal(generators, axis1=-2, axis2=-1).min(axis=-1)[..., None, None]
    squarings = max(0, int(np.ceil(np.log2(max(float(rates.max()) * time, 1.0)))))
    theta = rates * (time * 0.5**squarings)
    lazy = np.maximum(generators / rates + one, 0.0)
    term = total = np.exp(-theta) * one
    for n in range(1, states + MOST_TERMS_OF_ONE):
        term = term @ lazy * (theta / n)
        total = total + term
    for _ in range(squarings):
        total = total @ total
        total /= total.sum(axis=-1, keepdims=True)
    exact: Float64 = total
    return exact
