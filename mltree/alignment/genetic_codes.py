"""The genetic codes of NCBI, by number and by name.

https://www.ncbi.nlm.nih.gov/Taxonomy/Utils/wprintgc.cgi; each is the standard code but for some
codons. Where a codon may be either (27, 28, 31), it stands for the amino acid.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import product
from typing import NamedTuple

from mltree.errors import InputError

__all__ = ["GENETIC_CODES", "STANDARD", "STOP", "GeneticCode", "genetic_code"]

STOP = "*"
"""What stands for no amino acid."""


class GeneticCode(NamedTuple):
    """What codons mean."""

    number: int
    """NCBI's."""
    name: str
    amino_acids: Mapping[str, str]
    """The amino acid of each of the 64 codons, or `STOP`; codons in the order AAA, AAC, ... TTT."""

    @property
    def codons(self) -> tuple[str, ...]:
        """Those that are no stop codons, in their order."""
        return tuple(codon for codon, acid in self.amino_acids.items() if acid != STOP)


_BASES = "TCAG"
_STANDARD = dict(
    zip(
        map("".join, product(_BASES, repeat=3)),
        "FFLLSSSSYY**CC*WLLLLPPPPHHQQRRRRIIIMTTTTNNKKSSRRVVVVAAAADDEEGGGG",
        strict=True,
    )
)


def _code(number: int, name: str, changes: str = "") -> GeneticCode:
    """The standard code with changes such as ``TGA=W``."""
    own = _STANDARD | dict(change.split("=") for change in changes.split())
    return GeneticCode(number, name, dict(sorted(own.items())))


STANDARD = _code(1, "standard")

GENETIC_CODES = {
    code.number: code
    for code in (
        STANDARD,
        _code(2, "vertebrate mitochondrial", "AGA=* AGG=* ATA=M TGA=W"),
        _code(3, "yeast mitochondrial", "ATA=M CTA=T CTC=T CTG=T CTT=T TGA=W"),
        _code(4, "mold mitochondrial", "TGA=W"),
        _code(5, "invertebrate mitochondrial", "AGA=S AGG=S ATA=M TGA=W"),
        _code(6, "ciliate nuclear", "TAA=Q TAG=Q"),
        _code(9, "echinoderm mitochondrial", "AAA=N AGA=S AGG=S TGA=W"),
        _code(10, "euplotid nuclear", "TGA=C"),
        _code(11, "bacterial"),
        _code(12, "alternative yeast nuclear", "CTG=S"),
        _code(13, "ascidian mitochondrial", "AGA=G AGG=G ATA=M TGA=W"),
        _code(14, "alternative flatworm mitochondrial", "AAA=N AGA=S AGG=S TAA=Y TGA=W"),
        _code(15, "blepharisma nuclear", "TAG=Q"),
        _code(16, "chlorophycean mitochondrial", "TAG=L"),
        _code(21, "trematode mitochondrial", "AAA=N AGA=S AGG=S ATA=M TGA=W"),
        _code(22, "scenedesmus mitochondrial", "TAG=L TCA=*"),
        _code(23, "thraustochytrium mitochondrial", "TTA=*"),
        _code(24, "pterobranchia mitochondrial", "AGA=S AGG=K TGA=W"),
        _code(25, "gracilibacteria", "TGA=G"),
        _code(26, "pachysolen nuclear", "CTG=A"),
        _code(27, "karyorelict nuclear", "TAA=Q TAG=Q TGA=W"),
        _code(28, "condylostoma nuclear", "TAA=Q TAG=Q TGA=W"),
        _code(29, "mesodinium nuclear", "TAA=Y TAG=Y"),
        _code(30, "peritrich nuclear", "TAA=E TAG=E"),
        _code(31, "blastocrithidia nuclear", "TAA=E TAG=E TGA=W"),
        _code(32, "balanophoraceae plastid", "TAG=W"),
        _code(33, "cephalodiscidae mitochondrial", "AGA=S AGG=K TAA=Y TGA=W"),
    )
}
"""By their numbers; 7, 8 and 17 to 20 are not in use."""

_BLANKS = re.compile(r"[ _-]+")


def genetic_code(text: str) -> GeneticCode:
    """The code of a number, or of a name or the beginning of just one name; "" is the standard.

    Raises: InputError where there is none, or several begin so.
    """
    word = _BLANKS.sub(" ", text.strip().lower())
    if not word:
        return STANDARD
    if word.isdecimal():
        found = [GENETIC_CODES[int(word)]] if int(word[:9]) in GENETIC_CODES else []
    else:
        found = [code for code in GENETIC_CODES.values() if code.name.startswith(word)]
        found = [code for code in found if code.name == word] or found
    if len(found) == 1:
        return found[0]
    raise InputError(
        f"{text!r} is no genetic code" if not found else f"several genetic codes begin {text!r}",
        hint="NCBI's, by number or name: "
        + ", ".join(f"{code.number} {code.name}" for code in found or GENETIC_CODES.values()),
    )
