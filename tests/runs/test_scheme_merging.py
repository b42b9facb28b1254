"""Parts that are put together, on data that evolved under few models."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from mltree.analyses.simulate import letters, sites
from mltree.data.alphabet import DNA
from mltree.models.grammar import parse_model
from mltree.models.parameters import free_parameters
from mltree.models.partitioned import Linkage
from mltree.runs import scheme as merging
from mltree.runs.engines import Resources, Workload, open_engines
from mltree.runs.model_choice import CandidateModel, Criterion, RankedModels, ScoredModel
from mltree.runs.problem import Problem, load_problem
from mltree.runs.scheme import check_mergeable, merge_parts, regrouped
from mltree.runs.trees import fit_topology
from mltree.system.errors import InputError
from mltree.system.events import Event, PartsMerged, ignore
from mltree.tree.topology import Tree, random_topology

REGIMES = (("HKY{6}+FU{0.4/0.1/0.2/0.3}+G4{0.4}", 2.0), ("JC", 0.5))
"""What parts evolve under, and how fast."""

MODELS = {"HKY+FC+G4": 0, "JC": 1}
"""The best of a part of either."""

COARSE = 0.2
"""lnL that a scheme's score may lack to an optimisation that knows nothing of merging."""


LENGTHS = 2.0
"""lnL that a branch gains at most here beyond its true length: a half on the average."""


@dataclass(frozen=True)
class Data:
    """Genes of two regimes, and the true tree."""

    problem: Problem
    tree: Tree
    regimes: list[int]

    @property
    def choices(self) -> list[RankedModels]:
        """What a model choice would have found, without one."""
        names = list(MODELS)
        found = []
        for number, regime in enumerate(self.regimes):
            model = parse_model(names[regime], DNA).with_empirical_frequencies(
                self.problem.part(number)
            )
            own = replace(self.tree, lengths=self.tree.lengths * REGIMES[regime][1])
            candidate = CandidateModel(*("HKY+FC", "+G4") if regime == 0 else ("JC", ""))
            free = free_parameters(model) + own.n_edges
            n_sites = self.problem.part(number).n_sites
            scored = ScoredModel(candidate, -1.0, free, n_sites, model, own, whole=True)
            part = self.problem.model.names[number]
            found.append(RankedModels(part, Criterion.BIC, {candidate.name: scored}))
        return found


def simulated(folder: Path, regimes: list[int], length: int, seed: int, linkage: Linkage) -> Data:
    rng = np.random.default_rng([seed, 41])
    tree = random_topology(7, rng)
    tree.lengths[:] = rng.uniform(0.05, 0.3, tree.n_edges)
    blocks = []
    for regime in regimes:
        text, speed = REGIMES[regime]
        own = replace(tree, lengths=tree.lengths * (speed if linkage == Linkage.SCALED else 1.0))
        blocks.append(letters(sites(own, parse_model(text, DNA).arrays(), length, rng), DNA))
    rows = np.concatenate(blocks, axis=1)
    path, scheme = folder / "genes.fa", folder / "genes.part"
    path.write_text("".join(f">t{n}\n{row.tobytes().decode()}\n" for n, row in enumerate(rows)))
    ends = range(0, rows.shape[1] + 1, length)
    scheme.write_text(
        "".join(f"DNA, g{n} = {a + 1}-{b}\n" for n, (a, b) in enumerate(pairwise(ends)))
    )
    return Data(load_problem(str(path), str(scheme), ignore, linkage=linkage), tree, regimes)


@pytest.mark.parametrize("linkage", [Linkage.LINKED, Linkage.SCALED])
def test_genes_of_a_regime_become_one(tmp_path: Path, linkage: Linkage) -> None:
    data = simulated(tmp_path, [0, 1, 1, 0, 1], 400, 1, linkage)
    events: list[Event] = []
    subsets = merge_parts(
        data.problem, data.choices, data.tree, Resources(), Criterion.BIC, events.append
    )
    assert sorted(map(sorted, subsets)) == [[0, 3], [1, 2, 4]]
    rounds = [event for event in events if isinstance(event, PartsMerged)]
    assert rounds[0].pairs == 10
    assert rounds[-1].merged == 0
    assert rounds[-1].subsets == 2
    assert all(one.score <= other.score + 1e-6 for other, one in pairwise(rounds))
    fewer = regrouped(data.problem, subsets)
    assert fewer.model.names == ("g0_g3", "g1_g2_g4")
    assert_score(data, fewer.under(["HKY+FC+G4", "JC"]), rounds[-1].score)


@pytest.mark.cases(2, 30)
def test_pairs_that_are_left_early_would_not_have_been_merged(
    case: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As against every pair optimised to its end, from no curvature that is known."""
    rng = np.random.default_rng([case, 77])
    regimes = rng.integers(0, 2, 5).tolist()
    data = simulated(tmp_path, regimes, int(rng.integers(60, 300)), case, Linkage.SCALED)
    schemes, scores = [], []
    for is_whole in (False, True):
        if is_whole:
            monkeypatch.setattr(merging, "ABANDON_MARGIN", np.inf)
            monkeypatch.setattr(merging, "_of_both", lambda *_: None)
        events: list[Event] = []
        subsets = merge_parts(
            data.problem, data.choices, data.tree, Resources(), Criterion.BIC, events.append
        )
        schemes.append(sorted(map(sorted, subsets)))
        scores.append([event.score for event in events if isinstance(event, PartsMerged)][-1])
    assert schemes[0] == schemes[1]
    assert scores[0] == pytest.approx(scores[1], abs=0.1)


def assert_score(data: Data, problem: Problem, score: float) -> None:
    """A scheme's score is the criterion of its lnL as a plain evaluation of the scheme has it.

    That changes factors of parts together with all lengths only, which are the true ones here.
    """
    is_scaled = problem.model.linkage == Linkage.SCALED
    likelihood = open_engines(Resources(), Workload.of(problem), ignore).likelihood
    found = fit_topology(
        likelihood, data.tree, problem.model, ignore,
        optimise_parameters=True, optimise_lengths=is_scaled,
    )  # fmt: skip
    scalers = problem.model.n_parts - 1 if is_scaled else 0
    free = sum(map(free_parameters, problem.model.models)) + scalers
    whole = Criterion.BIC.score(found.lnl, free + data.tree.n_edges, problem.n_sites)
    most = 2 * LENGTHS * data.tree.n_edges if is_scaled else 2 * COARSE
    assert whole - 2 * COARSE < score < whole + most


def test_what_cannot_be_merged_is_refused(tmp_path: Path) -> None:
    data = simulated(tmp_path, [1, 1], 60, 2, Linkage.UNLINKED)
    with pytest.raises(InputError, match="linked or scaled"):
        check_mergeable(data.problem)
    with pytest.raises(InputError, match="--merge needs a partition file"):
        check_mergeable(replace(data.problem, data=None))
    (tmp_path / "files.nex").write_text(
        "#nexus\nbegin sets;\ncharset a = genes.fa: 1-60;\ncharset b = other.fa: 1-60;\nend;\n"
    )
    (tmp_path / "other.fa").write_text((tmp_path / "genes.fa").read_text())
    problem = load_problem(str(tmp_path / "genes.fa"), str(tmp_path / "files.nex"), ignore)
    with pytest.raises(InputError, match="of two files") as caught:
        check_mergeable(problem)
    assert caught.value.line == 4
