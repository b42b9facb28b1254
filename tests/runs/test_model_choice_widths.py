"""Fits in lots: by their categories, parts together."""

from __future__ import annotations

import numpy as np
import pytest

from mltree.data.alphabet import DNA
from mltree.models.grammar import parse_model
from mltree.runs import model_choice
from mltree.runs.model_choice import WIDTHS, engine_width, in_lots


@pytest.mark.cases(20, 500)
def test_every_fit_is_in_a_lot_of_its_width(case: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng([41, case])
    most = int(rng.integers(1, 9))
    monkeypatch.setattr(model_choice, "LOT", most)
    terms = [parse_model("JC" + term, DNA) for term in ("", "+G4", "+I+G4", "+R7", "+R10")]
    parts = np.sort(rng.integers(0, 6, int(rng.integers(0, 30)))).tolist()
    models = [terms[n] for n in rng.integers(0, len(terms), len(parts))]
    lots = list(in_lots(parts, models))
    assert sorted(n for _, lot in lots for n in lot) == list(range(len(parts)))
    for width, lot in lots:
        assert {engine_width([models[n]]) for n in lot} == {width}
        last = [n for n in lot if parts[n] == parts[lot[-1]]]
        assert len(lot) - len(last) < most
    for width in WIDTHS:
        of_lots = [{parts[n] for n in lot} for own, lot in lots if own == width]
        assert sum(map(len, of_lots)) == len(set().union(*of_lots))
        sizes = [len(lot) for own, lot in lots if own == width]
        assert all(size >= most for size in sizes[:-1])
