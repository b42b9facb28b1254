"""Substitution models: the grammar that names them, their values, their eigen systems."""

from mltree.model.eigen import ModelArrays, p_matrices
from mltree.model.grammar import format_best_model, format_model, parse_model
from mltree.model.names import default_model_name
from mltree.model.substitution import Model

__all__ = [
    "Model",
    "ModelArrays",
    "default_model_name",
    "format_best_model",
    "format_model",
    "p_matrices",
    "parse_model",
]
