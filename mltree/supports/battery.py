"""Every topology test of some trees, from one set of replicates."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from mltree.arrays import Float64
from mltree.likelihood.engine import Weights
from mltree.shares import in_advance
from mltree.supports.resampling import Resampling
from mltree.supports.tree_tests import (
    TreeTest,
    bootstrap_proportions,
    deviations,
    expected_weights,
    kishino_hasegawa,
    shimodaira_hasegawa,
    weighted_tests,
)
from mltree.supports.unbiased import SCALES, Multiscale

__all__ = ["TESTS", "tree_tests"]

TESTS = ("bp-RELL", "p-KH", "p-SH", "p-WKH", "p-WSH", "c-ELW", "p-AU")
"""In IQ-TREE's order, by its names."""

WHOLE = SCALES.index(1.0)
"""The scale of the tests that know but one."""


def tree_tests(
    lnl: Float64,
    sites: Callable[[], Float64],
    resampled: Callable[[Weights], Float64],
    weights: Float64,
    parts: Sequence[slice],
    seed: int,
    replicates: int,
    chosen: Sequence[str] = TESTS,
) -> dict[str, TreeTest]:
    """The chosen tests by name.

    lnl        f64 [n], two trees or more
    sites      gives f64 [n, L] site lnL, which the weighted tests need
    resampled  the lnL of all trees under rows of weights: f64 [n, R] of [R, L]
    weights    f64 [L] of the data; ``parts``: the patterns of each part
    """
    scales = range(len(SCALES)) if "p-AU" in chosen else (WHOLE,)
    multiscale = Multiscale(len(lnl))
    whole = []
    for scale in scales:
        name, size = f"tree tests, scale {SCALES[scale]}", SCALES[scale]
        resampling = Resampling(weights, parts, seed, name, size, in_blocks=True)
        for found in in_advance(resampled, resampling.batches(replicates)):
            if "p-AU" in chosen:
                multiscale.count(scale, found)
            if scale == WHOLE:
                whole.append(found)
    again = np.concatenate(whole, axis=1)
    made: dict[str, TreeTest] = {}
    if {"p-WKH", "p-WSH"} & set(chosen):
        deviation = deviations(sites(), weights)
        made["p-WKH"], made["p-WSH"] = weighted_tests(lnl, again, deviation)
    makers: dict[str, Callable[[], TreeTest]] = {
        "bp-RELL": lambda: bootstrap_proportions(again),
        "p-KH": lambda: kishino_hasegawa(lnl, again),
        "p-SH": lambda: shimodaira_hasegawa(lnl, again),
        "c-ELW": lambda: expected_weights(again),
        "p-AU": multiscale.test,
    }
    return {name: made[name] if name in made else makers[name]() for name in chosen}
