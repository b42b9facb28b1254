"""Fitch's sets of states, bit-parallel: one bit a site, one bit-plane a state, 64 sites a word.

    join(a, b) = a ∩ b where that is not empty, else a ∪ b with one change      (Fitch 1971)

Only informative sites are stored: sites that need equally many changes on every tree, and states of
a single tip, are counted in ``PackedSites.constant``. The other states are renumbered site by site,
and words are sorted by the number of states of their sites, so that plane p is stored for the first
``widths[p]`` words only: DNA takes about 2.5 planes of its 4, protein about 4 of its 20.

A site of weight w is stored once for every bit of w, in a word of weight 2^bit. Where there are
many rows of weights, each has tips of its own, in words of common weights and planes.

Letters: T tips, L patterns, S states, W words of sites, F = Σ widths words of all planes, R rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import groupby
from typing import NamedTuple, TypeAlias

import numpy as np

from mltree.data.alphabet import Alphabet
from mltree.data.patterns import Patterns
from mltree.system.arrays import Bool, Float64, Index, Int64, UInt8, UInt64
from mltree.system.process import map_blocks
from mltree.system.values import Value
from mltree.tree.topology import Tree

Sets: TypeAlias = UInt64
"""uint64 [F, n]: n state sets of every site, plane after plane; NumPy's loops run over the sets,
which are many: join takes a third of the time that it takes on [n, F]."""


WORD_BITS = 64
"""Sites of a word."""

BLOCK = 1 << 19
"""Characters that are gone through at a time: few enough for a core's cache."""


class PackedSites(Value, eq=False):
    """The informative sites of an alignment as bits."""

    tips: Sets
    """uint64 [F, T]: the state sets of the tips; [F, R, T] under rows of weights."""
    widths: tuple[int, ...]
    """Number of words of each plane, falling; the first is W."""
    word_weights: Float64
    """float64 [W]: weight of a set bit of each word."""
    constant: float | Float64
    """Changes that every tree needs beyond those counted in the words; f64 [R] under rows."""

    @cached_property
    def planes(self) -> list[slice]:
        """The slice of each plane in the F words."""
        ends = np.cumsum(self.widths).tolist()
        return [slice(end - width, end) for end, width in zip(ends, self.widths, strict=True)]

    @property
    def n_tips(self) -> int:
        """Number of taxa, T."""
        return int(self.tips.shape[-1])

    def join(self, first: Sets, second: Sets) -> Sets:
        """The Fitch sets of parents, [F, n]."""
        parents = first & second
        none = self._empty(parents)
        either = first | second
        for plane, width in zip(self.planes, self.widths, strict=True):
            either[plane] &= none[:width]
        parents |= either
        return parents

    def misses(self, first: Sets, second: Sets) -> Float64:
        """float64 [n] (or more axes): weighted number of sites with no state in common."""
        missing = np.bitwise_count(self._empty(first & second))
        counts = missing.reshape(len(missing), -1).astype(np.float64)
        misses: Float64 = (self.word_weights @ counts).reshape(missing.shape[1:])
        return misses

    def misses_within(self, first: Sets, second: Sets, begin: int, end: int) -> Float64:
        """:meth:`misses` of words ``begin`` to ``end``; words with most states come first."""
        shape = np.broadcast_shapes(first.shape, second.shape)[1:]
        seen = np.zeros((end - begin, *shape), np.uint64)
        for plane, width in zip(self.planes, self.widths, strict=True):
            some = slice(plane.start + begin, plane.start + min(width, end))
            if some.start < some.stop:
                seen[: some.stop - some.start] |= first[some] & second[some]
        counts = np.bitwise_count(np.invert(seen, out=seen)).astype(np.float64)
        misses: Float64 = np.tensordot(self.word_weights[begin:end], counts, 1)
        return misses

    def rows(self, which: slice) -> PackedSites:
        """The sites under some rows of the weights."""
        constant = np.asarray(self.constant)[which]
        return replace(self, tips=self.tips[:, which], constant=constant)

    def _empty(self, sets: Sets) -> Sets:
        """[W, n]: bits of sites with no bit in any plane."""
        seen = sets[: self.widths[0]].copy()
        for plane, width in zip(self.planes[1:], self.widths[1:], strict=True):
            seen[:width] |= sets[plane]
        return np.invert(seen, out=seen)


class InformativeSites(NamedTuple):
    """Parsimony-informative sites of the patterns of one data type, or of several side by side."""

    sets: UInt64
    """unsigned [T, sites]: the state sets, of shared states only, numbered from 0 in each site."""
    states: Int64
    """int64 [sites]: number of states of each site."""
    pattern: Index
    """intp [sites]: number of each site's pattern."""
    weights: Int64
    """int64 [L]: weights of all patterns."""
    constant: Int64
    """int64 [L]: changes that each pattern needs on every tree, beyond those that its sets need."""

    @classmethod
    def of(cls, *groups: Patterns) -> InformativeSites:
        """The informative sites of patterns over the same taxa.

        Raises: ValueError where a weight is not a whole number >= 0.
        """
        # Those of many loci are found at once.
        runs, first = [], 0
        for _, run in groupby(groups, key=lambda patterns: id(patterns.alphabet)):
            sites = _informative(list(run))
            runs.append(sites._replace(pattern=sites.pattern + first))
            first += len(sites.weights)
        sets, *others = zip(*runs, strict=True)
        return cls(np.concatenate(sets, axis=1), *map(np.concatenate, others))

    @property
    def n_tips(self) -> int:
        """Number of taxa, T."""
        return len(self.sets)

    @property
    def set_bytes(self) -> int:
        """Approximate bytes of a packed set."""
        return 1 + int(self.states.sum()) // 8

    def packed(self) -> PackedSites:
        """The packed sites under the patterns' weights."""
        packed = self.reweighted(self.weights[None])
        (constant,) = np.asarray(packed.constant).tolist()
        return replace(packed, tips=packed.tips[:, 0], constant=constant)

    def reweighted(self, rows: Float64 | Int64) -> PackedSites:
        """The packed sites under rows of whole weights [R, L]; tips are [F, R, T]."""
        weights = rows[:, self.pattern].astype(np.int64)
        row, site = np.nonzero(weights)
        return self._packed(row, site, weights[row, site], rows @ self.constant)

    def apart(self, range_of_row: Index, ends: Index) -> PackedSites:
        """The packed sites under R rows that weigh one range of patterns each; tips are [F, R, T].

        ``range_of_row``: intp [R].  ``ends``: of the ranges, which lie one after the other.
        """
        starts = np.concatenate([[0], ends[:-1]])
        first, last = (np.searchsorted(self.pattern, of)[range_of_row] for of in (starts, ends))
        row = np.repeat(np.arange(len(range_of_row)), last - first)
        before = np.cumsum(last - first) - last
        site = np.arange(row.size) - before[row]
        constant = np.add.reduceat(self.weights * self.constant, starts)[range_of_row]
        return self._packed(row, site, self.weights[self.pattern[site]], constant)

    def _packed(
        self, row: Index, site: Index, weights: Int64, constant: Float64 | Int64
    ) -> PackedSites:
        """The n sites with a weight under R rows, [n] each; ``constant``: [R]."""
        words = _words_of_sites(self.states, row, site, weights, len(constant))
        widths = tuple(int((words.states > plane).sum()) for plane in range(int(words.states[0])))
        step = max(1, BLOCK // max(1, words.sites.size))
        blocks = map_blocks(partial(_planes, self.sets, words, widths), self.n_tips, step)
        tips = np.concatenate(blocks, axis=-1).astype(np.uint64)
        return PackedSites(tips, widths, words.weights, constant.astype(np.float64))


def pack_sites(*groups: Patterns) -> PackedSites:
    """The informative sites of an alignment, packed; about 0.02 s a million nucleotides.

    ``groups``: the patterns of one data type, or of several, over the same taxa.

    Raises: ValueError where a weight is not a whole number >= 0.
    """
    return InformativeSites.of(*groups).packed()


def _informative(groups: Sequence[Patterns]) -> InformativeSites:
    all_weights = np.concatenate([patterns.weights for patterns in groups])
    weights = all_weights.astype(np.int64)
    if np.any(weights != all_weights) or np.any(weights < 0):
        raise ValueError("parsimony needs whole weights")
    codes = groups[0].codes
    if len(groups) > 1:
        codes = np.concatenate([patterns.codes for patterns in groups], axis=1)
    n_tips, n_patterns = codes.shape
    step = max(1, BLOCK // max(1, n_tips))
    work = partial(_informative_of_block, codes, weights > 0, groups[0].alphabet)
    blocks = map_blocks(work, n_patterns, step)
    columns = zip(*blocks, strict=True)
    sets, states, pattern, constant = (np.concatenate(column, axis=-1) for column in columns)
    return InformativeSites(sets, states, pattern, weights, constant)


def _informative_of_block(
    codes: UInt8, counted: Bool, alphabet: Alphabet, block: slice
) -> tuple[UInt64, Int64, Index, Int64]:
    """Sets, states, pattern and constant of a block.  ``counted``: patterns with any weight."""
    n_states = alphabet.n_states
    narrowest = np.min_scalar_type((1 << n_states) - 1)
    of_code = alphabet.state_masks.astype(narrowest)
    masks = of_code[codes[:, block]]
    known = masks != of_code[alphabet.gap_code]
    counts = np.stack([np.count_nonzero(_has(masks, s) & known, axis=0) for s in range(n_states)])
    shared = counts >= 2
    informative = (shared.sum(axis=0) >= 2) & counted[block]
    chosen = np.flatnonzero(informative)
    # Where at most one state is shared, every known tip without it costs one change.
    constant = np.maximum(known.sum(axis=0) - counts.max(axis=0), 0)
    sets, constant[chosen] = _renumbered(masks[:, chosen], shared[:, chosen])
    return sets, shared[:, chosen].sum(axis=0), chosen + block.start, constant


def _has(masks: UInt64, state: int) -> Bool:
    has: Bool = (masks & masks.dtype.type(1 << state)) != 0
    return has


def _renumbered(masks: UInt64, shared: Bool) -> tuple[UInt64, Int64]:
    """Sets of shared states only, numbered from 0 in each site, and the number of tips left bare.

    Such a tip costs one change wherever it is, so from then on any state suits it, like a gap.
    """
    rank = np.cumsum(shared, axis=0) - 1
    sets = np.zeros_like(masks)
    one = masks.dtype.type(1)
    for state, kept in enumerate(shared):
        bit = kept * (one << np.maximum(rank[state], 0).astype(masks.dtype))
        has = masks >> masks.dtype.type(state)
        has &= one
        has *= bit
        sets |= has
    bare = sets == 0
    # The gap's set holds every shared state already, so it is never bare.
    every = ((one << shared.sum(axis=0).astype(masks.dtype)) - one).astype(masks.dtype)
    sets |= bare * every
    return sets, bare.sum(axis=0)


class _WordLayout(NamedTuple):
    """Sites of every word."""

    sites: Int64
    """int64 [R, W, 64]: the site of each bit, for every row of weights; -1 for none."""
    weights: Float64
    """float64 [W]: weight of a bit."""
    states: Int64
    """int64 [W]: largest number of states of a site of the word, in any row."""


def _planes(sets: UInt64, table: _WordLayout, widths: Sequence[int], tips: slice) -> UInt64:
    # The place behind the last site, that of -1, belongs to none: state 0 at every tip keeps it
    # free of changes.
    tip_sets = sets[tips]
    tip_sets = np.concatenate([tip_sets, np.ones((len(tip_sets), 1), tip_sets.dtype)], axis=1)
    in_words = np.take(tip_sets, table.sites, axis=1).reshape(len(tip_sets), len(table.sites), -1)
    planes = []
    for plane, width in enumerate(widths):
        bits = _has(in_words[..., : width * WORD_BITS], plane)
        planes.append(np.packbits(bits, axis=-1, bitorder="little").view("<u8"))
    return np.concatenate(planes, axis=-1).T


def _words_of_sites(
    n_states: Int64, row: Index, site: Index, weights: Int64, n_rows: int
) -> _WordLayout:
    """Words of equal weight, those of sites with many states first; W >= 1.

    n_states: int64 [sites]
    """
    by_states = np.argsort(-n_states, kind="stable")
    states = np.append(n_states[by_states], 1)
    rank = np.empty_like(by_states)
    rank[by_states] = np.arange(by_states.size)
    in_order = np.lexsort((rank[site], row))
    row, site, weights = row[in_order], rank[site[in_order]], weights[in_order]
    tables, scales = [], []
    for bit in range(int(weights.max(initial=1)).bit_length()):
        has = ((weights >> bit) & 1).astype(np.bool_)
        rows_of_bit = row[has]
        counts = np.bincount(rows_of_bit, minlength=n_rows)
        words = -(-int(counts.max(initial=0)) // WORD_BITS)
        of_rank = np.full((n_rows, words * WORD_BITS), -1)
        first = (np.cumsum(counts) - counts)[rows_of_bit]
        of_rank[rows_of_bit, np.arange(rows_of_bit.size) - first] = site[has]
        tables.append(of_rank.reshape(n_rows, words, WORD_BITS))
        scales.append(np.full(words, float(1 << bit)))
    table, scale = np.concatenate(tables, axis=1), np.concatenate(scales)
    if not scale.size:
        no_sites = np.full((n_rows, 1, WORD_BITS), -1)
        return _WordLayout(no_sites, np.ones(1), np.ones(1, np.int64))
    needed = states[table[:, :, 0]].max(axis=0)
    order = np.argsort(-needed, kind="stable")
    sites = np.where(table < 0, -1, by_states[table])[:, order]
    return _WordLayout(sites, scale[order], needed[order])


class Conflict(NamedTuple):
    """Tips that branches of length zero join, though no state is possible for them all."""

    tips: tuple[int, ...]
    """The first tips that exclude each other."""
    site: int
    """The first site with the conflict, from 0."""


def find_conflict(tree: Tree, patterns: Patterns) -> Conflict | None:
    """The first conflict among tips that branches of length zero join; None where there is none.

    P(0) is the identity: such tips show one and the same state, else lnL = -infinity.
    """
    group = _joined(tree)[: tree.n_tips]
    allowed = patterns.alphabet.tip_table > 0
    for first in np.flatnonzero(np.bincount(group) > 1):
        tips = np.flatnonzero(group == first)
        shown: Bool = allowed[patterns.codes[tips]]
        left = np.asarray(np.logical_and.accumulate(shown).any(axis=2))
        impossible = ~left[-1][patterns.site_pattern]
        if impossible.any():
            site = int(impossible.argmax())
            count = 1 + int(left[:, patterns.site_pattern[site]].sum())
            return Conflict(tuple(tips[:count].tolist()), site)
    return None


def _joined(tree: Tree) -> Index:
    """Lowest node that branches of length zero join to each, intp [nodes]."""
    half = np.flatnonzero(tree.twin > np.arange(tree.twin.size))
    half = half[tree.lengths[tree.edge[half]] == 0]
    one, other = half // 3, tree.twin[half] // 3
    lowest = np.arange(tree.twin.size // 3)
    while not np.array_equal(lowest[one], lowest[other]):
        both = np.minimum(lowest[one], lowest[other])
        np.minimum.at(lowest, one, both)
        np.minimum.at(lowest, other, both)
    return lowest
