"""Random patterns, trees and models of any size, for timing kernels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mltree.data.alphabet import DNA, PROTEIN, Alphabet
from mltree.data.patterns import Patterns
from mltree.models.eigen import ModelArrays, random_reversible
from mltree.tree.topology import Tree, random_topology

__all__ = ["CODON", "Workload", "workload"]

CODON = Alphabet.of_states("codon", "".join(chr(64 + n) for n in range(61)))
"""61 states, as codon models have; the symbols mean nothing."""

ALPHABETS = {"DNA": DNA, "protein": PROTEIN, "codon": CODON}

MEAN_LENGTH = 0.1
"""Expected substitutions per site, of the exponential distribution of branch lengths."""


@dataclass(frozen=True)
class Workload:
    """Data as a search would hold them. All columns count as distinct, none has gaps."""

    patterns: Patterns
    tree: Tree
    model: ModelArrays


def workload(kind: str, taxa: int, patterns: int, seed: int, categories: int = 4) -> Workload:
    """Random states at the tips, a random tree, a random reversible model with gamma rates."""
    rng = np.random.default_rng(seed)
    alphabet = ALPHABETS[kind]
    if kind == "DNA":
        codes = (1 << rng.integers(0, 4, (taxa, patterns), np.uint8)).astype(np.uint8)
    else:
        codes = rng.integers(0, alphabet.n_states, (taxa, patterns), np.uint8)
    tree = random_topology(taxa, rng)
    tree.lengths[:] = rng.exponential(MEAN_LENGTH, tree.n_edges) + 1e-4
    data = Patterns(
        taxa=tuple(f"T{number:05d}" for number in range(taxa)),
        codes=codes,
        weights=np.ones(patterns),
        site_pattern=np.arange(patterns, dtype=np.int32),
        alphabet=alphabet,
    )
    return Workload(data, tree, random_reversible(alphabet.n_states, rng, categories=categories))
