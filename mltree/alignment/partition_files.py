r"""Partition files: RAxML 8's, RAxML-NG's, its .bestModel files, and NEXUS sets blocks.

    DNA, gene1 = 1-900\3, 1000
    LG+IU{0.3}, gene2 = 505-656, 904-\3
    GTR{...}+FU{...}+G4m{0.5}+BU{1.3}, gene3 = 1-603

A line is a part: its data type or its model, its name, its sites. ``+BU{...}`` is the part's
branch-length scaler. ``#`` begins a comment. RAxML 8's words become models in RAxML-NG's grammar:
WAGF is WAG+FC, WAGX WAG+FO; DNA, AA, BIN and MULTI are data types that leave the model open, and
AUTO is one for proteins whose model is to be chosen. ASC_ before a word says that a part has no
constant sites; the correction is Lewis's, as +ASC has it. One file a part, which no RAxML has, is
written as in NEXUS: ``LG, gene4 = gene4.phy: 1-200``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mltree.alignment.alphabet import PROTEIN, Alphabet
from mltree.alignment.nexus_sets import is_nexus, located, read_sets
from mltree.alignment.parts import Part, Scheme, at_line, format_sites
from mltree.alignment.source import read_text
from mltree.errors import InputError
from mltree.numerals import decimal

__all__ = [
    "NO_NAME",
    "best_model_text",
    "best_scheme_text",
    "holds_partitions",
    "read_partitions",
]

NO_NAME = "noname"
"""RAxML-NG's name for the one part of an alignment without parts."""

SYNTAX = r"a line reads: MODEL, name = 1-900\3, 1000"

SCALER_DECIMALS = 6
"""In .bestModel files, as in RAxML-NG 1.2."""

_BRACED = re.compile(r"[{\[].*?[}\]]")
_COMMENT = re.compile(r"(^|\s)#.*")
_SCALER = re.compile(r"\+BU?[{\[]([^}\]]*)[}\]]", re.IGNORECASE)
_ASCERTAINED = "ASC_"
_FREQUENCIES = {"": "", "F": "+FC", "X": "+FO"}
_OTHER_DATA = re.compile(r"(BIN|MULTI[0-9]+|CODON[0-9]*)(?![A-Z0-9])", re.IGNORECASE)
_PROTEINS = (
    "DAYHOFF", "DCMUT", "JTT", "MTREV", "WAG", "RTREV", "CPREV", "VT", "BLOSUM62", "MTMAM", "LG",
    "MTART", "MTZOA", "PMB", "HIVB", "HIVW", "FLU", "STMTREV",
)  # fmt: skip
_WORDS: dict[str, tuple[str | None, str | None]] = {
    **{name + end: (None, name + term) for name in _PROTEINS for end, term in _FREQUENCIES.items()},
    **{f"JTTDCMUT{end}": (None, f"JTT-DCMUT{term}") for end, term in _FREQUENCIES.items()},
    **{f"AUTO{end}": ("AA", f"AUTO{term}") for end, term in _FREQUENCIES.items()},
    **dict.fromkeys(("DNA", "NT"), ("DNA", None)),
    "DNAX": ("DNA", "GTR+FO+G4"),
    **dict.fromkeys(("AA", "PROT", "PROTEIN"), ("AA", None)),
    **dict.fromkeys(("MULTI", "MORPH"), ("MULTI", None)),
}
"""Data type and model of RAxML 8's words. RAxML-NG reads DNA as GTR+G+F, which is what a part whose
model is open has here too. BIN is a model's name as well."""


def read_partitions(path: str | Path) -> Scheme:
    """The parts that a file names, in whatever dialect.

    Raises:
        InputError: it cannot be read, names no part, has a fault in a line, or a name twice.
    """
    text = _decoded(path)
    if is_nexus(text):
        parts, covers = read_sets(str(path), text), False
    else:
        parts, covers = _read_lines(str(path), text), True
    return Scheme(str(path), tuple(_described(part, str(path)) for part in parts), covers)


def holds_partitions(path: str | Path) -> bool:
    """Whether a file that is given as the model names parts.

    So does a NEXUS file, one of several lines, and one line that names a part. A model alone does
    not, nor with the name `NO_NAME`, as runs without parts leave it.

    Raises:
        InputError: it cannot be read.
    """
    text = _decoded(path)
    lines = [line for _, line in _lines(text)]
    if is_nexus(text) or len(lines) != 1:
        return True
    name, equals, _ = _split_model(lines[0])[1].partition("=")
    return bool(equals) and name.strip() != NO_NAME


def _decoded(path: str | Path) -> str:
    try:
        return read_text(path).decode("utf-8")
    except UnicodeDecodeError:
        raise InputError("not UTF-8 text", file=str(path)) from None


def _lines(text: str) -> list[tuple[int, str]]:
    """Lines with something in them, without comments, and their numbers."""
    bare = ((n, _COMMENT.sub("", line).strip()) for n, line in enumerate(text.split("\n"), 1))
    return [(number, line) for number, line in bare if line]


def _read_lines(path: str, text: str) -> list[Part]:
    parts = []
    for number, line in _lines(text):
        with at_line(path, number, SYNTAX):
            parts.append(_part(line, number))
    if not parts:
        raise InputError("no part in it", file=path, hint=SYNTAX)
    return parts


def _part(line: str, number: int) -> Part:
    model, rest = _split_model(line)
    if "," in line and not rest:
        raise ValueError(f"a brace is not closed in {line[:60]!r}")
    name, equals, sites = rest.partition("=")
    if not model or not equals:
        raise ValueError(f"cannot read {line[:60]!r} as a part")
    return replace(located(sites), name=" ".join(name.split()), model=model, line=number)


def _split_model(line: str) -> tuple[str, str]:
    """What stands before the first comma outside braces, and behind it."""
    depth = 0
    for place, character in enumerate(line):
        depth += (character in "{[") - (character in "}]")
        if character == "," and depth == 0:
            return line[:place].strip(), line[place + 1 :]
    return line, ""


def _described(part: Part, path: str) -> Part:
    """The part with the words of its model told apart: data type, model, scaler."""
    if part.model is None:
        return part
    with at_line(path, part.line, "write one +BU{1.3}: a number above 0"):
        scaler = _scaler(part)
    model = _SCALER.sub("", part.model)
    corrects = model.upper().startswith(_ASCERTAINED)
    model = model[len(_ASCERTAINED) :] if corrects else model
    other = _OTHER_DATA.match(model)
    told, named = _WORDS.get(model.upper(), (other and other[1].upper(), model))
    if told and told.startswith("CODON") and other and other[0] == model:
        named = None
    if corrects:
        named = f"{named or ''}+ASC_LEWIS"
    return replace(part, datatype=part.datatype or told, model=named, scaler=scaler)


def _scaler(part: Part) -> float | None:
    """What ``+BU{...}`` says; raises ValueError where that is no scaler."""
    found = [decimal(text) for text in _SCALER.findall(part.model or "")]
    if not found:
        return None
    if len(found) > 1 or not 0.0 < found[0] < math.inf:
        raise ValueError(f"part {part.name}: no branch-length scaler")
    return found[0]


def best_model_text(parts: Sequence[Part], models: Sequence[str]) -> str:
    """A .bestModel file: each part's model with its values, its scaler, its name and its sites."""
    lines = []
    for part, model in zip(parts, models, strict=True):
        scaler = "" if part.scaler is None else f"+BU{{{part.scaler:.{SCALER_DECIMALS}f}}}"
        lines.append(f"{model}{scaler}, {part.name} = {_place(part)}\n")
    return "".join(lines)


def best_scheme_text(
    parts: Sequence[Part], models: Sequence[str], alphabets: Sequence[Alphabet]
) -> str:
    """A .best_scheme file, as RAxML 8 reads it: each part's ``DNA`` or ``LGF``, name and sites.

    A protein model that RAxML 8 does not have is written as RAxML-NG reads it.
    """
    rows = zip(parts, models, alphabets, strict=True)
    return "".join(f"{_word(m, a)}, {part.name} = {_place(part)}\n" for part, m, a in rows)


def _word(model: str, alphabet: Alphabet) -> str:
    if alphabet is not PROTEIN:
        return alphabet.name
    bare, *terms = _BRACED.sub("", model).upper().split("+")
    term = next((term for term in terms if term.startswith("F")), "")
    end = "" if not term else "X" if term in ("FO", "FU") else "F"
    word = bare.replace("-", "") + end
    return word if word in _WORDS else bare + _FREQUENCIES[end]


def _place(part: Part) -> str:
    return (f"{part.file}: " if part.file else "") + format_sites(part.runs)
