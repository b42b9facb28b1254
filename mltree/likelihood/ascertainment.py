"""The likelihood of data without constant sites (+ASC), by what those would have been.

With W sites seen, p_s the probability of the constant pattern of state s, C their sum:

    Lewis         lnL - W ln(1 - C)
    Felsenstein   lnL + w ln C           w sites left out
    Stamatakis    lnL + sum_s w_s ln p_s   w_s sites of state s left out

(Lewis 2001; Leaché et al. 2015, eqs. 4-6.) The first two are no sums over patterns, as programs
make them. But they are likelihoods of data of which a part is missing, so that the sites that
were left out can take part by their expected numbers (expectation and maximisation: Dempster,
Laird, Rubin 1977, J. R. Stat. Soc. B 39:1-38):

    n_s = W p_s / (1 - C)   or   w p_s / C   or   w_s

At the lengths that they are computed at, lnL + sum_s n_s ln p_s has the gradient of the corrected
lnL; elsewhere it is, but for a constant, never above it. So Newton steps, insertions and regrafts
use weights n_s at the constant patterns, and whatever gains there gains as much at least when it is
corrected. Every lnL that is told is corrected, or of an insertion such a lower bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mltree.alignment.ascertainment import Ascertainment, Correction
from mltree.alignment.patterns import Patterns
from mltree.contract import RunKind
from mltree.errors import ModelError
from mltree.likelihood.api import MAX_PASSES, Likelihood
from mltree.likelihood.batches import in_batches
from mltree.likelihood.cases import Case, Cases
from mltree.likelihood.classes import Columns
from mltree.likelihood.engine import Engine
from mltree.likelihood.scan_tasks import ScanTasks
from mltree.model.portable import exp
from mltree.tree.topology import Tree

__all__ = ["AscertainedLikelihood", "Conditioned", "conditioned_parts"]

Int32 = npt.NDArray[np.int32]
Float64 = npt.NDArray[np.float64]

MAX_TURNS = 60
"""Turns of a smoothing: expected numbers, then lengths under them."""

STRETCHES = (1.0, 1.5, 2.5, 5.0, 10.0)
"""Factors on the log of what a turn did to each length. Turns alone converge slowly where most
sites were left out (90 % of them: a tenth of the way each); the best factor is taken, and 1 is
among them, so that no turn loses."""

SITES_BYTES = 1 << 28
"""Of site lnLs that are read back at once."""


@dataclass(frozen=True)
class Conditioned:
    """A part whose constant sites were left out."""

    part: int
    """Of the engine."""
    seen: slice
    """Its patterns."""
    unseen: slice
    """Its constant ones, one a state, of weight 0."""
    ascertainment: Ascertainment

    def expected(self, seen: float, logs: Float64) -> Float64:
        """f64[S]: how many sites of each were left out, by the logs f64[S] of p."""
        about = self.ascertainment
        if about.correction is Correction.STAMATAKIS:
            return np.array(about.counts)
        most = logs.max()
        relative = exp(logs - most)
        if about.correction is Correction.FELSENSTEIN:
            shares: Float64 = about.counts[0] * relative / relative.sum()
            return shares
        p = exp(logs)
        numbers: Float64 = seen * p / self._never(p)
        return numbers

    def corrects(self, seen: float, logs: Float64) -> float:
        """What is added to the lnL of ``seen`` sites."""
        about = self.ascertainment
        if about.correction is Correction.STAMATAKIS:
            return float((np.array(about.counts) * logs).sum())
        if about.correction is Correction.FELSENSTEIN:
            most = logs.max()
            return float(about.counts[0] * (most + math.log(exp(logs - most).sum())))
        return float(-seen * math.log(self._never(exp(logs))))

    @staticmethod
    def _never(p: Float64) -> float:
        """1 - C, however short the tree is."""
        return max(1.0 - float(p.sum()), np.finfo(np.float64).tiny)


def conditioned_parts(groups: Sequence[Patterns]) -> list[Conditioned]:
    """The parts of all groups, one after the other, whose constant sites were left out."""
    found, part, first = [], 0, 0
    for patterns in groups:
        states = patterns.alphabet.n_states
        for own in patterns.unseen:
            begin, at = first + patterns.parts[own.part].start, first + own.first
            where = slice(begin, at), slice(at, at + states)
            found.append(Conditioned(part + own.part, *where, own.ascertainment))
        part += len(patterns.parts)
        first += patterns.n_patterns
    return found


@dataclass(frozen=True)
class _Corrected:
    """A tree's lnL, and what the sites that were left out add to it."""

    lnls: Float64
    """f64[parts], corrected."""
    weights: Float64
    """f64[L]: with expected numbers of the constant patterns."""
    above: float
    """How far the corrected lnL is above that under those weights."""


class AscertainedLikelihood(Likelihood):
    """The likelihood of trees over data some parts of which have no constant sites."""

    def __init__(
        self,
        engine: Engine,
        length_bounds: tuple[float, float],
        columns: Columns,
        parts: Sequence[Conditioned],
    ) -> None:
        super().__init__(engine, length_bounds, columns)
        self._conditioned = tuple(parts)
        self._known: list[tuple[Tree, Case, _Corrected]] = []
        """What is known of the trees that were asked for last."""

    def load_weights(self, rows: Float64) -> None:
        """Take rows of pattern weights f64[R, L], which cases name."""
        self._rows = rows
        self._known = []

    def log_likelihoods(self, trees: Sequence[Tree], cases: Sequence[Case]) -> Float64:
        """f64[n]: lnL of every tree."""
        return np.array([found.lnls.sum() for found in self._corrected(trees, cases)])

    def part_log_likelihoods(self, trees: Sequence[Tree], cases: Sequence[Case]) -> Float64:
        """f64[n, parts]: lnL of every part of every tree."""
        return np.array([found.lnls for found in self._corrected(trees, cases)])

    def site_log_likelihoods(self, tree: Tree, case: Case) -> Float64:
        """f64[L]: lnL of every pattern; each site of a part bears its share of the correction."""
        self.engine.load_weights(self._rows)
        sites = super().site_log_likelihoods(tree, case)
        row = self._rows[case.weights]
        for part in self._of(case):
            seen = float(row[part.seen].sum())
            sites[part.seen] += part.corrects(seen, sites[part.unseen]) / max(seen, 1.0)
        return sites

    def smooth(
        self,
        trees: Sequence[Tree],
        cases: Sequence[Case],
        epsilon: float,
        max_passes: int = MAX_PASSES,
    ) -> Float64:
        """f64[n]: corrected lnL after optimising all branch lengths, which change in place."""
        known = self._corrected(trees, cases)
        best = np.array([found.lnls.sum() for found in known])
        moving = list(range(len(trees)))
        for _ in range(MAX_TURNS):
            before = [trees[n].lengths.copy() for n in moving]
            under = self._expect([known[n] for n in moving], [cases[n] for n in moving])
            super().smooth([trees[n] for n in moving], under, epsilon, max_passes)
            reached = self._stretch([trees[n] for n in moving], before, [cases[n] for n in moving])
            still = []
            for n, start, found in zip(moving, before, reached, strict=True):
                gain = float(found.lnls.sum()) - best[n]
                if gain < 0.0:
                    trees[n].lengths[:] = start
                    continue
                known[n] = found
                best[n] += gain
                if gain >= epsilon:
                    still.append(n)
            moving = still
            if not moving:
                break
        return best

    def insertions(self, trees: Sequence[Tree], cases: Sequence[Case], scan: ScanTasks) -> Float64:
        """f64[outputs]: a lower bound of the lnL of every insertion of the scan."""
        known = self._held(trees, cases)
        lnl = super().insertions(trees, self._expect(known, cases), scan)
        return lnl + self._above(known, scan)

    def refine(
        self,
        trees: Sequence[Tree],
        cases: Sequence[Case],
        scan: ScanTasks,
        floors: Float64 | None = None,
    ) -> tuple[Float64, Float64]:
        """Lower bounds of lnL f64[outputs], and lengths f64[outputs, 3], of every insertion."""
        known = self._held(trees, cases)
        above = self._above(known, scan)
        floors = None if floors is None else floors - above
        lnl, lengths = super().refine(trees, self._expect(known, cases), scan, floors)
        return lnl + above, lengths

    def join_lengths(self, trees: Sequence[Tree], cases: Sequence[Case], prunes: Int32) -> Float64:
        """f64[n]: best length of the branch that remains where each prune was taken out."""
        under = self._expect(self._held(trees, cases), cases)
        return super().join_lengths(trees, under, prunes)

    def hold(self, trees: Sequence[Tree], cases: Sequence[Case]) -> Cases:  # noqa: ARG002
        """Refused, as is ``take``: what programs from elsewhere sum is not corrected."""
        raise _uncorrected()

    def take(self, trees: Sequence[Tree], cases: Sequence[Case]) -> Cases:  # noqa: ARG002
        """Refused."""
        raise _uncorrected()

    def _counts(self, tree: Tree, case: Case) -> Float64:
        """With the expected numbers of those that were left out."""
        return self._held([tree], [case])[0].weights

    def _of(self, case: Case) -> list[Conditioned]:
        """The parts that a case has of those."""
        parts = range(case.first_part, case.first_part + len(case.models))
        return [part for part in self._conditioned if part.part in parts]

    def _expect(self, known: Sequence[_Corrected], cases: Sequence[Case]) -> list[Case]:
        """The cases, each with a row of weights that has its tree's expected numbers."""
        self.engine.load_weights(np.stack([found.weights for found in known]))
        return [case._replace(weights=n) for n, case in enumerate(cases)]

    def _held(self, trees: Sequence[Tree], cases: Sequence[Case]) -> list[_Corrected]:
        """What is known of the trees; found again only where they or their cases have changed."""
        same = len(trees) == len(self._known) and all(
            own is not tree
            and case == known_case
            and np.array_equal(own.twin, tree.twin)
            and np.array_equal(own.edge, tree.edge)
            and np.array_equal(own.lengths, tree.lengths)
            for tree, case, (own, known_case, _) in zip(trees, cases, self._known, strict=True)
        )
        if not same:
            found = self._corrected(trees, cases)
            copies = [tree.copy() for tree in trees]
            self._known = list(zip(copies, cases, found, strict=True))
        return [found for *_, found in self._known]

    @staticmethod
    def _above(known: Sequence[_Corrected], scan: ScanTasks) -> Float64:
        """f64[outputs]: of the tree of every output."""
        return np.array([found.above for found in known])[scan.tree_of_output]

    def _stretch(
        self, trees: Sequence[Tree], before: Sequence[Float64], cases: Sequence[Case]
    ) -> list[_Corrected]:
        """Take every tree on in the direction in which its lengths have changed, if that gains."""
        tried = [
            Tree(
                tree.twin, tree.edge, self.clip(start * (tree.lengths / start) ** far), tree.n_tips
            )
            for tree, start in zip(trees, before, strict=True)
            for far in STRETCHES
        ]
        found = self._corrected(tried, [case for case in cases for _ in STRETCHES])
        reached = []
        for n, tree in enumerate(trees):
            own = range(n * len(STRETCHES), (n + 1) * len(STRETCHES))
            lnls = [float(found[k].lnls.sum()) for k in own]
            best = own[lnls.index(max(lnls))]
            tree.lengths[:] = tried[best].lengths
            reached.append(found[best])
        return reached

    def _corrected(self, trees: Sequence[Tree], cases: Sequence[Case]) -> list[_Corrected]:
        """The corrected lnLs of trees as they are."""
        self.engine.load_weights(self._rows)
        longest = self.engine.longest_walk(len(trees))
        fitting = self._at_once([tree.n_tips - 2 for tree in trees], cases)
        columns = np.concatenate([np.r_[part.unseen] for part in self._conditioned])

        def at_once(first: int) -> int:
            return max(1, min(fitting(first), SITES_BYTES // (8 * len(self._rows[0]))))

        def evaluate(batch: slice) -> tuple[Float64, Float64]:
            own, under = trees[batch], cases[batch]
            kind = RunKind.EVALUATE_SITES
            lnls = self._log_likelihoods(own, under, longest, kind, by_part=True)
            return lnls, self.engine.site_log_likelihoods(len(own))[:, columns]

        found = in_batches(len(trees), at_once, evaluate)
        lnls = np.concatenate([own for own, _ in found])
        logs = np.concatenate([own for _, own in found])
        return [self._correct(*row) for row in zip(cases, lnls, logs, strict=True)]

    def _correct(self, case: Case, lnls: Float64, logs: Float64) -> _Corrected:
        """What follows from lnLs f64[parts] and those of all constant patterns."""
        weights, corrected, above = self._rows[case.weights].copy(), lnls.copy(), 0.0
        ends = np.cumsum([0, *(part.unseen.stop - part.unseen.start for part in self._conditioned)])
        for part in self._of(case):
            place = self._conditioned.index(part)
            own = logs[ends[place] : ends[place + 1]]
            seen = float(weights[part.seen].sum())
            numbers, correction = part.expected(seen, own), part.corrects(seen, own)
            weights[part.unseen] = numbers
            corrected[part.part - case.first_part] += correction
            above += correction - float((numbers * own).sum())
        return _Corrected(corrected, weights, above)


def _uncorrected() -> ModelError:
    return ModelError(
        "resampled log-likelihoods (tests of trees and branches) are not corrected for +ASC yet",
        hint="bootstrap supports are",
    )
