"""Sweeps of chains: kernels decide as the reference does, and every ratio is what it must be."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import FUZZING
from scipy import stats
from simulated import joined

from mltree.data.alphabet import DNA
from mltree.data.patterns import Patterns
from mltree.device.layout import (
    FEW_IN_TEAM,
    TEAM_ROUNDS,
    chain_room,
    cpu_layout,
    gpu_layout,
    most_rows,
)
from mltree.models.grammar import parse_model
from mltree.program import builders
from mltree.program.contract import CHAIN_WORDS, MOST_TEAM, RESTS, TEAM_WORDS, Chain, Move
from mltree.program.engine import NO_CONTROL, ChainRoom, ReferenceEngine
from mltree.program.ops import sweeps
from mltree.program.ops.edges import EvaluateSites
from mltree.program.ops.operation import Row
from mltree.program.ops.sweeps import ChainTree, Replica
from mltree.sampling.priors import ExponentialLengths, GammaDirichletLengths, LengthPrior
from mltree.sampling.sampler import empty_words, hang_tree, tree_of
from mltree.system.arrays import Float64
from mltree.tree.topology import Tree, random_topology

PRIORS = (ExponentialLengths(10.0), GammaDirichletLengths(1.0, 0.1, 0.8, 0.5))
BOUNDS = (1e-8, 100.0)


def words_of(
    trees: list[Tree], heats: list[float], prior: LengthPrior, seed: int = 7, sets: int = 1
) -> Float64:
    words = empty_words(len(trees), trees[0].n_tips, sets)
    for row, tree in zip(words, trees, strict=True):
        hang_tree(row, tree)
    words[:, Chain.HEAT], words[:, Chain.REPLICA] = heats, np.arange(len(trees))
    words[:, Chain.SEED_LOW], words[:, Chain.SEED_HIGH] = seed & 0xFFFF, seed >> 16
    words[:, Chain.RUN], words[:, Chain.WINDOW] = 1, 0.6
    prior.write(words, trees[0].n_tips)
    rng = np.random.default_rng(seed)
    for row in words:
        for lengths in ChainTree(row).length_sets[1:]:
            lengths[1:] = rng.exponential(0.1, len(lengths) - 1)
    return words


def random_trees(count: int, tips: int, rng: np.random.Generator) -> list[Tree]:
    trees = [random_topology(tips, rng) for _ in range(count)]
    for tree in trees:
        tree.lengths[:] = rng.exponential(0.1, tree.n_edges)
    return trees


def telling(words: Float64) -> Float64:
    """The words but for those that are scratch."""
    chain = ChainTree(words[0])
    kept = np.ones(words.shape[1], np.bool_)
    kept[Chain.TICKET] = False
    kept[-chain.nodes - TEAM_WORDS :] = False
    behind = len(kept) - TEAM_WORDS - 4 * chain.nodes
    lengths = kept[CHAIN_WORDS:behind].reshape(len(chain.length_sets), -1)  # a view
    lengths[:, 0] = lengths[:, chain.nodes :] = False
    return words[:, kept]


@pytest.mark.parametrize("states", [4, 20])
@pytest.mark.parametrize("prior", PRIORS, ids=str)
def test_a_device_sweeps_as_the_reference_does(
    open_engine: Callable[..., Any], make_problem, states: int, prior: LengthPrior
) -> None:
    problem = make_problem(8, 40, states=states)
    rng = np.random.default_rng(states)
    words = words_of(random_trees(3, 8, rng), [1.0, 0.3, 0.0], prior)
    words[0, Chain.PROPOSAL], words[1, Chain.PROPOSAL] = 1, 1
    words[1, Chain.RATIO] = 1e3
    others = make_problem(8, 40, states=states, seed=5).model
    models = [problem.model, others] * 3
    program = builders.sweeps(3, 8, 1, 2, 2)
    made = []
    for engine in (
        ReferenceEngine(problem.patterns, problem.categories, BOUNDS),
        open_engine(problem.patterns, problem.categories, bounds=BOUNDS),
    ):
        engine.load_models(models)
        result = engine.run(program, words.ravel().copy(), NO_CONTROL)
        made.append(result.lengths.reshape(words.shape))
    np.testing.assert_allclose(telling(made[1]), telling(made[0]), rtol=1e-8, atol=1e-9)
    assert made[1][1, Chain.PROPOSAL] == 2, "a proposal of a large ratio is accepted"
    assert made[1][:, Chain.SWEEP].tolist() == [2, 2, 2]


@pytest.mark.parametrize("prior", PRIORS, ids=str)
@pytest.mark.parametrize("is_unlinked", [False, True])
def test_parts_are_swept_with_their_own_models(
    open_engine, make_parts, is_unlinked: bool, prior: LengthPrior
) -> None:
    """And with their own lengths, where these are not linked."""
    simulated = make_parts(sites=(60, 145))
    sets = 2 if is_unlinked else 1
    tips = simulated.tree.n_tips
    arrays = list(simulated.model.arrays())
    rng = np.random.default_rng(4)
    words = words_of(random_trees(2, tips, rng), [1.0, 0.5], prior, sets=sets)
    words[0, Chain.PROPOSAL] = 1
    program = builders.sweeps(2, tips, len(arrays), 2, 2, sets=sets)
    made = []
    for engine in (
        ReferenceEngine(simulated.patterns, arrays[0].n_categories, BOUNDS),
        open_engine(simulated.patterns, arrays[0].n_categories, bounds=BOUNDS),
    ):
        engine.load_models(arrays * 4)
        made.append(engine.run(program, words.ravel().copy(), NO_CONTROL).lengths)
    shape = words.shape
    one, other = (telling(each.reshape(shape)) for each in made)
    np.testing.assert_allclose(other, one, rtol=1e-8, atol=1e-9)
    assert (made[1].reshape(shape)[:, Chain.TRIED : Chain.ATTEMPT] > 0).any(axis=0).all()


def test_probes_are_lnl_under_other_weights_and_a_chain_may_rest(open_engine, make_problem) -> None:
    """Each chain has weights of its own; rows behind those are tried on the last state."""
    problem, rng = make_problem(7, 30), np.random.default_rng(6)
    words = words_of(random_trees(3, 7, rng), [1.0, 0.4, 0.0], PRIORS[0])
    words[1, Chain.PROPOSAL], words[2, Chain.PROPOSAL], words[2, Chain.RATIO] = RESTS, 1, 1e3
    patterns = problem.patterns.n_patterns
    rows = np.vstack([rng.integers(0, 4, (3, patterns)), np.eye(patterns)[[0, 5]]]) * 1.0
    program = builders.sweeps(3, 7, 1, 1, 1, probes=2)
    made = []
    for engine in (
        ReferenceEngine(problem.patterns, problem.categories, BOUNDS),
        open_engine(problem.patterns, problem.categories, bounds=BOUNDS),
    ):
        engine.load_models([problem.model, make_problem(7, 30, seed=3).model] * 3)
        engine.load_weights(rows)
        lengths = np.concatenate([words.ravel(), np.full(6, np.pi)])
        made.append(engine.run(program, lengths, NO_CONTROL).lengths)
    after, found = made[1][: words.size].reshape(words.shape), made[1][words.size :].reshape(3, 2)
    np.testing.assert_allclose(
        telling(after), telling(made[0][: words.size].reshape(words.shape)), rtol=1e-8, atol=1e-9
    )
    np.testing.assert_allclose(found.ravel(), made[0][words.size :], rtol=1e-8)
    assert np.array_equal(after[1], words[1])
    assert (found[1] == np.pi).all()
    assert (found[[0, 2]] < 0).all()


def test_lnl_is_that_of_the_tree(open_engine, make_problem, likelihood) -> None:
    problem = make_problem(9, 50)
    rng = np.random.default_rng(2)
    words = words_of(random_trees(4, 9, rng), [1.0, 0.5, 0.2, 0.0], PRIORS[0])
    engine = open_engine(problem.patterns, problem.categories, bounds=BOUNDS)
    engine.load_models([problem.model] * 8)
    program = builders.sweeps(4, 9, 1, 1, 3)
    for _ in range(3):
        words = engine.run(program, words.ravel(), NO_CONTROL).lengths.reshape(words.shape)
        trees = [tree_of(row) for row in words]
        lnls = likelihood(open_engine, problem).log_likelihoods(trees, [problem.case] * 4)
        np.testing.assert_allclose(words[:, Chain.LNL], lnls, rtol=1e-9)


@pytest.mark.parametrize("team", [2, 3])
def test_a_team_sweeps_a_chain_as_one_work_group_does(
    open_engine, make_problem, make_parts, team: int
) -> None:
    """Patterns leave some members of the team more to do than others; parts are several."""
    problem, parts = make_problem(8, 700), make_parts(sites=(60, 145))
    of_parts = list(parts.model.arrays())
    for data, arrays, categories, sets in (
        (problem.patterns, [problem.model], problem.categories, 1),
        (parts.patterns, of_parts, of_parts[0].n_categories, 1),
        (parts.patterns, of_parts, of_parts[0].n_categories, 2),
    ):
        engine = open_engine(data, categories, bounds=BOUNDS)
        if engine.chains.at_once < team:
            pytest.skip("a CPU sweeps chain after chain")
        trees = random_trees(3, data.n_tips, np.random.default_rng(7))
        words = words_of(trees, [1, 0.5, 0], PRIORS[1], sets=sets)
        words[0, Chain.PROPOSAL] = 1
        engine.load_models(arrays * 6)
        made = []
        for each in (1, team):
            program = builders.sweeps(3, data.n_tips, len(arrays), 2, 2, each, sets=sets)
            made.append(engine.run(program, words.ravel().copy(), NO_CONTROL).lengths)
        one, other = (telling(each.reshape(words.shape)) for each in made)
        np.testing.assert_allclose(other, one, rtol=1e-8, atol=1e-9)


def test_many_patterns_have_a_team() -> None:
    layout = gpu_layout(4, 16, 4, vw=16, single=False, rows=4)
    round_ = most_rows(layout)
    assert chain_room(layout, 132, round_ * 2 * TEAM_ROUNDS - 1) == ChainRoom(1, 132)
    assert chain_room(layout, 132, round_ * TEAM_ROUNDS * 3) == ChainRoom(3, 44)
    assert chain_room(layout, 132, round_ * TEAM_ROUNDS * 20) == ChainRoom(FEW_IN_TEAM, 8)
    assert chain_room(layout, 132, 1 << 20) == ChainRoom(MOST_TEAM, 132 // MOST_TEAM)
    assert chain_room(layout, 2, 1 << 20) == ChainRoom(2, 1)
    assert chain_room(cpu_layout(4, 16, 4, 8, single=False), 2, 1 << 20) == ChainRoom()


def test_a_chain_does_not_depend_on_its_company(open_engine, make_problem) -> None:
    problem = make_problem(7, 40)
    rng = np.random.default_rng(2)
    words = words_of(random_trees(3, 7, rng), [1.0, 0.5, 0.2], PRIORS[0])
    engine = open_engine(problem.patterns, problem.categories, bounds=BOUNDS)
    engine.load_models([problem.model] * 6)
    together = engine.run(builders.sweeps(3, 7, 1, 2, 1), words.ravel().copy(), NO_CONTROL)
    alone = engine.run(builders.sweeps(1, 7, 1, 2, 1), words[1].copy(), NO_CONTROL)
    in_two = words[1].copy()
    for _ in range(2):
        in_two = engine.run(builders.sweeps(1, 7, 1, 1, 1), in_two, NO_CONTROL).lengths
    assert np.array_equal(together.lengths.reshape(words.shape)[1], alone.lengths)
    tried = slice(Chain.TRIED, Chain.ATTEMPT)
    in_two[tried] = alone.lengths[tried]
    assert np.allclose(telling(in_two[None]), telling(alone.lengths[None]), rtol=1e-9, atol=0)


# Ratios, one by one. The reference is asked for the ratio that it has computed; all that it must
# consist of is computed here by other means: lnL by a traversal of the tree, priors by their
# densities, Jacobians by finite differences of the map of lengths.


class Watched:
    """A replica of the reference whose proposals are all accepted, and their ratios kept."""

    def __init__(self, problem: Any, prior: LengthPrior, heat: float, seed: int) -> None:
        self.problem, self.prior, self.heat = problem, prior, heat
        tips = problem.patterns.n_tips
        rng = np.random.default_rng(seed)
        self.words = words_of(random_trees(1, tips, rng), [heat], prior, seed)[0]
        self.state = ReferenceEngine(problem.patterns, problem.categories, BOUNDS)
        self.state.load_models([problem.model] * 2)
        program = builders.sweeps(1, tips, 1, 1, 1)
        self.state.begin(program.cases, 1, 0, 0)
        self.state.lengths = self.words
        self.replica = Replica(self.state, Row(program.stages[0].records[0]))
        self.replica.decide_model()
        self.words[Chain.LNL] = self.replica.lnl
        self.ratios: list[float] = []

    def accept(self, _: object, log_ratio: float) -> bool:
        self.ratios.append(log_ratio)
        return True

    def log_posterior(self, likelihood: Callable[[Tree], float]) -> float:
        """heat * lnL + ln prior of the present state."""
        tree, chain = tree_of(self.words), ChainTree(self.words)
        is_outer = (np.arange(1, chain.nodes) < chain.tips) | (chain.parent[1:] == 0)
        density = self.prior.log_density(chain.lengths[1:], is_outer * 1.0, chain.tips)
        return self.heat * likelihood(tree) + density


@pytest.fixture
def watch(make_problem, monkeypatch):
    def start(prior: LengthPrior, heat: float, seed: int) -> tuple[Watched, Callable[[], float]]:
        problem = make_problem(6, 30, seed=seed)
        watched = Watched(problem, prior, heat, seed)
        monkeypatch.setattr(sweeps, "_is_accepted", watched.accept)

        def lnl_of(tree: Tree) -> float:
            engine = ReferenceEngine(problem.patterns, problem.categories, BOUNDS)
            engine.load_models([problem.model])
            program = builders.traversal([tree])
            return float(engine.run(program, tree.lengths, NO_CONTROL).sums[0])

        watched.lnl_of = lnl_of
        return watched, lambda: watched.log_posterior(lnl_of)

    return start


class TwoSets(Watched):
    """The same of two parts, each of which has a set of lengths."""

    def __init__(self, problems: list[Any], prior: LengthPrior, heat: float, seed: int) -> None:
        self.problems, self.prior, self.heat, self.ratios = problems, prior, heat, []
        rng = np.random.default_rng(seed)
        self.words = words_of(random_trees(1, 6, rng), [heat], prior, seed, sets=2)[0]
        patterns = joined([problem.patterns for problem in problems])
        self.state = ReferenceEngine(patterns, problems[0].categories, BOUNDS)
        self.state.load_models([problem.model for problem in problems] * 2)
        program = builders.sweeps(1, 6, 2, 1, 1, sets=2)
        self.state.begin(program.cases, 1, 0, 0)
        self.state.lengths = self.words
        self.replica = Replica(self.state, Row(program.stages[0].records[0]))
        self.replica.decide_model()

    def density(self, words: Float64) -> float:
        """heat * lnL + ln prior of a state."""
        return self.heat * self.lnl(words) + sum(
            self.prior.log_density(lengths[1:], ChainTree(words).is_outer, 6)
            for lengths in ChainTree(words).length_sets
        )

    def lnl(self, words: Float64) -> float:
        total = 0.0
        for number, problem in enumerate(self.problems):
            engine = ReferenceEngine(problem.patterns, problem.categories, BOUNDS)
            engine.load_models([problem.model])
            tree = tree_of(words, number)
            program = builders.traversal([tree])
            total += float(engine.run(program, tree.lengths, NO_CONTROL).sums[0])
        return total


def jacobian(function: Callable[[Float64], Float64], at: Float64) -> float:
    """ln |det| of a map's derivatives, by central differences."""
    steps = 1e-6 * np.maximum(np.abs(at), 1e-3)
    columns = [
        (function(at + step) - function(at - step)) / (2 * size)
        for step, size in zip(np.diag(steps), steps, strict=True)
    ]
    return float(np.linalg.slogdet(np.array(columns))[1])


@pytest.mark.parametrize("prior", PRIORS, ids=str)
@pytest.mark.parametrize("heat", [1.0, 0.4])
def test_ratio_of_scalings(watch, prior: LengthPrior, heat: float) -> None:
    watched, log_posterior = watch(prior, heat, 3)
    before, lengths = log_posterior(), watched.replica.tree.lengths[1:].copy()
    watched.replica.scale()
    after = watched.replica.tree.lengths[1:]
    factor = after[0] / lengths[0]

    # (lengths, factor) -> (factor lengths, 1 / factor), the factor's log being uniform both ways
    def moved(x: Float64) -> Float64:
        return np.append(x[:-1] * np.exp(x[-1]), -x[-1])

    of_map = jacobian(moved, np.append(lengths, np.log(factor)))
    expected = log_posterior() - before + of_map
    assert watched.ratios == [pytest.approx(expected, abs=2e-7)]
    assert of_map == pytest.approx(len(lengths) * np.log(factor), abs=1e-8)


@pytest.mark.cases(6, 200)
def test_ratio_of_regrafts(watch, case: int) -> None:
    prior, heat = PRIORS[case % 2], (1.0, 0.3, 0.0)[case % 3]
    watched, log_posterior = watch(prior, heat, 10 + case)
    replica, chain = watched.replica, watched.replica.tree
    before, old = log_posterior(), watched.words.copy()
    subtree = 1 + int(replica._stream(Move.REGRAFT).uniform() * (chain.nodes - 2))
    subtree += subtree >= chain.left[0]
    replica.regraft(0)
    after, new = log_posterior(), ChainTree(watched.words.copy())
    was = ChainTree(old)
    u = int(was.parent[subtree])
    w, x = was.sibling(subtree), new.sibling(subtree)
    merged, whole = was.lengths[w] + was.lengths[u], new.lengths[x] + new.lengths[u]

    def weight(state: ChainTree, at: int) -> float:
        """Heated lnL with the subtree in the middle of its branch."""
        words = state.words.copy()
        middle = ChainTree(words)
        middle.lengths[at] = middle.lengths[u] = (state.lengths[at] + state.lengths[u]) / 2
        return heat * watched.lnl_of(tree_of(words))

    # (below, above, whole, place) -> (lower, upper, merged, place there), both places uniform
    def moved(v: Float64) -> Float64:
        below, above, edge, place = v
        return np.array([edge * place, edge * (1 - place), below + above, below / (below + above)])

    place = new.lengths[x] / whole
    of_map = jacobian(moved, np.array([was.lengths[w], was.lengths[u], whole, place]))
    chosen = weight(was, w) - weight(new, x)
    assert watched.ratios == [pytest.approx(after - before + chosen + of_map, abs=1e-6)]
    assert of_map == pytest.approx(np.log(whole / merged), abs=1e-8)


@pytest.fixture
def watch_two(make_problem, monkeypatch):
    def start(case: int) -> TwoSets:
        problems = [make_problem(6, size, seed=case + size) for size in (30, 17)]
        watched = TwoSets(problems, PRIORS[case % 2], (1.0, 0.3, 0.0)[case % 3], case)
        monkeypatch.setattr(sweeps, "_is_accepted", watched.accept)
        return watched

    return start


@pytest.mark.cases(6, 100)
def test_ratio_of_regrafts_in_two_sets(watch_two, case: int) -> None:
    watched = watch_two(50 + case)
    replica, old = watched.replica, watched.words.copy()
    was = ChainTree(old)
    subtree = 1 + int(replica._stream(Move.REGRAFT).uniform() * (was.nodes - 2))
    subtree += subtree >= was.left[0]
    replica.regraft(0)
    words, new = watched.words, watched.replica.tree
    u, w, x = int(was.parent[subtree]), was.sibling(subtree), new.sibling(subtree)
    merged = was.length_sets[:, w] + was.length_sets[:, u]
    whole = new.length_sets[:, x] + new.length_sets[:, u]

    def weight(state: Float64, at: int) -> float:
        state = state.copy()
        sets = ChainTree(state).length_sets
        sets[:, at] = sets[:, u] = (sets[:, at] + sets[:, u]) / 2
        return watched.heat * watched.lnl(state)

    chosen = weight(old, w) - weight(words, x)
    expected = watched.density(words) - watched.density(old) + chosen
    expected += float(np.log(whole / merged).sum())
    assert watched.ratios == [pytest.approx(expected, abs=1e-6)]


@pytest.mark.cases(4, 100)
def test_ratios_of_scalings_and_lengths_in_two_sets(watch_two, case: int) -> None:
    """The ratio of a length has the Gamma densities, which the test of one set looks at."""
    watched = watch_two(80 + case)
    replica = watched.replica
    for number in (0, 1):
        old = watched.words.copy()
        replica.scale(number)
        before, after = ChainTree(old).length_sets, replica.tree.length_sets
        assert np.array_equal(before[1 - number], after[1 - number])
        step = np.log(after[number, 1] / before[number, 1])
        expected = watched.density(watched.words) - watched.density(old) + 9 * step
        assert watched.ratios.pop() == pytest.approx(expected, abs=1e-6)
    top, old, drawn = int(replica.tree.left[0]), watched.words.copy(), []
    fitted = replica._fitted
    replica._fitted = lambda *of: drawn.append(fitted(*of)) or drawn[-1]
    replica.draw_lengths(top, 0)
    assert replica.lnl == pytest.approx(watched.lnl(watched.words), abs=1e-8)
    expected = watched.density(watched.words) - watched.density(old)
    for number, (forth, back) in enumerate(zip(drawn[::2], drawn[1::2], strict=True)):
        t, new = (ChainTree(w).length_sets[number, top] for w in (old, watched.words))
        expected += back.log_density(t) - forth.log_density(new)
    assert sum(watched.ratios) == pytest.approx(expected, abs=1e-6)


@pytest.mark.cases(6, 200)
def test_ratio_of_branch_lengths(watch, case: int) -> None:
    prior, heat = PRIORS[case % 2], (1.0, 0.3, 0.0)[case % 3]
    watched, log_posterior = watch(prior, heat, 30 + case)
    replica = watched.replica
    v = int(replica.tree.left[0])
    t, before = float(replica.tree.lengths[v]), log_posterior()

    def fitted(at: float) -> tuple[float, float]:
        """Shape and rate of the Gamma distribution with the log-posterior's derivatives there."""
        kept, step = float(replica.tree.lengths[v]), 2e-4 * at
        values = []
        for length in (at - step, at, at + step):
            replica.tree.lengths[v] = length
            values.append(log_posterior())
        replica.tree.lengths[v] = kept
        slope = (values[2] - values[0]) / (2 * step)
        curve = (values[2] - 2 * values[1] + values[0]) / step**2
        shape = max(-curve * at * at, 0.0) + 1
        return shape, max((shape - 1) / at - slope, shape / (10 * at + 1))

    forth = fitted(t)
    replica.draw_length(v, 0)
    drawn, after = float(replica.tree.lengths[v]), log_posterior()
    back = fitted(drawn)
    hastings = stats.gamma.logpdf(t, back[0], scale=1 / back[1])
    hastings -= stats.gamma.logpdf(drawn, forth[0], scale=1 / forth[1])
    assert watched.ratios == [pytest.approx(after - before + hastings, abs=1e-3)]


def test_interchanges_are_chosen_by_their_heated_likelihoods(watch, monkeypatch) -> None:
    heat = 0.7
    watched, _ = watch(PRIORS[0], heat, 5)
    replica = watched.replica
    start = watched.words.copy()
    v = next(v for v in range(replica.tree.tips, replica.tree.nodes) if replica.tree.parent[v] != 0)

    def after(favourite: int) -> Tree:
        """The tree where one of the three is favoured."""
        watched.words[:] = start
        replica.lnl = replica.whole_lnl()
        replica._make_down(int(replica.tree.parent[v]))
        number = iter(range(3))
        monkeypatch.setattr(sweeps.Stream, "gumbel", lambda _: 1e6 * (next(number) == favourite))
        for u in _path(replica.tree, v):
            replica._make_down(u)
        replica.interchange(v, 0)
        return tree_of(watched.words)

    trees = [after(favourite) for favourite in range(3)]
    lnls = [watched.lnl_of(tree) for tree in trees]
    assert len({round(lnl, 6) for lnl in lnls}) == 3, "three topologies"
    assert replica.lnl == pytest.approx(lnls[2], abs=1e-8)
    weights = np.exp(heat * (np.array(lnls) - max(lnls)))
    weights /= weights.sum()
    monkeypatch.undo()
    counts = np.zeros(3)
    for number in range(600):
        watched.words[:] = start
        replica.lnl = replica.whole_lnl()
        for u in _path(replica.tree, v):
            replica._make_down(u)
        replica.interchange(v, number)
        nearest = np.argmin(np.abs(np.array(lnls) - watched.lnl_of(tree_of(watched.words))))
        counts[nearest] += 1
    expected = 600 * weights
    deviation = np.sqrt(600 * weights * (1 - weights))
    assert (np.abs(counts - expected) <= 4.5 * deviation + 1).all()


def _path(tree: ChainTree, v: int) -> list[int]:
    """The nodes from below tip 0 to v."""
    way = [v]
    while tree.parent[way[-1]] != 0:
        way.append(int(tree.parent[way[-1]]))
    return way[::-1]


def test_every_random_number_is_used_once(make_problem, monkeypatch) -> None:
    seen: set[tuple[int, ...]] = set()
    real = sweeps.Stream.uniforms

    def watched(self) -> tuple[float, float]:
        at = (*self._key.tolist(), *self._counter.tolist())
        assert at not in seen
        seen.add(at)
        return real(self)

    monkeypatch.setattr(sweeps.Stream, "uniforms", watched)
    problem = make_problem(7, 30)
    words = words_of(random_trees(2, 7, np.random.default_rng(1)), [1.0, 0.5], PRIORS[0])
    engine = ReferenceEngine(problem.patterns, problem.categories, BOUNDS)
    engine.load_models([problem.model] * 4)
    words[:, Chain.PROPOSAL] = 1
    engine.run(builders.sweeps(2, 7, 1, 2, 3), words.ravel().copy(), NO_CONTROL)
    moves = {at[4] >> 24 for at in seen}
    assert moves >= {Move.REGRAFT, Move.INTERCHANGE, Move.BRANCH, Move.SCALE, Move.START}


# Faults of the kind that samplers have had, planted in the reference: each must be noticed. Kernels
# are held to the reference by the tests above.

FAULTS = {
    "regraft: no Jacobian": ("ratio += float(np.log(whole / merged).sum()) + ", "ratio += "),
    "regraft: no weight of the old edge": ("+ weight_here - weight", "- weight"),
    "regraft: a heated prior": (
        "self.log_prior() - prior\n            taken = _is_accepted(stream, ratio)",
        "self._heat * (self.log_prior() - prior)\n            taken = _is_accepted(stream, ratio)",
    ),
    "branch: no Hastings ratio": ("+ prior + hastings", "+ prior"),
    "branch: a prior forgotten": ("there.lnl - here.lnl) + prior +", "there.lnl - here.lnl) +"),
    "scale: no Jacobian": ("ratio + len(before) * step", "ratio"),
    "scale: one length too few": ("len(before) * step", "(len(before) - 1) * step"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_noticed(watch, monkeypatch, fault: str) -> None:
    before, after = FAULTS[fault]
    source = inspect.getsource(sweeps)
    assert source.count(before) == 1
    planted: dict[str, Any] = {"__name__": "planted"}
    text = source.replace(before, after).replace("    number = 9\n", "")
    exec(compile(text, "planted", "exec"), planted)
    planted["_is_accepted"] = lambda *of: sweeps._is_accepted(*of)  # noqa: PLW0108
    for move in ("regraft", "draw_length", "scale"):
        monkeypatch.setattr(Replica, move, getattr(planted["Replica"], move))
    checks = {
        "regraft": lambda: [test_ratio_of_regrafts(watch, case) for case in range(6)],
        "branch": lambda: [test_ratio_of_branch_lengths(watch, case) for case in range(6)],
        "scale": lambda: test_ratio_of_scalings(watch, PRIORS[1], 0.4),
    }
    with pytest.raises(AssertionError):
        checks[fault.partition(":")[0]]()


@pytest.mark.cases(1, 4)
def test_ranks_of_the_truth_are_uniform(open_native, case: int) -> None:
    """Simulation-based calibration (Talts et al. 2018): data sets from the prior, side by side.

    A data set of four taxa is a row of weights over all 256 patterns, so that every chain of one
    launch has a data set of its own.
    """
    sets, sites, kept, apart = (120, 1000)[FUZZING], 40, 31, 12
    prior, rng = ExponentialLengths(10.0), np.random.default_rng(case)
    codes = 1 << np.array(list(itertools.product(range(4), repeat=4)), np.uint8).T
    patterns = Patterns(
        taxa=("a", "b", "c", "d"),
        codes=codes,
        weights=np.ones(256),
        site_pattern=np.arange(256, dtype=np.int32),
        alphabet=DNA,
    )
    engine = open_native(patterns, 1, bounds=BOUNDS)
    arrays = parse_model("JC", DNA).arrays()
    trees = [random_topology(4, rng) for _ in range(sets)]
    rows = np.empty((sets, 256))
    exact = ReferenceEngine(patterns, 1, BOUNDS)
    exact.load_models([arrays])
    for row, tree in zip(rows, trees, strict=True):
        tree.lengths[:] = rng.exponential(0.1, 5)
        exact.run(builders.traversal([tree], EvaluateSites), tree.lengths, NO_CONTROL)
        shares = np.exp(exact.site_log_likelihoods()[0])
        row[:] = rng.multinomial(sites, shares / shares.sum())
    engine.load_weights(rows)
    engine.load_models([arrays] * 2)
    program = builders.sweeps(sets, 4, 1, apart, 1)
    program.stages[0].records["weights"] = program.cases["weights"] = np.arange(sets)
    program.stages[0].records["model"] = program.cases["model"] = 0
    others = random_trees(sets, 4, rng)
    words = words_of(others, [1.0] * sets, prior, seed=case)
    words_of_truth = words_of(trees, [1.0] * sets, prior)
    samples = np.empty((kept, sets, 6))

    def measures(words: Float64) -> Float64:
        """Tree length, and lengths of all branches by node; the inner one's node is 4 or 5."""
        lengths = np.array([ChainTree(row).lengths[1:].copy() for row in words])
        inner = np.array([3 if ChainTree(row).parent[4] != 0 else 4 for row in words])
        own = np.take_along_axis(lengths, inner[:, None], 1)
        tips = lengths[:, :3]
        top = np.take_along_axis(lengths, 7 - inner[:, None], 1)
        return np.column_stack([lengths.sum(axis=1), tips, own, top])

    truth = measures(words_of_truth)
    for number in range(-4, kept):
        words = engine.run(program, words.ravel(), NO_CONTROL).lengths.reshape(words.shape)
        if number >= 0:
            samples[number] = measures(words)
    ranks = (samples < truth).sum(axis=0)
    for column in range(6):
        counts = np.bincount(ranks[:, column] * 8 // (kept + 1), minlength=8)
        assert stats.chisquare(counts).pvalue > 1e-4, column
    low, high = np.quantile(samples, [0.05, 0.95], axis=0)
    covered = ((truth >= low) & (truth <= high)).mean()
    assert covered == pytest.approx(0.9, abs=0.03 if FUZZING else 0.05)
