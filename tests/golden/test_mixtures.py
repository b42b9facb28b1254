"""Mixtures at fixed trees, lengths and parameters, against IQ-TREE 2.0.7 and RAxML-NG 1.2.2.

iqtree2 -s ../../datasets/proteins.phy -te trees/proteins.nwk -blfix -nt 1 -m <model>: LG+C10+G4,
C20 (which is POISSON+C20+G4), LG4M, MIX{...}; alpha as it prints it. LG4X at its start is
RAxML-NG's (lnl.tsv says how), which does not scale frequencies of sum 1.000002. The files' sha256
are there.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mltree.data.alignments import read_alignment
from mltree.data.patterns import compress
from mltree.likelihood.likelihood import TreeLikelihood
from mltree.models.grammar import parse_model
from mltree.program.cases import Case
from mltree.program.engine import Engine
from mltree.tree.newick import read_newick

FOLDER = Path(__file__).parent


@pytest.mark.parametrize(
    ("model", "lnl"),
    [
        ("LG+C10+G4{0.6103}", -12312.4997),
        ("POISSON+C20+G4{0.6973}", -12427.7720),
        ("LG4M+G4{0.8962}", -12423.4294),
        ("LG4X", -12393.2917),
        ("MIX{LG:1:0.3,WAG:2:0.7}+G4{0.5}", -12531.2728),
        ("MIX{JTT:1:0.2,VT:0.5:0.5,MTREV:3:0.3}+I{0.1}", -12846.7579),
    ],
)
def test_lnl(model: str, lnl: float, open_native: Callable[..., Engine]) -> None:
    patterns = compress(read_alignment(FOLDER.parents[1] / "datasets" / "proteins.phy"))
    tree, _ = read_newick(FOLDER / "trees" / "proteins.nwk", patterns.taxa)
    arrays = parse_model(model, patterns.alphabet).arrays()
    engine = open_native(patterns, arrays.n_categories, systems=arrays.n_systems)
    found = TreeLikelihood(engine, (0.0, 100.0)).log_likelihoods([tree], [Case((arrays,))])[0]
    assert found == pytest.approx(lnl, abs=1e-3)
