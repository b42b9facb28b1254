"""Several ranks: what the first one deals out, and what the others do."""

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
from _thread import interrupt_main
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from threading import Lock
from typing import Any, BinaryIO, Generic, NamedTuple, NoReturn, Protocol

from mltree import __version__
from mltree.system.errors import InputError, MltreeError
from mltree.system.process import clean_start, keep_freed_memory
from mltree.system.ranks import Ranks, Result, Task, Work, take_part
from mltree.system.signals import SIGNALS, before_leaving, no_longer

# What ranks say to each other, and the line that they say it over.


class Kind:
    """What a message is about."""

    CALL, GO, TASK, OVER, ASK, FORGET, END = (
        "call", "go", "task", "over", "ask", "forget", "end",
    )  # fmt: skip
    """From the first rank: call this; go through tasks; here is one; there is none; answer this;
    let go of this; go home."""
    READY, WANT, RESULT, IDLE, ANSWER, FAILED = (
        "ready", "want", "result", "idle", "answer", "failed",
    )  # fmt: skip
    """From the others: has called it; wants a task; has a result; is through; has an answer; cannot
    go on."""


class Message(NamedTuple):
    """From a rank to another."""

    kind: str
    content: Any = None


class Greeting(NamedTuple):
    """What ranks tell each other at first."""

    host: str
    process: int
    cpus: tuple[int, ...]
    """That it may run on."""
    version: str
    command: tuple[str, ...]

    @classmethod
    def own(cls) -> Greeting:
        """Of this process."""
        cpus = tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else ()
        return cls(platform.node(), os.getpid(), cpus, __version__, tuple(sys.argv[1:]))


class Line(Protocol):
    """A rank's connection to its peers: the first has all others, the others have the first."""

    @property
    def greetings(self) -> Sequence[Greeting]:
        """Of all ranks, in order; only the first one asks."""
        ...

    @property
    def are_alike(self) -> bool:
        """Whether all are of this machine, started by the first: their devices go together."""

    def answer(self, hear: Callable[[int, Message], None], lost: Callable[[int], None]) -> None:
        """Speak with the peers from now on.

        hear  called by the line's threads with every message, and the rank that it is from
        lost  called by them with a peer that has died, once; with this rank where the line fails
        """

    def send(self, rank: int, kind: str, content: Any = None) -> None:
        """Send a message, from any thread."""

    def expect(self) -> None:
        """Look for messages often again, for somebody waits for one."""

    def hang_up(self) -> None:
        """Send what waits, and nothing more; peers may go."""

    def close(self) -> None:
        """Hang up, and wait until that is done."""


# What ranks on one host have in common: its CPUs and its devices.


def turn_on_host(rank: int, every: Sequence[Greeting]) -> tuple[int, int]:
    """A rank's number among those of its host, from 0, and how many they are."""
    mates = [n for n, other in enumerate(every) if other.host == every[rank].host]
    return mates.index(rank), len(mates)


def share(rank: int, every: Sequence[Greeting]) -> tuple[int, ...]:
    """The CPUs of a rank: those that it was bound to, or its part of those that several were."""
    host, _, cpus, *_ = every[rank]
    mates = [n for n, other in enumerate(every) if (other.host, other.cpus) == (host, cpus)]
    place, count = mates.index(rank), len(mates)
    if len(cpus) < count:
        return cpus[place % len(cpus) :][:1] if cpus else ()
    return cpus[place * len(cpus) // count : (place + 1) * len(cpus) // count]


def keep_to(cpus: tuple[int, ...]) -> None:
    """Run on these CPUs alone, which :mod:`mltree.system.process` counts."""
    if cpus:
        os.sched_setaffinity(0, cpus)


STRANGE_HINT = (
    "launch with the mpiexec of the MPI that mpi4py finds; runs of their own: srun --mpi=none"
)

INTERRUPT = signal.SIGURG
"""By which a line's thread ends the main one: a signal that schedulers do not send."""

DEAD_HINT = "what is done is kept: the same command goes on from there"


class Failure(NamedTuple):
    """Why a rank cannot go on."""

    text: str
    hint: str | None = None
    is_bug: bool = False


class First(Ranks):
    """The ranks of the first one: itself, and the others, which :func:`follow` it."""

    def __init__(self, line: Line) -> None:
        self.size = len(line.greetings)
        self._line, self._tasks = line, _Shared[Any](())
        self._others = range(1, self.size)
        self._news: SimpleQueue[tuple[int, Message]] = SimpleQueue()
        self._is_open = True
        self._numbers = itertools.count(1)
        """Of what the others are asked and sent for: answers to earlier numbers may still come."""
        self._dealing = 0
        """Number of the call that tasks are dealt out by, 0 for none: a rank that was called for
        others is given none of these."""
        line.answer(self._hear, self._mourn)
        before_leaving(self.dismiss)

    @property
    def text(self) -> str:
        """Which processes they are."""
        greetings = self._line.greetings
        named = (f"{n} is {_named(greeting)}" for n, greeting in enumerate(greetings))
        return f"{self.size} ranks: {', '.join(named)}"

    def agree(self, launched: int) -> None:
        """Make sure that the ranks belong together.

        launched  processes that the launcher has told of

        Raises: InputError: they do not.
        """
        own, *others = self._line.greetings
        if self.size != launched:
            text = f"{launched} processes were launched, but MPI joins {self.size}"
            raise InputError(text, hint=STRANGE_HINT)
        for number, other in enumerate(others, 1):
            if other.version != own.version:
                text = f"rank {number} ({_named(other)}) is mltree {other.version}"
                raise InputError(f"{text}, rank 0 is {own.version}")
            if other.command != own.command:
                text = f"rank {number} ({_named(other)}) was given another command than rank 0"
                raise InputError(text, hint=STRANGE_HINT)

    def everywhere(self, check: Callable[[], object], kept_as: int = 0) -> None:
        """Have every other rank call this, and keep what it gives."""
        self._await(self._call(check, kept_as))

    def forget(self, kept_as: int) -> None:
        """Have the others let go of what they kept."""
        if self._is_open:
            for rank in self._others:
                self._line.send(rank, Kind.FORGET, kept_as)

    def deal(
        self,
        tasks: Iterable[Task],
        work: Work[Task, Result],
        helping: Callable[[], Work[Task, Result]],
    ) -> Iterator[Result]:
        """The results of tasks as they end.

        Where it has started the others it begins while they get ready. Ranks that were launched may
        have devices that do not go together, which is told before any begins.
        """
        self._tasks = shared = _Shared(tasks)
        number = next(self._numbers)
        self._dealing = number if self._line.are_alike else 0
        self._call(helping, number=number)
        if not self._line.are_alike:
            self._await(number)
            self._dealing = number
            for rank in self._others:
                self._line.send(rank, Kind.GO, number)
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
        own, *others = tasks
        for rank, task in enumerate(others, 1):
            self._line.send(rank, Kind.ASK, (kept_as, number, task))
        found = {0: answer(own)}
        while len(found) < len(tasks):
            rank, message = self._next()
            if message.kind == Kind.ANSWER and message.content[0] == number:
                found[rank] = message.content[1]
        return [found[rank] for rank in range(len(tasks))]

    def dismiss(self) -> None:
        """Send the others home, whatever they are doing."""
        if self._is_open:
            self._is_open = False
            no_longer(self.dismiss)
            for rank in self._others:
                self._line.send(rank, Kind.END)
            self._line.close()

    def _call(self, function: Callable[[], object], kept_as: int = 0, number: int = 0) -> int:
        """Have every other rank call this, by a number, which is given back."""
        number = number or next(self._numbers)
        call = pickle.dumps(function)
        for rank in self._others:
            self._line.send(rank, Kind.CALL, (kept_as, number, call))
        return number

    def _await(self, number: int) -> None:
        """Wait until every other rank has done a call; what is left of earlier ones is nothing."""
        waited_for = set(self._others)
        while waited_for:
            rank, message = self._next()
            if message == (Kind.READY, number):
                waited_for.discard(rank)

    def _results(self, busy: set[int], number: int, *, waits: bool) -> Iterator[Any]:
        """Those of the others that have come; ``waits``: all, until none is busy."""
        while busy and (waits or not self._news.empty()):
            rank, message = self._next()
            if message == (Kind.IDLE, number):
                busy.discard(rank)
            elif message.kind == Kind.RESULT and message.content[0] == number:
                yield message.content[1]

    def _next(self) -> tuple[int, Message]:
        """What has come from another rank.

        Raises:
            InputError: that it cannot go on.
        """
        self._line.expect()
        rank, message = self._news.get()
        if message.kind == Kind.FAILED:
            failure: Failure = message.content
            text = f"rank {rank} ({_named(self._line.greetings[rank])}) {failure.text}"
            if failure.is_bug:
                raise RuntimeError(text)
            raise InputError(text, hint=failure.hint)
        return rank, message

    def _hear(self, rank: int, message: Message) -> None:
        """Answer who is ready or wants a task at once, in the line's thread; keep the rest."""
        if message.kind != Kind.WANT:
            self._news.put((rank, message))
            if message == (Kind.READY, self._dealing):
                self._line.send(rank, Kind.GO, self._dealing)
            return
        for task in self._tasks if message.content == self._dealing else ():
            self._line.send(rank, Kind.TASK, task)
            return
        self._line.send(rank, Kind.OVER)

    def _mourn(self, rank: int) -> None:
        what = "has died" if rank > 0 else "cannot speak to the others any more"
        self._news.put((rank, Message(Kind.FAILED, Failure(what, DEAD_HINT))))


class _Shared(Generic[Task]):
    """Tasks that several threads take, each once."""

    def __init__(self, tasks: Iterable[Task]) -> None:
        self._tasks, self._lock = iter(tasks), Lock()

    def __iter__(self) -> Iterator[Task]:
        return self

    def __next__(self) -> Task:
        with self._lock:
            return next(self._tasks)

    def close(self) -> None:
        """There are no more."""
        with self._lock:
            self._tasks = iter(())


def follow(line: Line) -> NoReturn:
    """Do what the first rank says, and end when it says so, or is gone."""
    inbox = _Inbox()

    def hear(_: int, message: Message) -> None:
        inbox.put(message)
        if message.kind == Kind.END:
            line.hang_up()
            interrupt_main(INTERRUPT)  # it may be at work that nobody waits for any more

    signal.signal(INTERRUPT, lambda *_: sys.exit())
    line.answer(hear, lost=lambda _: os._exit(1))
    try:
        _obey(line, inbox)
    finally:
        line.close()
    sys.exit()


class _Inbox:
    """What the first rank has sent and nobody has taken: orders, and the tasks that one is about.

    The first rank may leave tasks behind, and its next order come before the word that there are no
    more of them.
    """

    def __init__(self) -> None:
        self.orders: SimpleQueue[Message] = SimpleQueue()
        self.tasks: SimpleQueue[Message] = SimpleQueue()

    def put(self, message: Message) -> None:
        """Take in a message; the end is for whoever waits."""
        if message.kind not in {Kind.TASK, Kind.OVER}:
            self.orders.put(message)
        if message.kind in {Kind.TASK, Kind.OVER, Kind.END}:
            self.tasks.put(message)


def _obey(line: Line, inbox: _Inbox) -> None:
    """Everything that comes, until the end."""
    kept: dict[int, Any] = {}
    while (message := inbox.orders.get()).kind != Kind.END:
        with _reporting(line):
            if message.kind == Kind.CALL:
                place, number, call = message.content
                kept.pop(place, None)  # what it held makes room
                kept[place] = pickle.loads(call)()
                line.send(0, Kind.READY, number)
            elif message.kind == Kind.GO:
                number = message.content
                for result in kept[0](_asking(line, inbox, number)):
                    line.send(0, Kind.RESULT, (number, result))
                line.send(0, Kind.IDLE, number)
            elif message.kind == Kind.ASK:
                place, number, task = message.content
                line.send(0, Kind.ANSWER, (number, kept[place](task)))
            elif message.kind == Kind.FORGET:
                kept.pop(message.content, None)


@contextmanager
def _reporting(line: Line) -> Iterator[None]:
    """What goes wrong is the first rank's to say."""
    try:
        yield
    except MltreeError as error:
        line.send(0, Kind.FAILED, Failure(f"cannot take part: {error.message}", error.hint))
    except Exception:
        line.send(0, Kind.FAILED, Failure(traceback.format_exc(), is_bug=True))


def _asking(line: Line, inbox: _Inbox, number: int) -> Iterator[Any]:
    """Tasks of the call of this number, asked for one by one."""
    while True:
        line.send(0, Kind.WANT, number)
        message = inbox.tasks.get()
        if message.kind != Kind.TASK:
            return
        yield message.content


def _named(greeting: Greeting) -> str:
    return f"process {greeting.process} on {greeting.host}"


# Ranks of one machine that the first one has started: a socket to each, a thread at both ends.
#
# A socket ends with the process that holds it, however that ends, so that either side knows at once
# that the other has died, and nothing is left behind.

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


def start_processes(count: int) -> LocalLine:
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
