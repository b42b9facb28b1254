"""Alignments: read, check, compress into patterns.

source            files as text: compressed, piped, of any line ending
formats           FASTA, PHYLIP, Clustal, Stockholm
nexus             NEXUS data blocks
alignments        sequences of any format, and alignments of one data type
alphabet          states, codes and characters; genotypes and multistate characters
codons            genetic codes, and codons as states
datatype          detection of the data type
patterns          distinct columns and their weights; sites left out; replicate slots
parts             parts of an alignment, and schemes of parts
partition_files   partition files of RAxML, RAxML-NG and NEXUS
partitions        alignments in parts, loci side by side, merging of parts
checks            facts about an alignment
site_frequencies  IQ-TREE's state frequencies of sites
writing           alignments in other formats
"""
