"""P(t) entry by entry, lnL and its derivatives, where branches are short and changes many."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest

from mltree.data.alphabet import DNA, PROTEIN, UNPHASED, Alphabet
from mltree.data.codons import codon_alphabet
from mltree.data.patterns import Patterns
from mltree.likelihood.likelihood import TreeLikelihood
from mltree.models.eigen import ModelArrays, decompose, p_matrices, series_of
from mltree.models.grammar import parse_model
from mltree.program.cases import Case
from mltree.program.engine import Engine
from mltree.program.ops.newview import exponential
from mltree.tree.topology import Tree, random_topology

TIMES = (1e-9, 1e-7, 1e-5, 1e-3, 0.02, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
ENTRY = 1e-10
"""Relative error of an entry of P."""
LNL = 1e-8
DIGITS = 40
"""Decimal ones, of sums without a difference."""
MANY_DIGITS = 200
"""The same, of sums whose terms are differences."""
LEAST = 1e-290
"""Smaller entries have fewer digits."""

Family = tuple[Alphabet, np.ndarray, np.ndarray]


def ordered(states: int) -> Family:
    row, column = np.triu_indices(states, 1)
    letters = "".join(chr(65 + n) for n in range(states))
    equal = np.full(states, 1 / states)
    return Alphabet.of_states("ordered", letters), (column - row == 1) * 1.0, equal


def wild(rng: np.random.Generator) -> Family:
    """Bases of which some never become each other, and others a million times as often."""
    rates = 10 ** rng.uniform(-3, 3, 6) * (rng.random(6) < 0.5)
    rates[[0, 3, 5]] = 1.0
    return DNA, rates, rng.dirichlet(np.full(4, 0.3))


def named(name: str, alphabet: Alphabet) -> Family:
    model = parse_model(name, alphabet)
    frequencies = model.arrays().frequencies
    return alphabet, model.rates, frequencies


def family(name: str, seed: int) -> Family:
    rng = np.random.default_rng([seed, len(name)])
    if name.startswith("ordered"):
        return ordered(int(name.removeprefix("ordered")))
    if name == "wild":
        return wild(rng)
    if name == "binary":
        rare = 10 ** rng.uniform(-8, -1)
        return Alphabet.of_states("binary", "01"), np.ones(1), np.array([rare, 1 - rare])
    if name == "GT10":
        return named("GT10JC-SM", UNPHASED)
    if name == "codon":
        kappa, omega = 10 ** rng.uniform(-1, 1.5), 10 ** rng.uniform(-2, 0.5)
        return named(f"GY{{{omega:.6f}/{kappa:.6f}}}+FE", codon_alphabet())
    return named(name, PROTEIN)


ALL = (
    "ordered3", "ordered8", "ordered16", "wild", "binary", "GT10", "FLU", "MTMAM", "DAYHOFF", "LG",
    "codon",
)  # fmt: skip


def arrays_of(of: Family, rates: np.ndarray | None = None) -> ModelArrays:
    rates = np.ones(1) if rates is None else rates
    return decompose(of[1], of[2], rates, np.full(len(rates), 1 / len(rates)))


def column(generator: np.ndarray, time: float, j: int) -> list[Any]:
    """Column j of e^(Q t), to as many digits as entries of the smallest size need."""
    states = len(generator)
    if states <= 4:
        with mpmath.workdps(MANY_DIGITS):
            q = mpmath.matrix(generator.tolist()) * mpmath.mpf(time)
            return list(mpmath.expm(q)[:, j])
    rate = mpmath.mpf(float(-generator.diagonal().min()))
    rows = [
        [(i, mpmath.mpf(q) / rate + (i == n)) for i, q in enumerate(row) if q != 0]
        for n, row in enumerate(generator.tolist())
    ]
    theta = rate * mpmath.mpf(time)
    term = [mpmath.mpf(int(i == j)) for i in range(states)]
    total = list(term)
    n = 0
    while n < states + theta or max(term) > mpmath.mpf(10) ** -40 * min(total):
        n += 1
        term = [sum(q * term[i] for i, q in row) * theta / n for row in rows]
        total = [a + b for a, b in zip(total, term, strict=True)]
    return [mpmath.exp(-theta) * value for value in total]


@pytest.mark.parametrize("name", ALL)
@pytest.mark.cases(1, 20)
def test_entries_of_p(name: str, case: int) -> None:
    """A column of them at each time, which is all that so many digits leave time for."""
    arrays = arrays_of(family(name, case))
    rng = np.random.default_rng(case)
    times = 10 ** rng.uniform(-9, 0.5 if name == "codon" else 2, 2 if name == "codon" else 6)
    with mpmath.workdps(DIGITS):
        for time in times:
            j = int(rng.integers(arrays.n_states))
            p = p_matrices(arrays, np.array([time]))[0, 0, :, j]
            for own, exact in zip(p.tolist(), column(arrays.generator, time, j), strict=True):
                if exact > LEAST:
                    assert abs(mpmath.mpf(own) / exact - 1) < ENTRY, time


@pytest.mark.parametrize("name", ALL)
def test_the_reference_finds_p_another_way(name: str) -> None:
    arrays = arrays_of(family(name, 3))
    for time in TIMES:
        p = p_matrices(arrays, np.array([time]))[0, 0]
        np.testing.assert_allclose(exponential(arrays.generator, time), p, rtol=ENTRY, atol=LEAST)


def test_only_what_needs_a_series_has_one() -> None:
    assert arrays_of(family("LG", 0)).direct == 1.0
    assert arrays_of((DNA, np.arange(1.0, 7.0), np.full(4, 0.25))).direct == 1.0
    for name in ("ordered3", "codon", "FLU", "GT10"):
        assert arrays_of(family(name, 0)).direct == 0.0


def test_a_series_is_found_once() -> None:
    arrays = arrays_of(family("FLU", 0))
    (series,) = series_of([arrays.system(0)])
    assert series_of([arrays_of(family("FLU", 0)).system(0)]) == [series]
    assert series.words.size == 4 + len(series.counts) + series.powers.size + series.doublings.size


def precise(generator: np.ndarray, time: float) -> np.ndarray:
    """e^(Q t) in extended precision, by scaling and squaring of what is not negative."""
    q = generator.astype(np.longdouble)
    rate = -q.diagonal().min()
    lazy = np.maximum(q / rate + np.eye(len(q), dtype=np.longdouble), 0)
    squarings = max(0, int(np.ceil(np.log2(float(max(rate * time, 1))))))
    theta = rate * np.longdouble(time) * np.longdouble(0.5) ** squarings
    term = total = np.exp(-theta) * np.eye(len(q), dtype=np.longdouble)
    for n in range(1, len(q) + 25):
        term = term @ lazy * (theta / n)
        total = total + term
    for _ in range(squarings):
        total = total @ total
    return total


def exact_terms(
    tree: Tree, patterns: Patterns, arrays: ModelArrays
) -> tuple[float, np.ndarray, np.ndarray]:
    """lnL, its first and its second derivative in every length, in extended precision."""
    tips = patterns.alphabet.tip_table[patterns.codes].astype(np.longdouble)
    q = arrays.generator.astype(np.longdouble)
    pi = arrays.frequencies.astype(np.longdouble)
    lnl, slopes, curves = np.longdouble(0), [], []
    p = [[precise(arrays.generator, r * t) for r in arrays.rates] for t in tree.lengths]

    def behind(half: int, k: int) -> np.ndarray:
        """What is seen of the subtree at a half-edge, at its own end."""
        node = half // 3
        if node < tree.n_tips:
            return tips[node]
        seen = np.ones_like(tips[0])
        for sibling in Tree.siblings(half):
            seen = seen * (behind(int(tree.twin[sibling]), k) @ p[tree.edge[sibling]][k].T)
        return seen

    for edge, (one, other) in enumerate(tree.edge_halves.tolist()):
        sums = [np.zeros(patterns.n_patterns, np.longdouble) for _ in range(3)]
        for k, (rate, weight) in enumerate(zip(arrays.rates, arrays.weights, strict=True)):
            x, y = behind(one, k), behind(other, k)
            for order in range(3):
                of_p = p[edge][k]
                for _ in range(order):
                    of_p = rate * (q @ of_p)
                sums[order] = sums[order] + weight * ((x * pi) * (y @ of_p.T)).sum(axis=1)
        lnl = (patterns.weights * np.log(sums[0])).sum()
        slope = sums[1] / sums[0]
        slopes.append((patterns.weights * slope).sum())
        curves.append((patterns.weights * (sums[2] / sums[0] - slope**2)).sum())
    return float(lnl), np.array(slopes, float), np.array(curves, float)


@pytest.mark.skipif(np.finfo(np.longdouble).eps > 1e-18, reason="no extended precision here")
@pytest.mark.parametrize("name", ALL)
@pytest.mark.cases(1, 30)
def test_likelihoods_of_short_branches(
    name: str, case: int, open_engine: Callable[..., Engine]
) -> None:
    alphabet, *tables = family(name, case)
    rng = np.random.default_rng([case, 7])
    rates = np.array([0.0, 1.0]) if case % 2 else np.array([0.2, 1.8])
    arrays = arrays_of((alphabet, *tables), rates * 1.0)
    tips = 4 if alphabet.n_states > 20 else 6
    tree = random_topology(tips, rng)
    # Entries of P below 1e-72 are that: 16 states in a row need branches that are not as short.
    tree.lengths[:] = 10 ** rng.uniform(-3 if name == "ordered16" else -6, 0, tree.n_edges)
    single = np.flatnonzero(alphabet.tip_table.sum(axis=1) == 1)
    codes = rng.choice(single, (tips, 9)).astype(np.uint8)
    codes[:, 0] = codes[0, 0]
    patterns = Patterns(
        taxa=tuple(f"t{tip}" for tip in range(tips)),
        codes=codes,
        weights=rng.integers(1, 4, 9).astype(np.float64),
        site_pattern=np.arange(9, dtype=np.int32),
        alphabet=alphabet,
    )
    used = TreeLikelihood(open_engine(patterns, 2), (1e-9, 100.0))
    lnl, slopes, curves = exact_terms(tree, patterns, arrays)
    told = used.derivatives(tree, Case((arrays,)))
    assert told[0] == pytest.approx(lnl, rel=0, abs=LNL)
    fastest = -arrays.generator.min() * rates.max()  # what a saturated branch's terms are times
    np.testing.assert_allclose(told[1], slopes, rtol=1e-8, atol=1e-8 * (1 + fastest))
    np.testing.assert_allclose(told[2], curves, rtol=1e-7, atol=1e-8 * (1 + fastest) ** 2)
