import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mltree.data.alphabet import DNA
from mltree.data.patterns import Patterns
from mltree.tree.fitch import pack_sites
from mltree.tree.moves import compatible, rewire
from mltree.tree.parsimony import DirectionalSets, parsimony_score
from mltree.tree.topology import Forest, random_topology, siblings


def random_patterns(n_tips: int, rng: np.random.Generator) -> Patterns:
    codes = rng.choice(np.array([1, 2, 4, 8, 15], np.uint8), (n_tips, 90))
    return Patterns(
        taxa=tuple(map(str, range(n_tips))),
        codes=codes,
        weights=rng.integers(1, 6, 90).astype(np.float64),
        site_pattern=np.arange(90, dtype=np.int32),
        alphabet=DNA,
    )


@given(st.integers(5, 20), st.integers(0, 2**32 - 1))
@settings(max_examples=20)
def test_sets_that_are_kept_up_are_those_of_the_trees_as_they_are(n_tips: int, seed: int) -> None:
    """Random moves on some of three trees; circles are told apart, and links restored."""
    rng = np.random.default_rng(seed)
    sites = pack_sites(random_patterns(n_tips, rng))
    forest = Forest([random_topology(n_tips, rng) for _ in range(3)])
    sets = DirectionalSets.of_trees(forest, sites)
    prunes = rng.choice(forest.inner, 6).astype(np.int32)
    targets = forest.first_half[forest.tree_of_half[prunes]]
    targets += 3 * rng.integers(n_tips, size=6).astype(np.int32)
    sides = np.stack([prunes, *siblings(prunes), targets], axis=1)
    made = np.flatnonzero(compatible(forest.edge[sides]))
    prunes, targets = prunes[made], targets[made]
    links = rewire(forest.twin, forest.edge, prunes, targets)
    trees = np.arange(3, dtype=np.int32)
    facing, whole = forest.facing(trees)
    number = forest.tree_of_half[prunes]
    links.at(~whole[number]).restore(forest.twin, forest.edge)
    sets.refresh(sets.made_from(links.at(whole[number]).halves.ravel()))
    now = Forest([forest.tree(number) for number in range(3)])
    np.testing.assert_array_equal(sets.sets, DirectionalSets.of_trees(now, sites).sets)
    scores = sets.scores(facing, trees)
    for tree in np.flatnonzero(whole):
        own = forest.tree(int(tree))
        own.validate()
        assert scores[tree] == parsimony_score(own, sites)
