"""``mltree concordance``: genes and sites against the branches of a tree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from mltree import __version__
from mltree.alignment.formats import read_alignment
from mltree.alignment.patterns import Patterns, compress
from mltree.alignment.source import expect_file
from mltree.arrays import Float64, Index
from mltree.commands.results import finish
from mltree.errors import InputError
from mltree.events.run import RunStarted
from mltree.events.trees import SupportsDrawn, TreesLoaded
from mltree.outputs import Outputs
from mltree.report.progress import Reporter
from mltree.supports.concordance import (
    Branches,
    GeneConcordance,
    SiteConcordance,
    gene_concordance,
    site_concordance,
)
from mltree.supports.table import members, sides, unit_bits
from mltree.tree.clades import Clades, write_clades
from mltree.tree.newick import listed
from mltree.tree.newick_clades import read_gene_trees, read_labelled

__all__ = ["ConcordanceRequest", "run_concordance"]

TREE = "concordanceTree"
TABLE = "concordance"
"""Kinds of files."""


@dataclass(frozen=True, kw_only=True)
class ConcordanceRequest:
    """``mltree concordance``."""

    tree: str
    gene_trees: str | None
    alignment: str | None
    datatype: str | None
    quartets: int
    """Of each branch."""
    seed: int
    prefix: str | None
    redo: bool
    command: str


@dataclass(frozen=True)
class _Factors:
    """What was found of each branch."""

    branches: Branches
    genes: GeneConcordance | None
    sites: SiteConcordance | None


def run_concordance(request: ConcordanceRequest, reporter: Reporter) -> None:
    """Compute the factors, show their means, write the files.

    Raises:
        InputError: neither genes nor sites are given, or they are of other taxa.
    """
    if request.gene_trees is None and request.alignment is None:
        raise InputError("there is nothing to compare the tree with: give --gene-trees, "
                         "--alignment or both")  # fmt: skip
    if request.prefix is None:
        expect_file(request.tree)
    outputs = Outputs.of(request.prefix, request.tree)
    kinds = [TREE, TABLE, "concordance.json"]
    inputs = [request.tree, request.gene_trees or "", request.alignment or ""]
    with outputs.taken(kinds, request.redo, inputs):
        reporter(RunStarted(__version__, request.command, request.seed))
        tree, before = read_labelled(request.tree)
        found = _factors(request, Branches.of(tree), reporter)
        labels = np.array(before, dtype=object)
        shown = np.array(_labels(found), dtype=object)[found.branches.of_clade]
        labels[tree.is_inner] = [
            "/".join(filter(None, pair)) for pair in zip(labels[tree.is_inner], shown, strict=True)
        ]
        newick = write_clades(tree, labels)
        events = list(_events(found, newick))
        for event in events:
            reporter(event)
        texts = {TREE: newick + "\n", TABLE: "".join(_lines(found))}
        means = {event.metric: event.mean for event in events}
        values = {
            "seed": request.seed, "branches": found.branches.count, "means": means, "tree": newick,
        }  # fmt: skip
        finish("concordance", request.command, outputs, texts, values, inputs, reporter)


def _factors(request: ConcordanceRequest, branches: Branches, reporter: Reporter) -> _Factors:
    trees, patterns = [], None  # both are read before anything is computed
    if request.gene_trees is not None:
        trees = list(_genes(request.gene_trees, branches.tree))
        most = max(gene.n_tips for gene in trees)
        reporter(TreesLoaded(request.gene_trees, len(trees), most))
    if request.alignment is not None:
        patterns = _patterns(request.alignment, request.datatype, branches.tree)
    genes = gene_concordance(branches, trees) if trees else None
    if patterns is None:
        return _Factors(branches, genes, None)
    sites = site_concordance(branches, patterns, request.quartets, request.seed)
    return _Factors(branches, genes, sites)


def _genes(file: str, tree: Clades) -> Iterator[Clades]:
    """The gene trees of a file.

    Raises:
        InputError: there is none, or one has a taxon that the tree has not.
    """
    number = 0
    for number, gene in enumerate(read_gene_trees(file), 1):
        unknown = sorted(set(gene.taxa) - set(tree.taxa))
        if unknown:
            problem = f"{listed(unknown)} in gene tree {number} but not in the tree"
            raise InputError(problem, file=file, taxon=unknown[0])
        yield gene
    if not number:
        raise InputError("no tree in it", file=file, hint="a Newick tree ends with ';'")


def _patterns(file: str, datatype: str | None, tree: Clades) -> Patterns:
    patterns = compress(read_alignment(file, datatype))
    lost = sorted(set(tree.taxa) - set(patterns.taxa))
    if lost:
        raise InputError(f"{listed(lost)} not in the alignment", file=file, taxon=lost[0])
    return patterns


def _labels(found: _Factors) -> list[str]:
    """GCF/sCF of each branch in per cent; nothing where no gene can tell."""
    columns = []
    if found.genes is not None:
        share = _share(found.genes.concordant, found.genes.decisive)
        columns.append(["" if np.isnan(x) else f"{100 * x:.3g}" for x in share])
    if found.sites is not None:
        columns.append([f"{100 * x:.3g}" for x in found.sites.shares[:, 0]])
    return ["/".join(filter(None, row)) for row in zip(*columns, strict=True)]


def _share(count: Index, of: Index) -> Float64:
    """Shares f64 [B]; NaN where they are of nothing."""
    return np.where(of > 0, count / np.maximum(of, 1), np.nan)


def _events(found: _Factors, newick: str) -> Iterator[SupportsDrawn]:
    """The means over the branches that anything tells about."""
    count = found.branches.count
    if found.genes is not None:
        share = _share(found.genes.concordant, found.genes.decisive)
        told = share[~np.isnan(share)]
        yield SupportsDrawn("gCF", count, float(told.mean()) if told.size else None, newick)
    if found.sites is not None:
        mean = float(found.sites.shares[:, 0].mean()) if count else None
        yield SupportsDrawn("sCF", count, mean, newick)


def _lines(found: _Factors) -> Iterator[str]:
    """The table: counts and shares of everything, a line a branch."""
    columns: dict[str, list[str]] = {}
    if found.genes is not None:
        genes = found.genes
        for name, count in (
            ("gCF", genes.concordant),
            ("gDF1", genes.first),
            ("gDF2", genes.second),
            ("gDFP", genes.polyphyletic),
        ):
            share = _share(count, genes.decisive)
            columns[name] = ["" if np.isnan(x) else f"{x:.6f}" for x in share]
            columns[f"{name}_N"] = [str(n) for n in count]
        columns["gN"] = [str(n) for n in genes.decisive]
    if found.sites is not None:
        sites = found.sites
        for k, name in enumerate(("sCF", "sDF1", "sDF2")):
            columns[name] = [f"{x:.6f}" for x in sites.shares[:, k]]
            columns[f"{name}_N"] = [f"{n:.3f}" for n in sites.sites[:, k]]
        columns["sCF_error"] = [f"{x:.6f}" for x in sites.errors]
        columns["sN"] = [f"{n:.3f}" for n in sites.sites.sum(axis=1)]
    columns["taxa"] = _names(found.branches)
    yield "\t".join(columns) + "\n"
    for row in zip(*columns.values(), strict=True):
        yield "\t".join(row) + "\n"


def _names(branches: Branches) -> list[str]:
    """The taxa on the smaller side of each branch."""
    tree = branches.tree
    inner = tree.only(tree.is_inner)
    _, first = np.unique(branches.of_clade, return_index=True)
    inside = members(sides(inner, unit_bits(tree.n_tips))[first], tree.n_tips)
    inside ^= (2 * inside.sum(axis=1) > tree.n_tips)[:, None]
    return [",".join(tree.taxa[tip] for tip in np.flatnonzero(side)) for side in inside]
