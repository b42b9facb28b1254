"""Values: frozen dataclasses that take no compiler to define, and what JSON takes of them.

A dataclass of the standard library writes six methods as text and compiles them, which takes 1 ms a
class on the first second of every command. Those that all commands load are of this kind instead:
fields, ``replace`` and ``asdict`` are the standard library's, the methods are here, once for all.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform


else:

    def dataclass_transform(**_: object) -> Callable[[TypeVar], TypeVar]:
        """Leave classes as they are: it speaks to type checkers."""
        return lambda cls: cls


class Word(str, Enum):
    """A word of a few, equal to its text: ``enum.StrEnum``, which Python 3.10 lacks."""

    __str__ = str.__str__

    def __format__(self, form: str) -> str:
        return str.__format__(self.value, form)


def plain(value: Any) -> Any:
    """Convert a value to strict JSON: numbers that are not finite become text."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Value:
    """Base class that makes its subclasses frozen dataclasses."""

    __match_args__: ClassVar[tuple[str, ...]] = ()
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    _compared: ClassVar[tuple[str, ...]] = ()
    """Fields that tell objects apart: not those of ``field(compare=False)``."""
    _names: ClassVar[frozenset[str]] = frozenset()
    """Names of all fields."""

    def __init_subclass__(cls, *, eq: bool = True, **_: bool) -> None:
        """``eq=False``: an object of the class equals itself alone; type checkers know the rest."""
        dataclass(init=False, repr=False, eq=False)(cls)
        fields = cls.__dataclass_fields__
        cls._names = frozenset(cls.__match_args__)
        cls._compared = tuple(name for name in cls.__match_args__ if fields[name].compare)
        if not eq:
            cls.__eq__, cls.__hash__ = object.__eq__, object.__hash__  # type: ignore[method-assign]

    def __init__(self, *values: Any, **named: Any) -> None:
        """Raises: TypeError where values are missing, too many, or of no field."""
        names = self.__match_args__
        if not named and len(values) == len(names):
            self.__dict__.update(zip(names, values, strict=True))
            return
        by_name = dict(zip(names, values, strict=False))
        by_name.update(named)
        n_named = len(by_name)
        if n_named < len(names):
            for name in names[len(values) :]:
                definition = self.__dataclass_fields__[name]
                if name not in by_name and definition.default_factory is not MISSING:
                    by_name[name] = definition.default_factory()
                elif name not in by_name and definition.default is not MISSING:
                    by_name[name] = definition.default
        if n_named < len(values) + len(named) or by_name.keys() != self._names:
            wrong = (named.keys() & names[: len(values)]) | (by_name.keys() ^ self._names)
            raise TypeError(f"{type(self).__name__}{names}: {sorted(wrong)}")
        in_order = {name: by_name[name] for name in names} if named else by_name
        self.__dict__.update(in_order)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__match_args__)
        return f"{type(self).__name__}({shown})"

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return self._values() == other._values()

    def __hash__(self) -> int:
        return hash((type(self), self._values()))

    def _values(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self._compared)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> NoReturn:
        raise FrozenInstanceError(f"cannot delete field {name!r}")


# Numbers as files and options of the field write them: ASCII digits, nothing else.
#
# Python's own ``float`` and ``int`` also take ``1_0``, the digits of every script and, in
# ``float``, ``nan`` and ``infinity``: a slip of the pen would become a number that nobody wrote.

_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_WHOLE = re.compile(r"[0-9]{1,18}")


def decimal(text: str) -> float:
    """The value of ``-1``, ``.5`` or ``1e-6``; blanks around it do not count.

    Infinite where the number is too large for a float64. Raises: ValueError.
    """
    if not is_decimal(text):
        raise ValueError(f"{text.strip()!r} is not a number")
    return float(text)


def is_decimal(text: str) -> bool:
    """True for a text that `decimal` accepts."""
    return _DECIMAL.fullmatch(text.strip()) is not None


def whole(text: str) -> int:
    """The value of ``42``: up to 18 digits, no sign. Raises: ValueError."""
    if not _WHOLE.fullmatch(text.strip()):
        raise ValueError(f"{text.strip()!r} is not a whole number of at most 18 digits")
    return int(text)
