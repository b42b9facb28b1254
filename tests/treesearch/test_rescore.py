"""The branch that a subtree leaves behind, when its moves are scored jointly."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mltree.tree.topology import siblings
from mltree.treesearch.spr import Neighbourhood, rescore

if TYPE_CHECKING:
    from simulated import Simulated


def test_every_move_has_the_best_join_branch_of_its_own_prune(case: Simulated) -> None:
    """Not the sum of its two parts; and no prune without a selected target is asked for."""
    found = Neighbourhood(case.tree)
    new = found.extend(25)
    selected = np.arange(new.start, new.stop, 7, dtype=np.int32)
    asked: list[int] = []

    class Watched:
        refine = staticmethod(case.likelihood.refine)

        @staticmethod
        def join_lengths(trees, cases, prunes):  # type: ignore[no-untyped-def]
            asked.extend(prunes.tolist())
            return case.likelihood.join_lengths(trees, cases, prunes)

    cases = [case.under]
    (moves,) = rescore(Watched(), cases, found, selected)  # type: ignore[arg-type]
    prunes = np.unique(found.prune[selected])
    assert asked == prunes.tolist()
    best = case.likelihood.join_lengths([case.tree], cases, prunes)
    expected = dict(zip(prunes.tolist(), best.tolist(), strict=True))
    np.testing.assert_allclose(
        moves.lengths[:, 3], [expected[prune] for prune in moves.prune.tolist()], rtol=1e-12
    )
    parts = case.tree.lengths[case.tree.edge[np.stack(siblings(moves.prune))]].sum(axis=0)
    assert (np.abs(moves.lengths[:, 3] - parts) > 1e-3).any()
