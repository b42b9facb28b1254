"""BEAST's XML in place of an alignment: its options count unless others are given."""

from pathlib import Path

import pytest

from mltree.analyses.sample import imported
from mltree.analyses.sample_options import SampleOptions
from mltree.data.alignments import MemoryAlignment
from mltree.dating.dates import calibration_rows, dates_of
from mltree.sampling.calibrations import calibrations_of
from mltree.sampling.priors import read_priors
from mltree.system.events import Notice

XML = """<beast version="2.0"><data id="d">
 <sequence taxon="a" value="ACGT"/><sequence taxon="b" value="ACGA"/>
 <sequence taxon="c" value="ACCT"/><sequence taxon="e" value="GCGT"/></data>
<tree id="t"><trait spec="TraitSet" traitname="date" value="a=2001,b=2002,c=2003,e=1999"/></tree>
<run spec="MCMC"><state><stateNode idref="t"/><parameter id="k" value="2"/></state>
 <distribution spec="YuleModel" tree="@t"/>
 <distribution spec="Prior" x="@k"><distr spec="Gamma" alpha="2" beta="3"/></distribution>
 <distribution id="g" spec="MRCAPrior" tree="@t" monophyletic="true">
  <taxonset spec="TaxonSet"><taxon id="a" spec="Taxon"/><taxon id="b" spec="Taxon"/></taxonset>
  <distr spec="Normal" mean="1990" sigma="2"/></distribution>
 <distribution spec="TreeLikelihood" data="@d" tree="@t">
  <siteModel spec="SiteModel"><substModel spec="HKY" kappa="@k"/></siteModel>
  <branchRateModel spec="UCRelaxedClockModel"><distr spec="LogNormal"/></branchRateModel>
 </distribution></run></beast>"""


@pytest.fixture
def take(tmp_path):
    """take(**options): what becomes of options, and notices."""
    (tmp_path / "x.xml").write_text(XML)

    def of(**options):
        told = []
        asked = SampleOptions(alignment=str(tmp_path / "x.xml"), **options)
        found, _, source = imported(asked, None, asked.workspace, told.append)
        assert all(isinstance(one, Notice) for one in told)
        return found, source, [one.text for one in told]

    return of


def test_options_of_the_file_are_used(take):
    options, source, told = take()
    assert isinstance(source, MemoryAlignment)
    assert (options.clock, options.tree_prior, options.model) == ("ucln", "yule", "HKY")
    dated = dates_of(options.dates, source.names, ages=options.ages)
    assert dated.tips["e"] == (1999.0, 1999.0)
    (one,) = calibrations_of(
        calibration_rows(options.calibrate), source.names, latest=2003.0, ages=False
    )
    assert str(one) == "g: Normal(13, 2) monophyletic"
    priors = read_priors(Path(options.prior).read_text(), options.prior)
    assert str(priors.kappa) == "Gamma(2, 0.333333)"
    assert str(priors.clock_rate) == "Fixed(1)"
    assert "Births of dated tips" in told[0]
    assert "Operators, loggers" in told[1]
    assert "clock ucln" in told[-1]


def test_given_options_count_more(take, tmp_path):
    table = tmp_path / "dates.tsv"
    table.write_text("a\t1\n")
    options, _, _ = take(clock="strict", model="JC", dates=str(table), prior=str(table))
    assert (options.clock, options.tree_prior, options.model) == ("strict", "yule", "JC")
    assert (options.dates, options.prior, options.ages) == (str(table), str(table), False)


def test_other_files_pass(tmp_path):
    file = tmp_path / "x.fasta"
    file.write_text(">a\nACGT\n")
    options = SampleOptions(alignment=str(file))
    assert imported(options, None, options.workspace, print) == (options, print, None)
