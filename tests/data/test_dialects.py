"""Files in any dialect of FASTA and PHYLIP, made from known data: no misreading, no refusal.

A file that its dialect makes ambiguous is known by an oracle that tries every reading, one
character at a time; it must be refused.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from mltree.data.alignments import Alignment, read_alignment
from mltree.system.errors import InputError

BATCH = 40

LETTERS = {
    "dna": ("ACGT" * 8 + "RYKMSWN-?", "ACGTUNOXRYSWKMBDHV-?."),
    "rna": ("ACGU" * 8 + "RYKMSWN-?", "ACGTUNOXRYSWKMBDHV-?."),
    "protein": ("ARNDCQEGHILKMFPSTWYV" * 3 + "BZX-?*", "ARNDCQEGHILKMFPSTWYVBZJX*-?."),
}
"""What rows are drawn from, and every character of that data type."""

NAME_CHARACTERS = "ABCDEFGHIKLMNPQRSTVWXYZabcxyz0123456789_|./-+=#@*%"

Rows = tuple[tuple[str, str], ...]
"""Names with their sequences, in the order of the file."""


@dataclass
class Case:
    """A file and what is in it."""

    text: str
    data: bytes
    truth: Rows
    datatype: str | None
    """Told for proteins that hold no letter of their own: nothing else could tell."""


def chance(rng: random.Random, share: float) -> bool:
    return rng.random() < share


def drawn(rng: random.Random, letters: str, length: int) -> str:
    return "".join(rng.choices(letters, k=length))


def rows_of(rng: random.Random, letters: str, taxa: int, sites: int) -> list[str]:
    """Relatives of one sequence, none of gaps only."""
    ancestor = drawn(rng, letters, sites)
    rate = rng.choice([0.02, 0.2, 0.9])
    rows = [
        "".join(drawn(rng, letters, 1) if chance(rng, rate) else letter for letter in ancestor)
        for _ in range(taxa)
    ]
    return [row if re.search("[ACGTU]", row) else letters[0] + row[1:] for row in rows]


def names_of(rng: random.Random, style: str, letters: str, taxa: int) -> list[str]:
    names: list[str] = []
    while len(names) < taxa:
        if style == "relaxed":
            name = drawn(rng, rng.choice([NAME_CHARACTERS, NAME_CHARACTERS + "é", letters[:20]]),
                         rng.choice([1, 3, 9, 10, 11, 25]))  # fmt: skip
        elif style == "strict":
            width = rng.choice([1, 5, 9, 10, 10, 10])
            name = drawn(rng, rng.choice([NAME_CHARACTERS, NAME_CHARACTERS + "  ", letters[:20]]),
                         width)  # fmt: skip
            name = re.sub(" +", " ", name.strip())
        else:
            name = " ".join(drawn(rng, NAME_CHARACTERS, rng.randint(1, 8)) for _ in range(3))
        if name and name not in names and "_".join(name.split()) not in names:
            names.append(name)
    return names


def wrapped(rng: random.Random, row: str, width: int) -> list[str]:
    return [row[start : start + width] for start in range(0, len(row), width)]


def grouped(text: str, size: int) -> str:
    return " ".join(text[start : start + size] for start in range(0, len(text), size))


def fasta(rng: random.Random, names: list[str], rows: list[str]) -> Iterator[str]:
    width = rng.choice([10**6, 60, 7, 1 + len(rows[0]) // 2])
    comments, blanks = chance(rng, 0.2), chance(rng, 0.3)
    for name, row in zip(names, rows, strict=True):
        if comments:
            yield ";a comment, > and all"
        lead, tail = rng.choice(["", "", " "]), rng.choice(["", " a text", "\tACGT", "  "])
        yield f">{lead}{name}{tail}"
        for piece in wrapped(rng, row, width):
            yield grouped(piece, rng.choice([10, 10**6])) + rng.choice(["", "", " "])
            if comments and chance(rng, 0.1):
                yield "; another"
        if blanks:
            yield rng.choice(["", "  "])


def phylip(rng: random.Random, style: str, names: list[str], rows: list[str]) -> Iterator[str]:
    layout = rng.choice(["sequential", "interleaved", "one line"])
    letter = {"sequential": "S", "interleaved": "I"}.get(layout, rng.choice("SI"))
    option = rng.choice(["", "", "", f" {letter}", f" {letter.lower()}", letter])
    yield (
        f"{rng.choice(['', ' ', '   '])}{len(rows)}{rng.choice([' ', '   ', chr(9)])}"
        f"{len(rows[0])}{option}{rng.choice(['', ' '])}"
    )
    width = 10**6 if layout == "one line" else rng.choice([60, 50, 10, 1 + len(rows[0]) // 2])
    size = rng.choice([10, 10, 10**6, 3])
    indent = rng.choice(["", "", "    ", " " * 10])
    own_line = style == "relaxed" and layout == "sequential" and chance(rng, 0.2)
    cut = [wrapped(rng, row, width) for row in rows]
    heads = [
        name if own_line else head(rng, style, name) + grouped(pieces.pop(0), size)
        for name, pieces in zip(names, cut, strict=True)
    ]
    rests = [[indent + grouped(piece, size) for piece in pieces] for pieces in cut]
    blank = rng.choice([[], [""], ["  "]])
    if layout == "interleaved":
        for block in [heads, *zip(*rests, strict=True)]:
            yield from blank
            yield from block
    else:
        for first, rest in zip(heads, rests, strict=True):
            yield first
            yield from rest
            yield from blank


def head(rng: random.Random, style: str, name: str) -> str:
    if style == "strict":
        return f"{name:<10}" + rng.choice(["", "", " "])
    if style == "relaxed":
        return f"{rng.choice(['', '', ' '])}{name}{rng.choice([' ', '  ', chr(9), '          '])}"
    return f"{name}{rng.choice(['  ', '     ', chr(9)])}"


def made(seed: int) -> Case:
    rng = random.Random(seed)
    letters = rng.choice(list(LETTERS))
    taxa = rng.choice([4, 5, 5, 6, 7, 9, 21])
    sites = rng.choice([1, 2, 7, 10, 20, 39, 40, 60, 70, 125])
    style = rng.choice(["fasta", "relaxed", "strict", "spaced"])
    rows = rows_of(rng, LETTERS[letters][0], taxa, sites)
    names = names_of(rng, "relaxed" if style == "fasta" else style, LETTERS[letters][0], taxa)
    written = rng.choice([rows, rows, [row.lower() for row in rows]])
    is_fasta = style == "fasta"
    lines = fasta(rng, names, written) if is_fasta else phylip(rng, style, names, written)
    text = "\n".join(lines) + rng.choice(["\n", "", "\n\n"])
    end = rng.choice(["\n", "\n", "\r\n", "\r"])
    data = rng.choice([b"", b"", b"\xef\xbb\xbf"]) + text.replace("\n", end).encode()
    data += rng.choice([b"", b"", b"", b"\x1a"])
    packed = rng.choice([bytes, bytes, gzip.compress, bz2.compress, lzma.compress])(data)
    truth = tuple(("_".join(n.split()), row) for n, row in zip(names, rows, strict=True))
    untold = letters == "protein" and not re.search("[EFILPQ]", "".join(rows))
    return Case(text, packed, truth, "protein" if untold else None)


# ---------------------------------------------------------------------------------------- oracle


def cut_relaxed(line: str) -> tuple[str, str]:
    name, _, rest = line.strip(" \t").replace("\t", " ").partition(" ")
    return name, rest


def cut_strict(line: str) -> tuple[str, str]:
    raw = line.encode()
    return raw[:10].decode(errors="replace"), raw[10:].decode(errors="replace")


def cut_spaced(line: str) -> tuple[str, str]:
    name, _, rest = line.strip(" \t").replace("\t", "  ").partition("  ")
    return name, rest


def readings(text: str, datatype: str | None = None) -> set[Rows]:
    """Every sound reading of a PHYLIP text."""
    first, *lines = (line for line in text.split("\n") if line.strip())
    match = re.fullmatch(r"(\d+)\s+(\d+)\s*([SIsi]?)", first.strip())
    assert match
    taxa, sites, letter = int(match[1]), int(match[2]), match[3].upper()
    cuts: list[Callable[[str], tuple[str, str]]] = [cut_relaxed, cut_strict, cut_spaced]
    found = set()
    for cut in cuts:
        blocks = None if letter == "S" else in_blocks(lines, taxa, cut)
        for rows in (blocks, None if letter == "I" else in_turn(lines, taxa, sites, cut)):
            if rows is not None and is_sound(rows, sites, datatype):
                found.add(rows)
    return found


def in_blocks(lines: list[str], taxa: int, cut: Callable[[str], tuple[str, str]]) -> Rows | None:
    if len(lines) % taxa:
        return None
    rows = []
    for row in range(taxa):
        name, sequence = cut(lines[row])
        rows.append(normal(name, sequence + "".join(lines[row + taxa :: taxa])))
    return tuple(rows)


def in_turn(
    lines: list[str], taxa: int, sites: int, cut: Callable[[str], tuple[str, str]]
) -> Rows | None:
    queue, rows = list(lines), []
    for _ in range(taxa):
        if not queue:
            return None
        name, sequence = cut(queue.pop(0))
        while queue and len(normal("", sequence)[1]) < sites:
            sequence += queue.pop(0)
        rows.append(normal(name, sequence))
    return None if queue else tuple(rows)


def normal(name: str, sequence: str) -> tuple[str, str]:
    return "_".join(name.split()), "".join(sequence.split()).upper()


def is_sound(rows: Rows, sites: int, datatype: str | None) -> bool:
    names = [name for name, _ in rows]
    letters = {letter for _, row in rows for letter in row}
    return (
        len(set(names)) == len(names)
        and all(name and name.isprintable() and not set(name) & set("()[]:;,'\"") for name in names)
        and all(len(row) == sites for _, row in rows)
        and any(letters <= set(LETTERS[kind][1]) for kind in ([datatype] if datatype else LETTERS))
    )


# ----------------------------------------------------------------------------------------- tests


def contents(alignment: Alignment) -> Rows:
    rows = (row.tobytes().decode() for row in alignment.characters)
    return tuple(zip(alignment.names, rows, strict=True))


def outcome(path: Path, datatype: str | None) -> Rows | str:
    """What is read, or why it is refused."""
    try:
        return contents(read_alignment(path, datatype))
    except InputError as error:
        return str(error)


@pytest.mark.cases(10, 200)
def test_no_file_is_misread_and_no_valid_one_refused(case: int, tmp_path: Path) -> None:
    path = tmp_path / "file"
    for seed in range(case * BATCH, (case + 1) * BATCH):
        file = made(seed)
        path.write_bytes(file.data)
        is_fasta = file.text.lstrip()[0] in ">;"
        ways = {file.truth} if is_fasta else readings(file.text, file.datatype)
        assert file.truth in ways, f"seed {seed}: the generator's own fault"
        found = outcome(path, file.datatype)
        if len(ways) > 1:
            assert str(found).count("(taxa ") == len(ways), f"seed {seed}: {found}\n{file.text}"
        else:
            assert ways == {found}, f"seed {seed}: {found}\n{file.text}"


def ambiguous(rng: random.Random) -> str:
    """Two lines a taxon, names of ten letters that could be sequence, odd numbers of taxa."""
    letters = LETTERS["protein"][0][:60]
    taxa, groups = rng.choice([5, 7, 9]), rng.choice([2, 3])
    lines = [f"{taxa} {20 * groups}"]
    for _ in range(taxa):
        lines.append(grouped(drawn(rng, letters, 10 + 10 * groups), 10))
        lines.append(grouped(drawn(rng, letters, 10 * groups), 10))
    return "\n".join(lines) + "\n"


@pytest.mark.cases(10, 200)
def test_a_file_with_two_meanings_is_refused_until_the_header_tells(
    case: int, tmp_path: Path
) -> None:
    text = ambiguous(random.Random(case))
    path = tmp_path / "file"
    path.write_text(text)
    assert len(readings(text)) == 2
    with pytest.raises(InputError, match="as PHYLIP interleaved .* and as PHYLIP sequential"):
        read_alignment(path)
    for letter in "SI":
        first, _, rest = text.partition("\n")
        path.write_text(f"{first} {letter}\n{rest}")
        (expected,) = readings(path.read_text())
        assert contents(read_alignment(path)) == expected
