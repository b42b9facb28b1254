"""Distinct splits of many trees, and the trees that have each.

A clade is an interval of the tips in the order in which its tree is written, so that a running
exclusive or over that order gives the clade's content: of packed bits, the split; of random keys, a
hash of the split. Hashes find the distinct splits; the bits are then compared with those of every
clade that shares the hash, so that nothing is left to chance.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from mltree.system.arrays import Bool, Float64, Index, Int32, UInt64
from mltree.system.values import Value
from mltree.tree.clades import Clades

WORD = 64
"""Taxa whose bits share a uint64."""

AT_ONCE = 1 << 26
"""Bytes of running bits that are held at a time."""


class SplitTable(Value):
    """Every split of n trees over T taxa, as the side without taxon 0."""

    n_trees: int
    taxa: tuple[str, ...]
    bits: UInt64
    """uint64 [S, B]: the distinct splits; taxon t is bit t."""
    tree: Int32
    """int32 [M], ascending: the tree of each occurrence."""
    split: Int32
    """int32 [M], ascending within a tree: the split of each occurrence."""
    lengths: Float64
    """f64 [M]: length of the split's branch there, or sum of its two branches at a root."""
    of_clade: Int32
    """int32: the split of each clade that the table was made from."""

    @property
    def n_splits(self) -> int:
        """S, the number of distinct splits."""
        return len(self.bits)

    @cached_property
    def counts(self) -> Index:
        """Number of trees that have each split, intp [S]."""
        return np.bincount(self.split, minlength=self.n_splits)

    @cached_property
    def bounds(self) -> Index:
        """Tree k has the occurrences from ``bounds[k]`` up to ``bounds[k + 1]``; intp [n+1]."""
        return np.searchsorted(self.tree, np.arange(self.n_trees + 1))


def members(bits: UInt64, n_tips: int) -> Bool:
    """Packed splits as one value a taxon, bool [S, T]."""
    octets = np.ascontiguousarray(bits.astype("<u8")).view(np.uint8)
    return np.unpackbits(octets, axis=1, count=n_tips, bitorder="little").astype(np.bool_)


def unit_bits(n_tips: int) -> UInt64:
    """Every taxon's own bit, uint64 [T, B]."""
    taxon = np.arange(n_tips)
    unit = np.zeros((n_tips, -(-n_tips // WORD)), np.uint64)
    unit[taxon, taxon // WORD] = np.uint64(1) << (taxon % WORD).astype(np.uint64)
    return unit


def split_table(trees: Clades, *, with_tips: bool = False) -> SplitTable:
    """Table of the splits of the inner branches; ``with_tips`` adds those of the tips."""
    branches = trees.with_tips() if with_tips else trees.only(trees.is_inner)
    rng = np.random.Generator(np.random.PCG64(0))
    bits = None
    while bits is None:
        keys = rng.integers(0, 2**WORD, trees.n_tips, dtype=np.uint64)
        hashes = sides(branches, keys[:, None])[:, 0]
        _, example, of_clade = np.unique(hashes, return_index=True, return_inverse=True)
        bits = _bits(branches, example, of_clade)
    n_splits = max(len(bits), 1)
    occurrence, place = np.unique(
        branches.tree * np.int64(n_splits) + of_clade, return_inverse=True
    )
    tree, split = np.divmod(occurrence, n_splits)
    lengths = np.bincount(place, branches.lengths, len(occurrence)).astype(np.float64)
    return SplitTable(
        trees.n_trees,
        trees.taxa,
        bits,
        tree.astype(np.int32),
        split.astype(np.int32),
        lengths,
        of_clade.astype(np.int32),
    )


def sides(trees: Clades, keys: UInt64) -> UInt64:
    """Exclusive or of the keys of all taxa on a clade's side without taxon 0, uint64 [C, W].

    keys  uint64 [T, W]
    """
    running = np.zeros((trees.n_trees, trees.n_tips + 1, keys.shape[1]), np.uint64)
    np.bitwise_xor.accumulate(keys[trees.order], axis=1, out=running[:, 1:])
    side: UInt64 = running[trees.tree, trees.last] ^ running[trees.tree, trees.first]
    of_zero = (trees.order == 0).argmax(axis=1)[trees.tree]
    side[(trees.first <= of_zero) & (of_zero < trees.last)] ^= np.bitwise_xor.reduce(keys, axis=0)
    return side


def _bits(branches: Clades, example: Index, of_clade: Index) -> UInt64 | None:
    """The split of every hash, or None if different splits share a hash.

    example   intp [S]: the first branch with a hash
    of_clade  intp [C]: the hash of each branch, 0 to S-1
    """
    unit = unit_bits(branches.n_tips)
    bits = np.zeros((len(example), unit.shape[1]), np.uint64)
    step = 1 + AT_ONCE // unit.nbytes
    bounds = branches.bounds
    for start in range(0, branches.n_trees, step):
        stop = min(start + step, branches.n_trees)
        begin, end = bounds[[start, stop]]
        batch_sides = sides(branches.part(start, stop), unit)
        new = np.flatnonzero((example >= begin) & (example < end))
        bits[new] = batch_sides[example[new] - begin]
        if not np.array_equal(batch_sides, bits[of_clade[begin:end]]):
            return None
    return bits
