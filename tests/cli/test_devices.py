"""Runs on several devices and under memory limits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from mltree.device.discovery import find_devices

Run = Callable[..., Result]

QUICK = ("--preset", "fast")


@pytest.mark.skipif(not find_devices(), reason="no OpenCL device")
def test_panels_change_no_bit(run: Run, primates: str) -> None:
    found = []
    for options in ((), ("--memory-limit", "4M"), ("--device", "0,0")):
        prefix = f"run{len(found)}"
        result = run("search", primates, *QUICK, "--prefix", prefix, *options)
        assert result.exit_code == 0, result.output
        if options[:1] == ("--device",):
            assert "takes" in result.stdout
        files = [Path(f"{prefix}.mltree.{kind}") for kind in ("bestTree", "bestModel")]
        found.append([file.read_text() for file in files])
    assert found[1] == found[0]
    assert found[2] == found[0]


def test_a_memory_limit_that_is_no_size(run: Run, primates: str) -> None:
    result = run("search", primates, *QUICK, "--memory-limit", "lots")
    assert result.exit_code == 2
    assert "no size of memory" in result.stderr
