"""Becoming one of several ranks: launched by MPI, or as the coordinator that starts the others."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from mltree.system.errors import InputError
from mltree.system.process import ignore_signals, limit_drivers
from mltree.system.ranks import LONE, current_ranks, dismiss, join_host, this_process

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

    Where the processes cannot become ranks, rank 0 returns with ``this_process.launch_error``
    set, and the others end.
    """
    number, size = launched(environment)
    if size == 1:
        return
    from mltree.system import rank_processes

    try:
        transport = rank_processes.MpiTransport()
    except (ImportError, RuntimeError) as error:
        text = f"{size} processes were launched, but mpi4py cannot join them: {error}"
        this_process.launch_error = InputError(text, hint=MISSING_HINT)
        if number > 0:
            sys.exit()  # rank 0 says why
        return
    rank_processes.pin_to(rank_processes.cpus_of(transport.rank, transport.greetings))
    limit_drivers()
    place = rank_processes.local_rank(transport.rank, transport.greetings)
    this_process.number_on_host, this_process.count_on_host = place
    if transport.rank > 0:
        ignore_signals()  # rank 0 decides about the end
        rank_processes.follow(transport)
    coordinator = rank_processes.Coordinator(transport)
    this_process.ranks = coordinator
    try:
        coordinator.agree(size)
    except InputError as error:
        this_process.launch_error = error
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
    this_process.ranks = rank_processes.Coordinator(rank_processes.start_processes(count))


def launched(environment: Mapping[str, str]) -> tuple[int, int]:
    """The number of this process among those launched together, and their number; 0, 1 if alone."""
    for rank, size in LAUNCHERS:
        values = environment.get(rank, ""), environment.get(size, "")
        if all(value.isascii() and value.isdigit() for value in values):
            number, count = map(int, values)
            return number, max(count, 1)
    return 0, 1
