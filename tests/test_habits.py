"""Other programs' command lines: one line says how they are written here."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from mltree.habits import COMMANDS, HABITS, translated

PAGE = (Path(__file__).parents[1] / "docs" / "coming-from.md").read_text()

NG = "written for RAxML-NG"
IQ = "written for IQ-TREE"

LINES = {
    "--msa a.phy --model GTR+G": (f"--msa is {NG}", "mltree search a.phy --model GTR+G"),
    "--all --msa a.phy --bs-trees 100": (
        f"--all, --msa and --bs-trees 100 are {NG}",
        "mltree search a.phy --bootstrap 100; --all: --bootstrap N adds replicates",
    ),
    "search --msa=a.phy --threads auto": (
        f"--msa and --threads auto are {NG}",
        "mltree search a.phy; --threads auto: every CPU",
    ),
    "--evaluate --msa a --tree t": (f"--evaluate and --msa are {NG}", "mltree evaluate a --tree t"),
    "evaluate a --tree pars{10}": (f"--tree pars{{10}} is {NG}", "mltree evaluate a --tree FILE"),
    "search a --tree-constraint c": (f"is {NG}", "mltree search a --constraint c"),
    "search a --data-type AA": (f"--data-type AA is {NG}", "mltree search a --data-type protein"),
    "--rfdist t": (f"--rfdist is {NG}", "mltree rf t"),
    "search a --opt-model off": (f"--opt-model off is {NG}", "mltree search a --no-opt-model"),
    "-s a.phy": (f"-s a.phy is {IQ}", "mltree search a.phy"),
    "-s a.phy -m MFP+MERGE -Q x": (
        f"-s a.phy, -m MFP+MERGE and -Q are {IQ}",
        "here: mltree search a.phy --model auto --merge --partitions x --brlen unlinked",
    ),
    "-s a.phy -m MFP": (
        f"-s a.phy and -m MFP are {IQ}",
        "search a.phy --model auto",
    ),
    "evaluate a --model TEST": (
        f"--model TEST is {IQ}",
        "mltree evaluate a --model FILE; --model TEST: `mltree model ALIGNMENT` chooses one",
    ),
    "bootstrap a --model MF+MERGE": (f"--model MF+MERGE is {IQ}", "bootstrap a --model FILE; "),
    "search a -m TESTMERGE": (f"-m TESTMERGE is {IQ}", "mltree search a --model auto"),
    "search a -B 1000": (f"-B is {IQ}", "mltree search a --ufboot 1000"),
    "search a -bb 1000": (f"-bb is {IQ}", "mltree search a --ufboot 1000"),
    "search a -alrt 1000": (f"-alrt is {IQ}", "mltree search a --sh-alrt 1000"),
    "search a --alrt 0": (f"--alrt 0 is {IQ}", "mltree search a --alrt"),
    "search a -T 4": (f"-T is {IQ}", "mltree search a --threads 4"),
    "search a -T AUTO": (f"-T AUTO is {IQ}", "mltree search a; -T AUTO: every CPU"),
    "search a -nt 4 -pre x": (f"-nt and -pre are {IQ}", "search a --threads 4 --prefix x"),
    "-s a -te 'my tree'": ("-s a and -te are", "mltree evaluate a --tree 'my tree'"),
    "-pre": ("-pre is", "mltree search --prefix FILE"),
    "search a -n run -N 10": ("-n and -N 10 are written for RAxML", "search a --prefix run --tree"),
    "-s a -b 5 --msa b": ("IQ-TREE and RAxML-NG", "mltree search a b --bootstrap 5"),
    "bootstrap a --bs-trees 100": (f"is {NG}", "mltree bootstrap a --replicates 100"),
    "-s a -z trees -au": (f"-s a, -z and -au are {IQ}", "test a --trees trees --tests au"),
    "-s a -f a": ("RAxML", "-f a: no counterpart here"),
}


@pytest.mark.parametrize("line", LINES)
def test_it_is_said_in_a_line_how_it_is_written_here(line: str) -> None:
    found = translated(shlex.split(line))
    assert found is not None
    for text, expected in zip(found, LINES[line], strict=True):
        assert expected in text
        assert "\n" not in text
    assert found[1].startswith("here: mltree ")


@pytest.mark.parametrize(
    "line",
    [
        "search a -s 42 -m GTR+G4 -t start.nwk -p x -d 0 -q",
        "search a --tree pars{10},rand{2} --model LG+I+G4 --threads 4",
        "search a --data-type protein --prefix MFP",
        "evaluate a --tree t",
        "search a --bootstrap 100 --model auto",
        "search a --model genes.part --brlen linked",
        "bootstrap a -N 100",
        "draw t -o t.svg",
        "simulate -n 100 -o s.fasta",
        "test a --trees t",
        "rf trees --reference t",
        "--help",
        "",
    ],
)
def test_what_is_written_for_mltree_is_left_alone(line: str) -> None:
    assert translated(shlex.split(line)) is None


def test_no_habit_is_what_it_would_be_replaced_by() -> None:
    """Or a user who does as told is told again."""
    for habits in HABITS.values():
        for habit in habits:
            words = shlex.split(habit.here.format("5")) if habit.here else []
            said = translated([*([habit.command] if habit.command else ["search", "a"]), *words])
            assert said is None, habit


def test_the_page_has_every_habit_and_no_other() -> None:
    rows = re.findall(r"^\| (`.*?) \|", PAGE, re.MULTILINE)
    told = {flag for row in rows for flag in re.findall(r"(?:`|, )(-[-\w#]+)", row)}
    assert told - {"--prefix", "--seed", "--redo", "--outgroup", "--brlen"} == set(HABITS)


def test_the_page_shows_what_is_printed() -> None:
    ((typed, printed),) = re.findall(r"^\$ mltree (.*)\nmltree: (.*)$", PAGE, re.MULTILINE)
    problem, hint = translated(shlex.split(typed)) or ("", "")
    assert printed == f"{problem} ({hint})"


def test_commands_are_those_there_are() -> None:
    from typer.main import get_command

    from mltree.cli.main import app

    assert tuple(get_command(app).commands) == COMMANDS  # type: ignore[attr-defined]
