"""mltree's contenders: every layout and device of this machine, ready to search or to time."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from bench.provenance import cores
from mltree.device.discovery import REFERENCE, find_devices
from mltree.runs.engines import Resources

__all__ = ["ONE_THREAD", "Contender", "contenders"]

ONE_THREAD = {"POCL_MAX_PTHREAD_COUNT": "1", "POCL_CPU_MAX_CU_COUNT": "1", "OMP_NUM_THREADS": "1"}
"""What keeps PoCL (old and new) and NumPy's BLAS to one thread, beside pinning the process."""

GPU_COUNTS = (1, 2, 4)
"""GPUs of one contender, where there are so many."""


@dataclass(frozen=True)
class Contender:
    """One way to run mltree."""

    name: str
    device: str | None
    """Number of the device, or numbers with commas; None for the reference engine."""
    vw: int | None = None
    """Patterns of a block; None for the device's own choice. 1 is RAxML's AVX layout."""
    precision: str = "double"
    threads: int | None = None
    """CPU threads; None on a GPU."""

    @property
    def resources(self) -> Resources:
        """What it may use."""
        return Resources(
            device=self.device or REFERENCE, mixed=self.precision == "mixed", vw=self.vw
        )

    def as_dict(self) -> dict[str, object]:
        """For a child's command line."""
        return asdict(self)


def contenders(precision: str = "double") -> list[Contender]:
    """CPU devices in the AVX layout and in their own, on one thread and on all; every GPU."""
    found = find_devices()
    made = []
    cpus = [device for device in found if device.is_cpu]
    for number, device in enumerate(cpus):
        where = f" ({device.platform})" if number else ""
        index = str(device.index)
        made.append(Contender(f"AVX layout{where}", index, 1, precision, 1))
        made.append(Contender(f"new layout{where}", index, None, precision, 1))
        if cores() > 1:
            made.append(Contender(f"new layout{where}", index, None, precision, cores()))
    gpus = [device for device in found if not device.is_cpu]
    for count in GPU_COUNTS:
        # Equal GPUs would say the same one by one: the first stands for them.
        if count <= len(gpus):
            name = gpus[0].name if count == 1 else f"{count} x {gpus[0].name}"
            indices = ",".join(str(device.index) for device in gpus[:count])
            made.append(Contender(name, indices, None, precision))
    return made
