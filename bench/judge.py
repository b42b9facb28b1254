"""One judge for everybody's trees.

A tree comes in as a topology. Branch lengths and the model are optimised the same way for each
(fp64, tight epsilons), and the lnL of the result is what the NumPy reference engine computes.
"""

from __future__ import annotations

import numpy as np

from bench.contenders import Contender, open_contender
from bench.data import Dataset
from mltree.likelihood.api import Likelihood
from mltree.likelihood.reference import ReferenceEngine
from mltree.run import evaluate, load_problem
from mltree.settings import SearchSettings
from mltree.tree.newick import read_newick
from mltree.tree.splits import topology_key
from mltree.tree.topology import DEFAULT_LENGTH

__all__ = ["JUDGE", "Judge"]

JUDGE = "lengths and model optimised in fp64, lnL by the NumPy reference engine"
"""For results: who judged."""


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
            best, model, _ = evaluate(
                self._fast,
                tree,
                self._problem.model,
                lambda _: None,
                optimise_parameters=True,
                optimise_lengths=True,
            )
            lnl = self._reference.log_likelihoods([best], [model.arrays()])
            self._known[key] = float(np.asarray(lnl)[0])
        return self._known[key]
