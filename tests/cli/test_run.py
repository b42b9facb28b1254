"""``mltree run`` as its users see it: all of it in one command, whenever it was stopped."""

from __future__ import annotations

import json
import random
import re
import shlex
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import Result

from mltree.analyses.options import RunOptions
from mltree.analyses.run import run_pipeline
from mltree.cli.main import ANALYSES
from mltree.report.progress import Reporter, Verbosity, progress_terminal
from mltree.runs.workspace import Workspace
from mltree.system.errors import InputError
from mltree.system.events import Event

Run = Callable[..., Result]

DATASETS = Path(__file__).parents[2] / "datasets"

KINDS = ("bestTree", "bestModel", "bestFitModel", "modelTest", "support", "bootstraps",
         "consensusTreeMR", "branchTests")  # fmt: skip


@pytest.fixture
def few_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """A choice among few."""
    monkeypatch.setattr("mltree.runs.model_choice.matrices", lambda *_: ("HKY+FC", "GTR+FC"))
    monkeypatch.setattr("mltree.runs.model_choice.REFERENCE_RATES", ("+G4",))
    monkeypatch.setattr("mltree.runs.model_choice.free_rates", lambda _: "+G4")


@pytest.fixture
def data(tmp_path: Path) -> str:
    """Eight taxa with a tree behind them."""
    rng = random.Random(1)
    rows = ["".join(rng.choices("ACGT", k=120))]
    while len(rows) < 8:
        parent = rng.choice(rows)
        rows.append("".join(rng.choice("ACGT") if rng.random() < 0.1 else x for x in parent))
    (tmp_path / "a.fa").write_text("".join(f">t{n}\n{row}\n" for n, row in enumerate(rows)))
    return "a.fa"


def fine(result: Result) -> Result:
    assert result.exit_code == 0, result.output
    return result


def results(prefix: str) -> dict[str, bytes]:
    return {kind: Path(f"{prefix}.mltree.{kind}").read_bytes() for kind in KINDS}


@pytest.mark.usefixtures("few_models")
def test_the_example_does_all_of_it(run: Run, tmp_path: Path) -> None:
    (tmp_path / "datasets").symlink_to(DATASETS)
    example = f"run {ANALYSES['run'].example}"
    result = fine(run(*shlex.split(example), "--preset", "fast"))
    assert "Final log-likelihood" in result.stdout
    assert "converged" in result.stdout
    *_, page, to_open = result.stdout.rstrip().splitlines()
    assert page == "Wrote primates.mltree.report.html"
    assert to_open.startswith("Open primates.mltree.report.html in a browser, primates.mltree.supp")
    assert "/100" in results("primates")["support"].decode()
    told = result.stderr.splitlines()
    assert ", seed 1: mltree" in told[0]
    (chosen,) = (line for line in told if "supports: the " in line)
    assert "the standard bootstrap; 1,000 replicates at most, about 00:0" in chosen
    log = (tmp_path / "primates.mltree.log").read_text()
    assert "bootstrap" in log
    assert "bootstrap = by time" in log
    values = json.loads((tmp_path / "primates.mltree.json").read_text())
    assert f"started from {values['starts']['starts']} parsimony trees" in " ".join(log.split())
    for author in ("Kalyaanamoorthy", "Guindon", "Felsenstein J (1985)"):
        assert author in log


class Killed(BaseException):
    """What nobody expects."""


class Dying(Reporter):
    """Ends a run at its n-th event."""

    def __init__(self, left: int) -> None:
        super().__init__(progress_terminal(), Verbosity.QUIET)
        self.left = left

    def __call__(self, event: Event) -> None:
        super().__call__(event)
        self.left -= 1
        if not self.left:
            raise Killed


def options(data: str, prefix: str, bootstrap: str | None = "4") -> RunOptions:
    return RunOptions(
        alignment=data, preset="fast", sh_alrt=100, bootstrap=bootstrap, prefix=prefix,
        line="mltree run",
    )  # fmt: skip


@pytest.mark.usefixtures("few_models", "run")
@pytest.mark.parametrize("bootstrap", ["4", None])
@pytest.mark.cases(1, 40)
def test_it_goes_on_wherever_it_was_stopped(
    data: str, case: int, bootstrap: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mltree.analyses.search.CHEAP", 1e9)
    monkeypatch.setattr("mltree.analyses.run.CHEAP", 1e9)
    monkeypatch.setattr("mltree.analyses.search.TIMED", 2)
    monkeypatch.setattr("mltree.analyses.bootstrap.MOST", 10)
    whole = Dying(0)
    run_pipeline(options(data, "whole", bootstrap), whole)
    events, rng = -whole.left, random.Random(case)
    for last in sorted(rng.sample(range(1, events), 3)):
        with suppress(Killed):
            run_pipeline(options(data, "cut", bootstrap), Dying(last))
    run_pipeline(options(data, "cut", bootstrap), Dying(0))
    assert results("cut") == results("whole")
    assert Path("cut.mltree.report.html").exists()


@pytest.mark.usefixtures("few_models")
def test_without_searched_replicates(run: Run, data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mltree.analyses.search.CHEAP", 1e-9)
    monkeypatch.setattr("mltree.analyses.run.CHEAP", 1e-9)
    options = ("--model", "HKY+G4", "--preset", "fast", "--sh-alrt", "50", "--prefix", "x")
    result = fine(run("run", data, *options))
    assert re.search(r"supports: the ultrafast bootstrap.* at least 00:\d\d", result.stderr)
    assert "--bnni would take about" in result.stderr
    assert not Path("x.mltree.bootstraps").exists()
    assert len(Path("x.mltree.ufboot").read_text().splitlines()) == 1000
    labels = re.findall(r"\)([\d.]+/[\d.]+)", Path("x.mltree.support").read_text())
    assert len(labels) == 5
    again = run("run", data, *options)
    assert again.exit_code == 2
    assert "already exists" in again.stderr
    Path("x.mltree.report.html").unlink()
    assert "Wrote x.mltree.report.html" in fine(run("run", data, *options)).stdout
    quiet = fine(run("run", data, *options, "--bootstrap", "none", "--redo"))
    assert "SH-aLRT and" not in quiet.stderr
    assert "/" not in Path("x.mltree.support").read_text()
    asked = fine(run("run", data, *options, "--ufboot", "1200", "--redo"))
    assert "SH-aLRT and" not in asked.stderr
    assert len(Path("x.mltree.ufboot").read_text().splitlines()) == 1200
    both = run("run", data, *options, "--ufboot", "1000", "--bootstrap", "9", "--redo")
    assert both.exit_code == 2
    assert "exclude each other" in both.stderr


@pytest.mark.parametrize("correction", ["LEWIS", "STAM{9/2/3/6}"])
def test_data_without_constant_sites_have_all_supports(run: Run, correction: str) -> None:
    rows = ("ACGTACGTAC", "CGTACGTACG", "ACTAACGTCG", "CGGTGTACAA", "TTGTGTACAA")
    Path("v.fa").write_text(
        "".join(f">{name}\n{row}\n" for name, row in zip("abcde", rows, strict=True))
    )
    model = ("--model", f"JC+ASC_{correction}")
    options = ("v.fa", *model, "--preset", "fast", "--prefix", "v")
    fine(run("run", *options, "--bootstrap", "9"))
    assert len(re.findall(r"\)[\d.]+/[\d.]+:", Path("v.mltree.support").read_text())) == 2
    tests = ("--sh-alrt", "50", "--lbp", "50", "--alrt", "--abayes", "--ufboot", "1000", "--bnni")
    fine(run("search", *options, *tests, "--redo"))
    assert len(re.findall(r"\)([\d.]+/){4}[\d.]+:", Path("v.mltree.support").read_text())) == 2
    trees = ("--trees", "v.mltree.ufboot", "--replicates", "50")
    fine(run("test", "v.fa", *model, *trees, "--prefix", "t"))
    fine(run("sitelh", "v.fa", *model, "--trees", "v.mltree.bestTree", "--prefix", "t"))
    sites = Path("t.mltree.sitelh").read_text().splitlines()[1].split()[1:]
    (lnl,) = json.loads(Path("t.mltree.sitelh.json").read_text())["lnl"]
    assert sum(map(float, sites)) == pytest.approx(lnl)
    assert lnl == pytest.approx(json.loads(Path("v.mltree.json").read_text())["lnl"], abs=0.02)


def test_replicates_that_told_the_time_are_not_left(
    run: Run, data: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replicates that take too long are not kept; the time of all of them is told."""
    monkeypatch.setattr("mltree.analyses.search.LEAST_SHARE", 0.0)
    monkeypatch.setattr("mltree.analyses.search.CHEAP", 1e-3)
    monkeypatch.setattr("mltree.analyses.run.CHEAP", 1e-3)
    options = ("--model", "JC", "--preset", "fast", "--sh-alrt", "20", "--prefix", "x")
    result = fine(run("run", data, *options))
    told = re.search(
        r"1,000 replicates of the standard one .* about (\d\d:\d\d:\d\d);", result.stderr
    )
    assert told
    assert told[1] != "00:00:00"
    assert not Path("x.mltree.replicates").exists()
    assert "UFBoot2" in Path("x.mltree.log").read_text()
    monkeypatch.setattr("mltree.analyses.search.CHEAP", 1e9)
    monkeypatch.setattr("mltree.analyses.run.CHEAP", 1e9)
    monkeypatch.setattr("mltree.analyses.bootstrap.MOST", 10)
    result = fine(run("run", data, *options, "--redo"))
    assert "supports: the standard bootstrap" in result.stderr
    assert Path("x.mltree.replicates").exists()
    assert not Path("x.mltree.ufboot").exists()


@pytest.mark.usefixtures("run")
def test_the_bootstrap_stays_that_was_chosen(data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a run that is gone on with has taken or stood still."""
    asked = replace(options(data, "x", None), model="JC")
    for cheap in (1e9, 1e-9):
        monkeypatch.setattr("mltree.analyses.search.CHEAP", cheap)
        run_pipeline(asked, Dying(0))
        assert Path("x.mltree.bootstraps").exists()
        assert not Path("x.mltree.ufboot").exists()


SHORT = ("--preset", "fast", "--bootstrap", "none", "--sh-alrt", "20", "--prefix", "x", "--quiet")

OTHERS = {
    "seed": "--seed 2",
    "model": "--model HKY",
    "supports": "--sh-alrt 30",
    "outgroup": "--outgroup t3",
    "preset": "--preset default",
    "data": "",
}


@pytest.mark.parametrize("first", ["run", "search"])
def test_the_prefix_of_another_run_is_refused(run: Run, data: str, first: str) -> None:
    """It once drew a report of the other one's tree, whatever was asked for, and ended well."""
    model = ("--model", "JC")
    options = SHORT if first == "run" else (*SHORT[:2], *SHORT[4:])
    fine(run(first, data, *model, *options))
    report = Path("x.mltree.report.html")
    before = {path: path.read_bytes() for path in Path().iterdir() if path != report}
    text = Path(data).read_text()
    for name in OTHERS if first == "run" else ("model", "data"):
        report.unlink(missing_ok=True)
        if name == "data":
            Path(data).write_text(text.replace("A", "C", 1))
        result = run("run", data, *model, *SHORT, *shlex.split(OTHERS[name]))
        assert result.exit_code == 2, name
        assert "already exists (--redo" in result.stderr
        assert not report.exists()
    Path(data).write_text(text)
    assert {path: path.read_bytes() for path in Path().iterdir()} == before


def test_a_run_that_lacks_its_report_alone_draws_it(run: Run, data: str) -> None:
    fine(run("run", data, "--model", "JC", *SHORT))
    report = Path("x.mltree.report.html")
    report.unlink()
    log = Path("x.mltree.log").read_bytes()
    result = fine(run("run", data, "--model", "JC", *SHORT[:-1], "--threads", "1"))
    assert "is complete; only the report was missing" in result.stderr
    assert report.exists()
    assert Path("x.mltree.log").read_bytes() == log


def test_tests_of_branches_are_there_before_the_replicates(
    data: str, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    """Those may take days, and be stopped."""

    def stop(*_: object) -> None:
        raise KeyError("stopped")

    with monkeypatch.context() as patch:
        patch.setattr("mltree.analyses.search.replicated", stop)
        options = ("--model", "JC", "--preset", "fast", "--prefix", "x", "--bootstrap", "9")
        assert isinstance(run("run", data, *options).exception, KeyError)
    for kind in ("bestTree", "support", "branchTests"):
        assert Path(f"x.mltree.{kind}").exists(), kind
    assert "t3" in Path("x.mltree.branchTests").read_text()


def test_supports_that_cannot_be_kept_yet_do_not_end_it(
    data: str, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    written = []

    def write(self: Workspace, texts: dict[str, str]) -> list[Path]:
        written.append(list(texts))
        if list(texts) == ["support", "branchTests"]:
            raise InputError("cannot write x.mltree.support: No space left on device")
        return kept(self, texts)

    kept = Workspace.write
    monkeypatch.setattr(Workspace, "write", write)
    options = [*SHORT[:-1], "--sh-alrt", "20"]
    result = fine(run("run", data, "--model", "JC", *options))
    assert "No space left on device; it is tried again at the end" in result.stderr
    assert ["support", "branchTests"] in written
    assert Path("x.mltree.support").exists()


@pytest.mark.usefixtures("few_models")
def test_the_methods_name_the_criterion_that_chose(run: Run, data: str) -> None:
    fine(run("model", data, "--criterion", "aicc", "--prefix", "x"))
    fine(run("search", data, "--model", "auto", "--preset", "fast", "--prefix", "x"))
    fine(run("search", data, "--model", "auto", "--preset", "fast", "--prefix", "y"))
    for name, criterion in (("x", "AICc"), ("y", "BIC")):
        log = " ".join(Path(f"{name}.mltree.log").read_text().split())
        assert f"chosen among candidates by {criterion} [" in log
