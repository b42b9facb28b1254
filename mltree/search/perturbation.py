"""Iterated local search: random interchanges on copies of the best tree."""

from __future__ import annotations

import numpy as np

from mltree.search.constraint import Constraint
from mltree.search.lineage import Lineage
from mltree.settings import PerturbationSettings
from mltree.tree.forest import Forest
from mltree.tree.moves import random_nnis

__all__ = ["fallen_back", "next_fraction", "perturbed_copies"]


def perturbed_copies(
    best: Lineage,
    copies: int,
    fraction: float,
    rng: np.random.Generator,
    constraint: Constraint | None = None,
) -> list[Lineage]:
    """Copies of a tree with random NNIs on a share of its inner edges; lnLs are not known yet.

    Under a constraint only edges are crossed that show none of its splits, so that every split
    keeps the edges that show it.
    """
    edges = None
    if constraint is not None:
        inner = best.tree.inner_edges
        edges = inner[~constraint.shown_by(best.tree)[:, inner].any(axis=0)]
    result = []
    for number in range(copies):
        tree = best.tree.copy()
        random_nnis(tree, fraction, rng, among=edges)
        result.append(Lineage(tree, -np.inf, f"copy {number + 1}"))
    return result


def fallen_back(copies: list[Lineage], best: Lineage) -> int:
    """How many copies returned to the topology that they came from."""
    key, *keys = Forest([best.tree, *(copy.tree for copy in copies)]).topology_keys()
    return keys.count(key)


def next_fraction(fraction: float, fell_back: int, settings: PerturbationSettings) -> float:
    """The share of edges of the next batch: larger where most copies fell back."""
    if fell_back > settings.fall_back_share * settings.copies:
        return min(fraction * settings.strengthen, settings.max_fraction)
    return fraction
