"""BEAST's XML: what BEAUti writes becomes data and options, and the rest is told."""

import numpy as np
import pytest

from mltree.dating.beast_elements import is_beast_xml
from mltree.dating.beast_xml import read_beast_xml
from mltree.system.errors import InputError

HEAD = """<?xml version="1.0" encoding="UTF-8" standalone="no"?>
<!-- made by hand -->
<beast beautitemplate='Standard' namespace="beast.core:beast.evolution.alignment" version="2.6">
<data id="dengue" spec="Alignment" name="alignment">
 <sequence id="s1" spec="Sequence" taxon="a/1999" totalcount="4" value="ACGTACGT-N"/>
 <sequence id="s2" spec="Sequence" taxon="b 2" totalcount="4" value="ACGAACGTAC"/>
 <sequence id="s3" spec="Sequence" taxon="c" totalcount="4" value="ACCTACGTAC"/>
 <sequence id="s4" spec="Sequence" taxon="d" totalcount="4"> ACGTA
   CGTGC</sequence>
</data>
<map name="Uniform" >beast.math.distributions.Uniform</map>
<map name="LogNormal" >beast.math.distributions.LogNormalDistributionModel</map>
<map name="prior" >beast.math.distributions.Prior</map>
"""

BEAUTI = (
    HEAD
    + """
<data id="first" spec="FilteredAlignment" data="@dengue" filter="1::3,2::3"/>
<data id="third" spec="FilteredAlignment" data="@dengue" filter="3-10:3"/>
<run id="mcmc" spec="MCMC" chainLength="10000000">
 <state id="state" spec="State" storeEvery="5000">
  <tree id="Tree.t:dengue" spec="beast.evolution.tree.Tree" name="stateNode">
   <trait id="dateTrait" spec="TraitSet" traitname="date" dateFormat="dd/M/yyyy"
     value="a/1999=01/1/1999,b 2=02/7/2004,c=1/1/2000,d=31/12/2001">
    <taxa id="TaxonSet.all" spec="TaxonSet"><alignment idref="dengue"/></taxa>
   </trait>
   <taxonset idref="TaxonSet.all"/>
  </tree>
  <parameter id="kappa" spec="parameter.RealParameter" lower="0.0" name="stateNode">2.0</parameter>
  <parameter id="shape" spec="parameter.RealParameter" name="stateNode">1.0</parameter>
  <parameter id="ucldMean" spec="parameter.RealParameter" name="stateNode">1.0</parameter>
  <parameter id="ucldStdev" spec="parameter.RealParameter" name="stateNode">0.1</parameter>
  <parameter id="ePopSize" spec="parameter.RealParameter" name="stateNode">0.3</parameter>
  <parameter id="growthRate" spec="parameter.RealParameter" name="stateNode">3.0E-4</parameter>
  <parameter id="freqs" spec="RealParameter" dimension="4" name="stateNode">.25</parameter>
 </state>
 <distribution id="posterior" spec="util.CompoundDistribution">
  <distribution id="prior" spec="util.CompoundDistribution">
   <distribution id="CoalescentExponential" spec="Coalescent">
    <populationModel id="growth" spec="ExponentialGrowth" growthRate="@growthRate"
      popSize="@ePopSize"/>
    <treeIntervals id="intervals" spec="TreeIntervals" tree="@Tree.t:dengue"/>
   </distribution>
   <prior id="KappaPrior" name="distribution" x="@kappa">
    <LogNormal id="LN" name="distr">
     <parameter id="M" spec="parameter.RealParameter" estimate="false" name="M">1.0</parameter>
     <parameter id="S" spec="parameter.RealParameter" estimate="false" name="S">1.25</parameter>
    </LogNormal>
   </prior>
   <prior id="MeanPrior" name="distribution" x="@ucldMean">
    <Uniform id="U" name="distr" upper="0.1"/>
   </prior>
   <prior id="StdevPrior" name="distribution" x="@ucldStdev">
    <Gamma id="G" spec="beast.math.distributions.Gamma" name="distr" alpha="0.5396" beta="0.3819"/>
   </prior>
   <prior id="PopPrior" name="distribution" x="@ePopSize">
    <distr id="OneOnX" spec="beast.math.distributions.OneOnX"/>
   </prior>
   <distribution id="group.prior" spec="beast.math.distributions.MRCAPrior" monophyletic="true"
     tree="@Tree.t:dengue">
    <taxonset id="group" spec="TaxonSet">
     <taxon id="a/1999" spec="Taxon"/><taxon id="c" spec="Taxon"/>
    </taxonset>
    <distr id="N" spec="beast.math.distributions.Normal" mean="1990" sigma="2.5"/>
   </distribution>
   <distribution id="root.prior" spec="beast.math.distributions.MRCAPrior" useOriginate="false"
     tree="@Tree.t:dengue">
    <taxonset idref="TaxonSet.all"/>
    <Uniform id="U2" name="distr" lower="1900" upper="1980"/>
   </distribution>
   <distribution id="tip.prior" spec="beast.math.distributions.MRCAPrior" tipsonly="true"
     tree="@Tree.t:dengue">
    <taxonset id="tip" spec="TaxonSet"><taxon id="d" spec="Taxon"/></taxonset>
    <Uniform id="U3" name="distr" lower="2001" upper="2002"/>
   </distribution>
   <distribution id="odd.prior" spec="beast.math.distributions.MRCAPrior" tree="@Tree.t:dengue">
    <taxonset idref="group"/>
    <LogNormal id="L2" name="distr" M="1" S="2"/>
   </distribution>
  </distribution>
  <distribution id="likelihood" spec="util.CompoundDistribution">
   <distribution id="l1" spec="ThreadedTreeLikelihood" data="@first" tree="@Tree.t:dengue">
    <siteModel id="site1" spec="SiteModel" gammaCategoryCount="4" shape="@shape">
     <substModel id="hky" spec="HKY" kappa="@kappa">
      <frequencies id="f" spec="Frequencies" frequencies="@freqs"/>
     </substModel>
    </siteModel>
    <branchRateModel id="clock" spec="beast.evolution.branchratemodel.UCRelaxedClockModel"
      clock.rate="@ucldMean">
     <LogNormal id="L" name="distr" S="@ucldStdev" meanInRealSpace="true"/>
    </branchRateModel>
   </distribution>
   <distribution id="l3" spec="ThreadedTreeLikelihood" data="@third" tree="@Tree.t:dengue"
     branchRateModel="@clock">
    <siteModel id="site3" spec="SiteModel" gammaCategoryCount="1">
     <parameter id="pinv" estimate="false" name="proportionInvariant">0.2</parameter>
     <substModel id="jc" spec="JukesCantor"/>
    </siteModel>
   </distribution>
  </distribution>
 </distribution>
 <operator id="scaler" spec="ScaleOperator" parameter="@kappa" weight="1.0"/>
 <operator id="tips" spec="TipDatesRandomWalker" taxonset="@tip" tree="@Tree.t:dengue" weight="1"/>
 <operator id="unused" spec="TipDatesScaler" tree="@Tree.t:dengue" weight="0.0"/>
 <operator id="exchange" spec="DeltaExchangeOperator"><parameter idref="freqs"/></operator>
 <operator id="updown" spec="UpDownOperator"><up idref="ucldMean"/><up idref="growthRate"/>
  <down idref="ucldStdev"/><down idref="ePopSize"/><down idref="shape"/>
  <down idref="Tree.t:dengue"/></operator>
</run>
</beast>
"""
)


@pytest.fixture
def read(tmp_path):
    """read(text): the analysis of a file."""

    def of(text, name="x.xml"):
        file = tmp_path / name
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_beast_xml(str(file))

    return of


def test_beauti_is_taken_over(read):
    found = read(BEAUTI)
    assert found.alignment.names == ("a/1999", "b 2", "c", "d")
    assert found.alignment.rows[3] == b"ACGTACGTGC"
    assert found.partitions == (
        "HKY+FO+G4a, first = 1-10\\3, 2-10\\3\nJC+I{0.2}, third = 3-10\\3\n"
    )
    assert found.options == {"clock": "ucln", "brlen": "linked", "tree_prior": "expgrowth"}
    assert not found.are_ages
    dates = {name: found.dates[name] for name in ("a/1999", "c", "d")}
    assert dates == {"a/1999": "1999.0", "c": "2000.0", "d": "[2001,2002]"}
    assert float(found.dates["b 2"]) == pytest.approx(2004.5, abs=1e-3)
    assert found.calibrations == (
        "group.prior\ta/1999,c\tNormal(1990, 2.5)\tmonophyletic",
        "root.prior\ta/1999,b 2,c,d\tUniform(1900, 1980)",
    )
    assert found.priors == {
        "kappa": "LogNormal(1, 1.25)",
        "clock_rate": "Uniform(0, 0.1)",
        "clock_spread": "Gamma(shape=0.5396, scale=0.3819)",
        "population_size": "LogNormal(0, 100)",
        "alpha": "Uniform(0, 10000)",
        "growth_rate": "Uniform(-3, 3)",
    }
    told = " ".join(found.ignored)
    for word in ("1/X", "odd.prior", "10000000", "No operator changes the topology"):
        assert word in told


STRICT = (
    HEAD
    + """
<tree id="tree" spec="beast.evolution.tree.Tree" taxonset="@all">
 <trait spec="TraitSet" traitname="date-backward" value="a/1999=0, b 2=1.5, c=3, d=0"/>
 <taxonset id="all" spec="TaxonSet" alignment="@dengue"/>
</tree>
<run id="mcmc" spec="MCMC">
 <state><stateNode idref="tree"/></state>
 <distribution id="prior" spec="CompoundDistribution">
  <distribution spec="BirthDeathGernhard08Model" tree="@tree" sampleProbability="0.3"/>
  <distribution id="p" spec="MRCAPrior" tree="@tree" useOriginate="true">
   <taxonset spec="TaxonSet"><taxon id="c"/><taxon idref="d"/></taxonset>
   <distr spec="Exponential" mean="4" offset="3.5"/>
  </distribution>
 </distribution>
 <distribution spec="TreeLikelihood" data="@dengue" tree="@tree">
  <siteModel spec="SiteModel"><substModel spec="GTR">
   <frequencies spec="Frequencies" data="@dengue"/></substModel></siteModel>
  <branchRateModel spec="StrictClockModel" clock.rate="0.02"/>
 </distribution>
</run></beast>"""
)


def test_ages_and_fixed_rates(read):
    found = read(STRICT)
    assert found.partitions == ""
    assert found.options == {"model": "GTR+FC", "clock": "strict", "tree_prior": "bd"}
    assert found.dates == {"a/1999": "0", "b 2": "1.5", "c": "3", "d": "0"}
    assert found.are_ages
    assert found.calibrations == ("p\tc,d\t3.5 + Exponential(mean=4)\tstem",)
    assert found.priors == {"clock_rate": "Fixed(0.02)", "sampling_fraction": "Fixed(0.3)"}
    assert "Births of dated tips: sampling through time, any origin alike." in found.ignored


SKYLINE = """<distribution spec="bdsky.evolution.speciation.BirthDeathSkylineModel" tree="@tree"
 origin="@origin" reproductiveNumber="@R" becomeUninfectiousRate="@delta" rho="0.0"
 samplingProportion="@s"/>
 <distribution spec="Prior" x="@R"><distr spec="LogNormalDistributionModel" M="0.5" S="1.0"/>
 </distribution><distribution spec="Prior" x="@s"><distr spec="Beta" alpha="2.0" beta="5.0"/>
 </distribution><distribution spec="Prior" x="@origin"><distr spec="Uniform" upper="9.0"/>
 </distribution><parameter id="R" value="2.0 1.0"/><parameter id="delta" value="0.4"/>
 <parameter id="s" value="0.1"/><parameter id="origin" value="5.0"/>"""


def test_a_birth_death_skyline_of_one_epoch_is_taken_over(read):
    text = STRICT.replace(
        '<distribution spec="BirthDeathGernhard08Model" tree="@tree" sampleProbability="0.3"/>',
        SKYLINE,
    ).replace('<stateNode idref="tree"/>', '<stateNode idref="tree"/><stateNode idref="R"/>'
              '<stateNode idref="s"/><stateNode idref="origin"/>')  # fmt: skip
    operators = "".join(f'<operator spec="ScaleOperator" parameter="@{name}"/>' for name in
                        ("R", "s", "origin"))  # fmt: skip
    found = read(text.replace("</run>", operators + "</run>"))
    assert found.options["tree_prior"] == "bd"
    assert found.priors == {
        "clock_rate": "Fixed(0.02)",
        "reproductive_number": "LogNormal(0.5, 1)",
        "removal_rate": "Fixed(0.4)",
        "sampling_proportion": "Beta(2, 5)",
        "sampling_fraction": "Fixed(0)",
    }
    told = " ".join(found.ignored)
    assert "reproductiveNumber changes in time: here it is constant." in told
    assert "The prior of origin is not taken over." in told
    assert "BirthDeathSkylineModel: its input origin is not taken over." in told


def test_inputs_that_are_unknown_are_told(read):
    text = STRICT.replace('sampleProbability="0.3"', 'conditionalOnRoot="true"')
    text = text.replace('<data id="dengue"', '<data id="dengue" weights="1,2" strip="false"')
    told = read(text).ignored
    assert "BirthDeathGernhard08Model: its input conditionalOnRoot is not taken over." in told
    assert "Alignment: its input weights is not taken over." in told
    assert not any("strip" in sentence for sentence in told)


def test_parts_of_one_site_model_are_one(read):
    data = """<data id="one" spec="FilteredAlignment" data="@dengue" filter="1::2"/>
     <data id="two" spec="FilteredAlignment" data="@dengue" filter="2::2"/>"""
    likelihoods = """<distribution spec="TreeLikelihood" data="@one" tree="@tree">
     <siteModel spec="SiteModel" id="s"%s><substModel spec="JukesCantor" id="jc"/></siteModel>
     </distribution>
     <distribution spec="TreeLikelihood" data="@two" tree="@tree" %s</distribution>"""
    linked = HEAD + data + '<tree id="tree"/>' + likelihoods % ("", 'siteModel="@s">') + "</beast>"
    assert read(linked).partitions == "JC, one = 1-10\\2, 2-10\\2\n"
    rate = '><siteModel spec="SiteModel" substModel="@jc"%s/>'
    own = HEAD + data + '<tree id="tree"/>' + likelihoods % ("", rate % "") + "</beast>"
    assert read(own).partitions == "JC, one = 1-10\\2\nJC, two = 2-10\\2\n"
    assert read(own).options["brlen"] == "linked"
    assert any("share a substitution model" in one for one in read(own).ignored)
    faster = HEAD + data + '<tree id="tree"/>' + likelihoods % ("", rate % ' mutationRate="2.0"')
    found = read(faster + "</beast>")
    assert found.options["brlen"] == "scaled"
    assert any("different fixed rates" in one for one in found.ignored)


RATES = """<run><state><stateNode idref="r1"/>%s</state><operator spec="DeltaExchangeOperator">
 <parameter idref="r1"/><parameter idref="r2"/></operator></run>
 <parameter id="r1" value="1"/><parameter id="r2" value="1"/>
 <prior name="distribution" x="@r1"><distr spec="%s" M="0"/></prior>
 <distribution spec="TreeLikelihood" data="@dengue" tree="@tree"><siteModel spec="SiteModel"
 mutationRate="@r1"><substModel spec="JukesCantor"/></siteModel></distribution>
 <distribution spec="TreeLikelihood" data="@dengue" tree="@tree"><siteModel spec="SiteModel"
 mutationRate="@r2"><substModel spec="JukesCantor"/></siteModel></distribution>"""


@pytest.mark.parametrize(
    ("second", "kind", "prior", "told"),
    [
        ('<stateNode idref="r2"/>', "OneOnX", "Dirichlet(0.01)", ""),
        ('<stateNode idref="r2"/>', "LogNormalDistributionModel", None, "Dirichlet distribution"),
        ("", "OneOnX", "Dirichlet(0.01)", "Some rates of parts are fixed"),
    ],
)
def test_rates_of_parts_are_shares(read, second, kind, prior, told):
    text = RATES % (second, kind)
    found = read(HEAD + '<tree id="tree"/>' + text.replace("<data", "<data ") + "</beast>")
    assert found.options["brlen"] == "scaled"
    assert found.priors.get("part_rates") == prior
    assert told in " ".join(found.ignored)


def test_sets_of_states_are_gaps_unless_they_count(read):
    text = STRICT.replace("ACGTACGT-N", "ACRTACYT-N")
    assert read(text).alignment.rows[0] == b"AC-TAC-T-N"
    assert any("useAmbiguities" in one for one in read(text).ignored)
    text = text.replace('"TreeLikelihood"', '"TreeLikelihood" useAmbiguities="true"')
    assert read(text).alignment.rows[0] == b"ACRTACYT-N"


TIPS = """<operator spec="TipDatesRandomWalker" tree="@tree"><taxonset spec="TaxonSet" id="moved">
 <taxon idref="c"/></taxonset></operator><operator spec="WilsonBalding" tree="@tree"/>"""
OF_TIP = '<distribution spec="MRCAPrior" tipsonly="true" tree="@tree" id="t" taxonset="@moved">'


@pytest.mark.parametrize(
    ("distribution", "date", "row"),
    [
        ('<distr spec="Normal" mean="3" sigma="0.25"/>', "[1.5,4.5]", "t.c\tc\tNormal(3, 0.25)"),
        ('<distr spec="Uniform" lower="2" upper="5"/>', "[2,5]", None),
        ("", "[0,30]", None),
        ('<distr spec="Exponential" mean="5"/>', "[0,30]", None),
    ],
)
def test_dates_of_tips_that_an_operator_changes(read, distribution, date, row):
    text = STRICT.replace("</run>", TIPS + "</run>").replace(
        '<distribution id="p"', OF_TIP + distribution + '</distribution><distribution id="p"'
    )
    found = read(text)
    assert found.dates["c"] == date
    assert found.dates["b 2"] == "1.5"
    assert (row in found.calibrations) == (row is not None)
    assert read(text.replace(TIPS, "")).dates["c"] == "3"  # which no operator changes


def test_tips_without_a_date_have_none_as_beast_has_it(read):
    found = read(STRICT.replace(", c=3, d=0", ""))
    assert found.dates == {"a/1999": "0", "b 2": "1.5", "c": "0", "d": "0"}
    assert any("have no date" in one for one in found.ignored)


def test_ages_begin_with_the_youngest_tip_where_the_present_counts(read):
    older = STRICT.replace("a/1999=0, b 2=1.5, c=3, d=0", "a/1999=10, b 2=11.5, c=13, d=10")
    found = read(older)
    assert found.dates == {"a/1999": "0", "b 2": "1.5", "c": "3", "d": "0"}
    assert found.calibrations == ("p\tc,d\t-6.5 + Exponential(mean=4)\tstem",)
    normal = older.replace('"Exponential" mean="4" offset="3.5"', '"Normal" mean="14.5" sigma="2"')
    assert read(normal).calibrations == ("p\tc,d\tNormal(4.5, 2)\tstem",)
    coalescent = older.replace(
        '"BirthDeathGernhard08Model" tree="@tree" sampleProbability="0.3"/>',
        '"Coalescent"><treeIntervals spec="TreeIntervals" tree="@tree"/><populationModel '
        'spec="ConstantPopulation" popSize="2.0"/></distribution>',
    )
    assert read(coalescent).dates["c"] == "13"


def test_without_a_prior_of_the_tree_all_heights_are_alike(read):
    text = STRICT.replace(
        '<distribution spec="BirthDeathGernhard08Model" tree="@tree" sampleProbability="0.3"/>',
        "%s",
    )
    found = read(text % "")
    assert found.options["tree_prior"] == "coalescent"
    assert found.priors["population_size"] == "Fixed(1e+15)"
    found = read(text % '<distribution spec="sa.SABirthDeathModel" tree="@tree"/>')
    assert "tree_prior" not in found.options
    assert any("SABirthDeathModel, is not known" in one for one in found.ignored)


BAYESIAN = """<distribution spec="BayesianSkyline" popSizes="@sizes" groupSizes="@groups">
 <treeIntervals spec="TreeIntervals" tree="@tree"/></distribution>
 <distribution spec="MarkovChainDistribution" parameter="@sizes" %s/>
 <parameter id="sizes" dimension="2" value="380.0"/>
 <stateNode spec="parameter.IntegerParameter" id="groups" dimension="2" value="0"/>"""


@pytest.mark.parametrize(
    ("inputs", "first", "told"),
    [
        ('jeffreys="true"', "LogNormal(0, 100)", ""),
        ("", "Uniform(0, 3800000)", ""),
        ('initialMean="3.5"', "Exponential(mean=3.5)", ""),
        ('jeffreys="true" useLogNormal="true"', "LogNormal(0, 100)", "chain of exponential ones"),
    ],
)
def test_a_bayesian_skyline_is_taken_over(read, inputs, first, told):
    found = read(STRICT.replace(
        '<distribution spec="BirthDeathGernhard08Model" tree="@tree" sampleProbability="0.3"/>',
        BAYESIAN % inputs,
    ))  # fmt: skip
    assert found.options["tree_prior"], found.options["skyline"] == ("skyline", "2")
    assert found.priors["population_size"] == first
    assert told in " ".join(found.ignored)


def test_calibrations_of_a_calibrated_yule_prior_are_taken_over(read):
    points = """<calibrations spec="CalibrationPoint" id="%s"%s><taxonset spec="TaxonSet">
     <taxon idref="A"/><taxon idref="B"/></taxonset><distr spec="Normal" mean="2" sigma="0.1"/>
     </calibrations>"""
    more = points % ("crown", "") + points % ("stem", ' parentOf="true"')
    found = read(PRIOR_ALONE % ("CalibratedYuleModel", more, ""))
    assert found.calibrations == (
        "crown\tA,B\tNormal(2, 0.1)\tmonophyletic",
        "stem\tA,B\tNormal(2, 0.1)\tstem, monophyletic",
    )
    assert any("not corrected for calibrations" in one for one in found.ignored)


def test_tips_have_the_names_of_the_largest_set_of_taxa(read):
    text = PRIOR_ALONE % ("YuleModel", "", "")
    sets = """<taxonset spec="TaxonSet" id="all"><taxon spec="Taxon" id="x"/>
     <taxon spec="Taxon" id="y"/><taxon spec="Taxon" id="z"/></taxonset>
     <taxonset spec="TaxonSet" id="pair"><taxon idref="x"/><taxon idref="z"/></taxonset>"""
    text = text.replace('<taxa idref="alignment"/>', "").replace("<run", sets + "<run")
    assert read(text).alignment.names == ("x", "y", "z")


def test_a_uniform_prior_without_an_end_is_flat(read):
    text = PRIOR_ALONE % ("YuleModel", "", '<operator spec="ScaleOperator" parameter="@rate"/>')
    prior = '<prior name="distribution" x="@rate"><distr spec="Uniform" upper="Infinity"/></prior>'
    found = read(text.replace("<run", prior + "<run"))
    assert found.priors["birth_rate"] == "Uniform(0, 100)"


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ('"LewisMK" stateNumber="3"', "MULTI3_MK"),
        ('"LewisMK"', "MULTI5_MK"),
        ('"LewisMK"><datatype spec="StandardData" nrOfStates="4"/></substModel><x', "MULTI4_MK"),
    ],
)
def test_characters_have_the_model_of_lewis(read, model, name):
    text = HEAD.replace("ACGTACGT-N", "0123401234").replace("ACGAACGTAC", "0011223344")
    text += '<tree id="tree"/><distribution spec="TreeLikelihood" data="@dengue" tree="@tree">'
    text += f'<siteModel spec="SiteModel"><substModel spec={model}/></siteModel></distribution>'
    assert read(text + "</beast>").options["model"] == name


def test_rates_with_another_mean_are_told(read):
    clock = """<branchRateModel spec="UCRelaxedClockModel" clock.rate="0.02" normalize="true">
     <LogNormal name="distr" M="1.0" S="0.5"/></branchRateModel>"""
    found = read(
        STRICT.replace('<branchRateModel spec="StrictClockModel" clock.rate="0.02"/>', clock)
    )
    assert found.options["clock"] == "ucln"
    assert found.priors["clock_spread"] == "Fixed(0.5)"
    told = " ".join(found.ignored)
    assert "another mean than 1" in told
    assert "its input normalize is not taken over" in told


PRIOR_ALONE = """<beast version="2.0">
<data id="alignment"><sequence taxon="A">A</sequence><sequence taxon="B">A</sequence>
 <sequence taxon="C">A</sequence></data>
<tree spec="beast.base.evolution.tree.ClusterTree" id="tree"><taxa idref="alignment"/></tree>
<input spec="%s" id="prior"><birthDiffRate idref="rate"/><tree idref="tree"/>%s</input>
<parameter id="rate" value="2.0" lower="0.0" upper="100.0"/>
<run spec="MCMC"><state><stateNode idref="rate"/><stateNode idref="tree"/></state>
 <distribution idref="prior"/><operator spec="Uniform" tree="@tree"/>%s</run></beast>"""


def test_a_fixed_kappa_is_taken_over(read):
    text = STRICT.replace('spec="GTR"', 'spec="HKY" kappa="2.5"')
    assert read(text).options["model"] == "HKY{2.5}+FC"
    found = read(STRICT.replace('spec="GTR"', 'spec="TN93" kappa1="2" kappa2="3"'))
    assert found.options["model"] == "TN93+FC"
    even = '<frequencies spec="Frequencies" frequencies="0.25 0.25 0.25 0.25"/>'
    counted = '<frequencies spec="Frequencies" data="@dengue"/>'
    assert read(text.replace(counted, even)).options["model"] == "HKY{2.5}+FE"
    uneven = even.replace("0.25 0.25 ", "0.4 0.1 ")
    assert read(text.replace(counted, uneven)).options["model"] == "HKY{2.5}+FU{0.4/0.1/0.25/0.25}"
    alike = counted.replace("/>", ' estimate="false"/>')
    assert read(text.replace(counted, alike)).options["model"] == "HKY{2.5}+FE"
    assert any("fixed rates 2 of TN93" in sentence for sentence in found.ignored)


def test_a_file_without_data_is_a_prior(read):
    found = read(PRIOR_ALONE % ("YuleModel", "", ""))
    assert found.is_prior_only
    assert found.alignment.names == ("A", "B", "C")
    assert found.options["tree_prior"] == "yule"
    assert found.priors["birth_rate"] == "Fixed(2)"  # no operator changes it


def test_a_number_without_a_prior_has_a_flat_one(read):
    scaled = '<operator spec="ScaleOperator" parameter="@rate"/>'
    death = "<relativeDeathRate>0.5</relativeDeathRate>"
    found = read(PRIOR_ALONE % ("BirthDeathGernhard08Model", death, scaled))
    assert found.priors["birth_rate"] == "Uniform(0, 100)"
    assert found.priors["relative_death"] == "Fixed(0.5)"
    assert any("The prior of rate is flat" in sentence for sentence in found.ignored)


SCALED = '<operator spec="ScaleOperator" parameter="@rate"/>'


def test_a_tree_that_no_operator_changes_is_told(read):
    found = read(STRICT.replace("</run>", SCALED + "</run>"))
    assert any("No operator changes its tree" in sentence for sentence in found.ignored)


def test_variables_have_their_defaults(read):
    found = read(STRICT.replace('clock.rate="0.02"', 'clock.rate="$(rate=0.03)"'))
    assert found.priors["clock_rate"] == "Fixed(0.03)"
    with pytest.raises(InputError, match="no sequences in it") as error:
        read('<beast><data id="d">$(data)</data>' + STRICT[len(HEAD) :].replace("@dengue", "@d"))
    assert error.value.hint == "variables have no values here"


def test_plates_are_copied(read):
    plate = (
        '<plate var="n" range="one,two"><data id="$(n)" spec="FilteredAlignment" data="@dengue" '
        'filter="1-5"/></plate><plate var="n" range="one,two"><distribution spec="TreeLikelihood" '
        'data="@$(n)" tree="@tree"><siteModel spec="SiteModel"><substModel spec="JukesCantor"/>'
        "</siteModel></distribution></plate></beast>"
    )
    found = read(HEAD + '<tree id="tree"/>' + plate)
    assert found.partitions == "JC, one = 1-5\nJC, two = 1-5\n"


def test_beast_x_gives_data_and_dates(read):
    found = read("""<beast><taxa id="taxa">
      <taxon id="A"><date value="2001.5" direction="forwards" units="years"/></taxon>
      <taxon id="B"><date value="1999" direction="forwards" units="years"/></taxon></taxa>
      <alignment id="x y" dataType="nucleotide"><sequence><taxon idref="A"/>ACGT</sequence>
      <sequence><taxon idref="B"/>AC GA</sequence></alignment>
      <alignment id="z" dataType="nucleotide"><sequence><taxon idref="B"/>TT</sequence></alignment>
      </beast>""")
    assert found.alignment.rows == (b"ACGT--", b"ACGATT")
    assert found.partitions == "DNA, x_y = 1-4\nDNA, z = 5-6\n"
    assert found.dates == {"A": "2001.5", "B": "1999"}


BOMB = b"""<?xml version="1.0"?><!DOCTYPE beast [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;">]>
<beast>&b;</beast>"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BOMB, "a document type or entities"),
        (BOMB.decode().encode("utf-16"), "a document type or entities"),
        (b'<!DOCTYPE beast SYSTEM "file:///etc/passwd"><beast/>', "a document type"),
        (b"<beast>" + b"<a>" * 200 + b"</a>" * 200 + b"</beast>", "nested deeper than 100"),
        (b"<beast><a></beast>", "broken XML: mismatched"),
        (b"", "broken XML"),
        (b"\0\1\2", "is not read|broken XML"),
        (b"<html/>", "not BEAST's XML"),
        (b"<beast/>", "neither a likelihood nor a prior of a tree"),
        (HEAD.encode() + b'<plate var="n" range="' + b"1," * 12000 + b'"><a/></plate></beast>',
         "plates make more than 10,000 copies"),
        (STRICT.replace('value="ACGAACGTAC"', 'value="ACG"').encode(), "different lengths"),
        (STRICT.replace("b 2=1.5", "b 2").encode(), "not name=date"),
        ((PRIOR_ALONE % ("YuleModel", "", SCALED)).replace(' tree="@tree"/>', "/>").encode(),
         "its tree is fixed, and no data are in it"),
        (BEAUTI.replace('<taxon id="c" spec="Taxon"/>', '<taxonset idref="group"/>').encode(),
         "a set of taxa that is in itself"),
        (STRICT.replace('value="ACGAACGTAC"', 'value="\u00e9CGAACGTAC"').encode(), "letters"),
        (BEAUTI.replace("1::3,2::3", "odd").encode(), "filter of sites 'odd'"),
        (BEAUTI.replace("02/7/2004", "2004").encode(), "is not dd/M/yyyy"),
    ],
)  # fmt: skip
def test_files_that_are_refused(read, text, message):
    with pytest.raises(InputError, match=message):
        read(text)


def test_the_beginning_tells(tmp_path):
    assert is_beast_xml(HEAD.encode()[:200])
    assert is_beast_xml(b"\xef\xbb\xbf<beast>")
    assert not is_beast_xml(b"<html><beast>")
    assert not is_beast_xml(b">seq\nACGT")


NAMES, YEARS = ["t1", "t 2", "t-3", "t.4", "t5|x"], [2001.25, 1999.0, 2003.5, 1998.75, 2003.5]
ROWS = ["ACGTACGTNN", "ACGTTCGTAC", "ACGAACGTAC", "GCGTACGTAC", "ACGTACGTAC"]
DAYS = ["2001-04-02", "1999-01-01", "2003-07-02", "1998-10-02", "2003-07-02"]


def written_somehow(rng):
    """Any of BEAST's notations of an analysis: attributes, elements, references, places."""

    def pick(*forms):
        return forms[rng.integers(len(forms))]

    def parameter(name, value, role):
        """A parameter where it is used, or in the chain's state; and its reference there."""
        words = f'name="%s" id="{name}" lower="0.0"'
        form = pick(
            f'<parameter {words} value="{value}"/>', f"<parameter {words}>{value}</parameter>"
        )
        within = f'<input name="{role}" idref="{name}"/>', form % "stateNode"
        return pick(within, (form % role, f'<stateNode idref="{name}"/>'))

    rows = "".join(
        pick(f'<sequence taxon="{name}" value="{row}"/>',
             f'<sequence taxon="{name}">{row[:4]}\n {row[4:]}</sequence>',
             f'<sequence id="s{name}" spec="Sequence" taxon="{name}" value="{row}"/>',
             f'<sequence><taxon id="{name}" spec="Taxon"/>{row}</sequence>')
        for name, row in zip(NAMES, ROWS, strict=True)
    )  # fmt: skip
    ages = [max(YEARS) - year for year in YEARS]
    kind, dates = pick(("date", YEARS), ("date-forward", YEARS), ("date-backward", ages),
                       ("age", ages), ('date" dateFormat="yyyy-M-dd', DAYS))  # fmt: skip
    text = pick(",", ", ", ",\n\t").join(
        f"{name}{pick('=', ' = ')}{date}" for name, date in zip(NAMES, dates, strict=True)
    )
    taxa = pick('alignment="@aln"/>', '><alignment idref="aln"/></%s>')
    group = f'<taxa spec="TaxonSet" {taxa}'.replace("%s", "taxa")
    trait = pick(f'value="{text}">{group}</trait>', f">{text}{group}</trait>")
    tree = f'<tree id="tree" name="stateNode"><trait spec="TraitSet" traitname="{kind}" {trait}'
    tree += f'<taxonset spec="TaxonSet" id="all" {taxa}</tree>'.replace("%s", "taxonset")
    given = [parameter(*one) for one in (("rate", 0.01, "clock.rate"), ("pop", 1.5, "popSize"),
             ("kap", 2.0, "kappa"), ("sh", 0.5, "shape"))]  # fmt: skip
    (rate, pop, kappa, shape), state = zip(*given, strict=True)
    is_within = bool(rng.integers(2))
    states = [*state, tree if is_within else '<stateNode idref="tree"/>']
    whole = pick("beast.base.evolution.", "")
    log_normal = '<distr spec="LogNormal"><parameter name="M" value="1.0"/><parameter name="S">1.25'
    of_kappa = pick(
        '<LogNormal name="distr" M="1.0" S="1.25"/>', f"{log_normal}</parameter></distr>"
    )
    uses = (pick('parameter="@%s"/>', '><parameter idref="%s"/></operator>') for _ in range(4))
    scaled = "".join(
        f'<operator spec="ScaleOperator" {use % name}'
        for use, name in zip(uses, ("rate", "pop", "kap", "sh"), strict=True)
    )
    return f"""<beast><map name="LogNormal">x.LogNormalDistributionModel</map>
      {pick(f'<data id="aln">{rows}</data>', f'<input spec="Alignment" id="aln">{rows}</input>')}
      {"" if is_within else tree}<run spec="MCMC"><state>{"".join(rng.permutation(states))}</state>
      <distribution spec="Coalescent"><populationModel spec="{whole}ConstantPopulation">{pop}
      </populationModel>{
        pick(
            '<treeIntervals spec="TreeIntervals" tree="@tree"/>',
            '<treeIntervals spec="TreeIntervals"><tree idref="tree"/></treeIntervals>',
        )
    }</distribution>
      {
        pick(
            '<prior name="distribution" x="@kap">%s</prior>',
            '<distribution spec="Prior"><x idref="kap"/>%s</distribution>',
        )
        % of_kappa
    }<distribution useAmbiguities="true"
      spec="{
        pick("TreeLikelihood", "ThreadedTreeLikelihood")
    }"><data idref="aln"/><tree idref="tree"/>
      <siteModel spec="{whole}SiteModel" gammaCategoryCount="4">{shape}<substModel spec="HKY">{
        kappa
    }
      {
        pick(
            '<frequencies spec="Frequencies" data="@aln"/>',
            '<frequencies spec="Frequencies"><input name="data" idref="aln"/></frequencies>',
        )
    }</substModel></siteModel><branchRateModel
      spec="StrictClockModel">{rate}</branchRateModel></distribution>{scaled}</run></beast>"""


@pytest.mark.cases(20, 1000)
def test_notations_mean_the_same(read, case):
    found = read(written_somehow(np.random.default_rng(case)))
    assert found.alignment.names == tuple(NAMES)
    assert [row.decode() for row in found.alignment.rows] == ROWS
    sign, latest = (-1, max(YEARS)) if found.are_ages else (1, 0.0)
    dates = [latest + sign * float(found.dates[name]) for name in NAMES]
    np.testing.assert_allclose(dates, YEARS, atol=0.004)
    assert found.options == {"model": "HKY+FC+G4a", "clock": "strict", "tree_prior": "coalescent"}
    assert found.priors == {
        "kappa": "LogNormal(1, 1.25)", "clock_rate": "Uniform(0, 100)",
        "population_size": "Uniform(0, 15000)", "alpha": "Uniform(0, 5000)",
    }  # fmt: skip
