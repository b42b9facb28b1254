"""The facts of `mltree check`."""

from __future__ import annotations

from pathlib import Path

import pytest

from mltree.data.alignments import read_alignment
from mltree.data.patterns import compress
from mltree.runs.problem import summarise
from mltree.system.events import AlignmentSummary, Suspicion

DATASETS = Path(__file__).parents[2] / "datasets"


def summary_of(folder: Path, datatype: str | None = None, **rows: str) -> AlignmentSummary:
    path = folder / "a.fa"
    path.write_text("".join(f">{name}\n{row}\n" for name, row in rows.items()))
    alignment = read_alignment(path, datatype)
    return summarise(alignment, compress(alignment))


@pytest.fixture
def summary(tmp_path: Path) -> AlignmentSummary:
    #                         123456789
    return summary_of(
        tmp_path,
        Homo="AACA-RAGA",
        homo="AACA-AAGT",
        c____="AACC-AACA",
        d____="AACCNGACT",
        e____="---------",
    )


def test_counts(summary: AlignmentSummary) -> None:
    assert (summary.taxa, summary.sites, summary.patterns) == (5, 9, 7)
    assert summary.datatype == "DNA"
    assert summary.file_format == "FASTA"


def test_shares(summary: AlignmentSummary) -> None:
    assert summary.gap_share == pytest.approx(13 / 45)
    assert summary.ambiguous_share == pytest.approx(1 / 45)
    # Upper case sorts first: Homo, c, d, e, homo.
    assert summary.taxon_gap_shares == pytest.approx([1 / 9, 1 / 9, 1 / 9, 1, 1 / 9])


def test_frequencies(summary: AlignmentSummary) -> None:
    assert summary.states == "ACGT"
    assert summary.frequencies == pytest.approx([18.5 / 32, 8 / 32, 3.5 / 32, 2 / 32])
    assert summary.absent_states == ()


def test_sites_that_do_not_vary_and_sites_that_tell(summary: AlignmentSummary) -> None:
    assert summary.invariant_sites == 4  # 1, 2, 3 and 7; 6 holds R, A and G
    assert summary.informative_sites == 3  # 4, 8 and 9


def test_empty_rows_and_columns(summary: AlignmentSummary) -> None:
    assert summary.gap_taxa == ("e____",)
    assert summary.gap_sites == (5,)


def test_names_that_differ_in_case_only(summary: AlignmentSummary) -> None:
    assert summary.alike_names == (("Homo", "homo"),)


def test_identical_sequences(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, a="ACGT", b="ACGU", c="ACGG", d="acgt")
    assert summary.identical_sequences == (("a", "b", "d"),)


def test_absent_states(tmp_path: Path) -> None:
    assert summary_of(tmp_path, a="AC", b="AA", c="AA", d="CC").absent_states == ("G", "T")


def test_suspicious_characters_of_dna(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, a="ACGTT", b="A..XX", c="ACOUN", d="ACG-?")
    found = {suspicion.character: suspicion for suspicion in summary.suspicions}
    assert list(found) == [".", "O", "X", "U"]
    assert found["X"] == Suspicion("X", 2, "b", 4, "read as a gap; N is usual in DNA")
    assert (found["."].count, found["."].taxon, found["."].site) == (2, "b", 2)


def test_rna_is_not_suspicious(tmp_path: Path) -> None:
    assert summary_of(tmp_path, a="ACGU", b="ACGU", c="ACGU", d="ACG-").suspicions == ()


def test_suspicious_characters_of_proteins(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, "AA", a="MKVLE*", b="MKVL.X", c="MKVLEF", d="MKVLEF")
    assert [suspicion.character for suspicion in summary.suspicions] == [".", "*"]
    assert summary.datatype == "AA"


def test_a_published_alignment() -> None:
    alignment = read_alignment(DATASETS / "frogs.phy")
    summary = summarise(alignment, compress(alignment))
    # IQ-TREE 2.0.7 on the same file: "664 parsimony-informative, 250 singleton sites, 1062
    # constant sites".
    assert (summary.informative_sites, summary.invariant_sites) == (664, 1062)
    assert (summary.taxa, summary.sites, summary.patterns) == (64, 1976, 890)
    assert summary.identical_sequences == ()
    assert summary.suspicions == ()
