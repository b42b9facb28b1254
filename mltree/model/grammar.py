"""Model strings in RAxML-NG's grammar: parsing them, and printing them as its .bestModel does.

    MODEL[{rates}] [+F|+FC|+FE|+FO|+FU{frequencies}] [+G[K][m|a][{alpha}]] [+I|+IO|+IU{p}|+I{p}]

Values are separated by ``/`` or ``,``; braces may be square brackets; case does not matter. A
value in braces is fixed, everything else is estimated. What follows the first comma outside the
braces (``, noname = 1-603``) is a partition's name and is ignored. RAxML-NG's defaults: frequencies
of nucleotide models are equal or estimated as the model says, of protein models the model's own;
+F is +FC; +G is four categories, mean rates. The terms of +G and +I may come in any order.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mltree.alignment.numerals import decimal
from mltree.errors import ModelError
from mltree.model.empirical import PROTEIN_MODELS, protein_model
from mltree.model.rates import ALPHA_MIN
from mltree.model.substitution import (
    DNA_MODELS,
    Model,
    expand_rates,
    n_pairs,
    unique_rates,
)

if TYPE_CHECKING:
    from mltree.alignment.alphabet import Alphabet

__all__ = ["default_model_name", "format_best_model", "format_model", "parse_model"]

DEFAULT_CATEGORIES = 4
"""+G without a number, as everywhere in the field."""
MAX_CATEGORIES = 64
"""More gamma categories than this are a slip of the pen."""
START_ALPHA = 1.0
"""Start of the estimate of alpha, as in RAxML-NG."""
START_P_INVARIANT = 0.1
"""Start of the estimate of the proportion of invariable sites."""
FREQUENCY_SLACK = 0.01
"""Frequencies in +FU{...} may miss a sum of 1 by this much (rounding); they are rescaled."""
PRECISION = 6
"""Decimals in .bestModel files, as in RAxML-NG 1.2."""

_ALIASES = {
    "JC69": "JC",
    "K2P": "K80",
    "K3P": "K81",
    "K3PU": "K81uf",
    "TPM1": "K81",
    "TPM1UF": "K81uf",
    "F84": "HKY",
    "HKY85": "HKY",
    "TN": "TN93",
    "TNE": "TN93ef",
    "TRN": "TN93",
    "TRNEF": "TN93ef",
    "TVME": "TVMef",
    "TIM": "TIM1uf",
    "REV": "GTR",
}
"""Names that other programs use, in capitals, for the hint of an error only."""

_TERM = re.compile(r"(?P<key>[^{}\[\]]*)(?:[{\[](?P<values>[^{}\[\]]*)[}\]])?")
_GAMMA = re.compile(r"G(?P<categories>[0-9]{0,9})(?P<mode>[AM]?)")
_CUSTOM_CLASSES = re.compile(r"DNA([0-9]{6})")


def default_model_name(alphabet: Alphabet) -> str:
    """The model of a run that names none: GTR+FC+G4 for nucleotides, LG+G4 for proteins."""
    return "GTR+FC+G4" if len(alphabet.states) == 4 else "LG+G4"


def parse_model(text: str, alphabet: Alphabet) -> Model:
    """The model that a string names.

    Estimated parameters are at the start of their estimate: exchangeabilities and frequencies
    equal, alpha 1. Frequencies "FC" are NaN until they are counted in an alignment
    (`Model.with_empirical_frequencies`), and `Model.arrays` refuses them.

    Raises: ModelError naming the term that is wrong and, for a name, the nearest known.
    """
    head, *options = _split_terms(text)
    name, values = _read_term(head, text)
    model = _base_model(name, alphabet)
    if values is not None:
        model = _with_rates(model, _numbers(values, head))
    seen: set[str] = set()
    for term in options:
        kind = term[:1].upper()
        if kind in seen:
            raise ModelError(f"model {text.strip()!r} has two +{kind} terms")
        seen.add(kind)
        model = _with_option(model, term)
    return model


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


def _read_term(term: str, context: str) -> tuple[str, str | None]:
    """Key in capitals and the text in braces (None without) of one term."""
    match = _TERM.fullmatch(term)
    if match is None or not match["key"]:
        raise ModelError(
            f"model {context.strip()!r}: cannot read {term!r}",
            hint="write for example GTR+FC+G4 or LG+I+G4",
        )
    return match["key"].strip().upper(), match["values"]


def _numbers(values: str, term: str) -> NDArray[np.float64]:
    try:
        numbers = [decimal(value) for value in re.split(r"[/,]", values)]
    except ValueError:
        numbers = []
    if not numbers or not all(math.isfinite(number) for number in numbers):
        raise ModelError(f"{term!r}: numbers are wanted in braces, separated by slashes")
    return np.array(numbers)


def _number(values: str, term: str) -> float:
    numbers = _numbers(values, term)
    if len(numbers) != 1:
        raise ModelError(f"{term!r}: one number is wanted in braces, not {len(numbers)}")
    return float(numbers[0])


def _base_model(name: str, alphabet: Alphabet) -> Model:
    """The model of a bare name, nothing fixed."""
    dna_name = {known.upper(): known for known in DNA_MODELS}.get(name)
    custom = _CUSTOM_CLASSES.fullmatch(name)
    is_dna = dna_name is not None or custom is not None
    if not is_dna and name not in PROTEIN_MODELS:
        raise _unknown(name, alphabet)
    if is_dna != (len(alphabet.states) == 4):
        wanted = "nucleotides" if is_dna else "proteins"
        raise ModelError(
            f"model {name} is for {wanted}, but the alignment's data type is {alphabet.name}",
            hint=f"try {default_model_name(alphabet)}",
        )
    if custom is not None:
        return _nucleotide_model(name, _in_order(custom[1]), True, alphabet)
    if dna_name is not None:
        known = DNA_MODELS[dna_name]
        return _nucleotide_model(known.name, known.rate_classes, known.free_frequencies, alphabet)
    rates, frequencies = protein_model(name)
    return Model(name, alphabet, "", rates, frequencies, "model")


def _nucleotide_model(name: str, classes: str, free: bool, alphabet: Alphabet) -> Model:
    return Model(name, alphabet, classes, np.ones(6), np.full(4, 0.25), "FO" if free else "model")


def _in_order(classes: str) -> str:
    """The same classes with digits numbered in order of appearance: 353353 is 010010."""
    order = list(dict.fromkeys(classes))
    return "".join(str(order.index(digit)) for digit in classes)


def _unknown(name: str, alphabet: Alphabet) -> ModelError:
    known = list(DNA_MODELS) if len(alphabet.states) == 4 else list(PROTEIN_MODELS)
    by_capitals = {entry.upper(): entry for entry in known}
    alias = _ALIASES.get(name)
    close = difflib.get_close_matches(name, by_capitals, n=1, cutoff=0.0)
    nearest = alias if alias in known else by_capitals[close[0]]
    return ModelError(
        f"unknown model {name!r}; the nearest known is {nearest}",
        hint=f"known {alphabet.name} models: {', '.join(known)}",
    )


def _with_rates(model: Model, values: NDArray[np.float64]) -> Model:
    """The model with the exchangeabilities of its classes fixed, the last pair's scaled to 1.

    One value per class in the order of the class digits (RAxML-NG), or one per pair that agrees
    with the classes, or one per class but the last pair's, which is then 1 (``K80{2.5}``).
    """
    if not model.rate_classes:
        raise ModelError(f"model {model.name} has exchangeabilities of its own: none can be given")
    if (values < 0.0).any():
        raise ModelError(f"model {model.name}: exchangeabilities must not be negative")
    classes = len(set(model.rate_classes))
    reference = int(model.rate_classes[-1])
    if len(values) == n_pairs(model.n_states):
        unique = _classes_of_pairs(model, values)
    elif len(values) == classes - 1:
        unique = np.insert(values, reference, 1.0)
    else:
        unique = values
    if len(unique) != classes:
        raise ModelError(
            f"model {model.name} has {classes} exchangeabilities, not {len(values)}",
            hint=f"AC AG AT CG CT GT have the classes {model.rate_classes}: one value for each",
        )
    if not unique[reference] > 0.0:
        raise ModelError(
            f"model {model.name}: the exchangeability of the last pair must be positive",
            hint="the others are relative to it",
        )
    return dataclasses.replace(
        model, rates=expand_rates(model.rate_classes, unique), rates_fixed=True
    )


def _classes_of_pairs(model: Model, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The value of each class from one per pair, which must agree with the classes."""
    unique = unique_rates(model.rate_classes, values)
    if not np.allclose(values, unique[[int(digit) for digit in model.rate_classes]], atol=0.0):
        raise ModelError(
            f"model {model.name}: the exchangeabilities are not equal where they must be",
            hint=f"AC AG AT CG CT GT have the classes {model.rate_classes}; or use GTR",
        )
    return unique


def _with_option(model: Model, term: str) -> Model:
    key, values = _read_term(term, f"{model.name}+{term}")
    if key.startswith("F"):
        return _with_frequencies(model, key, values, term)
    if key.startswith("G"):
        return _with_gamma(model, key, values, term)
    if key.startswith("I") and not key.startswith("IC"):
        return _with_invariant(model, key, values, term)
    if key.startswith(("R", "IC", "B", "ASC", "M")):
        instead = {"R": "+G", "I": "+I"}.get(key[0])
        raise ModelError(
            f"+{term} is not supported yet",
            hint=f"use {instead} instead" if instead else "leave it out",
        )
    raise ModelError(
        f"unknown model term +{term}",
        hint="terms are +F, +FC, +FE, +FO, +FU{...}, +G[n][m|a][{alpha}], +I[{p}]",
    )


def _with_frequencies(model: Model, key: str, values: str | None, term: str) -> Model:
    states = model.n_states
    if values is not None:
        if key not in ("F", "FU"):
            raise ModelError(f"+{term}: only +FU takes values")
        given = _numbers(values, term)
        if len(given) != states:
            raise ModelError(f"+{term}: {states} frequencies are wanted, not {len(given)}")
        if (given < 0.0).any() or abs(given.sum() - 1.0) > FREQUENCY_SLACK:
            raise ModelError(
                f"+{term}: frequencies must not be negative and must sum to 1, "
                f"not {given.sum():.6g}"
            )
        return dataclasses.replace(model, frequencies=given / given.sum(), frequency_mode="FU")
    if key in ("F", "FC"):
        uncounted = np.full(states, np.nan)
        return dataclasses.replace(model, frequencies=uncounted, frequency_mode="FC")
    equal = np.full(states, 1.0 / states)
    if key == "FE":
        return dataclasses.replace(model, frequencies=equal, frequency_mode="FE")
    if key == "FO":
        return dataclasses.replace(model, frequencies=equal, frequency_mode="FO")
    raise ModelError(
        f"cannot read the frequencies +{term}",
        hint="+F or +FC counts them, +FE is equal, +FO estimates, +FU{...} gives them",
    )


def _with_gamma(model: Model, key: str, values: str | None, term: str) -> Model:
    match = _GAMMA.fullmatch(key)
    if match is None:
        raise ModelError(
            f"cannot read the rate heterogeneity +{term}",
            hint="write +G4, +G4m (mean), +G4a (median) or +G4m{0.5}",
        )
    categories = int(match["categories"] or DEFAULT_CATEGORIES)
    if not 1 <= categories <= MAX_CATEGORIES:
        raise ModelError(f"+{term}: between 1 and {MAX_CATEGORIES} rate categories, please")
    alpha = START_ALPHA if values is None else _number(values, term)
    if alpha < ALPHA_MIN:
        raise ModelError(f"+{term}: alpha must be at least {ALPHA_MIN}")
    if categories == 1:
        return model
    return dataclasses.replace(
        model,
        categories=categories,
        alpha=alpha,
        gamma_mode="median" if match["mode"] == "A" else "mean",
        alpha_fixed=values is not None,
    )


def _with_invariant(model: Model, key: str, values: str | None, term: str) -> Model:
    if values is None and key in ("I", "IO"):
        return dataclasses.replace(model, p_invariant=START_P_INVARIANT)
    if values is None or key not in ("I", "IU"):
        raise ModelError(
            f"cannot read the proportion of invariable sites +{term}",
            hint="write +I, +IO (estimated) or +I{0.2}, +IU{0.2} (given)",
        )
    p_invariant = _number(values, term)
    if not 0.0 <= p_invariant < 1.0:
        raise ModelError(f"+{term}: the proportion must be in [0, 1)")
    return dataclasses.replace(model, p_invariant=p_invariant, p_invariant_fixed=True)


def format_model(model: Model, precision: int = PRECISION) -> str:
    """The model with its values, as RAxML-NG prints it: ``GTR{0.7/.../1.0}+FC+IU{0.2}+G4m{0.5}``.

    Estimated values are in braces too, estimated frequencies as +FU{...}; counted frequencies are
    +FC, since whoever reads the line has the alignment. `precision` is in decimals.
    """

    def braces(values: NDArray[np.float64]) -> str:
        return "{" + "/".join(f"{value:.{precision}f}" for value in values) + "}"

    text = model.name
    if len(set(model.rate_classes)) > 1:
        text += braces(unique_rates(model.rate_classes, model.rates))
    if model.frequency_mode in ("FO", "FU"):
        text += "+FU" + braces(model.frequencies)
    elif model.frequency_mode != "model":
        text += f"+{model.frequency_mode}"
    if model.p_invariant is not None:
        text += "+IU" + braces(np.array([model.p_invariant]))
    if model.alpha is not None:
        mode = "a" if model.gamma_mode == "median" else "m"
        text += f"+G{model.categories}{mode}" + braces(np.array([model.alpha]))
    return text


def format_best_model(model: Model, n_sites: int, partition: str = "noname") -> str:
    """The line of RAxML-NG's .bestModel: the model, the partition's name and its sites."""
    return f"{format_model(model)}, {partition} = 1-{n_sites}"
