import numpy as np
import pytest

from mltree.supports.resampling import Resampling, share_error

WEIGHTS = np.array([3.0, 1.0, 4.0, 0.0, 12.0, 5.0])
PARTS = (slice(0, 3), slice(3, 6))


def draws(seed: int = 1, name: str = "trees") -> Resampling:
    return Resampling(WEIGHTS, PARTS, seed, name)


def test_a_replicate_is_the_same_whatever_is_drawn_beside_it() -> None:
    together = draws().rows(range(40))
    used = draws()
    for replicate in (17, 3, 39):
        np.testing.assert_array_equal(
            used.rows(range(replicate, replicate + 1))[0], together[replicate]
        )
    np.testing.assert_array_equal(np.concatenate(list(draws().batches(40))), together)


def test_batches_are_as_large_as_memory_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mltree.supports.resampling.BATCH_BYTES", 8 * WEIGHTS.size * 7)
    batches = list(draws().batches(40))
    assert [len(batch) for batch in batches] == [7, 7, 7, 7, 7, 5]
    np.testing.assert_array_equal(np.concatenate(batches), draws().rows(range(40)))


def test_replicates_seeds_and_names_differ() -> None:
    weights, parts = np.ones(50), [slice(0, 50)]
    kinds = ((1, "trees"), (2, "trees"), (1, "branches"))
    drawn = [Resampling(weights, parts, *kind).rows(range(20)) for kind in kinds]
    drawn.append(Resampling(weights, parts, 1, "trees").rows(range(20, 40)))
    assert len({row.tobytes() for row in np.concatenate(drawn)}) == 80


@pytest.mark.parametrize("scale", [0.5, 1.0, 1.4])
def test_every_part_keeps_its_sites_and_patterns_their_shares(scale: float) -> None:
    rows = draws().rows(range(4000), scale)
    for part in PARTS:
        sites = WEIGHTS[part].sum()
        size = round(scale * sites)
        assert (rows[:, part].sum(axis=1) == size).all()
        share = WEIGHTS[part] / sites
        error = np.sqrt(size * share * (1 - share) / len(rows))
        assert (np.abs(rows[:, part].mean(axis=0) - size * share) <= 5 * error).all()
        spread = rows[:, part].var(axis=0)
        np.testing.assert_allclose(spread, size * share * (1 - share), rtol=0.15)


def test_the_error_of_a_share_is_a_binomial_one() -> None:
    assert share_error(np.array([0.2]), 100)[0] == pytest.approx(0.04)
