"""``python -m bench.ablation ALIGNMENT[=MODEL] ...``: search constants, varied one by one.

Every variant searches from the same parsimony starts, one at a time, in this process and on one
device, so that only the constants differ. Printed for each variant: insertions scored, SPR rounds,
seconds, the lnL lost against the best variant from the same start (summed), and how many searches
ended more than 0.1 short.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from mltree.placement import Resources, place
from mltree.problem import load_problem
from mltree.search.driver import StartingTree, search
from mltree.settings import PhaseSettings, SearchSettings, preset
from mltree.tree.parsimony import packed, stepwise_addition

__all__ = ["VARIANTS", "Tally", "main"]

SHORT = 0.1
"""lnL below the best variant from which a search counts as short: the bars' tolerance."""

FAST = preset("fast")


def _rounds(**changes: Any) -> SearchSettings:
    return replace(FAST, rounds=replace(FAST.rounds, **changes))


def _phases(*phases: PhaseSettings) -> SearchSettings:
    return replace(FAST, phases=phases)


VARIANTS: dict[str, SearchSettings] = {
    "fast": FAST,
    "keep 5": _rounds(keep=5),
    "keep 15, window 30": _rounds(keep=15, window=30.0),
    "window 10": _rounds(window=10.0),
    "min_gain 0.01": _rounds(min_gain=0.01),
    "min_gain 0.2": _rounds(min_gain=0.2),
    "no trials": _phases(PhaseSettings(25, 50.0), PhaseSettings(25, 100.0)),
    "16 trials": _phases(PhaseSettings(25, 50.0), PhaseSettings(25, 100.0, trials=16)),
    "cut 30, then 100": _phases(PhaseSettings(25, 30.0), PhaseSettings(25, 100.0, trials=8)),
    "cut 100": _phases(PhaseSettings(25, 100.0, trials=8)),
    "radius 10": _phases(PhaseSettings(10, 50.0), PhaseSettings(10, 100.0, trials=8)),
    "the prototype's phases": _phases(
        PhaseSettings(25, 100.0),
        PhaseSettings(10, np.inf),
        PhaseSettings(10, 100.0, trials=8),
    ),
}
"""The preset ``fast`` and what differs from it."""


@dataclass
class Tally:
    """Sums over the searches of one variant."""

    candidates: int = 0
    rounds: int = 0
    seconds: float = 0.0
    lost: float = 0.0
    """lnL, natural log units."""
    short: int = 0


def measure(
    alignment: str, model: str | None, seeds: Sequence[int], device: str | None
) -> dict[str, Tally]:
    """All variants on one alignment, from one parsimony start a seed."""
    problem = load_problem(alignment, model, lambda _: None)
    bounds = FAST.branches.bounds(problem.patterns.n_sites)
    categories = problem.model.arrays().n_categories
    placement = place(Resources(device=device), problem.patterns, categories, bounds)
    likelihood = placement.likelihood(problem.patterns)
    sites = packed(problem.patterns)
    tallies = {name: Tally() for name in VARIANTS}
    for seed in seeds:
        start = StartingTree(stepwise_addition(sites, np.random.default_rng(seed)), "parsimony")
        lnls = {}
        for name, settings in VARIANTS.items():
            began = time.perf_counter()
            rng = np.random.default_rng(seed)
            found = search(likelihood, [start], problem.model, settings, rng)
            lnls[name] = found.lnl
            tallies[name].seconds += time.perf_counter() - began
            tallies[name].candidates += found.candidates
            tallies[name].rounds += found.rounds
        best = max(lnls.values())
        for name, lnl in lnls.items():
            tallies[name].lost += best - lnl
            tallies[name].short += best - lnl > SHORT
    return tallies


def _show(title: str, tallies: dict[str, Tally]) -> None:
    print(f"\n{title}\n| variant | candidates | rounds | seconds | lnL lost | short |")
    print("|---|---|---|---|---|---|")
    for name, t in tallies.items():
        cells = (name, t.candidates, t.rounds, f"{t.seconds:.2f}", f"{t.lost:.2f}", t.short)
        print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the ablation and print a table for each alignment and one for all."""
    parser = argparse.ArgumentParser(prog="python -m bench.ablation", description=__doc__)
    parser.add_argument("alignments", nargs="+", metavar="ALIGNMENT[=MODEL]")
    parser.add_argument("--seeds", type=int, default=5, help="parsimony starts of each alignment")
    parser.add_argument("--device", help="as for mltree search")
    options = parser.parse_args(arguments)
    total = {name: Tally() for name in VARIANTS}
    for text in options.alignments:
        alignment, _, model = text.partition("=")
        tallies = measure(alignment, model or None, range(1, options.seeds + 1), options.device)
        _show(Path(alignment).name, tallies)
        for name, tally in tallies.items():
            for field, value in vars(tally).items():
                setattr(total[name], field, getattr(total[name], field) + value)
    _show("all", total)


if __name__ == "__main__":
    main()
