"""A locus: its data, as they are read, and its tree, as it is kept.

Taxa that have nothing but gaps are left out of its tree, and a locus that cannot be searched is
told of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from mltree.alignment.sequences import MIN_TAXA
from mltree.errors import InputError, ModelError, NumericalError
from mltree.events import Notice
from mltree.events.trees import LocusSkipped
from mltree.model.grammar import format_model
from mltree.model.substitution import arrays_of_all
from mltree.problem import Problem
from mltree.runs.journal import LineJournal
from mltree.search.checkpoint import fingerprint

__all__ = [
    "LociJournal",
    "Locus",
    "LocusTree",
    "Ready",
    "computable",
    "read_loci",
    "without_gaps",
]


@dataclass(frozen=True)
class Locus:
    """An alignment that has a tree of its own."""

    name: str
    read: Callable[[], Problem]
    """Its data and model; may raise what is wrong with them."""


class LocusTree(NamedTuple):
    """What the search of a locus found."""

    taxa: int
    sites: int
    patterns: int
    lnl: float
    """Natural log."""
    model: str
    tree_length: float
    """Expected substitutions per site."""
    newick: str
    """One line, without its end."""


class LociJournal(LineJournal[str, LocusTree]):
    """The loci that are done, by their :attr:`Ready.mark`."""

    FORMAT, WHAT, RECORD = "mltree loci 2", "loci", LocusTree


@dataclass(frozen=True)
class Ready:
    """A locus that has been read."""

    number: int
    """Among all, from 0."""
    name: str
    problem: Problem
    mark: str
    """Of its name, data and model."""


def read_loci(
    loci: Sequence[Locus], numbers: Iterable[int]
) -> Iterator[Ready | LocusSkipped | Notice]:
    """Those of these numbers that can be searched, and what is said of others."""
    for number in numbers:
        locus = loci[number]
        try:
            problem, dropped = without_gaps(locus.read())
        except (InputError, ModelError, NumericalError) as error:
            yield LocusSkipped(locus.name, number + 1, error.message)
            continue
        if dropped:
            left_out = "1 taxon" if dropped == 1 else f"{dropped} taxa"
            yield Notice(f"{locus.name}: left out {left_out} of nothing but gaps")
        patterns = problem.patterns
        mark = fingerprint(
            locus.name, "\n".join(problem.taxa), patterns.codes.tobytes(),
            patterns.weights.tobytes(), format_model(problem.model.lone),
        )  # fmt: skip
        yield Ready(number, locus.name, problem, mark)


def computable(loci: Sequence[Ready]) -> tuple[list[Ready], list[LocusSkipped]]:
    """Those whose models can be, what they stand for found at once; what is said of others."""
    try:
        arrays_of_all([locus.problem.model.lone for locus in loci])
    except (ModelError, NumericalError) as error:
        if len(loci) == 1:
            (locus,) = loci
            return [], [LocusSkipped(locus.name, locus.number + 1, error.message)]
        each = [computable([locus]) for locus in loci]
        return [one for own, _ in each for one in own], [one for _, own in each for one in own]
    return list(loci), []


def without_gaps(problem: Problem) -> tuple[Problem, int]:
    """The data without the taxa that have nothing but gaps, and how many those are.

    Raises:
        InputError: too few are left, or there is more than one part, or constant sites are missing.
    """
    if len(problem.groups) > 1 or problem.model.n_parts > 1:
        raise InputError("a locus has one model", hint="--separate makes every part a locus")
    patterns = problem.patterns
    if patterns.unseen:
        raise InputError("data without constant sites (+ASC) are searched one at a time")
    has = (patterns.codes != patterns.alphabet.gap_code).any(axis=1)
    kept = np.flatnonzero(has)
    if kept.size < MIN_TAXA:
        taxa = "taxon has" if kept.size == 1 else "taxa have"
        raise InputError(f"{kept.size} {taxa} characters: it takes {MIN_TAXA}")
    if kept.size == len(has):
        return problem, 0
    taxa_kept = tuple(patterns.taxa[tip] for tip in kept)
    patterns = replace(patterns, taxa=taxa_kept, codes=patterns.codes[kept])
    return replace(problem, groups=(patterns,)), int(len(has) - kept.size)
