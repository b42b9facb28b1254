"""Which matrices are worth a try where parts become one, on tables made up."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mltree.data.alphabet import DNA
from mltree.models.grammar import parse_model
from mltree.runs.model_choice import (
    CandidateModel,
    Criterion,
    RankedModels,
    ScoredModel,
    matrices_near,
)
from mltree.tree.topology import uniform_tree

FREE = {"JC": 0, "K80": 1, "SYM": 5}


def table(sites: int, lnls: dict[str, tuple[float, float]]) -> RankedModels:
    """A part's choice: lnLs of matrices without rates among sites, and under +G4."""
    choice = RankedModels("part", Criterion.BIC)
    tree = uniform_tree(4, 0.1, np.random.default_rng(1))
    for matrix, own in lnls.items():
        for number, (rates, lnl) in enumerate(zip(("", "+G4"), own, strict=True)):
            name = matrix + rates
            choice.scored[name] = ScoredModel(
                CandidateModel(matrix, rates), lnl, 5 + FREE[matrix] + number, sites,
                parse_model(name, DNA), tree, whole=True,
            )  # fmt: skip
    return choice


def test_they_are_those_near_the_best_by_the_sum_of_the_parts_lnls() -> None:
    """SYM costs 5 more parameters than JC, once: 2 lnL a part are worth that in four parts."""
    part = {"JC": (-1000.0, -990.0), "K80": (-999.9, -989.9), "SYM": (-992.0, -982.0)}
    alone, four = table(100, part), [table(100, part) for _ in range(4)]
    assert alone.best.candidate.matrix == "JC"
    assert matrices_near([alone], 1.0) == ["JC"]
    assert set(matrices_near(four, 1.0)) == {"JC", "SYM"}, "JC is the best of every part"
    # SYM has 4 x 7.9 lnL more than K80, and 4 more parameters
    behind = 2 * 4 * 7.9 - 4 * math.log(400)
    assert set(matrices_near(four, behind - 1e-6)) == {"JC", "SYM"}
    assert set(matrices_near(four, behind + 1e-6)) == {"JC", "K80", "SYM"}


@pytest.mark.parametrize("sites", [50, 500])
def test_the_best_of_each_part_is_among_them(sites: int) -> None:
    """However far from the best of all, which is found under whatever rates suit a part best."""
    one = table(sites, {"JC": (-500.0, -500.0), "K80": (-499.0, -499.0), "SYM": (-100.0, -90.0)})
    other = table(sites, {"JC": (-200.0, -205.0), "K80": (-200.0, -205.0), "SYM": (-199.9, -205.0)})
    assert other.best.name == "JC"
    assert set(matrices_near([one, other], 0.0)) == {"SYM", "JC"}
    assert matrices_near([one], 0.0) == ["SYM"]
