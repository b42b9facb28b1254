"""Model strings, read and printed as RAxML-NG does."""

from __future__ import annotations

import numpy as np
import pytest

from mltree.alignment.alphabet import DNA, PROTEIN
from mltree.errors import ModelError
from mltree.model import parameters
from mltree.model.grammar import (
    default_model_name,
    format_best_model,
    format_model,
    parse_model,
)
from mltree.model.substitution import DNA_MODELS

GOLDEN = "GTR{1.2/3.4/0.7/0.9/4.1/1.0}+FU{0.31/0.22/0.19/0.28}+I{0.2}+G4m{0.8}"


def test_everything_given() -> None:
    model = parse_model(GOLDEN, DNA)
    assert model.name == "GTR"
    assert model.rates.tolist() == [1.2, 3.4, 0.7, 0.9, 4.1, 1.0]
    assert model.frequencies == pytest.approx([0.31, 0.22, 0.19, 0.28])
    assert (model.frequency_mode, model.p_invariant, model.alpha) == ("FU", 0.2, 0.8)
    assert (model.categories, model.gamma_mode) == (4, "mean")
    assert model.rates_fixed
    assert model.alpha_fixed
    assert model.p_invariant_fixed
    assert parameters.names(model) == []


def test_defaults_are_raxml_ng_s() -> None:
    gtr = parse_model("GTR+G", DNA)
    assert (gtr.frequency_mode, gtr.categories, gtr.gamma_mode) == ("FO", 4, "mean")
    assert parse_model("K80", DNA).frequency_mode == "model"
    assert parse_model("K80+F", DNA).frequency_mode == "FC"
    lg = parse_model("LG", PROTEIN)
    assert (lg.frequency_mode, lg.categories, lg.alpha) == ("model", 1, None)


def test_default_models() -> None:
    assert default_model_name(DNA) == "GTR+FC+G4"
    assert default_model_name(PROTEIN) == "LG+G4"
    for alphabet in (DNA, PROTEIN):
        parse_model(default_model_name(alphabet), alphabet)


@pytest.mark.parametrize("name", sorted(DNA_MODELS))
def test_every_nucleotide_model(name: str) -> None:
    model = parse_model(f"{name.lower()}+g4", DNA)
    assert model.name == name
    assert model.frequency_mode == ("FO" if DNA_MODELS[name].free_frequencies else "model")
    assert parse_model(format_model(model), DNA).rates.tolist() == [1.0] * 6


@pytest.mark.parametrize(
    ("text", "rates"),
    [
        ("HKY{1.0/3.7}", [1, 3.7, 1, 1, 3.7, 1]),
        ("HKY{2/7.4}", [1, 3.7, 1, 1, 3.7, 1]),
        ("K80{2.5}", [1, 2.5, 1, 1, 2.5, 1]),
        ("K80[1/2.5]", [1, 2.5, 1, 1, 2.5, 1]),
        ("HKY{1/3.7/1/1/3.7/1}", [1, 3.7, 1, 1, 3.7, 1]),
        ("TN93{1,2,3}", [1, 2, 1, 1, 3, 1]),
        ("TIM2{6/7/1/25}", [6, 7, 6, 1, 25, 1]),
        ("TIM2{6/7/25}", [6, 7, 6, 1, 25, 1]),
        ("GTR{2/4/6/8/10}", [2, 4, 6, 8, 10, 1]),
        ("GTR{2/4/6/8/10/2}", [1, 2, 3, 4, 5, 1]),
        ("GTR{0/1e+0/1/1/1/1}", [0, 1, 1, 1, 1, 1]),
        ("DNA353353{1/3.7}", [1, 3.7, 1, 1, 3.7, 1]),
    ],
)
def test_given_rates(text: str, rates: list[float]) -> None:
    model = parse_model(text, DNA)
    assert model.rates == pytest.approx(rates)
    assert model.rates_fixed


@pytest.mark.parametrize(
    ("text", "categories", "mode", "alpha", "fixed"),
    [
        ("JC+G", 4, "mean", 1.0, False),
        ("JC+G8", 8, "mean", 1.0, False),
        ("JC+G4m", 4, "mean", 1.0, False),
        ("JC+G4a", 4, "median", 1.0, False),
        ("JC+GA{0.3}", 4, "median", 0.3, True),
        ("JC+G{2.5}", 4, "mean", 2.5, True),
        ("JC+G1", 1, "mean", None, False),
        ("JC+G4{99.9}", 4, "mean", 99.9, True),
    ],
)
def test_gamma(text: str, categories: int, mode: str, alpha: float | None, fixed: bool) -> None:
    model = parse_model(text, DNA)
    assert (model.categories, model.gamma_mode) == (categories, mode)
    assert (model.alpha, model.alpha_fixed) == (alpha, fixed)


@pytest.mark.parametrize(
    ("text", "value", "fixed"),
    [("JC+I", 0.1, False), ("JC+IO", 0.1, False), ("JC+I{0.25}", 0.25, True),
     ("JC+IU{0}", 0.0, True)],
)  # fmt: skip
def test_invariable_sites(text: str, value: float, fixed: bool) -> None:
    model = parse_model(text, DNA)
    assert (model.p_invariant, model.p_invariant_fixed) == (value, fixed)


def test_terms_come_in_any_order_and_the_partition_is_ignored() -> None:
    model = parse_model(" gtr+g4+i+fe , noname = 1-603\n", DNA)
    assert format_model(model) == format_model(parse_model("GTR+FE+I+G4m", DNA))


def test_rounded_frequencies_are_rescaled() -> None:
    model = parse_model("GTR+FU{0.333/0.333/0.333/0}", DNA)
    assert model.frequencies.sum() == pytest.approx(1.0, abs=1e-15)


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        # TIM2: as in a RAxML-NG 2.0 model-test log; JC+FC: its unit tests, with decimals.
        ("JC+FC+G{2.5}", "JC+FC+G4m{2.500000}"),
        (
            "GTR+FO",
            ("GTR{1.000000/1.000000/1.000000/1.000000/1.000000/1.000000}+FU{0.250000/0.250000/"
            "0.250000/0.250000}"),
        ),
        ("TIM2{6.974288/6.969424/1.0/25.074202}+FE+I{0.308042}+G4m{1.222224}",
         "TIM2{6.974288/6.969424/1.000000/25.074202}+FE+IU{0.308042}+G4m{1.222224}"),
        ("HKY{1/3.7}+FC+G4a{0.3}", "HKY{1.000000/3.700000}+FC+G4a{0.300000}"),
        ("K80{1/2}", "K80{1.000000/2.000000}"),
        ("JC", "JC"),
    ],
)  # fmt: skip
def test_printed_as_raxml_ng_does(text: str, printed: str) -> None:
    assert format_model(parse_model(text, DNA)) == printed


def test_protein_printed_as_raxml_ng_does() -> None:
    assert (
        format_model(parse_model("LG+F+I{0.1}+G{0.9}", PROTEIN))
        == "LG+FC+IU{0.100000}+G4m{0.900000}"
    )
    assert format_model(parse_model("WAG", PROTEIN)) == "WAG"


def test_best_model_line() -> None:
    line = format_best_model(parse_model(GOLDEN, DNA), 603)
    assert line == (
        "GTR{1.200000/3.400000/0.700000/0.900000/4.100000/1.000000}"
        "+FU{0.310000/0.220000/0.190000/0.280000}+IU{0.200000}+G4m{0.800000}, noname = 1-603"
    )
    assert format_best_model(parse_model(line, DNA), 603) == line


@pytest.mark.parametrize("name", sorted(DNA_MODELS))
def test_optimised_model_round_trips(name: str) -> None:
    model = parse_model(f"{name}+I+G4a", DNA)
    x = np.random.default_rng(1).normal(size=len(parameters.vector(model)))
    model = parameters.with_vector(model, x)
    again = parse_model(format_model(model, precision=12), DNA)
    assert again.rates == pytest.approx(model.rates, rel=1e-10)
    assert again.frequencies == pytest.approx(model.frequencies, rel=1e-10)
    assert again.alpha == pytest.approx(model.alpha)
    assert again.p_invariant == pytest.approx(model.p_invariant)
    assert again.gamma_mode == "median"
    assert parameters.names(again) == []


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("GTRR", "GTR"), ("HKY85", "HKY"), ("TN92", "TN93"), ("TPM1uf", "K81uf"), ("JC69", "JC"),
     ("K2P", "K80"), ("TRNef", "TN93ef")],
)  # fmt: skip
def test_unknown_name_suggests_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(ModelError, match=rf"nearest known is {nearest}$") as error:
        parse_model(f"{name}+G4", DNA)
    assert "known DNA models: JC" in str(error.value.hint)


def test_unknown_protein_name_suggests_the_nearest() -> None:
    with pytest.raises(ModelError, match="nearest known is WAG$"):
        parse_model("WAGG+G4", PROTEIN)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cannot read"),
        ("+G4", "cannot read"),
        ("GTR+", "cannot read"),
        ("GTR++G4", "cannot read"),
        ("GTR{1/2/3", "brace is not closed"),
        ("GTR1/2}", "brace"),
        ("GTR{}", "numbers are wanted"),
        ("GTR{1/2/x/4/5/6}", "numbers are wanted"),
        ("GTR{1/2/nan/4/5/6}", "numbers are wanted"),
        ("GTR{1/2}", "has 6 exchangeabilities, not 2"),
        ("K80{1/2/3}", "has 2 exchangeabilities, not 3"),
        ("K80{1/2/3/4/5/6}", "not equal where they must be"),
        ("K80{-1}", "must not be negative"),
        ("GTR{1/1/1/1/1/0}", "last pair must be positive"),
        ("LG", "is for proteins"),
        ("GTR+FX", "cannot read the frequencies"),
        ("GTR+FC{0.1/0.2/0.3/0.4}", r"only \+FU takes values"),
        ("GTR+FU", "cannot read the frequencies"),
        ("GTR+FU{0.5/0.5}", "4 frequencies are wanted, not 2"),
        ("GTR+FU{0.1/0.2/0.3/0.5}", "must sum to 1, not 1.1"),
        ("GTR+FU{1.2/-0.2/0/0}", "must not be negative"),
        ("GTR+G4x", "cannot read the rate heterogeneity"),
        ("GTR+G0", "rate categories"),
        ("GTR+G1000", "rate categories"),
        ("GTR+G4{0.01}", "at least 0.02"),
        ("GTR+G4{1/2}", "one number is wanted"),
        ("GTR+IQ", "cannot read the proportion"),
        ("GTR+IU", "cannot read the proportion"),
        ("GTR+I{1.0}", r"must be in \[0, 1\)"),
        ("GTR+G4+G8", r"two \+G terms"),
        ("GTR+F+FO", r"two \+F terms"),
        ("GTR+R4", r"\+R4 is not supported yet"),
        ("GTR+IC", r"\+IC is not supported yet"),
        ("GTR+ASC_LEWIS", "not supported yet"),
        ("GTR+Q", r"unknown model term \+Q"),
    ],
)
def test_errors_name_the_term(text: str, message: str) -> None:
    with pytest.raises(ModelError, match=message) as error:
        parse_model(text, DNA)
    assert "\n" not in str(error.value)


def test_free_rates_hint_at_gamma() -> None:
    with pytest.raises(ModelError) as error:
        parse_model("GTR+R4", DNA)
    assert error.value.hint == "use +G instead"


def test_data_type_must_agree() -> None:
    with pytest.raises(ModelError, match="is for nucleotides") as error:
        parse_model("GTR+G4", PROTEIN)
    assert error.value.hint == "try LG+G4"
    with pytest.raises(ModelError, match="exchangeabilities of its own"):
        parse_model("LG{1/2}", PROTEIN)
