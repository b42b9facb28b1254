"""UniFrac on devices: the bits of the reference, whatever the tiles and the split of branches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mltree.device.unifrac as module
from mltree.device.discovery import find_devices
from mltree.device.unifrac import DeviceUnifrac
from mltree.diversity.branches import Samples, place
from mltree.diversity.table import table_of
from mltree.diversity.unifrac import Metric, ReferenceUnifrac, UnifracProblem, metrics_of

EVERY = [
    *metrics_of("unweighted,unweighted_unnormalized,weighted,weighted_unnormalized"),
    *metrics_of("generalized", "0,0.3,0.5,1"),
    *metrics_of("unweighted,weighted,weighted_unnormalized,generalized", "0.25", adjusted=True),
    *metrics_of("weighted,weighted_unnormalized,generalized", "0.5", absolute=True),
]


def random_samples(seed: int, samples: int, tips: int) -> Samples:
    """Samples on a random tree with polytomies; two of them are equal."""
    rng = np.random.default_rng(seed)
    nodes = [f"t{tip}" for tip in range(tips)]
    while len(nodes) > 1:
        picked = rng.choice(len(nodes), min(len(nodes), int(rng.choice([2, 2, 2, 4]))), False)
        joined = ",".join(f"{nodes[i]}:{rng.exponential():.17g}" for i in picked)
        nodes = [node for i, node in enumerate(nodes) if i not in picked] + [f"({joined})"]
    prevalence = rng.random(tips) ** 3
    counts = rng.poisson(3.0, (samples, tips)) * (rng.random((samples, tips)) < prevalence)
    counts[np.arange(samples), rng.integers(0, tips, samples)] += 1
    counts[-1] = counts[0]
    table = table_of((counts, range(samples), [f"t{tip}" for tip in range(tips)]))
    return place(table, nodes[0] + ";")


@pytest.fixture(scope="module")
def device() -> object:
    return find_devices()[0].handle


@pytest.mark.parametrize("single", [False, True], ids=["double", "single"])
@pytest.mark.parametrize("metric", EVERY, ids=lambda metric: metric.label)
def test_bits_of_the_reference(metric: Metric, single: bool, device: object) -> None:
    samples = random_samples(len(metric.label), 70, 60)
    problem = UnifracProblem(samples, metric, single)
    engine, reference = DeviceUnifrac(problem, device), ReferenceUnifrac(problem)
    for rows, columns in ((slice(0, 70), slice(0, 70)), (slice(3, 40), slice(33, 70))):
        tile = engine.tile(rows, columns)
        assert tile.dtype == problem.kind
        assert (tile == reference.tile(rows, columns)).all()
    assert engine.tile(slice(0, 1), slice(69, 70)) == 0
    assert (engine.faith() == reference.faith()).all() or not metric.is_plain


@pytest.mark.parametrize("common", [0.0, 0.2, 0.6, 2.0])
@pytest.mark.parametrize("build", [module.CPU, module.GPU], ids=["vectors", "work-items"])
def test_split_and_shape_change_no_bit(
    common: float, build: Any, device: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU's groups are run on a CPU too."""
    span = 128 if build is module.CPU else build.items
    monkeypatch.setattr(module, "CPU", build._replace(common=common, span=span))
    samples = random_samples(5, 300, 90)
    every = slice(0, 300)
    for metric in (Metric("unweighted"), Metric("weighted_normalized")):
        problem = UnifracProblem(samples, metric)
        engine = module.DeviceUnifrac(problem, device)
        assert (engine.tile(every, every) == ReferenceUnifrac(problem).tile(every, every)).all()


@pytest.mark.parametrize("metric", metrics_of("generalized", "0.3", adjusted=True))
def test_general_terms_by_work_items(
    metric: Metric, device: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CPU", module.GPU)
    samples = random_samples(6, 150, 60)
    problem, every = UnifracProblem(samples, metric), slice(0, 150)
    tile = module.DeviceUnifrac(problem, device).tile(every, every)
    assert (tile == ReferenceUnifrac(problem).tile(every, every)).all()


def test_single_is_close() -> None:
    samples = random_samples(1, 80, 200)
    for metric in EVERY:
        if not metric.is_normalised:
            continue
        every = slice(0, 80)
        two = (
            ReferenceUnifrac(UnifracProblem(samples, metric, single)).tile(every, every)
            for single in (False, True)
        )
        assert abs(np.subtract(*two)).max() < 1e-5
