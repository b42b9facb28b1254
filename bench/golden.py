"""``bench golden``: log-likelihoods that two other programs agree on, from every engine here.

The folder given with ``--data`` holds ``golden.tsv`` (columns: dataset, tree, model, lnL of
RAxML-NG 1.2.2 with six decimals, lnL of IQ-TREE 2.0.7 with three), the alignments as
``DATASET.phy`` and the trees with their branch lengths. Everything is fixed: topology, lengths,
model parameters.
"""

from __future__ import annotations

import csv
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.contenders import Contender
from bench.results import Row, Run
from mltree.fit.settings import SearchSettings
from mltree.program.cases import Case
from mltree.runs.engines import Engines, Workload
from mltree.runs.problem import load_problem
from mltree.tree.newick import read_newick

__all__ = ["TOLERANCE", "measure"]

TOLERANCE = {"double": 1e-4, "mixed": 1.0}
"""lnL (natural log): the golden numbers have six decimals; fp32 is only shown, not judged."""

_EXPECTED = "lnL_raxmlng_1.2.2"


def measure(
    run: Run, folder: Path, contenders: Sequence[Contender], limit: int | None = None
) -> None:
    """Fill the run with a row per golden number and contender; ``limit`` the first of them.

    Raises:
        SystemExit: there is no golden.tsv.
    """
    table = folder / "golden.tsv"
    if not table.exists():
        raise SystemExit(f"bench: no golden.tsv in {folder.name}")
    with table.open(encoding="utf-8", newline="") as file:
        entries = list(csv.DictReader(file, delimiter="\t"))
    for entry in entries[:limit]:
        for row in _rows(folder, entry, contenders):
            run.add(row)
    for contender in dict.fromkeys(row["contender"] for row in run.rows):
        own = [row for row in run.rows if row["contender"] == contender]
        worst = max(row["difference"] for row in own)
        tolerance = TOLERANCE[own[0]["precision"]]
        run.check(what="golden", contender=contender, rows=len(own), worst=worst,
                  tolerance=tolerance, holds=bool(worst < tolerance))  # fmt: skip
        print(f"{contender}: {len(own)} rows, worst difference {worst:.2e}", flush=True)


def _rows(folder: Path, entry: dict[str, str], contenders: Sequence[Contender]) -> Iterator[Row]:
    problem = load_problem(str(folder / f"{entry['dataset']}.phy"), entry["model"], lambda _: None)
    patterns, case = problem.patterns, Case(problem.model.arrays())
    bounds = SearchSettings().branches.bounds(patterns.n_sites)
    tree, _ = read_newick(str(folder / entry["tree"]), patterns.taxa)
    expected = float(entry[_EXPECTED])
    for contender in contenders:
        engines = Engines(
            contender.resources,
            Workload.of_patterns(patterns, max(problem.model.categories), bounds),
        )
        likelihood = engines.likelihood
        start = time.perf_counter()
        lnl = float(likelihood.log_likelihoods([tree], [case])[0])
        yield {
            "dataset": entry["dataset"],
            "model": entry["model"],
            "contender": f"{contender.name} {contender.precision}",
            "precision": contender.precision,
            "engine": likelihood.engine.name,
            "expected": expected,
            "lnl": lnl,
            "difference": abs(lnl - expected),
            "seconds": time.perf_counter() - start,
        }
