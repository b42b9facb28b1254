"""What replicates are searched with: berths where there can be any, else rows of weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from mltree.berths import can_have_berths, plan_berths
from mltree.likelihood.api import Likelihood
from mltree.likelihood.cases import Case
from mltree.runs.computation import Computation
from mltree.search.replicates import Replicates
from mltree.search.spots import Berths, Spots, WeightRows
from mltree.tree.random_trees import random_topology
from mltree.values import Value

__all__ = ["Resampled", "has_berths", "resampled"]


class Resampled(Value):
    """A likelihood, and where replicates' weights are there."""

    likelihood: Likelihood
    spots: Spots


def has_berths(computation: Computation, replicates: Replicates) -> bool:
    """Whether replicates have berths: it decides the last bits of their lnL."""
    groups = replicates.distinct.groups
    has_rates = replicates.model.has_site_rates
    return not has_rates and can_have_berths(computation.placement, groups)


@contextmanager
def resampled(
    computation: Computation, replicates: Replicates, numbers: Sequence[int], most: int
) -> Iterator[Resampled]:
    """What these replicates are searched with, ``most`` of them side by side at most.

    With berths the computation's own likelihood gives its memory back; theirs is taken until the
    replicates are done.
    """
    starts = 1 if replicates.given else replicates.settings.parsimony_starts
    if not has_berths(computation, replicates):
        yield _rows(computation.likelihood, replicates, most, starts)
        return
    (patterns,), (placement,) = replicates.distinct.groups, computation.placement.each
    sizes = replicates.resampling.most_patterns(numbers)
    plan = plan_berths(placement, patterns, sizes, most, starts)
    computation.likelihood.close()
    likelihood = plan.open(patterns)
    computation.others.append(likelihood.engine)
    try:
        yield Resampled(likelihood, Berths(plan.count, patterns, plan.sizes))
    finally:
        likelihood.close()


def _rows(likelihood: Likelihood, replicates: Replicates, most: int, starts: int) -> Resampled:
    groups = replicates.distinct.groups
    tree = random_topology(groups[0].n_tips, np.random.default_rng(0))
    tree.lengths = replicates.model.spread(tree.lengths)
    every = [tree] * (starts * most), [Case(replicates.model.arrays())] * (starts * most)
    count = max(1, likelihood.trees_at_once(*every) // starts)
    return Resampled(likelihood, WeightRows(count, sum(own.n_patterns for own in groups)))
