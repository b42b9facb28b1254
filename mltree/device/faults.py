"""What goes wrong on a device, in mltree's own errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyopencl as cl

from mltree.device.memory import MEMORY_HINT
from mltree.errors import DeviceError, DeviceMemoryError, NumericalError, WorkerFault
from mltree.launch import Fault
from mltree.likelihood.program import Program

__all__ = ["naming_device", "raise_fault"]


@contextmanager
def naming_device(device: cl.Device) -> Iterator[None]:
    """Turn a runtime's error into a DeviceError that names the device and the status.

    Some drivers allocate a buffer at its first use, so that any call may lack memory.
    """
    try:
        yield
    except cl.MemoryError as error:
        raise DeviceMemoryError(f"{device.name.strip()}: {error}", hint=MEMORY_HINT) from error
    except cl.Error as error:
        raise DeviceError(
            f"{device.name.strip()}: {error}",
            hint="`mltree devices` tests every device; --device picks another",
        ) from error


def raise_fault(device: cl.Device, program: Program, fault: int, stage: int) -> None:
    """Raise what the worker reported in its header; returns where it reported nothing.

    Raises:
        NumericalError: a sum came out as NaN or infinite.
        WorkerFault: the worker stopped inside the program.
    """
    if fault == Fault.NONE:
        return
    name = type(program.stages[stage]).__name__
    where = f"stage {program.first_stage + stage} ({name})"
    if fault == Fault.NOT_FINITE:
        raise NumericalError(
            f"{device.name}: a sum of {where} came out as NaN or infinite",
            hint="check the model's parameters and the alignment with `mltree check`",
        )
    raise WorkerFault(
        f"{device.name}: the worker stopped in {where}: {Fault(fault).name.lower()}",
        hint="--device picks another device, --device cpu the processor",
    )
