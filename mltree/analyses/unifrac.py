"""UniFrac distances of samples and their statistics: ``mltree unifrac``, ``mltree.unifrac``."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mltree.analyses.tree_options import UnifracOptions
from mltree.analyses.tree_sets import words_of, writing
from mltree.data.source import expect_file
from mltree.device.discovery import choose_devices
from mltree.device.unifrac import DeviceUnifrac
from mltree.diversity.branches import Samples, parsed_tree, placed
from mltree.diversity.matrix import (
    Distances,
    Draft,
    Nearest,
    PartFile,
    computed,
    merged,
    name_of,
    read_matrix,
    tiles_memory,
    tsv_lines,
)
from mltree.diversity.statistics import (
    DISPERSION_AXES,
    Ordination,
    TestOfGroups,
    anosim,
    coded,
    mantel,
    pcoa,
    permanova,
    permdisp,
)
from mltree.diversity.table import CountTable, read_metadata, read_table, table_of
from mltree.diversity.unifrac import (
    ComputedBlocks,
    DistanceBlocks,
    MatrixBlocks,
    Metric,
    ReferenceUnifrac,
    Tile,
    UnifracEngine,
    UnifracProblem,
    fill,
    metrics_of,
    tiles_of,
)
from mltree.report.diversity_page import MetricPage, ShownBranch, page
from mltree.runs.calls import in_turn
from mltree.runs.inputs import newick_of
from mltree.runs.workspace import Workspace
from mltree.system.arrays import Float64, Int64
from mltree.system.errors import InputError
from mltree.system.events import Emit, Notice, ResultWritten, UnifracComputed, UnifracTested
from mltree.system.process import host_memory
from mltree.system.ranks import current_ranks
from mltree.system.values import Value

if TYPE_CHECKING:
    from mltree.report.progress import Reporter

TESTS = ("permanova", "permdisp", "anosim")

FORMATS = {"tsv": "tsv", "hdf5": "h5", "npy": "npy"}
"""Endings of matrices."""

FAITH, BRANCHES, PAGE = "faith", "branches", "unifrac.html"
"""Kinds of files beside those of a metric."""

SAID = 1_000_000_000
"""Bytes of a matrix from which on the plan for it is said."""

PAGE_AXES = 10
"""Axes that a page has where none are asked for."""


def engines_of(problem: UnifracProblem, device: str | None) -> list[UnifracEngine]:
    """An engine on each device that is asked for; NumPy's for the reference."""
    devices = choose_devices(device)
    if not devices:
        return [ReferenceUnifrac(problem)]
    return [DeviceUnifrac(problem, info.handle) for info in devices]


def run_unifrac(options: UnifracOptions, reporter: Reporter) -> None:
    """Compute the distances, by each metric, and what is asked for of them.

    Raises:
        InputError: the table, the tree or an option cannot be used.
    """
    if options.prefix is None:
        expect_file(options.table)
    workspace = Workspace.of(options.prefix, options.table)
    metrics = metrics_of(options.metric, options.alpha, options.variance_adjusted, options.absolute)
    tests = words_of(options.tests, TESTS, "--tests") if options.group else []
    kinds = list(_kinds(options, metrics))
    part = options.share
    command = "unifrac" if part is None else f"unifrac.part{part[0]}of{part[1]}"
    with writing(command, options, workspace, kinds, reporter) as write:
        run = UnifracRun(options, workspace, tests, reporter)
        texts, values = run.results(metrics)
        write(texts, values)


def _kinds(options: UnifracOptions, metrics: Sequence[Metric]) -> Iterator[str]:
    """Kinds of the files that a run writes."""
    if options.share is not None:
        yield from (_part_kind(metric, *options.share) for metric in metrics)
        return
    if any(_has_faith(metric) for metric in metrics):
        yield FAITH
    for metric in metrics:
        if options.matrix != "none":
            yield f"{metric.label}.{FORMATS[options.matrix]}"
            if options.subsamples > 1:
                yield f"{metric.label}.sd.{FORMATS[options.matrix]}"
        if options.pcoa:
            yield f"{metric.label}.pcoa"
        if options.nearest is not None:
            yield f"{metric.label}.nearest"
    if options.branches:
        yield BRANCHES
    if options.page:
        yield PAGE


def _has_faith(metric: Metric) -> bool:
    """True for a metric one of whose sums is Faith's phylogenetic diversity."""
    return metric.is_presence and metric.is_plain


def _part_kind(metric: Metric, part: int, parts: int) -> str:
    return f"{metric.label}.part{part}of{parts}"


class UnifracRun:
    """A run of the command: what it reads, computes and writes."""

    def __init__(
        self, options: UnifracOptions, workspace: Workspace, tests: Sequence[str], emit: Emit
    ) -> None:
        if options.part and options.merge:
            raise InputError("--part and --merge exclude each other")
        if options.subsamples > 1 and (options.depth is None or options.part or options.merge):
            raise InputError("--subsamples needs --depth, and no --part or --merge")
        if options.group is not None and options.metadata is None:
            raise InputError("--group needs --metadata")
        self._options, self._workspace, self._tests = options, workspace, tests
        self._emit = emit
        self._table = read_table(options.table)
        self._tree = parsed_tree(options.tree)
        self._metadata = None if options.metadata is None else read_metadata(options.metadata)
        self._first = self._drawn(0)
        self._groups = self._grouped()
        self._pages: list[MetricPage] = []
        self._unfinished: list[tuple[Callable[[], Path], str]] = []
        self._faith: Float64 | None = None

    def _drawn(self, number: int) -> Samples:
        """The samples, rarefied where a depth is given: the n-th time."""
        table = self._table
        if self._options.depth is not None:
            table = table.rarefied(self._options.depth, (self._options.seed, number))
            if not number and table.n_samples < self._table.n_samples:
                left = self._table.n_samples - table.n_samples
                text = f"{left:,} samples have fewer than {self._options.depth:,} counts: left out"
                self._emit(Notice(text))
        return placed(table, *self._tree)

    def _grouped(self) -> dict[str, list[str]]:
        """The groups of every column that is compared, sample by sample."""
        options = self._options
        if options.group is None or self._metadata is None:
            return {}
        names = [name.strip() for name in options.group.split(",")]
        groups = {name: self._metadata.values(name, self._first.ids) for name in names}
        for values in groups.values():
            coded(values)  # before the distances, which may take hours
        return groups

    def results(self, metrics: Sequence[Metric]) -> tuple[dict[str, str], dict[str, Any]]:
        """The texts of small files by their kinds, and values for JSON; matrices are written."""
        options, samples = self._options, self._first
        texts: dict[str, str] = {}
        results: dict[str, Any] = {}
        for metric in metrics:
            problem = UnifracProblem(samples, metric, options.precision == "single")
            if options.share is not None:
                results[metric.label] = self._part(problem)
                continue
            values, more = self._metric(problem)
            texts.update(more)
            results[metric.label] = values
        if options.part is None:
            if self._faith is not None:
                rows = zip(samples.ids, self._faith.tolist(), strict=True)
                lines = (f"{name}\t{value!r}\n" for name, value in rows)
                texts[FAITH] = "".join(["sample\tfaith_pd\n", *lines])
            if options.branches:
                texts[BRANCHES] = "".join(branch_lines(samples, self._groups))
            if options.page:
                largest = largest_branches(samples, self._groups)
                texts[PAGE] = page(self._pages, samples, self._metadata, self._groups, largest)
        for finish, reader in self._unfinished:  # all at once, for a run to go on
            path = finish()
            if reader:
                self._emit(ResultWritten(str(path), reader))
        return texts, {
            "samples": samples.n_samples,
            "features": len(samples.branches.tip),
            "branches": samples.branches.count,
            "metrics": results,
        }

    def _part(self, problem: UnifracProblem) -> dict[str, Any]:
        """Compute a part of the tiles into a file."""
        part = self._options.share
        assert part is not None
        file = PartFile(self._workspace.path(_part_kind(problem.metric, *part)), problem, part)
        engines = engines_of(problem, self._options.device)
        for _, block in computed(engines, file.tiles[file.done :]):
            file.add(block)
        self._unfinished.append((file.finish, ""))
        return {"tiles": len(file.tiles), "file": str(file.path)}

    def _metric(self, problem: UnifracProblem) -> tuple[dict[str, Any], dict[str, str]]:
        """All that is asked for of one metric."""
        options, label = self._options, problem.metric.label
        n_samples = problem.samples.n_samples
        nearest = None if options.nearest is None else Nearest(n_samples, options.nearest)
        draft, matrix = self._begin(problem, label)
        engines: list[UnifracEngine] = []
        spread: Distances | None = None
        if options.subsamples > 1:
            matrix, spread = self._rarefied(problem, matrix)
            tiles: Iterator[tuple[Tile, Distances]] = iter(MatrixBlocks(matrix))
        elif options.merge is not None:
            names = [_part_kind(problem.metric, i + 1, options.merge) for i in range(options.merge)]
            tiles = merged([self._workspace.path(name) for name in names], problem)
        else:
            engines = engines_of(problem, options.device)
            tiles = self._tiles(problem, engines, draft)
        keep: Draft | Distances | None = matrix if draft is None else draft
        if spread is not None:
            keep = None
        mean = _kept(tiles, keep, nearest) / max(1, n_samples * (n_samples - 1))
        if _has_faith(problem.metric) and self._faith is None:
            engines = engines or engines_of(problem, options.device)
            self._faith = engines[0].faith()
        self._emit(UnifracComputed(label, n_samples, problem.samples.branches.count, mean))
        blocks = self._blocks(problem, draft, matrix, engines)
        values, texts, arrays = self._statistics(problem, blocks)
        values |= {"mean": mean}
        if nearest is not None:
            texts[f"{label}.nearest"] = "".join(nearest.lines(problem.samples.ids))
        if draft is not None:
            values["file"] = str(draft.path)
            reader = "unifrac" if draft.kind == "hdf5" else "NumPy"
            self._unfinished.append((partial(draft.finish, arrays), reader))
        elif options.matrix == "tsv" and matrix is not None:
            texts[f"{label}.tsv"] = "".join(tsv_lines(matrix, problem.samples.ids))
        if spread is not None:
            self._write_spread(problem, spread, texts)
        return values, texts

    def _begin(self, problem: UnifracProblem, label: str) -> tuple[Draft | None, Distances | None]:
        """The matrix in a file, or in memory, or nowhere."""
        options, n_samples = self._options, problem.samples.n_samples
        size = np.dtype(problem.kind).itemsize
        if options.matrix in {"hdf5", "npy"}:
            if size * n_samples**2 > SAID:
                tiles = tiles_memory(n_samples, size)
                text = f"a matrix of {size * n_samples**2 / 1e9:,.1f} GB in the file; tiles take "
                self._emit(Notice(text + f"{tiles / 1e9:,.1f} GB of memory at most"))
            kind = f"{label}.{FORMATS[options.matrix]}"
            is_read = bool(options.pcoa or options.page or self._tests or options.mantel)
            draft = Draft(self._workspace.path(kind), options.matrix, problem, is_read)
            return draft, draft.matrix
        if options.matrix == "tsv" or options.subsamples > 1:
            if size * n_samples**2 > host_memory():
                text = f"a matrix of {size * n_samples**2 / 1e9:,.1f} GB, which memory cannot hold"
                raise InputError(text, hint="--matrix hdf5 has it in a file, --matrix none nowhere")
            return None, np.zeros((n_samples,) * 2, problem.kind)
        return None, None

    def _tiles(
        self, problem: UnifracProblem, engines: Sequence[UnifracEngine], draft: Draft | None
    ) -> Iterator[tuple[Tile, Distances]]:
        """All tiles; those that a killed run has written come from its draft."""
        every, device = tiles_of(problem.samples.n_samples), self._options.device
        if draft is None or not draft.done:
            return _computed(problem, engines, device, every)
        self._emit(Notice(f"{len(draft.done):,} of {len(every):,} tiles are there: going on"))
        there = [tile for tile in every if name_of(tile) in draft.done]
        missing = [tile for tile in every if name_of(tile) not in draft.done]
        old = ((tile, draft.block(tile)) for tile in there)
        return chain(old, _computed(problem, engines, device, missing))

    def _rarefied(
        self, problem: UnifracProblem, matrix: Distances | None
    ) -> tuple[Distances, Distances]:
        """Mean and standard deviation of the distances over rarefied tables."""
        assert matrix is not None
        shape = matrix.shape
        sums, squares = np.zeros(shape), np.zeros(shape)
        for number in range(self._options.subsamples):
            samples = problem.samples if not number else self._drawn(number)
            one = UnifracProblem(samples, problem.metric, problem.single)
            device = self._options.device
            engines = engines_of(one, device)
            for tile, block in _computed(one, engines, device, tiles_of(shape[0])):
                fill(sums, tile, sums[tile] + block)
                fill(squares, tile, squares[tile] + block.astype(np.float64) ** 2)
        count = self._options.subsamples
        mean = sums / count
        variance = np.maximum(squares / count - mean**2, 0) * count / (count - 1)
        matrix[...] = mean
        return matrix, np.sqrt(variance)

    def _write_spread(
        self, problem: UnifracProblem, spread: Distances, texts: dict[str, str]
    ) -> None:
        """The standard deviations, in the format of the matrix."""
        options, label = self._options, problem.metric.label
        if options.matrix == "tsv":
            texts[f"{label}.sd.tsv"] = "".join(tsv_lines(spread, problem.samples.ids))
        elif options.matrix != "none":
            kind = f"{label}.sd.{FORMATS[options.matrix]}"
            draft = Draft(self._workspace.path(kind), options.matrix, problem)
            draft.matrix[...] = spread
            self._unfinished.append((partial(draft.finish, {}), ""))

    def _blocks(
        self, problem: UnifracProblem, draft: Draft | None, matrix: Distances | None,
        engines: Sequence[UnifracEngine],
    ) -> DistanceBlocks:  # fmt: skip
        """Distances for statistics: where they lie, or computed anew."""
        if draft is not None:
            return MatrixBlocks(draft.matrix)
        if matrix is not None:
            return MatrixBlocks(matrix)
        engines = engines or engines_of(problem, self._options.device)
        return ComputedBlocks(partial(computed, engines), problem.samples.n_samples)

    def _statistics(
        self, problem: UnifracProblem, blocks: DistanceBlocks
    ) -> tuple[dict[str, Any], dict[str, str], dict[str, Any]]:
        """Values for JSON, texts of files, arrays for HDF5."""
        options, label = self._options, problem.metric.label
        values: dict[str, Any] = {}
        texts: dict[str, str] = {}
        arrays: dict[str, Any] = {}
        ordination = shown = None
        if options.pcoa or options.page or "permdisp" in self._tests:
            axes = options.pcoa or PAGE_AXES
            least = DISPERSION_AXES if "permdisp" in self._tests else 0
            ordination = pcoa(blocks, max(axes, least), options.seed)
            shown = ordination.first(axes)
        if options.pcoa and shown is not None:
            texts[f"{label}.pcoa"] = "".join(ordination_lines(shown, problem.samples.ids))
            values["explained"] = shown.explained.tolist()
            arrays = {
                "pcoa_method": np.array([b"FSVD"]),
                "pcoa_eigvals": shown.eigenvalues.astype(problem.kind),
                "pcoa_samples": shown.coordinates.astype(problem.kind),
                "pcoa_proportion_explained": shown.explained.astype(problem.kind),
            }
        tests = [
            (column, self._test(name, blocks, ordination, groups))
            for column, groups in self._groups.items()
            for name in self._tests
        ]
        if tests:
            values["tests"] = [{"column": column, **asdict(test)} for column, test in tests]
            arrays |= _stored(tests)
        for column, test in tests:
            self._emit(UnifracTested(label, column, **_shown(test)))
        if options.mantel is not None:
            other = read_matrix(options.mantel).ordered(problem.samples.ids)
            correlation = mantel(blocks, other, options.permutations, options.seed)
            values["mantel"] = asdict(correlation)
            numbers = correlation.r, correlation.p_value, correlation.r**2
            self._emit(UnifracTested(label, options.mantel, "Mantel", "r", *numbers))
        if options.page and shown is not None:
            self._pages.append(MetricPage.of(problem.metric, shown, blocks, self._groups, tests))
        return values, texts, arrays

    def _test(
        self,
        name: str,
        blocks: DistanceBlocks,
        ordination: Ordination | None,
        groups: Sequence[str],
    ) -> TestOfGroups:
        options = self._options
        numbers = options.permutations, options.seed
        if name == "permdisp":
            assert ordination is not None
            return permdisp(ordination, groups, *numbers)
        return (permanova if name == "permanova" else anosim)(blocks, groups, *numbers)


def _kept(
    tiles: Iterable[tuple[Tile, Distances]], keep: Draft | Distances | None, nearest: Nearest | None
) -> float:
    """The sum of the distances of all ordered pairs, while their tiles are kept."""
    sums = []
    for tile, block in tiles:
        sums.append(float(block.sum(dtype=np.float64)) * (1 if tile.is_diagonal else 2))
        if nearest is not None:
            nearest.add(tile, block)
        if isinstance(keep, Draft):
            keep.add(tile, block)
        elif keep is not None:
            fill(keep, tile, block)
    return math.fsum(sums)  # whatever the order in which ranks end


def _computed(
    problem: UnifracProblem, engines: Sequence[UnifracEngine], device: str | None, tiles: list[Tile]
) -> Iterator[tuple[Tile, Distances]]:
    """Tiles with their distances as they end, on all ranks."""
    work = partial(computed, engines)
    return current_ranks().deal(tiles, work, partial(_helping, problem, device))


def _helping(
    problem: UnifracProblem, device: str | None
) -> Callable[[Iterator[Tile]], Iterator[tuple[Tile, Distances]]]:
    """The work of another rank."""
    return partial(computed, engines_of(problem, device))


def _shown(test: TestOfGroups) -> dict[str, Any]:
    names = "method", "statistic_name", "statistic", "p_value", "r2"
    return {name: getattr(test, name) for name in names}


def _stored(tests: Sequence[tuple[str, TestOfGroups]]) -> dict[str, Any]:
    """Tests as ``ssu`` has them in HDF5."""
    return {
        "stat_methods": np.array([test.method.encode() for _, test in tests]),
        "stat_test_names": np.array([test.statistic_name.encode() for _, test in tests]),
        "stat_grouping_names": np.array([column.encode() for column, _ in tests]),
        "stat_n_groups": np.array([test.groups for _, test in tests], np.uint32),
        "stat_values": np.array([test.statistic for _, test in tests]),
        "stat_pvalues": np.array([test.p_value for _, test in tests]),
        "stat_n_permutations": np.array([test.permutations for _, test in tests], np.uint32),
    }


def ordination_lines(ordination: Ordination, ids: Sequence[str]) -> Iterator[str]:
    """Principal coordinates in scikit-bio's format, which QIIME and Emperor read."""
    axes = len(ordination.eigenvalues)

    def numbers(row: Float64) -> str:
        return "\t".join(map(repr, row.tolist()))

    yield f"Eigvals\t{axes}\n{numbers(ordination.eigenvalues)}\n\n"
    yield f"Proportion explained\t{axes}\n{numbers(ordination.explained)}\n\n"
    yield f"Species\t0\t0\n\nSite\t{len(ids)}\t{axes}\n"
    for name, row in zip(ids, ordination.coordinates, strict=True):
        yield f"{name}\t{numbers(row)}\n"
    yield "\nBiplot\t0\t0\n\nSite constraints\t0\t0\n"


SLAB = 256
"""Samples whose counts below all branches lie in memory together."""


class BranchShares(Value):
    """Branches over all samples."""

    prevalence: Int64
    """int64 [B]: samples that have the branch."""
    weight: Float64
    """float64 [B]: the mean share of a sample's counts."""
    group_means: dict[str, Float64]
    """float64 [groups, B] of each column: mean shares."""
    eta: dict[str, Float64]
    """float64 [B] of each column: share of the variance that the groups explain."""

    @classmethod
    def of(cls, samples: Samples, groups: Mapping[str, Sequence[str]]) -> BranchShares:
        """Go over all samples."""
        size = samples.branches.count
        prevalence, total, squares = np.zeros(size, np.int64), np.zeros(size), np.zeros(size)
        coded = {
            column: np.unique(np.array(names, str), return_inverse=True)
            for column, names in groups.items()
        }
        sums = {column: np.zeros((len(names), size)) for column, (names, _) in coded.items()}
        for start in range(0, samples.n_samples, SLAB):
            rows = slice(start, min(start + SLAB, samples.n_samples))
            counts = samples.counts_below(rows)
            shares = counts / samples.totals[rows, None]
            prevalence += (counts > 0).sum(axis=0)
            total += shares.sum(axis=0)
            squares += (shares**2).sum(axis=0)
            for column, (_, codes) in coded.items():
                np.add.at(sums[column], codes[rows], shares)
        mean = total / samples.n_samples
        variance = squares - samples.n_samples * mean**2
        means, eta = {}, {}
        for column, (_, codes) in coded.items():
            sizes = np.bincount(codes)[:, None]
            means[column] = sums[column] / sizes
            between = (sizes * (means[column] - mean) ** 2).sum(axis=0)
            eta[column] = np.divide(
                between, variance, out=np.zeros(size), where=variance > 1e-12 * mean
            )
        return cls(prevalence, mean, means, eta)


def branch_lines(samples: Samples, groups: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """A line a branch: its tips, length, and what it adds to all diversity."""
    shares, branches = BranchShares.of(samples, groups), samples.branches
    diversity = shares.prevalence * branches.length
    diversity = diversity / max(float(diversity.sum()), 1e-300)
    columns = "".join(f"\teta2_{column}" for column in groups)
    yield f"branch\ttips\tfirst_tip\tlast_tip\tlength\tsamples\tdiversity\tmean_share{columns}\n"
    for number in range(branches.count):
        first, last = int(branches.first[number]), int(branches.last[number])
        eta = "".join(f"\t{values[number]:.6g}" for values in shares.eta.values())
        yield (
            f"{number}\t{last - first + 1}\t{branches.names[first]}\t{branches.names[last]}\t"
            f"{branches.length[number]:.10g}\t{shares.prevalence[number]}\t"
            f"{diversity[number]:.6g}\t{shares.weight[number]:.6g}{eta}\n"
        )


SHOWN_BRANCHES, MUCH = 20, 1 << 31
"""Branches that a page lists; samples times branches beyond which it lists none."""


def largest_branches(samples: Samples, groups: Mapping[str, Sequence[str]]) -> list[ShownBranch]:
    """Branches that differ most between the first column's groups, or add most to all diversity.

    The former weigh η² times the mean share of counts.
    """
    branches = samples.branches
    if samples.n_samples * branches.count > MUCH:
        return []
    shares = BranchShares.of(samples, groups)
    diversity = shares.prevalence * branches.length
    diversity = diversity / max(float(diversity.sum()), 1e-300)
    column = next(iter(groups), "")
    eta = shares.eta.get(column, np.zeros(branches.count))
    weight = eta * shares.weight if groups else diversity
    names = np.unique(np.array(groups.get(column, [""]), str))
    most_in = names[shares.group_means[column].argmax(axis=0)] if groups else None
    shown = []
    for number in np.argsort(-weight, kind="stable")[:SHOWN_BRANCHES].tolist():
        first, last = branches.names[branches.first[number]], branches.names[branches.last[number]]
        count = int(branches.last[number] - branches.first[number]) + 1
        name = first if count == 1 else f"{first} … {last} ({count:,} tips)"
        facts = [
            f"{branches.length[number]:.4g}", f"{shares.prevalence[number]:,}",
            f"{diversity[number]:.2%}", f"{shares.weight[number]:.2%}",
        ]  # fmt: skip
        if most_in is not None:
            facts += [f"{eta[number]:.3f}", str(most_in[number])]
        shown.append(ShownBranch(number, float(weight[number]), name, tuple(facts)))
    return shown


# From Python.


class UnifracResult:
    """Distances of samples in memory."""

    def __init__(self, problem: UnifracProblem, data: Distances, device: str | None) -> None:
        self._samples, self._device = problem.samples, device
        self.ids = problem.samples.ids
        """Names of the samples."""
        self.data = data
        """float64 [N, N], float32 in single precision: distances."""
        self.metric = problem.metric.label

    def __repr__(self) -> str:
        return f"<{self.metric} UniFrac of {len(self.ids)} samples>"

    @cached_property
    def faith_pd(self) -> dict[str, float]:
        """Faith's phylogenetic diversity of each sample."""
        problem = UnifracProblem(self._samples, Metric("unweighted"))
        values = engines_of(problem, self._device)[0].faith()
        return dict(zip(self.ids, values.tolist(), strict=True))

    @cached_property
    def _blocks(self) -> DistanceBlocks:
        return MatrixBlocks(self.data)

    def to_skbio(self) -> Any:
        """A ``skbio.DistanceMatrix``. Raises: ImportError: scikit-bio is not installed."""
        from skbio import DistanceMatrix

        return DistanceMatrix(np.asarray(self.data, np.float64), self.ids)

    def pcoa(self, axes: int = 10, seed: int = 1) -> Ordination:
        """Principal coordinates of the samples."""
        return pcoa(self._blocks, axes, seed)

    def permanova(
        self, groups: Sequence[str] | Mapping[str, str], permutations: int = 999, seed: int = 1
    ) -> TestOfGroups:
        """Permutational analysis of variance. Raises: InputError: there are not two groups."""
        return permanova(self._blocks, self._in_order(groups), permutations, seed)

    def permdisp(
        self, groups: Sequence[str] | Mapping[str, str], permutations: int = 999, seed: int = 1
    ) -> TestOfGroups:
        """Test of equal dispersion. Raises: InputError: there are not two groups."""
        axes = self.pcoa(DISPERSION_AXES, seed)
        return permdisp(axes, self._in_order(groups), permutations, seed)

    def anosim(
        self, groups: Sequence[str] | Mapping[str, str], permutations: int = 999, seed: int = 1
    ) -> TestOfGroups:
        """Analysis of similarities. Raises: InputError: there are not two groups."""
        return anosim(self._blocks, self._in_order(groups), permutations, seed)

    def _in_order(self, groups: Sequence[str] | Mapping[str, str]) -> list[str]:
        """The group of each sample, from a list in the samples' order, a Series or a mapping."""
        if hasattr(groups, "reindex"):
            return [str(group) for group in groups.reindex(list(self.ids))]
        if isinstance(groups, Mapping):
            groups = [groups[name] for name in self.ids]
        if len(groups) != len(self.ids):
            raise InputError(f"{len(groups)} groups for {len(self.ids)} samples")
        return [str(group) for group in groups]


def unifrac(
    table: Any,
    tree: Any,
    metric: str = "unweighted",
    *,
    alpha: float = 1.0,
    variance_adjusted: bool = False,
    absolute: bool = False,
    precision: str = "double",
    depth: int | None = None,
    seed: int = 1,
    threads: int | None = None,
    device: str | int | None = None,
) -> UnifracResult:
    """UniFrac distances of all pairs of samples.

    table   a path, a ``biom.Table``, AnnData, a DataFrame or a tuple ``(matrix, ids, features)``,
            samples in rows
    tree    a path, Newick, or a tree of another library, whose tips include all features
    metric  ``unweighted``, ``weighted_normalized``, ``weighted_unnormalized``, ``generalized`` or
            ``unweighted_unnormalized``
    alpha   weight of abundant branches, 0 to 1, of the generalised metric
    depth   counts that every sample is rarefied to; samples with fewer are left out

    Raises:
        InputError: the table, the tree or an argument cannot be used.
        DeviceError: the device cannot be found or used.
    """
    with in_turn(threads, UnifracOptions):
        metrics = metrics_of(metric, alpha, variance_adjusted, absolute)
        if len(metrics) > 1:
            raise InputError(f"metric={metric!r}: one metric a call, please")
        if precision not in {"double", "single"}:
            raise InputError(f"precision={precision!r} is not one of double, single")
        counts: CountTable = table_of(table)
        if depth is not None:
            counts = counts.rarefied(depth, (seed, 0))
        samples = placed(counts, *parsed_tree(newick_of(tree)))
        problem = UnifracProblem(samples, metrics[0], precision == "single")
        where = None if device is None else str(device)
        engines = engines_of(problem, where)
        data: Distances = np.zeros((samples.n_samples,) * 2, problem.kind)
        for tile, block in computed(engines, tiles_of(samples.n_samples)):
            fill(data, tile, block)
        return UnifracResult(problem, data, where)
