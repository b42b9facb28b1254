"""A tree on its way through the search."""

from __future__ import annotations

from dataclasses import dataclass

from mltree.tree.topology import Tree

__all__ = ["Lineage", "best_of"]


@dataclass
class Lineage:
    """One tree of the search; several go through every launch side by side."""

    tree: Tree
    """Changed in place by the search."""
    lnl: float
    """Natural log-likelihood of ``tree`` under the search's current model."""
    origin: str
    """Where it came from: ``parsimony 1``, ``random 2``, ``user 1``, ``copy 3``."""
    active: bool = True
    """False once a phase has nothing more to gain for it."""
    rounds: int = 0
    """Rounds done in the current phase."""

    def copy(self) -> Lineage:
        """An independent lineage with the same tree."""
        return Lineage(self.tree.copy(), self.lnl, self.origin, self.active, self.rounds)


def best_of(lineages: list[Lineage]) -> Lineage:
    """The one with the highest lnL; the first of equals."""
    return max(lineages, key=lambda lineage: lineage.lnl)
