"""A text file as lines of bytes: decompressed, any line ending, anything but text refused.

And the names of taxa in files, as trees have them.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import re
import select
import stat
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import IO, Any

from mltree.system.errors import InputError, did_you_mean
from mltree.system.process import host_memory

STDIN = "-"
"""File name of standard input."""

WHITESPACE = b" \t\n\r\v\f"
_CONTROL = bytes(byte for byte in (*range(32), 127) if byte not in WHITESPACE)
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_DOS_END = b"\x1a"
_SNIFFED_BYTES = 1 << 16

PATIENCE = 5.0
"""Seconds within which a writer must open a pipe that is read."""

_DECOMPRESSORS: tuple[tuple[bytes, str, Callable[[BytesIO], Any]], ...] = (
    (b"\x1f\x8b", "gzip", lambda packed: gzip.GzipFile(fileobj=packed)),
    (b"BZh", "bzip2", bz2.BZ2File),
    (b"\xfd7zXZ\x00", "xz", lzma.LZMAFile),
)

LIKE_FILE = 0.75
"""Likeness of a file's name to a misspelt one: most names share their last letters."""

_UNPACKED_AT_ONCE = 1 << 24
"""Bytes that are unpacked between two checks of the memory left."""

_COPIES = 3
"""Copies of a file's text in memory at once: pieces, whole, with line ends normalised."""


def read_text(path: str | Path) -> bytes:
    """The file's text with line feeds at line ends; gzip, bzip2 and xz are recognised by content.

    Raises: InputError: missing, unreadable, empty, truncated or not text.
    """
    text = unpacked(path).removeprefix(_BYTE_ORDER_MARK).removesuffix(_DOS_END)
    if not text.strip(WHITESPACE):
        raise InputError("the file is empty", file=str(path))
    head = text[:_SNIFFED_BYTES]
    if head.translate(None, _CONTROL) != head:
        raise InputError("not a text file", file=str(path), hint="plain text is wanted")
    if b"\r" in text:
        text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return text


def expect_file(path: str | Path) -> None:
    """Check that there is a file to read.

    Raises: InputError: missing, a folder, a device, or out of reach.
    """
    if path == STDIN:
        return
    with _system_errors(path):
        if stat.S_ISDIR(Path(path).stat().st_mode):
            raise IsADirectoryError
        _refuse_device(path)


def read_bytes(path: str | Path) -> bytes:
    """The content of a file; standard input and pipes are read once and remembered.

    Raises: InputError: as `expect_file`.
    """
    with _system_errors(path):
        if path == STDIN:
            return _standard_input()
        _refuse_device(path)
        if stat.S_ISFIFO((status := Path(path).stat()).st_mode):
            return _pipe(str(path), status.st_dev, status.st_ino)
        return Path(path).read_bytes()


@cache
def _pipe(path: str, _device: int, _inode: int) -> bytes:
    """The content of a pipe, cached by device and inode, because it can be read only once."""
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # which does not wait for a writer
    with os.fdopen(file, "rb") as pipe:
        poll = select.poll()
        poll.register(file, select.POLLIN)
        begun = b"" if poll.poll(1000 * PATIENCE) else _beginning(path, file)
        os.set_blocking(file, True)
        return begun + pipe.read()


def _beginning(path: str, pipe: int) -> bytes:
    """Read the first byte of a pipe, if a writer has sent it.

    Raises: InputError: nobody has the pipe open for writing.
    """
    try:
        if (first := os.read(pipe, 1)) == b"":
            hint = "start what writes it first"
            raise InputError("is a pipe that nobody writes to", file=path, hint=hint)
    except BlockingIOError:
        return b""
    return first


def forget_pipes() -> None:
    """Forget the content of named pipes, which will hold something else."""
    _pipe.cache_clear()


@cache
def _standard_input() -> bytes:
    if sys.stdin is None or sys.stdin.isatty():
        hint = "give a file, or pipe one in: zcat x.fa.gz | mltree search - --prefix x"
        raise InputError("nothing is piped into standard input", hint=hint)
    return sys.stdin.buffer.read()


def _refuse_device(path: str | Path) -> None:
    if Path(path).is_char_device() or Path(path).is_block_device():
        raise InputError("is a device, not a file", file=str(path))


@contextmanager
def _system_errors(path: str | Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise InputError("no such file", file=str(path), hint=_hint_for(Path(path))) from None
    except IsADirectoryError:
        raise InputError("is a directory, not a file", file=str(path)) from None
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InputError(f"cannot be read ({reason})", file=str(path)) from None
    except ValueError:  # a zero byte in the name
        raise InputError("not a valid file name", file=str(path)) from None


def _hint_for(missing: Path) -> str | None:
    """Hint for a path that leads nowhere: the file in its folder that is named most like it."""
    try:
        names = sorted(one.name for one in missing.parent.iterdir() if one.name.isprintable())
    except OSError:
        return f"there is no folder {missing.parent}"
    return did_you_mean(missing.name, names, "check the path", LIKE_FILE)


def unpacked(path: str | Path) -> bytes:
    """The content of a file, decompressed where it is packed.

    Raises: InputError: as `expect_file`, or truncated.
    """
    data = read_bytes(path)
    for magic, name, opened in _DECOMPRESSORS:
        if data.startswith(magic):
            try:
                with opened(BytesIO(data)) as file:
                    return _all_of(file, str(path))
            except (EOFError, OSError, ValueError, lzma.LZMAError, zlib.error):
                message, hint = f"truncated or damaged {name} file", "copy the file again"
                raise InputError(message, file=str(path), hint=hint) from None
    return data


def _all_of(file: IO[bytes], path: str) -> bytes:
    """The content of a packed file, as long as the memory can hold it; raises InputError."""
    pieces, size, room = [], 0, host_memory()
    while piece := file.read(_UNPACKED_AT_ONCE):
        pieces.append(piece)
        size += len(piece)
        if size * _COPIES > room:
            message = f"unpacks to more than {size >> 20:,} MiB, which the memory cannot hold"
            raise InputError(message, file=path)
    return b"".join(pieces)


# Names of taxa. Newick has quotes for names with marks of its own, but few programs read them: of
# ``'A/Ohio/7(H1N1)'`` IQ-TREE 2.0.7 and FastTree 2.1 say that the tree is broken, ape 5.7 takes the
# quotes for part of the name, and ete3 3.1 wants to be told. So trees get names without such marks,
# the same that IQ-TREE makes of them, and a table leads back.

NEWICK_SPECIAL = "()[]:;,'\""
"""Characters that a name cannot have without quotes in Newick."""

SUBSTITUTE = "_"
"""Character in place of each that a name cannot have, as IQ-TREE's."""

_ELSEWHERE = re.compile(rb"[^A-Za-z0-9_./|-]")
"""Bytes that IQ-TREE 2 replaces in names."""


def tree_name(name: str, kept: str = "") -> str:
    """A name without blanks, marks of Newick and characters that cannot be seen, but those kept."""
    return "".join(
        letter
        if letter in kept
        or (letter.isprintable() and letter not in NEWICK_SPECIAL and not letter.isspace())
        else SUBSTITUTE
        for letter in name
    )


class TaxonNumbers(dict[str, int]):
    """The number of each taxon by its name, or by how another program spells the name.

    A name that no taxon has stands for the one taxon that IQ-TREE spells alike: ``'Pan:1'`` and
    ``Pan_1`` are one, unless both are taxa.
    """

    def __init__(self, taxa: Sequence[str]) -> None:
        """``taxa``: T names, by number."""
        super().__init__((name, number) for number, name in enumerate(taxa))
        self.taxa = taxa
        self._spelled: dict[bytes, list[int]] = {}

    def __missing__(self, name: str) -> int:
        """Return -1 for a name that stands for no taxon, or for several."""
        if not self._spelled:
            for taxon, number in self.items():
                self._spelled.setdefault(_spelling(taxon), []).append(number)
        alike = self._spelled.get(_spelling(name), [])
        return alike[0] if len(alike) == 1 else -1

    def names(self, given: Iterable[str]) -> list[str]:
        """The taxa that names stand for, and the names themselves that stand for none."""
        numbered = ((name, self[name]) for name in given)
        return [self.taxa[number] if number >= 0 else name for name, number in numbered]


def _spelling(name: str) -> bytes:
    return _ELSEWHERE.sub(SUBSTITUTE.encode(), name.encode(errors="surrogatepass"))
