"""A linker for PoCL's kernels: one x86-64 object file in, one shared library out.

PoCL has the system's ``ld`` link what it compiled, and ends the process on the many machines that
have none. Its kernels call nothing outside and have no data of their own, only code, constants and
distances between the two (System V ABI, AMD64 supplement: R_X86_64_PC32 and its kin). What is more
than that goes to the system's linker. The sum of every library is kept beside PoCL's programs:
PoCL would load a damaged one, and end the process.

This file is run by itself, as the command ``ld``; it knows nothing of mltree.
"""

from __future__ import annotations

import hashlib
import os
import struct
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

POCL_FOLDER = "POCL_CACHE_DIR"
"""The variable that tells PoCL where to keep programs."""

SUMS = "sums"
"""The folder, among PoCL's programs, of an empty file for each sum."""

_FILE = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_ENTRY = struct.Struct("<qQ")

_IDENT = b"\x7fELF\x02\x01\x01"
_RELOCATABLE, _LIBRARY = 1, 3
_X86_64 = 62
_PROGBITS, _SYMTAB, _RELA, _NOTE, _UNWIND = 1, 2, 4, 7, 0x70000001
_WRITE, _ALLOC, _EXECUTE, _THREAD = 1, 2, 4, 0x400
_LOAD, _DYNAMIC, _STACK = 1, 2, 0x6474E551
_DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_STRSZ, _DT_SYMENT = 4, 5, 6, 10, 11
_FORMATS = {2: "<i", 4: "<i", 24: "<q"}
"""Distances that can be filled in: R_X86_64_PC32, PLT32 and PC64."""

_PAGE = 4096
_SEGMENTS = 5


class Unlinkable(Exception):
    """An object file that needs more than kernels do, and what."""


class _Section(NamedTuple):
    name: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry: int


class _Symbol(NamedTuple):
    name: int
    info: int
    other: int
    section: int
    value: int
    size: int

    @property
    def is_global(self) -> bool:
        """True if other files may see it."""
        return self.info >> 4 != 0 and self.other & 3 == 0


def link(content: bytes) -> bytes:
    """The shared library of an object file.

    Raises:
        Unlinkable: it has data, or needs something from outside.
    """
    try:
        return _Object(content).linked()
    except (struct.error, IndexError, ValueError, OverflowError) as error:
        raise Unlinkable(f"damaged object file: {error}") from error


class _Object:
    """An object file, taken apart."""

    def __init__(self, content: bytes) -> None:
        head = _FILE.unpack_from(content)
        if not head[0].startswith(_IDENT) or head[1:3] != (_RELOCATABLE, _X86_64):
            raise Unlinkable("no object file of x86-64")
        offset, size, count = head[6], head[11], head[12]
        self._content = content
        self._sections = [
            _Section(*_SECTION.unpack_from(content, offset + n * size)) for n in range(count)
        ]
        table = self._sections[[section.type for section in self._sections].index(_SYMTAB)]
        self._symbols = [_Symbol(*row) for row in _SYMBOL.iter_unpack(self._bytes(table))]
        self._names = self._bytes(self._sections[table.link])
        self._kept = [n for n, section in enumerate(self._sections) if _is_kept(section)]
        self._places: dict[int, int] = {}
        """Addresses of the sections that are kept, which are their offsets too."""

    def _bytes(self, section: _Section) -> bytes:
        end = section.offset + section.size
        if end > len(self._content) or section.alignment > _PAGE:
            raise Unlinkable("a section that is not there, or aligned to more than a page")
        return self._content[section.offset : end]

    def _name(self, symbol: _Symbol) -> bytes:
        return self._names[symbol.name : self._names.index(b"\0", symbol.name)]

    def linked(self) -> bytes:
        """Constants after the tables, then code, then the dynamic section, on pages of their own.

        The loader needs to write to the last one.
        """
        exported = [x for x in self._symbols if x.is_global and x.section in self._kept]
        names = b"\0" + b"".join(self._name(symbol) + b"\0" for symbol in exported)
        symbols = _FILE.size + _SEGMENTS * _SEGMENT.size
        hashes = symbols + (1 + len(exported)) * _SYMBOL.size
        strings = hashes + (4 + len(exported)) * 4
        code = self._place(strings + len(names), is_code=False)
        dynamic = self._place(code, is_code=True)
        entries = (
            (_DT_HASH, hashes), (_DT_STRTAB, strings), (_DT_SYMTAB, symbols),
            (_DT_STRSZ, len(names)), (_DT_SYMENT, _SYMBOL.size), (0, 0),
        )  # fmt: skip
        end = dynamic + len(entries) * _ENTRY.size
        segments = (
            (_LOAD, 4, 0, code), (_LOAD, 5, code, dynamic), (_LOAD, 6, dynamic, end),
            (_DYNAMIC, 6, dynamic, end), (_STACK, 6, 0, 0),
        )  # fmt: skip
        head = _FILE.pack(
            _IDENT.ljust(16, b"\0"), _LIBRARY, _X86_64, 1, 0, _FILE.size, 0, 0, _FILE.size,
            _SEGMENT.size, _SEGMENTS, 0, 0, 0,
        )  # fmt: skip
        image = bytearray(end)
        pieces = {
            0: head + b"".join(_segment(*segment) for segment in segments),
            symbols: self._dynamic_symbols(exported),
            hashes: _hash_table(len(exported)),
            strings: names,
            **{place: self._bytes(self._sections[n]) for n, place in self._places.items()},
            dynamic: b"".join(_ENTRY.pack(*entry) for entry in entries),
        }
        for place, piece in pieces.items():
            image[place : place + len(piece)] = piece
        self._relocate(image)
        return bytes(image)

    def _place(self, start: int, *, is_code: bool) -> int:
        """Put sections one behind the other; the first address of the page after them."""
        for n in self._kept:
            section = self._sections[n]
            if bool(section.flags & _EXECUTE) == is_code:
                start = _up_to(max(1, section.alignment), start)
                self._places[n] = start
                start += len(self._bytes(section))
        return _up_to(_PAGE, start)

    def _dynamic_symbols(self, exported: Sequence[_Symbol]) -> bytes:
        rows = [bytes(_SYMBOL.size)]
        name = 1
        for symbol in exported:
            address = self._places[symbol.section] + symbol.value
            rows.append(_SYMBOL.pack(name, symbol.info, 0, 1, address, symbol.size))
            name += len(self._name(symbol)) + 1
        return b"".join(rows)

    def _relocate(self, image: bytearray) -> None:
        """Fill in the distances: S + A - P, where P is the place and S + A what it points to."""
        for table in self._sections:
            if table.type != _RELA or table.info not in self._places:
                continue
            for offset, info, addend in _RELOCATION.iter_unpack(self._bytes(table)):
                symbol = self._symbols[info >> 32]
                kind = info & 0xFFFFFFFF
                is_inside = offset < self._sections[table.info].size
                if kind not in _FORMATS or symbol.section not in self._places or not is_inside:
                    raise Unlinkable(f"relocation {kind} to {self._name(symbol)!r}")
                place = self._places[table.info] + offset
                distance = self._places[symbol.section] + symbol.value + addend - place
                struct.pack_into(_FORMATS[kind], image, place, distance)


def _is_kept(section: _Section) -> bool:
    """True if a section goes into the library; notes and tables for unwinding serve nobody."""
    if not section.flags & _ALLOC or section.type in {_NOTE, _UNWIND} or section.size == 0:
        return False
    if section.flags & (_WRITE | _THREAD) or section.type != _PROGBITS:
        raise Unlinkable("data that can be written")
    return True


def _segment(kind: int, flags: int, start: int, stop: int) -> bytes:
    """A program header of what lies in memory as it does in the file."""
    size = stop - start
    alignment = 8 if kind == _DYNAMIC else _PAGE
    return _SEGMENT.pack(kind, flags, start, start, start, size, size, alignment)


def _hash_table(symbols: int) -> bytes:
    """All symbols in one bucket: there are three of them."""
    chain = [*range(2, symbols + 1), 0] if symbols else []
    return struct.pack(f"<{4 + symbols}I", 1, symbols + 1, min(1, symbols), 0, *chain)


def _up_to(unit: int, number: int) -> int:
    return -(-number // unit) * unit


def _files(arguments: Sequence[str]) -> tuple[Path, Path]:
    """Object file and library of the command line."""
    inputs, output = [], None
    rest = iter(arguments)
    for argument in rest:
        if argument == "-o":
            output = next(rest, None)
        elif argument in {"-m", "-z"}:
            next(rest, None)
        elif not argument.startswith("-"):
            inputs.append(argument)
    if "-shared" not in arguments or output is None or len(inputs) != 1:
        raise Unlinkable("not one object file for one shared library")
    return Path(inputs[0]), Path(output)


def sum_of(content: bytes) -> str:
    """The sum of a file that PoCL keeps."""
    return hashlib.sha256(content).hexdigest()


def has_sum(folder: Path, content: bytes) -> bool:
    """True if a file of PoCL's folder is as it was made; its sum was then used just now."""
    path = folder / SUMS / sum_of(content)
    with suppress(OSError):
        os.utime(path)
    return path.exists()


def keep_sum(folder: Path, content: bytes) -> None:
    """Keep the sum of a file of PoCL's folder; a sum that cannot be kept costs a compilation."""
    with suppress(OSError):
        (folder / SUMS).mkdir(mode=0o700, exist_ok=True)
        (folder / SUMS / sum_of(content)).touch(mode=0o600)


def _keep_sum(library: Path) -> None:
    if folder := os.environ.get(POCL_FOLDER):
        with suppress(OSError):
            keep_sum(Path(folder), library.read_bytes())


def _ask_system(arguments: Sequence[str], reason: Exception) -> int:
    """Call the next linker on the PATH, if there is one; its exit status.

    Never one before this, so that two of these do not call each other for ever.
    """
    folders = os.environ.get("PATH", "").split(os.pathsep)
    here = str(Path(__file__).absolute().parent)
    after = folders.index(here) + 1 if here in folders else 0
    for folder in filter(None, folders[after:]):
        command = Path(folder) / "ld"
        if os.access(command, os.X_OK):
            status = os.spawnv(os.P_WAIT, command, ["ld", *arguments])
            with suppress(ValueError, IndexError):
                _keep_sum(Path(arguments[arguments.index("-o") + 1]))
            return status
    sys.stderr.write(f"mltree's linker: {reason}, and there is no other ld\n")
    return 1


def main(arguments: Sequence[str]) -> int:
    """The command ``ld``; its exit status."""
    try:
        source, target = _files(arguments)
        library = link(source.read_bytes())
    except (Unlinkable, OSError) as error:
        return _ask_system(arguments, error)
    try:
        target.write_bytes(library)
        target.chmod(0o700)
    except OSError as error:
        sys.stderr.write(f"mltree's linker: {error}\n")
        return 1
    _keep_sum(target)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
