"""Trees against trees: ``mltree support``, ``consensus``, ``rf``, ``bootstop``, ``concordance``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mltree.analyses.options import (
    BootstopOptions,
    ConcordanceOptions,
    ConsensusOptions,
    DistanceOptions,
    SupportOptions,
    TreesOptions,
)
from mltree.data.alignments import read_alignment
from mltree.data.patterns import Patterns, compress
from mltree.data.source import expect_file
from mltree.runs.request import command_result, finish
from mltree.runs.workspace import Workspace
from mltree.supports.bootstrap import STEP, bootstop, occurrences, transfer_expectations
from mltree.supports.concordance import (
    Branches,
    GeneConcordance,
    SiteConcordance,
    gene_concordance,
    site_concordance,
)
from mltree.supports.consensus import (
    Consensus,
    SplitTable,
    consensus,
    distances,
    largest,
    members,
    sides,
    split_table,
    topologies,
    unit_bits,
    weighted_distances,
)
from mltree.system.arrays import Float64, Index
from mltree.system.errors import InputError
from mltree.system.events import (
    ConsensusBuilt,
    DistancesMeasured,
    Emit,
    Notice,
    RunStarted,
    SupportsDrawn,
    TreesLoaded,
)
from mltree.system.version import __version__
from mltree.tree.clades import (
    Clades,
    nested,
    read_clades,
    read_gene_trees,
    read_labelled,
    write_clades,
)
from mltree.tree.newick import listed

if TYPE_CHECKING:
    from mltree.report.progress import Reporter


# ``mltree support``, ``consensus``, ``rf`` and ``bootstop``: trees against trees.

METRICS = ("fbp", "tbe")

NAMES = {"fbp": "FBP", "tbe": "TBE", "ufboot": "UFBoot"}
"""Names of supports; an ultrafast bootstrap is counted as FBP is."""

SUPPORT_KINDS = ("support", *(f"support{metric.upper()}" for metric in METRICS))
"""Kinds of files with a tree and its supports, of one metric or of several."""

CONSENSUS_FILES = {
    Consensus.STRICT: "consensusTreeSTRICT",
    Consensus.MAJORITY: "consensusTreeMR",
    Consensus.EXTENDED: "consensusTreeMRE",
}
"""Kinds of files, with RAxML-NG's endings."""

DISTANCES = "rfDistances"


@contextmanager
def _claimed(options: TreesOptions, beside: str, kinds: Sequence[str]) -> Iterator[Workspace]:
    """Claim the output files against other commands.

    beside  the file that results lie beside where no prefix is given
    """
    if options.prefix is None:
        expect_file(beside)
    workspace = Workspace.of(options.prefix, beside)
    with workspace.taken(kinds, options.redo, options.inputs):
        yield workspace


def run_support(options: SupportOptions, reporter: Reporter) -> None:
    """The supports of a tree's branches by other trees, drawn on it."""
    kinds, tree = support_kinds(options.metric), options.tree
    with _claimed(options, tree, [*kinds, "support.json"]) as workspace:
        reporter(RunStarted(__version__, options.line))
        target = first_tree(tree, reporter)
        replicates = read_clades(options.trees, like=target, origin=tree)
        reporter(_loaded(options.trees, replicates))
        texts, events = support_texts(target, replicates, kinds, reporter)
        facts = support_facts(events)
        values = {"trees": replicates.n_trees, "taxa": replicates.n_tips, "supports": facts}
        spent = [kind for kind in SUPPORT_KINDS if kind not in texts] if options.redo else []
        inputs = [options.trees, tree]
        finish("support", options.line, workspace, texts, values, inputs, reporter, spent)


def support_kinds(metrics: str) -> dict[str, str]:
    """The metric of each kind of file that is asked for.

    Raises:
        InputError: there is no such metric.
    """
    chosen = _choice(metrics, METRICS, "--metric")
    return {f"support{m.upper()}" if len(chosen) > 1 else "support": m for m in chosen}


def support_texts(
    tree: Clades,
    replicates: Clades,
    kinds: Mapping[str, str],
    emit: Emit,
    before: Sequence[str] = (),
) -> tuple[dict[str, str], list[SupportsDrawn]]:
    """The first of the trees with its supports: the files of :func:`support_kinds`, and facts.

    before  of every clade the label that its support goes behind; none where empty
    """
    events = [_supports(tree, replicates, metric, before) for metric in kinds.values()]
    for event in events:
        emit(event)
    return {kind: event.newick + "\n" for kind, event in zip(kinds, events, strict=True)}, events


def support_facts(events: Sequence[SupportsDrawn]) -> dict[str, Any]:
    """Supports as JSON has them, by metric or test."""
    return {event.metric.lower(): asdict(event) for event in events}


def _supports(
    tree: Clades, replicates: Clades, metric: str, before: Sequence[str]
) -> SupportsDrawn:
    if metric != "tbe":
        count = occurrences(tree, replicates)
        support = count / replicates.n_trees
        shown = _percent(count, replicates.n_trees)
    else:
        support = transfer_expectations(tree, replicates)
        shown = [f"{value:.6f}" for value in support]
    branches, once = np.unique(split_table(tree).of_clade, return_index=True)
    labels = np.full(tree.tree.size, "", dtype=object)
    labels[tree.is_inner] = shown
    if before:
        labels[:] = ["/".join(filter(None, pair)) for pair in zip(before, labels, strict=True)]
    return SupportsDrawn(
        NAMES[metric],
        branches.size,
        float(support[once].mean()) if once.size else None,
        write_clades(tree, labels),
    )


def run_consensus(options: ConsensusOptions, reporter: Reporter) -> None:
    """The consensus of trees, of each kind that is asked for."""
    known = [kind.value for kind in Consensus]
    chosen = [Consensus(kind) for kind in _choice(options.kind, known, "--type")]
    files = [CONSENSUS_FILES[kind] for kind in chosen]
    with _claimed(options, options.trees, [*files, "consensus.json"]) as workspace:
        reporter(RunStarted(__version__, options.line))
        trees = read_clades(options.trees)
        reporter(_loaded(options.trees, trees))
        texts, events = consensus_texts(trees, chosen, reporter)
        built = {event.kind: asdict(event) for event in events}
        values = {"trees": trees.n_trees, "taxa": trees.n_tips, "consensus": built}
        own = (CONSENSUS_FILES[Consensus.STRICT], CONSENSUS_FILES[Consensus.EXTENDED])
        spent = [file for file in own if file not in texts] if options.redo else []
        inputs = options.inputs
        finish("consensus", options.line, workspace, texts, values, inputs, reporter, spent)


def consensus_texts(
    trees: Clades, kinds: Sequence[Consensus], emit: Emit
) -> tuple[dict[str, str], list[ConsensusBuilt]]:
    """The consensus of trees: a file of each kind, and facts."""
    table = split_table(trees)
    texts, events = {}, []
    for kind in kinds:
        event = _consensus(table, kind)
        emit(event)
        texts[CONSENSUS_FILES[kind]] = event.newick + "\n"
        events.append(event)
    return texts, events


def _consensus(table: SplitTable, kind: Consensus) -> ConsensusBuilt:
    splits = consensus(table, kind)
    n_tips = len(table.taxa)
    inside = members(table.bits[splits], n_tips)
    tree, rows = nested(table.taxa, inside)
    shown = _percent(table.counts[splits][rows], table.n_trees)
    return ConsensusBuilt(kind.value, splits.size, max(n_tips - 3, 0), write_clades(tree, shown))


def _percent(count: Index, total: int) -> list[str]:
    """Counts as whole percentages, halves rounded up."""
    return [str(percent) for percent in (200 * count + total) // (2 * total)]


def run_rf(options: DistanceOptions, reporter: Reporter) -> None:
    """Robinson-Foulds distances of all pairs of trees, or of all trees from a reference.

    Raises:
        InputError: there are not two trees, or a branch has no length to weigh it by.
    """
    reference = options.reference
    with _claimed(options, options.trees, [DISTANCES, "rf.json"]) as workspace:
        reporter(RunStarted(__version__, options.line))
        trees = _compared(options.trees, reference, reporter)
        event, text = _distances(trees, reference is None, options.weighted, options.trees)
        reporter(event)
        values = {"trees": trees.n_trees, "taxa": trees.n_tips, "distances": asdict(event)}
        texts, inputs = {DISTANCES: text}, options.inputs
        finish("rf", options.line, workspace, texts, values, inputs, reporter)


def _compared(file: str, reference: str | None, reporter: Reporter) -> Clades:
    """The trees of a file, behind the reference where there is one.

    Raises: InputError: there are not two.
    """
    if reference is None:
        trees = read_clades(file)
        if trees.n_trees < 2:
            hint = "compare it with a --reference"
            raise InputError("a single tree has no distance", file=file, hint=hint)
        reporter(_loaded(file, trees))
        return trees
    first = first_tree(reference, reporter)
    others = read_clades(file, like=first, origin=reference)
    reporter(_loaded(file, others))
    return Clades.joined(first.taxa, [first, others])


def _distances(
    trees: Clades, pairwise: bool, weighted: bool, file: str
) -> tuple[DistancesMeasured, str]:
    """All distances of each tree from those behind it, or of the first one alone."""
    table = split_table(trees)
    rows = trees.n_trees - 1 if pairwise else 1
    columns: list[Iterator[Index] | Iterator[Float64]] = [distances(table, rows)]
    if weighted:
        whole = split_table(trees, with_tips=True)
        unknown = whole.tree[np.isnan(whole.lengths)]
        if unknown.size:
            number = unknown[0] + pairwise  # the reference is tree 0
            which = f"tree {number} of {file}" if number else "the reference"
            raise InputError(f"--weighted: {which} has a branch without a length")
        columns.append(weighted_distances(whole, rows))
    most = max(largest(trees.n_tips), 1)
    sums, lines = np.zeros(len(columns)), []
    for i, (plain, *lengths) in enumerate(zip(*columns, strict=True)):
        sums += [row.sum() for row in (plain, *lengths)]
        for j, (distance, *more) in enumerate(
            zip(plain.tolist(), *(row.tolist() for row in lengths), strict=True), i + 1
        ):
            tail = "".join(f"\t{value:.6f}" for value in more)
            lines.append(f"{i}\t{j}\t{distance}\t{distance / most:.6f}{tail}\n")
    mean = sums / len(lines)
    event = DistancesMeasured(
        pairs=len(lines),
        topologies=topologies(table, 0 if pairwise else 1),
        mean=float(mean[0]),
        relative=float(mean[0]) / most,
        weighted=float(mean[1]) if weighted else None,
    )
    return event, "".join(lines)


def run_bootstop(options: BootstopOptions, reporter: Reporter) -> None:
    """Check whether trees are enough replicates, after every so many of them.

    Raises:
        InputError: there are too few to be asked.
    """
    trees, seed = options.trees, options.seed
    reporter(RunStarted(__version__, options.line, seed))
    replicates = read_clades(trees)
    reporter(_loaded(trees, replicates))
    if replicates.n_trees < STEP:
        problem = f"too few trees to tell: it takes {STEP}, not {replicates.n_trees}"
        raise InputError(problem, file=trees)
    for count in range(STEP, replicates.n_trees + 1, STEP):
        verdict = bootstop(split_table(replicates.part(0, count)), seed, options.cutoff)
        reporter(verdict.event)
        if verdict.is_converged:
            break
    values = {
        "seed": seed,
        "trees": replicates.n_trees,
        "taxa": replicates.n_tips,
        "enough": verdict.replicates if verdict.is_converged else None,
    }
    found = command_result("bootstop", options.line, values, {}, [trees], reporter)
    reporter.finish("bootstop", found)


def first_tree(path: str, reporter: Reporter) -> Clades:
    """The tree in a file; the first one where there are several."""
    trees = read_clades(path)
    if trees.n_trees > 1:
        reporter(Notice(f"{path}: the first of {trees.n_trees} trees is used"))
    return trees.part(0, 1)


def _loaded(path: str, trees: Clades) -> TreesLoaded:
    return TreesLoaded(path, trees.n_trees, trees.n_tips)


def _choice(given: str, known: Sequence[str], option: str) -> list[str]:
    """Words separated by commas, each of them known; the same word twice is that word."""
    words = list(dict.fromkeys(word.strip().lower() for word in given.split(",")))
    for word in words:
        if word not in known:
            raise InputError(f"{option}: {word!r} is none of {', '.join(known)}")
    return words


# ``mltree concordance``: genes and sites against the branches of a tree.

TREE = "concordanceTree"
TABLE = "concordance"
"""Kinds of files."""


@dataclass(frozen=True)
class _Factors:
    """Concordance factors of each branch."""

    branches: Branches
    genes: GeneConcordance | None
    sites: SiteConcordance | None


def run_concordance(options: ConcordanceOptions, reporter: Reporter) -> None:
    """Compute the factors, show their means, write the files.

    Raises:
        InputError: neither genes nor sites are given, or they are of other taxa.
    """
    if options.gene_trees is None and options.alignment is None:
        raise InputError("there is nothing to compare the tree with: give --gene-trees, "
                         "--alignment or both")  # fmt: skip
    if options.prefix is None:
        expect_file(options.tree)
    workspace = Workspace.of(options.prefix, options.tree)
    kinds = [TREE, TABLE, "concordance.json"]
    inputs = options.inputs
    with workspace.taken(kinds, options.redo, inputs):
        reporter(RunStarted(__version__, options.line, options.seed))
        tree, before = read_labelled(options.tree)
        found = _factors(options, Branches.of(tree), reporter)
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
            "seed": options.seed, "branches": found.branches.count, "means": means, "tree": newick,
        }  # fmt: skip
        finish("concordance", options.line, workspace, texts, values, inputs, reporter)


def _factors(options: ConcordanceOptions, branches: Branches, reporter: Reporter) -> _Factors:
    trees, patterns = [], None  # both are read before anything is computed
    if options.gene_trees is not None:
        trees = list(_genes(options.gene_trees, branches.tree))
        most = max(gene.n_tips for gene in trees)
        reporter(TreesLoaded(options.gene_trees, len(trees), most))
    if options.alignment is not None:
        patterns = _patterns(options.alignment, options.data_type, branches.tree)
    genes = gene_concordance(branches, trees) if trees else None
    if patterns is None:
        return _Factors(branches, genes, None)
    sites = site_concordance(branches, patterns, options.quartets, options.seed)
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
        known = share[~np.isnan(share)]
        yield SupportsDrawn("gCF", count, float(known.mean()) if known.size else None, newick)
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
