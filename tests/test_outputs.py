"""Files named by a prefix: claimed before a run, written whole."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mltree.errors import InputError
from mltree.outputs import Outputs, write_atomically


def test_names_follow_the_prefix(tmp_path: Path) -> None:
    assert Outputs.of(None, "data/a.phy").path("log") == Path("data/a.phy.mltree.log")
    assert Outputs.of("out/v1.2", "a.phy").path("bestTree") == Path("out/v1.2.mltree.bestTree")


def test_a_claim_needs_free_names(tmp_path: Path) -> None:
    outputs = Outputs(tmp_path / "x")
    outputs.claim(["bestTree"], redo=False)
    outputs.write("bestTree", "(a,b,c);\n")
    with pytest.raises(InputError, match="bestTree exists"):
        outputs.claim(["log", "bestTree"], redo=False)
    outputs.claim(["bestTree"], redo=True)
    outputs.claim(["log"], redo=False)


def test_a_claim_needs_a_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no folder"):
        Outputs(tmp_path / "no" / "x").claim(["log"], redo=False)


def test_a_write_that_fails_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x"
    write_atomically(path, "old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match="No space left"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
