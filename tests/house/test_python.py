"""The examples of docs/python.md run, one after the other, and so does the notebook."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

EXAMPLES = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "python.md").read_text(), re.DOTALL)

NOTEBOOK = json.loads((ROOT / "docs" / "notebook.ipynb").read_text())
CELLS = ["".join(cell["source"]) for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder that has the data sets and nothing else."""
    (tmp_path / "datasets").symlink_to(ROOT / "datasets")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def shown(cell: str, names: dict[str, object]) -> object:
    """Run a cell; the value of its last line, which a notebook would show."""
    *lines, last = ast.parse(cell).body
    assert isinstance(last, ast.Expr)
    exec(compile(ast.Module(lines, []), "docs/notebook.ipynb", "exec"), names)
    value: object = eval(compile(ast.Expression(last.value), "docs/notebook.ipynb", "eval"), names)
    return value


def test_the_notebook_runs(elsewhere: Path) -> None:
    names: dict[str, object] = {}
    result, tree, supports, drawing, lnls, slope, distance = (shown(one, names) for one in CELLS)
    assert "HKY" in result._repr_html_()
    assert "<svg" in tree._repr_html_()
    assert len(supports) == 9
    assert ">Lemur_catta</text>" in drawing._repr_svg_()
    assert max(lnls, key=lnls.get) == "GTR+G4"
    assert slope < 5.0, "where the curvature is in the hundreds"
    assert 0 <= distance <= 18
    assert {path.name for path in elsewhere.iterdir()} == {"datasets"}


def test_examples_run(elsewhere: Path) -> None:
    names: dict[str, object] = {}
    for example in EXAMPLES:
        exec(compile(example, "docs/python.md", "exec"), names)
    assert len(EXAMPLES) >= 8
    assert {path.name for path in elsewhere.iterdir()} == {"datasets"}
