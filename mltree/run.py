"""A run, step by step: read the data, open an engine, search or evaluate, give back the result.

Nothing is printed here: progress goes out as events, results as values.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from mltree.alignment.alphabet import Alphabet
from mltree.alignment.formats import Alignment, read_alignment
from mltree.alignment.patterns import Patterns, compress
from mltree.engines import is_exact
from mltree.errors import InputError
from mltree.events import AlignmentLoaded, Emit, StoppedShort
from mltree.likelihood.api import Likelihood
from mltree.model.grammar import default_model_name, parse_model
from mltree.model.substitution import Model
from mltree.search.alternation import alternate
from mltree.search.driver import StartingTree, search
from mltree.search.model_optimiser import Fit, optimise_models, with_other_rates
from mltree.settings import PerturbationSettings, SearchSettings
from mltree.tree.topology import Tree

__all__ = ["Problem", "evaluate", "load_problem", "read_model"]


@dataclass(frozen=True)
class Problem:
    """The data and the model that a run starts from."""

    alignment: Alignment
    patterns: Patterns
    model: Model
    """Frequencies counted where the model asks for it."""


def load_problem(path: str, model: str | None, emit: Emit) -> Problem:
    """Read an alignment and the model for it.

    Raises:
        InputError: the alignment or the model file cannot be used.
        ModelError: the model string cannot be used.
    """
    alignment = read_alignment(path)
    patterns = compress(alignment)
    gaps = patterns.code_counts()[patterns.alphabet.gap_code]
    emit(
        AlignmentLoaded(
            path=path,
            layout=alignment.layout,
            data_type=alignment.alphabet.name,
            taxa=patterns.n_tips,
            sites=patterns.n_sites,
            patterns=patterns.n_patterns,
            gap_share=float(gaps / (patterns.n_tips * patterns.n_sites)),
        )
    )
    parsed = read_model(model, alignment.alphabet).with_empirical_frequencies(patterns)
    parsed.arrays()
    return Problem(alignment, patterns, parsed)


def read_model(text: str | None, alphabet: Alphabet) -> Model:
    """A model from its string, from a .bestModel file, or the default for the data.

    Raises:
        ModelError: the string cannot be used.
        InputError: the file cannot be used.
    """
    if text is None:
        return parse_model(default_model_name(alphabet), alphabet)
    file = Path(text)
    if not file.is_file():
        return parse_model(text, alphabet)
    lines = file.read_text(encoding="utf-8", errors="replace").split("\n")
    if len([line for line in lines if line.strip()]) != 1:
        raise InputError("a model file has one line", file=text, hint="as in .bestModel files")
    return parse_model(lines[0], alphabet)


FIXED_TOPOLOGY = SearchSettings(phases=(), perturbation=PerturbationSettings(patience=0))
"""A search without rearrangements: model and branch lengths only."""


def evaluate(
    likelihood: Likelihood,
    tree: Tree,
    model: Model,
    emit: Emit,
    *,
    optimise_parameters: bool,
    optimise_lengths: bool,
) -> tuple[Tree, Model, float]:
    """A tree and a model, optimised as far as asked for, and their lnL (natural log)."""
    tree = tree.copy()
    settings = FIXED_TOPOLOGY.for_precision(is_exact(likelihood.engine))
    if optimise_parameters and optimise_lengths:
        rng = np.random.default_rng()  # nothing draws from it
        found = search(likelihood, [StartingTree(tree, "user 1")], model, settings, rng, emit)
        return found.tree, found.model, found.lnl
    if optimise_lengths:
        fit = alternate(likelihood, [Fit(tree, model)], settings, emit, parameters=False)
        return fit.tree, fit.model, fit.lnl
    if optimise_parameters:
        fits = [Fit(tree, start) for start in with_other_rates(model)]
        fixed = replace(settings.model, scale_limit=0.0)
        optimise_models(likelihood, fits, fixed, settings.branches, fixed.final_epsilon)
        best = max(fits, key=lambda fit: fit.lnl)
        if not best.converged:
            emit(StoppedShort("model"))
        return best.tree, best.model, best.lnl
    return tree, model, float(likelihood.log_likelihoods([tree], [model.arrays()])[0])
