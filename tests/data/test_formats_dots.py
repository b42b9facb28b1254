"""Dots as gaps, and dots as the first sequence's characters."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from mltree.data.alignments import read_alignment
from mltree.data.formats import Dots, spelled_out
from mltree.system.errors import InputError


def matrix(*rows: str) -> np.ndarray:
    return np.array([list(row.encode()) for row in rows], np.uint8)


def relatives(rng: random.Random) -> np.ndarray:
    """Rows that share at least a third of their letters with the first."""
    letters = rng.choice(["ACGT", "ARNDCQEGHILKMFPSTWYV-"])
    sites = rng.randint(30, 90)
    first = rng.choices(letters, k=sites)
    rows = [
        [rng.choice(letters) if rng.random() < 0.5 else letter for letter in first]
        for _ in range(rng.randint(3, 9))
    ]
    return matrix("".join(first), *map("".join, rows))


@pytest.mark.cases(30, 500)
def test_dots_for_every_repeated_letter_are_spelled_out(case: int) -> None:
    rng = random.Random(case)
    truth = relatives(rng)
    dotted = truth.copy()
    for row in dotted[1:] if rng.random() < 0.5 else dotted[2:]:
        row[row == dotted[0]] = ord(".")
    found, dots = spelled_out(dotted, "file")
    assert (found == truth).all()
    assert dots is not None
    assert dots.count == np.count_nonzero(dotted == ord("."))
    assert dotted[dots.taxon, dots.site] == ord(".")


@pytest.mark.cases(30, 500)
def test_dots_beside_repeated_letters_are_gaps(case: int) -> None:
    rng = random.Random(case)
    rows = relatives(rng)
    rows[rng.choice([0, 1]) :, : rng.randint(1, 10)] = ord(".")
    found, dots = spelled_out(rows, "file")
    assert dots is None
    assert (found == rows).all()


def test_dots_of_either_kind_are_refused() -> None:
    with pytest.raises(InputError, match="as a gap and as the first sequence's character"):
        spelled_out(matrix("A" * 30, "A" + "C" * 28 + "."), "file")


def test_the_first_dot_is_told() -> None:
    found, dots = spelled_out(matrix("AC-T", "ACGT", "G..A"), "file")
    assert bytes(found[2]) == b"GC-A"
    assert dots == Dots(count=2, taxon=2, site=1)


def test_an_alignment_keeps_what_its_dots_meant(tmp_path: Path) -> None:
    path = tmp_path / "a.phy"
    path.write_text("4 5\na ACGTA\nb ...A.\nc T...C\nd .....\n")
    alignment = read_alignment(path)
    assert [bytes(row).decode() for row in alignment.characters] == [
        "ACGTA", "ACGAA", "TCGTC", "ACGTA",
    ]  # fmt: skip
    assert alignment.dots == Dots(12, 1, 0)
