"""What every file of the project must be: short, portable, fresh."""

import re
import subprocess
from pathlib import Path

import pytest
from contract_header import render_header

import mltree

ROOT = Path(__file__).parents[2]

MAX_LINES = {".py": 800, ".cl": 250, ".h": 300}

HOSTS_AND_PATHS = re.compile(
    r"(registry|index|mirror)[-_a-z]* ?[=:] ?\"?https?:|https?://[^ \"]*/(packages|simple)/|"
    r"pypi\.\w|/(?:home)/[a-z]|(?<![\w.])/(?:root|work)/",
    re.IGNORECASE,
)
"""Package registries, and folders of somebody's machine."""

VAGUE_NAMES = {"utils", "util", "helpers", "helper", "common", "manager", "misc"}


def tracked_files() -> list[Path]:
    """The files under version control; all of them in an unpacked source distribution."""
    git = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if git.returncode == 0:
        files = [ROOT / name for name in git.stdout.split("\0") if name]
    else:
        files = [
            path
            for name in ("mltree", "opencl", "tests")
            for path in ROOT.joinpath(name).rglob("*")
        ]
    return sorted(path for path in files if path.is_file())


RENDERED = ROOT / "opencl" / "contract.h"
SOURCES = [path for path in tracked_files() if path.suffix in MAX_LINES and path != RENDERED]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_source_files_are_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MAX_LINES[path.suffix]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_names_say_what_is_inside(path: Path) -> None:
    assert path.stem not in VAGUE_NAMES


def test_no_file_names_a_registry_or_somebodys_machine() -> None:
    data = {".phy", ".gz", ".png"}
    texts = (path for path in tracked_files() if path.suffix not in data and path != Path(__file__))
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in texts
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if HOSTS_AND_PATHS.search(line)
    ]
    assert not found, "\n".join(found)


def test_the_contract_header_is_fresh() -> None:
    header = ROOT / "opencl" / "contract.h"
    assert header.read_text() == render_header(), "run: python tests/contract_header.py"


def test_every_place_has_the_same_version() -> None:
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {mltree.__version__}\n" in citation
    changelog = (ROOT / "CHANGELOG.md").read_text()
    released = re.findall(r"^## (\d+\.\d+\.\d+)", changelog, re.MULTILINE)
    assert not released or released[0] == mltree.__version__


def test_open_cl_sources_include_only_their_neighbours() -> None:
    sources = {path.name: path for path in (ROOT / "opencl").iterdir()}
    for path in sources.values():
        for included in re.findall(
            r'^#include [<"](.*)[>"]', path.read_text(errors="replace"), re.M
        ):
            assert included in sources, f"{path.name} includes {included}"
