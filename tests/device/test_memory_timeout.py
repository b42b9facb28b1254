"""A device that never answers ends in an error that names it, and costs nothing where it does."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

import numpy as np
import pyopencl as cl
import pytest

from mltree.device.discovery import find_devices
from mltree.device.memory import LEAST_PATIENCE, Watch, patience
from mltree.system.errors import DeviceError

SHORT = 0.05
"""Seconds until the tests lose their patience."""

SPINS = (0.0, 1e-3)


class Command:
    """An event that comes when the test says so, or fails."""

    def __init__(self, problem: cl.Error | None = None) -> None:
        self._done = threading.Event()
        self._problem = problem
        self.threads: list[threading.Thread] = []

    def come(self) -> None:
        self._done.set()

    @property
    def command_execution_status(self) -> int:
        return 0 if self._done.is_set() else 2

    def wait(self) -> None:
        self.threads.append(threading.current_thread())
        self._done.wait()
        if self._problem is not None:
            raise self._problem


@pytest.mark.parametrize("spin", SPINS)
def test_what_never_comes_is_an_error_that_names_the_device(spin: float) -> None:
    watch, command = Watch("a dead device", spin), Command()
    with pytest.raises(DeviceError, match="a dead device: no answer") as raised:
        watch.wait(command, SHORT)
    assert "--device" in (raised.value.hint or "")
    came = Command()
    came.come()
    with pytest.raises(DeviceError, match="a dead device"):
        watch.wait(came, SHORT)
    Watch("another", spin).wait(came, SHORT)
    command.come()


@pytest.mark.parametrize("spin", SPINS)
def test_what_comes_late_is_waited_for(spin: float) -> None:
    watch, command = Watch("a slow device", spin), Command()
    timer = threading.Timer(SHORT, command.come)
    timer.start()
    watch.wait(command)
    assert command.command_execution_status == 0
    timer.join()


@pytest.mark.parametrize("spin", SPINS)
def test_what_fails_raises_the_devices_own_error(spin: float) -> None:
    command = Command(cl.LogicError("clWaitForEvents", cl.status_code.OUT_OF_RESOURCES, ""))
    command.come()
    with pytest.raises(cl.LogicError, match="clWaitForEvents"):
        Watch("a device", spin).wait(command)


def test_only_what_has_come_is_waited_for_in_the_callers_thread() -> None:
    threads = []
    for spin in (60.0, 0.0):
        command = Command()
        timer = threading.Timer(SHORT, command.come)
        timer.start()
        Watch("a device", spin).wait(command)
        threads += command.threads
        timer.join()
    polled, handed_over = threads
    assert polled is threading.current_thread()
    assert handed_over is not threading.current_thread()


def test_threads_end_with_those_who_wait() -> None:
    command = Command()
    waiting = threading.Thread(target=Watch("a device").wait, args=(command,))
    waiting.start()
    command.come()
    waiting.join()
    (thread,) = command.threads
    thread.join(timeout=10)
    assert not thread.is_alive()


def test_patience_grows_with_the_work() -> None:
    assert patience(0) == LEAST_PATIENCE
    assert patience(1e12) > 1e5


def test_a_stalled_queue() -> None:
    device = find_devices()[0].handle
    context = cl.Context([device])
    queue = cl.CommandQueue(context)
    never = cl.UserEvent(context)
    target, source = np.zeros(4), np.arange(4.0)
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    buffer = cl.Buffer(context, flags, hostbuf=source)
    read = cl.enqueue_copy(queue, target, buffer, is_blocking=False, wait_for=[never])
    queue.flush()
    watch = Watch.over(device)
    with pytest.raises(DeviceError, match=r"no answer within 0 s"):
        watch.wait(read, SHORT)
    never.set_status(cl.command_execution_status.COMPLETE)
    Watch.over(device).wait(read)
    np.testing.assert_array_equal(target, source)


class Interrupted(Exception):
    """What a notebook's user does."""


def interrupt(*_: object) -> None:
    raise Interrupted


def test_an_interrupted_wait_leaves_nothing_to_the_next() -> None:
    before = signal.signal(signal.SIGALRM, interrupt)
    watch, first, second = Watch("a device"), Command(), Command()
    signal.setitimer(signal.ITIMER_REAL, SHORT)
    with pytest.raises(Interrupted):
        watch.wait(first)
    signal.signal(signal.SIGALRM, before)
    first.come()
    for thread in first.threads:
        thread.join(SHORT)
    timer = threading.Timer(SHORT, second.come)
    timer.start()
    watch.wait(second)
    assert second.command_execution_status == 0
    timer.join()


INTERRUPTED = """
import signal, time
from mltree.device.memory import Watch

class Launch:
    command_execution_status = 2
    def wait(self):
        time.sleep(1.0)
        print("came back", flush=True)

def interrupt(*_):
    raise KeyboardInterrupt

signal.signal(signal.SIGALRM, interrupt)
signal.setitimer(signal.ITIMER_REAL, 0.1)
try:
    Watch("a device").wait(Launch())
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_no_thread_is_inside_open_cl_when_the_interpreter_ends() -> None:
    """It would come back to no interpreter: "terminate called without an active exception"."""
    result = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stdout) == (0, "interrupted\ncame back\n"), result.stderr


LATE = """
from mltree.device import memory

class Launch:
    command_execution_status = 2
    def wait(self):
        pass

class Answered:
    def __init__(self, answers):
        self.answers = answers
    def get(self, timeout):
        self.answers.get(timeout=timeout)
        raise KeyboardInterrupt

waiter = memory._waiter()
waiter._answers = Answered(waiter._answers)
try:
    memory.Watch("a device").wait(Launch())
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_an_interrupt_just_after_the_answer_holds_nothing_up() -> None:
    """The end waited ten minutes for an answer that had been taken."""
    result = subprocess.run(
        [sys.executable, "-c", LATE], capture_output=True, text=True, check=False, timeout=60
    )
    assert (result.returncode, result.stdout) == (0, "interrupted\n"), result.stderr
