"""What a run's record tells."""

from __future__ import annotations

import json

from mltree.report.progress import as_json
from mltree.report.record import Point, best_labelled, facts_of
from mltree.system.events import (
    AlignmentLoaded,
    Event,
    FunctionTime,
    ModelChosen,
    ModelOptimised,
    Notice,
    PhaseStarted,
    RoundDone,
    RunFinished,
    RunStarted,
    SearchFinished,
    StartTree,
    TimeSpent,
)


def lines_of(*events: tuple[float, Event]) -> list[str]:
    return [as_json(event, seconds) for seconds, event in events]


FIRST = lines_of(
    (0.0, RunStarted("1", "mltree search x", 7)),
    (0.5, AlignmentLoaded("x.phy", "PHYLIP", "DNA", "100% ACGT", 12, 898, 413, 0.1)),
    (0.6, Notice("beware")),
    (1.0, StartTree("parsimony 1", -110.0)),
    (1.0, StartTree("parsimony 2", -120.0)),
    (2.0, PhaseStarted(1, 5, float("inf"), 2)),
    (3.0, RoundDone(1, 5, 10, 2, -104.0)),
)


def test_a_run_is_told() -> None:
    time = TimeSpent(4.0, (FunctionTime("newview", 1.0, 2, 3, 4.0, 0.5),))
    end = RunFinished(-100.0, "JC", "(a,b);", 1.5, 12, ("x",), 3.0)
    rest = ((3.5, ModelOptimised("JC", -101.0)), (4.0, SearchFinished(-100.0, 1, 10, 2)),
            (4.0, time), (4.0, end))  # fmt: skip
    facts = facts_of([*FIRST, *lines_of(*rest)])
    assert facts.started is not None
    assert facts.started["seed"] == 7
    assert facts.data is not None
    assert facts.data["taxa"] == 12
    assert facts.starts == [("parsimony 1", -110.0), ("parsimony 2", -120.0)]
    assert facts.points == [
        Point(1.0, -110.0, "start: parsimony 1"),
        Point(1.0, -120.0, "start: parsimony 2"),
        Point(3.0, -104.0, "SPR round 1"),
        Point(3.5, -101.0, "model optimised"),
        Point(4.0, -100.0, "search done"),
    ]
    assert facts.phases == [(2.0, "phase 1, radius 5")]
    assert facts.notices == ["beware"]
    assert facts.time is not None
    assert facts.time["rows"][0]["name"] == "newview"
    assert facts.finished is not None
    assert facts.finished["lnl"] == -100.0


def test_a_run_that_went_on_is_one_run() -> None:
    again = lines_of(
        (0.0, RunStarted("1", "mltree search x", 7)),
        (0.5, Notice("beware")),
        (1.0, RoundDone(2, 5, 10, 2, -103.0)),
    )
    facts = facts_of([*FIRST, *again])
    assert [point.seconds for point in facts.points] == [1.0, 1.0, 3.0, 4.0]
    assert facts.notices == ["beware"]
    assert facts.finished is None


def test_the_search_that_a_model_was_chosen_on_is_another() -> None:
    """Its lnLs are those of another model, and may be above the end of the run's own."""
    chosen = ModelChosen("noname", "JC", 210.0, -103.0, "bic")
    own = ((5.0, StartTree("parsimony 1", -111.0)), (6.0, SearchFinished(-105.0, 1, 10, 2)))
    facts = facts_of([*FIRST, *lines_of((4.0, chosen), *own)])
    assert [point.lnl for point in facts.points] == [-111.0, -105.0]
    assert facts.starts == [("parsimony 1", -111.0)]
    assert facts.phases == []
    assert facts.notices == ["beware"]


def test_what_is_no_event_is_passed_over() -> None:
    odd = ["", "{", "[]", '"x"', "3", '{"event": "New", "elapsed": 1}', FIRST[0][:20]]
    facts = facts_of([*odd, *FIRST, json.dumps({"event": "Other", "elapsed": "x"})])
    assert len(facts.points) == 3


def test_infinite_lnls_are_no_points() -> None:
    facts = facts_of(lines_of((1.0, StartTree("user 1", float("-inf")))))
    assert not facts.points


def test_supports_are_named_in_the_order_of_the_labels() -> None:
    one, two = "((a,b)90:1,c,d);", "((a,b)90.5/0.9/88:1,c,(d,e)1/1/1,f);"
    both = "((a,b)90.5/0.9:1,c,d);"  # tests on the data get on the tree together
    for drawn, wanted in (
        ([], ("", ())),
        ([("FBP", one)], (one, ("bootstrap",))),
        ([("SH-aLRT", both), ("aBayes", both)], (both, ("SH-aLRT", "aBayes"))),
        ([("SH-aLRT", both), ("aBayes", both), ("FBP", two), ("TBE", two.replace("88", "0.8"))],
         (two, ("SH-aLRT", "aBayes", "bootstrap"))),
        ([("SH-aLRT", two)], (two, ())),
    ):  # fmt: skip
        assert best_labelled(drawn) == wanted
