"""Models as names and numbers: text that commands take, and back from what was fitted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mltree
from mltree import ModelParameters
from mltree.runs.inputs import model_of
from mltree.runs.problem import read_model
from mltree.system.errors import ModelError

NAMES = ("JC", "HKY+FO+G4", "GTR+FO+I+G8a", "GTR+FC+R3", "K80+I", "TIM2uf+G4", "SYM+R2")
PROTEINS = ("LG+G4", "WAG+FC+I+R2", "POISSON")


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        (ModelParameters("HKY", rates=2.5), "HKY{2.5}"),
        (ModelParameters("GTR+FO+G4", alpha=np.float64(0.5)), "GTR+FO+G4{0.5}"),
        (ModelParameters("GTR", pinv=0.25, alpha=2), "GTR+IU{0.25}+G4{2.0}"),
        (ModelParameters("HKY+G8a+I", pinv=1e-5), "HKY+G8a+IU{1e-05}"),
        (ModelParameters("HKY+G8a", alpha=np.array([0.5])), "HKY+G8a{0.5}"),
        (
            ModelParameters("HKY+FC", frequencies={"T": 0.4, "A": 0.1, "C": 0.2, "G": 0.3}),
            "HKY+FU{0.1/0.2/0.3/0.4}",
        ),
        (
            ModelParameters("JC+R2", category_rates=(0.5, 1.5), category_weights=[0.5, 0.5]),
            "JC+R2{0.5/1.5}{0.5/0.5}",
        ),
        (
            ModelParameters("GTR", rates=np.add.outer([0, 1, 3, 8], [0, 1, 3, 8])),
            "GTR{1.0/3.0/8.0/4.0/9.0/11.0}",
        ),
        (ModelParameters("GY+F3X4", rates=[0.2, 2.5]), "GY{0.2/2.5}+F3X4"),
        (ModelParameters("MIX{JC,HKY}+G4", alpha=0.5), "MIX{JC,HKY}+G4{0.5}"),
        (replace(ModelParameters("HKY", rates=2.5), rates=3), "HKY{3.0}"),
    ],
)
def test_text(parameters: ModelParameters, text: str) -> None:
    assert parameters.text == str(parameters) == model_of(parameters) == text
    assert read_model(text).name


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (lambda: ModelParameters("GTR", rates="fast"), "rates='fast': numbers, please"),
        (lambda: ModelParameters("GTR", alpha=[1, 2]), "alpha=.* numbers, please"),
        (lambda: ModelParameters("GTR", pinv=np.nan), "pinv=nan: one finite number, please"),
        (lambda: ModelParameters("GTR", frequencies=[[1]]), "frequencies=.* finite numbers in a"),
        (lambda: ModelParameters("GTR", frequencies={"A": 1}), "frequencies of A: of ACGT"),
        (lambda: ModelParameters("GTR", rates=np.ones((2, 3))), "a square and symmetric one"),
        (lambda: ModelParameters("GTR", rates=np.arange(16).reshape(4, 4)), "symmetric"),
        (lambda: ModelParameters("GTR", category_rates=[1]), "go together"),
        (lambda: ModelParameters("MIX{JC,HKY}", rates=2).text, "one matrix"),
        (lambda: model_of(3), "int is not a model"),
        (lambda: mltree.simulate(ModelParameters("HKY", rates=[1, 2, 3]), taxa=4, sites=5), "HKY"),
        (lambda: mltree.simulate(ModelParameters("JC", frequencies=[1]), taxa=4, sites=5), "JC|4"),
    ],
)
def test_what_is_none(call: Callable[[], object], line: str) -> None:
    with pytest.raises(ModelError, match=line):
        call()


def random_numbers(name: str, states: int, rng: np.random.Generator) -> dict[str, Any]:
    """Numbers for the terms that a name has."""
    numbers: dict[str, Any] = {}
    if "+F" in name:
        numbers["frequencies"] = rng.dirichlet(np.full(states, 9.0))
    if "+G" in name:
        numbers["alpha"] = rng.uniform(0.2, 3.0)
    if "+I" in name:
        numbers["pinv"] = rng.uniform(0.05, 0.4)
    for count in range(2, 4):
        if f"+R{count}" in name:
            numbers["category_rates"] = np.sort(rng.uniform(0.1, 4.0, count))
            numbers["category_weights"] = rng.dirichlet(np.full(count, 9.0))
    return numbers


@pytest.mark.cases(7, 100)
def test_numbers_come_back_from_a_model(case: int) -> None:
    rng = np.random.default_rng(case)
    name = (NAMES + PROTEINS)[case % 10]
    given = ModelParameters(name, **random_numbers(name, 20 if name in PROTEINS else 4, rng))
    model = read_model(given.text)
    back = ModelParameters.of(model)
    again = read_model(back.text).arrays()
    for field in ("generator", "frequencies", "rates", "weights"):
        np.testing.assert_allclose(getattr(again, field), getattr(model.arrays(), field), 1e-9)
    for field in ("alpha", "pinv", "frequencies"):
        if getattr(given, field) is not None:
            np.testing.assert_allclose(getattr(back, field), getattr(given, field), rtol=1e-9)


@pytest.mark.parametrize("name", ["GTR+FC+I+G2", "HKY+FO+R2", "MIX{JC,HKY}+G2", "JC"])
def test_a_result_has_its_numbers(sequences: dict[str, str], name: str) -> None:
    tree = "(t0,t1,(t2,(t3,(t4,(t5,t6)))));"
    fitted = mltree.evaluate(sequences, tree, name, device="reference")
    again = mltree.evaluate(
        sequences, fitted.tree, fitted.parameters, optimise_branches=False, device="reference"
    )
    assert again.lnl == pytest.approx(fitted.lnl, abs=1e-4), "lengths have ten decimals"
    values = fitted.parameters.to_dict()
    assert values.keys() == {"name", *(key for key, _ in fitted.parameters._given())}
    assert ("alpha" in values) == ("+G" in name)
    assert fitted.part_parameters.keys() == {"noname"}
    assert values["name"] in fitted.parameters._repr_html_()


def test_parts_have_numbers_each(file: str) -> None:
    Path("parts").write_text("JC, one = 1-20\nHKY, two = 21-60\n")
    found = mltree.evaluate(file, "(t0,t1,(t2,(t3,(t4,(t5,t6)))));", "parts")
    assert {name: own.name for name, own in found.part_parameters.items()} == {
        "one": "JC", "two": "HKY+FO",
    }  # fmt: skip
    with pytest.raises(mltree.InputError, match="there is a model a part"):
        _ = found.parameters
    frame = found.to_dataframe()
    assert frame["parameters"].tolist() == [11 + 1 + 4], "lengths, a scaler, and HKY's own"
    assert frame["bic"].iloc[0] == pytest.approx(16 * np.log(60) - 2 * found.lnl)
