"""Trees in NEXUS files: as Newick, in their lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from mltree.system.errors import InputError
from mltree.tree.clades import read_clades, read_written
from mltree.tree.newick import newick_of, nexus_trees

FILE = """#NEXUS
[a comment; with; stuff]
BEGIN TAXA;
 DIMENSIONS NTAX=4;
 TAXLABELS A 'B;x' C D;
END;
begin trees;
  translate 1 A, 2 'B;x',
   3 C,
   4 D ;
  tree one = [&U] (1:0.1,(2:0.2,3:0.3)[&prob=0.9]0.9:0.1,4:0.3);
  utree 'two;b' = [&R] ((1,2),
     (3,4));
end;
BEGIN other; tree three = (1,2,3,4); END;
"""


def test_names_are_translated_and_lines_stay() -> None:
    lines = newick_of(FILE, None).split("\n")
    assert lines[10] == "(A:0.1,('B;x':0.2,C:0.3)0.9:0.1,D:0.3);"
    assert "".join(lines[11:13]).replace(" ", "") == "((A,'B;x'),(C,D));"
    assert [line for line in lines if line] == lines[10:13]


def test_every_reader_takes_it(tmp_path: Path) -> None:
    path = tmp_path / "x.nex"
    path.write_text(FILE)
    assert read_clades(path).n_trees == 2
    assert [tree.labels[tip] for tree in read_written(path)[:1] for tip in tree.tips] == [
        "A", "B;x", "C", "D",
    ]  # fmt: skip
    path.write_text(FILE.replace("(3,4));", "(3,4);"))
    with pytest.raises(InputError, match="line 13: parentheses do not match"):
        read_clades(path)


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    trees = ["(a:1,'b c':0.5,(c,d)'9 9':2);", "(a,'b c',c,d);"]
    path = tmp_path / "x.nex"
    path.write_text(nexus_trees(trees))
    assert [tree.newick() for tree in read_written(path)] == trees


def test_a_file_without_trees() -> None:
    with pytest.raises(InputError, match=r"x\.nex: a NEXUS file without trees"):
        newick_of("#NEXUS\nbegin data;\nend;\n", "x.nex")


@pytest.mark.parametrize("text", ["#NEXUS", "#nexus begin trees;", "#NEXUS begin trees; tree ="])
def test_what_is_cut_off_is_no_tree(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.nex").write_text(text)
    with pytest.raises(InputError):
        read_written(tmp_path / "x.nex")


def test_trees_of_different_weights_are_refused() -> None:
    text = (
        "#NEXUS\nbegin trees;\ntree a = [&W 1/3] [&U] (x,y,z);\ntree b = [&W {}] (x,y,z);\nend;\n"
    )
    assert newick_of(text.format("1/3"), None).count(";") == 2
    with pytest.raises(InputError, match="tree weights 1/3 and 2/3 are not supported"):
        newick_of(text.format("2/3"), None)


TAXA = "#NEXUS\nbegin taxa; dimensions ntax=3; taxlabels {}; end;\nbegin trees; {} end;"


@pytest.mark.parametrize(
    ("labels", "trees", "expected"),
    [
        ("A 'B x' C", "tree t = (1,2,3);", "(A,'B x',C);"),
        ("A B C", "tree t = (1:1,(2:2,3:3)2:4)3;", "(A:1,(B:2,C:3)2:4)3;"),
        ("A B C", "translate 1 X, 2 Y, 3 Z; tree t = (1,2,3);", "(X,Y,Z);"),
        ("3 1 2", "tree t = (1,2,3);", "(1,2,3);"),
        ("A B C", "tree t = (1,2,4);", "(A,B,4);"),
    ],
)
def test_numbers_stand_for_taxa(labels: str, trees: str, expected: str) -> None:
    assert newick_of(TAXA.format(labels, trees), None).strip() == expected
