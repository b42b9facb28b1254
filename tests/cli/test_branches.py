"""Branches that are all but nothing, in the trees that runs write."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import Result

from mltree.tree.newick import read_newick

Run = Callable[..., Result]

SITES = 60_000
"""Below the length from which the shortest branch is shorter still."""


def alignment(differences: int, rng: np.random.Generator) -> tuple[list[str], list[str]]:
    """Six taxa, far apart but for two that differ at so many sites; names, sequences."""
    rows = rng.integers(4, size=(1, SITES)).repeat(6, axis=0)
    for row in rows[1:]:
        changed = rng.random(SITES) < 0.1
        row[changed] = rng.integers(4, size=changed.sum())
    rows[5] = rows[4]
    rows[5, :differences] = (rows[4, :differences] + 1) % 4
    return [f"taxon{n}" for n in range(6)], ["".join("ACGT"[s] for s in row) for row in rows]


@pytest.mark.parametrize("differences", [1, 20])
def test_a_search_measures_the_distance_of_near_twins(run: Run, differences: int) -> None:
    """Under JC: -3/4 ln(1 - 4/3 p), which is p here to a part in a thousand."""
    names, rows = alignment(differences, np.random.default_rng(differences))
    fasta = "".join(f">{name}\n{row}\n" for name, row in zip(names, rows, strict=True))
    Path("twins.fa").write_text(fasta)
    result = run("search", "twins.fa", "--model", "JC", "--preset", "fast", "--prefix", "x")
    assert result.exit_code == 0, result.output
    tree, _ = read_newick("x.mltree.bestTree", names)
    twins = [tree.edge[3 * tip] for tip in (4, 5)]
    assert tree.lengths[twins].sum() == pytest.approx(differences / SITES, rel=0.1)
