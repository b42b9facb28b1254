"""Free rates at fixed trees, lengths and parameters, against IQ-TREE 2.0.7 (Debian 2.0.7+dfsg-1).

iqtree2 -s ../../datasets/<data>.phy -te trees/<data>.nwk -blfix -nt 1 -m <model>, the model in its
own spelling: GTR{1.2,3.4,0.7,0.9,4.1}+F{0.31,0.22,0.19,0.28}+R3{0.5,0.1,0.3,1.0,0.2,3.25}, weights
and rates in turn. The files' sha256 are in lnl.tsv. 4 decimals.
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
DATASETS = FOLDER.parents[1] / "datasets"

GTR = "GTR{1.2/3.4/0.7/0.9/4.1/1}+FU{0.31/0.22/0.19/0.28}"
THREE = "+R3{0.1/1/3.25}{0.5/0.3/0.2}"
TWO = "+R2{0.3/2.6333333333333333}{0.7/0.3}"


@pytest.mark.parametrize(
    ("data", "model", "lnl"),
    [
        ("primates", GTR + THREE, -5902.3044),
        ("primates", GTR + TWO, -5926.7183),
        ("animals", GTR + THREE, -21498.5991),
        ("animals", GTR + TWO, -21748.1700),
        ("frogs", GTR + THREE, -22219.0974),
        ("frogs", GTR + TWO, -22494.8308),
        ("proteins", "LG+R4{0.05/0.5/1.5/4.125}{0.25/0.4/0.25/0.1}", -12445.6130),
    ],
)
def test_lnl(data: str, model: str, lnl: float, open_native: Callable[..., Engine]) -> None:
    patterns = compress(read_alignment(DATASETS / f"{data}.phy"))
    tree, _ = read_newick(FOLDER / "trees" / f"{data}.nwk", patterns.taxa)
    arrays = parse_model(model, patterns.alphabet).arrays()
    likelihood = TreeLikelihood(open_native(patterns, arrays.n_categories), (0.0, 100.0))
    assert likelihood.log_likelihoods([tree], [Case((arrays,))])[0] == pytest.approx(lnl, abs=1e-3)
