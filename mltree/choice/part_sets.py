"""LnLs of sets of parts under models of their own, on one tree with one length a branch.

The lnL of a set is the sum of what its parts have under its model, so that none needs patterns of
its own: sets without a part in common stand in one tree of a launch, or, where that leaves most
parts idle, every part of a set in a tree of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mltree.arrays import Float64
from mltree.likelihood.api import Likelihood
from mltree.likelihood.cases import Case
from mltree.model.eigen import ModelArrays
from mltree.tree.topology import Tree
from mltree.values import Value

__all__ = ["PartSets"]


AT_ONCE = 50_000
"""Models of parts in a launch: as many as the optimiser of a thousand parts has there."""

SPARSE = 0.75
"""Share of the lnLs of all parts from which on trees of single parts are less work."""

RECORDS = 50_000
"""Tips of such trees, at most: about 1 us each to plan, which a GPU waits for."""


class PartSets(Value):
    """Sets of the parts of a likelihood."""

    likelihood: Likelihood
    tree: Tree
    many: int
    """Parts that there are."""

    def lnls(
        self, parts: Sequence[tuple[int, ...]], arrays: Sequence[Sequence[ModelArrays]]
    ) -> list[Float64]:
        """f64[points] for each of some sets of parts: their lnL under each of its models."""
        rows = _apart(parts)
        wanted = sum(len(own) * len(under) for own, under in zip(parts, arrays, strict=True))
        whole = self.many * sum(max(len(arrays[n]) for n in row) for row in rows)
        if wanted <= SPARSE * whole and wanted * self.tree.n_tips <= RECORDS:
            return self._of_single_parts(parts, arrays)
        return self._of_rows(parts, arrays, rows)

    def _of_rows(
        self,
        parts: Sequence[tuple[int, ...]],
        arrays: Sequence[Sequence[ModelArrays]],
        rows: Sequence[Sequence[int]],
    ) -> list[Float64]:
        """Of sets in rows, none of which has a part twice: a tree for every point of a row."""
        models = [
            _row([parts[n] for n in row], [arrays[n] for n in row], self.many) for row in rows
        ]
        lnls = self._part_lnls([Case(own) for of_row in models for own in of_row])
        found: dict[int, Float64] = {}
        ends = np.cumsum([len(of_row) for of_row in models])[:-1]
        for row, own in zip(rows, np.split(lnls, ends), strict=True):
            for n in row:
                found[n] = own[: len(arrays[n]), list(parts[n])].sum(axis=1)
        return [found[n] for n in range(len(parts))]

    def _of_single_parts(
        self, parts: Sequence[tuple[int, ...]], arrays: Sequence[Sequence[ModelArrays]]
    ) -> list[Float64]:
        """Of sets, a tree for every point of each of their parts."""
        sets = list(zip(parts, arrays, strict=True))
        cases = [Case((one,), first_part=n) for own, under in sets for n in own for one in under]
        lnls = self._part_lnls(cases)[:, 0]
        ends = np.cumsum([len(own) * len(under) for own, under in sets])[:-1]
        pairs = zip(np.split(lnls, ends), parts, strict=True)
        return [rows.reshape(len(own), -1).sum(axis=0) for rows, own in pairs]

    def _part_lnls(self, cases: Sequence[Case]) -> Float64:
        """f64[cases, parts] of the tree."""
        step = max(1, AT_ONCE // len(cases[0].models))
        chunks = [cases[first : first + step] for first in range(0, len(cases), step)]
        return np.concatenate(
            [self.likelihood.part_log_likelihoods([self.tree] * len(own), own) for own in chunks]
        )


def _row(
    parts: Sequence[tuple[int, ...]], arrays: Sequence[Sequence[ModelArrays]], many: int
) -> list[tuple[ModelArrays, ...]]:
    """The models of ``many`` parts, point by point, of sets of parts that have none in common."""
    models = [[arrays[0][0]] * many for _ in range(max(map(len, arrays)))]
    for subset, own in zip(parts, arrays, strict=True):
        for k, row in enumerate(models):
            for part in subset:
                row[part] = own[min(k, len(own) - 1)]
    return [tuple(row) for row in models]


def _apart(parts: Sequence[tuple[int, ...]]) -> list[list[int]]:
    """Sets of parts in rows, none of which has a part twice; the largest first, where they fit."""
    rows: list[list[int]] = []
    taken: list[int] = []
    for n in sorted(range(len(parts)), key=lambda n: -len(parts[n])):
        own = sum(1 << part for part in parts[n])
        row = next((r for r, used in enumerate(taken) if not used & own), len(rows))
        if row == len(rows):
            rows.append([])
            taken.append(0)
        rows[row].append(n)
        taken[row] |= own
    return rows
