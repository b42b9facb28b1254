"""State frequencies of sites, as IQ-TREE's -ft writes and its -fs reads them (``.sitefreq``).

A line a site: its number, from 1 on, and the frequencies of its states in the order of the
alphabet, for amino acids ARNDCQEGHILKMFPSTWYV.

Site frequencies and the exchangeabilities of a model make an eigen system for every pattern
(:mod:`mltree.models.eigen`).
"""

from __future__ import annotations

import numpy as np

from mltree.data.source import read_text
from mltree.system.arrays import Float64, Index
from mltree.system.errors import InputError
from mltree.system.values import Value, decimal, whole

SLACK = 1e-3
"""Largest deviation of the sum of frequencies from 1, as in IQ-TREE; they are rescaled."""

DIGITS = 9
"""Significant ones in a file."""


class SiteSystems(Value, eq=False):
    """Eigen systems of L patterns, S states."""

    eigenvalues: Float64
    """f64 [L, S]: ascending, the last exactly 0."""
    vectors: Float64
    """f64 [L, S, S]: U, a vector in each column."""
    roots: Float64
    """f64 [L, S]: √π."""
    exchangeabilities: Float64
    """f64 [S, S]: r of all patterns, 0 on the diagonal: Q_ij = r_ij π_j / speed."""

    def take(self, which: Index | slice) -> SiteSystems:
        """The systems of some patterns."""
        return SiteSystems(
            self.eigenvalues[which], self.vectors[which], self.roots[which], self.exchangeabilities
        )

    def put(self, where: slice, others: SiteSystems) -> None:
        """Overwrite the systems of some patterns."""
        self.eigenvalues[where] = others.eigenvalues
        self.vectors[where], self.roots[where] = others.vectors, others.roots

    @property
    def right(self) -> Float64:
        """f64 [L, S, S]: V."""
        return self.vectors / self.roots[:, :, None]

    @property
    def left(self) -> Float64:
        """f64 [L, S, S]: V⁻¹."""
        return self.vectors.swapaxes(1, 2) * self.roots[:, None, :]

    @property
    def frequencies(self) -> Float64:
        """f64 [L, S]: π."""
        return self.roots**2

    @property
    def speeds(self) -> Float64:
        """f64 [L]: Σ π_i r_ij π_j."""
        flow = np.einsum("li,ij->lj", self.frequencies, self.exchangeabilities)
        speeds: Float64 = (flow * self.frequencies).sum(axis=1)
        return speeds


def read_site_frequencies(path: str, states: int, n_sites: int) -> Float64:
    """f64 [n_sites, states] of a file.

    Raises: InputError: it cannot be read, or has no frequencies for some site.
    """
    return site_frequencies_of(read_text(path).decode(errors="replace"), states, n_sites, path)


def site_frequencies_of(text: str, states: int, n_sites: int, path: str) -> Float64:
    """:func:`read_site_frequencies` for the text of a file ``path``."""
    frequencies = np.full((n_sites, states), np.nan)
    for number, line in enumerate(text.splitlines(), 1):
        fields = line.split()
        if not fields:
            continue
        try:
            site, row = whole(fields[0]), np.array([decimal(field) for field in fields[1:]])
        except ValueError as error:
            raise InputError(str(error), file=path, line=number) from None
        if len(row) != states:
            raise InputError(
                f"site {site} has {len(row)} frequencies, not {states}", file=path, line=number
            )
        if not 1 <= site <= n_sites:
            raise InputError(
                f"there is no site {site}: the alignment has {n_sites}", file=path, line=number
            )
        if not np.isnan(frequencies[site - 1, 0]):
            raise InputError(f"site {site} has frequencies already", file=path, line=number)
        if not (row > 0.0).all() or not abs(row.sum() - 1.0) <= SLACK:
            raise InputError(
                "frequencies must be positive and must sum to 1", file=path, line=number
            )
        frequencies[site - 1] = row / row.sum()
    missing = np.flatnonzero(np.isnan(frequencies[:, 0]))
    if missing.size:
        raise InputError(
            f"no frequencies for site {missing[0] + 1}",
            file=path,
            hint="a line for every site of the alignment is wanted",
        )
    return frequencies


def site_frequencies_text(frequencies: Float64) -> str:
    """The file of frequencies f64 [sites, states]."""
    rows = (
        f"{site:<6} " + "".join(f"{value:<15.{DIGITS}g} " for value in row)
        for site, row in enumerate(frequencies.tolist(), 1)
    )
    return "".join(f"{row}\n" for row in rows)
