"""BEAST's XML, as BEAUti writes it: alignment, parts, dates, clock, tree prior and calibrations.

BEAST 2's is read whole, and said in one sentence each what is not taken over. Of BEAST X's only
alignment and dates are.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace

from mltree.data.alignments import MemoryAlignment
from mltree.dating.beast_elements import (
    DEEPEST,
    FLATTER,
    LIKELIHOODS,
    NEARLY_FLAT,
    Element,
    Elements,
    alignment_of,
    append_rows,
    root_of,
)
from mltree.dating.dates import year_of_form
from mltree.system.errors import InputError
from mltree.system.values import Value

NO_COUNTS = "Dirichlet(0.01)"
"""A proper prior in place of 1/X for each of several rates whose mean is known."""

ALL_ALIKE = 1e15
"""A population so large that no time is too long for it: a coalescent of which all heights are
alike, as they are without any prior of the tree."""

MOST_DEVIATIONS, FREE_TIPS = 6.0, 10.0
"""Standard deviations about the mean within which a tip's date is sampled; and the range in which
one without a prior is, over that of all dates."""

FLAT = 1e4
"""The end of the uniform distribution in place of a flat one without end, over the first value."""


class BeastAnalysis(Value):
    """An analysis of BEAST as data and options of ``mltree sample``."""

    alignment: MemoryAlignment
    data_type: str
    """BEAST's word: ``nucleotide``, ``aminoacid``, ``binary``, ..."""
    partitions: str
    """Parts in RAxML's format, a line each; empty for a single part."""
    dates: dict[str, str]
    """Dates of tips, or ages, as ``--dates`` has them; empty without."""
    are_ages: bool
    calibrations: tuple[str, ...]
    """Lines of a table for ``--calibrate``."""
    options: Mapping[str, str | int]
    """By the names of ``mltree sample``: ``model``, ``clock``, ``tree_prior``, ..."""
    priors: dict[str, str] = field(default_factory=dict)
    """Distributions of BEAST's parameters, by the role that a parameter has: ``kappa``, ..."""
    is_prior_only: bool = False
    """True where nothing but priors is in it: the alignment then has names alone."""
    ignored: tuple[str, ...] = ()
    """A sentence on each thing that is not taken over."""


def read_beast_xml(path: str) -> BeastAnalysis:
    """The analysis of a file.

    Raises:
        InputError: it is no XML of BEAST, has no alignment, or a document type, whose entities
            could be anything.
    """
    root = root_of(path)
    if root.tag != "beast":
        raise InputError(f"not BEAST's XML: its root is <{root.tag}>", file=path)
    if root.find("taxa") is not None and root.find(".//sequence/taxon") is not None:
        return _of_beast_x(root, path)
    return _Analysis(root, path).read()


# BEAST 2.

_MODELS = {
    "JukesCantor": "JC", "HKY": "HKY", "TN93": "TN93", "GTR": "GTR", "SYM": "SYM", "TVM": "TVM",
    "TIM": "TIM1", "K80": "K80", "F81": "F81", "JTT": "JTT", "WAG": "WAG", "LG": "LG",
    "Blosum62": "BLOSUM62", "Dayhoff": "DAYHOFF", "CPREV": "CPREV", "MTREV": "MTREV",
    "GeneralSubstitutionModel": "GTR", "BinaryCovarion": "BIN",
}  # fmt: skip
_OF_KAPPA = {"HKY", "K80"}
_WITHOUT_FREQUENCIES = {"JC", "K80", "SYM"}
_OF_RATES = (
    "kappa", "kappa1", "kappa2", "rates", "rateAC", "rateAG", "rateAT", "rateCG", "rateCT",
    "rateGT", "rateTransversions", "rateTransversions1", "rateTransversions2", "rateTransitions",
)  # fmt: skip
"""Inputs of substitution models that are exchangeabilities, or their ratio."""
_SETS_OF_STATES = {"nucleotide": "RYMWSKBDHVrymwskbdhv", "aminoacid": "BZJbzj"}
"""Letters of several states, by BEAST's data types."""
_DATE_TRAITS = {"date", "date-forward", "date-backward", "age"}


class _Analysis(Elements):
    """The parts of an analysis, found among the elements of a file."""

    def __init__(self, root: Element, path: str) -> None:
        super().__init__(root, path)
        self.priors: dict[str, str] = {}
        self.roles: dict[str, str] = {}
        """Role of each parameter, by its identifier."""

    # The analysis.

    def read(self) -> BeastAnalysis:
        """Read the file. Raises: InputError."""
        self.tell_unknown_inputs()
        likelihoods = [one for one in self.own() if self.spec(one) in LIKELIHOODS]
        if not likelihoods:
            return self._read_priors()
        tree = self.input(likelihoods[0], "tree")
        same = [one for one in likelihoods if self.input(one, "tree") is tree]
        if len(same) < len(likelihoods):
            left = len(likelihoods) - len(same)
            self.ignored.append(f"{left} of {len(likelihoods)} parts have other trees: left out.")
        alignment, data_type, parts = self._data(same)
        is_whole = len(parts) == 1 and parts[0].endswith(f"= 1-{len(alignment.rows[0])}")
        options = {"model": parts[0].partition(",")[0]} if is_whole else {}
        text = "" if is_whole else "".join(f"{part}\n" for part in parts)
        options |= self._clock(same) | self._rates_of_parts(same)
        of_data = BeastAnalysis(alignment, data_type, text, {}, False, (), options)
        return self._of_tree(tree, of_data)

    def _read_priors(self) -> BeastAnalysis:
        """Read a file without a likelihood. Raises: InputError: nor has it a prior of a tree."""
        prior = next((one for one in self.own() if self.spec(one) in _TREE_PRIORS), None)
        if prior is None:
            problem = "neither a likelihood nor a prior of a tree in it: nothing to sample"
            raise InputError(problem, file=self.path)
        tree = self._tree_of(prior)
        if self.operators and not self.operators_of(_OF_TREES):
            problem = "its tree is fixed, and no data are in it: trees are what is sampled here"
            raise InputError(problem, file=self.path)
        names = self._names(tree)
        if not names:
            raise InputError("the tips of its tree have no names in it", file=self.path)
        self.priors["clock_rate"] = "Fixed(1)"
        rows = alignment_of(dict.fromkeys(names, "A"), self.path)  # that no data count
        options = {"model": "JC", "clock": "strict"}
        of_data = BeastAnalysis(rows, "", "", {}, False, (), options, is_prior_only=True)
        return self._of_tree(tree, of_data)

    def _of_tree(self, tree: Element | None, of_data: BeastAnalysis) -> BeastAnalysis:
        """Put the prior of the tree, dates and priors beside data, model and clock."""
        names = of_data.alignment.names
        options = {**of_data.options, **self._tree_prior(tree)}
        dates, are_ages = self._dates(tree)
        same = set(dates.values())
        is_calibrated = any(self.spec(one) in _CALIBRATIONS for one in self.own())
        if len(same) == 1 and set(names) <= set(dates) and (not is_calibrated or same == {"0"}):
            self.ignored.append("All tips have the same date.")
            dates = {}
        are_ages |= not dates
        known = dates or dict.fromkeys(names, "0")
        if missing := [name for name in names if name not in known]:
            self.ignored.append(
                f"{missing[0]} and {len(missing) - 1} more have no date: 0, as in BEAST."
            )
            known |= dict.fromkeys(missing, "0")
        before = dict(known)
        calibrations = tuple(self._calibrations(tree, known, are_ages))
        dates = known if dates or known != before else {}
        if dates and options.get("tree_prior") in ("yule", "bd"):
            self.ignored.append("Births of dated tips: sampling through time, any origin alike.")
        if options.get("tree_prior") in _FROM_THE_PRESENT:
            dates, calibrations = self._to_the_present(dates, calibrations, are_ages)
        priors = dict(self._flat_priors()) | self.priors | dict(self._priors())
        self._tell_of_the_run()
        return replace(
            of_data, dates=dates, are_ages=are_ages, calibrations=calibrations, options=options,
            priors=priors, ignored=tuple(dict.fromkeys(self.ignored)),
        )  # fmt: skip

    def _names(self, tree: Element | None) -> list[str]:
        """Names of the tips of a tree: of its set of taxa, its data, its dates or its text."""
        traits = [] if tree is None else self.inputs(tree, "trait")
        for above in (tree, *traits):
            group = self.input(above, "taxonset", "taxa")
            if group is not None:
                found = [name for name, _ in self._sequences(group, expected=False)]
                return found or self._taxa(group)
        text = self.value(tree, "newick")
        sets = [self._taxa(one) for one in self.own() if self.spec(one) == "TaxonSet" and not text]
        return (
            max(sets, key=len)
            if sets
            else [name.strip("'") for name in re.findall(r"[(,]\s*('[^']+'|[^\s(),:;\[]+)", text)]
        )

    # Sequences and parts.

    def _data(self, likelihoods: Sequence[Element]) -> tuple[MemoryAlignment, str, list[str]]:
        """The alignment, the data type of its first part, and its parts as RAxML has them.

        Likelihoods of one site model and one clock are one part.
        """
        rows: dict[str, str] = {}
        places: dict[str, tuple[int, int]] = {}
        types: dict[str, str] = {}
        parts: dict[tuple[int, int, str], list[tuple[Element, str, str]]] = defaultdict(list)
        for likelihood in likelihoods:
            part, filters, whole = self._part(likelihood)
            name = self.name_of(whole)
            if name not in places:
                types[name] = self.value(whole, "dataType", default="nucleotide").lower()
                start = max(map(len, rows.values()), default=0)
                more = dict(self._sequences(whole))
                if self.value(likelihood, "useAmbiguities").lower() != "true":
                    more = self._without_ambiguities(more, types[name])
                append_rows(rows, more, self.path)
                places[name] = start, max(map(len, rows.values()))
            site, clock = (self.input(likelihood, one) for one in ("siteModel", "branchRateModel"))
            sites = self._sites(filters, *places[name])
            parts[id(site), id(clock), types[name]].append((likelihood, part, sites))
        lines = []
        for (*_, data_type), those in parts.items():
            sites = ", ".join(sites for *_, sites in those)
            lines.append(f"{self._model(those[0][0], data_type)}, {those[0][1]} = {sites}")
        self._tell_of_parts([those[0][0] for those in parts.values()], set(types.values()))
        return alignment_of(rows, self.path), next(iter(types.values())), lines

    def _part(self, likelihood: Element) -> tuple[str, str, Element]:
        """Name and filter of a likelihood's part, and its alignment. Raises: InputError: none."""
        data = self.input(likelihood, "data")
        if data is None:
            raise InputError("a likelihood without data", file=self.path)
        filters, whole = "", data
        if self.spec(data) == "FilteredAlignment":
            filters, inner = self.value(data, "filter"), self.input(data, "data")
            whole = data if inner is None else inner
        return re.sub(r"[^\w.-]+", "_", self.name_of(data)), filters, whole

    def _tell_of_parts(self, likelihoods: Sequence[Element], types: set[str]) -> None:
        """Say what parts have in common in the file, and not here."""
        models = [self.input(self.input(one, "siteModel"), "substModel") for one in likelihoods]
        if len({id(model) for model in models}) < len(models):
            self.ignored.append("Parts share a substitution model in it: here each has its own.")
        if len(types) > 1:
            self.ignored.append(f"Parts are of several data types: {', '.join(sorted(types))}.")

    def _rates_of_parts(self, likelihoods: Sequence[Element]) -> dict[str, str]:
        """How the rates of parts are linked: free where the chain changes any of them."""
        sites = {id(one): one for one in (self.input(own, "siteModel") for own in likelihoods)}
        rates = [self.input(one, "mutationRate") for one in sites.values()]
        if len(sites) < 2:
            return {}
        if any(map(self.is_estimated, rates)):
            if not all(map(self.is_estimated, rates)):
                self.ignored.append("Some rates of parts are fixed in it: here all have mean 1.")
            return {"brlen": "scaled"}
        fixed = {self.value(one, "mutationRate", default="1") for one in sites.values()}
        if len({float(rate.split()[0]) for rate in fixed}) > 1:
            self.ignored.append("Parts have different fixed rates in it: here they are sampled.")
            return {"brlen": "scaled"}
        return {"brlen": "linked"}

    def _without_ambiguities(self, rows: dict[str, str], data_type: str) -> dict[str, str]:
        """Sequences with gaps for sets of states, as likelihoods of BEAST have them by default."""
        sets = _SETS_OF_STATES.get(data_type, "")
        plain = {name: re.sub(f"[{sets}]", "-", row) if sets else row for name, row in rows.items()}
        if plain != rows:
            self.ignored.append(f"{'/'.join(sets[:4])} and the like are gaps (useAmbiguities).")
        return plain

    def _sequences(self, data: Element, *, expected: bool = True) -> Iterator[tuple[str, str]]:
        """Names and sequences of an alignment. Raises: InputError: it has none, and is to."""
        found = not expected
        for one in self.resolved(data):
            sequence = self.resolved(one)
            if sequence.get("taxon") is None and self.input(sequence, "taxon") is None:
                continue
            if one.tag not in ("sequence", "input") and self.spec(sequence) != "Sequence":
                continue
            taxon = self.input(sequence, "taxon")
            name = sequence.get("taxon", "") if taxon is None else self.name_of(taxon)
            text = sequence.get("value") or "".join(sequence.itertext())
            if sequence.get("uncertain", "").lower() == "true":
                problem = "probabilities of characters (uncertain sequences) are not read"
                raise InputError(problem, file=self.path)
            found = True
            yield name, "".join(text.split())
        if not found:
            problem = f"the alignment {self.name_of(data)} has no sequences in it"
            is_open = "$(" in "".join(data.itertext())
            hint = "variables have no values here" if is_open else "simulated data are not read"
            raise InputError(problem, file=self.path, hint=hint)

    def _sites(self, filters: str, start: int, end: int) -> str:
        """A filter of BEAST, ``1::3,2::3``, as RAxML has sites."""
        if not filters:
            return f"{start + 1}-{end}"
        parts = []
        for text in filters.split(","):
            matched = _FILTER.fullmatch(text.strip())
            if matched is None:
                raise InputError(f"filter of sites {text!r} is not understood", file=self.path)
            first = int(matched["first"] or 1)
            only = matched["range"] is None
            last = first if only else min(int(matched["last"] or end - start), end - start)
            step = f"\\{matched['step']}" if matched["step"] not in (None, "1") else ""
            parts.append(f"{start + first}-{start + last}{step}")
        return ", ".join(parts)

    # Models.

    def _model(self, likelihood: Element, data_type: str) -> str:
        """The substitution model in RAxML-NG's grammar."""
        site = self.input(likelihood, "siteModel")
        of = self.input(site, "substModel")
        kind = self.spec(of) or "of an unknown kind"
        if kind == "LewisMK":
            return self._of_characters(likelihood, of) + self._site_rates(site)
        if (name := _MODELS.get(kind)) is None:
            name = {"aminoacid": "LG", "binary": "BIN"}.get(data_type, "GTR")
            self.ignored.append(f"The substitution model {kind} is not known here: {name} is used.")
        role = "kappa" if name in _OF_KAPPA else "exchangeabilities"
        for one in _OF_RATES:
            self._note_role(self.input(of, one), role)
        fixed = self.value(of, *_OF_RATES)
        if any(self.is_estimated(self.input(of, one)) for one in _OF_RATES):
            fixed = ""
        elif fixed and name not in _OF_KAPPA:
            self.ignored.append(f"The fixed rates {fixed[:30]} of {name}: here they are sampled.")
            fixed = ""
        rates = fixed and f"{{{fixed}}}"
        return name + rates + self._frequencies(of, name) + self._site_rates(site)

    def _of_characters(self, likelihood: Element, of: Element | None) -> str:
        """Lewis's Mk model of as many states as it says, or else as characters have."""
        data = self.input(likelihood, "data")
        states = int(self.number(of, "stateNumber", default=0))
        types = (self.input(of, "datatype"), self.input(data, "userDataType"))
        states = states or max(
            int(self.number(one, "nrOfStates", "states", default=0)) for one in types
        )
        if not states:
            _, _, whole = self._part(likelihood)
            states = 1 + max(
                int(c) for _, row in self._sequences(whole) for c in row if c.isdigit()
            )
        return f"MULTI{max(states, 2)}_MK"

    def _note_role(self, parameter: Element | None, role: str) -> None:
        if parameter is not None and parameter.get("id"):
            self.roles.setdefault(str(parameter.get("id")), role)

    def _frequencies(self, of: Element | None, name: str) -> str:
        given = self.input(of, "frequencies")
        if given is None or name in _WITHOUT_FREQUENCIES:
            return ""
        values = self.input(given, "frequencies")
        self._note_role(values, "frequencies")
        numbers = self.value(given, "frequencies").split()
        if values is None and not numbers:
            is_counted = self.value(given, "estimate").lower() != "false"
            return ("+FC" if is_counted else "+FE") if self.input(given, "data") is not None else ""
        if self.is_estimated(values):
            return "+FO"
        if len(set(numbers)) <= 1:
            return "+FE"
        return f"+FU{{{'/'.join(numbers)}}}"

    def _site_rates(self, site: Element | None) -> str:
        text = ""
        categories = int(self.number(site, "gammaCategoryCount", default=1))
        shape, share = self.input(site, "shape"), self.input(site, "proportionInvariant")
        self._note_role(shape, "alpha")
        self._note_role(share, "p_invariant")
        self._note_role(self.input(site, "mutationRate"), "part_rates")
        if categories > 1:
            fixed = self.value(site, "shape")
            is_open = self.is_estimated(shape) or not fixed
            text += f"+G{categories}a" + ("" if is_open else f"{{{fixed}}}")  # medians
        invariable = self.number(site, "proportionInvariant", default=0.0)
        if self.is_estimated(share):
            text += "+I"
        elif invariable > 0.0:
            text += f"+I{{{invariable:g}}}"
        return text

    # The clock.

    def _clock(self, likelihoods: Sequence[Element]) -> dict[str, str]:
        models = [self.input(one, "branchRateModel") for one in likelihoods]
        known = [one for one in models if one is not None]
        if not known:
            self.priors["clock_rate"] = "Fixed(1)"
            return {"clock": "strict"}
        if any(one is not known[0] for one in known):
            self.ignored.append("Parts have clocks of their own: the first one is used for all.")
        clock, kind = known[0], self.spec(known[0])
        options = {"clock": "strict"}
        rate = self.input(clock, "clock.rate", "clockRate")
        self._note_role(rate, "clock_rate")
        if kind in ("UCRelaxedClockModel", "UCRelaxedClockModelORC", "OptimisedRelaxedClock"):
            options = {"clock": self._relaxed(clock)}
        elif kind != "StrictClockModel":
            self.ignored.append(f"The clock {kind} is not known here: a strict one is used.")
        if not self.is_estimated(rate):
            fixed = self.number(clock, "clock.rate", "clockRate", default=1.0)
            self.priors["clock_rate"] = f"Fixed({fixed:.10g})"
        return options

    def _relaxed(self, clock: Element) -> str:
        distribution = self.input(clock, "distr")
        kind = self.spec(distribution)
        mean = self.input(distribution, "M")
        if self.is_estimated(mean):
            self._note_role(mean, "clock_rate")
        elif kind in {"LogNormal", "LogNormalDistributionModel"}:
            is_real = self.value(distribution, "meanInRealSpace").lower() == "true"
            if self.number(distribution, "M", default=0.0) != is_real:
                self.ignored.append("Rates of branches have another mean than 1: here it is 1.")
        if kind in ("LogNormalDistributionModel", "LogNormal", "Gamma"):
            self._number_of(distribution, "clock_spread", "S", "sigma")
        if kind in ("LogNormalDistributionModel", "LogNormal"):
            return "ucln"
        if kind == "Gamma":
            return "ucgd"
        self.ignored.append(f"Rates of branches are {kind} distributed: log-normal ones are used.")
        return "ucln"

    # The prior of the tree.

    def _tree_prior(self, tree: Element | None) -> Mapping[str, str | int]:
        found = [one for one in self.own() if self._tree_of(one) in (None, tree)]
        for one in found:
            if self.spec(one) in _TREE_PRIORS:
                return self._of_tree_prior(one, self.spec(one))
        kinds = {self.spec(one) for one in self.of_posterior if self._tree_of(one) is tree}
        unknown = sorted(kinds - {"MRCAPrior", *LIKELIHOODS})
        if unknown:
            is_of_species = unknown[0] == "GeneTreeForSpeciesTreeDistribution"
            what = "a tree of species around it" if is_of_species else f"{unknown[0]}"
            self.ignored.append(
                f"The prior of the tree, {what}, is not known here: the default is used."
            )
            return {}
        self.ignored.append("No prior of the tree is in it: all heights are alike.")
        self.priors["population_size"] = f"Fixed({ALL_ALIKE:g})"
        return {"tree_prior": "coalescent"}

    def _tree_of(self, prior: Element) -> Element | None:
        """The tree that a prior of trees is about."""
        own = self.input(prior, "tree")
        return self.input(self.input(prior, "treeIntervals"), "tree") if own is None else own

    def _number_of(self, of: Element | None, role: str, *names: str) -> None:
        """Take a number of the clock or the tree's prior over: its role, or its fixed value."""
        parameter = self.input(of, *names)
        if self.is_estimated(parameter):
            self._note_role(parameter, role)
        elif self.value(of, *names):
            self.priors[role] = f"Fixed({self.number(of, *names, default=1.0):.10g})"

    def _of_tree_prior(self, one: Element, kind: str) -> Mapping[str, str | int]:
        if kind == "Coalescent":
            population = self.input(one, "populationModel")
            model = self.spec(population)
            self._number_of(population, "population_size", "popSize")
            self._number_of(population, "growth_rate", "growthRate")
            if model == "ExponentialGrowth":
                return {"tree_prior": "expgrowth"}
            if model != "ConstantPopulation":
                self.ignored.append(f"Population size {model} is not known here: it is constant.")
            return {"tree_prior": "coalescent"}
        if kind == "BayesianSkyline":
            return self._skyline(one)
        option, numbers = _BIRTHS[kind]
        for role, *names in numbers:
            size = self.number(self.input(one, *names), "dimension", default=1.0)
            if max(size, len(self.value(one, *names).split())) > 1:
                self.ignored.append(f"{names[0]} changes in time: here it is constant.")
            self._number_of(one, role, *names)
        if kind == "CalibratedYuleModel":
            self.ignored.append("The calibrated Yule prior is not corrected for calibrations.")
        return {"tree_prior": option}

    def _skyline(self, prior: Element) -> Mapping[str, str | int]:
        """A Bayesian skyline, whose sizes are a chain: the first one's prior, and its groups."""
        sizes, groups = self.input(prior, "popSizes"), self.input(prior, "groupSizes")
        count = int(self.number(groups, "dimension", default=1.0))
        text = "" if groups is None else groups.get("value") or groups.text or ""
        name = "" if sizes is None else str(sizes.get("id"))
        self.priors["population_size"] = FLATTER
        chains = [one for one in self.own() if self.spec(one) == "MarkovChainDistribution"]
        chain = next((one for one in chains if self.input(one, "parameter") is sizes), None)
        is_plain = chain is not None and self.number(chain, "shape", default=1.0) == 1.0
        odd = ("uselog", "reverse", "useLogNormal")
        if not is_plain or any(self.value(chain, one).lower() == "true" for one in odd):
            self.ignored.append(f"The prior of {name} is a chain of exponential ones here.")
        if chain is not None and self.value(chain, "jeffreys").lower() != "true":
            first = self.value(chain, "initialMean")
            end = FLAT * self.number(prior, "popSizes", default=1.0)
            self.priors["population_size"] = (
                f"Exponential(mean={first})" if first else f"Uniform(0, {end:.10g})"
            )
        if not (self.is_estimated(sizes) and self.is_estimated(groups)):
            self.ignored.append("Sizes and groups of the skyline are sampled here.")
        return {"tree_prior": "skyline", "skyline": max(count, len(text.split()))}

    # Dates and calibrations.

    def _dates(self, tree: Element | None) -> tuple[dict[str, str], bool]:
        dates: dict[str, str] = {}
        are_ages = False
        traits = [] if tree is None else self.inputs(tree, "trait")
        traits += [one for one in self.own() if self.spec(one) == "TraitSet" and one not in traits]
        for trait in traits:
            kind = self.value(trait, "traitname", default="date")
            if kind not in _DATE_TRAITS:
                self.ignored.append(f"The trait {kind} of the tips is not taken over.")
                continue
            text = trait.get("value") or trait.text or ""
            form = self.value(trait, "dateFormat")
            are_ages = kind in ("date-backward", "age")
            for pair in filter(str.strip, text.split(",")):
                name, equals, date = (word.strip() for word in pair.partition("="))
                if not equals or not date:
                    raise InputError(f"a date is {pair.strip()!r}, not name=date", file=self.path)
                dates[name] = repr(year_of_form(date, form, name, self.path)) if form else date
            break
        return dates, are_ages

    def _calibrations(
        self, tree: Element | None, dates: dict[str, str], are_ages: bool
    ) -> Iterator[str]:
        """Lines of a table of calibrations; intervals of tips' dates go to ``dates``."""
        sampled, of_tips = self._sampled_tips(tree, dates), set[str]()
        for one in self.own():
            if self.spec(one) not in _CALIBRATIONS:
                continue
            taxa = self._taxa(self.input(one, "taxonset"))
            name = self.name_of(one)
            given = self.input(one, "distr")
            text = "" if given is None else self.distribution(given, name, not are_ages)
            is_stem = "true" in self.value(one, "useOriginate", "parentOf").lower()
            if self.value(one, "tipsonly").lower() == "true" or (len(taxa) == 1 and not is_stem):
                own = [taxon for taxon in taxa if taxon in sampled and text]
                of_tips.update(own if (text or "").startswith(("Uniform", "Normal")) else [])
                yield from self._tips_calibrations(own, text or "", dates, name)
                continue
            is_group = self.value(one, "monophyletic").lower() == "true"
            is_group |= self.spec(one) == "CalibrationPoint"
            words = ", ".join(["stem"] * is_stem + ["monophyletic"] * is_group)
            if taxa and text is not None and (text or is_group):
                cells = (name, ",".join(taxa), text or "?", words)
                yield "\t".join(re.sub(r"[\t\n\r]", " ", cell) for cell in cells).rstrip("\t")
        if free := sorted(sampled - of_tips):
            self._free_tips(free, dates, are_ages)

    def _sampled_tips(self, tree: Element | None, dates: Mapping[str, str]) -> set[str]:
        """Tips whose dates the chain changes."""
        sampled: set[str] = set()
        for one in self.operators:
            if self.spec(one).startswith("TipDates") and self.input(one, "tree") in (None, tree):
                sampled.update(self._taxa(self.input(one, "taxonset")) or dates)
        return sampled & set(dates)

    def _tips_calibrations(
        self, taxa: Sequence[str], text: str, dates: dict[str, str], name: str
    ) -> Iterator[str]:
        """Take a prior of tips' dates over: an interval, or a normal distribution within one."""
        uniform = re.fullmatch(r"Uniform\(([^,]+), ([^)]+)\)", text)
        normal = re.fullmatch(r"Normal\(([^,]+), ([^)]+)\)", text)
        if taxa and not (uniform or normal):
            self.ignored.append(f"{name}: {text} of tips' dates is not taken over.")
        for taxon in taxa:
            if uniform:
                dates[taxon] = f"[{uniform[1]},{uniform[2]}]"
            elif normal:
                mean, reach = float(normal[1]), MOST_DEVIATIONS * float(normal[2])
                dates[taxon] = f"[{mean - reach:.10g},{mean + reach:.10g}]"
                yield f"{name}.{taxon}\t{taxon}\t{text}"

    def _free_tips(self, taxa: Sequence[str], dates: dict[str, str], are_ages: bool) -> None:
        """Let tips without a prior have any date, within a multiple of the range of all others."""
        known = [float(date) for name, date in dates.items() if _A_NUMBER.fullmatch(date)]
        reach = FREE_TIPS * ((max(known) - min(known)) if known else 0.0)
        if not reach:
            self.ignored.append(
                f"The dates of {', '.join(taxa)} are free in it: here they are not."
            )
            return
        ends = (min(known), min(known) + reach) if are_ages else (max(known) - reach, max(known))
        dates.update(dict.fromkeys(taxa, f"[{ends[0]:.10g},{ends[1]:.10g}]"))
        self.ignored.append(
            f"The date of {', '.join(taxa)} is free in it: [{ends[0]:g},{ends[1]:g}] here."
        )

    def _to_the_present(
        self, dates: dict[str, str], calibrations: tuple[str, ...], are_ages: bool
    ) -> tuple[dict[str, str], tuple[str, ...]]:
        """Ages that begin with the youngest tip, as priors of trees that change in time need."""
        ends = [float(end) for text in dates.values() for end in _A_NUMBER.findall(text)]
        if not (are_ages and ends and min(ends) > 0):
            return dates, calibrations
        youngest = min(ends)

        def moved(text: str, count: int = 0) -> str:
            return _A_NUMBER.sub(lambda found: f"{float(found[0]) - youngest:.10g}", text, count)

        cells = [row.split("\t") for row in calibrations]
        for row in cells:
            head, bracket, rest = row[2].partition("(")
            if bracket and head in ("Uniform", "Normal", "l", "u"):
                row[2] = f"{head}({moved(rest, 2 if head == 'Uniform' else 1)}"
            elif row[2] != "?":
                offset, _, text = row[2].rpartition(" + ")
                row[2] = f"{float(offset or 0) - youngest:.10g} + {text}"
        self.ignored.append(f"Ages count from the youngest tip, of age {youngest:g}.")
        return {name: moved(text) for name, text in dates.items()}, tuple(map("\t".join, cells))

    def _taxa(self, group: Element | None, depth: int = 0) -> list[str]:
        """Names of the taxa of a set. Raises: InputError: it is in itself."""
        if group is None:
            return []
        if depth > DEEPEST:
            raise InputError("a set of taxa that is in itself", file=self.path)
        found = []
        for child in group:
            taxon = self.resolved(child)
            if self.spec(taxon) == "TaxonSet":
                found += self._taxa(taxon, depth + 1)
            elif child.tag == "taxon" or self.spec(taxon) == "Taxon":
                found.append(str(taxon.get("id") or child.get("idref")))
        data = self.input(group, "alignment")
        return found or ([name for name, _ in self._sequences(data)] if data is not None else [])

    # Priors.

    def _priors(self) -> Iterator[tuple[str, str]]:
        """Priors of parameters by their roles."""
        for one in self.own():
            if self.spec(one) not in ("Prior", "prior"):
                continue
            parameter = self.input(one, "x", "parameter")
            given = self.input(one, "distr")
            if given is None:
                given = next((child for child in one if self.spec(child) != "RealParameter"), None)
            if parameter is None or given is None or not self.is_estimated(parameter):
                continue
            name = str(parameter.get("id"))
            role = self.roles.get(name)
            if role is None:
                self.ignored.append(f"The prior of {name} is not taken over.")
                continue
            text = self.distribution(given, name)
            if role in _OF_SHARES:
                text = self._of_shares(role, name, text, self.spec(given))
            elif text == NEARLY_FLAT:
                text = FLATTER if role in _OF_SCALARS else text
                self.ignored.append(f"1/X is improper: {text} stands in, which is much like it.")
            if text:
                yield role, text

    def _of_shares(self, role: str, name: str, text: str | None, kind: str) -> str | None:
        """A prior of shares, which is a Dirichlet distribution; None, with a sentence, if not."""
        if role != "exchangeabilities" and kind == "Uniform":
            return "Dirichlet(1)"
        if role == "part_rates" and kind == "OneOnX":
            return NO_COUNTS
        if text is None or text.startswith("Dirichlet"):
            return text
        self.ignored.append(
            f"The prior of {name} is not taken over: {role} have a Dirichlet distribution here."
        )
        return None

    def _is_proper(self, prior: Element) -> bool:
        """False for a uniform distribution without an end."""
        given = self.input(prior, "distr")
        if given is None or self.spec(given) != "Uniform":
            return True
        ends = self.bound(given, "lower", 0.0), self.bound(given, "upper", 1.0)
        return math.isfinite(ends[1] - ends[0])

    def _flat_priors(self) -> Iterator[tuple[str, str]]:
        """Priors of parameters that are estimated without one: BEAST's are flat."""
        priors = [one for one in self.own() if self.spec(one) in ("Prior", "prior")]
        with_prior = [self.input(one, "x", "parameter") for one in priors if self._is_proper(one)]
        for name, role in self.roles.items():
            parameter = self.by_id[name]
            if parameter in with_prior or role not in _FLAT or not self.is_estimated(parameter):
                continue
            words = (parameter.get("value") or parameter.text or "").split()
            first = float(words[0]) if words and _A_NUMBER.fullmatch(words[0]) else 0.0
            end = FLAT * (abs(first) or 1.0)
            low = max(self.bound(parameter, "lower", -end), -end if role == "growth_rate" else 0)
            high = min(self.bound(parameter, "upper", end), end)
            text = f"Uniform({low:.10g}, {high:.10g})"
            self.ignored.append(f"The prior of {name} is flat, where it has none: {text} here.")
            yield role, text

    def _tell_of_the_run(self) -> None:
        """Say what of the chain is not taken over."""
        if self.operators and not self.operators_of(_OF_TREES):
            self.ignored.append("No operator changes its tree: here trees are sampled.")
        elif self.operators and not any(
            map(_CHANGES_TOPOLOGY.search, map(self.spec, self.operators))
        ):
            self.ignored.append("No operator changes the topology: here it is sampled.")
        run = next(self.root.iter("run"), None)
        if run is not None:
            length = f" ({run.get('chainLength')})" if run.get("chainLength") else ""
            self.ignored.append(
                f"Operators, loggers, starting values and the chain's length{length} are not taken "
                "over."
            )
            if self.spec(run) != "MCMC":
                self.ignored.append(f"The run {self.spec(run)} becomes a sample of the posterior.")


_OF_SHARES = {"frequencies", "exchangeabilities", "part_rates"}
_OF_SCALARS = {"population_size", "growth_rate", "birth_rate", "clock_rate", "clock_spread"}
_A_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_FLAT = {"kappa", "alpha", "population_size", "growth_rate", "birth_rate", "clock_rate"}
"""Roles of parameters whose priors may be flat."""

_CALIBRATIONS = "MRCAPrior", "CalibrationPoint"
_CHANGES_TOPOLOGY = re.compile(r"Exchange$|WilsonBalding|Subtree|SPR|Prune|Topolog|Sampler")
"""Names of operators that change topologies, or have others within."""

_OF_TREES = ("tree", "treeIntervals", "treeModel", "down", "gtree", "taxonset")
"""Inputs of operators that change trees."""

_YULE = "yule", [("birth_rate", "birthDiffRate", "birthRate")]
_BIRTHS: dict[str, tuple[str, Sequence[tuple[str, ...]]]] = {
    "YuleModel": _YULE, "CalibratedYuleModel": _YULE,
    "BirthDeathGernhard08Model": ("bd", [
        ("birth_rate", "birthDiffRate"), ("relative_death", "relativeDeathRate"),
        ("sampling_fraction", "sampleProbability")]),
    "BirthDeathSkylineModel": ("bd", [
        ("reproductive_number", "reproductiveNumber"), ("removal_rate", "becomeUninfectiousRate"),
        ("sampling_proportion", "samplingProportion"), ("sampling_fraction", "rho")]),
}  # fmt: skip
"""Options of priors of births, and their numbers: roles here, names of BEAST's inputs."""

_TREE_PRIORS = {"Coalescent", "BayesianSkyline", *_BIRTHS}
_FROM_THE_PRESENT = ("expgrowth", "skygrid", "bd", "yule")
"""Priors of trees that depend on how long ago the present is."""
_FILTER = re.compile(r"(?P<first>\d*)(?P<range>[-:](?P<last>\d*)(?:[:\\](?P<step>\d+))?)?")


# BEAST X.


def _of_beast_x(root: Element, path: str) -> BeastAnalysis:
    """Alignment and dates of BEAST X's XML."""
    rows: dict[str, str] = {}
    types, lines = [], []
    for alignment in root.iter("alignment"):
        if alignment.find("sequence") is None:
            continue
        start = max(map(len, rows.values()), default=0)
        append_rows(rows, dict(_sequences_of_beast_x(alignment)), path)
        types.append(alignment.get("dataType", "nucleotide"))
        name = re.sub(r"[^\w.-]+", "_", alignment.get("id", f"part{len(types)}"))
        word = {"amino-acid": "AA", "binary": "BIN"}.get(types[-1], "DNA")
        lines.append(f"{word}, {name} = {start + 1}-{max(map(len, rows.values()))}\n")
    dates: dict[str, str] = {}
    are_ages = False
    for taxon in root.iter("taxon"):
        date = taxon.find("date")
        if date is not None and date.get("value") and taxon.get("id"):
            dates[str(taxon.get("id"))] = str(date.get("value"))
            are_ages = date.get("direction") == "backwards"
    ignored = "Of BEAST X's XML only alignment and dates are taken over: give models as options."
    return BeastAnalysis(
        alignment_of(rows, path), types[0], "".join(lines) if len(lines) > 1 else "", dates,
        are_ages, (), {}, ignored=(ignored,),
    )  # fmt: skip


def _sequences_of_beast_x(alignment: Element) -> Iterator[tuple[str, str]]:
    for sequence in alignment.iter("sequence"):
        taxon = sequence.find("taxon")
        name = "" if taxon is None else taxon.get("idref") or taxon.get("id") or ""
        yield name, "".join("".join(sequence.itertext()).split())
