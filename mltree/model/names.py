"""What models are called: here, and elsewhere."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Protocol

from mltree.errors import ModelError
from mltree.model import codon_models, genotypes, morphology
from mltree.model.empirical import PROTEIN_MODELS
from mltree.model.mixtures import PAIRED
from mltree.model.substitution import DNA_MODELS, Model

if TYPE_CHECKING:
    from mltree.alignment.alphabet import Alphabet

__all__ = [
    "FAMILIES",
    "POISSON",
    "PROTEIN_GTR",
    "default_model_name",
    "family_of",
    "from_iq_tree",
    "in_iq_tree",
    "known_models",
    "unknown_name",
]


class Family(Protocol):
    """The models of a kind of characters: a module that is one of :data:`FAMILIES`."""

    def data_of(self, name: str, /) -> str | None:
        """The data type that a model's name in capitals is for; None where it is none of these."""

    def names_of(self, alphabet: Alphabet, /) -> list[str]:
        """The names of the models for an alphabet, the simplest first; none for other data."""

    def model_of(self, name: str, alphabet: Alphabet, /) -> Model | None:
        """The model of a name in capitals, nothing fixed; None where there is none for the data."""

    def default_of(self, alphabet: Alphabet, /) -> str:
        """The model of a run that names none."""

    def matrices(self, alphabet: Alphabet, /) -> list[str]:
        """What to choose from, each with its frequencies, the reference first."""


FAMILIES: tuple[Family, ...] = (morphology, codon_models, genotypes)
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
    **dict.fromkeys(("ECM", "KOSI07", "ECMUNREST"), codon_models.EMPIRICAL),
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
_CLASSES = re.compile(r"[0-9]{6}")
"""IQ-TREE's own models of nucleotides, ``010020``."""

_GENETIC_CODE = re.compile(r"^CODON[0-9]+_")
_FQ = re.compile(r"\+FQ(?=[+,:}]|$)", re.IGNORECASE)

_CHOICES = {"MFP", "MF", "TEST", "TESTONLY", "TESTNEW", "TESTNEWONLY", "TESTMERGE", "AUTO"}
"""What asks other programs to choose a model."""

_MIXTURES = {"EX2", "EX3", "EHO", "UL2", "UL3", "EX_EHO", "CF4", "JTTCF4G"}

_RAXML = re.compile(r"(?:(GTR|BIN)|PROT)GAMMA(I?)(\w*)")
_RAXML_FREQUENCIES = {"": "", "F": "+FC", "X": "+FO"}
"""How RAxML 8 writes a model, ``GTRGAMMAX`` or ``PROTGAMMAILGF``: what the last letter means."""


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
    here = _from_raxml(name)
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


def _from_raxml(name: str) -> str | None:
    """RAxML 8's name of a model under Γ in our words; None where it is none."""
    match = _RAXML.fullmatch(name)
    if match is None:
        return None
    kind, invariable, rest = match.groups()
    rates = "+I+G4" if invariable else "+G4"
    if kind is not None:
        terms = {"": "+FC", "X": "+FO"}.get(rest)
        return None if terms is None else kind + terms + rates
    if rest == "AUTO":
        return "auto"
    for ending, term in _RAXML_FREQUENCIES.items():
        matrix = rest.removesuffix(ending)
        matrix = PROTEIN_GTR if matrix == "GTR" else _ALIASES.get(matrix, matrix)
        if rest.endswith(ending) and matrix in (*PROTEIN_MODELS, *PAIRED, PROTEIN_GTR):
            return matrix + term + rates
    return None


def in_iq_tree(text: str) -> str:
    """A model without values as IQ-TREE writes it: ``TIM2uf+FC+I+G4`` is ``TIM2+F+I+G4``."""
    name, *terms = text.split("+")
    name = _GENETIC_CODE.sub("", name)
    return "+".join([_IN_IQ_TREE.get(name, name), *(_TERMS_IN_IQ_TREE.get(t, t) for t in terms)])


def from_iq_tree(text: str) -> str:
    """A model's string with a name that only IQ-TREE has, and its +FQ, in our words.

    Names that both have stay, even TIM2, whose frequencies differ here unless a term tells them.
    """
    name, plus, rest = text.partition("+")
    bare, brace, values = name.partition("{")
    upper = bare.strip().upper()
    known = {one.upper() for one in (*DNA_MODELS, *PROTEIN_MODELS, PROTEIN_GTR)}
    alias = _alias(upper)
    if upper not in known and alias:
        name = alias + brace + values
    return name + plus + _FQ.sub("+FE", "+" + rest)[1:]
