"""``mltree simulate``: sequences that evolve along a tree under a model.

A site draws a rate category and a root state, and then at every branch its next state from the
row of P(t) of its category. The model is reversible, so tip 0 serves as the root. The same tree,
model and random numbers give the same sites.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mltree.analyses.options import SimulateOptions
from mltree.data.alignments import MIN_TAXA, Alignment, read_alignment, refuse_few
from mltree.data.alphabet import Alphabet
from mltree.data.formats import format_of, write_alignment
from mltree.data.patterns import compress
from mltree.models.eigen import ModelArrays, p_matrices
from mltree.models.grammar import format_model, parse_model
from mltree.models.partitioned import model_alphabet
from mltree.models.rates import SiteRates
from mltree.models.substitution import Model
from mltree.runs.calls import Call, taking
from mltree.runs.logged_run import write_out
from mltree.runs.options import LONGEST_MEAN, one_of
from mltree.runs.problem import model_text, read_model
from mltree.runs.results import PhyloTree, facts_table
from mltree.runs.trees import tree_named
from mltree.runs.workspace import claim_files
from mltree.system import __version__
from mltree.system.arrays import Float64, UInt8
from mltree.system.errors import InputError, ModelError
from mltree.system.events import AlignmentWritten, Emit, Event, Notice, RunStarted, TreesWritten
from mltree.system.files import write_whole
from mltree.system.process import host_memory
from mltree.tree.clades import read_clades
from mltree.tree.newick import read_newick, write_newick
from mltree.tree.topology import Tree, uniform_tree, yule_tree

if TYPE_CHECKING:
    from mltree.report.progress import Reporter


TAXON_BYTES, CHARACTER_BYTES = 300, 5
"""Bytes of memory for a taxon of a random tree, and for a character until it is written."""

MOST_TAXA = (1 << 31) // 6
"""Half-edges of the nodes of a tree have 32-bit numbers, three a node."""

SHAPES = {"uniform": uniform_tree, "yule": yule_tree}
"""Random trees by name."""

FEW_SITES, BATCH_SITES = 1 << 12, 1 << 16
"""Sites simulated at a time: where their number is given, whose first ones are the same for any
number; where distinct ones are wanted, many of them in vain."""

MAX_BARREN_BATCHES = 20
"""Batches in a row without a new column, after which there are hardly more to find."""


def run_simulate(options: SimulateOptions, reporter: Reporter) -> None:
    """Simulate an alignment and write it, with its tree where asked for.

    Raises:
        InputError: the tree, the gaps or the sizes cannot be used, or a file cannot be written.
        ModelError: the model cannot be used.
    """
    file_format = options.file_format or format_of(options.out)
    files = {"out": options.out}
    if options.true_tree is not None:
        files["true_tree"] = str(Path(options.true_tree))
    claim_files([*map(Path, files.values())], options.inputs, options.redo)
    reporter(RunStarted(__version__, options.line, options.seed))
    model, tree, taxa, characters = _evolved(options, reporter)
    contents = {"out": write_alignment(taxa, characters, model.alphabet, file_format)}
    events: list[Event] = [AlignmentWritten(str(Path(options.out)), file_format, *characters.shape)]
    if options.true_tree is not None:
        contents["true_tree"] = (write_newick(tree, taxa) + "\n").encode()
        events.append(TreesWritten(files["true_tree"], 1, len(taxa)))
    values = {"seed": options.seed, "taxa": len(taxa), "sites": characters.shape[1]}
    write_out("simulate", options, contents, files, events, values, reporter)


def _evolved(
    options: SimulateOptions, emit: Emit
) -> tuple[Model, Tree, tuple[str, ...], NDArray[np.uint8]]:
    """The model, the tree, its taxa, and their characters u8 [T, sites width]."""
    model = _model(options.model, options.frequencies_from)
    if isinstance(model.heterogeneity, SiteRates):
        raise ModelError("+PSR has no rates before there are data", hint="use +G4{0.5}")
    if model.branch_scaler is not None:
        raise ModelError("+B scales the branches of one of several parts", hint="leave it out")
    varies = model.ascertainment is not None
    if varies and options.gaps_from is not None:
        hint = "leave +ASC or --gaps-from out"
        raise InputError(
            "gaps may hide all that varies at a site, as none does under +ASC", hint=hint
        )
    arrays = model.arrays()
    emit(Notice(f"evolves under {format_model(model)}"))
    _refuse_large(options)
    rng = np.random.default_rng(options.seed)
    real = None if options.gaps_from is None else read_alignment(options.gaps_from)
    width = model.alphabet.width
    count = _count(options, None if real is None else real.n_sites // width)
    tree, taxa = _tree(options, rng, emit)
    is_gap = None if real is None else gaps_like(real, taxa, count * width)
    evolve = sites if options.unique is None else distinct_sites
    characters = letters(evolve(tree, arrays, count, rng, varies), model.alphabet)
    if is_gap is not None:
        characters[is_gap] = ord("-")
    return model, tree, taxa, characters


def _refuse_large(options: SimulateOptions) -> None:
    """Make sure that the memory holds what is asked for; raises InputError."""
    taxa = options.taxa or 1
    number = options.sites if options.unique is None else options.unique
    count = 1 if number is None else number
    if count < 1:
        raise InputError(f"--sites {count}: an alignment has at least 1", hint="--sites 1000")
    needed, room = taxa * (TAXON_BYTES + CHARACTER_BYTES * count), host_memory()
    if needed > room or taxa > MOST_TAXA:
        size = f"{taxa:,} taxa, {count:,} sites" if options.taxa else f"{count:,} sites"
        raise InputError(
            f"{size} take some {needed >> 20:,} MiB of memory, and there are {room >> 20:,} MiB",
            hint="simulate fewer taxa or sites",
        )


def _model(text: str, alignment_path: str | None) -> Model:
    """The model, whose frequencies are counted where there is an alignment to count them in."""
    if alignment_path is None:
        return read_model(text)
    text = model_text(text)
    alignment = read_alignment(alignment_path, None, model_alphabet(text))
    return parse_model(text, alignment.alphabet).with_empirical_frequencies(compress(alignment))


def _tree(
    options: SimulateOptions, rng: np.random.Generator, emit: Emit
) -> tuple[Tree, tuple[str, ...]]:
    """The tree along which sequences evolve, and its taxa."""
    if options.tree is None:
        if options.taxa is None:
            raise InputError("--tree or --taxa is missing", hint="--taxa 50 draws a random tree")
        if options.taxa < MIN_TAXA:
            raise InputError(f"a tree needs at least {MIN_TAXA} taxa, not {options.taxa}")
        random = SHAPES[options.random_tree](options.taxa, options.mean_length, rng)
        return random, numbered_taxa(options.taxa)
    if options.taxa is not None:
        raise InputError("--taxa is for random trees, and --tree gives a tree")
    taxa, name = read_clades(options.tree).taxa, tree_named(options.tree)
    refuse_few(taxa, name)
    tree, notices = read_newick(options.tree, taxa)
    for notice in notices:
        emit(Notice(f"{name}: {notice}"))
    return tree, taxa


def numbered_taxa(count: int) -> tuple[str, ...]:
    """Names of the taxa of a random tree: T1, T2, ..."""
    return tuple(f"T{number}" for number in range(1, count + 1))


def _count(options: SimulateOptions, real_sites: int | None) -> int:
    """Sites: as many as asked for, or as the alignment has that gaps are taken from."""
    if options.unique is not None:
        if options.sites is not None:
            raise InputError("--sites and --unique exclude each other")
        return options.unique
    count = real_sites if options.sites is None else options.sites
    if count is None:
        raise InputError("--sites is missing", hint="or --gaps-from, an alignment of as many")
    return count


def sites(
    tree: Tree, arrays: ModelArrays, count: int, rng: np.random.Generator, varies: bool = False
) -> UInt8:
    """u8 [T, count]: states of the tips at as many sites; ``varies``: at none all have the same.

    Raises: InputError: hardly any site varies.
    """
    batches: list[UInt8] = []
    found = barren = 0
    while found < count:
        batches.append(_batch(tree, arrays, FEW_SITES, rng, varies))
        found += batches[-1].shape[1]
        barren = 0 if batches[-1].size else barren + 1
        if barren == MAX_BARREN_BATCHES:
            raise InputError(f"only {found:,} sites vary", hint="a longer tree allows more")
    return np.concatenate(batches, axis=1)[:, :count]


def _batch(
    tree: Tree, arrays: ModelArrays, count: int, rng: np.random.Generator, varies: bool
) -> UInt8:
    states = evolve(tree, arrays, count, rng)
    return states[:, (states != states[0]).any(axis=0)] if varies else states


def distinct_sites(
    tree: Tree, arrays: ModelArrays, count: int, rng: np.random.Generator, varies: bool = False
) -> UInt8:
    """The first so many different columns, in the order of their appearance.

    Raises:
        InputError: new columns have stopped turning up.
    """
    columns = np.empty((0, tree.n_tips), np.uint8)
    barren = 0
    evolve(tree, arrays, BATCH_SITES, rng)  # the files of bench/results can be made again
    while len(columns) < count:
        if barren == MAX_BARREN_BATCHES:
            problem = f"only {len(columns):,} distinct columns were found"
            raise InputError(problem, hint="a longer tree or more taxa allow more")
        before = len(columns)
        batch = _batch(tree, arrays, BATCH_SITES, rng, varies)
        columns = _without_repeats(np.concatenate((columns, batch.T)))
        barren = barren + 1 if len(columns) == before else 0
    return np.ascontiguousarray(columns[:count].T)


def evolve(tree: Tree, arrays: ModelArrays, count: int, rng: np.random.Generator) -> UInt8:
    """u8 [T, count]: sites that evolved from tip 0 outwards, all of them branch by branch."""
    states = np.empty((tree.n_tips, count), np.uint8)
    transitions, frequencies = by_category(arrays, tree.lengths)
    steps = np.cumsum(transitions, axis=-1)[..., :-1]
    category = _drawn(np.cumsum(arrays.weights)[:-1], rng.random(count))
    roots = np.cumsum(frequencies, axis=-1)[:, :-1]
    states[0] = _drawn(roots[category], rng.random(count))
    pending = [(tree.twin.item(0), states[0])]
    while pending:
        half, parent = pending.pop()
        child = _drawn(steps[tree.edge.item(half), category, parent], rng.random(count))
        if half < 3 * tree.n_tips:
            states[half // 3] = child
        else:
            pending += [(tree.twin.item(sibling), child) for sibling in tree.siblings(half)]
    return states


def by_category(arrays: ModelArrays, lengths: Float64) -> tuple[Float64, Float64]:
    """P f64 [E, K, S, S] of every branch length, and frequencies f64 [K, S], by rate category.

    Each class of a mixture has an eigen system, and its share of the categories in turn.
    """
    classes = [arrays]
    if arrays.eigenvalues.ndim > 1:
        rates, weights = (
            values.reshape(arrays.n_systems, -1) for values in (arrays.rates, arrays.weights)
        )
        classes = replace(arrays, rates=rates, weights=weights).unstacked()
    transitions = np.concatenate([p_matrices(one, lengths) for one in classes], axis=1)
    frequencies = np.stack([one.frequencies for one in classes])
    return transitions, frequencies.repeat(arrays.n_categories // len(classes), axis=0)


def _drawn(bounds: Float64, u: Float64) -> UInt8:
    """Number of the bounds, rising along [..., S-1], that are not above each u."""
    number: UInt8 = np.sum(u[:, None] >= bounds, axis=-1, dtype=np.uint8)
    return number


def _without_repeats(rows: UInt8) -> UInt8:
    keys = np.ascontiguousarray(rows).view(np.dtype((np.void, rows.shape[1])))
    _, first = np.unique(keys, return_index=True)
    return rows[np.sort(first)]


def letters(states: UInt8, alphabet: Alphabet) -> NDArray[np.uint8]:
    """u8 [T, sites width]: the states as ASCII."""
    return alphabet.decode(alphabet.state_codes[states])


def gaps_like(real: Alignment, taxa: Sequence[str], count: int) -> NDArray[np.bool_]:
    """Where a real alignment has gaps, bool [T, count]: characters that may be any state.

    A taxon has the gaps of its namesake; where no taxon has one, of the sequence in its place.
    Sites are those of the real alignment in turn, over and over.

    Raises:
        InputError: some taxa have a namesake and others none, or there are not as many sequences.
    """
    place = {name: row for row, name in enumerate(real.names)}
    strangers = [name for name in taxa if name not in place]
    if strangers and len(strangers) < len(taxa):
        problem = f"{strangers[0]!r} is in the tree, but has no sequence to take gaps from"
        raise InputError(problem, file=real.path, taxon=strangers[0])
    if len(taxa) > real.n_taxa:
        problem = f"{real.n_taxa:,} sequences to take gaps from, for {len(taxa):,} taxa"
        raise InputError(problem, file=real.path)
    rows = range(len(taxa)) if strangers else [place[name] for name in taxa]
    codes = real.alphabet.encode(real.characters[list(rows)])
    is_gap: NDArray[np.bool_] = codes == real.alphabet.gap_code
    return is_gap[:, np.arange(count) % real.n_sites]


class SimulatedAlignment(Mapping[str, str]):
    """Sequences by their taxa, which every function of an alignment takes, and their tree."""

    def __init__(
        self,
        taxa: Sequence[str],
        characters: NDArray[np.uint8],
        alphabet: Alphabet,
        tree: PhyloTree,
        model: str,
    ) -> None:
        """``characters``: u8 [T, sites], ASCII."""
        self.taxa = tuple(taxa)
        """T names, in the order of the sequences."""
        self.characters = characters
        """u8 [T, sites]: the sequences in ASCII."""
        self.tree = tree
        """The tree that they evolved along."""
        self.model = model
        """The model that they evolved under, with its values."""
        self._alphabet = alphabet

    def __getitem__(self, taxon: str) -> str:
        if taxon not in self.taxa:
            raise KeyError(taxon)
        row: bytes = self.characters[self.taxa.index(taxon)].tobytes()
        return row.decode("ascii")

    def __iter__(self) -> Iterator[str]:
        return iter(self.taxa)

    def __len__(self) -> int:
        return len(self.taxa)

    def write(self, path: str | PathLike[str], file_format: str | None = None) -> None:
        """Write the sequences; ``file_format``: as of ``mltree simulate``, else by the file's name.

        Raises:
            InputError: the format is not known, or the file cannot be written.
        """
        name = fspath(path)
        content = write_alignment(
            self.taxa, self.characters, self._alphabet, file_format or format_of(name)
        )
        write_whole(
            Path(name), gzip.compress(content, mtime=0) if name.endswith(".gz") else content
        )

    def __repr__(self) -> str:
        taxa, sites = self.characters.shape
        kind = self._alphabet.name
        return f"SimulatedAlignment({kind}, {taxa:,} taxa × {sites:,} sites, 1 tree)"

    def _repr_html_(self) -> str:
        facts = facts_table({"sequences": repr(self), "model": self.model})
        return facts + self.tree._repr_html_()


@taking(SimulateOptions, "model", "tree", of_data=False)
def simulate(options: SimulateOptions, call: Call) -> SimulatedAlignment:
    """Simulate sequences that evolve along a tree, as ``mltree simulate`` does."""
    model, tree, taxa, characters = _evolved(options, call)
    newick = PhyloTree(write_newick(tree, taxa))
    return SimulatedAlignment(taxa, characters, model.alphabet, newick, format_model(model))


def random_tree(
    taxa: int | Sequence[str],
    *,
    shape: str = SimulateOptions.random_tree,
    mean_length: float = SimulateOptions.mean_length,
    seed: int = SimulateOptions.seed,
) -> PhyloTree:
    """A random tree, which ``mltree simulate`` draws for the same seed.

    taxa         their number, for T1, T2, ..., or their names
    shape        ``"uniform"``: all topologies are as likely, branch lengths are exponential;
                 ``"yule"``: it grows by births alone, and all tips are of one age
    mean_length  of the branches, expected substitutions per site

    Raises:
        InputError: there are too few taxa, or two of a name, or there is no such shape.
    """
    one_of("shape", shape, SHAPES)
    names = numbered_taxa(taxa) if isinstance(taxa, int) else tuple(map(str, taxa))
    if len(names) < MIN_TAXA:
        raise InputError(f"a tree needs at least {MIN_TAXA} taxa, not {len(names)}")
    if len(set(names)) < len(names):
        raise InputError("taxa: two have the same name")
    if not 0.0 <= mean_length <= LONGEST_MEAN:
        raise InputError(f"mean_length={mean_length!r} is not a branch length")
    tree = SHAPES[shape](len(names), mean_length, np.random.default_rng(seed))
    return PhyloTree(write_newick(tree, names))
