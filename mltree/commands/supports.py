"""What a search says of the branches of the tree that it has found: tests of them, replicates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from mltree.commands.bootstrap import (
    JOURNAL,
    Wanted,
    bootstrap_kinds,
    finished,
    replicate_settings,
    replicated,
)
from mltree.commands.branch_tests import BRANCHES, FEWEST_TAXA, LocalTests
from mltree.commands.ultrafast import ULTRAFAST_KINDS, WantedUltrafast, ultrafast_texts
from mltree.events import Emit
from mltree.events.trees import SupportsDrawn
from mltree.log import RunLog
from mltree.model.partitioned import Linkage
from mltree.problem import read_problem
from mltree.report.progress import Reporter
from mltree.runs.bootstrap import bootstrap_after
from mltree.runs.journal import Journal
from mltree.runs.run import Found, TreeSearch
from mltree.tree.newick_clades import read_labelled
from mltree.tree.topology import Tree

if TYPE_CHECKING:
    from mltree.commands.search import SearchRequest

__all__ = ["MODEL", "SUPPORT", "Draw", "Drawn", "Supports", "draw_supports", "replicates_of"]

MODEL, SUPPORT = "bestModel", "support"
"""Kinds of the files with the search's model, and with the best tree and all its labels."""


@dataclass(frozen=True)
class Supports:
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
    def cited(self) -> list[str]:
        """What a methods paragraph tells of, in the order of labels."""
        names = [
            *(self.tests.names if self.tests else ()),
            *(["UFBoot2"] if self.ultrafast else ()),
        ]
        metrics = self.bootstrap.metrics.split(",") if self.bootstrap else ()
        return [*names, *(metric.strip().upper() for metric in metrics)]

    @property
    def trees_at_once(self) -> int:
        """Trees that are searched side by side when the search has ended."""
        return self.bootstrap.trees if self.bootstrap else 0


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
) -> Drawn:
    """Compute what was asked for and tell of it."""
    problem = ready.problem
    drawn = Drawn(draw(found.mean_tree))
    if asked.tests and len(problem.taxa) >= FEWEST_TAXA:
        tested = asked.tests.of(
            ready.computation.exact, found.tree, found.model, problem.groups, seed
        )
        drawn.newick = draw(found.mean_tree, tested.labels())
        drawn.told = tested.events(drawn.newick)
        for event in drawn.told:
            emit(event)
        drawn.texts = {SUPPORT: drawn.newick + "\n", BRANCHES: tested.table(problem.taxa)}
    if asked.ultrafast and len(ready.distinct.kept) >= FEWEST_TAXA:
        drawn.add(*ultrafast_texts(asked.ultrafast, ready, found, drawn.newick, seed, emit))
    if asked.bootstrap:
        drawn.add(*replicate(asked.bootstrap, drawn.newick))
    return drawn


def replicates_of(
    request: SearchRequest,
    ready: TreeSearch,
    log: RunLog,
    reporter: Reporter,
    found: Found,
    wanted: Wanted,
    newick: str,
) -> tuple[dict[str, str], list[SupportsDrawn]]:
    """The bootstrap that follows, under the model as the search has written it.

    So ``mltree bootstrap`` can add to it, given that file. Under rates of sites, which no file has,
    the search itself can.
    """
    written = str(request.outputs.path(MODEL))
    linkage = Linkage(request.linkage)
    model = found.per_site or (
        read_problem(request.alignment, written, request.datatype, linkage).model
    )
    settings = replicate_settings(request.nni_only)
    bootstrap = bootstrap_after(ready, model, settings, request.seed)
    best, before = read_labelled(newick)
    with Journal(request.outputs.path(JOURNAL)) as journal:
        texts, told, outcome = replicated(
            bootstrap, wanted, journal, best, request, log, reporter, before
        )
    reporter(finished(outcome))
    return texts, told
