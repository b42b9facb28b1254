"""Scales, ticks and clades of pictures."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mltree.report.style import Clade, dates, nice_length, pale
from mltree.system.errors import InputError


def test_nice_lengths() -> None:
    lengths = [0.00123, 0.1, 0.19, 0.2, 7.0, 50.0]
    assert [nice_length(length) for length in lengths] == pytest.approx(
        [0.001, 0.1, 0.1, 0.2, 5, 50]
    )
    for length in np.random.default_rng(1).lognormal(0, 5, 200).tolist():
        nice = nice_length(length)
        assert nice <= length * 1.0001 < 2.5001 * nice
        assert round(nice / 10 ** math.floor(math.log10(nice) + 1e-9), 6) in {1, 2, 5}


def test_ticks_of_time_are_round_few_and_within_the_tree() -> None:
    rng = np.random.default_rng(1)
    for deepest in rng.lognormal(0, 4, 200).tolist():
        for latest in (None, float(rng.normal(2000, 30))):
            for most in (2, 5, 8):
                ticks = dates(deepest, latest, most)
                assert 1 <= len(ticks) <= most + 1
                assert all(-1e-6 * deepest <= depth <= deepest for depth, _ in ticks)
                if latest is None:
                    for depth, text in ticks:
                        assert float(text) == pytest.approx(deepest - depth, abs=1e-6 * deepest)


def test_clades_are_read_with_and_without_names_and_colours() -> None:
    assert Clade.read("Apes=Homo, Pan:#0072b2") == Clade(("Homo", "Pan"), "Apes", "#0072b2")
    assert Clade.read(" a,b ") == Clade(("a", "b"))
    assert Clade.read("x:y:1,z") == Clade(("x:y:1", "z"))
    for text in ("", "Apes=", "=:#0072b2", " , "):
        with pytest.raises(InputError, match="names no taxon"):
            Clade.read(text)
    with pytest.raises(InputError, match="'#zzz' of 'A=x,y:#zzz' is not a colour"):
        Clade.read("A=x,y:#zzz")


def test_pale_colours_are_near_white() -> None:
    assert pale("#000000") == "#d1d1d1"
    assert pale("#ffffff") == "#ffffff"
