"""Checkpoints: the state of a search as one file, replaced atomically.

The file is a line with the format's version, the SHA-256 of the rest, and NumPy's ``.npz``: the
trees as plain arrays, everything else as one JSON text (Python writes floats so that they read back
to the same bits).  It carries a fingerprint of the data and options; a search never goes on from a
checkpoint that does not match. It also keeps the devices' layouts, which a search must go on with
for the same bits.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mltree.errors import InputError
from mltree.events import Emit
from mltree.events.search import CheckpointWritten, StartsEnded
from mltree.files import read_own, unusable, write_whole
from mltree.model.partitioned import PartitionModel
from mltree.search.explored import Explored
from mltree.search.saving import Saving
from mltree.search.state import Lineage, Pool, PooledTree, SearchState
from mltree.settings import CheckpointSettings
from mltree.tree.topology import Tree

__all__ = ["VERSION", "Checkpoint", "fingerprint"]

VERSION = 7
"""Raised whenever the file or the state changes its shape or its meaning."""

_FIRST_LINE = re.compile(rb"mltree checkpoint (\d{1,9})\n")

_COUNTERS = ("fraction", "act", "entered", "batches", "failures", "returned", "finished",
             "starts", "rounds", "candidates", "moves")  # fmt: skip

_EXPLORED = ("moves", "prunes", "idle", "ends")


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
        settings: CheckpointSettings,
        layouts: Mapping[str, tuple[int, int]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``layouts``: VW and rows that the devices were given, read by :meth:`read_layouts`."""
        self.path = path
        self.kept: SearchState | None = None
        """The search between its last two steps; nobody changes it, so that any thread may save it
        while the next step is under way."""
        self._fingerprint = fingerprint
        self._layouts = dict(layouts or {})
        self._saving = Saving(settings, "the search goes on without a checkpoint", clock)

    def step(self, state: SearchState, emit: Emit, *, is_last: bool = False) -> None:
        """Called between any two steps: keeps the state, and writes it where that is due.

        A file that cannot be written is told of once, and does not end the search.
        """
        self.kept = kept = state.copy()
        if self._saving.offer(lambda: self.save(kept), emit, is_last=is_last):
            emit(CheckpointWritten(str(self.path)))

    def save(self, state: SearchState) -> None:
        """Write the state: whole or not at all, whenever the machine stops.

        Raises:
            InputError: it cannot be written.
        """
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **_pack(state, self._fingerprint, self._layouts))
        body = buffer.getvalue()
        first_line = f"mltree checkpoint {VERSION}\n".encode()
        write_whole(self.path, first_line + hashlib.sha256(body).digest() + body)

    def rescue(self) -> None:
        """Write what is kept, where it can be, for the search has failed."""
        if self.kept is not None:
            with suppress(InputError):
                self.save(self.kept)

    def load(self, model: PartitionModel) -> SearchState | None:
        """The state on file, or None without a file.

        ``model`` gives what the checkpoint does not repeat: the alphabet and what is fixed.
        Raises: InputError where the file is not a checkpoint of this search.
        """
        if not self.path.exists():
            return None
        arrays, meta = _read(self.path)
        if meta["fingerprint"] != self._fingerprint:
            what = "belongs to other data, options or version, or to another device or layout"
            raise unusable(self.path, what)
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


def _read(path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Arrays and what ``meta`` says.

    Raises: InputError where this version cannot read them. Nothing is parsed that is not, to the
    last bit, what was written.
    """
    content = read_own(path)
    found = _FIRST_LINE.match(content)
    if found is None:
        raise unusable(path, "is not a checkpoint, or a damaged one")
    if int(found[1]) != VERSION:
        raise unusable(path, "was written by another version of mltree, or is damaged")
    body = found.end() + hashlib.sha256().digest_size
    if hashlib.sha256(content[body:]).digest() != content[found.end() : body]:
        raise unusable(path, "is a damaged checkpoint")
    with np.load(io.BytesIO(content[body:]), allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    return arrays, json.loads(str(arrays["meta"]))


def _pack(
    state: SearchState, mark: str, layouts: Mapping[str, tuple[int, int]]
) -> dict[str, NDArray[Any]]:
    """Arrays by name; ``meta`` is the JSON text."""
    pooled = [Lineage(entry.tree, entry.lnl, "pool") for entry in state.pool.trees]
    everyone = [*state.lineages, *state.copies, *state.waiting, *pooled]
    meta = {
        "fingerprint": mark,
        "layouts": layouts,
        "counts": [len(state.lineages), len(state.copies), len(state.waiting), len(pooled)],
        "lineages": [(x.lnl, x.origin, x.active, x.rounds, x.starts) for x in everyone],
        "pool_limit": state.pool.limit,
        "models": [model.values() for model in state.model.models],
        "scalers": state.model.scalers.tolist(),
        "reach": state.explored.reach,
        "rng": state.rng.bit_generator.state,
        "ended": None if state.ended is None else asdict(state.ended),
        "counters": {name: getattr(state, name) for name in _COUNTERS},
    }
    return {
        "meta": np.array(json.dumps(meta)),
        "twin": np.stack([x.tree.twin for x in everyone]),
        "edge": np.stack([x.tree.edge for x in everyone]),
        "lengths": np.stack([x.tree.lengths for x in everyone]),
        **{name: getattr(state.explored, name) for name in _EXPLORED},
    }


def _unpack(
    arrays: dict[str, NDArray[Any]], meta: dict[str, Any], model: PartitionModel
) -> SearchState:
    n_tips = (arrays["lengths"].shape[-1] + 3) // 2
    everyone = [
        Lineage(Tree(twin.copy(), edge.copy(), lengths.copy(), n_tips), *row)
        for twin, edge, lengths, row in zip(
            arrays["twin"], arrays["edge"], arrays["lengths"], meta["lineages"], strict=True
        )
    ]
    lineages, copies, waiting, pooled = _split(everyone, meta["counts"])
    pairs = zip(model.models, meta["models"], strict=True)
    models = [own.with_values(values) for own, values in pairs]
    rng = np.random.default_rng()
    rng.bit_generator.state = meta["rng"]
    pool = Pool(meta["pool_limit"], [PooledTree(x.lnl, x.tree) for x in pooled])
    return SearchState(
        lineages=lineages,
        copies=copies,
        waiting=waiting,
        explored=Explored(**{name: arrays[name] for name in _EXPLORED}, reach=tuple(meta["reach"])),
        model=model.with_parts(models, np.array(meta["scalers"])),
        rng=rng,
        pool=pool,
        ended=None if meta["ended"] is None else StartsEnded(**meta["ended"]),
        **meta["counters"],
    )


def _split(lineages: list[Lineage], counts: Sequence[int]) -> list[list[Lineage]]:
    ends = np.cumsum([0, *counts]).tolist()
    return [lineages[a:b] for a, b in pairwise(ends)]
