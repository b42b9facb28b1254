"""The rates of sites as files: IQ-TREE's .rate, of categories or of +PSR."""

from __future__ import annotations

import numpy as np

from mltree.errors import ModelError
from mltree.likelihood.api import Likelihood
from mltree.likelihood.empirical_rates import EmpiricalRates, empirical_rates
from mltree.model.partitioned import PartitionModel
from mltree.problem import Problem
from mltree.runs.run import Found

__all__ = ["check_rates", "site_rates"]

HEAD = """\
# Rates of sites, relative to those of all sites (of unlinked parts, to their own)
#   Site:   Site, in the order of the file; of parts one after the other
#   Rate:   Posterior mean rate; under +PSR the rate itself
#   Cat:    Most probable category (0=invariable, 1=slowest, etc)
#   C_Rate: Rate of that category
Site\tRate\tCat\tC_Rate
"""


def check_rates(model: PartitionModel) -> None:
    """Make sure that rates differ among sites, in some part at least. Raises: ModelError."""
    if all(own.n_categories == 1 for own in model.arrays()) and not model.has_site_rates:
        raise ModelError(
            "all sites have one rate under this model",
            hint="--site-rates is for models such as GTR+G4, GTR+R4, GTR+I or GTR+PSR",
        )


def site_rates(likelihood: Likelihood, found: Found, problem: Problem) -> str:
    """The content of a .rate file, sites in the order of the file, rates among all of them."""
    if found.per_site is not None:
        rates = _fitted(found.per_site)
    else:
        rates = empirical_rates(likelihood, found.tree, found.model.arrays(), problem.groups)
    columns = (problem.by_site(np.asarray(column, np.float64)).tolist() for column in rates)
    rows = zip(*columns, strict=True)
    return HEAD + "".join(
        f"{site}\t{mean:.5f}\t{category:.0f}\t{rate:.5f}\n"
        for site, (mean, category, rate) in enumerate(rows, 1)
    )


def _fitted(model: PartitionModel) -> EmpiricalRates:
    """Those of +PSR, which are of one category each."""
    pairs = zip(model.site_rates, model.scalers.tolist(), strict=True)
    rates = np.concatenate([form.of_patterns * scaler for form, scaler in pairs])
    category = np.concatenate([form.category + 1 for form in model.site_rates])
    return EmpiricalRates(rates, category, rates)
