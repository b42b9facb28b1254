"""Data without constant sites: what is refused, and where the constant patterns go."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mltree.data.alignments import read_alignment
from mltree.data.alphabet import DNA
from mltree.data.patterns import (
    Ascertainment,
    Correction,
    Patterns,
    compress,
    compress_parts,
    constant_sites,
    refuse_constant,
    with_unseen,
)
from mltree.system.errors import InputError

LEWIS = Ascertainment(Correction.LEWIS)


def patterns_of(rows: str, ends: tuple[int, ...]) -> Patterns:
    characters = np.array([list(row.encode()) for row in rows.split()], np.uint8)
    return compress_parts(("a", "b", "c", "d"), DNA.encode(characters), DNA, ends)


def test_sites_that_may_be_constant_are_named() -> None:
    # variable; constant; constant but for a gap; A or G and A; nothing but gaps; variable
    patterns = patterns_of("AAARNA CAAANC AA-A-A CAAANC".replace(" ", "\n"), (6,))
    assert constant_sites(patterns).tolist() == [1, 2, 3, 4]
    with pytest.raises(InputError, match=r"4 sites are \(or may be\): 2, 3, 4, 5"):
        refuse_constant(constant_sites(patterns), "x.phy")
    with pytest.raises(InputError, match=r"part g: .* 12 sites are .* 9, 10 and 2 more"):
        refuse_constant(np.arange(12), "x.phy", "g")
    refuse_constant(np.arange(0), "x.phy")


def test_constant_patterns_stand_behind_those_of_their_part() -> None:
    patterns = patterns_of("ACGT CAGA ACTT CCGT", (2, 4))
    first, second = patterns.parts
    extended = with_unseen(patterns, [LEWIS, None])
    assert [part.stop for part in extended.parts] == [first.stop + 4, second.stop + 4]
    (unseen,) = extended.unseen
    assert (unseen.part, unseen.first) == (0, first.stop)
    assert extended.codes[:, first.stop : first.stop + 4].tolist() == [[1, 2, 4, 8]] * 4
    np.testing.assert_array_equal(extended.expand(), patterns.expand())
    np.testing.assert_array_equal(extended.base_frequencies(), patterns.base_frequencies())
    both = with_unseen(patterns, [LEWIS, LEWIS])
    assert [unseen.first for unseen in both.unseen] == [first.stop, second.stop + 4]
    np.testing.assert_array_equal(both.expand(), patterns.expand())


def test_as_a_term() -> None:
    assert LEWIS.text == "+ASC_LEWIS"
    assert Ascertainment(Correction.STAMATAKIS, (1.0, 2.5)).text == "+ASC_STAM{1/2.5}"


def test_a_lone_part(tmp_path: Path) -> None:
    path = tmp_path / "x.phy"
    path.write_text("4 3\na ACG\nb CAG\nc AAT\nd CCG\n")
    extended = with_unseen(compress(read_alignment(path)), [LEWIS])
    assert extended.ends == ()
    assert extended.weights.tolist()[-4:] == [0.0] * 4
