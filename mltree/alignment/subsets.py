"""Parts of an alignment put together: a scheme of fewer parts over the same sites."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

import numpy as np

from mltree.alignment.partitions import Partitioned
from mltree.alignment.parts import Part, Scheme
from mltree.alignment.patterns import Patterns, compress_parts
from mltree.errors import InputError

__all__ = ["merged", "only", "refuse_files", "side_by_side"]

Subsets = Sequence[Sequence[int]]
"""Numbers of parts, which are of one data type in each."""


def refuse_files(scheme: Scheme) -> None:
    """Make sure that any two parts can become one: that they are of one file.

    Raises:
        InputError: they are of several.
    """
    first, *others = scheme.parts
    for part in others:
        if part.file != first.file:
            raise scheme.error(
                f"parts {first.name} and {part.name} are of two files, and cannot be merged",
                part,
                "put all genes into one alignment",
            )


def merged(data: Partitioned, subsets: Subsets) -> Partitioned:
    """The same sites in fewer parts, each all of a subset's parts, in the order of their first.

    Raises: ValueError where a part is in no subset, or in two.
    """
    subsets = sorted(sorted(subset) for subset in subsets)
    if sorted(number for subset in subsets for number in subset) != list(range(len(data.parts))):
        raise ValueError("every part belongs in one subset")
    parts = _named([[data.parts[number] for number in subset] for subset in subsets])
    group_of = [data.group_of_part[subset[0]] for subset in subsets]
    groups, places = [], [0] * len(subsets)
    for number, group in enumerate(data.groups):
        own = [n for n, at in enumerate(group_of) if at == number]
        for place, n in enumerate(own):
            places[n] = place
        columns = [data.patterns(part).expand() for n in own for part in subsets[n]]
        ends = accumulate(parts[n].n_sites // group.alphabet.width for n in own)
        groups.append(
            compress_parts(group.taxa, np.concatenate(columns, axis=1), group.alphabet, [*ends])
        )
    has_data = np.array([data.has_data[subset].any(axis=0) for subset in subsets])
    return Partitioned(
        replace(data.scheme, parts=parts),
        tuple(groups),
        tuple(group_of),
        tuple(places),
        has_data,
        data.notices,
    )


def _named(subsets: Sequence[Sequence[Part]]) -> tuple[Part, ...]:
    """A part for each subset, named after its parts as by IQ-TREE: ``gene1_gene7``.

    Raises: InputError where that is another one's name.
    """
    parts = []
    for subset in subsets:
        name = "_".join(part.name for part in subset)
        runs = tuple(run for part in subset for run in part.runs)
        parts.append(replace(subset[0], name=name, runs=runs, model=None, scaler=None))
    names = [part.name for part in parts]
    for name in names:
        if names.count(name) > 1:
            hint = "give the parts other names"
            raise InputError(f"two subsets of parts would be called {name}", hint=hint)
    return tuple(parts)


def only(patterns: Patterns, parts: Sequence[int]) -> Patterns:
    """The patterns of some of the parts, still in parts; what sites have them is not known."""
    where = [patterns.parts[part] for part in parts]
    ends = tuple(accumulate(span.stop - span.start for span in where))
    return replace(
        patterns,
        codes=np.concatenate([patterns.codes[:, span] for span in where], axis=1),
        weights=np.concatenate([patterns.weights[span] for span in where]),
        site_pattern=np.empty(0, np.int32),
        ends=ends if len(ends) > 1 else (),
        unseen=(),
    )


def side_by_side(patterns: Patterns, parts: Sequence[int]) -> Patterns:
    """The patterns of some parts as those of one; what two of them share stands there twice."""
    return replace(only(patterns, parts), ends=())
