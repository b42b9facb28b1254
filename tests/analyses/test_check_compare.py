"""One likelihood from every engine: equal ones agree, and a wrong one is named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy.stats import chi2

from mltree.analyses.check import (
    TOLERANCE,
    is_close,
    is_ok,
    score_everywhere,
    self_test,
    symmetry_tests,
)
from mltree.data.alignments import MemoryAlignment, read_alignment
from mltree.data.alphabet import DNA
from mltree.data.patterns import compress
from mltree.device.discovery import find_devices
from mltree.likelihood.likelihood import TreeLikelihood
from mltree.models.grammar import parse_model
from mltree.models.partitioned import alone
from mltree.program.cases import Case
from mltree.program.engine import ReferenceEngine
from mltree.tree.topology import Tree

if TYPE_CHECKING:
    from conftest import Problem

MODEL = alone(parse_model("HKY{2.5}+FU{0.3/0.2/0.2/0.3}+G4{0.5}", DNA))


@pytest.mark.parametrize("mixed", [False, True])
def test_every_engine_scores_alike(make_problem: Callable[..., Problem], mixed: bool) -> None:
    problem = make_problem(7, 200)
    scores = list(score_everywhere(problem.patterns, problem.tree, MODEL, mixed))
    assert len(scores) == 1 + 2 * len(find_devices())
    assert len({score.engine for score in scores}) == len(scores)
    for score in scores:
        assert not score.problem
        assert score.seconds > 0
        assert is_close(score.lnl, scores[0].lnl, mixed)


def test_an_engine_that_fails_says_why(
    make_problem: Callable[..., Problem], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mltree.analyses.check.AVX_WIDTH", 3)
    monkeypatch.setattr("mltree.analyses.check.NARROW_ON_GPU", 3)
    problem = make_problem(7, 20)
    _, narrow, usual, *_ = score_everywhere(problem.patterns, problem.tree, MODEL, mixed=False)
    assert "no blocks of 3 patterns" in narrow.problem
    assert np.isnan(narrow.lnl)
    assert not usual.problem


def test_closeness_is_relative() -> None:
    assert is_close(-1e5, -1e5 * (1 + TOLERANCE / 2), mixed=False)
    assert not is_close(-1e5, -1e5 * (1 + 2 * TOLERANCE), mixed=False)
    assert is_close(-1e5, -1e5 * (1 + 2 * TOLERANCE), mixed=True)
    assert not is_close(float("nan"), -1.0, mixed=True)


def test_a_device_that_computes_rightly_is_ok(monkeypatch: pytest.MonkeyPatch) -> None:
    device = find_devices()[0]
    assert is_ok(self_test(device))
    right = TreeLikelihood.derivatives

    def wrong(self: TreeLikelihood, tree: Tree, case: Case) -> tuple[object, ...]:
        lnl, d1, d2 = right(self, tree, case)
        return (lnl, d1, d2) if isinstance(self.engine, ReferenceEngine) else (lnl + 1, d1, d2)

    monkeypatch.setattr(TreeLikelihood, "derivatives", wrong)
    verdict = self_test(device)
    assert verdict.startswith("wrong: lnL")
    assert not is_ok(verdict)


def test_a_device_that_is_gone_is_told() -> None:
    gone = replace(find_devices()[0], index=99)
    assert not is_ok(self_test(gone))
    assert "no device matches" in self_test(gone)


@pytest.mark.cases(3, 60)
def test_symmetry_against_the_textbook(case: int) -> None:
    """Bowker's, Stuart's and the internal test, from tables of pairs that are counted by hand."""
    rng = np.random.default_rng(case)
    base = rng.integers(0, 4, 150)
    rows = [np.where(rng.random(150) < 0.4, rng.choice(4, 150, p=p), base)
            for p in rng.dirichlet(np.ones(4), 4)]  # fmt: skip
    texts = ["".join("ACGT"[s] if rng.random() < 0.9 else "-" for s in row) for row in rows]
    names = tuple("abcd")
    source = MemoryAlignment(names, tuple(text.encode() for text in texts))
    tested = symmetry_tests(compress(read_alignment(source, "DNA")))
    shares = []
    for number, (one, other) in enumerate(combinations(range(4), 2)):
        table = np.zeros((4, 4))
        for x, y in zip(texts[one], texts[other], strict=True):
            if "-" not in (x, y):
                table["ACGT".index(x), "ACGT".index(y)] += 1
        shares.append(1 - np.trace(table) / table.sum())
        terms = [(table[i, j] - table[j, i]) ** 2 / (table[i, j] + table[j, i])
                 for i, j in combinations(range(4), 2) if table[i, j] + table[j, i]]  # fmt: skip
        u = (table.sum(axis=1) - table.sum(axis=0))[:3]
        v = (np.diag(table.sum(axis=1) + table.sum(axis=0)) - table - table.T)[:3, :3]
        stuart = u @ np.linalg.inv(v) @ u
        wanted = [
            chi2.sf(sum(terms), len(terms)),
            chi2.sf(stuart, 3),
            chi2.sf(sum(terms) - stuart, len(terms) - 3),
        ]
        np.testing.assert_allclose(tested.p_values[:, number], wanted, rtol=1e-9)
    assert tested.divergent == int(np.argmax(shares))
    assert tested.pair == list(combinations(names, 2))[tested.divergent]


def test_pairs_that_cannot_be_tested_have_no_p_value() -> None:
    source = MemoryAlignment(tuple("abc"), (b"ACGT", b"ACGT", b"AC--"))
    tested = symmetry_tests(compress(read_alignment(source, "DNA")))
    assert np.isnan(tested.p_values).all()
