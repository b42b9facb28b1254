"""Bootstrap replicates as rows of pattern weights, each from a random stream of its own.

Sites are drawn with replacement, from every part as many as it has, or that number scaled. Other
schemes draw whole parts, or some of the sites without replacement. A replicate depends on nothing
but the seed, the scheme, the name of the draws and its number.

The weights of a replicate are multinomial. For a long part they come from Poisson counts, at a
fifth of the time with 100,000 patterns: given their sum, such counts are multinomial. Their sum
mostly falls a little short, and the missing sites are drawn one by one; a surplus is removed at
random. Either way the distribution is exactly the multinomial.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mltree.data.patterns import Patterns
from mltree.program.engine import Weights
from mltree.system.arrays import Float64, Index
from mltree.system.errors import InputError
from mltree.system.process import parallel_map, prefetched, threads
from mltree.system.values import Value

# Poisson counts of many things at once, from tables: three nanoseconds each, NumPy's take 26.
#
# A table divides the probabilities from 0 to 1 into 2^16 equal shares and has the count of each.
# Where two counts meet within a share, a fraction of 53 bits decides between them.

SHARES = 1 << 16
"""Entries of a table: one for each value of a quarter of a word's bits."""

MOST_WORD = np.iinfo(np.uint64).max
"""Largest of the 64-bit words that a generator makes."""

UNTOLD = 255
"""Table entry of a share in which several counts meet."""

LARGEST_MEAN = 32.0
"""Largest mean with a table; its counts stay far below UNTOLD."""

LEAST_ALIKE = 100
"""Counts of one mean, over all rows drawn at a time, that are worth a table and a NumPy step of
their own; NumPy draws the others one by one."""


class _PoissonTable:
    """Table of the Poisson counts of one mean."""

    def __init__(self, mean: float) -> None:
        most = int(mean + 20.0 * np.sqrt(mean) + 20.0)  # more come with a chance of e^-80
        terms = np.cumprod(np.concatenate([[np.exp(-mean)], mean / np.arange(1, most)]))
        self.until = np.cumsum(terms)
        """f64[most]: probability of each count or fewer."""
        ends = np.floor(self.until * SHARES).astype(np.intp)
        counts = np.repeat(np.arange(most, dtype=np.uint8), np.diff(ends, prepend=0))
        self.counts = np.pad(counts, (0, SHARES - counts.size))
        self.counts[ends[ends < SHARES]] = UNTOLD


class PoissonCounts:
    """Draws Poisson counts, each with a mean of its own, often the same."""

    def __init__(self, means: Float64, rows: int = 1) -> None:
        """``means`` f64 [L], 0 or more; ``rows``: that are drawn at a time."""
        distinct, kind, alike = np.unique(means, return_inverse=True, return_counts=True)
        has_table = (rows * alike >= LEAST_ALIKE) & (distinct <= LARGEST_MEAN) & (distinct > 0.0)
        self._tables = [_PoissonTable(float(mean)) for mean in distinct[has_table]]
        self._ends = np.cumsum(alike[has_table])
        is_drawn = has_table[kind]
        count = int(is_drawn.sum())
        order = np.argsort(np.where(is_drawn, kind, distinct.size), kind="stable")[:count]
        self._place = np.full(means.size, count)  # behind what tables give: nothing
        self._place[order] = np.arange(count)
        self._others = np.flatnonzero(~is_drawn & (means > 0.0))
        self._means = means[self._others]

    def draw(self, rngs: Sequence[np.random.Generator], out: NDArray[Any]) -> None:
        """Put counts into ``out`` [R, L], equally many rows from each generator.

        The counts of a generator do not depend on the others. A few NumPy steps make all rows,
        since threads that draw wait for Python's lock at each step.
        """
        n_drawn = self._ends[-1] if self._tables else 0
        words = np.empty((len(out), -(-(n_drawn + 1) // 4)), np.uint64)
        for rows, rng in zip(np.split(words, len(rngs)), rngs, strict=True):
            rows[:] = rng.integers(MOST_WORD, size=rows.shape, dtype=np.uint64, endpoint=True)
        shares = words.astype("<u8", copy=False).view("<u2")
        drawn = np.zeros((len(out), n_drawn + 1), np.uint8)
        first = 0
        for table, end in zip(self._tables, self._ends.tolist(), strict=True):
            table.counts.take(shares[:, first:end], out=drawn[:, first:end], mode="clip")
            first = end
        self._tell_apart(drawn, shares, rngs)
        out[:] = drawn.take(self._place, axis=1)
        if self._others.size:
            for rows, rng in zip(np.split(out, len(rngs)), rngs, strict=True):
                rows[:, self._others] = rng.poisson(self._means, size=(len(rows), self._means.size))

    def _tell_apart(
        self, drawn: NDArray[np.uint8], shares: NDArray[Any], rngs: Sequence[np.random.Generator]
    ) -> None:
        """Decide the counts where several meet in a share."""
        row, place = np.divmod(np.flatnonzero(drawn == UNTOLD), drawn.shape[1])
        counts = np.bincount(row * len(rngs) // len(drawn), minlength=len(rngs)).tolist()
        fraction = [rng.random(count) for rng, count in zip(rngs, counts, strict=True)]
        chance = (shares[row, place] + np.concatenate(fraction)) / SHARES
        kind = self._ends.searchsorted(place, side="right")
        for n in np.flatnonzero(np.bincount(kind)):
            members = kind == n
            until = self._tables[n].until
            drawn[row[members], place[members]] = until.searchsorted(chance[members], side="right")


STREAM = 210306068529402873165736369884012333109
"""Numbers between the starts of two replicates' streams: NumPy's jump, 2^128 over the golden ratio.
Streams a power of two apart are not independent: at 2^64 the mean weights were 1 % off."""

BATCH_BYTES = 1 << 21
"""Bytes of the rows drawn at a time, while a device has four times as many of the last. Tests of 60
trees x 5,000 sites took 265 MB in batches of 2^23, 203 in these; in batches of 2^27 new pages took
longer than the draws."""

LEAST_ROWS, MOST_BYTES = 32, 1 << 27
"""Rows of a batch for each CPU that draws, and bytes of a batch, where rows are long: a product of
fewer reads those of trees more often than it must (64 trees x 66,458 patterns on one core:
1.12 ms a row in batches of 10, 0.80 of 32)."""

SHARE = 1 << 20
"""Sites worth a share of their own: some milliseconds' work."""

BLOCK = 128
"""Replicates of a block at most."""

PATTERNS, SITES = 1 << 20, 1 << 16
"""Patterns drawn at a time by counts, and sites drawn at a time one by one: in longer NumPy steps
threads wait less for Python's lock. 26,024 patterns by 4 of 16 CPUs, us a row in blocks of 2^18 /
2^19 / 2^20: 129 / 83 / 60. Tests of 46 trees x 5,000 sites on two CPUs by 2^15 / 2^16 / 2^17 sites:
6.0 / 5.1 / 4.9 s, 188 / 192 / 223 MB."""

DRAWERS = 4
"""Threads that draw at once: 4 / 6 / 8 took 60 / 64 / 78 us a row."""

APART = 1 << 16
"""Patterns or sites drawn at a time from which on threads pay: with fewer they wait longer than
they draw. Two threads, us a row for those of one: 20 rows x 26,024 patterns 121 for 205, 1 row x
26,024 418 for 252, 1 row x 94,000 365 for 346."""

MANY, MANY_IN_BLOCKS = 1 << 14, 1 << 8
"""Sites of a replicate from which on Poisson counts are cheaper, us a row: 16,384 patterns 105 for
143 one by one; in blocks 250 / 1,000 / 5,000 sites 1.6 / 4.1 / 36 for 2.7 / 7.4 / 50."""

RESERVE = 4.0
"""Standard deviations by which the expected sum of Poisson counts is below the sites of a part."""

OFTEN = 1 << 15
"""Sites of a pattern up to which 16 bits hold the drawn number: twice as many come with a
probability of e^-12,000 (Poisson), at 1.4 times the sites of the data e^-3,700."""

NONE = np.empty(0, np.intp)


DELETED = 0.5
"""Share of sites that a jackknife deletes: IQ-TREE's, and Felsenstein's (1985), half of them."""


class SamplingScheme(Value):
    """How the sites of a replicate are drawn."""

    genes: bool = False
    """True if parts are drawn with replacement, as many as there are (Gadagkar et al. 2005)."""
    sites: bool = True
    """True if sites are drawn with replacement, within each of those parts."""
    kept: float | None = None
    """Share of the sites of every part that a jackknife keeps, without replacement."""

    @classmethod
    def of(cls, text: str) -> SamplingScheme:
        """The scheme with a name: sites, genes, genes-sites, jackknife or jackknife{0.5}.

        The number is the share of sites that a jackknife deletes. IQ-TREE's GENE and GENESITE are
        known too.

        Raises: InputError: there is no such scheme.
        """
        schemes = {"sites": cls(), "genes": cls(True, False), "genes-sites": cls(True, True)}
        word = {"gene": "genes", "genesite": "genes-sites"}.get(text.strip().lower(), text)
        word = word.strip().lower()
        if word in schemes:
            return schemes[word]
        match = re.fullmatch(r"jackknife(?:\{(0?\.[0-9]+)\})?", word)
        deleted = float(match[1] or DELETED) if match else 0.0
        if not deleted:
            hint = f"known: {', '.join(schemes)}, jackknife and jackknife{{0.4}}"
            raise InputError(f"--sampling {text}: no such scheme", hint=hint)
        return cls(False, False, 1.0 - deleted)

    @property
    def is_usual(self) -> bool:
        """True for the bootstrap of sites."""
        return self == USUAL


USUAL = SamplingScheme()
"""The bootstrap of Felsenstein (1985)."""


class Resampling:
    """Draws the bootstrap replicates of one alignment."""

    def __init__(
        self,
        weights: Float64,
        parts: Sequence[slice],
        seed: int,
        name: str,
        scale: float = 1.0,
        in_blocks: bool = False,
        scheme: SamplingScheme = USUAL,
    ) -> None:
        """Get ready to draw.

        weights    f64 [L]: sites of each pattern, whole numbers
        parts      the patterns of each part
        name       name of the draws; draws of different names are independent
        scale      sites of a replicate, relative to the data
        in_blocks  let a block of consecutive replicates share a stream: less work if all of them
                   are used, more if only a few are
        scheme     how sites are drawn
        """
        self._weights, self._n_patterns, self._scheme = weights, weights.size, scheme
        is_small = weights.max(initial=0.0) <= OFTEN and not scheme.genes
        self._kind = np.uint16 if is_small else np.uint32
        self._parts = tuple(parts)
        self._sites = [
            np.repeat(np.arange(part.start, part.stop), weights[part].astype(np.intp))
            for part in parts
        ]
        self._sizes = [round(scale * sites.size) for sites in self._sites]
        means, many = np.zeros(weights.size), MANY_IN_BLOCKS if in_blocks else MANY
        for part, sites, size in zip(self._parts, self._sites, self._sizes, strict=True):
            if size >= many and scheme.is_usual:
                means[part] = weights[part] * ((size - RESERVE * np.sqrt(size)) / sites.size)
        by_counts = weights.size if means.any() else 0
        one_by_one = sum(size for size in self._sizes if size < many)
        self._row = max(by_counts, one_by_one)
        self._at_once = min(PATTERNS // max(1, by_counts), SITES // max(1, one_by_one))
        self._block = max(1, min(BLOCK, self._at_once)) if in_blocks else 1
        self._counts = PoissonCounts(means, self._block) if means.any() else None
        self._seeds = np.random.SeedSequence([seed, *name.encode()])

    @classmethod
    def of(
        cls, groups: Sequence[Patterns], seed: int, name: str, scheme: SamplingScheme = USUAL
    ) -> Resampling:
        """Resampling of the patterns of all data types, one after the other."""
        parts, first = [], 0
        for patterns in groups:
            parts += [slice(first + part.start, first + part.stop) for part in patterns.parts]
            first += patterns.n_patterns
        weights = np.concatenate([patterns.weights for patterns in groups])
        return cls(weights, parts, seed, name, scheme=scheme)

    def batches(self, replicates: int) -> Iterator[Weights]:
        """Replicates 0 .. replicates - 1, in batches [R, L]; the next is drawn while one is used.

        A batch reuses the memory of the one three before it.
        """
        row = self._kind().itemsize * self._n_patterns
        least = LEAST_ROWS * threads().number
        step = max(1, BATCH_BYTES // row, min(least, MOST_BYTES // row))
        step = -(-step // self._block) * self._block
        room = np.empty((3, min(step, replicates), self._n_patterns), self._kind)

        def draw(first: int) -> Weights:
            rows: Weights = room[first // step % 3][: replicates - first]
            self._fill(rows, first)
            return rows

        return prefetched(draw, range(0, replicates, step))

    def rows(self, replicates: range) -> Float64:
        """Weights of a range of replicates, f64 [R, L]."""
        rows = np.empty((len(replicates), self._n_patterns))
        self._fill(rows, replicates.start)
        return rows

    def below_data(self, replicates: int) -> Weights:
        """Weights [1 + R, L] of the data, then of replicates 1 to R.

        A thousand rows of a million patterns would be 8 GB as fp64.
        """
        rows = np.empty((1 + replicates, self._n_patterns), self._kind)
        rows[0] = self._weights
        self._fill(rows[1:], 1)
        return rows

    def most_patterns(self, replicates: Iterable[int]) -> list[int]:
        """Largest number of distinct patterns in any of these replicates, for each part."""
        most = np.zeros(len(self._parts), np.intp)
        for number in replicates:
            (row,) = self.rows(range(number, number + 1))
            distinct = [np.count_nonzero(row[part]) for part in self._parts]
            most = np.maximum(most, distinct)
        return [int(count) for count in most]

    def _fill(self, rows: NDArray[Any], first: int) -> None:
        """Put the weights of replicate ``first`` and those behind it into rows [R, L]."""
        size = self._block
        blocks = range(first // size, -(-(first + len(rows)) // size))
        sites = len(rows) * sum(self._sizes)
        shares = np.array_split(blocks, max(1, min(len(blocks), sites // SHARE)))
        step = 1 if self._counts is None else max(1, self._at_once // size)

        def fill(share: Index) -> None:
            bits = [np.random.PCG64DXSM(self._seeds) for _ in range(min(step, share.size))]
            rngs, start = [np.random.Generator(generator) for generator in bits], bits[0].state
            for block in range(0, share.size, len(bits)):
                some = share[block : block + len(bits)].tolist()
                for generator, number in zip(bits, some, strict=False):
                    generator.state = start
                    generator.advance(number * STREAM)
                begin, end = size * some[0] - first, size * (some[-1] + 1) - first
                if begin >= 0 and end <= len(rows):
                    self._draw(rngs[: len(some)], rows[begin:end])
                    continue
                drawn = np.empty((end - begin, self._n_patterns), rows.dtype)
                self._draw(rngs[: len(some)], drawn)
                overlap = slice(max(begin, 0), min(end, len(rows)))
                rows[overlap] = drawn[overlap.start - begin : overlap.stop - begin]

        is_worth_it = step * size * self._row >= APART
        parallel_map(fill, shares, min(threads().number, DRAWERS) if is_worth_it else 1)

    def _draw(self, rngs: Sequence[np.random.Generator], rows: NDArray[Any]) -> None:
        """Draw as many rows [R, L] from each generator."""
        if not self._scheme.is_usual:
            for block, rng in zip(np.split(rows, len(rngs)), rngs, strict=True):
                for row in block:
                    row[:] = self._drawn_otherwise(rng)
            return
        if self._counts is None:
            for block, rng in zip(np.split(rows, len(rngs)), rngs, strict=True):
                drawn = self._drawn(rng, [np.full(len(block), size) for size in self._sizes])
                block[:] = np.bincount(drawn, minlength=block.size).reshape(block.shape)
            return
        self._counts.draw(rngs, rows)
        sums = np.stack([rows[:, part].sum(axis=1, dtype=np.int64) for part in self._parts])
        lacking = np.split(np.array(self._sizes)[:, None] - sums, len(rngs), axis=1)
        for block, some, rng in zip(np.split(rows, len(rngs)), lacking, rngs, strict=True):
            for row, n in zip(*np.nonzero(some.T < 0), strict=True):
                _thin(block[row, self._parts[n]], -int(some[n, row]), rng)
            more = self._drawn(rng, np.maximum(some, 0))
            np.add.at(block.reshape(-1), more, rows.dtype.type(1))

    def _drawn_otherwise(self, rng: np.random.Generator) -> Index:
        """Weights [L] of a replicate of genes, or of a jackknife."""
        scheme, parts = self._scheme, range(len(self._parts))
        if scheme.kept is not None:
            row = np.zeros(self._n_patterns, np.intp)
            for part, size in zip(self._parts, self._sizes, strict=True):
                whole = self._weights[part].astype(np.int64)
                number = max(1, round(scheme.kept * size))
                row[part] = rng.multivariate_hypergeometric(whole, number, method="marginals")
            return row
        times = np.bincount(rng.integers(len(parts), size=len(parts)), minlength=len(parts))
        if scheme.sites:
            sizes = [np.array([count * self._sizes[n]]) for n, count in enumerate(times)]
            return np.bincount(self._drawn(rng, sizes), minlength=self._n_patterns)
        lengths = [part.stop - part.start for part in self._parts]
        return self._weights.astype(np.intp) * np.repeat(times, lengths)

    def _drawn(self, rng: np.random.Generator, sizes: Sequence[Index] | Index) -> Index:
        """Patterns of ``sizes`` sites, [R] for each part; those of row r are offset by r L."""
        drawn = [NONE]
        for sites, counts in zip(self._sites, sizes, strict=True):
            if (total := int(counts.sum())) > 0:
                patterns = sites.take(rng.integers(sites.size, size=total))
                if len(counts) > 1:
                    patterns += np.repeat(self._n_patterns * np.arange(len(counts)), counts)
                drawn.append(patterns)
        return drawn[1] if len(drawn) == 2 else np.concatenate(drawn)


def _thin(counts: NDArray[Any], surplus: int, rng: np.random.Generator) -> None:
    """Remove ``surplus`` of the drawn sites, all with the same probability."""
    ends = np.cumsum(counts)
    taken = rng.choice(int(ends[-1]), surplus, replace=False)
    np.subtract.at(counts, ends.searchsorted(taken, side="right"), counts.dtype.type(1))


def share_error(share: Float64, replicates: int) -> Float64:
    """Standard error of a share of ``replicates``."""
    return np.sqrt(share * (1.0 - share) / max(replicates, 1))
