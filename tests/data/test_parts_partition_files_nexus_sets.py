"""NEXUS sets blocks as IQ-TREE, PAUP and PartitionFinder write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from mltree.data.parts import LAST, Part, nexus_scheme_text, read_partitions, read_sets
from mltree.system.errors import InputError

IQTREE = r"""#nexus
begin sets;
  charset part1 = 1-999\3 2-999\3;  [first and second positions]
  charset part2 = 3-999\3;
  charset part3 = 1000-1998;
  charpartition mine = HKY{2.7}+F{0.2,0.3,0.2,0.3}:part1, GTR+G:part2{0.8}, GTR + G: part3;
end;
"""


def parts_of(text: str) -> list[Part]:
    return read_sets("genes.nex", text)


def facts(text: str) -> list[tuple[object, ...]]:
    return [(part.name, part.model, list(part.runs), part.line) for part in parts_of(text)]


def test_a_block_of_iqtree() -> None:
    assert facts(IQTREE) == [
        ("part1", "HKY{2.7}+F{0.2,0.3,0.2,0.3}", [range(0, 999, 3), range(1, 999, 3)], 3),
        ("part2", "GTR+G", [range(2, 999, 3)], 4),
        ("part3", "GTR + G", [range(999, 1998)], 5),
    ]


def test_without_a_charpartition_every_charset_is_a_part() -> None:
    text = "#NEXUS\nBegin Sets;\nCharSet a=1-5;CHARSET 'b c' (standard) = 6 - . \\ 2;\nEnd;"
    assert facts(text) == [
        ("a", None, [range(5)], 3),
        ("b c", None, [range(5, LAST, 2)], 3),
    ]


def test_a_charpartition_of_the_definition_names_its_sites() -> None:
    text = "#nexus\ncharset x = 1-9;\ncharpartition * p = one: 1-5 8, 'two 2': 6-7, three: x 10;"
    assert facts(text) == [
        ("one", None, [range(5), range(7, 8)], 3),
        ("two 2", None, [range(5, 7)], 3),
        ("three", None, [range(9), range(9, 10)], 3),
    ]


def test_sets_are_made_of_sets() -> None:
    text = "#nexus charset a = 1-9\\3; charset b = 20; charset both = b, a 30-.;"
    assert facts(text)[2] == ("both", None, [range(19, 20), range(0, 9, 3), range(29, LAST)], 1)


def test_files_and_data_types() -> None:
    text = """#nexus
    charset a = gene1.phy: 1-100;
    charset b = 'my genes/b 2.phy': DNA, *;
    charset c = c.phy:;
    charset d = AA, 5-9;
    charset e = C:\\data\\e.phy: codon, 1-.;
    """
    found = [(part.file, part.datatype, list(part.runs)) for part in parts_of(text)]
    assert found == [
        ("gene1.phy", None, [range(100)]),
        ("my genes/b 2.phy", "DNA", [range(LAST)]),
        ("c.phy", None, [range(LAST)]),
        (None, "AA", [range(4, 9)]),
        ("C:\\data\\e.phy", "CODON", [range(LAST)]),
    ]


def test_the_case_of_letters_tells_sets_apart_where_it_must() -> None:
    text = "#nexus\nBEGIN SETS; CHARSET CytB=1-9; charset nd1 = 10-20; charset ND1 = 21-30;\n"
    assert [
        (part.name, part.model)
        for part in parts_of(text + "charpartition m = JC: cytb, HKY: nd1, GTR: ND1; end;")
    ] == [("CytB", "JC"), ("nd1", "HKY"), ("ND1", "GTR")]
    with pytest.raises(InputError, match="there is no charset Nd1$"):
        parts_of(text + "charpartition m = JC: Nd1; end;")


def test_double_quotes_are_quotes() -> None:
    text = """#nexus
    begin sets;
      charset "gene; one" = 1-9;
      charset two = "my [gene].phy": 1-5;
      charpartition m = JC: "gene; one", HKY: two;
    end;"""
    assert [(part.name, part.file) for part in parts_of(text)] == [
        ("gene; one", None),
        ("two", "my [gene].phy"),
    ]


def test_names_that_go_over_lines_leave_a_message_on_one() -> None:
    text = "#nexus\nbegin sets; charset a = 1-9;\ncharpartition m = JC: b\n c;"
    with pytest.raises(InputError, match=r"^genes.nex, line 3: there is no charset b c$"):
        parts_of(text)


def test_other_commands_are_passed_over() -> None:
    text = """#NEXUS
[!a comment [in a comment]; charset no = 1;]
begin data;
  matrix 'charset x = 1;' ACGT
  O''Brien ACGT;
end;
begin sets; taxset t = a b; charset a = 1-4; end;
begin mrbayes; partition p = 1: a; set partition = p; end;
"""
    assert facts(text) == [("a", None, [range(4)], 7)]


def test_one_of_several_charpartitions_is_starred() -> None:
    sets = "#nexus\ncharset a = 1-4;\ncharpartition x = JC: a;\ncharpartition {}y = HKY: a;"
    assert facts(sets.format("* "))[0][1] == "HKY"
    with pytest.raises(InputError, match="line 4: several charpartitions: x and y"):
        parts_of(sets.format(""))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("charset a 1-5;", "cannot read 'charset a 1-5'"),
        ("charset = 1-5;", "cannot read"),
        ("charset a = 1-5; charset a = 6;", "two charsets are called a .the first on line 2"),
        ("charset a = 5-1;", "5-1 run backwards"),
        ("charset a = b;", "cannot read the sites 'b'"),
        ("charset a = : 1-5;", "no file before the colon"),
        ("charset a = x.phy: 1-5; charset b = a 6;", "charset a is of a file of its own"),
        ("charset a = 1-5; charpartition x = JC: b;", "there is no charset b"),
        ("charset a = 1-5; charpartition x = JC;", "MODEL: charset is wanted"),
        ("charset a = 1-5; charpartition x = : a;", "MODEL: charset is wanted"),
        ("charset a (vector) = 1101;", "VECTOR of a is not read: list the sites"),
        ("charset a = 1-5; charpartition x = JC: a{x};", "'x' is not a number"),
        ("charset a = 1-5; charpartition x = JC: a{0};", "0 is not the length of a tree"),
        ("charset a = 1-5; exset * x = 3;", "EXSET ., which is in force, is not supported"),
        ("exclude 3; charset a = 1-5;", "EXCLUDE is not supported"),
        ("charset a = 1-5; begin paup; delete x; end;", "DELETE is not supported"),
        ("charset a = 1-5; wtset * w = 2: 1-5;", "WTSET ., which is in force"),
    ],
)
def test_what_cannot_be_read(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        parts_of("#nexus\n" + text)
    assert (caught.value.file, caught.value.line) == ("genes.nex", 2)
    assert caught.value.hint


def test_names_are_quoted_where_they_must_be(tmp_path: Path) -> None:
    parts = [
        Part(name, (range(n, 9, 4),), model="JC") for n, name in enumerate(("a.b", "it's", "x y"))
    ]
    text = nexus_scheme_text(parts, ["JC"] * 3)
    assert "charset 'it''s' = 2-9\\4;" in text
    path = tmp_path / "best_scheme.nex"
    path.write_text(text)
    assert [part.name for part in read_partitions(path).parts] == ["a.b", "it's", "x y"]


def test_models_are_written_where_all_are_known() -> None:
    parts = [Part("a", (range(4),)), Part("b", (range(4, 9),))]
    assert "charpartition" in nexus_scheme_text(parts, ["JC", "HKY"])
    assert "charpartition" not in nexus_scheme_text(parts, ["JC", None])


MRBAYES = r"""#NEXUS
begin mrbayes;
  charset coi = 1-100;
  charset cytb = 101-200;
  partition genes = 2: coi, cytb;
  partition codons = 3: 1-100\2, 2-100\2, cytb;
  lset applyto=(all) nst=6 rates=gamma;
  SET;
end;
"""


@pytest.mark.parametrize(
    ("choice", "names", "sites"),
    [
        ("partition=genes", ["coi", "cytb"], [100, 100]),
        ("autoclose=yes Partition = codons", ["codons_1", "codons_2", "cytb"], [50, 50, 100]),
    ],
)
def test_a_block_of_mrbayes(choice: str, names: list[str], sites: list[int]) -> None:
    found = parts_of(MRBAYES.replace("SET", f"set {choice}"))
    assert [part.name for part in found] == names
    assert [part.n_sites for part in found] == sites
    assert {part.model for part in found} == {None}


@pytest.mark.parametrize("body", ["3: coi, cytb", "coi, cytb"])
def test_a_partition_of_mrbayes_that_tells_another_number(body: str) -> None:
    text = MRBAYES.replace("2: coi, cytb", body).replace("SET", "set partition=genes")
    with pytest.raises(InputError, match=r"tells .* of parts, and names 2"):
        parts_of(text)


def test_a_charpartition_of_names_alone() -> None:
    text = "#nexus\nbegin sets; charset a = 1-9; charset b = 10-.; charpartition m = a, b; end;"
    assert facts(text) == [("a", None, [range(9)], 2), ("b", None, [range(9, LAST)], 2)]


def test_what_is_defined_and_not_in_force_is_passed_over() -> None:
    text = "#nexus\nbegin sets; exset x = 3; wtset w = 2: 1-5; exset * y = ; charset a = 1-5; end;"
    assert [part.name for part in parts_of(text)] == ["a"]


def test_lengths_of_trees_behind_sets_are_kept() -> None:
    text = "#nexus\ncharset a = 1-5; charset b = 6-9; charpartition x = JC: a{0.5}, JC: b{ 2e-1 };"
    assert [part.tree_length for part in parts_of(text)] == [0.5, 0.2]


@pytest.mark.parametrize("length", ["-1", "0", "1e999"])
def test_a_tree_has_a_length_above_nothing(length: str, tmp_path: Path) -> None:
    path = tmp_path / "sets.nex"
    path.write_text(
        f"#NEXUS\nbegin sets;\n charset a = 1-9;\n charpartition p = JC:a{{{length}}};\nend;\n"
    )
    with pytest.raises(InputError, match="is not the length of a tree"):
        read_partitions(path)


def test_an_open_comment_is_found_in_its_line(tmp_path: Path) -> None:
    path = tmp_path / "sets.nex"
    path.write_text("\n#NEXUS\nbegin sets; [ it\nnever ends\n")
    with pytest.raises(InputError, match=r"no .\]. ends this comment") as raised:
        read_partitions(path)
    assert raised.value.line == 3
