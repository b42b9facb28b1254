"""Sequences that evolve along a tree under a model, with the gaps of real ones where asked for.

A site draws a rate category and a root state, and then at every branch its next state from the
row of P(t) of its category. The model is reversible, so tip 0 serves as the root. The same tree,
model and random numbers give the same sites.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from mltree.alignment.alphabet import Alphabet
from mltree.alignment.formats import Alignment
from mltree.arrays import UInt8
from mltree.errors import InputError
from mltree.model.eigen import ModelArrays, p_matrices
from mltree.tree.topology import Tree

__all__ = ["distinct_sites", "evolve", "gaps_like", "letters", "sites"]

MAX_BARREN_BATCHES = 20
"""Batches in a row without a new column, after which there are hardly more to find."""

FEW_SITES = 1 << 12
"""Sites simulated at a time where their number is given: the first ones of more are the same."""

BATCH_SITES = 1 << 16
"""Sites simulated at a time where distinct ones are wanted, many of them in vain."""


def sites(tree: Tree, arrays: ModelArrays, count: int, rng: np.random.Generator) -> UInt8:
    """As many sites as asked for."""
    batches = -(-count // FEW_SITES)
    return np.concatenate([evolve(tree, arrays, FEW_SITES, rng) for _ in range(batches)], axis=1)[
        :, :count
    ]


def distinct_sites(tree: Tree, arrays: ModelArrays, count: int, rng: np.random.Generator) -> UInt8:
    """The first so many different columns, in the order of their appearance.

    Raises:
        InputError: new columns have stopped turning up.
    """
    found = np.empty((0, tree.n_tips), np.uint8)
    barren = 0
    evolve(tree, arrays, BATCH_SITES, rng)  # the files of bench/results can be made again
    while True:
        batch = evolve(tree, arrays, BATCH_SITES, rng)
        before = len(found)
        found = _without_repeats(np.concatenate((found, batch.T)))
        if len(found) >= count:
            break
        barren = barren + 1 if len(found) == before else 0
        if barren == MAX_BARREN_BATCHES:
            problem = f"only {before:,} distinct columns turned up"
            raise InputError(problem, hint="a longer tree or more taxa give more")
    return np.ascontiguousarray(found[:count].T)


def evolve(tree: Tree, arrays: ModelArrays, count: int, rng: np.random.Generator) -> UInt8:
    """Sites that evolved from tip 0 outwards, all at a time: [sites, states] for every branch."""
    states = np.empty((tree.n_tips, count), np.uint8)
    systems = _systems(arrays)
    transitions = np.concatenate([p_matrices(own, tree.lengths) for own in systems], axis=1)
    steps = np.cumsum(transitions, axis=-1)[..., :-1]
    category = _drawn(np.cumsum(arrays.weights)[:-1], rng.random(count))
    roots = np.cumsum([own.frequencies for own in systems], axis=-1)[:, :-1]
    states[0] = _drawn(roots[category // systems[0].n_categories], rng.random(count))
    pending = [(tree.twin.item(0), states[0])]
    while pending:
        half, parent = pending.pop()
        bounds = steps[tree.edge.item(half), category, parent]
        child = _drawn(bounds, rng.random(count))
        if half < 3 * tree.n_tips:
            states[half // 3] = child
        else:
            pending += [(tree.twin.item(sibling), child) for sibling in tree.siblings(half)]
    return states


def _systems(arrays: ModelArrays) -> list[ModelArrays]:
    """The eigen systems of a mixture, each with its share of the categories; else the one."""
    if arrays.n_systems == 1:
        return [arrays]
    stacked = replace(
        arrays,
        rates=arrays.rates.reshape(arrays.n_systems, -1),
        weights=arrays.weights.reshape(arrays.n_systems, -1),
    )
    return stacked.unstacked()


def _drawn(bounds: NDArray[np.float64], u: NDArray[np.float64]) -> UInt8:
    """Where each u falls between rising bounds, [..., S-1]: u8, how many of them are not above."""
    drawn: UInt8 = np.sum(u[:, None] >= bounds, axis=-1, dtype=np.uint8)
    return drawn


def _without_repeats(rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
    keys = np.ascontiguousarray(rows).view(np.dtype((np.void, rows.shape[1])))
    _, first = np.unique(keys, return_index=True)
    return rows[np.sort(first)]


def letters(states: UInt8, alphabet: Alphabet) -> NDArray[np.uint8]:
    """u8 [T, sites width]: the states as ASCII."""
    return alphabet.decode(alphabet.state_codes[states])


def gaps_like(real: Alignment, taxa: Sequence[str], count: int) -> NDArray[np.bool_]:
    """Where a real alignment has gaps, bool [T, count]: characters that may be any state.

    A taxon has the gaps of its namesake; where no taxon has one, of the sequence in its place.
    Sites are those of the real alignment in turn, over and over.

    Raises:
        InputError: some taxa have a namesake and others none, or there are not as many sequences.
    """
    place = {name: row for row, name in enumerate(real.names)}
    strangers = [name for name in taxa if name not in place]
    if strangers and len(strangers) < len(taxa):
        problem = f"{strangers[0]!r} is in the tree, but has no sequence to take gaps from"
        raise InputError(problem, file=real.path, taxon=strangers[0])
    if len(taxa) > real.n_taxa:
        problem = f"{real.n_taxa:,} sequences to take gaps from, for {len(taxa):,} taxa"
        raise InputError(problem, file=real.path)
    rows = range(len(taxa)) if strangers else [place[name] for name in taxa]
    codes = real.alphabet.encode(real.characters[list(rows)])
    is_gap: NDArray[np.bool_] = codes == real.alphabet.gap_code
    return is_gap[:, np.arange(count) % real.n_sites]
