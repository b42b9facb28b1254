"""The search: starting trees in, the best tree and model out.

A search plays its acts (:mod:`mltree.search.acts`) step by step. A step is a function of one
:class:`SearchState` to the next, so that a checkpoint between any two steps is enough to go on with
the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mltree.errors import InputError, MltreeError
from mltree.events import Emit, Event, ignore
from mltree.events.search import SearchFinished, SearchResumed, StartTree, TreeScored
from mltree.model.partitioned import PartitionModel
from mltree.search.acts import Act, acts
from mltree.search.checkpoint import Checkpoint
from mltree.search.constraint import Constraint
from mltree.search.quest import Quest
from mltree.search.requests import Ask, SearchLikelihood, Steps, perform
from mltree.search.site_rates import group_patterns
from mltree.search.state import Lineage, Pool, SearchState, best_of
from mltree.settings import SearchSettings
from mltree.tree.topology import Tree
from mltree.values import Value

__all__ = [
    "SearchResult",
    "StartingTree",
    "beginning",
    "of_one_tree",
    "play",
    "search",
    "search_steps",
    "unfit_start",
]


class StartingTree(Value):
    """Where a lineage begins."""

    tree: Tree
    origin: str
    """``parsimony 1``, ``random 2``, ``user 1``."""


class SearchResult(Value):
    """The best tree found, under the optimised model."""

    tree: Tree
    model: PartitionModel
    lnl: float
    """Natural log."""
    pool: Pool
    """The distinct best trees of the search, lnLs as of when they were found."""
    rounds: int
    candidates: int
    moves: int


def search(
    likelihood: SearchLikelihood,
    starts: Sequence[StartingTree],
    model: PartitionModel,
    settings: SearchSettings,
    rng: np.random.Generator,
    emit: Emit = ignore,
    checkpoint: Checkpoint | None = None,
    constraint: Constraint | None = None,
    ask: Ask | None = None,
) -> SearchResult:
    """Search from all starts side by side; the trees given are not changed.

    ask  answers what the likelihood would otherwise

    Raises:
        InputError: a start violates the constraint, or the checkpoint belongs to another search.
    """
    for start in starts if constraint is not None else ():
        if constraint is not None and not constraint.satisfied(start.tree):
            raise unfit_start(start.origin)
    state = checkpoint.load(model) if checkpoint is not None else None
    if state is None:
        state = beginning(starts, model, settings, rng)
    elif checkpoint is not None:
        emit(SearchResumed(str(checkpoint.path), state.rounds, best_of(state.lineages).lnl))
        if state.ended is not None:
            emit(state.ended)
    quest = Quest(settings, state, emit, constraint)
    try:
        return perform(likelihood, search_steps(quest, checkpoint), ask)
    except MltreeError:  # of a rank, say, that has died
        if checkpoint is not None:
            checkpoint.rescue()
        raise


def unfit_start(origin: str) -> InputError:
    """Error of a start that violates the constraint."""
    return InputError(f"starting tree {origin} does not fit the constraint tree")


def beginning(
    starts: Sequence[StartingTree],
    model: PartitionModel,
    settings: SearchSettings,
    rng: np.random.Generator,
) -> SearchState:
    """The state before the first step."""
    lineages = [Lineage(start.tree.copy(), -np.inf, start.origin) for start in starts]
    first = min(settings.starts_at_once or len(lineages), len(lineages))
    return SearchState(
        lineages=lineages[:first],
        waiting=lineages[first:],
        starts=first,
        model=model,
        rng=rng,
        pool=Pool(settings.pool),
        fraction=settings.perturbation.fraction,
    )


def search_steps(quest: Quest, checkpoint: Checkpoint | None = None) -> Steps[SearchResult]:
    """A search from its state on, for whoever drives it."""
    state = quest.state
    yield from group_patterns(quest)
    in_parts, site_rates = state.model.n_parts > 1, state.model.has_site_rates
    every = acts(quest.settings, site_rates=site_rates, in_parts=in_parts)
    yield from play(quest, every, checkpoint)
    if checkpoint is not None:
        checkpoint.step(state, quest.emit, is_last=True)
    best = best_of(state.lineages)
    quest.emit(SearchFinished(best.lnl, state.rounds, state.candidates, state.moves))
    return SearchResult(
        best.tree, state.model, best.lnl, state.pool, state.rounds, state.candidates, state.moves
    )


def play(quest: Quest, every: Sequence[Act], checkpoint: Checkpoint | None = None) -> Steps[None]:
    """Acts in turn, from the one that is on."""
    state = quest.state
    while state.act < len(every):
        if checkpoint is not None:
            checkpoint.step(state, quest.emit)
        if (yield from every[state.act].step(quest)):
            state.act += 1
            state.entered = False
        else:
            state.entered = True


def of_one_tree(emit: Emit) -> Emit:
    """What is said of a given tree, whose optimisation is a search without rearrangements."""

    def tell(event: Event) -> None:
        if isinstance(event, StartTree):
            event = TreeScored(event.lnl)
        if not isinstance(event, SearchFinished):
            emit(event)

    return tell
