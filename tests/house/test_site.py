"""``make docs``: the site builds without a warning, and its reference has every command."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
import typer

from mltree.cli.main import app

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the site; it did not build if there was a warning."""
    folder = tmp_path_factory.mktemp("site")
    run = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "-q", "-b", "html", "-c", "docs", ".", str(folder)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return folder


class _Words(HTMLParser):
    """All text of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_reference_has_every_option_of_every_command(site: Path) -> None:
    words = _Words()
    words.feed((site / "docs" / "commands.html").read_text(encoding="utf-8"))
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        assert f"mltree {name} [OPTIONS]" in words.text
        for param in command.params:
            assert max(param.opts, key=len) in words.text or param.metavar in words.text


def test_the_front_page_shows_a_tree_a_report_and_three_ways_in(site: Path) -> None:
    page = (site / "docs" / "index.html").read_text(encoding="utf-8")
    report = re.search(r'href="\.\./(example/[^"]+)"', page)
    assert report is not None
    assert "Tarsius_syrichta" in (site / report[1]).read_text(encoding="utf-8")
    assert re.search(r'<img [^>]*src="[^"]*primates\.svg"', page)
    for name in ("tutorial", "hpc", "python"):
        assert f'href="{name}.html"' in page


def test_the_guide_shows_every_command() -> None:
    guide = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")
    for name in typer.main.get_command(app).commands:  # type: ignore[attr-defined]
        assert f"**{name}**" in guide, f"docs/guide.md has no **{name}**"
