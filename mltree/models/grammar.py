"""Model strings in RAxML-NG's grammar: parsing them, and printing them as its .bestModel does.

    MODEL[{rates}]|MIX{MODEL...[:rate:weight],...}
        [+C10|...|+C60[{weights}]|+FMIX{FREQUENCIES[:rate:weight],...}]
        [+F|+FC|+FE|+FO|+FU{frequencies}|+F1X4|+F3X4]
        [+G[K][m|a][{alpha}]|+R[K][{rates}{weights}]|+PSR[n]] [+I|+IO|+IU{p}|+I{p}]
        [+ASC_LEWIS|+ASC_FELS{sites}|+ASC_STAM{sites}]
        [+B|+BO|+BU{scale}|+B{scale}]

Values are separated by ``/`` or ``,``; braces may be square brackets; case does not matter. A
value in braces is fixed, everything else is estimated. What follows the first comma outside the
braces may only be the name and sites that a .bestModel without parts has (``, noname = 1-603``).
RAxML-NG's defaults: frequencies of nucleotide models are equal or estimated as the model says, of
protein models the model's own; +F is +FC; +G is four categories, mean rates. Terms may come in any
order.

Of codons, ``GY{omega/kappa}``, ``MG{omega}`` and ``MGK{omega/kappa}``, as IQ-TREE has it.

``PROTGTR{file}``, or the file's name alone, is a matrix of the user's, in PAML's format.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from mltree.data.codons import CodonAlphabet
from mltree.data.parts import NO_NAME
from mltree.data.patterns import Ascertainment, Correction
from mltree.models.empirical import FREQUENCY_SLACK, PROTEIN_MODELS, protein_model, read_matrix
from mltree.models.families import FAMILIES
from mltree.models.names import (
    GTR20,
    POISSON,
    PROTEIN_GTR,
    default_model_name,
    mixed,
    outside_braces,
    unknown_name,
)
from mltree.models.rates import (
    ALPHA_MIN,
    DEFAULT_SITE_RATES,
    GRID,
    ONE_RATE,
    FreeRates,
    Gamma,
    GammaMode,
    SiteRates,
)
from mltree.models.substitution import (
    DNA_MODELS,
    PAIRED,
    POSITIONS,
    PROFILES,
    CodonRates,
    FrequencyMode,
    Mixed,
    Model,
    Paired,
    Profiles,
    equal_model,
    expand_rates,
    n_classes,
    n_pairs,
    paired_mixture,
    profile_mixture,
    unique_rates,
)
from mltree.system.arrays import Float64
from mltree.system.errors import ModelError
from mltree.system.values import decimal

if TYPE_CHECKING:
    from mltree.data.alphabet import Alphabet


# The terms behind a model's name: +F, +G, +R, +PSR, +I, +ASC and +B, read as RAxML-NG does.

DEFAULT_CATEGORIES = 4
"""+G and +R without a number, as everywhere in the field."""
MAX_CATEGORIES = 64
"""More gamma categories than this are a slip of the pen."""
MAX_FREE_CATEGORIES = 10
"""More free rates than this are not told apart by data: where IQ-TREE stops looking too."""
START_ALPHA = 1.0
"""Start of the estimate of alpha, as in RAxML-NG."""
START_P_INVARIANT = 0.1
"""Start of the estimate of the proportion of invariable sites."""

_INSIDE = r"(?:[^{}\[\]]|[{\[][^{}\[\]]*[}\]])*"
"""Content of braces: the classes of MIX have braces themselves."""
_TERM = re.compile(rf"([^{{}}\[\]]*)((?:[{{\[]{_INSIDE}[}}\]])*)")
_BRACES = re.compile(rf"[{{\[]({_INSIDE})[}}\]]")
_GAMMA = re.compile(r"G(?P<categories>[0-9]{0,9})(?P<mode>[AM]?)")
_FREE = re.compile(r"R(?P<categories>[0-9]{0,9})")
_SITE_RATES = re.compile(r"PSR([0-9]{0,9})")


class ModelTerm(NamedTuple):
    """A part of a model's string between plus signs."""

    text: str
    """The term as it was written."""
    key: str
    """Text before the braces, in capitals."""
    values: tuple[str, ...]
    """Content of each pair of braces."""

    @classmethod
    def read(cls, text: str, context: str) -> ModelTerm:
        """Parse a term; ``context`` is the whole model's string.

        Raises: ModelError where it is none.
        """
        match = _TERM.fullmatch(text)
        if match is None or not match[1]:
            raise ModelError(
                f"model {context.strip()!r}: cannot read {text!r}",
                hint="write for example GTR+FC+G4 or LG+I+G4",
            )
        return cls(text, match[1].strip().upper(), tuple(_BRACES.findall(match[2])))

    def only(self) -> str | None:
        """Content of the one pair of braces; None without braces.

        Raises: ModelError where there are more.
        """
        if len(self.values) > 1:
            raise self.error("expected one pair of braces")
        return self.values[0] if self.values else None

    def numbers(self, values: str) -> Float64:
        """The numbers in a pair of braces. Raises: ModelError for anything else."""
        try:
            parsed = [decimal(value) for value in re.split(r"[/,]", values)]
        except ValueError:
            parsed = []
        if not parsed or not all(math.isfinite(number) for number in parsed):
            raise ModelError(f"{self.text!r}: expected numbers in braces, separated by slashes")
        return np.array(parsed)

    def number(self, values: str) -> float:
        """The one number in a pair of braces. Raises: ModelError for anything else."""
        parsed = self.numbers(values)
        if len(parsed) != 1:
            raise ModelError(f"{self.text!r}: expected one number in braces, not {len(parsed)}")
        return float(parsed[0])

    def error(self, message: str, hint: str | None = None) -> ModelError:
        """The error for a term whose values cannot be used."""
        return ModelError(f"+{self.text}: {message}", hint=hint)

    def unreadable(self, noun: str, hint: str) -> ModelError:
        """The error for a term that cannot be read."""
        return ModelError(f"cannot read {noun} +{self.text}", hint=hint)


def _with_terms(model: Model, texts: list[str]) -> Model:
    """Apply the terms behind a model's name.

    Raises: ModelError naming the term that is wrong.
    """
    seen: dict[str, str] = {}
    for text in texts:
        term = ModelTerm.read(text, f"{model.name}+{text}")
        about, apply = _kind_of(term)
        letter, before = term.key[0], seen.get(about)
        if before is not None:
            two = f"two +{letter} terms" if letter == before else f"both +{before} and +{letter}"
            raise ModelError(f"model {model.name} has {two}", hint=f"say {about} once")
        seen[about] = letter
        model = apply(model, term)
    return _completed(model, "the frequencies" in seen)


def _kind_of(term: ModelTerm) -> _TermKind:
    letter = term.key[:1]
    if letter in _TERM_KINDS and not term.key.startswith("IC"):
        return _TERM_KINDS[letter]
    if letter in ("M", "I", "E"):
        raise ModelError(
            f"+{term.text} is not supported yet",
            hint="use +I instead" if letter == "I" else "leave it out",
        )
    raise ModelError(
        f"unknown model term +{term.text}",
        hint="terms are +F, +FC, +FE, +FO, +FU{...}, +F1X4, +F3X4, +G[n][m|a][{alpha}], "
        "+R[n][{...}{...}], "
        "+PSR[n], +I[{p}], +ASC_LEWIS, +ASC_FELS{...}, +ASC_STAM{...}, +B[{scale}]",
    )


def _with_nucleotides(model: Model, term: ModelTerm, mode: FrequencyMode) -> Model:
    """Set codon frequencies as products of nucleotide frequencies, by position or not."""
    codon, positions, values = model.codon, POSITIONS[mode], term.only()
    if codon is None and isinstance(model.alphabet, CodonAlphabet):
        codon = CodonRates(model.alphabet, has_kappa=False, omega_fixed=True, published=model.rates)
    if codon is None:
        raise term.error(
            f"model {model.name} is not a codon model", hint="codon models: GY+F3X4, MG+F1X4"
        )
    model = replace(
        model, codon=codon, frequencies=np.full(model.n_states, np.nan), frequency_mode=mode
    )
    if values is None:
        return model
    nucleotides = _given_frequencies(term, values, 4 * positions)
    rows = nucleotides.reshape(positions, 4)
    if not (rows > 0.0).all() or (abs(rows.sum(axis=1) - 1.0) > FREQUENCY_SLACK).any():
        raise term.error(
            "frequencies of nucleotides must be above 0 and sum to 1",
            hint="in the order ACGT, those of the first position first",
        )
    codon = replace(codon, given_nucleotides=tuple(nucleotides.tolist()))
    return model.with_codon(codon.with_nucleotides(np.broadcast_to(rows, (3, 4))))


def _given_frequencies(term: ModelTerm, values: str, count: int) -> Float64:
    frequencies = term.numbers(values)
    if len(frequencies) != count:
        raise term.error(f"expected {count} frequencies, not {len(frequencies)}")
    return frequencies


_IN_IQ_TREE = {"EMPIRICAL": "FC", "OPTIMIZE": "FO"}
"""IQ-TREE's words for frequencies in FMIX."""


def _with_frequency_classes(model: Model, term: ModelTerm) -> Model:
    """``+FMIX{...}``: classes that have the model's exchangeabilities."""
    if model.mixture is not None:
        raise ModelError(f"model {model.name} has classes of its own: +FMIX cannot be added")
    if model.codon is not None:
        raise ModelError(f"model {model.name} has omega: +FMIX cannot be added yet")

    def read(text: str) -> Model:
        class_term = ModelTerm.read(_IN_IQ_TREE.get(text.upper(), text), f"FMIX{{{text}}}")
        return _with_frequencies(model, class_term)

    mixture = mixed(term.key, term.only() or "", read)
    first, *others = mixture.models
    models = first, *(replace(other, rates_fixed=True) for other in others)
    return replace(model, mixture=replace(mixture, models=models), frequency_mode="model")


def _with_frequency_term(model: Model, term: ModelTerm) -> Model:
    if term.key == "FMIX":
        return _with_frequency_classes(model, term)
    if isinstance(model.mixture, Mixed):
        raise term.error(f"the classes of {model.name} have frequencies of their own")
    if term.key in POSITIONS:
        return _with_nucleotides(model, term, "F1X4" if term.key == "F1X4" else "F3X4")
    if model.codon is not None and model.codon.by_nucleotide and term.key != "FE":
        raise term.error(
            f"the rates of {model.name} go by frequencies of nucleotides",
            hint="write +F3X4, +F1X4 or +FE; GY takes frequencies of codons",
        )
    return _with_frequencies(model, term)


_FREQUENCY_MODES: dict[str, FrequencyMode] = {"F": "FC", "FC": "FC", "FE": "FE", "FO": "FO"}
"""Modes of terms without values."""


def _with_frequencies(model: Model, term: ModelTerm) -> Model:
    states, key, values = model.n_states, term.key, term.only()
    if values is not None:
        if key not in ("F", "FU"):
            raise term.error("only +FU takes values")
        frequencies = _given_frequencies(term, values, states)
        if (frequencies < 0.0).any() or abs(frequencies.sum() - 1.0) > FREQUENCY_SLACK:
            raise term.error(
                f"frequencies must not be negative and must sum to 1, not {frequencies.sum():.6g}"
            )
        return replace(model, frequencies=frequencies / frequencies.sum(), frequency_mode="FU")
    mode = _FREQUENCY_MODES.get(key)
    if mode is None:
        raise term.unreadable(
            "the frequencies",
            hint="+F or +FC counts them, +FE is equal, +FO estimates, +FU{...} gives them; of "
            "codons +F1X4 and +F3X4",
        )
    start = np.full(states, np.nan if mode == "FC" else 1.0 / states)
    return replace(model, frequencies=start, frequency_mode=mode)


def _with_gamma(model: Model, term: ModelTerm) -> Model:
    match, values = _GAMMA.fullmatch(term.key), term.only()
    if match is None:
        raise term.unreadable(
            "the rate heterogeneity", hint="write +G4, +G4m (mean), +G4a (median) or +G4m{0.5}"
        )
    categories = int(match["categories"] or DEFAULT_CATEGORIES)
    if not 1 <= categories <= MAX_CATEGORIES:
        raise term.error(f"between 1 and {MAX_CATEGORIES} rate categories are possible")
    alpha = START_ALPHA if values is None else term.number(values)
    if alpha < ALPHA_MIN:
        raise term.error(f"alpha must be at least {ALPHA_MIN}")
    if categories == 1:
        return model
    mode: GammaMode = "median" if match["mode"] == "A" else "mean"
    form = Gamma(categories, alpha, mode, fixed=values is not None)
    return replace(model, heterogeneity=form)


def _with_free_rates(model: Model, term: ModelTerm) -> Model:
    match = _FREE.fullmatch(term.key)
    if match is None or len(term.values) > 2:
        raise term.unreadable(
            "the free rates",
            hint="write +R4, or +R4{rates}{weights} with numbers that slashes separate",
        )
    lists = [term.numbers(values) for values in term.values]
    categories = int(match["categories"] or (len(lists[0]) if lists else DEFAULT_CATEGORIES))
    if not 2 <= categories <= MAX_FREE_CATEGORIES:
        raise term.error(f"between 2 and {MAX_FREE_CATEGORIES} free rates are possible")
    for what, values in zip(("rates", "weights"), lists, strict=False):
        if len(values) != categories:
            raise term.error(
                f"expected {categories} {what}, not {len(values)}",
                hint="write the rates in one pair of braces and the weights in another",
            )
    if not lists:
        form = FreeRates.from_gamma(categories, START_ALPHA)
    else:
        weights = lists[-1] if lists[1:] else np.ones(categories)
        in_order = isinstance(model.mixture, Paired)
        form = FreeRates.of(lists[0], weights, fixed=True, in_order=in_order)
    return replace(model, heterogeneity=form)


def _with_site_rates(model: Model, term: ModelTerm) -> Model:
    match = _SITE_RATES.fullmatch(term.text.strip().upper())
    if match is None:
        raise term.unreadable(
            "the rates of sites",
            hint=f"write +PSR, or +PSR10 for 10 rates instead of {DEFAULT_SITE_RATES}",
        )
    count = int(match[1] or DEFAULT_SITE_RATES)
    if not 2 <= count <= len(GRID):
        raise term.error(f"between 2 and {len(GRID)} rates are possible")
    return replace(model, heterogeneity=SiteRates(count))


def _with_profiles(model: Model, term: ModelTerm) -> Model:
    if term.key not in PROFILES:
        hint = f"write one of +{', +'.join(PROFILES)}"
        if term.key == "CAT":
            hint = "RAxML's CAT, a rate a site, is +PSR; profiles are +C10 to +C60"
        raise term.unreadable("the profiles", hint=hint)
    if model.alphabet.name != "AA":
        raise term.error(f"profiles are for proteins, not for {model.alphabet.name}")
    if model.mixture is not None and model.mixture.name != term.key:
        raise ModelError(f"model {model.name} has classes of its own: +{term.text} cannot be added")
    values, mixture = term.only(), profile_mixture(term.key)
    if values is not None:
        weights = term.numbers(values)
        if len(weights) == mixture.n_classes + 1:
            mixture = mixture.with_own_class()
        mixture = mixture.with_weights(weights, fixed=True)
    return replace(model, mixture=mixture)


def _completed(model: Model, has_frequencies: bool) -> Model:
    """Check the terms together, and add the class of +F to profiles.

    Frequencies that no term tells, such as PROTGTR's or a file's, are the profiles' then, as in
    IQ-TREE. Raises: ModelError where terms contradict each other.
    """
    mixture = model.mixture
    if isinstance(model.heterogeneity, SiteRates):
        beside = {"+I": model.p_invariant, "+ASC": model.ascertainment, "mixtures": mixture}
        for noun, value in beside.items():
            if value is not None:
                raise ModelError(f"+PSR does not go with {noun}", hint="use +G4 instead of +PSR")
    if isinstance(mixture, Paired):
        k = len(model.heterogeneity.categories.rates)
        if k != mixture.n_classes:
            raise ModelError(
                f"model {model.name} has {mixture.n_classes} rates, one for each of its matrices",
                hint=f"write +G{mixture.n_classes} or +R{mixture.n_classes}, or neither",
            )
        if model.frequency_mode != "model":
            raise ModelError(f"model {model.name} has frequencies of its own: leave out +F")
    if not isinstance(mixture, Profiles):
        return model
    if has_frequencies:
        return replace(model, mixture=mixture.with_own_class())
    if mixture.has_own:
        count = mixture.n_classes
        raise ModelError(f"+{mixture.name}: expected {count - 1} weights, not {count}")
    return replace(model, frequency_mode="model")


def _with_invariant(model: Model, term: ModelTerm) -> Model:
    p_invariant = _value(term, "I", "the proportion of invariable sites", "0.2")
    if p_invariant is None:
        return replace(model, p_invariant=START_P_INVARIANT)
    if not 0.0 <= p_invariant < 1.0:
        raise term.error("the proportion must be in [0, 1)")
    return replace(model, p_invariant=p_invariant, p_invariant_fixed=True)


def _with_scaler(model: Model, term: ModelTerm) -> Model:
    scale = _value(term, "B", "the scale of branch lengths", "1.5")
    if scale is not None and not scale > 0.0:
        raise term.error("the scale must be positive")
    return replace(model, branch_scaler=1.0 if scale is None else scale)


def _value(term: ModelTerm, letter: str, noun: str, example: str) -> float | None:
    """Return the value of +I or +B in braces; None for one to estimate."""
    values = term.only()
    if values is None and term.key in (letter, f"{letter}O"):
        return None
    if values is None or term.key not in (letter, f"{letter}U"):
        given = f"+{letter}{{{example}}}, +{letter}U{{{example}}} (given)"
        raise term.unreadable(noun, hint=f"write +{letter}, +{letter}O (estimated) or {given}")
    return term.number(values)


def _with_ascertainment(model: Model, term: ModelTerm) -> Model:
    values = term.only()
    kind = term.key.removeprefix("ASC_") if term.key != "ASC" else Correction.LEWIS
    states = len(model.alphabet.certain_codes)
    n_counts = {Correction.LEWIS: 0, Correction.FELSENSTEIN: 1, Correction.STAMATAKIS: states}
    if kind not in n_counts:
        raise term.unreadable(
            "the correction for constant sites",
            hint="write +ASC_LEWIS, +ASC_FELS{sites} or +ASC_STAM{sites of each state}",
        )
    correction = Correction(kind)
    counts = () if values is None else tuple(term.numbers(values).tolist())
    if len(counts) != n_counts[correction]:
        raise term.error(
            f"expected {n_counts[correction] or 'no'} numbers in braces, "
            f"not {len(counts) or 'none'}",
            hint="how many constant sites were left out: all, or of each state",
        )
    if any(count < 0 for count in counts) or (counts and not sum(counts) > 0):
        raise term.error("numbers of sites must not be negative, nor all zero")
    return replace(model, ascertainment=Ascertainment(correction, counts))


_TermKind: TypeAlias = tuple[str, Callable[[Model, ModelTerm], Model]]

_TERM_KINDS: dict[str, _TermKind] = {
    "F": ("the frequencies", _with_frequency_term),
    "G": ("the rates among sites", _with_gamma),
    "R": ("the rates among sites", _with_free_rates),
    "P": ("the rates among sites", _with_site_rates),
    "I": ("the invariable sites", _with_invariant),
    "C": ("the classes", _with_profiles),
    "A": ("the constant sites", _with_ascertainment),
    "B": ("the scale of branch lengths", _with_scaler),
}
"""By a term's first letter: the property that it sets, which no other term may set, and how."""


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
    whole, *behind = outside_braces(text, ",")
    if behind and re.fullmatch(rf"{NO_NAME}\s*=.*", ",".join(behind)) is None:
        raise ModelError(
            f"model {text.strip()!r}: no model has {', '.join(behind)!r} behind a comma",
            hint="a file has the parts, a line for each, such as GTR+G4, name = 1-900",
        )
    head, *terms = outside_braces(whole, "+")
    term = ModelTerm.read(head, text)
    if term.key == "MIX":
        return _with_terms(_mixed(term, alphabet), terms)
    if term.key == GTR20:
        term = term._replace(key=PROTEIN_GTR)
    if data_of(term.key) is None and _is_file(head):
        term = ModelTerm(head, PROTEIN_GTR, (head,))
    model = _base_model(term.key, alphabet)
    values = term.only()
    if values is not None and term.key in PROFILES:
        terms = [head, *terms]
    elif values is not None:
        model = _with_values(model, term, values)
    return _with_terms(model, terms)


def _mixed(term: ModelTerm, alphabet: Alphabet) -> Model:
    """``MIX{...}``: classes that have exchangeabilities and frequencies, and nothing else."""
    mixture = mixed(term.key, term.only() or "", lambda text: _class(text, alphabet))
    first = mixture.models[0]
    return Model(term.key, alphabet, (), first.rates, first.frequencies, "model", mixture=mixture)


def _class(text: str, alphabet: Alphabet) -> Model:
    model = parse_model(text, alphabet)
    if model.codon is not None:
        raise ModelError(f"MIX{{...}}: no mixtures of models with omega yet, such as {text!r}")
    extras = model.p_invariant, model.branch_scaler, model.mixture, model.ascertainment
    if model.heterogeneity is not ONE_RATE or any(value is not None for value in extras):
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
    """The model of a bare name, with nothing fixed."""
    for family in FAMILIES:
        model = family.model_of(name, alphabet)
        if model is not None:
            return model
    data = data_of(name)
    if data is None:
        raise unknown_name(name, alphabet)
    if data != alphabet.name:
        characters = {"DNA": "nucleotides", "AA": "proteins", "CODON": "codons"}.get(data, data)
        raise ModelError(
            f"model {name} is for {characters}, but the alignment's data type is {alphabet.name}",
            hint=f"try {default_model_name(alphabet)}",
        )
    return _nucleotides(name, alphabet) if data == "DNA" else _proteins(name, alphabet)


def _nucleotides(name: str, alphabet: Alphabet) -> Model:
    custom = _CUSTOM_CLASSES.fullmatch(name)
    if custom is not None:
        order = list(dict.fromkeys(custom[1]))  # of appearance: 353353 is 010010
        return equal_model(name, alphabet, tuple(map(order.index, custom[1])), "FO")
    known = DNA_MODELS[_DNA_NAMES[name]]
    mode: FrequencyMode = "FO" if known.free_frequencies else "model"
    return equal_model(known.name, alphabet, known.rate_classes, mode)


def _proteins(name: str, alphabet: Alphabet) -> Model:
    if name == PROTEIN_GTR:
        start = protein_model("LG").exchangeabilities
        return replace(equal_model(name, alphabet, tuple(range(len(start))), "FO"), rates=start)
    if name in PAIRED:
        return _paired(name, alphabet)
    if name in (POISSON, *PROFILES):
        return _poisson(name, alphabet)
    return Model(name, alphabet, (), *protein_model(name), "model")


def _paired(name: str, alphabet: Alphabet) -> Model:
    """LG4M with four gamma rates, or LG4X with four free ones."""
    mixture = paired_mixture(name)
    among = FreeRates.from_gamma if name == "LG4X" else Gamma
    form, lg = among(mixture.n_classes, START_ALPHA), protein_model("LG")
    return Model(name, alphabet, (), *lg, "model", heterogeneity=form, mixture=mixture)


def _poisson(name: str, alphabet: Alphabet) -> Model:
    """The model of equal exchangeabilities; a bare C20 is POISSON+C20+G4, as in IQ-TREE."""
    model = equal_model(POISSON, alphabet, (0,) * n_pairs(alphabet.n_states), "model")
    model = replace(model, rate_classes=())
    if name == POISSON:
        return model
    form = Gamma(DEFAULT_CATEGORIES, START_ALPHA)
    return replace(model, heterogeneity=form, mixture=profile_mixture(name))


def _with_values(model: Model, term: ModelTerm, values: str) -> Model:
    """The model with the values or the file in the braces behind its name."""
    if model.codon is not None:
        return _with_ratios(model, model.codon, term.numbers(values))
    if not model.rate_classes:
        raise ModelError(f"model {model.name} has exchangeabilities of its own: none can be given")
    if model.name == PROTEIN_GTR and not _LIST_OF_NUMBERS.fullmatch(values):
        rates, frequencies = read_matrix(values)
        return replace(
            model, rates=rates, rates_fixed=True, frequencies=frequencies, frequency_mode="FU"
        )
    return _with_rates(model, term.numbers(values))


def _with_ratios(model: Model, codon: CodonRates, values: Float64) -> Model:
    """The codon model with ω, or ω and κ, fixed."""
    if len(values) != len(codon.values) or not (values > 0.0).all():
        ratios = "omega and kappa" if codon.has_kappa else "omega alone"
        raise ModelError(
            f"model {model.name}: needs {ratios} above 0, in braces",
            hint=f"write {model.name}{'{0.2/2.5}' if codon.has_kappa else '{0.2}'}",
        )
    return model.with_codon(codon.at(values.tolist()).held())


def _with_rates(model: Model, values: Float64) -> Model:
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
    return replace(model, rates=expand_rates(model.rate_classes, unique), rates_fixed=True)


def _classes_of_pairs(model: Model, values: Float64) -> Float64:
    """The value of each class from values of all pairs, which must agree with the classes."""
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
    +FC, because the alignment has them. `precision` is in decimals.
    """
    braces = partial(_braces, precision)
    text = _matrix(model, braces) + "".join(_at_sites(model, braces))
    if model.branch_scaler is not None:
        text += "+BU" + braces(model.branch_scaler)
    return text


def _matrix(model: Model, braces: Callable[..., str]) -> str:
    """The name, and the terms of exchangeabilities, classes and frequencies."""
    mixture = model.mixture
    text = model.name
    if isinstance(mixture, Mixed) and not mixture.is_linked:
        return text + _classes(
            mixture, [_matrix(class_model, braces) for class_model in mixture.models], braces
        )
    if n_classes(model.rate_classes) > 1:
        text += braces(*unique_rates(model.rate_classes, model.rates))
    if model.codon is not None and model.codon.values:
        text += braces(*model.codon.values)
    if isinstance(mixture, Mixed):
        terms = [_frequencies(class_model, braces)[1:] for class_model in mixture.models]
        return f"{text}+{mixture.name}{_classes(mixture, terms, braces)}"
    if isinstance(mixture, Profiles):
        text += f"+{mixture.name}{braces(*mixture.weights)}"
    return text + _frequencies(model, braces)


def _frequencies(model: Model, braces: Callable[..., str]) -> str:
    if model.frequency_mode in ("FO", "FU"):
        return "+FU" + braces(*model.frequencies)
    if model.frequency_mode == "model":
        return ""
    nucleotides = model.codon.given_nucleotides if model.codon is not None else ()
    return f"+{model.frequency_mode}{braces(*nucleotides) if nucleotides else ''}"


def _classes(mixture: Mixed, texts: list[str], braces: Callable[..., str]) -> str:
    """The classes in braces, with rates and weights."""
    numbers_of = zip(mixture.speeds.tolist(), mixture.weights.tolist(), strict=True)
    ends = [":".join(["", *(braces(value)[1:-1] for value in pair)]) for pair in numbers_of]
    return "{" + ",".join(text + end for text, end in zip(texts, ends, strict=True)) + "}"


def _braces(precision: int, *values: float) -> str:
    return "{" + "/".join(f"{value:.{precision}f}" for value in values) + "}"


def _at_sites(model: Model, braces: Callable[..., str]) -> Iterator[str]:
    """The terms of rates among sites, invariable sites and ascertainment."""
    form = model.heterogeneity
    if model.p_invariant is not None:
        yield "+IU" + braces(model.p_invariant)
    if isinstance(form, Gamma):
        mode = "a" if form.mode == "median" else "m"
        yield f"+G{form.n_categories}{mode}{braces(form.alpha)}"
    if isinstance(form, FreeRates):
        in_order = isinstance(model.mixture, Paired)
        rates, weights = form.categories if in_order else form.ascending()
        yield f"+R{len(rates)}{braces(*rates)}{braces(*weights)}"
    if isinstance(form, SiteRates):
        yield "+PSR" if form.most == DEFAULT_SITE_RATES else f"+PSR{form.most}"
    if model.ascertainment is not None:
        yield model.ascertainment.text


def format_best_model(model: Model, n_sites: int) -> str:
    """The line of RAxML-NG's .bestModel: the model, no name of a part, and its sites."""
    return f"{format_model(model)}, {NO_NAME} = 1-{n_sites}"
