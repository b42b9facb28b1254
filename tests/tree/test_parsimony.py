from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mltree.data.alphabet import DNA, PROTEIN, Alphabet
from mltree.data.patterns import Patterns
from mltree.system.process import VARIABLE
from mltree.tree import parsimony
from mltree.tree import parsimony as parsimony_spr
from mltree.tree.fitch import InformativeSites, PackedSites, pack_sites
from mltree.tree.moves import nni
from mltree.tree.parsimony import (
    MOST_CHARACTERS,
    NEAR_CUT,
    StepwiseAddition,
    improve,
    parsimony_score,
    parsimony_trees,
    parsimony_trees_of_each,
    reweighted_trees,
    stepwise_additions,
)
from mltree.tree.splits import robinson_foulds, topology_key
from mltree.tree.topology import Tree, random_topology, siblings, tree_from_edges

SEEDS = st.integers(0, 2**32 - 1)
ALPHABETS = pytest.mark.parametrize("alphabet", [DNA, PROTEIN], ids=["DNA", "AA"])


def patterns_of(codes: np.ndarray, weights: np.ndarray, alphabet: Alphabet) -> Patterns:
    return Patterns(
        taxa=tuple(f"t{tip:04d}" for tip in range(len(codes))),
        codes=codes.astype(np.uint8),
        weights=weights.astype(np.float64),
        site_pattern=np.repeat(np.arange(len(weights)), weights.astype(int)).astype(np.int32),
        alphabet=alphabet,
    )


def random_patterns(n_tips: int, rng: np.random.Generator, alphabet: Alphabet = DNA) -> Patterns:
    """Few states, many states, ambiguities and gaps; weights from 0 to 9."""
    n_patterns = int(rng.integers(1, 150))
    first = 1 if alphabet is DNA else 0
    top = rng.integers(first + 1, alphabet.n_codes + 1, size=n_patterns)
    codes = rng.integers(first, top, size=(n_tips, n_patterns))
    codes[rng.random(codes.shape) < 0.1] = alphabet.gap_code
    return patterns_of(codes, rng.integers(0, 10, size=n_patterns), alphabet)


def evolved(n_tips: int, n_sites: int, seed: int) -> tuple[Tree, Patterns]:
    """A random tree and nucleotides evolved on it, a tenth of them changed on every branch."""
    rng = np.random.default_rng(seed)
    tree = random_topology(n_tips, rng)
    states = np.zeros((n_tips, n_sites), dtype=np.int64)

    def child(parent: np.ndarray) -> np.ndarray:
        changed = rng.random(n_sites) < 0.1
        return np.where(changed, (parent + rng.integers(1, 4, size=n_sites)) % 4, parent)

    states[0] = rng.integers(4, size=n_sites)
    stack = [(int(tree.twin[0]), child(states[0]))]
    while stack:
        half, sequence = stack.pop()
        if half < 3 * n_tips:
            states[half // 3] = sequence
        else:
            stack += [(int(tree.twin[s]), child(sequence)) for s in siblings(half)]
    return tree, patterns_of(1 << states, np.ones(n_sites), DNA)


def slow_score(tree: Tree, patterns: Patterns) -> float:
    """Fitch's two rules, one site and one node at a time."""
    masks = [int(mask) for mask in patterns.alphabet.state_masks]

    def visit(half: int, site: int) -> tuple[int, int]:
        if half < 3 * tree.n_tips:
            return masks[patterns.codes[half // 3, site]], 0
        (one, first), (two, second) = (visit(int(tree.twin[s]), site) for s in siblings(half))
        return (one & two or one | two), first + second + (not one & two)

    total = 0.0
    for site, weight in enumerate(patterns.weights):
        states, changes = visit(int(tree.twin[0]), site)
        changes += not states & masks[patterns.codes[0, site]]
        total += weight * changes
    return total


@ALPHABETS
@given(st.integers(3, 14), SEEDS)
@settings(max_examples=40)
def test_score_equals_fitch_site_by_site(alphabet: Alphabet, n_tips: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    patterns = random_patterns(n_tips, rng, alphabet)
    tree = random_topology(n_tips, rng)
    assert parsimony_score(tree, patterns) == slow_score(tree, patterns)


def test_a_hand_made_case() -> None:
    # Site by site on ((0,1),(2,3)): A A C C = 1, A C A C = 2, A C G T = 3, A A A - = 0.
    codes = np.array([[1, 1, 1, 1], [1, 2, 2, 1], [2, 1, 4, 1], [2, 2, 8, 15]])
    patterns = patterns_of(codes, np.array([3, 2, 1, 7]), DNA)
    tree = tree_from_edges([(0, 4), (1, 4), (2, 5), (3, 5), (4, 5)], 0.1, 4)
    assert parsimony_score(tree, patterns) == 3 * 1 + 2 * 2 + 1 * 3


def test_packing_drops_what_cannot_matter() -> None:
    codes = np.array([[1, 1, 1, 1], [1, 1, 2, 2], [1, 2, 4, 1], [1, 4, 8, 2], [2, 15, 8, 4]])
    patterns = patterns_of(codes, np.array([5, 4, 3, 1]), DNA)
    sites = pack_sites(patterns)
    # Only the last is informative: two shared states and a lone one.
    assert sites.widths == (1, 1)
    assert sites.word_weights.tolist() == [1.0]
    assert sites.constant == 5 * 1 + 4 * 2 + 3 * 3 + 1 * 1


def test_weights_are_split_into_their_bits() -> None:
    codes = np.array([[1], [1], [2], [2]])
    sites = pack_sites(patterns_of(codes, np.array([13]), DNA))
    assert sorted(sites.word_weights.tolist()) == [1.0, 4.0, 8.0]


@pytest.mark.parametrize("alphabet", [DNA, PROTEIN])
@pytest.mark.parametrize("threads", ["1", "3"])
def test_packing_by_blocks_gives_the_same_bits(
    alphabet: Alphabet, threads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    patterns = random_patterns(9, np.random.default_rng(8), alphabet)
    rows = np.random.default_rng(9).integers(0, 5, (4, patterns.n_patterns))
    whole = pack_sites(patterns), InformativeSites.of(patterns).reweighted(rows)
    monkeypatch.setattr("mltree.tree.fitch.BLOCK", 9 * patterns.n_patterns // 7)
    monkeypatch.setenv(VARIABLE, threads)
    blocks = pack_sites(patterns), InformativeSites.of(patterns).reweighted(rows)
    for one, other in zip(whole, blocks, strict=True):
        np.testing.assert_array_equal(one.tips, other.tips)
        np.testing.assert_array_equal(one.constant, other.constant)
        assert one.widths == other.widths


def test_fractional_weights_are_refused() -> None:
    patterns = random_patterns(5, np.random.default_rng(1))
    patterns.weights[0] = 0.5
    with pytest.raises(ValueError, match="whole weights"):
        pack_sites(patterns)


@ALPHABETS
@given(st.integers(4, 12), SEEDS)
@settings(max_examples=20)
def test_insertion_costs_are_the_changes_that_a_tip_adds(
    alphabet: Alphabet, n_tips: int, seed: int
) -> None:
    """The sets kept up step by step give the cost of the next tip on every edge."""
    rng = np.random.default_rng(seed)
    patterns = random_patterns(n_tips, rng, alphabet)
    growth = StepwiseAddition(pack_sites(patterns), 2)
    tips = np.stack([np.arange(n_tips), rng.permutation(n_tips)], axis=1)
    growth.star(tips[:3])
    for step in range(3, n_tips):
        edges = rng.integers(growth.n_edges, size=2)
        before = _scores_of_parts(growth, tips[:step], patterns)
        predicted = growth.costs(tips[step])[[0, 1], edges]
        growth.insert(tips[step], edges)
        after = _scores_of_parts(growth, tips[: step + 1], patterns)
        # Tips that only have lone states cost one change in `constant`, not in `costs`.
        np.testing.assert_array_equal(after - before, predicted)
    for tree in growth.trees():
        tree.validate()


def _scores_of_parts(growth: StepwiseAddition, tips: np.ndarray, patterns: Patterns) -> np.ndarray:
    """The scores of both trees so far on the words of all sites, by trees of their own."""
    scores = []
    sites, n_tips = growth.sites, len(tips)
    for tree, own in zip(growth.trees(), tips.T, strict=True):
        name = {int(tip): n for n, tip in enumerate(own)}
        name |= {growth.n_tips + n: n_tips + n for n in range(n_tips - 2)}
        ends = [
            (name[half // 3], name[int(tree.twin[half]) // 3])
            for half in range(tree.twin.size)
            if tree.twin[half] > half
        ]
        packed = PackedSites(sites.tips[:, own], sites.widths, sites.word_weights, 0.0)
        scores.append(parsimony_score(tree_from_edges(ends, 0.1, n_tips), packed))
    return np.array(scores)


@ALPHABETS
@pytest.mark.cases(6, 200)
def test_edges_out_of_the_question_cost_more_than_the_least(alphabet: Alphabet, case: int) -> None:
    """Counting in steps finds the same least edges, at their costs; others' bounds are no more."""
    rng = np.random.default_rng(case)
    n_tips = int(rng.integers(10, 60))
    if case % 2:
        patterns = random_patterns(n_tips, rng, alphabet)
    else:
        _, patterns = evolved(n_tips, int(rng.integers(50, 900)), seed=case)
    growth = StepwiseAddition(pack_sites(patterns), 3)
    tips = np.stack([rng.permutation(n_tips) for _ in range(3)], axis=1)
    growth.star(tips[:3])
    n_bounds = 0
    for tip in tips[3:]:
        costs = growth.costs(tip)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(parsimony, "LEAST_WORDS", 0)
            patched.setattr(parsimony, "FEW_LEFT", 2)
            bounds = growth.costs_or_bounds(tip)
        least = costs.min(axis=1, keepdims=True)
        assert np.all(bounds <= costs)
        assert np.all((bounds == costs) | (bounds > least))
        n_bounds += np.count_nonzero(bounds < costs)
        growth.insert(tip, costs.argmin(axis=1))
    assert case % 2 or n_bounds or patterns.n_sites < 100


def test_trees_grown_side_by_side_are_starts_of_their_own() -> None:
    patterns = random_patterns(12, np.random.default_rng(3))
    trees = stepwise_additions(patterns, [np.random.default_rng(1)] * 4)
    assert len({topology_key(tree) for tree in trees}) == 4
    for tree in trees:
        tree.validate()


@given(st.integers(5, 40), SEEDS)
@settings(max_examples=10)
def test_starts_are_improved_unless_that_leads_where_another_already_is(
    n_tips: int, seed: int
) -> None:
    patterns = random_patterns(n_tips, np.random.default_rng(seed))
    added = stepwise_additions(patterns, [np.random.default_rng(seed)] * 4)
    starts = parsimony_trees(patterns, 4, np.random.default_rng(seed))
    ends = []
    for before, start in zip(added, starts, strict=True):
        end = before.copy()
        improve([end], patterns)
        ends.append(topology_key(end))
        wanted = before if ends[-1] in ends[:-1] else end
        assert topology_key(start) == topology_key(wanted)


@given(st.lists(st.tuples(st.integers(5, 9), st.integers(1, 3)), min_size=1, max_size=9), SEEDS)
@settings(max_examples=20)
@pytest.mark.parametrize("most", [1, MOST_CHARACTERS])
def test_alignments_side_by_side_have_the_starts_of_each(
    most: int, every: list[tuple[int, int]], seed: int
) -> None:
    """Of any sizes, as many of them at a time as may be, and the generators are where they were."""
    rng = np.random.default_rng(seed)
    alignments = [
        [random_patterns(n_tips, rng, (DNA, PROTEIN)[n % 2])] for n, (n_tips, _) in enumerate(every)
    ]
    counts = [count for _, count in every]
    rngs, others = ([np.random.default_rng(n) for n in range(len(every))] for _ in range(2))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(parsimony_spr, "MOST_CHARACTERS", most)
        found = parsimony_trees_of_each(alignments, counts, rngs)
    for (patterns,), own, count, used, other in zip(
        alignments, found, counts, rngs, others, strict=True
    ):
        alone = parsimony_trees(patterns, count, other)
        assert [topology_key(tree) for tree in own] == [topology_key(tree) for tree in alone]
        assert used.bit_generator.state == other.bit_generator.state


def stepwise_addition(patterns: Patterns | PackedSites, rng: np.random.Generator) -> Tree:
    (tree,) = stepwise_additions(patterns, [rng])
    return tree


def parsimony_tree(patterns: Patterns | PackedSites, rng: np.random.Generator) -> Tree:
    (tree,) = parsimony_trees(patterns, 1, rng)
    return tree


@pytest.mark.parametrize("build", [stepwise_addition, parsimony_tree])
def test_trees_are_valid_and_the_seed_decides(
    build: Callable[[Patterns, np.random.Generator], Tree],
) -> None:
    _, patterns = evolved(30, 60, seed=1)
    trees = [build(patterns, np.random.default_rng(seed)) for seed in (1, 1, 2, 3, 4)]
    for tree in trees:
        tree.validate()
        assert set(tree.lengths) == {0.05}
    assert np.array_equal(trees[0].twin, trees[1].twin)
    assert len({topology_key(tree) for tree in trees}) > 1


def test_packed_once_gives_the_same_tree() -> None:
    _, patterns = evolved(20, 50, seed=2)
    one = parsimony_tree(patterns, np.random.default_rng(1))
    other = parsimony_tree(pack_sites(patterns), np.random.default_rng(1))
    assert np.array_equal(one.twin, other.twin)


@given(st.integers(3, 25), SEEDS)
@settings(max_examples=25)
def test_improve_never_ends_worse_and_returns_the_score(n_tips: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    patterns = random_patterns(n_tips, rng)
    tree = random_topology(n_tips, rng)
    before = parsimony_score(tree, patterns)
    (after,) = improve([tree], patterns)
    tree.validate()
    assert after == parsimony_score(tree, patterns) <= before


@pytest.mark.parametrize("seed", range(6))
def test_improve_ends_where_no_interchange_saves_a_change(seed: int) -> None:
    _, patterns = evolved(16, 60, seed)
    tree = random_topology(16, np.random.default_rng(seed))
    (end,) = improve([tree], patterns)
    for edge in tree.inner_edges.tolist():
        for variant in (0, 1):
            other = tree.copy()
            nni(other, edge, variant)
            assert parsimony_score(other, patterns) >= end


def test_six_tips_end_at_the_best_of_all_topologies() -> None:
    rng = np.random.default_rng(7)
    every = {topology_key(tree): tree for tree in (random_topology(6, rng) for _ in range(900))}
    assert len(every) == 105
    for seed in range(5):
        sites = pack_sites(evolved(6, 80, seed)[1])
        best = min(parsimony_score(tree, sites) for tree in every.values())
        assert parsimony_score(parsimony_tree(sites, rng), sites) == best


def test_much_data_gives_the_true_tree_back() -> None:
    truth, patterns = evolved(60, 3000, seed=3)
    tree = parsimony_tree(patterns, np.random.default_rng(0))
    assert robinson_foulds(tree, truth) <= 4
    assert parsimony_score(tree, patterns) <= parsimony_score(truth, patterns)


def test_spr_does_better_than_stepwise_addition() -> None:
    _, patterns = evolved(120, 200, seed=4)
    rng = np.random.default_rng(0)
    added = stepwise_addition(patterns, rng)
    before = parsimony_score(added, patterns)
    assert improve([added], patterns) < before


@pytest.mark.parametrize("codes", [np.full((5, 3), 1), np.full((5, 3), 15)])
def test_data_without_information(codes: np.ndarray) -> None:
    patterns = patterns_of(codes, np.ones(3), DNA)
    tree = parsimony_tree(patterns, np.random.default_rng(1))
    tree.validate()
    assert parsimony_score(tree, patterns) == 0


def test_three_tips() -> None:
    patterns = patterns_of(np.array([[1, 1], [2, 1], [4, 2]]), np.ones(2), DNA)
    tree = parsimony_tree(patterns, np.random.default_rng(1))
    assert parsimony_score(tree, patterns) == 3


@ALPHABETS
@given(st.integers(4, 14), SEEDS)
@settings(max_examples=10)
def test_trees_under_rows_of_weights_are_those_of_the_resampled_alignments(
    alphabet: Alphabet, n_tips: int, seed: int
) -> None:
    """Whatever stands beside them: by themselves, the patterns have those weights."""
    rng = np.random.default_rng(seed)
    patterns = random_patterns(n_tips, rng, alphabet)
    whole = np.maximum(patterns.weights, 1)
    patterns = replace(patterns, weights=whole)
    rows = np.stack([rng.multinomial(int(whole.sum()), whole / whole.sum()) for _ in range(3)])
    sites = InformativeSites.of(patterns)
    seeds = rng.integers(1000, size=3).tolist()
    for improved in (True, False):
        rngs = [np.random.default_rng(own) for own in seeds]
        together = reweighted_trees(sites, rows, rngs, improved=improved)
        for row, own, tree in zip(rows, seeds, together, strict=True):
            drawn = pack_sites(replace(patterns, weights=row.astype(np.float64)))
            alone = stepwise_addition(drawn, np.random.default_rng(own))
            if improved:
                improve([alone], drawn, cuts=(NEAR_CUT,))
            np.testing.assert_array_equal(tree.twin, alone.twin)
            np.testing.assert_array_equal(tree.edge, alone.edge)


def test_trees_improved_side_by_side_are_those_improved_alone() -> None:
    _, patterns = evolved(40, 200, seed=5)
    rng = np.random.default_rng(2)
    trees = [random_topology(40, rng) for _ in range(5)]
    alone = [tree.copy() for tree in trees]
    scores = improve(trees, patterns)
    assert [improve([tree], patterns)[0] for tree in alone] == scores.tolist()
    for one, other in zip(trees, alone, strict=True):
        np.testing.assert_array_equal(one.twin, other.twin)
