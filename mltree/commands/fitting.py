"""Trees that are given, and optimised as far as was asked for: what several commands begin with."""

from __future__ import annotations

from mltree.commands.request import Request
from mltree.errors import ModelError
from mltree.events import Emit
from mltree.given_trees import check_possible, lone_trees, read_trees
from mltree.model.partitioned import PartitionModel
from mltree.problem import Problem
from mltree.runs.run import FIXED_TOPOLOGY, Computation, Found, as_reported, evaluate
from mltree.tree.topology import Tree

__all__ = ["FitRequest", "fitted", "given_tree"]


class FitRequest(Request, kw_only=True):
    """What a command needs to know that takes topologies as they are."""

    optimise_model: bool
    optimise_branches: bool


def given_tree(path: str, problem: Problem, emit: Emit, optimise_branches: bool) -> Tree:
    """The tree of a file; a tree a part where parts have branch lengths of their own.

    Raises:
        InputError: it cannot be used.
        NumericalError: its lengths are to stay as they are, and it has no likelihood.
    """
    tree = read_trees(path, problem, emit)
    if not optimise_branches:
        for own, groups in lone_trees(tree, problem):
            check_possible(own, groups)
    return tree


def fitted(
    computation: Computation,
    tree: Tree,
    model: PartitionModel,
    emit: Emit,
    optimise_model: bool,
    optimise_branches: bool,
) -> Found:
    """The tree and the model, as likely as they can be made on this topology, as is reported.

    Raises:
        ModelError: rates of sites are to be found, but not all else.
    """
    if model.has_site_rates and not (optimise_model and optimise_branches):
        raise ModelError(
            "+PSR finds rates of sites together with the model and the branch lengths",
            hint="leave the model and the branches to be optimised, or use +G4",
        )
    found = evaluate(
        computation.likelihood,
        tree,
        model,
        emit,
        optimise_parameters=optimise_model,
        optimise_lengths=optimise_branches,
        settings=FIXED_TOPOLOGY.for_precision(computation.placement.is_exact),
    )
    return as_reported(computation, found, emit, tree)
