"""Empirical models of amino acid replacement, read from PAML-format tables in this package.

Each table is a file ``<name>.dat``: comment lines (``#``) with its source, the exchangeabilities as
a lower triangle of 19 rows in the order ARNDCQEGHILKMFPSTWYV, and the 20 frequencies.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

__all__ = ["PROTEIN_MODELS", "protein_model"]

PROTEIN_MODELS = ("LG", "WAG", "JTT")
"""Names of the models that have a table."""

_STATES = 20


@cache
def protein_model(name: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Exchangeabilities f64 [190], upper triangle by rows, and frequencies f64 [20], sum 1.

    Both read-only. The published frequencies are rounded and miss a sum of 1 by up to 1e-6; they
    are rescaled to it, which shifts a log-likelihood by as much per site.

    Raises: KeyError where there is no such model.
    """
    if name not in PROTEIN_MODELS:
        raise KeyError(name)
    lines = Path(__file__).with_name(f"{name.lower()}.dat").read_text("ascii").splitlines()
    values = np.array(" ".join(line for line in lines if not line.startswith("#")).split(), float)
    n_exchangeabilities = _STATES * (_STATES - 1) // 2
    symmetric = np.zeros((_STATES, _STATES))
    symmetric[np.tril_indices(_STATES, -1)] = values[:n_exchangeabilities]
    exchangeabilities = symmetric.T[np.triu_indices(_STATES, 1)]
    frequencies = values[n_exchangeabilities:]
    frequencies = frequencies / frequencies.sum()
    exchangeabilities.setflags(write=False)
    frequencies.setflags(write=False)
    return exchangeabilities, frequencies
