"""Priors: distributions by name, of branch lengths and of model parameters.

``--prior FILE`` is a TOML table of them, ``alpha = "Exponential(1)"``. Densities are natural logs,
with their constants, so that ln Z means something.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from difflib import get_close_matches
from statistics import NormalDist
from typing import Any

import numpy as np

from mltree.models.rates import quantiles as gamma_quantiles
from mltree.program.contract import Chain
from mltree.program.random_numbers import Stream
from mltree.system.arrays import Float64
from mltree.system.errors import InputError
from mltree.system.files import toml_of
from mltree.system.values import Value


def _listed(prior: Value) -> str:
    """The arguments of a distribution, in order."""
    return ", ".join(f"{value:g}" for value in asdict(prior).values())


def _name_of(kind: type) -> str:
    """The name of a distribution for users."""
    return kind.__name__.removesuffix("Distribution").removesuffix("Lengths")


class Distribution(Value, ABC):
    """A distribution of one number; its fields are the arguments behind its name."""

    @property
    def support(self) -> tuple[float, float]:
        """Range of the values that it can give."""
        return 0.0, math.inf

    @abstractmethod
    def log_density(self, value: Float64) -> Float64:
        """Natural log of the density at each positive value; -inf out of the support."""

    @abstractmethod
    def draw(self, stream: Stream) -> float:
        """A value at random."""

    @abstractmethod
    def quantile(self, share: float) -> float:
        """The value below which a share of the probability is, between 0 and 1."""

    def __str__(self) -> str:
        return f"{_name_of(type(self))}({_listed(self)})"


class Exponential(Distribution):
    """Exponential distribution of a rate."""

    rate: float

    def log_density(self, value: Float64) -> Float64:
        return np.asarray(math.log(self.rate) - self.rate * value)

    def draw(self, stream: Stream) -> float:
        return -math.log(stream.uniform()) / self.rate

    def quantile(self, share: float) -> float:
        return -math.log1p(-share) / self.rate


class GammaDistribution(Distribution):
    """Gamma distribution of a shape and a rate."""

    shape: float
    rate: float

    def log_density(self, value: Float64) -> Float64:
        constant = self.shape * math.log(self.rate) - math.lgamma(self.shape)
        return np.asarray(constant + (self.shape - 1) * np.log(value) - self.rate * value)

    def draw(self, stream: Stream) -> float:
        return gamma_draw(stream, self.shape) / self.rate

    def quantile(self, share: float) -> float:
        of_mean, _ = gamma_quantiles(np.array(self.shape), np.array([share]))
        return float(of_mean[0]) * self.shape / self.rate


class Normal(Distribution):
    """Normal distribution of a mean and a standard deviation."""

    mean: float
    deviation: float

    @property
    def support(self) -> tuple[float, float]:
        return -math.inf, math.inf

    def log_density(self, value: Float64) -> Float64:
        z = (value - self.mean) / self.deviation
        return np.asarray(-(z**2) / 2 - math.log(self.deviation) - math.log(2 * math.pi) / 2)

    def draw(self, stream: Stream) -> float:
        return self.mean + self.deviation * stream.normal()

    def quantile(self, share: float) -> float:
        return NormalDist(self.mean, self.deviation).inv_cdf(share)


class LogNormal(Distribution):
    """Distribution of a number whose natural log is normal, of this mean and deviation."""

    mean: float
    deviation: float

    def log_density(self, value: Float64) -> Float64:
        logs = np.log(value)
        z = (logs - self.mean) / self.deviation
        constant = math.log(self.deviation) + math.log(2 * math.pi) / 2
        return np.asarray(-(z**2) / 2 - constant - logs)

    def draw(self, stream: Stream) -> float:
        return math.exp(self.mean + self.deviation * stream.normal())

    def quantile(self, share: float) -> float:
        return math.exp(NormalDist(self.mean, self.deviation).inv_cdf(share))


class Uniform(Distribution):
    """Uniform distribution between two numbers; of density 1 where one is infinite."""

    low: float
    high: float

    @property
    def support(self) -> tuple[float, float]:
        return self.low, self.high

    def log_density(self, value: Float64) -> Float64:
        is_in = (value >= self.low) & (value <= self.high)
        width = self.high - self.low
        return np.where(is_in, -math.log(width) if math.isfinite(width) else 0.0, -np.inf)

    def draw(self, stream: Stream) -> float:
        return self.low + (self.high - self.low) * stream.uniform()

    def quantile(self, share: float) -> float:
        if not math.isfinite(self.high - self.low):
            return self.low if share < 0.5 else self.high
        return self.low + (self.high - self.low) * share


class Laplace(Distribution):
    """Laplace distribution of a mean and a scale."""

    mean: float
    scale: float

    @property
    def support(self) -> tuple[float, float]:
        return -math.inf, math.inf

    def log_density(self, value: Float64) -> Float64:
        return np.asarray(-np.abs(value - self.mean) / self.scale - math.log(2 * self.scale))

    def draw(self, stream: Stream) -> float:
        return self.quantile(stream.uniform())

    def quantile(self, share: float) -> float:
        tail = math.log(2 * min(share, 1 - share))
        return self.mean + (tail if share < 0.5 else -tail) * self.scale


class Fixed(Distribution):
    """A number that is known."""

    value: float

    @property
    def support(self) -> tuple[float, float]:
        return self.value, self.value

    def log_density(self, value: Float64) -> Float64:
        return np.zeros_like(np.asarray(value, np.float64))

    def draw(self, stream: Stream) -> float:
        return self.value

    def quantile(self, share: float) -> float:
        return self.value


class Shifted(Distribution):
    """Another distribution, moved: ``30 + Exponential(0.2)`` begins at 30."""

    of: Distribution
    offset: float

    @property
    def support(self) -> tuple[float, float]:
        low, high = self.of.support
        return low + self.offset, high + self.offset

    def log_density(self, value: Float64) -> Float64:
        beyond = np.asarray(value - self.offset)
        low, high = self.of.support
        is_in = (beyond > low) & (beyond < high)
        inside = np.where(is_in, beyond, self.of.quantile(0.5))
        return np.where(is_in, self.of.log_density(inside), -np.inf)

    def draw(self, stream: Stream) -> float:
        return self.offset + self.of.draw(stream)

    def quantile(self, share: float) -> float:
        return self.offset + self.of.quantile(share)

    def __str__(self) -> str:
        return f"{self.offset:g} + {self.of}"


class Beta(Distribution):
    """Beta distribution of two shapes."""

    first: float
    second: float

    @property
    def support(self) -> tuple[float, float]:
        return 0.0, 1.0

    def log_density(self, value: Float64) -> Float64:
        a, b = self.first, self.second
        constant = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
        inside = np.where(value < 1, value, 0.5)
        density = constant + (a - 1) * np.log(inside) + (b - 1) * np.log1p(-inside)
        return np.where(value < 1, density, -np.inf)

    def draw(self, stream: Stream) -> float:
        one, other = gamma_draw(stream, self.first), gamma_draw(stream, self.second)
        return one / (one + other)

    def quantile(self, share: float) -> float:
        """The value below which a share of the probability is, to 1e-6: a sum over logits."""
        value = 1 / (1 + np.exp(-np.linspace(-40.0, 40.0, 20_001)))
        weights = np.exp(self.log_density(value)) * value * (1 - value)
        below = np.cumsum(weights) - weights / 2
        return float(np.interp(share, below / weights.sum(), value))


class Dirichlet(Value):
    """Symmetric Dirichlet distribution of proportions."""

    concentration: float

    def log_density(self, shares: Float64) -> Float64:
        """Natural log of the density in all but the last of proportions f64[..., n]."""
        n, a = shares.shape[-1], self.concentration
        constant = math.lgamma(n * a) - n * math.lgamma(a)
        return np.asarray(constant + (a - 1) * np.log(shares).sum(axis=-1))

    def __str__(self) -> str:
        return f"Dirichlet({self.concentration:g})"


def gamma_draw(stream: Stream, shape: float) -> float:
    """A number of Gamma(shape, 1), whatever the shape (Marsaglia and Tsang 2000, section 6)."""
    if shape >= 1:
        return stream.gamma(shape)
    return float(stream.gamma(shape + 1) * stream.uniform() ** (1 / shape))


# Priors of branch lengths:
#   ln p = constant + sum_e (k_e - 1) ln t_e + power ln T - rate T,   T the tree length
# with a k for branches of tips and one for the others.


class LengthPrior(Value, ABC):
    """A prior of all branch lengths."""

    @property
    @abstractmethod
    def shapes(self) -> tuple[float, float]:
        """K of the branches of tips, and of the others."""

    @abstractmethod
    def of_total(self, tips: int) -> tuple[float, float]:
        """Power and rate of the tree length."""

    @abstractmethod
    def constant(self, tips: int) -> float:
        """Natural log of the constant factor."""

    @abstractmethod
    def draw(self, tips: int, is_outer: Float64, stream: Stream) -> Float64:
        """Lengths f64[E] at random; ``is_outer`` is 1 for a tip's branch, else 0."""

    def write(self, words: Float64, tips: int) -> None:
        """Write the prior into chains' words f64[..., n]."""
        outer, inner = self.shapes
        words[..., Chain.OUTER], words[..., Chain.INNER] = outer - 1, inner - 1
        words[..., Chain.POWER], words[..., Chain.RATE] = self.of_total(tips)

    def log_density(self, lengths: Float64, is_outer: Float64, tips: int) -> float:
        """Natural log of the density of lengths f64[E]."""
        (outer, inner), total = self.shapes, float(lengths.sum())
        power, rate = self.of_total(tips)
        shapes = np.where(is_outer > 0, outer, inner)
        of_each = float(((shapes - 1) * np.log(lengths)).sum())
        return self.constant(tips) + of_each + power * math.log(total) - rate * total

    def __str__(self) -> str:
        return f"{_name_of(type(self))}({_listed(self)})"


class GammaLengths(LengthPrior):
    """Independent Gamma lengths of a shape and a rate."""

    shape: float
    rate: float

    @property
    def shapes(self) -> tuple[float, float]:
        return self.shape, self.shape

    def of_total(self, tips: int) -> tuple[float, float]:
        return 0.0, self.rate

    def constant(self, tips: int) -> float:
        return (2 * tips - 3) * (self.shape * math.log(self.rate) - math.lgamma(self.shape))

    def draw(self, tips: int, is_outer: Float64, stream: Stream) -> Float64:
        each = [gamma_draw(stream, self.shape) / self.rate for _ in range(2 * tips - 3)]
        return np.array(each)


class ExponentialLengths(LengthPrior):
    """Independent exponential lengths of a rate."""

    rate: float

    @property
    def shapes(self) -> tuple[float, float]:
        return 1.0, 1.0

    def of_total(self, tips: int) -> tuple[float, float]:
        return 0.0, self.rate

    def constant(self, tips: int) -> float:
        return (2 * tips - 3) * math.log(self.rate)

    def draw(self, tips: int, is_outer: Float64, stream: Stream) -> Float64:
        return GammaLengths(1.0, self.rate).draw(tips, is_outer, stream)


class GammaDirichletLengths(LengthPrior):
    """Gamma tree length, Dirichlet shares (Rannala, Zhu and Yang 2012, Mol. Biol. Evol. 29:325).

    ``concentration`` is that of tips' branches, ``inner_ratio`` times which that of the others.
    """

    shape: float
    rate: float
    concentration: float
    inner_ratio: float

    @property
    def shapes(self) -> tuple[float, float]:
        return self.concentration, self.concentration * self.inner_ratio

    def _sum(self, tips: int) -> float:
        outer, inner = self.shapes
        return tips * outer + (tips - 3) * inner

    def of_total(self, tips: int) -> tuple[float, float]:
        return self.shape - self._sum(tips), self.rate

    def constant(self, tips: int) -> float:
        outer, inner = self.shapes
        of_total = self.shape * math.log(self.rate) - math.lgamma(self.shape)
        of_shares = tips * math.lgamma(outer) + (tips - 3) * math.lgamma(inner)
        return of_total + math.lgamma(self._sum(tips)) - of_shares

    def draw(self, tips: int, is_outer: Float64, stream: Stream) -> Float64:
        outer, inner = self.shapes
        each = [gamma_draw(stream, outer if k else inner) for k in is_outer.tolist()]
        total = gamma_draw(stream, self.shape) / self.rate
        return np.array(each) * (total / sum(each))


class Priors(Value):
    """The priors of an analysis; topologies are all equally probable."""

    branch_lengths: LengthPrior = GammaDirichletLengths(1.0, 0.1, 1.0, 1.0)
    exchangeabilities: Dirichlet = Dirichlet(1.0)
    frequencies: Dirichlet = Dirichlet(1.0)
    kappa: Distribution = LogNormal(1.0, 1.25)
    omega: Distribution = LogNormal(0.0, 1.25)
    alpha: Distribution = Exponential(1.0)
    p_invariant: Distribution = Uniform(0.0, 1.0)
    free_rates: Dirichlet = Dirichlet(1.0)
    class_weights: Dirichlet = Dirichlet(1.0)
    part_rates: Dirichlet = Dirichlet(1.0)
    clock_rate: Distribution = LogNormal(-7.0, 3.0)
    clock_spread: Distribution = Exponential(3.0)
    noise_variance: Distribution = Exponential(10.0)
    population_size: Distribution = LogNormal(1.0, 3.0)
    growth_rate: Distribution = Laplace(0.0, 1.0)
    birth_rate: Distribution = LogNormal(1.0, 3.0)
    relative_death: Distribution = Uniform(0.0, 1.0)
    reproductive_number: Distribution = LogNormal(0.0, 1.0)
    removal_rate: Distribution = LogNormal(1.0, 3.0)
    sampling_proportion: Distribution = Uniform(0.0, 1.0)
    sampling_fraction: Distribution | None = None
    """None: 1, but 0 where most tips are from before the present."""
    grid_precision: Distribution = Exponential(0.1)

    @property
    def has_rate(self) -> bool:
        """True where the clock's rate has a prior of its own, which tells of time."""
        return self.clock_rate != type(self)().clock_rate

    def lines(self) -> list[str]:
        """A line a prior, as ``--prior FILE`` takes it."""
        every = {field.name: getattr(self, field.name) for field in fields(self)}
        return [f'{name} = "{prior}"' for name, prior in every.items() if prior is not None]


_LENGTHS = {
    _name_of(kind): kind for kind in (ExponentialLengths, GammaLengths, GammaDirichletLengths)
}
_NUMBERS = {
    _name_of(kind): kind
    for kind in (Exponential, GammaDistribution, LogNormal, Normal, Uniform, Beta)
}
_OF_TIME_TREES = _NUMBERS | {_name_of(kind): kind for kind in (Laplace, Fixed)}
_TIME_PRIORS = {
    "clock_rate", "clock_spread", "noise_variance", "population_size", "growth_rate", "birth_rate",
    "relative_death", "reproductive_number", "removal_rate", "sampling_proportion",
    "sampling_fraction", "grid_precision",
}  # fmt: skip
"""Priors that only a sample of time trees uses."""
_SHARES = {"p_invariant", "relative_death", "sampling_proportion", "sampling_fraction"}
_MRBAYES_NAMES = {
    "brlenspr": "branch_lengths", "revmatpr": "exchangeabilities", "statefreqpr": "frequencies",
    "tratiopr": "kappa", "shapepr": "alpha", "pinvarpr": "p_invariant", "ratepr": "part_rates",
    "omegapr": "omega", "pinvar": "p_invariant", "speciationpr": "birth_rate",
    "extinctionpr": "relative_death", "fossilizationpr": "sampling_proportion",
    "sampleprob": "sampling_fraction", "reproductiveNumber": "reproductive_number",
    "becomeUninfectiousRate": "removal_rate", "samplingProportion": "sampling_proportion",
    "rho": "sampling_fraction",
}  # fmt: skip
"""Names of the same priors in MrBayes and BEAST."""
_CALL = re.compile(
    r"\s*(?:(?P<offset>[-+0-9.eE]+)\s*\+)?\s*(?P<name>\w+)\s*\((?P<arguments>[^()]*)\)\s*"
)


def read_priors(text: str, path: str) -> Priors:
    """The priors of a TOML file, with defaults for those that it does not name.

    Raises:
        InputError: it is no TOML, or names a prior that is unknown or improper.
    """
    table = toml_of(text.encode(), path)
    priors = Priors()
    known = [field.name for field in fields(Priors)]
    for name, value in table.items():
        if name not in known:
            hint = _alike(name, {**_MRBAYES_NAMES, **{one: one for one in known}})
            raise InputError(f"no such prior: {name}", file=path, hint=hint)
        found: Any = _parsed(name, value, getattr(priors, name) or Fixed(1.0), path)
        priors = replace(priors, **{name: found})
    return priors


def _parsed(name: str, value: object, default: object, path: str) -> object:
    """The distribution that a text names, of the kind that its parameter takes."""
    kinds: Mapping[str, type] = _OF_TIME_TREES if name in _TIME_PRIORS else _NUMBERS
    if isinstance(default, LengthPrior):
        kinds = _LENGTHS
    elif isinstance(default, Dirichlet):
        kinds = {"Dirichlet": Dirichlet}
    try:
        made = _made(str(value), kinds, str(default))
    except InputError as error:
        raise InputError(f"{name}: {error.message}", file=path, hint=error.hint) from None
    if not _is_positive(made) and name != "growth_rate":
        raise InputError(f"{name}: {value} is improper", file=path, hint=f"such as {default}")
    if name in _SHARES and not _is_within(made, 0.0, 1.0):
        raise InputError(f"{name}: {value} is not within 0 and 1", file=path, hint="Beta(1, 1)")
    return made


def read_distribution(text: str) -> Distribution:
    """The distribution of a text: ``Normal(66, 2)``, ``30 + Exponential(mean=5)``.

    Arguments have the order of the class's fields, or a name and ``=``. Others: ``mean`` or
    ``scale`` in place of a rate, ``real_mean`` in place of the mean of a logarithm, and ``offset``.

    Raises: InputError: there is no such distribution, or it is improper.
    """
    made = _made(text, _NUMBERS, "LogNormal(1, 0.5)")
    assert isinstance(made, Distribution)
    return made


def _made(text: str, kinds: Mapping[str, type], example: str) -> object:
    """The distribution of a text, of some kinds. Raises: InputError."""
    matched = _CALL.fullmatch(text)
    by_capitals = {one.lower(): kind for one, kind in kinds.items()}
    if matched is None or matched["name"].lower() not in by_capitals:
        near = matched and _alike(matched["name"], {one: one for one in kinds}, otherwise="")
        hint = near or f"it is one of {', '.join(kinds)}, such as {example}"
        raise InputError(f"no such distribution: {text}", hint=hint)
    kind = by_capitals[matched["name"].lower()]
    try:
        offset = float(matched["offset"] or 0.0)
        values = _arguments(kind, matched["arguments"])
        offset += values.pop("offset", 0.0)
        made: object = kind(**values)
    except (ValueError, TypeError, KeyError, ArithmeticError) as error:
        wanted = ", ".join(field.name for field in fields(kind))
        problem = f"{text} does not give {wanted}"
        raise InputError(problem, hint=f"such as {example}") from error
    if not _is_proper(made, [*values.values(), offset]):
        raise InputError(f"{text} is improper", hint=f"such as {example}")
    return Shifted(made, offset) if offset and isinstance(made, Distribution) else made


def _arguments(kind: type, text: str) -> dict[str, float]:
    """Arguments by the names of fields, and ``offset``. Raises: ValueError, TypeError."""
    names = [field.name for field in fields(kind)]
    given: dict[str, float] = {}
    for place, part in enumerate(text.split(",")):
        name, equals, number = part.rpartition("=")
        key = name.strip() if equals else names[place] if place < len(names) else ""
        if not key or key in given:
            raise TypeError(f"an argument too many: {part}")
        given[key] = float(number)
    for other in ("mean", "scale"):
        if "rate" in names and other in given:
            shape = given.get("shape", 1.0) if other == "mean" else 1.0
            given["rate"] = shape / given.pop(other)
    if kind is LogNormal and "real_mean" in given:
        given["mean"] = math.log(given.pop("real_mean")) - given["deviation"] ** 2 / 2
    if set(given) - {"offset"} != set(names):
        raise TypeError(f"arguments are {', '.join(names)}")
    return given


def _alike(word: str, known: Mapping[str, str], otherwise: str | None = None) -> str:
    """A question after the known word that one is most like, or else all of them."""
    by_capitals = {one.lower(): name for one, name in known.items()}
    close = get_close_matches(word.lower(), by_capitals, 1)
    if close:
        return f"did you mean {by_capitals[close[0]]}?"
    every = ", ".join(dict.fromkeys(known.values()))
    return f"there are {every}" if otherwise is None else otherwise


def _is_proper(made: object, numbers: list[float]) -> bool:
    """True if the arguments make a distribution."""
    if not all(map(math.isfinite, numbers)):
        return False
    values = list(asdict(made).values()) if isinstance(made, Value) else numbers
    if isinstance(made, Uniform):
        return made.low < made.high
    if isinstance(made, Fixed):
        return made.value >= 0
    positive = values[1:] if isinstance(made, LogNormal | Normal | Laplace) else values
    return all(number > 0 for number in positive)


def _is_positive(made: object) -> bool:
    """True for a distribution of positive numbers alone."""
    return not isinstance(made, Distribution) or made.support[0] >= 0


def _is_within(made: object, low: float, high: float) -> bool:
    if not isinstance(made, Distribution):
        return False
    least, most = made.support
    return low <= least and most <= high
