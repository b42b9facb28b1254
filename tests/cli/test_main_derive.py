"""Commands derived from options."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module

import pytest
import typer
from typer.testing import Result

from mltree.cli.help import VARIABLES
from mltree.cli.main import ANALYSES, app

Run = Callable[..., Result]

MOST_PARAMETERS = 8


@pytest.mark.parametrize("name", ANALYSES)
def test_a_command_has_what_its_options_describe(name: str) -> None:
    described = ANALYSES[name].options.described()
    command = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    assert [param.name for param in command.params] == list(described)
    for param, option in zip(command.params, described.values(), strict=True):
        is_argument = not option.names
        assert param.param_type_name == ("argument" if is_argument else "option")
        assert param.help == option.help
        if not is_argument:
            assert tuple(param.opts) == option.names
            assert param.envvar == VARIABLES + param.name.upper()


@pytest.mark.parametrize("name", ANALYSES)
def test_a_command_runs_its_analysis(name: str) -> None:
    analysis = ANALYSES[name]
    module, _, function = analysis.function.partition(":")
    run = getattr(import_module(f"mltree.analyses.{module}"), function)
    first, second, *others = inspect.signature(run).parameters.values()
    assert first.annotation == analysis.options.__name__
    assert second.name == "reporter"
    assert all(other.default is not inspect.Parameter.empty for other in others)
    assert len(others) + 2 <= MOST_PARAMETERS


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("search none --metric tbe", "--metric does nothing without --bootstrap"),
        ("search none --metric tbe --bootstrap 9", ""),
        ("search none --brlen linked", "--brlen does nothing without --partitions"),
        ("search none --brlen linked --model parts", ""),
        ("support none --trees none --metric tbe", ""),
        ("bootstrap none --metric tbe", ""),
        ("simulate -m JC -o x.fa --tree none --mean-length 3", "--mean-length does nothing"),
        ("summarize none --prior-sample none", "--prior-sample does nothing without --report"),
        ("unifrac none -t none --group a", ""),  # an error says it
        ("unifrac none -t none --subsamples 2", ""),
        ("concordance none --gene-trees none --quartets 3", "--quartets does nothing"),
    ],
)
def test_options_that_do_nothing_are_told(run: Run, arguments: str, told: str) -> None:
    result = run(*arguments.split())
    assert result.exit_code == 2
    notes = [line for line in result.stderr.splitlines() if "does nothing" in line]
    assert len(notes) == bool(told)
    assert told in "".join(notes)
