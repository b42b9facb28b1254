"""The distinct best trees of a search."""

from __future__ import annotations

from dataclasses import dataclass, field

from mltree.tree.splits import topology_key
from mltree.tree.topology import Tree

__all__ = ["Pool", "PooledTree"]


@dataclass(frozen=True)
class PooledTree:
    """A copy of a tree that the search once reached."""

    key: int
    """Equal for equal topologies; see :func:`mltree.tree.splits.topology_key`."""
    lnl: float
    tree: Tree


@dataclass
class Pool:
    """At most ``limit`` trees of different topology, best first."""

    limit: int
    trees: list[PooledTree] = field(default_factory=list)

    def add(self, tree: Tree, lnl: float) -> None:
        """Take a tree in, unless its topology is there with a higher lnL."""
        key = topology_key(tree)
        known = next((entry for entry in self.trees if entry.key == key), None)
        if known is not None:
            if known.lnl >= lnl:
                return
            self.trees.remove(known)
        self.trees.append(PooledTree(key, lnl, tree.copy()))
        self.trees.sort(key=lambda entry: -entry.lnl)
        del self.trees[self.limit :]
