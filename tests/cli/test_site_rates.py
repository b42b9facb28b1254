"""+PSR on the command line: searched, evaluated, supported; refused where it means nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import Result

Run = Callable[..., Result]

SCHEME = "HKY+FC+PSR, one = 1-120\nJC+PSR9, two = 121-200\n"

TREE = "((t0:0.1,t1:0.2):0.05,(t2:0.1,t3:0.3):0.1,(t4:0.2,t5:0.1):0.02);"

QUICK = ("--preset", "fast", "--device", "reference")


@pytest.fixture
def inputs(run: Run) -> None:
    """An alignment of slow and fast sites, its parts and a tree, in the folder of the runs."""
    rng = np.random.default_rng(6)
    speed = np.repeat([0.05, 0.5], 100)
    rows = [rng.integers(0, 4, 200)]
    while len(rows) < 6:
        parent = rows[rng.integers(len(rows))]
        rows.append(np.where(rng.random(200) < speed, rng.integers(0, 4, 200), parent))
    text = "".join(f">t{n}\n{''.join('ACGT'[s] for s in row)}\n" for n, row in enumerate(rows))
    Path("aln.fa").write_text(text)
    Path("parts").write_text(SCHEME)
    Path("tree").write_text(TREE)


def final_lnl(result: Result) -> float:
    assert result.exit_code == 0, result.output
    (line,) = (x for x in result.stdout.splitlines() if x.startswith("Final log-likelihood:"))
    return float(line.split()[-1])


def rates_in(name: str) -> np.ndarray:
    """Of every site; its category's are the same under +PSR."""
    lines = [line for line in Path(name).read_text().splitlines() if not line.startswith("#")]
    assert lines[0] == "Site\tRate\tCat\tC_Rate"
    table = np.array([[float(cell) for cell in line.split()] for line in lines[1:]])
    np.testing.assert_array_equal(table[:, 0], np.arange(1, 201))
    if name != "g.mltree.evalRate":
        np.testing.assert_array_equal(table[:, 1], table[:, 3])
    assert table[:, 2].min() >= 1
    return table[:, 1]


@pytest.mark.parametrize("model", ["HKY+FC+PSR", "parts"])
def test_a_search_is_scored_under_gamma(run: Run, inputs: None, model: str) -> None:
    """Its tree and model are what an evaluation under Γ makes of them; rates tell fast sites."""
    found = run("search", "aln.fa", "-m", model, *QUICK, "--sh-alrt", "100", "--prefix", "s")
    lnl = final_lnl(found)
    assert "under a rate for every site; from here on under Γ rates" in found.output
    text = Path("s.mltree.bestModel").read_text()
    assert "PSR" not in text
    assert text.count("+G4m{") == text.count("\n")
    again = run(
        "evaluate", "aln.fa", "-m", "s.mltree.bestModel", "-t", "s.mltree.bestTree",
        "--no-opt-model", "--no-opt-branches", "--device", "reference", "--prefix", "e",
    )  # fmt: skip
    assert final_lnl(again) == pytest.approx(lnl, abs=1e-3)
    rates = rates_in("s.mltree.rate")
    assert rates.mean() == pytest.approx(1.0, abs=1e-3)
    assert rates[100:].mean() > 3 * rates[:100].mean()
    assert json.loads(Path("s.mltree.json").read_text())["lnl"] == pytest.approx(lnl, abs=1e-3)


def test_a_search_is_supported_and_replicates_are_added(run: Run, inputs: None) -> None:
    """By replicates under its rates; the same command with more of them adds to those."""
    command = ("search", "aln.fa", "-m", "JC+PSR", *QUICK, "--prefix", "s", "--bootstrap")
    final_lnl(run(*command, "2"))
    two = Path("s.mltree.bootstraps").read_text()
    tree, rates = Path("s.mltree.bestTree").read_text(), rates_in("s.mltree.rate")
    final_lnl(run(*command, "3"))
    three = Path("s.mltree.bootstraps").read_text()
    assert two.count("\n") == 2
    assert three.startswith(two)
    assert three.count("\n") == 3
    assert Path("s.mltree.bestTree").read_text() == tree
    np.testing.assert_array_equal(rates_in("s.mltree.rate"), rates)


def test_the_ultrafast_bootstrap_takes_it(run: Run, inputs: None) -> None:
    final_lnl(run("search", "aln.fa", "-m", "JC+PSR", *QUICK, "--prefix", "u", "--ufboot", "1000"))
    assert Path("u.mltree.ufboot").read_text().count("\n") == 1000


def test_a_tree_is_evaluated(run: Run, inputs: None) -> None:
    """Under Γ, as without rates of sites, which are told beside."""
    of = ("evaluate", "aln.fa", "-t", "tree", "--device", "reference")
    psr = final_lnl(run(*of, "-m", "HKY+FC+PSR", "--prefix", "p"))
    gamma = final_lnl(run(*of, "-m", "HKY+FC+G4", "--prefix", "g", "--site-rates"))
    assert psr == pytest.approx(gamma, abs=0.02)
    rates = rates_in("p.mltree.evalRate")
    assert rates[100:].mean() > 3 * rates[:100].mean()
    bayes = rates_in("g.mltree.evalRate")
    assert bayes[100:].mean() > 2 * bayes[:100].mean()
    final_lnl(run(*of, "-m", "HKY+FC+G4", "--prefix", "g", "--redo"))
    assert not Path("g.mltree.evalRate").exists()


@pytest.mark.parametrize("model", ["JC+I+R2", "gamma"])
def test_a_search_tells_rates_by_categories(run: Run, inputs: None, model: str) -> None:
    """The same as an evaluation of its result; parts one after the other, a sequence twice."""
    aligned = Path("aln.fa").read_text()
    Path("aln.fa").write_text(aligned + f">copy\n{aligned.split()[1]}\n")
    Path("gamma").write_text("HKY+FC+G4, one = 1-120\nJC+I, two = 121-200\n")
    final_lnl(run("search", "aln.fa", "-m", model, *QUICK, "--site-rates", "--prefix", "s"))
    of = ("evaluate", "aln.fa", "-m", "s.mltree.bestModel", "-t", "s.mltree.bestTree")
    final_lnl(
        run(*of, "--no-opt-model", "--no-opt-branches", "--site-rates", "--prefix", "e",
            "--device", "reference")
    )  # fmt: skip
    found, again = (
        np.loadtxt(f"{name}", skiprows=6) for name in ("s.mltree.rate", "e.mltree.evalRate")
    )
    np.testing.assert_array_equal(found[:, 0], np.arange(1, 201))
    np.testing.assert_allclose(found[:, 1], again[:, 1], atol=1e-3)
    assert set(found[:, 2]) <= {0.0, 1.0, 2.0, 3.0, 4.0}


def test_a_chosen_model_of_one_rate(run: Run) -> None:
    rows = ["AACCGGTTAC", "AACCGGTTAG", "CACCGGTTAG", "CACCGATTAG"]
    Path("few.fa").write_text("".join(f">t{n}\n{row}\n" for n, row in enumerate(rows)))
    final_lnl(run("search", "few.fa", "-m", "auto", *QUICK, "--site-rates", "--prefix", "f"))
    np.testing.assert_array_equal(np.loadtxt("f.mltree.rate", skiprows=6)[:, 1:], 1.0)


def test_a_bootstrap_alone(run: Run, inputs: None) -> None:
    result = run(
        "bootstrap", "aln.fa", "-m", "JC+PSR", "--replicates", "2", "--device", "reference",
        "--prefix", "b",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert Path("b.mltree.bootstraps").read_text().count("\n") == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("sitelh", "aln.fa", "-t", "tree", "-m", "JC+PSR"),
            "+PSR is for search, evaluate and bootstrap",
        ),
        (("simulate", "-m", "JC+PSR", "--taxa", "5", "-n", "9", "-o", "x.fa"), "+PSR has no rates"),
        (
            ("evaluate", "aln.fa", "-t", "tree", "-m", "JC+PSR", "--no-opt-branches"),
            "+PSR finds rates of sites together with the model and the branch lengths",
        ),
        (
            ("search", "aln.fa", "-m", "parts", "--brlen", "unlinked"),
            "+PSR does not go with branch lengths of every part's own",
        ),
        (("search", "aln.fa", "-m", "GTRCAT"), "unknown model 'GTRCAT'"),
        (
            ("evaluate", "aln.fa", "-t", "tree", "-m", "JC", "--site-rates"),
            "all sites have one rate under this model",
        ),
        (("search", "aln.fa", "-m", "JC", "--site-rates"), "all sites have one rate"),
    ],
)
def test_where_it_means_nothing(
    run: Run, inputs: None, arguments: tuple[str, ...], message: str
) -> None:
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert message in result.stderr
    assert "Traceback" not in result.stderr
