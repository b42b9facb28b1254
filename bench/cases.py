"""``bench cases``: many small problems in one launch, against one large one or one at a time.

Wall seconds of one call, with launch and read-back, each beside what it is measured by:

* parts: lnL and derivatives of a tree over many parts, against one part of as many patterns;
* weights: one smoothing of a tree under many rows of weights, against as many smoothings;
* loci: lnL of gene trees, each on patterns of its own, against one launch a locus;
* rell: site lnL times rows of weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from bench.contenders import Contender
from bench.kernels import times_of
from bench.results import Row, Run, repeated
from bench.workloads import workload
from mltree.fit.settings import BranchSettings
from mltree.program import builders, planner
from mltree.program.cases import Cases
from mltree.program.engine import NO_CONTROL, Engine
from mltree.program.ops.edges import EvaluateSites
from mltree.program.ops.operation import CASE
from mltree.program.program import Program
from mltree.runs.engines import Engines, Workload
from mltree.tree.topology import Tree, random_topology

__all__ = ["CASES", "SMOKE", "ManyProblems", "measure"]

SMOOTHING_GAIN = 0.1
"""lnL: the smoothing of the search's rounds."""

MAX_PASSES = 20


@dataclass(frozen=True)
class ManyProblems:
    """So many problems of one kind."""

    kind: str
    count: int
    taxa: int
    patterns: int
    """Of each part or locus; of the whole alignment under every row of weights."""


CASES = (
    ManyProblems("parts", 1000, 200, 50),
    ManyProblems("weights", 100, 101, 1630),
    ManyProblems("loci", 1000, 50, 500),
    ManyProblems("rell", 1000, 50, 100_000),
)
SMOKE = (
    ManyProblems("parts", 4, 6, 20),
    ManyProblems("weights", 3, 6, 40),
    ManyProblems("loci", 4, 5, 20),
    ManyProblems("rell", 5, 5, 64),
)


def measure(
    run: Run,
    cases: Sequence[ManyProblems],
    contenders: Sequence[Contender],
    repetitions: int,
    seed: int,
) -> None:
    """Fill the run with two rows per case and contender: together, and what that is compared to."""
    for case in cases:
        for contender in contenders:
            for way, call in _calls(case, contender, seed):
                row: Row = {
                    **asdict(case),
                    "contender": contender.name,
                    "precision": contender.precision,
                    "threads": contender.threads,
                    "operation": way,
                    "status": "done",
                    "seconds": repeated(times_of(call, repetitions)),
                }
                run.add(row)
                print(_line(row), flush=True)


def _line(row: Row) -> str:
    size = f"{row['count']} x {row['taxa']} x {row['patterns']}"
    seconds = row["seconds"]["median"] * 1e3
    return f"{row['kind']} {size} {row['contender']}, {row['operation']}: {seconds:.3f} ms"


Calls = Iterator[tuple[str, Callable[[], object]]]


def _calls(case: ManyProblems, contender: Contender, seed: int) -> Calls:
    return _KINDS[case.kind](case, contender, seed)


def _opened(
    case: ManyProblems, contender: Contender, seed: int, parts: int, models: int
) -> tuple[Engine, Tree]:
    """An engine with the patterns in parts, and a random tree of the taxa."""
    data = workload("DNA", case.taxa, case.patterns * parts, seed)
    ends = tuple(range(case.patterns, case.patterns * parts + 1, case.patterns))
    patterns = replace(data.patterns, ends=ends if parts > 1 else ())
    bounds = BranchSettings().bounds(patterns.n_sites)
    categories = data.model.n_categories
    engine = Engines(
        contender.resources, Workload.of_patterns(patterns, categories, bounds)
    ).likelihood.engine
    engine.load_models([data.model] * models)
    return engine, data.tree


def _runs(
    engine: Engine, program: Program, lengths: np.ndarray, control: np.ndarray = NO_CONTROL
) -> Callable[[], object]:
    return lambda: engine.run(program, lengths, control)


def _parts(case: ManyProblems, contender: Contender, seed: int) -> Calls:
    for parts, way in ((case.count, "together"), (1, "one part")):
        whole = replace(case, patterns=case.patterns * case.count // parts)
        engine, tree = _opened(whole, contender, seed, parts, parts)
        program = builders.derivatives([tree], Cases.alike(1, parts))
        yield way, _runs(engine, program, tree.lengths)


def _weights(case: ManyProblems, contender: Contender, seed: int) -> Calls:
    engine, tree = _opened(case, contender, seed, 1, 1)
    drawn = np.random.default_rng(seed).multinomial(
        case.patterns, np.full(case.patterns, 1 / case.patterns), case.count
    )
    engine.load_weights(drawn.astype(np.float64))
    records = np.zeros(case.count, CASE)
    records["parts"], records["weights"] = 1, np.arange(case.count)
    control = planner.control_records(case.count, SMOOTHING_GAIN, MAX_PASSES)
    together = builders.smoothing([tree] * case.count, MAX_PASSES, Cases(records))
    yield "together", _runs(engine, together, np.tile(tree.lengths, case.count), control)
    alone = [
        builders.smoothing([tree], MAX_PASSES, Cases(records[n : n + 1])) for n in range(case.count)
    ]

    def one_by_one() -> None:
        for program in alone:
            engine.run(program, tree.lengths, control[:1])

    yield "one by one", one_by_one


def _loci(case: ManyProblems, contender: Contender, seed: int) -> Calls:
    engine, _ = _opened(case, contender, seed, case.count, case.count)
    rng = np.random.default_rng(seed)
    trees = [random_topology(case.taxa, rng) for _ in range(case.count)]
    for tree in trees:
        tree.lengths[:] = rng.exponential(0.1, tree.n_edges) + 1e-4
    records = np.zeros(case.count, CASE)
    records["first_part"], records["parts"] = np.arange(case.count), 1
    walk = builders.walk(trees, case.taxa, cases=Cases(records))
    yield "together", _runs(engine, walk, np.concatenate([tree.lengths for tree in trees]))
    few = [
        (builders.walk([trees[n]], case.taxa, cases=Cases(records[n : n + 1])), trees[n].lengths)
        for n in range(case.count)
    ]

    def one_by_one() -> None:
        for program, lengths in few:
            engine.run(program, lengths, NO_CONTROL)

    yield "one by one", one_by_one


def _rell(case: ManyProblems, contender: Contender, seed: int) -> Calls:
    """As many rows of site lnL, all from one tree, as rows of weights."""
    engine, tree = _opened(case, contender, seed, 1, 1)
    engine.load_weights(
        np.random.default_rng(seed).poisson(1.0, (case.count, case.patterns)).astype(np.float64)
    )
    records = np.zeros(case.count, CASE)
    records["parts"] = 1
    trees, cases = [tree] * case.count, Cases(records)
    walk = builders.walk(trees, case.taxa, EvaluateSites, cases)
    engine.run(walk, np.tile(tree.lengths, case.count), NO_CONTROL)
    yield "together", _runs(engine, builders.rell(case.count, case.count), np.zeros(0))


_KINDS: dict[str, Callable[[ManyProblems, Contender, int], Calls]] = {
    "parts": _parts,
    "weights": _weights,
    "loci": _loci,
    "rell": _rell,
}
