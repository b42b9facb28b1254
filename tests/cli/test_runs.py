"""Whole runs on real data: what is printed, written, refused and resumed."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import Result

import mltree
from mltree.device.discovery import find_devices
from mltree.tree.newick import read_newick
from mltree.tree.splits import same_topology

Run = Callable[..., Result]

QUICK = ("--preset", "fast", "--prefix", "x")

RAXML_NG_LNL = -5719.41
"""primates, GTR+FC+G4, from a parsimony tree: RAxML-NG 1.2.2's final lnL (natural log)."""

LNL_SLACK = 0.1
"""How far a search may end below another program's lnL: its final epsilon."""

SAME_LNL = 1e-3
"""Between a search's lnL and the evaluation of what it wrote: six decimals of six parameters."""


def final_lnl(output: str) -> float:
    (line,) = (line for line in output.splitlines() if line.startswith("Final log-likelihood:"))
    return float(line.split()[-1])


@pytest.fixture
def finished(run: Run, primates: str) -> Result:
    """A quick search that is over; its files are x.mltree.*."""
    result = run("search", primates, *QUICK)
    assert result.exit_code == 0, result.output
    return result


def test_a_search_ends_where_raxml_ng_does(finished: Result) -> None:
    assert final_lnl(finished.output) >= RAXML_NG_LNL - LNL_SLACK


def test_a_search_shows_progress_tree_files_and_times(finished: Result) -> None:
    log = Path("x.mltree.log").read_text()
    for words in ("SPR round 1 (radius", "Tree length:", "Pongo", "Final log-likelihood"):
        assert words in finished.output
        assert words in log
    for words in ("newview", "insertion scan", "host"):
        assert words in log


def test_a_search_writes_six_files_and_no_other(finished: Result) -> None:
    assert sorted(path.name for path in Path().iterdir()) == [
        f"x.mltree.{kind}"
        for kind in ("bestModel", "bestTree", "events", "json", "log", "startTree")
    ]
    model = Path("x.mltree.bestModel").read_text()
    assert model.startswith("GTR{")
    assert model.endswith(", noname = 1-898\n")


def test_evaluating_what_a_search_wrote_gives_its_lnl(
    run: Run, primates: str, finished: Result
) -> None:
    files = ("--tree", "x.mltree.bestTree", "--model", "x.mltree.bestModel", "--prefix", "e")
    result = run("evaluate", primates, *files, "--no-opt-model", "--no-opt-branches", "--site-lnl")
    assert result.exit_code == 0, result.output
    assert final_lnl(result.output) == pytest.approx(final_lnl(finished.output), abs=SAME_LNL)
    sites = [float(line) for line in Path("e.mltree.siteLnL").read_text().splitlines()]
    assert len(sites) == 898
    assert sum(sites) == pytest.approx(final_lnl(result.output), abs=SAME_LNL)


@pytest.mark.parametrize("switches", [(), ("--no-opt-model",), ("--no-opt-branches",)])
def test_optimising_never_ends_worse(
    run: Run, primates: str, finished: Result, switches: tuple[str, ...]
) -> None:
    files = ("--tree", "x.mltree.startTree", "--model", "x.mltree.bestModel")
    fixed = run(
        "evaluate", primates, *files, "--prefix", "f", "--no-opt-model", "--no-opt-branches"
    )
    result = run("evaluate", primates, *files, "--prefix", "e", *switches)
    assert result.exit_code == 0, result.output
    assert final_lnl(result.output) >= final_lnl(fixed.stdout)


def test_the_same_seed_gives_the_same_bytes(run: Run, primates: str, finished: Result) -> None:
    result = run("search", primates, "--preset", "fast", "--prefix", "y")
    assert result.exit_code == 0, result.output
    for kind in ("bestTree", "bestModel", "startTree"):
        assert Path(f"x.mltree.{kind}").read_bytes() == Path(f"y.mltree.{kind}").read_bytes()


def test_results_are_not_overwritten_unasked(run: Run, primates: str, finished: Result) -> None:
    before = {path: path.read_bytes() for path in Path().iterdir()}
    again = run("search", primates, *QUICK)
    assert again.exit_code == 2
    assert "--redo" in again.stderr
    assert {path: path.read_bytes() for path in Path().iterdir()} == before
    assert run("search", primates, *QUICK, "--redo").exit_code == 0


def test_what_a_failed_run_left_is_overwritten(run: Run, primates: str) -> None:
    signature = "process 7 on a host writes this log from 2026-01-01 00:00:00\n"
    Path("x.mltree.log").write_text(f"{signature}stopped: no more power")
    Path("x.mltree.startTree").write_text("(a,b,c);")
    assert run("search", primates, *QUICK).exit_code == 0
    assert "no more power" not in Path("x.mltree.log").read_text()


def test_json_is_one_event_a_line(run: Run, primates: str) -> None:
    result = run("search", primates, *QUICK, "--json")
    events = [json.loads(line) for line in result.stdout.splitlines()]
    kinds = [event["event"] for event in events]
    assert kinds[:2] == ["RunStarted", "AlignmentLoaded"]
    assert kinds[-5:] == ["SearchFinished", "ResourcesSpent", "RunFinished", "TimeSpent", "result"]
    found = events[-3]
    assert found["lnl"] == events[-5]["lnl"] == events[-1]["lnl"] >= RAXML_NG_LNL - LNL_SLACK
    assert found["tree"] + "\n" == Path("x.mltree.bestTree").read_text()
    assert Path("x.mltree.bestModel").read_text().startswith(found["model"] + ",")
    assert sorted(found["files"]) == sorted(map(str, Path().iterdir()))
    assert 0 < found["seconds"] <= found["elapsed"]


def test_an_evaluation_as_json_ends_with_its_lnl(run: Run, primates: str, finished: Result) -> None:
    files = ("--tree", "x.mltree.bestTree", "--model", "x.mltree.bestModel", "--prefix", "e")
    fixed = ("--no-opt-model", "--no-opt-branches")
    result = run("evaluate", primates, *files, *fixed, "--json")
    *_, found, spent, last = (json.loads(line) for line in result.stdout.splitlines())
    kinds = (found["event"], spent["event"], last["event"])
    assert kinds == ("RunFinished", "TimeSpent", "result")
    assert found["lnl"] == pytest.approx(final_lnl(finished.output), abs=SAME_LNL)
    kinds = ("evalLog", "evalEvents", "evalModel", "evalTree", "eval.json")
    assert found["files"] == [f"e.mltree.{kind}" for kind in kinds]
    assert found["tree"] + "\n" == Path("e.mltree.evalTree").read_text()


def test_a_comparison_as_json_has_every_score(run: Run, primates: str, finished: Result) -> None:
    files = ("--tree", "x.mltree.bestTree", "--model", "x.mltree.bestModel")
    result = run("compare", primates, *files, "--json")
    *_, found, last = (json.loads(line) for line in result.stdout.splitlines())
    assert (found["event"], last["event"]) == ("EnginesCompared", "result")
    assert last["scores"] == found["scores"]
    scores = found["scores"]
    assert len(scores) == 1 + 2 * len(find_devices())
    for score in scores:
        assert score["lnl"] == pytest.approx(scores[0]["lnl"], rel=1e-9)
        assert score["problem"] == ""


def test_quiet_prints_nothing(run: Run, primates: str) -> None:
    result = run("search", primates, *QUICK, "--quiet", "--moves", "nni")
    assert result.exit_code == 0
    assert result.output == ""


def test_starts_of_every_kind(run: Run, primates: str) -> None:
    result = run("search", primates, *QUICK, "--tree", "pars{2},rand{2}")
    assert result.exit_code == 0, result.output
    assert result.output.count("] start ") == 4
    assert len(Path("x.mltree.startTree").read_text().splitlines()) == 4


def test_a_constraint_is_kept(run: Run, primates: str, tmp_path: Path) -> None:
    (tmp_path / "odd.nwk").write_text("((Gorilla,Lemur_catta),Pan,Pongo);")
    result = run("search", primates, *QUICK, "--constraint", "odd.nwk")
    assert result.exit_code == 0, result.output
    assert "start parsimony 1" in result.output
    assert final_lnl(result.output) < RAXML_NG_LNL - 10
    tree = re.sub(r":[\d.]+", "", Path("x.mltree.bestTree").read_text())
    groups = [set(re.findall(r"\w+", tree[a:b])) for a, b in brackets(tree)]
    four = {"Gorilla", "Lemur_catta", "Pan", "Pongo"}
    assert any(group & four in ({"Gorilla", "Lemur_catta"}, {"Pan", "Pongo"}) for group in groups)


def brackets(text: str) -> list[tuple[int, int]]:
    """Where each pair of parentheses opens and closes."""
    pairs, stack = [], []
    for at, character in enumerate(text):
        if character == "(":
            stack.append(at)
        elif character == ")":
            pairs.append((stack.pop(), at))
    return pairs


ODD_ALIGNMENTS = {
    "a state is missing": ["ACGACG", "ACGAAG", "ACCAAG", "GCCAAG"],
    "all sequences equal": ["ACGACG"] * 5,
    "one site": ["A", "C", "G", "T"],
    "one pattern": ["AAAA", "AAAA", "CCCC", "CCCC"],
    "hardly a row": ["ACGTAC", "ACGTTC", "ACTTAC", "-----C", "GCTTAC"],
    "hardly more than gaps": ["A---", "-C--", "--G-", "---T"],
}


@pytest.mark.parametrize("case", ODD_ALIGNMENTS)
def test_odd_alignments_have_trees(run: Run, tmp_path: Path, case: str) -> None:
    rows = enumerate(ODD_ALIGNMENTS[case])
    (tmp_path / "odd.fa").write_text("".join(f">t{n}\n{row}\n" for n, row in rows))
    result = run("search", "odd.fa", *QUICK)
    assert result.exit_code == 0, result.output
    assert final_lnl(result.output) <= 0.0
    model = Path("x.mltree.bestModel").read_text()
    assert "nan" not in model


@pytest.mark.parametrize(
    ("text", "notice"),
    [
        ("((a:1,b:1):1,(c:1,d:1):1);", "root"),
        ("((a,b),c,d);", "length"),
    ],
)
def test_trees_are_mended_with_a_notice(run: Run, tmp_path: Path, text: str, notice: str) -> None:
    (tmp_path / "aln.fa").write_text(">a\nACGTAC\n>b\nACGTTC\n>c\nACTTAC\n>d\nGCTTAC\n")
    (tmp_path / "tree.nwk").write_text(text)
    result = run(
        "evaluate", "aln.fa", "--tree", "tree.nwk", "--model", "JC", "--device", "reference"
    )
    assert result.exit_code == 0, result.output
    (line,) = (line for line in result.output.splitlines() if "note:" in line)
    assert notice in line


def test_compare_agrees_everywhere(run: Run, primates: str, finished: Result) -> None:
    result = run(
        "compare", primates, "--tree", "x.mltree.bestTree", "--model", "x.mltree.bestModel"
    )
    assert result.exit_code == 0, result.output
    assert "NumPy reference" in result.output
    widths = set(re.findall(r"VW=[0-9]+ ", result.output))
    assert len(widths) == 2, "the AVX layout or a narrow one beside the usual one"


def test_a_device_without_fp64_says_so(
    run: Run, primates: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = find_devices()
    poor = [replace(device, has_fp64=False) for device in found]
    monkeypatch.setattr("mltree.device.discovery.find_devices", lambda: poor)
    result = run("search", primates, *QUICK, "--moves", "nni", "--model", "JC")
    assert result.exit_code == 0, result.output
    assert "no fp64" in result.output
    assert "scored again in fp64" in result.output


def test_protein_data(run: Run) -> None:
    proteins = Path(__file__).parents[2] / "datasets" / "proteins.phy"
    check = run("check", proteins)
    assert check.exit_code == 0
    assert "AA" in check.output


def test_identical_sequences_end_up_beside_each_other(run: Run, tmp_path: Path) -> None:
    rows = ["a ACGTACGTAA", "b ACGTACGTAA", "c ACGTTCGTAC", "d ACTTTCGTCC", "e GCTTACGTCC"]
    (tmp_path / "twins.phy").write_text("5 10\n" + "\n".join(rows) + "\n")
    result = run("search", "twins.phy", "--model", "JC", *QUICK)
    assert result.exit_code == 0, result.output
    assert "b = a" in result.output
    tree = Path("x.mltree.bestTree").read_text()
    assert "(a:0.0000000000,b:0.0000000000)" in tree or "a:0.0000000000,b:0.0000000000" in tree


def test_check_tells_what_looks_wrong(run: Run, tmp_path: Path) -> None:
    (tmp_path / "odd.fa").write_text(">a\nACGT-C\n>A\nACGT-C\n>c\nACT.-X\n>d\n------\n")
    result = run("check", "odd.fa")
    assert result.exit_code == 2, result.output
    assert "d is all gaps and cannot be placed" in result.stderr, "a search refuses it"
    for words in (
        "identical sequences: A, a",
        "differ in case",
        "taxa d",
        "sites 5",
        "'.'",
        "Memory",
    ):
        assert words in result.output


def test_the_reference_engine_finds_the_same_tree(run: Run, primates: str) -> None:
    rows = [line.split() for line in Path(primates).read_text().splitlines()[1:8]]
    few = "".join(f">{name}\n{sequence[:200]}\n" for name, sequence in rows)
    Path("few.fa").write_text(few)
    lnls, trees = [], []
    for device in (("--prefix", "x"), ("--prefix", "r", "--device", "reference")):
        result = run("search", "few.fa", "--preset", "fast", *device)
        assert result.exit_code == 0, result.output
        lnls.append(final_lnl(result.output))
        tree = Path(f"{device[1]}.mltree.bestTree").read_text()
        trees.append(read_newick(tree, sorted(name for name, _ in rows))[0])
    assert lnls[1] == pytest.approx(lnls[0], abs=0.01)
    assert same_topology(*trees)


def mltree_command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mltree", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


HELP_SECONDS = 1.0
"""CPU time, which other processes change less than the wall's. `--help` takes 0.11 s."""


@pytest.mark.parametrize(
    "command", [(), ("search",), ("evaluate",), ("compare",), ("devices",), ("check",)]
)
def test_every_help_is_quick(command: tuple[str, ...]) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = mltree_command(*command, "--help")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < HELP_SECONDS
    assert result.returncode == 0
    assert "Usage" in result.stdout


@pytest.mark.parametrize("command", [["--help"], ["-V"], ["search", "--help"], ["rf", "--help"]])
def test_help_imports_nothing_heavy(command: list[str]) -> None:
    """What takes longer than all of it: 0.11 s of CPU, of which Typer has 0.07."""
    heavy = "{'numpy', 'pydantic', 'pyopencl', 'rich', 'scipy', 'tomllib'}"
    code = (
        f"import sys; sys.argv[1:] = {command}; from mltree.cli.exits import exit_code; "
        "from mltree.cli.main import app; code = exit_code(app); "
        f"sys.exit(code or ', '.join({heavy} & set(sys.modules)) or 0)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def test_a_search_does_without_scipy() -> None:
    """Which takes 0.15 s of CPU to load, a quarter of a small search."""
    modules = "mltree.analyses.search, mltree.analyses.bootstrap, mltree.analyses.evaluate"
    code = f"import sys, {modules}; sys.exit('scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_version() -> None:
    told = mltree_command("--version").stdout
    development = r"( \(development, commit [0-9a-f]{7,}(-dirty)?\))?"
    assert re.fullmatch(rf"mltree {re.escape(mltree.__version__)}{development}\n", told)
    assert mltree_command("version").stdout == told


def test_a_bug_ends_with_a_traceback_and_where_to_report() -> None:
    code = (
        "import sys, mltree.analyses.check as c; c.run_devices = lambda *_: 1 / 0; "
        "sys.argv = ['mltree', 'devices']; from mltree.cli.main import main; main()"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert result.returncode == 70
    assert "ZeroDivisionError" in result.stderr
    assert "CONTRIBUTING.md" in result.stderr


def test_devices_lists_and_tests(run: Run) -> None:
    result = run("devices")
    assert result.exit_code == 0, result.output
    assert "self-test      ok" in result.output


def test_a_broken_driver_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "broken.icd").write_text("/nowhere/libbroken.so\n")
    result = mltree_command("devices", OCL_ICD_VENDORS=str(tmp_path))
    assert result.returncode in {0, 2}
    assert "Traceback" not in result.stderr


def test_without_a_device_there_is_advice(
    run: Run, primates: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mltree.device.discovery._platforms", list)
    for command in (("devices",), ("search", primates, *QUICK)):
        result = run(*command)
        assert result.exit_code == 2
        assert "no OpenCL device" in result.stderr
        assert "pocl" in result.stderr
    assert list(Path().iterdir()) == []
    assert run("check", primates).exit_code == 0
