"""Dated samples summed up: files, values and page of trees in time."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

import mltree
from mltree.dating.time_trees import TimeTree, read_time_trees
from mltree.sampling.beast_files import TREES_END, log_head, log_line, tree_line, trees_head
from mltree.system.errors import InputError

NAMES = ("A|2001.5", "it's|1999", "c|2000.25", "D d|1998")
LATEST = 2001.5


@pytest.fixture
def prefix(tmp_path: Path) -> str:
    """Two runs of four dated taxa: the root is old, the pair of A and c young."""
    rng = np.random.default_rng(3)
    tips = LATEST - np.array([float(name.rpartition("|")[2]) for name in NAMES])
    for run in (1, 2):
        trees = [trees_head(NAMES)]
        columns = ["Tree.height", "age(root)", "skygrid.logPopSize1", "skygrid.logPopSize2"]
        table = [log_head([*columns, "skygrid.cutOff"])]
        for number in range(40):
            young, middle, root = 4 + rng.random(), 6 + rng.random(), 9 + rng.random()
            # ((A,c),it's) or, in a quarter, ((A,it's),c); D outside
            inner = [4, 5, 4] if number % 4 else [4, 4, 5]
            parents = np.array([*inner, 6, 5, 6, -1])
            tree = TimeTree(
                NAMES, parents, np.array([*tips, young, middle, root]), rng.lognormal(-6, 0.5, 7)
            )
            trees.append(tree_line(number, tree))
            values = [root, LATEST - root, *rng.normal(2.0, 0.1, 2), 3.0]
            table.append(log_line(number, values))
        (tmp_path / f"x.run{run}.trees").write_text("".join([*trees, TREES_END]), encoding="utf-8")
        (tmp_path / f"x.run{run}.log").write_text("".join(table))
    return str(tmp_path / "x")


def test_a_dated_summary_has_all_its_trees(prefix):
    summary = mltree.summarize(prefix, burnin=0)
    assert summary.latest == LATEST
    assert summary.ccd0.rf(summary.mcc) == 0
    rows = {row.taxa: row for row in summary.splits()}
    pair = rows[("A|2001.5", "c|2000.25")]
    assert pair.probability == 0.75
    median, low, high = pair.height
    assert 4 <= low < median < high <= 5
    assert pair.rate is not None
    assert set(summary.courses) == {"lineages", "population"}
    assert np.log(summary.courses["population"].median) == pytest.approx(2.0, abs=0.1)
    facts = json.loads(summary.to_json())
    assert facts["latest"] == LATEST
    assert 9 <= facts["root_height"]["median"] <= 10
    assert len(facts["courses"]["lineages"]["times"]) == 101


def test_heights_and_dates_are_as_asked_for(prefix, tmp_path):
    for heights in ("mean", "common", "keep"):
        summary = mltree.summarize(prefix, burnin=0, heights=heights)
        assert summary.mcc_summary.drawn[:4].tolist() == pytest.approx([0.0, 2.5, 1.25, 3.5])
    summary = mltree.summarize(prefix, burnin=0, dates=r"\|(\d+)")
    assert summary.latest == 2001.0
    table = tmp_path / "ages.tsv"
    table.write_text("".join(f"{name}\t{age}\n" for age, name in enumerate(NAMES, 7)))
    assert mltree.summarize(prefix, burnin=0, dates=str(table), ages=True).latest == -7.0
    with pytest.raises(InputError, match="one of median, mean, common, keep"):
        mltree.summarize(prefix, heights="high")
    golden = Path(__file__).parents[1] / "golden" / "samples" / "mb"
    with pytest.raises(InputError, match="trees without heights have no dates"):
        mltree.summarize(golden, dates="names")


def test_the_command_writes_dated_files(prefix, run, tmp_path):
    result = run("summarize", prefix, "--report", "--burnin", "0", "--prefix", str(tmp_path / "y"))
    assert result.exit_code == 0, result.output
    mcc, ccd0 = (tmp_path / f"y.mltree.{kind}.tre" for kind in ("mcc", "ccd0"))
    for file in (mcc, ccd0):
        (tree,) = read_time_trees(file, NAMES)
        assert tree.heights[:4].tolist() == pytest.approx([0.0, 2.5, 1.25, 3.5], abs=1e-6)
        assert np.isfinite(tree.rates[np.arange(7) != tree.root]).all()
        dates = re.findall(r"[\[,]date=([0-9.e+-]+),date_95%_HPD=\{([^}]*)\}", file.read_text())
        assert len(dates) == 7
        assert {round(float(date), 6) for date, _ in dates} >= {2001.5, 1999.0, 2000.25, 1998.0}
    head, *rows = (tmp_path / "y.mltree.splits.tsv").read_text().splitlines()
    assert head.split("\t")[7:] == [
        f"{name}{end}" for name in ("height", "rate", "date") for end in ("", "_low", "_high")
    ] + ["taxa"]
    for row in rows:
        cells = row.split("\t")
        assert float(cells[13]) == pytest.approx(LATEST - float(cells[7]))
    courses = (tmp_path / "y.mltree.courses.tsv").read_text().splitlines()
    assert courses[0].split("\t")[:3] == ["time", "date", "lineages"]
    assert len(courses) == 102
    exported = json.loads((tmp_path / "y.mltree.auspice.json").read_text())
    root = exported["tree"]["node_attrs"]
    assert 1991 < root["num_date"]["value"] < 1993
    assert {one["key"] for one in exported["meta"]["colorings"]} == {"num_date", "support", "rate"}
    assert exported["tree"]["children"][0]["node_attrs"]["rate"]["value"] > 0
    page = (tmp_path / "y.mltree.posterior.html").read_text()
    for text in ('id="dated"', 'id="lineages"', 'id="population"', "units of time"):
        assert text in page, text
    assert len(re.findall(">199[0-9]<", page)) >= 3
    assert page.count("#c3daee") == 3
