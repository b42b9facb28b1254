"""``bench scale``: how cost grows with taxa, patterns and starts; memory planned and used."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from bench.contenders import Contender
from bench.results import Row, Run, repeated
from bench.workloads import workload
from mltree.fit.settings import BranchSettings
from mltree.program.cases import Case
from mltree.runs.engines import Engines, Workload
from mltree.system.errors import MltreeError

__all__ = ["AXES", "SMOKE", "measure"]

AXES: dict[str, tuple[tuple[int, int, int], ...]] = {
    "taxa": tuple((taxa, 1024, 1) for taxa in (50, 100, 200, 500, 1000, 2000, 5000)),
    "patterns": tuple((50, 1024 << power, 1) for power in range(0, 11, 2)),
    "starts": tuple((100, 1024, starts) for starts in (1, 2, 4, 8, 16, 32)),
}
"""(taxa, patterns, trees side by side) along each axis."""

SMOKE: dict[str, tuple[tuple[int, int, int], ...]] = {"taxa": ((20, 256, 1), (40, 256, 1))}


def measure(
    run: Run,
    axes: dict[str, tuple[tuple[int, int, int], ...]],
    contenders: Sequence[Contender],
    repetitions: int,
    seed: int,
) -> None:
    """Fill the run with a row per point of each axis and contender."""
    for contender in contenders:
        for axis, points in axes.items():
            for row in _along(axis, points, contender, repetitions, seed):
                run.add(row)
                print({key: row[key] for key in ("axis", "point", "status")}, flush=True)


def _along(
    axis: str,
    points: Sequence[tuple[int, int, int]],
    contender: Contender,
    repetitions: int,
    seed: int,
) -> Iterator[Row]:
    for point in points:
        row: Row = {"axis": axis, "point": list(point), "contender": contender.name}
        try:
            yield {**row, "status": "done", **_point(point, contender, repetitions, seed)}
        except MltreeError as error:
            yield {**row, "status": "failed", "output": error.message}
            return


def _point(point: tuple[int, int, int], contender: Contender, repetitions: int, seed: int) -> Row:
    taxa, patterns, count = point
    data = workload("DNA", taxa, patterns, seed)
    bounds = BranchSettings().bounds(patterns)
    engines = Engines(
        contender.resources, Workload.of_patterns(data.patterns, data.model.n_categories, bounds)
    )
    likelihood = engines.likelihood
    trees, cases = [data.tree.copy() for _ in range(count)], [Case((data.model,))] * count

    def smooth() -> None:
        for tree in trees:
            tree.lengths[:] = data.tree.lengths
        likelihood.smooth(trees, cases, 1.0, max_passes=4)

    return {
        "traversal_s": _timed(lambda: likelihood.log_likelihoods(trees, cases), repetitions),
        "smoothing_s": _timed(smooth, repetitions),
        "planned_bytes": _planned(likelihood.engine, count * 3 * (taxa - 2), patterns),
        "used_bytes": _used(likelihood.engine),
    }


def _timed(call: Callable[[], object], repetitions: int) -> Row | None:
    call()
    times = []
    for _ in range(repetitions):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return repeated(times)


def _planned(engine: Any, slots: int, patterns: int) -> int | None:
    """Bytes of CLAs that the layout says so many slots take."""
    layout = getattr(engine, "layout", None)
    return None if layout is None else int(slots * layout.cla_bytes(patterns))


def _used(engine: Any) -> int | None:
    """Bytes of the session's buffers, as allocated."""
    memory = getattr(engine, "memory", None)
    return None if memory is None else int(memory.bytes_held)
