"""Runs without a command line: what comes back, and that it is what commands show."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from mltree.device.discovery import REFERENCE
from mltree.fit.settings import preset
from mltree.models.grammar import format_model
from mltree.program.cases import Case
from mltree.runs import trees as steps
from mltree.runs.engines import Engines, Resources, Workload, open_engines
from mltree.runs.problem import Problem, load_problem
from mltree.runs.trees import (
    FIXED_TOPOLOGY,
    TreeSearch,
    fit_topology,
    prepare_search,
    search_workload,
)
from mltree.system.errors import InputError
from mltree.system.events import Event, Notice, RunFinished, SearchFinished, SearchResumed, ignore
from mltree.tree.newick import read_newick, write_newick
from mltree.tree.splits import same_topology
from mltree.treesearch.checkpoint import Checkpoint

FAST = preset("fast")
NEIGHBOURS = FAST.nni_only()


@pytest.fixture
def problem(tmp_path: Path) -> Problem:
    """Seven taxa, one of them there twice."""
    rng = random.Random(3)
    rows = ["".join(rng.choices("ACGT", k=60))]
    for _ in range(6):
        parent = rng.choice(rows)
        rows.append("".join(rng.choice("ACGT") if rng.random() < 0.2 else x for x in parent))
    path = tmp_path / "data.fa"
    path.write_text("".join(f">t{n}\n{row}\n" for n, row in enumerate([*rows, rows[2]])))
    return load_problem(str(path), "HKY+G2", ignore)


def ready(problem: Problem, **options: object) -> TreeSearch:
    return prepare_search(problem, NEIGHBOURS, **options)  # type: ignore[arg-type]


def test_a_search_gives_back_a_tree_of_all_taxa(problem: Problem) -> None:
    events: list[Event] = []
    search = ready(problem, emit=events.append)
    found = search.run(events.append)
    assert found.tree.n_tips == 8
    assert search.distinct.groups[0].n_tips == 7
    assert any("t7 = t2" in event.text for event in events if isinstance(event, Notice))
    assert events[-1] == SearchFinished(
        found.lnl, found.search.rounds, found.search.insertions, found.search.moves
    )
    engines = open_engines(Resources(), Workload.of(problem), ignore)
    scored = engines.likelihood.log_likelihoods([found.tree], [Case(found.model.arrays())])[0]
    assert found.lnl == pytest.approx(scored, rel=1e-9)
    assert found.seconds > 0


def test_fast_has_company_where_it_costs_little(
    problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But no more starts than were asked for."""
    fast = replace(FAST, tips_of_starts=0)
    for pays, starts, expected in (
        (False, None, 1),
        (True, None, FAST.starts_in_company),
        (True, "pars{2}", 2),
    ):
        monkeypatch.setattr(steps, "company_pays", lambda *_, pays=pays: pays)
        search = prepare_search(problem, fast, starts=starts)
        assert len(search.starts) == expected
        assert search.run().tree.n_tips == 8


def test_the_same_seed_gives_the_same_search(problem: Problem) -> None:
    one, same, other = (ready(problem, seed=seed, starts="rand{2}") for seed in (1, 1, 2))
    assert one.start_text == same.start_text != other.start_text
    assert one.fingerprint == same.fingerprint != other.fingerprint
    first, again = one.run(), same.run()
    assert first.lnl == again.lnl
    assert format_model(first.model.lone, 17) == format_model(again.model.lone, 17)
    taxa = problem.patterns.taxa
    assert write_newick(first.tree, taxa, None) == write_newick(again.tree, taxa, None)


def test_a_search_goes_on_from_a_checkpoint(problem: Problem, tmp_path: Path) -> None:
    def checkpoint(search: TreeSearch) -> Checkpoint:
        return Checkpoint(tmp_path / "x", search.fingerprint, search.settings.checkpoints)

    first = ready(problem)
    found = first.run(ignore, checkpoint(first))
    events: list[Event] = []
    second = ready(problem)
    again = second.run(events.append, checkpoint(second))
    assert isinstance(events[0], SearchResumed)
    assert again.lnl == found.lnl
    third = ready(problem, seed=2)
    with pytest.raises(InputError, match="other data, options"):
        third.run(ignore, checkpoint(third))


@pytest.mark.parametrize("constrained", [False, True])
def test_a_constraint_keeps_all_taxa(problem: Problem, tmp_path: Path, constrained: bool) -> None:
    (tmp_path / "groups").write_text("((t0,t1),(t2,t3));")
    groups = str(tmp_path / "groups") if constrained else None
    search = ready(problem, constraint=groups)
    assert search.distinct.groups[0].n_tips == (8 if constrained else 7)
    assert (search.constraint is not None) == constrained
    assert search.run().tree.n_tips == 8


def test_a_result_is_an_event(problem: Problem) -> None:
    found = ready(problem).run()
    newick = write_newick(found.tree, problem.patterns.taxa)
    event = found.event(newick, ["x.log"])
    assert isinstance(event, RunFinished)
    assert (event.lnl, event.seconds, event.taxa) == (found.lnl, found.seconds, 8)
    assert event.files == ("x.log",)
    assert event.tree_length == pytest.approx(found.tree.lengths.sum())
    assert same_topology(read_newick(event.tree, problem.patterns.taxa)[0], found.tree)
    again = load_problem(problem.summary.path, event.model, ignore).model.lone
    assert again.heterogeneity.alpha == pytest.approx(
        found.model.lone.heterogeneity.alpha, abs=1e-5
    )


def test_what_was_found_in_mixed_precision_is_scored_in_double(problem: Problem) -> None:
    events: list[Event] = []
    search = ready(problem, resources=Resources(mixed=True))
    found = search.run()
    exact = found.scored(search.engines, events.append)
    reference = open_engines(Resources(device=REFERENCE), Workload.of(problem))
    lnl = reference.likelihood.log_likelihoods([found.tree], [Case(found.model.arrays())])[0]
    assert exact.lnl == pytest.approx(lnl, rel=1e-9)
    assert replace(exact, lnl=found.lnl) == found
    (notice,) = events
    assert "scored again in fp64" in str(notice)
    assert len(search.engines.opened) == 2


def test_what_was_found_in_double_is_not_scored_again(problem: Problem) -> None:
    events: list[Event] = []
    search = ready(problem)
    found = search.run()
    assert found.scored(search.engines, events.append) is found
    assert search.engines.opened == [search.engines.likelihood.engine]
    assert not events


@pytest.mark.parametrize("parameters", [False, True])
@pytest.mark.parametrize("lengths", [False, True])
def test_an_evaluation_changes_what_it_may(
    problem: Problem, parameters: bool, lengths: bool
) -> None:
    engines = open_engines(Resources(), Workload.of(problem), ignore)
    tree = ready(problem).starts[0].tree
    whole = ready(problem).distinct.restore(tree)
    before = whole.lengths.copy()
    found = fit_topology(
        engines.likelihood, whole, problem.model, ignore,
        optimise_parameters=parameters, optimise_lengths=lengths,
        settings=FIXED_TOPOLOGY.for_precision(engines.is_exact),
    )  # fmt: skip
    scored = engines.likelihood.log_likelihoods([found.tree], [Case(found.model.arrays())])[0]
    assert found.lnl == pytest.approx(scored, rel=1e-9)
    assert same_topology(found.tree, whole)
    assert (found.tree.lengths == before).all() == (not lengths)
    assert (found.model is problem.model) == (not parameters)
    assert (whole.lengths == before).all()
    assert found.search is None


def test_the_memory_of_a_search_is_foretold(problem: Problem) -> None:
    """Of the workload that the search opens, copies of sequences left out."""
    foretold = Engines(Resources(), search_workload(problem, FAST))
    searched = prepare_search(problem, FAST).engines
    assert foretold.workload.groups[0].n_tips == 7
    plans = [engines.memory for engines in (foretold, searched)]
    first, second = [
        (own.trees, own.clas, own.near, own.tips, own.matrices) for own in plans if own
    ]
    assert first == second
