"""How long Newton steps on branch lengths go on."""

__all__ = ["JOIN_PASSES", "LOCAL_EPSILON", "MAX_PASSES", "ONE_STEP", "TRIPOD_PASSES"]

MAX_PASSES = 100
"""Passes of one smoothing. Between rounds 2 to 7 do (docs/search.md, "Branch lengths"); the bound
stops a limit cycle."""

ONE_STEP = 2
"""Passes of a single step: one tells where to, the other what it gained."""

TRIPOD_PASSES = 8
"""Joint Newton steps around an insertion point: as many as the prototype's 2 loops of 4 steps
(bench/PROTOTYPE.md)."""

JOIN_PASSES = 8
"""Newton steps on the branch that a pruned subtree leaves behind."""

LOCAL_EPSILON = 1e-3
"""Local optimisations stop below this gain in lnL: well under the 0.05 that a move must gain."""
