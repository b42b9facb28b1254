"""Where replicates are computed that have a berth each (:mod:`mltree.likelihood.berths`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mltree.alignment.drawn import empty_berths, usual_sizes
from mltree.alignment.patterns import Patterns
from mltree.device.demand import slots_of
from mltree.device.layout import Layout
from mltree.events import Emit, ignore
from mltree.likelihood.berths import BerthLikelihood
from mltree.likelihood.classes import Columns
from mltree.likelihood.engine import BerthEngine
from mltree.placement import JointPlacement, Placement, place
from mltree.settings import REPLICATE
from mltree.values import Value

__all__ = ["BerthPlan", "can_have_berths", "plan_berths", "with_replicates"]


def can_have_berths(placement: JointPlacement, groups: Sequence[Patterns]) -> bool:
    """Whether there are berths for replicates of patterns that are placed so.

    Not where they are of several state counts, nor where constant sites were left out of the data
    (+ASC), whose patterns have no weight and are needed all the same. The reference takes rows of
    weights, for it sums in an order that depends on the size of a berth.
    """
    return bool(placement.devices) and len(groups) == 1 and not groups[0].unseen


class BerthPlan(Value):
    """So many berths of one size, and where they are computed."""

    placement: Placement
    count: int
    sizes: tuple[int, ...]
    """Patterns of each part."""

    def open(self, patterns: Patterns, emit: Emit = ignore) -> BerthLikelihood:
        """The likelihood of what is drawn of the patterns; nothing is yet."""
        empty = empty_berths(patterns, self.sizes, self.count)
        engine, placement = self.placement.open(empty, emit), self.placement
        assert isinstance(engine, BerthEngine), "there are berths"
        return BerthLikelihood(engine, placement.bounds, Columns.of([empty]), placement.planners)


def plan_berths(
    placement: Placement, patterns: Patterns, sizes: Sequence[int], most: int, trees: int
) -> BerthPlan:
    """As many berths as searches are best side by side, ``most`` of them at most.

    placement  of the whole alignment, whose blocks and chunks they have: no bit depends on how
               many there are, nor on their size
    sizes      that a berth has at least, in patterns of each part
    trees      of a replicate's search
    """
    sizes = _as_many_chunks(placement.layouts[0], patterns, sizes)
    few = _placed(placement, patterns, sizes, min(2, most), trees)
    rows = min(few.room.trees, few.room.most - 1)
    count = max(1, min(most, rows * few.ranges // (trees * slots_of(patterns.n_tips))))
    return BerthPlan(_placed(placement, patterns, sizes, count, trees), count, tuple(sizes))


def _as_many_chunks(layout: Layout, patterns: Patterns, sizes: Sequence[int]) -> Sequence[int]:
    """Sizes with as many chunks as any replicates' have.

    Chunks of all parts are summed in turns (:mod:`mltree.device.residues`), so that one more would
    move those of the next part; at the end of a lone one it adds nothing.
    """
    if len(sizes) == 1:
        return sizes
    chunk = layout.vw * layout.chunk_blocks(patterns.n_patterns)
    usual = usual_sizes(patterns)
    return [
        max(own, (most - 1) // chunk * chunk + 1) for own, most in zip(sizes, usual, strict=True)
    ]


def with_replicates(
    placement: JointPlacement, groups: Sequence[Patterns], count: int
) -> JointPlacement:
    """The placement, which knows that so many replicates follow: by the usual size of berths."""
    trees = REPLICATE.parsimony_starts
    if not can_have_berths(placement, groups):
        each = (replace(one, trees=max(one.trees or 1, trees * count)) for one in placement.each)
        return JointPlacement(tuple(each))
    (alone,), (patterns,) = placement.each, groups
    plan = plan_berths(alone, patterns, usual_sizes(patterns), count, trees)
    return JointPlacement((replace(alone, afterwards=plan.placement),))


def _placed(
    placement: Placement, patterns: Patterns, sizes: Sequence[int], count: int, trees: int
) -> Placement:
    own = replace(placement.resources, vw=placement.layouts[0].vw)
    berths = empty_berths(patterns, sizes, count)
    placed = place(
        own, berths, placement.categories, placement.bounds, trees, systems=placement.systems
    )
    return replace(placed, ranges=count, chunked_as=patterns.n_patterns, among=placement.among)
