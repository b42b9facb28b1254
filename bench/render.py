"""Stored results to Markdown pages, plots and the tables of the README.

A README's table stands between two comments, the first of which names a stored result
(``bench/results/NAME.json``)::

    <!-- bench:NAME -->
    <!-- /bench -->
"""

from __future__ import annotations

import re
from pathlib import Path

from bench import plots, tables
from bench.provenance import ROOT
from bench.results import FOLDER, load

__all__ = ["README", "filled", "render"]

README = ROOT / "README.md"

_MARKED = re.compile(r"(<!-- bench:(\S+) -->\n)(.*?)(<!-- /bench -->)", re.DOTALL)


def render(folder: Path = FOLDER, readme: Path = README) -> list[Path]:
    """Write everything that follows from the stored results; the files written."""
    written = []
    for result in sorted(folder.glob("*.json")):
        run = load(result)
        drawn = plots.draw(run, result.with_suffix(""))
        links = "".join(f"\n![{path.stem}]({path.name})\n" for path in drawn)
        page = result.with_suffix(".md")
        page.write_text(tables.full(run) + links, encoding="utf-8")
        written += [page, *drawn]
    text = readme.read_text(encoding="utf-8") if readme.exists() else ""
    new = filled(text, folder)
    if new != text:
        readme.write_text(new, encoding="utf-8")
        written.append(readme)
    return written


def filled(text: str, folder: Path = FOLDER) -> str:
    """The text with every marked block replaced by its stored result's table.

    A block whose result does not exist stays as it is.
    """

    def block(match: re.Match[str]) -> str:
        opening, name, old, closing = match.groups()
        result = folder / f"{name}.json"
        table = f"\n{tables.brief(load(result))}\n\n" if result.exists() else old
        return opening + table + closing

    return _MARKED.sub(block, text)
