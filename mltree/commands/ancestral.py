"""``mltree ancestral``: probabilities of the states at the inner nodes of a tree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from mltree import __version__
from mltree.alignment.patterns import Patterns
from mltree.arrays import Float64, Int32
from mltree.commands.fitting import FitRequest, fitted, given_tree
from mltree.commands.results import by_kind, command_result, deliver
from mltree.events.run import RunStarted
from mltree.events.search import TreeScored
from mltree.likelihood.ancestral import inner_nodes, marginal_states
from mltree.model.eigen import ModelArrays
from mltree.problem import Problem
from mltree.report.progress import Reporter
from mltree.runs.run import Found, open_computation
from mltree.tree.newick import write_newick
from mltree.tree.topology import Tree

__all__ = ["FORMATS", "AncestralRequest", "run_ancestral"]

PROBABILITIES, STATES, TREE = "ancestralProbs", "ancestralStates", "ancestralTree"
"""Kinds of files: RAxML-NG's names."""

IQTREE = "state"
"""IQ-TREE's, which has the tables in one file."""

FORMATS = {"raxml": (PROBABILITIES, STATES, TREE), "iqtree": (IQTREE, TREE)}
"""Formats by name, and the kinds of files that are written."""

UNKNOWN = "-"
"""The state of a node at a site where no taxon has data."""

HEAD = """# Ancestral state reconstruction for all nodes in {tree}
# This file can be read in MS Excel or in R with command:
#   tab=read.table('{file}',header=TRUE)
# Columns are tab-separated with following meaning:
#   Node:  Node name in the tree
{part}#   Site:  Alignment site ID
#   State: Most likely state assignment
#   p_X:   Posterior probability for state X (empirical Bayesian method)
"""
"""Of IQ-TREE's file."""


class AncestralRequest(FitRequest, kw_only=True):
    """``mltree ancestral``."""

    tree: str
    file_format: str
    """A name of :data:`FORMATS`."""


@dataclass(frozen=True)
class _Part:
    """What a part says of all nodes."""

    states: Sequence[str]
    """Of the alphabet, in the order of the columns."""
    probabilities: Float64
    """f64 [N', L, S]; see :func:`.ancestral.inner_nodes`"""
    best: list[list[str]]
    """N' rows of L: the most probable states."""
    sites: Int32
    """i32 [sites]: the pattern of each."""


def run_ancestral(request: AncestralRequest, reporter: Reporter) -> None:
    """Score the tree, compute the states of its inner nodes, write the files.

    Raises:
        InputError: the data or the tree cannot be used, or the files cannot be written.
        NumericalError: a tree whose lengths stay as they are has no likelihood.
    """
    outputs, kinds = request.outputs, FORMATS[request.file_format]
    inputs = [*request.files, request.tree]
    with outputs.taken(kinds, request.redo, inputs):
        reporter(RunStarted(__version__, request.command))
        problem = request.load(reporter)
        tree = given_tree(request.tree, problem, reporter, request.optimise_branches)
        computation = open_computation(problem, request.resources, reporter)
        found = fitted(
            computation, tree, problem.model, reporter,
            request.optimise_model, request.optimise_branches,
        )  # fmt: skip
        found = computation.exactly(found, reporter)
        reporter(TreeScored(found.lnl))
        texts = _texts(request, found, problem)
        others = {kind for kinds in FORMATS.values() for kind in kinds}
        spent = sorted(others - texts.keys()) if request.redo else []
        files = deliver(outputs, texts, reporter, spent)
        reporter.say("\n".join(f"Wrote {file}" for file in files))
        values = {
            "lnl": found.lnl,
            "model": found.model.text,
            "nodes": len(inner_nodes(found.tree)),
        }
        result = command_result(
            "ancestral", request.command, values, by_kind(files), inputs, reporter
        )
        reporter.finish("ancestral", result)


def _texts(request: AncestralRequest, found: Found, problem: Problem) -> dict[str, str]:
    tree = found.mean_tree
    nodes = inner_nodes(tree)
    names = [f"Node{n}" for n in range(1, len(nodes) + 1)]
    labels = dict(zip(tree.edge[nodes[1:]].tolist(), names[1:], strict=True))
    newick = write_newick(tree, problem.taxa, labels=labels)
    texts = {TREE: f"{newick[:-1]}{names[0]};\n"}  # the first node is where the text is rooted
    parts = list(_parts(found, problem))
    table = _table(names, parts)
    if request.file_format == "iqtree":
        explained = "#   Part:  Partition ID\n" if len(parts) > 1 else ""
        outputs = request.outputs
        head = HEAD.format(tree=outputs.path(TREE), file=outputs.path(IQTREE), part=explained)
        return {IQTREE: head + table, **texts}
    rows = ("".join(_by_site(part.best[n], part) for part in parts) for n in range(len(names)))
    states = "".join(f"{name}\t{row}\n" for name, row in zip(names, rows, strict=True))
    return {PROBABILITIES: table, STATES: states, **texts}


def _parts(found: Found, problem: Problem) -> Iterator[_Part]:
    """The parts in the order of their file."""
    order = (0,) if problem.data is None else problem.data.order
    arrays, trees = found.model.arrays(), found.part_trees
    for place in np.argsort(order).tolist():
        patterns = problem.part(order[place])
        own = trees[place] if trees else found.tree
        yield _part(own, patterns, arrays[place])


def _part(tree: Tree, patterns: Patterns, arrays: ModelArrays) -> _Part:
    probabilities = marginal_states(tree, patterns, arrays)
    states = np.array([*patterns.alphabet.states, UNKNOWN * patterns.alphabet.width])
    best = probabilities.argmax(axis=2)
    best[:, (patterns.codes == patterns.alphabet.gap_code).all(axis=0)] = len(states) - 1
    rows = states[best].tolist()
    return _Part(patterns.alphabet.states, probabilities, rows, patterns.site_pattern)


def _by_site(row: Sequence[str], part: _Part) -> str:
    return "".join([row[pattern] for pattern in part.sites.tolist()])


def _table(names: Sequence[str], parts: Sequence[_Part]) -> str:
    """A line for every node and site. Parts of several state counts have columns of their own."""
    states = max((part.states for part in parts), key=len)
    head = ["Node", *(["Part"] if len(parts) > 1 else []), "Site", "State"]
    lines = ["\t".join([*head, *(f"p_{state}" for state in states)])]
    for n, name in enumerate(names):
        for number, part in enumerate(parts, 1):
            first = f"{name}\t{number}" if len(parts) > 1 else name
            row = "\t".join(["%.5f"] * len(part.states))
            ends = [
                f"{state}\t{row % tuple(own)}"
                for state, own in zip(part.best[n], part.probabilities[n].tolist(), strict=True)
            ]
            lines += [
                f"{first}\t{site}\t{ends[pattern]}"
                for site, pattern in enumerate(part.sites.tolist(), 1)
            ]
    return "\n".join([*lines, ""])
