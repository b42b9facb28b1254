"""Several ranks: what the first one deals out, and what the others do."""

from __future__ import annotations

import itertools
import os
import pickle
import signal
import sys
import traceback
from _thread import interrupt_main
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Lock
from typing import Any, Generic, NamedTuple, NoReturn

from mltree.errors import InputError, MltreeError
from mltree.ranks import Ranks, Result, Task, Work
from mltree.ranks.line import Greeting, Kind, Line, Message
from mltree.stopping import before_leaving, no_longer

__all__ = ["First", "follow"]

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
