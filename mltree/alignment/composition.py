"""Whether each sequence has the alignment's composition: the χ² test that IQ-TREE makes.

    χ² = Σ_s (n[s] - n f[s])² / (n f[s]),   n = Σ_s n[s]

over the states s that occur, with n[s] the sequence's count of state s, an ambiguous character
shared out evenly over its states, and f the frequencies in the whole alignment; degrees of freedom:
states that occur, less one. Models of one composition for the whole tree can group sequences by
what they are made of instead of by descent.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from mltree.alignment.patterns import Patterns

__all__ = ["composition_p_values"]


def composition_p_values(patterns: Patterns) -> NDArray[np.float64]:
    """f64 [T]: how likely a χ² as large is, were a sequence drawn from the whole; 1 without any."""
    counts = _state_counts(patterns)
    counts = counts[:, counts.sum(axis=0) > 0]
    freedom = counts.shape[1] - 1
    if freedom < 1:
        return np.ones(patterns.n_tips)
    expected = np.outer(counts.sum(axis=1), counts.sum(axis=0) / counts.sum())
    terms = np.divide((counts - expected) ** 2, expected, np.zeros_like(counts), where=expected > 0)
    return np.array([_chi_square_tail(float(chi2), freedom) for chi2 in terms.sum(axis=1)])


def _state_counts(patterns: Patterns) -> NDArray[np.float64]:
    """f64 [T, S]: characters of each state in each sequence; gaps count nothing."""
    table = patterns.alphabet.tip_table / patterns.alphabet.tip_table.sum(axis=1, keepdims=True)
    table[patterns.alphabet.gap_code] = 0.0
    codes = (np.bincount(row, patterns.weights, minlength=len(table)) for row in patterns.codes)
    return np.array([counts @ table for counts in codes])


def _chi_square_tail(chi2: float, freedom: int) -> float:
    """P(χ² >= chi2) = Q(freedom / 2, chi2 / 2), the regularised upper incomplete gamma function.

    By Q(a + 1, x) = Q(a, x) + x^a e^-x / Γ(a + 1), from Q(1/2, x) = erfc √x or Q(1, x) = e^-x
    (Abramowitz and Stegun 6.5.21).
    """
    x = chi2 / 2.0
    if x <= 0.0:
        return 1.0
    a = 0.5 if freedom % 2 else 1.0
    tail = math.erfc(math.sqrt(x)) if freedom % 2 else math.exp(-x)
    while a < freedom / 2.0:
        tail += math.exp(a * math.log(x) - x - math.lgamma(a + 1.0))
        a += 1.0
    return tail
