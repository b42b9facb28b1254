"""BEAGLE's traversal through its C interface, where libhmsbeagle is installed."""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from bench.workloads import Workload
from mltree.program import planner
from mltree.program.cases import Cases
from mltree.tree.topology import Tree

__all__ = ["Beagle", "BeagleError", "find_beagle"]

_DOUBLE, _SSE, _CPU = 1 << 1, 1 << 11, 1 << 15
"""Bits of BEAGLE's flags: fp64, SSE, on the CPU."""

_NO_SCALING = -1
_EIGEN = 0


class BeagleError(Exception):
    """BEAGLE gave back an error code."""


class _Details(ctypes.Structure):
    """BeagleInstanceDetails."""

    _fields_ = (
        ("number", ctypes.c_int),
        ("resource", ctypes.c_char_p),
        ("implementation", ctypes.c_char_p),
        ("description", ctypes.c_char_p),
        ("flags", ctypes.c_long),
    )


def find_beagle() -> ctypes.CDLL | None:
    """The library, if it is installed."""
    name = ctypes.util.find_library("hmsbeagle") or "libhmsbeagle.so.1"
    try:
        return ctypes.CDLL(name)
    except OSError:
        return None


class Beagle:
    """An instance that holds one workload; lnL of its tree by a post-order traversal, unscaled."""

    def __init__(self, library: ctypes.CDLL, data: Workload) -> None:
        patterns, model, tree = data.patterns, data.model, data.tree
        taxa, states = patterns.n_tips, model.n_states
        self._library = library
        details = _Details()
        self._instance = library.beagleCreateInstance(
            taxa, taxa, taxa, states, patterns.n_patterns, 1, tree.n_edges + 1,
            model.n_categories, 0, None, 0, ctypes.c_long(_DOUBLE | _SSE | _CPU),
            ctypes.c_long(_DOUBLE | _CPU), ctypes.byref(details),
        )  # fmt: skip
        if self._instance < 0:
            raise BeagleError(f"no instance: code {self._instance}")
        self.name = f"BEAGLE {self._version()} {(details.implementation or b'').decode()}"
        for tip, codes in enumerate(_state_numbers(data)):
            self._call("beagleSetTipStates", tip, _pointer(codes))
        vectors = [np.ascontiguousarray(part) for part in (model.right, model.left)]
        self._call("beagleSetEigenDecomposition", _EIGEN, *map(_pointer, vectors),
                   _pointer(model.eigenvalues))  # fmt: skip
        self._call("beagleSetStateFrequencies", 0, _pointer(model.frequencies))
        self._call("beagleSetCategoryWeights", 0, _pointer(model.weights))
        self._call("beagleSetCategoryRates", _pointer(model.rates))
        self._call("beagleSetPatternWeights", _pointer(patterns.weights))
        self._operations, self._root = _operations(tree)
        self._matrices = np.arange(tree.n_edges + 1, dtype=np.int32)
        # The root sits at one end of edge 0: the branch on its other side has no length.
        self._lengths = np.append(tree.lengths, 0.0)

    def log_likelihood(self) -> float:
        """P matrices, partials and the sum over patterns (natural log)."""
        self._call("beagleUpdateTransitionMatrices", _EIGEN, _pointer(self._matrices), None, None,
                   _pointer(self._lengths), len(self._lengths))  # fmt: skip
        self._call("beagleUpdatePartials", _pointer(self._operations), len(self._operations),
                   _NO_SCALING)  # fmt: skip
        root, zero = np.array([self._root], np.int32), np.zeros(1, np.int32)
        none, total = np.array([_NO_SCALING], np.int32), np.zeros(1)
        self._call("beagleCalculateRootLogLikelihoods", _pointer(root), _pointer(zero),
                   _pointer(zero), _pointer(none), 1, _pointer(total))  # fmt: skip
        return float(total[0])

    def close(self) -> None:
        """Give the instance's memory back."""
        self._call("beagleFinalizeInstance")

    def _version(self) -> str:
        self._library.beagleGetVersion.restype = ctypes.c_char_p
        return bytes(self._library.beagleGetVersion()).decode()

    def _call(self, name: str, *arguments: object) -> None:
        function: Callable[..., int] = getattr(self._library, name)
        code = function(self._instance, *arguments)
        if code != 0:
            raise BeagleError(f"{name}: code {code}")


def _pointer(array: NDArray[np.generic]) -> ctypes.c_void_p:
    assert array.flags.c_contiguous
    return ctypes.c_void_p(array.ctypes.data)


def _state_numbers(data: Workload) -> NDArray[np.int32]:
    """int32[T, L]: states 0..S-1; the workload has no ambiguous ones."""
    table = data.patterns.alphabet.tip_table.argmax(axis=1).astype(np.int32)
    return np.ascontiguousarray(table[data.patterns.codes])


def _operations(tree: Tree) -> tuple[NDArray[np.int32], int]:
    """BeagleOperations int32[n, 7] of a traversal towards edge 0, and the root's buffer.

    Buffers: tips first, then slots renumbered in order of their computation.
    """
    buffers: dict[int, int] = {}

    def buffer(operand: int) -> int:
        return ~operand if operand < 0 else buffers[operand]

    rows = []

    def add(dst: int, *children: int) -> int:
        buffers[dst] = tree.n_tips + len(buffers)
        rows.append((buffers[dst], _NO_SCALING, _NO_SCALING, *children))
        return buffers[dst]

    newviews = planner.newviews_towards([tree], 0, Cases.alike(1)).records
    for dst, left, left_p, right, right_p in newviews.tolist():
        add(dst, buffer(left), left_p, buffer(right), right_p)
    lower, upper = tree.edge_halves.T
    ends = [int(planner.operands(tree, half[:1])[0]) for half in (lower, upper)]
    root = add(1 << 30, buffer(ends[0]), 0, buffer(ends[1]), tree.n_edges)
    return np.array(rows, np.int32), root
