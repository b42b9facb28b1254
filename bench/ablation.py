"""``python -m bench.ablation ALIGNMENT[=MODEL] ...``: search constants, varied one by one.

Every variant searches from the same parsimony starts (improved by SPR; ``--raw``: as added), one
at a time, in this process and on one device, so that only the constants differ. Printed for each
variant: insertions scored, SPR rounds, seconds, CPU seconds, the lnL lost against the best variant
from the same start (summed), and how many searches ended more than 0.1 short.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from mltree.fit.settings import PhaseSettings, SearchSettings, preset
from mltree.runs.engines import Engines, Resources, Workload
from mltree.runs.problem import load_problem
from mltree.tree.parsimony import parsimony_trees, stepwise_additions
from mltree.treesearch.search import StartingTree, search

__all__ = ["VARIANTS", "Tally", "main"]

SHORT = 0.1
"""lnL below the best variant from which a search counts as short: the bars' tolerance."""

FAST = preset("fast")


def _rounds(**changes: Any) -> SearchSettings:
    return replace(FAST, rounds=replace(FAST.rounds, **changes))


def _phases(*phases: PhaseSettings) -> SearchSettings:
    return replace(FAST, phases=phases)


FITTED = "fast, fitted to the data"
"""The variant that :meth:`SearchSettings.for_data` adapts, as a run does; no other is."""

VARIANTS: dict[str, SearchSettings] = {
    FITTED: FAST,
    "fast": FAST,
    "keep 8, window 20": _rounds(keep=8, window=20.0),
    "keep 40, window 80": _rounds(keep=40, window=80.0),
    "window 10": _rounds(window=10.0),
    "min_gain 0.01": _rounds(min_gain=0.01),
    "min_gain 0.2": _rounds(min_gain=0.2),
    "no trials": _phases(PhaseSettings(25, 50.0), PhaseSettings(25, 100.0)),
    "16 trials": _phases(PhaseSettings(25, 50.0), PhaseSettings(25, 100.0, fully_smoothed=16)),
    "cut 30, then 100": _phases(
        PhaseSettings(25, 30.0), PhaseSettings(25, 100.0, fully_smoothed=8)
    ),
    "cut 50, then 400": _phases(
        PhaseSettings(25, 50.0), PhaseSettings(25, 400.0, fully_smoothed=8)
    ),
    "cut 100": _phases(PhaseSettings(25, 100.0, fully_smoothed=8)),
    "radius 10": _phases(PhaseSettings(10, 50.0), PhaseSettings(10, 100.0, fully_smoothed=8)),
    "the prototype's phases": _phases(
        PhaseSettings(25, 100.0),
        PhaseSettings(10, np.inf),
        PhaseSettings(10, 100.0, fully_smoothed=8),
    ),
}
"""The preset ``fast`` and what differs from it."""


@dataclass
class Tally:
    """Sums over the searches of one variant."""

    candidates: int = 0
    rounds: int = 0
    seconds: float = 0.0
    cpu: float = 0.0
    """Seconds of this process, the OpenCL device's if that is the processor."""
    lost: float = 0.0
    """lnL, natural log units."""
    short: int = 0


def measure(
    alignment: str,
    model: str | None,
    seeds: Sequence[int],
    device: str | None,
    names: Sequence[str],
    raw: bool,
) -> tuple[list[float], dict[str, Tally]]:
    """Some variants on one alignment, from one parsimony start a seed; the best lnL of each."""
    problem = load_problem(alignment, model, lambda _: None)
    bounds = FAST.branches.bounds(problem.patterns.n_sites)
    categories = max(problem.model.categories)
    engines = Engines(
        Resources(device=device), Workload.of_patterns(problem.patterns, categories, bounds)
    )
    likelihood = engines.likelihood
    patterns = problem.patterns
    tallies, bests = {name: Tally() for name in names}, []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        (tree,) = stepwise_additions(patterns, [rng]) if raw else parsimony_trees(patterns, 1, rng)
        start = StartingTree(tree, "parsimony")
        lnls = {}
        for name in names:
            settings = VARIANTS[name]
            if name == FITTED:
                settings = settings.for_data(patterns.n_tips, patterns.n_sites)
            began, cpu = time.perf_counter(), time.process_time()
            rng = np.random.default_rng(seed)
            found = search(likelihood, [start], problem.model, settings, rng)
            lnls[name] = found.lnl
            tallies[name].seconds += time.perf_counter() - began
            tallies[name].cpu += time.process_time() - cpu
            tallies[name].candidates += found.insertions
            tallies[name].rounds += found.rounds
        best = max(lnls.values())
        bests.append(best)
        for name, lnl in lnls.items():
            tallies[name].lost += best - lnl
            tallies[name].short += best - lnl > SHORT
    return bests, tallies


def _show(title: str, tallies: dict[str, Tally]) -> None:
    print(f"\n{title}\n| variant | candidates | rounds | seconds | CPU s | lnL lost | short |")
    print("|---|---|---|---|---|---|---|")
    for name, t in tallies.items():
        seconds = f"{t.seconds:.2f}", f"{t.cpu:.2f}"
        cells = (name, t.candidates, t.rounds, *seconds, f"{t.lost:.2f}", t.short)
        print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the ablation and print a table for each alignment and one for all."""
    parser = argparse.ArgumentParser(prog="python -m bench.ablation", description=__doc__)
    parser.add_argument("alignments", nargs="+", metavar="ALIGNMENT[=MODEL]")
    parser.add_argument("--seeds", type=int, default=5, help="parsimony starts of each alignment")
    parser.add_argument("--device", help="as for mltree search")
    parser.add_argument("--raw", action="store_true", help="starts without parsimony SPR")
    parser.add_argument(
        "--only", nargs="+", choices=VARIANTS, default=list(VARIANTS), help="these variants alone"
    )
    options = parser.parse_args(arguments)
    total = {name: Tally() for name in options.only}
    for text in options.alignments:
        alignment, _, model = text.partition("=")
        seeds = range(1, options.seeds + 1)
        bests, tallies = measure(
            alignment, model or None, seeds, options.device, options.only, options.raw
        )
        best = ", ".join(f"{lnl:.2f}" for lnl in bests)
        _show(f"{Path(alignment).name}, best lnL by start: {best}", tallies)
        for name, tally in tallies.items():
            for field, value in vars(tally).items():
                setattr(total[name], field, getattr(total[name], field) + value)
    _show("all", total)


if __name__ == "__main__":
    main()
