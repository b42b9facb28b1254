"""Options: how they are described, and how values are read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mltree.runs.options import (
    AnalysisOptions,
    ExactOptions,
    Option,
    SeedOptions,
    SiteFrequencyOptions,
    mean_length_of,
    share_of,
    size_of,
    threads_of,
    whole_of,
)
from mltree.system.errors import InputError


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
    with pytest.raises(InputError, match="memory size"):
        size_of(text)


def test_bad_numbers_are_value_errors() -> None:
    for parse, text in ((whole_of, "-1"), (share_of, "1.5"), (mean_length_of, "1e7")):
        with pytest.raises(ValueError, match="number|between|branch length"):
            parse(text)
    with pytest.raises(ValueError, match="at least one thread"):
        threads_of("0")


def test_an_option_is_written_as_the_help_has_it() -> None:
    tree, switch, argument = (Option(text, "") for text in ("-t, --tree FILE", "--redo", "TREES"))
    assert (tree.names, tree.metavar) == (("--tree", "-t"), "FILE")
    assert (switch.names, switch.metavar) == (("--redo",), None)
    assert (argument.names, argument.metavar) == ((), "TREES")


def test_a_field_without_an_option_is_none() -> None:
    assert "vw" in AnalysisOptions(alignment="a.phy").__dict__
    assert "vw" not in AnalysisOptions.described()
    assert "vw" in ExactOptions.described()
    assert SeedOptions.type_of("seed") is int
    assert next(iter(AnalysisOptions.described())) == "alignment"


def test_inputs_are_what_may_name_files() -> None:
    options = SiteFrequencyOptions(alignment="a.phy", guide_tree="t.nwk")
    assert options.inputs == ["a.phy", "", "", "t.nwk"]


def test_the_digest_is_of_what_decides_the_result() -> None:
    options = ExactOptions(alignment="a.phy", origins={"vw": (8, "typed"), "model": (None, "")})
    same = replace(options, origins={**options.origins, "quiet": (True, "typed")})
    other = replace(options, origins={"vw": (4, "typed")})
    assert options.asked == same.asked != other.asked
    assert options.digest(without=["vw"]) == other.digest(without=["vw"])


def test_words_are_among_their_choices() -> None:
    ExactOptions(alignment="a.phy", precision="mixed").check()
    with pytest.raises(InputError, match="precision='half' is not one of double, mixed"):
        ExactOptions(alignment="a.phy", precision="half").check()


def test_the_device_is_told_by_the_options() -> None:
    options = ExactOptions(alignment="a.phy", memory_limit="1K", vw=8, precision="mixed")
    assert (options.resources.memory_limit, options.resources.vw) == (1024, 8)
    assert options.resources.mixed
