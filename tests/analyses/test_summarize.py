"""``mltree.summarize``: what Python is given."""

import math
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import mltree
from mltree.analyses.summarize import compared
from mltree.sampling.summaries import Evidence
from mltree.system.errors import InputError

GOLDEN = Path(__file__).parents[1] / "golden" / "samples"


@pytest.fixture(scope="module")
def summary() -> mltree.PosteriorSummary:
    return mltree.summarize(GOLDEN / "mb", burnin=0.2)


def test_trees_are_written_when_they_are_asked_for(summary: mltree.PosteriorSummary) -> None:
    assert len(summary.trees) == 98
    assert set(summary.trees[0].taxa) == set(summary.posterior.taxa)
    lengths = summary.parameters["TL"].ravel()
    for at in (0, 40, 97, -1):
        assert summary.trees[at].length == pytest.approx(lengths[at], rel=1e-5)
    with pytest.raises(IndexError):
        summary.trees[98]
    assert len(list(summary.trees)) == 98


def test_splits_are_rows(summary: mltree.PosteriorSummary) -> None:
    rows = summary.splits()
    assert [row.probability for row in rows] == [1, 1, 1, 1, pytest.approx(95 / 98)]
    assert ("Homo_sapiens", "Pan") in [tuple(sorted(row.taxa)) for row in rows]
    last = rows[-1]
    assert last.by_run == pytest.approx((46 / 49, 1.0), abs=1e-9) or last.by_run[1] < 1
    assert math.isnan(rows[0].ess)
    assert last.ess > 0
    assert last.error == pytest.approx(
        math.sqrt(last.probability * (1 - last.probability) / last.ess)
    )


def test_summary_trees_have_probabilities(summary: mltree.PosteriorSummary) -> None:
    supports = summary.consensus.supports
    assert supports[frozenset({"Homo_sapiens", "Pan"})] == 1.0
    assert min(supports.values()) == pytest.approx(95 / 98, abs=1e-4)
    assert summary.mcc.rf(summary.consensus) == 0


def test_probabilities_are_of_trees_and_of_groups(summary: mltree.PosteriorSummary) -> None:
    assert summary.probability(["Homo_sapiens", "Pan"]).probability == 1.0
    assert summary.probability({"Gorilla", "Pan"}).probability == 0.0
    assert summary.probability(summary.consensus).probability == pytest.approx(95 / 98)
    assert summary.probability(str(summary.mcc)).by_run == pytest.approx((46 / 49, 1.0))
    with pytest.raises(InputError):
        summary.probability(["Homo_sapiens", "Nobody"])
    with pytest.raises(InputError):
        summary.probability("((a,b),c,d);")


def test_convergence_is_told(summary: mltree.PosteriorSummary) -> None:
    assert not summary.converged
    assert summary.ess.keys() == summary.rhat.keys() == summary.parameters.keys()
    assert summary.asdsf == pytest.approx(0.043292 / 5, rel=1e-4)
    assert summary.lnz is None
    assert summary.burn_in == 0.2
    assert '"asdsf"' in summary.to_json()
    assert "<table>" in summary._repr_html_()


def test_runs_are_given_as_files_too() -> None:
    summary = mltree.summarize([GOLDEN / "mb.run1.t", GOLDEN / "mb.run2.t"], burnin=0.2)
    assert summary.posterior.n_runs == 2
    alone = mltree.summarize(GOLDEN / "mb.run1.t", burnin=0.2)
    assert math.isnan(alone.asdsf)
    assert alone.parameters["TL"].shape == (1, 49)


ARVIZ = """
import warnings
warnings.simplefilter("ignore")
import sys
import arviz
import numpy as np
import mltree

summary = mltree.summarize(sys.argv[1], burnin=0.2)
data = summary.to_arviz()
np.testing.assert_array_equal(data.posterior["TL"].values, summary.parameters["TL"])
assert dict(data.posterior.sizes) == {"chain": 2, "draw": 49}
assert abs(arviz.summary(data).loc["alpha", "ess_bulk"] - summary.ess["alpha"]) <= 1
np.testing.assert_array_equal(data.sample_stats["lp"].values, summary.parameters["LnL"])
assert data.sample_stats["topology"].values.max() == 1
summary.to_netcdf("x.nc")
again = arviz.from_netcdf("x.nc")
np.testing.assert_array_equal(again.posterior["alpha"], summary.parameters["alpha"])
"""


def test_arviz_takes_it(tmp_path: Path) -> None:
    """In a process of its own: ArviZ imports a package ``tree``, as these tests have one."""
    if find_spec("arviz") is None:
        pytest.skip("ArviZ is not installed")
    command = ("-m", "mltree", "summarize", str(GOLDEN / "mb"), "-p", "x", "--netcdf", "--redo")
    for line in (("-c", ARVIZ, str(GOLDEN / "mb")), command, command):
        ended = subprocess.run(
            [sys.executable, *line], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "x.mltree.nc").read_bytes()[1:4] == b"HDF"


def test_bayes_factors_add_their_errors() -> None:
    rows = compared([Evidence("a", -12.0, 0.3), Evidence("b", -10.0, 0.4)])
    assert [row.model for row in rows] == ["b", "a"]
    assert rows[1].ln_bayes_factor == -2.0
    assert rows[1].error == pytest.approx(0.5)
    assert rows[0].error == 0.0
    assert rows[0].probability == pytest.approx(1 / (1 + math.exp(-2)))
    far = compared([Evidence("a", -1e5, math.nan), Evidence("b", 0.0, 0.1)])
    assert far[1].probability == 0.0
