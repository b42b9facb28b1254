r"""NEXUS sets: which sites belong together, and under which model.

    #nexus
    begin sets;
      charset codons = 1-900\3 2-900\3;
      charset cytb = cytb.phy: DNA, 1-.;
      charpartition mine = GTR+F+G4: codons, HKY{2.5}: cytb;
    end;

Maddison, Swofford and Maddison (1997) define the block; a model before a set's name, a file and a
data type before its sites are IQ-TREE's. ``charpartition mine = codons: 1-900\3, ...`` names the
parts as in the definition, ``charpartition mine = codons, cytb`` by their sets, and MrBayes's
``partition mine = 2: codons, cytb``, of which ``set partition = mine`` chooses one, likewise; its
models (lset) are not read. Where there is neither, every charset is a part. Sets may be made of
sets. A tree's length in braces behind every set, as IQ-TREE writes it, is where the estimate of the
part's factor on branch lengths begins. Commands that name no sites are passed over, whatever block
they are in; those that take sites or taxa out, weigh them or order their states are refused.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from mltree.alignment.parts import Part, at_line, format_sites, parse_sites
from mltree.errors import InputError
from mltree.numerals import decimal

__all__ = ["UNHEEDED", "is_nexus", "located", "nexus_scheme_text", "read_sets", "unheeded"]

EXAMPLE = "begin sets; charset gene1 = 1-500; charpartition mine = GTR+G4: gene1; end;"

_QUOTED = r"""(?:'(?:[^'\n]|'')*'|"[^"\n]*")"""
_HEADER = re.compile(r"\s*#nexus\b", re.IGNORECASE)
UNHEEDED = "take the command out, and what it takes out or changes"

_LEFT_OUT = ("ELIMINATE", "ZAP", "EXCLUDE", "DELETE", "CTYPE", "WEIGHTS")
_STARRED = {"EXSET": "(?!)", "WTSET": r"1(\.0*)?", "TYPESET": "unord"}
"""Sets that are in force where they are starred, and the labels of sites that change nothing."""
_LABEL = re.compile(r"([^\s,:]+)\s*:")
_OPTION = re.compile(r"(DEFTYPE|GAPMODE|IGNORE)\s*=\s*([^\s;]+)", re.IGNORECASE)
_USUAL = {"UNORD", "MISSING", "NONE"}

_COMMAND = re.compile(
    r"(charset|(char)?partition|exset|wtset|typeset|options|eliminate|zap|exclude|delete|ctype"
    r"|weights)\b|set\b.*\bpartition\s*=",
    re.I | re.DOTALL,
)
_NAMES_SITES = re.compile(r"(char)?(set|partition)\b", re.IGNORECASE)
_CHOICE = re.compile(rf"set\b.*\bpartition\s*=\s*({_QUOTED}|[^\s,;]+)", re.I | re.DOTALL)
_DEFINITION = re.compile(
    rf"(?P<kind>\w+)\s*(?P<star>\*?)\s*(?P<name>{_QUOTED}|[^\s=(,:'\"]+)\s*(?P<form>\([^)]*\))?\s*="
    r"(?P<body>.*)",
    re.DOTALL,
)
_OUTSIDE = re.compile(rf"{_QUOTED}|\[")
_INSIDE = re.compile(r"[\[\]]")
_END = re.compile(rf"{_QUOTED}|;")
_ITEM = re.compile(rf"(?:{_QUOTED}|\{{[^{{}}]*\}}|[^,{{}}'\"])+")
_TYPED = re.compile(r"\s*([A-Za-z]\w*)\s*,(.*)", re.DOTALL)
_TREE_LENGTH = re.compile(r"\{([^{}]*)\}\s*$")
_WORD = re.compile(rf"{_QUOTED}|[^\s,]+")
_PLAIN = re.compile(r"[^\s=,:;'(){}\[\]*\"]+")


def is_nexus(text: str) -> bool:
    """Whether a text begins as NEXUS files do."""
    return _HEADER.match(text) is not None


def read_sets(path: str, text: str) -> list[Part]:
    """The parts of a NEXUS file.

    Raises:
        InputError: it names none, or a command cannot be read.
    """
    sets = _Sets()
    partitions: list[tuple[int, re.Match[str]]] = []
    wanted = None
    for line, command in _commands(path, text):
        word = re.split(r"\W", command, maxsplit=1)[0]
        if (problem := unheeded(word, command[len(word) :])) is not None:
            raise InputError(problem, file=path, line=line, hint=UNHEEDED)
        if not _NAMES_SITES.match(command):
            continue
        if choice := _CHOICE.match(command):
            wanted = _unquoted(choice[1])
            continue
        with at_line(path, line, EXAMPLE):
            match = _definition(command)
            if match["kind"].lower() == "charset":
                sets.add(_unquoted(match["name"]), _located(match["body"], sets), line)
            else:
                partitions.append((line, match))
    if not sets.by_name and not partitions:
        raise InputError("no charset in it", file=path, hint=EXAMPLE)
    named = [entry for entry in partitions if _unquoted(entry[1]["name"]) == wanted]
    return _chosen(path, sets, named or partitions)


def unheeded(word: str, rest: str) -> str | None:
    """Return the reason to refuse a command that changes the data and is not supported, or None.

    word  the command's name, in whatever case
    rest  what follows it, without comments
    """
    rest = "*" * word.endswith("*") + rest.strip()
    word = word.upper().rstrip("*")
    if word in _LEFT_OUT:
        return f"{word} is not heeded"
    if word in _STARRED and rest.startswith("*"):
        body = rest.partition("=")[2]
        labels = _LABEL.findall(body) or body.split()
        is_usual = all(re.fullmatch(_STARRED[word], label, re.IGNORECASE) for label in labels)
        return None if is_usual else f"{word} *, which is in force, is not heeded"
    if word == "OPTIONS":
        told = [found for found in _OPTION.finditer(rest) if found[2].upper() not in _USUAL]
        return f"OPTIONS {told[0][0]} is not heeded" if told else None
    return None


def _commands(path: str, text: str) -> Iterator[tuple[int, str]]:
    """The commands that name sites, without comments, and the lines that they begin on."""
    text = _HEADER.sub(lambda match: "\n" * match[0].count("\n"), _bare(path, text), count=1)
    place, line = 0, 1
    for end in (match for match in _END.finditer(text + ";") if match[0] == ";"):
        command = text[place : end.start()]
        body = command.lstrip()
        if _COMMAND.match(body):
            yield line + command[: len(command) - len(body)].count("\n"), body
        line += command.count("\n")
        place = end.end()


def _bare(path: str, text: str) -> str:
    """The text without comments, which may hold others, every line in its place."""
    pieces, place, depth, start = [], 0, 0, 0
    while match := (_INSIDE if depth else _OUTSIDE).search(text, place):
        place = match.end()
        if match[0] == "[":
            if depth == 0:
                pieces.append(text[start : match.start()])
                start = match.start()
            depth += 1
        elif match[0] == "]":
            depth -= 1
            if depth == 0:
                pieces.append(" " + "\n" * text.count("\n", start, place))
                start = place
    if depth:
        line = text.count("\n", 0, start) + 1
        raise InputError("a comment is not closed", file=path, line=line, hint="write ] behind it")
    return "".join([*pieces, text[start:]])


def _definition(command: str) -> re.Match[str]:
    match = _DEFINITION.fullmatch(command)
    if match is None:
        raise ValueError(f"cannot read {' '.join(command.split())[:60]!r}")
    if "VECTOR" in (match["form"] or "").upper():
        raise ValueError(f"VECTOR of {_unquoted(match['name'])} is not read: list the sites")
    return match


class _Sets:
    """Charsets by their names, in whatever case where that leaves no doubt: NEXUS tells none."""

    def __init__(self) -> None:
        self.by_name: dict[str, Part] = {}
        self._alike: dict[str, list[Part]] = {}

    def add(self, name: str, part: Part, line: int) -> None:
        """One more; raises ValueError where there is one of this very name."""
        if name in self.by_name:
            first = self.by_name[name].line
            raise ValueError(f"two charsets are called {name} (the first on line {first})")
        self.by_name[name] = replace(part, name=name, line=line)
        self._alike.setdefault(name.lower(), []).append(self.by_name[name])

    def called(self, name: str) -> Part | None:
        """The set of a name, quoted or not."""
        name = _unquoted(name)
        alike = self._alike.get(name.lower(), [])
        return self.by_name.get(name, alike[0] if len(alike) == 1 else None)


def located(text: str) -> Part:
    r"""A part without a name: its sites, behind its file and its data type where they are told.

    ``1-900\3``, ``gene.phy: 1-100``, ``gene.phy: DNA, *``, ``gene.phy:``. Raises: ValueError.
    """
    return _located(text, _Sets())


def _located(text: str, sets: _Sets) -> Part:
    file, colon, rest = text.rpartition(":")
    typed = _TYPED.fullmatch(rest)
    if typed and sets.called(typed[1]):
        typed = None
    if colon and not file.strip():
        raise ValueError("no file before the colon")
    words = [_sites_of(word, sets) for word in _WORD.findall(typed[2] if typed else rest)]
    if file and not words:
        words = ["*"]
    return Part(
        name="",
        runs=parse_sites(" ".join(words)),
        datatype=typed[1].upper() if typed else None,
        file=_unquoted(" ".join(file.strip().splitlines())) or None,
    )


def _sites_of(word: str, sets: _Sets) -> str:
    """The sites of the set that a word names; any other word as it is."""
    named = None if word.isdigit() else sets.called(word)
    if named is None:
        return word
    if named.file:
        raise ValueError(f"charset {named.name} is of a file of its own: no other can hold it")
    return format_sites(named.runs, " ")


def _chosen(path: str, sets: _Sets, partitions: Sequence[tuple[int, re.Match[str]]]) -> list[Part]:
    """The parts of the only partition, or the starred one; else every set."""
    if not partitions:
        return list(sets.by_name.values())
    starred = [entry for entry in partitions if entry[1]["star"]]
    candidates = starred or partitions
    line, match = candidates[-1]
    if len(candidates) > 1:
        names = " and ".join(_unquoted(entry[1]["name"]) for entry in candidates)
        hint = "mark one, charpartition * mine = ..., or keep one"
        raise InputError(f"several charpartitions: {names}", file=path, line=line, hint=hint)
    with at_line(path, line, EXAMPLE):
        if match["kind"].lower() == "partition":
            return _counted(match, sets, line)
        return [_assigned(item, sets, line) for item in _ITEM.findall(match["body"])]


def _counted(match: re.Match[str], sets: _Sets, line: int) -> list[Part]:
    """The parts of MrBayes's ``partition mine = 2: codons, 901-.``."""
    count, colon, body = match["body"].rpartition(":")
    items = [item.strip() for item in body.split(",")]
    told = count.strip() if colon else "no number"
    if told != str(len(items)):
        name = _unquoted(match["name"])
        raise ValueError(f"partition {name} tells {told[:20]} of parts, and names {len(items)}")
    parts = []
    for number, item in enumerate(items, 1):
        known = sets.called(item)
        part = known or replace(_located(item, sets), line=line)
        parts.append(part if known else replace(part, name=f"{_unquoted(match['name'])}_{number}"))
    return parts


def _assigned(item: str, sets: _Sets, line: int) -> Part:
    """A part of a charpartition: a set under a model, or a name for some sites."""
    label, colon, place = item.partition(":")
    length = _tree_length(place)
    label, place = " ".join(label.split()), " ".join(_TREE_LENGTH.sub("", place).split())
    if label and not colon and (alone := sets.called(label)):
        return alone
    if not (label and colon and place):
        raise ValueError(f"cannot read {' '.join(item.split())[:60]!r}: MODEL: charset is wanted")
    known = sets.called(place)
    if known:
        return replace(known, model=label, tree_length=length)
    if place[0].isalpha() and not any(sets.called(word) for word in _WORD.findall(place)):
        raise ValueError(f"there is no charset {place[:40]}")
    part = replace(_located(place, sets), name=_unquoted(label), line=line)
    return replace(part, tree_length=length)


def _tree_length(place: str) -> float | None:
    """The number in braces behind a set; None without braces. Raises: ValueError."""
    found = _TREE_LENGTH.search(place)
    length = 0.0 if found is None else decimal(found[1])
    if found is not None and not 0.0 < length < math.inf:
        raise ValueError(f"{found[1].strip()} is no length of a tree")
    return length or None


def _unquoted(name: str) -> str:
    if name.startswith('"'):
        return name[1:-1]
    return name[1:-1].replace("''", "'") if name.startswith("'") else name


def _quoted(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else "'" + name.replace("'", "''") + "'"


def nexus_scheme_text(parts: Sequence[Part], models: Sequence[str | None]) -> str:
    """A .best_scheme.nex file: a set for each part, and their models where all are known."""
    lines = ["#nexus", "begin sets;"]
    for part in parts:
        place = [_quoted(part.file) + ":"] if part.file else []
        place += [f"{part.datatype},"] if part.datatype else []
        lines.append(f"  charset {_quoted(part.name)} = {' '.join([*place, ''])}")
        lines[-1] += format_sites(part.runs, " ") + ";"
    if all(models):
        rows = zip(parts, models, strict=True)
        assigned = ",\n".join(f"    {model}: {_quoted(part.name)}" for part, model in rows)
        lines += ["  charpartition mymodels =", assigned + ";"]
    return "\n".join([*lines, "end;", ""])
