"""Rates between codons, against loops over the 64 triplets, and their parameters."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.optimize import minimize

from mltree.data.codons import GENETIC_CODES, codon_alphabet
from mltree.models.eigen import p_matrices
from mltree.models.grammar import parse_model
from mltree.models.parameters import arrays_of, bounds, free_parameters, names, vector, with_vector
from mltree.models.substitution import RATIO_MAX, RATIO_MIN, CodonRates, nucleotide_frequencies

TRANSITIONS = {"AG", "GA", "CT", "TC"}


def plain_q(
    number: int, omega: float, kappa: float, nucleotides: np.ndarray, *, by_nucleotide: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Q of one substitution a codon, and its frequencies, as the papers say it: entry by entry."""
    acids = GENETIC_CODES[number].amino_acids
    codons = [c for c in map("".join, itertools.product("ACGT", repeat=3)) if acids[c] != "*"]
    pi = np.array(
        [np.prod([nucleotides[p]["ACGT".index(b)] for p, b in enumerate(c)]) for c in codons]
    )
    pi /= pi.sum()
    q = np.zeros((len(codons), len(codons)))
    for i, one in enumerate(codons):
        for j, other in enumerate(codons):
            places = [p for p in range(3) if one[p] != other[p]]
            if len(places) != 1:
                continue
            place = places[0]
            target = nucleotides[place]["ACGT".index(other[place])]
            q[i, j] = target if by_nucleotide else pi[j]
            q[i, j] *= kappa if one[place] + other[place] in TRANSITIONS else 1.0
            q[i, j] *= omega if acids[one] != acids[other] else 1.0
    np.fill_diagonal(q, -q.sum(axis=1))
    return q / -(pi * q.diagonal()).sum(), pi


@pytest.mark.parametrize("number", [1, 2, 6, 27])
@pytest.mark.parametrize("name", ["GY", "MGK"])
def test_q_is_that_of_the_papers(number: int, name: str) -> None:
    rng = np.random.default_rng([number, len(name)])
    omega, kappa = np.exp(rng.normal(size=2)).round(3)
    nucleotides = rng.dirichlet(np.full(4, 8.0), 3)
    given = "/".join(map(repr, nucleotides.ravel().tolist()))
    alphabet = codon_alphabet(number)
    model = parse_model(f"{name}{{{omega}/{kappa}}}+F3X4{{{given}}}", alphabet)
    q, pi = plain_q(number, omega, kappa, nucleotides, by_nucleotide=name == "MGK")
    np.testing.assert_allclose(model.frequencies, pi, rtol=1e-12)
    np.testing.assert_allclose(model.frequencies @ q, 0.0, atol=1e-14)
    arrays = model.arrays()
    found = arrays.right * arrays.eigenvalues @ arrays.left
    np.testing.assert_allclose(found, q, atol=1e-11)
    p = p_matrices(arrays, np.array([0.3]))[0, 0]
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-12)


def test_frequencies_of_nucleotides_are_those_in_the_codons() -> None:
    alphabet = codon_alphabet(2)
    weights = np.random.default_rng(1).dirichlet(np.ones(alphabet.n_states))
    counts = np.zeros(alphabet.n_codes)
    counts[: alphabet.n_states], counts[alphabet.gap_code] = 90 * weights, 17.0
    by_position = nucleotide_frequencies(alphabet, counts, 3)
    for position, row in enumerate(by_position):
        for base, share in zip("ACGT", row, strict=True):
            own = [c[position] == base for c in alphabet.states]
            assert share == pytest.approx(weights[own].sum())
    pooled = nucleotide_frequencies(alphabet, counts, 1)
    np.testing.assert_allclose(pooled, np.tile(by_position.mean(axis=0), (3, 1)))


def test_nucleotides_that_a_position_lacks_have_no_frequency() -> None:
    raw = np.frombuffer(b"GGCTGGCTYCTG", np.uint8)[None]
    alphabet = codon_alphabet(1).covering([raw, np.frombuffer(b"AAR", np.uint8)[None]])
    counts = np.bincount(alphabet.encode(raw)[0], minlength=alphabet.n_codes).astype(float)
    found = nucleotide_frequencies(alphabet, counts, 3)
    np.testing.assert_allclose(
        found, [[0, 0.5, 0.25, 0.25], [0, 0, 0.5, 0.5], [0, 0.5, 0.5, 0]], atol=1e-6
    )


MEANINGS = {"R": "AG", "Y": "CT", "S": "CG", "W": "AT", "K": "GT", "M": "AC", "N": "ACGT"}


@pytest.mark.cases(6, 60)
def test_ambiguous_nucleotides_count_as_is_likeliest(case: int) -> None:
    """SciPy finds no frequencies under which sums over the nucleotides are likelier."""
    rng = np.random.default_rng([case, 34])
    triplets = ["".join(t) for t in itertools.product("CG", "AC", "ACGT")]  # no stop codon
    drawn = rng.choice(triplets, 60, p=rng.dirichlet(np.ones(len(triplets))))
    letters = np.array([list(triplet) for triplet in drawn])
    for place in np.argwhere(rng.random(letters.shape) < 0.3):
        may = [one for one, of in MEANINGS.items() if letters[tuple(place)] in of]
        letters[tuple(place)] = rng.choice(may)
    raw = np.frombuffer("".join(letters.ravel()).encode(), np.uint8)[None]
    alphabet = codon_alphabet(1).covering([raw])
    codes = alphabet.encode(raw)[0]
    counts = np.bincount(codes, minlength=alphabet.n_codes).astype(float)
    told = [alphabet.symbols[code] for code in codes]
    positions = int(rng.choice([1, 3]))
    found = nucleotide_frequencies(alphabet, counts, positions)
    columns = np.array([list(triplet.replace("-", "N")) for triplet in told]).T
    for frequencies, column in zip(found, columns if positions == 3 else [columns], strict=False):
        sets = [MEANINGS.get(letter, letter) for letter in np.ravel(column)]
        has = np.array([[base in may for base in "ACGT"] for may in sets], float)

        def cost(x: np.ndarray, has: np.ndarray = has) -> float:
            shares = np.exp(x - x.max())
            return -float(np.log(has @ (shares / shares.sum())).sum())

        best = minimize(cost, np.zeros(4), bounds=[(-30.0, 30.0)] * 4)
        assert frequencies.sum() == pytest.approx(1.0)
        assert -np.log(has @ frequencies).sum() < best.fun + 1e-6


def test_nucleotides_that_never_occur_do_not_divide_by_zero() -> None:
    codon = CodonRates(codon_alphabet(1), by_nucleotide=True)
    rates = codon.with_nucleotides(np.array([[0.5, 0.5, 0.0, 0.0]] * 3)).rates
    assert np.isfinite(rates).all()
    with pytest.raises(ValueError, match="no frequencies of nucleotides"):
        _ = codon.frequencies


@pytest.mark.parametrize(
    ("text", "free", "moved"),
    [
        ("GY+FE", 2, ["omega", "kappa"]),
        ("GY", 62, ["omega", "kappa"]),
        ("GY+F1X4", 5, ["omega", "kappa"]),
        ("GY{0.2/2}+F3X4+G4", 10, ["alpha"]),
        ("MG", 10, ["omega"]),
        ("MGK+FE+I", 3, ["omega", "kappa", "p_invariant"]),
        ("MGK+F1X4{0.1/0.2/0.3/0.4}", 2, ["omega", "kappa"]),
        ("ECMK07", 0, []),
        ("ECMK07+F", 60, []),
    ],
)
def test_free_parameters(text: str, free: int, moved: list[str]) -> None:
    model = parse_model(text, codon_alphabet(1))
    assert (free_parameters(model), names(model)) == (free, moved)


def test_the_vector_moves_omega_and_kappa() -> None:
    model = parse_model("MGK+F1X4{0.1/0.2/0.3/0.4}+G4", codon_alphabet(1))
    assert vector(model)[:2].tolist() == [0.0, 0.0]
    assert bounds(model)[0] == (np.log(RATIO_MIN), np.log(RATIO_MAX)) == bounds(model)[1]
    x = np.log([0.3, 4.0, 0.7])
    moved = with_vector(model, x)
    np.testing.assert_allclose(vector(moved), x)
    fixed = parse_model("MGK{0.3/4}+F1X4{0.1/0.2/0.3/0.4}+G4{0.7}", codon_alphabet(1))
    np.testing.assert_allclose(moved.rates, fixed.rates, rtol=1e-14)
    points = np.array([x, vector(model)])
    ((first, second),) = arrays_of([model], [points], [np.ones(2)], [(1, 4)])
    np.testing.assert_allclose(first.eigenvalues, fixed.arrays().eigenvalues, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(
        second.eigenvalues, model.arrays().eigenvalues, rtol=1e-9, atol=1e-12
    )
    again = model.with_values(moved.values())
    assert (again.codon and again.codon.values) == (moved.codon and moved.codon.values)
    assert np.array_equal(again.rates, moved.rates)
