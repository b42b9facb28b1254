"""Words that options take, and words that analyses know."""

from __future__ import annotations

import subprocess
import sys

import pytest

from mltree.analyses import ancestral, options, simulate, tree_tests
from mltree.analyses.options import RunOptions, SearchOptions
from mltree.fit.settings import PRESETS
from mltree.models.partitioned import Linkage
from mltree.runs.model_choice import Criterion
from mltree.runs.options import AnalysisOptions


def test_choices_are_what_analyses_know() -> None:
    assert set(options.PRESETS) == set(PRESETS)
    for cls, name, known in (
        (AnalysisOptions, "brlen", Linkage),
        (options.ModelChoiceOptions, "criterion", Criterion),
        (options.SimulateOptions, "random_tree", simulate.SHAPES),
        (options.AncestralOptions, "file_format", ancestral.FORMATS),
        (options.SiteLnlOptions, "file_format", tree_tests.FORMATS),
    ):
        assert set(cls.described()[name].choices) == {
            str(getattr(one, "value", one)) for one in known
        }


def test_a_run_is_a_search() -> None:
    assert set(RunOptions.described()) <= set(SearchOptions.described())


def test_loci_are_several_alignments() -> None:
    assert not SearchOptions(alignment="a.phy").has_loci
    assert SearchOptions(alignment="a.phy", separate=True).has_loci
    assert SearchOptions(alignment="a.phy", alignments=("a.phy", "b.phy")).has_loci


@pytest.mark.parametrize(
    ("modules", "absent"),
    [
        ("mltree.analyses.options", {"numpy", "pyopencl", "rich", "typer", "scipy"}),
        (
            "mltree.analyses.search, mltree.analyses.tree_sets, mltree.runs.results",
            {"rich", "typer", "click"},
        ),
    ],
)
def test_options_load_nothing_heavy_and_the_library_no_command_line(
    modules: str, absent: set[str]
) -> None:
    test = f"import sys, {modules}; assert not {absent} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", test], check=True)
