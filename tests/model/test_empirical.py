"""Tables of the empirical protein models."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from mltree.alignment.alphabet import PROTEIN
from mltree.model.empirical import PROTEIN_MODELS, protein_model
from mltree.model.grammar import parse_model

PAIRS = ["".join(pair) for pair in combinations(PROTEIN.states, 2)]

PUBLISHED = {
    "LG": {"AR": 0.425093, "ND": 5.076149, "IV": 10.649107, "FY": 7.803902, "YV": 0.249313},
    "WAG": {"AR": 55.1571, "ND": 542.942, "IV": 782.13, "AV": 200.601},
    "JTT": {"AR": 58.0, "ND": 528.0, "DE": 767.0, "IV": 961.0, "YV": 16.0},
}
"""Single entries of the published matrices (LG and WAG: the authors' files; JTT: PAML's)."""

FREQUENCIES = {
    "LG": {"A": 0.079066, "L": 0.099081, "W": 0.012066, "V": 0.069147},
    "WAG": {"A": 0.0866279, "L": 0.0862090, "W": 0.0143859, "V": 0.0708956},
    "JTT": {"A": 0.076748, "L": 0.091904, "W": 0.014261, "V": 0.066005},
}


@pytest.mark.parametrize("name", PROTEIN_MODELS)
def test_table_holds_the_published_values(name: str) -> None:
    exchangeabilities, frequencies = protein_model(name)
    table = dict(zip(PAIRS, exchangeabilities, strict=True))
    assert {pair: table[pair] for pair in PUBLISHED[name]} == PUBLISHED[name]
    shares = dict(zip(PROTEIN.states, frequencies, strict=True))
    assert {s: shares[s] for s in FREQUENCIES[name]} == pytest.approx(FREQUENCIES[name], abs=2e-7)


@pytest.mark.parametrize("name", PROTEIN_MODELS)
def test_table_is_whole(name: str) -> None:
    exchangeabilities, frequencies = protein_model(name)
    assert exchangeabilities.shape == (190,)
    assert (exchangeabilities > 0.0).all()
    assert frequencies.shape == (20,)
    assert frequencies.sum() == pytest.approx(1.0, abs=1e-15)
    assert not exchangeabilities.flags.writeable
    assert not frequencies.flags.writeable


@pytest.mark.parametrize("name", PROTEIN_MODELS)
def test_eigen_system_of_the_table(name: str) -> None:
    arrays = parse_model(name, PROTEIN).arrays()
    q = arrays.right @ np.diag(arrays.eigenvalues) @ arrays.left
    assert q.sum(axis=1) == pytest.approx(np.zeros(20), abs=1e-12)
    assert arrays.frequencies @ np.diag(q) == pytest.approx(-1.0)
    a, w = PROTEIN.states.index("I"), PROTEIN.states.index("V")
    ratio = q[a, w] / q[0, 1] * arrays.frequencies[1] / arrays.frequencies[w]
    assert ratio == pytest.approx(PUBLISHED[name]["IV"] / PUBLISHED[name]["AR"])


def test_unknown_table() -> None:
    with pytest.raises(KeyError):
        protein_model("NOPE")
