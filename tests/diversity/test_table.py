"""Tables of every format are one table; wrong ones are refused in one line each."""

from __future__ import annotations

import gzip
import json
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from mltree.diversity.branches import place
from mltree.diversity.table import CountTable, integer_counts, read_metadata, read_table, table_of
from mltree.system.errors import InputError

COUNTS = np.array([[3, 0, 1], [0, 2, 5]])
IDS, FEATURES = ["s1", "s2"], ["a", "b:x y", "c"]
TREE = "((a:1,'b:x y':2):1,c:3);"


def as_dense(table: CountTable) -> np.ndarray:
    dense = np.zeros((table.n_samples, len(table.features)))
    rows = np.repeat(np.arange(table.n_samples), np.diff(table.indptr))
    dense[rows, table.indices] = table.counts
    return dense


def tsv(counts: np.ndarray = COUNTS, head: str = "#OTU ID", more: str = "") -> str:
    lines = ["\t".join([head, *IDS]) + ("\ttaxonomy" if more else "")]
    rows = zip(FEATURES, counts.T.tolist(), strict=True)
    lines += ["\t".join([name, *map(str, row)]) + more for name, row in rows]
    return "\n".join(lines) + "\n"


def biom1(kind: str) -> str:
    data = COUNTS.T.tolist() if kind == "dense" else [
        [i, j, int(COUNTS[j, i])] for i in range(3) for j in range(2) if COUNTS[j, i]
    ]  # fmt: skip
    axes = {"rows": [{"id": name} for name in FEATURES], "columns": [{"id": name} for name in IDS]}
    return json.dumps({**axes, "matrix_type": kind, "shape": [3, 2], "data": data})


def biom2(path: Path) -> Path:
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as store:
        store["observation/ids"] = [name.encode() for name in FEATURES]
        store["sample/ids"] = [name.encode() for name in IDS]
        store["sample/matrix/indptr"] = [0, 2, 4]
        store["sample/matrix/indices"] = [0, 2, 1, 2]
        store["sample/matrix/data"] = [3.0, 1.0, 2.0, 5.0]
    return path


def check(table: CountTable) -> None:
    assert table.ids == ("s1", "s2")
    order = [table.features.index(name) for name in FEATURES]
    assert (as_dense(table)[:, order] == COUNTS).all()


@pytest.mark.parametrize(
    "text",
    [
        tsv(),
        "# Constructed from biom file\n" + tsv(),
        tsv(more="\tk__Bacteria"),
        tsv(head="feature").replace("\n", "\r\n"),
        "\n".join(
            f"{f}\t{s}\t{COUNTS[j, i]}" for i, f in enumerate(FEATURES) for j, s in enumerate(IDS)
        ),
        biom1("dense"),
        biom1("sparse"),
    ],
)
def test_text_formats(text: str, tmp_path: Path) -> None:
    path = tmp_path / "table"
    path.write_text(text)
    check(read_table(str(path)))
    path.write_bytes(gzip.compress(text.encode()))
    check(read_table(str(path)))


def test_binary_formats(tmp_path: Path) -> None:
    path = biom2(tmp_path / "table.biom")
    check(read_table(str(path)))
    artifact = tmp_path / "table.qza"
    with zipfile.ZipFile(artifact, "w") as archive:
        archive.writestr("0-1/metadata.yaml", "type: FeatureTable[Frequency]")
        archive.write(path, "0-1/data/feature-table.biom")
    check(read_table(str(artifact)))


def test_objects() -> None:
    sparse = pytest.importorskip("scipy.sparse")
    check(table_of((COUNTS, IDS, FEATURES)))
    check(table_of((sparse.csr_matrix(COUNTS), IDS, FEATURES)))
    check(table_of((sparse.coo_array(COUNTS), IDS, FEATURES)))
    pandas = pytest.importorskip("pandas")
    check(table_of(pandas.DataFrame(COUNTS, IDS, FEATURES)))

    class Annotated:
        X, obs_names, var_names = sparse.csr_matrix(COUNTS), IDS, FEATURES

    class Biom:
        matrix_data = sparse.csr_matrix(COUNTS.T)

        def ids(self, axis: str = "sample") -> list[str]:
            return IDS if axis == "sample" else FEATURES

    check(table_of(Annotated()))
    check(table_of(Biom()))
    with pytest.raises(InputError, match="a list is not a table"):
        table_of([1])
    with pytest.raises(InputError, match="2 x 3 with 1 ids"):
        table_of((COUNTS, ["s1"], FEATURES))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("#OTU ID\ts1\na\t1\nb:x y", "1 columns for 'b:x y'"),
        ("#OTU ID\ts1\ts2\na\t1\tx\n", "'x' is not a number"),
        ("#OTU ID\ts1\ts1\na\t1\t2\n", "sample 's1' is in the table twice"),
        ("#OTU ID\ts1\na\t1\na\t2\n", "feature 'a' is in the table twice"),
        ("#OTU ID\ts1\ts2\na\t1\t-2\n", "a count is -2"),
        ("#OTU ID\ts1\ts2\na\t1\tnan\n", "a count is nan"),
        ("#OTU ID\ts1\ts2\na\t1\t0\n", "1 sample has no counts: 's2'"),
        ("nothing\n", "no column of a sample"),
        ('{"rows": 3}', "not a table of counts"),
        ("PK\x03\x04 broken", "not a table of counts"),
        ("\x89HDF broken", "not a table of counts"),
    ],
)
def test_wrong_tables(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "table"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError, match=message) as error:
        read_table(str(path))
    assert "\n" not in error.value.message


@pytest.mark.parametrize(
    ("indptr", "indices", "message"),
    [
        ([0, 2, 4], [0, 2, 1, 7], "an entry of a feature that there is not"),
        ([0, 2, 4], [0, -1, 1, 2], "an entry of a feature that there is not"),
        ([0, 3, 2], [0, 2, 1, 2], "samples whose entries are not one after the other"),
        ([0, 2, 4, 4], [0, 2, 1, 2], "arrays of a sparse matrix whose sizes differ"),
        ([0, 2, 4], [0, 2, 1], "arrays of a sparse matrix whose sizes differ"),
        ([0, 2, 4], [0, 2, 1, 1], "sample 's2' has counts of a feature twice"),
    ],
)
def test_broken_sparse_tables(
    indptr: list[int], indices: list[int], message: str, tmp_path: Path
) -> None:
    h5py = pytest.importorskip("h5py")
    path = biom2(tmp_path / "table.biom")
    with h5py.File(path, "r+") as store:
        for name, values in (("indptr", indptr), ("indices", indices)):
            del store[f"sample/matrix/{name}"]
            store[f"sample/matrix/{name}"] = values
    with pytest.raises(InputError, match=message):
        place(read_table(str(path)), "((a:1,'b:x y':2):1,c:3);")


def test_entries_in_any_order(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    path = biom2(tmp_path / "table.biom")
    before = place(read_table(str(path)), "((a:1,'b:x y':2):1,c:3);")
    with h5py.File(path, "r+") as store:
        store["sample/matrix/indices"][...] = [2, 0, 2, 1]
        store["sample/matrix/data"][...] = [1.0, 3.0, 5.0, 2.0]
    after = place(read_table(str(path)), "((a:1,'b:x y':2):1,c:3);")
    assert (before.tip == after.tip).all()
    assert (before.counts == after.counts).all()


def test_no_samples() -> None:
    with pytest.raises(InputError, match="a table without samples"):
        table_of((np.zeros((0, 3)), [], FEATURES))


def test_h5py_is_an_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = biom2(tmp_path / "table.biom")
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(InputError, match="BIOM 2.1 and HDF5 need h5py") as error:
        read_table(str(path))
    assert "mltree[unifrac]" in str(error.value.hint)


def test_missing_file() -> None:
    with pytest.raises(InputError, match="nowhere"):
        read_table("nowhere.biom")


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ("(a:1,c:3);", "1 of 3 features is not in the tree: 'b:x y'"),
        ("(d:1,e:3);", "3 of 3 features are not in the tree: 'a', 'b:x y', 'c'"),
        ("((a:1,'b:x y':-2):1,c:3);", "branch length -2"),
        ("(((a:1,'b:x y'):1,d:1):1,c:3);", "1 branch has no length"),
        ("((a:1,'b:x y':2,a:2):1,c:3);", "tip 'a' is in the tree twice"),
        ("((a:1,'b:x y':2):1,c:3;", "parentheses do not match"),
    ],
)
def test_wrong_trees(tree: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        place(table_of((COUNTS, IDS, FEATURES)), tree)


def test_trees_are_sheared() -> None:
    """Tips without counts go, single children are merged, next to the root lengths may miss."""
    newick = "(((((a:1,d:9):1,'b:x y':2):1,e:7):.5),((c:3):1):2);"
    samples = place(table_of((COUNTS, IDS, FEATURES)), newick)
    branches = samples.branches
    assert branches.names == ("a", "b:x y", "c")
    assert branches.length.tolist() == [2.0, 2.0, 1.5, 6.0, 0.0]
    assert branches.parent.tolist() == [2, 2, 4, 4, -1]
    assert branches.depth == 6
    below = samples.counts_below(slice(0, 2))
    assert below.tolist() == [[3, 0, 3, 1, 4], [0, 2, 2, 5, 7]]


def test_blanks_and_underscores() -> None:
    table = table_of((COUNTS, IDS, ["a_1", "b 2", "c"]))
    assert place(table, "((a_1:1,b_2:2):1,c:3);").branches.count == 5
    assert place(table, "(('a 1':1,'b 2':2):1,c:3);").branches.count == 5


def test_quoted_names_are_read_as_by_the_scanner() -> None:
    """Comments send a tree through the scanner; without, quoted names are read in one go."""
    quick = "(('k:1; p,(2)':1,'it''s':2)'0.9:g__A':1,c:3)'r';"
    plain = quick.replace("'it''s'", "'its'")
    names = ["k:1; p,(2)", "its", "c"]
    for tree in (plain, "[a comment]" + plain):
        assert place(table_of((COUNTS, IDS, names)), tree).branches.names == tuple(names)
    names[1] = "it's"
    assert place(table_of((COUNTS, IDS, names)), quick).branches.names == tuple(names)


@pytest.mark.parametrize(
    "broken",
    ["('a''b':1,c 'd':2);", "(('a':1,'b'x:2):1,c:3);", "('a':1,'b:2);", "('a' 'b':1,c:1);"],
)
def test_broken_quotes_are_refused(broken: str) -> None:
    with pytest.raises(InputError):
        place(table_of((COUNTS, IDS, ["a", "b", "c"])), broken)


def test_rarefaction() -> None:
    rng = np.random.default_rng(1)
    counts = rng.poisson(5.0, (6, 30)) + 1
    counts[3] = 0
    counts[3, :2] = 4
    table = table_of((counts, range(6), range(30)))
    drawn = table.rarefied(50, (1, 0))
    assert drawn.ids == ("0", "1", "2", "4", "5")
    assert (drawn.totals == 50).all()
    assert (as_dense(drawn) <= counts[[0, 1, 2, 4, 5]]).all()
    again = table.subset(np.arange(6)).rarefied(50, (1, 0))
    assert (as_dense(again) == as_dense(drawn)).all()
    assert (as_dense(table.rarefied(50, (1, 1))) != as_dense(drawn)).any()
    mean = np.mean([as_dense(table.rarefied(50, (1, n)))[0] for n in range(300)], axis=0)
    assert mean == pytest.approx(50 * counts[0] / counts[0].sum(), abs=0.5)
    with pytest.raises(InputError, match="no sample has 9,999 counts"):
        table.rarefied(9999, (1,))
    with pytest.raises(InputError, match="whole counts"):
        table_of((counts / 7, range(6), range(30))).rarefied(1, (1,))


def test_fractions_become_integers() -> None:
    shares = np.array([0.25, 0.5, 1e-9])
    counts, shift = integer_counts(shares, 0.75)
    assert np.ldexp(counts.astype(float), -shift) == pytest.approx(shares, rel=1e-6)
    assert integer_counts(np.array([1.0, 7.0]), 8.0)[1] == 0


@pytest.mark.parametrize("head", ["# a comment\n#OTU ID", "#OTU ID", "# a comment\nid", "id"])
def test_features_and_samples_may_begin_with_a_hash(tmp_path: Path, head: str) -> None:
    path = tmp_path / "table.tsv"
    path.write_text(f"{head}\t#s\tt\n#f\t4\t1\ng\t0\t3\n#h\t5\t6\n")
    table = read_table(str(path))
    assert (table.ids, table.features) == (("#s", "t"), ("#f", "g", "#h"))
    assert table.totals.tolist() == [9.0, 10.0]


def test_metadata(tmp_path: Path) -> None:
    path = tmp_path / "metadata.tsv"
    path.write_text("id\tsite\tpH\n#q2:types\tcategorical\tnumeric\ns1\tgut\t7\ns2\tskin\n")
    metadata = read_metadata(str(path))
    assert metadata.values("site", ["s2", "s1"]) == ["skin", "gut"]
    with pytest.raises(InputError, match=r"1 of 2 samples has no 'pH' in the metadata: 's2'"):
        metadata.values("pH", ["s2", "s1"])
    with pytest.raises(InputError, match="no column 'colour'"):
        metadata.values("colour", ["s1"])
    with pytest.raises(InputError, match="1 of 2 samples has no 'site' in the metadata: 's3'"):
        metadata.values("site", ["s1", "s3"])
    path.write_text("nothing\n")
    with pytest.raises(InputError, match="not a table of metadata"):
        read_metadata(str(path))
