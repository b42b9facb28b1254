"""``mltree model``, and ``--model auto``: what is said, written and refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

Run = Callable[..., Result]

CHOSEN = "TPM2uf+FC+G4"
"""For the primates, as by IQ-TREE 2.0.7 -m MF: TPM2+F+G4, BIC 11626.8521, lnL -5721.624."""
IQ_TREE_BIC = 11626.8521
IQ_TREE_FREE = 27

SCHEME = "DNA, rest = 501-898\nDNA, first = 1-500\n"

TREE = Path(__file__).parents[1] / "golden" / "trees" / "primates.nwk"


def test_the_choice_is_iq_tree_s(run: Run, primates: str) -> None:
    command = ("model", primates, "--prefix", "x", "--tree", TREE)
    result = run(*command)
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-1] == f"Best-fit model according to BIC: {CHOSEN}"
    (table,) = json.loads(Path("x.mltree.modelTest").read_text())
    best = table["models"][0]
    assert (table["part"], table["best"]["bic"]) == ("noname", CHOSEN)
    assert (best["model"], best["parameters"], best["fitted"]) == (CHOSEN, IQ_TREE_FREE, "whole")
    assert best["bic"] == pytest.approx(IQ_TREE_BIC, abs=0.1)
    scores = [one["bic"] for one in table["models"]]
    assert scores == sorted(scores)
    for criterion in ("bic", "aic", "aicc"):
        assert sum(one[f"{criterion}_weight"] for one in table["models"]) == pytest.approx(1.0)
    assert sorted(path.name for path in Path().iterdir()) == [
        f"x.mltree.{kind}" for kind in ("bestFitModel", "modelLog", "modelTest")
    ]
    again = run(*command)
    assert again.exit_code == 2
    assert "--redo" in again.stderr
    again = run("evaluate", primates, "--model", "x.mltree.bestFitModel", "--tree", TREE,
                "--no-opt-model", "--prefix", "e")  # fmt: skip
    (line,) = (x for x in again.stdout.splitlines() if x.startswith("Final log-likelihood"))
    assert float(line.split()[-1]) == pytest.approx(best["lnl"], abs=0.05)


def test_parts_are_chosen_for_and_read_again(run: Run, primates: str) -> None:
    Path("parts").write_text(SCHEME)
    result = run("model", primates, "--partitions", "parts", "--prefix", "x", "--json",
                 "--criterion", "AICc")  # fmt: skip
    assert result.exit_code == 0, result.output
    events = [json.loads(line) for line in result.stdout.splitlines()]
    chosen = {e["part"]: e["model"] for e in events if e["event"] == "ModelChosen"}
    assert list(chosen) == ["rest", "first"]
    ranked = [event for event in events if event["event"] == "ModelsRanked"]
    assert [(event["part"], event["models"][0]["model"]) for event in ranked] == [*chosen.items()]
    lines = Path("x.mltree.bestFitModel").read_text().splitlines()
    assert [line.split(", ")[1] for line in lines] == ["rest = 501-898", "first = 1-500"]
    assert Path("x.mltree.best_scheme").exists()
    for name in ("x.mltree.bestFitModel", "x.mltree.best_scheme.nex"):
        again = run("check", primates, "--partitions", name, "--json")
        assert again.exit_code == 0, again.output
        parts = json.loads(again.stdout.splitlines()[-1])["parts"]
        for part in parts:
            assert part["model"].split("{")[0].split("+")[0] == chosen[part["name"]].split("+")[0]


def test_a_search_chooses_its_model(run: Run, primates: str) -> None:
    result = run("search", primates, "--model", "auto", "--preset", "fast", "--prefix", "x")
    assert result.exit_code == 0, result.output
    assert f"noname: {CHOSEN}  BIC" in result.stderr
    assert Path("x.mltree.bestModel").read_text().startswith("TPM2uf{")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--partitions", "HKY+G4"), "no such file"),
        (("--partitions", "lone"), "names no part"),
        (("--criterion", "ml"), "'ml' is not one of"),
        (("--tree", "other"), "not in the alignment"),
        (("--device", "no such"), "no such"),
    ],
)
def test_what_cannot_be_used_is_refused(
    run: Run, primates: str, options: tuple[str, ...], words: str
) -> None:
    Path("lone").write_text("HKY+FC+G4\n")
    Path("other").write_text("(a,b,(c,d));")
    result = run("model", primates, "--prefix", "x", *options)
    assert result.exit_code == 2
    assert words in result.stderr
    assert not Path("x.mltree.bestFitModel").exists()
