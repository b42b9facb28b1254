"""Candidates of a choice, how they are begun, and the criteria."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from mltree.data.alphabet import DNA, PROTEIN
from mltree.data.codons import codon_alphabet
from mltree.models.empirical import PROTEIN_MODELS
from mltree.models.grammar import parse_model
from mltree.models.parameters import free_parameters, names, vector, with_vector
from mltree.models.substitution import DNA_MODELS
from mltree.runs.model_choice import (
    REFERENCE_RATES,
    CandidateModel,
    Criterion,
    check_model_set,
    free_rates,
    matrices,
    started_from,
    thawed,
    with_matrix_held,
    with_rates_held,
)
from mltree.system.errors import ModelError

RATES = (*REFERENCE_RATES, free_rates(2), free_rates(5))
GTR_G = "GTR{1.3/3.1/0.7/1.1/4.2/1}+FU{0.3/0.2/0.2/0.3}+G4{0.6}"


@pytest.mark.cases(20, 2000)
def test_criteria_against_exact_fractions(case: int) -> None:
    rng = np.random.default_rng(case)
    k, n = int(rng.integers(1, 60)), int(rng.integers(70, 5000))
    lnl = -float(rng.integers(1, 10**6)) / 16
    exact = Fraction(lnl)
    aic = 2 * k - 2 * exact
    assert Criterion.AIC.score(lnl, k, n) == float(aic)
    aicc = aic + Fraction(2 * k * (k + 1), n - k - 1)
    assert Criterion.AICC.score(lnl, k, n) == pytest.approx(float(aicc), rel=1e-15)
    assert (Criterion.BIC.score(lnl, k, n) + 2 * lnl) / k == pytest.approx(math.log(n), rel=1e-9)


def test_the_correction_is_iq_tree_s_without_sites_to_spare() -> None:
    aic = 2 * 9 + 200.0
    assert [Criterion.AICC.score(-100.0, 9, n) for n in (1, 9, 10, 11)] == [aic + 180] * 4
    assert Criterion.AICC.score(-100.0, 9, 12) == aic + 90


def test_a_set_of_models_leaves_the_others_out() -> None:
    assert matrices(DNA, ["HKY", "gtr", "TN"]) == ["GTR+FC", "TN93+FC", "HKY+FC"]
    assert matrices(PROTEIN, ["WAG", "GTR"]) == ["WAG", "WAG+FC"]
    assert matrices(PROTEIN, ["GTR"]) == matrices(PROTEIN)
    check_model_set(["WAG", "HKY"], [DNA, PROTEIN])
    with pytest.raises(ModelError, match="'WAG' is not a matrix of these data"):
        check_model_set(["GTR", "WAG"], [DNA])


def test_every_matrix_of_a_kind_of_data_is_there_once() -> None:
    dna = matrices(DNA)
    assert dna[0] == "GTR+FC"
    assert len(dna) == len(set(dna)) == len(DNA_MODELS) == 22
    proteins = matrices(PROTEIN)
    assert proteins[0] == "LG"
    assert set(proteins) == {name + term for name in PROTEIN_MODELS for term in ("", "+FC")}


IQ_TREE_FREE = {"JC": 0, "K80": 1, "F81": 3, "HKY": 4, "TN93": 5, "TPM2uf": 5, "TIM3uf": 6,
                "TVM": 7, "SYM": 5, "GTR": 8}  # fmt: skip
"""Free parameters of matrices, by IQ-TREE 2.0.7's -m MF; rates: the next table."""

IQ_TREE_FREE_RATES = {"": 0, "+I": 1, "+G4": 1, "+I+G4": 2, "+R2": 2, "+R5": 8}


@pytest.mark.parametrize("rates", RATES)
@pytest.mark.parametrize("matrix", IQ_TREE_FREE)
def test_free_parameters_are_counted_as_iq_tree_does(matrix: str, rates: str) -> None:
    name = next(one for one in matrices(DNA) if one.split("+")[0] == matrix) + rates
    expected = IQ_TREE_FREE[matrix] + IQ_TREE_FREE_RATES[rates]
    assert free_parameters(parse_model(name, DNA)) == expected


@pytest.mark.parametrize(("matrix", "free"), [("LG", 0), ("WAG+FC", 19)])
def test_free_parameters_of_proteins(matrix: str, free: int) -> None:
    assert free_parameters(parse_model(CandidateModel(matrix, "+I+G4").name, PROTEIN)) == free + 2


@pytest.mark.parametrize("alphabet", [DNA, PROTEIN])
def test_every_name_is_a_model(alphabet) -> None:
    for matrix in matrices(alphabet):
        model = parse_model(CandidateModel(matrix, "+I+R3").name, alphabet)
        assert matrix.startswith(model.name)


@pytest.mark.parametrize("rates", RATES)
def test_holding_a_half_leaves_the_other_free(rates: str) -> None:
    model = parse_model("GTR+FC" + rates, DNA)
    of_rates = set(names(parse_model("JC" + rates, DNA)))
    of_matrix = set(names(model)) - of_rates
    assert set(names(with_matrix_held(model))) == of_rates
    assert set(names(with_rates_held(model))) == of_matrix
    held = with_rates_held(model).heterogeneity
    assert getattr(held, "fixed", False) == (rates not in ("", "+I"))


@pytest.mark.parametrize("rates", RATES)
def test_a_thawed_model_is_free_where_it_ended(rates: str) -> None:
    free = parse_model("TIM2uf+FC" + rates, DNA)
    rng = np.random.default_rng(7)
    moved = with_vector(free, vector(free) + 0.1 * rng.normal(size=vector(free).size))
    for held in (with_rates_held(moved), with_matrix_held(moved)):
        again = thawed(held, free)
        assert names(again) == names(free)
        np.testing.assert_allclose(vector(again), vector(moved))


def test_matrices_that_are_less_free_start_from_the_mean() -> None:
    start = started_from(parse_model("HKY+FE", DNA), parse_model(GTR_G, DNA))
    transitions, transversions = math.sqrt(3.1 * 4.2), (1.3 * 0.7 * 1.1) ** 0.25
    assert start.rates[1] / start.rates[0] == pytest.approx(transitions / transversions)


def test_matrices_of_codons() -> None:
    every = matrices(codon_alphabet(2))
    assert every[0] == "CODON2_GY+F3X4"
    assert len(every) == 9
    assert set(matrices(codon_alphabet(1))) - {name[7:] for name in every} == {
        "ECMK07",
        "ECMK07+FC",
    }
    for name in every:
        assert parse_model(name, codon_alphabet(2)).codon is not None


def test_codons_begin_where_another_model_of_them_ended() -> None:
    alphabet = codon_alphabet(1)
    ended = parse_model("GY{0.3/4}+FE", alphabet)
    for name, values in (("MGK", (0.3, 4.0)), ("MG", (0.3,)), ("GY{0.1/2}+FE", (0.1, 2.0))):
        model = parse_model(name, alphabet)
        began = started_from(model, ended).codon
        assert began is not None
        assert began.values == values
    held = with_matrix_held(ended)
    assert held.codon is not None
    assert held.codon.variables() == []
    assert vector(thawed(held, parse_model("GY+FE", alphabet))).shape == (2,)
