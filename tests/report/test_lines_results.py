"""Results stand for themselves: on the terminal, in the log, and whole in JSON."""

from __future__ import annotations

import io
import json
import math
from dataclasses import replace

import pytest
from rich.console import Console

from mltree.report.lines import LINES, RESULTS, Ending, is_drawn, result, summary_text
from mltree.report.progress import Reporter, Verbosity
from mltree.system.events import (
    EnginesCompared,
    EngineScore,
    Event,
    FunctionTime,
    Notice,
    PartFacts,
    PartitionsLoaded,
    ResourcesSpent,
    RunFinished,
    StartsEnded,
    SupportsDrawn,
    TestedTree,
    TestValue,
    TimeSpent,
    TreesTested,
)

FOUND = RunFinished(
    lnl=-12.34567, model="JC", tree="(one:0.1,'a b':0.2,(c:0.1,d:0.3):0.05);", tree_length=0.75,
    taxa=4, files=("x.mltree.log", "x.mltree.bestTree"), seconds=1.5,
)  # fmt: skip

TESTED = TreesTested(
    1000, (TestedTree(1, None, -5.25, 0.0, (TestValue("p-AU", 0.75, 0.01, True),)),)
)
SPENT = TimeSpent(2.0, (FunctionTime("newview", 1.5, 10, 10**6, 1e9, 0.5),))

COMPARED = EnginesCompared(
    (EngineScore("reference", -5.25, 0.5), EngineScore("broken", math.nan, 0.0, "no memory"))
)

PARTS = PartitionsLoaded("genes.part", 12, 1234, (
    PartFacts("first", "DNA", "GTR{" + "/".join(["1.000000"] * 6) + "}", 1000, 400, 0.125, 11),
    PartFacts("[b]2", "AA", "LG+G4", 234, 200, 0.5, 12),
))  # fmt: skip


def shown(event: Event, verbosity: Verbosity = Verbosity.NORMAL, json_lines: bool = False) -> str:
    """What a terminal has of an event; its log has the same, or more."""
    screen, log = io.StringIO(), io.StringIO()
    reporter = Reporter(Console(file=screen, width=100), verbosity, json_lines, clock=lambda: 0.0)
    reporter.log_to(log)
    reporter(event)
    if verbosity > Verbosity.QUIET and not json_lines:
        assert log.getvalue() == screen.getvalue()
    assert log.getvalue()
    return screen.getvalue()


@pytest.mark.parametrize(
    ("taxa", "height", "expected"), [(30, 10, True), (31, 25, False), (40, 100, True)]
)
def test_small_trees_are_drawn(taxa: int, height: int, expected: bool) -> None:
    assert is_drawn(taxa, height) is expected


def test_a_summary_names_its_files() -> None:
    text = summary_text(FOUND, "", Ending())
    assert "Final log-likelihood: -12.3457\n" in text
    assert text.endswith(
        "Wrote x.mltree.log\nWrote x.mltree.bestTree\n"
        "To cite: methods and references are at the end of x.mltree.log"
    )
    assert "Wrote" not in summary_text(replace(FOUND, files=()), "", Ending())


@pytest.mark.parametrize(
    ("starts", "expected"),
    [
        (StartsEnded(6, 6, 5), "Starts: 5 of 6 starts reached the best tree\n"),
        (StartsEnded(1, 1, 1), "Starts: 1 of 1 start reached the best tree\n"),
        (StartsEnded(6, 2, 3), "Starts: 3 of 6 starts reached the best tree; 4 dropped on the way"),
    ],
)
def test_a_summary_says_how_sure_it_is(starts: StartsEnded, expected: str) -> None:
    ending = Ending()
    for event in (starts, ResourcesSpent(12.34, 23.45, 0.5, 2**20), Notice("text")):
        ending.update(event)
    text = summary_text(FOUND, "", ending)
    assert expected in text
    assert "Time: 12.34 s (23.45 s of CPU)\n" in text


@pytest.mark.parametrize(
    ("drawn", "expected"),
    [
        ({"SH-aLRT": "91.8"}, "Supports: SH-aLRT\n"),
        ({"SH-aLRT": "91.8", "FBP": "91.8/94"}, "Supports: SH-aLRT/bootstrap\n"),
        ({"SH-aLRT": "1/2", "aBayes": "1/2", "UFBoot": "1/2/3"}, "aLRT/aBayes/UFBoot\n"),
        ({"TBE": "0.5"}, "Supports: TBE\n"),
    ],
)
def test_labels_of_the_tree_have_a_legend(drawn: dict[str, str], expected: str) -> None:
    ending, newicks = Ending(), [f"(a:1,b:1,(c:1,d:1){label}:1);" for label in drawn.values()]
    for metric, newick in zip(drawn, newicks, strict=True):
        ending.update(SupportsDrawn(metric, 1, 0.5, newick))
    ended = replace(FOUND, support=newicks[-1] + "\n")
    assert expected in summary_text(ended, "", ending) + "\n"
    for other in (replace(FOUND, support=newicks[-1].replace("a", "e")), FOUND):
        assert "Supports" not in summary_text(other, "", ending)


def test_a_run_ends_with_its_tree() -> None:
    lines = shown(FOUND).splitlines()
    for name in ("one", "a b", "c", "d"):
        assert any(line.endswith(f"-{name}") for line in lines)
    assert "Model: JC" in lines
    assert "Tree length: 0.750000 expected substitutions per site" in lines
    assert "Model: JC" in shown(replace(FOUND, taxa=500))
    assert "a b" not in shown(replace(FOUND, taxa=500))


def test_scores_are_a_table() -> None:
    text = shown(COMPARED)
    assert "reference  -5.250000" in text
    assert "failed" in text


def test_tests_of_trees_are_a_table_that_no_terminal_crops() -> None:
    assert "-5.2500    0.0000    0.7500 +" in shown(TESTED)


@pytest.mark.parametrize("event", [FOUND, COMPARED, TESTED, SPENT])
def test_silence_shows_no_result(event: Event) -> None:
    assert shown(event, Verbosity.QUIET) == ""


def test_results_as_json() -> None:
    (line,) = shown(FOUND, json_lines=True).splitlines()
    found = json.loads(line)
    assert found["event"] == "RunFinished"
    assert found["lnl"] == FOUND.lnl
    assert found["tree"] == FOUND.tree
    assert found["files"] == list(FOUND.files)
    (line,) = shown(COMPARED, json_lines=True).splitlines()
    _, broken = json.loads(line, parse_constant=pytest.fail)["scores"]
    assert broken == {"engine": "broken", "lnl": "nan", "seconds": 0.0, "problem": "no memory"}


def test_other_events_are_no_results() -> None:
    assert result(Notice("text"), 25, Ending()) is None


def test_parts_are_a_table_without_anything_cut_off() -> None:
    lines = shown(PARTS).splitlines()
    assert lines[0].strip() == "2 parts of 1,234 sites, 12 taxa"
    assert lines[1].split() == ["name", "type", "sites", "patterns", "gaps", "taxa", "model"]
    assert lines[2].split()[:6] == ["first", "DNA", "1,000", "400", "12.50%", "11"]
    assert lines[-1].split() == ["[b]2", "AA", "234", "200", "50.00%", "12", "LG+G4"]
    model = "".join(line.split()[-1] for line in lines[2:-1])
    assert model == PARTS.parts[0].model
    assert json.loads(shown(PARTS, json_lines=True))["parts"][1]["gap_share"] == 0.5


def test_every_event_is_shown() -> None:
    def kinds(of: type[Event]) -> set[type[Event]]:
        return {of}.union(*map(kinds, of.__subclasses__()))

    ours = {kind for kind in kinds(Event) - {Event} if kind.__module__ == Event.__module__}
    assert ours == {*LINES, *RESULTS, RunFinished}
