"""The requests of one search, answered among ranks: trees by trees, moves by what is moved.

The first rank searches; the others hold the same data on devices of their own, and answer what they
are asked. No answer depends on what else is asked for at the same time (:mod:`.requests`), so that
the search is that of one process to the bit, whoever answers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from numpy.typing import NDArray

from mltree.likelihood.requests import Answers, Request, SearchLikelihood, Stepwise, perform
from mltree.system.ranks import Ranks

LEAST_SECONDS = 0.01
"""Least seconds of a request that is shared out. To send one and its answer takes 1 to 3 ms (100
taxa, two ranks of one host)."""


class _Answered(NamedTuple):
    """A rank's answer to its share of a request."""

    answers: Answers
    lengths: Sequence[NDArray[Any]]
    """Branch lengths of the trees, which a request may change."""
    seconds: float
    """Seconds that the answer took."""


class AmongRanks:
    """Answers the requests of a search."""

    def __init__(
        self, likelihood: SearchLikelihood, ranks: Ranks, helping: Callable[[], SearchLikelihood]
    ) -> None:
        """``helping``: sent to every other rank, and called there for the same likelihood.

        Raises: MltreeError: what it raises there, with the rank's name.
        """
        self._likelihood, self._ranks = likelihood, ranks
        self._seconds: dict[type[Request], float] = {}
        """Seconds that one node of one tree took last, by type of request."""
        ranks.everywhere(partial(_helper, helping))

    def __call__(self, request: Request) -> Answers:
        """Answer a request by all ranks together, or by the first alone if that takes no longer.

        Raises: MltreeError: another rank has died, or cannot go on.
        """
        if isinstance(request, Stepwise):
            return perform(self._likelihood, request.steps(), self)
        if request.is_quick:
            return request.answer(self._likelihood)
        shares = self._shares(request)
        answered = self._ranks.gather(shares, partial(_answered, self._likelihood))
        for share, part in zip(shares, answered, strict=True):
            for tree, lengths in zip(share.trees, part.lengths, strict=True):
                tree.lengths[:] = lengths
        seconds = sum(part.seconds for part in answered)
        self._seconds[type(request)] = seconds / _nodes(request)
        return request.whole([part.answers for part in answered])

    def _shares(self, request: Request) -> Sequence[Request]:
        expected = self._seconds.get(type(request), 0.0) * _nodes(request)
        return request.shares(self._ranks.size if expected > LEAST_SECONDS else 1)


def _nodes(request: Request) -> int:
    return sum(tree.n_tips for tree in request.trees)


def _helper(helping: Callable[[], SearchLikelihood]) -> Callable[[Request], _Answered]:
    """Return the function that another rank than the first answers with."""
    return partial(_answered, helping())


def _answered(likelihood: SearchLikelihood, request: Request) -> _Answered:
    began = time.perf_counter()
    answers = request.answer(likelihood)
    seconds = time.perf_counter() - began
    return _Answered(answers, [tree.lengths for tree in request.trees], seconds)
