"""Trees as lines and words: in proportion, in order, apart."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mltree.report.drawing import ACCENT, FAINT, INK, Label, Scene, Style, draw, nice_length
from mltree.tree.clades import WrittenTree, read_written
from mltree.tree.newick import write_newick
from mltree.tree.topology import uniform_tree

LAYOUTS = ("rectangular", "circular")


def tree_of(text: str) -> WrittenTree:
    return read_written(text)[0]


def random_tree(case: int) -> WrittenTree:
    rng = np.random.default_rng(case)
    taxa = [f"t{n}" for n in range(int(rng.integers(4, 40)))]
    return tree_of(write_newick(uniform_tree(len(taxa), 0.1, rng), taxa))


def names_in(scene: Scene) -> list[Label]:
    return [words for words in scene.words if words.colour == INK]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.cases(10, 500)
def test_branches_are_to_scale(layout: str, case: int) -> None:
    """The branches of all lines together are the tree's length times one factor."""
    tree = random_tree(case)
    style = Style(layout=layout, is_ladderised=case % 2 == 0)
    scene = draw(tree, style)
    (bar,) = [w for w in scene.words if "substitutions" in w.text]
    _, _, line = [line for line in scene.lines if line.colour == FAINT and line.width == 0.8]
    unit = (line.points[1, 0] - line.points[0, 0]) / float(bar.text.split()[0])
    drawn = 0.0
    for line in scene.lines:
        if line.colour == INK and len(line.points) == 2:
            step = line.points[1] - line.points[0]
            is_branch = layout == "circular" or step[1] == 0.0
            drawn += float(np.hypot(*step)) if is_branch else 0.0
    root = 4.0 if layout == "rectangular" else 0.0
    total = float(np.nansum(tree.lengths[1:]))
    assert drawn - root == pytest.approx(total * unit, rel=1e-6)
    assert len(names_in(scene)) == len(tree.tips)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.cases(10, 500)
def test_everything_is_inside_and_names_are_apart(layout: str, case: int) -> None:
    scene = draw(random_tree(case), Style(layout=layout))
    points = np.vstack([line.points for line in scene.lines])
    assert (points >= 0.0).all()
    assert (points <= [scene.width, scene.height]).all()
    places = np.array([(words.x, words.y) for words in names_in(scene)])
    distance = np.hypot(*(places[:, None] - places[None]).transpose(2, 0, 1))
    assert distance[np.triu_indices(len(places), 1)].min() >= 0.99 * names_in(scene)[0].size


def test_tips_stand_in_line_without_lengths() -> None:
    for text, style in (
        ("(a,(b,(c,d)));", Style()),
        ("(a:1,(b:2,(c:1,d:9):1):4);", Style(is_scaled=False)),
        ("(a:0,(b:0,c:0):0);", Style()),
    ):
        scene = draw(tree_of(text), style)
        assert len({round(words.x, 6) for words in names_in(scene)}) == 1
        assert not [words for words in scene.words if "substitutions" in words.text]


def test_small_clades_come_first_unless_as_written() -> None:
    tree = tree_of("((a,b,c),(d,e),f);")
    order = lambda style: "".join(words.text for words in names_in(draw(tree, style)))  # noqa: E731
    assert order(Style()) == "fdeabc"
    assert order(Style(is_ladderised=False)) == "abcdef"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_supports_are_beside_their_branches(layout: str) -> None:
    tree = tree_of("((a:1,b:1)95:1,(c:1,d:1)0.8/70:1,e:2)root;")
    seen = [w.text for w in draw(tree, Style(layout=layout)).words if w.colour == ACCENT]
    assert sorted(seen) == ["0.8/70", "95"]
    without = draw(tree, Style(layout=layout, shows_supports=False))
    assert not [w for w in without.words if w.colour == ACCENT]


@pytest.mark.parametrize("text", ["a;", "(a);", "(a,b);", "(a:1,b:0);"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_tiny_trees(layout: str, text: str) -> None:
    assert names_in(draw(tree_of(text), Style(layout=layout)))


def test_nice_lengths() -> None:
    lengths = [0.00123, 0.1, 0.19, 0.2, 7.0, 50.0]
    assert [nice_length(length) for length in lengths] == pytest.approx(
        [0.001, 0.1, 0.1, 0.2, 5, 50]
    )
    for length in np.random.default_rng(1).lognormal(0, 5, 200).tolist():
        nice = nice_length(length)
        assert nice <= length * 1.0001 < 2.5001 * nice
        assert round(nice / 10 ** math.floor(math.log10(nice) + 1e-9), 6) in {1, 2, 5}


@pytest.mark.parametrize("layout", ["rectangular", "circular"])
def test_a_tree_too_small_for_a_scale_is_drawn_without(layout: str) -> None:
    (tree,) = read_written("((a:1e-320,b:1e-322):5e-324,c:1e-320,d:5e-324);")
    scene = draw(tree, Style(layout=layout))
    for line in scene.lines:
        assert np.isfinite(line.points).all()
    assert not any("substitutions" in words.text for words in scene.words)
