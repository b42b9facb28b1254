"""``mltree sample``: what it does not take is one line, and nothing is written or lost."""

from __future__ import annotations

from pathlib import Path

import pytest

import mltree
from mltree.system.errors import InputError, MltreeError

ROWS = {f"t{n}": "ACGTACGTTGCA"[n:] + "ACGTACGTTGCA"[:n] for n in range(5)}


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.chdir(tmp_path)
    return ROWS


PRIORS = {
    'kapa = "Exponential(1)"': "no such prior: kapa (did you mean kappa?)",
    'kappa = "Uniform(0, inf)"': "improper",
    'kappa = "Flat(1)"': "no such distribution: Flat(1)",
    'kappa = "Uniform(1e9, 1e10)"': "kappa is between",
    "kappa": "not TOML",
}


@pytest.mark.parametrize("text", PRIORS)
def test_what_is_no_prior_is_one_line(data: dict[str, str], text: str) -> None:
    Path("p.toml").write_text(text)
    with pytest.raises(MltreeError) as caught:
        mltree.sample(data, "HKY", prior="p.toml", stop="2")
    message = caught.value.message + (f" ({caught.value.hint})" if caught.value.hint else "")
    assert PRIORS[text] in message
    assert "\n" not in message
    assert [path.name for path in Path().iterdir()] == ["p.toml"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"runs": 0, "stop": "2"}, "runs"),
        ({"every": 0, "stop": "2"}, "every"),
        ({"rungs": "0"}, "rungs=0"),
        ({"stop": "0"}, "stop=0"),
        ({"burnin": "0", "stop": "2"}, "burnin=0"),
        ({"runs": 1}, "one run cannot agree with another"),
        ({"prior": "nothing.toml"}, "nothing.toml"),
    ],
    ids=str,
)
def test_what_is_no_option_is_one_line(
    data: dict[str, str], options: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        mltree.sample(data, "JC", **options)
    assert "\n" not in caught.value.message
    assert not list(Path().iterdir())
