"""Bootstrap replicates whose data leave an inner branch no length: chance resolves them."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np

import mltree
from mltree.system.arrays import Int64

SHORTEST = 1.5e-6
CHI_SQUARE = 13.8
"""What chance exceeds once in a thousand times, of three."""
SIDES = {
    frozenset({"t0", "t1", "t2", "t3"}),
    frozenset({"t0", "t1", "t4"}),
    frozenset({"t2", "t3", "t4"}),
}
"""Without t5: what may stand in the middle of the star."""
STAR = {0: 0.15, 1: 0.15, 2: 0.15, 3: 0.15, 4: 0.3, 5: 0.1}
"""Branch lengths of the tips; t0 and t1 are a cherry, t2 and t3, each on a stem of 0.2."""


def star(sites: int, seed: int) -> dict[str, str]:
    """Sequences by JC along a tree whose four lineages begin at one point.

    Sites that would have two of them begin together are left out, so that no such branch gains; all
    but some of those for t4 and t5, so that one loses least.
    """
    rng = np.random.default_rng(seed)

    def evolved(states: Int64, length: float) -> Int64:
        hit = rng.random(states.size) < 1 - np.exp(-4 / 3 * length)
        return np.where(hit, rng.integers(0, 4, states.size), states)

    centre = rng.integers(0, 4, sites)
    above = [evolved(centre, 0.2), evolved(centre, 0.2), centre]
    rows = np.array([evolved(above[tip // 2], STAR[tip]) for tip in STAR])
    one, other, fourth, fifth = rows[0], rows[2], rows[4], rows[5]
    two_together = (one == fourth) & (other == fifth) | (one == fifth) & (other == fourth)
    last_together = (one == other) & (fourth == fifth) & (rng.random(sites) < 0.5)
    rows = rows[:, (one == other) & (one == fourth) | ~(two_together | last_together)]
    return {f"t{tip}": "".join("ACGT"[state] for state in row) for tip, row in enumerate(rows)}


def middles(seed: int, constraint: str | None = None) -> Counter[frozenset[str]]:
    """What stands in the middle of replicates in which it has no length."""
    counts: Counter[frozenset[str]] = Counter()
    rows = star(150, seed)
    for tree in mltree.bootstrap(rows, "JC", replicates=60, constraint=constraint).trees:
        inner = [float(length) for length in re.findall(r"\):([\d.e-]+)", str(tree))]
        if min(inner) <= SHORTEST:
            sides = tree_sides(tree)
            shown = {frozenset(rows.keys() - side) if "t5" in side else side for side in sides}
            counts.update(SIDES & shown)
    return counts


def tree_sides(tree: mltree.PhyloTree) -> list[frozenset[str]]:
    """A side of each inner branch."""
    return list(mltree.support(tree, [tree]).supports)


def test_no_resolution_of_a_polytomy_is_preferred() -> None:
    """Slopes at the shortest length gave one of them 2 of 58 such replicates."""
    counts = middles(1) + middles(4)
    expected = counts.total() / 3
    assert expected >= 15
    assert sum((counts[side] - expected) ** 2 for side in SIDES) / expected < CHI_SQUARE


def test_but_what_a_constraint_asks_for_stays() -> None:
    counts = middles(4, "((t0,t1,t4),t2,t3,t5);")
    assert counts.keys() == {frozenset({"t0", "t1", "t4"})}
