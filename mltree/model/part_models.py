"""The models of an alignment's parts, by the strings of its partition file."""

from __future__ import annotations

import re
from dataclasses import replace

from mltree.alignment.alphabet import DNA, PROTEIN, Alphabet
from mltree.alignment.codons import codon_alphabet
from mltree.alignment.datatype import named_alphabet
from mltree.alignment.partitions import Partitioned
from mltree.alignment.parts import Part, Scheme
from mltree.errors import ModelError
from mltree.model.grammar import data_of, parse_model
from mltree.model.names import default_model_name, from_iq_tree, heeds_frequencies
from mltree.model.substitution import Model

_NAME_END = re.compile(r"[+{\[,]")
"""What ends the name in a model's string: ``MULTI6_MK+G4``."""

__all__ = ["in_our_words", "model_alphabet", "model_names", "part_models", "without_models"]


def in_our_words(scheme: Scheme) -> Scheme:
    """The scheme with the models of a NEXUS file, which are IQ-TREE's, in our words.

    Where none of several labels is a model, they are names, as in the definition of NEXUS.

    Raises: InputError where IQ-TREE would not heed what a model says.
    """
    if scheme.covers:
        return scheme
    labels = [part.model for part in scheme.parts if part.model is not None]
    if len(labels) == len(scheme.parts) > 1 and not any(map(_is_model, labels)):
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


def _is_model(label: str) -> bool:
    """Whether a label may be meant as a model: it is one, or has terms as models have."""
    return bool(_NAME_END.search(label)) or model_alphabet(from_iq_tree(label)) is not None


def without_models(scheme: Scheme) -> Scheme:
    """The scheme with parts whose models are open; of a model only its data type is heeded."""
    parts = []
    for part in scheme.parts:
        kind = None if part.model is None else model_alphabet(part.model)
        datatype = part.datatype or (None if kind is None else kind.name)
        parts.append(replace(part, model=None, scaler=None, tree_length=None, datatype=datatype))
    return replace(scheme, parts=tuple(parts))


def model_alphabet(model: str) -> Alphabet | None:
    """The alphabet that a model's string is for, by its name; None where it is for none.

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
    """Each part's model string: its own; else the default where it is for such data; else ours.

    Where its own are terms alone (``+ASC_LEWIS``), they stand behind that.
    """
    suits = None if default is None else model_alphabet(default)
    names = []
    for number, part in enumerate(data.parts):
        alphabet = data.alphabet(number)
        is_for = suits is alphabet or (suits is not None and suits.width == alphabet.width > 1)
        fallback = default if default and is_for else default_model_name(alphabet)
        text = part.model or fallback
        names.append(fallback + text if text.startswith("+") else text)
    return tuple(names)


def part_models(data: Partitioned, default: str | None = None) -> tuple[Model, ...]:
    """Each part's model, frequencies counted in the part where the model asks for it.

    Raises:
        InputError: the partition file has a string that cannot be used.
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
