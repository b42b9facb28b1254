"""``mltree ancestral``: how probable each state is at an inner node, given all of the data.

At a node v with neighbours x, summed over the rate categories k,

    P(s | data)  ~  Σ_k w_k π_ks Π_x Σ_u P_k(t_vx)[s, u] L_x(u)

L_x: likelihoods of what lies behind x (Yang, Kumar & Nei 1995). All directed edges are computed
in NumPy, some patterns at a time, so that memory does not grow with the alignment.

Letters: T tips, E edges, L patterns, K categories, S states.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from itertools import compress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mltree.analyses.evaluate import fitted, given_tree
from mltree.analyses.options import AncestralOptions
from mltree.analyses.simulate import by_category
from mltree.data.alignments import Source
from mltree.data.patterns import Patterns
from mltree.models.eigen import ModelArrays
from mltree.runs.calls import Call, taking
from mltree.runs.engines import Workload, open_engines
from mltree.runs.logged_run import by_kind, command_result, deliver, load, names_file
from mltree.runs.problem import Problem
from mltree.runs.results import PhyloTree, Table
from mltree.runs.trees import TreeResult
from mltree.system import __version__
from mltree.system.arrays import Float64
from mltree.system.errors import InputError
from mltree.system.events import Emit, RunStarted, TreeScored
from mltree.tree.newick import write_newick
from mltree.tree.topology import Tree

if TYPE_CHECKING:
    from mltree.report.progress import Reporter


PROBABILITIES, STATES, TREE = "ancestralProbs", "ancestralStates", "ancestralTree"
IQTREE = "state"
"""Kinds of files: RAxML-NG's names, and IQ-TREE's, which has the tables in one file."""

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

AT_ONCE = 1 << 26
"""Bytes that the messages of some patterns take: 200 taxa with DNA under +G4 go 800 patterns at a
time, within a processor's caches by a node."""


def run_ancestral(options: AncestralOptions, reporter: Reporter) -> None:
    """Score the tree, compute the states of its inner nodes, write the files.

    Raises:
        InputError: the data or the tree cannot be used, or the files cannot be written.
        NumericalError: a tree whose lengths stay as they are has no likelihood.
    """
    workspace, kinds = options.workspace, FORMATS[options.file_format]
    with workspace.taken(kinds, options.redo, options.inputs):
        reporter(RunStarted(__version__, options.line))
        fit, problem = _fitted_tree(options, reporter)
        texts = {**_texts(options, fit, problem), **names_file(problem.renamed)}
        stale = {kind for kinds in FORMATS.values() for kind in kinds} - texts.keys()
        files = deliver(workspace, texts, reporter, sorted(stale) if options.redo else [])
        reporter.say("\n".join(f"Wrote {file}" for file in files))
        nodes = len(inner_nodes(fit.tree))
        values = {"lnl": fit.lnl, "model": fit.model.text, "nodes": nodes}
        result = command_result(
            "ancestral", options.line, values, by_kind(files), options.inputs, reporter
        )
        reporter.finish("ancestral", result)


def _fitted_tree(
    options: AncestralOptions, emit: Emit, source: Source | None = None
) -> tuple[TreeResult, Problem]:
    """The tree, scored, and the data; ``source``: sequences at hand."""
    problem = load(options, emit, source)
    tree = given_tree(options.tree, problem, emit, not options.no_opt_branches)
    engines = open_engines(options.resources, Workload.of(problem), emit)
    fit = fitted(engines, tree, problem.model, options, emit).scored(engines, emit)
    emit(TreeScored(fit.lnl))
    return fit, problem


def _named(fit: TreeResult, problem: Problem) -> tuple[list[str], str]:
    """Names of the inner nodes, and the tree in Newick with them as labels."""
    tree = fit.mean_tree
    nodes = inner_nodes(tree)
    names = [f"Node{n}" for n in range(1, len(nodes) + 1)]
    labels = dict(zip(tree.edge[nodes[1:]].tolist(), names[1:], strict=True))
    newick = write_newick(tree, problem.taxa, labels=labels)
    return names, f"{newick[:-1]}{names[0]};"  # the first node is where the text is rooted


def _texts(options: AncestralOptions, fit: TreeResult, problem: Problem) -> dict[str, str]:
    """The files, by kind."""
    names, newick = _named(fit, problem)
    texts = {TREE: newick + "\n"}
    parts = list(_parts(fit, problem))
    table = "".join(_table(names, parts))
    if options.file_format == "iqtree":
        explained = "#   Part:  Partition ID\n" if len(parts) > 1 else ""
        path = options.workspace.path
        head = HEAD.format(tree=path(TREE), file=path(IQTREE), part=explained)
        return {IQTREE: head + table, **texts}
    states = "".join(f"{name}\t{_sequence(parts, n)}\n" for n, name in enumerate(names))
    return {PROBABILITIES: table, STATES: states, **texts}


def _sequence(parts: Sequence[_Part], node: int) -> str:
    """The most probable states of a node at all sites, parts one after the other."""
    return "".join(part.best[node][pattern] for part in parts for pattern in part.sites)


def _parts(fit: TreeResult, problem: Problem) -> Iterator[_Part]:
    """The parts in the order of their file."""
    order = (0,) if problem.data is None else problem.data.order
    arrays = fit.model.arrays()
    trees = fit.part_trees or [fit.tree] * len(order)
    for place in np.argsort(order).tolist():
        yield _Part.of(trees[place], problem.part(order[place]), arrays[place])


def _table(names: Sequence[str], parts: Sequence[_Part]) -> Iterator[str]:
    """A line for every node and site. Parts of several state counts have columns of their own."""
    is_parted = len(parts) > 1
    states = max((part.states for part in parts), key=len)
    columns = ["Node", *["Part"] * is_parted, "Site", "State", *(f"p_{state}" for state in states)]
    yield "\t".join(columns) + "\n"
    for n, name in enumerate(names):
        for number, part in enumerate(parts, 1):
            first = f"{name}\t{number}" if is_parted else name
            row = "\t".join(["%.5f"] * len(part.states))
            ends = [
                f"{state}\t{row % tuple(probabilities)}\n"
                for state, probabilities in zip(
                    part.best[n], part.probabilities[n].tolist(), strict=True
                )
            ]
            for site, pattern in enumerate(part.sites, 1):
                yield f"{first}\t{site}\t{ends[pattern]}"


class _Part(NamedTuple):
    """States of all nodes in a part."""

    states: Sequence[str]
    """States of the alphabet, in the order of the columns."""
    probabilities: Float64
    """f64 [N', L, S]: :func:`marginal_states`"""
    best: list[list[str]]
    """N' rows of L: the most probable states."""
    sites: list[int]
    """The pattern of each site."""

    @classmethod
    def of(cls, tree: Tree, patterns: Patterns, arrays: ModelArrays) -> _Part:
        """The states of a part, from its tree, patterns and model."""
        alphabet, probabilities = patterns.alphabet, marginal_states(tree, patterns, arrays)
        best = probabilities.argmax(axis=2)
        best[:, (patterns.codes == alphabet.gap_code).all(axis=0)] = len(alphabet.states)
        letters = np.array([*alphabet.states, UNKNOWN * alphabet.width])
        sites = patterns.site_pattern.tolist()
        return cls(alphabet.states, probabilities, letters[best].tolist(), sites)


def inner_nodes(tree: Tree) -> list[int]:
    """Half-edges at the N' inner nodes that face tip 0, from the node next to it outwards.

    N' is T-2; less by the artificial edges of the tree, whose two nodes are one.
    """
    return [half for half in _nodes(tree) if tree.edge.item(half) < tree.n_branches]


def _nodes(tree: Tree) -> list[int]:
    """Likewise at all T-2 inner nodes, those behind artificial edges too."""
    return [half for wave in tree.waves_from(int(tree.edge[0])) for half in wave.tolist()]


def marginal_states(tree: Tree, patterns: Patterns, arrays: ModelArrays) -> Float64:
    """f64 [N', L, S]: probabilities of sum 1, nodes as :func:`inner_nodes` has them.

    The tree has one length a branch; the patterns are of one part.
    """
    p, frequencies = by_category(arrays, tree.lengths)
    prior = arrays.weights[:, None] * frequencies
    nodes = _nodes(tree)
    is_shown = np.isin(nodes, inner_nodes(tree))
    states = np.empty((int(is_shown.sum()), patterns.n_patterns, arrays.n_states))
    bytes_each = 8 * arrays.n_categories * arrays.n_states * 3 * len(nodes)
    step = max(1, AT_ONCE // bytes_each)
    for start in range(0, patterns.n_patterns, step):
        some = slice(start, start + step)
        messages = _Messages(tree, patterns.alphabet.tip_table[patterns.codes[:, some]], p)
        for n, posterior in enumerate(compress(messages.posteriors(nodes, prior), is_shown)):
            states[n, some] = posterior
    return states


class _Messages:
    """Messages into inner nodes through their half-edges: P · (the likelihoods behind the twin)."""

    def __init__(self, tree: Tree, tips: Float64, p: Float64) -> None:
        """``tips`` f64 [T, L, S]: likelihoods; ``p`` f64 [E, K, S, S]."""
        self._tree, self._tips, self._p = tree, tips, p
        self._into: dict[int, tuple[Float64, Float64]] = {}
        """f64 [L, K, S], of largest element 1 by pattern and category, times exp(f64 [L, K])."""

    def posteriors(self, nodes: list[int], prior: Float64) -> Iterator[Float64]:
        """f64 [L, S] of each node, from tip 0 outwards; ``prior`` f64 [K, S]: w_k π_s."""
        tree = self._tree
        for half in reversed(nodes):
            for sibling in tree.siblings(half):
                self._take(sibling)
        self._take(nodes[0])
        for half in nodes:
            for twin in tree.twin[list(tree.siblings(half))].tolist():
                if twin >= 3 * tree.n_tips:
                    self._take(twin)
        for half in nodes:
            values, logs = self._product([half, *tree.siblings(half)])
            scale = np.exp(logs - logs.max(axis=1, keepdims=True))
            joint = np.einsum("ks,lk,lks->ls", prior, scale, values)
            yield joint / joint.sum(axis=1, keepdims=True)

    def _take(self, half: int) -> None:
        """Compute what comes in, once all that it is made from is there."""
        tree = self._tree
        twin, p = int(tree.twin[half]), self._p[tree.edge[half]]
        if twin < 3 * tree.n_tips:
            values = np.einsum("kij,lj->lki", p, self._tips[twin // 3])
            logs = np.zeros(values.shape[:2])
        else:
            behind, logs = self._product(list(tree.siblings(twin)))
            values = np.matmul(behind.swapaxes(0, 1), p.swapaxes(1, 2)).swapaxes(0, 1)
        self._into[half] = _scaled(values, logs)

    def _product(self, halves: list[int]) -> tuple[Float64, Float64]:
        """Product of the messages through some half-edges of a node."""
        values, logs = self._into[halves[0]]
        for half in halves[1:]:
            more, more_logs = self._into[half]
            values, logs = _scaled(values * more, logs + more_logs)
        return values, logs


def _scaled(values: Float64, logs: Float64) -> tuple[Float64, Float64]:
    """With a largest element of 1; a category that cannot be stays at 0, and counts for nothing."""
    largest = values.max(axis=2)
    is_possible = largest > 0
    divisor = np.where(is_possible, largest, 1.0)
    return values / divisor[:, :, None], np.where(is_possible, logs + np.log(divisor), -np.inf)


@dataclass(frozen=True, eq=False, repr=False)
class AncestralStates(Table):
    """The states of all inner nodes: a row for each node and site."""

    nodes: tuple[str, ...]
    """N' names, from the node that the tree's text is rooted at outwards."""
    tree: PhyloTree
    """The tree with the names of its nodes as labels."""
    lnl: float
    """Log-likelihood of the tree."""
    model: str
    """With its values, as ``model`` takes it."""
    _parts: tuple[_Part, ...]

    @cached_property
    def sequences(self) -> dict[str, str]:
        """The most probable state at every site, by node; parts one after the other."""
        return {name: _sequence(self._parts, n) for n, name in enumerate(self.nodes)}

    @property
    def states(self) -> tuple[str, ...]:
        """S states, in the order of ``probabilities``. Raises: InputError as those."""
        return tuple(self._alike[0].states)

    @property
    def probabilities(self) -> Float64:
        """f64 [N', sites, S]: of each state, sum 1.

        Raises:
            InputError: parts have data of several types.
        """
        each = [part.probabilities[:, part.sites] for part in self._alike]
        return np.concatenate(each, axis=1)

    @property
    def _alike(self) -> tuple[_Part, ...]:
        if len({tuple(part.states) for part in self._parts}) > 1:
            raise InputError("parts have states of several types", hint="to_dataframe() has all")
        return self._parts

    def columns(self) -> dict[str, Sequence[Any]]:
        """``node``, ``part`` where there are several, ``site``, ``state`` and ``p_A`` and so on."""
        parts, several = self._parts, len(self._parts) > 1
        columns: dict[str, list[Any]] = {"node": [], **({"part": []} if several else {})}
        columns |= {"site": [], "state": []}
        states = list(dict.fromkeys(state for part in parts for state in part.states))
        columns |= {f"p_{state}": [] for state in states}
        for n, name in enumerate(self.nodes):
            for number, part in enumerate(parts, 1):
                count, places = len(part.sites), {state: k for k, state in enumerate(part.states)}
                columns["node"] += [name] * count
                columns["site"] += range(1, count + 1)
                columns["state"] += [part.best[n][pattern] for pattern in part.sites]
                if several:
                    columns["part"] += [number] * count
                probabilities = part.probabilities[n, part.sites]
                for state in states:
                    is_there = state in places
                    own = probabilities[:, places[state]] if is_there else np.full(count, np.nan)
                    columns[f"p_{state}"] += own.tolist()
        return dict(columns)

    def _repr_html_(self) -> str:
        return f"<p>{escape(repr(self))}</p>{self.tree._repr_html_()}"

    def __repr__(self) -> str:
        sites = sum(len(part.sites) for part in self._parts)
        return f"AncestralStates({len(self.nodes):,} nodes × {sites:,} sites, 1 tree)"


@taking(AncestralOptions, "tree", "model")
def ancestral(options: AncestralOptions, source: Source, call: Call) -> AncestralStates:
    """Reconstruct the states of a tree's inner nodes, as ``mltree ancestral`` does."""
    fit, problem = _fitted_tree(options, call, source)
    names, newick = _named(fit, problem)
    parts = tuple(_parts(fit, problem))
    return AncestralStates(tuple(names), PhyloTree(newick), fit.lnl, fit.model.text, parts)
