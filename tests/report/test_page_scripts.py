"""The scripts of a page: trees stay trees whatever is done with them, and are drawn as asked."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from word_boxes import TOUCH, corners, overlap, random_tree

from mltree.report.scene import Label
from mltree.tree.clades import read_written
from mltree.tree.newick import read_newick, write_newick
from mltree.tree.splits import robinson_foulds
from mltree.tree.topology import uniform_tree

Drive = Callable[[str, str], Any]
PageOf = Callable[[str], str]

SMALL = "((a:1,b:2)95:0.5,(c:1,('d e':1,f:3)40:1)80:0.5,g:0.25);"


def random_newicks(count: int) -> list[str]:
    rng = np.random.default_rng(count)
    sizes = rng.integers(4, 40, count).tolist()
    return [
        write_newick(uniform_tree(n, 0.1, rng), [f"t{k}" for k in range(n)], digits=None)
        for n in sizes
    ]


def distances(newick: str) -> dict[tuple[str, str], float]:
    """Between all pairs of tips."""
    (tree,) = read_written(newick)
    found = {}
    ancestors = {}
    for tip in tree.tips:
        path, node = {}, tip
        while node >= 0:
            path[node] = tree.heights[tip] - tree.heights[node]
            node = int(tree.parent[node])
        ancestors[tree.labels[tip]] = path
    for one, above in ancestors.items():
        for other, beyond in ancestors.items():
            if one < other:
                found[one, other] = min(above[n] + beyond[n] for n in above if n in beyond)
    return found


def test_text_is_read_and_written(drive: Drive, page_of: PageOf) -> None:
    texts = [*random_newicks(30), SMALL, "(a,b,'it''s'):0;", "(a:1e-06,(b,c)x,d);"]
    script = f"return {json.dumps(texts)}.map((text) => writeNewick(readNewick(text)));"
    found = drive(page_of(SMALL), script)
    for text, again in zip(texts, found, strict=True):
        (one,), (other,) = read_written(text), read_written(again)
        assert one.labels == other.labels
        np.testing.assert_array_equal(one.parent, other.parent)
        np.testing.assert_array_equal(one.lengths[1:], other.lengths[1:])


def test_a_root_anywhere_keeps_tree_and_lengths(drive: Drive, page_of: PageOf) -> None:
    """Rooted above a node, and above another one of what comes out, and midway."""
    texts = random_newicks(25)
    script = f"""return {json.dumps(texts)}.map((text, k) => {{
      const at = (root, place) => inOrder(root)[1 + (place % (inOrder(root).length - 1))];
      let root = readNewick(text);
      root = rootAbove(root, at(root, 7 * k + 3));
      root = rootAbove(root, at(root, 5 * k + 1), 0.3);
      return [root.n, writeNewick(root), writeNewick(rootMidway(root))];
    }});"""
    found = drive(page_of(SMALL), script)
    for text, (tips, *rooted) in zip(texts, found, strict=True):
        wanted = distances(text)
        taxa = sorted({name for pair in wanted for name in pair})
        assert tips == len(taxa)
        for other in rooted:
            assert distances(other) == pytest.approx(wanted)
            trees = [read_newick(newick, taxa)[0] for newick in (text, other)]
            assert robinson_foulds(*trees) == 0


def test_the_midpoint_is_halfway_between_the_farthest_tips(drive: Drive, page_of: PageOf) -> None:
    texts = random_newicks(25)
    script = f"return {json.dumps(texts)}.map((text) => writeNewick(rootMidway(readNewick(text))));"
    for text, rooted in zip(texts, drive(page_of(SMALL), script), strict=True):
        (tree,) = read_written(rooted)
        assert len(tree.children[0]) == 2
        left, right = (
            max(tree.heights[tip] for tip in tree.tips if first <= tip < last)
            for first, last in (
                (tree.children[0][0], tree.children[0][1]),
                (tree.children[0][1], tree.n_nodes),
            )
        )
        assert left == pytest.approx(right)
        assert left + right == pytest.approx(max(distances(text).values()))


def test_supports_stay_with_their_branches(drive: Drive, page_of: PageOf) -> None:
    script = f"""const root = readNewick({json.dumps(SMALL)});
      return writeNewick(rootAbove(root, tipsOf(root).find((tip) => tip.name === "f")));"""
    (tree,) = read_written(drive(page_of(SMALL), script))
    everyone = {tree.labels[tip] for tip in tree.tips}
    seen = set()
    for node in range(1, tree.n_nodes):
        if tree.children[node]:
            first = sum(tip < node for tip in tree.tips)
            names = {tree.labels[tip] for tip in tree.tips[first : first + tree.n_below[node]]}
            if 1 < len(names) < len(everyone) - 1:
                split = frozenset({frozenset(names), frozenset(everyone - names)})
                seen.add((split, tree.labels[node]))
    wanted = ((["a", "b"], "95"), (["d e", "f"], "40"), (["c", "d e", "f"], "80"))
    assert seen == {
        (frozenset({frozenset(names), frozenset(everyone - set(names))}), support)
        for names, support in wanted
    }


def test_layouts_put_every_tip_into_its_row(drive: Drive, page_of: PageOf) -> None:
    script = f"""return {json.dumps(random_newicks(10))}.map((text) => {{
      const root = ladderise(readNewick(text));
      const {{ shown, rows, unit }} = layOut(root, true);
      const branch = (node) => (node.parent ? node.depth - node.parent.depth : 0);
      const total = shown.reduce((sum, node) => sum + branch(node), 0);
      return [rows, tipsOf(root).map((tip) => tip.row), total * unit, shown.map((n) => n.depth)];
    }});"""
    for text, (rows, places, total, depths) in zip(
        random_newicks(10), drive(page_of(SMALL), script), strict=True
    ):
        (tree,) = read_written(text)
        assert places == [n + 0.5 for n in range(len(tree.tips))]
        assert rows == len(tree.tips)
        assert total == pytest.approx(np.nansum(tree.lengths[1:]))
        assert max(depths) == pytest.approx(1.0)


def test_the_tree_is_drawn_in_every_layout(drive: Drive, page_of: PageOf) -> None:
    script = """const view = page, seen = [];
      for (const one of document.getElementById("tools").querySelectorAll("button").values()) {
        if (!one.dataset.value) continue;
        one.click();
        seen.push([one.dataset.value, view.svg.innerHTML]);
      }
      return seen;"""
    seen = dict(drive(page_of(SMALL), script))
    assert set(seen) == {"rectangular", "circular", "unrooted"}
    for drawing in seen.values():
        assert "NaN" not in drawing
        for name in ("a", "d e", "g"):
            assert f">{name}</text>" in drawing
        assert "substitutions per site" in drawing
        for kind in ("s4", "s0", "s3"):  # of 95, 40 and 80 %
            assert f"branch {kind}" in drawing


def test_a_taxon_is_found(drive: Drive, page_of: PageOf) -> None:
    (big,) = [write_newick(uniform_tree(2000, 0.1, np.random.default_rng(1)),
                           [f"taxon{n}" for n in range(2000)])]  # fmt: skip
    script = """const view = page, input = document.getElementById("tools").querySelector("input");
      const before = view.svg.innerHTML.split("<text").length;
      input.value = "TAXON1234";
      input.dispatchEvent(new Event("input"));
      const tip = tipsOf(view.root).find((one) => one.name === "taxon1234");
      return [before, view.place(tip), view.height, view.svg.innerHTML,
              document.getElementById("status").textContent];"""
    before, (_, y), height, drawing, status = drive(page_of(big), script)
    assert before < 5, "names that nobody could read are drawn"
    assert y == pytest.approx(height / 2, abs=1)
    assert 'class="hit"' in drawing
    assert 10 < drawing.count("<text") < 400
    assert status.startswith("1 of 2000 taxa")


def test_a_clade_is_collapsed_and_expanded_and_shown_alone(drive: Drive, page_of: PageOf) -> None:
    script = """const view = page, menu = document.getElementById("menu"), seen = [];
      const clade = () => inOrder(view.whole).find((node) => node.n === 2 && node.name === "95");
      const press = (name) => {
        view.onchoose(clade(), [10, 10]);
        for (const one of menu.children) if (one.textContent === name) return one.click();
        throw new Error(name);
      };
      for (const name of ["Collapse", "Expand", "Show this clade alone", "Show the whole tree"]) {
        press(name);
        seen.push([view.rows, view.svg.innerHTML]);
      }
      press("Root on this branch");
      return [seen, view.root.children.length, tipsOf(view.root).length, menu.hidden];"""
    seen, branches, tips, is_hidden = drive(page_of(SMALL), script)
    collapsed, expanded, alone, whole = seen
    assert ">2 taxa</text>" in collapsed[1]
    assert ">a</text>" not in collapsed[1]
    assert [rows for rows, _ in seen] == [5.5, 6, 2, 6]
    assert ">a</text>" in expanded[1]
    assert ">g</text>" not in alone[1]
    assert ">g</text>" in whole[1]
    assert (branches, tips, is_hidden) == (2, 6, True)


def test_pointers_and_keys_move_and_zoom(drive: Drive, page_of: PageOf) -> None:
    script = """const view = page, svg = view.svg;
      svg.setPointerCapture = () => {};
      const box = svg.getBoundingClientRect();
      const corner = { clientX: box.left, clientY: box.top, deltaY: -240 };
      const point = (kind, x, y) => svg.dispatchEvent(
        new PointerEvent(kind, { clientX: box.left + x, clientY: box.top + y, pointerId: 1 }));
      const tip = () => view.place(tipsOf(view.root)[0]);
      const seen = [tip()];
      point("pointerdown", 100, 100); point("pointermove", 130, 80); point("pointerup", 130, 80);
      seen.push(tip());
      svg.dispatchEvent(new WheelEvent("wheel", corner));
      seen.push(tip());
      svg.dispatchEvent(new WheelEvent("wheel", { ...corner, ctrlKey: true }));
      seen.push(tip());
      svg.dispatchEvent(new KeyboardEvent("keydown", { key: "0" }));
      seen.push(tip());
      point("pointerdown", ...tip()); point("pointerup", ...tip());
      return [seen, view.chosen.name, document.getElementById("menu").hidden];"""
    seen, chosen, is_hidden = drive(page_of(SMALL), script)
    first, moved, still, zoomed, again = seen
    assert moved == pytest.approx([first[0] + 30, first[1] - 20])
    assert still == moved, "the page's own wheel"
    assert zoomed[1] == pytest.approx(moved[1] * np.e, abs=1)  # pointers are at whole pixels
    assert again == pytest.approx(first)
    assert not is_hidden
    assert chosen


@pytest.mark.parametrize("text", ["(a,b,c,d);", "(a:0,b:0,(c:0,d:0):0);", "((((a))),b,c);", "a;"])
def test_odd_trees_are_drawn(drive: Drive, page_of: PageOf, text: str) -> None:
    script = """const view = page;
      for (const one of document.getElementById("tools").querySelectorAll("button").values())
        if (one.dataset.value) one.click();
      return view.svg.innerHTML;"""
    drawing = drive(page_of(text), script)
    assert "NaN" not in drawing
    assert "Infinity" not in drawing
    assert ">a</text>" in drawing


@pytest.mark.parametrize("layout", ["rectangular", "circular", "unrooted"])
def test_words_are_apart_and_inside_the_frame(layout: str, drive: Drive, page_of: PageOf) -> None:
    """Where a word has no room it is left out, and the line below says how many are."""
    tree = random_tree(np.random.default_rng(7), 50, 2)
    script = f"""const view = page;
      view.options.values = true;
      for (const one of document.getElementById("tools").querySelectorAll("button").values())
        if (one.dataset.value === "{layout}") one.click();
      const heights = [view.width, view.height];
      return [heights, view.svg.innerHTML, document.getElementById("status").textContent];"""
    (width, height), drawing, status = drive(page_of(tree.newick()), script)
    pattern = (
        r'<text class="(\w*)" x="([-.\d]+)" y="([-.\d]+)" dy=".35em" font-size="([.\d]+)" '
        r'text-anchor="(\w+)"(?: transform="rotate\(([-.\d]+) [^"]*")?>([^<]*)</text>'
    )
    words = re.findall(pattern, drawing)
    assert len(words) == drawing.count("<text")
    boxes, counts = [], {"": 0, "value": 0, "unit": 0}
    for kind, x, y, size, anchor, turn, text in words:
        narrow = "i" * len(text)  # fonts differ: what letters are is the browser's affair
        label = Label(float(x), float(y), narrow, float(size), anchor, float(turn or 0.0))
        counts[kind] += 1
        boxes.append(corners(label))
    every = np.vstack(boxes)
    assert every.min() >= -TOUCH
    assert (every <= [width + TOUCH, height + TOUCH]).all()
    for number, box in enumerate(boxes):
        for other in boxes[:number]:
            assert overlap(box, other) <= TOUCH
    told = re.findall(r"(\d+) (?:of \d+ )?(names|supports)", status.partition("Drag")[0])
    missing = {kind: int(count) for count, kind in told}
    assert counts[""] + missing.get("names", 0) == len(tree.tips)
    inner = sum(map(bool, tree.children)) - 1
    assert counts["value"] + missing.get("supports", 0) == inner
    assert counts[""] >= 0.5 * len(tree.tips)
    assert counts["value"] >= 5


def test_names_that_do_not_fit_are_told_of(drive: Drive, page_of: PageOf) -> None:
    read = """return [page.svg.innerHTML.split("<text").length,
                      document.getElementById("status").textContent];"""
    for taxa in (200, 600):
        names = [f"taxon{n}" for n in range(taxa)]
        tree = write_newick(uniform_tree(taxa, 0.1, np.random.default_rng(1)), names)
        page = page_of(tree)
        count, status = drive(page, f"page.height = {taxa} * 11 + 60; page.draw(); {read}")
        assert count > taxa
        assert "zoom in" not in status.partition("Drag")[0]
        _, status = drive(page, f"page.height = 700; page.draw(); {read}")
        assert status.startswith(f"{taxa} of {taxa} names have no room here: zoom in")
