import numpy as np
import pytest
from scipy.stats import chisquare, multinomial, multivariate_hypergeom

from mltree.supports import resampling
from mltree.supports.resampling import Resampling, SamplingScheme, share_error
from mltree.system.errors import InputError
from mltree.system.process import Threads, parallel_map

WEIGHTS = np.array([3.0, 1.0, 4.0, 0.0, 12.0, 5.0])
PARTS = (slice(0, 3), slice(3, 6))


def draws(scale: float = 1.0, in_blocks: bool = False) -> Resampling:
    return Resampling(WEIGHTS, PARTS, 1, "trees", scale, in_blocks)


@pytest.fixture(params=["one by one", "by counts", "by counts that are too many"])
def _how(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sites are drawn one by one; or most as Poisson counts, which sum to less, or to more."""
    if request.param != "one by one":
        monkeypatch.setattr(resampling, "MANY", 4)
        monkeypatch.setattr(resampling, "MANY_IN_BLOCKS", 4)
        monkeypatch.setattr(resampling, "RESERVE", 1.0 if request.param == "by counts" else -1.0)


@pytest.fixture(params=[False, True])
def in_blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether replicates come in blocks, of seven."""
    monkeypatch.setattr(resampling, "BLOCK", 7)
    return bool(request.param)


@pytest.mark.usefixtures("_how")
def test_a_replicate_is_the_same_whatever_is_drawn_beside_it(in_blocks: bool) -> None:
    together = draws(in_blocks=in_blocks).rows(range(40))
    used = draws(in_blocks=in_blocks)
    for replicate in (17, 3, 39):
        np.testing.assert_array_equal(
            used.rows(range(replicate, replicate + 1))[0], together[replicate]
        )
    np.testing.assert_array_equal(
        np.concatenate([batch.copy() for batch in draws(in_blocks=in_blocks).batches(40)]), together
    )
    np.testing.assert_array_equal(used.rows(range(5, 32)), together[5:32])
    assert len({row.tobytes() for row in together}) > 25


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((7, 1, 64, 1), [7] * 5 + [5]),
        ((7, 9, 64, 1), [9] * 4 + [4]),
        ((7, 9, 64, 2), [18] * 2 + [4]),
        ((0, 9, 2, 2), [2] * 20),
    ],
)
def test_batches_are_as_large_as_memory_allows(
    monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, int, int, int], expected: list[int]
) -> None:
    """Rows that fit the cheap batch, that a product wants at least, and that memory allows it."""
    cheap, least, most, cpus = sizes
    monkeypatch.setattr(resampling, "threads", lambda: Threads(cpus, "--threads", cpus))
    monkeypatch.setattr(resampling, "BATCH_BYTES", 2 * WEIGHTS.size * cheap)
    monkeypatch.setattr(resampling, "LEAST_ROWS", least)
    monkeypatch.setattr(resampling, "MOST_BYTES", 2 * WEIGHTS.size * most)
    batches = [batch.copy() for batch in draws().batches(40)]
    assert [len(batch) for batch in batches] == expected
    np.testing.assert_array_equal(np.concatenate(batches), draws().rows(range(40)))


def test_threads_draw_the_same(monkeypatch: pytest.MonkeyPatch, in_blocks: bool) -> None:
    alone = draws(in_blocks=in_blocks).rows(range(5, 45))
    monkeypatch.setattr(resampling, "SHARE", 100)
    monkeypatch.setattr(resampling, "APART", 1)
    monkeypatch.setattr(resampling, "threads", lambda: Threads(3, "--threads", 3))
    shares = []
    monkeypatch.setattr(
        resampling,
        "parallel_map",
        lambda work, own, at_once: shares.append(at_once) or parallel_map(work, own, at_once),
    )
    np.testing.assert_array_equal(draws(in_blocks=in_blocks).rows(range(5, 45)), alone)
    assert shares == [3]


def test_replicates_seeds_and_names_differ() -> None:
    weights, parts = np.ones(50), [slice(0, 50)]
    kinds = ((1, "trees"), (2, "trees"), (1, "branches"))
    drawn = [Resampling(weights, parts, *kind).rows(range(20)) for kind in kinds]
    drawn.append(Resampling(weights, parts, 1, "trees").rows(range(20, 40)))
    assert len({row.tobytes() for row in np.concatenate(drawn)}) == 80


@pytest.mark.usefixtures("_how")
@pytest.mark.parametrize("scale", [0.5, 1.0, 1.4])
def test_every_part_keeps_its_sites_and_patterns_their_shares(
    scale: float, in_blocks: bool
) -> None:
    rows = draws(scale, in_blocks).rows(range(4000))
    for part in PARTS:
        sites = WEIGHTS[part].sum()
        size = round(scale * sites)
        assert (rows[:, part].sum(axis=1) == size).all()
        share = WEIGHTS[part] / sites
        error = np.sqrt(size * share * (1 - share) / len(rows))
        assert (np.abs(rows[:, part].mean(axis=0) - size * share) <= 5 * error).all()
        spread = rows[:, part].var(axis=0)
        np.testing.assert_allclose(spread, size * share * (1 - share), rtol=0.15)


@pytest.mark.usefixtures("_how")
def test_replicates_are_multinomial(in_blocks: bool) -> None:
    """Every outcome of five draws from three patterns, against its probability."""
    weights, sites = np.array([1.0, 2.0, 3.0]), 6
    drawn = Resampling(weights, [slice(0, 3)], 3, "trees", 5 / 6, in_blocks)
    rows = drawn.rows(range(20_000))
    outcomes = np.array([[a, b, 5 - a - b] for a in range(6) for b in range(6 - a)])
    found = [(rows == outcome).all(axis=1).sum() for outcome in outcomes]
    expected = multinomial.pmf(outcomes, 5, weights / sites) * len(rows)
    assert sum(found) == len(rows)
    assert chisquare(found, expected).pvalue > 1e-4


@pytest.mark.parametrize(("most", "kind"), [(12.0, np.uint16), (70_000.0, np.uint32)])
def test_rows_below_those_of_the_data(most: float, kind: type) -> None:
    weights = np.array([3.0, most, 1.0])
    drawn = Resampling(weights, [slice(0, 3)], 1, "trees")
    rows = drawn.below_data(7)
    assert rows.dtype == kind
    np.testing.assert_array_equal(rows[0], weights)
    np.testing.assert_array_equal(rows[1:], drawn.rows(range(1, 8)))


def test_few_sites_are_drawn_one_by_one_at_a_time() -> None:
    """Beside a part that is drawn by counts too: those of short parts may be many more."""
    weights = np.array([20_000.0, *[250.0] * 300])
    parts = [slice(n, n + 1) for n in range(weights.size)]
    drawn = Resampling(weights, parts, 1, "trees", in_blocks=True)
    assert drawn._counts is not None
    assert drawn._block == 1
    np.testing.assert_array_equal(drawn.rows(range(3)), [weights] * 3)


def test_the_error_of_a_share_is_a_binomial_one() -> None:
    assert share_error(np.array([0.2]), 100)[0] == pytest.approx(0.04)


def drawn(text: str, count: int = 4000) -> np.ndarray:
    """Replicates of a scheme, i64 [R, L]."""
    scheme = SamplingScheme.of(text)
    rows = Resampling(WEIGHTS, PARTS, 3, "trees", scheme=scheme).rows(range(count))
    assert (rows[:, WEIGHTS == 0] == 0).all()
    return rows.astype(int)


def test_genes_are_whole_parts_with_replacement() -> None:
    rows = drawn("genes")
    times = rows[:, [0, 4]] // WEIGHTS[[0, 4]].astype(int)
    assert (rows == np.repeat(times, 3, axis=1) * WEIGHTS).all()
    assert (times.sum(axis=1) == 2).all()
    shares = np.bincount(times[:, 0], minlength=3)
    assert chisquare(shares, len(rows) * np.array([0.25, 0.5, 0.25])).pvalue > 1e-4
    assert (drawn("GENE", 9) == rows[:9]).all()


def test_sites_of_drawn_genes_are_drawn_again() -> None:
    rows = drawn("genes-sites")
    sizes = np.stack([rows[:, part].sum(axis=1) for part in PARTS], axis=1)
    times = sizes // [8, 17]
    assert (times * [8, 17] == sizes).all()
    assert (times.sum(axis=1) == 2).all()
    mean = rows.mean(axis=0)
    assert np.allclose(mean, WEIGHTS, atol=0.5)
    once = rows[times[:, 0] == 1][:, :3]
    assert np.allclose(once.var(axis=0), multinomial(8, WEIGHTS[:3] / 8).cov().diagonal(), rtol=0.1)
    assert (drawn("GENESITE", 9) == rows[:9]).all()


@pytest.mark.parametrize(("text", "kept"), [("jackknife", (4, 8)), ("jackknife{0.25}", (6, 13))])
def test_a_jackknife_draws_no_site_twice(text: str, kept: tuple[int, int]) -> None:
    rows = drawn(text)
    assert (rows <= WEIGHTS).all()
    for part, number in zip(PARTS, kept, strict=True):
        assert (rows[:, part].sum(axis=1) == number).all()
        weights = WEIGHTS[part]
        law = multivariate_hypergeom(weights.astype(int), number)
        assert np.allclose(rows[:, part].mean(axis=0), law.mean(), atol=0.1)
        assert np.allclose(rows[:, part].var(axis=0), law.cov().diagonal(), atol=0.1)


@pytest.mark.parametrize("text", ["jackknife{1.5}", "jackknife{0.0}", "bayes", "genes{0.5}"])
def test_other_schemes_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="no such scheme"):
        SamplingScheme.of(text)
