"""Results as text: the summary of a run, its time by function, and the other commands' tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from rich.table import Table

from mltree.alignment.checks import AlignmentSummary
from mltree.contract import Function
from mltree.device.discovery import DeviceInfo
from mltree.engines import MemoryNeed

__all__ = [
    "Summary",
    "Timed",
    "check_lines",
    "compare_table",
    "device_lines",
    "listed",
    "summary_text",
    "timing_table",
]

SMALL_TREE = 30
"""Taxa up to which a tree is drawn, whatever the height of the terminal."""

FUNCTION_NAMES = {
    Function.NEWVIEW: "newview",
    Function.EVALUATE: "evaluate",
    Function.DERIVE: "sumGAMMA + coreDerivative",
    Function.SCAN: "insertion scan",
    Function.TRIPOD: "insertion re-scoring",
    Function.PMATRICES: "P matrices",
    Function.OPTIMISE: "Newton steps",
    Function.BARRIER: "barriers",
}
"""The rows of the timing table, in this order; the first three as the field calls them."""


@runtime_checkable
class Timed(Protocol):
    """An engine that knows where its time went."""

    def timings(self) -> Mapping[Function, float]:
        """Seconds on the device per likelihood function."""


@dataclass(frozen=True)
class Summary:
    """What a run found."""

    lnl: float
    model: str
    tree_length: float
    """Sum of all branch lengths, expected substitutions per site."""
    taxa: int
    drawing: str
    """The tree as lines of text; empty where nobody wants it."""
    files: tuple[str, ...]


def is_drawn(taxa: int, terminal_height: int) -> bool:
    """Whether a tree of so many taxa (one line each, one between) is worth drawing."""
    return taxa <= SMALL_TREE or 2 * taxa < terminal_height


def summary_text(summary: Summary) -> str:
    """The result, readable by eye and by ``grep``."""
    lines = [
        "",
        f"Final log-likelihood: {summary.lnl:.4f}",
        f"Model: {summary.model}",
        f"Tree length: {summary.tree_length:.6f} expected substitutions per site",
    ]
    if summary.drawing:
        lines += ["", summary.drawing]
    if summary.files:
        lines += ["", *(f"Wrote {file}" for file in summary.files)]
    return "\n".join(lines)


def timing_table(device: Mapping[Function, float], wall: float) -> Table:
    """Seconds and share per likelihood function; the host is what the device does not explain."""
    table = _table("Time", "", "seconds", "share")
    rows = [(label, device.get(function, 0.0)) for function, label in FUNCTION_NAMES.items()]
    rows.append(("host and kernel builds", max(0.0, wall - sum(device.values()))))
    for label, seconds in rows:
        if seconds > 0.0:
            table.add_row(label, f"{seconds:.3f}", f"{seconds / wall:.1%}")
    table.add_row("all", f"{wall:.3f}", "", style="bold")
    return table


class Score(Protocol):
    """What one engine answered; see :class:`mltree.compare.Score`."""

    @property
    def engine(self) -> str:
        """Its name and layout."""

    @property
    def lnl(self) -> float:
        """Natural log."""

    @property
    def seconds(self) -> float:
        """Of one evaluation."""

    @property
    def problem(self) -> str:
        """Why there is no lnL."""


def compare_table(scores: Sequence[Score]) -> Table:
    """The first score, and the others with their difference from it."""
    table = _table("", "engine", "lnL", "difference", "ms")
    for score in scores:
        if score.problem:
            table.add_row(score.engine, "failed", "", "")
            continue
        difference = f"{score.lnl - scores[0].lnl:+.1e}" if score is not scores[0] else ""
        table.add_row(score.engine, f"{score.lnl:.6f}", difference, f"{score.seconds * 1e3:.3f}")
    return table


def device_lines(device: DeviceInfo, verdict: str) -> list[str]:
    """One device as ``mltree devices`` shows it."""
    gib = 2**30
    return [
        f"{device.index}: {device.name} ({'CPU' if device.is_cpu else 'GPU'})",
        f"   platform       {device.platform}, driver {device.driver}",
        f"   compute units  {device.compute_units}, doubles in a vector {device.vector_width}",
        f"   memory         {device.memory / gib:.1f} GiB",
        f"   largest buffer {device.largest_buffer / gib:.1f} GiB",
        f"   local memory   {device.local_memory // 1024} KiB",
        f"   fp64           {'yes' if device.has_fp64 else 'no: computes in mixed precision'}",
        f"   self-test      {verdict}",
    ]


def check_lines(summary: AlignmentSummary) -> list[str]:
    """An alignment's facts, then what looks wrong in it, one line each."""
    frequencies = zip(summary.states, summary.frequencies, strict=True)
    return [
        f"File         {summary.path} ({summary.layout})",
        f"Data type    {summary.datatype}",
        f"Taxa         {summary.taxa:,}",
        f"Sites        {summary.sites:,}",
        f"Patterns     {summary.patterns:,}",
        f"Invariant    {summary.invariant_sites:,} sites",
        f"Informative  {summary.informative_sites:,} sites",
        f"Gaps         {summary.gap_share:.2%}, other ambiguities {summary.ambiguous_share:.2%}",
        "Frequencies  " + "  ".join(f"{state} {share:.4f}" for state, share in frequencies),
        *(f"warning: {problem}" for problem in _problems(summary)),
    ]


def memory_line(need: MemoryNeed) -> str:
    """What a search will take, beside what there is."""
    mib = 2**20
    return (
        f"Memory       {need.tree_bytes / mib:,.1f} MiB a tree ({need.slots} CLAs) and "
        f"{need.tip_bytes / mib:,.1f} MiB of tips; {need.device.name} has "
        f"{need.device.memory / mib:,.0f} MiB ({need.layout})"
    )


def _problems(summary: AlignmentSummary) -> list[str]:
    found = [f"identical sequences: {listed(g)}" for g in summary.identical_sequences]
    found += [f"names differ in case only: {listed(g)}" for g in summary.alike_names]
    if summary.gap_taxa:
        found.append(f"nothing but gaps in the taxa {listed(summary.gap_taxa)}")
    if summary.gap_sites:
        found.append(f"nothing but gaps at the sites {listed(map(str, summary.gap_sites))}")
    if summary.absent_states:
        found.append(f"states that never occur: {' '.join(summary.absent_states)}")
    for s in summary.suspicions:
        where = f"first in {s.taxon} at site {s.site}"
        found.append(f"{s.count:,} times {s.character!r} ({where}): {s.reason}")
    return found


MAX_LISTED = 10
"""Names or sites that one line lists."""


def listed(items: Sequence[str] | map[str]) -> str:
    """The first few items, separated by commas, and how many more there are."""
    items = list(items)
    more = f" and {len(items) - MAX_LISTED} more" if len(items) > MAX_LISTED else ""
    return ", ".join(items[:MAX_LISTED]) + more


def _table(title: str, *columns: str) -> Table:
    """A table whose first column is text and whose others are numbers."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", no_wrap=number > 0)
    return table
