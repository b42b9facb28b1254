"""Ranks that MPI has launched; the only place with mpi4py. See :mod:`mltree.ranks`."""

from mltree.mpi.hosts import keep_to, share, turn
from mltree.mpi.line import Line
from mltree.mpi.world import First, follow

__all__ = ["First", "Line", "follow", "keep_to", "share", "turn"]
