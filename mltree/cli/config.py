"""Options from a file: ``mltree.toml``, whose keys are the options' names.

    threads = 8                  # for every command that has the option
    [search]
    preset = "thorough"          # for this one, and stronger

The first of these is read, and no other: ``--config FILE``, ``MLTREE_CONFIG``, ``mltree.toml`` in
the folder where the command is given, and ``mltree/mltree.toml`` below ``XDG_CONFIG_HOME``, which
is ``~/.config`` where it is not set. What is typed is stronger than ``MLTREE_…`` variables, these
are stronger than the file, and the file is stronger than the defaults.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mltree.system.errors import InputError
from mltree.system.files import is_there, read_own

OPTION, VARIABLE = "--config", "MLTREE_CONFIG"

HELP = (
    f"Take options from a TOML file; {VARIABLE} names one as well. Default: mltree.toml here, else "
    "the one in ~/.config/mltree."
)

NAME = "mltree.toml"

NOT_IN_FILES = ("help", "version", "config")


def without_option(arguments: Sequence[str]) -> tuple[str | None, list[str]]:
    """The file that ``--config`` names, anywhere in a command line, and the rest of that.

    Typer, which would read it as late as the command's own options, comes after.

    Raises:
        InputError: it names none.
    """
    file, rest = None, list(arguments)
    for place, argument in enumerate(arguments):
        name, _, value = argument.partition("=")
        if argument == "--":
            break
        if name == OPTION:
            size = 1 if "=" in argument else 2
            file = value or "".join(arguments[place + 1 : place + size])
            del rest[place : place + size]
            if not file:
                raise InputError(f"{OPTION} names no file")
            break
    return file, rest


def find(given: str | None, environment: Mapping[str, str] = os.environ) -> Path | None:
    """The file to read; None where there is none.

    Raises:
        InputError: one was named that is not there.
    """
    named = given or environment.get(VARIABLE)
    if named:
        if not is_there(named):
            raise InputError("no such file", file=named, hint="it is to have options")
        return Path(named)
    return _usual(environment)


def has_file(arguments: Sequence[str], environment: Mapping[str, str] = os.environ) -> bool:
    """True if a file is named, rightly or not, or lies where it usually does."""
    is_named = any(argument.partition("=")[0] == OPTION for argument in arguments)
    return is_named or bool(environment.get(VARIABLE)) or _usual(environment) is not None


def _usual(environment: Mapping[str, str]) -> Path | None:
    """The file that needs no name."""
    return next((path for path in (Path(NAME), _users(environment)) if os.path.lexists(path)), None)


def _users(environment: Mapping[str, str]) -> Path:
    """The user's own file (XDG base directory specification)."""
    folder = environment.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")  # noqa: PTH111
    return Path(folder, "mltree", NAME)


def defaults(path: Path, options: Mapping[str, Mapping[str, bool]]) -> dict[str, dict[str, Any]]:
    """The values in a file, by command and by the option's name in code.

    options  names of each command's options as they are typed (``data-type``), and whether each is
             a switch

    Raises:
        InputError: the file is no TOML, or has a key or a value that no command takes.
    """
    content = _parsed(path)
    shared = {key: value for key, value in content.items() if not isinstance(value, dict)}
    everywhere = set[str]().union(*options.values())
    _check(path, "", shared, dict.fromkeys(everywhere))
    found: dict[str, dict[str, Any]] = {}
    for command, own in options.items():
        table = content.pop(command, {})
        if not isinstance(table, dict):  # an option that is called like a command, such as model
            table = {}
        _check(path, command, table, own)
        merged = {
            **{_key(k): v for k, v in shared.items()},
            **{_key(k): v for k, v in table.items()},
        }
        found[command] = {
            key.replace("-", "_"): _value(path, key, value, own[key])
            for key, value in merged.items()
            if key in own
        }
    for name, value in content.items():
        if isinstance(value, dict):
            raise InputError(f"[{name}] is no command", file=str(path), hint=", ".join(options))
    return found


def _parsed(path: Path) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        return tomllib.loads(read_own(path).decode("utf-8"))
    except RecursionError:
        raise InputError("not TOML: brackets within brackets", file=str(path)) from None
    except ValueError as error:  # tomllib's own and those of UTF-8
        raise InputError(f"not TOML: {error}", file=str(path)) from None


def _key(key: str) -> str:
    """As it is typed on a command line."""
    return key.replace("_", "-")


def _check(
    path: Path, command: str, table: Mapping[str, Any], known: Mapping[str, bool | None]
) -> None:
    """Refuse what no command, or not this one, has."""
    for key in table:
        if _key(key) not in known or _key(key) in NOT_IN_FILES:
            whose = f"mltree {command}" if command else "any command"
            raise InputError(f"{key} is no option of {whose}", file=str(path))


def _value(path: Path, key: str, value: Any, is_switch: bool) -> Any:
    """As the command line takes it."""
    if is_switch is not isinstance(value, bool) or not isinstance(value, bool | int | float | str):
        kind = "true or false" if is_switch else "a string or a number"
        raise InputError(f"{key} is to be {kind}", file=str(path))
    return value if is_switch else str(value)
