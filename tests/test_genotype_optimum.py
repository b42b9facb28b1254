"""Fits to genotypes, against SciPy: exponentials of Q from pairs of letters, and its optimiser.

Nothing is shared with what is tested but the simulated letters.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from scipy.linalg import expm
from scipy.optimize import minimize
from scipy.special import gammainc
from scipy.stats import gamma

from mltree.analyses.simulate import evolve, letters
from mltree.data.alignments import Alignment
from mltree.data.alphabet import PHASED, UNPHASED
from mltree.data.patterns import compress, with_unseen
from mltree.models.grammar import parse_model
from mltree.models.partitioned import alone
from mltree.runs.engines import Engines, Resources, Workload
from mltree.runs.trees import fit_topology
from mltree.tree.newick import read_newick

BOUNDS = (1e-6, 100.0)

TOLERANCE = 1e-3
"""lnL that a fit may end below SciPy's."""

TAXA = ("a", "b", "c", "d")
PAIRS = {
    "A": "AA", "C": "CC", "G": "GG", "T": "TT", "M": "AC", "R": "AG", "W": "AT", "S": "CG",
    "Y": "CT", "K": "GT",
}  # fmt: skip
NUCLEOTIDES = ["".join(pair) for pair in itertools.combinations("ACGT", 2)]


class Plain:
    """lnL of genotypes on ((a,b),(c,d)), as a textbook has it."""

    def __init__(self, rows: list[str], lengths: np.ndarray, model: str) -> None:
        self.is_phased, self.lengths, self.model = model.startswith("GT16"), lengths, model
        every = ["".join(pair) for pair in itertools.product("ACGT", repeat=2)]
        self.states = [pair for pair in every if self.is_phased or pair in PAIRS.values()]
        self.tips = [np.array([self.tip(letter) for letter in row]) for row in rows]
        seen = [self.tip(letter) for row in rows for letter in row if letter in PAIRS]
        counts = sum(tip / tip.sum() for tip in seen)
        equal = np.full(len(self.states), 1 / len(self.states))
        self.pi = np.maximum(counts / len(seen), 1e-10) if "+FC" in model else equal
        self.pi = self.pi / self.pi.sum()

    def tip(self, letter: str) -> np.ndarray:
        pair = PAIRS.get(letter)
        may = {pair, pair[::-1]} if pair else set(self.states)
        return np.array([float(state in may) for state in self.states])

    def rates(self, ratios: np.ndarray) -> dict[str, float]:
        """By pairs of nucleotides; those of one kind relative to the last pair's."""
        if "HKY" in self.model:
            return {pair: ratios[0] if pair in ("AG", "CT") else 1.0 for pair in NUCLEOTIDES}
        if "JC" in self.model:
            return dict.fromkeys(NUCLEOTIDES, 1.0)
        return dict(zip(NUCLEOTIDES, np.insert(ratios, 3, 1.0), strict=True))

    def q(self, ratios: np.ndarray) -> np.ndarray:
        rates = self.rates(ratios)
        q = np.zeros((len(self.states),) * 2)
        for (i, one), (j, other) in itertools.permutations(enumerate(self.states), 2):
            spellings = {other} if self.is_phased else {other, other[::-1]}
            for spelling in spellings:
                differ = [at for at in (0, 1) if one[at] != spelling[at]]
                if len(differ) == 1:
                    (at,) = differ
                    q[i, j] = rates["".join(sorted(one[at] + spelling[at]))] * self.pi[j]
        np.fill_diagonal(q, -q.sum(axis=1))
        return q / -(self.pi * q.diagonal()).sum()

    def likelihoods(self, q: np.ndarray, tips: list[np.ndarray], speed: float) -> np.ndarray:
        p = [expm(q * t * speed).T for t in self.lengths]
        across = [tip @ own for tip, own in zip(tips, p, strict=False)]
        return ((across[0] * across[1]) * ((across[2] * across[3]) @ p[4])) @ self.pi

    def lnl(self, ratios: np.ndarray, alpha: float | None) -> float:
        q, speeds = self.q(ratios), [1.0] if alpha is None else [*gamma_means(alpha)]
        constant = [np.array([self.tip(letter) for letter in PAIRS])] * 4
        means = [
            np.mean([self.likelihoods(q, tips, speed) for speed in speeds], axis=0)
            for tips in (self.tips, constant)
        ]
        never = 1.0 - means[1].sum() if "ASC" in self.model else 1.0
        return float(np.log(means[0] / never).sum())


def gamma_means(alpha: float) -> Iterator[float]:
    ends = gamma.ppf([0.0, 0.25, 0.5, 0.75, 1.0], alpha)
    for low, high in itertools.pairwise(ends):
        yield 4 * (gammainc(alpha + 1, high) - gammainc(alpha + 1, low))


@pytest.mark.cases(3, 36)
def test_no_start_of_scipy_ends_above(case: int) -> None:
    rng = np.random.default_rng([case, 16])
    alphabet = (UNPHASED, PHASED)[case % 2]
    kind = rng.choice(["", "HKY", "JC-SM"])
    text = alphabet.name + kind + rng.choice(["+FC", "+FE"])
    text += rng.choice(["", "+G4"]) + ("+ASC_LEWIS" if case % 3 == 2 else "")
    lengths = rng.exponential(0.3, 5) + 0.02
    newick = "((a:{:.9f},b:{:.9f}):{:.9f},c:{:.9f},d:{:.9f});".format(*lengths[[0, 1, 4, 2, 3]])
    tree, _ = read_newick(newick, TAXA)
    rates = "/".join(map(str, np.exp(rng.normal(0, 0.7, 6))))
    pi = "/".join(map(str, rng.dirichlet(np.full(alphabet.n_states, 5.0))))
    true = parse_model(
        f"{alphabet.name}{{{rates}}}+FU{{{pi}}}+G4{{{rng.uniform(0.3, 2)}}}", alphabet
    )
    characters = letters(evolve(tree, true.arrays(), int(rng.integers(150, 300)), rng), alphabet)
    if "ASC" in text:
        characters = characters[:, (characters != characters[0]).any(axis=0)]
    else:
        characters[rng.random(characters.shape) < 0.05] = ord("N")
    patterns = compress(Alignment(TAXA, characters, "", alphabet))
    parsed = parse_model(text, alphabet).with_empirical_frequencies(patterns)
    if parsed.ascertainment is not None:
        patterns = with_unseen(patterns, [parsed.ascertainment])
    categories = parsed.arrays().n_categories
    likelihood = Engines(Resources(), Workload.of_patterns(patterns, categories, BOUNDS)).likelihood
    found = fit_topology(
        likelihood, tree, alone(parsed), lambda event: None,
        optimise_parameters=True, optimise_lengths=False,
    )  # fmt: skip
    plain = Plain([row.tobytes().decode() for row in characters], lengths, text)
    free, has_gamma = {"": 5, "HKY": 1, "JC-SM": 0}[kind], "+G4" in text

    def cost(x: np.ndarray) -> float:
        return -plain.lnl(np.exp(x[:free]), float(np.exp(x[free])) if has_gamma else None)

    low, high = ([-6.9] * free, [6.9] * free)
    bounds = [*zip(low, high, strict=True), *([(np.log(0.02), np.log(100.0))] * has_gamma)]
    best = (
        -cost(np.zeros(0))
        if not bounds
        else -minimize(cost, np.zeros(len(bounds)), method="L-BFGS-B", bounds=bounds).fun
    )
    fitted = found.model.lone
    ratios = {"": [0, 1, 2, 4, 5], "HKY": [1], "JC-SM": []}[kind]
    pairs = [("AA", "AC"), ("AA", "AG"), ("AA", "AT"), ("CC", "CG"), ("CC", "CT"), ("GG", "GT")]
    of = dict(zip(itertools.combinations(alphabet.states, 2), fitted.rates, strict=True))
    own = np.array([of[pair] for pair in pairs])[ratios]
    alpha = getattr(fitted.heterogeneity, "alpha", None)
    assert found.lnl == pytest.approx(plain.lnl(own / fitted.rates[-1], alpha), abs=1e-5)
    assert found.lnl > best - TOLERANCE, text
