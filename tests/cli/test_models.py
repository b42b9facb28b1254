"""``mltree model``, and ``--model auto``: what is said, written and refused."""

from __future__ import annotations

import json
import random
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


def test_a_search_takes_what_was_chosen(run: Run, primates: str) -> None:
    """By `mltree model`, or by itself before it was stopped; but not for other data."""
    assert run("model", primates, "--prefix", "x").exit_code == 0
    table = Path("x.mltree.modelTest").read_bytes()
    command = ("search", primates, "--model", "auto", "--preset", "fast", "--prefix", "x")
    result = run(*command)
    assert result.exit_code == 0, result.output
    assert "models taken from x.mltree.modelTest" in result.stderr
    assert "candidates" not in result.stderr
    assert Path("x.mltree.bestModel").read_text().startswith("TPM2uf{")
    assert Path("x.mltree.modelTest").read_bytes() == table
    for kind in ("bestModel", "bestTree", "json"):
        Path(f"x.mltree.{kind}").unlink()
    lines = Path(primates).read_text().splitlines()
    Path("fewer").write_text("\n".join(["11 898", *lines[1:12], ""]))
    Path("broken").write_text("{}")
    for file, words in (("fewer", "for other data"), (primates, "without --merge")):
        Path("parts").write_text(SCHEME)
        more = () if file == "fewer" else ("--partitions", "parts", "--merge")
        again = run("search", file, *command[2:], *more)
        assert again.exit_code == 2
        assert words in again.stderr
        assert "--redo" in again.stderr
    Path("x.mltree.modelTest").write_text("{}")
    assert "for other data" in run(*command).stderr


GENES = "begin sets; charset a = 1-120; charset b = 121-240; charset c = 241-360; end;"


def test_a_search_chooses_and_merges(run: Run) -> None:
    """Three genes of one kind are one subset; what is written is a scheme that is read again."""
    rng = random.Random(5)
    rows = {"t0": rng.choices("ACGT", k=360)}
    for n in range(1, 6):
        parent = rng.choice(list(rows.values()))
        rows[f"t{n}"] = [rng.choice("ACGT") if rng.random() < 0.15 else x for x in parent]
    Path("aln.fa").write_text("".join(f">{name}\n{''.join(row)}\n" for name, row in rows.items()))
    Path("genes").write_text(f"#nexus\n{GENES}\n")
    command = ("search", "aln.fa", "--model", "auto", "--partitions", "genes", "--merge",
               "--preset", "fast", "--prefix", "x")  # fmt: skip
    result = run(*command)
    assert result.exit_code == 0, result.output
    assert "merging: 3 pairs compared" in result.stderr
    model = Path("x.mltree.bestModel").read_text()
    assert model.splitlines()[0].endswith("a_b_c = 1-120, 121-240, 241-360")
    table = json.loads(Path("x.mltree.modelTest").read_text())
    assert [row["merged"] for row in table] == [["a", "b", "c"]]
    again = run("evaluate", "aln.fa", "--model", "x.mltree.best_scheme.nex", "--tree",
                "x.mltree.bestTree", "--prefix", "e")  # fmt: skip
    (line,) = (x for x in again.stdout.splitlines() if x.startswith("Final log-likelihood"))
    found = json.loads(Path("x.mltree.json").read_text())
    assert float(line.split()[-1]) == pytest.approx(found["lnl"], abs=0.05)
    assert {"bestFitModel", "modelTest", "best_scheme", "best_scheme.nex"} <= found["files"].keys()
    Path("x.mltree.bestTree").unlink()
    Path("x.mltree.bestModel").unlink()
    Path("x.mltree.json").unlink()
    again = run(*command)
    assert "models taken from x.mltree.modelTest" in again.stderr
    assert Path("x.mltree.bestModel").read_text() == model


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--partitions", "HKY+G4"), "no such file"),
        (("--partitions", "lone"), "names no part"),
        (("--criterion", "ml"), "'ml' is not one of"),
        (("--merge",), "--merge needs a partition file"),
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


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("evaluate", "--tree", TREE, "--model", "auto"), "--model auto is for a search"),
        (("search", "--merge"), "--merge goes with --model auto"),
        (("search", "--partitions", "lone"), "names no part"),
        (("search", "--partitions", "parts", "--model", "HKYY"), "unknown model"),
    ],
)
def test_what_goes_with_no_choice_is_refused(
    run: Run, primates: str, command: tuple[str, ...], words: str
) -> None:
    Path("lone").write_text("HKY+FC+G4\n")
    Path("parts").write_text(SCHEME)
    result = run(command[0], primates, *command[1:], "--prefix", "x")
    assert result.exit_code == 2
    assert words in result.stderr


def test_a_model_is_for_the_parts_that_name_none(run: Run, primates: str) -> None:
    Path("parts").write_text("DNA, rest = 501-898\nJC, first = 1-500\n")
    result = run("search", primates, "--partitions", "parts", "--model", "K80", "--preset", "fast",
                 "--moves", "nni", "--prefix", "x")  # fmt: skip
    assert result.exit_code == 0, result.output
    lines = Path("x.mltree.bestModel").read_text().splitlines()
    assert [line.split("{")[0].split("+")[0] for line in lines] == ["K80", "JC"]


@pytest.mark.parametrize(
    ("model", "frequencies"),
    [
        ("HKY+G4", "maximum-likelihood"),
        ("HKY+FC+G4", "empirical"),
        ("HKY+FU{0.3/0.2/0.2/0.3}+G4", "given"),
    ],
)
def test_the_log_says_where_frequencies_are_from(
    run: Run, primates: str, model: str, frequencies: str
) -> None:
    result = run("evaluate", primates, "--model", model, "--tree", TREE, "--prefix", "x")
    assert result.exit_code == 0, result.output
    assert f"with {frequencies} base frequencies" in " ".join(
        Path("x.mltree.evalLog").read_text().split()
    )
