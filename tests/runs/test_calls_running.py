"""Searches, evaluations and bootstraps from Python: the commands' own figures."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import mltree
from mltree.cli.main import app
from mltree.system.errors import InputError, ModelError
from mltree.system.events import Event, RoundDone

FAST = {"model": "HKY+G4", "preset": "fast"}
OPTIONS = ("--model", "HKY+G4")


def run(*arguments: str) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output


def read(path: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(Path(path).read_text())
    return found


def shared(api: dict[str, object], command: dict[str, object]) -> None:
    """All that both tell is the same, to the last bit; but for how long it took."""
    names = (api.keys() & command.keys()) - {"seconds"}
    assert names >= {"command", "format", "version", "lnl", "tree", "model", "tree_length", "data"}
    for name in names:
        assert api[name] == command[name], name


@pytest.mark.parametrize("prefix", [None, "there"])
def test_a_search_with_supports_is_the_commands(file: str, prefix: str | None) -> None:
    more = ("--preset", "fast", "--bootstrap", "5", "--sh-alrt", "100", "--abayes")
    run("search", file, *OPTIONS, *more, "--prefix", "x")
    found = mltree.search(file, bootstrap=5, sh_alrt=100, abayes=True, prefix=prefix, **FAST)
    shared(json.loads(found.to_json()), read("x.mltree.json"))
    assert {"fbp", "sh-alrt", "abayes"} <= found.to_dict()["supports"].keys()
    assert found.seed == 1
    assert found.tree.newick == Path("x.mltree.support").read_text().strip()
    assert found.bootstrap is not None
    assert found.bootstrap.converged is None
    trees = Path("x.mltree.bootstraps").read_text().split()
    assert [str(tree) for tree in found.bootstrap.trees] == trees
    assert str(found.bootstrap.consensus) == Path("x.mltree.consensusTreeMR").read_text().strip()
    assert found.supports == found.tree.supports
    assert len(found.supports) == 4
    assert found.site_lnl.sum() == pytest.approx(found.lnl, rel=1e-9)
    assert found.timings["total"] > found.timings["run"] > 0
    assert Path("there.mltree.bestTree").exists() == (prefix is not None)


@pytest.mark.parametrize("prefix", [None, "there"])
def test_the_ultrafast_bootstrap_is_the_commands(file: str, prefix: str | None) -> None:
    more = ("--preset", "fast", "--ufboot", "1000", "--sh-alrt", "100")
    run("search", file, *OPTIONS, *more, "--prefix", "x")
    found = mltree.search(file, ufboot=1000, sh_alrt=100, prefix=prefix, **FAST)
    shared(json.loads(found.to_json()), read("x.mltree.json"))
    assert {"ufboot", "sh-alrt"} <= found.to_dict()["supports"].keys()
    assert found.tree.newick == Path("x.mltree.support").read_text().strip()
    assert found.bootstrap is not None
    assert found.bootstrap.converged is not None
    trees = Path("x.mltree.ufboot").read_text().split()
    assert [str(tree) for tree in found.bootstrap.trees] == trees
    assert str(found.bootstrap.consensus) == Path("x.mltree.contree").read_text().strip()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"ufboot": 100}, "are possible"),
        ({"bnni": True}, "improves the replicates"),
        ({"ufboot": 1000, "bootstrap": 10}, "exclude each other"),
    ],
)
def test_ultrafast_bootstraps_that_cannot_be(
    file: str, options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InputError, match=problem):
        mltree.search(file, **options, **FAST)


def test_memory_leaves_no_file(sequences: dict[str, str], file: str) -> None:
    before = set(Path().iterdir())
    one = mltree.search(sequences, bootstrap=2, **FAST)
    other = mltree.search(file, **FAST)
    assert (one.lnl, one.result.tree.lengths.tolist()) == (
        other.lnl,
        other.result.tree.lengths.tolist(),
    )
    assert one.bootstrap is not None
    assert not other.supports
    assert set(Path().iterdir()) == before


def test_sequences_with_a_prefix_are_in_a_file_to_go_on_from(
    sequences: dict[str, str], file: str
) -> None:
    found = mltree.search(sequences, prefix="run", **FAST)
    assert Path("run.mltree.fasta").read_text() == Path(file).read_text()
    assert Path("run.mltree.bestTree").read_text().strip() == found.tree.newick
    assert found.taxa == tuple(sorted(sequences))
    with pytest.raises(InputError, match="already exists"):
        mltree.search(sequences, prefix="run", **FAST)
    assert mltree.search(sequences, prefix="run", redo=True, **FAST).lnl == found.lnl


def test_an_interrupt_leaves_all_in_order(sequences: dict[str, str], file: str) -> None:
    wanted = mltree.search(sequences, **FAST).lnl

    def interrupt(event: Event) -> None:
        if isinstance(event, RoundDone):
            raise KeyboardInterrupt

    for prefix in (None, "run"):
        with pytest.raises(KeyboardInterrupt):
            mltree.search(sequences, prefix=prefix, progress=interrupt, **FAST)
        assert mltree.search(sequences, prefix=prefix, **FAST).lnl == wanted


def test_threads_take_turns(sequences: dict[str, str]) -> None:
    found: list[float] = []

    def call() -> None:
        found.append(mltree.search(sequences, **FAST).lnl)

    threads = [threading.Thread(target=call) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3
    assert len(set(found)) == 1


PARTS = "HKY+G2, one = 1-40\nJC, two = 41-60\n"


@pytest.mark.parametrize("brlen", ["scaled", "unlinked"])
@pytest.mark.parametrize("fixed", [False, True])
def test_an_evaluation_is_the_commands(file: str, brlen: str, fixed: bool) -> None:
    Path("parts").write_text(PARTS)
    tree = "(t0:0.1,t1:0.2,(t2:0.1,(t3:0.1,(t4:0.1,(t5:0.1,t6:0.2):0.1):0.1):0.1):0.1);"
    Path("tree").write_text(tree)
    options = ["--model", "parts", "--brlen", brlen, "--device", "reference", "--site-lnl"]
    options += ["--no-opt-model", "--no-opt-branches"] if fixed else []
    run("evaluate", file, "--tree", "tree", *options, "--prefix", "x")
    found = mltree.evaluate(
        file, tree, "parts", brlen=brlen, device="reference",
        optimise_model=not fixed, optimise_branches=not fixed,
    )  # fmt: skip
    shared(found.to_dict(), read("x.mltree.eval.json"))
    assert found.model == Path("x.mltree.evalModel").read_text()
    assert [f"{value:.10f}" for value in found.site_lnl] == Path(
        "x.mltree.siteLnL"
    ).read_text().split()
    trees = [str(tree) for tree in found.part_trees]
    if brlen == "unlinked":
        assert trees == Path("x.mltree.evalPartitionTrees").read_text().split()
    else:
        assert not trees


def test_a_bootstrap_is_the_commands(file: str) -> None:
    tree = "(t0,t1,(t2,(t3,(t4,(t5,t6)))));"
    Path("tree").write_text(tree)
    run("bootstrap", file, "-N", "4", "--tree", "tree", "--metric", "tbe", *OPTIONS, "-p", "x")
    found = mltree.bootstrap(file, "HKY+G4", replicates=4, tree="tree", metric="tbe")
    assert [str(tree) for tree in found.trees] == Path("x.mltree.bootstraps").read_text().split()
    assert str(found.tree) == Path("x.mltree.support").read_text().strip()
    assert found.supports == found.tree.supports
    alone = mltree.bootstrap(file, "HKY+G4", replicates=2, moves="nni")
    assert alone.tree is None
    assert alone.supports == alone.consensus.supports


def test_names_of_taxa_may_have_blanks(sequences: dict[str, str]) -> None:
    named = {f"Homo {name}": row for name, row in sequences.items()}
    found = mltree.bootstrap(named, "JC", replicates=2)
    assert [set(tree.taxa) for tree in found.trees] == [named.keys()] * 2
    assert set(found.consensus.taxa) == named.keys()


@pytest.mark.parametrize(
    ("call", "error", "line"),
    [
        (lambda: mltree.search("no.fa"), InputError, "no.fa: no such file"),
        (lambda: mltree.search({"a": "ACGT"}), InputError, "the alignment: 1 taxon; a tree needs"),
        (lambda: mltree.search({}), InputError, "the alignment: there are no sequences"),
        (
            lambda: mltree.search({"a": "AC", "b": "A", "c": "AC", "d": "AC"}),
            InputError,
            "the alignment: taxon b has 1 sites, but a has 2",
        ),
        (
            lambda: mltree.search([("a", "AC")] * 4),
            InputError,
            "the alignment: taxon a occurs 4 times",
        ),
        (
            lambda: mltree.search(dict.fromkeys("abcd", "ACGT"), "GTR+Q4"),
            ModelError,
            "Q4",
        ),
        (
            lambda: mltree.search(dict.fromkeys("abcd", "ACGT"), preset="slow"),
            InputError,
            "preset='slow' is not one of fast, default, thorough",
        ),
        (
            lambda: mltree.search(dict.fromkeys("abcd", "ACGT"), bootstrap=0),
            InputError,
            "bootstrap=0: a number from 1",
        ),
        (
            lambda: mltree.evaluate(dict.fromkeys("abcd", "ACGT"), "(a,b,(c,e));"),
            InputError,
            "'e' is in the tree but not in the alignment",
        ),
        (lambda: mltree.rf("a\nb", "(a,b,c);"), InputError, "a b: no such file"),
        (
            lambda: mltree.bootstrap(dict.fromkeys("abcd", "ACGT"), replicates=0),
            InputError,
            "replicates=0: a number from 1",
        ),
        (
            lambda: mltree.bootstrap(dict.fromkeys("abcd", "ACGT"), "auto"),
            InputError,
            "model='auto' is chosen by search",
        ),
    ],
)
def test_what_cannot_be_used_is_one_line(
    call: Callable[[], object], error: type[Exception], line: str, file: str
) -> None:
    with pytest.raises(error) as raised:
        call()
    assert line in str(raised.value)
    assert "\n" not in str(raised.value)


def test_the_line_is_the_commands(file: str) -> None:
    Path("bad.fa").write_text(Path(file).read_text().replace(">t1\n", ">t1\n@", 1))
    result = CliRunner().invoke(app, ["search", "bad.fa", "--prefix", "x"])
    with pytest.raises(InputError) as raised:
        mltree.search("bad.fa")
    assert str(raised.value) in result.stderr
    assert raised.value.taxon is None or raised.value.taxon == "t1"


def test_nothing_is_printed(sequences: dict[str, str], capfd: pytest.CaptureFixture[str]) -> None:
    mltree.evaluate(sequences, "(t0,t1,(t2,(t3,(t4,(t5,t6)))));", "JC", device="reference")
    assert capfd.readouterr() == ("", "")


def test_a_constraint_and_starts(sequences: dict[str, str]) -> None:
    found = mltree.search(
        sequences, constraint="((t0,t6),t1,t2,t3,t4,t5);", start="rand{1}", seed=2, moves="nni",
        **FAST,
    )  # fmt: skip
    assert any(side in ({"t0", "t6"}, {f"t{n}" for n in range(1, 6)}) for side in _sides(found))
    again = mltree.search(sequences, start=found.tree, **FAST)
    assert again.lnl >= found.lnl - 1e-3
    assert np.isfinite(again.lnl)


def _sides(found: mltree.SearchResult) -> list[frozenset[str]]:
    return list(mltree.support(found.tree, found.tree).supports)
