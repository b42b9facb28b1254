"""Options that commands share."""

from __future__ import annotations

import pytest

from mltree.cli.parsers import size_of
from mltree.errors import InputError


@pytest.mark.parametrize(
    ("text", "size"),
    [("512", 512), ("4K", 4096), ("1.5G", 3 << 29), ("2MiB", 2 << 20), ("1 gb", 1 << 30)],
)
def test_sizes(text: str, size: int) -> None:
    assert size_of(text) == size


@pytest.mark.parametrize(
    "text", ["", "much", "-1G", "0", "1X", "0.5", "1_0", "٣G", "9" * 400, "9000000T"]
)
def test_no_sizes(text: str) -> None:
    with pytest.raises(InputError, match="size of memory"):
        size_of(text)
