"""What is seen where: results and progress apart, a live line on a terminal, no escapes unasked."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

import mltree
from mltree.device.layout_choice import Calibration

Run = Callable[..., Result]

QUICK = ("--preset", "fast", "--prefix", "x", "--moves", "nni")

FOR_EVER = 300.0
"""Seconds that no run here takes."""

ESCAPE = "\x1b"


def on_terminal(*arguments: str, folder: Path, signal: int = 0, **environment: str) -> str:
    """What a command writes to a terminal that has its standard output and error.

    ``signal``: what it is sent once its line of status is there.
    """
    ours, theirs = pty.openpty()
    environment = {"TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30", **environment}
    inherited = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR")}
    process = subprocess.Popen(
        [sys.executable, "-m", "mltree", *arguments], stdin=theirs, stdout=theirs, stderr=theirs,
        cwd=folder, env={**inherited, "LC_ALL": "C.UTF-8", **environment},
    )  # fmt: skip
    os.close(theirs)
    seen, deadline = b"", time.monotonic() + FOR_EVER
    while time.monotonic() < deadline:
        if select.select([ours], [], [], 1.0)[0]:
            try:
                seen += os.read(ours, 1 << 16)
            except OSError:  # Linux's way to say that the other end is closed
                break
        if signal and b"\xc2\xb7" in seen:
            process.send_signal(signal)
            signal = 0
    process.wait(FOR_EVER)
    os.close(ours)
    return seen.decode()


def test_results_and_progress_are_apart(run: Run, primates: str) -> None:
    result = run("search", primates, *QUICK)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("\nFinal log-likelihood: ")
    assert "To cite: methods and references are at the end of x.mltree.log\n" in result.stdout
    assert ESCAPE not in result.output
    for words in ("phase 1", "start parsimony 1", "engine:", "[00:"):
        assert words in result.stderr
        assert words not in result.stdout
    assert "newview" not in result.output, "the table is for --verbose"
    assert "checkpoint" not in result.output


def test_a_terminal_has_a_line_that_lives(primates: str, tmp_path: Path) -> None:
    frogs = str(Path(primates).with_name("frogs.phy"))
    seen = on_terminal("search", frogs, "--preset", "fast", "--prefix", "x", folder=tmp_path)
    assert re.search(r"phase \d of \d, round \d+, \d+ trees? · .*\d\d:\d\d:\d\d", seen)
    assert "SPR round" not in seen, "the line has it"
    assert "\x1b[?25l" not in seen, "the cursor is never hidden: a kill could not bring it back"
    assert "Final log-likelihood" in seen.rpartition("·")[2], "the line is gone before the result"


def test_a_stop_takes_the_line_away(primates: str, tmp_path: Path) -> None:
    seen = on_terminal(
        "search", primates, "--preset", "thorough", "--prefix", "x", folder=tmp_path, signal=15
    )
    last = seen.replace("\r\n", "\n").rpartition("·")[2]
    assert re.search(r"\x1b\[2K.*mltree: stopped by SIGTERM", last, re.DOTALL), repr(last)


@pytest.mark.parametrize(
    ("environment", "command"),
    [
        ({"NO_COLOR": "1"}, "search {primates} --preset fast --prefix x --moves nni"),
        ({"TERM": "dumb"}, "check {primates}"),
        ({"NO_COLOR": "1"}, "search --help"),
        ({"NO_COLOR": "1"}, "search"),
        ({"TERM": "dumb"}, "--help"),
    ],
)
def test_no_colour_is_no_escape_at_all(
    primates: str, tmp_path: Path, environment: dict[str, str], command: str
) -> None:
    seen = on_terminal(*command.format(primates=primates).split(), folder=tmp_path, **environment)
    assert seen
    assert ESCAPE not in seen


def test_an_evaluation_does_not_speak_of_searches(run: Run, primates: str) -> None:
    assert run("search", primates, *QUICK).exit_code == 0
    files = ("--tree", "x.mltree.bestTree", "--prefix", "e")
    for more in ((), ("--no-opt-model",), ("--no-opt-model", "--no-opt-branches")):
        result = run("evaluate", primates, *files, *more, "--redo", "--verbose")
        assert result.exit_code == 0, result.output
        said = result.output.partition("\nTime ")[0] + Path("e.mltree.evalLog").read_text()
        said = said.replace("search.", "")
        assert not re.search(r"search|SPR|start user|insertions, ", said), said
    told = run("sitelh", primates, "--trees", "x.mltree.bestTree", "--prefix", "e").stderr
    assert "tree as given" in told
    assert not re.search(r"start user|search done", told), told


def test_kernels_are_announced_where_they_are_new(
    run: Run, primates: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for known in (False, True):
        monkeypatch.setattr("mltree.runs.engines.is_built", lambda *_, known=known: known)
        result = run("search", primates, *QUICK, "--redo")
        assert ("once for such data and models ..." in result.stderr) is not known


def test_a_busy_gpu_is_said_so(run: Run, primates: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mltree.runs.engines.occupied", lambda info, _: f"{info.name} is taken")
    assert "is taken" in run("search", primates, *QUICK).stderr


def test_the_log_has_head_and_foot(run: Run, primates: str) -> None:
    assert run("search", primates, *QUICK, "--seed", "3").exit_code == 0
    log = Path("x.mltree.log").read_text()
    owner, *lines = log.splitlines()
    assert owner.startswith("process ")
    names = [line.partition(":")[0] for line in lines]
    assert names[:6] == ["Date", "Host", "CPU", "Device", "Versions", "Input"]
    assert f"mltree {mltree.__version__}, Python " in log
    assert "sha256 a95dd480f8d5b9492b93c3ccf68d3fd809af091745f1fcf874ee1cb08572e816" in log
    for option in ("seed = 3 (typed)", "tree = pars{6}", "moves = nni (typed)", "data_type = DNA"):
        assert f"Option:   {option}\n" in log
    assert log.count("] checkpoint ") <= 1
    assert re.search(
        r"\] wall [\d.]+ s, CPU [\d.]+ s, device [\d.]+ s, peak memory [\d,]+ MiB\n", log
    )
    for words in ("newview", "\nMethods\n", "(random seed 3)", "Tavaré S (1986)", "Yang Z (1994)"):
        assert words in log


def last_event(result: Result) -> dict[str, object]:
    *_, line = result.stdout.splitlines()
    found: dict[str, object] = json.loads(line)
    return found


def test_every_command_ends_in_json_with_its_result(
    run: Run, primates: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mltree.analyses.check.build_all", lambda *_: None)
    monkeypatch.setattr("mltree.analyses.check.calibrate", lambda *_: Calibration())
    found = last_event(run("search", primates, *QUICK, "--json"))
    written = json.loads(Path("x.mltree.json").read_text())
    assert (found["event"], found["command"]) == ("result", "search")
    for name in ("lnl", "tree", "model", "files", "seconds", "data", "run"):
        assert found[name] == written[name], name
    assert all(Path(path).exists() for path in written["files"].values())
    tree = ("--tree", "x.mltree.bestTree")
    replicates = str(Path(primates).with_name("primates.bootstraps"))
    for command in (
        ("evaluate", primates, *tree, "--prefix", "e"),
        ("compare", primates, *tree),
        ("check", primates),
        ("support", "x.mltree.bestTree", "--trees", replicates, "--prefix", "s"),
        ("consensus", replicates, "--prefix", "c"),
        ("rf", replicates, "--prefix", "r"),
        ("bootstop", replicates),
        ("devices",),
    ):
        result = run(*command, "--json")
        assert result.exit_code == 0, result.output
        assert result.stderr == ""
        events = [json.loads(line) for line in result.stdout.splitlines()]
        assert events[-1]["event"] == "result"
        assert events[-1]["command"] == command[0]
        for name, path in events[-1].get("files", {}).items():
            assert Path(path).exists(), name
    supports = json.loads(Path("s.mltree.support.json").read_text())["supports"]
    assert supports["fbp"]["branches"] == 9
    assert json.loads(Path("e.mltree.eval.json").read_text())["lnl"] <= written["lnl"] + 0.1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("check", "nowhere", "--json"), "nowhere: no such file"),
        (("search", "--json"), "missing argument"),
        (("search", "a", "--json", "--nonsense"), "--nonsense"),
        (("search", "-s", "a", "--json"), "-s a is written for IQ-TREE"),
        (("rf", "nowhere", "--json"), "nowhere: no such file"),
    ],
)
def test_errors_are_events(run: Run, arguments: tuple[str, ...], message: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    (line,) = result.stdout.splitlines()
    event = json.loads(line)
    assert (event["event"], event["code"]) == ("error", 2)
    assert message in event["message"]
    assert message in result.stderr


def test_variables_want_json_too(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLTREE_JSON", "1")
    assert json.loads(run("check", "nowhere").stdout)["event"] == "error"


def test_standard_input_is_an_alignment(primates: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mltree", "search", "-", "--preset", "fast", "--moves", "nni"]
    with Path(primates).open("rb") as pipe:
        run = subprocess.run(
            command, cwd=tmp_path, stdin=pipe, capture_output=True, text=True, check=False
        )
    assert run.returncode == 0, run.stderr
    assert (tmp_path / "stdin.mltree.bestTree").exists()
    assert "a95dd480f8d5b949" in (tmp_path / "stdin.mltree.log").read_text()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands_and_options(shell: str) -> None:
    words = {
        "bash": {"COMP_WORDS": "mltree se", "COMP_CWORD": "1"},
        "zsh": {"_TYPER_COMPLETE_ARGS": "mltree se"},
        "fish": {"_TYPER_COMPLETE_ARGS": "mltree se", "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }[shell]
    for typed, expected in (("se", "search"), ("search --thr", "--threads")):
        environment = {name: text.replace("se", typed, 1) for name, text in words.items()}
        if shell == "bash":
            environment["COMP_CWORD"] = str(len(typed.split()))
        run = subprocess.run(
            [sys.executable, "-m", "mltree"],
            env={**os.environ, **environment, "_MLTREE_COMPLETE": f"complete_{shell}"},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert expected in run.stdout, (run.stdout, run.stderr)


def test_the_version_has_a_short_form(run: Run) -> None:
    short = run("-V").stdout
    assert short == run("--version").stdout
    assert short.startswith(f"mltree {mltree.__version__}")


def test_help_has_groups_and_no_types(run: Run) -> None:
    text = run("search", "--help").stdout
    assert "<" not in text
    advanced = text[text.index("\nAdvanced:\n") :]
    assert [name for name in ("--device", "--memory-limit", "--vw", "--precision")
            if name not in advanced] == []  # fmt: skip
    assert re.search(r"^Usage: \S+ search \[OPTIONS\] ALIGNMENT\.\.\.$", text, re.MULTILINE)
