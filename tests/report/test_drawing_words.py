"""Pictures looked at: no words overlap words or lines, and all are on the page.

The boxes of words are those of the glyphs' outlines in DejaVu Sans, by matplotlib's text engine.
"""

from __future__ import annotations

import math
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath

from mltree.report.drawing import LAYOUTS, RULE, draw
from mltree.report.scene import ACCENT, CENTRED, FAINT, INK, Label, Scene
from mltree.report.style import Axis, Clade, Style, Supports
from mltree.system.arrays import Float64
from mltree.system.errors import InputError
from mltree.system.events import Event
from mltree.tree.clades import WrittenTree, read_written

TOUCH = 0.05
"""Points by which boxes may overlap: rounding."""

LETTERS = "aeioulmnrstgpqyjWMQ_.-0123456789ÅéßШ"


def random_name(rng: np.random.Generator, number: int) -> str:
    longest = 60 if rng.random() < 0.05 else 14
    letters = rng.choice(list(LETTERS), int(rng.integers(1, longest)))
    return f"{''.join(letters)}{number}"


def random_tree(rng: np.random.Generator, taxa: int, columns: int) -> WrittenTree:
    """A tree with polytomies, with branches of length zero, and supports in columns."""
    parts = [f"'{random_name(rng, number)}'" for number in range(taxa)]

    def length() -> str:
        return f":{0.0 if rng.random() < 0.15 else rng.exponential(0.1):.6g}"

    while len(parts) > 3:
        size = min(len(parts) - 1, 2 + int(rng.random() < 0.1) + int(rng.random() < 0.05))
        chosen = set(rng.choice(len(parts), size, replace=False).tolist())
        values = f"{100 * rng.beta(4, 1):.1f}", f"{100 * rng.beta(5, 1):.0f}", f"{rng.random():.3f}"
        inside = ",".join(parts[number] + length() for number in chosen)
        rest = [part for number, part in enumerate(parts) if number not in chosen]
        parts = [*rest, f"({inside}){'/'.join(values[:columns])}"]
    return read_written(f"({','.join(part + length() for part in parts)});")[0]


@cache
def outline(text: str, is_italic: bool) -> tuple[float, float, float, float, float]:
    """Bounds of a text's glyphs at size 1, y upwards from the baseline, and its advance."""
    font = FontProperties(family="DejaVu Sans", style="italic" if is_italic else "normal")
    path = TextPath((0, 0), text, size=100, prop=font)
    end = TextPath((0, 0), text + "|", size=100, prop=font).get_extents().x1
    bar = TextPath((0, 0), "|", size=100, prop=font).get_extents().x1
    if not len(path.vertices):
        return (0.0, 0.0, 0.0, 0.0, 0.0)
    box = path.get_extents()
    return box.x0 / 100, box.y0 / 100, box.x1 / 100, box.y1 / 100, (end - bar) / 100


def corners(label: Label) -> Float64:
    """f64 [4, 2]: the corners of the box around a text's glyphs."""
    x0, y0, x1, y1, advance = (label.size * value for value in outline(label.text, label.is_italic))
    start = {"start": 0.0, "middle": -0.5, "end": -1.0}[label.anchor] * advance
    below = CENTRED * label.size
    turn = math.radians(label.angle)
    box = [(start + x, below - y) for x, y in ((x0, y0), (x1, y0), (x1, y1), (x0, y1))]
    cos, sin = math.cos(turn), math.sin(turn)
    return np.array([(label.x + x * cos - y * sin, label.y + x * sin + y * cos) for x, y in box])


def overlap(one: Float64, two: Float64) -> float:
    """Depth to which two convex shapes overlap, by the least of the projections on their sides."""
    least = math.inf
    for shape in (one, two):
        for side in (shape[1] - shape[0], shape[-1] - shape[0]):
            if not (length := float(np.hypot(*side))):
                continue
            axis = np.array([-side[1], side[0]]) / length
            a, b = one @ axis, two @ axis
            least = min(least, float(min(a.max(), b.max()) - max(a.min(), b.min())))
    return least


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
