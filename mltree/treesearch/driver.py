"""The search: starting trees in, the best tree and model out.

A search plays its acts (:mod:`mltree.treesearch.driver`) step by step. A step is a function of one
:class:`SearchState` to the next, so that a checkpoint between any two steps is enough to go on with
the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from mltree.fit.alternation import alternate
from mltree.fit.model_optimiser import best_fit, optimise_models
from mltree.fit.settings import PhaseSettings, SearchSettings
from mltree.likelihood.requests import Ask, SearchLikelihood, Steps, part_log_likelihoods, perform
from mltree.models.partitioned import PartitionModel
from mltree.system.errors import InputError, MltreeError
from mltree.system.events import (
    Emit,
    Event,
    Notice,
    PhaseStarted,
    SearchFinished,
    SearchResumed,
    StartsEnded,
    StartTree,
    TreePerturbed,
    TreeScored,
    TreesCulled,
    ignore,
)
from mltree.system.values import Value
from mltree.tree.topology import Tree
from mltree.treesearch.checkpoint import Checkpoint, Lineage, Pool, SearchState, best_of, shapes
from mltree.treesearch.constraint import Constraint
from mltree.treesearch.quest import Quest, fallen_back, next_fraction, perturbed_copies
from mltree.treesearch.site_rates import FitSiteRates, group_patterns

# What a search does, act by act (docs/search.md, "A plan").
#
# An act is one or more *steps*; a step is a launch's worth of work (a smoothing, an SPR round over
# all trees) and turns one :class:`SearchState` into the next.


class Act(Protocol):
    """What is done in one or more steps."""

    def step(self, quest: Quest) -> Steps[bool]:
        """One step; True when the act is over."""


class Smooth(Value):
    """Branch lengths of every tree."""

    epsilon: float
    opens: bool = False
    """Whether nothing was known of the trees before."""

    def step(self, quest: Quest) -> Steps[bool]:
        """In one step."""
        lineages = quest.state.lineages
        yield from quest.smooth(lineages, self.epsilon)
        for lineage in lineages if self.opens else ():
            quest.emit(StartTree(lineage.origin, lineage.lnl))
        return True


class Score(Value):
    """Every tree as it is, before anything moves: where its lengths come from is near a maximum.

    Branches of no length get the shortest: sequences that differ across them have no likelihood.
    """

    def step(self, quest: Quest) -> Steps[bool]:
        """In one step."""
        lineages = quest.state.lineages
        trees = [lineage.tree for lineage in lineages]
        for tree in trees:
            lengths = tree.lengths[..., : tree.n_branches]
            lengths[lengths == 0.0] = quest.settings.branches.minimum
        lnls = yield from part_log_likelihoods(trees, [quest.case] * len(trees))
        for lineage, lnl in zip(lineages, lnls.sum(axis=1).tolist(), strict=True):
            lineage.lnl = lnl
            quest.emit(StartTree(lineage.origin, lnl))
        return True


class OptimiseModel(Value):
    """Model parameters on the best tree; the others' lnLs are stale until they are smoothed."""

    def step(self, quest: Quest) -> Steps[bool]:
        """In one step, from every start that a model has."""
        settings = quest.settings
        best = best_of(quest.state.lineages)
        fits = quest.fits(best)
        epsilon = settings.model.rough_epsilon
        yield from optimise_models(fits, settings.model, settings.branches, epsilon)
        quest.adopt(best, best_fit(fits))
        return True


class Rearrange(Value):
    """SPR rounds until no tree gains."""

    phase: PhaseSettings
    number: int
    """Of the phase, from 1."""

    def step(self, quest: Quest) -> Steps[bool]:
        """A round."""
        state = quest.state
        if not state.entered:
            for lineage in state.lineages:
                lineage.active, lineage.rounds = True, 0
            radius, cut = self.phase.radius, self.phase.cut
            state.explored.enter(self.phase)
            quest.emit(PhaseStarted(self.number, radius, cut, len(state.lineages)))
        over = yield from quest.round(state.lineages, self.phase)
        if over and self.number == 1:
            over = not (yield from quest.admit())
        return over


class Cull(Value):
    """Starts that cannot catch up are dropped."""

    def step(self, quest: Quest) -> Steps[bool]:
        """Without any likelihood."""
        state = quest.state
        for lineage in state.lineages:
            state.pool.add(lineage.tree, lineage.lnl)
        kept = survivors(state.lineages, quest.settings)
        if len(state.lineages) > 1:
            quest.emit(TreesCulled(len(kept), len(state.lineages) - len(kept)))
        if state.waiting:
            number, agreed = len(state.waiting), kept[0].starts
            others = "1 other is" if number == 1 else f"{number} others are"
            quest.emit(Notice(f"{agreed} starts agree; {others} not searched"))
        state.lineages, state.waiting = kept, []
        yield from ()
        return True


class EndStarts(Value):
    """The best tree goes on alone, and it is told how many starts led to it."""

    def step(self, quest: Quest) -> Steps[bool]:
        """Without any likelihood."""
        state = quest.state
        ended = sum(lineage.starts for lineage in state.lineages)
        for lineage in state.lineages:
            state.pool.add(lineage.tree, lineage.lnl)
        reached = quest.reached(state.lineages)
        if reached >= quest.settings.agreement:
            settings = quest.settings.perturbation
            state.returned = int(settings.agreement_share * settings.returns)
        state.ended = StartsEnded(state.starts, ended, reached)
        quest.emit(state.ended)
        state.lineages = [best_of(state.lineages)]
        yield from ()
        return True


class Perturb(Value):
    """Batches of perturbed copies of the best tree."""

    refit: tuple[Act, ...] = ()
    """What follows where a copy has become the best tree, so that its model is not another's."""

    def step(self, quest: Quest) -> Steps[bool]:
        """A batch set up, or a round on it; over after batches in a row that brought nothing."""
        state, settings = quest.state, quest.settings.perturbation
        if not state.copies:
            if self._is_over(quest):
                return True
            state.explored.enter(settings.phase)
            state.copies = perturbed_copies(
                state.lineages[0], settings, state.fraction, state.rng, quest.constraint
            )
            yield from quest.smooth(state.copies, quest.settings.rounds.smooth_epsilon)
            return False
        if (yield from quest.round(state.copies, settings.phase)) and self._accept(quest):
            for act in self.refit:
                yield from act.step(quest)
        return not state.copies and self._is_over(quest)

    def _is_over(self, quest: Quest) -> bool:
        """Whether further copies are not worth their time."""
        state, settings = quest.state, quest.settings.perturbation
        return state.failures >= settings.patience or state.returned >= settings.returns

    def _accept(self, quest: Quest) -> bool:
        """Replace the best tree by a better copy, and end the batch; whether much was gained."""
        state, settings = quest.state, quest.settings.perturbation
        best = state.lineages[0]
        for copy in state.copies:
            state.pool.add(copy.tree, copy.lnl)
        shape, *others = quest.shapes([best, *state.copies])
        same = [other == shape for other in others]
        fell_back = fallen_back(state.copies, same, best, quest.settings.rounds.min_gain)
        better = [copy for copy in state.copies if copy.lnl > best.lnl + settings.min_gain]
        state.batches += 1
        gained = any(copy.lnl > best.lnl + quest.settings.rounds.min_gain for copy in better)
        state.failures = 0 if gained else state.failures + 1
        state.returned = 0 if gained else state.returned + fell_back
        state.fraction = next_fraction(state.fraction, fell_back, settings)
        state.lineages = [best_of([best, *better])]
        lnl = state.lineages[0].lnl
        quest.emit(TreePerturbed(state.batches, len(state.copies), len(better), lnl))
        state.copies = []
        return gained


class Finish(Value):
    """Model and branch lengths in turn, up to a maximum: of the best tree and of its rivals.

    A search goes by one model, its best tree's. Where data say little of it, a rival may be better
    under a model of its own, and so may trees that were passed over. Where nothing has moved since
    the last time, nothing is left to do.
    """

    looks_again: bool = False
    """Whether the phase before it is played again where that gained a round's worth."""

    def step(self, quest: Quest) -> Steps[bool]:
        """In one step."""
        state, settings = quest.state, quest.settings
        if state.moves == state.finished:
            return True
        state.finished = state.moves
        best = best_of(state.lineages)
        state.lineages = [best]
        rivals = (yield from quest.rivals(best)) if self.looks_again else []
        fits = quest.contenders(best)
        fits += [fit for rival in rivals for fit in quest.fits(rival)]
        fits[0].lnl = before = best.lnl
        found = yield from alternate(fits, settings, quest.emit)
        quest.adopt(best, found)
        state.pool.add(best.tree, best.lnl)
        if self.looks_again and best.lnl > before + settings.phases[-1].min_round_gain:
            state.act -= 2  # one is added where an act is over
        return True


def acts(
    settings: SearchSettings, *, site_rates: bool = False, in_parts: bool = False
) -> tuple[Act, ...]:
    """The acts of a search; with rates of sites it ends near a maximum, for it is but a means.

    A tree that stays is fitted from its own lengths; but models of parts, from the best that each
    has, side by side.
    """
    if not settings.phases and not site_rates and not in_parts:
        return Score(), Finish()
    smooth = Smooth(settings.rounds.smooth_epsilon)
    rates: tuple[Act, ...] = (FitSiteRates(),) if site_rates else ()
    between: tuple[Act, ...] = (*rates, OptimiseModel(), smooth)
    every: list[Act] = [
        Smooth(settings.first_smooth_epsilon, opens=True),
        *rates,
        OptimiseModel(),
        smooth,
    ]
    for number, phase in enumerate(settings.phases, 1):
        every.append(Rearrange(phase, number))
        if number == 1:
            every.append(Cull())
        if number < len(settings.phases):
            every.extend(between)
    if settings.phases:
        every.append(EndStarts())
    further = _perturbation(settings, () if site_rates else (OptimiseModel(), smooth))
    if further:
        every.extend((*between, *further))
    if not site_rates:
        every.append(Finish(looks_again=bool(further)))
    elif not settings.phases:
        every.extend(between)
    return tuple(every)


def replicate_acts(settings: SearchSettings) -> tuple[Act, ...]:
    """The acts of a bootstrap replicate, whose model is given: a search without its model's."""
    return (
        Smooth(settings.first_smooth_epsilon),
        Smooth(settings.rounds.smooth_epsilon),
        *(Rearrange(phase, number) for number, phase in enumerate(settings.phases, 1)),
        EndStarts(),
        *_perturbation(settings),
        Smooth(settings.rounds.trial_epsilon),
    )


def _perturbation(settings: SearchSettings, refit: tuple[Act, ...] = ()) -> tuple[Act, ...]:
    """Batches of copies, and a last look around the best tree, which forgets what copies taught."""
    if settings.perturbation.patience == 0:
        return ()
    last = [Rearrange(phase, n) for n, phase in enumerate(settings.phases, 1)][-1:]
    return (Perturb(refit), *last)


def survivors(lineages: list[Lineage], settings: SearchSettings) -> list[Lineage]:
    """The starts that can still win: distinct, near the best, and not too many; best first.

    A start goes on if it lies within ``cull_margin`` of the best, or in the better part
    (``cull_factor``) of the range between the best and the worst.
    """
    ranked = sorted(lineages, key=lambda lineage: -lineage.lnl)
    best, worst = ranked[0].lnl, ranked[-1].lnl
    floor = best - max(settings.cull_margin, settings.cull_factor * (best - worst))
    kept: dict[int, Lineage] = {}
    keys = shapes(ranked, settings.perturbation.free_length)
    for lineage, key in zip(ranked, keys, strict=True):
        if key in kept:
            kept[key].starts += lineage.starts
        elif lineage.lnl >= floor:
            kept[key] = lineage
    return list(kept.values())[: settings.max_survivors]


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
