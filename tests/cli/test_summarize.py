"""``summarize``: files of samples in, tables, trees and a verdict out."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

Run = Callable[..., Result]

GOLDEN = Path(__file__).parents[1] / "golden" / "samples"

KINDS = ("con.tre", "mcc.tre", "parts", "tstat", "vstat", "trprobs", "splits.tsv", "pstat",
         "parameters.tsv", "summarize.json")  # fmt: skip


def test_a_prefix_of_mrbayes_is_summed_up(run: Run, tmp_path: Path) -> None:
    result = run(
        "summarize", GOLDEN / "mb", "-p", "x", "--burnin", "0.2", "--split", "Pan,Homo_sapiens"
    )
    assert result.exit_code == 0, result.output
    assert "mb.run1.t: 61 trees, 8 taxa" in result.stderr
    assert "2 runs of 49 samples, behind a burn-in of 20.0%" in result.stdout
    assert re.search(r"1\.0000 ± 0\.0000  Pan,Homo_sapiens", result.stdout)
    assert re.search(r"not met +ESS of parameters .* at least 625", result.stdout)
    assert "Not converged: " in result.stdout
    assert {path.name for path in tmp_path.iterdir()} == {f"x.mltree.{kind}" for kind in KINDS}
    table = (tmp_path / "x.mltree.parameters.tsv").read_text().splitlines()
    assert table[0].split() == [
        "parameter",
        "mean",
        "sd",
        "median",
        "hpd_low",
        "hpd_high",
        "ess",
        "ess_tail",
        "rhat",
    ]
    assert len(table) == 10
    found = json.loads((tmp_path / "x.mltree.summarize.json").read_text())
    assert found["burn_in"] == 0.2
    assert found["wanted"][0]["probability"] == 1.0
    assert found["asdsf"] == pytest.approx(0.0086584, rel=1e-4)  # MrBayes: 0.043292 over 5 splits
    again = run("summarize", GOLDEN / "mb", "-p", "x")
    assert again.exit_code == 2
    assert "already exists (--redo" in again.stderr


def test_results_are_json_too(run: Run) -> None:
    result = run("summarize", GOLDEN / "mb", "-p", "x", "--json")
    last = json.loads(result.stdout.splitlines()[-1])
    assert last["command"] == "summarize"
    assert last["converged"] is False
    assert last["parameters"]["alpha"]["ess"] > 5
    assert {file["path"] for file in last["inputs"]} == {
        str(GOLDEN / f"mb.run{number}.{kind}") for number in (1, 2) for kind in "tp"
    }


def test_files_are_runs_of_one_analysis(run: Run) -> None:
    files = sorted(GOLDEN.glob("mb.run?.?"))  # as a shell has it of mb.run*
    result = run("summarize", *files, "-p", "x")
    assert result.exit_code == 0, result.output
    assert "2 runs of " in result.stdout


def test_a_run_of_beast_is_summed_up(run: Run, tmp_path: Path) -> None:
    user = tmp_path / "user.nwk"
    user.write_text("((((human,(chimp,bonobo)),gorilla),orangutan),siamang);\n"
                    "((human,chimp),(bonobo,gorilla),(orangutan,siamang));\n")  # fmt: skip
    result = run("summarize", GOLDEN / "beast.trees", "-p", "x", "--burnin", "0", "--tree", user,
                 "--report")  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "A single run" in result.stdout
    first, second = re.findall(r"^ +([0-9.]+) ± [0-9.]+  tree [12]$", result.stdout, re.MULTILINE)
    assert float(first) > 0.5
    assert float(second) == 0
    page = (tmp_path / "x.mltree.posterior.html").read_text()
    for text in ("Convergence", "Traces", "trace of hky.kappa", "density of hky.kappa"):
        assert text in page
    assert "Splits by run" not in page


def test_the_page_compares_runs_and_the_prior(run: Run, tmp_path: Path) -> None:
    result = run("summarize", GOLDEN / "mb", "-p", "x", "--report", "--prior-sample", GOLDEN / "mb")
    assert result.exit_code == 0, result.output
    page = (tmp_path / "x.mltree.posterior.html").read_text()
    assert "Splits by run" in page
    assert "samples of the prior" in page
    assert page.count('class="dot') >= 5
    # A line a run, of which the prior's is dashed.
    (density,) = re.findall(r'aria-label="density of kappa">.*?</svg>', page)
    assert density.count('<path style="stroke:var(') == 2
    assert density.count('<path class="phase"') == 1


def test_models_are_compared_by_their_marginal_likelihoods(run: Run, tmp_path: Path) -> None:
    for name, lnz in (("A", -100.0), ("B", -98.0), ("C", -110.0)):
        values = {"lnz": lnz, "lnz_error": 0.3}
        (tmp_path / f"{name}.mltree.sample.json").write_text(json.dumps(values))
    result = run("summarize", "A", "B", "C")
    assert result.exit_code == 0, result.output
    rows = [line.split() for line in result.stdout.splitlines() if re.match("[ABC] ", line)]
    assert [row[0] for row in rows] == ["B", "A", "C"]
    assert rows[1][1:5] == ["-100.000", "0.300", "-2.000", "0.424"]
    assert float(rows[0][5]) + float(rows[1][5]) + float(rows[2][5]) == pytest.approx(1, abs=1e-3)
    assert (tmp_path / "A.mltree.evidence.tsv").read_text().startswith("model\tlnz\t")
    result = run("summarize", "A", "D", "--redo")
    assert result.exit_code == 2
    assert "no marginal likelihood in D.sample.json" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("nothing",), "no run has left samples in nothing.*"),
        (("broken.t",), "broken.t"),
        ((GOLDEN / "mb", "--burnin", "1.0"), "a burn-in of all samples"),
        ((GOLDEN / "mb", "--burnin", "many"), "burnin"),
        ((GOLDEN / "mb", "--split", "Pan"), "two taxa or more"),
        ((GOLDEN / "mb", "--split", "Pan,Nobody"), "no taxon is called 'Nobody'"),
        ((GOLDEN / "mb", "--tree", "(a,b,(c,d));"), "in the sample"),
        ((GOLDEN / "mb.run1.t", GOLDEN / "beast.trees"), "not in"),
        ((GOLDEN / "mb.run1.t", "nothing.t"), "no marginal likelihood"),
    ],
)
def test_errors_are_one_line(
    run: Run, tmp_path: Path, arguments: tuple[str, ...], problem: str
) -> None:
    (tmp_path / "broken.t").write_text("#NEXUS\nbegin trees;\ntranslate 1 a, 2 b;\ntree a = (1,;\n")
    result = run("summarize", *arguments, "-p", "x")
    assert result.exit_code == 2
    assert problem in result.stderr
    assert "Traceback" not in result.output
    assert [path.name for path in tmp_path.iterdir()] == ["broken.t"]


def test_netcdf_takes_arviz(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "arviz", None)
    result = run("summarize", GOLDEN / "mb", "-p", "x", "--netcdf")
    assert result.exit_code == 2
    assert "--netcdf: 'mltree[sample]' is not installed: pip install" in result.stderr
    assert not list(tmp_path.iterdir())


def test_an_unfinished_run_is_summed_up_so_far(run: Run, tmp_path: Path) -> None:
    """A sampler that was killed while it wrote: the last line and tree are cut."""
    for number in (1, 2):
        for kind in "tp":
            text = (GOLDEN / f"mb.run{number}.{kind}").read_text()
            (tmp_path / f"k.run{number}.{kind}").write_text(text[: len(text) // 2 + 17 * number])
    result = run("summarize", "k")
    assert result.exit_code == 0, result.output
    assert result.output.count("no end") == 4
