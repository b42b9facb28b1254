"""Which starts go on after the first phase."""

from __future__ import annotations

from mltree.search.lineage import Lineage
from mltree.settings import SearchSettings
from mltree.tree.forest import Forest

__all__ = ["survivors"]


def survivors(lineages: list[Lineage], settings: SearchSettings) -> list[Lineage]:
    """The starts that can still win: distinct, near the best, and not too many; best first.

    A start goes on if it lies within ``cull_margin`` of the best, or in the better part
    (``cull_factor``) of the range between the best and the worst.
    """
    ranked = sorted(lineages, key=lambda lineage: -lineage.lnl)
    best, worst = ranked[0].lnl, ranked[-1].lnl
    floor = best - max(settings.cull_margin, settings.cull_factor * (best - worst))
    kept: dict[int, Lineage] = {}
    keys = Forest([lineage.tree for lineage in ranked]).topology_keys()
    for lineage, key in zip(ranked, keys, strict=True):
        if lineage.lnl >= floor:
            kept.setdefault(key, lineage)
    return list(kept.values())[: settings.max_survivors]
