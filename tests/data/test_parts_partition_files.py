"""Partition files in every dialect: what is written is read, whatever the spacing."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from mltree.data.alphabet import DNA, PROTEIN, Alphabet
from mltree.data.parts import (
    Part,
    Scheme,
    best_model_text,
    best_scheme_text,
    holds_partitions,
    nexus_scheme_text,
    read_partitions,
)
from mltree.system.errors import InputError

MODELS = [
    "GTR+G4+FO", "LG+IU{0.3}", "HKY{2.5}+FU{0.1/0.2/0.3/0.4}+G4m{0.5}", "JC",
    "GTR{1.0,2.0,1.0,1.0,2.0,1.0}+FC", "LG4X+R4{0.1/0.2/0.3/0.4}{0.25/0.25/0.25/0.25}",
]  # fmt: skip
NAMES = "ACGTabcxyz0123456789_.-|#"


def saved(folder: Path, text: str, name: str = "genes.part") -> Path:
    path = folder / name
    path.write_bytes(text.encode())
    return path


def bare(scheme: Scheme) -> list[Part]:
    return [replace(part, line=0) for part in scheme.parts]


def random_parts(rng: random.Random) -> list[Part]:
    """Blocks one after another, whole or codon position by codon position, dealt out to parts."""
    runs, end = [], 0
    while end < 200:
        first, end = end, end + rng.choice([1, 1, 5, 30, 60])
        step = rng.choice([1, 1, 3]) if end - first > 3 else 1
        runs += [range(first + place, end, step) for place in range(step)]
    dealt: list[list[range]] = [[] for _ in range(rng.randint(1, min(6, len(runs))))]
    for number, run in enumerate(runs):
        dealt[number if number < len(dealt) else rng.randrange(len(dealt))].append(run)
    return [
        Part(
            name="".join(rng.choices(NAMES[:-1], k=rng.randint(1, 12))) + str(number),
            runs=tuple(its),
            model=rng.choice(MODELS),
            scaler=rng.choice([None, 0.5, 1.25]),
        )
        for number, its in enumerate(dealt)
    ]


def site_text(rng: random.Random, run: range, blank: str) -> str:
    stride = f"{blank}\\{blank}{run.step}" if run.step > 1 else ""
    if len(run) == 1 and rng.random() < 0.5:
        return str(run.start + 1)
    return f"{run.start + 1}{blank}-{blank}{run.stop}{stride}"


def raxml_text(rng: random.Random, parts: list[Part]) -> str:
    lines = []
    for part in parts:
        blank = rng.choice(["", " ", "\t"])
        sites = f",{blank}".join(site_text(rng, run, blank) for run in part.runs)
        scaler = "" if part.scaler is None else f"+BU{{{part.scaler}}}"
        line = f"{blank}{part.model}{scaler}{blank},{blank}{part.name}{blank}={blank}{sites}"
        lines.append(line + rng.choice(["", "  # 1-3, x = 5"]))
        lines += rng.choice([[], [""], ["# GTR, no = 1-9"], ["  "]])
    end = rng.choice(["\n", "\r\n", "\r"])
    return end.join(lines) + rng.choice(["", end])


def nexus_text(rng: random.Random, parts: list[Part]) -> str:
    end = rng.choice(["\n", "\r\n"])
    lines = [rng.choice(["#nexus", "#NEXUS", "[no]#nexus"[4:]]), "[a [nested] comment; isn't it]"]
    lines += ["begin data; dimensions nchar=9; matrix a 'it''s; x' ACGT; end;", "begin sets;"]
    for part in parts:
        blank, between = rng.choice(["", " "]), rng.choice([" ", "  ", end, "[;]"])
        sites = " ".join(site_text(rng, run, blank) for run in part.runs)
        name = rng.choice([part.name, f"'{part.name}'"])
        lines.append(f"  {rng.choice(['charset', 'CharSet'])} {name}{between}={between}{sites};")
    items = f",{end}".join(f"{part.model} : {part.name}" for part in parts)
    return end.join([*lines, f"charpartition {rng.choice(['', '* '])}x = {items};", "end;", ""])


@pytest.mark.cases(6, 300)
def test_random_parts_in_every_dialect(tmp_path: Path, case: int) -> None:
    rng = random.Random(case)
    for _ in range(10):
        parts = random_parts(rng)
        for text, found in (
            (raxml_text(rng, parts), parts),
            (best_model_text(parts, [part.model or "" for part in parts]), parts),
            (nexus_text(rng, parts), [replace(part, scaler=None) for part in parts]),
            (
                nexus_scheme_text(parts, [part.model for part in parts]),
                [replace(part, scaler=None) for part in parts],
            ),
        ):
            scheme = read_partitions(saved(tmp_path, text))
            assert bare(scheme) == found, text
            assert scheme.covers == ("nexus" not in text.lower())
            lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
            for part in scheme.parts:
                assert part.name in lines[part.line - 1]


def test_what_is_written_is_written_again(tmp_path: Path) -> None:
    """RAxML-NG's own lines come back character by character."""
    text = (
        "GTR{1.781017/5.179388/0.505166/1.571478/4.274586/1.000000}+FC+G4m{0.321779}+BU{0.533728}, "
        "ndhf1st = 1-2183\nK80{1.000000/0.001000}+IU{0.029684}, 5.8S = 2184-3000\\3, 3001\n"
    )
    parts = read_partitions(saved(tmp_path, text)).parts
    assert [part.scaler for part in parts] == [0.533728, None]
    assert best_model_text(parts, [part.model or "" for part in parts]) == text


WORDS = {
    # word: data type, model
    "DNA": ("DNA", None),
    "dna": ("DNA", None),
    "DNAX": ("DNA", "GTR+FO+G4"),
    "WAG": (None, "WAG"),
    "WAGF": (None, "WAG+FC"),
    "WAGX": (None, "WAG+FO"),
    "JTTDCMUTF": (None, "JTT-DCMUT+FC"),
    "AUTO": ("AA", "AUTO"),
    "AA": ("AA", None),
    "PROT": ("AA", None),
    "BIN": ("BIN", "BIN"),
    "MULTI": ("MULTI", None),
    "MULTI6_MK+FE": ("MULTI6", "MULTI6_MK+FE"),
    "LG4X": (None, "LG4X"),
    "TPM2uf": (None, "TPM2uf"),
    "GTR[1/2/1/1/2/1]+F": (None, "GTR[1/2/1/1/2/1]+F"),
}


@pytest.mark.parametrize("word", WORDS)
def test_words_of_raxml_8(tmp_path: Path, word: str) -> None:
    (part,) = read_partitions(saved(tmp_path, f"{word}, a = 1-9")).parts
    assert (part.datatype, part.model) == WORDS[word]


SCHEMES: list[tuple[str, Alphabet, str]] = [
    ("GTR+FO+G4", DNA, "DNA"),
    ("LG+G4m{0.5}", PROTEIN, "LG"),
    ("LG+FC+G4", PROTEIN, "LGF"),
    ("WAG+FU{" + "/".join(["0.05"] * 20) + "}", PROTEIN, "WAGX"),
    ("JTT-DCMUT+F", PROTEIN, "JTTDCMUTF"),
    ("Q.pfam+F+G4", PROTEIN, "Q.PFAM+FC"),
]


def test_schemes_in_the_words_of_raxml_8() -> None:
    parts = [Part(f"p{n}", (range(n, 90, 3),)) for n in range(len(SCHEMES))]
    models, alphabets, words = zip(*SCHEMES, strict=True)
    lines = best_scheme_text(parts, models, alphabets).splitlines()
    assert [line.split(", ")[0] for line in lines] == list(words)
    assert lines[1] == "LG, p1 = 2-90\\3"


def test_a_file_a_part_comes_back(tmp_path: Path) -> None:
    parts = [
        Part("a", (range(9),), model="JC", file="genes/a b.phy"),
        Part("b", (range(0, 9, 2), range(10, 11)), "AA", "LG", file="b.phy"),
    ]
    text = nexus_scheme_text(parts, ["JC", "LG"])
    assert bare(read_partitions(saved(tmp_path, text))) == parts
    lines = best_model_text(parts, ["JC", "LG"])
    found = bare(read_partitions(saved(tmp_path, lines)))
    assert found == [parts[0], replace(parts[1], datatype=None)]


BAD = {
    # text: message, line
    "rubbish": ("cannot read 'rubbish' as a part", 1),
    "GTR, a = 1-9\n\nGTR, b 10-12": ("cannot read 'GTR, b 10-12' as a part", 3),
    ", a = 1-9": ("cannot read", 1),
    "GTR{1/2, a = 1-9": ("a brace is not closed", 1),
    "GTR, = 1-9": ("'' is not a name for a part", 1),
    "GTR, a = 9-1": ("9-1 run backwards", 1),
    "GTR, a = 1-9 x": ("cannot read the sites 'x'", 1),
    "GTR+BU{0}, a = 1-9": ("part a: no branch-length scaler", 1),
    "GTR+BU{x}, a = 1-9": ("not a number", 1),
    "GTR+BU{1}+BU{2}, a = 1-9": ("no branch-length scaler", 1),
    "GTR, a = 1-9\nGTR, a = 10": ("two parts are called a .the first on line 1", 2),
    "# nothing\n": ("no part in it", None),
    "#nexus\nbegin sets;\nend;": ("no charset in it", None),
    "#nexus\ncharset a = 1-9\n[oh; ": (r"no .\]. ends this comment", 3),
}


@pytest.mark.parametrize("text", BAD)
def test_bad_files(tmp_path: Path, text: str) -> None:
    message, line = BAD[text]
    path = saved(tmp_path, text)
    with pytest.raises(InputError, match=message) as caught:
        read_partitions(path)
    assert (caught.value.file, caught.value.line) == (str(path), line)
    assert caught.value.hint
    assert "\n" not in caught.value.message


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"GTR, \xff = 1-9\n")
    with pytest.raises(InputError, match="not UTF-8 text"):
        read_partitions(tmp_path / "x")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("GTR+G4", False),
        ("GTR{1,2,1,1,2,1}+G4m{0.5}", False),
        ("GTR{1/2/1/1/2/1}, noname = 1-603\n", False),
        ("GTR, genes = 1-603", True),
        ("DNA, noname=1-3\nDNA, b=4-6", True),
        ("\n#NEXUS\nbegin sets;", True),
        ("# a comment\nLG+G4\n", False),
        ("GTR{1/2, a = 1-9", False),
    ],
)
def test_what_holds_partitions(tmp_path: Path, text: str, expected: bool) -> None:
    assert holds_partitions(saved(tmp_path, text)) is expected


@pytest.mark.cases(5, 300)
def test_mutated_files_are_schemes_or_input_errors(
    case: int, tmp_path: Path, mutated: Callable[[bytes, random.Random], bytes]
) -> None:
    rng = random.Random(case)
    for _ in range(10):
        for write in (raxml_text, nexus_text):
            path = tmp_path / "file"
            path.write_bytes(mutated(write(rng, random_parts(rng)).encode(), rng))
            with suppress(InputError):
                scheme = read_partitions(path)
                assert len({part.name for part in scheme.parts}) == len(scheme.parts) > 0
                assert all(not re.search("[,=;]", part.name) for part in scheme.parts)
            with suppress(InputError):
                holds_partitions(path)
