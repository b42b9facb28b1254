"""Ranks: processes that share out the work of a run; a lone one where nobody launched several.

The first rank runs the command, reads, writes and decides. The others wait for what it deals out,
and know nothing of commands. Whoever has work that falls into tasks asks :func:`here` for the ranks
of the process and calls :meth:`Ranks.deal`, or :meth:`Ranks.gather` for a step at a time; with a
lone rank that is the work itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias, TypeVar

from mltree.system.errors import MltreeError
from mltree.system.process import share_out

Task = TypeVar("Task")
Result = TypeVar("Result")
Work: TypeAlias = Callable[[Iterator[Task]], Iterator[Result]]
"""A way through tasks, which are taken as they are needed, with results as they end."""


ALIKE_HINT = "ranks need devices and layouts of one kind: bits depend on them"


class Ranks:
    """The ranks of this process: itself alone."""

    size = 1

    @property
    def text(self) -> str:
        """Which processes they are; nothing of a lone one."""
        return ""

    def everywhere(self, check: Callable[[], object], kept_as: int = 0) -> None:
        """Have every other rank call this, which is sent there, and keep what it gives.

        ``kept_as``: under this number, in the place of what was kept there before; what another
        number stands for outlasts it.

        Raises: MltreeError: what it raises there, with the rank's name.
        """

    def forget(self, kept_as: int) -> None:
        """Have the other ranks let go of what they kept; nothing is waited for."""

    def deal(
        self,
        tasks: Iterable[Task],
        work: Work[Task, Result],
        helping: Callable[[], Work[Task, Result]],  # noqa: ARG002
    ) -> Iterator[Result]:
        """The results of tasks as they end, each task done by whichever rank asks for it.

        work     this rank's way through tasks
        helping  called by every other rank for its own; it is sent there, and raises MltreeError
                 where the rank cannot take part

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

        answer   this rank's
        kept_as  the others answer with what they keep so (:meth:`everywhere`)

        Raises: MltreeError: another rank cannot go on, or has died.
        """
        return [answer(task) for task in tasks]

    def dismiss(self) -> None:
        """Nothing more is dealt out."""


LONE = Ranks()

_here = LONE
_turn = (0, 1)
_trouble: MltreeError | None = None


def here() -> Ranks:
    """Those of this process."""
    return _here


def turn() -> tuple[int, int]:
    """This rank's number among those of its host, from 0, and how many they are."""
    return _turn


def trouble() -> MltreeError | None:
    """Why the processes that were launched together are no ranks; None where they are."""
    return _trouble


def become(ranks: Ranks) -> None:
    """Let :func:`here` be these from now on."""
    global _here  # noqa: PLW0603
    _here = ranks


def take_turn(number: int, count: int) -> None:
    """Let :func:`turn` be this one of so many from now on."""
    global _turn  # noqa: PLW0603
    _turn = number, count


def fail(error: MltreeError) -> None:
    """Let :func:`trouble` tell why the processes are no ranks."""
    global _trouble  # noqa: PLW0603
    _trouble = error


def take_part(number: int, count: int) -> None:
    """Be this one of so many ranks on this machine, and take its part of the CPUs."""
    take_turn(number, count)
    share_out(count)


def leave() -> None:
    """Send the other ranks home; nothing more is dealt out."""
    _here.dismiss()
