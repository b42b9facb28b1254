"""Names of models, in mltree and in other programs."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from mltree.models.empirical import PROTEIN_MODELS
from mltree.models.families import EMPIRICAL, FAMILIES, Family
from mltree.models.substitution import DNA_MODELS, PAIRED, PROFILES, Mixed, Model
from mltree.system.errors import ModelError
from mltree.system.values import decimal

if TYPE_CHECKING:
    from mltree.data.alphabet import Alphabet


# Classes in the braces of MIX{...} and FMIX{...}, as IQ-TREE writes them: a model or frequencies,
# and optionally relative rate and weight: ``MIX{LG:1:0.4,WAG:1:0.6}``. Weights are estimated where
# the string has none.


def outside_braces(text: str, separator: str) -> list[str]:
    """Split a text at separators outside braces.

    Raises: ModelError where a brace is not closed.
    """
    parts, depth = [""], 0
    for character in text:
        if character == separator and depth == 0:
            parts.append("")
            continue
        depth += (character in "{[") - (character in "}]")
        parts[-1] += character
    if depth != 0:
        raise ModelError(f"model {text.strip()!r}: a brace is not closed")
    return [piece.strip() for piece in parts]


def mixed(name: str, inside: str, read: Callable[[str], Model]) -> Mixed:
    """The mixture of the classes in the braces behind MIX or FMIX; ``read`` parses a class.

    Raises: ModelError naming the class that is wrong.
    """
    texts = [outside_braces(text, ":") for text in outside_braces(inside, ",")]
    if len(texts) < 2:
        raise ModelError(
            f"{name}{{{inside}}}: expected two or more classes",
            hint="commas separate them: MIX{LG,WAG}, or LG+FMIX{FO,FE}",
        )
    if any(len(text) not in (1, 3) for text in texts) or len({len(text) for text in texts}) > 1:
        raise ModelError(
            f"{name}{{{inside}}}: all classes have a rate and a weight, or none",
            hint="behind colons: MIX{LG:1:0.4,WAG:1:0.6}",
        )
    rates_and_weights = np.array([[_number(value, name) for value in text[1:]] for text in texts])
    models = tuple(read(text[0]) for text in texts)
    count, is_given = len(models), rates_and_weights.size > 0
    speeds = rates_and_weights[:, 0] if is_given else np.ones(count)
    mixture = Mixed(
        name=name,
        weights=np.full(count, 1.0 / count),
        weights_fixed=is_given,
        models=models,
        speeds=speeds,
        is_linked=name == "FMIX",
    )
    mixture = mixture.with_weights(rates_and_weights[:, 1]) if is_given else mixture
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


PROTEIN_GTR = "PROTGTR"
"""Name of the protein model with all exchangeabilities estimated, or read from a user's file."""

GTR20 = "GTR20"
"""IQ-TREE's name of the same model, read too: mixtures of it, GTR20+C60, have no other."""

POISSON = "POISSON"
"""Name of the protein model with equal exchangeabilities and frequencies."""

_IN_IQ_TREE = {
    "BIN": "GTR2", "K80": "K2P", "TN93ef": "TNe", "TN93": "TN", "K81": "K3P", "K81uf": "K3Pu",
    "TPM2uf": "TPM2u", "TPM3uf": "TPM3u", "TIM1": "TIMe", "TIM1uf": "TIM", "TIM2": "TIM2e",
    "TIM2uf": "TIM2", "TIM3": "TIM3e", "TIM3uf": "TIM3", "TVMef": "TVMe", PROTEIN_GTR: "GTR20",
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
"""IQ-TREE's names, in capitals, of models whose frequencies are counted without a term for them."""

_EQUAL = {
    "JC": "JC", "JC69": "JC", "K80": "K80", "K2P": "K80", "TNE": "TN93ef", "TRNEF": "TN93ef",
    "K81": "K81", "K3P": "K81", "TPM1": "K81", "TIME": "TIM1",
    **{f"TIM{n}{end}": f"TIM{n}" for n in (1, 2, 3) for end in ("E", "EF")},
    "TVME": "TVMef", "TVMEF": "TVMef", "SYM": "SYM",
}  # fmt: skip
_EQUALS = {*_EQUAL, "JC2"}
"""IQ-TREE's models with equal frequencies, which no term changes."""

_OURS = {name.upper() for name in DNA_MODELS}
_ALIASES = {
    **{name: ours for name, ours in (_COUNTED | _EQUAL).items() if name not in _OURS},
    **{f"TIM{n}U": f"TIM{n}uf" for n in (1, 2, 3)},
    "TPM2EF": "TPM2", "TPM3EF": "TPM3", "TIMEF": "TIM1", "F84": "HKY",
    GTR20: PROTEIN_GTR, "PROTREV": PROTEIN_GTR, "JTTDCMUT": "JTT-DCMUT", "DAYHOFFDCMUT": "DCMUT",
    "DAYHOFF-DCMUT": "DCMUT", "MTREV24": "MTREV", "CPREV10": "CPREV", "BLOSUM": "BLOSUM62",
    "GTR2": "BIN", "JC2": "BIN", "BINARY": "BIN", "MG94": "MG",
    **dict.fromkeys(("GY94", "M0", "YN98"), "GY"),
    **dict.fromkeys(("ECM", "KOSI07", "ECMUNREST"), EMPIRICAL),
}  # fmt: skip
"""Names that other programs use, in capitals: for the hint of an error, and in NEXUS files."""

_CLASSES = re.compile(r"[0-9]{6}")
"""IQ-TREE's name of any nucleotide model, ``010020``."""

_GENETIC_CODE = re.compile(r"^CODON[0-9]+_")
_FREQUENCIES_OF_IQ_TREE = re.compile(r"F(Q|U|C|O|1X4|3X4C?)?([{\[].*)?", re.IGNORECASE | re.DOTALL)
_FREE_RATES = re.compile(r"R([0-9]{0,2})\{([^{}]*)\}", re.IGNORECASE)
"""IQ-TREE's +R4{weight,rate,...}: one pair of braces."""

_CHOICES = {"MFP", "MF", "TEST", "TESTONLY", "TESTNEW", "TESTNEWONLY", "TESTMERGE", "AUTO"}
"""Words by which other programs choose a model."""

_MIXTURES = {"EX2", "EX3", "EHO", "UL2", "UL3", "EX_EHO", "CF4", "JTTCF4G"}

_RAXML = re.compile(r"(ASC_)?(GTR|BIN|MULTI|PROT)(GAMMA|CAT)(I?)(\w*)")
_RAXML_FREQUENCIES = {"": "", "F": "+FC", "X": "+FO"}
"""Frequency terms for the last letter of RAxML 8's models, ``GTRGAMMAX`` or ``PROTGAMMAILGF``."""
_RAXML_SIMPLER = {"--JC69": "JC", "--K80": "K80", "--HKY85": "HKY"}
"""RAxML's options that make its GTR a simpler model; JC69 and K80 have equal frequencies."""


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
    """Names of the models for a kind of data."""
    family = family_of(alphabet)
    if family is not None:
        return family.names_of(alphabet)
    proteins = [*PROTEIN_MODELS, POISSON, *PAIRED, PROTEIN_GTR]
    return [*DNA_MODELS] if alphabet.name == "DNA" else proteins


def unknown_name(name: str, alphabet: Alphabet) -> ModelError:
    """The error for a name, in capitals, that no model has."""
    if name in _CHOICES:
        return ModelError(
            f"{name} is not a model", hint="to have one chosen for the data, write --model auto"
        )
    if name in _MIXTURES:
        return ModelError(f"{name} is a mixture of models, which is not supported yet")
    here = _from_raxml(name, {})
    if here is not None:
        return ModelError(f"unknown model {name!r}", hint=f"RAxML's {name} is --model {here} here")
    known = known_models(alphabet)
    if "CAT" in name:
        raxmls = "RAxML's CAT, a rate a site, is +PSR behind a model's name, as in GTR+PSR"
        return ModelError(f"unknown model {name!r}", hint=raxmls)
    by_capitals = {entry.upper(): entry for entry in known}
    alias = f"DNA{name}" if _CLASSES.fullmatch(name) else _ALIASES.get(name)
    close = difflib.get_close_matches(name, by_capitals, n=1, cutoff=0.0)
    is_for_these = alias in known or (_CLASSES.fullmatch(name) and alphabet.name == "DNA")
    nearest = alias if is_for_these else by_capitals[close[0]]
    return ModelError(
        f"unknown model {name!r}; the nearest known is {nearest}",
        hint=f"known {alphabet.name} models: {', '.join(known)}",
    )


def _from_raxml(name: str, options: Mapping[str, str]) -> str | None:
    match = _RAXML.fullmatch(name.upper())
    if match is None:
        return None
    ascertained, kind, rates, invariable, rest = match.groups()
    base = _raxml_protein(rest) if kind == "PROT" else _raxml_characters(kind, rest, options)
    if base == "auto" and ascertained:
        return "auto+ASC"
    if base in (None, "auto", "LG4X"):  # LG4X has free rates
        return base
    varies = "+G4a" if "-u" in options else "+G4"
    if rates == "CAT":
        if invariable:
            return None
        varies = "" if "-V" in options else f"+PSR{options.get('-c', '')}"
    correction = options.get("--asc-corr", "lewis" if ascertained else "")
    if correction not in ("", "lewis") or (correction and "PSR" in varies):
        return None
    assert base is not None
    return base + ("+I" if invariable else "") + varies + ("+ASC_LEWIS" if ascertained else "")


def _raxml_characters(kind: str, rest: str, options: Mapping[str, str]) -> str | None:
    """RAxML's model of nucleotides or characters, with its frequency term."""
    term = {"": "+FC", "X": "+FO"}.get(rest)
    simpler = next((model for option, model in _RAXML_SIMPLER.items() if option in options), kind)
    if kind == "MULTI":
        simpler = options.get("-K", "GTR").upper()
        if simpler not in ("GTR", "MK", "ORDERED"):
            return None
        if simpler != "GTR" and term == "+FC":
            return simpler  # equal ones
    if term is None or simpler in ("JC", "K80"):
        return None if term is None else simpler
    return simpler + term


def _raxml_protein(rest: str) -> str | None:
    """RAxML's model of proteins, with its frequency term; GTR's are counted."""
    if rest == "AUTO":
        return "auto"
    for ending, term in _RAXML_FREQUENCIES.items():
        matrix = rest.removesuffix(ending)
        matrix = PROTEIN_GTR if matrix == "GTR" else _ALIASES.get(matrix, matrix)
        if rest.endswith(ending) and matrix in (*PROTEIN_MODELS, *PAIRED, PROTEIN_GTR):
            return matrix + (term or ("+FC" if matrix == PROTEIN_GTR else ""))
    return None


def _from_phyml(name: str, options: Mapping[str, str]) -> str | None:
    is_protein = options.get("-d", "nt") == "aa"
    upper = name.upper() or ("LG" if is_protein else "HKY85")
    word = options.get("-f", "e")
    terms = {"e": "+FC", "o": "+FO", "m": "" if is_protein else "+FO"}
    term = terms.get(word, f"+FU{{{word.replace(',', '/')}}}")
    if is_protein:
        matrix = _ALIASES.get(upper, upper)
        return matrix + term + _phyml_rates(options) if matrix in PROTEIN_MODELS else None
    base = _phyml_nucleotides(upper, term, options.get("-t", "e"))
    return None if base is None else base + _phyml_rates(options)


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


def _phyml_rates(options: Mapping[str, str]) -> str:
    """PhyML's rates among sites: four gamma categories by default."""
    count, alpha, share = options.get("-c", "4"), options.get("-a", "e"), options.get("-v", "0")
    form = "" if count == "1" else f"+G{count}" + ("" if alpha == "e" else f"{{{alpha}}}")
    if "--use_median" in options and form:
        form = form.replace(f"+G{count}", f"+G{count}a")
    if "--freerates" in options and count != "1":
        form = f"+R{count}"
    invariable = "+I" if share == "e" else "" if not share.strip("0.") else f"+I{{{share}}}"
    return invariable + form


def in_iq_tree(text: str) -> str:
    """IQ-TREE's name for a model without values: ``TIM2uf+FC+I+G4`` is ``TIM2+F+I+G4``.

    IQ-TREE has other frequencies under other names: ``K80+FC`` is its ``HKY+F``.
    """
    name, *terms = text.split("+")
    name = _GENETIC_CODE.sub("", name)
    if name in DNA_MODELS:
        known = DNA_MODELS[name]
        frequency_term = next((term for term in terms if term[:1] == "F"), None)
        if frequency_term is None and known.free_frequencies:
            terms.insert(0, "FO")
        elif frequency_term is None and _IN_IQ_TREE.get(name, name).upper() not in _EQUAL:
            terms.insert(0, "FE")
        elif frequency_term not in (None, "FE") and not known.free_frequencies:
            name = next(
                other.name
                for other in DNA_MODELS.values()
                if other.free_frequencies and other.rate_classes == known.rate_classes
            )
    return "+".join([_IN_IQ_TREE.get(name, name), *(_TERMS_IN_IQ_TREE.get(t, t) for t in terms)])


def from_iq_tree(text: str, datatype: str | None = None) -> str:
    """Our name for a model of IQ-TREE.

    Frequencies that IQ-TREE counts without a term get +FC; where it ignores a term, the term goes.
    A name that IQ-TREE does not have, TIM2uf, stays.

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
    frequency_terms = [term for term in terms if _FREQUENCIES_OF_IQ_TREE.fullmatch(term)]
    others = [_free_rates(term) for term in terms if term not in frequency_terms]
    if upper in _EQUALS:
        frequency_terms = []
    # +FU is IQ-TREE's for the model's frequencies.
    ours = {"FQ": "FE", "FU": "FE" if base in DNA_MODELS else ""}
    frequency_terms = [name for term in frequency_terms if (name := ours.get(term.upper(), term))]
    is_mixed = any(term.partition("{")[0].upper() in (*PROFILES, "FMIX") for term in others)
    if default and not frequency_terms and not is_mixed:
        frequency_terms = [default]
    return "+".join([base + brace + values if base else head, *frequency_terms, *others])


def heeds_frequencies(text: str) -> bool:
    """True where IQ-TREE heeds a model's frequency term; in K80+F it does not."""
    name, *terms = text.upper().split("+")
    frequency_terms = [term for term in terms if _FREQUENCIES_OF_IQ_TREE.fullmatch(term)]
    return all(term == "FQ" for term in frequency_terms) or name.partition("{")[0] not in _EQUALS


def _base_of_iq_tree(upper: str, datatype: str) -> tuple[str, str]:
    """Our name for IQ-TREE's, in capitals, and the term that IQ-TREE has by default.

    The name is empty where both programs use the same, or IQ-TREE has no such model.
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


def _free_rates(term: str) -> str:
    """``R2{0.3,0.5,0.7,1.2}``, weight and rate in turn, as ``R2{0.5/1.2}{0.3/0.7}``."""
    match = _FREE_RATES.fullmatch(term)
    values = [] if match is None else re.split(r"[,/]", match[2])
    if match is None or len(values) != 2 * int(match[1] or 4):
        return term
    return f"R{match[1]}{{{'/'.join(values[1::2])}}}{{{'/'.join(values[::2])}}}"


_GAMMA = re.compile(r"\+G([0-9]*)(?=[+{]|$)")


def from_elsewhere(program: str, name: str, options: Mapping[str, str]) -> str | None:
    """Our name for a model of IQ-TREE, RAxML or PhyML; None where there is none.

    options  those of the program's command line that change the model, with their values
    """
    if program != "IQ-TREE":
        return {"RAxML": _from_raxml, "PhyML": _from_phyml}[program](name, options)
    ours = from_iq_tree(name, options.get("-st") or options.get("--seqtype"))
    return _GAMMA.sub(lambda match: f"+G{match[1] or 4}a", ours) if "-gmedian" in options else ours
