"""Names of taxa: what trees cannot have is replaced, first words that clash get more words."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from mltree.data.alignments import Alignment, MemoryAlignment, read_alignment, read_sequences
from mltree.data.source import NEWICK_SPECIAL, TaxonNumbers, tree_name
from mltree.system.errors import InputError

ROWS = ("ACGTACGA", "ACGTACGC", "ACGTAAGA", "ACGAACGA")


def read(folder: Path, names: list[str], encoding: str = "utf-8") -> Alignment:
    path = folder / "x.fa"
    rows = (ROWS[n % 4] for n in range(len(names)))
    text = "".join(f">{name}\n{row}\n" for name, row in zip(names, rows, strict=True))
    path.write_bytes(text.encode(encoding))
    return read_alignment(path)


@pytest.mark.cases(20, 400)
def test_names_are_what_a_plain_reader_of_newick_takes(tmp_path: Path, case: int) -> None:
    rng = random.Random(case)
    letters = "abcXYZ019_.|/-+é中" + NEWICK_SPECIAL + "\u200b"
    names = [
        f"{n}" + "".join(rng.choices(letters, k=rng.choice([1, 5, 40, 3000])))
        for n in range(rng.randint(4, 30))
    ]
    alignment = read(tmp_path, names)
    assert alignment.n_taxa == len(names)
    for old, new in zip(names, alignment.names, strict=True):
        assert len(old) == len(new)
        assert not set(new) & set(NEWICK_SPECIAL + " \t")
        assert new.isprintable()
        same = all(b in (a, "_") for a, b in zip(old, new, strict=True))
        assert same
        assert (alignment.renamed.get(new, new)) == old


def test_as_iqtree_renames(tmp_path: Path) -> None:
    # iqtree2 2.0.7 -s x.fa, "Some sequence names are changed as follows"
    iqtree = {
        "Pan:1": "Pan_1",
        "A/California/07/2009(H1N1)": "A/California/07/2009_H1N1_",
        "hCoV-19/England|EPI,1": "hCoV-19/England|EPI_1",
        "gi|1;x": "gi|1_x",
        "x[1]": "x_1_",
    }
    assert list(read(tmp_path, list(iqtree)).names) == list(iqtree.values())


def test_first_words_that_clash_get_as_many_more_as_it_takes(tmp_path: Path) -> None:
    headers = ["Homo sapiens x 1", "Homo erectus x 2", "Pan (chimp) x", "Gorilla"]
    alignment = read(tmp_path, headers)
    assert alignment.names == ("Homo_sapiens", "Homo_erectus", "Pan__chimp_", "Gorilla")
    assert alignment.renamed["Homo_sapiens"] == "Homo sapiens"
    assert read(tmp_path, ["a x", "b x", "c y", "d"]).names == ("a", "b", "c", "d")
    assert read(tmp_path, ["a x 1", "a x 2", "c y", "d"]).names == ("a_x_1", "a_x_2", "c_y", "d")


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    names = ["a", "b", "a", "", "c", "b", "", "b", "d:1", "d_1", *(f"{n // 2}" for n in range(20))]
    with pytest.raises(InputError) as raised:
        read(tmp_path, names)
    told = str(raised.value)
    for part in (
        "2 taxa have no name (lines 7, 13)",
        "taxon a occurs twice (lines 1, 5)",
        "taxon b occurs 3 times (lines 3, 11, 15)",
        "taxon d_1, once d:1 and d_1, occurs twice (lines 17, 19)",
        "8 other names are repeated",
    ):
        assert part in told
    assert "\n" not in told


def test_names_that_are_not_utf8_are_latin1(tmp_path: Path) -> None:
    assert "Müller" in read(tmp_path, ["Müller", "b", "c", "d"], "latin-1").names


def test_names_in_memory_keep_what_newick_can_quote() -> None:
    source = MemoryAlignment(("Pan:1", "Homo sapiens", "c\x07"), (b"ACGT",) * 3)
    assert read_sequences(source, lambda _: 2).names == ("Pan:1", "Homo sapiens", "c_")


def test_a_reading_of_phylip_without_odd_names_is_preferred(tmp_path: Path) -> None:
    path = tmp_path / "x.phy"
    path.write_text("4 8\n" + "".join(f"t{n}:x {row}\n" for n, row in enumerate(ROWS)))
    assert read_alignment(path).names == ("t0_x", "t1_x", "t2_x", "t3_x")


def test_trees_of_other_spellings_are_matched() -> None:
    taxa = ["Pan_1", "Homo_sapiens", "a+b", "x_1", "x:1"]
    number = TaxonNumbers(taxa)
    names = ["Pan:1", "Homo sapiens", "a_b", "x_1", "x:1", "x;1", "Pan"]
    assert [number[name] for name in names] == [0, 1, 2, 3, 4, -1, -1]
    assert number.names(["Pan(1", "Pan"]) == ["Pan_1", "Pan"]
    assert tree_name("a b") == "a_b"
