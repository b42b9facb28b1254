"""What a search says of the branches of the tree that it has found: tests of them, replicates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from mltree.alignment.sequences import MIN_TAXA
from mltree.commands.bootstrap import Wanted, bootstrap_kinds
from mltree.commands.branch_tests import BRANCHES, LocalTests
from mltree.commands.ultrafast import ULTRAFAST_KINDS, WantedUltrafast, ultrafast_texts
from mltree.device.demand import Rows
from mltree.events import Emit
from mltree.events.trees import SupportsDrawn
from mltree.runs.computation import Afterwards
from mltree.runs.run import Found, TreeSearch
from mltree.tree.topology import Tree
from mltree.values import Value

__all__ = ["MODEL", "SUPPORT", "Draw", "Drawn", "Supports", "draw_supports"]

MODEL, SUPPORT = "bestModel", "support"
"""Kinds of the files with the search's model, and with the best tree and all its labels."""


class Supports(Value):
    """What is asked for."""

    tests: LocalTests | None = None
    bootstrap: Wanted | None = None
    ultrafast: WantedUltrafast | None = None

    @property
    def kinds(self) -> list[str]:
        """Of all files that are written for them.

        Raises:
            InputError: there is no such metric.
        """
        every = [SUPPORT, BRANCHES] if self.tests else []
        every += [SUPPORT, *ULTRAFAST_KINDS] if self.ultrafast else []
        return [*every, *(bootstrap_kinds(self.bootstrap) if self.bootstrap else ())]

    @property
    def cited(self) -> dict[str, int | None]:
        """What a methods paragraph tells of, in the order of labels, with the replicates it takes.

        None where it takes none, or where how many is told by the replicates themselves.
        """
        cited: dict[str, int | None] = {}
        if self.tests:
            cited |= self.tests.replicates_by_name
        if self.ultrafast:
            cited["UFBoot2"] = self.ultrafast.replicates
        metrics = self.bootstrap.metrics.split(",") if self.bootstrap else ()
        return cited | {metric.strip().upper(): None for metric in metrics}

    @property
    def afterwards(self) -> Afterwards:
        """What they compute when the search has ended."""
        return Afterwards(
            self.bootstrap.trees if self.bootstrap else 0,
            Rows(self.ultrafast.replicates if self.ultrafast else 0),
        )


class Draw(Protocol):
    """Writes a tree as its file has it."""

    def __call__(self, tree: Tree, labels: Mapping[int, str] | None = None) -> str:
        """In Newick, with labels by edge."""


@dataclass
class Drawn:
    """What was found."""

    newick: str
    """The best tree with every label but those of a second metric."""
    texts: dict[str, str] = field(default_factory=dict)
    """By kind of file."""
    told: list[SupportsDrawn] = field(default_factory=list)

    def add(self, texts: Mapping[str, str], told: Sequence[SupportsDrawn]) -> None:
        """More supports, the first of them on a tree that has the labels so far too."""
        self.texts |= texts
        self.newick = told[0].newick
        self.told += told


class Replicate(Protocol):
    """Searches for bootstrap replicates."""

    def __call__(self, wanted: Wanted, newick: str) -> tuple[dict[str, str], list[SupportsDrawn]]:
        """The texts of all files, and the supports, behind the labels of this tree."""


def draw_supports(
    asked: Supports,
    ready: TreeSearch,
    found: Found,
    seed: int,
    draw: Draw,
    replicate: Replicate,
    emit: Emit,
    keep: Callable[[Mapping[str, str]], object] = lambda _: None,
) -> Drawn:
    """Compute what was asked for, tell of it, and keep it: what follows may take days.

    keep  writes texts by kind of file
    """
    problem = ready.problem
    drawn = Drawn(draw(found.mean_tree))
    if asked.tests and len(problem.taxa) >= MIN_TAXA:
        tested = asked.tests.of(
            ready.computation.exact, found.tree, found.model, problem.groups, seed
        )
        drawn.newick = draw(found.mean_tree, tested.labels())
        drawn.told = tested.events(drawn.newick)
        for event in drawn.told:
            emit(event)
        drawn.texts = {SUPPORT: drawn.newick + "\n", BRANCHES: tested.table(problem.taxa)}
        keep(drawn.texts)
    if asked.ultrafast and len(ready.distinct.kept) >= MIN_TAXA:
        drawn.add(*ultrafast_texts(asked.ultrafast, ready, found, drawn.newick, seed, emit))
        keep(drawn.texts)
    if asked.bootstrap:
        drawn.add(*replicate(asked.bootstrap, drawn.newick))
    return drawn
