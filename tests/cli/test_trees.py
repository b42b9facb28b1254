"""``support``, ``consensus``, ``rf`` and ``bootstop``: files and text in, files and text out."""

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from mltree.tree.newick import read_newick

Run = Callable[..., Result]

DATASETS = Path(__file__).parents[2] / "datasets"
REPLICATES = DATASETS / "primates.bootstraps"

TREE = "((('a b':0.10,b:0.2)old:0.3,c:0.000001)12:0.5,((d:1,e:1):0.1,f:1):0.25);\n"
OTHERS = "(('a b',b),c,(d,(e,f)));\n(('a b',b),(d,e),(f,c));\n(b,('a b',c),((d,e),f));\n"
"""Three replicates of which two have (a b, b), two (d, e) and two (d, e, f)."""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with a tree and three others."""
    (tmp_path / "best.nwk").write_text(TREE)
    (tmp_path / "others.nwk").write_text(OTHERS)
    return tmp_path


def test_supports_are_labels_on_a_tree_that_stays_as_it_was(run: Run, files: Path) -> None:
    result = run("support", "best.nwk", "--trees", "others.nwk", "--metric", "fbp,tbe")
    assert result.exit_code == 0, result.output
    assert "others.nwk: 3 trees, 6 taxa" in result.stderr
    assert result.stdout.splitlines() == [
        "FBP  3 inner branches, mean 66.7%",
        "TBE  3 inner branches, mean 72.2%",
        "Wrote best.nwk.mltree.supportFBP",
        "Wrote best.nwk.mltree.supportTBE",
        "Wrote best.nwk.mltree.support.json",
    ]
    fbp = "((('a b':0.1,b:0.2)67:0.3,c:0.000001)67:0.5,((d:1,e:1)67:0.1,f:1)67:0.25);\n"
    assert (files / "best.nwk.mltree.supportFBP").read_text() == fbp
    expected = iter(("0.666667", "0.833333", "0.666667", "0.833333"))
    tbe = re.sub(r"\)67", lambda _: f"){next(expected)}", fbp)
    assert (files / "best.nwk.mltree.supportTBE").read_text() == tbe
    # The labels are names of inner nodes to ete3's parser and every other.
    read_newick(fbp, ["a b", "b", "c", "d", "e", "f"])


@pytest.mark.parametrize("metric", ["fbp", "TBE"])
def test_a_single_metric_is_the_support(run: Run, files: Path, metric: str) -> None:
    arguments = ("support", "best.nwk", "--trees", "others.nwk", "--metric", metric)
    result = run(*arguments, "--prefix", "x", "--json")
    assert result.exit_code == 0, result.output
    *_, event, last = map(json.loads, result.stdout.splitlines())
    assert last["supports"][metric.lower()]["newick"] == event["newick"]
    assert (event["event"], event["metric"]) == ("SupportsDrawn", metric.upper())
    assert event["newick"] + "\n" == (files / "x.mltree.support").read_text()
    again = run(*arguments, "--prefix", "x")
    assert "x.mltree.support already exists (--redo" in again.stderr
    assert run(*arguments, "--prefix", "x", "--redo", "--quiet").output == ""


def test_the_first_of_several_trees_is_supported(run: Run, files: Path) -> None:
    (files / "best.nwk").write_text(TREE + OTHERS)
    result = run("support", "best.nwk", "--trees", "others.nwk")
    assert "note: best.nwk: the first of 4 trees is used" in result.output
    assert (files / "best.nwk.mltree.support").read_text().count("67") == 4


def test_trees_of_three_taxa_have_nothing_to_support(run: Run, tmp_path: Path) -> None:
    (tmp_path / "t.nwk").write_text("(a,b,c);")
    assert run("support", "t.nwk", "--trees", "t.nwk", "--metric", "fbp,tbe").exit_code == 0
    assert (tmp_path / "t.nwk.mltree.supportTBE").read_text() == "(a,b,c);\n"
    assert run("consensus", "t.nwk", "--type", "strict,majority,extended").exit_code == 0
    assert (tmp_path / "t.nwk.mltree.consensusTreeMRE").read_text() == "(a,b,c);\n"
    result = run("rf", "t.nwk", "--reference", "t.nwk")
    assert "mean Robinson-Foulds distance 0.000 (0.00%)" in result.output


def test_consensus_trees_have_their_files(run: Run, files: Path) -> None:
    result = run("consensus", "others.nwk", "--type", "strict,majority,extended", "--prefix", "c")
    assert result.exit_code == 0, result.output
    assert "majority consensus  3 of 3 inner branches" in result.output
    assert (files / "c.mltree.consensusTreeSTRICT").read_text() == "('a b',b,c,d,e,f);\n"
    majority = (files / "c.mltree.consensusTreeMR").read_text()
    assert majority == (files / "c.mltree.consensusTreeMRE").read_text()
    assert majority.count("67") == 3


def test_distances_have_a_line_for_each_pair(run: Run, files: Path) -> None:
    result = run("rf", "others.nwk", "--json")
    assert result.exit_code == 0, result.output
    lines = (files / "others.nwk.mltree.rfDistances").read_text().splitlines()
    assert lines == ["0\t1\t4\t0.666667", "0\t2\t4\t0.666667", "1\t2\t4\t0.666667"]
    *_, event, last = map(json.loads, result.stdout.splitlines())
    assert last["distances"]["mean"] == event["mean"]
    assert (event["pairs"], event["topologies"], event["mean"]) == (3, 3, 4)
    result = run("rf", "others.nwk", "--reference", "best.nwk", "--prefix", "r")
    lines = (files / "r.mltree.rfDistances").read_text().splitlines()
    assert lines == ["0\t1\t2\t0.333333", "0\t2\t2\t0.333333", "0\t3\t2\t0.333333"]
    (files / "twice.nwk").write_text(2 * TREE.replace("0.5", "1.5", 1) + TREE)
    result = run("rf", "twice.nwk", "--weighted")
    assert "3 pairs of trees, 1 topology  mean Robinson-Foulds distance 0.000" in result.output
    lines = (files / "twice.nwk.mltree.rfDistances").read_text().splitlines()
    assert [line.split("\t")[4] for line in lines] == ["0.000000", "1.000000", "1.000000"]


def test_replicates_are_asked_after_every_fifty(run: Run, tmp_path: Path) -> None:
    result = run("bootstop", REPLICATES, "--json", "--cutoff", "0.001")
    assert result.exit_code == 0, result.output
    started, _, *asked, last = map(json.loads, result.stdout.splitlines())
    assert started["seed"] == 1
    assert [event["replicates"] for event in asked] == [50, 100]
    assert not any(event["converged"] for event in asked)
    assert (last["event"], last["enough"]) == ("result", None)
    once = run("bootstop", REPLICATES, "--cutoff", "1", "--seed", "7")
    assert "50 replicates  wRF" in once.output
    assert "1,000 of 1,000 permutations pass: converged" in once.output
    assert "100 replicates" not in once.output
    assert not list(tmp_path.iterdir())


LACKS_F = "((a,b),c,(d,e));"

BAD = {
    "replicate without a taxon": (
        "support best.nwk --trees lacks.nwk",
        "lacks.nwk, line 2: 'f' is in best.nwk but not in this tree",
    ),
    "replicate with another taxon": (
        "support best.nwk --trees more.nwk",
        "more.nwk, line 1: 'g' is in this tree but not in best.nwk",
    ),
    "consensus": (
        "consensus lacks.nwk",
        "lacks.nwk, line 2: 'f' is in the first tree but not in this tree",
    ),
    "distances": (
        "rf lacks.nwk",
        "lacks.nwk, line 2: 'f' is in the first tree but not in this tree",
    ),
    "reference": (
        "rf lacks.nwk --reference best.nwk",
        "lacks.nwk, line 2: 'f' is in best.nwk but not in this tree",
    ),
    "bootstop": (
        "bootstop lacks.nwk",
        "lacks.nwk, line 2: 'f' is in the first tree but not in this tree",
    ),
    "metric": (
        "support best.nwk --trees others.nwk --metric fbp,ebp",
        "--metric: 'ebp' is not one of fbp, tbe",
    ),
    "type": (
        "consensus others.nwk --type ''",
        "--type is empty",
    ),
    "tree without lengths": (
        "rf others.nwk --weighted",
        "--weighted: tree 1 of others.nwk has a branch without a length",
    ),
    "reference without lengths": (
        "rf best.nwk --weighted --reference others.nwk",
        "--weighted: the reference has a branch without a length",
    ),
    "tree without lengths, compared with a reference": (
        "rf others.nwk --weighted --reference best.nwk",
        "--weighted: tree 1 of others.nwk has a branch without a length",
    ),
    "a single tree": (
        "rf best.nwk",
        "best.nwk: a single tree has no distance (give another file of trees",
    ),
    "few replicates": (
        "bootstop others.nwk",
        "others.nwk: too few trees for this test: it needs 50, not 3",
    ),
    "missing file": ("support none.nwk --trees others.nwk", "none.nwk: no such file"),
    "missing replicates": ("support best.nwk --trees none.nwk", "none.nwk: no such file"),
    "missing folder": ("consensus others.nwk --prefix no/x", "there is no folder no"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_input_is_one_line(kind: str, run: Run, files: Path) -> None:
    (files / "best.nwk").write_text(TREE.replace("'a b'", "a"))
    (files / "others.nwk").write_text(OTHERS.replace("'a b'", "a"))
    (files / "lacks.nwk").write_text(OTHERS.replace("'a b'", "a").splitlines()[0] + "\n" + LACKS_F)
    (files / "more.nwk").write_text("((a,b),c,(d,e,(f,g)));")
    before = set(files.iterdir())
    command, message = BAD[kind]
    result = run(*shlex.split(command))
    assert result.exit_code == 2, result.output
    *progress, line = result.stderr.splitlines()
    assert line.startswith(f"mltree: {message}"), result.stderr
    assert all(text.startswith("[00:") for text in progress)
    assert set(files.iterdir()) == before


@pytest.mark.parametrize("cutoff", ["2", "-0.1", "nan", "1_0"])
def test_a_cutoff_is_a_share(run: Run, cutoff: str) -> None:
    result = run("bootstop", REPLICATES, "--cutoff", cutoff)
    assert result.exit_code == 2
    assert "is not" in result.stderr
