"""Alignments: read, check, compress into patterns."""
