"""``import mltree``: light, and its names stay what they are whatever is imported later."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import mltree

ROOT = Path(__file__).parents[1]

LIGHT = """
import sys, mltree
assert not {"numpy", "pyopencl", "rich", "typer", "ete3"} & set(sys.modules), sys.modules.keys()
from mltree.search.driver import search as step
from mltree.model import grammar
assert callable(mltree.search) and mltree.search is not step, mltree.search
assert callable(mltree.model) and callable(mltree.bootstrap)
assert set(mltree.__all__) <= set(dir(mltree))
"""

NAMESAKES = """
import inspect, pickle
import mltree.{name}.{part} as part
import mltree, sys
assert part is sys.modules["mltree.{name}.{part}"] is mltree.{name}.{part}
from mltree.{name} import {part}
assert {part} is part
from mltree import {name} as function
assert function is mltree.{name} and function.__name__ == "{name}"
assert "data_type" in inspect.signature(function).parameters
assert pickle.loads(pickle.dumps(function)) is function
"""


def test_it_loads_nothing_heavy_and_functions_keep_their_names() -> None:
    subprocess.run([sys.executable, "-W", "error", "-c", LIGHT], check=True, cwd=ROOT)


@pytest.mark.parametrize(("name", "part"), [("search", "state"), ("model", "grammar")])
def test_a_package_with_a_functions_name_is_imported_as_any(name: str, part: str) -> None:
    code = NAMESAKES.format(name=name, part=part)
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, cwd=ROOT)


def test_packages_with_a_functions_name_are_known() -> None:
    packages = {path.parent.name for path in Path(mltree.__file__).parent.glob("*/__init__.py")}
    assert packages & set(mltree.__all__) == {"search", "model"}


def test_all_names_are_there_and_no_other() -> None:
    for name in mltree.__all__:
        assert getattr(mltree, name) is getattr(mltree, name)
    with pytest.raises(AttributeError, match="'mltree' has no attribute 'serach'"):
        _ = mltree.serach


def test_it_is_typed() -> None:
    assert (ROOT / "mltree" / "py.typed").exists()
