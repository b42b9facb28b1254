"""The line of ranks that MPI has launched, by a thread that alone speaks MPI: others compute.

It never blocks in MPI, which would take a core: it looks for messages, and sleeps in between. It
also tells its peers that it is alive, and learns whether they are: a rank that was killed takes its
line along, and most launchers, though not all, take all ranks then.
"""

from __future__ import annotations

import pickle
import threading
import time
import warnings
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import mpi4py

mpi4py.rc.initialize = mpi4py.rc.finalize = False
from mpi4py import MPI  # noqa: E402

from mltree.system.rank_processes import Greeting, Message  # noqa: E402

SHORTEST, LONGEST = 1e-4, 1e-2
"""Seconds between two looks for messages: after one, and when nothing has come for long."""

BEAT, SILENCE = 5.0, 120.0
"""Seconds between two signs of life, and without one until a rank counts as dead: longer than any
call that keeps Python's other threads waiting."""

GOODBYE = 10.0
"""Seconds that the last messages may take."""


class MpiLine:
    """A rank's connection to its peers, which MPI has launched."""

    are_alike = False

    def __init__(self) -> None:
        """Greet all ranks.

        Raises: RuntimeError: MPI cannot be started.
        """
        self.rank = 0
        self.greetings: Sequence[Greeting] = ()
        self._outbox: SimpleQueue[tuple[int, bytes]] = SimpleQueue()
        self._counts: tuple[list[int], list[int]] = [], []
        """Messages that were sent to each rank, and those that came from it."""
        self._wake, self._is_closing = threading.Event(), False
        self._problem: Exception | None = None
        self._answered = threading.Event()
        greeted = threading.Event()
        self._thread = threading.Thread(
            target=self._speak, args=(greeted,), name="ranks", daemon=True
        )
        self._thread.start()
        greeted.wait()
        if self._problem is not None:
            raise RuntimeError(str(self._problem)) from self._problem

    def answer(self, hear: Callable[[int, Message], None], lost: Callable[[int], None]) -> None:
        """Speak with the peers from now on; see :class:`.Line`."""
        self._hear, self._lost = hear, lost
        self._answered.set()

    def send(self, rank: int, kind: str, content: Any = None) -> None:
        """Send a message, at once, from any thread."""
        self._outbox.put((rank, pickle.dumps(Message(kind, content))))
        self._wake.set()

    def expect(self) -> None:
        """Look for messages often again, for somebody waits for one."""
        self._wake.set()

    def hang_up(self) -> None:
        """Send what waits, and nothing more; peers may go."""
        self._is_closing = True
        self._wake.set()

    def close(self) -> None:
        """Hang up, and wait until that is done."""
        self.hang_up()
        self._thread.join(GOODBYE)

    def _speak(self, greeted: threading.Event) -> None:
        try:
            with warnings.catch_warnings():  # of another MPI's launcher: the sizes tell
                warnings.simplefilter("ignore")
                MPI.Init_thread(MPI.THREAD_FUNNELED)
            world = MPI.COMM_WORLD
            self.rank = world.rank
            self.greetings = world.allgather(Greeting.own())
            self._counts = [0] * world.size, [0] * world.size
        except Exception as error:
            self._problem = error
            return
        finally:
            greeted.set()
        self._answered.wait()
        peers = _Peers(world.rank, self.greetings)
        self._serve(world, peers)
        if not peers.dead and self._took_in_all(world, peers):
            MPI.Finalize()  # waits for all, the dead too

    def _took_in_all(self, world: MPI.Intracomm, peers: _Peers) -> bool:
        """Take in what peers still sent, which nobody heeds; whether all of them told how much.

        MPICH takes a message that nobody has received for an error at the end.
        """
        self._hear = lambda *_: None
        sent, coming = array("q", self._counts[0]), array("q", [0] * world.size)
        told = world.Ialltoall([sent, MPI.INT64_T], [coming, MPI.INT64_T])
        while not told.Test() or self._counts[1] != coming.tolist():
            self._receive(world, peers)
            if peers.newly_dead():
                return False
            time.sleep(SHORTEST)
        return True

    def _serve(self, world: MPI.Intracomm, peers: _Peers) -> None:
        """Send and receive; nobody waits for messages of a line that has failed."""
        try:
            self._exchange(world, peers)
        except BaseException:
            self._lost(self.rank)
            raise

    def _exchange(self, world: MPI.Intracomm, peers: _Peers) -> None:
        """Send and receive until the line is closed and all is sent."""
        sending: list[MPI.Request] = []
        pause = SHORTEST
        while True:
            is_closing = self._is_closing
            sending = [request for request in sending if not request.Test()]
            sent = self._post(world, peers, sending)
            received = self._receive(world, peers)
            for rank in [] if self._is_closing else peers.newly_dead():
                self._lost(rank)
            if is_closing and not sending and not sent:
                return
            is_busy = sent or received or sending  # what is large goes in pieces, one a look
            pause = SHORTEST if is_busy else min(2 * pause, LONGEST)
            if self._wake.wait(pause):
                pause = SHORTEST
            self._wake.clear()

    def _post(self, world: MPI.Intracomm, peers: _Peers, sending: list[MPI.Request]) -> bool:
        """Begin to send what waits, and signs of life where they are due."""
        letters = [(rank, b"") for rank in peers.due()]
        letters += [self._outbox.get() for _ in range(self._outbox.qsize())]  # none other takes any
        for rank, letter in letters:
            if rank not in peers.dead:
                sending.append(world.Isend([letter, MPI.BYTE], rank))
                self._counts[0][rank] += 1
        return any(letter for _, letter in letters)

    def _receive(self, world: MPI.Intracomm, peers: _Peers) -> bool:
        """Hear all that has come."""
        status, heard = MPI.Status(), False
        while (letter := world.Improbe(status=status)) is not None:
            content = bytearray(status.Get_count(MPI.BYTE))
            letter.Recv([content, MPI.BYTE])
            rank = status.Get_source()
            peers.alive(rank)
            self._counts[1][rank] += 1
            if content:
                heard = True
                self._hear(rank, pickle.loads(content))
        return heard


class _Peers:
    """Whom a line speaks to, and when they were last heard."""

    def __init__(self, rank: int, greetings: Sequence[Greeting]) -> None:
        own, now = greetings[rank], time.monotonic()
        self._heard = dict.fromkeys(range(1, len(greetings)) if rank == 0 else (0,), now)
        self.dead: set[int] = set()
        self._beat = self._looked = now
        self._visible = {
            n: greetings[n].process
            for n in self._heard
            if greetings[n].host == own.host and _runs(greetings[n].process)
        }
        """Processes that this one sees: on its host, and not in a container of their own."""

    def alive(self, rank: int) -> None:
        """A peer was heard."""
        self._heard[rank] = time.monotonic()

    def due(self) -> list[int]:
        """Peers that have to be told that this one is alive."""
        now = time.monotonic()
        if now - self._beat < BEAT:
            return []
        self._beat = now
        return list(self._heard)

    def newly_dead(self) -> list[int]:
        """Peers that have died since this was asked last."""
        now = time.monotonic()
        if now - self._looked < BEAT / 10:
            return []
        self._looked = now
        found = [
            rank
            for rank, heard in self._heard.items()
            if rank not in self.dead
            and (
                now - heard > SILENCE or (rank in self._visible and not _runs(self._visible[rank]))
            )
        ]
        self.dead.update(found)
        return found


def _runs(process: int) -> bool:
    """Whether a process of this host lives, as far as it shows its processes."""
    try:
        state = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return state.rpartition(")")[2].split()[0] not in {"Z", "X"}
