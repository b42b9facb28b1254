"""Which model suits the data best: candidates fitted side by side to a tree, ranked by a criterion.

As in ModelFinder (Kalyaanamoorthy et al. 2017) the rates among sites are compared under one matrix,
then the matrices under the best rates. Either is done in two steps: a *screening*, in which the
other half of the model stays as the last fit left it, a lower bound of lnL for a fifth of the work;
then those that came near the best are fitted whole. The parts of an alignment are problems of their
own, each with branch lengths of its own, and are gone through together: the n-th candidates of all
of them make one fit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from mltree.alignment.patterns import Patterns
from mltree.choice_events import CandidatesScored, ModelChosen
from mltree.events import Emit
from mltree.likelihood.api import Likelihood
from mltree.model.candidates import (
    MOST_FREE_RATES,
    REFERENCE_RATES,
    Candidate,
    Criterion,
    free_rates,
    is_held,
    matrices,
    started_from,
    starts_of_rates,
    thawed,
    with_matrix_held,
    with_rates_held,
)
from mltree.model.grammar import parse_model
from mltree.model.parameters import free_parameters
from mltree.model.partitioned import Linkage, PartitionModel
from mltree.model.substitution import Model
from mltree.placement import Resources, place
from mltree.search.alternation import settle
from mltree.search.model_optimiser import Fit
from mltree.search.requests import part_log_likelihoods, perform
from mltree.settings import PRESETS, ModelSettings
from mltree.tree.topology import Tree

__all__ = ["FITTING", "Choice", "Scored", "choose_models", "engine_width"]

MARGIN = 10.0
"""Candidates whose screening ends this much above the best score are not fitted whole. ModelFinder
drops rates that are as much worse. The other half of a model, fitted to it, brings a few units."""

WIDTHS = (4, 5, 8, MOST_FREE_RATES)
"""Categories that engines are built for: a candidate of fewer is filled up with some of weight 0,
for a build takes longer than they do."""

FITTING = replace(
    PRESETS["fast"],
    model=ModelSettings(final_epsilon=0.01),
    alternation_epsilon=0.05,
    final_smooth_epsilon=0.01,
    max_alternations=8,
)
"""A tenth of what ModelFinder stops at (0.1): scores are compared by units."""


@dataclass(frozen=True)
class Scored:
    """A candidate that was fitted to a part."""

    candidate: Candidate
    lnl: float
    """Natural log, at the maximum over branch lengths and parameters; less after a screening."""
    parameters: int
    """Free ones, branch lengths included."""
    sites: int
    model: Model
    """With its estimates."""
    tree: Tree
    """With its lengths."""
    whole: bool
    """Whether all of it was fitted, not only one half."""

    @property
    def name(self) -> str:
        """What ``--model`` takes."""
        return self.candidate.name

    def score(self, criterion: Criterion) -> float:
        """Smaller is better."""
        return criterion.score(self.lnl, self.parameters, self.sites)


@dataclass
class Choice:
    """The candidates of a part, and which is best."""

    part: str
    criterion: Criterion
    scored: dict[str, Scored] = field(default_factory=dict)
    """By name."""

    @property
    def ranked(self) -> list[Scored]:
        """All of them, the best first."""
        return sorted(self.scored.values(), key=lambda one: one.score(self.criterion))

    @property
    def best(self) -> Scored:
        """The one to take."""
        return self.ranked[0]

    def weights(self, criterion: Criterion) -> dict[str, float]:
        """exp(-delta / 2), of sum 1: what each candidate is worth by a criterion."""
        scores = {name: one.score(criterion) for name, one in self.scored.items()}
        least = min(scores.values())
        worth = {name: float(np.exp((least - score) / 2)) for name, score in scores.items()}
        total = sum(worth.values())
        return {name: value / total for name, value in worth.items()}


def choose_models(
    patterns: Patterns,
    names: Sequence[str],
    tree: Tree,
    resources: Resources,
    criterion: Criterion,
    emit: Emit,
) -> list[Choice]:
    """The best model of every part of some patterns of one kind, on a tree of their taxa.

    ``names``: of the parts. The tree's lengths, f64[E], are where the fits begin.

    Raises:
        DeviceError: a device cannot be found or used.
    """
    chooser = _Chooser(patterns, names, tree, resources, criterion, emit)
    chooser.compare_rates()
    chooser.compare_matrices()
    for choice in chooser.choices:
        best = choice.best
        emit(ModelChosen(choice.part, best.name, criterion, best.score(criterion), best.lnl))
    return chooser.choices


class _Chooser:
    """A choice under way."""

    def __init__(
        self,
        patterns: Patterns,
        names: Sequence[str],
        tree: Tree,
        resources: Resources,
        criterion: Criterion,
        emit: Emit,
    ) -> None:
        self.choices = [Choice(name, criterion) for name in names]
        self._patterns = patterns
        self._parts = [_part(patterns, span) for span in patterns.parts]
        self._sites = [int(part.weights.sum()) for part in self._parts]
        self._tree = tree
        self._matrix = matrices(patterns.alphabet)[0]
        self._resources = resources
        self._criterion = criterion
        self._emit = emit
        self._likelihoods: dict[int, Likelihood] = {}

    def compare_rates(self) -> None:
        """All rates under the reference matrix; free ones until more of them are worse."""
        self._fit_whole([[Candidate(self._matrix, "+G4")]] * len(self.choices))
        rates = [*REFERENCE_RATES, free_rates(2), free_rates(3)]
        self._screen([[Candidate(self._matrix, term) for term in rates]] * len(self.choices))
        for count in range(4, MOST_FREE_RATES + 1):
            wanted = [
                [Candidate(self._matrix, free_rates(count))]
                if self._free(choice, count - 1) < self._free(choice, count - 2)
                else []
                for choice in self.choices
            ]
            if not any(wanted):
                break
            self._screen(wanted)
        self._fit_near()

    def compare_matrices(self) -> None:
        """All matrices under the best rates, and the best of them under rates that came near."""
        others = matrices(self._patterns.alphabet)[1:]
        rates = [choice.best.candidate.rates for choice in self.choices]
        self._screen([[Candidate(matrix, own) for matrix in others] for own in rates])
        self._fit_near()
        self._screen(
            [
                [Candidate(choice.best.candidate.matrix, term) for term in self._near_rates(choice)]
                for choice in self.choices
            ]
        )
        self._fit_near()

    def _free(self, choice: Choice, count: int) -> float:
        """The score of so many free rates; infinite where they were not tried."""
        scored = choice.scored.get(self._matrix + free_rates(count))
        return np.inf if scored is None else scored.score(self._criterion)

    def _near(self, choice: Choice) -> list[Candidate]:
        """What came within the margin of the best."""
        limit = choice.best.score(self._criterion) + MARGIN
        near = (one for one in choice.ranked if one.score(self._criterion) <= limit)
        return [one.candidate for one in near]

    def _near_rates(self, choice: Choice) -> list[str]:
        """The rates that came near under the reference matrix."""
        return [one.rates for one in self._near(choice) if one.matrix == self._matrix]

    def _fit_near(self) -> None:
        """Fit what came near whole, where that was not done, until the best is."""
        self._fit_whole(
            [
                [one for one in self._near(choice) if not choice.scored[one.name].whole]
                for choice in self.choices
            ]
        )

    def _screen(self, wanted: Sequence[Sequence[Candidate]]) -> None:
        """Fit the half of each candidate that it does not share with what was fitted whole."""
        self._score(wanted, screens=True)

    def _fit_whole(self, wanted: Sequence[Sequence[Candidate]]) -> None:
        """Fit candidates from where their screening ended."""
        self._score(wanted, screens=False)

    def _score(self, wanted: Sequence[Sequence[Candidate]], *, screens: bool) -> None:
        """Fit candidates of every part that are not known yet, those of one width at a time."""
        starts = [
            [start for one in own for start in self._starts(part, one, screens)]
            for part, own in enumerate(wanted)
        ]
        for width in WIDTHS:
            suiting = [[one for one in own if engine_width([one.model]) == width] for own in starts]
            if any(suiting):
                self._fit(suiting, width)
        if any(starts):
            count = sum(len({start.candidate for start in own}) for own in starts)
            best = self.choices[0].best.name
            self._emit(CandidatesScored(count, len(self.choices), best))

    def _starts(self, part: int, candidate: Candidate, screens: bool) -> Iterator[_Start]:
        """Where the fit of a candidate begins."""
        scored, best = self.choices[part].scored, None
        known = scored.get(candidate.name)
        if known is not None and (screens or known.whole):
            return
        model = self._model(part, candidate)
        if known is not None:
            yield _Start(candidate, thawed(known.model, model), known.tree)
            return
        if not scored:
            yield _Start(candidate, model, self._tree)
            return
        best = self.choices[part].best
        model = started_from(model, best.model)
        if not screens:
            yield _Start(candidate, model, best.tree)
        elif candidate.rates == best.candidate.rates:
            yield _Start(candidate, with_rates_held(model), best.tree)
        else:
            for start in starts_of_rates(model):
                yield _Start(candidate, with_matrix_held(start), best.tree)

    def _model(self, part: int, candidate: Candidate) -> Model:
        model = parse_model(candidate.name, self._patterns.alphabet)
        return model.with_empirical_frequencies(self._parts[part])

    def _fit(self, starts: Sequence[Sequence[_Start]], width: int) -> None:
        """Fit the n-th starts of all parts together; a part without one repeats its last."""
        count = max(map(len, starts))
        filler = next(own[0] for own in starts if own)
        rows = [
            [
                own[min(n, len(own) - 1)] if own else self._stand_in(part, filler)
                for n in range(count)
            ]
            for part, own in enumerate(starts)
        ]
        fits = [self._fit_of([row[n] for row in rows], width) for n in range(count)]
        likelihood = self._likelihood(width)
        perform(likelihood, settle(fits, FITTING))
        lnls = perform(
            likelihood,
            part_log_likelihoods([fit.tree for fit in fits], [fit.case for fit in fits]),
        )
        for part, own in enumerate(starts):
            for n, start in enumerate(own):
                self._note(part, start, fits[n], float(lnls[n, part]))

    def _stand_in(self, part: int, like: _Start) -> _Start:
        """What fills the place of a part that has no candidate in a fit."""
        return _Start(like.candidate, self._model(part, like.candidate), self._tree)

    def _fit_of(self, starts: Sequence[_Start], width: int) -> Fit:
        models = tuple(start.model for start in starts)
        several = len(models) > 1
        model = PartitionModel(
            models,
            tuple(choice.part for choice in self.choices),
            Linkage.UNLINKED if several else Linkage.LINKED,
            np.ones(len(models)),
            np.full(len(models), 1.0 / len(models)),
            least_categories=width,
        )
        lengths = np.stack([start.tree.lengths for start in starts])
        tree = self._tree
        return Fit(
            Tree(tree.twin, tree.edge, lengths if several else lengths[0], tree.n_tips), model
        )

    def _note(self, part: int, start: _Start, fit: Fit, lnl: float) -> None:
        """Keep what a fit found for a part, where it is better than from another start."""
        candidate, choice = start.candidate, self.choices[part]
        known = choice.scored.get(candidate.name)
        whole = start.is_whole
        if known is not None and known.lnl >= lnl and (known.whole or not whole):
            return
        tree, lengths = fit.tree, fit.tree.lengths
        own = lengths[part] if lengths.ndim > 1 else lengths
        choice.scored[candidate.name] = Scored(
            candidate=candidate,
            lnl=lnl,
            parameters=free_parameters(self._model(part, candidate)) + tree.n_edges,
            sites=self._sites[part],
            model=fit.model.models[part],
            tree=Tree(tree.twin, tree.edge, own.copy(), tree.n_tips),
            whole=whole,
        )

    def _likelihood(self, width: int) -> Likelihood:
        if width not in self._likelihoods:
            bounds = FITTING.branches.bounds(max(self._sites))
            placement = place(self._resources, self._patterns, width, bounds)
            self._likelihoods[width] = placement.likelihood(self._patterns)
        return self._likelihoods[width]


@dataclass(frozen=True)
class _Start:
    """Where a fit of a candidate to a part begins."""

    candidate: Candidate
    model: Model
    tree: Tree

    @property
    def is_whole(self) -> bool:
        """Whether no half of the model is held."""
        return not (self.model.rates_fixed or self.model.p_invariant_fixed) and not is_held(
            self.model.heterogeneity
        )


def _part(patterns: Patterns, span: slice) -> Patterns:
    return replace(patterns, codes=patterns.codes[:, span], weights=patterns.weights[span], ends=())


def engine_width(models: Sequence[Model]) -> int:
    """Categories of the engine that some models are fitted on."""
    most = max(model.arrays().n_categories for model in models)
    return min(width for width in WIDTHS if width >= most)
