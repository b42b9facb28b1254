"""Rates of parts screened side by side, against the optimiser that asks for every point."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import mltree.fit.coordinate_ascent
from mltree.analyses.simulate import evolve
from mltree.data.alphabet import DNA
from mltree.data.patterns import Patterns
from mltree.device.discovery import REFERENCE
from mltree.fit.coordinate_ascent import RateScreening, ascend
from mltree.fit.fits import Fit, starting_models
from mltree.likelihood.likelihood import TreeLikelihood
from mltree.likelihood.requests import perform
from mltree.models.grammar import parse_model
from mltree.models.partitioned import alone
from mltree.models.substitution import Model
from mltree.runs.engines import Engines, Resources, Workload
from mltree.runs.model_choice import FITTING, with_matrix_held
from mltree.tree.topology import Tree, uniform_tree

WIDTH = 5
COARSE = 0.1
"""lnL that a screening may lack to turns of either kind: they stop as turns promise 0.05."""

LOWER_TOP = 1.0
"""The same of three free rates, which have several tops: two of 80 such fits end 0.2 and 0.8 below.
"""

TERMS = ("", "+I", "+G4", "+I+G4", "+R2", "+R3")
BOUNDS = (1e-6, 100.0)


def patterns_of(tree: Tree, texts: list[str], sites: int, rng: np.random.Generator) -> Patterns:
    """Sites of a part for every model."""
    states = [evolve(tree, parse_model(text, DNA).arrays(), sites, rng) for text in texts]
    codes = DNA.state_codes[np.concatenate(states, axis=1)]
    count = codes.shape[1]
    return Patterns(
        taxa=tuple(f"t{n}" for n in range(len(codes))), codes=codes, weights=np.ones(count),
        site_pattern=np.arange(count, dtype=np.int32), alphabet=DNA,
        ends=tuple(range(sites, count + 1, sites)) if len(texts) > 1 else (),
    )  # fmt: skip


class Data:
    """Two parts, and a tree."""

    def __init__(self, seed: int, on: Resources) -> None:
        rng = np.random.default_rng([seed, 1416])
        self.tree = uniform_tree(int(rng.integers(5, 8)), 0.2, rng)
        truths = ["JC+R3{0.05/0.8/4}{0.5/0.3/0.2}", "HKY{3}+FU{0.4/0.2/0.1/0.3}+IU{0.3}+G4{0.7}"]
        self.patterns = patterns_of(self.tree, truths, 150, rng)
        likelihoods: dict[int, TreeLikelihood] = {}

        def likelihood_of(categories: int) -> TreeLikelihood:
            if categories not in likelihoods:
                placed = Engines(on, Workload.of_patterns(self.patterns, categories, BOUNDS))
                likelihoods[categories] = placed.likelihood
            return likelihoods[categories]

        self.likelihood_of = likelihood_of
        self.screening = RateScreening(self.patterns, FITTING, likelihood_of, WIDTH)

    def model(self, term: str) -> Model:
        return with_matrix_held(parse_model("HKY{2}+FE" + term, DNA))

    def screened(self, wanted: list[tuple[int, str]]) -> list[Fit]:
        """What the screening of rates of parts finds."""
        models = [(part, self.model(term)) for part, term in wanted]
        self.screening.look([(part, self.tree, model) for part, model in models])
        starts = [(part, starting_models(model)) for part, model in models]
        fits = []
        for (part, _), found in zip(models, self.screening.fitted(starts), strict=True):
            lengths = FITTING.branches.scaled(self.tree.lengths, found.scale)
            fits.append(self.fit(part, found.model, lengths))
        self.screening.ascend(fits)
        return fits

    def fit(self, part: int, model: Model, lengths: np.ndarray) -> Fit:
        tree = Tree(self.tree.twin, self.tree.edge, lengths, self.tree.n_tips)
        return Fit(tree, replace(alone(model), least_categories=WIDTH), first_part=part)


@pytest.fixture
def data() -> Callable[[int], Data]:
    return lambda seed: Data(seed, Resources(device=REFERENCE))


@pytest.mark.cases(1, 40)
def test_screenings_end_as_high_as_steps_that_ask_for_every_point(case: int) -> None:
    data = Data(case, Resources())
    wanted = [(part, term) for term in TERMS for part in (0, 1)]
    fits = data.screened(wanted)
    for (part, term), fit in zip(wanted, fits, strict=True):
        others = [
            data.fit(part, model, data.tree.lengths.copy())
            for model in starting_models(data.model(term))
        ]
        perform(data.likelihood_of(WIDTH), ascend(others, FITTING))
        short = LOWER_TOP if term == "+R3" else COARSE
        assert fit.lnl > max(other.lnl for other in others) - short, term
        (lnl,) = data.likelihood_of(WIDTH).log_likelihoods([fit.tree], [fit.case])
        assert fit.lnl == pytest.approx(lnl, abs=1e-6)


def test_what_is_screened_beside_it_changes_no_bit(data: Callable[[int], Data]) -> None:
    together = data(1).screened([(0, "+R2"), (1, "+R2"), (1, "+G4")])
    for fit, (part, term) in zip(together, [(0, "+R2"), (1, "+R2"), (1, "+G4")], strict=True):
        (alone_,) = data(1).screened([(part, term)])
        assert fit.lnl == alone_.lnl
        np.testing.assert_array_equal(fit.tree.lengths, alone_.tree.lengths)


def test_a_layer_after_the_other_is_as_all_at_once(
    data: Callable[[int], Data], monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = [(0, "+R2"), (1, "+R2"), (1, "+G4")]
    together = data(2).screened(wanted)
    monkeypatch.setattr(mltree.fit.coordinate_ascent, "PROFILE_BATCH", 1)
    for fit, other in zip(together, data(2).screened(wanted), strict=True):
        assert fit.lnl == other.lnl


def test_profiles_are_looked_at_once(data: Callable[[int], Data]) -> None:
    own = data(3)
    screening, model = own.screening, own.model("+G4")
    with pytest.raises(ValueError, match="no profiles"):
        screening.fitted([(0, [model])])
    screening.look([(0, own.tree, model), (0, own.tree, own.model("+R2"))])
    (first,) = screening.fitted([(0, [model])])
    screening.likelihood_of = pytest.fail
    screening.look([(0, own.tree, model)])
    assert screening.fitted([(0, [model])])[0].lnl == first.lnl


def test_another_tree_is_looked_at_anew(data: Callable[[int], Data]) -> None:
    own = data(4)
    screening, model = own.screening, own.model("+G4")
    screening.look([(part, own.tree, model) for part in (0, 1)])
    first, beside = screening.fitted([(0, [model]), (1, [model])])
    longer = Tree(own.tree.twin, own.tree.edge, 3.0 * own.tree.lengths, own.tree.n_tips)
    screening.look([(0, longer, model)])
    again, still = screening.fitted([(0, [model]), (1, [model])])
    assert again.scale == pytest.approx(first.scale / 3.0, rel=0.05)
    assert still.lnl == beside.lnl
