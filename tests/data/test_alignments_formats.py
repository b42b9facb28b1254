"""Files in every dialect give the same alignment."""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltree.data.alignments import Alignment, read_alignment
from mltree.data.alphabet import DNA, PROTEIN, Alphabet
from mltree.data.datatype import Letters, alphabet_named
from mltree.system.errors import InputError

ROWS = {
    "Homo": "ACGTACGTACGTACGTACGTRYKMNACGTAC",
    "Pan_p": "ACGTACGAACGTACGTACGTRYKMNACGTAC",
    "Gorilla": "ACGTACGTACCTACGTACGTR-KMNACGTAC",
    "Pongo.1": "ACGTACGTACGTAC?TACGTRYKMNACGTAA",
    "Hylo|b": "ACGTTTTTACGTACGTACGTRYKMNACG.AC",
}
SITES = 31


def pieces(text: str, width: int) -> list[str]:
    return [text[start : start + width] for start in range(0, len(text), width)]


def grouped(text: str) -> str:
    return " ".join(pieces(text, 10))


def fasta(width: int = SITES) -> str:
    records = [
        f">{name} description\n" + "\n".join(pieces(row, width)) for name, row in ROWS.items()
    ]
    return "\n".join(records) + "\n"


def sequential(width: int = SITES, joint: str = "\n") -> str:
    rows = [f"{name}  {joint.join(pieces(row, width))}" for name, row in ROWS.items()]
    return f"{len(ROWS)} {SITES}\n" + "\n".join(rows) + "\n"


def names_on_their_own_lines() -> str:
    rows = [name + "\n" + "\n".join(pieces(row, 20)) for name, row in ROWS.items()]
    return f"{len(ROWS)} {SITES}\n" + "\n".join(rows) + "\n"


def interleaved(width: int = 12, header: str = "", blank: str = "\n") -> str:
    blocks = len(pieces("x" * SITES, width))
    lines = [f" {len(ROWS)}   {SITES} {header}"]
    for block in range(blocks):
        for name, row in ROWS.items():
            lines.append(
                (f"{name}   " if block == 0 else "     ") + grouped(pieces(row, width)[block])
            )
        lines.append(blank.strip("\n"))
    return "\n".join(lines) + "\n"


def strict(width: int = SITES) -> str:
    rows = [f"{name:<10}" + "\n".join(pieces(row, width)) for name, row in ROWS.items()]
    return f"{len(ROWS)} {SITES}\n" + "\n".join(rows) + "\n"


DIALECTS: dict[str, str] = {
    "FASTA": fasta(),
    "FASTA wrapped": fasta(10),
    "FASTA with blank lines": "\n" + fasta(7).replace("\n>", "\n\n>"),
    "FASTA with a blank before the name": fasta().replace(">", "> "),
    "FASTA with comments": "; made up\n" + fasta(9).replace("\n>", "\n; next\n>"),
    "PHYLIP": sequential(),
    "PHYLIP without a last line end": sequential().rstrip("\n"),
    "PHYLIP with blank lines": "\n" + sequential().replace("\n", "\n\n"),
    "PHYLIP in groups of ten": sequential(10, " "),
    "PHYLIP with tabs": sequential().replace("  ", "\t"),
    "PHYLIP sequential": sequential(9),
    "PHYLIP sequential, S": sequential(9).replace("31", "31 S", 1),
    "PHYLIP sequential, S at the number": sequential(9).replace("31", "31s", 1),
    "PHYLIP sequential, names on their own lines": names_on_their_own_lines(),
    "PHYLIP interleaved": interleaved(),
    "PHYLIP interleaved, I": interleaved(header="I"),
    "PHYLIP interleaved, blanks in blank lines": interleaved(blank="   \n"),
    "PHYLIP strict": strict(),
    "PHYLIP strict sequential": strict(8),
}


def saved(folder: Path, content: str | bytes, name: str = "alignment.txt") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def rows_of(alignment: Alignment) -> dict[str, str]:
    return {
        name: row.tobytes().decode()
        for name, row in zip(alignment.names, alignment.characters, strict=True)
    }


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_dialect(tmp_path: Path, dialect: str) -> None:
    alignment = read_alignment(saved(tmp_path, DIALECTS[dialect]))
    assert rows_of(alignment) == ROWS
    assert alignment.alphabet is DNA
    assert alignment.file_format.startswith(dialect.split(maxsplit=1)[0])
    assert (alignment.n_taxa, alignment.n_sites) == (len(ROWS), SITES)


@pytest.mark.parametrize("dialect", ["FASTA wrapped", "PHYLIP interleaved", "PHYLIP sequential"])
@pytest.mark.parametrize("line_end", ["\r\n", "\r"])
def test_any_line_end(tmp_path: Path, dialect: str, line_end: str) -> None:
    path = saved(tmp_path, DIALECTS[dialect].replace("\n", line_end))
    assert rows_of(read_alignment(path)) == ROWS


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
def test_compressed_whatever_the_name(tmp_path: Path, compress: Callable[[bytes], bytes]) -> None:
    path = saved(tmp_path, compress(DIALECTS["PHYLIP"].encode()), "alignment.phy")
    assert rows_of(read_alignment(path)) == ROWS


def test_gzip_of_several_members(tmp_path: Path) -> None:
    first, second = sequential()[:50].encode(), sequential()[50:].encode()
    path = saved(tmp_path, gzip.compress(first) + gzip.compress(second))
    assert rows_of(read_alignment(path)) == ROWS


def test_byte_order_mark_and_lower_case(tmp_path: Path) -> None:
    lower = sequential()
    for row in ROWS.values():
        lower = lower.replace(row, row.lower())
    assert rows_of(read_alignment(saved(tmp_path, b"\xef\xbb\xbf" + lower.encode()))) == ROWS


def test_strict_names_may_hold_blanks_and_touch_the_sequence(tmp_path: Path) -> None:
    text = "4 6\nHomo sapieACGTAC\nPan pan   ACGTAC\nGorilla_goACGTAC\nP p       ACGTAA\n"
    alignment = read_alignment(saved(tmp_path, text))
    assert alignment.names == ("Homo_sapie", "Pan_pan", "Gorilla_go", "P_p")
    assert alignment.file_format == "PHYLIP, strict names"


def test_names_with_blanks_end_at_two_blanks_or_a_tab(tmp_path: Path) -> None:
    text = "4 6\nHomo sapiens  ACGTAC\nPan paniscus II\tACG TAC\nGorilla  ACGTAC\n P p  ACGTAA\n"
    alignment = read_alignment(saved(tmp_path, text))
    assert alignment.names == ("Homo_sapiens", "Pan_paniscus_II", "Gorilla", "P_p")
    assert alignment.file_format == "PHYLIP, names with blanks"


TWO_LINES_A_TAXON = """5 40 S
MACACAMVLA MKLVAAREMK LVAAREMKLV
ARNDCQEGHI LKMFPSTWYV
MACACAFASC MKLVAAREMK LVAAREMKLV
ARNDCQEGHL LKMFPSTWYV
MACACASYLV MKLVAAREMK LVAAREMKLA
ARNDCQEGHV LKMFPSTWYV
SAIMIRISCI MKLVAAREMK LVAAREMKLC
ARNDCQEGHA LKMFPSTWYV
LEMVRCATTA MKLVAAREMK LVAAREMKLD
ARNDCQEGHC LKMFPSTWYV
"""


def test_a_sequential_file_that_looks_interleaved(tmp_path: Path) -> None:
    alignment = read_alignment(saved(tmp_path, TWO_LINES_A_TAXON))
    assert alignment.names[:2] == ("MACACAMVLA", "MACACAFASC")
    interleaved_names = ("MACACAMVLA", "ARNDCQEGHI", "MACACAFASC")
    told = read_alignment(saved(tmp_path, TWO_LINES_A_TAXON.replace(" S\n", " I\n")))
    assert told.names[:3] == interleaved_names
    with pytest.raises(InputError, match="as PHYLIP interleaved .*ARND.* and as PHYLIP seq"):
        read_alignment(saved(tmp_path, TWO_LINES_A_TAXON.replace(" S\n", "\n")))
    names = TWO_LINES_A_TAXON.replace(" S\n", "\n").replace("ARNDCQEGHI", "ARNDCQEGOI")
    assert read_alignment(saved(tmp_path, names.replace("MACACAMVLA", "MACACAMULO"))).n_sites == 40


def test_a_model_tells_layouts_apart(tmp_path: Path) -> None:
    names = ("MACACAFASC", "LEMVRCATTA", "SAIMIRISCI", "PANPANISCV", "GALAGSENEG")
    seconds = ("RYSWKMRYSW", "KMRYSWKMRY", "SWKMRYSWKM", "YRWSMKYRWS", "MKYRWSMKYR")
    lines = [
        f"{name} {second[::-1]}\n{second} VDHVRYSWKM"
        for name, second in zip(names, seconds, strict=True)
    ]
    path = saved(tmp_path, "5 30\n" + "\n".join(lines) + "\n")
    assert read_alignment(path, model_alphabet=DNA).names == names
    for model in (None, PROTEIN):
        with pytest.raises(InputError, match="can be read as"):
            read_alignment(path, model_alphabet=model)


def test_names_may_be_any_text(tmp_path: Path) -> None:
    names = ("Δέλτα", "a/b=1", "x" * 300, "42")
    text = "".join(f">{name}\nACGT\n" for name in names)
    assert read_alignment(saved(tmp_path, text)).names == names


def test_rna_is_dna(tmp_path: Path) -> None:
    alignment = read_alignment(saved(tmp_path, sequential().replace("T", "U")))
    assert alignment.alphabet is DNA
    assert (DNA.encode(alignment.characters[0]) == DNA.encode(_bytes(ROWS["Homo"]))).all()


def _bytes(text: str) -> np.ndarray:
    return np.frombuffer(text.encode(), np.uint8)


PROTEINS = ">a\nMKVLEF-IQX*\n>b\nMKVLEFPIQBZ\n>c\nMKVLDFPIQJ?\n>d\nMKVLEFPIH..\n"


@pytest.mark.parametrize(
    ("text", "alphabet"),
    [
        (PROTEINS, PROTEIN),
        (PROTEINS.lower(), PROTEIN),
        (">a\nMKV\n>b\nMKV\n>c\nMRV\n>d\nMKV\n", PROTEIN),
        (">a\n---\n>b\nNNN\n>c\n???\n>d\n---\n", DNA),
        (">a\n---\n>b\nXXX\n>c\n???\n>d\n---\n", DNA),
        (">a\nRYKACGT\n>b\nACGTACG\n>c\nACGTACC\n>d\nNNNNACG\n", DNA),
    ],
)
def test_the_data_type_is_detected(tmp_path: Path, text: str, alphabet: Alphabet) -> None:
    assert read_alignment(saved(tmp_path, text)).alphabet is alphabet


def test_the_data_type_can_be_forced(tmp_path: Path) -> None:
    path = saved(tmp_path, sequential().replace("R", "A").replace("Y", "C"))
    assert read_alignment(path, "protein").alphabet is PROTEIN
    assert read_alignment(path, "dna").alphabet is read_alignment(path, "RNA").alphabet is DNA
    with pytest.raises(InputError, match="unknown data type 'codons'"):
        alphabet_named("codons")


def test_a_few_typing_errors_do_not_make_a_protein() -> None:
    characters = np.frombuffer(b"ACGT" * 25, np.uint8).reshape(4, 25).copy()
    characters[2, 3] = ord("E")
    assert Letters.of(characters).looks_like is DNA


names = st.lists(
    st.text("ACGTabcxyz019_|.-", min_size=1, max_size=14), min_size=4, max_size=7, unique=True
)


@st.composite
def alignments(draw: st.DrawFn) -> tuple[list[str], list[str]]:
    taxa = draw(names)
    sites = draw(st.integers(1, 45))
    row = st.text("ACGTNRY-", min_size=sites, max_size=sites)
    return taxa, [draw(row) for _ in taxa]


@given(alignments(), st.integers(1, 30), st.sampled_from(["fasta", "phylip", "interleaved"]))
def test_any_alignment_in_any_wrapping(
    tmp_path_factory: pytest.TempPathFactory,
    alignment: tuple[list[str], list[str]],
    width: int,
    layout: str,
) -> None:
    taxa, rows = alignment
    path = tmp_path_factory.getbasetemp() / "wrapped.txt"
    path.write_text(_written(taxa, rows, width, layout))
    read = read_alignment(path, "DNA")
    assert rows_of(read) == dict(zip(taxa, rows, strict=True))


def _written(taxa: list[str], rows: list[str], width: int, layout: str) -> str:
    cut = [pieces(row, width) for row in rows]
    if layout == "fasta":
        records = [f">{taxon}\n" + "\n".join(row) for taxon, row in zip(taxa, cut, strict=True)]
        return "\n".join(records)
    lines = [f"{len(taxa)} {len(rows[0])}"]
    if layout == "phylip":
        lines += [f"{taxon} " + "\n".join(row) for taxon, row in zip(taxa, cut, strict=True)]
    else:
        for block in range(len(cut[0])):
            heads = [f"{taxon} " if block == 0 else "" for taxon in taxa]
            lines += [head + row[block] for head, row in zip(heads, cut, strict=True)]
    return "\n".join(lines)
