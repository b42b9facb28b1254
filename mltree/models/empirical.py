"""Matrices of amino acid replacement in PAML's format: the published ones, and a user's own.

A table is the exchangeabilities as a lower triangle of 19 rows in the order ARNDCQEGHILKMFPSTWYV,
and the 20 frequencies. Those of the package are files of the folder ``matrices``, in which comment
lines (``#``) say where they come from.
"""

from __future__ import annotations

from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mltree.data.source import read_text
from mltree.system.arrays import Float64
from mltree.system.errors import InputError
from mltree.system.values import decimal, is_decimal

PROTEIN_MODELS = (
    *("LG", "WAG", "JTT", "JTT-DCMUT", "DAYHOFF", "DCMUT", "VT", "BLOSUM62", "PMB"),
    *("Q.PFAM", "Q.PFAM_GB", "Q.LG", "Q.BIRD", "Q.INSECT", "Q.MAMMAL", "Q.PLANT", "Q.YEAST"),
    *("MTREV", "MTMAM", "MTART", "MTZOA", "MTMET", "MTVER", "MTINV", "STMTREV", "CPREV"),
    *("RTREV", "HIVB", "HIVW", "FLU", "DEN", "FLAVI"),
)
"""Names of the models that have a table, as RAxML-NG prints them: general ones, by clades, of
mitochondria and plastids, of viruses."""

FREQUENCY_SLACK = 0.01
"""Frequencies that a user gives may miss a sum of 1 by this much (rounding); they are rescaled."""

_STATES = 20
_PAIRS = _STATES * (_STATES - 1) // 2
_FOLDER = Path(__file__).parent / "matrices"


class Matrices(NamedTuple):
    """Parameters of a rate matrix of S states, or of many along the first axes."""

    exchangeabilities: Float64
    """f64 [..., S(S-1)/2]: upper triangle by rows."""
    frequencies: Float64
    """f64 [..., S]: sum 1."""


@cache
def protein_model(name: str) -> Matrices:
    """A published protein matrix, read-only.

    The published frequencies are rounded and miss a sum of 1 by up to 3e-6; they are rescaled to
    it, which shifts a log-likelihood by as much per site.

    Raises: KeyError where there is no such model.
    """
    if name not in PROTEIN_MODELS:
        raise KeyError(name)
    return read_table(name.lower())


def read_table(file: str, states: int = _STATES) -> Matrices:
    """A table of the package by its file's name without the ending."""
    return _matrix(_numbers((_FOLDER / f"{file}.dat").read_text("utf-8")), states)


def read_matrix(path: str) -> Matrices:
    """A user's table: the numbers of a triangle and the frequencies; text behind them is ignored.

    The exchangeabilities are scaled to a largest one of 100, so that six decimals say them.

    Raises: InputError where the file is something else, or a number is negative.
    """
    values = _numbers(read_text(path).decode(errors="replace"))
    if len(values) != _PAIRS + _STATES:
        raise InputError(
            f"a matrix is {_PAIRS} exchangeabilities and {_STATES} frequencies, but the file "
            f"begins with {len(values)} number{'' if len(values) == 1 else 's'}",
            file=path,
            hint=f"the lower triangle of {_STATES} x {_STATES} in the order ARNDCQEGHILKMFPSTWYV, "
            "then the frequencies, as in PAML's .dat files",
        )
    exchangeabilities, frequencies = values[:_PAIRS], values[_PAIRS:]
    if (values < 0.0).any() or not np.isfinite(values).all():
        raise InputError("a matrix has no negative or infinite numbers", file=path)
    if not exchangeabilities.any():
        raise InputError("all exchangeabilities are zero: nothing would ever change", file=path)
    if abs(frequencies.sum() - 1.0) > FREQUENCY_SLACK:
        raise InputError(f"frequencies must sum to 1, not {frequencies.sum():.6g}", file=path)
    return _matrix(np.append(100.0 / exchangeabilities.max() * exchangeabilities, frequencies))


def is_matrix(text: str) -> bool:
    """True for a text that begins with a number, as a table does."""
    return _numbers(text).size > 0


def _numbers(text: str) -> Float64:
    """Return the numbers up to the first word that is none; ``#`` begins a comment."""
    words = " ".join(line.partition("#")[0] for line in text.split("\n")).split()
    return np.array([decimal(word) for word in takewhile(is_decimal, words)])


def _matrix(values: Float64, states: int = _STATES) -> Matrices:
    symmetric = np.zeros((states, states))
    symmetric[np.tril_indices(states, -1)] = values[:-states]
    exchangeabilities = symmetric.T[np.triu_indices(states, 1)]
    matrix = Matrices(exchangeabilities, values[-states:] / values[-states:].sum())
    for table in matrix:
        table.setflags(write=False)
    return matrix
