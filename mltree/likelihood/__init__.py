"""Likelihoods of trees on an engine: scores, branch lengths, insertions, shared requests."""
