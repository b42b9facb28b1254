"""Little data for the functions that ``import mltree`` offers, with a tree behind them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest


def evolved(seed: int, taxa: int = 7, sites: int = 60, letters: str = "ACGT") -> dict[str, str]:
    """Sequences that have a tree behind them, with a few gaps."""
    rng = random.Random(seed)
    rows = ["".join(rng.choices(letters, k=sites))]
    while len(rows) < taxa:
        parent = rng.choice(rows)
        rows.append("".join(rng.choice(letters) if rng.random() < 0.2 else x for x in parent))
    gapped = ("".join("-" if rng.random() < 0.03 else x for x in row) for row in rows)
    return {f"t{n}": row for n, row in enumerate(gapped)}


@pytest.fixture
def sequences() -> dict[str, str]:
    return evolved(3)


@pytest.fixture
def file(sequences: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The same in a file, in the folder that is worked in."""
    monkeypatch.chdir(tmp_path)
    Path("data.fa").write_text("".join(f">{name}\n{row}\n" for name, row in sequences.items()))
    return "data.fa"
