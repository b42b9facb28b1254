"""Which model suits the data best: candidates fitted side by side to a tree, ranked by a criterion.

As in ModelFinder (Kalyaanamoorthy et al. 2017) the rates among sites are compared under one matrix,
then the matrices under the best rates. Either is done in two steps: a *screening*, in which the
other half of the model stays as the last fit left it, a lower bound of lnL for little work, least
where rates are screened (:mod:`mltree.fit.rate_screening`); then those that came near the best
are fitted whole. The parts of an alignment are problems of their own, each with branch lengths of
its own, and are gone through together: the candidates of all of them share launches, each a case of
the patterns of its part.
"""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from itertools import groupby
from typing import Any

import numpy as np

from mltree.data.alphabet import Alphabet
from mltree.data.patterns import Patterns
from mltree.fit.alternation import settle
from mltree.fit.model_optimiser import Fit, starting_models
from mltree.fit.rate_climb import FittedAmongSites
from mltree.fit.rate_screening import RateScreening, settle_promising, within_reach
from mltree.fit.settings import PRESETS, ModelSettings
from mltree.likelihood.likelihood import Likelihood
from mltree.likelihood.requests import part_log_likelihoods, perform
from mltree.models.empirical import PROTEIN_MODELS
from mltree.models.grammar import parse_model
from mltree.models.names import family_of
from mltree.models.parameters import free_parameters, vector, with_vectors
from mltree.models.partitioned import alone
from mltree.models.portable import exp, log, product
from mltree.models.rates import Heterogeneity, OneRate
from mltree.models.substitution import DNA_MODELS, Model, expand_rates, n_classes
from mltree.runs.engines import Engines, Resources, Workload
from mltree.system.arrays import Float64
from mltree.system.events import CandidatesScored, Emit, ModelChosen
from mltree.system.ranks import here
from mltree.system.values import Value
from mltree.tree.topology import Tree

# The models that a choice is made among, and the criteria that it is made by.
#
# ModelFinder (Kalyaanamoorthy et al. 2017, Nat. Methods 14:587-589) and jModelTest (Darriba et al.
# 2012, Nat. Methods 9:772) name the same ones. With k free parameters, branch lengths included, and
# n sites:
#
#     AIC   2k - 2 lnL
#     AICc  AIC + 2k(k + 1) / (n - k - 1), divided by 1 at least, as in IQ-TREE
#     BIC   k ln n - 2 lnL

REFERENCE_RATES = ("", "+I", "+G4", "+I+G4")
"""Rates among sites that are tried first, beside free ones."""

MOST_FREE_RATES = 10
"""Categories of free rates, as in ModelFinder."""


class Criterion(StrEnum):
    """What a model is chosen by; smaller is better."""

    BIC = "bic"
    AIC = "aic"
    AICC = "aicc"

    def score(self, lnl: float, parameters: int, sites: int) -> float:
        """Of a model with so many free parameters, on so many sites."""
        if self is Criterion.BIC:
            return parameters * math.log(sites) - 2 * lnl
        aic = 2 * parameters - 2 * lnl
        if self is Criterion.AIC:
            return aic
        return aic + 2 * parameters * (parameters + 1) / max(sites - parameters - 1, 1)


class Candidate(Value):
    """A model in two halves."""

    matrix: str
    """Exchangeabilities and frequencies: ``HKY+FC``, ``LG``."""
    rates: str
    """Among sites: ``+I+G4``, or none."""

    @property
    def name(self) -> str:
        """What ``--model`` takes."""
        return self.matrix + self.rates


def matrices(alphabet: Alphabet) -> list[str]:
    """Every matrix for a kind of data with each of its frequencies, the reference first.

    The reference, under which the rates are compared, is the most general one, or the most usual.
    Nucleotides: equal frequencies, or counted where a name says that they differ. Proteins: the
    model's own, or counted. Of other data their family says.
    """
    family = family_of(alphabet)
    if family is not None:
        return family.matrices(alphabet)
    if alphabet.name == "DNA":
        return [
            name + "+FC" * model.free_frequencies for name, model in reversed(DNA_MODELS.items())
        ]
    return [name + term for name in PROTEIN_MODELS for term in ("", "+FC")]


@lru_cache(maxsize=1024)
def model_of(candidate: Candidate, alphabet: Alphabet) -> Model:
    """The model of a candidate, its parameters where their estimate begins.

    Frequencies that are counted in data are NaN (:func:`mltree.models.grammar.parse_model`).
    """
    return parse_model(candidate.name, alphabet)


def free_rates(categories: int) -> str:
    """The term of so many free rates."""
    return f"+R{categories}"


def started_from(model: Model, other: Model) -> Model:
    """The model with estimates to begin with from another's, as far as they are alike."""
    if len(model.heterogeneity.variables()) == len(other.heterogeneity.variables()) and isinstance(
        model.heterogeneity, type(other.heterogeneity)
    ):
        model = dataclasses.replace(
            model, heterogeneity=other.heterogeneity, p_invariant=_of_both(model, other)
        )
    if model.codon is not None and other.codon is not None:
        return model.with_codon(model.codon.like(other.codon))
    if not model.rate_classes or len(model.rates) != len(other.rates) or not other.rate_classes:
        return model
    classes = np.array(model.rate_classes)
    logs = log(np.maximum(other.rates, np.finfo(np.float64).tiny))
    means = exp(
        np.array([logs[classes == one].mean() for one in range(n_classes(model.rate_classes))])
    )
    rates = expand_rates(model.rate_classes, means)
    return dataclasses.replace(model, rates=rates / rates[-1])


def with_rates_held(model: Model) -> Model:
    """The model with its rates among sites fixed as they are."""
    form: Any = model.heterogeneity
    held = form if isinstance(form, OneRate) else dataclasses.replace(form, fixed=True)
    return dataclasses.replace(model, heterogeneity=held, p_invariant_fixed=True)


def thawed(held: Model, model: Model) -> Model:
    """A model from where another like it ended, free where the model is."""
    values = held.values()
    values["heterogeneity"] |= {
        name: value for name, value in vars(model.heterogeneity).items() if name == "fixed"
    }
    return model.with_values(values)


def with_matrix_held(model: Model) -> Model:
    """The model with its exchangeabilities, where it has free ones, fixed as they are."""
    if model.codon is not None:
        return model.with_codon(model.codon.held())
    return dataclasses.replace(model, rates_fixed=True) if model.rate_classes else model


def is_held(form: Heterogeneity) -> bool:
    """Whether rates among sites are fixed."""
    return not isinstance(form, OneRate) and not form.variables()


def _of_both(model: Model, other: Model) -> float | None:
    return None if model.p_invariant is None else other.p_invariant or model.p_invariant


# How lnL curves in the variables of a model, from how it does in those of a more general one.
#
# Equal exchangeabilities are one variable, so that steps y of a model are steps J y of one that
# tells them apart, and minus the Hessian is J^T H J. It holds where both models mean the same;
# where they differ in frequencies, about.


def projected(curvature: Float64, general: Model, model: Model) -> Float64 | None:
    """f64 [m + 1, m + 1]: of a model's m variables and the scale of branch lengths.

    ``curvature``: f64 [n + 1, n + 1], of the general model's; None where variables of either are
    none of the other's.
    """
    x, middle = vector(model), vector(general)
    if len(curvature) != len(middle) + 1:
        return None
    moved = with_vectors([model] * x.size, [*(x + np.eye(x.size))])
    ends = [vector(started_from(general, end)) for end in moved]
    here = vector(started_from(general, model))
    steps = np.array([end - here for end in ends]).reshape(x.size, middle.size)
    if not np.abs(steps).sum(axis=1).all():
        return None
    both = np.eye(x.size + 1, middle.size + 1, middle.size - x.size)
    both[:-1, :-1] = steps
    return product(product(both, curvature), both.T)


# The candidates of a model choice, and how they rank.


class Scored(Value):
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


class Known(Value):
    """What is known of the parts of some patterns before their models are chosen."""

    models: Sequence[Model] = ()
    """To begin with, of each part; or none."""
    matrices: Sequence[Sequence[str]] = ()
    """Those worth a try, of each part; all of them where there are none."""
    likelihoods: Mapping[int, Likelihood] = field(default_factory=dict)
    """Of the patterns, that are open, by their categories."""


def matrices_near(choices: Sequence[Choice], margin: float) -> list[str]:
    """Matrices that may score best where some parts are put together, or did in one of them.

    As one they would have the lnLs of all, and the parameters of one: those within a margin of the
    best by that. Each part has the same matrices.
    """
    criterion, sites = choices[0].criterion, sum(choice.best.sites for choice in choices)
    lnls: dict[str, float] = defaultdict(float)
    for choice in choices:
        for matrix, one in _best_by_matrix(choice).items():
            lnls[matrix] += one.lnl
    scores = {
        matrix: criterion.score(lnls[matrix], one.parameters, sites)
        for matrix, one in _best_by_matrix(choices[0]).items()
    }
    limit = min(scores.values()) + margin
    bests = {choice.best.candidate.matrix for choice in choices}
    return [matrix for matrix, score in scores.items() if score <= limit or matrix in bests]


def _best_by_matrix(choice: Choice) -> dict[str, Scored]:
    """Every matrix under the rates that suit the part best with it."""
    return {one.candidate.matrix: one for one in reversed(choice.ranked)}


# Categories that engines are built for, and the likelihoods of a choice.

WIDTHS = (4, 5, 8, MOST_FREE_RATES)
"""A candidate of fewer is filled up with some of weight 0, for a build takes longer than they
do."""

LOT = 256
"""Fits side by side: what 2,100 of 100 parts' matrices ask for at once takes 250 MB of the host."""


def engine_width(models: Sequence[Model]) -> int:
    """Categories of the engine that some models are fitted on."""
    most = max(model.arrays().n_categories for model in models)
    return min(width for width in WIDTHS if width >= most)


def in_lots(parts: Sequence[int], models: Sequence[Model]) -> Iterator[tuple[int, list[int]]]:
    """A width and numbers of fits, of about :data:`LOT` at a time and all of a part together.

    ``parts``: of the fits, those of a part one after the other; ``models``: that are fitted.
    """
    widths = [engine_width([model]) for model in models]
    for width in WIDTHS:
        lot: list[int] = []
        suiting = (n for n in range(len(parts)) if widths[n] == width)
        for _, own in groupby(suiting, key=parts.__getitem__):
            if len(lot) >= LOT:
                yield width, lot
                lot = []
            lot += own
        if lot:
            yield width, lot


class Likelihoods:
    """Of trees of single parts, by their categories, each opened when it is first asked for."""

    def __init__(
        self,
        patterns: Patterns,
        resources: Resources,
        bounds: tuple[float, float],
        known: Mapping[int, Likelihood],
    ) -> None:
        """``bounds``: of branch lengths; ``known``: those that are open."""
        self._patterns, self._resources, self._bounds = patterns, resources, bounds
        self._open = dict(known)

    def __call__(self, width: int) -> Likelihood:
        """That of so many categories.

        Raises:
            DeviceError: a device cannot be found or used.
        """
        if width not in self._open:
            work = Workload.of_patterns(
                self._patterns, width, self._bounds, apart=True, among=here()
            )
            self._open[width] = Engines(self._resources, work).likelihood
        return self._open[width]


MARGIN = 10.0
"""Candidates whose screening ends this much above the best score are not fitted whole. ModelFinder
drops rates that are as much worse. The other half of a model, fitted to it, brings a few units."""

FITTING = replace(
    PRESETS["fast"],
    model=ModelSettings(final_epsilon=0.01),
    alternation_epsilon=0.05,
    final_smooth_epsilon=0.01,
    max_alternations=8,
)
"""A tenth of what ModelFinder stops at (0.1): scores are compared by units."""


NOTHING = Known()


def choose_models(
    patterns: Patterns,
    names: Sequence[str],
    tree: Tree,
    resources: Resources,
    criterion: Criterion,
    emit: Emit,
    known: Known = NOTHING,
) -> list[Choice]:
    """The best model of every part of some patterns of one kind, on a tree of their taxa.

    ``names``: of the parts. The tree's lengths, f64[E], are where the fits begin.

    Raises:
        DeviceError: a device cannot be found or used.
    """
    chooser = _Chooser(patterns, names, tree, resources, criterion, emit, known)
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
        known: Known,
    ) -> None:
        self.choices = [Choice(name, criterion) for name in names]
        self._patterns = patterns
        self._parts = [_part(patterns, span) for span in patterns.parts]
        self._sites = [int(part.weights.sum()) for part in self._parts]
        self._tree = tree
        self._matrix = matrices(patterns.alphabet)[0]
        self._criterion = criterion
        self._emit = emit
        self._known = known
        bounds = FITTING.branches.bounds(max(self._sites))
        self._likelihood = Likelihoods(patterns, resources, bounds, known.likelihoods)
        self._rates = RateScreening(patterns, FITTING, self._likelihood, WIDTHS[0])
        self._found: dict[tuple[int, str], FittedAmongSites] = {}
        """Rates of candidates on trees that are looked at."""
        self._curvatures: dict[tuple[int, str], Float64] = {}
        """Of candidates with the reference matrix that were fitted whole."""

    def compare_rates(self) -> None:
        """All rates under the reference matrix; free ones until more of them are worse."""
        self._fit_whole([[Candidate(self._matrix, "+G4")]] * len(self.choices))
        self._look(range(len(self.choices)))
        self._screen_rates(self._worth_a_try())
        while any(wanted := [self._next_free(choice) for choice in self.choices]):
            self._screen_rates(wanted)
        self._fit_near(0.0)

    def compare_matrices(self) -> None:
        """All matrices under the best rates, and the best of them under rates that came near."""
        every = matrices(self._patterns.alphabet)
        worth = self._known.matrices or [every] * len(self.choices)
        near = [[one.rates for one in self._near(choice)] for choice in self.choices]
        rates = [choice.best.candidate.rates for choice in self.choices]
        self._screen_matrices(
            [
                [Candidate(matrix, own) for matrix in every[1:] if matrix in some]
                for own, some in zip(rates, worth, strict=True)
            ]
        )
        self._fit_near()
        self._screen_rates(
            [
                [Candidate(choice.best.candidate.matrix, term) for term in terms]
                for choice, terms in zip(self.choices, near, strict=True)
            ]
        )
        self._fit_near()

    def _worth_a_try(self) -> list[list[Candidate]]:
        """Rates that may suit each part: of free ones, lengths as they are, while they get better.

        Raises: ValueError where not all parts were looked at.
        """
        worth = [[Candidate(self._matrix, term) for term in REFERENCE_RATES] for _ in self.choices]
        last = dict.fromkeys(range(len(self.choices)), np.inf)
        for count in range(2, MOST_FREE_RATES + 1):
            one = Candidate(self._matrix, free_rates(count))
            found = self._among_sites([(part, one) for part in last])
            for part, own in zip(list(last), found, strict=True):
                worth[part].append(one)
                score = self._criterion.score(own.lnl, self._free(one), self._sites[part])
                if score < last[part]:
                    last[part] = score
                else:
                    del last[part]
        return worth

    def _next_free(self, choice: Choice) -> list[Candidate]:
        """One free rate more, where the most that were tried are best of all free ones."""
        tried = [
            choice.scored[name].score(self._criterion)
            for count in range(2, MOST_FREE_RATES + 1)
            if (name := self._matrix + free_rates(count)) in choice.scored
        ]
        if len(tried) + 2 > MOST_FREE_RATES or tried[-1] >= tried[-2]:
            return []
        return [Candidate(self._matrix, free_rates(len(tried) + 2))]

    def _near(self, choice: Choice, margin: float = MARGIN) -> list[Candidate]:
        """What came within a margin of the best."""
        limit = choice.best.score(self._criterion) + margin
        near = (one for one in choice.ranked if one.score(self._criterion) <= limit)
        return [one.candidate for one in near]

    def _fit_near(self, margin: float = MARGIN) -> None:
        """Fit what came near whole, where that was not done; the best alone with no margin."""
        self._fit_whole(
            [
                [one for one in self._near(choice, margin) if not choice.scored[one.name].whole]
                for choice in self.choices
            ]
        )

    def _look(self, parts: Iterable[int]) -> None:
        """See how rates suit parts, on the best trees and under the best matrices so far."""
        best = {part: self.choices[part].best for part in parts}
        self._rates.look([(part, own.tree, own.model) for part, own in best.items()])

    def _among_sites(self, pairs: Sequence[tuple[int, Candidate]]) -> list[FittedAmongSites]:
        """Rates of candidates that suit parts best, all else as the best one of each has it."""
        names = [(part, one.name) for part, one in pairs]
        new = [pair for pair, name in zip(pairs, names, strict=True) if name not in self._found]
        wanted = [(part, self._starts_of_rates(part, one)) for part, one in new]
        for (part, one), own in zip(new, self._rates.fitted(wanted), strict=True):
            self._found[part, one.name] = own
        return [self._found[name] for name in names]

    def _starts_of_rates(self, part: int, candidate: Candidate) -> list[Model]:
        """Where a candidate's rates may have maxima, with the matrix of the best."""
        scored, best = self.choices[part].scored, self.choices[part].best
        model = self._model(part, candidate)
        reference = scored.get(self._matrix + candidate.rates)
        if reference is not None:
            model = started_from(model, reference.model)
        return starting_models(with_matrix_held(started_from(model, best.model)))

    def _screen_rates(self, wanted: Sequence[Sequence[Candidate]]) -> None:
        """Fit the rates of candidates with the matrix of the best one, and branch lengths."""
        pairs = [
            (part, one)
            for part, own in enumerate(wanted)
            for one in own
            if one.name not in self.choices[part].scored
        ]
        if not pairs:
            return
        self._look(dict.fromkeys(part for part, _ in pairs))
        found = self._among_sites(pairs)
        fits = [self._fit_of_rates(part, own) for (part, _), own in zip(pairs, found, strict=True)]
        near = within_reach(fits, self._penalties(pairs))
        self._rates.settle([fit for fit, is_near in zip(fits, near, strict=True) if is_near])
        self._rates.score([fit for fit, is_near in zip(fits, near, strict=True) if not is_near])
        for (part, one), fit, is_near in zip(pairs, fits, near, strict=True):
            model = self._model(part, one)
            whole = is_near and with_matrix_held(model) is model
            self._note(part, one, fit, fit.lnl, whole)
        self._found.clear()
        self._tell(pairs)

    def _fit_of_rates(self, part: int, found: FittedAmongSites) -> Fit:
        """Where the screening of rates begins."""
        lengths = FITTING.branches.scaled(self.choices[part].best.tree.lengths, found.scale)
        return self._fit_of(part, found.model, lengths, engine_width([found.model]), found.lnl)

    def _screen_matrices(self, wanted: Sequence[Sequence[Candidate]]) -> None:
        """Fit the matrices of candidates with the rates of the best one, and branch lengths."""
        self._score(wanted, screens=True)

    def _fit_whole(self, wanted: Sequence[Sequence[Candidate]]) -> None:
        """Fit candidates from where their screening ended."""
        self._score(wanted, screens=False)

    def _score(self, wanted: Sequence[Sequence[Candidate]], *, screens: bool) -> None:
        """Fit candidates of every part that are not known yet, those of one width at a time."""
        starts = [
            (part, start)
            for part, own in enumerate(wanted)
            for one in own
            if (start := self._start(part, one, screens)) is not None
        ]
        parts, models = [part for part, _ in starts], [start.model for _, start in starts]
        for width, lot in in_lots(parts, models):
            self._fit([starts[n] for n in lot], width, screens)
        if starts:
            self._tell([(part, start.candidate) for part, start in starts])

    def _tell(self, pairs: Sequence[tuple[int, Candidate]]) -> None:
        """Candidates of parts were fitted."""
        best = self.choices[0].best.name
        self._emit(CandidatesScored(len(pairs), len(self.choices), best))

    def _start(self, part: int, candidate: Candidate, screens: bool) -> _Start | None:
        """Where the fit of a candidate begins; None where it has been done."""
        scored = self.choices[part].scored
        known = scored.get(candidate.name)
        if known is not None and (screens or known.whole):
            return None
        model = self._model(part, candidate)
        if known is not None:
            return _Start(candidate, thawed(known.model, model), known.tree, known.lnl)
        if not scored:
            model = started_from(model, self._known.models[part]) if self._known.models else model
            return _Start(candidate, model, self._tree)
        best = self.choices[part].best
        model = started_from(model, best.model)
        return _Start(candidate, with_rates_held(model) if screens else model, best.tree)

    def _model(self, part: int, candidate: Candidate) -> Model:
        model = model_of(candidate, self._patterns.alphabet)
        return model.with_empirical_frequencies(self._parts[part])

    def _free(self, candidate: Candidate) -> int:
        """Free parameters of a candidate, branch lengths included."""
        model = model_of(candidate, self._patterns.alphabet)
        return free_parameters(model) + self._tree.n_branches

    def _fit(self, starts: Sequence[tuple[int, _Start]], width: int, screens: bool) -> None:
        """Fit starts of parts side by side, each to its part alone."""
        fits = [
            self._fit_of(part, start.model, start.tree.lengths.copy(), width, start.lnl)
            for part, start in starts
        ]
        for (part, start), fit in zip(starts, fits, strict=True):
            fit.curvatures = [self._curvature(part, start)]
        likelihood = self._likelihood(width)
        if screens:
            self._sieve(likelihood, starts, fits)
        else:
            perform(likelihood, settle(fits, FITTING))
        lnls = perform(
            likelihood,
            part_log_likelihoods([fit.tree for fit in fits], [fit.case for fit in fits]),
        )
        for (part, start), fit, (lnl,) in zip(starts, fits, lnls.tolist(), strict=True):
            self._note(part, start.candidate, fit, lnl, start.is_whole)
            (curvature,) = fit.curvatures
            if start.candidate.matrix == self._matrix and curvature is not None:
                self._curvatures[part, start.candidate.name] = curvature

    def _curvature(self, part: int, start: _Start) -> Float64 | None:
        """About that of lnL where a fit of a candidate begins, as the reference matrix tells."""
        general = self._matrix + start.candidate.rates
        known = self._curvatures.get((part, general))
        if known is None:
            return None
        return projected(known, self.choices[part].scored[general].model, start.model)

    def _sieve(
        self, likelihood: Likelihood, starts: Sequence[tuple[int, _Start]], fits: Sequence[Fit]
    ) -> None:
        """Fit those of some starts that may come near the best of their parts."""
        penalties = self._penalties([(part, start.candidate) for part, start in starts])
        best = [choice.best.score(self._criterion) for choice in self.choices]
        settle_promising(likelihood, fits, penalties, np.array(best), FITTING)

    def _penalties(self, pairs: Sequence[tuple[int, Candidate]]) -> Float64:
        """f64[n]: what candidates of parts score at an lnL of 0."""
        return np.array(
            [self._criterion.score(0.0, self._free(one), self._sites[part]) for part, one in pairs]
        )

    def _fit_of(self, part: int, model: Model, lengths: Float64, width: int, lnl: float) -> Fit:
        tree = self._tree.with_lengths(lengths)
        return Fit(tree, replace(alone(model), least_categories=width), first_part=part, lnl=lnl)

    def _note(self, part: int, candidate: Candidate, fit: Fit, lnl: float, whole: bool) -> None:
        """Keep what a fit found for a part."""
        self.choices[part].scored[candidate.name] = Scored(
            candidate=candidate,
            lnl=lnl,
            parameters=self._free(candidate),
            sites=self._sites[part],
            model=fit.model.lone,
            tree=fit.tree,
            whole=whole,
        )


class _Start(Value):
    """Where a fit of a candidate to a part begins."""

    candidate: Candidate
    model: Model
    tree: Tree
    lnl: float = -np.inf
    """Of both, natural log, where it is known."""

    @property
    def is_whole(self) -> bool:
        """Whether no half of the model is held."""
        return not (self.model.rates_fixed or self.model.p_invariant_fixed) and not is_held(
            self.model.heterogeneity
        )


def _part(patterns: Patterns, span: slice) -> Patterns:
    return replace(patterns, codes=patterns.codes[:, span], weights=patterns.weights[span], ends=())
