"""One mltree search in a process of its own, as ``mltree search --preset fast`` does it.

    python -m bench.once JOB.json RESULT.json

It times what users wait for apart from the search: imports, loading the alignment, opening the
device and building its kernels.
"""

from __future__ import annotations

import time

_STARTED = time.perf_counter()

import json  # noqa: E402
import sys  # noqa: E402
from collections.abc import Sequence  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402

from bench.contenders import Contender, open_contender  # noqa: E402
from mltree.contract import Function  # noqa: E402
from mltree.likelihood.api import Likelihood  # noqa: E402
from mltree.likelihood.engine import Engine  # noqa: E402
from mltree.run import Problem, load_problem  # noqa: E402
from mltree.search.driver import SearchResult, StartingTree, search  # noqa: E402
from mltree.search.duplicates import Collapsed, collapse  # noqa: E402
from mltree.search.neighbourhood import Neighbourhood  # noqa: E402
from mltree.settings import SearchSettings, preset  # noqa: E402
from mltree.tree.newick import read_newick, write_newick  # noqa: E402
from mltree.tree.parsimony_spr import parsimony_trees  # noqa: E402
from mltree.tree.random_trees import random_topology  # noqa: E402
from mltree.tree.topology import Tree  # noqa: E402

__all__ = ["main"]


def main() -> None:
    """Run the job named on the command line."""
    job = json.loads(Path(sys.argv[1]).read_text())
    Path(sys.argv[2]).write_text(json.dumps(run(job)))


def run(job: dict[str, Any]) -> dict[str, Any]:
    """A search and its times, in seconds."""
    clock = _Clock()
    clock.lap("imports_s", _STARTED)
    problem = load_problem(job["alignment"], job["model"], lambda _: None)
    patterns = problem.patterns
    settings = preset(job["preset"]).for_data(patterns.n_tips, patterns.n_sites)
    distinct = collapse(patterns)
    rng = np.random.default_rng(job["seed"])
    if job["start"]:
        starts = [StartingTree(_read(job["start"], distinct, patterns.taxa), "user 1")]
    else:
        starts = _own_starts(settings, distinct, rng)
    clock.lap("load_s")
    bounds = settings.branches.bounds(patterns.n_sites)
    categories = problem.model.arrays().n_categories
    contender = Contender(**job["contender"])
    engine, _ = open_contender(contender, distinct.patterns, categories, bounds)
    likelihood = Likelihood(engine, bounds)
    clock.lap("open_s")
    _build(likelihood, starts[0].tree.copy(), problem)
    before = _functions(engine)
    clock.lap("build_s")
    found = search(likelihood, starts, problem.model, settings, rng)
    clock.lap("search_s")
    after = _functions(engine)
    return {
        **clock.laps,
        **_outcome(found, distinct.restore(found.tree), patterns.taxa),
        "engine": engine.name,
        "functions": {name: after[name] - before[name] for name in after},
    }


def _read(path: str, distinct: Collapsed, taxa: Sequence[str]) -> Tree:
    """A tree of all taxa, less the copies."""
    return distinct.reduce_tree(read_newick(path, taxa)[0])


def _own_starts(
    settings: SearchSettings, distinct: Collapsed, rng: np.random.Generator
) -> list[StartingTree]:
    """The starting trees of a preset: parsimony first, then random ones."""
    parsimony = parsimony_trees(distinct.patterns, settings.parsimony_starts, rng)
    tips = distinct.patterns.n_tips
    random = [random_topology(tips, rng) for _ in range(settings.random_starts)]
    return [
        *(StartingTree(tree, f"parsimony {number}") for number, tree in enumerate(parsimony, 1)),
        *(StartingTree(tree, f"random {number}") for number, tree in enumerate(random, 1)),
    ]


def _outcome(found: SearchResult, tree: Tree, taxa: Sequence[str]) -> dict[str, Any]:
    return {
        "lnl": found.lnl,
        "tree": write_newick(tree, taxa),
        "rounds": found.rounds,
        "candidates": found.candidates,
        "moves": found.moves,
    }


def _build(likelihood: Likelihood, tree: Tree, problem: Problem) -> None:
    """Have every kernel built and run once on little work."""
    models = [problem.model.arrays()]
    likelihood.smooth([tree], models, 1.0, max_passes=1)
    prunes = np.arange(3 * tree.n_tips, 3 * tree.n_tips + 3, dtype=np.int32)
    near = Neighbourhood(tree, prunes)
    scan = near.scan(near.extend(1))
    likelihood.insertions([tree], models, scan)
    likelihood.refine([tree], models, scan)


def _functions(engine: Engine) -> dict[str, float]:
    """Seconds on the device per likelihood function so far."""
    timings = getattr(engine, "timings", None)
    measured: dict[Function, float] = timings() if timings is not None else {}
    return {function.name.lower(): seconds for function, seconds in measured.items()}


class _Clock:
    """Laps of wall time, in seconds."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str, since: float | None = None) -> None:
        """Time since the last lap, or since another moment."""
        now = time.perf_counter()
        self.laps[name] = now - (self._last if since is None else since)
        self._last = now


if __name__ == "__main__":
    main()
