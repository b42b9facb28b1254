"""Analyses: a function of options each, which shows and writes the result."""
