"""A search that several ranks answer: the bits of one that is alone, whoever answers what."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from mltree.data.alphabet import DNA
from mltree.fit.settings import (
    CheckpointSettings,
    PerturbationSettings,
    PhaseSettings,
    SearchSettings,
)
from mltree.likelihood.likelihood import Columns, TreeLikelihood
from mltree.likelihood.requests import PartLogLikelihoods, Request, SmoothTrees
from mltree.models.grammar import parse_model
from mltree.models.partitioned import Linkage, PartitionModel, alone
from mltree.program.engine import Engine
from mltree.runs import trees as among_ranks
from mltree.runs.trees import AmongRanks
from mltree.system.errors import InputError
from mltree.system.ranks import Ranks
from mltree.tree.topology import random_topology
from mltree.treesearch.checkpoint import Checkpoint
from mltree.treesearch.search import SearchOutcome, StartingTree, search
from mltree.treesearch.spr import ScoreMoves

if TYPE_CHECKING:
    from simulated import Simulated

BOUNDS = (1e-6, 100.0)

SETTINGS = SearchSettings(
    phases=(PhaseSettings(25, 50.0), PhaseSettings(25, 100.0, fully_smoothed=4)),
    perturbation=PerturbationSettings(copies=3, patience=1),
)


class Crew(Ranks):
    """Ranks of one process, which get and give what would be sent."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.shared: dict[type[Request], int] = {}
        self._works: list[Callable[[Any], Any]] = []

    def everywhere(self, check: Callable[[], Any]) -> None:
        self._works = [check() for _ in range(1, self.size)]

    def gather(self, tasks: Sequence[Any], answer: Callable[[Any], Any]) -> list[Any]:
        own, *others = tasks
        kind = type(own)
        self.shared[kind] = max(self.shared.get(kind, 0), len(tasks))
        found = [_sent(work(_sent(task))) for work, task in zip(self._works, others, strict=False)]
        return [answer(own), *found]


def _sent(content: Any) -> Any:
    return pickle.loads(pickle.dumps(content))


def found_by(
    ranks: int, open_: Callable[[], TreeLikelihood], model: PartitionModel, tips: int, case: int
) -> tuple[SearchOutcome, Crew]:
    """What a search finds, and who answered it."""
    rng = np.random.default_rng(case)
    starts = [StartingTree(random_topology(tips, rng), f"random {n}") for n in range(3)]
    for start in starts:
        start.tree.lengths = model.spread(start.tree.lengths)
    likelihood, crew = open_(), Crew(ranks)
    ask = AmongRanks(likelihood, crew, open_) if ranks > 1 else None
    return search(likelihood, starts, model, SETTINGS, rng, ask=ask), crew


def assert_same(one: SearchOutcome, other: SearchOutcome) -> None:
    assert one.lnl == other.lnl
    for field in ("twin", "edge", "lengths"):
        np.testing.assert_array_equal(getattr(one.tree, field), getattr(other.tree, field))
    assert (one.rounds, one.insertions, one.moves) == (other.rounds, other.insertions, other.moves)
    assert one.model.text == other.model.text
    assert [tree.lnl for tree in one.pool.trees] == [tree.lnl for tree in other.pool.trees]


@pytest.fixture(autouse=True)
def _everything_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(among_ranks, "LEAST_SECONDS", 0.0)


@pytest.mark.cases(2, 40)
def test_a_search_has_the_bits_of_one_process(
    case: int, make_case: Callable[..., Simulated], open_native: Callable[..., Engine]
) -> None:
    """On a device, with any number of ranks."""
    rng = np.random.default_rng([case, 19])
    tips, sites = int(rng.integers(5, 14)), int(rng.integers(40, 300))
    data = make_case(tips, sites, case)
    text = "HKY+FE+I+G2" if case % 2 else "HKY+FE+G2"
    model = alone(parse_model(text, DNA))

    def open_() -> TreeLikelihood:
        engine = open_native(data.patterns, max(model.categories))
        return TreeLikelihood(engine, BOUNDS, Columns.of([data.patterns]))

    lone, _ = found_by(1, open_, model, tips, case)
    size = int(rng.integers(2, 6))
    among, crew = found_by(size, open_, model, tips, case)
    assert_same(lone, among)
    assert crew.shared[SmoothTrees] >= min(size, 3)  # starts, or more copies
    assert crew.shared[PartLogLikelihoods] == crew.shared[ScoreMoves] == size


@pytest.mark.parametrize("linkage", list(Linkage))
def test_parts_too(linkage: Linkage, make_parts: Callable[..., Simulated]) -> None:
    data = make_parts(5, (25, 15), 4, linkage, texts=("JC+G2m{0.6}", "K80{2}"))
    lone, _ = found_by(1, lambda: data.likelihood, data.model, 5, 1)
    among, _ = found_by(2, lambda: data.likelihood, data.model, 5, 1)
    assert_same(lone, among)


def test_what_takes_no_time_is_answered_alone(
    make_case: Callable[..., Simulated], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(among_ranks, "LEAST_SECONDS", 1e9)
    data = make_case(5, 40)
    _, crew = found_by(3, lambda: data.likelihood, data.model, 5, 1)
    assert set(crew.shared.values()) == {1}


def test_a_search_goes_on_from_where_a_rank_has_died(
    make_case: Callable[..., Simulated], tmp_path: Path
) -> None:
    data = make_case(6, 40)

    class Mortal(Crew):
        lives = 12

        def gather(self, tasks: Sequence[Any], answer: Callable[[Any], Any]) -> list[Any]:
            self.lives -= 1
            if not self.lives:
                raise InputError("rank 1 has died")
            return super().gather(tasks, answer)

    def found(ask: AmongRanks | None, path: Path) -> SearchOutcome:
        rng = np.random.default_rng(1)
        starts = [StartingTree(random_topology(6, rng), f"random {n}") for n in range(3)]
        checkpoint = Checkpoint(path, "a mark", CheckpointSettings(first=1e9))
        return search(
            data.likelihood, starts, data.model, SETTINGS, rng, checkpoint=checkpoint, ask=ask
        )

    path, ask = tmp_path / "x", AmongRanks(data.likelihood, Mortal(2), lambda: data.likelihood)
    with pytest.raises(InputError, match="rank 1 has died"):
        found(ask, path)
    before = Checkpoint(path, "a mark", CheckpointSettings()).load(data.model)
    assert before is not None
    assert before.step not in {"", "smooth starts"}
    assert_same(found(None, path), found(None, tmp_path / "y"))
