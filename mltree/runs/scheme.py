"""The scheme of an alignment: the best model of every part, and which parts share one.

Merging is relaxed clustering (Lanfear et al. 2014, BMC Evol. Biol. 14:82). A scheme begins with a
subset for every part, under the part's own best model. In each round the pairs of subsets whose
trees are most alike in length are fitted as one, under the model of either; pairs that make the
criterion of the whole scheme better become one, the best first, no subset twice; until none does.
The tree and its lengths stay, times a factor of each subset where lengths are scaled.

Given the lengths, the lnL of a subset is the sum of what its parts have under its model, and so is
its curvature, about, of what two of one model have. Most pairs are far from being worth it: they
are left as soon as no step promises enough.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain, islice

import numpy as np
from numpy.typing import NDArray

from mltree.data.partitions import merged, only, refuse_files, side_by_side
from mltree.fit.fits import Fit
from mltree.fit.model_optimiser import PartOptimiser, optima_of
from mltree.fit.optimisers import advance
from mltree.fit.rate_optimiser import scale_bounds
from mltree.fit.settings import SearchSettings, preset
from mltree.likelihood.likelihood import TreeLikelihood
from mltree.models.eigen import ModelArrays
from mltree.models.grammar import parse_model
from mltree.models.parameters import arrays_of, free_parameters, vector, with_vector
from mltree.models.partitioned import SCALER_MAX, SCALER_MIN, Linkage, part_models
from mltree.models.portable import exp
from mltree.models.substitution import Model
from mltree.program.cases import Case
from mltree.runs.engines import ANY_DEVICE, Engines, Resources, Workload
from mltree.runs.model_choice import (
    FITTING,
    REFIT_MARGIN,
    Criterion,
    KnownModels,
    RankedModels,
    check_model_set,
    choose_models,
    matrices_near,
    padded_categories,
    usual_builds,
)
from mltree.runs.problem import Problem, in_parts
from mltree.runs.trees import TreeResult, with_own_lengths
from mltree.system.arrays import Float64
from mltree.system.errors import InputError
from mltree.system.events import Emit, PartsMerged, ignore
from mltree.system.values import Value
from mltree.tree.fitch import pack_sites
from mltree.tree.parsimony import parsimony_trees
from mltree.tree.topology import Tree
from mltree.treesearch.search import StartingTree, search

# A model choice, step by step: a quick tree of all parts, then the candidates of each kind.

TOGETHER = 2.0 * REFIT_MARGIN
"""Score: matrices are tried for a merged subset if the sum of their scores for its parts is so near
the best sum. Parts with parameters of their own score a few units more."""


MATRICES = 1 << 26
"""Bytes of P matrices up to which the quick tree on a CPU has one model a part: 24 parts of
proteins and 24 taxa would take 150 MB. A tree of all parts as one is as good where they are many:
of 100 parts of DNA and 24 of proteins the sum of BICs was 0.04 and 0.3 higher, of 30 0.1 lower,
the models the same; of seven sets of 4 to 12 parts, most with gaps, two were 4 and 10 higher."""


@dataclass(frozen=True)
class ChosenScheme:
    """Parts put together, and what is chosen for each."""

    problem: Problem
    """The same data in fewer parts."""
    choices: list[RankedModels]
    """In the order of ``problem.model``."""
    members: list[list[str]]
    """The names of the parts that each is made of, in the order of the partition file."""

    @property
    def under_best(self) -> Problem:
        """The problem under the models that were chosen."""
        return self.problem.under([choice.best.name for choice in self.choices])


def choose(
    problem: Problem,
    resources: Resources = ANY_DEVICE,
    criterion: Criterion = Criterion.BIC,
    *,
    seed: int = 1,
    tree: Tree | None = None,
    among: Sequence[str] = (),
    emit: Emit = ignore,
) -> list[RankedModels]:
    """The best model of every part, in the order of ``problem.model``.

    tree   what models are fitted to; where None, what moves make of a parsimony tree under
           the problem's models
    among  names of the matrices that count, all where empty

    Raises:
        DeviceError: a device cannot be found or used.
    """
    check_model_set(among, (patterns.alphabet for patterns in problem.groups))
    quick = _Quick(tree) if tree is not None else _quick_tree(problem, resources, seed, emit)
    return _choices(problem, resources, criterion, quick, among, emit)


def choose_scheme(
    problem: Problem,
    resources: Resources = ANY_DEVICE,
    criterion: Criterion = Criterion.BIC,
    *,
    seed: int = 1,
    tree: Tree | None = None,
    among: Sequence[str] = (),
    emit: Emit = ignore,
) -> ChosenScheme:
    """The problem with parts put together that are better off under one model, and the choices.

    Subsets of several parts choose again; for the arguments see :func:`choose`.

    Raises:
        InputError: the problem has no parts that could be merged.
        DeviceError: a device cannot be found or used.
    """
    check_mergeable(problem)
    check_model_set(among, (patterns.alphabet for patterns in problem.groups))
    quick = _Quick(tree) if tree is not None else _quick_tree(problem, resources, seed, emit)
    tree, choices = quick.tree, _choices(problem, resources, criterion, quick, among, emit)
    subsets = merge_parts(problem, choices, tree, resources, criterion, emit)
    fewer = regrouped(problem, subsets)
    lone = _lone(problem, subsets)
    known = {choice.part: choice for choice in choices if choice.part in lone}
    members = _members(problem, subsets)
    of_part = {choice.part: choice for choice in choices}
    parts_of = {"_".join(own): [of_part[name] for name in own] for own in members}
    names = list(fewer.model.names)
    for patterns in fewer.groups:
        own, names = names[: len(patterns.parts)], names[len(patterns.parts) :]
        new = [place for place, name in enumerate(own) if name not in known]
        if new:
            again = [own[place] for place in new]
            before = replace(_known_of([parts_of[name] for name in again]), among=among)
            chosen = choose_models(
                only(patterns, new), again, tree, resources, criterion, emit, before
            )
            known |= {choice.part: choice for choice in chosen}
    return ChosenScheme(fewer, [known[name] for name in fewer.model.names], members)


def check_mergeable(problem: Problem) -> None:
    """Make sure that there are parts that can be put together.

    Raises:
        InputError: there are none, or their branch lengths are not of one tree.
    """
    if problem.data is None:
        raise InputError("--merge needs a partition file", hint="--partitions FILE")
    if problem.model.linkage == Linkage.UNLINKED:
        raise InputError(
            "--merge compares parts under one tree, linked or scaled",
            hint="choose the scheme with --brlen scaled, and then search with what it writes",
        )
    if any(model.ascertainment is not None for model in problem.model.models):
        raise InputError("--merge does not go with +ASC", hint="give the parts as they should be")
    refuse_files(problem.data.scheme)


def regrouped(problem: Problem, subsets: Sequence[Sequence[int]]) -> Problem:
    """The problem with subsets of its parts for parts, by their numbers in the file."""
    if problem.data is None:
        raise ValueError("no parts")
    data = merged(problem.data, subsets)
    return in_parts(problem.path, data, part_models(data), problem.model.linkage)


def _members(problem: Problem, subsets: Sequence[Sequence[int]]) -> list[list[str]]:
    """The names of each subset's parts."""
    parts = () if problem.data is None else problem.data.parts
    return [
        [parts[number].name for number in sorted(subset)] for subset in sorted(map(sorted, subsets))
    ]


def _lone(problem: Problem, subsets: Sequence[Sequence[int]]) -> set[str]:
    """The names of parts that stay alone."""
    parts = () if problem.data is None else problem.data.parts
    return {parts[subset[0]].name for subset in subsets if len(subset) == 1}


class _Quick(Value):
    """Tree and models that choices begin with."""

    tree: Tree
    models: Sequence[Model] = ()
    """For the parts to begin with; or none."""
    likelihoods: Sequence[dict[int, TreeLikelihood]] = ()
    """Open likelihoods of every kind of data, by categories; empty where none is open."""


def _choices(
    problem: Problem,
    resources: Resources,
    criterion: Criterion,
    quick: _Quick,
    among: Sequence[str],
    emit: Emit,
) -> list[RankedModels]:
    """Choose for every part."""
    choices: list[RankedModels] = []
    for number, patterns in enumerate(problem.groups):
        own = slice(len(choices), len(choices) + len(patterns.parts))
        likelihoods = quick.likelihoods[number] if quick.likelihoods else {}
        known = KnownModels(models=quick.models[own], likelihoods=likelihoods, among=among)
        names = problem.model.names[own]
        choices += choose_models(patterns, names, quick.tree, resources, criterion, emit, known)
    return choices


def _known_of(subsets: Sequence[Sequence[RankedModels]]) -> KnownModels:
    """Models to begin with and matrices to try, from the choices of the parts of some subsets."""
    return KnownModels(
        models=[
            next(iter(max(own, key=lambda one: one.best.sites).scored.values())).model
            for own in subsets
        ],
        matrices=[matrices_near(own, TOGETHER) for own in subsets],
    )


def _quick_tree(problem: Problem, resources: Resources, seed: int, emit: Emit) -> _Quick:
    """A tree as good as a model needs it, with one length a branch.

    Interchanges, and then wide moves: without these the tree of 3 in 8 simulated sets of 13 to 39
    taxa lacked 0.5 to 6 lnL, and the BIC of the model chosen up to 12.
    """
    fast = preset("fast")
    near, far = fast.nni_only(), fast.phases[0]
    settings = replace(near, phases=(near.phases[0], far))
    pooled = _as_one(problem) if _is_much(problem, resources, settings) else problem
    engines = Engines(resources, Workload.of(pooled, settings, trees=1))
    further = [usual_builds(patterns, resources) for patterns in problem.groups]
    engines.build_ahead(list(chain(*further)))
    engines.show(emit)
    engines.open(emit)
    rng = np.random.default_rng(seed)
    sites = pack_sites(*pooled.groups)
    (start,) = parsimony_trees(sites, 1, rng, engine=engines.parsimony)
    first = StartingTree(with_own_lengths(start, pooled.model), "parsimony 1")
    outcome = search(engines.likelihood, [first], pooled.model, settings, rng, emit)
    tree = TreeResult.of(Fit(outcome.tree, outcome.model, lnl=outcome.lnl), 0.0).mean_tree
    models = outcome.model.models
    if pooled is not problem:
        of_kinds = zip(problem.groups, models, strict=True)
        models = tuple(model for patterns, model in of_kinds for _ in patterns.parts)
    shapes = problem.model.shapes
    is_alone = len(shapes) == 1 and shapes[0][0] == 1 and not problem.model.has_site_rates
    known = [{shapes[0][1]: engines.likelihood}] if is_alone else []
    return _Quick(tree, models, known)


def _is_much(problem: Problem, resources: Resources, settings: SearchSettings) -> bool:
    """True if the P matrices of parts would take much of the memory of a CPU."""
    if problem.data is None or len(problem.model.names) == len(problem.groups):
        return False
    work = Workload(
        groups=tuple(problem.groups),
        shapes=((max(problem.model.categories), 1),) * len(problem.groups),
        bounds=settings.branches.bounds(problem.n_sites),
        trees=1,
    )
    engines = Engines(resources, work)
    planned = [memory for plan in engines.plans if (memory := plan.memory) is not None]
    on_host = all(device.is_cpu for device in engines.devices)
    return on_host and sum(memory.matrices for memory in planned) > MATRICES


def _as_one(problem: Problem) -> Problem:
    """The problem with one part of each data type."""
    if problem.data is None:
        raise ValueError("no parts")
    kinds = np.array(problem.data.group_of_part)
    every = range(len(problem.groups))
    return regrouped(problem, [np.flatnonzero(kinds == kind).tolist() for kind in every])


# LnLs of sets of parts under models of their own, on one tree with one length a branch.
#
# The lnL of a set is the sum of what its parts have under its model, so that none needs patterns of
# its own: sets without a part in common stand in one tree of a launch, or, where that leaves most
# parts idle, every part of a set in a tree of its own.

AT_ONCE = 50_000
"""Models of parts in a launch: as many as the optimiser of a thousand parts has."""

SPARSE = 0.75
"""Share of the lnLs of all parts from which on trees of single parts are less work."""

RECORDS = 50_000
"""Tips of such trees, at most: about 1 us each to plan, which a GPU waits for."""


class PartSets(Value):
    """Sets of the parts of a likelihood."""

    likelihood: TreeLikelihood
    tree: Tree
    many: int
    """Number of parts of the likelihood."""
    categories: int = 1
    """Categories that the likelihood has."""

    def lnls(
        self, parts: Sequence[tuple[int, ...]], arrays: Sequence[Sequence[ModelArrays]]
    ) -> list[Float64]:
        """f64[points] for each of some sets of parts: their lnL under each of its models."""
        rows = _apart(parts)
        count = sum(len(members) * len(under) for members, under in zip(parts, arrays, strict=True))
        whole = self.many * sum(max(len(arrays[n]) for n in row) for row in rows)
        if count <= SPARSE * whole and count * self.tree.n_tips <= RECORDS:
            return self._of_single_parts(parts, arrays)
        return self._of_rows(parts, arrays, rows)

    def _of_rows(
        self,
        parts: Sequence[tuple[int, ...]],
        arrays: Sequence[Sequence[ModelArrays]],
        rows: Sequence[Sequence[int]],
    ) -> list[Float64]:
        """Score sets in rows, none of which has a part twice: a tree for every point of a row."""
        models = [
            _row([parts[n] for n in row], [arrays[n] for n in row], self.many) for row in rows
        ]
        lnls = self._part_lnls([Case(of_parts) for of_row in models for of_parts in of_row])
        ends = np.cumsum([len(of_row) for of_row in models])[:-1]
        lnls_of = {
            n: of_row[: len(arrays[n]), list(parts[n])].sum(axis=1)
            for row, of_row in zip(rows, np.split(lnls, ends), strict=True)
            for n in row
        }
        return [lnls_of[n] for n in range(len(parts))]

    def _of_single_parts(
        self, parts: Sequence[tuple[int, ...]], arrays: Sequence[Sequence[ModelArrays]]
    ) -> list[Float64]:
        """Score sets by a tree for every point of each of their parts."""
        sets = list(zip(parts, arrays, strict=True))
        cases = [
            Case((one,), first_part=n) for members, under in sets for n in members for one in under
        ]
        lnls = self._part_lnls(cases)[:, 0]
        ends = np.cumsum([len(members) * len(under) for members, under in sets])[:-1]
        pairs = zip(np.split(lnls, ends), parts, strict=True)
        return [rows.reshape(len(members), -1).sum(axis=0) for rows, members in pairs]

    def _part_lnls(self, cases: Sequence[Case]) -> Float64:
        """f64[cases, parts] of the tree."""
        step, lnls_of = (
            max(1, AT_ONCE // len(cases[0].models)),
            self.likelihood.part_log_likelihoods,
        )
        chunks = [cases[first : first + step] for first in range(0, len(cases), step)]
        return np.concatenate([lnls_of([self.tree] * len(chunk), chunk) for chunk in chunks])


def _row(
    parts: Sequence[tuple[int, ...]], arrays: Sequence[Sequence[ModelArrays]], many: int
) -> list[tuple[ModelArrays, ...]]:
    """Return the models of ``many`` parts, point by point, of sets without a part in common."""
    models = [[arrays[0][0]] * many for _ in range(max(map(len, arrays)))]
    for subset, points in zip(parts, arrays, strict=True):
        for k, row in enumerate(models):
            for part in subset:
                row[part] = points[min(k, len(points) - 1)]
    return [tuple(row) for row in models]


def _apart(parts: Sequence[tuple[int, ...]]) -> list[list[int]]:
    """Put sets of parts in rows, none of which has a part twice; the largest first."""
    rows: list[list[int]] = []
    taken: list[int] = []
    for n in sorted(range(len(parts)), key=lambda n: -len(parts[n])):
        bits = sum(1 << part for part in parts[n])
        row = next((r for r, used in enumerate(taken) if not used & bits), len(rows))
        if row == len(rows):
            rows.append([])
            taken.append(0)
        rows[row].append(n)
        taken[row] |= bits
    return rows


# Merging: rounds of relaxed clustering.

SHARE = 0.1
"""Share of all pairs that is compared in a round, the most alike (PartitionFinder 2, IQ-TREE)."""

LEAST_PAIRS = 100
"""Pairs that are compared in any case: all of 14 subsets, which costs little."""

MOST_PAIRS, MOST_PAIRS_A_PART = 1000, 10
"""Pairs that are compared at most, and for each part: the larger number counts (IQ-TREE)."""

TIE = 1e-6
"""Least difference of the criterion, beyond rounding: linked parts under JC merge for free."""

GAIN_FACTOR = 2.0
"""Largest gain that a pair may still have, in predicted gains of a step, beside the margin."""

ABANDON_MARGIN = 10.0
"""lnL: a pair so much below its break-even is not optimised to the end."""

EPSILON = 0.01
"""lnL that a fit may still lack; a pair gains or loses units of the criterion."""


class _Subset(Value):
    """Parts of one data type under one model."""

    group: int
    parts: tuple[int, ...]
    """Places in the group, rising."""
    name: str
    """Name of the model, as ``--model`` takes it."""
    model: Model
    """The model with its estimates."""
    scaler: float
    """Factor on the tree's lengths."""
    length: float
    """Length of the subset's own tree, expected substitutions per site: the measure of likeness."""
    sites: int
    free: int
    """Parameters of the model."""
    lnl: float = -math.inf
    curvature: Float64 | None = field(default=None, compare=False)
    """f64[n, n]: minus the Hessian in the model's free variables and the scale, about there."""


def merge_parts(
    problem: Problem,
    choices: Sequence[RankedModels],
    tree: Tree,
    resources: Resources,
    criterion: Criterion,
    emit: Emit,
) -> list[list[int]]:
    """Merge parts; return the numbers, as in their file, of the parts of each subset.

    ``choices``: each part's, in the order of ``problem.model``; ``tree``: with the lengths that
    subsets share, f64[E]. Parts share them as they are, or scaled.

    Raises:
        DeviceError: a device cannot be found or used.
    """
    merger = _Merger(problem, tree, criterion)
    merger.begin(choices, resources)
    for event in merger.rounds():
        emit(event)
    order = () if problem.data is None else problem.data.order
    firsts = [0, *accumulate(len(patterns.parts) for patterns in problem.groups)]
    return [[order[firsts[one.group] + place] for place in one.parts] for one in merger.subsets]


@dataclass
class _Merger:
    """A partitioning scheme while it is merged."""

    problem: Problem
    tree: Tree
    criterion: Criterion
    subsets: list[_Subset] = field(default_factory=list)
    _sets: list[PartSets] = field(default_factory=list)
    """Sets of the parts of each group."""
    _pairs: dict[tuple[_Subset, _Subset], _Subset] = field(default_factory=dict)
    """Pairs of the subsets, merged."""

    def begin(self, choices: Sequence[RankedModels], resources: Resources) -> None:
        """Give every part a subset, under its best model."""
        left, bounds = iter(choices), FITTING.branches.bounds(self.problem.n_sites)
        starts = []
        for group, patterns in enumerate(self.problem.groups):
            best = [choice.best for choice in islice(left, len(patterns.parts))]
            categories = padded_categories([one.model for one in best])
            work = Workload.of_patterns(patterns, categories, bounds)
            likelihood = Engines(resources, work).likelihood
            self._sets.append(PartSets(likelihood, self.tree, len(best), categories))
            starts += [
                _Subset(
                    group, (part,), one.name, one.model, 1.0, float(one.tree.lengths.sum()),
                    one.sites, free_parameters(one.model),
                )
                for part, one in enumerate(best)
            ]  # fmt: skip
        self.subsets = self._fitted(starts, [-math.inf] * len(starts))

    def rounds(self) -> Iterator[PartsMerged]:
        """Merge round by round, until no pair is worth it."""
        while True:
            pairs = self._alike()
            if not pairs:
                return
            self._compare(pairs)
            merged = self._accept(pairs)
            yield PartsMerged(len(pairs), merged, len(self.subsets), self._score())
            if not merged:
                return

    def _alike(self) -> list[tuple[_Subset, _Subset]]:
        """Return the pairs whose lengths, or their logs, differ least."""
        subsets = self.subsets
        groups = np.array([one.group for one in subsets])
        pairs = np.stack(np.triu_indices(len(subsets), 1), axis=1)
        pairs = pairs[groups[pairs[:, 0]] == groups[pairs[:, 1]]]
        lengths = np.array([one.length for one in subsets])
        either = [_ranks(np.abs(np.diff(of[pairs])[:, 0])) for of in (np.log(lengths), lengths)]
        most = max(MOST_PAIRS, MOST_PAIRS_A_PART * len(subsets))
        count = min(max(math.ceil(SHARE * len(pairs)), LEAST_PAIRS), most)
        best = np.argsort(np.minimum(*either), kind="stable")[:count]
        return [(subsets[one], subsets[other]) for one, other in pairs[best].tolist()]

    def _compare(self, pairs: Sequence[tuple[_Subset, _Subset]]) -> None:
        """Fit the pairs that are new, under the model of either."""
        kept = set(self.subsets)
        self._pairs = {pair: one for pair, one in self._pairs.items() if kept.issuperset(pair)}
        new = [pair for pair in pairs if pair not in self._pairs]
        owners = [(pair, start) for pair in new for start in self._starts(*pair)]
        goals = [self._break_even(*owner) for owner in owners]
        fitted = self._fitted([start for _, start in owners], goals)
        for (pair, _), one in zip(owners, fitted, strict=True):
            known = self._pairs.get(pair)
            if known is None or self._worth(pair, one) > self._worth(pair, known):
                self._pairs[pair] = one

    def _accept(self, pairs: Sequence[tuple[_Subset, _Subset]]) -> int:
        """Merge the pairs that are worth it, the best first, no subset twice; return how many."""
        worth = {pair: self._worth(pair, self._pairs[pair]) for pair in pairs}
        gone: set[_Subset] = set()
        new: list[_Subset] = []
        for pair in sorted(pairs, key=lambda pair: -worth[pair]):
            if worth[pair] > -TIE and gone.isdisjoint(pair):
                gone |= set(pair)
                new.append(self._pairs[pair])
        self.subsets = [one for one in self.subsets if one not in gone] + new
        return len(new)

    def _worth(self, pair: tuple[_Subset, _Subset], merged: _Subset) -> float:
        """Return the fall of the scheme's criterion if a pair is merged."""
        one, other = pair
        lnl = merged.lnl - one.lnl - other.lnl
        free = merged.free - one.free - other.free - self._is_scaled
        gain = self._score() - self._score(lnl, free)
        return -math.inf if math.isnan(gain) else gain

    def _break_even(self, pair: tuple[_Subset, _Subset], merged: _Subset) -> float:
        """Return the lnL from which on a pair is better off merged."""
        as_good = pair[0].lnl + pair[1].lnl
        return as_good - self._worth(pair, replace(merged, lnl=as_good)) / 2.0

    def _score(self, lnl: float = 0.0, free: int = 0) -> float:
        """Return the criterion of the scheme, with more lnL and parameters."""
        scalers = self._is_scaled * (len(self.subsets) - 1)
        free += sum(one.free for one in self.subsets) + scalers + self.tree.n_branches
        lnl += math.fsum(one.lnl for one in self.subsets)
        return self.criterion.score(lnl, free, self.problem.n_sites)

    @property
    def _is_scaled(self) -> bool:
        return self.problem.model.linkage == Linkage.SCALED

    def _starts(self, one: _Subset, other: _Subset) -> Iterator[_Subset]:
        """Yield the starts of a pair's fits: one for each model, or between equal models."""
        parts = tuple(sorted((*one.parts, *other.parts)))
        patterns = side_by_side(self.problem.groups[one.group], parts)
        share = one.sites / (one.sites + other.sites)
        alike = one.name == other.name
        log_scaler = share * math.log(one.scaler) + (1.0 - share) * math.log(other.scaler)
        for model_of in (one,) if alike else (one, other):
            unfitted = parse_model(model_of.name, model_of.model.alphabet)
            model = unfitted.with_empirical_frequencies(patterns)
            x = vector(model_of.model)
            if alike:
                x = share * x + (1.0 - share) * vector(other.model)
            yield replace(
                model_of,
                parts=parts,
                model=with_vector(model, x),
                scaler=math.exp(log_scaler),
                length=share * one.length + (1.0 - share) * other.length,
                free=free_parameters(model),
                sites=one.sites + other.sites,
                curvature=_of_both(model_of, one, other),
            )

    def _fitted(self, starts: Sequence[_Subset], goals: Sequence[float]) -> list[_Subset]:
        """Optimise the parameters of subsets.

        A subset that will not reach its lnL in ``goals`` is left on its way.
        """
        fitted: dict[int, _Subset] = {}
        for group, sets in enumerate(self._sets):
            numbers = [n for n, start in enumerate(starts) if start.group == group]
            some = [starts[n] for n in numbers], [goals[n] for n in numbers]
            fitted |= zip(numbers, self._optimised(sets, *some), strict=True)
        return [fitted[n] for n in range(len(starts))]

    def _optimised(
        self, sets: PartSets, starts: Sequence[_Subset], goals: Sequence[float]
    ) -> list[_Subset]:
        linked, limit = self.problem.model, math.log(SCALER_MAX / SCALER_MIN)
        settings = replace(FITTING.model, final_epsilon=EPSILON, scale_limit=limit)
        optimisers = [
            PartOptimiser(start.model, bounds, settings, EPSILON, start.curvature)
            for start in starts
            for bounds in [scale_bounds(linked, start.scaler, limit)]
        ]
        for _ in range(settings.iterations):
            rows = enumerate(zip(optimisers, goals, strict=True))
            live = [
                n
                for n, (optimiser, least) in rows
                if not optimiser.done
                and optimiser.reachable_lnl(GAIN_FACTOR) + ABANDON_MARGIN >= least
            ]
            if not live:
                break
            points = [optimisers[n].variables() for n in live]
            speeds = [
                exp(point[:, -1]) * (starts[n].scaler if self._is_scaled else 1.0)
                for n, point in zip(live, points, strict=True)
            ]
            arrays = arrays_of(
                [starts[n].model for n in live],
                [point[:, :-1] for point in points],
                speeds,
                [(1, sets.categories)] * len(live),
            )
            values = sets.lnls([starts[n].parts for n in live], arrays)
            advance([optimisers[n].optimiser for n in live], values)
        models, scales = optima_of(optimisers)
        ends = zip(starts, optimisers, models, scales.tolist(), strict=True)
        return [
            replace(
                start, model=model, scaler=start.scaler * scale, lnl=optimiser.value,
                curvature=optimiser.curvature,
            )
            for start, optimiser, model, scale in ends
        ]  # fmt: skip


def _of_both(base: _Subset, one: _Subset, other: _Subset) -> Float64 | None:
    """Return the curvature of two subsets merged: the sum, or one's scaled by sites."""
    if base.curvature is None or one.curvature is None or other.curvature is None:
        return None
    if one.name == other.name and one.curvature.shape == other.curvature.shape:
        return one.curvature + other.curvature
    return base.curvature * ((one.sites + other.sites) / base.sites)


def _ranks(values: Float64) -> NDArray[np.int64]:
    """i64 [n]: rank of each value, from the smallest."""
    ranks = np.empty(values.size, np.int64)
    ranks[np.argsort(values, kind="stable")] = np.arange(values.size)
    return ranks
