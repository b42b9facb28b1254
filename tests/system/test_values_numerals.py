"""Numbers: what Python takes for one and nobody writes is none."""

import math
import random

import pytest

from mltree.system.values import decimal, whole


@pytest.mark.parametrize("text", ["0", "-1", "+.5", "1.", "1e-6", " 2.5E+3\t", "007"])
def test_decimals(text: str) -> None:
    assert decimal(text) == float(text)


def test_a_decimal_beyond_a_float_is_infinite() -> None:
    assert decimal("1e999") == math.inf


@pytest.mark.parametrize(
    "text", ["", ".", "1_0", "٣", "١.٥", "nan", "inf", "infinity", "0x1", "1e", "1 2", "--1", "𝟏"]
)
def test_no_decimals(text: str) -> None:
    with pytest.raises(ValueError, match="is not a number"):
        decimal(text)


@pytest.mark.parametrize("text", ["", "-1", "+1", "1.0", "1_0", "٣", "²", "9" * 19, "9" * 5000])
def test_no_whole_numbers(text: str) -> None:
    with pytest.raises(ValueError, match="is not a whole number"):
        whole(text)


def test_whole_numbers() -> None:
    assert (whole("0"), whole(" 42 "), whole("9" * 18)) == (0, 42, 10**18 - 1)


def test_what_python_prints_is_read_back() -> None:
    rng = random.Random(1)
    for _ in range(1000):
        value = rng.uniform(-1, 1) * 10 ** rng.randint(-300, 300)
        assert decimal(repr(value)) == value
