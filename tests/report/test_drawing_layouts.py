"""Trees as lines and words: in proportion, in order, apart."""

from __future__ import annotations

import numpy as np
import pytest

from mltree.report.drawing import draw
from mltree.report.scene import ACCENT, INK, Label, Scene
from mltree.report.style import CLADE_COLOURS, Axis, Clade, Style, Supports, pale
from mltree.system.errors import InputError
from mltree.system.events import Event
from mltree.tree.clades import WrittenTree, read_written
from mltree.tree.newick import write_newick
from mltree.tree.topology import uniform_tree

LAYOUTS = ("rectangular", "circular", "unrooted")


def tree_of(text: str) -> WrittenTree:
    return read_written(text)[0]


def random_tree(case: int) -> WrittenTree:
    rng = np.random.default_rng(case)
    taxa = [f"t{n}" for n in range(int(rng.integers(4, 40)))]
    return tree_of(write_newick(uniform_tree(len(taxa), 0.1, rng), taxa))


def names_in(scene: Scene) -> list[Label]:
    return [words for words in scene.words if words.colour == INK]


def scale_of(scene: Scene) -> float:
    """Points for a unit of length, by the scale bar."""
    (bar,) = [words for words in scene.words if "substitutions" in words.text]
    (line,) = [
        line
        for line in scene.lines
        if line.width == 0.8 and line.points[0, 1] == line.points[1, 1] == bar.y
    ]
    return float(line.points[1, 0] - line.points[0, 0]) / float(bar.text.split()[0])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.cases(10, 500)
def test_branches_are_to_scale(layout: str, case: int) -> None:
    """The branches of all lines together are the tree's length times one factor."""
    tree = random_tree(case)
    scene = draw(tree, Style(layout=layout, order=("increasing", "written")[case % 2]))
    drawn = 0.0
    for line in scene.lines:
        if line.colour == INK and len(line.points) == 2 and line.width != 0.8:
            step = line.points[1] - line.points[0]
            is_branch = layout != "rectangular" or step[1] == 0.0
            drawn += float(np.hypot(*step)) if is_branch else 0.0
    root = 4.0 if layout == "rectangular" else 0.0
    total = float(np.nansum(tree.lengths[1:]))
    assert drawn - root == pytest.approx(total * scale_of(scene), rel=1e-6)
    shown = tree if case % 2 else tree.ladderised()
    assert [words.text for words in names_in(scene) if words.size > 9] == [
        shown.labels[tip] for tip in shown.tips
    ]


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
    assert order(Style(order="written")) == "abcdef"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_supports_are_beside_their_branches(layout: str) -> None:
    tree = tree_of("((a:1,b:1)95:1,(c:1,d:1)0.8/70:1,e:2)root;")
    seen = [w.text for w in draw(tree, Style(layout=layout)).words if w.colour == ACCENT]
    assert sorted(seen) == ["0.8/70", "95"]
    without = draw(tree, Style(layout=layout, supports=Supports(marks=())))
    assert not [w for w in without.words if w.colour == ACCENT]


@pytest.mark.parametrize("text", ["a;", "(a);", "(a,b);", "(a:1,b:0);"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_tiny_trees(layout: str, text: str) -> None:
    assert names_in(draw(tree_of(text), Style(layout=layout)))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_tree_too_small_for_a_scale_is_drawn_without(layout: str) -> None:
    (tree,) = read_written("((a:1e-320,b:1e-322):5e-324,c:1e-320,d:5e-324);")
    scene = draw(tree, Style(layout=layout))
    for line in scene.lines:
        assert np.isfinite(line.points).all()
    assert not any("substitutions" in words.text for words in scene.words)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_collapsed_clades_are_triangles_with_their_size(layout: str) -> None:
    tree = tree_of("((a:1,(b:1,c:3):1):1,(d:1,e:1):1,f:2);")
    scene = draw(tree, Style(layout=layout, collapsed=(Clade(("a", "b"), "ABC"),)))
    texts = [words.text for words in names_in(scene)]
    assert "ABC (3)" in texts
    assert not {"a", "b", "c"} & set(texts)
    (triangle,) = scene.areas
    assert (len(triangle.points) == 3) is (layout != "circular"), "an arc is its far side there"
    if layout == "rectangular":
        assert np.ptp(triangle.points[:, 0]) == pytest.approx(4.0 * scale_of(scene))


def test_the_time_axis_counts_back_from_the_deepest_tip() -> None:
    tree = tree_of("((a:1,b:3):1,c:2);")
    for latest, numbers in ((None, ["0", "1", "2", "3", "4"]), (2020.0, ["2016", "2018", "2020"])):
        axis = Axis(kind="time", latest=latest, unit="years")
        scene = draw(tree, Style(axis=axis))
        place = {words.text: words.x for words in scene.words}
        assert set(numbers) <= set(place)
        ages = [float(n) if latest is None else latest - float(n) for n in numbers]
        tip = place["b"] - 4.0
        steps = {
            round((tip - place[n]) / age, 6) for n, age in zip(numbers, ages, strict=True) if age
        }
        assert len(steps) == 1, "all ticks are to one scale"
        assert place[numbers[0] if latest is None else numbers[-1]] == pytest.approx(tip)
        assert "years" in place


def test_supports_below_the_cutoff_are_left_out() -> None:
    tree = tree_of("((a:1,b:1)80.1/94:1,(c:1,d:1)79/95:1,(e:1,f:1)10/20:1,(g:1,h:1)Apes:1);")
    seen = lambda **options: sorted(  # noqa: E731
        words.text
        for words in draw(tree, Style(supports=Supports(**options))).words
        if words.colour == ACCENT
    )
    assert seen(cutoffs=(80.0, 95.0)) == ["80.1/–", "Apes", "Supports: ≥ 80 / ≥ 95", "–/95"]
    assert seen(cutoffs=(80.0,), columns=(2,)) == ["94", "95", "Supports: ≥ 80"]
    assert seen(names=("SH-aLRT", "UFBoot2"), columns=(2, 1))[-1] == "Supports: UFBoot2 / SH-aLRT"


def test_colours_tell_supports_apart() -> None:
    tree = tree_of("((a:1,b:1)99:1,(c:1,d:1)60:1,e:1);")
    steps = ((0.0, "#aa0000"), (70.0, "#0000aa"))
    scene = draw(tree, Style(supports=Supports(marks=("colours", "dots"), colours=steps)))
    assert {line.colour for line in scene.lines} == {INK, "#aa0000", "#0000aa"}
    assert {dot.colour for dot in scene.dots} == {"#aa0000", "#0000aa"}
    assert {"Support:", "0–70", "≥ 70"} <= {words.text for words in scene.words}


def test_bad_requests_are_refused() -> None:
    tree = tree_of("((a:1,b:1)99:1,(c:1,d:1)60:1,e:1);")
    for style, message in (
        (Style(outgroup=("x",)), "no taxon 'x'"),
        (Style(highlights=(Clade(("y",)),)), "no taxon 'y'"),
        (Style(layout="unrooted", axis=Axis(kind="time")), "no time axis"),
        (Style(is_scaled=False, axis=Axis(kind="time")), "takes a tree with branch lengths"),
        (Style(supports=Supports(columns=(2,))), "no column 2: there are 1"),
        (Style(size=(30.0, None), font_size=20.0), "too small"),
    ):
        with pytest.raises(InputError, match=message):
            draw(tree, style)


def test_notices_tell_of_what_is_not_shown() -> None:
    told: list[Event] = []
    draw(tree_of("((a:1,b:-1):1,(c:1,d:1):1,e:1);"), Style(outgroup=("a", "c")), told.append)
    assert [getattr(event, "text", "") for event in told] == [
        "the outgroup does not stand together: drawn next to its first taxon",
        "negative branch lengths are drawn as zero",
    ]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_highlights_are_behind_everything_and_hold_their_clade(layout: str) -> None:
    tree = tree_of("((((a:1,b:2):1,c:1):1,(d:1,e:1):1):1,(f:2,g:1):1);")
    clades = (Clade(("a", "b"), "inner"), Clade(("a", "c"), "outer"), Clade(("f",), "tip"))
    style = Style(layout=layout, highlights=clades, collapsed=(Clade(("a", "b"), "folded"),))
    scene = draw(tree, style)
    grounds = [area for area in scene.areas if not area.edge][:3]
    assert scene.areas[:3] == grounds, "triangles are drawn over them"
    assert grounds[0].fill == pale(CLADE_COLOURS[1]), "larger clades first"
    texts = [words.text for words in scene.words]
    assert {"outer", "tip", "folded (2)"} < set(texts)
    (name,) = [words for words in scene.words if words.text == "c"]
    box = np.array(name.box().corners)
    ground = grounds[0].points
    assert (ground.min(axis=0) <= box.min(axis=0) + 1e-6).all()
    assert (ground.max(axis=0) >= box.max(axis=0) - 1e-6).all()


def test_a_clade_that_is_the_whole_tree_is_told_of() -> None:
    told: list[Event] = []
    draw(
        tree_of("((a:1,b:1):1,c:1,d:1);"), Style(highlights=(Clade(("a", "c"), "X"),)), told.append
    )
    assert "X: the smallest clade with these taxa is the whole tree" in getattr(told[0], "text", "")
