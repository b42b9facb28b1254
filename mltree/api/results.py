"""What the functions give back: values, as JSON, and as a notebook shows them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mltree import __version__
from mltree.api.calls import in_turn
from mltree.api.trees import PhyloTree
from mltree.commands.request import model_text, part_trees
from mltree.commands.results import RESULT_FORMAT
from mltree.commands.supports import Drawn
from mltree.commands.trees import support_facts
from mltree.events import ignore
from mltree.events.search import StartsEnded
from mltree.likelihood.cases import Case
from mltree.placement import Resources
from mltree.problem import Problem
from mltree.runs.run import Found, open_computation
from mltree.tree.newick import write_newick
from mltree.values import plain

__all__ = ["BootstrapResult", "Evaluation", "SearchResult", "table"]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Evaluation:
    """A tree and a model, and how well they explain the data. lnL are natural logs."""

    problem: Problem
    resources: Resources
    found: Found
    timings: Mapping[str, float]
    """Seconds: ``total``, of the call; ``run``, of the search or optimisation; ``device``."""

    command = "evaluate"

    @property
    def lnl(self) -> float:
        """Log-likelihood of the tree, in fp64."""
        return self.found.lnl

    @property
    def taxa(self) -> tuple[str, ...]:
        """T names, sorted."""
        return self.problem.taxa

    @cached_property
    def tree(self) -> PhyloTree:
        """With branch lengths in expected substitutions per site."""
        return PhyloTree(write_newick(self.found.mean_tree, self.problem.taxa))

    @property
    def part_trees(self) -> tuple[PhyloTree, ...]:
        """A tree a part, in the order of their file, where each has lengths of its own."""
        return tuple(map(PhyloTree, part_trees(self.found, self.problem).splitlines()))

    @property
    def model(self) -> str:
        """With its values, as ``model`` takes it; of parts, the lines of a .bestModel file."""
        if self.problem.data is None:
            return self.found.model.text
        return model_text(self.found.model, self.problem)

    @cached_property
    def site_lnl(self) -> NDArray[np.float64]:
        """f64 [sites]: lnL of every site, in the alignment's order; computed when asked for."""
        with in_turn():
            exact = open_computation(self.problem, self.resources, ignore).exact
            case = Case(self.found.model.arrays())
            return self.problem.by_site(exact.site_log_likelihoods(self.found.tree, case))

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values, under the names of PREFIX.mltree.json."""
        return {
            "command": self.command,
            "format": RESULT_FORMAT,
            "version": __version__,
            "lnl": self.lnl,
            "tree": self.tree.newick,
            "model": self.found.model.text,
            "tree_length": float(self.found.mean_tree.lengths.sum()),
            "data": {
                "type": " + ".join(group.alphabet.name for group in self.problem.groups),
                "taxa": len(self.problem.taxa),
                "sites": self.problem.n_sites,
                "patterns": self.problem.n_patterns,
            },
            "seconds": self.found.seconds,
            "timings": dict(self.timings),
        }

    def to_json(self) -> str:
        """The same as JSON."""
        return json.dumps(plain(self.to_dict()), indent=1) + "\n"

    def _rows(self) -> dict[str, str]:
        return {
            "lnL": f"{self.lnl:.4f}",
            "model": self.found.model.text,
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
        """Of the branches of ``tree``, else of the consensus, by the taxa on a side of them."""
        return (self.tree or self.consensus).supports

    def _repr_html_(self) -> str:
        rows = [["replicates", f"{len(self.trees):,}"], ["converged", str(self.converged)]]
        return table(rows) + (self.tree or self.consensus)._repr_html_()


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SearchResult(Evaluation):
    """The best tree that a search has found, its model, and its supports if they were asked for."""

    seed: int
    starts: StartsEnded | None
    """How many starts there were, and how many of them led to this tree."""
    drawn: Drawn
    """The supports, as texts."""
    bootstrap: BootstrapResult | None = None
    """The replicates, where they were asked for."""

    command = "search"

    @cached_property
    def tree(self) -> PhyloTree:
        """With branch lengths in expected substitutions per site, and supports if there are any."""
        return PhyloTree(self.drawn.newick)

    @property
    def supports(self) -> dict[frozenset[str], float]:
        """Of the inner branches, by the taxa on a side of each; empty where none were asked for.

        Of several at a branch (``SH-aLRT/FBP``) the last; the tree's labels have all.
        """
        return self.tree.supports

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values, under the names of PREFIX.mltree.json."""
        values = {
            **super().to_dict(),
            "tree": write_newick(self.found.mean_tree, self.problem.taxa),
            "seed": self.seed,
            "starts": None if self.starts is None else asdict(self.starts),
        }
        if self.drawn.told:
            values["supports"] = support_facts(self.drawn.told)
        return values


def table(rows: list[list[str]], head: list[str] | None = None) -> str:
    """Rows of text as HTML."""

    def row(cells: list[str], kind: str) -> str:
        inner = "".join(f"<{kind}>{escape(cell)}</{kind}>" for cell in cells)
        return f"<tr>{inner}</tr>"

    first = [row(head, "th")] if head else []
    return f"<table>{''.join([*first, *(row(cells, 'td') for cells in rows)])}</table>"
