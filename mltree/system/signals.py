"""Ending on SIGINT, SIGTERM and SIGHUP.

Python runs its signal handlers in the main thread, between two bytecodes, which may be minutes
away: inside a launch, or a kernel build. So one thread receives the signals, and another runs the
callback of :func:`on_signal` and ends the process at once: an interpreter that shuts down by its
own rules while a thread is inside OpenCL waits for that thread, or aborts.

Two rules follow: work that must not be cut in two, such as writing files, runs inside
:func:`uninterrupted`; state that is to be kept can be written by another thread at any time. A
second signal ends the process whatever it is doing. Ignored signals (``nohup``) stay ignored.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

ECHO = 0.5
"""Seconds within which a second signal is the first one again: GNU timeout signals a process and
then its group, a terminal the group that a make passes the signal on to."""

STDERR = 2
"""File descriptor of the standard error stream."""

GRACE = 0.2
"""Seconds within which a signal arrives."""

EXIT_SIGNAL = 128
"""Offset of a signal's number in a shell's exit code."""


class ExitMessage(NamedTuple):
    """Message and exit code of a process that a signal ends."""

    text: str = ""
    """One line on the files left and how to go on; may be empty."""
    code: int | None = None
    """Exit code; None for the signal's."""


_uninterrupted = threading.RLock()
_on_signal: list[Callable[[], ExitMessage]] = []
_before_exit: list[Callable[[], None]] = []
_received = threading.Event()


def install_handlers() -> None:
    """Handle all signals but those that are ignored (``nohup``, ``&`` in a script).

    Called once, by the main thread, before there are others.
    """
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    ignored = {number for number in SIGNALS if signal.getsignal(number) is signal.SIG_IGN}
    signal.pthread_sigmask(signal.SIG_BLOCK, ignored)  # or LLVM handles them, see wait_for_exit
    for number in set(SIGNALS) - ignored:
        signal.signal(number, lambda *_: None)  # the number goes to the pipe by itself
        signal.siginterrupt(number, False)
    threading.Thread(target=_receive, args=(read_end,), name="signals", daemon=True).start()


def ignore_signals() -> None:
    """Ignore all signals: nothing is left to do but the interpreter's own end."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def on_signal(message: Callable[[], ExitMessage]) -> Iterator[None]:
    """While active, a signal calls ``message`` in a thread of its own, and no earlier one."""
    _on_signal.append(message)
    try:
        yield
    finally:
        with _uninterrupted:
            _on_signal.remove(message)


def set_exit_message(message: ExitMessage) -> None:
    """Set the message of a signal for the rest of the process, in place of all callbacks."""
    _on_signal.append(lambda: message)


def before_exit(do: Callable[[], None]) -> None:
    """Add a function that a signal calls before the message is written."""
    _before_exit.append(do)


def cancel_before_exit(do: Callable[[], None]) -> None:
    """Remove a function that :func:`before_exit` added; no error where it was not."""
    with suppress(ValueError):
        _before_exit.remove(do)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Delay the end by a signal until the block is done."""
    with _uninterrupted:
        yield


def wait_for_exit() -> None:
    """Wait for the end of the process where a signal has arrived; called when a device failed.

    LLVM, which PoCL compiles with, handles signals first and removes the files that it is writing,
    so that a build fails while the signal's number may still be in the pipe.
    """
    if _received.wait(GRACE):
        threading.Event().wait()  # until the process ends


def _receive(pipe: int) -> None:
    """Begin the exit at the first signal, and exit at once at the second."""
    number = _next(pipe)
    _received.set()
    try:
        threading.Thread(target=_exit, args=(number,), name="exit", daemon=True).start()
    except RuntimeError:  # the system starts no more
        _exit(number)
    time.sleep(ECHO)
    os.set_blocking(pipe, False)
    with suppress(BlockingIOError):
        while os.read(pipe, 1):
            pass
    os.set_blocking(pipe, True)
    os._exit(EXIT_SIGNAL + _next(pipe))


def _next(pipe: int) -> int:
    """The number of the next signal; blocks until then."""
    while True:
        number = os.read(pipe, 1)[0]
        if number in SIGNALS:
            return number


def _exit(number: int) -> None:
    """Call the callbacks, write the message, and end the process."""
    with _uninterrupted:
        code = None
        try:
            text, code = _on_signal[-1]() if _on_signal else ExitMessage()
            for do in _before_exit:
                do()
            line = f"mltree: stopped by {signal.Signals(number).name}{text and ': '}{text}\n"
            with suppress(OSError):  # a terminal that is gone, as after SIGHUP
                os.write(STDERR, line.encode(errors="backslashreplace"))
        except Exception:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(EXIT_SIGNAL + number if code is None else code)
