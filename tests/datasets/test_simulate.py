"""The simulator: reproducible, exact in what it promises, right in its statistics."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from mltree.alignment import DNA, PROTEIN, compress, read_alignment
from mltree.model import p_matrices
from mltree.tree.newick import read_newick

SCRIPT = Path(__file__).parents[2] / "datasets" / "simulate.py"


def _loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("simulate", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


simulate = _loaded()


def made(path: Path, options: str) -> Path:
    simulate.main([str(path), *options.split()])
    return path


@pytest.mark.parametrize("unique", [1, 500, 1024])
def test_exactly_so_many_distinct_columns(tmp_path: Path, unique: int) -> None:
    patterns = compress(read_alignment(made(tmp_path / "a.phy", f"--unique {unique}"), "DNA"))
    assert (patterns.n_tips, patterns.n_sites, patterns.n_patterns) == (15, unique, unique)


def test_the_same_seed_gives_the_same_file(tmp_path: Path) -> None:
    first = made(tmp_path / "a.phy.gz", "--unique 64 --seed 3").read_bytes()
    assert made(tmp_path / "b.phy.gz", "--unique 64 --seed 3").read_bytes() == first
    assert made(tmp_path / "b.phy.gz", "--unique 64 --seed 4").read_bytes() != first


def test_more_columns_than_there_are(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="distinct columns turned up"):
        made(tmp_path / "a.phy", "--taxa 4 --unique 257")


def test_the_true_tree_and_a_protein(tmp_path: Path) -> None:
    path = made(
        tmp_path / "a.phy",
        f"--taxa 9 --sites 70 --model LG+G4{{0.5}} --true-tree {tmp_path / 'true.nwk'}",
    )
    alignment = read_alignment(path)
    assert alignment.alphabet is PROTEIN
    assert alignment.characters.shape == (9, 70)
    tree, _ = read_newick(tmp_path / "true.nwk", alignment.names)
    assert tree.n_tips == 9
    assert 0.02 < tree.lengths.mean() < 0.6


def test_pairs_of_tips_differ_as_the_model_says() -> None:
    """Joint frequencies of two tips: π[i] Σ_k w[k] P[k](t)[i, j], t the length of their path."""
    model, alphabet = simulate.model_and_alphabet("GTR{1/3/1/2/4/1}+FU{0.4/0.1/0.2/0.3}+G4{0.5}")
    assert alphabet is DNA
    rng = np.random.default_rng(5)
    tree = simulate.random_tree(4, 0.2, rng)
    arrays = model.arrays()
    sites = 200_000
    states = simulate.evolve(tree, arrays, sites, rng)
    # In a tree of 4 tips the branches of two neighbours meet at one inner node.
    cherry = [tip for tip in range(4) if tree.twin[3 * tip] // 3 == 4]
    one, other = cherry[:2]
    length = tree.lengths[tree.edge[[3 * one, 3 * other]]].sum(keepdims=True)
    p = np.tensordot(arrays.weights, p_matrices(arrays, length)[0], 1)
    expected = arrays.frequencies[:, None] * p
    seen = np.bincount(states[one] * 4 + states[other], minlength=16).reshape(4, 4) / sites
    sigma = np.sqrt(expected * (1 - expected) / sites)
    assert (np.abs(seen - expected) < 5 * sigma).all()
