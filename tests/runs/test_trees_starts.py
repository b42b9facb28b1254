"""Starting trees from ``--tree``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mltree.data.alignments import read_alignment
from mltree.data.patterns import compress
from mltree.runs.trees import MAX_STARTS, starting_trees
from mltree.system.errors import InputError
from mltree.system.events import Event, Notice, ignore
from mltree.tree.splits import same_topology
from mltree.treesearch.constraint import read_constraint
from mltree.treesearch.duplicates import Collapsed, collapse

ROWS = ("ACGTACGGTA", "ACGTTCGGTC", "ACTTACGATA", "GCTTACGATC", "GCTTACGATC", "ACGAACGGTT")
TAXA = tuple("abcdef")


@pytest.fixture
def distinct(tmp_path: Path) -> Collapsed:
    """Six taxa, of which e is a copy of d."""
    path = tmp_path / "aln.fa"
    path.write_text("".join(f">{t}\n{row}\n" for t, row in zip(TAXA, ROWS, strict=True)))
    return collapse([compress(read_alignment(path))])


def origins(spec: str, distinct: Collapsed) -> list[str]:
    starts = starting_trees(spec, distinct, TAXA, None, np.random.default_rng(1), ignore)
    assert all(start.tree.n_tips == 5 for start in starts)
    return [start.origin for start in starts]


def test_kinds_and_numbers(distinct: Collapsed) -> None:
    assert origins("pars", distinct) == ["parsimony 1"]
    assert origins("pars{2}, rand{2}", distinct) == [
        "parsimony 1",
        "parsimony 2",
        "random 1",
        "random 2",
    ]


@pytest.mark.parametrize("number", [0, MAX_STARTS + 1])
def test_numbers_have_bounds(distinct: Collapsed, number: int) -> None:
    with pytest.raises(InputError, match="between 1 and"):
        origins(f"rand{{{number}}}", distinct)


@pytest.mark.parametrize("digits", ["9" * 5000, "0" * 4999 + "1"])
def test_absurd_numbers_are_numbers_too(distinct: Collapsed, digits: str) -> None:
    with pytest.raises(InputError, match="between 1 and") as caught:
        origins(f"pars{{{digits}}}", distinct)
    assert len(caught.value.message) < 100


def test_digits_of_other_scripts_are_none(distinct: Collapsed) -> None:
    with pytest.raises(InputError, match="no such file"):
        origins("pars{٣}", distinct)


def test_the_same_generator_gives_the_same_trees(distinct: Collapsed) -> None:
    one, other = (
        starting_trees("rand{3}", distinct, TAXA, None, np.random.default_rng(5), ignore)
        for _ in range(2)
    )
    assert all(same_topology(a.tree, b.tree) for a, b in zip(one, other, strict=True))


def test_trees_of_a_file_lose_copies_and_tell_of_repairs(
    distinct: Collapsed, tmp_path: Path
) -> None:
    path = tmp_path / "two.nwk"
    path.write_text("((a:1,b:1):1,(c:1,(d:1,e:1):1):1,f:1);\n(a:1,b:1,c:1,d:1,e:1,f:1);\n")
    heard: list[Event] = []
    rng = np.random.default_rng(1)
    starts = starting_trees(str(path), distinct, TAXA, None, rng, heard.append)
    assert [start.origin for start in starts] == ["user 1", "user 2"]
    assert all(start.tree.n_tips == 5 for start in starts)
    (notice,) = heard
    assert isinstance(notice, Notice)
    assert "tree 2" in notice.text


def test_starts_of_every_kind_satisfy_a_constraint(distinct: Collapsed) -> None:
    patterns = distinct.groups[0]
    constraint = read_constraint("((a,c),b,d);", patterns.taxa)
    rng = np.random.default_rng(1)
    starts = starting_trees("pars{2},rand{1}", distinct, patterns.taxa, constraint, rng, ignore)
    assert [start.origin for start in starts] == ["parsimony 1", "parsimony 2", "random 1"]
    assert all(constraint.satisfied(start.tree) for start in starts)
