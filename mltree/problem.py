"""What a run starts from: the data, the model, and what is said about them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from mltree.alignment.alphabet import DNA, PROTEIN, Alphabet
from mltree.alignment.checks import AlignmentSummary, summarise
from mltree.alignment.formats import Alignment, read_alignment
from mltree.alignment.patterns import Patterns, compress
from mltree.alignment.source import expect_file, read_text
from mltree.errors import InputError, ModelError, NumericalError
from mltree.events import AlignmentLoaded, Emit, Notice
from mltree.model.grammar import default_model_name, parse_model
from mltree.model.substitution import Model
from mltree.report.tables import listed, warning_lines
from mltree.tree.conflicts import find_conflict
from mltree.tree.newick import read_newick
from mltree.tree.topology import Tree

__all__ = ["Problem", "check_possible", "load_problem", "read_problem", "read_tree"]


@dataclass(frozen=True)
class Problem:
    """The data and the model that a run starts from."""

    alignment: Alignment
    patterns: Patterns
    model: Model
    """Frequencies counted where the model asks for it."""
    summary: AlignmentSummary


def load_problem(path: str, model: str | None, emit: Emit, datatype: str | None = None) -> Problem:
    """The data and the model of a run, with a notice of whatever looks wrong in them.

    Raises:
        InputError: as `read_problem`, and where a taxon has nothing but gaps.
        ModelError: as `read_problem`.
    """
    problem = read_problem(path, model, datatype)
    summary = problem.summary
    emit(
        AlignmentLoaded(
            path=path,
            layout=summary.layout,
            data_type=summary.datatype,
            data_seen=summary.seen,
            taxa=summary.taxa,
            sites=summary.sites,
            patterns=summary.patterns,
            gap_share=summary.gap_share,
        )
    )
    if summary.gap_taxa:
        count = len(summary.gap_taxa)
        raise InputError(
            f"{count:,} {'taxon has' if count == 1 else 'taxa have'} nothing but gaps: "
            f"{listed(summary.gap_taxa)}",
            file=path,
            taxon=summary.gap_taxa[0],
            hint="no character tells where they belong: take them out",
        )
    for line in warning_lines(summary):
        emit(Notice(line))
    return problem


def read_problem(path: str, model: str | None, datatype: str | None = None) -> Problem:
    """Read an alignment and the model for it.

    ``datatype``: ``"dna"`` or ``"protein"`` whatever the data look like; else the model decides
    where it can.

    Raises:
        InputError: the alignment or the model file cannot be used.
        ModelError: the model string cannot be used.
    """
    text = None if model is None else _model_text(model)
    alignment = read_alignment(path, datatype, None if text is None else _alphabet_of(text))
    patterns = compress(alignment)
    name = default_model_name(alignment.alphabet) if text is None else text
    parsed = parse_model(name, alignment.alphabet).with_empirical_frequencies(patterns)
    parsed.arrays()
    return Problem(alignment, patterns, parsed, summarise(alignment, patterns))


_BRACED = re.compile(r"[{\[].*?([}\]]|$)")
_PATH = re.compile(r"[/\\]|\.[A-Za-z]\w*$|^\.")
"""What a model's string never has outside braces: a folder, or a file name's ending."""


def _model_text(text: str) -> str:
    """The model's string: the text itself, or the line of the file that it names."""
    if not _is_file(text):
        if _PATH.search(_BRACED.sub("", text)) and _alphabet_of(text) is None:
            expect_file(text)
        return text
    lines = [line for line in read_text(text).decode(errors="replace").split("\n") if line.strip()]
    if len(lines) != 1:
        raise InputError("a model file has one line", file=text, hint="as in .bestModel files")
    return lines[0]


def _is_file(text: str) -> bool:
    try:
        return Path(text).exists() and not Path(text).is_dir()
    except (OSError, ValueError):  # no name that a file could have
        return False


def _alphabet_of(model: str) -> Alphabet | None:
    """The alphabet that a model's string is for; None where the string is wrong."""
    for alphabet in (DNA, PROTEIN):
        try:
            parse_model(model, alphabet)
        except ModelError:
            continue
        return alphabet
    return None


def read_tree(path: str, problem: Problem, emit: Emit) -> Tree:
    """The tree in a file, with a notice of whatever had to be mended.

    Raises:
        InputError: there is none, or it is one of other taxa.
    """
    tree, notices = read_newick(path, problem.patterns.taxa)
    for notice in notices:
        emit(Notice(f"{path}: {notice}"))
    return tree


def check_possible(tree: Tree, patterns: Patterns) -> None:
    """Make sure that the data have a likelihood on a tree whose lengths stay as they are.

    Raises:
        NumericalError: they have none, for branches of length zero join what differs.
    """
    conflict = find_conflict(tree, patterns)
    if conflict is not None:
        names = " and ".join(patterns.taxa[tip] for tip in conflict.tips)
        raise NumericalError(
            f"the lnL is minus infinity: {names} exclude each other at site {conflict.site + 1}, "
            "and all branches between them are of length zero",
            hint="optimise the branch lengths, or give the tree others",
        )
