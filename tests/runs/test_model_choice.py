"""Choices of models on simulated data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from mltree.data.alphabet import DNA
from mltree.device.discovery import REFERENCE
from mltree.models.eigen import p_matrices
from mltree.models.grammar import parse_model
from mltree.models.parameters import free_parameters
from mltree.models.partitioned import alone
from mltree.program.cases import Case
from mltree.runs.engines import Resources, Workload, open_engines
from mltree.runs.model_choice import (
    REFIT_MARGIN,
    Criterion,
    KnownModels,
    RankedModels,
    choose_models,
    matrices,
)
from mltree.runs.problem import Problem, load_problem
from mltree.runs.trees import FIXED_TOPOLOGY, fit_topology
from mltree.system.events import CandidatesScored, Emit, Event, ModelChosen, ignore
from mltree.tree.topology import Tree, random_topology

ON = Resources(device=REFERENCE)
ANY = Resources()
"""The reference takes minutes for what several choices need."""

TRUTHS = ("HKY{5}+FU{0.4/0.1/0.2/0.3}+G4{0.3}", "JC")
"""What parts evolve under."""

COARSE = 0.05
"""lnL that a fit of a candidate may lack to one that is taken to the end."""


def evolved(tree: Tree, text: str, sites: int, rng: np.random.Generator) -> list[str]:
    """A row of bases for every tip."""
    arrays = parse_model(text, DNA).arrays()
    category = rng.choice(arrays.rates.size, sites, p=arrays.weights)
    p = p_matrices(arrays, tree.lengths)
    rows: list[np.ndarray] = [np.empty(0)] * tree.n_nodes
    rows[0] = rng.choice(4, sites, p=arrays.frequencies)
    todo = [0]
    while todo:
        half = todo.pop()
        for h in (half,) if half == 0 else tree.siblings(half):
            below = int(tree.twin[h])
            chances = p[tree.edge[h], category, rows[half // 3]].cumsum(axis=1)
            rows[below // 3] = (rng.random((sites, 1)) > chances[:, :-1]).sum(axis=1)
            if below >= 3 * tree.n_tips:
                todo.append(below)
    return ["".join("ACGT"[x] for x in row) for row in rows[: tree.n_tips]]


@dataclass(frozen=True)
class Data:
    """An alignment that evolved under one model a part."""

    problem: Problem
    tree: Tree
    truths: Sequence[str]


def simulated(folder: Path, truths: Sequence[str], sites: int, seed: int) -> Data:
    rng = np.random.default_rng([seed, 14])
    tree = random_topology(6, rng)
    tree.lengths[:] = rng.uniform(0.05, 0.4, tree.n_edges)
    parts = [evolved(tree, text, sites, rng) for text in truths]
    rows = ["".join(row) for row in zip(*parts, strict=True)]
    path, scheme = folder / "data.fa", folder / "data.part"
    path.write_text("".join(f">t{n}\n{row}\n" for n, row in enumerate(rows)))
    scheme.write_text(
        "".join(f"DNA, part{n} = {n * sites + 1}-{(n + 1) * sites}\n" for n in range(len(truths)))
    )
    model = str(scheme) if len(truths) > 1 else None
    return Data(load_problem(str(path), model, ignore), tree, truths)


def chosen(
    data: Data, criterion: Criterion = Criterion.BIC, emit: Emit = ignore, on: Resources = ON
) -> list[RankedModels]:
    problem = data.problem
    return choose_models(problem.groups[0], problem.model.names, data.tree, on, criterion, emit)


def optimised(data: Data, name: str, part: int = 0) -> float:
    """LnL of a model on the tree, by an evaluation that knows nothing of the choice."""
    patterns = data.problem.part(part)
    own = replace(data.problem, groups=(patterns,), data=None)
    model = parse_model(name, DNA).with_empirical_frequencies(patterns)
    own = replace(own, model=alone(model))
    likelihood = open_engines(ON, Workload.of(own), ignore).likelihood
    return fit_topology(
        likelihood, data.tree, own.model, ignore,
        optimise_parameters=True, optimise_lengths=True, settings=FIXED_TOPOLOGY,
    ).lnl  # fmt: skip


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> tuple[Data, RankedModels, list[Event]]:
    data = simulated(tmp_path_factory.mktemp("single"), TRUTHS[:1], 300, 1)
    events: list[Event] = []
    (choice,) = chosen(data, emit=events.append)
    return data, choice, events


def test_the_best_scores_no_worse_than_what_made_the_data(single) -> None:
    data, choice, _ = single
    truth = "HKY+FC+G4"
    lnl = optimised(data, truth)
    free = free_parameters(parse_model(truth, DNA)) + data.tree.n_edges
    score = Criterion.BIC.score(lnl, free, data.problem.n_sites)
    assert choice.best.score(Criterion.BIC) <= score + 2 * COARSE


def test_whole_fits_are_what_an_evaluation_finds(single) -> None:
    data, choice, _ = single
    whole = [one for one in choice.ranked if one.whole]
    assert choice.best in whole
    assert len({one.candidate.matrix for one in whole}) > 1
    for one in (choice.best, whole[1], whole[-1]):
        expected = optimised(data, one.name)
        assert expected - COARSE < one.lnl < expected + COARSE, one.name


def test_a_screening_is_a_lower_bound(single) -> None:
    data, choice, _ = single
    screened = [one for one in choice.ranked if not one.whole]
    for one in (screened[0], screened[-1]):
        assert one.lnl < optimised(data, one.name) + COARSE, one.name


def test_what_is_scored_is_what_the_tree_and_the_model_have(single) -> None:
    data, choice, _ = single
    own = open_engines(ON, Workload.of(data.problem, FIXED_TOPOLOGY))
    for one in choice.ranked:
        problem = replace(data.problem, model=alone(one.model))
        likelihood = own.likelihood
        if one.model.arrays().n_categories != 4:
            likelihood = open_engines(ON, Workload.of(problem), ignore).likelihood
        lnl = likelihood.log_likelihoods([one.tree], [Case(problem.model.arrays())])[0]
        assert one.lnl == pytest.approx(float(lnl), abs=1e-7), one.name


def test_fits_may_begin_with_a_model_and_on_an_open_likelihood(single) -> None:
    """Which both save time alone."""
    data, choice, _ = single
    own = open_engines(ON, Workload.of(data.problem, FIXED_TOPOLOGY)).likelihood
    start = parse_model("GTR{1/9/1/1/9/1}+FC+G4{0.3}", DNA)
    problem = data.problem
    (again,) = choose_models(
        problem.groups[0], problem.model.names, data.tree, ON, Criterion.BIC, ignore,
        KnownModels(
            models=[start.with_empirical_frequencies(problem.groups[0])], likelihoods={4: own}
        ),
    )  # fmt: skip
    assert again.best.name == choice.best.name
    assert again.best.lnl == pytest.approx(choice.best.lnl, abs=COARSE)


def test_every_matrix_is_compared_and_counted(single) -> None:
    _, choice, _ = single
    assert {one.candidate.matrix for one in choice.ranked} == set(matrices(DNA))
    for name, one in choice.scored.items():
        free = free_parameters(parse_model(name, DNA)) + 2 * 6 - 3
        assert (one.name, one.parameters, one.sites) == (name, free, 300)


def test_rates_that_came_near_are_tried_under_the_best_matrix(single) -> None:
    """However much worse the reference is than that."""
    _, choice, _ = single
    reference = [one for one in choice.ranked if one.candidate.matrix == matrices(DNA)[0]]
    scores = {one.candidate.rates: one.score(Criterion.BIC) for one in reference}
    assert min(scores.values()) > choice.best.score(Criterion.BIC) + REFIT_MARGIN
    near = [
        rates for rates, score in scores.items() if score <= min(scores.values()) + REFIT_MARGIN
    ]
    assert len(near) > 1
    assert choice.scored.keys() >= {choice.best.candidate.matrix + rates for rates in near}


@pytest.mark.parametrize("criterion", Criterion)
def test_weights_are_akaike_s(single, criterion: Criterion) -> None:
    _, choice, _ = single
    weights = choice.weights(criterion)
    assert sum(weights.values()) == pytest.approx(1.0)
    best = min(choice.ranked, key=lambda one: one.score(criterion))
    for name, one in choice.scored.items():
        delta = one.score(criterion) - best.score(criterion)
        assert weights[name] == pytest.approx(weights[best.name] * np.exp(-delta / 2))


def test_events_add_up(single) -> None:
    _, choice, events = single
    scored = [event for event in events if isinstance(event, CandidatesScored)]
    assert all(event.candidates > 0 and event.parts == 1 for event in scored)
    counts = [event.candidates for event in scored]
    assert counts == sorted(counts)
    assert len({(event.candidates, event.best) for event in scored}) == len(scored)
    assert counts[-1] == len(choice.scored)
    best = choice.best
    assert events[-1] == ModelChosen(
        choice.part, best.name, Criterion.BIC, best.score(Criterion.BIC), best.lnl
    )


def test_parts_choose_as_each_would_alone(tmp_path: Path) -> None:
    """The parts are fitted in the same launches, and none looks at another's numbers."""
    data = simulated(tmp_path, TRUTHS, 150, 2)
    together = chosen(data, on=ANY)
    assert [choice.part for choice in together] == ["part0", "part1"]
    assert len({choice.best.name for choice in together}) > 1
    for part, choice in enumerate(together):
        lone = choose_models(
            data.problem.part(part), [choice.part], data.tree, ANY, Criterion.BIC, ignore
        )[0]
        assert choice.best.name == lone.best.name
        for name in choice.scored.keys() & lone.scored.keys():
            one, other = choice.scored[name], lone.scored[name]
            if one.whole and other.whole:
                assert one.lnl == pytest.approx(other.lnl, abs=2 * COARSE), name
