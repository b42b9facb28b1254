"""Trees and results for auspice, iTOL and MultiQC, by what those programs ask for."""

from __future__ import annotations

import json
import re
from datetime import date
from typing import Any

import pytest

from mltree.analyses.convert import auspice, itol, multiqc
from mltree.system.errors import InputError
from mltree.tree.clades import read_written

NEWICK = "(a:0.1,(b:0.2,'c d':0.3)95:0.05,(NODE_0000001:1,e:1)90.1/47.5:0.5);"
(TREE,) = read_written(NEWICK)


def every(node: dict[str, Any]) -> list[dict[str, Any]]:
    return [node, *(below for child in node.get("children", []) for below in every(child))]


def test_auspice_has_what_its_schema_requires() -> None:
    document = json.loads(auspice(TREE, "x.support", date(2026, 5, 4)))
    assert document["version"] == "v2"
    assert document["meta"]["updated"] == "2026-05-04"
    assert document["meta"]["panels"] == ["tree"]
    assert [one["key"] for one in document["meta"]["colorings"]] == ["support"]
    nodes = every(document["tree"])
    names = [node["name"] for node in nodes]
    assert len(set(names)) == len(names) == 8
    assert {"a", "b", "c d", "e", "NODE_0000001"} <= set(names)
    divergence = {node["name"]: node["node_attrs"]["div"] for node in nodes}
    assert divergence["c d"] == pytest.approx(0.35)
    assert document["tree"]["node_attrs"]["div"] == 0
    supports = [node["node_attrs"].get("support") for node in nodes if "children" in node]
    assert supports == [None, {"value": 95.0}, {"value": 47.5}]
    for node in nodes:
        assert set(node) <= {"name", "node_attrs", "children"}
        assert node.get("children", [{}]), "no empty list"


def test_auspice_without_supports() -> None:
    (plain,) = read_written("(a,b,(c,d));")
    document = json.loads(auspice(plain, "x", date(2026, 5, 4)))
    assert document["meta"]["colorings"] == []


def test_itol_names_nodes_by_two_tips() -> None:
    lines = itol(TREE).splitlines()
    assert lines[:2] == ["DATASET_SYMBOL", "SEPARATOR TAB"]
    rows = [line.split("\t") for line in lines[lines.index("DATA") + 1 :]]
    assert [(row[0], row[1], float(row[2]), row[6]) for row in rows] == [
        ("b|c d", "2", 10.0, "95"),
        ("NODE_0000001|e", "2", 5.0, "90.1/47.5"),
    ]
    (plain,) = read_written("(a,b,(c,d));")
    assert itol(plain).endswith("DATA\n")


def test_multiqc_has_a_row_for_a_sample() -> None:
    result = {"lnl": -12.5, "model": "GTR{1/1}+FC", "tree_length": 0.5, "seconds": 2.0,
              "data": {"type": "DNA", "taxa": 4, "sites": 9, "patterns": 7}}  # fmt: skip
    content = json.loads(multiqc("frogs", result))
    assert content["plot_type"] == "table"
    row = content["data"]["frogs"]
    assert (row["lnl"], row["taxa"], row["patterns"]) == (-12.5, 4, 7)
    assert row.keys() == content["headers"].keys()


@pytest.mark.parametrize("tips", [100, 1000])
def test_auspice_of_a_tree_of_any_depth(tips: int) -> None:
    """However deep, it is the same tree; the deep one is read without json, which ends there."""
    newick = f"({'(' * (tips - 2)}t0:1,t1:1)"
    newick += "".join(f":0.5,t{n}:1)" for n in range(2, tips - 1)) + f":0.5,t{tips - 1}:1);"
    text = auspice(read_written(newick)[0], "x", date(2026, 5, 4))
    assert text.count('"children"') == tips - 1
    assert (text.count("\n") == 1) == (tips > 200)
    names = re.findall(r'"name": "(t\d+)"', text)
    assert names == [f"t{n}" for n in range(tips)]
    depth = [0]
    for mark in re.findall(r"[{}]", text):
        depth.append(depth[-1] + (1 if mark == "{" else -1))
    assert depth[-1] == 0
    assert max(depth) == tips + 2


def test_both_ways_of_writing_auspice_are_the_same_json(monkeypatch: pytest.MonkeyPatch) -> None:
    indented = auspice(TREE, "x", date(2026, 5, 4))
    monkeypatch.setattr("mltree.analyses.convert.DEEPEST", 0)
    assert json.loads(auspice(TREE, "x", date(2026, 5, 4))) == json.loads(indented)


@pytest.mark.parametrize("name", ["a\tb", "a|b", "a\nb"])
def test_itol_refuses_names_that_its_table_cannot_hold(name: str) -> None:
    (tree,) = read_written(f"('{name}':1,b:1,(c:1,d:1)9:1);")
    with pytest.raises(InputError, match="iTOL's table cannot hold"):
        itol(tree)
