"""Philox against the published vectors, the kernels' twin to the bit, and distributions."""

from __future__ import annotations

import math

import numpy as np
import pyopencl as cl
import pytest
from conftest import DEVICES, layout_of
from scipy import stats

from mltree.data.alphabet import DNA
from mltree.data.patterns import compress_parts
from mltree.device.build import source_folder
from mltree.program.random_numbers import Stream, normals, philox, uniforms_of

PUBLISHED = (
    ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        [0xA4093822, 0x299F31D0],
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
)
"""kat_vectors of Random123 1.14 (Salmon et al.): philox4x32 10."""

KERNEL = """
#include "philox.h"
__kernel void draw(__global const uint4 *counter, __global const uint2 *key, __global uint4 *words,
                   __global double *numbers) {
  const int n = get_global_id(0);
  words[n] = philox(counter[n], key[n]);
  stream_t stream = {counter[n], key[n]};
  acc both[2];
  uniforms(&stream, both);
  numbers[4 * n] = both[0], numbers[4 * n + 1] = both[1];
  numbers[4 * n + 2] = normal(&stream), numbers[4 * n + 3] = gamma_draw(&stream, 2.5);
}
"""


@pytest.mark.parametrize(("counter", "key", "words"), PUBLISHED)
def test_philox_gives_the_published_words(
    counter: list[int], key: list[int], words: list[int]
) -> None:
    drawn = philox(np.array(counter, np.uint32), np.array(key, np.uint32))
    assert drawn.tolist() == words


@pytest.mark.parametrize("info", [info for info in DEVICES if info.has_fp64])
def test_kernels_draw_the_same_bits(info) -> None:
    rng = np.random.default_rng(1)
    count = 64
    counter = rng.integers(0, 1 << 32, (count, 4), np.uint32)
    key = rng.integers(0, 1 << 32, (count, 2), np.uint32)
    codes = np.ones((4, 8), np.uint8)
    patterns = compress_parts(("a", "b", "c", "d"), codes, DNA, (8,))
    options = layout_of(info, "vw1" if info.is_cpu else "native", patterns, 1).options()
    folder = str(source_folder())
    context = cl.Context([info.handle])
    fixed = ["-DSPIN_LIMIT=1", "-DSOURCE_HASH=1", "-DWIDE_PRODUCTS=0", "-w"]
    built = cl.Program(context, KERNEL).build(["-I", folder, *fixed, *options])
    queue, flags = cl.CommandQueue(context), cl.mem_flags.READ_WRITE
    made, numbers = np.empty((count, 4), np.uint32), np.empty((count, 4))
    given = [
        cl.Buffer(context, flags | cl.mem_flags.COPY_HOST_PTR, hostbuf=table)
        for table in (counter, key)
    ]
    left = [cl.Buffer(context, flags, table.nbytes) for table in (made, numbers)]
    built.draw(queue, (count,), None, *given, *left)
    for table, buffer in zip((made, numbers), left, strict=True):
        cl.enqueue_copy(queue, table, buffer)
    expected = philox(counter, key)
    assert np.array_equal(made, expected)
    assert np.array_equal(numbers[:, :2], uniforms_of(expected))
    for row, (at, of) in enumerate(zip(counter, key, strict=True)):
        stream = Stream(int(of[0]), int(of[1]), *at[:3].tolist())
        stream._counter[3] = at[3] + 1
        assert numbers[row, 2] == pytest.approx(stream.normal(), rel=1e-12, abs=1e-14)
        assert numbers[row, 3] == pytest.approx(stream.gamma(2.5), rel=1e-12)


def test_draws_have_their_distributions() -> None:
    stream = Stream(1, 2, 3, 4, 5)
    draws = {
        "uniform": [stream.uniform() for _ in range(2000)],
        "norm": [stream.normal() for _ in range(2000)],
        "gumbel_r": [stream.gumbel() for _ in range(2000)],
    }
    for name, drawn in draws.items():
        assert stats.kstest(drawn, name).pvalue > 1e-3, name
    for shape in (1.0, 1.5, 40.0):
        drawn = [stream.gamma(shape) for _ in range(2000)]
        assert stats.kstest(drawn, "gamma", args=(shape,)).pvalue > 1e-3


def test_normals_depend_on_nothing_but_their_counter() -> None:
    counters = np.array([[0, 1, 2], [0, 2, 2], [1, 1, 2]])
    drawn = normals(7, counters, 3, 5)
    assert np.array_equal(normals(7, counters[1:2], 3, 5), drawn[1:2])
    assert np.unique(drawn).size == drawn.size
    many = normals(7, np.column_stack([np.zeros((500, 2), int), np.arange(500)]), 3, 8)
    assert stats.kstest(many.ravel(), "norm").pvalue > 1e-3
    assert math.isfinite(many.sum())
