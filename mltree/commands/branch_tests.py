"""Local tests of every inner branch of a tree: what is asked for, computed, shown and written.

For ``mltree alrt``, and for a search that tests the tree that it has found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from mltree.alignment.patterns import Patterns
from mltree.arrays import Float64, Int32
from mltree.events.trees import SupportsDrawn
from mltree.likelihood.api import Likelihood
from mltree.likelihood.cases import Case
from mltree.likelihood.site_rows import rows_of_neighbours
from mltree.model.partitioned import PartitionModel
from mltree.supports.branch_tests import BranchTests, local_tests
from mltree.supports.resampling import Resampling, share_error
from mltree.supports.table import members
from mltree.tree.splits import splits
from mltree.tree.topology import Tree, siblings
from mltree.values import Value

__all__ = ["BRANCHES", "BRANCH_TESTS", "LocalTests", "TestedBranches", "testable"]

BRANCHES = "branchTests"
"""Kind of the file with all tests."""

BRANCH_TESTS = {"sh-alrt": "SH-aLRT", "lbp": "LBP", "alrt": "aLRT", "abayes": "aBayes"}
"""In the order of labels, IQ-TREE's."""

RESAMPLED = ("SH-aLRT", "LBP")
"""Those whose supports are shares of replicates."""


class LocalTests(Value):
    """What is asked for."""

    names: tuple[str, ...]
    """Values of :data:`BRANCH_TESTS`, in that order."""
    replicates: int
    """Resamplings for SH-aLRT and LBP."""

    @property
    def replicates_by_name(self) -> dict[str, int | None]:
        """Of every test; None where it resamples nothing."""
        return {name: self.replicates if name in RESAMPLED else None for name in self.names}

    def of(
        self,
        likelihood: Likelihood,
        tree: Tree,
        model: PartitionModel,
        groups: Sequence[Patterns],
        seed: int,
    ) -> TestedBranches:
        """The tests of a tree under a model; the likelihood is of all its taxa, in fp64.

        groups  the patterns of every data type
        """
        weights, edges = np.concatenate([patterns.weights for patterns in groups]), testable(tree)
        rows = rows_of_neighbours(likelihood, tree, Case(model.arrays()), weights, edges)
        resampling = Resampling.of(groups, seed, "local tests")
        tested = local_tests(rows.lnl, rows.resampled, resampling, self.replicates)
        return TestedBranches(self, tree, edges, model.mean_lengths(tree.lengths), tested)


def testable(tree: Tree) -> Int32:
    """int32 [B]: ids, rising, of the inner branches that are told from two others by tests.

    Not of those that end at a polytomy: more than four subtrees meet there, and the branch stands
    against more than two others.
    """
    edges = tree.inner_edges
    ends = tree.edge_halves[edges]
    around = np.concatenate([tree.edge[beside] for beside in siblings(ends)], axis=1)
    found: Int32 = edges[(around < tree.n_branches).all(axis=1)]
    return found


class TestedBranches(Value):
    """What was found of the branches of a tree that there are tests of."""

    __test__ = False  # no test of pytest's

    asked: LocalTests
    tree: Tree
    edges: Int32
    """int32 [B]: :func:`testable`"""
    lengths: Float64
    """f64 [E]: of the tree, one a branch."""
    tests: BranchTests

    @property
    def values(self) -> dict[str, Float64]:
        """Every support by its name, f64 [B] 0 to 1."""
        tests = self.tests
        every = (tests.sh_alrt, tests.lbp, tests.parametric, tests.abayes)
        return dict(zip(BRANCH_TESTS.values(), every, strict=True))

    @property
    def means(self) -> dict[str, float]:
        """Over the branches, of the tests that were asked for."""
        return {name: float(self.values[name].mean()) for name in self.asked.names}

    def labels(self, behind: Mapping[int, str] | None = None) -> dict[int, str]:
        """By edge, with slashes between; shares of replicates in per cent, as in IQ-TREE's files.

        behind  what a label ends with
        """
        scale = dict.fromkeys(BRANCH_TESTS.values(), 1.0) | dict.fromkeys(RESAMPLED, 100.0)
        columns = [scale[name] * self.values[name] for name in self.asked.names]
        labels = dict(behind or {})
        for edge, row in zip(self.edges.tolist(), np.stack(columns, axis=1).tolist(), strict=True):
            values = [f"{value:.3g}" for value in row]
            labels[edge] = "/".join([*values, *filter(None, [labels.get(edge)])])
        return labels

    def events(self, newick: str) -> list[SupportsDrawn]:
        """Of every test that was asked for; ``newick``: the tree with the labels."""
        count = len(self.tests.lnl)
        return [SupportsDrawn(name, count, mean, newick) for name, mean in self.means.items()]

    def table(self, taxa: Sequence[str]) -> str:
        """All tests, a line a branch."""
        return "".join(self._lines(taxa))

    def _lines(self, taxa: Sequence[str]) -> Iterator[str]:
        yield ("lnL1\tlnL2\taLRT\tSH-aLRT\terror\tLBP\terror\tp-aLRT\taBayes\tlength\ttaxa\n")
        tests, edges, n_tips = self.tests, self.edges, self.tree.n_tips
        sh_error, lbp_error = (
            share_error(share, tests.replicates) for share in (tests.sh_alrt, tests.lbp)
        )
        inside = members(splits(self.tree)[edges], n_tips)
        inside ^= (2 * inside.sum(axis=1) > n_tips)[:, None]
        columns = (
            tests.lnl[:, 1], tests.lnl[:, 2], tests.alrt, tests.sh_alrt, sh_error, tests.lbp,
            lbp_error, tests.parametric, tests.abayes, self.lengths[edges],
        )  # fmt: skip
        for row, side in zip(np.stack(columns, axis=1).tolist(), inside, strict=True):
            names = ",".join(taxa[tip] for tip in np.flatnonzero(side).tolist())
            yield "\t".join(f"{value:.6f}" for value in row) + f"\t{names}\n"
