"""Loci side by side keep their patterns."""

from __future__ import annotations

import numpy as np

from mltree.data.alignments import Alignment
from mltree.data.alphabet import DNA
from mltree.data.codons import codon_alphabet
from mltree.data.partitions import table_of_tips
from mltree.data.patterns import Patterns, compress


def locus(*rows: str) -> Patterns:
    names = tuple(f"t{number}" for number in range(len(rows)))
    characters = np.array([list(row.encode()) for row in rows], np.uint8)
    return compress(Alignment(names, characters, "made up", DNA))


def test_every_part_is_a_locus_above_rows_of_gaps() -> None:
    loci = [locus("AACG", "ACGT", "AAAA", "ACCC"), locus("AT", "TA"), locus("C", "G", "T")]
    table = table_of_tips(loci)
    assert table.n_tips == len(table.taxa) == 4
    assert table.n_sites == 7
    for own, part in zip(loci, table.parts, strict=True):
        np.testing.assert_array_equal(table.codes[: own.n_tips, part], own.codes)
        assert (table.codes[own.n_tips :, part] == DNA.gap_code).all()
        np.testing.assert_array_equal(table.weights[part], own.weights)
    expanded = table.expand()
    np.testing.assert_array_equal(expanded[:, :4], loci[0].expand())
    np.testing.assert_array_equal(expanded[:3, 6:], loci[2].expand())


def test_a_lone_locus_is_one_part() -> None:
    own = locus("AACG", "ACGT", "AAAA")
    assert table_of_tips([own]).parts == own.parts


def test_loci_of_codons_have_codes_for_each_other_s_triplets() -> None:
    rows = (("ATGRAA", "ATGAAA"), ("TTYATG", "TTCATG"), ("ATGATG", "ATGATA"))
    loci = []
    for own in rows:
        characters = np.array([list(row.encode()) for row in own], np.uint8)
        alphabet = codon_alphabet(1).covering([characters])
        loci.append(compress(Alignment(("a", "b"), characters, "", alphabet)))
    table = table_of_tips(loci)
    for locus, part in zip(loci, table.parts, strict=True):
        known = locus.alphabet.tip_table[locus.codes]
        assert np.array_equal(table.alphabet.tip_table[table.codes[:, part]], known)
