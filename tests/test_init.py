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
from mltree.treesearch.search import search as step
from mltree.models import grammar
assert callable(mltree.search) and mltree.search is not step, mltree.search
assert callable(mltree.model) and callable(mltree.bootstrap)
assert set(mltree.__all__) <= set(dir(mltree))
"""


def test_it_loads_nothing_heavy_and_functions_keep_their_names() -> None:
    subprocess.run([sys.executable, "-W", "error", "-c", LIGHT], check=True, cwd=ROOT)


def test_no_package_has_the_name_of_a_function() -> None:
    packages = {path.parent.name for path in Path(mltree.__file__).parent.glob("*/__init__.py")}
    assert not packages & set(mltree.__all__)


def test_all_names_are_there_and_no_other() -> None:
    for name in mltree.__all__:
        assert getattr(mltree, name) is getattr(mltree, name)
    with pytest.raises(AttributeError, match="'mltree' has no attribute 'serach'"):
        _ = mltree.serach


def test_it_is_typed() -> None:
    assert (ROOT / "mltree" / "py.typed").exists()
