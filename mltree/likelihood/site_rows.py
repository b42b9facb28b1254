"""Site log-likelihoods of many trees, in rows that stay in the engine, under many rows of weights.

The rows are those of whole trees, or those of a tree and of its neighbours across every inner
branch. The resampled lnL of a tree (RELL: Kishino, Miyata, Hasegawa 1990) is its row times the
replicate's weights, for all trees and replicates at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mltree.likelihood.interchanges import (
    INNER,
    SLOTS,
    Quartets,
    neighbours,
    optimisation,
    site_lnls,
)
from mltree.likelihood.left_out import MAX_TURNS, Shares
from mltree.likelihood.likelihood import LOCAL_EPSILON, TreeLikelihood, in_batches, lengths_of
from mltree.program import builders, planner
from mltree.program.cases import Case, Cases
from mltree.program.contract import Control
from mltree.program.engine import NO_CONTROL, Weights
from mltree.program.ops.edges import EvaluateSites
from mltree.program.ops.operation import Role, shifted
from mltree.program.program import Program
from mltree.system.arrays import Float64, Index, Int32
from mltree.system.values import Value
from mltree.tree.topology import Tree

INTERCHANGE_PASSES = 32
"""Newton steps on the five branches of an interchange: five to twelve are usual, and the branch
between takes more where it shrinks to nothing."""

RESAMPLED_BYTES = 1 << 28
"""Bytes of a launch's rows of weights, or of its sums, at most."""


class SiteRows(Value):
    """Site lnL of trees, a row each, in an engine that has run no other program since."""

    likelihood: TreeLikelihood
    weights: Float64
    """f64[L]: weights of the data, which the likelihood returns to."""
    lnl: Float64
    """f64[rows]: natural log, under the data's weights."""
    shares: Shares | None
    """Each site's share of the corrections for constant sites left out; None without +ASC."""

    @classmethod
    def of(
        cls, likelihood: TreeLikelihood, weights: Float64, sums: Float64, cases: Sequence[Case]
    ) -> SiteRows:
        """Rows that programs have left in the engine, with their sums f64[rows]."""
        shares = likelihood.shares(cases)
        lnl = sums if shares is None else sums + shares.sums(weights[None])[:, 0]
        return cls(likelihood, weights, lnl, shares)

    def sites(self) -> Float64:
        """f64[rows, L]: the lnL of every pattern."""
        sites = self.likelihood.engine.site_log_likelihoods(len(self.lnl))
        if self.shares is not None:
            self.shares.add_to(sites)
        return sites

    def resampled_by(self, first: int, weights: Weights) -> Float64:
        """f64[rows, R]: lnL under ``weights`` [R, L], the engine's rows from ``first`` on."""
        engine = self.likelihood.engine
        program = builders.rell(len(self.lnl), len(weights), engine.parts, first)
        sums = engine.run(program, np.zeros(0), NO_CONTROL).sums.reshape(len(self.lnl), -1)
        return sums if self.shares is None else sums + self.shares.sums(weights)

    def resampled(self, weights: Weights) -> Float64:
        """f64[rows, R]: lnL of every tree under each row of ``weights`` [R, L]."""
        rows, patterns = len(self.lnl), len(self.weights)
        most = max(1, RESAMPLED_BYTES // (8 * max(rows, patterns)))

        def multiply(batch: slice) -> Float64:
            self.likelihood.engine.load_weights(weights[batch])
            return self.resampled_by(0, weights[batch])

        try:
            return np.concatenate(in_batches(len(weights), lambda _: most, multiply), axis=1)
        finally:
            self.likelihood.load_weights(self.weights[None])


def rows_of_trees(
    likelihood: TreeLikelihood, trees: Sequence[Tree], cases: Sequence[Case], weights: Float64
) -> SiteRows:
    """Rows of trees, each in its case, at the trees' lengths; ``weights`` f64[L]."""
    engine = likelihood.engine
    longest, nodes = engine.longest_walk(len(trees)), max(tree.n_tips for tree in trees) - 2

    def at_once(_: int) -> int:
        return engine.room.trees_at_once(nodes) if longest < nodes else len(trees)

    def score(batch: slice) -> Float64:
        some, table = trees[batch], likelihood.take(trees[batch], cases[batch])
        program = builders.scoring(some, longest, EvaluateSites, table)
        program = _renumbered(program, batch.start, len(trees))
        return _lnls(likelihood.run(program, lengths_of(some)).sums, len(some))

    lnl = np.concatenate(in_batches(len(trees), at_once, score))
    return SiteRows.of(likelihood, weights, lnl, cases)


def rows_of_neighbours(
    likelihood: TreeLikelihood, tree: Tree, case: Case, weights: Float64, edges: Int32
) -> SiteRows:
    """Rows 2k and 2k + 1: both neighbours across the k-th of inner edges; the last row: the tree.

    The neighbours have the five branches around that edge optimised, the tree keeps its lengths.
    """
    best, _ = optimised_quartets(likelihood, tree, case, neighbours(tree, edges))
    return rows_of_quartets(likelihood, tree, case, best, weights)


def optimised_quartets(
    likelihood: TreeLikelihood,
    tree: Tree,
    case: Case,
    others: Quartets,
    passes: int = INTERCHANGE_PASSES,
    turns: int = MAX_TURNS,
) -> tuple[Quartets, Float64]:
    """The quartets with their five branches optimised, and the lnL f64[n] of their trees.

    Where sites were left out and ``turns`` is 0, the lnL is the lower bound that the tree's own
    expected numbers give.
    """
    around = _QuartetPrograms(likelihood, tree, case, others, passes)
    lengths, lnl = likelihood.optimise_alternatives(around, turns)
    return replace(others, lengths=lengths), lnl


def rows_of_quartets(
    likelihood: TreeLikelihood, tree: Tree, case: Case, quartets: Quartets, weights: Float64
) -> SiteRows:
    """A row for each quartet's tree, and a last one for the tree itself."""
    every = quartets.joined(Quartets.of(tree, tree.inner_edges[:1]))
    around, count = _QuartetPrograms(likelihood, tree, case, every), len(every.halves)

    def several(batch: slice) -> Float64:
        number = np.arange(batch.start, batch.stop, dtype=np.int32)
        return around.scored(number, every.part(batch), count)

    lnl = in_batches(count, lambda _: around.room_for(INNER), several)
    return SiteRows.of(likelihood, weights, np.concatenate(lnl), [case] * count)


class _QuartetPrograms(Value):
    """The programs for neighbours of a tree; :class:`.Alternatives`."""

    likelihood: TreeLikelihood
    tree: Tree
    case: Case
    quartets: Quartets
    passes: int = INTERCHANGE_PASSES

    @property
    def lengths(self) -> Float64:
        """f64[..., n, 5]: starting lengths."""
        return self.quartets.lengths

    @property
    def at_once(self) -> int:
        """Quartets that there is room for beside the tree's own CLAs."""
        return self.room_for(SLOTS)

    def room_for(self, slots: int) -> int:
        """Quartets that there is room for if each takes ``slots`` slots."""
        return max(1, self.likelihood.engine.room.near_at_once(self._base) // slots)

    @property
    def _base(self) -> int:
        return planner.slots_of(self.tree)

    def newton(
        self, which: Index, lengths: Float64, cases: Sequence[Case]
    ) -> tuple[Float64, Float64]:
        """Optimise the quartets ``which``, each in its case: lengths f64[..., n, 5], lnL f64[n]."""
        quartets = replace(self.quartets.part(which), lengths=lengths)
        table = Cases.of(cases, unlinked=self.tree.lengths.ndim > 1)

        def climb(batch: slice) -> tuple[Float64, Float64]:
            self.likelihood.hold([self.tree], [self.case])
            number = np.arange(batch.start, batch.stop, dtype=np.int32)
            batch_quartets = quartets.part(batch)
            program, start = optimisation(
                self.tree, batch_quartets, number, self._base, self.passes, table
            )
            groups = max(program.groups, 1)
            control = planner.control_records(groups, LOCAL_EPSILON, self.passes)
            result = self.likelihood.run(program, self.likelihood.clip(start), control)
            lnl = result.control[:, Control.BEST].reshape(-1, len(number)).sum(axis=0)
            return result.lengths.reshape(batch_quartets.lengths.shape), lnl

        done = in_batches(len(cases), lambda _: self.at_once, climb)
        climbed, lnl = zip(*done, strict=True)
        return np.concatenate(climbed, axis=-2), np.concatenate(lnl)

    def score(self, which: Index, lengths: Float64) -> Float64:
        """f64[n]: lnL of the quartets ``which``, whose site lnL become the engine's rows."""
        some = replace(self.quartets.part(which), lengths=lengths)
        return self.scored(np.arange(len(which), dtype=np.int32), some, len(which))

    def scored(self, number: Int32, some: Quartets, rows: int) -> Float64:
        """f64[n]: lnL of quartets whose site lnL become the rows ``number``, of ``rows`` in all."""
        table = Cases.of([self.case] * rows, unlinked=self.tree.lengths.ndim > 1)
        self.likelihood.hold([self.tree], [self.case])
        program, lengths = site_lnls(self.tree, some, number, self._base, table)
        return _lnls(self.likelihood.run(program, lengths).sums, len(number))


def _lnls(sums: Float64, count: int) -> Float64:
    """f64[count]: sums added over parts, where parts have lengths of their own."""
    lnl: Float64 = sums.reshape(-1, count).sum(axis=0)
    return lnl


def _renumbered(program: Program, first: int, total: int) -> Program:
    """The program with its cases, and so its rows, from ``first`` on among ``total``."""
    cases = np.repeat(program.cases[:1], total)
    cases[first : first + len(program.cases)] = program.cases
    moved = program.changed(lambda records: shifted(records, first, Role.CASE))
    return replace(moved, cases=cases)
