"""What comments and pages point to is there: pages, their sections, linked and named files."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

FOLDERS = [ROOT / name for name in ("mltree", "opencl", "tests", "bench", "docs", "datasets")]
FILES = sorted(path for folder in FOLDERS for path in folder.rglob("*"))
PAGES = [*sorted(ROOT.glob("*.md")), *(path for path in FILES if path.suffix == ".md")]
COMMENTED = [path for path in FILES if path.suffix in {".py", ".cl", ".h"}]

CITED_PAGE = re.compile(r'([\w./-]*\w\.md\b)(?:, "([^"]+)")?')
"""A page, and the section of it that is meant."""

LINK = re.compile(r"\]\(([^)\s]+)\)")
NAMED_FILE = re.compile(r"`((?:\w[\w.-]*/)+\w+\.(?:py|cl|h|md))`")
FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def prose(path: Path) -> str:
    """Comments and docstrings of Python; all of any other file. Lines are joined."""
    text = path.read_text()
    if path.suffix == ".py":
        text = "\n".join([*_comments(text), *_docstrings(text)])
    return re.sub(r"\s*\n\s*(?:# |// |\* )?", " ", text)


def _comments(text: str) -> Iterator[str]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def _docstrings(text: str) -> Iterator[str]:
    """Of modules, classes, functions, and of the names above them."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield str(node.value.value)


def sections(page: Path) -> list[str]:
    return re.findall(r"^#+ (.+)$", FENCED.sub("", page.read_text()), re.MULTILINE)


def anchor(section: str) -> str:
    """What a link to a section ends in."""
    return re.sub(r"[^\w\- ]", "", section.lower()).replace(" ", "-")


@pytest.mark.parametrize("path", COMMENTED, ids=name_of)
def test_comments_cite_pages_and_sections_that_exist(path: Path) -> None:
    for name, section in CITED_PAGE.findall(prose(path)):
        found = [page for page in (ROOT / name, path.parent / name) if page.is_file()]
        assert found, f"there is no {name}"
        assert not section or section in sections(found[0]), f"{name} has no section {section!r}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_to_files_and_sections_that_exist(page: Path) -> None:
    for link in LINK.findall(FENCED.sub("", page.read_text())):
        if ":" in link:
            continue
        name, _, section = link.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), link
        assert not section or section in map(anchor, sections(target)), link


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_files_that_pages_name_exist(page: Path) -> None:
    for name in NAMED_FILE.findall(page.read_text()):
        assert (ROOT / name).is_file() or (page.parent / name).is_file(), name
