"""Files of samples as BEAST writes them: the table .log, and .trees, trees in time with rates.

Tracer reads the table, TreeAnnotator, FigTree and IcyTree the trees. Both are written a piece at a
time, and read by :mod:`mltree.sampling.mrbayes_files`, as those of BEAST 2, BEAST X and others are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from mltree.dating.time_trees import TimeTree
from mltree.sampling.mrbayes_files import SampleFormat
from mltree.sampling.sampler import Sample
from mltree.sampling.time_space import TimeSpace
from mltree.system import __version__
from mltree.tree.newick import quoted

SAMPLE = "Sample"
"""Name of the first column of a .log file."""

TREES_END = "End;\n"
"""The last line of a .trees file; a file without it is one of a run that was stopped."""

BEAST_NAMES = (
    (r"^alpha", "gammaShape"),
    (r"^pinvar", "proportionInvariant"),
    (r"^r\((.+)<->(.+)\)", r"rate\1\2"),
    (r"^pi\((.+)\)", r"freqParameter.\1"),
    (r"^m(?=\{)", "mutationRate"),
    (r"\{(\d+)\}$", r".\1"),
)
"""BEAST 2's names of a model's parameters."""


ALL_RATES = ("AC", "AG", "AT", "CG", "CT", "GT")
"""Exchangeabilities of GTR."""


def log_head(columns: Sequence[str], comments: Sequence[str] = ()) -> str:
    """The beginning of a .log file: comments, and the names of the columns."""
    lines = [*(f"# {comment}" for comment in comments), "\t".join((SAMPLE, *columns))]
    return "\n".join(lines) + "\n"


def log_line(sample: int, values: Sequence[float]) -> str:
    """A sample in a .log file; every value has all its digits."""
    return "\t".join([str(sample), *(repr(float(value)) for value in values)]) + "\n"


def trees_head(taxa: Sequence[str]) -> str:
    """The beginning of a .trees file, in which tips are numbers from 1."""
    names = [quoted(taxon) for taxon in taxa]
    labels = "".join(f"\t\t{name}\n" for name in names)
    numbers = ",\n".join(f"\t\t{number} {name}" for number, name in enumerate(names, 1))
    return (
        f"#NEXUS\n\nBegin taxa;\n\tDimensions ntax={len(taxa)};\n\tTaxlabels\n{labels}\t\t;\nEnd;\n"
        f"Begin trees;\n\tTranslate\n{numbers}\n;\n"
    )


def tree_line(sample: int, tree: TimeTree, log_posterior: float | None = None) -> str:
    """A sample in a .trees file, with rates as ``[&rate=...]`` in front of lengths in time."""
    numbers = [str(number) for number in range(1, tree.n_tips + 1)]
    note = "" if log_posterior is None else f" [&lnP={float(log_posterior)!r}]"
    return f"tree STATE_{sample}{note} = [&R] {tree.newick(numbers)}\n"


class TimeFormat(SampleFormat):
    """Samples of time trees as BEAST writes them."""

    end = TREES_END

    def __init__(self, labels: Sequence[str], space: TimeSpace) -> None:
        super().__init__(labels)
        self._space = space
        self._units = _units_of(labels)
        units = set(self._units.values())
        self._kept = [at for at in range(len(labels)) if at not in units]

    def kinds(self, run: int) -> list[str]:
        """Kinds of a run's files, the table first."""
        return [f"run{run}.log", f"run{run}.trees"]

    def heads(self, taxa: Sequence[str], seed: int) -> tuple[str, ...]:
        """The beginnings of both files."""
        columns = ("posterior", "likelihood", "prior", *self._space.labels)
        columns += tuple(_name_in_beast(self._labels[at]) for at in self._kept)
        comments = [f"mltree {__version__}, seed {seed}"]
        return log_head(columns, comments), trees_head(taxa)

    def lines(self, one: Sample) -> tuple[str, ...]:
        """A sample in both files."""
        posterior = one.lnl + one.log_prior
        own = one.values.copy()
        for at, unit in self._units.items():
            own[at] /= one.values[unit]
        values = [posterior, one.lnl, one.log_prior, *self._space.values(one.words)]
        values += own[self._kept].tolist()
        tree = self._space.time_tree(one.words)
        return (
            log_line(one.iteration, values),
            tree_line(one.iteration, tree, posterior),
        )


def _units_of(labels: Sequence[str]) -> dict[int, int]:
    """GTR's exchangeabilities by number, each with that of C and T, which BEAST has as the unit."""
    found: dict[int, int] = {}
    for unit, label in enumerate(labels):
        if label.startswith("r(C<->T)"):
            alike = re.compile(r"r\(\w<->\w\)" + re.escape(label.removeprefix("r(C<->T)")))
            own = [at for at, one in enumerate(labels) if alike.fullmatch(one)]
            if len(own) == len(ALL_RATES):
                found |= dict.fromkeys(set(own) - {unit}, unit)
    return found


def _name_in_beast(label: str) -> str:
    """The name of a model's parameter in BEAST's tables."""
    for pattern, name in BEAST_NAMES:
        label = re.sub(pattern, name, label)
    return label
