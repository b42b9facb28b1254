"""The simulator: right in its statistics, exact in what it promises."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy.stats import chi2

from mltree.analyses.simulate import distinct_sites, evolve, gaps_like, letters, sites
from mltree.data.alignments import Alignment
from mltree.data.alphabet import DNA, PROTEIN, Alphabet
from mltree.data.codons import codon_alphabet
from mltree.models.eigen import ModelArrays, p_matrices, random_reversible
from mltree.models.grammar import parse_model
from mltree.system.errors import InputError
from mltree.tree.topology import Tree, uniform_tree, yule_tree

SITES = 60_000

UNLIKELY = 1e-5
"""p below which a χ² test fails: seeds are fixed, so that this is once and for all."""

MODELS = (
    "JC",
    "GTR{1/3/1/2/4/1}+FU{0.4/0.1/0.2/0.3}+G4{0.5}",
    "HKY{4}+FU{0.1/0.2/0.3/0.4}+I{0.3}",
    "TN93{2/5}+FE+I{0.2}+G3a{0.8}",
    "LG+G4{0.7}",
    "random",
    "mixture",
)


def arrays_of(name: str, rng: np.random.Generator) -> ModelArrays:
    """A model's; a mixture has two eigen systems of two categories each."""
    if name == "random":
        return random_reversible(7, rng, categories=3)
    if name == "mixture":
        one, other = (random_reversible(4, rng, categories=2) for _ in range(2))
        pairs = zip(vars(one).items(), vars(other).values(), strict=True)
        both = {key: np.stack([value, more]) for (key, value), more in pairs}
        both["rates"] = both["rates"].ravel()
        both["weights"] = both["weights"].ravel() / 2.0
        return ModelArrays(**both)
    return parse_model(name, PROTEIN if name.startswith("LG") else DNA).arrays()


def joint(arrays: ModelArrays, length: float) -> np.ndarray:
    """f64 [S, S]: how likely two tips so far apart show each pair: Σ_k w[k] diag(π) P[k]."""
    n = arrays.n_systems
    systems = [arrays]
    if n > 1:
        shape = arrays.rates.reshape(n, -1), arrays.weights.reshape(n, -1)
        systems = dataclasses.replace(arrays, rates=shape[0], weights=shape[1]).unstacked()
    total = np.zeros((arrays.n_states, arrays.n_states))
    for own in systems:
        p = p_matrices(own, np.array([length]))[0]
        total += own.frequencies[:, None] * np.tensordot(own.weights, p, 1)
    return total


def path_length(tree: Tree, one: int, other: int) -> float:
    """Between two tips, through the tree."""
    pending = [(int(tree.twin[3 * one]), float(tree.lengths[tree.edge[3 * one]]))]
    while pending:
        half, length = pending.pop()
        if half == 3 * other:
            return length
        if half >= 3 * tree.n_tips:
            for sibling in tree.siblings(half):
                step = float(tree.lengths[tree.edge[sibling]])
                pending.append((int(tree.twin[sibling]), length + step))
    raise AssertionError("a tip is nowhere")


def misfit(counts: np.ndarray, expected: np.ndarray) -> float:
    """p of Pearson's χ² test; cells of less than 5 counts are taken together."""
    counts, expected = counts.ravel(), expected.ravel() * counts.sum()
    rare = expected < 5
    cells = np.append(expected[~rare], expected[rare].sum())
    seen = np.append(counts[~rare], counts[rare].sum())
    kept = cells > 0
    assert not seen[~kept].any()
    value = ((seen - cells)[kept] ** 2 / cells[kept]).sum()
    return float(chi2.sf(value, kept.sum() - 1))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.cases(1, 20)
def test_frequencies_and_divergences_are_the_models(name: str, case: int) -> None:
    rng = np.random.default_rng([case, MODELS.index(name)])
    arrays = arrays_of(name, rng)
    tree = uniform_tree(6, 0.3, rng)
    states = sites(tree, arrays, SITES, rng)
    frequencies = joint(arrays, 1.0).sum(axis=1)
    for tip in range(6):
        assert misfit(np.bincount(states[tip], minlength=len(frequencies)), frequencies) > UNLIKELY
    for one, other in ((0, 1), (2, 5), (3, 4)):
        expected = joint(arrays, path_length(tree, one, other))
        n = arrays.n_states
        seen = np.bincount(states[one].astype(int) * n + states[other], minlength=n * n)
        assert misfit(seen, expected) > UNLIKELY


def test_invariant_sites_and_fast_sites_are_as_many_as_they_should_be() -> None:
    """Under +I alone, sites that never change are p and those of rate 1/(1 - p) by chance."""
    rng = np.random.default_rng(4)
    arrays = parse_model("JC+I{0.25}", DNA).arrays()
    tree = uniform_tree(30, 1.0, rng)
    states = sites(tree, arrays, SITES, rng)
    constant = (states == states[0]).all(axis=0).mean()
    assert constant == pytest.approx(0.25, abs=5 * np.sqrt(0.25 * 0.75 / SITES))


def test_sites_that_vary_are_those_of_all() -> None:
    tree = uniform_tree(5, 0.1, np.random.default_rng(1))
    arrays = parse_model("JC+G4{0.5}+ASC_LEWIS", DNA).arrays()
    every, varied, distinct = (
        draw(tree, arrays, count, np.random.default_rng(2), *varies)
        for draw, count, varies in (
            (sites, 2000, ()),
            (sites, 300, (True,)),
            (distinct_sites, 99, (True,)),
        )
    )
    varies = (every != every[0]).any(axis=0)
    np.testing.assert_array_equal(varied, every[:, varies][:, :300])
    assert (distinct != distinct[0]).any(axis=0).all()


def test_the_same_seed_is_the_same_sites_and_the_start_of_more() -> None:
    tree = uniform_tree(5, 0.2, np.random.default_rng(1))
    arrays = parse_model("JC+G4{0.5}", DNA).arrays()
    few, many, other = (
        sites(tree, arrays, count, np.random.default_rng(seed))
        for count, seed in ((100, 1), (70_000, 1), (100, 2))
    )
    np.testing.assert_array_equal(few, many[:, :100])
    assert many.shape == (5, 70_000)
    assert (few != other).any()


@pytest.mark.parametrize("unique", [1, 200, 1024])
def test_exactly_so_many_distinct_columns(unique: int) -> None:
    rng = np.random.default_rng(3)
    arrays = parse_model("JC+G4{0.8}", DNA).arrays()
    states = distinct_sites(uniform_tree(15, 0.15, rng), arrays, unique, rng)
    assert len(np.unique(states, axis=1).T) == states.shape[1] == unique


def test_more_columns_than_there_are() -> None:
    rng = np.random.default_rng(3)
    arrays = parse_model("JC", DNA).arrays()
    with pytest.raises(InputError, match="only 256 distinct columns were found"):
        distinct_sites(uniform_tree(4, 0.5, rng), arrays, 257, rng)


def test_a_branch_of_no_length_changes_nothing() -> None:
    rng = np.random.default_rng(3)
    tree = uniform_tree(6, 0.5, rng)
    tree.lengths[:] = 0.0
    states = evolve(tree, parse_model("GTR{1/2/3/4/5/6}+FE", DNA).arrays(), 500, rng)
    assert (states == states[0]).all()


def alignment(*rows: str, names: str = "abcdef", alphabet: Alphabet = DNA) -> Alignment:
    characters = np.array([list(row.encode()) for row in rows], np.uint8)
    return Alignment(tuple(names[: len(rows)]), characters, "real.phy", alphabet)


def test_gaps_are_those_of_the_namesake_over_and_over() -> None:
    real = alignment("AC-", "-NG", "ACG", "R??")
    mask = gaps_like(real, ["d", "a", "b", "c"], 7)
    wanted = ["0110110", "0010010", "1101101", "0000000"]
    np.testing.assert_array_equal(mask, [[c == "1" for c in row] for row in wanted])
    unnamed = gaps_like(real, ["T1", "T2", "T3"], 3)
    np.testing.assert_array_equal(unnamed, mask[[1, 2, 3], :3])


def test_gaps_of_others_are_refused() -> None:
    real = alignment("AC-", "-NG", "ACG", "R??")
    with pytest.raises(InputError, match="'x' is in the tree, but has no sequence"):
        gaps_like(real, ["a", "x"], 3)
    with pytest.raises(InputError, match="4 sequences to take gaps from, for 5 taxa"):
        gaps_like(real, list("pqrst"), 3)


def test_letters_are_the_states() -> None:
    assert letters(np.array([[0, 1, 2, 3]], np.uint8), DNA).tobytes() == b"ACGT"


@pytest.mark.parametrize("taxa", [4, 5, 40])
def test_tips_of_a_yule_tree_are_of_one_age(taxa: int) -> None:
    tree = yule_tree(taxa, 0.1, np.random.default_rng(taxa))
    tree.validate()
    assert tree.lengths.mean() == pytest.approx(0.1)
    # Ultrametric: of the three pairs among three tips, the two longer paths are as long.
    rng = np.random.default_rng(1)
    for _ in range(30):
        a, b, c = rng.choice(taxa, 3, replace=False)
        _, middle, longest = sorted(path_length(tree, *p) for p in ((a, b), (b, c), (a, c)))
        assert middle == pytest.approx(longest)


def test_yule_trees_have_cherries_as_often_as_they_should() -> None:
    """n/3 of them on average (McKenzie, Steel 2000); uniform trees have about n/4."""
    rng = np.random.default_rng(5)
    counts = []
    for _ in range(300):
        tree = yule_tree(30, 0.1, rng)
        parents = tree.twin[3 * np.arange(30)] // 3
        counts.append(30 - len(np.unique(parents)))
    # Unrooted, the root's two branches are one: a cherry more where one of them is a tip's.
    assert np.mean(counts) == pytest.approx(10.0 + 2 / 29, abs=5 * np.sqrt(2 * 30 / 45 / 300))


def test_codons_are_written_out() -> None:
    states = np.array([[0, 60], [14, 1]], np.uint8)
    text = [row.tobytes().decode() for row in letters(states, codon_alphabet(1))]
    assert text == ["AAATTT", "ATGAAC"]
