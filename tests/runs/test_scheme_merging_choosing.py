"""What a choice begins with: a quick tree, to which many parts of a kind are one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mltree.analyses.simulate import letters, sites
from mltree.data.alphabet import DNA, PROTEIN
from mltree.data.patterns import Patterns
from mltree.fit.coordinate_ascent import ascend
from mltree.fit.fits import Fit
from mltree.fit.settings import PRESETS
from mltree.likelihood.requests import perform
from mltree.models.grammar import parse_model
from mltree.models.partitioned import Linkage, alone
from mltree.program.cases import Case
from mltree.runs import scheme as merging
from mltree.runs.engines import Engines, Resources, Workload
from mltree.runs.problem import Problem, load_problem
from mltree.system.events import Event, MemoryPlanned, ignore
from mltree.tree.topology import uniform_tree

ENDS = (("DNA", 1, 80), ("AA", 81, 110), ("DNA", 111, 200), ("AA", 201, 260), ("DNA", 261, 300))
"""Parts by their data types, in no order."""


def mixed(folder: Path, linkage: Linkage, only: str = "DNA AA") -> Problem:
    """Nucleotides and amino acids that evolved on one tree."""
    rng = np.random.default_rng(17)
    tree = uniform_tree(9, 0.15, rng)
    models = {"DNA": ("HKY{4}+FU{0.4/0.1/0.2/0.3}", DNA), "AA": ("JTT", PROTEIN)}
    columns, lines, first = [], [], 1
    for number, (kind, start, end) in enumerate(ENDS):
        if kind in only.split():
            text, alphabet = models[kind]
            count = end - start + 1
            states = sites(tree, parse_model(text, alphabet).arrays(), count, rng)
            columns.append(letters(states, alphabet))
            lines.append(f"{kind}, part{number} = {first}-{first + count - 1}\n")
            first += count
    rows = [bytes(row).decode() for row in np.concatenate(columns, axis=1)]
    (folder / "data.fa").write_text("".join(f">t{n}\n{row}\n" for n, row in enumerate(rows)))
    (folder / "data.part").write_text("".join(lines))
    return load_problem(
        str(folder / "data.fa"), None, ignore, None, linkage, str(folder / "data.part"),
        chooses=True,
    )  # fmt: skip


CPU = Resources(device="cpu")


class Asked(list[tuple[Patterns, Any, Any]]):
    """What models were to be chosen of: patterns, tree, and what was known."""

    def choose(self, patterns: Patterns, names: Sequence[str], tree: Any, *rest: Any) -> list[Any]:
        """In place of a choice."""
        assert len(names) == len(patterns.parts)
        self.append((patterns, tree, rest[-1]))
        return [None] * len(names)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Of choices that begin with parts as one, as a CPU's do: a GPU has room for parts."""
    asked = Asked()
    monkeypatch.setattr(merging, "choose_models", asked.choose)
    monkeypatch.setattr(merging, "MATRICES", 0)
    return asked


@pytest.mark.parametrize("linkage", Linkage)
def test_parts_begin_with_the_model_of_all_parts_of_their_kind(
    tmp_path: Path, asked: Asked, linkage: Linkage
) -> None:
    problem = mixed(tmp_path, linkage)
    merging.choose(problem, CPU)
    assert [patterns for patterns, _, _ in asked] == [*problem.groups]
    for patterns, tree, known in asked:
        assert tree.lengths.shape == (15,)
        assert len(known.models) == len(patterns.parts)
        assert {model.n_states for model in known.models} == {patterns.alphabet.n_states}
        assert len({model.heterogeneity for model in known.models}) == 1
        assert not known.likelihoods


def test_the_quick_tree_is_at_the_maximum_of_parts_as_one(tmp_path: Path, asked: Asked) -> None:
    """Against an optimiser that is given the sites of all parts as if nobody had named any."""
    problem = mixed(tmp_path, Linkage.SCALED, "DNA")
    merging.choose(problem, CPU)
    ((_, tree, known),) = asked
    whole = load_problem(str(tmp_path / "data.fa"), "GTR+FC+G4", ignore).patterns
    likelihood = Engines(Resources(), Workload.of_patterns(whole, 4, (1e-6, 100.0))).likelihood
    model = known.models[0].with_empirical_frequencies(whole)
    (lnl,) = likelihood.log_likelihoods([tree], [Case(alone(model).arrays())])
    best = Fit(tree.copy(), alone(parse_model("GTR+FC+G4", DNA).with_empirical_frequencies(whole)))
    perform(likelihood, ascend([best], PRESETS["thorough"]))
    assert lnl == pytest.approx(best.lnl, abs=0.2)


def test_its_memory_is_that_of_one_part(tmp_path: Path, asked: Asked) -> None:
    problem = mixed(tmp_path, Linkage.SCALED, "DNA")
    lone = load_problem(str(tmp_path / "data.fa"), "GTR+FC+G4", ignore)
    events: list[Event] = []
    for own in (problem, lone):
        merging.choose(own, CPU, emit=events.append)
    planned, of_one = (event for event in events if isinstance(event, MemoryPlanned))
    assert replace(planned, process=0) == replace(of_one, process=0)
    assert planned.process == pytest.approx(of_one.process, rel=0.05)
    assert len(asked) == 2


def test_few_parts_have_models_of_their_own(
    tmp_path: Path, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(merging, "choose_models", asked.choose)
    merging.choose(mixed(tmp_path, Linkage.SCALED), CPU)
    for patterns, _, known in asked:
        assert len({id(model) for model in known.models}) == len(patterns.parts) > 1
