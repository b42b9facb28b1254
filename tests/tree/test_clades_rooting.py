"""Trees with other roots: distances between tips and supports of splits stay as they were."""

from __future__ import annotations

import numpy as np
import pytest

from mltree.system.arrays import Float64
from mltree.system.errors import InputError
from mltree.tree.clades import WrittenTree, read_written


def random_tree(case: int) -> WrittenTree:
    """A tree of any shape, rooted or not, with supports that name their branches."""
    rng = np.random.default_rng(case)
    parts = [f"t{n}:{rng.exponential():.6f}" for n in range(int(rng.integers(3, 20)))]
    top, made = int(rng.integers(2, 4)), 0
    while len(parts) > top:
        size = min(len(parts) - top + 1, 2 + int(rng.random() < 0.2))
        chosen = set(rng.choice(len(parts), size, replace=False).tolist())
        inside = ",".join(parts[n] for n in chosen)
        made += 1
        rest = [part for n, part in enumerate(parts) if n not in chosen]
        parts = [*rest, f"({inside}){made}:{rng.exponential() * (rng.random() < 0.8):.6f}"]
    return read_written(f"({','.join(parts)})root;")[0]


def distances(tree: WrittenTree) -> tuple[list[str], Float64]:
    """Names, sorted, and f64 [T, T]: the sum of branches between each two tips."""
    tips = sorted(tree.tips, key=lambda tip: tree.labels[tip])
    above = []
    for tip in tips:
        path, node = {}, tip
        while node:
            path[node] = float(tree.lengths[node])
            node = int(tree.parent[node])
        above.append(path)
    table = np.zeros((len(tips), len(tips)))
    for i, one in enumerate(above):
        for j, other in enumerate(above):
            table[i, j] = sum((one | other)[node] for node in one.keys() ^ other.keys())
    return [tree.labels[tip] for tip in tips], table


def supports(tree: WrittenTree) -> dict[frozenset[str], str]:
    """Labels by the side of their split that has not the first taxon."""
    every = frozenset(tree.labels[tip] for tip in tree.tips)
    found = {}
    for node in range(1, tree.n_nodes):
        inside = frozenset(tree.labels[t] for t in tree.tips if node <= t < tree.ends[node])
        side = every - inside if min(every) in inside else inside
        if tree.labels[node] and 1 < len(side) < len(every) - 1:
            found[side] = tree.labels[node]
    return found


@pytest.mark.cases(20, 1000)
def test_any_branch_can_be_the_root(case: int) -> None:
    tree = random_tree(case)
    rng = np.random.default_rng(case)
    node, share = int(rng.integers(1, tree.n_nodes)), float(rng.random())
    rooted = tree.rooted_above(node, share)
    assert distances(rooted)[0] == distances(tree)[0]
    np.testing.assert_allclose(distances(rooted)[1], distances(tree)[1], atol=1e-9)
    if len(tree.children[0]) > 2:  # of a rooted tree, both branches at the root have a label
        assert supports(rooted) == supports(tree)
    inside = {tree.labels[tip] for tip in tree.tips if node <= tip < tree.ends[node]}
    sides = [
        {rooted.labels[tip] for tip in rooted.tips if child <= tip < rooted.ends[child]}
        for child in rooted.children[0]
    ]
    assert inside in sides
    assert len(sides) == 2
    assert all(len(below) != 1 for below in rooted.children)


@pytest.mark.cases(20, 1000)
def test_the_midpoint_halves_the_longest_path(case: int) -> None:
    tree = random_tree(case)
    rooted = tree.rooted_midway()
    longest = distances(tree)[1].max()
    np.testing.assert_allclose(distances(rooted)[1], distances(tree)[1], atol=1e-9)
    reach = [
        max(rooted.heights[tip] for tip in rooted.tips if child <= tip < rooted.ends[child])
        for child in rooted.children[0]
    ]
    assert sorted(reach)[-2:] == pytest.approx([longest / 2, longest / 2])


def test_an_outgroup_is_a_side_of_the_root() -> None:
    (tree,) = read_written("((a:1,b:2)90:1,(c:1,(d:1,e:1)80:1)70:1);")
    for names in (("d", "e"), ("c", "d", "e"), ("a",), ("a", "b", "c")):
        rooted, is_together = tree.rooted_beside(names)
        assert is_together
        node = rooted.clade_of(rooted.tips_named(names))
        others = [n for n in "abcde" if n not in names]
        assert node in rooted.children[0] or rooted.clade_of(rooted.tips_named(others))
    rooted, is_together = tree.rooted_beside(("a", "d"))
    assert not is_together
    assert rooted.labels[rooted.children[0][0]] == "a"


def test_larger_subtrees_may_come_first() -> None:
    (tree,) = read_written("(a,(b,(c,d)));")
    assert tree.ladderised(larger_first=True).newick() == "(((c,d),b),a);"


def test_roots_that_cannot_be() -> None:
    (tree,) = read_written("(a,b,c);")
    with pytest.raises(InputError, match="no taxon 'x'"):
        tree.rooted_beside(("x",))
    with pytest.raises(InputError, match="all taxa"):
        tree.rooted_beside(("a", "b", "c"))
    with pytest.raises(InputError, match="no midpoint"):
        tree.rooted_midway()
