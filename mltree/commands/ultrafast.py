"""The ultrafast bootstrap that follows a search: its files, and the labels of the best tree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from mltree.arrays import Bool
from mltree.commands.trees import support_texts
from mltree.events import Emit
from mltree.events.trees import BootstrapFinished, SupportsDrawn
from mltree.likelihood.cases import Case
from mltree.model.partitioned import PartitionModel
from mltree.runs.run import Found, TreeSearch
from mltree.runs.ultrafast import ultrafast
from mltree.supports.consensus import Consensus, consensus
from mltree.supports.table import SplitTable, members, split_table
from mltree.tree.clades import nested, write_clades
from mltree.tree.newick import read_newick, write_newick
from mltree.tree.newick_clades import read_clades, read_labelled
from mltree.tree.splits import splits
from mltree.values import Value

__all__ = ["ULTRAFAST_KINDS", "WantedUltrafast", "ultrafast_texts"]

TREES, CONSENSUS, SPLITS = "ufboot", "contree", "splits.nex"
ULTRAFAST_KINDS = (TREES, CONSENSUS, SPLITS)
"""Kinds of files, IQ-TREE's."""


class WantedUltrafast(Value):
    """What is asked of an ultrafast bootstrap."""

    replicates: int
    climbs: bool
    """Whether every replicate improves its tree by interchanges (IQ-TREE's --bnni)."""


def ultrafast_texts(
    wanted: WantedUltrafast, ready: TreeSearch, found: Found, best: str, seed: int, emit: Emit
) -> tuple[dict[str, str], list[SupportsDrawn]]:
    """Compute it: the files by kind, and the supports.

    best  the best tree in Newick, with the labels that the supports go behind
    """
    assert found.search is not None
    climbing = ready.settings.unperturbed().nni_only() if wanted.climbs else None
    outcome = ultrafast(ready, found.search, wanted.replicates, seed, climbing, emit)
    taxa = ready.problem.taxa
    different = {id(tree): tree for tree in outcome.trees}
    lines = {key: write_newick(tree, taxa) + "\n" for key, tree in different.items()}
    newicks = "".join(lines[id(tree)] for tree in outcome.trees)
    clades, before = read_labelled(best)
    replicates = read_clades(newicks, clades, "the best tree")
    texts, told = support_texts(clades, replicates, {"support": "ufboot"}, emit, before)
    emit(BootstrapFinished(wanted.replicates, outcome.converged, (), outcome.seconds))
    table = split_table(replicates)
    likely = _likely_consensus(table, ready, found.model)
    return texts | {TREES: newicks, CONSENSUS: likely, SPLITS: _nexus(table)}, told


def _likely_consensus(table: SplitTable, ready: TreeSearch, model: PartitionModel) -> str:
    """The extended majority consensus, with supports and branch lengths as likely as can be."""
    taxa = ready.problem.taxa
    chosen = consensus(table, Consensus.EXTENDED)
    shape, _ = nested(table.taxa, members(table.bits[chosen], len(taxa)))
    tree, _ = read_newick(write_clades(shape, [""] * len(chosen)), taxa)
    tree.lengths = model.spread(tree.lengths)
    epsilon = ready.settings.final_smooth_epsilon
    ready.computation.exact.smooth([tree], [Case(model.arrays())], epsilon)
    lone = tree.with_lengths(model.mean_lengths(tree.lengths))
    shown, inner = _by_split(table, chosen, taxa), lone.inner_edges
    sides = members(splits(lone)[inner], len(taxa))
    labels = {edge: shown[side.tobytes()] for edge, side in zip(inner.tolist(), sides, strict=True)}
    return write_newick(lone, taxa, labels=labels) + "\n"


def _by_split(table: SplitTable, chosen: np.ndarray, taxa: Sequence[str]) -> Mapping[bytes, str]:
    """Supports in per cent by the side without the first taxon, a value a taxon."""
    number = {name: column for column, name in enumerate(table.taxa)}
    inside: Bool = members(table.bits[chosen], len(taxa))[:, [number[name] for name in taxa]]
    inside ^= inside[:, :1]
    shares = 100.0 * table.counts[chosen] / table.n_trees
    return {side.tobytes(): f"{share:.0f}" for side, share in zip(inside, shares, strict=True)}


def _nexus(table: SplitTable) -> str:
    """All splits with their shares in per cent, for SplitsTree, as IQ-TREE writes them."""
    n_tips = len(table.taxa)
    order = np.argsort(-table.counts, kind="stable")
    tips = np.eye(n_tips, dtype=np.bool_)[1:]
    rows = np.concatenate([tips, members(table.bits[order], n_tips)])
    shares = np.concatenate([np.full(n_tips - 1, 1.0), table.counts[order] / table.n_trees])
    names = "\n".join(
        "[{}] '{}'".format(n, name.replace("'", "''")) for n, name in enumerate(table.taxa, 1)
    )
    lines = "\n".join(
        f"\t{100 * share:.4g}\t {' '.join(str(n + 1) for n in np.flatnonzero(row))},"
        for row, share in zip(rows, shares.tolist(), strict=True)
    )
    return (
        f"#nexus\n\nBEGIN Taxa;\nDIMENSIONS ntax={n_tips};\nTAXLABELS\n{names}\n;\nEND; [Taxa]\n\n"
        f"BEGIN Splits;\nDIMENSIONS ntax={n_tips} nsplits={len(rows)};\n"
        "FORMAT labels=no weights=yes confidences=no intervals=no;\n"
        f"MATRIX\n{lines}\n;\nEND; [Splits]\n"
    )
