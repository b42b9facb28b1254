"""Checkpoints: the state of a search as one file, replaced atomically.

The file is a line with the format's version, the SHA-256 of the rest, and NumPy's ``.npz``: the
trees as plain arrays, everything else as one JSON text (Python writes floats so that they read back
to the same bits).  A search never goes on from a checkpoint whose fingerprint, of data and options,
is not its own, and goes on with the devices' layouts that are kept, for the same bits.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mltree.fit.settings import CheckpointSettings
from mltree.models.partitioned import PartitionModel
from mltree.system.errors import InputError
from mltree.system.events import CheckpointWritten, Emit, Notice, StartsEnded
from mltree.system.files import read_own, unusable, write_whole
from mltree.system.values import Value
from mltree.tree.topology import Forest, Tree
from mltree.treesearch.move_cache import MoveCache


@dataclass
class CandidateTree:
    """A candidate tree of the search; several go through every launch side by side."""

    tree: Tree
    """Changed in place by the search."""
    lnl: float
    """Natural log-likelihood of ``tree`` under its landscape's current model."""
    origin: str
    """Origin of the tree: ``parsimony 1``, ``random 2``, ``user 1``, ``copy 3``."""
    active: bool = True
    """False once a phase has no more to gain for the tree."""
    rounds: int = 0
    """Rounds done in the current phase."""
    starts: int = 1
    """Starts that led to the tree, with those that were dropped for its sake."""
    landscape: int = 0
    """Number of the landscape that the tree is searched in."""

    def copy(self) -> CandidateTree:
        """Return an independent candidate with the same tree."""
        return replace(self, tree=self.tree.copy())


def shapes(candidates: Sequence[CandidateTree], free_length: float) -> list[int]:
    """Return keys that are equal for trees that differ only in branches up to ``free_length``."""
    if len(candidates) == 1:
        return [0]
    return Forest([candidate.tree for candidate in candidates]).shape_keys(free_length)


def best_of(candidates: list[CandidateTree]) -> CandidateTree:
    """Return the candidate with the highest lnL; the first of equals."""
    return max(candidates, key=lambda candidate: candidate.lnl)


class PooledTree(Value, eq=False):
    """A copy of a tree that the search once reached."""

    lnl: float
    tree: Tree
    key: int
    """Key of the topology (:meth:`mltree.tree.topology.Forest.topology_keys`)."""


@dataclass
class Pool:
    """At most ``limit`` trees of different topology, best first."""

    limit: int
    trees: list[PooledTree] = field(default_factory=list)

    def add(self, trees: Sequence[Tree], lnls: Sequence[float]) -> None:
        """Add trees, unless their topologies are there with higher lnLs."""
        keys = Forest(trees).topology_keys() if trees else []
        for tree, lnl, key in zip(trees, lnls, keys, strict=True):
            known = next((entry for entry in self.trees if entry.key == key), None)
            if known is None or known.lnl < lnl:
                every = [entry for entry in self.trees if entry is not known]
                every.append(PooledTree(lnl, tree.copy(), key))
                self.trees = sorted(every, key=lambda entry: -entry.lnl)[: self.limit]


@dataclass
class Landscape:
    """A model, and what is known of the moves under it.

    lnL may have several maxima in a model's parameters. Trees that are good under one need not be
    under another, and a search under it goes on to its trees. So every random start has a landscape
    of its own: another start's model does not lead it.
    """

    model: PartitionModel
    cache: MoveCache = field(default_factory=MoveCache)
    """Moves, prunes and topologies that need no second look."""


@dataclass
class SearchState:
    """The state of a search between two steps, which decides the steps that follow."""

    candidates: list[CandidateTree]
    """Starts that are still searched; later the best tree alone."""
    landscapes: list[Landscape]
    rng: np.random.Generator
    pool: Pool
    fraction: float
    """Share of the inner edges that the next perturbation changes."""
    waiting: list[CandidateTree] = field(default_factory=list)
    """Starts whose turn has not come."""
    ended_starts: list[CandidateTree] = field(default_factory=list)
    """Starts that were searched to their ends, while others follow."""
    starts: int = 1
    """Starts that were searched so far."""
    ended: StartsEnded | None = None
    """Outcome of the starts, once known: a resumed run emits it again."""
    copies: list[CandidateTree] = field(default_factory=list)
    """Perturbed copies under repair."""
    step: str = ""
    """Name of the step that comes next (:func:`.search.tree_search`); empty before the first."""
    phase_rounds: int = 0
    """SPR rounds done in the phase under way; 0 before its first."""
    batches: int = 0
    """Batches of copies done."""
    failures: int = 0
    """Batches in a row that brought no better tree."""
    returned: int = 0
    """Copies since the last better tree that came back to the one they were made from."""
    finished: int = -1
    """Moves there had been when model and lengths were last at a maximum."""
    rounds: int = 0
    """SPR rounds done."""
    insertions: int = 0
    """Insertions scored."""
    moves: int = 0
    """Moves applied and kept."""

    @property
    def best(self) -> CandidateTree:
        """The best tree so far."""
        return best_of([*self.candidates, *self.copies, *self.ended_starts])

    @property
    def model(self) -> PartitionModel:
        """The model of the best tree."""
        return self.landscapes[self.best.landscape].model

    def copy(self) -> SearchState:
        """Return a copy that no step changes."""
        return replace(
            self,
            candidates=[candidate.copy() for candidate in self.candidates],
            copies=[candidate.copy() for candidate in self.copies],
            waiting=[candidate.copy() for candidate in self.waiting],
            ended_starts=[candidate.copy() for candidate in self.ended_starts],
            rng=deepcopy(self.rng),
            landscapes=[replace(one, cache=replace(one.cache)) for one in self.landscapes],
            pool=replace(self.pool),
        )


class Saving:
    """When a file is written again while a run goes on, and what happens if it cannot be."""

    def __init__(
        self,
        settings: CheckpointSettings,
        otherwise: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``otherwise``: how the run goes on where the file cannot be written."""
        self._settings = settings
        self._otherwise = otherwise
        self._clock = clock
        self._began = self._tried = clock()
        self._cost = 0.0
        self._is_failing = False

    def offer(self, write: Callable[[], object], emit: Emit, *, is_last: bool = False) -> bool:
        """Write the file if that is due or ``is_last``; True if it was written.

        An InputError that ``write`` raises is reported once, and ends nothing.
        """
        now = self._clock()
        if not is_last and now - self._tried < self._settings.pause(now - self._began, self._cost):
            return False
        try:
            write()
        except InputError as error:
            if not self._is_failing:
                emit(Notice(f"{error.message}; {self._otherwise}"))
            self._is_failing = True
        else:
            self._is_failing = False
        self._tried = self._clock()
        self._cost = self._tried - now
        return not self._is_failing


VERSION = 12
"""Raised whenever the file or the state changes its shape or its meaning."""

_FIRST_LINE = re.compile(rb"mltree checkpoint (\d{1,9})\n")

_COUNTERS = ("fraction", "step", "phase_rounds", "batches", "failures", "returned", "finished",
             "starts", "rounds", "insertions", "moves")  # fmt: skip

_CACHE_ARRAYS = ("moves", "prunes", "stalled", "converged")


def fingerprint(*parts: str | bytes) -> str:
    """Return the SHA-256 of all that decides how a search goes: data, options, version."""
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
        """State before the step under way; it never changes, so that any thread may save it."""
        self._fingerprint = fingerprint
        self._layouts = dict(layouts or {})
        self._saving = Saving(settings, "the search goes on without a checkpoint", clock)

    def step(self, state: SearchState, emit: Emit, *, is_last: bool = False) -> None:
        """Keep the state between two steps, and write it if that is due.

        A file that cannot be written is reported once, and does not end the search.
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
        """Write the kept state, if it can be written, after the search has failed."""
        if self.kept is not None:
            with suppress(InputError):
                self.save(self.kept)

    def load(self, model: PartitionModel) -> SearchState | None:
        """Read the state on file; None without a file.

        ``model`` gives what the checkpoint does not repeat: the alphabet and fixed parameters.
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
        """Read the layouts of any search's checkpoint on file; none without a file.

        Raises: InputError where the file is not a checkpoint.
        """
        if not path.exists():
            return {}
        _, meta = _read(path)
        return {device: (vw, rows) for device, (vw, rows) in meta["layouts"].items()}


def _read(path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Return the arrays and the ``meta`` data of a checkpoint.

    Raises: InputError where this version cannot read them. A file is parsed only if it is, to the
    last bit, as it was written.
    """
    content = read_own(path)
    header = _FIRST_LINE.match(content)
    if header is None:
        raise unusable(path, "is not a checkpoint, or a damaged one")
    if int(header[1]) != VERSION:
        raise unusable(path, "was written by another version of mltree, or is damaged")
    body = header.end() + hashlib.sha256().digest_size
    if hashlib.sha256(content[body:]).digest() != content[header.end() : body]:
        raise unusable(path, "is a damaged checkpoint")
    with np.load(io.BytesIO(content[body:]), allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    return arrays, json.loads(str(arrays["meta"]))


def _pack(
    state: SearchState, mark: str, layouts: Mapping[str, tuple[int, int]]
) -> dict[str, NDArray[Any]]:
    """Return the state as arrays by name; ``meta`` is the JSON text."""
    pooled = [CandidateTree(entry.tree, entry.lnl, "pool") for entry in state.pool.trees]
    groups = [state.candidates, state.copies, state.waiting, state.ended_starts, pooled]
    everyone = [*chain(*groups)]
    meta = {
        "fingerprint": mark,
        "layouts": layouts,
        "counts": [len(group) for group in groups],
        "candidates": [
            (x.lnl, x.origin, x.active, x.rounds, x.starts, x.landscape) for x in everyone
        ],
        "pool_limit": state.pool.limit,
        "landscapes": [
            {
                "models": [model.values() for model in one.model.models],
                "scalers": one.model.scalers.tolist(),
                "reach": one.cache.reach,
            }
            for one in state.landscapes
        ],
        "rng": state.rng.bit_generator.state,
        "ended": None if state.ended is None else asdict(state.ended),
        "counters": {name: getattr(state, name) for name in _COUNTERS},
    }
    return {
        "meta": np.array(json.dumps(meta)),
        "twin": np.stack([x.tree.twin for x in everyone]),
        "edge": np.stack([x.tree.edge for x in everyone]),
        "lengths": np.stack([x.tree.lengths for x in everyone]),
        **{
            f"{name} {number}": getattr(one.cache, name)
            for number, one in enumerate(state.landscapes)
            for name in _CACHE_ARRAYS
        },
    }


def _unpack(
    arrays: dict[str, NDArray[Any]], meta: dict[str, Any], model: PartitionModel
) -> SearchState:
    n_tips = (arrays["lengths"].shape[-1] + 3) // 2
    trees = zip(arrays["twin"], arrays["edge"], arrays["lengths"], strict=True)
    everyone = (
        CandidateTree(Tree(twin.copy(), edge.copy(), lengths.copy(), n_tips), *row)
        for (twin, edge, lengths), row in zip(trees, meta["candidates"], strict=True)
    )
    candidates, copies, waiting, ended, pooled = (list(islice(everyone, n)) for n in meta["counts"])
    rng = np.random.default_rng()
    rng.bit_generator.state = meta["rng"]
    landscapes = [
        _landscape(kept, {name: arrays[f"{name} {number}"] for name in _CACHE_ARRAYS}, model)
        for number, kept in enumerate(meta["landscapes"])
    ]
    pool = Pool(meta["pool_limit"])
    pool.add([x.tree for x in pooled], [x.lnl for x in pooled])
    return SearchState(
        candidates=candidates,
        copies=copies,
        waiting=waiting,
        ended_starts=ended,
        landscapes=landscapes,
        rng=rng,
        pool=pool,
        ended=None if meta["ended"] is None else StartsEnded(**meta["ended"]),
        **meta["counters"],
    )


def _landscape(
    kept: dict[str, Any], cached: dict[str, NDArray[Any]], model: PartitionModel
) -> Landscape:
    pairs = zip(model.models, kept["models"], strict=True)
    models = [part.with_values(values) for part, values in pairs]
    cache = MoveCache(**cached, reach=tuple(kept["reach"]))
    return Landscape(model.with_parts(models, np.array(kept["scalers"])), cache)
