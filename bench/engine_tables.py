"""Tables of the benchmarks that time or check the engine itself."""

from __future__ import annotations

from bench.markdown import engineering, markdown_table, seconds
from bench.results import Row, Run

__all__ = ["cases", "golden", "kernels", "precision", "reach", "scale", "unifrac"]


def kernels(run: Run) -> str:
    """Every operation: time, rate, and shares of what the device can do."""
    head = ["data", "operation", "contender", "median", "work/s", "GB/s", "of copy", "GFLOP/s"]
    body = [_kernel_line(run, row) for row in run.rows if row["status"] == "done"]
    limits = [
        f"{name}: copies {engineering(limit['copy_bytes'])}B/s, computes "
        f"{engineering(limit['flops_double'] or 0)}FLOP/s in fp64, "
        f"{engineering(limit['flops_single'])}FLOP/s in fp32"
        for name, limit in run.settings.get("limits", {}).items()
    ]
    told = "Wall time of one call, launch and read-back included. Measured limits: "
    return told + "; ".join(limits) + ".\n\n" + markdown_table(head, body)


def _kernel_line(run: Run, row: Row) -> list[str]:
    time = row["seconds"]["median"]
    copy = run.settings.get("limits", {}).get(row["device"], {}).get("copy_bytes")
    rate = row["bytes"] / time
    return [
        f"{row['kind']} {row['taxa']} × {row['patterns']:,}",
        row["operation"],
        _contender(row),
        engineering_time(time),
        f"{engineering(row['units'] / time)} {row['unit']}",
        f"{rate / 1e9:.1f}" if row["bytes"] else "",
        f"{rate / copy:.0%}" if row["bytes"] and copy else "",
        f"{row['flops'] / time / 1e9:.1f}" if row["flops"] else "",
    ]


def _contender(row: Row) -> str:
    threads = row.get("threads")
    return (
        str(row["contender"])
        + (f", {threads} thread{'s' if threads > 1 else ''}" if threads else "")
        + (", fp64" if row["precision"] == "double" else ", mixed")
    )


def engineering_time(value: float) -> str:
    """Seconds as µs, ms or s."""
    for factor, unit in ((1.0, "s"), (1e-3, "ms")):
        if value >= factor:
            return f"{seconds(value / factor)} {unit}"
    return f"{seconds(value / 1e-6)} µs"


def cases(run: Run) -> str:
    """Every kind of small problems: together, and what that is compared to."""
    head = ["problems", "contender", "way", "median", "against together"]
    together: dict[tuple[object, ...], float] = {}
    body = []
    for row in run.rows:
        key, time = (row["kind"], row["contender"]), row["seconds"]["median"]
        base = together.setdefault(key, time)
        body.append(
            [
                f"{row['kind']}: {row['count']:,} × {row['taxa']} taxa × {row['patterns']:,}",
                _contender(row),
                row["operation"],
                engineering_time(time),
                "" if time is base else f"{time / base:.2f} ×",
            ]
        )
    return "Wall time of one call, launch and read-back included.\n\n" + markdown_table(head, body)


def scale(run: Run) -> str:
    """Cost along every axis."""
    head = ["contender", "axis", "taxa × patterns × trees", "traversal", "4 smoothing passes",
            "CLAs planned", "all buffers"]  # fmt: skip
    body = []
    for row in run.rows:
        line = [row["contender"], row["axis"], " × ".join(f"{n:,}" for n in row["point"])]
        if row["status"] != "done":
            body.append([*line, row["output"], "", "", ""])
            continue
        body.append([
            *line,
            engineering_time(row["traversal_s"]["median"]),
            engineering_time(row["smoothing_s"]["median"]),
            *(
                f"{engineering(row[held])}B" if row[held] else "in panels"
                for held in ("planned_bytes", "used_bytes")
            ),
        ])  # fmt: skip
    return markdown_table(head, body)


def reach(run: Run) -> str:
    """Cost as loci, taxa, sites and ranks grow."""
    head = ["run", "ranks", "wall", "CPU seconds", "CPU against fewest ranks", "CPU of rank 0",
            "efficiency"]  # fmt: skip
    body, base, lone = [], dict[tuple[str, int], float](), dict[tuple[str, int], float]()
    for row in sorted(
        run.rows, key=lambda row: (row["axis"], row["point"], row.get("starter", ""))
    ):
        size, ranks = row["point"]
        name = f"{size:,} loci"
        if row["axis"] != "loci":
            name = f"{row['taxa']:,} × {row['sites']:,}"
        if row["status"] != "done":
            body.append([name, str(ranks), row["status"], "", "", "", ""])
            continue
        cpu, busiest = row["cpu_s"]["median"], row.get("rank_0_cpu_s", {}).get("median")
        first = base.setdefault((row["axis"], size), cpu)
        shared = ""
        if busiest:
            alone = lone.setdefault((row["axis"], size), ranks * busiest)
            shared = f"{alone / (ranks * busiest):.2f}"
        body.append([
            name,
            f"{ranks}, {row['starter']}" if "starter" in row else str(ranks),
            engineering_time(row["wall_s"]["median"]),
            f"{cpu:.1f}",
            f"{cpu / first:.2f} ×",
            f"{busiest:.1f}" if busiest else "",
            shared,
        ])  # fmt: skip
    told = (
        "Whole runs, start included, one thread a rank: of loci, or of one alignment, taxa × sites."
        " Efficiency: CPU seconds of rank 0, the busiest, times ranks: those of the fewest over"
        " these."
    )
    agree = sum(check["holds"] for check in run.checks)
    return f"{told} Same bits as one rank: {agree} of {len(run.checks)}.\n\n" + markdown_table(
        head, body
    )


def precision(run: Run) -> str:
    """Mixed precision against fp64."""
    head = ["alignment", "taxa × patterns", "lnL fp64", "mixed − fp64", "worst site",
            "plain fp32 sum", "compensated fp32 sum", "RF of the trees", "judged, mixed − fp64",
            "search fp64 / mixed, s"]  # fmt: skip
    body = []
    for row in run.rows:
        line = [
            row["dataset"],
            f"{row['taxa']:,} × {row['patterns']:,}",
            f"{row['double_lnl']:.4f}",
            f"{row['mixed_lnl'] - row['double_lnl']:+.5f}",
            f"{row['worst_site']:.1e}",
            f"{row['single_sum_error']:+.3f}",
            f"{row['compensated_sum_error']:+.5f}",
        ]
        if "robinson_foulds" in row:
            times = [seconds(row["search_s"][name]["median"]) for name in ("double", "mixed")]
            judged = row["judged_mixed"] - row["judged_double"]
            line += [str(row["robinson_foulds"]), f"{judged:+.4f}", " / ".join(times)]
        body.append(line + [""] * (len(head) - len(line)))
    return markdown_table(head, body)


def golden(run: Run) -> str:
    """The worst difference of every contender."""
    head = ["contender", "log-likelihoods", "worst difference", "tolerance"]
    body = [
        [check["contender"], str(check["rows"]), f"{check['worst']:.1e}", f"{check['tolerance']}"]
        for check in run.checks
    ]
    told = "Fixed trees and parameters, against RAxML-NG 1.2.2 (which IQ-TREE 2.0.7 agrees with)."
    return f"{told}\n\n{markdown_table(head, body)}"


def unifrac(run: Run) -> str:
    """Whole processes beside ``ssu``, and the kernels' seconds."""
    head = ["table", "metric", "program", "wall", "CPU seconds", "peak memory", "read, placed"]
    head += ["common branches", "terms a second", "share of integer operations"]
    body = []
    for row in run.rows:
        name = [row["dataset"], f"{row['kind']}, {row['precision']}", row["contender"]]
        host = engineering_time(row["read_s"] + row["place_s"]) if "read_s" in row else ""
        if row["status"] != "done":
            cells = [row["status"]]
        elif "kernels_s" in row:
            spent = engineering_time(sum(row["kernels_s"].values()))
            share = row["share_of_integers"]
            common = f"{row['common']:,} of {row['branches']:,}"
            shown = "" if share is None else f"{share:.0%}"
            cells = [spent, "", "", host, common, f"{row['terms_per_s'] / 1e9:.1f} G", shown]
        elif row["contender"] == "kernels":
            cells = ["", "", "", host]
        else:
            wall, cpu = engineering_time(row["wall_s"]["median"]), row["cpu_s"]["median"]
            peak = f"{row['peak_bytes'] / 1e9:.2f} GB" if "peak_bytes" in row else ""
            cells = [wall, f"{cpu:.1f}", peak]
        body.append([*name, *cells, *[""] * (7 - len(cells))])
    return markdown_table(head, body)
