"""UniFrac of published tables, which lie outside the repository: ``UNIFRAC_DATA`` is their folder.

crawford.{biom,tre}, test.*.exp  tests of ``ssu`` (Crawford et al. 2009, PNAS 106:11276)
gp500test.*, gp500-*.csv         tests of phyloseq, distances by PyCogent
HMPv35_100nt_even1k.biom         the Human Microbiome Project's table on Greengenes' tree
"""

from __future__ import annotations

import lzma
import os
from pathlib import Path

import numpy as np
import pytest

from mltree.analyses.unifrac import engines_of
from mltree.diversity.branches import Samples, place
from mltree.diversity.matrix import read_matrix
from mltree.diversity.table import read_table
from mltree.diversity.unifrac import Metric, ReferenceUnifrac, UnifracProblem, fill, tiles_of

DATA = Path(os.environ.get("UNIFRAC_DATA", "no such folder"))

pytestmark = pytest.mark.skipif(
    not DATA.is_dir(), reason="published tables are not shipped: UNIFRAC_DATA names their folder"
)

NORMALISED, RAW = Metric("weighted_normalized"), Metric("weighted_unnormalized")


def distances(samples: Samples, metric: Metric, single: bool = False) -> np.ndarray:
    every = slice(0, samples.n_samples)
    return ReferenceUnifrac(UnifracProblem(samples, metric, single)).tile(every, every)


def placed(table: str, tree: str) -> Samples:
    if table.endswith("biom"):
        pytest.importorskip("h5py")
    return place(read_table(str(DATA / table)), str(DATA / tree))


@pytest.mark.parametrize(
    ("metric", "file"),
    [(Metric("unweighted"), "test.ssu.exp"),
     (Metric("unweighted", adjusted=True), "test.ssu_vaw.exp")],
    ids=["unweighted", "adjusted"],
)  # fmt: skip
def test_crawford_as_ssu_has_it(metric: Metric, file: str) -> None:
    samples = placed("crawford.biom", "crawford.tre")
    expected = read_matrix(str(DATA / file)).ordered(samples.ids)
    assert distances(samples, metric) == pytest.approx(expected, abs=1e-7)


def test_crawford_as_scikit_bio_has_it() -> None:
    samples = placed("crawford.biom", "crawford.tre")
    pair = tuple(samples.ids.index(f"10084.PC.{name}") for name in (481, 593))
    third = pair[0], samples.ids.index("10084.PC.356")
    unweighted = distances(samples, Metric("unweighted"))
    assert unweighted[pair] == pytest.approx(0.718360665864, abs=1e-9)
    assert unweighted[third] == pytest.approx(0.713173609505, abs=1e-9)
    assert distances(samples, RAW)[pair] == pytest.approx(0.446562375632, abs=1e-9)
    assert distances(samples, NORMALISED)[pair] == pytest.approx(0.282187400163, abs=1e-9)
    lines = [line.split() for line in (DATA / "test.faith.exp").read_text().splitlines()]
    faith = ReferenceUnifrac(UnifracProblem(samples, Metric("unweighted"))).faith()
    ours = dict(zip(samples.ids, faith.tolist(), strict=True))
    assert [ours[name] for name, _ in lines] == pytest.approx(
        [float(value) for _, value in lines], abs=1e-6
    )


@pytest.mark.parametrize(
    ("metric", "file"),
    [(Metric("unweighted"), "uuf"), (NORMALISED, "wuf"), (RAW, "wufu"),
     (Metric("generalized", 1.0), "wuf")],
    ids=lambda one: one if isinstance(one, str) else one.label,
)  # fmt: skip
def test_pycogent_agrees(metric: Metric, file: str) -> None:
    samples = placed("gp500test.env.txt", "gp500test.tree")
    order = np.argsort(samples.ids)
    expected = np.loadtxt(DATA / f"gp500-{file}.csv", delimiter=",")
    ours = distances(samples, metric)[np.ix_(order, order)]
    assert ours.shape == (28, 28)
    assert ours == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("metric", [Metric("unweighted"), NORMALISED], ids=lambda one: one.label)
def test_single_is_double_as_far_as_the_paper_asks(metric: Metric, tmp_path: Path) -> None:
    """Sfiligoi et al. 2022: R² of Mantel's correlation at least 0.99999; we differ by 1e-5."""
    tree = tmp_path / "tree.nwk"
    tree.write_bytes(lzma.decompress((DATA / "gg97.tree.xz").read_bytes()))
    pytest.importorskip("h5py")
    samples = place(read_table(str(DATA / "HMPv35_100nt_even1k.biom")), str(tree))
    matrices = []
    for single in (False, True):
        problem = UnifracProblem(samples, metric, single)
        engine = engines_of(problem, None)[0]
        matrices.append(np.zeros((samples.n_samples,) * 2, np.float32))
        for tile in tiles_of(samples.n_samples):
            fill(matrices[-1], tile, engine.tile(*tile))
    double, of_single = matrices
    assert np.abs(double - of_single).max() <= 1e-5
    pairs = np.triu_indices(samples.n_samples, 1)
    r = np.corrcoef(double[pairs].astype(float), of_single[pairs].astype(float))[0, 1]
    assert r**2 >= 0.99999
