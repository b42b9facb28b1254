"""Simulated alignments: any model on a random tree; among them the PLL paper's workload.

    python datasets/simulate.py --taxa 15 --unique 1024 --seed 1 out.phy
    python datasets/simulate.py --taxa 200 --sites 2000 --model 'GTR{1/3/1/1/4/1}+G' out.phy.gz
    python datasets/simulate.py --taxa 50 --sites 2000 --model 'LG+G4{0.7}' proteins.phy

The paper measured 15 taxa under JC + Γ with *only distinct columns*, so that N sites are N patterns
(`--unique N`: simulate until N different columns have been seen, keep each once). Such data carry
no invariant sites to speak of, so an estimated alpha runs to its upper bound.

The same options and seed give the same file, byte for byte. Taxa are T1, T2, …; the tree is drawn
uniformly from all topologies, its branch lengths from an exponential distribution.
"""

from __future__ import annotations

import argparse
import gzip
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mltree.alignment import DNA, PROTEIN, Alphabet
from mltree.errors import ModelError
from mltree.model import Model, ModelArrays, p_matrices, parse_model
from mltree.tree.newick import write_newick
from mltree.tree.random_trees import random_topology
from mltree.tree.topology import Tree

MAX_BARREN_BATCHES = 20
"""Batches in a row without a new column, after which there are hardly more to find."""
BATCH_SITES = 1 << 16
"""Sites simulated at a time: keeps the [sites, states] table of one branch small."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the alignment (and the true tree, with --true-tree) that the options ask for."""
    options = _parser().parse_args(arguments)
    if options.taxa < 4:
        raise SystemExit("simulate.py: a tree needs at least 4 taxa")
    model, alphabet = model_and_alphabet(options.model)
    rng = np.random.default_rng(options.seed)
    tree = random_tree(options.taxa, options.mean_length, rng)
    columns = batches(tree, model.arrays(), rng)
    if options.unique:
        states = distinct_columns(columns, options.unique)
    else:
        states = first_columns(columns, options.sites)
    taxa = [f"T{number}" for number in range(1, options.taxa + 1)]
    write_phylip(options.out, taxa, states, alphabet)
    if options.true_tree:
        options.true_tree.write_text(write_newick(tree, taxa) + "\n", encoding="ascii")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("out", type=Path, help="PHYLIP file to write; gzip if it ends in .gz")
    add("--taxa", type=int, default=15)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--sites", type=int, default=1000)
    size.add_argument("--unique", type=int, metavar="N", help="exactly N distinct columns")
    add("--model", default="JC+G4{0.8}", help="RAxML-NG's notation, parameters in braces")
    add("--mean-length", type=float, default=0.15, help="mean branch length, substitutions a site")
    add("--seed", type=int, default=1)
    add("--true-tree", type=Path, metavar="FILE", help="also write the tree, in Newick")
    return parser


def model_and_alphabet(text: str) -> tuple[Model, Alphabet]:
    """The model that a string names, of nucleotides or of proteins."""
    try:
        return parse_model(text, DNA), DNA
    except ModelError as not_dna:
        try:
            return parse_model(text, PROTEIN), PROTEIN
        except ModelError:
            raise not_dna from None


def random_tree(n_tips: int, mean_length: float, rng: np.random.Generator) -> Tree:
    """A random topology with exponential branch lengths."""
    tree = random_topology(n_tips, rng)
    tree.lengths[:] = rng.exponential(mean_length, tree.n_edges)
    return tree


def batches(
    tree: Tree, arrays: ModelArrays, rng: np.random.Generator
) -> Iterator[NDArray[np.uint8]]:
    """Endless u8 [T, BATCH_SITES] of simulated states."""
    while True:
        yield evolve(tree, arrays, BATCH_SITES, rng)


def evolve(
    tree: Tree, arrays: ModelArrays, sites: int, rng: np.random.Generator
) -> NDArray[np.uint8]:
    """States u8 [T, sites] at the tips, evolved from tip 0 outwards (the model is reversible)."""
    states = np.empty((tree.n_tips, sites), np.uint8)
    steps = np.cumsum(p_matrices(arrays, tree.lengths), axis=-1)[..., :-1]
    category = _drawn(np.cumsum(arrays.weights)[:-1], rng.random(sites))
    states[0] = _drawn(np.cumsum(arrays.frequencies)[:-1], rng.random(sites))
    pending = [(tree.twin.item(0), states[0])]
    while pending:
        half, parent = pending.pop()
        bounds = steps[tree.edge.item(half), category, parent]
        child = _drawn(bounds, rng.random((sites, 1)))
        if half < 3 * tree.n_tips:
            states[half // 3] = child
        else:
            pending += [(tree.twin.item(sibling), child) for sibling in tree.siblings(half)]
    return states


def _drawn(bounds: NDArray[np.float64], u: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Where each u falls between rising bounds: u8, the number of bounds not above it."""
    u = u if u.ndim > 1 else u[:, None]
    drawn: NDArray[np.uint8] = np.sum(u >= bounds, axis=-1, dtype=np.uint8)
    return drawn


def first_columns(columns: Iterator[NDArray[np.uint8]], sites: int) -> NDArray[np.uint8]:
    """u8 [T, sites]: as many columns as asked for."""
    parts = [next(columns) for _ in range(-(-sites // BATCH_SITES))]
    return np.concatenate(parts, axis=1)[:, :sites]


def distinct_columns(columns: Iterator[NDArray[np.uint8]], unique: int) -> NDArray[np.uint8]:
    """u8 [T, unique]: the first `unique` different columns, in the order of their appearance.

    Raises:
        SystemExit: new columns have stopped turning up.
    """
    found = np.ascontiguousarray(next(columns).T)[:0]
    barren = 0
    while len(found) < unique:
        before = len(found)
        found = _without_repeats(np.concatenate((found, next(columns).T)))
        barren = barren + 1 if len(found) == before else 0
        if barren == MAX_BARREN_BATCHES:
            raise SystemExit(f"simulate.py: only {before} distinct columns turned up: longer tree?")
    return np.ascontiguousarray(found[:unique].T)


def _without_repeats(rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
    keys = np.ascontiguousarray(rows).view(np.dtype((np.void, rows.shape[1])))
    _, first = np.unique(keys, return_index=True)
    return rows[np.sort(first)]


def write_phylip(
    path: Path, taxa: Sequence[str], states: NDArray[np.uint8], alphabet: Alphabet
) -> None:
    """Relaxed sequential PHYLIP, one line a taxon."""
    letters = np.frombuffer(alphabet.states.encode("ascii"), np.uint8)
    width = max(map(len, taxa)) + 2
    lines = [f"{len(taxa)} {states.shape[1]}".encode("ascii")]
    lines += [
        name.ljust(width).encode("ascii") + letters[row].tobytes()
        for name, row in zip(taxa, states, strict=True)
    ]
    text = b"\n".join(lines) + b"\n"
    path.write_bytes(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)


if __name__ == "__main__":
    main()
