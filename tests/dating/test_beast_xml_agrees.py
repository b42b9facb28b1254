"""BEAST 2 and mltree sample the same posterior of the same XML, on fresh simulated data."""

import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from dated_trees import serial_coalescent

BEAST = "beast2-mcmc"

TEMPLATE = """<beast version="2.0" namespace="beast.base.core:beast.base.inference:\
beast.base.evolution.alignment:beast.base.evolution.tree:beast.base.evolution.tree.coalescent:\
beast.base.evolution.speciation:beast.base.evolution.operator:beast.base.inference.operator:\
beast.base.evolution.sitemodel:beast.base.evolution.substitutionmodel:\
beast.base.evolution.likelihood:beast.base.evolution.branchratemodel:\
beast.base.inference.distribution:beast.base.inference.parameter:beast.base.math.distributions">
<data id="alignment" dataType="nucleotide">{sequences}</data>
<taxonset spec="TaxonSet" id="taxa" alignment="@alignment"/>
<tree spec="{start}" id="tree" taxonset="@taxa">{dates}</tree>
{parameters}
{clock}
{likelihood}
<run spec="MCMC" id="mcmc" chainLength="{length}">
 <state><stateNode idref="tree"/>{state}</state>
 <distribution spec="CompoundDistribution" id="posterior">
  <distribution spec="CompoundDistribution" id="prior">{priors}</distribution>
  <distribution idref="{data}"/>
 </distribution>
 <operator spec="ScaleOperator" scaleFactor="0.75" weight="3" tree="@tree"/>
 <operator spec="ScaleOperator" scaleFactor="0.75" weight="3" rootOnly="true" tree="@tree"/>
 <operator spec="Uniform" weight="30" tree="@tree"/>
 <operator spec="SubtreeSlide" weight="15" gaussian="true" size="1.0" tree="@tree"/>
 <operator spec="Exchange" isNarrow="true" weight="15" tree="@tree"/>
 <operator spec="Exchange" isNarrow="false" weight="3" tree="@tree"/>
 <operator spec="WilsonBalding" weight="3" tree="@tree"/>
 {operators}
 <logger logEvery="{every}" fileName="beast.log"><log idref="{data}"/>
  <log spec="beast.base.evolution.tree.TreeHeightLogger" tree="@tree"/>{logged}</logger>
</run></beast>
"""

NAMES = {
    "tree.height": "Tree.height", "treeLikelihood": "likelihood", "posterior.data": "likelihood",
    "kappa1": "kappa.1", "kappa2": "kappa.2", "shape1": "gammaShape.1", "rate1": "mutationRate.1",
    "rate2": "mutationRate.2",
}  # fmt: skip
LENGTH, SAMPLES = 4_000_000, 4000

LIKELIHOOD = """<input spec="JukesCantor" id="jc"/>
<input spec="SiteModel" id="siteModel"><substModel idref="jc"/></input>
<input spec="TreeLikelihood" id="treeLikelihood" data="@alignment" tree="@tree"
 siteModel="@siteModel" branchRateModel="@clock"/>"""

OF_TWO_PARTS = """<data id="one" spec="FilteredAlignment" data="@alignment" filter="1-200"/>
<data id="two" spec="FilteredAlignment" data="@alignment" filter="201-400"/>
<input spec="Frequencies" id="even" frequencies="0.25 0.25 0.25 0.25"/>
<siteModel spec="SiteModel" id="site1" gammaCategoryCount="4" shape="@shape1"
 mutationRate="@rate1"><substModel spec="HKY" kappa="@kappa1" frequencies="@even"/></siteModel>
<siteModel spec="SiteModel" id="site2" mutationRate="@rate2">
 <substModel spec="HKY" kappa="@kappa2" frequencies="@even"/></siteModel>
<distribution spec="CompoundDistribution" id="posterior.data">
<distribution spec="TreeLikelihood" data="@one" tree="@tree" siteModel="@site1"
 branchRateModel="@clock"/>
<distribution spec="TreeLikelihood" data="@two" tree="@tree" siteModel="@site2"
 branchRateModel="@clock"/></distribution>"""


def sequences(rng, parents, dates, sites, rate, spread):
    """Bases of all nodes under Jukes and Cantor's model and log-normal rates of branches."""
    rows = rng.integers(0, 4, (len(parents), sites))
    for node, parent in enumerate(parents[1:].tolist(), 1):
        branch = rate * (dates[node] - dates[parent])
        branch *= np.exp(rng.normal(-spread * spread / 2, spread))
        changed = rng.random(sites) < 0.75 * -np.expm1(-4 * branch / 3)
        rows[node] = np.where(changed, (rows[parent] + rng.integers(1, 4, sites)) % 4, rows[parent])
    return rows


def parameter(name, value):
    return f'<parameter spec="RealParameter" id="{name}" value="{value}" lower="0.0"/>'


def prior(name, distribution):
    return f'<distribution spec="Prior" x="@{name}">{distribution}</distribution>'


def log_normal(mean, deviation):
    return f'<distr spec="LogNormalDistributionModel" M="{mean}" S="{deviation}"/>'


def scaled(*names):
    return "".join(
        f'<operator spec="ScaleOperator" scaleFactor="0.75" weight="5" parameter="@{name}"/>'
        for name in names
    )


def strict_xml(rng):
    """Tips with dates, strict clock, exponentially growing population."""
    parents, dates, labels = serial_coalescent(rng, 10, 1.0)
    rows = sequences(rng, parents, dates, 400, 0.1, 0.0)
    ages = {label: -float(date) for label, date in zip(labels, dates, strict=True) if label}
    trait = ",".join(f"{name}={age:.6f}" for name, age in ages.items())
    names = ("clockRate", "ePopSize", "growthRate")
    growth = '<distr spec="Exponential" mean="1.0"/>'
    return labels, rows, {
        "start": "RandomTree", "dates": '<trait spec="TraitSet" traitname="date-backward" '
        f'taxa="@taxa" value="{trait}"/><populationModel spec="ConstantPopulation" popSize="1.0"/>',
        "clock": '<input spec="StrictClockModel" id="clock" clock.rate="@clockRate"/>',
        "names": names,
        "priors": prior("clockRate", log_normal(-2.3, 0.5)) + prior("ePopSize", log_normal(0, 0.5))
        + prior("growthRate", growth)
        + '<distribution spec="Coalescent"><treeIntervals spec="TreeIntervals" tree="@tree"/>'
        '<populationModel spec="ExponentialGrowth" popSize="@ePopSize" growthRate="@growthRate"/>'
        "</distribution>",
        "more": "", "operators": "", "state": "",
    }  # fmt: skip


def skyline_xml(rng):
    """Tips with dates, of which one is uncertain, and a Bayesian skyline."""
    labels, rows, parts = strict_xml(rng)
    tip = next(label for label in labels if label)
    age = float(re.search(rf"{re.escape(tip)}=([\d.]+)", parts["dates"])[1])
    parts["names"] = ("clockRate",)
    parts["more"] = (
        '<parameter spec="RealParameter" id="bPopSizes" dimension="3" value="1.0" lower="0.0"/>'
        '<stateNode spec="parameter.IntegerParameter" id="bGroupSizes" dimension="3" value="1"/>'
    )
    parts["state"] = '<stateNode idref="bPopSizes"/><stateNode idref="bGroupSizes"/>'
    parts["operators"] = (
        '<operator spec="ScaleOperator" scaleFactor="0.75" weight="15" parameter="@bPopSizes"/>'
        '<operator spec="DeltaExchangeOperator" delta="1" weight="6" integer="true" '
        'intparameter="@bGroupSizes"/><operator spec="TipDatesRandomWalker" windowSize="0.1" '
        'taxonset="@uncertain" tree="@tree" weight="3"/>'
    )
    parts["priors"] = (
        prior("clockRate", log_normal(-2.3, 0.5))
        + '<distribution spec="BayesianSkyline" popSizes="@bPopSizes" groupSizes="@bGroupSizes">'
        '<treeIntervals spec="TreeIntervals" tree="@tree"/></distribution>'
        '<distribution spec="MarkovChainDistribution" jeffreys="true" parameter="@bPopSizes"/>'
        '<distribution spec="MRCAPrior" id="tip" tipsonly="true" tree="@tree">'
        f'<taxonset spec="TaxonSet" id="uncertain"><taxon id="{tip}" spec="Taxon"/></taxonset>'
        f'<distr spec="Normal" mean="{age + 1:.4f}" sigma="0.1"/></distribution>'
    )
    parts["logged"] = '<log idref="bPopSizes"/><log idref="bGroupSizes"/>'
    return labels, rows, parts


def parts_xml(rng):
    """Two parts with rates and models of their own, tips of one date, Yule's prior.

    They have as many sites each: BEAST 2.7.3's exchange of rates of different weights is not
    symmetric, and has no ratio for it.
    """
    labels, rows, parts = relaxed_xml(rng)
    parts["likelihood"], parts["data"] = OF_TWO_PARTS, "posterior.data"
    parts["names"] = ("birthRate", "kappa1", "kappa2", "shape1")
    parts["clock"] = '<input spec="StrictClockModel" id="clock" clock.rate="0.2"/>'
    parts["more"] = "".join(parameter(name, 1.0) for name in ("rate1", "rate2"))
    parts["state"] = '<stateNode idref="rate1"/><stateNode idref="rate2"/>'
    parts["operators"] = (
        '<operator spec="DeltaExchangeOperator" delta="0.3" weight="6">'
        '<parameter idref="rate1"/><parameter idref="rate2"/></operator>'
    )
    parts["priors"] = (
        "".join(prior(name, log_normal(1.0, 1.25)) for name in ("kappa1", "kappa2"))
        + prior("shape1", '<distr spec="Exponential" mean="1.0"/>')
        + prior(
            "birthRate",
            '<distr spec="beast.base.inference.distribution.Uniform" upper="Infinity"/>',
        )
        + '<distribution spec="YuleModel" birthDiffRate="@birthRate" tree="@tree"/>'
    )
    parts["logged"] = '<log idref="rate1"/><log idref="rate2"/>'
    return labels, rows, parts


def relaxed_xml(rng):
    """Tips of one date, a calibrated root, log-normal rates, Yule's prior."""
    parents, dates, labels = serial_coalescent(rng, 8, 1e-9)
    rows = sequences(rng, parents, dates, 400, 0.2, 0.2)
    branches = 2 * 8 - 2
    root = float(-dates.min())
    return labels, rows, {
        "start": "RandomTree",
        "dates": '<populationModel spec="ConstantPopulation" popSize="1.0"/>',
        "clock": '<input spec="UCRelaxedClockModel" id="clock" clock.rate="@clockRate" '
        'rateQuantiles="@quantiles" tree="@tree"><distr spec="LogNormalDistributionModel" '
        'meanInRealSpace="true" M="1.0" S="@ucldStdev"/></input>',
        "names": ("clockRate", "ucldStdev", "birthRate"),
        "priors": prior("clockRate", log_normal(-1.6, 0.5))
        + prior("ucldStdev", '<distr spec="Exponential" mean="0.3333"/>')
        + prior("birthRate", log_normal(0, 1.0))
        + '<distribution spec="YuleModel" birthDiffRate="@birthRate" tree="@tree"/>'
        '<distribution spec="MRCAPrior" id="root" monophyletic="true" tree="@tree" '
        f'taxonset="@taxa"><distr spec="Normal" mean="{root:.4f}" sigma="{root / 10:.4f}"/>'
        "</distribution>",
        "more": '<parameter spec="RealParameter" id="quantiles" dimension="'
        f'{branches}" value="0.5" lower="0.0" upper="1.0"/>',
        "state": '<stateNode idref="quantiles"/>',
        "operators": '<operator spec="UniformOperator" weight="10" parameter="@quantiles"/>'
        '<operator spec="RealRandomWalkOperator" windowSize="0.3" weight="20" '
        'parameter="@quantiles"/>',
    }  # fmt: skip


def written(labels, rows, parts):
    """The XML of a data set."""
    names = parts.pop("names")
    of_tips = (
        f'<sequence taxon="{label}" value="{"".join("ACGT"[base] for base in row)}"/>'
        for label, row in zip(labels, rows.tolist(), strict=True) if label
    )  # fmt: skip
    parts["operators"] += scaled(*names)
    parts["parameters"] = "".join(parameter(name, 0.5) for name in names) + parts.pop("more")
    parts = {"likelihood": LIKELIHOOD, "data": "treeLikelihood", "logged": "", **parts}
    logged = parts.pop("logged")
    parts["state"] += "".join(f'<stateNode idref="{name}"/>' for name in names)
    return TEMPLATE.format(
        sequences="".join(of_tips), length=LENGTH, every=LENGTH // SAMPLES,
        logged=logged + "".join(f'<log idref="{name}"/>' for name in names), **parts,
    )  # fmt: skip


def columns(paths, left_out):
    """Columns of the logs of some chains, behind a share that is left out."""
    tables = []
    for path in paths:
        lines = [line.split() for line in path.read_text().splitlines() if line[:1] != "#"]
        values = np.array(lines[1:], np.float64)
        tables.append(values[int(left_out * len(values)) :])
    return {name: [table[:, at] for table in tables] for at, name in enumerate(lines[0])}


def mean_and_error(chains):
    """Mean of chains, and its standard error: by 20 batches of each, or by chains if that is more.

    Batches of a chain that is slow say too little of what it has not seen.
    """
    batches = np.concatenate([[batch.mean() for batch in np.array_split(c, 20)] for c in chains])
    means = np.array([chain.mean() for chain in chains])
    errors = [rows.std(ddof=1) / np.sqrt(len(rows)) for rows in (batches, means)]
    return batches.mean(), max(errors)


@pytest.mark.skipif(
    not os.environ.get("MLTREE_FUZZ"), reason="BEAST takes minutes: make fuzz runs it"
)
@pytest.mark.skipif(shutil.which(BEAST) is None, reason=f"{BEAST} is not installed")
@pytest.mark.parametrize("made", [strict_xml, relaxed_xml, skyline_xml, parts_xml])
@pytest.mark.parametrize("seed", [1, 2])
def test_posteriors_agree(made, seed, tmp_path):
    """All shared columns are within 3 combined standard errors, which one in 400 is not."""
    file = tmp_path / "x.xml"
    file.write_text(written(*made(np.random.default_rng(seed))))
    mltree = [sys.executable, "-m", "mltree", "sample", file.name, "--stop", "4000", "--seed", "1"]
    for number in "12":
        (tmp_path / number).mkdir()
    for words, folder in (
        ([BEAST, "-seed", "1", "-overwrite", str(file)], tmp_path / "1"),
        ([BEAST, "-seed", "2", "-overwrite", str(file)], tmp_path / "2"),
        (mltree, tmp_path),
    ):
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    beast = columns(sorted(tmp_path.glob("*/beast.log")), 0.2)
    mine = columns(sorted(tmp_path.glob("*.run*.log")), 0.0)
    shared = [name for name in beast if NAMES.get(name, name) in mine and name != "Sample"]
    assert len(shared) >= 5
    for name in shared:
        (a, error_a), (b, error_b) = map(mean_and_error, (beast[name], mine[NAMES.get(name, name)]))
        assert abs(a - b) <= 3 * np.hypot(error_a, error_b), name
