"""Requests of a search to the likelihood, and how many searches share its launches.

A search, and every step of it, is a generator: it yields requests and is sent their answers. The
driver of many searches joins requests of a kind that wait at the same time, so that starts,
replicates and loci fill a launch together; each goes on when its own answer is there. No answer
depends on the requests that it was joined with (docs/search.md, "Requests").
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice, pairwise
from typing import Any, ClassVar, TypeAlias, TypeVar

import numpy as np

from mltree.likelihood.likelihood import TreeLikelihood
from mltree.models.rate_profiles import Curves
from mltree.program.cases import Case
from mltree.system.arrays import Float64, Int32, UInt64
from mltree.system.values import Value
from mltree.tree.topology import Forest, Tree

Answers: TypeAlias = Sequence[Any] | Float64
"""An answer for each tree."""
T = TypeVar("T")


class Request(Value, ABC, eq=False):
    """A request about trees, each under its case."""

    trees: Sequence[Tree]
    cases: Sequence[Case]

    by_tree: ClassVar[tuple[str, ...]] = ("trees", "cases")
    """Names of the fields with an item for each tree."""
    is_quick: ClassVar[bool] = False
    """True if the request needs no likelihood, so that others may gather while it is answered."""

    @property
    def kind(self) -> Hashable:
        """Key that is equal for requests that can be joined."""
        rows_of_lengths = self.trees[0].lengths.shape[:-1]
        return type(self), rows_of_lengths, len(self.cases[0].models)

    def joined_with(self, others: Sequence[Request]) -> Request:
        """Return one request for the trees of all requests, which are of one kind."""
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
    def answer(self, likelihood: TreeLikelihood) -> Answers:
        """Answer the request, tree by tree."""

    def shares(self, count: int) -> Sequence[Request]:  # noqa: ARG002
        """Split the request for at most ``count`` ranks; one that goes alone is its only share."""
        return [self]

    def whole(self, answers: Sequence[Answers]) -> Answers:
        """Put the answers to the shares together."""
        (answer,) = answers
        return answer


class _ByTree(Request):
    """A request that is shared out by trees."""

    def shares(self, count: int) -> Sequence[Request]:
        """Deal the trees out to ``count`` requests."""
        return [
            replace(self, **{name: getattr(self, name)[n::count] for name in self.by_tree})
            for n in range(min(count, len(self.trees)))
        ]

    def whole(self, answers: Sequence[Answers]) -> Answers:
        """Put the answers back in the order of the trees."""
        whole: list[Any] = [None] * len(self.trees)
        for n, share in enumerate(answers):
            whole[n :: len(answers)] = share
        return whole


class SmoothTrees(_ByTree, eq=False):
    """Optimise branch lengths in place; lnL f64[n]."""

    epsilon: float
    floors: Sequence[float]
    """lnL that each tree has to reach; one that hardly does may stay short of its maximum."""
    by_tree = (*Request.by_tree, "floors")

    @property
    def kind(self) -> Hashable:
        """Requests with the same epsilon can be joined."""
        return super().kind, self.epsilon

    def answer(self, likelihood: TreeLikelihood) -> Float64:
        """Return the lnLs f64[n]."""
        floors = np.array(self.floors)
        return likelihood.smooth(self.trees, self.cases, self.epsilon, floors=floors)


class PartLogLikelihoods(_ByTree, eq=False):
    """Compute the lnL of every part, f64[n, parts]."""

    def answer(self, likelihood: TreeLikelihood) -> Float64:
        """Return the lnLs f64[n, parts]."""
        return likelihood.part_log_likelihoods(self.trees, self.cases)


class ClassWeights(_ByTree, eq=False):
    """Fit the weights of every part's classes, f64 [classes] each."""

    def answer(self, likelihood: TreeLikelihood) -> list[list[Float64]]:
        """Return the weights of the parts of every tree."""
        return likelihood.class_weights(self.trees, self.cases)


class RateCurves(_ByTree, eq=False):
    """Compute curves of the patterns of every part, under rates f64[J] for all of its sites.

    No part has any where lnLs at many points take less time, unless they are wanted anyway.
    """

    rates: Sequence[Sequence[Float64]]
    """Rates of each part of each tree."""
    anyway: bool = False
    by_tree = (*Request.by_tree, "rates")

    @property
    def kind(self) -> Hashable:
        """Requests that want curves anyway can be joined, and others."""
        return super().kind, self.anyway

    def answer(self, likelihood: TreeLikelihood) -> list[list[Curves]]:
        """Return the curves of the parts of every tree."""
        return [
            likelihood.rate_curves(tree, case, rates)
            if self.anyway or not likelihood.outruns_host(tree)
            else []
            for tree, case, rates in zip(self.trees, self.cases, self.rates, strict=True)
        ]


class FlowSlopes(_ByTree, eq=False):
    """Compute the slopes of every part's lnL in the rates of its classes, f64 [M, S, S] each."""

    def answer(self, likelihood: TreeLikelihood) -> list[list[Float64]]:
        """Return the slopes of the parts of every tree."""
        return likelihood.flow_slopes(self.trees, self.cases)


class TopologyKeys(Request, eq=False):
    """Compute keys of 64 bits that equal topologies share."""

    is_quick = True

    def answer(self, likelihood: TreeLikelihood) -> list[int]:  # noqa: ARG002
        """Return the keys (:meth:`mltree.tree.topology.Forest.topology_keys`)."""
        return Forest(self.trees).topology_keys()


class ShapeChanges(Request, eq=False):
    """Compute keys of 64 bits of what SPRs, each alone, change in the shapes of their trees."""

    moves: Sequence[tuple[Int32, Int32, Float64]]
    """Prunes, targets and lengths of each tree's moves (:func:`mltree.tree.moves.apply_sprs`)."""
    shortest: Sequence[float]
    """Longest branch of each tree that says nothing of the order of its neighbours."""
    by_tree = (*Request.by_tree, "moves", "shortest")
    is_quick = True

    def answer(self, likelihood: TreeLikelihood) -> list[UInt64]:  # noqa: ARG002
        """Return the keys (:meth:`mltree.tree.topology.Forest.shape_changes`)."""
        forest, counts = Forest(self.trees), [len(prunes) for prunes, *_ in self.moves]
        prunes, targets, lengths = map(np.concatenate, zip(*self.moves, strict=True))
        first, shortest = (np.repeat(of, counts) for of in (forest.first_half, self.shortest))
        changes = forest.shape_changes(prunes + first, targets + first, lengths, shortest)
        return np.split(changes, np.cumsum(counts)[:-1])


Steps: TypeAlias = Generator[Request, Answers, T]
"""A generator of requests that returns a result."""

Ask: TypeAlias = Callable[[Request], Answers]
"""A function that answers requests."""


class Stepwise(Request):
    """A request that is answered by a generator of requests."""

    @abstractmethod
    def steps(self) -> Steps[Answers]:
        """Yield the requests that lead to the answer."""

    def answer(self, likelihood: TreeLikelihood) -> Answers:
        """Answer the requests of the steps."""
        return perform(likelihood, self.steps())


def smoothed(
    trees: Sequence[Tree],
    cases: Sequence[Case],
    epsilon: float,
    floors: Sequence[float] | None = None,
) -> Steps[list[float]]:
    """Optimise the branch lengths of trees in place; return their lnLs.

    A tree may stay short of its maximum where that hardly reaches its floor.
    """
    floors = [-np.inf] * len(trees) if floors is None else floors
    answer = yield SmoothTrees(trees, cases, epsilon, floors)
    return [float(lnl) for lnl in answer]


def part_log_likelihoods(trees: Sequence[Tree], cases: Sequence[Case]) -> Steps[Float64]:
    """f64[n, parts]: lnL of every part of every tree."""
    answer = yield PartLogLikelihoods(trees, cases)
    return np.asarray(answer)


def class_weights(trees: Sequence[Tree], cases: Sequence[Case]) -> Steps[list[list[Float64]]]:
    """Return the best weights of the classes of every part of every tree."""
    answer = yield ClassWeights(trees, cases)
    return list(answer)


def rate_curves(
    trees: Sequence[Tree],
    cases: Sequence[Case],
    rates: Sequence[Sequence[Float64]],
    *,
    anyway: bool = False,
) -> Steps[list[list[Curves]]]:
    """Return curves of every part of every tree under rates for all of its sites, or none."""
    answer = yield RateCurves(trees, cases, rates, anyway)
    return list(answer)


def flow_slopes(trees: Sequence[Tree], cases: Sequence[Case]) -> Steps[list[list[Float64]]]:
    """Return the slopes of every part's lnL of every tree in the rates of its classes."""
    answer = yield FlowSlopes(trees, cases)
    return list(answer)


def perform(likelihood: TreeLikelihood, steps: Steps[T], ask: Ask | None = None) -> T:
    """Run steps alone, to their result; ``ask`` answers in the likelihood's stead."""
    ((_, result),) = perform_all(likelihood, [steps], 1, ask)
    return result


def perform_all(
    likelihood: TreeLikelihood, every: Iterable[Steps[T]], at_once: int, ask: Ask | None = None
) -> Iterator[tuple[int, T]]:
    """Run many generators of requests at once; yield each one's number and result as it ends.

    The waiting requests of the kind with the most trees are answered next, so that other kinds
    gather meanwhile; quick ones are answered before any.
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
    """Return the numbers of requests of the kind with most trees, of quick ones if any."""
    quick = {number: request for number, request in requests.items() if request.is_quick}
    kinds: dict[Hashable, list[int]] = {}
    for number, request in (quick or requests).items():
        kinds.setdefault(request.kind, []).append(number)
    return max(kinds.values(), key=lambda numbers: sum(len(requests[n].trees) for n in numbers))
