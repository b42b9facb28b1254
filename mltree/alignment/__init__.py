"""Alignments: read, check, compress into patterns."""

from mltree.alignment.alphabet import DNA, PROTEIN, Alphabet
from mltree.alignment.formats import Alignment, read_alignment
from mltree.alignment.patterns import Patterns, compress

__all__ = ["DNA", "PROTEIN", "Alignment", "Alphabet", "Patterns", "compress", "read_alignment"]
