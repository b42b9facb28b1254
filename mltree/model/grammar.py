"""Model strings in RAxML-NG's grammar: parsing them, and printing them as its .bestModel does.

    MODEL[{rates}]|MIX{MODEL...[:rate:weight],...}
        [+C10|...|+C60[{weights}]|+FMIX{FREQUENCIES[:rate:weight],...}]
        [+F|+FC|+FE|+FO|+FU{frequencies}|+F1X4|+F3X4]
        [+G[K][m|a][{alpha}]|+R[K][{rates}{weights}]|+PSR[n]] [+I|+IO|+IU{p}|+I{p}]
        [+ASC_LEWIS|+ASC_FELS{sites}|+ASC_STAM{sites}]
        [+B|+BO|+BU{scale}|+B{scale}]

Values are separated by ``/`` or ``,``; braces may be square brackets; case does not matter. A
value in braces is fixed, everything else is estimated. What follows the first comma outside the
braces (``, noname = 1-603``) is a partition's name and is ignored. RAxML-NG's defaults: frequencies
of nucleotide models are equal or estimated as the model says, of protein models the model's own;
+F is +FC; +G is four categories, mean rates. Terms may come in any order.

Of codons, ``GY{omega/kappa}``, ``MG{omega}`` and ``MGK{omega/kappa}``, as IQ-TREE has it.

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

from mltree.alignment.partition_files import NO_NAME
from mltree.errors import ModelError
from mltree.model.class_terms import mixed, outside_braces
from mltree.model.codon import CodonRates
from mltree.model.empirical import PROTEIN_MODELS, protein_model, read_matrix
from mltree.model.free_rates import FreeRates
from mltree.model.gamma import Gamma
from mltree.model.mixtures import (
    PAIRED,
    PROFILES,
    Mixed,
    Profiles,
    paired_mixture,
    profile_mixture,
)
from mltree.model.names import (
    FAMILIES,
    GTR20,
    POISSON,
    PROTEIN_GTR,
    default_model_name,
    unknown_name,
)
from mltree.model.rates import ONE_RATE
from mltree.model.site_rates import DEFAULT_SITE_RATES, SiteRates
from mltree.model.substitution import (
    DNA_MODELS,
    FrequencyMode,
    Model,
    RateClasses,
    expand_rates,
    n_classes,
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

__all__ = ["data_of", "format_best_model", "format_model", "parse_model"]

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
    head, *options = outside_braces(outside_braces(text, ",")[0], "+")
    term = Term.read(head, text)
    if term.key == "MIX":
        return with_options(_mixed(term, alphabet), options)
    if term.key == GTR20:
        term = term._replace(key=PROTEIN_GTR)
    if data_of(term.key) is None and _is_file(head):
        term = Term(head, PROTEIN_GTR, (head,))
    model = _base_model(term.key, alphabet)
    values = term.only()
    if values is not None and term.key in PROFILES:
        options = [head, *options]
    elif values is not None:
        model = _with_values(model, values, head)
    return with_options(model, options)


def _mixed(term: Term, alphabet: Alphabet) -> Model:
    """``MIX{...}``: classes that have exchangeabilities and frequencies, and nothing else."""
    mixture = mixed(term.key, term.only() or "", lambda text: _class(text, alphabet))
    first = mixture.classes[0]
    return Model(term.key, alphabet, (), first.rates, first.frequencies, "model", mixture=mixture)


def _class(text: str, alphabet: Alphabet) -> Model:
    model = parse_model(text, alphabet)
    if model.codon is not None:
        raise ModelError(f"MIX{{...}}: no mixtures of models with omega yet, such as {text!r}")
    own = model.p_invariant, model.branch_scaler, model.mixture, model.ascertainment
    if model.heterogeneity is not ONE_RATE or any(value is not None for value in own):
        raise ModelError(
            f"MIX{{...}}: the class {text!r} has more than exchangeabilities and frequencies",
            hint="what holds for all classes stands behind the braces: MIX{LG,WAG}+G4",
        )
    return model


def data_of(name: str) -> str | None:
    """The data type that a model's name in capitals is for; None where there is no such model."""
    if name in _DNA_NAMES or _CUSTOM_CLASSES.fullmatch(name) is not None:
        return "DNA"
    if name in (*PROTEIN_MODELS, PROTEIN_GTR, GTR20, POISSON, *PAIRED, *PROFILES):
        return "AA"
    return next((data for family in FAMILIES if (data := family.data_of(name))), None)


def _is_file(name: str) -> bool:
    try:
        return Path(name).is_file()
    except OSError:  # longer than any file's name
        return False


_DNA_NAMES = {known.upper(): known for known in DNA_MODELS}


def _base_model(name: str, alphabet: Alphabet) -> Model:
    """The model of a bare name, nothing fixed."""
    for family in FAMILIES:
        model = family.model_of(name, alphabet)
        if model is not None:
            return model
    data = data_of(name)
    if data is None:
        raise unknown_name(name, alphabet)
    if data != alphabet.name:
        wanted = {"DNA": "nucleotides", "AA": "proteins", "CODON": "codons"}.get(data, data)
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
    if model.codon is not None:
        return _with_ratios(model, model.codon, numbers(values, head))
    if not model.rate_classes:
        raise ModelError(f"model {model.name} has exchangeabilities of its own: none can be given")
    if model.name == PROTEIN_GTR and not _LIST_OF_NUMBERS.fullmatch(values):
        rates, frequencies = read_matrix(values)
        return dataclasses.replace(
            model, rates=rates, rates_fixed=True, frequencies=frequencies, frequency_mode="FU"
        )
    return _with_rates(model, numbers(values, head))


def _with_ratios(model: Model, codon: CodonRates, values: NDArray[np.float64]) -> Model:
    """The model of codons with ω, or ω and κ, fixed."""
    if len(values) != len(codon.values) or not (values > 0.0).all():
        wanted = "omega and kappa" if codon.has_kappa else "omega alone"
        raise ModelError(
            f"model {model.name}: {wanted} above 0 in braces, please",
            hint=f"write {model.name}{'{0.2/2.5}' if codon.has_kappa else '{0.2}'}",
        )
    return model.with_codon(codon.at(values.tolist()).held())


def _with_rates(model: Model, values: NDArray[np.float64]) -> Model:
    """The model with the exchangeabilities of its classes fixed, the last pair's scaled to 1.

    One value per class in the order of the classes (RAxML-NG), or one per pair that agrees with the
    classes, or one per class but the last pair's, which is then 1 (``K80{2.5}``). Where the last
    pair's is zero, they stay as they are.
    """
    if (values < 0.0).any():
        raise ModelError(f"model {model.name}: exchangeabilities must not be negative")
    classes = n_classes(model.rate_classes)
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
        order = " ".join(model.alphabet.states)
        return f"the upper triangle by rows, or its classes, of states in the order {order}"
    classes = "".join(map(str, model.rate_classes))
    return f"AC AG AT CG CT GT have the classes {classes}: one value for each"


def format_model(model: Model, precision: int = PRECISION) -> str:
    """The model with its values, as RAxML-NG prints it: ``GTR{0.7/.../1.0}+FC+IU{0.2}+G4m{0.5}``.

    Estimated values are in braces too, estimated frequencies as +FU{...}; counted frequencies are
    +FC, since whoever reads the line has the alignment. `precision` is in decimals.
    """
    braces = partial(_braces, precision)
    text = _matrix(model, braces) + "".join(_at_sites(model, braces))
    if model.branch_scaler is not None:
        text += "+BU" + braces(model.branch_scaler)
    return text


def _matrix(model: Model, braces: Callable[..., str]) -> str:
    """The name and the terms of exchangeabilities, classes and frequencies."""
    mixture = model.mixture
    text = model.name
    if isinstance(mixture, Mixed) and not mixture.is_linked:
        return text + _classes(mixture, [_matrix(own, braces) for own in mixture.classes], braces)
    if n_classes(model.rate_classes) > 1:
        text += braces(*unique_rates(model.rate_classes, model.rates))
    if model.codon is not None and model.codon.values:
        text += braces(*model.codon.values)
    if isinstance(mixture, Mixed):
        terms = [_frequencies(own, braces)[1:] for own in mixture.classes]
        return f"{text}+{mixture.name}{_classes(mixture, terms, braces)}"
    if isinstance(mixture, Profiles):
        text += f"+{mixture.name}{braces(*mixture.weights)}"
    return text + _frequencies(model, braces)


def _frequencies(model: Model, braces: Callable[..., str]) -> str:
    if model.frequency_mode in ("FO", "FU"):
        return "+FU" + braces(*model.frequencies)
    if model.frequency_mode == "model":
        return ""
    given = model.codon.given_nucleotides if model.codon is not None else ()
    return f"+{model.frequency_mode}{braces(*given) if given else ''}"


def _classes(mixture: Mixed, texts: list[str], braces: Callable[..., str]) -> str:
    """The classes in braces, with rates and weights."""
    numbers_of = zip(mixture.speeds.tolist(), mixture.weights.tolist(), strict=True)
    ends = [":".join(["", *(braces(value)[1:-1] for value in own)]) for own in numbers_of]
    return "{" + ",".join(text + end for text, end in zip(texts, ends, strict=True)) + "}"


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
    if isinstance(form, SiteRates):
        yield "+PSR" if form.most == DEFAULT_SITE_RATES else f"+PSR{form.most}"
    if model.ascertainment is not None:
        yield model.ascertainment.text


def format_best_model(model: Model, n_sites: int) -> str:
    """The line of RAxML-NG's .bestModel: the model, no name of a part, and its sites."""
    return f"{format_model(model)}, {NO_NAME} = 1-{n_sites}"
