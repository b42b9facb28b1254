"""How lnL changes with every entry of the rate matrices of a mixture's classes.

At an edge of length t, with x and y for what is seen from its two ends, pattern l (n_l sites) has

    L_l = Σ_k w_k Σ_ij π_i x_i P_k[i, j] y_j,   W_k = Σ_l n_l / L_l w_k (π x) yᵀ = ∂lnL / ∂P_k

and an entry of Q moves P = V exp(Λ r t) V⁻¹ by way of divided differences (Schadt, Sinsheimer &
Lange 1998, Genome Res. 8:222-233; Najfeld & Havel 1995, Adv. Appl. Math. 16:321-375):

    ∂lnL / ∂Q = V⁻ᵀ (Σ_edges,k F_k ∘ Vᵀ W_k V⁻ᵀ) Vᵀ
    F[a, b] = (e^{λ_a r t} - e^{λ_b r t}) / (λ_a - λ_b)

One such computation tells what all 189 exchangeabilities of proteins would gain, where differences
take a traversal for each, with as many eigen systems as there are classes. It is done in NumPy,
some patterns at a time, by operations that give the same bits everywhere.

Letters: T tips, L patterns, K categories, M classes, S states.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from mltree.likelihood.ancestral import inner_nodes
from mltree.model.eigen import ModelArrays
from mltree.model.portable import expm1
from mltree.tree.topology import Tree

__all__ = ["flow_slopes"]

TABLES = ("eigenvalues", "right", "left", "frequencies")
"""Of a model's eigen systems."""

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

AT_ONCE = 1 << 27
"""Bytes that what is seen from all half-edges takes, of some patterns."""

NEAR = 1e-3
"""Differences of λ r t below which a divided difference is a series, good to 1e-13."""


def flow_slopes(tree: Tree, tips: Float64, counts: Float64, arrays: ModelArrays) -> Float64:
    """f64 [M, S, S]: the derivative of lnL in every entry of every class's normalised Q.

    ``tree``: lengths f64 [E]; ``tips`` f64 [T, L, S]: 0/1; ``counts`` f64 [L]: sites of patterns.
    """
    if arrays.eigenvalues.ndim == 1:
        arrays = replace(arrays, **{name: getattr(arrays, name)[None] for name in TABLES})
    each = arrays.n_categories // arrays.n_systems
    tables = {name: np.repeat(getattr(arrays, name), each, axis=0) for name in TABLES}
    of_category = replace(arrays, **tables)
    table = _Edges(tree, of_category)
    bytes_each = 8 * arrays.n_categories * arrays.n_states * 2 * tree.n_edges
    step = max(1, AT_ONCE // bytes_each)
    seen = np.flatnonzero(counts)
    for first in range(0, len(seen), step):
        some = seen[first : first + step]
        table.add(tips[:, some], counts[some])
    joint = table.joint.reshape(arrays.n_systems, each, *table.joint.shape[1:]).sum(axis=1)
    slopes: Float64 = np.einsum("mai,mab,mjb->mij", arrays.left, joint, arrays.right)
    return slopes


class _Edges:
    """The sum over edges of what the patterns so far say, in terms of eigenvectors."""

    def __init__(self, tree: Tree, arrays: ModelArrays) -> None:
        """``arrays``: of every category, f64 [K, ...]."""
        self._tree, self._arrays = tree, arrays
        times = np.multiply.outer(tree.lengths, arrays.rates)[..., None]
        exponents = times * arrays.eigenvalues
        change = expm1(exponents)
        scaled = arrays.right * change[..., None, :]
        p = np.einsum("ekim,kmj->ekij", scaled, arrays.left)
        self._p = np.maximum(p + np.eye(arrays.n_states), 0.0)
        self._differences = _divided(exponents, change, times)
        self.joint = np.zeros((arrays.n_categories, arrays.n_states, arrays.n_states))
        """f64 [K, S, S]: Σ F ∘ Vᵀ W V⁻ᵀ."""

    def add(self, tips: Float64, counts: Float64) -> None:
        """Some patterns, f64 [T, L, S] and f64 [L]."""
        tree = self._tree
        nodes = inner_nodes(tree)
        seen: dict[int, tuple[Float64, Int64]] = {}
        """By half-edge, what lies behind it: f64 [K, S, L] times 2 ** i64 [K, L]."""
        for tip, own in enumerate(tips):
            values = np.broadcast_to(own.T, (len(self.joint), *own.T.shape))
            seen[3 * tip] = values, np.zeros((len(self.joint), len(counts)), np.int64)

        def across(half: int) -> tuple[Float64, Int64]:
            values, powers = seen[int(tree.twin[half])]
            return np.einsum("kij,kjl->kil", self._p[tree.edge[half]], values), powers

        def behind(half: int) -> tuple[Float64, Int64]:
            (one, some), (other, more) = (across(int(s)) for s in tree.siblings(half))
            return _scaled(one * other, some + more)

        for half in reversed(nodes):
            seen[half] = behind(half)
        for half in nodes:
            for sibling in map(int, tree.siblings(half)):
                seen[sibling] = behind(sibling)
        halves = {int(tree.edge[half]): half for half in seen}
        for edge, half in sorted(halves.items()):
            self._take(edge, seen[half], seen[int(tree.twin[half])], counts)

    def _take(
        self, edge: int, here: tuple[Float64, Int64], there: tuple[Float64, Int64], counts: Float64
    ) -> None:
        arrays = self._arrays
        (x, some), (y, more) = here, there
        x = arrays.frequencies[:, :, None] * x
        likelihoods = (x * np.einsum("kij,kjl->kil", self._p[edge], y)).sum(axis=1)
        powers = some + more
        powers -= np.where(likelihoods > 0, powers, -(1 << 40)).max(axis=0)
        shares = arrays.weights[:, None] * np.ldexp(1.0, np.clip(powers, -2000, 0).astype(np.int32))
        shares = shares * (counts / (shares * likelihoods).sum(axis=0))
        left = np.einsum("kia,kil->kal", arrays.right, x * shares[:, None, :])
        right = np.einsum("kbj,kjl->kbl", arrays.left, y)
        self.joint += self._differences[edge] * np.einsum("kal,kbl->kab", left, right)


def _divided(exponents: Float64, change: Float64, times: Float64) -> Float64:
    """f64 [E, K, S, S]: (e^{λ_a τ} - e^{λ_b τ}) / (λ_a - λ_b), from λ τ, e^{λ τ} - 1 and τ."""
    apart = exponents[..., :, None] - exponents[..., None, :]
    is_near = np.abs(apart) < NEAR
    quotient = (change[..., :, None] - change[..., None, :]) / np.where(is_near, 1.0, apart)
    series = (1 + apart / 2 * (1 + apart / 3 * (1 + apart / 4))) * (1 + change[..., None, :])
    divided: Float64 = times[..., None] * np.where(is_near, series, quotient)
    return divided


def _scaled(values: Float64, powers: Int64) -> tuple[Float64, Int64]:
    """With a largest state between 1/2 and 1 in every category; what cannot be stays 0."""
    _, exponent = np.frexp(values.max(axis=1))
    return np.ldexp(values, -exponent[:, None, :]), powers + exponent
