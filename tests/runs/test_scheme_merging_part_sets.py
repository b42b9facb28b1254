"""LnLs of sets of parts, however they are put together, against the textbook's part by part."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from mltree.data.alphabet import DNA
from mltree.data.patterns import compress_parts
from mltree.likelihood.likelihood import TreeLikelihood
from mltree.models.eigen import ModelArrays
from mltree.models.grammar import parse_model
from mltree.program.cases import Case
from mltree.program.engine import ReferenceEngine
from mltree.runs import scheme as merging
from mltree.runs.scheme import PartSets
from mltree.tree.topology import random_topology

BOUNDS = (1e-6, 100.0)


@pytest.mark.parametrize("records", [0, merging.RECORDS])
@pytest.mark.cases(3, 30)
def test_sets_have_what_their_parts_have(
    case: int, records: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In rows and by single parts: overlapping sets, each with as many models as it likes."""
    monkeypatch.setattr(merging, "RECORDS", records)
    monkeypatch.setattr(merging, "SPARSE", 9.0)
    rng = np.random.default_rng([case, 5])
    sizes = rng.integers(3, 20, int(rng.integers(2, 6)))
    many, ends = len(sizes), np.cumsum(sizes).tolist()
    codes = rng.choice(np.array([1, 2, 4, 8, 15], np.uint8), (5, ends[-1]))
    patterns = compress_parts(tuple("abcde"), codes, DNA, ends)
    tree = random_topology(5, rng)
    tree.lengths[:] = rng.uniform(0.05, 0.5, tree.n_edges)
    sets = [
        tuple(sorted(rng.choice(many, int(rng.integers(1, many + 1)), replace=False).tolist()))
        for _ in range(6)
    ]
    arrays = [[_model(rng) for _ in range(int(rng.integers(1, 4)))] for _ in sets]
    likelihood = TreeLikelihood(ReferenceEngine(patterns, 2, BOUNDS), BOUNDS)
    found = PartSets(likelihood, tree, many).lnls(sets, arrays)
    for own, under, lnls in zip(sets, arrays, found, strict=True):
        expected = [sum(_lone(codes, ends, part, tree, one) for part in own) for one in under]
        np.testing.assert_allclose(lnls, expected, rtol=1e-11)


def _model(rng: np.random.Generator) -> ModelArrays:
    return parse_model(
        f"K80{{{rng.uniform(0.5, 5):.3f}}}+G2{{{rng.uniform(0.2, 3):.3f}}}", DNA
    ).arrays()


def _lone(codes: np.ndarray, ends: list[int], part: int, tree, arrays: ModelArrays) -> float:
    """The lnL of a part's own alignment."""
    first, last = [*pairwise([0, *ends])][part]
    patterns = compress_parts(tuple("abcde"), codes[:, first:last], DNA, [last - first])
    engine = TreeLikelihood(ReferenceEngine(patterns, 2, BOUNDS), BOUNDS)
    return float(engine.log_likelihoods([tree], [Case((arrays,))])[0])
