"""What models are called: here, and elsewhere."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from mltree.models.character_models import GENOTYPES, MORPHOLOGY
from mltree.models.codon_models import CODONS, EMPIRICAL
from mltree.models.empirical import PROTEIN_MODELS
from mltree.models.substitution import DNA_MODELS, PAIRED, PROFILES, Family, Mixed, Model
from mltree.system.errors import ModelError
from mltree.system.values import decimal

if TYPE_CHECKING:
    from mltree.data.alphabet import Alphabet


# The classes in the braces of MIX{...} and FMIX{...}, as IQ-TREE writes them.
#
# A class is a model, or frequencies, and perhaps its rate and its weight:
# ``MIX{LG:1:0.4,WAG:1:0.6}``. Rates are beside each other; weights that are not given are
# estimated.


def outside_braces(text: str, separator: str) -> list[str]:
    """What stands between separators outside braces.

    Raises: ModelError where a brace is not closed.
    """
    found, depth = [""], 0
    for character in text:
        if character == separator and depth == 0:
            found.append("")
            continue
        depth += (character in "{[") - (character in "}]")
        found[-1] += character
    if depth != 0:
        raise ModelError(f"model {text.strip()!r}: a brace is not closed")
    return [part.strip() for part in found]


def mixed(name: str, inside: str, read: Callable[[str], Model]) -> Mixed:
    """The classes in the braces behind a name, MIX or FMIX, each read as the caller says.

    Raises: ModelError naming the class that is wrong.
    """
    texts = [outside_braces(text, ":") for text in outside_braces(inside, ",")]
    if len(texts) < 2:
        raise ModelError(
            f"{name}{{{inside}}}: two classes or more are wanted",
            hint="commas separate them: MIX{LG,WAG}, or LG+FMIX{FO,FE}",
        )
    if any(len(text) not in (1, 3) for text in texts) or len({len(text) for text in texts}) > 1:
        raise ModelError(
            f"{name}{{{inside}}}: all classes have a rate and a weight, or none",
            hint="behind colons: MIX{LG:1:0.4,WAG:1:0.6}",
        )
    given = np.array([[_number(value, name) for value in text[1:]] for text in texts])
    models = tuple(read(text[0]) for text in texts)
    count, is_given = len(models), given.size > 0
    speeds = given[:, 0] if is_given else np.ones(count)
    mixture = Mixed(
        name=name,
        weights=np.full(count, 1.0 / count),
        weights_fixed=is_given,
        classes=models,
        speeds=speeds,
        is_linked=name == "FMIX",
    )
    mixture = mixture.with_weights(given[:, 1]) if is_given else mixture
    if not (mixture.weights * speeds).sum() > 0.0:
        raise ModelError(f"{name}{{{inside}}}: all rates are zero")
    return mixture


def _number(text: str, name: str) -> float:
    try:
        value = decimal(text)
    except ValueError:
        value = math.nan
    if not 0.0 <= value < math.inf:
        raise ModelError(f"{name}: a class's rate and weight are numbers from 0 on, not {text!r}")
    return value


FAMILIES: tuple[Family, ...] = (MORPHOLOGY, CODONS, GENOTYPES)
"""Of data beside nucleotides and proteins; one that is added needs to be known here, no more."""

PROTEIN_GTR = "PROTGTR"
"""All exchangeabilities of amino acids estimated, or read from a user's file."""

GTR20 = "GTR20"
"""The same, by IQ-TREE's name, which is read too: mixtures of it, GTR20+C60, have no other."""

POISSON = "POISSON"
"""All exchangeabilities of amino acids equal, and the frequencies."""

_ALIASES = {
    "JC69": "JC",
    "K2P": "K80",
    "K3P": "K81",
    "K3PU": "K81uf",
    "TPM1": "K81",
    "TPM1U": "K81uf",
    "TPM1UF": "K81uf",
    "TPM2U": "TPM2uf",
    "TPM2EF": "TPM2",
    "TPM3U": "TPM3uf",
    "TPM3EF": "TPM3",
    "F84": "HKY",
    "HKY85": "HKY",
    "TN": "TN93",
    "TNE": "TN93ef",
    "TRN": "TN93",
    "TRNEF": "TN93ef",
    "TVME": "TVMef",
    "TIM": "TIM1uf",
    "TIME": "TIM1",
    "TIMEF": "TIM1",
    **{f"TIM{n}E": f"TIM{n}" for n in (1, 2, 3)},
    **{f"TIM{n}EF": f"TIM{n}" for n in (1, 2, 3)},
    **{f"TIM{n}U": f"TIM{n}uf" for n in (1, 2, 3)},
    "REV": "GTR",
    GTR20: PROTEIN_GTR,
    "PROTREV": PROTEIN_GTR,
    "JTTDCMUT": "JTT-DCMUT",
    "DAYHOFF-DCMUT": "DCMUT",
    "DAYHOFFDCMUT": "DCMUT",
    "MTREV24": "MTREV",
    "CPREV10": "CPREV",
    "BLOSUM": "BLOSUM62",
    "GTR2": "BIN",
    "JC2": "BIN",
    "BINARY": "BIN",
    **dict.fromkeys(("GY94", "M0", "YN98"), "GY"),
    "MG94": "MG",
    **dict.fromkeys(("ECM", "KOSI07", "ECMUNREST"), EMPIRICAL),
}
"""Names that other programs use, in capitals: for the hint of an error, and in NEXUS files."""

_IN_IQ_TREE = {
    "K80": "K2P", "TN93ef": "TNe", "TN93": "TN", "K81": "K3P", "K81uf": "K3Pu", "TPM2uf": "TPM2u",
    "TPM3uf": "TPM3u", "TIM1": "TIMe", "TIM1uf": "TIM", "TIM2": "TIM2e", "TIM2uf": "TIM2",
    "TIM3": "TIM3e", "TIM3uf": "TIM3", "TVMef": "TVMe", PROTEIN_GTR: "GTR20",
    "JTT-DCMUT": "JTTDCMut", "DAYHOFF": "Dayhoff", "DCMUT": "DCMut", "BLOSUM62": "Blosum62",
    "MTREV": "mtREV", "MTMAM": "mtMAM", "MTART": "mtART", "MTZOA": "mtZOA", "MTMET": "mtMet",
    "MTVER": "mtVer", "MTINV": "mtInv", "CPREV": "cpREV", "RTREV": "rtREV", "HIVB": "HIVb",
    "HIVW": "HIVw", "Q.PFAM": "Q.pfam", "Q.PFAM_GB": "Q.pfam_gb", "Q.BIRD": "Q.bird",
    "Q.INSECT": "Q.insect", "Q.MAMMAL": "Q.mammal", "Q.PLANT": "Q.plant", "Q.YEAST": "Q.yeast",
}  # fmt: skip
"""IQ-TREE's names for models that it has under others."""

_TERMS_IN_IQ_TREE = {"FC": "F", "FE": "FQ"}

_COUNTED = {
    "F81": "F81", "HKY": "HKY", "HKY85": "HKY", "TN": "TN93", "TRN": "TN93", "TN93": "TN93",
    "K81U": "K81uf", "K3PU": "K81uf", "K81UF": "K81uf", "TPM1U": "K81uf", "TPM1UF": "K81uf",
    **{f"TPM{n}{end}": f"TPM{n}uf" for n in (2, 3) for end in ("", "U", "UF")},
    "TIM": "TIM1uf", **{f"TIM{n}": f"TIM{n}uf" for n in (1, 2, 3)},
    "TVM": "TVM", "GTR": "GTR", "REV": "GTR",
}  # fmt: skip
"""IQ-TREE's names, in capitals, of models whose frequencies it counts unless a term tells them."""

_EQUAL = {
    "JC": "JC", "JC69": "JC", "K80": "K80", "K2P": "K80", "TNE": "TN93ef", "TRNEF": "TN93ef",
    "K81": "K81", "K3P": "K81", "TPM1": "K81", "TIME": "TIM1",
    **{f"TIM{n}{end}": f"TIM{n}" for n in (1, 2, 3) for end in ("E", "EF")},
    "TVME": "TVMef", "TVMEF": "TVMef", "SYM": "SYM",
}  # fmt: skip
"""IQ-TREE's models with equal frequencies, whatever term asks for others."""

_CLASSES = re.compile(r"[0-9]{6}")
"""IQ-TREE's own models of nucleotides, ``010020``."""

_GENETIC_CODE = re.compile(r"^CODON[0-9]+_")
_FREQUENCIES_OF_IQ_TREE = re.compile(r"F(Q|U|C|O|1X4|3X4C?)?([{\[].*)?", re.IGNORECASE | re.DOTALL)
_FREE_RATES = re.compile(r"R([0-9]{0,2})\{([^{}]*)\}", re.IGNORECASE)
"""IQ-TREE's +R4{weight,rate,...}: one pair of braces."""

_CHOICES = {"MFP", "MF", "TEST", "TESTONLY", "TESTNEW", "TESTNEWONLY", "TESTMERGE", "AUTO"}
"""What asks other programs to choose a model."""

_MIXTURES = {"EX2", "EX3", "EHO", "UL2", "UL3", "EX_EHO", "CF4", "JTTCF4G"}

_RAXML = re.compile(r"(ASC_)?(GTR|BIN|MULTI|PROT)(GAMMA|CAT)(I?)(\w*)")
_RAXML_FREQUENCIES = {"": "", "F": "+FC", "X": "+FO"}
"""How RAxML 8 writes a model, ``GTRGAMMAX`` or ``PROTGAMMAILGF``: what the last letter means."""
_RAXML_SIMPLER = {"--JC69": "JC", "--K80": "K80", "--HKY85": "HKY"}
"""RAxML's options that make its GTR a simpler model; the first two have equal frequencies."""


def family_of(alphabet: Alphabet) -> Family | None:
    """The family of the models for an alphabet; None for nucleotides and proteins."""
    return next((family for family in FAMILIES if family.names_of(alphabet)), None)


def default_model_name(alphabet: Alphabet) -> str:
    """The model of a run that names none: GTR+FC+G4 for nucleotides, LG+G4 for proteins."""
    family = family_of(alphabet)
    if family is not None:
        return family.default_of(alphabet)
    return "GTR+FC+G4" if alphabet.name == "DNA" else "LG+G4"


def known_models(alphabet: Alphabet) -> list[str]:
    """The names of the models for a kind of data."""
    family = family_of(alphabet)
    if family is not None:
        return family.names_of(alphabet)
    proteins = [*PROTEIN_MODELS, POISSON, *PAIRED, PROTEIN_GTR]
    return [*DNA_MODELS] if alphabet.name == "DNA" else proteins


def unknown_name(name: str, alphabet: Alphabet) -> ModelError:
    """What is said about a name, in capitals, that no model has."""
    if name in _CHOICES:
        return ModelError(
            f"{name} is no model", hint="to have one chosen for the data, write --model auto"
        )
    if name in _MIXTURES:
        return ModelError(f"{name} is a mixture of models, which is not supported yet")
    here = from_raxml(name)
    if here is not None:
        return ModelError(f"unknown model {name!r}", hint=f"RAxML's {name} is --model {here} here")
    known = known_models(alphabet)
    if "CAT" in name:
        raxmls = "RAxML's CAT, a rate a site, is +PSR behind a model's name, as in GTR+PSR"
        return ModelError(f"unknown model {name!r}", hint=raxmls)
    by_capitals = {entry.upper(): entry for entry in known}
    alias = _alias(name)
    close = difflib.get_close_matches(name, by_capitals, n=1, cutoff=0.0)
    is_for_these = alias in known or (_CLASSES.fullmatch(name) and alphabet.name == "DNA")
    nearest = alias if is_for_these else by_capitals[close[0]]
    return ModelError(
        f"unknown model {name!r}; the nearest known is {nearest}",
        hint=f"known {alphabet.name} models: {', '.join(known)}",
    )


def _alias(name: str) -> str | None:
    """Our name for one in capitals that other programs have."""
    return f"DNA{name}" if _CLASSES.fullmatch(name) else _ALIASES.get(name)


def from_raxml(name: str, options: Mapping[str, str] | None = None) -> str | None:
    """The model that RAxML 8 computes under a name, in our words; None where there is none.

    options  those of its command line that change the model, with their values
    """
    match, told = _RAXML.fullmatch(name.upper()), options or {}
    if match is None:
        return None
    ascertained, kind, rates, invariable, rest = match.groups()
    base = _raxml_protein(rest) if kind == "PROT" else _raxml_characters(kind, rest, told)
    if base in (None, "auto", "LG4X"):  # LG4X has free rates
        return base
    varies = "+G4a" if "-u" in told else "+G4"
    if rates == "CAT":
        if invariable:
            return None
        varies = "" if "-V" in told else f"+PSR{told.get('-c', '')}"
    correction = told.get("--asc-corr", "lewis" if ascertained else "")
    if correction not in ("", "lewis") or (correction and "PSR" in varies):
        return None
    assert base is not None
    return base + ("+I" if invariable else "") + varies + ("+ASC_LEWIS" if ascertained else "")


def _raxml_characters(kind: str, rest: str, told: Mapping[str, str]) -> str | None:
    """RAxML's model of nucleotides or characters, whose frequencies are counted or estimated."""
    term = {"": "+FC", "X": "+FO"}.get(rest)
    simpler = next((model for option, model in _RAXML_SIMPLER.items() if option in told), kind)
    if kind == "MULTI":
        simpler = told.get("-K", "GTR").upper()
        if simpler not in ("GTR", "MK", "ORDERED"):
            return None
        if simpler != "GTR" and term == "+FC":
            return simpler  # equal ones
    if term is None or simpler in ("JC", "K80"):
        return None if term is None else simpler
    return simpler + term


def _raxml_protein(rest: str) -> str | None:
    """RAxML's model of proteins, with its frequencies; those of its GTR are counted."""
    if rest == "AUTO":
        return "auto"
    for ending, term in _RAXML_FREQUENCIES.items():
        matrix = rest.removesuffix(ending)
        matrix = PROTEIN_GTR if matrix == "GTR" else _ALIASES.get(matrix, matrix)
        if rest.endswith(ending) and matrix in (*PROTEIN_MODELS, *PAIRED, PROTEIN_GTR):
            return matrix + (term or ("+FC" if matrix == PROTEIN_GTR else ""))
    return None


def from_phyml(name: str, options: Mapping[str, str] | None = None) -> str | None:
    """The model that PhyML computes under a name, in our words; None where there is none.

    options  those of its command line that change the model, with their values
    """
    told = options or {}
    is_protein = told.get("-d", "nt") == "aa"
    upper = name.upper() or ("LG" if is_protein else "HKY85")
    word = told.get("-f", "e")
    terms = {"e": "+FC", "o": "+FO", "m": "" if is_protein else "+FO"}
    term = terms.get(word, f"+FU{{{word.replace(',', '/')}}}")
    if is_protein:
        matrix = _ALIASES.get(upper, upper)
        return matrix + term + _phyml_rates(told) if matrix in PROTEIN_MODELS else None
    base = _phyml_nucleotides(upper, term, told.get("-t", "e"))
    return None if base is None else base + _phyml_rates(told)


def _phyml_nucleotides(upper: str, term: str, ratio: str) -> str | None:
    """PhyML's model of nucleotides, in which K80 and JC69 have equal frequencies."""
    known = {"F84": "HKY", "JC69": "JC", "HKY85": "HKY", "K80": "K80", "F81": "F81"}
    base = known.get(upper, upper if upper in ("TN93", "GTR") else "")
    if _CLASSES.fullmatch(upper):
        base = f"DNA{upper}"
    if not base:
        return None
    if ratio != "e" and upper in ("HKY85", "K80"):
        base += f"{{{ratio}}}"
    elif ratio != "e" and upper in ("F84", "TN93"):
        return None  # another ratio
    return base if upper in ("JC69", "K80") else base + term


def _phyml_rates(told: Mapping[str, str]) -> str:
    """PhyML's rates among sites: four categories of a gamma distribution unless told otherwise."""
    count, alpha, share = told.get("-c", "4"), told.get("-a", "e"), told.get("-v", "0")
    form = "" if count == "1" else f"+G{count}" + ("" if alpha == "e" else f"{{{alpha}}}")
    if "--use_median" in told and form:
        form = form.replace(f"+G{count}", f"+G{count}a")
    if "--freerates" in told and count != "1":
        form = f"+R{count}"
    invariable = "+I" if share == "e" else "" if not share.strip("0.") else f"+I{{{share}}}"
    return invariable + form


def in_iq_tree(text: str) -> str:
    """A model without values as IQ-TREE writes it: ``TIM2uf+FC+I+G4`` is ``TIM2+F+I+G4``.

    IQ-TREE has other frequencies under other names: ``K80+FC`` is its ``HKY+F``.
    """
    name, *terms = text.split("+")
    name = _GENETIC_CODE.sub("", name)
    if name in DNA_MODELS:
        own = DNA_MODELS[name]
        told = next((term for term in terms if term[:1] == "F"), None)
        if told is None and own.free_frequencies:
            terms.insert(0, "FO")
        elif told is None and _IN_IQ_TREE.get(name, name).upper() not in _EQUAL:
            terms.insert(0, "FE")
        elif told not in (None, "FE") and not own.free_frequencies:
            name = next(
                other.name
                for other in DNA_MODELS.values()
                if other.free_frequencies and other.rate_classes == own.rate_classes
            )
    name = "GTR2" if name == "BIN" else name
    return "+".join([_IN_IQ_TREE.get(name, name), *(_TERMS_IN_IQ_TREE.get(t, t) for t in terms)])


def from_iq_tree(text: str, datatype: str | None = None) -> str:
    """The model that IQ-TREE computes under a string of its own, in our words.

    Frequencies that it counts without being told are +FC, and where it has equal ones whatever is
    told no term stays. A name that it has not, TIM2uf, is what it is here.

    datatype  IQ-TREE's word for it, or ours: GTR of characters has equal frequencies
    """
    try:
        head, *terms = outside_braces(text, "+")
    except ModelError:
        return text  # whoever parses the model says what is wrong
    name, brace, values = head.partition("{")
    upper = name.strip().upper()
    if upper == "MIX" and brace:
        head = f"{name}{{{','.join(_classes_of_iq_tree(values.rpartition('}')[0]))}}}"
        upper = ""
    base, default = _base_of_iq_tree(upper, (datatype or "").upper())
    told = [term for term in terms if _FREQUENCIES_OF_IQ_TREE.fullmatch(term)]
    others = [_free_rates(term) for term in terms if term not in told]
    if upper in _EQUAL or upper == "JC2":
        told = []
    told = [term for term in map(_frequencies, told) if term or base in DNA_MODELS]
    told = [term or "FE" for term in told]
    is_mixed = any(term.partition("{")[0].upper() in PROFILES for term in others) or any(
        term.upper().startswith("FMIX") for term in others
    )
    if default and not told and not is_mixed:
        told = [default]
    return "+".join([base + brace + values if base else head, *told, *others])


def heeds_frequencies(text: str) -> bool:
    """True if IQ-TREE heeds a model's term of frequencies: in K80+F it does not."""
    name, *terms = text.upper().split("+")
    told = [term for term in terms if _FREQUENCIES_OF_IQ_TREE.fullmatch(term)]
    return all(term == "FQ" for term in told) or name.partition("{")[0] not in (*_EQUAL, "JC2")


def _base_of_iq_tree(upper: str, datatype: str) -> tuple[str, str]:
    """Our name for IQ-TREE's, in capitals, and the term that it has without being told.

    Nothing of the name where both have the same, or IQ-TREE has none.
    """
    if upper == "GTR" and datatype.startswith(("MORPH", "MULTI")):
        upper = "GTRX"
    special = {"GTRX": ("GTR", "FE"), "JC2": ("BIN", "FE"), GTR20: (GTR20, "FC")}
    counted = {**_COUNTED, upper: f"DNA{upper}"} if _CLASSES.fullmatch(upper) else _COUNTED
    if upper in special or upper in counted:
        return special.get(upper) or (counted[upper], "FC")
    known = {one.upper() for one in (*DNA_MODELS, *PROTEIN_MODELS, PROTEIN_GTR)}
    aliases = {} if upper in known else _ALIASES
    return _EQUAL.get(upper, aliases.get(upper, "")), ""


def _classes_of_iq_tree(inside: str) -> list[str]:
    """The classes of MIX{...}: a model each, with its rate and weight behind colons."""
    classes = []
    for text in outside_braces(inside, ","):
        model, *numbers = outside_braces(text, ":")
        classes.append(":".join([from_iq_tree(model), *numbers]))
    return classes


def _frequencies(term: str) -> str:
    """A term of frequencies in our words; nothing for +FU, IQ-TREE's for the model's own."""
    return {"FQ": "FE", "FU": ""}.get(term.upper(), term)


def _free_rates(term: str) -> str:
    """``R2{0.3,0.5,0.7,1.2}``, weight and rate in turn, as ``R2{0.5/1.2}{0.3/0.7}``."""
    match = _FREE_RATES.fullmatch(term)
    values = [] if match is None else re.split(r"[,/]", match[2])
    if match is None or len(values) != 2 * int(match[1] or 4):
        return term
    return f"R{match[1]}{{{'/'.join(values[1::2])}}}{{{'/'.join(values[::2])}}}"


_GAMMA = re.compile(r"\+G([0-9]*)(?=[+{]|$)")


def _from_iq_tree_line(name: str, told: Mapping[str, str]) -> str:
    """IQ-TREE's model, given the options that change it."""
    ours = from_iq_tree(name, told.get("-st") or told.get("--seqtype"))
    if "-gmedian" not in told:
        return ours
    return _GAMMA.sub(lambda found: f"+G{found[1] or 4}a", ours)


ELSEWHERE: Mapping[str, Callable[[str, Mapping[str, str]], str | None]] = {
    "IQ-TREE": _from_iq_tree_line,
    "RAxML": from_raxml,
    "PhyML": from_phyml,
}
"""By program: what its model is called here, given the options that change it."""


def from_elsewhere(program: str, name: str, options: Mapping[str, str]) -> str | None:
    """Another program's model in our words; None where there is none."""
    return ELSEWHERE[program](name, options)
