"""The models of an alignment's parts under one tree, and how its branch lengths hold for them.

A part is a range of sites with a model of its own: a gene, a codon position. An alignment that is
not partitioned has one part, so that everything above speaks of parts only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import field, replace
from functools import cached_property

import numpy as np

from mltree.data.alphabet import DNA, PROTEIN, Alphabet
from mltree.data.codons import codon_alphabet
from mltree.data.datatype import named_alphabet
from mltree.data.partitions import Partitioned
from mltree.data.parts import NO_NAME, Part, Scheme
from mltree.models.eigen import ModelArrays, fitted
from mltree.models.grammar import (
    DEFAULT_CATEGORIES,
    START_ALPHA,
    data_of,
    format_model,
    parse_model,
)
from mltree.models.names import default_model_name, from_iq_tree, heeds_frequencies
from mltree.models.rates import Gamma, SiteRates
from mltree.models.substitution import Model, arrays_of_all
from mltree.system.arrays import Float64
from mltree.system.errors import ModelError
from mltree.system.values import Value, Word

SCALER_MIN, SCALER_MAX = 0.01, 100.0
"""Bounds of a part's scaler, as in RAxML-NG."""


class Linkage(Word):
    """Relation of the branch lengths of parts (``--brlen``)."""

    LINKED = "linked"
    """All parts have the same lengths."""
    SCALED = "scaled"
    """Parts have the same lengths, times a scaler of each part; scalers have mean 1 over sites."""
    UNLINKED = "unlinked"
    """Each part has lengths of its own."""


class PartitionModel(Value, eq=False):
    """A model for each part. P parts."""

    models: tuple[Model, ...]
    """Models of the parts."""
    names: tuple[str, ...] = (NO_NAME,)
    """Names of the parts."""
    linkage: Linkage = Linkage.LINKED
    scalers: Float64 = field(default_factory=lambda: np.ones(1))
    """f64 [P]: relative rate of each part; 1 unless scaled."""
    shares: Float64 = field(default_factory=lambda: np.ones(1))
    """f64 [P]: proportion of the sites in each part."""
    least_categories: int = 1
    """Least number of categories that parts are computed with, some of weight 0."""

    @property
    def n_parts(self) -> int:
        """Number of parts, P."""
        return len(self.models)

    @property
    def lone(self) -> Model:
        """The model of an alignment with one part.

        Raises: ValueError where there are more.
        """
        (model,) = self.models
        return model

    @cached_property
    def categories(self) -> tuple[int, ...]:
        """K of each part: parts of one state count are computed with as many categories."""
        most: dict[int, int] = {}
        for arrays, systems in zip(self._unscaled, self.systems, strict=True):
            needed = systems * (arrays.n_categories // arrays.n_systems)
            least = -(-self.least_categories // systems) * systems
            most[arrays.n_states] = max(needed, most.get(arrays.n_states, least))
        return tuple(most[model.n_states] for model in self.models)

    @cached_property
    def systems(self) -> tuple[int, ...]:
        """Number of eigen systems that each part is computed with; mixtures have several."""
        most: dict[int, int] = {}
        for arrays in self._unscaled:
            most[arrays.n_states] = max(arrays.n_systems, most.get(arrays.n_states, 1))
        return tuple(most[model.n_states] for model in self.models)

    @property
    def has_site_rates(self) -> bool:
        """True where sites have a rate each (+PSR), in all parts."""
        return bool(self.site_rates)

    def check_site_rates(self) -> None:
        """Check that rates of sites, if there are any, can be found.

        Raises: ModelError where only some parts have them, or lengths are not shared by all.
        """
        count = len(self.site_rates)
        if count == 0:
            return
        if count < self.n_parts:
            raise ModelError(
                f"{count} of {self.n_parts} parts have +PSR", hint="give it to all of them or none"
            )
        if self.n_parts > 1 and self.linkage == Linkage.UNLINKED:
            raise ModelError(
                "+PSR does not go with branch lengths of every part's own",
                hint="--brlen scaled or linked, or +G4",
            )

    @property
    def under_gamma(self) -> PartitionModel:
        """A copy with gamma rates in place of site rates: trees are scored under it."""
        form = Gamma(DEFAULT_CATEGORIES, START_ALPHA)
        return self.with_parts([replace(model, heterogeneity=form) for model in self.models])

    @property
    def site_rates(self) -> list[SiteRates]:
        """The rates of sites of all parts; empty without +PSR."""
        forms = (model.heterogeneity for model in self.models)
        return [form for form in forms if isinstance(form, SiteRates)]

    @property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        """Eigen systems and categories that each part is computed with."""
        return tuple(zip(self.systems, self.categories, strict=True))

    def arrays(self) -> tuple[ModelArrays, ...]:
        """Arrays for the likelihood, for each part: rates times the part's scaler.

        Raises: ModelError as :meth:`Model.arrays`.
        """
        return self._arrays

    @cached_property
    def _arrays(self) -> tuple[ModelArrays, ...]:
        each = zip(self._unscaled, self.scalers.tolist(), self.shapes, strict=True)
        return tuple(fitted(arrays, scaler, *shape) for arrays, scaler, shape in each)

    @cached_property
    def _unscaled(self) -> list[ModelArrays]:
        return arrays_of_all(self.models)

    def with_parts(self, models: Sequence[Model], scalers: Float64 | None = None) -> PartitionModel:
        """A copy with other models, and other scalers."""
        scalers = self.scalers if scalers is None else scalers
        return replace(self, models=tuple(models), scalers=scalers)

    def mean_lengths(self, lengths: Float64) -> Float64:
        """f64 [E]: branch lengths, as they are or averaged over the sites: f64 [P, E]."""
        if lengths.ndim == 1:
            return lengths
        mean: Float64 = (lengths * self.shares[:, None]).sum(axis=0)
        return mean

    def spread(self, lengths: Float64) -> Float64:
        """A copy of lengths f64 [E], or f64 [P, E] where parts have lengths of their own."""
        if self.linkage == Linkage.UNLINKED and self.n_parts > 1 and lengths.ndim == 1:
            return np.tile(lengths, (self.n_parts, 1))
        return lengths.copy()

    def normalised(self) -> tuple[PartitionModel, float]:
        """A copy with scalers of mean 1 over sites, and the factor on lengths that makes up."""
        mean = float((self.scalers * self.shares).sum())
        if self.linkage != Linkage.SCALED:
            return self, 1.0
        return replace(self, scalers=self.scalers / mean), mean

    @property
    def text(self) -> str:
        """One line: a lone model with its values, or the number of parts."""
        if self.n_parts == 1:
            return format_model(self.lone)
        return f"{self.n_parts} parts, {self.linkage} branch lengths"


def alone(model: Model) -> PartitionModel:
    """A partition model with one part."""
    return PartitionModel((model,))


# The models of an alignment's parts, by the strings of its partition file.

_NAME_END = re.compile(r"[+{\[,]")
"""Characters that end the name in a model's string: ``MULTI6_MK+G4``."""


def in_our_words(scheme: Scheme) -> Scheme:
    """The scheme with IQ-TREE's models of a NEXUS file in our words.

    Where none of several labels is a model, labels are names, as in the definition of NEXUS.

    Raises: InputError where IQ-TREE would not heed what a model says.
    """
    if scheme.covers:
        return scheme

    def is_model(label: str) -> bool:
        return bool(_NAME_END.search(label)) or model_alphabet(from_iq_tree(label)) is not None

    labels = [part.model for part in scheme.parts if part.model is not None]
    if len(labels) == len(scheme.parts) > 1 and not any(map(is_model, labels)):
        named = (replace(part, name=part.model or "", model=None) for part in scheme.parts)
        return replace(scheme, parts=tuple(named))
    return replace(scheme, parts=tuple(_from_iq_tree(scheme, part) for part in scheme.parts))


def _from_iq_tree(scheme: Scheme, part: Part) -> Part:
    if part.model is None:
        return part
    if not heeds_frequencies(part.model):
        message = f"part {part.name}: the model {part.model} has equal frequencies in IQ-TREE"
        hint = "leave the term of frequencies out, or name HKY+F, TN+F, GTR+F or the like"
        raise scheme.error(message, part, hint)
    return replace(part, model=from_iq_tree(part.model, part.datatype))


def without_models(scheme: Scheme) -> Scheme:
    """The scheme with open models; of a part's model only the data type stays."""
    parts = []
    for part in scheme.parts:
        kind = None if part.model is None else model_alphabet(part.model)
        datatype = part.datatype or (None if kind is None else kind.name)
        parts.append(replace(part, model=None, scaler=None, tree_length=None, datatype=datatype))
    return replace(scheme, parts=tuple(parts))


def model_alphabet(model: str) -> Alphabet | None:
    """The alphabet that a model's string is for, by its name; None for an unknown name.

    Raises: InputError where it is for characters of too many states.
    """
    first = model.strip().upper().removeprefix("MIX{").strip()
    data = data_of(_NAME_END.split(first, maxsplit=1)[0].strip())
    named = named_alphabet(data) if data else None
    if named is not None:
        return named
    for alphabet in (DNA, PROTEIN, codon_alphabet()):
        try:
            parse_model(model, alphabet)
        except ModelError:
            continue
        return alphabet
    return None


def model_names(data: Partitioned, default: str | None = None) -> tuple[str, ...]:
    """Model strings of the parts: the part's, or the default where it suits the data, or ours.

    Terms alone (``+ASC_LEWIS``) are put behind the default or ours.
    """
    suits = None if default is None else model_alphabet(default)
    names = []
    for number, part in enumerate(data.parts):
        alphabet = data.alphabet(number)
        is_for = suits is not None and (
            suits.name == alphabet.name or suits.width == alphabet.width > 1
        )
        fallback = default if default and is_for else default_model_name(alphabet)
        text = part.model or (default if default and default.startswith("+") else fallback)
        names.append(fallback + text if text.startswith("+") else text)
    return tuple(names)


def part_models(data: Partitioned, default: str | None = None) -> tuple[Model, ...]:
    """Models of the parts, with frequencies counted where the model asks for it.

    Raises: InputError: the partition file has a string that cannot be used.
    """
    known: dict[tuple[str, Alphabet], Model] = {}
    models = []
    for number, text in enumerate(model_names(data, default)):
        kind = text, data.alphabet(number)
        if kind not in known:
            known[kind] = _parsed(data, number, text)
        models.append(known[kind].with_empirical_frequencies(data.patterns(number)))
    return tuple(models)


def _parsed(data: Partitioned, number: int, text: str) -> Model:
    try:
        return parse_model(text, data.alphabet(number))
    except ModelError as error:
        part = data.parts[number]
        message = f"part {part.name}: {error.message}"
        raise data.scheme.error(message, part, error.hint or "") from None
