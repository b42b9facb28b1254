"""What a run starts from: data, model, and what is said about them."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from mltree.data.alphabet import DNA, PROTEIN, Alphabet
from mltree.models.partitioned import Linkage
from mltree.report.tables import warning_lines
from mltree.runs.problem import Problem, load_problem, read_model, read_problem
from mltree.system.errors import InputError, MltreeError, ModelError
from mltree.system.events import AlignmentLoaded, Event, Notice, ignore

ROWS = {"a": "ACGTACGTTA", "b": "ACGTTCGTTA", "c": "ACTTACGTGA", "d": "GCTTACGTTC"}


def saved(folder: Path, rows: dict[str, str] = ROWS) -> str:
    path = folder / "data.fa"
    path.write_text("".join(f">{name}\n{row}\n" for name, row in rows.items()))
    return str(path)


@pytest.mark.parametrize(
    ("rows", "model", "datatype", "expected"),
    [
        (ROWS, None, None, DNA),
        (ROWS, None, "protein", PROTEIN),
        (dict.fromkeys("abcd", "MKVLEFPIQ"), None, None, PROTEIN),
        (dict.fromkeys("abcd", "MKVRS"), None, None, PROTEIN),
        (dict.fromkeys("abcd", "MKVRS"), "HKY+G4", None, DNA),
        (dict.fromkeys("abcd", "MKVRS"), None, "dna", DNA),
        (dict.fromkeys("abcd", "RYRRYRYYRRYRYRYRYYYR"), None, None, DNA),
        (dict.fromkeys("abcd", "RYRRYRYYRRYRYRYRYYYR"), "LG", None, PROTEIN),
    ],
)
def test_who_decides_the_data_type(
    tmp_path: Path,
    rows: dict[str, str],
    model: str | None,
    datatype: str | None,
    expected: Alphabet,
) -> None:
    problem = read_problem(saved(tmp_path, rows), model, datatype)
    assert problem.patterns.alphabet is expected
    assert problem.model.lone.alphabet is expected


@pytest.mark.parametrize(
    ("model", "datatype"), [("LG+G4", None), ("GTR", "protein"), ("JTT", "dna")]
)
def test_a_model_for_other_data_is_refused(
    tmp_path: Path, model: str, datatype: str | None
) -> None:
    with pytest.raises(ModelError, match="is for .*, but the alignment's data type is"):
        read_problem(saved(tmp_path), model, datatype)


def test_a_model_file(tmp_path: Path) -> None:
    file = tmp_path / "x.bestModel"
    file.write_text("\ufeffHKY{2.5}+FE, noname = 1-10\r\n\n")
    assert read_problem(saved(tmp_path), str(file)).model.lone.name == "HKY"
    file.write_text("HKY{2.5}+FE, a = 1-10\n")
    assert read_model(str(file)).name == "HKY"


@pytest.mark.parametrize(
    "name",
    [
        "x.bestModel",
        "no/such/file",
        "own.dat+G4",
        "./GTR",
        "..",
        "/dev/zero",
        "m.txt",
        "GTR/x" + "y" * 300,
    ],
)
def test_a_model_file_that_is_not_there(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="no such file|is a dir|is a device|File name too long"):
        read_problem(saved(tmp_path), name)


@pytest.mark.parametrize(
    "name",
    ["GTRR", "Q.INSCT", "NQ.plant+G4", "GTR{1/2", "x" * 300, "GTR+G4{0.5", "HKY{1_0}", "JC{٣}"],
)
def test_a_model_that_is_none(tmp_path: Path, name: str) -> None:
    with pytest.raises(ModelError):
        read_problem(saved(tmp_path), name)


MATRIX = "\n".join([" ".join(["1"] * n) for n in range(1, 20)] + [" ".join(["0.05"] * 20)])


@pytest.mark.parametrize("form", ["{}", "{}+G4", "PROTGTR{{{}}}+F+R3"])
def test_a_user_s_matrix(tmp_path: Path, form: str) -> None:
    file = tmp_path / "own+1.dat" if "PROT" in form else tmp_path / "own.dat"
    file.write_text(MATRIX)
    problem = read_problem(saved(tmp_path, dict.fromkeys("abcd", "MKVLE")), form.format(file))
    assert problem.model.lone.name == "PROTGTR"
    assert problem.patterns.alphabet is PROTEIN


@pytest.mark.parametrize("form", ["{}", "{}+G4", "PROTGTR{{{}}}"])
def test_a_user_s_matrix_that_is_none(tmp_path: Path, form: str) -> None:
    file = tmp_path / "own.dat"
    file.write_text(MATRIX.replace("0.05", "0.05 0.05", 1))
    with pytest.raises(InputError, match="the file begins with 211 numbers") as error:
        read_problem(saved(tmp_path, dict.fromkeys("abcd", "MKVLE")), form.format(file))
    assert "\n" not in str(error.value)


def test_a_lone_part_has_no_scale(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="one of several parts"):
        read_problem(saved(tmp_path), "JC+BU{0.5}")


def heard(path: str, **options: str | None) -> tuple[list[Event], Problem]:
    events: list[Event] = []
    return events, load_problem(path, options.pop("model", None), events.append, **options)


def test_a_run_says_what_check_says(tmp_path: Path) -> None:
    rows = {
        "a": "ACGTACGTTA-", "b": "ACGTACGTTA-", "c": "ACX------T-", "d": "GCTTACGTTC-",
        "A": "AAAAAAAAAAN", "e": "........CG.",
    }  # fmt: skip
    events, problem = heard(saved(tmp_path, rows))
    notices = [event.text for event in events if isinstance(event, Notice)]
    assert notices == warning_lines(problem.summary)
    for words in (
        "identical sequences: a, b",
        "differ in case only: A, a",
        "gaps at the sites 11",
        "more than 50% gaps in 1 of 6 sequences: c (73%)",
        "1 of 6 sequences differ from the average composition (χ² test, p < 5%): A (p = ",
        "'X' (first in c at site 3)",
        "9 times '.' (first in e at site 1): read as the character of the first sequence, a",
    ):
        assert sum(words in notice for notice in notices) == 1, (words, notices)


def test_a_doubtful_data_type_is_said(tmp_path: Path) -> None:
    path = saved(tmp_path, dict.fromkeys("abcd", "MKVRS"))
    assert "read as AA, but its letters could be DNA" in str(heard(path)[0][1])
    assert "could be" not in str(heard(path, datatype="protein")[0])


def test_what_was_seen_is_said(tmp_path: Path) -> None:
    loaded = heard(saved(tmp_path, ROWS | {"e": "ACGTRYNN--"}))[0][0]
    assert isinstance(loaded, AlignmentLoaded)
    assert loaded.data_seen == "95.7% ACGT, 2 ambiguity codes"


def test_many_sequences_take_few_lines(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    rows = {}
    for n in range(300):
        row = "".join(rng.choice(list("ACGT"), 40, p=rng.dirichlet([0.3] * 4)))
        rows[f"t{n}"] = rows[f"T{n}"] = row[:15] + "-" * 25
    events, _ = heard(saved(tmp_path, rows))
    assert len(events) < 8
    assert all(len(str(event)) < 700 for event in events)


def test_taxa_of_gaps_are_refused_by_name(tmp_path: Path) -> None:
    path = saved(tmp_path, ROWS | {"e": "N---?-----", "f": "-" * 10})
    with pytest.raises(InputError, match="e, f are all gaps and cannot be placed") as caught:
        load_problem(path, None, ignore)
    assert caught.value.taxon == "e"
    assert read_problem(path, None).summary.gap_taxa == ("e", "f")


MODELS = [
    "GTR{1/2/1/1/2/1}+FU{0.3/0.2/0.2/0.3}+G4m{0.5}+IU{0.1}",
    "HKY{2.5}+FE+G4",
    "JC",
    "LG+FC+I",
]


@pytest.mark.cases(10, 500)
def test_mutated_models_are_models_or_errors(
    case: int, tmp_path: Path, mutated: Callable[[bytes, random.Random], bytes]
) -> None:
    rng = random.Random(case)
    path = saved(tmp_path)
    for _ in range(20):
        model = mutated(rng.choice(MODELS).encode(), rng).decode("utf-8", "replace")
        with suppress(MltreeError):
            (arrays,) = read_problem(path, model).model.arrays()
            assert np.isfinite(arrays.rates).all()


def test_numbers_of_a_cla_are_those_of_every_part(tmp_path: Path) -> None:
    """Parts of one data type have as many categories as the one with most."""
    columns = {
        name: row + dict(zip("abcd", ("ME", "MF", "KE", "ME"), strict=True))[name]
        for name, row in ROWS.items()
    }
    parts = tmp_path / "parts"
    parts.write_text("GTR+G4, one = 1-6\nJC, two = 7-10\nLG+R3, three = 11-12\n")
    problem = read_problem(saved(tmp_path, columns), str(parts))
    dna, protein = problem.groups
    assert problem.cla_size == 4 * 4 * dna.n_patterns + 20 * 3 * protein.n_patterns


PARTS = """#nexus
charset a = 1-4; charset b = 5-10;
charpartition m = JC: a{}, JC: b{};
"""


def in_parts(folder: Path, one: str, other: str, linkage: Linkage) -> Problem:
    path = folder / "p.nex"
    path.write_text(PARTS.format(one, other))
    return read_problem(saved(folder), str(path), linkage=linkage)


def test_lengths_of_parts_trees_are_factors_of_mean_one(tmp_path: Path) -> None:
    found = in_parts(tmp_path, "{0.5}", "{2}", Linkage.SCALED)
    by_name = dict(zip(found.model.names, found.model.scalers.tolist(), strict=True))
    mean = (4 * 0.5 + 6 * 2.0) / 10
    assert by_name == pytest.approx({"a": 0.5 / mean, "b": 2.0 / mean})


@pytest.mark.parametrize(
    ("one", "other", "linkage", "message"),
    [
        ("{0.5}", "", Linkage.SCALED, "line 2: part b has no tree's length in braces, but others"),
        ("{0.5}", "{2}", Linkage.LINKED, "line 2: part a has a tree's length in braces, --brlen"),
        ("", "{2}", Linkage.UNLINKED, "line 2: part b has a tree's length in braces, --brlen"),
    ],
)
def test_lengths_of_parts_trees_that_are_of_no_use_are_refused(
    tmp_path: Path, one: str, other: str, linkage: Linkage, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        in_parts(tmp_path, one, other, linkage)
