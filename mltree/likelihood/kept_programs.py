"""Programs that are kept, for trees of the same topologies ask for them again."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from mltree.likelihood.cases import Cases
from mltree.likelihood.program import Program
from mltree.tree.forest import Forest, Trees

__all__ = ["KeptPrograms"]

PROGRAMS_KEPT = 8
"""Programs of the latest topologies: model and branches are optimised in turn on one tree."""


class KeptPrograms:
    """The last programs. An engine knows one that it was given last time, and takes it in once."""

    def __init__(self) -> None:
        self._programs: dict[Hashable, Program] = {}

    def of(
        self,
        build: Callable[..., Program],
        trees: Trees,
        table: Cases,
        *arguments: Hashable,
    ) -> Program:
        """The program for trees of these topologies, whatever their lengths."""
        key = (build, arguments, table.key, *_topologies(trees))
        if key not in self._programs:
            if len(self._programs) == PROGRAMS_KEPT:
                del self._programs[next(iter(self._programs))]
            self._programs[key] = build(trees, *arguments, cases=table)
        return self._programs[key]


def _topologies(trees: Trees) -> tuple[Hashable, ...]:
    """What tells the topologies from others; that of trees which share their arrays but once."""
    if isinstance(trees, Forest):
        arrays = trees.n_tips, trees.n_branches, trees.twin, trees.edge
        return tuple(array.tobytes() for array in arrays)
    keys = [(id(tree.twin), id(tree.edge), tree.n_artificial) for tree in trees]
    unlike = dict(zip(keys, trees, strict=True))
    place = {key: number for number, key in enumerate(unlike)}
    told = (tree.twin.tobytes() + tree.edge.tobytes() for tree in unlike.values())
    artificial = tuple(tree.n_artificial for tree in unlike.values())
    return tuple(place[key] for key in keys), artificial, *told
