"""Becoming one of several ranks: launched by MPI, or as the coordinator that starts the others."""

from __future__ import annotations

import os
import pickle
import sys
import threading
import time
import warnings
from array import array
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import mpi4py
from mpi4py import MPI

from mltree.system.errors import InputError
from mltree.system.process import ignore_signals, limit_drivers
from mltree.system.rank_processes import Greeting, Message
from mltree.system.ranks import (
    LONE,
    current_ranks,
    dismiss,
    join_host,
    set_current_ranks,
    set_launch_error,
    set_local_rank,
)

LAUNCHERS = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("PMIX_RANK", "SLURM_STEP_NUM_TASKS"),
)
"""Variables by which MPI launchers tell a process its rank and their number: Open MPI, MPICH and
Intel MPI (``srun --mpi=pmi2`` too), MVAPICH, ``srun --mpi=pmix``."""


MISSING_HINT = "pip install 'mltree[mpi]', which takes the MPI of the launcher"


def join(environment: Mapping[str, str] = os.environ) -> None:
    """Become one of the ranks that were launched; only rank 0 returns.

    Where the processes cannot become ranks, rank 0 returns with ``ranks.launch_error`` set, and the
    others end.
    """
    number, size = launched(environment)
    if size == 1:
        return
    try:
        transport = MpiTransport()
    except (ImportError, RuntimeError) as error:
        text = f"{size} processes were launched, but mpi4py cannot join them: {error}"
        set_launch_error(InputError(text, hint=MISSING_HINT))
        if number > 0:
            sys.exit()  # rank 0 says why
        return
    from mltree.system import rank_processes

    rank_processes.pin_to(rank_processes.cpus_of(transport.rank, transport.greetings))
    limit_drivers()
    set_local_rank(*rank_processes.local_rank(transport.rank, transport.greetings))
    if transport.rank > 0:
        ignore_signals()  # rank 0 decides about the end
        rank_processes.follow(transport)
    coordinator = rank_processes.Coordinator(transport)
    set_current_ranks(coordinator)
    try:
        coordinator.agree(size)
    except InputError as error:
        set_launch_error(error)
        dismiss()
        if number > 0:
            sys.exit()


def start(count: int | None) -> None:
    """Become the coordinator of ``count`` ranks on this machine, and start the others.

    Called before drivers are loaded, whose numbers of threads it sets. None and 1 start nothing.

    Raises: InputError: a launcher has started ranks, or processes cannot be started.
    """
    if count is None or count == 1:
        return
    if current_ranks() is not LONE:
        hint = "leave out --ranks, or start mltree by itself"
        raise InputError("--ranks: a launcher has started ranks already", hint=hint)
    from mltree.system import rank_processes

    join_host(0, count)
    limit_drivers()
    set_current_ranks(rank_processes.Coordinator(rank_processes.start_processes(count)))


def launched(environment: Mapping[str, str]) -> tuple[int, int]:
    """The number of this process among those launched together, and their number; 0, 1 if alone."""
    for rank, size in LAUNCHERS:
        values = environment.get(rank, ""), environment.get(size, "")
        if all(value.isascii() and value.isdigit() for value in values):
            number, count = map(int, values)
            return number, max(count, 1)
    return 0, 1


# Transport between ranks that MPI has launched, by one thread that calls MPI; others compute.
#
# The thread never blocks in MPI, which would take a core: it polls for messages, and sleeps between
# two polls. It also sends and checks heartbeats: not every launcher ends all ranks when one is
# killed.

mpi4py.rc.initialize = mpi4py.rc.finalize = False


SHORTEST, LONGEST = 1e-4, 1e-2
"""Seconds between two polls: after a message, and when none has arrived for long."""

BEAT, SILENCE = 5.0, 120.0
"""Seconds between two heartbeats, and without one until a rank counts as dead: longer than any call
that keeps Python's other threads waiting."""

GOODBYE = 10.0
"""Seconds that the last messages may take."""


class MpiTransport:
    """Connection of a rank to its peers, which MPI has launched."""

    are_alike = False

    def __init__(self) -> None:
        """Exchange greetings with all ranks.

        Raises: RuntimeError: MPI cannot be started.
        """
        self.rank = 0
        self.greetings: Sequence[Greeting] = ()
        self._outbox: SimpleQueue[tuple[int, bytes]] = SimpleQueue()
        self._counts: tuple[list[int], list[int]] = [], []
        """Numbers of messages sent to each rank, and received from it."""
        self._wake, self._is_closing = threading.Event(), False
        self._problem: Exception | None = None
        self._started = threading.Event()
        greeted = threading.Event()
        self._thread = threading.Thread(
            target=self._run, args=(greeted,), name="ranks", daemon=True
        )
        self._thread.start()
        greeted.wait()
        if self._problem is not None:
            raise RuntimeError(str(self._problem)) from self._problem

    def start(
        self, on_message: Callable[[int, Message], None], on_lost: Callable[[int], None]
    ) -> None:
        """Start to exchange messages with the peers; see :class:`.Transport`."""
        self._on_message, self._on_lost = on_message, on_lost
        self._started.set()

    def send(self, rank: int, kind: str, content: Any = None) -> None:
        """Send a message, at once, from any thread."""
        self._outbox.put((rank, pickle.dumps(Message(kind, content))))
        self._wake.set()

    def poll_often(self) -> None:
        """Poll for messages often again, because a caller waits for one."""
        self._wake.set()

    def finish(self) -> None:
        """Send what is queued, and nothing more; peers may end."""
        self._is_closing = True
        self._wake.set()

    def close(self) -> None:
        """Finish, and wait until that is done."""
        self.finish()
        self._thread.join(GOODBYE)

    def _run(self, greeted: threading.Event) -> None:
        try:
            with warnings.catch_warnings():  # of another MPI's launcher: the sizes tell
                warnings.simplefilter("ignore")
                MPI.Init_thread(MPI.THREAD_FUNNELED)
            communicator = MPI.COMM_WORLD
            self.rank = communicator.rank
            self.greetings = communicator.allgather(Greeting.own())
            self._counts = [0] * communicator.size, [0] * communicator.size
        except Exception as error:
            self._problem = error
            return
        finally:
            greeted.set()
        self._started.wait()
        peers = _Peers(communicator.rank, self.greetings)
        self._serve(communicator, peers)
        if not peers.dead and self._drain(communicator, peers):
            MPI.Finalize()  # waits for all ranks, dead ones too

    def _drain(self, communicator: MPI.Intracomm, peers: _Peers) -> bool:
        """Receive and drop what peers have still sent; False where one has died meanwhile.

        MPICH takes a message that was never received for an error at the end.
        """
        self._on_message = lambda *_: None
        sent, coming = array("q", self._counts[0]), array("q", [0] * communicator.size)
        counted = communicator.Ialltoall([sent, MPI.INT64_T], [coming, MPI.INT64_T])
        while not counted.Test() or self._counts[1] != coming.tolist():
            self._receive(communicator, peers)
            if peers.newly_dead():
                return False
            time.sleep(SHORTEST)
        return True

    def _serve(self, communicator: MPI.Intracomm, peers: _Peers) -> None:
        """Send and receive; a failure is reported as the loss of this rank."""
        try:
            self._exchange(communicator, peers)
        except BaseException:
            self._on_lost(self.rank)
            raise

    def _exchange(self, communicator: MPI.Intracomm, peers: _Peers) -> None:
        """Send and receive until the transport is closed and all is sent."""
        sending: list[MPI.Request] = []
        pause = SHORTEST
        while True:
            is_closing = self._is_closing
            sending = [request for request in sending if not request.Test()]
            sent = self._post(communicator, peers, sending)
            received = self._receive(communicator, peers)
            for rank in [] if self._is_closing else peers.newly_dead():
                self._on_lost(rank)
            if is_closing and not sending and not sent:
                return
            is_busy = sent or received or sending  # large messages go in pieces, one a poll
            pause = SHORTEST if is_busy else min(2 * pause, LONGEST)
            if self._wake.wait(pause):
                pause = SHORTEST
            self._wake.clear()

    def _post(self, communicator: MPI.Intracomm, peers: _Peers, sending: list[MPI.Request]) -> bool:
        """Begin to send queued messages, and heartbeats that are due; True for any message."""
        messages = [(rank, b"") for rank in peers.due()]
        messages += [
            self._outbox.get() for _ in range(self._outbox.qsize())
        ]  # no other thread takes any
        for rank, payload in messages:
            if rank not in peers.dead:
                sending.append(communicator.Isend([payload, MPI.BYTE], rank))
                self._counts[0][rank] += 1
        return any(payload for _, payload in messages)

    def _receive(self, communicator: MPI.Intracomm, peers: _Peers) -> bool:
        """Receive all messages that have arrived; True for any."""
        status, heard = MPI.Status(), False
        while (payload := communicator.Improbe(status=status)) is not None:
            content = bytearray(status.Get_count(MPI.BYTE))
            payload.Recv([content, MPI.BYTE])
            rank = status.Get_source()
            peers.note(rank)
            self._counts[1][rank] += 1
            if content:
                heard = True
                self._on_message(rank, pickle.loads(content))
        return heard


class _Peers:
    """Peers of a transport, and when a message of each last arrived."""

    def __init__(self, rank: int, greetings: Sequence[Greeting]) -> None:
        greeting, now = greetings[rank], time.monotonic()
        self._last_seen = dict.fromkeys(range(1, len(greetings)) if rank == 0 else (0,), now)
        self.dead: set[int] = set()
        self._beat = self._looked = now
        self._visible = {
            n: greetings[n].process
            for n in self._last_seen
            if greetings[n].host == greeting.host and _runs(greetings[n].process)
        }
        """Processes visible to this one: on its host, and not in a container of their own."""

    def note(self, rank: int) -> None:
        """Note that a message of a peer has arrived."""
        self._last_seen[rank] = time.monotonic()

    def due(self) -> list[int]:
        """Peers to which a heartbeat is due."""
        now = time.monotonic()
        if now - self._beat < BEAT:
            return []
        self._beat = now
        return list(self._last_seen)

    def newly_dead(self) -> list[int]:
        """Peers that have died since the previous call."""
        now = time.monotonic()
        if now - self._looked < BEAT / 10:
            return []
        self._looked = now
        dead = [
            rank
            for rank, heard in self._last_seen.items()
            if rank not in self.dead
            and (
                now - heard > SILENCE or (rank in self._visible and not _runs(self._visible[rank]))
            )
        ]
        self.dead.update(dead)
        return dead


def _runs(process: int) -> bool:
    """True for a process of this host that lives, as far as the host shows its processes."""
    try:
        state = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return state.rpartition(")")[2].split()[0] not in {"Z", "X"}
