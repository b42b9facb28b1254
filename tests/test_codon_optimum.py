"""Fits of omega and kappa, against SciPy: exponentials of Q from triplets, and its optimiser.

Nothing is shared with what is tested but the simulated characters.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.linalg import expm
from scipy.optimize import minimize

from mltree.analyses.simulate import evolve, letters
from mltree.data.alignments import Alignment
from mltree.data.codons import GENETIC_CODES, codon_alphabet
from mltree.data.patterns import compress
from mltree.models.grammar import parse_model
from mltree.models.partitioned import alone
from mltree.runs.engines import Engines, Resources, Workload
from mltree.runs.trees import fit_topology
from mltree.tree.newick import read_newick

BOUNDS = (1e-6, 100.0)

TOLERANCE = 1e-3
"""lnL that a fit may end below SciPy's."""

TAXA = ("a", "b", "c", "d")
TRIPLETS = ["".join(triplet) for triplet in itertools.product("ACGT", repeat=3)]
TRANSITIONS = {frozenset("AG"), frozenset("CT")}


class Plain:
    """lnL of codons on ((a,b),(c,d)), as a textbook has it."""

    def __init__(self, number: int, rows: list[str], lengths: np.ndarray, model: str) -> None:
        self.acids = GENETIC_CODES[number].amino_acids
        self.codons = [c for c in TRIPLETS if self.acids[c] != "*"]
        self.lengths, self.by_nucleotide = lengths, model.startswith("MG")
        place = {codon: n for n, codon in enumerate(self.codons)}
        cut = [[row[n : n + 3] for n in range(0, len(row), 3)] for row in rows]
        self.tips = [
            np.array(
                [np.eye(len(place))[place[c]] if c in place else np.ones(len(place)) for c in r]
            )
            for r in cut
        ]
        seen = [codon for row in cut for codon in row if codon in place]
        self.nucleotides = np.array(
            [[sum(c[at] == base for c in seen) / len(seen) for base in "ACGT"] for at in range(3)]
        )
        if "F1X4" in model:
            self.nucleotides[:] = self.nucleotides.mean(axis=0)
        if "FE" in model:
            self.nucleotides[:] = 0.25
        pi = [
            np.prod([self.nucleotides[at]["ACGT".index(b)] for at, b in enumerate(c)])
            for c in self.codons
        ]
        if "FC" in model:
            pi = [max(seen.count(c) / len(seen), 1e-10) for c in self.codons]
        self.pi = np.array(pi) / sum(pi)

    def lnl(self, omega: float, kappa: float) -> float:
        q = np.zeros((len(self.pi), len(self.pi)))
        for (i, one), (j, other) in itertools.permutations(enumerate(self.codons), 2):
            differ = [at for at in range(3) if one[at] != other[at]]
            if len(differ) == 1:
                (at,) = differ
                put_in = self.nucleotides[at]["ACGT".index(other[at])]
                q[i, j] = put_in if self.by_nucleotide else self.pi[j]
                q[i, j] *= kappa if frozenset((one[at], other[at])) in TRANSITIONS else 1.0
                q[i, j] *= omega if self.acids[one] != self.acids[other] else 1.0
        np.fill_diagonal(q, -q.sum(axis=1))
        q /= -(self.pi * q.diagonal()).sum()
        across = [tip @ expm(q * t).T for tip, t in zip(self.tips, self.lengths, strict=False)]
        left, right = across[0] * across[1], across[2] * across[3]
        sites = (left * (right @ expm(q * self.lengths[4]).T)) @ self.pi
        return float(np.log(sites).sum())


@pytest.mark.cases(2, 30)
def test_no_start_of_scipy_ends_above(case: int) -> None:
    rng = np.random.default_rng([case, 61])
    number = int(rng.choice([1, 2, 5]))
    alphabet = codon_alphabet(number)
    name = rng.choice(["GY", "MGK", "MG"])
    text = name + rng.choice(["+F1X4", "+F3X4", "+FE", *(["+FC"] if name == "GY" else [])])
    lengths = rng.exponential(0.3, 5) + 0.02
    newick = "((a:{:.9f},b:{:.9f}):{:.9f},c:{:.9f},d:{:.9f});".format(*lengths[[0, 1, 4, 2, 3]])
    tree, _ = read_newick(newick, TAXA)
    given = "/".join(map(str, rng.dirichlet(np.full(4, 5.0), 3).ravel()))
    omega, kappa = np.exp(rng.normal([-1.0, 0.7], 0.8)).round(6)
    true = parse_model(f"GY{{{omega}/{kappa}}}+F3X4{{{given}}}", alphabet)
    characters = letters(evolve(tree, true.arrays(), int(rng.integers(60, 150)), rng), alphabet)
    gaps = rng.random((len(characters), characters.shape[1] // 3)) < 0.05
    characters.reshape(len(characters), -1, 3)[gaps] = ord("-")
    patterns = compress(Alignment(TAXA, characters, "", alphabet))
    model = alone(parse_model(text, alphabet).with_empirical_frequencies(patterns))
    likelihood = Engines(Resources(), Workload.of_patterns(patterns, 1, BOUNDS)).likelihood
    found = fit_topology(
        likelihood, tree, model, lambda event: None,
        optimise_parameters=True, optimise_lengths=False,
    )  # fmt: skip
    plain = Plain(number, [row.tobytes().decode() for row in characters], lengths, text)
    free = 1 if name == "MG" else 2
    best = minimize(
        lambda x: -plain.lnl(*np.exp([*x, 0.0][:2])), np.zeros(free),
        method="L-BFGS-B", bounds=[(np.log(1e-3), np.log(50.0))] * free,
    )  # fmt: skip
    fitted = found.model.lone.codon
    assert fitted is not None
    assert found.lnl == pytest.approx(plain.lnl(*[*fitted.values, 1.0][:2]), abs=1e-6)
    assert found.lnl > -best.fun - TOLERANCE, f"{text}: {fitted.values}, not {np.exp(best.x)}"
