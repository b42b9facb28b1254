"""Fits in batches: by their categories, parts together."""

from __future__ import annotations

import numpy as np
import pytest

from mltree.data.alphabet import DNA
from mltree.models.grammar import parse_model
from mltree.runs import model_choice
from mltree.runs.model_choice import PADDED_CATEGORIES, fit_batches, padded_categories


@pytest.mark.cases(20, 500)
def test_every_fit_is_in_a_lot_of_its_width(case: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng([41, case])
    most = int(rng.integers(1, 9))
    monkeypatch.setattr(model_choice, "FIT_BATCH", most)
    terms = [parse_model("JC" + term, DNA) for term in ("", "+G4", "+I+G4", "+R7", "+R10")]
    parts = np.sort(rng.integers(0, 6, int(rng.integers(0, 30)))).tolist()
    models = [terms[n] for n in rng.integers(0, len(terms), len(parts))]
    batches = list(fit_batches(parts, models))
    assert sorted(n for _, batch in batches for n in batch) == list(range(len(parts)))
    for categories, batch in batches:
        assert {padded_categories([models[n]]) for n in batch} == {categories}
        last = [n for n in batch if parts[n] == parts[batch[-1]]]
        assert len(batch) - len(last) < most
    for categories in PADDED_CATEGORIES:
        of_batches = [{parts[n] for n in batch} for own, batch in batches if own == categories]
        assert sum(map(len, of_batches)) == len(set().union(*of_batches))
        sizes = [len(batch) for own, batch in batches if own == categories]
        assert all(size >= most for size in sizes[:-1])
