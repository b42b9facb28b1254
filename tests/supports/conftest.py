"""Random trees of any shape, and what the definitions say about them, by sets of names."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

Split = frozenset[frozenset[str]]
"""Both sides."""


@dataclass
class Grown:
    """A random tree: its text, and every clade in it with the length above it."""

    text: str
    taxa: frozenset[str]
    clades: list[tuple[frozenset[str], float]] = field(default_factory=list)

    def lengths(self) -> dict[Split, float]:
        """By split, tips included: the sum of the lengths of the branches that make it."""
        found: dict[Split, float] = {}
        for clade, length in self.clades:
            if clade != self.taxa:
                split = frozenset((clade, self.taxa - clade))
                found[split] = found.get(split, 0.0) + length
        return found

    def splits(self) -> set[Split]:
        """Of its inner branches."""
        return {split for split in self.lengths() if min(map(len, split)) > 1}


class Grower:
    """Grows trees with polytomies, roots and nodes of a single child, or with none of them."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def names(self, n_tips: int) -> list[str]:
        """Distinct, in no order, some of which need quotes."""
        odd = ["{}", "t {}", "it's {}", "({})", "x{}:y", "ä{}", "{}_"]
        return [str(self.rng.choice(odd)).format(k) for k in self.rng.permutation(n_tips)]

    def tree(self, names: list[str], wild: bool = True, base: list[str] | None = None) -> Grown:
        """A tree over the names; ``base``: in whose order their neighbours tend to be kept."""
        order = [str(name) for name in (base or self.rng.permutation(names))]
        if base:
            here = int(self.rng.integers(len(order)))
            order.insert(int(self.rng.integers(len(order))), order.pop(here))
        grown = Grown("", frozenset(names))
        grown.text = self._subtree(order, grown, wild, top=True) + ";"
        return grown

    def _subtree(self, names: list[str], grown: Grown, wild: bool, top: bool = False) -> str:
        if len(names) == 1:
            text = "'" + names[0].replace("'", "''") + "'"
        else:
            most = 5 if wild else 2
            parts = min(len(names), 3 if top and not wild else int(self.rng.integers(2, most + 1)))
            cuts = np.sort(self.rng.choice(np.arange(1, len(names)), parts - 1, replace=False))
            pieces = [piece.tolist() for piece in np.split(np.array(names), cuts)]
            inside = ",".join(self._subtree(piece, grown, wild) for piece in pieces)
            text = f"({inside}){'label' if wild and self.rng.random() < 0.2 else ''}"
        while True:
            length = round(float(self.rng.exponential()), 6)
            grown.clades.append((frozenset(names), length))
            text += f":{length:f}"
            if not wild or self.rng.random() > 0.1:
                return text
            text = f"({text})"


@pytest.fixture
def grower() -> type[Grower]:
    return Grower
