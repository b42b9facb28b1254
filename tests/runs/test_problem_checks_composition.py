"""The χ² test of composition against SciPy's, character by character."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import chi2

from mltree.data.alignments import Alignment, read_alignment
from mltree.data.alphabet import DNA, PROTEIN
from mltree.data.patterns import compress
from mltree.runs.problem import composition_p_values

DATASETS = Path(__file__).parents[2] / "datasets"

IQTREE_FAILURES = {"animals": 8, "chloroplast": 2, "frogs": 0, "carnivores": 42}
"""Sequences that "failed composition chi2 test (p-value<5%)": iqtree2 2.0.7 -m JC -n 0."""


def by_hand(alignment: Alignment) -> list[float]:
    alphabet = alignment.alphabet
    table = alphabet.tip_table / alphabet.tip_table.sum(axis=1, keepdims=True)
    counts = []
    for row in alphabet.encode(alignment.characters):
        kept = [code for code in row if code != alphabet.gap_code]
        counts.append(sum((table[code] for code in kept), np.zeros(alphabet.n_states)))
    totals = np.array(counts).sum(axis=0)
    occurs = totals > 0
    values = []
    for row in counts:
        expected = row.sum() * totals[occurs] / totals.sum()
        statistic = ((row[occurs] - expected) ** 2 / expected).sum() if row.sum() else 0.0
        values.append(float(chi2.sf(statistic, occurs.sum() - 1)))
    order = sorted(range(len(counts)), key=alignment.names.__getitem__)
    return [values[taxon] for taxon in order]


@pytest.mark.cases(10, 300)
def test_p_values_are_scipys(case: int) -> None:
    rng = np.random.default_rng(case)
    alphabet = DNA if case % 2 else PROTEIN
    letters = (alphabet.states[: rng.integers(2, alphabet.n_states + 1)] + "BDV-?").encode()
    rows = [
        rng.choice(list(letters), rng_sites, p=rng.dirichlet(np.ones(len(letters))))
        for rng_sites in [int(rng.integers(1, 200))] * 6
    ]
    names = tuple(rng.permutation(list("abcdef")).tolist())
    alignment = Alignment(names, np.array(rows, np.uint8), "made up", alphabet)
    found = composition_p_values(compress(alignment))
    np.testing.assert_allclose(found, by_hand(alignment), rtol=1e-9, atol=1e-300)


def test_sequences_of_one_state_or_none_pass() -> None:
    rows = np.array([list(b"AA-"), list(b"AAA"), list(b"---"), list(b"A--")], np.uint8)
    found = composition_p_values(compress(Alignment(tuple("abcd"), rows, "made up", DNA)))
    assert found.tolist() == [1.0] * 4


@pytest.mark.parametrize(("name", "failing"), IQTREE_FAILURES.items())
def test_published_alignments_fail_as_often_as_in_iqtree(name: str, failing: int) -> None:
    found = composition_p_values(compress(read_alignment(DATASETS / f"{name}.phy")))
    assert np.count_nonzero(found < 0.05) == failing
