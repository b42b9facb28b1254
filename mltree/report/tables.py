"""Tables and lists of lines: time by function, engines, devices, alignments, a whole run."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from mltree.data.alignments import renaming
from mltree.device.discovery import DeviceInfo
from mltree.device.layout_choice import CATEGORIES, SIZES, Calibration, DataKind
from mltree.device.timing import Breakdown, Cost
from mltree.program.contract import Function
from mltree.report.record import Facts, Subject
from mltree.system import __version__
from mltree.system.arrays import Float64
from mltree.system.events import (
    AlignmentSummary,
    EngineScore,
    FunctionTime,
    PartitionsLoaded,
    TestedTree,
    TimeSpent,
)
from mltree.tree.clades import ascii_drawing

if TYPE_CHECKING:
    from rich.table import Table

    from mltree.models.eigen import ModelArrays
    from mltree.models.substitution import Model


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


UNCORRECTED = "no site is constant"
CORRECTION_HINT = (
    "if constant sites were left out, as in SNPs and morphology, give the model +ASC; "
    "--model auto+ASC chooses one"
)


def warning_lines(summary: AlignmentSummary) -> list[str]:
    """Warnings about an alignment, a line for each kind."""
    lines = [*renaming(summary.renamed), *summary.notices]
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
    if summary.lacks_constant:
        lines.append(f"{UNCORRECTED}: {CORRECTION_HINT}")
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
        test = f"χ² test, p < {MAX_P_VALUE:.0%}"
        yield f"{_of(deviant, summary)} differ from the average composition ({test}): {named}"


def _of(some: Sequence[object], summary: AlignmentSummary) -> str:
    return f"{len(some):,} of {summary.taxa:,} sequences"


def _groups(groups: Iterable[Iterable[str]]) -> str:
    return listed(map(listed, groups), MAX_GROUPS, "; ")


def listed(items: Iterable[str], most: int = MAX_LISTED, separator: str = ", ") -> str:
    """The first items, and the number of others."""
    items = list(items)
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return separator.join(items[:most]) + more


# A whole run as plain text, to be read, searched and kept.

TEXT_WIDTH = 80
"""Characters of a line of the text, but for tables and trees."""

NAMES_OF_SUPPORTS = {"FBP": "Bootstrap (FBP)", "TBE": "Transfer bootstrap (TBE)"}

MOST_RANKED, MOST_PARTS = 10, 20
"""Candidates of a model choice, and parts with rates and frequencies, in the text."""

DRAWN_AS_TEXT = 100
"""Tips of the largest tree that is drawn with characters."""


def text_report(subject: Subject) -> str:
    """All of a run in one text: data, model choice, model, tree, supports, time, methods."""
    facts = subject.facts
    started = facts.started or {}
    rows = [("Command", started.get("command")), ("Seed", started.get("seed"))]
    if facts.described is not None:
        rows += [("Date", facts.described["date"]), ("Host", facts.described["host"])]
    if facts.device:
        rows.append(("Engine", facts.device))
    sections = (
        ("Alignment", _data_lines(subject)),
        ("Model choice", [line for one in facts.ranked for line in _ranked_lines(one)]),
        ("Model", _model_lines(subject)),
        ("Tree", _tree_lines(subject)),
        ("Supports", _facts_lines(support_rows(facts))),
        ("Time", _time_lines(facts)),
        ("Notes", [line for text in facts.notices for line in _folded(text, "  ")]),
        ("Methods and citations", subject.methods.splitlines()),
    )
    title = f"mltree {started.get('version', __version__)}: {subject.name}"
    lines = [title, "=" * len(title), "", *_facts_lines(rows)]
    for heading, content in sections:
        if content:
            lines += ["", heading, "-" * len(heading), "", *content]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _facts_lines(rows: Iterable[tuple[str, Any]]) -> list[str]:
    """Names and values, a line each; values of None are left out."""
    return [f"{name + ':':<20} {value}" for name, value in rows if value is not None]


def _folded(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(text, TEXT_WIDTH, subsequent_indent=indent, break_on_hyphens=False)


def _data_lines(subject: Subject) -> list[str]:
    if subject.summary is not None:
        warnings = [_folded(f"warning: {line}", "  ") for line in warning_lines(subject.summary)]
        facts = _facts_lines(alignment_facts(subject.summary))
        return facts + [line for lines in warnings for line in lines]
    if (data := subject.facts.data) is None:
        return []
    size = f"{data['taxa']:,} taxa, {data['sites']:,} sites, {data['patterns']:,} patterns"
    return _facts_lines([("File", data["path"]), ("Data type", data["data_type"]), ("Size", size)])


def ranked_cells(ranked: Mapping[str, Any]) -> tuple[Sequence[str], list[Sequence[str]]]:
    """Headings and rows of a model choice: the best candidates, with their score and weight."""
    criterion = ranked["criterion"]
    name = "AICc" if criterion.lower() == "aicc" else criterion.upper()
    rows: list[Sequence[str]] = [
        (one["model"], f"{one['lnl']:.4f}", f"{one['parameters']:,}", f"{one['score']:.4f}",
         f"{one['weight']:.4f}")
        for one in ranked["models"][:MOST_RANKED]
    ]  # fmt: skip
    return ("model", "lnL", "parameters", name, "weight"), rows


def _ranked_lines(ranked: Mapping[str, Any]) -> list[str]:
    """The best candidates for a part, a line each."""
    heads, rows = ranked_cells(ranked)
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    part = "" if ranked["part"] == "noname" else f" for {ranked['part']}"
    best = f"Best of {ranked['candidates']:,} by {heads[3]}{part}: {rows[0][0]}"
    lines = [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])])
        for row in (heads, *rows)
    ]
    return [best, "", *lines]


def _model_lines(subject: Subject) -> list[str]:
    lines: list[str] = []
    for number, part in enumerate(subject.models):
        if number:
            lines.append("")
        if len(subject.models) > 1:
            lines.append(f"Part {part.name}: {part.sites}")
        lines.append(f"Model: {part.text}")
        if number < MOST_PARTS:
            for component in part.model.components:
                lines += _component_lines(component, subject.frequencies(component))
            lines += _category_lines(subject.arrays(part))
    return lines


MOST_WRITTEN = 6
"""States up to which exchangeabilities are written: those of proteins are their matrix's."""


def _component_lines(model: Model, frequencies: Float64 | None) -> list[str]:
    states, lines = model.alphabet.states, []
    if len(states) <= MOST_WRITTEN:
        pairs = zip(combinations(states, 2), model.rates.tolist(), strict=True)
        lines += ["", "Exchangeabilities:"]
        lines.append("  ".join(f"{a}-{b} {rate:.4f}" for (a, b), rate in pairs))
    if frequencies is not None:
        shares = zip(states, frequencies.tolist(), strict=True)
        text = "  ".join(f"{state} {share:.4f}" for state, share in shares)
        lines += ["", "State frequencies:", *_folded(text)]
    return lines


def _category_lines(arrays: ModelArrays) -> list[str]:
    """Rate categories by rising rate; none for a model without."""
    kept = arrays.weights > 0.0  # a category without sites fills up a table
    pairs = sorted(zip(arrays.rates[kept].tolist(), arrays.weights[kept].tolist(), strict=True))
    if len(pairs) < 2:
        return []
    rows = [f"{n:>8}  {rate:>10.4f}  {weight:>9.4f}" for n, (rate, weight) in enumerate(pairs, 1)]
    return ["", f"{'category':>8}  {'rate':>10}  {'of sites':>9}", *rows]


def _tree_lines(subject: Subject) -> list[str]:
    facts, tree = subject.facts, subject.tree
    inner = [n for n in range(1, tree.n_nodes) if tree.children[n]]
    total = float(np.nansum(tree.lengths[1:]))
    within = float(np.nansum(tree.lengths[inner]))
    rows: list[tuple[str, Any]] = [("File", subject.tree_file), ("Taxa", f"{len(tree.tips):,}")]
    if (finished := facts.finished) is not None:
        rows.insert(0, ("Log-likelihood", f"{finished['lnl']:.4f}"))
    if tree.is_measured:
        share = f"{within / total:.1%}" if total else "none"
        rows.append(("Length", f"{total:.6f} expected substitutions per site"))
        rows.append(("Inner branches", f"{within:.6f} ({share} of the length)"))
    if facts.ends is not None:
        ends = "{starts} starting trees, {ended} searched to the end, {reached} at the best tree"
        rows.append(("Search", ends.format(**facts.ends)))
    lines = _facts_lines(rows)
    if len(tree.tips) <= DRAWN_AS_TEXT:
        if names := subject.support_names:
            lines += ["", f"Labels: {' / '.join(names)}"]
        lines += ["", *ascii_drawing(subject.newick).splitlines()]
    return [*lines, "", subject.newick]


def support_rows(facts: Facts) -> list[tuple[str, str]]:
    """Supports of the tree's branches: their means, and what autoMRE says of the replicates."""
    rows = []
    for one in facts.supports:
        mean = "no inner branch" if one["mean"] is None else f"mean {one['mean']:.1%}"
        name = str(NAMES_OF_SUPPORTS.get(one["metric"], one["metric"]))
        noun = "branch" if one["branches"] == 1 else "branches"
        rows.append((name, f"{mean}, {one['branches']:,} {noun}"))
    if (bootstrap := facts.bootstrap) is not None:
        text = f"{bootstrap['replicates']:,}"
        if bootstrap["converged"] is not None:
            verdict = "converged" if bootstrap["converged"] else "not converged"
            text += f", {verdict} by autoMRE (Pattengale et al. 2010)"
        rows.append(("Replicates", text))
    return rows


def _time_lines(facts: Facts) -> list[str]:
    if (spent := facts.spent) is None:
        return []
    mib = f"{spent['peak_memory'] / 2**20:,.0f} MiB"
    names = ("Wall clock", "wall"), ("CPU", "cpu"), ("Device", "device")
    clocks = [(name, f"{spent[key]:.1f} s") for name, key in names]
    return _facts_lines([*clocks, ("Peak memory", mib)])


def _table(title: str, *columns: str) -> Table:
    """A table whose first column is text and whose others are numbers."""
    from rich.table import Table  # the library does without

    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", no_wrap=number > 0)
    return table
