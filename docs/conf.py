"""How Sphinx makes the site: ``make docs``.

Its sources are Markdown pages all over the project, so that the links between them work in the
repository as they do on the site; only the reference of commands is made here, from the code.
"""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

from commands_page import commands_page  # noqa: E402

from mltree import __version__  # noqa: E402

project = "mltree"
author = "the mltree authors"
copyright = author  # noqa: A001
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
include_patterns = [
    "docs/*.md", "bench/*.md", "bench/results/*.md", "datasets/README.md", "opencl/README.md",
    "CHANGELOG.md", "CONTRIBUTING.md",
]  # fmt: skip
exclude_patterns = [".*", "build", "dist", "tests", "mltree"]
root_doc = "docs/index"

myst_heading_anchors = 3
myst_links_external_new_tab = False
suppress_warnings = [
    "misc.highlighting_failure",  # outputs of commands are no programs
]
autodoc_typehints = "description"
add_module_names = False
autodoc_member_order = "bysource"

smartquotes = False  # options have two hyphens

html_theme = "furo"
html_title = f"mltree {__version__}"
html_extra_path = ["landing"]
html_copy_source = False
html_show_sphinx = False


ARGUMENT = re.compile(r"(\w+) {2,}(.+)")
"""An argument in a docstring's list of them."""


EXAMPLE = [
    "search", "datasets/primates.phy", "--model", "auto", "--sh-alrt", "1000", "--ufboot", "1000",
    "--report", "--redo", "--quiet",
]  # fmt: skip
"""The run whose report the front page links to."""


def example(app: Any, problem: Exception | None) -> None:
    """Make the report that the front page links to, beside the pages."""
    if problem is None and app.builder.format == "html":
        prefix = Path(app.outdir) / "example" / "primates"
        prefix.parent.mkdir(exist_ok=True)
        command = [sys.executable, "-m", "mltree", *EXAMPLE, "--prefix", str(prefix)]
        subprocess.run(command, cwd=ROOT, check=True)


def setup(app: Any) -> None:
    """Put the reference of commands where its page asks for it; tell Sphinx of arguments."""

    def fill(_app: Any, page: str, source: list[str]) -> None:
        if page == "docs/commands":
            source[0] = source[0].replace("<!-- commands -->", commands_page())

    def name(
        _app: Any, _what: str, _name: str, _thing: Any, _options: Any, lines: list[str]
    ) -> None:
        lines[:] = [ARGUMENT.sub(r":param \1: \2", line) for line in lines]

    app.connect("source-read", fill)
    app.connect("build-finished", example)
    app.connect("autodoc-process-docstring", name, priority=100)  # before napoleon
