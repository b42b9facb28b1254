"""Tables of counts, samples by features: BIOM 1.0 and 2.1, TSV, QIIME 2, and objects of Python.

Formats are recognised by content. The one module that imports h5py.
"""

from __future__ import annotations

import importlib
import json
import zipfile
from collections.abc import Callable, Iterable, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from mltree.data.source import read_bytes, unpacked
from mltree.system.arrays import Float64, Index, Int32, Int64
from mltree.system.errors import InputError
from mltree.system.values import Value

HDF5_MAGIC, ZIP_MAGIC = b"\x89HDF", b"PK\x03\x04"

EXTRA = 'pip install "mltree[unifrac]" installs it'

DESCRIPTIONS = {"taxonomy", "consensus lineage", "kegg_pathways", "description"}
"""Last columns of a TSV table, in small letters, that describe features."""

LISTED = 5
"""Names that a message lists."""

INTEGER_BITS = 52
"""Bits of the largest sum of a sample's counts: a double holds it exactly."""


class CountTable(Value):
    """Counts of N samples, row by row as SciPy's CSR has them, without zeros."""

    ids: tuple[str, ...]
    """Names of the samples."""
    features: tuple[str, ...]
    """Names of the columns, which are tips of a tree."""
    indptr: Int64
    """int64 [N + 1]: where each sample's entries begin."""
    indices: Int32
    """int32: the column of each entry."""
    counts: Float64
    """float64: above zero."""

    @classmethod
    def of(
        cls, ids: Iterable[object], features: Iterable[object], indptr: Any, indices: Any,
        counts: Any, file: str | None = None,
    ) -> CountTable:  # fmt: skip
        """A table whose names and counts are checked; zeros go.

        Raises:
            InputError: names that occur twice, counts that are negative or no numbers, samples
                without counts, or no samples.
        """
        names = tuple(map(_text, ids)), tuple(map(_text, features))
        for kind, texts in zip(("sample", "feature"), names, strict=True):
            _refuse_duplicates(kind, texts, file)
        indptr, indices = np.asarray(indptr, np.int64), np.asarray(indices, np.int32)
        values = np.asarray(counts, np.float64)
        _refuse_unsound(indptr, indices, values, *map(len, names))
        if not len(names[0]):
            raise InputError("a table without samples", file=file)
        if not (values.min(initial=1.0) > 0 and values.max(initial=1.0) < np.inf):
            is_wrong = ~np.isfinite(values) | (values < 0)
            if is_wrong.any():
                entry = int(np.flatnonzero(is_wrong)[0])
                sample = names[0][int(np.searchsorted(indptr, entry, "right")) - 1]
                problem = f"a count is {values[entry]:g} (sample {sample!r}): counts are 0 or more"
                raise InputError(problem, file=file)
            is_there = values > 0
            indptr = np.concatenate(([0], np.cumsum(is_there)))[indptr]
            indices, values = indices[is_there], values[is_there]
        table = cls(*names, indptr, indices, values)
        empty = [table.ids[row] for row in np.flatnonzero(np.diff(table.indptr) == 0)]
        if empty:
            verb = "sample has" if len(empty) == 1 else "samples have"
            hint = "remove them from the table: nothing can be compared with them"
            raise InputError(f"{len(empty)} {verb} no counts: {few(empty)}", file=file, hint=hint)
        return table

    @property
    def n_samples(self) -> int:
        """Number of samples, N."""
        return len(self.ids)

    @property
    def totals(self) -> Float64:
        """float64 [N]: counts of each sample."""
        return np.add.reduceat(self.counts, self.indptr[:-1])

    def subset(self, rows: Index) -> CountTable:
        """The table of some samples, in that order."""
        sizes = np.diff(self.indptr)[rows]
        indptr = np.concatenate(([0], np.cumsum(sizes)))
        entries = np.arange(indptr[-1]) + np.repeat(self.indptr[rows] - indptr[:-1], sizes)
        ids = tuple(self.ids[row] for row in rows)
        return CountTable(ids, self.features, indptr, self.indices[entries], self.counts[entries])

    def rarefied(self, depth: int, seed: Sequence[int]) -> CountTable:
        """Samples of exactly ``depth`` counts, drawn without replacement; shallower ones go.

        Each sample has random numbers of its own, whatever other samples there are.

        Raises:
            InputError: counts are no whole numbers, or no sample is deep enough.
        """
        if (self.counts != np.floor(self.counts)).any():
            raise InputError("--depth needs whole counts, and the table has fractions")
        deep = np.flatnonzero(self.totals >= depth)
        if not deep.size:
            problem = f"no sample has {depth:,} counts: the deepest has {self.totals.max():,.0f}"
            raise InputError(problem)
        rows = self.subset(deep)
        drawn = np.empty(rows.counts.size, np.int64)
        for place, row in enumerate(deep.tolist()):
            entries = slice(rows.indptr[place], rows.indptr[place + 1])
            rng = np.random.default_rng([*seed, row])
            counts = rows.counts[entries].astype(np.int64)
            drawn[entries] = rng.multivariate_hypergeometric(counts, depth, method="marginals")
        return CountTable.of(rows.ids, self.features, rows.indptr, rows.indices, drawn)


def integer_counts(counts: Float64, largest: float) -> tuple[Int64, int]:
    """Counts as whole numbers of 2^-k, and k, which is 0 where they are whole.

    largest  sum of a sample's counts, which has 52 bits at most
    """
    if (counts == np.floor(counts)).all() and largest < 2.0**INTEGER_BITS:
        return counts.astype(np.int64), 0
    shift = INTEGER_BITS - int(np.frexp(largest)[1])
    return np.maximum(np.rint(np.ldexp(counts, shift)), 1).astype(np.int64), shift


def few(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    shown = ", ".join(map(repr, names[:LISTED]))
    return shown + (f" and {len(names) - LISTED:,} more" if len(names) > LISTED else "")


def _refuse_unsound(
    indptr: Int64, indices: Int32, counts: Float64, n_samples: int, n_features: int
) -> None:
    """Raise ValueError for arrays that are no sparse matrix of this shape."""
    if indptr.shape != (n_samples + 1,) or indices.shape != counts.shape:
        raise ValueError("arrays of a sparse matrix whose sizes differ")
    if indptr[0] or indptr[-1] != indices.size or (np.diff(indptr) < 0).any():
        raise ValueError("samples whose entries are not one after the other")
    if indices.size and not 0 <= indices.min() <= indices.max() < n_features:
        raise ValueError("an entry of a feature that there is not")


def _text(name: object) -> str:
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name)


def _refuse_duplicates(kind: str, names: Sequence[str], file: str | None) -> None:
    if len(set(names)) == len(names):
        return
    seen = set[str]()
    again = next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]
    raise InputError(f"{kind} {again!r} is in the table twice", file=file)


# Files.


def read_table(path: str) -> CountTable:
    """The table in a file, of whatever format.

    Raises:
        InputError: it cannot be read, or is not a sound table.
    """
    if _is_hdf5(path):
        return _naming(_biom2, path, path)
    content = read_bytes(path)
    return _naming(_parsed, content if content[:4] == ZIP_MAGIC else unpacked(path), path)


def _is_hdf5(path: str) -> bool:
    """True for an HDF5 file, which is read where it lies: through Python that takes far longer."""
    try:
        if not Path(path).is_file():  # a pipe is read once
            return False
        with Path(path).open("rb") as file:
            return file.read(4) == HDF5_MAGIC
    except OSError:
        return False


def _naming(parse: Callable[[Any, str], CountTable], content: Any, file: str) -> CountTable:
    """Parse a table. Raises: InputError: it is none."""
    try:
        return parse(content, file)
    except (KeyError, ValueError, TypeError, IndexError, OSError, zipfile.BadZipFile) as error:
        detail = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"not a table of counts: {detail}", file=file) from error


def _parsed(content: bytes, file: str) -> CountTable:
    if content[:4] == HDF5_MAGIC:
        return _biom2(BytesIO(content), file)
    if content[:4] == ZIP_MAGIC:
        return _artifact(content, file)
    if content.lstrip()[:1] == b"{":
        return _biom1(content, file)
    return _tsv(content.decode("utf-8-sig"), file)


def _biom2(source: str | BytesIO, file: str) -> CountTable:
    """BIOM 2.1: HDF5, whose group ``sample/matrix`` has the counts by sample."""
    with h5py().File(source, "r") as store:
        if "sample/matrix/indptr" not in store:
            raise InputError("an HDF5 file, but no BIOM table: sample/matrix is missing", file=file)
        matrix = store["sample/matrix"]
        ids, features = (store[f"{axis}/ids"][()].tolist() for axis in ("sample", "observation"))
        indptr, indices, counts = (matrix[part][()] for part in ("indptr", "indices", "data"))
        return CountTable.of(ids, features, indptr, indices, counts, file)


def h5py() -> Any:
    """The module h5py. Raises: InputError: it is not installed."""
    try:
        return importlib.import_module("h5py")
    except ImportError:
        raise InputError("BIOM 2.1 and HDF5 need h5py", hint=EXTRA) from None


def _artifact(content: bytes, file: str) -> CountTable:
    """QIIME 2: a zip file with a BIOM table in it."""
    with zipfile.ZipFile(BytesIO(content)) as archive:
        inside = [name for name in archive.namelist() if name.endswith(".biom")]
        if not inside:
            raise InputError("a QIIME 2 artifact without a feature table", file=file)
        return _parsed(archive.read(inside[0]), file)


def _biom1(content: bytes, file: str) -> CountTable:
    """BIOM 1.0: JSON, dense, or sparse with a row, a column and a count an entry."""
    document = json.loads(content)
    features = [row["id"] for row in document["rows"]]
    ids = [column["id"] for column in document["columns"]]
    data = np.asarray(document["data"], np.float64)
    if document["matrix_type"] == "dense":
        columns, rows = np.nonzero(data.T)
        return _from_entries(ids, features, columns, rows, data.T[columns, rows], file)
    data = data.reshape(-1, 3)
    rows, columns = data[:, 0].astype(np.intp), data[:, 1].astype(np.intp)
    return _from_entries(ids, features, columns, rows, data[:, 2], file)


def _from_entries(
    ids: Sequence[object], features: Sequence[object], samples: Index, columns: Index,
    counts: Float64, file: str | None,
) -> CountTable:  # fmt: skip
    """A table of entries in any order; entries of one place are summed up."""
    places = samples * max(1, len(features)) + columns
    unique, inverse = np.unique(places, return_inverse=True)
    sums = np.bincount(inverse, counts, unique.size)
    samples, columns = np.divmod(unique, max(1, len(features)))
    if samples.size and samples.max() >= len(ids):
        raise ValueError("an entry of a sample that there is not")
    indptr = np.searchsorted(samples, np.arange(len(ids) + 1))
    return CountTable.of(ids, features, indptr, columns, sums, file)


def _tsv(text: str, file: str) -> CountTable:
    """Features by samples, as ``biom convert --to-tsv`` has it; or a feature, a sample, a count."""
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        raise InputError("the file is empty", file=file)
    lines = [line for line in lines if "\t" in line or line[0] != "#"] or lines  # no comments
    head = 0 if lines[0].startswith("#") else -1
    rows = [line.split("\t") for line in lines[head + 1 :]]
    is_plain = head < 0 and all(len(row) == 3 for row in rows)
    if is_plain and _is_number(rows[0][2]) and not _is_number(rows[0][1]):
        return _triples(rows, file)
    if head < 0:
        head, rows = 0, rows[1:]
    names = lines[head].lstrip("#").split("\t")
    ids = names[1:]
    if ids and ids[-1].strip().lower() in DESCRIPTIONS:
        ids = ids[:-1]
    if not ids or not rows:
        raise InputError("not a table of counts: no column of a sample", file=file)
    counts = np.empty((len(rows), len(ids)))
    for number, row in enumerate(rows):
        if len(row) != len(names):
            problem = f"{len(row)} columns for {row[0]!r}, where the first line has {len(names)}"
            raise InputError(problem, file=file)
        try:
            counts[number] = row[1 : len(ids) + 1]
        except ValueError:
            wrong = next(cell for cell in row[1 : len(ids) + 1] if not _is_number(cell))
            problem = f"{wrong!r} is not a number (feature {row[0]!r})"
            raise InputError(problem, file=file) from None
    samples, columns = np.nonzero(counts.T)
    values = counts.T[samples, columns]
    return _from_entries(ids, [row[0] for row in rows], samples, columns, values, file)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _triples(rows: Sequence[Sequence[str]], file: str) -> CountTable:
    """Lines of a feature, a sample and a count, as FastUniFrac took them."""
    ids = {name: row for row, name in enumerate(sorted({row[1] for row in rows}))}
    features = {name: row for row, name in enumerate(sorted({row[0] for row in rows}))}
    samples = np.array([ids[row[1]] for row in rows])
    columns = np.array([features[row[0]] for row in rows])
    counts = np.array([float(row[2]) for row in rows])
    return _from_entries(list(ids), list(features), samples, columns, counts, file)


# Objects of Python.


def table_of(source: object) -> CountTable:
    """A table from a path, a ``biom.Table``, AnnData, a DataFrame, or a matrix with its names.

    A DataFrame and AnnData have a sample a row; so has the matrix, dense or SciPy's, of a tuple
    ``(matrix, ids, features)``.

    Raises:
        InputError: it is none of these, or not a sound table.
    """
    if isinstance(source, CountTable):
        return source
    if isinstance(source, str | Path):
        return read_table(str(source))
    if hasattr(source, "matrix_data") and hasattr(source, "ids"):  # biom.Table
        return _of_matrix(source.matrix_data.T, source.ids(), source.ids(axis="observation"))
    if hasattr(source, "obs_names") and hasattr(source, "var_names"):  # AnnData
        return _of_matrix(source.X, source.obs_names, source.var_names)  # type: ignore[attr-defined]
    if hasattr(source, "columns") and hasattr(source, "to_numpy"):  # DataFrame
        return _of_matrix(source.to_numpy(), source.index, source.columns)  # type: ignore[attr-defined]
    if isinstance(source, tuple) and len(source) == 3:
        return _of_matrix(*source)
    hint = "give a path, biom.Table, AnnData, DataFrame, or (matrix, ids, features)"
    raise InputError(f"a {type(source).__name__} is not a table of counts", hint=hint)


def _of_matrix(matrix: Any, ids: Iterable[object], features: Iterable[object]) -> CountTable:
    names = list(ids), list(features)
    if tuple(matrix.shape) != (len(names[0]), len(names[1])):
        shape = f"{matrix.shape[0]} x {matrix.shape[1]}"
        raise InputError(f"a matrix of {shape} with {len(names[0])} ids, {len(names[1])} features")
    if hasattr(matrix, "tocsr"):
        sparse = matrix.tocsr()
        sparse.sum_duplicates()
        return CountTable.of(*names, sparse.indptr, sparse.indices, sparse.data)
    dense = np.asarray(matrix, np.float64)
    samples, columns = np.nonzero(dense)
    indptr = np.searchsorted(samples, np.arange(len(names[0]) + 1))
    return CountTable.of(*names, indptr, columns, dense[samples, columns])


# Metadata of samples.


class Metadata(Value):
    """Columns of a TSV file by sample; lines that begin with ``#q2:`` are passed over."""

    columns: dict[str, dict[str, str]]
    """Values of each column by sample; those that are missing are empty."""

    def values(self, column: str, ids: Sequence[str]) -> list[str]:
        """The column's value of every sample.

        Raises:
            InputError: there is no such column, or a sample has none.
        """
        if column not in self.columns:
            known = ", ".join(self.columns)
            raise InputError(f"the metadata have no column {column!r}", hint=f"there are {known}")
        values = self.columns[column]
        missing = [name for name in ids if not values.get(name)]
        if missing:
            have = "has" if len(missing) == 1 else "have"
            problem = f"{len(missing)} of {len(ids)} samples {have} no {column!r} in the metadata"
            raise InputError(f"{problem}: {few(missing)}", hint="write it, or leave them out")
        return [values[name] for name in ids]


def read_metadata(path: str) -> Metadata:
    """The metadata of a file. Raises: InputError: it is no table with a line a sample."""
    try:
        lines = unpacked(path).decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise InputError("not a text file", file=path) from None
    rows = [line.split("\t") for line in lines if line.strip() and not line.startswith("#q2:")]
    if len(rows) < 2 or len(rows[0]) < 2:
        hint = "a first line of names, then a sample a line, tabs between columns"
        raise InputError("not a table of metadata", file=path, hint=hint)
    columns = {
        name.strip(): {row[0].strip(): row[i].strip() if i < len(row) else "" for row in rows[1:]}
        for i, name in enumerate(rows[0]) if i
    }  # fmt: skip
    return Metadata(columns)
