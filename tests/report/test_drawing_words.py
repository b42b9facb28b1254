"""Pictures looked at: no words overlap words or lines, and all are on the page."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from word_boxes import TOUCH, corners, overlap, random_tree

from mltree.report.drawing import LAYOUTS, draw
from mltree.report.scene import ACCENT, FAINT, INK, RULE, Scene
from mltree.report.style import Axis, Clade, Style, Supports
from mltree.system.errors import InputError
from mltree.system.events import Event
from mltree.tree.clades import WrittenTree, read_written


def assert_legible(scene: Scene) -> None:
    """No words overlap others or lines, and all is on the page."""
    boxes = [corners(label) for label in scene.words]
    assert np.vstack(boxes).min() >= -TOUCH
    assert (np.vstack(boxes) <= np.array([scene.width, scene.height]) + TOUCH).all()
    points = np.vstack([line.points for line in scene.lines])
    assert points.min() >= 0.0
    assert (points <= [scene.width, scene.height]).all()
    middles = np.array([box.mean(axis=0) for box in boxes])
    reach = np.array([np.hypot(*(box - box.mean(axis=0)).T).max() for box in boxes])
    for number, box in enumerate(boxes):
        away = np.hypot(*(middles[number + 1 :] - middles[number]).T)
        for other in np.flatnonzero(away < reach[number] + reach[number + 1 :]) + number + 1:
            depth = overlap(box, boxes[other])
            assert depth <= TOUCH, (scene.words[number], scene.words[other])
    pieces = [
        (np.array(piece), line)
        for line in scene.lines
        if line.colour != RULE  # the background's
        for piece in pairwise(line.points)
    ]
    ends = np.array([piece for piece, _ in pieces])
    low, high = ends.min(axis=1), ends.max(axis=1)
    for label, box in zip(scene.words, boxes, strict=True):
        near = (low <= box.max(axis=0)).all(axis=1) & (high >= box.min(axis=0)).all(axis=1)
        for number in np.flatnonzero(near):
            piece, line = pieces[number]
            if line.colour == FAINT and np.hypot(*(piece - (label.x, label.y)).T).min() < 1e-6:
                continue  # leads to this label
            assert overlap(box, piece) <= TOUCH, (label, piece)


def random_style(rng: np.random.Generator, tree: WrittenTree, layout: str) -> Style:
    names = [tree.labels[tip] for tip in tree.tips]
    marks = (None, ("labels",), ("labels", "dots"), ("labels", "colours"), ("dots",), ())

    def clade(name: str) -> Clade:
        return Clade(tuple(rng.choice(names, int(rng.integers(1, 4))).tolist()), name)

    return Style(
        layout=layout,
        order=("increasing", "decreasing", "written")[int(rng.integers(3))],
        is_midpoint=bool(rng.random() < 0.3),
        is_scaled=bool(rng.random() < 0.8),
        is_italic=bool(rng.random() < 0.3),
        supports=Supports(
            marks=marks[int(rng.integers(len(marks)))],
            names=("SH-aLRT", "UFBoot2", "aBayes") if rng.random() < 0.5 else (),
            cutoffs=(70.0, 80.0, 0.9) if rng.random() < 0.3 else (),
        ),
        highlights=tuple(clade(name) for name in ("one clade", "")[: int(rng.integers(3))]),
        collapsed=(clade("folded"),) if rng.random() < 0.3 else (),
    )


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.cases(5, 400)
def test_no_words_overlap_in_random_pictures(layout: str, case: int) -> None:
    rng = np.random.default_rng(case)
    tree = random_tree(rng, int(rng.integers(4, 60)), case % 4)
    assert_legible(draw(tree, random_style(rng, tree, layout)))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("taxa", [12, 60, 200, 2000])
def test_no_words_overlap_at_any_size(layout: str, taxa: int) -> None:
    tree = random_tree(np.random.default_rng(taxa), taxa, 2)
    told: list[Event] = []
    scene = draw(tree, Style(layout=layout), told.append)
    names = [words for words in scene.words if words.colour == INK]
    assert len(names) >= taxa
    if taxa <= 200:
        assert_legible(scene)
        shown = sum(words.colour == ACCENT for words in scene.words)
        inner = sum(map(bool, tree.children)) - 1
        missing = int(str(getattr(told[0], "text", "0")).split()[0]) if told else 0
        assert shown + missing == inner
        assert missing <= 0.25 * inner
    else:
        boxes = np.vstack([words.box().corners for words in scene.words])
        assert boxes.min() >= 0.0
        assert (boxes <= [scene.width, scene.height]).all()
        assert not told


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.cases(3, 200)
def test_pages_have_the_size_that_is_asked_for(layout: str, case: int) -> None:
    """The picture fits, or there is one line that says why not."""
    rng = np.random.default_rng(case)
    tree = random_tree(rng, int(rng.integers(4, 50)), 2)
    width, height = (float(rng.choice([240.0, 493.0, 700.0])), float(rng.choice([300.0, 600.0])))
    size = ((width, height), (width, None), (None, height))[case % 3]
    try:
        scene = draw(tree, Style(layout=layout, size=size))
    except InputError as error:
        if "too small" not in str(error):
            raise
        return
    for wanted, side in zip(size, (scene.width, scene.height), strict=True):
        assert wanted is None or side == wanted
    assert_legible(scene)


@pytest.mark.parametrize("layout", ["rectangular", "circular"])
@pytest.mark.parametrize("latest", [None, 2021.4, -12000.0])
def test_time_axes_are_legible(layout: str, latest: float | None) -> None:
    for case in range(4):
        tree = random_tree(np.random.default_rng(case), 20, 1)
        axis = Axis(kind="time", latest=latest, unit="million years ago")
        assert_legible(draw(tree, Style(layout=layout, axis=axis)))


def test_nested_and_neighbouring_highlights_have_names_apart() -> None:
    (tree,) = read_written("((((a:1,b:1):1,c:2):1,(d:1,e:1):2):1,((f:1,g:1):1,h:2):2);")
    clades = tuple(
        Clade(tuple(taxa), f"clade of {taxa}") for taxa in ("ab", "abc", "ae", "de", "fg", "fh")
    )
    for layout in LAYOUTS:
        assert_legible(draw(tree, Style(layout=layout, highlights=clades)))
