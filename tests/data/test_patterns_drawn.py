"""What replicates drew: their own patterns, and gaps up to the size of a slot."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mltree.data.alphabet import DNA
from mltree.data.patterns import Patterns, drawn, empty_replicate_slots, usual_sizes
from mltree.supports.resampling import Resampling

TAXA = 5
SIZES = (40, 1, 0, 25)
"""Patterns of the parts; a part may have none."""


@pytest.fixture
def patterns() -> Patterns:
    rng, count = np.random.default_rng(3), sum(SIZES)
    weights = rng.choice([1.0, 1.0, 1.0, 9.0], count)
    return Patterns(
        taxa=tuple("abcde"),
        codes=rng.integers(1, 9, (TAXA, count)).astype(np.uint8),
        weights=weights,
        site_pattern=np.repeat(np.arange(count, dtype=np.int32), weights.astype(int)),
        alphabet=DNA,
        ends=tuple(np.cumsum(SIZES).tolist()),
    )


@pytest.mark.cases(4, 100)
def test_a_slot_has_what_was_drawn_and_gaps(patterns: Patterns, case: int) -> None:
    (weights,) = Resampling.of([patterns], 1, "x").rows(range(case, case + 1))
    sizes = [np.count_nonzero(weights[part]) + 3 * n for n, part in enumerate(patterns.parts)]
    found = drawn(patterns, weights, sizes)
    assert [part.stop - part.start for part in found.parts] == sizes
    for own, part in zip(found.parts, patterns.parts, strict=True):
        has, is_drawn = found.weights[own] > 0, weights[part] > 0
        np.testing.assert_array_equal(found.weights[own][has], weights[part][is_drawn])
        np.testing.assert_array_equal(
            found.codes[:, own][:, has], patterns.codes[:, part][:, is_drawn]
        )
        assert not has[np.count_nonzero(is_drawn) :].any()
        assert (found.codes[:, own][:, ~has] == DNA.gap_code).all()


def test_more_than_a_slot_has_room_for_is_refused(patterns: Patterns) -> None:
    with pytest.raises(ValueError, match="40 patterns for a replicate slot of 39"):
        drawn(patterns, patterns.weights, [39, 1, 0, 25])


def test_empty_slots_lie_one_after_the_other(patterns: Patterns) -> None:
    slots = empty_replicate_slots(patterns, [7, 1, 0, 4], 3)
    assert [part.stop - part.start for part in slots.parts] == [7, 1, 0, 4] * 3
    assert slots.codes.shape == (TAXA, 36)
    assert (slots.codes == DNA.gap_code).all()
    assert not slots.weights.any()
    lone = replace(patterns, ends=())
    assert len(empty_replicate_slots(lone, [7], 1).parts) == 1
    assert empty_replicate_slots(lone, [7], 2).ends == (7, 14)


def test_no_replicate_has_more_than_the_usual_size(patterns: Patterns) -> None:
    """And some of 2,000 have nearly as many."""
    rows = Resampling.of([patterns], 2, "x").rows(range(1, 2001)) > 0
    for part, size in zip(patterns.parts, usual_sizes(patterns), strict=True):
        counts = rows[:, part].sum(axis=1)
        assert 0.8 * size <= counts.max(initial=0) <= size <= part.stop - part.start


def test_the_most_patterns_of_some_replicates(patterns: Patterns) -> None:
    resampling = Resampling.of([patterns], 2, "x")
    rows = resampling.rows(range(10)) > 0
    every = [[int(row[part].sum()) for part in patterns.parts] for row in rows]
    assert resampling.most_patterns([4]) == every[4]
    assert resampling.most_patterns([7, 2, 9]) == np.max([every[n] for n in (7, 2, 9)], 0).tolist()
