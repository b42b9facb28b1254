"""Hints: the name that a misspelt one was meant to be."""

import numpy as np
import pytest

from mltree.system.errors import MOST_KNOWN, did_you_mean

LETTERS = list("abcdefghijklmnopqrstuvwxyz")


@pytest.mark.parametrize("seed", range(20))
def test_one_wrong_letter_is_seen_through(seed: int) -> None:
    rng = np.random.default_rng([seed, 390])
    names = ["".join(rng.choice(LETTERS, 9)).title() for _ in range(50)]
    meant = str(rng.choice(names))
    place = int(rng.integers(9))
    others = {"left out": "", "replaced": "_", "doubled": meant[place] * 2}
    for change in others.values():
        misspelt = meant[:place] + change + meant[place + 1 :]
        assert did_you_mean(misspelt.upper(), names) == f"did you mean {meant}?"


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("Homo", "did you mean Homo_sapiens_neanderthalensis?"),
        ("zzz", "there is none"),
        ("", "there is none"),
    ],
)
def test_a_beginning_is_enough_and_nothing_is_not(word: str, hint: str) -> None:
    names = ["Pongo", "Homo_sapiens_neanderthalensis"]
    assert did_you_mean(word, names, "there is none") == hint


def test_many_names_are_not_all_compared() -> None:
    names = [f"taxon{n}" for n in range(MOST_KNOWN)]
    assert did_you_mean("Gorila", [*names, "Gorilla"]) is None
