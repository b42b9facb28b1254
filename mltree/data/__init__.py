"""Alignments: read, check, compress into patterns.

source        files as text: compressed, piped, of any line ending
formats       FASTA, PHYLIP, Clustal, Stockholm; dots; writing
nexus         NEXUS commands and data blocks
alignments    sequences of any format or from memory, and alignments of one data type
alphabet      states, codes and characters; genotypes and multistate characters
codons        genetic codes, and codons as states
datatype      detection of the data type
patterns      distinct columns and their weights; sites left out; replicate slots; site frequencies
parts         partition files of RAxML, RAxML-NG and NEXUS; schemes of parts
partitions    alignments in parts, loci side by side, merging of parts
checks        facts about an alignment
"""
