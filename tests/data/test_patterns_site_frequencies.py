"""Files of the frequencies of sites: read, written, refused by line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mltree.data.patterns import read_site_frequencies, site_frequencies_of, site_frequencies_text
from mltree.system.errors import InputError


def test_what_is_written_is_read(tmp_path: Path) -> None:
    frequencies = np.random.default_rng(1).dirichlet(np.full(20, 0.2), 12)
    path = tmp_path / "x.sitefreq"
    path.write_text(site_frequencies_text(frequencies))
    found = read_site_frequencies(str(path), 20, 12)
    np.testing.assert_allclose(found, frequencies, rtol=1e-8)


def test_lines_come_in_any_order_and_are_scaled_to_one() -> None:
    found = site_frequencies_of("2 0.5 0.25 0.125 0.1255\n\n1 0.4 0.3 0.2 0.1\n", 4, 2, "x")
    np.testing.assert_allclose(found[0], [0.4, 0.3, 0.2, 0.1], rtol=1e-15)
    assert found[1].sum() == pytest.approx(1.0, abs=1e-15)
    assert found[1, 0] == pytest.approx(0.5 / 1.0005)


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        ("1 0.5 0.5\n2 0.5\n", "site 2 has 1 frequencies, not 2", 2),
        ("1 0.5 0.5\n3 0.5 0.5\n", "there is no site 3: the alignment has 2", 2),
        ("0 0.5 0.5\n", "there is no site 0: the alignment has 2", 1),
        ("1 0.5 0.5\n1 0.5 0.5\n", "site 1 has frequencies already", 2),
        ("1 0.5 0.6\n", "frequencies must be positive and must sum to 1", 1),
        ("1 1 0\n", "frequencies must be positive and must sum to 1", 1),
        ("1 1.5 -0.5\n", "frequencies must be positive and must sum to 1", 1),
        ("1 1e999 0.5\n", "frequencies must be positive and must sum to 1", 1),
        ("1 nan 0.5\n", "'nan' is not a number", 1),
        ("one 0.5 0.5\n", "'one' is not a whole number", 1),
        ("2 0.5 0.5\n", "no frequencies for site 1", None),
    ],
)
def test_what_cannot_be_used(text: str, message: str, line: int | None) -> None:
    with pytest.raises(InputError, match=message) as caught:
        site_frequencies_of(text, 2, 2, "x.sitefreq")
    assert (caught.value.file, caught.value.line) == ("x.sitefreq", line)
