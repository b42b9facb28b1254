"""Results of the functions: values, as JSON, and as a notebook shows them."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from html import escape
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mltree.models.parameters import free_parameters
from mltree.models.partitioned import Linkage
from mltree.program.cases import Case
from mltree.runs.calls import in_turn
from mltree.runs.engines import Resources, Workload, open_engines
from mltree.runs.inputs import ModelParameters, TreeLike, newick_of, newicks_of
from mltree.runs.logged_run import RESULT_FORMAT, best_model_file, part_trees_file
from mltree.runs.model_choice import Criterion
from mltree.runs.options import one_of
from mltree.runs.problem import Problem
from mltree.runs.trees import TreeResult
from mltree.supports.consensus import distances, split_table, weighted_distances
from mltree.system import __version__
from mltree.system.errors import InputError
from mltree.system.events import StartsEnded, SupportsDrawn, ignore
from mltree.system.files import write_whole
from mltree.system.values import plain
from mltree.tree.clades import Clades, WrittenTree, ascii_drawing, read_clades, read_written
from mltree.tree.newick import nexus_trees, write_newick

DRAWN = 120
"""Taxa up to which a notebook is shown a tree."""

ROWS = 10
"""Rows of a table that a notebook is shown; all are in its data frame."""


class Table(ABC):
    """A result that is a table: its columns, as a data frame of pandas, as a notebook shows it."""

    @abstractmethod
    def columns(self) -> dict[str, Sequence[Any]]:
        """The values of each column, by its name."""

    def to_dataframe(self) -> Any:
        """The table as a ``DataFrame``. Raises: ImportError where pandas is not installed."""
        return data_frame(self.columns())

    def _facts(self) -> dict[str, str]:
        """Lines above the table, by what they tell."""
        return {}

    def _repr_html_(self) -> str:
        columns = self.columns()
        rows = [[_cell(value) for value in row] for row in zip(*columns.values(), strict=True)]
        more = len(rows) - ROWS
        end = f"<p>and {more:,} more: to_dataframe() has all</p>" if more > 0 else ""
        return facts_table(self._facts()) + table(rows[:ROWS], list(columns)) + end


def data_frame(columns: Mapping[str, Any], index: Sequence[str] | None = None) -> Any:
    """A ``DataFrame`` of pandas. Raises: ImportError where pandas is not installed."""
    return library("pandas", "pandas").DataFrame(dict(columns), index=index)


def _cell(value: Any) -> str:
    """A value of a table as a notebook shows it."""
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True, repr=False)
class PhyloTree(Table):
    """A tree as Newick: unrooted, with three subtrees at the top; supports are labels.

    Methods that change a tree return another one.
    """

    newick: str

    @classmethod
    def read(cls, tree: TreeLike) -> PhyloTree:
        """The first tree of a file or text, or an object of another library, as a PhyloTree.

        Raises:
            InputError: it is no tree.
        """
        with in_turn():
            return cls(read_written(newick_of(tree))[0].newick())

    def __str__(self) -> str:
        return self.newick

    def __repr__(self) -> str:
        shown = [f"{len(self.taxa):,} taxa"]
        if self._written.is_measured:
            shown.append(f"length {self.length:.4f}")
        if self.supports:
            shown.append(f"{len(self.supports):,} supports")
        return f"PhyloTree({', '.join(shown)})"

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

    @property
    def is_rooted(self) -> bool:
        """True for a tree with two subtrees at the top."""
        return len(self._written.children[0]) == 2

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the tree: NEXUS where the name ends in .nex or .nexus, else Newick.

        Raises:
            InputError: the file cannot be written.
        """
        is_nexus = os.fspath(path).lower().endswith((".nex", ".nexus"))
        text = nexus_trees([self.newick]) if is_nexus else f"{self.newick}\n"
        write_whole(Path(path), text.encode())

    def root(
        self, outgroup: str | Sequence[str] | None = None, *, midpoint: bool = False
    ) -> PhyloTree:
        """A copy with its root on the branch to the outgroup, or halfway between the farthest tips.

        Supports stay with their branches.

        outgroup  a taxon, or several that stand together in the tree

        Raises:
            InputError: a taxon is not in the tree, the outgroup does not stand together, or there
                are no branch lengths to find a midpoint by.
        """
        if midpoint == (outgroup is not None):
            raise InputError("either outgroup= or midpoint=True, please")
        with in_turn():
            if outgroup is None:
                return PhyloTree(self._written.rooted_midway().newick())
            taxa = [outgroup] if isinstance(outgroup, str) else list(outgroup)
            if not taxa:
                raise InputError("outgroup: no taxon is named")
            tree, stands_together = self._written.rooted_beside(taxa)
            if not stands_together:
                raise InputError("the outgroup does not stand together in the tree")
            return PhyloTree(tree.newick())

    def ladderize(self, *, reverse: bool = False) -> PhyloTree:
        """A copy with the smaller subtrees of every node first; ``reverse``: the larger ones."""
        return PhyloTree(self._written.ladderised(larger_first=reverse).newick())

    def rf(self, other: TreeLike) -> int:
        """Robinson-Foulds distance from another tree of the same taxa."""
        return int(rf(self, other))

    def svg(self, *, layout: str = "rectangular") -> str:
        """A drawing, as ``mltree draw`` makes it. Raises: InputError for an unknown layout."""
        from mltree.report.drawing import LAYOUTS, draw
        from mltree.report.scene import svg
        from mltree.report.style import Style

        one_of("layout", layout, LAYOUTS)
        return svg(draw(self._written, Style(layout=layout)))

    def ascii(self) -> str:
        """A drawing of lines and letters, for a terminal."""
        return ascii_drawing(self.newick)

    def columns(self) -> dict[str, Sequence[Any]]:
        """A row for every branch: ``taxa`` below it with commas between, their number, and more.

        ``length``, NaN where there is none; ``label``, as it is written; ``support``, the label's
        number, NaN without.
        """
        tree = self._written
        tips = np.array(tree.tips)
        below = [tips[(tips >= node) & (tips < _end(tree, node))] for node in range(tree.n_nodes)]
        inner = [bool(children) for children in tree.children[1:]]
        return {
            "taxa": [",".join(tree.labels[tip] for tip in inside) for inside in below[1:]],
            "size": [len(inside) for inside in below[1:]],
            "length": tree.lengths[1:].tolist(),
            "label": [
                label if is_inner else ""
                for label, is_inner in zip(tree.labels[1:], inner, strict=True)
            ],
            "support": tree.supports[1:].tolist(),
        }

    def to_ete3(self) -> Any:
        """As ete3's ``Tree``, with supports where it has them."""
        return library("ete3", "ete3").Tree(self.newick, format=0, quoted_node_names=True)

    def to_biopython(self) -> Any:
        """The tree as Biopython's ``Tree``, with its supports."""
        return library("Bio.Phylo", "biopython").read(StringIO(self.newick), "newick")

    def to_dendropy(self) -> Any:
        """The tree as dendropy's ``Tree``, with its supports."""
        dendropy = library("dendropy", "dendropy")
        return dendropy.Tree.get(data=self.newick, schema="newick", preserve_underscores=True)

    def to_cogent3(self) -> Any:
        """The tree as cogent3's ``PhyloNode``."""
        return library("cogent3", "cogent3").make_tree(self.newick)

    def to_skbio(self) -> Any:
        """The tree as scikit-bio's ``TreeNode``, with its supports."""
        node = library("skbio", "scikit-bio").TreeNode
        return node.read(StringIO(self.newick), format="newick", convert_underscores=False)

    def _repr_html_(self) -> str:
        return f"<p>{escape(repr(self))}</p>" + (self.svg() if len(self.taxa) <= DRAWN else "")


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

    @property
    def parameters(self) -> ModelParameters:
        """The fitted model's numbers, which every ``model=`` takes.

        Raises:
            InputError: the parts have a model each.
        """
        if len(self.part_parameters) > 1:
            raise InputError("there is a model a part", hint="part_parameters has them by name")
        (parameters,) = self.part_parameters.values()
        return parameters

    @cached_property
    def part_parameters(self) -> dict[str, ModelParameters]:
        """The models of the parts by their names; ``noname`` where there are no parts."""
        model = self.result.model
        pairs = zip(model.names, model.models, strict=True)
        return {name: ModelParameters.of(own) for name, own in pairs}

    def to_dataframe(self) -> Any:
        """A row of what is compared between analyses, a ``DataFrame``.

        ``lnl``, ``parameters`` (free ones, branch lengths among them), ``aic``, ``aicc``, ``bic``,
        ``tree_length``, ``taxa``, ``sites``, ``patterns``, ``seconds``; its index is the model.

        Raises: ImportError where pandas is not installed.
        """
        values = {name: [value] for name, value in self._compared().items()}
        return data_frame(values, index=[self._model_name])

    @property
    def _model_name(self) -> str:
        """The models of the parts without their values."""
        return ", ".join(own.name for own in self.part_parameters.values())

    def _compared(self) -> dict[str, Any]:
        model, tree = self.result.model, self.result.tree
        lengths = tree.n_branches * (model.n_parts if tree.lengths.ndim > 1 else 1)
        scalers = (model.linkage == Linkage.SCALED) * (model.n_parts - 1)
        free = sum(map(free_parameters, model.models)) + lengths + scalers
        sites = self.problem.n_sites
        criteria = {str(one): one.score(self.lnl, free, sites) for one in Criterion}
        return {
            "lnl": self.lnl,
            "parameters": free,
            **{name: criteria[name] for name in ("aic", "aicc", "bic")},
            "tree_length": float(self.result.mean_tree.lengths.sum()),
            "taxa": len(self.taxa),
            "sites": sites,
            "patterns": self.problem.n_patterns,
            "seconds": self.timings["total"],
        }

    def _rows(self) -> dict[str, str]:
        return {
            "lnL": f"{self.lnl:.4f}",
            "model": self.result.model.text,
            "data": f"{len(self.taxa):,} taxa × {self.problem.n_sites:,} sites",
            "trees": self._trees(),
            "time": f"{self.timings['total']:.2f} s",
        }

    def _trees(self) -> str:
        """How many trees the result holds."""
        parts = len(self.part_trees)
        return "1" if not parts else f"1, and {parts} of parts"

    def __str__(self) -> str:
        return "\n".join(f"{name}: {value}" for name, value in self._rows().items())

    def __repr__(self) -> str:
        rows = {**self._rows(), "model": self._model_name}
        shown = (f"{name}={value}" for name, value in rows.items())
        return f"{type(self).__name__}({', '.join(shown)})"

    def _repr_html_(self) -> str:
        return facts_table(self._rows()) + self.tree._repr_html_()


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class BootstrapResult:
    """Trees of bootstrap replicates, and what they say together."""

    trees: tuple[PhyloTree, ...]
    """In the order of their numbers."""
    consensus: PhyloTree
    """By majority, with the percentages of the trees that have a branch; of the ultrafast bootstrap
    the extended one, with branch lengths."""
    tree: PhyloTree | None
    """The tree that was given, with its supports as labels."""
    converged: bool | None
    """By autoMRE, or of the ultrafast bootstrap by its supports; None where it was not asked."""

    def __len__(self) -> int:
        return len(self.trees)

    def __repr__(self) -> str:
        taxa = len(self.consensus.taxa)
        return f"BootstrapResult({len(self):,} trees of {taxa:,} taxa, converged={self.converged})"

    @property
    def supports(self) -> dict[frozenset[str], float]:
        """Supports of ``tree``, else of the consensus, by the taxa on a side of each branch."""
        return (self.tree or self.consensus).supports

    def _repr_html_(self) -> str:
        shown = "the tree with its supports" if self.tree else "the consensus"
        facts = {"trees": f"{len(self):,} replicates", "converged": str(self.converged)}
        return facts_table({**facts, "below": shown}) + (self.tree or self.consensus)._repr_html_()


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

    def _trees(self) -> str:
        starts = self.starts.starts if self.starts is not None else 1
        text = f"the best of {starts:,} starts" if starts > 1 else super()._trees()
        replicates = len(self.bootstrap) if self.bootstrap is not None else 0
        return f"{text}, and {replicates:,} replicates" if replicates else text

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


def facts_table(facts: Mapping[str, str]) -> str:
    """Facts as HTML, a line each."""
    return table([[name, text] for name, text in facts.items()]) if facts else ""


def table(rows: list[list[str]], head: list[str] | None = None) -> str:
    """Rows of text as HTML."""

    def row(cells: list[str], kind: str) -> str:
        inner = "".join(f"<{kind}>{escape(cell)}</{kind}>" for cell in cells)
        return f"<tr>{inner}</tr>"

    first = [row(head, "th")] if head else []
    return f"<table>{''.join([*first, *(row(cells, 'td') for cells in rows)])}</table>"
