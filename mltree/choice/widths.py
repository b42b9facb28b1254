"""Categories that engines are built for."""

from __future__ import annotations

from collections.abc import Sequence

from mltree.model.candidates import MOST_FREE_RATES
from mltree.model.substitution import Model

__all__ = ["WIDTHS", "engine_width"]

WIDTHS = (4, 5, 8, MOST_FREE_RATES)
"""A candidate of fewer is filled up with some of weight 0, for a build takes longer than they
do."""


def engine_width(models: Sequence[Model]) -> int:
    """Categories of the engine that some models are fitted on."""
    most = max(model.arrays().n_categories for model in models)
    return min(width for width in WIDTHS if width >= most)
