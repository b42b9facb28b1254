"""Results as a notebook and JSON show them."""

from __future__ import annotations

import json

import mltree
from mltree.runs.results import table


def test_a_result_shows_itself(sequences: dict[str, str]) -> None:
    tree = "(t0:0.1,t1:0.1,(t2:0.1,(t3:0.1,(t4:0.1,(t5:0.1,t6:0.1):0.1):0.1):0.1):0.1);"
    found = mltree.evaluate(sequences, tree, "JC", device="reference")
    page = found._repr_html_()
    for text in (f"{found.lnl:.4f}", "JC", "7 taxa × 60 sites", "<svg", ">t6</text>"):
        assert text in page
    assert f"lnL: {found.lnl:.4f}" in str(found)
    assert repr(found).startswith(f"Evaluation(lnL={found.lnl:.4f}, model=JC, data=7 taxa × 60")
    values = json.loads(found.to_json())
    assert values["data"] == {
        "type": "DNA", "taxa": 7, "sites": 60, "patterns": found.problem.n_patterns
    }  # fmt: skip
    assert values["timings"].keys() == {"total", "run", "device"}
    assert found.model == "JC"


def test_tables_are_escaped() -> None:
    assert table([["<b>", "&"]], ["x"]) == (
        "<table><tr><th>x</th></tr><tr><td>&lt;b&gt;</td><td>&amp;</td></tr></table>"
    )
