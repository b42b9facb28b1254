"""Likelihoods of data without constant sites (ascertainment bias correction, +ASC).

A corrected lnL (formulas: :mod:`mltree.likelihood.left_out`) is no sum over patterns, and programs
compute nothing else. It is the likelihood of data a part of which is missing, though, so that the
constant sites that were left out can take part as n_s sites of each state s, n_s being their
expected number (expectation and maximisation).

At the branch lengths that the n_s are computed at, lnL + sum_s n_s ln p_s has the gradient of the
corrected lnL; elsewhere that sum is, up to a constant, never above the corrected lnL. Newton steps,
insertions and regrafts therefore weigh the constant patterns by n_s: a gain under these weights is
a gain of at least that size in corrected lnL. Every lnL returned is corrected; the lnL of an
insertion is a lower bound of the corrected one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain

import numpy as np

from mltree.likelihood.interchanges import Alternatives
from mltree.likelihood.left_out import AscertainedPart, CorrectedScores, LeftOut, Shares, em_lengths
from mltree.likelihood.likelihood import MAX_PASSES, Columns, TreeLikelihood, in_batches
from mltree.models.rate_profiles import Curves
from mltree.program.cases import Case
from mltree.program.engine import NO_CONTROL, Engine, Weights
from mltree.program.ops.edges import EvaluateSites
from mltree.program.planner import ScanTasks
from mltree.system.arrays import Float64, Index, Int32
from mltree.tree.topology import Forest, Tree, Trees

ROWS_BYTES = 1 << 28
"""Bytes of site lnL, or of rows of weights, held at once."""

TURN_EPSILON = 1e-3
"""lnL: turns on a neighbour's five branches end below this gain, as Newton steps do."""


class AscertainedLikelihood(TreeLikelihood):
    """TreeLikelihood of trees over data some parts of which have no constant sites.

    The engine holds the rows of weights that cases name and, behind them, unit rows that select one
    constant pattern each; within :meth:`_expecting` it holds rows with expected numbers instead.
    """

    def __init__(
        self,
        engine: Engine,
        length_bounds: tuple[float, float],
        columns: Columns,
        parts: Sequence[AscertainedPart],
    ) -> None:
        super().__init__(engine, length_bounds, columns)
        self._left_out = LeftOut(parts)
        self.load_weights(self._rows)

    def load_weights(self, rows: Weights) -> None:
        """Take rows of pattern weights f64[R, L], which cases name."""
        self._rows, self._seen = rows, self._left_out.seen(rows)
        self._table = np.concatenate([rows, self._left_out.units(rows.shape[1])])
        self._latest: tuple[Forest, Sequence[Case], CorrectedScores] | None = None
        """Trees and cases scored last, with their corrected lnL."""
        self.engine.load_weights(self._table)

    def log_likelihoods(self, trees: Sequence[Tree], cases: Sequence[Case]) -> Float64:
        """f64[n]: lnL of every tree."""
        return self._scored(trees, cases)[1].lnl

    def part_log_likelihoods(self, trees: Sequence[Tree], cases: Sequence[Case]) -> Float64:
        """f64[n, parts]: lnL of every part of every tree."""
        return self._scored(trees, cases)[0]

    def site_log_likelihoods(self, tree: Tree, case: Case) -> Float64:
        """f64[L]: lnL of every pattern; each site of a part bears its share of the correction."""
        sites = super().site_log_likelihoods(tree, case)
        self.shares([case]).add_to(sites[None])
        return sites

    def shares(self, cases: Sequence[Case]) -> Shares:
        """Each site's share of the correction, for the trees whose site lnL the engine holds."""
        added = self._corrections(cases)[0]
        return Shares(self._left_out, added / np.maximum(self._seen_by(cases), 1.0))

    def derivatives(self, tree: Tree, case: Case) -> tuple[float, Float64, Float64]:
        """Corrected lnL, and its first and second derivatives in every branch length."""
        known, first = self._held([tree], [case]), len(self._rows)
        rows = self._derivatives(tree, case, by_part=True)
        units = [
            self._derivatives(tree, case._replace(weights=row), by_part=True)
            for row in range(first, len(self._table))
        ]
        of_parts = self._left_out.derivatives(
            case, self._seen_by([case])[0], known, np.stack(units)
        )
        slope, curve = np.moveaxis(rows[:, 1:].reshape(len(rows), -1, 2), -1, 0) + of_parts
        if tree.lengths.ndim == 1:
            slope, curve = slope.sum(axis=0), curve.sum(axis=0)
        return float(known.lnl[0]), slope, curve

    def smooth(
        self,
        trees: Sequence[Tree],
        cases: Sequence[Case],
        epsilon: float,
        max_passes: int = MAX_PASSES,
        floors: Float64 | None = None,  # noqa: ARG002
    ) -> Float64:
        """f64[n]: corrected lnL after optimising all branch lengths, which change in place."""
        smooth = super().smooth

        def some(which: Index, lengths: Sequence[Float64]) -> tuple[list[Tree], list[Case]]:
            chosen = [
                trees[n].with_lengths(row) for n, row in zip(which.tolist(), lengths, strict=True)
            ]
            return chosen, [cases[n] for n in which.tolist()]

        def raised(which: Index, lengths: list[Float64], known: CorrectedScores) -> list[Float64]:
            chosen, under = some(which, lengths)
            with self._expecting(known, under) as expecting:
                smooth(chosen, expecting, epsilon, max_passes)
            return [tree.lengths for tree in chosen]

        def corrected(which: Index, lengths: list[Float64]) -> CorrectedScores:
            return self._scored(*some(which, lengths))[1]

        start = [tree.lengths for tree in trees]
        known = self._scored(trees, cases)[1]
        best, known = em_lengths(start, known, raised, corrected, self.clip, epsilon)
        for tree, lengths in zip(trees, best, strict=True):
            tree.lengths[:] = tree.with_lengths(lengths).lengths
        return known.lnl

    def optimise_alternatives(self, others: Alternatives, turns: int) -> tuple[Float64, Float64]:
        """Optimised lengths f64[..., n, k] and corrected lnL f64[n] of the alternatives to a tree.

        The sites left out begin as the tree itself expects them; without ``turns`` they stay so,
        and the lnL is a lower bound.
        """
        tree, case, count = others.tree, others.case, others.lengths.shape[-2]
        with self._expecting(self._held([tree], [case]), [case]) as (under,):
            every = np.arange(count)
            lengths, lnl = others.newton(every, others.lengths, [under] * count)
        if not turns:
            return lengths, lnl + self._held([tree], [case]).surplus[0]

        def at_once(_: int) -> int:
            return min(self._rows_at_once, others.at_once)

        def raised(
            which: Index, lengths_of: list[Float64], known: CorrectedScores
        ) -> list[Float64]:
            def some(batch: slice) -> list[Float64]:
                here, rows = which[batch], np.stack(lengths_of[batch], axis=-2)
                with self._expecting(known.of(batch), [case] * len(here)) as under:
                    return _apart(others.newton(here, rows, under)[0])

            return list(chain.from_iterable(in_batches(len(which), at_once, some)))

        def corrected(which: Index, lengths_of: list[Float64]) -> CorrectedScores:
            def some(batch: slice) -> CorrectedScores:
                lnl = others.score(which[batch], np.stack(lengths_of[batch], axis=-2))
                added, numbers, surplus = self._corrections([case] * len(lnl))
                return CorrectedScores(lnl + added.sum(axis=1), numbers, surplus)

            return CorrectedScores.joined(in_batches(len(which), at_once, some))

        start = _apart(lengths)
        known = corrected(every, start)
        best, known = em_lengths(start, known, raised, corrected, self.clip, TURN_EPSILON, turns)
        return np.stack(best, axis=-2), known.lnl

    def insertions(self, trees: Trees, cases: Sequence[Case], scan: ScanTasks) -> Float64:
        """f64[outputs]: lower bound of the corrected lnL of every insertion of the scan."""
        known = self._held(trees, cases)
        with self._expecting(known, cases) as under:
            lnl = super().insertions(trees, under, scan)
        return lnl + known.surplus[scan.tree_of_output]

    def refine(
        self, trees: Trees, cases: Sequence[Case], scan: ScanTasks, floors: Float64 | None = None
    ) -> tuple[Float64, Float64]:
        """Lower bounds of lnL f64[outputs], and lengths f64[outputs, 3], of every insertion."""
        known = self._held(trees, cases)
        surplus = known.surplus[scan.tree_of_output]
        floors = None if floors is None else floors - surplus
        with self._expecting(known, cases) as under:
            lnl, lengths = super().refine(trees, under, scan, floors)
        return lnl + surplus, lengths

    def join_lengths(self, trees: Trees, cases: Sequence[Case], prunes: Int32) -> Float64:
        """f64[n]: best length of the merged branch where each pruned subtree was taken out."""
        with self._expecting(self._held(trees, cases), cases) as under:
            return super().join_lengths(trees, under, prunes)

    def rate_curves(self, tree: Tree, case: Case, rates: Sequence[Float64]) -> list[Curves]:
        """Curves of every part's patterns, with those that were left out marked."""
        curves = super().rate_curves(tree, case, rates)
        self._left_out.mark(curves, case)
        return curves

    def flow_slopes(self, trees: Sequence[Tree], cases: Sequence[Case]) -> list[list[Float64]]:
        """Derivatives of the parts' corrected lnL in class rate matrices, f64[M, S, S] each."""
        with self._expecting(self._held(trees, cases), cases) as under:
            return super().flow_slopes(trees, under)

    def _counts(self, tree: Tree, case: Case) -> Float64:
        """f64[L]: sites of each pattern; for constant patterns the expected number left out."""
        counts: Float64 = self._with(self._held([tree], [case]), [case])[0]
        return counts

    def _with(self, known: CorrectedScores, cases: Sequence[Case]) -> Float64:
        """f64[n, L]: the weights of the cases, with expected numbers at the constant patterns."""
        rows = self._rows[[case.weights for case in cases]].astype(np.float64, copy=False)
        rows[:, self._left_out.columns] = known.numbers
        return rows

    @contextmanager
    def _expecting(self, known: CorrectedScores, cases: Sequence[Case]) -> Iterator[list[Case]]:
        """The cases, each with a row of weights that has its tree's expected numbers."""
        self.engine.load_weights(self._with(known, cases))
        try:
            yield [case._replace(weights=n) for n, case in enumerate(cases)]
        finally:
            self.engine.load_weights(self._table)

    def _held(self, trees: Trees, cases: Sequence[Case]) -> CorrectedScores:
        """Corrections of the trees; computed anew only if the trees or their cases have changed."""
        forest = Forest.of(trees)
        match self._latest:
            case (before, under, known) if before.is_same(forest) and under == list(cases):
                return known
        known = self._scored([forest.tree(n) for n in range(len(forest))], cases)[1]
        self._latest = forest, list(cases), known
        return known

    def _scored(
        self, trees: Sequence[Tree], cases: Sequence[Case]
    ) -> tuple[Float64, CorrectedScores]:
        """Corrected lnL f64[n, parts] of trees at their lengths, and the trees' corrections."""
        longest = self.engine.longest_walk(len(trees))
        fitting = self._at_once([tree.n_tips - 2 for tree in trees], cases)

        def score(batch: slice) -> tuple[Float64, CorrectedScores]:
            batch_trees, under = trees[batch], cases[batch]
            kind = EvaluateSites
            lnls = self._log_likelihoods(batch_trees, under, longest, kind, by_part=True)
            added, numbers, surplus = self._corrections(under)
            lnls = self._left_out.corrected(lnls, under, added)
            return lnls, CorrectedScores(lnls.sum(axis=1), numbers, surplus)

        scored = in_batches(len(trees), lambda n: min(fitting(n), self._rows_at_once), score)
        lnls, corrected = zip(*scored, strict=True)
        return np.concatenate(lnls), CorrectedScores.joined(corrected)

    @property
    def _rows_at_once(self) -> int:
        return max(1, int(ROWS_BYTES // self._rows[0].nbytes))

    def _corrections(self, cases: Sequence[Case]) -> tuple[Float64, Float64, Float64]:
        """Corrections of the trees whose site lnL the engine holds (:class:`.LeftOut`)."""
        program = self._left_out.program(len(cases), len(self._rows))
        logs = self._left_out.logs(self.engine.run(program, np.zeros(0), NO_CONTROL).sums)
        return self._left_out.corrections(cases, self._seen_by(cases), logs)

    def _seen_by(self, cases: Sequence[Case]) -> Float64:
        """f64[n, P]: sites of each part under the cases' weights."""
        return self._seen[[case.weights for case in cases]]


def _apart(lengths: Float64) -> list[Float64]:
    """Split f64[..., n, k] into n arrays f64[..., k]."""
    return list(np.moveaxis(lengths, -2, 0))
