"""Which classes of a mixture sites are of, and what frequencies that gives them: IQ-TREE's files.

With P(m | i) the probability that site i is of class m, of weight w_m and likelihood L_im,

    P(m | i) = w_m L_im / sum_c w_c L_ic,    frequencies of site i = sum_m P(m | i) frequencies_m,

the posterior mean site frequencies of Wang, Minh, Susko & Roger (2018, Syst. Biol. 67:216-235).
"""

from __future__ import annotations

from collections.abc import Sequence

from mltree.alignment.site_frequencies import site_frequencies_text
from mltree.arrays import Float64
from mltree.errors import InputError
from mltree.likelihood.api import Likelihood
from mltree.likelihood.cases import Case
from mltree.likelihood.classes import class_posteriors, class_weights_of
from mltree.model.partitioned import PartitionModel
from mltree.model.portable import product
from mltree.problem import Problem
from mltree.tree.topology import Tree
from mltree.values import Value

__all__ = ["SITE_FREQUENCIES", "SITE_PROBABILITIES", "SiteClasses", "check_classes"]


SITE_PROBABILITIES, SITE_FREQUENCIES = "siteprob", "sitefreq"
"""Kinds of files."""


def check_classes(problem: Problem) -> None:
    """Make sure that the sites have classes: that there is one model, and it is a mixture.

    Raises: InputError where they have none.
    """
    if problem.model.n_parts > 1:
        raise InputError(
            "classes of sites are those of one model, not of parts",
            hint="leave out --site-prob and --site-freq, or the partition file",
        )
    if problem.model.lone.mixture is None:
        raise InputError(
            f"{problem.model.lone.name} has no classes of sites",
            hint="--site-prob and --site-freq are for mixtures, such as LG+C20+F+G4",
        )


class SiteClasses(Value, eq=False):
    """The classes of sites under a mixture, on a tree."""

    posteriors: Float64
    """f64[sites, M]"""
    frequencies: Float64
    """f64[M, S]: of the classes."""

    @classmethod
    def of(
        cls, likelihood: Likelihood, tree: Tree, model: PartitionModel, problem: Problem
    ) -> SiteClasses:
        """Those of an alignment's sites."""
        (arrays,) = model.arrays()
        lnls = likelihood.class_log_likelihoods(tree, Case((arrays,)))
        posteriors = class_posteriors(lnls, class_weights_of(arrays))
        return cls(problem.by_site(posteriors.T), arrays.frequencies)

    def texts(self, kinds: Sequence[str]) -> dict[str, str]:
        """The files of some kinds."""
        made = {SITE_PROBABILITIES: self._probabilities, SITE_FREQUENCIES: self._frequencies}
        return {kind: made[kind]() for kind in kinds}

    def _frequencies(self) -> str:
        return site_frequencies_text(self.site_frequencies)

    def _probabilities(self) -> str:
        """As IQ-TREE's -wspm writes them."""
        names = (f"p{number}" for number in range(1, self.posteriors.shape[1] + 1))
        rows = (
            "\t".join([str(site), *(f"{value:.6g}" for value in row)])
            for site, row in enumerate(self.posteriors.tolist(), 1)
        )
        return "\n".join(["\t".join(["Site", *names]), *rows]) + "\n"

    @property
    def site_frequencies(self) -> Float64:
        """f64[sites, S]."""
        return product(self.posteriors, self.frequencies)
