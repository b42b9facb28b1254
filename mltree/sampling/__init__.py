"""Bayesian sampling of trees: priors, chains on devices, tempering, and what samples tell."""
