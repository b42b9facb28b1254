"""Several ranks: the coordinator, which deals out tasks, the peers that follow it, and sockets."""

from __future__ import annotations

import itertools
import os
import pickle
import platform
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
import warnings
from _thread import interrupt_main
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from typing import TYPE_CHECKING, Any, BinaryIO, Generic, NamedTuple, NoReturn, Protocol, TypeAlias

from mltree.system import __version__
from mltree.system.errors import InputError, MltreeError
from mltree.system.process import (
    SIGNALS,
    before_exit,
    cancel_before_exit,
    isolated_command,
    tune_malloc,
)
from mltree.system.ranks import Ranks, Result, Task, Work, join_host

if TYPE_CHECKING:
    from mpi4py import MPI


# Messages of ranks, and the transport that carries them.


class MessageKind:
    """Kinds of messages."""

    CALL, GO, TASK, OVER, ASK, FORGET, END = "call", "go", "task", "over", "ask", "forget", "end"
    """From the coordinator: call this function; go through tasks; a task; no more tasks; answer a
    task; drop what a call returned; end."""
    READY, WANT, RESULT, IDLE, ANSWER = "ready", "want", "result", "idle", "answer"
    FAILED = "failed"
    """From a peer: function called; next task, please; a result; all tasks done; an answer; a
    failure."""


class Message(NamedTuple):
    """Message from a rank to another."""

    kind: str
    content: Any = None


class Greeting(NamedTuple):
    """Identity of a rank, exchanged when ranks meet."""

    host: str
    process: int
    cpus: tuple[int, ...]
    """CPUs that the process may run on."""
    version: str
    command: tuple[str, ...]

    @classmethod
    def of_this_process(cls) -> Greeting:
        """The greeting of this process."""
        cpus = tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else ()
        return cls(platform.node(), os.getpid(), cpus, __version__, tuple(sys.argv[1:]))


OnMessage: TypeAlias = Callable[[int, Message], None]
OnLost: TypeAlias = Callable[[int], None]


class Transport(Protocol):
    """Connection of a rank to its peers: all others for the coordinator, rank 0 for the others."""

    @property
    def greetings(self) -> Sequence[Greeting]:
        """Greetings of all ranks, in order; known to the coordinator."""
        ...

    @property
    def are_alike(self) -> bool:
        """True where the coordinator started all ranks on this machine: devices are alike."""

    def start(self, on_message: OnMessage, on_lost: OnLost) -> None:
        """Start to exchange messages with the peers.

        on_message  called by the transport's threads with every message and the rank of its sender
        on_lost     called by those threads with a peer that has died, once; with this rank where
                    the transport fails
        """

    def send(self, rank: int, kind: str, content: Any = None) -> None:
        """Send a message, from any thread."""

    def poll_often(self) -> None:
        """Poll for messages often again, because a caller waits for one."""

    def finish(self) -> None:
        """Send what is queued, and nothing more; peers may end."""

    def close(self) -> None:
        """Finish, and wait until that is done."""


# CPUs of the ranks on one host.


def local_rank(rank: int, every: Sequence[Greeting]) -> tuple[int, int]:
    """The number of a rank among those of its host, from 0, and the number of those."""
    mates = [n for n, other in enumerate(every) if other.host == every[rank].host]
    return mates.index(rank), len(mates)


def cpus_of(rank: int, every: Sequence[Greeting]) -> tuple[int, ...]:
    """The CPUs of a rank: all that it is bound to, or its share where others are bound to them."""
    host, _, cpus, *_ = every[rank]
    mates = [n for n, other in enumerate(every) if (other.host, other.cpus) == (host, cpus)]
    place, count = mates.index(rank), len(mates)
    if len(cpus) < count:
        return cpus[place % len(cpus) :][:1] if cpus else ()
    return cpus[place * len(cpus) // count : (place + 1) * len(cpus) // count]


def pin_to(cpus: tuple[int, ...]) -> None:
    """Pin the process to CPUs, which :mod:`mltree.system.process` counts."""
    if cpus:
        os.sched_setaffinity(0, cpus)


STRANGE_HINT = (
    "launch with the mpiexec of the MPI that mpi4py finds; runs of their own: srun --mpi=none"
)

INTERRUPT = signal.SIGURG
"""Signal by which a transport's thread ends the main thread; schedulers do not send it."""

DEAD_HINT = "what is done is kept: the same command goes on from there"


class Failure(NamedTuple):
    """Reason why a rank cannot go on."""

    text: str
    hint: str | None = None
    is_bug: bool = False


class Coordinator(Ranks):
    """The ranks as rank 0 has them: itself, and the peers, which :func:`follow` it."""

    def __init__(self, transport: Transport) -> None:
        self.size = len(transport.greetings)
        self._transport, self._tasks = transport, _SharedTasks[Any](())
        self._others = range(1, self.size)
        self._messages: SimpleQueue[tuple[int, Message]] = SimpleQueue()
        self._is_open = True
        self._numbers = itertools.count(1)
        """Numbers of calls and questions: answers to earlier numbers may still come."""
        self._dealing = 0
        """Number of the call whose tasks are dealt out, 0 for none: a peer that works on an earlier
        call gets none of these tasks."""
        transport.start(self._on_message, self._peer_lost)
        before_exit(self.dismiss)

    @property
    def text(self) -> str:
        """The processes of all ranks, in one line."""
        greetings = self._transport.greetings
        named = (f"{n} is {_process_text(greeting)}" for n, greeting in enumerate(greetings))
        return f"{self.size} ranks: {', '.join(named)}"

    def agree(self, launched: int) -> None:
        """Make sure that the ranks belong together.

        launched  number of processes by the launcher's environment

        Raises: InputError: versions, commands or numbers of ranks differ.
        """
        first, *others = self._transport.greetings
        if self.size != launched:
            text = f"{launched} processes were launched, but MPI joins {self.size}"
            raise InputError(text, hint=STRANGE_HINT)
        for number, other in enumerate(others, 1):
            name = f"rank {number} ({_process_text(other)})"
            if other.version != first.version:
                text = f"{name} is mltree {other.version}, rank 0 is {first.version}"
                raise InputError(text)
            if other.command != first.command:
                text = f"{name} was given another command than rank 0"
                raise InputError(text, hint=STRANGE_HINT)

    def everywhere(self, check: Callable[[], object], kept_as: int = 0) -> None:
        """Call a function on every peer, which keeps the returned value under a number."""
        self._await(self._call(check, kept_as))

    def forget(self, kept_as: int) -> None:
        """Drop a value that peers keep."""
        if self._is_open:
            for rank in self._others:
                self._transport.send(rank, MessageKind.FORGET, kept_as)

    def deal(
        self,
        tasks: Iterable[Task],
        work: Work[Task, Result],
        helping: Callable[[], Work[Task, Result]],
    ) -> Iterator[Result]:
        """The results of tasks as they end.

        Rank 0 begins while peers that it started get ready. Launched peers may have devices of
        other kinds, an error that is raised before any rank begins.
        """
        self._tasks = shared = _SharedTasks(tasks)
        number = next(self._numbers)
        self._dealing = number if self._transport.are_alike else 0
        self._call(helping, number=number)
        if not self._transport.are_alike:
            self._await(number)
            self._dealing = number
            for rank in self._others:
                self._transport.send(rank, MessageKind.GO, number)
        busy = set(self._others)
        try:
            for result in work(shared):
                yield result
                yield from self._results(busy, number, waits=False)
            yield from self._results(busy, number, waits=True)
        finally:
            self._dealing = 0
            shared.close()

    def gather(
        self, tasks: Sequence[Task], answer: Callable[[Task], Result], kept_as: int = 0
    ) -> list[Result]:
        """The answers to one task a rank, at most, in order."""
        number = next(self._numbers)
        own_task, *others = tasks
        for rank, task in enumerate(others, 1):
            self._transport.send(rank, MessageKind.ASK, (kept_as, number, task))
        answers = {0: answer(own_task)}
        while len(answers) < len(tasks):
            rank, message = self._next()
            if message.kind == MessageKind.ANSWER and message.content[0] == number:
                answers[rank] = message.content[1]
        return [answers[rank] for rank in range(len(tasks))]

    def dismiss(self) -> None:
        """End the peers, even while they work."""
        if self._is_open:
            self._is_open = False
            cancel_before_exit(self.dismiss)
            for rank in self._others:
                self._transport.send(rank, MessageKind.END)
            self._transport.close()

    def _call(self, function: Callable[[], object], kept_as: int = 0, number: int = 0) -> int:
        """Send a function to every peer, under a number, which is returned."""
        number = number or next(self._numbers)
        call = pickle.dumps(function)
        for rank in self._others:
            self._transport.send(rank, MessageKind.CALL, (kept_as, number, call))
        return number

    def _await(self, number: int) -> None:
        """Wait until every peer has done a call; messages about earlier calls are dropped."""
        waited_for = set(self._others)
        while waited_for:
            rank, message = self._next()
            if message == (MessageKind.READY, number):
                waited_for.discard(rank)

    def _results(self, busy: set[int], number: int, *, waits: bool) -> Iterator[Any]:
        """Results that have arrived from peers; with ``waits`` all, until no peer is busy."""
        while busy and (waits or not self._messages.empty()):
            rank, message = self._next()
            if message == (MessageKind.IDLE, number):
                busy.discard(rank)
            elif message.kind == MessageKind.RESULT and message.content[0] == number:
                yield message.content[1]

    def _next(self) -> tuple[int, Message]:
        """The next message of a peer.

        Raises:
            InputError: the peer cannot go on.
            RuntimeError: the peer met a bug.
        """
        self._transport.poll_often()
        rank, message = self._messages.get()
        if message.kind == MessageKind.FAILED:
            failure: Failure = message.content
            text = f"rank {rank} ({_process_text(self._transport.greetings[rank])}) {failure.text}"
            if failure.is_bug:
                raise RuntimeError(text)
            raise InputError(text, hint=failure.hint)
        return rank, message

    def _on_message(self, rank: int, message: Message) -> None:
        """Answer READY and WANT at once, in the transport's thread; queue other messages."""
        if message.kind != MessageKind.WANT:
            self._messages.put((rank, message))
            if message == (MessageKind.READY, self._dealing):
                self._transport.send(rank, MessageKind.GO, self._dealing)
            return
        for task in self._tasks if message.content == self._dealing else ():
            self._transport.send(rank, MessageKind.TASK, task)
            return
        self._transport.send(rank, MessageKind.OVER)

    def _peer_lost(self, rank: int) -> None:
        problem = "has died" if rank > 0 else "cannot speak to the others any more"
        self._messages.put((rank, Message(MessageKind.FAILED, Failure(problem, DEAD_HINT))))


class _SharedTasks(Generic[Task]):
    """Tasks that several threads take, each task once."""

    def __init__(self, tasks: Iterable[Task]) -> None:
        self._tasks, self._lock = iter(tasks), Lock()

    def __iter__(self) -> Iterator[Task]:
        return self

    def __next__(self) -> Task:
        with self._lock:
            return next(self._tasks)

    def close(self) -> None:
        """Drop the tasks that are left."""
        with self._lock:
            self._tasks = iter(())


def follow(transport: Transport) -> NoReturn:
    """Do what the coordinator asks, and end when it says so or has died."""
    inbox = _Inbox()

    def on_message(_: int, message: Message) -> None:
        inbox.put(message)
        if message.kind == MessageKind.END:
            transport.finish()
            interrupt_main(INTERRUPT)  # the main thread may work on a task that was abandoned

    signal.signal(INTERRUPT, lambda *_: sys.exit())
    transport.start(on_message, on_lost=lambda _: os._exit(1))
    try:
        _answer_calls(transport, inbox)
    finally:
        transport.close()
    sys.exit()


class _Inbox:
    """Messages of the coordinator that wait: calls, and the tasks of a call, in two queues.

    The coordinator may abandon tasks, so that its next call arrives before the end of those tasks.
    """

    def __init__(self) -> None:
        self.calls: SimpleQueue[Message] = SimpleQueue()
        self.tasks: SimpleQueue[Message] = SimpleQueue()

    def put(self, message: Message) -> None:
        """Queue a message; END goes into both queues."""
        if message.kind not in {MessageKind.TASK, MessageKind.OVER}:
            self.calls.put(message)
        if message.kind in {MessageKind.TASK, MessageKind.OVER, MessageKind.END}:
            self.tasks.put(message)


def _answer_calls(transport: Transport, inbox: _Inbox) -> None:
    """Answer messages until END."""
    kept: dict[int, Any] = {}
    while (message := inbox.calls.get()).kind != MessageKind.END:
        with _sending_failures(transport):
            if message.kind == MessageKind.CALL:
                place, number, call = message.content
                kept.pop(place, None)  # frees its memory first
                kept[place] = pickle.loads(call)()
                transport.send(0, MessageKind.READY, number)
            elif message.kind == MessageKind.GO:
                number = message.content
                for result in kept[0](_tasks_of(transport, inbox, number)):
                    transport.send(0, MessageKind.RESULT, (number, result))
                transport.send(0, MessageKind.IDLE, number)
            elif message.kind == MessageKind.ASK:
                place, number, task = message.content
                transport.send(0, MessageKind.ANSWER, (number, kept[place](task)))
            elif message.kind == MessageKind.FORGET:
                kept.pop(message.content, None)


@contextmanager
def _sending_failures(transport: Transport) -> Iterator[None]:
    """Send errors to the coordinator, which raises them."""
    try:
        yield
    except MltreeError as error:
        failure = Failure(f"cannot take part: {error.message}", error.hint)
        transport.send(0, MessageKind.FAILED, failure)
    except Exception:
        transport.send(0, MessageKind.FAILED, Failure(traceback.format_exc(), is_bug=True))


def _tasks_of(transport: Transport, inbox: _Inbox, number: int) -> Iterator[Any]:
    """Tasks of the call with this number, requested one by one."""
    while True:
        transport.send(0, MessageKind.WANT, number)
        message = inbox.tasks.get()
        if message.kind != MessageKind.TASK:
            return
        yield message.content


def _process_text(greeting: Greeting) -> str:
    return f"process {greeting.process} on {greeting.host}"


# Ranks of one machine that the coordinator has started: a socket to each, a thread at both ends. A
# socket ends with its process, however that ends: either side knows at once that the other died.

SIZE_BYTES = 8
"""Bytes of a message's length, which precedes the message."""

GRACE = 0.5
"""Seconds in which peers may end by themselves, and clean up."""


class SocketTransport:
    """Sockets to peers on this machine."""

    are_alike = True

    def __init__(
        self,
        sockets: Mapping[int, socket.socket],
        greetings: Sequence[Greeting] = (),
        processes: Sequence[subprocess.Popen[bytes]] = (),
    ) -> None:
        """``processes``: those that this one has started, and waits for at the end."""
        self.greetings = greetings
        self._sockets, self._processes = sockets, processes
        self._locks = {rank: threading.Lock() for rank in sockets}
        self._is_closing = False

    def start(self, on_message: OnMessage, on_lost: OnLost) -> None:
        """Start to exchange messages with the peers; see :class:`.Transport`."""
        for rank in self._sockets:
            heard = rank, on_message, on_lost
            threading.Thread(target=self._receive, args=heard, daemon=True).start()

    def send(self, rank: int, kind: str, content: Any = None) -> None:
        """Send a message; the receiving thread reports a peer that has died."""
        payload = pickle.dumps(Message(kind, content))
        with self._locks[rank], suppress(OSError):
            self._sockets[rank].sendall(len(payload).to_bytes(SIZE_BYTES, "little") + payload)

    def poll_often(self) -> None:
        """Do nothing: messages are received as they arrive."""

    def finish(self) -> None:
        """Let peers end."""
        self._is_closing = True

    def close(self) -> None:
        """Finish, and wait for every process that this one has started."""
        self.finish()
        for peer in self._sockets.values():
            with suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)
        deadline = time.monotonic() + GRACE
        for process in self._processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
            process.kill()  # inside a launch, say; no effect on one that has ended
            process.wait()
        for peer in self._sockets.values():
            peer.close()

    def _receive(self, rank: int, on_message: OnMessage, on_lost: OnLost) -> None:
        """Receive messages of a peer until its end."""
        try:
            with suppress(OSError), self._sockets[rank].makefile("rb") as stream:
                while (payload := _next(stream)) is not None:
                    on_message(rank, pickle.loads(payload))
        finally:
            if not self._is_closing:
                on_lost(rank)


def _next(stream: BinaryIO) -> bytes | None:
    """The next message of a stream; None at its end, or where a message is cut off."""
    head = stream.read(SIZE_BYTES)
    size = int.from_bytes(head, "little")
    payload = stream.read(size) if len(head) == SIZE_BYTES else b""
    return payload if payload and len(payload) == size else None


def start_processes(count: int) -> SocketTransport:
    """Start ``count`` - 1 peers on this machine, and return the coordinator's transport.

    Raises: InputError: the processes cannot be started.
    """
    greeting = Greeting.of_this_process()
    sockets: dict[int, socket.socket] = {}
    processes: list[subprocess.Popen[bytes]] = []
    greetings = [greeting]
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # which they inherit
    try:
        for rank in range(1, count):
            sockets[rank], peer_socket = socket.socketpair()
            with peer_socket:
                processes.append(_started(peer_socket, rank, count))
            greetings.append(greeting._replace(process=processes[-1].pid))
    except OSError as error:
        SocketTransport(sockets, greetings, processes).close()
        raise InputError(
            f"cannot start {count} processes: {error.strerror}", hint="give --ranks fewer"
        ) from error
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return SocketTransport(sockets, greetings, processes)


def _started(peer_socket: socket.socket, rank: int, count: int) -> subprocess.Popen[bytes]:
    silent = subprocess.DEVNULL
    command = isolated_command(serve, peer_socket.fileno(), rank, count)
    return subprocess.Popen(command, stdin=silent, stdout=silent, pass_fds=[peer_socket.fileno()])


def serve(descriptor: int, rank: int, count: int) -> NoReturn:
    """Be a peer that the coordinator has started; signals are the coordinator's to handle."""
    peer_socket = socket.socket(fileno=descriptor)
    peer_socket.set_inheritable(False)
    tune_malloc()
    join_host(rank, count)
    follow(SocketTransport({0: peer_socket}))


# Transport between ranks that MPI has launched, by one thread that calls MPI; others compute.
#
# The thread never blocks in MPI, which would take a core: it polls for messages, and sleeps between
# two polls. It also sends and checks heartbeats: not every launcher ends all ranks when one is
# killed.

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

        Raises: ImportError without mpi4py, RuntimeError if MPI cannot be started.
        """
        import mpi4py

        mpi4py.rc.initialize = mpi4py.rc.finalize = False  # importing MPI changes nothing
        self.rank = 0
        self.greetings: Sequence[Greeting] = ()
        self._outbox: SimpleQueue[tuple[int, bytes]] = SimpleQueue()
        self._counts: tuple[list[int], list[int]] = [], []
        """Numbers of messages sent to each rank, and received from it."""
        self._wake, self._is_closing = threading.Event(), False
        self._problem: Exception | None = None
        self._started = threading.Event()
        greeted = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(greeted,), daemon=True)
        self._thread.start()
        greeted.wait()
        if self._problem is not None:
            raise RuntimeError(str(self._problem)) from self._problem

    def start(self, on_message: OnMessage, on_lost: OnLost) -> None:
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
            from mpi4py import MPI

            with warnings.catch_warnings():  # of another MPI's launcher: the sizes tell
                warnings.simplefilter("ignore")
                MPI.Init_thread(MPI.THREAD_FUNNELED)
            communicator = MPI.COMM_WORLD
            self.rank = communicator.rank
            self.greetings = communicator.allgather(Greeting.of_this_process())
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
        from mpi4py import MPI

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
        from mpi4py import MPI

        messages = [(rank, b"") for rank in peers.due()]
        messages += [self._outbox.get() for _ in range(self._outbox.qsize())]  # the only taker
        for rank, payload in messages:
            if rank not in peers.dead:
                sending.append(communicator.Isend([payload, MPI.BYTE], rank))
                self._counts[0][rank] += 1
        return any(payload for _, payload in messages)

    def _receive(self, communicator: MPI.Intracomm, peers: _Peers) -> bool:
        """Receive all messages that have arrived; True for any."""
        from mpi4py import MPI

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
        gone = {rank for rank, process in self._visible.items() if not _runs(process)}
        silent = {rank for rank, heard in self._last_seen.items() if now - heard > SILENCE}
        dead = sorted((gone | silent) - self.dead)
        self.dead.update(dead)
        return dead


def _runs(process: int) -> bool:
    """True for a process of this host that lives, as far as the host shows its processes."""
    try:
        state = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return state.rpartition(")")[2].split()[0] not in {"Z", "X"}
