"""Files of samples: what other programs write is read, what is written is as theirs.

tests/golden/samples: mb.*: MrBayes 3.2.7a, eight of the twelve primates, HKY+G, 2 runs of 6,000
generations, every 100th sampled, ``sump`` and ``sumt`` with a burn-in of 0.2. beast.trees, .log: 60
samples of BEAST 2.7.3's testUCRelaxedClockLogNormal; beast.mcc.tre: TreeAnnotator 2.7.3, median
heights, no burn-in.
"""

import gzip
import json
import re
import time
from pathlib import Path

import numpy as np
import pytest

from mltree.sampling import mrbayes_files
from mltree.sampling.mrbayes_files import (
    GrowingRuns,
    files_of,
    read_evidence,
    read_runs,
    read_table,
    read_trees,
    table_head,
    table_line,
    tree_line,
    trees_head,
    with_lengths_of_parts,
)
from mltree.sampling.summaries import Posterior
from mltree.supports.consensus import Consensus, split_table
from mltree.system.errors import InputError
from mltree.tree.clades import Clades, read_clades, write_clades
from mltree.tree.newick import write_newick
from mltree.tree.topology import random_topology

GOLDEN = Path(__file__).parents[1] / "golden" / "samples"

DIGITS = 2e-6
"""Relative rounding of numbers with seven digits."""


def texts(trees: Clades) -> list[str]:
    """Every tree as Newick."""
    parts = (trees.part(number, number + 1) for number in range(trees.n_trees))
    return [write_clades(part, [""] * len(part.tree)) for part in parts]


def rows(text: str) -> dict[str, list[str]]:
    """The rows of a table by their first cell."""
    lines = [line.split("\t") for line in text.splitlines() if "\t" in line]
    return {line[0]: line[1:] for line in lines[1:]}


@pytest.fixture(scope="module")
def of_mrbayes() -> Posterior:
    runs, notices = read_runs(files_of(str(GOLDEN / "mb")))
    assert not notices
    return Posterior.of(runs, 0.2)


@pytest.fixture(scope="module")
def of_beast() -> Posterior:
    runs, _ = read_runs(files_of(str(GOLDEN / "beast.trees")))
    return Posterior.of(runs, 0.0)


# MrBayes' files.


def test_mrbayes_samples_are_read(of_mrbayes: Posterior) -> None:
    assert of_mrbayes.n_runs == 2
    assert of_mrbayes.values.shape == (9, 2, 49)
    assert of_mrbayes.columns[:4] == ("LnL", "LnPr", "TL", "kappa")
    assert of_mrbayes.generations[[0, -1]].tolist() == [1200, 6000]
    assert not of_mrbayes.is_rooted
    assert of_mrbayes.taxa[0] == "Tarsius_syrichta"
    np.testing.assert_allclose(of_mrbayes.tree_lengths, of_mrbayes.parameters["TL"], rtol=1e-5)


def test_splits_and_frequencies_are_mrbayes_own(of_mrbayes: Posterior) -> None:
    ours, theirs = mrbayes_files.parts_text(of_mrbayes), (GOLDEN / "mb.parts").read_text()
    number = {row[0]: ident for ident, row in rows(ours).items()}
    ids = {ident: number[row[0]] for ident, row in rows(theirs).items()}
    assert len(ids) == len(number)
    ours, theirs = mrbayes_files.tstat_text(of_mrbayes), (GOLDEN / "mb.tstat").read_text()
    assert ours.splitlines()[1] == theirs.splitlines()[1]
    mine = rows(ours)
    assert {ids[ident]: row for ident, row in rows(theirs).items()} == mine


def test_branch_lengths_are_mrbayes_own(of_mrbayes: Posterior) -> None:
    number = {row[0]: ident for ident, row in rows(mrbayes_files.parts_text(of_mrbayes)).items()}
    parts = rows((GOLDEN / "mb.parts").read_text())
    mine, theirs = (
        rows(text)
        for text in (mrbayes_files.vstat_text(of_mrbayes), (GOLDEN / "mb.vstat").read_text())
    )
    assert len(mine) == len(theirs)
    for name, row in theirs.items():
        ident = name.removeprefix("length[").removesuffix("]")
        own = mine[f"length[{number[parts[ident][0]]}]"]
        for column in (0, 1):  # mean and variance
            assert float(own[column]) == pytest.approx(float(row[column]), rel=DIGITS)
        assert own[-1] == row[-1]
        # Its median and interval are single samples, the next ones at the most.
        width = float(row[3]) - float(row[2])
        for column in (2, 3, 4):
            assert abs(float(own[column]) - float(row[column])) <= 0.25 * width


def test_parameters_are_mrbayes_own(of_mrbayes: Posterior) -> None:
    mine = rows(mrbayes_files.pstat_text(of_mrbayes))
    theirs = rows((GOLDEN / "mb.pstat").read_text())
    assert theirs.keys() <= mine.keys()
    for name, row in theirs.items():
        for column in (0, 1):
            assert float(mine[name][column]) == pytest.approx(float(row[column]), rel=DIGITS)
        assert float(mine[name][4]) == pytest.approx(float(row[4]), rel=0.05)


def test_topologies_are_mrbayes_own(of_mrbayes: Posterior, tmp_path: Path) -> None:
    ours = mrbayes_files.trprobs_text(of_mrbayes)
    theirs = (GOLDEN / "mb.trprobs").read_text()
    weight = re.compile(r"\[p = (\S+), P = (\S+)\] = \[&W (\S+)\] (.*)")
    mine, known = weight.findall(ours), weight.findall(theirs)
    assert [row[:3] for row in mine] == [row[:3] for row in known]
    labels = "(1,2,3,4,5,6,7,8);"
    for one, other in zip(mine, known, strict=True):
        like = read_clades(labels)
        pair = read_clades(one[3] + "\n" + other[3], like=like)
        assert split_table(pair).n_splits == 5


@pytest.mark.parametrize("kind", [Consensus.MAJORITY, Consensus.EXTENDED])
def test_the_consensus_has_mrbayes_values(of_mrbayes: Posterior, kind: Consensus) -> None:
    tree = of_mrbayes.consensus(kind)
    mine = notes(mrbayes_files.consensus_text(of_mrbayes, tree, "con_50_majrule"))
    theirs = notes((GOLDEN / "mb.con.tre").read_text())
    assert mine.keys() == theirs.keys()
    for names, values in theirs.items():
        for key in ("prob", "prob_stddev", "length_mean") if values else ():
            expected = pytest.approx(float(values[key]), rel=DIGITS, abs=1e-9)
            assert float(mine[names][key]) == expected
        for key in ("prob(percent)", "prob+-sd"):
            assert mine[names].get(key) == values.get(key)
        assert mine[names].keys() == values.keys()


def test_the_best_tree_has_treeannotators_values(of_beast: Posterior) -> None:
    mine = notes(mrbayes_files.mcc_text(of_beast, of_beast.mcc, "MCC"))
    theirs = notes((GOLDEN / "beast.mcc.tre").read_text())
    assert mine.keys() == theirs.keys()
    for names, values in theirs.items():
        for key in ("posterior", "height", "height_median", "length", "length_median", "drawn"):
            if key in values and key in mine[names]:
                expected = pytest.approx(float(values[key]), rel=1e-6, abs=1e-9)
                assert float(mine[names][key]) == expected, (names, key)


def notes(text: str) -> dict[frozenset[str], dict[str, str]]:
    """Values of every node of the last tree, by taxa; ``drawn`` is the length of its branch."""
    names = dict(re.findall(r"^\s*(\d+)\s+([^\s,;]+)", text.lower().split("translate")[1], re.M))
    written = [line for line in text.splitlines() if re.match(r"\s*tree ", line)][-1]
    found: dict[frozenset[str], dict[str, str]] = {}
    stack: list[list[frozenset[str]]] = [[]]
    values: dict[str, str] = {}
    newick = written[written.index("(") :]
    tokens = re.findall(r"\(|\)|,|\[&[^\]]*\]|:[^\[,();]+|[^\[\](),:;\s]+", newick)
    for token in tokens:
        if token == "(":
            stack.append([])
        elif token == ")":
            taxa = frozenset().union(*stack.pop())
            values = found.setdefault(taxa, {})
            stack[-1].append(taxa)
        elif token.startswith("[&"):
            values |= dict(re.findall(r"([^,={}]+)=(\{[^}]*\}|[^,]*)", token[2:-1]))
        elif token.startswith(":"):
            values["drawn"] = token[1:]
        elif token != ",":
            values = found.setdefault(frozenset([names[token]]), {})
            stack[-1].append(frozenset([names[token]]))
    return found


# Reading.


def nexus(trees: list[str], taxa: list[str]) -> str:
    """MrBayes' file of trees whose tips are numbers from 1."""
    return trees_head(taxa, 7) + "".join(map(tree_line, range(0, 100 * len(trees), 100), trees))


@pytest.mark.cases(12, 300)
def test_what_is_written_is_read(case: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(case)
    n_taxa, n = int(rng.integers(4, 40)), int(rng.integers(1, 30))
    odd = ["a b", "it's", "x[1]", "(y)", "z;z", "q,q", "_e_", "ü", 'say "x"', "7"]
    taxa = [*odd, *(f"taxon{number}" for number in range(30))][:n_taxa]
    rng.shuffle(taxa)
    trees = [random_topology(n_taxa, rng) for _ in range(n)]
    for tree in trees:
        tree.lengths[:] = rng.exponential(0.1, tree.n_edges)
    numbers = [str(number) for number in range(1, n_taxa + 1)]
    newicks = [write_newick(tree, numbers, None) for tree in trees]
    file = tmp_path / "x.run1.t"
    file.write_text(nexus(newicks, taxa) + "end;\n")
    notices: list[str] = []
    read, is_rooted = read_trees(str(file), notices)
    named = read_clades("\n".join(write_newick(tree, taxa, None) for tree in trees))
    assert not is_rooted
    assert not notices
    assert read.taxa == tuple(taxa)
    ours = read_clades("\n".join(texts(read)), like=named)
    for name in ("order", "tip_lengths", "tree", "first", "last", "lengths"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(named, name))


def test_trees_of_beast_are_read(of_beast: Posterior) -> None:
    assert of_beast.is_rooted
    assert of_beast.taxa == ("human", "chimp", "bonobo", "gorilla", "orangutan", "siamang")
    assert of_beast.n_trees == 60
    np.testing.assert_allclose(of_beast.heights.root, of_beast.parameters["tree.height"][0])


BASE = "#NEXUS\nbegin trees;\n translate 1 a, 2 b, 3 c, 4 d;\n"


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (BASE + "tree gen.0 = [&U] ((1:1,2:1):1,3:1,4:1);\ntree gen.1 = [&U] (1,2,(3,", 1),
        (
            BASE.lower()
            + "TREE * STATE_0 [&lnP=-3.2,x={1,2}] = [&R] ((1[&r=1]:1,2:1)[&r=2]:1,3:1,4);",
            1,
        ),
        (
            BASE
            + "100\ttree STATE_100 = ((1:1,2:1):1,3:1,4:1);\n200\ttree S = (1,2,(3,4));\nEnd;\n",
            2,
        ),
        (BASE + "tree a = ((1:1,2:1[&B X 0.1]):1[&B X 3],3:1,4:1e-3);\nEND;", 1),
        (BASE + "tree a = ((a:1,b:1):1,c:1,d:1);\nend;", 1),  # names where numbers may stand
        ("#NEXUS\nbegin trees;\ntree a = ((a:1,b:1):1,c:1,d:1);\nend;\n", 1),
        ("((a:1,b:1):1,c:1,d:1);\n((a:1,b:1):1,c:1,d:1);\n", 2),
        ("((a:1,b:1):1,c:1,d:1);\n((a:1,b:1):1,c", 1),
    ],
)
def test_dialects_are_read(text: str, count: int, tmp_path: Path) -> None:
    file = tmp_path / "x.trees"
    file.write_text(text)
    notices: list[str] = []
    trees, _ = read_trees(str(file), notices)
    assert trees.n_trees == count
    assert trees.taxa == ("a", "b", "c", "d")
    assert texts(trees)[0].startswith("((a:1,b:1):1,c:1,d")
    cut = text.rstrip()[-1] != ";"
    assert [cut] * cut == ["no end" in notice for notice in notices]


def test_packed_files_are_read(tmp_path: Path) -> None:
    file = tmp_path / "x.t"
    file.write_bytes(gzip.compress((GOLDEN / "mb.run1.t").read_bytes()))
    trees, _ = read_trees(str(file), [])
    assert trees.n_trees == 61


@pytest.mark.parametrize(
    ("text", "is_rooted"),
    [
        ("tree a = [&R] ((1:1,2:1):1,(3:1,4:1):1);", True),
        ("tree a = [&U] ((1:1,2:1):1,(3:1,4:1):1);", False),
        ("tree a = ((1:1,2:1):1,(3:1,4:1):1);", True),
        ("tree a = ((1:1,2:1):1,3:1,4:1);", False),
        ("tree a = [&R] ((1:1,2:1):1,3:1,4:1);", True),
        ("tree a = (1:1,(2:1,(3:1,4:1):1):1);\ntree b = ((1,2),3,4);", False),
    ],
)
def test_roots_are_told(text: str, is_rooted: bool, tmp_path: Path) -> None:
    (tmp_path / "x.t").write_text(BASE + text)
    assert read_trees(str(tmp_path / "x.t"), [])[1] == is_rooted


def test_runs_may_have_taxa_in_another_order(tmp_path: Path) -> None:
    (tmp_path / "x.run1.t").write_text(BASE + "tree a = ((1:1,2:2):3,3:4,4:5);\n")
    other = BASE.replace("1 a, 2 b, 3 c, 4 d", "1 c, 2 d, 3 b, 4 a")
    (tmp_path / "x.run2.t").write_text(other + "tree a = ((4:1,3:2):3,1:4,2:5);\n")
    runs, _ = read_runs(files_of(str(tmp_path / "x")))
    posterior = Posterior.of(runs, 0.0)
    np.testing.assert_array_equal(posterior.tip_lengths, [[1, 2, 4, 5]] * 2)
    assert posterior.asdsf == 0
    (tmp_path / "x.run2.t").write_text(other.replace("4 a", "4 z") + "tree a = ((4,3),1,2);\n")
    with pytest.raises(InputError, match="'a' and 1|'a', 'z'|in .*run2"):
        read_runs(files_of(str(tmp_path / "x")))


@pytest.mark.parametrize(
    "text",
    ["tree a = ((1:1,2:1):1,3:1,4:1;", "tree a = (1:x,2,3,4);", "tree a = (1,2,3,5);",
     "tree a = (1,2,3);", "end;", "tree a = (1,1,3,4);"],
)  # fmt: skip
def test_broken_trees_are_one_line(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.t").write_text(BASE + text + "\nend;\n")
    with pytest.raises(InputError) as error:
        read_trees(str(tmp_path / "x.t"), [])
    assert "x.t" in str(error.value)


# Tables.


@pytest.mark.parametrize(
    ("text", "columns", "values"),
    [
        ("[ID: 7]\nGen\tLnL\tTL\n0\t-3.0e0\t1\n100\t-2\t2\n", ("LnL", "TL"), [[-3, 1], [-2, 2]]),
        ("# a\n#b\nSample\tposterior\tx\t\n0\t-3\t1\t\n9\t-2\t2\t\n", ("posterior", "x"),
         [[-3, 1], [-2, 2]]),
        ("Iteration\tLikelihood\tpi[1]\ttree\n0\t-3\t1\t(a,b);\n1\t-2\t2\t(b,a);\n",
         ("Likelihood", "pi[1]"), [[-3, 1], [-2, 2]]),
        ("Iteration,x,y\n0,-3,1\n1,-2,2\n", ("x", "y"), [[-3, 1], [-2, 2]]),
        ("#cycle\t#treegen\tloglik\n1\t0.1\t-3\n2\t0.1\t-2\n", ("loglik",), [[-3], [-2]]),
        ("Gen\tx\n0\t1\nGen\tx\n1\t2\n", ("x",), [[1], [2]]),
        ("Gen\tx\ty\n0\t1\t2\n1\t5\n", ("x", "y"), [[1, 2]]),
        ("Gen\tx\tx\n0\t1\t2\n", ("x", "x_2"), [[1, 2]]),
        ("x y\n1 2\n3 4\n", ("x", "y"), [[1, 2], [3, 4]]),
        ("Gen\tx\n0\tnan\n1\t-inf\n", ("x",), [[np.nan], [-np.inf]]),
    ],
)  # fmt: skip
def test_tables_of_all_kinds_are_read(
    text: str, columns: tuple[str, ...], values: list[list[float]], tmp_path: Path
) -> None:
    (tmp_path / "x.log").write_text(text)
    notices: list[str] = []
    names, read, generations = read_table(str(tmp_path / "x.log"), notices)
    assert names == columns
    np.testing.assert_array_equal(read, values)
    assert len(generations) == len(values)
    assert len(notices) == (text.endswith("1\t5\n"))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "without values"), ("Gen\tx\n", "not a table"), ("1\t2\n3\t4\n", "not a table"),
        ("Gen\tx\n0\t1\t2\n", "3 values for 2 names"), ("Gen\tx\n0\t1\n1\ta\n2\t3\n", "line 3"),
        ("Gen\tx\n0\t1\n1\n2\t3\n", "1 values for 2 names"),
        ("Gen\tx\n0\t1\n1\t1_0\n2\t2\n", "not a number"),
    ],
)  # fmt: skip
def test_broken_tables_are_one_line(text: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "x.log").write_text(text)
    with pytest.raises(InputError, match=problem):
        read_table(str(tmp_path / "x.log"), [])


def test_tables_are_written_and_read(tmp_path: Path) -> None:
    values = np.random.default_rng(1).normal(size=(20, 3)) * 10.0 ** np.arange(-9, 9, 6)
    text = table_head(("LnL", "pi(A)", "r(A<->C)"), 1)
    text += "".join(table_line(100 * at, row) for at, row in enumerate(values.tolist()))
    (tmp_path / "x.p").write_text(text)
    names, read, generations = read_table(str(tmp_path / "x.p"), [])
    assert names == ("LnL", "pi(A)", "r(A<->C)")
    np.testing.assert_array_equal(read, values)
    assert generations.tolist() == list(range(0, 2000, 100))


def test_trees_of_revbayes_tables_are_read(tmp_path: Path) -> None:
    rows = "".join(f"{n}\t-3\t((a[&index=1]:1,b:1):1,c:1,d:1)[&index=7];\n" for n in range(3))
    (tmp_path / "o_run_1.trees").write_text("Iteration\tPosterior\tpsi\n" + rows)
    (tmp_path / "o_run_2.trees").write_text("Iteration\tPosterior\tpsi\n" + rows)
    runs, _ = read_runs(files_of(str(tmp_path / "o")))
    posterior = Posterior.of(runs, 0.0)
    assert (posterior.n_runs, posterior.n_trees) == (2, 3)
    assert posterior.mcc.newick() == "(c:1,d:1,(a:1,b:1):1);" or not posterior.is_rooted


# Files of a prefix.


@pytest.mark.parametrize(
    ("prefix", "files", "runs"),
    [
        ("p", ["p.run1.t", "p.run1.p", "p.run2.t", "p.run10.t", "p.con.tre", "pp.run1.t"],
         ["p.run1", "p.run2", "p.run10"]),
        ("p.nex", ["p.nex", "p.nex.run1.t", "p.nex.run1.p"], ["p.nex.run1"]),
        ("p", ["p.mltree.run1.t", "p.mltree.run2.t", "p.mltree.log", "p.log"],
         ["p.mltree.run1", "p.mltree.run2"]),
        ("b", ["b.trees", "b.log"], ["b"]),
        ("b", ["b.1.trees", "b.1.log", "b.2.trees", "b.trees"], ["b.1", "b.2"]),
        ("r", ["r_run_1.trees", "r_run_2.trees", "r.log"], ["r_run_1", "r_run_2"]),
        ("b.trees", ["b.trees", "b.log"], ["b"]),
        ("b.log", ["b.log"], ["b"]),
    ],
)  # fmt: skip
def test_runs_are_found(prefix: str, files: list[str], runs: list[str], tmp_path: Path) -> None:
    for name in files:
        (tmp_path / name).touch()
    found = files_of(str(tmp_path / prefix))
    assert [Path(one.name).name for one in found] == runs


def test_a_prefix_without_runs_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no run has left samples"):
        files_of(str(tmp_path / "x"))
    with pytest.raises(InputError, match="no run"):
        files_of(str(tmp_path / "no" / "x"))


def test_other_topologies_are_no_other_lengths(tmp_path: Path) -> None:
    one, other = "((a:1,b:1):1,c:1,d:1);", "((a:1,c:1):1,b:1,d:1);"
    for number, trees in enumerate(([one, other, one], [one, other, other]), 1):
        (tmp_path / f"x.tree{number}.run1.t").write_text("\n".join(trees) + "\n")
    files = files_of(str(tmp_path / "x"))
    first = Posterior.of(read_runs(files)[0], 0.0)
    with pytest.raises(InputError, match="topologies are not those of the first file of trees"):
        list(with_lengths_of_parts(files, first))


def test_parts_with_lengths_of_their_own_have_trees_of_their_own(tmp_path: Path) -> None:
    names = [f"x.tree{tree}.run{run}.t" for tree in (1, 2, 3) for run in (1, 2)]
    for name in names:
        (tmp_path / name).touch()
    for tables in ([], ["x.run1.p", "x.run2.p"]):
        for name in tables:
            (tmp_path / name).touch()
        one, other = files_of(str(tmp_path / "x"))
        assert (one.table is not None) == bool(tables)
        assert Path(str(one.trees)).name == "x.tree1.run1.t"
        assert [Path(file).name for file in other.further] == ["x.tree2.run2.t", "x.tree3.run2.t"]
    (alone,) = files_of(str(tmp_path / "x.tree2.run1.t"))
    assert alone.table is None
    assert alone.further == ()
    assert len(files_of(str(tmp_path / "x.tree3"))) == 2


# Marginal likelihoods.


def test_contributions_of_steps_are_summed(tmp_path: Path) -> None:
    (tmp_path / "x.ss").write_text(
        "[LEGEND: x]\n[ID: 7]\nStep\tPower\trun1\trun2\taSplit0\n"
        "  1\t0.9\t-1.0\t-1.5\t0.1\n  2\t0.5\t-2.0\t-2.5\t0.1\n"
    )
    found = read_evidence(str(tmp_path / "x"))
    assert found is not None
    assert found.lnz == pytest.approx(np.log((np.exp(-3) + np.exp(-4)) / 2))
    assert found.error == pytest.approx(np.std([-3, -4], ddof=1) / np.sqrt(2))
    assert read_evidence(str(tmp_path / "y")) is None
    (tmp_path / "x.ss").write_text("Step\tPower\n1\t0.5\n")
    with pytest.raises(InputError, match="no contributions of runs in it"):
        read_evidence(str(tmp_path / "x"))


def test_ln_z_of_samples_is_read(tmp_path: Path) -> None:
    file = tmp_path / "x.mltree.sample.json"
    file.write_text(json.dumps({"lnz": -7.5, "lnz_error": 0.25}))
    found = read_evidence(str(tmp_path / "x"))
    assert found is not None
    assert (found.lnz, found.error) == (-7.5, 0.25)
    file.write_text('{"lnz": -7.5, "lnz_error": null}')
    found = read_evidence(str(tmp_path / "x"))
    assert found is not None
    assert np.isnan(found.error)
    file.write_text("{}")
    assert read_evidence(str(tmp_path / "x")) is None
    file.write_text("[1]")
    with pytest.raises(InputError, match="not the result of"):
        read_evidence(str(tmp_path / "x"))


def test_large_files_are_read_fast(tmp_path: Path) -> None:
    """A guard against a loop over nodes: 2 µs of CPU a branch, where this machine takes 0.6."""
    rng = np.random.default_rng(2)
    numbers = [str(number) for number in range(1, 101)]
    trees = [random_topology(100, rng) for _ in range(20)]
    for tree in trees:
        tree.lengths[:] = rng.exponential(0.1, tree.n_edges)
    newicks = [write_newick(tree, numbers, 6) for tree in trees] * 100
    (tmp_path / "x.t").write_text(nexus(newicks, numbers))
    began = time.process_time()
    trees, _ = read_trees(str(tmp_path / "x.t"), [])
    assert trees.n_trees == 2000
    assert time.process_time() - began < 2e-6 * 2000 * 197 * 3


@pytest.mark.parametrize("prefix", ["mb", "beast"])
@pytest.mark.parametrize("case", range(3))
def test_files_that_grow_are_read_as_whole_ones(tmp_path: Path, prefix: str, case: int) -> None:
    """Samples come a few at a time, as many of the trees as of the table."""
    rng = np.random.default_rng(case)
    runs = files_of(str(GOLDEN / ("mb" if prefix == "mb" else "beast.trees")))
    whole, _ = read_runs(runs)
    growing, done = GrowingRuns(str(tmp_path / prefix)), 0
    names = [str(path) for one in runs for path in (one.trees, one.table)]
    lines = [Path(name).read_text().splitlines(keepends=True) for name in names]
    samples = whole[0].trees.n_trees
    tree = re.compile(r"\s*u?tree ", re.IGNORECASE)
    first = [next(n for n, line in enumerate(each) if tree.match(line) or line[0].isdigit())
             for each in lines]  # fmt: skip
    while done < samples:
        done = min(done + int(rng.integers(1, 25)), samples)
        for name, each, head in zip(names, lines, first, strict=True):
            (tmp_path / Path(name).name).write_text("".join(each[: head + done]))
        read = growing.read()
    for one, other in zip(read, whole, strict=True):
        assert texts(one.trees) == texts(other.trees)
        assert np.array_equal(one.values, other.values)
        assert np.array_equal(one.generations, other.generations)
        assert (one.columns, one.is_rooted) == (other.columns, other.is_rooted)
