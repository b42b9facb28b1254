"""Cutting alignments into parts, against a cutter that goes character by character."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from mltree.data.alignments import read_alignment
from mltree.data.alphabet import DNA, PROTEIN, Alphabet
from mltree.data.partitions import Partitioned, read_partitioned
from mltree.data.parts import read_partitions
from mltree.data.patterns import compress
from mltree.system.errors import InputError

LETTERS = {DNA: "ACGT" * 6 + "RYN-", PROTEIN: "ARNDCQEGHILKMFPSTWYV" * 2 + "BX-"}

DATASETS = Path(__file__).parents[2] / "datasets"


def alphabet_of(model: str) -> Alphabet | None:
    return {"GTR": DNA, "HKY": DNA, "LG": PROTEIN}.get(model.partition("+")[0])


def cut(folder: Path, rows: dict[str, str], lines: str, datatype: str | None = None) -> Partitioned:
    save(folder / "all.fa", rows)
    (folder / "genes.part").write_text(lines)
    scheme = read_partitions(folder / "genes.part")
    return read_partitioned(str(folder / "all.fa"), scheme, alphabet_of, datatype)


def save(path: Path, rows: dict[str, str]) -> None:
    path.write_text("".join(f">{name}\n{row}\n" for name, row in rows.items()))


@dataclass
class Truth:
    """A part as the test made it."""

    alphabet: Alphabet
    rows: dict[str, str]
    """Its characters, of the taxa that it has."""
    model: str


def random_truth(rng: random.Random, taxa: list[str]) -> Truth:
    alphabet = rng.choice([DNA, PROTEIN])
    sites, letters = rng.randint(1, 25), LETTERS[alphabet]
    ancestor = rng.choices(letters, k=sites)
    rate = rng.choice([0.0, 0.2, 1.0])
    having = rng.sample(taxa, rng.randint(2, len(taxa)))
    rows = {
        name: "".join(rng.choice(letters) if rng.random() < rate else c for c in ancestor)
        for name in having
    }
    rows[having[0]] = letters[0] + rows[having[0]][1:]
    return Truth(alphabet, rows, rng.choice(["GTR", "HKY+G4"]) if alphabet is DNA else "LG+I")


def random_truths(rng: random.Random) -> tuple[list[str], list[Truth]]:
    taxa = [f"t{n}" for n in rng.sample(range(100), rng.randint(4, 20))]
    truths = [random_truth(rng, taxa) for _ in range(rng.randint(1, 6))]
    everywhere = random_truth(rng, taxa)
    letter = LETTERS[everywhere.alphabet][1]
    everywhere.rows = {name: letter + everywhere.rows.get(name, "-" * 99)[1:] for name in taxa}
    sites = min(map(len, everywhere.rows.values()))
    everywhere.rows = {name: row[:sites] for name, row in everywhere.rows.items()}
    return sorted(taxa), [*truths, everywhere]


def check(data: Partitioned, taxa: list[str], truths: list[Truth]) -> None:
    """Every part against its columns, counted one by one."""
    assert data.taxa == tuple(taxa)
    for number, truth in enumerate(truths):
        sites = len(next(iter(truth.rows.values())))
        rows = [truth.rows.get(name, "-" * sites) for name in taxa]
        codes = [[truth.alphabet.code_of[ord(c)] for c in row] for row in rows]
        columns = list(zip(*codes, strict=True))
        counts = Counter(columns)
        found = data.patterns(number)
        assert found.alphabet is data.alphabet(number) is truth.alphabet
        assert list(zip(*found.codes.tolist(), strict=True)) == sorted(counts)
        assert found.weights.tolist() == [counts[column] for column in sorted(counts)]
        assert list(zip(*found.expand().tolist(), strict=True)) == columns
        gap = truth.alphabet.gap_code
        assert data.has_data[number].tolist() == [set(row) != {gap} for row in codes]
    for group, patterns in enumerate(data.groups):
        members = [n for n, its in enumerate(data.group_of_part) if its == group]
        assert [data.place_in_group[n] for n in members] == list(range(len(members)))
        assert len(patterns.parts) == len(members)
        for place, n in enumerate(members):
            np.testing.assert_array_equal(
                patterns.codes[:, patterns.parts[place]], data.patterns(n).codes
            )
    assert len(data.groups) == len({id(truth.alphabet) for truth in truths})


@pytest.mark.cases(6, 300)
def test_parts_of_one_file_against_a_slow_cutter(tmp_path: Path, case: int) -> None:
    """Mixed data types in one file, sites of every part all over it."""
    rng = random.Random(case)
    for _ in range(10):
        taxa, truths = random_truths(rng)
        widths = [len(next(iter(truth.rows.values()))) for truth in truths]
        owners = [n for n, width in enumerate(widths) for _ in range(width)]
        if rng.random() < 0.7:
            rng.shuffle(owners)
        places = [
            [site + 1 for site, owner in enumerate(owners) if owner == n]
            for n in range(len(widths))
        ]
        taken = [0] * len(widths)
        columns = []
        for owner in owners:
            columns.append([truths[owner].rows.get(n, "-" * 99)[taken[owner]] for n in taxa])
            taken[owner] += 1
        rows = {name: "".join(column[n] for column in columns) for n, name in enumerate(taxa)}
        shuffled = dict(rng.sample(list(rows.items()), len(rows)))
        lines = "".join(
            f"{truth.model}, p{n} = {','.join(map(str, places[n]))}\n"
            for n, truth in enumerate(truths)
        )
        data = cut(tmp_path, shuffled, lines)
        check(data, taxa, truths)
        assert data.notices == ()
        assert [list(part.sites + 1) for part in data.parts] == places


@pytest.mark.cases(3, 300)
def test_one_file_a_part_against_a_slow_cutter(tmp_path: Path, case: int) -> None:
    """Taxa are matched by name, whatever their order; those that lack are gaps."""
    rng = random.Random(case)
    for _ in range(10):
        taxa, truths = random_truths(rng)
        lines = ["#nexus", "begin sets;"]
        for n, truth in enumerate(truths):
            shuffled = rng.sample(list(truth.rows.items()), len(truth.rows))
            save(tmp_path / f"gene{n}.fa", dict(shuffled))
            lines.append(f"charset g{n} = gene{n}.fa: {truth.alphabet.name}, *;")
        (tmp_path / "genes.nex").write_text("\n".join([*lines, "end;"]))
        scheme = read_partitions(tmp_path / "genes.nex")
        data = read_partitioned("unused.phy", scheme, alphabet_of)
        check(data, taxa, truths)
        assert data.notices == ("unused.phy is not read: every part has a file of its own",)


def test_one_part_of_everything_is_the_alignment(tmp_path: Path) -> None:
    (tmp_path / "one.part").write_text("GTR, all = 1-898\n")
    path = str(DATASETS / "primates.phy")
    data = read_partitioned(path, read_partitions(tmp_path / "one.part"), alphabet_of)
    whole = compress(read_alignment(path))
    for found in (data.groups[0], data.patterns(0)):
        assert found.taxa == whole.taxa
        np.testing.assert_array_equal(found.codes, whole.codes)
        np.testing.assert_array_equal(found.weights, whole.weights)
        np.testing.assert_array_equal(found.site_pattern, whole.site_pattern)
    assert data.groups[0].ends == ()
    assert data.n_sites == 898


ROWS = {"a": "ACGTMKVLE", "b": "ACGTMKVLE", "c": "ACGAMRILE", "d": "ACTAMKVFE"}
"""Nucleotides, then amino acids."""


def test_words_and_models_tell_the_data_type(tmp_path: Path) -> None:
    for first, second in (("DNA", "AA"), ("GTR", "LG"), ("DNA", "AUTO")):
        data = cut(tmp_path, ROWS, f"{first}, x = 1-4\n{second}, y = 5-9\n")
        assert [data.alphabet(n).name for n in range(2)] == ["DNA", "AA"]
    assert cut(tmp_path, ROWS, "XYZ, x = 1-9", "protein").alphabet(0) is PROTEIN


def test_letters_tell_the_data_type_where_nothing_else_does(tmp_path: Path) -> None:
    rng = random.Random(1)
    blocks = {
        alphabet: ["".join(rng.choices(LETTERS[alphabet], k=60)) for _ in range(5)]
        for alphabet in (DNA, PROTEIN)
    }
    rows = {
        f"t{n}": dna + protein
        for n, (dna, protein) in enumerate(zip(blocks[DNA], blocks[PROTEIN], strict=True))
    }
    sets = "#nexus\ncharset x = 1-60; charset y = 61-119; charset z = 120;"
    data = cut(tmp_path, rows, sets)
    assert [data.alphabet(n).name for n in range(3)] == ["DNA", "AA", "AA"]


def test_doubtful_letters_are_what_the_others_are(tmp_path: Path) -> None:
    """Plain ACGT in two columns of a protein alignment are amino acids."""
    rng = random.Random(2)
    rows = {f"t{n}": "GA" + "".join(rng.choices(LETTERS[PROTEIN], k=80)) for n in range(5)}
    data = cut(tmp_path, rows, "#nexus\ncharset x = 1-2; charset y = 3-82;")
    assert [data.alphabet(n).name for n in range(2)] == ["AA", "AA"]


BAD = {
    # rows, lines: message, line, taxon
    "gaps only": (
        {"a": "A-C", "b": "A-C", "c": "A-C", "d": "A?N"}, "GTR, x = 1,3\nGTR, y = 2",
        "part y has nothing but gaps", 2, None,
    ),
    "no data": (
        {"a": "AC-", "b": "N-A", "c": "---", "d": "ACG"}, "GTR, x = 1-2\nGTR, y = 3",
        "taxon c has no data in any part", None, "c",
    ),
    "no data but where nobody looks": (
        {"a": "ACG", "b": "--G", "c": "ACG", "d": "--G"}, "#nexus\ncharset x = 1-2;",
        "taxon b has no data in any part, nor have 1 more", None, "b",
    ),
    "two taxa": ({"a": "A", "b": "C"}, "GTR, x = 1", "2 taxa", None, None),
    "beyond": (ROWS, "GTR, x = 1-4\nLG, y = 5-10", "goes to site 10", 2, None),
    "gap": (ROWS, "GTR, x = 1-4\nLG, y = 6-9", "in no part: site 5", None, None),
    "overlap": (ROWS, "GTR, x = 1-5\nLG, y = 5-9", "x and y overlap", 2, None),
    "unknown word": (ROWS, "GTR, x = 1-4\nBIN, y = 5-9", "is not a BIN character", 2, "a"),
    "protein read as DNA": (
        ROWS, "GTR, x = 1-4\nGTR, y = 5-9",
        r"taxon a, site 8: 'L' is not a DNA character .part y", 2, "a",
    ),
    "DNA read as protein": (
        dict.fromkeys("abcd", "ACGT" * 20), "LG, x = 1-80", "100% of its letters are ACGT", 1, None
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_parts_that_cannot_be_cut(tmp_path: Path, case: str) -> None:
    rows, lines, message, line, taxon = BAD[case]
    with pytest.raises(InputError, match=message) as caught:
        cut(tmp_path, rows, lines)
    assert (caught.value.line, caught.value.taxon) == (line, taxon)
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("name", ["nothing.phy", "x" * 300])
def test_a_missing_file_of_a_part(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=rf"line 2: part \w+: there is no file {name}$"):
        cut(tmp_path, ROWS, f"#nexus\ncharset x = {name}: 1-9;")


def test_a_notice_of_sites_left_out(tmp_path: Path) -> None:
    data = cut(tmp_path, ROWS, "#nexus\ncharset x = 1-3;")
    (notice,) = data.notices
    assert notice.endswith("6 of 9 sites are in no part: 4-9")
    assert data.n_sites == 3


def test_a_phylip_file_of_two_readings_is_read_as_its_parts_want_it(tmp_path: Path) -> None:
    """Sequential it has DNA first, interleaved it has both data types in each part."""
    path = tmp_path / "a.phy"
    heads = zip("abcd", "CGDE", strict=True)
    path.write_text("4 9\n" + "".join(f"{name} ACGT\n{head} MKVL\n" for name, head in heads))
    with pytest.raises(InputError, match="can be read as"):
        read_alignment(path)
    (tmp_path / "p").write_text("GTR, x = 1-4\nLG, y = 5-9\n")
    data = read_partitioned(str(path), read_partitions(tmp_path / "p"), alphabet_of)
    assert data.taxa == ("a", "b", "c", "d")
    expected = PROTEIN.encode(np.frombuffer(b"CMKVL", np.uint8))
    np.testing.assert_array_equal(data.patterns(1).expand()[0], expected)
