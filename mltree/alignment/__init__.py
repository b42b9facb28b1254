"""Alignments: read, check, compress into patterns."""

from mltree.alignment.alphabet import DNA, PROTEIN, Alphabet
from mltree.alignment.formats import Alignment, read_alignment
from mltree.alignment.partition_files import read_partitions
from mltree.alignment.partitions import Partitioned, read_partitioned
from mltree.alignment.patterns import Patterns, compress

__all__ = [
    "DNA",
    "PROTEIN",
    "Alignment",
    "Alphabet",
    "Partitioned",
    "Patterns",
    "compress",
    "read_alignment",
    "read_partitioned",
    "read_partitions",
]
