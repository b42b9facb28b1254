"""Replicates in slots and under rows of weights: the same trees, and bits that nothing moves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mltree.analyses.bootstrap import Bootstrap, prepare_bootstrap
from mltree.device.discovery import REFERENCE
from mltree.fit.settings import REPLICATE
from mltree.models.partitioned import Linkage
from mltree.runs.engines import EnginePlan, Engines, ReplicateLikelihood, Resources
from mltree.runs.problem import Problem, read_problem
from mltree.runs.workspace import Entry, MemoryJournal
from mltree.treesearch.replicates import PatternSlots, WeightRows

REPLICATES = 5
MODELS = {"dna": "HKY{3}+FU{0.3/0.2/0.2/0.3}+G2{0.5}", "protein": "LG+G2{0.7}"}
LETTERS = {"dna": "ACGT", "protein": "ACDEFGHIKLMNPQRSTVWY"}
SETTINGS = REPLICATE.nni_only()

CLOSE = 1e-6
"""lnL that another order of sums makes of a tree, steps of its branch lengths among it."""


def written(path: Path, taxa: int, sites: int, letters: str, seed: int) -> str:
    """Random sequences that descend from each other, in few different columns twice."""
    rng = np.random.default_rng([8, seed])
    rows = [rng.choice(list(letters), sites)]
    while len(rows) < taxa:
        changes = rng.random(sites) < 0.15
        parent = rows[rng.integers(len(rows))]
        rows.append(np.where(changes, rng.choice(list(letters), sites), parent))
    path.write_text("".join(f">t{n}\n{''.join(row)}\n" for n, row in enumerate(rows)))
    return str(path)


@pytest.fixture
def lone(tmp_path: Path) -> Problem:
    return read_problem(written(tmp_path / "x.fa", 7, 150, LETTERS["dna"], 1), MODELS["dna"])


def parted(folder: Path, model: str = "") -> str:
    """A partition file of three parts; models that are given, so that none is fitted."""
    spans = ("1-60", "61-75", "76-150")
    path = folder / "parts"
    path.write_text("".join(
        f"{model or MODELS['dna']}, part{n} = {span}\n" for n, span in enumerate(spans)
    ))  # fmt: skip
    return str(path)


def searched(bootstrap: Bootstrap, count: int = REPLICATES) -> dict[int, Entry]:
    journal = MemoryJournal()
    bootstrap.run(count, journal)
    return dict(journal.done)


def problem_of(kind: str, folder: Path, seed: int) -> Problem:
    """DNA, a protein, or parts by their branch lengths."""
    letters = LETTERS.get(kind, "ACGT")
    path = written(folder / "x.fa", 7, 150, letters, seed)
    if kind in MODELS:
        return read_problem(path, MODELS[kind])
    return read_problem(path, parted(folder), linkage=Linkage(kind))


@pytest.mark.cases(1, 20)
@pytest.mark.parametrize("kind", ["dna", "protein", "linked", "scaled", "unlinked"])
def test_replicates_are_those_under_rows_of_weights(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: int
) -> None:
    """And to the bit the same in any number of slots, with any others and in slots of any size.

    What rounding decides, a tree that is as good, is no difference.
    """
    bootstrap = prepare_bootstrap(problem_of(kind, tmp_path, case), SETTINGS, replicates=REPLICATES)
    assert bootstrap.engines.has_replicate_slots
    found = searched(bootstrap)

    with_replicate_slots = EnginePlan.with_replicate_slots

    def few(*arguments: Any) -> EnginePlan:
        plan, patterns, sizes, most, trees = arguments
        return with_replicate_slots(
            plan, patterns, [size + 7 for size in sizes], min(2, most), trees
        )

    with monkeypatch.context() as patched:
        patched.setattr(EnginePlan, "with_replicate_slots", few)
        assert searched(bootstrap) == found
    shared = prepare_bootstrap(
        bootstrap.problem, SETTINGS, Resources(device="0,0"), replicates=REPLICATES
    )
    assert searched(shared) == found
    assert searched(bootstrap, 2) == {k: found[k] for k in (1, 2)}
    monkeypatch.setattr(Engines, "has_replicate_slots", False)
    under_rows = searched(bootstrap)
    for number, entry in found.items():
        assert under_rows[number].lnl == pytest.approx(entry.lnl, abs=CLOSE)


def test_what_replicates_are_searched_with(tmp_path: Path, lone: Problem) -> None:
    """Slots but where patterns without a weight are needed, or the engine has none."""
    path = str(tmp_path / "x.fa")
    everywhere = [
        (lone, Resources(), True),
        (lone, Resources(mixed=True), True),
        (lone, Resources(device=REFERENCE), False),
        (lone, Resources(device="0,0"), True),
        (read_problem(path, "JC+PSR", site_rates=True), Resources(), False),
        (read_problem(path, parted(tmp_path)), Resources(), True),
    ]
    for problem, resources, expected in everywhere:
        ready = prepare_bootstrap(problem, SETTINGS, resources, replicates=3)
        assert ready.engines.has_replicate_slots == expected
        with ready.engines.for_replicates(ready.replicates, [1, 2, 3], 3) as (likelihood, slots):
            assert isinstance(likelihood, ReplicateLikelihood) == expected
            assert isinstance(slots, PatternSlots if expected else WeightRows)
            assert 1 <= slots.count <= 3


def test_the_fingerprint_tells_which(lone: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their last digits differ."""
    ready = prepare_bootstrap(lone, SETTINGS, replicates=3)
    before = ready.head.fingerprint
    monkeypatch.setattr(Engines, "has_replicate_slots", False)
    assert ready.head.fingerprint != before
