"""The README's commands are run, and print what it says, but for numbers that depend on timing."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()

BLOCKS = re.findall(r"```console\n\$ (.*?)\n(.*?)```", README, re.DOTALL)

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


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each command of the README prints, run in its order in one folder."""
    folder = tmp_path_factory.mktemp("readme")
    (folder / "datasets").symlink_to(ROOT / "datasets")
    printed = {}
    for command, _ in BLOCKS:
        program, *arguments = shlex.split(command)
        assert program == "mltree"
        run = subprocess.run(
            [sys.executable, "-m", "mltree", *arguments],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,  # as a terminal shows it
            text=True,
            check=False,
        )
        assert run.returncode == 0, f"{command}: {run.stdout}"
        printed[command] = run.stdout
    return printed


@pytest.mark.parametrize(("command", "expected"), BLOCKS)
def test_commands_print_what_the_readme_says(
    outputs: dict[str, str], command: str, expected: str
) -> None:
    drawing = {line for line in masked(expected) if set(line) & set("/|\\")}
    actual = masked(outputs[command])
    for line in expected.splitlines():
        (wanted,) = masked(line) or [""]
        is_loose = DEVICE.search(line) and wanted not in drawing
        assert line == "..." or is_loose or wanted in actual, line
    lnl = final_lnl(expected)
    if lnl is not None:
        assert final_lnl(outputs[command]) == pytest.approx(lnl, abs=LNL_TOLERANCE)


def test_every_make_target_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"`?make ([a-z]+)", README + (ROOT / "CONTRIBUTING.md").read_text()):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
