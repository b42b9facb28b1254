"""The command line as its users see it: arguments in; exit code, output and files out."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from mltree.cli.main import app

DATASETS = Path(__file__).parents[2] / "datasets"

Run = Callable[..., Result]


@pytest.fixture
def primates() -> str:
    """Twelve primates: the quickest real data."""
    return str(DATASETS / "primates.phy")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["mltree"])
    runner = CliRunner()
    return lambda *arguments: runner.invoke(app, [os.fspath(a) for a in arguments])
