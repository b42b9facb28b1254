"""Priors integrate to one, draws follow them, and what is no prior is one clear line."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad

from mltree.program.contract import Chain
from mltree.program.random_numbers import Stream
from mltree.sampling.priors import (
    Beta,
    Dirichlet,
    Distribution,
    Exponential,
    ExponentialLengths,
    Fixed,
    GammaDirichletLengths,
    GammaDistribution,
    GammaLengths,
    LengthPrior,
    LogNormal,
    Priors,
    Uniform,
    read_priors,
)
from mltree.sampling.sampler import empty_words
from mltree.system.errors import InputError

TWINS = (
    (Exponential(2.5), stats.expon(scale=1 / 2.5)),
    (GammaDistribution(0.6, 3.0), stats.gamma(0.6, scale=1 / 3)),
    (GammaDistribution(4.0, 0.5), stats.gamma(4, scale=2)),
    (LogNormal(1.0, 1.25), stats.lognorm(1.25, scale=math.e)),
    (Uniform(0.25, 4.0), stats.uniform(0.25, 3.75)),
    (Beta(0.7, 2.0), stats.beta(0.7, 2)),
)
"""Distributions, and SciPy's."""


@pytest.mark.parametrize(("prior", "twin"), TWINS, ids=lambda x: str(x)[:20])
def test_density_and_draws_of_a_number(prior: Distribution, twin) -> None:
    values = twin.ppf(np.linspace(0.01, 0.99, 25))
    np.testing.assert_allclose(prior.log_density(values), twin.logpdf(values), rtol=1e-10)
    stream = Stream(3, 1, 0, 0, 0)
    drawn = [prior.draw(stream) for _ in range(3000)]
    assert stats.kstest(drawn, twin.cdf).pvalue > 1e-3


def test_density_of_shares() -> None:
    for concentration in (0.5, 1.0, 7.0):
        shares = np.random.default_rng(1).dirichlet(np.ones(5), 4)
        twin = [stats.dirichlet(np.full(5, concentration)).logpdf(row) for row in shares]
        np.testing.assert_allclose(Dirichlet(concentration).log_density(shares), twin, rtol=1e-10)


LENGTH_PRIORS = (
    ExponentialLengths(10.0),
    GammaLengths(0.7, 4.0),
    GammaDirichletLengths(1.0, 0.1, 1.0, 1.0),
    GammaDirichletLengths(2.0, 3.0, 0.5, 0.2),
)


@pytest.mark.parametrize("prior", LENGTH_PRIORS, ids=str)
def test_density_of_lengths(prior: LengthPrior) -> None:
    """The density of five lengths, from that of the tree length and of the shares of each."""
    tips, is_outer = 4, np.array([1.0, 1, 1, 1, 0])
    lengths = np.array([0.1, 0.05, 0.2, 0.3, 0.02])
    found = prior.log_density(lengths, is_outer, tips)
    if isinstance(prior, GammaDirichletLengths):
        outer, inner = prior.shapes
        total = lengths.sum()
        expected = stats.gamma(prior.shape, scale=1 / prior.rate).logpdf(total)
        expected += stats.dirichlet([outer] * 4 + [inner]).logpdf(lengths / total)
        expected -= 4 * math.log(total)
    else:
        shape = prior.shapes[0]
        rate = prior.of_total(tips)[1]
        expected = stats.gamma(shape, scale=1 / rate).logpdf(lengths).sum()
    assert found == pytest.approx(expected, rel=1e-10)
    words = empty_words(2, tips)
    prior.write(words, tips)
    kernel = (words[0, Chain.OUTER] * is_outer + words[0, Chain.INNER] * (1 - is_outer)) @ np.log(
        lengths
    )
    total = lengths.sum()
    kernel += words[0, Chain.POWER] * math.log(total) - words[0, Chain.RATE] * total
    assert kernel + prior.constant(tips) == pytest.approx(expected, rel=1e-10)


def test_draws_of_lengths() -> None:
    is_outer = np.array([1.0] * 6 + [0.0] * 3)
    prior, stream = GammaDirichletLengths(1.0, 0.1, 1.0, 1.0), Stream(1, 0, 0, 0, 0)
    totals = [prior.draw(6, is_outer, stream).sum() for _ in range(2000)]
    assert stats.kstest(totals, "gamma", args=(1, 0, 10)).pvalue > 1e-3
    drawn = np.array([ExponentialLengths(10.0).draw(6, is_outer, stream) for _ in range(300)])
    assert stats.kstest(drawn.ravel(), "expon", args=(0, 0.1)).pvalue > 1e-3


def test_every_prior_is_proper() -> None:
    for name, value in vars(Priors()).items():
        if isinstance(value, Distribution) and not isinstance(value, Fixed):
            low, high = value.support
            ends = (-np.inf if low < 0 else 1e-12, 1.0 if name == "p_invariant" else np.inf)
            area = quad(lambda x, v=value: math.exp(v.log_density(np.array(x))), *ends)[0]
            assert area == pytest.approx(1, abs=1e-4), name
            assert low < value.quantile(0.5) < high


def test_priors_are_read_back_as_they_are_shown() -> None:
    text = 'branch_lengths = "Exponential(10)"\nalpha = "Uniform(0.1, 50)"\nomega = "Gamma(2, 3)"\n'
    priors = read_priors(text, "p.toml")
    assert priors.branch_lengths == ExponentialLengths(10.0)
    assert priors.alpha == Uniform(0.1, 50.0)
    assert read_priors("\n".join(priors.lines()), "p.toml") == priors


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("alpha = ", "not TOML"),
        ('zeta = "Exponential(1)"', "no such prior: zeta"),
        ("[alpha]\nrate = 1", "no such distribution"),
        ('alpha = "Flat(1)"', "no such distribution"),
        ("alpha = 3", "no such distribution"),
        ('alpha = "Exponential(-1)"', "improper"),
        ('alpha = "Uniform(0, inf)"', "improper"),
        ('alpha = "Uniform(2, 1)"', " is improper"),
        ('alpha = "Exponential(1, 2)"', "does not give rate"),
        ('alpha = "Exponential(x)"', "does not give rate"),
        ('p_invariant = "Exponential(1)"', "not within 0 and 1"),
        ('frequencies = "Exponential(1)"', "no such distribution"),
        ('branch_lengths = "LogNormal(0, 1)"', "no such distribution"),
    ],
)
def test_what_is_no_prior_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read_priors(text, "p.toml")
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("p.toml")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ('kapa = "Exponential(1)"', "did you mean kappa?"),
        ('Alpha = "Exponential(1)"', "did you mean alpha?"),
        ('branch_length = "Exponential(1)"', "did you mean branch_lengths?"),
        ('Statefreqpr = "Dirichlet(1)"', "did you mean frequencies?"),
        ('pinvar = "Uniform(0, 1)"', "did you mean p_invariant?"),
        ('alpha = "exponental(1)"', "did you mean Exponential?"),
        ('zzz = "Exponential(1)"', "there are branch_lengths, "),
    ],
)
def test_a_slip_of_the_pen_is_put_right(text: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        read_priors(text, "p.toml")
    assert hint in str(caught.value.hint)
