"""What the search asks of the likelihood: trees in, log-likelihoods and lengths out.

Several trees of the same taxa may stand side by side, each with its own model; they share every
launch. Lengths are expected substitutions per site, lnL are natural logs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import numpy as np
import numpy.typing as npt

from mltree.contract import Control, RunKind
from mltree.errors import DeviceMemoryError
from mltree.likelihood import planner, programs
from mltree.likelihood.batches import in_batches
from mltree.likelihood.engine import NO_CONTROL, Engine, Result
from mltree.likelihood.model_rows import model_rows
from mltree.likelihood.program import Program
from mltree.likelihood.scan_tasks import ScanTasks, split
from mltree.model.eigen import ModelArrays
from mltree.tree.topology import Tree

__all__ = ["Likelihood"]

Int32 = npt.NDArray[np.int32]
Float64 = npt.NDArray[np.float64]

MAX_PASSES = 100
"""Passes of one smoothing. Between rounds 2 to 7 do (docs/search.md, "Branch lengths"); the bound
stops a limit cycle."""

TRIPOD_PASSES = 8
"""Joint Newton steps around an insertion point: as many as the prototype's 2 loops of 4 steps
(bench/PROTOTYPE.md)."""

JOIN_PASSES = 8
"""Newton steps on the branch that a pruned subtree leaves behind."""

LOCAL_EPSILON = 1e-3
"""Local optimisations stop below this gain in lnL: well under the 0.05 that a move must gain."""

PROGRAMS_KEPT = 8
"""Programs of the latest topologies: model and branches are optimised in turn on one tree."""


class Likelihood:
    """The likelihood of trees over one alignment, computed by one engine."""

    def __init__(self, engine: Engine, length_bounds: tuple[float, float]) -> None:
        self.engine = engine
        self._min_length, self._max_length = length_bounds
        self._models: list[ModelArrays] = []
        self._rows = np.empty((0, 0))
        self._programs: dict[Hashable, Program] = {}
        self._resident: list[Tree] = []
        """Whose directional CLAs the engine holds, under the models of now."""

    def log_likelihoods(self, trees: Sequence[Tree], models: Sequence[ModelArrays]) -> Float64:
        """f64[n]: lnL of every tree under its model."""
        longest = self.engine.longest_walk(len(trees))
        nodes = trees[0].n_tips - 2

        def at_once() -> int:
            needs_slots = longest < nodes  # walks of whole trees keep their results to themselves
            return self.engine.room.trees_at_once(nodes) if needs_slots else len(trees)

        def score(batch: slice) -> Float64:
            return self._log_likelihoods(trees[batch], models[batch], longest)

        return np.concatenate(in_batches(len(trees), at_once, score))

    def trees_at_once(self, tree: Tree) -> int:
        """How many trees like this one are best searched side by side; see ``insertions``."""
        return self.engine.room.trees_at_once(planner.slots_of(tree), beside=1)

    def site_log_likelihoods(self, tree: Tree, model: ModelArrays) -> Float64:
        """f64[L]: lnL of every pattern."""
        longest = self.engine.longest_walk(1)
        self._log_likelihoods([tree], [model], longest, RunKind.EVALUATE_SITES)
        lnl: Float64 = self.engine.site_log_likelihoods()[0]
        return lnl

    def derivatives(self, tree: Tree, model: ModelArrays) -> tuple[float, Float64, Float64]:
        """lnL, and f64[E] first and second derivatives of lnL in every branch length."""
        self._load([model])
        program = self._program(programs.derivatives, [tree])
        result = self._run(program, tree.lengths)
        self._remember([tree])
        slope, curve = result.sums[1:].reshape(-1, 2).T
        return float(result.sums[0]), slope, curve

    def smooth(
        self,
        trees: Sequence[Tree],
        models: Sequence[ModelArrays],
        epsilon: float,
        max_passes: int = MAX_PASSES,
    ) -> Float64:
        """f64[n]: lnL after optimising all branch lengths, which change in place.

        Simultaneous guarded Newton steps on the device; never ends worse than it started.
        """

        def at_once() -> int:
            return self.engine.room.trees_at_once(planner.slots_of(trees[0]))

        def smooth(batch: slice) -> Float64:
            return self._smooth(trees[batch], models[batch], epsilon, max_passes)

        return np.concatenate(in_batches(len(trees), at_once, smooth))

    def insertions(
        self, trees: Sequence[Tree], models: Sequence[ModelArrays], scan: ScanTasks
    ) -> Float64:
        """f64[outputs]: lnL of every insertion of the scan, the target edge split in half."""
        self._update(trees, models)
        program, lengths = programs.scores(trees, scan)
        return self._run(program, lengths).sums

    def refine(
        self, trees: Sequence[Tree], models: Sequence[ModelArrays], scan: ScanTasks
    ) -> tuple[Float64, Float64]:
        """Log-likelihoods f64[outputs] and lengths f64[outputs, 3] (near, far, pendant).

        A joint Newton optimisation of the three branches around every insertion.
        """
        self._update(trees, models)
        base = len(trees) * planner.slots_of(trees[0])
        room = self.engine.room.near_at_once(base)
        lnl, lengths = np.empty(scan.outputs), np.empty((scan.outputs, 3))
        for part, outputs in split(scan, room):
            lnl[outputs], lengths[outputs] = self._refine(trees, part, base)
        return lnl, lengths

    def join_lengths(
        self, trees: Sequence[Tree], models: Sequence[ModelArrays], number: Int32, prunes: Int32
    ) -> Float64:
        """f64[n]: best length of the branch that remains where each prune was taken out.

        ``number`` int32[n]: index of the tree; ``prunes`` int32[n]: half-edges at the pruning
        points that face the pruned subtrees.
        """
        self._update(trees, models)
        program, lengths = programs.join(trees, number, prunes, JOIN_PASSES)
        control = planner.control_records(len(prunes), LOCAL_EPSILON, JOIN_PASSES)
        return self._run(program, self._clip(lengths), control).lengths

    def _clip(self, lengths: Float64) -> Float64:
        clipped: Float64 = np.clip(lengths, self._min_length, self._max_length)
        return clipped

    def _program(
        self, build: Callable[..., Program], trees: Sequence[Tree], *arguments: Hashable
    ) -> Program:
        """The program for trees of these topologies, whatever their lengths; the last are kept.

        An engine knows a program that it was given last time, and need not take it in again.
        """
        key = (build, arguments, *_topologies(trees))
        if key not in self._programs:
            if len(self._programs) == PROGRAMS_KEPT:
                del self._programs[next(iter(self._programs))]
            self._programs[key] = build(trees, *arguments)
        return self._programs[key]

    def _load(self, models: Sequence[ModelArrays]) -> None:
        if list(models) == self._models:  # the very same ones: models know no other equality
            return
        self._models = list(models)
        rows = model_rows(models)
        if not np.array_equal(rows, self._rows):
            self._rows = rows
            self._resident = []
            self.engine.load_models(rows)

    def _log_likelihoods(
        self,
        trees: Sequence[Tree],
        models: Sequence[ModelArrays],
        longest: int,
        kind: RunKind = RunKind.EVALUATE,
    ) -> Float64:
        self._load(models)
        self._resident = []
        program = (
            self._program(programs.walk, trees, longest, kind)
            if longest
            else self._program(programs.traversal, trees, kind)
        )
        return self._run(program, _lengths(trees)).sums

    def _smooth(
        self,
        trees: Sequence[Tree],
        models: Sequence[ModelArrays],
        epsilon: float,
        max_passes: int,
    ) -> Float64:
        self._load(models)
        edges = trees[0].n_edges
        program = self._program(programs.smoothing, trees, max_passes)
        control = planner.control_records(len(trees), epsilon, max_passes)
        result = self._run(program, self._clip(_lengths(trees)), control)
        for n, tree in enumerate(trees):
            tree.lengths[:] = result.lengths[n * edges : (n + 1) * edges]
        if result.control[:, Control.ACCEPTED].all():
            self._remember(trees)
        else:
            self._resident = []
        return result.control[:, Control.BEST].copy()

    def _run(self, program: Program, lengths: Float64, control: Float64 = NO_CONTROL) -> Result:
        try:
            return self.engine.run(program, lengths, control)
        except DeviceMemoryError:
            self._resident = []
            raise

    def _update(self, trees: Sequence[Tree], models: Sequence[ModelArrays]) -> None:
        """Make every directional CLA of the trees resident: those that are not yet."""
        self._load(models)
        if len(self._resident) != len(trees):
            program: Program | None = self._program(programs.update, trees)
        elif all(map(_is_same, self._resident, trees)):
            return
        else:
            program = programs.renewal(self._resident, trees)
        if program is not None:
            self._run(program, _lengths(trees))
        self._remember(trees)

    def _remember(self, trees: Sequence[Tree]) -> None:
        self._resident = [tree.copy() for tree in trees]

    def _refine(self, trees: Sequence[Tree], scan: ScanTasks, base: int) -> tuple[Float64, Float64]:
        walk, lengths = programs.near_vectors(trees, scan, base)
        self._run(walk, lengths)
        program, lengths = programs.tripods(trees, scan, base, TRIPOD_PASSES)
        control = planner.control_records(scan.outputs, LOCAL_EPSILON, TRIPOD_PASSES)
        result = self._run(program, self._clip(lengths), control)
        return result.control[:, Control.BEST], result.lengths.reshape(-1, 3)


def _is_same(one: Tree, other: Tree) -> bool:
    """Whether two trees are equal, numbering and lengths included."""
    return (
        np.array_equal(one.twin, other.twin)
        and np.array_equal(one.edge, other.edge)
        and np.array_equal(one.lengths, other.lengths)
    )


def _lengths(trees: Sequence[Tree]) -> Float64:
    return np.concatenate([tree.lengths for tree in trees])


def _topologies(trees: Sequence[Tree]) -> tuple[Hashable, ...]:
    """What tells the topologies from others; one tree under many models is told but once."""
    arrays = {(id(tree.twin), id(tree.edge)) for tree in trees}
    if len(arrays) == 1:
        return len(trees), _topology(trees[0])
    return tuple(map(_topology, trees))


def _topology(tree: Tree) -> bytes:
    return tree.twin.tobytes() + tree.edge.tobytes()
