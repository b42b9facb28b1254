"""Iterated local search: random interchanges on copies of the best tree."""

from __future__ import annotations

import numpy as np

from mltree.search.constraint import Constraint
from mltree.search.state import Lineage
from mltree.settings import PerturbationSettings
from mltree.tree.moves import random_nnis

__all__ = ["fallen_back", "next_fraction", "perturbed_copies"]


RESOLVINGS = 3
"""Sweeps over the free edges: no two edges of one sweep share a node."""


def perturbed_copies(
    best: Lineage,
    settings: PerturbationSettings,
    fraction: float,
    rng: np.random.Generator,
    constraint: Constraint | None = None,
) -> list[Lineage]:
    """Copies of a tree with random NNIs on a share of its inner edges; lnLs are not known yet.

    Edges without length are crossed in every copy: that costs nothing, and of the trees on such a
    plateau only some lie one move below a better one (50 taxa x 600 sites, a tree with 8 of 47
    inner edges at the bound and 0.20 lnL short: some copies found that move, none of 32 without
    such crossings; too few draws to tell a rate).

    Under a constraint only edges are crossed that show none of its splits, so that every split
    keeps the edges that show it.
    """
    edges = best.tree.inner_edges
    if constraint is not None:
        edges = edges[~constraint.shown_by(best.tree)[:, edges].any(axis=0)]
    longest = best.tree.lengths.reshape(-1, best.tree.n_edges).max(axis=0)
    free = edges[longest[edges] <= settings.free_length]
    result = []
    for number in range(settings.copies):
        tree = best.tree.copy()
        for _ in range(RESOLVINGS if free.size else 0):
            random_nnis(tree, 1.0, rng, among=free)
        random_nnis(tree, fraction, rng, among=edges)
        result.append(Lineage(tree, -np.inf, f"copy {number + 1}"))
    return result


def fallen_back(copies: list[Lineage], same: list[bool], best: Lineage, min_gain: float) -> int:
    """How many copies returned to the ``same`` tree that they came from, or to one just as good."""
    return sum(
        is_same or abs(copy.lnl - best.lnl) <= min_gain
        for copy, is_same in zip(copies, same, strict=True)
    )


def next_fraction(fraction: float, fell_back: int, settings: PerturbationSettings) -> float:
    """The share of edges of the next batch: larger where most copies fell back."""
    if fell_back > settings.fall_back_share * settings.copies:
        return min(fraction * settings.strengthen, settings.max_fraction)
    return fraction
