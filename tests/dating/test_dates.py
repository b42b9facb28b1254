"""Dates as people write them."""

import math

import pytest

from mltree.dating.dates import (
    ANY,
    calibration_rows,
    dates_of,
    iso_of,
    read_date,
    span_of,
    year_of,
)
from mltree.system.errors import InputError


@pytest.mark.parametrize(
    ("text", "lower", "upper"),
    [
        ("2012.5", 2012.5, 2012.5),
        ("2012", 2012.0, 2012.0),
        ("2012-01-01", 2012.0 + 0.5 / 366, 2012.0 + 0.5 / 366),
        ("2011-12", 2011.0 + 334 / 365, 2012.0),
        ("2011-XX-XX", 2011.0, 2012.0),
        ("2011-12-XX", 2011.0 + 334 / 365, 2012.0),
        ("[2010,2011.5]", 2010.0, 2011.5),
        ("[2010-XX-XX:2011]", 2010.0, 2011.0),
        ("b(-10, -5)", -10.0, -5.0),
        ("l(3)", 3.0, math.inf),
        ("u(3)", -math.inf, 3.0),
        ("NA", *ANY),
    ],
)
def test_dates(text, lower, upper):
    assert read_date(text) == pytest.approx((lower, upper))


@pytest.mark.parametrize("text", ["2012-13-01", "2011-02-30", "soon", "[3,2]", "inf"])
def test_what_is_no_date(text):
    with pytest.raises(ValueError):  # noqa: PT011
        read_date(text)


def test_days_and_years():
    import datetime

    for day in (datetime.date(2011, 12, 31), datetime.date(2012, 2, 29), datetime.date(1999, 1, 1)):
        assert iso_of(year_of(day) + 1e-4) == day.isoformat()


def test_dates_in_names_stand_at_one_place():
    names = ["A/1999/x|2001-05-06", "B/2000/y|2002-07-08"]
    found = dates_of("names", names)
    assert found.is_calendar
    assert [math.floor(found.tips[name].lower) for name in names] == [2001, 2002]
    assert dates_of(r"/(\d+)/", names).tips[names[0]] == (1999.0, 1999.0)


def test_tables(tmp_path):
    table = tmp_path / "dates.tsv"
    table.write_text("strain\tcountry\tdate\na\tX\t2001-05\nb\tY\t2003.25\nzz\tY\t1999\n")
    found = dates_of(str(table), ["a", "b", "c"])
    assert set(found.tips) == {"a", "b"}
    assert found.tips["b"] == (2003.25, 2003.25)
    table.write_text("3\na 10\nmrca(a,b) b(1,2)\nb 12\n")  # LSD's
    found = dates_of(str(table), ["a", "b"])
    assert found.tips == {"a": (10.0, 10.0), "b": (12.0, 12.0)}
    assert [(one.taxa, span_of(one)) for one in found.calibrations] == [(("a", "b"), (1.0, 2.0))]
    table.write_text("name,age\na,10\nb,[2:3]\n")
    (tmp_path / "dates.csv").write_text(table.read_text())
    found = dates_of(str(tmp_path / "dates.csv"), ["a", "b"])
    assert found.tips == {"a": (-10.0, -10.0), "b": (-3.0, -2.0)}


def test_calibrations(tmp_path):
    file = tmp_path / "calibrations"
    file.write_text("# known\na,b\t[1,2]\nmrca(c,d) 5\n")
    rows = calibration_rows(str(file))
    found = [(row.taxa, span_of(row, ages=True)) for row in rows]
    assert found == [(("a", "b"), (-2.0, -1.0)), (("c", "d"), (-5.0, -5.0))]
    file.write_text("# nothing\n")
    with pytest.raises(InputError, match="no calibration in it"):
        calibration_rows(str(file))


def test_words_and_names_of_calibrations(tmp_path):
    file = tmp_path / "calibrations"
    lines = [
        "root\ta,b\tNormal(3, 1)\tmonophyletic, stem",
        "a, b\t2 + Exponential(mean=1)\tcrown",
        "c,d\tmonophyletic",
        "mrca(c,d) LogNormal(1, 0.5) mono stem",
        "pair\tc,e\t?\tmonophyletic",
    ]
    file.write_text("\n".join(lines))
    rows = [row[:5] for row in calibration_rows(str(file))]
    assert rows == [
        ("root", ("a", "b"), "Normal(3, 1)", True, True),
        ("a,b", ("a", "b"), "2 + Exponential(mean=1)", False, False),
        ("c,d", ("c", "d"), "", False, True),
        ("c,d", ("c", "d"), "LogNormal(1, 0.5)", True, True),
        ("pair", ("c", "e"), "", False, True),
    ]
    for broken in ("a,b\tstem", "a,b\t[1,2]\tstem crown", "stem"):
        file.write_text(broken)
        with pytest.raises(InputError):
            calibration_rows(str(file))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\tsoon\n", "'soon' is not a date"),
        ("a\n", "a line without a date"),
        ("x\t2000\n", "'x' is none"),
        ("a\t1\na\t2\n", "two dates of a"),
    ],
)
def test_broken_tables(tmp_path, text, message):
    table = tmp_path / "dates"
    table.write_text(text)
    with pytest.raises(InputError, match=message):
        dates_of(str(table), ["a"])
    with pytest.raises(InputError, match="no name of a tip has a date"):
        dates_of("names", ["a", "b"])
    with pytest.raises(InputError, match="there is no file"):
        dates_of("nothing.tsv", ["a", "b"])
