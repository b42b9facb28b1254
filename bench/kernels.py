"""``bench kernels``: every likelihood operation by itself, against the device's own limits.

Wall seconds of one call, with launch and read-back, as the search pays them. Bytes are what an
operation must move at least (every CLA read or written once per newview or edge), FLOPs those of
its formula with S states and K categories.
"""

from __future__ import annotations

import ctypes
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from bench.beagle import Beagle, find_beagle
from bench.contenders import Contender
from bench.limits import Limits, measure_limits
from bench.results import Row, Run, repeated
from bench.workloads import Workload, workload
from mltree.fit.settings import BranchSettings
from mltree.likelihood.likelihood import TreeLikelihood
from mltree.program import builders
from mltree.program.cases import Case
from mltree.program.contract import CONTROL_WORDS
from mltree.program.engine import Engine, ReferenceEngine
from mltree.program.program import Program
from mltree.runs.engines import Engines
from mltree.runs.engines import Workload as EngineWorkload
from mltree.system.errors import MltreeError
from mltree.treesearch.spr import Neighbourhood

__all__ = ["SIZES", "SMOKE", "Size", "measure", "times_of"]

SCAN_DEPTH = 6
"""Edges from the pruning point that the timed scan walks."""

MAX_CANDIDATES = 400
"""Insertions that the timed re-scoring refines."""

WARM_UP = 0.05
"""Seconds of calls before those that are timed: a CPU's clock and caches take so long."""

SMOOTHING_GAIN = 0.1
"""lnL: the smoothing of the search's rounds."""

BEAGLE_TOLERANCE = 1e-9
"""Relative difference of lnLs: two fp64 sums of the same terms."""

_NO_CONTROL = np.zeros((0, CONTROL_WORDS))


@dataclass(frozen=True)
class Size:
    """How much data of which kind."""

    kind: str
    taxa: int
    patterns: int


SIZES = (
    *(Size("DNA", 15, patterns) for patterns in (1024, 8192, 65536, 262144)),
    Size("DNA", 200, 1727),
    Size("DNA", 1000, 1024),
    Size("DNA", 1000, 16384),
    *(Size("protein", 50, patterns) for patterns in (1777, 16384, 65536)),
    *(Size("codon", 15, patterns) for patterns in (1024, 8192)),
)
SMOKE = (Size("DNA", 15, 1024), Size("protein", 8, 256))


@dataclass(frozen=True)
class Operation:
    """What is timed, and how much work it is."""

    name: str
    call: Callable[[], object]
    units: float
    """Pattern-newviews, pattern-edges or pattern-insertions of one call."""
    unit: str
    reads: float
    """CLAs of all patterns read and written."""
    products: float
    """P matrix times vector of all patterns and categories."""


def measure(
    run: Run,
    sizes: Sequence[Size],
    contenders: Sequence[Contender],
    repetitions: int,
    seed: int,
) -> None:
    """Fill the run with a row per size, contender and operation."""
    limits: dict[str, Limits] = {}
    library = find_beagle()
    for size in sizes:
        data = workload(size.kind, size.taxa, size.patterns, seed)
        for contender in contenders:
            try:
                rows = list(_rows(size, data, contender, repetitions, limits))
            except MltreeError as error:
                rows = [{**_who(size, contender), "status": "failed", "output": error.message}]
            for row in rows:
                run.add(row)
                print(_line(row), flush=True)
        if library is not None:
            run.add(_beagle(run, size, data, library, repetitions))
            print(_line(run.rows[-1]), flush=True)
    run.settings["limits"] = {name: asdict(limit) for name, limit in limits.items()}


def _beagle(run: Run, size: Size, data: Workload, library: ctypes.CDLL, repetitions: int) -> Row:
    """BEAGLE's traversal on one thread, and whether its lnL is the reference's."""
    beagle = Beagle(library, data)
    row = {**asdict(size), "contender": beagle.name, "precision": "double", "threads": 1}
    try:
        times, lnl = times_of(beagle.log_likelihood, repetitions), beagle.log_likelihood()
    finally:
        beagle.close()
    if math.isfinite(lnl):  # without scaling, large trees underflow
        reference = _reference_lnl(data)
        run.check(what="BEAGLE: lnL", **asdict(size), lnl=lnl, reference=reference,
                  holds=abs(lnl / reference - 1) < BEAGLE_TOLERANCE)  # fmt: skip
    inner = size.taxa - 2
    cla = size.patterns * data.model.n_categories * data.model.n_states * 8
    return {
        **row,
        "status": "done",
        "device": "CPU",
        "operation": "traversal",
        "seconds": repeated(times),
        "units": inner * size.patterns,
        "unit": "pattern-newviews",
        "bytes": 2 * inner * cla,
        "flops": (2 * inner + 1) * cla / 8 * 2 * data.model.n_states,
    }


def _reference_lnl(data: Workload) -> float:
    bounds = BranchSettings().bounds(data.patterns.n_sites)
    engine = ReferenceEngine(data.patterns, data.model.n_categories, bounds)
    return float(
        TreeLikelihood(engine, bounds).log_likelihoods([data.tree], [Case((data.model,))])[0]
    )


def _who(size: Size, contender: Contender) -> Row:
    return {
        **asdict(size),
        "contender": contender.name,
        "precision": contender.precision,
        "threads": contender.threads,
    }


def _line(row: Row) -> str:
    if row["status"] != "done":
        return f"{row}"
    rate = row["units"] / row["seconds"]["median"]
    return (
        f"{row['kind']} {row['taxa']} x {row['patterns']} {row['contender']} {row['precision']} "
        f"{row['operation']}: {row['seconds']['median'] * 1e6:.1f} us, {rate:.3g} {row['unit']}/s"
    )


def _rows(
    size: Size,
    data: Workload,
    contender: Contender,
    repetitions: int,
    limits: dict[str, Limits],
) -> Iterator[Row]:
    settings = BranchSettings()
    bounds = settings.bounds(size.patterns)
    categories = data.model.n_categories
    engines = Engines(
        contender.resources, EngineWorkload.of_patterns(data.patterns, categories, bounds)
    )
    engine = engines.likelihood.engine
    device = engines.devices[0] if len(engines.devices) == 1 else None
    if device is not None and device.name not in limits:
        limits[device.name] = measure_limits(device.handle)
    states = data.patterns.alphabet.n_states
    real = 4 if contender.precision == "mixed" else 8
    cla = size.patterns * categories * states * real
    for operation in _operations(engine, data, bounds):
        times = times_of(operation.call, repetitions)
        flops = operation.products * size.patterns * categories * states * 2 * states
        yield {
            **_who(size, contender),
            "status": "done",
            "engine": engine.name,
            "device": device.name if device else contender.name,
            "operation": operation.name,
            "seconds": repeated(times),
            "units": operation.units,
            "unit": operation.unit,
            "bytes": operation.reads * cla,
            "flops": flops,
        }


def _operations(engine: Engine, data: Workload, bounds: tuple[float, float]) -> Iterator[Operation]:
    likelihood = TreeLikelihood(engine, bounds)
    tree, cases, count = data.tree, [Case((data.model,))], data.patterns.n_patterns
    inner, edges, trees = tree.n_tips - 2, tree.n_edges, [data.tree]
    likelihood.log_likelihoods(trees, cases)  # loads the model

    def runs(program: Program, lengths: np.ndarray) -> Callable[[], object]:
        return lambda: engine.run(program, lengths, _NO_CONTROL)

    matrices = Program(builders.traversal(trees).stages[:1], 1)
    yield Operation("P matrices", runs(matrices, tree.lengths), edges, "matrices", 0, 0)
    longest = engine.longest_walk(1)
    lnl = builders.walk(trees, longest) if longest else builders.traversal(trees)
    yield Operation(
        "traversal", runs(lnl, tree.lengths),
        inner * count, "pattern-newviews", 0 if longest else 2 * inner, 2 * inner + 1,
    )  # fmt: skip
    if longest:
        yield Operation(
            "traversal, CLAs kept", runs(builders.traversal(trees), tree.lengths),
            inner * count, "pattern-newviews", 2 * inner, 2 * inner + 1,
        )  # fmt: skip
    every = builders.derivatives(trees)
    newviews = 3 * inner
    yield Operation(
        "derivatives", runs(every, tree.lengths),
        edges * count, "pattern-edges", 2.5 * newviews + 2 * edges, 2 * newviews + 3 * edges,
    )  # fmt: skip
    moving = tree.copy()

    def smooth() -> None:
        moving.lengths[:] = tree.lengths
        likelihood.smooth([moving], cases, SMOOTHING_GAIN)

    yield Operation("Newton smoothing", smooth, edges * count, "pattern-edges", 0, 0)
    near = Neighbourhood(tree)
    scan = near.scan(near.extend(SCAN_DEPTH))
    likelihood.insertions(trees, cases, scan)  # makes the directional CLAs current
    program, lengths = builders.scores(trees, scan)
    yield Operation(
        "insertion scan", runs(program, lengths),
        scan.outputs * count, "pattern-insertions", scan.outputs, 4 * scan.outputs,
    )  # fmt: skip
    some = np.arange(0, near.size, max(1, near.size // MAX_CANDIDATES), dtype=np.int32)
    few = near.scan(some)
    yield Operation(
        "insertion re-scoring", lambda: likelihood.refine(trees, cases, few),
        few.outputs * count, "pattern-insertions", 0, 0,
    )  # fmt: skip


def times_of(call: Callable[[], object], repetitions: int) -> list[float]:
    """Wall seconds of calls, after two or more that warm up."""
    warm = _seconds(call) + _seconds(call)
    while warm < WARM_UP:
        warm += _seconds(call)
    return [_seconds(call) for _ in range(repetitions)]


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
