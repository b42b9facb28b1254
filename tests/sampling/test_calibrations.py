"""Calibrations: densities against SciPy's, and what contradicts itself is one clear line."""

import math

import numpy as np
import pytest
from scipy import stats

from mltree.dating.dates import calibration_rows
from mltree.dating.time_trees import TimeTree
from mltree.sampling.calibrations import bounds_of, calibrations_of, groups
from mltree.system.errors import InputError
from mltree.tree.clades import read_written


@pytest.fixture
def read(tmp_path):
    """read(lines, ...): calibrations of lines of a table."""

    def of(*lines, **known):
        file = tmp_path / "calibrations.tsv"
        file.write_text("\n".join(lines))
        return calibrations_of(calibration_rows(str(file)), "abcd", **known)

    return of


TREE = TimeTree.of(read_written("((b:2,(c:1,a:1):1):1,d:3);")[0], "abcd")
TWINS = (
    ("Normal(2.5, 0.7)", stats.norm(2.5, 0.7)),
    ("[1,4]", stats.uniform(1, 3)),
    ("Uniform(0.5, 4)", stats.uniform(0.5, 3.5)),
    ("0.5 + Exponential(mean=3)", stats.expon(0.5, 3)),
    ("Exponential(mean=3, offset=0.5)", stats.expon(0.5, 3)),
    ("0.25 + LogNormal(0.3, 0.9)", stats.lognorm(0.9, 0.25, math.exp(0.3))),
    ("LogNormal(real_mean=2, deviation=0.8)", stats.lognorm(0.8, 0, 2 * math.exp(-0.32))),
    ("gamma(shape=2, scale=0.6)", stats.gamma(2, scale=0.6)),
    ("0.1 + Gamma(2, 3)", stats.gamma(2, 0.1, 1 / 3)),
)


@pytest.mark.parametrize(("text", "twin"), TWINS)
def test_densities_of_ages(read, text, twin):
    for group, words, height in (("a,b", "", 2.0), ("a,c", "", 1.0), ("a,c", "stem", 2.0)):
        (one,) = read(f"{group}\t{text}\t{words or 'crown'}")
        assert one.log_density(TREE) == pytest.approx(twin.logpdf(height), rel=1e-10)
    for share in (0.025, 0.4, 0.975):
        assert one.distribution.quantile(share) == pytest.approx(twin.ppf(share), rel=1e-6)
    if math.isfinite(low := twin.support()[0]) and low > 0:
        assert one.distribution.log_density(np.array(low - 1e-3)) == -math.inf


def test_dates_are_heights_before_the_latest_tip(read):
    lines = ["a,b\t[1990,1995.5]", "a,c\tNormal(1997,2)", "a,b,c\t1990 - Exponential(mean=4)",
             "a,d\tUniform(1900,1990)", "b,c\tl(1950)"]  # fmt: skip
    found = read(*lines, latest=2000.0, ages=False)
    assert [str(one.distribution) for one in found] == [
        "Uniform(4.5, 10)", "Normal(3, 2)", "10 + Exponential(0.25)", "Uniform(10, 100)",
        "Uniform(-inf, 50)",
    ]  # fmt: skip
    assert found[4].support == (0.0, 50.0)
    assert found[4].log_density(TREE) == 0.0
    found = read("a,b\t5 + Exponential(mean=4)", "a,d\t[9,12]", latest=-3.0)  # ages, the least is 3
    assert [str(one.distribution) for one in found] == ["2 + Exponential(0.25)", "Uniform(6, 9)"]


def test_bounds_for_a_date(tmp_path):
    file = tmp_path / "calibrations.tsv"
    file.write_text("a,b\t[3,5]\na,b\tNormal(10,1)\nc,d\tl(3)\tstem\nc,d\tUniform(2,4)\n")
    found = [bounds_of(row, ages=True) for row in calibration_rows(str(file))]
    assert found[0].span == (-5.0, -3.0)
    assert found[1].span == pytest.approx((-11.959964, -8.040036))
    assert found[2][1:] == ((-math.inf, -3.0), True, False)
    assert found[3].span == (-4.0, -2.0)
    file.write_text("a,b\tNormal(1990,1)\nc,d\t1980 - Exponential(1)\n")
    found = [bounds_of(row) for row in calibration_rows(str(file))]
    assert found[0].span == pytest.approx((1988.040036, 1991.959964))
    assert found[1].span == pytest.approx((1980 + math.log(0.025), 1980 + math.log(0.975)))


def test_monophyly(read):
    found = read("a,c\tmonophyletic", "a,c\t?\tmono", "a,b,c\t[1,3]\tmonophyletic")[:3:2]
    assert [one.log_density(TREE) for one in found] == [0.0, -math.log(2)]
    assert list(groups(found)) == [(0, 2), (0, 1, 2)]
    (one,) = read("a,b\t[1,3]\tmonophyletic")
    assert one.log_density(TREE) == -math.inf


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["a,x\t[1,2]"], "calibration a,x: no taxon is called 'x'"),
        (["a,b,c\tmono", "it\ta,d\tmono"], "it: overlaps with a,b,c: both cannot be monophyletic"),
        (["a,b\t[5,9]", "out\ta,b,c\t[1,4]"], "a,b: at least 5 old, but out, in which it is, at"),
        (["a,b\t[1,4]", "a,b\t[5,9]"], "a,b: at least 5 old, but a,b, in which it is, at most 4"),
        (["a,b\t9 + Exponential(1)\tstem mono", "a,b,c\t[1,4]"], "a,b: at least 9 old"),
        (["a\t[1,2]"], "a: one taxon has no crown"),
        (["a,b,c,d\t[1,2]\tstem"], "the root has no stem"),
        (["a,b\t7"], "a height without width cannot be sampled"),
        (["a,b\tNormal(1)"], r"Normal\(1\) does not give mean, deviation"),
        (["a,b\tNormal(1,0)"], r"Normal\(1,0\) is improper"),
        (["a,b\tExponential(mean=0)"], "does not give rate"),
        (["a,b\tNorml(1,2)"], "no such distribution"),
        (["a,b\t2000 - Normal(1,2)"], "a minus sign goes with dates"),
        (["a,b\tx3"], "'x3' is not a date"),
    ],
)
def test_contradictions(read, lines, message):
    with pytest.raises(InputError, match=message) as found:
        read(*lines)
    assert found.value.file is not None
    assert found.value.line in (1, 2)


def test_a_stem_may_be_above_a_crown_around_it(read):
    read("a,b\t[5,9]\tstem", "a,b,c\t[1,4]")  # if c is in the crown of a and b
    with pytest.raises(InputError, match="a tip of it is of 3"):
        read("a,b\t[1,2]", tip_heights=[0.0, 3.0, 0.0, 0.0])
