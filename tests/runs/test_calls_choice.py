"""The choice of a model from Python is the command's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import mltree
from mltree.cli.main import app
from mltree.system.errors import InputError


@pytest.fixture(autouse=True)
def _two_matrices(monkeypatch: pytest.MonkeyPatch) -> None:
    """A choice among few: what is tested here is who asks."""
    monkeypatch.setattr("mltree.runs.model_choice.matrices", lambda *_: ("GTR+FC", "JC"))
    monkeypatch.setattr("mltree.runs.model_choice.REFERENCE_RATES", ("+G4",))
    monkeypatch.setattr("mltree.runs.model_choice.free_rates", lambda _: "+G4")


def test_a_choice_is_the_commands(file: str) -> None:
    result = CliRunner().invoke(app, ["model", file, "--prefix", "x", "--criterion", "aic"])
    assert result.exit_code == 0, result.output
    found = mltree.model(file, criterion="aic")
    assert isinstance(found, mltree.ModelChoice)
    (row,) = json.loads(Path("x.mltree.modelTest").read_text())
    del row["data"]  # what a later search knows its data by
    assert json.loads(found.to_json()) == row
    assert str(found) == found.name == row["best"]["aic"]
    assert found.lnl == row["models"][0]["lnl"]
    assert found.model == row["models"][0]["estimates"]
    assert found.name in found._repr_html_()
    assert "AIC" in found._repr_html_()
    assert repr(found) == f"ModelChoice({found.name}, of {len(found.to_dict()['models'])} models)"


def test_parts_have_one_each_in_the_order_of_their_file(file: str) -> None:
    Path("parts").write_text("DNA, two = 31-60\nDNA, one = 1-30\n")
    tree = "(t0:0.1,t1:0.1,(t2:0.1,(t3:0.1,(t4:0.1,(t5:0.1,t6:0.1):0.1):0.1):0.1):0.1);"
    found = mltree.model(file, partitions="parts", tree=tree)
    assert isinstance(found, list)
    assert [one.part for one in found] == ["two", "one"]


def test_an_unknown_criterion(file: str) -> None:
    with pytest.raises(InputError, match="criterion='x' is not one of"):
        mltree.model(file, criterion="x")


def test_a_search_takes_the_choice(file: str) -> None:
    result = CliRunner().invoke(
        app, ["search", file, "--model", "auto", "--preset", "fast", "--prefix", "x"]
    )
    assert result.exit_code == 0, result.output
    found = mltree.search(file, "auto", preset="fast")
    assert found.lnl == json.loads(Path("x.mltree.json").read_text())["lnl"]
