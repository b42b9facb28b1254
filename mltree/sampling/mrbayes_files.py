"""Files of samples: those of MrBayes, BEAST, RevBayes and PhyloBayes are read, MrBayes' written.

tables  tab separated: MrBayes' .p, BEAST's and RevBayes' .log, PhyloBayes' .trace
trees   NEXUS with a TRANSLATE command (MrBayes' .t, BEAST's .trees), a column of RevBayes' tables,
        Newick

A sampler that was killed may leave a line or a tree that has no end: it is left out.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count as numbers_from
from itertools import takewhile
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

import numpy as np

from mltree.data.nexus import is_nexus, nexus_commands
from mltree.data.source import unpacked
from mltree.dating.time_trees import has_rates, rates_for_lengths
from mltree.sampling.diagnostics import Moments
from mltree.sampling.sampler import Sample, newick_of_words
from mltree.sampling.summaries import Evidence, Posterior, RunSamples, SummaryTree
from mltree.supports.consensus import Consensus, members
from mltree.system.arrays import Float64
from mltree.system.errors import InputError
from mltree.system.values import Value
from mltree.tree.clades import Clades, clades_of, read_clades
from mltree.tree.newick import (
    PIECE,
    TRANSLATION,
    ParsedTrees,
    listed,
    newick_of,
    numbers_in,
    quoted,
)

TREE_ENDINGS = ("t", "trees", "treelist")
TABLE_ENDINGS = ("p", "log", "trace")
"""Endings of files with trees and with tables: MrBayes', BEAST's and RevBayes', PhyloBayes'."""

BOOKKEEPING = {"gen", "state", "sample", "iteration", "iter", "generation", "cycle"}
"""Names of the first column, in lower case: no parameter, but the number of a generation."""

IDLE = {"replicate_id", "time", "treegen", "t/g", "acc"}
"""Other columns that are no parameters: RevBayes' and PhyloBayes'."""

LONGEST_END = 1 << 10
"""Bytes at the end of a file in which the end of its block is looked for."""

MOST_TOPOLOGIES = 10_000
"""Trees in a .trprobs file, at most."""


_FIRST_ROW = re.compile(rb"^[-+.0-9]", re.MULTILINE)
"""The first sample of a table."""

Table: TypeAlias = tuple[tuple[str, ...], Float64, Float64]
"""Names of the parameters, their values float64 [n, P], and generations float64 [n]."""


class RunFiles(Value):
    """The files of one run."""

    name: str
    """Beginning that the names have in common."""
    trees: str | None
    table: str | None
    further: tuple[str, ...] = ()
    """The same trees with the branch lengths of further parts; `trees` has the first part's."""


def files_of(name: str) -> list[RunFiles]:
    """The files of the runs with a prefix, or of the one run that a file belongs to.

    Of a prefix: MrBayes' ``.run1.t`` and ``.run1.p`` or ``.t`` and ``.p``; mltree's, which have
    ``.mltree`` in front; BEAST's ``.trees`` and ``.log``, with a number before these where there
    are several; RevBayes' ``_run_1.trees``. Where parts have branch lengths of their own, trees are
    MrBayes' ``.tree1.run1.t`` and so on, a file for each part.

    Raises: InputError: there are none.
    """
    path = Path(name)
    stem, _, ending = path.name.rpartition(".")
    if path.is_file() and stem and ending in (*TREE_ENDINGS, *TABLE_ENDINGS):
        return [_run_files(path.parent, stem)]
    folder, prefix = path.parent, path.name
    endings = "|".join((*TREE_ENDINGS, *TABLE_ENDINGS))
    known = [one.name for one in folder.iterdir()] if folder.is_dir() else []
    for beginning in (f"{prefix}.mltree", prefix):
        numbered = re.compile(
            rf"(?:{re.escape(beginning)})(?:\.tree1)?((?:\.run|[._-]run_?|[._-])([0-9]+))"
            rf"\.(?:{endings})"
        )
        matches = [match for match in map(numbered.fullmatch, known) if match]
        stems = {f"{beginning}{match[1]}": int(match[2]) for match in matches}
        if stems:
            ordered = sorted(stems, key=lambda s: (stems[s], s))
            return [_run_files(folder, stem, beginning) for stem in ordered]
    if {f"{prefix}.{ending}" for ending in (*TREE_ENDINGS, *TABLE_ENDINGS)} & set(known):
        return [_run_files(folder, prefix)]
    hint = "give the prefix of MrBayes' .run1.t and .run1.p, or BEAST's .trees and .log themselves"
    raise InputError(f"no run has left samples in {name}.*", hint=hint)


def _run_files(folder: Path, stem: str, beginning: str | None = None) -> RunFiles:
    def first(endings: Sequence[str]) -> str | None:
        paths = (folder / f"{stem}.{ending}" for ending in endings)
        return next((str(path) for path in paths if path.is_file()), None)

    trees, table = first(TREE_ENDINGS), first(TABLE_ENDINGS)
    further: tuple[str, ...] = ()
    if trees is None and beginning is not None:
        behind = stem.removeprefix(beginning)
        paths = (folder / f"{beginning}.tree{number}{behind}.t" for number in numbers_from(1))
        of_parts = tuple(map(str, takewhile(Path.is_file, paths)))
        trees, further = (of_parts or (None,))[0], of_parts[1:]
    return RunFiles(str(folder / stem), trees, table, further)


def read_runs(
    files: Sequence[RunFiles], behind: Mapping[str, int] = MappingProxyType({})
) -> tuple[list[RunSamples], list[str]]:
    """The samples of runs of one analysis, and notices of what was left out.

    behind  bytes of files, by their paths, whose samples are left out

    Raises: InputError: a file is broken, or trees are of other taxa than the first ones.
    """
    runs: list[RunSamples] = []
    notices: list[str] = []
    like: Clades | None = None
    origin = ""
    for one in files:
        table: Table = ((), np.empty((0, 0)), np.empty(0))
        trees, is_rooted, rates = None, False, None
        if one.table is not None:
            table = read_table(one.table, notices, behind.get(one.table, 0))
        path = one.trees or (one.table if one.table and _is_tree_table(one.table) else None)
        if path is not None:
            trees, is_rooted = read_trees(path, notices, like, origin, behind.get(path, 0))
            like, origin = like or trees.part(0, 1), origin or path
            rates = read_rates(path, like, origin) if not behind else None
        runs.append(RunSamples(one.name, *table, trees, is_rooted, rates))
    return runs, notices


def with_lengths_of_parts(files: Sequence[RunFiles], first: Posterior) -> Iterator[Posterior]:
    """The posterior with the branch lengths of each further part.

    Raises: InputError: topologies are not those of the first part's trees.
    """
    for paths in zip(*(one.further for one in files), strict=False):
        of_part = [RunFiles(one.name, path, None) for one, path in zip(files, paths, strict=True)]
        posterior = Posterior.of(read_runs(of_part)[0], first.burn_in)
        tables = (posterior.splits, first.splits)
        if not all(np.array_equal(*map(attrgetter(name), tables)) for name in ("bits", "split")):
            problem = "topologies are not those of the first file of trees"
            raise InputError(problem, file=paths[0], hint="summarize the files of each tree alone")
        yield posterior


class GrowingRuns:
    """Runs whose files of samples grow: what was read once is not read again."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._runs: list[RunSamples] = []
        self._sizes: dict[str, int] = {}

    def read(self) -> list[RunSamples]:
        """All samples so far, without rates of branches. Raises: InputError: see `read_runs`."""
        files = files_of(self._prefix)
        more, _ = read_runs(files, self._sizes)
        pairs = zip(self._runs, more, strict=True)
        self._runs = [one.followed_by(other) for one, other in pairs] if self._runs else more
        paths = [path for one in files for path in (one.trees, one.table) if path is not None]
        self._sizes = {path: Path(path).stat().st_size for path in paths}
        return self._runs


def _behind(data: bytes, head: re.Pattern[bytes], size: int) -> bytes:
    """The beginning of a file, up to its first sample, and what follows its first bytes."""
    first = head.search(data) if size else None
    return data if first is None else data[: first.start()] + data[size:]


# Tables.


def read_table(path: str, notices: list[str], behind: int = 0) -> Table:
    """The samples of a table; columns that are no numbers are left out.

    behind  bytes of the file whose samples are left out, too

    Raises: InputError: it is no table, or a line of it is broken.
    """
    data = _behind(unpacked(path), _FIRST_ROW, behind)
    lines = data.decode("utf-8", "replace").splitlines()
    head, separator, rows = _table_lines(path, lines)
    names = [name.strip().lstrip("#") for name in _cells(head, separator)]
    cells = _cells(rows[0][1], separator)
    if len(cells) != len(names):
        problem = f"{len(cells)} values for {len(names)} names"
        raise InputError(problem, file=path, line=rows[0][0])
    if len(rows) > 1 and len(_cells(rows[-1][1], separator)) < len(names):
        notices.append(f"{path}: the last line has no end and is left out")
        rows = rows[:-1]
    numeric = [at for at, cell in enumerate(cells) if _is_number(cell)]
    table = _values(path, rows, separator, len(names), numeric)
    names = _distinct([names[at] for at in numeric])
    is_counted = bool(names) and names[0].lower() in BOOKKEEPING
    generations = table[:, 0] if is_counted else np.arange(len(table), dtype=np.float64)
    kept = [at for at, name in enumerate(names)
            if not (at == 0 and is_counted) and name.lower() not in IDLE]  # fmt: skip
    return tuple(names[at] for at in kept), table[:, kept], generations


def _table_lines(path: str, lines: Sequence[str]) -> tuple[str, str | None, list[tuple[int, str]]]:
    """The line of names, the separator, and the numbered lines of values."""
    told = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    rows = [(number, line) for number, line in told if line.lstrip()[0] not in "#["]
    comments = [line for number, line in told if line.lstrip()[0] == "#"]
    if rows and comments and _is_number(rows[0][1].split()[0]):
        rows.insert(0, (0, comments[-1]))  # PhyloBayes' names
    if not rows:
        raise InputError("a table without values", file=path)
    head = rows[0][1]
    separator = "\t" if "\t" in head else "," if "," in head else None
    rows = [(number, line) for number, line in rows[1:] if line != head]  # of runs put together
    if not rows or _is_number(head.split(separator)[0]):
        hint = "a line of names and lines of numbers are expected, as in MrBayes' .p files"
        raise InputError("not a table of samples", file=path, hint=hint)
    return head, separator, rows


def _cells(line: str, separator: str | None) -> list[str]:
    cells = line.rstrip("\r\n").split(separator)
    return cells[:-1] if separator and len(cells) > 1 and not cells[-1].strip() else cells


def _values(
    path: str, rows: Sequence[tuple[int, str]], separator: str | None, width: int,
    numeric: Sequence[int],
) -> Float64:  # fmt: skip
    """The values of the columns of numbers, float64 [n, P]."""
    if len(numeric) == width:
        text = "\n".join(line for _, line in rows).replace(",", " ")
        try:
            values = numbers_in(text.encode())
        except ValueError:
            values = np.empty(0)
        if values.size == width * len(rows):
            return values.reshape(len(rows), width)
    table = np.empty((len(rows), len(numeric)))
    for place, (number, line) in enumerate(rows):
        cells = _cells(line, separator)
        if len(cells) != width:
            problem = f"{len(cells)} values for {width} names"
            raise InputError(problem, file=path, line=number)
        for column, at in enumerate(numeric):
            if not _is_number(cells[at]):
                raise InputError(f"{cells[at].strip()!r} is not a number", file=path, line=number)
            table[place, column] = float(cells[at])
    return table


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


def _distinct(names: Sequence[str]) -> list[str]:
    """Names with a number behind those that were there before."""
    seen: dict[str, int] = {}
    found = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        found.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return found


# Trees.

_MARKED = re.compile(rb"\[&([RU])\]", re.IGNORECASE)
_COMMENT = re.compile(rb"\[[^\[\]]*\]")
_FIRST_TREE = re.compile(rb"^[ \t]*(?:[0-9]+\t)?U?TREE\b[^;]*?=", re.IGNORECASE | re.MULTILINE)
_END = re.compile(rb"\s*END(?:BLOCK)?\s*;\s*\Z", re.IGNORECASE)
_HEAD = re.compile(rb";[^;=(]*=\s*")
"""Everything in front of a tree: ``TREE name =``."""


def read_trees(
    path: str, notices: list[str], like: Clades | None = None, origin: str = "", behind: int = 0
) -> tuple[Clades, bool]:
    """The trees of a file, and whether they are rooted.

    like, origin  as in :func:`~mltree.tree.clades.read_clades`
    behind        bytes of the file whose trees are left out

    They are rooted where ``[&R]`` says so or, without ``[&U]``, all are binary, roots too.
    Raises: InputError: there are none, one is broken, or has other taxa.
    """
    data = _behind(unpacked(path), _FIRST_TREE, behind)
    trees = _read_trees(path, data, notices, like, origin)
    marks = {mark.upper() for mark in _MARKED.findall(data)}
    return trees, marks == {b"R"} if marks else _are_rooted(trees)


def read_rates(path: str, like: Clades, origin: str) -> Clades | None:
    """The trees of a file with rates of ``[&rate=...]`` as lengths; None where they have none."""
    data = unpacked(path)
    if b"rate" not in data or not has_rates(data):  # the first takes a tenth of the time
        return None
    return _read_trees(path, rates_for_lengths(data), [], like, origin, is_rated=True)


def _read_trees(
    path: str, data: bytes, notices: list[str], like: Clades | None, origin: str, *,
    is_rated: bool = False,
) -> Clades:  # fmt: skip
    """The trees of a file whose content, with rates in place of lengths or not, is ``data``."""
    if not is_nexus(data[: 1 << 16].decode("utf-8", "replace")):
        return _newick_trees(path, data, notices, like, origin)
    first = _FIRST_TREE.search(data)
    names = _translation(data[: first.start()].decode("utf-8", "replace"), path) if first else {}
    trees: Clades | None = None
    if first is not None and names and b"[&W" not in data:
        line = data.count(b"\n", 0, first.start()) + 1
        trees = _translated(path, data[first.start() :], names, notices, line)
    if trees is None:  # what is rare is read slowly
        source = newick_of(data.decode("utf-8-sig"), path) if is_rated else path
        trees = read_clades(source, like or _star(names), origin or "TRANSLATE")
    elif like is not None:
        trees = _renumbered(trees, like, path, origin)
    return trees


def _star(names: dict[str, str]) -> Clades | None:
    """A tree without clades whose taxa are in the order of TRANSLATE; None without any."""
    return read_clades(f"({','.join(map(quoted, names.values()))});") if names else None


def _are_rooted(trees: Clades) -> bool:
    """True where all trees are binary and their roots have two children."""
    return bool((np.diff(trees.bounds) == trees.n_tips - 2).all())


def _translation(head: str, path: str) -> dict[str, str]:
    """Names by the labels of the trees, of a TRANSLATE command; empty without one."""
    for command in nexus_commands(head, path):
        if command.word == "TRANSLATE":
            return dict(_pairs(command.rest))
    return {}


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    for label, name in TRANSLATION.findall(text):
        quote = name[0] if name[0] in "'\"" else ""
        yield label, name[1:-1].replace(2 * quote, quote) if quote else name


def _translated(
    path: str, body: bytes, names: dict[str, str], notices: list[str], line: int
) -> Clades | None:
    """The trees of a NEXUS body, whose labels stand for names; None where they are written else."""
    if (end := _END.search(body, max(len(body) - LONGEST_END, 0))) is not None:
        body = body[: end.start()]
    body = _whole(path, body, notices)
    pieces = []
    labels = tuple(names)
    for piece in _pieces(body):
        plain = _HEAD.sub(b";", b";" + _COMMENT.sub(b"", piece))[1:]
        parsed = ParsedTrees(plain, line)
        if not parsed.is_sound(-np.inf):
            return None
        try:
            pieces.append(clades_of(parsed, labels, path, "TRANSLATE"))
        except InputError:
            return None  # names where labels may stand, or no taxa of TRANSLATE
        line += piece.count(b"\n")
    trees = Clades.joined(labels, pieces)
    return replace(trees, taxa=tuple(names.values()))


def _whole(path: str, body: bytes, notices: list[str]) -> bytes:
    """The text up to the last semicolon."""
    stop = body.rfind(b";") + 1
    if body[stop:].strip():
        notices.append(f"{path}: the last tree has no end and is left out")
    if not stop:
        raise InputError("no tree in it", file=path)
    return body[:stop]


def _pieces(body: bytes) -> Iterator[bytes]:
    start = 0
    while start < len(body):
        stop = body.find(b";", min(start + PIECE, len(body)) - 1) + 1 or len(body)
        if body[start:stop].strip():
            yield body[start:stop]
        start = stop


def _renumbered(trees: Clades, like: Clades, path: str, origin: str) -> Clades:
    """Trees with the numbers of others' taxa. Raises: InputError: taxa are not the same."""
    if set(trees.taxa) != set(like.taxa):
        unlike = sorted(set(trees.taxa) ^ set(like.taxa))
        where = f"in {path} but not in {origin}, or the other way round"
        raise InputError(f"{listed(unlike)} {where}", file=path, taxon=unlike[0])
    number = {name: taxon for taxon, name in enumerate(like.taxa)}
    renamed = np.array([number[name] for name in trees.taxa], np.int32)
    return replace(trees, taxa=like.taxa, order=renamed[trees.order])


def _is_tree_table(path: str) -> bool:
    """True for a table that has a column of trees."""
    with Path(path).open("rb") as file:
        start = file.read(1 << 16)
    return b"\t(" in start and not start.lstrip().startswith(b"#NEXUS")


def _newick_trees(
    path: str, data: bytes, notices: list[str], like: Clades | None, origin: str
) -> Clades:
    """The trees of a Newick file, or of a column of a table as RevBayes writes it."""
    rows = [line for line in data.splitlines() if line.strip() and not line.startswith(b"#")]
    if rows and b"\t(" in rows[-1] + rows[min(1, len(rows) - 1)] and not rows[0].startswith(b"("):
        trees = [row[row.index(b"\t(") + 1 :].split(b"\t")[0] for row in rows if b"\t(" in row]
        data = b";\n".join(tree.rstrip(b";\r ") for tree in trees) + b";\n"
    data = _COMMENT.sub(b"", _whole(path, data, notices))
    return read_clades(data.decode("utf-8", "replace"), like, origin)


# Marginal likelihoods.


def read_evidence(name: str) -> Evidence | None:
    """The marginal likelihood that a prefix's run has found; None where it has found none.

    Of mltree's ``.sample.json``, or of the contributions in MrBayes' ``.ss``: the mean of its runs.
    Raises: InputError: the file is broken.
    """
    if (file := result_of(name)) is not None:
        return _sampled_evidence(name, file)
    steps = f"{name}.ss"
    if not Path(steps).is_file():
        return None
    columns, values, _ = read_table(steps, [])
    runs = [at for at, column in enumerate(columns) if re.fullmatch(r"run[0-9]+", column)]
    if not runs:
        raise InputError("no contributions of runs in it", file=steps)
    lnz = values[:, runs].sum(axis=0)
    error = float(lnz.std(ddof=1)) / len(runs) ** 0.5 if len(runs) > 1 else float("nan")
    mean = float(lnz.max() + np.log(np.exp(lnz - lnz.max()).mean()))  # as MrBayes has it
    return Evidence(name, mean, error)


def result_of(name: str) -> str | None:
    """The ``.sample.json`` of mltree's own sample with a prefix; None of another program's."""
    files = (f"{name}.mltree.sample.json", f"{name}.sample.json")
    return next((file for file in files if Path(file).is_file()), None)


def _sampled_evidence(name: str, file: str) -> Evidence | None:
    try:
        found = json.loads(unpacked(file))
        if found.get("lnz") is None:
            return None
        error = found.get("lnz_error")
        return Evidence(name, float(found["lnz"]), float("nan") if error is None else float(error))
    except (ValueError, TypeError, AttributeError):
        raise InputError("not the result of mltree sample", file=file) from None


# MrBayes' own files. Numbers have seven digits, as MrBayes' have.


def parts_text(posterior: Posterior) -> str:
    """The content of a .parts file: numbers and members of the splits that are listed."""
    rows = [_id(posterior), "ID\tPartition"]
    if posterior.is_rooted:
        rows.append(f"0\t{'*' * len(posterior.taxa)}")
    for number, is_in in _numbered(posterior):
        rows.append(f"{number}\t{''.join('.*'[flag] for flag in is_in)}")
    return _text(rows)


def _numbered(posterior: Posterior) -> Iterator[tuple[int, list[int]]]:
    """The tips, then the listed splits: numbers from 1, and members."""
    n_tips = len(posterior.taxa)
    for taxon in range(n_tips):
        is_inverse = taxon == 0 and not posterior.is_rooted
        yield taxon + 1, [int((other == taxon) != is_inverse) for other in range(n_tips)]
    inside = members(posterior.splits.bits[posterior.listed], len(posterior.splits.taxa))
    for number, row in enumerate(inside[:, int(posterior.is_rooted) :].tolist(), n_tips + 1):
        yield number, list(map(int, row))


def tstat_text(posterior: Posterior) -> str:
    """The content of a .tstat file: frequencies of the listed splits, and how far runs differ."""
    rows = [_id(posterior), "ID\t#obs\tProbability(=s)\tStddev(s)\tMin(s)\tMax(s)\tNruns"]
    start = len(posterior.taxa) + 1
    for number, split in enumerate(posterior.listed.tolist(), start):
        by_run = posterior.frequencies[split]
        numbers = (by_run.mean(), _deviation(by_run), by_run.min(), by_run.max())
        count = posterior.splits.counts[split]
        shown = "\t".join(f"{value:.6e}" for value in numbers)
        rows.append(f"{number}\t\t{count}\t{shown}\t{int((by_run > 0).sum())}")
    return _text(rows)


def _deviation(by_run: Float64) -> float:
    return float(by_run.std(ddof=1)) if by_run.size > 1 else 0.0


def vstat_text(posterior: Posterior) -> str:
    """The content of a .vstat file: lengths of tips and listed splits, and heights of clock trees.

    Empty where trees have no lengths.
    """
    columns = ("Mean", "Variance", "CredInt_Lower", "CredInt_Upper", "Median", "PSRF", "Nruns")
    rows = [_id(posterior), "\t".join(("Parameter", *columns))]
    if not posterior.has_lengths:
        return ""
    listed, runs = posterior.listed.tolist(), posterior.n_runs
    places = [posterior.occurrences(split) for split in listed]
    lengths = posterior.splits.lengths
    tips = [np.split(tip, runs) for tip in posterior.tip_lengths.T]
    rows += _moments_rows("length", [*tips, *([lengths[at] for at in of] for of in places)])
    if posterior.is_rooted:
        known = posterior.heights
        rows += _moments_rows("height", [np.split(known.root, runs)], 0)
        tips = [np.split(tip, runs) for tip in known.tips.T]
        rows += _moments_rows(
            "height", [*tips, *([known.clades[at] for at in of] for of in places)]
        )
    return _text(rows)


def _moments_rows(name: str, samples: Iterable[Sequence[Float64]], start: int = 1) -> Iterator[str]:
    for number, runs in enumerate(samples, start):
        present = [run for run in runs if run.size]
        yield f"{name}[{number}]\t{_shown(Moments.of(runs))}\t{len(present)}"


def _shown(moments: Moments) -> str:
    mean, variance, low, high, median, psrf = moments
    return "\t".join(_number(value) for value in (mean, variance, low, high, median, psrf))


def _number(value: float) -> str:
    return "NA" if np.isnan(value) else f"{value:.6e}"


def pstat_text(posterior: Posterior) -> str:
    """The content of a .pstat file: the parameters, but those that are constant."""
    rows = ["Parameter\tMean\tVariance\tLower\tUpper\tMedian\tminESS\tavgESS\tPSRF"]
    for at in np.flatnonzero(posterior.varying).tolist():
        name, ess = posterior.columns[at], posterior.run_ess[at]
        *numbers, psrf = posterior.moments[name]
        numbers += [float(ess.min()), float(ess.mean()), psrf]
        rows.append("\t".join([name, *map(_number, numbers)]))
    return _text([_id(posterior), *rows])


def trprobs_text(posterior: Posterior) -> str:
    """The content of a .trprobs file: the topologies by their probability."""
    known = posterior.topologies
    trees = []
    total = 0
    for number, (count, example) in enumerate(
        zip(known.counts[:MOST_TOPOLOGIES], known.examples, strict=False), 1
    ):
        total += int(count)
        share, sum_so_far = count / known.n_trees, total / known.n_trees
        tree = SummaryTree.bare(posterior, posterior.splits_of(int(example)))
        shown = tree.newick(_numbers(posterior))
        trees.append(f"   tree tree_{number} [p = {share:.3f}, P = {sum_so_far:.3f}] = "
                     f"[&W {share:.6f}] {shown}")  # fmt: skip
    left_out = known.counts.size - len(trees)
    note = f" {left_out:,} topologies, with {1 - total / known.n_trees:.3f} in all, are left out."
    remark = (
        "[This file contains the trees that were found during the MCMC\n"
        'search, sorted by posterior probability. "p" indicates the\n'
        'posterior probability of the tree whereas "P" indicates the\n'
        f"cumulative posterior probability.{note * (left_out > 0)}]\n"
    )
    head = ["#NEXUS", _id(posterior), remark, "begin trees;", "   translate"]
    return _text([*head, _translate(posterior.taxa, "    {} {}"), *trees, "end;"])


def consensus_text(posterior: Posterior, tree: SummaryTree, name: str) -> str:
    """A summary tree in NEXUS as MrBayes writes it, which FigTree shows with all its values."""
    lines = [_note(
        [("prob", p), ("prob_stddev", _deviation(runs)), ("prob_range", (min(runs), max(runs))),
         ("prob(percent)", f'"{100 * p:.0f}"'),
         ("prob+-sd", f'"{100 * p:.0f}+-{100 * _deviation(runs):.0f}"')],
        _MRBAYES, height=heights)
        for p, runs, heights in _nodes(tree)]  # fmt: skip
    behind = [_note((), _MRBAYES, length=moments) for moments in tree.lengths]
    return _nexus_tree(posterior, tree, name, lines, behind, "")


def mcc_text(
    posterior: Posterior, tree: SummaryTree, name: str, latest: float | None = None
) -> str:
    """A summary tree in NEXUS as BEAST's TreeAnnotator writes it.

    latest  the date of the latest tip, where it is known: nodes get dates
    """
    nothing: Sequence[Moments | None] = [None] * tree.n_branches
    heights = [*(tree.heights or nothing), tree.root_height]
    columns = (tree.lengths or nothing, tree.rates or nothing, heights)
    notes = [
        _note([("posterior", p), *_dates(height, latest)], _BEAST,
              height=height, length=length, rate=rate)
        for (p, *_), length, rate, height in zip(_nodes(tree), *columns, strict=False)
    ]  # fmt: skip
    top = [("posterior", 1.0), *_dates(tree.root_height, latest)]
    root = _note(top, _BEAST, height=tree.root_height)
    return _nexus_tree(posterior, tree, name, notes, (), root if tree.is_rooted else "")


def _dates(
    height: Moments | None, latest: float | None
) -> list[tuple[str, float | str | tuple[float, float]]]:
    """The date of a node and its interval."""
    if height is None or latest is None:
        return []
    ends = latest - height.high, latest - height.low
    return [("date", latest - height.mean), ("date_95%_HPD", ends)]


def _nodes(tree: SummaryTree) -> Iterator[tuple[float, Float64, Moments | None]]:
    """Probability, by run, and height of the tips and clades."""
    heights = iter(tree.heights)
    certain = np.ones(tree.by_run.shape[1])
    for _ in tree.taxa:
        yield 1.0, certain, next(heights, None)
    for probability, by_run in zip(tree.probability.tolist(), tree.by_run, strict=True):
        yield probability, by_run, next(heights, None)


def part_kinds(further: int) -> list[str]:
    """Kinds of the files with the branch lengths of further parts than the first."""
    numbers = range(2, 2 + further)
    return [f"tree{number}.{kind}" for number in numbers for kind in ("con.tre", "vstat")]


def part_texts(further: Sequence[Posterior], kind: Consensus, name: str) -> dict[str, str]:
    """The contents of those files, by kind; ``name``: of the consensus."""
    texts: list[str] = []
    for one in further:
        texts += [consensus_text(one, one.consensus(kind), name), vstat_text(one)]
    return dict(zip(part_kinds(len(further)), texts, strict=True))


class _Style(NamedTuple):
    """How a program names means and intervals."""

    mean: str
    interval: str


_MRBAYES, _BEAST = _Style("{}_mean", "{}_95%HPD"), _Style("{}", "{}_95%_HPD")


def _note(
    values: Iterable[tuple[str, float | str | tuple[float, float]]], style: _Style,
    **quantities: Moments | None,
) -> str:  # fmt: skip
    """A comment that FigTree reads: ``[&name=value,name={low,high}]``."""
    written = list(values)
    for name, of in quantities.items():
        if of is not None:
            written += [(style.mean.format(name), of.mean), (f"{name}_median", of.median)]
            written.append((style.interval.format(name), (of.low, of.high)))
    return f"[&{','.join(f'{key}={_value(value)}' for key, value in written)}]" if written else ""


def _value(value: float | str | tuple[float, float]) -> str:
    if isinstance(value, tuple):
        return f"{{{','.join(f'{one:.8e}' for one in value)}}}"
    return value if isinstance(value, str) else f"{value:.8e}"


def _nexus_tree(
    posterior: Posterior, tree: SummaryTree, name: str, notes: Sequence[str],
    length_notes: Sequence[str], root: str,
) -> str:  # fmt: skip
    taxa = posterior.taxa
    labels = "\n".join(f"\t\t{quoted(taxon)}" for taxon in taxa)
    head = ["#NEXUS", _id(posterior), "begin taxa;", f"\tdimensions ntax={len(taxa)};"]
    head += ["\ttaxlabels", labels, "\t\t;", "end;", "begin trees;", "\ttranslate"]
    mark = "[&R]" if tree.is_rooted else "[&U]"
    shown = tree.newick(_numbers(posterior), notes, length_notes, root)
    lines = [_translate(taxa, "\t\t{}\t{}"), f"   tree {name} = {mark} {shown}", "end;"]
    return _text([*head, *lines])


def _numbers(posterior: Posterior) -> dict[int, str]:
    return {taxon: str(taxon + 1) for taxon in range(len(posterior.taxa))}


def _translate(taxa: Sequence[str], form: str) -> str:
    pairs = (form.format(number, quoted(taxon)) for number, taxon in enumerate(taxa, 1))
    return ",\n".join(pairs) + ";"


def _id(posterior: Posterior) -> str:
    """The first line of MrBayes' files, with a number that all files of a summary share."""
    return f"[ID: {zlib.crc32('/'.join(posterior.runs).encode()):010d}]"


def _text(rows: Iterable[str]) -> str:
    return "\n".join(rows) + "\n"


# Samples as MrBayes writes them, a piece at a time.


def table_head(columns: Sequence[str], seed: int) -> str:
    """The beginning of a .p file."""
    return _text([f"[ID: {seed:010d}]", "\t".join(("Gen", *columns))])


def table_line(generation: int, values: Sequence[float]) -> str:
    """A sample in a .p file; every value has all its digits."""
    return "\t".join([str(generation), *(repr(float(value)) for value in values)]) + "\n"


def trees_head(taxa: Sequence[str], seed: int, parameter: str = "tree") -> str:
    """The beginning of a .t file; ``end;`` ends it."""
    head = ["#NEXUS", f"[ID: {seed:010d}]", f"[Param: {parameter}]", "begin trees;", "   translate"]
    return _text([*head, _translate(taxa, "       {} {}")])


def tree_line(generation: int, newick: str, is_rooted: bool = False) -> str:
    """A sample in a .t file; the tips of ``newick`` are numbers from 1."""
    return f"   tree gen.{generation} = [&{'R' if is_rooted else 'U'}] {newick}\n"


class SampleFormat:
    """Samples as MrBayes writes them: a table, and a file of trees for each set of lengths."""

    end = "end;\n"
    """The last line of a file of trees, as NEXUS wants it."""

    def __init__(self, labels: Sequence[str], sets: int = 1) -> None:
        self._labels, self._sets = labels, sets

    def kinds(self, run: int) -> list[str]:
        """Kinds of a run's files, the table first."""
        if self._sets == 1:
            return [f"run{run}.p", f"run{run}.t"]
        return [f"run{run}.p", *(f"tree{n}.run{run}.t" for n in range(1, self._sets + 1))]

    def heads(self, taxa: Sequence[str], seed: int) -> tuple[str, ...]:
        """The beginnings of the files."""
        names = [f"TL{{{n}}}" for n in range(1, self._sets + 1)] if self._sets > 1 else ["TL"]
        table = table_head(("LnL", "LnPr", *names, *self._labels), seed)
        if self._sets == 1:
            return table, trees_head(taxa, seed)
        numbers = range(1, self._sets + 1)
        return table, *(trees_head(taxa, seed, f"tree{{{n}}}") for n in numbers)

    def lines(self, one: Sample) -> tuple[str, ...]:
        """A sample in the files."""
        values = [one.lnl, one.log_prior, *one.tree_lengths.tolist(), *one.values]
        newicks = [newick_of_words(one.words, number) for number in range(self._sets)]
        trees = (tree_line(one.iteration, newick) for newick in newicks)
        return table_line(one.iteration, values), *trees
