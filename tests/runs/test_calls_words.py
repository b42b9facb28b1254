"""Arguments of Python become options, and messages of commands speak of arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mltree
from mltree.analyses.options import (
    BranchTestOptions,
    ModelChoiceOptions,
    RunOptions,
    SearchOptions,
    SimulateOptions,
)
from mltree.runs.calls import in_python, taking
from mltree.runs.options import Options
from mltree.system.errors import InputError

ROWS = {name: name * 8 for name in "ACGT"}


@pytest.mark.parametrize(
    ("text", "said", "options"),
    [
        ("--sh-alrt 0: too few", "sh_alrt=0: too few", SearchOptions),
        ("--bootstrap yes: a number", "bootstrap='yes': a number", SearchOptions),
        ("--merge goes with --model auto", "merge=True goes with model='auto'", SearchOptions),
        ("give --gene-trees, --alignment or both", "give gene_trees=, alignment= or both", None),
        ("or --gaps-from, which has", "or gaps_from=, which has", SimulateOptions),
        ("--sites 1000", "sites=1000", SimulateOptions),
        ("use --brlen scaled or linked", "use brlen='scaled' or linked", SearchOptions),
        ("`mltree model --merge`", "`mltree.model(merge=True)`", ModelChoiceOptions),
        ("else --ufboot 1000.", "else ufboot=1000.", RunOptions),
        ("--type: 'x' is none", "kind: 'x' is none", mltree.analyses.tree_options.ConsensusOptions),
        ("a -- b, x--y", "a -- b, x--y", None),
        ("without --redo", "without redo=True", SearchOptions),
        ("--model LG+C20+F fits", "model='LG+C20+F' fits", SearchOptions),
    ],
)
def test_messages(text: str, said: str, options: type[Options] | None) -> None:
    assert in_python(text, options) == said
    assert in_python(said, options) == said, "once is enough"


@taking(SearchOptions, "model")
def asked(options: SearchOptions, source: object, call: object) -> SearchOptions:
    """Return its options."""
    return options


@taking(BranchTestOptions, "tree")
def with_a_tree(options: BranchTestOptions, source: object, call: object) -> BranchTestOptions:
    """Return its options."""
    return options


@pytest.mark.parametrize(
    ("keywords", "name", "value"),
    [
        ({"bootstrap": 100}, "bootstrap", "100"),
        ({"bootstrap": np.int64(7)}, "bootstrap", "7"),
        ({"sh_alrt": 1e3}, "sh_alrt", 1000),
        ({"sh_alrt": np.int32(5)}, "sh_alrt", 5),
        ({"collapse": 1}, "collapse", 1.0),
        ({"abayes": np.True_}, "abayes", True),
        ({"outgroup": ["A", "C"]}, "outgroup", "A,C"),
        ({"metric": ("fbp", "tbe")}, "metric", "fbp,tbe"),
        ({"device": 0}, "device", "0"),
        ({"memory_limit": 1 << 30}, "memory_limit", str(1 << 30)),
        ({"start": "pars{2}"}, "tree", "pars{2}"),
        ({"seed": None}, "seed", 1),
        ({"brlen": "LINKED"}, "brlen", "linked"),
        ({"threads": 2}, "threads", 2),
        ({"model": mltree.ModelParameters("K80", rates=2.0)}, "model", "K80{2.0}"),
    ],
)
def test_values(keywords: dict[str, Any], name: str, value: object) -> None:
    found = getattr(asked(ROWS, **keywords), name)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (lambda: asked(ROWS, seed="x"), "seed='x' is not a whole number"),
        (lambda: asked(ROWS, seed=True), "seed=True is not a whole number"),
        (lambda: asked(ROWS, sh_alrt=2.5), "sh_alrt=2.5 is not a whole number"),
        (lambda: asked(ROWS, collapse="x"), "collapse='x' is not a number"),
        (lambda: asked(ROWS, collapse=-1), r"collapse=-1\.0: '-1\.0' is not a branch length"),
        (lambda: asked(ROWS, alrt=1), "alrt=1 is neither True nor False"),
        (lambda: asked(ROWS, outgroup={"A": 1}), "outgroup={'A': 1} is not text"),
        (lambda: asked(ROWS, threads=0), "threads=0: 1 at least, please"),
        (lambda: asked(ROWS, data_type="ink"), "data_type='ink': unknown data type 'ink'"),
        (lambda: asked(ROWS, moves="tbr"), "moves='tbr' is not one of spr, nni"),
        (lambda: with_a_tree(ROWS, "(A,C,(G,T));", replicates=0), "replicates=0: 1 at least"),
        (lambda: mltree.search(ROWS, bnni=True), "bnni=True improves the replicates of ufboot="),
        (lambda: mltree.search(ROWS, sh_alrt=0), "sh_alrt=0: between 1 and 1,000,000"),
        (lambda: mltree.simulate("JC", taxa=5), "sites= is missing"),
        (lambda: mltree.alrt(ROWS, "(A,C,(G,T));", tests="x"), "tests: 'x' is not one of sh-alrt"),
    ],
)
def test_values_that_cannot_be(call: Callable[[], object], line: str) -> None:
    with pytest.raises(InputError, match=line) as raised:
        call()
    assert "--" not in f"{raised.value} {raised.value.hint}"


def test_arguments_that_are_none() -> None:
    with pytest.raises(TypeError, match=r"asked\(\) got an unexpected .* did you mean 'preset'"):
        asked(ROWS, prest="fast")
    with pytest.raises(TypeError, match=r"with_a_tree\(\) missing a required argument: 'tree'"):
        with_a_tree(ROWS)


def test_every_function_says_what_it_takes_and_raises() -> None:
    for name in ("search", "run", "evaluate", "bootstrap", "model", "alrt", "test", "ancestral",
                 "check", "simulate", "draw", "distances"):  # fmt: skip
        function = getattr(mltree, name)
        text = inspect.getdoc(function) or ""
        assert "--" not in text.replace("----", "")
        assert all(f"\n{one}  " in text for one in inspect.signature(function).parameters), name
        assert "InputError: " in text
    assert all(hasattr(mltree, name) for name in mltree.__all__)
