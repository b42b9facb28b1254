"""Files that cannot be used: one clear line each, with the place where it can be mended."""

from __future__ import annotations

import bz2
import errno
import gzip
import lzma
import os
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltree.data.alignments import read_alignment
from mltree.data.alphabet import UNKNOWN
from mltree.data.source import expect_file, read_bytes
from mltree.system.errors import InputError

FASTA = ">a\nACGT\n>b\nACGA\n>c\nACGC\n>d\nACGG\n"
PHYLIP = "4 8\na ACGTACGT\nb ACGTACGA\nc ACGTACGC\nd ACGTACGG\n"
SEQUENTIAL = "4 8\na ACGTA\nCGT\nb ACGTA\nCGA\nc ACGTA\nCGC\nd ACGTA\nCGG\n"
INTERLEAVED = "4 8\na ACGTA\nb ACGTA\nc ACGTA\nd ACGTA\n\nCGT\nCGA\nCGC\nCGG\n"
PROTEIN = ">a\nMKVLEFPIQ\n>b\nMKVLEFPIQ\n>c\nMKVLDFPIQ\n>d\nMKVLEFPIH\n"


def failure(folder: Path, content: str | bytes, datatype: str | None = None) -> InputError:
    path = folder / "bad.txt"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError) as caught:
        read_alignment(path, datatype)
    assert caught.value.file == str(path)
    assert "\n" not in caught.value.message
    return caught.value


def cut(text: str, line: int) -> str:
    """The first lines of a text."""
    return "".join(text.splitlines(keepends=True)[:line])


CASES: dict[str, tuple[str | bytes, str, int | None, str | None]] = {
    # name: content, message, line, taxon
    "empty": ("", "the file is empty", None, None),
    "blank": (" \n\r\n\t\n", "the file is empty", None, None),
    "byte order mark only": (b"\xef\xbb\xbf\n", "the file is empty", None, None),
    "binary": (bytes(range(256)) * 9, "not a text file", None, None),
    "UTF-16": (FASTA.encode("utf-16"), "not a text file", None, None),
    "prose": ("Dear reader,\n", "neither FASTA nor PHYLIP", 1, None),
    "Newick": ("((a,b),c,d);\n", "a tree, not an alignment", 1, None),
    "NEXUS": ("\n#nexus\nbegin data;\n", "no DATA or CHARACTERS block", 2, None),
    "Clustal": ("CLUSTAL W (1.83)\n", "no sequences", 1, None),
    "Stockholm": ("# STOCKHOLM 1.0\n", "does not end with", 1, None),
    "FASTA ragged": (FASTA.replace("ACGA", "ACG"), "taxon b has 3 sites, but a has 4", 4, "b"),
    "FASTA long": (FASTA.replace("ACGA", "ACG\nAA"), "taxon b has 5 sites, but a has 4", 5, "b"),
    "FASTA truncated": (FASTA[:-3], "taxon d has 2 sites.*truncated", 8, "d"),
    "FASTA truncated in a name": (FASTA[:-5], "taxon d has 0 sites.*truncated", 7, "d"),
    "FASTA without a name": (FASTA.replace(">b", ">"), "1 taxon has no name .line 3", 3, None),
    "FASTA without sites": (">a\n>b\n>c\n>d\n", "has no sites", None, None),
    "duplicate": (FASTA.replace(">c", ">b"), "taxon b occurs twice .lines 3, 5", 5, "b"),
    "duplicate after the blank": (
        FASTA.replace(">b", ">x 1").replace(">c", ">x 1"), "taxon x_1 occurs twice", 5, "x_1"
    ),
    "two taxa": (cut(FASTA, 4), "2 taxa; a tree needs at least 3", None, None),
    "one taxon, PHYLIP": ("1 2\na AC\n", "1 taxon; a tree", None, None),
    "unknown character": (
        FASTA.replace("ACGA", "AC\nG@"), "taxon b, site 4: '@' is not a DNA character", 5, "b"
    ),
    "unknown byte": (
        FASTA.encode().replace(b"ACGA", b"AC\xe9A"), "site 3: a byte that is not ASCII", 4, "b"
    ),
    "unknown, sequential": (SEQUENTIAL.replace("CGA", "C1A"), "taxon b, site 7: '1'", 5, "b"),
    "unknown, interleaved": (INTERLEAVED.replace("CGA", "C1A"), "taxon b, site 7: '1'", 8, "b"),
    "selenocysteine": (PROTEIN.replace("H", "U"), "site 9: 'U' is not an AA", 8, "d"),
    "header of one number": ("4\na AC\n", "not a PHYLIP header", 1, None),
    "header with words": ("4 8 taxa\na AC\n", "not a PHYLIP header", 1, None),
    "header of zero taxa": ("0 8\na AC\n", "the header says 0 taxa and 8 sites", 1, None),
    "header of zero sites": ("4 0\na\nb\nc\nd\n", "has no sites", None, None),
    "header alone": ("4 8\n", "says 4 taxa, but 0 follow", 1, None),
    "absurd header": ("99999999999 8\na AC\n", "says 99999999999 taxa, but 1 follow", 2, None),
    "more taxa in the header": (PHYLIP.replace("4", "5", 1), "says 5 taxa, but 4 follow", 5, None),
    "fewer taxa in the header": (
        PHYLIP.replace("4", "3", 1), "says 3 taxa, but 4 follow", 5, None
    ),
    "half the taxa in the header": (
        PHYLIP.replace("4", "2", 1), "says 2 taxa, but 4 follow", 4, None
    ),
    "more sites in the header": (PHYLIP.replace("8", "9"), "9 sites, but every row has 8", 1, None),
    "fewer sites in the header": (
        PHYLIP.replace("8", "7"), "7 sites, but every row has 8", 1, None
    ),
    "PHYLIP ragged": (PHYLIP.replace("CGA\n", "CG\n"), "8 sites, but taxon b has 7", 3, "b"),
    "PHYLIP truncated": (PHYLIP[:-4], "8 sites, but taxon d has 5", 5, "d"),
    "PHYLIP truncated by lines": (cut(PHYLIP, 4), "says 4 taxa, but 3 follow", 4, None),
    "PHYLIP truncated in a name": (PHYLIP[:-9], "8 sites, but taxon d has 0", 5, "d"),
    "sequential short": (
        SEQUENTIAL.replace("CGC\n", "CG\n"), "taxon c has 7 up to line 7 and 13", 8, "c"
    ),
    "sequential long": (
        SEQUENTIAL.replace("CGC\n", "CGCC\n"), "taxon c has 5 up to line 6 and 9", 7, "c"
    ),
    "sequential truncated": (SEQUENTIAL[:-4], "taxon d has 5", 8, "d"),
    "sequential, fewer taxa": (cut(SEQUENTIAL, 7), "says 4 taxa, but 3 follow", 7, None),
    "sequential, more taxa": (
        SEQUENTIAL + "e ACG\n", "more lines follow the last of the 4", 10, None
    ),
    "interleaved short": (INTERLEAVED.replace("CGC\n", "CG\n"), "taxon c has 7", 9, "c"),
    "interleaved short first block": (
        INTERLEAVED.replace("b ACGTA", "b ACGT"), "taxon b has 7", 3, "b"
    ),
    "names in every block": (
        "4 8\na ACGTA\nb ACGTA\nc ACGTA\nd ACGTA\na CGT\nb CGA\nc CGC\nd CGG\n",
        "the names are repeated in every block", 6, None,
    ),
    "two alignments, sequential": (SEQUENTIAL + SEQUENTIAL, "another alignment begins", 10, None),
    "two alignments, interleaved": (
        INTERLEAVED + "\n" + INTERLEAVED, "another alignment begins", 12, None
    ),
    "interleaved, says S": (
        INTERLEAVED.replace("8", "8 S"), "says sequential, but .* as PHYLIP interleaved", 1, None
    ),
    "sequential, says I": (
        SEQUENTIAL.replace("8", "8I"), "says interleaved, but .* as PHYLIP sequential", 1, None
    ),
    "FASTA below a header": ("4 4\n" + FASTA, "FASTA record below a PHYLIP header", 2, None),
    "comments alone": ("; a\n; b\n", "no '>'", 1, None),
    "a sequence without a name": ("; a\nACGT\n" + FASTA, "no '>' with a name", 2, None),
    "interleaved, wrong header": (INTERLEAVED.replace("8", "9"), "every row has 8", 1, None),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_bad_file(tmp_path: Path, case: str) -> None:
    content, message, line, taxon = CASES[case]
    error = failure(tmp_path, content)
    assert error.line == line
    assert error.taxon == taxon
    with pytest.raises(InputError, match=message):
        raise error


def test_empty_strict_name(tmp_path: Path) -> None:
    text = "4 6\n          ACGTAC\nb         ACGTAC\nc         ACGTAC\nd         ACGTAC\n"
    assert failure(tmp_path, text).line == 2


def test_a_device_is_no_file() -> None:
    for read in (read_alignment, read_bytes, expect_file):
        with pytest.raises(InputError, match="/dev/zero: is a device, not a file"):
            read("/dev/zero")


def test_a_name_that_no_file_can_have(tmp_path: Path) -> None:
    for read in (read_bytes, expect_file):
        with pytest.raises(InputError, match=r"cannot be read \(File name too long\)"):
            read(tmp_path / ("x" * 300))
        with pytest.raises(InputError, match="not a valid file name"):
            read("a\0b")


def test_a_file_to_expect(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        expect_file(tmp_path / "nothing")
    with pytest.raises(InputError, match="is a directory"):
        expect_file(tmp_path)
    (tmp_path / "file").touch()
    expect_file(tmp_path / "file")


def test_protein_given_as_dna(tmp_path: Path) -> None:
    error = failure(tmp_path, PROTEIN, "DNA")
    assert "taxon a, site 4: 'L' is not a DNA character" in error.message
    assert error.hint == "the data look like protein: use a protein model"


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
@pytest.mark.parametrize("kept", [0.3, 0.95])
def test_truncated_compressed_file(
    tmp_path: Path, compress: Callable[[bytes], bytes], kept: float
) -> None:
    data = compress(random.Random(1).randbytes(300))
    message = failure(tmp_path, data[: int(len(data) * kept)]).message
    assert "truncated or damaged" in message


def test_damaged_gzip(tmp_path: Path) -> None:
    data = bytearray(gzip.compress(FASTA.encode() * 9))
    data[len(data) // 2] ^= 0xFF
    assert "truncated or damaged gzip" in failure(tmp_path, bytes(data)).message


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_alignment(tmp_path / "nothing.phy")


def test_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a directory"):
        read_alignment(tmp_path)


def test_unreadable_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused by the system: no mode bits, for root may read everything."""

    def refuse(path: Path) -> bytes:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    (tmp_path / "secret.phy").touch()
    with pytest.raises(InputError, match=r"secret.phy: cannot be read \(Permission denied\)"):
        read_alignment(tmp_path / "secret.phy")


WORDS = ["4 8", "3 3", "4", "0", "a", "bb", "ACGT", "ACG", "ACGTACGT", ">", ">x", "-", "@"]
BREAKS = [" ", "\t", "\n", "\n\n", "\r\n", "\r", "\v", "\0", "é", "#NEXUS"]


@given(
    st.lists(st.sampled_from(WORDS + BREAKS), max_size=40).map("".join),
    st.sampled_from([None, "DNA", "AA"]),
)
def test_whatever_the_text_it_is_an_alignment_or_an_input_error(
    tmp_path_factory: pytest.TempPathFactory, text: str, datatype: str | None
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.txt"
    path.write_bytes(text.encode())
    try:
        alignment = read_alignment(path, datatype)
    except InputError:
        return
    assert alignment.characters.shape == (len(set(alignment.names)), alignment.n_sites)
    assert (alignment.alphabet.encode(alignment.characters) < alignment.alphabet.n_codes).all()


@pytest.mark.cases(30, 2000)
def test_mutated_files_are_alignments_or_input_errors(
    case: int, tmp_path: Path, mutated: Callable[[bytes, random.Random], bytes]
) -> None:
    rng = random.Random(case)
    path = tmp_path / "file"
    for _ in range(20):
        text = rng.choice([FASTA, PHYLIP, SEQUENTIAL, INTERLEAVED, PROTEIN]).encode()
        pack = rng.choice([bytes, bytes, bytes, gzip.compress])
        path.write_bytes(mutated(pack(text), rng))
        with suppress(InputError):
            alignment = read_alignment(path, rng.choice([None, "DNA", "AA"]))
            assert len(set(alignment.names)) == alignment.n_taxa >= 3
            assert (alignment.alphabet.encode(alignment.characters) != UNKNOWN).all()
