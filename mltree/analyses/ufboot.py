"""The ultrafast bootstrap of a search that has ended: which trees its replicates are offered.

Those are the best trees that the search met, the trees that replicates hold, those of most first,
and of each of them both neighbours across every inner branch, with five branches optimised: what
IQ-TREE offers on its way from one perturbed tree to the next. A tree that is held leads to others
that would be, so that few have to be looked around. IQ-TREE meets good trees often, each time with
branch lengths that are not quite the best, and replicates keep what suits them. So trees that are
held are looked around again here, by chance, those of most replicates most often, their lengths
disturbed. It goes on until more leave the supports as they are
(:data:`mltree.supports.bootstrap.CORRELATION`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from mltree.analyses.bootstrap import BOOTSTRAPS, Pace, result_of
from mltree.analyses.options import SearchOptions
from mltree.analyses.tree_sets import support_texts
from mltree.fit.settings import SearchSettings
from mltree.likelihood.interchanges import LEGS, Quartets, interchanged, neighbours
from mltree.likelihood.likelihood import ONE_STEP, TreeLikelihood
from mltree.likelihood.requests import perform_all
from mltree.likelihood.site_rows import optimised_quartets, rows_of_quartets
from mltree.models.partitioned import PartitionModel
from mltree.program.cases import Case
from mltree.program.engine import Weights
from mltree.runs.calls import Call
from mltree.runs.demand import keeps_drawn
from mltree.runs.engines import Engines
from mltree.runs.logged_run import WorkTimer
from mltree.runs.results import BootstrapResult
from mltree.runs.trees import TreeResult, TreeSearch
from mltree.supports.bootstrap import CORRELATION, Ultrafast
from mltree.supports.consensus import Consensus, SplitTable, consensus, members, split_table
from mltree.supports.resampling import USUAL, Resampling, SamplingScheme
from mltree.system.arrays import Bool, Float64, Index, UInt64
from mltree.system.errors import InputError
from mltree.system.events import (
    BootstrapFinished,
    Emit,
    Notice,
    ReplicateDone,
    SupportsDrawn,
    TreesOffered,
    ignore,
)
from mltree.system.values import Value
from mltree.tree.clades import nested, read_clades, read_labelled, write_clades
from mltree.tree.newick import read_newick, write_newick
from mltree.tree.splits import SplitSums, splits, topology_key
from mltree.tree.topology import Forest, Tree
from mltree.treesearch.constraint import Constraint
from mltree.treesearch.replicates import Replicates
from mltree.treesearch.search import SearchOutcome

NAME = "ultrafast"
"""Name of the stream of random numbers."""

CENTRES = 8
"""Trees that are looked around before it is asked again which."""

AGAIN = 4
"""Centres that are drawn among the trees that replicates hold, a tree by a replicate."""

LEAST_CENTRES, MOST_CENTRES = 72, 1000
"""Times that trees are looked around at least and at most."""

QUIET, STEADY = 4, 0.01
"""It ends earlier where so many rounds of looking around take no support further from where it was.
Of 1,000 replicates a support's own error is 0.016; replicates that two trees suit alike go from one
to the other all the time."""

DISTURBANCE = 3.5
"""Standard deviation of the logs of branch lengths before one pass of optimisation, times the root
of the sites, as what data say of a length is uncertain: 0.2 of six simulated sets of 300 sites or
so. (0.2 of 3,179 sites left R_Laurasiatherian with 692 trees for 2,832, and a bias of 4 %.)"""

TOGETHER = 100
"""Trees that are told apart at a time."""

TOLD = 100
"""Replicates that have improved their trees when it is told again."""

TIMED = 20
"""Replicates that have improved their trees before it is asked how long all of them will take."""

NARROW = 1 / 3
"""Share of a search's window in which --bnni scores interchanges again, for trees that replicates
hold are nearly as likely as they become: 15 of 64 taxa ended 0.005 lnL lower on average, with a
fifth of the triplets, which had taken half of the time."""

PASSES = 4
"""Newton steps, less one, on the five branches of a neighbour when it is met first. Where the same
four subtrees are joined the same way around another tree, their lengths lack 0.01 to 0.05 lnL
(median), in 19 of 20 cases less than 0.5."""

REACH = 3.0
"""lnL below the cutoff down to which neighbours are scored whose quartets were met around another
tree: how far they are below the tree changes by less in 98 of 100 cases (R_Laurasiatherian)."""


class UltrafastOutcome(Value):
    """The replicates of an ultrafast bootstrap."""

    trees: list[Tree]
    """A tree of all taxa for each; copies of sequences are put back in a random order. Nobody
    changes them: several may be the same object."""
    correlation: float
    """Correlation of all splits' supports with the supports after half as many trees."""
    around: int
    """Trees whose neighbours were offered."""
    offered: int
    """Different topologies."""
    seconds: float
    """Wall time."""

    @property
    def converged(self) -> bool:
        """True if more trees would leave the supports as they are."""
        return self.correlation >= CORRELATION


def ultrafast(
    search: TreeSearch,
    searched: SearchOutcome,
    replicates: int,
    seed: int,
    settings: SearchSettings | None = None,
    emit: Emit = ignore,
    limit: float | None = None,
    scheme: SamplingScheme = USUAL,
) -> UltrafastOutcome:
    """Offer trees until the supports stay as they are.

    settings  of searches by interchanges in which every replicate improves its tree, under its own
              weights (IQ-TREE's --bnni); None: the trees are what they were offered as
    limit     wall seconds beyond which those searches are left out; None: they never are
    scheme    how the sites of replicates are drawn
    """
    began = time.perf_counter()
    likelihood = search.engines.likelihood
    rows = Resampling.of(search.distinct.groups, seed, NAME, scheme).below_data(replicates)
    plans = search.engines.plans
    stay = all(keeps_drawn(plan.devices, replicates, plan.n_patterns) for plan in plans)
    if stay:
        likelihood.load_weights(rows)
    own, case = Ultrafast(replicates), Case(searched.model.arrays())
    try:
        offers = _Offers(likelihood, case, rows, stay, own, search.constraint)
        correlation = _offered(offers, searched, np.random.default_rng(seed), emit)
    finally:
        likelihood.load_weights(rows[:1].astype(np.float64))
    if correlation < CORRELATION:
        emit(Notice(f"{len(offers.done):,} trees explored, and UFBoot supports still change: "
                    f"a correlation of {correlation:.3f}"))  # fmt: skip
    trees = [own.trees[key] for key in own.held.tolist()]
    every = Replicates(
        search.distinct, searched.model, settings or search.settings, seed, search.constraint, NAME,
        trees,
    )  # fmt: skip
    climbed = None if settings is None else _climbed(every, search.engines, emit, limit)
    whole = climbed or list(_restored(every))
    spent = time.perf_counter() - began
    return UltrafastOutcome(whole, correlation, len(offers.done), own.offered, spent)


def _restored(replicates: Replicates) -> Iterator[Tree]:
    """The trees with the copies of sequences back; one object where replicates have the same.

    Branches that say nothing of the order of their neighbours are drawn anew for each replicate:
    under no weights is one order better than another by more than EPSILON, but most trees that are
    offered have the one of the tree that they are neighbours of. 30 taxa x 300 sites: a branch of
    no length had 95, 61, 51 and less than 40 % by four seeds.
    """
    longest = replicates.settings.perturbation.free_length
    mean = replicates.model.mean_lengths
    lone = {id(tree): tree for tree in replicates.given}
    lone = {key: tree.with_lengths(mean(tree.lengths)) for key, tree in lone.items()}
    made: dict[tuple[int, bytes], Tree] = {}
    numbers = iter(range(1, len(replicates.given) + 1))
    while some := list(islice(numbers, TOGETHER)):
        untied = []
        for number in some:
            rng, tree = replicates.rng(number), lone[id(replicates.given[number - 1])]
            distinct = replicates.distinct.shuffled(rng)
            untied.append((distinct, replicates.without_ties(tree, longest, rng)))
        unlike = {id(tree): tree for _, tree in untied}
        keys = dict(zip(unlike, Forest(list(unlike.values())).topology_keys(), strict=True))
        for distinct, tree in untied:
            order = np.concatenate([distinct.kept, distinct.copies, distinct.models])
            key = keys[id(tree)], order.tobytes()
            if key not in made:
                made[key] = distinct.restore(tree)
            yield made[key]


def _climbed(
    replicates: Replicates, engines: Engines, emit: Emit, limit: float | None
) -> list[Tree] | None:
    """Improve the trees by interchanges, each under the weights of its replicate.

    None where that would take longer than the limit, as the first ones tell.
    """
    trees = list(replicates.given)
    numbers = range(1, len(trees) + 1)
    with engines.for_replicates(replicates, numbers, len(trees)) as (likelihood, slots):
        searches = replicates.searches(numbers, slots)
        pace, timer = Pace("--bnni", 0, len(trees), emit), WorkTimer(engines)
        for done, (_, replicate) in enumerate(perform_all(likelihood, searches, slots.count), 1):
            trees[replicate.number - 1] = replicate.tree
            if done % TOLD == 0:
                emit(ReplicateDone(replicate.number, replicate.lnl, done, len(trees)))
            if done == slots.count:  # with what is done once
                timer = WorkTimer(engines)
            if done == slots.count + TIMED and limit:
                rest = timer.seconds / TIMED * (len(trees) - done)
                if rest > limit:
                    hint = "--ufboot 1000 --bnni wants it all the same"
                    about = f"--bnni would take about {rest / 60:,.0f} minutes more"
                    emit(Notice(f"{about}, and is left out; {hint}"))
                    return None
            pace.tell(done, TOLD)
    return trees


def _offered(
    offers: _Offers, searched: SearchOutcome, rng: np.random.Generator, emit: Emit
) -> float:
    """Go from tree to tree; the correlation of the supports at the end."""
    own = offers.replicates
    offers.around([searched.tree])
    offers.around(
        [entry.tree for entry in searched.pool.trees if entry.key != topology_key(searched.tree)]
    )
    while True:
        correlation = own.correlation() or 0.0
        rest = [key for key, _ in own.holders() if key not in offers.done]
        correlation = correlation if rest else 1.0
        emit(TreesOffered(len(offers.done), own.offered, len(own.trees), correlation))
        is_enough = own.moved(QUIET) <= STEADY or offers.times >= LEAST_CENTRES
        if (correlation >= CORRELATION and is_enough) or offers.times >= MOST_CENTRES:
            return correlation
        again = rng.choice(own.held, AGAIN).tolist()
        chosen = [own.trees[key] for key in [*rest[: CENTRES - AGAIN], *again]]
        offers.around([_disturbed(tree, offers.sites, rng) for tree in chosen])


def _disturbed(tree: Tree, sites: float, rng: np.random.Generator) -> Tree:
    """A copy with other branch lengths."""
    other = tree.copy()
    deviation = DISTURBANCE / np.sqrt(sites)
    other.lengths *= np.exp(rng.normal(0.0, deviation, other.lengths.shape))
    return other


class Met:
    """Quartets that were looked at; most of those around a tree are around the next one too."""

    def __init__(self) -> None:
        self._rows: dict[int, tuple[float, Float64]] = {}

    def recall(self, keys: UInt64, order: Index, lengths: Float64) -> Float64:
        """f64[n]: how far they were above the tree, NaN where they are new.

        keys, order  see :meth:`.SplitSums.quartets`
        lengths      f64[..., n, 5]: become those that they had
        """
        above = np.full(len(keys), np.nan)
        for n, key in enumerate(keys.tolist()):
            if key in self._rows:
                above[n], lengths[..., n, [*order[n], LEGS]] = self._rows[key]
        return above

    def learn(self, keys: UInt64, order: Index, lengths: Float64, above: Float64) -> None:
        """Remember them, but those without lnL."""
        for n in np.flatnonzero(np.isfinite(above)).tolist():
            self._rows[keys.item(n)] = above.item(n), lengths[..., n, [*order[n], LEGS]]


class _Offers:
    """Offers trees, and remembers which it was around of."""

    def __init__(
        self,
        likelihood: TreeLikelihood,
        case: Case,
        weights: Weights,
        stay: bool,
        replicates: Ultrafast,
        constraint: Constraint | None,
    ) -> None:
        """Offer to the replicates.

        weights  [1 + B, L]: the data's and the replicates'
        stay     whether the likelihood has them all; it has the data's alone otherwise
        """
        self.replicates = replicates
        self.done: set[int] = set()
        """Keys of the topologies whose neighbours were offered."""
        self.times = 0
        """Times that neighbours were offered."""
        self.sites = float(weights[0].sum())
        self._likelihood, self._case = likelihood, case
        self._of_data, self._resampled = weights[0].astype(np.float64), weights[1:]
        self._stay = stay
        self._constraint = constraint
        self._met = Met()

    def around(self, trees: list[Tree]) -> None:
        """Offer trees, after a pass over their branch lengths, and their neighbours."""
        if not trees:
            return
        own = [tree.copy() for tree in trees]
        for tree in own:
            tree.lengths = self._likelihood.clip(tree.lengths)
        lnl = self._likelihood.smooth(own, [self._case] * len(own), 0.0, ONE_STEP)
        for tree, of_tree in zip(own, lnl.tolist(), strict=True):
            sums = SplitSums(tree)
            self._around(tree, sums, of_tree)
            self.done.add(sums.topology)
        self.times += len(own)

    def _around(self, tree: Tree, sums: SplitSums, of_tree: float) -> None:
        topologies, around = sums.interchanges(), neighbours(tree, sums.edges)
        keys, order = sums.quartets(around.halves)
        above = self._met.recall(keys, order, around.lengths)
        allowed = self._allowed(tree, sums)
        self._optimise(tree, around, of_tree, above, allowed & np.isnan(above))
        near = np.flatnonzero(allowed & (of_tree + above >= self.replicates.cutoff - REACH))
        rows = rows_of_quartets(
            self._likelihood, tree, self._case, around.part(near), self._of_data
        )
        above[near] = rows.lnl[:-1] - of_tree
        self._met.learn(keys, order, around.lengths, above)
        weights = self._resampled
        resampled = rows.resampled_by(1, weights) if self._stay else rows.resampled(weights)
        offered = np.flatnonzero(rows.lnl >= self.replicates.cutoff)
        every = np.append(topologies[near], np.uint64(sums.topology))

        def make(n: int) -> Tree:
            row = int(offered[n])
            return tree if row == near.size else interchanged(tree, around, int(near[row]))

        self.replicates.offer(every[offered], rows.lnl[offered], resampled[offered], make)

    def _optimise(
        self, tree: Tree, around: Quartets, of_tree: float, above: Float64, chosen: Bool
    ) -> None:
        """Give the chosen quartets better branch lengths, and how far they are above the tree."""
        which = np.flatnonzero(chosen)
        if which.size:
            better, lnl = optimised_quartets(
                self._likelihood, tree, self._case, around.part(which), PASSES, turns=0
            )
            around.lengths[..., which, :] = better.lengths
            above[which] = lnl - of_tree

    def _allowed(self, tree: Tree, sums: SplitSums) -> Bool:
        """bool[2(T - 3)]: the neighbours that keep all splits of the constraint."""
        if self._constraint is None:
            return np.ones(2 * len(sums.edges), np.bool_)
        shows = self._constraint.shown_by(tree)[:, sums.edges].any(axis=0)
        return np.repeat(~shows, 2)


# The ultrafast bootstrap that follows a search: its files, and the labels of the best tree.

TREES, CONSENSUS, SPLITS = "ufboot", "contree", "splits.nex"
ULTRAFAST_KINDS = (TREES, CONSENSUS, SPLITS)
"""Kinds of files, IQ-TREE's."""


FEWEST_REPLICATES, MOST_REPLICATES = 1000, 1_000_000
"""Replicates: with fewer, supports are too coarse to tell that they stay (IQ-TREE);
more is a slip of the finger."""


class UltrafastPlan(Value):
    """An ultrafast bootstrap that a search shall do."""

    replicates: int
    bnni: bool
    """True if every replicate improves its tree by interchanges (IQ-TREE's --bnni)."""
    limit: float | None = None
    """Wall seconds beyond which --bnni is left out; None: it never is."""
    scheme: SamplingScheme = USUAL

    @classmethod
    def asked_by(cls, options: SearchOptions) -> UltrafastPlan | None:
        """The plan of these options; None where they ask for none.

        Raises:
            InputError: there are too few replicates, or something does not go together.
        """
        replicates = options.ufboot
        if replicates is None:
            if options.bnni:
                raise InputError("--bnni improves the replicates of --ufboot", hint="give both")
            return None
        if options.bootstrap is not None:
            raise InputError("--ufboot and --bootstrap exclude each other")
        if not FEWEST_REPLICATES <= replicates <= MOST_REPLICATES:
            bounds = f"between {FEWEST_REPLICATES:,} and {MOST_REPLICATES:,} are possible"
            raise InputError(f"--ufboot {replicates}: {bounds}", hint="1000 is usual")
        scheme = SamplingScheme.of(options.sampling)
        return cls(replicates, options.bnni, scheme=scheme)


def climbing_settings(settings: SearchSettings) -> SearchSettings:
    """Settings of --bnni, of those of the search before it."""
    nni = settings.unperturbed().nni_only()
    rounds = replace(nni.rounds, window=NARROW * nni.rounds.window)
    return replace(nni, phases=nni.phases[:1], rounds=rounds)


def ultrafast_texts(
    plan: UltrafastPlan, ready: TreeSearch, result: TreeResult, best: str, seed: int, emit: Emit
) -> tuple[dict[str, str], list[SupportsDrawn]]:
    """Compute it: the files by kind, and the supports.

    best  the best tree in Newick, with the labels that the supports go behind
    """
    assert result.search is not None
    climbing = climbing_settings(ready.settings) if plan.bnni else None
    outcome = ultrafast(
        ready, result.search, plan.replicates, seed, climbing, emit, plan.limit, plan.scheme
    )
    taxa = ready.problem.taxa
    different = {id(tree): tree for tree in outcome.trees}
    lines = {key: write_newick(tree, taxa) + "\n" for key, tree in different.items()}
    newicks = "".join(lines[id(tree)] for tree in outcome.trees)
    clades, before = read_labelled(best)
    replicates = read_clades(newicks, clades, "the best tree")
    texts, events = support_texts(clades, replicates, {"support": "ufboot"}, emit, before)
    emit(BootstrapFinished(plan.replicates, outcome.converged, (), outcome.seconds))
    table = split_table(replicates)
    likely = _likely_consensus(table, ready, result.model)
    return texts | {TREES: newicks, CONSENSUS: likely, SPLITS: _nexus(table)}, events


def replicates_of(texts: Mapping[str, str], call: Call) -> BootstrapResult | None:
    """The replicates of either bootstrap in the texts of files, by kind; None without any."""
    if BOOTSTRAPS in texts:
        return result_of(texts, call)
    return result_of(texts, call, TREES, CONSENSUS) if TREES in texts else None


def _likely_consensus(table: SplitTable, ready: TreeSearch, model: PartitionModel) -> str:
    """The extended majority consensus, with supports and branch lengths as likely as can be."""
    taxa = ready.problem.taxa
    chosen = consensus(table, Consensus.EXTENDED)
    shape, _ = nested(table.taxa, members(table.bits[chosen], len(taxa)))
    tree, _ = read_newick(write_clades(shape, [""] * len(chosen)), taxa)
    tree.lengths = model.spread(tree.lengths)
    epsilon = ready.settings.final_smooth_epsilon
    ready.engines.exact.smooth([tree], [Case(model.arrays())], epsilon)
    lone = tree.with_lengths(model.mean_lengths(tree.lengths))
    shown, inner = _by_split(table, chosen, taxa), lone.inner_edges
    sides = members(splits(lone)[inner], len(taxa))
    labels = {edge: shown[side.tobytes()] for edge, side in zip(inner.tolist(), sides, strict=True)}
    return write_newick(lone, taxa, labels=labels) + "\n"


def _by_split(table: SplitTable, chosen: np.ndarray, taxa: Sequence[str]) -> Mapping[bytes, str]:
    """Supports in per cent by the side without the first taxon, a value a taxon."""
    number = {name: column for column, name in enumerate(table.taxa)}
    inside: Bool = members(table.bits[chosen], len(taxa))[:, [number[name] for name in taxa]]
    inside ^= inside[:, :1]
    shares = 100.0 * table.counts[chosen] / table.n_trees
    return {side.tobytes(): f"{share:.0f}" for side, share in zip(inside, shares, strict=True)}


def _nexus(table: SplitTable) -> str:
    """All splits with their shares in per cent, for SplitsTree, as IQ-TREE writes them."""
    n_tips = len(table.taxa)
    order = np.argsort(-table.counts, kind="stable")
    tips = np.eye(n_tips, dtype=np.bool_)[1:]
    rows = np.concatenate([tips, members(table.bits[order], n_tips)])
    shares = np.concatenate([np.full(n_tips - 1, 1.0), table.counts[order] / table.n_trees])
    names = "\n".join(
        "[{}] '{}'".format(n, name.replace("'", "''")) for n, name in enumerate(table.taxa, 1)
    )
    lines = "\n".join(
        f"\t{100 * share:.4g}\t {' '.join(str(n + 1) for n in np.flatnonzero(row))},"
        for row, share in zip(rows, shares.tolist(), strict=True)
    )
    return (
        f"#nexus\n\nBEGIN Taxa;\nDIMENSIONS ntax={n_tips};\nTAXLABELS\n{names}\n;\nEND; [Taxa]\n\n"
        f"BEGIN Splits;\nDIMENSIONS ntax={n_tips} nsplits={len(rows)};\n"
        "FORMAT labels=no weights=yes confidences=no intervals=no;\n"
        f"MATRIX\n{lines}\n;\nEND; [Splits]\n"
    )
