"""Devices make the trees that NumPy makes, to the last tie."""

from dataclasses import replace

import numpy as np
import pytest

from mltree.data.alphabet import DNA, PROTEIN, Alphabet
from mltree.data.patterns import Patterns
from mltree.device import parsimony as module
from mltree.device.discovery import DeviceInfo, find_devices
from mltree.device.parsimony import DeviceParsimony
from mltree.tree.fitch import InformativeSites, PackedSites, pack_sites
from mltree.tree.parsimony import (
    REFERENCE,
    ParsimonyEngine,
    improve,
    parsimony_score,
    parsimony_trees,
    reweighted_trees,
    stepwise_additions,
)
from mltree.tree.topology import Tree, random_topology

EVERY_DEVICE = pytest.mark.parametrize("info", find_devices(), ids=lambda info: str(info.index))


@pytest.fixture
def engine(info: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> DeviceParsimony:
    """Of one device, which leaves nothing to NumPy."""
    monkeypatch.setattr(module, "LEAST_WORK", 0)
    return DeviceParsimony(info.handle)


def random_patterns(rng: np.random.Generator, alphabet: Alphabet) -> Patterns:
    """Of 3 to 40 taxa: few states and many, ambiguities, gaps, weights from 0 to 9."""
    n_tips, n_patterns = int(rng.integers(3, 41)), int(rng.integers(1, 400))
    first = 1 if alphabet is DNA else 0
    top = rng.integers(first + 1, alphabet.n_codes + 1, size=n_patterns)
    codes = rng.integers(first, top, size=(n_tips, n_patterns)).astype(np.uint8)
    codes[rng.random(codes.shape) < rng.choice([0, 0.2])] = alphabet.gap_code
    weights = rng.integers(0, 10, n_patterns)
    return Patterns(
        taxa=tuple(f"t{tip}" for tip in range(n_tips)),
        codes=codes,
        weights=weights.astype(np.float64),
        site_pattern=np.repeat(np.arange(n_patterns), weights).astype(np.int32),
        alphabet=alphabet,
    )


@EVERY_DEVICE
def test_a_cpu_begins_when_numpy_has_done_enough(
    info: DeviceInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One replicate after another is little work each; a GPU leaves it to NumPy."""
    sites = pack_sites(random_patterns(np.random.default_rng(8), DNA))
    work = 2 * sites.n_tips**2 * len(sites.tips)
    monkeypatch.setattr(module, "LEAST_WORK", 3 * work)
    engine = DeviceParsimony(info.handle)
    launched: list[str] = []
    launch = engine.launch
    monkeypatch.setattr(
        engine,
        "launch",
        lambda queue, name, *rest: launched.append(name) or launch(queue, name, *rest),
    )
    before = []
    for _ in range(5):
        rngs = [np.random.default_rng(n) for n in range(2)]
        trees = stepwise_additions(sites, rngs, engine=engine)
        assert_equal(trees, stepwise_additions(sites, [np.random.default_rng(n) for n in range(2)]))
        before.append(len(launched))
    assert before == ([0, 0, 1, 2, 3] if engine.is_cpu else [0] * 5)


def assert_equal(trees: list[Tree], others: list[Tree]) -> None:
    for tree, other in zip(trees, others, strict=True):
        np.testing.assert_array_equal(tree.twin, other.twin)
        np.testing.assert_array_equal(tree.edge, other.edge)


@EVERY_DEVICE
@pytest.mark.parametrize("alphabet", [DNA, PROTEIN], ids=["DNA", "AA"])
@pytest.mark.cases(6, 200)
def test_trees_are_those_of_numpy(engine: DeviceParsimony, alphabet: Alphabet, case: int) -> None:
    rng = np.random.default_rng(case)
    sites = pack_sites(random_patterns(rng, alphabet))
    makers: list[ParsimonyEngine] = [REFERENCE, engine]
    rngs = [np.random.default_rng(case + n) for n in range(5)]
    seeds = [rng.bit_generator.state for rng in rngs]
    made = []
    for maker in makers:
        for own, state in zip(rngs, seeds, strict=True):
            own.bit_generator.state = state
        made.append(stepwise_additions(sites, rngs, engine=maker))
    assert_equal(*made)
    worse = [random_topology(sites.n_tips, rng) for _ in range(3)]
    better = [[tree.copy() for tree in [*grown, *worse]] for grown in made]
    scores = [
        improve(trees, sites, engine=maker) for trees, maker in zip(better, makers, strict=True)
    ]
    assert_equal(*better)
    assert scores[0].tolist() == scores[1].tolist()
    assert scores[1].tolist() == [parsimony_score(tree, sites) for tree in better[1]]


@EVERY_DEVICE
def test_rows_of_weights_have_the_trees_of_numpy(engine: DeviceParsimony) -> None:
    rng = np.random.default_rng(3)
    patterns = random_patterns(rng, DNA)
    patterns = replace(patterns, weights=np.maximum(patterns.weights, 1))
    share = patterns.weights / patterns.weights.sum()
    rows = rng.multinomial(int(patterns.weights.sum()), share, size=7).astype(np.float64)
    sites = InformativeSites.of(patterns)
    trees = [
        reweighted_trees(sites, rows, [np.random.default_rng(n) for n in range(7)], engine=maker)
        for maker in (REFERENCE, engine)
    ]
    assert_equal(*trees)


@EVERY_DEVICE
def test_walks_that_find_little_room_take_turns(
    engine: DeviceParsimony, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ROOM_BYTES", 1)
    sites = pack_sites(random_patterns(np.random.default_rng(8), DNA))
    rng, other = np.random.default_rng(1), np.random.default_rng(1)
    assert_equal(parsimony_trees(sites, 3, rng), parsimony_trees(sites, 3, other, engine=engine))


@EVERY_DEVICE
def test_more_changes_than_a_device_counts_are_left_to_numpy(engine: DeviceParsimony) -> None:
    codes = np.array([[1, 1], [1, 2], [2, 1], [2, 2]], np.uint64)
    tips = (codes[:, :1].T, codes[:, 1:].T)
    sites = PackedSites(np.concatenate(tips), (1, 1), np.array([2.0**28]), 0.0)
    rng, other = np.random.default_rng(1), np.random.default_rng(1)
    trees = stepwise_additions(sites, [rng])
    assert_equal(trees, stepwise_additions(sites, [other], engine=engine))
    assert improve(trees, sites, engine=engine) == improve(trees, sites)
