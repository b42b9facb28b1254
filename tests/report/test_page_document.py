"""The page as a file: complete in itself, safe, small, and right in its figures."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import numpy as np
import pytest

from mltree.analyses.simulate import letters, sites
from mltree.data.alignments import Alignment
from mltree.data.alphabet import DNA, PROTEIN
from mltree.data.patterns import compress
from mltree.models.grammar import parse_model
from mltree.report.page import Scale, document, duration, log_ticks, starts_chart, ticks
from mltree.report.record import Facts, PartModel, Point, Subject
from mltree.runs.problem import summarise
from mltree.tree.clades import read_written
from mltree.tree.newick import write_newick
from mltree.tree.topology import uniform_tree

MODELS = {
    "dna": ("GTR{1/3/1/2/4/1}+FU{0.4/0.1/0.2/0.3}+IU{0.1}+G4m{0.5}", DNA),
    "protein": ("LG+G4m{0.7}", PROTEIN),
    "plain": ("JC", DNA),
}

METHODS = """A tree was
sought [1, 2].

[1] Felsenstein J (1981)
    A.
[2] Yang Z (1994) B."""
"""As a log ends."""

LARGEST_PAGE = 3 * 2**20
"""Bytes at 101 taxa."""

VOID = {"meta", "br", "hr", "input", "link", "img"}


class Outline(HTMLParser):
    """What a page is made of; complains about tags that do not match."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.headings: list[str] = []
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(str(value))
            assert name not in {"src", "srcset", "data", "action", "poster"}, value
            if name in {"href", "xlink:href"}:
                self.links.append(str(value))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "h2":
            self.headings.append(data)


def subject_of(kind: str, taxa: int, count: int = 300) -> Subject:
    rng = np.random.default_rng(taxa)
    text, alphabet = MODELS[kind]
    model = parse_model(text, alphabet)
    tree = uniform_tree(taxa, 0.1, rng)
    names = tuple(f"taxon{n}" for n in range(taxa))
    characters = letters(sites(tree, model.arrays(), count, rng), alphabet)
    characters[rng.random(characters.shape) < 0.1] = ord("-")
    read = Alignment(names, characters, "x.phy", alphabet)
    patterns = compress(read)
    (written,) = read_written(write_newick(tree, names))
    return Subject(
        name="run",
        facts=facts(),
        tree=written,
        newick=written.newick(),
        tree_file="run.mltree.bestTree",
        models=[PartModel("noname", f"1-{count}", text, model)],
        summary=summarise(read, patterns),
        patterns=patterns,
        methods=METHODS,
    )


def facts() -> Facts:
    row = {"calls": 10, "bytes_per_second": 1e9, "share_of_copy": 0.5}
    return Facts(
        started={"command": "mltree search <x>", "version": "1", "seed": 1},
        data={"taxa": 9, "sites": 300, "patterns": 200, "path": "x", "file_format": "FASTA",
              "data_type": "DNA", "data_seen": "100% ACGT", "gap_share": 0.1},
        device="a device",
        points=[Point(0.5, -110.0, "start: random 1"), Point(2.0, -100.0, "search done")],
        phases=[(1.0, "phase 1, radius 5")],
        starts=[("random 1", -110.0), ("parsimony 1", -105.0)],
        ends={"starts": 2, "ended": 2, "reached": 1},
        time={"wall": 2.0, "rows": [{"name": "newview", "seconds": 1.5, **row}]},
        finished={"lnl": -100.0, "tree_length": 1.25, "seconds": 1.0},
        notices=["a note"],
    )  # fmt: skip


@pytest.mark.parametrize("kind", MODELS)
def test_a_page_is_whole_and_loads_nothing(kind: str) -> None:
    page = document(subject_of(kind, 12))
    outline = Outline(page)
    assert len(set(outline.ids)) == len(outline.ids)
    assert {link.lstrip("#") for link in outline.links} <= set(outline.ids)
    assert "default-src 'none'" in page
    addresses = set(re.findall(r"https?://[^\s\"'<>)]+", page))
    assert addresses == {"http://www.w3.org/2000/svg"}, "a name space, which nobody fetches"
    assert not re.findall(r"@import|url\(", page)
    assert outline.headings[1:] == [
        "How the search went", "Where time went", "Model", "Alignment", "Settings", "Notes",
        "Methods and citations",
    ]  # fmt: skip


def test_figures_are_the_runs() -> None:
    page = document(subject_of("dna", 12))
    for figure in ("-100.000", "9 × 300", "1.25", "1 of 2", "2.0 s", "newview: 1.500 s, 75.0%"):
        assert figure in page
    assert "mltree search &lt;x&gt;" in page
    assert "<li>Felsenstein J (1981) A.</li><li>Yang Z (1994) B.</li>" in page
    assert "A ↔ G: 3" in page
    assert "rate 0, 10.0% of the sites" in page


def charts_of(page: str) -> list[ET.Element]:
    found = re.findall(r'<svg class="chart".*?</svg>', page)
    return [ET.fromstring(text) for text in found]


@pytest.mark.parametrize("kind", MODELS)
def test_charts_are_inside_their_frames(kind: str) -> None:
    charts = charts_of(document(subject_of(kind, 9)))
    assert len(charts) >= (7 if kind != "plain" else 6)
    for chart in charts:
        _, _, width, height = map(float, chart.attrib["viewBox"].split())
        for mark in chart.iter():
            numbers = [float(mark.attrib[key]) for key in ("x", "cx") if key in mark.attrib]
            assert all(-1 <= number <= width + 1 for number in numbers)
            numbers = [float(mark.attrib[key]) for key in ("y", "cy") if key in mark.attrib]
            assert all(-1 <= number <= height + 1 for number in numbers)
        assert "nan" not in ET.tostring(chart, encoding="unicode").lower().replace("nana", "")


@pytest.mark.parametrize("taxa", [101, 600])
def test_pages_are_small(taxa: int) -> None:
    assert len(document(subject_of("dna", taxa))) < LARGEST_PAGE / (1 if taxa > 101 else 10)


def test_little_is_enough() -> None:
    (tree,) = read_written("(a,b,c);")
    page = document(Subject("x", Facts(), tree, tree.newick(), "x.nwk"))
    assert Outline(page).headings[1:] == ["Methods and citations"]
    assert "3 taxa" in page


def test_names_cannot_break_out() -> None:
    evil = "</script><script>alert(1)</script>"
    (tree,) = read_written(f"('{evil}',b,c);")
    facts = Facts(notices=[evil], started={"command": evil, "version": evil, "seed": None})
    page = document(Subject(evil, facts, tree, tree.newick(), evil))
    assert "alert(1)</script>" not in page
    Outline(page)


def test_many_parts_have_a_table() -> None:
    model = parse_model("GTR{1/3/1/2/4/1}+FC+G4m{0.5}", DNA)
    parts = [PartModel(f"gene{n}", f"{n}-{n + 9}", "GTR+FC+G4m", model) for n in range(60)]
    (tree,) = read_written("(a,b,c);")
    page = document(Subject("x", Facts(), tree, tree.newick(), "x.nwk", models=parts))
    assert page.count("<th>gene") == 60
    assert page.count("exchangeabilities of GTR") == 40
    assert "60 parts" in page


def test_times_are_told_as_people_do() -> None:
    told = [duration(seconds) for seconds in (0.25, 59.94, 245.2, 7380.0)]
    assert told == ["0.2 s", "59.9 s", "4 min 05 s", "2 h 03 min"]


def test_supports_are_named_where_they_are_shown() -> None:
    newick = "((a:1,b:1)90.1/88:1,c:1,d:1);"
    (tree,) = read_written(newick)
    supports = [{"metric": metric, "newick": newick, "mean": 0.9, "branches": 1}
                for metric in ("SH-aLRT", "FBP")]  # fmt: skip
    bootstrap = {"replicates": 150, "converged": False}
    facts = Facts(supports=supports, bootstrap=bootstrap)
    page = document(Subject("x", facts, tree, tree.newick(), "x.nwk"))
    assert "Supports" in Outline(page).headings
    assert "<th>SH-aLRT</th><td>mean 90.0%, 1 branch</td>" in page
    assert "150, not converged by autoMRE (Pattengale et al. 2010)" in page
    assert '"supports": ["SH-aLRT", "bootstrap"]' in page
    assert "Supports: SH-aLRT / bootstrap" in page, "the picture where scripts do not run"
    (other,) = read_written("((a:1,c:1)77:1,b:1,d:1);")
    page = document(Subject("x", facts, other, other.newick(), "x.nwk"))
    assert '"supports": []' in page


def test_equal_starts_stand_in_the_middle_of_a_sane_axis() -> None:
    for spread in (0.0, 1e-12, 1e-7):
        chart = starts_chart([("parsimony 1", -5721.6231), ("random 1", -5721.6231 - spread)])
        root = ET.fromstring(chart)
        labels = [text.text or "" for text in root.iter("text") if text.attrib["class"] == "tick"]
        assert 3 <= len(labels) <= 8
        assert all(len(label) <= 8 for label in labels)
        places = [float(dot.attrib["cx"]) for dot in root.iter("circle")]
        assert places == pytest.approx([(110 + 1060 - 24) / 2] * 2, abs=0.1)


def test_ticks_are_round_and_few() -> None:
    for low, high in ((0.0, 23.9), (-57000.0, -52000.0), (0.0, 1e-3), (3.0, 3.0)):
        found = ticks(low, high, 8)
        assert 1 <= len(found) <= 10
        assert all(low - 1e-9 <= value <= high + 1e-9 * abs(high) + 1e-12 for value in found)
    assert log_ticks(0.01, 500.0) == pytest.approx([0.01, 0.1, 1, 10, 100])
    assert Scale(0.0, 0.0, 5.0, 9.0)(0.0) == 5.0
