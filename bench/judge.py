"""One judge for everybody's trees.

A tree comes in as a topology. Branch lengths and the model are optimised the same way for each
(fp64, `TIGHT`), and the lnL of the result is what the NumPy reference engine computes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bench.contenders import Contender, open_contender
from bench.data import Dataset
from mltree.likelihood.api import Likelihood
from mltree.likelihood.reference import ReferenceEngine
from mltree.run import FIXED_TOPOLOGY, load_problem
from mltree.search.driver import StartingTree, search
from mltree.settings import ModelSettings, SearchSettings
from mltree.tree.newick import read_newick
from mltree.tree.splits import topology_key
from mltree.tree.topology import DEFAULT_LENGTH

__all__ = ["JUDGE", "Judge"]

JUDGE = "lengths and model optimised in fp64, lnL by the NumPy reference engine"
"""For results: who judged."""


TIGHT = replace(
    FIXED_TOPOLOGY,
    model=replace(ModelSettings(), final_epsilon=1e-5),
    alternation_epsilon=1e-4,
    final_smooth_epsilon=1e-5,
    max_alternations=100,
)
"""A hundredth of the search's own epsilons, in lnL. Those leave 0.002 to 0.02 lnL (mb_primates,
iqtree_example), and a judge must see differences of 0.1; these end where PhyML does, to 0.0005."""


class Judge:
    """Scores trees of one dataset; a topology is judged once."""

    def __init__(self, dataset: Dataset, optimiser: Contender) -> None:
        self._problem = load_problem(str(dataset.alignment), dataset.model, lambda _: None)
        patterns = self._problem.patterns
        bounds = SearchSettings().branches.bounds(patterns.n_sites)
        categories = self._problem.model.arrays().n_categories
        engine, _ = open_contender(optimiser, patterns, categories, bounds)
        self._fast = Likelihood(engine, bounds)
        self._reference = Likelihood(ReferenceEngine(patterns, categories, bounds), bounds)
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
            rng = np.random.default_rng()  # nothing draws from it
            start = [StartingTree(tree, "judged")]
            best = search(self._fast, start, self._problem.model, TIGHT, rng, lambda _: None)
            lnl = self._reference.log_likelihoods([best.tree], [best.model.arrays()])
            self._known[key] = float(np.asarray(lnl)[0])
        return self._known[key]
