"""The worker contract: every number that Python and OpenCL must agree on.

A *program* is a list of stages over flat int32 records. Stages run one after the other with a
barrier over the whole grid between them; inside a stage, work-groups are independent. Here are the
numbers and the worker's arguments, in :mod:`mltree.program.ops` the operations and their records;
``opencl/contract.h`` is rendered from both (``python tests/contract_header.py``).

A *part* is a range of patterns with models of its own: a partition, or a locus. Parts follow one
another, and none shares a block or a chunk with another. A *case* is where a tree lives and under
what: a range of parts, their models, a row of weights. Trees on the same parts stand side by side;
trees on different parts share slots and cells, which are rows over all patterns, for neither
touches the other's. What every part has of its own (P matrices, models, lengths that are not
linked) is found at an index of its case plus the part's number.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from mltree.models import eigen


class GroupKind(enum.IntEnum):
    """How a group of branch lengths takes its Newton step."""

    DIAGONAL = 0
    """Every length by itself, all at once: cells d1, d2 per length."""
    TRIPLET = 1
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
    """Stop where GAIN_PER_PROMISE times what a step promises would end below (natural log)."""


class Function(enum.IntEnum):
    """The likelihood functions whose time is told apart."""

    PMATRICES = 0
    NEWVIEW = 1
    EVALUATE = 2
    DERIVE = 3
    SCAN = 4
    TRIPLET = 5
    OPTIMISE = 6
    BARRIER = 7
    RELL = 8
    SWEEP = 9


class Move(enum.IntEnum):
    """Moves of a chain: they tell apart its counts of acceptance, and its random numbers."""

    REGRAFT = 0
    """A subtree goes to an edge chosen among all."""
    INTERCHANGE = 1
    """Choice of one of the three topologies around an inner branch."""
    BRANCH = 2
    """A branch length is drawn anew."""
    SCALE = 3
    """All branch lengths are multiplied by one factor."""
    START = 4
    """Where a tour of the tree begins."""
    MODEL = 5
    """A model that the host has proposed is decided on."""


class HostMove(enum.IntEnum):
    """Draws of the host for chains, in the numbers behind those of their own moves."""

    PROPOSAL = 6
    """A step of a model's parameters."""
    SWAP = 7
    """Two chains of a ladder exchange their heats."""
    STATE = 8
    """A chain's first state."""


COUNTED_MOVES = 4
"""Moves that a chain counts, the first ones."""


class Chain(enum.IntEnum):
    """Words in front of a chain's tree.

    Behind them lie ``lengths[SETS][N + SPARE_LENGTHS]``, ``parent[N]``, ``left[N]``, ``right[N]``
    and ``spare[N]`` for nodes 0 .. N - 1 of a tree that hangs from tip 0: tips are 0 .. T - 1, and
    a node's length is that of the branch above it; that of tip 0 is scratch. What hangs from tip 0
    is its left child. The sums of a team follow, ``sums[2][MOST_TEAM][3]``.
    """

    HEAT = 0
    """Power of the likelihood, 0..1."""
    LNL = 1
    """Log-likelihood, not heated (natural log)."""
    SWEEP = 2
    """Sweeps done."""
    REPLICA = 3
    """Number of the chain in its run."""
    SEED_LOW = 4
    """The seed, 16 bits in each of two words, which fp32 holds as well."""
    SEED_HIGH = 5
    RUN = 6
    """Number of the run, which has random numbers of its own."""
    WINDOW = 7
    """Width of the natural log of the factor by which all lengths are scaled."""
    OUTER = 8
    """Prior of lengths, sum (k - 1) ln t + POWER ln T - RATE T: k - 1 of tips' branches."""
    INNER = 9
    """k - 1 of the other branches."""
    POWER = 10
    """Power of the tree length T."""
    RATE = 11
    """Rate of the tree length."""
    PROPOSAL = 12
    """1 with a proposed model to decide on; 2 once it has been accepted; RESTS for a chain that
    nothing is done with."""
    RATIO = 13
    """Natural log of the proposed model's prior and Hastings ratio."""
    TRIED = 14
    """How often each counted move was tried, from here on."""
    TAKEN = 18
    """How often each was accepted, or changed something, from here on."""
    ATTEMPT = 22
    """Number of the proposed model, which has a random number of its own."""
    TICKET = 23
    """Work-groups of a team that have come to its barriers, 32 bits; 0 to begin with."""
    SETS = 24
    """Sets of branch lengths: 1 for all parts, or one for each part, in their order."""


CHAIN_WORDS = 26
"""Words in front of a chain's lengths."""

RESTS = 3
"""Word of a chain that rests in a launch."""

MOST_TEAM = 32
"""Work-groups that share a chain at most."""

TEAM_WORDS = 2 * 3 * MOST_TEAM
"""Sums of a team, behind a chain's tree."""

SPARE_LENGTHS = 4
"""Lengths behind those of the nodes, for P matrices of a proposal."""


class TimeMove(enum.IntEnum):
    """Moves of a time tree's chain: they tell apart its counts, windows and random numbers."""

    HEIGHT = 0
    """An inner node's height, between its parent's and its older child's."""
    ROOT = 1
    """The root's height."""
    TIP = 2
    """A tip's date, within its interval."""
    RATE = 3
    """A branch's rate is drawn anew."""
    INTERCHANGE = 4
    """Choice of one of the topologies around a branch, all heights kept (narrow exchange)."""
    REGRAFT = 5
    """A subtree goes to another branch at the height that it hangs from."""
    REHANG = 6
    """A subtree goes to a branch at another height."""
    TREE = 7
    """The heights of all inner nodes are stretched."""
    CLOCK = 8
    """The clock's rate."""
    UP_DOWN = 9
    """All inner heights are stretched; the clock slows so that the tree's length stays, and
    population sizes grow."""
    SPREAD = 10
    """How much branches' rates differ."""
    SIZE = 11
    """Population size, or birth rate less death rate."""
    GROWTH = 12
    """Growth rate of the population, or death rate over birth rate."""
    FRACTION = 13
    """Share of the species that were sampled."""
    PRECISION = 14
    """Precision of the steps from a skygrid's cell to the next; or an event that goes from one of a
    skyline's groups to another."""
    CELL = 15
    """The log of the population size in a skygrid's cell, or a skyline's group."""
    DISTANCE = 16
    """A height changes, and the rates around it so that no branch length does."""
    TOUR = 17
    """Where a tour of the tree begins."""
    STRETCH = 18
    """Spread and log-rates are multiplied by one factor."""
    SAMPLING = 19
    """Share of those removed that are sampled."""
    PACE = 20
    """The heights of all inner nodes are stretched, and rates so that no branch length changes."""
    CLADE = 21
    """The same of the inner nodes of a clade."""


FIRST_TIME_MOVE = 16
"""Number of the first of them among the random numbers of all moves."""


class Scalar(enum.IntEnum):
    """Numbers that a time tree's chain has one of, each with its prior."""

    CLOCK = 0
    """Rate of the clock, expected substitutions per site and unit of time."""
    SPREAD = 1
    """Deviation of log-rates (ucln) or rates (ucgd); or variance of rates over length (wn)."""
    SIZE = 2
    """Population size, or birth rate less death rate; rate of removal where tips have dates."""
    GROWTH = 3
    """Growth rate of the population, or death rate over birth rate; births over removals where
    tips have dates."""
    FRACTION = 4
    """Share of the lineages at height 0 that were sampled."""
    PRECISION = 5
    """Precision of the steps from a skygrid's cell to the next."""
    SAMPLING = 6
    """Share of those removed that are sampled."""


class PriorKind(enum.IntEnum):
    """Densities of a number x, of two arguments a and b."""

    FIXED = 0
    """None: x is known."""
    LOG_NORMAL = 1
    """The log of x is normal of mean a and deviation b."""
    GAMMA = 2
    """Shape a, rate b."""
    UNIFORM = 3
    """Between a and b."""
    BETA = 4
    """Shapes a and b."""
    NORMAL = 5
    """Mean a, deviation b."""
    LAPLACE = 6
    """Mean a, scale b."""


class ClockKind(enum.IntEnum):
    """Distributions of branches' rates, all of mean 1."""

    STRICT = 0
    LOG_NORMAL = 1
    """Independent log-normal rates."""
    GAMMA = 2
    """Independent gamma rates."""
    WHITE_NOISE = 3
    """Gamma rates of a variance inverse to the branch's expected length."""


class TreePriorKind(enum.IntEnum):
    """Densities of a time tree."""

    BIRTH_DEATH = 0
    """Births and deaths, seen from the tips (Gernhard 2008)."""
    COALESCENT = 1
    """Kingman's, of a population that grows exponentially, or not at all."""
    SKYGRID = 2
    """Kingman's, of a population size that is constant within cells of time."""
    SERIAL = 3
    """Births, deaths and sampling through time (Stadler 2010)."""
    SKYLINE = 4
    """Kingman's, of a population size that is constant over a group of the tree's own events."""


class TimeChain(enum.IntEnum):
    """Words behind a chain's tree and the sums of its team, where the tree has a time axis.

    Node numbers are 0 .. T - 1 for tips, others up to N = 2T - 1, in any order; the root's parent
    is -1. A root's child has the length of both branches at the root. Behind these words lie
    ``heights[N]``, ``rates[N]``, ``earliest[N]`` and ``latest[N]`` (bounds of a tip's height),
    ``warped[N]`` (heights on the scale on which pairs of lineages meet at rate 1), ``before[N]``
    (a move's scratch), ``cells[3][CELLS]`` (log sizes; waiting, events, which of a skyline's groups
    are numbers of their own), calibrations of CALIBRATION_WORDS each, and their tips.
    """

    ROOT = 0
    """Number of the root."""
    CLOCK_KIND = 1
    TREE_KIND = 2
    IS_LEVEL = 3
    """1 where all tips have the same known date."""
    CALIBRATIONS = 4
    """Number of calibrations."""
    CELLS = 5
    """Cells of a skygrid, the last of which has no end, or groups of a skyline."""
    CELL_WIDTH = 6
    """Time that a cell takes."""

    WINDOWS = 8
    """Widths of proposals, move by move, from here on."""
    TRIED = 30
    """How often each move was tried, from here on."""
    TAKEN = 52
    """How often each was accepted, or changed something, from here on."""
    SCALARS = 74
    """Value, prior's kind, a and b of each scalar, from here on."""


class CalibrationWord(enum.IntEnum):
    """Words of a calibration: a prior of the height of a group's ancestor."""

    KIND = 0
    """Kind of the prior; FIXED where the group is only known to be one."""
    A = 1
    B = 2
    OFFSET = 3
    """Offset that is taken from the height before the density."""
    IS_STEM = 4
    """1 for the parent of the group's last common ancestor."""
    IS_GROUP = 5
    """1 where the ancestor has no other tips."""
    FIRST = 6
    """Number of its first tip among the tips of all calibrations."""
    COUNT = 7
    """Number of its tips."""
    NODE = 8
    """The node that it is about, in the present tree."""


TIME_WORDS, TIME_MOVES, SCALAR_WORDS, CALIBRATION_WORDS = 102, 22, 4, 9
"""Words of a time tree before its heights; room for moves; words of a scalar, of a calibration."""

PRIOR_WALKS = 4
"""Rounds of steps of the scalars of tree priors in a sweep, which need no likelihood."""

PACE_ROUNDS, PACE_CLADES = 4, 8
"""Rounds of moves in a sweep that keep all branch lengths, and so need no likelihood; clades whose
heights are stretched in a round, at least."""

LEAST_PRECISION = 0.25
"""Share of its prior's precision that a log-rate's draw has at least."""

LEAST_SHAPE = 0.02
"""Shape of a rate of white noise at least: with it one rate in 100,000 is below 1e-250, with less
many are no numbers but 0."""

MOST_SHIFT = 3.0
"""Deviations that a log-rate's draw is centred from the present one at most."""

MOVE_STRIDE = 1 << 24
"""Random numbers of a sweep's n-th move of a kind have the counter ``kind * MOVE_STRIDE + n``."""

MOST_MEAN = 10.0
"""A branch of length t is drawn with a mean of at most MOST_MEAN t + 1."""


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

TRIPLET_CELLS = 10
"""lnL, three first and six second derivatives."""

SCALE_BITS_DOUBLE = 256
"""fp64 CLAs below 2^-256 are scaled up by 2^256, as in RAxML."""

SCALE_BITS_SINGLE = 32
"""fp32 CLAs: three scaled operands multiply to 2^-96, inside fp32's 2^-126."""

MAX_STEP_HALVINGS = 12
"""An optimiser that has halved its step this often stands on its best point."""

STEP_GROWTH = 1.4
"""A successful step grows by this, up to a whole Newton step (docs/search.md, "Branch lengths")."""

LEAST_PROMISE = 0.5
"""Share of its epsilon that a group's next step has to promise: where lengths hang together it
gains about twice what it promises (docs/search.md, "Branch lengths")."""

GAIN_PER_PROMISE = 10
"""Times what its next step promises that a group may gain in all (docs/search.md, "Branch
lengths")."""

MOST_MIXED = 10
"""How often the last step's change may go into the next (docs/search.md, "Branch lengths")."""

UPHILL, DOWNHILL = 4, 16
"""Factors on a length, up and down, where the curvature is of no use: what falls there mostly falls
to the bound."""

MOST_GROWTH, LEAST_REACH, MOST_DECLINE = 10, 0.1, 100
"""No step leads further from a length t than to t / MOST_DECLINE or MOST_GROWTH t + LEAST_REACH."""

REACH_SWEEPS = 4
"""Sweeps over an insertion triplet's lengths in search of its quadratic's top within reach; with 2
and with 16 lnL were the same within 1e-3."""

SATURATED = 0.1
"""Expected substitutions per site: beyond it lnL may be so flat that a step to a maximum far below
gains nothing yet, and only its wrong curvature tells."""

RIDGE = 1e-3
"""Three branches of which two count as one (nothing is known of the third's end, say) have a
Hessian whose determinant is rounding: below this share, squared, of the product of its diagonal,
this share of the diagonal is added to it, and the step is shared out. A step off rounding led
anywhere: 4 of 40 sets of insertions ended up to 1.5 lnL short on a device, and not in NumPy."""

NO_SERIES = -1
"""Place of the series of a rate matrix whose eigen system gives every entry of P."""

FLOW_NEAR = 1e-3
"""Difference of two exponents below which a divided difference is a series, good to 1e-13."""

RELL_TILE = 4
"""Trees and rows of weights whose products a work-item sums together, in registers."""


ENUMS: dict[str, type[enum.IntEnum]] = {
    "STEP": GroupKind,
    "CONTROL": Control,
    "FN": Function,
    "MOVE": Move,
    "CHAIN": Chain,
    "TIME_MOVE": TimeMove,
    "SCALAR": Scalar,
    "PRIOR": PriorKind,
    "CLOCK": ClockKind,
    "TREE_PRIOR": TreePriorKind,
    "TIME": TimeChain,
    "CALIBRATION": CalibrationWord,
}
"""Numbers with names, and what kernels know them by."""
_KNOWN_TO_KERNELS = """
    SCALE_BITS_DOUBLE SCALE_BITS_SINGLE CONTROL_WORDS HEADER_WORDS REDUCE_WIDTH NO_CELL RESULT
    FAR_COUNT PENDANT_LEVEL ROOT_LEVEL WARP TRIPLET_CELLS MAX_STEP_HALVINGS STEP_GROWTH
    LEAST_PROMISE GAIN_PER_PROMISE MOST_MIXED UPHILL DOWNHILL MOST_GROWTH LEAST_REACH
    MOST_DECLINE REACH_SWEEPS SATURATED RIDGE RELL_TILE
    FLOW_NEAR SERIES_OCTAVES MOST_TERMS NO_SERIES
    CHAIN_WORDS RESTS MOST_TEAM SPARE_LENGTHS MOVE_STRIDE MOST_MEAN TEAM_WORDS
    FIRST_TIME_MOVE TIME_WORDS TIME_MOVES SCALAR_WORDS CALIBRATION_WORDS PRIOR_WALKS
    PACE_ROUNDS PACE_CLADES
    LEAST_PRECISION LEAST_SHAPE MOST_SHIFT
"""
_DEFINED = vars(eigen) | globals()
NUMBERS = {name: _DEFINED[name] for name in _KNOWN_TO_KERNELS.split()} | {
    "FUNCTIONS": len(Function)
}


# The worker's arguments, and the state that a program works on.
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
    """Offset of the books: [work-group][function]."""


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
"""Buffers of every worker, in the order of its arguments."""

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
"""Pieces of the state, in order, and how many numbers each takes."""


class StateLayout:
    """Slices of a program's state, in numbers, by the names of :data:`STATE`."""

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
