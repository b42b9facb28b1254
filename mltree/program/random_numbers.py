"""Random numbers by counter: the same for a draw wherever, whenever and beside whatever it is made.

Philox4x32-10 (Salmon, Moraes, Dror and Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3",
SC11). The key is (seed, run), the counter (replica, sweep, move, draw). ``opencl/philox.h`` has the
same functions; integers agree to the bit, and so do uniform numbers.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from mltree.system.arrays import Float64, Int64

_MULTIPLIERS = np.array([0xD2511F53, 0xCD9E8D57], np.uint64)
_WEYL = np.array([0x9E3779B9, 0xBB67AE85], np.uint32)
_ROUNDS = 10
_HALF_WORD = np.uint64(32)


def philox(counter: npt.NDArray[np.uint32], key: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Four random words uint32[..., 4] of counters uint32[..., 4] under keys uint32[..., 2]."""
    one, two, three, four = np.asarray(counter, np.uint32).reshape(-1, 4).T
    low, high = np.asarray(key, np.uint32).reshape(-1, 2).T
    for number in range(_ROUNDS):
        if number:
            low, high = low + _WEYL[0], high + _WEYL[1]
        first, second = one * _MULTIPLIERS[0], three * _MULTIPLIERS[1]
        one, three = _upper(second) ^ two ^ low, _upper(first) ^ four ^ high
        two, four = second.astype(np.uint32), first.astype(np.uint32)
    return np.stack([one, two, three, four], axis=-1).reshape(np.shape(counter))


def _upper(product: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint32]:
    return (product >> _HALF_WORD).astype(np.uint32)


def uniforms_of(words: npt.NDArray[np.uint32]) -> Float64:
    """Numbers f64[..., 2] within (0, 1) of words uint32[..., 4], 53 bits each."""
    wide = words.astype(np.uint64)
    bits = ((wide[..., [1, 3]] << _HALF_WORD) | wide[..., [0, 2]]) >> np.uint64(11)
    return np.asarray((bits + 0.5) * 2.0**-53, np.float64)


def normals(seed: int, counters: Int64, move: int, count: int) -> Float64:
    """Numbers f64[n, count] of the standard normal distribution (Box and Muller 1958).

    counters  i64[n, 3]: run, replica and sweep
    """
    run, replica, sweep = counters.T[..., None].astype(np.uint32)
    draws = np.arange(-(-count // 2), dtype=np.uint32)
    words = np.broadcast_arrays(replica, sweep, np.uint32(move), draws)
    keys = np.broadcast_arrays(np.uint32(seed), run, draws)[:2]
    first, second = np.moveaxis(uniforms_of(philox(np.stack(words, -1), np.stack(keys, -1))), -1, 0)
    radius, angle = np.sqrt(-2 * np.log(first)), 2 * np.pi * second
    both = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=-1)
    numbers: Float64 = both.reshape(len(counters), -1)[:, :count]
    return numbers


class Stream:
    """The draws of one move of a replica, one after the other."""

    def __init__(self, seed: int, run: int, replica: int, sweep: int, move: int) -> None:
        self._key = np.array([seed, run], np.uint32)
        self._counter = np.array([replica, sweep, move, 0], np.uint32)

    def uniforms(self) -> tuple[float, float]:
        """Two numbers within (0, 1), the next draw."""
        first, second = uniforms_of(philox(self._counter, self._key)).tolist()
        self._counter[3] += 1
        return first, second

    def uniform(self) -> float:
        """A number within (0, 1), the first of the next draw."""
        return self.uniforms()[0]

    def gumbel(self) -> float:
        """A number of the standard Gumbel distribution."""
        return -math.log(-math.log(self.uniform()))

    def normal(self) -> float:
        """A number of the standard normal distribution (Box and Muller 1958)."""
        first, second = self.uniforms()
        return math.sqrt(-2 * math.log(first)) * math.cos(2 * math.pi * second)

    def gamma(self, shape: float) -> float:
        """A number of Gamma(shape, 1), of a shape of at least 1 (Marsaglia and Tsang 2000)."""
        d = shape - 1 / 3
        c = 1 / math.sqrt(9 * d)
        while True:
            x = self.normal()
            v = (1 + c * x) ** 3
            if v > 0 and math.log(self.uniform()) < x * x / 2 + d - d * v + d * math.log(v):
                return d * v
