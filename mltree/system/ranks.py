"""Ranks: processes that share the work of a run; a lone rank where none were launched together.

Rank 0, the coordinator, runs the command, reads, writes and decides. The other ranks wait for its
calls and know nothing of commands. Work that falls into tasks asks :func:`current_ranks` for the
ranks of the process and calls :meth:`Ranks.deal`, or :meth:`Ranks.gather` for a step at a time;
with a lone rank those are the work itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import TypeAlias, TypeVar

from mltree.system.errors import MltreeError
from mltree.system.process import divide_cpus

Task = TypeVar("Task")
Result = TypeVar("Result")
Work: TypeAlias = Callable[[Iterator[Task]], Iterator[Result]]
"""Function from an iterator of tasks, taken as they are needed, to an iterator of results."""


ALIKE_HINT = "ranks need devices and layouts of one kind: bits depend on them"


class Ranks:
    """The ranks of a process; this class is a lone rank."""

    size = 1

    @property
    def text(self) -> str:
        """The processes of all ranks, in one line; empty for a lone rank."""
        return ""

    def everywhere(self, check: Callable[[], object], kept_as: int = 0) -> None:
        """Call a function on every other rank, which keeps the returned value.

        check    pickled and sent to the ranks
        kept_as  number under which a rank keeps the value, in place of the one it kept before

        Raises: MltreeError: the error of the function, with the rank's name.
        """

    def forget(self, kept_as: int) -> None:
        """Make the other ranks drop the value kept under a number, without waiting for them."""

    def deal(
        self,
        tasks: Iterable[Task],
        work: Work[Task, Result],
        helping: Callable[[], Work[Task, Result]],  # noqa: ARG002
    ) -> Iterator[Result]:
        """The results of tasks as they end, each task done by whichever rank asks for it.

        work     done by this rank
        helping  pickled and called by every other rank, returns the work of that rank; raises
                 MltreeError where the rank cannot take part

        Raises: MltreeError: another rank cannot take part, or has died.
        """
        return work(iter(tasks))

    def gather(
        self,
        tasks: Sequence[Task],
        answer: Callable[[Task], Result],
        kept_as: int = 0,  # noqa: ARG002
    ) -> list[Result]:
        """The answers to one task a rank, at most, in order.

        answer   function by which this rank answers
        kept_as  number of the function by which the other ranks answer (:meth:`everywhere`)

        Raises: MltreeError: another rank cannot go on, or has died.
        """
        return [answer(task) for task in tasks]

    def dismiss(self) -> None:
        """End the other ranks."""


LONE = Ranks()

_numbers = count(1)


def new_number() -> int:
    """A number under which the ranks keep no value yet; they keep checks under 0."""
    return next(_numbers)


class ThisProcess:
    """The place of this process among the ranks that were launched or started together."""

    ranks = LONE
    number_on_host, count_on_host = 0, 1
    launch_error: MltreeError | None = None
    """Error for which processes that were launched together are no ranks."""


this_process = ThisProcess()


def current_ranks() -> Ranks:
    """The ranks of this process."""
    return this_process.ranks


@contextmanager
def by_itself() -> Iterator[None]:
    """Let this process compute by itself, while other ranks are busy with their own."""
    ranks, this_process.ranks = this_process.ranks, LONE
    try:
        yield
    finally:
        this_process.ranks = ranks


def local_rank() -> tuple[int, int]:
    """The number of this rank among those of its host, from 0, and the number of those."""
    return this_process.number_on_host, this_process.count_on_host


def join_host(number: int, count: int) -> None:
    """Set :func:`local_rank` and take this rank's share of the CPUs."""
    this_process.number_on_host, this_process.count_on_host = number, count
    divide_cpus(count)


def dismiss() -> None:
    """End the other ranks of this process."""
    this_process.ranks.dismiss()
