"""``mltree date``, ``mltree.date`` and ``search --dates``: what they write and refuse."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from dated_trees import simulated
from typer.testing import Result

import mltree
from mltree.dating.dates import iso_of
from mltree.tree.clades import read_written

Run = Callable[..., Result]

SIX = "((A:0.1,B:0.12):0.05,((C:0.13,D:0.14):0.02,(E:0.2,F:0.16):0.01):0.03);"
SIX_DATES = "A\t2000\nB\t2003\nC\t2004\nD\t2006\nE\t2007\nF\t2009\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree of thirty tips with dates in their names."""
    path = tmp_path / "dated.nwk"
    written, _, _ = simulated(3, 30, 0.2, sites=2000)
    path.write_text(written.newick() + "\n")
    return path


def rows(path: Path) -> list[dict[str, str]]:
    head, *lines = (line.split("\t") for line in path.read_text().splitlines())
    return [dict(zip(head, line, strict=True)) for line in lines]


def test_files(run: Run, tree: Path, tmp_path: Path) -> None:
    result = run("date", "dated.nwk", "--dates", "names", "--sites", "2000", "--prefix", "x")
    assert result.exit_code == 0, result.output
    dates = rows(tmp_path / "x.mltree.dates.tsv")
    written = read_written(str(tree))[0]
    assert len(dates) == written.n_nodes
    for row in dates:
        assert float(row["lower"]) <= float(row["date"]) <= float(row["upper"])
    times = read_written(str(tmp_path / "x.mltree.timeTree"))[0]
    assert (times.lengths[1:] >= 0.0).all()
    for tip in times.tips:
        date = float(times.labels[tip].split("|")[1])
        assert times.heights[tip] + float(dates[0]["date"]) == pytest.approx(date, abs=1e-5)
    again = read_written(str(tmp_path / "x.mltree.timeTree.nex"))[0]
    np.testing.assert_allclose(again.lengths[1:], times.lengths[1:], atol=1e-6)
    auspice = json.loads((tmp_path / "x.mltree.auspice.json").read_text())
    root = auspice["tree"]["node_attrs"]["num_date"]
    assert root["value"] == pytest.approx(float(dates[0]["date"]), abs=1e-5)
    assert root["confidence"][0] <= root["value"] <= root["confidence"][1]
    assert len(rows(tmp_path / "x.mltree.rtt.tsv")) == 30
    page = (tmp_path / "x.mltree.dates.html").read_text()
    assert page.count("<svg") == 2
    stored = json.loads((tmp_path / "x.mltree.date.json").read_text())
    assert stored["rate"]["value"] > 0.0


def test_python_gives_what_the_command_does(run: Run, tree: Path, tmp_path: Path) -> None:
    run("date", "dated.nwk", "--dates", "names", "--sites", "2000", "--prefix", "x")
    dated = mltree.date(str(tree), "names", sites=2000)
    stored = json.loads((tmp_path / "x.mltree.date.json").read_text())
    assert dated.to_dict()["tree"] == stored["tree"]
    assert "<svg" in dated._repr_html_()
    assert "rate: " in str(dated)


def test_calibrations_and_missing_dates(run: Run, tree: Path, tmp_path: Path) -> None:
    written = read_written(str(tree))[0]
    names = [written.labels[tip] for tip in written.tips]
    (tmp_path / "dates.tsv").write_text(
        "".join(f"{name}\t{name.split('|')[1]}\n" for name in names[2:])
    )
    (tmp_path / "root.tsv").write_text(f"{names[0]},{names[-1]}\t[1900,1950]\n")
    asked = ("--dates", "dates.tsv", "--sites", "2000", "--calibrate", "root.tsv", "--prefix", "y")
    result = run("date", "dated.nwk", *asked)
    assert result.exit_code == 0, result.output
    assert "2 of 30 tips have no date" in result.stderr.replace("\n", " ")
    root = rows(tmp_path / "y.mltree.dates.tsv")[0]
    assert 1900.0 - 1e-6 <= float(root["date"]) <= 1950.0 + 1e-6


def test_roots_and_methods(tree: Path) -> None:
    unrooted = read_written(str(tree))[0].rooted_above(9)
    for more in ({}, {"method": "least-squares"}, {"clock": "strict"}):
        dated = mltree.date(unrooted.newick(), "names", sites=2000, root="best", **more)
        first, second = dated.written.children[0]
        assert (dated.time_tree.lengths[[first, second]] >= 0.0).all()
        assert dated.regression.r_squared > 0.3
    names = [dated.written.labels[tip] for tip in dated.written.tips]
    beside = mltree.date(unrooted.newick(), "names", sites=2000, root=names[0])
    assert names[0] in [beside.written.labels[child] for child in beside.written.children[0]]


def test_outlier_is_reported_and_left_out(tree: Path) -> None:
    text = tree.read_text()
    name = read_written(text)[0].labels[read_written(text)[0].tips[4]]
    late = name.split("|")[0] + "|1700.5"
    dated = mltree.date(text.replace(name, late), "names", sites=2000, outliers=True)
    assert late in dated.outliers
    row = dated.columns()["taxa"].index(late)
    assert dated.dates[row] > 1900.0


@pytest.mark.parametrize(
    ("tree_text", "table", "more", "message"),
    [
        ("((a:1,b:1):1,c:1);", "a\t1\nb\t1\nc\t1\n", (), "all dates are equal"),
        ("((a,b),c);", "a\t1\nb\t2\nc\t3\n", (), "branches have no length"),
        ("((a:3,b:2):0,c:1);", "a\t1\nb\t2\nc\t3\n", (), "no temporal signal"),
        ("((a:1,b:1):1,c:1);", "z\t1\n", (), "no line is of a tip"),
        ("((a:1,b:1):1,c:1);", "a\t1\nb\t2\nc\t3\n", ("c,z\t0",), "no taxon 'z'"),
        ("((a:1,b:1):1,c:1);", "a\t1\nb\t2\nc\t3\n", ("a,b\t5",), " and before "),
        ("((a:1,b:1):1,c:1);", "a\t1\nb\t2\nc\t3\n", ("a,c\t0\tmono",), "a,c are not monophyletic"),
        ("((a:1,b:1):1,c:1);", "a\t1\nb\t2\nc\t3\n", ("a,c\t0\tstem",), "no stem of a,c"),
        ("((a:1,b:1):1,a:1);", "a\t1\nb\t2\n", (), "two tips are called 'a'"),
        ("(a:1,b:1);", "a\t1\nb\t2\n", (), "too few to date"),
    ],
)
def test_refused(run: Run, tmp_path: Path, tree_text: str, table: str, more: tuple[str, ...],
                 message: str) -> None:  # fmt: skip
    (tmp_path / "t.nwk").write_text(tree_text)
    (tmp_path / "d.tsv").write_text(table)
    calibrated = ()
    if more:
        (tmp_path / "c.tsv").write_text("\n".join(more))
        calibrated = ("--calibrate", "c.tsv")
    result = run("date", "t.nwk", "--dates", "d.tsv", "--sites", "100", *calibrated)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
    assert not list(tmp_path.glob("*.mltree.*"))


@pytest.mark.parametrize("outgroup", ["A", "A,B", "A,C"])
def test_an_outgroup_that_does_not_stand_together_is_told_of(
    run: Run, tmp_path: Path, outgroup: str
) -> None:
    (tmp_path / "t.nwk").write_text(SIX)
    (tmp_path / "d.tsv").write_text(SIX_DATES)
    result = run("date", "t.nwk", "--dates", "d.tsv", "--sites", "500", "--root", outgroup)
    assert result.exit_code == 0
    assert ("does not stand together" in result.stderr) == (outgroup == "A,C")


def test_roots_that_contradict_calibrations_are_passed_over(run: Run, tmp_path: Path) -> None:
    (tmp_path / "t.nwk").write_text(SIX)
    (tmp_path / "d.tsv").write_text(SIX_DATES)
    (tmp_path / "c.tsv").write_text("C,D\t[2001,2003]\tmonophyletic\n")
    asked = ("--dates", "d.tsv", "--sites", "500", "--root", "best", "--calibrate", "c.tsv")
    assert run("date", "t.nwk", *asked).exit_code == 0


def test_number_of_sites_is_needed(run: Run, tree: Path) -> None:
    for more, message in (((), "number of sites"), (("--sites", "0"), "0 is not in the range")):
        result = run("date", "dated.nwk", "--dates", "names", *more)
        assert result.exit_code == 2
        assert message in result.stderr


def test_search_ends_with_dates(run: Run, tmp_path: Path) -> None:
    written, dates, _ = simulated(7, 12, sites=400)
    names = {}
    for tip in written.tips:
        label = written.labels[tip]
        names[label] = f"{label.split('|')[0]}|{iso_of(dates[tip])}"
    (tmp_path / "true.nwk").write_text(written.renamed(names).newick() + "\n")
    simulate = ("simulate", "--tree", "true.nwk", "-m", "JC", "--sites", "400", "-o", "a.phy")
    assert run(*simulate).exit_code == 0
    result = run("search", "a.phy", "--model", "JC", "--dates", "names", "--prefix", "s")
    assert result.exit_code == 0, result.output
    assert "calendar" in rows(tmp_path / "s.mltree.dates.tsv")[0]
    wrong = run("search", "a.phy", "--model", "JC", "--dates", "nothing", "--prefix", "w")
    assert wrong.exit_code == 2
    assert "there is no file nothing" in wrong.stderr
