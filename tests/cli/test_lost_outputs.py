"""Outputs that fail: full disks, closed pipes, folders and names that nobody can write to."""

from __future__ import annotations

import errno
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

Run = Callable[..., Result]

QUICK = ("--preset", "fast", "--prefix", "x", "--moves", "nni")

RESULTS = ("bestModel", "bestTree", "startTree")

KINDS = ("log", "json", "startTree", "bestModel", "bestTree", "checkpoint", "lastTree")


def command(*arguments: str, **options: object) -> subprocess.CompletedProcess[bytes]:
    """A command as a process, its error output kept."""
    return subprocess.run(
        [sys.executable, "-m", "mltree", *arguments], stderr=subprocess.PIPE, check=False, **options
    )  # type: ignore[call-overload, no-any-return]


def complaints(text: str) -> list[str]:
    """Lines of standard error that are no progress."""
    return [line for line in text.splitlines() if not line.startswith("[00:")]


def closed_pipe() -> int:
    """The end to write to of a pipe that nobody reads."""
    reads, writes = os.pipe()
    os.close(reads)
    return writes


OUTPUTS: dict[str, Callable[[], int]] = {
    "full": lambda: os.open("/dev/full", os.O_WRONLY),
    "closed pipe": closed_pipe,
}


@pytest.mark.parametrize("more", [(), ("--json",)])
@pytest.mark.parametrize("output", OUTPUTS)
def test_a_search_goes_on_without_standard_output(
    primates: str, tmp_path: Path, output: str, more: tuple[str, ...]
) -> None:
    stdout = OUTPUTS[output]()
    result = command("search", primates, *QUICK, *more, stdout=stdout, cwd=tmp_path)
    os.close(stdout)
    assert result.returncode == 0
    assert result.stderr.decode().count("standard output") == 1
    log = (tmp_path / "x.mltree.log").read_text()
    assert "standard output" in log
    assert "Final log-likelihood" in log
    assert all((tmp_path / f"x.mltree.{kind}").exists() for kind in RESULTS)


def test_a_search_needs_no_standard_streams(primates: str, tmp_path: Path) -> None:
    def close_all() -> None:
        for stream in range(3):
            os.close(stream)

    result = command("search", primates, *QUICK, preexec_fn=close_all, cwd=tmp_path)
    assert result.returncode == 0
    assert (tmp_path / "x.mltree.log").read_text().startswith("process ")
    assert "Final log-likelihood" in (tmp_path / "x.mltree.log").read_text()


@pytest.mark.parametrize("arguments", [("check", "ALIGNMENT"), ("--help",), ("--version",)])
def test_an_answer_that_finds_no_room_is_told_in_a_line(
    primates: str, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    given = [primates if argument == "ALIGNMENT" else argument for argument in arguments]
    for output, code, lines in (("full", 2, 1), ("closed pipe", 141, 0)):
        stdout = OUTPUTS[output]()
        result = command(*given, stdout=stdout, cwd=tmp_path)
        os.close(stdout)
        said = result.stderr.decode().splitlines()
        assert (result.returncode, len(said)) == (code, lines), said
        assert all("cannot write to standard output: No space left" in line for line in said)


LIMIT = 3000
"""Bytes: more than the head of a log or a result as JSON has, less than a log or a checkpoint."""


def test_a_disk_that_is_full_ends_nothing_that_has_begun(primates: str, tmp_path: Path) -> None:
    """A limit on the size of files stands for it: results are small, checkpoints and logs not."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, LIMIT))

    (tmp_path / "data").write_text(Path(primates).read_text())
    result = command(
        "search", "data", *QUICK, "--device", "reference", "--model", "JC", "--tree", "pars",
        stdout=subprocess.PIPE, cwd=tmp_path, preexec_fn=limit,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    said = result.stderr.decode()
    assert said.count("cannot write x.mltree.log: File too large; the run goes on") == 1
    assert "x.mltree.checkpoint: File too large; the search goes on without" in said
    assert "Final log-likelihood" in result.stdout.decode()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "data", *(f"x.mltree.{kind}" for kind in sorted((*RESULTS, "events", "json", "log")))
    ]  # fmt: skip


def test_a_disk_that_is_full_at_once_is_told_of_before_the_search(
    run: Run, primates: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(monkeypatch, "startTree")
    result = run("search", primates, *QUICK)
    assert result.exit_code == 2
    assert "cannot write x.mltree.startTree: No space left on device" in result.stderr
    assert "SPR round" not in result.output


def fill(patch: pytest.MonkeyPatch, *kinds: str) -> None:
    """Have no room for files of these kinds."""

    def write(path: Path, content: bytes) -> None:
        path.write_bytes(content)
        if any(f".{kind}." in path.name for kind in kinds):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    patch.setattr("mltree.system.files._write_through", write)


@pytest.mark.parametrize("full", [("bestTree",), ("bestModel", "checkpoint")])
@pytest.mark.parametrize("switch", ["--verbose", "--quiet", "--json"])
def test_results_that_cannot_be_written_are_shown_and_not_lost(
    run: Run, primates: str, monkeypatch: pytest.MonkeyPatch, full: tuple[str, ...], switch: str
) -> None:
    with monkeypatch.context() as patch:
        fill(patch, *full)
        result = run("search", primates, *QUICK, switch)
    assert result.exit_code == 2
    assert "No space left" in result.stderr
    assert not Path("x.mltree.bestTree").exists()
    assert not Path("x.mltree.bestModel").exists()
    assert Path("x.mltree.checkpoint").exists() == ("checkpoint" not in full)
    log = Path("x.mltree.log").read_text()
    again = run("search", primates, *QUICK)
    assert again.exit_code == 0
    for kind in ("bestTree", "bestModel"):
        written = Path(f"x.mltree.{kind}").read_text()
        shown = json.dumps(written)[1:-1] if switch == "--json" else written.strip()
        assert shown in result.stdout
        assert written.strip() in log


def test_an_evaluation_shows_what_it_cannot_write(
    run: Run, primates: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("search", primates, *QUICK).exit_code == 0
    fill(monkeypatch, "evalTree")
    result = run("evaluate", primates, "--tree", "x.mltree.bestTree", "--prefix", "x", "--site-lnl")
    assert result.exit_code == 2
    assert "cannot write x.mltree.evalTree" in result.stderr
    assert "not written, x.mltree.evalModel: GTR{" in result.stdout
    assert not list(Path().glob("*eval[MT]*"))
    assert not list(Path().glob("*siteLnL*"))


ODD_PREFIXES = {
    "a long name": "x" * 250,
    "a long folder": "x" * 256 + "/x",
    "a long path": "x/" * 3000,
    "no folder": "nowhere/x",
    "a file as folder": "a-file/x",
}


@pytest.mark.parametrize("name", ODD_PREFIXES)
def test_a_prefix_that_cannot_be_used_is_told_of_in_a_line(
    run: Run, primates: str, name: str
) -> None:
    Path("a-file").touch()
    result = run("search", primates, "--preset", "fast", "--prefix", ODD_PREFIXES[name])
    assert result.exit_code == 2, result.exception
    assert len(complaints(result.stderr)) == 1
    assert [path.name for path in Path().iterdir()] == ["a-file"]


@pytest.mark.parametrize("kind", ["checkpoint", "log", "bestTree"])
def test_a_fifo_in_a_files_place_is_told_of_in_a_line(run: Run, primates: str, kind: str) -> None:
    os.mkfifo(f"x.mltree.{kind}")
    for redo in ((), ("--redo",)):
        result = run("search", primates, *QUICK, *redo)
        assert result.exit_code == 2, result.exception
        (line,) = complaints(result.stderr)
        assert f"x.mltree.{kind} is a pipe" in line
    assert [path.name for path in Path().iterdir()] == [f"x.mltree.{kind}"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_in_a_files_place_is_told_of_in_a_line(run: Run, primates: str, kind: str) -> None:
    Path(f"x.mltree.{kind}").mkdir()
    for redo in ((), ("--redo",)):
        result = run("search", primates, *QUICK, *redo)
        assert result.exit_code == 2, result.exception
        (line,) = complaints(result.stderr)
        assert f"x.mltree.{kind} is a folder" in line
    assert [path.name for path in Path().iterdir()] == [f"x.mltree.{kind}"]


@pytest.mark.parametrize("command", [("search",), ("evaluate", "--tree", "x")])
def test_an_empty_folder_for_an_alignment_is_told_of_in_a_line(
    run: Run, command: tuple[str, ...]
) -> None:
    result = run(*command, ".", "--prefix", "x")
    assert result.exit_code == 2, result.exception
    assert len(complaints(result.stderr)) == 1
    assert list(Path().iterdir()) == []


def test_a_prefix_may_be_a_folder(run: Run, primates: str) -> None:
    Path("out").mkdir()
    assert run("search", primates, *QUICK[:2], "--prefix", "out/").exit_code == 0
    assert sorted(path.name for path in Path("out").iterdir()) == [
        f"primates.phy.mltree.{kind}" for kind in sorted((*RESULTS, "events", "json", "log"))
    ]


def test_a_prefix_that_is_no_text_is_refused(primates: str, tmp_path: Path) -> None:
    prefix = os.fsdecode(b"\xff\xfe x")
    result = command("search", primates, "--prefix", prefix, stdout=subprocess.PIPE, cwd=tmp_path)
    assert result.returncode == 2
    (line,) = result.stderr.decode().splitlines()
    assert "not UTF-8 text" in line
    assert list(tmp_path.iterdir()) == []
