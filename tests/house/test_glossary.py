"""One word, one thing: what the glossary calls by another name is called so nowhere in the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

GLOSSARY = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")

ROWS = [
    [cell.strip() for cell in row]
    for row in re.findall(r"^\|([^|\n]+)\|([^|\n]+)\|([^|\n]*)\|$", GLOSSARY, re.MULTILINE)
    if row[0].strip() not in ("word", "---")
]

WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")

MODULES = sorted((ROOT / "mltree").rglob("*.py"))


def names_in(tree: ast.AST) -> Iterator[str]:
    """Names of variables, attributes, parameters, functions and classes."""
    for node in ast.walk(tree):
        for field in ("id", "attr", "arg", "name"):
            if isinstance(name := getattr(node, field, None), str):
                yield name


def docstrings_in(tree: ast.AST) -> Iterator[str]:
    """Docstrings, those of attributes too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield str(node.value.value)


def words_of(path: Path) -> set[str]:
    """Words of a module's name, of the names in it and of its docstrings, in lower case."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    texts = [path.stem, *names_in(tree), *docstrings_in(tree)]
    return {word.lower() for text in texts for word in WORD.findall(text)}


BANNED = {
    word: row[0] for row in ROWS for word in filter(None, (w.strip() for w in row[2].split(",")))
}


def test_the_glossary_is_read_in_two_minutes() -> None:
    assert 30 <= len(ROWS) <= 60
    assert len(BANNED) >= 10
    assert len(GLOSSARY.split()) <= 1100


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_module_has_another_word(path: Path) -> None:
    words = words_of(path)
    for word, instead in BANNED.items():
        assert not {word, f"{word}s"} & words, f"{word}: say {instead}"
