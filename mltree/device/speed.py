"""How fast devices are beside one another, so that each gets the patterns it can do in a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter

import numpy as np

from mltree.alignment.patterns import Patterns
from mltree.contract import CONTROL_WORDS
from mltree.device.discovery import DeviceInfo
from mltree.device.layout import Layout
from mltree.device.session import Session
from mltree.likelihood import programs
from mltree.likelihood.model_rows import model_rows
from mltree.model.eigen import random_reversible
from mltree.tree.random_trees import random_topology

__all__ = ["measured_speeds"]

SAMPLE_TIPS = 12
SAMPLE_PATTERNS = 32_768
"""Enough to fill a GPU's compute units, little enough for a CPU to be done in 20 ms."""
REPEATS = 3


def measured_speeds(
    devices: Sequence[DeviceInfo], layouts: Sequence[Layout], patterns: Patterns
) -> list[float]:
    """Patterns a second, relative to one another; devices of one kind are equal, unmeasured."""
    kinds = [(device.name, device.compute_units) for device in devices]
    if len(set(kinds)) == 1:
        return [1.0] * len(kinds)
    speeds = {
        kind: 1 / _seconds(device, layout, patterns)
        for kind, device, layout in zip(kinds, devices, layouts, strict=True)
    }
    return [speeds[kind] for kind in kinds]


def _seconds(device: DeviceInfo, layout: Layout, patterns: Patterns) -> float:
    """Best time of all directional CLAs of a small tree, on a sample of the patterns."""
    tips = min(patterns.n_tips, SAMPLE_TIPS)
    sample = replace(
        patterns,
        codes=patterns.codes[:tips, :SAMPLE_PATTERNS],
        weights=patterns.weights[:SAMPLE_PATTERNS],
    )
    rng = np.random.default_rng(0)
    tree = random_topology(tips, rng)
    model = random_reversible(layout.states, rng, categories=layout.categories)
    session = Session(device.handle, sample, layout, (1e-6, 100.0))
    session.load_models(model_rows([model]))
    program, control = programs.derivatives([tree]), np.zeros((0, CONTROL_WORDS))
    session.run(program, tree.lengths, control)
    best = np.inf
    for _ in range(REPEATS):
        start = perf_counter()
        session.run(program, tree.lengths, control)
        best = min(best, perf_counter() - start)
    return float(best)
