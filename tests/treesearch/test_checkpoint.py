"""Checkpoint files: exact, atomic, and suspicious of strangers."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from mltree.data.alphabet import DNA
from mltree.fit.settings import CheckpointSettings
from mltree.models.grammar import parse_model
from mltree.models.partitioned import Linkage, PartitionModel, alone
from mltree.system.errors import InputError
from mltree.system.events import CheckpointWritten, Event, Notice, ignore
from mltree.tree.topology import random_topology
from mltree.treesearch.checkpoint import (
    VERSION,
    CandidateTree,
    Checkpoint,
    Landscape,
    Pool,
    SearchState,
    fingerprint,
)
from mltree.treesearch.move_cache import MoveCache

ALWAYS = CheckpointSettings(first=0.0, growth=0.0, share=math.inf)

READ = Checkpoint.read_layouts

MODEL = alone(parse_model("GTR{1/2.5/0.3/1.1/4.7/1}+FU{0.1/0.2/0.3/0.4}+G4{0.123456789}", DNA))
OTHER = parse_model("GTR{1/1.5/0.7/1.1/9.7/1}+FU{0.3/0.1/0.2/0.4}+G4{9.87654321}", DNA)


PARTS = PartitionModel(
    (MODEL.lone, parse_model("HKY{3.5}+FU{0.25/0.15/0.35/0.25}+I{0.1}", DNA)),
    ("a", "b"),
    Linkage.SCALED,
    np.array([1 / 3, 1.7]),
    np.array([0.5, 0.5]),
)


@pytest.fixture
def state() -> SearchState:
    return state_of(MODEL, 1)


def state_of(model: PartitionModel, parts: int) -> SearchState:
    """A search in the middle; with lengths of every part's own where there are several."""
    rng = np.random.default_rng(12)
    trees = [random_topology(9, rng) for _ in range(3)]
    for tree in trees:
        tree.lengths = rng.random((parts, tree.n_edges) if parts > 1 else tree.n_edges)
    pool = Pool(4)
    pool.add(trees[:1], [-1 / 3])
    candidates = [CandidateTree(trees[0], -np.pi, "random 1", False, 3, 2, 1)]
    copies = [CandidateTree(trees[1], -np.inf, "copy 1"), CandidateTree(trees[2], -2.0, "copy 2")]
    keys = np.sort(rng.integers(0, 2**64, (2, 4, 5), np.uint64))
    landscapes = [
        Landscape(model, MoveCache(*some, reach=(25.0, np.inf, 1.5, 8.0 * n)))
        for n, some in enumerate(keys)
    ]
    landscapes[0].model = model.with_parts([OTHER, *model.models[1:]], model.scalers)
    return SearchState(
        candidates, landscapes, rng, pool, 0.15,
        waiting=[CandidateTree(trees[1].copy(), -np.inf, "parsimony 2")], starts=3,
        copies=copies, step="phase 2", phase_rounds=3, batches=2, failures=1, returned=6,
        rounds=17, insertions=4711, moves=42,
    )  # fmt: skip


LONE_START = alone(parse_model("GTR+FC+G4", DNA))
PARTED_START = PARTS.with_parts([LONE_START.lone, parse_model("HKY+FC+I", DNA)], np.ones(2))


@pytest.mark.parametrize(
    ("model", "parts", "start"),
    [(MODEL, 1, LONE_START), (PARTS, 1, PARTED_START), (PARTS, 2, PARTED_START)],
)
def test_reads_back_the_same_bits(
    model: PartitionModel, parts: int, start: PartitionModel, tmp_path: Path
) -> None:
    state = state_of(model, parts)
    checkpoint = Checkpoint(tmp_path / "x.ckp", "mark", ALWAYS)
    checkpoint.save(state)
    again = checkpoint.load(start)
    assert again is not None
    for mine, theirs in zip(
        [*state.candidates, *state.copies, *state.waiting],
        [*again.candidates, *again.copies, *again.waiting],
        strict=True,
    ):
        assert (mine.tree.twin == theirs.tree.twin).all()
        assert (mine.tree.edge == theirs.tree.edge).all()
        assert (mine.tree.lengths == theirs.tree.lengths).all()
        theirs.tree = mine.tree
        assert mine == theirs
    for own, read in zip(state.landscapes, again.landscapes, strict=True):
        mine, theirs = own.model, read.model
        assert [one.values() for one in theirs.models] == [one.values() for one in mine.models]
        assert (theirs.scalers == mine.scalers).all()
        assert (theirs.names, theirs.linkage) == (mine.names, mine.linkage)
        for name in ("moves", "prunes", "stalled", "converged"):
            assert (getattr(read.cache, name) == getattr(own.cache, name)).all()
        assert read.cache.reach == own.cache.reach
    assert again.rng.random() == state.rng.random()
    assert [e.key for e in again.pool.trees] == [e.key for e in state.pool.trees]
    counters = (
        "fraction", "step", "phase_rounds", "batches", "failures", "returned", "starts", "rounds",
        "moves",
    )  # fmt: skip
    assert all(getattr(again, name) == getattr(state, name) for name in counters)
    assert [path.name for path in tmp_path.iterdir()] == ["x.ckp"]


def test_nothing_to_resume(tmp_path: Path) -> None:
    assert Checkpoint(tmp_path / "none", "mark", ALWAYS).load(MODEL) is None


def test_keeps_the_layouts(state: SearchState, tmp_path: Path) -> None:
    path = tmp_path / "x"
    assert Checkpoint.read_layouts(path) == {}
    layouts = {"a device": (32, 4), "another": (8, 1)}
    Checkpoint(path, "mark", ALWAYS, layouts).save(state)
    assert Checkpoint.read_layouts(path) == layouts


def test_other_data_are_refused(state: SearchState, tmp_path: Path) -> None:
    Checkpoint(tmp_path / "x", "mark", ALWAYS).save(state)
    with pytest.raises(InputError, match="other data, options or version"):
        Checkpoint(tmp_path / "x", "other", ALWAYS).load(MODEL)


@pytest.mark.parametrize("size", [0, 10, 40, 500, 2000])
def test_a_cut_is_noticed(state: SearchState, tmp_path: Path, size: int) -> None:
    path = tmp_path / "x"
    Checkpoint(path, "mark", ALWAYS).save(state)
    path.write_bytes(path.read_bytes()[:size])
    assert_refused(path)


@pytest.mark.cases(4, 400)
def test_no_damage_is_read(state: SearchState, tmp_path: Path, case: int) -> None:
    """Bits flipped, bytes overwritten, taken out or put in, anywhere: 50 times."""
    path, rng = tmp_path / "x", np.random.default_rng(case)
    Checkpoint(path, "mark", ALWAYS).save(state)
    content = path.read_bytes()
    for _ in range(50):
        at, size = int(rng.integers(len(content))), int(rng.integers(1, 9))
        flipped = bytearray(content)
        flipped[at] ^= 1 << int(rng.integers(8))
        for damaged in (
            bytes(flipped),
            content[:at] + rng.bytes(size) + content[at + size :],
            content[:at] + content[at + size :],
            content[:at] + rng.bytes(size) + content[at:],
        ):
            path.write_bytes(damaged)
            if damaged != content:
                assert_refused(path)


def assert_refused(path: Path) -> None:
    for read in (lambda: Checkpoint(path, "mark", ALWAYS).load(MODEL), partial(READ, path)):
        with pytest.raises(InputError, match=r"checkpoint|another version") as raised:
            read()
        assert "--redo" in str(raised.value.hint)


def test_another_version_is_refused(state: SearchState, tmp_path: Path) -> None:
    path = tmp_path / "x"
    Checkpoint(path, "mark", ALWAYS).save(state)
    path.write_bytes(path.read_bytes().replace(b"%d\n" % VERSION, b"%d\n" % (VERSION + 1), 1))
    with pytest.raises(InputError, match="another version"):
        READ(path)


def test_what_cannot_be_read_says_why(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read .*: Is a directory"):
        READ(tmp_path)


RULES = CheckpointSettings(first=1.0, growth=0.1, longest=60.0, share=0.01)


def test_writes_soon_then_more_rarely_and_in_the_end(state: SearchState, tmp_path: Path) -> None:
    now = [0.0]
    events: list[object] = []
    checkpoint = Checkpoint(tmp_path / "x", "mark", RULES, clock=lambda: now[0])
    written = []
    for now[0] in np.arange(0.0, 1800.0).tolist():
        before = len(events)
        checkpoint.step(state, events.append)
        written += [now[0]] * (len(events) - before)
    assert written[:4] == [1.0, 2.0, 3.0, 4.0]
    pauses = np.diff(written)
    assert (pauses[np.array(written[1:]) > 100] >= 10).all()
    assert pauses.max() == 60.0
    checkpoint.step(state, events.append, is_last=True)
    assert len(events) == len(written) + 1


def test_a_slow_disk_is_written_to_more_rarely(state: SearchState, tmp_path: Path) -> None:
    """No more than a hundredth of the time goes there."""
    now, spent = [0.0], 0.0

    class Slow(Checkpoint):
        def save(self, state: SearchState) -> None:
            nonlocal spent
            now[0] += 0.5
            spent += 0.5

    checkpoint = Slow(tmp_path / "x", "mark", RULES, clock=lambda: now[0])
    while now[0] < 3600:
        now[0] += 2.0
        checkpoint.step(state, ignore)
    assert 0.0 < spent <= 0.0105 * 3600


def test_a_disk_that_is_full_is_told_of_once_and_tried_again(
    state: SearchState, tmp_path: Path
) -> None:
    events: list[Event] = []
    folder = tmp_path / "later"
    checkpoint = Checkpoint(folder / "x", "mark", ALWAYS)
    for _ in range(3):
        checkpoint.step(state, events.append)
    (notice,) = events
    assert isinstance(notice, Notice)
    assert "x: No such file or directory; the search goes on" in notice.text
    folder.mkdir()
    checkpoint.step(state, events.append)
    assert isinstance(events[-1], CheckpointWritten)


def test_what_is_kept_is_nobody_elses(state: SearchState, tmp_path: Path) -> None:
    """What a step changes in place does not change it."""
    checkpoint = Checkpoint(tmp_path / "x", "mark", RULES)
    assert checkpoint.kept is None
    checkpoint.step(state, ignore)
    kept = checkpoint.kept
    assert kept is not None
    checkpoint.save(kept)
    before = checkpoint.path.read_bytes()
    for candidate in [*state.candidates, *state.copies]:
        candidate.tree.lengths += 1.0
        candidate.tree.twin[:] = 0
        candidate.lnl, candidate.active = 0.0, not candidate.active
    state.rng.random()
    state.pool.add([random_topology(9, state.rng)], [0.0])
    state.candidates.append(state.copies.pop())
    state.step = "finish"
    checkpoint.save(kept)
    assert checkpoint.path.read_bytes() == before


def test_the_fingerprint_keeps_parts_apart() -> None:
    assert fingerprint("ab", "c") != fingerprint("a", "bc")
    assert fingerprint("a", b"bc") == fingerprint("a", "bc")
