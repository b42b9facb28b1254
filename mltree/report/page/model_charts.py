"""A model drawn: exchangeabilities as bubbles, frequencies as bars, rate categories as steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np

from mltree.arrays import Float64
from mltree.model.eigen import ModelArrays
from mltree.model.substitution import Model
from mltree.report.page.charts import Scale, bar, chart, circle, line, words

__all__ = ["categories_chart", "matrix_chart"]

CELL_OF_FEW, CELL_OF_MANY = 52.0, 22.0
"""Side of a pair's cell, of nucleotides and of amino acids."""

FEW_STATES = 6

LARGEST_BUBBLE = 0.94
"""Diameter of the largest bubble, as a share of its cell."""

BAR_LENGTH = 70.0
"""Of the most frequent state."""


def matrix_chart(model: Model, frequencies: Float64 | None) -> str:
    """Bubbles whose areas are exchangeabilities, and the states' frequencies beside them.

    ``frequencies``: f64 [S]; None where they are not known.
    """
    states = model.alphabet.states
    cell = CELL_OF_FEW if len(states) <= FEW_STATES else CELL_OF_MANY
    side = cell * len(states)
    left, top = 22.0, 20.0
    parts = []
    for number, state in enumerate(states):
        place = (number + 0.5) * cell
        parts += [
            words(left - 8, top + place, state, "label", "middle"),
            words(left + place, top - 9, state, "label", "middle"),
            line(left, top + number * cell, left + side, top + number * cell),
            line(left + number * cell, top, left + number * cell, top + side),
        ]
    parts += [line(left, top + side, left + side, top + side)]
    parts += [line(left + side, top, left + side, top + side)]
    largest = float(model.rates.max()) or 1.0
    for (i, j), rate in zip(combinations(range(len(states)), 2), model.rates.tolist(), strict=True):
        radius = 0.5 * LARGEST_BUBBLE * cell * math.sqrt(rate / largest)
        title = f"{states[i]} ↔ {states[j]}: {rate:.4g}"
        for row, column in ((i, j), (j, i)):
            x, y = left + (column + 0.5) * cell, top + (row + 0.5) * cell
            parts.append(circle(x, y, radius, "bubble", title))
            if len(states) <= FEW_STATES:
                parts.append(words(x, y, f"{rate:.3g}", "bubble-text", "middle"))
    width = left + side + 4
    if frequencies is not None:
        parts += _frequency_bars(states, frequencies, width + 8, top, cell)
        width += 8 + BAR_LENGTH + 52
    return chart(width, top + side + 4, f"exchangeabilities of {model.name}", parts)


def _frequency_bars(
    states: Sequence[str], frequencies: Float64, x: float, top: float, cell: float
) -> list[str]:
    across = Scale(0.0, float(frequencies.max()), 0.0, BAR_LENGTH)
    parts = [words(x, top - 9, "frequency", "tick")]
    for number, (state, share) in enumerate(zip(states, frequencies.tolist(), strict=True)):
        y = top + (number + 0.5) * cell
        height = min(16.0, 0.6 * cell)
        parts += [
            bar(x, y - height / 2, across(share), height, "bar-host", f"{state}: {share:.4f}"),
            words(x + across(share) + 5, y, f"{share:.3f}", "tick"),
        ]
    return parts


def categories_chart(arrays: ModelArrays) -> str:
    """Rate categories: as wide as their share of the sites, as high as their rate."""
    kept = arrays.weights > 0.0  # a category without sites fills up a table
    order = np.argsort(arrays.rates[kept], kind="stable")
    rates, weights = arrays.rates[kept][order].tolist(), arrays.weights[kept][order].tolist()
    across, up = Scale(0.0, 1.0, 40.0, 400.0), Scale(0.0, max(rates), 160.0, 24.0)
    parts = [line(40, up(1.0), 400, up(1.0), "phase"), words(34, up(1.0), "1", "tick", "end")]
    begin = 0.0
    for rate, weight in zip(rates, weights, strict=True):
        x, width = across(begin), across(weight) - across(0.0)
        title = f"rate {rate:.4g}, {weight:.1%} of the sites"
        parts.append(bar(x + 1, up(rate), width - 2, 160 - up(rate), "bar-device", title))
        parts.append(words(x + width / 2, up(rate) - 8, f"{rate:.3g}", "tick", "middle"))
        parts.append(words(x + width / 2, 172, f"{weight:.0%}", "tick", "middle"))
        begin += weight
    parts.append(line(40, 160, 400, 160, "axis"))
    parts.append(words(220, 188, "share of the sites", "tick", "middle"))
    return chart(410, 196, "rate categories", parts)
