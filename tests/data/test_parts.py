"""Sites as partition files write them, and parts that do or do not fit their alignment."""

from __future__ import annotations

import random

import numpy as np
import pytest

from mltree.data.parts import LAST, Part, Scheme, fit, format_sites, parse_sites, runs_of
from mltree.system.errors import InputError

READ = {
    "1-900\\3, 1000": [range(0, 900, 3), range(999, 1000)],
    "1 - 900 \\ 3 1000": [range(0, 900, 3), range(999, 1000)],
    "505-656,904-\\3": [range(504, 656), range(903, LAST, 3)],
    "1-.\\3": [range(0, LAST, 3)],
    "7-": [range(6, LAST)],
    "7-900/3": [range(6, 900, 3)],
    " * ": [range(LAST)],
    "all": [range(LAST)],
    "5-5": [range(4, 5)],
    "": [],
}


@pytest.mark.parametrize("text", READ)
def test_sites_are_read(text: str) -> None:
    assert list(parse_sites(text)) == READ[text]
    assert [run.stop for run in parse_sites(text)] == [run.stop for run in READ[text]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("9-1", "9-1 run backwards"),
        ("1-9, 0-3", "0-3 begin at 0"),
        ("1-9\\0", "stride of 0"),
        ("1-9x", "cannot read the sites '1-9x'"),
        ("1--5", "cannot read"),
        ("-5", "cannot read"),
        ("1_0", "cannot read"),
        ("\u0663", "cannot read"),
        ("9" * 5000, "cannot read"),
    ],
)
def test_what_is_no_site_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("\\", "\\\\")):
        parse_sites(text)


@pytest.mark.cases(4, 400)
def test_sites_are_printed_as_they_are_read(case: int) -> None:
    rng = random.Random(case)
    for _ in range(50):
        runs = []
        for _ in range(rng.randint(1, 8)):
            first, step = rng.randrange(50), rng.choice([1, 1, 2, 3, 7])
            runs.append(
                range(first, rng.choice([first + 1, first + rng.randint(1, 40), LAST]), step)
            )
        for separator in (", ", " ", ","):
            read = parse_sites(format_sites(runs, separator))
            assert list(read) == runs
            assert all(len(r) == 1 or r.stop == run.stop for r, run in zip(read, runs, strict=True))


@pytest.mark.cases(4, 400)
def test_runs_hold_the_sites_that_they_were_made_of(case: int) -> None:
    rng = random.Random(case)
    for _ in range(50):
        size = rng.choice([3, 10, 60])
        sites = sorted(rng.sample(range(size), rng.randint(0, size)))
        runs = runs_of(np.array(sites, np.int64))
        assert [site for run in runs for site in run] == sites
        assert all(run.step == 1 or len(run) > 2 for run in runs)


def test_strides_are_found() -> None:
    assert format_sites(runs_of(np.arange(2, 900, 3))) == "3-900\\3"
    assert format_sites(runs_of(np.array([0, 1, 2, 3, 6, 9, 20]))) == "1-4, 7, 10, 21"


def scheme_of(*texts: str, covers: bool = True) -> Scheme:
    parts = [Part(f"p{n}", parse_sites(text), line=n) for n, text in enumerate(texts, 1)]
    return Scheme("genes.part", tuple(parts), covers)


def test_open_runs_end_at_the_last_site() -> None:
    fitted, notices = fit(scheme_of("1-.\\2", "2-\\2"), {None: 9})
    assert [part.runs for part in fitted.parts] == [(range(0, 9, 2),), (range(1, 9, 2),)]
    assert [part.n_sites for part in fitted.parts] == [5, 4]
    assert list(fitted.parts[1].sites) == [1, 3, 5, 7]
    assert not notices


@pytest.mark.parametrize(
    ("texts", "message", "line"),
    [
        (("1-5", "5-9"), "parts p1 and p2 overlap, first at site 5", 2),
        (("1-9\\3", "2-9\\3", "3-9"), "parts p1 and p3 overlap, first at site 4", 3),
        (("1-9, 3",), "part p1 names site 3 twice", 1),
        (("1-5", "6-10"), "part p2 goes to site 10, but the alignment has 9", 2),
        (("1-9", "10-"), "part p2 goes to site 10, but the alignment has 9", 2),
        (("1-9", ""), "part p2 has no sites", 2),
        (("1-3", "5-7"), "in no part: sites 4, 8-9", None),
        (("1-3", "5-9"), "in no part: site 4", None),
        (("1-9\\3", "2-9\\3"), "in no part: sites 3-9\\3", None),
    ],
)
def test_parts_that_do_not_fit(texts: tuple[str, ...], message: str, line: int | None) -> None:
    with pytest.raises(InputError) as caught:
        fit(scheme_of(*texts), {None: 9})
    assert caught.value.message.endswith(message)
    assert caught.value.message.startswith("genes.part")
    assert (caught.value.file, caught.value.line) == ("genes.part", line)
    assert caught.value.hint


def test_sites_may_be_left_out_where_the_file_says_so() -> None:
    _, notices = fit(scheme_of("1-3", "5-7", covers=False), {None: 9})
    assert notices == ("genes.part: 3 of 9 sites are in no part: 4, 8-9",)


def test_few_of_many_ranges_are_listed() -> None:
    _, (notice,) = fit(scheme_of("1-3, 5, 8, 10, 13, 15, 18, 20", covers=False), {None: 20})
    assert notice.endswith("4, 6-7, 9, 11-12, 14 and 2 more ranges")


def test_parts_of_other_files_do_not_overlap() -> None:
    parts = (Part("a", (range(5),)), Part("b", (range(LAST),), file="b.phy"))
    fitted, notices = fit(Scheme("x", parts, True), {None: 5, "b.phy": 7})
    assert fitted.parts[1].n_sites == 7
    assert not notices


@pytest.mark.parametrize("name", ["", "a,b", "a=b", "a;b", "a\u200bb"])
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(InputError, match="line 3: .* is not a name for a part"):
        Scheme("x", (Part(name, (range(5),), line=3),), True)


@pytest.mark.cases(4, 400)
def test_cover_and_overlap_against_counting(case: int) -> None:
    """Every site counted one by one says the same as the checks."""
    rng = random.Random(case)
    for _ in range(20):
        sites = rng.randint(3, 14)
        texts = []
        for _ in range(rng.randint(1, 4)):
            first = rng.randint(1, sites)
            texts.append(f"{first}-{rng.randint(first, sites)}\\{rng.choice([1, 1, 2, 3])}")
        scheme = scheme_of(*texts, covers=rng.random() < 0.5)
        counts = np.zeros(sites, int)
        for part in scheme.parts:
            for site in part.sites:
                counts[site] += 1
        if counts.max() > 1 or (scheme.covers and counts.min() == 0):
            message = "overlap" if counts.max() > 1 else "in no part"
            with pytest.raises(InputError, match=message):
                fit(scheme, {None: sites})
            continue
        _, notices = fit(scheme, {None: sites})
        assert bool(notices) == (counts.min() == 0)
