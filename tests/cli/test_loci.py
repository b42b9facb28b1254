"""``mltree search`` of many loci: what it takes, writes and says."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import Result

from mltree.device.discovery import choose_devices
from mltree.runs import logged_run as request
from mltree.runs.logged_run import ranks_for
from mltree.tree.newick import read_newicks

Run = Callable[..., Result]

OPTIONS = ("--model", "JC", "--preset", "fast", "--moves", "nni")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three loci of four, five and six taxa, and what is none."""
    rng = np.random.default_rng(8)
    folder = tmp_path / "loci"
    folder.mkdir()
    for n, name in enumerate("bca"):
        rows = rng.choice(list("ACGT"), 60) * np.ones((4 + n, 1), np.int64).astype(object)
        noise = rng.random((4 + n, 60)) < 0.3
        rows = np.where(noise, rng.choice(list("ACGT"), rows.shape), rows)
        lines = [f">{name}{tip}\n{''.join(row)}\n" for tip, row in enumerate(rows)]
        (folder / f"{name}.fa").write_text("".join(lines))
    (folder / "README").write_text("These are loci.\n")
    (folder / ".hidden").write_text("x")
    return folder


def table(path: Path) -> list[list[str]]:
    return [line.split("\t") for line in path.read_text().splitlines()]


def test_a_folder_is_many_loci(run: Run, folder: Path) -> None:
    result = run("search", "loci", *OPTIONS)
    assert result.exit_code == 0, result.output
    assert "README  skipped: loci/README" in result.stderr
    assert result.stdout.startswith("3 trees, 1 skipped, sum of lnL -")
    header, *rows = table(Path("loci.mltree.lociTable"))
    assert header == ["locus", "taxa", "sites", "patterns", "lnl", "tree_length", "model", "tree"]
    assert [row[-1] for row in rows] == ["", "1", "2", "3"]
    assert [row[0] for row in rows] == ["README", "a.fa", "b.fa", "c.fa"]
    assert [row[1] for row in rows] == ["", "6", "4", "5"]
    trees = Path("loci.mltree.bestTrees").read_text().splitlines()
    assert [tree.count(",") for tree in trees] == [5, 3, 4]
    assert [tree[1] for tree in trees] == ["a", "b", "c"]
    again = run("search", "loci", *OPTIONS)
    assert again.exit_code == 0
    assert "has 3 loci" in again.stderr
    assert Path("loci.mltree.bestTrees").read_text().splitlines() == trees


def test_names_that_are_changed_lead_back(run: Run, folder: Path) -> None:
    for number, old in enumerate(("a0", "b0", "a1")):
        for file in folder.glob("*.fa"):
            new = ("Pan:1", "Pan:2", "Pan_2")[number]
            file.write_text(file.read_text().replace(f">{old}\n", f">{new}\n"))
    (folder / "c.fa").write_text((folder / "c.fa").read_text().replace(">c0\n", ">Pan;1\n"))
    for _ in range(2):  # the second run takes them from the journal
        result = run("search", "loci", *OPTIONS)
        assert result.exit_code == 0, result.output
        assert "Pan_1 is Pan:1 in a.fa and Pan;1 in c.fa" in result.stderr
        assert table(Path("loci.mltree.names")) == [
            ["name", "alignment"],
            ["Pan_1", "Pan:1"],
            ["Pan_2", "Pan:2"],
        ]
    facts = json.loads(Path("loci.mltree.json").read_text())
    assert facts["files"]["names"] == "loci.mltree.names"
    assert [one.get("renamed") for one in facts["loci"] if "taxa" in one] == [
        {"Pan_1": "Pan:1"},
        {"Pan_2": "Pan:2"},
        {"Pan_1": "Pan;1"},
    ]
    for file in folder.glob("*.fa"):
        file.write_text(file.read_text().replace(":", "").replace(";", ""))
    assert run("search", "loci", *OPTIONS, "--redo").exit_code == 0
    assert not Path("loci.mltree.names").exists()


def test_files_in_the_order_given_and_as_json(run: Run, folder: Path) -> None:
    files = [folder / "c.fa", folder / "a.fa"]
    result = run("search", *files, *OPTIONS, "--prefix", "x", "--json")
    assert result.exit_code == 0, result.output
    *events, last = map(json.loads, result.stdout.splitlines())
    assert {event["name"] for event in events if event["event"] == "LocusDone"} == {"c.fa", "a.fa"}
    assert [locus["name"] for locus in last["loci"]] == ["c.fa", "a.fa"]
    assert last["lnl"] == pytest.approx(sum(locus["lnl"] for locus in last["loci"]))
    assert json.loads(Path("x.mltree.json").read_text())["trees"] == 2
    assert set(last["files"]) == {"log", "bestTrees", "lociTable", "json"}


def test_a_list_and_a_supermatrix(run: Run, folder: Path) -> None:
    (folder / "list.txt").write_text("# two of them\nb.fa\n\nloci/c.fa\n")
    result = run("search", folder / "list.txt", "--separate", *OPTIONS, "--prefix", "x")
    assert result.exit_code == 0, result.output
    assert [row[0] for row in table(Path("x.mltree.lociTable"))[1:]] == ["b.fa", "c.fa"]
    lines = (folder / "c.fa").read_text().splitlines()
    rows = [line + line for line in lines[1::2]]
    rows[2] = rows[2][:60] + "-" * 60
    text = "".join(f"{name}\n{row}\n" for name, row in zip(lines[::2], rows, strict=True))
    Path("matrix.fa").write_text(text)
    model = ("--model", "parts.txt", *OPTIONS[2:], "--prefix", "y")
    Path("parts.txt").write_text("JC, one = 1-60\nJC, two = 61-120\n")
    result = run("search", "matrix.fa", "--separate", *model)
    assert result.exit_code == 0, result.output
    assert "two: left out 1 taxon" in result.stderr
    _, one, two = table(Path("y.mltree.lociTable"))
    assert (one[:3], two[:3]) == (["one", "5", "60"], ["two", "4", "60"])
    assert one[4] == table(Path("x.mltree.lociTable"))[2][4]
    trees = Path("y.mltree.bestTrees").read_text().splitlines()
    taxa = [line[1:] for line in lines[::2]]
    Path("one").write_text(trees[0])
    assert len(read_newicks("one", taxa)) == 1
    assert "c2" not in trees[1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("loci/a.fa", "loci/none.fa", "--prefix", "x"), "none.fa"),
        (("list", "--separate"), "there is no file none.fa"),
        (("loci/a.fa", "loci/b.fa"), "many alignments need a name"),
        (("loci", "--outgroup", "a0"), "--outgroup is for the search of one alignment"),
        (("loci", "--report"), "--report is for"),
        (("loci", "--model", "auto", "--merge"), "--merge is for"),
        (("loci/a.fa", "--species-tree", "(a0,a1,a2);"), "--species-tree goes with loci"),
        (("loci", "--species-tree", "none.nwk"), "none.nwk"),
        (("loci", "--tree", "list"), "a file of trees"),
        (("empty",), "there is no alignment in it"),
        (("linked",), "gone.fa: no such file"),
        (("-", "loci/a.fa", "--prefix", "x"), "standard input is one alignment"),
        (("loci/README", "loci/.hidden", "--prefix", "x"), "no locus could be searched"),
        (("loci", "--model", "parts"), "a partition file is for one alignment"),
        (("loci", "--model", "NOSUCH+G4"), "NOSUCH"),
    ],
)
def test_what_cannot_be_is_one_line(
    run: Run, folder: Path, arguments: tuple[str, ...], said: str
) -> None:
    Path("empty").mkdir()
    Path("linked").mkdir()
    Path("linked/gone.fa").symlink_to("nowhere.fa")
    Path("linked/a.fa").symlink_to(folder / "a.fa")
    Path("list").write_text("loci/a.fa\nnone.fa\n")
    Path("parts").write_text("JC, one = 1-60\n")
    before = sorted(folder.parent.rglob("*"))
    result = run("search", *arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    assert "Traceback" not in result.output
    left = {path.name for path in sorted(folder.parent.rglob("*")) if path not in before}
    assert left <= {"x.mltree.log"}


def test_one_search_and_one_of_many_share_no_prefix(run: Run, folder: Path) -> None:
    """But by --redo, which leaves nothing of the older one."""
    own = ("--prefix", "x", "--device", "reference", *OPTIONS)
    kinds = {
        "loci": {"bestTrees", "lociTable", "loci"},
        "loci/a.fa": {"bestTree", "bestModel", "startTree", "events"},
    }
    names = [*kinds, "loci"]
    assert run("search", names[0], *own).exit_code == 0
    for name in names[1:]:
        result = run("search", name, *own)
        assert result.exit_code == 2
        assert "already exists (--redo" in result.stderr
        assert run("search", name, *own, "--redo").exit_code == 0
        left = {path.name.removeprefix("x.mltree.") for path in Path().glob("x.*")}
        assert left == {"log", "json", *kinds[name]}


@pytest.fixture
def genes(tmp_path: Path, run: Run) -> Path:
    """Three loci of one species tree of eight; the second has seven of its taxa."""
    (tmp_path / "genes").mkdir()
    model = ("--model", "HKY{3}+FU{0.3/0.2/0.2/0.3}", "--seed", "4", "--quiet")
    first = ("--taxa", "8", "--mean-length", "0.1", "--true-tree", "species.nwk")
    for number, tree in enumerate([first, *[("--tree", "species.nwk")] * 2], 1):
        file = ("--sites", str(90 * number), "--out", f"genes/{number}.fa")
        assert run("simulate", *tree, *file, *model).exit_code == 0
    second = tmp_path / "genes/2.fa"
    second.write_text(">" + ">".join(second.read_text().split(">")[1:-1]))
    return tmp_path


LABEL = re.compile(r"\)([\d./]+)")


@pytest.mark.parametrize(
    "supports", ["--sh-alrt 50 --abayes --bootstrap 4", "--sh-alrt 20 --ufboot 1000", "--lbp 20"]
)
def test_supports_are_those_of_each_locus_alone(run: Run, genes: Path, supports: str) -> None:
    options = (*OPTIONS, *supports.split())
    assert run("search", "genes", *options).exit_code == 0
    trees = (genes / "genes.mltree.bestTrees").read_text().splitlines()
    for number, tree in enumerate(trees, 1):
        assert (
            run("search", f"genes/{number}.fa", *options, "--prefix", "x", "--redo").exit_code == 0
        )
        labels = LABEL.findall(tree)
        assert labels == LABEL.findall(Path("x.mltree.support").read_text())
        assert len(labels) == tree.count(",") - 2
        assert labels[0].count("/") == supports.count("--") - 1


def test_a_run_of_a_folder_chooses_a_model_for_each(
    run: Run, genes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mltree.runs.model_choice.matrices", lambda *_: ("JC", "HKY+FC", "GTR+FC"))
    monkeypatch.setattr("mltree.runs.model_choice.REFERENCE_RATES", ("", "+G4"))
    monkeypatch.setattr("mltree.runs.model_choice.free_rates", lambda _: "+G4")
    result = run("run", "genes", "--preset", "fast", "--sh-alrt", "20")
    assert result.exit_code == 0, result.output
    assert "--species-tree species.nwk adds concordance factors" in result.stdout
    _, *rows = table(genes / "genes.mltree.lociTable")
    assert [row[1] for row in rows] == ["8", "7", "8"]
    for number, row in enumerate(rows, 1):
        own = ("--prefix", "y", "--preset", "fast", "--model", "auto", "--redo")
        assert run("search", f"genes/{number}.fa", *own).exit_code == 0
        assert row[6] + "," in Path("y.mltree.bestModel").read_text()
    assert all(map(LABEL.search, (genes / "genes.mltree.bestTrees").read_text().splitlines()))
    again = run(
        "run", "genes", "--preset", "fast", "--sh-alrt", "20", "--species-tree", "species.nwk"
    )
    assert again.exit_code == 0, again.output
    assert "has 3 loci" in again.stderr
    assert "BIC" not in again.stderr
    assert (genes / "genes.mltree.concordanceTree").exists()


def test_concordance_is_that_of_the_trees_and_the_supermatrix(run: Run, genes: Path) -> None:
    """Sites are counted in all loci together, with gaps where one lacks a taxon."""
    assert run("search", "genes", *OPTIONS, "--species-tree", "species.nwk").exit_code == 0
    rows: dict[str, str] = {}
    for number in (1, 2, 3):
        for record in (genes / f"genes/{number}.fa").read_text().split(">")[1:]:
            name, *lines = record.split()
            rows[name] = rows.get(name, "").ljust(90 * (number * (number - 1) // 2), "-") + "".join(
                lines
            )
    assert {len(row) for row in rows.values()} == {540}
    (genes / "all.fa").write_text("".join(f">{name}\n{row}\n" for name, row in rows.items()))
    own = ("--gene-trees", "genes.mltree.bestTrees", "--alignment", "all.fa", "--prefix", "z")
    assert run("concordance", "species.nwk", *own).exit_code == 0
    for kind in ("concordance", "concordanceTree"):
        ours, theirs = (Path(f"{prefix}.mltree.{kind}").read_text() for prefix in ("genes", "z"))
        assert ours == theirs
    (genes / "other.nwk").write_text("(T1,T2,(T3,T4));")
    options = (*OPTIONS, "--species-tree", "other.nwk", "--prefix", "w")
    result = run("search", "genes", *options)
    assert result.exit_code == 2
    assert "in gene tree 1 but not in the tree" in result.stderr
    assert Path("w.mltree.bestTrees").exists()


@pytest.mark.parametrize(
    ("worth", "cpus", "ranks"),
    [(8, 16, 8), (20, 16, 14), (8, 64, 8), (8, 4, 3), (8, 2, 1), (0, 16, 1)],
)
def test_a_gpu_gets_as_many_ranks_as_it_is_worth(worth: int, cpus: int, ranks: int) -> None:
    (cpu,) = choose_devices("cpu")
    gpu = replace(cpu, is_cpu=False)
    assert ranks_for(worth, [gpu], cpus) == ranks
    assert ranks_for(worth, [cpu], cpus) == ranks_for(worth, [], cpus) == 1


@pytest.mark.parametrize("option", [(), ("--ranks", "auto")])
def test_ranks_are_started_unless_told_otherwise(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch, option: tuple[str, ...]
) -> None:
    started: list[int] = []
    monkeypatch.setattr(request, "LOCI_OF_A_RANK", 1)
    monkeypatch.setattr(request, "ranks_for", lambda worth, *_: 10 * worth)
    monkeypatch.setattr(request, "start", started.append)
    assert run("search", "loci", *OPTIONS, "--ranks", "1").exit_code == 0
    assert not started
    assert run("search", "loci", *OPTIONS, "--redo", *option).exit_code == 0
    assert started == [40]


@pytest.mark.parametrize("command", ["bootstrap", "search"])
def test_ranks_are_started_for_the_replicates_that_are_left(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    started: list[int] = []
    monkeypatch.setattr(request, "TIPS_OF_A_RANK", 1)
    monkeypatch.setattr(request, "MOST_FOR_REPLICATES", 1_000)
    monkeypatch.setattr(request, "ranks_for", lambda worth, *_: worth)
    monkeypatch.setattr(request, "start", started.append)
    locus, taxa = folder / "a.fa", 6
    count = "--replicates" if command == "bootstrap" else "--bootstrap"
    options = [str(locus), "--model", "JC", "--prefix", "x", count]
    assert run(command, *options, "2").exit_code == 0
    assert run(command, *options, "5", "--ranks", "1").exit_code == 0
    assert run(command, *options, "6").exit_code == 0
    assert started == [2 * taxa, taxa]


def test_loci_are_added_but_not_replaced_unasked(run: Run, folder: Path) -> None:
    own = ("--prefix", "x", "--device", "reference", *OPTIONS[2:], "--model")
    assert run("search", folder / "a.fa", folder / "b.fa", *own, "JC").exit_code == 0
    before = table(Path("x.mltree.lociTable"))
    result = run("search", folder / "a.fa", folder / "b.fa", *own, "K80")
    assert result.exit_code == 2
    assert "already exists (--redo" in result.stderr
    assert table(Path("x.mltree.lociTable")) == before
    added = run("search", folder / "a.fa", folder / "b.fa", folder / "c.fa", *own, "JC")
    assert added.exit_code == 0
    assert "x.mltree.loci has 2 loci" in added.stderr
    assert table(Path("x.mltree.lociTable"))[:3] == before
