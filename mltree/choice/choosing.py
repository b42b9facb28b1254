"""A model choice, step by step: a quick tree of all parts, then the candidates of each kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mltree.alignment.subsets import merged, only, refuse_files
from mltree.choice.merging import merge_parts
from mltree.choice.model_choice import MARGIN, choose_models
from mltree.choice.scored_models import Choice, Known, matrices_near
from mltree.errors import InputError
from mltree.events import Emit, ignore
from mltree.likelihood.api import Likelihood
from mltree.model.candidates import Criterion
from mltree.model.part_models import part_models
from mltree.model.partitioned import Linkage
from mltree.model.substitution import Model
from mltree.placement import Resources, place_all
from mltree.problem import Problem, in_parts
from mltree.runs.run import ANY_DEVICE, Found, open_computation, with_own_lengths
from mltree.search.driver import StartingTree, search
from mltree.search.model_optimiser import Fit
from mltree.settings import SearchSettings, preset
from mltree.tree.fitch import pack_sites
from mltree.tree.parsimony_spr import parsimony_trees
from mltree.tree.topology import Tree
from mltree.values import Value

__all__ = ["Scheme", "check_mergeable", "choose", "choose_scheme", "regrouped"]


TOGETHER = 2.0 * MARGIN
"""Of a score: how near the best matrices have to come, by what they bring the parts of a subset one
by one, to be tried where these are one. Parameters of their own bring parts a few units more."""


MATRICES = 1 << 26
"""Bytes of P matrices of a CPU's quick tree up to which each part has its own: those of 24 parts of
proteins and 24 taxa would be 150 MB. A tree of all parts as one is as good where they are many: of
100 parts of DNA and 24 of proteins the sum of BICs was 0.04 and 0.3 higher, of 30 0.1 lower, the
models the same; of seven sets of 4 to 12 parts, most with gaps, two were 4 and 10 higher."""


@dataclass(frozen=True)
class Scheme:
    """Parts put together, and what is chosen for each."""

    problem: Problem
    """The same data in fewer parts."""
    choices: list[Choice]
    """In the order of ``problem.model``."""
    members: list[list[str]]
    """The names of the parts that each is made of, in the order of the partition file."""


def choose(
    problem: Problem,
    resources: Resources = ANY_DEVICE,
    criterion: Criterion = Criterion.BIC,
    *,
    seed: int = 1,
    tree: Tree | None = None,
    emit: Emit = ignore,
) -> list[Choice]:
    """The best model of every part, in the order of ``problem.model``.

    tree  what models are fitted to; where None, what moves make of a parsimony tree under
          the problem's models

    Raises:
        DeviceError: a device cannot be found or used.
    """
    quick = _Quick(tree) if tree is not None else _quick_tree(problem, resources, seed, emit)
    return _choices(problem, resources, criterion, quick, emit)


def choose_scheme(
    problem: Problem,
    resources: Resources = ANY_DEVICE,
    criterion: Criterion = Criterion.BIC,
    *,
    seed: int = 1,
    tree: Tree | None = None,
    emit: Emit = ignore,
) -> Scheme:
    """The problem with parts put together that are better off under one model, and the choices.

    Subsets of several parts choose again; for the arguments see :func:`choose`.

    Raises:
        InputError: the problem has no parts that could be merged.
        DeviceError: a device cannot be found or used.
    """
    check_mergeable(problem)
    quick = _Quick(tree) if tree is not None else _quick_tree(problem, resources, seed, emit)
    tree, choices = quick.tree, _choices(problem, resources, criterion, quick, emit)
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
            before = _known_of([parts_of[name] for name in again])
            found = choose_models(
                only(patterns, new), again, tree, resources, criterion, emit, before
            )
            known |= {choice.part: choice for choice in found}
    return Scheme(fewer, [known[name] for name in fewer.model.names], members)


def check_mergeable(problem: Problem) -> None:
    """Make sure that there are parts that can be put together.

    Raises:
        InputError: there are none, or their branch lengths are not of one tree.
    """
    if problem.data is None:
        raise InputError("--merge puts parts together", hint="name them, --partitions FILE")
    if problem.model.linkage == Linkage.UNLINKED:
        raise InputError(
            "--merge compares parts under one tree, linked or scaled",
            hint="choose the scheme with --brlen scaled, and then search with what it writes",
        )
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
    """What choices begin with."""

    tree: Tree
    models: Sequence[Model] = ()
    """For the parts to begin with; or none."""
    likelihoods: Sequence[dict[int, Likelihood]] = ()
    """Of every kind of data, by categories: those that are open; or none."""


def _choices(
    problem: Problem, resources: Resources, criterion: Criterion, quick: _Quick, emit: Emit
) -> list[Choice]:
    """Of every part."""
    choices: list[Choice] = []
    for number, patterns in enumerate(problem.groups):
        own = slice(len(choices), len(choices) + len(patterns.parts))
        likelihoods = quick.likelihoods[number] if quick.likelihoods else {}
        known = Known(models=quick.models[own], likelihoods=likelihoods)
        names = problem.model.names[own]
        choices += choose_models(patterns, names, quick.tree, resources, criterion, emit, known)
    return choices


def _known_of(subsets: Sequence[Sequence[Choice]]) -> Known:
    """What the choices of some subsets' parts tell: where the largest began, what came near."""
    return Known(
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
    computation = open_computation(pooled, resources, emit, settings=settings, trees=1)
    rng = np.random.default_rng(seed)
    sites = pack_sites(*pooled.groups)
    (start,) = parsimony_trees(sites, 1, rng, engine=computation.parsimony)
    first = StartingTree(with_own_lengths(start, pooled.model), "parsimony 1")
    found = search(computation.likelihood, [first], pooled.model, settings, rng, emit)
    tree = Found.of(Fit(found.tree, found.model, lnl=found.lnl), 0.0).mean_tree
    models = found.model.models
    if pooled is not problem:
        of_kinds = zip(problem.groups, models, strict=True)
        models = tuple(model for patterns, model in of_kinds for _ in patterns.parts)
    shapes = problem.model.shapes
    is_alone = len(shapes) == 1 and shapes[0][0] == 1 and not problem.model.has_site_rates
    known = [{shapes[0][1]: computation.likelihood}] if is_alone else []
    return _Quick(tree, models, known)


def _is_much(problem: Problem, resources: Resources, settings: SearchSettings) -> bool:
    """Whether the P matrices of parts would take much of the memory of a CPU."""
    if problem.data is None or len(problem.model.names) == len(problem.groups):
        return False
    widths = [max(problem.model.categories)] * len(problem.groups)
    bounds = settings.branches.bounds(problem.n_sites)
    placed = place_all(resources, problem.groups, widths, bounds, trees=1)
    plans = [plan for one in placed.each if (plan := one.memory) is not None]
    on_host = all(device.is_cpu for device in placed.devices)
    return on_host and sum(plan.matrices for plan in plans) > MATRICES


def _as_one(problem: Problem) -> Problem:
    """The problem with one part of each data type."""
    if problem.data is None:
        raise ValueError("no parts")
    kinds = np.array(problem.data.group_of_part)
    every = range(len(problem.groups))
    return regrouped(problem, [np.flatnonzero(kinds == kind).tolist() for kind in every])
