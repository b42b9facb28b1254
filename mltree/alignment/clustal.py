"""Clustal: a line that says so, then blocks of ``name sequence [count]`` and a line of marks.

Every block has every name, in the same order. The count that some programs add is of the row's
letters so far, and has to be right: it is what tells a truncated or edited file.
"""

from __future__ import annotations

from mltree.alignment.reading import Lines
from mltree.alignment.rows import Rows
from mltree.errors import InputError

__all__ = ["clustal_rows"]

MARKS = b" *:.\t\r"
"""What stands below a block: how well its columns are conserved."""

GAPS = b"-."


def clustal_rows(lines: Lines) -> Rows:
    """The alignment of a file.

    Raises:
        InputError: a block lacks a name or has it elsewhere, a count is wrong, or a line is neither
            row nor marks.
    """
    rows = Rows("Clustal")
    found = [
        (n, line.split())
        for n, line in enumerate(lines.text)
        if n and not (line[:1] in b" \t" and not line.strip(MARKS))
    ]
    names = _first_block([fields[0] for _, fields in found])
    letters = dict.fromkeys(names, 0)
    for place, (n, fields) in enumerate(found):
        expected = names[place % len(names)]
        if fields[0] != expected:
            raise _other_name(lines, n, fields[0], expected)
        if len(fields) not in (2, 3):
            raise lines.error("not a name, a sequence and perhaps a count", n)
        rows.add(fields[0], n, fields[1])
        letters[expected] += len(fields[1].translate(None, GAPS))
        if len(fields) == 3:
            _check_count(lines, n, fields[2], letters[expected])
    if found and len(found) % len(names):
        missing = names[len(found) % len(names)].decode("utf-8", "replace")
        raise lines.error(f"the last block has no {missing}", found[-1][0], hint="is it truncated?")
    return rows


def _first_block(names: list[bytes]) -> list[bytes]:
    """The names up to the first that comes again."""
    seen: dict[bytes, None] = {}
    for name in names:
        if name in seen:
            break
        seen[name] = None
    return list(seen)


def _other_name(lines: Lines, line: int, name: bytes, expected: bytes) -> InputError:
    shown, wanted = (n.decode("utf-8", "replace") for n in (name, expected))
    hint = "every block has the names of the first, in its order"
    return lines.error(f"{shown} where {wanted} is expected", line, hint=hint)


def _check_count(lines: Lines, line: int, count: bytes, letters: int) -> None:
    if not count.isdigit() or count.lstrip(b"0") != str(letters).encode().lstrip(b"0"):
        shown = count.decode("utf-8", "replace")
        message = f"the count says {shown}, but the row has {letters} letters so far"
        raise lines.error(message, line, hint="is the file edited or truncated?")
