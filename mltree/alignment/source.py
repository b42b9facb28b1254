"""A text file as lines of bytes: decompressed, any line ending, anything but text refused."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from collections.abc import Callable
from pathlib import Path

from mltree.errors import InputError

__all__ = ["WHITESPACE", "fold", "read_text", "shown"]

WHITESPACE = b" \t\n\r\v\f"
_UPPER = bytes.maketrans(bytes(range(97, 123)), bytes(range(65, 91)))
_CONTROL = bytes(byte for byte in (*range(32), 127) if byte not in WHITESPACE)
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_SNIFFED_BYTES = 1 << 16

_DECOMPRESSORS: tuple[tuple[bytes, str, Callable[[bytes], bytes]], ...] = (
    (b"\x1f\x8b", "gzip", gzip.decompress),
    (b"BZh", "bzip2", bz2.decompress),
    (b"\xfd7zXZ\x00", "xz", lzma.decompress),
)


def read_text(path: str | Path) -> bytes:
    """The file's text with line feeds at line ends; gzip, bzip2 and xz are recognised by content.

    Raises:
        InputError: missing, unreadable, empty, truncated or not text.
    """
    text = _decompress(_read_bytes(path), str(path)).removeprefix(_BYTE_ORDER_MARK)
    if not text.strip(WHITESPACE):
        raise InputError("the file is empty", file=str(path))
    if text[:_SNIFFED_BYTES].translate(None, _CONTROL) != text[:_SNIFFED_BYTES]:
        raise InputError(
            "not a text file", file=str(path), hint="give a PHYLIP or FASTA alignment as plain text"
        )
    if b"\r" in text:
        text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return text


def _read_bytes(path: str | Path) -> bytes:
    try:
        return Path(path).read_bytes()
    except FileNotFoundError:
        raise InputError("no such file", file=str(path), hint="check the path") from None
    except IsADirectoryError:
        raise InputError("is a directory, not a file", file=str(path)) from None
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InputError(f"cannot be read ({reason})", file=str(path)) from None


def _decompress(data: bytes, path: str) -> bytes:
    for magic, name, decompress in _DECOMPRESSORS:
        if data.startswith(magic):
            try:
                return decompress(data)
            except (EOFError, OSError, ValueError, lzma.LZMAError, zlib.error):
                raise InputError(
                    f"truncated or damaged {name} file", file=path, hint="copy the file again"
                ) from None
    return data


def fold(pieces: list[bytes]) -> bytes:
    """Sequence characters of some lines: joined, without white space, in upper case."""
    return b"".join(pieces).translate(_UPPER, WHITESPACE)


def shown(byte: int) -> str:
    """A byte as an error message shows it: ``'@'``, or its hexadecimal value."""
    return repr(chr(byte)) if 32 < byte < 127 else f"byte 0x{byte:02x}"
