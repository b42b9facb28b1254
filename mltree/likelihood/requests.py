"""What a search asks of the likelihood, and how many searches share its launches.

A search, and every step of one, is a generator: it yields requests and is sent their answers.
Whoever drives several of them joins the requests of a kind that wait at the same time, so that
starts, replicates and loci fill a launch together, each going on when its own answer is there. No
answer depends on what it was joined with.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice, pairwise
from typing import Any, ClassVar, Protocol, TypeAlias, TypeVar

import numpy as np

from mltree.models.rate_profiles import Curves
from mltree.program.cases import Case
from mltree.program.planner import ScanTasks
from mltree.system.arrays import Float64, Int32
from mltree.system.values import Value
from mltree.tree.forest import Forest, Trees
from mltree.tree.topology import Tree

Answers: TypeAlias = Sequence[Any] | Float64
"""One for each tree."""
T = TypeVar("T")


class SearchLikelihood(Protocol):
    """The likelihood as the search needs it (:mod:`mltree.likelihood.likelihood`)."""

    @property
    def planners(self) -> int:
        """Threads that may ask for insertions at once."""

    def trees_at_once(self, trees: Sequence[Tree], cases: Sequence[Case]) -> int:
        """How many of the first of these trees are best searched side by side."""

    def load_weights(self, rows: Float64) -> None:
        """Take rows of pattern weights f64[R, L], which cases name."""

    def part_log_likelihoods(self, trees: Sequence[Tree], cases: Sequence[Case]) -> Float64:
        """f64[n, parts]: lnL of every part of every tree."""

    def class_weights(self, trees: Sequence[Tree], cases: Sequence[Case]) -> list[list[Float64]]:
        """The best weights of the classes of every part of every tree, all else as it is."""

    def outruns_host(self, tree: Tree) -> bool:
        """Whether lnL of many points are told sooner than the host makes use of curves."""

    def rate_curves(self, tree: Tree, case: Case, rates: Sequence[Float64]) -> list[Curves]:
        """The patterns of every part under rates f64[J] for all of its sites."""

    def flow_slopes(self, trees: Sequence[Tree], cases: Sequence[Case]) -> list[list[Float64]]:
        """What every part's lnL gains with the rates of its classes, f64[M, S, S] each."""

    def smooth(
        self,
        trees: Sequence[Tree],
        cases: Sequence[Case],
        epsilon: float,
        *,
        floors: Float64 | None = None,
    ) -> Float64:
        """f64[n]: lnL after optimising all lengths in place; never worse than before.

        No more than rough where they hardly reach ``floors`` f64[n].
        """

    def insertions(self, trees: Trees, cases: Sequence[Case], scan: ScanTasks) -> Float64:
        """f64[outputs]: s0 of every insertion."""

    def refine(
        self,
        trees: Trees,
        cases: Sequence[Case],
        scan: ScanTasks,
        floors: Float64 | None = None,
    ) -> tuple[Float64, Float64]:
        """Best lnL f64[outputs], and lengths f64[..., outputs, 3] near, far, pendant.

        No more than rough where they are below ``floors`` f64[outputs].
        """

    def join_lengths(self, trees: Trees, cases: Sequence[Case], prunes: Int32) -> Float64:
        """f64[..., n]: optimised length of the branch that each prune leaves."""


class Request(Value, ABC, eq=False):
    """Trees, each in its case, of which something is asked."""

    trees: Sequence[Tree]
    cases: Sequence[Case]

    by_tree: ClassVar[tuple[str, ...]] = ("trees", "cases")
    """Fields of an item a tree."""
    is_quick: ClassVar[bool] = False
    """Whether it takes no likelihood, so that others may gather while it is answered."""

    @property
    def kind(self) -> Hashable:
        """Equal for requests that can be joined."""
        rows_of_lengths = self.trees[0].lengths.shape[:-1]
        return type(self), rows_of_lengths, len(self.cases[0].models)

    def joined_with(self, others: Sequence[Request]) -> Request:
        """One request for the trees of all, which are of one kind."""
        if not others:
            return self
        every = (self, *others)
        return replace(
            self,
            **{
                name: list(chain.from_iterable(getattr(request, name) for request in every))
                for name in self.by_tree
            },
        )

    @abstractmethod
    def answer(self, likelihood: SearchLikelihood) -> Answers:
        """What was asked, an answer a tree."""

    def shares(self, count: int) -> Sequence[Request]:  # noqa: ARG002
        """The same in so many requests at most, for as many ranks: itself if it goes alone."""
        return [self]

    def whole(self, answers: Sequence[Answers]) -> Answers:
        """The answer, from those to its shares."""
        (answer,) = answers
        return answer


class _ByTree(Request):
    """One whose shares are trees."""

    def shares(self, count: int) -> Sequence[Request]:
        """Every so many trees."""
        return [
            replace(self, **{name: getattr(self, name)[n::count] for name in self.by_tree})
            for n in range(min(count, len(self.trees)))
        ]

    def whole(self, answers: Sequence[Answers]) -> Answers:
        """Those to all trees in order."""
        found: list[Any] = [None] * len(self.trees)
        for n, own in enumerate(answers):
            found[n :: len(answers)] = own
        return found


class SmoothTrees(_ByTree, eq=False):
    """Branch lengths, which change in place; lnL f64[n]."""

    epsilon: float
    floors: Sequence[float]
    """Of every tree: what its lnL has to reach, or it may stay short of its maximum."""
    by_tree = (*Request.by_tree, "floors")

    @property
    def kind(self) -> Hashable:
        """Of one epsilon."""
        return super().kind, self.epsilon

    def answer(self, likelihood: SearchLikelihood) -> Float64:
        """LnL f64[n]."""
        floors = np.array(self.floors)
        return likelihood.smooth(self.trees, self.cases, self.epsilon, floors=floors)


class PartLogLikelihoods(_ByTree, eq=False):
    """lnL of every part, f64[n, parts]."""

    def answer(self, likelihood: SearchLikelihood) -> Float64:
        """LnL f64[n, parts]."""
        return likelihood.part_log_likelihoods(self.trees, self.cases)


class ClassWeights(_ByTree, eq=False):
    """The best weights of every part's classes, f64 [classes] each."""

    def answer(self, likelihood: SearchLikelihood) -> list[list[Float64]]:
        """Those of the parts of every tree."""
        return likelihood.class_weights(self.trees, self.cases)


class RateCurves(_ByTree, eq=False):
    """The patterns of every part under rates f64[J] for all of its sites.

    Of no part where lnL at many points take less time.
    """

    rates: Sequence[Sequence[Float64]]
    """Of each part of each tree."""
    by_tree = (*Request.by_tree, "rates")

    def answer(self, likelihood: SearchLikelihood) -> list[list[Curves]]:
        """Those of the parts of every tree."""
        return [
            [] if likelihood.outruns_host(tree) else likelihood.rate_curves(tree, case, own)
            for tree, case, own in zip(self.trees, self.cases, self.rates, strict=True)
        ]


class FlowSlopes(_ByTree, eq=False):
    """What every part's lnL gains with the rates of its classes, f64 [M, S, S] each."""

    def answer(self, likelihood: SearchLikelihood) -> list[list[Float64]]:
        """Those of the parts of every tree."""
        return likelihood.flow_slopes(self.trees, self.cases)


class TopologyKeys(Request, eq=False):
    """64 bits that equal topologies share."""

    is_quick = True

    def answer(self, likelihood: SearchLikelihood) -> list[int]:  # noqa: ARG002
        """See :meth:`mltree.tree.forest.Forest.topology_keys`."""
        return Forest(self.trees).topology_keys()


class ShapeKeys(Request, eq=False):
    """64 bits that equal shapes share."""

    shortest: Sequence[float]
    """Of every tree: how long a branch is that says nothing of the order of its neighbours."""
    by_tree = (*Request.by_tree, "shortest")
    is_quick = True

    def answer(self, likelihood: SearchLikelihood) -> list[int]:  # noqa: ARG002
        """See :meth:`mltree.tree.forest.Forest.shape_keys`."""
        return Forest(self.trees).shape_keys(np.array(self.shortest))


Steps: TypeAlias = Generator[Request, Answers, T]
"""Something that needs likelihoods on the way to its result."""

Ask: TypeAlias = Callable[[Request], Answers]
"""Whoever answers."""


class Stepwise(Request):
    """One that is answered by steps of its own."""

    @abstractmethod
    def steps(self) -> Steps[Answers]:
        """The way to the answer."""

    def answer(self, likelihood: SearchLikelihood) -> Answers:
        """Go through the steps."""
        return perform(likelihood, self.steps())


def smoothed(
    trees: Sequence[Tree],
    cases: Sequence[Case],
    epsilon: float,
    floors: Sequence[float] | None = None,
) -> Steps[list[float]]:
    """LnL of every tree after optimising its branch lengths in place.

    It may stop short of the maximum where that hardly reaches a tree's floor.
    """
    floors = [-np.inf] * len(trees) if floors is None else floors
    answer = yield SmoothTrees(trees, cases, epsilon, floors)
    return [float(lnl) for lnl in answer]


def part_log_likelihoods(trees: Sequence[Tree], cases: Sequence[Case]) -> Steps[Float64]:
    """f64[n, parts]: lnL of every part of every tree."""
    answer = yield PartLogLikelihoods(trees, cases)
    return np.asarray(answer)


def topology_keys(trees: Sequence[Tree], cases: Sequence[Case]) -> Steps[list[int]]:
    """64 bits of every tree that equal topologies share."""
    answer = yield TopologyKeys(trees, cases)
    return list(answer)


def shape_keys(trees: Sequence[Tree], cases: Sequence[Case], shortest: float) -> Steps[list[int]]:
    """64 bits of every tree that equal shapes share: all splits by longer branches."""
    answer = yield ShapeKeys(trees, cases, [shortest] * len(trees))
    return list(answer)


def class_weights(trees: Sequence[Tree], cases: Sequence[Case]) -> Steps[list[list[Float64]]]:
    """The best weights of the classes of every part of every tree."""
    answer: Any = yield ClassWeights(trees, cases)
    found: list[list[Float64]] = answer
    return found


def rate_curves(
    trees: Sequence[Tree], cases: Sequence[Case], rates: Sequence[Sequence[Float64]]
) -> Steps[list[list[Curves]]]:
    """The patterns of every part of every tree under rates for all of its sites, or of none."""
    answer: Any = yield RateCurves(trees, cases, rates)
    found: list[list[Curves]] = answer
    return found


def flow_slopes(trees: Sequence[Tree], cases: Sequence[Case]) -> Steps[list[list[Float64]]]:
    """What the lnL of every part of every tree gains with the rates of its classes."""
    answer: Any = yield FlowSlopes(trees, cases)
    found: list[list[Float64]] = answer
    return found


def perform(likelihood: SearchLikelihood, steps: Steps[T], ask: Ask | None = None) -> T:
    """Go through the steps alone, to their result; ``ask``: answers instead of the likelihood."""
    ((_, result),) = perform_all(likelihood, [steps], 1, ask)
    return result


def perform_all(
    likelihood: SearchLikelihood,
    every: Iterable[Steps[T]],
    at_once: int,
    ask: Ask | None = None,
) -> Iterator[tuple[int, T]]:
    """Go through many at once; gives each one's number and result as it ends.

    Of the requests that wait, those of the kind with the most trees are answered next, so that
    the others gather meanwhile; but quick ones before any.
    """
    fresh = enumerate(every)
    waiting: dict[int, tuple[Steps[T], Request]] = {}
    ended: list[tuple[int, T]] = []

    def go_on(number: int, steps: Steps[T], answer: Answers | None) -> None:
        try:
            waiting[number] = steps, next(steps) if answer is None else steps.send(answer)
        except StopIteration as end:
            waiting.pop(number, None)
            ended.append((number, end.value))

    while True:
        while len(waiting) < at_once and (more := list(islice(fresh, 1))):
            go_on(*more[0], None)
        yield from ended
        ended.clear()
        if not waiting:
            return
        numbers = _largest_kind({number: request for number, (_, request) in waiting.items()})
        first, *others = (waiting[number][1] for number in numbers)
        request = first.joined_with(others)
        answer = request.answer(likelihood) if ask is None else ask(request)
        ends = np.cumsum([0, *(len(request.trees) for request in (first, *others))]).tolist()
        for number, (begin, end) in zip(numbers, pairwise(ends), strict=True):
            go_on(number, waiting[number][0], answer[begin:end])


def _largest_kind(requests: dict[int, Request]) -> list[int]:
    """The numbers of the requests of the kind that has most trees, of the quick ones if any."""
    quick = {number: request for number, request in requests.items() if request.is_quick}
    kinds: dict[Hashable, list[int]] = {}
    for number, request in (quick or requests).items():
        kinds.setdefault(request.kind, []).append(number)
    return max(kinds.values(), key=lambda numbers: sum(len(requests[n].trees) for n in numbers))
