"""Tables of the protein models, and those that users bring."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from mltree.data.alphabet import PROTEIN
from mltree.models import empirical
from mltree.models.empirical import PROTEIN_MODELS, protein_model, read_matrix
from mltree.models.families import EMPIRICAL
from mltree.models.grammar import parse_model
from mltree.models.substitution import PAIRED, PROFILES
from mltree.system.errors import InputError

FOLDER = Path(empirical.__file__).parent / "matrices"

PAIRS = ["".join(pair) for pair in combinations(PROTEIN.states, 2)]

PUBLISHED = {
    "LG": {"AR": 0.425093, "ND": 5.076149, "IV": 10.649107, "FY": 7.803902, "YV": 0.249313},
    "WAG": {"AR": 55.1571, "ND": 542.942, "IV": 782.13, "AV": 200.601},
    "JTT": {"AR": 58.0, "ND": 528.0, "DE": 767.0, "IV": 961.0, "YV": 16.0},
    "STMTREV": {"AR": 0.1159435373, "ND": 8.4408676914, "RC": 9.137947033, "LM": 1.1493262595},
    "DEN": {"AR": 0.41136921, "AN": 0.272108441, "AC": 1.927407726, "AS": 4.636757164},
    "PMB": {"AR": 0.674995699, "ND": 3.573373315, "IV": 8.002789424, "YV": 0.716795463},
}
"""Single entries of the published matrices, by pairs of amino acids; all others are tested by the
log-likelihoods that they give (tests/golden). LG and WAG: the authors' files; JTT: PAML's; STMTREV:
RAxML 8's; DEN: libpll-2's; PMB: IQ-TREE's."""

FREQUENCIES = {
    "LG": {"A": 0.079066, "L": 0.099081, "W": 0.012066, "V": 0.069147},
    "WAG": {"A": 0.0866279, "L": 0.0862090, "W": 0.0143859, "V": 0.0708956},
    "JTT": {"A": 0.076748, "L": 0.091904, "W": 0.014261, "V": 0.066005},
    "PMB": {"A": 0.0756, "L": 0.0958, "W": 0.0157, "V": 0.0715},
}
"""The same for frequencies: of PMB to three decimals."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_table_holds_the_published_values(name: str) -> None:
    exchangeabilities, _ = protein_model(name)
    table = dict(zip(PAIRS, exchangeabilities, strict=True))
    found = {pair: table[pair] for pair in PUBLISHED[name]}
    assert found == pytest.approx(PUBLISHED[name], rel=1e-9)


@pytest.mark.parametrize("name", FREQUENCIES)
def test_table_holds_the_published_frequencies(name: str) -> None:
    shares = dict(zip(PROTEIN.states, protein_model(name).frequencies, strict=True))
    slack = 6e-4 if name == "PMB" else 2e-7
    assert {s: shares[s] for s in FREQUENCIES[name]} == pytest.approx(FREQUENCIES[name], abs=slack)


@pytest.mark.parametrize("name", PROTEIN_MODELS)
def test_table_is_whole(name: str) -> None:
    exchangeabilities, frequencies = protein_model(name)
    assert exchangeabilities.shape == (190,)
    assert (exchangeabilities >= 0.0).all()
    assert (exchangeabilities > 0.0).mean() > 0.8
    assert frequencies.shape == (20,)
    assert (frequencies > 0.0).all()
    assert frequencies.sum() == pytest.approx(1.0, abs=1e-15)
    assert not exchangeabilities.flags.writeable
    assert not frequencies.flags.writeable


@pytest.mark.parametrize("name", PROTEIN_MODELS)
def test_table_says_where_it_comes_from(name: str) -> None:
    (path,) = FOLDER.glob(f"{name.lower()}.dat")
    comments = [line for line in path.read_text("utf-8").splitlines() if line.startswith("#")]
    assert re.search(r"\((19|20)\d\d\).*(doi:10\.|Atlas of Protein)", " ".join(comments))


def test_every_table_has_a_name() -> None:
    names = {path.stem.upper() for path in FOLDER.glob("*.dat")}
    paired = (f"{name}{k}" for name in PAIRED for k in (1, 2, 3, 4))
    assert names == {*PROTEIN_MODELS, *paired, EMPIRICAL}
    assert {path.stem.upper() for path in FOLDER.glob("*.profiles")} == set(PROFILES)


@pytest.mark.parametrize("name", ["LG", "WAG", "JTT"])
def test_eigen_system_of_the_table(name: str) -> None:
    arrays = parse_model(name, PROTEIN).arrays()
    q = arrays.right @ np.diag(arrays.eigenvalues) @ arrays.left
    assert q.sum(axis=1) == pytest.approx(np.zeros(20), abs=1e-12)
    assert arrays.frequencies @ np.diag(q) == pytest.approx(-1.0)
    a, w = PROTEIN.states.index("I"), PROTEIN.states.index("V")
    ratio = q[a, w] / q[0, 1] * arrays.frequencies[1] / arrays.frequencies[w]
    assert ratio == pytest.approx(PUBLISHED[name]["IV"] / PUBLISHED[name]["AR"])


def test_unknown_table() -> None:
    with pytest.raises(KeyError):
        protein_model("NOPE")


def table(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A symmetric f64 [20, 20] and frequencies."""
    triangle = np.tril(np.exp(rng.normal(size=(20, 20))), -1)
    return triangle + triangle.T, rng.dirichlet(np.full(20, 5.0))


def text_of(symmetric: np.ndarray, frequencies: np.ndarray) -> str:
    rows = [" ".join(f"{value:.8g}" for value in symmetric[n, :n]) for n in range(1, 20)]
    return "\n".join([*rows, "", " ".join(f"{value:.8g}" for value in frequencies), ""])


@pytest.mark.cases(5, 200)
def test_a_user_s_matrix_is_read_as_it_stands(case: int, tmp_path: Path) -> None:
    symmetric, frequencies = table(np.random.default_rng(case))
    path = tmp_path / "own.dat"
    notes = ["", "Ala Arg Asn 5 3\n", "# by hand: 1 2 3\n"][case % 3]
    path.write_text(f"# 7 parts\n{text_of(symmetric, frequencies)}\n{notes}")
    found = read_matrix(str(path))
    upper = symmetric[np.triu_indices(20, 1)]
    np.testing.assert_allclose(found.exchangeabilities, 100.0 * upper / upper.max(), rtol=1e-6)
    np.testing.assert_allclose(found.frequencies, frequencies, rtol=1e-6)


def test_a_published_table_can_be_read_as_a_user_s() -> None:
    for name in PROTEIN_MODELS:
        ours, found = protein_model(name), read_matrix(str(FOLDER / f"{name.lower()}.dat"))
        scale = found.exchangeabilities.max() / ours.exchangeabilities.max()
        np.testing.assert_allclose(found.exchangeabilities, scale * ours.exchangeabilities)
        np.testing.assert_array_equal(found.frequencies, ours.frequencies)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: "", "the file is empty"),
        (lambda text: "LG\n", "begins with 0 numbers"),
        (lambda text: "7 is no matrix", "begins with 1 number$"),
        (lambda text: text.rsplit(maxsplit=1)[0], "begins with 209 numbers"),
        (lambda text: f"1 {text}", "begins with 211 numbers"),
        (lambda text: " ".join(text.split()[:190]), "begins with 190 numbers"),
        (lambda text: f"-{text}", "no negative"),
        (lambda text: f"{text.rsplit(maxsplit=1)[0]} -0.05", "no negative"),
        (lambda text: f"1e999 {text.split(maxsplit=1)[1]}", "infinite"),
        (lambda text: f"{text.rsplit(maxsplit=1)[0]} 0.9", "must sum to 1, not"),
        (lambda text: "0 " * 190 + " ".join(text.split()[190:]), "nothing would ever change"),
    ],
)
def test_what_is_no_matrix_is_told_in_a_line(
    change: Callable[[str], str], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "own.dat"
    path.write_text(change(text_of(*table(np.random.default_rng(1)))))
    with pytest.raises(InputError, match=message) as error:
        read_matrix(str(path))
    assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value)


def test_a_matrix_that_is_not_there() -> None:
    with pytest.raises(InputError, match="no such file"):
        read_matrix("nowhere.dat")
