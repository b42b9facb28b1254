"""Checkpoints: the state of a search as one file, replaced atomically.

The file is NumPy's ``.npz``: the trees as plain arrays, everything else as one JSON text (Python
writes floats so that they read back to the same bits).  It carries a format version and a
fingerprint of the data and options; a search never goes on from a checkpoint that does not match.
It also keeps the devices' layouts, which a search must go on with for the same bits.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import os
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mltree.errors import InputError
from mltree.events import CheckpointWritten, Emit
from mltree.model.substitution import Model
from mltree.search.lineage import Lineage
from mltree.search.pool import Pool, PooledTree
from mltree.search.state import SearchState
from mltree.tree.topology import Tree

__all__ = ["VERSION", "Checkpoint", "fingerprint"]

VERSION = 2
"""Raised whenever the state changes its shape or its meaning."""

_COUNTERS = ("fraction", "stage", "entered", "batches", "failures", "rounds", "candidates", "moves")
_MODEL_ARRAYS = ("rates", "frequencies")
_MODEL_NUMBERS = ("alpha", "p_invariant")


def fingerprint(*parts: str | bytes) -> str:
    """SHA-256 over everything that decides how a search goes: data, options, version."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else bytes(part)
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


class Checkpoint:
    """The checkpoint file of one search."""

    def __init__(
        self,
        path: Path,
        fingerprint: str,
        interval: float,
        layouts: Mapping[str, tuple[int, int]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``interval``: seconds after which a step within a stage is worth a checkpoint.

        ``layouts``: VW and rows that the devices were given, to be read by :meth:`read_layouts`.
        """
        self.path = path
        self._fingerprint = fingerprint
        self._interval = interval
        self._layouts = dict(layouts or {})
        self._clock = clock
        self._written = clock()

    def step(self, state: SearchState, *, stage_ended: bool, emit: Emit) -> None:
        """Called between any two steps: writes when a stage ended or time has passed."""
        if stage_ended or self._clock() - self._written >= self._interval:
            self.save(state)
            emit(CheckpointWritten(str(self.path)))

    def save(self, state: SearchState) -> None:
        """Write the state: whole or not at all, whenever the machine stops."""
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **_pack(state, self._fingerprint, self._layouts))
        partial = self.path.with_name(self.path.name + ".partial")
        with partial.open("wb") as file:
            file.write(buffer.getbuffer())
            file.flush()
            os.fsync(file.fileno())
        partial.replace(self.path)
        self._written = self._clock()

    def load(self, model: Model) -> SearchState | None:
        """The state on file, or None without a file.

        ``model`` gives what the checkpoint does not repeat: the alphabet and what is fixed.
        Raises: InputError where the file is not a checkpoint of this search.
        """
        if not self.path.exists():
            return None
        arrays, meta = _read(self.path)
        if meta["fingerprint"] != self._fingerprint:
            what = "belongs to other data or options, or to another device or layout"
            raise _misfit(self.path, what)
        return _unpack(arrays, meta, model)

    @staticmethod
    def read_layouts(path: Path) -> dict[str, tuple[int, int]]:
        """The layouts of the checkpoint on file, whichever search's it is; none without a file.

        Raises: InputError where the file is not a checkpoint.
        """
        if not path.exists():
            return {}
        _, meta = _read(path)
        return {device: (vw, rows) for device, (vw, rows) in meta["layouts"].items()}

    def remove(self) -> None:
        """Delete the file once its search is over."""
        self.path.unlink(missing_ok=True)


def _misfit(path: Path, what: str) -> InputError:
    return InputError(
        f"the file {what}",
        file=str(path),
        hint="use --redo to start afresh, or another --prefix",
    )


def _read(path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Arrays and what ``meta`` says.

    Raises: InputError where this version cannot read them.
    """
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        meta: dict[str, Any] = json.loads(str(arrays["meta"]))
        version = meta["version"]
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise _misfit(path, "is not a checkpoint, or a damaged one") from error
    if version != VERSION:
        raise _misfit(path, "was written by another version of mltree")
    return arrays, meta


def _pack(
    state: SearchState, mark: str, layouts: Mapping[str, tuple[int, int]]
) -> dict[str, NDArray[Any]]:
    """Arrays by name; ``meta`` is the JSON text."""
    pooled = [Lineage(entry.tree, entry.lnl, str(entry.key)) for entry in state.pool.trees]
    everyone = [*state.lineages, *state.copies, *pooled]
    meta = {
        "version": VERSION,
        "fingerprint": mark,
        "layouts": layouts,
        "counts": [len(state.lineages), len(state.copies), len(pooled)],
        "lineages": [(x.lnl, x.origin, x.active, x.rounds) for x in everyone],
        "pool_limit": state.pool.limit,
        "model": {
            **{name: getattr(state.model, name).tolist() for name in _MODEL_ARRAYS},
            **{name: getattr(state.model, name) for name in _MODEL_NUMBERS},
        },
        "rng": state.rng.bit_generator.state,
        "counters": {name: getattr(state, name) for name in _COUNTERS},
    }
    return {
        "meta": np.array(json.dumps(meta)),
        "twin": np.stack([x.tree.twin for x in everyone]),
        "edge": np.stack([x.tree.edge for x in everyone]),
        "lengths": np.stack([x.tree.lengths for x in everyone]),
    }


def _unpack(arrays: dict[str, NDArray[Any]], meta: dict[str, Any], model: Model) -> SearchState:
    n_tips = (arrays["lengths"].shape[1] + 3) // 2
    everyone = [
        Lineage(Tree(twin.copy(), edge.copy(), lengths.copy(), n_tips), *row)
        for twin, edge, lengths, row in zip(
            arrays["twin"], arrays["edge"], arrays["lengths"], meta["lineages"], strict=True
        )
    ]
    lineages, copies, pooled = _split(everyone, meta["counts"])
    values: dict[str, Any] = {n: np.array(meta["model"][n]) for n in _MODEL_ARRAYS}
    values |= {name: meta["model"][name] for name in _MODEL_NUMBERS}
    rng = np.random.default_rng()
    rng.bit_generator.state = meta["rng"]
    pool = Pool(meta["pool_limit"], [PooledTree(int(x.origin), x.lnl, x.tree) for x in pooled])
    return SearchState(
        lineages=lineages,
        copies=copies,
        model=dataclasses.replace(model, **values),
        rng=rng,
        pool=pool,
        **meta["counters"],
    )


def _split(lineages: list[Lineage], counts: Sequence[int]) -> list[list[Lineage]]:
    ends = np.cumsum([0, *counts]).tolist()
    return [lineages[a:b] for a, b in pairwise(ends)]
