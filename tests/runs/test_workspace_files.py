"""Files named by a prefix: checked and claimed before a run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mltree.runs.workspace import Workspace, claim_files
from mltree.system.errors import InputError


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [
        (None, "data/a.phy.mltree.log"),
        ("", "data/a.phy.mltree.log"),
        ("out", "out.mltree.log"),
        ("out/v1.2", "out/v1.2.mltree.log"),
        ("out/", "out/a.phy.mltree.log"),
        ("out//", "out/a.phy.mltree.log"),
        ("out/.", "out/a.phy.mltree.log"),
        (".", "a.phy.mltree.log"),
        ("..", "../a.phy.mltree.log"),
        ("/", "/a.phy.mltree.log"),
        ("/x", "/x.mltree.log"),
    ],
)
def test_names_follow_the_prefix(prefix: str | None, expected: str) -> None:
    assert Workspace.of(prefix, "data/a.phy").path("log") == Path(expected)


@pytest.mark.parametrize("alignment", [".", "..", "/", "x/", ""])
def test_no_alignment_is_too_odd_for_a_name(alignment: str) -> None:
    assert Workspace.of(None, alignment).path("log").name.endswith(".mltree.log")


def test_a_folder_is_named_however_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "loci" / "more"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    names = {Workspace.of(prefix, ".").path("log").name for prefix in (None, "./", "..")}
    assert names == {"more.mltree.log"}
    assert Workspace.of(None, "..").path("log") == Path("../loci.mltree.log")


def test_a_claim_needs_free_names(tmp_path: Path) -> None:
    outputs = Workspace(tmp_path, "x")
    outputs.claim(["bestTree"], redo=False)
    assert outputs.write({"bestTree": "(a,b,c);\n"}) == [tmp_path / "x.mltree.bestTree"]
    with pytest.raises(InputError, match="bestTree already exists"):
        outputs.claim(["log", "bestTree"], redo=False)
    outputs.claim(["bestTree"], redo=True)
    outputs.claim(["log"], redo=False)
    outputs.remove("bestTree")
    outputs.remove("bestTree")
    outputs.claim(["bestTree"], redo=False)


@pytest.mark.parametrize("folder", ["no", "a-file", "a-file/below", "x" * 300])
def test_a_run_needs_a_folder(tmp_path: Path, folder: str) -> None:
    (tmp_path / "a-file").touch()
    with pytest.raises(InputError, match=re.escape(folder)):
        Workspace(tmp_path / folder, "x").check(["log"])


@pytest.mark.parametrize("length", [10, 200, 219, 220, 245, 256, 5000])
def test_a_name_that_is_accepted_can_be_written(tmp_path: Path, length: int) -> None:
    """``.mltree.log`` and a draft's ending have 36 bytes, and file systems take 255."""
    outputs = Workspace(tmp_path, "x" * length)
    if length + len(".mltree.log." + "0" * 16 + ".partial") > 255:
        with pytest.raises(InputError, match="too long"):
            outputs.check(["log"])
    else:
        outputs.check(["log"])
        outputs.write({"log": ""})


def test_a_folder_in_the_place_of_a_file_is_refused(tmp_path: Path) -> None:
    outputs = Workspace(tmp_path, "x")
    outputs.path("log").mkdir()
    with pytest.raises(InputError, match=r"x\.mltree\.log is a folder"):
        outputs.check(["bestTree", "log"])
    with pytest.raises(InputError, match=r"cannot remove .*x\.mltree\.log"):
        outputs.remove("log")


def test_a_link_that_leads_nowhere_takes_a_name(tmp_path: Path) -> None:
    outputs = Workspace(tmp_path, "x")
    outputs.path("support").symlink_to(tmp_path / "nowhere")
    with pytest.raises(InputError, match="support already exists"):
        outputs.claim(["support"], redo=False)


def test_what_is_read_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By whatever name: relative, a link, a hard link."""
    monkeypatch.chdir(tmp_path)
    outputs = Workspace(Path(), "x")
    Path("x.mltree.log").touch()
    Path("link").symlink_to("x.mltree.log")
    os.link("x.mltree.log", "hard")
    for name in ("x.mltree.log", "./x.mltree.log", str(tmp_path / "x.mltree.log"), "link", "hard"):
        with pytest.raises(InputError, match=r"x\.mltree\.log is read, and would be overwritten"):
            outputs.check(["json", "log"], ["", "-", "GTR+G4", name])
        with pytest.raises(InputError, match="is read"):
            claim_files([Path("x.mltree.log")], [name], redo=True)
    outputs.check(["json", "log", "log"], ["", "-", "GTR+G4", "x.mltree.bestTree", "a\0b"])


@pytest.mark.parametrize("other", ["s.fa", "./s.fa", "folder/../s.fa"])
def test_two_outputs_are_two_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    for _ in range(2):  # the second time there is a file
        with pytest.raises(InputError, match="two outputs would be one file"):
            claim_files([Path("s.fa"), Path(other)], [], redo=True)
        Path("s.fa").touch()
    claim_files([Path("s.fa"), Path("t.fa")], [], redo=True)


def test_a_pipe_is_no_file_to_write(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="is a pipe"):
        claim_files([tmp_path / "pipe"], [], redo=True)
    outputs = Workspace(tmp_path, "x")
    os.mkfifo(outputs.path("bestTree"))
    outputs.path("log").symlink_to(os.devnull)
    outputs.check(["log"])
    with pytest.raises(InputError, match="is a pipe"):
        outputs.check(["log", "bestTree"])
    with pytest.raises(InputError, match="is a device"):
        outputs.claim(["log"], redo=True)


HOLD = (
    "import sys; from pathlib import Path; from mltree.runs.workspace import Workspace\n"
    "with Workspace(Path(sys.argv[1]), 'x').held(sys.argv[2:]):\n"
    "    print('held', flush=True)\n"
    "    sys.stdin.read()\n"
)


def test_only_one_command_writes_a_file(tmp_path: Path) -> None:
    outputs = Workspace(tmp_path, "x")
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, tmp_path, "support", "bestTree"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    written = pytest.raises(InputError, match=r"x\.mltree\.support is being written by another run")
    with written, outputs.taken(["rfDistances", "support"], redo=True):
        pass
    with outputs.taken(["rfDistances", "evalTree"], redo=False):
        pass
    assert outputs.path("lock").exists(), "the other one has it still"
    holder.communicate("")
    with outputs.held(["support"]):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_killed_commands_lock_and_drafts_are_nobodys(tmp_path: Path) -> None:
    outputs = Workspace(tmp_path, "x")
    outputs.path("lock").touch()
    draft = tmp_path / f"x.mltree.support.{'0a' * 8}.partial"
    others = [
        tmp_path / f"x.mltree.bestTree.{'0a' * 8}.partial",
        tmp_path / "x.mltree.support.partial",
        tmp_path / f"y.mltree.support.{'0a' * 8}.partial",
    ]
    for path in (draft, *others):
        path.touch()
    with outputs.held(["support"]):
        assert outputs.path("lock").exists()
    assert sorted(tmp_path.iterdir()) == sorted(others)


def test_a_file_that_is_no_lock_is_left(tmp_path: Path) -> None:
    outputs = Workspace(tmp_path, "x")
    outputs.path("lock").write_text("the user's own")
    with outputs.held(["support"]):
        pass
    assert outputs.path("lock").read_text() == "the user's own"


def test_stale_files_go_when_new_ones_are_there(tmp_path: Path) -> None:
    outputs = Workspace(tmp_path, "x")
    outputs.write({"support": "old", "bestTree": "old"})
    assert outputs.holds("bestTree", "old")
    assert not outputs.holds("bestTree", "new")
    assert not outputs.holds("json", "")
    assert outputs.is_among("support", ["", "y", str(outputs.path("support"))])
    assert not outputs.is_among("support", ["", str(outputs.path("bestTree"))])
    assert outputs.replace({"bestTree": "new"}, ["support"]) == [outputs.path("bestTree")]
    assert list(tmp_path.iterdir()) == [outputs.path("bestTree")]
