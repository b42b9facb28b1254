"""Searches that are stopped, by a signal, a kill or a power cut, and go on with the same bits."""

from __future__ import annotations

import json
import os
import random
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from mltree.fit.settings import CheckpointSettings
from mltree.runs.workspace import Workspace
from mltree.system.process import ECHO, SIGNALS
from mltree.treesearch.checkpoint import Checkpoint, SearchState

Run = Callable[..., Result]

RESULTS = ("bestModel", "bestTree", "startTree")

QUICK = ("--preset", "fast", "--prefix", "x")

ENDING = 60.0
"""Seconds that a stop may take on a busy machine; alone, a tenth of one. What a stop must
not wait for takes minutes."""

FOR_EVER = 600.0
"""Seconds that no search here takes."""


def complaints(text: str) -> list[str]:
    """Lines of standard error but for progress, and LLVM's count of a build that a signal ended."""
    lines = [line for line in text.splitlines() if not line.startswith("[00:")]
    return [line for line in lines if line != "1 error generated."]


def start(alignment: str, *options: str, folder: Path) -> subprocess.Popen[str]:
    """A search in a process group of its own, as a shell starts it."""
    return subprocess.Popen(
        [sys.executable, "-m", "mltree", "search", alignment, "--prefix", "x", *options],
        cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, process_group=0,
    )  # fmt: skip


def results(folder: Path) -> list[bytes]:
    return [(folder / f"x.mltree.{kind}").read_bytes() for kind in RESULTS]


@dataclass(frozen=True)
class Whole:
    """A search that nothing has stopped."""

    alignment: str
    results: list[bytes]
    seconds: float


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """The search that the others are compared with."""
    folder = tmp_path_factory.mktemp("whole")
    alignment = str(Path(__file__).parents[2] / "datasets" / "primates.phy")
    for redo in ((), ("--redo",)):  # the second with all kernels built
        began = time.monotonic()
        process = start(alignment, *redo, folder=folder)
        _, errors = process.communicate(timeout=FOR_EVER)
        assert process.returncode == 0, errors
    return Whole(alignment, results(folder), time.monotonic() - began)


def assert_clean(folder: Path, *kinds: str) -> None:
    """Only the files of these kinds are left."""
    expected = {f"x.mltree.{kind}" for kind in kinds}
    assert {path.name for path in folder.iterdir()} <= expected


def assert_finished(process: subprocess.Popen[str], whole: Whole, folder: Path) -> None:
    _, errors = process.communicate(timeout=FOR_EVER)
    assert (process.returncode, complaints(errors)) == (0, [])
    assert results(folder) == whole.results
    assert_clean(folder, "log", "json", "events", *RESULTS)


@pytest.mark.cases(3, 60)
def test_a_signal_at_any_time_loses_nothing(whole: Whole, tmp_path: Path, case: int) -> None:
    """Signals come to the process or to its group, once or twice, until the search is over."""
    chance = random.Random(case)
    number = SIGNALS[case % len(SIGNALS)]
    for _ in range(2):
        process = start(whole.alignment, folder=tmp_path)
        time.sleep(chance.uniform(0.05, whole.seconds))
        signalled = time.monotonic()
        for _ in range(chance.randint(1, 2)):
            (os.killpg if chance.random() < 0.5 else os.kill)(process.pid, number)
        is_hasty = time.monotonic() - signalled > ECHO / 2  # this test waited for its core
        _, errors = process.communicate(timeout=FOR_EVER)
        assert time.monotonic() - signalled < ENDING
        if process.returncode == 0:  # over already, or all but the goodbye
            said = complaints(errors)
            assert not said or said[-1].endswith("the results are written")
            break
        is_done = (tmp_path / "x.mltree.bestTree").exists()
        if is_hasty and is_done:  # the second signal was one, and came before the goodbye
            break
        if process.returncode == -number or "KeyboardInterrupt" in errors or is_hasty:
            assert not is_done  # in Python's own beginning
            continue
        assert process.returncode == 128 + number
        (line,) = complaints(errors)
        assert line.startswith(f"mltree: stopped by {number.name}")
        for text, kind in (("goes on", "checkpoint"), ("best tree so far", "lastTree")):
            assert text not in line or (tmp_path / f"x.mltree.{kind}").exists()
        assert_clean(tmp_path, "log", "events", "startTree", "checkpoint", "lastTree")
    else:
        assert_finished(start(whole.alignment, folder=tmp_path), whole, tmp_path)
        return
    assert results(tmp_path) == whole.results


@pytest.mark.cases(1, 40)
def test_a_kill_at_any_time_loses_nothing(whole: Whole, tmp_path: Path, case: int) -> None:
    chance = random.Random(case)
    for _ in range(2):
        process = start(whole.alignment, folder=tmp_path)
        time.sleep(chance.uniform(0.05, whole.seconds))
        process.kill()
        process.communicate(timeout=FOR_EVER)
        if (tmp_path / "x.mltree.bestTree").exists():
            break
    if (
        not all((tmp_path / f"x.mltree.{kind}").exists() for kind in RESULTS)
        or (tmp_path / "x.mltree.checkpoint").exists()
    ):
        assert_finished(start(whole.alignment, folder=tmp_path), whole, tmp_path)
    assert results(tmp_path) == whole.results


def test_two_runs_do_not_share_a_prefix(whole: Whole, tmp_path: Path) -> None:
    """The first takes long enough to be there when the second comes."""
    large = str(Path(whole.alignment).with_name("laurasiatherian.phy"))
    first = start(large, "--preset", "thorough", folder=tmp_path)
    deadline = time.monotonic() + FOR_EVER
    while not (log := tmp_path / "x.mltree.log").exists() or not log.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    second = start(whole.alignment, "--redo", folder=tmp_path)
    _, errors = second.communicate(timeout=FOR_EVER)
    assert first.poll() is None
    first.kill()
    first.communicate(timeout=FOR_EVER)
    assert second.returncode == 2
    assert f"is being written by process {first.pid} on " in errors


def test_a_stopped_evaluation_leaves_its_log_alone(whole: Whole, tmp_path: Path) -> None:
    """And the record of its events, where it had begun."""
    tree = tmp_path / "start"
    tree.write_bytes(whole.results[RESULTS.index("startTree")].splitlines()[0])
    process = subprocess.Popen(
        [sys.executable, "-m", "mltree", "evaluate", whole.alignment, "--tree", tree, "--prefix",
         tmp_path / "x", "--device", "reference"],
        text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    while "engine:" not in process.stderr.readline():
        pass
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=FOR_EVER)
    assert process.returncode == 143
    assert complaints(errors) == ["mltree: stopped by SIGTERM"]
    (tmp_path / "start").unlink()
    assert_clean(tmp_path, "evalLog", "evalEvents")


class Killed(Exception):
    """The power goes."""


@pytest.fixture
def after(run: Run, primates: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A quick search x was killed after some rounds."""
    save, written = Checkpoint.save, []

    def save_and_die(self: Checkpoint, state: object) -> None:
        save(self, state)  # type: ignore[arg-type]
        written.append(state)
        if len(written) == 5:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(CheckpointSettings, "pause", lambda *_: 0.0)
        patch.setattr(Checkpoint, "save", save_and_die)
        assert isinstance(run("search", primates, *QUICK).exception, Killed)
    assert Path("x.mltree.checkpoint").exists()
    return


@pytest.mark.parametrize("options", [(), ("--quiet",), ("--outgroup", "Lemur_catta")])
def test_a_killed_search_goes_on(
    run: Run, primates: str, after: None, options: tuple[str, ...]
) -> None:
    result = run("search", primates, *QUICK, *options)
    assert result.exit_code == 0, result.output
    log = Path("x.mltree.log").read_text()
    assert "resumed from x.mltree.checkpoint" in log
    assert log.count("start parsimony 1") == 1
    afresh = run("search", primates, "--preset", "fast", "--prefix", "y", *options)
    assert afresh.exit_code == 0
    for kind in RESULTS:
        assert Path(f"x.mltree.{kind}").read_bytes() == Path(f"y.mltree.{kind}").read_bytes()


CHANGES = {
    "seed": "--seed 2",
    "model": "--model HKY+G4",
    "values": "--model GTR+FC+G4{{0.5}}",
    "preset": "--preset thorough",
    "moves": "--moves nni",
    "starts": "--tree rand{{1}}",
    "start": "--tree {folder}/tree",
    "constraint": "--constraint {folder}/groups",
    "layout": "--vw 1",
    "device": "--device reference",
    "precision": "--precision mixed",
}


@pytest.mark.parametrize("change", [*CHANGES, "data", "taxa", "version"])
def test_another_search_does_not_go_on_from_it(
    run: Run, primates: str, after: None, change: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    text = Path(primates).read_text()
    taxa = [line.split()[0] for line in text.splitlines()[1:13]]
    (tmp_path / "tree").write_text(f"({','.join(taxa)});")
    (tmp_path / "groups").write_text("((Gorilla,Pan),Lemur_catta,Pongo);")
    old, new = {"data": ("AAGC", "AAGT"), "taxa": ("Pongo ", "Pango ")}.get(change, ("", ""))
    (tmp_path / "data").write_text(text.replace(old, new, 1))
    if change == "version":
        monkeypatch.setattr("mltree.runs.trees.__version__", "another")
    before = kept_files()
    more = shlex.split(CHANGES.get(change, "").format(folder=tmp_path))
    result = run("search", tmp_path / "data", *QUICK, *more)
    assert result.exit_code == 2, result.output
    (line,) = complaints(result.stderr)
    assert "belongs to other data, options or version, or to another device" in line
    assert "--redo" in line
    assert kept_files() == before


def kept_files() -> dict[Path, bytes]:
    """All but the log, which has a line more."""
    return {path: path.read_bytes() for path in Path().iterdir() if path.suffix != ".log"}


def test_a_damaged_checkpoint_is_refused_in_a_line(run: Run, primates: str, after: None) -> None:
    checkpoint = Path("x.mltree.checkpoint")
    content = bytearray(checkpoint.read_bytes())
    content[len(content) // 2] ^= 16
    for damaged in (content, b"something else", b""):
        checkpoint.write_bytes(damaged)
        result = run("search", primates, *QUICK)
        assert result.exit_code == 2
        (line,) = complaints(result.stderr)
        assert "--redo" in line
    assert run("search", primates, *QUICK, "--redo").exit_code == 0


@pytest.mark.parametrize("redo", [(), ("--redo",)])
@pytest.mark.parametrize("at", ["bestModel", "bestTree", "checkpoint"])
def test_a_kill_between_the_last_files_loses_nothing(
    run: Run, primates: str, monkeypatch: pytest.MonkeyPatch, at: str, redo: tuple[str, ...]
) -> None:
    """``at``: the result that it does not write, or the checkpoint that it does not remove."""
    for kind in ("bestTree", "bestModel") if redo else ():
        Path(f"x.mltree.{kind}").write_text("an older run's")
    replace, remove = Path.replace, Workspace.remove

    def replace_or_die(self: Path, target: Path) -> Path:
        if at != "checkpoint" and target.name.endswith(at):
            raise Killed
        return replace(self, target)

    def remove_or_die(self: Workspace, kind: str) -> None:
        if kind == at and self.path(kind).exists():
            raise Killed
        remove(self, kind)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", replace_or_die)
        patch.setattr(Workspace, "remove", remove_or_die)
        assert isinstance(run("search", primates, *QUICK, *redo).exception, Killed)
    result = run("search", primates, *QUICK)
    assert result.exit_code == 0, result.output
    assert "resumed from" in result.stderr
    assert_clean(Path(), "log", "json", "events", *RESULTS)
    assert run("search", primates, "--preset", "fast", "--prefix", "y").exit_code == 0
    for kind in RESULTS:
        assert Path(f"x.mltree.{kind}").read_bytes() == Path(f"y.mltree.{kind}").read_bytes()


def test_a_redo_that_fails_early_loses_nothing(run: Run, primates: str, after: None) -> None:
    before = {path: path.read_bytes() for path in Path().iterdir()}
    assert run("search", primates, *QUICK, "--redo", "--model", "nonsense").exit_code == 2
    assert {path: path.read_bytes() for path in Path().iterdir()} == before


def test_a_stop_leaves_the_best_tree_and_says_how_to_go_on(whole: Whole, tmp_path: Path) -> None:
    process = start(whole.alignment, "--preset", "thorough", "--redo", folder=tmp_path)
    assert process.stderr is not None
    while "SPR round 1 " not in process.stderr.readline():
        pass
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=FOR_EVER)
    assert process.returncode == 130
    assert "the same command without --redo goes on from here" in errors
    lnl, tree = float(errors.split("lnL ")[1].split(",")[0]), tmp_path / "x.mltree.lastTree"
    assert str(tree.name) in errors
    evaluation = subprocess.run(
        [sys.executable, "-m", "mltree", "evaluate", whole.alignment, "--tree", tree, "--prefix",
         tmp_path / "x"], capture_output=True, text=True, check=True,
    )  # fmt: skip
    (final,) = (line for line in evaluation.stdout.splitlines() if line.startswith("Final"))
    assert float(final.split()[-1]) >= lnl - 0.01


def test_what_the_starts_led_to_outlasts_a_stop(
    run: Run, primates: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result once had null in its place, and the methods all starts that were planned."""
    step = Checkpoint.step

    def step_and_die(self: Checkpoint, state: SearchState, *others: Any, **more: Any) -> None:
        step(self, state, *others, **more)
        if state.ended is not None:
            self.save(state)
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "step", step_and_die)
        assert isinstance(run("search", primates, *QUICK).exception, Killed)
    assert run("search", primates, *QUICK).exit_code == 0
    assert run("search", primates, "--preset", "fast", "--prefix", "y").exit_code == 0
    found = [json.loads(Path(f"{name}.mltree.json").read_text())["starts"] for name in "xy"]
    assert found[0] == found[1] is not None
    log = " ".join(Path("x.mltree.log").read_text().split())
    assert f"started from {found[0]['starts']} parsimony trees" in log


SUPPORTED = ("support", "branchTests", "report.html")


@pytest.mark.parametrize("asks", [False, True])
def test_a_redo_leaves_nothing_of_the_older_run(run: Run, primates: str, asks: bool) -> None:
    """But what other commands have left: replicates take days."""
    quick = (*QUICK, "--device", "reference", "--model", "JC")
    assert run("search", primates, *quick, "--sh-alrt", "9", "--report").exit_code == 0
    stale = ("ufboot", "contree", "supportTBE", "bestTrees", "sitefreq", "bestFitModel")
    kept = ("bootstraps", "replicates", "consensusTreeMR", "bootstrapLog", "evalTree")
    for kind in (*stale, *kept):
        Path(f"x.mltree.{kind}").write_text("older")
    assert all(Path(f"x.mltree.{kind}").exists() for kind in SUPPORTED)
    more = ("--lbp", "9") if asks else ()
    assert run("search", primates, *quick, "--redo", *more).exit_code == 0
    asked = ("support", "branchTests") if asks else ()
    left = {path.name.removeprefix("x.mltree.") for path in Path().iterdir()}
    assert left == {"log", "json", "events", *RESULTS, *kept, *asked}


def test_a_redo_spares_what_it_reads(run: Run, primates: str) -> None:
    quick = (*QUICK, "--device", "reference", "--model", "JC")
    assert run("search", primates, *quick, "--sh-alrt", "9").exit_code == 0
    result = run("search", primates, *quick, "--redo", "--tree", "x.mltree.bestTree")
    assert result.exit_code == 2
    assert "x.mltree.bestTree is read, and would be overwritten" in result.stderr
    fine = run("search", primates, *quick, "--redo", "--tree", "x.mltree.support")
    assert fine.exit_code == 0
    assert Path("x.mltree.support").exists()


def test_a_command_for_a_file_that_a_search_will_write_waits(whole: Whole, tmp_path: Path) -> None:
    large = str(Path(whole.alignment).with_name("laurasiatherian.phy"))
    search = start(large, "--preset", "thorough", folder=tmp_path)
    assert search.stderr is not None
    while "start parsimony" not in search.stderr.readline():
        pass
    tree = tmp_path / "x.mltree.startTree"
    command = [sys.executable, "-m", "mltree", "support", tree, "--trees", tree, "--prefix"]
    runs = [
        subprocess.run([*command, tmp_path / name], capture_output=True, text=True, check=False)
        for name in ("x", "y")
    ]
    assert search.poll() is None
    search.terminate()
    search.communicate(timeout=FOR_EVER)
    assert [run.returncode for run in runs] == [2, 0]
    assert "x.mltree.support is being written by another run" in runs[0].stderr
    assert not (tmp_path / "x.mltree.lock").exists()


def test_what_others_have_left_stays_unless_asked(run: Run, primates: str) -> None:
    quick = (*QUICK, "--device", "reference", "--model", "JC")
    Path("x.mltree.support").write_text("of mltree bootstrap --tree")
    assert run("search", primates, *quick).exit_code == 0
    assert Path("x.mltree.support").read_text() == "of mltree bootstrap --tree"


def test_a_redo_that_was_stopped_leaves_nothing_of_the_older_run(
    run: Run, primates: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until it has a tree, the older one and its supports stay together."""
    quick = (*QUICK, "--device", "reference", "--model")
    assert run("search", primates, *quick, "JC", "--sh-alrt", "9").exit_code == 0
    save = Checkpoint.save

    def save_and_die(self: Checkpoint, state: SearchState) -> None:
        save(self, state)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(CheckpointSettings, "pause", lambda *_: 0.0)
        patch.setattr(Checkpoint, "save", save_and_die)
        assert isinstance(run("search", primates, *quick, "K80", "--redo").exception, Killed)
    assert Path("x.mltree.support").exists()
    assert Path("x.mltree.bestModel").read_text().startswith("JC")
    assert run("search", primates, *quick, "K80").exit_code == 0
    assert Path("x.mltree.bestModel").read_text().startswith("K80")
    assert not Path("x.mltree.support").exists()
