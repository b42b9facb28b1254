"""What models are called: here, and elsewhere."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

from mltree.errors import ModelError
from mltree.model import morphology
from mltree.model.empirical import PROTEIN_MODELS
from mltree.model.mixtures import PAIRED
from mltree.model.substitution import DNA_MODELS

if TYPE_CHECKING:
    from mltree.alignment.alphabet import Alphabet

__all__ = [
    "POISSON",
    "PROTEIN_GTR",
    "default_model_name",
    "from_iq_tree",
    "in_iq_tree",
    "known_models",
    "unknown_name",
]

PROTEIN_GTR = "PROTGTR"
"""All exchangeabilities of amino acids estimated, or read from a user's file."""

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
    "GTR20": PROTEIN_GTR,
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
_FQ = re.compile(r"\+FQ(?=\+|$)", re.IGNORECASE)

_CHOICES = {"MFP", "MF", "TEST", "TESTONLY", "TESTNEW", "TESTNEWONLY", "TESTMERGE", "AUTO"}
"""What asks other programs to choose a model."""

_MIXTURES = {"MIX", "EX2", "EX3", "EHO", "UL2", "UL3", "EX_EHO", "CF4", "JTTCF4G"}


def default_model_name(alphabet: Alphabet) -> str:
    """The model of a run that names none: GTR+FC+G4 for nucleotides, LG+G4 for proteins."""
    usual = {"DNA": "GTR+FC+G4", "AA": "LG+G4", "BIN": "BIN+FC+G4"}
    return usual.get(alphabet.name) or f"{alphabet.name}_MK+G4"


def known_models(alphabet: Alphabet) -> list[str]:
    """The names of the models for a kind of data."""
    sequences = {"DNA": [*DNA_MODELS], "AA": [*PROTEIN_MODELS, POISSON, *PAIRED, PROTEIN_GTR]}
    return sequences.get(alphabet.name) or morphology.names_of(alphabet)


def unknown_name(name: str, alphabet: Alphabet) -> ModelError:
    """What is said about a name, in capitals, that no model has."""
    if name in _CHOICES:
        return ModelError(
            f"{name} is no model", hint="to have one chosen for the data, write --model auto"
        )
    if name in _MIXTURES:
        return ModelError(f"{name} is a mixture of models, which is not supported yet")
    known = known_models(alphabet)
    by_capitals = {entry.upper(): entry for entry in known}
    alias = _ALIASES.get(name)
    close = difflib.get_close_matches(name, by_capitals, n=1, cutoff=0.0)
    nearest = alias if alias in known else by_capitals[close[0]]
    return ModelError(
        f"unknown model {name!r}; the nearest known is {nearest}",
        hint=f"known {alphabet.name} models: {', '.join(known)}",
    )


def in_iq_tree(text: str) -> str:
    """A model without values as IQ-TREE writes it: ``TIM2uf+FC+I+G4`` is ``TIM2+F+I+G4``."""
    name, *terms = text.split("+")
    return "+".join([_IN_IQ_TREE.get(name, name), *(_TERMS_IN_IQ_TREE.get(t, t) for t in terms)])


def from_iq_tree(text: str) -> str:
    """A model's string with a name that only IQ-TREE has, and its +FQ, in our words.

    Names that both have stay, even TIM2, whose frequencies differ here unless a term tells them.
    """
    name, plus, rest = text.partition("+")
    bare, brace, values = name.partition("{")
    upper = bare.strip().upper()
    known = {one.upper() for one in (*DNA_MODELS, *PROTEIN_MODELS, PROTEIN_GTR)}
    if upper not in known and _ALIASES.get(upper):
        name = _ALIASES[upper] + brace + values
    return name + plus + _FQ.sub("+FE", "+" + rest)[1:]
