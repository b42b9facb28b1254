"""Files named by a prefix: checked and claimed before a run."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from mltree.errors import InputError
from mltree.outputs import Outputs


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
    assert Outputs.of(prefix, "data/a.phy").path("log") == Path(expected)


@pytest.mark.parametrize("alignment", [".", "..", "/", "x/", ""])
def test_no_alignment_is_too_odd_for_a_name(alignment: str) -> None:
    assert Outputs.of(None, alignment).path("log").name.endswith(".mltree.log")


def test_a_folder_is_named_however_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "loci" / "more"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    names = {Outputs.of(prefix, ".").path("log").name for prefix in (None, "./", "..")}
    assert names == {"more.mltree.log"}
    assert Outputs.of(None, "..").path("log") == Path("../loci.mltree.log")


def test_a_claim_needs_free_names(tmp_path: Path) -> None:
    outputs = Outputs(tmp_path, "x")
    outputs.claim(["bestTree"], redo=False)
    assert outputs.write({"bestTree": "(a,b,c);\n"}) == [tmp_path / "x.mltree.bestTree"]
    with pytest.raises(InputError, match="bestTree exists"):
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
        Outputs(tmp_path / folder, "x").check(["log"])


@pytest.mark.parametrize("length", [10, 200, 236, 237, 245, 256, 5000])
def test_a_name_that_is_accepted_can_be_written(tmp_path: Path, length: int) -> None:
    """``.mltree.log.partial`` has 19 bytes, and file systems take 255."""
    outputs = Outputs(tmp_path, "x" * length)
    if length + 19 > 255:
        with pytest.raises(InputError, match="too long"):
            outputs.check(["log"])
    else:
        outputs.check(["log"])
        outputs.write({"log": ""})


@pytest.mark.parametrize("draft", ["", ".partial"])
@pytest.mark.parametrize(("make", "what"), [(os.mkdir, "folder"), (os.mkfifo, "FIFO")])
def test_what_stands_in_the_place_of_a_file_is_refused(
    tmp_path: Path, make: Callable[[str], None], what: str, draft: str
) -> None:
    outputs = Outputs(tmp_path, "x")
    make(str(outputs.path("log")) + draft)
    with pytest.raises(InputError, match=rf"x\.mltree\.log{draft} is a {what}"):
        outputs.check(["bestTree", "log"])


def test_a_folder_in_the_place_of_a_file_is_not_removed(tmp_path: Path) -> None:
    outputs = Outputs(tmp_path, "x")
    outputs.path("log").mkdir()
    with pytest.raises(InputError, match=r"cannot remove .*x\.mltree\.log"):
        outputs.remove("log")
