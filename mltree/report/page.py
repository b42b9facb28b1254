"""Report of a run as one HTML page, complete in itself: a browser fetches nothing.

tree.js      the tree: reading, rooting, ordering, layouts (no browser in it)
view.js      its drawing, and what pointers and keys do
controls.js  the buttons around it
page.css     the style, by day, by night and on paper

Charts are drawn here, not by the browser: they are there without scripts, and on paper.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Sequence
from importlib.resources import files

import numpy as np

from mltree import __version__
from mltree.data.patterns import Patterns
from mltree.models.substitution import Matrices, Model
from mltree.report.charts import (
    categories_chart,
    composition_chart,
    lnl_chart,
    matrix_chart,
    site_chart,
    starts_chart,
    taxon_gap_chart,
    time_chart,
)
from mltree.report.drawing import Style, draw, svg
from mltree.report.methods import REFERENCES, without_values
from mltree.report.record import Facts
from mltree.report.tables import MAX_P_VALUE, check_lines
from mltree.system.arrays import Float64
from mltree.system.events import AlignmentSummary
from mltree.system.values import Value
from mltree.tree.clades import WrittenTree

# Sections of the page as HTML; empty without content.

MOST_PICTURES = 40
"""Parts whose models are drawn, at most; the table has all of them."""

MIB = 2**20


class PartModel(Value):
    """The model of a part of the alignment."""

    name: str
    sites: str
    """Sites of the part, in the syntax of partition files."""
    text: str
    """The model with its values."""
    model: Model
    """The model; counted frequencies are NaN if the data are not at hand."""


class Subject(Value):
    """Everything that a page shows of a run."""

    name: str
    """Prefix of the run's files, without folder."""
    facts: Facts
    tree: WrittenTree
    newick: str
    tree_file: str
    models: Sequence[PartModel] = ()
    summary: AlignmentSummary | None = None
    patterns: Patterns | None = None
    """The alignment's patterns, if the alignment is at hand."""
    methods: str = ""
    """Methods paragraph and references, from the run's log."""


def key_figures(subject: Subject) -> str:
    """The figures at the head of the page."""
    facts, finished = subject.facts, subject.facts.finished
    figures = []
    if finished is not None:
        figures.append(("log-likelihood", f"{finished['lnl']:,.3f}"))
    if facts.data is not None:
        sites, patterns = facts.data["sites"], facts.data["patterns"]
        figures.append(("taxa × sites", f"{facts.data['taxa']:,} × {sites:,}"))
        figures.append(("patterns", f"{patterns:,}"))
    else:
        figures.append(("taxa", f"{len(subject.tree.tips):,}"))
    if len(subject.models) == 1:
        name = without_values(subject.models[0].text)
        figures.append(("model", name.replace("+", "\u200b+")))  # where a line may end
    elif subject.models:
        figures.append(("model", f"{len(subject.models)} parts"))
    if finished is not None:
        figures.append(("tree length", f"{finished['tree_length']:.4g}"))
    if facts.ends is not None:
        figures.append(("starts at the best tree", "{reached} of {starts}".format(**facts.ends)))
    if (seconds := _wall(facts)) is not None:
        figures.append(("time", duration(seconds)))
    cells = (f"<div><dt>{_text(name)}</dt><dd>{_text(value)}</dd></div>" for name, value in figures)
    return f'<dl class="figures">{"".join(cells)}</dl>'


def _wall(facts: Facts) -> float | None:
    if facts.spent is not None:
        return float(facts.spent["wall"])
    return None if facts.time is None else float(facts.time["wall"])


def duration(seconds: float) -> str:
    """``12.3 s``, ``4 min 05 s``, ``2 h 03 min``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def sections(subject: Subject) -> list[tuple[str, str, str]]:
    """Anchor, title and HTML of every section below the tree that has content."""
    made = (
        ("search", "How the search went", _search(subject.facts)),
        ("time", "Where time went", _time(subject.facts)),
        ("model", "Model", _models(subject)),
        ("data", "Alignment", _alignment(subject)),
        ("settings", "Settings", _settings(subject.facts)),
        ("notes", "Notes", _list(subject.facts.notices)),
        ("cite", "Methods and citations", _citations(subject)),
    )
    return [section for section in made if section[2]]


def _search(facts: Facts) -> str:
    parts = []
    if facts.points:
        caption = (
            "How far the best tree was below the last one, in log-likelihood units; every dot is "
            "a step. Dashed lines: where a phase begins."
        )
        parts.append(_figure(lnl_chart(facts), caption))
    if len(facts.starts) > 1:
        ends = facts.ends
        reached = "" if ends is None else (
            f" {ends['ended']} of {ends['starts']} were searched to the end; {ends['reached']} led "
            "to the best tree."
        )  # fmt: skip
        caption = f"Starting trees by their log-likelihood after a first smoothing.{reached}"
        parts.append(_figure(starts_chart(facts.starts), caption))
    if facts.phases:
        rows = [(str(n), text, f"{when:.1f} s") for n, (when, text) in enumerate(facts.phases, 1)]
        parts.append(_details("Phases", _table(("", "phase", "began"), rows)))
    return "".join(parts)


def _time(facts: Facts) -> str:
    if facts.time is None or not any(row["seconds"] > 0.0 for row in facts.time["rows"]):
        return ""
    rows = []
    for row in facts.time["rows"]:
        rate, share = row["bytes_per_second"], row["share_of_copy"]
        rows.append(
            (
                row["name"],
                f"{row['seconds']:.3f}",
                f"{row['seconds'] / facts.time['wall']:.1%}",
                f"{row['calls']:,}" if row["calls"] else "",
                "" if rate is None else f"{rate / 1e9:.2f}",
                "" if share is None else f"{share:.0%}",
            )
        )
    columns = ("", "seconds", "share", "calls", "GB/s", "of copy")
    caption = "Blue: likelihood functions, on the device. Grey: the host and what it waited for."
    table = _details("As a table", _table(columns, rows))
    return _figure(time_chart(facts.time), caption) + table


def _models(subject: Subject) -> str:
    models = subject.models
    if not models:
        return ""
    if len(models) == 1:
        return f'<p class="mono">{_text(models[0].text)}</p>' + _pictures(models[0], subject)
    rows = [(part.name, part.sites, part.text) for part in models]
    parts = [_table(("part", "sites", "model"), rows)]
    parts += [
        _details(f"{part.name} ({part.sites})", _pictures(part, subject))
        for part in models[:MOST_PICTURES]
    ]
    return "".join(parts)


def _pictures(part: PartModel, subject: Subject) -> str:
    """Charts of a model; counted frequencies are those of the data, if at hand."""
    model = part.model
    is_lone, states = len(subject.models) == 1, len(model.alphabet.states)
    known = [_frequencies(component, subject, is_lone) for component in model.components]
    equal = np.full(states, 1.0 / states)
    usable = [
        Matrices(component.rates, equal if frequencies is None else frequencies)
        for component, frequencies in zip(model.components, known, strict=True)
    ]
    arrays = model.with_matrices(usable).arrays()
    caption = "Exchangeabilities: areas of the bubbles."
    drawn = [
        _figure(matrix_chart(component, frequencies), caption)
        for component, frequencies in zip(model.components, known, strict=True)
    ]
    if arrays.n_categories > 1:
        caption = "Rate categories: as wide as their share of the sites, as high as their rate."
        drawn.append(_figure(categories_chart(arrays), caption))
    return f'<div class="side">{"".join(drawn)}</div>'


def _frequencies(model: Model, subject: Subject, is_lone: bool) -> Float64 | None:
    if not np.isnan(model.frequencies).any():
        return model.frequencies
    if subject.patterns is None or not is_lone:
        return None
    return subject.patterns.base_frequencies()


def _alignment(subject: Subject) -> str:
    summary, patterns = subject.summary, subject.patterns
    if summary is None or patterns is None:
        data = subject.facts.data
        if data is None:
            return ""
        facts = (
            ("File", f"{data['path']} ({data['file_format']})"),
            ("Data type", f"{data['data_type']} ({data['data_seen']})"),
            ("Taxa", f"{data['taxa']:,}"),
            ("Sites", f"{data['sites']:,}"),
            ("Patterns", f"{data['patterns']:,}"),
            ("Gaps", f"{data['gap_share']:.2%}"),
        )
        note = "<p>The file is not where it was: <code>--alignment</code> says where it is now.</p>"
        return _table((), facts) + note
    lines = check_lines(summary)
    warnings = [line.removeprefix("warning: ") for line in lines if line.startswith("warning: ")]
    rows = [re.split(r"\s{2,}", line, maxsplit=1) for line in lines if line[:8] != "warning:"]
    parts = [_table((), rows), _list(warnings)]
    caption = "Above: share of gaps. Below: how many states a site has, on average."
    parts.append(_figure(site_chart(patterns), caption))
    if summary.gap_share > 0.0:
        parts.append(_figure(taxon_gap_chart(summary), "Share of gaps of every taxon."))
    caption = (
        "Composition of the sequences: range, quartiles and median of each state's share. Dots: "
        f"sequences that the χ² test tells from the whole (p < {MAX_P_VALUE:.0%})."
    )
    parts.append(_figure(composition_chart(patterns, summary.composition_p_values), caption))
    return "".join(parts)


def _settings(facts: Facts) -> str:
    rows = []
    if facts.started is not None:
        rows.append(("Command", facts.started["command"]))
        rows.append(("mltree", facts.started["version"]))
        if facts.started["seed"] is not None:
            rows.append(("Seed", str(facts.started["seed"])))
    if facts.device:
        rows.append(("Engine", facts.device))
    parts = []
    if (machine := facts.described) is not None:
        rows += [("Date", machine["date"]), ("Host", f"{machine['host']} ({machine['system']})")]
        rows += [
            ("CPU", machine["cpu"]),
            ("Threads", f"{machine['threads']}, {machine['threads_source']}"),
        ]
        rows += [("Device", device) for device in machine["devices"]]
        rows += [(file["path"], f"sha256 {file['sha256']}") for file in machine["inputs"]]
        options = [
            (name, str(value), origin) for name, (value, origin) in machine["options"].items()
        ]
        parts.append(_details("All options", _table(("option", "value", "from"), options)))
        parts.append(_details("Versions", _table(("", "version"), machine["versions"].items())))
    if (spent := facts.spent) is not None:
        rows.append(("CPU time", duration(spent["cpu"])))
        rows.append(("Device time", duration(spent["device"])))
        rows.append(("Peak memory", f"{spent['peak_memory'] / MIB:,.0f} MiB"))
    return (_table((), rows) if rows else "") + "".join(parts)


def _citations(subject: Subject) -> str:
    paragraphs = [part for part in re.split(r"\n\s*\n", subject.methods.strip()) if part.strip()]
    methods = "".join(f"<p>{_text(' '.join(part.split()))}</p>" for part in paragraphs[:1])
    references = re.split(r"\n(?=\[\d+\])", "\n".join(paragraphs[1:]))
    items = (re.sub(r"^\[\d+\]\s*", "", " ".join(item.split())) for item in references if item)
    cited = "".join(f"<li>{_text(item)}</li>" for item in items)
    return methods + (f"<ol>{cited}</ol>" if cited else f"<p>{_text(REFERENCES['mltree'])}</p>")


def _text(text: str) -> str:
    return html.escape(str(text))


def _figure(drawing: str, caption: str) -> str:
    return f"<figure>{drawing}<figcaption>{_text(caption)}</figcaption></figure>"


def _details(title: str, content: str) -> str:
    return f"<details><summary>{_text(title)}</summary>{content}</details>"


def _list(items: Sequence[str]) -> str:
    cells = "".join(f"<li>{_text(item)}</li>" for item in items)
    return f"<ul>{cells}</ul>" if items else ""


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """An HTML table; the first column names the rows."""
    head = "".join(f"<th>{_text(column)}</th>" for column in columns)
    body = "".join(
        f"<tr><th>{_text(first)}</th>{''.join(f'<td>{_text(cell)}</td>' for cell in rest)}</tr>"
        for first, *rest in rows
    )
    kind = "facts" if not columns else "numbers"
    rows_of = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    return f'<div class="wide"><table class="{kind}">{rows_of}</table></div>'


# The file: head, tree, sections, styles and scripts.

SCRIPTS = ("tree.js", "view.js", "controls.js")

POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:"
)
"""Content security policy: the page loads nothing, whatever a file name or taxon contains."""


def document(subject: Subject) -> str:
    """The whole page."""
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
    return files("mltree.report").joinpath("assets", name).read_text(encoding="utf-8")


def _embedded(value: object) -> str:
    """JSON in which no tag can end."""
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
