"""Scenes as files: SVG that is XML, PNG and PDF of the right size."""

from __future__ import annotations

import builtins
import struct
import xml.etree.ElementTree as ET
from typing import Any

import pytest

from mltree.report.drawing import draw
from mltree.report.scene import DPI, MOST_DOTS, Label, Scene, figure, svg
from mltree.report.style import Style
from mltree.system.errors import InputError
from mltree.tree.clades import read_written

SVG = "{http://www.w3.org/2000/svg}"

(TREE,) = read_written("(('<a & \"b\">':1,$x_1$:1)95:1,(種:1,d:1)70:1,e:2);")


def test_svg_is_xml_with_every_name_in_it() -> None:
    scene = draw(TREE, Style())
    root = ET.fromstring(svg(scene))
    texts = {element.text for element in root.iter(f"{SVG}text")}
    assert {'<a & "b">', "$x_1$", "種", "d", "e", "95", "70"} < texts
    assert root.attrib["viewBox"] == f"0 0 {scene.width:.2f} {scene.height:.2f}"
    assert len(list(root.iter(f"{SVG}path"))) == 2  # branches, and the scale bar


def test_words_are_turned_about_their_place() -> None:
    scene = Scene(10, 10, words=[Label(3, 4, "x", 5, "end", 30.0)])
    (text,) = ET.fromstring(svg(scene)).iter(f"{SVG}text")
    assert text.attrib["transform"] == "rotate(30.00 3.00 4.00)"
    assert text.attrib["text-anchor"] == "end"


@pytest.mark.parametrize("layout", ["rectangular", "circular", "unrooted"])
def test_png_has_the_scenes_size(layout: str) -> None:
    scene = draw(TREE, Style(layout=layout))
    png = figure(scene, "png")
    width, height = struct.unpack(">II", png[16:24])
    assert png.startswith(b"\x89PNG")
    assert width == pytest.approx(scene.width / 72 * DPI, abs=1)
    assert height == pytest.approx(scene.height / 72 * DPI, abs=1)


def test_huge_pngs_are_coarser() -> None:
    (height,) = struct.unpack(">I", figure(Scene(100.0, 30_000.0), "png")[20:24])
    assert height == pytest.approx(MOST_DOTS, rel=1e-3)


def test_the_same_tree_is_the_same_pdf() -> None:
    scene = draw(TREE, Style())
    pdf = figure(scene, "pdf")
    assert pdf.startswith(b"%PDF")
    assert pdf == figure(scene, "pdf")
    assert f"/MediaBox [ 0 0 {scene.width:.6f}"[:18].encode() in pdf


def test_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *arguments: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(InputError, match="PNG takes matplotlib") as error:
        figure(draw(TREE, Style()), "png")
    assert "mltree[draw]" in str(error.value.hint)


def test_control_characters_are_no_part_of_a_picture() -> None:
    (tree,) = read_written("('a\x01\x1b[31mb':1,'c\td\ne':1,f\ufffe:2);")
    text = svg(draw(tree, Style()))
    root = ET.fromstring(text)
    names = [element.text for element in root.iter() if element.tag.endswith("text")]
    assert set(names) >= {"a\ufffd\ufffd[31mb", "c\ufffdd\ufffde", "f\ufffd"}
