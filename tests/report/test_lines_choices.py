"""Choices of models as text."""

from __future__ import annotations

import pytest

from mltree.report.lines import best_fit_line, chosen_line, ranking_lines, scored_line
from mltree.system.events import CandidatesScored, ModelChosen, ModelsRanked, RankedModel

RANKED = ModelsRanked(
    "gene[1]",
    "aicc",
    27,
    (
        RankedModel("TPM2uf+FC+G4", -5721.6269, 27, 11626.8584, 0.9),
        RankedModel("JC", -15728.0731, 21, 31642.9516, 0.0),
    ),
)


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (CandidatesScored(27, 1, "HKY+FC"), "models: 27 candidates, best so far HKY+FC"),
        (CandidatesScored(1, 1, "JC"), "models: 1 candidate, best so far JC"),
        (
            CandidatesScored(1234, 3, "JC"),
            "models: 1,234 candidates for 3 parts, best so far JC for the first",
        ),
    ],
)
def test_candidates_are_counted(event: CandidatesScored, line: str) -> None:
    assert scored_line(event) == line


def test_the_choice_of_a_part() -> None:
    event = ModelChosen("gene1", "HKY+FC", "bic", 5286.8549, -2565.6041)
    assert chosen_line(event) == "gene1: HKY+FC  BIC 5286.855  lnL -2565.604"


def test_a_ranking_is_a_table_with_differences_from_the_best() -> None:
    title, head, *rows = (line for line in ranking_lines(RANKED))
    assert title == "gene[1]: the best 2 of 27 candidates"
    assert head.split() == ["Model", "lnL", "free", "AICc", "delta", "weight"]
    assert rows[0].split() == ["TPM2uf+FC+G4", "-5721.627", "27", "11626.858", "0.000", "0.9000"]
    assert rows[1].split() == ["JC", "-15728.073", "21", "31642.952", "20016.093", "0.0000"]
    assert len({len(line) for line in (head, *rows)}) == 1


@pytest.mark.parametrize(
    ("chosen", "models"),
    [
        ([("noname", "HKY+FC+G4")], "HKY+FC+G4"),
        ([("a", "JC"), ("b[c]", "LG+I")], "JC:a,LG+I:b[c]"),
    ],
)
def test_the_last_word_is_iq_tree_s(chosen: list[tuple[str, str]], models: str) -> None:
    line = best_fit_line("bic", chosen)
    assert line == f"Best-fit model according to BIC: {models}"
