"""Site log-likelihoods of many trees, in rows that stay in the engine, under many rows of weights.

The rows are those of whole trees, or those of a tree and of its neighbours across every inner
branch. What resampled data say of a tree (RELL: Kishino, Miyata, Hasegawa 1990) is its row times
the data's weights, for all trees and replicates at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from mltree.contract import Control, Role, RunKind, fields
from mltree.likelihood import planner, programs
from mltree.likelihood.api import LOCAL_EPSILON, Likelihood
from mltree.likelihood.batches import in_batches
from mltree.likelihood.cases import Case, Cases
from mltree.likelihood.engine import NO_CONTROL, Engine
from mltree.likelihood.interchanges import SLOTS, Quartets, neighbours, optimisation, site_lnls
from mltree.likelihood.program import Program
from mltree.likelihood.stages import Records, Repeat, Sites, Stage
from mltree.tree.topology import Tree

__all__ = [
    "SiteRows",
    "optimised_quartets",
    "rows_of_neighbours",
    "rows_of_quartets",
    "rows_of_trees",
]

Int32 = npt.NDArray[np.int32]
Float64 = npt.NDArray[np.float64]

INTERCHANGE_PASSES = 32
"""Newton steps on the five branches of an interchange: five to twelve are usual, and the branch
between takes more where it shrinks to nothing."""

RESAMPLED_BYTES = 1 << 28
"""Of the rows of weights, or of the sums, that a launch is given at most."""


@dataclass(frozen=True)
class SiteRows:
    """Site lnL of trees, a row each, in an engine that has run no other program since."""

    engine: Engine
    weights: Float64
    """f64[L]: of the data, which the engine goes back to."""
    lnl: Float64
    """f64[rows]: natural log, under those weights."""

    def sites(self) -> Float64:
        """f64[rows, L]: the lnL of every pattern."""
        return self.engine.site_log_likelihoods(len(self.lnl))

    def resampled_by(self, first: int, count: int) -> Float64:
        """f64[rows, count]: their lnL under rows of weights that the engine has, from one on."""
        program = programs.rell(len(self.lnl), count, self.engine.parts, first)
        sums = self.engine.run(program, np.zeros(0), NO_CONTROL).sums
        return sums.reshape(len(self.lnl), count)

    def resampled(self, weights: Float64) -> Float64:
        """f64[rows, R]: the lnL of every tree under each of f64[R, L] rows of weights."""
        rows, patterns = len(self.lnl), len(self.weights)
        most = max(1, RESAMPLED_BYTES // (8 * max(rows, patterns)))

        def multiply(batch: slice) -> Float64:
            own = weights[batch]
            self.engine.load_weights(own)
            return self.resampled_by(0, len(own))

        try:
            return np.concatenate(in_batches(len(weights), lambda _: most, multiply), axis=1)
        finally:
            self.engine.load_weights(self.weights[None])


def rows_of_trees(
    likelihood: Likelihood, trees: Sequence[Tree], cases: Sequence[Case], weights: Float64
) -> SiteRows:
    """The rows of trees, each in its case, lengths as they are; ``weights`` f64[L]."""
    engine = likelihood.engine
    longest, nodes = engine.longest_walk(len(trees)), max(tree.n_tips for tree in trees) - 2

    def at_once(_: int) -> int:
        return engine.room.trees_at_once(nodes) if longest < nodes else len(trees)

    def score(batch: slice) -> Float64:
        own, kind = trees[batch], RunKind.EVALUATE_SITES
        table = likelihood.take(own, cases[batch])
        program = (
            programs.walk(own, longest, kind, table)
            if longest
            else programs.traversal(own, kind, table)
        )
        program = _among(program, batch.start, len(trees))
        lengths = np.concatenate([tree.lengths for tree in own], axis=-1).ravel()
        return _lnls(likelihood.run(program, lengths).sums, len(own))

    lnl = np.concatenate(in_batches(len(trees), at_once, score))
    return SiteRows(engine, weights, lnl)


def rows_of_neighbours(
    likelihood: Likelihood, tree: Tree, case: Case, weights: Float64
) -> SiteRows:
    """Rows 2k and 2k + 1: both neighbours across the k-th inner edge; the last row: the tree.

    The neighbours have the five branches around that edge optimised, the tree is as it is.
    """
    best, _ = optimised_quartets(likelihood, tree, case, neighbours(tree, tree.inner_edges))
    return rows_of_quartets(likelihood, tree, case, best, weights)


def optimised_quartets(
    likelihood: Likelihood,
    tree: Tree,
    case: Case,
    others: Quartets,
    passes: int = INTERCHANGE_PASSES,
) -> tuple[Quartets, Float64]:
    """The quartets with their five branches optimised, and the lnL f64[n] of their trees."""
    count, base = len(others.halves), planner.slots_of(tree)
    cases = Cases.of([case] * count, unlinked=tree.lengths.ndim > 1)

    def score(batch: slice) -> tuple[Float64, Float64]:
        likelihood.hold([tree], [case])
        number = np.arange(batch.start, batch.stop, dtype=np.int32)
        own = others.part(batch)
        program, start = optimisation(tree, own, number, base, passes, cases)
        groups = max(program.groups, 1)
        control = planner.control_records(groups, LOCAL_EPSILON, passes)
        found = likelihood.run(program, likelihood.clip(start), control)
        lnl = found.control[:, Control.BEST].reshape(-1, len(number)).sum(axis=0)
        return found.lengths.reshape(own.lengths.shape), lnl

    done = in_batches(count, _quartets_at_once(likelihood, base), score)
    lengths, lnl = zip(*done, strict=True)
    return replace(others, lengths=np.concatenate(lengths, axis=-2)), np.concatenate(lnl)


def rows_of_quartets(
    likelihood: Likelihood, tree: Tree, case: Case, quartets: Quartets, weights: Float64
) -> SiteRows:
    """A row for each of the quartets' trees, and a last one for the tree that they are about."""
    count, base = len(quartets.halves), planner.slots_of(tree)
    cases = Cases.of([case] * (count + 1), unlinked=tree.lengths.ndim > 1)

    def score(number: Int32, own: Quartets) -> Float64:
        likelihood.hold([tree], [case])
        program, lengths = site_lnls(tree, own, number, base, cases)
        return _lnls(likelihood.run(program, lengths).sums, len(number))

    def several(batch: slice) -> Float64:
        number = np.arange(batch.start, batch.stop, dtype=np.int32)
        return score(number, quartets.part(batch))

    lnl = in_batches(count, _quartets_at_once(likelihood, base), several)
    lnl.append(score(np.array([count], np.int32), Quartets.of(tree, tree.inner_edges[:1])))
    return SiteRows(likelihood.engine, weights, np.concatenate(lnl))


def _quartets_at_once(likelihood: Likelihood, base: int) -> Callable[[int], int]:
    """As many as there is room for beside the tree's own CLAs."""
    return lambda _: max(1, likelihood.engine.room.near_at_once(base) // SLOTS)


def _lnls(sums: Float64, count: int) -> Float64:
    """f64[count]: of sums in rows, one a part where parts have lengths of their own."""
    lnl: Float64 = sums.reshape(-1, count).sum(axis=0)
    return lnl


def _among(program: Program, first: int, total: int) -> Program:
    """The program with its cases, and so its rows, from ``first`` on among so many."""
    cases = np.repeat(program.cases[:1], total)
    cases[first : first + len(program.cases)] = program.cases
    stages = tuple(_counted_from(stage, first) for stage in program.stages)
    return Program(stages, program.cells, cases)


def _counted_from(stage: Stage, first: int) -> Stage:
    if isinstance(stage, Repeat):
        return stage
    changed: Any
    if isinstance(stage, Sites):
        changed = {"tables": tuple(_moved(table, first) for table in stage.tables)}
    else:
        changed = {"records": _moved(stage.records, first)}
    return replace(stage, **changed)


def _moved(records: Records, first: int) -> Records:
    moved = records.copy()
    for field in fields(records.dtype, Role.CASE):
        moved[field] += first
    return moved
