"""``mltree ancestral``: probabilities of the states at the inner nodes of a tree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import TYPE_CHECKING

import numpy as np

from mltree.analyses.evaluate import fitted, given_tree
from mltree.analyses.options import AncestralOptions
from mltree.data.patterns import Patterns
from mltree.models.eigen import ModelArrays, p_matrices
from mltree.runs.engines import Workload, open_engines
from mltree.runs.problem import Problem
from mltree.runs.request import by_kind, command_result, deliver, load
from mltree.runs.steps import TreeResult
from mltree.system import __version__
from mltree.system.arrays import Float64, Int32
from mltree.system.events import RunStarted, TreeScored
from mltree.tree.newick import write_newick
from mltree.tree.topology import Tree

if TYPE_CHECKING:
    from mltree.report.progress import Reporter


# Marginal ancestral states: how probable each state is at an inner node, given all of the data.
#
# At a node v with neighbours x, summed over the rate categories k,
#
#     P(s | data)  ~  Σ_k w_k π_ks Π_x Σ_u P_k(t_vx)[s, u] L_x(u)
#
# L_x: likelihoods of what lies behind x (Yang, Kumar & Nei 1995). All directed edges are computed
# in NumPy, some patterns at a time, so that memory does not grow with the alignment.
#
# Letters: T tips, L patterns, K categories, S states.

AT_ONCE = 1 << 26
"""Bytes that the messages of some patterns take: 200 taxa with DNA under +G4 go 800 patterns at a
time, within a processor's caches by a node."""


def inner_nodes(tree: Tree) -> list[int]:
    """Half-edges at the N' inner nodes that face tip 0, from the node next to it outwards.

    N' is T-2; less by the artificial edges of the tree, whose two nodes are one.
    """
    return [half for half in _inner_nodes(tree) if tree.edge.item(half) < tree.n_branches]


def marginal_states(tree: Tree, patterns: Patterns, arrays: ModelArrays) -> Float64:
    """f64 [N', L, S]: probabilities of sum 1, nodes as :func:`inner_nodes` has them.

    The tree has one length a branch; the patterns are of one part.
    """
    systems = _systems(arrays)
    p = np.concatenate([p_matrices(system, tree.lengths) for system in systems], axis=1)
    pi = np.concatenate([np.tile(one.frequencies, (one.n_categories, 1)) for one in systems])
    nodes = _inner_nodes(tree)
    wanted = np.isin(nodes, inner_nodes(tree))
    found = np.empty((int(wanted.sum()), patterns.n_patterns, arrays.n_states))
    bytes_each = 8 * arrays.n_categories * arrays.n_states * 3 * len(nodes)
    step = max(1, AT_ONCE // bytes_each)
    for start in range(0, patterns.n_patterns, step):
        some = slice(start, start + step)
        codes = patterns.codes[:, some]
        every = _posteriors(
            tree, nodes, patterns.alphabet.tip_table[codes], p, arrays.weights[:, None] * pi
        )
        for n, posterior in enumerate(compress(every, wanted)):
            found[n, some] = posterior
    return found


def _inner_nodes(tree: Tree) -> list[int]:
    """Likewise, those behind artificial edges too."""
    return [half for wave in tree.waves_from(int(tree.edge[0])) for half in wave.tolist()]


def _posteriors(
    tree: Tree, nodes: list[int], tips: Float64, p: Float64, prior: Float64
) -> Iterator[Float64]:
    """f64 [L, S] of each node; ``tips`` f64 [T, L, S]; ``prior`` f64 [K, S]: w_k π_s."""
    messages = _Messages(tree, tips, p)
    for half in reversed(nodes):
        for sibling in tree.siblings(half):
            messages.take(sibling)
    messages.take(nodes[0])
    for half in nodes:
        for sibling in tree.siblings(half):
            if int(tree.twin[sibling]) >= 3 * tree.n_tips:
                messages.take(int(tree.twin[sibling]))
    for half in nodes:
        values, logs = messages.product([half, *tree.siblings(half)])
        scale = np.exp(logs - logs.max(axis=1, keepdims=True))
        joint = np.einsum("ks,lk,lks->ls", prior, scale, values)
        yield joint / joint.sum(axis=1, keepdims=True)


def _systems(arrays: ModelArrays) -> list[ModelArrays]:
    """The classes of a mixture, each with its categories; of any other model the model itself."""
    if arrays.eigenvalues.ndim == 1:
        return [arrays]
    each = arrays.n_categories // arrays.n_systems
    rates, weights = arrays.rates.reshape(-1, each), arrays.weights.reshape(-1, each)
    return replace(arrays, rates=rates, weights=weights).unstacked()


class _Messages:
    """Messages into inner nodes through their half-edges: P · (the likelihoods behind the twin)."""

    def __init__(self, tree: Tree, tips: Float64, p: Float64) -> None:
        self._tree, self._tips, self._p = tree, tips, p
        self._values: dict[int, Float64] = {}
        """f64 [L, K, S], of largest element 1 by pattern and category ..."""
        self._logs: dict[int, Float64] = {}
        """... times exp(f64 [L, K])."""

    def take(self, half: int) -> None:
        """Compute what comes in, once all that it is made from is there."""
        tree = self._tree
        twin, p = int(tree.twin[half]), self._p[tree.edge[half]]
        if twin < 3 * tree.n_tips:
            values = np.einsum("kij,lj->lki", p, self._tips[twin // 3])
            logs = np.zeros(values.shape[:2])
        else:
            behind, logs = self.product(list(tree.siblings(twin)))
            values = np.matmul(behind.swapaxes(0, 1), p.swapaxes(1, 2)).swapaxes(0, 1)
        self._values[half], self._logs[half] = _scaled(values, logs)

    def product(self, halves: list[int]) -> tuple[Float64, Float64]:
        """Product of the messages through some half-edges of a node."""
        first, *others = halves
        values, logs = self._values[first], self._logs[first]
        for half in others:
            values, logs = _scaled(values * self._values[half], logs + self._logs[half])
        return values, logs


def _scaled(values: Float64, logs: Float64) -> tuple[Float64, Float64]:
    """With a largest element of 1; a category that cannot be stays at 0, and counts for nothing."""
    largest = values.max(axis=2)
    possible = largest > 0
    divisor = np.where(possible, largest, 1.0)
    return values / divisor[:, :, None], np.where(possible, logs + np.log(divisor), -np.inf)


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
"""Head of the table, as IQ-TREE writes it."""


@dataclass(frozen=True)
class _Part:
    """States of all nodes in a part."""

    states: Sequence[str]
    """States of the alphabet, in the order of the columns."""
    probabilities: Float64
    """f64 [N', L, S]; see :func:`.ancestral.inner_nodes`"""
    best: list[list[str]]
    """N' rows of L: the most probable states."""
    sites: Int32
    """i32 [sites]: the pattern of each."""


def run_ancestral(options: AncestralOptions, reporter: Reporter) -> None:
    """Score the tree, compute the states of its inner nodes, write the files.

    Raises:
        InputError: the data or the tree cannot be used, or the files cannot be written.
        NumericalError: a tree whose lengths stay as they are has no likelihood.
    """
    workspace, kinds = options.workspace, FORMATS[options.file_format]
    with workspace.taken(kinds, options.redo, options.inputs):
        reporter(RunStarted(__version__, options.line))
        problem = load(options, reporter)
        tree = given_tree(options.tree, problem, reporter, not options.no_opt_branches)
        engines = open_engines(options.resources, Workload.of(problem), reporter)
        found = fitted(engines, tree, problem.model, options, reporter)
        found = found.scored(engines, reporter)
        reporter(TreeScored(found.lnl))
        texts = _texts(options, found, problem)
        others = {kind for kinds in FORMATS.values() for kind in kinds}
        spent = sorted(others - texts.keys()) if options.redo else []
        files = deliver(workspace, texts, reporter, spent)
        reporter.say("\n".join(f"Wrote {file}" for file in files))
        values = {
            "lnl": found.lnl,
            "model": found.model.text,
            "nodes": len(inner_nodes(found.tree)),
        }
        result = command_result(
            "ancestral", options.line, values, by_kind(files), options.inputs, reporter
        )
        reporter.finish("ancestral", result)


def _texts(options: AncestralOptions, found: TreeResult, problem: Problem) -> dict[str, str]:
    tree = found.mean_tree
    nodes = inner_nodes(tree)
    names = [f"Node{n}" for n in range(1, len(nodes) + 1)]
    labels = dict(zip(tree.edge[nodes[1:]].tolist(), names[1:], strict=True))
    newick = write_newick(tree, problem.taxa, labels=labels)
    texts = {TREE: f"{newick[:-1]}{names[0]};\n"}  # the first node is where the text is rooted
    parts = list(_parts(found, problem))
    table = _table(names, parts)
    if options.file_format == "iqtree":
        explained = "#   Part:  Partition ID\n" if len(parts) > 1 else ""
        workspace = options.workspace
        head = HEAD.format(tree=workspace.path(TREE), file=workspace.path(IQTREE), part=explained)
        return {IQTREE: head + table, **texts}
    rows = ("".join(_by_site(part.best[n], part) for part in parts) for n in range(len(names)))
    states = "".join(f"{name}\t{row}\n" for name, row in zip(names, rows, strict=True))
    return {PROBABILITIES: table, STATES: states, **texts}


def _parts(found: TreeResult, problem: Problem) -> Iterator[_Part]:
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
