"""Object files become shared libraries that the system loads; what is more than that is refused."""

from __future__ import annotations

import ctypes
import os
import random
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from mltree.device.pocl import linker
from mltree.device.pocl.linker import Unlinkable, link

CONSTANT = 0x1234567890ABCDEF
"""What the object file's function returns, from its table of constants."""

CODE = bytes.fromhex("90" * 16 + "488b0500000000" + "c3")
"""Nothing for 16 bytes; then ``mov rax, [rip + distance]; ret`` (AMD64 manual, volume 3)."""

ALLOCATED, WRITABLE, EXECUTABLE = 2, 1, 4


def object_file(
    relocation: int = 2, symbol: int = 1, constant_flags: int = ALLOCATED, machine: int = 62
) -> bytes:
    """An object file with a function ``answer`` at byte 16 of its code.

    ``symbol``: that its relocation points to: 1 the constants, 3 one that is defined nowhere.
    """
    names = b"\0answer\0missing\0"
    symbols = [
        (0, 0, 0, 0, 0, 0), (0, 3, 0, 2, 0, 0), (1, 0x12, 0, 1, 16, 8), (8, 0x10, 0, 0, 0, 0),
    ]  # fmt: skip
    bodies = [
        b"", CODE, bytes(8) + CONSTANT.to_bytes(8, "little"),
        struct.pack("<QQq", 16 + 3, symbol << 32 | relocation, 8 - 4),
        b"".join(struct.pack("<IBBHQQ", *row) for row in symbols), names, b"unwinding",
    ]  # fmt: skip
    kinds = [
        (0, 0, 0, 0, 0), (1, ALLOCATED | EXECUTABLE, 0, 0, 16), (1, constant_flags, 0, 0, 32),
        (4, 0, 4, 1, 8), (2, 0, 5, 2, 8), (3, 0, 0, 0, 1), (0x70000001, ALLOCATED, 0, 0, 8),
    ]  # fmt: skip
    offset, headers = 64, b""
    for body, (kind, flags, link_to, info, alignment) in zip(bodies, kinds, strict=True):
        row = (0, kind, flags, 0, offset, len(body), link_to, info, alignment, 0)
        headers += struct.pack("<IIQQQQIIQQ", *row)
        offset += len(body)
    ident = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    head = struct.pack(
        "<16sHHIQQQIHHHHHH", ident, 1, machine, 1, 0, 0, offset, 0, 64, 0, 0, 64, len(bodies), 0
    )
    return head + b"".join(bodies) + headers


@pytest.mark.parametrize("relocation", [2, 4])
def test_the_system_loads_what_was_linked(tmp_path: Path, relocation: int) -> None:
    library = tmp_path / "library.so"
    library.write_bytes(link(object_file(relocation)))
    answer = ctypes.CDLL(str(library)).answer
    answer.restype = ctypes.c_uint64
    assert answer() == CONSTANT


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (object_file(relocation=9), "relocation 9"),
        (object_file(symbol=3), "missing"),
        (object_file(constant_flags=ALLOCATED | WRITABLE), "can be written"),
        (object_file(machine=183), "no object file"),
        (link(object_file()), "no object file"),
        (b"", "damaged"),
    ],
    ids=["got", "undefined", "data", "arm", "library", "empty"],
)
def test_more_than_kernels_need_is_refused(content: bytes, words: str) -> None:
    with pytest.raises(Unlinkable, match=words):
        link(content)


@pytest.mark.cases(20, 300)
def test_damaged_files_end_in_nothing_else(case: int) -> None:
    rng = random.Random(case)
    for _ in range(100):
        content = bytearray(object_file())
        for _ in range(rng.randint(1, 8)):
            content[rng.randrange(len(content))] = rng.choice((0, 1, 255, rng.randrange(256)))
        try:
            library = link(bytes(content[: rng.randint(0, 2 * len(content))]))
        except Unlinkable:
            continue
        assert library.startswith(b"\x7fELF")


def ld(*arguments: str, path: str = "", **more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-IS", linker.__file__, *arguments]
    environment = {"PATH": path, **more}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_the_command_takes_what_clang_gives_it(tmp_path: Path) -> None:
    source, target = tmp_path / "a.o", tmp_path / "a.so"
    source.write_bytes(object_file())
    found = ld(
        "--hash-style=both", "-m", "elf_x86_64", "-shared", "-o", str(target), "-L/lib",
        str(source), "-lgcc", "--as-needed", "-lgcc_s", "-lc",
    )  # fmt: skip
    assert (found.returncode, found.stderr) == (0, "")
    assert target.read_bytes() == link(object_file())
    assert os.access(target, os.X_OK)


def test_the_rest_is_the_next_linkers(tmp_path: Path) -> None:
    source = tmp_path / "a.o"
    source.write_bytes(object_file(symbol=3))
    arguments = ("-shared", "-o", str(tmp_path / "a.so"), str(source))
    alone = ld(*arguments, path=str(tmp_path / "nothing"))
    assert alone.returncode == 1
    assert "'missing', and there is no other ld" in alone.stderr
    other = tmp_path / "bin" / "ld"
    other.parent.mkdir()
    other.write_text('#!/bin/sh\necho "$@"\n')
    other.chmod(0o755)
    assert ld(*arguments, path=str(other.parent)).stdout.split() == list(arguments)


@pytest.mark.parametrize("symbol", [None, 3], ids=["own", "system's"])
def test_the_sum_of_what_was_linked_is_kept(symbol: int | None, tmp_path: Path) -> None:
    other = tmp_path / "bin" / "ld"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\necho linked > $3; exit 0\n")
    other.chmod(0o755)
    source, target = tmp_path / "a.o", tmp_path / "a.so"
    source.write_bytes(object_file() if symbol is None else object_file(symbol=symbol))
    arguments = ("-shared", "-o", str(target), str(source))
    path = f"{other.parent}:/usr/bin:/bin"
    assert ld(*arguments, path=path).returncode == 0
    assert not (tmp_path / "sums").exists(), "not for PoCL"
    assert ld(*arguments, path=path, POCL_CACHE_DIR=str(tmp_path)).returncode == 0
    (kept,) = (tmp_path / "sums").iterdir()
    assert kept.name == linker.sum_of(target.read_bytes())


def test_a_target_that_cannot_be_written(tmp_path: Path) -> None:
    source = tmp_path / "a.o"
    source.write_bytes(object_file())
    found = ld("-shared", "-o", str(tmp_path), str(source))
    assert found.returncode == 1
    assert "Is a directory" in found.stderr
