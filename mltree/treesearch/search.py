"""The search: starting trees in, the best tree and its model out.

:func:`tree_search` is the whole search on one page, in the order of the table in docs/search.md, "A
plan". Its *steps* follow in the order in which they are called. A step is a launch's worth of work
(a smoothing, an SPR round on all candidate trees); it turns one :class:`.checkpoint.SearchState`
into the next, so that a checkpoint between any two steps is enough to go on with the same bits.
Steps that need no likelihood are generators too, of no requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

import numpy as np

from mltree.fit.coordinate_ascent import ascend_best
from mltree.fit.fits import best_fit
from mltree.fit.model_optimiser import optimise_models
from mltree.fit.settings import ALIKE_ENDS, HARD_IN_COMPANY, PhaseSettings, SearchSettings
from mltree.likelihood.likelihood import TreeLikelihood
from mltree.likelihood.requests import Ask, Steps, part_log_likelihoods, perform
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
from mltree.treesearch.checkpoint import (
    CandidateTree,
    Checkpoint,
    Landscape,
    Pool,
    SearchState,
    best_of,
    shapes,
)
from mltree.treesearch.constraint import Constraint
from mltree.treesearch.search_context import (
    SearchContext,
    fallen_back,
    fit_site_rates,
    group_patterns,
    next_fraction,
    perturbed_copies,
)


def tree_search(search: SearchContext) -> Steps[None]:
    """Search for the best tree and its model, from the step on that the state names."""
    settings, step = search.settings, search.step
    if search.only_fits:
        yield from step("score", score(search))
        yield from step("finish", finish(search))
        return
    yield from search_to_an_end(search)
    while settings.starts_in_turn and (yield from step("next turn", next_turn(search))):
        yield from search_to_an_end(search)
    if search.has_site_rates:  # near a maximum is enough: other models begin at its tree
        if not (settings.phases or settings.perturbs):
            yield from fit_model(search, "at the end")
        return
    while (yield from step("finish", finish(search, looks_again=settings.perturbs))):
        yield from last_look(search)


def search_to_an_end(search: SearchContext) -> Steps[None]:
    """Search from the starts at hand to one end; starts that have one already are passed by."""
    if search.state.ended is None:
        yield from climb(search)
        while search.asks_ends and (yield from search.step("next starts", next_starts(search))):
            yield from climb(search)
        if search.settings.phases:
            yield from search.step("end starts", end_starts(search))
    if search.settings.perturbs:
        yield from fit_model(search, "before perturbation")
        yield from perturb(search, refits=not search.has_site_rates)
        yield from last_look(search)


def climb(search: SearchContext) -> Steps[None]:
    """Search from the starts at hand to their ends."""
    yield from search.step("smooth starts", smooth_starts(search))
    yield from fit_model(search, "of starts", search.settings.first_smooth_epsilon)
    for number, phase in enumerate(search.settings.phases, 1):
        if number > 1:
            yield from fit_model(search, f"before phase {number}")
            if search.asks_ends:
                yield from search.step(f"join before phase {number}", join_landscapes(search))
        yield from rearrange(search, f"phase {number}", number, phase)
        if number == 1:
            yield from search.step("cull", cull(search))


def replicate_search(search: SearchContext) -> Steps[None]:
    """Search for the best tree of a bootstrap replicate, whose model is given."""
    settings, step = search.settings, search.step
    yield from step("smooth starts", smooth_starts(search))
    yield from step("smooth", smooth(search))
    for number, phase in enumerate(settings.phases, 1):
        yield from rearrange(search, f"phase {number}", number, phase)
    yield from step("end starts", end_starts(search))
    if settings.perturbs:
        yield from perturb(search)
        yield from last_look(search)
    yield from step("smooth at the end", smooth(search, settings.rounds.full_epsilon))


def fit_model(search: SearchContext, when: str, epsilon: float | None = None) -> Steps[None]:
    """Fit the model to the best tree, until a step promises less, and then all branch lengths."""
    if search.has_site_rates:
        yield from search.step(f"site rates {when}", fit_site_rates(search))
    yield from search.step(f"model {when}", optimise_model(search, epsilon))
    yield from search.step(f"smooth {when}", smooth(search))


def rearrange(search: SearchContext, name: str, number: int, phase: PhaseSettings) -> Steps[None]:
    """Repeat the SPR rounds of a phase, ``number`` from 1, until no candidate tree gains."""
    while (yield from search.step(name, phase_round(search, number, phase))):
        pass


def last_look(search: SearchContext) -> Steps[None]:
    """Repeat the last phase, around the best tree."""
    phases = search.settings.phases
    yield from rearrange(search, "last look", len(phases), phases[-1])


def perturb(search: SearchContext, *, refits: bool = False) -> Steps[None]:
    """Repair batches of perturbed copies of the best tree until they bring nothing.

    ``refits``: fit the model to a copy that gained much, so that its model is not another tree's.
    """
    state, settings = search.state, search.settings.perturbation
    while state.failures < settings.patience and state.returned < settings.returns:
        yield from search.step("copy", copy_best(search))
        while (yield from search.step("repair", repair_round(search))):
            pass
        yield from search.step("accept", accept_copies(search))
        if refits and state.batches > 0 and state.failures == 0:
            yield from search.step("refit", optimise_model(search))
            yield from search.step("smooth refitted", smooth(search))


# The steps, in the order in which they are first taken.


def score(search: SearchContext) -> Steps[None]:
    """Score every tree as it is, where lengths may be near a maximum that smoothing would leave.

    Branches of length zero get the shortest length: sequences that differ across them have no
    likelihood.
    """
    candidates = search.state.candidates
    trees = [candidate.tree for candidate in candidates]
    for tree in trees:
        lengths = tree.lengths[..., : tree.n_branches]
        lengths[lengths == 0.0] = search.settings.branches.minimum
    lnls = yield from part_log_likelihoods(trees, search.cases(candidates))
    for candidate, lnl in zip(candidates, lnls.sum(axis=1).tolist(), strict=True):
        candidate.lnl = lnl
        search.emit(StartTree(candidate.origin, lnl))


def smooth_starts(search: SearchContext) -> Steps[None]:
    """Optimise all branch lengths of the first starts, roughly."""
    candidates = search.state.candidates
    yield from search.smooth(candidates, search.settings.first_smooth_epsilon)
    for candidate in candidates:
        search.emit(StartTree(candidate.origin, candidate.lnl))


def smooth(search: SearchContext, epsilon: float | None = None) -> Steps[None]:
    """Optimise all branch lengths of every candidate tree, until a pass gains less (lnL)."""
    epsilon = search.settings.rounds.smooth_epsilon if epsilon is None else epsilon
    yield from search.smooth(search.state.candidates, epsilon)


def optimise_model(search: SearchContext, epsilon: float | None = None) -> Steps[None]:
    """Optimise each landscape's model on its best tree, from every start that its rates may need.

    The lnLs of the other trees are stale until they are smoothed.
    """
    model, branches = search.settings.model, search.settings.branches
    leaders = search.leaders()
    fits = [search.fits(best) for best in leaders]
    epsilon = model.rough_epsilon if epsilon is None else epsilon
    yield from optimise_models([*chain(*fits)], model, branches, epsilon)
    for best, of_one in zip(leaders, fits, strict=True):
        search.adopt(best, best_fit(of_one))
    search.tell_model()


def phase_round(search: SearchContext, number: int, phase: PhaseSettings) -> Steps[bool]:
    """Do an SPR round of a phase on all candidate trees; True while another may gain.

    In the first phase further starts are let in once those before them rest.
    """
    state = search.state
    if state.phase_rounds == 0:
        for candidate in state.candidates:
            candidate.active, candidate.rounds = True, 0
        for landscape in {candidate.landscape for candidate in state.candidates}:
            state.landscapes[landscape].cache.enter(phase)
        search.emit(PhaseStarted(number, phase.radius, phase.cut, len(state.candidates)))
    search.rest_alike()
    goes_on = yield from search.round(state.candidates, phase)
    if not goes_on and number == 1:
        goes_on = yield from search.admit()
    state.phase_rounds = state.phase_rounds + 1 if goes_on else 0
    return goes_on


def cull(search: SearchContext) -> Steps[None]:
    """Drop the starts that cannot catch up, and those whose turn has not come."""
    state = search.state
    search.pool(state.candidates)
    kept = survivors(state.candidates, search.settings)
    if len(state.candidates) > 1:
        search.emit(TreesCulled(len(kept), len(state.candidates) - len(kept)))
    if state.waiting and not (search.asks_ends or search.settings.starts_in_turn):
        number, agreed = len(state.waiting), kept[0].starts
        search.emit(Notice(f"{agreed} starting trees led to the same tree; {number} skipped"))
        state.waiting = []
    state.candidates = kept
    yield from ()


def survivors(candidates: list[CandidateTree], settings: SearchSettings) -> list[CandidateTree]:
    """Return the starts that can still win: distinct, near the best, not too many; best first.

    A start goes on if its lnL lies within ``cull_margin`` of the best, or in the better part
    (``cull_factor``) of the range between the best and the worst. Starts in landscapes of their own
    are behind so far, since their models are those of bad trees: the best few go on as they are.
    """
    ranked = sorted(candidates, key=lambda candidate: -candidate.lnl)
    best, worst = ranked[0].lnl, ranked[-1].lnl
    floor = best - max(settings.cull_margin, settings.cull_factor * (best - worst))
    kept: dict[int, CandidateTree] = {}
    keys = shapes(ranked, settings.perturbation.free_length)
    for candidate, key in zip(ranked, keys, strict=True):
        if key in kept:
            kept[key].starts += candidate.starts
        elif candidate.lnl >= floor or candidate.landscape:
            kept[key] = candidate
    shared = [one for one in kept.values() if not one.landscape]
    alone = [one for one in kept.values() if one.landscape]
    few = max(settings.max_survivors, settings.random_starts)
    return [*shared[: settings.max_survivors], *alone[:few]]


def join_landscapes(search: SearchContext) -> Steps[None]:
    """Let candidates as good under the best tree's model go on in its landscape.

    They need not look again at what was rejected there.
    """
    state, settings = search.state, search.settings
    best = best_of([*state.ended_starts, *state.candidates])
    others = [one for one in state.candidates if one.landscape != best.landscape]
    copies = [replace(one.copy(), landscape=best.landscape) for one in others]
    if copies:
        yield from search.smooth(copies, settings.rounds.smooth_epsilon)
    for one, there in zip(others, copies, strict=True):
        if there.lnl > one.lnl - settings.model_margin:
            one.tree, one.lnl, one.landscape = there.tree, there.lnl, there.landscape


def next_starts(search: SearchContext) -> Steps[bool]:
    """Take up the next starts; False where those before say that none is likely to end higher.

    Then all that ended are candidates.
    """
    state, settings = search.state, search.settings
    search.pool(state.candidates)
    ended = [*state.ended_starts, *state.candidates]
    lnls = [one.lnl for one in ended for _ in range(one.starts)]
    if goes_on := bool(state.waiting) and chance_of_better(lnls) > settings.chance:
        count = settings.starts_at_once or len(state.waiting)
        if settings.starts_as_needed:
            count = min(starts_lacking(lnls, settings.chance), HARD_IN_COMPANY)
        state.candidates, state.waiting = state.waiting[:count], state.waiting[count:]
        state.ended_starts = ended
        state.starts += len(state.candidates)
    else:
        if state.waiting:
            spared = len(state.waiting)
            search.emit(Notice(f"{len(lnls)} starting trees ended alike; {spared} skipped"))
        state.candidates, state.waiting, state.ended_starts = ended, [], []
    yield from ()
    return goes_on


def chance_of_better(lnls: Sequence[float]) -> float:
    """Estimate the chance that another start ends higher than ``lnls``, one or more.

    Of N starts with w different ends, w (w + 1) / (N (N - 1)) are expected to lead to another end
    (Boender & Rinnooy Kan 1987), which is the best with a chance of 1 / (w + 1). Ends up to
    ``ALIKE_ENDS`` below another are one with it.
    """
    return _chance(len(lnls), _ends(lnls))


def starts_lacking(lnls: Sequence[float], chance: float) -> int:
    """Count the starts after which the chance is no larger, if all end as others before did."""
    ends, starts = _ends(lnls), len(lnls)
    while _chance(starts, ends) > chance:
        starts += 1
    return starts - len(lnls)


def _ends(lnls: Sequence[float]) -> int:
    """Count the ends of starts that do not count as alike."""
    ends, floor = 0, np.inf
    for lnl in sorted(lnls, reverse=True):
        if lnl < floor:
            ends, floor = ends + 1, lnl - ALIKE_ENDS
    return ends


def _chance(starts: int, ends: int) -> float:
    return ends / (starts * (starts - 1)) if starts > 1 else 1.0


def end_starts(search: SearchContext) -> Steps[None]:
    """Go on with the best tree alone, fused with others, and report how many starts led to it."""
    state, perturbation = search.state, search.settings.perturbation
    ended = sum(candidate.starts for candidate in state.candidates)
    search.pool(state.candidates)
    reached = search.reached(state.candidates)
    if reached >= search.settings.agreement:
        state.returned = int(perturbation.agreement_share * perturbation.returns)
    state.ended = StartsEnded(state.starts, ended, reached)
    search.emit(state.ended)
    state.candidates = [(yield from search.fused(state.candidates))]


def next_turn(search: SearchContext) -> Steps[bool]:
    """Keep the best tree and take up the starts whose turn it is; behind the last, fuse the ends.

    No others follow where two turns end alike. False, and nothing changes, where the ends have been
    fused, or there is one alone.
    """
    state, settings = search.state, search.settings
    (best,) = state.candidates
    ends, count = [best, *state.ended_starts], settings.starts_in_turn
    shape, *others = search.shapes(ends)
    if shape not in others and state.waiting:
        state.ended_starts = ends
        state.candidates, state.waiting = state.waiting[:count], state.waiting[count:]
        state.starts, state.ended = len(state.candidates), None
        turn = len(ends)
        search.emit(Notice(f"turn {turn} of the starts ended at {best.lnl:.3f}"))
    else:
        state.waiting, state.ended_starts = [], []
        if not set(others) - {shape}:
            return False
        state.candidates = [(yield from search.fused(ends))]
    state.failures, state.returned, state.phase_rounds = 0, 0, 0
    state.fraction = settings.perturbation.fraction
    return True


def copy_best(search: SearchContext) -> Steps[None]:
    """Make a batch of perturbed copies of the best tree, and smooth them."""
    state, perturbation = search.state, search.settings.perturbation
    for landscape in state.landscapes:
        landscape.cache.enter(perturbation.phase)
    (best,) = state.candidates
    state.copies = perturbed_copies(
        best, perturbation, state.fraction, state.rng, search.constraint, search.unlike(best)
    )
    yield from search.smooth(state.copies, search.settings.rounds.smooth_epsilon)


def repair_round(search: SearchContext) -> Steps[bool]:
    """Do an SPR round on the copies; True while another may gain."""
    return (yield from search.round(search.state.copies, search.settings.perturbation.phase))


def accept_copies(search: SearchContext) -> Steps[None]:
    """End a batch: fuse the best tree with copies, and count what the batch brought."""
    state, perturbation = search.state, search.settings.perturbation
    least = search.settings.rounds.min_gain
    (best,) = state.candidates
    shape, *others = search.shapes([best, *state.copies])
    same = [other == shape for other in others]
    fell_back = fallen_back(state.copies, same, best, least)
    better = [copy for copy in state.copies if copy.lnl > best.lnl + perturbation.min_gain]
    search.pool(state.copies)
    fused = yield from search.fused([best, *state.copies], among=[best, *better])
    gained = fused.lnl > best.lnl + least
    state.batches += 1
    state.failures = 0 if gained else state.failures + 1
    state.returned = 0 if gained else state.returned + fell_back
    state.fraction = next_fraction(state.fraction, fell_back, perturbation)
    search.emit(TreePerturbed(state.batches, len(state.copies), len(better), fused.lnl))
    state.candidates, state.copies = [fused], []


def finish(search: SearchContext, *, looks_again: bool = False) -> Steps[bool]:
    """Bring model and branch lengths to a maximum, of the best tree and of its rivals.

    A search goes by one model, its best tree's. Where data say little of it, a rival may be better
    under a model of its own, and so may trees that were passed over. ``looks_again``: compare
    rivals, and return True where the last phase is worth another look. Nothing is done where no
    tree has moved since the last time.
    """
    state, settings = search.state, search.settings
    if state.moves == state.finished:
        return False
    state.finished = state.moves
    best = best_of(state.candidates)
    state.candidates = [best]
    rivals = (yield from search.rivals(best)) if looks_again else []
    fits = search.fits(best, distant=True)
    fits += [fit for rival in rivals for fit in search.fits(rival)]
    fits[0].lnl = before = best.lnl
    search.adopt(best, (yield from ascend_best(fits, settings, search.emit)))
    search.tell_model()
    search.pool([best])
    return looks_again and best.lnl > before + settings.phases[-1].min_round_gain


# How a search begins, and what comes of it.


RANDOM = "random"
"""Kind of starts that are drawn, in their origin."""


class StartingTree(Value):
    """A tree to search from."""

    tree: Tree
    origin: str
    """``parsimony 1``, ``random 2``, ``user 1``."""

    @property
    def is_random(self) -> bool:
        """True for a topology that was drawn."""
        return self.origin.startswith(RANDOM)


class SearchOutcome(Value):
    """The best tree of a search, under the optimised model."""

    tree: Tree
    model: PartitionModel
    lnl: float
    """Natural log."""
    pool: Pool
    """The distinct best trees of the search, with the lnLs that they had when they were met."""
    rounds: int
    """SPR rounds done."""
    insertions: int
    """Insertions scored."""
    moves: int
    """Moves applied and kept."""


def search(
    likelihood: TreeLikelihood,
    starts: Sequence[StartingTree],
    model: PartitionModel,
    settings: SearchSettings,
    rng: np.random.Generator,
    emit: Emit = ignore,
    checkpoint: Checkpoint | None = None,
    constraint: Constraint | None = None,
    ask: Ask | None = None,
) -> SearchOutcome:
    """Search from all starts side by side; the starting trees are not changed.

    ``ask``: answers the requests of the search in the likelihood's stead.

    Raises:
        InputError: a start violates the constraint, or the checkpoint belongs to another search.
    """
    for start in starts:
        if constraint is not None and not constraint.satisfied(start.tree):
            raise unfit_start(start.origin)
    state = checkpoint.load(model) if checkpoint is not None else None
    if state is None:
        state = beginning(starts, model, settings, rng)
    elif checkpoint is not None:
        emit(SearchResumed(str(checkpoint.path), state.rounds, best_of(state.candidates).lnl))
        if state.ended is not None:
            emit(state.ended)
    context = SearchContext(settings, state, emit, constraint, checkpoint=checkpoint)
    try:
        return perform(likelihood, search_steps(context), ask)
    except MltreeError:  # of a rank, say, that has died
        if checkpoint is not None:
            checkpoint.rescue()
        raise


def unfit_start(origin: str) -> InputError:
    """Return the error of a start that violates the constraint."""
    return InputError(f"starting tree {origin} does not fit the constraint tree")


def beginning(
    starts: Sequence[StartingTree],
    model: PartitionModel,
    settings: SearchSettings,
    rng: np.random.Generator,
) -> SearchState:
    """Return the state before the first step: random starts have landscapes of their own.

    Rates of sites (+PSR) are the likelihood's, and so the same for all.
    """
    alone = np.cumsum([start.is_random and not model.has_site_rates for start in starts])
    number = np.where(np.diff(alone, prepend=0), alone, 0).tolist()
    candidates = [
        CandidateTree(start.tree.copy(), -np.inf, start.origin, landscape=n)
        for start, n in zip(starts, number, strict=True)
    ]
    at_once = settings.starts_in_turn or settings.starts_at_once
    first = min(at_once or len(candidates), len(candidates))
    return SearchState(
        candidates=candidates[:first],
        waiting=candidates[first:],
        starts=first,
        landscapes=[Landscape(model) for _ in range(max(number) + 1)],
        rng=rng,
        pool=Pool(settings.pool),
        fraction=settings.perturbation.fraction,
    )


def search_steps(search: SearchContext) -> Steps[SearchOutcome]:
    """Search from a state on, as a generator of requests."""
    state = search.state
    yield from group_patterns(search)
    yield from tree_search(search)
    search.end()
    best = best_of(state.candidates)
    search.emit(SearchFinished(best.lnl, state.rounds, state.insertions, state.moves))
    return SearchOutcome(
        best.tree, state.model, best.lnl, state.pool, state.rounds, state.insertions, state.moves
    )


def of_one_tree(emit: Emit) -> Emit:
    """Report the fit of a given tree, which is a search without rearrangements."""

    def tell(event: Event) -> None:
        if isinstance(event, StartTree):
            event = TreeScored(event.lnl)
        if not isinstance(event, SearchFinished):
            emit(event)

    return tell
