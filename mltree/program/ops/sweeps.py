"""SWEEPS: Markov chain Monte Carlo over trees and branch lengths, a chain a record.

A sweep is made of moves, each of which leaves the heated posterior L(x)^heat prior(x) what it is:

SCALE         all lengths times e^s, s uniform: accepted with the ratio of posteriors times e^(E s).
REGRAFT       CHOOSE: a subtree is pruned, an edge of the rest chosen by w = L^heat with the subtree
              in its middle, and a place of the edge uniformly. The rest, and the sum of w over its
              edges, are the same on the way back: ratio of posteriors * w(old) / w(new) *
              length(new edge) / length(old edge).
INTERCHANGE   CHOOSE: one of three topologies around an inner branch by L^heat, all lengths kept.
              Nothing is rejected (Gibbs).
BRANCH        DRAW: a length from the Gamma distribution that has the first two derivatives of the
              log-posterior at the present one (Aberer, Stamatakis and Ronquist 2016, Syst. Biol.
              65:161-176); the ratio has the densities there and back.
MODEL         ACCEPT: a model that the host has proposed, with the ratio that it has computed.

Interchanges and branches are visited along the outline of the tree, which is a circle of 2E steps;
a sweep takes as many from a uniform place. The step that follows depends on the tree alone, so
(tree, place) keeps its joint distribution.

Parts may have lengths of their own (`Chain.SETS`), each set with the prior of all lengths. SCALE
and BRANCH change one set after the other, by the lnL of its part alone; a regraft draws a place in
every set, and the ratio has the lengths of all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

import numpy as np

from mltree.program.contract import (
    CHAIN_WORDS,
    MOST_MEAN,
    MOVE_STRIDE,
    RESTS,
    SPARE_LENGTHS,
    TEAM_WORDS,
    Chain,
    Function,
    Move,
)
from mltree.program.ops.edges import lnl_and_slopes
from mltree.program.ops.newview import matrices_of
from mltree.program.ops.operation import Kernel, LaunchShape, Row, TableStage, record
from mltree.program.ops.state import LN_SCALE, ReferenceState, ScaledCla, over_categories
from mltree.program.random_numbers import Stream
from mltree.system.arrays import Float64

SWEEP = record(
    "case:case model:model weights:weights slot:writes last_slot:writes p:makes "
    "last_p:makes state:length last_state:length tips sweeps regrafts team probe:weights probes "
    "log:length last_log:length",
    "SWEEP",
)
"""A chain of ``tips`` taxa: its CLAs, P matrices and words (:class:`mltree.program.contract.Chain`)
from ``slot``, ``p`` and ``state`` on. A proposed model has the rows behind those of its model.
``team`` work-groups share it, as many as share every other chain of the stage. At its end the lnL
under ``probes`` rows of weights, from ``probe`` on, lie from ``log`` on among the lengths."""

OPERATIONS_A_NODE = 12
"""Operations on all patterns of a sweep, for each node of the tree; a regraft takes four more."""


def chain_words(tips: int, sets: int = 1) -> int:
    """Words of the state of a chain with so many sets of branch lengths."""
    nodes = 2 * tips - 2
    return CHAIN_WORDS + sets * (nodes + SPARE_LENGTHS) + 4 * nodes + TEAM_WORDS


def chain_slots(tips: int) -> int:
    """CLA slots of a chain: below every inner node, and above every node."""
    return tips - 2 + 2 * tips - 2


class ChainTree:
    """Views into a chain's words f64[n]: what hangs from tip 0, and how long branches are."""

    def __init__(self, words: Float64) -> None:
        self.words, sets = words, max(int(words[Chain.SETS]), 1)
        nodes = (len(words) - CHAIN_WORDS - sets * SPARE_LENGTHS - TEAM_WORDS) // (sets + 4)
        first = CHAIN_WORDS + sets * (nodes + SPARE_LENGTHS)
        starts = first + nodes * np.arange(4)
        self.length_sets = words[CHAIN_WORDS:first].reshape(sets, -1)[:, :nodes]
        """f64[sets, N]"""
        self.lengths = self.length_sets[0]
        self.parent, self.left, self.right, self.spare = (words[s : s + nodes] for s in starts)
        self.nodes, self.tips = nodes, (nodes + 2) // 2

    @property
    def is_outer(self) -> Float64:
        """f64[N - 1]: 1 for branches of tips, else 0, of nodes from 1 on."""
        outer = (np.arange(1, self.nodes) < self.tips) | (self.parent[1:] == 0)
        return np.asarray(outer, np.float64)

    def sibling(self, v: int) -> int:
        """The other child of a node's parent."""
        u = int(self.parent[v])
        return int(self.right[u] if self.left[u] == v else self.left[u])

    def hang(self, u: int, before: int, after: int) -> None:
        """Put a subtree where another hangs from u."""
        (self.left if self.left[u] == before else self.right)[u] = after
        self.parent[after] = u

    def attach(self, u: int, subtree: int, x: int) -> None:
        """Hang u, which carries a subtree, into the branch above x."""
        self.hang(int(self.parent[x]), x, u)
        (self.right if self.left[u] == subtree else self.left)[u] = x
        self.parent[x] = u

    def preorder(self) -> Iterator[int]:
        """Nodes below tip 0, parents first."""
        waiting = [int(self.left[0])]
        while waiting:
            v = waiting.pop()
            yield v
            if v >= self.tips:
                waiting += [int(self.right[v]), int(self.left[v])]


class Sweeps(TableStage):
    """Sweeps of Markov chains over trees."""

    name = "SWEEPS"
    number = 9
    layouts = (SWEEP,)
    kernel = Kernel("sweeps")
    function = Function.SWEEP
    line = "{sweeps} sweeps of the chain at {state}, {tips} tips, {case}"
    passes_a_regraft = 1
    """Kinds of regrafts: what prunes and scans as often."""

    def replica(self, state: ReferenceState, chain: Row) -> Replica:
        """A chain as the reference sweeps it."""
        return Replica(state, chain)

    def formula(self, state: ReferenceState, chain: Row) -> None:
        if state.lengths[chain.state + Chain.PROPOSAL] == RESTS:
            return
        replica = self.replica(state, chain)
        replica.decide_model()
        for _ in range(chain.sweeps):
            replica.sweep(chain.regrafts)
        replica.finish()

    def compute(self, state: ReferenceState) -> None:
        for row in self.records:
            self.formula(state, Row(row))

    def jobs(self, shape: LaunchShape) -> int:
        return int(self.records["team"].sum())

    @property
    def is_joint(self) -> bool:
        """True where a chain has several work-groups."""
        return int(self.records["team"].max(initial=1)) > 1

    @property
    def site_steps(self) -> int:
        each = self.records["tips"] * self.records["sweeps"] * 2
        of_regrafts = 4 * self.passes_a_regraft * (1 + self.records["regrafts"])
        return int((each * (OPERATIONS_A_NODE + of_regrafts)).sum())


class EdgeSums(NamedTuple):
    """The lnL at a branch, and its derivatives in the length."""

    lnl: float
    slope: float
    curve: float


class _Gamma(NamedTuple):
    shape: float
    rate: float

    def log_density(self, x: float) -> float:
        """The natural log of the density at x."""
        constant = self.shape * math.log(self.rate) - math.lgamma(self.shape)
        return constant + (self.shape - 1) * math.log(x) - self.rate * x


Length: TypeAlias = float | Float64
"""Length of a branch, or f64[P] of every part."""

Side: TypeAlias = tuple[list[ScaledCla], Length]
"""CLAs below or above a branch, part by part, and the length of the branch."""


class Replica:
    """A chain of the reference, move by move."""

    def __init__(self, state: ReferenceState, chain: Row) -> None:
        self._state, self._chain = state, chain
        self._read()
        self._heat = float(self.words[Chain.HEAT])
        self._sweep = int(self.words[Chain.SWEEP])
        self.lnl = float(self.words[Chain.LNL])
        self._model, self._weights = chain.model, chain.weights
        self._up: dict[int, list[ScaledCla]] = {}
        self._down: dict[int, list[ScaledCla]] = {}

    def _read(self) -> None:
        """Take the views of the chain's words."""
        start = self._chain.state
        sets = max(int(self._state.lengths[start + Chain.SETS]), 1)
        self.words = self._state.lengths[start : start + chain_words(self._chain.tips, sets)]
        self.tree = ChainTree(self.words)

    def sweep(self, regrafts: int) -> None:
        """All moves of a sweep."""
        for number in range(len(self.tree.length_sets)):
            self.scale(number)
        for number in range(regrafts):
            self.regraft(number)
        self.tour()
        self._sweep += 1

    def finish(self) -> None:
        """Leave the lnL and the number of sweeps in the chain's words, and what probes find."""
        self.words[Chain.LNL], self.words[Chain.SWEEP] = self.lnl, self._sweep
        chain = self._chain
        for number in range(chain.probes):
            self._weights = chain.probe + number
            self._state.lengths[chain.log + number] = self.whole_lnl()

    # Likelihoods of the patterns.

    def _parts(self) -> list[int]:
        return list(self._state.parts_of(self._chain.case))

    def _operand(self, x: int) -> list[ScaledCla]:
        return [self._state.operand(~x) for _ in self._state.parts_of(self._chain.case)]

    def _below(self, v: int) -> Side:
        sides = self._operand(v) if v < self.tree.tips else self._up[v]
        return sides, self.tree.length_sets[:, v].copy()

    def _above(self, v: int) -> Side:
        sides = self._operand(0) if self.tree.parent[v] == 0 else self._down[v]
        return sides, self.tree.length_sets[:, v].copy()

    def _each(self, length: Length) -> list[float]:
        """The length of every part."""
        each: list[float] = np.broadcast_to(length, len(self._parts())).tolist()
        return each

    def _across(self, side: Side) -> list[ScaledCla]:
        seen = []
        for part, cla, length in zip(self._parts(), side[0], self._each(side[1]), strict=True):
            self._state.part = part
            p, _ = matrices_of(self._state, self._model, length)
            seen.append(ScaledCla(np.einsum("lkij,lkj->lki", p, cla.values), cla.counts))
        return seen

    def _joined(self, one: Side, other: Side) -> list[ScaledCla]:
        pairs = zip(self._across(one), self._across(other), strict=True)
        return [a.times(b) for a, b in pairs]

    def _make_up(self, v: int) -> None:
        left, right = int(self.tree.left[v]), int(self.tree.right[v])
        self._up[v] = self._joined(self._below(left), self._below(right))

    def _make_down(self, v: int) -> None:
        if self.tree.parent[v] != 0:
            other, u = self.tree.sibling(v), int(self.tree.parent[v])
            self._down[v] = self._joined(self._below(other), self._above(u))

    def _meeting(self, ones: list[ScaledCla], others: list[ScaledCla]) -> float:
        """The lnL where two sides meet."""
        lnl = 0.0
        for part, a, b in zip(self._parts(), ones, others, strict=True):
            self._state.part = part
            row = self._state.model(self._model)
            terms = np.einsum("k,lki,lki,lki->lk", row.weights, row.frequencies, a.values, b.values)
            (likelihood,), least = over_categories(terms[None], a.counts + b.counts)
            of_patterns = np.log(likelihood) - least * LN_SCALE
            lnl += float(self._state.add_up(self._weights, of_patterns))
        return lnl

    def _at_edge(self, v: int, length: Length, number: int | None = None) -> EdgeSums:
        """The lnL and its derivatives in the length of the branch above v.

        number  of the set, where the lnL of its part alone is meant
        """
        return self._sums_across(self._below(v)[0], self._above(v)[0], length, number)

    def _sums_across(
        self,
        below: list[ScaledCla],
        above: list[ScaledCla],
        length: Length,
        number: int | None = None,
    ) -> EdgeSums:
        """The lnL and its derivatives in the length of a branch between two sides."""
        sums = np.zeros(3)
        parts = zip(self._parts(), below, above, self._each(length), strict=True)
        for part, a, b, own in list(parts) if number is None else list(parts)[number:][:1]:
            self._state.part = part
            p, _ = matrices_of(self._state, self._model, own)
            seen = ScaledCla(np.einsum("lkij,lkj->lki", p, b.values), b.counts)
            of_patterns = lnl_and_slopes(self._state.model(self._model), a, seen)
            sums += self._state.add_up(self._weights, of_patterns.T)
        return EdgeSums(*sums.tolist())

    def whole_lnl(self) -> float:
        """Compute what is below every node, and the lnL across the branch of tip 0."""
        for v in reversed(list(self.tree.preorder())):
            if v >= self.tree.tips:
                self._make_up(v)
        top = int(self.tree.left[0])
        return self._at_edge(top, self.tree.length_sets[:, top]).lnl

    def _renew_up(self, v: float) -> None:
        while v != 0:
            self._make_up(int(v))
            v = self.tree.parent[int(v)]

    # The prior of lengths.

    def _shape(self, v: int) -> float:
        is_outer = v < self.tree.tips or self.tree.parent[v] == 0
        return float(self.words[Chain.OUTER if is_outer else Chain.INNER])

    def log_prior(self) -> float:
        """The natural log of the prior of all lengths, without its constant."""
        lengths = self.tree.length_sets[:, 1:]
        total = lengths.sum(axis=1)
        shapes = np.array([self._shape(v) for v in range(1, self.tree.nodes)])
        of_total = self.words[Chain.POWER] * np.log(total) - self.words[Chain.RATE] * total
        return float((of_total + np.log(lengths) @ shapes).sum())

    def _is_allowed(self, length: float) -> bool:
        low, high = self._state.bounds
        return low <= length <= high

    # Moves.

    def _stream(self, move: Move, number: int = 0) -> Stream:
        words = self.words.tolist()
        seed = int(words[Chain.SEED_LOW]) | int(words[Chain.SEED_HIGH]) << 16
        counter = int(words[Chain.REPLICA]), self._sweep, move * MOVE_STRIDE + number
        return Stream(seed, int(words[Chain.RUN]), *counter)

    def _count(self, move: Move, taken: bool) -> None:
        self.words[Chain.TRIED + move] += 1
        self.words[Chain.TAKEN + move] += taken

    def decide_model(self) -> None:
        """Decide on the proposed model, if there is one, and compute all CLAs."""
        before = self.lnl
        if self.words[Chain.PROPOSAL] == 1:
            self._model += len(self._parts())
            self.lnl = self.whole_lnl()
            ratio = self._heat * (self.lnl - before) + self.words[Chain.RATIO]
            stream = self._stream(Move.MODEL, int(self.words[Chain.ATTEMPT]))
            if _is_accepted(stream, float(ratio)):
                self.words[Chain.PROPOSAL] = 2
                return
            self._model = self._chain.model
        self.lnl = self.whole_lnl()

    def scale(self, number: int = 0) -> None:
        """Multiply all lengths of a set by one factor."""
        stream, lengths = self._stream(Move.SCALE, number), self.tree.length_sets[number, 1:]
        step = float(self.words[Chain.WINDOW]) * (stream.uniform() - 0.5)
        before, prior = lengths.copy(), self.log_prior()
        scaled = math.exp(step) * before
        taken = all(map(self._is_allowed, scaled.tolist()))
        if taken:
            lengths[:] = scaled
            lnl = self.whole_lnl()
            ratio = self._heat * (lnl - self.lnl) + self.log_prior() - prior
            taken = _is_accepted(stream, ratio + len(before) * step)
            if taken:
                self.lnl = lnl
            else:
                lengths[:] = before
                self.whole_lnl()
        self._count(Move.SCALE, taken)

    def _fitted(self, v: int, t: float, total: float, at: EdgeSums) -> _Gamma:
        k, power = self._shape(v), float(self.words[Chain.POWER])
        slope = self._heat * at.slope + k / t + power / total - float(self.words[Chain.RATE])
        curve = self._heat * at.curve - k / t**2 - power / total**2
        count = max(-curve * t * t, 0.0)
        return _Gamma(count + 1, max(count / t - slope, (count + 1) / (MOST_MEAN * t + 1)))

    def draw_lengths(self, v: int, number: int) -> None:
        """Draw the length of the branch above v in every set."""
        sets, edges = len(self.tree.length_sets), self.tree.nodes - 1
        lnls = [self.draw_length(v, number + of * 2 * edges, of) for of in range(sets)]
        self.lnl = sum(lnls)

    def draw_length(self, v: int, number: int, of: int = 0) -> float:
        """Draw the length of the branch above v in a set; return the lnL of its part."""
        stream, lengths = self._stream(Move.BRANCH, number), self.tree.length_sets[of]
        which = of if len(self.tree.length_sets) > 1 else None
        t, before = float(lengths[v]), float(lengths[1:].sum())
        here = self._at_edge(v, t, which)
        forth = self._fitted(v, t, before, here)
        drawn, taken = stream.gamma(forth.shape) / forth.rate, False
        if self._is_allowed(drawn):
            total = before - t + drawn
            there = self._at_edge(v, drawn, which)
            back = self._fitted(v, drawn, total, there)
            prior = self._shape(v) * math.log(drawn / t)
            prior += float(self.words[Chain.POWER]) * math.log(total / before)
            prior -= float(self.words[Chain.RATE]) * (drawn - t)
            hastings = back.log_density(t) - forth.log_density(drawn)
            ratio = self._heat * (there.lnl - here.lnl) + prior + hastings
            taken = _is_accepted(stream, ratio)
            if taken:
                lengths[v] = drawn
        self._count(Move.BRANCH, taken)
        return there.lnl if taken else here.lnl

    def interchange(self, v: int, number: int) -> None:
        """Choose one of the three topologies around the branch above v."""
        tree, stream = self.tree, self._stream(Move.INTERCHANGE, number)
        u, other = int(tree.parent[v]), tree.sibling(v)
        left, right = int(tree.left[v]), int(tree.right[v])
        a, b, d, e = self._below(left), self._below(right), self._below(other), self._above(u)
        length = tree.length_sets[:, v]

        def lnl_of(below: tuple[Side, Side], above: tuple[Side, Side]) -> float:
            ends = self._joined(*above), length
            return self._meeting(self._joined(*below), self._across(ends))

        stays = self._heat * self.lnl + stream.gumbel()
        with_right = lnl_of((a, d), (b, e))
        right_moves = self._heat * with_right + stream.gumbel()
        with_left = lnl_of((d, b), (a, e))
        left_moves = self._heat * with_left + stream.gumbel()
        taken = right_moves > stays or left_moves > stays
        self._count(Move.INTERCHANGE, taken)
        if not taken:
            return
        is_right = right_moves > left_moves or not left_moves > stays
        tree.hang(u, other, right if is_right else left)
        (tree.right if is_right else tree.left)[v] = other
        tree.parent[other] = v
        self.lnl = with_right if is_right else with_left
        self._make_up(v)
        self._make_down(v)

    def tour(self) -> None:
        """Visit as many places of the tree's outline as it has, from any of them on."""
        tree, edges = self.tree, self.tree.nodes - 1
        place = min(int(self._stream(Move.START).uniform() * 2 * edges), 2 * edges - 1)
        v, descends = 1 + place % edges, place < edges
        way = [v]
        while tree.parent[way[-1]] != 0:
            way.append(int(tree.parent[way[-1]]))
        for node in reversed(way):
            self._make_down(node)
        for step in range(2 * edges):
            u = int(tree.parent[v])
            if descends:
                if v >= tree.tips and u != 0:
                    self.interchange(v, step)
                self.draw_lengths(v, step)
                descends = v >= tree.tips
                if descends:
                    v = int(tree.left[v])
                    self._make_down(v)
            elif u == 0:
                descends = True
            elif v == tree.left[u]:
                v, descends = int(tree.right[u]), True
                self._make_down(v)
            else:
                v = u
                self._make_up(v)
        self._renew_up(tree.parent[v])

    def regraft(self, number: int) -> None:
        """Prune a subtree, and regraft it at a place chosen among all."""
        tree, stream = self.tree, self._stream(Move.REGRAFT, number)
        lengths = tree.length_sets
        top, choices = int(tree.left[0]), tree.nodes - 2
        v = 1 + min(int(stream.uniform() * choices), choices - 1)
        v += v >= top
        u, w = int(tree.parent[v]), tree.sibling(v)
        below, above, prior = lengths[:, w].copy(), lengths[:, u].copy(), self.log_prior()
        merged = below + above
        tree.hang(int(tree.parent[u]), u, w)
        lengths[:, w] = merged
        self._renew_up(tree.parent[w])
        x, weight, weight_here = self._choose_edge(v, w, stream)
        whole = lengths[:, x].copy()
        lower = whole * np.array([stream.uniform() for _ in whole])
        upper, lnl = whole - lower, self.lnl
        taken = all(map(self._is_allowed, [*lower.tolist(), *upper.tolist()]))
        if taken:
            sides = (self._below(x)[0], lower), (self._above(x)[0], upper)
            lnl = self._meeting(self._joined(*sides), self._across(self._below(v)))
            ratio = self._heat * (lnl - self.lnl) + weight_here - weight
            tree.attach(u, v, x)
            lengths[:, x], lengths[:, u] = lower, upper
            ratio += float(np.log(whole / merged).sum()) + self.log_prior() - prior
            taken = _is_accepted(stream, ratio)
            if not taken:
                tree.hang(int(tree.parent[u]), u, x)
                lengths[:, x] = whole
        if taken:
            self.lnl = lnl
        else:
            tree.attach(u, v, w)
            lengths[:, w], lengths[:, u] = below, above
        self._count(Move.REGRAFT, taken and x != w)
        self._renew_up(u)

    def _choose_edge(self, v: int, here: int, stream: Stream) -> tuple[int, float, float]:
        """Return an edge for a pruned subtree, its log-weight, and that of edge ``here``."""
        best, chosen, weights = -math.inf, here, {}
        pendant, tree = self._across(self._below(v)), self.tree
        inner = [u for u in tree.preorder() if u >= tree.tips]
        below = [int(x) for u in inner for x in (tree.left[u], tree.right[u])]
        for x in [int(tree.left[0]), *below]:
            self._make_down(x)
            half = self.tree.length_sets[:, x] / 2
            middle = self._joined((self._below(x)[0], half), (self._above(x)[0], half))
            weights[x] = self._heat * self._meeting(middle, pendant)
            score = weights[x] + stream.gumbel()
            if score > best:
                best, chosen = score, x
        return chosen, weights[chosen], weights[here]


def _is_accepted(stream: Stream, log_ratio: float) -> bool:
    """Decide if a state of this ln ratio takes the place of the present one (ACCEPT)."""
    return math.log(stream.uniform()) < log_ratio
