"""A model choice, step by step: a quick tree of all parts, then the candidates of each kind."""

from __future__ import annotations

import numpy as np

from mltree.events import Emit, ignore
from mltree.model.candidates import Criterion
from mltree.model_choice import Choice, choose_models
from mltree.placement import Resources
from mltree.problem import Problem
from mltree.run import ANY_DEVICE, Found, open_computation, with_own_lengths
from mltree.search.driver import StartingTree, search
from mltree.search.model_optimiser import Fit
from mltree.settings import preset
from mltree.tree.fitch import pack_sites
from mltree.tree.parsimony_spr import parsimony_trees
from mltree.tree.topology import Tree

__all__ = ["choose"]


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

    tree  what models are fitted to; where None, what interchanges make of a parsimony tree under
          the problem's models

    Raises:
        DeviceError: a device cannot be found or used.
    """
    if tree is None:
        tree = _quick_tree(problem, resources, seed, emit)
    choices: list[Choice] = []
    for patterns in problem.groups:
        names = problem.model.names[len(choices) :][: len(patterns.parts)]
        choices += choose_models(patterns, names, tree, resources, criterion, emit)
    return choices


def _quick_tree(problem: Problem, resources: Resources, seed: int, emit: Emit) -> Tree:
    """A tree as good as a model needs it, with one length a branch."""
    settings = preset("fast").nni_only()
    computation = open_computation(problem, resources, emit, settings=settings, trees=1)
    rng = np.random.default_rng(seed)
    (start,) = parsimony_trees(pack_sites(*problem.groups), 1, rng)
    first = StartingTree(with_own_lengths(start, problem.model), "parsimony 1")
    found = search(computation.likelihood, [first], problem.model, settings, rng, emit)
    return Found.of(Fit(found.tree, found.model, lnl=found.lnl), 0.0).mean_tree
