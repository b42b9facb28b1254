"""Files of samples as BEAST writes them: the table .log, and .trees, trees in time with rates.

Tracer reads the table, TreeAnnotator, FigTree and IcyTree the trees. Both are written a piece at a
time, and read by :mod:`mltree.sampling.mrbayes_files`, as those of BEAST 2, BEAST X and others are.
"""

from __future__ import annotations

from collections.abc import Sequence

from mltree.dating.time_trees import TimeTree
from mltree.tree.newick import quoted

SAMPLE = "Sample"
"""Name of the first column of a .log file."""

TREES_END = "End;\n"
"""The last line of a .trees file; a file without it is one of a run that was stopped."""


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
