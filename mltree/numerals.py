"""Numbers as files and options of the field write them: ASCII digits, nothing else.

Python's own ``float`` and ``int`` also take ``1_0``, the digits of every script and, in ``float``,
``nan`` and ``infinity``: a slip of the pen would become a number that nobody wrote.
"""

from __future__ import annotations

import re

__all__ = ["decimal", "is_decimal", "whole"]

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
    """Whether a text is what `decimal` reads."""
    return _DECIMAL.fullmatch(text.strip()) is not None


def whole(text: str) -> int:
    """The value of ``42``: up to 18 digits, no sign. Raises: ValueError."""
    if not _WHOLE.fullmatch(text.strip()):
        raise ValueError(f"{text.strip()!r} is not a whole number of at most 18 digits")
    return int(text)
