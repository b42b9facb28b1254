"""Local tests of inner branches, against the two interchanges across each.

With L0 the lnL of the tree, L1 and L2 those of its neighbours across a branch, the five branches
around it optimised, and L* the same of resampled data (RELL):

    aLRT       L0 - max(L1, L2)             (Anisimova & Gascuel 2006)
    SH-aLRT    share of replicates in which aLRT exceeds by 0.05 or more the lead of the best of
               L0* - L0, L1* - L1 and L2* - L2 over the second        (Guindon et al. 2010)
    LBP        share of replicates in which L0* is the largest (Adachi & Hasegawa 1996)
    aBayes     1 / (1 + e^(L1 - L0) + e^(L2 - L0))               (Anisimova et al. 2011)
    aLRT's p   of 2 aLRT under half a chi square with a degree of freedom and half a point mass,
               Bonferroni-corrected for three topologies (PhyML)

Letters: B inner branches, R replicates.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from mltree.program.engine import Weights
from mltree.supports.resampling import Resampling
from mltree.system.arrays import Float64
from mltree.system.values import Value

MARGIN = 0.05
"""lnL by which aLRT has to exceed the resampled lead: PhyML's and IQ-TREE's."""

TOPOLOGIES = 3
"""Ways to join four subtrees."""


class BranchTests(Value):
    """Every test on every inner branch, f64 [B] each; supports are 0 to 1."""

    lnl: Float64
    """f64 [B, 3]: L0, L1, L2."""
    sh_alrt: Float64
    lbp: Float64
    parametric: Float64
    abayes: Float64
    replicates: int

    @property
    def alrt(self) -> Float64:
        """The aLRT statistic, f64 [B]: lnL of the tree minus lnL of the better interchange."""
        statistic: Float64 = self.lnl[:, 0] - self.lnl[:, 1:].max(axis=1)
        return statistic


def local_tests(
    lnl: Float64,
    resampled: Callable[[Weights], Float64],
    resampling: Resampling,
    replicates: int,
) -> BranchTests:
    """All local tests of every inner branch.

    lnl        f64 [2B + 1]: both neighbours across each branch, and last the tree
    resampled  the same under rows of weights, f64 [2B + 1, R] from [R, L]
    """
    branches = len(lnl) // 2
    observed = _triples(lnl[:, None])[..., 0]
    passed, won = np.zeros(branches), np.zeros(branches)
    for drawn in resampling.batches(replicates):
        again = _triples(resampled(drawn))
        passed += sh_alrt(observed, again).sum(axis=1)
        won += (again[:, 0] > again[:, 1:].max(axis=1)).sum(axis=1)
    return BranchTests(
        lnl=observed,
        sh_alrt=passed / max(replicates, 1),
        lbp=won / max(replicates, 1),
        parametric=parametric(observed),
        abayes=abayes(observed),
        replicates=replicates,
    )


def _triples(rows: Float64) -> Float64:
    """L0, L1, L2 of every branch, f64 [B, 3, R], from f64 [2B + 1, R]."""
    branches = len(rows) // 2
    tree = np.broadcast_to(rows[-1], (branches, 1, rows.shape[1]))
    return np.concatenate([tree, rows[:-1].reshape(branches, 2, -1)], axis=1)


def sh_alrt(observed: Float64, resampled: Float64) -> Float64:
    """Replicates that support each branch, 0 or 1 [B, R]; from f64 [B, 3] and f64 [B, 3, R]."""
    statistic = observed[:, 0] - observed[:, 1:].max(axis=1)
    centred = np.sort(resampled - observed[..., None], axis=1)
    lead = centred[:, 2] - centred[:, 1]
    supports: Float64 = (statistic[:, None] > lead + MARGIN).astype(np.float64)
    return supports


def abayes(observed: Float64) -> Float64:
    """Posterior of the tree's topology among the three, f64 [B], from f64 [B, 3]."""
    likelihood = np.exp(observed - observed.max(axis=1, keepdims=True))
    posterior: Float64 = likelihood[:, 0] / likelihood.sum(axis=1)
    return posterior


def parametric(observed: Float64) -> Float64:
    """1 - p of aLRT, f64 [B], from f64 [B, 3]; 0 where an interchange is better."""
    statistic = observed[:, 0] - observed[:, 1:].max(axis=1)
    roots = np.sqrt(np.maximum(statistic, 0.0)).tolist()
    chi_square = np.array([math.erf(root) for root in roots])  # of 2 aLRT
    mixed = (1.0 + chi_square) / 2.0
    return np.where(statistic >= 0.0, mixed**TOPOLOGIES, 0.0)
