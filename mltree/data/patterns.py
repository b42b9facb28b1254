"""Site patterns: the distinct columns of an alignment, with how often each occurs.

Taxa are sorted by name and patterns lexicographically by their codes, so that neither the order
of taxa nor the order of sites in the file can change any result.

Columns are packed big-endian into 64-bit words (16 taxa each where codes fit four bits, else 8)
and sorted word by word: an integer sort, no comparison of byte strings. 100 taxa x 1 M sites take
less than a second, and as many characters in 1,000 parts no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mltree.data.alignments import Alignment
from mltree.data.alphabet import Alphabet
from mltree.data.source import read_text
from mltree.system.arrays import Bool, Float64, Index, Int32, Int64, UInt8, UInt64
from mltree.system.errors import InputError
from mltree.system.process import map_blocks
from mltree.system.values import Value, Word, decimal, whole

# Ascertainment: the likelihood of characters that were collected because they vary is corrected by
# the probabilities of the constant patterns left out, one for each state or letter of genotypes
# (:mod:`mltree.likelihood.ascertainment`). Those patterns stand behind the others of their part,
# with weight 0, so that no site count sees them.

MOST_SITES = 10
"""Constant sites that an error names."""


class Correction(Word):
    """Knowledge about sites that were left out; names are RAxML-NG's."""

    LEWIS = "LEWIS"
    """Sites left out were constant (Lewis 2001, Syst. Biol. 50:913-925)."""
    FELSENSTEIN = "FELS"
    """Their number is known (Felsenstein, in Leaché et al. 2015, Syst. Biol. 64:1032-1047)."""
    STAMATAKIS = "STAM"
    """The number for each state is known (Stamatakis, in Leaché et al. 2015)."""


class Ascertainment(Value):
    """Correction for constant sites that were left out of the data."""

    correction: Correction
    counts: tuple[float, ...] = ()
    """Sites: none, one number, or one for each state."""

    @property
    def text(self) -> str:
        """The term of a model: ``+ASC_FELS{1000}``."""
        counts = "/".join(f"{count:g}" for count in self.counts)
        return f"+ASC_{self.correction}" + (f"{{{counts}}}" if counts else "")


class Unseen(Value):
    """Place of a part's constant patterns, one for each of its alphabet's `certain_codes`."""

    part: int
    first: int
    """The first of them; the part ends with the last."""
    ascertainment: Ascertainment


def constant_sites(patterns: Patterns) -> Index:
    """The sites, from 0, at which all taxa may have one and the same state."""
    masks = patterns.alphabet.state_masks
    common = np.bitwise_and.reduce(masks[patterns.codes], axis=0)
    return np.flatnonzero((common != 0)[patterns.site_pattern])


def refuse_constant(sites: NDArray[np.integer], path: str, part: str = "") -> None:
    """Check that no site, from 0, is constant where constant sites were left out.

    Raises: InputError naming them.
    """
    if not sites.size:
        return
    sample = ", ".join(f"{site + 1:,}" for site in sites[:MOST_SITES].tolist())
    more = f" and {sites.size - MOST_SITES:,} more" if sites.size > MOST_SITES else ""
    which = f"{sites.size:,} sites are" if sites.size > 1 else "1 site is"
    where = f"part {part}: " if part else ""
    problem = f"+ASC is for data without constant sites, but {which} (or may be)"
    raise InputError(
        f"{where}{problem}: {sample}{more}", file=path, hint="remove them, or leave out +ASC"
    )


def with_unseen(patterns: Patterns, of_parts: Sequence[Ascertainment | None]) -> Patterns:
    """The patterns with constant ones behind each part that has an ascertainment."""
    states = patterns.alphabet.certain_codes
    constant = np.tile(states, (patterns.n_tips, 1))
    codes, weights, ends = [], [], []
    unseen: list[Unseen] = []
    shift = np.zeros(patterns.n_patterns, np.int32)
    for number, (where, ascertainment) in enumerate(zip(patterns.parts, of_parts, strict=True)):
        codes.append(patterns.codes[:, where])
        weights.append(patterns.weights[where])
        shift[where] = len(unseen) * len(states)
        if ascertainment is not None:
            first = where.stop + len(unseen) * len(states)
            unseen.append(Unseen(number, first, ascertainment))
            codes.append(constant)
            weights.append(np.zeros(len(states)))
        ends.append(where.stop + len(unseen) * len(states))
    return replace(
        patterns,
        codes=np.concatenate(codes, axis=1),
        weights=np.concatenate(weights),
        site_pattern=patterns.site_pattern + shift[patterns.site_pattern],
        ends=tuple(ends) if patterns.ends else (),
        unseen=tuple(unseen),
    )


_CHUNK = 1 << 16
"""Codes that are counted in one step: quick for many short parts, little memory for one."""


class Patterns(Value, eq=False):
    """The compressed alignment. Letters: T tips, L patterns.

    Tip i of every tree is ``taxa[i]``.
    """

    taxa: tuple[str, ...]
    """Names of the T taxa, sorted."""
    codes: UInt8
    """u8 [T, L]: columns distinct and in lexicographic order."""
    weights: Float64
    """f64 [L]: number of sites that show each pattern."""
    site_pattern: Int32
    """i32 [sites]: the pattern of each site, sites in the order of the file; of parts, those of one
    part after those of the other, each in the order of its runs."""
    alphabet: Alphabet
    ends: tuple[int, ...] = ()
    """End of each part in the patterns; () with one part. A part is a partition of the alignment,
    or a locus, whose patterns are distinct and sorted among themselves; a locus has rows of gaps
    behind those of its taxa."""
    unseen: tuple[Unseen, ...] = ()
    """Patterns of the constant sites left out, for parts with an ascertainment."""
    systems: SiteSystems | None = None
    """Eigen systems of patterns with state frequencies of their own (PMSF); equal columns with
    other frequencies are other patterns."""

    @cached_property
    def parts(self) -> tuple[slice, ...]:
        """The slice of each part's patterns."""
        ends = self.ends or (self.n_patterns,)
        return tuple(slice(first, end) for first, end in pairwise((0, *ends)))

    def take(self, which: Int64) -> Patterns:
        """Some of the patterns, i64 [n] rising, still in their parts; a part may become empty."""
        ends = tuple(np.searchsorted(which, self.ends).tolist())
        return replace(
            self,
            codes=self.codes[:, which],
            weights=self.weights[which],
            ends=ends,
            systems=self.systems and self.systems.take(which),
        )

    def put(self, first: int, others: Patterns) -> None:
        """Overwrite patterns from ``first`` on in place; callers know all that share the arrays."""
        where = slice(first, first + others.n_patterns)
        self.codes[:, where] = others.codes
        self.weights[where] = others.weights
        if self.systems is not None and others.systems is not None:
            self.systems.put(where, others.systems)

    def grouped(self, category: Int64, count: int) -> tuple[Patterns, Index]:
        """The patterns of each part by category, 0 .. ``count`` - 1, each a part; and their order.

        A category without patterns is a part without.
        """
        sizes = [span.stop - span.start for span in self.parts]
        group = count * np.repeat(np.arange(len(sizes)), sizes) + category
        order = np.argsort(group, kind="stable")
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        ends = np.cumsum(np.bincount(group, minlength=count * len(self.parts)))
        return replace(
            self,
            codes=np.take(self.codes, order, axis=1),
            weights=self.weights[order],
            site_pattern=place[self.site_pattern].astype(np.int32),
            ends=tuple(ends.tolist()),
            systems=self.systems and self.systems.take(order),
        ), order

    @property
    def n_tips(self) -> int:
        """Number of tips, T."""
        return len(self.codes)

    @property
    def n_patterns(self) -> int:
        """Number of patterns, L."""
        return len(self.weights)

    @property
    def n_sites(self) -> int:
        """Number of sites in the file."""
        return len(self.site_pattern)

    def expand(self) -> UInt8:
        """u8 [T, sites]: the codes of the whole alignment again, taxa sorted."""
        return np.take(self.codes, self.site_pattern, axis=1)

    def code_counts(self) -> Float64:
        """f64 [C]: number of characters of the alignment with each code."""
        return self._code_counts.copy()

    @cached_property
    def _code_counts(self) -> Float64:
        """Counts of codes, cached: 9 million characters take 40 ms, and model choice asks often."""

        def counted(block: slice) -> Float64:
            rows = self.codes[block]
            weights = np.broadcast_to(self.weights, rows.shape).ravel()
            counts = np.bincount(rows.ravel(), weights, minlength=self.alphabet.n_codes)
            return counts.astype(np.float64, copy=False)

        step = _CHUNK // max(self.n_patterns, 1) + 1
        counts: Float64 = np.sum(map_blocks(counted, self.n_tips, step), axis=0)
        return counts

    @property
    def gap_share(self) -> float:
        """Share of characters that may be any state, 0 to 1."""
        return float(self.code_counts()[self.alphabet.gap_code] / (self.n_tips * self.n_sites))

    def base_frequencies(self) -> Float64:
        """f64 [S]: empirical state frequencies (+FC), summing to 1.

        f[s] = Σ_c n[c] · tip[c, s] / |c|  over all codes c but the gap, then normalised: an
        ambiguous character adds 1/k to each of its k states and a gap nothing. This is the count
        of RAxML-NG (`pllmod_msa_compute_stats`, pll-modules src/msa/pll_msa.c), one pass. IQ-TREE
        and RAxML 8 instead share ambiguities out by the current frequencies, eight times over
        (`Alignment::computeStateFreq`); without ambiguities all three agree. A state that never
        occurs has frequency 0 here; a model must raise it before use. Without any
        character but gaps all states are equally frequent.
        """
        table = self.alphabet.tip_table
        counts = self.code_counts()
        counts[self.alphabet.gap_code] = 0.0
        totals: Float64 = ((counts / table.sum(axis=1))[:, None] * table).sum(axis=0)
        if not totals.any():
            totals[:] = 1.0
        totals /= totals.sum()
        return totals


def identical_taxa(groups: Sequence[Patterns]) -> tuple[tuple[int, ...], ...]:
    """Sets of two or more tips whose sequences are equal, code by code, in all groups."""
    alike: dict[bytes, list[int]] = {}
    for tip in range(groups[0].n_tips):
        row = b"".join(patterns.codes[tip].tobytes() for patterns in groups)
        alike.setdefault(row, []).append(tip)
    return tuple(tuple(tips) for tips in alike.values() if len(tips) > 1)


def compress(alignment: Alignment) -> Patterns:
    """The patterns of an alignment, in canonical order (see the module's first lines)."""
    taxa = sorted(range(len(alignment.names)), key=alignment.names.__getitem__)
    codes = alignment.alphabet.encode(alignment.characters)[taxa]
    names = tuple(alignment.names[taxon] for taxon in taxa)
    return compress_parts(names, codes, alignment.alphabet, (codes.shape[1],))


def compress_parts(
    taxa: tuple[str, ...],
    codes: UInt8,
    alphabet: Alphabet,
    ends: Sequence[int],
    kinds: NDArray[np.integer[Any]] | None = None,
) -> Patterns:
    """The patterns of sites that lie part by part.

    ``taxa``: sorted. ``codes``: u8 [T, sites]; ``ends``: before which site each part ends;
    ``kinds``: int [sites], from 0 on: equal columns of different kinds are different patterns.
    """
    part = np.repeat(np.arange(len(ends)), np.diff(ends, prepend=0))
    words = _column_words(codes, alphabet.n_codes)
    if kinds is not None:
        words = np.concatenate([words, kinds[None].astype(np.uint64)])
    order, first = _sorted_columns(words, part)
    pattern = np.cumsum(first, dtype=np.int32) - np.int32(1)
    site_pattern = np.empty(len(order), np.int32)
    site_pattern[order] = pattern
    per_part = np.bincount(part[order[first]], minlength=len(ends))
    return Patterns(
        taxa=taxa,
        codes=np.take(codes, order[first], axis=1),
        weights=np.bincount(pattern).astype(np.float64),
        site_pattern=site_pattern,
        alphabet=alphabet,
        ends=tuple(np.cumsum(per_part).tolist()) if len(ends) > 1 else (),
    )


def _sorted_columns(words: UInt64, part: Int64) -> tuple[Index, Bool]:
    """Sites in lexicographic order of their columns, part by part, and which start a new pattern.

    After the first word only columns that are still tied are sorted, among their like.
    """
    order = np.lexsort((words[0], part))
    first = _changes(part[order]) | _changes(words[0][order])
    for word in words[1:]:
        tied = ~(first & np.append(first[1:], True))
        if not tied.any():
            break
        columns = order[tied]
        columns = columns[np.lexsort((word[columns], np.cumsum(first)[tied]))]
        order[tied] = columns
        first[tied] |= _changes(word[columns])
    return order, first


def _changes(values: NDArray[Any]) -> Bool:
    return np.append(True, values[1:] != values[:-1])


def _column_words(codes: UInt8, n_codes: int) -> UInt64:
    """u64 [words, sites]: columns packed so that comparing words compares columns.

    Row by row, since transposing the byte matrix takes five times as long.
    """
    bits = 4 if n_codes <= 16 else 8
    per_word = 64 // bits
    words = np.zeros((-(-len(codes) // per_word), codes.shape[1]), np.uint64)
    for taxon, row in enumerate(codes):
        word, place = divmod(taxon, per_word)
        words[word] |= row.astype(np.uint64) << np.uint64(64 - bits * (place + 1))
    return words


# Replicate slots: patterns that replicates drew, in parts of one size for all replicates. The 37 %
# of the sites that a replicate lacks have no place; the rest of a slot are gaps without weight.

DEVIATIONS = 4.0
"""Standard deviations above the mean number of patterns that no replicate exceeds, if patterns
occur independently; in an alignment they exclude each other, which makes it six: 1 in 10^9."""


def drawn(patterns: Patterns, weights: Float64, sizes: Sequence[int]) -> Patterns:
    """The patterns with a weight, under it; each part is filled up with gaps to its size.

    weights  f64 [L]
    sizes    of each part, in patterns: as many as have a weight there, or more

    Raises: ValueError: more of a part have one.
    """
    places = []
    for part, size in zip(patterns.parts, sizes, strict=True):
        which = part.start + np.flatnonzero(weights[part])
        if which.size > size:
            raise ValueError(f"{which.size} patterns for a slot of {size}")
        places += [which, np.full(size - which.size, -1)]
    places_of_all = np.concatenate(places)
    order, is_drawn = np.maximum(places_of_all, 0), places_of_all >= 0
    return replace(
        patterns,
        codes=np.where(is_drawn, patterns.codes[:, order], np.uint8(patterns.alphabet.gap_code)),
        weights=weights[order] * is_drawn,
        ends=_ends(sizes),
        systems=patterns.systems and patterns.systems.take(order),
    )


def empty_slots(patterns: Patterns, sizes: Sequence[int], count: int) -> Patterns:
    """``count`` empty replicate slots, one after the other, for patterns drawn from these.

    sizes  of each part of a slot, in patterns
    """
    one = drawn(patterns, np.zeros(patterns.n_patterns), sizes)
    return replace(
        one,
        codes=np.tile(one.codes, (1, count)),
        weights=np.tile(one.weights, count),
        ends=_ends([*sizes] * count),
        systems=one.systems and one.systems.take(np.tile(np.arange(sum(sizes)), count)),
    )


def usual_sizes(patterns: Patterns) -> list[int]:
    """Number of patterns of each part that no replicate exceeds, but by a rare chance.

    One that n_i of n sites show is missing in (1 - n_i / n)^n of the replicates.
    """
    sizes: list[int] = []
    for part in patterns.parts:
        weights = patterns.weights[part]
        missing = (1.0 - weights / max(weights.sum(), 1.0)) ** weights.sum()
        mean, variance = (1.0 - missing).sum(), (missing * (1.0 - missing)).sum()
        most = int(np.count_nonzero(weights))
        sizes.append(min(most, int(np.ceil(mean + DEVIATIONS * np.sqrt(variance)))))
    return sizes


def _ends(sizes: Sequence[int]) -> tuple[int, ...]:
    return tuple(np.cumsum(sizes).tolist()) if len(sizes) > 1 else ()


# State frequencies of sites, as IQ-TREE's -ft writes and its -fs reads them (``.sitefreq``): lines
# of a site's number, from 1 on, and the frequencies of its states in the order of the alphabet.
# Frequencies and a model's exchangeabilities make a pattern's eigen system
# (:mod:`mltree.models.eigen`).

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
        if fields := line.split():
            try:
                _take_frequencies(frequencies, fields)
            except ValueError as error:
                raise InputError(str(error), file=path, line=number) from None
    missing = np.flatnonzero(np.isnan(frequencies[:, 0]))
    if missing.size:
        hint = "the file needs a line for every site of the alignment"
        raise InputError(f"no frequencies for site {missing[0] + 1}", file=path, hint=hint)
    return frequencies


def _take_frequencies(frequencies: Float64, fields: Sequence[str]) -> None:
    site, row = whole(fields[0]), np.array([decimal(field) for field in fields[1:]])
    n_sites, states = frequencies.shape
    if len(row) != states:
        raise ValueError(f"site {site} has {len(row)} frequencies, not {states}")
    if not 1 <= site <= n_sites:
        raise ValueError(f"there is no site {site}: the alignment has {n_sites}")
    if not np.isnan(frequencies[site - 1, 0]):
        raise ValueError(f"site {site} has frequencies already")
    if not (row > 0.0).all() or not abs(row.sum() - 1.0) <= SLACK:
        raise ValueError("frequencies must be positive and must sum to 1")
    frequencies[site - 1] = row / row.sum()


def site_frequencies_text(frequencies: Float64) -> str:
    """The file of frequencies f64 [sites, states]."""
    text = ""
    for site, row in enumerate(frequencies.tolist(), 1):
        text += f"{site:<6} " + "".join(f"{value:<15.{DIGITS}g} " for value in row) + "\n"
    return text
