"""How a process becomes one of several ranks: launched by MPI, or the first that starts others."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from mltree.system.errors import InputError
from mltree.system.process import limit_drivers
from mltree.system.ranks import LONE, become, fail, here, leave, take_part, take_turn
from mltree.system.signals import ignore

LAUNCHERS = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("PMIX_RANK", "SLURM_STEP_NUM_TASKS"),
)
"""What launchers of MPI tell a process by: Open MPI, MPICH and Intel MPI (``srun --mpi=pmi2`` too),
MVAPICH, ``srun --mpi=pmix``."""


MISSING_HINT = "pip install 'mltree[mpi]', which takes the MPI of the launcher"


def join(environment: Mapping[str, str] = os.environ) -> None:
    """Become one of the ranks that were launched; only the first of them returns.

    Where that cannot be, the first returns with :func:`trouble`, and the others end.
    """
    number, size = launched(environment)
    if size == 1:
        return
    try:
        from mltree.system.mpi import MpiLine

        line = MpiLine()
    except (ImportError, RuntimeError) as error:
        text = f"{size} processes were launched, but mpi4py cannot join them: {error}"
        fail(InputError(text, hint=MISSING_HINT))
        if number > 0:
            sys.exit()  # the first says why
        return
    from mltree.system import rank_processes

    rank_processes.keep_to(rank_processes.share(line.rank, line.greetings))
    limit_drivers()
    take_turn(*rank_processes.turn_on_host(line.rank, line.greetings))
    if line.rank > 0:
        ignore()  # the first decides when it is over
        rank_processes.follow(line)
    first = rank_processes.First(line)
    become(first)
    try:
        first.agree(size)
    except InputError as error:
        fail(error)
        leave()
        if number > 0:
            sys.exit()


def start(count: int | None) -> None:
    """Become the first of so many ranks on this machine, and start the others; None for itself.

    Called before drivers are loaded, which are told how many CPUs there are for each.

    Raises: InputError: a launcher has started ranks, or processes cannot be started.
    """
    if count is None or count == 1:
        return
    if here() is not LONE:
        hint = "leave out --ranks, or start mltree by itself"
        raise InputError("--ranks: a launcher has started ranks already", hint=hint)
    from mltree.system import rank_processes

    take_part(0, count)
    limit_drivers()
    become(rank_processes.First(rank_processes.start_processes(count)))


def launched(environment: Mapping[str, str]) -> tuple[int, int]:
    """This process's number among those launched together, and how many they are; 0, 1 if alone."""
    for rank, size in LAUNCHERS:
        values = environment.get(rank, ""), environment.get(size, "")
        if all(value.isascii() and value.isdigit() for value in values):
            number, count = map(int, values)
            return number, max(count, 1)
    return 0, 1
