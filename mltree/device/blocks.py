"""How patterns lie in blocks, and blocks in chunks: part after part, none sharing either."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from mltree.alignment.patterns import Patterns
from mltree.alignment.site_frequencies import SiteSystems
from mltree.arrays import Float64, Int32, Int64
from mltree.likelihood.stages import Records
from mltree.values import Value

__all__ = ["Blocks"]


class Blocks(Value, eq=False):
    """The blocks of VW patterns and their chunks, of all parts; each part's last one is padded."""

    vw: int
    block_part: Int32
    """int32[blocks]: the part of each."""
    chunk_block: Int32
    """int32[chunks + 1]: the first block of each."""
    part_chunk: Int32
    """int32[parts + 1]: the first chunk of each; a part without patterns has none."""
    places: Int64
    """int64[patterns]: where each lies among the lanes of all blocks."""

    @classmethod
    def of(cls, patterns: Patterns, vw: int, chunk_blocks: int) -> Blocks:
        """Chunks of ``chunk_blocks`` blocks, the last one of a part perhaps of fewer."""
        sizes = np.array([part.stop - part.start for part in patterns.parts])
        blocks = -(-sizes // vw)
        chunks = -(-blocks // chunk_blocks)
        block_part = np.repeat(np.arange(len(sizes), dtype=np.int32), blocks)
        first_block = _starts(blocks)
        within = np.arange(chunks.sum()) - np.repeat(_starts(chunks), chunks)
        chunk_block = np.repeat(first_block, chunks) + chunk_blocks * within
        padding = np.repeat(first_block * vw - _starts(sizes), sizes)
        return cls(
            vw,
            block_part,
            np.append(chunk_block, len(block_part)).astype(np.int32),
            np.append(_starts(chunks), chunks.sum()).astype(np.int32),
            np.arange(len(padding)) + padding,
        )

    @property
    def count(self) -> int:
        """Blocks."""
        return len(self.block_part)

    @property
    def chunks(self) -> int:
        """Chunks."""
        return len(self.chunk_block) - 1

    @property
    def part_starts(self) -> tuple[float, ...]:
        """Shares of the blocks: what is before each part, and 1 at the end."""
        return tuple((self.chunk_block[self.part_chunk] / self.count).tolist())

    def first_of(self, part: int) -> int:
        """The first of a part."""
        return int(self.chunk_block[self.part_chunk[part]])

    def of_cases(self, cases: Records) -> slice:
        """Those from the first part of any of the cases to the last."""
        ends = cases["first_part"].min(), (cases["first_part"] + cases["parts"]).max()
        return slice(*self.chunk_block[self.part_chunk[[*ends]]].tolist())

    def patterns_of(self, cases: Records) -> int:
        """Patterns of a case, the mean where cases differ; all, of a program that has none."""
        before = self._patterns_before
        if not len(cases):
            return int(before[-1])
        first = cases["first_part"]
        patterns: Int64 = before[first + cases["parts"]] - before[first]
        return round(int(patterns.sum()) / len(cases))

    @cached_property
    def _patterns_before(self) -> Int64:
        """int64[parts + 1]: patterns before each part, and all of them."""
        starts = self.chunk_block[self.part_chunk].astype(np.int64) * self.vw
        before: Int64 = np.searchsorted(self.places, starts)
        return before

    @property
    def width(self) -> int:
        """Patterns with the padding."""
        return self.count * self.vw

    @property
    def chunk_of(self) -> Int64:
        """int64[patterns]: the chunk of each."""
        of_block = np.searchsorted(self.chunk_block, np.arange(self.count), side="right") - 1
        chunks: Int64 = of_block[self.places // self.vw]
        return chunks

    def padded(
        self,
        values: npt.NDArray[Any],
        padding: float = 0,
        kind: npt.DTypeLike | None = None,
    ) -> npt.NDArray[Any]:
        """[..., patterns] as [..., width] of a kind; the same array where nothing is to be done."""
        kind = kind or values.dtype
        n_patterns = values.shape[-1]
        if n_patterns == self.width:
            return values.astype(kind, copy=False)
        wide = np.empty((*values.shape[:-1], self.width), kind)
        if isinstance(self._where, slice):
            wide[..., n_patterns:] = padding
        else:
            wide[:] = padding
        wide[..., self._where] = values
        return wide

    def unpadded(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """[..., width] as [..., patterns]; a view where they are the first of all lanes."""
        return values[..., self._where]

    @cached_property
    def _where(self) -> slice | Int64:
        """The places; a slice, which is copied in a third of the time, where they are the first."""
        n_patterns = self.places.size
        is_front = n_patterns > 0 and self.places[-1] == n_patterns - 1
        return slice(n_patterns) if is_front else self.places

    def systems(self, systems: SiteSystems | None) -> Float64:
        """f64[blocks, words, lanes]: λ, √π, 1/√π, U, 1/speed of patterns; the first's as padding.

        One number that nobody reads where patterns have none.
        """
        if systems is None:
            return np.zeros(1)
        pattern = np.zeros(self.width, np.int64)
        pattern[self.places] = np.arange(len(self.places))
        own = systems.take(pattern)
        vectors = own.vectors.reshape(self.width, -1)
        speeds = 1 / own.speeds[:, None]
        tables = [own.eigenvalues, own.roots, 1 / own.roots, vectors, speeds]
        words: Float64 = np.concatenate(tables, axis=1)
        return words.reshape(self.count, self.vw, -1).swapaxes(1, 2)

    def chunks_of(self, first_part: Int32, parts: Int32) -> Int32:
        """int32[n]: how many chunks ranges of parts have."""
        chunks: Int32 = self.part_chunk[first_part + parts] - self.part_chunk[first_part]
        return chunks


def _starts(sizes: npt.NDArray[Any] | Sequence[int]) -> npt.NDArray[Any]:
    """Where each of things that follow one another starts."""
    ends = np.cumsum(sizes)
    return ends - sizes
