"""Stored results to Markdown pages, plots and the tables of the README and of docs/performance.md.

Their tables stand between two comments, the first of which names a benchmark: all stored
results of it (``bench/results/NAME.json``, ``NAME-*.json``), or one of them if the name is longer;
``summary`` is the README's (:mod:`bench.summary`)::

    <!-- bench:NAME -->
    <!-- /bench -->
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from bench import plots, summary, tables
from bench.provenance import ROOT
from bench.results import FOLDER, load

__all__ = ["PAGES", "SUMMARY", "filled", "render", "stored"]

PAGES = (ROOT / "README.md", ROOT / "docs" / "performance.md")
"""What quotes stored results."""

SUMMARY = "summary"

_MARKED = re.compile(r"(<!-- bench:(\S+) -->\n)(.*?)(<!-- /bench -->)", re.DOTALL)


def render(folder: Path = FOLDER, pages: Sequence[Path] = PAGES) -> list[Path]:
    """Write everything that follows from the stored results; the files written."""
    written = []
    for result in sorted(folder.glob("*.json")):
        run = load(result)
        drawn = plots.draw(run, result.with_suffix(""))
        links = "".join(f"\n![{path.stem}]({path.name})\n" for path in drawn)
        page = result.with_suffix(".md")
        page.write_text(tables.full(run) + links, encoding="utf-8")
        written += [page, *drawn]
    for page in filter(Path.exists, pages):
        text = page.read_text(encoding="utf-8")
        new = filled(text, folder)
        if new != text:
            page.write_text(new, encoding="utf-8")
            written.append(page)
    return written


def stored(name: str, folder: Path = FOLDER) -> list[Path]:
    """The results that a name stands for."""
    return [*folder.glob(f"{name}.json"), *sorted(folder.glob(f"{name}-*.json"))]


def filled(text: str, folder: Path = FOLDER) -> str:
    """The text with every marked block replaced by its stored results' tables."""

    def block(match: re.Match[str]) -> str:
        opening, name, _, closing = match.groups()
        if name == SUMMARY:
            briefs = [summary.summary(folder)]
        else:
            briefs = [tables.brief(load(result)) for result in stored(name, folder)]
        return opening + "".join(f"\n{brief}\n" for brief in briefs) + "\n" * bool(briefs) + closing

    return _MARKED.sub(block, text)
