"""Searches side by side: requests of a kind share launches, and no answer depends on that."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from verifier import VerifiedEngine

from mltree.data.alphabet import DNA
from mltree.data.patterns import Patterns
from mltree.fit.settings import PerturbationSettings, PhaseSettings, RoundSettings, SearchSettings
from mltree.likelihood.likelihood import Columns, TreeLikelihood
from mltree.likelihood.requests import (
    PartLogLikelihoods,
    Request,
    SmoothTrees,
    Steps,
    part_log_likelihoods,
    perform,
    perform_all,
    smoothed,
)
from mltree.models.eigen import random_reversible
from mltree.models.grammar import parse_model
from mltree.models.partitioned import Linkage, PartitionModel, alone
from mltree.program.cases import Case
from mltree.program.engine import Engine, ReferenceEngine
from mltree.tree.topology import Tree, random_topology
from mltree.treesearch.constraint import Constraint
from mltree.treesearch.move_cache import MoveCache
from mltree.treesearch.search import SearchOutcome, StartingTree, beginning, search_steps
from mltree.treesearch.search_context import SearchContext
from mltree.treesearch.spr import MoveRules, ScoreMoves

if TYPE_CHECKING:
    from simulated import Simulated

BOUNDS = (1e-6, 100.0)

ONE = Case((random_reversible(4, np.random.default_rng(1)),))
TWO = Case(ONE.models * 2)


class Watched:
    """A likelihood that keeps book of its launches; a tree is worth its number."""

    def __init__(self) -> None:
        self.launches: list[tuple[str, list[int]]] = []

    def smooth(
        self, trees: Sequence[Tree], cases: Sequence[Case], epsilon: float, *, floors: np.ndarray
    ) -> np.ndarray:
        return self._note(f"smooth {epsilon}", trees, cases)

    def part_log_likelihoods(self, trees: Sequence[Tree], cases: Sequence[Case]) -> np.ndarray:
        lnls = self._note("parts", trees, cases)
        return lnls[:, None] + np.arange(len(cases[0].models))

    def _note(self, what: str, trees: Sequence[Tree], cases: Sequence[Case]) -> np.ndarray:
        assert len(trees) == len(cases)
        self.launches.append((what, list(map(number_of, trees))))
        return np.array(self.launches[-1][1], dtype=np.float64)

    @property
    def sizes(self) -> list[int]:
        return [len(trees) for _, trees in self.launches]


def numbered(number: int, n_tips: int = 5, parts: int | None = None) -> Tree:
    """A tree that says which one it is."""
    tree = random_topology(n_tips, np.random.default_rng(number))
    if parts is not None:
        tree.lengths = np.ones((parts, tree.n_edges))
    tree.lengths[:] = number
    return tree


def number_of(tree: Tree) -> int:
    return int(tree.lengths.flat[0])


def smoothing(number: int, times: int = 1, epsilon: float = 0.1) -> Steps[list[float]]:
    """One tree, smoothed over and over."""
    lnls: list[float] = []
    for _ in range(times):
        lnls += yield from smoothed([numbered(number)], [ONE], epsilon)
    return lnls


def together(watched: Watched, every: Sequence[Steps[object]], at_once: int = 99) -> list[object]:
    """The results in the order of the steps."""
    found = dict(perform_all(watched, every, at_once))  # type: ignore[arg-type]
    assert sorted(found) == list(range(len(every)))
    return [found[number] for number in range(len(every))]


@pytest.mark.cases(20, 2000)
def test_every_answer_finds_its_way(case: int) -> None:
    """Any number of steps that ask for any trees in any order."""
    rng = np.random.default_rng(case)
    numbers = iter(range(1, 10**6))

    def steps(of: np.random.Generator) -> Steps[int]:
        asked = 0
        for _ in range(of.integers(4)):
            parts = int(of.integers(1, 3))
            trees = [numbered(next(numbers)) for _ in range(of.integers(1, 4))]
            expected = np.array(list(map(number_of, trees)))
            cases = [ONE if parts == 1 else TWO] * len(trees)
            if of.random() < 0.5:
                lnls = yield from smoothed(trees, cases, float(of.choice([0.1, 0.01])))
                assert lnls == expected.tolist()
            else:
                of_parts = yield from part_log_likelihoods(trees, cases)
                np.testing.assert_array_equal(of_parts, expected[:, None] + np.arange(parts))
            asked += len(trees)
        return asked

    watched = Watched()
    every = [steps(of) for of in rng.spawn(int(rng.integers(1, 9)))]
    asked = together(watched, every, int(rng.integers(1, 6)))
    assert sum(asked) == sum(watched.sizes)  # type: ignore[arg-type]
    trees = [tree for _, launched in watched.launches for tree in launched]
    assert len(set(trees)) == len(trees)


def test_the_kind_with_most_trees_is_answered_first() -> None:
    def three() -> Steps[list[float]]:
        return (yield from smoothed([numbered(n) for n in (7, 8, 9)], [ONE] * 3, 0.01))

    watched = Watched()
    together(watched, [smoothing(1), three(), smoothing(2)])
    assert watched.launches == [("smooth 0.01", [7, 8, 9]), ("smooth 0.1", [1, 2])]
    watched = Watched()
    together(watched, [three(), *(smoothing(n) for n in range(1, 5))])
    assert watched.sizes == [4, 3]


def test_steps_that_ask_for_nothing_end_at_once() -> None:
    def nothing() -> Steps[str]:
        yield from ()
        return "nothing"

    watched = Watched()
    found = perform_all(watched, [nothing(), smoothing(5), *(nothing() for _ in range(3))], 1)  # type: ignore[arg-type,list-item]
    assert next(found) == (0, "nothing")
    assert watched.launches == []
    assert list(found) == [(1, [5.0]), (2, "nothing"), (3, "nothing"), (4, "nothing")]
    assert watched.sizes == [1]
    assert perform(watched, nothing()) == "nothing"  # type: ignore[arg-type]
    assert list(perform_all(watched, [], 3)) == []  # type: ignore[arg-type]


@pytest.mark.parametrize("at_once", [1, 2, 3, 10])
def test_so_many_go_on_at_once_and_others_follow(at_once: int) -> None:
    """As many as may, for as long as there are so many; none is begun before it may go on."""
    times = (1, 4, 2, 1, 3, 1, 1)
    begun: list[int] = []
    ended: list[int] = []

    def fresh() -> Iterator[Steps[list[float]]]:
        for number, count in enumerate(times):
            begun.append(number)
            assert len(begun) - len(ended) <= at_once
            yield telling(number, count)

    def telling(number: int, count: int) -> Steps[list[float]]:
        lnls = yield from smoothing(number, count)
        ended.append(number)
        return lnls

    watched = Watched()
    found = dict(perform_all(watched, fresh(), at_once))  # type: ignore[arg-type]
    assert found == {number: [float(number)] * count for number, count in enumerate(times)}
    assert begun == list(range(len(times)))
    left = dict(enumerate(times))
    for _, trees in watched.launches:
        assert len(trees) == min(at_once, len(left))
        for number in trees:
            left[number] -= 1
        left = {number: count for number, count in left.items() if count}
    assert not left


def test_what_ends_is_told_before_the_next_launch() -> None:
    watched = Watched()
    found = perform_all(watched, [smoothing(1, 3), smoothing(2)], 2)  # type: ignore[arg-type]
    assert next(found) == (1, [2.0])
    assert watched.sizes == [2]
    assert list(found) == [(0, [1.0] * 3)]
    assert watched.sizes == [2, 1, 1]


PHASE, ROUNDS = PhaseSettings(5, 10.0), RoundSettings()
NO_SPLIT = np.zeros((0, 5), dtype=bool)


def scoring(
    phase: PhaseSettings = PHASE,
    rounds: RoundSettings = ROUNDS,
    constraint: Constraint | None = None,
) -> ScoreMoves:
    return ScoreMoves(
        [numbered(1)], [ONE], [-1.0], [MoveCache()], MoveRules(phase, rounds, constraint)
    )


CONSTRAINT = Constraint(NO_SPLIT, NO_SPLIT)

KINDS: dict[str, Request] = {
    "coarse": SmoothTrees([numbered(1)], [ONE], 0.1, [-np.inf]),
    "finer": SmoothTrees([numbered(1)], [ONE], 0.01, [-np.inf]),
    "2 parts": SmoothTrees([numbered(1)], [TWO], 0.1, [-np.inf]),
    "unlinked": SmoothTrees([numbered(1, parts=2)], [TWO], 0.1, [-np.inf]),
    "parts": PartLogLikelihoods([numbered(1)], [ONE]),
    "moves": scoring(),
    "moves of another phase": scoring(phase=replace(PHASE, cut=11.0)),
    "moves by other rules": scoring(rounds=replace(ROUNDS, keep=3)),
    "moves under a constraint": scoring(constraint=CONSTRAINT),
    "moves under another": scoring(constraint=replace(CONSTRAINT)),
}


def test_only_what_can_share_a_launch_is_of_one_kind() -> None:
    assert len({request.kind for request in KINDS.values()}) == len(KINDS)
    for request in KINDS.values():
        assert request.kind == replace(request, trees=[t.copy() for t in request.trees]).kind
    other = Case((random_reversible(4, np.random.default_rng(2)),), weights=3, first_part=2)
    assert KINDS["coarse"].kind == SmoothTrees([numbered(2, 6)], [other], 0.1, [-9.0]).kind


def test_other_kinds_are_launches_of_their_own() -> None:
    def asking(number: int, request: Request) -> Steps[object]:
        answer = yield replace(request, trees=[numbered_like(number, request.trees[0])])
        return float(np.ravel(answer)[0])

    named = ("coarse", "finer", "2 parts", "unlinked", "parts")
    watched = Watched()
    wanted = [KINDS[name] for name in named]
    every = [asking(n, request) for n, request in enumerate([*wanted, *wanted])]
    assert together(watched, every) == list(range(2 * len(named)))
    assert sorted(trees for _, trees in watched.launches) == [
        [n, n + len(named)] for n in range(len(named))
    ]


def numbered_like(number: int, tree: Tree) -> Tree:
    same = tree.copy()
    same.lengths[:] = number
    return same


def test_moves_are_scored_with_the_lnls_of_all() -> None:
    one, other = scoring(), replace(scoring(), trees=[numbered(2), numbered(3)])
    other = replace(other, cases=[TWO, ONE], lnls=[-2.0, -3.0])
    joined = one.joined_with([other])
    assert isinstance(joined, ScoreMoves)
    assert list(joined.lnls) == [-1.0, -2.0, -3.0]
    assert list(map(number_of, joined.trees)) == [1, 2, 3]
    assert list(joined.cases) == [ONE, TWO, ONE]
    assert joined.kind == one.kind


SETTINGS = SearchSettings(
    phases=(PhaseSettings(5, 50.0, fully_smoothed=2),),
    rounds=RoundSettings(keep=1, window=5.0),
    perturbation=PerturbationSettings(copies=1, patience=1),
)
"""A little of everything."""

Bits = list[np.ndarray]


def searching(
    model: PartitionModel, n_tips: int, number: int, unlinked: bool = False, **where: int
) -> Steps[SearchOutcome]:
    """A search of its own starts, model and random numbers."""
    rng = np.random.default_rng([4, number])
    trees = [random_topology(n_tips, rng) for _ in range(1 + number % 2)]
    for tree in trees if unlinked else ():
        tree.lengths = np.tile(tree.lengths, (model.n_parts, 1))
    starts = [StartingTree(tree, f"random {n}") for n, tree in enumerate(trees)]
    state = beginning(starts, model, SETTINGS, rng)
    return search_steps(SearchContext(SETTINGS, state, lambda _: None, **where))


def bits(found: SearchOutcome) -> Bits:
    values: list[np.ndarray] = [found.tree.twin, found.tree.edge, found.tree.lengths]
    values += [
        np.array(array) for arrays in found.model.arrays() for array in vars(arrays).values()
    ]
    values += [np.array([entry.lnl for entry in found.pool.trees])]
    values += [np.array([entry.key for entry in found.pool.trees], dtype=np.uint64)]
    return [*values, np.array([found.lnl, found.rounds, found.insertions, found.moves])]


def assert_as_alone(
    likelihood: TreeLikelihood,
    make: Callable[[int], Steps[SearchOutcome]],
    count: int,
    at_once: int,
) -> list[SearchOutcome]:
    """The bits of each search alone, in fewer launches."""
    engine = Launches(likelihood)
    lone = [perform(likelihood, make(number)) for number in range(count)]
    launches = engine.count
    found = dict(perform_all(likelihood, map(make, range(count)), at_once))
    assert engine.count < 2 * launches
    for number, expected in enumerate(lone):
        for mine, theirs in zip(bits(found[number]), bits(expected), strict=True):
            np.testing.assert_array_equal(mine, theirs)
    return lone


class Launches:
    """Counts what an engine runs."""

    def __init__(self, likelihood: TreeLikelihood) -> None:
        self.count, run = 0, likelihood.engine.run

        def counted(*arguments):  # type: ignore[no-untyped-def]
            self.count += 1
            return run(*arguments)

        likelihood.engine.run = counted  # type: ignore[method-assign]


def verified(patterns: Patterns, open_: Callable[..., Engine] | None = None) -> TreeLikelihood:
    inner = open_(patterns, 2) if open_ else ReferenceEngine(patterns, 2, BOUNDS)
    return TreeLikelihood(VerifiedEngine(inner, patterns.n_tips), BOUNDS, Columns.of([patterns]))


def bootstrapped(patterns: Patterns, rows: int) -> np.ndarray:
    """f64[1 + rows, L]: the patterns' own weights, and as many sites drawn from them."""
    own, rng = patterns.weights, np.random.default_rng(3)
    drawn = rng.multinomial(int(own.sum()), own / own.sum(), rows).astype(np.float64)
    return np.concatenate([own[None], drawn])


def test_searches_under_rows_of_weights_are_as_each_alone(
    make_case: Callable[..., Simulated],
) -> None:
    patterns = make_case(5, 50, 5).patterns
    likelihood = verified(patterns)
    likelihood.load_weights(bootstrapped(patterns, 2))
    model = alone(parse_model("K80+FE+G2", DNA))

    def make(number: int) -> Steps[SearchOutcome]:
        return searching(model, 5, number, weights=number)

    found = assert_as_alone(likelihood, make, 3, 2)
    assert len({search.lnl for search in found}) == 3
    resampled = verified(replace(patterns, weights=bootstrapped(patterns, 2)[2]))
    assert found[2].lnl == pytest.approx(perform(resampled, searching(model, 5, 2)).lnl, abs=1e-6)


@pytest.mark.parametrize("linkage", list(Linkage))
def test_searches_of_parts_are_as_each_alone(
    linkage: Linkage, make_parts: Callable[..., Simulated]
) -> None:
    data = make_parts(5, (40, 30), 7, linkage)
    model = replace(data.model, models=tuple(parse_model("K80+FE+G2", DNA) for _ in range(2)))

    def make(number: int) -> Steps[SearchOutcome]:
        return searching(model, 5, number, unlinked=linkage == Linkage.UNLINKED)

    assert_as_alone(data.likelihood, make, 2, 2)


def test_loci_are_searched_as_each_alone(
    make_parts: Callable[..., Simulated], part_alone: Callable[..., Simulated],
    open_native: Callable[..., Engine],
) -> None:  # fmt: skip
    """Each part a gene tree of other taxa, on a device: the bits of each alone there, and where
    the reference gets with nothing else in sight."""
    data = make_parts(6, (40, 9, 70), 2, texts=("JC", "JC", "JC"))
    model, taxa = alone(parse_model("K80+FE+G2", DNA)), (5, 4, 6)

    def make(number: int) -> Steps[SearchOutcome]:
        return searching(model, taxa[number], number, first_part=number)

    found = assert_as_alone(verified(data.patterns, open_native), make, 3, 2)
    for number, search in enumerate(found):
        own = part_alone(data, number).patterns
        lone = verified(replace(own, codes=own.codes[: taxa[number]]))
        expected = perform(lone, searching(model, taxa[number], number))
        assert search.lnl == pytest.approx(expected.lnl, abs=1e-6)
