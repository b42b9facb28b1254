"""The sampler: ladders of chains on devices, adapted in burn-in, sampled afterwards.

An *iteration* is some steps of every group of model parameters, some sweeps of every chain's
tree, and a round of swaps. Burn-in goes in rounds, each twice as long as the one before; behind
each the heats of the ladder and the walks of the parameters are fitted anew. Then all of that stays
as it is, and the chains on the first rungs are sampled.

Everything random is drawn by counter from (seed, run, replica, iteration), so that a sampler that
goes on from its state makes the same samples. Letters: R runs, N rungs, C = R N chains.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from mltree.likelihood.left_out import LeftOut
from mltree.program.contract import (
    CHAIN_WORDS,
    COUNTED_MOVES,
    MOVE_STRIDE,
    RESTS,
    SPARE_LENGTHS,
    Chain,
    HostMove,
    Move,
)
from mltree.program.ops.sweeps import ChainTree, chain_words
from mltree.program.random_numbers import Stream
from mltree.sampling.priors import Priors
from mltree.sampling.proposals import Walks
from mltree.sampling.shares import ChainData, ChainLaunch, ChainShares
from mltree.sampling.tempering import BARRIER_A_RUNG, Ladders, spaced
from mltree.system.arrays import Bool, Float64, Int64
from mltree.system.values import Value
from mltree.tree.newick import DEFAULT_DIGITS
from mltree.tree.topology import Tree, random_topology, siblings, tree_from_edges

FIRST_ROUND = 50
"""Iterations of the first round of burn-in."""

LEAST_ROUNDS, MOST_ROUNDS = 4, 12
"""Rounds of a burn-in that ends by itself."""

FEW_ROUNDS, FEW_TAXA = 3, 50
"""Rounds at least where chains rest (on a CPU), and the most taxa of trees of which that is so: 350
sweeps regraft as many subtrees as 50 taxa have seven times. DS1, DS2 (27 and 29 taxa): lnL has the
mean of later samples from iteration 50 or 150 on."""

MANY_RUNS, LEAST_OF_MANY = 16, 3
"""Runs of one rung that show within fewer rounds how their parameters vary, and those rounds."""

LEAST_RUNGS, FIRST_RUNGS, CHOOSING_ROUND = 4, 8, 2
"""Rungs at least, and to begin with, where their number is chosen; the rounds after which it is."""

MOST_BARRIER = 2.5
"""Mean barrier between rungs, of as many as there may be, above which none are worth their time:
one swap in 500 is taken. Unrooted trees of some 130 taxa reach that with 16 rungs."""

SETTLED = 0.5
"""Largest change of the mean log-density from a half of a round to the other, and deviation between
runs' means, over the density's own deviation."""

FIRST_WINDOW = 0.5
"""Width of ln(factor) of all lengths, before it is adapted."""

SCALE_TARGET = 0.3
"""Share of such scalings that is best accepted."""

STEP_WIDTH, MOST_STEPS = 4, 4
"""Coordinates of a group for each of its steps in an iteration, and steps at most: a step without
a sweep costs a tenth of one with it."""

MOST_RATE_STEPS = 8
"""Steps of the rates of parts at most, one for each coordinate: of eight parts with a clock their
effective sample is 0.15 to 0.3 of all samples with two steps an iteration, 0.5 to 0.9 with ten."""

FIRST_RESTING = {0.5: 1, 0.1: 2, 0.01: 4, 0.0: 8}
RESTING = {0.5: 1, 0.1: 4, 0.0: 16}
"""Iterations from one with a chain's sweeps to the next, by the least heat that has as many: until
the number of rungs is chosen, for chains have to leave their start, and afterwards. On a CPU hot
chains cost as much as the first, and forget their state within a sweep or two. Slowest split's ESS
in a CPU second, the first table for all against both: DS2 0.03 against 0.30 and 0.56, DS1 0.09 to
0.35 (three seeds) against 0.11 to 0.58 (four); with rests below 0.9, DS1 0.05 to 0.31 (four)."""

IMPOSSIBLE = -1e300
"""Natural log of a ratio that is never accepted."""

LARGE_WORK = 1e9
"""Patterns x categories x states^2 x taxa of a chain from which on a sweep takes longer than making
a model on the host, even on a GPU: 62 taxa x 3,601 codons are three times that."""

STEPS_A_LARGE_SWEEP = 4
"""Steps of a group, for one elsewhere, where sweeps of time trees are so much work: such a sweep
takes as long as some fifty steps."""

SMALL_WORK = 2e6
"""Patterns x categories x states x taxa of all chains from which on an iteration is one sweep."""

MOST_SWEEPS = 6
"""Sweeps of an iteration at most: parameters take their steps between iterations. 16 taxa with a
relaxed clock took 22 CPU seconds to converge with 16 sweeps, 13 with 8, 11 with 5."""


class SamplerSettings(Value):
    """Shape of a sampler."""

    runs: int
    rungs: int
    seed: int
    most_rungs: int = 0
    """Rungs to choose, up to this, once the barrier is known; 0 where they stay as they are."""
    barrier_a_rung: float = BARRIER_A_RUNG
    """Mean barrier between rungs that are chosen: with 1 half of the swaps are taken."""
    burn_in: int | None = None
    """Iterations of burn-in; None to end it once densities have settled."""
    sweeps: int = 1
    """Sweeps of an iteration."""
    rests: bool = False
    """True where hot chains sweep less often (`RESTING`)."""
    takes_turns: bool = False
    """True where groups of parameters take turns, one step an iteration. Each step has a launch of
    its own but for the last, and the host makes models for it: on a GPU that takes longer than a
    sweep."""
    steps: int = 1
    """Steps of a group in an iteration for each of its usual ones."""

    def steps_of(self, group: slice) -> int:
        """Steps of a group of coordinates in an iteration."""
        width: int = group.stop - group.start
        return min(-(-width // STEP_WIDTH), MOST_STEPS) * self.steps


class Sample(NamedTuple):
    """A state of a chain on the first rung."""

    run: int
    iteration: int
    lnl: float
    log_prior: float
    values: Float64
    """Natural values of the model's parameters."""
    words: Float64
    """The chain's state."""

    @property
    def tree_lengths(self) -> Float64:
        """f64[sets]: sums of all branch lengths, expected substitutions per site."""
        return np.asarray(ChainTree(self.words).length_sets[:, 1:].sum(axis=1))

    @property
    def tree(self) -> Tree:
        """The tree with its branch lengths, those of the first set."""
        return tree_of(self.words)


def sweeps_at_once(work: float) -> int:
    """Sweeps of an iteration of so much work, so that launches are worth their time."""
    return int(np.clip(round(SMALL_WORK / max(1.0, work)), 1, MOST_SWEEPS))


class TreeSpace(ABC):
    """The trees that chains go through: words, first states, prior, widths of proposals."""

    first_stream = HostMove.STATE * MOVE_STRIDE
    """Number of the random numbers of first states."""
    moves: int
    """Moves that chains count."""

    @property
    @abstractmethod
    def windows(self) -> Float64:
        """f64[moves]: widths of proposals before they are adapted."""

    @abstractmethod
    def empty(self, chains: int) -> Float64:
        """f64[chains, words]: states of chains before there are any."""

    @abstractmethod
    def begin(self, words: Float64, seed: int, starts: Sequence[Tree]) -> None:
        """Write first states, from trees or else from the prior."""

    @abstractmethod
    def log_prior(self, words: Float64) -> float:
        """Natural log of the prior of a chain's tree."""

    @abstractmethod
    def stretch(self, words: Float64, steps: Float64, number: int) -> Float64:
        """Scale all lengths of a set by e^steps f64[C]; return f64[C] log-ratios without lnL."""

    @abstractmethod
    def write_windows(self, words: Float64, windows: Float64) -> None:
        """Write widths f64[C, moves] of proposals into words f64[C, words]."""

    @abstractmethod
    def counts(self, words: Float64) -> Float64:
        """f64[C, 2, moves]: moves tried and taken."""

    @abstractmethod
    def clear_counts(self, words: Float64) -> None:
        """Begin to count anew."""

    @abstractmethod
    def adapted(
        self, windows: Float64, tried: Float64, taken: Float64, number: int | None
    ) -> Float64:
        """Widths f64[N, moves] behind iteration ``number`` of a round of burn-in; None: behind it.

        tried, taken  f64[N, moves]: moves of the iteration, or of the round
        """


class FreeTrees(TreeSpace):
    """Unrooted trees, all topologies alike, with a set of lengths, or with one for every part."""

    moves = COUNTED_MOVES

    def __init__(
        self, tips: int, priors: Priors, bounds: tuple[float, float], sets: int = 1
    ) -> None:
        """``bounds``: shortest and longest branch."""
        self._tips, self._priors, self._bounds, self._sets = tips, priors, bounds, sets

    @property
    def windows(self) -> Float64:
        """The width of scalings."""
        return np.full(self.moves, FIRST_WINDOW)

    def empty(self, chains: int) -> Float64:
        """States without a tree."""
        return empty_words(chains, self._tips, self._sets)

    def begin(self, words: Float64, seed: int, starts: Sequence[Tree]) -> None:
        """Write trees, or draw them from the prior."""
        self._priors.branch_lengths.write(words, self._tips)
        for chain, row in enumerate(words):
            counter = int(row[Chain.RUN]), int(row[Chain.REPLICA]), 0, self.first_stream
            stream = Stream(seed, *counter)
            tree = starts[chain] if starts else first_tree(self._tips, self._priors, stream)
            hang_tree(row, tree)
            if not starts:
                self._draw_others(row, stream)

    def _draw_others(self, words: Float64, stream: Stream) -> None:
        """Draw all sets of lengths but the first from their prior."""
        chain, prior = ChainTree(words), self._priors.branch_lengths
        for lengths in chain.length_sets[1:]:
            lengths[1:] = prior.draw(self._tips, chain.is_outer, stream)

    def log_prior(self, words: Float64) -> float:
        """Natural log of the prior of lengths; and of topologies, all (2T - 5)!! alike."""
        chain, prior = ChainTree(words), self._priors.branch_lengths
        is_outer, of_lengths = chain.is_outer, 0.0
        for lengths in chain.length_sets[:, 1:]:
            of_lengths += prior.log_density(lengths, is_outer, self._tips)
        return of_lengths - float(np.log(np.arange(3, 2 * self._tips - 4, 2)).sum())

    def stretch(self, words: Float64, steps: Float64, number: int) -> Float64:
        """Scale all lengths of a set, as the sweeps' SCALE does."""
        tips = self._tips
        first = CHAIN_WORDS + number * (2 * tips - 2 + SPARE_LENGTHS)
        lengths = words[:, first + 1 : first + 2 * tips - 2]  # a view
        before = lengths.sum(axis=1)
        lengths *= np.exp(steps)[:, None]
        outer, inner, power, rate = (words[:, word] for word in _LENGTH_PRIOR)
        ratio = steps * (2 * tips - 3 + tips * outer + (tips - 3) * inner + power)
        ratio -= rate * (lengths.sum(axis=1) - before)
        low, high = self._bounds
        ratio[((lengths < low) | (lengths > high)).any(axis=1)] = -np.inf
        return np.asarray(ratio)

    def write_windows(self, words: Float64, windows: Float64) -> None:
        """Write the width of scalings."""
        words[:, Chain.WINDOW] = windows[:, Move.SCALE]

    def counts(self, words: Float64) -> Float64:
        """Moves tried and taken."""
        counted = slice(Chain.TRIED, Chain.TRIED + 2 * self.moves)
        return words[:, counted].reshape(-1, 2, self.moves)

    def clear_counts(self, words: Float64) -> None:
        """Begin to count anew."""
        words[:, Chain.TRIED : Chain.TRIED + 2 * self.moves] = 0

    def adapted(
        self, windows: Float64, tried: Float64, taken: Float64, number: int | None
    ) -> Float64:
        """Fit the scaling of all lengths behind each round."""
        if number is not None:
            return windows
        share = np.divide(taken, tried, np.full_like(tried, SCALE_TARGET), where=tried > 0)
        return np.asarray(windows * np.exp(2 * (share - SCALE_TARGET)))


class Sampler:
    """Ladders of chains over one alignment."""

    def __init__(
        self,
        shares: ChainShares,
        data: ChainData,
        priors: Priors,
        settings: SamplerSettings,
        starts: Sequence[Tree] = (),
        left_out: LeftOut | None = None,
        trees: TreeSpace | None = None,
    ) -> None:
        """``shares``: who has the chains; ``starts``: a tree for each, drawn where there are none.

        left_out  parts whose constant sites were left out: the numbers of those sites are drawn
                  before each launch (:meth:`mltree.likelihood.left_out.AscertainedPart.drawn`)
        trees     those that chains go through; unrooted ones by default
        """
        self.shares, self.priors, self.settings = shares, priors, settings
        self.tips, self.space = data.tips, data.space
        self.trees = trees or FreeTrees(data.tips, priors, data.bounds, data.sets)
        self._left_out = left_out
        self._seen = np.zeros((1, 0)) if left_out is None else left_out.seen(data.weights[None])
        """f64[1, P]: sites seen of the parts whose constant sites were left out."""
        runs, rungs, seed = settings.runs, settings.rungs, settings.seed
        self._lay_out()
        self.walks = Walks(self.space.groups, rungs, seed)
        self._schedule: list[int | None] = [
            number
            for number, group in enumerate(self.space.groups)
            for _ in range(self._steps_of(number, group))
        ]
        """The group of parameters of each step of an iteration, or of as many iterations."""
        self.ladders: Ladders
        self.iteration = 0
        self.attempts, self.launches = 0, 0
        self.round, self.in_round = 0, 0
        """Rounds of burn-in done, and iterations of the present one."""
        self.is_sampling = False
        """True behind the burn-in."""
        self.last_barrier = 0.0
        """Communication barrier in the last round."""
        self.trace: Float64 = np.zeros((0, runs))
        """f64[iterations of the round, R]: lnL plus log-prior of trees on the first rungs."""
        self.window: Float64 = np.tile(self.trees.windows, (rungs, 1))
        """f64[N, moves]: widths of proposals on each rung."""
        self.stretch: Float64 = np.full(rungs, FIRST_WINDOW)
        """f64[N]: the same of scalings by the corrected lnL."""
        self.stretched: Float64
        """f64[N, 2]: such scalings tried and taken on each rung."""
        self.counts: Float64
        """f64[N, 2, moves]: moves tried and taken on each rung."""
        chains = runs * rungs
        self.words = self.trees.empty(chains)
        """f64[C, words]: states of the chains, those of a run side by side."""
        self.points: Float64 = np.tile(self.space.start, (chains, 1))
        """f64[C, n]: model parameters of the chains."""
        self.found: Float64 = np.zeros((0, 1))
        """f64[C, 1 + U]: lnL of the sites seen, and of each pattern left out; () until known."""
        self._begin_words(starts)

    def _begin_words(self, starts: Sequence[Tree]) -> None:
        settings, words = self.settings, self.words
        run, replica = np.divmod(np.arange(len(words)), settings.rungs)
        words[:, Chain.RUN], words[:, Chain.REPLICA] = run, replica
        words[:, Chain.SEED_LOW] = settings.seed & 0xFFFF
        words[:, Chain.SEED_HIGH] = settings.seed >> 16 & 0xFFFF
        self.trees.begin(words, settings.seed, starts)

    def _steps_of(self, number: int, group: slice) -> int:
        """Steps of a group in an iteration; of parts' rates, which are the last, more of them."""
        if self.space.has_rates and number == len(self.space.groups) - 1:
            width: int = group.stop - group.start
            return min(width, MOST_RATE_STEPS)
        return self.settings.steps_of(group)

    @property
    def length_sets(self) -> int:
        """Sets of branch lengths of a chain."""
        return int(self.words[0, Chain.SETS])

    @property
    def rungs(self) -> Int64:
        """i64[C]: rung of each chain."""
        return self.ladders.rung.ravel()

    @property
    def lnl(self) -> Float64:
        """f64[R, N]: lnL of each chain."""
        return self.words[:, Chain.LNL].reshape(self.settings.runs, -1)

    @property
    def cold(self) -> Int64:
        """i64[R]: chain on the first rung of each run."""
        run = np.arange(self.settings.runs)
        return run * self.settings.rungs + self.ladders.chains[:, 0]

    def iterate(self, *, adapts: bool = False) -> None:
        """Do one iteration; ``adapts`` in burn-in only."""
        self.words[:, Chain.HEAT] = self.ladders.chain_heats.ravel()
        self.trees.write_windows(self.words, self.window[self.rungs])
        before = self.counts.copy()
        due = self._due
        if self._left_out is not None:
            self._iterate_corrected(self._left_out, due, adapts=adapts)
        else:
            self._iterate(due, adapts=adapts)
        if adapts and self._schedule:
            self.walks.learn(self.points[due], self.rungs[due])
        if adapts:
            tried, taken = (self.counts - before).swapaxes(0, 1)
            self.window = self.trees.adapted(self.window, tried, taken, self.in_round)
        self.ladders.swap(self.lnl)
        self.iteration += 1

    @property
    def _due(self) -> Bool:
        """bool[C]: chains that do not rest in this iteration; each rung has its turn."""
        rungs = self.rungs
        due: Bool = (self.iteration + rungs) % self._periods[rungs] == 0
        return due

    @property
    def _periods(self) -> Int64:
        """i64[N]: iterations from one with sweeps on a rung to the next."""
        heats = self.ladders.heats[0]
        if not self.settings.rests:
            return np.ones(len(heats), np.int64)
        is_fitted = self.is_sampling or self.round >= CHOOSING_ROUND
        resting = RESTING if is_fitted else FIRST_RESTING
        return np.select([heats >= least for least in resting], list(resting.values()))

    @property
    def mean_sweeps(self) -> float:
        """Sweeps of all chains in an iteration, on average."""
        return float(self.settings.runs * self.settings.sweeps * (1 / self._periods).sum())

    def _iterate(self, due: Bool, *, adapts: bool) -> None:
        """Take steps of parameters, the last one in the launch of the sweeps."""
        steps = self._schedule or [None]
        if self.settings.takes_turns:
            steps = [steps[self.iteration % len(steps)]]
        *others, last = steps
        for group in others:
            assert group is not None
            self._step(0, group, due, adapts=adapts)
        if last is not None:
            self._step(self.settings.sweeps, last, due, adapts=adapts)
        else:
            self._launch(self.settings.sweeps, due)

    def _iterate_corrected(self, left_out: LeftOut, due: Bool, *, adapts: bool) -> None:
        """Take steps of parameters and of the tree's length by the corrected lnL, then sweep.

        Sweeps move a tree under given numbers of sites left out, which hold the tree's length and
        parameters where most sites were left out.
        """
        if not len(self.found):
            self._learn_lnl(left_out)
        for group in self._schedule:
            assert group is not None
            counters, self.attempts = self._counters, self.attempts + 1
            proposed, ratio, walks = self.walks.propose(self.points, counters, self.rungs, group)
            ratio += self._prior_ratio(proposed)
            taken = self._decide(left_out, due, self.words, ratio, proposed, group)
            self.points[taken] = proposed[taken]
            self.walks.tell(self.rungs[due], group, taken[due], walks[due], adapts=adapts)
        for number in range(self.length_sets):
            self._stretch(left_out, due, number)
        self._launch(self.settings.sweeps, due)

    def _stretch(self, left_out: LeftOut, due: Bool, number: int) -> None:
        """Scale all lengths of a set by the corrected lnL."""
        words, rungs = self.words.copy(), self.rungs
        draws = self._rng(_STRETCH).random(len(words))
        ratio = self.trees.stretch(words, self.stretch[rungs] * (draws - 0.5), number)
        taken = self._decide(left_out, due, words, ratio)
        np.add.at(self.stretched[:, 0], rungs, due)
        np.add.at(self.stretched[:, 1], rungs, taken)

    def _decide(
        self,
        left_out: LeftOut,
        due: Bool,
        words: Float64,
        ratio: Float64,
        proposed: Float64 | None = None,
        group: int = 0,
    ) -> Bool:
        """Accept other states, or other parameters, by the corrected lnL and f64[C] log-ratios."""
        words = words.copy()
        words[:, Chain.RATIO], words[:, Chain.TICKET] = -IMPOSSIBLE, 0
        words[:, Chain.PROPOSAL] = np.where(due, proposed is not None, RESTS)
        none = np.zeros((len(words), len(left_out.columns)))
        landed = self.shares(ChainLaunch(words, self.points, 0, proposed, group, none))
        landed.words[:, Chain.PROPOSAL] = 0
        landed.words[:, Chain.LNL] = lnl = self._corrected_lnl(left_out, landed.lnl)
        change = words[:, Chain.HEAT] * (lnl - self.words[:, Chain.LNL])
        taken: Bool = due & (np.log(self._rng(_DECISION).random(len(words))) < ratio + change)
        self.words[taken], self.found[taken] = landed.words[taken], landed.lnl[taken]
        self.launches += 1
        return taken

    def _learn_lnl(self, left_out: LeftOut) -> None:
        none = np.zeros((len(self.words), len(left_out.columns)))
        self.found = self.shares(ChainLaunch(self.words, self.points, 0, weights=none)).lnl
        self.words[:, Chain.LNL] = self._corrected_lnl(left_out, self.found)

    def _rng(self, purpose: int) -> np.random.Generator:
        """Random numbers of the host for one launch."""
        return np.random.default_rng([self.settings.seed, self.launches, purpose])

    @property
    def _counters(self) -> Int64:
        """i64[C, 3]: run, replica, and number of the attempt."""
        run, replica = (self.words[:, word].astype(np.int64) for word in (Chain.RUN, Chain.REPLICA))
        return np.column_stack([run, replica, np.full(len(run), self.attempts)])

    def advance(self) -> None:
        """Do one iteration, of burn-in or of sampling, and what ends a round or the burn-in."""
        if self.is_sampling:
            self.iterate()
            return
        length = FIRST_ROUND << self.round
        if self.in_round in (0, length // 2):  # what chains go through first is left out
            self.ladders.begin()
            self.counts[:], self.stretched[:] = 0, 0
        self.iterate(adapts=True)
        densities = [row[Chain.LNL] + self.trees.log_prior(row) for row in self.words[self.cold]]
        self.trace = np.vstack([self.trace, densities])
        self.in_round += 1
        limit = self.settings.burn_in
        if self.in_round == length or self.iteration == limit:
            self._end_round()

    def _end_round(self) -> None:
        """Fit what is adapted; choose the rungs, end the burn-in where that is due."""
        limit, rungs = self.settings.burn_in, self.settings.rungs
        self.round, self.in_round = self.round + 1, 0
        self.last_barrier = self.ladders.barrier
        if self.settings.most_rungs and self.round <= CHOOSING_ROUND:
            rungs = self._wanted_rungs()
        self.fit(rungs)
        is_late = self.round >= MOST_ROUNDS
        is_over = is_late or (self.round >= self._least_rounds and self.is_settled)
        if is_over if limit is None else self.iteration >= limit:
            self.is_sampling = True
            self.ladders.begin()
            self.walks.forget()
        self.trace = self.trace[:0]

    @property
    def _least_rounds(self) -> int:
        settings = self.settings
        if settings.rungs == 1 and settings.runs >= MANY_RUNS:
            return LEAST_OF_MANY
        is_small = self.tips <= FEW_TAXA and isinstance(self.trees, FreeTrees)
        return FEW_ROUNDS if is_small and settings.rests else LEAST_ROUNDS

    def _wanted_rungs(self) -> int:
        """Rungs for the barrier of the last round, whose chains keep the device busy to the end.

        A lone one where no ladder reaches the prior; at once where it is far from doing so.

        A device sweeps so many chains in the time of one that fewer leave it idle: on an H200 156
        chains of DS1 took 7.6 ms a sweep, 132 took 4.9. Rungs at no cost shorten round trips.
        """
        settings = self.settings
        most = MOST_BARRIER * (settings.most_rungs - 1)
        if self.ladders.barrier > most * (2 if self.round < CHOOSING_ROUND else 1):
            return 1
        if self.round < CHOOSING_ROUND or settings.rungs == 1:
            return settings.rungs
        wanted = 1 + round(self.ladders.barrier / settings.barrier_a_rung)
        at_once = self.shares.room.at_once
        waves = max(1, round(wanted * settings.runs / at_once))
        filling = waves * at_once // settings.runs
        if at_once > 1:
            wanted = min(filling, 2 * wanted)
        return int(np.clip(wanted, LEAST_RUNGS, settings.most_rungs))

    @property
    def is_settled(self) -> bool:
        """True where both halves of the last round, and all runs, have about the same mean density.

        The first third is left out. The change from half to half is that of all runs on average.
        """
        first, second = np.array_split(self.trace[len(self.trace) // 3 :], 2)
        most = SETTLED * float(second.std(axis=0).mean())
        change = abs(float(second.mean() - first.mean()))
        between = float(((first.mean(axis=0) + second.mean(axis=0)) / 2).std())
        return max(change, between) <= most

    def fit(self, rungs: int) -> None:
        """Fit heats of so many rungs, walks and windows to what was met since the last fit."""
        tried, taken = self.counts[:, 0], self.counts[:, 1]
        self.window = self.trees.adapted(self.window, tried, taken, None)
        tried, taken = self.stretched.T
        share = np.divide(taken, tried, np.full_like(tried, SCALE_TARGET), where=tried > 0)
        self.stretch *= np.exp(2 * (share - SCALE_TARGET))
        self.walks.refit()
        if rungs == self.settings.rungs:
            self.ladders.refit()
            self.counts[:], self.stretched[:] = 0, 0
        else:
            self._take_rungs(rungs)

    def _take_rungs(self, rungs: int) -> None:
        """Go on with another number of rungs, each from the chain of the nearest heat."""
        before, runs = self.ladders, self.settings.runs
        heats = spaced(before.heats[0], before.deviation, rungs)
        nearest = np.abs(before.heats[0][None, :] - heats[:, None]).argmin(axis=1)
        chains = (before.chains[:, nearest] + np.arange(runs)[:, None] * before.rungs).ravel()
        self.settings = replace(self.settings, rungs=rungs)
        self._lay_out()
        self.ladders.take_heats(heats)
        self.ladders.rounds = before.rounds
        self.walks = self.walks.of_rungs(nearest)
        self.window, self.points = self.window[nearest], self.points[chains]
        self.stretch = self.stretch[nearest]
        self.found = self.found[chains] if len(self.found) else self.found
        own = self.words[chains]
        own[:, Chain.RUN], own[:, Chain.REPLICA] = np.divmod(np.arange(len(own)), rungs)
        self.words = own

    def _lay_out(self) -> None:
        """Make ladders and counts for the settings' number of chains."""
        settings = self.settings
        grain = 0 if self._left_out is None else self._left_out.grain
        self.ladders = Ladders(settings.runs, settings.rungs, settings.seed, grain)
        self.counts = np.zeros((settings.rungs, 2, self.trees.moves))
        self.stretched = np.zeros((settings.rungs, 2))

    def samples(self) -> Iterator[Sample]:
        """The states of the chains on the first rungs, run by run."""
        cold = self.cold
        values = self.space.values(self.points[cold])
        of_model = self.space.log_prior(self.points[cold])
        for run, chain in enumerate(cold.tolist()):
            row = self.words[chain]
            log_prior = float(of_model[run]) + self.trees.log_prior(row)
            lnl = float(row[Chain.LNL])
            yield Sample(run, self.iteration, lnl, log_prior, values[run], row.copy())

    def _step(self, sweeps: int, group: int, due: Bool, *, adapts: bool) -> None:
        """Propose a step of a group of parameters for every chain, decide on it, and sweep."""
        proposed, ratio, walks = self.walks.propose(self.points, self._counters, self.rungs, group)
        ratio += self._prior_ratio(proposed)
        self.words[:, Chain.RATIO] = np.maximum(ratio, IMPOSSIBLE)
        self.words[:, Chain.ATTEMPT] = self.attempts % MOVE_STRIDE
        self.attempts += 1
        taken = self._launch(sweeps, due, proposed, group)
        self.points[taken] = proposed[taken]
        self.walks.tell(self.rungs[due], group, taken[due], walks[due], adapts=adapts)

    def _prior_ratio(self, proposed: Float64) -> Float64:
        """f64[C]: log-ratios of the priors of proposed points and of the present ones."""
        there, here = np.split(self.space.log_prior(np.concatenate([proposed, self.points])), 2)
        return np.asarray(there - here)

    def _launch(
        self, sweeps: int, due: Bool, proposed: Float64 | None = None, group: int = 0
    ) -> Bool:
        """Decide on proposals for the chains that are due, sweep them; return those accepted."""
        weights = None if self._left_out is None else self._drawn_weights(self._left_out)
        words = self.words
        words[:, Chain.TICKET] = 0
        words[:, Chain.PROPOSAL] = np.where(due, proposed is not None, RESTS)
        self.trees.clear_counts(words)
        landed = self.shares(ChainLaunch(words, self.points, sweeps, proposed, group, weights))
        self.words = landed.words
        taken: Bool = self.words[:, Chain.PROPOSAL] == 2
        self.words[:, Chain.PROPOSAL] = 0
        self.launches += 1
        np.add.at(self.counts, self.rungs, self.trees.counts(self.words))
        if self._left_out is not None:
            self.found[due] = landed.lnl[due]
            self.words[:, Chain.LNL] = self._corrected_lnl(self._left_out, self.found)
        return taken

    def _corrected_lnl(self, left_out: LeftOut, found: Float64) -> Float64:
        """f64[C]: lnL of the sites seen, given that the others were left out."""
        seen, logs = found[:, 0], found[:, 1:]
        corrected: Float64 = seen + left_out.corrections_of(self._seen[0], logs)
        return corrected

    def _drawn_weights(self, left_out: LeftOut) -> Float64:
        """f64[C, U]: weights of the patterns left out, under which chains have their lnL then."""
        words, logs = self.words, self.found[:, 1:]
        heats, rng = words[:, Chain.HEAT], self._rng(_LEFT_OUT)
        weights = left_out.drawn(self._seen[0], heats, logs, rng)
        words[:, Chain.LNL] = self.found[:, 0] + (weights * logs).sum(axis=1)
        return weights

    def state(self) -> dict[str, Any]:
        """All that a resumed run needs, as arrays by name."""
        every = {name: np.copy(getattr(self, name)) for name in (*_NUMBERS, *_TABLES)}
        every["rungs"] = np.array(self.settings.rungs)
        for room, part in (("ladders", self.ladders), ("walks", self.walks)):
            every |= {f"{room}.{name}": value for name, value in part.state().items()}
        return every

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a state of a sampler of the same settings."""
        self.settings = replace(self.settings, rungs=int(state["rungs"]))
        self._lay_out()
        self.walks = Walks(self.space.groups, self.settings.rungs, self.settings.seed)
        for name in _NUMBERS:
            setattr(self, name, int(state[name]))
        for name in _TABLES:
            setattr(self, name, np.array(state[name]))
        for room, part in (("ladders", self.ladders), ("walks", self.walks)):
            start = f"{room}."
            names = [name for name in state if name.startswith(start)]
            part.restore({name.removeprefix(start): state[name] for name in names})


_NUMBERS = ("iteration", "attempts", "launches", "round", "in_round", "is_sampling")
_TABLES = ("window", "stretch", "stretched", "counts", "words", "points", "trace", "found")
_LEFT_OUT, _STRETCH, _DECISION = range(3)
_LENGTH_PRIOR = (Chain.OUTER, Chain.INNER, Chain.POWER, Chain.RATE)


def first_tree(tips: int, priors: Priors, stream: Stream) -> Tree:
    """A topology drawn uniformly from all, with lengths drawn from their prior."""
    rng = np.random.default_rng([int(stream.uniform() * 2**53), int(stream.uniform() * 2**53)])
    tree = random_topology(tips, rng)
    is_outer = np.asarray((tree.edge_halves // 3 < tips).any(axis=1), np.float64)
    tree.lengths[:] = priors.branch_lengths.draw(tips, is_outer, stream)
    return tree


# Chains: trees as the words that a device sweeps over, and back.


def hang_tree(words: Float64, tree: Tree) -> None:
    """Write a tree into a chain's words f64[n], as it hangs from tip 0."""
    chain, first_inner = ChainTree(words), 3 * tree.n_tips
    chain.parent[:] = chain.left[:] = chain.right[:] = 0
    waiting = [int(tree.twin[0])]
    while waiting:
        half = waiting.pop()
        node, twin = half // 3, int(tree.twin[half])
        chain.length_sets[:, node] = tree.lengths[..., tree.edge[half]]
        chain.parent[node] = twin // 3
        if twin // 3 == 0:
            chain.left[0] = node
        if half >= first_inner:
            left, right = (int(tree.twin[side]) for side in siblings(half))
            chain.left[node], chain.right[node] = left // 3, right // 3
            waiting += [right, left]


def tree_of(words: Float64, number: int = 0) -> Tree:
    """The tree of a chain's words f64[n]; ``number``: of the set of lengths."""
    chain = ChainTree(words)
    nodes = np.arange(1, chain.nodes)
    ends = np.column_stack([nodes, chain.parent[1:].astype(np.int64)])
    return tree_from_edges(ends, chain.length_sets[number, 1:].copy(), chain.tips)


def newick_of_words(words: Float64, number: int = 0) -> str:
    """The tree of a chain's words f64[n] as `write_newick` writes it, with taxa numbered from 1.

    number  of the set of lengths

    A sampler writes a tree of each run every few milliseconds, so this goes without a `Tree`.
    """
    chain = ChainTree(words)
    lengths, tips = chain.length_sets[number].tolist(), chain.tips
    left, right = chain.left.astype(np.int64).tolist(), chain.right.astype(np.int64).tolist()
    top, first = left[0], list(range(chain.nodes))
    texts = [""] * chain.nodes
    for node in reversed(_preorder(top, left, right, tips)):
        text = str(node + 1)
        if node >= tips:
            one, other = sorted((left[node], right[node]), key=first.__getitem__)
            first[node] = first[one]
            text = f"{texts[one]},{texts[other]}"
        if node == top:
            return f"(1:{lengths[top]:.{DEFAULT_DIGITS}f},{text});"
        text = text if node < tips else f"({text})"
        texts[node] = f"{text}:{lengths[node]:.{DEFAULT_DIGITS}f}"
    raise AssertionError("no top")


def _preorder(top: int, left: list[int], right: list[int], tips: int) -> list[int]:
    order, waiting = [], [top]
    while waiting:
        node = waiting.pop()
        order.append(node)
        if node >= tips:
            waiting += (left[node], right[node])
    return order


def empty_words(chains: int, tips: int, sets: int = 1) -> Float64:
    """f64[chains, words]: states of chains without trees, of so many sets of branch lengths."""
    words = np.zeros((chains, chain_words(tips, sets)))
    words[:, Chain.SETS] = sets
    return words
