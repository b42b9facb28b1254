"""A run, step by step: place it, open it, then search or evaluate; give back the result.

``prepare_search(load_problem("frogs.phy", "GTR+G4")).run()`` is a whole search. Nothing is printed
here: progress goes out as events. Whoever gives a checkpoint can go on with a search.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial

import numpy as np

from mltree import __version__
from mltree.data.patterns import Patterns
from mltree.device.discovery import choose_devices, company_pays
from mltree.device.layout_choice import KeptLayouts
from mltree.fit.coordinate_ascent import ascend_best
from mltree.fit.model_optimiser import Fit, best_fit, optimise_models, starts_of
from mltree.fit.settings import PerturbationSettings, SearchSettings
from mltree.likelihood.likelihood import Likelihood
from mltree.likelihood.requests import perform
from mltree.likelihood.site_rates import PerSiteLikelihood
from mltree.models.grammar import format_model
from mltree.models.partitioned import PartitionModel
from mltree.report.tables import listed
from mltree.runs.computation import (
    ANY_DEVICE,
    DEFAULT,
    NOTHING,
    Afterwards,
    Computation,
    Found,
    open_computation,
)
from mltree.runs.engines import Resources
from mltree.runs.problem import Problem
from mltree.runs.trees import starting_trees, usual_terms
from mltree.system.errors import InputError
from mltree.system.events import Emit, Notice, StoppedShort, ignore
from mltree.system.ranks import ALIKE_HINT, LONE, Ranks
from mltree.system.values import Value
from mltree.tree.newick import write_newick
from mltree.tree.topology import Tree
from mltree.treesearch.among_ranks import AmongRanks
from mltree.treesearch.checkpoint import Checkpoint, fingerprint
from mltree.treesearch.constraint import Constraint, read_constraint
from mltree.treesearch.duplicates import Collapsed, collapse
from mltree.treesearch.search import StartingTree, of_one_tree, search


class TreeSearch(Value, kw_only=True):
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

    def run(
        self, emit: Emit = ignore, checkpoint: Checkpoint | None = None, ranks: Ranks = LONE
    ) -> Found:
        """Search, from the checkpoint on where there is one on file.

        Raises:
            MltreeError: another rank cannot take part, or has died.
            InputError: a start violates the constraint, or the checkpoint is another search's.
        """
        began = time.perf_counter()
        found = search(
            self.computation.likelihood, self.starts, self.problem.model, self.settings, self.rng,
            emit, checkpoint, self.constraint, self._among(ranks),
        )  # fmt: skip
        seconds = time.perf_counter() - began
        tree = self.distinct.restore(found.tree)
        result = Found.of(Fit(tree, found.model, lnl=found.lnl), seconds, found)
        return as_reported(self.computation, result, emit)

    def _among(self, ranks: Ranks) -> AmongRanks | None:
        """Whoever answers the search; its own likelihood where None."""
        alone = ranks.size == 1 or self.problem.model.has_site_rates
        if alone or self.computation.is_shared:
            return None
        likelihood = self.computation.likelihood
        helping = partial(_helping, self.computation, likelihood.engine.name)
        return AmongRanks(likelihood, ranks, helping)


def _helping(computation: Computation, name: str) -> Likelihood:
    """What another rank than the first answers with.

    Raises: InputError: it would find something else.
    """
    if computation.likelihood.engine.name != name:
        raise InputError("its devices are not those of rank 0", hint=ALIKE_HINT)
    return computation.likelihood


def prepare_search(
    problem: Problem,
    settings: SearchSettings = DEFAULT,
    resources: Resources = ANY_DEVICE,
    *,
    seed: int = 1,
    starts: str | None = None,
    constraint: str | None = None,
    kept: KeptLayouts | None = None,
    afterwards: Afterwards = NOTHING,
    emit: Emit = ignore,
) -> TreeSearch:
    """Open an engine for a search and grow its starting trees.

    starts      as :func:`mltree.runs.trees.starting_trees` reads them; as the settings have them
                where None
    constraint  the file of a constraint tree
    kept        layouts of the checkpoint that the search goes on from
    afterwards  what comes when it has ended

    Raises:
        InputError: the starts or the constraint cannot be used.
        DeviceError: a device cannot be found or used.
    """
    taxa = problem.taxa
    groups = read_constraint(constraint, taxa) if constraint else None
    distinct = without_copies(problem.groups, groups, emit)
    fitting = settings.for_data(len(taxa), problem.n_sites)
    pays = company_pays(choose_devices(resources.device), problem.cla_size)
    if pays and starts is None:
        fitting = fitting.side_by_side()
    computation = open_computation(
        problem, resources, emit, distinct.groups, fitting, fitting.most_trees, kept, afterwards
    )
    if not pays:
        fitting = fitting.one_by_one(all_starts=starts is not None)
    rng = np.random.default_rng(seed)
    grown = starting_trees(
        starts or usual_terms(fitting), distinct, taxa, groups, rng, emit, computation.parsimony
    )
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
        __version__, computation.likelihood.engine.name, "\n".join(problem.taxa),
        *(patterns.codes.tobytes() for patterns in problem.groups),
        *(patterns.weights.tobytes() for patterns in problem.groups),
        repr([patterns.ends for patterns in problem.groups]),
        *(own.systems.roots.tobytes() for own in problem.groups if own.systems is not None),
        model.linkage,
        "\n".join(format_model(own) for own in model.models),
        repr(model.scalers.tolist()),
        b"" if constraint is None else constraint.one.tobytes() + constraint.other.tobytes(),
        str(seed), *others,
    )  # fmt: skip


def with_own_lengths(tree: Tree, model: PartitionModel) -> Tree:
    """A copy, with lengths for every part where the model's parts have their own."""
    return tree.with_lengths(model.spread(tree.lengths)).copy()


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
        likelihood, Fit(with_own_lengths(tree, model), model), emit,
        optimise_parameters, optimise_lengths, settings,
    )  # fmt: skip
    return Found.of(fit, time.perf_counter() - began)


def as_reported(
    computation: Computation, found: Found, emit: Emit, tree: Tree | None = None
) -> Found:
    """The result as it is reported: under Γ where it was found under rates of sites (+PSR).

    Those were chosen for the tree, so that lnLs under them tell nothing of another one.

    tree  with the lengths to begin at, if not those of the result
    """
    if not found.model.has_site_rates:
        return found
    emit(Notice(f"lnL {found.lnl:.3f} under rates of sites; what follows is under Γ"))
    if isinstance(computation.likelihood, PerSiteLikelihood):
        computation.likelihood.close()
    under_gamma = evaluate(
        computation.exact, tree or found.tree, found.model.under_gamma, emit,
        optimise_parameters=True, optimise_lengths=True,
    )  # fmt: skip
    seconds = found.seconds + under_gamma.seconds
    return replace(under_gamma, seconds=seconds, search=found.search, per_site=found.model)


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
        return perform(likelihood, ascend_best([fit], settings, emit, parameters=False))
    if parameters:
        fits = [Fit(fit.tree, start) for start in starts_of(fit.model)]
        fixed = replace(settings.model, scale_limit=0.0)
        steps = optimise_models(fits, fixed, settings.branches, fixed.final_epsilon)
        perform(likelihood, steps)
        best = best_fit(fits)
        if best.lacking:
            emit(StoppedShort.by("model", best.lacking))
        return best
    fit.lnl = float(likelihood.log_likelihoods([fit.tree], [fit.case])[0])
    return fit
