"""Dated trees of samples against what each tree says by itself, and CCD0 against all its trees."""

import math
from collections.abc import Iterator
from itertools import combinations

import numpy as np
import pytest

from mltree.dating.time_trees import TimeTree
from mltree.sampling.beast_files import TREES_END, log_head, log_line, tree_line, trees_head
from mltree.sampling.diagnostics import hpd
from mltree.sampling.mrbayes_files import files_of, read_runs
from mltree.sampling.sampled_trees import bits_of_tree, population
from mltree.sampling.summaries import HEIGHTS, Posterior
from mltree.supports.consensus import members
from mltree.tree.clades import read_written

NAMES = ("a", "it's", "c d", "e|2001", "(f)", "g", "h,1", "ä", "j", "k")


def grown(rng: np.random.Generator, base: np.ndarray, n_tips: int) -> TimeTree:
    """A random tree that joins neighbours, so that clades repeat, with tips of given heights."""
    heights, parents = list(base[:n_tips]), [-1] * (2 * n_tips - 1)
    left = list(range(n_tips))
    while len(left) > 1:
        at = int(rng.integers(min(len(left) - 1, 3)))
        pair = left.pop(at), left.pop(at)
        node = len(heights)
        parents[pair[0]] = parents[pair[1]] = node
        heights.append(max(heights[one] for one in pair) + rng.exponential())
        left.insert(at, node)
    rates = rng.lognormal(-5.0, 0.7, len(heights))
    return TimeTree(NAMES[:n_tips], np.array(parents), np.array(heights), rates)


@pytest.fixture
def drawn(case, tmp_path) -> tuple[list[TimeTree], Posterior]:
    """The trees of two runs, and their posterior as it is read from BEAST's files."""
    rng = np.random.default_rng(case)
    n_tips, n = 3 + case % 7, 12 + case
    base = np.zeros(10) if case % 3 == 0 else np.append(rng.random(9), 0.0)[::-1]
    trees = [grown(rng, base, n_tips) for _ in range(2 * n)]
    for run in (0, 1):
        own = trees[run * n : (run + 1) * n]
        lines = [tree_line(number, tree) for number, tree in enumerate(own)]
        text = trees_head(NAMES[:n_tips]) + "".join(lines) + TREES_END
        (tmp_path / f"x.{run}.trees").write_text(text, encoding="utf-8")
        table = [log_line(number, [float(number), tree.heights.max()])
                 for number, tree in enumerate(own)]  # fmt: skip
        (tmp_path / f"x.{run}.log").write_text(log_head(["p", "rootHeight"]) + "".join(table))
    runs, notices = read_runs(files_of(str(tmp_path / "x")))
    assert not notices
    return trees, Posterior.of(runs, 0.0)


def clades(tree: TimeTree) -> dict[int, int]:
    """The node of each clade."""
    return {bits: node for node, bits in enumerate(tree.bits)}


def nodes_of(posterior: Posterior, tree) -> Iterator[tuple[int, int]]:
    """The tips and clades of a summary tree as bit sets, and their places."""
    number = {name: tip for tip, name in enumerate(NAMES)}
    for place, name in enumerate(tree.taxa):
        yield 1 << number[name], place
    for place, row in enumerate(members(bits_of_tree(tree.tree), len(tree.tree.taxa))):
        names = [name for name, is_in in zip(tree.tree.taxa, row, strict=True) if is_in]
        yield sum(1 << number[name] for name in names), len(tree.taxa) + place


@pytest.mark.cases(8, 200)
def test_nodes_have_heights_and_rates_of_their_clades(case, drawn):
    trees, posterior = drawn
    assert posterior.is_dated
    known = [clades(tree) for tree in trees]
    for tree in (posterior.mcc, posterior.consensus()):
        for bits, place in nodes_of(posterior, tree):
            nodes = [(one, of[bits]) for one, of in zip(trees, known, strict=True) if bits in of]
            heights = np.array([one.heights[node] for one, node in nodes])
            rates = np.array([one.rates[node] for one, node in nodes])
            assert tree.heights[place].mean == pytest.approx(heights.mean(), abs=1e-9)
            assert tree.heights[place].median == pytest.approx(np.median(heights), abs=1e-9)
            assert tree.heights[place].high == pytest.approx(hpd(heights)[1], abs=1e-9)
            assert tree.rates[place].mean == pytest.approx(rates.mean(), rel=1e-9)
            assert tree.rates[place].low == pytest.approx(hpd(rates)[0], rel=1e-9)


@pytest.mark.cases(8, 200)
def test_heights_of_summary_trees_are_those_asked_for(case, drawn):
    trees, posterior = drawn
    best = trees[posterior.best_tree]
    of_best = clades(best)
    for kind in HEIGHTS:
        tree = posterior.mcc_with(kind)
        assert tree.drawn is not None
        for bits, place in nodes_of(posterior, tree):
            tips = [tip for tip in range(len(tree.taxa)) if bits >> tip & 1]
            expected = {
                "median": tree.heights[place].median,
                "mean": tree.heights[place].mean,
                "keep": best.heights[of_best[bits]],
                "common": np.mean([one.heights[one.mrca(tips)] for one in trees]),
            }[kind]
            assert tree.drawn[place] == pytest.approx(expected, abs=1e-9)
        written, places = tree.written
        np.testing.assert_allclose(
            written.heights - written.heights[0], tree.drawn[-1] - tree.drawn[places], atol=1e-9
        )
        again = read_written(tree.labelled_newick())[0]
        assert sorted(again.labels) == sorted(written.labels)


@pytest.mark.cases(8, 200)
def test_the_best_tree_of_ccd0_is_that_of_all_trees_of_sampled_clades(case, drawn):
    trees, posterior = drawn
    share: dict[int, float] = {}
    for tree in trees:
        for bits in tree.bits:
            share[bits] = share.get(bits, 0.0) + 1 / len(trees)

    def best(bits: int) -> float:
        """Log of the largest product of frequencies, over all ways to divide a clade."""
        if bits & (bits - 1) == 0:
            return 0.0
        below = [one for one in share if one & bits == one and one != bits]
        pairs = [(a, b) for a, b in combinations(below, 2) if a | b == bits and not a & b]
        if bits not in found:
            found[bits] = math.log(share[bits]) + max(best(a) + best(b) for a, b in pairs)
        return found[bits]

    found: dict[int, float] = {}
    splits = posterior.ccd0_splits
    assert splits is not None
    product = float(np.log(posterior.probabilities[splits]).sum())
    assert product == pytest.approx(best(trees[0].bits[trees[0].root]), abs=1e-9)
    assert product >= posterior.credibilities.max() - 1e-9
    assert splits.size == len(trees[0].taxa) - 2


@pytest.mark.cases(6, 100)
def test_lineages_are_branches_that_a_time_cuts(case, drawn):
    trees, posterior = drawn
    course = posterior.courses["lineages"]
    for at in (0, 13, 50, 99):
        time = course.times[at] + 1e-9
        counts = np.array([
            sum(tree.heights[node] <= time < tree.heights[parent]
                for node, parent in enumerate(tree.parents) if parent >= 0)
            + (tree.heights[tree.root] <= time)
            for tree in trees
        ], float)  # fmt: skip
        assert course.median[at] == pytest.approx(np.median(counts), abs=0.51)
        assert (course.low[at], course.high[at]) == hpd(counts) or at == 0


def test_sizes_of_a_grid_a_skyline_and_of_growth():
    rng = np.random.default_rng(1)
    times = np.array([0.0, 0.9, 1.1, 2.5, 9.0])
    logs = rng.normal(size=(50, 4))
    columns = {f"skygrid.logPopSize{cell}": logs[:, cell - 1] for cell in range(1, 5)}
    found = population({**columns, "skygrid.cutOff": np.full(50, 3.0)}, times, None)
    np.testing.assert_allclose(found.median, np.median(np.exp(logs[:, [0, 0, 1, 2, 3]]), axis=0))
    events = np.sort(rng.random((50, 5)) * 3, axis=1)
    sizes = rng.random((50, 2))
    columns = {"bPopSizes.1": sizes[:, 0], "bPopSizes.2": sizes[:, 1],
               "bGroupSizes.1": np.full(50, 2.0), "bGroupSizes.2": np.full(50, 3.0)}  # fmt: skip
    found = population(columns, times, events)
    expected = [[sizes[n, int(time > events[n, 1])] for time in times] for n in range(50)]
    np.testing.assert_allclose(found.median, np.median(expected, axis=0))
    assert population(columns, times, None) is None
    columns = {"ePopSize": np.full(5, 7.0), "growthRate.t": np.full(5, 0.5), "kappa": np.ones(5)}
    found = population(columns, times, None)
    np.testing.assert_allclose(found.median, 7 * np.exp(-0.5 * times))
    assert population({"kappa": np.ones(5)}, times, None) is None
