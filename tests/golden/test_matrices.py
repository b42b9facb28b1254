"""Every protein matrix, against RAxML-NG and IQ-TREE: ``matrices.tsv`` says how."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mltree.data.alignments import read_alignment
from mltree.data.patterns import compress
from mltree.likelihood.likelihood import TreeLikelihood
from mltree.models.empirical import PROTEIN_MODELS
from mltree.models.grammar import parse_model
from mltree.program.cases import Case
from mltree.program.engine import Engine
from mltree.tree.newick import read_newick

FOLDER = Path(__file__).parent
DATASETS = FOLDER.parents[1] / "datasets"

TOLERANCE = 1e-4
"""Natural log: the same figures, with 6 decimals."""

IQTREE_TOLERANCE = 3e-3
"""The same for figures of which IQ-TREE has rounded a frequency in the sixth decimal."""

UNCOMPARED = {"STMTREV", "DEN", "PMB"}
"""Neither program's figure can be had for their tables; single entries are tested elsewhere."""

LINES = [line for line in (FOLDER / "matrices.tsv").read_text().splitlines() if line[0] != "#"]
ROWS = {name: figures for name, *figures in (line.split("\t") for line in LINES[1:])}


@pytest.fixture(scope="module")
def found(open_native: Callable[..., Engine]) -> dict[str, float]:
    """The lnL of every row."""
    patterns = compress(read_alignment(DATASETS / "proteins.phy"))
    tree, _ = read_newick(FOLDER / "trees" / "proteins.nwk", patterns.taxa)
    texts = [f"{name}+G4{{0.7}}" for name in ROWS]
    cases = [Case((parse_model(text, patterns.alphabet).arrays(),)) for text in texts]
    likelihood = TreeLikelihood(open_native(patterns, 4), (0.0, 100.0))
    return dict(zip(ROWS, likelihood.log_likelihoods([tree] * len(ROWS), cases), strict=True))


def test_every_matrix_has_a_row() -> None:
    assert set(ROWS) == set(PROTEIN_MODELS) - UNCOMPARED


@pytest.mark.parametrize("name", ROWS)
def test_lnl(name: str, found: dict[str, float]) -> None:
    for figure, tolerance in zip(ROWS[name], (TOLERANCE, IQTREE_TOLERANCE), strict=True):
        if figure != "-":
            assert found[name] == pytest.approx(float(figure), abs=tolerance)
