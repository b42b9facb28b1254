"""Substitution models: the grammar that names them, their values, their eigen systems."""
