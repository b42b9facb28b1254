"""Model choice: candidate models fitted side by side to a tree, and ranked by a criterion.

As in ModelFinder (Kalyaanamoorthy et al. 2017) the rates among sites are compared under one matrix,
then the matrices under the best rates. Either is done in two steps: a *screening*, in which the
other half of the model stays as the last fit left it, a lower bound of lnL for little work, and
least where rates are screened (:mod:`mltree.fit.coordinate_ascent`); then those that came near the
best are fitted whole. The parts of an alignment are problems of their own, each with branch lengths
of its own, and are treated together: the candidates of all parts share launches, each a case of the
patterns of its part.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import compress, groupby
from typing import Any

import numpy as np

from mltree.data.alphabet import Alphabet
from mltree.data.patterns import Patterns
from mltree.device.worker import SEARCHING, Build
from mltree.fit.coordinate_ascent import RateScreening, ascend, ascend_promising, within_reach
from mltree.fit.fits import Fit, starting_models
from mltree.fit.rate_optimiser import FittedAmongSites
from mltree.fit.settings import PRESETS, ModelSettings
from mltree.likelihood.likelihood import TreeLikelihood
from mltree.likelihood.requests import part_log_likelihoods, perform
from mltree.models.empirical import PROTEIN_MODELS
from mltree.models.grammar import format_model, parse_model
from mltree.models.names import family_of, from_elsewhere
from mltree.models.parameters import free_parameters, vector, with_vectors
from mltree.models.partitioned import alone
from mltree.models.portable import exp, log, product
from mltree.models.rates import OneRate
from mltree.models.substitution import DNA_MODELS, Model, expand_rates, n_classes
from mltree.runs.engines import Engines, Resources, Workload
from mltree.system.arrays import Float64
from mltree.system.errors import ModelError
from mltree.system.events import CandidatesScored, Emit, ModelChosen
from mltree.system.ranks import current_ranks
from mltree.system.values import Value, Word
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
"""Rates among sites that are compared first, beside free ones; +I not where constant sites were
left out of the data."""

MOST_FREE_RATES = 10
"""Categories of free rates, as in ModelFinder."""


class Criterion(Word):
    """Information criterion of a model; smaller is better."""

    BIC = "bic"
    AIC = "aic"
    AICC = "aicc"

    def score(self, lnl: float, parameters: int, sites: int) -> float:
        """Return the criterion of a model with so many free parameters, on so many sites."""
        if self is Criterion.BIC:
            return parameters * math.log(sites) - 2 * lnl
        aic = 2 * parameters - 2 * lnl
        if self is Criterion.AIC:
            return aic
        return aic + 2 * parameters * (parameters + 1) / max(sites - parameters - 1, 1)


class CandidateModel(Value):
    """A candidate model in two halves."""

    matrix: str
    """Exchangeabilities and frequencies: ``HKY+FC``, ``LG``."""
    rates: str
    """Among sites: ``+I+G4``, or none; and ``+ASC_LEWIS`` where constant sites were left out."""

    @property
    def name(self) -> str:
        """Name as ``--model`` takes it."""
        return self.matrix + self.rates


def matrices(alphabet: Alphabet, among: Sequence[str] = ()) -> list[str]:
    """Return every matrix for a kind of data with each of its frequencies, the reference first.

    ``among``: the matrices that count, by name; where none of them is for these data, all do.

    The reference, under which the rates are compared, is the most general one, or the most usual.
    Nucleotides: equal frequencies, or counted where a name says that they differ. Proteins: the
    model's own, or counted. Of other data their family says.
    """
    family = family_of(alphabet)
    if family is not None:
        every = family.matrices(alphabet)
    elif alphabet.name == "DNA":
        every = [
            name + "+FC" * model.free_frequencies for name, model in reversed(DNA_MODELS.items())
        ]
    else:
        every = [name + term for name in PROTEIN_MODELS for term in ("", "+FC")]
    wanted = {_matrix_name(name, alphabet) for name in among}
    return [name for name in every if name.partition("+")[0].upper() in wanted] or every


def _matrix_name(name: str, alphabet: Alphabet) -> str:
    """Name of a matrix in capitals, IQ-TREE's names resolved: ``TN`` is ``TN93``."""
    try:
        model = parse_model(name, alphabet)
    except ModelError:
        return (from_elsewhere("IQ-TREE", name, {}) or name).partition("+")[0].upper()
    return format_model(model).partition("{")[0].partition("+")[0].upper()


def check_model_set(among: Sequence[str], alphabets: Iterable[Alphabet]) -> None:
    """Make sure that each name of a set of models is one of the candidates' for some of the data.

    Raises: ModelError: one is none.
    """
    every = {alphabet: {one.partition("+")[0].upper() for one in matrices(alphabet)}
             for alphabet in alphabets}  # fmt: skip
    for name in among:
        if not any(_matrix_name(name, alphabet) in known for alphabet, known in every.items()):
            shown = ", ".join(sorted(set().union(*every.values())))
            raise ModelError(f"--model-set: {name!r} is not a matrix of these data", hint=shown)


@lru_cache(maxsize=1024)
def model_of(candidate: CandidateModel, alphabet: Alphabet) -> Model:
    """Return the model of a candidate, with starting values of its parameters.

    Frequencies that are counted in data are NaN (:func:`mltree.models.grammar.parse_model`).
    """
    return parse_model(candidate.name, alphabet)


def free_rates(categories: int) -> str:
    """Return the term of so many free rates."""
    return f"+R{categories}"


def started_from(model: Model, other: Model) -> Model:
    """Return the model with starting values from another model's estimates, as far as they fit."""
    form, other_form = model.heterogeneity, other.heterogeneity
    if isinstance(form, type(other_form)) and len(form.variables()) == len(other_form.variables()):
        invariant = None if model.p_invariant is None else other.p_invariant or model.p_invariant
        model = replace(model, heterogeneity=other_form, p_invariant=invariant)
    if model.codon is not None and other.codon is not None:
        return model.with_codon(model.codon.like(other.codon))
    if not model.rate_classes or len(model.rates) != len(other.rates) or not other.rate_classes:
        return model
    classes = np.array(model.rate_classes)
    logs = log(np.maximum(other.rates, np.finfo(np.float64).tiny))
    means = [logs[classes == one].mean() for one in range(n_classes(model.rate_classes))]
    rates = expand_rates(model.rate_classes, exp(np.array(means)))
    return replace(model, rates=rates / rates[-1])


def with_rates_held(model: Model) -> Model:
    """Return the model with its rates among sites fixed as they are."""
    form: Any = model.heterogeneity
    held = form if isinstance(form, OneRate) else replace(form, fixed=True)
    return replace(model, heterogeneity=held, p_invariant_fixed=True)


def thawed(held: Model, model: Model) -> Model:
    """Return the model with the estimates of its partly fixed twin, free where the model is."""
    values, among = held.values(), vars(model.heterogeneity)
    values["heterogeneity"] |= {name: among[name] for name in among.keys() & {"fixed"}}
    return model.with_values(values)


def with_matrix_held(model: Model) -> Model:
    """Return the model with its free exchangeabilities fixed as they are."""
    if model.codon is not None:
        return model.with_codon(model.codon.held())
    return replace(model, rates_fixed=True) if model.rate_classes else model


# How lnL curves in the variables of a model, from how it does in those of a more general one.
#
# Equal exchangeabilities are one variable, so that steps y of a model are steps J y of one that
# tells them apart, and minus the Hessian is J^T H J. It holds where both models mean the same;
# where they differ in frequencies, about.


def projected(curvature: Float64, general: Model, model: Model) -> Float64 | None:
    """f64 [m + 1, m + 1]: curvature in a model's m variables and the scale of branch lengths.

    ``curvature``: f64 [n + 1, n + 1], in the general model's. None where variables of one model are
    missing in the other.
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


class ScoredModel(Value):
    """A candidate model that was fitted to a part."""

    candidate: CandidateModel
    lnl: float
    """Natural log, at the maximum over branch lengths and parameters; less after a screening."""
    parameters: int
    """Free ones, branch lengths included."""
    sites: int
    model: Model
    """The model with its estimates."""
    tree: Tree
    """The tree with its lengths."""
    whole: bool
    """True if both halves were fitted."""

    @property
    def name(self) -> str:
        """Name as ``--model`` takes it."""
        return self.candidate.name

    def score(self, criterion: Criterion) -> float:
        """Return the criterion's score; smaller is better."""
        return criterion.score(self.lnl, self.parameters, self.sites)


@dataclass
class RankedModels:
    """The candidate models of a part, ranked by a criterion."""

    part: str
    criterion: Criterion
    scored: dict[str, ScoredModel] = field(default_factory=dict)
    """Fitted candidates by name."""

    @property
    def ranked(self) -> list[ScoredModel]:
        """All candidates, the best first."""
        return sorted(self.scored.values(), key=lambda one: one.score(self.criterion))

    @property
    def best(self) -> ScoredModel:
        """The best candidate."""
        return self.ranked[0]

    def weights(self, criterion: Criterion) -> dict[str, float]:
        """Return each candidate's weight by a criterion: exp(-delta / 2), of sum 1."""
        scores = {name: one.score(criterion) for name, one in self.scored.items()}
        least = min(scores.values())
        worth = {name: float(np.exp((least - score) / 2)) for name, score in scores.items()}
        total = sum(worth.values())
        return {name: value / total for name, value in worth.items()}


class KnownModels(Value):
    """Earlier results for the parts of some patterns, to begin a model choice with."""

    models: Sequence[Model] = ()
    """Starting model of each part; or none."""
    matrices: Sequence[Sequence[str]] = ()
    """Matrices to compare, of each part; all matrices if empty."""
    likelihoods: Mapping[int, TreeLikelihood] = field(default_factory=dict)
    """Open likelihoods of the patterns, by their categories."""
    among: Sequence[str] = ()
    """Names of the matrices that are asked for; see :func:`matrices`."""


def matrices_near(choices: Sequence[RankedModels], margin: float) -> list[str]:
    """Return the matrices that may score best for merged parts, or did so for one of them.

    A merged part would have the sum of lnLs, and the parameters of one: matrices within a margin of
    the best by that score are kept. Each part has the same matrices.
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


def _best_by_matrix(choice: RankedModels) -> dict[str, ScoredModel]:
    """Return every matrix with its best rates for the part."""
    return {one.candidate.matrix: one for one in reversed(choice.ranked)}


# Category padding: engines are built for few numbers of categories, which several models share.

PADDED_CATEGORIES = (4, 5, 8, MOST_FREE_RATES)
"""Numbers of categories that engines are built for: a candidate with fewer is padded with
categories of weight 0, which take less time than another build."""

FIT_BATCH = 256
"""Fits side by side: 2,100 fits of 100 parts would take 250 MB of the host at once."""


def padded_categories(models: Sequence[Model]) -> int:
    """Return the number of categories of the engine that some models are fitted on."""
    most = max(model.arrays().n_categories for model in models)
    return min(categories for categories in PADDED_CATEGORIES if categories >= most)


def fit_batches(parts: Sequence[int], models: Sequence[Model]) -> Iterator[tuple[int, list[int]]]:
    """Yield categories and numbers of fits, about :data:`FIT_BATCH` at a time, parts kept whole.

    ``parts``: part of each fit, those of a part one after the other; ``models``: of each fit.
    """
    padded = [padded_categories([model]) for model in models]
    for categories in PADDED_CATEGORIES:
        batch: list[int] = []
        suiting = (n for n in range(len(parts)) if padded[n] == categories)
        for _, of_part in groupby(suiting, key=parts.__getitem__):
            if len(batch) >= FIT_BATCH:
                yield categories, batch
                batch = []
            batch += of_part
        if batch:
            yield categories, batch


REFIT_MARGIN = 10.0
"""Score: candidates whose screening ends so much above the best are not fitted whole. ModelFinder
drops rates that are as much worse. The other half of a model, fitted to it, brings a few units."""

FITTING = replace(
    PRESETS["fast"],
    model=ModelSettings(final_epsilon=0.01),
    ascent_epsilon=0.05,
    final_smooth_epsilon=0.01,
    max_ascent_turns=8,
)
"""Settings of fits: a tenth of ModelFinder's tolerance (0.1), as scores are compared by units."""


NOTHING = KnownModels()


def choose_models(
    patterns: Patterns,
    names: Sequence[str],
    tree: Tree,
    resources: Resources,
    criterion: Criterion,
    emit: Emit,
    known: KnownModels = NOTHING,
) -> list[RankedModels]:
    """Choose the best model of every part of some patterns of one kind, on a tree of their taxa.

    ``names``: of the parts. The fits begin at the tree's lengths, f64[E]. Parts without constant
    sites have models that are corrected for that.

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


def fitting_engines(
    patterns: Patterns, categories: int, sites: int, resources: Resources
) -> Engines:
    """Plan the engines that candidates with so many categories are fitted on, part by part.

    ``sites``: of the largest part.

    Raises:
        DeviceError: a device cannot be found.
    """
    bounds = FITTING.branches.bounds(sites)
    work = Workload.of_patterns(patterns, categories, bounds, apart=True, among=current_ranks())
    return Engines(resources, work)


def usual_builds(patterns: Patterns, resources: Resources) -> list[Build]:
    """List the workers that most choices need after +G4's, and a search under +I+G4 after those.

    Raises:
        DeviceError: a device cannot be found.
    """
    sites = int(patterns.weights.sum())
    five, free = (
        fitting_engines(patterns, categories, sites, resources).plans[0]
        for categories in PADDED_CATEGORIES[1:3]
    )
    fits_free = free.wanted("walk") or free.wanted("sites")
    return [*five.wanted("sites", "walk"), *fits_free, *five.wanted("scan", "triplet")]


class _FitStart(Value):
    """The start of a candidate's fit to a part."""

    part: int
    candidate: CandidateModel
    model: Model
    tree: Tree
    lnl: float = -np.inf
    """lnL of model and tree, natural log, if it is known."""


@dataclass
class _Chooser:
    """A model choice under way."""

    patterns: Patterns
    names: Sequence[str]
    tree: Tree
    resources: Resources
    criterion: Criterion
    emit: Emit
    known: KnownModels

    def __post_init__(self) -> None:
        self.choices = [RankedModels(name, self.criterion) for name in self.names]
        self._parts = [_patterns_of(self.patterns, span) for span in self.patterns.parts]
        self._sites = [int(part.weights.sum()) for part in self._parts]
        self._reference, *self._others = matrices(self.patterns.alphabet, self.known.among)
        self._corrections = {one.part: one.ascertainment.text for one in self.patterns.unseen}
        """Terms of the parts whose constant sites were left out."""
        self._likelihoods = dict(self.known.likelihoods)
        self._last_told: CandidatesScored | None = None
        self._rates = RateScreening(self.patterns, FITTING, self._likelihood, PADDED_CATEGORIES[0])
        self._fitted_rates: dict[tuple[int, str], FittedAmongSites] = {}
        """Fitted rates of candidates, on the profiled trees."""
        self._curvatures: dict[tuple[int, str], Float64] = {}
        """Curvatures of candidates with the reference matrix that were fitted whole."""

    def compare_rates(self) -> None:
        """Compare all rates under the reference matrix; free ones until more of them are worse."""
        self._fit([[self._with_rates(part, "+G4")] for part in range(len(self.choices))])
        self._look(range(len(self.choices)))
        self._screen_rates(self._worth_a_try())
        while any(candidates := [self._next_free(part) for part in range(len(self.choices))]):
            self._screen_rates(candidates)
        self._fit_near(0.0)
        self._build_for_search()

    def _build_for_search(self) -> None:
        """Have the workers of a search under the best rates built, if it has only one part."""
        if len(self.choices) == 1:
            categories = self.choices[0].best.model.arrays().n_categories
            sites = max(self._sites)
            engines = fitting_engines(self.patterns, categories, sites, self.resources)
            engines.build_ahead(engines.plans[0].wanted(*SEARCHING))

    def compare_matrices(self) -> None:
        """Compare all matrices under the best rates, and the best one under rates near the best."""
        worth = self.known.matrices or [self._others] * len(self.choices)
        near = [[one.rates for one in self._near(choice)] for choice in self.choices]
        rates = [choice.best.candidate.rates for choice in self.choices]
        candidates = [
            [CandidateModel(matrix, rate) for matrix in self._others if matrix in some]
            for rate, some in zip(rates, worth, strict=True)
        ]
        self._fit(candidates, screens=True)
        self._fit_near()
        best = [choice.best.candidate.matrix for choice in self.choices]
        self._screen_rates(
            [
                [CandidateModel(matrix, term) for term in terms]
                for matrix, terms in zip(best, near, strict=True)
            ]
        )
        self._fit_near()

    def _worth_a_try(self) -> list[list[CandidateModel]]:
        """Return the rates to screen for each part: free ones while they improve, lengths fixed.

        Raises: ValueError where not all parts were profiled.
        """
        worth = [
            [
                self._with_rates(part, term)
                for term in REFERENCE_RATES
                if "+I" not in term or part not in self._corrections
            ]
            for part in range(len(self.choices))
        ]
        last = dict.fromkeys(range(len(self.choices)), np.inf)
        for count in range(2, MOST_FREE_RATES + 1):
            tried = [(part, self._with_rates(part, free_rates(count))) for part in last]
            for (part, one), rates in zip(tried, self._among_sites(tried), strict=True):
                worth[part].append(one)
                score = self._score(part, one, rates.lnl)
                if score < last[part]:
                    last[part] = score
                else:
                    del last[part]
        return worth

    def _with_rates(self, part: int, rates: str) -> CandidateModel:
        """Return the candidate of the reference matrix and some rates for a part."""
        return CandidateModel(self._reference, rates + self._corrections.get(part, ""))

    def _next_free(self, part: int) -> list[CandidateModel]:
        """Return one free rate more, if the most so far are the best of all free ones."""
        scored = self.choices[part].scored
        tried = [
            scored[name].score(self.criterion)
            for count in range(2, MOST_FREE_RATES + 1)
            if (name := self._with_rates(part, free_rates(count)).name) in scored
        ]
        if len(tried) + 2 > MOST_FREE_RATES or tried[-1] >= tried[-2]:
            return []
        return [self._with_rates(part, free_rates(len(tried) + 2))]

    def _near(self, choice: RankedModels, margin: float = REFIT_MARGIN) -> list[CandidateModel]:
        """Return the candidates within a margin of the best."""
        limit = choice.best.score(self.criterion) + margin
        return [one.candidate for one in choice.ranked if one.score(self.criterion) <= limit]

    def _fit_near(self, margin: float = REFIT_MARGIN) -> None:
        """Fit the candidates within a margin of the best whole, where that was not done."""
        self._fit([self._near(choice, margin) for choice in self.choices])

    def _look(self, parts: Iterable[int]) -> None:
        """Profile the rates of parts, on the best trees and under the best matrices so far."""
        best = {part: self.choices[part].best for part in parts}
        self._rates.look([(part, choice.tree, choice.model) for part, choice in best.items()])

    def _among_sites(self, pairs: Sequence[tuple[int, CandidateModel]]) -> list[FittedAmongSites]:
        """Fit the rates of candidates to parts, all else as in the best candidate of each part."""
        fitted = self._fitted_rates
        new = [(part, one) for part, one in pairs if (part, one.name) not in fitted]
        starts = [(part, self._starts_of_rates(part, one)) for part, one in new]
        for (part, one), rates in zip(new, self._rates.fitted(starts), strict=True):
            fitted[part, one.name] = rates
        return [fitted[part, one.name] for part, one in pairs]

    def _starts_of_rates(self, part: int, candidate: CandidateModel) -> list[Model]:
        """Return starts for a candidate's rates, with the matrix of the best candidate."""
        scored, best = self.choices[part].scored, self.choices[part].best
        model = self._model(part, candidate)
        reference = scored.get(self._reference + candidate.rates)
        if reference is not None:
            model = started_from(model, reference.model)
        return starting_models(with_matrix_held(started_from(model, best.model)))

    def _screen_rates(self, candidates: Sequence[Sequence[CandidateModel]]) -> None:
        """Fit the rates of candidates with the matrix of the best one, and branch lengths."""
        pairs = [
            (part, one)
            for part, of_part in enumerate(candidates)
            for one in of_part
            if one.name not in self.choices[part].scored
        ]
        if not pairs:
            return
        self._look(dict.fromkeys(part for part, _ in pairs))
        fits = []
        for (part, _), rates in zip(pairs, self._among_sites(pairs), strict=True):
            lengths = FITTING.branches.scaled(self.choices[part].best.tree.lengths, rates.scale)
            categories = padded_categories([rates.model])
            fits.append(self._fit_of(part, rates.model, lengths, categories, rates.lnl))
        near = within_reach(fits, self._penalties(pairs))
        self._rates.ascend(list(compress(fits, near)))
        self._rates.score(list(compress(fits, np.logical_not(near))))
        for (part, one), fit, is_near in zip(pairs, fits, near, strict=True):
            model = self._model(part, one)
            whole = is_near and with_matrix_held(model) is model
            self._note(part, one, fit, fit.lnl, whole)
        self._fitted_rates.clear()
        self._tell()

    def _fit(
        self, candidates: Sequence[Sequence[CandidateModel]], *, screens: bool = False
    ) -> None:
        """Fit candidates of every part, from where their screening ended; none a second time.

        ``screens``: with the rates of the part's best candidate, and branch lengths.
        """
        starts = [
            start
            for part, of_part in enumerate(candidates)
            for one in of_part
            if (start := self._start(part, one, screens)) is not None
        ]
        parts, models = [start.part for start in starts], [start.model for start in starts]
        for categories, batch in fit_batches(parts, models):
            self._fit_side_by_side([starts[n] for n in batch], categories, screens)
        if starts:
            self._tell()

    def _tell(self) -> None:
        """Report the number of candidates fitted so far, and the best, unless that is known."""
        count = sum(len(choice.scored) for choice in self.choices)
        event = CandidatesScored(count, len(self.choices), self.choices[0].best.name)
        if event != self._last_told:
            self.emit(event)
        self._last_told = event

    def _start(self, part: int, candidate: CandidateModel, screens: bool) -> _FitStart | None:
        """Return the start of a candidate's fit; None if the fit has been done."""
        scored, model = self.choices[part].scored, self._model(part, candidate)
        known = scored.get(candidate.name)
        if known is not None:
            if screens or known.whole:
                return None
            return _FitStart(part, candidate, thawed(known.model, model), known.tree, known.lnl)
        if not scored:
            model = started_from(model, self.known.models[part]) if self.known.models else model
            return _FitStart(part, candidate, model, self.tree)
        best = self.choices[part].best
        model = started_from(model, best.model)
        return _FitStart(part, candidate, with_rates_held(model) if screens else model, best.tree)

    def _fit_side_by_side(
        self, starts: Sequence[_FitStart], categories: int, screens: bool
    ) -> None:
        """Fit starts side by side, each to its part alone."""
        fits = []
        for start in starts:
            lengths = start.tree.lengths.copy()
            fit = self._fit_of(start.part, start.model, lengths, categories, start.lnl)
            fit.curvatures = [self._curvature(start)]
            fits.append(fit)
        likelihood = self._likelihood(categories)
        if screens:
            penalties = self._penalties([(start.part, start.candidate) for start in starts])
            best = np.array([choice.best.score(self.criterion) for choice in self.choices])
            ascend_promising(likelihood, fits, penalties, best, FITTING)
        else:
            perform(likelihood, ascend(fits, FITTING))
        trees, cases = [fit.tree for fit in fits], [fit.case for fit in fits]
        lnls = perform(likelihood, part_log_likelihoods(trees, cases))
        for start, fit, (lnl,) in zip(starts, fits, lnls.tolist(), strict=True):
            self._note(start.part, start.candidate, fit, lnl, not screens)
            (curvature,) = fit.curvatures
            if start.candidate.matrix == self._reference and curvature is not None:
                self._curvatures[start.part, start.candidate.name] = curvature

    def _likelihood(self, categories: int) -> TreeLikelihood:
        """Return the likelihood of trees of single parts, opened when first asked for.

        Raises:
            DeviceError: a device cannot be found or used.
        """
        if categories not in self._likelihoods:
            engines = fitting_engines(self.patterns, categories, max(self._sites), self.resources)
            self._likelihoods[categories] = engines.likelihood
        return self._likelihoods[categories]

    def _curvature(self, start: _FitStart) -> Float64 | None:
        """Return the approximate curvature at the start of a fit, from the reference matrix."""
        general = self._reference + start.candidate.rates
        known = self._curvatures.get((start.part, general))
        if known is None:
            return None
        return projected(known, self.choices[start.part].scored[general].model, start.model)

    def _model(self, part: int, candidate: CandidateModel) -> Model:
        model = model_of(candidate, self.patterns.alphabet)
        return model.with_empirical_frequencies(self._parts[part])

    def _free(self, candidate: CandidateModel) -> int:
        """Count the free parameters of a candidate, branch lengths included."""
        return free_parameters(model_of(candidate, self.patterns.alphabet)) + self.tree.n_branches

    def _score(self, part: int, candidate: CandidateModel, lnl: float) -> float:
        return self.criterion.score(lnl, self._free(candidate), self._sites[part])

    def _penalties(self, pairs: Sequence[tuple[int, CandidateModel]]) -> Float64:
        """f64[n]: scores of candidates of parts at an lnL of 0."""
        return np.array([self._score(part, one, 0.0) for part, one in pairs])

    def _fit_of(
        self, part: int, model: Model, lengths: Float64, categories: int, lnl: float
    ) -> Fit:
        padded = replace(alone(model), least_categories=categories)
        return Fit(self.tree.with_lengths(lengths), padded, first_part=part, lnl=lnl)

    def _note(
        self, part: int, candidate: CandidateModel, fit: Fit, lnl: float, whole: bool
    ) -> None:
        """Record the fit of a candidate to a part."""
        free, sites = self._free(candidate), self._sites[part]
        self.choices[part].scored[candidate.name] = ScoredModel(
            candidate, lnl, free, sites, fit.model.lone, fit.tree, whole
        )


def _patterns_of(patterns: Patterns, span: slice) -> Patterns:
    return replace(patterns, codes=patterns.codes[:, span], weights=patterns.weights[span], ends=())
