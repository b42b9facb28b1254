"""Ranks of one machine that the first one has started: a socket to each, a thread at both ends.

A socket ends with the process that holds it, however that ends, so that either side knows at once
that the other has died, and nothing is left behind.
"""

from __future__ import annotations

import pickle
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, BinaryIO, NoReturn

from mltree.clean_start import clean_start
from mltree.errors import InputError
from mltree.heap import keep_freed_memory
from mltree.ranks import take_part
from mltree.ranks.line import Greeting, Message
from mltree.ranks.world import follow
from mltree.stopping import SIGNALS

__all__ = ["LocalLine", "serve", "start"]

SIZE = 8
"""Bytes that say how long a message is."""

GRACE = 0.5
"""Seconds in which the others end by themselves, and put away what they have begun."""


class LocalLine:
    """Sockets to peers on this machine."""

    are_alike = True

    def __init__(
        self,
        sockets: Mapping[int, socket.socket],
        greetings: Sequence[Greeting] = (),
        processes: Sequence[subprocess.Popen[bytes]] = (),
    ) -> None:
        """``processes``: that this one has started, and has to see to the end."""
        self.greetings = greetings
        self._sockets, self._processes = sockets, processes
        self._locks = {rank: threading.Lock() for rank in sockets}
        self._is_closing = False

    def answer(self, hear: Callable[[int, Message], None], lost: Callable[[int], None]) -> None:
        """Speak with the peers from now on; see :class:`.Line`."""
        for rank in self._sockets:
            threading.Thread(
                target=self._listen, args=(rank, hear, lost), name=f"rank {rank}", daemon=True
            ).start()

    def send(self, rank: int, kind: str, content: Any = None) -> None:
        """Send a message; whoever listens to a peer that is gone says so."""
        letter = pickle.dumps(Message(kind, content))
        with self._locks[rank], suppress(OSError):
            self._sockets[rank].sendall(len(letter).to_bytes(SIZE, "little") + letter)

    def expect(self) -> None:
        """Messages are heard as they come."""

    def hang_up(self) -> None:
        """Peers may go."""
        self._is_closing = True

    def close(self) -> None:
        """Hang up, and see every process that this one has started to its end."""
        self.hang_up()
        for own in self._sockets.values():
            with suppress(OSError):
                own.shutdown(socket.SHUT_RDWR)
        deadline = time.monotonic() + GRACE
        for process in self._processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
            process.kill()  # inside a launch, say; one that has ended is left alone
            process.wait()
        for own in self._sockets.values():
            own.close()

    def _listen(
        self, rank: int, hear: Callable[[int, Message], None], lost: Callable[[int], None]
    ) -> None:
        """Hear a peer to its end."""
        try:
            with suppress(OSError), self._sockets[rank].makefile("rb") as stream:
                while (letter := _next(stream)) is not None:
                    hear(rank, pickle.loads(letter))
        finally:
            if not self._is_closing:
                lost(rank)


def _next(stream: BinaryIO) -> bytes | None:
    """The next message; None where there is no whole one any more."""
    head = stream.read(SIZE)
    size = int.from_bytes(head, "little")
    letter = stream.read(size) if len(head) == SIZE else b""
    return letter if letter and len(letter) == size else None


def start(count: int) -> LocalLine:
    """The line of the first of so many ranks, the others of which are started.

    Raises: InputError: they cannot be.
    """
    own = Greeting.own()
    sockets: dict[int, socket.socket] = {}
    processes: list[subprocess.Popen[bytes]] = []
    greetings = [own]
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # which they inherit
    try:
        for rank in range(1, count):
            sockets[rank], theirs = socket.socketpair()
            with theirs:
                processes.append(_started(theirs, rank, count))
            greetings.append(own._replace(process=processes[-1].pid))
    except OSError as error:
        LocalLine(sockets, greetings, processes).close()
        raise InputError(
            f"cannot start {count} processes: {error.strerror}", hint="give --ranks fewer"
        ) from error
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return LocalLine(sockets, greetings, processes)


def _started(theirs: socket.socket, rank: int, count: int) -> subprocess.Popen[bytes]:
    silent = subprocess.DEVNULL
    command = clean_start(serve, theirs.fileno(), rank, count)
    return subprocess.Popen(command, stdin=silent, stdout=silent, pass_fds=[theirs.fileno()])


def serve(descriptor: int, rank: int, count: int) -> NoReturn:
    """Be a rank that the first one has started; signals are the first one's to hear."""
    theirs = socket.socket(fileno=descriptor)
    theirs.set_inheritable(False)
    keep_freed_memory()
    take_part(rank, count)
    follow(LocalLine({0: theirs}))
