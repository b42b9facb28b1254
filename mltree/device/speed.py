"""Measuring devices: speed beside others, layouts, bandwidth, and a GPU's load."""

from __future__ import annotations

import ctypes
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyopencl as cl

from mltree.data.alphabet import DNA, PROTEIN, Alphabet
from mltree.data.patterns import Patterns
from mltree.device.build import context_on, is_nvidia
from mltree.device.discovery import DeviceInfo, choose_device, find_devices
from mltree.device.layout import Layout
from mltree.device.layout_choice import (
    CATEGORIES,
    Calibration,
    DataKind,
    LayoutChoice,
    block_widths,
    choose_layout,
    load,
    rule_layout,
    save,
)
from mltree.device.session import Session
from mltree.device.timing import Breakdown
from mltree.models.eigen import random_reversible
from mltree.program import builders
from mltree.program.engine import NO_CONTROL
from mltree.program.program import Program
from mltree.system.process import threads
from mltree.system.values import Value
from mltree.tree.topology import random_topology

# Drivers do one build at a time in a process, whatever its threads, and one takes PoCL 1 to 5 s and
# NVIDIA's compiler 3 to 12. What a process has built, the next finds in the driver's cache or ours.

MOST = 16
"""Builds at a time: each takes some 0.5 GB of the host's memory, and as much of a GPU's."""


def prebuild(
    build: Callable[..., object], jobs: Sequence[tuple[Any, ...]], tell: Callable[[str], None]
) -> None:
    """Call a function of a module with each job's arguments; ``tell`` takes lines of progress.

    What fails is left to whoever needs it.
    """
    from concurrent.futures import ProcessPoolExecutor, as_completed  # all commands load this file
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing import get_context

    most = min(MOST, threads().number, len(jobs))
    if most < 2:
        return
    tell(f"building {len(jobs)} kernels, {most} at a time")
    try:
        with ProcessPoolExecutor(most, get_context("spawn"), _leave_interrupts) as pool:
            running = [pool.submit(build, *job) for job in jobs]
            for done, _ in enumerate(as_completed(running), 1):
                tell(f"built {done} of {len(jobs)} kernels")
    except (OSError, BrokenProcessPool):  # no processes, or no shared memory for them
        return


def _leave_interrupts() -> None:
    """Leave Ctrl-C to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


# Copy bandwidth: the most that a likelihood function could reach.

FIRST_BYTES = 1 << 25
MOST_BYTES = 1 << 28
"""Bytes of one copy: doubled until it is far more than any cache, or takes a while."""

LONG_ENOUGH = 2e-3
"""Seconds of a copy beside which its start is nothing; a CPU is there with 32 MiB."""

TRIES = 3
"""Copies of which the fastest counts."""


def copy_bandwidth(device: cl.Device, tries: int = TRIES) -> float:
    """Measure the bytes a second that a copy on the device reads and writes, in some 0.1 s."""
    context = context_on(device)
    queue = cl.CommandQueue(context)
    most = min(MOST_BYTES, device.max_mem_alloc_size // 4, device.global_mem_size // 16)
    size = min(FIRST_BYTES, most)
    while True:
        seconds = _copy_seconds(context, queue, size, tries)
        if seconds >= LONG_ENOUGH or 2 * size > most:
            return 2 * size / seconds
        size *= 2


def _copy_seconds(context: cl.Context, queue: cl.CommandQueue, size: int, tries: int) -> float:
    flags = cl.mem_flags.READ_WRITE
    source, target = cl.Buffer(context, flags, size), cl.Buffer(context, flags, size)
    cl.enqueue_copy(queue, source, target)  # pages that were never written are not really read
    times = []
    for _ in range(1 + tries):
        start = time.perf_counter()
        cl.enqueue_copy(queue, target, source)
        queue.finish()
        times.append(time.perf_counter() - start)
    return min(times[1:])  # the first one makes room


# Load of a device: by its driver for a GPU, by the process's CPU time for a CPU.
#
# NVIDIA's driver answers through its management library (NVML), which comes with it; a GPU whose
# driver has none is not asked. OpenCL itself knows neither how busy a device is nor how much of its
# memory others have taken.

LIBRARY = "libnvidia-ml.so.1"

BUSY = 50
"""Per cent of the last moments in which a GPU computed for others: half of it is theirs."""

OFTEN = 1.0
"""Seconds between two looks; NVML averages over a sixth of a second to one."""


class GpuLoad(NamedTuple):
    """Load and free memory of a GPU, from NVML."""

    busy: int
    """Per cent of the last moments in which the GPU computed, for whomever."""
    free: int
    """Bytes of memory that nobody has taken."""
    total: int


@cache
def _library() -> Any:
    with suppress(OSError):
        library = ctypes.CDLL(LIBRARY)
        if library.nvmlInit_v2() == 0:
            return library
    return None


def gpu_load(device: cl.Device) -> GpuLoad | None:
    """Load of an NVIDIA GPU; None where nobody can tell."""
    library = _library() if is_nvidia(device) else None
    if library is None:
        return None
    with suppress(cl.Error, AttributeError):
        domain, bus, slot = device.pci_domain_id_nv, device.pci_bus_id_nv, device.pci_slot_id_nv
        address = f"{domain:08x}:{bus:02x}:{slot >> 3:02x}.0"
        handle = ctypes.c_void_p()
        use, memory = (ctypes.c_uint * 2)(), (ctypes.c_ulonglong * 3)()  # gpu, memory; total, free
        answers = (
            library.nvmlDeviceGetHandleByPciBusId_v2(address.encode(), ctypes.byref(handle))
            or library.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(use))
            or library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory))
        )
        if answers == 0:
            return GpuLoad(busy=use[0], free=memory[1], total=memory[0])
    return None


def occupied(device: DeviceInfo, needed: int) -> str | None:
    """Notice about a GPU that others use, or have filled; None where none do.

    ``needed``: bytes that a run will take there.
    """
    load = None if device.is_cpu else gpu_load(device.handle)
    if load is None:
        return None
    gib = 2**30
    if load.free < needed:
        return (
            f"{device.name} has {load.free / gib:.1f} of {load.total / gib:.1f} GiB free, and the "
            f"run needs {needed / gib:.1f}: others use it (nvidia-smi shows who; --device takes "
            "another device, --memory-limit less memory)"
        )
    if load.busy >= BUSY:
        return (
            f"{device.name} is {load.busy} % busy with other work: this run will take longer "
            "(nvidia-smi shows whose; --device takes another device)"
        )
    return None


def load_meter(
    device: DeviceInfo, clock: Callable[[], float] = time.monotonic
) -> Callable[[], str]:
    """Meter of a device's load in a word, which looks once in a while, however often asked.

    CPU time is the process's since the last look, 100 % for each CPU.
    """
    said, looked, then, before = "", -OFTEN, clock(), time.process_time()

    def text() -> str:
        nonlocal said, looked, then, before
        if clock() - looked < OFTEN:
            return said
        if not device.is_cpu:
            load = gpu_load(device.handle)
            said = f"GPU {load.busy} %" if load else ""
        else:
            now, cpu = clock(), time.process_time()
            said = f"CPU {(cpu - before) / (now - then):.0%}" if now > then else ""
            then, before = now, cpu
        looked = clock()
        return said

    return text


SAMPLE_TIPS = 12
SAMPLE_PATTERNS = 32_768
"""Patterns that fill a GPU's compute units, and that a CPU has done in 20 ms."""
REPEATS = 4
ROUNDS = 5
"""Rounds, and repeats of a round, of which the best counts. Two sessions of one layout, on two
cores with a load of 10: in single rounds one took as little as 0.15 of the other's time, but in 80
tries never less than 0.98 in all five rounds."""

GAIN = 0.9
"""Share of the time of the present layout below which another one is worth it, in every round:
a layout decides the last bits of all later runs."""

SIZE_PATTERNS = (1_024, 16_384, 131_072)
"""Patterns of little, middling and much data (:data:`mltree.device.layout_choice.SIZES`)."""

CPU_SAMPLE = 32_768
"""Patterns times states that a CPU is measured on at most: more would be more of the same."""

GPU_SHARE = 16
"""Layouts whose CLAs a GPU's memory should have room for, in the largest sample."""

ALPHABETS = {"DNA": DNA, "proteins": PROTEIN}

REHEARSAL = 64
"""Patterns that show that a kernel runs."""

Tell = Callable[[str], None]
"""Takes a line of progress."""


def measured_speeds(
    devices: Sequence[DeviceInfo], layouts: Sequence[Layout], patterns: Patterns
) -> list[float]:
    """Relative patterns a second of each device; devices of one kind are equal, unmeasured."""
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
    """f64[rounds, layouts]: best seconds of a traversal and all derivatives of a tree.

    The layouts take turns, so that what else the machine does troubles them alike.
    """
    rng = np.random.default_rng(0)
    tree = random_topology(patterns.n_tips, rng)
    model = random_reversible(layouts[0].states, rng, categories=layouts[0].categories)
    sessions = [Session(device.handle, patterns, layout, (1e-6, 100.0)) for layout in layouts]
    work = builders.traversal([tree]), builders.derivatives([tree])
    times = np.empty((ROUNDS, REPEATS, len(sessions)))
    for session in sessions:
        session.load_models([model])
        _run(session, work, tree.lengths)  # builds
    for turn in np.ndindex(*times.shape):
        times[turn] = _run(sessions[turn[-1]], work, tree.lengths)
    best: npt.NDArray[np.float64] = times.min(axis=1)
    return best


def _run(session: Session, work: Sequence[Program], lengths: npt.NDArray[np.float64]) -> float:
    start = time.perf_counter()
    for program in work:
        session.run(program, lengths, NO_CONTROL)
    return time.perf_counter() - start


def calibrate(device: DeviceInfo, tell: Tell = lambda _: None) -> Calibration:
    """Measure a device and keep the choices; mostly the time of building its kernels."""
    choices: dict[str, LayoutChoice] = {}
    fastest: dict[_Trial, Layout] = {}
    for kind, trial in _trials(device).items():
        if trial not in fastest:
            tell(f"{device.name}: measuring {trial}")
            fastest[trial] = _better(device, trial)
        choices[kind.key] = LayoutChoice(fastest[trial].vw, fastest[trial].rows)
    calibration = Calibration(copy_bandwidth(device.handle), choices)
    save(device, calibration)
    return calibration


def build_all(devices: Sequence[DeviceInfo], tell: Tell = lambda _: None) -> None:
    """Build all kernels that :func:`calibrate` needs, side by side."""
    jobs = [
        (str(device.index), trial.label, layout)
        for device in devices
        for trial in _trials(device).values()
        for layout in trial.layouts
    ]
    prebuild(_rehearse, list(dict.fromkeys(jobs)), tell)


def _rehearse(device: str, label: str, layout: Layout) -> None:
    """Run once all that will be measured: CPUs compile no kernel before."""
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
    """Bytes a second that a copy reads and writes, measured before or now."""
    known = load(device)
    if known.copy_bytes is None:
        known = replace(known, copy_bytes=copy_bandwidth(device.handle))
        save(device, known)
    assert known.copy_bytes is not None
    return known.copy_bytes


def _trials(device: DeviceInfo) -> dict[DataKind, _Trial]:
    """Measurements to be made for every kind of data.

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
        for size, n_patterns in enumerate(SIZE_PATTERNS):
            present = choose_layout(device, *shape, n_patterns)
            others = [rule_layout(device, *shape, n_patterns, vw=vw) for vw in widths]
            layouts = tuple(dict.fromkeys([present, *others]))
            kind = DataKind(alphabet.n_states, CATEGORIES, not device.has_fp64, size)
            most = _most_patterns(device, alphabet)
            trials[kind] = _Trial(label, min(n_patterns, most), layouts)
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
