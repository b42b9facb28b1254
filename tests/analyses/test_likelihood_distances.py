"""Distances of pairs against formulae and an optimum; neighbour joining of additive distances."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.linalg import expm
from scipy.optimize import minimize_scalar

import mltree
from mltree.analyses.likelihood import LONGEST_DISTANCE
from mltree.runs.problem import read_model

MAY_BE = {"A": [0], "C": [1], "G": [2], "T": [3], "-": [0, 1, 2, 3], "R": [0, 2], "Y": [1, 3]}


@pytest.fixture
def sequences() -> dict[str, str]:
    found = mltree.simulate("HKY{3}+FE", taxa=7, sites=60, seed=3)
    return {f"t{n}": row for n, row in enumerate(found.values())}


@pytest.fixture
def file(sequences: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("data.fa").write_text("".join(f">{name}\n{row}\n" for name, row in sequences.items()))
    return "data.fa"


def gapped(rows: dict[str, str], rng: np.random.Generator) -> dict[str, str]:
    """The rows with some gaps and ambiguities."""
    found = {}
    for name, row in rows.items():
        letters = np.array(list(row))
        places = rng.random(letters.size) < 0.1
        letters[places] = rng.choice(["-", "R", "Y"], places.sum())
        found[name] = "".join(letters)
    return found


def textbook(one: str, other: str, text: str) -> float:
    """The distance by a one-dimensional search over sums of matrix exponentials."""
    arrays = read_model(text).arrays()

    def minus_lnl(t: float) -> float:
        categories = zip(arrays.rates, arrays.weights, strict=True)
        joint = sum(w * arrays.frequencies[:, None] * expm(arrays.generator * rate * t)
                    for rate, w in categories)  # fmt: skip
        cells = (joint[np.ix_(MAY_BE[a], MAY_BE[b])].sum() for a, b in zip(one, other, strict=True))
        return -float(sum(np.log(cell) for cell in cells))

    found = minimize_scalar(
        minus_lnl, bounds=(0, LONGEST_DISTANCE), method="bounded", options={"xatol": 1e-9}
    )
    return float(found.x)


@pytest.mark.cases(3, 60)
def test_distances_are_the_textbooks(case: int) -> None:
    rng = np.random.default_rng(case)
    model = mltree.ModelParameters(
        ("GTR+G4", "HKY+I", "GTR+I+G4")[case % 3],
        rates=rng.uniform(0.3, 4.0, 1 if case % 3 == 1 else 6),
        frequencies=rng.dirichlet([6.0] * 4),
        alpha=None if case % 3 == 1 else rng.uniform(0.3, 2.0),
        pinv=None if case % 3 == 0 else rng.uniform(0.05, 0.3),
    )
    rows = mltree.simulate(model, taxa=5, sites=200, seed=case, mean_length=0.1)
    rows = gapped(dict(rows), rng)
    found = mltree.distances(rows, model)
    for one, other in (("T1", "T2"), ("T2", "T5"), ("T3", "T4")):
        assert found[one, other] == found[other, one]
        expected = textbook(rows[one], rows[other], model.text)
        assert found[one, other] == pytest.approx(expected, abs=2e-6 * (1 + expected))


def test_jukes_and_cantor() -> None:
    rows = dict(mltree.simulate("JC", taxa=12, sites=300, seed=2))
    found = mltree.distances(rows, "JC")
    letters = np.array([list(rows[name]) for name in found.taxa])
    raw = (letters[:, None] != letters).mean(axis=2)
    np.testing.assert_allclose(found.raw, raw, atol=1e-12)
    np.testing.assert_allclose(found.matrix, -0.75 * np.log(1 - 4 * raw / 3), atol=1e-9)


def test_pairs_without_an_optimum() -> None:
    rows = {"a": "ACGTACGTAC", "b": "ACGTACGTAC", "c": "TGCATGCATG", "d": "AC--------"}
    rows["e"] = "--GTACGTA-"
    found = mltree.distances(rows, "JC")
    assert found["a", "b"] == 0.0
    assert found["a", "c"] == LONGEST_DISTANCE
    assert np.isnan(found["d", "e"])
    assert np.isnan(found.raw[3, 4])
    with pytest.raises(mltree.InputError, match="there is no distance between d and e"):
        mltree.nj_tree(found)
    variable = {"a": "ACG", "b": "CGT", "c": "AGT", "d": "CCC"}
    with pytest.raises(mltree.ModelError, match="whole trees"):
        mltree.distances(variable, "JC+ASC_LEWIS")


def test_what_is_open_is_fitted_on_a_tree(sequences: dict[str, str]) -> None:
    tree = "(t0,t1,(t2,(t3,(t4,(t5,t6)))));"
    on = mltree.evaluate(sequences, tree, "HKY+G4")
    found = mltree.distances(sequences, "HKY+G4", tree=tree)
    exact = mltree.distances(sequences, on.parameters)
    np.testing.assert_allclose(found.matrix, exact.matrix, rtol=1e-3)
    assert found.model.startswith("HKY{")


def test_parts(file: str, sequences: dict[str, str]) -> None:
    Path("parts").write_text("JC, one = 1-30\nJC, two = 31-60\n")
    whole = mltree.distances(sequences, "JC")
    parts = mltree.distances(file, "parts", brlen="linked")
    np.testing.assert_allclose(parts.matrix, whole.matrix, atol=1e-8)
    np.testing.assert_allclose(parts.raw, whole.raw)


def test_a_matrix_shows_and_writes_itself(tmp_path: Path, sequences: dict[str, str]) -> None:
    found = mltree.distances(sequences, "JC")
    frame = found.to_dataframe()
    assert list(frame.index) == list(frame.columns) == list(found.taxa)
    assert frame.loc["t1", "t3"] == found["t1", "t3"]
    assert repr(found).startswith("DistanceMatrix(7 taxa, mean 0.")
    assert "t6" in found._repr_html_()
    found.write(tmp_path / "x.dist")
    head, *rows = (tmp_path / "x.dist").read_text().splitlines()
    assert head == "7"
    values = np.array([[float(value) for value in row.split()[1:]] for row in rows])
    np.testing.assert_allclose(values, found.matrix, atol=1e-8)


def path_lengths(tree: mltree.PhyloTree) -> tuple[list[str], np.ndarray]:
    """Distances between tips by scikit-bio."""
    found = tree.to_skbio().cophenet()
    return list(found.ids), np.array(found.data)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.cases(4, 100)
def test_neighbour_joining_finds_the_tree_of_additive_distances(case: int) -> None:
    rng = np.random.default_rng(case)
    true = mltree.random_tree(int(rng.integers(4, 60)), seed=case)
    ids, matrix = path_lengths(true)
    found = mltree.nj_tree(matrix, taxa=ids)
    assert found.rf(true) == 0
    names, lengths = path_lengths(found)
    order = [names.index(name) for name in ids]
    np.testing.assert_allclose(lengths[np.ix_(order, order)], matrix, atol=1e-8)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.cases(2, 40)
def test_neighbour_joining_is_scikit_bios(case: int) -> None:
    skbio = pytest.importorskip("skbio")
    rng = np.random.default_rng(case)
    n = int(rng.integers(3, 40))
    half = np.triu(rng.uniform(0.5, 1.0, (n, n)), 1)
    other = skbio.DistanceMatrix(half + half.T, [f"x{k}" for k in range(n)])
    found = mltree.nj_tree(other)
    expected = skbio.tree.nj(other)
    assert n == 3 or found.rf(expected) == 0
    assert min(found.to_dataframe()["length"]) >= 0.0


@pytest.mark.parametrize(
    ("matrix", "taxa", "line"),
    [
        ({"A": "ACGT"}, None, "nj_tree takes distances"),
        (np.zeros((3, 3)), None, "an array has no names"),
        (np.zeros((3, 2)), "abc", "of the shape"),
        (np.zeros((2, 2)), "ab", "three taxa at least"),
        (np.zeros((3, 3)), "aab", "a name of its own"),
        (np.triu(np.ones((3, 3))), "abc", "the same both ways"),
        (np.full((3, 3), -1.0), "abc", "not negative"),
    ],
)
def test_matrices_that_are_none(matrix: np.ndarray, taxa: str | None, line: str) -> None:
    with pytest.raises(mltree.InputError, match=line):
        mltree.nj_tree(matrix, taxa=taxa)
