"""Every device in every layout computes what the NumPy reference computes.

The problems are random: trees, models, weights, gaps and lengths, with the corners that hurt
among them. Few combinations of states and categories, since each is a build.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from mltree.device.layout import cpu_layout, gpu_layout
from mltree.device.session import Session
from mltree.likelihood.likelihood import TreeLikelihood
from mltree.program import builders
from mltree.program.contract import NO_CELL
from mltree.program.engine import NO_CONTROL
from mltree.program.ops.edges import EvaluateSites
from mltree.treesearch.spr import Neighbourhood

if TYPE_CHECKING:
    from conftest import Problem

RELATIVE = 1e-9
"""fp64 on both sides: about 100 taxa times 1e-16, with room for cancelling sums."""

SIZES = ((4, 1), (4, 2), (2, 3), (4, 4), (4, 5), (20, 4), (61, 2))
"""States and categories: DNA, binary, protein and codon models; K from 1 to 5."""

OWN_SIZES = ((2, 3), (4, 2), (20, 4))
"""Those of patterns that have frequencies of their own."""

OWN_RELATIVE = 1e-6
"""Of derivatives there, and more where a frequency is small."""


FUZZ = settings(
    max_examples=40,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

Lengths = str


def stretch(problem: Problem, kind: Lengths, rng: np.random.Generator) -> None:
    """Give the trees lengths from a corner of their range."""
    for tree in problem.trees:
        if kind == "bounds":
            tree.lengths[:] = rng.choice([1e-6, 100.0], tree.n_edges)
        elif kind == "wide":
            tree.lengths[:] = 10.0 ** rng.uniform(-6, 2, tree.n_edges)
        elif kind == "zero":
            # A lone edge of length 0 never joins characters that differ.
            tree.lengths[rng.integers(tree.n_edges)] = 0.0


def with_gap_rows(problem: Problem, rows: int, rng: np.random.Generator) -> None:
    """Make whole sequences unknown, and one pattern."""
    codes = problem.patterns.codes
    codes[rng.permutation(len(codes))[:rows]] = problem.patterns.alphabet.gap_code
    if rows:
        codes[:, rng.integers(codes.shape[1])] = problem.patterns.alphabet.gap_code


def all_lengths(problem: Problem) -> np.ndarray:
    return np.concatenate([tree.lengths for tree in problem.trees])


def assert_same_sums(problem: Problem, device: TreeLikelihood, reference: TreeLikelihood) -> None:
    arguments = (problem.trees, problem.cases)
    expected = reference.log_likelihoods(*arguments)
    got = device.log_likelihoods(*arguments)
    np.testing.assert_allclose(got, expected, rtol=RELATIVE, atol=RELATIVE)
    for longest in (1, 3, problem.tree.n_tips):
        program = builders.walk(problem.trees, longest)
        walked = device.engine.run(program, all_lengths(problem), NO_CONTROL)
        np.testing.assert_allclose(walked.sums, expected, rtol=RELATIVE, atol=RELATIVE)
    of_sites = reference.site_log_likelihoods(problem.tree, problem.case)
    np.testing.assert_allclose(
        device.site_log_likelihoods(problem.tree, problem.case),
        of_sites,
        rtol=RELATIVE,
        atol=RELATIVE,
    )
    lnl, slope, curve = reference.derivatives(problem.tree, problem.case)
    got_lnl, got_slope, got_curve = device.derivatives(problem.tree, problem.case)
    assert got_lnl == pytest.approx(lnl, rel=RELATIVE, abs=RELATIVE)
    # Slopes cancel between patterns; the root of the curvature is as large as their terms.
    terms = np.sqrt(np.abs(curve)) + np.abs(slope) + 1
    least, noise, steepest = RELATIVE, 0.0, 0.0
    if problem.patterns.systems is not None:
        # A state of frequency p has an eigenvalue of 1 / p. Seen on both ends of a saturated branch
        # it leaves roundings of 1 / p^2 in the likelihood's terms, which slopes multiply by 1 / p.
        least, steepest = OWN_RELATIVE, np.abs(problem.patterns.systems.eigenvalues).max()
        noise = np.finfo(np.float64).eps * steepest**2
    assert np.max(np.abs(got_slope - slope) / terms) < least + noise * steepest
    assert (
        np.max(np.abs(got_curve - curve) / (np.abs(curve) + terms**2)) < least + noise * steepest**2
    )


@FUZZ
@given(
    size=st.sampled_from(
        [*((size, False) for size in SIZES), *((size, True) for size in OWN_SIZES)]
    ),
    tips=st.integers(4, 12),
    patterns=st.sampled_from([1, 2, 7, 8, 9, 40, 300]),
    trees=st.integers(1, 2),
    alpha=st.sampled_from([None, 0.02, 0.5, 100.0]),
    invariant=st.sampled_from([0.0, 0.3]),
    lengths=st.sampled_from(["usual", "bounds", "wide", "zero"]),
    gap_rows=st.integers(0, 3),
    seed=st.integers(0, 2**32 - 1),
)
@example(
    size=((4, 4), False), tips=4, patterns=1, trees=1, alpha=0.02, invariant=0.0, lengths="bounds",
    gap_rows=4, seed=0,
)  # fmt: skip
@example(
    size=((61, 2), False), tips=4, patterns=9, trees=2, alpha=None, invariant=0.0, lengths="zero",
    gap_rows=1, seed=1,
)  # fmt: skip
@example(
    size=((20, 4), False), tips=12, patterns=40, trees=1, alpha=0.5, invariant=0.3, lengths="wide",
    gap_rows=0, seed=2,
)  # fmt: skip
@example(
    size=((20, 4), True), tips=12, patterns=40, trees=2, alpha=0.5, invariant=0.3, lengths="wide",
    gap_rows=1, seed=2,
)  # fmt: skip
@example(
    size=((4, 2), True), tips=7, patterns=300, trees=1, alpha=0.5, invariant=0.0, lengths="bounds",
    gap_rows=0, seed=3,
)  # fmt: skip
def test_sums(
    open_device: Callable[..., Session],
    make_problem: Callable[..., Problem],
    likelihood: Callable[..., TreeLikelihood],
    reference: Callable[..., TreeLikelihood],
    size: tuple[tuple[int, int], bool],
    tips: int,
    patterns: int,
    trees: int,
    alpha: float | None,
    invariant: float,
    lengths: Lengths,
    gap_rows: int,
    seed: int,
) -> None:
    (states, categories), own = size
    problem = make_problem(
        tips, patterns, states=states, categories=categories, trees=trees, seed=seed,
        alpha=alpha, invariant=invariant if categories > 1 else 0.0, own_frequencies=own,
    )  # fmt: skip
    rng = np.random.default_rng(seed)
    stretch(problem, lengths, rng)
    with_gap_rows(problem, gap_rows, rng)
    assert_same_sums(problem, likelihood(open_device, problem), reference(problem))


@pytest.mark.parametrize(
    ("states", "categories", "own"),
    [
        *((*size, False) for size in ((4, 4), (4, 2), (2, 3), (4, 12), (20, 4), (61, 2))),
        *((*size, True) for size in OWN_SIZES),
    ],
)
def test_insertions_and_their_optima(
    open_device: Callable[..., Session],
    make_problem: Callable[..., Problem],
    likelihood: Callable[..., TreeLikelihood],
    reference: Callable[..., TreeLikelihood],
    states: int,
    categories: int,
    own: bool,
) -> None:
    problem = make_problem(
        9, (300 if states == 4 else 40) // (3 if own else 1), states=states,
        categories=categories, trees=2, own_frequencies=own,
    )  # fmt: skip
    found = Neighbourhood(problem.tree)
    scan = found.scan(found.extend(4))
    device, slow = likelihood(open_device, problem), reference(problem)
    scored = [engine.insertions(problem.trees, problem.cases, scan) for engine in (slow, device)]
    np.testing.assert_allclose(scored[1], scored[0], rtol=RELATIVE)
    part = found.scan(np.arange(0, found.size, 5))
    (lnl, lengths), (got_lnl, got_lengths) = (
        engine.refine(problem.trees, problem.cases, part) for engine in (slow, device)
    )
    np.testing.assert_allclose(got_lnl, lnl, rtol=RELATIVE)
    np.testing.assert_allclose(got_lengths, lengths, rtol=1e-6, atol=1e-9)
    joins = [
        engine.join_lengths(problem.trees, problem.cases, found.prunes) for engine in (slow, device)
    ]
    np.testing.assert_allclose(joins[1], joins[0], rtol=1e-6, atol=1e-9)


def test_smoothing(
    open_device: Callable[..., Session],
    make_problem: Callable[..., Problem],
    likelihood: Callable[..., TreeLikelihood],
    reference: Callable[..., TreeLikelihood],
) -> None:
    problem = make_problem(12, 300, trees=2)
    results = []
    for engine in (reference(problem), likelihood(open_device, problem)):
        trees = [tree.copy() for tree in problem.trees]
        results.append((engine.smooth(trees, problem.cases, 1e-3), trees))
    (lnl, trees), (got_lnl, got_trees) = results
    np.testing.assert_allclose(got_lnl, lnl, rtol=RELATIVE)
    for tree, got in zip(trees, got_trees, strict=True):
        np.testing.assert_allclose(got.lengths, tree.lengths, rtol=1e-6, atol=1e-9)


def test_the_scan_stores_what_it_scores(
    open_device: Callable[..., Session],
    make_problem: Callable[..., Problem],
    likelihood: Callable[..., TreeLikelihood],
) -> None:
    """One task's walk in full equals the same walk with most outputs left out."""
    problem = make_problem(9, 40)
    device = likelihood(open_device, problem)
    found = Neighbourhood(problem.tree)
    scan = found.scan(found.extend(6))
    every = device.insertions(problem.trees, problem.cases, scan)
    kept = np.arange(scan.outputs) % 7 == 3
    renumbered = np.where(kept, np.cumsum(kept) - 1, NO_CELL)
    output = renumbered[scan.output].astype(np.int32)
    sparse = replace(scan, output=output, outputs=int(kept.sum()))
    some = device.insertions(problem.trees, problem.cases, sparse)
    np.testing.assert_array_equal(some, every[kept])


@pytest.mark.parametrize("longest", [1, 10, 100])
@pytest.mark.parametrize("tips", [4, 9, 100])
def test_a_walk_is_a_traversal(
    open_device: Callable[..., Session],
    make_problem: Callable[..., Problem],
    likelihood: Callable[..., TreeLikelihood],
    tips: int,
    longest: int,
) -> None:
    problem = make_problem(tips, 300)
    device = likelihood(open_device, problem)
    expected = device.site_log_likelihoods(problem.tree, problem.case)
    program = builders.walk([problem.tree], longest, EvaluateSites)
    lnl = device.engine.run(program, problem.tree.lengths, NO_CONTROL).sums
    np.testing.assert_allclose(device.engine.site_log_likelihoods()[0], expected, rtol=RELATIVE)
    np.testing.assert_allclose(lnl, problem.patterns.weights @ expected, rtol=RELATIVE)


SINGLE_TOLERANCE = 2e-6
"""Relative, of lnL: fp32 CLAs of a dozen taxa, sums in doubles."""


def test_single_precision_is_close(
    open_native: Callable[..., Session],
    make_problem: Callable[..., Problem],
    likelihood: Callable[..., TreeLikelihood],
    reference: Callable[..., TreeLikelihood],
) -> None:
    problem = make_problem(12, 300, alpha=0.5)
    patterns = problem.patterns
    size = (4, patterns.alphabet.n_codes, problem.categories)
    session = open_native(patterns, problem.categories)
    is_cpu = session.layout.lanes == 1
    layout = cpu_layout(*size, 8, True) if is_cpu else gpu_layout(*size, 8, True, 4)
    device = likelihood(open_native, problem, layout=layout)
    np.testing.assert_allclose(
        device.log_likelihoods(problem.trees, problem.cases),
        reference(problem).log_likelihoods(problem.trees, problem.cases),
        rtol=SINGLE_TOLERANCE,
    )
    no_doubles = likelihood(open_native, problem, layout=replace(layout, fp64=False))
    np.testing.assert_allclose(
        no_doubles.log_likelihoods(problem.trees, problem.cases),
        reference(problem).log_likelihoods(problem.trees, problem.cases),
        rtol=SINGLE_TOLERANCE,
    )
