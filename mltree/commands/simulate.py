"""``mltree simulate``: sequences that evolve along a tree."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mltree import __version__
from mltree.alignment.formats import read_alignment
from mltree.alignment.patterns import compress
from mltree.alignment.sequences import MIN_TAXA, refuse_few
from mltree.alignment.writing import format_of, write_alignment
from mltree.commands.results import command_result
from mltree.errors import InputError, ModelError
from mltree.events import Notice
from mltree.events.alignments import AlignmentWritten
from mltree.events.run import RunStarted
from mltree.events.trees import TreesWritten
from mltree.files import write_together
from mltree.heap import host_memory
from mltree.model.grammar import format_model, parse_model
from mltree.model.part_models import model_alphabet
from mltree.model.site_rates import SiteRates
from mltree.model.substitution import Model
from mltree.model_option import model_text, read_model
from mltree.outputs import claim_files
from mltree.report.progress import Reporter
from mltree.simulation import distinct_sites, gaps_like, letters, sites
from mltree.tree.newick import read_newick, write_newick
from mltree.tree.newick_clades import read_clades
from mltree.tree.random_trees import uniform_tree, yule_tree
from mltree.tree.topology import Tree

__all__ = ["SHAPES", "SimulationRequest", "run_simulate"]

TAXON_BYTES, CHARACTER_BYTES = 300, 5
"""Bytes of memory for a taxon of a random tree, and for a character until it is written."""

MOST_TAXA = (1 << 31) // 6
"""Half-edges of the nodes of a tree have 32-bit numbers, three a node."""

SHAPES = {"uniform": uniform_tree, "yule": yule_tree}
"""Random trees by name."""


@dataclass(frozen=True, kw_only=True)
class SimulationRequest:
    """What is to be simulated."""

    out: str
    model: str
    tree: str | None
    """Newick file; a random tree where None."""
    shape: str
    """Of a random tree: a name of :data:`SHAPES`."""
    taxa: int | None
    """Of a random tree."""
    mean_length: float
    """Of its branches, expected substitutions per site."""
    true_tree: str | None
    """Where to write the tree."""
    sites: int | None
    unique: int | None
    """How many distinct columns there are to be, instead of ``sites``."""
    gaps_from: str | None
    frequencies_from: str | None
    """The alignment in which frequencies (+FC) are counted."""
    seed: int
    file_format: str | None
    """A name of :data:`mltree.alignment.writing.FORMATS`; by the name of ``out`` where None."""
    redo: bool
    command: str


def run_simulate(request: SimulationRequest, reporter: Reporter) -> None:
    """Simulate an alignment and write it, with its tree where asked for.

    Raises:
        InputError: the tree, the gaps or the sizes cannot be used, or a file cannot be written.
        ModelError: the model cannot be used.
    """
    file_format = request.file_format or format_of(request.out)
    out = Path(request.out)
    true_tree = None if request.true_tree is None else Path(request.true_tree)
    written = [out] if true_tree is None else [out, true_tree]
    files_read = (request.tree, request.gaps_from, request.frequencies_from)
    inputs = [request.model, *(path or "" for path in files_read)]
    claim_files(written, inputs, request.redo)
    reporter(RunStarted(__version__, request.command, request.seed))
    model = _model(request.model, request.frequencies_from)
    if isinstance(model.heterogeneity, SiteRates):
        raise ModelError("+PSR has no rates before there are data", hint="use +G4{0.5}")
    arrays = model.arrays()
    reporter(Notice(f"evolves under {format_model(model)}"))
    _refuse_large(request)
    rng = np.random.default_rng(request.seed)
    real = None if request.gaps_from is None else read_alignment(request.gaps_from)
    width = model.alphabet.width
    count = _count(request, None if real is None else real.n_sites // width)
    tree, taxa = _tree(request, rng, reporter)
    is_gap = None if real is None else gaps_like(real, taxa, count * width)
    evolve = sites if request.unique is None else distinct_sites
    characters = letters(evolve(tree, arrays, count, rng), model.alphabet)
    if is_gap is not None:
        characters[is_gap] = ord("-")
    text = write_alignment(taxa, characters, model.alphabet, file_format)
    contents = {out: gzip.compress(text, mtime=0) if out.suffix == ".gz" else text}
    if true_tree is not None:
        contents[true_tree] = (write_newick(tree, taxa) + "\n").encode()
    claim_files(written, inputs, request.redo)  # once more: another command may have been quicker
    write_together(contents)
    reporter(AlignmentWritten(str(out), file_format, *characters.shape))
    if true_tree is not None:
        reporter(TreesWritten(str(true_tree), 1, len(taxa)))
    files = {"out": request.out} | ({"true_tree": str(true_tree)} if true_tree else {})
    values = {"seed": request.seed, "taxa": len(taxa), "sites": characters.shape[1]}
    result = command_result("simulate", request.command, values, files, inputs, reporter)
    reporter.finish("simulate", result)


def _refuse_large(request: SimulationRequest) -> None:
    """Make sure that the memory holds what is asked for; raises InputError."""
    taxa = request.taxa or 1
    told = request.sites if request.unique is None else request.unique
    count = 1 if told is None else told
    if count < 1:
        raise InputError(f"{count} sites are no alignment", hint="--sites 1000")
    needed, room = taxa * (TAXON_BYTES + CHARACTER_BYTES * count), host_memory()
    if needed > room or taxa > MOST_TAXA:
        size = f"{taxa:,} taxa, {count:,} sites" if request.taxa else f"{count:,} sites"
        raise InputError(
            f"{size} take some {needed >> 20:,} MiB of memory, and there are {room >> 20:,} MiB",
            hint="fewer of them, please",
        )


def _model(text: str, alignment_path: str | None) -> Model:
    """The model, whose frequencies are counted where there is an alignment to count them in."""
    if alignment_path is None:
        return read_model(text)
    text = model_text(text)
    alignment = read_alignment(alignment_path, None, model_alphabet(text))
    return parse_model(text, alignment.alphabet).with_empirical_frequencies(compress(alignment))


def _tree(
    request: SimulationRequest, rng: np.random.Generator, reporter: Reporter
) -> tuple[Tree, tuple[str, ...]]:
    """The tree along which sequences evolve, and its taxa."""
    if request.tree is None:
        if request.taxa is None:
            raise InputError("--tree or --taxa is missing", hint="--taxa 50 draws a random tree")
        if request.taxa < MIN_TAXA:
            raise InputError(f"a tree needs at least {MIN_TAXA} taxa, not {request.taxa}")
        drawn = SHAPES[request.shape](request.taxa, request.mean_length, rng)
        return drawn, tuple(f"T{number}" for number in range(1, request.taxa + 1))
    if request.taxa is not None:
        raise InputError("--tree has its taxa: --taxa is for random trees")
    taxa = read_clades(request.tree).taxa
    refuse_few(taxa, request.tree)
    tree, notices = read_newick(request.tree, taxa)
    for notice in notices:
        reporter(Notice(f"{request.tree}: {notice}"))
    return tree, taxa


def _count(request: SimulationRequest, real_sites: int | None) -> int:
    """Sites: as many as asked for, or as the alignment has that gaps are taken from."""
    if request.unique is not None:
        if request.sites is not None:
            raise InputError("--sites and --unique exclude each other")
        return request.unique
    count = real_sites if request.sites is None else request.sites
    if count is None:
        raise InputError("--sites is missing", hint="or --gaps-from, which has as many as it has")
    return count
