"""One likelihood from every engine that there is: each device in two layouts, and the reference."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from mltree.alignment.alphabet import DNA
from mltree.alignment.patterns import Patterns
from mltree.device.discovery import REFERENCE, DeviceInfo, find_devices
from mltree.errors import MltreeError
from mltree.events.run import EngineScore
from mltree.likelihood.cases import Case
from mltree.model.grammar import parse_model
from mltree.model.partitioned import PartitionModel
from mltree.placement import Placement, Resources, place
from mltree.settings import BranchSettings
from mltree.tree.random_trees import random_topology
from mltree.tree.topology import Tree

__all__ = [
    "MIXED_TOLERANCE",
    "TOLERANCE",
    "is_close",
    "is_ok",
    "score_everywhere",
    "self_test",
]

TOLERANCE = 1e-9
"""Relative difference in lnL between two fp64 engines: rounding over some 1e4 patterns, with room.
The tests ask for the same."""

MIXED_TOLERANCE = 1e-5
"""The same with fp32 likelihoods."""

OK = "ok"
"""How the verdict on a device begins that computes what the reference does."""

REPETITIONS = 5
"""Timed evaluations; the shortest counts."""

AVX_WIDTH = 1
"""VW of RAxML's AVX layout."""

NARROW_ON_GPU = 8
"""Patterns of a block that a GPU is compared in; its work-items need neighbours to read with."""


def score_everywhere(
    patterns: Patterns, tree: Tree, model: PartitionModel, mixed: bool
) -> Iterator[EngineScore]:
    """The reference's score, then every device's in two layouts."""
    yield _score("NumPy reference", Resources(device=REFERENCE), patterns, tree, model)
    for device in find_devices():
        for vw in _widths(device):
            resources = Resources(device=str(device.index), mixed=mixed, vw=vw)
            name = f"{device.name} VW={vw or 'native'}"
            yield _score(name, resources, patterns, tree, model)


def _widths(device: DeviceInfo) -> tuple[int | None, ...]:
    """A narrow block's, and None for the layout that a search takes."""
    return AVX_WIDTH if device.is_cpu else NARROW_ON_GPU, None


def _score(
    name: str, resources: Resources, patterns: Patterns, tree: Tree, model: PartitionModel
) -> EngineScore:
    """What an engine answers, and how fast; it has this name where it cannot even be opened."""
    case, bounds = Case(model.arrays()), BranchSettings().bounds(patterns.n_sites)
    try:
        likelihood = place(
            resources, patterns, max(model.categories), bounds, systems=max(model.systems)
        ).likelihood(patterns)
        lnl = float(likelihood.log_likelihoods([tree], [case])[0])
        times = []
        for _ in range(REPETITIONS):
            began = time.perf_counter()
            likelihood.log_likelihoods([tree], [case])
            times.append(time.perf_counter() - began)
    except MltreeError as error:
        return EngineScore(name, float("nan"), 0.0, error.message)
    return EngineScore(likelihood.engine.name, lnl, min(times))


def is_close(lnl: float, reference: float, mixed: bool) -> bool:
    """Whether two lnL differ by no more than rounding explains."""
    tolerance = MIXED_TOLERANCE if mixed else TOLERANCE
    return abs(lnl - reference) <= tolerance * abs(reference)


def self_test(device: DeviceInfo) -> str:
    """Whether a device computes what the reference computes: ``ok (VW=8 fp64)``, or what failed."""
    rng = np.random.default_rng(1)
    patterns = _random_patterns(rng)
    tree = random_topology(patterns.n_tips, rng)
    model = parse_model("GTR{1/3/1/1/4/1}+FU{0.3/0.2/0.2/0.3}+G4{0.5}", DNA)
    case = Case((model.arrays(),))
    bounds = BranchSettings().bounds(patterns.n_sites)

    def placed(name: str) -> Placement:
        return place(Resources(device=name), patterns, model.arrays().n_categories, bounds)

    try:
        here = placed(str(device.index))
        lnl, d1, d2 = here.likelihood(patterns).derivatives(tree, case)
    except MltreeError as error:
        return error.message
    reference = placed(REFERENCE).likelihood(patterns)
    expected, e1, e2 = reference.derivatives(tree, case)
    is_mixed = not here.is_exact
    same = is_close(lnl, expected, is_mixed) and (
        is_mixed or (np.allclose(d1, e1) and np.allclose(d2, e2))
    )
    if not same:
        return f"wrong: lnL {lnl:.6f}, not {expected:.6f}"
    return f"{OK} ({here.layouts[0]})"


def is_ok(verdict: str) -> bool:
    """Whether a self-test found nothing wrong."""
    return verdict.startswith(f"{OK} ")


def _random_patterns(rng: np.random.Generator) -> Patterns:
    """Ten taxa, 101 patterns (so that the last block is never full), ambiguities and gaps too."""
    tips, patterns = 10, 101
    return Patterns(
        taxa=tuple(f"t{tip}" for tip in range(tips)),
        codes=rng.integers(1, 16, (tips, patterns)).astype(np.uint8),
        weights=rng.integers(1, 4, patterns).astype(np.float64),
        site_pattern=np.arange(patterns, dtype=np.int32),
        alphabet=DNA,
    )
