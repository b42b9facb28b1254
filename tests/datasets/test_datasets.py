"""The shipped alignments are what their README says."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from mltree.data.alignments import read_alignment
from mltree.data.patterns import compress

FOLDER = Path(__file__).parents[2] / "datasets"
README = (FOLDER / "README.md").read_text(encoding="utf-8")
SIZES = {
    name: tuple(map(int, numbers))
    for name, *numbers in re.findall(r"\| `(\w+\.phy)` .*?\| (\d+) × (\d+) \((\d+)\)", README)
}
SUMS = {name: digest for digest, name in re.findall(r"([0-9a-f]{64})  (\S+)", README)}


def test_readme_lists_every_file() -> None:
    files = {path.name for path in FOLDER.glob("*.phy")}
    assert files == set(SIZES)
    assert files | {
        path.name for end in ("part", "nwk", "tsv") for path in FOLDER.glob(f"*.{end}")
    } == set(SUMS)


@pytest.mark.parametrize("name", SUMS)
def test_nothing_has_changed(name: str) -> None:
    assert hashlib.sha256((FOLDER / name).read_bytes()).hexdigest() == SUMS[name]


@pytest.mark.parametrize("name", SIZES)
def test_file(name: str) -> None:
    path = FOLDER / name
    patterns = compress(read_alignment(path))
    assert (patterns.n_tips, patterns.n_sites, patterns.n_patterns) == SIZES[name]
