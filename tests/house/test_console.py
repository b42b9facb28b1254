"""The commands of README and docs are run, and print what the pages say, but for some numbers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

BLOCK = re.compile(r"```console\n\$ (.*?)\n(.*?)```", re.DOTALL)

WITH_BLOCKS = [page for page in PAGES if BLOCK.search(page.read_text(encoding="utf-8"))]

PROGRAMS = {"mltree", "echo", "cat"}

REFUSED = "mltree: "
"""What the output of a command begins with that is there to be refused."""

NUMBER = re.compile(r"[-+]?\d[\d,.:]*(?:e[-+]\d+)?(?:/[\d.]+)*")

DEVICE = re.compile(r"^\d+: |^   |VW=|moves?$")
"""Lines that depend on the device: its description, and how many moves a round took there."""

LNL_TOLERANCE = 0.01
"""Between devices, whose sums round differently on the way."""


def masked(text: str) -> list[str]:
    """Lines with every number as # and blanks as one."""
    return [" ".join(NUMBER.sub("#", line).split()) for line in text.splitlines()]


def final_lnl(text: str) -> float | None:
    found = re.search(r"^Final log-likelihood: (.*)$", text, re.MULTILINE)
    return float(found[1]) if found else None


@pytest.fixture
def shell(tmp_path: Path) -> dict[str, str]:
    """An environment in which ``mltree`` is this one."""
    program = tmp_path / "bin" / "mltree"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m mltree "$@"\n')
    program.chmod(0o755)
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}


@pytest.mark.parametrize("page", WITH_BLOCKS, ids=lambda page: page.stem)
def test_commands_print_what_the_page_says(
    page: Path, shell: dict[str, str], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    measuring = {**shell, "XDG_CACHE_HOME": str(tmp_path / "cache")}  # no other test's layouts
    (folder / "datasets").symlink_to(ROOT / "datasets")
    for command, expected in BLOCK.findall(page.read_text(encoding="utf-8")):
        assert command.split()[0] in PROGRAMS
        run = subprocess.run(
            ["/bin/sh", "-c", command],
            cwd=folder,
            env=measuring if command == "mltree devices" else shell,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,  # as a terminal shows it
            text=True,
            check=False,
        )
        code = 2 if expected.startswith(REFUSED) else 0
        assert run.returncode == code, f"{command}: {run.stdout}"
        compare(run.stdout, expected, command)


def compare(printed: str, expected: str, command: str) -> None:
    """Every line that is expected was printed, and the log-likelihood is the same."""
    drawing = {line for line in masked(expected) if set(line) & set("/|\\")}
    actual = masked(printed)
    for line in expected.splitlines():
        (wanted,) = masked(line) or [""]
        is_loose = DEVICE.search(line) and wanted not in drawing
        assert line == "..." or is_loose or wanted in actual, f"{command}: {line}"
    lnl = final_lnl(expected)
    if lnl is not None:
        assert final_lnl(printed) == pytest.approx(lnl, abs=LNL_TOLERANCE), command


def test_pages_can_be_followed_in_one_folder() -> None:
    """What a page writes no other one does: results are never overwritten."""
    written: dict[str, str] = {}
    for page in WITH_BLOCKS:
        commands = [command for command, _ in BLOCK.findall(page.read_text(encoding="utf-8"))]
        for name in set(re.findall(r"(?:--prefix|-o|>) (\S+)", "\n".join(commands))):
            assert written.setdefault(name, page.stem) == page.stem
    assert {"primates", "tutorial", "guide"} <= written.keys()


def test_every_make_target_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    pages = "\n".join(page.read_text() for page in (*PAGES, ROOT / "CONTRIBUTING.md"))
    targets = set(re.findall(r"(?:^    |`)make ([a-z]+)", pages, re.MULTILINE))
    assert "test" in targets
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
