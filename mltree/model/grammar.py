"""Model strings in RAxML-NG's grammar: parsing them, and printing them as its .bestModel does.

    MODEL[{rates}] [+C10|...|+C60[{weights}]] [+F|+FC|+FE|+FO|+FU{frequencies}]
        [+G[K][m|a][{alpha}]|+R[K][{rates}{weights}]] [+I|+IO|+IU{p}|+I{p}]
        [+ASC_LEWIS|+ASC_FELS{sites}|+ASC_STAM{sites}]
        [+B|+BO|+BU{scale}|+B{scale}]

Values are separated by ``/`` or ``,``; braces may be square brackets; case does not matter. A
value in braces is fixed, everything else is estimated. What follows the first comma outside the
braces (``, noname = 1-603``) is a partition's name and is ignored. RAxML-NG's defaults: frequencies
of nucleotide models are equal or estimated as the model says, of protein models the model's own;
+F is +FC; +G is four categories, mean rates. Terms may come in any order.

``PROTGTR{file}``, or the file's name alone, is a matrix of the user's, in PAML's format.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mltree.errors import ModelError
from mltree.model import morphology
from mltree.model.empirical import PROTEIN_MODELS, protein_model, read_matrix
from mltree.model.free_rates import FreeRates
from mltree.model.gamma import Gamma
from mltree.model.mixtures import PAIRED, PROFILES, paired_mixture, profile_mixture
from mltree.model.names import POISSON, PROTEIN_GTR, default_model_name, unknown_name
from mltree.model.substitution import (
    DNA_MODELS,
    FrequencyMode,
    Model,
    RateClasses,
    expand_rates,
    n_pairs,
    unique_rates,
)
from mltree.model.terms import (
    DEFAULT_CATEGORIES,
    START_ALPHA,
    Term,
    numbers,
    with_options,
)

if TYPE_CHECKING:
    from mltree.alignment.alphabet import Alphabet

__all__ = ["format_best_model", "format_model", "parse_model"]

PRECISION = 6
"""Decimals in .bestModel files, as in RAxML-NG 1.2."""

_CUSTOM_CLASSES = re.compile(r"DNA([0-9]{6})")
_LIST_OF_NUMBERS = re.compile(r"[-+0-9.eE/,\s]*")


def parse_model(text: str, alphabet: Alphabet) -> Model:
    """The model that a string names.

    Estimated parameters are at the start of their estimate: exchangeabilities and frequencies
    equal (those of proteins LG's), alpha 1. Frequencies "FC" are NaN until they are counted in an
    alignment (`Model.with_empirical_frequencies`), and `Model.arrays` refuses them.

    Raises: ModelError naming the term that is wrong and, for a name, the nearest known; InputError
    where a user's matrix cannot be used.
    """
    head, *options = _split_terms(text)
    term = Term.read(head, text)
    if not _is_known(term.key) and _is_file(head):
        term = Term(head, PROTEIN_GTR, (head,))
    model = _base_model(term.key, alphabet)
    values = term.only()
    if values is not None and term.key in PROFILES:
        options = [head, *options]
    elif values is not None:
        model = _with_values(model, values, head)
    return with_options(model, options)


def _split_terms(text: str) -> list[str]:
    """Terms between the plus signs outside braces, up to the first comma outside braces."""
    terms, depth = [""], 0
    for character in text.strip():
        if character == "," and depth == 0:
            break
        if character == "+" and depth == 0:
            terms.append("")
            continue
        depth += (character in "{[") - (character in "}]")
        terms[-1] += character
    if depth != 0:
        raise ModelError(f"model {text.strip()!r}: a brace is not closed")
    return [term.strip() for term in terms]


def _is_known(name: str) -> bool:
    return _data_of(name) is not None


def _data_of(name: str) -> str | None:
    """The name of the alphabet that a model is for; None where there is no such model."""
    if name in _DNA_NAMES or _CUSTOM_CLASSES.fullmatch(name) is not None:
        return "DNA"
    if name in (*PROTEIN_MODELS, PROTEIN_GTR, POISSON, *PAIRED, *PROFILES):
        return "AA"
    return morphology.data_of(name)


def _is_file(name: str) -> bool:
    try:
        return Path(name).is_file()
    except OSError:  # longer than any file's name
        return False


_DNA_NAMES = {known.upper(): known for known in DNA_MODELS}


def _base_model(name: str, alphabet: Alphabet) -> Model:
    """The model of a bare name, nothing fixed."""
    of_characters = morphology.model_of(name, alphabet)
    if of_characters is not None:
        return of_characters
    data = _data_of(name)
    if data is None:
        raise unknown_name(name, alphabet)
    if data != alphabet.name:
        wanted = {"DNA": "nucleotides", "AA": "proteins"}.get(data, data)
        raise ModelError(
            f"model {name} is for {wanted}, but the alignment's data type is {alphabet.name}",
            hint=f"try {default_model_name(alphabet)}",
        )
    return _nucleotides(name, alphabet) if data == "DNA" else _proteins(name, alphabet)


def _nucleotides(name: str, alphabet: Alphabet) -> Model:
    custom = _CUSTOM_CLASSES.fullmatch(name)
    if custom is not None:
        return _estimated(name, alphabet, _in_order(custom[1]), np.ones(6))
    known = DNA_MODELS[_DNA_NAMES[name]]
    model = _estimated(known.name, alphabet, known.rate_classes, np.ones(6))
    mode: FrequencyMode = "FO" if known.free_frequencies else "model"
    return dataclasses.replace(model, frequency_mode=mode)


def _proteins(name: str, alphabet: Alphabet) -> Model:
    if name == PROTEIN_GTR:
        start = protein_model("LG").exchangeabilities
        return _estimated(name, alphabet, tuple(range(len(start))), start)
    if name in PAIRED:
        return _paired(name, alphabet)
    if name in (POISSON, *PROFILES):
        return _poisson(name, alphabet)
    return Model(name, alphabet, (), *protein_model(name), "model")


def _paired(name: str, alphabet: Alphabet) -> Model:
    """LG4M with four gamma rates, LG4X with four free ones."""
    mixture = paired_mixture(name)
    form: Gamma | FreeRates = Gamma(mixture.n_classes, START_ALPHA)
    if name == "LG4X":
        form = FreeRates.from_gamma(mixture.n_classes, START_ALPHA)
    lg = protein_model("LG")
    return Model(name, alphabet, (), *lg, "model", heterogeneity=form, mixture=mixture)


def _poisson(name: str, alphabet: Alphabet) -> Model:
    """All exchangeabilities equal; a bare C20 is POISSON+C20+G4, as in IQ-TREE."""
    states = alphabet.n_states
    equal = np.full(states, 1.0 / states)
    model = Model(POISSON, alphabet, (), np.ones(n_pairs(states)), equal, "model")
    if name == POISSON:
        return model
    form = Gamma(DEFAULT_CATEGORIES, START_ALPHA)
    return dataclasses.replace(model, heterogeneity=form, mixture=profile_mixture(name))


def _estimated(
    name: str, alphabet: Alphabet, classes: RateClasses, rates: NDArray[np.float64]
) -> Model:
    states = len(alphabet.states)
    return Model(name, alphabet, classes, rates, np.full(states, 1.0 / states), "FO")


def _in_order(classes: str) -> RateClasses:
    """The same classes numbered in order of appearance: 353353 is 010010."""
    order = list(dict.fromkeys(classes))
    return tuple(order.index(digit) for digit in classes)


def _with_values(model: Model, values: str, head: str) -> Model:
    """The model with what stands in the braces behind its name, be it numbers or a file."""
    if not model.rate_classes:
        raise ModelError(f"model {model.name} has exchangeabilities of its own: none can be given")
    if model.name == PROTEIN_GTR and not _LIST_OF_NUMBERS.fullmatch(values):
        rates, frequencies = read_matrix(values)
        return dataclasses.replace(
            model, rates=rates, rates_fixed=True, frequencies=frequencies, frequency_mode="FU"
        )
    return _with_rates(model, numbers(values, head))


def _with_rates(model: Model, values: NDArray[np.float64]) -> Model:
    """The model with the exchangeabilities of its classes fixed, the last pair's scaled to 1.

    One value per class in the order of the classes (RAxML-NG), or one per pair that agrees with the
    classes, or one per class but the last pair's, which is then 1 (``K80{2.5}``). Where the last
    pair's is zero, they stay as they are.
    """
    if (values < 0.0).any():
        raise ModelError(f"model {model.name}: exchangeabilities must not be negative")
    classes = len(set(model.rate_classes))
    reference = model.rate_classes[-1]
    if len(values) == n_pairs(model.n_states):
        unique = _classes_of_pairs(model, values)
    elif len(values) == classes - 1:
        unique = np.insert(values, reference, 1.0)
    else:
        unique = values
    if len(unique) != classes:
        raise ModelError(
            f"model {model.name} has {classes} exchangeabilities, not {len(values)}",
            hint=_hint_at_classes(model),
        )
    unique = unique / (unique[reference] or 1.0)
    return dataclasses.replace(
        model, rates=expand_rates(model.rate_classes, unique), rates_fixed=True
    )


def _classes_of_pairs(model: Model, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The value of each class from one per pair, which must agree with the classes."""
    unique = unique_rates(model.rate_classes, values)
    if not np.allclose(values, expand_rates(model.rate_classes, unique), atol=0.0):
        raise ModelError(
            f"model {model.name}: the exchangeabilities are not equal where they must be",
            hint=f"{_hint_at_classes(model)}; or use GTR",
        )
    return unique


def _hint_at_classes(model: Model) -> str:
    if model.alphabet.name != "DNA":
        return f"the upper triangle by rows, of states in the order {model.alphabet.states}"
    classes = "".join(map(str, model.rate_classes))
    return f"AC AG AT CG CT GT have the classes {classes}: one value for each"


def format_model(model: Model, precision: int = PRECISION) -> str:
    """The model with its values, as RAxML-NG prints it: ``GTR{0.7/.../1.0}+FC+IU{0.2}+G4m{0.5}``.

    Estimated values are in braces too, estimated frequencies as +FU{...}; counted frequencies are
    +FC, since whoever reads the line has the alignment. `precision` is in decimals.
    """
    braces = partial(_braces, precision)
    text = model.name
    if len(set(model.rate_classes)) > 1:
        text += braces(*unique_rates(model.rate_classes, model.rates))
    if model.mixture is not None and not model.mixture.is_paired:
        text += f"+{model.mixture.name}{braces(*model.mixture.weights)}"
    if model.frequency_mode in ("FO", "FU"):
        text += "+FU" + braces(*model.frequencies)
    elif model.frequency_mode != "model":
        text += f"+{model.frequency_mode}"
    text += "".join(_at_sites(model, braces))
    if model.branch_scaler is not None:
        text += "+BU" + braces(model.branch_scaler)
    return text


def _braces(precision: int, *values: float) -> str:
    return "{" + "/".join(f"{value:.{precision}f}" for value in values) + "}"


def _at_sites(model: Model, braces: Callable[..., str]) -> Iterator[str]:
    """The terms of what differs among sites."""
    form = model.heterogeneity
    if model.p_invariant is not None:
        yield "+IU" + braces(model.p_invariant)
    if isinstance(form, Gamma):
        mode = "a" if form.mode == "median" else "m"
        yield f"+G{form.n_categories}{mode}{braces(form.alpha)}"
    if isinstance(form, FreeRates):
        is_paired = model.mixture is not None and model.mixture.is_paired
        rates, weights = form.categories if is_paired else form.ascending()
        yield f"+R{len(rates)}{braces(*rates)}{braces(*weights)}"
    if model.ascertainment is not None:
        yield model.ascertainment.text


def format_best_model(model: Model, n_sites: int, partition: str = "noname") -> str:
    """The line of RAxML-NG's .bestModel: the model, the partition's name and its sites."""
    return f"{format_model(model)}, {partition} = 1-{n_sites}"
