"""Genotypes: letters, words for them, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mltree.data.alignments import read_alignment
from mltree.data.alphabet import DNA, PHASED, UNKNOWN, UNPHASED, Alphabet
from mltree.data.datatype import Letters, alphabet_named
from mltree.data.patterns import compress
from mltree.runs.problem import summarise
from mltree.system.errors import InputError

LETTERS = {
    "A": "AA", "C": "CC", "G": "GG", "T": "TT", "U": "TT", "M": "AC CA", "R": "AG GA",
    "W": "AT TA", "S": "CG GC", "Y": "CT TC", "K": "GT TG",
}  # fmt: skip
"""libpll-2's ``pll_map_gt16``; of GT10 the first of each."""


def characters(text: str) -> np.ndarray:
    return np.array(list(text.encode()), np.uint8)


@pytest.mark.parametrize("alphabet", [UNPHASED, PHASED])
def test_letters(alphabet: Alphabet) -> None:
    for letter, pairs in LETTERS.items():
        for case in (letter, letter.lower()):
            row = alphabet.tip_table[alphabet.encode(characters(case))[0]]
            named = {state for state, may in zip(alphabet.states, row, strict=True) if may}
            assert named == set(pairs.split()) & set(alphabet.states)
    assert alphabet.tip_table[alphabet.encode(characters("-.?NOXn"))].all()
    assert (alphabet.encode(characters("BDHVZ01*EF")) == UNKNOWN).all()
    written = alphabet.decode(alphabet.state_codes).tobytes().decode()
    assert written == "ACGTMRWSYKMRWSYK"[: alphabet.n_states]


def test_states_are_raxml_ng_s() -> None:
    first = "AA CC GG TT AC AG AT CG CT GT"
    assert " ".join(UNPHASED.states) == first
    assert " ".join(PHASED.states) == f"{first} CA GA TA GC TC TG"


def test_words() -> None:
    assert alphabet_named("gt10") is alphabet_named("diploid10") is UNPHASED
    assert alphabet_named("GT16") is alphabet_named("diploid16") is PHASED


def test_nobody_guesses_them() -> None:
    letters = Letters.of(np.array([characters("AMRWSYKCGT" + 50 * "ACGT")] * 4))
    assert letters.looks_like is DNA
    assert letters.alphabet(PHASED) is PHASED
    assert Letters.of(np.array([characters("BACGTACGT")] * 4)).alphabet(UNPHASED) is UNPHASED


def test_a_wrong_letter_is_named(tmp_path: Path) -> None:
    path = tmp_path / "aln"
    path.write_text(">a\nACGT\n>b\nAMGT\n>c\nAcVT\n>d\nACGT\n")
    with pytest.raises(InputError, match=r"taxon c, site 3: 'V' is not a GT16 character") as caught:
        read_alignment(path, model_alphabet=PHASED)
    assert "M=A/C" in (caught.value.hint or "")


@pytest.mark.parametrize("alphabet", [UNPHASED, PHASED])
def test_heterozygotes_are_as_certain_as_others(tmp_path: Path, alphabet: Alphabet) -> None:
    """Columns: all heterozygous, gaps beside that, informative, nothing alike, all homozygous."""
    path = tmp_path / "aln"
    path.write_text(">a\nMMMAT\n>b\nMNMCT\n>c\nMMAMT\n>d\nMMANT\n")
    alignment = read_alignment(path, model_alphabet=alphabet)
    summary = summarise(alignment, compress(alignment))
    assert (summary.invariant_sites, summary.informative_sites) == (3, 1)
    assert summary.ambiguous_share == 0.0
    assert summary.gap_share == pytest.approx(0.1)
    assert summary.seen == "55.6% heterozygous"
    assert summary.suspicions == ()
