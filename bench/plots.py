"""Results as SVG plots, by matplotlib (the ``bench`` extra)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.markdown import crowded, who
from bench.results import Run
from bench.search_tables import gaps
from bench.tables import speedups

__all__ = ["draw"]

SIZE = (7.0, 4.5)
"""Inches."""


def draw(run: Run, stem: Path) -> list[Path]:
    """The run's plots, written as STEM-*.svg; none where matplotlib is missing."""
    try:
        import matplotlib as mpl
    except ModuleNotFoundError:
        return []
    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "mltree"  # the same data give the same file
    mpl.rcParams["svg.fonttype"] = "none"
    return [path for plot in _PLOTS.get(run.bench, ()) for path in plot(run, stem)]


def _axes(title: str) -> tuple[Any, Any]:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=SIZE, layout="constrained")
    axes.set_title(title, fontsize=10)
    axes.grid(visible=True, which="major", alpha=0.3)
    return figure, axes


def _write(figure: Any, stem: Path, name: str) -> list[Path]:
    from matplotlib import pyplot

    path = stem.with_name(f"{stem.name}-{name}.svg")
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    text = path.read_text(encoding="utf-8")
    path.write_text("\n".join(line.rstrip() for line in text.splitlines()) + "\n", "utf-8")
    return [path]


def _lines(axes: Any, points: dict[str, list[tuple[float, float]]]) -> None:
    for label, line in points.items():
        xs, ys = zip(*sorted(line), strict=True)
        axes.plot(xs, ys, marker="o", markersize=3, label=label)
    axes.legend(fontsize=7)


def _times(run: Run, stem: Path) -> list[Path]:
    """Figure 3: seconds against patterns."""
    points: dict[str, list[tuple[float, float]]] = {}
    clock, what = ("user_s", "CPU seconds") if crowded(run) else ("whole_s", "seconds")
    for row in run.rows:
        if row["status"] == "done" and row.get(clock):
            points.setdefault(who(row), []).append((row["patterns"], row[clock]["median"]))
    if not points:
        return []
    figure, axes = _axes(f"15 taxa, JC + Γ4: {what} of the whole process")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("patterns")
    axes.set_ylabel(what)
    _lines(axes, points)
    return _write(figure, stem, "seconds")


def _function_speedups(run: Run, stem: Path) -> list[Path]:
    """Figure 4: the likelihood functions' speed over the AVX layout."""
    found = speedups(run.rows)
    written = []
    for number, name in enumerate(dict.fromkeys(name for _, name, _, _ in found), 1):
        points: dict[str, list[tuple[float, float]]] = {}
        for patterns, other, function, ratio in found:
            if other == name:
                points.setdefault(function, []).append((patterns, ratio))
        figure, axes = _axes(f"{name}: times as fast as the AVX layout on one thread")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xlabel("patterns")
        _lines(axes, points)
        written += _write(figure, stem, f"functions-{number}")
    return written


def _gap_against_time(run: Run, stem: Path) -> list[Path]:
    """How far below the best tree each program ends, and when."""
    clock, what = ("user_s", "CPU seconds") if crowded(run) else ("whole_s", "seconds")
    found = gaps(run.rows, clock)
    if all(time is None for *_, time in found):
        return []
    figure, axes = _axes(f"lnL below the best tree against {what}, a point per alignment")
    for name in dict.fromkeys(name for _, name, _, _ in found):
        own = [(time, gap) for _, other, gap, time in found if other == name and time is not None]
        if own:
            axes.scatter(*zip(*own, strict=True), label=name, s=18)
    axes.set_xscale("log")
    axes.set_yscale("symlog", linthresh=0.1)
    axes.invert_yaxis()
    axes.set_xlabel(f"{what} of the whole process")
    axes.set_ylabel("lnL below the best")
    axes.legend(fontsize=7)
    return _write(figure, stem, "gap")


_PLOTS: dict[str, tuple[Callable[[Run, Path], list[Path]], ...]] = {
    "table1": (_times, _function_speedups),
    "search": (_gap_against_time,),
}
