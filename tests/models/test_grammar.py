"""Model strings, read and printed as RAxML-NG does."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from mltree.data.alphabet import DNA, PROTEIN, Alphabet
from mltree.models import empirical, parameters
from mltree.models.eigen import p_matrices
from mltree.models.empirical import PROTEIN_MODELS
from mltree.models.grammar import format_best_model, format_model, parse_model
from mltree.models.names import default_model_name
from mltree.models.parameters import with_vector
from mltree.models.rates import ONE_RATE, Gamma
from mltree.models.substitution import DNA_MODELS
from mltree.system.errors import InputError, ModelError

GOLDEN = "GTR{1.2/3.4/0.7/0.9/4.1/1.0}+FU{0.31/0.22/0.19/0.28}+I{0.2}+G4m{0.8}"


def test_everything_given() -> None:
    model = parse_model(GOLDEN, DNA)
    assert model.name == "GTR"
    assert model.rates.tolist() == [1.2, 3.4, 0.7, 0.9, 4.1, 1.0]
    assert model.frequencies == pytest.approx([0.31, 0.22, 0.19, 0.28])
    assert (model.frequency_mode, model.p_invariant) == ("FU", 0.2)
    assert model.heterogeneity == Gamma(4, 0.8, "mean", fixed=True)
    assert model.rates_fixed
    assert model.p_invariant_fixed
    assert parameters.names(model) == []


def test_defaults_are_raxml_ng_s() -> None:
    gtr = parse_model("GTR+G", DNA)
    assert (gtr.frequency_mode, gtr.heterogeneity) == ("FO", Gamma(4, 1.0, "mean"))
    assert parse_model("K80", DNA).frequency_mode == "model"
    assert parse_model("K80+F", DNA).frequency_mode == "FC"
    lg = parse_model("LG", PROTEIN)
    assert (lg.frequency_mode, lg.heterogeneity) == ("model", ONE_RATE)
    assert (lg.p_invariant, lg.branch_scaler) == (None, None)


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


def test_terms_come_in_any_order_and_the_sites_of_a_best_model_are_ignored() -> None:
    model = parse_model(" gtr+g4+i+fe , noname = 1-603\n", DNA)
    assert format_model(model) == format_model(parse_model("GTR+FE+I+G4m", DNA))


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
        # As in RAxML-NG 1.2's .bestModel files.
        ("GTR{4/16/4/0.5/29/1}+FC+R2{0.1/1}{2/1}",
         ("GTR{4.000000/16.000000/4.000000/0.500000/29.000000/1.000000}+FC"
          "+R2{0.250000/2.500000}{0.666667/0.333333}")),
        ("K80{1/0.001}+IU{0.029684}+BU{1.641609}",
         "K80{1.000000/0.001000}+IU{0.029684}+BU{1.641609}"),
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
    model = with_vector(model, x)
    again = parse_model(format_model(model, precision=12), DNA)
    assert again.rates == pytest.approx(model.rates, rel=1e-10)
    assert again.frequencies == pytest.approx(model.frequencies, rel=1e-10)
    assert again.heterogeneity.categories.rates == pytest.approx(
        model.heterogeneity.categories.rates
    )
    assert again.p_invariant == pytest.approx(model.p_invariant)
    assert parameters.names(again) == []


def random_text(rng: np.random.Generator) -> tuple[str, Alphabet]:
    """A model's string with any combination of terms, nothing given."""
    alphabet = DNA if rng.random() < 0.7 else PROTEIN
    names = sorted(DNA_MODELS) if alphabet is DNA else [*PROTEIN_MODELS, "PROTGTR"]
    frequencies = rng.choice(["", "+FE", "+FO"])
    among = rng.choice(["", "+G3", "+G5a", *(f"+R{k}" for k in range(2, 11))])
    terms = [frequencies, among, rng.choice(["", "+I"]), rng.choice(["", "+BO"])]
    return rng.choice(names) + "".join(rng.permutation(terms)), alphabet


def blanked(line: str) -> str:
    """Without digits: rounded weights and frequencies are rescaled, which moves their last one."""
    return re.sub(r"[0-9]+\.[0-9]+", "x", line)


@pytest.mark.cases(40, 5000)
def test_any_model_is_read_as_it_was_printed(case: int) -> None:
    rng = np.random.default_rng(case)
    text, alphabet = random_text(rng)
    model = parse_model(text, alphabet)
    x = rng.normal(size=len(parameters.vector(model)))
    model = with_vector(model, x)
    again = parse_model(format_best_model(model, 100), alphabet)
    assert parameters.names(again) == []
    assert blanked(format_model(again)) == blanked(format_model(model))
    exact = parse_model(format_model(model, precision=15), alphabet)
    length = np.array([0.1])
    ours, theirs = (p_matrices(each.arrays(), length)[0] for each in (model, exact))
    order, again_order = (each.arrays().rates.argsort() for each in (model, exact))
    np.testing.assert_allclose(ours[order], theirs[again_order], rtol=1e-9, atol=1e-12)
    weights = model.arrays().weights[order]
    np.testing.assert_allclose(exact.arrays().weights[again_order], weights, rtol=1e-9)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("GTRR", "GTR"), ("TN92", "TN93"), ("HKY86", "HKY")],
)
def test_unknown_name_suggests_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(ModelError, match=rf"nearest known is {nearest}$") as error:
        parse_model(f"{name}+G4", DNA)
    assert "known DNA models: JC" in str(error.value.hint)


def test_unknown_protein_name_suggests_the_nearest() -> None:
    for name, nearest in (("WAGG", "WAG"), ("Q.INSECTS", "Q.INSECT"), ("MTREVV", "MTREV")):
        with pytest.raises(ModelError, match=f"nearest known is {nearest}$"):
            parse_model(f"{name}+G4", PROTEIN)


def test_every_protein_matrix() -> None:
    for name in PROTEIN_MODELS:
        model = parse_model(f"{name.lower()}+F", PROTEIN)
        assert (model.name, model.frequency_mode) == (name, "FC")
        assert parse_model(format_model(parse_model(name, PROTEIN)), PROTEIN).name == name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cannot read"),
        ("+G4", "cannot read"),
        ("GTR+", "cannot read"),
        ("GTR++G4", "cannot read"),
        ("GTR{1/2/3", "brace is not closed"),
        ("GTR1/2}", "brace"),
        ("GTR, foo bar", "no model has 'foo bar' behind a comma"),
        ("GTR,a=1-60,b=61-90", "no model has 'a=1-60, b=61-90'"),
        ("GTR+G4,", "no model has ''"),
        ("GTR{}", "expected numbers"),
        ("GTR{1/2/x/4/5/6}", "expected numbers"),
        ("GTR{1/2/nan/4/5/6}", "expected numbers"),
        ("GTR{1/2}", "has 6 exchangeabilities, not 2"),
        ("K80{1/2/3}", "has 2 exchangeabilities, not 3"),
        ("K80{1/2/3/4/5/6}", "not equal where they must be"),
        ("K80{-1}", "must not be negative"),
        ("LG", "is for proteins"),
        ("GTR{1/2/3/4/5/6}{1}", "one pair of braces"),
    ],
)
def test_errors_name_the_term(text: str, message: str) -> None:
    with pytest.raises(ModelError, match=message) as error:
        parse_model(text, DNA)
    assert "\n" not in str(error.value)


def test_data_type_must_agree() -> None:
    with pytest.raises(ModelError, match="is for nucleotides") as error:
        parse_model("GTR+G4", PROTEIN)
    assert error.value.hint == "try LG+G4"
    with pytest.raises(ModelError, match="exchangeabilities of its own"):
        parse_model("LG{1/2}", PROTEIN)


def test_the_last_pair_may_never_change() -> None:
    assert parse_model("GTR{2/4/6/8/10/0}", DNA).rates.tolist() == [2, 4, 6, 8, 10, 0]
    line = format_model(parse_model("GTR{1/1/1/1/1/0}", DNA))
    assert format_model(parse_model(line, DNA)) == line


def test_all_exchangeabilities_of_proteins_start_from_lg() -> None:
    assert format_model(parse_model("GTR20+C20+G4", PROTEIN)).startswith("PROTGTR{")
    model = parse_model("PROTGTR+G4", PROTEIN)
    lg = parse_model("LG", PROTEIN)
    np.testing.assert_array_equal(model.rates, lg.rates)
    assert (model.frequency_mode, model.rates_fixed) == ("FO", False)


def test_exchangeabilities_of_proteins_can_be_given() -> None:
    values = np.random.default_rng(1).uniform(0.1, 9.0, 190)
    model = parse_model(f"PROTGTR{{{'/'.join(map(str, values))}}}+FE", PROTEIN)
    np.testing.assert_allclose(model.rates, values / values[-1])
    with pytest.raises(ModelError, match="has 190 exchangeabilities, not 2"):
        parse_model("PROTGTR{1/2}", PROTEIN)


@pytest.mark.parametrize("form", ["PROTGTR{{{}}}", "protgtr[{}]+I+G4", "{}", "{}+F+R3"])
def test_a_matrix_of_the_user_s(form: str, tmp_path: Path) -> None:
    own = tmp_path / "My Own-1.2.dat"
    published = Path(empirical.__file__).parent / "matrices" / "mtmam.dat"
    shutil.copy(published, own)
    model, known = (parse_model(form.format(path), PROTEIN) for path in (own, published))
    assert model.name == "PROTGTR"
    assert model.frequency_mode == ("FC" if "+F" in form else "FU")
    assert model.rates_fixed
    np.testing.assert_array_equal(model.rates, known.rates)
    mine = parse_model("MTMAM", PROTEIN)
    np.testing.assert_allclose(model.rates / model.rates.max(), mine.rates / mine.rates.max())
    again = parse_model(format_model(model, precision=12), PROTEIN)
    close = {"rtol": 1e-6, "atol": 1e-13}
    np.testing.assert_allclose(
        again.rates / again.rates.max(), mine.rates / mine.rates.max(), **close
    )
    with pytest.raises(ModelError, match="is for proteins"):
        parse_model(form.format(own), DNA)


def test_a_file_with_a_model_s_name_hides_no_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("LG").write_text("no matrix")
    assert parse_model("LG", PROTEIN).name == "LG"


def test_a_matrix_that_cannot_be_read_is_told() -> None:
    with pytest.raises(InputError, match="nowhere.dat: no such file"):
        parse_model("PROTGTR{nowhere.dat}", PROTEIN)
