"""Compression into patterns, and what is counted over them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltree.data.alignments import Alignment, read_alignment
from mltree.data.alphabet import DNA, PROTEIN, Alphabet
from mltree.data.patterns import Patterns, compress, identical_taxa

DATASETS = Path(__file__).parents[2] / "datasets"

# A published alignment's +F frequencies as IQ-TREE 2.0.7 reports them to 4 decimals
# (`iqtree2 -s FILE -m GTR+F -n 0`, section "State frequencies: (empirical counts from alignment)").
IQTREE_FREQUENCIES = {
    "primates": (0.3241, 0.3040, 0.1055, 0.2663),
    "frogs": (0.3381, 0.2238, 0.1789, 0.2592),
    "carnivores": (0.3117, 0.2789, 0.1308, 0.2786),
}
IQTREE_TOLERANCE = 0.5e-4 + 1e-6
"""Half of its last digit; the few ambiguities of these sets, which it shares out otherwise, move
a frequency by less than 1e-6."""


def alignment_of(*rows: str, alphabet: Alphabet = DNA, names: str = "") -> Alignment:
    characters = np.array([list(row.encode()) for row in rows], np.uint8)
    taxa = names.split() or [f"t{number:02}" for number in range(len(rows))]
    return Alignment(tuple(taxa), characters, "made up", alphabet)


@st.composite
def alignments(draw: st.DrawFn) -> Alignment:
    alphabet = draw(st.sampled_from([DNA, PROTEIN]))
    letters = "ACGTRN-" if alphabet is DNA else "ARNDVBZJ-"
    sites = draw(st.integers(1, 40))
    few = draw(st.integers(1, len(letters)))
    row = st.text(letters[:few], min_size=sites, max_size=sites)
    rows = draw(st.lists(row, min_size=1, max_size=36))
    names = draw(st.permutations([f"t{number:02}" for number in range(len(rows))]))
    return alignment_of(*rows, alphabet=alphabet, names=" ".join(names))


def sorted_codes(alignment: Alignment) -> np.ndarray:
    order = np.argsort(np.array(alignment.names))
    return alignment.alphabet.encode(alignment.characters)[order]


@given(alignments())
def test_round_trip(alignment: Alignment) -> None:
    patterns = compress(alignment)
    assert patterns.taxa == tuple(sorted(alignment.names))
    assert (patterns.expand() == sorted_codes(alignment)).all()
    assert (patterns.weights == np.bincount(patterns.site_pattern)).all()
    assert patterns.weights.sum() == patterns.n_sites == alignment.n_sites


@given(alignments())
def test_patterns_are_the_distinct_columns_in_order(alignment: Alignment) -> None:
    columns = Counter(bytes(column) for column in sorted_codes(alignment).T)
    patterns = compress(alignment)
    assert [bytes(column) for column in patterns.codes.T] == sorted(columns)
    assert list(patterns.weights) == [columns[column] for column in sorted(columns)]


@given(alignments(), st.randoms())
def test_order_of_taxa_and_sites_does_not_matter(alignment: Alignment, random) -> None:
    taxa, sites = list(range(alignment.n_taxa)), list(range(alignment.n_sites))
    random.shuffle(taxa)
    random.shuffle(sites)
    names = " ".join(alignment.names[taxon] for taxon in taxa)
    rows = [bytes(alignment.characters[taxon, sites]).decode() for taxon in taxa]
    shuffled = compress(alignment_of(*rows, alphabet=alignment.alphabet, names=names))
    patterns = compress(alignment)
    assert shuffled.taxa == patterns.taxa
    assert (shuffled.codes == patterns.codes).all()
    assert (shuffled.weights == patterns.weights).all()


def frequencies_by_hand(alignment: Alignment) -> np.ndarray:
    """One character at a time: 1/k to each of its k states, gaps nothing."""
    totals = np.zeros(alignment.alphabet.n_states)
    for code in alignment.alphabet.encode(alignment.characters).ravel():
        if code != alignment.alphabet.gap_code:
            row = alignment.alphabet.tip_table[code]
            totals += row / row.sum()
    return totals / totals.sum() if totals.any() else np.full(len(totals), 1 / len(totals))


@given(alignments())
def test_base_frequencies(alignment: Alignment) -> None:
    frequencies = compress(alignment).base_frequencies()
    np.testing.assert_allclose(frequencies, frequencies_by_hand(alignment), rtol=1e-12, atol=1e-15)
    assert frequencies.sum() == pytest.approx(1, abs=1e-12)


def test_base_frequencies_share_ambiguities_out_and_leave_gaps_out() -> None:
    patterns = compress(alignment_of("AACR", "AA-N"))
    assert patterns.base_frequencies() == pytest.approx([4.5 / 6, 1 / 6, 0.5 / 6, 0])


def test_base_frequencies_of_gaps_are_equal() -> None:
    assert list(compress(alignment_of("--", "N?")).base_frequencies()) == [0.25] * 4


@pytest.mark.parametrize("name", IQTREE_FREQUENCIES)
def test_base_frequencies_are_iqtrees(name: str) -> None:
    frequencies = compress(read_alignment(DATASETS / f"{name}.phy")).base_frequencies()
    expected = IQTREE_FREQUENCIES[name]
    np.testing.assert_allclose(frequencies, expected, rtol=0, atol=IQTREE_TOLERANCE)


def test_code_counts() -> None:
    counts = compress(alignment_of("AACR", "AA-N")).code_counts()
    assert {DNA.symbols[code]: count for code, count in enumerate(counts) if count} == {
        "A": 4,
        "C": 1,
        "R": 1,
        "-": 2,
    }


def test_code_counts_are_the_callers_own() -> None:
    patterns = compress(alignment_of("AACR", "AA-N"))
    counts = patterns.code_counts()
    counts[:] = 0.0
    assert patterns.code_counts().sum() == 8


def test_identical_taxa_are_equal_code_by_code() -> None:
    patterns = compress(alignment_of("ACN", "ACT", "AC-", "ACU", "GGG"))
    assert identical_taxa([patterns]) == ((0, 2), (1, 3))


@pytest.mark.parametrize("n_taxa", [1, 15, 16, 17, 32, 33])
def test_taxa_at_word_boundaries_count(n_taxa: int) -> None:
    """Columns that differ in the last taxon alone are different patterns."""
    rows = ["AA"] * (n_taxa - 1) + ["AC"]
    for alphabet in (DNA, PROTEIN):
        assert compress(alignment_of(*rows, alphabet=alphabet)).n_patterns == 2


def test_shapes_and_types() -> None:
    patterns: Patterns = compress(alignment_of("ACCA", "ACCT", "ACCA"))
    assert (patterns.n_tips, patterns.n_patterns, patterns.n_sites) == (3, 3, 4)
    assert patterns.codes.dtype == np.uint8
    assert patterns.codes.flags.c_contiguous
    assert patterns.weights.dtype == np.float64
    assert patterns.site_pattern.dtype == np.int32
    assert list(patterns.site_pattern) == [0, 2, 2, 1]
