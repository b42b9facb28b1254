"""Moves of chains in detailed balance, on all trees of five taxa, and their ratios to 1e-8.

The reference is told which random numbers it draws, and what it decides by is written down: scores
of choices, shapes and rates of drawn lengths, ratios. So the flow from each state to each other one
is known exactly; it has to be the flow back. Posteriors are computed here by other means.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
from conftest import FUZZING
from scipy import stats
from scipy.special import logsumexp
from simulated import GTR_G2, patterns_of

from mltree.data.alphabet import DNA
from mltree.models.eigen import ModelArrays, p_matrices
from mltree.models.grammar import parse_model
from mltree.program import builders
from mltree.program.contract import Chain, Move
from mltree.program.engine import ReferenceEngine
from mltree.program.ops import sweeps
from mltree.program.ops.operation import Row
from mltree.program.ops.sweeps import ChainTree, Replica
from mltree.sampling.priors import ExponentialLengths, GammaDirichletLengths, LengthPrior
from mltree.sampling.sampler import empty_words
from mltree.system.arrays import Float64

TIPS = 5
GRID = (0.04, 0.1, 0.17, 0.35)
"""Branch lengths of the states, expected substitutions per site."""
PLACES = (0.2, 0.5, 0.85)
"""Places within an edge, as shares of its length."""
TARGETS = [
    (1.0, ExponentialLengths(10.0)),
    (0.3, GammaDirichletLengths(1.0, 0.1, 0.8, 0.5)),
    (1.0, GammaDirichletLengths(1.0, 0.1, 0.8, 0.5)),
    (0.3, ExponentialLengths(10.0)),
][: 4 if FUZZING else 2]
BALANCED, EXACT = 1e-12, 1e-8
"""Largest differences of the logs of two flows, and of a ratio from one by finite differences."""

HKY = "HKY{4}+FU{0.2/0.3/0.3/0.2}+G2m{1.5}"
MODELS = [parse_model(text, DNA).arrays() for text in (GTR_G2, HKY)]
CODES = 1 << np.random.default_rng(8).integers(0, 4, (TIPS, 7))
PATTERNS = patterns_of(np.hstack([CODES, CODES[:, :2], [[1]] * TIPS, [[4]] * TIPS]).astype("u1"))


class Choice(float):
    """A Gumbel number; what it is added to is the score of a choice."""

    scores: list[float]

    def __radd__(self, score: float) -> float:
        self.scores.append(score)
        return score + float(self)


class Draw:
    """A Gamma number that will be ``length`` once it is divided by its rate."""

    def __init__(self, length: float, shape: float, fits: list[tuple[float, float]]) -> None:
        self.length, self.shape, self.fits = length, shape, fits

    def __truediv__(self, rate: float) -> float:
        self.fits.append((self.shape, rate))
        return self.length


class Told(Replica):
    """A replica of the reference that is told what it draws, and accepts whatever it proposes."""

    def __init__(self, words: Float64, heat: float, prior: LengthPrior, *, model: int = 0) -> None:
        state = ReferenceEngine(PATTERNS, MODELS[0].n_categories, (1e-8, 100.0))
        state.load_models([MODELS[model], MODELS[1 - model]])
        program = builders.sweeps(1, TIPS, 1, 1, 1)
        state.begin(program.cases, 1, 0, 0)
        state.lengths = words.copy()
        state.lengths[Chain.HEAT], state.lengths[Chain.WINDOW] = heat, 0.8
        prior.write(state.lengths, TIPS)
        super().__init__(state, Row(program.stages[0].records[0]))
        self.uniforms: list[float] = []
        self.favourite: Callable[[], bool] = lambda: False
        self.length = math.nan
        self.scores: list[float] = []
        self.fits: list[tuple[float, float]] = []
        self.ratios: list[float] = []
        self.chosen = 0
        self.last_edge = -1
        self.decide_model()

    def look_down(self, v: int) -> None:
        """Compute what is above v."""
        way = [v]
        while self.tree.parent[way[-1]] != 0:
            way.append(int(self.tree.parent[way[-1]]))
        for node in reversed(way):
            self._make_down(node)

    def _stream(self, move: Move, number: int = 0) -> Any:
        return self

    def _make_down(self, v: int) -> None:
        self.last_edge = v
        super()._make_down(v)

    def uniform(self) -> float:
        return self.uniforms.pop(0)

    def gumbel(self) -> Choice:
        is_favoured = self.favourite()
        if is_favoured:
            self.chosen = len(self.scores)
        number = Choice(1e9 if is_favoured else 0.0)
        number.scores = self.scores
        return number

    def gamma(self, shape: float) -> Draw:
        return Draw(self.length, shape, self.fits)

    @property
    def log_chance(self) -> float:
        """Natural log of the probability of the choice that was made."""
        return float(self.scores[self.chosen] - logsumexp(self.scores))

    @property
    def ratio(self) -> float:
        """The lone ratio that was met."""
        (ratio,) = self.ratios
        return ratio


@pytest.fixture(autouse=True)
def accepts(monkeypatch) -> None:
    """Accept every proposal, and write its ratio down."""

    def accept(stream: Told, log_ratio: float) -> bool:
        stream.ratios.append(log_ratio)
        return True

    monkeypatch.setattr(sweeps, "_is_accepted", accept)


def trees_of_five() -> Iterator[Float64]:
    """The words of chains on all 15 topologies, with lengths from the grid."""
    for first, second in product((1, 2, 5), (1, 2, 3, 5, 6)):
        words = empty_words(1, TIPS)[0]
        chain = ChainTree(words)
        chain.left[0], chain.left[5], chain.right[5] = 5, 1, 2
        chain.parent[1] = chain.parent[2] = 5
        for tip, x in ((3, first), (4, second)):
            u = tip + 3
            chain.left[u], chain.parent[tip] = tip, u
            chain.attach(u, tip, x)
        rng = np.random.default_rng([first, second])
        chain.lengths[1:] = rng.choice(GRID, chain.nodes - 1)
        yield words


STATES = list(trees_of_five())


def splits_of(words: Float64) -> dict[frozenset[int], float]:
    """Lengths by the tips below a branch."""
    chain, below = ChainTree(words), {}
    for v in reversed(list(chain.preorder())):
        children = () if v < TIPS else (int(chain.left[v]), int(chain.right[v]))
        below[v] = frozenset([v]).union(*(below[c] for c in children)) & frozenset(range(TIPS))
    return {tips: float(chain.lengths[v]) for v, tips in below.items()}


def is_same(one: Float64, other: Float64) -> bool:
    """True if two states are the same tree with the same lengths."""
    a, b = splits_of(one), splits_of(other)
    return a.keys() == b.keys() and all(math.isclose(a[k], b[k], rel_tol=1e-13) for k in a)


def lnl_of(words: Float64, arrays: ModelArrays = MODELS[0]) -> float:
    """The lnL of a state by Felsenstein's recursion."""
    chain = ChainTree(words)
    p = p_matrices(arrays, chain.lengths)
    tips = (PATTERNS.codes[..., None] >> np.arange(4)) & 1

    def across(v: int) -> Float64:
        """f64[K, L, S]: what is below v, as it is seen from above its branch."""
        if v < TIPS:
            return np.einsum("kij,lj->kli", p[v], tips[v])
        below = across(int(chain.left[v])) * across(int(chain.right[v]))
        return np.einsum("kij,klj->kli", p[v], below)

    root = across(int(chain.left[0])) * tips[0]
    sites = np.einsum("k,kli,i->l", arrays.weights, root, np.ravel(arrays.frequencies)[:4])
    return float(PATTERNS.weights @ np.log(sites))


def log_posterior(
    words: Float64, heat: float, prior: LengthPrior, arrays: ModelArrays = MODELS[0]
) -> float:
    chain = ChainTree(words)
    is_outer = (np.arange(1, chain.nodes) < TIPS) | (chain.parent[1:] == 0)
    density = prior.log_density(chain.lengths[1:], is_outer * 1.0, TIPS)
    return heat * lnl_of(words, arrays) + density


def slope_of(function: Callable[[float], Float64], at: float) -> Float64:
    """The derivative of a function, to the sixth order of the step."""
    h = 1e-3 * max(abs(at), 1e-2)
    pairs = ((1, 3 / 4), (2, -3 / 20), (3, 1 / 60))
    return sum(c * (function(at + k * h) - function(at - k * h)) for k, c in pairs) / h


def log_jacobian(function: Callable[[Float64], Float64], at: Float64) -> float:
    """ln |det| of a map's derivatives."""

    def along(column: int) -> Callable[[float], Float64]:
        def moved(x: float) -> Float64:
            point = at.copy()
            point[column] = x
            return function(point)

        return moved

    columns = [slope_of(along(n), float(at[n])) for n in range(len(at))]
    return float(np.linalg.slogdet(np.array(columns))[1])


def test_there_are_fifteen_trees() -> None:
    assert len({frozenset(splits_of(words)) for words in STATES}) == 15
    told = Told(STATES[3], *TARGETS[0])
    assert told.lnl == pytest.approx(lnl_of(STATES[3]), abs=1e-11)


@pytest.mark.parametrize(("heat", "prior"), TARGETS, ids=str)
def test_scalings_are_balanced(heat: float, prior: LengthPrior) -> None:
    for words, u in product(STATES, (0.1, 0.45, 0.9)):
        forth = Told(words, heat, prior)
        forth.uniforms = [u]
        forth.scale()
        back = Told(forth.words, heat, prior)
        back.uniforms = [1 - u]
        back.scale()
        assert is_same(back.words, words)
        step = 0.8 * (u - 0.5)
        edges = len(forth.tree.lengths) - 1

        def moved(x: Float64) -> Float64:
            return np.append(x[:-1] * math.exp(x[-1]), -x[-1])

        of_map = log_jacobian(moved, np.append(ChainTree(words).lengths[1:], step))
        here, there = (log_posterior(each, heat, prior) for each in (words, forth.words))
        assert forth.ratio == pytest.approx(there - here + of_map, abs=EXACT)
        one = here + min(0.0, forth.ratio)
        assert one == pytest.approx(there + edges * step + min(0.0, back.ratio), abs=BALANCED)


def regrafted(
    words: Float64, heat: float, prior: LengthPrior, v: int, x: int, place: float
) -> Told:
    """A replica that has moved subtree v to a place of edge x."""
    told = Told(words, heat, prior)
    choices, top = told.tree.nodes - 2, int(told.tree.left[0])
    told.uniforms = [(v - 1 - (v > top) + 0.5) / choices, place]
    told.favourite = lambda: told.last_edge == x
    told.regraft(0)
    return told


@pytest.mark.parametrize(("heat", "prior"), TARGETS, ids=str)
def test_regrafts_are_balanced(heat: float, prior: LengthPrior) -> None:
    count = 0
    for number, words in enumerate(STATES):
        was = ChainTree(words)
        for v in [int(n) for n in was.preorder() if n != was.left[0]]:
            u, w = int(was.parent[v]), was.sibling(v)
            inside = {v} if v < TIPS else {v, int(was.left[v]), int(was.right[v])}
            inside |= {int(n) for n in range(1, was.nodes) if int(was.parent[n]) in inside}
            for x in set(range(1, was.nodes)) - inside - {u}:
                count += 1
                if not FUZZING and count % 3 != number % 3:
                    continue
                place = PLACES[(number + count) % len(PLACES)]
                forth = regrafted(words, heat, prior, v, x, place)
                new = forth.tree
                below, above = float(was.lengths[w]), float(was.lengths[u])
                lower, upper = float(new.lengths[x]), float(new.lengths[u])
                assert new.sibling(v) == x
                merged, whole = below + above, lower + upper
                assert lower == pytest.approx(place * whole, rel=1e-14)
                back = regrafted(forth.words, heat, prior, v, w, below / merged)
                assert is_same(back.words, words)
                here, there = (log_posterior(each, heat, prior) for each in (words, forth.words))
                assert forth.lnl == pytest.approx(lnl_of(forth.words), abs=1e-11)
                one = here + forth.log_chance - math.log(whole) + min(0.0, forth.ratio)
                other = there + back.log_chance - math.log(merged) + min(0.0, back.ratio)
                assert one == pytest.approx(other, abs=BALANCED)

                # (below, above, whole, place) -> (lower, upper, merged, place there)
                def moved(at: Float64) -> Float64:
                    a, b, c, share = at
                    return np.array([c * share, c * (1 - share), a + b, a / (a + b)])

                of_map = log_jacobian(moved, np.array([below, above, whole, place]))
                chances = back.log_chance - forth.log_chance
                assert forth.ratio == pytest.approx(there - here + chances + of_map, abs=EXACT)
    assert count > 300


@pytest.mark.parametrize(("heat", "prior"), TARGETS, ids=str)
def test_interchanges_are_balanced(heat: float, prior: LengthPrior) -> None:
    def around(words: Float64, v: int, choice: int) -> Told:
        told = Told(words, heat, prior)
        told.look_down(v)
        told.favourite = lambda: len(told.scores) == choice
        told.interchange(v, 0)
        return told

    for words in STATES:
        chain = ChainTree(words)
        inner = [v for v in range(TIPS, chain.nodes) if chain.parent[v] != 0]
        assert len(inner) == 2
        for v in inner:
            ways = [around(words, v, choice) for choice in range(3)]
            assert is_same(ways[0].words, words)
            assert len({frozenset(splits_of(way.words)) for way in ways}) == 3
            for way in ways:
                assert way.lnl == pytest.approx(lnl_of(way.words), abs=1e-11)
                backs = [around(way.words, v, choice) for choice in range(3)]
                (back,) = (one for one in backs if is_same(one.words, words))
                here, there = (log_posterior(each, heat, prior) for each in (words, way.words))
                assert here + way.log_chance == pytest.approx(there + back.log_chance, abs=BALANCED)


@pytest.mark.parametrize(("heat", "prior"), TARGETS, ids=str)
def test_drawn_lengths_are_balanced(heat: float, prior: LengthPrior) -> None:
    def drawn(words: Float64, v: int, length: float) -> Told:
        told = Told(words, heat, prior)
        told.look_down(v)
        told.length = length
        told.draw_lengths(v, 0)
        return told

    for number, words in enumerate(STATES):
        for v in range(1, ChainTree(words).nodes):
            t = float(ChainTree(words).lengths[v])
            new = GRID[(number + v) % len(GRID)] * 1.3
            forth = drawn(words, v, new)
            back = drawn(forth.words, v, t)
            assert is_same(back.words, words)
            here, there = (log_posterior(each, heat, prior) for each in (words, forth.words))
            assert forth.lnl == pytest.approx(lnl_of(forth.words), abs=1e-11)
            (fit,), (fit_back,) = forth.fits, back.fits
            of_new = stats.gamma.logpdf(new, fit[0], scale=1 / fit[1])
            of_old = stats.gamma.logpdf(t, fit_back[0], scale=1 / fit_back[1])
            one, other = here + of_new + min(0.0, forth.ratio), there + of_old
            assert one == pytest.approx(other + min(0.0, back.ratio), abs=BALANCED)


@pytest.mark.parametrize(("heat", "prior"), TARGETS, ids=str)
def test_drawn_lengths_are_fitted_to_derivatives(heat: float, prior: LengthPrior) -> None:
    """The Gamma distribution has the derivatives of the log-posterior, and so has its ratio."""
    nodes = np.cos(np.pi * (np.arange(24) + 0.5) / 24)
    for number, words in enumerate(STATES):
        v = 1 + number % (ChainTree(words).nodes - 1)

        def fitted(at: float, words: Float64 = words, v: int = v) -> tuple[float, float]:
            """Shape and rate by derivatives of the polynomial through points around."""
            half, states = 0.25 * at, words.copy()
            values = []
            for x in nodes:
                ChainTree(states).lengths[v] = at + half * x
                values.append(log_posterior(states, heat, prior))
            line = np.polynomial.Chebyshev.fit(nodes, np.array(values) - values[0], 23)
            slope, curve = line.deriv(1)(0.0) / half, line.deriv(2)(0.0) / half**2
            shape = max(-curve * at * at, 0.0) + 1
            return shape, max((shape - 1) / at - slope, shape / (10 * at + 1))

        told = Told(words, heat, prior)
        told.look_down(v)
        t, told.length = float(told.tree.lengths[v]), 0.13
        told.draw_lengths(v, 0)
        forth, back = fitted(t), fitted(0.13)
        assert told.fits[0] == pytest.approx(forth, rel=EXACT)
        hastings = stats.gamma.logpdf(t, back[0], scale=1 / back[1])
        hastings -= stats.gamma.logpdf(0.13, forth[0], scale=1 / forth[1])
        here, there = (log_posterior(each, heat, prior) for each in (words, told.words))
        assert told.ratio == pytest.approx(there - here + hastings, abs=EXACT)


@pytest.mark.parametrize("heat", [1.0, 0.3])
def test_proposed_models_are_balanced(heat: float) -> None:
    """The ratio of priors comes from the host; its steps are symmetric."""
    prior, log_priors = TARGETS[0][1], (0.4, -1.1)
    for words in STATES:
        ratios = []
        for model in (0, 1):
            proposed = words.copy()
            proposed[Chain.PROPOSAL] = 1
            proposed[Chain.RATIO] = log_priors[1 - model] - log_priors[model]
            proposed[Chain.LNL] = lnl_of(words, MODELS[model])
            told = Told(proposed, heat, prior, model=model)
            assert told.words[Chain.PROPOSAL] == 2
            ratios.append(told.ratio)
        of_model = [
            log_posterior(words, heat, prior, MODELS[model]) + log_priors[model] for model in (0, 1)
        ]
        assert ratios[0] == pytest.approx(of_model[1] - of_model[0], abs=BALANCED)
        assert of_model[0] + min(0, ratios[0]) == pytest.approx(
            of_model[1] + min(0, ratios[1]), abs=BALANCED
        )


def test_tours_are_one_circle_of_all_places() -> None:
    """Each tour goes round the same circle of 2E places, from another of them on."""
    for words in STATES:
        edges = ChainTree(words).nodes - 1
        times = np.zeros((2 * edges, edges), np.int64)
        inner = [v for v in range(TIPS, edges + 1) if ChainTree(words).parent[v] != 0]
        for place, row in enumerate(times):
            told, around = Told(words, 1.0, TARGETS[0][1]), []
            drawn: list[tuple[int, int]] = []
            told.interchange = lambda v, _, to=around: to.append(v)
            told.draw_lengths = lambda v, step, to=drawn: to.append((v, step))
            told.uniforms = [(place + 0.5) / (2 * edges)]
            told.tour()
            assert sorted(v for v, _ in drawn) == list(range(1, edges + 1)), "each branch once"
            assert sorted(around) == inner
            row[[v - 1 for v, _ in drawn]] = [step for _, step in drawn]
        assert sorted(times[:, 0]) == list(range(2 * edges)), "no two places are alike"
        assert len(np.unique((times - times[:, :1]) % (2 * edges), axis=0)) == 1, "one circle"
