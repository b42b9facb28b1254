r"""Parts of an alignment, as partition files name them, and how they fit the data.

A part's sites are runs, ranges that count sites from 0: ``1-900\3`` is ``range(0, 900, 3)``, which
keeps its end as it was written. Runs are read and written here for every dialect alike.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from mltree.data.alphabet import PROTEIN, Alphabet
from mltree.data.nexus import PARTS, QUOTED, UNHEEDED, is_nexus, nexus_commands
from mltree.data.source import read_text
from mltree.system.arrays import Int64
from mltree.system.errors import InputError
from mltree.system.values import Value, decimal

LAST = sys.maxsize
"""End of a run that goes on to the last site, however many there are."""

_RUN = re.compile(
    r"(?P<first>[0-9]{1,18})\s*(?P<to>-\s*(?P<last>[0-9]{1,18}|\.)?)?\s*"
    r"([\\/]\s*(?P<stride>[0-9]{1,18}))?(?=[\s,]|$)[\s,]*"
)
_ALL = ("*", "ALL")

_MAX_RUNS = 5
"""Runs that one line lists."""


class Part(Value):
    """A partition of the alignment: sites that share a model."""

    name: str
    runs: tuple[range, ...]
    """Runs of the part's sites, from 0, in the order of the file; a stop of `LAST` is the last
    site."""
    datatype: str | None = None
    """The data type in the file: ``"DNA"``, ``"AA"``, ``"BIN"``."""
    model: str | None = None
    """The model's string; None where the file leaves it open; may be terms alone."""
    scaler: float | None = None
    """Factor on the tree's branch lengths in this part (``+BU{...}``)."""
    tree_length: float | None = None
    """Length of the part's tree, which gives the scaler where all parts have one (IQ-TREE)."""
    file: str | None = None
    """The part's alignment file; None for the alignment of all parts."""
    line: int = 0
    """Line in the partition file, from 1."""

    @property
    def n_sites(self) -> int:
        """Number of sites; meaningless while a run is open."""
        return sum(map(len, self.runs))

    @property
    def sites(self) -> Int64:
        """i64 [n_sites], from 0, in the order of the runs."""
        return np.concatenate([np.arange(r.start, r.stop, r.step) for r in self.runs])


@dataclass(frozen=True)
class Scheme:
    """A partitioning scheme: the parts that a file names, in its order."""

    path: str
    parts: tuple[Part, ...]
    covers: bool
    """True where every site must be in a part, as in RAxML; NEXUS may leave sites out."""

    def __post_init__(self) -> None:
        seen: dict[str, Part] = {}
        for part in self.parts:
            if not part.name or not part.name.isprintable() or set(part.name) & set(",=;"):
                hint = "letters, digits, _ and . are safe"
                raise self.error(f"{part.name!r} is not a name for a part", part, hint)
            if part.name in seen:
                first = seen[part.name].line
                message = f"two parts are called {part.name} (the first on line {first})"
                raise self.error(message, part, "give every part a name of its own")
            seen[part.name] = part

    def error(self, message: str, part: Part, hint: str) -> InputError:
        """An InputError at the line of a part."""
        return InputError(message, file=self.path, line=part.line, hint=hint)


@contextmanager
def at_line(path: str, line: int, hint: str) -> Iterator[None]:
    """Turn a ValueError into an InputError at a line of a partition file."""
    try:
        yield
    except ValueError as error:
        raise InputError(str(error), file=path, line=line, hint=hint) from None


def parse_sites(text: str) -> tuple[range, ...]:
    r"""The runs of ``1-900\3, 1000``, separated by commas or blanks; ``*`` is every site.

    ``904-``, ``904-.`` and ``904-\3`` go on to the last site. Raises: ValueError saying what is
    wrong.
    """
    text = text.strip()
    if text.upper() in _ALL:
        return (range(LAST),)
    runs, place = [], 0
    while place < len(text):
        match = _RUN.match(text, place)
        if match is None:
            raise ValueError(f"cannot read the sites {text[place:].split()[0][:40]!r}")
        runs.append(_run(match))
        place = match.end()
    return tuple(runs)


def _run(match: re.Match[str]) -> range:
    first, stride = int(match["first"]), int(match["stride"] or 1)
    last = first if match["to"] is None and match["stride"] is None else LAST
    if match["last"] not in (None, "."):
        last = int(match["last"])
    written = match[0].strip(" ,\t\n")
    if first < 1:
        raise ValueError(f"the sites {written} begin at 0, but the first site is 1")
    if last < first:
        raise ValueError(f"the sites {written} run backwards")
    if stride < 1:
        raise ValueError(f"the sites {written} have a stride of 0")
    return range(first - 1, last, stride)


def format_sites(runs: Sequence[range], separator: str = ", ") -> str:
    r"""Runs as they are written in partition files, sites from 1: ``1-900\3, 1000``."""
    return separator.join(_format_run(run) for run in runs)


def _format_run(run: range) -> str:
    if len(run) == 1 and run.stop != LAST:
        return str(run.start + 1)
    last = "." if run.stop == LAST else str(run.stop)
    return f"{run.start + 1}-{last}" + (rf"\{run.step}" if run.step > 1 else "")


def runs_of(sites: Int64) -> tuple[range, ...]:
    """Few runs that cover some sites, i64 [n] rising; a stride takes three sites or more."""
    steps = np.diff(sites)
    turns = [*(np.flatnonzero(np.diff(steps)) + 1), len(steps)]
    values, runs, place = sites.tolist(), [], 0
    for turn in turns:
        step = int(steps[place]) if place < turn else 0
        if step == 1 or turn - place > 1:
            runs.append(range(values[place], values[turn] + 1, step))
            place = turn + 1
        else:
            runs += [range(site, site + 1) for site in values[place:turn]]
            place = turn
    return (*runs, *(range(site, site + 1) for site in values[place:]))


def fit(scheme: Scheme, n_sites: Mapping[str | None, int]) -> tuple[Scheme, tuple[str, ...]]:
    """The scheme with open runs ended, and a notice about sites left out.

    ``n_sites``: number of sites of every file.

    Raises:
        InputError: a part has no sites or goes beyond the end, parts overlap, or sites that have
            to be in a part are in none.
    """
    parts = tuple(_ended(scheme, part, n_sites[part.file]) for part in scheme.parts)
    fitted = replace(scheme, parts=parts)
    left_out = []
    for file, sites in n_sites.items():
        free = _free_sites(fitted, file, sites)
        if 0 < len(free) < sites:  # all are free of an alignment that no part is of
            left_out.append(_left_out(fitted, file, free, sites))
    return fitted, tuple(left_out)


def _ended(scheme: Scheme, part: Part, sites: int) -> Part:
    if not part.runs:
        raise scheme.error(f"part {part.name} has no sites", part, "list its sites, or remove it")
    for run in part.runs:
        last = run.start + 1 if run.stop == LAST else run.stop
        if last > sites:
            problem = f"goes to site {last:,}, but {part.file or 'the alignment'} has {sites:,}"
            hint = "is it the right alignment? sites count from 1"
            raise scheme.error(f"part {part.name} {problem}", part, hint)
    ended = (range(run.start, sites, run.step) if run.stop == LAST else run for run in part.runs)
    return replace(part, runs=tuple(ended))


def _free_sites(scheme: Scheme, file: str | None, sites: int) -> Int64:
    """The sites of a file that are in no part; raises InputError where parts overlap."""
    owner = np.zeros(sites, np.int32)
    for number, part in enumerate(scheme.parts, 1):
        for run in part.runs if part.file == file else ():
            taken = owner[run.start : run.stop : run.step]
            if taken.any():
                place = int((taken != 0).argmax())
                other, site = scheme.parts[taken[place] - 1], f"{run[place] + 1:,}"
                message = f"parts {other.name} and {part.name} overlap, first at site {site}"
                if part is other:
                    message = f"part {part.name} names site {site} twice"
                raise scheme.error(message, part, "every site is in one part")
            taken[:] = number
    return np.flatnonzero(owner == 0)


def _left_out(scheme: Scheme, file: str | None, free: Int64, sites: int) -> str:
    """A notice of sites in no part; raises InputError where there may be none."""
    runs = runs_of(free)
    more = f" and {len(runs) - _MAX_RUNS:,} more ranges" if len(runs) > _MAX_RUNS else ""
    shown = format_sites(runs[:_MAX_RUNS]) + more
    of = f" of {file}" if file else ""
    if scheme.covers:
        message = f"in no part: {'site' if len(free) == 1 else 'sites'} {shown}{of}"
        hint = "every site has to be in a part; or list the parts in a NEXUS sets block"
        raise InputError(message, file=scheme.path, hint=hint)
    return f"{scheme.path}: {len(free):,} of {sites:,} sites{of} are in no part: {shown}"


# Partition files: RAxML 8's, RAxML-NG's, its .bestModel files, and NEXUS sets blocks.
#
#     DNA, gene1 = 1-900\3, 1000
#     LG+IU{0.3}, gene2 = 505-656, 904-\3
#     GTR{...}+FU{...}+G4m{0.5}+BU{1.3}, gene3 = 1-603
#
# A line is a part: its data type or its model, its name, its sites. ``+BU{...}`` is the part's
# branch-length scaler. ``#`` begins a comment. RAxML 8's words become models in RAxML-NG's grammar:
# WAGF is WAG+FC, WAGX WAG+FO; DNA, AA, BIN and MULTI are data types that leave the model open, and
# AUTO is one for proteins whose model is to be chosen. ASC_ before a word says that a part has no
# constant sites; the correction is Lewis's, as +ASC has it. One file a part, which no RAxML has, is
# written as in NEXUS: ``LG, gene4 = gene4.phy: 1-200``.

# NEXUS sets: sites that belong together, and their models.
#
#     #nexus
#     begin sets;
#       charset codons = 1-900\3 2-900\3;
#       charset cytb = cytb.phy: DNA, 1-.;
#       charpartition mine = GTR+F+G4: codons, HKY{2.5}: cytb;
#     end;
#
# Maddison, Swofford and Maddison (1997) define the block; a model before a set's name, a file and a
# data type before its sites are IQ-TREE's. ``charpartition mine = codons: 1-900\3, ...`` names the
# parts as in the definition, ``charpartition mine = codons, cytb`` by their sets, and MrBayes's
# ``partition mine = 2: codons, cytb``, of which ``set partition = mine`` chooses one, likewise; its
# models (lset) are not read. Where there is neither, every charset is a part. Sets may be made of
# sets. A tree's length in braces behind every set, as IQ-TREE writes it, is where the estimate of
# the part's factor on branch lengths begins. Commands that name no sites are passed over in any
# block; commands that exclude sites or taxa, weight them or order their states are refused.

EXAMPLE = "begin sets; charset gene1 = 1-500; charpartition mine = GTR+G4: gene1; end;"

_CHOICE = re.compile(rf".*\bpartition\s*=\s*({QUOTED}|[^\s,;]+)", re.IGNORECASE | re.DOTALL)
_DEFINITION = re.compile(
    rf"(?P<kind>\w+)\b\s*(?P<star>\*?)\s*(?P<name>{QUOTED}|[^\s=(,:'\"]+|)\s*(?P<form>\([^)]*\))?\s*="
    r"(?P<body>.*)",
    re.DOTALL,
)
_ITEM = re.compile(rf"(?:{QUOTED}|\{{[^{{}}]*\}}|[^,{{}}'\"])+")
_TYPED = re.compile(r"\s*([A-Za-z]\w*)\s*,(.*)", re.DOTALL)
_TREE_LENGTH = re.compile(r"\{([^{}]*)\}\s*$")
_WORD = re.compile(rf"{QUOTED}|[^\s,]+")
_PLAIN = re.compile(r"[^\s=,:;'(){}\[\]*\"]+")


def read_sets(path: str, text: str) -> list[Part]:
    """The parts of a NEXUS file.

    Raises: InputError: it names none, or a command cannot be read.
    """
    sets = _Sets()
    partitions: list[tuple[int, re.Match[str]]] = []
    chosen = None
    for command in nexus_commands(text, path, gap=" "):
        word, line = command.word, command.line + 1
        if (problem := command.problem) is not None:
            raise InputError(problem, file=path, line=line, hint=UNHEEDED)
        if word == "SET" and (choice := _CHOICE.match(command.rest)):
            chosen = _unquoted(choice[1])
        if word not in PARTS:
            continue
        with at_line(path, line, EXAMPLE):
            match = _definition(command.text)
            if word == "CHARSET":
                sets.add(_unquoted(match["name"]), _located(match["body"], sets), line)
            else:
                partitions.append((line, match))
    if not sets.by_name and not partitions:
        raise InputError("no charset in it", file=path, hint=EXAMPLE)
    named = [entry for entry in partitions if _unquoted(entry[1]["name"]) == chosen]
    return _chosen(path, sets, named or partitions)


def _definition(command: str) -> re.Match[str]:
    match = _DEFINITION.fullmatch(command)
    if match is None or (match["kind"].upper() == "CHARSET" and not match["name"]):
        raise ValueError(f"cannot read {' '.join(command.split())[:60]!r}")
    if "VECTOR" in (match["form"] or "").upper():
        raise ValueError(f"VECTOR of {_unquoted(match['name'])} is not read: list the sites")
    return match


class _Sets:
    """Charsets by name, ignoring case where that is unambiguous: NEXUS does not define it."""

    def __init__(self) -> None:
        self.by_name: dict[str, Part] = {}
        self._alike: dict[str, list[Part]] = {}

    def add(self, name: str, part: Part, line: int) -> None:
        if name in self.by_name:
            first = self.by_name[name].line
            raise ValueError(f"two charsets are called {name} (the first on line {first})")
        self.by_name[name] = replace(part, name=name, line=line)
        self._alike.setdefault(name.lower(), []).append(self.by_name[name])

    def called(self, name: str) -> Part | None:
        name = _unquoted(name)
        alike = self._alike.get(name.lower(), [])
        return self.by_name.get(name, alike[0] if len(alike) == 1 else None)


def _located(text: str, sets: _Sets) -> Part:
    r"""A part without a name: its sites, behind its file and its data type where they are told.

    ``1-900\3``, ``gene.phy: 1-100``, ``gene.phy: DNA, *``, ``gene.phy:``. Raises: ValueError.
    """
    file, colon, rest = text.rpartition(":")
    typed = _TYPED.fullmatch(rest)
    if typed and sets.called(typed[1]):
        typed = None
    if colon and not file.strip():
        raise ValueError("no file before the colon")
    words = [_sites_of(word, sets) for word in _WORD.findall(typed[2] if typed else rest)]
    if file and not words:
        words = ["*"]
    datatype = typed[1].upper() if typed else None
    file = _unquoted(" ".join(file.strip().splitlines()))
    return Part("", parse_sites(" ".join(words)), datatype, file=file or None)


def _sites_of(word: str, sets: _Sets) -> str:
    """The sites of the set with this name; any other word unchanged."""
    named = None if word.isdigit() else sets.called(word)
    if named is None:
        return word
    if named.file:
        raise ValueError(f"charset {named.name} is of a file of its own: no other can hold it")
    return format_sites(named.runs, " ")


def _chosen(path: str, sets: _Sets, partitions: Sequence[tuple[int, re.Match[str]]]) -> list[Part]:
    """Parts of the only partition, or the starred one; without partitions, every set."""
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
    count_text = count.strip() if colon else "no number"
    if count_text != str(len(items)):
        told = f"partition {_unquoted(match['name'])} tells {count_text[:20]} of parts"
        raise ValueError(f"{told}, and names {len(items)}")
    names = (f"{_unquoted(match['name'])}_{number}" for number in range(1, len(items) + 1))
    return [
        sets.called(item) or replace(_located(item, sets), name=name, line=line)
        for item, name in zip(items, names, strict=True)
    ]


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
    part = _located(place, sets)
    return replace(part, name=_unquoted(label), line=line, tree_length=length)


def _tree_length(place: str) -> float | None:
    """The number in braces behind a set; None without braces. Raises: ValueError."""
    match = _TREE_LENGTH.search(place)
    length = 0.0 if match is None else decimal(match[1])
    if match is not None and not 0.0 < length < math.inf:
        raise ValueError(f"{match[1].strip()} is not the length of a tree")
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


NO_NAME = "noname"
"""RAxML-NG's name for the one part of an alignment without parts."""

SYNTAX = r"a line reads: MODEL, name = 1-900\3, 1000"

SCALER_DECIMALS = 6
"""Decimals of scalers in .bestModel files, as in RAxML-NG 1.2."""

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
    """The parts that a file of any dialect names.

    Raises: InputError: it cannot be read, names no part, has a fault in a line, or a name twice.
    """
    text = _decoded(path)
    if is_nexus(text):
        parts, covers = read_sets(str(path), text), False
    else:
        parts, covers = _read_lines(str(path), text), True
    return Scheme(str(path), tuple(_described(part, str(path)) for part in parts), covers)


def holds_partitions(path: str | Path) -> bool:
    """True for a file, given as the model, that names parts.

    A NEXUS file does, a file of several lines, and a line that names a part. A model alone does
    not, nor with the name `NO_NAME`, as runs without parts write it.

    Raises: InputError: it cannot be read.
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
    return replace(_located(sites, _Sets()), name=" ".join(name.split()), model=model, line=number)


def _split_model(line: str) -> tuple[str, str]:
    depth = 0
    for place, character in enumerate(line):
        depth += (character in "{[") - (character in "}]")
        if character == "," and depth == 0:
            return line[:place].strip(), line[place + 1 :]
    return line, ""


def _described(part: Part, path: str) -> Part:
    """The part with data type, model and scaler taken from its model's words."""
    if part.model is None:
        return part
    with at_line(path, part.line, "write one +BU{1.3}: a number above 0"):
        scaler = _scaler(part)
    model = _SCALER.sub("", part.model)
    corrects = model.upper().startswith(_ASCERTAINED)
    model = model[len(_ASCERTAINED) :] if corrects else model
    other = _OTHER_DATA.match(model)
    datatype, named = _WORDS.get(model.upper(), (other and other[1].upper(), model))
    if datatype and datatype.startswith("CODON") and other and other[0] == model:
        named = None
    if corrects:
        named = f"{named or ''}+ASC_LEWIS"
    return replace(part, datatype=part.datatype or datatype, model=named, scaler=scaler)


def _scaler(part: Part) -> float | None:
    scalers = [decimal(text) for text in _SCALER.findall(part.model or "")]
    if not scalers:
        return None
    if len(scalers) > 1 or not 0.0 < scalers[0] < math.inf:
        raise ValueError(f"part {part.name}: no branch-length scaler")
    return scalers[0]


def best_model_text(parts: Sequence[Part], models: Sequence[str]) -> str:
    """A .bestModel file: each part's model with its values, its scaler, its name and its sites."""
    text = ""
    for part, model in zip(parts, models, strict=True):
        scaler = "" if part.scaler is None else f"+BU{{{part.scaler:.{SCALER_DECIMALS}f}}}"
        text += f"{model}{scaler}, {part.name} = {_place(part)}\n"
    return text


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
