"""The judge of the trees of all programs.

A tree comes in as a topology. Branch lengths and the model are optimised the same way for each
(fp64, `TIGHT`), and the lnL of the result is what the NumPy reference engine computes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bench.contenders import Contender
from bench.data import Dataset
from mltree.device.discovery import REFERENCE
from mltree.fit.settings import ModelSettings, SearchSettings
from mltree.program.cases import Case
from mltree.runs.engines import Engines, Resources, Workload
from mltree.runs.problem import load_problem
from mltree.runs.trees import FIXED_TOPOLOGY, fit_topology
from mltree.system.events import ignore
from mltree.tree.newick import read_newick
from mltree.tree.splits import topology_key
from mltree.tree.topology import DEFAULT_LENGTH

__all__ = ["JUDGE", "Judge"]

JUDGE = "lengths and model optimised in fp64, lnL by the NumPy reference engine"
"""For results: who judged."""


TIGHT = replace(
    FIXED_TOPOLOGY,
    model=replace(ModelSettings(), final_epsilon=1e-5),
    ascent_epsilon=1e-4,
    final_smooth_epsilon=1e-5,
    max_ascent_turns=100,
)
"""A hundredth of the search's own epsilons, in lnL. Those leave 0.002 to 0.02 lnL (mb_primates,
iqtree_example), and a judge must see differences of 0.1; these end where PhyML does, to 0.0005."""


class Judge:
    """Scores trees of one dataset; a topology is judged once."""

    def __init__(self, dataset: Dataset, optimiser: Contender) -> None:
        self._problem = load_problem(str(dataset.alignment), dataset.model, ignore)
        patterns = self._problem.patterns
        bounds = SearchSettings().branches.bounds(patterns.n_sites)
        categories = max(self._problem.model.categories)
        self._fast, self._reference = (
            Engines(resources, Workload.of_patterns(patterns, categories, bounds)).likelihood
            for resources in (optimiser.resources, Resources(device=REFERENCE))
        )
        self._known: dict[int, float] = {}

    def topology(self, newick: str) -> int:
        """A number that two trees share when their topologies are the same."""
        tree, _ = read_newick(newick, self._problem.patterns.taxa)
        return topology_key(tree)

    def lnl(self, newick: str) -> float:
        """The log-likelihood (natural log) of the topology at its optimum."""
        key = self.topology(newick)
        if key not in self._known:
            tree, _ = read_newick(newick, self._problem.patterns.taxa)
            tree.lengths[:] = DEFAULT_LENGTH
            best = fit_topology(
                self._fast, tree, self._problem.model, ignore,
                optimise_parameters=True, optimise_lengths=True, settings=TIGHT,
            )  # fmt: skip
            lnl = self._reference.log_likelihoods([best.tree], [Case(best.model.arrays())])
            self._known[key] = float(np.asarray(lnl)[0])
        return self._known[key]
