"""``mltree unifrac`` and ``mltree.unifrac``: files, parts, rarefaction, statistics, errors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from launches import alone, launch, ran

import mltree
from mltree.analyses import unifrac as module
from mltree.analyses.tree_options import UnifracOptions
from mltree.analyses.unifrac import BranchShares
from mltree.diversity.branches import place
from mltree.diversity.matrix import read_matrix
from mltree.diversity.table import read_table, table_of
from mltree.diversity.unifrac import Metric, ReferenceUnifrac, UnifracProblem
from mltree.report.progress import Reporter, Verbosity, progress_terminal
from mltree.runs.workspace import Workspace
from mltree.system.errors import InputError
from mltree.system.events import Notice

ROOT = Path(__file__).parents[2]
DATA = ROOT / "datasets"
TABLE, TREE, METADATA = (
    str(DATA / f"habitats{ending}") for ending in (".tsv", ".nwk", ".metadata.tsv")
)


def run(folder: Path, *arguments: str, code: int = 0, table: str = TABLE, tree: str = TREE) -> str:
    command = [sys.executable, "-m", "mltree", "unifrac", table, "--tree", tree, "--prefix", "x"]
    done = subprocess.run(
        [*command, *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    return done.stderr


def reference(metric: Metric, table: str = TABLE) -> np.ndarray:
    samples = place(read_table(table), TREE)
    every = slice(0, samples.n_samples)
    return ReferenceUnifrac(UnifracProblem(samples, metric)).tile(every, every)


def test_files_of_several_metrics(tmp_path: Path) -> None:
    run(
        tmp_path, "--metric", "unweighted,weighted,generalized", "--alpha", "0,0.5",
        "--pcoa", "3", "--nearest", "2", "--metadata", METADATA, "--group", "habitat",
        "--tests", "permanova,permdisp,anosim", "--branches", "--page",
    )  # fmt: skip
    labels = "unweighted", "weighted_normalized", "generalized_0", "generalized_0.5"
    metrics = (
        Metric("unweighted"), Metric("weighted_normalized"), Metric("generalized", 0.0),
        Metric("generalized", 0.5),
    )  # fmt: skip
    result = json.loads((tmp_path / "x.mltree.unifrac.json").read_text())
    assert set(result["metrics"]) == set(labels)
    for label, metric in zip(labels, metrics, strict=True):
        stored = read_matrix(str(tmp_path / f"x.mltree.{label}.tsv"))
        assert (stored.data == reference(metric)).all()
        assert len((tmp_path / f"x.mltree.{label}.nearest").read_text().splitlines()) == 49
        tests = result["metrics"][label]["tests"]
        assert [test["method"] for test in tests] == ["PERMANOVA", "PERMDISP", "ANOSIM"]
        assert tests[0]["p_value"] < 0.05
    samples = place(read_table(TABLE), TREE)
    lines = (tmp_path / "x.mltree.branches").read_text().splitlines()
    assert len(lines) == 1 + samples.branches.count
    shares = [float(line.split("\t")[6]) for line in lines[1:]]
    assert sum(shares) == pytest.approx(1, abs=1e-4)
    faith = (tmp_path / "x.mltree.faith").read_text().splitlines()
    assert float(faith[1].split("\t")[1]) == pytest.approx(
        ReferenceUnifrac(UnifracProblem(samples, Metric("unweighted"))).faith()[0]
    )


def test_ranks_make_the_bits_of_one_process(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    folders = [tmp_path / name for name in ("one", "three")]
    names = [f"f{number}" for number in range(40)]
    counts = rng.poisson(0.3, (40, 600)) + np.eye(40, 600, dtype=int)
    counts[0] += counts.sum(axis=0) == 0
    head = "\t".join(["#OTU ID", *(f"s{number}" for number in range(600))])
    rows = ["\t".join([name, *map(str, row)]) for name, row in zip(names, counts, strict=True)]
    tree = ",".join(f"{name}:{rng.random():.4f}" for name in names[:20])
    more = ",".join(f"{name}:{rng.random():.4f}" for name in names[20:])
    for folder in folders:
        folder.mkdir()
        (folder / "table.tsv").write_text("\n".join([head, *rows]) + "\n")
        (folder / "tree.nwk").write_text(f"(({tree}):0.3,({more}):0.1);\n")
    command = (
        "unifrac", "table.tsv", "--tree", "tree.nwk", "--prefix", "x", "--matrix", "npy",
        "--nearest", "3",
    )  # fmt: skip
    alone(folders[0], *command)
    result = ran(folders[1], launch("mpi", command, 3))
    assert result.returncode == 0, result.stderr
    kinds = "unweighted.npy", "unweighted.nearest", "faith"
    for kind in kinds:
        one, three = ((folder / f"x.mltree.{kind}").read_bytes() for folder in folders)
        assert one == three


def test_dispersion_does_not_depend_on_the_axes_written(tmp_path: Path) -> None:
    group = ("--metadata", METADATA, "--group", "habitat", "--tests", "permdisp", "--redo")
    found = set()
    for axes in ("0", "2", "24"):
        run(tmp_path, *group, "--pcoa", axes)
        result = json.loads((tmp_path / "x.mltree.unifrac.json").read_text())
        found.add(result["metrics"]["unweighted"]["tests"][0]["statistic"])
    python = mltree.unifrac(TABLE, TREE)
    found.add(python.permdisp([name.partition("_")[0] for name in python.ids]).statistic)
    assert len(found) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--depth", "0"), "0 is not in the range x>=1"),
        (("--depth", "9", "--subsamples", "0"), "0 is not in the range x>=1"),
        (("--merge", "0"), "0 is not in the range x>=1"),
        (("--nearest", "0"), "0 is not in the range x>=1"),
        (("--permutations", "0"), "0 is not in the range x>=1"),
        (("--metadata", METADATA, "--group", "sample-id"), "the metadata have no column"),
    ],
)
def test_bad_options_are_refused_before_distances(
    arguments: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    text = run(tmp_path, *arguments, code=2)
    assert message in text
    assert "UniFrac  24 samples" not in text


def test_ordination_is_read_by_scikit_bio(tmp_path: Path) -> None:
    skbio = pytest.importorskip("skbio")
    run(tmp_path, "--pcoa", "4", "--matrix", "none")
    ordination = skbio.OrdinationResults.read(str(tmp_path / "x.mltree.unweighted.pcoa"))
    assert ordination.samples.shape == (24, 4)
    assert not (tmp_path / "x.mltree.unweighted.tsv").exists()


@pytest.mark.parametrize("kind", ["hdf5", "npy"])
def test_binary_matrices(kind: str, tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    more = "--pcoa", "2", "--metadata", METADATA, "--group", "habitat"
    run(tmp_path, "--matrix", kind, *more)
    if kind == "npy":
        stored = np.load(tmp_path / "x.mltree.unweighted.npy")
    else:
        with h5py.File(tmp_path / "x.mltree.unweighted.h5") as store:
            stored = store["matrix"][()]
            assert store["pcoa_samples"].shape == (24, 2)
            assert store["stat_methods"][()].tolist() == [b"PERMANOVA"]
            assert store["stat_n_groups"][()].tolist() == [3]
    assert (stored == reference(Metric("unweighted"))).all()
    assert "already exists" in run(tmp_path, "--matrix", kind, *more, code=2)


def test_parts(tmp_path: Path) -> None:
    for part in ("1/2", "2/2"):
        run(tmp_path, "--part", part)
    run(tmp_path, "--merge", "2")
    stored = read_matrix(str(tmp_path / "x.mltree.unweighted.tsv"))
    assert (stored.data == reference(Metric("unweighted"))).all()


def test_rarefied_means(tmp_path: Path) -> None:
    depth = "--depth", "300"
    run(tmp_path, *depth, "--subsamples", "4")
    mean = read_matrix(str(tmp_path / "x.mltree.unweighted.tsv")).data
    spread = read_matrix(str(tmp_path / "x.mltree.unweighted.sd.tsv")).data
    table = read_table(TABLE)
    every = []
    for number in range(4):
        drawn = place(table.rarefied(300, (1, number)), TREE)
        whole = slice(0, drawn.n_samples)
        every.append(
            ReferenceUnifrac(UnifracProblem(drawn, Metric("unweighted"))).tile(whole, whole)
        )
    assert mean == pytest.approx(np.mean(every, axis=0), abs=1e-12)
    assert spread == pytest.approx(np.std(every, axis=0, ddof=1), abs=1e-7)


def test_shallow_samples_are_left_out(tmp_path: Path) -> None:
    text = run(tmp_path, "--depth", "700")
    assert "samples have fewer than 700 counts: left out" in text
    assert "no sample has 999,999 counts" in run(tmp_path, "--depth", "999999", "--redo", code=2)


def test_mantel(tmp_path: Path) -> None:
    run(tmp_path)
    text = run(
        tmp_path, "--metric", "weighted", "--mantel", "x.mltree.unweighted.tsv",
        "--permutations", "99", "--redo",
    )  # fmt: skip
    assert "Mantel" in text


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # open files
@pytest.mark.parametrize("asked", [{"matrix": "npy"}, {"matrix": "hdf5"}, {"part": "1/2"}])
def test_a_run_killed_at_its_second_metric_goes_on(
    asked: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No file has its name before all have theirs, by which the command would be refused."""
    reporter = Reporter(progress_terminal(), Verbosity.QUIET)

    def run_to(prefix: str, metrics: int) -> dict[str, bytes]:
        left = iter(range(metrics))
        engines = module.engines_of
        monkeypatch.setattr(module, "engines_of", lambda *of: (next(left), engines(*of))[1])
        options = UnifracOptions(
            table=TABLE, tree=TREE, metric="unweighted,weighted", prefix=f"{tmp_path}/{prefix}",
            device="reference", line="", **asked,
        )  # fmt: skip
        try:
            module.run_unifrac(options, reporter)
        finally:
            monkeypatch.undo()
        files = tmp_path.glob(f"{prefix}.mltree.*")
        return {file.name[1:]: file.read_bytes() for file in files if file.suffix != ".json"}

    whole = run_to("a", 9)
    with pytest.raises(StopIteration):
        run_to("b", 1)
    assert run_to("b", 9) == whole


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--metric", "bray"), "'bray' is not one of"),
        (("--metric", "generalized", "--alpha", "2"), "'2' is not between 0 and 1"),
        (("--absolute",), "unweighted has no counts"),
        (("--part", "3/2"), "is not a part"),
        (("--part", "1/2", "--merge", "2"), "exclude each other"),
        (("--subsamples", "3"), "--subsamples needs --depth"),
        (("--group", "habitat"), "--group needs --metadata"),
        (("--metadata", METADATA, "--group", "colour"), "no column 'colour'"),
        (("--metadata", METADATA, "--group", "habitat", "--tests", "t"), "'t' is not one of"),
        (("--merge", "2"), "part1of2: this part of the matrix is missing"),
    ],
)
def test_wrong_options(arguments: tuple[str, ...], message: str, tmp_path: Path) -> None:
    text = run(tmp_path, *arguments, code=2)
    assert message in text
    assert "Traceback" not in text
    assert not [path for path in tmp_path.iterdir() if "mltree" in path.name]


def test_page_is_complete_in_itself(tmp_path: Path) -> None:
    run(tmp_path, "--page", "--metadata", METADATA, "--group", "habitat", "--matrix", "none")
    page = (tmp_path / "x.mltree.unifrac.html").read_text()
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "https://" not in page
    start = page.index('type="application/json">') + len('type="application/json">')
    data = json.loads(page[start : page.index("</script>", start)])
    assert len(data["ids"]) == len(data["metrics"][0]["points"]) == 24
    assert set(data["columns"]) == {"habitat", "pH"}
    assert data["coloured"] == "habitat"
    assert "PERMANOVA" in page
    assert page.count("tips)") > 3


def test_python() -> None:
    table = read_table(TABLE)
    result = mltree.unifrac(TABLE, TREE, metric="weighted_normalized")
    assert result.ids == table.ids
    assert (result.data == reference(Metric("weighted_normalized"))).all()
    assert "24 samples" in repr(result)
    habitats = [name.partition("_")[0] for name in result.ids]
    by_name = dict(zip(result.ids, habitats, strict=True))
    assert result.permanova(habitats, 99) == result.permanova(by_name, 99)
    assert result.permdisp(habitats, 99).method == "PERMDISP"
    assert result.anosim(habitats, 99).statistic > 0.3
    assert result.pcoa(2).coordinates.shape == (24, 2)
    assert len(result.faith_pd) == 24
    single = mltree.unifrac(table, Path(TREE), precision="single")
    assert single.data.dtype == np.float32
    with pytest.raises(mltree.InputError, match="groups for 24 samples"):
        result.permanova(["a", "b"])
    with pytest.raises(mltree.InputError, match="one metric a call"):
        mltree.unifrac(table, TREE, "unweighted,weighted")
    with pytest.raises(mltree.InputError, match="precision='half'"):
        mltree.unifrac(table, TREE, precision="half")


def test_python_gives_scikit_bio() -> None:
    skbio = pytest.importorskip("skbio")
    matrix = mltree.unifrac(TABLE, TREE).to_skbio()
    assert isinstance(matrix, skbio.DistanceMatrix)
    assert matrix.shape == (24, 24)


def test_shares_of_branches() -> None:
    counts = np.array([[1, 3, 0], [0, 2, 2], [4, 0, 0]])
    samples = place(table_of((counts, "abc", "xyz")), "((x:1,y:1):1,z:2);")
    shares = BranchShares.of(samples, {"site": ["p", "p", "q"]})
    assert shares.prevalence.tolist() == [2, 2, 3, 1, 3]
    assert shares.weight == pytest.approx([1.25 / 3, 1.25 / 3, 2.5 / 3, 0.5 / 3, 1])
    x = counts[:, 0] / counts.sum(axis=1)
    between = 2 * (x[:2].mean() - x.mean()) ** 2 + (x[2] - x.mean()) ** 2
    assert shares.eta["site"][0] == pytest.approx(between / ((x - x.mean()) ** 2).sum())


def test_plans_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = UnifracProblem(place(read_table(TABLE), TREE), Metric("unweighted"))
    events: list[Any] = []

    def begun(matrix: str) -> object:
        options = UnifracOptions(table=TABLE, tree=TREE, matrix=matrix)
        workspace = Workspace.of(str(tmp_path / "x"), TABLE)
        return module.UnifracRun(options, workspace, [], events.append)._begin(problem, "x")

    monkeypatch.setattr(module, "SAID", 100)
    begun("npy")
    text = "a matrix of 0.0 GB in the file; tiles take 0.0 GB of memory at most"
    assert events == [Notice(text)]
    monkeypatch.setattr(module, "host_memory", lambda: 100)
    with pytest.raises(InputError, match="which memory cannot hold"):
        begun("tsv")
