"""Screened fits against all fits taken to their ends."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mltree.analyses.simulate import evolve
from mltree.data.alphabet import DNA
from mltree.data.patterns import Patterns
from mltree.fit.coordinate_ascent import SCREENING_MARGIN, ascend, ascend_promising, within_reach
from mltree.fit.fits import Fit
from mltree.likelihood.likelihood import TreeLikelihood
from mltree.likelihood.requests import perform
from mltree.models.grammar import parse_model
from mltree.models.parameters import free_parameters
from mltree.models.partitioned import alone
from mltree.runs.engines import Engines, Resources, Workload
from mltree.runs.model_choice import FITTING, matrices
from mltree.tree.topology import Tree, uniform_tree

SITES = 400
SHORT_STEP = 10.0
"""Of a score: what a choice looks at again."""

COARSE = 0.1
"""lnL that either way may lack."""

TRUTHS = ("JC", "HKY{6}+FU{0.4/0.1/0.2/0.3}")


class Data:
    """Two parts that evolved under one tree, and matrices to fit to each from other lengths."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng([seed, 1417])
        self.tree = uniform_tree(int(rng.integers(6, 10)), 0.15, rng)
        every = [evolve(self.tree, parse_model(text, DNA).arrays(), SITES, rng) for text in TRUTHS]
        codes = DNA.state_codes[np.concatenate(every, axis=1)]
        self.patterns = Patterns(
            taxa=tuple(f"t{n}" for n in range(len(codes))), codes=codes,
            weights=np.ones(codes.shape[1]), alphabet=DNA, ends=(SITES, 2 * SITES),
            site_pattern=np.arange(codes.shape[1], dtype=np.int32),
        )  # fmt: skip
        self.likelihood: TreeLikelihood = Engines(
            Resources(), Workload.of_patterns(self.patterns, 1, FITTING.branches.bounds(SITES))
        ).likelihood
        self.tree.lengths *= np.exp(rng.normal(0.0, 0.3, self.tree.n_edges))
        shares = [np.bincount(own[own < 4].ravel(), minlength=4) / own.size for own in every]
        named = [parse_model(name.replace("+FC", "+FE"), DNA) for name in matrices(DNA)]
        self.models = [
            [
                replace(model, frequencies=share) if "+FC" in name else model
                for name, model in zip(matrices(DNA), named, strict=True)
            ]
            for share in shares
        ]
        free = [free_parameters(parse_model(name, DNA)) for name in matrices(DNA)]
        self.penalties = np.log(SITES) * np.array(free, np.float64)

    def fits(self, parts: tuple[int, ...]) -> list[Fit]:
        """Of every matrix to each part, at its start."""
        return [self._fit(part, n) for part in parts for n in range(len(self.penalties))]

    def _fit(self, part: int, n: int) -> Fit:
        tree = Tree(self.tree.twin, self.tree.edge, self.tree.lengths.copy(), self.tree.n_tips)
        return Fit(tree, alone(self.models[part][n]), first_part=part)

    def screened(self, parts: tuple[int, ...]) -> list[float]:
        """LnLs of all."""
        fits, penalties = self.fits(parts), np.tile(self.penalties, len(parts))
        ascend_promising(self.likelihood, fits, penalties, np.full(2, np.inf), FITTING)
        return [fit.lnl for fit in fits]


@pytest.mark.cases(2, 40)
def test_none_is_left_that_ends_near_the_best(case: int) -> None:
    data = Data(case)
    for part in (0, 1):
        every = data.fits((part,))
        perform(data.likelihood, ascend(every, FITTING))
        ends, found = np.array([fit.lnl for fit in every]), np.array(data.screened((part,)))
        scores = data.penalties - 2.0 * ends
        near = scores <= scores.min() + SHORT_STEP
        np.testing.assert_allclose(found[near], ends[near], atol=COARSE)
        assert (found <= ends + COARSE).all()


def test_what_is_far_from_the_best_is_left() -> None:
    data = Data(1)
    every = data.fits((1,))
    perform(data.likelihood, ascend(every, FITTING))
    lacking = np.array([fit.lnl for fit in every]) - data.screened((1,))
    assert lacking.max() > 1.0


def test_parts_do_not_look_at_each_other() -> None:
    data = Data(2)
    together = data.screened((0, 1))
    np.testing.assert_allclose(together, data.screened((0,)) + data.screened((1,)), rtol=1e-9)


def test_each_part_has_a_best_of_its_own() -> None:
    """Of fits in any order; a penalty counts like lnL, twice."""
    tree, model = uniform_tree(4, 0.1, np.random.default_rng(1)), alone(parse_model("JC", DNA))
    low = -900.0 - SCREENING_MARGIN / 2
    rows = [
        (0, -100.0, 0.0), (1, -900.0, 0.0), (0, -100.0, SCREENING_MARGIN),
        (0, -100.0, SCREENING_MARGIN + 0.1), (1, low, 0.1), (1, low, 0.0), (3, -5000.0, 70.0),
    ]  # fmt: skip
    fits = [Fit(tree, model, first_part=part, lnl=lnl) for part, lnl, _ in rows]
    near = within_reach(fits, np.array([penalty for *_, penalty in rows]))
    assert near.tolist() == [True, True, True, False, False, True, True]
