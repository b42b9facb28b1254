"""Ranks: processes that share out the work of a run; a lone one where nobody launched several.

The first rank runs the command, reads, writes and decides. The others wait for what it deals out,
and know nothing of commands. Whoever has work that falls into tasks asks :func:`here` for the ranks
of the process and calls :meth:`Ranks.deal`, or :meth:`Ranks.gather` for a step at a time; with a
lone rank that is the work itself.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias, TypeVar

from mltree.errors import InputError, MltreeError
from mltree.stopping import ignore
from mltree.threads import limit_drivers, share_out

__all__ = [
    "ALIKE_HINT",
    "LONE",
    "Ranks",
    "Result",
    "Task",
    "Work",
    "here",
    "join",
    "launched",
    "leave",
    "start",
    "take_part",
    "trouble",
    "turn",
]

Task = TypeVar("Task")
Result = TypeVar("Result")
Work: TypeAlias = Callable[[Iterator[Task]], Iterator[Result]]
"""A way through tasks, which are taken as they are needed, with results as they end."""

LAUNCHERS = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("PMIX_RANK", "SLURM_STEP_NUM_TASKS"),
)
"""What launchers of MPI tell a process by: Open MPI, MPICH and Intel MPI (``srun --mpi=pmi2`` too),
MVAPICH, ``srun --mpi=pmix``."""

MISSING_HINT = "pip install 'mltree[mpi]', which takes the MPI of the launcher"


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


def join(environment: Mapping[str, str] = os.environ) -> None:
    """Become one of the ranks that were launched; only the first of them returns.

    Where that cannot be, the first returns with :func:`trouble`, and the others end.
    """
    global _here, _turn, _trouble  # noqa: PLW0603
    number, size = launched(environment)
    if size == 1:
        return
    try:
        from mltree.ranks.mpi import MpiLine

        line = MpiLine()
    except (ImportError, RuntimeError) as error:
        text = f"{size} processes were launched, but mpi4py cannot join them: {error}"
        _trouble = InputError(text, hint=MISSING_HINT)
        if number > 0:
            sys.exit()  # the first says why
        return
    from mltree.ranks import hosts, world

    hosts.keep_to(hosts.share(line.rank, line.greetings))
    limit_drivers()
    _turn = hosts.turn(line.rank, line.greetings)
    if line.rank > 0:
        ignore()  # the first decides when it is over
        world.follow(line)
    _here = first = world.First(line)
    try:
        first.agree(size)
    except InputError as error:
        _trouble = error
        leave()
        if number > 0:
            sys.exit()


def start(count: int | None) -> None:
    """Become the first of so many ranks on this machine, and start the others; None for itself.

    Called before drivers are loaded, which are told how many CPUs there are for each.

    Raises: InputError: a launcher has started ranks, or processes cannot be started.
    """
    global _here  # noqa: PLW0603
    if count is None or count == 1:
        return
    if _here is not LONE:
        hint = "leave out --ranks, or start mltree by itself"
        raise InputError("--ranks: a launcher has started ranks already", hint=hint)
    from mltree.ranks import local, world

    take_part(0, count)
    limit_drivers()
    _here = world.First(local.start(count))


def take_part(number: int, count: int) -> None:
    """Be this one of so many ranks on this machine, and take its part of the CPUs."""
    global _turn  # noqa: PLW0603
    _turn = number, count
    share_out(count)


def leave() -> None:
    """Send the other ranks home; nothing more is dealt out."""
    _here.dismiss()


def launched(environment: Mapping[str, str]) -> tuple[int, int]:
    """This process's number among those launched together, and how many they are; 0, 1 if alone."""
    for rank, size in LAUNCHERS:
        values = environment.get(rank, ""), environment.get(size, "")
        if all(value.isascii() and value.isdigit() for value in values):
            number, count = map(int, values)
            return number, max(count, 1)
    return 0, 1
