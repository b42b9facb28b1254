"""The commands of NEXUS files, which alignments, sets and trees are all read from."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from mltree.data.alignments import read_alignment
from mltree.data.nexus import is_nexus, nexus_commands
from mltree.data.parts import read_sets
from mltree.system.errors import InputError
from mltree.tree.newick import newick_of

TEXT = """
#Nexus [of [two] levels;
] begin x; title 'a;''b'  "c;[d]" it's[, "]
;; ' [e]; end"""


def test_commands_know_their_lines_and_comments() -> None:
    commands = list(nexus_commands(TEXT, None))
    assert [(c.line, c.word, c.comments, c.is_ended) for c in commands] == [
        (2, "BEGIN", "[of [two] levels;\n]", True),
        (2, "TITLE", '[, "]', True),
        (3, "", "", True),
        (3, "", "[e]", True),
        (3, "END", "", False),
    ]
    assert commands[0].block == "X"
    assert commands[1].rest == """ 'a;''b'  "c;[d]" it's\n"""
    assert [c.text for c in nexus_commands("#nexus a[b\nc]d;", None, gap=" ")] == ["a \nd"]


def test_an_open_comment_is_refused_at_its_line() -> None:
    with pytest.raises(InputError, match=r"^f, line 9: no '\]' ends this comment"):
        list(nexus_commands("#nexus a;\n[b [c]", "f", numbers=(7, 9)))


def test_nexus_begins_with_its_name() -> None:
    assert is_nexus("\n #NEXUS\n")
    assert not is_nexus("#NEXUSX")


@pytest.mark.cases(10, 500)
def test_one_file_has_an_alignment_sets_and_trees(tmp_path: Path, case: int) -> None:
    """Whatever comments and names are in the other blocks, each block's reader finds its own."""
    rng = random.Random(case)
    names = rng.sample(["a", "'b c'", "'d;e'", "'f''g'", "h-1", "'[i]'", "j"], 4)

    def gap() -> str:
        return rng.choice([" ", "\n", " [x;'] "]) + rng.choice(["", "[&z [\n]]"])

    blocks = [
        f"begin data;{gap()}dimensions ntax=4 nchar=3;{gap()}matrix\n"
        + "".join(f"{name} ACG{gap()}\n" for name in "abcd")
        + ";end;\n",
        f"begin sets;{gap()}charset 'x;y' ={gap()}1-2;charset z{gap()}= 3;end;\n",
        f"begin{gap()}trees;tree t ={gap()}({','.join(names)});{gap()}end;\n",
    ]
    rng.shuffle(blocks)
    text = f"#NEXUS{gap()}\n" + "".join(blocks)
    (tmp_path / "x").write_text(text)
    assert read_alignment(tmp_path / "x", "DNA").names == tuple("abcd")
    assert [part.name for part in read_sets("x", text)] == ["x;y", "z"]
    assert newick_of(text, None).strip() == f"({','.join(names)});"
