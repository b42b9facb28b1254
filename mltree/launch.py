"""What a worker is given: its arguments, and the state that a program works on.

The kernel's parameters, the session that holds them and the places of the state's parts are
rendered from here (:mod:`mltree.header`), so that both sides agree on every order.
"""

from __future__ import annotations

import enum
from functools import lru_cache
from typing import NamedTuple

from mltree.contract import CONTROL_WORDS, HEADER_WORDS

__all__ = [
    "ARGUMENTS",
    "BUFFERS",
    "STATE",
    "Argument",
    "Fault",
    "Mark",
    "StateLayout",
    "Sync",
    "state_layout",
]


class Sync(enum.IntEnum):
    """Counters that the work-groups of a launch share; all zero between launches."""

    ARRIVED = 0
    """Tickets of the grid barrier."""
    ENTERED = 1
    """Work-groups that have started."""
    LEFT = 2
    """Work-groups that are done."""
    TAKEN = 3
    """Jobs of a scan that were taken beyond everyone's first."""


class Mark(enum.IntEnum):
    """Words in front of the work-groups' books of ticks."""

    STARTED = 0
    """When the launch's first work-group came."""
    ELAPSED = 1
    """Ticks from there to the last one's end, summed over launches."""
    BOOKS = 2
    """Where the books start: [work-group][function]."""


class Fault(enum.IntEnum):
    """Why a worker gave up; written beside the stage that it was in."""

    NONE = 0
    BARRIER = 1
    """A grid barrier did not complete within its spin limit."""
    NOT_FINITE = 2
    """A sum came out as NaN or infinite."""
    UNKNOWN_OP = 3
    """The stage's op is not one of this worker's."""


class Argument(NamedTuple):
    """An argument of the worker, which is also a field of its session."""

    name: str
    type: str
    """In OpenCL; a buffer's is of its elements."""
    meaning: str
    is_read_only: bool = False


BUFFERS = (
    Argument("program", "int", "stages and records", True),
    Argument("state", "acc", "see STATE"),
    Argument("cla", "real", "[slot][block][category][state][lane]"),
    Argument("scaler", "ushort", "[slot][block][category][lane]"),
    Argument("pmatrix", "real", "[p][category][PMATRIX_ROW]"),
    Argument("tip_pmatrix", "real", "[p][category][code][S]"),
    Argument("stack", "real", "what local memory does not hold of stacks (stack.h)"),
    Argument("partial", "acc", "[cell][chunk]"),
    Argument("site_lnl", "acc", "[row][pattern], of EVALUATE_SITES and walks"),
    Argument("tips", "uchar", "[tip][pattern]", True),
    Argument("tip_table", "real", "[code][S]", True),
    Argument("model", "acc", "[row][MODEL_WORDS]", True),
    Argument("model_real", "real", "the same in the CLAs' precision", True),
    Argument(
        "series", "acc", "of rate matrices (series.h), or r of all patterns (site_systems.h)", True
    ),
    Argument("series_at", "int", "[row][SYSTEMS]: where each begins, or NO_SERIES", True),
    Argument("site_system", "real", "[block][SITE_WORDS][lane], of patterns with their own", True),
    Argument("weights", "acc", "[row][pattern], 0 in the padding", True),
    Argument("block_part", "int", "[block]: its part", True),
    Argument("chunk_block", "int", "[chunks + 1]: the first block of each", True),
    Argument("part_chunk", "int", "[parts + 1]: the first chunk of each", True),
    Argument("sync", "uint", "counters of work-groups: SYNC_ARRIVED, ..."),
    Argument("marks", "ulong", "MARK_STARTED, MARK_ELAPSED, [work-group][FUNCTIONS]"),
)
"""What every worker is given to hold, in the order of its arguments."""

ARGUMENTS = (
    Argument("blocks", "int", "of patterns"),
    Argument("cla_blocks", "int", "of them that a CLA has"),
    Argument("cla_first", "int", "where those begin"),
    Argument("chunks", "int", "of blocks, whose sums are taken together"),
    Argument("chunk_blocks", "int", "blocks of a chunk at most"),
    Argument("first_chunk", "int", "chunks of the device's panels before this one"),
    Argument("residues", "int", "that a panel's device has; 0 for whole sums"),
    Argument("tile_blocks", "int", "blocks that go through a stream together"),
    Argument("most_chunks", "int", "of a case of the program"),
    Argument("first_case", "int", "where the program's cases start"),
    Argument("controls", "int", "records in front of the lengths"),
    Argument("lengths", "int", "branch lengths in front of the sums"),
    Argument("stack_levels", "int", "of a work-group's own stack"),
    Argument("local_levels", "int", "of them in local memory"),
    Argument("min_length", "acc", "expected substitutions per site"),
    Argument("max_length", "acc", "likewise"),
)
"""The numbers that follow."""

STATE = (
    ("BEST", "LENGTHS"),
    ("TARGET", "LENGTHS"),
    ("HEADER", "HEADER_WORDS"),
    ("CONTROL", "CONTROLS"),
    ("LENGTHS", "LENGTHS"),
    ("SUMS", "SUMS"),
)
"""What the state is made of, in order, and how many numbers each takes."""


class StateLayout:
    """Where things lie in the state of a program: a slice each, in numbers."""

    def __init__(self, lengths: int, groups: int, sums: int) -> None:
        sizes = {
            "LENGTHS": lengths,
            "HEADER_WORDS": HEADER_WORDS,
            "CONTROLS": groups * CONTROL_WORDS,
            "SUMS": sums,
        }
        self._slices: dict[str, slice] = {}
        end = 0
        for name, size in STATE:
            self._slices[name] = slice(end, end := end + sizes[size])
        self.words = end
        """Numbers in all."""

    def __getitem__(self, name: str) -> slice:
        return self._slices[name]


@lru_cache(maxsize=64)
def state_layout(lengths: int, groups: int, sums: int) -> StateLayout:
    """Of a program, which may run many times."""
    return StateLayout(lengths, groups, sums)
