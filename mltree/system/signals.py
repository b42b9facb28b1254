"""Ending when asked to: SIGINT, SIGTERM and SIGHUP.

Python runs its signal handlers in the main thread, between two bytecodes, which may be minutes
away: inside a launch, or a kernel build. So a thread hears the signals, and another does what
there is to do before the end (:func:`parting`) and ends the process there and then: an interpreter
that shuts down by its own rules while a thread is inside OpenCL waits for it, or aborts.

The contract: what must not be cut in two, such as the writing of files, is done inside
:func:`unbroken`; what is to be kept is at any time ready to be written by another thread. A second
signal ends the process whatever it is doing. Signals that are ignored (``nohup``) stay ignored.
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
"""Its file descriptor, the highest of the three."""

GRACE = 0.2
"""Seconds in which a signal is heard."""

EXIT_SIGNAL = 128
"""What shells add to a signal's number to make an exit code."""


class Farewell(NamedTuple):
    """How a process ends that was asked to stop."""

    text: str = ""
    """What is left, and how to go on, in one line; empty where there is nothing to say."""
    code: int | None = None
    """Its exit code; the signal's where None."""


_unbroken = threading.RLock()
_partings: list[Callable[[], Farewell]] = []
_firsts: list[Callable[[], None]] = []
_heard = threading.Event()


def listen() -> None:
    """Heed the signals from now on, but for those that are ignored (``nohup``, ``&`` in a script).

    Called once, by the main thread, before there are others.
    """
    heard, told = os.pipe()
    os.set_blocking(told, False)
    signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    ignored = {number for number in SIGNALS if signal.getsignal(number) is signal.SIG_IGN}
    signal.pthread_sigmask(signal.SIG_BLOCK, ignored)  # or LLVM hears them, see give_way
    for number in set(SIGNALS) - ignored:
        signal.signal(number, lambda *_: None)  # the number goes to the pipe by itself
        signal.siginterrupt(number, False)
    threading.Thread(target=_hear, args=(heard,), name="signals", daemon=True).start()


def ignore() -> None:
    """Heed no signal any more: all is done but for the interpreter's own end."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def parting(say: Callable[[], Farewell]) -> Iterator[None]:
    """Have a stop do this, in a thread of its own, and nothing that was said before."""
    _partings.append(say)
    try:
        yield
    finally:
        with _unbroken:
            _partings.remove(say)


def last_word(farewell: Farewell) -> None:
    """Have a stop do nothing but say this from now on, until the process ends by itself."""
    _partings.append(lambda: farewell)


def before_leaving(do: Callable[[], None]) -> None:
    """Have a stop do this before it says anything."""
    _firsts.append(do)


def no_longer(do: Callable[[], None]) -> None:
    """Have a stop leave that out, where it was among what it does first."""
    with suppress(ValueError):
        _firsts.remove(do)


@contextmanager
def unbroken() -> Iterator[None]:
    """What is done inside is done whole before a stop ends the process."""
    with _unbroken:
        yield


def give_way() -> None:
    """Wait for the end where a stop was asked for: a device may have failed by the signal.

    LLVM, which PoCL compiles with, hears signals before anybody else and takes back the files that
    it is writing, so that a build fails; the signal's number may still be on its way to us.
    """
    if _heard.wait(GRACE):
        threading.Event().wait()  # the stop ends the process


def _hear(pipe: int) -> None:
    """Start the end at the first signal, and end at once at the second."""
    number = _next(pipe)
    _heard.set()
    try:
        threading.Thread(target=_leave, args=(number,), name="parting", daemon=True).start()
    except RuntimeError:  # the system starts no more
        _leave(number)
    time.sleep(ECHO)
    os.set_blocking(pipe, False)
    with suppress(BlockingIOError):
        while os.read(pipe, 1):
            pass
    os.set_blocking(pipe, True)
    os._exit(EXIT_SIGNAL + _next(pipe))


def _next(pipe: int) -> int:
    """The next of the signals, once it comes."""
    while True:
        number = os.read(pipe, 1)[0]
        if number in SIGNALS:
            return number


def _leave(number: int) -> None:
    """Part, and end the process; whoever else comes to something unbroken waits for that."""
    with _unbroken:
        code = None
        try:
            text, code = _partings[-1]() if _partings else Farewell()
            for do in _firsts:
                do()
            line = f"mltree: stopped by {signal.Signals(number).name}{text and ': '}{text}\n"
            with suppress(OSError):  # a terminal that is gone, as after SIGHUP
                os.write(STDERR, line.encode(errors="backslashreplace"))
        except Exception:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(EXIT_SIGNAL + number if code is None else code)
