"""Elements of an XML of BEAST, by their identifiers: inputs, references, plates, distributions.

The files are no program here: no entity is expanded, nothing is loaded.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from io import BytesIO
from typing import TypeAlias
from xml.etree import ElementTree

from mltree.data.alignments import MemoryAlignment
from mltree.data.source import unpacked
from mltree.system.errors import InputError

DEEPEST, MOST_COPIES = 100, 10_000
"""Levels of elements, and copies that plates may make."""

NEARLY_FLAT, FLATTER = "LogNormal(0, 10)", "LogNormal(0, 100)"
"""Proper priors in place of 1/X: where X is 100 they lower the mean of ln X by a twentieth of its
variance, or by a two-thousandth. The second is for what only the tree's prior or the clock has."""

Element: TypeAlias = "ElementTree.Element[str]"


def is_beast_xml(start: bytes) -> bool:
    """True for the beginning of a file that has BEAST's root element."""
    text = re.sub(rb"<!--.*?-->|<\?.*?\?>", b"", start.lstrip(b"\xef\xbb\xbf"), flags=re.DOTALL)
    return re.match(rb"\s*<(\w+:)?beast\b", text) is not None


def root_of(path: str) -> Element:
    """The root of a file's elements. Raises: InputError: they are none, or could be anything."""
    data = unpacked(path)
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        data = re.sub(r"^<\?xml.*?\?>", "", data.decode("utf-16", "replace")).encode()
    bare = re.sub(rb"<!--.*?-->", b"", data, flags=re.DOTALL)
    if re.search(rb"<!\s*(DOCTYPE|ENTITY)", bare, re.IGNORECASE) or b"\0" in bare[:100]:
        raise InputError("XML with a document type or entities is not read", file=path)
    depth = 0
    root: Element | None = None
    try:
        for event, element in ElementTree.iterparse(BytesIO(data), events=("start", "end")):
            depth += 1 if event == "start" else -1
            if "}" in element.tag:
                element.tag = element.tag.rpartition("}")[2]
            root = element if root is None else root
            if depth > DEEPEST:
                raise InputError(f"elements nested deeper than {DEEPEST}", file=path)
    except (ElementTree.ParseError, LookupError, ValueError) as error:
        line = getattr(error, "position", (None,))[0]
        raise InputError(f"broken XML: {error}", file=path, line=line) from None
    assert root is not None  # a file without elements is an error above
    return root


LIKELIHOODS = "TreeLikelihood", "ThreadedTreeLikelihood"
_OF_LIKELIHOODS = (
    "data tree siteModel branchRateModel useAmbiguities scaling implementation threads instances"
)
_INPUTS = dict.fromkeys(LIKELIHOODS, _OF_LIKELIHOODS) | {
    "SiteModel": "substModel mutationRate gammaCategoryCount shape proportionInvariant",
    "Frequencies": "data frequencies",
    "StrictClockModel": "clock.rate tree",
    "UCRelaxedClockModel": "clock.rate distr tree rateCategories rateQuantiles rates "
    "numberOfDiscreteRates",
    "YuleModel": "birthDiffRate birthRate tree treeIntervals",
    "BirthDeathGernhard08Model": "birthDiffRate relativeDeathRate sampleProbability type tree",
    "BirthDeathSkylineModel": "reproductiveNumber becomeUninfectiousRate samplingProportion rho "
    "tree contemp",
    "Coalescent": "populationModel treeIntervals",
    "ConstantPopulation": "popSize",
    "ExponentialGrowth": "popSize growthRate",
    "MRCAPrior": "tree taxonset monophyletic distr tipsonly useOriginate",
    "Alignment": "sequence dataType statecount data taxa",
    "FilteredAlignment": "filter data dataType",
}  # fmt: skip
"""Inputs that are taken over, or say nothing of the posterior, by class."""

_DEFAULT = re.compile(r"\$\(\w+=([^()]*)\)")
_OF_ALL = ("id", "spec", "name", "idref", "estimate")
_NOTHING = ("false", "0", "0.0", "", "none", "-1")


class Elements:
    """The elements of BEAST 2's file, and what is said of them."""

    def __init__(self, root: Element, path: str) -> None:
        self.path = path
        self.ignored: list[str] = []
        _expand_plates(root, path)
        _fill_in_defaults(root)
        self.root = root
        self.names = {str(one.get("name")): (one.text or "").strip() for one in root.iter("map")}
        self.by_id = {str(one.get("id")): one for one in root.iter() if one.get("id")}
        self.estimated = self._estimated()

    def spec(self, element: Element | None) -> str:
        """The class of an element, without its package."""
        if element is None:
            return ""
        element = self.resolved(element)
        named = element.get("spec") or self.names.get(element.tag) or element.tag
        return str(named).rpartition(".")[2]

    def resolved(self, element: Element) -> Element:
        """The element that a reference means."""
        for _ in range(DEEPEST):
            reference = element.get("idref")
            if reference is None or reference not in self.by_id:
                break
            element = self.by_id[reference]
        return element

    def inputs(self, element: Element, name: str) -> list[Element]:
        """The elements that stand for an input of an element."""
        element = self.resolved(element)
        found = [
            self.resolved(child) for child in element
            if (child.get("name") or child.tag) == name and child.get("id") != name + "s"
        ]  # fmt: skip
        reference = element.get(name, "")
        if reference.startswith("@") and reference[1:] in self.by_id:
            found.append(self.resolved(self.by_id[reference[1:]]))
        return found

    def input(self, element: Element | None, *names: str) -> Element | None:
        """The first element that stands for one of some inputs."""
        for name in names if element is not None else ():
            if found := self.inputs(element, name):  # type: ignore[arg-type]
                return found[0]
        return None

    def value(self, element: Element | None, *names: str, default: str = "") -> str:
        """The text of an input, its own or that of a parameter; ``default`` without."""
        for name in names if element is not None else ():
            assert element is not None
            element = self.resolved(element)
            text = element.get(name)
            if text is not None and not text.startswith("@"):
                return text.strip()
            if (child := self.input(element, name)) is not None:
                return (child.get("value") or child.text or "").strip()
        return default

    def number(self, element: Element | None, *names: str, default: float) -> float:
        """The first number of an input."""
        text = self.value(element, *names)
        try:
            return float(text.split()[0]) if text else default
        except ValueError:
            self.ignored.append(f"{names[0]} is no number: {text[:30]}.")
            return default

    def tell_unknown_inputs(self) -> None:
        """Say which inputs of known classes, with another value than none, are not taken over."""
        for one in self.own():
            kind = self.spec(one)
            if kind not in _INPUTS:
                continue
            skipped = {*_OF_ALL, *_INPUTS[kind].split()}
            given = dict(one.attrib)
            for child in one:
                given.setdefault(child.get("name") or child.tag, child.get("value") or "set")
            for name, value in given.items():
                if name not in skipped and value.strip().lower() not in _NOTHING:
                    self.ignored.append(f"{kind}: its input {name} is not taken over.")

    @property
    def operators(self) -> list[Element]:
        """Operators that are ever used."""
        every = [one for one in self.root.iter("operator") if one.get("idref") is None]
        return [one for one in every if self.number(one, "weight", default=1.0) > 0]

    def operators_of(self, inputs: Sequence[str]) -> list[Element]:
        """Operators that have one of some inputs."""
        return [one for one in self.operators if self.input(one, *inputs) is not None]

    @property
    def of_posterior(self) -> Iterator[Element]:
        """Elements of the distributions that the chain samples."""
        runs = [one for one in self.root.iter() if one.tag == "run"]
        waiting = [top for run in runs for top in self.inputs(run, "distribution")]
        for one in waiting:
            yield one
            waiting += self.inputs(one, "distribution")

    def _estimated(self) -> set[str]:
        """Identifiers of what the chain changes: nodes of its state that an operator has."""
        states = [one for one in self.root.iter() if self.spec(one) in ("state", "State")]
        in_state = {self.resolved(child) for state in states for child in state}
        operators = [one for top in self.operators for one in top.iter()]
        named = [text[1:] for one in operators for text in one.attrib.values() if text[:1] == "@"]
        changed = {self.by_id[name] for name in named if name in self.by_id}
        changed |= {self.resolved(one) for one in operators}
        if in_state:
            changed = changed & in_state if operators else in_state
        return {
            str(node.get("id")) for node in changed
            if node.get("id") and node.get("estimate", "true").lower() != "false"
        }  # fmt: skip

    def is_estimated(self, element: Element | None) -> bool:
        """True for a parameter that the chain changes."""
        return element is not None and element.get("id") in self.estimated

    def own(self) -> Iterator[Element]:
        """All elements that are no references to others."""
        return (one for one in self.root.iter() if one.get("idref") is None)

    def name_of(self, element: Element) -> str:
        """The identifier of an element, or else its class."""
        return str(element.get("id") or self.spec(element))

    # Distributions.

    def distribution(self, given: Element, name: str, is_forward: bool = False) -> str | None:
        """A distribution as a text; None, with a sentence, where it is not known here."""
        kind = self.spec(given)
        offset = self.number(given, "offset", default=0.0)
        if kind == "Uniform":
            low = self.bound(given, "lower", 0.0) + offset
            high = self.bound(given, "upper", 1.0 if not is_forward else math.inf) + offset
            if math.isfinite(high - low):
                return f"Uniform({low:.10g}, {high:.10g})"
            has_low = math.isfinite(low) and (low > 0 or is_forward)
            return f"l({low:.10g})" if has_low else f"u({high:.10g})" if high < math.inf else ""
        if kind == "Normal":
            mean = self.number(given, "mean", default=0.0) + offset
            deviation = self.number(given, "sigma", default=1.0)
            if tau := self.value(given, "tau"):
                deviation = float(tau) ** -0.5
            return f"Normal({mean:.10g}, {deviation:.10g})"
        text = self._positive(given, kind)
        if text is None:
            self.ignored.append(f"{name}: the distribution {kind} is not taken over.")
            return None
        if is_forward:
            self.ignored.append(f"{name}: {kind} of dates, not of ages, is not taken over.")
            return None
        return f"{offset:.10g} + {text}" if offset else text

    def bound(self, given: Element, name: str, default: float) -> float:
        """An end of a distribution, or of a parameter, which may be infinite."""
        text = self.value(given, name).lower()
        if "infinity" in text:
            return -math.inf if text.startswith("-") else math.inf
        return self.number(given, name, default=default)

    def _positive(self, given: Element, kind: str) -> str | None:
        """A distribution of positive numbers or of proportions; None for another one."""

        def of(name: str, default: float) -> str:
            return f"{self.number(given, name, default=default):.10g}"

        text: str | None = None
        if kind in ("LogNormalDistributionModel", "LogNormal"):
            is_real = self.value(given, "meanInRealSpace").lower() == "true"
            words = ("real_mean=", "deviation=") if is_real else ("", "")
            text = f"LogNormal({words[0]}{of('M', 0.0)}, {words[1]}{of('S', 1.0)})"
        elif kind == "Exponential":
            text = f"Exponential(mean={of('mean', 1.0)})"
        elif kind == "Gamma":
            mode = self.value(given, "mode", default="ShapeScale")
            which = {"ShapeScale": "scale", "ShapeRate": "rate", "ShapeMean": "mean"}.get(mode)
            text = which and f"Gamma(shape={of('alpha', 2.0)}, {which}={of('beta', 2.0)})"
        elif kind == "LaplaceDistribution":
            text = f"Laplace({of('mu', 0.0)}, {of('scale', 1.0)})"
        elif kind == "Beta":
            text = f"Beta({of('alpha', 1.0)}, {of('beta', 1.0)})"
        elif kind == "OneOnX":
            text = NEARLY_FLAT
        elif kind == "Dirichlet":
            values = self.value(given, "alpha").split()
            text = f"Dirichlet({values[0]})" if len(set(values)) == 1 else None
        return text


def _expand_plates(root: Element, path: str) -> None:
    """Replace plates by copies of what they hold, with ``$(variable)`` replaced."""
    copies = 0
    while found := [(up, one) for up in root.iter() for one in up if one.tag == "plate"]:
        above, plate = found[0]
        variable, values = f"$({plate.get('var')})", (plate.get("range") or "").split(",")
        place = list(above).index(plate)
        above.remove(plate)
        for value in values:
            for child in plate:
                copies += 1
                if copies > MOST_COPIES:
                    raise InputError(f"plates make more than {MOST_COPIES:,} copies", file=path)
                copy = deepcopy(child)
                for one in copy.iter():
                    for key, text in one.attrib.items():
                        one.attrib[key] = text.replace(variable, value.strip())
                    one.text = (one.text or "").replace(variable, value.strip())
                above.insert(place, copy)
                place += 1


def _fill_in_defaults(root: Element) -> None:
    """Replace variables that have a value of their own, ``$(length=1000)``, by it."""
    for one in root.iter():
        for key, text in one.attrib.items():
            one.attrib[key] = _DEFAULT.sub(r"\1", text)
        one.text = _DEFAULT.sub(r"\1", one.text or "")


# Sequences.


def append_rows(rows: dict[str, str], more: Mapping[str, str], path: str) -> None:
    """Put an alignment behind the others; taxa that it or they lack get gaps."""
    lengths = set(map(len, more.values()))
    if len(lengths) != 1:
        raise InputError("sequences of different lengths", file=path)
    start, (length,) = max(map(len, rows.values()), default=0), lengths
    for name, row in more.items():
        rows[name] = rows.get(name, "-" * start) + row
    for name in set(rows) - set(more):
        rows[name] += "-" * length


def alignment_of(rows: Mapping[str, str], path: str) -> MemoryAlignment:
    """The alignment. Raises: InputError: a sequence has letters that are no ASCII."""
    try:
        encoded = tuple(row.encode("ascii") for row in rows.values())
    except UnicodeEncodeError:
        raise InputError("a sequence has letters that are none", file=path) from None
    return MemoryAlignment(tuple(rows), encoded, path)
