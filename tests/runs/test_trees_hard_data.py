"""Searches of data whose parsimony trees differ much."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from simulated import simulate

from mltree.data.alphabet import DNA
from mltree.fit.settings import CheckpointSettings, preset
from mltree.models.grammar import parse_model
from mltree.runs.problem import Problem, load_problem
from mltree.runs.trees import prepare_search
from mltree.system.events import CheckpointWritten, Event, Notice, StartTree, ignore
from mltree.tree.splits import mean_distance
from mltree.tree.topology import uniform_tree
from mltree.treesearch.checkpoint import Checkpoint

DEFAULT = preset("default")

SMALL = replace(
    DEFAULT, hard_starts=(1, 4), hard_chance=1e-9,
    perturbation=replace(DEFAULT.perturbation, patience=1, copies=2),
)  # fmt: skip
"""All starts of few, in two turns on a CPU."""

LETTERS = np.zeros(9, np.uint8)
LETTERS[[1, 2, 4, 8]] = np.frombuffer(b"ACGT", np.uint8)


def aligned(folder: Path, seed: int, taxa: int = 16, sites: int = 60, trees: int = 2) -> Problem:
    """An alignment of which unrelated trees made so many sites each."""
    rng = np.random.default_rng(seed)
    model = parse_model("HKY{3}+FU{0.3/0.2/0.2/0.3}+G4m{0.7}", DNA)
    made = [simulate(uniform_tree(taxa, 0.1, rng), model, sites, rng) for _ in range(trees)]
    rows = LETTERS[np.concatenate(made, axis=1)]
    path = folder / f"{seed}.fa"
    path.write_text("".join(f">t{n}\n{row.tobytes().decode()}\n" for n, row in enumerate(rows)))
    return load_problem(str(path), "HKY+FC+G2", ignore)


@pytest.fixture
def hard(tmp_path: Path) -> Problem:
    return aligned(tmp_path, 1)


def test_random_starts_join_where_parsimony_trees_differ(hard: Problem) -> None:
    events: list[Event] = []
    search = prepare_search(hard, DEFAULT, emit=events.append)
    kinds = [start.origin.split()[0] for start in search.starts]
    parsimony, random = DEFAULT.hard_starts
    assert kinds == ["parsimony"] * parsimony + ["random"] * random
    assert any("random starting trees join" in e.text for e in events if isinstance(e, Notice))
    same = prepare_search(hard, DEFAULT)
    other = prepare_search(hard, DEFAULT, seed=2)
    assert search.start_text == same.start_text != other.start_text


def test_where_parsimony_trees_agree_nothing_changes(tmp_path: Path) -> None:
    easy = aligned(tmp_path, 1, sites=1_000, trees=1)
    search = prepare_search(easy, DEFAULT)
    assert mean_distance([start.tree for start in search.starts]) < 0.3
    assert [start.is_random for start in search.starts] == [False] * len(search.starts)
    assert search.settings.chance == 0.0
    assert not search.settings.perturbation.resolves


@pytest.mark.parametrize("choice", ["pars{3}", "fast"])
def test_users_who_choose_starts_or_speed_get_no_random_ones(hard: Problem, choice: str) -> None:
    search = prepare_search(
        hard,
        preset("fast") if choice == "fast" else DEFAULT,
        starts=choice if choice.startswith("pars") else None,
    )
    assert search.starts
    assert not any(start.is_random for start in search.starts)


def test_parsimony_starts_stay_beside_random_ones_under_a_constraint(
    hard: Problem, tmp_path: Path
) -> None:
    path = tmp_path / "constraint.nwk"
    path.write_text("((t0,t1),(t2,t3),t4);")
    search = prepare_search(hard, DEFAULT, constraint=str(path))
    drawn = [start.is_random for start in search.starts]
    usual = DEFAULT.parsimony_starts
    assert drawn == [False] * usual + [True] * (sum(DEFAULT.hard_starts) - usual)


class Killed(Exception):
    """The power goes."""


def test_every_landscape_goes_on_with_the_same_bits(hard: Problem, tmp_path: Path) -> None:
    """Stopped before the first phase, in the middle and among the copies."""
    search = prepare_search(hard, SMALL)
    assert [start.is_random for start in search.starts] == [False, *[True] * 4]
    always = CheckpointSettings(first=0.0, growth=0.0, share=math.inf)
    written: list[Event] = []
    whole = search.run(written.append, Checkpoint(tmp_path / "whole", "data", always))
    steps = sum(isinstance(event, CheckpointWritten) for event in written)
    assert steps > 12
    for share in (0.2, 0.5, 0.8):
        left = iter([False] * round(share * steps))

        def pull_the_plug(event: Event, left: object = left) -> None:
            if isinstance(event, CheckpointWritten) and next(left, True):
                raise Killed

        path = tmp_path / f"{share}"
        with pytest.raises(Killed):
            prepare_search(hard, SMALL).run(pull_the_plug, Checkpoint(path, "data", always))
        resumed = prepare_search(hard, SMALL).run(ignore, Checkpoint(path, "data", always))
        assert resumed.lnl == whole.lnl
        assert (resumed.tree.twin == whole.tree.twin).all()
        assert (resumed.tree.lengths == whole.tree.lengths).all()
        values = [one.model.lone.values() for one in (resumed, whole)]
        assert values[0] == values[1]


def test_random_starts_find_better_trees(tmp_path: Path) -> None:
    """Than parsimony starts alone, in all: of nineteen such sets five gained 30 lnL, two lost 2."""
    gained = 0.0
    for seed in (100, 101, 102):
        problem = aligned(tmp_path, seed, 24, 150)
        events: list[Event] = []
        ours = prepare_search(problem, DEFAULT).run(events.append)
        assert any(isinstance(e, StartTree) and e.origin.startswith("random") for e in events)
        gained += ours.lnl - prepare_search(problem, replace(DEFAULT, hard_starts=(0, 0))).run().lnl
    assert gained > 1.0
