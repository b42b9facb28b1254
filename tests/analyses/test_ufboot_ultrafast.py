"""The ultrafast bootstrap as a whole: against the resampled lnL of every topology there is."""

from __future__ import annotations

from itertools import compress
from pathlib import Path

import numpy as np
import pytest

from mltree.analyses.simulate import letters, sites
from mltree.analyses.ufboot import NAME, QUIET, Met, ultrafast
from mltree.data.alphabet import DNA
from mltree.fit.settings import SearchSettings, preset
from mltree.likelihood.interchanges import neighbours
from mltree.likelihood.site_rows import rows_of_trees
from mltree.models.grammar import parse_model
from mltree.program.cases import Case
from mltree.runs.problem import load_problem
from mltree.runs.trees import TreeSearch, prepare_search
from mltree.supports.resampling import Resampling
from mltree.system.events import TreesOffered
from mltree.tree.moves import nni
from mltree.tree.newick import write_newick
from mltree.tree.splits import SplitSums, splits
from mltree.tree.topology import Tree, random_topology
from mltree.treesearch.search import SearchOutcome

DATASETS = Path(__file__).parents[2] / "datasets"
MODEL = "HKY{1/8}+FC+G4{0.4}"
ASCERTAINED = {"+ASC_LEWIS": 60, "+ASC_STAM{40/20/10/30}": 60}
"""Corrections, and how many sites that vary they are tried with."""
REPLICATES, FEWER = 1000, 300
TOPOLOGIES = 105
"""Of six taxa."""


@pytest.fixture(scope="module", params=["", *ASCERTAINED])
def searched(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[TreeSearch, SearchOutcome]:
    """Six primates by few sites, which leave much open."""
    lines = (DATASETS / "primates.phy").read_text().splitlines()[1:]
    named = [line.split() for line in lines if line.strip()][5:11]
    columns = list(zip(*(row for _, row in named), strict=True))
    if request.param:
        columns = [column for column in columns if len(set("ACGT").intersection(column)) > 1]
    columns = columns[: ASCERTAINED.get(request.param, 140)]
    rows = ["".join(row) for row in zip(*columns, strict=True)]
    path = tmp_path_factory.mktemp("data") / "six.phy"
    text = "".join(f"{name} {row}\n" for (name, _), row in zip(named, rows, strict=True))
    path.write_text(f"6 {len(columns)}\n{text}")
    problem = load_problem(str(path), MODEL + request.param, lambda _: None)
    ready = prepare_search(problem, preset("fast"))
    found = ready.run().search
    assert found is not None
    return ready, found


def all_topologies(tree: Tree) -> list[Tree]:
    """By interchanges, from one to the next."""
    seen, found = {SplitSums(tree).topology}, [tree]
    for one in found:
        others = []
        for edge in one.inner_edges.tolist():
            for variant in (0, 1):
                other = one.copy()
                nni(other, edge, variant)
                others.append(other)
        keys = SplitSums(one).interchanges().tolist()
        found += compress(others, [key not in seen for key in keys])
        seen.update(keys)
    return found


def test_replicates_hold_the_best_of_all_topologies(
    searched: tuple[TreeSearch, SearchOutcome],
) -> None:
    ready, found = searched
    likelihood, case = ready.engines.likelihood, Case(found.model.arrays())
    weights = Resampling.of(ready.distinct.groups, 1, NAME).below_data(REPLICATES)
    trees = [tree.copy() for tree in all_topologies(found.tree)]
    assert len(trees) == TOPOLOGIES
    likelihood.smooth(trees, [case] * len(trees), 1e-3)
    sites = rows_of_trees(likelihood, trees, [case] * len(trees), weights[0]).sites()
    resampled = sites @ weights[1:].T
    number = {SplitSums(tree).topology: n for n, tree in enumerate(trees)}
    outcome = ultrafast(ready, found, REPLICATES, seed=1)
    assert outcome.converged
    held = np.array([number[SplitSums(tree).topology] for tree in outcome.trees])
    lacks = resampled.max(axis=0) - resampled[held, np.arange(REPLICATES)]
    assert np.unique(held).size > 5
    assert np.quantile(lacks, 0.9) < 1.0
    assert np.median(lacks) < 0.1
    again = ultrafast(ready, found, REPLICATES, seed=1)
    for one, other in zip(outcome.trees, again.trees, strict=True):
        assert SplitSums(one).topology == SplitSums(other).topology
        np.testing.assert_array_equal(one.lengths, other.lengths)


def test_weights_that_come_a_few_at_a_time_change_no_bit(
    searched: tuple[TreeSearch, SearchOutcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    ready, found = searched
    expected = ultrafast(ready, found, FEWER, seed=2)
    monkeypatch.setattr("mltree.analyses.ufboot.keeps_drawn", lambda *_: False)
    monkeypatch.setattr("mltree.likelihood.site_rows.RESAMPLED_BYTES", 8 * 140 * 130)
    outcome = ultrafast(ready, found, FEWER, seed=2)
    newicks = [
        [write_newick(tree, ready.problem.taxa) for tree in one.trees]
        for one in (expected, outcome)
    ]
    assert newicks[0] == newicks[1]


def test_it_ends_early_where_supports_stay(tmp_path: Path) -> None:
    """Long data of a tree whose branches are clear; their first sites are not."""
    rng = np.random.default_rng(3)
    tree = random_topology(7, rng)
    tree.lengths[:] = 0.1
    rows = letters(sites(tree, parse_model("JC", DNA).arrays(), 6_000, rng), DNA)
    told = []
    for count in (6_000, 60):
        path = tmp_path / f"{count}.phy"
        text = "".join(f"t{n} {row[:count].tobytes().decode()}\n" for n, row in enumerate(rows))
        path.write_text(f"7 {count}\n{text}")
        ready = prepare_search(load_problem(str(path), "JC", lambda _: None), preset("fast"))
        found = ready.run().search
        assert found is not None
        events: list[object] = []
        outcome = ultrafast(ready, found, REPLICATES, seed=1, emit=events.append)
        assert outcome.converged
        told.append(sum(isinstance(event, TreesOffered) for event in events))
    assert told[0] == 1 + QUIET < told[1]


def test_quartets_are_met_again_around_other_trees() -> None:
    """The five lengths go to the same branches, whatever stands first there; new ones stay."""
    rng = np.random.default_rng(3)
    tree = random_topology(20, rng)
    tree.lengths = rng.uniform(0.1, 1.0, tree.n_edges)
    other = tree.copy()
    nni(other, int(tree.inner_edges[4]), 1)
    met, sums = Met(), SplitSums(tree)
    best = neighbours(tree, sums.edges)
    keys, order = sums.quartets(best.halves)
    above = rng.uniform(-9.0, 0.0, len(keys))
    above[:4] = np.nan
    met.learn(keys, order, best.lengths, above)
    around = SplitSums(other)
    wanted = neighbours(other, around.edges)
    again = neighbours(other, around.edges)
    again.lengths[:] = 7.0
    keys_again, order_again = around.quartets(again.halves)
    found = met.recall(keys_again, order_again, again.lengths)
    of_key = dict(zip(keys.tolist(), above.tolist(), strict=True))
    np.testing.assert_array_equal(found, [of_key.get(key, np.nan) for key in keys_again.tolist()])
    is_met = np.isfinite(found)
    assert len(keys) / 2 < is_met.sum() < len(keys) - 4
    np.testing.assert_array_equal(again.lengths[is_met], wanted.lengths[is_met])
    assert (again.lengths[~is_met] == 7.0).all()


def test_climbing_replicates_get_better_under_their_weights(
    searched: tuple[TreeSearch, SearchOutcome],
) -> None:
    ready, found = searched
    likelihood = ready.engines.likelihood
    weights = Resampling.of(ready.distinct.groups, 1, NAME).below_data(FEWER)
    plain = ultrafast(ready, found, FEWER, seed=1).trees
    climbed = ultrafast(ready, found, FEWER, 1, ready.settings.nni_only()).trees
    some = range(0, FEWER, 10)
    likelihood.load_weights(weights)
    cases = [Case(found.model.arrays(), 1 + n) for n in some]
    lnls = [
        likelihood.smooth([every[n].copy() for n in some], cases, 0.01)
        for every in (plain, climbed)
    ]
    likelihood.load_weights(weights[:1])
    gains = lnls[1] - lnls[0]
    assert gains.min() > -0.1
    assert gains.max() > 0.1


@pytest.mark.parametrize("settings", [None, preset("fast").nni_only()])
def test_a_branch_of_no_length_has_what_chance_gives(
    tmp_path: Path, settings: SearchSettings | None
) -> None:
    """Most trees that are offered show one order of its neighbours: that of the tree at hand."""
    rng = np.random.default_rng(4)
    tree, model = random_topology(24, rng), parse_model("JC", DNA)
    tree.lengths[:] = rng.exponential(0.03, tree.n_edges)
    tree.lengths[rng.choice(tree.inner_edges, 8, replace=False)] = 0.0
    rows = letters(sites(tree, model.arrays(), 200, rng), DNA)
    taxa = [f"t{n}" for n in range(24)]
    text = "".join(
        f"{name} {row.tobytes().decode()}\n" for name, row in zip(taxa, rows, strict=True)
    )
    path = tmp_path / "polytomies.phy"
    path.write_text(f"24 200\n{text}")
    ready = prepare_search(load_problem(str(path), "JC", lambda _: None), preset("fast"))
    found = ready.run().search
    assert found is not None
    inner = found.tree.inner_edges[found.tree.lengths[found.tree.inner_edges] <= 0.1 / 200]
    free = [row.tobytes() for row in splits(found.tree)[inner]]
    assert len(free) > 2
    outcome = ultrafast(ready, found, REPLICATES if settings is None else 60, 1, settings)
    every = [{row.tobytes() for row in splits(one)} for one in outcome.trees]
    shares = [np.mean([row in own for own in every]) for row in free]
    assert max(shares) < 0.5
