"""Results of the functions: values, as JSON, and as a notebook shows them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from html import escape
from importlib import import_module
from io import StringIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mltree.program.cases import Case
from mltree.runs.calls import in_turn
from mltree.runs.engines import Resources, Workload, open_engines
from mltree.runs.inputs import TreeLike, newick_of, newicks_of
from mltree.runs.logged_run import RESULT_FORMAT, best_model_file, part_trees_file
from mltree.runs.options import one_of
from mltree.runs.problem import Problem
from mltree.runs.trees import TreeResult
from mltree.supports.consensus import distances, split_table, weighted_distances
from mltree.system import __version__
from mltree.system.errors import InputError
from mltree.system.events import StartsEnded, SupportsDrawn, ignore
from mltree.system.values import plain
from mltree.tree.clades import Clades, WrittenTree, read_clades, read_written
from mltree.tree.newick import write_newick

DRAWN = 120
"""Taxa up to which a notebook is shown a tree."""


@dataclass(frozen=True)
class PhyloTree:
    """A tree as Newick: unrooted, with three subtrees at the top; supports are labels."""

    newick: str

    def __str__(self) -> str:
        return self.newick

    @cached_property
    def _written(self) -> WrittenTree:
        (tree, *_) = read_written(self.newick)
        return tree

    @property
    def taxa(self) -> tuple[str, ...]:
        """Names of the tips, as they are written."""
        return tuple(self._written.labels[tip] for tip in self._written.tips)

    @property
    def length(self) -> float:
        """Sum of all branch lengths, expected substitutions per site."""
        return float(np.nansum(self._written.lengths[1:]))

    @cached_property
    def supports(self) -> dict[frozenset[str], float]:
        """By the taxa on the side of a branch that is written inside of it: its label's number."""
        tree, supports = self._written, {}
        tips = {tip: n for n, tip in enumerate(tree.tips)}
        for node in np.flatnonzero(np.isfinite(tree.supports)).tolist():
            inside = (at for at in tips if node <= at < _end(tree, node))
            if node:
                supports[frozenset(tree.labels[tip] for tip in inside)] = float(tree.supports[node])
        return supports

    def rf(self, other: TreeLike) -> int:
        """Robinson-Foulds distance from another tree of the same taxa."""
        return int(rf(self, other))

    def svg(self, *, layout: str = "rectangular") -> str:
        """A drawing, as ``mltree draw`` makes it. Raises: InputError for an unknown layout."""
        from mltree.report.drawing import Style, draw, svg

        one_of("layout", layout, ("rectangular", "circular"))
        style = Style(layout="circular" if layout == "circular" else "rectangular")
        return svg(draw(self._written, style))

    def to_ete3(self) -> Any:
        """As ete3's ``Tree``, with supports where it has them."""
        return library("ete3", "ete3").Tree(self.newick, format=0, quoted_node_names=True)

    def to_biopython(self) -> Any:
        """As Biopython's ``Tree``."""
        return library("Bio.Phylo", "biopython").read(StringIO(self.newick), "newick")

    def to_dendropy(self) -> Any:
        """As dendropy's ``Tree``."""
        dendropy = library("dendropy", "dendropy")
        return dendropy.Tree.get(data=self.newick, schema="newick", preserve_underscores=True)

    def to_cogent3(self) -> Any:
        """As cogent3's ``PhyloNode``."""
        return library("cogent3", "cogent3").make_tree(self.newick)

    def to_skbio(self) -> Any:
        """As scikit-bio's ``TreeNode``."""
        node = library("skbio", "scikit-bio").TreeNode
        return node.read(StringIO(self.newick), format="newick", convert_underscores=False)

    def _repr_html_(self) -> str:
        tree = self._written
        size = f"<p>{len(tree.tips):,} taxa, length {self.length:.6f}</p>"
        return size + (self.svg() if len(tree.tips) <= DRAWN else "")


def _end(tree: WrittenTree, node: int) -> int:
    """The number after the last node of a subtree."""
    while tree.children[node]:
        node = tree.children[node][-1]
    return node + 1


def library(module: str, package: str) -> Any:
    """A module of an optional package. Raises: ImportError, with the command that installs it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(f"{package} is not installed: pip install {package}") from error


# Distances between trees.


def rf(
    trees: TreeLike | Iterable[TreeLike],
    other: TreeLike | None = None,
    *,
    weighted: bool = False,
) -> float | NDArray[Any]:
    """Robinson-Foulds distance of two trees; a matrix [n, n] of several, where ``other`` is None.

    weighted  by branch lengths (the branch score of Robinson and Foulds 1979)

    Raises:
        InputError: a tree is broken, or of other taxa.
    """
    with in_turn():
        first = read_clades(newicks_of(trees))
        if other is not None:
            first = first.part(0, 1)
            second = read_clades(newick_of(other), like=first, origin="the first tree").part(0, 1)
            first = Clades.joined(first.taxa, [first, second])
        table = split_table(first, with_tips=weighted)
        if weighted and np.isnan(table.lengths).any():
            raise InputError("weighted=True: a tree has a branch without a length")
        rows = first.n_trees - 1
        upper = weighted_distances(table, rows) if weighted else distances(table, rows)
        matrix = np.zeros((first.n_trees, first.n_trees), float if weighted else int)
        for number, row in enumerate(upper):
            matrix[number, number + 1 :] = matrix[number + 1 :, number] = row
        if other is None:
            return matrix
        return float(matrix[0, 1]) if weighted else int(matrix[0, 1])


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Evaluation:
    """A tree and a model, and how well they explain the data. lnL are natural logs."""

    problem: Problem
    resources: Resources
    result: TreeResult
    timings: Mapping[str, float]
    """Seconds: ``total``, of the call; ``run``, of the search or optimisation; ``device``."""

    command = "evaluate"

    @property
    def lnl(self) -> float:
        """Log-likelihood of the tree, in fp64."""
        return self.result.lnl

    @property
    def taxa(self) -> tuple[str, ...]:
        """T names, sorted."""
        return self.problem.taxa

    @cached_property
    def tree(self) -> PhyloTree:
        """With branch lengths in expected substitutions per site."""
        return PhyloTree(write_newick(self.result.mean_tree, self.problem.taxa))

    @property
    def part_trees(self) -> tuple[PhyloTree, ...]:
        """A tree a part, in the order of their file, where each has lengths of its own."""
        return tuple(map(PhyloTree, part_trees_file(self.result, self.problem).splitlines()))

    @property
    def model(self) -> str:
        """With its values, as ``model`` takes it; of parts, the lines of a .bestModel file."""
        if self.problem.data is None:
            return self.result.model.text
        return best_model_file(self.result.model, self.problem)

    @cached_property
    def site_lnl(self) -> NDArray[np.float64]:
        """f64 [sites]: lnL of every site, in the alignment's order; computed when asked for."""
        with in_turn():
            exact = open_engines(self.resources, Workload.of(self.problem), ignore).exact
            case = Case(self.result.model.arrays())
            return self.problem.by_site(exact.site_log_likelihoods(self.result.tree, case))

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values, under the names of PREFIX.mltree.json."""
        return {
            "command": self.command,
            "format": RESULT_FORMAT,
            "version": __version__,
            "lnl": self.lnl,
            "tree": self.tree.newick,
            "model": self.result.model.text,
            "tree_length": float(self.result.mean_tree.lengths.sum()),
            "data": {
                "type": " + ".join(group.alphabet.name for group in self.problem.groups),
                "taxa": len(self.problem.taxa),
                "sites": self.problem.n_sites,
                "patterns": self.problem.n_patterns,
            },
            "seconds": self.result.seconds,
            "timings": dict(self.timings),
        }

    def to_json(self) -> str:
        """The same as JSON."""
        return json.dumps(plain(self.to_dict()), indent=1) + "\n"

    def _rows(self) -> dict[str, str]:
        return {
            "lnL": f"{self.lnl:.4f}",
            "model": self.result.model.text,
            "data": f"{len(self.taxa):,} taxa × {self.problem.n_sites:,} sites",
            "time": f"{self.timings['total']:.2f} s",
        }

    def __str__(self) -> str:
        return "\n".join(f"{name}: {value}" for name, value in self._rows().items())

    def __repr__(self) -> str:
        shown = (f"{name}={value}" for name, value in self._rows().items())
        return f"{type(self).__name__}({', '.join(shown)})"

    def _repr_html_(self) -> str:
        return table([[name, value] for name, value in self._rows().items()]) + (
            self.tree._repr_html_()
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class BootstrapResult:
    """Trees of bootstrap replicates, and what they say together."""

    trees: tuple[PhyloTree, ...] = field(repr=False)
    """In the order of their numbers."""
    consensus: PhyloTree = field(repr=False)
    """By majority, with the percentages of the trees that have a branch."""
    tree: PhyloTree | None
    """The tree that was given, with its supports as labels."""
    converged: bool | None
    """By autoMRE; None where it was not asked."""

    @property
    def supports(self) -> dict[frozenset[str], float]:
        """Supports of ``tree``, else of the consensus, by the taxa on a side of each branch."""
        return (self.tree or self.consensus).supports

    def _repr_html_(self) -> str:
        rows = [["replicates", f"{len(self.trees):,}"], ["converged", str(self.converged)]]
        return table(rows) + (self.tree or self.consensus)._repr_html_()


@dataclass
class SupportResult:
    """Supports of the best tree."""

    newick: str
    """The best tree with every label but those of a second metric."""
    texts: dict[str, str] = field(default_factory=dict)
    """By kind of file."""
    events: list[SupportsDrawn] = field(default_factory=list)

    def add(self, texts: Mapping[str, str], events: Sequence[SupportsDrawn]) -> None:
        """More supports, the first of them on a tree that has the labels so far too."""
        self.texts |= texts
        self.newick = events[0].newick
        self.events += events


def support_facts(events: Sequence[SupportsDrawn]) -> dict[str, Any]:
    """Supports as JSON has them, by metric or test."""
    return {event.metric.lower(): asdict(event) for event in events}


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SearchResult(Evaluation):
    """The best tree that a search has found, its model, and its supports if they were asked for."""

    seed: int
    starts: StartsEnded | None
    """How many starts there were, and how many of them led to this tree."""
    labelled: SupportResult
    """The supports, as texts."""
    bootstrap: BootstrapResult | None = None
    """The replicates, where they were asked for."""

    command = "search"

    @cached_property
    def tree(self) -> PhyloTree:
        """With branch lengths in expected substitutions per site, and supports if there are any."""
        return PhyloTree(self.labelled.newick)

    @property
    def supports(self) -> dict[frozenset[str], float]:
        """Supports of the inner branches by the taxa on a side of each; empty where there are none.

        Of several at a branch (``SH-aLRT/FBP``) the last; the tree's labels have all.
        """
        return self.tree.supports

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values, under the names of PREFIX.mltree.json."""
        values = {
            **super().to_dict(),
            "tree": write_newick(self.result.mean_tree, self.problem.taxa),
            "seed": self.seed,
            "starts": None if self.starts is None else asdict(self.starts),
        }
        if self.labelled.events:
            values["supports"] = support_facts(self.labelled.events)
        return values


def table(rows: list[list[str]], head: list[str] | None = None) -> str:
    """Rows of text as HTML."""

    def row(cells: list[str], kind: str) -> str:
        inner = "".join(f"<{kind}>{escape(cell)}</{kind}>" for cell in cells)
        return f"<tr>{inner}</tr>"

    first = [row(head, "th")] if head else []
    return f"<table>{''.join([*first, *(row(cells, 'td') for cells in rows)])}</table>"
