import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltree.system.arrays import Int32
from mltree.tree.moves import (
    MOST_AT_ONCE,
    Differences,
    SprLengths,
    apply_sprs,
    compatible,
    is_adjacent,
    is_inside,
    nni,
    random_nnis,
    rewire,
    spr,
)
from mltree.tree.splits import mean_distance, robinson_foulds, same_topology, splits, topology_key
from mltree.tree.topology import Forest, Tree, random_topology, siblings

SEEDS = st.integers(0, 2**32 - 1)
SIZES = st.integers(4, 40)


def start(n_tips: int, seed: int) -> tuple[Tree, np.random.Generator]:
    rng = np.random.default_rng(seed)
    tree = random_topology(n_tips, rng)
    tree.lengths[:] = rng.random(tree.n_edges)
    return tree, rng


def identical(one: Tree, other: Tree) -> bool:
    return all(
        np.array_equal(getattr(one, name), getattr(other, name))
        for name in ("twin", "edge", "lengths")
    )


def edges_behind(tree: Tree, half: int) -> set[int]:
    """Ids of the edges inside the subtree behind a half-edge, its own edge left out."""
    if half < 3 * tree.n_tips:
        return set()
    return {
        edge
        for s in siblings(half)
        for edge in {int(tree.edge[s])} | edges_behind(tree, int(tree.twin[s]))
    }


def random_prune(tree: Tree, rng: np.random.Generator) -> int:
    return int(rng.integers(3 * tree.n_tips, 3 * tree.n_nodes))


def random_half(tree: Tree, rng: np.random.Generator) -> int:
    return int(rng.choice(np.flatnonzero(tree.twin >= 0)))


def random_lengths(rng: np.random.Generator) -> SprLengths:
    return SprLengths(*rng.random(4).tolist())


@given(SIZES, SEEDS)
def test_is_inside_matches_the_definition(n_tips: int, seed: int) -> None:
    tree, rng = start(n_tips, seed)
    for _ in range(10):
        prune, target = random_prune(tree, rng), random_half(tree, rng)
        if not is_adjacent(tree, prune, target):
            expected = int(tree.edge[target]) in edges_behind(tree, int(tree.twin[prune]))
            assert is_inside(tree, prune, target) == expected


@given(SIZES, SEEDS)
def test_any_sequence_of_moves_is_valid(n_tips: int, seed: int) -> None:
    tree, rng = start(n_tips, seed)
    for _ in range(12):
        if rng.random() < 0.3:
            nni(tree, int(rng.choice(tree.inner_edges)), int(rng.integers(2)))
        else:
            prune, target = random_prune(tree, rng), random_half(tree, rng)
            if is_adjacent(tree, prune, target) or is_inside(tree, prune, target):
                continue
            lengths = random_lengths(rng) if rng.random() < 0.5 else None
            spr(tree, prune, target, lengths)
        tree.validate()


@given(SIZES, SEEDS)
def test_spr_keeps_the_edge_ids_that_the_contract_names(n_tips: int, seed: int) -> None:
    tree, rng = start(n_tips, seed)
    before = tree.copy()
    prune, target = random_prune(tree, rng), random_half(tree, rng)
    if is_adjacent(tree, prune, target) or is_inside(tree, prune, target):
        return
    first, second = siblings(prune)
    a, b, far = (int(before.twin[h]) for h in (first, second, target))
    wanted = random_lengths(rng)
    spr(tree, prune, target, wanted)
    assert tree.twin[a] == b
    assert tree.edge[a] == before.edge[first]
    assert tree.twin[target] == first
    assert tree.edge[target] == before.edge[target]
    assert tree.twin[far] == second
    assert tree.edge[far] == before.edge[second]
    assert tree.edge[prune] == before.edge[prune]
    got = [tree.lengths[tree.edge[h]] for h in (target, far, prune, a)]
    assert got == list(wanted)


@given(SIZES, SEEDS)
def test_lazy_lengths_keep_the_sum_of_all_branches(n_tips: int, seed: int) -> None:
    tree, rng = start(n_tips, seed)
    total = tree.lengths.sum()
    prune, target = random_prune(tree, rng), random_half(tree, rng)
    if not (is_adjacent(tree, prune, target) or is_inside(tree, prune, target)):
        spr(tree, prune, target)
        assert tree.lengths.sum() == pytest.approx(total, rel=1e-12)


def test_adjacent_targets_are_refused() -> None:
    tree, _ = start(8, 1)
    prune = 3 * tree.n_tips
    for half in (prune, *siblings(prune), int(tree.twin[prune])):
        with pytest.raises(ValueError, match="next to"):
            spr(tree, prune, half)


def test_the_two_interchanges_of_an_edge_give_three_topologies() -> None:
    tree, rng = start(12, 3)
    edge = int(rng.choice(tree.inner_edges))
    trees = [tree.copy() for _ in range(3)]
    for variant in (0, 1):
        nni(trees[variant], edge, variant)
        trees[variant].validate()
    assert [robinson_foulds(trees[i], trees[j]) for i, j in ((0, 1), (0, 2), (1, 2))] == [2, 2, 2]


def test_an_interchange_at_a_tip_is_refused() -> None:
    tree, _ = start(6, 1)
    with pytest.raises(ValueError, match="ends at a tip"):
        nni(tree, int(tree.edge[0]), 0)


def random_sprs(tree: Tree, n: int, rng: np.random.Generator) -> tuple[Int32, Int32]:
    prunes = np.array([random_prune(tree, rng) for _ in range(n)], dtype=np.int32)
    targets = np.array([random_half(tree, rng) for _ in range(n)], dtype=np.int32)
    return prunes, targets


@given(SIZES, SEEDS)
def test_many_moves_at_once(n_tips: int, seed: int) -> None:
    tree, rng = start(n_tips, seed)
    before = tree.copy()
    prunes, targets = random_sprs(tree, 30, rng)
    lengths = rng.random((30, 4))
    applied = apply_sprs(tree, prunes, targets, lengths)
    tree.validate()
    used: list[int] = []
    for move in np.flatnonzero(applied):
        halves = (prunes[move], *siblings(int(prunes[move])), targets[move])
        used += [int(before.edge[half]) for half in halves]
    assert len(used) == len(set(used))
    one_by_one = before.copy()
    for move in np.flatnonzero(applied):
        spr(one_by_one, int(prunes[move]), int(targets[move]), SprLengths(*lengths[move]))
    assert identical(tree, one_by_one)


def test_a_single_legal_move_is_applied_as_spr_does() -> None:
    tree, rng = start(30, 4)
    prunes, targets = random_sprs(tree, 200, rng)
    for move in range(200):
        prune, target = int(prunes[move]), int(targets[move])
        legal = not (is_adjacent(tree, prune, target) or is_inside(tree, prune, target))
        one, other = tree.copy(), tree.copy()
        applied = apply_sprs(one, prunes[move : move + 1], targets[move : move + 1])
        assert bool(applied[0]) == legal
        if legal:
            spr(other, prune, target)
        assert identical(one, other)


@given(SIZES, SEEDS, st.floats(0.0, 1.0))
def test_random_interchanges(n_tips: int, seed: int, fraction: float) -> None:
    tree, rng = start(n_tips, seed)
    before = tree.copy()
    edges = random_nnis(tree, fraction, rng)
    tree.validate()
    assert 1 <= edges.size <= max(1, round(fraction * (n_tips - 3)))
    assert fraction > MOST_AT_ONCE or not same_topology(tree, before)


@given(SIZES, SEEDS)
def test_random_interchanges_are_those_made_one_by_one(n_tips: int, seed: int) -> None:
    """Every edge gets one of its two interchanges, and nothing else moves."""
    tree, rng = start(n_tips, seed)
    one_by_one = tree.copy()
    for edge in random_nnis(tree, MOST_AT_ONCE, rng).tolist():
        ends = np.flatnonzero(one_by_one.edge == edge)
        both = [one_by_one.copy(), one_by_one]
        for variant, other in enumerate(both):
            nni(other, edge, variant)
        moved = siblings(int(ends[0]))[0]
        one_by_one = both[int(one_by_one.edge[moved] == tree.edge[moved])]
    assert identical(tree, one_by_one)


def test_more_interchanges_than_fit_lead_farther() -> None:
    """Sets of them, one after the other, pass the distance that one set can reach."""
    far = []
    for fraction in (MOST_AT_ONCE, 3 * MOST_AT_ONCE):
        tree, rng = start(60, 3)
        before = tree.copy()
        random_nnis(tree, fraction, rng)
        far.append(mean_distance([tree, before]))
    assert far[1] > 1.3 * far[0]


@given(SIZES, SEEDS)
def test_random_interchanges_keep_apart(n_tips: int, seed: int) -> None:
    """Each has two nodes for itself, so that none undoes another."""
    tree, rng = start(n_tips, seed)
    ends = tree.edge_halves // 3
    nodes = ends[random_nnis(tree, MOST_AT_ONCE, rng)].ravel().tolist()
    assert len(set(nodes)) == len(nodes)


def test_both_interchanges_of_an_edge_are_drawn() -> None:
    before, rng = start(4, 1)
    trees = [before.copy() for _ in range(30)]
    for tree in trees:
        random_nnis(tree, 0.5, rng)
    assert len({topology_key(tree) for tree in (*trees, before)}) == 3


@given(SIZES, SEEDS)
def test_moves_made_at_once_are_those_made_one_by_one(n_tips: int, seed: int) -> None:
    """The same moves, links and edge ids, unless a target came to lie inside its subtree."""
    tree, rng = start(n_tips, seed)
    prunes = np.array([random_prune(tree, rng) for _ in range(8)], np.int32)
    targets = np.array([random_half(tree, rng) for _ in range(8)], np.int32)
    outside = [not is_inside(tree, int(p), int(t)) for p, t in zip(prunes, targets, strict=True)]
    prunes, targets = prunes[outside], targets[outside]
    sides = np.stack([prunes, *siblings(prunes), targets], axis=1)
    chosen = compatible(tree.edge[sides])
    one_by_one, at_once = tree.copy(), tree.copy()
    applied = apply_sprs(one_by_one, prunes, targets)
    links = rewire(at_once.twin, at_once.edge, prunes[chosen], targets[chosen])
    if np.array_equal(applied, chosen):
        np.testing.assert_array_equal(at_once.twin, one_by_one.twin)
        np.testing.assert_array_equal(at_once.edge, one_by_one.edge)
    else:
        with pytest.raises(ValueError, match="one tree"):
            at_once.validate()
    links.restore(at_once.twin, at_once.edge)
    assert identical(at_once, tree)


def lengths_of_splits(tree: Tree) -> dict[bytes, float | tuple[float, ...]]:
    lengths = tree.lengths.T.tolist()
    own = [tuple(one) if isinstance(one, list) else one for one in lengths]
    return dict(zip((row.tobytes() for row in splits(tree)), own, strict=True))


@given(st.integers(4, 60), SEEDS, st.integers(0, 8), st.sampled_from([0, 3]))
def test_every_part_is_taken_alone_with_its_lengths(
    n_tips: int, seed: int, sweeps: int, parts: int
) -> None:
    """Near trees, and where no sweep makes one of the other, unrelated ones."""
    tree, rng = start(n_tips, seed)
    other = tree.copy() if sweeps else random_topology(n_tips, rng)
    for _ in range(sweeps):
        random_nnis(other, 0.1, rng)
    size = (parts, tree.n_edges) if parts else tree.n_edges
    tree.lengths, other.lengths = rng.random(size), rng.random(size)
    here, there = lengths_of_splits(tree), lengths_of_splits(other)
    before = tree.copy()
    (differences,) = Differences.of_each(tree, [other])
    met: set[bytes] = set()
    for part in differences.parts:
        taken = differences.taken(part)
        taken.validate()
        every = lengths_of_splits(taken)
        new = every.keys() - here.keys()
        assert new
        assert new <= there.keys() - met
        assert len(here.keys() - every.keys()) == len(new)
        assert here.keys() & there.keys() <= every.keys()
        assert all(every[split] == there[split] for split in new)
        assert all(every[split] in (here[split], there.get(split)) for split in every.keys() - new)
        met |= new
    assert met == there.keys() - here.keys()
    whole = lengths_of_splits(differences.taken(differences.parts))
    assert whole.keys() == there.keys()
    assert all(whole[split] == there[split] for split in met)
    assert identical(tree, before)


SHORT = 1e-3


def patchy(tree: Tree, size: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Lengths of which some say nothing of the order of their neighbours."""
    return np.where(rng.random(size) < rng.choice([0.2, 0.8]), SHORT / 10, 0.1 + rng.random(size))


@given(st.integers(4, 60), SEEDS, st.integers(0, 8), st.sampled_from([0, 3]))
def test_parts_change_the_shape_as_their_keys_say(
    n_tips: int, seed: int, sweeps: int, parts: int
) -> None:
    tree, rng = start(n_tips, seed)
    size = (parts, tree.n_edges) if parts else (tree.n_edges,)
    others = [tree.copy() if sweeps else random_topology(n_tips, rng) for _ in range(3)]
    tree.lengths = patchy(tree, size, rng)
    for other in others:
        for _ in range(sweeps):
            random_nnis(other, 0.1, rng)
        other.lengths = patchy(other, size, rng)
    every, keys = [tree], [0]
    for one in Differences.of_each(tree, others):
        changes = {part: key for key, part in one.changes(SHORT).items()}
        every += [one.taken(part) for part in one.parts.tolist()]
        keys += [changes.get(part, 0) for part in one.parts.tolist()]
    shapes = Forest(every).shape_keys(SHORT)
    assert len(set(shapes)) == len(set(keys)) == len(set(zip(shapes, keys, strict=True)))


def test_differences_from_many_trees_are_those_from_each_alone() -> None:
    tree, rng = start(40, 3)
    others = [tree.copy() for _ in range(6)]
    for number, other in enumerate(others):
        for _ in range(number):
            random_nnis(other, 0.1, rng)
    together = Differences.of_each(tree, others)
    assert not together[0].parts.size
    assert identical(together[0].taken(together[0].parts), tree)
    for one, other in zip(together, others, strict=True):
        (alone,) = Differences.of_each(tree, [other])
        assert (one.parts == alone.parts).all()
        assert identical(one.taken(one.parts), alone.taken(alone.parts))
        assert same_topology(one.taken(one.parts), other)
