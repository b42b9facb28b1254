"""What lnL gains with the exchangeabilities that the classes of a mixture share."""

from __future__ import annotations

import numpy as np

from mltree.arrays import Float64
from mltree.model.eigen import rate_matrix

__all__ = ["exchangeability_slopes"]


def exchangeability_slopes(
    rates: Float64, frequencies: Float64, slopes: Float64
) -> tuple[Float64, Float64]:
    """f64 [pairs]: dlnL / d ln r of each pair of states; and its expected changes, given the data.

    Class m has Q = R / ρ, R[a, b] = r_ab π_b, ρ = 2 Σ r_ab π_a π_b, so that

        ∂lnL / ∂r_ab = Σ_m (π_b (G_ab - G_aa) + π_a (G_ba - G_bb) - 2 π_a π_b Σ_ij G_ij Q_ij) / ρ

    of which r_ab (π_b G_ab + π_a G_ba) / ρ are the changes between a and b that are expected in
    class m: what the lnL of the whole history would curve by.

    ``rates`` f64 [pairs]: r; ``frequencies`` f64 [M, S]: π of the classes; ``slopes``
    f64 [M, S, S]: G = ∂lnL / ∂Q (`mltree.likelihood.flow_slopes`).
    """
    one, other = np.triu_indices(frequencies.shape[-1], 1)
    pi, rho = frequencies, 2 * (rates * frequencies[:, one] * frequencies[:, other]).sum(axis=1)
    q = rate_matrix(np.repeat(rates[None], len(pi), axis=0), pi)
    whole = (slopes * q).sum(axis=(1, 2))[:, None]
    diagonal = slopes.diagonal(axis1=1, axis2=2)
    scale = rates / rho[:, None]
    changes = pi[:, other] * slopes[:, one, other] + pi[:, one] * slopes[:, other, one]
    stays = pi[:, other] * diagonal[:, one] + pi[:, one] * diagonal[:, other]
    gain = changes - stays - 2 * pi[:, one] * pi[:, other] * whole
    return (scale * gain).sum(axis=0), (scale * changes).sum(axis=0)
