"""Devices are found, chosen by number or name, and a broken platform stops nobody."""

from __future__ import annotations

from dataclasses import replace

import pyopencl as cl
import pytest

from mltree.device import discovery
from mltree.device.discovery import (
    REFERENCE,
    choose_device,
    choose_devices,
    company_pays,
    find_devices,
)
from mltree.device.pocl import pocl
from mltree.system.errors import DeviceError
from mltree.system.process import at_most, process_threads


class _BrokenPlatform:
    def get_devices(self) -> list[object]:
        raise cl.LogicError("clGetDeviceIDs", cl.status_code.DEVICE_NOT_FOUND, "broken")


def test_gpus_come_first_and_numbers_are_positions() -> None:
    found = find_devices()
    assert found, "PoCL comes with mltree: without it most tests would check nothing"
    assert [info.index for info in found] == list(range(len(found)))
    assert [info.is_cpu for info in found] == sorted(info.is_cpu for info in found)
    for info in found:
        assert info.name
        assert info.memory > 0
        assert info.largest_buffer > 0
        assert info.compute_units > 0
        assert info.vector_width > 0


def test_a_broken_platform_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    found = find_devices()
    good = cl.get_platforms()
    monkeypatch.setattr(cl, "get_platforms", lambda: [_BrokenPlatform(), *good])
    assert [info.name for info in find_devices()] == [info.name for info in found]


def test_no_driver_at_all_is_advice_and_no_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> list[cl.Platform]:
        raise cl.LogicError("clGetPlatformIDs", -1001, "PLATFORM_NOT_FOUND_KHR")

    monkeypatch.setattr(cl, "get_platforms", none)
    assert find_devices() == []
    with pytest.raises(DeviceError, match="no OpenCL device was found") as raised:
        choose_device(None)
    assert "pip install" in (raised.value.hint or "")


def test_what_is_wrong_is_said_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(cl, "get_platforms", lambda: pytest.fail("PoCL would end the process"))
        patch.setattr(pocl.resource, "getrlimit", lambda _: (500 << 20, 500 << 20))
        with pytest.raises(DeviceError, match="can be used: the process may map 500 MiB") as raised:
            choose_device(None)
        assert "pip install" not in (raised.value.hint or "")
    with monkeypatch.context() as patch:
        patch.setattr(cl, "get_platforms", list)
        patch.setattr(discovery, "cache_folder", _no_folder)
        with pytest.raises(DeviceError, match="^no folder$"):
            choose_device(None)
    monkeypatch.setattr(cl, "get_platforms", lambda: [_NamedPlatform()])
    with pytest.raises(DeviceError, match="no OpenCL device is offered by Broken and Sons"):
        choose_device(None)


def _no_folder() -> object:
    raise DeviceError("no folder")


class _NamedPlatform(_BrokenPlatform):
    name = "Broken and Sons "


@pytest.mark.parametrize("wanted", ["", "²", "٣", "9" * 5000, "-1", "+0", " ", "0x0", "\0"])
def test_numbers_that_are_none(wanted: str) -> None:
    with pytest.raises(DeviceError, match="no device matches"):
        choose_device(wanted)


def test_choosing() -> None:
    found = find_devices()
    assert choose_device(None) == found[0]
    for info in found:
        assert choose_device(str(info.index)) == info
        assert info.name in choose_device(info.name.upper()).name
        assert choose_device("cpu" if info.is_cpu else "gpu").is_cpu == info.is_cpu
    with pytest.raises(DeviceError, match="no device matches 'abacus'") as raised:
        choose_device("abacus")
    assert found[0].name in (raised.value.hint or "")
    with pytest.raises(DeviceError, match=f"no device matches '{len(found)}'"):
        choose_device(str(len(found)))


def test_a_number_is_no_part_of_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    named = replace(find_devices()[0], index=0, name="H200")
    monkeypatch.setattr(discovery, "find_devices", lambda: [named])
    assert choose_device("h200") == named
    with pytest.raises(DeviceError, match="no device matches '2'"):
        choose_device("2")


def test_lists_of_devices() -> None:
    found = find_devices()
    assert choose_devices(None) == [found[0]]
    assert choose_devices("0, 0") == [found[0], found[0]]
    assert choose_devices(REFERENCE) == []
    everything = choose_devices("ALL")
    assert everything == [info for info in found if not info.is_cpu] or everything == [found[0]]
    with pytest.raises(DeviceError, match="no device matches 'nowhere'"):
        choose_devices("0,nowhere")


@pytest.mark.parametrize(
    ("wanted", "ranks", "expected"),
    [
        (None, 1, ["0"]),
        (None, 3, ["0", "1", "0"]),  # the third GPU is another kind
        ("all", 1, ["012"]),
        ("all", 2, ["02", "1"]),
        ("all", 4, ["0", "1", "2", "0"]),
        ("0,2", 2, ["0", "2"]),
        ("3", 2, ["3", "3"]),
        ("gpu", 2, ["0", "0"]),
        (REFERENCE, 2, ["", ""]),
    ],
)
def test_ranks_of_a_host_share_out_its_devices(
    monkeypatch: pytest.MonkeyPatch, wanted: str | None, ranks: int, expected: list[str]
) -> None:
    some, *_ = find_devices()
    gpus = [
        replace(some, index=n, name=name, is_cpu=False) for n, name in enumerate(["A", "A", "B"])
    ]
    cpu = replace(some, index=3, name="C", is_cpu=True)
    monkeypatch.setattr(discovery, "find_devices", lambda: [*gpus, cpu])
    for number, own in enumerate(expected):
        monkeypatch.setattr(discovery, "local_rank", lambda number=number: (number, ranks))
        devices = choose_devices(wanted)
        assert "".join(str(info.index) for info in devices) == own
        assert all(info.sharers == expected.count(own) for info in devices)


def test_ranks_share_a_lone_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = replace(find_devices()[0], index=0, is_cpu=True)
    monkeypatch.setattr(discovery, "find_devices", lambda: [cpu])
    monkeypatch.setattr(discovery, "local_rank", lambda: (1, 2))
    for wanted in (None, "all", "cpu"):
        assert choose_devices(wanted) == [replace(cpu, sharers=2)]


def test_company_pays_on_a_gpu_that_one_tree_does_not_fill() -> None:
    (cpu,) = choose_devices("cpu")
    gpu = replace(cpu, is_cpu=False, compute_units=132)
    assert company_pays([gpu], 1_605 * 16)
    assert not company_pays([gpu], 100_000 * 16)
    assert company_pays([gpu, gpu], 100_000 * 16), "the patterns are shared out"
    assert not company_pays([cpu], 16)
    assert not company_pays([], 16)


def test_a_call_has_some_cores_of_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    cpus = [device for device in find_devices() if device.is_cpu and device.compute_units > 1]
    if not cpus or cpus[0].compute_units > process_threads().number:
        pytest.skip("no CPU of several cores")
    with at_most(1):
        (some, *_) = (device for device in find_devices() if device.index == cpus[0].index)
        again = choose_device(str(cpus[0].index))
    assert some.compute_units == 1
    assert again.handle == some.handle
    assert (some.name, some.driver) == (cpus[0].name, cpus[0].driver)
    assert choose_device(str(cpus[0].index)).compute_units == cpus[0].compute_units
