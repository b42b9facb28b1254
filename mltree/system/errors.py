"""Every error that mltree raises on purpose.

    MltreeError
    ├── InputError        a file, taxon or option that the user gave
    ├── ModelError        a model string or parameter
    ├── DeviceError       OpenCL platform, build, memory or launch
    │   ├── DeviceMemoryError  no room for what a launch needs; a smaller one may fit
    │   └── WorkerFault   the device stopped inside a program
    └── NumericalError    a likelihood that is not a number

Each is one line for the user (plus an optional hint) and exit code 2. Anything else that
escapes is a bug.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice

MOST_KNOWN = 10_000
"""Names that a misspelt one is compared with, at some 10 us each."""


def did_you_mean(
    word: str, known: Iterable[str], otherwise: str | None = None, likeness: float = 0.6
) -> str | None:
    """Hint for a word that is not known: the name that is most like it, or begins with it.

    likeness  least ratio of equal letters, from 0 to 1
    """
    by_capitals = {name.lower(): name for name in islice(known, MOST_KNOWN)}
    low = word.lower()
    close = get_close_matches(low, by_capitals, 1, likeness)
    close = close or [name for name in by_capitals if low and name.startswith(low)]
    return f"did you mean {by_capitals[close[0]]}?" if close else otherwise


class MltreeError(Exception):
    """An expected failure: one line that says what is wrong, and a hint that says what to do."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        self.message = " ".join(message.splitlines())
        super().__init__(self.message)
        self.hint = hint


class InputError(MltreeError):
    """Something the user gave cannot be used; names the file, line or taxon where it can."""

    def __init__(
        self,
        message: str,
        *,
        file: str | None = None,
        line: int | None = None,
        taxon: str | None = None,
        hint: str | None = None,
    ) -> None:
        where = [part for part in (file, f"line {line}" if line else None) if part]
        prefix = f"{', '.join(where)}: " if where else ""
        super().__init__(prefix + message, hint=hint)
        self.file = file
        self.line = line or None  # what is no file has no lines
        self.taxon = taxon


class ModelError(MltreeError):
    """A model string or a model parameter cannot be used."""


class DeviceError(MltreeError):
    """No usable OpenCL device, or one that failed; names the device and the symbolic status."""


class DeviceMemoryError(DeviceError):
    """A device had no room for what a launch needs; its engine asks for less from now on."""


class WorkerFault(DeviceError):
    """The worker stopped inside a program; names the instruction and lists it."""


class NumericalError(MltreeError):
    """A likelihood or derivative came out as NaN or infinite."""
