"""Parts put together: the same sites in fewer parts, and nothing lost."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mltree.data.alphabet import DNA, PROTEIN
from mltree.data.partitions import Partitioned, merged, only, read_partitioned, side_by_side
from mltree.data.parts import format_sites, read_partitions
from mltree.system.errors import InputError


@pytest.fixture
def data(tmp_path: Path) -> Partitioned:
    """Five parts, one of them of proteins, and strides that interlace."""
    rng = np.random.default_rng(3)
    rows = [
        "".join(rng.choice([*"ACGT-"], 60)) + "".join(rng.choice([*"ARNDC"], 20)) for _ in "1234"
    ]
    path, scheme = tmp_path / "aln.fa", tmp_path / "parts"
    path.write_text("".join(f">t{n}\n{row}\n" for n, row in enumerate(rows)))
    scheme.write_text(
        "DNA, a = 1-30\\3\nAA, p = 61-80\nDNA, b = 2-30\\3\nDNA, c = 3-30\\3\nDNA, d = 31-60\n"
    )
    return read_partitioned(str(path), read_partitions(scheme), lambda _: None)


def test_sites_stay_what_they_are(data: Partitioned) -> None:
    fewer = merged(data, [[4], [3, 0], [1], [2]])
    assert [part.name for part in fewer.parts] == ["a_c", "p", "b", "d"]
    assert [format_sites(part.runs) for part in fewer.parts] == [
        "1-30\\3, 3-30\\3", "61-80", "2-30\\3", "31-60",
    ]  # fmt: skip
    assert [fewer.alphabet(n) for n in range(4)] == [DNA, PROTEIN, DNA, DNA]
    assert fewer.n_sites == data.n_sites
    for n, members in enumerate([[0, 3], [1], [2], [4]]):
        columns = [data.patterns(member).expand() for member in members]
        np.testing.assert_array_equal(fewer.patterns(n).expand(), np.concatenate(columns, axis=1))
        np.testing.assert_array_equal(fewer.has_data[n], data.has_data[members].any(axis=0))
    a_c = fewer.patterns(0)
    assert len({column.tobytes() for column in a_c.codes.T}) == a_c.n_patterns


@pytest.mark.parametrize("subsets", [[[0, 1], [2, 3]], [[0, 1, 2, 3, 4], [4]], [[0, 5], [1, 2, 3]]])
def test_every_part_is_in_one_subset(data: Partitioned, subsets: list[list[int]]) -> None:
    with pytest.raises(ValueError, match="one subset"):
        merged(data, subsets)


def test_names_that_collide_are_refused(tmp_path: Path) -> None:
    path, scheme = tmp_path / "aln.fa", tmp_path / "parts"
    path.write_text("".join(f">t{n}\nACGT\n" for n in range(4)))
    scheme.write_text("DNA, a = 1\nDNA, b = 2\nDNA, a_b = 3\nDNA, c = 4\n")
    own = read_partitioned(str(path), read_partitions(scheme), lambda _: None)
    with pytest.raises(InputError, match="would be called a_b"):
        merged(own, [[0, 1], [2], [3]])


def test_some_of_the_parts(data: Partitioned) -> None:
    group = data.groups[0]
    some = only(group, [2, 0])
    assert [some.codes[:, span].tobytes() for span in some.parts] == [
        group.codes[:, group.parts[n]].tobytes() for n in (2, 0)
    ]
    one = side_by_side(group, [2, 0])
    assert len(one.parts) == 1
    counts = sum(np.array(data.patterns(n).code_counts()) for n in (0, 3))
    np.testing.assert_array_equal(one.code_counts(), counts)
