"""How lnL changes with every entry of the rate matrices of a mixture's classes.

At an edge of length t, with x and y for what is seen from its two ends, pattern l (n_l sites) has

    L_l = Σ_k w_k Σ_ij π_i x_i P_k[i, j] y_j,   W_k = Σ_l n_l / L_l w_k (π x) yᵀ = ∂lnL / ∂P_k

and an entry of Q moves P = V exp(Λ r t) V⁻¹ by way of divided differences (Schadt, Sinsheimer &
Lange 1998, Genome Res. 8:222-233; Najfeld & Havel 1995, Adv. Appl. Math. 16:321-375):

    ∂lnL / ∂Q = V⁻ᵀ (Σ_edges,k F_k ∘ Vᵀ W_k V⁻ᵀ) Vᵀ
    F[a, b] = (e^{λ_a r t} - e^{λ_b r t}) / (λ_a - λ_b)

where Vᵀ π x = V⁻¹ x. One such computation tells what all 189 exchangeabilities of proteins would
gain, where differences take a traversal for each, with as many eigen systems as there are classes.
The sum over edges is the engine's (:attr:`mltree.contract.RunKind.FLOW`), the rest done here.

Letters: K categories, M classes, S states.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from mltree.arrays import Float64
from mltree.contract import FLOW_NEAR
from mltree.likelihood import programs
from mltree.likelihood.cases import Case, Cases
from mltree.likelihood.engine import Engine, Result
from mltree.likelihood.program import Program
from mltree.model.eigen import ModelArrays
from mltree.model.portable import product
from mltree.tree.topology import Tree

__all__ = ["divided", "flow_slopes"]


class Runs(Protocol):
    """What runs programs (:class:`mltree.likelihood.api.Likelihood`)."""

    engine: Engine

    def take(self, trees: Sequence[Tree], cases: Sequence[Case]) -> Cases:
        """Load the models."""

    def run(self, program: Program, lengths: Float64) -> Result:
        """Run a program."""


def flow_slopes(likelihood: Runs, tree: Tree, case: Case) -> list[Float64]:
    """The derivative of lnL in every entry of every class's normalised Q, f64[M, S, S] a part."""
    table = likelihood.take([tree], [case]).summed_by_part
    most = max(own.n_systems * own.n_states**2 for own in case.models)
    of_class = max(own.n_states for own in case.models) ** 2
    at_once = of_class * max(1, likelihood.engine.room.cells // of_class)
    program = programs.flows(tree, most, table, at_once)
    sums = likelihood.run(program, tree.lengths.ravel()).sums
    rows = sums.reshape(len(case.models), 1 + most)[:, 1:]
    return [_in_states(own, row) for own, row in zip(case.models, rows, strict=True)]


def _in_states(arrays: ModelArrays, sums: Float64) -> Float64:
    """f64[M, S, S]: V⁻ᵀ (sums) Vᵀ, of a part's sums over edges; behind those of its classes 0."""
    shape = arrays.n_systems, arrays.n_states, arrays.n_states
    joint = sums[: np.prod(shape)].reshape(shape)
    left, right = arrays.left.reshape(shape), arrays.right.reshape(shape)
    found: Float64 = product(product(left.swapaxes(1, 2), joint), right.swapaxes(1, 2))
    return found


def divided(eigenvalues: Float64, times: Float64) -> Float64:
    """f64[K, S, S]: F, from λ f64[K, S] and r t f64[K]."""
    exponents = times[:, None] * eigenvalues
    change = np.expm1(exponents)
    apart = exponents[..., :, None] - exponents[..., None, :]
    is_near = np.abs(apart) < FLOW_NEAR
    quotient = (change[..., :, None] - change[..., None, :]) / np.where(is_near, 1.0, apart)
    series = (1 + apart / 2 * (1 + apart / 3 * (1 + apart / 4))) * (1 + change[..., None, :])
    found: Float64 = times[:, None, None] * np.where(is_near, series, quotient)
    return found
