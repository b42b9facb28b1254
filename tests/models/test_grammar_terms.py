"""The terms behind a model's name."""

from __future__ import annotations

import pytest

from mltree.data.alphabet import DNA
from mltree.models.grammar import format_model, parse_model
from mltree.models.rates import ONE_RATE, FreeRates, Gamma, Heterogeneity, gamma_rates
from mltree.system.errors import ModelError


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("JC+G", Gamma(4, 1.0)),
        ("JC+G8", Gamma(8, 1.0)),
        ("JC+G4m", Gamma(4, 1.0)),
        ("JC+G4a", Gamma(4, 1.0, "median")),
        ("JC+GA{0.3}", Gamma(4, 0.3, "median", fixed=True)),
        ("JC+G{2.5}", Gamma(4, 2.5, fixed=True)),
        ("JC+G1", ONE_RATE),
        ("JC+G4{99.9}", Gamma(4, 99.9, fixed=True)),
    ],
)
def test_gamma(text: str, form: Heterogeneity) -> None:
    assert parse_model(text, DNA).heterogeneity == form


@pytest.mark.parametrize(
    ("text", "rates", "weights", "fixed"),
    [
        ("JC+R", gamma_rates(1.0, 4), [0.25] * 4, False),
        ("JC+r2", gamma_rates(1.0, 2), [0.5] * 2, False),
        ("JC+R10", gamma_rates(1.0, 10), [0.1] * 10, False),
        ("JC+R2{1/3}{0.75/0.25}", [2 / 3, 2], [0.75, 0.25], True),
        ("JC+R2{3,1}[1,3]", [2 / 3, 2], [0.75, 0.25], True),
        ("JC+R{1/2/6}", [1 / 3, 2 / 3, 2], [1 / 3] * 3, True),
        ("JC+R2{0/2}{0.5/0.5}", [0.0, 2.0], [0.5, 0.5], True),
    ],
)
def test_free_rates(text: str, rates: list[float], weights: list[float], fixed: bool) -> None:
    form = parse_model(text, DNA).heterogeneity
    assert isinstance(form, FreeRates)
    assert form.rates == pytest.approx(rates)
    assert form.weights == pytest.approx(weights)
    assert form.fixed == fixed


@pytest.mark.parametrize(
    ("text", "value"), [("JC+B", 1.0), ("JC+BO", 1.0), ("JC+BU{0.25}", 0.25), ("JC+b{3}", 3.0)]
)
def test_branch_scaler(text: str, value: float) -> None:
    model = parse_model(text, DNA)
    assert model.branch_scaler == value
    assert format_model(model) == f"JC+BU{{{value:.6f}}}"


@pytest.mark.parametrize(
    ("text", "value", "fixed"),
    [("JC+I", 0.1, False), ("JC+IO", 0.1, False), ("JC+I{0.25}", 0.25, True),
     ("JC+IU{0}", 0.0, True)],
)  # fmt: skip
def test_invariable_sites(text: str, value: float, fixed: bool) -> None:
    model = parse_model(text, DNA)
    assert (model.p_invariant, model.p_invariant_fixed) == (value, fixed)


def test_rounded_frequencies_are_rescaled() -> None:
    model = parse_model("GTR+FU{0.333/0.333/0.333/0}", DNA)
    assert model.frequencies.sum() == pytest.approx(1.0, abs=1e-15)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("GTR+FX", "cannot read the frequencies"),
        ("GTR+FC{0.1/0.2/0.3/0.4}", r"only \+FU takes values"),
        ("GTR+FU", "cannot read the frequencies"),
        ("GTR+FU{0.5/0.5}", "expected 4 frequencies, not 2"),
        ("GTR+FU{0.1/0.2/0.3/0.5}", "must sum to 1, not 1.1"),
        ("GTR+FU{1.2/-0.2/0/0}", "must not be negative"),
        ("GTR+G4x", "cannot read the rate heterogeneity"),
        ("GTR+G0", "rate categories"),
        ("GTR+G1000", "rate categories"),
        ("GTR+G4{0.01}", "at least 0.02"),
        ("GTR+G4{1/2}", "expected one number"),
        ("GTR+IQ", "cannot read the proportion"),
        ("GTR+IU", "cannot read the proportion"),
        ("GTR+I{1.0}", r"must be in \[0, 1\)"),
        ("GTR+G4+G8", r"two \+G terms"),
        ("GTR+F+FO", r"two \+F terms"),
        ("GTR+R1", "between 2 and 10"),
        ("GTR+R11", "between 2 and 10"),
        ("GTR+R2{1/2/3}", "expected 2 rates, not 3"),
        ("GTR+R2{0.5/0.1/0.5/1.9}", "expected 2 rates, not 4"),
        ("GTR+R2{1/2}{1/2/3}", "expected 2 weights, not 3"),
        ("GTR+R2{1/2}{1/2}{1/2}", "cannot read the free rates"),
        ("GTR+R2m", "cannot read the free rates"),
        ("GTR+R2{1/x}", "expected numbers"),
        ("GTR+R2{1/-1}{0.5/0.5}", "must not be negative"),
        ("GTR+R2{1/1}{0/0}", "are zero"),
        ("GTR+G4+R4", r"both \+G and \+R"),
        ("GTR+I+I", r"two \+I terms"),
        ("GTR+G4{0.5}{0.5}", "one pair of braces"),
        ("GTR+BU", "cannot read the scale"),
        ("GTR+BX{1}", "cannot read the scale"),
        ("GTR+B{0}", "must be positive"),
        ("GTR+B{-1}", "must be positive"),
        ("GTR+IC", r"\+IC is not supported yet"),
        ("GTR+ASC_X", "cannot read the correction"),
        ("GTR+ASC_FELS", "expected 1 numbers in braces, not none"),
        ("GTR+ASC_STAM{1/2}", "expected 4 numbers"),
        ("GTR+ASC_STAM{1/2/3/-1}", "must not be negative"),
        ("GTR+ASC+ASC_LEWIS", "two .A terms"),
        ("GTR+Q", r"unknown model term \+Q"),
    ],
)
def test_errors_name_the_term(text: str, message: str) -> None:
    with pytest.raises(ModelError, match=message) as error:
        parse_model(text, DNA)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "term", ["+ASC_LEWIS", "+ASC_FELS{120}", "+ASC_STAM{10/20/3.5/0}", "+G4m{0.500000}+ASC_LEWIS"]
)
def test_ascertainment_is_read_as_it_is_written(term: str) -> None:
    text = "JC" + term
    assert format_model(parse_model(text, DNA)) == text
    assert (
        parse_model("JC+ASC", DNA).ascertainment == parse_model("JC+asc_lewis", DNA).ascertainment
    )
