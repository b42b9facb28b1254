"""Sets of trees: ``mltree support``, ``consensus``, ``rf``, ``bootstop`` and ``concordance``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mltree.analyses.convert import picture_kind, picture_of
from mltree.analyses.options import DrawOptions
from mltree.analyses.tree_options import (
    BootstopOptions,
    ConcordanceOptions,
    ConsensusOptions,
    DistanceOptions,
    SupportOptions,
    TreesOptions,
)
from mltree.data.alignments import Source, read_alignment
from mltree.data.patterns import Patterns, compress
from mltree.data.source import TaxonNumbers, expect_file
from mltree.runs.calls import Call, in_turn, taking
from mltree.runs.inputs import AlignmentLike, TreeLike, newick_of, newicks_of, source_of
from mltree.runs.logged_run import command_result, finish
from mltree.runs.options import SeedOptions, WrittenOptions, one_of
from mltree.runs.results import PhyloTree, Table, support_facts
from mltree.runs.workspace import Workspace
from mltree.supports.bootstrap import STEP, bootstop, drawn_supports, labelled
from mltree.supports.concordance import (
    Branches,
    GeneConcordance,
    SiteConcordance,
    gene_concordance,
    site_concordance,
)
from mltree.supports.consensus import (
    Consensus,
    consensus_tree,
    distances,
    largest,
    members,
    sides,
    split_table,
    topologies,
    unit_bits,
    weighted_distances,
)
from mltree.system import __version__
from mltree.system.arrays import Bool, Float64, Index
from mltree.system.errors import InputError
from mltree.system.events import (
    ConsensusBuilt,
    DistancesMeasured,
    Emit,
    Notice,
    RunStarted,
    SupportsDrawn,
    TreesLoaded,
    ignore,
)
from mltree.system.files import write_whole
from mltree.tree.clades import Clades, read_clades, read_gene_trees, read_labelled
from mltree.tree.newick import listed, text_of

if TYPE_CHECKING:
    from mltree.report.progress import Reporter


METRICS = ("fbp", "tbe")

SUPPORT_KINDS = ("support", *(f"support{metric.upper()}" for metric in METRICS))
"""Kinds of files with a tree and its supports, of one metric or of several."""

CONSENSUS_FILES = {
    Consensus.STRICT: "consensusTreeSTRICT",
    Consensus.MAJORITY: "consensusTreeMR",
    Consensus.EXTENDED: "consensusTreeMRE",
}
"""Kinds of files, with RAxML-NG's endings."""

DISTANCES = "rfDistances"

CONCORDANCE_TREE, CONCORDANCE = "concordanceTree", "concordance"
CONCORDANCE_KINDS = (CONCORDANCE_TREE, CONCORDANCE)
"""Kinds of files: the tree with labels, the table."""


@contextmanager
def writing(
    command: str,
    options: WrittenOptions,
    workspace: Workspace,
    kinds: Sequence[str],
    reporter: Reporter,
    stale: Sequence[str] = (),
) -> Iterator[Callable[..., None]]:
    """Claim a command's files and begin it; yields the function that ends it: texts, values.

    kinds  of the files beside the result in JSON
    stale  kinds that --redo removes where they are not written
    """
    inputs = options.inputs
    with workspace.taken([*kinds, f"{command}.json"], options.redo, inputs):
        seed = options.seed if isinstance(options, SeedOptions) else None
        reporter(RunStarted(__version__, options.line, seed))

        def write(
            texts: Mapping[str, str], values: Mapping[str, Any], inputs: Sequence[str] = inputs
        ) -> None:
            spent = [kind for kind in stale if kind not in texts] if options.redo else []
            finish(command, options.line, workspace, texts, values, inputs, reporter, spent)

        yield write


def _beside(trees: str, options: TreesOptions) -> Workspace:
    """The workspace of the prefix, or of the file of trees that results lie beside."""
    if options.prefix is None:
        expect_file(trees)
    return Workspace.of(options.prefix, trees)


def run_support(options: SupportOptions, reporter: Reporter) -> None:
    """The supports of a tree's branches by other trees, drawn on it."""
    kinds, tree = support_kinds(options.metric), options.tree
    workspace = _beside(tree, options)
    with writing("support", options, workspace, [*kinds], reporter, SUPPORT_KINDS) as write:
        target = first_tree(tree, reporter)
        replicates = read_clades(options.trees, like=target, origin=tree)
        reporter(_loaded(options.trees, replicates))
        texts, events = support_texts(target, replicates, kinds, reporter)
        facts = support_facts(events)
        values = {"trees": replicates.n_trees, "taxa": replicates.n_tips, "supports": facts}
        write(texts, values, [options.trees, tree])


def support_kinds(metrics: str) -> dict[str, str]:
    """The metric of each kind of file that is asked for.

    Raises:
        InputError: there is no such metric.
    """
    chosen = words_of(metrics, METRICS, "--metric")
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
    events = [drawn_supports(tree, replicates, metric, before) for metric in kinds.values()]
    for event in events:
        emit(event)
    return {kind: event.newick + "\n" for kind, event in zip(kinds, events, strict=True)}, events


def run_consensus(options: ConsensusOptions, reporter: Reporter) -> None:
    """The consensus of trees, of each kind that is asked for."""
    known = [kind.value for kind in Consensus]
    chosen = [Consensus(kind) for kind in words_of(options.kind, known, "--type")]
    kinds, workspace = [CONSENSUS_FILES[kind] for kind in chosen], _beside(options.trees, options)
    stale = (CONSENSUS_FILES[Consensus.STRICT], CONSENSUS_FILES[Consensus.EXTENDED])
    with writing("consensus", options, workspace, kinds, reporter, stale) as write:
        trees = read_clades(options.trees)
        reporter(_loaded(options.trees, trees))
        texts, events = consensus_texts(trees, chosen, reporter)
        built = {event.kind: asdict(event) for event in events}
        write(texts, {"trees": trees.n_trees, "taxa": trees.n_tips, "consensus": built})


def consensus_texts(
    trees: Clades, kinds: Sequence[Consensus], emit: Emit
) -> tuple[dict[str, str], list[ConsensusBuilt]]:
    """The consensus of trees: a file of each kind, and facts."""
    table = split_table(trees)
    events = [consensus_tree(table, kind) for kind in kinds]
    for event in events:
        emit(event)
    return {CONSENSUS_FILES[Consensus(one.kind)]: one.newick + "\n" for one in events}, events


def run_rf(options: DistanceOptions, reporter: Reporter) -> None:
    """Robinson-Foulds distances of all pairs of trees, or of all trees from a reference.

    Raises:
        InputError: there are not two trees, or a branch has no length to weigh it by.
    """
    workspace, is_pairwise = _beside(options.trees, options), options.reference is None
    with writing("rf", options, workspace, [DISTANCES], reporter) as write:
        trees = _compared(options.tree_files, options.reference, reporter)
        event, text = _distances(trees, is_pairwise, options.weighted, options.trees)
        reporter(event)
        values = {"trees": trees.n_trees, "taxa": trees.n_tips, "distances": asdict(event)}
        write({DISTANCES: text}, values)


def _compared(files: Sequence[str], reference: str | None, reporter: Reporter) -> Clades:
    """The trees of files, one after the other, behind the reference where there is one.

    Raises: InputError: there are not two.
    """
    read = [] if reference is None else [first_tree(reference, reporter)]
    origin = reference or files[0]
    for file in files:
        trees = read_clades(file, like=read[0], origin=origin) if read else read_clades(file)
        reporter(_loaded(file, trees))
        read.append(trees)
    every = read[0] if len(read) == 1 else Clades.joined(read[0].taxa, read)
    if every.n_trees < 2:
        hint = "give another file of trees, or a --reference"
        raise InputError("a single tree has no distance", file=files[0], hint=hint)
    return every


def _distances(
    trees: Clades, is_pairwise: bool, is_weighted: bool, file: str
) -> tuple[DistancesMeasured, str]:
    """All distances of each tree from those behind it, or of the first one alone."""
    table = split_table(trees)
    rows = trees.n_trees - 1 if is_pairwise else 1
    columns: list[Iterator[Index] | Iterator[Float64]] = [distances(table, rows)]
    if is_weighted:
        whole = split_table(trees, with_tips=True)
        unknown = whole.tree[np.isnan(whole.lengths)]
        if unknown.size:
            number = unknown[0] + is_pairwise  # the reference is tree 0
            which = f"tree {number} of {file}" if number else "the reference"
            raise InputError(f"--weighted: {which} has a branch without a length")
        columns.append(weighted_distances(whole, rows))
    most = max(largest(trees.n_tips), 1)
    sums, lines = np.zeros(len(columns)), []
    for i, (plain, *lengths) in enumerate(zip(*columns, strict=True)):
        sums += [row.sum() for row in (plain, *lengths)]
        pairs = zip(plain.tolist(), *(row.tolist() for row in lengths), strict=True)
        for j, (distance, *more) in enumerate(pairs, i + 1):
            tail = "".join(f"\t{value:.6f}" for value in more)
            lines.append(f"{i}\t{j}\t{distance}\t{distance / most:.6f}{tail}\n")
    mean = sums / len(lines)
    event = DistancesMeasured(
        pairs=len(lines),
        topologies=topologies(table, 0 if is_pairwise else 1),
        mean=float(mean[0]),
        relative=float(mean[0]) / most,
        weighted=float(mean[1]) if is_weighted else None,
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
        problem = f"too few trees for this test: it needs {STEP}, not {replicates.n_trees}"
        raise InputError(problem, file=trees)
    for count in range(STEP, replicates.n_trees + 1, STEP):
        verdict = bootstop(split_table(replicates.part(0, count)), seed, options.cutoff)
        reporter(verdict)
        if verdict.converged:
            break
    enough = verdict.replicates if verdict.converged else None
    values = {
        "seed": seed, "trees": replicates.n_trees, "taxa": replicates.n_tips, "enough": enough,
    }  # fmt: skip
    result = command_result("bootstop", options.line, values, {}, [trees], reporter)
    reporter.finish("bootstop", result)


def first_tree(path: str, reporter: Reporter) -> Clades:
    """The tree in a file; the first one where there are several."""
    trees = read_clades(path)
    if trees.n_trees > 1:
        reporter(Notice(f"{path}: the first of {trees.n_trees} trees is used"))
    return trees.part(0, 1)


def _loaded(path: str, trees: Clades) -> TreesLoaded:
    return TreesLoaded(path, trees.n_trees, trees.n_tips)


def words_of(text: str, known: Collection[str], option: str) -> list[str]:
    """Words separated by commas, each of them known; the same word twice is that word.

    Raises:
        InputError: one is not known.
    """
    words = list(dict.fromkeys(word.strip().lower() for word in text.split(",")))
    for word in words:
        if word not in known:
            raise InputError(f"{option}: {word!r} is not one of {', '.join(known)}")
    return words


def run_concordance(options: ConcordanceOptions, reporter: Reporter) -> None:
    """Compute the factors, show their means, write the files.

    Raises:
        InputError: neither genes nor sites are given, or they are of other taxa.
    """
    if options.gene_trees is None and options.alignment is None:
        raise InputError("there is nothing to compare the tree with: give --gene-trees, "
                         "--alignment or both")  # fmt: skip
    workspace = _beside(options.tree, options)
    with writing("concordance", options, workspace, CONCORDANCE_KINDS, reporter) as write:
        texts, values = concordance_texts(
            options.tree, partial(_factors, options, reporter), reporter
        )
        write(texts, {"seed": options.seed, **values})


def concordance_texts(
    tree: str, factors_of: Callable[[Branches], Iterable[Factor]], emit: Emit
) -> tuple[dict[str, str], dict[str, Any]]:
    """The files of concordance factors on a tree, and facts of them as JSON has them.

    factors_of  computes the factors of the tree's branches
    """
    clades, before = read_labelled(tree)
    branches = Branches.of(clades)
    factors = list(factors_of(branches))
    columns = [_texts("{:.3g}", 100 * factor.shares) for factor in factors]
    labels = ["/".join(filter(None, row)) for row in zip(*columns, strict=True)]
    newick = labelled(clades, before, [labels[branch] for branch in branches.of_clade])
    means = {factor.name: factor.mean for factor in factors}
    for name, mean in means.items():
        emit(SupportsDrawn(name, branches.count, mean, newick))
    texts = {CONCORDANCE_TREE: newick + "\n", CONCORDANCE: _table(branches, factors)}
    return texts, {"branches": branches.count, "means": means, "tree": newick}


def factors_of_loci(
    genes: str, sites: Callable[[Sequence[str]], Patterns | None], options: SeedOptions,
    branches: Branches,
) -> Iterator[Factor]:  # fmt: skip
    """Concordance of genes, by their trees, and of the sites that they have together.

    sites  patterns of so many taxa; None where they cannot be one alignment
    """
    yield _of_genes(gene_concordance(branches, _genes(genes, branches.tree)))
    if (patterns := sites(branches.tree.taxa)) is not None:
        quartets = ConcordanceOptions.quartets
        yield _of_sites(site_concordance(branches, patterns, quartets, options.seed))


class Factor(NamedTuple):
    """A concordance factor of each branch."""

    name: str
    shares: Float64
    """f64 [B]; NaN where nothing tells."""
    columns: dict[str, list[str]]
    """Columns of the table: shares and counts, those of discordance too."""

    @property
    def mean(self) -> float | None:
        """Over the branches that anything tells about."""
        known = self.shares[~np.isnan(self.shares)]
        return float(known.mean()) if known.size else None


def _factors(options: ConcordanceOptions, emit: Emit, branches: Branches) -> Iterator[Factor]:
    """The factors that were asked for; all is read before anything is computed."""
    trees, patterns = [], None
    if options.gene_trees is not None:
        trees = _genes(options.gene_trees, branches.tree)
        most = max(gene.n_tips for gene in trees)
        emit(TreesLoaded(options.gene_trees, len(trees), most))
    if options.alignment is not None:
        patterns = _patterns(options.alignment, options.data_type, branches.tree)
    if trees:
        yield _of_genes(gene_concordance(branches, trees))
    if patterns is not None:
        yield _of_sites(site_concordance(branches, patterns, options.quartets, options.seed))


def _of_genes(genes: GeneConcordance) -> Factor:
    counts = genes.concordant, genes.first, genes.second, genes.polyphyletic
    decisive, columns = genes.decisive, {}
    shares = [np.where(decisive > 0, n / np.maximum(decisive, 1), np.nan) for n in counts]
    for name, share, count in zip(("gCF", "gDF1", "gDF2", "gDFP"), shares, counts, strict=True):
        columns[name] = _texts("{:.6f}", share)
        columns[f"{name}_N"] = _texts("{}", count)
    return Factor("gCF", shares[0], columns | {"gN": _texts("{}", decisive)})


def _of_sites(sites: SiteConcordance) -> Factor:
    shares, counts, columns = sites.shares.T, sites.sites.T, {}
    for name, share, count in zip(("sCF", "sDF1", "sDF2"), shares, counts, strict=True):
        columns[name] = _texts("{:.6f}", share)
        columns[f"{name}_N"] = _texts("{:.3f}", count)
    columns["sCF_error"] = _texts("{:.6f}", sites.errors)
    columns["sN"] = _texts("{:.3f}", sites.sites.sum(axis=1))
    return Factor("sCF", shares[0], columns)


def _table(branches: Branches, factors: Sequence[Factor]) -> str:
    """A line a branch, which the taxa on its smaller side name."""
    tree = branches.tree
    bits = sides(tree.only(tree.is_inner), unit_bits(tree.n_tips))
    _, first = np.unique(branches.of_clade, return_index=True)
    taxa = smaller_sides(members(bits[first], tree.n_tips), tree.taxa)
    columns = {name: column for factor in factors for name, column in factor.columns.items()}
    rows = [[*columns, "taxa"], *zip(*columns.values(), taxa, strict=True)]
    return "".join("\t".join(row) + "\n" for row in rows)


def _texts(form: str, values: Index | Float64) -> list[str]:
    """Values as text; nothing for NaN."""
    return ["" if np.isnan(value) else form.format(value) for value in values]


def _value(text: str) -> float | None:
    """The number of a cell, whole if it was counted; None where the cell is empty."""
    return int(text) if text.isdigit() else float(text) if text else None


def smaller_sides(inside: Bool, taxa: Sequence[str]) -> list[str]:
    """Names of the taxa on the smaller side of each split, bool [B, T], with commas."""
    names, is_larger = np.array(taxa, object), 2 * inside.sum(axis=1) > len(taxa)
    return [",".join(names[side]) for side in inside ^ is_larger[:, None]]


def _genes(source: str, tree: Clades) -> list[Clades]:
    """The gene trees of a file or a text.

    Raises:
        InputError: there is none, or one has a taxon that the tree has not.
    """
    spelled = TaxonNumbers(tree.taxa)
    _, file = text_of(source)
    read = read_gene_trees(source)
    genes = [replace(gene, taxa=tuple(spelled.names(gene.taxa))) for gene in read]
    if not genes:
        raise InputError("no tree in it", file=file, hint="a Newick tree ends with ';'")
    for number, gene in enumerate(genes, 1):
        unknown = sorted(set(gene.taxa) - set(tree.taxa))
        if unknown:
            problem = f"{listed(unknown)} in gene tree {number} but not in the tree"
            raise InputError(problem, file=file, taxon=unknown[0])
    return genes


def _patterns(source: Source, datatype: str | None, tree: Clades) -> Patterns:
    patterns = compress(read_alignment(source, datatype))
    patterns = replace(patterns, taxa=tuple(TaxonNumbers(tree.taxa).names(patterns.taxa)))
    lost = sorted(set(tree.taxa) - set(patterns.taxa))
    if lost:
        raise InputError(f"{listed(lost)} not in the alignment", file=str(source), taxon=lost[0])
    return patterns


@dataclass(frozen=True, repr=False)
class ConcordanceFactors(Table):
    """Concordance factors of the inner branches of a tree."""

    tree: PhyloTree
    """The tree; labels are gCF/sCF in per cent, behind those that it had."""
    means: Mapping[str, float | None]
    """Mean share of each factor over the branches that anything tells about."""
    values: Mapping[str, Sequence[Any]]
    """Columns by name: shares (0 to 1, None where nothing tells), counts, and ``taxa``, those on
    the smaller side of the branch."""

    def __repr__(self) -> str:
        means = (f"{name} {100 * (mean or 0):.1f}%" for name, mean in self.means.items())
        return f"ConcordanceFactors({', '.join(means)}, {len(self.values['taxa'])} branches)"

    def columns(self) -> dict[str, Sequence[Any]]:
        """The values of each column, by its name."""
        return dict(self.values)

    def _facts(self) -> dict[str, str]:
        return {f"mean {name}": f"{100 * (mean or 0):.1f}%" for name, mean in self.means.items()}


def concordance(
    tree: TreeLike,
    gene_trees: TreeLike | Iterable[TreeLike] | None = None,
    alignment: AlignmentLike | None = None,
    *,
    taxa: Sequence[str] | None = None,
    quartets: int = ConcordanceOptions.quartets,
    seed: int = ConcordanceOptions.seed,
    data_type: str | None = None,
) -> ConcordanceFactors:
    """Concordance factors of a tree, as ``mltree concordance`` computes them.

    gene_trees  trees of loci, which may lack taxa: for gene concordance factors (gCF)
    alignment   a path, or sequences in memory: for site concordance factors (sCF)
    taxa        names of the rows of a NumPy array
    quartets    random quartets a branch, for sCF

    Raises:
        InputError: neither is given, or a tree is broken or of other taxa.
    """
    with in_turn(options=ConcordanceOptions):
        if gene_trees is None and alignment is None:
            raise InputError("give gene_trees, alignment or both")

        def factors_of(branches: Branches) -> Iterator[Factor]:
            if gene_trees is not None:
                genes = _genes(newicks_of(gene_trees), branches.tree)
                yield _of_genes(gene_concordance(branches, genes))
            if alignment is not None:
                patterns = _patterns(source_of(alignment, taxa), data_type, branches.tree)
                yield _of_sites(site_concordance(branches, patterns, quartets, seed))

        texts, facts = concordance_texts(newick_of(tree), factors_of, ignore)
    head, *rows = (line.split("\t") for line in texts[CONCORDANCE].splitlines())
    cells = zip(*rows, strict=True) if rows else [()] * len(head)
    values = {
        name: list(column if name == "taxa" else map(_value, column))
        for name, column in zip(head, cells, strict=True)
    }
    return ConcordanceFactors(PhyloTree(facts["tree"]), facts["means"], values)


def support(
    tree: TreeLike, trees: TreeLike | Iterable[TreeLike], *, metric: str = SupportOptions.metric
) -> PhyloTree:
    """The tree with its branches' supports by others as labels.

    metric  ``"fbp"``, percentages of the trees that have a branch, or ``"tbe"``, the transfer
            bootstrap expectation, 0 to 1

    Raises:
        InputError: a tree is broken, or of other taxa.
    """
    one_of("metric", metric, METRICS)
    with in_turn():
        target = read_clades(newick_of(tree)).part(0, 1)
        others = read_clades(newicks_of(trees), like=target, origin="the tree")
        (text,) = support_texts(target, others, support_kinds(metric), ignore)[0].values()
        return PhyloTree(text.strip())


def consensus(
    trees: TreeLike | Iterable[TreeLike], *, kind: str = ConsensusOptions.kind
) -> PhyloTree:
    """The consensus of trees, whose labels are the percentages of them that have each branch.

    kind  ``"majority"``, ``"strict"`` or ``"extended"``, as of ``mltree consensus``

    Raises:
        InputError: a tree is broken, or they are of other taxa.
    """
    one_of("kind", kind, [known.value for known in Consensus])
    with in_turn():
        (text,) = consensus_texts(read_clades(newicks_of(trees)), [Consensus(kind)], ignore)[
            0
        ].values()
        return PhyloTree(text.strip())


@dataclass(frozen=True, repr=False)
class Drawing:
    """A picture of a tree, which a notebook shows."""

    svg: str
    """The text of an SVG file."""

    def __str__(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"Drawing(SVG, {len(self.svg):,} characters)"

    def _repr_svg_(self) -> str:
        return self.svg


@taking(DrawOptions, "tree", "out", of_data=False)
def draw(options: DrawOptions, call: Call) -> Drawing:
    """Draw a tree, as ``mltree draw`` does.

    ``out``: a file of .svg, .png or .pdf to write as well; one that is there is replaced.
    """
    kind = picture_kind(options.out) if options.out else "svg"
    picture, _ = picture_of(options, kind, call)
    if options.out:
        write_whole(Path(options.out), picture)
    shown = picture if kind == "svg" else picture_of(options, "svg", ignore)[0]
    return Drawing(shown.decode())
