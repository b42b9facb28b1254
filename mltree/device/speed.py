"""How fast a device is, beside others that share its work, and with one layout or another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter

import numpy as np
import numpy.typing as npt

from mltree.alignment.alphabet import DNA, PROTEIN, Alphabet
from mltree.alignment.patterns import Patterns
from mltree.device.bandwidth import copy_bandwidth
from mltree.device.calibration import CATEGORIES, Calibration, Choice, Kind, load, save
from mltree.device.discovery import DeviceInfo, block_widths, choose_layout
from mltree.device.layout import Layout, most_rows
from mltree.device.session import Session
from mltree.likelihood import programs
from mltree.likelihood.engine import NO_CONTROL
from mltree.likelihood.model_rows import model_rows
from mltree.likelihood.program import Program
from mltree.model.eigen import random_reversible
from mltree.tree.random_trees import random_topology

__all__ = ["calibrate", "known_bandwidth", "measured_speeds"]

SAMPLE_TIPS = 12
SAMPLE_PATTERNS = 32_768
"""Enough to fill a GPU's compute units, little enough for a CPU to be done in 20 ms."""
REPEATS = 7

GAIN = 0.95
"""Share of the time of a rule's layout below which another one is worth it: noise is not."""

SIZE_PATTERNS = (1_024, 16_384, 131_072)
"""Patterns of a little, a middling and a large alignment (:data:`.calibration.SIZES`)."""

CPU_SAMPLE = 32_768
"""Patterns times states that a CPU is measured on at most: more would be more of the same."""


def measured_speeds(
    devices: Sequence[DeviceInfo], layouts: Sequence[Layout], patterns: Patterns
) -> list[float]:
    """Patterns a second, relative to one another; devices of one kind are equal, unmeasured."""
    kinds = [(device.name, device.compute_units) for device in devices]
    if len(set(kinds)) == 1:
        return [1.0] * len(kinds)
    tips = min(patterns.n_tips, SAMPLE_TIPS)
    sample = replace(
        patterns,
        codes=patterns.codes[:tips, :SAMPLE_PATTERNS],
        weights=patterns.weights[:SAMPLE_PATTERNS],
    )
    speeds = {
        kind: 1 / fastest_seconds(device, [layout], sample)[0]
        for kind, device, layout in zip(kinds, devices, layouts, strict=True)
    }
    return [speeds[kind] for kind in kinds]


def fastest_seconds(
    device: DeviceInfo, layouts: Sequence[Layout], patterns: Patterns
) -> list[float]:
    """Best time in each layout of a traversal and all derivatives of some tree.

    The layouts take turns, so that what else the machine does troubles them alike.
    """
    rng = np.random.default_rng(0)
    tree = random_topology(patterns.n_tips, rng)
    model = random_reversible(layouts[0].states, rng, categories=layouts[0].categories)
    sessions = [Session(device.handle, patterns, layout, (1e-6, 100.0)) for layout in layouts]
    work = programs.traversal([tree]), programs.derivatives([tree])
    times = np.empty((REPEATS, len(sessions)))
    for session in sessions:
        session.load_models(model_rows([model]))
        _run(session, work, tree.lengths)  # builds
    for turn, n in np.ndindex(*times.shape):
        times[turn, n] = _run(sessions[n], work, tree.lengths)
    best: list[float] = times.min(axis=0).tolist()
    return best


def _run(session: Session, work: Sequence[Program], lengths: npt.NDArray[np.float64]) -> float:
    """Wall seconds."""
    start = perf_counter()
    for program in work:
        session.run(program, lengths, NO_CONTROL)
    return perf_counter() - start


def calibrate(device: DeviceInfo) -> Calibration:
    """Measure a device and keep what was found; mostly the time of building its kernels."""
    layouts: dict[str, Choice] = {}
    for alphabet in (DNA, PROTEIN):
        most = CPU_SAMPLE // alphabet.n_states if device.is_cpu else max(SIZE_PATTERNS)
        samples = [min(n_patterns, most) for n_patterns in SIZE_PATTERNS]
        choices = {n: _choice(device, _random_patterns(alphabet, n)) for n in sorted(set(samples))}
        for size, n_patterns in enumerate(samples):
            kind = Kind(alphabet.n_states, CATEGORIES, not device.has_fp64, size)
            layouts[kind.key] = choices[n_patterns]
    found = Calibration(copy_bandwidth(device.handle), layouts)
    save(device, found)
    return found


def known_bandwidth(device: DeviceInfo) -> float:
    """Bytes a second that a copy reads and writes: as measured before, else measured now."""
    known = load(device)
    if known.copy_bytes is None:
        known = replace(known, copy_bytes=copy_bandwidth(device.handle))
        save(device, known)
    assert known.copy_bytes is not None
    return known.copy_bytes


def _choice(device: DeviceInfo, patterns: Patterns) -> Choice:
    """The best block width with the rules' rows for it, then the best rows."""
    alphabet = patterns.alphabet
    size = (alphabet.n_states, alphabet.n_codes, CATEGORIES, patterns.n_patterns)
    rule = choose_layout(device, *size, is_measured=False)
    layouts = [choose_layout(device, *size, vw=vw) for vw in block_widths(device)]
    best = _better(device, [rule, *layouts], patterns)
    rows = {max(1, best.rows // 2), min(2 * best.rows, most_rows(best))}
    best = _better(device, [best, *(replace(best, rows=count) for count in rows)], patterns)
    return Choice(best.vw, best.rows)


def _better(device: DeviceInfo, layouts: Sequence[Layout], patterns: Patterns) -> Layout:
    """The fastest of the layouts; the first, where that is hardly slower."""
    distinct = list(dict.fromkeys(layouts))
    if len(distinct) == 1:
        return distinct[0]
    seconds = fastest_seconds(device, distinct, patterns)
    best = int(np.argmin(seconds))
    return distinct[best if seconds[best] < GAIN * seconds[0] else 0]


def _random_patterns(alphabet: Alphabet, n_patterns: int) -> Patterns:
    rng = np.random.default_rng(0)
    return Patterns(
        taxa=tuple(f"t{tip}" for tip in range(SAMPLE_TIPS)),
        codes=rng.integers(1, alphabet.n_codes, (SAMPLE_TIPS, n_patterns)).astype(np.uint8),
        weights=np.ones(n_patterns),
        site_pattern=np.arange(n_patterns, dtype=np.int32),
        alphabet=alphabet,
    )
