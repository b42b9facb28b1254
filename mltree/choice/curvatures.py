"""How lnL curves in the variables of a model, from how it does in those of a more general one.

Equal exchangeabilities are one variable, so that steps y of a model are steps J y of one that tells
them apart, and minus the Hessian is J^T H J. It holds where both models mean the same; where they
differ in frequencies, about.
"""

from __future__ import annotations

import numpy as np

from mltree.arrays import Float64
from mltree.model.candidates import started_from
from mltree.model.parameters import vector
from mltree.model.points import with_vectors
from mltree.model.portable import product
from mltree.model.substitution import Model

__all__ = ["projected"]


def projected(curvature: Float64, general: Model, model: Model) -> Float64 | None:
    """f64 [m + 1, m + 1]: of a model's m variables and the scale of branch lengths.

    ``curvature``: f64 [n + 1, n + 1], of the general model's; None where variables of either are
    none of the other's.
    """
    x, middle = vector(model), vector(general)
    if len(curvature) != len(middle) + 1:
        return None
    moved = with_vectors([model] * x.size, [*(x + np.eye(x.size))])
    ends = [vector(started_from(general, end)) for end in moved]
    here = vector(started_from(general, model))
    steps = np.array([end - here for end in ends]).reshape(x.size, middle.size)
    if not np.abs(steps).sum(axis=1).all():
        return None
    both = np.eye(x.size + 1, middle.size + 1, middle.size - x.size)
    both[:-1, :-1] = steps
    return product(product(both, curvature), both.T)
