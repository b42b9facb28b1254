"""Corrections for constant sites that were left out of an alignment (+ASC).

With W sites seen, p_s the probability of the constant pattern of state s, C their sum:

    Lewis         lnL - W ln(1 - C)
    Felsenstein   lnL + w ln C           w sites left out
    Stamatakis    lnL + sum_s w_s ln p_s   w_s sites of state s left out

(Lewis 2001; Leaché et al. 2015, eqs. 4-6.) The expected number of sites left out, by state s, is

    n_s = W p_s / (1 - C)   or   w p_s / C   or   w_s

Every site seen bears the same share of its part's correction: - ln(1 - C) with Lewis, the constant
of the others over W. Site lnL therefore sum to the lnL, and resampled site lnL (RELL) to the lnL of
a sample of the sites: a sample of W sites has the whole correction, a sample of k W sites (the AU
test) k times that, as if the sites left out had been sampled along.

Letters: n trees, P parts whose constant sites were left out, U their constant patterns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from mltree.data.patterns import Ascertainment, Correction, Patterns
from mltree.models.portable import exp, log, product
from mltree.models.rate_profiles import Curves
from mltree.program.cases import Case
from mltree.program.engine import Weights
from mltree.program.ops.reduce import RELL, Rell
from mltree.program.program import Program
from mltree.system.arrays import Float64, Index
from mltree.system.values import Value

_TINY = 1e-300
"""Shape of a negative binomial that is 0, where there is no shape of 0."""


class AscertainedPart(Value):
    """A part whose constant sites were left out."""

    part: int
    """Number of the part in the engine."""
    seen: slice
    """Patterns of the sites seen."""
    unseen: slice
    """Constant patterns, of weight 0: one for each of the alphabet's `certain_codes`."""
    ascertainment: Ascertainment

    @property
    def states(self) -> int:
        """S, or fewer where characters do not tell all states apart (phased genotypes)."""
        return int(self.unseen.stop - self.unseen.start)

    def expected(self, seen: Float64, logs: Float64) -> Float64:
        """f64[n, S]: expected number of sites left out, by state.

        seen  f64[n]: W, of each tree
        logs  f64[n, S]: ln p
        """
        about = self.ascertainment
        numbers: Float64
        if about.correction is Correction.STAMATAKIS:
            numbers = np.tile(np.array(about.counts), (len(logs), 1))
        elif about.correction is Correction.FELSENSTEIN:
            relative = exp(logs - logs.max(axis=1, keepdims=True))
            numbers = about.counts[0] * relative / relative.sum(axis=1, keepdims=True)
        else:
            p = exp(logs)
            numbers = seen[:, None] * p / self._variable(p)[:, None]
        return numbers

    def corrects(self, seen: Float64, logs: Float64) -> Float64:
        """f64[n]: correction of the lnL, for ``seen`` f64[n] sites and ``logs`` f64[n, S] of p."""
        about = self.ascertainment
        added: Float64
        if about.correction is Correction.STAMATAKIS:
            added = (np.array(about.counts) * logs).sum(axis=1)
        elif about.correction is Correction.FELSENSTEIN:
            most = logs.max(axis=1)
            added = about.counts[0] * (most + log(exp(logs - most[:, None]).sum(axis=1)))
        else:
            added = -seen * log(self._variable(exp(logs)))
        return added

    def bends(self, seen: float) -> tuple[float, float]:
        """Coefficients (a, b) in the correction's second derivative.

        It is Σ n_u (ln p_u)'' + a Σ n_u (ln p_u)'² + b (Σ n_u (ln p_u)')².
        """
        if self.ascertainment.correction is Correction.STAMATAKIS:
            return 0.0, 0.0
        is_lewis = self.ascertainment.correction is Correction.LEWIS
        return 1.0, 1.0 / (seen if is_lewis else -self.ascertainment.counts[0])

    def derivatives(self, seen: float, numbers: Float64, units: Float64) -> Float64:
        """f64[2, E]: first and second derivatives of the correction in every branch length.

        numbers  f64[S]: expected numbers
        units    f64[S, E, 2]: first and second derivatives of every ln p
        """
        slopes, curves = np.moveaxis(units, -1, 0)
        each, together = self.bends(seen)
        slope = product(numbers[None], slopes)[0]
        curve = product(numbers[None], curves + each * slopes**2)[0] + together * slope**2
        return np.stack([slope, curve])

    def drawn(
        self, seen: float, heats: Float64, logs: Float64, rng: np.random.Generator
    ) -> Float64:
        """f64[n, S]: weights of the constant patterns, drawn under likelihoods to powers f64[n].

        A corrected likelihood is a sum over numbers of sites left out (negative binomial; Lewis):

            prod L^b (1 - C)^(-b W) = sum_m Gamma(b W + m) / (Gamma(b W) m!) C^m prod L^b

        Given m, and how it falls to the states, it is a product of powers, prod L^b prod p_s^(m_s):
        that of the weights m_s / b. Of w sites (Felsenstein) m is b w, a whole number
        (:attr:`LeftOut.grain`). Numbers of Stamatakis are known.
        """
        if self.ascertainment.correction is Correction.STAMATAKIS:
            return np.tile(np.array(self.ascertainment.counts), (len(logs), 1))
        p = exp(logs - logs.max(axis=1, keepdims=True))
        if self.ascertainment.correction is Correction.FELSENSTEIN:
            count = np.rint(heats * self.ascertainment.counts[0]).astype(np.int64)
        else:
            shape = heats * seen
            variable = self._variable(exp(logs))
            count = rng.negative_binomial(np.maximum(shape, _TINY), variable)
            count[shape <= 0.0] = 0
        by_state = rng.multinomial(count, p / p.sum(axis=1, keepdims=True))
        return np.asarray(by_state / np.where(heats > 0.0, heats, 1.0)[:, None])

    @staticmethod
    def _variable(p: Float64) -> Float64:
        """f64[n]: 1 - C, above 0 however short the tree is."""
        never: Float64 = np.maximum(1.0 - p.sum(axis=1), np.finfo(np.float64).tiny)
        return never


def ascertained_parts(groups: Sequence[Patterns]) -> list[AscertainedPart]:
    """The parts of all groups whose constant sites were left out, one group after the other."""
    ascertained, part, first = [], 0, 0
    for patterns in groups:
        states = len(patterns.alphabet.certain_codes)
        for unseen in patterns.unseen:
            begin, at = first + patterns.parts[unseen.part].start, first + unseen.first
            where = slice(begin, at), slice(at, at + states)
            ascertained.append(AscertainedPart(part + unseen.part, *where, unseen.ascertainment))
        part += len(patterns.parts)
        first += patterns.n_patterns
    return ascertained


class CorrectedScores(NamedTuple):
    """Corrected lnL of trees, and the number of sites that each expects to have been left out."""

    lnl: Float64
    """f64[n]: corrected lnL."""
    numbers: Float64
    """f64[n, U]: expected sites of each constant pattern."""
    surplus: Float64
    """f64[n]: corrected lnL minus the lnL with ``numbers`` as weights of the constant patterns."""

    def of(self, which: Index | slice) -> CorrectedScores:
        """The trees ``which``."""
        return CorrectedScores(*(rows[which] for rows in self))

    @classmethod
    def joined(cls, several: Sequence[CorrectedScores]) -> CorrectedScores:
        """Several sets of trees, one after the other."""
        return cls(*map(np.concatenate, zip(*several, strict=True)))


class LeftOut(Value):
    """All parts of an engine whose constant sites were left out."""

    parts: Sequence[AscertainedPart]

    @cached_property
    def columns(self) -> Index:
        """int[U]: the constant patterns."""
        columns: Index = np.concatenate([np.r_[part.unseen] for part in self.parts])
        return columns

    @property
    def grain(self) -> int:
        """Number that all of Felsenstein's numbers of sites are multiples of; 0 without any.

        Likelihoods to powers that are multiples of its inverse have whole numbers of sites.
        """
        known = [part.ascertainment for part in self.parts]
        numbers = [one.counts[0] for one in known if one.correction is Correction.FELSENSTEIN]
        return math.gcd(*map(round, numbers))

    @cached_property
    def _spans(self) -> list[slice]:
        """The constant patterns of each part, as slices of ``columns``."""
        ends = np.cumsum([0, *(part.states for part in self.parts)]).tolist()
        return [slice(first, end) for first, end in pairwise(ends)]

    def seen(self, rows: Weights) -> Float64:
        """f64[R, P]: sites of each part, under rows of weights f64[R, L]."""
        return np.stack(
            [rows[:, part.seen].sum(axis=1, dtype=np.float64) for part in self.parts], axis=1
        )

    def units(self, n_patterns: int) -> Float64:
        """f64[S, L]: rows of weights, row s that of each part's s-th constant pattern alone."""
        rows = np.zeros((max(part.states for part in self.parts), n_patterns))
        for part in self.parts:
            rows[np.arange(part.states), np.r_[part.unseen]] = 1.0
        return rows

    def corrections_of(self, seen: Float64, logs: Float64) -> Float64:
        """f64[n]: corrections of n trees on all parts, of f64[P] sites, with ln p f64[n, U]."""
        total = np.zeros(len(logs))
        for part, span, sites in zip(self.parts, self._spans, seen, strict=True):
            total += part.corrects(np.full(len(logs), sites), logs[:, span])
        return total

    def drawn(
        self, seen: Float64, heats: Float64, logs: Float64, rng: np.random.Generator
    ) -> Float64:
        """f64[n, U]: weights of all constant patterns (:meth:`AscertainedPart.drawn`)."""
        pairs = zip(self.parts, self._spans, seen.tolist(), strict=True)
        drawn = [part.drawn(sites, heats, logs[:, span], rng) for part, span, sites in pairs]
        return np.concatenate(drawn, axis=1)

    def program(self, rows: int, first_weights: int) -> Program:
        """Program that sums the site lnL of single constant patterns, from ``rows`` rows.

        first_weights  number of the first of :meth:`units` among the rows of weights
        """
        records = [
            (0, rows, first_weights, part.states, rows * span.start, part.part, 1)
            for part, span in zip(self.parts, self._spans, strict=True)
        ]
        return Program((Rell(np.array(records, RELL)),), 1)

    def logs(self, sums: Float64) -> Float64:
        """f64[n, U]: ln p, from the sums of :meth:`program`."""
        rows = sums.size // self.columns.size
        ends = [rows * span.stop for span in self._spans]
        logs = [block.reshape(rows, -1) for block in np.split(sums, ends[:-1])]
        return np.concatenate(logs, axis=1)

    def corrections(
        self, cases: Sequence[Case], seen: Float64, logs: Float64
    ) -> tuple[Float64, Float64, Float64]:
        """Corrections of n trees in their cases; 0 for parts that a case does not have.

        seen  f64[n, P]: sites of each part; ``logs`` f64[n, U]: ln p
        Returns the correction of each part's lnL, f64[n, P], the expected numbers, f64[n, U], and
        how far the corrected lnL is above the lnL with those numbers as weights, f64[n].
        """
        added, numbers, surplus = np.zeros_like(seen), np.zeros_like(logs), np.zeros(len(cases))
        for column, (part, span) in enumerate(zip(self.parts, self._spans, strict=True)):
            (has,) = np.nonzero(_places(cases, part) >= 0)
            inputs = seen[has, column], logs[has, span]
            added[has, column] = part.corrects(*inputs)
            numbers[has, span] = part.expected(*inputs)
            surplus[has] += added[has, column] - (numbers[has, span] * inputs[1]).sum(axis=1)
        return added, numbers, surplus

    def derivatives(
        self, case: Case, seen: Float64, known: CorrectedScores, units: Float64
    ) -> Float64:
        """f64[2, parts, E]: first and second derivatives of the corrections of a case's parts.

        seen   f64[P]: sites of each part
        units  f64[S, parts, 1 + 2E]: lnL under each of :meth:`units`, and both derivatives a branch
        """
        pairs = units[..., 1:].reshape(*units.shape[:2], -1, 2)
        added = np.zeros((2, *pairs.shape[1:3]))
        for part, span, sites in zip(self.parts, self._spans, seen.tolist(), strict=True):
            (place,) = _places([case], part)
            if place >= 0:
                slopes = pairs[: part.states, place]
                added[:, place] = part.derivatives(sites, known.numbers[0, span], slopes)
        return added

    def mark(self, curves: list[Curves], case: Case) -> None:
        """Mark the patterns that were left out in the curves of a case's parts."""
        for part in self.parts:
            (place,) = _places([case], part)
            if place >= 0:
                first = part.unseen.start - part.seen.start
                unseen = slice(first, first + part.states)
                curves[place] = curves[place]._replace(unseen=unseen, left_out=part)

    def corrected(self, lnls: Float64, cases: Sequence[Case], added: Float64) -> Float64:
        """f64[n, parts]: lnL of the cases' parts, with the corrections ``added`` f64[n, P]."""
        lnls = lnls.copy()
        for part, more in zip(self.parts, added.T, strict=True):
            places = _places(cases, part)
            (has,) = np.nonzero(places >= 0)
            lnls[has, places[has]] += more[has]
        return lnls


def _places(cases: Sequence[Case], part: AscertainedPart) -> Index:
    """int[n]: position of the part among those of each case; -1 where the case lacks it."""
    places = [part.part - case.first_part for case in cases]
    sizes = [len(case.models) for case in cases]
    return np.array(
        [place if 0 <= place < size else -1 for place, size in zip(places, sizes, strict=True)]
    )


class Shares(Value):
    """Each site's share of the corrections of n trees."""

    left_out: LeftOut
    of_site: Float64
    """f64[n, P]: share of one site of each part."""

    def sums(self, weights: Weights) -> Float64:
        """f64[n, R]: shares summed over the sites, for rows of weights f64[R, L]."""
        return product(self.of_site, self.left_out.seen(weights).T)

    def add_to(self, sites: Float64) -> None:
        """Correct site lnL f64[n, L] in place."""
        for part, share in zip(self.left_out.parts, self.of_site.T, strict=True):
            sites[:, part.seen] += share[:, None]


# Branch lengths by expectation and maximisation (Dempster, Laird, Rubin 1977, J. R. Stat. Soc. B
# 39:1-38): expected numbers of sites left out, then lengths under them.

MAX_TURNS = 60
"""Turns at most: expected numbers, then lengths under them."""

STRETCHES = (1.0, 1.5, 2.5, 5.0, 10.0)
"""Factors on the log of a turn's change of each length. Plain turns converge slowly where most
sites were left out (with 90 % of them each turn goes a tenth of the way); the best factor is taken,
and 1 is among them, so that no turn loses."""


def em_lengths(
    start: Sequence[Float64],
    known: CorrectedScores,
    raised: Callable[[Index, list[Float64], CorrectedScores], list[Float64]],
    corrected: Callable[[Index, list[Float64]], CorrectedScores],
    clip: Callable[[Float64], Float64],
    epsilon: float,
    turns: int = MAX_TURNS,
) -> tuple[list[Float64], CorrectedScores]:
    """Optimise the lengths f64[...] of n trees until no turn gains ``epsilon`` in lnL.

    known      corrected lnL of the trees at their starting lengths
    raised     better lengths of some trees, under the latest expected numbers
    corrected  corrected lnL of some trees at some lengths; a tree may occur several times
    clip       keeps lengths within their bounds
    Returns the best lengths and their corrected lnL.
    """
    best, known = list(start), CorrectedScores(*(rows.copy() for rows in known))
    moving = np.arange(len(best))
    for _ in range(turns):
        before = [clip(best[n]) for n in moving.tolist()]
        after = raised(moving, before, known.of(moving))
        tried = [
            clip(one * (other / one) ** stretch)
            for one, other in zip(before, after, strict=True)
            for stretch in STRETCHES
        ]
        scored = corrected(np.repeat(moving, len(STRETCHES)), tried)
        by_tree = scored.lnl.reshape(-1, len(STRETCHES))
        chosen = by_tree.argmax(axis=1) + len(STRETCHES) * np.arange(len(moving))
        gain = scored.lnl[chosen] - known.lnl[moving]
        better, chosen = moving[gain >= 0.0], chosen[gain >= 0.0]
        for n, k in zip(better.tolist(), chosen.tolist(), strict=True):
            best[n] = tried[k]
        for rows, fresh in zip(known, scored, strict=True):
            rows[better] = fresh[chosen]
        moving = moving[gain >= epsilon]
        if not moving.size:
            break
    return best, known
