"""A search under way: how its steps are taken and kept, and what they share."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from mltree.fit.fits import Fit, distant_starts, starts_of
from mltree.fit.settings import PerturbationSettings, PhaseSettings, SearchSettings
from mltree.likelihood.likelihood import PerSiteLikelihood, TreeLikelihood
from mltree.likelihood.requests import Request, Steps, TopologyKeys, smoothed
from mltree.models.partitioned import Linkage, PartitionModel
from mltree.models.rates import FittedRates, SiteRates
from mltree.program.cases import Case
from mltree.system.events import Emit, ModelOptimised, RoundDone, StartTree
from mltree.tree.moves import MOST_AT_ONCE, Differences, random_nnis
from mltree.tree.splits import edges_apart
from mltree.tree.topology import Tree, resolved_at_random
from mltree.treesearch.checkpoint import CandidateTree, Checkpoint, SearchState, best_of, shapes
from mltree.treesearch.constraint import Constraint
from mltree.treesearch.spr import spr_round

T = TypeVar("T")

ENDED = "ended"
"""Name in the state of a search that has no step left."""

FUSED = "fused"
"""Origin of a tree that has parts of others."""

RESOLVINGS = 3
"""Sweeps of random NNIs over edges without length: no two edges of one sweep share a node."""

# Iterated local search: random interchanges on copies of the best tree.


STRONG_EVERY = 4
"""Copies of which the last is changed strongly: of the others every other one is resolved anew."""


def perturbed_copies(
    best: CandidateTree,
    settings: PerturbationSettings,
    fraction: float,
    rng: np.random.Generator,
    constraint: Constraint | None = None,
    unlike: Sequence[Tree] = (),
) -> list[CandidateTree]:
    """Copy a tree, with some of its inner edges changed at random; lnLs are not known yet.

    A share of the edges gets a random NNI.  Where ``settings.resolves``, in every other copy the
    edges whose splits one of the ``unlike`` trees lacks are contracted instead, and the polytomies
    are resolved at random; that tree is drawn for every such copy.

    Edges without length are crossed in every copy: that costs nothing, and of the trees on such a
    plateau only some lie one move below a better one (50 taxa x 600 sites, 8 of 47 inner edges at
    the bound: some copies found that move, none of 32 without such crossings).  Edges that show a
    split of the constraint are not changed.
    """
    edges = best.tree.inner_edges
    if constraint is not None:
        edges = edges[~constraint.shown_by(best.tree)[:, edges].any(axis=0)]
    longest = best.tree.lengths.reshape(-1, best.tree.n_edges).max(axis=0)
    free = edges[longest[edges] <= settings.free_length]
    result = []
    for number in range(settings.copies):
        tree = best.tree.copy()
        for _ in range(RESOLVINGS if free.size else 0):
            random_nnis(tree, MOST_AT_ONCE, rng, among=free)
        if settings.resolves and unlike and number % 2 == 0:
            alone = edges_apart(tree, unlike[int(rng.integers(len(unlike)))])
            tree = resolved_at_random(tree, alone[np.isin(alone, edges)], rng)
        else:
            strong = settings.strong_fraction if number % STRONG_EVERY == STRONG_EVERY - 1 else 0.0
            random_nnis(tree, strong or fraction, rng, among=edges)
        origin = f"copy {number + 1}"
        result.append(CandidateTree(tree, -np.inf, origin, landscape=best.landscape))
    return result


def fallen_back(
    copies: list[CandidateTree], same: list[bool], best: CandidateTree, min_gain: float
) -> int:
    """Count the copies that returned to the ``same`` tree they came from, or to one as good."""
    return sum(
        is_same or abs(copy.lnl - best.lnl) <= min_gain
        for copy, is_same in zip(copies, same, strict=True)
    )


def next_fraction(fraction: float, fell_back: int, settings: PerturbationSettings) -> float:
    """Return the share of edges to perturb in the next batch: larger if most copies fell back."""
    if fell_back > settings.fall_back_share * settings.copies:
        return min(fraction * settings.strengthen, settings.max_fraction)
    return fraction


@dataclass
class SearchContext:
    """A search under way: its settings and state, and the operations that its steps share."""

    settings: SearchSettings
    state: SearchState
    emit: Emit
    constraint: Constraint | None = None
    weights: int = 0
    """Row of pattern weights that the search runs under."""
    first_part: int = 0
    """First part of the search's data among the parts of the engine."""
    checkpoint: Checkpoint | None = None
    """Checkpoint that keeps the state between steps."""

    def __post_init__(self) -> None:
        self._resumes_at = self.state.step

    def step(self, name: str, work: Steps[T]) -> Steps[T | None]:
        """Do a step, the state before it kept; pass it by if the state names a later one.

        The steps of a search are taken by plain control flow. So a search is resumed by going
        through it again: what decides its branches and loops is in the state, and every step before
        the one that the state names is passed by. Returns None in that case.
        """
        if self._resumes_at not in ("", name):
            work.close()
            return None
        self._resumes_at = ""
        self._keep(name)
        return (yield from work)

    def end(self) -> None:
        """Keep the state after the last step; a search resumed there has no step left."""
        if self._resumes_at not in ("", ENDED):
            raise ValueError(f"the search has no step {self._resumes_at!r}")
        self._keep(ENDED)

    def _keep(self, name: str) -> None:
        self.state.step = name
        if self.checkpoint is not None:
            self.checkpoint.step(self.state, self.emit, is_last=name == ENDED)

    @property
    def only_fits(self) -> bool:
        """True if the tree stays and is fitted from its own lengths.

        Models of parts are fitted side by side instead, from the best that each part has.
        """
        model = self.state.model
        return not self.settings.phases and not self.has_site_rates and model.n_parts == 1

    @property
    def has_site_rates(self) -> bool:
        """True under +PSR, where every site has a rate of its own."""
        return self.state.model.has_site_rates

    @property
    def asks_ends(self) -> bool:
        """True if the ends of starts decide whether others follow."""
        return self.settings.chance > 0.0 and not self.has_site_rates

    @property
    def case(self) -> Case:
        """Model and data that the best tree is computed under now."""
        return self.cases([self.state.best])[0]

    def cases(self, candidates: Sequence[CandidateTree]) -> list[Case]:
        """Return the model and data that each candidate is computed under now."""
        cases = [
            Case(landscape.model.arrays(), self.weights, self.first_part)
            for landscape in self.state.landscapes
        ]
        return [cases[candidate.landscape] for candidate in candidates]

    def leaders(self) -> list[CandidateTree]:
        """Return the best candidate of every landscape that has any."""
        groups: dict[int, list[CandidateTree]] = {}
        for candidate in self.state.candidates:
            groups.setdefault(candidate.landscape, []).append(candidate)
        return [best_of(group) for group in groups.values()]

    def unlike(self, best: CandidateTree) -> list[Tree]:
        """Return the pooled trees of other shapes than the best tree's."""
        pooled = [CandidateTree(entry.tree, entry.lnl, "pool") for entry in self.state.pool.trees]
        shape, *others = self.shapes([best, *pooled])
        return [one.tree for one, key in zip(pooled, others, strict=True) if key != shape]

    def smooth(self, candidates: Sequence[CandidateTree], epsilon: float) -> Steps[None]:
        """Optimise the branch lengths of candidates until a pass gains less than epsilon (lnL)."""
        trees = [candidate.tree for candidate in candidates]
        lnls = yield from smoothed(trees, self.cases(candidates), epsilon)
        for candidate, lnl in zip(candidates, lnls, strict=True):
            candidate.lnl = lnl

    def round(self, candidates: Sequence[CandidateTree], phase: PhaseSettings) -> Steps[bool]:
        """Do an SPR round on the active candidates; True while any stays active."""
        state = self.state
        active = [candidate for candidate in candidates if candidate.active]
        unfinished = yield from self._unfinished(active)
        if not unfinished:
            return False
        topologies, active = list(unfinished), list(unfinished.values())
        rounds, free_length = self.settings.rounds, self.settings.perturbation.free_length
        caches = [state.landscapes[candidate.landscape].cache for candidate in active]
        outcomes = yield from spr_round(
            active, self.cases(active), phase, rounds, self.constraint, caches, free_length
        )
        for (_, topology), cache, outcome in zip(topologies, caches, outcomes, strict=True):
            if outcome.moves == 0:
                cache.add_converged([topology])
        insertions = sum(outcome.insertions for outcome in outcomes)
        moves = sum(outcome.moves for outcome in outcomes)
        state.rounds += 1
        state.insertions += insertions
        state.moves += moves
        self.emit(RoundDone(state.rounds, phase.radius, insertions, moves, state.best.lnl))
        return any(candidate.active for candidate in candidates)

    def _unfinished(
        self, candidates: Sequence[CandidateTree]
    ) -> Steps[dict[tuple[int, int], CandidateTree]]:
        """Return the candidates that may gain more, by landscape and topology; the best of equals.

        The others become inactive.
        """
        best: dict[tuple[int, int], CandidateTree] = {}
        trees = [candidate.tree for candidate in candidates]
        keys = (yield TopologyKeys(trees, self.cases(candidates))) if trees else []
        for candidate, topology in zip(candidates, keys, strict=True):
            candidate.active = False
            key = candidate.landscape, topology
            best[key] = max(best.get(key, candidate), candidate, key=lambda one: one.lnl)
        unfinished = {
            (number, topology): candidate
            for (number, topology), candidate in best.items()
            if not self.state.landscapes[number].cache.has_converged([topology])[0]
        }
        for candidate in unfinished.values():
            candidate.active = True
        return unfinished

    def rest_alike(self) -> None:
        """Let candidates rest that have the shape of a better one, or of a start that has ended.

        Those in other landscapes do not count.
        """
        state = self.state
        active = sorted((one for one in state.candidates if one.active), key=lambda one: -one.lnl)
        if not active:
            return
        every = [*state.ended_starts, *active]
        seen: set[tuple[int, int]] = set()
        for candidate, shape in zip(every, self.shapes(every), strict=True):
            candidate.active = candidate.active and (candidate.landscape, shape) not in seen
            seen.add((candidate.landscape, shape))

    def admit(self) -> Steps[bool]:
        """Let the next starts in unless those before agree; True if any came."""
        state, settings = self.state, self.settings
        epsilon = settings.rounds.smooth_epsilon
        if not state.waiting or self.asks_ends or settings.starts_in_turn:
            return False
        if self.reached(state.candidates, epsilon) >= settings.agreement:
            return False
        count = settings.starts_at_once
        fresh, state.waiting = state.waiting[:count], state.waiting[count:]
        yield from self.smooth(fresh, epsilon)
        for candidate in fresh:
            candidate.active = True
            self.emit(StartTree(candidate.origin, candidate.lnl))
        state.candidates = [*state.candidates, *fresh]
        state.starts += len(fresh)
        return True

    def pool(self, candidates: Sequence[CandidateTree]) -> None:
        """Offer candidates to the pool of distinct best trees."""
        self.state.pool.add([one.tree for one in candidates], [one.lnl for one in candidates])

    def reached(self, candidates: Sequence[CandidateTree], within: float = 0.0) -> int:
        """Count the starts that led to the best candidate, or ``within`` so much lnL of it."""
        shaped = list(zip(candidates, self.shapes(candidates), strict=True))
        best, shape = max(shaped, key=lambda pair: pair[0].lnl)
        floor = best.lnl - within
        return sum(one.starts for one, key in shaped if key == shape or one.lnl >= floor)

    def shapes(self, candidates: Sequence[CandidateTree]) -> list[int]:
        """Return a shape key of each candidate (:func:`mltree.treesearch.checkpoint.shapes`)."""
        return shapes(candidates, self.settings.perturbation.free_length)

    def rivals(self, best: CandidateTree) -> Steps[list[CandidateTree]]:
        """Return pooled trees of other shapes that are near the best one under its model.

        Branch lengths of the best tree and of its rivals are brought to a maximum.
        """
        settings = self.settings
        pooled = [
            CandidateTree(entry.tree.copy(), entry.lnl, "pool", landscape=best.landscape)
            for entry in self.state.pool.trees
        ]
        shape, *others = self.shapes([best, *pooled])
        distinct: dict[int, CandidateTree] = {}
        for key, candidate in zip(others, pooled, strict=True):
            if key != shape:
                distinct.setdefault(key, candidate)
        rivals = list(distinct.values())[: settings.max_survivors - 1]
        yield from self.smooth([best, *rivals], settings.final_smooth_epsilon)
        return [one for one in rivals if one.lnl > best.lnl - settings.cull_margin]

    def fused(
        self, candidates: list[CandidateTree], among: list[CandidateTree] | None = None
    ) -> Steps[CandidateTree]:
        """Return the best tree with the better parts of others (tree fusing, Goloboff 1999).

        Every part in which the shape of another tree differs is tried alone, all side by side, and
        once where several trees have it; then all parts that gain, of the tree that brings most,
        together. A tree that differs in one part alone has been scored, and is passed by.  Returns
        the best tree itself where nothing gains.

        ``among``: the candidates of which the best is taken; all where None.
        """
        first = best = best_of(candidates if among is None else among)
        rounds, case = self.settings.rounds, self.cases([best])
        others = [one for one in candidates if one is not best]
        while others:
            differences = Differences.of_each(best.tree, [other.tree for other in others])
            shortest = self.settings.perturbation.free_length
            changes = [one.changes(shortest) for one in differences]
            trees: dict[int, Tree] = {}
            for one, parts in zip(differences, changes, strict=True):
                new = (change for change in parts if len(parts) > 1 and change not in trees)
                trees |= {change: one.taken(parts[change]) for change in new}
            if not trees:
                break
            goal = best.lnl + rounds.min_gain
            every, floors = list(trees.values()), [goal] * len(trees)
            lnls = yield from smoothed(every, case * len(every), rounds.smooth_epsilon, floors)
            each = zip(trees, lnls, strict=True)
            gains = {change: lnl - best.lnl for change, lnl in each if lnl >= goal}
            if not gains:
                break
            brought = [sum(gains.get(change, 0.0) for change in parts) for parts in changes]
            number, most = int(np.argmax(brought)), int(np.argmax(lnls))
            taken = [part for change, part in changes[number].items() if change in gains]
            best = CandidateTree(every[most], lnls[most], FUSED, landscape=best.landscape)
            if len(taken) > 1:
                together = differences[number].taken(taken)
                (lnl,) = yield from smoothed([together], case, rounds.smooth_epsilon)
                if lnl > best.lnl:
                    best = CandidateTree(together, lnl, FUSED, landscape=best.landscape)
            del others[number]
        self.state.moves += best is not first
        return best

    def adopt(self, candidate: CandidateTree, fit: Fit) -> None:
        """Give a candidate the tree of a fit, and its landscape the model."""
        gain = fit.lnl - candidate.lnl
        landscape = self.state.landscapes[candidate.landscape]
        landscape.model = fit.model
        landscape.cache.forget_converged(stalled=gain >= self.settings.rounds.min_gain)
        candidate.tree, candidate.lnl = fit.tree, fit.lnl

    def tell_model(self) -> None:
        """Report the best tree's model, which was fitted."""
        self.emit(ModelOptimised(self.state.model.text, self.state.best.lnl))

    def fits(self, candidate: CandidateTree, *, distant: bool = False) -> list[Fit]:
        """Return fits of a tree that begin at the model, and at other starts that it may have.

        ``distant``: at distant ones too, since lnL has several maxima in branch lengths.
        """
        tree, model = candidate.tree, self.state.landscapes[candidate.landscape].model
        starts = [(tree.copy(), start) for start in starts_of(model)]
        for length, start in distant_starts(model) if distant else ():
            starts.append((tree.with_lengths(np.full_like(tree.lengths, length)), start))
        return [Fit(*start, self.weights, self.first_part) for start in starts]


# Rates of sites (+PSR) in a search: fitted to the best tree, between the phases.


def _per_site(likelihood: TreeLikelihood) -> PerSiteLikelihood:
    if not isinstance(likelihood, PerSiteLikelihood):
        raise ValueError("a likelihood whose patterns have no rates of their own")
    return likelihood


class _SiteRates(Request, eq=False):
    """Fit the site rates of every part of each tree."""

    def answer(self, likelihood: TreeLikelihood) -> list[list[FittedRates]]:
        """Return the fitted rates of the parts of every tree."""
        return list(map(_per_site(likelihood).site_rates, self.trees, self.cases))


class _GroupPatterns(Request, eq=False):
    """Give the patterns rates, for all requests that follow."""

    rates: Sequence[SiteRates]

    @property
    def kind(self) -> Hashable:
        """Requests of this kind are not joined."""
        return type(self), id(self)

    def answer(self, likelihood: TreeLikelihood) -> list[None]:
        """Group the patterns; the answers are empty."""
        _per_site(likelihood).group(self.rates)
        return [None] * len(self.trees)


def group_patterns(search: SearchContext) -> Steps[None]:
    """Give the patterns the site rates of the search's model, if they are known."""
    rates = search.state.model.site_rates
    if any(form.category.size for form in rates):
        yield _GroupPatterns([best_of(search.state.candidates).tree], [search.case], rates)


def fit_site_rates(search: SearchContext) -> Steps[None]:
    """Fit the rates of all sites to the best tree; they are kept unless its lnL is lower."""
    state = search.state
    best = best_of(state.candidates)
    answer: Any = yield _SiteRates([best.tree], [search.case])
    fitted: list[FittedRates] = answer[0]
    lnl = sum(part.lnl for part in fitted)
    if lnl < best.lnl:
        return
    landscape = state.landscapes[best.landscape]
    landscape.model, factor = _with_rates(landscape.model, fitted)
    for candidate in (*state.candidates, *state.waiting):
        candidate.tree.lengths = search.settings.branches.scaled(candidate.tree.lengths, factor)
    best.lnl = lnl
    yield from group_patterns(search)
    search.tell_model()


def _with_rates(
    model: PartitionModel, fitted: Sequence[FittedRates]
) -> tuple[PartitionModel, float]:
    """Return the model with new rates, and the factor on branch lengths that offsets their means.

    Where parts have scalers, these take the means up; else the rates have mean 1 over all parts.
    The rates were fitted without scalers, so that new scalers replace the old ones.
    """
    speeds = np.array([part.speed for part in fitted])
    scalers, relative, factor = speeds, np.ones_like(speeds), 1.0
    if model.linkage != Linkage.SCALED or model.n_parts == 1:
        scalers = np.ones_like(speeds)
        factor = float((speeds * model.shares).sum())
        relative = speeds / factor
    forms = [
        replace(form, rates=part.rates * ratio, category=part.category)
        for form, part, ratio in zip(model.site_rates, fitted, relative.tolist(), strict=True)
    ]
    models = [
        replace(part, heterogeneity=form) for part, form in zip(model.models, forms, strict=True)
    ]
    return model.with_parts(models, scalers), factor
