"""Numerical optimisation: of model parameters, and of model and branch lengths by turns."""
