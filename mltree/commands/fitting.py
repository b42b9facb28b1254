"""Trees that are given, and optimised as far as was asked for: what several commands begin with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mltree.commands.request import Request
from mltree.errors import InputError, ModelError
from mltree.events import Emit
from mltree.model.partitioned import PartitionModel
from mltree.problem import Problem, check_possible, lone_trees, read_trees
from mltree.runs.run import FIXED_TOPOLOGY, Computation, Found, as_reported, evaluate
from mltree.supports.distances import largest
from mltree.supports.table import split_table
from mltree.tree.newick_clades import read_clades
from mltree.tree.topology import Tree

__all__ = ["FitRequest", "check_resolved", "fitted", "given_tree"]


@dataclass(frozen=True, kw_only=True)
class FitRequest(Request):
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


def check_resolved(path: str) -> None:
    """See that what is said of a file's trees is not said of trees that nobody meant.

    Where branch lengths are optimised, the branches that resolve a polytomy would become as long as
    suits this one of its resolutions.

    Raises:
        InputError: a tree has a polytomy.
    """
    table = split_table(read_clades(path))
    few = np.flatnonzero(2 * np.diff(table.bounds) < largest(len(table.taxa)))
    if few.size:
        raise InputError(
            f"tree {few[0] + 1} has a polytomy: optimised, its branches would resolve it",
            file=path,
            hint="resolve it, or keep the trees' branch lengths: --no-opt-branches",
        )


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
    return as_reported(computation, found, emit)
