"""The parameters of a partition model as points of a space in which chains take symmetric steps.

Coordinates are those of :mod:`mltree.models.parameters`: logs of positive numbers, logits of
proportions, logs of ratios to one of several shares; behind them the ratios of parts' rates. A
prior is a density of natural values; in these coordinates it has the Jacobian too, so that a
symmetric step needs no Hastings ratio. Letters: C chains, n coordinates.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain, combinations, pairwise

import numpy as np

from mltree.models.eigen import ModelStack
from mltree.models.parameters import (
    MANY_CLASSES,
    bounds,
    free_classes,
    sizes,
    stacks_of,
    vector,
)
from mltree.models.partitioned import Linkage, PartitionModel
from mltree.models.rates import FreeRates
from mltree.models.substitution import NO_CHANGE, Model, n_classes, unique_rates
from mltree.sampling.priors import Dirichlet, Distribution, Priors
from mltree.system.arrays import Float64
from mltree.system.errors import ModelError
from mltree.system.values import Value

LEAST_ALPHA = 1e-3
"""Smallest shape of gamma rates: below that of searches the likelihood hardly changes, but a prior
may have mass there. Of Dengue-4's 17 sequences the mean is 0.054 under a flat prior, 0.066 from
0.02 on."""

FURTHEST = 12.0
"""Largest log-ratio of the rates of two parts."""


class Block(Value, ABC, eq=False):
    """Some coordinates that have one prior."""

    labels: tuple[str, ...]
    """Names of the natural values, as MrBayes has them."""
    first: int
    """Number of the first coordinate."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of coordinates of the block."""

    @property
    def span(self) -> slice:
        """The coordinates among all."""
        return slice(self.first, self.first + self.size)

    @abstractmethod
    def values(self, x: Float64) -> Float64:
        """Natural values f64[..., labels] at coordinates f64[..., size]."""

    @abstractmethod
    def log_density(self, x: Float64) -> Float64:
        """Natural log of the prior density f64[...] in the coordinates f64[..., size]."""


class Positive(Block, eq=False):
    """The log of a positive number."""

    prior: Distribution

    size = 1

    def values(self, x: Float64) -> Float64:
        return np.exp(x)

    @staticmethod
    def coordinates(support: tuple[float, float]) -> tuple[float, float]:
        """Coordinates of the ends of a range of values."""
        low, high = support
        return math.log(low) if low > 0 else -math.inf, math.log(high)

    def log_density(self, x: Float64) -> Float64:
        """Density of the value, times dv/dx = v."""
        density: Float64 = self.prior.log_density(np.exp(x[..., 0])) + x[..., 0]
        return density


class Proportion(Block, eq=False):
    """The logit of a proportion."""

    prior: Distribution

    size = 1

    def values(self, x: Float64) -> Float64:
        return 1 / (1 + np.exp(-x))

    @staticmethod
    def coordinates(support: tuple[float, float]) -> tuple[float, float]:
        """Coordinates of the ends of a range of values within 0 and 1."""
        low, high = support
        ends = math.log(low) - math.log1p(-low) if low > 0 else -math.inf
        return ends, math.log(high) - math.log1p(-high) if high < 1 else math.inf

    def log_density(self, x: Float64) -> Float64:
        """Density of the value, times dp/dx = p (1 - p)."""
        p = self.values(x[..., 0])
        density: Float64 = self.prior.log_density(p) + np.log(p) + np.log1p(-p)
        return density


class Simplex(Block, eq=False):
    """Logs of ratios of shares to one of them, the ``reference``, whose own log is ``offset``."""

    prior: Dirichlet
    reference: int
    offset: float = 0.0
    scale: Float64 | None = None
    """f64[labels]: natural values are shares times this; the shares themselves where None."""

    @property
    def size(self) -> int:
        return len(self.labels) - 1

    def shares(self, x: Float64) -> Float64:
        """f64[..., labels]: proportions, of sum 1."""
        logs = np.insert(x, self.reference, self.offset, axis=-1)
        ratios = np.exp(logs - logs.max(axis=-1, keepdims=True))
        shares: Float64 = ratios / ratios.sum(axis=-1, keepdims=True)
        return shares

    def values(self, x: Float64) -> Float64:
        shares = self.shares(x)
        return shares if self.scale is None else shares * self.scale

    def log_density(self, x: Float64) -> Float64:
        """Density of all shares but one, times the Jacobian, which is the product of all."""
        shares = self.shares(x)
        density: Float64 = self.prior.log_density(shares) + np.log(shares).sum(axis=-1)
        return density


class ModelSpace:
    """All free parameters of a partition model."""

    def __init__(self, model: PartitionModel, priors: Priors) -> None:
        """Raises: ModelError where a parameter of the model cannot be sampled."""
        self.model = model
        vectors = [vector(part) for part in model.models]
        self._ends = np.cumsum([len(x) for x in vectors]).tolist()
        self.blocks = tuple(self._blocks(priors))
        low, high = np.array([*chain.from_iterable(map(bounds, model.models))]).reshape(-1, 2).T
        rates = self._rates_of_parts()
        self._low = np.append(low, np.full(len(rates), -FURTHEST))
        self._high = np.append(high, np.full(len(rates), FURTHEST))
        self.start: Float64 = np.concatenate([*vectors, rates])
        """f64[n]: the model's own values, or others where a prior excludes them."""
        for block in self.blocks:
            if block.labels[0].startswith("alpha"):
                self._low[block.first] = math.log(LEAST_ALPHA)
            if isinstance(block, Positive | Proportion):
                self._start_within(block)

    def _start_within(self, block: Positive | Proportion) -> None:
        """Begin amid the values that a prior allows, where the model's own is not one of them.

        Raises: ModelError where the model can have none of them.
        """
        at = block.first
        low, high = block.coordinates(block.prior.support)
        low, high = max(low, self._low[at]), min(high, self._high[at])
        if not low < high:
            least, most = block.values(np.array([self._low[at], self._high[at]]))
            raise ModelError(
                f"{block.labels[0]} is between {least:.3g} and {most:.3g}; no such value has a "
                f"density in its prior, {block.prior}"
            )
        if not low < self.start[at] < high:
            self.start[at] = (low + high) / 2

    @property
    def size(self) -> int:
        """Number of coordinates, n."""
        return len(self.start)

    @property
    def groups(self) -> list[slice]:
        """Coordinates that are proposed together: those of a part, and rates of parts."""
        ends = [0, *self._ends, self.size]
        spans = [slice(a, b) for a, b in pairwise(ends)]
        return [span for span in spans if span.stop > span.start]

    @property
    def labels(self) -> list[str]:
        """Names of the natural values."""
        return [label for block in self.blocks for label in block.labels]

    def values(self, points: Float64) -> Float64:
        """Natural values f64[C, labels] at points f64[C, n]."""
        if not self.blocks:
            return np.zeros((len(points), 0))
        return np.concatenate([b.values(points[:, b.span]) for b in self.blocks], axis=1)

    def log_prior(self, points: Float64) -> Float64:
        """f64[C]: natural log of the prior density; -inf out of bounds."""
        within = ((points >= self._low) & (points <= self._high)).all(axis=1)
        inside = np.clip(points, self._low, self._high)
        density = np.zeros(len(points))
        for block in self.blocks:
            density += block.log_density(inside[:, block.span])
        return np.where(within, density, -np.inf)

    @cached_property
    def shape(self) -> tuple[int, int]:
        """Eigen systems and categories that all parts are computed with."""
        shapes = self.model.shapes
        systems = max(own for own, _ in shapes)
        return systems, systems * max(categories // own for own, categories in shapes)

    @cached_property
    def states(self) -> int:
        """States that all parts are computed with."""
        return max(part.n_states for part in self.model.models)

    def stacks(self, points: Float64, parts: Sequence[int] | None = None) -> list[ModelStack]:
        """Arrays of some parts, or all, at points f64[C, n]: of each part, those of all chains."""
        inside = np.clip(points, self._low, self._high)
        which = range(self.model.n_parts) if parts is None else parts
        ends = [0, *self._ends]
        spans = [inside[:, ends[part] : ends[part + 1]] for part in which]
        scalers = [self._scalers(inside)[:, part] for part in which]
        models = [self.model.models[part] for part in which]
        stacks = stacks_of(models, spans, scalers, [self.shape] * len(models))
        return [stack.widened(self.states) for stack in stacks]

    def parts_of(self, group: int) -> Sequence[int]:
        """Parts whose models a group of coordinates changes."""
        at = self.groups[group].start
        owners = [part for part, end in enumerate(self._ends) if at < end]
        return owners[:1] or range(self.model.n_parts)

    def _scalers(self, points: Float64) -> Float64:
        """f64[C, P]: relative rates of parts, of mean 1 over sites."""
        if not self.has_rates:
            return np.tile(self.model.scalers, (len(points), 1))
        return self.blocks[-1].values(points[:, self.blocks[-1].span])

    @property
    def has_rates(self) -> bool:
        """True where rates of parts are parameters: the last group of coordinates."""
        return self.model.linkage == Linkage.SCALED and self.model.n_parts > 1

    def _rates_of_parts(self) -> Float64:
        if not self.has_rates:
            return np.zeros(0)
        logs = np.log(self.model.scalers * self.model.shares)
        return np.asarray(logs[:-1] - logs[-1])

    def _blocks(self, priors: Priors) -> Iterator[Block]:
        first = 0
        for number, part in enumerate(self.model.models, 1):
            of_part = f"{{{number}}}" if self.model.n_parts > 1 else ""
            yield from _blocks_of(part, priors, first, of_part)
            first = self._ends[number - 1]
        if self.has_rates:
            parts = self.model.n_parts
            labels = tuple(f"m{{{number}}}" for number in range(1, parts + 1))
            shares = 1 / self.model.shares
            yield Simplex(labels, first, priors.part_rates, parts - 1, scale=shares)


def _blocks_of(model: Model, priors: Priors, first: int, of_part: str) -> Iterator[Block]:
    """Blocks of a part's model, in the order of its vector."""
    widths = sizes(model)
    if len(model.components) > 1 and any(widths[:-3]):
        raise ModelError(
            "classes with exchangeabilities or frequencies of their own cannot be sampled",
            hint="fix their values, or sample under profiles such as LG+C20",
        )
    exchangeabilities, frequencies, *_, weights, invariable, among = widths
    yield from _exchangeabilities(model, priors, first, of_part)
    first += exchangeabilities
    if frequencies:
        labels = tuple(f"pi({state}){of_part}" for state in model.alphabet.states)
        yield Simplex(labels, first, priors.frequencies, len(labels) - 1)
    first += frequencies
    if weights:
        labels = tuple(f"weight({n}){of_part}" for n in range(1, weights + 2))
        yield Simplex(labels, first, priors.class_weights, weights)
    first += weights
    if invariable:
        yield Proportion((f"pinvar{of_part}",), first, priors.p_invariant)
    first += invariable
    yield from _among_sites(model, priors, first, of_part) if among else ()


def _among_sites(model: Model, priors: Priors, first: int, of_part: str) -> Iterator[Block]:
    """Blocks of rates among sites, invariable ones left out."""
    if isinstance(model.heterogeneity, FreeRates):
        half = len(model.heterogeneity.rates) - 1
        for name, start in (("rate", first), ("weight", first + half)):
            labels = tuple(f"{name}[{k}]{of_part}" for k in range(1, half + 2))
            yield Simplex(labels, start, priors.free_rates, half)
    else:
        yield Positive((f"alpha{of_part}",), first, priors.alpha)


def _exchangeabilities(model: Model, priors: Priors, first: int, of_part: str) -> Iterator[Block]:
    """Blocks of exchangeabilities, or of codons' ω and κ."""
    if model.codon is not None:
        for number, variable in enumerate(model.codon.variables()):
            is_omega = variable.name.lower().startswith(("omega", "ω"))
            prior = priors.omega if is_omega else priors.kappa
            yield Positive((variable.name + of_part,), first + number, prior)
        return
    if not free_classes(model):
        return
    classes = n_classes(model.rate_classes)
    if classes > MANY_CLASSES:
        raise ModelError(
            f"{classes} exchangeabilities cannot be sampled",
            hint="an empirical matrix such as LG has fixed ones",
        )
    if classes == 2:
        yield Positive((f"kappa{of_part}",), first, priors.kappa)
        return
    (reference,) = set(range(classes)) - set(free_classes(model))
    own = float(unique_rates(model.rate_classes, model.rates)[reference])
    labels = tuple(label + of_part for label in _class_labels(model))
    yield Simplex(labels, first, priors.exchangeabilities, reference, math.log(own))


def _class_labels(model: Model) -> Sequence[str]:
    """``r(A<->C)`` of every class, by its first pair of states."""
    labels: dict[int, str] = {}
    for (one, other), number in zip(
        combinations(model.alphabet.states, 2), model.rate_classes, strict=True
    ):
        if number != NO_CHANGE:
            labels.setdefault(number, f"r({one}<->{other})")
    return [labels[number] for number in range(n_classes(model.rate_classes))]
