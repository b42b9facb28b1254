"""Checkpoint files: exact, atomic, and suspicious of strangers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mltree.alignment.alphabet import DNA
from mltree.errors import InputError
from mltree.events import ignore
from mltree.model.grammar import parse_model
from mltree.search.checkpoint import Checkpoint, fingerprint
from mltree.search.lineage import Lineage
from mltree.search.pool import Pool
from mltree.search.state import SearchState
from mltree.tree.random_trees import random_topology

MODEL = parse_model("GTR{1/2.5/0.3/1.1/4.7/1}+FU{0.1/0.2/0.3/0.4}+G4{0.123456789}", DNA)


@pytest.fixture
def state() -> SearchState:
    rng = np.random.default_rng(12)
    trees = [random_topology(9, rng) for _ in range(3)]
    for tree in trees:
        tree.lengths[:] = rng.random(tree.n_edges)
    pool = Pool(4)
    pool.add(trees[0], -1 / 3)
    lineages = [Lineage(trees[0], -np.pi, "parsimony 1", False, 3)]
    copies = [Lineage(trees[1], -np.inf, "copy 1"), Lineage(trees[2], -2.0, "copy 2")]
    return SearchState(lineages, MODEL, rng, pool, 0.15, copies, 5, True, 2, 1, 17, 4711, 42)


def test_reads_back_the_same_bits(state: SearchState, tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "x.ckp", "mark", 60.0)
    checkpoint.save(state)
    again = checkpoint.load(parse_model("GTR+FC+G4", DNA))
    assert again is not None
    for mine, theirs in zip(
        [*state.lineages, *state.copies], [*again.lineages, *again.copies], strict=True
    ):
        assert (mine.tree.twin == theirs.tree.twin).all()
        assert (mine.tree.edge == theirs.tree.edge).all()
        assert (mine.tree.lengths == theirs.tree.lengths).all()
        theirs.tree = mine.tree
        assert mine == theirs
    assert (again.model.rates == MODEL.rates).all()
    assert (again.model.frequencies == MODEL.frequencies).all()
    assert again.model.alpha == MODEL.alpha
    assert again.rng.random() == state.rng.random()
    assert [e.key for e in again.pool.trees] == [e.key for e in state.pool.trees]
    counters = ("fraction", "stage", "entered", "batches", "failures", "rounds", "moves")
    assert all(getattr(again, name) == getattr(state, name) for name in counters)
    assert [path.name for path in tmp_path.iterdir()] == ["x.ckp"]


def test_nothing_to_resume(tmp_path: Path) -> None:
    assert Checkpoint(tmp_path / "none", "mark", 60.0).load(MODEL) is None


def test_keeps_the_layouts(state: SearchState, tmp_path: Path) -> None:
    path = tmp_path / "x"
    assert Checkpoint.read_layouts(path) == {}
    layouts = {"a device": (32, 4), "another": (8, 1)}
    Checkpoint(path, "mark", 60.0, layouts).save(state)
    assert Checkpoint.read_layouts(path) == layouts


def test_other_data_are_refused(state: SearchState, tmp_path: Path) -> None:
    Checkpoint(tmp_path / "x", "mark", 60.0).save(state)
    with pytest.raises(InputError, match="other data or options"):
        Checkpoint(tmp_path / "x", "other", 60.0).load(MODEL)


@pytest.mark.parametrize("size", [0, 10, 500, 2000])
def test_damage_is_noticed(state: SearchState, tmp_path: Path, size: int) -> None:
    path = tmp_path / "x"
    Checkpoint(path, "mark", 60.0).save(state)
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(InputError, match="checkpoint"):
        Checkpoint(path, "mark", 60.0).load(MODEL)
    with pytest.raises(InputError, match="checkpoint"):
        Checkpoint.read_layouts(path)


def test_writes_at_the_end_of_a_stage_and_when_time_has_passed(
    state: SearchState, tmp_path: Path
) -> None:
    now = [0.0]
    events: list[object] = []
    checkpoint = Checkpoint(tmp_path / "x", "mark", 60.0, clock=lambda: now[0])
    for now[0], ended in ((10.0, False), (20.0, True), (70.0, False), (81.0, False)):
        checkpoint.step(state, stage_ended=ended, emit=events.append)
    assert len(events) == 2
    checkpoint.remove()
    checkpoint.remove()
    checkpoint.step(state, stage_ended=False, emit=ignore)
    assert not (tmp_path / "x").exists()


def test_the_fingerprint_keeps_parts_apart() -> None:
    assert fingerprint("ab", "c") != fingerprint("a", "bc")
    assert fingerprint("a", b"bc") == fingerprint("a", "bc")
