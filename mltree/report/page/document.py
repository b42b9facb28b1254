"""The whole file: head, tree, sections, styles and scripts."""

from __future__ import annotations

import html
import json
from importlib.resources import files

from mltree import __version__
from mltree.drawing.layouts import Style, draw
from mltree.drawing.svg import svg
from mltree.report.page.sections import Subject, key_figures, sections

__all__ = ["document"]

SCRIPTS = ("tree.js", "view.js", "controls.js")

POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:"
)
"""What the page may load: nothing. A browser enforces it, whatever is in a file name or a taxon."""


def document(subject: Subject) -> str:
    """The page, complete in itself."""
    title = f"{subject.name} · mltree"
    made = sections(subject)
    links = "".join(f'<a href="#{anchor}">{heading}</a>' for anchor, heading, _ in made)
    body = "".join(
        f'<section id="{anchor}"><h2>{heading}</h2>{content}</section>'
        for anchor, heading, content in made
    )
    return _PAGE.format(
        policy=POLICY,
        title=html.escape(title),
        name=html.escape(subject.name),
        style=_asset("page.css"),
        links=links,
        figures=key_figures(subject),
        tree_file=html.escape(subject.tree_file),
        tips=f"{len(subject.tree.tips):,}",
        data=_embedded({"newick": subject.newick, "name": subject.name}),
        still=svg(draw(subject.tree, Style())),
        body=body,
        version=__version__,
        script="".join(map(_asset, SCRIPTS)),
    )


def _asset(name: str) -> str:
    return files("mltree.report.page").joinpath(name).read_text(encoding="utf-8")


def _embedded(value: object) -> str:
    """JSON that no tag can end."""
    return json.dumps(value, ensure_ascii=True).replace("<", "\\u003c").replace(">", "\\u003e")


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
{style}
</style>
</head>
<body>
<header>
<div class="bar"><span class="brand">mltree</span><h1>{name}</h1>
<nav><a href="#tree">Tree</a>{links}</nav>
<button id="theme" type="button" title="Light or dark" aria-label="Light or dark">◐</button></div>
{figures}
</header>
<main>
<section id="tree"><h2>Tree <small>{tips} taxa, {tree_file}</small></h2>
<div id="tools" class="tools" role="toolbar" aria-label="Tree"></div>
<div id="frame" class="frame"><div id="menu" class="menu" hidden></div></div>
<p id="status" class="status" aria-live="polite">Drag to move, Ctrl + wheel or pinch to zoom; click
on a node for what can be done with it.</p>
<noscript>{still}</noscript>
</section>
{body}
</main>
<footer>Made by mltree {version}. This page fetches nothing.</footer>
<script type="application/json" id="tree-data">{data}</script>
<script>
{script}
</script>
</body>
</html>
"""
