"""What tells a process that it is one of several, and a rank that is alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mltree.system.rank_start import launched
from mltree.system.ranks import LONE, current_ranks, local_rank


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, (0, 1)),
        ({"PMI_RANK": "2", "PMI_SIZE": "4"}, (2, 4)),
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}, (0, 2)),
        ({"PMIX_RANK": "1", "SLURM_STEP_NUM_TASKS": "8"}, (1, 8)),
        ({"PMI_RANK": "0", "PMI_SIZE": "1"}, (0, 1)),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, (0, 1)),  # a batch script, or srun without MPI
        ({"PMI_RANK": "x", "PMI_SIZE": "4"}, (0, 1)),
        ({"PMI_RANK": "1"}, (0, 1)),
    ],
)
def test_launchers(environment: dict[str, str], expected: tuple[int, int]) -> None:
    assert launched(environment) == expected


def test_a_lone_rank_does_all_by_itself() -> None:
    taken = []

    def work(tasks: Iterator[int]) -> Iterator[str]:
        for task in tasks:
            taken.append(task)
            yield str(task)

    def unwanted() -> None:
        raise AssertionError("there is no other rank")

    assert current_ranks() is LONE
    assert local_rank() == (0, 1)
    LONE.everywhere(unwanted)
    results = LONE.deal([3, 1, 2], work, unwanted)  # type: ignore[arg-type]
    assert taken == []
    assert next(results) == "3"
    assert taken == [3], "no task is taken before it is needed"
    assert [*results] == ["1", "2"]
    LONE.dismiss()
