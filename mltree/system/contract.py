"""The worker contract: every number that Python and OpenCL must agree on.

A *program* is a list of stages over flat int32 records. Stages run one after the other with a
barrier over the whole grid between them; inside a stage, work-groups are independent. The
records below are the program's whole vocabulary, and each of their fields has a :class:`Role`, from
which verification, residency, work and listings follow. ``opencl/contract.h`` is rendered from this
module and :mod:`mltree.system.contract` (``python tests/contract_header.py``).

A *part* is a range of patterns with models of its own: a partition, or a locus. Parts follow one
another, and none shares a block or a chunk with another. A *case* is where a tree lives and under
what: a range of parts, their models, a row of weights. Trees on the same parts stand side by side;
trees on different parts share slots and cells, which are rows over all patterns, for neither
touches the other's. What every part has of its own (P matrices, models, lengths that are not
linked) is found at an index of its case plus the part's number.
"""

from __future__ import annotations

import enum
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np


class Op(enum.IntEnum):
    """What a stage does."""

    PMATRICES = 0
    """P[p + q] = exp(Q r_k t) for every part q and category k, from a branch length t and the eigen
    system of the part's model."""
    SITES = 1
    """Site-local runs in order, chunk by chunk: levels of newviews, evaluations, derivatives. Each
    stream of runs has a range of parts to itself."""
    REDUCE = 2
    """sum[s + n] = the partial sums of cell c + n over the chunks of some parts, in one fixed
    order; or, on a shard, the strided sums that this order is made of, one for each reduction lane
    of the shard."""
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
    RELL = 8
    """sum[s + t W + w] = sum over patterns of site lnL[row t] * weights[row w]: resampled estimated
    log-likelihoods (Kishino, Miyata, Hasegawa 1990) of many trees under many rows of weights."""


class RunKind(enum.IntEnum):
    """What a run of a SITES stage does."""

    NEWVIEW = 0
    """cla[dst] = (P[left_p] x_left) * (P[right_p] x_right), elementwise."""
    EVALUATE = 1
    """cell += lnL at the edge (x, y)."""
    DERIVE = 2
    """cell, cell + 1 += dlnL/dt, d2lnL/dt2 at the edge (x, y): sumGAMMA fused with core."""
    EVALUATE_SITES = 3
    """EVALUATE that also writes the lnL of every pattern, into the row of its case's number."""
    FLOW = 4
    """cell + (m S + a) S + b += sum_k F_k[a, b] sum_l n_l w_k / L_l (V^-1 x)_a (V^-1 y)_b at the
    edge (x, y), k being the categories of class m: what lnL gains with the class's rate matrix, in
    terms of its eigenvectors (:mod:`mltree.program.reference`). The run stands behind an
    EVALUATE_SITES of its case, which left ln L_l; all its records add to the same cells."""


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
    """Stop when a pass would gain less (natural log)."""
    PASSES = 4
    """Passes done."""
    MAX_PASSES = 5
    """Passes allowed."""
    ACCEPTED = 6
    """1 when the last trial was the best: CLAs then belong to the returned lengths."""
    FLOOR = 7
    """Stop where HOPE times what a step promises would end below (natural log)."""


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
    RELL = 8


CONTROL_WORDS = 8
"""Stride of a control record, in numbers."""

HEADER_WORDS = 2
"""Numbers in front of the state: the fault and the stage that it happened in."""

REDUCE_WIDTH = 32
"""A sum over chunks is made of this many strided sums, added in order: the same bits always.
Reduction lane v of them adds the chunks v, v + REDUCE_WIDTH, v + 2 REDUCE_WIDTH, ..."""

NO_CELL = -1
"""A field that asks for nothing: no output, no level, no group."""

RESULT = 1 << 30
"""An operand of a walk's step: the result of a step before."""

FAR_COUNT = 1 << 24
"""A scaling count above any other, of which 16 bits are stored."""

PENDANT_LEVEL, ROOT_LEVEL = 0, 1
"""Levels of a scan's stack that a task fills before its first step: the pruned subtree as seen from
across its branch, and what lies behind the walker at its start."""

RECORD_ALIGNMENT = 4
"""Words: record tables start at multiples of it, for loads of so many words."""

WARP = 32
"""Work-items of a GPU that go in step. As many at least walk a tree: they read one P matrix."""

TRIPOD_CELLS = 10
"""lnL, three first and six second derivatives."""

SCALE_BITS_DOUBLE = 256
"""fp64 CLAs below 2^-256 are scaled up by 2^256, as in RAxML."""

SCALE_BITS_SINGLE = 32
"""fp32 CLAs: three scaled operands multiply to 2^-96, inside fp32's 2^-126."""

MAX_STEP_HALVINGS = 12
"""An optimiser that has halved its step this often stands on its best point."""

STEP_GROWTH = 1.4
"""A successful step grows by this, up to a whole Newton step (docs/search.md, "Branch lengths")."""

ENOUGH = 0.5
"""Share of its epsilon that a group's next step has to promise: where lengths hang together it
gains about twice what it promises (docs/search.md, "Branch lengths")."""

HOPE = 10
"""Times what its next step promises that a group may gain in all (docs/search.md, "Branch
lengths")."""

MOST_MIXED = 10
"""How often the last step's change may go into the next (docs/search.md, "Branch lengths")."""

UPHILL = 4
"""Factor on a length, up or down, where the curvature is of no use."""

MOST_GROWTH, LEAST_REACH = 10, 0.1
"""No step leads further from a length t than to t / MOST_GROWTH or MOST_GROWTH t + LEAST_REACH."""

SATURATED = 0.1
"""Expected substitutions per site: beyond it lnL may be so flat that a step to a maximum far below
gains nothing yet, and only its wrong curvature tells."""

RIDGE = 1e-3
"""Three branches of which two count as one (nothing is known of the third's end, say) have a
Hessian whose determinant is rounding: below this share, squared, of the product of its diagonal,
this share of the diagonal is added to it, and the step is shared out. A step off rounding led
anywhere: 4 of 40 sets of insertions ended up to 1.5 lnL short on a device, and not in NumPy."""

MODEL_SQUARES = 4
"""S x S tables of a model's eigen system: right, left, the generator Q and Q Q."""

SERIES_OCTAVES = 8
"""Numbers of terms that a series of a rate matrix has (:mod:`mltree.models.eigen`): for q t up to
the reach of its terms, half of it, a quarter of it ..."""

MOST_TERMS = 160
"""Terms of such a series at most: 64 states in a row take 63 changes, and some 40 terms more."""

NO_SERIES = -1
"""Place of the series of a rate matrix whose eigen system gives every entry of P."""

FLOW_NEAR = 1e-3
"""Difference of two exponents below which a divided difference is a series, good to 1e-13."""

RELL_TILE = 4
"""Trees and rows of weights whose products a work-item sums together, in registers."""


class Role(enum.Enum):
    """What a field of a record means; a field of none is a number."""

    READS = "reads"
    """The CLA of a slot, or ``~tip``."""
    TAKES = "takes"
    """The same, or RESULT."""
    TIP = "tip"
    """``~tip``."""
    WRITES = "writes"
    """The slot of a CLA, or NO_CELL."""
    OUTPUT = "output"
    """A cell, or a slot where the stage stores; or NO_CELL."""
    MATRIX = "matrix"
    """P matrices that are read: of part q at the index plus q."""
    MAKES = "makes"
    """P matrices that are made, likewise."""
    LENGTH = "length"
    """A branch length."""
    CASE = "case"
    """A case of the program."""
    MODEL = "model"
    """The case's model: of part q in the row plus q."""
    WEIGHTS = "weights"
    """The case's row of weights."""
    CELL = "cell"
    """The first of the cells that partial sums go to, or NO_CELL."""


_ROLES: dict[np.dtype[np.void], dict[str, Role]] = {}


def _record(text: str) -> np.dtype[np.void]:
    """A record of ``name`` and ``name:role`` fields; those without a role are plain numbers."""
    named = [field.partition(":") for field in text.split()]
    record = np.dtype([(name, np.int32) for name, _, _ in named])
    _ROLES[record] = {name: Role(role) for name, _, role in named if role}
    return record


def roles(record: np.dtype[np.void]) -> dict[str, Role]:
    """What the fields of a record mean that are no plain numbers."""
    return _ROLES[record]


@cache
def fields(record: np.dtype[np.void], *roles: Role) -> tuple[str, ...]:
    """The fields of a record that have one of the roles."""
    return tuple(field for field, role in _ROLES[record].items() if role in roles)


STAGE = _record("op first count aux")
"""One stage. ``first`` is a word offset into the program (REPEAT: a stage); ``aux`` is 1 where
OPTIMISE gives a work-item, not a work-group, to each group; where the outputs of a SCAN are slots,
not cells; and where a WALK keeps the lnL of every pattern. It is the number of groups in REPEAT,
the most parts of a record in PMATRICES, and the most sums of a record in REDUCE."""
CASE = _record("first_part parts model weights")
"""Where a tree lives and under what. The model of part q is row ``model + q``. Records repeat what
they need of their case, so that nothing waits for it."""
PMATRIX = _record("p:makes length:length stride case:case model:model")
"""P matrices of a branch for every part q of a case, from length ``length + stride q``."""
STREAM = _record("first_part parts first_run runs group")
"""Runs on some parts. Passes leave it out once its ``group`` of lengths moves no more: what it has
made stands. NO_CELL where it has none of its own."""
RUN = _record("kind first count")
NEWVIEW = _record("dst:writes left:reads left_p:matrix right:reads right_p:matrix")
EDGE = _record("x:reads y:reads p:matrix case:case model:model weights:weights cell:cell")
FLOW = _record(
    "x:reads y:reads length:length stride case:case model:model weights:weights cell:cell cells "
    "first"
)
"""An edge whose length in part q is ``length + stride q``. Of the sums of all classes, one after
the other, ``cells`` from number ``first`` on; those that a part's own classes do not have stay
0."""
REDUCTION = _record("cell sum count first_part parts")
"""With w reduction lanes of a shard, strided sum v of the n-th cell is sum[w sum + v count + n]."""
GROUP = _record("kind first_length:length count lnl_sum first_sum")
SCAN_TASK = _record(
    "pendant:reads pendant_p:matrix root:reads join_p:matrix case:case model:model "
    "weights:weights first_step steps"
)
SCAN_STEP = _record(
    "level_in left:reads left_p:matrix left_half_p:matrix left_level left_output:output "
    "right:reads right_p:matrix right_half_p:matrix right_level right_output:output padding"
)
"""A walk's arrival at a node, whose two other branches are both targets: a side's near vector N is
made from the other side's operand, gets a score (or a slot), and is pushed on a level as it is seen
from the far end of the side's branch (see :mod:`mltree.program.planner`). The half length's
matrix applied twice is as good as the full length's."""
TRIPOD = _record(
    "near:reads far:reads pendant:reads near_p:matrix far_p:matrix pendant_p:matrix case:case "
    "model:model weights:weights cell:cell group"
)
"""Left out of a pass once its ``group`` moves no more."""
WALK = _record(
    "tip:tip p:matrix case:case model:model weights:weights cell:cell slot:writes first_step steps"
)
"""A walk's last result is scored across the branch of a tip, or kept where there is a slot."""
WALK_STEP = _record("left:takes left_p:matrix right:takes right_p:matrix")
"""One newview of a walk in post-order. An operand RESULT is the result of a step before: the right
one of the last step, the left one of the last step that no other has taken."""
RELL = _record("first_row rows first_weights weights sum first_part parts")


class Operation(NamedTuple):
    """What there is to know of an operation's records."""

    record: np.dtype[np.void]
    function: Function
    """That its time and work count as."""
    line: str
    """A record for a reader, its fields in braces."""
    cells: int = 0
    """Cells that a record adds to, from its CELL on; 0 where its own ``cells`` tell."""


_AT_EDGE = "{cell} at ({x}, {y}) {p} {case}"
RUNS = {
    RunKind.NEWVIEW: Operation(
        NEWVIEW, Function.NEWVIEW, "{dst} = {left_p} {left} * {right_p} {right}"
    ),
    RunKind.EVALUATE: Operation(EDGE, Function.EVALUATE, _AT_EDGE, cells=1),
    RunKind.DERIVE: Operation(EDGE, Function.DERIVE, _AT_EDGE, cells=2),
    RunKind.EVALUATE_SITES: Operation(EDGE, Function.EVALUATE, _AT_EDGE, cells=1),
    RunKind.FLOW: Operation(
        FLOW, Function.DERIVE, "{cell} and {cells} from {first} on at ({x}, {y}) {length} {case}"
    ),
}
"""The operations of a SITES stage."""

STAGES = {
    Op.PMATRICES: Operation(
        PMATRIX, Function.PMATRICES, "{p} = exp(Q r {length}) stride {stride} {case}"
    ),
    Op.REDUCE: Operation(
        REDUCTION, Function.OPTIMISE,
        "sum[{sum}...] = {count} cells from cell[{cell}] on, {parts} parts from {first_part} on",
    ),
    Op.OPTIMISE: Operation(
        GROUP, Function.OPTIMISE,
        "kind {kind}: {count} lengths from {first_length} on, by sum[{lnl_sum}] and "
        "sum[{first_sum}...]",
    ),
    Op.SCAN: Operation(
        SCAN_TASK, Function.SCAN,
        "behind {join_p} {root}, pruned {pendant_p} {pendant}, {steps} steps from {first_step} on, "
        "{case}",
    ),
    Op.TRIPOD: Operation(
        TRIPOD, Function.TRIPOD,
        "{cell}... at {near_p} {near}, {far_p} {far}, {pendant_p} {pendant}, {case}, group {group}",
        cells=TRIPOD_CELLS,
    ),
    Op.WALK: Operation(
        WALK, Function.NEWVIEW,
        "{cell} or {slot} from {steps} steps from {first_step} on, to {p} {tip}, {case}",
        cells=1,
    ),
    Op.RELL: Operation(
        RELL, Function.RELL,
        "sum[{sum}...] = {rows} rows from {first_row} on * {weights} rows of weights from "
        "{first_weights} on",
    ),
}  # fmt: skip
"""Those that have a stage to themselves."""


RECORDS = {
    "STAGE": STAGE,
    "CASE": CASE,
    "PMATRIX": PMATRIX,
    "STREAM": STREAM,
    "RUN": RUN,
    "NEWVIEW": NEWVIEW,
    "EDGE": EDGE,
    "FLOW": FLOW,
    "REDUCTION": REDUCTION,
    "GROUP": GROUP,
    "SCAN_TASK": SCAN_TASK,
    "SCAN_STEP": SCAN_STEP,
    "TRIPOD": TRIPOD,
    "WALK": WALK,
    "RELL": RELL,
}
"""Whose fields kernels name: the steps of walks are read as vectors of their four words."""
ENUMS: dict[str, type[enum.IntEnum]] = {
    "OP": Op,
    "DO": RunKind,
    "STEP": GroupKind,
    "CONTROL": Control,
    "FN": Function,
}
_KNOWN_TO_KERNELS = """
    SCALE_BITS_DOUBLE SCALE_BITS_SINGLE CONTROL_WORDS HEADER_WORDS REDUCE_WIDTH NO_CELL RESULT
    FAR_COUNT PENDANT_LEVEL ROOT_LEVEL WARP TRIPOD_CELLS MAX_STEP_HALVINGS STEP_GROWTH
    ENOUGH HOPE MOST_MIXED UPHILL MOST_GROWTH LEAST_REACH SATURATED RIDGE
    RELL_TILE
    FLOW_NEAR SERIES_OCTAVES MOST_TERMS NO_SERIES
"""
NUMBERS = {name: globals()[name] for name in _KNOWN_TO_KERNELS.split()} | {
    "FUNCTIONS": len(Function)
}


# What a worker is given: its arguments, and the state that a program works on.
#
# The kernel's parameters, the session that holds them and the places of the state's parts are
# rendered from here (``tests/contract_header.py``), so that both sides agree on every order.


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
    Argument("first_chunk", "int", "chunks of the shard's slices before this one"),
    Argument("reduction_lanes", "int", "of a shard; 0 for whole sums"),
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
