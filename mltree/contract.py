"""The worker contract: every number that Python and OpenCL must agree on.

A *program* is a list of stages over flat int32 records. Stages run one after the other with a
barrier over the whole grid between them; inside a stage, work-groups are independent. The
records below are the program's whole vocabulary; ``opencl/contract.h`` is rendered from this
module (``python -m mltree.contract`` rewrites it, a test checks that it is fresh).

Operands name a conditional likelihood array (CLA) or a tip: ``x >= 0`` is slot ``x``, ``x < 0``
is tip ``~x``. A *length* index names a branch length and the P matrix made from it.
"""

from __future__ import annotations

import enum
from pathlib import Path

import numpy as np

__all__ = [
    "CONTROL_WORDS",
    "EDGE",
    "GPU_COLUMNS",
    "GROUP",
    "NEWVIEW",
    "NO_CELL",
    "PMATRIX",
    "RECORD_ALIGNMENT",
    "RESULT",
    "RUN",
    "SCAN_STEP",
    "SCAN_TASK",
    "STAGE",
    "TRIPOD",
    "TRIPOD_CELLS",
    "WALK",
    "WALK_STEP",
    "Control",
    "GroupKind",
    "Op",
    "RunKind",
    "render_header",
]


class Op(enum.IntEnum):
    """What a stage does."""

    PMATRICES = 0
    """P[p] = exp(Q r_k t_p) for every category k, from length p and the model's eigen system."""
    SITES = 1
    """Site-local runs in order, chunk by chunk: levels of newviews, evaluations, derivatives."""
    REDUCE = 2
    """sum[c] = the partial sums of cell c over all chunks, in one fixed order; or, on a panel, the
    strided sums that this order is made of, one for each residue that the device has."""
    OPTIMISE = 3
    """One guarded Newton step of every group of branch lengths."""
    REPEAT = 4
    """Back to stage ``first`` while a group is active, at most ``count`` times."""
    SCAN = 5
    """Depth-first walks that score (or store) the insertion of a pruned subtree into edges."""
    TRIPOD = 6
    """lnL, gradient and Hessian in the three lengths around an insertion point."""
    WALK = 7
    """lnL of trees by depth-first walks, of whole trees or of pieces that others go on from."""


class RunKind(enum.IntEnum):
    """What a run of a SITES stage does."""

    NEWVIEW = 0
    """cla[dst] = (P[left_p] x_left) * (P[right_p] x_right), elementwise."""
    EVALUATE = 1
    """cell += lnL at the edge (x, y)."""
    DERIVE = 2
    """cell, cell + 1 += dlnL/dt, d2lnL/dt2 at the edge (x, y): sumGAMMA fused with core."""
    EVALUATE_SITES = 3
    """EVALUATE that also writes the lnL of every pattern."""


class GroupKind(enum.IntEnum):
    """How a group of branch lengths takes its Newton step."""

    DIAGONAL = 0
    """Every length by itself, all at once: cells d1, d2 per length."""
    TRIPOD = 1
    """Three lengths jointly: cells g[3], H[11 22 33 12 13 23]."""


class Control(enum.IntEnum):
    """Words of a group's control record."""

    ACTIVE = 0
    """1 while the group still moves."""
    BEST = 1
    """The best lnL so far (natural log)."""
    STEP = 2
    """Share of the Newton step that is taken, 0..1."""
    EPSILON = 3
    """Stop when a pass gains less (natural log)."""
    PASSES = 4
    """Passes done."""
    MAX_PASSES = 5
    """Passes allowed."""
    ACCEPTED = 6
    """1 when the last trial was the best: CLAs then belong to the returned lengths."""
    FAR = 7
    """The last pass that aimed a length towards a maximum out of its reach."""


class Function(enum.IntEnum):
    """The likelihood functions whose time is told apart."""

    PMATRICES = 0
    NEWVIEW = 1
    EVALUATE = 2
    DERIVE = 3
    SCAN = 4
    TRIPOD = 5
    OPTIMISE = 6
    BARRIER = 7


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


CONTROL_WORDS = 8
"""Stride of a control record, in numbers."""

HEADER_WORDS = 2
"""Numbers in front of the state: the fault and the stage that it happened in."""

REDUCE_WIDTH = 32
"""A sum over chunks is made of this many strided sums, added in order: the same bits always.
Residue v of them adds the chunks v, v + REDUCE_WIDTH, v + 2 REDUCE_WIDTH, ..."""

NO_CELL = -1
"""A field that asks for nothing: no output, no level."""

RESULT = 1 << 30
"""An operand of a walk's step: the result of a step before."""

PENDANT_LEVEL, ROOT_LEVEL = 0, 1
"""Levels of a scan's stack that a task fills before its first step: the pruned subtree as seen from
across its branch, and what lies behind the walker at its start."""

RECORD_ALIGNMENT = 4
"""Words: record tables start at multiples of it, for loads of so many words."""

GPU_COLUMNS = 32
"""Work-items, a warp, with which a GPU's work-group walks a tree: they read one P matrix."""

TRIPOD_CELLS = 10
"""lnL, three first and six second derivatives."""

SCALE_BITS_DOUBLE = 256
"""fp64 CLAs below 2^-256 are scaled up by 2^256, as in RAxML."""

SCALE_BITS_SINGLE = 32
"""fp32 CLAs: three scaled operands multiply to 2^-96, inside fp32's 2^-126."""

MAX_STEP_HALVINGS = 12
"""An optimiser that has halved its step this often stands on its best point."""

SATURATED = 1
"""Expected substitutions per site: beyond it lnL may be so flat that a step to a maximum far below
gains nothing yet, and only its wrong curvature tells."""

MODEL_SQUARES = 5
"""S x S tables of a model row: right, left, pi_right, the generator Q and Q Q."""


def _record(*fields: str) -> np.dtype[np.void]:
    return np.dtype([(field, np.int32) for field in fields])


STAGE = _record("op", "first", "count", "aux")
"""One stage. ``first`` is a word offset into the program (REDUCE: a cell; REPEAT: a stage);
``aux`` is 1 where OPTIMISE gives a work-item, not a work-group, to each group; where the outputs
of a SCAN are slots, not cells; and where a WALK keeps the lnL of every pattern. It is the number
of groups in REPEAT, and in REDUCE that of a panel's residues w, 0 for whole sums: strided sum v of
the n-th cell is then sum[w first + v count + n]."""
PMATRIX = _record("length", "model")
RUN = _record("kind", "first", "count")
NEWVIEW = _record("dst", "left", "left_p", "right", "right_p")
EDGE = _record("x", "y", "length", "model", "cell")
GROUP = _record("kind", "first_length", "count", "lnl_cell", "first_cell")
SCAN_TASK = _record("pendant", "pendant_p", "root", "join_p", "model", "first_step", "steps")
SCAN_STEP = _record(
    "level_in",
    *(
        f"{side}{field}"
        for side in ("left", "right")
        for field in ("", "_p", "_half_p", "_level", "_output")
    ),
    "padding",
)
"""A walk's arrival at a node, whose two other branches are both targets: a side's near vector N is
made from the other side's operand, gets a score (or a slot), and is pushed on a level as it is seen
from the far end of the side's branch (see :mod:`mltree.likelihood.scan_tasks`). The half length's
matrix applied twice is as good as the full length's."""
TRIPOD = _record("near", "far", "pendant", "near_p", "far_p", "pendant_p", "model", "cell")
WALK = _record("tip", "length", "model", "cell", "slot", "first_step", "steps")
"""A walk's last result is scored across the branch of a tip, or kept where there is a slot."""
WALK_STEP = _record("left", "left_p", "right", "right_p")
"""One newview of a walk in post-order. An operand RESULT is the result of a step before: the right
one of the last step, the left one of the last step that no other has taken."""

_RECORDS = {
    "STAGE": STAGE,
    "PMATRIX": PMATRIX,
    "RUN": RUN,
    "NEWVIEW": NEWVIEW,
    "EDGE": EDGE,
    "GROUP": GROUP,
    "SCAN_TASK": SCAN_TASK,
    "SCAN_STEP": SCAN_STEP,
    "TRIPOD": TRIPOD,
    "WALK": WALK,
    "WALK_STEP": WALK_STEP,
}
_ENUMS: dict[str, type[enum.IntEnum]] = {
    "OP": Op,
    "DO": RunKind,
    "STEP": GroupKind,
    "CONTROL": Control,
    "FN": Function,
    "FAULT": Fault,
    "SYNC": Sync,
    "MARK": Mark,
}
_NUMBERS = {
    "SCALE_BITS_DOUBLE": SCALE_BITS_DOUBLE,
    "SCALE_BITS_SINGLE": SCALE_BITS_SINGLE,
    "CONTROL_WORDS": CONTROL_WORDS,
    "HEADER_WORDS": HEADER_WORDS,
    "REDUCE_WIDTH": REDUCE_WIDTH,
    "NO_CELL": NO_CELL,
    "RESULT": RESULT,
    "PENDANT_LEVEL": PENDANT_LEVEL,
    "ROOT_LEVEL": ROOT_LEVEL,
    "GPU_COLUMNS": GPU_COLUMNS,
    "FUNCTIONS": len(Function),
    "SYNC_WORDS": len(Sync),
    "TRIPOD_CELLS": TRIPOD_CELLS,
    "MAX_STEP_HALVINGS": MAX_STEP_HALVINGS,
    "SATURATED": SATURATED,
    "MODEL_SQUARES": MODEL_SQUARES,
}


def render_header() -> str:
    """The text of ``opencl/contract.h``."""
    lines = ["// Rendered from mltree/contract.py by `python -m mltree.contract`. Do not edit.", ""]
    for prefix, members in _ENUMS.items():
        lines += [f"#define {prefix}_{member.name} {member.value}" for member in members]
        lines.append("")
    lines += [f"#define {name} ({value})" for name, value in _NUMBERS.items()]
    for name, record in _RECORDS.items():
        assert record.names is not None
        lines.append("")
        lines.append(f"#define {name}_WORDS {len(record.names)}")
        lines += [f"#define {name}_{f.upper()} {i}" for i, f in enumerate(record.names)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    (Path(__file__).parent.parent / "opencl" / "contract.h").write_text(render_header())
