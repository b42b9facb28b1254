"""Trees in NEXUS files (Maddison, Swofford, Maddison 1997, Syst. Biol. 46:590-621).

The TREES block is read, TREE and UTREE commands, their names by TRANSLATE, and by TAXLABELS of the
TAXA block where numbers stand for taxa that no TRANSLATE names. What becomes of it
is the Newick text of the trees, each in its line, so that errors are told by their lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from mltree.errors import InputError

__all__ = ["is_nexus", "newick_of", "nexus_trees"]

_PIECE = re.compile(r"""\[[^\]]*\]|'(?:[^']|'')*'|"[^"]*"|[^\['";]+|;|.""", re.DOTALL)
"""A comment, a quoted name, other text, a command's end; or an opening mark that is not closed."""

_LABEL = re.compile(
    r"""(?P<before>[(,]\s*)(?P<name>'(?:[^']|'')*'|"[^"]*"|[^\s()\[\],:;'"]+)|'(?:[^']|'')*'"""
)
"""A tip's name behind the mark before it; names in quotes that stand elsewhere are passed over."""

_COMMENT = re.compile(r"""('(?:[^']|'')*'|"[^"]*")|\[[^\]]*\]""")
_TAXON = re.compile(r"""'(?:[^']|'')*'|"[^"]*"|[^\s'"]+""")
_TREE = re.compile(r"U?TREE\b[^=]*=", re.IGNORECASE)
_WEIGHT = re.compile(r"\[&W([^\]]*)\]", re.IGNORECASE)
"""PAUP's and MrBayes's ``[&W 1/3]``: how much a tree counts."""
_PAIR = re.compile(r"""\s*([^\s,]+)\s+('(?:[^']|'')*'|"[^"]*"|[^\s,]+)\s*(?:,|$)""")


def is_nexus(text: str) -> bool:
    """Whether a text is NEXUS."""
    return text.lstrip()[:6].upper() == "#NEXUS"


def newick_of(text: str, file: str | None) -> str:
    """The trees of a NEXUS file as Newick, every one in its line.

    Raises:
        InputError: there is none, or trees count differently ([&W ...]).
    """
    parts: list[str] = []
    names: dict[str, str] = {}
    block = ""
    weights: set[str] = set()
    is_inside = has_tree = False
    for command in _commands(text):
        words = _COMMENT.sub(lambda found: found[1] or "", command).strip()
        keyword = words.split(None, 1)[0].upper() if words else ""
        if keyword == "BEGIN":
            block = "".join(words.upper().split()[1:2])
            is_inside = block == "TREES"
        elif block == "TAXA" and keyword == "TAXLABELS":
            names = _numbered(words[len(keyword) :])
        elif is_inside and keyword in {"END", "ENDBLOCK"}:
            is_inside = False
        elif is_inside and keyword == "TRANSLATE":
            names |= dict(_PAIR.findall(words[len(keyword) :]))
        elif is_inside and (found := _TREE.match(words)):
            weights.update(weight.strip() for weight in _WEIGHT.findall(command))
            lead = command[: len(command) - len(command.lstrip())].count("\n")
            tree = _renamed(words[found.end() :].strip(), names)
            missing = command.count("\n") - lead - tree.count("\n")
            has_tree = True
            parts.append("\n" * lead + tree + ";" + "\n" * missing)
            continue
        parts.append("\n" * command.count("\n"))
    if len(weights) > 1:
        shown = " and ".join(sorted(weights)[:2])
        hint = "take the weights out, or write every tree as often as it counts"
        raise InputError(f"trees of weights {shown}, which are not heeded", file=file, hint=hint)
    if not has_tree:
        hint = "it takes a TREES block with a TREE in it"
        raise InputError("a NEXUS file without trees", file=file, hint=hint)
    return "".join(parts)


def _numbered(labels: str) -> dict[str, str]:
    """The taxa by the numbers that stand for them in trees, unless that is a taxon's name."""
    taxa = _TAXON.findall(labels)
    numbers = ((str(number), taxon) for number, taxon in enumerate(taxa, 1))
    return {number: taxon for number, taxon in numbers if number not in taxa}


def nexus_trees(trees: Sequence[str]) -> str:
    """A NEXUS file of trees, each in Newick."""
    lines = [f"  TREE tree_{number} = {tree}" for number, tree in enumerate(trees, 1)]
    return "\n".join(["#NEXUS", "BEGIN TREES;", *lines, "END;", ""])


def _commands(text: str) -> Iterator[str]:
    """The text between semicolons that count, and what is left at the end."""
    parts: list[str] = []
    for piece in _PIECE.findall(text.lstrip()[len("#NEXUS") :]):
        if piece == ";":
            yield "".join(parts)
            parts = []
        else:
            parts.append(piece)
    yield "".join(parts)


def _renamed(newick: str, names: dict[str, str]) -> str:
    """A tree whose tips have the names that their keys stand for."""

    def rename(found: re.Match[str]) -> str:
        if found["name"] is None:
            return found[0]
        return found["before"] + names.get(found["name"], found["name"])

    return _LABEL.sub(rename, newick)
