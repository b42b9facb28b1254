"""What goes wrong on a device, in mltree's own errors."""

from __future__ import annotations

import pyopencl as cl

from mltree.device.memory import MEMORY_HINT
from mltree.errors import DeviceError, DeviceMemoryError, NumericalError, WorkerFault
from mltree.launch import Fault
from mltree.likelihood.program import Program

__all__ = ["NamingDevice", "raise_fault"]


class NamingDevice:
    """Inside its ``with`` blocks a runtime's error becomes a DeviceError that names the device.

    Some drivers allocate a buffer at its first use, so that any call may lack memory.
    """

    def __init__(self, device: cl.Device) -> None:
        self._device = device

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if not isinstance(error, cl.Error):
            return
        message = f"{self._device.name.strip()}: {error}"
        if isinstance(error, cl.MemoryError):
            raise DeviceMemoryError(message, hint=MEMORY_HINT) from error
        raise DeviceError(
            message, hint="`mltree devices` tests every device; --device picks another"
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
