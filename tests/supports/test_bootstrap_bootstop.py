from itertools import combinations
from typing import Any

import numpy as np
import pytest

from mltree.supports import bootstrap as module
from mltree.supports.bootstrap import bootstop
from mltree.supports.consensus import SplitTable, split_table
from mltree.tree.clades import read_clades


def table_of(trees: list[Any]) -> SplitTable:
    return split_table(read_clades("".join(tree.text for tree in trees)))


def majority(trees: tuple[Any, ...]) -> dict[Any, int]:
    counts: dict[Any, int] = {}
    for tree in trees:
        for split in tree.splits():
            counts[split] = counts.get(split, 0) + 1
    return counts


def fit(one: Any, other: Any) -> bool:
    return any(not (a & b) for a in one for b in other)


def extended(counts: dict[Any, int], ranks: dict[Any, float]) -> dict[Any, int]:
    taken: dict[Any, int] = {}
    for split in sorted(counts, key=lambda split: (-counts[split], ranks[split])):
        if all(fit(split, other) for other in taken):
            taken[split] = counts[split]
    return taken


@pytest.mark.cases(4, 40)
def test_the_mean_distance_is_that_of_all_halves(case: int, grower: Any) -> None:
    grow = grower(case)
    names = [f"t{k}" for k in range(8)]
    trees = [grow.tree(names, wild=case % 2 > 0, base=names) for _ in range(6)]
    exact, shares = [], []
    for _ in range(20):
        ranks = {s: grow.rng.random() for tree in trees for s in tree.splits()}
        for half in combinations(range(6), 3):
            one = extended(majority(tuple(trees[k] for k in half)), ranks)
            rest = tuple(trees[k] for k in range(6) if k not in half)
            other = extended(majority(rest), ranks)
            exact.append(sum(abs(one.get(s, 0) - other.get(s, 0)) for s in {*one, *other}))
            shares.append(exact[-1] / (3 * (len(one) + len(other))))
    verdict = bootstop(table_of(trees), seed=case, cutoff=0.3, halvings=400)
    error = np.std(exact) * np.sqrt(1 / 400 + 1 / 20)
    assert abs(verdict.wrf - np.mean(exact)) <= 5 * error
    assert verdict.wrf_error == pytest.approx(np.std(exact) / 20, rel=0.3)
    spread = np.std(np.array(shares) <= 0.3) * np.sqrt(1 / 400 + 1 / 20)
    assert abs(verdict.passed / 400 - np.mean(np.array(shares) <= 0.3)) <= 5 * spread + 1e-9


def test_trees_that_are_all_alike_have_converged(grower: Any) -> None:
    tree = grower(0).tree([f"t{k}" for k in range(12)])
    verdict = bootstop(table_of([tree] * 50), seed=1)
    assert (verdict.wrf, verdict.share, verdict.wrf_error) == (0, 0, 0)
    assert verdict.passed == verdict.halvings == 1000
    assert verdict.converged


def test_stars_have_converged_and_random_trees_have_not(grower: Any) -> None:
    star = "(a,b,c,d,e,f);"
    verdict = bootstop(split_table(read_clades(star * 50)), seed=1)
    assert verdict.converged
    assert np.isfinite([verdict.wrf, verdict.share, verdict.wrf_error]).all()
    grow = grower(0)
    names = [f"t{k}" for k in range(30)]
    verdict = bootstop(table_of([grow.tree(names, wild=False) for _ in range(50)]), 1)
    assert not verdict.converged
    assert verdict.passed == 0


def test_a_seed_and_a_number_of_trees_make_the_halves(grower: Any) -> None:
    grow = grower(1)
    names = [f"t{k}" for k in range(15)]
    trees = [grow.tree(names, base=names) for _ in range(20)]
    once, again, other = (bootstop(table_of(trees), seed, halvings=50) for seed in (1, 1, 2))
    assert once == again
    assert once.wrf != other.wrf


def test_what_is_forgotten_is_worked_out_again(
    grower: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    grow = grower(3)
    table = table_of([grow.tree([f"t{k}" for k in range(10)]) for _ in range(10)])
    remembered = bootstop(table, 1, halvings=30)
    monkeypatch.setattr(module, "REMEMBERED", -1)
    assert bootstop(table, 1, halvings=30) == remembered


def test_ninety_nine_of_a_hundred_halvings_have_to_pass(grower: Any) -> None:
    grow = grower(2)
    names = [f"t{k}" for k in range(10)]
    table = table_of([grow.tree(names, base=names) for _ in range(30)])
    cutoffs = np.linspace(0, 1, 60)
    verdicts = [bootstop(table, 1, cutoff, halvings=200) for cutoff in cutoffs]
    passed = [verdict.passed for verdict in verdicts]
    assert passed == sorted(passed)
    assert passed[0] == 0
    assert [v.converged for v in verdicts] == [v.passed >= 198 for v in verdicts]
