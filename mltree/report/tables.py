"""Tables and lists of lines: time by function, engines, devices, alignments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from mltree.device.discovery import DeviceInfo
from mltree.device.layout_choice import CATEGORIES, SIZES, Calibration, DataKind
from mltree.device.timing import Breakdown, Cost
from mltree.program.contract import Function
from mltree.system.events import (
    AlignmentSummary,
    EngineScore,
    FunctionTime,
    PartitionsLoaded,
    TestedTree,
    TimeSpent,
)

if TYPE_CHECKING:
    from rich.table import Table


UNEXPLAINED = 0.01
"""Share of the wall time above which unexplained time gets a row."""

FUNCTION_NAMES = {
    Function.NEWVIEW: "newview",
    Function.EVALUATE: "evaluate",
    Function.DERIVE: "sumGAMMA + derivative",
    Function.SCAN: "insertion scan",
    Function.TRIPLET: "insertion re-scoring",
    Function.RELL: "RELL products",
    Function.SWEEP: "sweeps of chains",
    Function.PMATRICES: "P matrices",
    Function.OPTIMISE: "Newton steps",
    Function.BARRIER: "barriers",
}
"""Rows of the timing table, in order; the first three as the field calls them."""


@runtime_checkable
class Timed(Protocol):
    """An engine that may measure its time."""

    def breakdown(self) -> Breakdown | None:
        """Seconds and work of each likelihood function, and the host's waits."""


def time_spent(spent: Breakdown, wall: float, busy: float, copy_bytes: float | None) -> TimeSpent:
    """Wall seconds of a run by function, and the speed of the likelihood functions.

    busy        CPU seconds of the host's thread
    copy_bytes  bytes a second that the devices copy, the measure of a function's speed (above 100 %
                where caches hold its CLAs); None if unknown
    """
    rows = [
        _row(label, spent.functions[function], copy_bytes)
        for function, label in FUNCTION_NAMES.items()
        if spent.functions[function].seconds > 0.0
    ]
    host = {
        "starts and transfers": max(0.0, spent.waits - spent.device_seconds),
        "kernel builds": spent.builds,
        "host": max(0.0, busy - spent.idle_cpu),
    }
    rest = wall - spent.device_seconds - sum(host.values())
    if abs(rest) > UNEXPLAINED * wall:
        host["unexplained" if rest > 0 else "host and device at once"] = rest
    rows += [FunctionTime(label, seconds) for label, seconds in host.items() if seconds != 0.0]
    return TimeSpent(wall, tuple(rows))


def _row(label: str, cost: Cost, copy_bytes: float | None) -> FunctionTime:
    rate = cost.bytes / cost.seconds if cost.bytes else None
    share = rate / copy_bytes if rate and copy_bytes else None
    return FunctionTime(label, cost.seconds, cost.operations, cost.pattern_nodes, rate, share)


def time_cells(row: Mapping[str, Any], wall: float) -> tuple[str, ...]:
    """A row of a run's timing table: name, seconds, share of the wall time, calls, GB/s, of copy.

    ``row``: fields of a :class:`.FunctionTime`.
    """
    rate, share = row["bytes_per_second"], row["share_of_copy"]
    return (
        row["name"],
        f"{row['seconds']:.3f}",
        f"{row['seconds'] / wall:.1%}",
        f"{row['calls']:,}" if row["calls"] else "",
        "" if rate is None else f"{rate / 1e9:.2f}",
        "" if share is None else f"{share:.0%}",
    )


def timing_table(time: TimeSpent) -> Table:
    """Seconds and speed of each function; nodes are calls times patterns."""
    table = _table("Time", "", "seconds", "share", "calls", "M nodes", "GB/s", "of copy")
    for row in time.rows:
        name, seconds, share, calls, *speed = time_cells(vars(row), time.wall)
        nodes = f"{row.pattern_nodes / 1e6:,.1f}" if row.pattern_nodes else ""
        table.add_row(name, seconds, share, calls, nodes, *speed)
    table.add_row("all", f"{time.wall:.3f}", style="bold")
    return table


def compare_table(scores: Sequence[EngineScore]) -> Table:
    """Score of the first engine, and of the others with their difference from it."""
    table = _table("", "engine", "lnL", "difference", "ms")
    for score in scores:
        if score.problem:
            table.add_row(score.engine, "failed", "", "")
            continue
        difference = f"{score.lnl - scores[0].lnl:+.1e}" if score is not scores[0] else ""
        table.add_row(score.engine, f"{score.lnl:.6f}", difference, f"{score.seconds * 1e3:.3f}")
    return table


def parts_table(loaded: PartitionsLoaded) -> Table:
    """The parts of an alignment, one a row."""
    noun = "part" if len(loaded.parts) == 1 else "parts"
    title = f"{len(loaded.parts):,} {noun} of {loaded.sites:,} sites, {loaded.taxa:,} taxa"
    table = _table(title, "name", "type", "sites", "patterns", "gaps", "taxa", "model")
    table.columns[1].justify = table.columns[-1].justify = "left"
    table.columns[-1].no_wrap, table.columns[-1].overflow = False, "fold"
    for part in loaded.parts:
        counts = f"{part.sites:,}", f"{part.patterns:,}", f"{part.gap_share:.2%}", f"{part.taxa:,}"
        table.add_row(part.name, part.data_type, *counts, part.model)
    return table


def tree_test_lines(trees: Sequence[TestedTree]) -> list[str]:
    """Trees as IQ-TREE lists them: + in the 95 % confidence set of a test, - rejected.

    The last line has the largest Monte-Carlo error of each test.
    """
    names = [test.name for test in trees[0].tests]
    lines = [f"{'Tree':>4} {'logL':>14} {'deltaL':>9} " + "".join(f"{n:>9}  " for n in names)]
    lines.append("-" * len(lines[0].rstrip()))
    for tree in trees:
        values = [f"{test.value:9.4f} {'+' if test.kept else '-'}" for test in tree.tests]
        row = f"{tree.lnl:14.4f} {tree.delta:9.4f} " + "".join(values)
        same = f" = tree {tree.same_as}"
        lines.append(f"{tree.number:4} {row if tree.same_as is None else same}")
    errors = zip(*([test.error for test in tree.tests] for tree in trees), strict=True)
    lines.append(
        f"{'±':>4} {'':>25}" + "".join(f"{max(errors_of_test):9.4f}  " for errors_of_test in errors)
    )
    return [line.rstrip() for line in lines]


def device_lines(device: DeviceInfo, verdict: str, known: Calibration) -> list[str]:
    """One device, as ``mltree devices`` shows it."""
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
        *([f"   copies at      {known.copy_bytes / 1e9:.1f} GB/s"] if known.copy_bytes else []),
        *_layout_lines(device, known),
    ]


MEASURED = (("DNA", 4), ("proteins", 20))
"""Data that layouts are measured for, and their numbers of states."""


def _layout_lines(device: DeviceInfo, known: Calibration) -> list[str]:
    """Measured layouts, for alignments from small to large."""
    lines = []
    for label, states in MEASURED:
        kinds = [
            DataKind(states, CATEGORIES, not device.has_fp64, n) for n in range(len(SIZES) + 1)
        ]
        choices = [known.choice(kind) for kind in kinds]
        texts = [
            f"VW={choice.vw}" + ("" if device.is_cpu else f" x {choice.rows} rows")
            for choice in choices
            if choice is not None
        ]
        if len(set(texts)) == 1:
            lines.append(f"   {label:<14} {texts[0]}")
        elif len(texts) == len(kinds):
            limits = [f" up to {limit:,} patterns" for limit in SIZES] + [" beyond"]
            parts = [text + limit for text, limit in zip(texts, limits, strict=True)]
            lines.append(f"   {label:<14} {', '.join(parts)}")
    return lines


def alignment_facts(summary: AlignmentSummary) -> list[tuple[str, str]]:
    """Names and values of an alignment's facts."""
    frequencies = zip(summary.states, summary.frequencies, strict=True)
    return [
        ("File", f"{summary.path} ({summary.file_format})"),
        ("Data type", f"{summary.datatype} ({summary.seen})"),
        ("Taxa", f"{summary.taxa:,}"),
        ("Sites", f"{summary.sites:,}"),
        ("Patterns", f"{summary.patterns:,}"),
        ("Invariant", f"{summary.invariant_sites:,} sites"),
        ("Informative", f"{summary.informative_sites:,} sites"),
        ("Gaps", f"{summary.gap_share:.2%}, other ambiguities {summary.ambiguous_share:.2%}"),
        ("Frequencies", "  ".join(f"{state} {share:.4f}" for state, share in frequencies)),
    ]


def check_lines(summary: AlignmentSummary) -> list[str]:
    """Facts of an alignment, then warnings, a line each."""
    facts = [f"{name:<12} {value}" for name, value in alignment_facts(summary)]
    return facts + [f"warning: {line}" for line in warning_lines(summary)]


MAX_P_VALUE = 0.05
"""p-value below which a χ² test of composition fails, as in IQ-TREE."""

MANY_GAPS = 0.5
"""Share of gaps above which a sequence is named, as in IQ-TREE."""

MAX_LISTED, MAX_GROUPS = 10, 5
"""Names or sites, and groups of names, in one line, at most."""


def warning_lines(summary: AlignmentSummary) -> list[str]:
    """Warnings about an alignment, a line for each kind."""
    lines = []
    if summary.doubtful:
        other = "protein" if summary.datatype == "DNA" else "DNA"
        lines.append(
            f"read as {summary.datatype}, but its letters could be {other}: --data-type decides"
        )
    if summary.identical_sequences:
        lines.append(f"identical sequences: {_groups(summary.identical_sequences)}")
    if summary.alike_names:
        lines.append(f"names differ in case only: {_groups(summary.alike_names)}")
    if summary.gap_taxa:
        lines.append(f"nothing but gaps in the taxa {listed(summary.gap_taxa)}")
    if summary.gap_sites:
        lines.append(f"nothing but gaps at the sites {listed(map(str, summary.gap_sites))}")
    if summary.absent_states:
        lines.append(f"states that never occur: {' '.join(summary.absent_states)}")
    if summary.has_parts:
        lines.append("the file's own charsets are not used: give it as --partitions too")
    lines += _unusual_sequences(summary)
    for s in summary.suspicions:
        where = f"first in {s.taxon} at site {s.site}"
        lines.append(f"{s.count:,} times {s.character!r} ({where}): {s.reason}")
    return lines


def _unusual_sequences(summary: AlignmentSummary) -> Iterator[str]:
    """Warnings about sequences with few characters, and about those of deviant composition."""
    shares = zip(summary.taxon_gap_shares, summary.names, strict=True)
    gappy = sorted(((share, name) for share, name in shares if MANY_GAPS < share < 1), reverse=True)
    if gappy:
        named = listed([f"{name} ({share:.0%})" for share, name in gappy])
        yield f"more than {MANY_GAPS:.0%} gaps in {_of(gappy, summary)}: {named}"
    p_values = zip(summary.composition_p_values, summary.names, strict=True)
    deviant = sorted((p, name) for p, name in p_values if p < MAX_P_VALUE)
    if deviant:
        named = listed([f"{name} (p = {p:.2g})" for p, name in deviant])
        test = f"composition (χ² test, p < {MAX_P_VALUE:.0%})"
        yield f"{test} unlike the whole in {_of(deviant, summary)}: {named}"


def _of(some: Sequence[object], summary: AlignmentSummary) -> str:
    return f"{len(some):,} of {summary.taxa:,} sequences"


def _groups(groups: Iterable[Iterable[str]]) -> str:
    return listed(map(listed, groups), MAX_GROUPS, "; ")


def listed(items: Iterable[str], most: int = MAX_LISTED, separator: str = ", ") -> str:
    """The first items, and the number of others."""
    items = list(items)
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return separator.join(items[:most]) + more


def _table(title: str, *columns: str) -> Table:
    """A table whose first column is text and whose others are numbers."""
    from rich.table import Table  # the library does without

    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", no_wrap=number > 0)
    return table
