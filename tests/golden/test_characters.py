"""Mk and +ASC at fixed trees, lengths and parameters, against IQ-TREE 2.0.7 (Debian 2.0.7+dfsg-1).

The characters are those of `recoded`: nucleotides as purine and pyrimidine (0, 1) or as four
states, all sites or those that vary, taxa and sites in the file's order. Written as PHYLIP and
scored by
iqtree2 -s <characters> -te trees/<data>.nwk -blfix -nt 1 -m <model>, the model in its own spelling:
JC2, MK, ORDERED, GTR2+FO{0.4,0.6}, +G4{0.5}, +ASC. The files' sha256 are in lnl.tsv. 4 decimals.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mltree.data.alignments import Alignment, read_alignment
from mltree.data.datatype import Letters
from mltree.data.patterns import compress, with_unseen
from mltree.likelihood.ascertainment import AscertainedLikelihood
from mltree.likelihood.left_out import ascertained_parts
from mltree.likelihood.likelihood import Columns, TreeLikelihood
from mltree.models.grammar import parse_model
from mltree.program.cases import Case
from mltree.program.engine import Engine
from mltree.tree.newick import read_newick

FOLDER = Path(__file__).parent
DATASETS = FOLDER.parents[1] / "datasets"
BOUNDS = (0.0, 100.0)
CODES = {"binary": "0101", "four": "0123"}
"""What A, C, G and T become; everything else is a gap."""


def recoded(data: str, code: str, only_variable: bool) -> Alignment:
    real = read_alignment(DATASETS / f"{data}.phy")
    table = np.full(256, ord("-"), np.uint8)
    table[np.frombuffer(b"ACGT", np.uint8)] = np.frombuffer(CODES[code].encode(), np.uint8)
    characters = table[real.characters]
    if only_variable:
        states = [(characters == ord(state)).any(axis=0) for state in sorted(set(CODES[code]))]
        characters = characters[:, np.sum(states, axis=0) > 1]
    return Alignment(real.names, characters, real.path, Letters.of(characters).looks_like)


@pytest.mark.parametrize(
    ("data", "code", "model", "lnl"),
    [
        ("primates", "binary", "BIN+FE+G4{0.5}", -2408.7522),
        ("frogs", "binary", "BIN+FU{0.4/0.6}", -11385.0603),
        ("primates", "four", "MK+G4{0.5}", -6333.4587),
        ("frogs", "four", "ORDERED", -40732.1644),
        ("primates", "four", "MK+ASC_LEWIS", -5188.5161),
        ("frogs", "four", "MK+G4{0.5}+ASC_LEWIS", -20834.6966),
        ("primates", "binary", "BIN+FU{0.4/0.6}+G4{0.5}+ASC_LEWIS", -1249.7878),
    ],
)
def test_lnl(
    data: str, code: str, model: str, lnl: float, open_native: Callable[..., Engine]
) -> None:
    alignment = recoded(data, code, only_variable="ASC" in model)
    patterns = compress(alignment)
    parsed = parse_model(model, alignment.alphabet)
    if parsed.ascertainment is not None:
        patterns = with_unseen(patterns, [parsed.ascertainment])
    tree, _ = read_newick(FOLDER / "trees" / f"{data}.nwk", patterns.taxa)
    arrays = parsed.arrays()
    engine, columns = open_native(patterns, arrays.n_categories), Columns.of([patterns])
    used = TreeLikelihood(engine, BOUNDS, columns)
    if patterns.unseen:
        used = AscertainedLikelihood(engine, BOUNDS, columns, ascertained_parts([patterns]))
    assert used.log_likelihoods([tree], [Case((arrays,))])[0] == pytest.approx(lnl, abs=1e-3)
