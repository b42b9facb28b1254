"""Every kind of data and model is sampled, by the reference: a few iterations of a few chains."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from conftest import FUZZING

import mltree

STATES = {"dna": "ACGT", "binary": "01", "multistate": "0123", "protein": "ARNDCQEGHILKMFPSTWYV"}

CODONS = ["".join(each) for each in product("ACGT", repeat=3)]
CODONS = [codon for codon in CODONS if codon not in ("TAA", "TAG", "TGA")]

CASES = {
    "JC": ("dna", []),
    "TN93+I+G4": ("dna", ["r(A<->C)", "pi(A)", "pinvar", "alpha"]),
    "GTR+FC+R3": ("dna", ["r(A<->C)", "rate[1]", "weight[3]"]),
    "BIN+FO+G4": ("binary", ["pi(0)", "pi(1)", "alpha"]),
    "MULTI4_MK": ("multistate", []),
    "MULTI4_GTR": ("multistate", ["r(0<->1)"]),
    "LG+I+G4": ("protein", ["pinvar", "alpha"]),
    "LG+R4": ("protein", ["rate[4]", "weight[4]"]),
    "LG+C10": ("protein", []),
    "LG4X": ("protein", []),
    "GY+F1X4": ("codon", ["omega", "kappa"]),
}
"""Models, the data that they are for, and some of the parameters that are sampled."""


SLOW = ("GY+F1X4", "LG+C10", "LG+R4", "LG+I+G4")
"""Models that take the reference ten seconds or more: ``make fuzz`` has them."""


def random_alignment(kind: str, seed: int) -> dict[str, str]:
    """Five taxa whose rows are alike, two of them the same, with gaps; odd names."""
    rng = np.random.default_rng(seed)
    if kind == "codon":
        pieces, sites = CODONS, 5
    else:
        pieces, sites = list(STATES[kind]), 9
    root = rng.choice(pieces, sites)
    rows = [np.where(rng.random(sites) < 0.3, rng.choice(pieces, sites), root) for _ in range(5)]
    rows[0], rows[4] = np.array(pieces * sites)[:sites], rows[3]
    gap = "-" * len(pieces[0])
    rows[2] = np.where(rng.random(sites) < 0.2, gap, rows[2])
    names = ("a b", "c'd", "e.1", "f|g", "ä")
    return {name: "".join(row) for name, row in zip(names, rows, strict=True)}


@pytest.mark.parametrize("model", CASES if FUZZING else [m for m in CASES if m not in SLOW])
def test_a_model_is_sampled(model: str) -> None:
    kind, labels = CASES[model]
    options = {"data_type": "codon"} if kind == "codon" else {}
    found = mltree.sample(
        random_alignment(kind, 3), model, runs=2, rungs="2", burnin="3", stop="3",
        device="reference", **options,
    )  # fmt: skip
    assert set(labels) <= set(found.parameters), list(found.parameters)
    assert len(found.trees) == 6
    assert found.lnz is not None
    for name, values in found.parameters.items():
        assert values.shape == (2, 3)
        assert np.isfinite(values).all(), name
    assert np.ptp(found.parameters["LnL"]) > 0
    shares = [values for name, values in found.parameters.items() if name.startswith("pi(")]
    assert not shares or np.allclose(sum(shares), 1)
