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

from bench.contenders import Contender  # noqa: E402
from mltree.fit.settings import preset  # noqa: E402
from mltree.likelihood.likelihood import TreeLikelihood  # noqa: E402
from mltree.program.cases import Case  # noqa: E402
from mltree.program.contract import Function  # noqa: E402
from mltree.program.engine import Engine  # noqa: E402
from mltree.runs.problem import Problem, load_problem  # noqa: E402
from mltree.runs.trees import TreeResult, prepare_search  # noqa: E402
from mltree.system.events import ignore  # noqa: E402
from mltree.tree.newick import write_newick  # noqa: E402
from mltree.tree.topology import Tree  # noqa: E402
from mltree.treesearch.spr import Neighbourhood  # noqa: E402

__all__ = ["main"]


def main() -> None:
    """Run the job named on the command line."""
    job = json.loads(Path(sys.argv[1]).read_text())
    Path(sys.argv[2]).write_text(json.dumps(run(job)))


def run(job: dict[str, Any]) -> dict[str, Any]:
    """A search and its times, in seconds."""
    clock = _Clock()
    clock.lap("imports_s", _STARTED)
    problem = load_problem(job["alignment"], job["model"], ignore)
    clock.lap("load_s")
    ready = prepare_search(
        problem,
        preset(job["preset"]),
        Contender(**job["contender"]).resources,
        seed=job["seed"],
        starts=job["start"],
    )
    likelihood = ready.engines.likelihood
    clock.lap("open_s")
    _build(likelihood, ready.starts[0].tree.copy(), problem)
    before = _functions(likelihood.engine)
    clock.lap("build_s")
    found = ready.run()
    clock.lap("search_s")
    after = _functions(likelihood.engine)
    return {
        **clock.laps,
        **_outcome(found, problem.patterns.taxa),
        "engine": likelihood.engine.name,
        "functions": {name: after[name] - before[name] for name in after},
    }


def _outcome(found: TreeResult, taxa: Sequence[str]) -> dict[str, Any]:
    assert found.search is not None
    return {
        "lnl": found.lnl,
        "tree": write_newick(found.tree, taxa),
        "rounds": found.search.rounds,
        "candidates": found.search.insertions,
        "moves": found.search.moves,
    }


def _build(likelihood: TreeLikelihood, tree: Tree, problem: Problem) -> None:
    """Have every kernel built and run once on little work."""
    cases = [Case(problem.model.arrays())]
    likelihood.smooth([tree], cases, 1.0, max_passes=1)
    prunes = np.arange(3 * tree.n_tips, 3 * tree.n_tips + 3, dtype=np.int32)
    near = Neighbourhood(tree, prunes)
    scan = near.scan(near.extend(1))
    likelihood.insertions([tree], cases, scan)
    likelihood.refine([tree], cases, scan)


def _functions(engine: Engine) -> dict[str, float]:
    """Seconds on the device per likelihood function so far."""
    timings = getattr(engine, "timings", None)
    measured: dict[Function, float] = timings() if timings is not None else {}
    stored_as = {Function.TRIPLET: "tripod"}  # in the results that there are
    return {stored_as.get(of, of.name.lower()): seconds for of, seconds in measured.items()}


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
