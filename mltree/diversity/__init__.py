"""Diversity of communities: tables of counts, branches of a tree below samples, UniFrac."""
