"""Arguments before typer reads them: options from ``mltree.toml``, and those of other programs.

    threads = 8                  # for every command that has the option
    [search]
    preset = "thorough"          # for this one, and stronger

The first of these files is read, and no other: ``--config FILE``, ``MLTREE_CONFIG``,
``mltree.toml`` in the folder where the command is given, and ``mltree/mltree.toml`` below
``XDG_CONFIG_HOME``, which is ``~/.config`` where it is not set. What is typed is stronger than
``MLTREE_…`` variables, these are stronger than the file, and the file is stronger than the
defaults.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Collection, Mapping, Sequence, Set
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from mltree.system.errors import InputError
from mltree.system.files import is_there, read_own, toml_of

OPTION, VARIABLE = "--config", "MLTREE_CONFIG"

HELP = (
    f"Take options from a TOML file; {VARIABLE} names one as well. Default: mltree.toml here, else "
    "the one in ~/.config/mltree."
)

NAME = "mltree.toml"

NOT_IN_FILES = ("help", "version", "config")


def without_option(arguments: Sequence[str]) -> tuple[str | None, list[str]]:
    """The file that ``--config`` names, anywhere in a command line, and the other arguments.

    Raises:
        InputError: it names none.
    """
    for place, argument in enumerate(arguments):
        name, joined, value = argument.partition("=")
        if argument == "--":
            break
        if name == OPTION:
            end = place + (1 if joined else 2)
            file = value or "".join(arguments[place + 1 : end])
            if not file:
                raise InputError(f"{OPTION} needs the name of a file")
            return file, [*arguments[:place], *arguments[end:]]
    return None, list(arguments)


def find(named: str | None, environment: Mapping[str, str] = os.environ) -> Path | None:
    """The file of options to read; None where there is none. ``named``: by ``--config``.

    Raises:
        InputError: one was named that is not there.
    """
    named = named or environment.get(VARIABLE)
    if named:
        if not is_there(named):
            raise InputError("no such file", file=named, hint="a TOML file of options is expected")
        return Path(named)
    folder = environment.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")  # noqa: PTH111
    usual = Path(NAME), Path(folder, "mltree", NAME)
    return next((path for path in usual if os.path.lexists(path)), None)


def has_file(arguments: Sequence[str], environment: Mapping[str, str] = os.environ) -> bool:
    """True if a file of options is named, rightly or not, or lies where it usually does."""
    if any(argument.partition("=")[0] == OPTION for argument in arguments):
        return True
    return bool(environment.get(VARIABLE)) or find(None, environment) is not None


def defaults(path: Path, options: Mapping[str, Mapping[str, bool]]) -> dict[str, dict[str, Any]]:
    """The values in a file, by command and by the option's name in code.

    options  names of each command's options as they are typed (``data-type``), and whether each is
             a switch

    Raises:
        InputError: the file is no TOML, or has a key or a value that no command takes.
    """
    content = _parsed(path)
    shared = {key: value for key, value in content.items() if not isinstance(value, dict)}
    _check(path, "", shared, set[str]().union(*options.values()))
    values: dict[str, dict[str, Any]] = {}
    for command, switches in options.items():
        table = content.pop(command, {})
        if not isinstance(table, dict):  # an option that is called like a command, such as model
            table = {}
        _check(path, command, table, switches)
        merged = {_typed_name(key): value for key, value in [*shared.items(), *table.items()]}
        values[command] = {
            key.replace("-", "_"): _value(path, key, value, switches[key])
            for key, value in merged.items()
            if key in switches
        }
    for name, value in content.items():
        if isinstance(value, dict):
            raise InputError(f"[{name}] is not a command", file=str(path), hint=", ".join(options))
    return values


def _parsed(path: Path) -> dict[str, Any]:
    return toml_of(read_own(path), str(path))


def _typed_name(key: str) -> str:
    return key.replace("_", "-")


def _check(path: Path, command: str, table: Mapping[str, Any], known: Collection[str]) -> None:
    """Refuse keys that no command, or not this one, has."""
    for key in table:
        if _typed_name(key) not in known or _typed_name(key) in NOT_IN_FILES:
            whose = f"mltree {command}" if command else "any command"
            raise InputError(f"{key} is not an option of {whose}", file=str(path))


def _value(path: Path, key: str, value: Any, is_switch: bool) -> Any:
    """A value as the command line takes it."""
    if is_switch is not isinstance(value, bool) or not isinstance(value, bool | int | float | str):
        kind = "true or false" if is_switch else "a string or a number"
        raise InputError(f"{key} must be {kind}", file=str(path))
    return value if is_switch else str(value)


# Options of RAxML-NG, IQ-TREE, RAxML and PhyML, translated into mltree's.
#
# Some of their options would mean something else here (``-s`` is a seed, ``-pre`` would be ``-p``
# with the value ``re``), others nothing at all. A command line with one of them is not run: one
# line shows it as it is written here, and says what there is no counterpart for. Its model is shown
# as what the other program computes, which may have other frequencies under the same name.


class ForeignOption(NamedTuple):
    """An option of another program: a row of ``foreign_options.tsv`` behind the option's names.

    Of several rows of an option the first that fits counts.
    """

    program: str
    value: str = ""
    """``none`` for a switch; else a pattern that the value matches in full, empty for any value."""
    here: str = ""
    """Text to write instead, with ``{}`` for the value; empty without a counterpart."""
    command: str = ""
    """The command that does what the option asks for."""
    where: str = ""
    """Commands, typed or asked for by other options, in which the option is foreign: ``not ...``
    for all others, ``none`` where no command is typed; empty for all."""
    beside: str = ""
    """Another option without which it is not this one."""
    is_of_model: str = ""
    """``yes`` if the option is part of the other program's model."""
    note: str = ""
    """Note for the user beside the translation."""

    def fits(self, value: str, commands: Set[str], flags: Set[str]) -> bool:
        """True for a value behind one of these commands, beside other options of the line."""
        if self.value not in ("", "none") and not re.fullmatch(self.value, value):
            return False
        where = {"" if name == "none" else name for name in self.where.split()}
        is_meant = not commands <= where if "not" in where else commands & where
        return bool(not where or is_meant) and (not self.beside or self.beside in flags)


TABLE = Path(__file__).with_name("foreign_options.tsv")

IQ, RAXML, PHYML = "IQ-TREE", "RAxML", "PhyML"

RAXML_MODEL = r"(?i)(ASC_)?(GTR|BIN|MULTI|PROT)(GAMMA|CAT).*"
"""Names of models that RAxML 8 alone has."""

ON_TREES = ("support", "consensus", "rf", "bootstop", "concordance")
"""Commands whose first argument is a file of trees."""

CHOOSING = ("", "search", "run", "model")
"""Commands that choose a model; others take one that was chosen."""

TAKE_MODELS = ("evaluate", "test", "sitelh", "ancestral", "bootstrap")
"""Commands that take a model that was chosen."""

CHOSEN_MODEL = ForeignOption(
    IQ,
    here="--model FILE",
    note="`mltree model ALIGNMENT` chooses one; its .bestFitModel is such a file",
)


@cache
def foreign_options() -> dict[str, list[ForeignOption]]:
    """The rows of the table, by option."""
    table: dict[str, list[ForeignOption]] = {}
    _, *lines = TABLE.read_text(encoding="utf-8").splitlines()
    for line in lines:
        names, *fields = line.split("\t")
        for name in names.split():
            table.setdefault(name, []).append(ForeignOption(*fields))
    return table


class _Typed(NamedTuple):
    """A foreign option on a command line."""

    shown: str
    option: ForeignOption
    value: str

    @property
    def flag(self) -> str:
        """The option without its value."""
        return self.shown.partition(" ")[0]


def translated(arguments: Sequence[str], commands: Collection[str]) -> tuple[str, str] | None:
    """Message and hint for a command line with foreign options; None without any.

    commands  all that mltree has
    """
    if not any(argument.startswith("-") for argument in arguments):
        return None
    rest = list(arguments)
    typed = rest.pop(0) if rest and rest[0] in commands else ""
    _, foreign = _sorted_out(rest, {typed})
    command = _asked(foreign) or typed
    kept, foreign = _sorted_out(rest, {typed, command})
    if not foreign:
        return None
    kept, foreign = _with_model(kept, foreign, command, is_whole=not typed)
    return _problem(foreign), _hint(command or "search", kept, foreign)


def _with_model(
    kept: list[str], foreign: list[_Typed], command: str, *, is_whole: bool
) -> tuple[list[str], list[_Typed]]:
    """The model of the other program as what it computes, be it named or its default.

    Behind a command of mltree's a model is mltree's own, unless its name or the alignment's option
    says otherwise. `is_whole`: nothing of the line is mltree's.
    """
    place, text = _named_model(kept)
    programs = {one.option.program for one in foreign}
    is_whole = is_whole or any(one.flag in ("-s", "-i") for one in foreign)
    program = PHYML if PHYML in programs else IQ if IQ in programs and is_whole else None
    if re.fullmatch(RAXML_MODEL, text):
        program = RAXML
    if program is None or (not text and (program == RAXML or command in ON_TREES)):
        return kept, foreign
    if not text and program == IQ:
        return kept, foreign + _chosen(foreign, programs, command)
    from mltree.models.names import from_elsewhere  # with numpy

    ours = from_elsewhere(
        program, text, {one.flag: one.value for one in foreign if one.option.is_of_model}
    )
    if ours is not None and ours == text:
        return kept, foreign
    if program == RAXML and any(one.flag == "-q" for one in foreign):
        vary = "a protein model of a part is of one rate unless +G4 stands behind it there"
        foreign = [*foreign, _Typed("", ForeignOption(RAXML, note=vary), "")]
    shown = f"{kept[place].partition('=')[0]} {text}" if text else ""
    if ours in ("auto", "auto+ASC") and command not in CHOOSING:
        option = CHOSEN_MODEL
    else:
        option = ForeignOption(program, here="" if ours is None else "--model {}")
    end = place + (0 if not text else 1 if "=" in kept[place] else 2)
    return kept[:place] + kept[end:], [*foreign, _Typed(shown, option, ours or "")]


def _named_model(kept: Sequence[str]) -> tuple[int, str]:
    """Position and name of the model on a command line; nothing where none is named."""
    for place, argument in enumerate(kept):
        flag, joined, value = argument.partition("=")
        if flag in ("-m", "--model"):
            return place, value if joined else "".join(kept[place + 1 : place + 2])
    return len(kept), ""


def _chosen(foreign: Sequence[_Typed], programs: Set[str], command: str) -> list[_Typed]:
    """IQ-TREE's default, a chosen model, where no model is named."""
    flags = {one.flag for one in foreign}
    if RAXML in programs or flags & {"-m", "--model"} or not flags & {"-s", "-S"}:
        return []
    if flags & {"-p", "-q", "-spp", "-Q"}:
        note = "parts without a model have one chosen there: --model auto"
        return [_Typed("", ForeignOption(IQ, note=note), "")]
    if command in CHOOSING:
        return [_Typed("", ForeignOption(IQ, here="--model auto"), "")]
    return [_Typed("", CHOSEN_MODEL, "")] if command in TAKE_MODELS else []


def _sorted_out(arguments: Sequence[str], commands: Set[str]) -> tuple[list[str], list[_Typed]]:
    """Split the arguments behind a command into those that stay, and foreign options."""
    rest, kept, foreign = list(arguments), list[str](), list[_Typed]()
    flags = {argument.partition("=")[0] for argument in arguments}
    while rest:
        argument = rest.pop(0)
        one = _foreign(argument, rest, commands, flags)
        if one is None:
            kept.append(argument)
            continue
        foreign.append(one)
        if "=" not in argument and one.option.value != "none":
            del rest[:1]
    return kept, foreign


def _foreign(
    argument: str, rest: Sequence[str], commands: Set[str], flags: Set[str]
) -> _Typed | None:
    """The foreign option that an argument is, with the value that follows it."""
    flag, joined, value = argument.partition("=") if argument[:2] == "--" else (argument, "", "")
    for option in foreign_options().get(flag, ()):
        if not joined:
            value = rest[0] if rest and option.value != "none" else ""
        if option.fits(value, commands, flags):
            is_shown = value and option.value not in ("", "none")
            return _Typed(f"{flag} {value}" if is_shown else flag, option, value)
    return None


def _asked(foreign: Sequence[_Typed]) -> str:
    """The command that options ask for: of several, the option that stands for nothing else."""
    asking = [one.option for one in foreign if one.option.command]
    return min(asking, key=lambda option: bool(option.here)).command if asking else ""


def _problem(foreign: Sequence[_Typed]) -> str:
    """``-s and -B are written for IQ-TREE``."""
    names = list(dict.fromkeys(one.shown for one in foreign if one.shown))
    programs = " and ".join(dict.fromkeys(one.option.program for one in foreign))
    listed = f"{', '.join(names[:-1])} and {names[-1]} are" if names[1:] else f"{names[0]} is"
    return f"{listed} written for {programs}"


def _hint(command: str, kept: Sequence[str], foreign: Sequence[_Typed]) -> str:
    """The command as it is written here, and what has no counterpart."""
    files, options, notes = list[str](), list[str](), dict[str, list[str]]()
    for shown, option, value in foreign:
        words = shlex.split(option.here.replace("{}", shlex.quote(value or "FILE")))
        (files if option.here == "{}" else options).extend(words)
        is_lost = not (option.here or option.command or option.is_of_model)
        if note := option.note or ("no counterpart here" if is_lost else ""):
            notes.setdefault(note, []).append(shown)
    named = {note: ", ".join(filter(None, dict.fromkeys(shown))) for note, shown in notes.items()}
    lost = [f"{names}: {note}" if names else note for note, names in named.items()]
    line = shlex.join(["mltree", command, *files, *kept, *options])
    return "; ".join([f"here: {line}", *lost])
