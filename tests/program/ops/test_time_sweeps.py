"""Sweeps of time trees: kernels decide as the reference does, lnL is that of the tree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mltree.program import builders
from mltree.program.contract import (
    CHAIN_WORDS,
    TEAM_WORDS,
    Chain,
    ClockKind,
    PriorKind,
    Scalar,
    TimeChain,
    TimeMove,
    TreePriorKind,
)
from mltree.program.engine import NO_CONTROL, ReferenceEngine
from mltree.program.ops.operation import Row
from mltree.program.ops.time_sweeps import TimeReplica
from mltree.program.ops.time_trees import (
    TimeShape,
    TimeTreeWords,
    empty_time_words,
    write_calibration,
)
from mltree.system.arrays import Float64

BOUNDS = (1e-8, 100.0)
TIPS = 7
GAMMA = PriorKind.GAMMA
PRIORS = {
    Scalar.CLOCK: (0.5, GAMMA, 2.0, 4.0),
    Scalar.SPREAD: (0.4, GAMMA, 1.0, 3.0),
    Scalar.SIZE: (0.8, PriorKind.LOG_NORMAL, 0.0, 1.0),
    Scalar.GROWTH: (0.0, PriorKind.FIXED, 0.0, 0.0),
    Scalar.FRACTION: (1.0, PriorKind.FIXED, 0.0, 0.0),
    Scalar.PRECISION: (1.5, GAMMA, 2.0, 1.0),
    Scalar.SAMPLING: (1.0, PriorKind.FIXED, 0.0, 0.0),
}
OF_SERIAL = {
    Scalar.SAMPLING: (0.3, PriorKind.BETA, 2.0, 2.0),
    Scalar.FRACTION: (0.6, PriorKind.BETA, 2.0, 2.0),
}
TREES = {
    "birth-death": (TreePriorKind.BIRTH_DEATH, (0.4, PriorKind.BETA, 2.0, 2.0), False),
    "coalescent": (TreePriorKind.COALESCENT, (0.0, PriorKind.FIXED, 0.0, 0.0), True),
    "growth": (TreePriorKind.COALESCENT, (0.7, PriorKind.LAPLACE, 0.0, 1.0), True),
    "skygrid": (TreePriorKind.SKYGRID, (0.0, PriorKind.FIXED, 0.0, 0.0), True),
    "skyline": (TreePriorKind.SKYLINE, (0.0, PriorKind.FIXED, 0.0, 0.0), True),
    "serial": (TreePriorKind.SERIAL, (1.4, PriorKind.LOG_NORMAL, 0.0, 1.0), True),
}


def random_time_tree(tree: TimeTreeWords, rng: np.random.Generator, *, dated: bool) -> None:
    """Join random lineages at random times; the tips' dates are intervals in part."""
    tips = tree.tips
    if dated:
        tree.heights[:tips] = np.round(rng.uniform(0, 0.6, tips), 2)
        tree.heights[tips - 2 : tips] = 0
    tree.earliest[:tips] = tree.latest[:tips] = tree.heights[:tips]
    if dated:
        tree.earliest[1:3] -= 0.1 * tree.heights[1:3]
        tree.latest[1:3] += 0.2
    lineages, time = list(range(tips)), float(tree.heights[:tips].max())
    for node in range(tips, tree.nodes):
        time += rng.exponential(0.3)
        one, other = (lineages.pop(int(rng.integers(len(lineages)))) for _ in range(2))
        tree.left[node], tree.right[node], tree.heights[node] = one, other, time
        tree.parent[one] = tree.parent[other] = node
        lineages.append(node)
    tree.parent[tree.nodes - 1], tree.time[TimeChain.ROOT] = -1, tree.nodes - 1
    tree.time[TimeChain.IS_LEVEL] = not dated


def words_of(
    trees: int, prior: str, clock: ClockKind, *, calibrated: bool = False, seed: int = 7
) -> tuple[Float64, TimeShape]:
    kind, growth, dated = TREES[prior]
    cells = 4 if kind in (TreePriorKind.SKYGRID, TreePriorKind.SKYLINE) else 0
    shape = TimeShape(TIPS, cells, 2 if calibrated else 0, 4 if calibrated else 0)
    words, rng = empty_time_words(trees, shape), np.random.default_rng(seed)
    words[:, Chain.HEAT] = np.linspace(1, 0, trees) if trees > 1 else 1
    words[:, Chain.REPLICA], words[:, Chain.RUN] = np.arange(trees), 1
    words[:, Chain.SEED_LOW], words[:, Chain.SEED_HIGH] = seed & 0xFFFF, seed >> 16
    for row in words:
        tree = TimeTreeWords(row, shape)
        random_time_tree(tree, rng, dated=dated)
        tree.time[TimeChain.TREE_KIND], tree.time[TimeChain.CLOCK_KIND] = kind, clock
        tree.time[TimeChain.CELL_WIDTH] = 0.4
        tree.time[TimeChain.WINDOWS : TimeChain.TRIED] = 1.0
        own = OF_SERIAL if kind == TreePriorKind.SERIAL else {}
        for which, numbers in (PRIORS | {Scalar.GROWTH: growth} | own).items():
            tree.scalars[which] = numbers
        if clock == ClockKind.STRICT:
            tree.scalars[Scalar.SPREAD] = 0.4, PriorKind.FIXED, 0, 0
        else:
            tree.rates[:] = rng.lognormal(-0.1, 0.4, tree.nodes)
        if not cells:
            tree.scalars[Scalar.PRECISION] = 1, PriorKind.FIXED, 0, 0
        tree.cells[0] = rng.normal(0, 0.5, cells)
        if kind == TreePriorKind.SKYLINE:
            tree.cells[2] = 1, 3, 1, 1
            tree.scalars[Scalar.PRECISION] = 1, PriorKind.FIXED, 0, 0
        if calibrated:
            node = next(v for v in range(TIPS, tree.nodes) if tree.left[v] < TIPS > tree.right[v])
            pair = [int(tree.left[node]), int(tree.right[node])]
            write_calibration(tree, 0, (PriorKind.GAMMA, 2.0, 2.0, 0.0, 0, 1), pair)
            write_calibration(tree, 1, (PriorKind.NORMAL, 1.0, 0.7, 0.1, 1, 0), [0, TIPS - 1])
    return words, shape


def telling(words: Float64, shape: TimeShape) -> Float64:
    """The words but for those that are scratch."""
    kept = words.copy()
    kept[:, Chain.TICKET] = 0
    for row in kept:
        tree = TimeTreeWords(row, shape)
        start = CHAIN_WORDS + tree.nodes
        row[start : start + 4] = 0
        row[start + 4 + 4 * tree.nodes : start + 4 + 4 * tree.nodes + TEAM_WORDS] = 0
        tree.spare[:] = tree.before[:] = 0
        tree.warped[:] = 0
        tree.cells[1] = 0
        if tree.time[TimeChain.TREE_KIND] == TreePriorKind.SKYGRID:
            tree.cells[2] = 0
        tree.lengths[tree.root] = 0
    return kept


CASES = [
    *((prior, ClockKind.STRICT, False) for prior in TREES),
    *(("coalescent", clock, False) for clock in list(ClockKind)[1:]),
    ("birth-death", ClockKind.LOG_NORMAL, True),
    ("coalescent", ClockKind.WHITE_NOISE, True),
]


@pytest.mark.cases(1, 30)
@pytest.mark.parametrize(("prior", "clock", "calibrated"), CASES)
def test_a_device_sweeps_as_the_reference_does(
    open_engine: Callable[..., Any],
    make_problem: Callable[..., Any],
    prior: str,
    clock: ClockKind,
    calibrated: bool,
    case: int,
) -> None:
    problem = make_problem(TIPS, 40)
    words, shape = words_of(3, prior, clock, calibrated=calibrated, seed=7 + case)
    words[0, Chain.PROPOSAL], words[1, Chain.PROPOSAL], words[1, Chain.RATIO] = 1, 1, 1e3
    others = make_problem(TIPS, 40, seed=5).model
    program = builders.time_sweeps(3, shape, 1, 2, 2)
    made = []
    for engine in (
        ReferenceEngine(problem.patterns, problem.categories, BOUNDS),
        open_engine(problem.patterns, problem.categories, bounds=BOUNDS),
    ):
        engine.load_models([problem.model, others] * 3)
        result = engine.run(program, words.ravel().copy(), NO_CONTROL)
        made.append(telling(result.lengths.reshape(words.shape), shape))
    for row, (one, other) in enumerate(zip(*made, strict=True)):
        np.testing.assert_allclose(other, one, rtol=1e-7, atol=1e-8, err_msg=f"chain {row}")
    assert made[1][:, Chain.SWEEP].tolist() == [2, 2, 2]


# Ratios of moves that map a state to another by a factor: the reference is asked for the ratio that
# it has computed, all that it must consist of is computed by other means. lnL and priors come from
# the states, the Jacobian from finite differences of the move itself, its random numbers kept.


def replica_of(words: Float64, shape: TimeShape, problem: Any) -> TimeReplica:
    engine = ReferenceEngine(problem.patterns, problem.categories, BOUNDS)
    engine.load_models([problem.model] * 2)
    program = builders.time_sweeps(1, shape, 1, 1, 1)
    engine.begin(program.cases, 1, 0, 0)
    engine.lengths = words
    replica = TimeReplica(engine, Row(program.stages[0].records[0]))
    replica.lnl = replica.whole_lnl()
    return replica


MAPS: dict[str, Callable[[TimeReplica], None]] = {
    "tree": lambda replica: replica.scale_all(TimeMove.TREE),
    "clock": lambda replica: replica.scale_all(TimeMove.CLOCK),
    "up_down": lambda replica: replica.scale_all(TimeMove.UP_DOWN),
    "stretch": lambda replica: replica.stretch(),
    "root": lambda replica: replica.move_root(3),
    "pace": lambda replica: replica.keep_lengths(TimeMove.PACE, 1),
    "clade": lambda replica: replica.keep_lengths(TimeMove.CLADE, 1),
    "distance": lambda replica: replica.keep_distance(replica.tree.root, 3),
}


_MAPPED = [Scalar.CLOCK, Scalar.SPREAD, Scalar.SIZE]


def coordinates(replica: TimeReplica) -> Float64:
    """A copy of all that the maps change."""
    tree = replica.tree
    scalars = tree.scalars[_MAPPED, 0]
    return np.concatenate([scalars, tree.cells[0], tree.heights[tree.tips :], tree.rates])


def take(replica: TimeReplica, x: Float64) -> None:
    tree = replica.tree
    ends = np.cumsum([len(_MAPPED), tree.shape.cells, tree.nodes - tree.tips])
    scalars, tree.cells[0], tree.heights[tree.tips :], tree.rates[:] = np.split(x, ends)
    tree.scalars[_MAPPED, 0] = scalars


def ratio_and_expectation(
    move: str, problem: Any, seed: int, prior: str = "growth"
) -> tuple[float, float]:
    (words,), shape = words_of(1, prior, ClockKind.LOG_NORMAL, seed=seed)
    words[Chain.HEAT] = 0.6
    replica = replica_of(words, shape, problem)
    ratios: list[float] = []

    def accept(_: object, log_ratio: float) -> bool:
        ratios.append(log_ratio)
        return True

    def log_posterior() -> float:
        return 0.6 * replica.whole_lnl() + replica.priors.total()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mltree.program.ops.time_sweeps.is_accepted", accept)
        start, before = coordinates(replica), log_posterior()

        def moved(x: Float64) -> Float64:
            take(replica, x)
            MAPS[move](replica)
            return coordinates(replica)

        moved(start)
        ratio, after = ratios[-1], log_posterior()
        steps = 1e-6 * np.maximum(np.abs(start), 1e-2)
        columns = [
            (moved(start + step) - moved(start - step)) / (2 * size)
            for step, size in zip(np.diag(steps), steps, strict=True)
        ]
    return ratio, after - before + float(np.linalg.slogdet(np.array(columns))[1])


@pytest.mark.parametrize(
    ("move", "prior"), [*((move, "growth") for move in MAPS), *(("up_down", p) for p in TREES)]
)
@pytest.mark.cases(1, 20)
def test_ratio_of_maps(make_problem: Callable[..., Any], move: str, prior: str, case: int) -> None:
    ratio, expected = ratio_and_expectation(move, make_problem(TIPS, 12), 30 + case, prior)
    assert ratio == pytest.approx(expected, abs=1e-5)


FACTORS = [
    ("tree", TimeTreeWords, "stretch_heights"),
    ("up_down", TimeTreeWords, "stretch_heights"),
    ("up_down", TimeReplica, "scale_sizes"),
]


@pytest.mark.parametrize(("move", "holder", "part"), FACTORS)
def test_a_factor_that_is_dropped_is_noticed(
    make_problem: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    move: str,
    holder: type,
    part: str,
) -> None:
    whole = getattr(holder, part)

    def forgetful(self: Any, step: float) -> float:
        whole(self, step)
        return 0.0

    monkeypatch.setattr(holder, part, forgetful)
    ratio, expected = ratio_and_expectation(move, make_problem(TIPS, 12), 30)
    assert abs(ratio - expected) > 1e-2
