"""Alignments of other libraries are the same sequences; what is none is one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mltree.data.alignments import MemoryAlignment, read_alignment
from mltree.runs.inputs import given, source_of, written
from mltree.system.errors import InputError

ROWS = {"a": "ACGTACGTNN", "b": "ACGTACGAAA", "c": "ACTTACGA-A", "d_x": "AGTTACGA-A"}
SAME = MemoryAlignment(tuple(ROWS), tuple(row.encode() for row in ROWS.values()))

ASCII = np.array([list(row) for row in ROWS.values()], "S1")


@pytest.mark.parametrize(
    "alignment",
    [
        ROWS,
        list(ROWS.items()),
        ((name, list(row)) for name, row in ROWS.items()),
        {name: row.encode() for name, row in ROWS.items()},
    ],
    ids=["mapping", "pairs", "generator", "bytes"],
)
def test_plain_python(alignment: Any) -> None:
    assert given(alignment) == SAME


@pytest.mark.parametrize(
    "array",
    [ASCII, ASCII.astype("U1"), ASCII.astype("U1").astype(object), ASCII.view(np.uint8),
     np.asfortranarray(ASCII.view(np.uint8))],
    ids=["S1", "U1", "object", "uint8", "by columns"],
)  # fmt: skip
def test_arrays(array: np.ndarray[Any, Any]) -> None:
    assert given(array, list(ROWS)) == SAME


def _biopython() -> Any:
    align = pytest.importorskip("Bio.Align")
    record = pytest.importorskip("Bio.SeqRecord").SeqRecord
    sequence = pytest.importorskip("Bio.Seq").Seq
    return align.MultipleSeqAlignment(
        [record(sequence(row), id=name) for name, row in ROWS.items()]
    )


def _cogent3() -> Any:
    return pytest.importorskip("cogent3").make_aligned_seqs(ROWS, moltype="dna")


def _skbio(named: bool) -> Any:
    skbio = pytest.importorskip("skbio")
    rows = [skbio.DNA(row, metadata={"id": name}) for name, row in ROWS.items()]
    return skbio.TabularMSA(rows, index=list(ROWS) if named else None)


def _dendropy() -> Any:
    return pytest.importorskip("dendropy").DnaCharacterMatrix.from_dict(ROWS)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "make",
    [_biopython, lambda: _biopython().alignment, _cogent3, lambda: _skbio(False),
     lambda: _skbio(True), _dendropy],
    ids=["biopython", "biopython's new", "cogent3", "scikit-bio", "scikit-bio's index",
         "dendropy"],
)  # fmt: skip
def test_libraries(make: Any) -> None:
    assert given(make()) == SAME


def test_tables_of_pandas() -> None:
    pandas = pytest.importorskip("pandas")
    series = pandas.Series(ROWS)
    sites = pandas.DataFrame([list(row) for row in series], index=series.index)
    for table in (series, series.to_frame(), series.reset_index(), sites):
        assert given(table) == SAME


def test_names_can_be_given() -> None:
    assert given(ROWS, ["w", "x", "y", "z"]).names == ("w", "x", "y", "z")


@pytest.mark.parametrize(
    ("alignment", "taxa", "line"),
    [
        (ASCII, None, "an array has no names"),
        (ASCII, ["a"], "1 taxa for 4 rows"),
        (ROWS, ["a"], "1 taxa for 4 sequences"),
        (ASCII[0], ["a"], "an array of 1 axes"),
        (ASCII.view(np.uint8).astype(float), list("abcd"), "an array of float64"),
        (7, None, "int is not an alignment"),
        ([1, 2], None, "list is not an alignment"),
        ("x.fa", ["a"], "x.fa: taxa: a file has names"),
        ({"a": "ACGÜ"}, None, "the sequence of a has characters that are not ASCII"),
    ],
)
def test_what_is_none(alignment: Any, taxa: list[str] | None, line: str) -> None:
    with pytest.raises(InputError) as raised:
        source_of(alignment, taxa)
    assert line in str(raised.value)


def test_they_are_checked_as_files_are(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"^the alignment: taxon b, site 3: '@' is not a DNA"
    ) as raised:
        read_alignment(given({**ROWS, "b": "AC@TACGAAA"}), "DNA")
    assert raised.value.line is None
    path = written(SAME, tmp_path / "x.fasta")
    one, other = read_alignment(path), read_alignment(SAME)
    assert one.names == other.names
    assert (one.characters == other.characters).all()
    assert source_of(tmp_path / "x.fasta") == path
