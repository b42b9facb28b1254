"""How fast a device is, beside others that share its work, and with one layout or another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from time import perf_counter

import numpy as np
import numpy.typing as npt

from mltree.alignment.alphabet import DNA, PROTEIN, Alphabet
from mltree.alignment.patterns import Patterns
from mltree.device.bandwidth import copy_bandwidth
from mltree.device.calibration import CATEGORIES, Calibration, Choice, Kind, load, save
from mltree.device.discovery import choose_device, find_devices
from mltree.device.info import DeviceInfo
from mltree.device.layout import Layout
from mltree.device.layout_choice import block_widths, choose_layout, rule_layout
from mltree.device.prebuild import prebuild
from mltree.device.session import Session
from mltree.device.timing import Breakdown
from mltree.likelihood import programs
from mltree.likelihood.engine import NO_CONTROL
from mltree.likelihood.program import Program
from mltree.model.eigen import random_reversible
from mltree.tree.random_trees import random_topology
from mltree.values import Value

__all__ = ["build_all", "calibrate", "joint_bandwidth", "known_bandwidth", "measured_speeds"]

SAMPLE_TIPS = 12
SAMPLE_PATTERNS = 32_768
"""Enough to fill a GPU's compute units, little enough for a CPU to be done in 20 ms."""
REPEATS = 4
ROUNDS = 5
"""The best of some repeats, several times over. Two sessions of one layout, on two cores with a
load of 10: in single rounds one took as little as 0.15 of the other's time, but in 80 tries never
less than 0.98 in all five rounds."""

GAIN = 0.9
"""Share of the time of the present layout below which another one is worth it, in every round:
a layout decides the last bits of all later runs."""

SIZE_PATTERNS = (1_024, 16_384, 131_072)
"""Patterns of a little, a middling and a large alignment (:data:`.calibration.SIZES`)."""

CPU_SAMPLE = 32_768
"""Patterns times states that a CPU is measured on at most: more would be more of the same."""

GPU_SHARE = 16
"""Layouts whose CLAs a GPU's memory should have room for, in the largest sample."""

ALPHABETS = {"DNA": DNA, "proteins": PROTEIN}

REHEARSAL = 64
"""Patterns that show that a kernel runs."""

Tell = Callable[[str], None]
"""Takes a line of progress."""


def _silent(_: str) -> None:
    """For whoever wants no progress."""


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
        kind: 1 / float(round_seconds(device, [layout], sample).min())
        for kind, device, layout in zip(kinds, devices, layouts, strict=True)
    }
    return [speeds[kind] for kind in kinds]


def round_seconds(
    device: DeviceInfo, layouts: Sequence[Layout], patterns: Patterns
) -> npt.NDArray[np.float64]:
    """Best times f64[rounds, layouts] of a traversal and all derivatives of some tree.

    The layouts take turns, so that what else the machine does troubles them alike.
    """
    rng = np.random.default_rng(0)
    tree = random_topology(patterns.n_tips, rng)
    model = random_reversible(layouts[0].states, rng, categories=layouts[0].categories)
    sessions = [Session(device.handle, patterns, layout, (1e-6, 100.0)) for layout in layouts]
    work = programs.traversal([tree]), programs.derivatives([tree])
    times = np.empty((ROUNDS, REPEATS, len(sessions)))
    for session in sessions:
        session.load_models([model])
        _run(session, work, tree.lengths)  # builds
    for turn in np.ndindex(*times.shape):
        times[turn] = _run(sessions[turn[-1]], work, tree.lengths)
    best: npt.NDArray[np.float64] = times.min(axis=1)
    return best


def _run(session: Session, work: Sequence[Program], lengths: npt.NDArray[np.float64]) -> float:
    """Wall seconds."""
    start = perf_counter()
    for program in work:
        session.run(program, lengths, NO_CONTROL)
    return perf_counter() - start


def calibrate(device: DeviceInfo, tell: Tell = _silent) -> Calibration:
    """Measure a device and keep what was found; mostly the time of building its kernels."""
    trials = _trials(device)
    found: dict[str, Choice] = {}
    chosen: dict[_Trial, Layout] = {}
    for kind, trial in trials.items():
        if trial not in chosen:
            tell(f"{device.name}: measuring {trial}")
            chosen[trial] = _better(device, trial)
        found[kind.key] = Choice(chosen[trial].vw, chosen[trial].rows)
    calibration = Calibration(copy_bandwidth(device.handle), found)
    save(device, calibration)
    return calibration


def build_all(devices: Sequence[DeviceInfo], tell: Tell = _silent) -> None:
    """Have all kernels that :func:`calibrate` needs built side by side."""
    jobs = [
        (str(device.index), trial.label, layout)
        for device in devices
        for trial in _trials(device).values()
        for layout in trial.layouts
    ]
    prebuild(_rehearse, list(dict.fromkeys(jobs)), tell)


def _rehearse(device: str, label: str, layout: Layout) -> None:
    """Run what will be measured once: CPUs compile no kernel before."""
    sample = _random_patterns(ALPHABETS[label], REHEARSAL)
    round_seconds(choose_device(device), [layout], sample)


class _Trial(Value):
    """Layouts to choose from, the present one first, and the data to do so on."""

    label: str
    n_patterns: int
    layouts: tuple[Layout, ...]

    def __str__(self) -> str:
        widths = " and ".join(str(layout.vw) for layout in self.layouts)
        return f"{self.label}, {self.n_patterns:,} patterns: VW={widths}"


def joint_bandwidth(spent: Breakdown) -> float | None:
    """Bytes a second that the devices of a run copy together; None where there is none.

    Measured in 0.1 s where no run has done so before.
    """
    handles = {handle.int_ptr for handle in spent.devices}
    used = [info for info in find_devices() if info.handle.int_ptr in handles]
    return sum(map(known_bandwidth, used)) or None


def known_bandwidth(device: DeviceInfo) -> float:
    """Bytes a second that a copy reads and writes: as measured before, else measured now."""
    known = load(device)
    if known.copy_bytes is None:
        known = replace(known, copy_bytes=copy_bandwidth(device.handle))
        save(device, known)
    assert known.copy_bytes is not None
    return known.copy_bytes


def _trials(device: DeviceInfo) -> dict[Kind, _Trial]:
    """What is to be measured for every kind of data.

    A GPU's blocks are as wide as the rules want them for little or for much data: every build
    takes seconds there.
    """
    trials = {}
    for label, alphabet in ALPHABETS.items():
        shape = (alphabet.n_states, alphabet.n_codes, CATEGORIES)
        widths = block_widths(device)
        if not device.is_cpu:
            rules = (rule_layout(device, *shape, n) for n in SIZE_PATTERNS)
            widths = tuple(dict.fromkeys(rule.vw for rule in rules))
        for size, wanted in enumerate(SIZE_PATTERNS):
            present = choose_layout(device, *shape, wanted)
            others = [rule_layout(device, *shape, wanted, vw=vw) for vw in widths]
            layouts = tuple(dict.fromkeys([present, *others]))
            kind = Kind(alphabet.n_states, CATEGORIES, not device.has_fp64, size)
            n_patterns = min(wanted, _most_patterns(device, alphabet))
            trials[kind] = _Trial(label, n_patterns, layouts)
    return trials


def _most_patterns(device: DeviceInfo, alphabet: Alphabet) -> int:
    """Patterns that a device is measured on at most."""
    if device.is_cpu:
        return CPU_SAMPLE // alphabet.n_states
    clas = 3 * (SAMPLE_TIPS - 2)
    layout = rule_layout(device, alphabet.n_states, alphabet.n_codes, CATEGORIES, 1)
    room = min(device.memory // GPU_SHARE, device.largest_buffer)
    return max(min(SIZE_PATTERNS), room // (clas * layout.pattern_bytes))


def _better(device: DeviceInfo, trial: _Trial) -> Layout:
    """The present layout, or one that is clearly faster in every round."""
    if len(trial.layouts) == 1:
        return trial.layouts[0]
    sample = _random_patterns(ALPHABETS[trial.label], trial.n_patterns)
    seconds = round_seconds(device, trial.layouts, sample)
    ratios = (seconds / seconds[:, :1]).max(axis=0)
    best = int(np.argmin(ratios))
    return trial.layouts[best if ratios[best] < GAIN else 0]


def _random_patterns(alphabet: Alphabet, n_patterns: int) -> Patterns:
    rng = np.random.default_rng(0)
    return Patterns(
        taxa=tuple(f"t{tip}" for tip in range(SAMPLE_TIPS)),
        codes=rng.integers(1, alphabet.n_codes, (SAMPLE_TIPS, n_patterns)).astype(np.uint8),
        weights=np.ones(n_patterns),
        site_pattern=np.arange(n_patterns, dtype=np.int32),
        alphabet=alphabet,
    )
