"""One likelihood from every engine: equal ones agree, and a wrong one is named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from mltree.analyses.check import TOLERANCE, is_close, is_ok, score_everywhere, self_test
from mltree.data.alphabet import DNA
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
