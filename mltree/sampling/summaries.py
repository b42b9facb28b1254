"""The posterior of several runs: frequencies of splits and trees, parameters, trees that sum it up.

A rooted tree counts as an unrooted one that has its root as taxon 0: every clade is then the side
of a split without taxon 0, and what is said of splits holds for clades.

Letters: R runs, n samples of each, P parameters, T taxa, S distinct splits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from mltree.sampling import diagnostics
from mltree.sampling.diagnostics import AT_ONCE, FEWEST, FREQUENT, TELLING, Moments, Verdict
from mltree.sampling.sampled_trees import (
    Course,
    Heights,
    Topologies,
    best_of_ccd0,
    bits_of_tree,
    chosen_of,
    common_heights,
    credibilities,
    event_heights,
    gap_heights,
    kept_trees,
    lineages,
    of_branches,
    population,
    time_grid,
    with_root,
    without_root,
)
from mltree.supports.consensus import (
    Consensus,
    SplitTable,
    consensus,
    members,
    split_table,
    unit_bits,
)
from mltree.system.arrays import Bool, Float64, Index, UInt64
from mltree.system.errors import InputError
from mltree.system.values import Value
from mltree.tree.clades import Clades, WrittenTree, nested
from mltree.tree.newick import quoted

LNL = ("LnL", "likelihood", "Likelihood", "treeLikelihood", "loglik", "lnL")
"""Names of the log-likelihood: in MrBayes, BEAST, RevBayes, BEAST 2, PhyloBayes, mltree."""

HEIGHTS = ("median", "mean", "common", "keep")
"""Heights of a summary tree's nodes: statistics of those of the trees that have the clade, the mean
of the last common ancestor in all trees (TreeAnnotator's CA), those of the sampled tree itself."""

CREDIBLE = (0.5, 0.9, 0.95, 0.99)
"""Probabilities of the credible sets of trees that are told of, as in MrBayes."""


class RunSamples(Value, eq=False):
    """The samples of one run, first to last."""

    name: str
    """Prefix of the run's files."""
    columns: tuple[str, ...]
    """P names of parameters."""
    values: Float64
    """float64 [n, P]"""
    generations: Float64
    """float64 [n]: of the values."""
    trees: Clades | None
    """Trees of the run, as they were read; their number may be another one."""
    is_rooted: bool
    rates: Clades | None = None
    """The same trees with rates as the lengths of their branches, where they have some."""

    def followed_by(self, more: RunSamples) -> RunSamples:
        """The samples, then more of the same run, without rates."""
        trees = self.trees
        if trees is not None and more.trees is not None:
            trees = Clades.joined(trees.taxa, [trees, more.trees])
        values = np.concatenate([self.values, more.values])
        generations = np.concatenate([self.generations, more.generations])
        rooted = self.is_rooted and more.is_rooted
        return RunSamples(self.name, self.columns, values, generations, trees, rooted)


class Evidence(Value):
    """The marginal likelihood of a model."""

    name: str
    lnz: float
    """Natural log."""
    error: float
    """Standard error; NaN where it is unknown."""


class Posterior(Value, eq=False):
    """Trees and parameters of R runs behind their burn-in, equally many of each run."""

    runs: tuple[str, ...]
    burn_in: float
    """Share of each run's samples that is left out."""
    columns: tuple[str, ...]
    values: Float64
    """float64 [P, R, n]"""
    generations: Float64
    """float64 [n]: of the first run's values."""
    trees: Clades | None
    """Trees of all runs, run after run; rooted ones with their root as taxon 0."""
    table: SplitTable | None
    """Splits of the inner branches of the trees."""
    is_rooted: bool
    notices: tuple[str, ...] = ()
    rates: Clades | None = None
    """The same trees with rates as the lengths of their branches, where they have some."""

    @classmethod
    def of(cls, runs: Sequence[RunSamples], burn_in: float | None = None) -> Posterior:
        """The posterior of runs of one analysis; without a burn-in it is chosen.

        Raises: InputError: runs of other taxa, or without a common parameter; too few samples.
        """
        notices: list[str] = []
        columns, values, generations = _parameters(runs, notices)
        is_rooted = all(run.is_rooted for run in runs)
        trees = _joined([run.trees for run in runs], is_rooted, notices)
        rates = None
        if is_rooted and all(run.rates is not None for run in runs):
            rates = _joined([run.rates for run in runs], True, [])
        table = None if trees is None else split_table(trees)
        if burn_in is None:
            traces = [values] if values.size else []
            if table is not None:
                traces.append(credibilities(table).reshape(1, len(runs), -1))
            shares = [diagnostics.burn_in(trace) for trace in traces if trace.shape[2] >= FEWEST]
            burn_in = max(shares, default=0.0)
        values = values[:, :, _skipped(values.shape[2], burn_in) :]
        generations = generations[len(generations) - values.shape[2] :]
        if trees is not None and table is not None:
            n = trees.n_trees // len(runs)
            kept = np.arange(trees.n_trees) % n >= _skipped(n, burn_in)
            trees, table = chosen_of(trees, table, kept)
            rates = None if rates is None else kept_trees(rates, kept)
        sampled = [values.shape[2]] * bool(columns)
        sampled += [trees.n_trees // len(runs)] if trees is not None else []
        if not sampled:
            raise InputError("the runs have no parameter in common, and no trees")
        if min(sampled) < 1:
            raise InputError("no samples are left behind the burn-in")
        names = tuple(run.name for run in runs)
        return cls(
            names,
            burn_in,
            columns,
            values,
            generations,
            trees,
            table,
            is_rooted,
            tuple(notices),
            rates,
        )

    @property
    def n_runs(self) -> int:
        """Number of runs, R."""
        return len(self.runs)

    @property
    def n_samples(self) -> int:
        """Number of trees of all runs, or of values where there are no trees."""
        return self.trees.n_trees if self.trees is not None else self.values[0].size

    @property
    def taxa(self) -> tuple[str, ...]:
        """Names of the taxa; none without trees."""
        return () if self.trees is None else self.trees.taxa[int(self.is_rooted) :]

    @cached_property
    def parameters(self) -> dict[str, Float64]:
        """float64 [R, n] of each parameter."""
        return dict(zip(self.columns, self.values, strict=True))

    @cached_property
    def moments(self) -> dict[str, Moments]:
        """The moments of each parameter."""
        return {name: Moments.of(list(values)) for name, values in self.parameters.items()}

    @cached_property
    def rhat(self) -> dict[str, float]:
        """R-hat of each parameter; NaN of a constant."""
        return self._of_parameters(diagnostics.rhat(self.values))

    @cached_property
    def ess(self) -> dict[str, float]:
        """Effective sample size of each parameter, of all runs together."""
        return self._of_parameters(diagnostics.ess(self.values))

    @cached_property
    def run_ess(self) -> Float64:
        """float64 [P, R]: effective sample size of each parameter in each run."""
        columns = [diagnostics.ess(self.values[:, [run]]) for run in range(self.n_runs)]
        return np.stack(columns, axis=1)

    @cached_property
    def varying(self) -> Bool:
        """Parameters that are finite and not constant, bool [P]."""
        varying: Bool = np.asarray(np.isfinite(self.values).all(axis=(1, 2)))
        if self.values.size:
            varying[varying] = np.ptp(self.values[varying], axis=(1, 2)) > 0
        return varying

    def _of_parameters(self, values: Float64) -> dict[str, float]:
        return dict(zip(self.columns, values.tolist(), strict=True))

    # Splits.

    @cached_property
    def n_trees(self) -> int:
        """Number of trees of each run."""
        return 0 if self.trees is None else self.trees.n_trees // self.n_runs

    @cached_property
    def splits(self) -> SplitTable:
        """Splits of all trees. Raises: InputError where there are no trees."""
        if self.table is None:
            raise InputError("there are no trees in this sample")
        return self.table

    @cached_property
    def frequencies(self) -> Float64:
        """float64 [S, R]: share of each run's trees that have each split."""
        table = self.splits
        run = table.tree // np.int32(max(self.n_trees, 1))
        cells = table.split * np.int64(self.n_runs) + run
        counts = np.bincount(cells, minlength=table.n_splits * self.n_runs)
        return counts.reshape(-1, self.n_runs) / self.n_trees

    @cached_property
    def probabilities(self) -> Float64:
        """float64 [S]: share of all trees that have each split."""
        return self.splits.counts / self.splits.n_trees

    @cached_property
    def listed(self) -> Index:
        """Splits that are frequent in a run, intp, the most frequent first."""
        frequent = np.flatnonzero((self.frequencies >= FREQUENT).any(axis=1))
        inside = members(self.splits.bits[frequent], len(self.splits.taxa))
        size = inside.sum(axis=1)
        order = np.lexsort((*inside.T[::-1], size, -self.splits.counts[frequent]))
        return frequent[order]

    @cached_property
    def telling(self) -> Index:
        """Splits with a probability from 2.5 to 97.5 %, intp."""
        low, high = TELLING
        return np.flatnonzero((self.probabilities >= low) & (self.probabilities <= high))

    @cached_property
    def split_ess(self) -> Float64:
        """float64 [V]: effective sample size of each telling split, of all runs together."""
        return self._of_indicators(diagnostics.ess_of_mean)

    @cached_property
    def split_rhat(self) -> Float64:
        """float64 [V]: R-hat of each telling split."""
        return self._of_indicators(diagnostics.split_rhat)

    @cached_property
    def split_run_ess(self) -> Float64:
        """float64 [V, R]: effective sample size of each telling split in each run."""
        return self._of_indicators(
            lambda has: np.stack(
                [diagnostics.ess_of_mean(has[:, [run]]) for run in range(self.n_runs)], axis=1
            ),
            self.n_runs,
        )

    def _of_indicators(
        self, function: Callable[[Float64], Float64], width: int | None = None
    ) -> Float64:
        """A function of the indicators of telling splits, some at a time."""
        step = 1 + AT_ONCE // self.splits.n_trees
        parts = (self.telling[start : start + step] for start in range(0, self.telling.size, step))
        found = [function(self.indicators(part).astype(np.float64)) for part in parts]
        empty = np.empty(0 if width is None else (0, width))
        return np.concatenate(found) if found else empty

    def indicators(self, splits: Index) -> Bool:
        """The trees that have each of some splits, bool [V, R, n]."""
        table = self.splits
        row = np.full(table.n_splits, -1)
        row[splits] = np.arange(splits.size)
        rows = row[table.split]
        has = np.zeros((splits.size, table.n_trees), np.bool_)
        known = rows >= 0
        has[rows[known], table.tree[known]] = True
        return has.reshape(splits.size, self.n_runs, -1)

    @cached_property
    def asdsf(self) -> float:
        """Average standard deviation of split frequencies among groups; NaN of a single run."""
        return diagnostics.asdsf(self.frequencies)[0]

    # Branch lengths and node heights.

    @cached_property
    def has_lengths(self) -> bool:
        """True where all branches of all trees have a length."""
        if self.trees is None:
            return False
        return not (np.isnan(self.splits.lengths).any() or np.isnan(self.tip_lengths).any())

    @cached_property
    def tip_lengths(self) -> Float64:
        """float64 [trees, T]: length of the branch of each tip."""
        trees = self.sampled
        lengths = np.empty(trees.order.shape)
        np.put_along_axis(lengths, trees.order, trees.tip_lengths, axis=1)
        # A root with two children leaves a clade of all taxa but one: a part of that one's branch.
        rest = trees.only(trees.last - trees.first == trees.n_tips - 1)
        column = np.where(rest.first == 0, trees.n_tips - 1, 0)
        lengths[rest.tree, trees.order[rest.tree, column]] += rest.lengths
        return lengths[:, int(self.is_rooted) :]

    @cached_property
    def sampled(self) -> Clades:
        """The trees. Raises: InputError where there are none."""
        if self.trees is None:
            raise InputError("there are no trees in this sample")
        return self.trees

    @cached_property
    def _occurrences(self) -> tuple[Index, Index]:
        """Occurrences in the table by splits, intp [M], and where each split's begin, [S+1]."""
        order = np.argsort(self.splits.split, kind="stable")
        bounds = np.concatenate(([0], np.cumsum(self.splits.counts)))
        return order, bounds

    def occurrences(self, split: int) -> list[Index]:
        """Places of a split in the table, by runs."""
        order, bounds = self._occurrences
        places = order[bounds[split] : bounds[split + 1]]
        run = self.splits.tree[places] // self.n_trees
        return np.split(places, np.searchsorted(run, np.arange(1, self.n_runs)))

    @cached_property
    def heights(self) -> Heights:
        """Heights of the nodes of all trees. Raises: InputError for unrooted trees."""
        if not self.is_rooted:
            raise InputError("unrooted trees have no heights")
        return Heights.of(self.sampled, self.splits)

    @cached_property
    def branch_rates(self) -> tuple[Float64, Float64] | None:
        """Rates of branches: float64 [M] by occurrences of clades, and [trees, T] of the tips."""
        if self.rates is None:
            return None
        clades, tips = of_branches(self.rates, self.splits)
        return clades, tips[:, int(self.is_rooted) :]

    @cached_property
    def is_dated(self) -> bool:
        """True for rooted trees with lengths, whose nodes have heights."""
        return self.is_rooted and self.has_lengths

    @cached_property
    def courses(self) -> dict[str, Course]:
        """Numbers of lineages and population sizes through time, of dated trees."""
        if not self.is_dated or (events := event_heights(self.heights)) is None:
            return {}
        times = time_grid(self.heights)
        found = {"lineages": lineages(self.heights, events, times)}
        columns = {name: values.ravel() for name, values in self.parameters.items()}
        of_values = events if len(events) == self.values[:1].size else None
        if (course := population(columns, times, of_values)) is not None:
            found["population"] = course
        return found

    @cached_property
    def tree_lengths(self) -> Float64:
        """float64 [R, n]: sum of the branch lengths of each tree."""
        table = self.splits
        inner = np.bincount(table.tree, table.lengths, table.n_trees)
        lengths: Float64 = (inner + self.tip_lengths.sum(axis=1)).reshape(self.n_runs, -1)
        return lengths

    # Trees.

    @cached_property
    def credibilities(self) -> Float64:
        """float64 [R, n]: log clade credibility of each tree; see :func:`credibilities`."""
        return credibilities(self.splits).reshape(self.n_runs, -1)

    @cached_property
    def best_tree(self) -> int:
        """Number of the tree with the maximum clade credibility."""
        return int(np.argmax(self.credibilities))

    @cached_property
    def topologies(self) -> Topologies:
        """The distinct topologies, the most frequent first."""
        return Topologies.of(self.splits)

    def splits_of(self, tree: int) -> Index:
        """The inner splits of a tree of the sample, intp."""
        start, stop = self.splits.bounds[tree : tree + 2]
        return self.splits.split[start:stop].astype(np.intp)

    def consensus(self, kind: Consensus = Consensus.MAJORITY) -> SummaryTree:
        """The consensus of all trees, with lengths and probabilities."""
        return SummaryTree.of(self, consensus(self.splits, kind))

    @cached_property
    def mcc(self) -> SummaryTree:
        """The sampled topology with the maximum clade credibility, lengths those of all trees."""
        return self.mcc_with(HEIGHTS[0])

    def mcc_with(self, heights_by: str) -> SummaryTree:
        """The same with other heights of nodes: one of HEIGHTS."""
        return SummaryTree.of(self, self.splits_of(self.best_tree), heights_by, self.best_tree)

    @cached_property
    def ccd0_splits(self) -> Index | None:
        """Splits of the best tree of CCD0, intp; None where not all trees are rooted and binary."""
        is_binary = (np.diff(self.splits.bounds) == len(self.taxa) - 2).all()
        return best_of_ccd0(self.splits) if self.is_rooted and is_binary else None

    def find(self, bits: UInt64) -> Index:
        """The number of each split in the table, intp [K]; -1 where no tree has it.

        bits  uint64 [K, B]: sides without taxon 0
        """
        return np.array([self._number_of.get(row.tobytes(), -1) for row in bits], np.intp)

    @cached_property
    def _number_of(self) -> dict[bytes, int]:
        return {row.tobytes(): number for number, row in enumerate(self.splits.bits)}

    def bits_of(self, names: Iterable[str]) -> UInt64:
        """A group of taxa as a split, uint64 [B]: its side without taxon 0.

        Raises: InputError: a name that is no taxon's, or a group that is no inner split.
        """
        number = {name: taxon for taxon, name in enumerate(self.splits.taxa)}
        group = sorted(set(names))
        for name in group:
            if name not in number or not name:
                raise InputError(f"no taxon is called {name!r}", taxon=name)
        total = len(self.splits.taxa)
        if not 2 <= len(group) <= total - 2:
            raise InputError("a split has two taxa or more on both of its sides")
        unit = unit_bits(total)
        inside = [number[name] for name in group]
        if 0 in inside:
            inside = [taxon for taxon in range(total) if taxon not in set(inside)]
        bits: UInt64 = np.bitwise_or.reduce(unit[inside], axis=0)
        return bits

    def tree_bits(self, tree: Clades) -> UInt64:
        """The inner splits of a user's tree, uint64 [K, B].

        tree  one tree over the taxa of the sample, numbered as :meth:`like` has them
        """
        return split_table(with_root(tree) if self.is_rooted else tree).bits

    @property
    def like(self) -> Clades:
        """A tree over the taxa of the sample, for readers of further trees."""
        one = self.sampled.part(0, 1)
        return without_root(one) if self.is_rooted else one

    def trees_with(self, splits: Index) -> Bool:
        """The trees that have all of some splits, bool [R, n]."""
        if (splits < 0).any():
            return np.zeros((self.n_runs, self.n_trees), np.bool_)
        wanted = np.zeros(self.splits.n_splits, np.bool_)
        wanted[splits] = True
        counts = np.bincount(self.splits.tree, wanted[self.splits.split], self.splits.n_trees)
        has_all: Bool = counts == np.unique(splits).size
        return has_all.reshape(self.n_runs, -1)

    def names_of(self, split: int) -> tuple[str, ...]:
        """The taxa of a split: a clade's, or those of the smaller side, or without taxon 0."""
        inside = members(self.splits.bits[[split]], len(self.splits.taxa))[0]
        if not self.is_rooted and 2 * inside.sum() > inside.size:
            inside = ~inside
        return tuple(name for name, is_in in zip(self.splits.taxa, inside, strict=True) if is_in)

    # Convergence.

    @cached_property
    def verdicts(self) -> tuple[Verdict, ...]:
        """The rules of convergence that the sample allows to be checked."""
        return tuple(_verdicts(self))

    @property
    def is_converged(self) -> bool:
        """True where all rules are met, and there are any beside the number of samples."""
        return len(self.verdicts) > 1 and all(verdict.is_met for verdict in self.verdicts)


def _skipped(n: int, share: float) -> int:
    return min(math.floor(share * n + 1e-9), n)  # as MrBayes counts


def _parameters(
    runs: Sequence[RunSamples], notices: list[str]
) -> tuple[tuple[str, ...], Float64, Float64]:
    """Columns that all runs have, their values [P, R, n], and generations [n]."""
    columns = [name for name in runs[0].columns if all(name in run.columns for run in runs)]
    without = [run.name for run in runs if not run.columns]
    if 0 < len(without) < len(runs):
        notices.append(f"{without[0]}: no parameters, so those of other runs are left out")
    for run in runs:
        lost = [name for name in run.columns if name not in columns]
        if lost and columns:
            notices.append(f"{run.name}: {', '.join(lost[:3])} not in all runs, left out")
    n = _shortest([len(run.values) for run in runs], "samples", notices) if columns else 0
    values = np.empty((len(columns), len(runs), n))
    for number, run in enumerate(runs):
        at = [run.columns.index(name) for name in columns]
        values[:, number] = run.values[len(run.values) - n :, at].T
    first = runs[0].generations
    return tuple(columns), values, first[first.size - n :]


def _joined(of_all: Sequence[Clades | None], is_rooted: bool, notices: list[str]) -> Clades | None:
    """Trees of all runs, equally many of each, the last ones; None where no run has any."""
    of_runs = [trees for trees in of_all if trees is not None]
    if not of_runs:
        return None
    if len(of_runs) < len(of_all):
        raise InputError("some runs have trees, others have none")
    n = _shortest([trees.n_trees for trees in of_runs], "trees", notices)
    parts = [trees.part(trees.n_trees - n, trees.n_trees) for trees in of_runs]
    joined = Clades.joined(parts[0].taxa, parts) if len(parts) > 1 else parts[0]
    return with_root(joined) if is_rooted else joined


def _shortest(counts: Sequence[int], what: str, notices: list[str]) -> int:
    if min(counts) < max(counts):
        notices.append(f"runs of {min(counts):,} to {max(counts):,} {what}: "
                       f"the last {min(counts):,} of each are used")  # fmt: skip
    return min(counts)


class SummaryTree(Value, eq=False):
    """A tree that sums up a posterior: nodes with probabilities, lengths and heights."""

    tree: Clades
    """The tree alone; no lengths in it. Rooted: with its root as taxon 0."""
    is_rooted: bool
    probability: Float64
    """float64 [C], of the clades of the tree; 0 where no tree of the sample has one."""
    by_run: Float64
    """float64 [C, R]"""
    lengths: tuple[Moments, ...]
    """T + C: of the tips by taxon, then of the clades; none without lengths."""
    heights: tuple[Moments, ...]
    """T + C likewise; none for unrooted trees."""
    root_height: Moments | None
    rates: tuple[Moments, ...] = ()
    """T + C likewise; none where branches have no rates."""
    drawn: Float64 | None = None
    """float64 [T + C + 1]: heights that lengths follow, the root's last; None for unrooted trees"""

    @classmethod
    def bare(cls, posterior: Posterior, splits: Index) -> SummaryTree:
        """The tree of compatible splits of a posterior's table, without lengths."""
        table = posterior.splits
        tree, rows = nested(table.taxa, members(table.bits[splits], len(table.taxa)))
        chosen = splits[rows]
        probability, by_run = posterior.probabilities[chosen], posterior.frequencies[chosen]
        return cls(tree, posterior.is_rooted, probability, by_run, (), (), None)

    @classmethod
    def of(
        cls, posterior: Posterior, splits: Index, heights_by: str = "median", tree: int = -1
    ) -> SummaryTree:
        """The tree of compatible splits of a posterior's table.

        heights_by  one of HEIGHTS: statistic of the heights of nodes that lengths follow
        tree        a tree of the sample, for its own heights
        """
        bare = cls.bare(posterior, splits)
        if not posterior.has_lengths:
            return bare
        table, runs = posterior.splits, posterior.n_runs
        chosen = posterior.find(bits_of_tree(bare.tree))
        places = [posterior.occurrences(int(split)) for split in chosen]

        def moments(tips: Float64, clades: Float64) -> tuple[Moments, ...]:
            of_tips = [Moments.of(np.split(tip, runs)) for tip in tips.T]
            return (*of_tips, *(Moments.of([clades[at] for at in of]) for of in places))

        found = replace(bare, lengths=moments(posterior.tip_lengths, table.lengths))
        if not posterior.is_rooted:
            return found
        known = posterior.heights
        found = replace(
            found, heights=moments(known.tips, known.clades),
            root_height=Moments.of(np.split(known.root, runs)),
        )  # fmt: skip
        if posterior.branch_rates is not None:
            of_clades, of_tips = posterior.branch_rates
            found = replace(found, rates=moments(of_tips, of_clades))
        return replace(found, drawn=_drawn(posterior, found, heights_by, tree))

    @property
    def n_branches(self) -> int:
        """Number of branches, T + C."""
        return len(self.taxa) + len(self.tree.tree)

    def branch_lengths(self) -> Float64:
        """float64 [T + C]: by heights where trees are rooted, else the median lengths."""
        if not self.lengths:
            return np.full(self.n_branches, np.nan)
        if self.drawn is None:
            return np.array([length.median for length in self.lengths])
        above = self.parents()
        lengths: Float64 = self.drawn[above] - self.drawn[:-1]  # of the top, -1, the root's
        return lengths

    def parents(self) -> Index:
        """The clade around each tip and each clade, as a place among both; -1 at the top; [T+C]."""
        tree = self.tree
        n_tips = len(tree.taxa) - self.is_rooted
        taxon = tree.order[0] - self.is_rooted
        parent = np.full(n_tips + len(tree.tree), -1)
        enclosing = np.full(len(tree.taxa), -1)
        for clade in reversed(range(len(tree.tree))):  # what holds comes before what is held
            inside = slice(tree.first[clade], tree.last[clade])
            parent[n_tips + clade] = enclosing[tree.first[clade]]
            enclosing[inside] = n_tips + clade
        is_tip = taxon >= 0
        parent[taxon[is_tip]] = enclosing[is_tip]
        return parent

    def newick(
        self,
        names: Mapping[int, str] | None = None,
        notes: Sequence[str] = (),
        length_notes: Sequence[str] = (),
        root_note: str = "",
    ) -> str:
        """The tree as one line of Newick.

        names         of the taxa, by number; their own, in quotes where needed, by default
        notes         T + C texts in front of the lengths of tips and clades, or none
        length_notes  behind the lengths
        """
        tree, n_tips = self.tree, len(self.tree.taxa) - self.is_rooted
        lengths = self.branch_lengths()
        opened = np.bincount(tree.first, minlength=len(tree.taxa)).tolist()
        closed: list[list[int]] = [[] for _ in range(len(tree.taxa) + 1)]
        for clade, end in enumerate(tree.last.tolist()):
            closed[end].append(clade)

        def branch(place: int) -> str:
            note, behind = (texts[place] if texts else "" for texts in (notes, length_notes))
            length = "" if math.isnan(lengths[place]) else f":{lengths[place]:.9g}"
            return note + length + behind

        texts = []
        for column, taxon in enumerate((tree.order[0] - self.is_rooted).tolist()):
            if taxon < 0:
                continue
            shown = quoted(self.taxa[taxon]) if names is None else names[taxon]
            ends = "".join(f"){branch(n_tips + clade)}" for clade in closed[column + 1])
            texts.append("(" * opened[column] + shown + branch(taxon) + ends)
        return f"({','.join(texts)}){root_note};"

    @cached_property
    def written(self) -> tuple[WrittenTree, Index]:
        """The tree, probabilities as labels, and the place of each of its nodes: T + C of the root.

        A place is that of a tip or clade, as in ``heights``.
        """
        n_tips, above = len(self.taxa), self.parents()
        places: list[int] = []
        pending = [self.n_branches]
        below: list[list[int]] = [[] for _ in range(self.n_branches + 1)]
        order = np.argsort(self.tree.order[0][int(self.is_rooted) :])
        clade_first = self.tree.order[0][self.tree.first] - self.is_rooted
        first = np.concatenate((np.arange(n_tips), clade_first))
        for place in sorted(range(self.n_branches), key=lambda at: order[first[at]]):
            below[above[place]].append(place)
        number = np.empty(self.n_branches + 1, np.int32)
        while pending:
            place = pending.pop()
            number[place] = len(places)
            places.append(place)
            pending += below[place][::-1]
        parents = [-1, *(number[above[place]] for place in places[1:])]
        lengths = np.append(self.branch_lengths(), np.nan)[places]
        every = [*self.taxa, *(f"{probability:.4g}" for probability in self.probability), ""]
        labels = tuple(every[place] for place in places)
        return WrittenTree(np.array(parents, np.int32), lengths, labels), np.array(places)

    def labelled_newick(self) -> str:
        """The tree as Newick, its probabilities as labels."""
        notes = [f"{probability:.4g}" for probability in self.probability]
        return self.newick(notes=[*[""] * len(self.taxa), *notes])

    @property
    def taxa(self) -> tuple[str, ...]:
        """Names of the taxa."""
        return self.tree.taxa[int(self.is_rooted) :]


def _drawn(posterior: Posterior, tree: SummaryTree, heights_by: str, number: int) -> Float64:
    """float64 [T + C + 1]: heights of the tips, clades and root that a tree is drawn with."""
    assert tree.root_height is not None
    every = [*tree.heights, tree.root_height]
    if heights_by == "mean":
        return np.array([moments.mean for moments in every])
    drawn = np.array([moments.median for moments in every])
    n_tips, known = len(tree.taxa), posterior.heights
    if heights_by == "keep":
        if number < 0:
            raise InputError("--heights keep: only a sampled tree has heights of its own")
        place = posterior.splits.bounds[number] + np.searchsorted(
            posterior.splits_of(number), posterior.find(bits_of_tree(tree.tree))
        )
        return np.concatenate((known.tips[number], known.clades[place], known.root[[number]]))
    if heights_by == "common":
        trees = posterior.sampled
        gaps = gap_heights(trees, posterior.splits, known)
        inside = members(bits_of_tree(tree.tree), len(trees.taxa))
        common = [common_heights(trees, gaps, row).mean() for row in inside]
        tips = [moments.mean for moments in tree.heights[:n_tips]]
        return np.array([*tips, *common, tree.root_height.mean])
    return drawn


def _verdicts(posterior: Posterior) -> Iterable[Verdict]:
    """Rules of convergence, each with the parameter or split that is worst."""
    varying = np.flatnonzero(posterior.varying)
    names = [posterior.columns[number] for number in varying]
    several = posterior.n_runs > 1
    count = np.array([float(posterior.n_samples)])
    yield Verdict.least("number of samples", count, diagnostics.LEAST_ESS, [""])
    if names:
        ess = np.array([posterior.ess[name] for name in names])
        yield Verdict.least("ESS of parameters", ess, diagnostics.LEAST_ESS, names)
        rhat = np.array([posterior.rhat[name] for name in names])
        yield Verdict.most("R-hat of parameters", rhat, diagnostics.MOST_RHAT, names)
    if names and several:
        apart = diagnostics.distribution_distances(posterior.values[varying])
        bounds = diagnostics.distance_bounds(posterior.run_ess[varying])
        yield Verdict.excess("distributions of parameters between runs", apart, bounds, names)
    if posterior.table is None:
        return
    telling = posterior.telling
    if telling.size:
        yield Verdict.least("ESS of splits", posterior.split_ess, diagnostics.LEAST_ESS,
                     _Names(posterior, telling))  # fmt: skip
        yield Verdict.most("R-hat of splits", posterior.split_rhat, diagnostics.MOST_RHAT,
                    _Names(posterior, telling))  # fmt: skip
    if several:
        mean, _ = diagnostics.asdsf(posterior.frequencies)
        yield Verdict("ASDSF", mean, diagnostics.MOST_ASDSF, "", mean <= diagnostics.MOST_ASDSF)
    if several and telling.size:
        frequencies = posterior.frequencies[telling]
        apart = diagnostics.frequency_differences(frequencies)
        bounds = diagnostics.difference_bounds(frequencies, posterior.split_run_ess)
        yield Verdict.excess("frequencies of splits between runs", apart, bounds,
                      _Names(posterior, telling))  # fmt: skip


class _Names(Sequence[str]):
    """Names of splits, made when one is asked for."""

    def __init__(self, posterior: Posterior, splits: Index) -> None:
        self._posterior, self._splits = posterior, splits

    def __len__(self) -> int:
        return self._splits.size

    def __getitem__(self, at: int) -> str:  # type: ignore[override]
        return ",".join(self._posterior.names_of(int(self._splits[at])))
