"""A run, step by step: place it, open it, then search or evaluate; give back the result.

``prepare_search(load_problem("frogs.phy", "GTR+G4")).run()`` is a whole search. Nothing is printed
here: progress goes out as events. Whoever gives a checkpoint can go on with a search.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property

import numpy as np

from mltree import __version__
from mltree.alignment.patterns import Patterns
from mltree.device.layout_choice import KeptLayouts
from mltree.events import Emit, Notice, RunFinished, StoppedShort, ignore
from mltree.likelihood.api import Likelihood
from mltree.likelihood.cases import Case
from mltree.likelihood.engine import Engine
from mltree.model.grammar import format_model
from mltree.model.partitioned import PartitionModel
from mltree.placement import JointPlacement, Resources, place_all
from mltree.problem import Problem
from mltree.report.tables import listed
from mltree.search.alternation import alternate
from mltree.search.checkpoint import Checkpoint, fingerprint
from mltree.search.constraint import Constraint
from mltree.search.constraint_tree import read_constraint
from mltree.search.driver import SearchResult, StartingTree, of_one_tree, search
from mltree.search.duplicates import Collapsed, collapse
from mltree.search.model_optimiser import Fit, best_fit, optimise_models, starts_of
from mltree.search.requests import perform
from mltree.settings import PerturbationSettings, SearchSettings, preset
from mltree.starts import starting_trees
from mltree.tree.newick import write_newick
from mltree.tree.topology import Tree

__all__ = [
    "FIXED_TOPOLOGY",
    "Computation",
    "Found",
    "TreeSearch",
    "evaluate",
    "mark",
    "open_computation",
    "prepare_search",
    "usual_starts",
    "with_own_lengths",
    "without_copies",
]

DEFAULT = preset("default")

ANY_DEVICE = Resources()


@dataclass(frozen=True)
class Computation:
    """Where a run computes: as it was placed, and in fp64 where it reports from."""

    placement: JointPlacement
    likelihood: Likelihood
    all_patterns: Sequence[Patterns]
    """Of all taxa, a data type each: what is reported is scored on them."""
    is_whole: bool = True
    """Whether it is computed on all taxa: no copies of sequences were left out."""

    @cached_property
    def exact(self) -> Likelihood:
        """In fp64, whatever precision was asked for; opened when it is first needed."""
        if self.placement.is_exact:
            return self.likelihood
        return self.placement.exact(self.all_patterns).likelihood(self.all_patterns)

    @cached_property
    def of_all_taxa(self) -> Likelihood:
        """In fp64, of the tree with the copies of sequences that the search went without."""
        if self.is_whole:
            return self.exact
        return self.placement.exact(self.all_patterns).likelihood(self.all_patterns)

    def exactly(self, found: Found, emit: Emit) -> Found:
        """With its lnL in fp64, and a notice of the difference where there was another."""
        if self.placement.is_exact:
            return found
        lnl = float(self.exact.log_likelihoods([found.tree], [Case(found.model.arrays())])[0])
        emit(Notice(f"scored again in fp64: lnL {lnl:.6f}, {lnl - found.lnl:+.1e} from fp32"))
        return replace(found, lnl=lnl)

    @property
    def side_by_side(self) -> bool:
        """Whether trees side by side take less time than one after the other: on GPUs."""
        devices = self.placement.devices
        return bool(devices) and not all(device.is_cpu for device in devices)

    @property
    def engines(self) -> list[Engine]:
        """The engine that it was placed on, and the exact one where that is another."""
        others = [] if self.placement.is_exact else [self.exact.engine]
        return [self.likelihood.engine, *others]


def open_computation(
    problem: Problem,
    resources: Resources,
    emit: Emit,
    groups: Sequence[Patterns] | None = None,
    settings: SearchSettings = DEFAULT,
    trees: int | None = None,
    kept: KeptLayouts | None = None,
) -> Computation:
    """Plan where a run computes, show that, and open it.

    groups  patterns of a search without copies; the problem's where None
    trees   that a search will have; None where one is evaluated
    kept    layouts that a search goes on in

    Raises:
        DeviceError: a device cannot be found or used.
    """
    groups = groups or problem.groups
    bounds = settings.branches.bounds(problem.n_sites)
    firsts = np.cumsum([0, *(len(patterns.parts) for patterns in groups[:-1])]).tolist()
    widths = [problem.model.categories[first] for first in firsts]
    systems = [problem.model.systems[first] for first in firsts]
    placement = place_all(resources, groups, widths, bounds, trees, kept, systems)
    placement.show(emit)
    is_whole = groups[0].n_tips == len(problem.taxa)
    return Computation(placement, placement.likelihood(groups, emit), problem.groups, is_whole)


@dataclass(frozen=True)
class Found:
    """A run's result."""

    tree: Tree
    """Of all taxa."""
    model: PartitionModel
    """Scalers of mean 1."""
    lnl: float
    """Natural log, as computed on the way; see :meth:`Computation.exactly`."""
    seconds: float
    """Wall time of the search or the optimisation alone."""
    search: SearchResult | None = None
    """How it was found, without the copies of sequences; None where the topology was given."""

    @classmethod
    def of(cls, fit: Fit, seconds: float, search: SearchResult | None = None) -> Found:
        """What a tree and a model were brought to."""
        model, factor = fit.model.normalised()
        tree = fit.tree.copy()
        tree.lengths *= factor
        return cls(tree, model, fit.lnl, seconds, search)

    @property
    def mean_tree(self) -> Tree:
        """The tree with one length a branch: where parts have their own, the mean over sites."""
        lengths = self.model.mean_lengths(self.tree.lengths)
        return Tree(self.tree.twin, self.tree.edge, lengths, self.tree.n_tips)

    @property
    def part_trees(self) -> list[Tree]:
        """The tree with the lengths of each part, where parts have their own."""
        rows = list(self.tree.lengths) if self.tree.lengths.ndim > 1 else []
        return [Tree(self.tree.twin, self.tree.edge, row, self.tree.n_tips) for row in rows]

    def event(self, newick: str, files: Sequence[str] = (), support: str = "") -> RunFinished:
        """The result as the last event of a run that wrote these files."""
        return RunFinished(
            lnl=self.lnl,
            model=self.model.text,
            tree=newick,
            tree_length=float(self.mean_tree.lengths.sum()),
            taxa=self.tree.n_tips,
            files=tuple(files),
            seconds=self.seconds,
            support=support,
        )


@dataclass(frozen=True, kw_only=True)
class TreeSearch:
    """A search that stands ready: its data, its engine and its starting trees."""

    problem: Problem
    distinct: Collapsed
    """The alignment without the copies of sequences, which is searched."""
    computation: Computation
    settings: SearchSettings
    starts: Sequence[StartingTree]
    constraint: Constraint | None
    rng: np.random.Generator
    start_text: str
    """The starting trees of all taxa, in Newick, a line each."""
    fingerprint: str
    """What a checkpoint must agree with: everything that decides how the search goes."""

    def whole(self, tree: Tree) -> Tree:
        """A tree of the search with all taxa, and one length a branch."""
        return Found(self.distinct.restore(tree), self.problem.model, 0.0, 0.0).mean_tree

    def run(self, emit: Emit = ignore, checkpoint: Checkpoint | None = None) -> Found:
        """Search, from the checkpoint on where there is one on file.

        Raises:
            InputError: a start violates the constraint, or the checkpoint is another search's.
        """
        began = time.perf_counter()
        found = search(
            self.computation.likelihood, self.starts, self.problem.model, self.settings, self.rng,
            emit, checkpoint, self.constraint,
        )  # fmt: skip
        seconds = time.perf_counter() - began
        tree = self.distinct.restore(found.tree)
        return Found.of(Fit(tree, found.model, lnl=found.lnl), seconds, found)


def prepare_search(
    problem: Problem,
    settings: SearchSettings = DEFAULT,
    resources: Resources = ANY_DEVICE,
    *,
    seed: int = 1,
    starts: str | None = None,
    constraint: str | None = None,
    kept: KeptLayouts | None = None,
    afterwards: int = 0,
    emit: Emit = ignore,
) -> TreeSearch:
    """Open an engine for a search and grow its starting trees.

    starts      as :func:`mltree.starts.starting_trees` reads them; as the settings have them
                where None
    constraint  the file of a constraint tree
    kept        layouts of the checkpoint that the search goes on from
    afterwards  trees that will be searched side by side when it has ended

    Raises:
        InputError: the starts or the constraint cannot be used.
        DeviceError: a device cannot be found or used.
    """
    taxa = problem.taxa
    groups = read_constraint(constraint, taxa) if constraint else None
    distinct = without_copies(problem.groups, groups, emit)
    fitting = settings.for_data(len(taxa), problem.n_sites)
    computation = open_computation(
        problem,
        resources,
        emit,
        distinct.groups,
        fitting,
        max(fitting.most_trees, afterwards),
        kept,
    )
    if not computation.side_by_side:
        fitting = fitting.one_by_one(all_starts=starts is not None)
    rng = np.random.default_rng(seed)
    grown = starting_trees(starts or usual_starts(fitting), distinct, taxa, groups, rng, emit)
    start_text = "\n".join(write_newick(distinct.restore(start.tree), taxa) for start in grown)
    return TreeSearch(
        problem=problem,
        distinct=distinct,
        computation=computation,
        settings=fitting.for_precision(computation.placement.is_exact),
        starts=[
            StartingTree(with_own_lengths(start.tree, problem.model), start.origin)
            for start in grown
        ],
        constraint=groups,
        rng=rng,
        start_text=start_text,
        fingerprint=mark(
            problem, problem.model, computation, groups, seed, start_text, repr(asdict(settings))
        ),
    )


def mark(
    problem: Problem,
    model: PartitionModel,
    computation: Computation,
    constraint: Constraint | None,
    seed: int,
    *others: str,
) -> str:
    """The fingerprint of a run: its data, its model as it starts, where it computes, its seed."""
    return fingerprint(
        __version__,
        computation.likelihood.engine.name,
        "\n".join(problem.taxa),
        *(patterns.codes.tobytes() for patterns in problem.groups),
        *(patterns.weights.tobytes() for patterns in problem.groups),
        repr([patterns.ends for patterns in problem.groups]),
        model.linkage,
        "\n".join(format_model(own) for own in model.models),
        repr(model.scalers.tolist()),
        b"" if constraint is None else constraint.one.tobytes() + constraint.other.tobytes(),
        str(seed),
        *others,
    )


def with_own_lengths(tree: Tree, model: PartitionModel) -> Tree:
    """A copy, with lengths for every part where the model's parts have their own."""
    return Tree(tree.twin.copy(), tree.edge.copy(), model.spread(tree.lengths), tree.n_tips)


def usual_starts(settings: SearchSettings) -> str:
    """As many starting trees as a preset has."""
    pars, rand = settings.parsimony_starts, settings.random_starts
    return f"pars{{{pars}}}" + (f",rand{{{rand}}}" if rand else "")


def without_copies(
    groups: Sequence[Patterns], constraint: Constraint | None, emit: Emit
) -> Collapsed:
    """The alignment without copies of sequences; with them all where a constraint names them."""
    if constraint is not None:
        nothing, every = np.empty(0, np.int32), np.arange(groups[0].n_tips, dtype=np.int32)
        return Collapsed(tuple(groups), every, nothing, nothing)
    distinct = collapse(groups)
    if distinct.copies.size:
        emit(Notice(_copies_text(distinct, groups[0].taxa)))
    return distinct


def _copies_text(distinct: Collapsed, taxa: Sequence[str]) -> str:
    pairs = zip(distinct.copies.tolist(), distinct.models.tolist(), strict=True)
    named = listed([f"{taxa[copy]} = {taxa[model]}" for copy, model in pairs])
    return f"sequences that occur twice are searched once and put back at the end: {named}"


FIXED_TOPOLOGY = SearchSettings(phases=(), perturbation=PerturbationSettings(patience=0))
"""A search without rearrangements: model and branch lengths only."""


def evaluate(
    likelihood: Likelihood,
    tree: Tree,
    model: PartitionModel,
    emit: Emit,
    *,
    optimise_parameters: bool,
    optimise_lengths: bool,
    settings: SearchSettings = FIXED_TOPOLOGY,
) -> Found:
    """A tree and a model, optimised as far as asked for, and their lnL.

    ``settings``: those of a fixed topology, for the likelihood's precision.
    """
    began = time.perf_counter()
    fit = _optimised(
        likelihood,
        Fit(with_own_lengths(tree, model), model),
        emit,
        optimise_parameters,
        optimise_lengths,
        settings,
    )
    return Found.of(fit, time.perf_counter() - began)


def _optimised(
    likelihood: Likelihood,
    fit: Fit,
    emit: Emit,
    parameters: bool,
    lengths: bool,
    settings: SearchSettings,
) -> Fit:
    if parameters and lengths:
        rng = np.random.default_rng()  # nothing draws from it
        start = StartingTree(fit.tree, "user 1")
        found = search(likelihood, [start], fit.model, settings, rng, of_one_tree(emit))
        return Fit(found.tree, found.model, lnl=found.lnl)
    if lengths:
        return perform(likelihood, alternate([fit], settings, emit, parameters=False))
    if parameters:
        fits = [Fit(fit.tree, start) for start in starts_of(fit.model)]
        fixed = replace(settings.model, scale_limit=0.0)
        steps = optimise_models(fits, fixed, settings.branches, fixed.final_epsilon)
        perform(likelihood, steps)
        best = best_fit(fits)
        if not best.converged:
            emit(StoppedShort("model"))
        return best
    fit.lnl = float(likelihood.log_likelihoods([fit.tree], [fit.case])[0])
    return fit
