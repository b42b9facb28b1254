"""How many processes share out a run that was told no number of them (``--ranks auto``).

Each needs a CPU for its Python, and one for a GPU's driver, which spins. On CPUs they would only
take turns.
"""

from __future__ import annotations

from collections.abc import Sequence

from mltree.commands.request import Request
from mltree.device.discovery import DeviceInfo, choose_devices
from mltree.ranks import here, start
from mltree.threads import threads

__all__ = ["ranks_for", "share_loci", "share_replicates"]

MOST_FOR_LOCI, LOCI_OF_A_RANK = 8, 64
"""Processes beyond which one GPU is what all wait for; loci that are worth the start of one."""

MOST_FOR_REPLICATES, TIPS_OF_A_RANK = 4, 1_200
"""The same of replicates, in tips of them all. 100 on an H200 with 16 cores, seconds by 1 / 2 / 4 /
8 processes: 101 taxa 34.2 / 24.4 / 21.3 / 22.7; 47 taxa 7.9 / 6.7 / 5.8 / 6.3."""


def share_loci(request: Request, loci: int) -> None:
    """Start the processes that so many loci are worth."""
    _share(request, loci // LOCI_OF_A_RANK, MOST_FOR_LOCI)


def share_replicates(request: Request, replicates: int, taxa: int) -> bool:
    """Start those that so many searches of trees of so many taxa are worth; whether any are new."""
    before = here()
    _share(request, replicates * taxa // TIPS_OF_A_RANK, MOST_FOR_REPLICATES)
    return here() is not before


def _share(request: Request, worth: int, most: int) -> None:
    if request.ranks is None and here().size == 1:
        devices = choose_devices(request.resources.device)
        start(ranks_for(min(worth, most), devices, threads().number))


def ranks_for(worth: int, devices: Sequence[DeviceInfo], cpus: int) -> int:
    """Processes where there is work for so many: a GPU is done before one has laid out the next."""
    if not devices or devices[0].is_cpu:
        return 1
    return max(1, min(worth, cpus // 2))
