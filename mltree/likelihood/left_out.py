"""What sites that were left out, because nothing changes there, make of a likelihood (+ASC).

With W sites seen, p_s the probability of the constant pattern of state s, C their sum:

    Lewis         lnL - W ln(1 - C)
    Felsenstein   lnL + w ln C           w sites left out
    Stamatakis    lnL + sum_s w_s ln p_s   w_s sites of state s left out

(Lewis 2001; Leaché et al. 2015, eqs. 4-6.) Of each state s this expects, of sites left out,

    n_s = W p_s / (1 - C)   or   w p_s / C   or   w_s

Every site seen bears the same share of the correction of its part, Lewis' - ln(1 - C) or the
others' constant over W. So site lnL sum to the lnL, and resampled ones (RELL) to that of a sample
of the sites: of W sites it has the whole correction, of a multiple of W (the AU test) as many times
as much, as if sites that nobody saw had been sampled along.

Letters: n trees, P parts whose constant sites were left out, U their constant patterns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import pairwise

import numpy as np

from mltree.data.patterns import Ascertainment, Correction, Patterns
from mltree.models.portable import exp, log, product
from mltree.models.rate_profiles import Curves
from mltree.program.cases import Case
from mltree.program.engine import Weights
from mltree.program.ops.rell import RELL, Rell
from mltree.program.program import Program
from mltree.system.arrays import Float64, Index
from mltree.system.values import Value


class Conditioned(Value):
    """A part whose constant sites were left out."""

    part: int
    """Of the engine."""
    seen: slice
    """Its patterns."""
    unseen: slice
    """Its constant ones, of weight 0: one for each of its alphabet's `certain_codes`."""
    ascertainment: Ascertainment

    @property
    def states(self) -> int:
        """S, or fewer where characters do not tell all states apart (of phased genotypes)."""
        return int(self.unseen.stop - self.unseen.start)

    def expected(self, seen: Float64, logs: Float64) -> Float64:
        """f64[n, S]: how many sites of each were left out, by the logs f64[n, S] of p.

        seen  f64[n]: W, of each tree
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
            numbers = seen[:, None] * p / self._never(p)[:, None]
        return numbers

    def corrects(self, seen: Float64, logs: Float64) -> Float64:
        """f64[n]: what is added to the lnL of ``seen`` f64[n] sites."""
        about = self.ascertainment
        added: Float64
        if about.correction is Correction.STAMATAKIS:
            added = (np.array(about.counts) * logs).sum(axis=1)
        elif about.correction is Correction.FELSENSTEIN:
            most = logs.max(axis=1)
            added = about.counts[0] * (most + log(exp(logs - most[:, None]).sum(axis=1)))
        else:
            added = -seen * log(self._never(exp(logs)))
        return added

    def bends(self, seen: float) -> tuple[float, float]:
        """How the second derivative of what is added is made.

        Shares in it of Σ n_u (ln p_u)'² and of (Σ n_u (ln p_u)')², beside Σ n_u (ln p_u)''.
        """
        if self.ascertainment.correction is Correction.STAMATAKIS:
            return 0.0, 0.0
        is_lewis = self.ascertainment.correction is Correction.LEWIS
        return 1.0, 1.0 / (seen if is_lewis else -self.ascertainment.counts[0])

    def derivatives(self, seen: float, numbers: Float64, units: Float64) -> Float64:
        """f64[2, E]: both derivatives of what is added, of the expected ``numbers`` f64[S].

        units  f64[S, E, 2]: both of every ln p
        """
        slopes, curves = np.moveaxis(units, -1, 0)
        each, together = self.bends(seen)
        slope = product(numbers[None], slopes)[0]
        curve = product(numbers[None], curves + each * slopes**2)[0] + together * slope**2
        return np.stack([slope, curve])

    @staticmethod
    def _never(p: Float64) -> Float64:
        """f64[n]: 1 - C, however short the tree is."""
        never: Float64 = np.maximum(1.0 - p.sum(axis=1), np.finfo(np.float64).tiny)
        return never


def conditioned_parts(groups: Sequence[Patterns]) -> list[Conditioned]:
    """The parts of all groups, one after the other, whose constant sites were left out."""
    found, part, first = [], 0, 0
    for patterns in groups:
        states = len(patterns.alphabet.certain_codes)
        for own in patterns.unseen:
            begin, at = first + patterns.parts[own.part].start, first + own.first
            where = slice(begin, at), slice(at, at + states)
            found.append(Conditioned(part + own.part, *where, own.ascertainment))
        part += len(patterns.parts)
        first += patterns.n_patterns
    return found


class Corrected(Value):
    """Trees' lnL, and how many sites they expect to have been left out."""

    lnl: Float64
    """f64[n], corrected."""
    numbers: Float64
    """f64[n, U]: sites of each constant pattern."""
    above: Float64
    """f64[n]: how far it is above the lnL of as many sites as that."""

    def of(self, which: Index | slice) -> Corrected:
        """Some of the trees."""
        return Corrected(self.lnl[which], self.numbers[which], self.above[which])

    @classmethod
    def joined(cls, several: Sequence[Corrected]) -> Corrected:
        """One after the other."""
        rows = zip(*((own.lnl, own.numbers, own.above) for own in several), strict=True)
        return cls(*map(np.concatenate, rows))


class LeftOut(Value):
    """All parts of an engine whose constant sites were left out."""

    parts: Sequence[Conditioned]

    @cached_property
    def columns(self) -> Index:
        """int[U]: the constant patterns."""
        columns: Index = np.concatenate([np.r_[part.unseen] for part in self.parts])
        return columns

    @cached_property
    def _spans(self) -> list[slice]:
        """Of each part, among those."""
        ends = np.cumsum([0, *(part.states for part in self.parts)]).tolist()
        return [slice(first, end) for first, end in pairwise(ends)]

    def seen(self, rows: Weights) -> Float64:
        """f64[R, P]: sites of each part, in rows of weights f64[R, L]."""
        return np.stack(
            [rows[:, part.seen].sum(axis=1, dtype=np.float64) for part in self.parts], axis=1
        )

    def units(self, n_patterns: int) -> Float64:
        """f64[S, L]: rows of weights under which a part's lnL is that of its s-th pattern."""
        rows = np.zeros((max(part.states for part in self.parts), n_patterns))
        for part in self.parts:
            rows[np.arange(part.states), np.r_[part.unseen]] = 1.0
        return rows

    def program(self, rows: int, first_weights: int) -> Program:
        """Sums site lnL of constant patterns alone, from ``rows`` rows, by :meth:`units`.

        first_weights  where those stand among the rows of weights
        """
        records = [
            (0, rows, first_weights, part.states, rows * span.start, part.part, 1)
            for part, span in zip(self.parts, self._spans, strict=True)
        ]
        return Program((Rell(np.array(records, RELL)),), 1)

    def logs(self, sums: Float64) -> Float64:
        """f64[n, U]: ln p, of what such a program has summed."""
        rows = sums.size // self.columns.size
        ends = [rows * span.stop for span in self._spans]
        logs = [block.reshape(rows, -1) for block in np.split(sums, ends[:-1])]
        return np.concatenate(logs, axis=1)

    def corrections(
        self, cases: Sequence[Case], seen: Float64, logs: Float64
    ) -> tuple[Float64, Float64, Float64]:
        """Of n trees in these cases; parts that a case is not on add nothing.

        seen  f64[n, P]: sites of each part; ``logs`` f64[n, U]: ln p
        Returns what is added to the lnL of each part, f64[n, P], the numbers expected, f64[n, U],
        and how far that is above the lnL of so many sites, f64[n].
        """
        added, numbers, above = np.zeros_like(seen), np.zeros_like(logs), np.zeros(len(cases))
        for column, (part, span) in enumerate(zip(self.parts, self._spans, strict=True)):
            (has,) = np.nonzero(_places(cases, part) >= 0)
            own = seen[has, column], logs[has, span]
            added[has, column] = part.corrects(*own)
            numbers[has, span] = part.expected(*own)
            above[has] += added[has, column] - (numbers[has, span] * own[1]).sum(axis=1)
        return added, numbers, above

    def derivatives(self, case: Case, seen: Float64, known: Corrected, units: Float64) -> Float64:
        """f64[2, parts, E]: both derivatives of what is added to the parts of a case.

        seen  f64[P]: sites of each part
        units  f64[S, parts, 1 + 2E]: under each of :meth:`units` lnL, and both of each branch
        """
        pairs = units[..., 1:].reshape(*units.shape[:2], -1, 2)
        added = np.zeros((2, *pairs.shape[1:3]))
        for part, span, sites in zip(self.parts, self._spans, seen.tolist(), strict=True):
            (place,) = _places([case], part)
            if place >= 0:
                own = pairs[: part.states, place]
                added[:, place] = part.derivatives(sites, known.numbers[0, span], own)
        return added

    def tell(self, curves: list[Curves], case: Case) -> None:
        """Of the parts of a case: which patterns were left out, and how they count."""
        for part in self.parts:
            (place,) = _places([case], part)
            if place >= 0:
                first = part.unseen.start - part.seen.start
                unseen = slice(first, first + part.states)
                curves[place] = curves[place]._replace(unseen=unseen, left_out=part)

    def corrected(self, lnls: Float64, cases: Sequence[Case], added: Float64) -> Float64:
        """f64[n, parts]: the lnL of all parts of the cases, and f64[n, P] what is added to some."""
        lnls = lnls.copy()
        for part, more in zip(self.parts, added.T, strict=True):
            places = _places(cases, part)
            (has,) = np.nonzero(places >= 0)
            lnls[has, places[has]] += more[has]
        return lnls


def _places(cases: Sequence[Case], part: Conditioned) -> Index:
    """int[n]: where the part is among those of each case; -1 where it is not."""
    places = [part.part - case.first_part for case in cases]
    sizes = [len(case.models) for case in cases]
    return np.array(
        [place if 0 <= place < size else -1 for place, size in zip(places, sizes, strict=True)]
    )


class Shares(Value):
    """What every site bears of the corrections of n trees."""

    left_out: LeftOut
    of_site: Float64
    """f64[n, P]: of each part."""

    def sums(self, weights: Weights) -> Float64:
        """f64[n, R]: of the sites of each of f64[R, L] rows of weights."""
        return product(self.of_site, self.left_out.seen(weights).T)

    def add_to(self, sites: Float64) -> None:
        """Correct site lnL f64[n, L]."""
        for part, share in zip(self.left_out.parts, self.of_site.T, strict=True):
            sites[:, part.seen] += share[:, None]


# Lengths optimised where sites were left out: by turns, with the numbers of those last expected.
#
# Expectation and maximisation (Dempster, Laird, Rubin 1977, J. R. Stat. Soc. B 39:1-38): see
# :mod:`mltree.likelihood.ascertainment`.

MAX_TURNS = 60
"""Turns at most: expected numbers, then lengths under them."""

STRETCHES = (1.0, 1.5, 2.5, 5.0, 10.0)
"""Factors on the log of what a turn did to each length. Turns alone converge slowly where most
sites were left out (90 % of them: a tenth of the way each); the best factor is taken, and 1 is
among them, so that no turn loses."""


def in_turns(
    start: Sequence[Float64],
    known: Corrected,
    raised: Callable[[Index, list[Float64], Corrected], list[Float64]],
    corrected: Callable[[Index, list[Float64]], Corrected],
    clip: Callable[[Float64], Float64],
    epsilon: float,
    turns: int = MAX_TURNS,
) -> tuple[list[Float64], Corrected]:
    """The lengths of n trees, f64[...] each, and their lnL, once no turn gains ``epsilon``.

    known      of the trees as they start
    raised     better lengths of some of them, under the numbers of the latest
    corrected  what their lnL is; a tree may be asked for with several lengths
    clip       keeps lengths within their bounds
    """
    best, lnl = list(start), known.lnl.copy()
    numbers, above = known.numbers.copy(), known.above.copy()
    moving = np.arange(len(best))
    for _ in range(turns):
        before = [clip(best[n]) for n in moving.tolist()]
        after = raised(moving, before, Corrected(lnl, numbers, above).of(moving))
        tried = [
            clip(one * (other / one) ** far)
            for one, other in zip(before, after, strict=True)
            for far in STRETCHES
        ]
        found = corrected(np.repeat(moving, len(STRETCHES)), tried)
        by_tree = found.lnl.reshape(-1, len(STRETCHES))
        chosen = by_tree.argmax(axis=1) + len(STRETCHES) * np.arange(len(moving))
        gain = found.lnl[chosen] - lnl[moving]
        better, chosen = moving[gain >= 0.0], chosen[gain >= 0.0]
        for n, k in zip(better.tolist(), chosen.tolist(), strict=True):
            best[n] = tried[k]
        lnl[better], numbers[better] = found.lnl[chosen], found.numbers[chosen]
        above[better] = found.above[chosen]
        moving = moving[gain >= epsilon]
        if not moving.size:
            break
    return best, Corrected(lnl, numbers, above)
